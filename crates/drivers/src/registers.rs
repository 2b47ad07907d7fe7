//! Reads a controller's registers: one at a time, answered later, known by a tag.

use crate::bus::{Bus, BusError, ReadDone, Tag, Window};

/// The registers of one controller.
#[derive(Debug)]
pub(crate) struct Registers {
    window: Window,
    controller: u32,
    sequence: u32,
    pending: Option<(Tag, usize)>,
}

impl Registers {
    /// Makes the registers in `window`, of the controller that tags call `controller`.
    pub fn new(window: Window, controller: u32) -> Registers {
        Registers { window, controller, sequence: 0, pending: None }
    }

    /// Moves the registers to `window`. An answer that is still due is ignored.
    pub fn relocate(&mut self, window: Window) {
        self.window = window;
        self.pending = None;
    }

    /// Reads a register. An answer that is still due is no longer awaited.
    pub fn read(&mut self, bus: &mut dyn Bus, register: u64, length: u32) {
        self.sequence = self.sequence.wrapping_add(1);
        let tag = Tag::new(self.controller, self.sequence);
        self.pending = Some((tag, length as usize));
        bus.read(self.window.address + register, length, tag);
    }

    /// Returns the value, if this is the awaited answer.
    pub fn answer(&mut self, done: &ReadDone) -> Option<Result<u64, BusError>> {
        let (_, length) = self.pending.filter(|(tag, _)| *tag == done.tag)?;
        self.pending = None;
        Some(match &done.data {
            Ok(bytes) if bytes.len() == length && length <= 8 => {
                Ok(bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
            }
            Ok(_) => Err(BusError::Aborted),
            Err(error) => Err(*error),
        })
    }

    /// Returns true if an answer is due.
    pub fn is_reading(&self) -> bool {
        self.pending.is_some()
    }

    /// Stops waiting for an answer.
    pub fn forget(&mut self) {
        self.pending = None;
    }

    /// Writes 32 bits.
    pub fn write32(&self, bus: &mut dyn Bus, register: u64, value: u32) {
        bus.write(self.window.address + register, &value.to_le_bytes());
    }

    /// Writes 64 bits.
    pub fn write64(&self, bus: &mut dyn Bus, register: u64, value: u64) {
        bus.write(self.window.address + register, &value.to_le_bytes());
    }
}
