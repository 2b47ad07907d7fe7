//! The transmit ring: descriptors in own memory, completions by the done bit of a frame's last descriptor.

use super::descriptor::{self, DONE, Descriptor, LENGTH, Position};
use super::frame::{Frame, TransmitError};
use super::model::Chip;
use crate::bus::Bus;
use dcs_engine::Nanos;
use std::collections::VecDeque;

/// A frame that is in the ring.
#[derive(Debug)]
pub struct Pending {
    pub id: u64,
    pub deadline: Nanos,
    last: u16,
    count: u16,
}

/// The ring.
#[derive(Debug)]
pub struct Ring {
    /// Frames in the order in which they were given.
    pub pending: VecDeque<Pending>,
    chip: &'static Chip,
    base: u64,
    entries: u16,
    tail: u16,
    rung: u16,
    used: u16,
    /// The context that the NIC has.
    context: Option<Descriptor>,
}

impl Ring {
    pub fn new(chip: &'static Chip, entries: u16) -> Ring {
        Ring { pending: VecDeque::new(), chip, base: 0, entries, tail: 0, rung: 0, used: 0, context: None }
    }

    /// Empties the ring, which is at `base` from now on. Frames in it are to be ended before.
    pub fn clear(&mut self, bus: &mut dyn Bus, base: u64) {
        for entry in 0..u64::from(self.entries) {
            bus.store(base + entry * LENGTH, &[0; LENGTH as usize]);
        }
        self.base = base;
        self.pending.clear();
        (self.tail, self.rung, self.used, self.context) = (0, 0, 0, None);
    }

    /// Puts a frame into the ring. It is checked already.
    pub fn push(
        &mut self,
        bus: &mut dyn Bus,
        (id, deadline): (u64, Nanos),
        frame: &Frame<'_>,
        payload: u32,
    ) -> Result<(), TransmitError> {
        let offload = frame.offload.as_ref();
        let context = offload.map(|offload| descriptor::context(self.chip.format, offload, payload));
        // A segmented frame needs a context of its own: some NICs count it down.
        let segmented = offload.is_some_and(|offload| offload.segment.is_some());
        let context = context.filter(|context| segmented || self.context != Some(*context));
        let pieces: u64 = frame.data.iter().map(|piece| piece.length.div_ceil(self.chip.piece)).sum();
        let count = pieces + u64::from(context.is_some());
        if count >= u64::from(self.entries) {
            return Err(TransmitError::Pieces);
        }
        if count >= u64::from(self.entries - self.used) {
            return Err(TransmitError::Full);
        }
        if let Some(context) = context {
            self.context = Some(context);
            self.store(bus, &context);
        }
        let mut left = pieces;
        for piece in frame.data {
            let mut done = 0;
            while done < piece.length {
                let length = self.chip.piece.min(piece.length - done);
                let at = Position { first: left == pieces, last: left == 1, payload };
                let address = piece.address.wrapping_add(done);
                self.store(bus, &descriptor::data(self.chip.format, address, length as u32, offload, at));
                (done, left) = (done + length, left - 1);
            }
        }
        let last = if self.tail == 0 { self.entries - 1 } else { self.tail - 1 };
        self.used += count as u16;
        self.pending.push_back(Pending { id, deadline, last, count: count as u16 });
        Ok(())
    }

    fn store(&mut self, bus: &mut dyn Bus, descriptor: &Descriptor) {
        bus.store(self.base + u64::from(self.tail) * LENGTH, descriptor);
        self.tail = if self.tail + 1 == self.entries { 0 } else { self.tail + 1 };
    }

    /// Takes the oldest frame out, if it is sent.
    pub fn reap(&mut self, bus: &dyn Bus) -> Option<Pending> {
        let last = self.pending.front()?.last;
        let mut status = [0; 4];
        bus.load(self.base + u64::from(last) * LENGTH + 12, &mut status);
        if u32::from_le_bytes(status) & DONE == 0 {
            return None;
        }
        let pending = self.pending.pop_front()?;
        self.used -= pending.count;
        Some(pending)
    }

    /// The tail, if the NIC does not know it yet.
    pub fn ring(&mut self) -> Option<u16> {
        let changed = self.rung != self.tail;
        self.rung = self.tail;
        changed.then_some(self.tail)
    }
}
