//! The state shared by the thread that answers the client and the owner of the bus: the connection, the client's memory, its interrupts,
//! and the reads in progress.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

use dcs_drivers::bus::{BusError, ReadDone, Tag};
use dcs_vfio::Signals;

use crate::maps::Maps;
use crate::pci::State;
use crate::socket;
use crate::wake::Wake;
use crate::wire::{self, MAX_TRANSFER, Payload};

/// Time limit for an answer to a read.
pub const READ_TIMEOUT: Duration = Duration::from_secs(5);
/// Time for which a client may leave its socket unread before it counts as gone.
const SEND_TIMEOUT: Duration = Duration::from_secs(5);
/// Time for which a client waits until its memory is no longer in use.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(3);
/// Most reads by message at once.
const READS_MAX: usize = 4096;

pub struct Link {
    pub state: Arc<State>,
    pub wake: Wake,
    connection: Mutex<Option<Arc<UnixStream>>>,
    /// Held while a message is sent, which takes as long as the client likes: nobody else waits for that.
    sending: Mutex<()>,
    max_transfer: AtomicUsize,
    vectors: Mutex<Vec<Option<OwnedFd>>>,
    signals: &'static Signals,
    reads: Mutex<Reads>,
    before: Mutex<Before>,
}

/// A hold on the client's memory: until it is dropped, an unmapping or a reset is not answered.
#[derive(Debug, Default)]
pub struct Hold(Arc<Ended>);

#[derive(Debug, Default)]
struct Ended {
    is: Mutex<bool>,
    told: Condvar,
}

impl Drop for Hold {
    fn drop(&mut self) {
        *lock(&self.0.is) = true;
        self.0.told.notify_all();
    }
}

impl Ended {
    /// Waits until it has ended, or until the given time.
    fn wait(&self, until: Instant) -> bool {
        let left = until.saturating_duration_since(Instant::now());
        let waited = self.told.wait_timeout_while(lock(&self.is), left, |is| !*is);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// Holds on the client's memory from before the last unmapping or reset that had not ended at the last check.
type Before = Vec<Arc<Ended>>;

#[derive(Default)]
struct Reads {
    next_id: u16,
    next_read: u64,
    payload: Option<Payload>,
    parts: HashMap<u16, Part>,
    whole: HashMap<u64, Whole>,
    done: VecDeque<ReadDone>,
    probe: Option<Result<(), BusError>>,
}

/// A message that awaits an answer.
struct Part {
    of: Of,
    at: usize,
    length: usize,
    deadline: Instant,
}

#[derive(Clone, Copy)]
enum Of {
    Read(u64),
    Probe,
}

/// A read whose parts arrive one by one.
struct Whole {
    tag: Tag,
    data: Vec<u8>,
    left: usize,
    error: Option<BusError>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The content of these locks is consistent after every statement.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Link {
    pub fn new(state: Arc<State>, vectors: u16, wake: Wake) -> io::Result<Link> {
        let (vectors, signals) = (Mutex::new((0..vectors).map(|_| None).collect()), Signals::get()?);
        let (connection, sending, reads, before) = Default::default();
        Ok(Link {
            state,
            wake,
            connection,
            sending,
            max_transfer: MAX_TRANSFER.into(),
            vectors,
            signals,
            reads,
            before,
        })
    }

    /// Notes that a client is connected.
    pub fn connect(&self, socket: UnixStream) -> io::Result<Arc<UnixStream>> {
        socket.set_write_timeout(Some(SEND_TIMEOUT))?;
        let socket = Arc::new(socket);
        lock(&self.reads).payload = None;
        self.max_transfer.store(MAX_TRANSFER, Ordering::Relaxed);
        *lock(&self.connection) = Some(socket.clone());
        Ok(socket)
    }

    /// Removes the client and everything that it passed to us.
    pub fn disconnect(&self) {
        *lock(&self.connection) = None;
        let removed = self.maps_mut().remove_all();
        drop(removed);
        lock(&self.vectors).iter_mut().for_each(|vector| *vector = None);
        let mut reads = lock(&self.reads);
        let ids: Vec<u16> = reads.parts.keys().copied().collect();
        ids.into_iter().for_each(|id| reads.answer(id, Err(BusError::Unsupported)));
        drop(reads);
        self.wake.notify();
    }

    /// Returns the client's memory, to be held while it is accessed.
    pub fn maps(&self) -> RwLockReadGuard<'_, Maps> {
        self.state.maps.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the client's memory, to be changed.
    pub fn maps_mut(&self) -> RwLockWriteGuard<'_, Maps> {
        self.state.maps.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a hold that keeps the client's memory in use.
    pub fn hold(&self) -> Arc<Hold> {
        self.maps().hold.clone()
    }

    /// Waits until all uses of the client's memory that were in progress at the call have ended; returns false if that takes too long.
    pub fn drain(&self) -> bool {
        let until = Instant::now() + DRAIN_TIMEOUT;
        let before = {
            let mut before = lock(&self.before);
            let last = std::mem::take(&mut self.maps_mut().hold);
            before.push(last.0.clone());
            before.clone()
        };
        let ended = before.iter().all(|one| one.wait(until));
        lock(&self.before).retain(|one| !*lock(&one.is));
        ended
    }

    /// Returns true if a client is connected.
    pub fn is_connected(&self) -> bool {
        lock(&self.connection).is_some()
    }

    /// Ends the connection, if there is one: the thread that answers the client notices.
    pub fn hang_up(&self) {
        if let Some(socket) = &*lock(&self.connection) {
            let _ = socket.shutdown(std::net::Shutdown::Both);
        }
    }

    pub fn limit_transfers(&self, most: usize) {
        self.max_transfer.store(most, Ordering::Relaxed);
    }

    pub fn max_transfer(&self) -> usize {
        self.max_transfer.load(Ordering::Relaxed)
    }

    /// Sends a message. Disconnects a client that does not take it.
    pub fn send(&self, message: &[u8], fd: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let _turn = lock(&self.sending);
        let socket = lock(&self.connection).clone().ok_or(io::ErrorKind::NotConnected)?;
        socket::send(socket.as_fd(), message, fd).inspect_err(|_| {
            let _ = socket.shutdown(std::net::Shutdown::Both);
        })
    }

    /// Begins a read, whose bytes come from [`Link::put`] and [`Link::ask`].
    pub fn begin(&self, tag: Tag, length: usize) -> u64 {
        let mut reads = lock(&self.reads);
        reads.next_read += 1;
        let read = reads.next_read;
        // One more byte is missing until `end` is called.
        reads.whole.insert(read, Whole { tag, data: vec![0; length], left: length + 1, error: None });
        read
    }

    /// Adds bytes of a read that are available already, or the reason why they never will be.
    pub fn put(&self, read: u64, at: usize, bytes: Result<&[u8], (BusError, usize)>) {
        lock(&self.reads).put(read, at, bytes);
    }

    /// Requests bytes of a read from the client.
    pub fn ask(&self, read: u64, at: usize, address: u64, length: usize) {
        let id = lock(&self.reads).expect(Part { of: Of::Read(read), at, length, deadline: deadline() });
        let Some(id) = id else { return self.put(read, at, Err((BusError::Timeout, length))) };
        if self.send(&wire::dma_read(id, address, length), None).is_err() {
            lock(&self.reads).answer(id, Err(BusError::Unsupported));
        }
    }

    /// Notes that all parts of a read were put or requested.
    pub fn end(&self, read: u64) {
        lock(&self.reads).missing(read, 1);
    }

    /// Posts a write by message, without waiting for an answer.
    pub fn post(&self, address: u64, data: &[u8], payload: Payload) {
        let id = lock(&self.reads).free_id();
        if let Some(id) = id {
            // Posted: a failure is not reported.
            let _ = self.send(&wire::dma_write(id, address, data, payload, true), None);
        }
    }

    /// Processes the client's answer to one of our messages, or its refusal. Drops answers that are not awaited.
    pub fn answered(&self, id: u16, reply: Result<&[u8], u32>) {
        lock(&self.reads).answer(id, reply.map_err(meaning));
        self.wake.notify();
    }

    /// Takes a read that is finished.
    pub fn take_done(&self) -> Option<ReadDone> {
        lock(&self.reads).done.pop_front()
    }

    /// Returns whether an answer is available, and the deadline of the oldest read without one.
    pub fn waiting(&self) -> (bool, Option<Instant>) {
        let reads = lock(&self.reads);
        (!reads.done.is_empty(), reads.parts.values().map(|part| part.deadline).min())
    }

    /// Gives up reads that have taken too long.
    pub fn expire(&self, now: Instant) {
        let mut reads = lock(&self.reads);
        let late: Vec<u16> =
            reads.parts.iter().filter(|(_, part)| part.deadline <= now).map(|(id, _)| *id).collect();
        late.into_iter().for_each(|id| reads.answer(id, Err(BusError::Timeout)));
    }

    pub fn payload(&self) -> Option<Payload> {
        lock(&self.reads).payload
    }

    pub fn set_payload(&self, payload: Payload) {
        lock(&self.reads).payload = Some(payload);
    }

    /// Writes `data` at `address` and waits until the client confirms it. Only for the owner of the bus.
    pub fn write_and_wait(&self, address: u64, data: &[u8], payload: Payload) -> Result<(), BusError> {
        let (at, length, deadline) = (0, 0, deadline());
        let id = {
            let mut reads = lock(&self.reads);
            reads.probe = None;
            reads.expect(Part { of: Of::Probe, at, length, deadline }).ok_or(BusError::Timeout)?
        };
        let message = wire::dma_write(id, address, data, payload, false);
        if self.send(&message, None).is_err() {
            lock(&self.reads).answer(id, Err(BusError::Unsupported));
        }
        loop {
            if let Some(answer) = lock(&self.reads).probe.take() {
                return answer;
            }
            self.wake.sleep(Some(Duration::from_millis(100)), || lock(&self.reads).probe.is_some());
            self.expire(Instant::now());
        }
    }

    /// Sets the eventfd of an interrupt; returns `None` if the descriptor is not an eventfd.
    pub fn set_vector(&self, vector: usize, event: Option<OwnedFd>) -> Option<()> {
        if event.as_ref().is_some_and(|event| !is_eventfd(event)) {
            return None;
        }
        *lock(&self.vectors).get_mut(vector)? = event;
        Some(())
    }

    /// Returns the number of vectors.
    pub fn vectors(&self) -> usize {
        lock(&self.vectors).len()
    }

    pub fn interrupt(&self, vector: usize) {
        if let Some(Some(event)) = lock(&self.vectors).get(vector) {
            // The client shares the event, and may have filled it, or made its writers block.
            let _ = self.signals.signal(event.as_fd());
        }
    }
}

fn deadline() -> Instant {
    Instant::now() + READ_TIMEOUT
}

fn is_eventfd(event: &OwnedFd) -> bool {
    // A path begins with a slash.
    let name = std::fs::read_link(format!("/proc/self/fd/{}", event.as_raw_fd()));
    name.is_ok_and(|name| name.as_os_str() == "anon_inode:[eventfd]")
}

/// Maps a client's errno to a bus error. EPERM does not mean that nothing answers: QEMU returns it for a device that is busy and takes no
/// access meanwhile (an NVMe controller that waits for its disk, in a reset).
fn meaning(errno: u32) -> BusError {
    use rustix::io::Errno;
    let nobody = [Errno::NODEV, Errno::NXIO, Errno::INVAL, Errno::FAULT, Errno::ACCESS, Errno::NOENT];
    let errno = i32::try_from(errno).unwrap_or(0);
    if nobody.iter().any(|one| one.raw_os_error() == errno) {
        BusError::Unsupported
    } else {
        BusError::Aborted
    }
}

impl Reads {
    fn expect(&mut self, part: Part) -> Option<u16> {
        let id = self.free_id().filter(|_| self.parts.len() < READS_MAX)?;
        self.parts.insert(id, part);
        Some(id)
    }

    fn free_id(&mut self) -> Option<u16> {
        (0..=u16::MAX).find_map(|_| {
            self.next_id = self.next_id.wrapping_add(1);
            (!self.parts.contains_key(&self.next_id)).then_some(self.next_id)
        })
    }

    fn answer(&mut self, id: u16, reply: Result<&[u8], BusError>) {
        let Some(part) = self.parts.remove(&id) else { return };
        let read = match part.of {
            Of::Read(read) => read,
            Of::Probe => {
                self.probe = Some(reply.map(|_| ()));
                return;
            }
        };
        let payload = self.payload.unwrap_or(Payload::At32);
        let data = reply.and_then(|body| wire::dma_data(body, part.length, payload).ok_or(BusError::Aborted));
        self.put(read, part.at, data.map_err(|error| (error, part.length)));
    }

    fn put(&mut self, read: u64, at: usize, bytes: Result<&[u8], (BusError, usize)>) {
        let Some(whole) = self.whole.get_mut(&read) else { return };
        let length = match bytes {
            Ok(bytes) => {
                whole.data[at..at + bytes.len()].copy_from_slice(bytes);
                bytes.len()
            }
            Err((error, length)) => {
                whole.error.get_or_insert(error);
                length
            }
        };
        self.missing(read, length);
    }

    fn missing(&mut self, read: u64, less: usize) {
        let Some(whole) = self.whole.get_mut(&read) else { return };
        whole.left -= less;
        if whole.left == 0
            && let Some(whole) = self.whole.remove(&read)
        {
            let data = whole.error.map_or(Ok(whole.data), Err);
            self.done.push_back(ReadDone { tag: whole.tag, data });
        }
    }
}
