//! Operators, and the functions that make them.

use dcs::op::{Bitmap, BitmapOperation, Element, Knn};
use dcs::{AwsChunked, AwsSignature, Grep, Operator};
use dcs_abi::CHAIN_MAX;
use dcs_abi::operator::OPERATORS;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyInt, PyString};

/// One operator in a chain, with its parameters. Keys are never shown.
#[pyclass(frozen, module = "dcs", name = "Op")]
pub struct Op {
    op: dcs::Op,
    operator: Operator,
    name: &'static str,
}

#[pymethods]
impl Op {
    /// Name of the operator, as in docs/operators.md.
    #[getter]
    fn name(&self) -> &'static str {
        self.name
    }

    /// The same operator, done by the engine's GPU (`Engine(gpu=...)`). GPUs do md5, sha256, crc32, crc32c and
    /// aes256_ctr; others raise ValueError.
    fn on_gpu(&self) -> PyResult<Op> {
        gpu(self.op.clone())
    }

    fn __repr__(&self) -> String {
        format!("<dcs.Op: {}>", self.name)
    }
}

impl Op {
    fn new(op: dcs::Op) -> PyResult<Op> {
        let operator = Operator::from_chain(op.number()).zip(Operator::chain_name(op.number()));
        // Every operator that this crate makes is in the table.
        let ((operator, _), name) = operator.ok_or_else(|| PyValueError::new_err("no such operator"))?;
        Ok(Op { op, operator, name })
    }
}

/// Makes an operator that a GPU does.
fn gpu(op: dcs::Op) -> PyResult<Op> {
    let name = Operator::chain_name(op.number()).unwrap_or("operator");
    Op::new(op.on_gpu()).map_err(|_| {
        let names: Vec<_> = OPERATORS.iter().filter_map(|info| info.gpu).collect();
        PyValueError::new_err(format!("no GPU does {name}; GPUs do: {}", names.join(", ")))
    })
}

/// Makes an operator from its name alone.
fn named(name: &str) -> PyResult<dcs::Op> {
    if let Some(name) = name.strip_prefix("gpu:") {
        return gpu(named(name)?).map(|op| op.op);
    }
    let operator = Operator::from_name(name).ok_or_else(|| {
        let names: Vec<_> = OPERATORS.iter().map(|info| info.name).collect();
        PyValueError::new_err(format!("there is no operator {name:?}; expected one of: {}", names.join(", ")))
    })?;
    Ok(match operator {
        Operator::Md5 => dcs::Op::Md5,
        Operator::Sha1 => dcs::Op::Sha1,
        Operator::Sha256 => dcs::Op::Sha256,
        Operator::Sha512 => dcs::Op::Sha512,
        Operator::Crc32 => dcs::Op::Crc32,
        Operator::Crc32c => dcs::Op::Crc32c,
        Operator::Crc64Nvme => dcs::Op::Crc64Nvme,
        Operator::Gzip => dcs::Op::Gzip { level: 1 },
        Operator::Gunzip => dcs::Op::Gunzip,
        Operator::Zstd => dcs::Op::Zstd { level: 3 },
        Operator::Unzstd => dcs::Op::Unzstd,
        Operator::Bitmap => dcs::Op::Bitmap(Bitmap::default()),
        other => {
            let function = other.name().replace('-', "_");
            let line = format!("{name} needs parameters: use dcs.{function}(...) in place of its name");
            return Err(PyValueError::new_err(line));
        }
    })
}

/// Parses `through`: one operator, or several.
pub fn chain(through: Option<&Bound<'_, PyAny>>) -> PyResult<Vec<dcs::Op>> {
    let Some(through) = through else { return Ok(Vec::new()) };
    if let Some(op) = single(through)? {
        return Ok(vec![op]);
    }
    let wrong = |what: &Bound<'_, PyAny>| {
        let name = what.get_type().name().map_or_else(|_| "something else".into(), |name| name.to_string());
        PyTypeError::new_err(format!(
            "through must be a list of operators' names and dcs.Op objects, not {name}"
        ))
    };
    let mut chain = Vec::new();
    for item in through.try_iter().map_err(|_| wrong(through))? {
        let item = item?;
        chain.push(single(&item)?.ok_or_else(|| wrong(&item))?);
        if chain.len() > CHAIN_MAX {
            return Err(PyValueError::new_err(format!("a chain may have at most {CHAIN_MAX} operators")));
        }
    }
    Ok(chain)
}

fn single(item: &Bound<'_, PyAny>) -> PyResult<Option<dcs::Op>> {
    if let Ok(name) = item.cast::<PyString>() {
        return named(&name.to_string_lossy()).map(Some);
    }
    Ok(item.cast::<Op>().ok().map(|op| op.get().op.clone()))
}

/// Copies exactly this many bytes.
fn exactly<const N: usize>(value: &Bound<'_, PyAny>, what: &str) -> PyResult<[u8; N]> {
    let bytes = bytes_of(value, what)?;
    bytes
        .as_slice()
        .try_into()
        .map_err(|_| PyValueError::new_err(format!("{what} has {N} bytes, not {}", bytes.len())))
}

fn bytes_of(value: &Bound<'_, PyAny>, what: &str) -> PyResult<Vec<u8>> {
    if let Ok(bytes) = value.cast::<PyBytes>() {
        return Ok(bytes.as_bytes().to_vec());
    }
    crate::ends::copied(value).map_err(|_| PyTypeError::new_err(format!("{what} must be bytes-like")))
}

fn digest(plain: dcs::Op, expect: Option<&Bound<'_, PyAny>>) -> PyResult<Op> {
    let op = Op::new(plain)?;
    let Some(expect) = expect else { return Ok(op) };
    let (size, name) = (op.operator.digest_size(), op.operator.name());
    let value = if let Ok(text) = expect.cast::<PyString>() {
        from_hex(&text.to_string_lossy())
            .ok_or_else(|| PyValueError::new_err("expect has characters that are not hexadecimal digits"))?
    } else if expect.is_instance_of::<PyInt>() {
        integer(expect, size)?
    } else {
        let what = "expect is bytes, hexadecimal digits, or (of a CRC) a number: it";
        bytes_of(expect, what)?
    };
    if value.len() != size {
        let line = format!("{name} has {size} bytes; expect has {}", value.len());
        return Err(PyValueError::new_err(line));
    }
    Op::new(dcs::Op::Expect { digest: op.operator, value })
}

/// Converts a CRC as zlib.crc32 returns it.
fn integer(value: &Bound<'_, PyAny>, size: usize) -> PyResult<Vec<u8>> {
    if size > 8 {
        return Err(PyTypeError::new_err("expect is bytes or hexadecimal digits: only CRCs are numbers"));
    }
    let number: u64 = value.extract()?;
    let bytes = number.to_be_bytes();
    let (rest, last) = bytes.split_at(8 - size);
    if rest.iter().any(|byte| *byte != 0) {
        return Err(PyValueError::new_err(format!("expect is larger than {size} bytes")));
    }
    Ok(last.to_vec())
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits = text.trim().as_bytes();
    let pairs = digits.chunks(2).map(|pair| match pair {
        [high, low] => {
            let (high, low) = ((*high as char).to_digit(16)?, (*low as char).to_digit(16)?);
            Some((high * 16 + low) as u8)
        }
        _ => None,
    });
    pairs.collect()
}

macro_rules! digests {
    ($($(#[$doc:meta])* $function:ident $operator:ident;)*) => {$(
        $(#[$doc])*
        ///
        /// `expect`: expected value, as bytes or hexadecimal digits (a CRC also as a number). If it differs, the
        /// transfer fails with DIGEST_MISMATCH, and the last of the data are not delivered.
        #[pyfunction]
        #[pyo3(signature = (expect=None))]
        pub fn $function(expect: Option<&Bound<'_, PyAny>>) -> PyResult<Op> {
            digest(dcs::Op::$operator, expect)
        }
    )*};
}

digests! {
    /// MD5 (RFC 1321) of the data that pass: 16 bytes.
    md5 Md5;
    /// SHA-1 (FIPS 180-4) of the data that pass: 20 bytes.
    sha1 Sha1;
    /// SHA-256 (FIPS 180-4) of the data that pass: 32 bytes.
    sha256 Sha256;
    /// SHA-512 (FIPS 180-4) of the data that pass: 64 bytes.
    sha512 Sha512;
    /// CRC-32 of the data that pass, as zlib.crc32: 4 bytes, most significant first.
    crc32 Crc32;
    /// CRC-32C (RFC 3720) of the data that pass: 4 bytes, most significant first.
    crc32c Crc32c;
    /// CRC-64/NVME of the data that pass: 8 bytes, most significant first.
    crc64_nvme Crc64Nvme;
}

/// AES-256 in counter mode; encryption and decryption are the same.
///
/// `key`: 32 bytes. `iv`: the first counter block, 16 bytes, big-endian; never use one twice with a key.
#[pyfunction]
pub fn aes256_ctr(key: &Bound<'_, PyAny>, iv: &Bound<'_, PyAny>) -> PyResult<Op> {
    Op::new(dcs::Op::Aes256Ctr { key: exactly(key, "key")?, counter: exactly(iv, "iv")? })
}

/// Blowfish in counter mode; encryption and decryption are the same. Use `aes256_ctr` for new data.
///
/// `key`: 4 to 56 bytes. `iv`: the first counter block, 8 bytes, big-endian; never use one twice with a key.
#[pyfunction]
pub fn blowfish_ctr(key: &Bound<'_, PyAny>, iv: &Bound<'_, PyAny>) -> PyResult<Op> {
    let key = bytes_of(key, "key")?;
    if !(4..=56).contains(&key.len()) {
        return Err(PyValueError::new_err(format!("key must have 4 to 56 bytes, not {}", key.len())));
    }
    Op::new(dcs::Op::BlowfishCtr { key, counter: exactly(iv, "iv")? })
}

fn xts(key: &Bound<'_, PyAny>, unit_size: u32) -> PyResult<[u8; 64]> {
    let key: [u8; 64] = exactly(key, "key")?;
    if !(16..=65536).contains(&unit_size) || !unit_size.is_power_of_two() {
        return Err(PyValueError::new_err("unit_size must be a power of two from 16 to 65536"));
    }
    if key[..32] == key[32..] {
        return Err(PyValueError::new_err("the halves of an XTS key must differ"));
    }
    Ok(key)
}

/// AES-256 in XTS mode (IEEE 1619), encryption.
///
/// `key`: 64 bytes, data key then tweak key. `unit_size`: bytes of a data unit, 16 to 65536, a power of two.
/// `first_unit`: number of the first data unit.
#[pyfunction]
#[pyo3(signature = (key, unit_size=4096, first_unit=0))]
pub fn aes256_xts(key: &Bound<'_, PyAny>, unit_size: u32, first_unit: u64) -> PyResult<Op> {
    Op::new(dcs::Op::Aes256Xts { key: xts(key, unit_size)?, unit_size, first_unit })
}

/// AES-256 in XTS mode (IEEE 1619), decryption; parameters as for `aes256_xts`.
#[pyfunction]
#[pyo3(signature = (key, unit_size=4096, first_unit=0))]
pub fn aes256_xts_decrypt(key: &Bound<'_, PyAny>, unit_size: u32, first_unit: u64) -> PyResult<Op> {
    Op::new(dcs::Op::Aes256XtsDecrypt { key: xts(key, unit_size)?, unit_size, first_unit })
}

fn level(level: i64, allowed: std::ops::RangeInclusive<i64>) -> PyResult<u8> {
    let wrong = || format!("level is {} to {}, not {level}", allowed.start(), allowed.end());
    u8::try_from(level)
        .ok()
        .filter(|_| allowed.contains(&level))
        .ok_or_else(|| PyValueError::new_err(wrong()))
}

/// gzip compression (RFC 1952), `level` 0 to 9.
#[pyfunction]
#[pyo3(signature = (level=1), text_signature = "(level=1)")]
pub fn gzip(level: i64) -> PyResult<Op> {
    Op::new(dcs::Op::Gzip { level: self::level(level, 0..=9)? })
}

/// gzip decompression; several members in a row are one stream.
#[pyfunction]
pub fn gunzip() -> PyResult<Op> {
    Op::new(dcs::Op::Gunzip)
}

/// Zstandard compression (RFC 8878), `level` 1 to 19.
#[pyfunction]
#[pyo3(signature = (level=3), text_signature = "(level=3)")]
pub fn zstd(level: i64) -> PyResult<Op> {
    Op::new(dcs::Op::Zstd { level: self::level(level, 1..=19)? })
}

/// Zstandard decompression; several frames in a row are one stream.
#[pyfunction]
pub fn unzstd() -> PyResult<Op> {
    Op::new(dcs::Op::Unzstd)
}

/// A range of the data: drops `skip` bytes, passes `take`, drops the rest. Data that end before the range does are an
/// error.
#[pyfunction]
pub fn slice(skip: i64, take: i64) -> PyResult<Op> {
    let negative = |_| PyValueError::new_err("skip and take must not be negative");
    let (skip, take) = (u64::try_from(skip).map_err(negative)?, u64::try_from(take).map_err(negative)?);
    Op::new(dcs::Op::Slice { skip, take })
}

/// Lines that match a regular expression on bytes (syntax: docs/operators.md), or with `count` their number.
///
/// `ignore_case`: ASCII letters match in either case. `invert`: lines that do not match. A wrong pattern raises
/// ValueError with the reason. A line of more than a MiB fails the transfer with CORRUPT_DATA.
#[pyfunction]
#[pyo3(signature = (pattern, *, ignore_case=false, invert=false, count=false))]
pub fn grep(pattern: String, ignore_case: bool, invert: bool, count: bool) -> PyResult<Op> {
    let grep = Grep { pattern, ignore_case, invert, count };
    grep.check().map_err(|error| PyValueError::new_err(format!("pattern: {error}")))?;
    Op::new(dcs::Op::Grep(grep))
}

/// Rows of comma-separated values (RFC 4180) whose field compares with a constant as in `price>100`, or binary rows of
/// a fixed width, as in `-w16:u32@8>100` (syntax: docs/operators.md). A wrong expression raises ValueError with the
/// reason.
#[pyfunction]
pub fn filter(expression: String) -> PyResult<Op> {
    dcs::op::check_filter(&expression).map_err(|error| PyValueError::new_err(error.to_string()))?;
    Op::new(dcs::Op::Filter(expression))
}

/// Count, sum, minimum, maximum and mean of columns of such rows: `sum(price)`, `-w16:sum(u32@8)` (syntax:
/// docs/operators.md). A wrong expression raises ValueError with the reason.
#[pyfunction]
pub fn aggregate(expression: String) -> PyResult<Op> {
    dcs::op::check_aggregate(&expression).map_err(|error| PyValueError::new_err(error.to_string()))?;
    Op::new(dcs::Op::Aggregate(expression))
}

/// The `k` rows nearest to a vector by squared Euclidean distance: lines of index and distance, the nearest first.
///
/// `query`: the vector as in a row, in anything bytes-like: a numpy array, an array.array, bytes. `element`: "u8" or
/// "f32" (little-endian). Rows have as many elements as the query.
#[pyfunction]
pub fn knn(k: u32, element: &str, query: &Bound<'_, PyAny>) -> PyResult<Op> {
    let element = Element::from_name(element)
        .ok_or_else(|| PyValueError::new_err(format!("element must be u8 or f32, not {element:?}")))?;
    let knn = Knn { element, k, query: bytes_of(query, "query")? };
    knn.check().map_err(|error| PyValueError::new_err(error.to_string()))?;
    Op::new(dcs::Op::Knn(knn))
}

/// Roaring bitmaps: the bits of the only one, or with `operation` "and" or "or" those that are set in all or any of
/// them.
///
/// `count`: return the number of set bits in the result, not the bits.
#[pyfunction]
#[pyo3(signature = (operation=None, *, count=false))]
pub fn bitmap(operation: Option<&str>, count: bool) -> PyResult<Op> {
    let operation = match operation {
        None => BitmapOperation::One,
        Some("and") => BitmapOperation::And,
        Some("or") => BitmapOperation::Or,
        Some(other) => {
            return Err(PyValueError::new_err(format!("operation must be and or or, not {other:?}")));
        }
    };
    Op::new(dcs::Op::Bitmap(Bitmap { operation, count }))
}

/// An operator of your own: a WebAssembly module (docs/wasm.md), which is loaded if it is not yet.
///
/// `module`: its bytes. `parameter`: what it takes, at most 1,024 bytes.
#[pyfunction]
#[pyo3(signature = (module, parameter=None))]
pub fn module(
    py: Python<'_>,
    module: &Bound<'_, PyAny>,
    parameter: Option<&Bound<'_, PyAny>>,
) -> PyResult<Op> {
    let bytes = bytes_of(module, "module")?;
    let parameter = parameter.map(|value| bytes_of(value, "parameter")).transpose()?.unwrap_or_default();
    let loaded = py.detach(|| dcs_wasm::Module::load(&bytes, dcs_wasm::Limits::default()));
    let loaded = loaded.map_err(|error| PyValueError::new_err(format!("module: {error}")))?;
    let name = *loaded.name();
    if !loaded.install() {
        return Err(PyValueError::new_err("module: too many modules are loaded"));
    }
    Op::new(dcs::Op::Module { name, parameter })
}

/// Removes S3's aws-chunked framing. The data are good only once the transfer has succeeded.
///
/// `decoded_length`: bytes of the data without framing (x-amz-decoded-content-length). `checksum`: operator whose
/// checksum a trailer carries ("crc32", "crc32c", "crc64-nvme", "sha1", "sha256"); it is returned as the digest
/// "aws-chunked". `trailers`: trailers follow, even if none of them is a checksum. Signed chunks need all of
/// `signing_key` and `seed_signature` (32 bytes each), `timestamp` ("YYYYMMDDTHHMMSSZ") and `scope`
/// ("YYYYMMDD/region/s3/aws4_request").
#[pyfunction]
#[pyo3(signature = (decoded_length, *, checksum=None, trailers=false, signing_key=None, seed_signature=None, timestamp=None, scope=None))]
pub fn aws_chunked(
    decoded_length: u64,
    checksum: Option<&str>,
    trailers: bool,
    signing_key: Option<&Bound<'_, PyAny>>,
    seed_signature: Option<&Bound<'_, PyAny>>,
    timestamp: Option<&str>,
    scope: Option<String>,
) -> PyResult<Op> {
    let checksum = checksum.map(trailing).transpose()?;
    let signature = match (signing_key, seed_signature, timestamp, scope) {
        (None, None, None, None) => None,
        (Some(key), Some(seed), Some(timestamp), Some(scope)) => {
            let timestamp = timestamp
                .as_bytes()
                .try_into()
                .map_err(|_| PyValueError::new_err("timestamp must have 16 characters: YYYYMMDDTHHMMSSZ"))?;
            if !(1..=128).contains(&scope.len()) {
                return Err(PyValueError::new_err("scope must have 1 to 128 characters"));
            }
            let (key, seed) = (exactly(key, "signing_key")?, exactly(seed, "seed_signature")?);
            Some(AwsSignature { key, seed, timestamp, scope })
        }
        _ => {
            let line =
                "signed chunks need signing_key, seed_signature, timestamp and scope: all or none of them";
            return Err(PyValueError::new_err(line));
        }
    };
    let trailers = trailers || checksum.is_some();
    let parameter = AwsChunked { decoded_length, trailers, checksum, signature };
    Op::new(dcs::Op::AwsChunked(Box::new(parameter)))
}

fn trailing(name: &str) -> PyResult<Operator> {
    let checksums =
        [Operator::Crc32, Operator::Crc32c, Operator::Crc64Nvme, Operator::Sha1, Operator::Sha256];
    Operator::from_name(name).filter(|operator| checksums.contains(operator)).ok_or_else(|| {
        let names: Vec<_> = checksums.iter().map(|operator| operator.name()).collect();
        PyValueError::new_err(format!("no trailer carries {name:?}; expected one of {}", names.join(", ")))
    })
}
