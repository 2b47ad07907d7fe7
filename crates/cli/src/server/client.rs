//! The client on the outer machine, behind QEMU's network: it has this machine's own TCP and checks every byte and digest.

use super::task::{Direction, Outcome, Task, object};
use crate::operate::Operators;
use dcs::Op;
use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddrV4, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Bytes that are compared at once.
const PIECE: usize = 256 << 10;

/// A client that waits for its connection, or has it.
pub struct Client {
    pub port: u16,
    received: Receiver<io::Result<Received>>,
}

/// What the client saw.
pub struct Received {
    pub bytes: u64,
    /// Transfers of which a byte was wrong, the first few.
    pub wrong: Vec<usize>,
    /// CPU time of the guest's processor, from the connection to the end of the server's stream.
    pub processor_ns: u64,
    /// Time of this machine from the first to the last byte that came; where none was to come, as long.
    pub wall_ns: u64,
}

/// The thread of QEMU that runs the guest's only processor. Its CPU time is that of the guest's instructions, and of what QEMU does at once
/// where they touch a device: it is off while the guest is idle, waits for QEMU's lock, or for a core of this machine.
#[derive(Clone)]
pub struct Processor {
    pub thread: u32,
    schedstat: PathBuf,
}

impl Processor {
    /// Of this QEMU.
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

    /// Nanoseconds so far. [Linux: Documentation/scheduler/sched-stats.rst]
    fn time(&self) -> io::Result<u64> {
        let text = fs::read_to_string(&self.schedstat)?;
        let first = text.split_whitespace().next().and_then(|word| word.parse().ok());
        first.ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}

/// What a task has to give, by object.
pub struct Expected {
    /// What the client sends for objects that are received, and when.
    sent: Vec<(u64, Vec<u8>)>,
    /// What it gets of those that are sent.
    received: Vec<(usize, Vec<u8>)>,
    /// Name and value of each digest, of each object.
    digests: Vec<Vec<(String, String)>>,
    /// MD5 of those that are received, by object.
    stored: Vec<Option<String>>,
}

impl Expected {
    /// `seed`: of what the client sends; `disk`: of what the SSD had from the beginning.
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

/// What was compared.
#[derive(Default)]
pub struct Verdict {
    pub bytes: u64,
    pub digests: u64,
    pub errors: Vec<String>,
}

impl Client {
    /// For the server's next connection.
    pub fn start(expected: &Arc<Expected>, processor: &Processor) -> io::Result<Client> {
        let listener = TcpListener::bind(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))?;
        let port = listener.local_addr()?.port();
        let (sender, received) = channel();
        let (expected, processor) = (Arc::clone(expected), processor.clone());
        std::thread::spawn(move || {
            // Nobody listens any more where the server has failed.
            let _ = sender.send(serve(&listener, &expected, &processor));
        });
        Ok(Client { port, received })
    }

    /// What it received, once the server's stream has ended.
    pub fn end(self) -> io::Result<Received> {
        self.received.recv_timeout(Duration::from_secs(60)).map_err(|_| io::ErrorKind::TimedOut)?
    }
}

/// Sends, receives and compares until the end, and says that all is there.
fn serve(listener: &TcpListener, expected: &Arc<Expected>, processor: &Processor) -> io::Result<Received> {
    let (mut stream, _) = listener.accept()?;
    let (start, before) = (Instant::now(), processor.time()?);
    stream.set_read_timeout(Some(Duration::from_secs(300)))?;
    let sender = (!expected.sent.is_empty()).then(|| {
        let (expected, stream) = (Arc::clone(expected), stream.try_clone());
        std::thread::spawn(move || send(stream?, &expected.sent, start))
    });
    let Compared { bytes, wrong, time } = compare(&mut stream, &expected.received)?;
    let wall_ns = time.unwrap_or_else(|| start.elapsed()).as_nanos() as u64;
    let processor_ns = processor.time()?.saturating_sub(before);
    if let Some(sender) = sender {
        sender.join().map_err(|_| io::Error::other("the client's sender failed"))??;
    }
    stream.write_all(b"!")?;
    stream.shutdown(Shutdown::Write)?;
    Ok(Received { bytes, wrong, processor_ns, wall_ns })
}

fn send(mut stream: TcpStream, objects: &[(u64, Vec<u8>)], start: Instant) -> io::Result<()> {
    for (at, bytes) in objects {
        std::thread::sleep(Duration::from_nanos(*at).saturating_sub(start.elapsed()));
        stream.write_all(bytes)?;
    }
    Ok(())
}

/// What came of a stream.
struct Compared {
    bytes: u64,
    wrong: Vec<usize>,
    /// From its first byte to its last.
    time: Option<Duration>,
}

/// Reads to the end what should be these objects, again and again.
fn compare(stream: &mut TcpStream, objects: &[(usize, Vec<u8>)]) -> io::Result<Compared> {
    let (mut bytes, mut wrong, mut buffer) = (0, Vec::new(), vec![0; PIECE]);
    let (mut first, mut time) = (None, None);
    let mut next = objects.iter().cycle();
    let mut left: (usize, &[u8]) = (0, &[]);
    loop {
        let count = match stream.read(&mut buffer)? {
            0 => return Ok(Compared { bytes, wrong, time }),
            count => count,
        };
        bytes += count as u64;
        time = Some(first.get_or_insert_with(Instant::now).elapsed());
        let mut piece = &buffer[..count];
        while !piece.is_empty() {
            if left.1.is_empty() {
                left = next.next().map_or((0, &[][..]), |(number, object)| (*number, object));
            }
            if left.1.is_empty() {
                // Nothing was to come.
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

/// Compares what the client received, and what the server says, with what the objects and the chain give.
pub fn check(task: &Task, expected: &Expected, received: &Received, outcome: &Outcome) -> Verdict {
    let mut verdict = Verdict::default();
    let errors = &mut verdict.errors;
    let count = outcome.transfers.len();
    if task.lasting_ns.is_none() && count != task.items.len() || count == 0 {
        errors.push(format!("{count} transfers of {}", task.items.len()));
    }
    let sends = |number: &usize| task.item(*number).direction == Direction::Send;
    let sent: u64 = (0..count).filter(sends).map(|number| task.item(number).length).sum();
    if received.bytes != sent {
        errors.push(format!("the client received {} bytes of {sent}", received.bytes));
    }
    errors.extend(received.wrong.iter().map(|number| format!("object {number} has wrong bytes")));
    let mut stored = outcome.stored.iter();
    for (number, transfer) in outcome.transfers.iter().enumerate() {
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
    verdict
}

/// An object's name and value of each digest, and its bytes behind the chain.
type Through = (Vec<u8>, Vec<(String, String)>);

fn through(ops: &[Op], mut bytes: Vec<u8>) -> io::Result<Through> {
    let (mut operators, mut output) = (Operators::new(ops)?, Vec::with_capacity(bytes.len()));
    operators.pass(&mut bytes, true, &mut |piece| {
        output.extend_from_slice(piece);
        Ok(())
    })?;
    Ok((output, operators.digests()))
}
