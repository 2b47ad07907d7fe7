//! One transfer to a file of a drive, whose bytes come from elsewhere: the guest sends them, and the drive takes them through the chain on
//! their way to its disk.

use super::Near;
use super::device::{Buffer, Device};
use super::landing::{Landing, State};
use super::work::{Moved, OperatorBlock, Stream, check_chain, operator_blocks, poll};
use crate::op::Op;
use crate::outcome::{DriveFailure, DriveOutcome, Ended};
use dcs_abi::status::{Stage, Status};
use rustix::event::PollFlags;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::sync::Arc;

/// A transfer that a drive is to write.
pub(crate) struct Feed {
    near: Arc<Near>,
    chain: Vec<OperatorBlock>,
    landing: Landing,
}

/// Keys are not printed.
impl std::fmt::Debug for Feed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Feed({} operators, {} ranges)", self.chain.len(), self.landing.ranges.len())
    }
}

impl Feed {
    pub fn new(near: &Arc<Near>, chain: &[Op], landing: Landing) -> Feed {
        Feed { near: Arc::clone(near), chain: operator_blocks(chain), landing }
    }

    pub(super) fn run(
        &self,
        pipe: &OwnedFd,
        outcome: &DriveOutcome,
        ended: &mut Ended,
    ) -> Result<(), DriveFailure> {
        check_chain(&self.chain)?;
        let _turn = self.near.turn();
        let Some(number) = self.landing.endpoint.disk() else {
            return Err(self.landing.is_no_file());
        };
        let (device, _) =
            Device::of(number).map_err(|failure| DriveFailure { stage: Stage::Destination, ..failure })?;
        let landed = self.landing.hold(&self.near, &device)?;
        let stream = Stream::open(&device, &self.chain, None, &[])?;
        let mut input = Input::new(pipe, outcome, device.most);
        let moved = landed.pass(&stream, || Ok(()), Some(&mut input));
        // Also if it failed: the digests as they are, and the operator that failed.
        let page = stream.page();
        if let Ok(page) = &page {
            page.store(ended);
        }
        ended.out = Some(landed.written());
        let whole = match moved {
            Err(Moved::Failed(failure)) => Err(page.ok().and_then(|page| page.failure).unwrap_or(failure)),
            // The kernel backend says why the source did not bring all.
            Err(Moved::Unwanted) => {
                landed.forget();
                return Ok(());
            }
            Ok(()) => page.map(|_| ()),
        };
        if whole.is_err() {
            landed.forget();
        }
        whole?;
        landed.finish(&device)
    }
}

/// Input of a stream: bytes of a pipe, a bufferful at a time.
pub(super) struct Input<'a> {
    pipe: &'a OwnedFd,
    outcome: &'a DriveOutcome,
    buffer: Buffer,
    /// Bytes in the buffer that the stream has not taken yet.
    length: usize,
    /// The pipe has brought all.
    ended: bool,
    /// The stream has the end.
    told: bool,
    /// The stream wants more.
    pub is_wanted: bool,
}

impl<'a> Input<'a> {
    fn new(pipe: &'a OwnedFd, outcome: &'a DriveOutcome, room: usize) -> Input<'a> {
        let buffer = Buffer::new(room);
        Input { pipe, outcome, buffer, length: 0, ended: false, told: false, is_wanted: true }
    }

    /// Fills the buffer, as far as the pipe brings something. Whenever it waits, `look` says whether to go on.
    fn fill(&mut self, look: &impl Fn() -> Result<(), Moved>) -> Result<(), Moved> {
        while !self.ended && self.length < self.buffer.bytes().len() {
            match rustix::io::read(self.pipe, &mut self.buffer.bytes_mut()[self.length..]) {
                // The pipe ends after its transfer has.
                Ok(0) if !self.outcome.is_whole() => return Err(Moved::Unwanted),
                Ok(0) => self.ended = true,
                Ok(read) => self.length += read,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    look()?;
                    let _ = poll(self.pipe, PollFlags::IN, 100);
                }
                Err(errno) => {
                    return Err(DriveFailure::new(Status::ReadError, errno.raw_os_error()).into());
                }
            }
        }
        Ok(())
    }

    /// Has the drive write whole blocks of the stream's output, and gives it more input if the stream wants that.
    pub fn land(
        &mut self,
        stream: &Stream<'_>,
        first: u64,
        room: u32,
        look: &impl Fn() -> Result<(), Moved>,
    ) -> Result<(u64, State), Moved> {
        if !self.is_wanted {
            let (made, state) = stream.land(first, room)?;
            self.is_wanted = state == State::Hungry;
            return Ok((made, state));
        }
        self.fill(look)?;
        self.feed(stream, Some((first, room)))
    }

    /// Sends more input if the stream wants it; what comes out is for later commands.
    pub fn send(&mut self, stream: &Stream<'_>, look: &impl Fn() -> Result<(), Moved>) -> Result<(), Moved> {
        if self.is_wanted {
            self.fill(look)?;
            self.feed(stream, None)?;
        }
        Ok(())
    }

    fn feed(&mut self, stream: &Stream<'_>, place: Option<(u64, u32)>) -> Result<(u64, State), Moved> {
        if self.told {
            // It has all: nothing is left to send.
            return Err(DriveFailure::new(Status::InternalError, 0).into());
        }
        let operator_blocks = (self.length, self.ended);
        let whole = self.length.next_multiple_of(4);
        let bytes = (self.length > 0).then(|| &mut self.buffer.bytes_mut()[..whole]);
        let (taken, made, state) = stream.feed(bytes, operator_blocks, place)?;
        self.told = self.ended && taken == self.length;
        self.buffer.bytes_mut().copy_within(taken..self.length, 0);
        self.length -= taken;
        self.is_wanted = state == State::Hungry || self.length > 0;
        Ok((made, state))
    }
}
