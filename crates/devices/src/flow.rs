//! Sockets, pipes and character devices: plain calls that do not wait, whatever the descriptor's own mode is.

use crate::attempt::{Attempt, DiskRequest, Interest};
use crate::endpoint::{Flow, PIPE_BUF, Stream};
use crate::failure;
use dcs_abi::descriptor::Mode;
use dcs_abi::result::PATH_SYSCALL;
use dcs_abi::status::Status;
use dcs_engine::Failure;
use rustix::event::{PollFd, PollFlags};
use rustix::fd::{AsFd, AsRawFd};
use rustix::io::{Errno, ReadWriteFlags};
use rustix::net::{RecvFlags, SendFlags};
use rustix::pipe::{PipeFlags, SpliceFlags};
use std::io::{IoSlice, IoSliceMut};
use std::sync::atomic::Ordering;

/// Length below which copying a send is cheaper than pinning it, in bytes.
const ZERO_COPY_MIN: usize = 32 * 1024;

/// Receives what is available.
pub(crate) fn receive(flow: &Flow, into: &mut [u8]) -> Attempt {
    match rustix::io::retry_on_intr(|| rustix::net::recv(&flow.fd, &mut *into, RecvFlags::DONTWAIT)) {
        Ok((bytes, _)) => Attempt::moved(bytes, PATH_SYSCALL),
        Err(Errno::AGAIN) => Attempt::NotReady(flow.fd.as_raw_fd(), Interest::Readable),
        Err(errno) => Attempt::failed(failure::reading(errno)),
    }
}

/// Sends what there is room for. `zero_copy`: as the command asked; `ring`: the ring can send with zero copy.
pub(crate) fn send(
    flow: &Flow,
    bytes: &[u8],
    start: u32,
    more: bool,
    zero_copy: Mode,
    ring: bool,
) -> Attempt {
    if zero_copy == Mode::On && !ring {
        return Attempt::failed(Failure::new(Status::PathUnavailable));
    }
    if ring && wants_zero_copy(flow, bytes.len(), zero_copy) {
        let length = bytes.len() as u32;
        let (fd, demanded) = (flow.fd.as_raw_fd(), zero_copy == Mode::On);
        return Attempt::Disk(DiskRequest::SendZeroCopy { fd, start, length, more, demanded });
    }
    sent(flow, send_now(flow, bytes, more))
}

/// Sends what there is room for, by a copy.
#[inline]
pub(crate) fn send_now(flow: &Flow, bytes: &[u8], more: bool) -> Result<usize, Errno> {
    let mut flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    flags.set(SendFlags::MORE, more);
    rustix::io::retry_on_intr(|| rustix::net::send(&flow.fd, bytes, flags))
}

/// Returns the outcome of a send.
pub(crate) fn sent(flow: &Flow, result: Result<usize, Errno>) -> Attempt {
    match result {
        Ok(bytes) => failure::written(bytes, PATH_SYSCALL),
        Err(Errno::AGAIN) => Attempt::NotReady(flow.fd.as_raw_fd(), Interest::Writable),
        Err(errno) => Attempt::failed(failure::writing(errno)),
    }
}

/// Returns true if a send of so many bytes is a copy, whatever the flow is.
#[inline]
pub(crate) fn copies(length: usize, zero_copy: Mode) -> bool {
    zero_copy != Mode::On && length < ZERO_COPY_MIN
}

/// Returns true if a send should use zero copy. AUTO: only through a NIC (loopback copies anyway, later), for sends that are worth it,
/// until the kernel reports that it copied.
fn wants_zero_copy(flow: &Flow, length: usize, zero_copy: Mode) -> bool {
    match zero_copy {
        Mode::On => true,
        Mode::Off => false,
        Mode::Auto => {
            length >= ZERO_COPY_MIN && flow.is_remote() && !flow.zero_copy_copies.load(Ordering::Relaxed)
        }
    }
}

/// Reads what is available.
pub(crate) fn read(stream: &Stream, into: &mut [u8]) -> Attempt {
    let not_ready = Attempt::NotReady(stream.fd.as_raw_fd(), Interest::Readable);
    if stream.is_pipe && into.len() < PIPE_BUF {
        return match read_aside(stream, into) {
            Ok(bytes) => Attempt::moved(bytes, PATH_SYSCALL),
            Err(Errno::AGAIN) => not_ready,
            // Without the pipe (no descriptor is left) nothing is read: a plain read might lose the rest of a packet.
            Err(errno) => Attempt::failed(failure::reading(errno)),
        };
    }
    if stream.nowait.load(Ordering::Relaxed) {
        let mut slices = [IoSliceMut::new(into)];
        match rustix::io::preadv2(&stream.fd, &mut slices, u64::MAX, ReadWriteFlags::NOWAIT) {
            Ok(bytes) => return Attempt::moved(bytes, PATH_SYSCALL),
            Err(Errno::AGAIN | Errno::INTR) => return not_ready,
            Err(errno) if lacks_nowait(errno) => stream.nowait.store(false, Ordering::Relaxed),
            Err(errno) => return Attempt::failed(failure::reading(errno)),
        }
    }
    // A stream that is ready returns what it has without waiting for more.
    if !is_ready(&stream.fd, PollFlags::IN) {
        return not_ready;
    }
    match rustix::io::read(&stream.fd, &mut *into) {
        Ok(bytes) => Attempt::moved(bytes, PATH_SYSCALL),
        Err(Errno::AGAIN | Errno::INTR) => not_ready,
        Err(errno) => Attempt::failed(failure::reading(errno)),
    }
}

/// Reads into room for less than a packet. A read loses the part of a packet that it has no room for (pipe2(2), O_DIRECT), and a pipe does
/// not tell whether it holds packets; splice(2) leaves the rest in place.
fn read_aside(stream: &Stream, into: &mut [u8]) -> Result<usize, Errno> {
    let mut aside = stream.aside.lock().unwrap_or_else(|error| error.into_inner());
    let (reader, writer) = match &mut *aside {
        Some(pipe) => pipe,
        None => aside.insert(rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?),
    };
    let bytes = rustix::io::retry_on_intr(|| {
        rustix::pipe::splice(&stream.fd, None, &writer, None, into.len(), SpliceFlags::NONBLOCK)
    })?;
    let mut read = 0;
    while read < bytes {
        read += rustix::io::retry_on_intr(|| rustix::io::read(&reader, &mut into[read..bytes]))?;
    }
    Ok(bytes)
}

/// Writes what there is room for.
pub(crate) fn write(stream: &Stream, bytes: &[u8]) -> Attempt {
    let not_ready = Attempt::NotReady(stream.fd.as_raw_fd(), Interest::Writable);
    if stream.nowait.load(Ordering::Relaxed) {
        match rustix::io::pwritev2(&stream.fd, &[IoSlice::new(bytes)], u64::MAX, ReadWriteFlags::NOWAIT) {
            Ok(bytes) => return failure::written(bytes, PATH_SYSCALL),
            Err(Errno::AGAIN | Errno::INTR) => return not_ready,
            Err(errno) if lacks_nowait(errno) => stream.nowait.store(false, Ordering::Relaxed),
            Err(errno) => return Attempt::failed(failure::writing(errno)),
        }
    }
    if !is_ready(&stream.fd, PollFlags::OUT) {
        return not_ready;
    }
    match rustix::io::write(&stream.fd, &bytes[..bytes.len().min(stream.piece)]) {
        Ok(bytes) => failure::written(bytes, PATH_SYSCALL),
        Err(Errno::AGAIN | Errno::INTR) => not_ready,
        Err(errno) => Attempt::failed(failure::writing(errno)),
    }
}

fn lacks_nowait(errno: Errno) -> bool {
    matches!(errno, Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS | Errno::SPIPE)
}

fn is_ready(fd: impl AsFd, flags: PollFlags) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(fd.as_fd(), flags)];
    let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    matches!(rustix::event::poll(&mut fds, Some(&now)), Ok(1..))
}
