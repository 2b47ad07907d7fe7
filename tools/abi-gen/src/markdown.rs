//! The tables of `docs/abi.md`, each between `<!-- generated: NAME -->` and `<!-- end -->`.

use crate::Error;
use crate::example;
use crate::model::{self, Group, Item};
use dcs_abi::STRUCTURES;
use dcs_abi::layout::{Kind, Layout};
use dcs_abi::operator::{MODULE, OPERATORS};
use dcs_abi::register::{Access, REGISTERS};
use dcs_abi::status::STATUSES;
use std::collections::BTreeMap;
use std::fmt::Write;

const BEGIN: &str = "<!-- generated: ";
const END: &str = "<!-- end -->";

/// Returns the document with every generated part renewed.
///
/// # Errors
///
/// [`Error::Marker`] if a marker names no table or has no end, or where a table has no marker: then a part
/// of the command set would go undocumented.
pub fn fill(document: &str) -> Result<String, Error> {
    let mut parts = parts();
    let mut out = String::new();
    let mut rest = document;
    while let Some((before, after)) = rest.split_once(BEGIN) {
        let (name, after) = after.split_once(" -->").ok_or_else(|| marker("unfinished", BEGIN))?;
        let (_, after) = after.split_once(END).ok_or_else(|| marker("no end after", name))?;
        let part = parts.remove(name).ok_or_else(|| marker("no table (or a second one) for", name))?;
        let _ = write!(out, "{before}{BEGIN}{name} -->\n{part}{END}");
        rest = after;
    }
    match parts.keys().next() {
        Some(name) => Err(marker("no marker for table", name)),
        None => Ok(out + rest),
    }
}

fn marker(what: &str, name: &str) -> Error {
    Error::Marker(format!("{what} {name:?}"))
}

/// Returns every generated part by name.
fn parts() -> BTreeMap<String, String> {
    let structures = STRUCTURES.iter().map(|layout| (layout.name.to_string(), structure(layout)));
    let groups = model::groups().into_iter().map(|group| (group.id.to_string(), constants(&group)));
    let listings =
        example::listings().map(|(name, text)| (name.to_string(), format!("```text\n{text}```\n")));
    let mut parts: BTreeMap<_, _> = structures.chain(groups).chain(listings).collect();
    // These have more columns than a plain group of numbers.
    parts.insert("operators".into(), operators());
    parts.insert("statuses".into(), statuses());
    parts.insert("registers".into(), registers());
    parts
}

fn structure(layout: &Layout) -> String {
    let mut out = format!("{}\n\n", model::join(layout.doc));
    let rows = model::members(layout).into_iter().map(|member| {
        let (meaning, source) = model::split_source(&member.doc);
        let bytes = match member.kind.size() {
            1 => member.offset.to_string(),
            size => format!("{}..{}", member.offset, member.offset + size - 1),
        };
        [bytes, code(&member.name), kind(&member.kind), meaning.into(), source.into()]
    });
    table(&mut out, ["bytes", "field", "type", "meaning", "source"], rows);
    out
}

fn kind(kind: &Kind) -> String {
    match kind {
        Kind::Unsigned(bytes) => format!("u{}", bytes * 8),
        Kind::Struct(layout) => layout.name.into(),
        Kind::Array(element, count) => format!("{}\\[{count}\\]", self::kind(element)),
    }
}

fn constants(group: &Group) -> String {
    let mut out = String::new();
    let rows = group.items.iter().map(|item: &Item| {
        let (meaning, source) = model::split_source(&item.doc);
        [code(&format!("{}{}", group.prefix, item.name)), group.number(item), meaning.into(), source.into()]
    });
    table(&mut out, ["constant", "value", "meaning", "source"], rows);
    out
}

fn operators() -> String {
    let mut out = String::new();
    let rows = OPERATORS.iter().chain([&MODULE]).map(|row| {
        let bytes = match row.parameter {
            (fewest, most) if fewest == most => most.to_string(),
            (fewest, most) => format!("{fewest} to {most}"),
        };
        [
            code(row.name),
            code(&format!("DCS_OP_{}", row.constant)),
            format!("{:#04x}", row.operator as u8),
            model::operator_kind(row.kind),
            bytes,
            row.parameter_doc.into(),
            row.doc.into(),
        ]
    });
    let head =
        ["operator", "constant", "number", "data", "parameter bytes", "parameter block", "what and source"];
    table(&mut out, head, rows);
    out
}

fn statuses() -> String {
    let mut out = String::new();
    let rows = STATUSES.iter().map(|row| {
        let (meaning, source) = model::split_source(row.doc);
        let retry = if row.dnr { "no" } else { "yes" };
        [
            code(&format!("DCS_STATUS_{}", row.name)),
            format!("{:#06x}", row.code()),
            format!("{}h, {:02x}h", row.sct, row.sc),
            if row.code() == 0 { "" } else { retry }.into(),
            meaning.into(),
            source.into(),
        ]
    });
    table(&mut out, ["constant", "code", "SCT, SC", "worth a retry", "given when", "source"], rows);
    out
}

fn registers() -> String {
    let mut out = String::new();
    let rows = REGISTERS.iter().map(|row| {
        let (meaning, source) = model::split_source(row.doc);
        let access = match row.access {
            Access::ReadOnly => "read",
            Access::ReadWrite => "read, write",
            Access::WriteOnly => "write",
        };
        [
            code(&format!("DCS_REG_{}", row.name)),
            format!("{:#06x}", row.offset),
            row.width.to_string(),
            access.into(),
            meaning.into(),
            source.into(),
        ]
    });
    table(&mut out, ["constant", "offset", "bytes", "access", "meaning", "source"], rows);
    out
}

fn code(text: &str) -> String {
    format!("`{text}`")
}

fn table<const N: usize>(out: &mut String, head: [&str; N], rows: impl Iterator<Item = [String; N]>) {
    let _ = writeln!(out, "| {} |\n|{}", head.join(" | "), "---|".repeat(N));
    for row in rows {
        let cells = row.map(|cell| cell.replace('|', "\\|"));
        let _ = writeln!(out, "| {} |", cells.join(" | "));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all_markers() -> String {
        parts().keys().map(|name| format!("text\n{BEGIN}{name} -->old{END}\n")).collect()
    }

    #[test]
    fn filling_twice_changes_nothing_and_keeps_the_prose() {
        let once = fill(&all_markers()).unwrap();
        assert_eq!(fill(&once).unwrap(), once);
        assert_eq!(once.matches("text\n<!--").count(), parts().len());
        assert!(!once.contains("old<!--"));
    }

    #[test]
    fn a_marker_without_table_and_a_table_without_marker_are_errors() {
        let all = all_markers();
        assert!(fill(&all.replacen("generated: dcs_sqe", "generated: dcs_spe", 1)).is_err());
        assert!(fill(&all.replacen(END, "", parts().len())).is_err());
        assert!(fill(&format!("{all}{BEGIN}dcs_sqe -->{END}")).is_err(), "a table that is there twice");
        assert!(fill("").is_err());
    }
}
