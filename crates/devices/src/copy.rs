//! The kernel's own copies: sendfile, splice, copy_file_range. No block of the engine holds the bytes.

use crate::attempt::{Attempt, Interest};
use crate::endpoint::Object;
use crate::failure;
use crate::route::{KernelCopy, Route, Staging};
use dcs_abi::result::{
    PATH_DESTINATION_CACHED, PATH_KERNEL_COPY, PATH_SOURCE_CACHED, PATH_SYSCALL, PATH_ZERO_COPY,
};
use dcs_abi::status::Status;
use dcs_engine::{EndpointRole, Outcome};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, SpliceFlags};

/// Size requested for a staging pipe, in bytes; the kernel may grant less.
const STAGING_SIZE: usize = 1 << 20;

/// Room that a socket has when it is ready for writing, in bytes.
const PIECE: usize = 2048;

/// A source or destination of a copy.
struct End<'a> {
    fd: BorrowedFd<'a>,
    /// Position; files only.
    offset: Option<u64>,
    is_socket: bool,
}

impl End<'_> {
    fn cached(&self, path: u32) -> u32 {
        if self.offset.is_some() { path } else { 0 }
    }
}

/// The reason why a copy moved nothing.
enum CopyError {
    /// A socket or pipe is not ready.
    NotReady(RawFd, Interest),
    /// Nothing moved, though both ends are ready: by chance, or because of something that this path cannot get past.
    Futile(RawFd),
    /// The path does not work. The path through blocks works, or shows which end is to blame.
    Unavailable(Errno),
    /// The same, but if the destination caused it, the destination reports the error only this once.
    Unclear(Errno),
    /// The source socket failed, and reports the error only this once.
    Source(Errno),
    /// The destination failed.
    Destination(Errno),
}

/// Copies up to `length` bytes without waiting for a socket or pipe. If nothing moved, the source may or may not have ended: a read will
/// tell.
pub(crate) fn copy(route: &mut Route, source: u64, destination: u64, length: u64, more: bool) -> Attempt {
    let Some(kind) = route.kernel_copy else { return unavailable(Errno::INVAL) };
    let mut staging = route.staging.take();
    let from = end(route, EndpointRole::Source, source);
    let to = end(route, EndpointRole::Destination, destination);
    let (Some(from), Some(to)) = (from, to) else { return unavailable(Errno::INVAL) };
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    let result = match kind {
        KernelCopy::SendFile => sendfile(&from, &to, source, length),
        KernelCopy::CopyFileRange => {
            let (mut offset_in, mut offset_out) = (source, destination);
            rustix::fs::copy_file_range(from.fd, Some(&mut offset_in), to.fd, Some(&mut offset_out), length)
                .map_err(|errno| refused_by(errno, &from, &to))
        }
        KernelCopy::Splice => splice_ready(&from, &to, length, more),
        KernelCopy::StagedSplice => staged(&mut staging, &from, &to, length, more),
    };
    let cached = from.cached(PATH_SOURCE_CACHED) | to.cached(PATH_DESTINATION_CACHED);
    route.staging = staging;
    let was_futile = std::mem::replace(&mut route.futile, matches!(result, Err(CopyError::Futile(_))));
    match result {
        Ok(bytes) => Attempt::moved(bytes, PATH_KERNEL_COPY | PATH_SYSCALL | cached),
        Err(CopyError::NotReady(fd, interest)) => Attempt::NotReady(fd, interest),
        Err(CopyError::Futile(fd)) if !was_futile => Attempt::NotReady(fd, Interest::Writable),
        Err(CopyError::Futile(_)) => unavailable(Errno::AGAIN),
        Err(CopyError::Unavailable(errno)) => unavailable(errno),
        // A direct copy has only one stage; the read or the write that takes over names the right one.
        Err(CopyError::Unclear(errno)) => {
            route.copy_error = Some(errno);
            unavailable(errno)
        }
        Err(CopyError::Source(errno)) => {
            route.source_error = Some(errno);
            unavailable(errno)
        }
        Err(CopyError::Destination(errno)) => Attempt::failed(failure::writing(errno)),
    }
}

/// Returns the wait of a direct copy if it is for the copy's source, so that no thread is needed to find out.
pub(crate) fn source_waits(route: &Route) -> Option<Attempt> {
    let from = end(route, EndpointRole::Source, 0)?;
    let held = route.staging.as_ref().map_or(0, |staging| staging.held);
    let waits = from.offset.is_none() && held == 0 && poll_now(from.fd, PollFlags::IN).is_empty();
    waits.then(|| Attempt::NotReady(from.fd.as_raw_fd(), Interest::Readable))
}

/// Restores the reason why a socket failed: once it has told a direct copy, it tells a write only EPIPE.
pub(crate) fn restore_error(copy_error: Option<Errno>, attempt: Attempt) -> Attempt {
    match attempt {
        Attempt::Done(Outcome::Failed(failure)) if failure.errno == Errno::PIPE.raw_os_error() as u32 => {
            Attempt::failed(copy_error.map_or(failure, failure::writing))
        }
        other => other,
    }
}

/// Sends to a socket what was read into a block and is still in the page cache: sendfile(2) copies nothing. Returns `None` if that is not
/// available; the block has the bytes.
pub(crate) fn resend_from_cache(route: &mut Route, source: u64, length: u32) -> Option<Attempt> {
    if !route.sends_again {
        return None;
    }
    let from = end(route, EndpointRole::Source, source)?;
    let to = end(route, EndpointRole::Destination, 0)?;
    match sendfile(&from, &to, source, length as usize) {
        Ok(bytes @ 1..) => Some(Attempt::moved(bytes, PATH_ZERO_COPY | PATH_SYSCALL | PATH_SOURCE_CACHED)),
        Err(CopyError::NotReady(fd, interest)) => Some(Attempt::NotReady(fd, interest)),
        Err(CopyError::Unclear(errno)) => {
            route.copy_error = Some(errno);
            None
        }
        Ok(0) | Err(_) => None,
    }
}

fn end(route: &Route, role: EndpointRole, offset: u64) -> Option<End<'_>> {
    match &route.side(role).endpoint.object {
        Object::File(file) => Some(End { fd: file.cached(), offset: Some(offset), is_socket: false }),
        Object::Flow(flow) => Some(End { fd: flow.fd.as_fd(), offset: None, is_socket: true }),
        Object::Stream(stream) => Some(End { fd: stream.fd.as_fd(), offset: None, is_socket: false }),
        Object::Memory(_) | Object::Device(_) | Object::Namespace(_) | Object::Part(_) | Object::Paced(_) => {
            None
        }
    }
}

fn sendfile(from: &End<'_>, to: &End<'_>, mut offset: u64, length: usize) -> Result<usize, CopyError> {
    if blocks(to) {
        return Err(CopyError::Unavailable(Errno::INVAL));
    }
    rustix::fs::sendfile(to.fd, from.fd, Some(&mut offset), length)
        .map_err(|errno| refused_by(errno, from, to))
}

/// Returns true if a socket blocks: its owner may have changed that since. The kernel would then wait for the peer.
fn blocks(to: &End<'_>) -> bool {
    to.is_socket && !rustix::fs::fcntl_getfl(to.fd).is_ok_and(|flags| flags.contains(OFlags::NONBLOCK))
}

fn splice(from: &End<'_>, to: &End<'_>, length: usize, more: bool) -> Result<usize, Errno> {
    let mut flags = SpliceFlags::NONBLOCK | SpliceFlags::MOVE;
    flags.set(SpliceFlags::MORE, more);
    let (mut offset_in, mut offset_out) = (from.offset, to.offset);
    rustix::io::retry_on_intr(|| {
        rustix::pipe::splice(from.fd, offset_in.as_mut(), to.fd, offset_out.as_mut(), length, flags)
    })
}

fn splice_ready(from: &End<'_>, to: &End<'_>, length: usize, more: bool) -> Result<usize, CopyError> {
    if blocks(to) {
        return Err(CopyError::Unavailable(Errno::INVAL));
    }
    // A TCP socket that blocks waits for its first byte, whatever splice's flags say, so check it first.
    if from.is_socket {
        let ready = poll_now(from.fd, PollFlags::IN);
        if !ready.intersects(PollFlags::IN | PollFlags::HUP) {
            return Err(match ready.is_empty() {
                true => CopyError::NotReady(from.fd.as_raw_fd(), Interest::Readable),
                // It has an error, or its owner has something in its error queue: only a receive can tell.
                false => CopyError::Unavailable(Errno::AGAIN),
            });
        }
    }
    splice(from, to, length, more).map_err(|errno| refused_by(errno, from, to))
}

fn refused_by(errno: Errno, from: &End<'_>, to: &End<'_>) -> CopyError {
    match errno {
        Errno::AGAIN | Errno::INTR => not_ready(from, to),
        Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS => CopyError::Unavailable(errno),
        Errno::PIPE => CopyError::Destination(errno),
        _ if from.is_socket => CopyError::Source(errno),
        // A disk failed, or a connection.
        _ if to.is_socket => CopyError::Unclear(errno),
        _ => CopyError::Unavailable(errno),
    }
}

/// Copies from source to pipe and from pipe to destination. Bytes that stay in the pipe are the first ones of the next call.
fn staged(
    staging: &mut Option<Staging>,
    from: &End<'_>,
    to: &End<'_>,
    length: usize,
    more: bool,
) -> Result<usize, CopyError> {
    let staging = match staging {
        Some(staging) => staging,
        None => staging.insert(Staging::new(to).map_err(CopyError::Unavailable)?),
    };
    let mut piece = length;
    if blocks(to) {
        if staging.held == 0 {
            return Err(CopyError::Unavailable(Errno::INVAL));
        }
        // Moves the pipe's bytes in pieces that a ready socket takes without waiting.
        if !poll_now(to.fd, PollFlags::OUT).intersects(PollFlags::OUT) {
            return Err(CopyError::NotReady(to.fd.as_raw_fd(), Interest::Writable));
        }
        piece = PIECE;
    }
    if staging.held == 0 {
        let pipe = End { fd: staging.writer.as_fd(), offset: None, is_socket: false };
        match splice_ready(from, &pipe, length.min(STAGING_SIZE), false)? {
            0 => return Ok(0),
            bytes => staging.held = bytes as u64,
        }
    }
    let pipe = End { fd: staging.reader.as_fd(), offset: None, is_socket: false };
    let more = more || staging.held < length as u64;
    match splice(&pipe, to, (staging.held as usize).min(piece), more) {
        // The destination accepts nothing, without an error.
        Ok(0) => Err(CopyError::Destination(Errno::IO)),
        Ok(bytes) => {
            staging.held -= bytes as u64;
            Ok(bytes)
        }
        Err(Errno::AGAIN) => Err(CopyError::NotReady(to.fd.as_raw_fd(), Interest::Writable)),
        // Bytes are in the pipe, and no other path can reach them any more.
        Err(errno) => Err(CopyError::Destination(errno)),
    }
}

/// Finds the end that a copy waits for: a stream source that has nothing, else a destination without room.
fn not_ready(from: &End<'_>, to: &End<'_>) -> CopyError {
    if from.offset.is_none() && poll_now(from.fd, PollFlags::IN).is_empty() {
        return CopyError::NotReady(from.fd.as_raw_fd(), Interest::Readable);
    }
    match poll_now(to.fd, PollFlags::OUT).is_empty() {
        true => CopyError::NotReady(to.fd.as_raw_fd(), Interest::Writable),
        false => CopyError::Futile(to.fd.as_raw_fd()),
    }
}

/// Returns which of these flags a descriptor has ready now, and whether it is in error.
fn poll_now(fd: BorrowedFd<'_>, flags: PollFlags) -> PollFlags {
    let mut fds = [PollFd::from_borrowed_fd(fd, flags)];
    match poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) {
        Ok(1..) => fds[0].revents(),
        _ => PollFlags::empty(),
    }
}

fn unavailable(errno: Errno) -> Attempt {
    Attempt::failed(failure::with_errno(Status::PathUnavailable, errno))
}

impl Staging {
    /// Makes a pipe from which the destination can take (not every file system has splice).
    fn new(to: &End<'_>) -> Result<Staging, Errno> {
        let (reader, writer) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        let pipe = End { fd: reader.as_fd(), offset: None, is_socket: false };
        match splice(&pipe, to, 1, false) {
            Err(Errno::AGAIN) => {}
            other => return Err(other.err().unwrap_or(Errno::INVAL)),
        }
        // Refused past the user's limit (/proc/sys/fs/pipe-user-pages-soft): the pipe keeps its size.
        let _ = rustix::pipe::fcntl_setpipe_size(&writer, STAGING_SIZE);
        Ok(Staging { reader, writer, held: 0 })
    }
}
