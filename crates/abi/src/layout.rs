//! The tables that generators read: which field lies where, how wide it is, and what it means.

/// The type of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An unsigned little-endian integer of that many bytes (1, 2, 4, 6 or 8).
    Unsigned(usize),
    /// A nested structure.
    Struct(&'static Layout),
    /// An array of this many elements.
    Array(&'static Kind, usize),
}

impl Kind {
    /// Bytes that a field of this kind takes.
    pub const fn size(&self) -> usize {
        match self {
            Kind::Unsigned(bytes) => *bytes,
            Kind::Struct(layout) => layout.size,
            Kind::Array(element, count) => element.size() * *count,
        }
    }
}

/// One field of a structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// The name, as in Rust, C and SystemVerilog.
    pub name: &'static str,
    /// Bytes from the start of the structure.
    pub offset: usize,
    /// Its type.
    pub kind: Kind,
    /// Meaning, unit and source, one string a line.
    pub doc: &'static [&'static str],
}

/// One structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The name in C (`struct dcs_...`).
    pub name: &'static str,
    /// Bytes in all.
    pub size: usize,
    /// Fields by rising offset; the bytes between them are reserved and must be zero.
    pub fields: &'static [Field],
    /// The structure's description, one string a line.
    pub doc: &'static [&'static str],
}

impl Layout {
    /// True where byte `at` belongs to a field, false where it is reserved.
    pub const fn covers(&self, at: usize) -> bool {
        let mut i = 0;
        while i < self.fields.len() {
            let field = &self.fields[i];
            if at >= field.offset && at < field.offset + field.kind.size() {
                return true;
            }
            i += 1;
        }
        false
    }

    /// Fields rise, do not overlap, and end inside the structure. Checked at compile time by `wire_struct!`.
    pub const fn is_sound(&self) -> bool {
        let mut end = 0;
        let mut i = 0;
        while i < self.fields.len() {
            let field = &self.fields[i];
            if field.offset < end {
                return false;
            }
            end = field.offset + field.kind.size();
            i += 1;
        }
        end <= self.size
    }
}

/// A named number, for generators: opcodes, flags, statuses, registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Constant {
    /// Name without prefix, upper case.
    pub name: &'static str,
    /// Value.
    pub value: u64,
    /// Meaning and source.
    pub doc: &'static str,
}
