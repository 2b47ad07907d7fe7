//! Fills in parameter blocks of operators.

use dcs::op::{AwsChunked, AwsSignature, Element, Grep, Knn};
use dcs_abi::operator::Operator;
use std::ffi::{CStr, c_char};
use zeroize::Zeroizing;

/// Bytes of the parameters of DCS_OP_AES256_CTR.
pub const DCS_AES256_CTR_PARAMETERS: usize = 48;
/// Bytes of the parameters of DCS_OP_AES256_XTS and DCS_OP_AES256_XTS_DECRYPT.
pub const DCS_AES256_XTS_PARAMETERS: usize = 80;
/// Most bytes of the parameters of DCS_OP_AWS_CHUNKED.
pub const DCS_AWS_CHUNKED_PARAMETERS: usize = 224;
/// Bytes of the parameters of DCS_OP_SLICE.
pub const DCS_SLICE_PARAMETERS: usize = 16;
/// Most bytes of the parameters of DCS_OP_BLOWFISH_CTR.
pub const DCS_BLOWFISH_CTR_PARAMETERS: usize = 64;
/// Most bytes of the parameters of DCS_OP_KNN.
pub const DCS_KNN_PARAMETERS: usize = 2056;
/// Bytes of the parameters of DCS_OP_BITMAP.
pub const DCS_BITMAP_PARAMETERS: usize = 2;

/// DCS_OP_KNN: elements are bytes without a sign.
pub const DCS_KNN_U8: u8 = 0;
/// DCS_OP_KNN: elements are floating-point numbers of single precision, little-endian.
pub const DCS_KNN_F32: u8 = 1;

/// DCS_OP_BITMAP: decompresses the one bitmap that is there.
pub const DCS_BITMAP_ONE: u8 = 0;
/// DCS_OP_BITMAP: the bits that are set in all bitmaps.
pub const DCS_BITMAP_AND: u8 = 1;
/// DCS_OP_BITMAP: the bits that are set in any bitmap.
pub const DCS_BITMAP_OR: u8 = 2;

/// Most bytes of the parameters of DCS_OP_GREP.
pub const DCS_GREP_PARAMETERS: usize = 1024;

/// DCS_OP_GREP: ASCII letters match in either case.
pub const DCS_GREP_IGNORE_CASE: u8 = 1;
/// DCS_OP_GREP: lines that do not match.
pub const DCS_GREP_INVERT: u8 = 2;
/// DCS_OP_GREP: the lines' number, in decimal digits and a line feed, in place of them.
pub const DCS_GREP_COUNT: u8 = 4;

/// The facts that an S3 request's headers tell of a body in aws-chunked framing.
#[repr(C)]
pub struct dcs_aws_chunked {
    /// Bytes of the data without their framing (`x-amz-decoded-content-length`).
    pub decoded_length: u64,
    /// 1 where trailers follow the last chunk (`x-amz-content-sha256` ends in `-TRAILER`), else 0.
    pub trailers: u8,
    /// The checksum that a trailer brings (`x-amz-trailer`): DCS_OP_CRC32, DCS_OP_CRC32C, DCS_OP_CRC64_NVME,
    /// DCS_OP_SHA1 or DCS_OP_SHA256; 0 where it brings none.
    pub checksum: u8,
    /// Zero.
    pub reserved: [u8; 6],
    /// The 32 bytes of the signing key, derived from the secret key for day, region and service; NULL where
    /// the chunks are not signed, and then the members below mean nothing.
    pub key: *const u8,
    /// The 32 bytes of the signature of the request's headers.
    pub seed: *const u8,
    /// The request's time, `YYYYMMDDTHHMMSSZ` (`x-amz-date`).
    pub timestamp: *const c_char,
    /// The credential scope, `YYYYMMDD/region/s3/aws4_request`: 1 to 128 bytes.
    pub scope: *const c_char,
}

/// Fills in the DCS_AES256_CTR_PARAMETERS bytes at `block` from a key of 32 bytes and the first counter block
/// of 16 bytes, and returns their number; 0 where a pointer is NULL. A counter block must never be used twice
/// with a key.
///
/// # Safety
///
/// The pointers are NULL or valid for that many bytes, and do not overlap.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dcs_parameter_aes256_ctr(
    block: *mut u8,
    key: *const u8,
    counter: *const u8,
) -> usize {
    if block.is_null() || key.is_null() || counter.is_null() {
        return 0;
    }
    // SAFETY: not NULL, so valid by the caller's promise; bytes have no alignment.
    unsafe {
        let (key, counter) = (&*key.cast::<[u8; 32]>(), &*counter.cast::<[u8; 16]>());
        block.cast::<[u8; DCS_AES256_CTR_PARAMETERS]>().write(dcs_ndp::parameter::aes256_ctr(key, counter));
    }
    DCS_AES256_CTR_PARAMETERS
}

/// Fills in the DCS_AES256_XTS_PARAMETERS bytes at `block` from a key of 64 bytes (data key, then tweak key),
/// the bytes of a data unit (16 to 65536, a power of two) and the number of the first unit, and returns their
/// number; 0 where a pointer is NULL.
///
/// # Safety
///
/// The pointers are NULL or valid for that many bytes, and do not overlap.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dcs_parameter_aes256_xts(
    block: *mut u8,
    key: *const u8,
    unit_size: u32,
    first_unit: u64,
) -> usize {
    if block.is_null() || key.is_null() {
        return 0;
    }
    // SAFETY: as in `dcs_parameter_aes256_ctr`.
    unsafe {
        let key = &*key.cast::<[u8; 64]>();
        let parameters = dcs_ndp::parameter::aes256_xts(key, unit_size, first_unit);
        block.cast::<[u8; DCS_AES256_XTS_PARAMETERS]>().write(parameters);
    }
    DCS_AES256_XTS_PARAMETERS
}

/// Fills in the one byte at `block` with the level of DCS_OP_GZIP (0 to 9) or DCS_OP_ZSTD (1 to 19), and
/// returns 1; 0 where the pointer is NULL.
///
/// # Safety
///
/// The pointer is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dcs_parameter_level(block: *mut u8, level: u8) -> usize {
    if block.is_null() {
        return 0;
    }
    // SAFETY: not NULL, so valid by the caller's promise.
    unsafe { block.write(level) };
    1
}

/// Fills in the DCS_SLICE_PARAMETERS bytes at `block` from the bytes to drop and the bytes to pass, and
/// returns their number; 0 where the pointer is NULL.
///
/// # Safety
///
/// The pointer is NULL or valid for that many bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dcs_parameter_slice(block: *mut u8, skip: u64, take: u64) -> usize {
    if block.is_null() {
        return 0;
    }
    // SAFETY: not NULL, so valid by the caller's promise.
    unsafe { block.cast::<[u8; DCS_SLICE_PARAMETERS]>().write(dcs_ndp::parameter::slice(skip, take)) };
    DCS_SLICE_PARAMETERS
}

/// Fills in the first of the DCS_GREP_PARAMETERS bytes at `block` from a regular expression on bytes in UTF-8
/// and flags (DCS_GREP_*), and returns how many they are; 0 where a pointer is NULL, or the expression or the
/// flags would be refused.
///
/// # Safety
///
/// The pointers are NULL or valid: `block` for DCS_GREP_PARAMETERS bytes, `pattern` as a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dcs_parameter_grep(block: *mut u8, pattern: *const c_char, flags: u8) -> usize {
    if block.is_null() || pattern.is_null() {
        return 0;
    }
    // SAFETY: not NULL, so a string by the caller's promise.
    let Ok(pattern) = (unsafe { CStr::from_ptr(pattern) }).to_str() else { return 0 };
    let set = |flag: u8| flags & flag != 0;
    let grep = Grep {
        pattern: pattern.to_string(),
        ignore_case: set(DCS_GREP_IGNORE_CASE),
        invert: set(DCS_GREP_INVERT),
        count: set(DCS_GREP_COUNT),
    };
    let parameters = grep.block();
    if parameters[0] != flags || grep.check().is_err() || parameters.len() > DCS_GREP_PARAMETERS {
        return 0;
    }
    // SAFETY: not NULL, so valid for that many bytes; a vector of its own does not overlap.
    unsafe { block.copy_from_nonoverlapping(parameters.as_ptr(), parameters.len()) };
    parameters.len()
}

/// Fills in the first of the DCS_BLOWFISH_CTR_PARAMETERS bytes at `block` from a key of `length` bytes (4 to 56) and
/// the first counter block of 8 bytes, and returns how many they are; 0 where a pointer is NULL or the length is
/// another. A counter block must never be used twice with a key.
///
/// # Safety
///
/// The pointers are NULL or valid for that many bytes, and do not overlap.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dcs_parameter_blowfish_ctr(
    block: *mut u8,
    key: *const u8,
    length: usize,
    counter: *const u8,
) -> usize {
    if block.is_null() || key.is_null() || counter.is_null() || !(4..=56).contains(&length) {
        return 0;
    }
    // SAFETY: not NULL, so valid for this many bytes by the caller's promise; bytes have no alignment.
    let (key, counter) = unsafe { (std::slice::from_raw_parts(key, length), &*counter.cast::<[u8; 8]>()) };
    let parameters = Zeroizing::new(dcs_ndp::parameter::blowfish_ctr(key, counter));
    if parameters.len() > DCS_BLOWFISH_CTR_PARAMETERS {
        return 0;
    }
    // SAFETY: not NULL, so valid for the most bytes there are; a vector of its own does not overlap.
    unsafe { block.copy_from_nonoverlapping(parameters.as_ptr(), parameters.len()) };
    parameters.len()
}

/// Fills in the first of the DCS_KNN_PARAMETERS bytes at `block` from the number of neighbours (1 to 65536), the type
/// of elements (DCS_KNN_U8, DCS_KNN_F32) and the `length` bytes of the vector whose neighbours are wanted, and returns how
/// many they are; 0 where a pointer is NULL or the parameters would be refused.
///
/// # Safety
///
/// The pointers are NULL or valid: `block` for DCS_KNN_PARAMETERS bytes, `query` for `length`; they do not overlap.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dcs_parameter_knn(
    block: *mut u8,
    k: u32,
    element: u8,
    query: *const u8,
    length: usize,
) -> usize {
    let element = match element {
        DCS_KNN_U8 => Element::U8,
        DCS_KNN_F32 => Element::F32,
        _ => return 0,
    };
    if block.is_null() || query.is_null() || length > DCS_KNN_PARAMETERS {
        return 0;
    }
    // SAFETY: not NULL, so valid for this many bytes by the caller's promise.
    let query = unsafe { std::slice::from_raw_parts(query, length) }.to_vec();
    let knn = Knn { element, k, query };
    if knn.check().is_err() {
        return 0;
    }
    let parameters = knn.block();
    // SAFETY: not NULL, so valid for the most bytes that are not refused; a vector of its own does not overlap.
    unsafe { block.copy_from_nonoverlapping(parameters.as_ptr(), parameters.len()) };
    parameters.len()
}

/// Fills in the DCS_BITMAP_PARAMETERS bytes at `block` from an operation (DCS_BITMAP_*) and a flag: 1 where not the bits
/// of the result are wanted but their number, else 0. Returns how many they are; 0 where the pointer is NULL or a value is
/// none of these.
///
/// # Safety
///
/// The pointer is NULL or valid for that many bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dcs_parameter_bitmap(block: *mut u8, operation: u8, count: u8) -> usize {
    let known = [DCS_BITMAP_ONE, DCS_BITMAP_AND, DCS_BITMAP_OR].contains(&operation);
    if block.is_null() || !known || count > 1 {
        return 0;
    }
    // SAFETY: not NULL, so valid by the caller's promise.
    unsafe { block.cast::<[u8; DCS_BITMAP_PARAMETERS]>().write([operation, count]) };
    DCS_BITMAP_PARAMETERS
}

/// Fills in the first of the DCS_AWS_CHUNKED_PARAMETERS bytes at `block`, and returns how many they are; 0
/// where a pointer is NULL that must not be, or where a member has a value that it cannot have.
///
/// # Safety
///
/// The pointers are NULL or valid: `block` for DCS_AWS_CHUNKED_PARAMETERS bytes, those in `request` as their
/// members say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dcs_parameter_aws_chunked(block: *mut u8, request: *const dcs_aws_chunked) -> usize {
    if block.is_null() || request.is_null() {
        return 0;
    }
    // SAFETY: not NULL, so valid by the caller's promise.
    let Some(parameters) = (unsafe { aws_chunked(&*request) }) else { return 0 };
    let parameters = Zeroizing::new(parameters.block());
    // Refuses here what the operator would refuse; what it takes is no longer than the block.
    let refused = dcs_ndp::Context::new(Operator::AwsChunked, &parameters).is_err();
    if refused || parameters.len() > DCS_AWS_CHUNKED_PARAMETERS {
        return 0;
    }
    // SAFETY: as above; a vector of its own does not overlap.
    unsafe { block.copy_from_nonoverlapping(parameters.as_ptr(), parameters.len()) };
    parameters.len()
}

/// # Safety
///
/// The pointers are NULL or valid as their members say.
unsafe fn aws_chunked(request: &dcs_aws_chunked) -> Option<AwsChunked> {
    let signature = match request.key.is_null() {
        true => None,
        // SAFETY: the caller's promise.
        false => Some(unsafe { aws_signature(request) }?),
    };
    let checksum = match request.checksum {
        0 => None,
        number => Some(Operator::from_number(number)?),
    };
    let trailers = match request.trailers {
        0 => false,
        1 => true,
        _ => return None,
    };
    let reserved_is_zero = request.reserved == [0; 6];
    let decoded_length = request.decoded_length;
    reserved_is_zero.then_some(AwsChunked { decoded_length, trailers, checksum, signature })
}

/// # Safety
///
/// As for `aws_chunked`, and the key is not NULL.
unsafe fn aws_signature(request: &dcs_aws_chunked) -> Option<AwsSignature> {
    if request.seed.is_null() || request.timestamp.is_null() || request.scope.is_null() {
        return None;
    }
    // SAFETY: not NULL, so strings and 32 bytes each, by the caller's promise.
    unsafe {
        let timestamp = CStr::from_ptr(request.timestamp).to_bytes().try_into().ok()?;
        let scope = CStr::from_ptr(request.scope).to_str().ok()?.to_string();
        let (key, seed) = (*request.key.cast::<[u8; 32]>(), *request.seed.cast::<[u8; 32]>());
        Some(AwsSignature { key, seed, timestamp, scope })
    }
}
