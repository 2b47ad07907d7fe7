//! Accesses to the hosts' memory: entries and descriptors in, results and completions out. All of it must be granted, and is checked again
//! each time.

use crate::card::{Card, HOST_READS};
use crate::handles::Access;
use crate::rings::{COMPLETION, Pair, SUBMISSION};
use crate::work::moved;
use dcs_abi::result::ResultArea;
use dcs_abi::status::Status;
use dcs_drivers::bus::{Buses, ReadDone, Tag, Window};
use dcs_engine::{CommandId, Event, Failure, OperationId, Outcome, QueueId};

/// The purpose of a read of host memory that is not answered yet.
#[derive(Debug)]
pub(crate) enum PendingRead {
    /// An entry of the admin queue.
    AdminEntry,
    /// An entry of a queue, under this number.
    Entry(QueueId, u32),
    /// A descriptor.
    Descriptor(CommandId),
    /// Bytes of a source, to this place in own memory.
    Memory { operation: OperationId, to: u64 },
}

impl Card {
    /// Reads memory of a function's host.
    pub(crate) fn read_host(&mut self, bus: &mut dyn Buses, at: usize, window: Window, pending: PendingRead) {
        self.next_read = self.next_read.wrapping_add(1);
        self.pending_reads.insert(self.next_read, (at, pending));
        bus.read_host(at, window.address, window.length as u32, Tag::new(HOST_READS, self.next_read));
    }

    pub(crate) fn host_read_done(&mut self, bus: &mut dyn Buses, done: ReadDone) {
        let Some((at, pending)) = self.pending_reads.remove(&done.tag.number()) else { return };
        let Ok(mut bytes) = done.data else {
            // A failed read for a queue that a reset has ended does not concern later queues.
            let is_needed = match pending {
                PendingRead::AdminEntry => true,
                PendingRead::Entry(queue, _) => self.pair_of(queue).is_some(),
                PendingRead::Descriptor(_) | PendingRead::Memory { .. } => false,
            };
            if is_needed {
                self.give_up(at);
            }
            return self.host_read_failed(&pending);
        };
        match pending {
            PendingRead::AdminEntry => self.admin_entry(bus, at, &bytes),
            PendingRead::Entry(queue, number) => self.entry_fetched(queue, number, &bytes),
            PendingRead::Descriptor(command) => {
                self.handle(Event::Descriptor { command, bytes: Some(&bytes) });
                // The data may contain keys.
                bytes.fill(0);
            }
            PendingRead::Memory { operation, to } => {
                bus.store(to, &bytes);
                self.done(operation, moved(bytes.len() as u64, 0));
            }
        }
    }

    /// Ends what waits for a read of host memory that has failed.
    fn host_read_failed(&mut self, pending: &PendingRead) {
        match *pending {
            PendingRead::AdminEntry => {}
            PendingRead::Entry(queue, number) => self.entry_fetched(queue, number, &[0; 64]),
            PendingRead::Descriptor(command) => self.handle(Event::Descriptor { command, bytes: None }),
            PendingRead::Memory { operation, .. } => {
                self.done(operation, Outcome::Failed(Failure::new(Status::ReadError)));
            }
        }
    }

    /// Ends what waits for reads of a function's host, which are not answered any more, since the function was reset. That is no failure of
    /// the function: it may be starting again.
    pub(crate) fn end_host_reads(&mut self, function: usize) {
        let pending = self.pending_reads.iter().filter(|(_, (of, _))| *of == function);
        for number in pending.map(|(number, _)| *number).collect::<Vec<_>>() {
            if let Some((_, pending)) = self.pending_reads.remove(&number) {
                self.host_read_failed(&pending);
            }
        }
    }

    /// Returns the function of a queue of the engine.
    pub(crate) fn owner(&self, queue: QueueId) -> usize {
        self.owners[usize::from(queue.0)]
    }

    pub(crate) fn pair_of(&mut self, queue: QueueId) -> Option<&mut Pair> {
        let at = self.owner(queue);
        self.functions[at].pairs.iter_mut().flatten().find(|pair| pair.id == queue)
    }

    /// Returns true if a function's host has granted this memory.
    pub(crate) fn is_granted(&self, at: usize, window: Window, access: Access) -> bool {
        self.functions[at].handles.any_allows(window, access)
    }

    pub(crate) fn fetch_entry(&mut self, bus: &mut dyn Buses, queue: QueueId, slot: u16) {
        let number = self.next_entry;
        let Some(pair) = self.pair_of(queue) else {
            // The queue is being deleted; the engine still waits for its entries.
            return self.handle(Event::Entry { queue, bytes: &[0; 64] });
        };
        pair.fetches.push_back((number, None));
        let window = pair.submissions.entry(slot, SUBMISSION);
        self.next_entry = number.wrapping_add(1);
        let at = self.owner(queue);
        if self.is_granted(at, window, Access::Read) {
            self.read_host(bus, at, window, PendingRead::Entry(queue, number));
        } else {
            self.give_up(at);
            self.entry_fetched(queue, number, &[0; 64]);
        }
    }

    pub(crate) fn entry_fetched(&mut self, queue: QueueId, number: u32, bytes: &[u8]) {
        let mut entry = [0; 64];
        if bytes.len() == entry.len() {
            entry.copy_from_slice(bytes);
        }
        let bytes = entry;
        match self.pair_of(queue) {
            Some(pair) => pair.fetched(number, bytes),
            None => self.handle(Event::Entry { queue, bytes: &[0; 64] }),
        }
        while let Some(bytes) = self.pair_of(queue).and_then(Pair::next_entry) {
            self.handle(Event::Entry { queue, bytes: &bytes });
        }
    }

    pub(crate) fn fetch_descriptor(
        &mut self,
        bus: &mut dyn Buses,
        (queue, command): (QueueId, CommandId),
        address: u64,
        length: u32,
    ) {
        let (at, window) = (self.owner(queue), Window { address, length: length.into() });
        if length > 0 && self.is_granted(at, window, Access::Read) {
            self.read_host(bus, at, window, PendingRead::Descriptor(command));
        } else {
            self.handle(Event::Descriptor { command, bytes: None });
        }
    }

    pub(crate) fn write_result(
        &mut self,
        bus: &mut dyn Buses,
        queue: QueueId,
        address: u64,
        area: &ResultArea,
    ) {
        let (at, bytes) = (self.owner(queue), area.to_bytes());
        let window = Window { address, length: bytes.len() as u64 };
        if self.is_granted(at, window, Access::Write) {
            bus.write_host(at, address, &bytes);
        }
    }

    pub(crate) fn complete(&mut self, bus: &mut dyn Buses, queue: QueueId, slot: u16, entry: &[u8]) {
        let Some(completions) = self.pair_of(queue).map(|pair| pair.completions) else { return };
        let (at, window) = (self.owner(queue), completions.ring.entry(slot, COMPLETION));
        if !self.is_granted(at, window, Access::Write) {
            return self.give_up(at);
        }
        bus.write_host(at, window.address, entry);
        if let Some(vector) = completions.vector {
            self.interrupt(bus, at, vector);
        }
    }

    /// Interrupts a function's host, unless it has masked that.
    pub(crate) fn interrupt(&self, bus: &mut dyn Buses, at: usize, vector: u16) {
        if self.functions[at].registers.lock().may_interrupt(vector) {
            bus.interrupt_host(at, vector);
        }
    }
}
