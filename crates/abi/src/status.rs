//! Status codes, and the stage at which a command failed.
//!
//! A status is the 15 bits above the phase bit of a completion entry (NVMe Base 2.1, Status Field): status
//! code, status code type, and Do Not Retry. Where NVMe has a code for a condition it is used; the others are
//! of type 7h (vendor specific).

/// One status: what became of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Status {
    /// All of it was done.
    Success,
    /// The opcode is not one of this command set.
    InvalidOpcode,
    /// A field of entry or descriptor has a value that is not allowed.
    InvalidField,
    /// Another command with this identifier is still in flight in this queue.
    CommandIdConflict,
    /// The descriptor could not be fetched, or reaches outside the memory that was registered.
    DataTransferError,
    /// The engine broke one of its own rules, or a device answered with something impossible.
    InternalError,
    /// The command was cancelled.
    Cancelled,
    /// The queue was deleted or the engine stopped before the command was done.
    QueueDeleted,
    /// The range lies outside its file, device or memory.
    OutOfRange,
    /// The destination is full: disk, quota, or the memory that was given.
    CapacityExceeded,
    /// The time given ran out.
    Timeout,
    /// The source could not be read.
    ReadError,
    /// The destination could not be written.
    WriteError,
    /// The descriptor is not open for this access.
    AccessDenied,
    /// A number in the chain is no operator that this engine has.
    UnknownOperator,
    /// An operator's parameters are of the wrong length or value.
    BadParameter,
    /// The handle or file descriptor is not open.
    BadHandle,
    /// The handle is of a kind that this engine cannot drive, or not in this direction.
    UnsupportedEndpoint,
    /// The source ended before the length that was asked for.
    EndOfSource,
    /// The peer reset or closed the connection.
    PeerReset,
    /// The data are not what the operator takes: corrupt or not of its format.
    CorruptData,
    /// The data ended inside a unit that the operator needs whole.
    TruncatedData,
    /// The engine has not the resources for the command at all (not: not now).
    OutOfResources,
    /// The device was reset or removed while it worked on the command.
    DeviceReset,
    /// The path that was demanded (direct I/O, zero copy, the kernel's own copy) is not available here.
    PathUnavailable,
    /// The framing around the data breaks its rules, or its lengths do not add up.
    FramingError,
    /// A signature in the data is not the one that the data and the key give.
    SignatureMismatch,
    /// A digest of the data is not the expected one.
    DigestMismatch,
    /// The destination lies where the source is still to be read.
    Overlap,
    /// A user's module stopped by a trap: it reached what is unreachable, left its memory, divided by zero.
    ModuleTrap,
    /// A user's module ran for longer than it may for its data.
    ModuleFuel,
    /// A user's module asked for more memory than it may have.
    ModuleMemory,
    /// A user's module gave an answer that breaks the rules of modules.
    ModuleAnswer,
    /// A status that this version does not know, as it was on the wire.
    Unknown(u16),
}

/// One row of the status table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatusInfo {
    /// The one described.
    pub status: Status,
    /// Name of its constant in C.
    pub name: &'static str,
    /// Status code type (3 bits).
    pub sct: u8,
    /// Status code (8 bits).
    pub sc: u8,
    /// Do Not Retry: the same command would fail again.
    pub dnr: bool,
    /// Its meaning and its source.
    pub doc: &'static str,
}

impl StatusInfo {
    /// The 15-bit status field: SC in bits 7:0, SCT in bits 10:8, DNR in bit 14.
    pub const fn code(&self) -> u16 {
        self.sc as u16 | (self.sct as u16) << 8 | (self.dnr as u16) << 14
    }
}

const fn row(
    status: Status,
    name: &'static str,
    sct: u8,
    sc: u8,
    dnr: bool,
    doc: &'static str,
) -> StatusInfo {
    StatusInfo { status, name, sct, sc, dnr, doc }
}

/// Every status.
#[rustfmt::skip]
pub const STATUSES: &[StatusInfo] = &[
    row(Status::Success, "SUCCESS", 0, 0x00, false, "all of it was done [NVMe generic 00h]"),
    row(Status::InvalidOpcode, "INVALID_OPCODE", 0, 0x01, true, "the opcode is not one of this command set [NVMe generic 01h]"),
    row(Status::InvalidField, "INVALID_FIELD", 0, 0x02, true, "a field of entry or descriptor has a value that is not allowed [NVMe generic 02h]"),
    row(Status::CommandIdConflict, "COMMAND_ID_CONFLICT", 0, 0x03, true, "this command identifier is still in flight in this queue [NVMe generic 03h]"),
    row(Status::DataTransferError, "DATA_TRANSFER_ERROR", 0, 0x04, true, "the descriptor lies outside the registered memory or could not be fetched [NVMe generic 04h]"),
    row(Status::InternalError, "INTERNAL_ERROR", 0, 0x06, false, "the engine or a device broke a rule [NVMe generic 06h]"),
    row(Status::Cancelled, "CANCELLED", 0, 0x07, true, "the command was cancelled [NVMe generic 07h, Command Abort Requested]"),
    row(Status::QueueDeleted, "QUEUE_DELETED", 0, 0x08, true, "queue deleted or engine stopped first [NVMe generic 08h]"),
    row(Status::OutOfRange, "OUT_OF_RANGE", 0, 0x80, true, "the range lies outside its file, device or memory [NVMe generic 80h, LBA Out of Range]"),
    row(Status::CapacityExceeded, "CAPACITY_EXCEEDED", 0, 0x81, true, "the destination is full [NVMe generic 81h]"),
    row(Status::WriteError, "WRITE_ERROR", 2, 0x80, false, "the destination could not be written [NVMe media 80h, Write Fault]"),
    row(Status::ReadError, "READ_ERROR", 2, 0x81, false, "the source could not be read [NVMe media 81h, Unrecovered Read Error]"),
    row(Status::AccessDenied, "ACCESS_DENIED", 2, 0x86, true, "the descriptor is not open for this access [NVMe media 86h]"),
    row(Status::UnknownOperator, "UNKNOWN_OPERATOR", 7, 0x01, true, "a number in the chain is no operator of this engine"),
    row(Status::BadParameter, "BAD_PARAMETER", 7, 0x02, true, "an operator's parameters have the wrong length or value"),
    row(Status::BadHandle, "BAD_HANDLE", 7, 0x03, true, "the handle or file descriptor is not open"),
    row(Status::UnsupportedEndpoint, "UNSUPPORTED_ENDPOINT", 7, 0x04, true, "this kind of endpoint cannot be driven, or not in this direction"),
    row(Status::EndOfSource, "END_OF_SOURCE", 7, 0x05, false, "the source ended before the length that was asked for"),
    row(Status::PeerReset, "PEER_RESET", 7, 0x06, false, "the peer reset or closed the connection"),
    row(Status::CorruptData, "CORRUPT_DATA", 7, 0x07, true, "the data are not what the operator takes"),
    row(Status::TruncatedData, "TRUNCATED_DATA", 7, 0x08, true, "the data ended inside a unit that the operator needs whole"),
    row(Status::OutOfResources, "OUT_OF_RESOURCES", 7, 0x09, true, "the engine was made too small for this command"),
    row(Status::DeviceReset, "DEVICE_RESET", 7, 0x0a, false, "the device was reset or removed meanwhile"),
    row(Status::Timeout, "TIMEOUT", 7, 0x0b, false, "the time given ran out"),
    row(Status::PathUnavailable, "PATH_UNAVAILABLE", 7, 0x0d, true, "the requested path is not available here"),
    row(Status::FramingError, "FRAMING_ERROR", 7, 0x0e, true, "the framing around the data breaks its rules, or its lengths do not add up"),
    row(Status::SignatureMismatch, "SIGNATURE_MISMATCH", 7, 0x0f, true, "a signature in the data is not the one that the data and the key give"),
    row(Status::DigestMismatch, "DIGEST_MISMATCH", 7, 0x10, true, "a digest of the data is not the expected one"),
    row(Status::Overlap, "OVERLAP", 7, 0x11, true, "the destination overlaps the source: bytes that are still to be read would be overwritten"),
    row(Status::ModuleTrap, "MODULE_TRAP", 7, 0x12, true, "the module stopped by a trap: it reached what is unreachable, left its memory or divided by zero"),
    row(Status::ModuleFuel, "MODULE_FUEL", 7, 0x13, true, "the module ran for longer than it may for its data"),
    row(Status::ModuleMemory, "MODULE_MEMORY", 7, 0x14, true, "the module asked for more memory than it may have"),
    row(Status::ModuleAnswer, "MODULE_ANSWER", 7, 0x15, true, "the module gave an answer that breaks the rules of modules"),
];

impl Status {
    /// The 15-bit status field of a completion entry.
    pub fn code(self) -> u16 {
        match self {
            Status::Unknown(code) => code & 0x7fff,
            known => self::info(known).map_or(0, StatusInfo::code),
        }
    }

    /// The status of a 15-bit field.
    pub fn from_code(code: u16) -> Status {
        STATUSES.iter().find(|info| info.code() == code).map_or(Status::Unknown(code), |info| info.status)
    }

    /// True for [`Status::Success`].
    pub fn is_success(self) -> bool {
        self == Status::Success
    }

    /// Its meaning, for people.
    pub fn meaning(self) -> &'static str {
        let doc = self::info(self).map_or("a status of a newer engine", |info| info.doc);
        doc.split(" [").next().unwrap_or(doc)
    }

    /// Name of its constant: `END_OF_SOURCE`.
    pub fn name(self) -> &'static str {
        self::info(self).map_or("UNKNOWN", |info| info.name)
    }
}

fn info(status: Status) -> Option<&'static StatusInfo> {
    STATUSES.iter().find(|info| info.status == status)
}

impl core::fmt::Display for Status {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Status::Unknown(code) => write!(f, "unknown status {code:#06x}"),
            known => f.write_str(known.meaning()),
        }
    }
}

/// The stage of the engine in which something happened. The numbers stand in completion entries and results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Stage {
    /// No stage: the command did not fail.
    #[default]
    None = 0,
    /// The frontend: fetching, checking, binding to devices.
    Frontend = 1,
    /// Waiting: for its turn, for a slot, for an earlier command of the same request.
    Queue = 2,
    /// The source device.
    Source = 3,
    /// An operator of the chain; `stage_index` tells which.
    Operator = 4,
    /// The destination device.
    Destination = 5,
}

/// Every stage with its name, by number.
pub const STAGES: &[(Stage, &str)] = &[
    (Stage::None, "none"),
    (Stage::Frontend, "frontend"),
    (Stage::Queue, "queue"),
    (Stage::Source, "source"),
    (Stage::Operator, "operator"),
    (Stage::Destination, "destination"),
];

impl Stage {
    /// The stage of that number; [`Stage::None`] where there is none.
    pub fn from_number(number: u8) -> Stage {
        STAGES.get(number as usize).map_or(Stage::None, |row| row.0)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        STAGES[self as usize].1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique_and_come_back() {
        for (at, info) in STATUSES.iter().enumerate() {
            assert_eq!(Status::from_code(info.code()), info.status);
            assert_eq!(info.status.code(), info.code());
            assert!(STATUSES[..at].iter().all(|other| other.code() & 0x7ff != info.code() & 0x7ff));
        }
        assert_eq!(Status::from_code(0x3ff), Status::Unknown(0x3ff));
        assert_eq!(Status::Unknown(0x3ff).code(), 0x3ff);
    }

    #[test]
    fn stages_stand_at_their_numbers() {
        for (number, (stage, _)) in STAGES.iter().enumerate() {
            assert_eq!(*stage as usize, number);
            assert_eq!(Stage::from_number(number as u8), *stage);
        }
        assert_eq!(Stage::from_number(200), Stage::None);
    }
}
