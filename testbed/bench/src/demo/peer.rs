//! The other end: reads what is sent, or sends what is to be received. Its CPU time is told apart.

use super::task::{Outcome, Peer, Ready};
use crate::harness::wire;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::Instant;

/// Bytes of the buffer that it reads with.
const BUFFER: usize = 256 * 1024;

pub fn run(peer: &Peer) -> io::Result<Outcome> {
    let (start, cpu) = (Instant::now(), wire::cpu_time()?);
    let bytes = match peer {
        Peer::Discard { connections } => receive(*connections, None)?,
        Peer::Store { connections, folder } => receive(*connections, Some(folder))?,
        Peer::Feed { address, streams } => {
            let sockets = wire::connect(address, streams.len())?;
            each(sockets.into_iter().zip(streams).collect(), |(mut socket, items)| {
                let copy = |item: &super::task::Item| io::copy(&mut File::open(&item.path)?, &mut socket);
                items.iter().map(copy).sum()
            })?
        }
    };
    let cpu = wire::cpu_time()?.saturating_sub(cpu);
    let (wall_s, cpu_s) = (start.elapsed().as_secs_f64(), cpu.as_secs_f64());
    Ok(Outcome { wall_s, cpu_s, bytes_in: bytes, bytes_out: bytes, files: Vec::new() })
}

fn receive(connections: usize, folder: Option<&Path>) -> io::Result<u64> {
    let listener = wire::listen()?;
    wire::say(&Ready { address: Some(listener.local_addr()?.to_string()) })?;
    let sockets = wire::accept(&listener, connections)?;
    each(sockets.into_iter().enumerate().collect(), |(number, mut socket): (usize, TcpStream)| {
        let mut store = folder.map(|folder| File::create(folder.join(number.to_string()))).transpose()?;
        let (mut buffer, mut bytes) = (vec![0; BUFFER], 0);
        loop {
            let length = socket.read(&mut buffer)?;
            if length == 0 {
                return Ok(bytes);
            }
            bytes += length as u64;
            store.as_mut().map_or(Ok(()), |store| store.write_all(&buffer[..length]))?;
        }
    })
}

/// A thread for each; the sum of what they did.
fn each<T: Send>(work: Vec<T>, one: impl Fn(T) -> io::Result<u64> + Sync) -> io::Result<u64> {
    let one = &one;
    std::thread::scope(|scope| {
        let threads: Vec<_> = work.into_iter().map(|item| scope.spawn(move || one(item))).collect();
        threads.into_iter().map(|thread| thread.join().map_err(|_| io::Error::other("panic"))?).sum()
    })
}
