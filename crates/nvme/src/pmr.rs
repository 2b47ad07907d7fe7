//! The persistent memory region: memory of the controller's that has a BAR to itself. [base 3.1.3.22 to
//! 3.1.3.28]

use crate::bytes::{field, place};

/// Capabilities of the region (PMRCAP). [base 3.1.3.22]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// Data that the controller writes may lie there: of read commands (RDS).
    pub read_data: bool,
    /// Data that the controller reads may lie there: of write commands (WDS).
    pub write_data: bool,
    /// The BAR (BIR), of which it has the whole.
    pub bar: u8,
    /// `timeout` counts minutes, not units of 500 ms (PMRTU): 0 or 1; 2 and 3 are reserved.
    pub timeout_unit: u8,
    /// Time that it may take to become ready (PMRTO).
    pub timeout: u8,
    /// Commands may name it: the controller takes addresses for it (CMSS).
    pub space: bool,
}

impl Capabilities {
    /// Takes a register's value apart.
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

    /// The register's value.
    pub const fn bits(self) -> u32 {
        let bits = place(self.read_data as u64, 3, 1)
            | place(self.write_data as u64, 4, 1)
            | place(self.bar as u64, 5, 3)
            | place(self.timeout_unit as u64, 8, 2)
            | place(self.timeout as u64, 16, 8)
            | place(self.space as u64, 24, 1);
        bits as u32
    }

    /// Its BAR, where that is one that it may have.
    pub fn valid_bar(self) -> Option<u8> {
        Some(self.bar).filter(|bar| (2..=5).contains(bar))
    }

    /// Time that it may take to become ready, in nanoseconds: one unit where the controller says nothing.
    pub const fn timeout_nanos(self) -> u64 {
        const MINUTES: u8 = 1;
        let unit = if self.timeout_unit == MINUTES { 60_000_000_000 } else { 500_000_000 };
        let units = if self.timeout == 0 { 1 } else { self.timeout as u64 };
        units * unit
    }
}

/// Control of the region: it works or not (PMRCTL). [base 3.1.3.23]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Control {
    /// It is to become ready (EN).
    pub enabled: bool,
}

impl Control {
    /// Takes a register's value apart.
    pub const fn from_bits(bits: u32) -> Control {
        Control { enabled: bits & 1 != 0 }
    }

    /// The register's value.
    pub const fn bits(self) -> u32 {
        self.enabled as u32
    }
}

/// Status of the region (PMRSTS). [base 3.1.3.24]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// The error that it has had (ERR), 0: none.
    pub error: u8,
    /// It is not ready (NRDY).
    pub not_ready: bool,
    /// Its health (HSTS): 0 normal, 1 what it held may be lost, 2 read-only, 3 unreliable.
    pub health: u8,
    /// The controller cannot have it at the address that PMRMSC names (CBAI).
    pub address_invalid: bool,
}

impl Status {
    /// Takes a register's value apart.
    pub const fn from_bits(bits: u32) -> Status {
        let bits = bits as u64;
        Status {
            error: field(bits, 0, 8) as u8,
            not_ready: field(bits, 8, 1) != 0,
            health: field(bits, 9, 3) as u8,
            address_invalid: field(bits, 12, 1) != 0,
        }
    }

    /// The register's value.
    pub const fn bits(self) -> u32 {
        let bits = place(self.error as u64, 0, 8)
            | place(self.not_ready as u64, 8, 1)
            | place(self.health as u64, 9, 3)
            | place(self.address_invalid as u64, 12, 1);
        bits as u32
    }
}

/// Where commands name the region (PMRMSCL, PMRMSCU). [base 3.1.3.27, 3.1.3.28]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// The controller takes addresses from `base` on for the region (CMSE).
    pub enabled: bool,
    /// First address (CBA), a multiple of 4,096.
    pub base: u64,
}

impl Space {
    /// Takes the values of both registers apart: PMRMSCU above PMRMSCL.
    pub const fn from_bits(bits: u64) -> Space {
        Space { enabled: bits & 2 != 0, base: bits & !0xfff }
    }

    /// The values of both registers: PMRMSCU above PMRMSCL.
    pub const fn bits(self) -> u64 {
        (self.enabled as u64) << 1 | self.base & !0xfff
    }
}
