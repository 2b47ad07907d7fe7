//! Statuses as errno, and in words.

use dcs::binding::{advice, nearest_errno};
use dcs_abi::status::{Stage, Status};
use std::collections::BTreeMap;
use std::ffi::{CString, c_char, c_int};
use std::sync::Mutex;

/// Reason why a transfer failed, or could not be submitted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failure {
    pub status: Status,
    pub stage: Stage,
    /// Place of the operator, if the stage is [`Stage::Operator`].
    pub at: u8,
    /// errno of the failed system call; 0 if there was none.
    pub errno: c_int,
}

impl Failure {
    pub fn new(status: Status, stage: Stage) -> Failure {
        Failure { status, stage, at: 0, errno: 0 }
    }

    /// Makes the failure of an invalid call.
    pub fn invalid(errno: c_int) -> Failure {
        Failure { errno, ..Failure::new(Status::InvalidField, Stage::Frontend) }
    }

    pub fn panicked() -> Failure {
        Failure::new(Status::InternalError, Stage::Frontend)
    }

    /// Returns the errno nearest to it.
    pub fn errno(&self) -> c_int {
        nearest_errno(self.status, self.errno)
    }
}

/// Returns a static text with a NUL at its end, made once.
pub(crate) fn text(text: &'static str) -> *const c_char {
    static TEXTS: Mutex<BTreeMap<&'static str, CString>> = Mutex::new(BTreeMap::new());
    let mut texts = TEXTS.lock().unwrap_or_else(|error| error.into_inner());
    // No text has a NUL inside; a CString's bytes stay where they are when the map moves it.
    texts.entry(text).or_insert_with(|| CString::new(text).unwrap_or_default()).as_ptr()
}

/// The name of a status: `END_OF_SOURCE` for DCS_STATUS_END_OF_SOURCE, `UNKNOWN` for a number that is none.
///
/// The text is static. Any thread may call this any time.
#[unsafe(no_mangle)]
pub extern "C" fn dcs_status_name(status: u16) -> *const c_char {
    text(Status::from_code(status).name())
}

/// Describes a status, in one line. The text is static.
#[unsafe(no_mangle)]
pub extern "C" fn dcs_status_meaning(status: u16) -> *const c_char {
    text(Status::from_code(status).meaning())
}

/// Advises about a status, in one line. The text is static.
#[unsafe(no_mangle)]
pub extern "C" fn dcs_status_advice(status: u16) -> *const c_char {
    text(advice(Status::from_code(status)))
}

/// The errno that a function leaves where a transfer ends with this status and no system call is behind it; 0
/// for DCS_STATUS_SUCCESS.
#[unsafe(no_mangle)]
pub extern "C" fn dcs_status_errno(status: u16) -> c_int {
    nearest_errno(Status::from_code(status), 0)
}
