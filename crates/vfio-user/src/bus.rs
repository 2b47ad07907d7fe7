//! The bus over a vfio-user client.
//!
//! The function's own memory is BAR2. Guest memory that the client gave a file for is read and written in
//! place; everything else on the bus, the BARs of the other devices above all, by messages: writes posted in
//! their order, reads answered later.
//!
//! Where the payload of a message belongs is tried out on the own memory: so the function has to reach that
//! by its bus address too. With an IOMMU a driver maps BAR2 for the function itself, not for the other
//! devices alone.
//!
//! **Order**: writes by message arrive in the order in which they were made, and a read by message behind
//! them. Writes in place are seen at once. Of writes by message those of a register's size (4 bytes, aligned)
//! are posted, so a host that reads guest memory and then a device's register may find the register not yet
//! written. All others are data, and are there before anything that is written after them: a host that sees a
//! completion sees what it tells of.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use dcs_drivers::bus::{Bus, BusError, ReadDone, Tag, Window};

use crate::link::Link;
use crate::maps::Way;
use crate::memory::Memory;
use crate::wake::{Idle, Wake, Watch};
use crate::wire::Payload;

/// At the end of the own memory: where it is tried out how the client takes messages. Not for the
/// controllers.
const PROBE: u64 = 4096;
/// Longest read.
const READ_MAX: u32 = 64 << 20;
/// Interval at which late reads are looked for.
const LATE_INTERVAL: Duration = Duration::from_millis(50);

/// The owner's end of the bus. One thread has it, and is the only one that waits with it.
pub struct VfioUserBus {
    link: Arc<Link>,
    done: VecDeque<ReadDone>,
    address: Option<u64>,
    looked: Instant,
    accesses: u64,
    /// The resets that the owner knows of.
    known: u64,
}

impl VfioUserBus {
    pub(crate) fn new(link: Arc<Link>) -> VfioUserBus {
        let (looked, known) = (Instant::now(), link.state.resets.load(Ordering::Acquire));
        VfioUserBus { link, done: VecDeque::new(), address: None, looked, accesses: 0, known }
    }

    fn memory(&self) -> &Memory {
        self.link.state.memory.as_ref().expect("it was looked at when the bus was made")
    }

    /// True where the function may reach other devices and host memory now. It may not between a reset and
    /// [`VfioUserBus::begin_anew`]: what its owner does meanwhile belongs to the time before the reset.
    pub fn is_master(&self) -> bool {
        self.link.state.master.load(Ordering::Acquire) && self.resets() == self.known
    }

    /// The owner looks at its registers next, which tell of every reset that there has been.
    pub fn begin_anew(&mut self) {
        self.known = self.resets();
    }

    #[cfg(test)]
    pub(crate) fn state(&self) -> &Arc<crate::pci::State> {
        &self.link.state
    }

    /// Times that the function was reset or lost its host. When that changes, nothing that was begun before
    /// counts.
    pub fn resets(&self) -> u64 {
        self.link.state.resets.load(Ordering::Acquire)
    }

    /// Number of stores, writes, reads and interrupts: while it stays the same, the card is idle.
    pub fn accesses(&self) -> u64 {
        self.accesses
    }

    /// Other devices see the own memory at this address, not where BAR2 lies: there is an IOMMU between.
    pub fn set_address(&mut self, address: Option<u64>) {
        self.address = address;
    }

    /// The answer to a read, if there is one.
    pub fn answer(&mut self) -> Option<ReadDone> {
        if let Some(done) = self.done.pop_front() {
            return Some(done);
        }
        if self.looked.elapsed() > LATE_INTERVAL {
            self.looked = Instant::now();
            self.link.expire(self.looked);
        }
        self.link.take_done()
    }

    /// Who wakes the owner.
    pub fn wake(&self) -> &Wake {
        &self.link.wake
    }

    /// Waits for an answer, for whoever calls [`Wake::notify`], for `until`, and, if so wished, for what
    /// devices write into the own memory; `ready` says whether somebody has notified already.
    pub fn wait(&self, idle: &mut Idle, watch: Watch, until: Option<Instant>, ready: impl FnOnce() -> bool) {
        if !self.done.is_empty() {
            return;
        }
        let (_, deadline) = self.link.waiting();
        let until = [until, deadline].into_iter().flatten().min();
        idle.wait(&self.link.wake, watch, until, || self.link.waiting().0 || ready());
    }

    /// Waits for the answer to a read that was just made, at most so long: for setting things up, when
    /// nothing else is under way. Answers to other reads are kept.
    pub fn wait_for(&mut self, tag: Tag, limit: Duration) -> Result<Vec<u8>, BusError> {
        let (end, mut idle, mut others) = (Instant::now() + limit, Idle::default(), VecDeque::new());
        let answer = loop {
            match self.answer() {
                Some(done) if done.tag == tag => break done.data,
                Some(other) => others.push_back(other),
                None if Instant::now() >= end => break Err(BusError::Timeout),
                None => self.wait(&mut idle, Watch::Host, Some(end), || false),
            }
        };
        others.append(&mut self.done);
        self.done = others;
        answer
    }

    /// Where this client takes the payload of messages: it writes some bytes into our own memory, and we
    /// look. Once a connection; nothing where it cannot be found out now (no bus mastering, no address).
    fn payload(&self) -> Option<Payload> {
        if let Some(known) = self.link.payload() {
            return Some(known);
        }
        let (memory, window) = (self.memory(), self.window());
        if window.address == 0 {
            return None;
        }
        let pattern: [u8; 16] = std::array::from_fn(|n| 0xa5 ^ n as u8);
        memory.store(window.length, &[0; 16]);
        self.link.write_and_wait(window.address + window.length, &pattern, Payload::At32).ok()?;
        let mut seen = [0; 16];
        memory.load(window.length, &mut seen);
        let payload = match seen {
            _ if seen == pattern => Payload::At32,
            // The upper half of what it takes for a count of 32 bits came first.
            _ if seen[4..] == pattern[..12] && seen[..4] == [0; 4] => Payload::At28,
            _ => return None,
        };
        self.link.set_payload(payload);
        Some(payload)
    }

    /// Cuts an access where the way to the bytes changes, and takes it there. `in_place` gets mapped memory,
    /// `by_message` what is not, and `denied` what may not be reached: each with the place in the access and
    /// the number of bytes.
    fn each(&self, address: u64, length: usize, write: bool, mut take: impl FnMut(usize, usize, Taken<'_>)) {
        let (window, memory) = (self.window(), self.memory());
        let mut at = 0;
        while at < length {
            let (here, left) = (address.wrapping_add(at as u64), (length - at) as u64);
            if window.address != 0 && window.contains(here, left) {
                take(at, left as usize, Taken::InPlace(memory, here - window.address));
                return;
            }
            let copying = self.link.state.copying.read().unwrap_or_else(PoisonError::into_inner);
            if !self.is_master() {
                take(at, left as usize, Taken::Denied);
                return;
            }
            let maps = self.link.maps.read().unwrap_or_else(PoisonError::into_inner);
            let (count, way) = maps.way(here, left, write);
            let most = self.link.max_transfer();
            let count = match way {
                Way::Message => (count as usize).min(most),
                _ => count as usize,
            };
            match way {
                Way::Memory(memory, offset) => take(at, count, Taken::InPlace(memory, offset)),
                Way::Denied => take(at, count, Taken::Denied),
                Way::Message => {
                    // The client may unmap while the message waits for its turn.
                    drop((maps, copying));
                    take(at, count, Taken::ByMessage(here));
                }
            }
            at += count;
        }
    }
}

/// Tells a register write (a doorbell, a tail) by its shape.
fn is_register(address: u64, bytes: &[u8]) -> bool {
    bytes.len() == 4 && address.is_multiple_of(4)
}

enum Taken<'a> {
    InPlace(&'a Memory, u64),
    ByMessage(u64),
    Denied,
}

impl Bus for VfioUserBus {
    fn window(&self) -> Window {
        let address = self.address.unwrap_or_else(|| self.link.state.memory_address.load(Ordering::Acquire));
        Window { address, length: self.memory().length() - PROBE }
    }

    fn load(&self, offset: u64, bytes: &mut [u8]) {
        self.memory().load(offset, bytes);
    }

    fn store(&mut self, offset: u64, bytes: &[u8]) {
        self.accesses += 1;
        self.memory().store(offset, bytes);
    }

    fn write(&mut self, address: u64, bytes: &[u8]) {
        self.accesses += 1;
        if !self.is_master() {
            return;
        }
        self.each(address, bytes.len(), true, |at, count, taken| match taken {
            Taken::InPlace(memory, offset) => memory.store(offset, &bytes[at..at + count]),
            Taken::ByMessage(address) => {
                let bytes = &bytes[at..at + count];
                match self.payload() {
                    Some(payload) if is_register(address, bytes) => self.link.post(address, bytes, payload),
                    // Nobody is told where it does not arrive, as of every write.
                    Some(payload) => _ = self.link.write_and_wait(address, bytes, payload),
                    None => {}
                }
            }
            Taken::Denied => {}
        });
    }

    fn read(&mut self, address: u64, length: u32, tag: Tag) {
        self.accesses += 1;
        if !self.is_master() || length > READ_MAX || address.checked_add(length.into()).is_none() {
            self.done.push_back(ReadDone { tag, data: Err(BusError::Unsupported) });
            return;
        }
        let link = &self.link;
        let read = link.begin(tag, length as usize);
        let mut bytes = Vec::new();
        self.each(address, length as usize, false, |at, count, taken| match taken {
            Taken::InPlace(memory, offset) => {
                bytes.resize(count, 0);
                memory.load(offset, &mut bytes);
                link.put(read, at, Ok(&bytes));
            }
            Taken::ByMessage(address) if self.payload().is_some() => link.ask(read, at, address, count),
            _ => link.put(read, at, Err((BusError::Unsupported, count))),
        });
        link.end(read);
    }

    fn interrupt(&mut self, vector: u16) {
        self.accesses += 1;
        self.link.interrupt(vector.into());
    }
}

impl std::fmt::Debug for VfioUserBus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "VfioUserBus {{ window: {:?}, master: {} }}", self.window(), self.is_master())
    }
}
