//! The ordinary loops, written with care: a thread for each stream, blocking calls, buffers and contexts reused for all objects.

use super::{Object, Prepared};
use crate::harness::data::Direction;
use crate::host::contender::Contender;
use crate::host::library::Chain;
use crate::host::protocol::{Extent, StreamAccount};
use crate::host::server::Work;
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use serde_json::Value;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::fs::FileExt;
use std::time::Instant;

/// The largest alignment that O_DIRECT needs.
const ALIGNMENT: usize = 4096;

/// Memory at an aligned address.
struct Buffer {
    memory: Vec<u8>,
    at: usize,
    length: usize,
}

impl Buffer {
    fn new(length: usize) -> Buffer {
        let memory = vec![0; length + ALIGNMENT];
        let at = memory.as_ptr().align_offset(ALIGNMENT);
        Buffer { memory, at, length }
    }

    fn bytes(&mut self) -> &mut [u8] {
        &mut self.memory[self.at..self.at + self.length]
    }
}

/// State of a thread.
struct Loop<'a> {
    work: &'a Work<'a>,
    socket: &'a TcpStream,
    chain: Chain,
    buffer: Buffer,
    direct: bool,
}

/// Bytes in and out of one object.
type Moved = (u64, u64);

pub fn run(prepared: &Prepared, work: &Work<'_>) -> io::Result<Vec<StreamAccount>> {
    std::thread::scope(|scope| {
        let streams = work.sockets.iter().zip(&prepared.files);
        let threads: Vec<_> = streams
            .map(|(socket, objects)| scope.spawn(move || stream(prepared, work, socket, objects)))
            .collect();
        threads.into_iter().map(|thread| thread.join().map_err(|_| io::Error::other("panic"))?).collect()
    })
}

fn stream(
    prepared: &Prepared,
    work: &Work<'_>,
    socket: &TcpStream,
    objects: &[Object],
) -> io::Result<StreamAccount> {
    let contender = work.serve.contender;
    let chain = prepared.libraries.chain(&prepared.ops)?;
    let direct = contender == Contender::LoopDirect;
    let mut mine = Loop { work, socket, chain, buffer: Buffer::new(contender.buffer()), direct };
    let (mut account, mut latencies) = (StreamAccount::default(), work.control.latencies());
    let sends = work.serve.job.direction == Direction::Send;
    for (begun_objects, object) in (1..).zip(objects.iter().cycle()) {
        let begun = Instant::now();
        if let Some(ops) = &object.ops {
            mine.chain = prepared.libraries.chain(ops)?;
        }
        let moved = match (contender, sends) {
            (Contender::Sendfile, _) => Some(mine.sendfile(object)?),
            (_, true) => Some(mine.send(object)?),
            (_, false) => mine.receive(object)?,
        };
        let Some((bytes_in, bytes_out)) = moved else { break };
        latencies.done(begun);
        match contender {
            Contender::Sendfile => account.add(bytes_in, bytes_out, &[], None),
            _ => account.add(bytes_in, bytes_out, &mine.chain.digests()?, object.expected(work)),
        }
        if work.round.extent == Extent::All {
            account.tell(bytes_in, bytes_out, Value::Null, Vec::new());
        }
        if !work.goes_on(begun_objects, objects.len()) {
            break;
        }
    }
    finish(socket, sends)?;
    Ok(account)
}

/// Ends sending, and waits until the other end has read everything and closes.
pub fn finish(mut socket: &TcpStream, sent: bool) -> io::Result<()> {
    if sent {
        socket.shutdown(Shutdown::Write)?;
        if socket.read(&mut [0])? > 0 {
            return Err(io::Error::other("the client sent data where none was expected"));
        }
    }
    Ok(())
}

impl Loop<'_> {
    fn send(&mut self, object: &Object) -> io::Result<Moved> {
        let file = object.opened(self.work.serve)?;
        let (length, mut at, mut sent) = (object.length(self.work), 0, 0);
        self.chain.begin()?;
        loop {
            let left = usize::try_from(length - at).unwrap_or(usize::MAX);
            let buffer = self.buffer.bytes();
            // O_DIRECT reads whole blocks; bytes beyond the end of the file are absent.
            let room = buffer.len().min(if self.direct { left.next_multiple_of(ALIGNMENT) } else { left });
            let read = file.read_at(&mut buffer[..room], at)?.min(left);
            if read == 0 && left > 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            at += read as u64;
            let mut socket = self.socket;
            self.chain.pass(&mut buffer[..read], at == length, &mut |bytes| {
                sent += bytes.len() as u64;
                socket.write_all(bytes)
            })?;
            if at == length {
                break;
            }
        }
        self.drop_cache(&file)?;
        Ok((at, sent))
    }

    /// Receives an object; `None` if the other end has no more.
    fn receive(&mut self, object: &Object) -> io::Result<Option<Moved>> {
        let file = object.opened(self.work.serve)?;
        let (length, mut at, mut written) = (object.length(self.work), 0, 0);
        self.chain.begin()?;
        loop {
            let left = usize::try_from(length - at).unwrap_or(usize::MAX);
            let buffer = self.buffer.bytes();
            let room = buffer.len().min(left);
            let mut socket = self.socket;
            let mut read = socket.read(&mut buffer[..room])?;
            if read == 0 && left > 0 {
                return if at == 0 { Ok(None) } else { Err(io::ErrorKind::UnexpectedEof.into()) };
            }
            if self.direct {
                // Writes whole blocks: few large writes are better than many small ones.
                socket.read_exact(&mut buffer[read..room])?;
                read = room;
            }
            at += read as u64;
            let (direct, last) = (self.direct, at == length);
            let mut out = |bytes: &[u8]| {
                file.write_all_at(bytes, written)?;
                written += bytes.len() as u64;
                Ok(())
            };
            match direct && !read.is_multiple_of(ALIGNMENT) {
                false => self.chain.pass(&mut buffer[..read], last, &mut out)?,
                true => {
                    self.chain.pass(&mut buffer[..read], last, &mut |_| Ok(()))?;
                    let whole = read.next_multiple_of(ALIGNMENT);
                    file.write_all_at(&buffer[..whole], written)?;
                    written += read as u64;
                    file.set_len(length)?;
                }
            }
            if at == length {
                break;
            }
        }
        self.drop_cache(&file)?;
        Ok(Some((at, written)))
    }

    fn sendfile(&mut self, object: &Object) -> io::Result<Moved> {
        let file = object.opened(self.work.serve)?;
        let length = object.length(self.work);
        let mut at = 0i64;
        while (at as u64) < length {
            let left = usize::try_from(length - at as u64).unwrap_or(usize::MAX);
            if nix::sys::sendfile::sendfile(self.socket, &*file, Some(&mut at), left)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        self.drop_cache(&file)?;
        Ok((length, length))
    }

    /// Drops the file from the page cache, if data are to be cold and went through it.
    fn drop_cache(&self, file: &File) -> io::Result<()> {
        if self.work.serve.cold && !self.direct {
            posix_fadvise(file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED)?;
        }
        Ok(())
    }
}
