//! Data on their way through a near-storage command: from a source, through a chain, to a destination.

use std::collections::VecDeque;
use std::sync::Arc;

use dcs_nvme::Status;

use super::batch::Batch;
use super::budget::Taken;
use super::entry::RESULT_SIZE;
use super::installed::Execution;
use super::loads::{Build, Install};
use super::pipeline::{Pipeline, UNIT};
use super::program::Program;
use super::ranges::Ranges;
use crate::chain::Chain;
use crate::host::HostPort;
use crate::namespace::Namespace;
use crate::slots::Slot;
use crate::storage::{Ticket, VolumeId};

/// How long a stream's command lasts before it ends in favour of the next one, in nanoseconds.
const TURN_MAX: u64 = 1_000_000_000;

/// Bytes of memory that a flow takes besides its operators: a piece on its way in, as much as may come out at once and,
/// on its way to logical blocks, wait beside that; and of a stream what there was no room for.
const FLOW_BYTES: u64 = 512 << 10;

/// Bytes that come out of one batch of a slot's work at most; of output that is gathered for logical blocks, with what is
/// there, so many.
const BATCH_MAX: usize = 256 << 10;
const GATHERED_MAX: usize = 128 << 10;

/// Where the result page has operators' pieces and times.
const PIECES_AT: usize = 24;
const TIMES_AT: usize = 704;

/// A near-storage command under way.
pub struct Near {
    pub(super) origin: Origin,
    pub(super) flow: Box<Flow>,
    /// Bytes of memory that the flow takes at most.
    pub(super) need: u64,
    /// The stream that the flow is, and bytes of its source that this command may still take.
    pub(super) stream: Option<(u16, u64)>,
    pub(super) target: Target,
    /// Bytes that this command delivered.
    pub(super) made: u64,
    /// Output on its way to logical blocks.
    pub(super) pending: Vec<u8>,
    /// The memory of the parameters that it came with, where they are kept, or wait.
    pub(super) parameters: Option<Taken>,
    /// Bytes that it was charged for when it began, and has not read from or written to logical blocks yet.
    pub(super) paid: u64,
    /// When its first step began, by the port's clock.
    pub(super) began: Option<u64>,
    /// It gets no memory, and ends.
    pub(super) refused: bool,
}

/// The command that it is.
pub(super) enum Origin {
    /// The vendor's, with the guest's number for it.
    Request(u32),
    /// One of local memory.
    Memory,
    /// The execution of a program.
    Program(Execution),
    /// Parameters are loaded, once their operators have been tried.
    Load(Arc<Program>),
    /// A stream is opened, once its operators have been made.
    Open,
    /// A program is loaded, once it has been made.
    Install(Box<Install>),
}

/// A source on its way through a chain: of one command, or, a stream, of several.
pub(super) struct Flow {
    pub(super) pipeline: Pipeline,
    pub(super) source: Source,
    /// Bytes that went in, and that came out.
    pub(super) taken: u64,
    pub(super) made: u64,
    /// The chain wants more of the source.
    pub(super) hungry: bool,
    /// The last has come out of the chain.
    pub(super) ended: bool,
    /// Output that no command had room for yet.
    pub(super) surplus: VecDeque<u8>,
    /// The first thing that went wrong.
    pub(super) status: Status,
    /// The memory of the parameters and ranges that a stream was opened with.
    pub(super) parameters: Option<Taken>,
    /// The memory that it takes, set aside; none where a command still waits for it. It is given back last.
    pub(super) memory: Option<Taken>,
}

/// Logical blocks, as they lie on a volume.
pub(super) struct Run {
    pub(super) volume: VolumeId,
    pub(super) chain: Option<Arc<Chain>>,
    pub(super) shift: u8,
}

pub(super) enum Source {
    Guest {
        next: u64,
        left: u64,
    },
    Blocks {
        run: Run,
        next: u64,
        left: u64,
    },
    Memory {
        next: u64,
        left: u64,
    },
    /// Of the namespace as it was when the stream was opened.
    Ranges(Run, Ranges),
    /// Input of a stream, in the buffer of the guest's command. `last`: nothing follows what is left.
    Fed {
        next: u64,
        left: u64,
        last: bool,
    },
    /// Bytes that came with the command.
    Bytes {
        bytes: Vec<u8>,
        next: usize,
    },
    /// Bytes that are zero.
    Zeros {
        left: u64,
    },
    /// One after the other, each with bytes that are left.
    Several(VecDeque<Source>),
}

impl Source {
    /// Bytes that did not go in yet.
    pub(super) fn left(&self) -> u64 {
        match self {
            Source::Guest { left, .. }
            | Source::Blocks { left, .. }
            | Source::Memory { left, .. }
            | Source::Fed { left, .. }
            | Source::Zeros { left } => *left,
            Source::Ranges(_, ranges) => ranges.left,
            Source::Bytes { bytes, next } => (bytes.len() - next) as u64,
            Source::Several(sources) => sources.iter().map(Source::left).fold(0, u64::saturating_add),
        }
    }

    /// Returns true if all bytes went in, and none can follow.
    fn is_over(&self) -> bool {
        self.left() == 0 && !matches!(self, Source::Fed { last: false, .. })
    }

    /// Returns true if the guest has to send more input.
    pub(super) fn starves(&self) -> bool {
        matches!(self, Source::Fed { left: 0, last: false, .. })
    }

    /// Returns true if the guest's command has brought input, or its end.
    pub(super) fn brings(&self) -> bool {
        matches!(self, Source::Fed { .. }) && !self.starves()
    }

    /// Ends a command that has brought input: returns the bytes that went in. Those that did not are the guest's to send again.
    pub(super) fn end_feeding(&mut self) -> u64 {
        let Source::Fed { next, left, last } = self else { return 0 };
        (*last, *left) = (*last && *left == 0, 0);
        std::mem::take(next)
    }

    /// The next this many bytes have gone in.
    fn advance(&mut self, count: u64) {
        match self {
            Source::Guest { next, left }
            | Source::Blocks { next, left, .. }
            | Source::Fed { next, left, .. }
            | Source::Memory { next, left } => {
                (*next, *left) = (*next + count, left.saturating_sub(count));
            }
            Source::Ranges(_, ranges) if count > 0 => ranges.advance(),
            Source::Ranges(..) => {}
            Source::Bytes { bytes, next } => *next = bytes.len().min(*next + count as usize),
            Source::Zeros { left } => *left = left.saturating_sub(count),
            Source::Several(sources) => {
                if let Some(first) = sources.front_mut() {
                    first.advance(count);
                    if first.left() == 0 {
                        sources.pop_front();
                    }
                }
            }
        }
    }

    /// The one that is taken now.
    pub(super) fn current(&mut self) -> &mut Source {
        if matches!(self, Source::Several(sources) if sources.is_empty()) {
            return self;
        }
        match self {
            Source::Several(sources) => &mut sources[0],
            source => source,
        }
    }
}

pub(super) enum Target {
    Guest { room: u64 },
    Blocks { run: Run, next: u64, room: u64 },
    Memory { next: u64, room: u64 },
    Nowhere,
}

impl Target {
    /// Bytes that it has room for.
    pub(super) fn room(&self) -> u64 {
        match self {
            Target::Guest { room } | Target::Blocks { room, .. } | Target::Memory { room, .. } => *room,
            Target::Nowhere => u64::MAX,
        }
    }
}

impl Target {
    /// Bytes of a logical block; elsewhere a byte.
    pub(super) fn block(&self) -> usize {
        match self {
            Target::Blocks { run, .. } => 1 << run.shift,
            _ => 1,
        }
    }
}

impl std::fmt::Debug for Near {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Near({} bytes in, {} out)", self.flow.taken, self.flow.made)
    }
}

impl Run {
    /// True where it is still what the namespace lies on, by the same key.
    pub(super) fn is_of(&self, namespace: &Namespace) -> bool {
        let same = match (&self.chain, &namespace.chain) {
            (None, None) => true,
            (Some(chain), Some(other)) => Arc::ptr_eq(chain, other),
            _ => false,
        };
        same && (self.volume, self.shift) == (namespace.volume, namespace.shift)
    }

    /// Turns the guest's bytes into those that lie at this byte of the volume, or the other way round.
    pub(super) fn pass(&self, encrypt: bool, at: u64, bytes: &mut [u8]) -> bool {
        let first = at >> self.shift;
        match &self.chain {
            None => true,
            Some(chain) if encrypt => chain.encrypt(first, self.shift, bytes),
            Some(chain) => chain.decrypt(first, self.shift, bytes),
        }
    }
}

impl Near {
    /// All of one source.
    pub(super) fn new(origin: Origin, program: Arc<Program>, source: Source, target: Target) -> Near {
        let need = FLOW_BYTES + program.memory() + (program.len() * UNIT) as u64;
        let flow = Box::new(Flow::new(Pipeline::new(program), source));
        let (stream, parameters, began, pending) = (None, None, None, Vec::new());
        let (made, paid, refused) = (0, 0, false);
        Near { origin, flow, need, stream, target, made, pending, parameters, paid, began, refused }
    }

    /// Bytes of memory that it takes at most, parameters included.
    pub(super) fn needs_in_all(&self) -> u64 {
        self.need + self.parameters.as_ref().map_or(0, Taken::bytes)
    }

    /// A program that is to be made.
    pub(super) fn install(install: Install) -> Near {
        let need = install.memory();
        let (origin, source) = (Origin::Install(Box::new(install)), Source::Zeros { left: 0 });
        Near { need, ..Near::new(origin, Arc::default(), source, Target::Nowhere) }
    }

    /// It prepares operators, and nothing is to pass them yet.
    pub(super) fn prepares(&self) -> bool {
        matches!(self.origin, Origin::Load(_) | Origin::Open | Origin::Install(_))
    }

    /// Has all its memory: an execution's parameters come back when it ends.
    pub(super) fn begins(&mut self) {
        if let (Origin::Program(_), Some(parameters)) = (&self.origin, &mut self.parameters) {
            parameters.passes();
        }
    }

    /// It keeps its memory for longer than a command lasts.
    pub(super) fn lasts(&self) -> bool {
        matches!(self.origin, Origin::Open | Origin::Install(_))
    }

    /// The program that it loads has been made.
    pub(super) fn built(&mut self, build: Option<Build>) {
        if let (Origin::Install(install), Some(build)) = (&mut self.origin, build) {
            install.done(build);
        }
    }

    /// Takes its chain for a piece of work; for a slot, to which it is handed over, for as much as there is room for.
    pub(super) fn batch(&mut self, ticket: Ticket, hands_over: bool) -> Batch {
        if let Origin::Install(install) = &mut self.origin {
            return Batch::of_build(ticket, install.work());
        }
        let room = usize::try_from(self.target.room()).unwrap_or(usize::MAX);
        let most = match self.target {
            _ if !hands_over => UNIT,
            Target::Blocks { .. } => {
                GATHERED_MAX.saturating_sub(self.pending.len()).max(UNIT).min(room.max(UNIT))
            }
            _ => room.clamp(UNIT, BATCH_MAX),
        };
        Batch::new(ticket, std::mem::take(&mut self.flow.pipeline), self.prepares(), most)
    }

    /// The next bytes of the source go into the chain: as many as `fill` is given room for, if that brings them.
    pub(super) fn give(
        &mut self,
        length: usize,
        fill: impl FnOnce(&Source, &mut [u8]) -> Result<(), Status>,
    ) -> Result<(), Status> {
        let flow = &mut self.flow;
        let source = flow.source.current();
        flow.pipeline.input(length, |bytes| fill(source, bytes))?;
        let length = length as u64;
        flow.source.advance(length);
        flow.taken += length;
        flow.hungry = false;
        flow.pipeline.given(flow.source.is_over());
        if let Some((_, limit)) = &mut self.stream {
            *limit = limit.saturating_sub(length);
        }
        Ok(())
    }

    /// True where a stream's command has lasted for long enough: its owner wants to look around. It has made a
    /// step at least.
    pub(super) fn is_long(&mut self, now: u64) -> bool {
        self.stream.is_some() && now.saturating_sub(*self.began.get_or_insert(now)) > TURN_MAX
    }

    /// Returns true if a stream's command has taken as much of the source as it may, and more is there or can follow.
    pub(super) fn is_sated(&self) -> bool {
        let limited = self.stream.is_some_and(|(_, limit)| limit == 0) && self.flow.source.left() > 0;
        limited || self.flow.source.starves()
    }

    /// Bytes of output that are to be written to logical blocks before a command ends: of a stream, whole blocks.
    pub(super) fn unwritten(&self, block: u64) -> u64 {
        let pending = self.pending.len() as u64;
        if self.stream.is_some() { pending / block * block } else { pending }
    }

    /// A stream's command ends: output that fills no block stays for the next one.
    pub(super) fn put_back(&mut self) {
        self.made -= self.pending.len() as u64;
        for byte in self.pending.drain(..).rev() {
            self.flow.surplus.push_front(byte);
        }
    }

    /// Delivers what an earlier command of the stream had no room for.
    pub(super) fn deliver_surplus(
        &mut self,
        slot: &Slot,
        memory: &mut [u8],
        port: &mut dyn HostPort,
    ) -> Result<(), Status> {
        if self.flow.surplus.is_empty() {
            return Ok(());
        }
        let now = self.flow.surplus.len().min(usize::try_from(self.target.room()).unwrap_or(usize::MAX));
        let bytes: Vec<u8> = self.flow.surplus.drain(..now).collect();
        if self.flow.surplus.is_empty() {
            self.flow.surplus = VecDeque::new();
        }
        self.store(slot, memory, port, &bytes)
    }

    /// Delivers the chain's output to its destination; of a stream, as much as there is room for.
    pub(super) fn deliver(
        &mut self,
        slot: &Slot,
        memory: &mut [u8],
        port: &mut dyn HostPort,
        bytes: &[u8],
    ) -> Result<(), Status> {
        let room = usize::try_from(self.target.room()).unwrap_or(usize::MAX);
        if self.stream.is_none() && bytes.len() > room {
            return Err(Status::CAPACITY_EXCEEDED);
        }
        let (now, later) = bytes.split_at(bytes.len().min(room));
        self.flow.surplus.extend(later);
        self.flow.made += bytes.len() as u64;
        self.store(slot, memory, port, now)
    }

    /// Puts bytes into the destination, which has room for them.
    fn store(
        &mut self,
        slot: &Slot,
        memory: &mut [u8],
        port: &mut dyn HostPort,
        bytes: &[u8],
    ) -> Result<(), Status> {
        let length = bytes.len() as u64;
        match &mut self.target {
            Target::Guest { room } => {
                *room -= length;
                if !slot.store_at(port, self.made, bytes) {
                    return Err(Status::DATA_TRANSFER_ERROR);
                }
            }
            Target::Blocks { room, .. } => {
                *room -= length;
                self.pending.reserve_exact(bytes.len());
                self.pending.extend_from_slice(bytes);
            }
            Target::Memory { next, room } => {
                *room -= length;
                let place = memory.get_mut(*next as usize..).and_then(|rest| rest.get_mut(..bytes.len()));
                place.ok_or(Status::INTERNAL_ERROR)?.copy_from_slice(bytes);
                *next += length;
            }
            Target::Nowhere => {}
        }
        self.made += length;
        Ok(())
    }
}

impl Flow {
    pub fn new(pipeline: Pipeline, source: Source) -> Flow {
        let (surplus, status) = (VecDeque::new(), Status::SUCCESS);
        Flow {
            pipeline,
            source,
            taken: 0,
            made: 0,
            hungry: true,
            ended: false,
            surplus,
            status,
            parameters: None,
            memory: None,
        }
    }

    /// The value of its only operator, a digest.
    pub(super) fn digest(&self) -> Vec<u8> {
        let slot = self.pipeline.digests().next();
        slot.map_or(Vec::new(), |slot| slot[16..16 + usize::from(slot[1])].to_vec())
    }

    /// The result page: status, the operator that failed, bytes in and out, then for each operator the pieces
    /// that it worked on, a digest slot, and the time that it took.
    pub(super) fn page(&self, request: u32, status: Status) -> Box<[u8; RESULT_SIZE]> {
        let mut page = Box::new([0; RESULT_SIZE]);
        let digests = self.pipeline.digests().enumerate();
        page[..4].copy_from_slice(&request.to_le_bytes());
        page[4..6].copy_from_slice(&status.0.to_le_bytes());
        page[6] = self.pipeline.failed.unwrap_or(0xff);
        page[8..16].copy_from_slice(&self.taken.to_le_bytes());
        page[16..24].copy_from_slice(&self.made.to_le_bytes());
        let mut count = 0;
        for (place, slot) in digests {
            let at = 64 + place * slot.len();
            page[at..at + slot.len()].copy_from_slice(&slot);
            count += 1;
        }
        page[7] = count;
        for (place, worked) in self.pipeline.worked().enumerate() {
            let pieces = u32::try_from(worked.pieces).unwrap_or(u32::MAX);
            page[PIECES_AT + 4 * place..][..4].copy_from_slice(&pieces.to_le_bytes());
            page[TIMES_AT + 8 * place..][..8].copy_from_slice(&worked.nanoseconds.to_le_bytes());
        }
        page
    }
}
