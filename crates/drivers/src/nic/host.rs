//! The NIC as its owner sees it: frames in, frames out.

use super::config::{Config, ConfigError, Layout, ResetCause};
use super::frame::{Frame, MAX_SEGMENTED, Received, TransmitError};
use super::lend::Lending;
use super::model::{Chip, Model, ring};
use super::receive::{self, Bad};
use super::start::Stage;
use super::transmit;
use crate::bus::{Bus, ReadDone, Region, Window};
use crate::nvme::Memory;
use crate::registers::Registers;
use dcs_engine::Nanos;
use std::collections::VecDeque;

/// The end of a frame's transmission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// The owner's name for it.
    pub id: u64,
    /// Success if the NIC has taken it, or why the NIC was reset. Nothing tells whether a frame has arrived anywhere.
    pub result: Result<(), ResetCause>,
    /// Owner of the frame's memory now.
    pub memory: Memory,
}

/// The state of a NIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Not started.
    Off,
    /// Being reset and set up.
    Starting,
    /// Set up. Frames are sent when there is a link.
    Ready,
    /// Given up. [`Nic::reset`] tries again.
    Failed(ResetCause),
}

/// Counters since the driver was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames given to the NIC. A segmented frame counts once.
    pub transmitted: u64,
    /// Frames received.
    pub received: u64,
    /// Frames that arrived damaged, or in too many pieces.
    pub dropped: u64,
    /// Frames that were not sent in time.
    pub hung: u64,
    /// Resets, not counting the first start.
    pub resets: u64,
    /// Times that the link came or went.
    pub link_changes: u64,
    /// Writes to doorbells: the tails of both rings.
    pub doorbells: u64,
}

/// A NIC; see the [module](super).
#[derive(Debug)]
pub struct Nic {
    pub(super) config: Config,
    pub(super) chip: &'static Chip,
    pub(super) region: Region,
    pub(super) registers: Registers,
    pub(super) stage: Stage,
    /// Time by which the stage must be over.
    pub(super) until: Option<Nanos>,
    /// Time of the next register read.
    pub(super) look: Option<Nanos>,
    /// Stage to end in when the NIC has stopped; `None`: it is started again.
    pub(super) then: Option<Stage>,
    pub(super) attempts: u32,
    pub(super) layout: Layout,
    pub(super) transmit: transmit::Ring,
    pub(super) receive: receive::Ring,
    pub(super) address_low: u32,
    pub(super) address: Option<[u8; 6]>,
    pub(super) link: bool,
    pub(super) sent: VecDeque<Sent>,
    pub(super) received: VecDeque<Received>,
    pub(super) held: Vec<u64>,
    pub(super) freed: VecDeque<u64>,
    pub(super) counters: Counters,
    pub(super) lending: Lending,
}

impl Nic {
    /// Makes the driver of a NIC, with rings and receive buffers in `region`. The NIC may read and write that from now on, until it has
    /// stopped ([`State::Off`]) or the owner reports its reset ([`Nic::on_reset`]).
    ///
    /// # Errors
    ///
    /// [`ConfigError`](super::ConfigError) if the settings make no sense, or the region is too small.
    pub fn new(config: Config, region: Region) -> Result<Nic, ConfigError> {
        config.check()?;
        let (length, needed) = (region.length(), config.memory());
        if length < needed {
            return Err(ConfigError::Region { length, needed });
        }
        let chip = config.model.chip();
        Ok(Nic {
            config,
            chip,
            region,
            registers: Registers::new(config.registers, config.controller),
            stage: Stage::Off,
            until: None,
            look: None,
            then: None,
            attempts: 0,
            layout: Layout::default(),
            transmit: transmit::Ring::new(chip, config.page, config.transmit),
            receive: receive::Ring::new(config.receive_format(), config.receive, config.buffers),
            address_low: 0,
            address: None,
            link: false,
            sent: VecDeque::new(),
            received: VecDeque::new(),
            held: Vec::new(),
            freed: VecDeque::new(),
            counters: Counters::default(),
            lending: Lending::default(),
        })
    }

    /// Drives the NIC at `registers` from now on, which is not started yet. Received frames that were not returned become free again.
    /// Returns false if the previous NIC may still reach the memory of frames, or if `registers` can't be a NIC's.
    pub fn relocate(&mut self, registers: Window, model: Model) -> bool {
        let config = Config { registers, model, ..self.config };
        let rests = matches!(self.stage, Stage::Off | Stage::Failed(_))
            && self.held.is_empty()
            && !self.lending.is_lent;
        if !rests || config.check().is_err() || config.memory() > self.region.length() {
            return false;
        }
        self.config = config;
        self.chip = model.chip();
        self.registers.relocate(registers);
        self.transmit = transmit::Ring::new(self.chip, config.page, config.transmit);
        self.receive = receive::Ring::new(config.receive_format(), config.receive, config.buffers);
        self.received.clear();
        (self.address, self.stage) = (None, Stage::Off);
        true
    }

    /// Returns its state.
    pub fn state(&self) -> State {
        match self.stage {
            Stage::Off => State::Off,
            Stage::Ready => State::Ready,
            Stage::Failed(failure) => State::Failed(failure),
            _ => State::Starting,
        }
    }

    /// Returns its Ethernet address, once it has been read.
    pub fn address(&self) -> Option<[u8; 6]> {
        self.address
    }

    /// Returns true if there was a link at the last check; checks are periodic.
    pub fn link(&self) -> bool {
        self.link && self.stage == Stage::Ready
    }

    /// Returns the counters since the driver was made.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Returns the number of frames that are yet to be sent.
    pub fn outstanding(&self) -> usize {
        self.transmit.pending.len()
    }

    /// Takes a frame under the name `id`, which [`Sent::id`] returns. The NIC learns of it by the next [`Nic::ring`] or [`Nic::poll`].
    ///
    /// # Errors
    ///
    /// [`TransmitError`]; nothing was done then.
    pub fn transmit(
        &mut self,
        bus: &mut dyn Bus,
        now: Nanos,
        id: u64,
        frame: &Frame<'_>,
    ) -> Result<(), TransmitError> {
        if self.stage != Stage::Ready {
            return Err(TransmitError::NotReady);
        }
        if !self.link {
            return Err(TransmitError::LinkDown);
        }
        let length = frame.data.iter().try_fold(0u64, |sum, piece| sum.checked_add(piece.length));
        let segmented = frame.offload.is_some_and(|offload| offload.segment.is_some());
        let max = if segmented { MAX_SEGMENTED } else { self.config.max_frame.into() };
        let length = length.filter(|length| *length <= max).ok_or(TransmitError::TooLong { max })?;
        if length < 14 || frame.data.iter().any(|piece| piece.length == 0) {
            return Err(TransmitError::Empty);
        }
        let headers = frame.offload.map_or(Ok(0), |offload| offload.check(length))?;
        let payload = if segmented { length - headers } else { length };
        let deadline = now.saturating_add(self.config.timeout);
        self.transmit.push(bus, (id, deadline), frame, payload as u32)?;
        self.counters.transmitted += 1;
        Ok(())
    }

    /// Tells the NIC of everything that it was given since the last time, with at most one doorbell per ring.
    pub fn ring(&mut self, bus: &mut dyn Bus) {
        if self.stage != Stage::Ready {
            return;
        }
        if !self.config.lend_receive {
            self.receive.refill(bus);
        }
        let rings = [(self.chip.receive, self.receive.ring()), (self.chip.transmit, self.transmit.ring())];
        for (base, tail) in rings {
            if let Some(tail) = tail {
                self.registers.write32(bus, base + ring::TAIL, tail.into());
                self.counters.doorbells += 1;
            }
        }
    }

    /// Clears pending interrupts for what has been sent and received by now, if interrupts are on ([`Config::interrupts`]). After this, a
    /// caller that waits for the answer to a register read and then polls has seen everything that was cleared; anything later raises the
    /// interrupt of the next [`Nic::arm`].
    pub fn quiet(&mut self, bus: &mut dyn Bus) {
        if self.stage == Stage::Ready && self.config.interrupts {
            let (register, value) = self.chip.quiet;
            self.registers.write32(bus, register, value);
        }
    }

    /// Allows one interrupt for the next frame that is sent or received, if interrupts are on ([`Config::interrupts`]). A frame that was
    /// sent or received since the last interrupt, or since [`Nic::quiet`], raises it at once.
    pub fn arm(&mut self, bus: &mut dyn Bus) {
        if self.stage == Stage::Ready && self.config.interrupts {
            let (register, value) = self.chip.arm;
            self.registers.write32(bus, register, value);
        }
    }

    /// Disables interrupts until the next [`Nic::arm`].
    pub fn disarm(&mut self, bus: &mut dyn Bus) {
        if self.stage == Stage::Ready && self.config.interrupts {
            let (register, value) = self.chip.disarm;
            self.registers.write32(bus, register, value);
        }
    }

    /// Reaps sent and received frames, does what is due, rings.
    pub fn poll(&mut self, bus: &mut dyn Bus, now: Nanos) {
        if self.stage == Stage::Ready {
            self.reap_sent(bus);
            if !self.config.lend_receive {
                self.reap_received(bus, now);
            }
        }
        self.check_time(bus, now);
        self.ring(bus);
    }

    /// Processes the answer to one of this NIC's register reads. Others, and late ones, are ignored.
    pub fn read_done(&mut self, bus: &mut dyn Bus, now: Nanos, done: ReadDone) {
        if let Some(answer) = self.registers.answer(&done) {
            self.register(bus, now, answer);
            self.ring(bus);
        }
    }

    /// Returns the latest time for the next call of [`Nic::poll`].
    pub fn deadline(&self) -> Option<Nanos> {
        match self.stage {
            Stage::Off | Stage::Failed(_) => None,
            _ => [self.until, self.look, self.hang_deadline()].into_iter().flatten().min(),
        }
    }

    /// Returns the next frame that was sent, or that never will be. Each frame that was taken ends once.
    pub fn sent(&mut self) -> Option<Sent> {
        self.sent.pop_front()
    }

    /// Returns the next frame whose memory was [`Memory::Held`] and is its owner's again.
    pub fn freed(&mut self) -> Option<u64> {
        self.freed.pop_front()
    }

    /// Returns the next received frame.
    pub fn received(&mut self) -> Option<Received> {
        self.received.pop_front()
    }

    /// Takes a frame's memory back, for later frames.
    pub fn give_back(&mut self, frame: Received) {
        self.receive.give_back(&frame);
    }

    fn reap_sent(&mut self, bus: &dyn Bus) {
        while let Some(frame) = self.transmit.reap(bus) {
            self.attempts = 0;
            self.sent.push_back(Sent { id: frame.id, result: Ok(()), memory: Memory::Quiet });
        }
    }

    /// Reaps at most as many frames as the ring holds, so that a NIC that writes without end doesn't hold the caller up.
    fn reap_received(&mut self, bus: &mut dyn Bus, now: Nanos) {
        for _ in 0..self.config.receive {
            match self.receive.take(bus) {
                None => return,
                Some(Ok(frame)) => {
                    self.counters.received += 1;
                    self.received.push_back(frame);
                }
                Some(Err(Bad::Dropped)) => self.counters.dropped += 1,
                Some(Err(Bad::Impossible)) => return self.fail(bus, now, ResetCause::Impossible),
            }
        }
    }
}
