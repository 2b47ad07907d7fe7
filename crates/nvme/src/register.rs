//! The registers of BAR0 that start and stop a controller, and the doorbells. [base 3.1.3]

use crate::bytes::{field, place};

/// Controller capabilities, 64 bits: [`Capabilities`]. [base 3.1.3.1]
pub const CAP: u64 = 0x00;
/// Version. [base 3.1.3.2]
pub const VS: u64 = 0x08;
/// Interrupt mask set: bits of vectors. [base 3.1.3.3]
pub const INTMS: u64 = 0x0c;
/// Interrupt mask clear: bits of vectors. [base 3.1.3.4]
pub const INTMC: u64 = 0x10;
/// Controller configuration: [`Configuration`]. [base 3.1.3.5]
pub const CC: u64 = 0x14;
/// Controller status: [`ControllerStatus`]. [base 3.1.3.6]
pub const CSTS: u64 = 0x1c;
/// Admin queue attributes: [`AdminQueueSizes`]. [base 3.1.3.8]
pub const AQA: u64 = 0x24;
/// Admin submission queue base address, 64 bits. [base 3.1.3.9]
pub const ASQ: u64 = 0x28;
/// Admin completion queue base address, 64 bits. [base 3.1.3.10]
pub const ACQ: u64 = 0x30;
/// Controller memory buffer location: [`cmb::Location`](crate::cmb::Location). [base 3.1.3.11]
pub const CMBLOC: u64 = 0x38;
/// Controller memory buffer size: [`cmb::Size`](crate::cmb::Size). [base 3.1.3.12]
pub const CMBSZ: u64 = 0x3c;
/// Controller memory buffer memory space control, 64 bits: [`cmb::Control`](crate::cmb::Control). [base
/// 3.1.3.16]
pub const CMBMSC: u64 = 0x50;
/// Controller memory buffer status: [`cmb::Status`](crate::cmb::Status). [base 3.1.3.17]
pub const CMBSTS: u64 = 0x58;
/// Persistent memory region capabilities: [`pmr::Capabilities`](crate::pmr::Capabilities). [base 3.1.3.22]
pub const PMRCAP: u64 = 0xe00;
/// Persistent memory region control: [`pmr::Control`](crate::pmr::Control). [base 3.1.3.23]
pub const PMRCTL: u64 = 0xe04;
/// Persistent memory region status: [`pmr::Status`](crate::pmr::Status). [base 3.1.3.24]
pub const PMRSTS: u64 = 0xe08;
/// Persistent memory region memory space control, the lower half of [`pmr::Space`](crate::pmr::Space). [base
/// 3.1.3.27]
pub const PMRMSCL: u64 = 0xe14;
/// Persistent memory region memory space control, the upper half. [base 3.1.3.28]
pub const PMRMSCU: u64 = 0xe18;
/// First doorbell. [PCIe 3.1.2]
pub const DOORBELLS: u64 = 0x1000;

/// Returns the offset of the tail doorbell of submission queue `queue`, if doorbells are `stride` bytes apart. [PCIe 3.1.2.1]
pub const fn tail_doorbell(queue: u16, stride: u64) -> u64 {
    DOORBELLS + 2 * queue as u64 * stride
}

/// Returns the offset of the head doorbell of completion queue `queue`, if doorbells are `stride` bytes apart. [PCIe 3.1.2.2]
pub const fn head_doorbell(queue: u16, stride: u64) -> u64 {
    DOORBELLS + (2 * queue as u64 + 1) * stride
}

/// Smallest memory page, as a power of two: MPS, MPSMIN and MPSMAX count from it.
const PAGE_SHIFT: u8 = 12;

/// Controller capabilities (CAP). [base 3.1.3.1]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Most entries of an I/O queue, 1 to 65,536. MQES is one less.
    pub max_entries: u32,
    /// Set if queues must be contiguous (CQR).
    pub contiguous: bool,
    /// Time limit for CSTS.RDY to follow a change of CC.EN, in units of 500 ms (TO).
    pub timeout: u8,
    /// Distance between doorbells, as `4 << stride` bytes (DSTRD), 0 to 15.
    pub stride: u8,
    /// Set if it has the NVM command set (CSS bit 0).
    pub nvm_commands: bool,
    /// Set if it has the command sets that identify data name (CSS bit 6, IOCSS): [`command_sets`](crate::identify::command_sets_bytes).
    pub command_sets: bool,
    /// Set if it has no I/O command set (CSS bit 7): the admin commands alone.
    pub admin_only: bool,
    /// Smallest memory page in bytes as a power of two, 12 to 27. MPSMIN is 12 less.
    pub page_shift_min: u8,
    /// Largest memory page in bytes as a power of two, 12 to 27. MPSMAX is 12 less.
    pub page_shift_max: u8,
    /// Set if it has a persistent memory region (PMRS).
    pub pmr: bool,
    /// Set if CMBMSC must switch its controller memory buffer on first (CMBS). [base 8.5]
    pub cmb: bool,
}

impl Default for Capabilities {
    /// Returns queues of a single entry, pages of 4 KiB, and no command set: all fields are zero.
    fn default() -> Capabilities {
        Capabilities::from_bits(0)
    }
}

impl Capabilities {
    /// Decodes a register's value.
    pub const fn from_bits(bits: u64) -> Capabilities {
        Capabilities {
            max_entries: field(bits, 0, 16) as u32 + 1,
            contiguous: field(bits, 16, 1) != 0,
            timeout: field(bits, 24, 8) as u8,
            stride: field(bits, 32, 4) as u8,
            nvm_commands: field(bits, 37, 1) != 0,
            command_sets: field(bits, 43, 1) != 0,
            admin_only: field(bits, 44, 1) != 0,
            page_shift_min: PAGE_SHIFT + field(bits, 48, 4) as u8,
            page_shift_max: PAGE_SHIFT + field(bits, 52, 4) as u8,
            pmr: field(bits, 56, 1) != 0,
            cmb: field(bits, 57, 1) != 0,
        }
    }

    /// Encodes the register's value.
    pub const fn bits(self) -> u64 {
        place(self.max_entries.saturating_sub(1) as u64, 0, 16)
            | place(self.contiguous as u64, 16, 1)
            | place(self.timeout as u64, 24, 8)
            | place(self.stride as u64, 32, 4)
            | place(self.nvm_commands as u64, 37, 1)
            | place(self.command_sets as u64, 43, 1)
            | place(self.admin_only as u64, 44, 1)
            | place(self.page_shift_min.saturating_sub(PAGE_SHIFT) as u64, 48, 4)
            | place(self.page_shift_max.saturating_sub(PAGE_SHIFT) as u64, 52, 4)
            | place(self.pmr as u64, 56, 1)
            | place(self.cmb as u64, 57, 1)
    }

    /// Returns the distance between doorbells in bytes.
    pub const fn doorbell_stride(self) -> u64 {
        4 << self.stride
    }

    /// Returns the time limit for CSTS.RDY to follow a change of CC.EN, in nanoseconds: 500 ms if the controller does not report one.
    pub const fn timeout_nanos(self) -> u64 {
        let units = if self.timeout == 0 { 1 } else { self.timeout as u64 };
        units * 500_000_000
    }
}

/// The request of CC.SHN. [base 3.1.3.5]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ShutdownRequest {
    /// No request.
    #[default]
    None,
    /// A normal shutdown.
    Normal,
    /// An abrupt shutdown: power is about to be lost.
    Abrupt,
    /// The reserved value.
    Reserved,
}

/// Controller configuration (CC): the host's settings. [base 3.1.3.5]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Configuration {
    /// Set to run the controller (EN).
    pub enabled: bool,
    /// I/O command set (CSS): 0 is NVM, [`Configuration::ALL_SETS`] all available ones.
    pub command_set: u8,
    /// Size of a memory page, as `4096 << page` bytes (MPS), 0 to 15.
    pub page: u8,
    /// Arbitration between submission queues (AMS): 0 is round robin.
    pub arbitration: u8,
    /// Shutdown notification (SHN).
    pub shutdown: ShutdownRequest,
    /// Size of a submission entry of I/O queues in bytes, as a power of two (IOSQES).
    pub submission_shift: u8,
    /// Size of a completion entry of I/O queues in bytes, as a power of two (IOCQES).
    pub completion_shift: u8,
}

impl Configuration {
    /// Value of CSS for all command sets of the selected combination.
    pub const ALL_SETS: u8 = 6;

    /// Makes a disabled configuration, with memory pages of `1 << page_shift` bytes, the NVM command set, round robin, and the standard
    /// entry sizes: [`command::SIZE`](crate::command::SIZE) and [`completion::SIZE`](crate::completion::SIZE) bytes.
    pub const fn new(page_shift: u32) -> Configuration {
        Configuration {
            enabled: false,
            command_set: 0,
            page: page_shift.saturating_sub(PAGE_SHIFT as u32) as u8,
            arbitration: 0,
            shutdown: ShutdownRequest::None,
            submission_shift: crate::command::SIZE.trailing_zeros() as u8,
            completion_shift: crate::completion::SIZE.trailing_zeros() as u8,
        }
    }

    /// Decodes a register's value.
    pub const fn from_bits(bits: u32) -> Configuration {
        let bits = bits as u64;
        Configuration {
            enabled: field(bits, 0, 1) != 0,
            command_set: field(bits, 4, 3) as u8,
            page: field(bits, 7, 4) as u8,
            arbitration: field(bits, 11, 3) as u8,
            shutdown: match field(bits, 14, 2) {
                0 => ShutdownRequest::None,
                1 => ShutdownRequest::Normal,
                2 => ShutdownRequest::Abrupt,
                _ => ShutdownRequest::Reserved,
            },
            submission_shift: field(bits, 16, 4) as u8,
            completion_shift: field(bits, 20, 4) as u8,
        }
    }

    /// Encodes the register's value.
    pub const fn bits(self) -> u32 {
        let bits = place(self.enabled as u64, 0, 1)
            | place(self.command_set as u64, 4, 3)
            | place(self.page as u64, 7, 4)
            | place(self.arbitration as u64, 11, 3)
            | place(self.shutdown as u64, 14, 2)
            | place(self.submission_shift as u64, 16, 4)
            | place(self.completion_shift as u64, 20, 4);
        bits as u32
    }

    /// Returns the size of a memory page in bytes.
    pub const fn page_bytes(self) -> u64 {
        4096 << self.page
    }

    /// Returns true if I/O queues have the standard entry sizes.
    pub const fn has_entry_sizes(self) -> bool {
        let usual = Configuration::new(0);
        self.submission_shift == usual.submission_shift && self.completion_shift == usual.completion_shift
    }
}

/// Progress of a shutdown (CSTS.SHST). [base 3.1.3.6]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shutdown {
    /// No shutdown was requested.
    #[default]
    None,
    /// The shutdown is in progress.
    Occurring,
    /// The shutdown is complete.
    Complete,
    /// The reserved value.
    Reserved,
}

/// Controller status (CSTS). [base 3.1.3.6]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ControllerStatus {
    /// Set if the controller processes commands (RDY).
    pub ready: bool,
    /// Set after a fatal error, which only a reset clears (CFS).
    pub fatal: bool,
    /// Progress of a shutdown (SHST).
    pub shutdown: Shutdown,
}

impl ControllerStatus {
    /// Decodes a register's value.
    pub const fn from_bits(bits: u32) -> ControllerStatus {
        ControllerStatus {
            ready: bits & 1 != 0,
            fatal: bits & 2 != 0,
            shutdown: match bits >> 2 & 3 {
                0 => Shutdown::None,
                1 => Shutdown::Occurring,
                2 => Shutdown::Complete,
                _ => Shutdown::Reserved,
            },
        }
    }

    /// Encodes the register's value.
    pub const fn bits(self) -> u32 {
        self.ready as u32 | (self.fatal as u32) << 1 | (self.shutdown as u32) << 2
    }
}

/// Sizes of the admin queues (AQA), in entries: 1 to 4,096, of which 1 is too few. [base 3.1.3.8]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdminQueueSizes {
    /// Number of entries of the submission queue. ASQS is one less.
    pub submissions: u16,
    /// Number of entries of the completion queue. ACQS is one less.
    pub completions: u16,
}

impl AdminQueueSizes {
    /// Decodes a register's value.
    pub const fn from_bits(bits: u32) -> AdminQueueSizes {
        let bits = bits as u64;
        AdminQueueSizes {
            submissions: field(bits, 0, 12) as u16 + 1,
            completions: field(bits, 16, 12) as u16 + 1,
        }
    }

    /// Encodes the register's value.
    pub const fn bits(self) -> u32 {
        let submissions = place(self.submissions.saturating_sub(1) as u64, 0, 12);
        let completions = place(self.completions.saturating_sub(1) as u64, 16, 12);
        (submissions | completions) as u32
    }
}
