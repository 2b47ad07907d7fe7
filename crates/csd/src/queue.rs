//! Submission and completion queues, and shadow doorbells.

use std::collections::VecDeque;

use dcs_nvme::{Completion, command, completion};

use crate::host::{HostError, HostPort};

/// Entries that are copied from a guest's memory at once, if there are as many.
const TOGETHER: usize = 8;

/// A submission queue. [base 3.3.1.1]
pub struct SubmissionQueue {
    pub base: u64,
    pub size: u32,
    pub head: u32,
    pub tail: u32,
    /// The guest must ring the real doorbell for its next command, although it has a shadow.
    pub armed: bool,
    /// The completion queue of its commands.
    pub completion_queue: u16,
    /// Number of its commands in progress.
    pub outstanding: u32,
    /// The command that deletes it, which ends when no command is in progress.
    pub deleted_by: Option<u16>,
    /// The identifiers in use, a bit each.
    identifiers: Box<[u64; 1 << 10]>,
    /// Copies of the next entries. The last `copied` of them are still to be taken.
    entries: Box<[[u8; command::SIZE]; TOGETHER]>,
    copied: usize,
}

impl SubmissionQueue {
    pub fn new((base, size): (u64, u32), completion_queue: u16) -> SubmissionQueue {
        SubmissionQueue {
            base,
            size,
            head: 0,
            tail: 0,
            armed: false,
            completion_queue,
            outstanding: 0,
            deleted_by: None,
            identifiers: Box::new([0; 1 << 10]),
            entries: Box::new([[0; command::SIZE]; TOGETHER]),
            copied: 0,
        }
    }

    /// Registers a command's identifier; returns false if another command has it.
    pub fn begin(&mut self, cid: u16) -> bool {
        let (word, bit) = (&mut self.identifiers[usize::from(cid >> 6)], 1 << (cid & 63));
        let free = *word & bit == 0;
        *word |= bit;
        free
    }

    /// Frees the identifier of a command that ends.
    pub fn finish(&mut self, cid: u16) {
        self.identifiers[usize::from(cid >> 6)] &= !(1 << (cid & 63));
    }

    /// Takes the tail that the guest has written; returns false if it is invalid.
    pub fn ring(&mut self, tail: u32) -> bool {
        let good = tail < self.size;
        if good {
            self.tail = tail;
        }
        good
    }

    pub fn has_entries(&self) -> bool {
        self.head != self.tail && self.deleted_by.is_none()
    }

    /// Takes the next entry, which must be there.
    pub fn fetch(&mut self, port: &mut dyn HostPort) -> Result<[u8; command::SIZE], HostError> {
        if self.copied == 0 {
            let end = if self.tail > self.head { self.tail } else { self.size };
            let several = ((end - self.head) as usize).min(TOGETHER);
            // Perhaps only some of them can be reached.
            self.copied = match self.copy(port, several) {
                Err(HostError) if several > 1 => self.copy(port, 1),
                copied => copied,
            }?;
        }
        let entry = self.entries[TOGETHER - self.copied];
        self.copied -= 1;
        self.head = after(self.head, self.size);
        self.outstanding += 1;
        Ok(entry)
    }

    /// Copies this many entries from the head on.
    fn copy(&mut self, port: &mut dyn HostPort, count: usize) -> Result<usize, HostError> {
        let address = self.base.checked_add(u64::from(self.head) * command::SIZE as u64).ok_or(HostError)?;
        port.read(address, self.entries[TOGETHER - count..].as_flattened_mut())?;
        Ok(count)
    }
}

/// A completion queue. [base 3.3.1.2]
pub struct CompletionQueue {
    pub base: u64,
    pub size: u32,
    /// The entry up to which the guest has read.
    pub head: u32,
    pub tail: u32,
    phase: bool,
    /// The vector to raise, if any.
    pub vector: Option<u16>,
    /// Completions that no interrupt has reported yet.
    pub fresh: u32,
    /// One of them reports an error.
    pub urgent: bool,
    /// The guest must ring the real doorbell for its next head, although it has a shadow, now or soon.
    pub armed: bool,
    /// Number of submission queues that use it.
    pub users: u16,
    /// Completions for which there was no room.
    pub waiting: VecDeque<Completion>,
}

impl CompletionQueue {
    pub fn new((base, size): (u64, u32), vector: Option<u16>, most: usize) -> CompletionQueue {
        let waiting = VecDeque::with_capacity(most);
        CompletionQueue {
            base,
            size,
            head: 0,
            tail: 0,
            phase: true,
            vector,
            fresh: 0,
            urgent: false,
            armed: true,
            users: 0,
            waiting,
        }
    }

    /// Takes the head that the guest has written; returns false if it is invalid.
    pub fn ring(&mut self, head: u32) -> bool {
        let ahead = |from: u32, to: u32| (to + self.size - from) % self.size;
        let good = head < self.size && ahead(self.head, head) <= ahead(self.head, self.tail);
        if good {
            self.head = head;
        }
        good
    }

    pub fn is_full(&self) -> bool {
        after(self.tail, self.size) == self.head
    }

    /// Writes a completion, or keeps it until there is room.
    pub fn post(&mut self, port: &mut dyn HostPort, done: Completion) -> Result<(), HostError> {
        if self.is_full() || !self.waiting.is_empty() {
            self.waiting.push_back(done);
            return Ok(());
        }
        self.write(port, done)
    }

    /// Writes the completions that waited, as far as there is room.
    pub fn drain(&mut self, port: &mut dyn HostPort) -> Result<(), HostError> {
        while !self.is_full()
            && let Some(done) = self.waiting.pop_front()
        {
            self.write(port, done)?;
        }
        Ok(())
    }

    fn write(&mut self, port: &mut dyn HostPort, mut done: Completion) -> Result<(), HostError> {
        done.phase = self.phase;
        let place = self.base.checked_add(u64::from(self.tail) * completion::SIZE as u64);
        port.write(place.ok_or(HostError)?, &done.bytes())?;
        self.fresh += 1;
        self.urgent |= !done.status.is_success();
        let half = in_second_half(self.tail, self.size);
        self.tail = after(self.tail, self.size);
        self.phase ^= self.tail == 0;
        self.armed |= half != in_second_half(self.tail, self.size);
        Ok(())
    }
}

/// Returns the index after this one in a queue of this size.
pub fn after(index: u32, size: u32) -> u32 {
    if index + 1 == size { 0 } else { index + 1 }
}

/// Returns true if an index is in the second half of a queue of this size.
pub fn in_second_half(index: u32, size: u32) -> bool {
    index >= size / 2
}

/// Doorbells in the guest's memory, and the values up to which it need not write the real ones. For I/O
/// queues. [base 5.8, B.5]
#[derive(Clone, Copy)]
pub struct Shadow {
    /// Address of the page with the doorbells.
    pub doorbells: u64,
    /// Address of the page with the indexes.
    pub events: u64,
}

impl Shadow {
    /// Returns the address of a doorbell on a page: the tail of queue n is number 2n, the head 2n + 1.
    fn place(page: u64, number: usize) -> Result<u64, HostError> {
        page.checked_add(4 * number as u64).ok_or(HostError)
    }

    pub fn load(self, port: &mut dyn HostPort, number: usize) -> Result<u32, HostError> {
        let mut word = [0; 4];
        port.read(Shadow::place(self.doorbells, number)?, &mut word)?;
        Ok(u32::from_le_bytes(word))
    }

    /// Asks for the real doorbell when the shadow passes `value`.
    pub fn arm(self, port: &mut dyn HostPort, number: usize, value: u32) -> Result<(), HostError> {
        port.write(Shadow::place(self.events, number)?, &value.to_le_bytes())
    }

    /// Asks for no doorbell before the shadow is three quarters of its queue beyond `at`. Called once in each
    /// half of the queue, this keeps a guest from ringing. The quarter before `at` is left out, since the
    /// guest reads the index after it has written the shadow: it may be on its way to `at` from there.
    pub fn quiet(
        self,
        port: &mut dyn HostPort,
        number: usize,
        (at, size): (u32, u32),
    ) -> Result<(), HostError> {
        self.arm(port, number, (at + size * 3 / 4) % size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::{Direction, Piece};

    #[test]
    fn a_tail_lies_within_its_queue() {
        let mut queue = SubmissionQueue::new((0, 4), 0);
        assert!(queue.ring(3) && queue.has_entries());
        assert!(!queue.ring(4));
        assert_eq!(queue.tail, 3);
    }

    #[test]
    fn an_identifier_is_one_commands_until_it_ends() {
        let mut queue = SubmissionQueue::new((0, 4), 0);
        for cid in [0, 63, 64, u16::MAX] {
            assert!(queue.begin(cid) && !queue.begin(cid));
        }
        queue.finish(64);
        assert!(queue.begin(64) && !queue.begin(63));
    }

    /// All memory exists, except at the end of the address space.
    struct Everywhere;

    impl HostPort for Everywhere {
        fn read(&mut self, _: u64, bytes: &mut [u8]) -> Result<(), HostError> {
            bytes.fill(0);
            Ok(())
        }
        fn write(&mut self, _: u64, _: &[u8]) -> Result<(), HostError> {
            Ok(())
        }
        fn direct(&mut self, _: u64, _: u64, _: Direction) -> Option<Piece> {
            None
        }
        fn uptime(&mut self) -> u64 {
            0
        }
        fn interrupt(&mut self, _: u16) {}
    }

    #[test]
    fn what_lies_behind_the_end_of_the_address_space_cannot_be_reached() {
        let page = u64::MAX - 0xfff;
        let mut queue = CompletionQueue::new((page, 1024), None, 0);
        let mut written = 0;
        while queue.post(&mut Everywhere, Completion::default()).is_ok() {
            written += 1;
        }
        assert_eq!(written, 256);
        let shadow = Shadow { doorbells: page, events: page };
        assert!(shadow.load(&mut Everywhere, 1023).is_ok() && shadow.load(&mut Everywhere, 1024).is_err());
        assert!(
            shadow.arm(&mut Everywhere, 1023, 0).is_ok() && shadow.arm(&mut Everywhere, 1024, 0).is_err()
        );
    }

    /// Memory up to this address, in which each entry begins with its number; and how often it was read.
    struct Numbered(u64, usize);

    impl HostPort for Numbered {
        fn read(&mut self, address: u64, bytes: &mut [u8]) -> Result<(), HostError> {
            self.1 += 1;
            for (place, entry) in (address..).step_by(command::SIZE).zip(bytes.chunks_mut(command::SIZE)) {
                entry[0] = (place / command::SIZE as u64) as u8;
            }
            if address + bytes.len() as u64 <= self.0 { Ok(()) } else { Err(HostError) }
        }
        fn write(&mut self, _: u64, _: &[u8]) -> Result<(), HostError> {
            Err(HostError)
        }
        fn direct(&mut self, _: u64, _: u64, _: Direction) -> Option<Piece> {
            None
        }
        fn uptime(&mut self) -> u64 {
            0
        }
        fn interrupt(&mut self, _: u16) {}
    }

    #[test]
    fn entries_are_taken_in_order_and_several_are_copied_at_once() {
        let (mut queue, mut port) = (SubmissionQueue::new((0, 16), 0), Numbered(u64::MAX, 0));
        (queue.head, queue.tail) = (12, 10);
        let taken: Vec<u8> =
            std::iter::from_fn(|| queue.has_entries().then(|| queue.fetch(&mut port).unwrap()[0])).collect();
        assert_eq!(taken, [12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        assert_eq!((port.1, queue.outstanding), (3, 14));
    }

    #[test]
    fn entries_before_one_that_cannot_be_reached_are_taken() {
        let (mut queue, mut port) = (SubmissionQueue::new((0, 16), 0), Numbered(3 * 64, 0));
        queue.tail = 5;
        (0..3).for_each(|number| assert_eq!(queue.fetch(&mut port).unwrap()[0], number));
        assert!(queue.fetch(&mut port).is_err() && queue.head == 3);
    }

    #[test]
    fn a_head_does_not_pass_the_tail() {
        let mut queue = CompletionQueue::new((0, 4), None, 0);
        assert!(!queue.ring(1));
        (queue.head, queue.tail) = (3, 1);
        assert!(queue.ring(0) && queue.ring(1));
        assert!(!queue.ring(2) && !queue.ring(0) && !queue.ring(4));
        assert_eq!(queue.head, 1);
    }
}
