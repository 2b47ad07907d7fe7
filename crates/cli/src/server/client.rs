//! The client on the outer machine, behind QEMU's network: it has this machine's own TCP and checks every byte and digest.

use super::task::{Direction, OBJECT, Outcome, Task, object};
use crate::operate::Operators;
use dcs::Op;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// A client that waits for its connection, or has it.
pub struct Client {
    pub port: u16,
    /// What it received.
    received: Receiver<io::Result<Vec<u8>>>,
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
    pub fn start(direction: Direction, objects: usize, seed: u64) -> io::Result<Client> {
        let listener = TcpListener::bind(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))?;
        let port = listener.local_addr()?.port();
        let data = if direction == Direction::Receive { all(objects, seed) } else { Vec::new() };
        let (sender, received) = channel();
        std::thread::spawn(move || {
            // Nobody listens any more where the server has failed.
            let _ = sender.send(serve(&listener, &data, objects));
        });
        Ok(Client { port, received })
    }

    /// What it received, once the server's stream has ended.
    pub fn end(self) -> io::Result<Vec<u8>> {
        self.received.recv_timeout(Duration::from_secs(60)).map_err(|_| io::ErrorKind::TimedOut)?
    }
}

/// The objects of a seed, one after the other.
fn all(objects: usize, seed: u64) -> Vec<u8> {
    (0..objects).flat_map(|number| object(seed, number)).collect()
}

/// Sends, receives until the end, and says that all is there.
fn serve(listener: &TcpListener, data: &[u8], objects: usize) -> io::Result<Vec<u8>> {
    let (mut stream, _) = listener.accept()?;
    stream.set_read_timeout(Some(Duration::from_secs(300)))?;
    stream.write_all(data)?;
    let mut received = Vec::with_capacity(if data.is_empty() { objects * OBJECT } else { 0 });
    stream.read_to_end(&mut received)?;
    stream.write_all(b"!")?;
    Ok(received)
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
