//! A NIC with D2D streams. The legacy NIC's BARs come first, then one with registers and templates, then the aperture.
//!
//! The legacy model is unaware of it: frames that it sends go through the D2D function's priority control, and frames from the
//! network are first offered to Parse Control.

use std::time::Duration;

use dcs_d2d::nic::{Config, Received};
use dcs_d2d::register::APERTURE_BASE;
use dcs_d2d::{Action as Deed, ConfigError};
use dcs_drivers::bus::{BusError, Window};

use super::{AHEAD, Alarm, CHUNK, nanos};
use crate::device::{Action, Context, Device};
use crate::link::Ps;

/// Token of the timer for the state machine's deadline. Tokens are above those of any legacy model.
const DEADLINE: u64 = u64::MAX;
/// Token of the timer for room on the link.
const ROOM: u64 = u64::MAX - 1;
/// Token of the timer for a free wire.
const WIRE: u64 = u64::MAX - 2;

/// Configuration of a NIC's D2D function.
#[derive(Clone, Copy, Debug)]
pub struct NicConfig {
    /// Configuration of the state machine.
    pub function: Config,
    /// Bits per second, the same as the wire's.
    pub rate: u64,
    /// Interrupt vector, one that the legacy function does not use.
    pub vector: u16,
}

impl NicConfig {
    /// Returns the usual configuration for 10 Gb/s, with this many streams.
    pub fn new(streams: u16) -> NicConfig {
        let function = Config { legacy: usize::MAX, ..Config::new(streams) };
        NicConfig { function, rate: 10_000_000_000, vector: 0x100 }
    }
}

/// A legacy NIC with D2D streams added.
pub struct Nic<L> {
    config: NicConfig,
    function: dcs_d2d::Nic,
    legacy: L,
    /// Number of the legacy function's BARs.
    bars: usize,
    base: u64,
    /// Time at which the wire is free.
    free: Ps,
    alarm: Alarm,
    waits: bool,
    sends: bool,
    hung: bool,
}

impl<L: Device> Nic<L> {
    /// Returns a NIC after power on.
    pub fn new(config: NicConfig, legacy: L) -> Result<Nic<L>, ConfigError> {
        let mut function = dcs_d2d::Nic::new(config.function)?;
        function.set_link(false);
        Ok(Nic {
            config,
            function,
            bars: legacy.bars().len(),
            legacy,
            base: 0,
            free: 0,
            alarm: Alarm::default(),
            waits: false,
            sends: false,
            hung: false,
        })
    }

    /// Returns the legacy NIC.
    pub fn legacy(&mut self) -> &mut L {
        &mut self.legacy
    }

    /// Returns the state machine.
    pub fn function(&mut self) -> &mut dcs_d2d::Nic {
        &mut self.function
    }

    /// Returns the number of the BAR with the registers; the next one is the aperture.
    pub fn registers(&self) -> usize {
        self.bars
    }

    /// Reads registers without the bus, as a debugger does.
    pub fn peek(&self, offset: u64) -> u64 {
        let mut bytes = [0; 8];
        self.function.read(offset, &mut bytes);
        u64::from_le_bytes(bytes)
    }

    fn set_base(&mut self) {
        self.function.write(APERTURE_BASE, &self.base.to_le_bytes(), 0);
    }

    /// Calls the legacy NIC. Its frames are queued here; its other actions are carried out.
    fn call(&mut self, cx: &mut Context<'_>, with: impl FnOnce(&mut L, &mut Context<'_>)) {
        let mut inner =
            Context { now: cx.now, backlog: cx.backlog, actions: Vec::new(), faults: &mut *cx.faults };
        with(&mut self.legacy, &mut inner);
        for action in inner.actions {
            match action {
                // The queue has no limit: the legacy model waits for the wire by itself.
                Action::Send(frame) => drop(self.function.send_legacy(frame)),
                action => cx.actions.push(action),
            }
        }
        self.send(cx);
    }

    /// Sends a frame if the wire is free.
    fn send(&mut self, cx: &mut Context<'_>) {
        if self.hung || self.sends {
            return;
        }
        let now = nanos(cx.now());
        let Some(frame) = self.function.next_frame(now) else { return };
        // Preamble, frame check sequence and gap, and padding to 60 bytes, as on the wire.
        let bits = (frame.bytes.len().max(60) as u64 + 24) * 8;
        let start = self.free.max(now * 1000);
        self.free = start + bits * 1_000_000_000_000 / self.config.rate;
        cx.send(frame.bytes);
        self.sends = true;
        // The wire gets the next frame in the nanosecond in which it becomes free.
        cx.after(Duration::from_nanos((self.free / 1000).saturating_sub(now)), WIRE);
    }

    /// Runs the state machine as far as the link has room.
    fn work(&mut self, cx: &mut Context<'_>) {
        self.send(cx);
        if self.hung || self.waits {
            return;
        }
        let now = nanos(cx.now());
        let mut room = if cx.backlog() > AHEAD { 0 } else { CHUNK };
        while room > 0 {
            let Some(deed) = self.function.poll(now) else {
                self.alarm.set(self.function.next_deadline(), DEADLINE, cx);
                return self.send(cx);
            };
            match deed {
                Deed::Write { address, data, .. } => {
                    room = room.saturating_sub(data.len());
                    cx.write(address, data);
                }
                Deed::Interrupt { stream: _ } => cx.interrupt(self.config.vector),
                Deed::Legacy { frame } => self.call(cx, |legacy, cx| legacy.frame(frame, cx)),
                Deed::Read { .. } | Deed::Store { .. } => unreachable!("a NIC has no medium"),
            }
        }
        self.waits = true;
        cx.after(cx.backlog().saturating_sub(AHEAD), ROOM);
    }
}

impl<L: Device> Device for Nic<L> {
    fn bars(&self) -> Vec<u64> {
        let config = self.config.function;
        let mut bars = self.legacy.bars();
        bars.extend([config.registers().max(4096), config.aperture().next_power_of_two()]);
        bars
    }

    fn placed(&mut self, bars: &[Window]) {
        self.legacy.placed(&bars[..self.bars]);
        self.base = bars[self.bars + 1].address;
        self.set_base();
    }

    fn read(&mut self, bar: usize, offset: u64, bytes: &mut [u8], cx: &mut Context<'_>) {
        match bar.checked_sub(self.bars) {
            None => self.call(cx, |legacy, cx| legacy.read(bar, offset, bytes, cx)),
            Some(0) => self.function.read(offset, bytes),
            Some(_) => bytes.fill(0),
        }
    }

    fn write(&mut self, bar: usize, offset: u64, bytes: &[u8], cx: &mut Context<'_>) {
        let now = nanos(cx.now());
        match bar.checked_sub(self.bars) {
            None => return self.call(cx, |legacy, cx| legacy.write(bar, offset, bytes, cx)),
            Some(_) if self.hung => return,
            Some(0) => self.function.write(offset, bytes, now),
            Some(_) => self.function.data(offset, bytes, now),
        }
        self.work(cx);
    }

    fn read_done(&mut self, token: u64, data: Result<Vec<u8>, BusError>, cx: &mut Context<'_>) {
        self.call(cx, |legacy, cx| legacy.read_done(token, data, cx));
    }

    fn timer(&mut self, token: u64, cx: &mut Context<'_>) {
        match token {
            DEADLINE => self.alarm.rang(cx),
            ROOM => self.waits = false,
            WIRE => self.sends = false,
            _ => return self.call(cx, |legacy, cx| legacy.timer(token, cx)),
        }
        self.work(cx);
    }

    fn frame(&mut self, frame: Vec<u8>, cx: &mut Context<'_>) {
        if self.hung || self.function.receive(&frame, nanos(cx.now())) == Received::Legacy {
            return self.call(cx, |legacy, cx| legacy.frame(frame, cx));
        }
        self.work(cx);
    }

    fn carrier(&mut self, up: bool, cx: &mut Context<'_>) {
        self.function.set_link(up);
        self.call(cx, |legacy, cx| legacy.carrier(up, cx));
        self.work(cx);
    }

    fn hang(&mut self, hard: bool) {
        self.legacy.hang(hard);
        self.hung = true;
    }

    fn reset(&mut self) {
        self.legacy.reset();
        self.function.reset();
        self.set_base();
        self.hung = false;
    }
}
