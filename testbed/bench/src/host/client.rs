//! The hidden subcommand at the other end of the connections. It is the same for every contender, and takes the measurements.
//!
//! Received data that need not be kept are discarded in the kernel (MSG_TRUNC).

use super::protocol::{ClientRound, ClientTask, Extent, Piece};
use crate::failure::{Exit, Failure};
use crate::harness::clocks::{Account, KernelThreads};
use crate::harness::connections::{connect, say};
use crate::harness::cores::stay_on;
use crate::harness::data::Direction;
use crate::harness::load::{Mark, PAUSE};
use nix::sys::sendfile::sendfile64;
use nix::sys::socket::{MsgFlags, recv};
use std::fs::File;
use std::io::{self, BufRead, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Time without progress after which a round has failed.
const PATIENCE: Duration = Duration::from_secs(20);
const BUFFER: usize = 1 << 20;

/// A round, shared by its threads.
struct Shared<'a> {
    task: &'a ClientTask,
    round: &'a ClientRound,
    pool: &'a [u8],
    bytes: AtomicU64,
    stop: AtomicBool,
}

/// A connection of the round.
struct Stream<'a> {
    socket: TcpStream,
    store: Option<File>,
    /// Objects that it sends.
    pieces: &'a [Piece],
    /// The file that it sends now, if the object is one.
    file: Option<File>,
    sent: u64,
    objects: usize,
    /// True once it has shut down sending.
    shut: bool,
    ended: bool,
}

pub fn run() -> Result<(), Failure> {
    let _ = nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL);
    serve_requests().map_err(|error| Failure::new(Exit::Failed, format!("bench client: {error}")))
}

fn serve_requests() -> io::Result<()> {
    // Pauses are to be as short as requested.
    nix::sys::prctl::set_timerslack(1)?;
    let mut lines = io::stdin().lock().lines();
    let Some(line) = lines.next() else { return Ok(()) };
    let task: ClientTask = serde_json::from_str(&line?)?;
    stay_on(&task.cores)?;
    let sends = task.job.direction == Direction::Receive;
    let pool = task.pool.as_ref().filter(|_| sends).map(std::fs::read).transpose()?.unwrap_or_default();
    for line in lines {
        let round: ClientRound = serde_json::from_str(&line?)?;
        say(&go(&task, &round, &pool)?)?;
    }
    Ok(())
}

/// Runs a round, and returns the bytes that went over the wire.
fn go(task: &ClientTask, round: &ClientRound, pool: &[u8]) -> io::Result<u64> {
    let mut shares: Vec<Vec<Stream<'_>>> = task.cores.iter().map(|_| Vec::new()).collect();
    let kernel = KernelThreads::find();
    let (bytes, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let shared = Shared { task, round, pool, bytes, stop };
    let first = shared.mark(&kernel)?;
    let sockets = connect(&task.address, task.streams.len())?;
    for (number, (socket, pieces)) in sockets.into_iter().zip(&task.streams).enumerate() {
        socket.set_nonblocking(true)?;
        let store = round.store.as_ref().map(|folder| File::create(folder.join(number.to_string())));
        let store = store.transpose()?;
        let share = number % shares.len();
        shares[share].push(Stream {
            socket,
            store,
            pieces,
            file: None,
            sent: 0,
            objects: 0,
            shut: false,
            ended: false,
        });
    }
    std::thread::scope(|scope| {
        let work = |streams| scope.spawn(|| shared.serve(streams));
        let threads: Vec<_> = shares.into_iter().map(work).collect();
        let marks = (round.extent == Extent::UntilStopped).then(|| shared.measure(&kernel)).transpose();
        shared.stop.store(true, Ordering::Relaxed);
        for thread in threads {
            thread.join().map_err(|_| io::Error::other("panic"))??;
        }
        marks
    })?;
    if round.extent == Extent::All {
        say(&first.until(&shared.mark(&kernel)?))?;
    }
    Ok(shared.bytes.load(Ordering::Relaxed))
}

impl Shared<'_> {
    /// Warms up and takes the two marks. The second is late if nothing has moved by then, or if the server has not run: bytes
    /// moved until then came out of socket buffers.
    fn measure(&self, kernel: &KernelThreads) -> io::Result<()> {
        std::thread::sleep(Duration::from_secs_f64(self.round.warm_s));
        say(&())?;
        let first = self.mark(kernel)?;
        std::thread::sleep(Duration::from_secs_f64(self.round.measure_s));
        loop {
            let marks = first.until(&self.mark(kernel)?);
            if marks.bytes > 0 && marks.server_cpu_s > 0.0 || first.at.elapsed() > PATIENCE {
                return say(&marks);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn mark<'k>(&self, kernel: &'k KernelThreads) -> io::Result<Mark<'k>> {
        Mark::set(kernel, || Account::alone(self.task.server_pid), || self.bytes.load(Ordering::Relaxed))
    }

    fn serve(&self, mut streams: Vec<Stream<'_>>) -> io::Result<()> {
        let sends = self.task.job.direction == Direction::Receive;
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
            // TCP removes the bytes from the queue without copying.
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
        // A stream ends with a whole object.
        let is_last = match self.round.extent {
            Extent::First => stream.objects == 1,
            Extent::All => stream.objects == stream.pieces.len(),
            Extent::UntilStopped => self.stop.load(Ordering::Relaxed),
        };
        if stream.sent == 0 && is_last {
            if !stream.shut {
                stream.socket.shutdown(Shutdown::Write)?;
                stream.shut = true;
            }
            // The server closes when it has read everything; only a round of all objects lasts until then.
            let lasts = self.round.extent == Extent::All;
            stream.ended = !lasts || unless_blocked(stream.socket.read(&mut [0]))? == Some(0);
            return Ok(0);
        }
        let piece = &stream.pieces[stream.objects % stream.pieces.len()];
        let length = piece.length.min(self.round.length);
        let (from, room) = (piece.offset + stream.sent, (length - stream.sent).min(BUFFER as u64) as usize);
        let sent = match &piece.file {
            None => stream.socket.write(&self.pool[from as usize..from as usize + room]),
            Some(path) => {
                let file = match &mut stream.file {
                    Some(file) => file,
                    none => none.insert(File::open(path)?),
                };
                sendfile64(&stream.socket, file, Some(&mut (from as i64)), room).map_err(io::Error::from)
            }
        };
        let sent = unless_blocked(sent)?.unwrap_or(0) as u64;
        stream.sent += sent;
        if stream.sent == length {
            (stream.sent, stream.objects, stream.file) = (0, stream.objects + 1, None);
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
