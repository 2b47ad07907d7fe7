//! The engine's whole interface: events go in, actions come out.

use crate::transfer::TransferSpec;
use alloc::boxed::Box;
use alloc::sync::Arc;
use dcs_abi::entry::CompletionEntry;
use dcs_abi::operator::Operator;
use dcs_abi::result::{DigestSlot, ResultArea};
use dcs_abi::status::Status;

pub use dcs_abi::descriptor::EndpointRole;

/// Nanoseconds since a moment of the owner's choice. Never goes back.
pub type Nanos = u64;

/// A queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueId(pub u16);

/// A command inside the engine, from the fetch of its entry to its completion. Never reused for another
/// command while an owner may still hold it: the generation tells them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommandId {
    pub(crate) index: u16,
    pub(crate) generation: u32,
}

impl CommandId {
    /// The command of a slot, for a core that is not [`Engine`]: another generation for each command in it.
    pub fn new(slot: u16, generation: u32) -> CommandId {
        CommandId { index: slot, generation }
    }

    /// The slot of the command: below [`Config::commands`](crate::Config), unique among commands in flight.
    pub fn slot(self) -> usize {
        self.index as usize
    }
}

/// A device operation: a scoreboard row that was issued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperationId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl OperationId {
    /// Its number, for a device that carries 64 bits of context.
    pub fn to_bits(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    /// From [`OperationId::to_bits`]. Any number may be given: the engine ignores operations it does not
    /// know.
    pub fn from_bits(bits: u64) -> Self {
        OperationId { index: bits as u32, generation: (bits >> 32) as u32 }
    }

    /// The identifier so many issues of the same row later.
    #[inline]
    pub fn later(self, issues: u32) -> Self {
        OperationId { generation: self.generation.wrapping_add(issues), ..self }
    }

    /// The slot of the operation: below the size of the scoreboard, unique among operations in flight.
    pub fn slot(self) -> usize {
        self.index as usize
    }
}

/// A block buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId(pub u32);

impl BlockId {
    /// Its number, below [`Config::blocks`](crate::Config).
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// The reason of a failure: a status, and the errno behind it if there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The completion's status.
    pub status: Status,
    /// errno of the system call, or 0.
    pub errno: u32,
}

impl Failure {
    /// a failure without errno.
    pub fn new(status: Status) -> Failure {
        Failure { status, errno: 0 }
    }
}

/// The owner's findings when it bound a command's endpoints to devices and loaded its operators.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Binding {
    /// Source and destination have a path between them that needs no block (sendfile, splice). Used if the
    /// chain is empty.
    pub direct: bool,
    /// The destination says when it is flushed, and not before, whether it has kept what it took: it is
    /// flushed though the command does not have it made durable.
    pub flush: bool,
}

/// An event that the owner hands in.
#[derive(Debug)]
pub enum Event<'a> {
    /// The submission tail doorbell of a queue was written. Untrusted: a value out of range is ignored and
    /// counted.
    SubmissionDoorbell {
        /// The queue.
        queue: QueueId,
        /// The new tail.
        tail: u32,
    },
    /// The completion head doorbell of a queue was written. Untrusted.
    CompletionDoorbell {
        /// The queue.
        queue: QueueId,
        /// The new head.
        head: u32,
    },
    /// [`Action::FetchEntry`] is done: a copy of the entry. Those of one queue come in the order of their
    /// actions.
    Entry {
        /// The queue.
        queue: QueueId,
        /// The 64 bytes.
        bytes: &'a [u8; 64],
    },
    /// The end of [`Action::FetchDescriptor`], which must always end, as must [`Action::Bind`]: no timeout
    /// cuts them short. A copy of the descriptor, or `None` if it could not be read.
    Descriptor {
        /// Its command.
        command: CommandId,
        /// The bytes.
        bytes: Option<&'a [u8]>,
    },
    /// [`Action::Bind`] is done, or [`Action::Run`] went no further. On failure nothing is bound.
    Bound {
        /// Its command.
        command: CommandId,
        /// The paths found; or the stage that failed (with an operator's index), and why.
        binding: Result<Binding, (dcs_abi::status::Stage, u8, Failure)>,
    },
    /// [`Action::Run`] is done, or as much of it as could be: what was.
    Ran {
        /// Its command.
        command: CommandId,
        /// The part that was done.
        ran: &'a Ran,
    },
    /// [`Action::Issue`] is done, or failed, or was aborted.
    Done {
        /// The operation.
        operation: OperationId,
        /// Its outcome.
        outcome: Outcome,
    },
    /// A block that an [`Outcome::Moved`] with `held`, or an [`Outcome::FailedHeld`], left with a device is
    /// free again.
    Released {
        /// The block.
        block: BlockId,
    },
    /// A command is to be aborted, asked for beside the queue (as NVMe's admin command Abort, 08h): it takes
    /// no entry and no slot, so it works however full both are. Nothing happens where no such command is in
    /// flight.
    Abort {
        /// The queue.
        queue: QueueId,
        /// Its command identifier.
        cid: u16,
    },
    /// A queue pair is to go: its commands are aborted, then [`Action::QueueDeleted`] follows. Completions
    /// for which its ring has no room by then are dropped.
    DeleteQueue {
        /// The queue.
        queue: QueueId,
    },
}

/// A driver's report to its owner. [`Event`] is made of it unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceEvent {
    /// [`Event::Done`].
    Done(OperationId, Outcome),
    /// [`Event::Released`].
    Released(BlockId),
}

impl From<DeviceEvent> for Event<'_> {
    fn from(event: DeviceEvent) -> Self {
        match event {
            DeviceEvent::Done(operation, outcome) => Event::Done { operation, outcome },
            DeviceEvent::Released(block) => Event::Released { block },
        }
    }
}

/// The outcome of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A read, write or direct copy moved this many bytes: from 1 up to what was asked for; a read that moved
    /// 0 is at the end of its source.
    Moved {
        /// In bytes.
        bytes: u64,
        /// `PATH_*` bits of the path that they took.
        path: u32,
        /// The device still reads the block; [`Event::Released`] will follow once for each such outcome.
        held: bool,
    },
    /// A unit processed its input.
    Processed {
        /// Input bytes used up.
        consumed: u32,
        /// Output bytes made; 0 for digests and transforms in place.
        produced: u32,
        /// A resizing transform has put out all of its last block.
        finished: bool,
    },
    /// A resizing transform has used up its input and put out all of its last block, and tells a value that
    /// it found in the data.
    Concluded {
        /// Output bytes made.
        produced: u32,
        /// The value.
        value: DigestSlot,
    },
    /// The value of a digest: after its last block, or on [`OperationKind::Snapshot`].
    Digest(DigestSlot),
    /// A flush is done.
    Flushed,
    /// It failed.
    Failed(Failure),
    /// A read or write failed, and the device may still be at its block (a controller that has to be reset
    /// first); [`Event::Released`] will follow once.
    FailedHeld(Failure),
}

/// An action that the owner is to carry out.
#[derive(Debug)]
pub enum Action {
    /// Copy a submission entry out of its queue and hand it in with [`Event::Entry`].
    FetchEntry {
        /// The queue.
        queue: QueueId,
        /// The slot of its submission ring.
        slot: u16,
    },
    /// Copy a descriptor out of memory and hand it in with [`Event::Descriptor`]. The address is untrusted.
    FetchDescriptor {
        /// The command.
        command: CommandId,
        /// The queue whose memory the address is in.
        queue: QueueId,
        /// Bus address.
        address: u64,
        /// Bytes, at most [`DESCRIPTOR_MAX`](dcs_abi::descriptor::DESCRIPTOR_MAX).
        length: u32,
    },
    /// Find the devices behind the endpoints, check access and ranges, load the operators; answer with
    /// [`Event::Bound`].
    Bind {
        /// The command.
        command: CommandId,
        /// Its queue; handles belong to it.
        queue: QueueId,
        /// The transfer.
        spec: Arc<TransferSpec>,
    },
    /// [`Action::Bind`] a short command, and go on: read its source into its block, take that through the
    /// operators, write it, as far as that is allowed and possible at once; then answer with [`Event::Ran`].
    /// An owner that cannot bind it, or has found a direct path, or prefers a request for each stage, answers
    /// with [`Event::Bound`] as to [`Action::Bind`]. If all stages are done, and the binding needs no flush,
    /// the owner has released endpoints and operators before it answers: no [`Action::Unbind`] follows.
    Run(Short),
    /// Let go of a command's endpoints and operators. No operation of it is in flight, unless it hung past
    /// the abort grace.
    Unbind {
        /// The command.
        command: CommandId,
    },
    /// Perform a device operation; answer with [`Event::Done`], once. That of a multi-lane operator
    /// ([`Config::multi_lane`](crate::Config)) only takes its lane, and is performed by the next
    /// [`Action::StartPass`].
    Issue(Operation),
    /// Perform all operations of this operator that were issued since the last pass and not answered,
    /// together.
    StartPass {
        /// The operator.
        operator: Operator,
    },
    /// Stop an operation soon if that can be done. It is still answered by [`Event::Done`], once.
    Abort {
        /// The operation.
        operation: OperationId,
    },
    /// Write the result area, then the completion entry into its slot of the queue, then tell the host.
    Complete {
        /// The queue.
        queue: QueueId,
        /// The slot of its completion ring.
        slot: u16,
        /// The entry, phase bit set.
        entry: CompletionEntry,
        /// The result area and its bus address (untrusted).
        result: Option<(u64, Box<ResultArea>)>,
    },
    /// The queue pair that [`Event::DeleteQueue`] named is gone.
    QueueDeleted {
        /// The queue.
        queue: QueueId,
    },
}

/// A device operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// Its identifier.
    pub id: OperationId,
    /// Its command.
    pub command: CommandId,
    /// The work.
    pub kind: OperationKind,
}

/// The work of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationKind {
    /// Read from prefix or source into a block.
    Read {
        /// Prefix or source.
        role: EndpointRole,
        /// Position on the device; 0 for a stream.
        offset: u64,
        /// Into this block,
        block: BlockId,
        /// from this byte of it,
        start: u32,
        /// this many bytes at most.
        length: u32,
    },
    /// Write from a block to the destination.
    Write {
        /// Position on the device; 0 for a stream.
        offset: u64,
        /// Block with the data.
        block: BlockId,
        /// First byte in it.
        start: u32,
        /// Number of bytes.
        length: u32,
        /// The source has the same bytes at this position, and keeps them: they may be written from there.
        origin: Option<u64>,
        /// More bytes of the same stream follow soon (MSG_MORE).
        more: bool,
    },
    /// Move bytes from source to destination without a block. If none moved, that does not mean that the
    /// source has ended: it is read then. A failure is the destination's; one of the source is reported as
    /// [`Status::PathUnavailable`], and by the read that follows.
    Direct {
        /// Position at the source; 0 for a stream.
        source: u64,
        /// Position at the destination; 0 for a stream.
        destination: u64,
        /// This many bytes at most.
        length: u64,
        /// More bytes follow soon.
        more: bool,
    },
    /// Let a physical unit process a block: a digest reads it, a transform in place changes it.
    Process {
        /// The unit, of its operator's pool.
        unit: u16,
        /// The operator's place in the chain.
        operator: u8,
        /// The block,
        block: BlockId,
        /// this many bytes of it from its first one.
        length: u32,
        /// This is the stream's last block (its length may be 0). A digest answers with [`Outcome::Digest`].
        last: bool,
    },
    /// Let a physical unit process a block into another one.
    Resize {
        /// The unit, of its operator's pool.
        unit: u16,
        /// The operator's place in the chain.
        operator: u8,
        /// Input block,
        block: BlockId,
        /// from this byte,
        start: u32,
        /// this many bytes.
        length: u32,
        /// Output block,
        output: BlockId,
        /// from this byte,
        output_start: u32,
        /// room for that many bytes.
        output_length: u32,
        /// The input block is the stream's last one.
        last: bool,
    },
    /// Tell a digest's value as it stands: its command failed.
    Snapshot {
        /// The operator's place in the chain.
        operator: u8,
    },
    /// Make the destination durable, or wait until its peer has acknowledged everything, as the command wants
    /// it.
    Flush,
}

/// Most operators of a short command.
pub const SHORT_CHAIN_MAX: usize = 2;

/// Most stages of a short command: source, operators, destination.
pub const SHORT_STAGES_MAX: usize = SHORT_CHAIN_MAX + 2;

/// A short command that its owner is to run.
#[derive(Clone, Debug)]
pub struct Short {
    /// The command.
    pub command: CommandId,
    /// Its queue; handles belong to it.
    pub queue: QueueId,
    /// The transfer: no prefix, one extent an end at most, and a length that fits into a block.
    pub spec: Arc<TransferSpec>,
    /// Under this identifier its source is read; each later stage has [`OperationId::later`].
    pub operation: OperationId,
    /// Its block.
    pub block: BlockId,
    /// Number of stages that the owner may do, counted from the source: at least 1.
    pub until: u8,
}

/// The stages of a short command that its owner did.
#[derive(Clone, Copy, Debug)]
pub struct Ran {
    /// The paths found.
    pub binding: Binding,
    /// Stages that are done with all of the command's bytes: source, operators, destination.
    pub done: u8,
    /// When the first stage began, and when each that is done ended.
    pub times: [Nanos; SHORT_STAGES_MAX + 1],
    /// `PATH_*` bits of the stages that are done.
    pub path: u32,
    /// The values of the digests that are done, by their places in the chain.
    pub digests: [DigestSlot; SHORT_CHAIN_MAX],
    /// The stage behind those.
    pub then: Then,
}

/// The outcome of the first unfinished stage of a short command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// Nothing yet: it is issued as every other. Also where all stages are done.
    Nothing,
    /// It was begun: source or destination. [`Event::Done`](crate::Event::Done) follows.
    Begun,
    /// It was begun, and this came of it.
    Answered(Outcome),
}

impl Ran {
    /// Nothing was done since `now` but to bind it.
    #[inline]
    pub fn new(binding: Binding, now: Nanos) -> Ran {
        let mut times = [0; SHORT_STAGES_MAX + 1];
        times[0] = now;
        let digests = [DigestSlot::default(); SHORT_CHAIN_MAX];
        Ran { binding, done: 0, times, path: 0, digests, then: Then::Nothing }
    }

    /// The next stage is done.
    #[inline]
    pub fn pass(&mut self, now: Nanos, path: u32) {
        self.done += 1;
        self.times[self.done as usize] = now;
        self.path |= path;
    }
}
