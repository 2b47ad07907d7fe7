//! The client on the outer machine, behind QEMU's network: it has this machine's own TCP and checks every byte and digest.

use super::task::{Direction, OBJECT, Outcome, Task, object};
use crate::operate::Operators;
use dcs::Op;
use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// A client that waits for its connection, or has it.
pub struct Client {
    pub port: u16,
    received: Receiver<io::Result<Received>>,
}

/// What the client saw.
pub struct Received {
    pub bytes: Vec<u8>,
    /// CPU time of the guest's processor, from the connection to the end of the server's stream.
    pub processor_ns: u64,
}

/// The thread of QEMU that runs the guest's only processor. Its CPU time is that of the guest's instructions, and of what QEMU does at once
/// where they touch a device: it is off while the guest is idle, waits for QEMU's lock, or for a core of this machine.
#[derive(Clone)]
pub struct Processor(PathBuf);

impl Processor {
    /// Of this QEMU.
    pub fn find(qemu: u32) -> io::Result<Processor> {
        for task in fs::read_dir(format!("/proc/{qemu}/task"))? {
            let path = task?.path();
            if fs::read_to_string(path.join("comm")).is_ok_and(|name| name.starts_with("CPU 0")) {
                return Ok(Processor(path.join("schedstat")));
            }
        }
        Err(io::Error::other("QEMU has no thread for the guest's processor"))
    }

    /// Nanoseconds so far. [Linux: Documentation/scheduler/sched-stats.rst]
    fn time(&self) -> io::Result<u64> {
        let text = fs::read_to_string(&self.0)?;
        let first = text.split_whitespace().next().and_then(|word| word.parse().ok());
        first.ok_or_else(|| io::ErrorKind::InvalidData.into())
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
    /// For the server's next connection. The objects that it sends, or expects, are those of this seed.
    pub fn start(
        direction: Direction,
        objects: usize,
        seed: u64,
        processor: &Processor,
    ) -> io::Result<Client> {
        let listener = TcpListener::bind(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))?;
        let port = listener.local_addr()?.port();
        let data = if direction == Direction::Receive { all(objects, seed) } else { Vec::new() };
        let (sender, received) = channel();
        let processor = processor.clone();
        std::thread::spawn(move || {
            // Nobody listens any more where the server has failed.
            let _ = sender.send(serve(&listener, &data, objects, &processor));
        });
        Ok(Client { port, received })
    }

    /// What it received, once the server's stream has ended.
    pub fn end(self) -> io::Result<Received> {
        self.received.recv_timeout(Duration::from_secs(60)).map_err(|_| io::ErrorKind::TimedOut)?
    }
}

/// The objects of a seed, one after the other.
fn all(objects: usize, seed: u64) -> Vec<u8> {
    (0..objects).flat_map(|number| object(seed, number)).collect()
}

/// Sends, receives until the end, and says that all is there.
fn serve(listener: &TcpListener, data: &[u8], objects: usize, processor: &Processor) -> io::Result<Received> {
    let (mut stream, _) = listener.accept()?;
    let start = processor.time()?;
    stream.set_read_timeout(Some(Duration::from_secs(300)))?;
    stream.write_all(data)?;
    let mut bytes = Vec::with_capacity(if data.is_empty() { objects * OBJECT } else { 0 });
    stream.read_to_end(&mut bytes)?;
    let processor_ns = processor.time()?.saturating_sub(start);
    stream.write_all(b"!")?;
    Ok(Received { bytes, processor_ns })
}

/// Compares what the client received, and what the server says, with what the objects and the chain give.
pub fn check(task: &Task, seed: u64, received: &[u8], outcome: &Outcome) -> io::Result<Verdict> {
    let mut verdict = Verdict::default();
    if outcome.transfers.len() != task.objects {
        verdict.errors.push(format!("{} transfers of {}", outcome.transfers.len(), task.objects));
    }
    let expected = if task.direction == Direction::Send { task.objects * OBJECT } else { 0 };
    if received.len() != expected {
        verdict.errors.push(format!("the client received {} bytes of {expected}", received.len()));
    }
    for (number, transfer) in outcome.transfers.iter().enumerate() {
        let original = object(seed, number);
        let (output, digests) = through(&task.ops(number)?, original.clone())?;
        let is_right = match task.direction {
            Direction::Send => received.get(number * OBJECT..(number + 1) * OBJECT) == Some(&output[..]),
            Direction::Receive => {
                let (_, md5) = through(&[Op::Md5], original)?;
                outcome.stored.get(number) == md5.first().map(|(_, value)| value)
            }
        };
        if !is_right {
            verdict.errors.push(format!("object {number} has wrong bytes"));
        }
        if transfer.digests != digests {
            verdict
                .errors
                .push(format!("object {number} has the digests {:?} and not {digests:?}", transfer.digests));
        }
        if (transfer.bytes_in, transfer.bytes_out) != (OBJECT as u64, OBJECT as u64) {
            verdict.errors.push(format!("object {number} is said to have {} bytes", transfer.bytes_out));
        }
        verdict.bytes += OBJECT as u64;
        verdict.digests += digests.len() as u64;
    }
    Ok(verdict)
}

/// An object's name and value of each digest, and its bytes behind the chain.
type Through = (Vec<u8>, Vec<(String, String)>);

fn through(ops: &[Op], mut bytes: Vec<u8>) -> io::Result<Through> {
    let (mut operators, mut output) = (Operators::new(ops)?, Vec::with_capacity(OBJECT));
    operators.pass(&mut bytes, true, &mut |piece| {
        output.extend_from_slice(piece);
        Ok(())
    })?;
    Ok((output, operators.digests()))
}
