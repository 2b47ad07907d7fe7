//! The two calls that resemble sendfile(2).

use crate::completion::dcs_completion;
use crate::engine::dcs_session;
use crate::operators::{copy_chain, dcs_op, keeps_length, numbers};
use crate::request::{Command, End, check_open, prefix};
use crate::status::Failure;
use crate::transfer::run;
use crate::{call, last_errno};
use dcs::session::Session;
use dcs_abi::entry::LENGTH_TO_END;
use dcs_abi::status::{Stage, Status};
use dcs_devices::Endpoint;
use std::ffi::{c_int, c_void};
use std::os::fd::AsRawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// Arguments of both calls.
struct Call {
    in_fd: c_int,
    in_offset: *mut libc::off_t,
    out_fd: c_int,
    out_offset: *mut libc::off_t,
    count: usize,
    prefix: *const c_void,
    prefix_length: usize,
    chain: *const dcs_op,
    operators: usize,
}

/// Place where an end begins, and where its progress is stored.
enum Position {
    /// No position, because it is a stream.
    None,
    /// A variable of the caller's.
    Variable(*mut libc::off_t, u64),
    /// The descriptor's own position, set through the duplicate: the caller may have reused the number by the end.
    File(Arc<Endpoint>, u64),
}

impl Position {
    /// # Safety
    ///
    /// `offset` is NULL or valid for reads and writes as long as the position lives.
    unsafe fn of(end: &End, offset: *mut libc::off_t, stage: Stage) -> Result<Position, Failure> {
        let failure = |status, errno| Failure { errno, ..Failure::new(status, stage) };
        if !end.has_positions() {
            let espipe = failure(Status::InvalidField, libc::ESPIPE);
            return if offset.is_null() { Ok(Position::None) } else { Err(espipe) };
        }
        if offset.is_null() {
            let file = end.endpoint.file().map_or(-1, |file| file.as_raw_fd());
            // SAFETY: a system call on a descriptor that the endpoint has open.
            let at = unsafe { libc::lseek(file, 0, libc::SEEK_CUR) };
            let at = u64::try_from(at).map_err(|_| failure(Status::InvalidField, last_errno()))?;
            return Ok(Position::File(Arc::clone(&end.endpoint), at));
        }
        // SAFETY: not NULL, so valid by the caller's promise.
        let at = u64::try_from(unsafe { offset.read() });
        Ok(Position::Variable(offset, at.map_err(|_| failure(Status::InvalidField, libc::EINVAL))?))
    }

    fn start(&self) -> u64 {
        match self {
            Position::None => 0,
            Position::Variable(_, at) | Position::File(_, at) => *at,
        }
    }

    fn advance(self, bytes: u64) {
        // Bytes that were moved are inside a file, whose size is an off_t.
        let to = (self.start() + bytes) as libc::off_t;
        match self {
            Position::None => {}
            // SAFETY: valid as long as the position, by the promise of `Position::of`.
            Position::Variable(offset, _) => unsafe { offset.write(to) },
            Position::File(endpoint, _) => {
                if let Some(file) = endpoint.file() {
                    // SAFETY: a system call on a descriptor that the endpoint has open.
                    unsafe { libc::lseek(file.as_raw_fd(), to, libc::SEEK_SET) };
                }
            }
        }
    }
}

impl Call {
    /// # Safety
    ///
    /// All pointers are NULL or valid as `dcs.h` says.
    unsafe fn run(&self, session: &Session) -> Result<dcs_completion, Failure> {
        // SAFETY: the caller's promise, for each of them.
        let (chain, prefix) =
            unsafe { (copy_chain(self.chain, self.operators)?, prefix(self.prefix, self.prefix_length)?) };
        check_open(self.out_fd, Stage::Destination)?;
        let mut source = End::fd(self.in_fd, 0, Stage::Source)?;
        let mut destination = End::fd(self.out_fd, 0, Stage::Destination)?;
        // SAFETY: the caller's promise.
        let (from, to) = unsafe {
            (
                Position::of(&source, self.in_offset, Stage::Source)?,
                Position::of(&destination, self.out_offset, Stage::Destination)?,
            )
        };
        (source.offset, destination.offset) = (from.start(), to.start());
        let length = self.clamp(&mut source)?;
        let keeps_length = keeps_length(&chain);
        let prefix_length = self.prefix_length as u64;
        let command = Command {
            source,
            destination,
            prefix,
            prefix_length,
            length,
            chain,
            rid: 0,
            timeout: Duration::ZERO,
            flags: 0,
        };
        let mut completion = run(session, command)?;
        let mut result = completion.result();
        if Status::from_code(result.status) == Status::EndOfSource {
            // Like sendfile(2), the call reports this by a short count.
            completion = completion.succeeded();
            result = completion.result();
        }
        let came_through = match result.status {
            0 => result.bytes_in,
            // The bytes that had arrived need not be sent again. A broken compressed stream is of no use.
            _ if keeps_length => result.bytes_out,
            _ => 0,
        };
        from.advance(came_through.saturating_sub(prefix_length));
        to.advance(result.bytes_out);
        Ok(completion)
    }

    /// Cuts the call short at the end of a file. Returns the bytes to move, and sets the source's first byte.
    fn clamp(&self, source: &mut End) -> Result<u64, Failure> {
        let count = if isize::try_from(self.count).is_ok() { self.count as u64 } else { LENGTH_TO_END };
        let failure = |error: std::io::Error| Failure {
            errno: error.raw_os_error().unwrap_or(libc::EIO),
            ..Failure::new(Status::ReadError, Stage::Source)
        };
        let Some(size) = source.endpoint.size().map_err(failure)? else { return Ok(count) };
        if source.hides_size() {
            return Ok(count);
        }
        source.offset = source.offset.min(size);
        Ok(count.min((size - source.offset).saturating_add(self.prefix_length as u64)))
    }

    /// Runs the call, fills in `done` in any case, and returns the result of the function.
    ///
    /// # Safety
    ///
    /// All pointers are NULL or valid as `dcs.h` says.
    unsafe fn complete(
        &self,
        session: *mut dcs_session,
        done: *mut dcs_completion,
    ) -> Result<libc::ssize_t, c_int> {
        // SAFETY: NULL or a session, by the caller's promise.
        let session = unsafe { session.as_ref() }.ok_or(Failure::invalid(libc::EFAULT));
        // SAFETY: the caller's promise.
        let run = |session: &dcs_session| unsafe { self.run(&session.session) };
        let run = AssertUnwindSafe(|| session.and_then(run));
        let outcome = catch_unwind(run).unwrap_or(Err(Failure::panicked()));
        let completion = outcome.unwrap_or_else(|failure| {
            // SAFETY: the caller's promise.
            dcs_completion::refused(&failure, unsafe { numbers(self.chain, self.operators) })
        });
        // SAFETY: the caller's promise.
        unsafe { completion.store(done) };
        match completion.errno() {
            0 => Ok(completion.result().bytes_in as libc::ssize_t),
            errno => Err(errno),
        }
    }
}

/// Sends bytes of a file through operators; the shape of sendfile(2).
///
/// Moves up to `count` bytes from `in_fd` through the `operators` operators at `through` (NULL and 0 for
/// none) to `out_fd`, and waits until that is done. A file that has fewer gives fewer. A `count` over
/// SSIZE_MAX stands for all that there is.
///
/// `offset` says where in the file to begin, and the file's own position does not change; where it is NULL,
/// the position says it, and is moved. `in_fd` may be a stream too (socket, pipe); `offset` is then NULL. An
/// `out_fd` that is a file is written at its position, which is moved. Unlike in sendfile(2), non-blocking
/// descriptors are waited for, and signals do not interrupt.
///
/// Returns the bytes that were read from `in_fd` and moved, all of which arrived; fewer than `count` where
/// the source has no more. How many came out of the chain is in `done->result.bytes_out`, digests are in
/// `done->result.digests`. `*offset` is moved by as many as are returned.
///
/// Returns -1 and errno on failure: that of the system call behind it, else dcs_status_errno of
/// `done->result.status`; EFAULT, EINVAL, EBADF, ESPIPE, ENOBUFS, EAGAIN (the session is full), ESHUTDOWN
/// among them. `done->result.bytes_out` bytes had been delivered then. `*offset` is moved behind them, so
/// that another call can send the rest; where the chain changes the length (gzip) it stays.
///
/// Unlike with sendfile(2), the file may be written to once the call has returned: the peer gets what was
/// read. A file that is never written in place is sent with fewer copies by dcs_transfer_submit, with
/// `immutable`.
///
/// `done` may be NULL. It is filled in on failure too. Threads may share a session.
///
/// # Safety
///
/// `session` is NULL or a session that was not closed; `offset` and `done` are NULL or valid for reads and
/// writes; `through` is NULL or points to `operators` operators.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dcs_sendfile(
    session: *mut dcs_session,
    out_fd: c_int,
    in_fd: c_int,
    offset: *mut libc::off_t,
    count: usize,
    through: *const dcs_op,
    operators: usize,
    done: *mut dcs_completion,
) -> libc::ssize_t {
    let arguments = Call {
        in_fd,
        in_offset: offset,
        out_fd,
        out_offset: std::ptr::null_mut(),
        count,
        prefix: std::ptr::null(),
        prefix_length: 0,
        chain: through,
        operators,
    };
    // SAFETY: the caller's promise.
    call(|| unsafe { arguments.complete(session, done) })
}

/// Receives bytes into a file through operators; the counterpart of dcs_sendfile.
///
/// Moves `count` bytes to `out_fd`: first the `prefix_length` bytes at `prefix` (what was already read off
/// the socket; NULL and 0 for none), which count, then what `in_sock` receives; all of them through the
/// `operators` operators at `through`; and waits until that is done. A peer that stops sending before gives
/// fewer. A `count` over SSIZE_MAX stands for all that it sends.
///
/// `offset` says where in the file to write, and the file's own position does not change; where it is NULL,
/// the position says it, and is moved. Both are moved by the bytes that were written,
/// `done->result.bytes_out`, on failure too. The file grows as needed and is not truncated. `out_fd` may be a
/// stream too; `offset` is then NULL.
///
/// Returns the bytes of prefix and socket that went in, all of which arrived; fewer than `count` where the
/// peer stopped sending. Returns -1 and errno on failure, as dcs_sendfile; what was received and not
/// delivered is lost then, and `done->result.bytes_in` says how much was received.
///
/// `done` may be NULL. It is filled in on failure too. Threads may share a session.
///
/// # Safety
///
/// As for dcs_sendfile; `prefix` is NULL or valid for `prefix_length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dcs_recvfile(
    session: *mut dcs_session,
    in_sock: c_int,
    out_fd: c_int,
    offset: *mut libc::off_t,
    count: usize,
    prefix: *const c_void,
    prefix_length: usize,
    through: *const dcs_op,
    operators: usize,
    done: *mut dcs_completion,
) -> libc::ssize_t {
    let arguments = Call {
        in_fd: in_sock,
        in_offset: std::ptr::null_mut(),
        out_fd,
        out_offset: offset,
        count,
        prefix,
        prefix_length,
        chain: through,
        operators,
    };
    // SAFETY: the caller's promise.
    call(|| unsafe { arguments.complete(session, done) })
}
