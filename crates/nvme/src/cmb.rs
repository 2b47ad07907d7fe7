//! The controller memory buffer: memory of the controller in a BAR, for queues, lists and data. [base 8.5]

use crate::bytes::{field, place};

/// The location of the buffer (CMBLOC). [base 3.1.3.11]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Location {
    /// Number of the BAR (BIR), 0 to 7.
    pub bar: u8,
    /// Offset of the buffer in that BAR, in units of [`Size::unit`] (OFST), of 20 bits.
    pub offset: u32,
}

impl Location {
    /// Decodes a register's value.
    pub const fn from_bits(bits: u32) -> Location {
        Location { bar: field(bits as u64, 0, 3) as u8, offset: bits >> 12 }
    }

    /// Encodes the register's value.
    pub const fn bits(self) -> u32 {
        place(self.bar as u64, 0, 3) as u32 | self.offset << 12
    }
}

/// The size of the buffer, and its permitted content (CMBSZ). [base 3.1.3.12]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// Support for submission queues (SQS).
    pub submission_queues: bool,
    /// Support for completion queues (CQS).
    pub completion_queues: bool,
    /// Support for page lists and scatter gather lists (LISTS).
    pub lists: bool,
    /// Support for data that the controller writes, for read commands (RDS).
    pub read_data: bool,
    /// Support for data that the controller reads, for write commands (WDS).
    pub write_data: bool,
    /// Exponent of the unit, which is `4096 << 4 * granularity` bytes (SZU), 0 to 6.
    pub granularity: u8,
    /// Size in units (SZ), of 20 bits.
    pub units: u32,
}

impl Size {
    /// Decodes a register's value.
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

    /// Encodes the register's value.
    pub const fn bits(self) -> u32 {
        self.submission_queues as u32
            | (self.completion_queues as u32) << 1
            | (self.lists as u32) << 2
            | (self.read_data as u32) << 3
            | (self.write_data as u32) << 4
            | place(self.granularity as u64, 8, 4) as u32
            | self.units << 12
    }

    /// Returns the size of a unit in bytes. Granularities above 6 are reserved, and treated as 6.
    pub const fn unit(self) -> u64 {
        let granularity = if self.granularity > 6 { 6 } else { self.granularity };
        4096 << (4 * granularity)
    }

    /// Returns the size in bytes.
    pub const fn bytes(self) -> u64 {
        self.units as u64 * self.unit()
    }
}

/// The addresses by which commands name the buffer (CMBMSC). [base 3.1.3.16]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Control {
    /// Set if CMBLOC and CMBSZ describe the buffer (CRE).
    pub registers: bool,
    /// Set if the controller takes addresses from `base` on for the buffer (CMSE).
    pub space: bool,
    /// First address (CBA), a multiple of 4,096.
    pub base: u64,
}

impl Control {
    /// Decodes a register's value.
    pub const fn from_bits(bits: u64) -> Control {
        Control { registers: bits & 1 != 0, space: bits & 2 != 0, base: bits & !0xfff }
    }

    /// Encodes the register's value.
    pub const fn bits(self) -> u64 {
        self.registers as u64 | (self.space as u64) << 1 | self.base & !0xfff
    }
}

/// Status of the buffer (CMBSTS). [base 3.1.3.17]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Set if the controller cannot have the buffer at the address that CMBMSC names (CBAI).
    pub address_invalid: bool,
}

impl Status {
    /// Decodes a register's value.
    pub const fn from_bits(bits: u32) -> Status {
        Status { address_invalid: bits & 1 != 0 }
    }

    /// Encodes the register's value.
    pub const fn bits(self) -> u32 {
        self.address_invalid as u32
    }
}
