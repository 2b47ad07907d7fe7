//! The datagrams of a sender, in a ring of slots of equal length.

use crate::Nanos;

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

    /// Doubles the number of slots.
    pub fn grow(&mut self) {
        let mut larger = Ring::new(self.slots.len() * 2, self.header, self.payload);
        (larger.head, larger.timed, larger.tail) = (self.head, self.timed, self.tail);
        // The slot at the tail may be half filled; in a full ring it is the head.
        let end = (self.tail + 1).min(self.head + self.slots.len() as u64);
        for number in self.head..end {
            *larger.slot(number) = *self.slot(number);
            larger.payload(number).copy_from_slice(self.payload(number));
        }
        *self = larger;
    }
}
