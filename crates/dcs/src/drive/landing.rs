//! A destination that the drive itself writes: a file on the drive.

use super::device::{Buffer, Device};
use super::feed::Input;
use super::work::{Moved, PIECES, Stream, TURN_BYTES, look_after};
use super::{Holds, Near};
use crate::card::extents::{ExtentError, Purpose};
use crate::card::range::HeldRange;
use crate::outcome::DriveFailure;
use dcs_abi::descriptor::{EndpointKind, Extent, OPEN_END};
use dcs_abi::status::{Stage, Status};
use dcs_devices::Endpoint;
use std::cell::Cell;
use std::sync::Arc;

/// The file, and the ranges of it that may be written.
#[derive(Clone, Debug)]
pub(crate) struct Landing {
    pub endpoint: Arc<Endpoint>,
    pub ranges: Vec<Extent>,
    /// It is to be on the disk when the transfer is done.
    pub durable: bool,
}

/// The same, held, with its places on the drive: whole logical blocks, and bytes behind the last of them.
#[derive(Debug)]
pub(super) struct Landed {
    held: Vec<HeldRange>,
    places: Vec<Extent>,
    durable: bool,
    /// Bytes that the drive has written, in order.
    written: Cell<u64>,
}

fn failure(status: Status) -> DriveFailure {
    DriveFailure { stage: Stage::Destination, ..DriveFailure::new(status, 0) }
}

fn refused(reason: &str) -> DriveFailure {
    DriveFailure { stage: Stage::Destination, ..DriveFailure::unavailable(libc::EINVAL, reason) }
}

impl Landing {
    /// Returns the failure of a destination that a drive cannot have.
    pub(super) fn is_no_file(&self) -> DriveFailure {
        refused("the destination is no file: a drive writes to files that it has itself")
    }

    /// Holds the file at its place on this drive.
    pub(super) fn hold(&self, near: &Near, device: &Device) -> Result<Landed, DriveFailure> {
        let (Some(number), Some(file)) = (self.endpoint.disk(), self.endpoint.file()) else {
            return Err(self.is_no_file());
        };
        if !self.endpoint.writable() {
            return Err(failure(Status::AccessDenied));
        }
        let (its, start) = Device::of(number)?;
        if !its.is(device) {
            return Err(refused("source and destination are on two namespaces: a drive copies within one"));
        }
        let size = self.endpoint.size().ok().flatten().unwrap_or(0);
        let mut holds = near.holds();
        let mut held = Vec::new();
        for range in &self.ranges {
            let end = range.offset.checked_add(range.length).ok_or(failure(Status::OutOfRange))?;
            let end = if end == OPEN_END { size.max(range.offset) } else { end };
            if end > size {
                return Err(failure(Status::CapacityExceeded));
            }
            let range = Extent { offset: range.offset, length: end - range.offset };
            if range.length > 0 {
                held.push(self.held(&mut holds, file, range)?);
            }
        }
        let places = held.iter().flat_map(HeldRange::places);
        let places: Vec<_> = places.map(|place| Extent { offset: place.offset + start, ..place }).collect();
        let block = device.block as u64;
        let last = places.len().saturating_sub(1);
        let whole = |(at, place): (usize, &Extent)| {
            place.offset.is_multiple_of(block) && (at == last || place.length.is_multiple_of(block))
        };
        match places.iter().enumerate().all(whole) {
            true => Ok(Landed { held, places, durable: self.durable, written: Cell::new(0) }),
            false => Err(refused("the destination begins, or goes on, amid a logical block")),
        }
    }

    fn held(
        &self,
        holds: &mut Holds,
        file: rustix::fd::BorrowedFd<'_>,
        range: Extent,
    ) -> Result<HeldRange, DriveFailure> {
        let held = match self.endpoint.kind() == EndpointKind::Block {
            true => holds.held_device(file, range, Stage::Destination, Purpose::Write),
            false => holds.held_file(file, range, Stage::Destination, Purpose::Write, PIECES),
        };
        held.map_err(|unheld| {
            let failure: DriveFailure = match unheld {
                crate::card::lease::Unheld::Refused(error) => error.into(),
                crate::card::lease::Unheld::Busy => ExtentError::Open.into(),
            };
            DriveFailure { stage: Stage::Destination, ..failure }
        })
    }
}

impl Landed {
    /// Has the drive write all of the stream's output. `land` has it write whole blocks: first block, room in blocks. `look` says before
    /// each command whether to go on.
    pub fn pass(
        &self,
        stream: &Stream<'_>,
        look: impl Fn() -> Result<(), Moved>,
        mut input: Option<&mut Input<'_>>,
    ) -> Result<(), Moved> {
        let look = || look().and_then(|()| look_after(&self.held));
        let block = stream.device.block as u64;
        for place in &self.places {
            let (mut at, end) = (place.offset, place.offset + place.length);
            while end - at >= block {
                look()?;
                // Bounded, so that programs that wait for the file are noticed in time.
                let room = ((end - at).min(TURN_BYTES.into()) / block) as u32;
                let (made, state) = match &mut input {
                    Some(input) => input.land(stream, at / block, room, &look)?,
                    None => stream.land(at / block, room)?,
                };
                at += made;
                self.written.set(self.written.get() + made);
                match state {
                    State::Ended => return Ok(()),
                    State::Rest if at < end => return self.rest(stream, (at, end), look, input),
                    // Goes on at the next place, if there is one.
                    State::Rest => break,
                    State::More | State::Hungry => {}
                }
            }
            if at < end {
                return self.rest(stream, (at, end), look, input);
            }
        }
        self.rest(stream, (0, 0), look, input)
    }

    /// Writes the last bytes, which fill no block: the rest of their block keeps what it has.
    fn rest(
        &self,
        stream: &Stream<'_>,
        (at, end): (u64, u64),
        look: impl Fn() -> Result<(), Moved>,
        mut input: Option<&mut Input<'_>>,
    ) -> Result<(), Moved> {
        let block = stream.device.block;
        let mut buffer = Buffer::new(block);
        let mut rest = Vec::new();
        loop {
            if let Some(input) = &mut input {
                input.send(stream, &look)?;
            }
            let (length, state) = stream.next(Some(&mut buffer))?;
            if let Some(input) = &mut input {
                input.is_wanted |= state == State::Hungry;
            }
            rest.extend_from_slice(&buffer.bytes()[..length]);
            if rest.len() as u64 > end - at {
                return Err(Moved::Failed(failure(Status::CapacityExceeded)));
            }
            look()?;
            if state == State::Ended {
                break;
            }
        }
        if !rest.is_empty() {
            stream.device.block_at(at / block as u64, false, &mut buffer)?;
            buffer.bytes_mut()[..rest.len()].copy_from_slice(&rest);
            stream.device.block_at(at / block as u64, true, &mut buffer)?;
            self.written.set(self.written.get() + rest.len() as u64);
        }
        Ok(())
    }

    /// Returns how many bytes the drive has written, from the first one on. It may have written more where its last command failed.
    pub fn written(&self) -> u64 {
        self.written.get()
    }

    /// The drive may have written a part: the page cache forgets what it had there.
    pub fn forget(&self) {
        for held in &self.held {
            let _ = held.finish();
        }
    }

    /// Releases the file: the drive's data are not in the page cache, and its blocks have not moved.
    pub fn finish(&self, device: &Device) -> Result<(), DriveFailure> {
        if self.durable {
            device.flush().map_err(|failure| DriveFailure { stage: Stage::Destination, ..failure })?;
        }
        let finished = self.held.iter().try_for_each(HeldRange::finish);
        finished.map_err(|error| DriveFailure { stage: Stage::Destination, ..error.into() })
    }
}

/// The rest of a stream's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    More,
    /// Less than a block.
    Rest,
    /// Nothing, before more goes in.
    Hungry,
    Ended,
}
