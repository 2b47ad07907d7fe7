//! The NIC as its owner sees it: frames in, frames out.

use super::config::{Config, ConfigError, Layout, ResetCause};
use super::frame::{Frame, MAX_SEGMENTED, Received, TransmitError};
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
    /// The NIC has taken it, or why the NIC was reset. Nothing tells whether a frame has
    /// arrived anywhere.
    pub result: Result<(), ResetCause>,
    /// The owner of its memory now.
    pub memory: Memory,
}

/// The state of a NIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Not started.
    Off,
    /// Being reset and set up.
    Starting,
    /// Set up. Frames go when there is a link.
    Ready,
    /// Given up. [`Nic::reset`] tries again.
    Failed(ResetCause),
}

/// Counters since the driver was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames given to the NIC. One that is segmented is one.
    pub transmitted: u64,
    /// Frames received.
    pub received: u64,
    /// Frames that came damaged, or in too many pieces.
    pub dropped: u64,
    /// Frames that were not sent in time.
    pub hung: u64,
    /// Resets, without the first start.
    pub resets: u64,
    /// Times that the link came or went.
    pub link_changes: u64,
    /// Doorbell writes: the tails of both rings.
    pub doorbells: u64,
}

/// A NIC. See the [module](super).
#[derive(Debug)]
pub struct Nic {
    pub(super) config: Config,
    pub(super) chip: &'static Chip,
    pub(super) region: Region,
    pub(super) registers: Registers,
    pub(super) stage: Stage,
    /// When the stage has to be over.
    pub(super) until: Option<Nanos>,
    /// When a register is to be read next.
    pub(super) look: Option<Nanos>,
    /// The stage to end in when the NIC has stopped; none: it is started again.
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
}

impl Nic {
    /// Makes the driver of a NIC, with rings and receive buffers in `region`. The NIC may read and write that
    /// from now on, until it was stopped ([`State::Off`]) or the owner said that it was reset
    /// ([`Nic::on_reset`]).
    ///
    /// # Errors
    ///
    /// [`ConfigError`](super::ConfigError): the settings make no sense, or the region is too small.
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
        })
    }

    /// Drives the NIC at `registers` from now on, as yet to be started. Frames that were received and not
    /// given back are its own again. False where the one of before may still reach the memory of frames, or
    /// where that are no registers.
    pub fn relocate(&mut self, registers: Window, model: Model) -> bool {
        let config = Config { registers, model, ..self.config };
        let rests = matches!(self.stage, Stage::Off | Stage::Failed(_)) && self.held.is_empty();
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

    /// Its state.
    pub fn state(&self) -> State {
        match self.stage {
            Stage::Off => State::Off,
            Stage::Ready => State::Ready,
            Stage::Failed(failure) => State::Failed(failure),
            _ => State::Starting,
        }
    }

    /// Its Ethernet address, once it has been read.
    pub fn address(&self) -> Option<[u8; 6]> {
        self.address
    }

    /// True if there was a link when it was last looked at, which is done now and then.
    pub fn link(&self) -> bool {
        self.link && self.stage == Stage::Ready
    }

    /// Counters since the driver was made.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Frames that are yet to be sent.
    pub fn outstanding(&self) -> usize {
        self.transmit.pending.len()
    }

    /// Takes a frame, as `id`, which comes back in [`Sent::id`]. The NIC learns of it by the next
    /// [`Nic::ring`] or [`Nic::poll`].
    ///
    /// # Errors
    ///
    /// [`TransmitError`]; then nothing was done.
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

    /// Tells the NIC of all that was given to it since the last time, by at most one doorbell a ring.
    pub fn ring(&mut self, bus: &mut dyn Bus) {
        if self.stage != Stage::Ready {
            return;
        }
        self.receive.refill(bus);
        let rings = [(self.chip.receive, self.receive.ring()), (self.chip.transmit, self.transmit.ring())];
        for (base, tail) in rings {
            if let Some(tail) = tail {
                self.registers.write32(bus, base + ring::TAIL, tail.into());
                self.counters.doorbells += 1;
            }
        }
    }

    /// Has the NIC forget what was sent and has come by now, where there are interrupts
    /// ([`Config::interrupts`]). Who does this, has a register read answered, and polls, has seen all that it
    /// forgot; what is sent or comes later raises the interrupt of the next [`Nic::arm`].
    pub fn quiet(&mut self, bus: &mut dyn Bus) {
        if self.stage == Stage::Ready && self.config.interrupts {
            let (register, value) = self.chip.quiet;
            self.registers.write32(bus, register, value);
        }
    }

    /// Has the next frame that was sent or has come raise an interrupt, one, where there are interrupts
    /// ([`Config::interrupts`]). One that was sent or has come since the last interrupt, or since
    /// [`Nic::quiet`], raises it at once.
    pub fn arm(&mut self, bus: &mut dyn Bus) {
        if self.stage == Stage::Ready && self.config.interrupts {
            let (register, value) = self.chip.arm;
            self.registers.write32(bus, register, value);
        }
    }

    /// Has no frame raise an interrupt, until the next [`Nic::arm`].
    pub fn disarm(&mut self, bus: &mut dyn Bus) {
        if self.stage == Stage::Ready && self.config.interrupts {
            let (register, value) = self.chip.disarm;
            self.registers.write32(bus, register, value);
        }
    }

    /// Reaps what was sent and received, does what is due, rings.
    pub fn poll(&mut self, bus: &mut dyn Bus, now: Nanos) {
        if self.stage == Stage::Ready {
            self.reap_sent(bus);
            self.reap_received(bus, now);
        }
        self.check_time(bus, now);
        self.ring(bus);
    }

    /// The answer to one of this NIC's register reads. Those of others, and late ones, are ignored.
    pub fn read_done(&mut self, bus: &mut dyn Bus, now: Nanos, done: ReadDone) {
        if let Some(answer) = self.registers.answer(&done) {
            self.register(bus, now, answer);
            self.ring(bus);
        }
    }

    /// When [`Nic::poll`] is to be called at the latest, whatever else happens.
    pub fn deadline(&self) -> Option<Nanos> {
        match self.stage {
            Stage::Off | Stage::Failed(_) => None,
            _ => [self.until, self.look, self.hang_deadline()].into_iter().flatten().min(),
        }
    }

    /// The next frame that was sent, or that never will be. Each that was taken ends once.
    pub fn sent(&mut self) -> Option<Sent> {
        self.sent.pop_front()
    }

    /// The next frame whose memory was [`Memory::Held`] and is its owner's again.
    pub fn freed(&mut self) -> Option<u64> {
        self.freed.pop_front()
    }

    /// The next frame that came.
    pub fn received(&mut self) -> Option<Received> {
        self.received.pop_front()
    }

    /// Takes the memory of a frame back, for others to come.
    pub fn give_back(&mut self, frame: Received) {
        self.receive.give_back(&frame);
    }

    fn reap_sent(&mut self, bus: &dyn Bus) {
        while let Some(frame) = self.transmit.reap(bus) {
            self.attempts = 0;
            self.sent.push_back(Sent { id: frame.id, result: Ok(()), memory: Memory::Quiet });
        }
    }

    /// At most as many as the ring holds, so that a NIC that writes without end doesn't hold the caller up.
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
