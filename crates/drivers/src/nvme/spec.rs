//! NVMe on the wire: registers, submission and completion entries. Constants and small views, nothing that acts.
//!
//! Numbers are of the NVM Express Base Specification 2.0c ("base") and the NVM Command Set Specification 1.0c
//! ("NVM"). What a controller wrote is taken as it is: no view panics, and whoever uses a value checks it first.

use super::status::Status;

/// Registers, by their offset in BAR0. [base 3.1.3]
pub mod register {
    /// Controller capabilities, 64 bits.
    pub const CAP: u64 = 0x00;
    /// Version.
    pub const VS: u64 = 0x08;
    /// Interrupt mask set.
    pub const INTMS: u64 = 0x0c;
    /// Controller configuration.
    pub const CC: u64 = 0x14;
    /// Controller status.
    pub const CSTS: u64 = 0x1c;
    /// Admin queue attributes.
    pub const AQA: u64 = 0x24;
    /// Admin submission queue base address, 64 bits.
    pub const ASQ: u64 = 0x28;
    /// Admin completion queue base address, 64 bits.
    pub const ACQ: u64 = 0x30;
    /// Controller memory buffer location, and its size behind it.
    pub const CMBLOC: u64 = 0x38;
    /// Controller memory buffer memory space control, 64 bits.
    pub const CMBMSC: u64 = 0x50;
    /// Controller memory buffer status.
    pub const CMBSTS: u64 = 0x58;
    /// Persistent memory region capabilities.
    pub const PMRCAP: u64 = 0xe00;
    /// Persistent memory region control.
    pub const PMRCTL: u64 = 0xe04;
    /// Persistent memory region status.
    pub const PMRSTS: u64 = 0xe08;
    /// Persistent memory region memory space control, the lower half.
    pub const PMRMSCL: u64 = 0xe14;
    /// Its upper half.
    pub const PMRMSCU: u64 = 0xe18;
    /// First doorbell. [transport PCIe 3.1.2]
    pub const DOORBELLS: u64 = 0x1000;
}

/// Controller capabilities. [base 3.1.3.1]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities(pub u64);

impl Capabilities {
    /// Entries that a queue may have at most. MQES is one less.
    pub fn max_entries(self) -> u32 {
        (self.0 & 0xffff) as u32 + 1
    }

    /// How long a change of CC.EN may take until CSTS.RDY follows, in nanoseconds. TO counts 500 ms.
    pub fn timeout(self) -> u64 {
        (self.0 >> 24 & 0xff).max(1) * 500_000_000
    }

    /// Bytes from one doorbell to the next.
    pub fn doorbell_stride(self) -> u64 {
        4 << (self.0 >> 32 & 0xf)
    }

    /// Whether the controller has the NVM command set.
    pub fn nvm_command_set(self) -> bool {
        self.0 >> 37 & 1 != 0
    }

    /// Smallest memory page in bytes, as a power of two.
    pub fn page_shift_min(self) -> u32 {
        12 + (self.0 >> 48 & 0xf) as u32
    }

    /// Largest memory page in bytes, as a power of two.
    pub fn page_shift_max(self) -> u32 {
        12 + (self.0 >> 52 & 0xf) as u32
    }

    /// Whether the controller has a persistent memory region.
    pub fn has_pmr(self) -> bool {
        self.0 >> 56 & 1 != 0
    }

    /// Whether the controller memory buffer has to be switched on by CMBMSC first. [base 8.5]
    pub fn cmb_switch(self) -> bool {
        self.0 >> 57 & 1 != 0
    }
}

/// Controller configuration: enabled, NVM command set, round robin, 64-byte submission and 16-byte completion entries.
/// [base 3.1.3.5]
pub fn configuration(page_shift: u32) -> u32 {
    const ENABLE: u32 = 1;
    const SUBMISSION_SHIFT: u32 = 6 << 16;
    const COMPLETION_SHIFT: u32 = 4 << 20;
    ENABLE | (page_shift.saturating_sub(12) & 0xf) << 7 | SUBMISSION_SHIFT | COMPLETION_SHIFT
}

/// CC.EN.
pub const ENABLED: u32 = 1;
/// CC.SHN: normal shutdown.
pub const SHUTDOWN: u32 = 1 << 14;

/// Controller status. [base 3.1.3.6]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControllerStatus(pub u32);

impl ControllerStatus {
    /// The controller processes commands.
    pub fn ready(self) -> bool {
        self.0 & 1 != 0
    }

    /// It cannot any more: only a reset helps.
    pub fn fatal(self) -> bool {
        self.0 & 2 != 0
    }

    /// Shutdown is complete (SHST).
    pub fn shut_down(self) -> bool {
        self.0 >> 2 & 3 == 2
    }

    /// What a read brings where there is no controller any more.
    pub fn gone(self) -> bool {
        self.0 == u32::MAX
    }
}

/// Controller memory buffer location and size, as they lie in the registers. [base 3.1.3.11, 3.1.3.12]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryBuffer {
    /// CMBLOC.
    pub location: u32,
    /// CMBSZ.
    pub size: u32,
}

impl MemoryBuffer {
    fn unit(self) -> u64 {
        1 << (12 + 4 * (self.size >> 8 & 0xf).min(6))
    }

    /// In which BAR it lies.
    pub fn bar(self) -> u8 {
        (self.location & 7) as u8
    }

    /// Where in that BAR it begins.
    pub fn offset(self) -> u64 {
        u64::from(self.location >> 12) * self.unit()
    }

    /// Bytes.
    pub fn length(self) -> u64 {
        u64::from(self.size >> 12) * self.unit()
    }

    /// Whether submission queues may lie there.
    pub fn takes_submission_queues(self) -> bool {
        self.size & 1 != 0
    }
}

/// Bytes of a submission entry.
pub const SUBMISSION: u64 = 64;
/// Bytes of a completion entry.
pub const COMPLETION: u64 = 16;
/// Bytes of an identify data structure.
pub const IDENTIFY: u64 = 4096;

/// Opcodes of admin commands. [base figure 138]
pub mod admin {
    /// Create I/O submission queue.
    pub const CREATE_SUBMISSION_QUEUE: u8 = 0x01;
    /// Create I/O completion queue.
    pub const CREATE_COMPLETION_QUEUE: u8 = 0x05;
    /// Identify.
    pub const IDENTIFY: u8 = 0x06;
    /// Abort.
    pub const ABORT: u8 = 0x08;
    /// Set features.
    pub const SET_FEATURES: u8 = 0x09;
    /// Feature: number of queues. [base 5.27.1.5]
    pub const NUMBER_OF_QUEUES: u32 = 0x07;
}

/// Opcodes of NVM commands. [NVM figure 16]
pub mod nvm {
    /// Flush.
    pub const FLUSH: u8 = 0x00;
    /// Write.
    pub const WRITE: u8 = 0x01;
    /// Read.
    pub const READ: u8 = 0x02;
    /// Force unit access, in the 12th double word.
    pub const FORCE_UNIT_ACCESS: u32 = 1 << 30;
}

/// Where a command's data are. [base 4.1]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DataPointer {
    /// No data.
    #[default]
    None,
    /// Physical region pages: the first page, and the second or the list of the others. [base 4.1.1]
    Prp(u64, u64),
    /// A scatter gather list's first descriptor. [base 4.1.2]
    Sgl([u8; 16]),
}

/// A scatter gather list's descriptor that names data. [base figure 96]
pub fn sgl_data(address: u64, length: u32) -> [u8; 16] {
    sgl(address, length, 0x00)
}

/// A scatter gather list's descriptor that names the last (or only) array of further descriptors. [base figure 100]
pub fn sgl_last_segment(address: u64, length: u32) -> [u8; 16] {
    sgl(address, length, 0x30)
}

fn sgl(address: u64, length: u32, kind: u8) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&address.to_le_bytes());
    bytes[8..12].copy_from_slice(&length.to_le_bytes());
    bytes[15] = kind;
    bytes
}

/// A command. [base figure 87]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Submission {
    /// What to do.
    pub opcode: u8,
    /// By what its completion is known.
    pub cid: u16,
    /// Namespace.
    pub namespace: u32,
    /// Its data.
    pub data: DataPointer,
    /// Double words 10 to 15, whose meaning is the command's.
    pub words: [u32; 6],
}

impl Submission {
    /// Its bytes.
    pub fn bytes(&self) -> [u8; SUBMISSION as usize] {
        let mut bytes = [0; SUBMISSION as usize];
        bytes[0] = self.opcode;
        bytes[2..4].copy_from_slice(&self.cid.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.namespace.to_le_bytes());
        match self.data {
            DataPointer::None => {}
            DataPointer::Prp(first, second) => {
                bytes[24..32].copy_from_slice(&first.to_le_bytes());
                bytes[32..40].copy_from_slice(&second.to_le_bytes());
            }
            DataPointer::Sgl(descriptor) => {
                const PSDT_SGL: u8 = 0x40;
                bytes[1] = PSDT_SGL;
                bytes[24..40].copy_from_slice(&descriptor);
            }
        }
        for (word, place) in self.words.iter().zip(bytes[40..].chunks_exact_mut(4)) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }
}

/// A completion, as a controller wrote it. [base 3.3.3.2]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion([u32; 4]);

impl Completion {
    /// Of its bytes.
    pub fn new(bytes: [u8; COMPLETION as usize]) -> Completion {
        Completion(core::array::from_fn(|i| u32_at(&bytes, i * 4)))
    }

    /// What the command answers.
    pub fn result(self) -> u32 {
        self.0[0]
    }

    /// How far the controller has fetched the submission queue.
    pub fn submission_head(self) -> u16 {
        self.0[2] as u16
    }

    /// The submission queue that the command came from.
    pub fn submission_queue(self) -> u16 {
        (self.0[2] >> 16) as u16
    }

    /// Which command.
    pub fn cid(self) -> u16 {
        self.0[3] as u16
    }

    /// Changes with each round of the queue: a completion is new where it is not as in the round before.
    pub fn phase(self) -> bool {
        self.0[3] >> 16 & 1 != 0
    }

    /// How the command ended.
    pub fn status(self) -> Status {
        Status((self.0[3] >> 17) as u16)
    }
}

/// The little-endian 16-bit number at `offset`; 0 past the end.
pub fn u16_at(bytes: &[u8], offset: usize) -> u16 {
    bytes.get(offset..offset + 2).map_or(0, |b| u16::from_le_bytes([b[0], b[1]]))
}

/// The little-endian 32-bit number at `offset`; 0 past the end.
pub fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    u32::from(u16_at(bytes, offset)) | u32::from(u16_at(bytes, offset + 2)) << 16
}

/// The little-endian 64-bit number at `offset`; 0 past the end.
pub fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    u64::from(u32_at(bytes, offset)) | u64::from(u32_at(bytes, offset + 4)) << 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_read_as_they_lie() {
        let cap = Capabilities(0x0000_0020_3003_3fff);
        assert_eq!(cap.max_entries(), 16384);
        assert_eq!(cap.timeout(), 24_000_000_000);
        assert_eq!(cap.doorbell_stride(), 4);
        assert!(cap.nvm_command_set());
        assert_eq!((cap.page_shift_min(), cap.page_shift_max()), (12, 12));
        assert!(!cap.cmb_switch());
    }

    #[test]
    fn a_submission_lies_as_the_specification_draws_it() {
        let mut command = Submission {
            opcode: nvm::READ,
            cid: 0x1234,
            namespace: 1,
            data: DataPointer::Prp(0x1122_3344_5566_7788, 0x99),
            words: [0xa0, 0xb0, 0xc0, 0xd0, 0xe0, 0xf0],
        };
        let bytes = command.bytes();
        assert_eq!(bytes[..8], [2, 0, 0x34, 0x12, 1, 0, 0, 0]);
        assert_eq!(bytes[8..24], [0; 16]);
        assert_eq!(
            bytes[24..40],
            [0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 0x99, 0, 0, 0, 0, 0, 0, 0]
        );
        assert_eq!((bytes[40], bytes[44], bytes[60]), (0xa0, 0xb0, 0xf0));
        command.data = DataPointer::Sgl(sgl_last_segment(0x4000, 32));
        let bytes = command.bytes();
        assert_eq!(bytes[1], 0x40);
        assert_eq!(bytes[24..40], [0, 0x40, 0, 0, 0, 0, 0, 0, 32, 0, 0, 0, 0, 0, 0, 0x30]);
    }

    #[test]
    fn a_completion_is_read_as_it_lies() {
        let mut bytes = [0; 16];
        bytes[0] = 7;
        bytes[8..16].copy_from_slice(&[5, 0, 2, 0, 0x34, 0x12, 0x05, 0x85]);
        let done = Completion::new(bytes);
        assert_eq!((done.result(), done.submission_head(), done.submission_queue()), (7, 5, 2));
        assert_eq!((done.cid(), done.phase()), (0x1234, true));
        assert_eq!((done.status().kind(), done.status().code()), (2, 0x82));
        assert!(done.status().do_not_retry());
    }

    #[test]
    fn numbers_past_the_end_are_zero() {
        assert_eq!(u64_at(&[1, 2, 3], 0), 0x0201);
        assert_eq!(u16_at(&[], 0), 0);
    }
}
