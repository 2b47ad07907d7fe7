//! Results of a transfer, in C.

use crate::copy_text;
use crate::status::Failure;
use dcs::binding::{Finished, nearest_errno, sentence};
use dcs_abi::operator::Operator;
use dcs_abi::result::{DigestSlot, ResultArea};
use dcs_abi::status::{Stage, Status};
use dcs_abi::{CHAIN_MAX, Wire};
use std::ffi::{c_char, c_int};

/// The bytes of a result area; the header has its members.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub struct dcs_result([u8; ResultArea::SIZE]);

/// The bytes of a digest; the header has its members.
#[repr(C, align(8))]
pub struct dcs_digest([u8; DigestSlot::SIZE]);

/// The results of a transfer, whether it succeeded or not.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct dcs_completion {
    /// Status, stage that failed, errno, bytes in and out, paths, times, digests. A digest has the place of
    /// its operator in the chain: that of the first one is digests[0]. After a failure, the digests cover
    /// what passed their operators.
    pub result: dcs_result,
    /// The chain: DCS_OP_*, then zeros.
    pub chain: [u8; 8],
    /// Zero.
    pub reserved: [u8; 56],
}

impl dcs_completion {
    pub fn new(finished: &Finished<'_>) -> dcs_completion {
        let mut result = *finished.result;
        // The ring's entry is authoritative: the result area might not have been written.
        result.status = finished.entry.status().code();
        (result.stage, result.stage_index) = (finished.entry.stage, finished.entry.stage_index);
        dcs_completion::of(&result, finished.chain)
    }

    /// Makes the completion of a transfer that was refused.
    pub fn refused(failure: &Failure, chain: [u8; CHAIN_MAX]) -> dcs_completion {
        let result = ResultArea {
            status: failure.status.code(),
            stage: failure.stage as u8,
            stage_index: failure.at,
            errno: failure.errno as u32,
            ..Default::default()
        };
        dcs_completion::of(&result, chain)
    }

    fn of(result: &ResultArea, chain: [u8; CHAIN_MAX]) -> dcs_completion {
        dcs_completion { result: dcs_result(result.to_bytes()), chain, reserved: [0; 56] }
    }

    pub fn result(&self) -> ResultArea {
        ResultArea::get(&self.result.0)
    }

    /// Returns the same completion as a success.
    pub fn succeeded(self) -> dcs_completion {
        let success = ResultArea { status: 0, stage: 0, stage_index: 0, errno: 0, ..self.result() };
        dcs_completion::of(&success, self.chain)
    }

    /// Returns errno of its failure; 0 if it succeeded.
    pub fn errno(&self) -> c_int {
        let result = self.result();
        match Status::from_code(result.status) {
            Status::Success => 0,
            status => nearest_errno(status, result.errno as c_int),
        }
    }

    /// # Safety
    ///
    /// `into` is NULL or valid for a write.
    pub unsafe fn store(self, into: *mut dcs_completion) {
        if !into.is_null() {
            // SAFETY: the caller's promise.
            unsafe { into.write(self) };
        }
    }

    fn sentence(&self) -> String {
        let result = self.result();
        let status = Status::from_code(result.status);
        if status == Status::Success {
            return format!("done: {} bytes in, {} bytes out", result.bytes_in, result.bytes_out);
        }
        let stage = Stage::from_number(result.stage);
        let number = self.chain.get(result.stage_index as usize).copied().unwrap_or(0);
        let operator = Operator::chain_name(number)
            .filter(|_| stage == Stage::Operator)
            .map(|operator| (result.stage_index, operator));
        sentence(status, stage, operator, result.errno as i32, result.bytes_out)
    }
}

/// Says in one line what a transfer did: stage, status, errno and bytes delivered where it failed.
///
/// Writes up to `size` bytes, the NUL at the end included, and returns the length of the whole line, as
/// snprintf(3) does; 0 where `completion` is NULL.
///
/// # Safety
///
/// `completion` is NULL or points to a completion; `line` is NULL or valid for `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dcs_completion_sentence(
    completion: *const dcs_completion,
    line: *mut c_char,
    size: usize,
) -> usize {
    // SAFETY: NULL or valid, by the caller's promise.
    let said = unsafe { completion.as_ref() }.map(dcs_completion::sentence).unwrap_or_default();
    // SAFETY: as above.
    unsafe { copy_text(&said, line, size) }
}

/// Writes a digest in lower-case hexadecimal, as md5sum(1) prints it: 2 * size + 1 bytes, at most 129.
///
/// Writes up to `size` bytes, the NUL at the end included, and returns the length of the whole text, as
/// snprintf(3) does; 0 where there is no digest.
///
/// # Safety
///
/// `digest` is NULL or points to a digest; `text` is NULL or valid for `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dcs_digest_text(digest: *const dcs_digest, text: *mut c_char, size: usize) -> usize {
    // SAFETY: NULL or valid, by the caller's promise.
    let slot = unsafe { digest.as_ref() }.map(|digest| DigestSlot::get(&digest.0)).unwrap_or_default();
    let value = &slot.value[..usize::from(slot.size).min(slot.value.len())];
    let hex: String = value.iter().map(|byte| format!("{byte:02x}")).collect();
    // SAFETY: as above.
    unsafe { copy_text(&hex, text, size) }
}
