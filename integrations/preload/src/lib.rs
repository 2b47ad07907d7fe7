//! `libdcs-preload.so`: runs the sendfile(2) calls of unmodified programs on the engine.
//!
//! Loaded by `LD_PRELOAD` (`dcs run` sets it), it replaces `sendfile` and `sendfile64`. A configuration says which
//! files, sent to which sockets, pass which operators: [`dcs_preload_rules::config`]. All other calls go to the kernel.
//!
//! # Architecture
//!
//! A chain has state (a digest covers all pieces of an object), and programs send an object in many calls. So
//! a *stream* lives across calls: one transfer of the engine between two pipes. A call feeds the first pipe
//! from the file and empties the second into the socket, both by splice(2), in the caller's own thread:
//!
//! ```text
//!   file --splice--> pipe --> engine: operators --> pipe --splice--> socket
//!        the call            its own thread              the call
//! ```
//!
//! splice holds its pipes' locks while it waits, and the engine's thread needs those of both pipes. So a splice that
//! may wait (for the file's disk, for room in a blocking socket) uses a pipe that the engine does not know:
//! [`staging`].
//!
//! So the socket's and the file's errors, EAGAIN, SIGPIPE, timeouts and blocking are those of the kernel, and no byte
//! is computed that was not requested. While the program serves other connections, the engine works on what was fed,
//! with all streams of the process side by side. What a call fed and the socket did not take waits in the stream for
//! the next call.
//!
//! | module | contents |
//! |---|---|
//! | `setup` | reads the configuration when the library is loaded; says what was counted when the process ends |
//! | `call` | one call: what applies to it, and who carries it |
//! | `process` | what is forgotten in a forked child: streams, engines, counters |
//! | `streams` | the table of streams; ends those whose sockets are gone |
//! | `stream` | one stream: feed, deliver, end |
//! | `staging` | pipes in which a call may wait for a file or a socket |
//! | `patience` | how long a call waits for an engine that does nothing |
//! | `units` | engines, and pipes for them |
//! | `record` | the log |
//! | `sys` | the system calls |
//!
//! # What it doesn't implement
//!
//! * Other calls: write, writev, splice, io_uring, mmap. The library does not see what a program sends without
//!   sendfile.
//! * A socket that is written by several threads at once gets their bytes in some order, as ever; a digest
//!   covers what one file contributed.
//! * Sockets other than stream sockets (TCP, Unix): no chain is applied.
//! * sendfile in a signal handler that interrupts one: the kernel carries it if all rules have only digests; otherwise
//!   it fails with EIO. In a handler that interrupts malloc it may deadlock if a rule applies.
//! * longjmp out of a signal handler that interrupts a call: its stream stays locked.
//! * TLS in the kernel is not tested. Its sockets are TCP's, so chains are applied, before the kernel
//!   encrypts.

mod call;
mod patience;
mod process;
mod record;
mod setup;
mod staging;
mod stream;
mod streams;
mod sys;
mod units;

use libc::{c_int, off_t, size_t, ssize_t};

/// Replaces sendfile(2). A thread that was cancelled may end when the call has ended: hence "C-unwind".
///
/// # Safety
///
/// The same as for the C library's function: `offset` is NULL or points to an `off_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sendfile(
    out_fd: c_int,
    in_fd: c_int,
    offset: *mut off_t,
    count: size_t,
) -> ssize_t {
    call::sendfile(out_fd, in_fd, offset, count)
}

/// Replaces sendfile(2) for programs compiled for large files, which here all are.
///
/// # Safety
///
/// The same as for [`sendfile`].
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sendfile64(
    out_fd: c_int,
    in_fd: c_int,
    offset: *mut off_t,
    count: size_t,
) -> ssize_t {
    call::sendfile(out_fd, in_fd, offset, count)
}
