//! The controller memory buffer: memory of the controller's in a BAR, for queues, lists and data. [base 8.5]

use crate::bytes::{field, place};

/// Where the buffer is (CMBLOC). [base 3.1.3.11]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Location {
    /// In which BAR (BIR), 0 to 7.
    pub bar: u8,
    /// Where in that BAR it begins, in units of [`Size::unit`] (OFST), of 20 bits.
    pub offset: u32,
}

impl Location {
    /// Takes a register's value apart.
    pub const fn from_bits(bits: u32) -> Location {
        Location { bar: field(bits as u64, 0, 3) as u8, offset: bits >> 12 }
    }

    /// The register's value.
    pub const fn bits(self) -> u32 {
        place(self.bar as u64, 0, 3) as u32 | self.offset << 12
    }
}

/// Size of the buffer, and what may lie in it (CMBSZ). [base 3.1.3.12]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// Submission queues (SQS).
    pub submission_queues: bool,
    /// Completion queues (CQS).
    pub completion_queues: bool,
    /// Page lists and scatter gather lists (LISTS).
    pub lists: bool,
    /// Data that the controller writes: of read commands (RDS).
    pub read_data: bool,
    /// Data that the controller reads: of write commands (WDS).
    pub write_data: bool,
    /// A unit is `4096 << 4 * granularity` bytes (SZU), 0 to 6.
    pub granularity: u8,
    /// Units (SZ), of 20 bits.
    pub units: u32,
}

impl Size {
    /// Takes a register's value apart.
    pub const fn from_bits(bits: u32) -> Size {
        Size {
            submission_queues: bits & 1 != 0,
            completion_queues: bits >> 1 & 1 != 0,
            lists: bits >> 2 & 1 != 0,
            read_data: bits >> 3 & 1 != 0,
            write_data: bits >> 4 & 1 != 0,
            granularity: field(bits as u64, 8, 4) as u8,
            units: bits >> 12,
        }
    }

    /// The register's value.
    pub const fn bits(self) -> u32 {
        self.submission_queues as u32
            | (self.completion_queues as u32) << 1
            | (self.lists as u32) << 2
            | (self.read_data as u32) << 3
            | (self.write_data as u32) << 4
            | place(self.granularity as u64, 8, 4) as u32
            | self.units << 12
    }

    /// Bytes of a unit. Granularities above 6 are reserved, and taken for 6.
    pub const fn unit(self) -> u64 {
        let granularity = if self.granularity > 6 { 6 } else { self.granularity };
        4096 << (4 * granularity)
    }

    /// In bytes.
    pub const fn bytes(self) -> u64 {
        self.units as u64 * self.unit()
    }
}

/// Where commands name the buffer (CMBMSC). [base 3.1.3.16]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Control {
    /// CMBLOC and CMBSZ tell of the buffer (CRE).
    pub registers: bool,
    /// The controller takes addresses from `base` on for the buffer (CMSE).
    pub space: bool,
    /// First address (CBA), a multiple of 4,096.
    pub base: u64,
}

impl Control {
    /// Takes a register's value apart.
    pub const fn from_bits(bits: u64) -> Control {
        Control { registers: bits & 1 != 0, space: bits & 2 != 0, base: bits & !0xfff }
    }

    /// The register's value.
    pub const fn bits(self) -> u64 {
        self.registers as u64 | (self.space as u64) << 1 | self.base & !0xfff
    }
}

/// Status of the buffer (CMBSTS). [base 3.1.3.17]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// The controller cannot have the buffer at the address that CMBMSC names (CBAI).
    pub address_invalid: bool,
}

impl Status {
    /// Takes a register's value apart.
    pub const fn from_bits(bits: u32) -> Status {
        Status { address_invalid: bits & 1 != 0 }
    }

    /// The register's value.
    pub const fn bits(self) -> u32 {
        self.address_invalid as u32
    }
}
