//! The kernel's own copies: sendfile, splice, copy_file_range. No block of the engine holds the bytes.

use crate::attempt::{Attempt, Interest};
use crate::endpoint::{File, Object};
use crate::fault;
use crate::route::{KernelCopy, Route, Staging};
use dcs_abi::result::{PATH_DESTINATION_CACHED, PATH_KERNEL_COPY, PATH_SOURCE_CACHED, PATH_SYSCALL};
use dcs_abi::status::Status;
use dcs_engine::Place;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, SpliceFlags};

/// Bytes that a staging pipe is asked to hold; the kernel may give less.
const STAGING_SIZE: usize = 1 << 20;

/// One end of a copy.
struct End<'a> {
    fd: BorrowedFd<'a>,
    /// Position, for files.
    offset: Option<u64>,
}

impl End<'_> {
    fn cached(&self, path: u32) -> u32 {
        if self.offset.is_some() { path } else { 0 }
    }
}

/// Copies up to `length` bytes without waiting for a socket or pipe.
pub(crate) fn copy(route: &mut Route, source: u64, destination: u64, length: u64, more: bool) -> Attempt {
    let Some(kind) = route.kernel_copy else { return unavailable(Errno::INVAL) };
    let mut staging = route.staging.take();
    let from = end(route, Place::Source, source);
    let to = end(route, Place::Destination, destination);
    let (Some(from), Some(to)) = (from, to) else { return unavailable(Errno::INVAL) };
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    let attempt = match kind {
        KernelCopy::SendFile => {
            let mut offset = source;
            let result = rustix::fs::sendfile(to.fd, from.fd, Some(&mut offset), length);
            conclude(result, &from, &to)
        }
        KernelCopy::CopyFileRange => {
            let (mut offset_in, mut offset_out) = (source, destination);
            let result = rustix::fs::copy_file_range(
                from.fd,
                Some(&mut offset_in),
                to.fd,
                Some(&mut offset_out),
                length,
            );
            conclude(result, &from, &to)
        }
        KernelCopy::Splice => conclude(splice(&from, &to, length, more), &from, &to),
        KernelCopy::StagedSplice => staged(&mut staging, &from, &to, length, more),
    };
    route.staging = staging;
    attempt
}

fn end(route: &Route, place: Place, offset: u64) -> Option<End<'_>> {
    match &route.side(place).endpoint.object {
        Object::File(File { fd, .. }) => Some(End { fd: fd.as_fd(), offset: Some(offset) }),
        Object::Flow(flow) => Some(End { fd: flow.fd.as_fd(), offset: None }),
        Object::Stream(stream) => Some(End { fd: stream.fd.as_fd(), offset: None }),
        Object::Memory(_) => None,
    }
}

fn splice(from: &End<'_>, to: &End<'_>, length: usize, more: bool) -> Result<usize, Errno> {
    let mut flags = SpliceFlags::NONBLOCK | SpliceFlags::MOVE;
    flags.set(SpliceFlags::MORE, more);
    let (mut offset_in, mut offset_out) = (from.offset, to.offset);
    rustix::io::retry_on_intr(|| {
        rustix::pipe::splice(from.fd, offset_in.as_mut(), to.fd, offset_out.as_mut(), length, flags)
    })
}

fn conclude(result: Result<usize, Errno>, from: &End<'_>, to: &End<'_>) -> Attempt {
    match result {
        Ok(bytes) => moved(bytes, from, to),
        Err(Errno::AGAIN | Errno::INTR) => not_ready(from, to),
        Err(errno) if is_unsupported(errno) => unavailable(errno),
        Err(errno) => Attempt::failed(fault::writing(errno)),
    }
}

/// Source to pipe, pipe to destination. Bytes that stay in the pipe are the first ones of the next call.
fn staged(staging: &mut Option<Staging>, from: &End<'_>, to: &End<'_>, length: usize, more: bool) -> Attempt {
    let staging = match staging {
        Some(staging) => staging,
        None => match Staging::new() {
            Ok(new) => staging.insert(new),
            Err(errno) => return unavailable(errno),
        },
    };
    if staging.held == 0 {
        let pipe = End { fd: staging.writer.as_fd(), offset: None };
        match splice(from, &pipe, length.min(STAGING_SIZE), false) {
            Ok(0) => return moved(0, from, to),
            Ok(bytes) => staging.held = bytes as u64,
            Err(Errno::AGAIN) => return Attempt::NotReady(from.fd.as_raw_fd(), Interest::Readable),
            Err(errno) if is_unsupported(errno) => return unavailable(errno),
            Err(errno) => return Attempt::failed(fault::reading(errno)),
        }
    }
    let pipe = End { fd: staging.reader.as_fd(), offset: None };
    let more = more || staging.held < length as u64;
    match splice(&pipe, to, (staging.held as usize).min(length), more) {
        Ok(bytes) => {
            staging.held -= bytes as u64;
            moved(bytes, from, to)
        }
        Err(Errno::AGAIN) => Attempt::NotReady(to.fd.as_raw_fd(), Interest::Writable),
        // Bytes are in the pipe: there is no other path for them any more.
        Err(errno) => Attempt::failed(fault::writing(errno)),
    }
}

fn moved(bytes: usize, from: &End<'_>, to: &End<'_>) -> Attempt {
    let cached = from.cached(PATH_SOURCE_CACHED) | to.cached(PATH_DESTINATION_CACHED);
    Attempt::moved(bytes, PATH_KERNEL_COPY | PATH_SYSCALL | cached)
}

/// Which end was it? A stream source that has nothing, else a destination without room.
fn not_ready(from: &End<'_>, to: &End<'_>) -> Attempt {
    let source_waits = from.offset.is_none() && !has_input(from.fd);
    if source_waits {
        Attempt::NotReady(from.fd.as_raw_fd(), Interest::Readable)
    } else {
        Attempt::NotReady(to.fd.as_raw_fd(), Interest::Writable)
    }
}

fn has_input(fd: BorrowedFd<'_>) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    matches!(poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(1..))
}

fn is_unsupported(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS | Errno::XDEV | Errno::PERM | Errno::TXTBSY
    )
}

fn unavailable(errno: Errno) -> Attempt {
    Attempt::failed(fault::fault(Status::PathUnavailable, errno))
}

impl Staging {
    fn new() -> Result<Staging, Errno> {
        let (reader, writer) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        // Refused past the user's limit (/proc/sys/fs/pipe-user-pages-soft): then it is as large as it is.
        let _ = rustix::pipe::fcntl_setpipe_size(&writer, STAGING_SIZE);
        Ok(Staging { reader, writer, held: 0 })
    }
}
