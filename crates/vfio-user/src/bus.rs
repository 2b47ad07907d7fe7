//! The bus over a vfio-user client.
//!
//! The function's own memory is BAR2. Guest memory for which the client passed a file is read and written in place. Everything else on the
//! bus, mainly the BARs of the other devices, is accessed by messages: writes are posted in order, reads are answered later.
//!
//! The position of the payload in a message is found by a test on the own memory, so the function must reach that by its bus address too.
//! With an IOMMU a driver maps BAR2 for the function itself, not only for the other devices.
//!
//! **Order**: writes by message arrive in the order in which they were made, and a read by message arrives after them. Writes in place are
//! visible at once. Writes by message of a register's size (4 bytes, aligned) are posted, so a host that reads guest memory and then a
//! device's register may find the register not yet written. All others are data, and arrive before anything that is written after them: a
//! host that sees a completion also sees its data.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use dcs_drivers::bus::{Bus, BusError, Buses, ReadDone, Tag, Window};

use crate::link::Link;
use crate::maps::Path;
use crate::memory::Memory;
use crate::wake::{Idle, Wake, Watch};
use crate::wire::Payload;

/// Bytes at the end of the own memory for testing how the client takes messages. Not for the controllers.
const PROBE: u64 = 4096;
/// Longest read, in bytes.
const READ_MAX: u32 = 64 << 20;
/// Interval at which late reads are checked.
const LATE_INTERVAL: Duration = Duration::from_millis(50);

/// The owner's end of the bus. One thread has it, and only that one waits with it.
pub struct VfioUserBus {
    link: Arc<Link>,
    done: VecDeque<ReadDone>,
    address: Option<u64>,
    looked: Instant,
    accesses: u64,
    /// Count of resets that the owner knows of.
    known: u64,
}

impl VfioUserBus {
    pub(crate) fn new(link: Arc<Link>) -> VfioUserBus {
        let (looked, known) = (Instant::now(), link.state.resets.load(Ordering::Acquire));
        VfioUserBus { link, done: VecDeque::new(), address: None, looked, accesses: 0, known }
    }

    fn memory(&self) -> &Memory {
        self.link.state.memory.as_ref().expect("checked when the bus was made")
    }

    /// Returns true if the function may reach other devices and host memory now. It may not between a reset and
    /// [`VfioUserBus::acknowledge_resets`]: accesses in between belong to the time before the reset.
    pub fn is_master(&self) -> bool {
        self.link.state.master.load(Ordering::Acquire) && self.resets() == self.known
    }

    /// Ends the time before a reset: the owner checks its registers next, which report every reset so far.
    pub fn acknowledge_resets(&mut self) {
        self.known = self.resets();
    }

    #[cfg(test)]
    pub(crate) fn state(&self) -> &Arc<crate::pci::State> {
        &self.link.state
    }

    /// Returns how often the function was reset or lost its host. When that changes, everything begun before is void.
    pub fn resets(&self) -> u64 {
        self.link.state.resets.load(Ordering::Acquire)
    }

    /// Returns the number of stores, writes, reads and interrupts: while it stays the same, the card is idle.
    pub fn accesses(&self) -> u64 {
        self.accesses
    }

    /// Sets the address at which other devices see the own memory, if it differs from BAR2's because of an IOMMU.
    pub fn set_address(&mut self, address: Option<u64>) {
        self.address = address;
    }

    /// Returns the answer to a read, if there is one.
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

    /// Returns the waker of the owner.
    pub fn wake(&self) -> &Wake {
        &self.link.wake
    }

    /// Waits for an answer, for [`Wake::notify`], until `until`, and, depending on `watch`, for writes of devices into the own memory;
    /// `ready` returns whether there was a notification already.
    pub fn wait(&self, idle: &mut Idle, watch: Watch, until: Option<Instant>, ready: impl FnOnce() -> bool) {
        if !self.done.is_empty() {
            return;
        }
        let (_, deadline) = self.link.waiting();
        let until = [until, deadline].into_iter().flatten().min();
        idle.wait(&self.link.wake, watch, until, || self.link.waiting().0 || ready());
    }

    /// Waits for the answer to a read that was just made, up to a limit: for set-up, when nothing else is in progress. Keeps answers to
    /// other reads.
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

    /// Finds out where this client puts the payload of messages, by having it write some bytes into our own memory. Runs once per
    /// connection; returns `None` if it cannot be found out now (no bus mastering, no address).
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
            // The upper half of the 64-bit count, read as payload, came first.
            _ if seen[4..] == pattern[..12] && seen[..4] == [0; 4] => Payload::At28,
            _ => return None,
        };
        self.link.set_payload(payload);
        Some(payload)
    }

    /// Cuts an access wherever the path to the bytes changes. Calls `take` for each piece with its position in the access, the number of
    /// bytes, and the path: in place for mapped memory, by message for the rest, or denied.
    fn each(&self, address: u64, length: usize, write: bool, mut take: impl FnMut(usize, usize, Taken<'_>)) {
        let (window, memory) = (self.window(), self.memory());
        let mut at = 0;
        while at < length {
            let (here, left) = (address.wrapping_add(at as u64), (length - at) as u64);
            if window.address != 0 && window.contains(here, left) {
                take(at, left as usize, Taken::InPlace(memory, here - window.address));
                return;
            }
            let maps = self.link.maps();
            if !self.is_master() {
                take(at, left as usize, Taken::Denied);
                return;
            }
            let (count, path) = maps.path(here, left, write);
            let most = self.link.max_transfer();
            let count = match path {
                Path::Message => (count as usize).min(most),
                _ => count as usize,
            };
            match path {
                Path::Memory(memory, offset) => take(at, count, Taken::InPlace(memory, offset)),
                Path::Denied => take(at, count, Taken::Denied),
                Path::Message => {
                    // The client may unmap while the message waits to be sent.
                    drop(maps);
                    take(at, count, Taken::ByMessage(here));
                }
            }
            at += count;
        }
    }
}

/// Recognises a register write (a doorbell, a tail) by its shape.
fn is_register(address: u64, bytes: &[u8]) -> bool {
    bytes.len() == 4 && address.is_multiple_of(4)
}

enum Taken<'a> {
    InPlace(&'a Memory, u64),
    ByMessage(u64),
    Denied,
}

impl Buses for VfioUserBus {}

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
                    // As for every write, a failure is not reported.
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
