//! Parameter blocks, in the layout of [`dcs_abi::operator::OperatorInfo::parameter_doc`].

use dcs_abi::operator::Operator;

use crate::grep::{self, PatternError};
use crate::knn;
use crate::resize::Resize;
use crate::table::{self, ExpressionError};
use crate::{DigestValue, OperatorError};

/// Returns the parameters of `aes256-ctr`: key, then the initial counter block.
pub fn aes256_ctr(key: &[u8; 32], counter: &[u8; 16]) -> [u8; 48] {
    let mut block = [0; 48];
    block[..32].copy_from_slice(key);
    block[32..].copy_from_slice(counter);
    block
}

/// Returns the parameters of `aes256-xts` and `aes256-xts-decrypt`: data key and tweak key, bytes in a data unit,
/// number of the first unit.
pub fn aes256_xts(key: &[u8; 64], unit_size: u32, first_unit: u64) -> [u8; 80] {
    let mut block = [0; 80];
    block[..64].copy_from_slice(key);
    block[64..68].copy_from_slice(&unit_size.to_le_bytes());
    block[72..].copy_from_slice(&first_unit.to_le_bytes());
    block
}

/// Returns the parameters of `blowfish-ctr`: the initial counter block, then the key, which has 4 to 56 bytes.
pub fn blowfish_ctr(key: &[u8], counter: &[u8; 8]) -> Vec<u8> {
    [counter, key].concat()
}

/// Returns the parameter of `gzip` and `zstd`.
pub fn level(level: u8) -> [u8; 1] {
    [level]
}

/// Returns the parameters of `slice`: bytes to drop, then bytes to pass.
pub fn slice(skip: u64, take: u64) -> [u8; 16] {
    let mut block = [0; 16];
    block[..8].copy_from_slice(&skip.to_le_bytes());
    block[8..].copy_from_slice(&take.to_le_bytes());
    block
}

/// Parameters of `aws-chunked`, from the headers of an S3 request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AwsChunked {
    /// Bytes of the data without their framing (`x-amz-decoded-content-length`).
    pub decoded_length: u64,
    /// True if trailers follow the last chunk (`x-amz-content-sha256` ends in `-TRAILER`).
    pub trailers: bool,
    /// Checksum that a trailer carries (`x-amz-trailer`): `Crc32`, `Crc32c`, `Crc64Nvme`, `Sha1` or `Sha256`.
    pub checksum: Option<Operator>,
    /// Key of the chunks' signatures; `None` if they are not signed.
    pub signature: Option<AwsSignature>,
}

/// Key and scope of the signatures of `aws-chunked` (AWS Signature Version 4).
#[derive(Clone, PartialEq, Eq)]
pub struct AwsSignature {
    /// Signing key, derived from the secret key for day, region and service.
    pub key: [u8; 32],
    /// Signature of the request's headers.
    pub seed: [u8; 32],
    /// Time of the request, `YYYYMMDDTHHMMSSZ` (`x-amz-date`).
    pub timestamp: [u8; 16],
    /// Credential scope, `YYYYMMDD/region/s3/aws4_request`: 1 to 128 bytes.
    pub scope: String,
}

/// Leaves the key out.
impl std::fmt::Debug for AwsSignature {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AwsSignature({})", self.scope)
    }
}

impl Drop for AwsSignature {
    fn drop(&mut self) {
        self.key.fill(0);
        // Keeps the compiler from removing the fill.
        std::hint::black_box(&self.key);
    }
}

const AWS_SIGNED: u8 = 1;
const AWS_TRAILERS: u8 = 2;
/// Bytes of the longest scope.
const AWS_SCOPE_MAX: usize = 128;

impl AwsChunked {
    /// Returns the parameter block.
    pub fn block(&self) -> Vec<u8> {
        let signed = if self.signature.is_some() { AWS_SIGNED } else { 0 };
        let trailers = if self.trailers { AWS_TRAILERS } else { 0 };
        let checksum = self.checksum.map_or(0, |operator| operator as u8);
        let mut block = vec![signed | trailers, checksum, 0, 0, 0, 0, 0, 0];
        block.extend(self.decoded_length.to_le_bytes());
        if let Some(signature) = &self.signature {
            block.extend(signature.key);
            block.extend(signature.seed);
            block.extend(signature.timestamp);
            block.extend(signature.scope.as_bytes());
        }
        block
    }
}

/// Parameters of `grep`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grep {
    /// Regular expression on bytes, 1 to 1,016 of them (`docs/operators.md`).
    pub pattern: String,
    /// True to match ASCII letters in either case.
    pub ignore_case: bool,
    /// True for the lines that do not match.
    pub invert: bool,
    /// True for the number of lines instead, in decimal digits and a line feed.
    pub count: bool,
}

const GREP_IGNORE_CASE: u8 = 1;
const GREP_INVERT: u8 = 2;
const GREP_COUNT: u8 = 4;

impl Grep {
    /// Returns the parameter block.
    pub fn block(&self) -> Vec<u8> {
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        let flags = flag(self.ignore_case, GREP_IGNORE_CASE)
            | flag(self.invert, GREP_INVERT)
            | flag(self.count, GREP_COUNT);
        let mut block = vec![flags, 0, 0, 0, 0, 0, 0, 0];
        block.extend(self.pattern.as_bytes());
        block
    }

    /// Checks the pattern: the operator refuses a wrong one as a bad parameter, without the reason.
    ///
    /// # Errors
    ///
    /// Returns the reason why it would be refused.
    pub fn check(&self) -> Result<(), PatternError> {
        grep::check(&self.pattern, self.ignore_case)
    }
}

pub(crate) fn parse_grep(block: &[u8]) -> Result<Grep, OperatorError> {
    let bad = OperatorError::BadParameter;
    let (&[flags, ref reserved @ ..], pattern) =
        block.split_first_chunk::<{ grep::PARAMETER_HEAD }>().ok_or(bad)?;
    let known = GREP_IGNORE_CASE | GREP_INVERT | GREP_COUNT;
    if flags & !known != 0 || reserved.iter().any(|byte| *byte != 0) || block.len() > grep::PARAMETER_MAX {
        return Err(bad);
    }
    Ok(Grep {
        pattern: String::from_utf8(pattern.to_vec()).map_err(|_| bad)?,
        ignore_case: flags & GREP_IGNORE_CASE != 0,
        invert: flags & GREP_INVERT != 0,
        count: flags & GREP_COUNT != 0,
    })
}

/// Type of the elements in the vectors of `knn`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Element {
    /// Unsigned bytes.
    U8 = 0,
    /// Floating-point numbers of single precision, little-endian.
    F32 = 1,
}

impl Element {
    /// Returns the bytes of an element.
    pub fn size(self) -> usize {
        match self {
            Element::U8 => 1,
            Element::F32 => 4,
        }
    }

    /// Finds a type by name: `u8`, `f32`.
    pub fn from_name(name: &str) -> Option<Element> {
        match name {
            "u8" => Some(Element::U8),
            "f32" => Some(Element::F32),
            _ => None,
        }
    }
}

/// Parameters of `knn`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Knn {
    /// Type of the elements of the query and of the data's rows.
    pub element: Element,
    /// Number of wanted rows, 1 to 65,536.
    pub k: u32,
    /// Vector whose neighbours are wanted, in the form of the data's rows: 1 to 2,048 bytes of whole elements.
    /// Floating-point elements must be finite numbers.
    pub query: Vec<u8>,
}

/// Most neighbours, and most bytes of a query.
const KNN_MAX: u32 = 65_536;
const QUERY_MAX: usize = 2048;

impl Knn {
    /// Returns the parameter block.
    pub fn block(&self) -> Vec<u8> {
        let mut block = vec![self.element as u8, 0, 0, 0];
        block.extend(self.k.to_le_bytes());
        block.extend(&self.query);
        block
    }

    /// Checks the parameters: the operator refuses wrong ones without the reason.
    ///
    /// # Errors
    ///
    /// Returns the reason why they would be refused.
    pub fn check(&self) -> Result<(), KnnError> {
        if !(1..=KNN_MAX).contains(&self.k) {
            return Err(KnnError::Count);
        }
        let whole = self.query.len().is_multiple_of(self.element.size());
        if !whole || !(1..=QUERY_MAX).contains(&self.query.len()) {
            return Err(KnnError::Length);
        }
        match self.element {
            Element::F32 if !knn::floats(&self.query).all(f32::is_finite) => Err(KnnError::Number),
            _ => Ok(()),
        }
    }
}

/// Reason why the parameters of `knn` are refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KnnError {
    /// There are no neighbours, or too many.
    #[error("k must be 1 to {KNN_MAX}")]
    Count,
    /// The query is empty, too long, or ends inside an element.
    #[error("a query must have 1 to {QUERY_MAX} bytes, of whole elements")]
    Length,
    /// An element is infinite or not a number.
    #[error("the elements of a query must be finite numbers")]
    Number,
}

pub(crate) fn parse_knn(block: &[u8]) -> Result<Knn, OperatorError> {
    let bad = OperatorError::BadParameter;
    let (&[element, ref reserved @ ..], rest) = block.split_first_chunk::<4>().ok_or(bad)?;
    let (k, query) = rest.split_first_chunk().ok_or(bad)?;
    let element = match element {
        0 => Element::U8,
        1 => Element::F32,
        _ => return Err(bad),
    };
    let knn = Knn { element, k: u32::from_le_bytes(*k), query: query.to_vec() };
    if reserved.iter().any(|byte| *byte != 0) || knn.check().is_err() { Err(bad) } else { Ok(knn) }
}

/// Parameters of `bitmap`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bitmap {
    /// Operation on the bitmaps of the data.
    pub operation: BitmapOperation,
    /// True for the number of set bits in the result instead, in decimal digits and a line feed.
    pub count: bool,
}

/// Operation of `bitmap`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum BitmapOperation {
    /// Decompress the only bitmap.
    #[default]
    One = 0,
    /// Bits that are set in all bitmaps.
    And = 1,
    /// Bits that are set in any bitmap.
    Or = 2,
}

impl Bitmap {
    /// Returns the parameter block.
    pub fn block(&self) -> Vec<u8> {
        vec![self.operation as u8, u8::from(self.count)]
    }
}

pub(crate) fn parse_bitmap(block: &[u8]) -> Result<Bitmap, OperatorError> {
    let (operation, count) = match block {
        [] => return Ok(Bitmap::default()),
        [operation, count @ 0..=1] => (operation, *count == 1),
        _ => return Err(OperatorError::BadParameter),
    };
    let operation = match operation {
        0 => BitmapOperation::One,
        1 => BitmapOperation::And,
        2 => BitmapOperation::Or,
        _ => return Err(OperatorError::BadParameter),
    };
    Ok(Bitmap { operation, count })
}

/// Checks the expression of `filter`, which is its parameter block: the operator refuses a wrong one as a bad
/// parameter, without the reason.
///
/// # Errors
///
/// Returns the reason why it would be refused.
pub fn check_filter(expression: &str) -> Result<(), ExpressionError> {
    table::filter(expression).map(|_| ())
}

/// Checks the expression of `aggregate` in the same way.
///
/// # Errors
///
/// Returns the reason why it would be refused.
pub fn check_aggregate(expression: &str) -> Result<(), ExpressionError> {
    table::aggregate(expression).map(|_| ())
}

pub(crate) fn parse_filter(block: &[u8]) -> Result<Resize, OperatorError> {
    let expression = std::str::from_utf8(block).map_err(|_| OperatorError::BadParameter)?;
    table::filter(expression).map_err(|_| OperatorError::BadParameter)
}

pub(crate) fn parse_aggregate(block: &[u8]) -> Result<Resize, OperatorError> {
    let expression = std::str::from_utf8(block).map_err(|_| OperatorError::BadParameter)?;
    table::aggregate(expression).map_err(|_| OperatorError::BadParameter)
}

pub(crate) fn parse_slice(block: &[u8]) -> Result<(u64, u64), OperatorError> {
    let block: &[u8; 16] = block.try_into().map_err(|_| OperatorError::BadParameter)?;
    let [skip, take] = [0, 8].map(|at| block[at..at + 8].try_into().map_or(0, u64::from_le_bytes));
    skip.checked_add(take).map(|_| (skip, take)).ok_or(OperatorError::BadParameter)
}

/// Parses the expected value of a digest, if there is one. It must be as long as the digest.
pub(crate) fn parse_expected(operator: Operator, block: &[u8]) -> Result<Option<DigestValue>, OperatorError> {
    match block.len() {
        0 => Ok(None),
        size if size == operator.digest_size() => Ok(Some(DigestValue::new(block))),
        _ => Err(OperatorError::BadParameter),
    }
}

/// Returns the name of the trailer with that operator's checksum; `None` if there is no such trailer.
pub(crate) fn trailer_of(operator: Operator) -> Option<&'static [u8]> {
    Some(match operator {
        Operator::Crc32 => b"x-amz-checksum-crc32",
        Operator::Crc32c => b"x-amz-checksum-crc32c",
        Operator::Crc64Nvme => b"x-amz-checksum-crc64nvme",
        Operator::Sha1 => b"x-amz-checksum-sha1",
        Operator::Sha256 => b"x-amz-checksum-sha256",
        _ => return None,
    })
}

pub(crate) fn parse_aws_chunked(block: &[u8]) -> Result<AwsChunked, OperatorError> {
    let bad = OperatorError::BadParameter;
    let (&[flags, checksum], rest) = block.split_first_chunk().ok_or(bad)?;
    let (reserved, rest) = rest.split_first_chunk::<6>().ok_or(bad)?;
    let (decoded_length, rest) = rest.split_first_chunk::<8>().ok_or(bad)?;
    let trailers = flags & AWS_TRAILERS != 0;
    let announced = Operator::from_number(checksum).filter(|operator| trailer_of(*operator).is_some());
    let checksum_allowed = checksum == 0 || announced.is_some() && trailers;
    if flags & !(AWS_SIGNED | AWS_TRAILERS) != 0 || *reserved != [0; 6] || !checksum_allowed {
        return Err(bad);
    }
    let signature = match (flags & AWS_SIGNED != 0, rest) {
        (true, rest) => Some(parse_aws_signature(rest)?),
        (false, []) => None,
        (false, _) => return Err(bad),
    };
    let decoded_length = u64::from_le_bytes(*decoded_length);
    Ok(AwsChunked { decoded_length, trailers, checksum: announced, signature })
}

fn parse_aws_signature(block: &[u8]) -> Result<AwsSignature, OperatorError> {
    let bad = OperatorError::BadParameter;
    let (key, rest) = block.split_first_chunk().ok_or(bad)?;
    let (seed, rest) = rest.split_first_chunk().ok_or(bad)?;
    let (timestamp, scope) = rest.split_first_chunk().ok_or(bad)?;
    // They are lines of the signed string: an end of line in them would change its meaning.
    let printable = |text: &[u8]| text.iter().all(u8::is_ascii_graphic);
    if !printable(timestamp) || !printable(scope) || !(1..=AWS_SCOPE_MAX).contains(&scope.len()) {
        return Err(bad);
    }
    let scope = String::from_utf8(scope.to_vec()).map_err(|_| bad)?;
    Ok(AwsSignature { key: *key, seed: *seed, timestamp: *timestamp, scope })
}

/// Parameters of XTS, checked.
pub(crate) struct Xts<'a> {
    pub(crate) data_key: &'a [u8; 32],
    pub(crate) tweak_key: &'a [u8; 32],
    pub(crate) unit_size: usize,
    pub(crate) first_unit: u64,
}

pub(crate) fn parse_ctr(block: &[u8]) -> Result<(&[u8; 32], &[u8; 16]), OperatorError> {
    let block: &[u8; 48] = block.try_into().map_err(|_| OperatorError::BadParameter)?;
    let (key, counter) = block.split_first_chunk().ok_or(OperatorError::BadParameter)?;
    Ok((key, counter.try_into().map_err(|_| OperatorError::BadParameter)?))
}

/// Parses key and counter.
pub(crate) fn parse_blowfish(block: &[u8]) -> Result<(&[u8], &[u8; 8]), OperatorError> {
    let (counter, key) = block.split_first_chunk().ok_or(OperatorError::BadParameter)?;
    if (4..=56).contains(&key.len()) { Ok((key, counter)) } else { Err(OperatorError::BadParameter) }
}

pub(crate) fn parse_xts(block: &[u8]) -> Result<Xts<'_>, OperatorError> {
    let bad = OperatorError::BadParameter;
    let (data_key, rest) = block.split_first_chunk::<32>().ok_or(bad)?;
    let (tweak_key, rest) = rest.split_first_chunk::<32>().ok_or(bad)?;
    let (unit_size, rest) = rest.split_first_chunk::<4>().ok_or(bad)?;
    let (reserved, rest) = rest.split_first_chunk::<4>().ok_or(bad)?;
    let first_unit = rest.try_into().map_err(|_| bad)?;
    let unit_size = u32::from_le_bytes(*unit_size);
    let unit_allowed = (16..=65536).contains(&unit_size) && unit_size.is_power_of_two();
    // Equal halves make the tweak predictable: FIPS 140 (implementation guidance C.I) requires refusing them.
    if !unit_allowed || *reserved != [0; 4] || data_key == tweak_key {
        return Err(bad);
    }
    Ok(Xts { data_key, tweak_key, unit_size: unit_size as usize, first_unit: u64::from_le_bytes(first_unit) })
}

/// Parses a level in `allowed`; `default` if the block is empty.
pub(crate) fn parse_level(
    block: &[u8],
    default: u8,
    allowed: core::ops::RangeInclusive<u8>,
) -> Result<u8, OperatorError> {
    match block {
        [] => Ok(default),
        [level] if allowed.contains(level) => Ok(*level),
        _ => Err(OperatorError::BadParameter),
    }
}

pub(crate) fn parse_none(block: &[u8]) -> Result<(), OperatorError> {
    if block.is_empty() { Ok(()) } else { Err(OperatorError::BadParameter) }
}
