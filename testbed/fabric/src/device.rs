//! The interface of device models: the fabric calls them with each event, and they answer with actions.

use std::any::Any;
use std::time::Duration;

use dcs_drivers::bus::{BusError, Window};

use crate::fault::{Fault, Injector, Operation};

/// A device model: one PCIe function.
pub trait Device: Any + Send {
    /// The lengths of its BARs. Bytes, powers of two, at least 4096.
    fn bars(&self) -> Vec<u64>;

    /// The windows of its BARs now.
    fn placed(&mut self, bars: &[Window]) {
        let _ = bars;
    }

    /// Somebody reads `bytes.len()` bytes of a BAR. Never across a page.
    fn read(&mut self, bar: usize, offset: u64, bytes: &mut [u8], cx: &mut Context<'_>);

    /// Somebody writes to a BAR. Never across a page.
    fn write(&mut self, bar: usize, offset: u64, bytes: &[u8], cx: &mut Context<'_>);

    /// The answer to a read that the device made with [`Context::read`].
    fn read_done(&mut self, token: u64, data: Result<Vec<u8>, BusError>, cx: &mut Context<'_>);

    /// The time that [`Context::after`] was asked for has come.
    fn timer(&mut self, token: u64, cx: &mut Context<'_>);

    /// A frame has come over the wire, without its frame check sequence.
    fn frame(&mut self, frame: Vec<u8>, cx: &mut Context<'_>) {
        let _ = (frame, cx);
    }

    /// The wire at the device has got a carrier, or lost it.
    fn carrier(&mut self, up: bool, cx: &mut Context<'_>) {
        let _ = (up, cx);
    }

    /// A fault makes the device stop: until its own reset, or, where it is `hard`, until the function's.
    fn hang(&mut self, hard: bool);

    /// The function is reset (a function level reset, or power). What it had under way is still answered, and
    /// must be ignored.
    fn reset(&mut self);
}

/// An action of a device.
#[derive(Debug)]
pub(crate) enum Action {
    Read { address: u64, length: u64, token: u64 },
    Write { address: u64, bytes: Vec<u8> },
    Interrupt(u16),
    After(Duration, u64),
    Send(Vec<u8>),
    Break(Fault),
}

/// The context in which a device is called.
pub struct Context<'a> {
    pub(crate) now: Duration,
    pub(crate) backlog: Duration,
    pub(crate) actions: Vec<Action>,
    pub(crate) faults: &'a mut Injector,
}

impl Context<'_> {
    /// Since the fabric's start.
    pub fn now(&self) -> Duration {
        self.now
    }

    /// The time for which the device's link is busy yet with what it was given before this call. A read waits
    /// behind the writes before it: a device that has much to write does so bit by bit.
    pub fn backlog(&self) -> Duration {
        self.backlog
    }

    /// Reads from a bus address: [`Device::read_done`] is called with the token. Any length: the fabric makes
    /// requests of it that cross no page. Nothing to read is answered too.
    pub fn read(&mut self, address: u64, length: u64, token: u64) {
        self.actions.push(Action::Read { address, length, token });
    }

    /// Writes to a bus address. Posted.
    pub fn write(&mut self, address: u64, bytes: Vec<u8>) {
        self.actions.push(Action::Write { address, bytes });
    }

    /// Raises an interrupt. It does not pass earlier writes.
    pub fn interrupt(&mut self, vector: u16) {
        self.actions.push(Action::Interrupt(vector));
    }

    /// Calls [`Device::timer`] after so long. A timer can't be taken back.
    pub fn after(&mut self, time: Duration, token: u64) {
        self.actions.push(Action::After(time, token));
    }

    /// Sends a frame, without its frame check sequence.
    pub fn send(&mut self, frame: Vec<u8>) {
        self.actions.push(Action::Send(frame));
    }

    /// The fault that strikes this operation, if any. Removal and a hung bus interface are carried out here;
    /// the device then only has to stop.
    pub(crate) fn strike(&mut self, operation: &Operation) -> Option<Fault> {
        let fault = self.faults.strike(operation);
        if let Some(Fault::Remove | Fault::HangBus) = fault {
            self.actions.extend(fault.map(Action::Break))
        }
        fault
    }
}
