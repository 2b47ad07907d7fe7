//! What a completion's status says. [base 3.3.3.2.1, NVM 3.1.2]

use core::fmt;

/// The 15 bits of a completion's status: code, type, retry delay, more, do not retry.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Status(pub u16);

impl Status {
    /// Generic, Command Abort Requested.
    pub const ABORT_REQUESTED: Status = Status::new(0, 0x07);

    /// The status of type `kind` and code `code`.
    pub const fn new(kind: u8, code: u8) -> Status {
        Status((kind as u16 & 7) << 8 | code as u16)
    }

    /// Whether the command did what it was to do.
    pub fn is_success(self) -> bool {
        self.kind() == 0 && self.code() == 0
    }

    /// Status code type (SCT): 0 generic, 1 command specific, 2 media and data integrity, 3 path related, 7 vendor.
    pub fn kind(self) -> u8 {
        (self.0 >> 8 & 7) as u8
    }

    /// Status code (SC).
    pub fn code(self) -> u8 {
        self.0 as u8
    }

    /// Which of the controller's delays to wait before the command is sent again (CRD).
    pub fn retry_delay(self) -> u8 {
        (self.0 >> 11 & 3) as u8
    }

    /// Whether the error log says more (M).
    pub fn more(self) -> bool {
        self.0 >> 13 & 1 != 0
    }

    /// Whether the same command would fail again (DNR).
    pub fn do_not_retry(self) -> bool {
        self.0 >> 14 & 1 != 0
    }

    /// The specification's words for it.
    pub fn text(self) -> &'static str {
        match (self.kind(), self.code()) {
            (0, code) => generic(code),
            (1, code) => command_specific(code),
            (2, code) => media(code),
            (3, code) => path(code),
            (7, _) => "Vendor Specific",
            _ => "Reserved Status Code Type",
        }
    }
}

fn generic(code: u8) -> &'static str {
    match code {
        0x00 => "Successful Completion",
        0x01 => "Invalid Command Opcode",
        0x02 => "Invalid Field in Command",
        0x03 => "Command ID Conflict",
        0x04 => "Data Transfer Error",
        0x05 => "Commands Aborted due to Power Loss Notification",
        0x06 => "Internal Error",
        0x07 => "Command Abort Requested",
        0x08 => "Command Aborted due to SQ Deletion",
        0x09 => "Command Aborted due to Failed Fused Command",
        0x0a => "Command Aborted due to Missing Fused Command",
        0x0b => "Invalid Namespace or Format",
        0x0c => "Command Sequence Error",
        0x0d => "Invalid SGL Segment Descriptor",
        0x0e => "Invalid Number of SGL Descriptors",
        0x0f => "Data SGL Length Invalid",
        0x10 => "Metadata SGL Length Invalid",
        0x11 => "SGL Descriptor Type Invalid",
        0x12 => "Invalid Use of Controller Memory Buffer",
        0x13 => "PRP Offset Invalid",
        0x14 => "Atomic Write Unit Exceeded",
        0x15 => "Operation Denied",
        0x16 => "SGL Offset Invalid",
        0x1c => "Sanitize Failed",
        0x1d => "Sanitize In Progress",
        0x1e => "SGL Data Block Granularity Invalid",
        0x20 => "Namespace is Write Protected",
        0x21 => "Command Interrupted",
        0x22 => "Transient Transport Error",
        0x24 => "Admin Command Media Not Ready",
        0x80 => "LBA Out of Range",
        0x81 => "Capacity Exceeded",
        0x82 => "Namespace Not Ready",
        0x83 => "Reservation Conflict",
        0x84 => "Format In Progress",
        _ => "Generic Command Status",
    }
}

fn command_specific(code: u8) -> &'static str {
    match code {
        0x00 => "Completion Queue Invalid",
        0x01 => "Invalid Queue Identifier",
        0x02 => "Invalid Queue Size",
        0x03 => "Abort Command Limit Exceeded",
        0x08 => "Invalid Interrupt Vector",
        0x0a => "Invalid Format",
        0x0b => "Firmware Activation Requires Conventional Reset",
        0x0d => "Feature Identifier Not Saveable",
        0x0e => "Feature Not Changeable",
        0x80 => "Conflicting Attributes",
        0x81 => "Invalid Protection Information",
        0x82 => "Attempted Write to Read Only Range",
        0x83 => "Command Size Limit Exceeded",
        0xb8 => "Zoned Boundary Error",
        0xb9 => "Zone Is Full",
        0xba => "Zone Is Read Only",
        0xbb => "Zone Is Offline",
        0xbc => "Zone Invalid Write",
        _ => "Command Specific Status",
    }
}

fn media(code: u8) -> &'static str {
    match code {
        0x80 => "Write Fault",
        0x81 => "Unrecovered Read Error",
        0x82 => "End-to-end Guard Check Error",
        0x83 => "End-to-end Application Tag Check Error",
        0x84 => "End-to-end Reference Tag Check Error",
        0x85 => "Compare Failure",
        0x86 => "Access Denied",
        0x87 => "Deallocated or Unwritten Logical Block",
        0x88 => "End-to-End Storage Tag Check Error",
        _ => "Media and Data Integrity Error",
    }
}

fn path(code: u8) -> &'static str {
    match code {
        0x00 => "Internal Path Error",
        0x01 => "Asymmetric Access Persistent Loss",
        0x02 => "Asymmetric Access Inaccessible",
        0x03 => "Asymmetric Access Transition",
        0x60 => "Controller Pathing Error",
        0x70 => "Host Pathing Error",
        0x71 => "Command Aborted By Host",
        _ => "Path Related Status",
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (SCT {:#x}, SC {:#04x}", self.text(), self.kind(), self.code())?;
        f.write_str(if self.do_not_retry() { ", DNR)" } else { ")" })
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Status({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_has_words() {
        for raw in 0..1 << 15 {
            let status = Status(raw);
            assert!(!status.text().is_empty());
            assert_eq!(status.is_success(), raw & 0x7ff == 0);
        }
        assert_eq!(Status(0x4281).to_string(), "Unrecovered Read Error (SCT 0x2, SC 0x81, DNR)");
        assert_eq!(Status(0x0781).text(), "Vendor Specific");
    }
}
