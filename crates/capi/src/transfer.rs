//! Transfers one by one: submit, wait, poll, cancel, free.

use crate::completion::dcs_completion;
use crate::engine::dcs_session;
use crate::operators::numbers;
use crate::request::{Command, dcs_request};
use crate::status::Failure;
use crate::{call, read_sized};
use dcs::session::{Session, Transfer};
use dcs_abi::status::Stage;
use std::ffi::c_int;

/// A transfer, in flight or done. Threads may share it.
pub struct dcs_transfer {
    state: State,
}

enum State {
    Submitted(Transfer),
    /// A transfer that the engine never saw.
    Refused(Box<dcs_completion>),
}

impl dcs_transfer {
    fn peek(&self) -> Option<dcs_completion> {
        match &self.state {
            State::Submitted(transfer) => transfer.peek(dcs_completion::new),
            State::Refused(completion) => Some(**completion),
        }
    }

    fn wait(&self) -> dcs_completion {
        match &self.state {
            State::Submitted(transfer) => loop {
                transfer.wait_done();
                if let Some(completion) = transfer.peek(dcs_completion::new) {
                    return completion;
                }
            },
            State::Refused(completion) => **completion,
        }
    }
}

/// Cancels and waits: the engine may still use the caller's memory.
impl Drop for dcs_transfer {
    fn drop(&mut self) {
        if let State::Submitted(transfer) = &self.state {
            transfer.cancel();
            transfer.wait_done();
        }
    }
}

/// Runs a command to its end.
pub(crate) fn run(session: &Session, command: Command) -> Result<dcs_completion, Failure> {
    let transfer = dcs_transfer { state: State::Submitted(command.submit(session)?) };
    Ok(transfer.wait())
}

/// Submits a transfer, which is stored in `*transfer`; free it with dcs_transfer_free.
///
/// Everything that `request` points to is read now, but for memory, and prefixes longer than
/// DCS_PREFIX_COPIED. An error in the transfer itself (a descriptor that is not open, an unknown operator, a
/// wrong key length) is told by its completion, with its stage, as everything that goes wrong later.
///
/// Returns 0; or -1 and errno, and there is no transfer: EFAULT (a pointer is NULL), EINVAL (`size`), E2BIG
/// (a request of a newer version of this library), EAGAIN (as many transfers are in flight or not freed as
/// the session has room for), ESHUTDOWN (the engine was stopped).
///
/// # Safety
///
/// `session` is NULL or a session that was not closed; `request` is NULL or points to as many bytes as its
/// `size` says, and what it points to is valid; `transfer` is NULL or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dcs_transfer_submit(
    session: *mut dcs_session,
    request: *const dcs_request,
    transfer: *mut *mut dcs_transfer,
) -> c_int {
    call(|| {
        // SAFETY: NULL or a session, by the caller's promise.
        let session = unsafe { session.as_ref() }.filter(|_| !transfer.is_null()).ok_or(libc::EFAULT)?;
        // SAFETY: the caller's promise.
        let request = unsafe { read_sized(request) }?;
        // SAFETY: the caller's promise.
        let submitted = unsafe { Command::new(&request) };
        let state = match submitted.and_then(|command| command.submit(&session.session)) {
            Ok(transfer) => State::Submitted(transfer),
            Err(failure) if failure.stage == Stage::Queue => return Err(failure.errno()),
            Err(failure) => {
                // SAFETY: the caller's promise.
                let chain = unsafe { numbers(request.chain, request.operators) };
                session.session.signal();
                State::Refused(Box::new(dcs_completion::refused(&failure, chain)))
            }
        };
        // SAFETY: not NULL, so valid for a write.
        unsafe { transfer.write(Box::into_raw(Box::new(dcs_transfer { state }))) };
        Ok(0)
    })
}

/// Waits until a transfer is done, and stores in `*done` what it did, whether it succeeded or not; `done` may
/// be NULL.
///
/// It may be asked again, with the same answer. On an engine that is driven by its callers this drives it.
/// Signals do not interrupt it; dcs_transfer_cancel from another thread, or a timeout in the request, ends
/// it.
///
/// Returns 0 where the transfer succeeded; -1 and errno where it failed: that of the system call behind it,
/// else dcs_status_errno of its status; or EFAULT (`transfer` is NULL).
///
/// # Safety
///
/// `transfer` is NULL or a transfer that was not freed; `done` is NULL or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dcs_transfer_wait(
    transfer: *const dcs_transfer,
    done: *mut dcs_completion,
) -> c_int {
    call(|| {
        // SAFETY: NULL or a transfer, by the caller's promise.
        let completion = unsafe { transfer.as_ref() }.ok_or(libc::EFAULT)?.wait();
        // SAFETY: the caller's promise.
        unsafe { completion.store(done) };
        success(&completion, 0)
    })
}

/// Says whether a transfer is done, without waiting: for loops around poll(2) and dcs_session_eventfd.
///
/// Returns 1 where it is done and succeeded; 0 where it is not done; -1 and errno, as dcs_transfer_wait,
/// where it is done and failed. `*done` is stored in the first and last case. It may be asked again, with the
/// same answer.
///
/// # Safety
///
/// As for dcs_transfer_wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dcs_transfer_poll(
    transfer: *const dcs_transfer,
    done: *mut dcs_completion,
) -> c_int {
    call(|| {
        // SAFETY: NULL or a transfer, by the caller's promise.
        let Some(completion) = unsafe { transfer.as_ref() }.ok_or(libc::EFAULT)?.peek() else {
            return Ok(0);
        };
        // SAFETY: the caller's promise.
        unsafe { completion.store(done) };
        success(&completion, 1)
    })
}

fn success(completion: &dcs_completion, value: c_int) -> Result<c_int, c_int> {
    match completion.errno() {
        0 => Ok(value),
        errno => Err(errno),
    }
}

/// Asks the engine to abort a transfer; another thread may be waiting for it. It is done soon after, with
/// DCS_STATUS_CANCELLED unless it was faster: wait for it, or free it.
///
/// Returns 0; or -1 and EFAULT (NULL).
///
/// # Safety
///
/// `transfer` is NULL or a transfer that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dcs_transfer_cancel(transfer: *const dcs_transfer) -> c_int {
    call(|| {
        // SAFETY: NULL or a transfer, by the caller's promise.
        if let State::Submitted(transfer) = &unsafe { transfer.as_ref() }.ok_or(libc::EFAULT)?.state {
            transfer.cancel();
        }
        Ok(0)
    })
}

/// Frees a transfer. One that is not done is cancelled first, and waited for: when this returns, the engine
/// uses none of its memory and descriptors any more. NULL is ignored. No other thread may use the transfer
/// meanwhile or later.
///
/// # Safety
///
/// `transfer` is NULL or a transfer that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dcs_transfer_free(transfer: *mut dcs_transfer) {
    call(|| {
        if !transfer.is_null() {
            // SAFETY: from Box::into_raw in `dcs_transfer_submit`, and never used again.
            drop(unsafe { Box::from_raw(transfer) });
        }
        Ok(0)
    });
}
