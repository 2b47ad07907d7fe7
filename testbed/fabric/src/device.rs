//! The interface of device models. The fabric calls them for each event, and they answer with actions.

use std::any::Any;
use std::time::Duration;

use dcs_drivers::bus::{BusError, Window};

use crate::fault::{Fault, Injector, Operation};

/// A device model: one PCIe function.
pub trait Device: Any + Send {
    /// Returns the lengths of its BARs in bytes: powers of two, at least 4096.
    fn bars(&self) -> Vec<u64>;

    /// Tells the device the windows of its BARs.
    fn placed(&mut self, bars: &[Window]) {
        let _ = bars;
    }

    /// Handles a read of `bytes.len()` bytes from a BAR, never across a page.
    fn read(&mut self, bar: usize, offset: u64, bytes: &mut [u8], cx: &mut Context<'_>);

    /// Handles a write to a BAR, never across a page.
    fn write(&mut self, bar: usize, offset: u64, bytes: &[u8], cx: &mut Context<'_>);

    /// Handles the answer to a read that the device made with [`Context::read`].
    fn read_done(&mut self, token: u64, data: Result<Vec<u8>, BusError>, cx: &mut Context<'_>);

    /// Handles a timer set with [`Context::after`].
    fn timer(&mut self, token: u64, cx: &mut Context<'_>);

    /// Handles a frame from the wire, without its frame check sequence.
    fn frame(&mut self, frame: Vec<u8>, cx: &mut Context<'_>) {
        let _ = (frame, cx);
    }

    /// Handles the loss or the return of the wire's carrier.
    fn carrier(&mut self, up: bool, cx: &mut Context<'_>) {
        let _ = (up, cx);
    }

    /// Stops the device, for a fault: until its own reset, or until the function's reset if `hard`.
    fn hang(&mut self, hard: bool);

    /// Resets the function (a function level reset, or power). Operations in progress are still answered; ignore the answers.
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

/// Context in which a device is called.
pub struct Context<'a> {
    pub(crate) now: Duration,
    pub(crate) backlog: Duration,
    pub(crate) actions: Vec<Action>,
    pub(crate) faults: &'a mut Injector,
}

impl Context<'_> {
    /// Returns the time since the fabric's start.
    pub fn now(&self) -> Duration {
        self.now
    }

    /// Returns the time for which the device's link remains busy with data given before this call. A read waits behind earlier
    /// writes, so a device with much to write should write bit by bit.
    pub fn backlog(&self) -> Duration {
        self.backlog
    }

    /// Reads any length from a bus address, and calls [`Device::read_done`] with the token, also for a length of zero. The fabric
    /// splits the read at pages.
    pub fn read(&mut self, address: u64, length: u64, token: u64) {
        self.actions.push(Action::Read { address, length, token });
    }

    /// Writes to a bus address. The write is posted.
    pub fn write(&mut self, address: u64, bytes: Vec<u8>) {
        self.actions.push(Action::Write { address, bytes });
    }

    /// Raises an interrupt. It does not pass earlier writes.
    pub fn interrupt(&mut self, vector: u16) {
        self.actions.push(Action::Interrupt(vector));
    }

    /// Calls [`Device::timer`] after this time. A timer cannot be cancelled.
    pub fn after(&mut self, time: Duration, token: u64) {
        self.actions.push(Action::After(time, token));
    }

    /// Sends a frame, without its frame check sequence.
    pub fn send(&mut self, frame: Vec<u8>) {
        self.actions.push(Action::Send(frame));
    }

    /// Returns the fault that strikes this operation, if any. Removal and a hung bus interface are carried out here; the device
    /// then only has to stop.
    pub(crate) fn strike(&mut self, operation: &Operation) -> Option<Fault> {
        let fault = self.faults.strike(operation);
        if let Some(Fault::Remove | Fault::HangBus) = fault {
            self.actions.extend(fault.map(Action::Break))
        }
        fault
    }
}
