//! One transfer at a drive: where its file lies, the stream, what comes out.

use super::Near;
use super::device::{
    BLOCKS, Buffer, Device, FROM_GUEST, Failed, NO_DATA, NOWHERE, RESULTS, STREAM, TO_GUEST, Words,
};
use super::feed::Feed;
use super::landing::{Landing, State};
use crate::card::extents::{ExtentError, Purpose};
use crate::card::lease::{self, Unheld};
use crate::card::range::HeldRange;
use crate::error::Error;
use crate::op::Op;
use crate::outcome::{DriveFailure, DriveOutcome, Ended};
use dcs_abi::descriptor::{Extent, OPEN_END};
use dcs_abi::entry::LENGTH_TO_END;
use dcs_abi::operator::Operator;
use dcs_abi::result::{DigestSlot, StageTimes};
use dcs_abi::status::{STATUSES, Stage, Status};
use dcs_abi::{CHAIN_MAX, Wire};
use dcs_devices::Endpoint;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::pipe::PipeFlags;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use zeroize::Zeroizing;

/// Nothing comes out any more; what still does is less than a block.
const ENDED: u64 = 1 << 63;
const REST: u64 = 1 << 62;
/// Nothing comes out before more goes in.
const HUNGRY: u64 = 1 << 61;
/// The number of ranges of a stream whose input commands bring.
pub(super) const FED: u32 = u32::MAX;

/// Bytes of parameters and ranges at most.
const OPEN_MAX: usize = 64 << 10;
/// Pieces of a file at most: their ranges fit beside the parameters of any chain.
pub(super) const PIECES: usize = 3_000;
/// Bytes that come first at most: they fit beside parameters and ranges.
const FIRST_MAX: usize = 32 << 10;
/// Bytes read from or written to a file after which a command ends, so that programs that wait for the file
/// are noticed. A slow drive ends it sooner.
pub(super) const TURN_BYTES: u32 = 16 << 20;
/// Bytes of a result page, and where operators' pieces, digests and times begin in it.
const PAGE: usize = 768;
const WORKED: usize = 24;
const DIGESTS: usize = 64;
const TIMES: usize = 704;

/// Size requested for the pipe, in bytes; the system may grant less.
const PIPE: usize = 1 << 20;

/// An operator: its number and parameter.
pub(super) type OperatorBlock = (u8, Zeroizing<Vec<u8>>);

/// A transfer that is to be done at a drive.
pub(crate) struct Job {
    near: Arc<Near>,
    endpoint: Arc<Endpoint>,
    ranges: Vec<Extent>,
    /// Number of bytes requested; `LENGTH_TO_END` for all.
    length: u64,
    chain: Vec<OperatorBlock>,
    /// Memory whose bytes come first.
    prefix: Option<(Arc<Endpoint>, Vec<Extent>)>,
    /// Set if the drive itself writes the output.
    landing: Option<Landing>,
}

/// A job, and the pipe between it and the kernel backend.
#[derive(Debug)]
pub(crate) struct Work {
    job: Way,
    pipe: OwnedFd,
    pub outcome: Arc<DriveOutcome>,
}

/// The way of the data.
#[derive(Debug)]
enum Way {
    /// From a file of the drive to the pipe. True: the bytes are discarded.
    Out(Job, bool),
    /// From the pipe, to a file of the drive.
    In(Feed),
}

/// Makes a pipe: its end for reading, and that for writing.
fn pipe() -> Result<(OwnedFd, OwnedFd), Error> {
    let pipe = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK);
    let (reader, writer) = pipe.map_err(|errno| Error::Start(errno.into()))?;
    // Less if the user has many pipes.
    let _ = rustix::pipe::fcntl_setpipe_size(&writer, PIPE);
    Ok((reader, writer))
}

/// Keys are not printed.
impl std::fmt::Debug for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Job({} operators, {} ranges)", self.chain.len(), self.ranges.len())
    }
}

impl Job {
    pub fn new(
        near: &Arc<Near>,
        (endpoint, ranges): (Arc<Endpoint>, &[Extent]),
        chain: &[Op],
        length: u64,
        prefix: Option<(Arc<Endpoint>, Vec<Extent>)>,
        landing: Option<Landing>,
    ) -> Job {
        let chain = operator_blocks(chain);
        Job { near: Arc::clone(near), endpoint, ranges: ranges.to_vec(), length, chain, prefix, landing }
    }
}

/// Returns the operators of a chain as a drive gets them.
pub(super) fn operator_blocks(chain: &[Op]) -> Vec<OperatorBlock> {
    chain.iter().map(|op| (op.number(), Zeroizing::new(op.parameter()))).collect()
}

/// Checks the operators' parameters.
pub(super) fn check_chain(chain: &[OperatorBlock]) -> Result<(), DriveFailure> {
    for (at, (number, parameter)) in chain.iter().enumerate() {
        // One that only the drive knows is the drive's to check.
        let Some(operator) = Operator::from_number(*number) else { continue };
        if let Err(error) = dcs_ndp::Context::new(operator, parameter) {
            let (stage, operator) = (Stage::Operator, at as u8);
            return Err(DriveFailure { stage, operator, ..DriveFailure::new(error.status(), 0) });
        }
    }
    Ok(())
}

impl Work {
    /// Makes the work, and the end of the pipe that is the kernel backend's source. `drops`: the bytes are
    /// discarded. A failure that the kernel backend does not see is counted in `failures`.
    ///
    /// # Errors
    ///
    /// Fails if the process has no descriptor left.
    pub fn new(job: Job, drops: bool, failures: &Arc<AtomicU64>) -> Result<(Work, Arc<Endpoint>), Error> {
        let (reader, writer) = pipe()?;
        let source = Endpoint::from_fd(reader.as_fd())?;
        let outcome = Arc::new(DriveOutcome::new(Arc::clone(failures)));
        Ok((Work { job: Way::Out(job, drops), pipe: writer, outcome }, Arc::new(source)))
    }

    /// Makes the work of a drive that writes what the pipe brings, and the end of the pipe that is the kernel backend's sink.
    ///
    /// # Errors
    ///
    /// If the process has no descriptor left.
    pub fn fed(feed: Feed, failures: &Arc<AtomicU64>) -> Result<(Work, Arc<Endpoint>), Error> {
        let (reader, writer) = pipe()?;
        let sink = Endpoint::from_fd(writer.as_fd())?;
        let outcome = Arc::new(DriveOutcome::fed(Arc::clone(failures)));
        Ok((Work { job: Way::In(feed), pipe: reader, outcome }, Arc::new(sink)))
    }

    /// Starts a thread for it, which calls `landed` when the outcome is known. If no thread is available, the
    /// outcome reports that.
    pub fn start(self, landed: impl FnOnce() + Send + 'static) {
        let thread = std::thread::Builder::new().name("dcs-near".into()).stack_size(256 << 10);
        let outcome = Arc::clone(&self.outcome);
        let told = OutcomeGuard { outcome, landed: Some(landed), lost: Status::OutOfResources };
        // Without a thread the closure is dropped, and tells.
        let _ = thread.spawn(move || {
            // Signals are for the application's threads, and a broken pipe is an error of one transfer.
            let _ = crate::kernel::thread::prepare(&crate::engine::cores::Placement::default(), None);
            let mut told = told;
            told.lost = Status::InternalError;
            self.run();
        });
    }

    fn run(self) {
        let Work { job, pipe, outcome } = self;
        let mut ended = Ended::default();
        let done = match &job {
            Way::Out(job, drops) => job.run(&pipe, *drops, &outcome, &mut ended),
            Way::In(feed) => feed.run(&pipe, &outcome, &mut ended),
        };
        ended.failure = done.err();
        outcome.set(ended);
        // The pipe ends after the outcome is there.
        drop(pipe);
    }
}

/// Tells that the outcome is there, also if the thread panics, or never begins.
struct OutcomeGuard<F: FnOnce()> {
    outcome: Arc<DriveOutcome>,
    landed: Option<F>,
    /// The failure if there is no outcome.
    lost: Status,
}

impl<F: FnOnce()> Drop for OutcomeGuard<F> {
    fn drop(&mut self) {
        // Ignored if there is one.
        let lost = Some(DriveFailure::new(self.lost, 0));
        self.outcome.set(Ended { failure: lost, ..Ended::default() });
        if let Some(landed) = self.landed.take() {
            landed();
        }
    }
}

impl Job {
    fn run(
        &self,
        pipe: &OwnedFd,
        drops: bool,
        outcome: &DriveOutcome,
        ended: &mut Ended,
    ) -> Result<(), DriveFailure> {
        let first = self.first()?;
        let (ranges, short) = self.check(self.length - first.len() as u64)?;
        let _turn = self.near.turn();
        let Some(number) = self.endpoint.disk() else {
            return Err(DriveFailure::new(Status::UnsupportedEndpoint, 0));
        };
        let (device, start) = Device::of(number)?;
        let held = self.hold(&ranges)?;
        let places = held.iter().flat_map(HeldRange::places);
        let places: Vec<_> = places.map(|place| Extent { offset: place.offset + start, ..place }).collect();
        let landed = self.landing.as_ref().map(|landing| landing.hold(&self.near, &device)).transpose()?;
        let stream = Stream::open(&device, &self.chain, Some(&places), &first)?;
        let moved = match &landed {
            Some(_) if !outcome.begin_to_write() => Err(Moved::Unwanted),
            Some(landed) => landed.pass(&stream, || go_on(pipe, &held), None),
            None => self.pass(&stream, pipe, drops, &held),
        };
        // Also after a failure: the digests so far, and the operator that failed.
        let page = stream.page();
        if let Ok(page) = &page {
            page.store(ended);
            ended.out = drops.then_some(page.made);
        }
        if let Some(landed) = &landed {
            ended.out = Some(landed.written());
        }
        if let (Err(_), Some(landed)) = (&moved, &landed) {
            landed.forget();
        }
        match moved {
            Err(Moved::Failed(failure)) => Err(page.ok().and_then(|page| page.failure).unwrap_or(failure)),
            // The kernel backend has dropped it, and gives the reason.
            Err(Moved::Unwanted) => Ok(()),
            Ok(()) => {
                let whole = page.and_then(|_| Ok(held.iter().try_for_each(HeldRange::finish)?));
                if let (Err(_), Some(landed)) = (&whole, &landed) {
                    landed.forget();
                }
                whole?;
                landed.as_ref().map_or(Ok(()), |landed| landed.finish(&device))?;
                if short { Err(DriveFailure::new(Status::EndOfSource, 0)) } else { Ok(()) }
            }
        }
    }

    /// The bytes that come first, as many as are asked for.
    fn first(&self) -> Result<Vec<u8>, DriveFailure> {
        let Some((memory, ranges)) = &self.prefix else { return Ok(Vec::new()) };
        let has = memory.size().ok().flatten().ok_or(DriveFailure::new(Status::UnsupportedEndpoint, 0))?;
        let mut bytes = Vec::new();
        for range in ranges {
            let end = range.offset.saturating_add(range.length);
            let end = if end == OPEN_END { has.max(range.offset) } else { end };
            if end > has {
                return Err(DriveFailure::new(Status::OutOfRange, 0));
            }
            let length = (end - range.offset).min(self.length - bytes.len() as u64);
            if length > (FIRST_MAX - bytes.len()) as u64 {
                let why = format!("more than {FIRST_MAX} bytes come first: use the kernel backend");
                return Err(DriveFailure::unavailable(libc::E2BIG, why));
            }
            let at = bytes.len();
            bytes.resize(at + length as usize, 0);
            let read = memory.read_memory(range.offset, &mut bytes[at..]);
            if read != Some(length as usize) {
                return Err(DriveFailure::new(Status::UnsupportedEndpoint, 0));
            }
        }
        Ok(bytes)
    }

    /// Returns the ranges of the file to be read, at most this many bytes; true if the file ends before.
    fn check(&self, length: u64) -> Result<(Vec<Extent>, bool), DriveFailure> {
        if !self.endpoint.readable() {
            return Err(DriveFailure::new(Status::AccessDenied, 0));
        }
        check_chain(&self.chain)?;
        let size = self
            .endpoint
            .size()
            .map_err(|error| DriveFailure::new(Status::ReadError, error.raw_os_error().unwrap_or(0)))?;
        let size = size.unwrap_or(0);
        let (mut ranges, mut left) = (Vec::with_capacity(self.ranges.len()), length);
        for range in &self.ranges {
            let end =
                range.offset.checked_add(range.length).ok_or(DriveFailure::new(Status::OutOfRange, 0))?;
            let end = if end == OPEN_END { size.max(range.offset) } else { end };
            if end > size {
                return Err(DriveFailure::new(Status::OutOfRange, 0));
            }
            let length = (end - range.offset).min(left);
            left -= length;
            if length > 0 {
                ranges.push(Extent { offset: range.offset, length });
            }
        }
        Ok((ranges, self.length != LENGTH_TO_END && left > 0))
    }

    /// Holds the file in its place.
    fn hold(&self, ranges: &[Extent]) -> Result<Vec<HeldRange>, DriveFailure> {
        let Some(file) = self.endpoint.file() else { return Ok(Vec::new()) };
        let is_device = self.endpoint.kind() == dcs_abi::descriptor::EndpointKind::Block;
        let mut holds = self.near.holds();
        let hold = |range: &Extent| {
            let held = match is_device {
                true => holds.held_device(file, *range, Stage::Source, Purpose::Read),
                false => holds.held_file(file, *range, Stage::Source, Purpose::Read, PIECES),
            };
            held.map_err(|unheld| match unheld {
                Unheld::Refused(error) => error.into(),
                Unheld::Busy => ExtentError::Writers.into(),
            })
        };
        ranges.iter().map(hold).collect()
    }

    /// Has the drive take the stream through its chain, and passes on what comes out.
    fn pass(
        &self,
        stream: &Stream<'_>,
        pipe: &OwnedFd,
        drops: bool,
        held: &[HeldRange],
    ) -> Result<(), Moved> {
        let mut buffer = if drops { None } else { Some(Buffer::new(stream.device.most)) };
        loop {
            let (length, state) = stream.next(buffer.as_mut())?;
            if let Some(buffer) = &buffer {
                write(pipe, &buffer.bytes()[..length], || look_after(held))?;
            } else if !has_reader(pipe) {
                return Err(Moved::Unwanted);
            }
            if state == State::Ended {
                return Ok(());
            }
            look_after(held)?;
        }
    }
}

/// Reason why bytes go no further.
pub(super) enum Moved {
    Failed(DriveFailure),
    /// The pipe's reader is gone.
    Unwanted,
}

impl From<DriveFailure> for Moved {
    fn from(failure: DriveFailure) -> Moved {
        Moved::Failed(failure)
    }
}

/// Releases a file that another program has waited for as long as it may be kept waiting.
pub(super) fn look_after(held: &[HeldRange]) -> Result<(), Moved> {
    let since = held.iter().filter_map(HeldRange::is_wanted).min();
    match since.is_some_and(|since| since.elapsed() >= lease::limits().0) {
        true => Err(Moved::Failed(ExtentError::Wanted.into())),
        false => Ok(()),
    }
}

/// Writes to the pipe. Whenever it waits, `meanwhile` is asked whether to go on.
fn write(pipe: &OwnedFd, mut bytes: &[u8], meanwhile: impl Fn() -> Result<(), Moved>) -> Result<(), Moved> {
    while !bytes.is_empty() {
        match rustix::io::write(pipe, bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                let _ = poll(pipe, PollFlags::OUT, 100);
                meanwhile()?;
            }
            Err(_) => return Err(Moved::Unwanted),
        }
    }
    Ok(())
}

/// Fails if the pipe's reader is gone, or another program has waited for the source for too long.
fn go_on(pipe: &OwnedFd, source: &[HeldRange]) -> Result<(), Moved> {
    if has_reader(pipe) { look_after(source) } else { Err(Moved::Unwanted) }
}

/// Returns false if the pipe's other end is closed.
fn has_reader(pipe: &OwnedFd) -> bool {
    !poll(pipe, PollFlags::OUT, 0).contains(PollFlags::ERR)
}

/// Waits until the pipe has one of these events, or its other end is closed, at most for this many milliseconds.
pub(super) fn poll(pipe: &OwnedFd, events: PollFlags, limit: i64) -> PollFlags {
    let mut polled = [PollFd::new(pipe, events)];
    let limit = Timespec { tv_sec: limit / 1000, tv_nsec: limit % 1000 * 1_000_000 };
    let _ = rustix::event::poll(&mut polled, Some(&limit));
    polled[0].revents()
}

impl State {
    fn of(result: u64) -> State {
        match result {
            _ if result & ENDED != 0 => State::Ended,
            _ if result & REST != 0 => State::Rest,
            _ if result & HUNGRY != 0 => State::Hungry,
            _ => State::More,
        }
    }
}

/// A stream of a drive, which closes it when it is dropped.
pub(super) struct Stream<'a> {
    pub device: &'a Device,
    number: u32,
}

/// A stream's result page.
pub(super) struct Page {
    taken: u64,
    made: u64,
    digests: [DigestSlot; CHAIN_MAX],
    operators: [StageTimes; CHAIN_MAX],
    pub failure: Option<DriveFailure>,
}

impl<'a> Stream<'a> {
    /// Opens a stream over these places, behind the bytes that come first; without places, one whose input commands bring.
    pub fn open(
        device: &'a Device,
        chain: &[OperatorBlock],
        places: Option<&[Extent]>,
        first: &[u8],
    ) -> Result<Stream<'a>, DriveFailure> {
        // Never moved: keys are in it.
        let mut bytes = Zeroizing::new(Vec::with_capacity(OPEN_MAX + 16));
        bytes.extend_from_slice(&(chain.len() as u32 | (first.len() as u32) << 8).to_le_bytes());
        bytes.extend_from_slice(&places.map_or(FED, |places| places.len() as u32).to_le_bytes());
        let places = places.unwrap_or_default();
        let too_long = || DriveFailure::from(ExtentError::Pieces(PIECES));
        for (number, parameter) in chain {
            let length =
                u16::try_from(parameter.len()).map_err(|_| DriveFailure::new(Status::BadParameter, 0))?;
            if bytes.len() + 16 + parameter.len() > OPEN_MAX {
                return Err(too_long());
            }
            bytes.extend_from_slice(&[*number, 0]);
            bytes.extend_from_slice(&length.to_le_bytes());
            bytes.extend_from_slice(&[0; 4]);
            bytes.extend_from_slice(parameter);
            let padded = bytes.len().next_multiple_of(8);
            bytes.resize(padded, 0);
        }
        if bytes.len() + places.len() * 16 + first.len() > OPEN_MAX {
            return Err(too_long());
        }
        for place in places {
            bytes.extend_from_slice(&place.offset.to_le_bytes());
            bytes.extend_from_slice(&place.length.to_le_bytes());
        }
        bytes.extend_from_slice(first);
        let padded = bytes.len().next_multiple_of(8);
        bytes.resize(padded, 0);
        let length = bytes.len() as u32;
        let mut buffer = Buffer::new(bytes.len());
        buffer.bytes_mut().copy_from_slice(&bytes);
        let words = [length / 4, length, 0, 0, 0, 0];
        let command = Words { opcode: FROM_GUEST, places: STREAM << 4, words };
        let opened = device.run(command, Some(buffer.bytes_mut()));
        buffer.bytes_mut().fill(0);
        std::hint::black_box(&buffer);
        let number = opened.map_err(Failed::failure)? as u32;
        Ok(Stream { device, number })
    }

    fn places(&self, source: u32, destination: u32) -> u32 {
        source | destination << 4 | self.number << 16
    }

    /// Takes the next bytes that come out, into the buffer, or drops them. Returns their number, and what still comes out.
    pub fn next(&self, buffer: Option<&mut Buffer>) -> Result<(usize, State), DriveFailure> {
        let (opcode, destination, data) = match buffer {
            Some(buffer) => (TO_GUEST, 0, Some(buffer.bytes_mut())),
            None => (NO_DATA, NOWHERE, None),
        };
        let room = data.as_ref().map_or(0, |data| data.len());
        let words = [room as u32 / 4, TURN_BYTES, 0, 0, 0, 0];
        let command = Words { opcode, places: self.places(STREAM, destination), words };
        let result = self.device.run(command, data).map_err(Failed::failure)?;
        let length = (result & !(ENDED | HUNGRY)).min(room as u64) as usize;
        Ok((length, State::of(result)))
    }

    /// Has the drive write whole blocks of the output, at most `room` from block `first` on. Returns the bytes written.
    pub fn land(&self, first: u64, room: u32) -> Result<(u64, State), DriveFailure> {
        let words = [room, TURN_BYTES, 0, 0, first as u32, (first >> 32) as u32];
        let command = Words { opcode: NO_DATA, places: self.places(STREAM, BLOCKS), words };
        let result = self.device.run(command, None).map_err(Failed::failure)?;
        self.written(result & !(ENDED | REST | HUNGRY), room).map(|made| (made, State::of(result)))
    }

    /// Sends input, the last if nothing follows it. Has the drive write what comes out, whole blocks of it, to this many from this one on;
    /// without a place, the output is for later commands. Returns the bytes of input that the drive took, the bytes that it wrote, and
    /// what still comes out. Input that it did not take is to be sent again.
    pub fn feed(
        &self,
        input: Option<&mut [u8]>,
        (length, last): (usize, bool),
        place: Option<(u64, u32)>,
    ) -> Result<(usize, u64, State), DriveFailure> {
        let (first, room) = place.unwrap_or_default();
        let buffer = input.as_ref().map_or(0, |input| input.len() / 4);
        let words = [buffer as u32, length as u32, room, last.into(), first as u32, (first >> 32) as u32];
        let places = self.places(STREAM, if place.is_some() { BLOCKS } else { 0 });
        let result =
            self.device.run(Words { opcode: FROM_GUEST, places, words }, input).map_err(Failed::failure)?;
        let (taken, made) = ((result & !(ENDED | REST | HUNGRY)) >> 32, result & u64::from(u32::MAX));
        if taken > length as u64 {
            return Err(DriveFailure::new(Status::InternalError, 0));
        }
        self.written(made, room).map(|made| (taken as usize, made, State::of(result)))
    }

    /// Checks the bytes that the drive says it has written: never more than it was given room for.
    fn written(&self, made: u64, room: u32) -> Result<u64, DriveFailure> {
        match made <= u64::from(room) * self.device.block as u64 {
            true => Ok(made),
            false => Err(DriveFailure::new(Status::InternalError, 0)),
        }
    }

    pub fn page(&self) -> Result<Page, DriveFailure> {
        let mut buffer = Buffer::new(PAGE);
        let words = [PAGE as u32 / 4, 0, 0, 0, 0, 0];
        let command = Words { opcode: TO_GUEST, places: self.places(RESULTS, 0), words };
        self.device.run(command, Some(buffer.bytes_mut())).map_err(Failed::failure)?;
        Ok(Page::read(buffer.bytes()))
    }
}

impl Drop for Stream<'_> {
    fn drop(&mut self) {
        // A drive that was reset has forgotten it.
        let command = Words { opcode: NO_DATA, places: self.places(STREAM, 0), words: [0; 6] };
        let _ = self.device.run(command, None);
    }
}

impl Page {
    /// Notes what was done.
    pub fn store(&self, ended: &mut Ended) {
        ended.taken = self.taken;
        (ended.digests, ended.operators) = (self.digests, self.operators);
    }

    /// Of [`PAGE`] bytes.
    fn read(bytes: &[u8]) -> Page {
        let long = |at: usize| u64::get(&bytes[at..at + 8]);
        let digest = |at: usize| {
            let from = DIGESTS + at * DigestSlot::SIZE;
            DigestSlot::get(&bytes[from..from + DigestSlot::SIZE])
        };
        let code = u16::get(&bytes[4..6]) & 0x7ff;
        let status = STATUSES.iter().find(|info| info.code() & 0x7ff == code).map(|info| info.status);
        // An operator that failed is named; all else is said by the command that failed.
        let failure = (bytes[6] < CHAIN_MAX as u8 && code >> 8 == 7).then(|| DriveFailure {
            stage: Stage::Operator,
            operator: bytes[6],
            ..DriveFailure::new(status.unwrap_or(Status::InternalError), 0)
        });
        let operator = |at: usize| StageTimes {
            busy: long(TIMES + 8 * at),
            operations: u32::get(&bytes[WORKED + 4 * at..][..4]).into(),
            ..StageTimes::default()
        };
        let (digests, operators) = (std::array::from_fn(digest), std::array::from_fn(operator));
        Page { taken: long(8), made: long(16), digests, operators, failure }
    }
}
