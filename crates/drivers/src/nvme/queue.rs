//! A submission queue with its completion queue: the rings in memory and their doorbells. [base 3.3.1]

use super::config::{COMPLETION, SUBMISSION};
use super::slots::Slots;
use crate::bus::Bus;
use dcs_nvme::Command;
use dcs_nvme::completion::{self, Completion};

/// The location of a submission queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueAddress {
    /// At this offset of the card's own memory.
    Own(u64),
    /// At this bus address, in the controller's memory buffer.
    Peer(u64),
}

/// The locations of the parts of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// Location of the submission queue.
    pub submissions: QueueAddress,
    /// Offset of the completion queue in the card's own memory.
    pub completions: u64,
    /// Bus address of the submission queue's tail doorbell.
    pub tail_doorbell: u64,
    /// Bus address of the completion queue's head doorbell.
    pub head_doorbell: u64,
}

/// A completion that was taken off the queue.
#[derive(Debug)]
pub enum Reaped<T> {
    /// A completion of this command.
    Done(T, Completion),
    /// A completion that matches no outstanding command of this queue.
    Unknown,
    /// An impossible completion: it reports that the controller fetched entries that were never written.
    Impossible,
}

/// A queue pair.
#[derive(Debug)]
pub struct Queue<T> {
    /// Commands that are outstanding.
    pub slots: Slots<T>,
    number: u16,
    entries: u16,
    address: Address,
    tail: u16,
    rung_tail: u16,
    /// Submission queue head that the controller last reported.
    head: u16,
    next: u16,
    rung_next: u16,
    phase: bool,
}

impl<T> Queue<T> {
    /// Makes queue pair `number` with `entries` entries (two at least), empty.
    pub fn new(bus: &mut dyn Bus, number: u16, entries: u16, address: Address) -> Queue<T> {
        let mut queue = Queue {
            slots: Slots::new(entries - 1),
            number,
            entries,
            address,
            tail: 0,
            rung_tail: 0,
            head: 0,
            next: 0,
            rung_next: 0,
            phase: true,
        };
        queue.clear(bus, address);
        queue
    }

    /// Empties the rings, for a controller that was reset. Cids go on from where they were, so that late completions from before the reset
    /// complete nothing.
    pub fn clear(&mut self, bus: &mut dyn Bus, address: Address) {
        let zeroes = [0; completion::SIZE];
        for entry in 0..u64::from(self.entries) {
            bus.store(address.completions + entry * COMPLETION, &zeroes);
        }
        self.address = address;
        (self.tail, self.rung_tail, self.head) = (0, 0, 0);
        (self.next, self.rung_next, self.phase) = (0, 0, true);
    }

    /// Returns its number.
    pub fn number(&self) -> u16 {
        self.number
    }

    /// Returns the number of entries of each ring.
    pub fn entries(&self) -> u16 {
        self.entries
    }

    fn after(&self, position: u16) -> u16 {
        if position + 1 >= self.entries { 0 } else { position + 1 }
    }

    fn distance(&self, from: u16, to: u16) -> u16 {
        if to >= from { to - from } else { to + (self.entries - from) }
    }

    /// Returns true if the ring has a free entry, and there is a slot.
    pub fn has_room(&self) -> bool {
        self.after(self.tail) != self.head && self.slots.next().is_some()
    }

    /// Returns true if no command is outstanding though the controller reports that it has not fetched them all.
    pub fn is_stuck(&self) -> bool {
        self.slots.used() == 0 && self.after(self.tail) == self.head
    }

    /// Puts a command into the ring; the controller learns of it by [`Queue::ring`]. Returns its cid. There must be room.
    pub fn push(&mut self, bus: &mut dyn Bus, command: T, mut entry: Command) -> Option<u16> {
        let (_, cid) = self.slots.next().filter(|_| self.has_room())?;
        entry.cid = cid;
        let offset = u64::from(self.tail) * SUBMISSION;
        match self.address.submissions {
            QueueAddress::Own(base) => bus.store(base + offset, &entry.bytes()),
            QueueAddress::Peer(base) => bus.write(base + offset, &entry.bytes()),
        }
        self.slots.insert(command);
        self.tail = self.after(self.tail);
        Some(cid)
    }

    /// Rings the doorbells whose values changed; returns how many there were.
    pub fn ring(&mut self, bus: &mut dyn Bus) -> u64 {
        let mut rung = 0;
        if self.rung_next != self.next {
            self.rung_next = self.next;
            bus.write(self.address.head_doorbell, &u32::from(self.next).to_le_bytes());
            rung += 1;
        }
        if self.rung_tail != self.tail {
            self.rung_tail = self.tail;
            bus.write(self.address.tail_doorbell, &u32::from(self.tail).to_le_bytes());
            rung += 1;
        }
        rung
    }

    /// Takes the next completion, if the controller has written one.
    pub fn reap(&mut self, bus: &dyn Bus) -> Option<Reaped<T>> {
        let offset = self.address.completions + u64::from(self.next) * COMPLETION;
        let mut last = [0; 4];
        bus.load(offset + COMPLETION - 4, &mut last);
        if completion::phase(last) != self.phase {
            return None;
        }
        // The bytes before the phase bit are valid only once the phase bit is, so read them after it.
        let mut bytes = [0; completion::SIZE];
        bus.load(offset, &mut bytes);
        let completion = Completion::from_bytes(&bytes);
        if completion.phase != self.phase {
            return None;
        }
        self.next = self.after(self.next);
        self.phase ^= self.next == 0;
        Some(self.accept(completion))
    }

    fn accept(&mut self, completion: Completion) -> Reaped<T> {
        if completion.submission_queue != self.number || !self.slots.has(completion.cid) {
            return Reaped::Unknown;
        }
        let head = completion.submission_head;
        if head >= self.entries || self.distance(self.head, head) > self.distance(self.head, self.rung_tail) {
            return Reaped::Impossible;
        }
        self.head = head;
        self.slots.take(completion.cid).map_or(Reaped::Unknown, |command| Reaped::Done(command, completion))
    }
}
