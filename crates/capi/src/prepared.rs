//! Prepared transfers: bound once, submitted often.

use crate::completion::dcs_completion;
use crate::engine::dcs_session;
use crate::request::{Command, dcs_request, failure};
use crate::{call, read_sized};
use dcs::prepared::Prepared;
use std::ffi::c_int;

/// A prepared transfer. One thread at a time may use it.
pub struct dcs_prepared {
    prepared: Prepared,
    /// Completion of the last submission; `None` while there is none.
    done: Option<dcs_completion>,
}

impl dcs_prepared {
    /// Takes the completion of the current submission, if it has come. Returns false if not.
    fn look(&mut self) -> bool {
        if self.prepared.is_under_way() {
            match self.prepared.take_with(dcs_completion::new) {
                Some(completion) => self.done = Some(completion),
                None => return false,
            }
        }
        true
    }

    /// Stores the last completion in `into`, and returns `value`, or errno of its failure.
    fn store_last(&self, into: *mut dcs_completion, value: c_int) -> Result<c_int, c_int> {
        let completion = self.done.ok_or(libc::EINVAL)?;
        let errno = completion.errno();
        // SAFETY: NULL or valid for a write, by the promise of each function that calls this.
        unsafe { completion.store(into) };
        if errno == 0 { Ok(value) } else { Err(errno) }
    }
}

/// Cancels and waits: the engine may still use the caller's memory.
impl Drop for dcs_prepared {
    fn drop(&mut self) {
        self.prepared.cancel();
        while !self.look() {
            self.prepared.wait_done();
        }
    }
}

/// Prepares a transfer that is to be submitted often, each time with other offsets and another length, and stores it in
/// `*prepared`; free it with dcs_prepared_free, before its session is closed or after. Ends, operators and settings are those of
/// `request`; its offsets are 0, its length does not count, and it has no prefix. Descriptors are duplicated and
/// parameters copied now: what becomes of the caller's later changes nothing. Memory must stay valid until it is freed.
///
/// Returns 0; or -1 and errno: EFAULT (a pointer is NULL), EINVAL (`size`; a prefix; a destination or a chain that a
/// virtual drive has), E2BIG (a request of a newer version of this library), EBADF (a descriptor is not open), EOPNOTSUPP (an
/// operator that is none), or the errno of what is wrong with an end.
///
/// # Safety
///
/// `session` is NULL or a session that was not closed; `request` is NULL or points to as many bytes as its
/// `size` says, and what it points to is valid; `prepared` is NULL or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dcs_prepare(
    session: *mut dcs_session,
    request: *const dcs_request,
    prepared: *mut *mut dcs_prepared,
) -> c_int {
    call(|| {
        // SAFETY: NULL or a session, by the caller's promise.
        let session = unsafe { session.as_ref() }.filter(|_| !prepared.is_null()).ok_or(libc::EFAULT)?;
        // SAFETY: the caller's promise.
        let request = unsafe { read_sized(request) }?;
        // SAFETY: the caller's promise.
        let command = unsafe { Command::new(&request) };
        let made = command.and_then(|command| command.prepare(&session.session));
        let made = dcs_prepared { prepared: made.map_err(|failure| failure.errno())?, done: None };
        // SAFETY: not NULL, so valid for a write.
        unsafe { prepared.write(Box::into_raw(Box::new(made))) };
        Ok(0)
    })
}

/// Submits a prepared transfer: `length` bytes from `source_offset` on, to `destination_offset` on. Sockets, pipes and
/// character devices have offset 0.
///
/// Returns 0; or -1 and errno, and nothing is moved: EFAULT (NULL), EBUSY (its last submission was not waited for, or
/// polled until it was done), ESPIPE (an offset of what has none), ERANGE (offset and length overflow, or the end of a block
/// device), EAGAIN (the session is full), ESHUTDOWN (the engine was stopped).
///
/// # Safety
///
/// `prepared` is NULL or a prepared transfer that was not freed, used by this thread alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dcs_prepared_submit(
    prepared: *mut dcs_prepared,
    source_offset: u64,
    destination_offset: u64,
    length: u64,
) -> c_int {
    call(|| {
        // SAFETY: NULL or a prepared transfer of this thread's, by the caller's promise.
        let prepared = unsafe { prepared.as_mut() }.ok_or(libc::EFAULT)?;
        let submitted = prepared.prepared.submit(source_offset, destination_offset, length);
        submitted.map(|()| 0).map_err(|error| failure(&error).errno())
    })
}

/// Waits until the last submission is done, and stores in `*done` what it did, whether it succeeded or not; `done` may be
/// NULL. It may be asked again, with the same answer, until the next submission. On an engine that is driven by its
/// callers this drives it. A submission whose peer never answers ends by its request's timeout_ms, or when another
/// thread closes the session: dcs_session_close may be called while this waits, and then dcs_prepared_free.
///
/// Returns 0 where it succeeded; -1 and errno where it failed: that of the system call behind it, else dcs_status_errno of
/// its status; or EFAULT (NULL), EINVAL (it was never submitted).
///
/// # Safety
///
/// As for dcs_prepared_submit; `done` is NULL or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dcs_prepared_wait(prepared: *mut dcs_prepared, done: *mut dcs_completion) -> c_int {
    call(|| {
        // SAFETY: NULL or a prepared transfer of this thread's, by the caller's promise.
        let prepared = unsafe { prepared.as_mut() }.ok_or(libc::EFAULT)?;
        while !prepared.look() {
            prepared.prepared.wait_done();
        }
        prepared.store_last(done, 0)
    })
}

/// Says whether the last submission is done, without waiting: for loops around poll(2) and dcs_session_eventfd.
///
/// Returns 1 where it is done and succeeded; 0 where it is not done; -1 and errno, as dcs_prepared_wait, where it is done
/// and failed. `*done` is stored in the first and last case.
///
/// # Safety
///
/// As for dcs_prepared_wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dcs_prepared_poll(prepared: *mut dcs_prepared, done: *mut dcs_completion) -> c_int {
    call(|| {
        // SAFETY: NULL or a prepared transfer of this thread's, by the caller's promise.
        let prepared = unsafe { prepared.as_mut() }.ok_or(libc::EFAULT)?;
        if prepared.look() { prepared.store_last(done, 1) } else { Ok(0) }
    })
}

/// Frees a prepared transfer. A submission that is not done is cancelled first, and waited for. NULL is ignored.
///
/// # Safety
///
/// `prepared` is NULL or a prepared transfer that was not freed, used by this thread alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dcs_prepared_free(prepared: *mut dcs_prepared) {
    call(|| {
        if !prepared.is_null() {
            // SAFETY: from Box::into_raw in `dcs_prepare`, and never used again.
            drop(unsafe { Box::from_raw(prepared) });
        }
        Ok(0)
    });
}
