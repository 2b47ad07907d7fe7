//! Posted writes from function to function, past the client: the part of a PCIe switch that forwards a write to an address below it.
//!
//! ```text
//!   function --- write(address, bytes) --> Switch ===socket===> Switch: take(address, bytes) --> function
//! ```
//!
//! Functions are in separate processes, and a socket between two processes stands for the switch: one listens, the others join. A write
//! goes to all processes that a function is joined with; each takes it by its address ([`Port::bar`](crate::Port::bar)), as BARs do, or
//! drops it. Writes arrive once, in the order in which they were made, or the connection has ended.
//!
//! A message is the address (8 bytes), the number of bytes (4 bytes, 1 to 4,096), and the bytes; numbers are little-endian. There are no
//! answers, as for any posted write.
//!
//! # Trust in a peer
//!
//! A peer is trusted with the BARs of the function, as any device on a bus is. An invalid message ends the connection. The listening side
//! waits for no peer: bytes that a slow one does not take are kept for it, up to a limit, beyond which it is disconnected. All peers together
//! have a limit of four times that; beyond it, the one with the most bytes is disconnected. A joined side waits for the listening one.
//!
//! The number of peers is limited, and so is the number from one process: no process keeps others out by itself. A process is known by its
//! number and its user's (SO_PEERCRED); all processes of a user in other PID namespaces that this one does not see count as one. A user who
//! may start processes, and connect (the folder's permissions decide), may still keep others out.
//!
//! # What it doesn't implement
//!
//! Reads; the client's IOMMU: such writes do not pass it, as below a switch that redirects nothing to its root (ACS). The user who starts
//! the processes decides which functions share a switch.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use rustix::io::Errno;
use rustix::net::{SendFlags, send};

use crate::link::Hold;
use crate::listen::listen;

/// Size of a message before its data, in bytes.
pub const HEAD: usize = 12;
/// Most bytes of a write.
pub const LARGEST: usize = 4096;
/// Most functions that join one.
const PEERS_MAX: usize = 64;
/// Most functions of one process that join one: `dcs d2d ssd` is one, and joins again after it was disconnected.
const MOST_OF_A_PROCESS: usize = 8;
/// Late bytes of all peers together, in limits of one.
const OF_ALL: usize = 4;
/// Time limit of a write: a peer that takes nothing for this long counts as gone.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause between attempts to join.
const PAUSE: Duration = Duration::from_millis(50);
/// Bytes that are read at once.
const PIECE: usize = 256 << 10;

/// A received write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Posted<'a> {
    /// Address to write to.
    pub address: u64,
    /// Bytes to write.
    pub data: &'a [u8],
}

/// An invalid message, with its number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid write of {0} bytes: expected 1 to {LARGEST}")]
pub struct LengthError(pub u32);

impl<'a> Posted<'a> {
    /// Parses the first write in these bytes; returns `None` if it is not complete yet.
    ///
    /// # Errors
    ///
    /// [`LengthError`]; the bytes that follow are meaningless.
    pub fn parse(bytes: &'a [u8]) -> Result<Option<Posted<'a>>, LengthError> {
        let Some((head, rest)) = bytes.split_first_chunk::<HEAD>() else { return Ok(None) };
        let [address @ .., a, b, c, d] = *head;
        let length = u32::from_le_bytes([a, b, c, d]);
        if !(1..=LARGEST as u32).contains(&length) {
            return Err(LengthError(length));
        }
        let data = rest.get(..length as usize);
        Ok(data.map(|data| Posted { address: u64::from_le_bytes(address), data }))
    }

    /// Returns the size of its message in bytes.
    pub fn size(&self) -> usize {
        HEAD + self.data.len()
    }
}

/// A batch of writes.
#[derive(Debug, Default)]
pub struct Batch(Vec<u8>);

impl Batch {
    /// Adds a write.
    ///
    /// # Panics
    ///
    /// If it has no bytes, or more than [`LARGEST`].
    pub fn add(&mut self, address: u64, data: &[u8]) {
        assert!((1..=LARGEST).contains(&data.len()), "a write of {} bytes", data.len());
        self.0.extend(address.to_le_bytes());
        self.0.extend((data.len() as u32).to_le_bytes());
        self.0.extend(data);
    }

    /// Returns true if there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// No function took the writes: there is none, or the last one is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no other function has joined the switch")]
pub struct Alone;

/// A handler of received writes: the address, the bytes.
pub type Take = Arc<dyn Fn(u64, &[u8]) + Send + Sync>;

/// Bytes that a peer was too slow to take.
#[derive(Default)]
struct Late {
    /// Bytes that wait for the thread that writes them.
    bytes: Vec<u8>,
    /// Bytes that the thread has taken, and not yet written.
    writing: usize,
    /// There is such a thread.
    has_thread: bool,
    /// Held until they are written: the function is bus master as long as its writes go out.
    holds: Vec<Arc<Hold>>,
}

impl Late {
    fn owed(&self) -> usize {
        self.bytes.len() + self.writing
    }

    /// Appends bytes, up to `kept` of all.
    fn keep(&mut self, bytes: &[u8], kept: usize, hold: Option<&Arc<Hold>>) -> io::Result<()> {
        let room = kept.saturating_sub(self.owed());
        if bytes.len() > room {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        if bytes.len() > self.bytes.capacity() - self.bytes.len() {
            // Twice the memory, but no more than may be kept.
            self.bytes.reserve_exact(bytes.len().max(self.bytes.len()).min(room));
        }
        self.bytes.extend_from_slice(bytes);
        let is_known = |hold| self.holds.last().is_some_and(|last| Arc::ptr_eq(last, hold));
        self.holds.extend(hold.filter(|hold| !is_known(hold)).cloned());
        Ok(())
    }
}

/// Another function at the switch.
struct Peer {
    stream: UnixStream,
    /// Numbers of the user and the process that connected; 0 for a process that this PID namespace does not see.
    process: (u32, i32),
    late: Mutex<Late>,
}

impl Peer {
    /// Writes everything, waiting for the peer.
    fn write(&self, bytes: &[u8]) -> io::Result<()> {
        (&self.stream).write_all(bytes)
    }

    /// Writes as much as possible without waiting. A thread writes the rest, if that is at most `kept` bytes with what it has.
    fn offer(self: &Arc<Peer>, mut bytes: &[u8], kept: usize, hold: Option<&Arc<Hold>>) -> io::Result<()> {
        let mut late = lock(&self.late);
        if late.has_thread {
            return late.keep(bytes, kept, hold);
        }
        while !bytes.is_empty() {
            match send(&self.stream, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(count) => bytes = &bytes[count..],
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    late.keep(bytes, kept, hold)?;
                    late.has_thread = true;
                    let peer = self.clone();
                    return thread(move || peer.write_late());
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Writes the late bytes, until there are none.
    fn write_late(&self) {
        loop {
            let (bytes, _until_written) = {
                let mut late = lock(&self.late);
                late.writing = late.bytes.len();
                late.has_thread = late.writing > 0;
                if !late.has_thread {
                    return;
                }
                // Later writes are appended to it.
                (std::mem::take(&mut late.bytes), std::mem::take(&mut late.holds))
            };
            if self.write(&bytes).is_err() {
                return self.hang_up();
            }
            lock(&self.late).writing = 0;
        }
    }

    fn owed(&self) -> usize {
        lock(&self.late).owed()
    }

    /// Ends the connection, and so its reader, which removes the peer.
    fn hang_up(&self) {
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
        let mut late = lock(&self.late);
        (late.bytes, late.holds) = Default::default();
    }
}

/// A function's connection to the others.
pub struct Switch {
    peers: Mutex<Vec<Arc<Peer>>>,
    take: Take,
    /// Most bytes to keep for a slow peer; `None` on the joined side, which waits instead.
    kept: Option<usize>,
}

impl Switch {
    /// Listens for functions that join. For a peer that is slow to take writes, up to `kept` bytes are kept in addition to the socket's
    /// buffer: at least as much as may be in flight to it without an answer.
    ///
    /// # Errors
    ///
    /// As [`Server::bind`](crate::Server::bind).
    pub fn listen(path: &Path, kept: usize, take: Take) -> io::Result<Arc<Switch>> {
        let listener = listen(path)?;
        let switch = Arc::new(Switch { peers: Mutex::default(), take, kept: Some(kept) });
        let accepting = switch.clone();
        thread(move || {
            loop {
                let Ok((stream, _)) = listener.accept() else {
                    std::thread::sleep(PAUSE);
                    continue;
                };
                // A peer beyond the limit is disconnected.
                let Ok(peer) = accepting.add(stream) else { continue };
                let (switch, reading) = (accepting.clone(), peer.clone());
                // So is one without a thread.
                if thread(move || switch.read(&reading)).is_err() {
                    accepting.forget(&peer);
                }
            }
        })?;
        Ok(switch)
    }

    /// Joins the function that listens there, as soon as there is one, and again if it is gone.
    ///
    /// # Errors
    ///
    /// If no thread is available.
    pub fn join(path: &Path, take: Take) -> io::Result<Arc<Switch>> {
        let switch = Arc::new(Switch { peers: Mutex::default(), take, kept: None });
        let (joining, path) = (switch.clone(), path.to_path_buf());
        thread(move || {
            loop {
                if let Ok(peer) = UnixStream::connect(&path).and_then(|stream| joining.add(stream)) {
                    joining.read(&peer);
                }
                std::thread::sleep(PAUSE);
            }
        })?;
        Ok(switch)
    }

    /// Writes a batch in order, and keeps `hold` until the batch is written. The joined side waits if the other is slow to take the writes:
    /// don't call it while holding a lock that `take` needs.
    ///
    /// # Errors
    ///
    /// [`Alone`]; some of them may have arrived.
    pub fn write(&self, batch: &mut Batch, hold: Option<Arc<Hold>>) -> Result<(), Alone> {
        let peers = self.peers().clone();
        let count = peers.len();
        let write = |peer: &Arc<Peer>| match self.kept {
            None => peer.write(&batch.0),
            Some(kept) => peer.offer(&batch.0, kept, hold.as_ref()),
        };
        let (gone, there): (Vec<_>, Vec<_>) = peers.into_iter().partition(|peer| write(peer).is_err());
        batch.0.clear();
        for peer in &gone {
            self.forget(peer);
        }
        self.bound(there);
        if gone.len() < count { Ok(()) } else { Err(Alone) }
    }

    /// Disconnects peers, the one with the most late bytes first, until all of them are within the limit for all.
    fn bound(&self, peers: Vec<Arc<Peer>>) {
        let most = self.kept.unwrap_or(usize::MAX).saturating_mul(OF_ALL);
        let mut owed: Vec<(usize, Arc<Peer>)> = peers.into_iter().map(|peer| (peer.owed(), peer)).collect();
        owed.sort_by_key(|(owed, _)| *owed);
        let mut sum: usize = owed.iter().map(|(owed, _)| owed).sum();
        while sum > most
            && let Some((owed, peer)) = owed.pop()
        {
            self.forget(&peer);
            sum -= owed;
        }
    }

    /// Disconnects the peers for which late bytes wait, so that nothing written before goes out any more. They may join again.
    pub fn drop_late(&self) {
        let late: Vec<_> = self.peers().iter().filter(|peer| peer.owed() > 0).cloned().collect();
        late.iter().for_each(|peer| self.forget(peer));
    }

    fn peers(&self) -> MutexGuard<'_, Vec<Arc<Peer>>> {
        lock(&self.peers)
    }

    fn forget(&self, peer: &Arc<Peer>) {
        peer.hang_up();
        self.peers().retain(|other| !Arc::ptr_eq(other, peer));
    }

    fn add(&self, stream: UnixStream) -> io::Result<Arc<Peer>> {
        stream.set_write_timeout(Some(WRITE_TIMEOUT))?;
        let credentials = getsockopt(&stream, PeerCredentials)?;
        let process = (credentials.uid(), credentials.pid());
        let (peer, mut peers) = (Arc::new(Peer { stream, process, late: Mutex::default() }), self.peers());
        let of_it = peers.iter().filter(|other| other.process == process).count();
        if peers.len() >= PEERS_MAX || of_it >= MOST_OF_A_PROCESS {
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        peers.push(peer.clone());
        Ok(peer)
    }

    /// Takes a peer's writes, until it is gone.
    fn read(&self, peer: &Arc<Peer>) {
        // However this ends, the connection ends with it.
        let _ = read(&peer.stream, &self.take);
        self.forget(peer);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn thread(work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new().name("dcs-switch".into()).spawn(work).map(drop)
}

impl std::fmt::Debug for Switch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Switch {{ {} peers }}", self.peers().len())
    }
}

/// Passes received writes on, until the end or an invalid message.
fn read(mut stream: &UnixStream, take: &Take) -> io::Result<()> {
    let (mut bytes, mut filled) = (vec![0; PIECE + HEAD + LARGEST], 0);
    loop {
        match stream.read(&mut bytes[filled..])? {
            0 => return Ok(()),
            count => filled += count,
        }
        let mut done = 0;
        while let Some(posted) = Posted::parse(&bytes[done..filled]).map_err(io::Error::other)? {
            take(posted.address, posted.data);
            done += posted.size();
        }
        bytes.copy_within(done..filled, 0);
        filled -= done;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;
    use std::sync::mpsc::{Receiver, channel};

    const KEPT: usize = 1 << 20;

    fn taking() -> (Take, Receiver<(u64, Vec<u8>)>) {
        let (told, taken) = channel();
        let told = Mutex::new(told);
        (Arc::new(move |address, data: &[u8]| _ = told.lock().unwrap().send((address, data.to_vec()))), taken)
    }

    /// More than anything here takes.
    const LIMIT: Duration = Duration::from_secs(60);

    fn next(writes: &Receiver<(u64, Vec<u8>)>) -> (u64, Vec<u8>) {
        writes.recv_timeout(LIMIT).expect("another write")
    }

    fn await_peers(switch: &Switch, is_right: impl Fn(usize) -> bool) {
        let end = std::time::Instant::now() + LIMIT;
        while !is_right(switch.peers().len()) {
            assert!(std::time::Instant::now() < end, "{switch:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn await_peer(switch: &Switch) {
        await_peers(switch, |count| count > 0);
    }

    #[test]
    fn writes_arrive_in_their_order_both_ways() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("switch");
        let (take, heard) = taking();
        let (back, answered) = taking();
        let joined = Switch::join(&path, back).unwrap();
        let mut batch = Batch::default();
        batch.add(1, b"lost");
        assert_eq!(joined.write(&mut batch, None), Err(Alone), "no function listens");
        let listening = Switch::listen(&path, KEPT, take).unwrap();
        await_peer(&joined);
        batch.add(7, &[1; LARGEST]);
        batch.add(u64::MAX, b"x");
        joined.write(&mut batch, None).unwrap();
        assert_eq!(next(&heard), (7, vec![1; LARGEST]));
        assert_eq!(next(&heard), (u64::MAX, b"x".to_vec()));
        batch.add(9, b"grant");
        listening.write(&mut batch, None).unwrap();
        assert_eq!(next(&answered), (9, b"grant".to_vec()));
        let mut many = Batch::default();
        (0..20_000u64).for_each(|number| many.add(number, &number.to_le_bytes()));
        joined.write(&mut many, None).unwrap();
        assert!((0..20_000u64).all(|number| next(&heard) == (number, number.to_le_bytes().to_vec())));
    }

    #[test]
    fn a_message_that_cannot_be_ends_the_connection_and_the_next_one_is_heard() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("switch");
        let (take, heard) = taking();
        let listening = Switch::listen(&path, KEPT, take).unwrap();
        for length in [0, LARGEST as u32 + 1, u32::MAX] {
            let mut wrong = UnixStream::connect(&path).unwrap();
            wrong.write_all(&[&[0; 8][..], &length.to_le_bytes()].concat()).unwrap();
            assert_eq!(wrong.read(&mut [0]).unwrap(), 0, "disconnected");
        }
        let right = Switch::join(&path, Arc::new(|_, _| ())).unwrap();
        await_peer(&right);
        let mut batch = Batch::default();
        batch.add(3, b"right");
        right.write(&mut batch, None).unwrap();
        assert_eq!(next(&heard), (3, b"right".to_vec()));
        assert!(listening.peers().len() <= 1);
    }

    #[test]
    #[ignore = "the other process of the next test: makes a write, then waits to be disconnected"]
    fn another_process() {
        let Some(path) = std::env::var_os("DCS_TEST_SWITCH") else { return };
        let mut stream = UnixStream::connect(path).unwrap();
        let mut batch = Batch::default();
        batch.add(5, b"abc");
        stream.write_all(&batch.0).unwrap();
        let _ = stream.read(&mut [0]);
    }

    #[test]
    fn one_process_does_not_keep_others_out() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("switch");
        let (take, heard) = taking();
        let listening = Switch::listen(&path, KEPT, take).unwrap();
        let mut greedy: Vec<_> = (0..PEERS_MAX).map(|_| UnixStream::connect(&path).unwrap()).collect();
        for refused in &mut greedy[MOST_OF_A_PROCESS..] {
            // An end, or a reset.
            assert!(!matches!(refused.read(&mut [0]), Ok(1..)), "disconnected");
        }
        assert_eq!(listening.peers().len(), MOST_OF_A_PROCESS);
        let mut other = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "switch::tests::another_process", "--ignored"])
            .env("DCS_TEST_SWITCH", &path)
            .spawn()
            .unwrap();
        assert_eq!(heard.recv_timeout(6 * WRITE_TIMEOUT), Ok((5, b"abc".to_vec())));
        assert_eq!(listening.peers().len(), MOST_OF_A_PROCESS + 1);
        // A place that one of them frees can be taken again.
        drop(greedy);
        await_peers(&listening, |count| count <= 1);
        let mut again = UnixStream::connect(&path).unwrap();
        let mut batch = Batch::default();
        batch.add(6, b"again");
        again.write_all(&batch.0).unwrap();
        assert_eq!(heard.recv_timeout(6 * WRITE_TIMEOUT), Ok((6, b"again".to_vec())));
        other.kill().unwrap();
        other.wait().unwrap();
    }

    /// Checks that a peer that takes nothing is disconnected soon, and the other gets everything.
    #[test]
    fn a_peer_that_takes_nothing_does_not_hold_up_who_listens() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("switch");
        let listening = Switch::listen(&path, KEPT, Arc::new(|_, _| ())).unwrap();
        let mut slow = UnixStream::connect(&path).unwrap();
        let (take, heard) = taking();
        let _quick = Switch::join(&path, take).unwrap();
        await_peers(&listening, |count| count == 2);
        let (told, done) = channel();
        std::thread::spawn(move || {
            let mut batch = Batch::default();
            // More than twice what is kept.
            for first in (0..640u64).step_by(16) {
                (first..first + 16).for_each(|number| batch.add(number, &[7; LARGEST]));
                listening.write(&mut batch, None).unwrap();
                assert!((first..first + 16).all(|number| next(&heard) == (number, vec![7; LARGEST])));
            }
            told.send(listening.peers().len()).unwrap();
        });
        // Less than the time for which a write waits.
        let peers = done.recv_timeout(WRITE_TIMEOUT - Duration::from_secs(1));
        assert_eq!(peers, Ok(1), "the slow one was disconnected");
        let mut bytes = Vec::new();
        let _ = slow.read_to_end(&mut bytes);
        assert!(!bytes.is_empty() && bytes.len() < 640 * LARGEST);
    }

    /// Checks the bytes that are kept for a peer, with those that a thread is writing, and the first ones.
    #[test]
    fn no_more_is_kept_for_a_peer_than_may_be_nor_for_all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("switch");
        let listening = Switch::listen(&path, KEPT, Arc::new(|_, _| ())).unwrap();
        let write = |listening: &Switch, bytes: usize| {
            let mut batch = Batch::default();
            (0..bytes / LARGEST).for_each(|_| batch.add(1, &[7; LARGEST]));
            let _ = listening.write(&mut batch, None);
        };
        let slow = |count: usize| {
            let slow: Vec<_> = (0..count).map(|_| UnixStream::connect(&path).unwrap()).collect();
            await_peers(&listening, |there| there == count);
            slow
        };
        // All at once: more than the socket's buffer and what is kept.
        let first = slow(1);
        write(&listening, 4 * KEPT);
        await_peers(&listening, |there| there == 0);
        drop(first);
        // A piece at a time, of which the thread has some.
        let pieces = slow(1);
        for _ in 0..3 * KEPT / (64 << 10) {
            write(&listening, 64 << 10);
            let owed: usize = listening.peers().iter().map(|peer| peer.owed()).sum();
            assert!(owed <= KEPT, "{owed}");
            std::thread::sleep(Duration::from_millis(1));
        }
        await_peers(&listening, |there| there == 0);
        drop(pieces);
        // Each within its limit, and all of them beyond theirs: some go, and the rest stays.
        let many = slow(MOST_OF_A_PROCESS);
        write(&listening, KEPT);
        let owed: usize = listening.peers().iter().map(|peer| peer.owed()).sum();
        assert!(owed <= OF_ALL * KEPT && owed > KEPT, "{owed}");
        await_peers(&listening, |there| there > 0 && there < MOST_OF_A_PROCESS);
        drop(many);
    }

    #[test]
    fn late_bytes_are_dropped_with_their_peer_and_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("switch");
        let listening = Switch::listen(&path, KEPT, Arc::new(|_, _| ())).unwrap();
        let (take, heard) = taking();
        let _quick = Switch::join(&path, take).unwrap();
        await_peer(&listening);
        let mut slow = UnixStream::connect(&path).unwrap();
        await_peers(&listening, |count| count == 2);
        let (hold, mut batch) = (Arc::new(Hold::default()), Batch::default());
        (0..KEPT / LARGEST).for_each(|_| batch.add(1, &[7; LARGEST]));
        listening.write(&mut batch, Some(hold.clone())).unwrap();
        (0..KEPT / LARGEST).for_each(|_| assert_eq!(next(&heard), (1, vec![7; LARGEST])));
        let end = std::time::Instant::now() + LIMIT;
        while listening.peers().iter().filter(|peer| peer.owed() > 0).count() > 1 {
            assert!(std::time::Instant::now() < end, "the quick one has taken everything");
            std::thread::yield_now();
        }
        listening.drop_late();
        assert_eq!(listening.peers().len(), 1);
        while Arc::strong_count(&hold) > 1 {
            assert!(std::time::Instant::now() < end, "it is held on to");
            std::thread::sleep(Duration::from_millis(1));
        }
        let mut came = Vec::new();
        let _ = slow.read_to_end(&mut came);
        assert!(came.len() < KEPT / LARGEST * (HEAD + LARGEST), "the rest is gone");
        batch.add(2, b"next");
        listening.write(&mut batch, None).unwrap();
        assert_eq!(next(&heard), (2, b"next".to_vec()));
    }

    #[test]
    fn a_hold_is_kept_until_what_is_late_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("switch");
        let listening = Switch::listen(&path, KEPT, Arc::new(|_, _| ())).unwrap();
        for takes in [true, false] {
            let mut slow = UnixStream::connect(&path).unwrap();
            await_peer(&listening);
            let (hold, mut batch) = (Arc::new(Hold::default()), Batch::default());
            (0..KEPT / LARGEST).for_each(|_| batch.add(1, &[7; LARGEST]));
            listening.write(&mut batch, Some(hold.clone())).unwrap();
            assert!(Arc::strong_count(&hold) > 1, "it is not all out");
            if takes {
                slow.read_exact(&mut vec![0; KEPT / LARGEST * (HEAD + LARGEST)]).unwrap();
            }
            drop(slow);
            let end = std::time::Instant::now() + LIMIT;
            while Arc::strong_count(&hold) > 1 {
                assert!(std::time::Instant::now() < end, "it is held on to");
                std::thread::sleep(Duration::from_millis(1));
            }
            await_peers(&listening, |count| count == 0);
        }
    }

    #[test]
    fn what_a_peer_takes_late_comes_whole_and_in_its_order() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("switch");
        let listening = Switch::listen(&path, KEPT, Arc::new(|_, _| ())).unwrap();
        let slow = UnixStream::connect(&path).unwrap();
        await_peer(&listening);
        let mut batch = Batch::default();
        // More than a socket's buffer, and less than what is kept in addition to it.
        for number in 0..200u64 {
            batch.add(number, &[number as u8; LARGEST]);
            listening.write(&mut batch, None).unwrap();
        }
        let (take, heard) = taking();
        std::thread::spawn(move || read(&slow, &take));
        assert!((0..200u64).all(|number| next(&heard) == (number, vec![number as u8; LARGEST])));
        // Then it is like any other peer.
        batch.add(1000, b"again");
        listening.write(&mut batch, None).unwrap();
        assert_eq!(next(&heard), (1000, b"again".to_vec()));
    }

    #[test]
    fn who_is_hung_up_on_joins_again_after_a_pause() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("switch");
        let listener = UnixListener::bind(&path).unwrap();
        let began = std::time::Instant::now();
        let (take, heard) = taking();
        let joined = Switch::join(&path, take).unwrap();
        (0..4).for_each(|_| drop(listener.accept().unwrap()));
        assert!(began.elapsed() >= 3 * PAUSE, "after {:?}", began.elapsed());
        drop(listener);
        let listening = Switch::listen(&path, KEPT, Arc::new(|_, _| ())).unwrap();
        await_peer(&listening);
        await_peer(&joined);
        let mut batch = Batch::default();
        batch.add(9, b"grant");
        listening.write(&mut batch, None).unwrap();
        assert_eq!(next(&heard), (9, b"grant".to_vec()));
    }

    #[test]
    fn half_a_message_is_waited_for() {
        let mut batch = Batch::default();
        batch.add(5, b"abc");
        for end in 0..batch.0.len() {
            assert_eq!(Posted::parse(&batch.0[..end]), Ok(None));
        }
        assert_eq!(Posted::parse(&batch.0), Ok(Some(Posted { address: 5, data: b"abc" })));
    }
}
