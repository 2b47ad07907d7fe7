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
/// The upper half. [base 3.1.3.28]
pub const PMRMSCU: u64 = 0xe18;
/// First doorbell. [PCIe 3.1.2]
pub const DOORBELLS: u64 = 0x1000;

/// Offset of the tail doorbell of submission queue `queue`, where doorbells are `stride` bytes apart. [PCIe
/// 3.1.2.1]
pub const fn tail_doorbell(queue: u16, stride: u64) -> u64 {
    DOORBELLS + 2 * queue as u64 * stride
}

/// Offset of the head doorbell of completion queue `queue`, where doorbells are `stride` bytes apart. [PCIe
/// 3.1.2.2]
pub const fn head_doorbell(queue: u16, stride: u64) -> u64 {
    DOORBELLS + (2 * queue as u64 + 1) * stride
}

/// The smallest page of memory, as a power of two: MPS, MPSMIN and MPSMAX count from it.
const PAGE_SHIFT: u8 = 12;

/// Controller capabilities (CAP): what the controller can do. [base 3.1.3.1]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Entries that an I/O queue may have at most, 1 to 65,536. MQES is one less.
    pub max_entries: u32,
    /// Queues have to be contiguous (CQR).
    pub contiguous: bool,
    /// Time that CSTS.RDY may take to follow a change of CC.EN, in units of 500 ms (TO).
    pub timeout: u8,
    /// Doorbells are `4 << stride` bytes apart (DSTRD), 0 to 15.
    pub stride: u8,
    /// It has the NVM command set (CSS bit 0).
    pub nvm_commands: bool,
    /// It has the command sets that identify data name (CSS bit 6, IOCSS): [`command_sets`](crate::identify::command_sets_bytes).
    pub command_sets: bool,
    /// It has no I/O command set (CSS bit 7): the admin commands alone.
    pub admin_only: bool,
    /// Smallest memory page in bytes as a power of two, 12 to 27. MPSMIN is 12 less.
    pub page_shift_min: u8,
    /// Largest memory page in bytes as a power of two, 12 to 27. MPSMAX is 12 less.
    pub page_shift_max: u8,
    /// It has a persistent memory region (PMRS).
    pub pmr: bool,
    /// Its controller memory buffer is switched on by CMBMSC first (CMBS). [base 8.5]
    pub cmb: bool,
}

impl Default for Capabilities {
    /// Queues of a single entry, pages of 4 KiB, and no command set: all fields are zero.
    fn default() -> Capabilities {
        Capabilities::from_bits(0)
    }
}

impl Capabilities {
    /// Takes a register's value apart.
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

    /// The register's value.
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

    /// Bytes from one doorbell to the next.
    pub const fn doorbell_stride(self) -> u64 {
        4 << self.stride
    }

    /// Time that CSTS.RDY may take to follow a change of CC.EN, in nanoseconds: 500 ms where the controller
    /// says nothing.
    pub const fn timeout_nanos(self) -> u64 {
        let units = if self.timeout == 0 { 1 } else { self.timeout as u64 };
        units * 500_000_000
    }
}

/// The request of CC.SHN. [base 3.1.3.5]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ShutdownRequest {
    /// Nothing.
    #[default]
    None,
    /// A normal shutdown.
    Normal,
    /// An abrupt one: power is about to go.
    Abrupt,
    /// The value that has no meaning.
    Reserved,
}

/// Controller configuration (CC): what the host wants of the controller. [base 3.1.3.5]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Configuration {
    /// The controller is to run (EN).
    pub enabled: bool,
    /// I/O command set (CSS): 0 is NVM, [`Configuration::ALL_SETS`] all that there are.
    pub command_set: u8,
    /// Bytes of a memory page are `4096 << page` (MPS), 0 to 15.
    pub page: u8,
    /// Arbitration between submission queues (AMS): 0 is round robin.
    pub arbitration: u8,
    /// Shutdown notification (SHN).
    pub shutdown: ShutdownRequest,
    /// Bytes of a submission entry of I/O queues, as a power of two (IOSQES).
    pub submission_shift: u8,
    /// Bytes of a completion entry of I/O queues, as a power of two (IOCQES).
    pub completion_shift: u8,
}

impl Configuration {
    /// All command sets of the combination that is selected (CSS).
    pub const ALL_SETS: u8 = 6;

    /// Disabled, with memory pages of `1 << page_shift` bytes, the NVM command set, round robin, and the
    /// entries that there are: of [`command::SIZE`](crate::command::SIZE) and
    /// [`completion::SIZE`](crate::completion::SIZE) bytes.
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

    /// Takes a register's value apart.
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

    /// The register's value.
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

    /// Bytes of a memory page.
    pub const fn page_bytes(self) -> u64 {
        4096 << self.page
    }

    /// True if I/O queues have entries of the sizes that there are.
    pub const fn has_entry_sizes(self) -> bool {
        let usual = Configuration::new(0);
        self.submission_shift == usual.submission_shift && self.completion_shift == usual.completion_shift
    }
}

/// Progress of a shutdown (CSTS.SHST). [base 3.1.3.6]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shutdown {
    /// None was asked for.
    #[default]
    None,
    /// It is under way.
    Occurring,
    /// It is complete.
    Complete,
    /// The value that has no meaning.
    Reserved,
}

/// Controller status (CSTS). [base 3.1.3.6]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ControllerStatus {
    /// The controller processes commands (RDY).
    pub ready: bool,
    /// It cannot any more: only a reset helps (CFS).
    pub fatal: bool,
    /// Progress of a shutdown (SHST).
    pub shutdown: Shutdown,
}

impl ControllerStatus {
    /// Takes a register's value apart.
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

    /// The register's value.
    pub const fn bits(self) -> u32 {
        self.ready as u32 | (self.fatal as u32) << 1 | (self.shutdown as u32) << 2
    }
}

/// Sizes of the admin queues (AQA), in entries: 1 to 4,096, of which 1 is too few. [base 3.1.3.8]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdminQueueSizes {
    /// Entries of the submission queue. ASQS is one less.
    pub submissions: u16,
    /// Entries of the completion queue. ACQS is one less.
    pub completions: u16,
}

impl AdminQueueSizes {
    /// Takes a register's value apart.
    pub const fn from_bits(bits: u32) -> AdminQueueSizes {
        let bits = bits as u64;
        AdminQueueSizes {
            submissions: field(bits, 0, 12) as u16 + 1,
            completions: field(bits, 16, 12) as u16 + 1,
        }
    }

    /// The register's value.
    pub const fn bits(self) -> u32 {
        let submissions = place(self.submissions.saturating_sub(1) as u64, 0, 12);
        let completions = place(self.completions.saturating_sub(1) as u64, 16, 12);
        (submissions | completions) as u32
    }
}
