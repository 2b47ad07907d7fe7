//! The receive ring and its buffers. A buffer is posted to the NIC, lent to the owner of a frame, or spare.

use super::descriptor::{self, DONE, LENGTH, Receive};
use super::frame::{PIECES, Received};
use super::model::Format;
use crate::bus::Bus;
use std::collections::VecDeque;

/// Locations of the ring and the buffers, and their sizes in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingLayout {
    /// Address of the card's own memory on the bus.
    pub window: u64,
    /// Offset of the ring in own memory.
    pub ring: u64,
    /// Offset of the packet buffers.
    pub packets: u64,
    pub packet: u32,
    /// Offset of the buffers for headers; they have 0 bytes if headers are not split.
    pub headers: u64,
    pub header: u32,
}

/// Received data that are not a frame.
#[derive(Debug)]
pub enum Bad {
    /// A frame that arrived damaged, or in too many pieces: it is dropped.
    Dropped,
    /// A length that no buffer has: the NIC can't be trusted.
    Impossible,
}

/// The ring.
#[derive(Debug)]
pub struct Ring {
    format: Format,
    places: RingLayout,
    entries: u16,
    /// Buffer of each entry.
    posted: Vec<u16>,
    count: u16,
    next: u16,
    tail: u16,
    rung: u16,
    spare: VecDeque<u16>,
    /// Frame whose end is yet to come.
    partial: Received,
    drop: bool,
}

impl Ring {
    #[cfg(test)]
    pub fn format(&self) -> Format {
        self.format
    }

    pub fn new(format: Format, entries: u16, buffers: u16) -> Ring {
        Ring {
            format,
            places: RingLayout::default(),
            entries,
            posted: vec![0; usize::from(entries)],
            count: 0,
            next: 0,
            tail: 0,
            rung: 0,
            spare: (0..buffers).collect(),
            partial: Received::new(),
            drop: false,
        }
    }

    /// Takes back all buffers that are not lent, from a NIC that no longer writes.
    pub fn clear(&mut self, bus: &mut dyn Bus, places: RingLayout) {
        for entry in 0..u64::from(self.entries) {
            let length = descriptor::receive_length(self.format);
            bus.store(places.ring + entry * length, &[0; 2 * LENGTH as usize][..length as usize]);
        }
        self.places = places;
        while self.count > 0 {
            let buffer = self.take_entry();
            self.spare.push_back(buffer);
        }
        self.abandon();
        (self.next, self.tail, self.rung) = (0, 0, 0);
    }

    fn after(&self, position: u16) -> u16 {
        if position + 1 == self.entries { 0 } else { position + 1 }
    }

    /// Returns the offset of an entry.
    fn at(&self, position: u16) -> u64 {
        self.places.ring + u64::from(position) * descriptor::receive_length(self.format)
    }

    /// Converts an entry to the unit of the NIC's registers: the shortest descriptors.
    fn counted(&self, position: u16) -> u16 {
        position * (descriptor::receive_length(self.format) / LENGTH) as u16
    }

    /// Notes the next frame's entry and the NIC's tail, of a ring that somebody else uses.
    pub fn follow(&mut self, next: u16, tail: u16) {
        (self.next, self.tail, self.rung) = (next, tail, tail);
        self.count = (tail + self.entries - next) % self.entries;
    }

    /// Posts spare buffers, as many as the ring takes.
    pub fn refill(&mut self, bus: &mut dyn Bus) {
        let RingLayout { window, packets, packet, headers, header, .. } = self.places;
        while self.count + 1 < self.entries {
            let Some(buffer) = self.spare.pop_front() else { return };
            let at = |base, size: u32| window + base + u64::from(buffer) * u64::from(size);
            let header = if header > 0 { at(headers, header) } else { 0 };
            let descriptor = descriptor::empty(self.format, at(packets, packet), header);
            let length = descriptor::receive_length(self.format) as usize;
            bus.store(self.at(self.tail), &descriptor[..length]);
            self.posted[usize::from(self.tail)] = buffer;
            self.tail = self.after(self.tail);
            self.count += 1;
        }
    }

    /// Returns the tail, if the NIC does not know it yet.
    pub fn ring(&mut self) -> Option<u16> {
        let changed = self.rung != self.tail;
        self.rung = self.tail;
        changed.then_some(self.counted(self.tail))
    }

    /// Returns the tail that the NIC knows, if it has descriptors.
    pub fn known_tail(&self) -> Option<u16> {
        (self.count > 0).then_some(self.counted(self.rung))
    }

    /// Marks a frame's buffers as spare again.
    pub fn give_back(&mut self, frame: &Received) {
        self.spare.extend(frame.buffers());
    }

    /// Returns the buffers that are not lent.
    #[cfg(test)]
    pub fn all_buffers(&self) -> Vec<u16> {
        let posted =
            (0..self.count).map(|ahead| self.posted[usize::from((self.next + ahead) % self.entries)]);
        posted.chain(self.spare.iter().copied()).chain(self.partial.buffers().iter().copied()).collect()
    }

    fn take_entry(&mut self) -> u16 {
        let buffer = self.posted[usize::from(self.next)];
        self.next = self.after(self.next);
        self.count -= 1;
        buffer
    }

    fn abandon(&mut self) {
        let frame = core::mem::replace(&mut self.partial, Received::new());
        self.give_back(&frame);
        self.drop = false;
    }

    /// Takes the next frame, if all of it has arrived.
    pub fn take(&mut self, bus: &dyn Bus) -> Option<Result<Received, Bad>> {
        while self.count > 0 {
            let at = self.at(self.next);
            let mut status = [0; 4];
            bus.load(at + 8, &mut status);
            if u32::from_le_bytes(status) & DONE == 0 {
                return None;
            }
            // The other fields are valid only once the done bit is, so read them after it.
            let mut raw: Receive = [0; 2 * LENGTH as usize];
            bus.load(at, &mut raw[..descriptor::receive_length(self.format) as usize]);
            if let Some(found) = self.accept(&raw) {
                return Some(found);
            }
        }
        None
    }

    /// Returns true if a later descriptor is done and the next one is not: a NIC takes them in order, so it has lost one.
    pub fn has_gap(&self, bus: &dyn Bus) -> bool {
        let done = |ahead: u16| {
            let position = (u32::from(self.next) + u32::from(ahead)) % u32::from(self.entries);
            let mut status = [0; 4];
            bus.load(self.at(position as u16) + 8, &mut status);
            u32::from_le_bytes(status) & DONE != 0
        };
        // The next one is checked last: it may complete at this moment.
        (1..self.count).any(done) && !done(0)
    }

    fn accept(&mut self, raw: &Receive) -> Option<Result<Received, Bad>> {
        let written = descriptor::written(self.format, raw);
        let buffer = self.take_entry();
        if written.length > self.places.packet || written.header > self.places.header {
            self.spare.push_back(buffer);
            return Some(Err(Bad::Impossible));
        }
        if self.drop || self.partial.buffers().len() == PIECES {
            self.drop = true;
            self.spare.push_back(buffer);
        } else {
            let frame = &mut self.partial;
            frame.split |= frame.count == 0 && written.split && written.header > 0;
            frame.add_buffer(buffer);
            let at = self.places.headers + u64::from(buffer) * u64::from(self.places.header);
            frame.add_piece(at, written.header);
            let at = self.places.packets + u64::from(buffer) * u64::from(self.places.packet);
            frame.add_piece(at, written.length);
        }
        if !written.end {
            return None;
        }
        if self.drop || written.damaged || self.partial.count == 0 {
            self.abandon();
            return Some(Err(Bad::Dropped));
        }
        let mut frame = core::mem::replace(&mut self.partial, Received::new());
        (frame.ip, frame.transport) = (written.ip, written.transport);
        Some(Ok(frame))
    }
}
