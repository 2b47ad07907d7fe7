//! The C header: `include/dcs.h`.

use crate::model::{self, Group, Item, Member, Radix};
use dcs_abi::STRUCTURES;
use dcs_abi::layout::{Kind, Layout};
use std::fmt::Write;

const WIDTH: usize = 100;

/// Returns the whole header. `api` is the text of the API section, if there is one.
pub fn header(api: Option<&str>) -> String {
    let mut out = String::from(include_str!("header/preface.h"));
    for group in model::groups() {
        out.push_str(&constants(&group));
    }
    out.push_str(include_str!("header/doorbells.h"));
    for layout in STRUCTURES {
        out.push_str(&structure(layout));
    }
    out.push_str(include_str!("header/accessors.h"));
    if let Some(api) = api {
        let _ = write!(out, "\n/* ---- Functions ---- */\n\n{}\n", api.trim());
    }
    out.push_str(include_str!("header/end.h"));
    out
}

fn constants(group: &Group) -> String {
    let mut out = format!("\n/* ---- {} ---- */\n\n", group.title);
    for item in &group.items {
        out.push_str(&comment("", &item.doc));
        let _ = writeln!(out, "#define {}{} {}", group.prefix, item.name, literal(group, item));
    }
    out
}

/// Returns a literal that has the same type in C, in C++ and in the preprocessor.
fn literal(group: &Group, item: &Item) -> String {
    let number = group.number(item);
    match (group.radix, item.value > u64::from(u32::MAX)) {
        (_, true) => format!("UINT64_C({number})"),
        (Radix::Hexadecimal(_), false) => format!("{number}u"),
        (Radix::Decimal, false) => number,
    }
}

fn structure(layout: &Layout) -> String {
    let name = layout.name;
    let members = model::members(layout);
    let mut out = format!("\n{}struct {name} {{\n", comment("", &model::join(layout.doc)));
    for member in &members {
        out.push_str(&comment("    ", &member.doc));
        let _ = writeln!(out, "    {};", declaration(&member.kind, &identifier(&member.name)));
    }
    let _ = writeln!(out, "}};\nDCS_STATIC_ASSERT(sizeof(struct {name}) == {}, \"{name}\");", layout.size);
    for Member { name: member, offset, .. } in &members {
        let member = identifier(member);
        let _ = writeln!(
            out,
            "DCS_STATIC_ASSERT(offsetof(struct {name}, {member}) == {offset}, \"{name}.{member}\");"
        );
    }
    out
}

/// Returns a field's name, with an underscore appended if C++ or a C header uses it otherwise.
fn identifier(name: &str) -> String {
    match name {
        "errno" | "operator" => format!("{name}_"),
        _ => name.into(),
    }
}

/// Returns a declaration: `uint8_t value[64]`, `struct dcs_endpoint source`.
fn declaration(kind: &Kind, name: &str) -> String {
    match kind {
        // C has no 48-bit integer; accessors.h reads and writes these.
        Kind::Unsigned(6) => format!("uint8_t {name}[6]"),
        Kind::Unsigned(bytes) => format!("uint{}_t {name}", bytes * 8),
        Kind::Struct(layout) => format!("struct {} {name}", layout.name),
        Kind::Array(element, count) => declaration(element, &format!("{name}[{count}]")),
    }
}

/// Returns a documentation comment, wrapped.
fn comment(indent: &str, text: &str) -> String {
    let one_line = format!("{indent}/** {text} */\n");
    if one_line.len() <= WIDTH {
        return one_line;
    }
    let mut out = format!("{indent}/**\n");
    for line in wrap(text, WIDTH - indent.len() - 3) {
        let _ = writeln!(out, "{indent} * {line}");
    }
    out + indent + " */\n"
}

pub(crate) fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let last = lines.len() - 1;
        if !lines[last].is_empty() && lines[last].len() + 1 + word.len() > width {
            lines.push(word.into());
        } else {
            let gap = if lines[last].is_empty() { "" } else { " " };
            lines[last] += &format!("{gap}{word}");
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declarations_are_c() {
        assert_eq!(declaration(&Kind::Unsigned(2), "cid"), "uint16_t cid");
        assert_eq!(declaration(&Kind::Unsigned(6), "delivered"), "uint8_t delivered[6]");
        assert_eq!(declaration(&Kind::Array(&Kind::Unsigned(1), 8), "op_chain"), "uint8_t op_chain[8]");
    }

    #[test]
    fn comments_are_wrapped_at_words() {
        assert_eq!(comment("", "short"), "/** short */\n");
        let long = comment("    ", &"word ".repeat(60));
        assert!(long.lines().count() > 3);
        assert!(long.lines().all(|line| line.len() <= WIDTH));
        assert_eq!(long.matches("word").count(), 60);
    }
}
