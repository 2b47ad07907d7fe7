//! Data of a near-storage command on their way from a source through a chain to a destination.

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

/// Time after which a stream's command ends to let others run, in nanoseconds.
const TURN_MAX: u64 = 1_000_000_000;

/// Bytes of memory that a flow takes in addition to its operators: a piece of input, a piece of output,
/// output that waits for logical blocks, and of a stream output that had no room.
const FLOW_BYTES: u64 = 512 << 10;

/// Maximum number of bytes of output of one batch; of output that is collected for logical blocks, the
/// maximum including what is there already.
const BATCH_MAX: usize = 256 << 10;
const GATHERED_MAX: usize = 128 << 10;

/// Offsets of operators' pieces and times in the result page.
const PIECES_AT: usize = 24;
const TIMES_AT: usize = 704;

/// A near-storage command in progress.
pub struct Near {
    pub(super) origin: Origin,
    pub(super) flow: Box<Flow>,
    /// Maximum number of bytes of memory that the flow takes.
    pub(super) need: u64,
    /// The number of the stream that the flow belongs to, and bytes of its source that this command may still
    /// take.
    pub(super) stream: Option<(u16, u64)>,
    pub(super) target: Target,
    /// Bytes that this command has delivered.
    pub(super) made: u64,
    /// Output on its way to logical blocks.
    pub(super) pending: Vec<u8>,
    /// Memory of the parameters that this command loads, while they are kept or wait.
    pub(super) parameters: Option<Taken>,
    /// Bytes that it was charged for when it began, and has not yet read from or written to logical blocks.
    pub(super) paid: u64,
    /// Time at which its first step began, by the port's clock.
    pub(super) began: Option<u64>,
    /// Set if there is no memory for it: it ends.
    pub(super) refused: bool,
    /// Set if its writes must be on the medium when it ends, as with FUA.
    pub(super) durable: bool,
}

/// The kind of command, and what ends with it.
pub(super) enum Origin {
    /// A vendor command, with the guest's number of the request.
    Request(u32),
    /// A command of local memory.
    Memory,
    /// The execution of a program.
    Program(Execution),
    /// Loading parameters; ends when their operators have been tried.
    Load(Arc<Program>),
    /// Opening a stream; ends when its operators have been made.
    Open,
    /// Loading a program; ends when it has been made.
    Install(Box<Install>),
}

/// A source on its way through a chain: of one command, or of the several commands of a stream.
pub(super) struct Flow {
    pub(super) pipeline: Pipeline,
    pub(super) source: Source,
    /// Bytes that went in, and bytes that came out.
    pub(super) taken: u64,
    pub(super) made: u64,
    /// The chain needs more of the source.
    pub(super) hungry: bool,
    /// The chain has no more output.
    pub(super) ended: bool,
    /// Output that had no room in the commands so far.
    pub(super) surplus: VecDeque<u8>,
    /// The first error.
    pub(super) status: Status,
    /// Memory of the parameters and ranges with which a stream was opened.
    pub(super) parameters: Option<Taken>,
    /// Its reserved memory; `None` while a command waits for it. It is released last.
    pub(super) memory: Option<Taken>,
}

/// Logical blocks on a volume.
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
    /// The namespace as it was when the stream was opened.
    Ranges(Run, Ranges),
    /// Input of a stream, in the buffer of the guest's command. `last`: no input follows it.
    Fed {
        next: u64,
        left: u64,
        last: bool,
    },
    /// Bytes from the command itself.
    Bytes {
        bytes: Vec<u8>,
        next: usize,
    },
    /// Zeros.
    Zeros {
        left: u64,
    },
    /// Several sources in order, each with the number of bytes left.
    Several(VecDeque<Source>),
}

impl Source {
    /// Returns the number of bytes that are left.
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

    /// Ends a command that has brought input, and returns the bytes that went in. The guest sends the others
    /// again.
    pub(super) fn end_feeding(&mut self) -> u64 {
        let Source::Fed { next, left, last } = self else { return 0 };
        (*last, *left) = (*last && *left == 0, 0);
        std::mem::take(next)
    }

    /// The next bytes have gone in.
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

    /// Returns the source in use.
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
    /// Returns the number of bytes that it has room for.
    pub(super) fn room(&self) -> u64 {
        match self {
            Target::Guest { room } | Target::Blocks { room, .. } | Target::Memory { room, .. } => *room,
            Target::Nowhere => u64::MAX,
        }
    }
}

impl Target {
    /// Returns the bytes of a logical block; 1 for other targets.
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
    /// Returns true if the namespace is still on the same volume, with the same key.
    pub(super) fn is_of(&self, namespace: &Namespace) -> bool {
        let same = match (&self.chain, &namespace.chain) {
            (None, None) => true,
            (Some(chain), Some(other)) => Arc::ptr_eq(chain, other),
            _ => false,
        };
        same && (self.volume, self.shift) == (namespace.volume, namespace.shift)
    }

    /// Encrypts the guest's bytes at this byte of the volume, or decrypts them.
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
    /// Makes a command that takes all of one source.
    pub(super) fn new(origin: Origin, program: Arc<Program>, source: Source, target: Target) -> Near {
        let need = FLOW_BYTES + program.memory() + (program.len() * UNIT) as u64;
        let flow = Box::new(Flow::new(Pipeline::new(program), source));
        let (stream, parameters, began, pending) = (None, None, None, Vec::new());
        let (made, paid, refused, durable) = (0, 0, false, false);
        Near { origin, flow, need, stream, target, made, pending, parameters, paid, began, refused, durable }
    }

    /// Returns the maximum number of bytes of memory that it takes, including parameters.
    pub(super) fn needs_in_all(&self) -> u64 {
        self.need + self.parameters.as_ref().map_or(0, Taken::bytes)
    }

    /// Returns the program to be made, if it loads one.
    pub(super) fn install(install: Install) -> Near {
        let need = install.memory();
        let (origin, source) = (Origin::Install(Box::new(install)), Source::Zeros { left: 0 });
        Near { need, ..Near::new(origin, Arc::default(), source, Target::Nowhere) }
    }

    /// Returns true if it only makes operators, and no data pass them yet.
    pub(super) fn prepares(&self) -> bool {
        matches!(self.origin, Origin::Load(_) | Origin::Open | Origin::Install(_))
    }

    /// It has all its memory: an execution's parameters are released when it ends.
    pub(super) fn begins(&mut self) {
        if let (Origin::Program(_), Some(parameters)) = (&self.origin, &mut self.parameters) {
            parameters.passes();
        }
    }

    /// Returns true if it keeps its memory longer than a command lasts.
    pub(super) fn lasts(&self) -> bool {
        matches!(self.origin, Origin::Open | Origin::Install(_))
    }

    /// Takes the program that has been made.
    pub(super) fn built(&mut self, build: Option<Build>) {
        if let (Origin::Install(install), Some(build)) = (&mut self.origin, build) {
            install.done(build);
        }
    }

    /// Takes its chain for a piece of work; for a slot, for as much output as there is room for.
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

    /// Puts the next bytes of the source into the chain: `fill` writes them into a buffer, or
    /// fails.
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

    /// Returns true if a stream's command has lasted long enough, so that its owner can look around. It has
    /// made a step at least.
    pub(super) fn is_long(&mut self, now: u64) -> bool {
        self.stream.is_some() && now.saturating_sub(*self.began.get_or_insert(now)) > TURN_MAX
    }

    /// Returns true if a stream's command has taken as much of the source as it may, and there is or can be
    /// more.
    pub(super) fn is_sated(&self) -> bool {
        let limited = self.stream.is_some_and(|(_, limit)| limit == 0) && self.flow.source.left() > 0;
        limited || self.flow.source.starves()
    }

    /// Returns the bytes of output that must be written to logical blocks before a command ends; of a stream,
    /// whole blocks.
    pub(super) fn unwritten(&self, block: u64) -> u64 {
        let pending = self.pending.len() as u64;
        if self.stream.is_some() { pending / block * block } else { pending }
    }

    /// Ends a stream's command: output that fills no block is kept for the next one.
    pub(super) fn put_back(&mut self) {
        self.made -= self.pending.len() as u64;
        for byte in self.pending.drain(..).rev() {
            self.flow.surplus.push_front(byte);
        }
    }

    /// Delivers output that had no room in an earlier command of the stream.
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

    /// Returns the value of its only operator, a digest.
    pub(super) fn digest(&self) -> Vec<u8> {
        let slot = self.pipeline.digests().next();
        slot.map_or(Vec::new(), |slot| slot[16..16 + usize::from(slot[1])].to_vec())
    }

    /// Returns the result page: status, the operator that failed, bytes in and out, and for each operator the
    /// number of pieces, a digest slot, and its time.
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
