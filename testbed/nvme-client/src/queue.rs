//! A submission queue and its completion queue.

use std::sync::atomic::{Ordering, fence};

use dcs_nvme::{Completion, command, completion, register};

use crate::device::{Device, Error};

/// Offsets in the shared memory of the pages of shadow doorbells and event indexes. [base 5.8, B.5]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shadow {
    pub doorbells: u64,
    pub events: u64,
}

/// A submission queue, and the completion queue of the same number, which no other queue uses.
#[derive(Debug)]
pub struct Queue {
    number: u16,
    entries: u32,
    submissions: u64,
    completions: u64,
    tail: u32,
    /// Tail that was last reported to the drive.
    told: u32,
    head: u32,
    /// Head that was last reported to the drive.
    freed: u32,
    phase: bool,
    stride: u64,
    shadow: Option<Shadow>,
    /// Messages sent for doorbells.
    doorbells: u64,
}

impl Queue {
    /// Makes a queue pair in the shared memory of `device`.
    pub(crate) fn new(device: &mut Device, number: u16, entries: u32, stride: u64) -> Result<Queue, Error> {
        let submissions = device.take(u64::from(entries) * command::SIZE as u64)?;
        let completions = device.take(u64::from(entries) * completion::SIZE as u64)?;
        Ok(Queue {
            number,
            entries,
            submissions,
            completions,
            tail: 0,
            told: 0,
            head: 0,
            freed: 0,
            phase: true,
            stride,
            shadow: None,
            doorbells: 0,
        })
    }

    pub(crate) fn use_shadow(&mut self, shadow: Shadow) {
        self.shadow = Some(shadow);
    }

    /// Returns the bus addresses of its submissions and its completions.
    pub(crate) fn addresses(&self) -> (u64, u64) {
        (Device::address(self.submissions), Device::address(self.completions))
    }

    /// Returns its number, which is also its vector's.
    pub fn number(&self) -> u16 {
        self.number
    }

    /// Returns the entries of either queue: it holds one less.
    pub fn entries(&self) -> u32 {
        self.entries
    }

    /// Returns the number of messages by which doorbells were rung.
    pub fn doorbells(&self) -> u64 {
        self.doorbells
    }

    /// Adds a command. The caller keeps fewer than [`Queue::entries`] in flight.
    pub fn submit(&mut self, device: &Device, entry: &[u8; command::SIZE]) {
        device.memory().store(self.submissions + u64::from(self.tail) * command::SIZE as u64, entry);
        self.tail = (self.tail + 1) % self.entries;
    }

    /// Reports to the drive commands that were added, and completions that were taken.
    ///
    /// # Errors
    ///
    /// If the process is gone.
    pub fn ring(&mut self, device: &mut Device) -> Result<(), Error> {
        let (mut bells, mut count) = ([(0, 0); 2], 0);
        let tail = (false, std::mem::replace(&mut self.told, self.tail), self.tail);
        let head = (true, std::mem::replace(&mut self.freed, self.head), self.head);
        for (is_head, old, new) in [tail, head] {
            if old != new && self.is_message(device, is_head, old, new) {
                let register = if is_head { register::head_doorbell } else { register::tail_doorbell };
                bells[count] = (register(self.number, self.stride), new);
                count += 1;
            }
        }
        self.doorbells += u64::from(count > 0);
        device.post(&bells[..count])
    }

    /// Rings a doorbell in memory, if there is one. Returns true if it is to be rung by a message.
    fn is_message(&self, device: &Device, is_head: bool, old: u32, new: u32) -> bool {
        let Some(shadow) = self.shadow else { return true };
        let place = 4 * (2 * u64::from(self.number) + u64::from(is_head));
        // Earlier writes are visible before the doorbell.
        device.memory().store(shadow.doorbells + place, &new.to_le_bytes());
        fence(Ordering::SeqCst);
        let event = device.memory().read32(shadow.events + place);
        passes(event as u16, old as u16, new as u16)
    }

    /// Takes the next completion, if there is one.
    pub fn reap(&mut self, device: &Device) -> Option<Completion> {
        let mut entry = [0; completion::SIZE];
        // Reads the last word first: a new entry is then complete.
        device.memory().load(self.completions + u64::from(self.head) * completion::SIZE as u64, &mut entry);
        let done = Completion::from_bytes(&entry);
        if done.phase != self.phase {
            return None;
        }
        self.head = (self.head + 1) % self.entries;
        self.phase ^= self.head == 0;
        Some(done)
    }
}

/// Returns true if a doorbell that goes from `old` to `new` passes the value at which the drive wants to be told.
/// [base B.5]
fn passes(event: u16, old: u16, new: u16) -> bool {
    new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_doorbell_is_rung_where_it_passes_the_index() {
        assert!(passes(5, 5, 6) && passes(5, 3, 6) && passes(0xffff, 0xfffe, 1));
        assert!(!passes(5, 6, 7) && !passes(5, 3, 5) && !passes(7, 5, 6));
    }
}
