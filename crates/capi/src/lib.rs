//! The C API, `dcs.h`.
//!
//! Every function here checks its arguments, returns `-1` and sets `errno` if something is wrong, and lets no panic
//! out. The header is generated from these sources: a C programmer reads the doc comments here.
//!
//! # Architecture
//!
//! | module | what it holds |
//! |---|---|
//! | `engine` | engines and sessions |
//! | `sendfile` | [`dcs_sendfile`](sendfile::dcs_sendfile), [`dcs_recvfile`](sendfile::dcs_recvfile) |
//! | `transfer` | submit, wait, poll, cancel, free |
//! | `prepared` | prepare, then submit, wait and poll often; free |
//! | `request` | what a transfer is to do, checked |
//! | `completion` | what it did |
//! | `operators` | chains of operators, and the table of all there are |
//! | `modules` | operators of the user's own |
//! | `parameters` | parameter blocks of operators, filled in |
//! | `status` | statuses as errno, and in words |
//!
//! # What it doesn't implement
//!
//! SSDs and NICs that the engine drives itself over VFIO, connections of a card's NICs, and transfers as futures: only
//! Rust programs have these. Environment variables name a card.
//!
//! # Memory of the caller
//!
//! [`Endpoint::foreign`](dcs_devices::Endpoint::foreign) needs a promise: the memory stays valid until the endpoint is
//! dropped. The C programmer (`dcs.h`) promises less: until the transfer is done or freed, or its session or engine is
//! closed. That is enough, because the engine drops a command's endpoints before it posts its completion, and because
//! freeing a transfer, closing a session and stopping an engine each wait for those completions.

// These are C's names.
#![allow(non_camel_case_types)]

mod completion;
mod engine;
mod modules;
mod operators;
mod parameters;
mod prepared;
mod request;
mod sendfile;
mod status;
mod transfer;

use std::ffi::{c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs the body of a function. Returns `-1` and sets errno if it fails or panics.
fn call<T: From<i8>>(body: impl FnOnce() -> Result<T, c_int>) -> T {
    // A panic is a bug. What the body had borrowed is guarded by locks, or dropped while it unwinds.
    let errno = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => return value,
        Ok(Err(errno)) => errno,
        Err(_) => libc::EIO,
    };
    set_errno(errno);
    T::from(-1)
}

fn set_errno(errno: c_int) {
    // SAFETY: the pointer is to this thread's errno, which is valid as long as the thread.
    unsafe { *libc::__errno_location() = errno };
}

/// Returns the errno of the calling thread's last system call.
fn last_errno() -> c_int {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

/// Reads a structure that begins with its own size, so that later versions can add members. Members that this version
/// does not know must be zero.
///
/// # Safety
///
/// `pointer` is NULL, or valid for reads of as many bytes as the `size_t` says that it points to.
unsafe fn read_sized<T: Copy>(pointer: *const T) -> Result<T, c_int> {
    const SIZE_MAX: usize = 4096;
    let known = size_of::<T>();
    if pointer.is_null() {
        return Err(libc::EFAULT);
    }
    // SAFETY: every structure that is read this way begins with a size_t.
    let size = unsafe { pointer.cast::<usize>().read() };
    match size {
        _ if size < known => return Err(libc::EINVAL),
        _ if size > SIZE_MAX => return Err(libc::E2BIG),
        _ => {}
    }
    // SAFETY: `size` bytes are valid, and it is at least `known`.
    let (value, tail) = unsafe {
        (pointer.read(), std::slice::from_raw_parts(pointer.cast::<u8>().add(known), size - known))
    };
    if tail.iter().any(|byte| *byte != 0) { Err(libc::E2BIG) } else { Ok(value) }
}

/// Makes a slice of the caller's values; `EFAULT` for NULL with a length, `EINVAL` for an impossible length.
///
/// # Safety
///
/// `pointer` is NULL, or valid for reads of `length` values until the slice is dropped.
unsafe fn slice<'a, T>(pointer: *const T, length: usize) -> Result<&'a [T], c_int> {
    if length == 0 {
        return Ok(&[]);
    }
    if pointer.is_null() {
        return Err(libc::EFAULT);
    }
    if length > isize::MAX as usize / size_of::<T>() {
        return Err(libc::EINVAL);
    }
    // SAFETY: not NULL, so valid by the caller's promise, and no larger than objects can be.
    Ok(unsafe { std::slice::from_raw_parts(pointer, length) })
}

/// Copies a text as snprintf does: cut to `size`, with a NUL at the end. Returns its whole length.
///
/// # Safety
///
/// `into` is NULL, or valid for writes of `size` bytes.
unsafe fn copy_text(text: &str, into: *mut c_char, size: usize) -> usize {
    if !into.is_null() && size > 0 {
        let length = text.len().min(size - 1);
        // SAFETY: `length + 1` bytes fit into `size`.
        unsafe {
            std::ptr::copy_nonoverlapping(text.as_ptr(), into.cast::<u8>(), length);
            into.add(length).write(0);
        }
    }
    text.len()
}

/// The version of this library, for example `0.1.0`.
#[unsafe(no_mangle)]
pub extern "C" fn dcs_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}
