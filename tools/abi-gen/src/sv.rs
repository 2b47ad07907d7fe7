//! The SystemVerilog package: `rtl/dcs_pkg.sv`.
//!
//! A structure is packed, with byte 0 in bits 7:0, as on a little-endian bus: so its last field is declared first. Numbers are as
//! wide as the fields that hold them.

use crate::model::{self, Group, Item, Radix, short_name};
use dcs_abi::STRUCTURES;
use dcs_abi::layout::{Kind, Layout};
use std::fmt::Write;

const WIDTH: usize = 100;

/// Returns the whole package.
pub fn package() -> String {
    let mut out = String::from(include_str!("sv/preface.sv"));
    for group in model::groups() {
        let _ = write!(out, "\n  // ---- {} ----\n\n", group.title);
        for item in &group.items {
            out.push_str(&comment("  ", &item.doc));
            out.push_str(&constant(&group, item));
        }
    }
    for layout in STRUCTURES {
        out.push_str(&structure(layout));
    }
    out + "\n  // verilator lint_on UNUSEDPARAM\n  // verilator lint_on SYMRSVDWORD\n\nendpackage\n"
}

/// Returns the bits of the fields that hold a group's numbers; 32 without such a field.
fn bits(group: &Group) -> usize {
    match group.id {
        "statuses" => 15,
        "lengths" => 64,
        "endpoints" | "modes" | "stages" => 8,
        _ => match group.radix {
            Radix::Hexadecimal(digits) => 4 * digits,
            Radix::Decimal => 32,
        },
    }
}

/// Returns a declaration such as `localparam logic [7:0] OpMd5 = 8'h01;`.
fn constant(group: &Group, item: &Item) -> String {
    let needed = u64::BITS - item.value.leading_zeros();
    let bits = bits(group).max(needed as usize);
    let number = match group.radix {
        Radix::Hexadecimal(_) => format!("h{:0digits$x}", item.value, digits = bits.div_ceil(4)),
        Radix::Decimal => format!("d{}", item.value),
    };
    let name = camel(&format!("{}{}", group.prefix.trim_start_matches("DCS_"), item.name));
    let kind = match (group.radix, bits) {
        (Radix::Decimal, 32) => "int unsigned".into(),
        _ => format!("logic [{}:0]", bits - 1),
    };
    format!("  localparam {kind} {name} = {bits}'{number};\n")
}

/// Converts `OP_AES256_CTR` to `OpAes256Ctr`.
fn camel(name: &str) -> String {
    let word = |word: &str| {
        let (first, rest) = word.split_at(1);
        first.to_uppercase() + &rest.to_lowercase()
    };
    name.split('_').filter(|part| !part.is_empty()).map(word).collect()
}

fn structure(layout: &Layout) -> String {
    let mut out = format!("\n{}  typedef struct packed {{\n", comment("  ", &model::join(layout.doc)));
    for member in model::members(layout).iter().rev() {
        out.push_str(&comment("    ", &member.doc));
        let _ = writeln!(out, "    {} {};", declaration(&member.kind), member.name);
    }
    let _ = writeln!(out, "  }} {}_t;", short_name(layout));
    out
}

/// Returns the type of a field, with its packed dimensions.
fn declaration(kind: &Kind) -> String {
    let mut dimensions = String::new();
    let mut kind = kind;
    while let Kind::Array(element, count) = kind {
        let _ = write!(dimensions, "[{}:0]", count - 1);
        kind = element;
    }
    match kind {
        Kind::Unsigned(bytes) => format!("logic {dimensions}[{}:0]", bytes * 8 - 1),
        Kind::Struct(layout) => format!("{}_t {dimensions}", short_name(layout)).trim_end().into(),
        Kind::Array(..) => unreachable!("dimensions are taken off above"),
    }
}

fn comment(indent: &str, text: &str) -> String {
    let lines = crate::c::wrap(text, WIDTH - indent.len() - 3);
    lines.iter().map(|line| format!("{indent}// {line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// Returns the bits of a declaration, parsed from the text that [`declaration`] writes.
    fn declared(text: &str) -> usize {
        let mut bits = 1;
        for dimension in text.split('[').skip(1) {
            let high: usize = dimension.split(':').next().unwrap().parse().unwrap();
            bits *= high + 1;
        }
        let name = text.split([' ', '[']).next().unwrap();
        let nested = STRUCTURES.iter().find(|layout| format!("{}_t", short_name(layout)) == name);
        bits * nested.map_or(1, |layout| layout.size * 8)
    }

    #[test]
    fn the_fields_of_a_structure_lie_on_a_bus_where_they_lie_in_memory() {
        let package = package();
        for layout in STRUCTURES {
            let end = package.find(&format!("}} {}_t;", short_name(layout))).expect("it is declared");
            let start = package[..end].rfind("struct packed {").expect("it begins");
            let mut bit = layout.size * 8;
            let fields = package[start..end].lines().skip(1).filter(|line| line.trim().ends_with(';'));
            for line in fields {
                let (kind, name) = line.trim().trim_end_matches(';').rsplit_once(' ').unwrap();
                bit -= declared(kind);
                let member = model::members(layout).into_iter().find(|member| member.name == name);
                assert_eq!(member.expect("a member").offset * 8, bit, "{}.{name}", layout.name);
            }
            assert_eq!(bit, 0, "{}", layout.name);
        }
    }

    #[test]
    fn no_two_numbers_have_one_name_and_each_fits() {
        let mut seen = HashSet::new();
        for group in model::groups() {
            for item in &group.items {
                let line = constant(&group, item);
                assert!(
                    seen.insert(line.split(" = ").next().unwrap().rsplit(' ').next().unwrap().to_string()),
                    "{line}"
                );
            }
        }
        assert!(package().contains("  localparam logic [7:0] OpAes256Ctr = 8'h10;\n"));
    }

    #[test]
    fn arrays_are_packed() {
        assert_eq!(declaration(&Kind::Array(&Kind::Unsigned(1), 8)), "logic [7:0][7:0]");
        assert_eq!(declaration(&Kind::Unsigned(6)), "logic [47:0]");
        assert_eq!(declaration(&Kind::Struct(&dcs_abi::descriptor::ENDPOINT)), "endpoint_t");
    }
}
