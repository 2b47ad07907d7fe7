//! The hidden subcommand at the other end of the connections, the same for every contender, and the one that
//! measures.
//!
//! What it receives and need not keep, it lets the kernel forget (MSG_TRUNC).

use super::protocol::{ClientRound, Drive};
use crate::failure::{Exit, Failure};
use crate::harness::clocks::{Account, KernelThreads};
use crate::harness::cores::stay_on;
use crate::harness::data::Direction;
use crate::harness::load::{Mark, PAUSE};
use crate::harness::wire::{connect, say};
use nix::sys::socket::{MsgFlags, recv};
use std::fs::File;
use std::io::{self, BufRead, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// The time for which nothing may move before that is the result.
const PATIENCE: Duration = Duration::from_secs(20);
const BUFFER: usize = 1 << 20;

/// One round, shared by its threads.
struct Shared<'a> {
    drive: &'a Drive,
    round: &'a ClientRound,
    pool: &'a [u8],
    bytes: AtomicU64,
    stop: AtomicBool,
}

/// One connection of it.
struct Stream<'a> {
    socket: TcpStream,
    store: Option<File>,
    /// Where the objects that it sends begin in the pool.
    offsets: &'a [u64],
    sent: u64,
    objects: usize,
    ended: bool,
}

pub fn run() -> Result<(), Failure> {
    let _ = nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL);
    obey().map_err(|error| Failure::new(Exit::Failed, format!("bench client: {error}")))
}

fn obey() -> io::Result<()> {
    // A pause is to be as long as it says.
    nix::sys::prctl::set_timerslack(1)?;
    let mut lines = io::stdin().lock().lines();
    let Some(order) = lines.next() else { return Ok(()) };
    let drive: Drive = serde_json::from_str(&order?)?;
    stay_on(&drive.cores)?;
    let sends = drive.job.direction == Direction::Receive;
    let pool = if sends { std::fs::read(&drive.pool)? } else { Vec::new() };
    for line in lines {
        let round: ClientRound = serde_json::from_str(&line?)?;
        say(&go(&drive, &round, &pool)?)?;
    }
    Ok(())
}

/// One round: the bytes that went over the wire.
fn go(drive: &Drive, round: &ClientRound, pool: &[u8]) -> io::Result<u64> {
    let mut shares: Vec<Vec<Stream<'_>>> = drive.cores.iter().map(|_| Vec::new()).collect();
    let sockets = connect(&drive.address, drive.streams.len())?;
    for (number, (socket, offsets)) in sockets.into_iter().zip(&drive.streams).enumerate() {
        socket.set_nonblocking(true)?;
        let store = round.store.as_ref().map(|folder| File::create(folder.join(number.to_string())));
        let store = store.transpose()?;
        let share = number % shares.len();
        shares[share].push(Stream { socket, store, offsets, sent: 0, objects: 0, ended: false });
    }
    let (bytes, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let shared = Shared { drive, round, pool, bytes, stop };
    std::thread::scope(|scope| {
        let work = |streams| scope.spawn(|| shared.serve(streams));
        let threads: Vec<_> = shares.into_iter().map(work).collect();
        let marks = (!round.once).then(|| shared.measure()).transpose();
        shared.stop.store(true, Ordering::Relaxed);
        for thread in threads {
            thread.join().map_err(|_| io::Error::other("panic"))??;
        }
        marks
    })?;
    Ok(shared.bytes.into_inner())
}

impl Shared<'_> {
    /// Warms up, takes the first mark, and the second: later than asked for, where nothing has moved by then,
    /// or the server has not been run: what moved then came out of the sockets' buffers.
    fn measure(&self) -> io::Result<()> {
        let kernel = KernelThreads::find();
        std::thread::sleep(Duration::from_secs_f64(self.round.warm_s));
        say(&())?;
        let first = self.mark(&kernel)?;
        std::thread::sleep(Duration::from_secs_f64(self.round.measure_s));
        loop {
            let marks = first.until(&self.mark(&kernel)?);
            if marks.bytes > 0 && marks.server_cpu_s > 0.0 || first.at.elapsed() > PATIENCE {
                return say(&marks);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn mark<'k>(&self, kernel: &'k KernelThreads) -> io::Result<Mark<'k>> {
        Mark::set(kernel, || Account::alone(self.drive.server_pid), || self.bytes.load(Ordering::Relaxed))
    }

    fn serve(&self, mut streams: Vec<Stream<'_>>) -> io::Result<()> {
        let sends = self.drive.job.direction == Direction::Receive;
        let mut buffer = vec![0; BUFFER];
        while !streams.is_empty() {
            let mut moved = 0;
            for stream in &mut streams {
                moved += if sends { self.feed(stream)? } else { self.drain(stream, &mut buffer)? };
            }
            streams.retain(|stream| !stream.ended);
            self.bytes.fetch_add(moved, Ordering::Relaxed);
            if moved == 0 {
                std::thread::sleep(PAUSE);
            }
        }
        Ok(())
    }

    fn drain(&self, stream: &mut Stream<'_>, buffer: &mut [u8]) -> io::Result<u64> {
        let received = match &mut stream.store {
            // TCP takes the bytes off the queue and copies none.
            None => recv(stream.socket.as_raw_fd(), buffer, MsgFlags::MSG_TRUNC).map_err(io::Error::from),
            Some(store) => stream.socket.read(buffer).and_then(|length| {
                store.write_all(&buffer[..length])?;
                Ok(length)
            }),
        };
        let received = unless_blocked(received)?;
        stream.ended = received == Some(0);
        Ok(received.unwrap_or(0) as u64)
    }

    fn feed(&self, stream: &mut Stream<'_>) -> io::Result<u64> {
        let length = self.round.length;
        // It ends with a whole object.
        let is_last = if self.round.once { stream.objects == 1 } else { self.stop.load(Ordering::Relaxed) };
        if stream.sent == 0 && is_last {
            stream.socket.shutdown(Shutdown::Write)?;
            // Nothing more to do here; the server closes when it has read it all.
            stream.ended = true;
            return Ok(0);
        }
        let from = (stream.offsets[stream.objects % stream.offsets.len()] + stream.sent) as usize;
        let piece = &self.pool[from..from + (length - stream.sent).min(BUFFER as u64) as usize];
        let sent = unless_blocked(stream.socket.write(piece))?.unwrap_or(0) as u64;
        stream.sent += sent;
        if stream.sent == length {
            (stream.sent, stream.objects) = (0, stream.objects + 1);
        }
        Ok(sent)
    }
}

fn unless_blocked(result: io::Result<usize>) -> io::Result<Option<usize>> {
    match result {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}
