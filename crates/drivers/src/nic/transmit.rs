//! The transmit ring: descriptors in own memory, completions by the done bit of a frame's last descriptor.

use super::descriptor::{self, DONE, Descriptor, LENGTH, Position};
use super::frame::{Frame, TransmitError};
use super::model::Chip;
use crate::bus::{Bus, Window};
use dcs_engine::Nanos;
use std::collections::VecDeque;

/// A frame in the ring.
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
    /// Frames in the order of their submission.
    pub pending: VecDeque<Pending>,
    chip: &'static Chip,
    /// Boundary that no descriptor crosses; see [`Config::page`](super::Config::page).
    page: u64,
    base: u64,
    entries: u16,
    tail: u16,
    rung: u16,
    used: u16,
    /// Context that the NIC has.
    context: Option<Descriptor>,
}

impl Ring {
    pub fn new(chip: &'static Chip, page: u64, entries: u16) -> Ring {
        Ring {
            pending: VecDeque::new(),
            chip,
            page,
            base: 0,
            entries,
            tail: 0,
            rung: 0,
            used: 0,
            context: None,
        }
    }

    /// Empties the ring, which is at `base` from now on. End the frames in it first.
    pub fn clear(&mut self, bus: &mut dyn Bus, base: u64) {
        for entry in 0..u64::from(self.entries) {
            bus.store(base + entry * LENGTH, &[0; LENGTH as usize]);
        }
        self.base = base;
        self.pending.clear();
        (self.tail, self.rung, self.used, self.context) = (0, 0, 0, None);
    }

    /// Puts a frame into the ring. The caller has checked it.
    pub fn push(
        &mut self,
        bus: &mut dyn Bus,
        (id, deadline): (u64, Nanos),
        frame: &Frame<'_>,
        payload: u32,
    ) -> Result<(), TransmitError> {
        let offload = frame.offload.as_ref();
        let context = offload.map(|offload| descriptor::context(self.chip.format, offload, payload));
        // A segmented frame needs its own context: some NICs count it down.
        let segmented = offload.is_some_and(|offload| offload.segment.is_some());
        let context = context.filter(|context| segmented || self.context != Some(*context));
        let pieces: u64 = frame.data.iter().map(|piece| self.cuts(*piece).count() as u64).sum();
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
            for Window { address, length } in self.cuts(*piece) {
                let at = Position { first: left == pieces, last: left == 1, payload };
                self.store(bus, &descriptor::data(self.chip.format, address, length as u32, offload, at));
                left -= 1;
            }
        }
        let last = if self.tail == 0 { self.entries - 1 } else { self.tail - 1 };
        self.used += count as u16;
        self.pending.push_back(Pending { id, deadline, last, count: count as u16 });
        Ok(())
    }

    /// Cuts a piece so that descriptors may name it.
    fn cuts(&self, piece: Window) -> impl Iterator<Item = Window> + use<> {
        let (most, page, mut done) = (self.chip.piece, self.page, 0);
        core::iter::from_fn(move || {
            let address = piece.address.wrapping_add(done);
            let length = most.min(piece.length - done).min(page - address % page);
            done += length;
            (length > 0).then_some(Window { address, length })
        })
    }

    fn store(&mut self, bus: &mut dyn Bus, descriptor: &Descriptor) {
        bus.store(self.base + u64::from(self.tail) * LENGTH, descriptor);
        self.tail = if self.tail + 1 == self.entries { 0 } else { self.tail + 1 };
    }

    /// Takes out the oldest frame, if it is sent.
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

    /// Returns the tail, if the NIC does not know it yet.
    pub fn ring(&mut self) -> Option<u16> {
        let changed = self.rung != self.tail;
        self.rung = self.tail;
        changed.then_some(self.tail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nic::Model;

    #[test]
    fn no_descriptor_crosses_a_page() {
        let cuts = |page, address, length| -> Vec<(u64, u64)> {
            let ring = Ring::new(Model::E1000e.chip(), page, 8);
            ring.cuts(Window { address, length }).map(|cut| (cut.address, cut.length)).collect()
        };
        assert_eq!(cuts(u64::MAX, 0xfff, 8193), [(0xfff, 8192), (0x2fff, 1)]);
        assert_eq!(cuts(4096, 0xfff, 8193), [(0xfff, 1), (0x1000, 4096), (0x2000, 4096)]);
        assert_eq!(cuts(4096, 0x1000, 60), [(0x1000, 60)]);
        assert_eq!(cuts(2 << 20, 0x1f_f000, 9000), [(0x1f_f000, 4096), (0x20_0000, 4904)]);
        assert_eq!(cuts(4096, 0x1000, 0), []);
    }
}
