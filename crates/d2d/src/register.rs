//! The registers of BAR0, with their offsets. Registers are 64 bits wide, little-endian.
//!
//! Parsing a register never fails: values of the other side are parsed as they are, and checked before use. Unnamed bits are dropped;
//! values too large for their field are truncated. docs/d2d.md has the same as tables.

use crate::bits::{field, place};

/// Global: [`Identity`].
pub const IDENTITY: u64 = 0x00;
/// Global: [`Capabilities`].
pub const CAPABILITIES: u64 = 0x08;
/// Global: [`Offsets`].
pub const OFFSETS: u64 = 0x10;
/// Global: [`TaskMemory`].
pub const TASK_MEMORY: u64 = 0x18;
/// Global: [`Medium`].
pub const MEDIUM: u64 = 0x20;
/// Global: blocks of the medium; 0 in a NIC.
pub const BLOCKS: u64 = 0x28;
/// Global, written by the driver: the address at which senders reach the aperture.
pub const APERTURE_BASE: u64 = 0x30;
/// Global: [`Event`]. Writing its stream acknowledges it.
pub const EVENT: u64 = 0x38;
/// The first stream's registers.
pub const STREAMS: u64 = 0x1000;
/// Bytes from one stream's registers to the next one's; of the UOE's registers too.
pub const STRIDE: u64 = 128;

/// Stream: [`TxAddress`]. [Table I]
pub const TX_ADDRESS: u64 = 0x00;
/// Stream, read only: the address to which a sender writes this stream's data. [Table I]
pub const RX_ADDRESS: u64 = 0x08;
/// Stream: [`Rate`]. [Table I]
pub const RATE: u64 = 0x10;
/// Stream: [`BaseCredits`]. [Table I]
pub const BASE_CREDITS: u64 = 0x18;
/// Stream: bytes of the stream; 0: all. A value written during a run ends the stream there, or at its position if that is later. [Table I]
pub const BYTE_COUNT: u64 = 0x20;
/// The byte count that, written during a run, ends the stream at its position; a NIC's sender after what it has received.
pub const END_HERE: u64 = u64::MAX;
/// Stream: the address to which the receiver writes grants; 0: none. [Table I]
pub const CREDIT_ADDRESS: u64 = 0x28;
/// Stream: [`Grant`]: in a sender written by the receiver, in a receiver its last grant.
pub const GRANT: u64 = 0x30;
/// Stream, read only: [`Status`].
pub const STATUS: u64 = 0x38;
/// Stream, read only: bytes of this run that a sender has written, or a receiver has received.
pub const MOVED: u64 = 0x40;
/// Stream, read only: bytes of this run that left the receiver's queue; in a sender as far as grants told.
pub const TAKEN: u64 = 0x48;
/// Stream: [`TaskList`].
pub const TASK_LIST: u64 = 0x50;
/// Stream: [`Times`].
pub const TIMES: u64 = 0x58;
/// Stream: [`Control`].
pub const CONTROL: u64 = 0x60;
/// Stream, read only: [`Dropped`].
pub const DROPPED: u64 = 0x68;
/// Stream, read only: packets that a NIC has sent or taken in this run.
pub const PACKETS: u64 = 0x70;
/// Stream, read only: RTP sequence numbers that were missing where a NIC received.
pub const LOST: u64 = 0x78;

/// The kind of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An SSD, which reads and writes blocks: 1.
    Ssd,
    /// A NIC, which sends and receives frames: 2.
    Nic,
}

/// Identity and version of a D2D function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// [`Identity::MAGIC`], bits 31:0.
    pub magic: u32,
    /// Version of this layout, bits 47:32: 1.
    pub version: u16,
    /// Kind, bits 55:48. 1: an SSD, 2: a NIC.
    pub kind: u8,
}

impl Identity {
    /// "D2D" and a zero, as bytes in memory.
    pub const MAGIC: u32 = 0x0044_3244;
    /// The version that this crate implements.
    pub const VERSION: u16 = 1;

    /// Returns the identity of a function of this kind.
    pub const fn new(kind: Kind) -> Identity {
        let kind = match kind {
            Kind::Ssd => 1,
            Kind::Nic => 2,
        };
        Identity { magic: Identity::MAGIC, version: Identity::VERSION, kind }
    }

    /// Returns the function's kind; `None` if it is unknown to this version.
    pub const fn known(self) -> Option<Kind> {
        if self.magic != Identity::MAGIC || self.version != Identity::VERSION {
            return None;
        }
        match self.kind {
            1 => Some(Kind::Ssd),
            2 => Some(Kind::Nic),
            _ => None,
        }
    }

    /// Parses a register's value.
    pub const fn from_bits(bits: u64) -> Identity {
        Identity { magic: bits as u32, version: field(bits, 32, 16) as u16, kind: field(bits, 48, 8) as u8 }
    }

    /// Returns the register's value.
    pub const fn bits(self) -> u64 {
        self.magic as u64 | place(self.version as u64, 32, 16) | place(self.kind as u64, 48, 8)
    }
}

/// The number of streams, and the size of their places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Streams, bits 15:0.
    pub streams: u16,
    /// Places in the aperture that a stream's runs use in turn, bits 23:16.
    pub places: u8,
    /// Credits of one such place, bits 63:32: data wrap there.
    pub aperture: u32,
}

impl Capabilities {
    /// Parses a register's value.
    pub const fn from_bits(bits: u64) -> Capabilities {
        Capabilities {
            streams: bits as u16,
            places: field(bits, 16, 8) as u8,
            aperture: field(bits, 32, 32) as u32,
        }
    }

    /// Returns the register's value.
    pub const fn bits(self) -> u64 {
        self.streams as u64 | place(self.places as u64, 16, 8) | place(self.aperture as u64, 32, 32)
    }
}

/// Offsets of the streams' registers in BAR0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offsets {
    /// Offset of the first stream's registers, bits 31:0.
    pub streams: u32,
    /// Offset of the first stream's UOE registers, bits 63:32; 0: there are none.
    pub uoe: u32,
}

impl Offsets {
    /// Parses a register's value.
    pub const fn from_bits(bits: u64) -> Offsets {
        Offsets { streams: bits as u32, uoe: field(bits, 32, 32) as u32 }
    }

    /// Returns the register's value.
    pub const fn bits(self) -> u64 {
        self.streams as u64 | place(self.uoe as u64, 32, 32)
    }
}

/// Offset and size of the lists of tasks in BAR0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskMemory {
    /// Offset of the first stream's list, bits 31:0; 0: there are none.
    pub offset: u32,
    /// Tasks of each list, bits 63:32.
    pub tasks: u32,
}

impl TaskMemory {
    /// Parses a register's value.
    pub const fn from_bits(bits: u64) -> TaskMemory {
        TaskMemory { offset: bits as u32, tasks: field(bits, 32, 32) as u32 }
    }

    /// Returns the register's value.
    pub const fn bits(self) -> u64 {
        self.offset as u64 | place(self.tasks as u64, 32, 32)
    }
}

/// The unit of the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Medium {
    /// Bytes of a block as a power of two, bits 7:0; 0 in a NIC.
    pub block_shift: u8,
    /// Largest IPv4 packet in bytes, bits 31:16; 0 in an SSD.
    pub mtu: u16,
}

impl Medium {
    /// Parses a register's value.
    pub const fn from_bits(bits: u64) -> Medium {
        Medium { block_shift: bits as u8, mtu: field(bits, 16, 16) as u16 }
    }

    /// Returns the register's value.
    pub const fn bits(self) -> u64 {
        self.block_shift as u64 | place(self.mtu as u64, 16, 16)
    }
}

/// The ended stream that has waited longest for an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Number of the stream, bits 15:0; `None` if bit 16 is 0.
    pub stream: Option<u16>,
}

impl Event {
    /// Parses a register's value.
    pub const fn from_bits(bits: u64) -> Event {
        Event { stream: if bits >> 16 & 1 != 0 { Some(bits as u16) } else { None } }
    }

    /// Returns the register's value.
    pub const fn bits(self) -> u64 {
        match self.stream {
            Some(stream) => 1 << 16 | stream as u64,
            None => 0,
        }
    }
}

/// The address to which a sender writes, and the commands to a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TxAddress {
    /// Rx Address of the receiver, bits 63:3. 0: the stream receives.
    pub address: u64,
    /// Start a run, bit 0. Reads as 0.
    pub start: bool,
    /// Empty the queues, bit 1. Reads as 0.
    pub clear: bool,
    /// Pause, bit 2, as long as it is set.
    pub pause: bool,
}

impl TxAddress {
    /// Parses a register's value.
    pub const fn from_bits(bits: u64) -> TxAddress {
        TxAddress { address: bits & !7, start: bits & 1 != 0, clear: bits & 2 != 0, pause: bits & 4 != 0 }
    }

    /// Returns the register's value.
    pub const fn bits(self) -> u64 {
        self.address & !7 | self.start as u64 | (self.clear as u64) << 1 | (self.pause as u64) << 2
    }
}

/// The rate of a sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rate {
    /// Bytes per second, bits 39:0. 0: as fast as credits allow.
    pub bytes_per_second: u64,
    /// Microseconds of a slot, bits 63:40.
    pub granularity_us: u32,
}

impl Rate {
    /// Parses a register's value.
    pub const fn from_bits(bits: u64) -> Rate {
        Rate { bytes_per_second: field(bits, 0, 40), granularity_us: field(bits, 40, 24) as u32 }
    }

    /// Returns the register's value.
    pub const fn bits(self) -> u64 {
        place(self.bytes_per_second, 0, 40) | place(self.granularity_us as u64, 40, 24)
    }
}

/// Credits of 4 KiB that may be in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BaseCredits {
    /// Credits of this stream as a sender, bits 31:0: at most the receiver's Rx credits.
    pub tx: u32,
    /// Credits of this stream's Rx queue, bits 63:32. Read only.
    pub rx: u32,
}

impl BaseCredits {
    /// Parses a register's value.
    pub const fn from_bits(bits: u64) -> BaseCredits {
        BaseCredits { tx: bits as u32, rx: field(bits, 32, 32) as u32 }
    }

    /// Returns the register's value.
    pub const fn bits(self) -> u64 {
        self.tx as u64 | place(self.rx as u64, 32, 32)
    }
}

/// The state that a receiver reports to its sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Grant {
    /// Credits that have left the Rx queue since the run began, bits 31:0, modulo 2^32. The sender may be its
    /// base credits ahead.
    pub taken: u32,
    /// Epoch of the run, bits 47:32.
    pub epoch: u16,
    /// True if the receiver has failed, bit 48.
    pub failed: bool,
    /// True if the receiver is paused, bit 49.
    pub paused: bool,
}

impl Grant {
    /// Parses a register's value.
    pub const fn from_bits(bits: u64) -> Grant {
        Grant {
            taken: bits as u32,
            epoch: field(bits, 32, 16) as u16,
            failed: field(bits, 48, 1) != 0,
            paused: field(bits, 49, 1) != 0,
        }
    }

    /// Returns the register's value.
    pub const fn bits(self) -> u64 {
        self.taken as u64
            | place(self.epoch as u64, 32, 16)
            | place(self.failed as u64, 48, 1)
            | place(self.paused as u64, 49, 1)
    }
}

/// The states of senders and receivers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// Not started: 0.
    #[default]
    Init,
    /// A sender reads its tasks: 1.
    Parse,
    /// A sender writes a chunk, a receiver waits for its block to be stored: 2.
    Send,
    /// A sender waits for its next slot: 3.
    Wait,
    /// A sender has written everything, and waits until the receiver has taken it: 4.
    Check,
    /// Finished: 5.
    Idle,
    /// A receiver waits for a whole packet or block: 6.
    Fetch,
    /// A receiver has a packet or block that waits for its turn: 7.
    Calc,
    /// The run ended with an error: 8.
    Failed,
}

impl State {
    const ALL: [State; 9] = [
        State::Init,
        State::Parse,
        State::Send,
        State::Wait,
        State::Check,
        State::Idle,
        State::Fetch,
        State::Calc,
        State::Failed,
    ];

    /// Returns true between a start and the run's end.
    pub const fn is_running(self) -> bool {
        !matches!(self, State::Init | State::Idle | State::Failed)
    }
}

/// The role of a stream in its run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// No role, before the first start: 0.
    #[default]
    None,
    /// The stream writes data to another function: 1.
    Sender,
    /// Another function writes data to the stream: 2.
    Receiver,
}

/// The reason why a run failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Error {
    #[error("a rate needs a granularity")]
    Rate = 1,
    #[error(
        "the base credits are none, or more than half of the receiver's aperture, or too few for a packet"
    )]
    Credits = 2,
    #[error("the task list is empty, names blocks beyond the medium, or is shorter than the stream")]
    Tasks = 3,
    #[error("the UOE's registers do not make a packet of this NIC")]
    Template = 4,
    #[error("the receiver's run was used before: restart the receiver, and use its new epoch")]
    Epoch = 5,
    #[error("the medium could not be read")]
    Read = 6,
    #[error("the medium could not be written")]
    Store = 7,
    #[error("a write to the other function could not be delivered")]
    Bus = 8,
    #[error("the NIC has no link")]
    Link = 9,
    #[error("the receiver failed")]
    Peer = 10,
    #[error("the receiver was restarted")]
    Restarted = 11,
    #[error("the receiver returned credits that were never used")]
    Grant = 12,
    #[error("data are missing: a write was lost on the way")]
    Sequence = 13,
    #[error("the sender wrote more than it had credits for, or than the stream has")]
    Overrun = 14,
    #[error("nothing moved for as long as the stall limit")]
    Stalled = 15,
    #[error("the address is not a multiple of 4 KiB, or goes past the end of memory")]
    Address = 16,
    #[error("another stream receives the same packets")]
    Duplicate = 17,
}

impl Error {
    const ALL: [Error; 17] = [
        Error::Rate,
        Error::Credits,
        Error::Tasks,
        Error::Template,
        Error::Epoch,
        Error::Read,
        Error::Store,
        Error::Bus,
        Error::Link,
        Error::Peer,
        Error::Restarted,
        Error::Grant,
        Error::Sequence,
        Error::Overrun,
        Error::Stalled,
        Error::Address,
        Error::Duplicate,
    ];
}

/// The status of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// State, bits 3:0. An unknown number reads as Init.
    pub state: State,
    /// Role, bits 5:4.
    pub role: Role,
    /// True if it is paused, bit 6.
    pub paused: bool,
    /// True if the sender waits for credits, bit 7.
    pub starved: bool,
    /// Error, bits 15:8; 0: none.
    pub error: Option<Error>,
    /// Epoch of the receiver's run, bits 31:16, in a sender too.
    pub epoch: u16,
}

impl Status {
    /// Parses a register's value.
    pub const fn from_bits(bits: u64) -> Status {
        let (state, error) = (field(bits, 0, 4) as usize, field(bits, 8, 8) as usize);
        Status {
            state: if state < State::ALL.len() { State::ALL[state] } else { State::Init },
            role: match field(bits, 4, 2) {
                1 => Role::Sender,
                2 => Role::Receiver,
                _ => Role::None,
            },
            paused: field(bits, 6, 1) != 0,
            starved: field(bits, 7, 1) != 0,
            error: if error > 0 && error <= Error::ALL.len() { Some(Error::ALL[error - 1]) } else { None },
            epoch: field(bits, 16, 16) as u16,
        }
    }

    /// Returns the register's value.
    pub const fn bits(self) -> u64 {
        let error = match self.error {
            Some(error) => error as u64,
            None => 0,
        };
        self.state as u64
            | place(self.role as u64, 4, 2)
            | place(self.paused as u64, 6, 1)
            | place(self.starved as u64, 7, 1)
            | place(error, 8, 8)
            | place(self.epoch as u64, 16, 16)
    }
}

/// The list of an SSD's tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskList {
    /// Tasks in the list, bits 31:0.
    pub tail: u32,
    /// Tasks that have begun, bits 63:32. Read only.
    pub head: u32,
}

impl TaskList {
    /// Parses a register's value.
    pub const fn from_bits(bits: u64) -> TaskList {
        TaskList { tail: bits as u32, head: field(bits, 32, 32) as u32 }
    }

    /// Returns the register's value.
    pub const fn bits(self) -> u64 {
        self.tail as u64 | place(self.head as u64, 32, 32)
    }
}

/// Time limits of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// Microseconds without progress after which a run fails, bits 31:0. 0: a second for a sender, no limit
    /// for a receiver.
    pub stall_us: u32,
    /// Microseconds after which a receiver repeats its grant, bits 63:32. 0: 100 ms; less than 1 ms counts as
    /// 1 ms.
    pub refresh_us: u32,
}

impl Times {
    /// The stall limit of a sender that names none.
    pub const STALL_US: u32 = 1_000_000;
    /// The refresh interval of a receiver that names none.
    pub const REFRESH_US: u32 = 100_000;
    /// The shortest refresh interval: below it, a function would do little else than repeat grants.
    pub const REFRESH_MIN_US: u32 = 1_000;

    /// Parses a register's value.
    pub const fn from_bits(bits: u64) -> Times {
        Times { stall_us: bits as u32, refresh_us: field(bits, 32, 32) as u32 }
    }

    /// Returns the register's value.
    pub const fn bits(self) -> u64 {
        self.stall_us as u64 | place(self.refresh_us as u64, 32, 32)
    }
}

/// A sender's knowledge of its receiver, and the interrupts that the driver wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Control {
    /// The receiver's epoch, bits 15:0. For senders.
    pub epoch: u16,
    /// Interrupt when the run ends, bit 16.
    pub interrupt_at_end: bool,
    /// Interrupt when a receiver without a Tx Credit Update Address has a grant, bit 17.
    pub interrupt_at_grant: bool,
    /// Credits after which the receiver's aperture wraps, bits 63:32. For senders.
    pub aperture: u32,
}

impl Control {
    /// Parses a register's value.
    pub const fn from_bits(bits: u64) -> Control {
        Control {
            epoch: bits as u16,
            interrupt_at_end: field(bits, 16, 1) != 0,
            interrupt_at_grant: field(bits, 17, 1) != 0,
            aperture: field(bits, 32, 32) as u32,
        }
    }

    /// Returns the register's value.
    pub const fn bits(self) -> u64 {
        self.epoch as u64
            | place(self.interrupt_at_end as u64, 16, 1)
            | place(self.interrupt_at_grant as u64, 17, 1)
            | place(self.aperture as u64, 32, 32)
    }
}

/// Writes and packets that a stream did not use. Counts stop at their largest value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// Data writes and grants of other runs, and repeated ones, bits 31:0.
    pub late: u32,
    /// Packets that a NIC received for the stream and could not take, bits 63:32.
    pub packets: u32,
}

impl Dropped {
    /// Parses a register's value.
    pub const fn from_bits(bits: u64) -> Dropped {
        Dropped { late: bits as u32, packets: field(bits, 32, 32) as u32 }
    }

    /// Returns the register's value.
    pub const fn bits(self) -> u64 {
        self.late as u64 | place(self.packets as u64, 32, 32)
    }
}

/// One entry of a task list, 16 bytes: blocks that a sender reads, or that a receiver writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Task {
    /// First block, bytes 0 to 7.
    pub lba: u64,
    /// Blocks, bytes 8 to 11. Bytes 12 to 15 are reserved.
    pub blocks: u32,
}

impl Task {
    /// Bytes of a task.
    pub const SIZE: u64 = 16;

    /// Parses a task from two registers' values.
    pub const fn from_bits(bits: [u64; 2]) -> Task {
        Task { lba: bits[0], blocks: bits[1] as u32 }
    }

    /// Returns the two registers' values.
    pub const fn bits(self) -> [u64; 2] {
        [self.lba, self.blocks as u64]
    }
}
