//! Statuses: the results of commands. [base 3.3.3.2.1, NVM 3.1.2]

use core::fmt;

/// The 15 bits of a completion's status: code, type, retry delay, more, do not retry.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Status(pub u16);

/// Declares a constant for each status, and [`Status::words`] with the specification's texts.
macro_rules! statuses {
    ($($kind:literal { $($code:literal $name:ident $words:literal)* })*) => {
        impl Status {
            $($(
                #[doc = concat!($words, ".")]
                pub const $name: Status = Status::new($kind, $code);
            )*)*

            /// Returns the specification's text, if the status is one of those above.
            const fn words(self) -> Option<&'static str> {
                match (self.kind(), self.code()) {
                    $($( ($kind, $code) => Some($words), )*)*
                    _ => None,
                }
            }
        }

        #[cfg(test)]
        const ALL: &[(Status, u8, u8, &str)] = &[$($( (Status::$name, $kind, $code, $words), )*)*];
    };
}

statuses! {
    // Generic. [base figure 94]
    0 {
        0x00 SUCCESS "Successful Completion"
        0x01 INVALID_OPCODE "Invalid Command Opcode"
        0x02 INVALID_FIELD "Invalid Field in Command"
        0x03 ID_CONFLICT "Command ID Conflict"
        0x04 DATA_TRANSFER_ERROR "Data Transfer Error"
        0x05 POWER_LOSS "Commands Aborted due to Power Loss Notification"
        0x06 INTERNAL_ERROR "Internal Error"
        0x07 ABORT_REQUESTED "Command Abort Requested"
        0x08 QUEUE_DELETED "Command Aborted due to SQ Deletion"
        0x09 FUSED_FAILED "Command Aborted due to Failed Fused Command"
        0x0a FUSED_MISSING "Command Aborted due to Missing Fused Command"
        0x0b INVALID_NAMESPACE "Invalid Namespace or Format"
        0x0c SEQUENCE_ERROR "Command Sequence Error"
        0x0d INVALID_SGL_SEGMENT "Invalid SGL Segment Descriptor"
        0x0e INVALID_SGL_COUNT "Invalid Number of SGL Descriptors"
        0x0f INVALID_SGL_LENGTH "Data SGL Length Invalid"
        0x10 INVALID_METADATA_LENGTH "Metadata SGL Length Invalid"
        0x11 INVALID_SGL_TYPE "SGL Descriptor Type Invalid"
        0x12 INVALID_USE_OF_CMB "Invalid Use of Controller Memory Buffer"
        0x13 INVALID_PRP_OFFSET "PRP Offset Invalid"
        0x14 ATOMIC_UNIT_EXCEEDED "Atomic Write Unit Exceeded"
        0x15 OPERATION_DENIED "Operation Denied"
        0x16 INVALID_SGL_OFFSET "SGL Offset Invalid"
        0x18 INCONSISTENT_HOST_ID "Host Identifier Inconsistent Format"
        0x1a INVALID_KEEP_ALIVE "Keep Alive Timeout Invalid"
        0x1c SANITIZE_FAILED "Sanitize Failed"
        0x1d SANITIZE_IN_PROGRESS "Sanitize In Progress"
        0x1e INVALID_SGL_GRANULARITY "SGL Data Block Granularity Invalid"
        0x20 WRITE_PROTECTED "Namespace is Write Protected"
        0x21 INTERRUPTED "Command Interrupted"
        0x22 TRANSIENT_TRANSPORT_ERROR "Transient Transport Error"
        0x24 MEDIA_NOT_READY "Admin Command Media Not Ready"
        0x80 LBA_OUT_OF_RANGE "LBA Out of Range"
        0x81 CAPACITY_EXCEEDED "Capacity Exceeded"
        0x82 NAMESPACE_NOT_READY "Namespace Not Ready"
        0x83 RESERVATION_CONFLICT "Reservation Conflict"
        0x84 FORMAT_IN_PROGRESS "Format In Progress"
    }
    // Command specific. [base figure 95, NVM figure 18; from 85h on: base 2.2 figure 104]
    1 {
        0x00 INVALID_COMPLETION_QUEUE "Completion Queue Invalid"
        0x01 INVALID_QUEUE_ID "Invalid Queue Identifier"
        0x02 INVALID_QUEUE_SIZE "Invalid Queue Size"
        0x03 ABORT_LIMIT_EXCEEDED "Abort Command Limit Exceeded"
        0x05 EVENT_REQUEST_LIMIT_EXCEEDED "Asynchronous Event Request Limit Exceeded"
        0x08 INVALID_VECTOR "Invalid Interrupt Vector"
        0x09 INVALID_LOG_PAGE "Invalid Log Page"
        0x0a INVALID_FORMAT "Invalid Format"
        0x0b ACTIVATION_NEEDS_RESET "Firmware Activation Requires Conventional Reset"
        0x0c INVALID_QUEUE_DELETION "Invalid Queue Deletion"
        0x0d FEATURE_NOT_SAVEABLE "Feature Identifier Not Saveable"
        0x0e FEATURE_NOT_CHANGEABLE "Feature Not Changeable"
        0x0f FEATURE_NOT_NAMESPACE_SPECIFIC "Feature Not Namespace Specific"
        0x29 COMMAND_SET_NOT_SUPPORTED "I/O Command Set Not Supported"
        0x2b COMMAND_SETS_REJECTED "I/O Command Set Combination Rejected"
        0x2c INVALID_COMMAND_SET "Invalid I/O Command Set"
        0x80 CONFLICTING_ATTRIBUTES "Conflicting Attributes"
        0x81 INVALID_PROTECTION_INFORMATION "Invalid Protection Information"
        0x82 WRITE_TO_READ_ONLY_RANGE "Attempted Write to Read Only Range"
        0x83 SIZE_LIMIT_EXCEEDED "Command Size Limit Exceeded"
        0x85 INCOMPATIBLE_NAMESPACE "Incompatible Namespace or Format"
        0x86 FAST_COPY_NOT_POSSIBLE "Fast Copy Not Possible"
        0x87 OVERLAPPING_IO_RANGE "Overlapping I/O Range"
        0x88 NAMESPACE_NOT_REACHABLE "Namespace Not Reachable"
        0x8a INSUFFICIENT_PROGRAM_RESOURCES "Insufficient Program Resources"
        0x8b INVALID_MEMORY_NAMESPACE "Invalid Memory Namespace"
        0x8c INVALID_MEMORY_RANGE_SET "Invalid Memory Range Set"
        0x8d INVALID_MEMORY_RANGE_SET_ID "Invalid Memory Range Set Identifier"
        0x8e INVALID_PROGRAM_DATA "Invalid Program Data"
        0x8f INVALID_PROGRAM_INDEX "Invalid Program Index"
        0x90 INVALID_PROGRAM_TYPE "Invalid Program Type"
        0x91 TOO_MANY_MEMORY_RANGES "Maximum Memory Ranges Exceeded"
        0x92 TOO_MANY_MEMORY_RANGE_SETS "Maximum Memory Range Sets Exceeded"
        0x93 TOO_MANY_PROGRAMS_ACTIVATED "Maximum Programs Activated"
        0x94 TOO_MANY_PROGRAM_BYTES "Maximum Program Bytes Exceeded"
        0x95 MEMORY_RANGE_SET_IN_USE "Memory Range Set In Use"
        0x96 NO_PROGRAM "No Program"
        0x97 OVERLAPPING_MEMORY_RANGES "Overlapping Memory Ranges"
        0x98 PROGRAM_NOT_ACTIVATED "Program Not Activated"
        0x99 PROGRAM_IN_USE "Program In Use"
        0x9a PROGRAM_INDEX_NOT_DOWNLOADABLE "Program Index Not Downloadable"
        0x9b PROGRAM_TOO_BIG "Program Too Big"
        0xb8 ZONE_BOUNDARY_ERROR "Zoned Boundary Error"
        0xb9 ZONE_FULL "Zone Is Full"
        0xba ZONE_READ_ONLY "Zone Is Read Only"
        0xbb ZONE_OFFLINE "Zone Is Offline"
        0xbc ZONE_INVALID_WRITE "Zone Invalid Write"
    }
    // Media and data integrity. [NVM figure 19]
    2 {
        0x80 WRITE_FAULT "Write Fault"
        0x81 UNRECOVERED_READ_ERROR "Unrecovered Read Error"
        0x82 GUARD_CHECK_ERROR "End-to-end Guard Check Error"
        0x83 APPLICATION_TAG_CHECK_ERROR "End-to-end Application Tag Check Error"
        0x84 REFERENCE_TAG_CHECK_ERROR "End-to-end Reference Tag Check Error"
        0x85 COMPARE_FAILURE "Compare Failure"
        0x86 ACCESS_DENIED "Access Denied"
        0x87 DEALLOCATED_BLOCK "Deallocated or Unwritten Logical Block"
        0x88 STORAGE_TAG_CHECK_ERROR "End-to-End Storage Tag Check Error"
    }
    // Path related. [base figure 97]
    3 {
        0x00 INTERNAL_PATH_ERROR "Internal Path Error"
        0x01 PERSISTENT_LOSS "Asymmetric Access Persistent Loss"
        0x02 INACCESSIBLE "Asymmetric Access Inaccessible"
        0x03 TRANSITION "Asymmetric Access Transition"
        0x60 CONTROLLER_PATHING_ERROR "Controller Pathing Error"
        0x70 HOST_PATHING_ERROR "Host Pathing Error"
        0x71 ABORTED_BY_HOST "Command Aborted By Host"
    }
}

impl Status {
    const DO_NOT_RETRY: u16 = 1 << 14;

    /// Makes the status of type `kind` and code `code`.
    pub const fn new(kind: u8, code: u8) -> Status {
        Status((kind as u16 & 7) << 8 | code as u16)
    }

    /// Sets the bit that says that the same command would fail again (DNR).
    #[inline]
    pub const fn with_do_not_retry(self) -> Status {
        Status(self.0 | Status::DO_NOT_RETRY)
    }

    /// Returns true if the command succeeded.
    #[inline]
    pub const fn is_success(self) -> bool {
        self.kind() == 0 && self.code() == 0
    }

    /// Returns true if type and code equal those of `other`; ignores the rest.
    pub const fn is(self, other: Status) -> bool {
        self.kind() == other.kind() && self.code() == other.code()
    }

    /// Returns the status code type (SCT): 0 generic, 1 command specific, 2 media and data integrity, 3 path related, 7 vendor.
    pub const fn kind(self) -> u8 {
        (self.0 >> 8 & 7) as u8
    }

    /// Returns the status code (SC).
    pub const fn code(self) -> u8 {
        self.0 as u8
    }

    /// Returns the index of the controller's delay to wait before sending the command again (CRD).
    pub const fn retry_delay(self) -> u8 {
        (self.0 >> 11 & 3) as u8
    }

    /// Returns true if the error log has more information (M).
    pub const fn more(self) -> bool {
        self.0 >> 13 & 1 != 0
    }

    /// Returns true if the same command would fail again (DNR).
    pub const fn do_not_retry(self) -> bool {
        self.0 & Status::DO_NOT_RETRY != 0
    }

    /// Returns the specification's text for the status, or for its type.
    pub const fn text(self) -> &'static str {
        match (self.words(), self.kind()) {
            (Some(words), _) => words,
            (None, 0) => "Generic Command Status",
            (None, 1) => "Command Specific Status",
            (None, 2) => "Media and Data Integrity Error",
            (None, 3) => "Path Related Status",
            (None, 7) => "Vendor Specific",
            (None, _) => "Reserved Status Code Type",
        }
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
    fn constants_are_their_type_and_code() {
        for (status, kind, code, words) in ALL {
            assert_eq!((status.kind(), status.code(), status.text()), (*kind, *code, *words));
            let last = status.with_do_not_retry();
            assert!(last.do_not_retry() && !status.do_not_retry() && last.is(*status) && last != *status);
        }
    }

    #[test]
    fn the_fields_are_where_the_specification_has_them() {
        let status = Status(1 << 14 | 1 << 13 | 2 << 11 | 3 << 8 | 0x81);
        assert_eq!((status.kind(), status.code(), status.retry_delay()), (3, 0x81, 2));
        assert!(status.more() && status.do_not_retry());
        assert!(!Status(0x1fff).more() && !Status(0x3fff).do_not_retry());
    }
}
