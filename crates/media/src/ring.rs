//! The datagrams of a sender, in a ring of slots of equal length.

use crate::Nanos;
use core::sync::atomic::{AtomicUsize, Ordering};

/// Most slots that all rings of a process may have grown by: as many as 64 streams may have on the way to a clock reference.
const GROWN_MAX: usize = 64 * crate::sender::SLOTS_MAX;

/// Slots that all rings of this process have grown by.
static GROWN: AtomicUsize = AtomicUsize::new(0);

/// A datagram.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Slot {
    /// Position of the first byte in the stream.
    pub position: u64,
    /// Due time, once it is known.
    pub due: Nanos,
    /// Length of the payload in bytes.
    pub length: usize,
}

/// A ring of slots, which are counted from the first one of the stream on.
#[derive(Debug)]
pub(crate) struct Ring {
    bytes: Vec<u8>,
    slots: Vec<Slot>,
    /// Number of slots that it began with.
    first: usize,
    /// Size of a header in bytes.
    header: usize,
    payload: usize,
    /// Number of the first slot that is not sent.
    pub head: u64,
    /// Number of the first slot whose time is not known.
    pub timed: u64,
    /// Number of the slot that is being filled.
    pub tail: u64,
}

impl Ring {
    pub fn new(slots: usize, header: usize, payload: usize) -> Ring {
        Ring {
            bytes: vec![0; slots * (header + payload)],
            slots: vec![Slot::default(); slots],
            first: slots,
            header,
            payload,
            head: 0,
            timed: 0,
            tail: 0,
        }
    }

    pub fn capacity(&self) -> usize {
        self.slots.len()
    }

    pub fn is_full(&self) -> bool {
        self.tail - self.head == self.slots.len() as u64
    }

    fn index(&self, number: u64) -> usize {
        (number % self.slots.len() as u64) as usize
    }

    fn stride(&self) -> usize {
        self.header + self.payload
    }

    pub fn slot(&mut self, number: u64) -> &mut Slot {
        let index = self.index(number);
        &mut self.slots[index]
    }

    /// Returns a slot's payload at its maximum length.
    pub fn payload(&mut self, number: u64) -> &mut [u8] {
        let from = self.index(number) * self.stride() + self.header;
        &mut self.bytes[from..from + self.payload]
    }

    /// Returns a slot's header.
    pub fn header(&mut self, number: u64) -> &mut [u8] {
        let from = self.index(number) * self.stride();
        &mut self.bytes[from..from + self.header]
    }

    /// Returns the bytes of this many adjacent datagrams, all of them full except the last.
    pub fn run(&self, first: u64, count: u64) -> &[u8] {
        let index = self.index(first);
        let last = self.slots[index + count as usize - 1].length;
        let from = index * self.stride();
        &self.bytes[from..from + (count as usize - 1) * self.stride() + self.header + last]
    }

    /// Returns the number of adjacent slots from this one on.
    pub fn contiguous(&self, first: u64) -> u64 {
        (self.slots.len() - self.index(first)) as u64
    }

    /// Doubles the number of slots; returns false if the rings of this process have grown too much already.
    pub fn grow(&mut self) -> bool {
        let (slots, first) = (self.slots.len() * 2, self.first);
        let more = |grown: usize| Some(grown + slots - first).filter(|grown| *grown <= GROWN_MAX);
        if GROWN.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_err() {
            return false;
        }
        let mut larger = self.like(slots);
        larger.first = first;
        // The slot at the tail may be half filled; in a full ring it is the head.
        let end = (self.tail + 1).min(self.head + self.slots.len() as u64);
        for number in self.head..end {
            *larger.slot(number) = *self.slot(number);
            larger.payload(number).copy_from_slice(self.payload(number));
        }
        *self = larger;
        true
    }

    /// Goes back to the number of slots that it began with. It has to be empty, and no slot half filled.
    pub fn shrink(&mut self) {
        if self.slots.len() > self.first {
            *self = self.like(self.first);
        }
    }

    /// Returns an empty ring of the same form that goes on with the same numbers.
    fn like(&self, slots: usize) -> Ring {
        let mut ring = Ring::new(slots, self.header, self.payload);
        (ring.head, ring.timed, ring.tail) = (self.head, self.timed, self.tail);
        ring
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        GROWN.fetch_sub(self.slots.len() - self.first, Ordering::Relaxed);
    }
}
