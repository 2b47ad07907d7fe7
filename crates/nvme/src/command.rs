//! Submission queue entries: commands, and the content of their double words. [base 3.3.3.1]

use crate::bytes::{array_at, put, u16_at, u32_at, u64_at};
use crate::sgl::Descriptor;

/// Size of an entry in bytes.
pub const SIZE: usize = 64;

/// Opcodes of admin commands. [base figure 138]
pub mod admin {
    /// Delete I/O submission queue. [base 5.7]
    pub const DELETE_SUBMISSION_QUEUE: u8 = 0x00;
    /// Create I/O submission queue: [`CreateSubmissionQueue`](super::CreateSubmissionQueue). [base 5.5]
    pub const CREATE_SUBMISSION_QUEUE: u8 = 0x01;
    /// Get log page: [`GetLogPage`](super::GetLogPage). [base 5.16]
    pub const GET_LOG_PAGE: u8 = 0x02;
    /// Delete I/O completion queue. [base 5.6]
    pub const DELETE_COMPLETION_QUEUE: u8 = 0x04;
    /// Create I/O completion queue: [`CreateCompletionQueue`](super::CreateCompletionQueue). [base 5.4]
    pub const CREATE_COMPLETION_QUEUE: u8 = 0x05;
    /// Identify: [`identify`](crate::identify). [base 5.17]
    pub const IDENTIFY: u8 = 0x06;
    /// Abort: [`Abort`](super::Abort). [base 5.1]
    pub const ABORT: u8 = 0x08;
    /// Set features: [`Feature`](super::Feature). [base 5.27]
    pub const SET_FEATURES: u8 = 0x09;
    /// Get features: [`Feature`](super::Feature). [base 5.15]
    pub const GET_FEATURES: u8 = 0x0a;
    /// Asynchronous event request. [base 5.2]
    pub const ASYNCHRONOUS_EVENT_REQUEST: u8 = 0x0c;
    /// Keep alive. [base 2.2 3.9]
    pub const KEEP_ALIVE: u8 = 0x18;
    /// Doorbell buffer config. [base 5.8]
    pub const DOORBELL_BUFFER_CONFIG: u8 = 0x7c;
    /// Load program: [`LoadProgram`](crate::programs::LoadProgram).
    pub const LOAD_PROGRAM: u8 = 0x85;
    /// Program activation management: [`ProgramActivation`](crate::programs::ProgramActivation).
    pub const PROGRAM_ACTIVATION: u8 = 0x88;
    /// Memory range set management: [`MemoryRangeSets`](crate::programs::MemoryRangeSets).
    pub const MEMORY_RANGE_SETS: u8 = 0x89;
}

/// Opcodes of the NVM command set. [NVM figure 16]
pub mod nvm {
    /// Flush. [base 7.1]
    pub const FLUSH: u8 = 0x00;
    /// Write: [`Blocks`](super::Blocks). [NVM 3.2.6]
    pub const WRITE: u8 = 0x01;
    /// Read: [`Blocks`](super::Blocks). [NVM 3.2.4]
    pub const READ: u8 = 0x02;
    /// Compare: [`Blocks`](super::Blocks). [NVM 3.2.1]
    pub const COMPARE: u8 = 0x05;
    /// Write zeroes: [`Blocks`](super::Blocks). [NVM 3.2.8]
    pub const WRITE_ZEROES: u8 = 0x08;
    /// Dataset management: [`Datasets`](super::Datasets). [NVM 3.2.3]
    pub const DATASET_MANAGEMENT: u8 = 0x09;
    /// Copy: [`BlocksCopy`](super::BlocksCopy). [NVM 1.0c 3.2.2]
    pub const COPY: u8 = 0x19;
}

/// Numbers of features. [base 5.27.1]
pub mod feature {
    /// Arbitration between submission queues. [base 5.27.1.1]
    pub const ARBITRATION: u8 = 0x01;
    /// Power management. [base 5.27.1.2]
    pub const POWER_MANAGEMENT: u8 = 0x02;
    /// Temperature threshold, in Kelvin. [base 5.27.1.3]
    pub const TEMPERATURE_THRESHOLD: u8 = 0x04;
    /// Error recovery. [NVM 4.1.3]
    pub const ERROR_RECOVERY: u8 = 0x05;
    /// Volatile write cache: bit 0 is set if it is on. [base 5.27.1.4]
    pub const VOLATILE_WRITE_CACHE: u8 = 0x06;
    /// Number of queues: [`QueueCounts`](super::QueueCounts). [base 5.27.1.5]
    pub const NUMBER_OF_QUEUES: u8 = 0x07;
    /// Interrupt coalescing. [base 5.27.1.6]
    pub const INTERRUPT_COALESCING: u8 = 0x08;
    /// Configuration of an interrupt vector. [base 5.27.1.7]
    pub const INTERRUPT_VECTOR: u8 = 0x09;
    /// Write atomicity. [NVM 4.1.3]
    pub const WRITE_ATOMICITY: u8 = 0x0a;
    /// Asynchronous events to report. [base 5.27.1.8]
    pub const ASYNCHRONOUS_EVENTS: u8 = 0x0b;
    /// Timestamp. [base 2.2 5.1.25.1.7]
    pub const TIMESTAMP: u8 = 0x0e;
    /// Keep alive timer, in milliseconds; 0: none. [base 2.2 5.1.25.1.8]
    pub const KEEP_ALIVE: u8 = 0x0f;
    /// Host behavior support. [base 5.27.1.18]
    pub const HOST_BEHAVIOR: u8 = 0x16;
    /// I/O command set profile: the selected combination of command sets. [base 2.2 5.1.25.1.17]
    pub const COMMAND_SETS: u8 = 0x19;
    /// Host identifier, of 8 or 16 bytes. [base 2.1 5.1.25.1.28]
    pub const HOST_IDENTIFIER: u8 = 0x81;
}

/// Numbers of log pages. [base 5.16.1]
pub mod log {
    /// Supported log pages. [base 2.2 5.1.12.1.1]
    pub const SUPPORTED: u8 = 0x00;
    /// Error information. [base 5.16.1.2]
    pub const ERRORS: u8 = 0x01;
    /// SMART, health information. [base 5.16.1.3]
    pub const HEALTH: u8 = 0x02;
    /// Firmware slots. [base 5.16.1.4]
    pub const FIRMWARE: u8 = 0x03;
    /// Numbers of namespaces that changed. [base 5.16.1.5]
    pub const CHANGED_NAMESPACES: u8 = 0x04;
    /// Commands supported and effects. [base 5.16.1.6]
    pub const EFFECTS: u8 = 0x05;
    /// Feature identifiers supported and effects. [base 2.2 5.1.12.1.18]
    pub const FEATURES: u8 = 0x12;
    /// Programs of a namespace, each a [`Descriptor`](crate::programs::Descriptor). [base 2.2 figure 31]
    pub const PROGRAMS: u8 = 0x82;
    /// Types of programs that can be loaded. [base 2.2 figure 31]
    pub const PROGRAM_TYPES: u8 = 0x83;
}

/// The namespace identifier that means all namespaces. [base 3.2.1.2]
pub const ALL_NAMESPACES: u32 = u32::MAX;

/// The location of a command's data: the data pointer, and PSDT, which gives its kind. [base 4.1]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataPointer {
    /// Physical region pages: the first page, and the second or the list of the others. Zeros if there are no data. [base 4.1.1]
    Prp(u64, u64),
    /// The first descriptor of a scatter gather list. [base 4.1.2]
    Sgl(Descriptor),
    /// The first descriptor of a scatter gather list, with metadata by a scatter gather list too.
    SglWithMetadata(Descriptor),
    /// The reserved value of PSDT.
    Reserved([u8; 16]),
}

impl Default for DataPointer {
    fn default() -> DataPointer {
        DataPointer::Prp(0, 0)
    }
}

/// A command. [base figure 87]
///
/// ```
/// use dcs_nvme::command::{Blocks, Command, nvm};
///
/// let blocks = Blocks { first: 8, count: 4, durable: false };
/// let read = Command { opcode: nvm::READ, cid: 7, namespace: 1, words: blocks.words(), ..Command::default() };
/// let entry = read.bytes();
/// assert_eq!(Command::from_bytes(&entry), read);
/// assert_eq!(Blocks::from_words(&read.words), blocks);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Command {
    /// Opcode (OPC).
    pub opcode: u8,
    /// Half of a fused operation that it is (FUSE), of 2 bits: 0 for none.
    pub fused: u8,
    /// Command identifier, which its completion repeats (CID).
    pub cid: u16,
    /// Namespace (NSID).
    pub namespace: u32,
    /// Data of the command (DPTR, PSDT).
    pub data: DataPointer,
    /// Double words 10 to 15, with a meaning specific to the command.
    pub words: [u32; 6],
}

impl Command {
    /// Decodes an entry.
    pub fn from_bytes(bytes: &[u8; SIZE]) -> Command {
        let (flags, pointer): (u8, [u8; 16]) = (bytes[1], array_at(bytes, 24));
        Command {
            opcode: bytes[0],
            fused: flags & 3,
            cid: u16_at(bytes, 2),
            namespace: u32_at(bytes, 4),
            data: match flags >> 6 {
                0 => DataPointer::Prp(u64_at(&pointer, 0), u64_at(&pointer, 8)),
                1 => DataPointer::Sgl(Descriptor::from_bytes(&pointer)),
                2 => DataPointer::SglWithMetadata(Descriptor::from_bytes(&pointer)),
                _ => DataPointer::Reserved(pointer),
            },
            words: core::array::from_fn(|i| u32_at(bytes, 40 + 4 * i)),
        }
    }

    /// Encodes it as bytes.
    pub fn bytes(&self) -> [u8; SIZE] {
        let mut bytes = [0; SIZE];
        let (kind, pointer) = match self.data {
            DataPointer::Prp(first, second) => {
                (0, (u128::from(second) << 64 | u128::from(first)).to_le_bytes())
            }
            DataPointer::Sgl(descriptor) => (1, descriptor.bytes()),
            DataPointer::SglWithMetadata(descriptor) => (2, descriptor.bytes()),
            DataPointer::Reserved(pointer) => (3, pointer),
        };
        bytes[0] = self.opcode;
        bytes[1] = kind << 6 | self.fused & 3;
        put(&mut bytes, 2, &self.cid.to_le_bytes());
        put(&mut bytes, 4, &self.namespace.to_le_bytes());
        put(&mut bytes, 24, &pointer);
        for (i, word) in self.words.iter().enumerate() {
            put(&mut bytes, 40 + 4 * i, &word.to_le_bytes());
        }
        bytes
    }
}

/// Splits a double word into its halves: the lower, then the upper.
fn halves(word: u32) -> (u16, u16) {
    (word as u16, (word >> 16) as u16)
}

fn word((lower, upper): (u16, u16)) -> u32 {
    u32::from(upper) << 16 | u32::from(lower)
}

/// Encodes a count in 16 bits, as one less. Excess bits are cut off.
fn one_less(count: u32) -> u16 {
    count.saturating_sub(1) as u16
}

/// The blocks of a read, a write or a write zeroes. [NVM 3.2.4, 3.2.6, 3.2.8]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocks {
    /// First logical block (SLBA).
    pub first: u64,
    /// Number of logical blocks, 1 to 65,536. NLB is one less.
    pub count: u32,
    /// Set to complete only when the blocks are on the medium (FUA).
    pub durable: bool,
}

impl Blocks {
    const FORCE_UNIT_ACCESS: u32 = 1 << 30;

    /// Bit of double word 12 by which a write zeroes permits deallocating the blocks (DEAC). [NVM 3.2.8]
    pub const DEALLOCATE: u32 = 1 << 25;

    /// Decodes a command's double words.
    pub fn from_words(words: &[u32; 6]) -> Blocks {
        Blocks {
            first: u64::from(words[1]) << 32 | u64::from(words[0]),
            count: u32::from(words[2] as u16) + 1,
            durable: words[2] & Blocks::FORCE_UNIT_ACCESS != 0,
        }
    }

    /// Encodes it as a command's double words.
    pub fn words(self) -> [u32; 6] {
        let flags = if self.durable { Blocks::FORCE_UNIT_ACCESS } else { 0 };
        let count = u32::from(one_less(self.count));
        [self.first as u32, (self.first >> 32) as u32, count | flags, 0, 0, 0]
    }
}

/// A copy into logical blocks, which concatenates its sources there. [NVM 1.1 figures 33 and 34]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlocksCopy {
    /// First logical block of the destination (SDLBA).
    pub target: u64,
    /// Number of sources, 1 to 256, whose descriptors are the data. NR is one less.
    pub sources: u16,
    /// Form of the descriptors (DESFMT): `FORM_*` of [`local_memory`](crate::local_memory).
    pub form: u8,
    /// Set to complete only when the blocks are on the medium (FUA).
    pub durable: bool,
}

impl BlocksCopy {
    /// Decodes a command's double words.
    pub fn from_words(words: &[u32; 6]) -> BlocksCopy {
        BlocksCopy {
            target: u64::from(words[1]) << 32 | u64::from(words[0]),
            sources: u16::from(words[2] as u8) + 1,
            form: (words[2] >> 8 & 0xf) as u8,
            durable: words[2] & Blocks::FORCE_UNIT_ACCESS != 0,
        }
    }

    /// Encodes it as a command's double words.
    pub fn words(self) -> [u32; 6] {
        let flags = if self.durable { Blocks::FORCE_UNIT_ACCESS } else { 0 };
        let sources = u32::from(one_less(self.sources.into()) as u8);
        let word = sources | u32::from(self.form & 0xf) << 8 | flags;
        [self.target as u32, (self.target >> 32) as u32, word, 0, 0, 0]
    }
}

/// The ranges of a dataset management command, and the attributes to apply to them. [NVM 3.2.3]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datasets {
    /// Number of ranges in the data, 1 to 256. NR is one less.
    pub ranges: u16,
    /// Set to deallocate them (AD).
    pub deallocate: bool,
}

impl Datasets {
    const DEALLOCATE: u32 = 1 << 2;

    /// Decodes a command's double words.
    pub fn from_words(words: &[u32; 6]) -> Datasets {
        Datasets { ranges: u16::from(words[0] as u8) + 1, deallocate: words[1] & Datasets::DEALLOCATE != 0 }
    }

    /// Encodes it as a command's double words.
    pub fn words(self) -> [u32; 6] {
        let attributes = if self.deallocate { Datasets::DEALLOCATE } else { 0 };
        [u32::from(one_less(self.ranges.into()) as u8), attributes, 0, 0, 0, 0]
    }
}

/// A range of a dataset management command. [NVM figure 39]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Range {
    /// First logical block.
    pub first: u64,
    /// Number of logical blocks.
    pub count: u32,
}

impl Range {
    /// Size of a range in bytes.
    pub const SIZE: usize = 16;

    /// Decodes a range. Bytes past the end of `bytes` count as zero.
    pub fn from_bytes(bytes: &[u8]) -> Range {
        Range { first: u64_at(bytes, 8), count: u32_at(bytes, 4) }
    }

    /// Encodes it as bytes.
    pub fn bytes(self) -> [u8; Range::SIZE] {
        let mut bytes = [0; Range::SIZE];
        put(&mut bytes, 4, &self.count.to_le_bytes());
        put(&mut bytes, 8, &self.first.to_le_bytes());
        bytes
    }
}

/// A completion queue to create. [base 5.4]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreateCompletionQueue {
    /// Queue identifier (QID).
    pub queue: u16,
    /// Number of entries, 1 to 65,536, of which 1 is too few. QSIZE is one less.
    pub entries: u32,
    /// Set if the queue is contiguous in memory (PC).
    pub contiguous: bool,
    /// Set if completions raise interrupts (IEN).
    pub interrupts: bool,
    /// Interrupt vector (IV).
    pub vector: u16,
}

impl CreateCompletionQueue {
    /// Decodes a command's double words.
    pub fn from_words(words: &[u32; 6]) -> CreateCompletionQueue {
        let ((queue, size), (flags, vector)) = (halves(words[0]), halves(words[1]));
        CreateCompletionQueue {
            queue,
            entries: u32::from(size) + 1,
            contiguous: flags & 1 != 0,
            interrupts: flags & 2 != 0,
            vector,
        }
    }

    /// Encodes it as a command's double words.
    pub fn words(self) -> [u32; 6] {
        let flags = u16::from(self.contiguous) | u16::from(self.interrupts) << 1;
        [word((self.queue, one_less(self.entries))), word((flags, self.vector)), 0, 0, 0, 0]
    }
}

/// A submission queue to create. [base 5.5]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreateSubmissionQueue {
    /// Queue identifier (QID).
    pub queue: u16,
    /// Number of entries, 1 to 65,536, of which 1 is too few. QSIZE is one less.
    pub entries: u32,
    /// Set if the queue is contiguous in memory (PC).
    pub contiguous: bool,
    /// Priority of its commands with weighted arbitration (QPRIO), of 2 bits: 0 is urgent, 3 is low.
    pub priority: u8,
    /// Completion queue for its commands (CQID).
    pub completion_queue: u16,
}

impl CreateSubmissionQueue {
    /// Decodes a command's double words.
    pub fn from_words(words: &[u32; 6]) -> CreateSubmissionQueue {
        let ((queue, size), (flags, completion_queue)) = (halves(words[0]), halves(words[1]));
        CreateSubmissionQueue {
            queue,
            entries: u32::from(size) + 1,
            contiguous: flags & 1 != 0,
            priority: (flags >> 1 & 3) as u8,
            completion_queue,
        }
    }

    /// Encodes it as a command's double words.
    pub fn words(self) -> [u32; 6] {
        let flags = u16::from(self.contiguous) | u16::from(self.priority & 3) << 1;
        [word((self.queue, one_less(self.entries))), word((flags, self.completion_queue)), 0, 0, 0, 0]
    }
}

/// A command to abort. [base 5.1]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abort {
    /// Submission queue that the command came from (SQID).
    pub submission_queue: u16,
    /// Command identifier (CID).
    pub cid: u16,
}

impl Abort {
    /// Decodes a command's double words.
    pub fn from_words(words: &[u32; 6]) -> Abort {
        let (submission_queue, cid) = halves(words[0]);
        Abort { submission_queue, cid }
    }

    /// Encodes it as a command's double words.
    pub fn words(self) -> [u32; 6] {
        [word((self.submission_queue, self.cid)), 0, 0, 0, 0, 0]
    }
}

/// A request for a part of a log page. [base 5.16]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetLogPage {
    /// Log page identifier (LID).
    pub page: u8,
    /// Set to retain the event that pointed to the page (RAE).
    pub retain_event: bool,
    /// Length in bytes, a multiple of four, at least four. NUMD counts double words, and is one less.
    pub bytes: u64,
    /// First byte (LPO).
    pub offset: u64,
}

impl GetLogPage {
    const RETAIN: u32 = 1 << 15;

    /// Decodes a command's double words.
    pub fn from_words(words: &[u32; 6]) -> GetLogPage {
        let (first, second) = (words[0], words[1]);
        GetLogPage {
            page: first as u8,
            retain_event: first & GetLogPage::RETAIN != 0,
            bytes: (u64::from(word((halves(first).1, halves(second).0))) + 1) * 4,
            offset: u64::from(words[3]) << 32 | u64::from(words[2]),
        }
    }

    /// Encodes it as a command's double words.
    pub fn words(self) -> [u32; 6] {
        let (lower, upper) = halves((self.bytes / 4).saturating_sub(1) as u32);
        let retain = if self.retain_event { GetLogPage::RETAIN } else { 0 };
        let first = u32::from(lower) << 16 | retain | u32::from(self.page);
        [first, upper.into(), self.offset as u32, (self.offset >> 32) as u32, 0, 0]
    }
}

/// A feature to read (get features) or set (set features). [base 5.15, 5.27]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Feature {
    /// Feature identifier (FID); see [`feature`].
    pub number: u8,
    /// Kind of value to read (SEL), of 3 bits: 0 current, 1 default, 2 saved, 3 capabilities.
    pub select: u8,
    /// Set if the value must survive a reset (SV).
    pub save: bool,
    /// Value to set: double word 11.
    pub value: u32,
}

impl Feature {
    const SAVE: u32 = 1 << 31;

    /// Decodes a command's double words.
    pub fn from_words(words: &[u32; 6]) -> Feature {
        Feature {
            number: words[0] as u8,
            select: (words[0] >> 8 & 7) as u8,
            save: words[0] & Feature::SAVE != 0,
            value: words[1],
        }
    }

    /// Encodes it as a command's double words.
    pub fn words(self) -> [u32; 6] {
        let save = if self.save { Feature::SAVE } else { 0 };
        [save | u32::from(self.select & 7) << 8 | u32::from(self.number), self.value, 0, 0, 0, 0]
    }
}

/// Numbers of I/O queues of each kind, as requested by the host or granted by the controller: the value and the result of a feature. [base
/// 5.27.1.5]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueCounts {
    /// Number of submission queues, 1 to 65,536, of which 65,536 is too many. NSQR and NSQA are one less.
    pub submissions: u32,
    /// Number of completion queues, 1 to 65,536, of which 65,536 is too many. NCQR and NCQA are one less.
    pub completions: u32,
}

impl QueueCounts {
    /// Decodes a value.
    pub fn from_bits(bits: u32) -> QueueCounts {
        let (submissions, completions) = halves(bits);
        QueueCounts { submissions: u32::from(submissions) + 1, completions: u32::from(completions) + 1 }
    }

    /// Encodes the value.
    pub fn bits(self) -> u32 {
        word((one_less(self.submissions), one_less(self.completions)))
    }
}
