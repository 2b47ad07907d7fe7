//! The persistent memory region: memory of the controller in a separate BAR. [base 3.1.3.22 to 3.1.3.28]

use crate::bytes::{field, place};

/// Capabilities of the region (PMRCAP). [base 3.1.3.22]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// Support for data that the controller writes, for read commands (RDS).
    pub read_data: bool,
    /// Support for data that the controller reads, for write commands (WDS).
    pub write_data: bool,
    /// Number of the BAR (BIR), which the region fills.
    pub bar: u8,
    /// Unit of `timeout` (PMRTU): 0 for 500 ms, 1 for minutes; 2 and 3 are reserved.
    pub timeout_unit: u8,
    /// Time limit for becoming ready (PMRTO).
    pub timeout: u8,
    /// Set if commands may name the region: the controller takes addresses for it (CMSS).
    pub space: bool,
}

impl Capabilities {
    /// Decodes a register's value.
    pub const fn from_bits(bits: u32) -> Capabilities {
        let bits = bits as u64;
        Capabilities {
            read_data: field(bits, 3, 1) != 0,
            write_data: field(bits, 4, 1) != 0,
            bar: field(bits, 5, 3) as u8,
            timeout_unit: field(bits, 8, 2) as u8,
            timeout: field(bits, 16, 8) as u8,
            space: field(bits, 24, 1) != 0,
        }
    }

    /// Encodes the register's value.
    pub const fn bits(self) -> u32 {
        let bits = place(self.read_data as u64, 3, 1)
            | place(self.write_data as u64, 4, 1)
            | place(self.bar as u64, 5, 3)
            | place(self.timeout_unit as u64, 8, 2)
            | place(self.timeout as u64, 16, 8)
            | place(self.space as u64, 24, 1);
        bits as u32
    }

    /// Returns its BAR, if that is a permitted one.
    pub fn valid_bar(self) -> Option<u8> {
        Some(self.bar).filter(|bar| (2..=5).contains(bar))
    }

    /// Returns the time limit for becoming ready, in nanoseconds: one unit if the controller does not report one.
    pub const fn timeout_nanos(self) -> u64 {
        const MINUTES: u8 = 1;
        let unit = if self.timeout_unit == MINUTES { 60_000_000_000 } else { 500_000_000 };
        let units = if self.timeout == 0 { 1 } else { self.timeout as u64 };
        units * unit
    }
}

/// Control of the region (PMRCTL). [base 3.1.3.23]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Control {
    /// Set to enable the region (EN).
    pub enabled: bool,
}

impl Control {
    /// Decodes a register's value.
    pub const fn from_bits(bits: u32) -> Control {
        Control { enabled: bits & 1 != 0 }
    }

    /// Encodes the register's value.
    pub const fn bits(self) -> u32 {
        self.enabled as u32
    }
}

/// Status of the region (PMRSTS). [base 3.1.3.24]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Error of the region (ERR), 0 for none.
    pub error: u8,
    /// Set if the region is not ready (NRDY).
    pub not_ready: bool,
    /// Health of the region (HSTS): 0 normal, 1 content may be lost, 2 read-only, 3 unreliable.
    pub health: u8,
    /// Set if the controller cannot have the region at the address that PMRMSC names (CBAI).
    pub address_invalid: bool,
}

impl Status {
    /// Decodes a register's value.
    pub const fn from_bits(bits: u32) -> Status {
        let bits = bits as u64;
        Status {
            error: field(bits, 0, 8) as u8,
            not_ready: field(bits, 8, 1) != 0,
            health: field(bits, 9, 3) as u8,
            address_invalid: field(bits, 12, 1) != 0,
        }
    }

    /// Encodes the register's value.
    pub const fn bits(self) -> u32 {
        let bits = place(self.error as u64, 0, 8)
            | place(self.not_ready as u64, 8, 1)
            | place(self.health as u64, 9, 3)
            | place(self.address_invalid as u64, 12, 1);
        bits as u32
    }
}

/// The addresses by which commands name the region (PMRMSCL, PMRMSCU). [base 3.1.3.27, 3.1.3.28]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// Set if the controller takes addresses from `base` on for the region (CMSE).
    pub enabled: bool,
    /// First address (CBA), a multiple of 4,096.
    pub base: u64,
}

impl Space {
    /// Decodes the values of both registers: PMRMSCU above PMRMSCL.
    pub const fn from_bits(bits: u64) -> Space {
        Space { enabled: bits & 2 != 0, base: bits & !0xfff }
    }

    /// Encodes the values of both registers: PMRMSCU above PMRMSCL.
    pub const fn bits(self) -> u64 {
        (self.enabled as u64) << 1 | self.base & !0xfff
    }
}
