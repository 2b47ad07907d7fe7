//! Input for every output language: structures without holes, and groups of named numbers.
//!
//! `c.rs` and `markdown.rs` differ only in their notation.

use dcs_abi::admin::{ADMIN_OPCODES, GRANTS};
use dcs_abi::descriptor::{DESCRIPTOR_MAX, ENDPOINT_KINDS, MODES, PACINGS, PARAMETER_KINDS, WINDOW_MAX_US};
use dcs_abi::entry::{FLAGS, LENGTH_TO_END, OPCODES};
use dcs_abi::layout::{Constant, Kind, Layout};
use dcs_abi::operator::{MODULE, ON_GPU, OPERATORS, OperatorInfo, OperatorKind};
use dcs_abi::register::{DOORBELL_BASE, ENGINE_BLOCK, REGISTERS};
use dcs_abi::result::{DIGEST_MAX, PATHS, STAGE_DESTINATION, STAGE_OPERATORS, STAGE_SOURCE};
use dcs_abi::status::{STAGES, STATUSES, Stage};
use dcs_abi::{ABI_VERSION, CHAIN_MAX};

/// One member of a structure: a field, or the reserved bytes between two fields.
#[derive(Clone, Debug)]
pub struct Member {
    /// Name of the field, or `reserved_NN` with the offset.
    pub name: String,
    /// Bytes from the start of the structure.
    pub offset: usize,
    /// Type of the contents.
    pub kind: Kind,
    /// Meaning and source; for reserved bytes, that they are zero.
    pub doc: String,
}

/// Returns the members of a structure, which together cover every byte of it.
pub fn members(layout: &Layout) -> Vec<Member> {
    let mut members = Vec::new();
    let mut end = 0;
    for field in layout.fields {
        members.extend(reserved(end, field.offset));
        let doc = join(field.doc);
        members.push(Member { name: field.name.into(), offset: field.offset, kind: field.kind, doc });
        end = field.offset + field.kind.size();
    }
    members.extend(reserved(end, layout.size));
    members
}

fn reserved(from: usize, to: usize) -> Option<Member> {
    let kind = match to - from {
        0 => return None,
        1 => Kind::Unsigned(1),
        bytes => Kind::Array(&Kind::Unsigned(1), bytes),
    };
    Some(Member { name: format!("reserved_{from}"), offset: from, kind, doc: "Reserved, zero.".into() })
}

/// Joins the lines of a doc comment into one text.
pub fn join(lines: &[&str]) -> String {
    lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ")
}

/// Returns the name of a structure without the common prefix `dcs_`.
pub fn short_name(layout: &Layout) -> &'static str {
    layout.name.trim_start_matches("dcs_")
}

/// Splits a doc text into its meaning and the source in brackets at its end.
pub fn split_source(doc: &str) -> (&str, &str) {
    match doc.strip_suffix(']').and_then(|rest| rest.rsplit_once(" [")) {
        Some((meaning, source)) => (meaning, source),
        None => (doc, ""),
    }
}

/// Notation for the numbers of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Radix {
    /// Counts and enumerations.
    Decimal,
    /// Opcodes, bits, offsets: at least this many digits.
    Hexadecimal(usize),
}

/// A named number.
#[derive(Clone, Debug)]
pub struct Item {
    /// Name without the group's prefix.
    pub name: String,
    /// Value.
    pub value: u64,
    /// Meaning and source.
    pub doc: String,
}

/// A group of related numbers.
#[derive(Clone, Debug)]
pub struct Group {
    /// Name of its table in the documentation.
    pub id: &'static str,
    /// Common prefix of the names.
    pub prefix: &'static str,
    /// Heading of the group.
    pub title: &'static str,
    /// Notation of the numbers.
    pub radix: Radix,
    /// The numbers.
    pub items: Vec<Item>,
}

impl Group {
    /// Returns the value in the notation that C, Rust and Markdown share.
    pub fn number(&self, item: &Item) -> String {
        match self.radix {
            Radix::Decimal => item.value.to_string(),
            Radix::Hexadecimal(digits) => format!("{:#0width$x}", item.value, width = digits + 2),
        }
    }
}

fn item(name: &str, value: u64, doc: impl Into<String>) -> Item {
    Item { name: name.into(), value, doc: doc.into() }
}

fn group(
    id: &'static str,
    prefix: &'static str,
    title: &'static str,
    radix: Radix,
    items: impl IntoIterator<Item = Item>,
) -> Group {
    Group { id, prefix, title, radix, items: items.into_iter().collect() }
}

fn table(rows: &'static [Constant]) -> impl Iterator<Item = Item> {
    rows.iter().map(|row| item(row.name, row.value, row.doc))
}

/// Returns every group of numbers, in the order in which a reader needs them.
pub fn groups() -> Vec<Group> {
    use Radix::{Decimal, Hexadecimal};
    let on_gpu = item("ON_GPU", ON_GPU.into(), on_gpu_doc());
    let operators = OPERATORS
        .iter()
        .chain([&MODULE])
        .map(|row| item(row.constant, row.operator as u64, operator_doc(row)));
    let operators = operators.chain([on_gpu]);
    let statuses = STATUSES.iter().map(|row| item(row.name, row.code().into(), row.doc));
    let registers = REGISTERS.iter().map(|row| item(row.name, row.offset as u64, row.doc));
    vec![
        group("limits", "DCS_", "Version and limits", Decimal, limits()),
        group("sizes", "DCS_", "Bytes of the structures", Decimal, sizes()),
        group("opcodes", "DCS_OPCODE_", "Opcodes", Hexadecimal(2), table(OPCODES)),
        group("admin", "DCS_ADMIN_", "Opcodes of admin commands", Hexadecimal(2), table(ADMIN_OPCODES)),
        group("grants", "DCS_GRANT_", "What memory is granted for", Decimal, table(GRANTS)),
        group("flags", "DCS_FLAG_", "Flags of a submission entry", Hexadecimal(4), table(FLAGS)),
        group("lengths", "DCS_LENGTH_", "Special lengths", Hexadecimal(16), lengths()),
        group("operators", "DCS_OP_", "Operators", Hexadecimal(2), operators),
        group("endpoints", "DCS_ENDPOINT_", "Kinds of endpoint", Decimal, table(ENDPOINT_KINDS)),
        group("pacings", "DCS_PACING_", "What says when bytes are due", Decimal, table(PACINGS)),
        group("modes", "DCS_MODE_", "Whether a path is taken", Decimal, table(MODES)),
        group("parameters", "DCS_PARAMETER_", "Kinds of parameter", Decimal, table(PARAMETER_KINDS)),
        group("statuses", "DCS_STATUS_", "Statuses, 15 bits", Hexadecimal(4), statuses),
        group("stages", "DCS_STAGE_", "Stages that can fail", Decimal, stages()),
        group("slots", "DCS_SLOT_", "Places in dcs_result.stages", Decimal, slots()),
        group("paths", "DCS_PATH_", "Paths that bytes took", Hexadecimal(8), table(PATHS)),
        group("offsets", "DCS_", "Parts of BAR0", Hexadecimal(4), blocks()),
        group("registers", "DCS_REG_", "Registers, by offset in BAR0", Hexadecimal(4), registers),
    ]
}

fn limits() -> [Item; 5] {
    [
        item("ABI_VERSION", ABI_VERSION.into(), "version of this command set, in every descriptor"),
        item("CHAIN_MAX", CHAIN_MAX as u64, "most operators in one chain [FlexCSV 4.3.1, op_chain]"),
        item(
            "DESCRIPTOR_MAX",
            DESCRIPTOR_MAX as u64,
            "most bytes of a descriptor, extents and parameters included",
        ),
        item("DIGEST_MAX", DIGEST_MAX as u64, "bytes of the longest digest"),
        item("WINDOW_MAX", WINDOW_MAX_US.into(), "longest window of a paced endpoint, microseconds"),
    ]
}

fn sizes() -> impl Iterator<Item = Item> {
    dcs_abi::STRUCTURES.iter().map(|layout| {
        let name = format!("{}_SIZE", short_name(layout).to_uppercase());
        item(&name, layout.size as u64, format!("bytes of struct {}", layout.name))
    })
}

fn lengths() -> [Item; 1] {
    [item("TO_END", LENGTH_TO_END, "until the source ends; for a source with extents, all of them")]
}

fn stages() -> impl Iterator<Item = Item> {
    STAGES.iter().map(|(stage, name)| item(&name.to_uppercase(), *stage as u64, stage_doc(*stage)))
}

fn stage_doc(stage: Stage) -> &'static str {
    match stage {
        Stage::None => "no stage: the command did not fail",
        Stage::Frontend => "fetching, checking, binding to devices",
        Stage::Queue => "waiting for its turn, for a slot, or for an earlier command of the same rid",
        Stage::Source => "the source device",
        Stage::Operator => "an operator of the chain; stage_index says which",
        Stage::Destination => "the destination device",
    }
}

fn slots() -> [Item; 3] {
    [
        item("SOURCE", STAGE_SOURCE as u64, "the source's times"),
        item("DESTINATION", STAGE_DESTINATION as u64, "the destination's times"),
        item("OPERATORS", STAGE_OPERATORS as u64, "the first operator's times; the others follow"),
    ]
}

fn blocks() -> [Item; 2] {
    [
        item("ENGINE_BLOCK", ENGINE_BLOCK as u64, "where the engine's own registers start"),
        item(
            "DOORBELL_BASE",
            DOORBELL_BASE as u64,
            "where doorbells start [NVMe over PCIe Transport 1.1 3.1.2]",
        ),
    ]
}

fn on_gpu_doc() -> String {
    let names: Vec<_> = OPERATORS.iter().filter(|row| row.gpu.is_some()).map(|row| row.name).collect();
    format!("added to an operator's number: the engine's GPU does it ({})", names.join(", "))
}

fn operator_doc(row: &OperatorInfo) -> String {
    format!("{}: {}. {}. Parameter: {}", row.name, row.doc, operator_kind(row.kind), row.parameter_doc)
}

/// Describes an operator's effect on the data.
pub fn operator_kind(kind: OperatorKind) -> String {
    match kind {
        OperatorKind::Digest { size } => format!("Digest of {size} bytes"),
        OperatorKind::InPlace { whole_units: false } => "Same length".into(),
        OperatorKind::InPlace { whole_units: true } => "Same length, whole units".into(),
        OperatorKind::Resize => "Other length".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn members_leave_no_hole_and_lie_on_their_natural_boundaries() {
        for layout in dcs_abi::STRUCTURES {
            let mut end = 0;
            for member in members(layout) {
                assert_eq!(member.offset, end, "{}.{}", layout.name, member.name);
                let align = alignment(&member.kind);
                assert_eq!(end % align, 0, "{}.{}: a C compiler would pad here", layout.name, member.name);
                end += member.kind.size();
            }
            assert_eq!(end, layout.size, "{}", layout.name);
        }
    }

    fn alignment(kind: &Kind) -> usize {
        match kind {
            Kind::Unsigned(6) => 1,
            Kind::Unsigned(bytes) => *bytes,
            Kind::Struct(layout) => {
                layout.fields.iter().map(|field| alignment(&field.kind)).max().unwrap_or(1)
            }
            Kind::Array(element, _) => alignment(element),
        }
    }

    #[test]
    fn no_two_numbers_have_one_name() {
        let mut seen = HashSet::new();
        for group in groups() {
            for item in &group.items {
                assert!(
                    seen.insert(format!("{}{}", group.prefix, item.name)),
                    "{}{}",
                    group.prefix,
                    item.name
                );
            }
        }
    }

    #[test]
    fn a_source_is_split_off_only_at_the_end() {
        assert_eq!(split_source("Command. [NVMe CDW0]"), ("Command.", "NVMe CDW0"));
        assert_eq!(split_source("op_chain[0..2] = SQID"), ("op_chain[0..2] = SQID", ""));
        assert_eq!(split_source("key[32], counter[16]"), ("key[32], counter[16]", ""));
    }
}
