//! A function's end of the bus, in the caller's hands: the card's, the host's, or a test's.

use std::time::Duration;

use dcs_drivers::bus::{Bus, Buses, Tag, Window};

use crate::event::Pending;
use crate::fabric::{Fabric, FunctionId, Requester};
use crate::link::to_ps;
use crate::memory::Memory;

/// A function's access to the bus, borrowed from the fabric: see [`Fabric::port`].
pub struct Port<'a> {
    pub(crate) fabric: &'a mut Fabric,
    pub(crate) function: FunctionId,
}

impl Port<'_> {
    /// Returns the time since the fabric's start.
    pub fn now(&self) -> Duration {
        self.fabric.now()
    }

    /// Requests an [`crate::Event::Wake`] after this time: for the duration of work in the card.
    pub fn wake(&mut self, after: Duration, token: u64) {
        let at = self.fabric.now.saturating_add(to_ps(after));
        self.fabric.schedule(at, Pending::Wake { function: self.function, token });
    }

    /// Copies from one of the function's own BARs.
    ///
    /// # Panics
    ///
    /// If the range is outside of it, or the function is a device model.
    pub fn load_bar(&self, bar: usize, offset: u64, bytes: &mut [u8]) {
        self.fabric.load_bar(self.function, bar, offset, bytes);
    }

    /// Copies into one of the function's own BARs.
    ///
    /// # Panics
    ///
    /// The same as [`Port::load_bar`].
    pub fn store_bar(&mut self, bar: usize, offset: u64, bytes: &[u8]) {
        let held = &mut self.fabric.functions[self.function.0].bars[bar];
        assert!(within(held.window, offset, bytes), "outside of the BAR: {offset:#x}");
        let memory: &mut Memory = held.memory.as_mut().expect("plain memory");
        memory.store(offset, bytes);
    }

    fn own(&self) -> usize {
        self.fabric.functions[self.function.0].bars.len() - 1
    }
}

impl Buses for Port<'_> {}

fn within(window: Window, offset: u64, bytes: &[u8]) -> bool {
    offset.checked_add(bytes.len() as u64).is_some_and(|end| end <= window.length)
}

impl Bus for Port<'_> {
    fn window(&self) -> Window {
        self.fabric.bar(self.function, self.own())
    }

    fn load(&self, offset: u64, bytes: &mut [u8]) {
        self.load_bar(self.own(), offset, bytes);
    }

    fn store(&mut self, offset: u64, bytes: &[u8]) {
        self.store_bar(self.own(), offset, bytes);
    }

    fn write(&mut self, address: u64, bytes: &[u8]) {
        self.fabric.issue_write(self.function, address, bytes);
    }

    fn read(&mut self, address: u64, length: u32, tag: Tag) {
        self.fabric.issue_read(self.function, address, u64::from(length), Requester::Port(tag));
    }

    fn interrupt(&mut self, vector: u16) {
        self.fabric.raise(self.function, vector);
    }
}
