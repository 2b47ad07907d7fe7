//! The client on the outer machine, behind QEMU's network: it uses this machine's TCP and checks every byte and digest.

use super::task::{Task, TaskResult, Transfer, object};
use crate::harness::data::Direction;
use crate::operate::Operators;
use dcs::Op;
use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddrV4, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Bytes to compare at once.
const PIECE: usize = 256 << 10;

/// A client that waits for its connection or has it.
pub struct Client {
    pub port: u16,
    received: Receiver<io::Result<Received>>,
}

/// A stream as the client saw it.
pub struct Received {
    pub bytes: u64,
    /// Numbers of the first few transfers with wrong bytes.
    pub wrong: Vec<usize>,
    /// CPU time of the guest's processor when the connection was made, and at the end of the server's stream.
    pub processor_ns: [u64; 2],
    /// Bytes received by then, with this machine's time: at the first byte, at each piece, at the last. If nothing is to be
    /// received, at the connection and at the end.
    pub progress: Vec<(Instant, u64)>,
}

impl Received {
    /// Returns the times of the first and the last byte.
    pub fn time(&self) -> Option<[Instant; 2]> {
        Some([self.progress.first()?.0, self.progress.last()?.0])
    }

    /// Returns the bytes received by a moment.
    pub fn until(&self, moment: Instant) -> u64 {
        let after = self.progress.partition_point(|(time, _)| *time <= moment);
        after.checked_sub(1).map_or(0, |last| self.progress[last].1)
    }
}

/// The thread of QEMU that runs the guest's only processor. Its CPU time is that of the guest's instructions, and of QEMU's work
/// on device accesses that it does at once. It stops while the guest is idle, waits for QEMU's lock, or waits for a core of this
/// machine.
#[derive(Clone)]
pub struct Processor {
    pub thread: u32,
    schedstat: PathBuf,
}

impl Processor {
    /// Finds the thread in this QEMU.
    pub fn find(qemu: u32) -> io::Result<Processor> {
        for task in fs::read_dir(format!("/proc/{qemu}/task"))? {
            let task = task?;
            let name = task.file_name();
            if fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name.starts_with("CPU 0"))
                && let Some(thread) = name.to_str().and_then(|name| name.parse().ok())
            {
                return Ok(Processor { thread, schedstat: task.path().join("schedstat") });
            }
        }
        Err(io::Error::other("QEMU has no thread for the guest's processor"))
    }

    /// Returns its CPU time in nanoseconds. [Linux: Documentation/scheduler/sched-stats.rst]
    pub fn time(&self) -> io::Result<u64> {
        let text = fs::read_to_string(&self.schedstat)?;
        let first = text.split_whitespace().next().and_then(|word| word.parse().ok());
        first.ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}

/// Expected results of a task, by object.
pub struct Expected {
    /// Bytes that the client sends for objects to be received, and when.
    sent: Vec<(u64, Vec<u8>)>,
    /// Bytes that the client receives of objects to be sent.
    received: Vec<(usize, Vec<u8>)>,
    /// Name and value of each digest, by object.
    digests: Vec<Vec<(String, String)>>,
    /// MD5 of the objects that are received, by object.
    stored: Vec<Option<String>>,
}

impl Expected {
    /// Computes the results over one connection. `seed` is that of the client's data, `disk` that of the SSD's initial contents.
    pub fn new(task: &Task, seed: u64, disk: u64) -> io::Result<Expected> {
        let (mut sent, mut received) = (Vec::new(), Vec::new());
        let (mut digests, mut stored) = (Vec::new(), Vec::new());
        for (number, item) in task.items.iter().enumerate() {
            let seed = if item.direction == Direction::Receive { seed } else { disk };
            let original = object(seed, item.file, item.length);
            let (output, values) = through(&task.ops(number)?, original.clone())?;
            digests.push(values);
            match item.direction {
                Direction::Send => {
                    received.push((number, output));
                    stored.push(None);
                }
                Direction::Receive => {
                    let (_, md5) = through(&[Op::Md5], output)?;
                    stored.push(md5.into_iter().next().map(|(_, value)| value));
                    sent.push((item.at_ns, original));
                }
            }
        }
        Ok(Expected { sent, received, digests, stored })
    }
}

/// Result of the comparison, over all connections.
#[derive(Default)]
pub struct Verdict {
    pub bytes: u64,
    pub digests: u64,
    pub errors: Vec<String>,
}

impl Client {
    /// Starts a client for the server's next connection.
    pub fn start(expected: &Arc<Expected>, processor: &Processor) -> io::Result<Client> {
        let listener = TcpListener::bind(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))?;
        let port = listener.local_addr()?.port();
        let (sender, received) = channel();
        let (expected, processor) = (Arc::clone(expected), processor.clone());
        std::thread::spawn(move || {
            // The receiver is gone if the server has failed.
            let _ = sender.send(serve(&listener, &expected, &processor));
        });
        Ok(Client { port, received })
    }

    /// Returns the client's view, once the server's stream has ended.
    pub fn end(self, limit: Duration) -> io::Result<Received> {
        self.received.recv_timeout(limit).map_err(|_| io::ErrorKind::TimedOut)?
    }
}

/// Sends, receives and compares until the end, then confirms that everything has arrived.
fn serve(listener: &TcpListener, expected: &Arc<Expected>, processor: &Processor) -> io::Result<Received> {
    let (mut stream, _) = listener.accept()?;
    let (start, before) = (Instant::now(), processor.time()?);
    stream.set_read_timeout(Some(Duration::from_secs(300)))?;
    let sender = (!expected.sent.is_empty()).then(|| {
        let (expected, stream) = (Arc::clone(expected), stream.try_clone());
        std::thread::spawn(move || send(stream?, &expected.sent, start))
    });
    let Compared { bytes, wrong, mut progress } = compare(&mut stream, &expected.received)?;
    if progress.is_empty() {
        progress = vec![(start, 0), (Instant::now(), 0)];
    }
    let processor_ns = [before, processor.time()?];
    if let Some(sender) = sender {
        sender.join().map_err(|_| io::Error::other("the client's sender failed"))??;
    }
    stream.write_all(b"!")?;
    stream.shutdown(Shutdown::Write)?;
    Ok(Received { bytes, wrong, processor_ns, progress })
}

fn send(mut stream: TcpStream, objects: &[(u64, Vec<u8>)], start: Instant) -> io::Result<()> {
    for (at, bytes) in objects {
        std::thread::sleep(Duration::from_nanos(*at).saturating_sub(start.elapsed()));
        stream.write_all(bytes)?;
    }
    Ok(())
}

/// Outcome of a stream.
struct Compared {
    bytes: u64,
    wrong: Vec<usize>,
    progress: Vec<(Instant, u64)>,
}

/// Reads to the end, and compares with these objects, repeated.
fn compare(stream: &mut TcpStream, objects: &[(usize, Vec<u8>)]) -> io::Result<Compared> {
    let (mut bytes, mut wrong, mut buffer) = (0, Vec::new(), vec![0; PIECE]);
    let mut progress = Vec::new();
    let mut next = objects.iter().cycle();
    let mut left: (usize, &[u8]) = (0, &[]);
    loop {
        let count = match stream.read(&mut buffer) {
            // A server that fails resets its connection: the count shows what is missing.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => 0,
            read => read?,
        };
        if count == 0 {
            return Ok(Compared { bytes, wrong, progress });
        }
        bytes += count as u64;
        progress.push((Instant::now(), bytes));
        let mut piece = &buffer[..count];
        while !piece.is_empty() {
            if left.1.is_empty() {
                left = next.next().map_or((0, &[][..]), |(number, object)| (*number, object));
            }
            if left.1.is_empty() {
                // Nothing was expected.
                wrong.push(0);
                break;
            }
            let (now, later) = piece.split_at(piece.len().min(left.1.len()));
            if now != &left.1[..now.len()] && wrong.len() < 5 && wrong.last() != Some(&left.0) {
                wrong.push(left.0);
            }
            (piece, left.1) = (later, &left.1[now.len()..]);
        }
    }
}

/// Compares what the client received and what the server reports, on each connection, with the expected results of the objects
/// and the chain.
pub fn check(task: &Task, clients: &[(Arc<Expected>, Received)], outcome: &TaskResult) -> Verdict {
    let mut verdict = Verdict::default();
    for (stream, (expected, received)) in clients.iter().enumerate() {
        let transfers = outcome.transfers.iter().filter(|transfer| transfer.stream == stream);
        let transfers: Vec<&Transfer> = transfers.collect();
        check_stream(task, (expected, received), (&transfers, &outcome.stored), &mut verdict);
    }
    verdict
}

fn check_stream(
    task: &Task,
    (expected, received): (&Expected, &Received),
    (transfers, stored): (&[&Transfer], &[String]),
    verdict: &mut Verdict,
) {
    let errors = &mut verdict.errors;
    let count = transfers.len();
    if task.lasting_ns.is_none() && count != task.items.len() || count == 0 {
        errors.push(format!("{count} transfers of {}", task.items.len()));
    }
    let sends = |number: &usize| task.item(*number).direction == Direction::Send;
    let sent: u64 = (0..count).filter(sends).map(|number| task.item(number).length).sum();
    if received.bytes != sent {
        errors.push(format!("the client received {} bytes of {sent}", received.bytes));
    }
    errors.extend(received.wrong.iter().map(|number| format!("object {number} has wrong bytes")));
    let mut stored = stored.iter();
    for (number, transfer) in transfers.iter().enumerate() {
        let (item, at) = (task.item(number), number % task.items.len());
        if item.direction == Direction::Receive && stored.next() != expected.stored[at].as_ref() {
            errors.push(format!("object {number} is wrong on the disk"));
        }
        if transfer.digests != expected.digests[at] {
            errors.push(format!(
                "object {number} has the digests {:?} and not {:?}",
                transfer.digests, expected.digests[at]
            ));
        }
        if (transfer.bytes_in, transfer.bytes_out) != (item.length, item.length) {
            errors.push(format!("object {number} is said to have {} bytes", transfer.bytes_out));
        }
        verdict.bytes += item.length;
        verdict.digests += transfer.digests.len() as u64;
    }
}

/// An object's bytes behind the chain, and the name and value of each digest.
type Through = (Vec<u8>, Vec<(String, String)>);

fn through(ops: &[Op], mut bytes: Vec<u8>) -> io::Result<Through> {
    let (mut operators, mut output) = (Operators::new(ops)?, Vec::with_capacity(bytes.len()));
    operators.pass(&mut bytes, true, &mut |piece| {
        output.extend_from_slice(piece);
        Ok(())
    })?;
    Ok((output, operators.digests()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_had_come_by_a_moment_is_what_was_seen_last() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let progress = vec![(at(10), 5), (at(20), 7), (at(30), 100)];
        let received = Received { bytes: 100, wrong: Vec::new(), processor_ns: [0, 1], progress };
        let seen = [0, 10, 19, 20, 29, 30, 99].map(|ms| received.until(at(ms)));
        assert_eq!(seen, [0, 5, 5, 7, 7, 100, 100]);
        assert_eq!(received.time(), Some([at(10), at(30)]));
    }
}
