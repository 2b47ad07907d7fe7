//! The operators of `dcs`: processing that near-device processing (NDP) units do to the bytes that pass through them.
//!
//! A [`Context`] is the state of one operator in one chain. Its caller feeds it block by block: it does no I/O, owns no
//! thread and keeps no block. The operators, their numbers and their parameters are those of [`dcs_abi::operator`].
//!
//! # Architecture
//!
//! ```text
//!   operator + parameter block
//!              |
//!              v
//!     +---- Context ----+
//!     |  Digest         |  absorb(data)  ->  value()           md5 sha1 sha256 sha512 crc32 crc32c crc64-nvme
//!     |  Cipher         |  in_place(data, last)                aes256-ctr aes256-xts aes256-xts-decrypt blowfish-ctr
//!     |  Resize: Codec  |  resize(input, output, last)         gzip gunzip zstd unzstd aws-chunked slice grep
//!     |                 |                                      filter aggregate knn bitmap
//!     +-----------------+
//! ```
//!
//! | module | contents |
//! |---|---|
//! | `chain` | [`Chain`]: the operators of a command of the engine; [`Chains`]: those of all |
//! | `error` | errors of operators, and their statuses |
//! | `digest` | digests and CRCs; [`DigestValue`] |
//! | `hash` | streams of hash functions: whole blocks and padding |
//! | `lanes` | [`Lanes`] that take many streams at once, and the passes through them |
//! | `offload` | streams whose bytes another device processes |
//! | `md5`, `sha256` | their compression functions, for one stream and for many |
//! | `cipher` | counter mode; XTS with ciphertext stealing |
//! | `blowfish` | Blowfish in counter mode |
//! | `resize` | the loop that all compressors and decompressors share |
//! | `gzip` | ISA-L, where the machine has it, and zlib-rs |
//! | `zstd` | the reference library, one call a step |
//! | `aws_chunked` | S3's framing: chunks, signatures, trailers |
//! | `slice` | a range of the stream |
//! | `lines` | streams that are taken line by line |
//! | `grep` | lines that match a regular expression |
//! | `rows` | streams that are taken by rows of a fixed width |
//! | `table` | rows of comma-separated values and binary ones: `filter`, `aggregate` |
//! | `knn` | the rows nearest to a vector |
//! | `bitmap` | bitmaps in Roaring's format |
//! | `memory` | the memory of a context at most |
//! | [`module`] | users' own operators: what each has to be, and those that are loaded |
//! | `wide` | loops that are compiled for AVX2, too |
//! | [`parameter`] | building and checking parameter blocks |
//! | [`sequential`] | a chain over bytes in memory: the plain program |
//!
//! Neither the output nor the digests depend on how the input is cut into blocks, or on the size of the output blocks.
//!
//! # Example
//!
//! This computes a digest and compresses with gzip over a stream that comes in two blocks. [`sequential::run`] does the
//! same for bytes in memory.
//!
//! ```
//! use dcs_abi::operator::Operator;
//! use dcs_ndp::{Context, sequential};
//!
//! let mut md5 = Context::new(Operator::Md5, &[])?;
//! let mut gzip = Context::new(Operator::Gzip, &[])?;
//! let (mut compressed, mut room) = (Vec::new(), [0; 4096]);
//! for (block, last) in [(&b"message "[..], false), (&b"digest"[..], true)] {
//!     md5.absorb(block);
//!     let mut input = block;
//!     loop {
//!         let progress = gzip.resize(input, &mut room, last)?;
//!         compressed.extend_from_slice(&room[..progress.produced]);
//!         input = &input[progress.consumed..];
//!         if progress.finished || (input.is_empty() && !last) {
//!             break;
//!         }
//!     }
//! }
//! assert_eq!(md5.value().expect("a digest").to_string(), "f96b697d7cb7938d525a2f31aaf161d0");
//! let unpacked = sequential::run(&[(Operator::Gunzip, vec![])], &compressed).expect("gzip's own output");
//! assert_eq!(unpacked.output, b"message digest");
//! # Ok::<(), dcs_ndp::OperatorError>(())
//! ```
//!
//! # What it doesn't implement
//!
//! * No authenticated encryption: `docs/operators.md` says why, and what to use instead.
//! * No limit on what a decompressor produces: the destination is the limit.
//! * No dictionaries, no zlib or raw deflate streams, no Zstandard windows over 128 MiB, no legacy Zstandard
//!   formats.
//! * No parallelism inside a stream: each stream runs on its own context; [`Lanes`] tells for which operators a unit
//!   takes several at once.
#![deny(unsafe_code)]

mod aws_chunked;
mod bitmap;
mod blowfish;
mod chain;
mod cipher;
mod digest;
mod error;
mod grep;
mod gzip;
mod hash;
mod knn;
// A machine without units has nothing to run on one.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
mod lanes;
mod lines;
mod md5;
mod memory;
pub mod module;
mod offload;
pub mod parameter;
mod resize;
mod rows;
pub mod sequential;
mod sha256;
mod slice;
mod table;
mod wide;
mod zstd;

use dcs_abi::operator::Operator;

use cipher::{Cipher, Direction};
use digest::Digest;
use resize::Resize;

pub use chain::{Chain, Chains, Loaded};
pub use digest::DigestValue;
pub use error::OperatorError;
pub use grep::PatternError;
pub use lanes::{Lanes, Piece};
pub use memory::{memory, memory_of_unzstd};
pub use offload::{Answer, OFFLOADED, Task};
pub use resize::Progress;
pub use table::ExpressionError;

/// Stream state of one operator in one chain: what a physical unit is loaded with.
pub struct Context {
    operator: Operator,
    unit: Unit,
    /// Expected value of a digest, if there is one.
    expected: Option<DigestValue>,
}

/// State by kind of operator.
enum Unit {
    Digest(Box<Digest>),
    Cipher {
        cipher: Cipher,
        ended: bool,
    },
    Resize(Resize),
    /// State of a stream that another device processes.
    Offload(Box<offload::Offload>),
}

/// Returns the library that does an operator, if that depends on the machine: ISA-L (`libisal.so.2`) is used if it is
/// installed and the environment does not say `DCS_GZIP=zlib-rs`.
pub fn library(operator: Operator) -> Option<&'static str> {
    match operator {
        Operator::Gzip => Some(gzip::gzip_library()),
        Operator::Gunzip => Some(gzip::GUNZIP_LIBRARY),
        _ => None,
    }
}

impl Context {
    /// Makes the operator at the beginning of its stream. `parameter` is the parameter block as
    /// [`dcs_abi::operator::OperatorInfo::parameter_doc`] describes it.
    pub fn new(operator: Operator, parameter: &[u8]) -> Result<Context, OperatorError> {
        let cipher = |cipher| Unit::Cipher { cipher, ended: false };
        let mut expected = None;
        let unit = match operator {
            Operator::Aes256Ctr => cipher(Cipher::ctr(parameter)?),
            Operator::Aes256Xts => cipher(Cipher::xts(parameter, Direction::Encrypt)?),
            Operator::Aes256XtsDecrypt => cipher(Cipher::xts(parameter, Direction::Decrypt)?),
            Operator::BlowfishCtr => cipher(Cipher::blowfish(parameter)?),
            Operator::Gzip => Unit::Resize(Resize::new(gzip::Gzip::new(parameter)?)),
            Operator::Zstd => Unit::Resize(Resize::new(zstd::Zstd::new(parameter)?)),
            Operator::Slice => Unit::Resize(Resize::new(slice::Slice::new(parameter)?)),
            Operator::Grep => Unit::Resize(Resize::new(grep::Grep::new(parameter)?)),
            Operator::Filter => Unit::Resize(parameter::parse_filter(parameter)?),
            Operator::Aggregate => Unit::Resize(parameter::parse_aggregate(parameter)?),
            Operator::Knn => Unit::Resize(knn::new(parameter)?),
            Operator::Bitmap => Unit::Resize(Resize::new(bitmap::Bitmap::new(parameter)?)),
            Operator::AwsChunked => Unit::Resize(Resize::new(aws_chunked::AwsChunked::new(parameter)?)),
            Operator::Module => Unit::Resize(module::of_parameter(parameter)?),
            Operator::Gunzip => {
                parameter::parse_none(parameter)?;
                Unit::Resize(Resize::new(gzip::Gunzip::default()))
            }
            Operator::Unzstd => {
                parameter::parse_none(parameter)?;
                Unit::Resize(Resize::new(zstd::Unzstd::new(zstd::WINDOW_MAX)?))
            }
            digest => {
                expected = parameter::parse_expected(digest, parameter)?;
                Unit::Digest(Box::new(Digest::new(digest).ok_or(OperatorError::InternalError)?))
            }
        };
        Ok(Context { operator, unit, expected })
    }

    /// Makes `unzstd` at the beginning of its stream, for frames with a window of at most `1 << window` bytes, 10 to 27. A
    /// frame with a larger one is corrupt data. [`memory_of_unzstd`] tells the memory to set aside.
    ///
    /// # Errors
    ///
    /// [`OperatorError::BadParameter`] for another window.
    pub fn unzstd(window: u8) -> Result<Context, OperatorError> {
        let unit = Unit::Resize(Resize::new(zstd::Unzstd::new(window)?));
        Ok(Context { operator: Operator::Unzstd, unit, expected: None })
    }

    /// Makes a user's own operator at the beginning of its stream. `parameter` is the module's own.
    ///
    /// # Errors
    ///
    /// Returns the module's error for the parameter.
    pub fn of_module(module: &dyn module::Module, parameter: &[u8]) -> Result<Context, OperatorError> {
        let unit = Unit::Resize(Resize::of(module.start(parameter)?));
        Ok(Context { operator: Operator::Module, unit, expected: None })
    }

    /// Makes the operator at the beginning of its stream, for another device to process its bytes. It must be one of
    /// [`OFFLOADED`].
    ///
    /// # Errors
    ///
    /// The errors of [`Context::new`]; [`OperatorError::InternalError`] for all other operators.
    pub fn offloaded(operator: Operator, parameter: &[u8]) -> Result<Context, OperatorError> {
        let digest = operator.digest_size() > 0;
        let expected = if digest { parameter::parse_expected(operator, parameter)? } else { None };
        let unit = Unit::Offload(Box::new(offload::Offload::new(operator, parameter)?));
        Ok(Context { operator, unit, expected })
    }

    /// Returns true for a digest without an expected value, which holds no parameter.
    pub(crate) fn is_plain_digest(&self) -> bool {
        matches!(self.unit, Unit::Digest(_)) && self.expected.is_none()
    }

    /// Returns the state of a digest without an expected value.
    #[inline]
    pub(crate) fn plain_digest(&mut self) -> Option<&mut Digest> {
        match &mut self.unit {
            Unit::Digest(digest) if self.expected.is_none() => Some(digest),
            _ => None,
        }
    }

    /// Resets to the beginning of another stream if it is a digest of that operator without a parameter. Otherwise
    /// changes nothing and returns false.
    pub(crate) fn begin_again(&mut self, operator: Operator) -> bool {
        match &mut self.unit {
            Unit::Digest(digest) if self.operator == operator && self.expected.is_none() => {
                digest.begin_again();
                true
            }
            _ => false,
        }
    }

    /// Hands out the next bytes of a stream that another device processes. Returns the task; `None` if the bytes need
    /// none and are taken in. Until [`Context::take_in`], nothing else may be done with the stream.
    ///
    /// # Errors
    ///
    /// [`OperatorError::InternalError`] if it is not such a stream, or a device still has some of its bytes, or has
    /// failed.
    pub fn hand_out(&mut self, data: &[u8]) -> Result<Option<Task>, OperatorError> {
        match &mut self.unit {
            Unit::Offload(offload) => offload.hand_out(data),
            _ => Err(OperatorError::InternalError),
        }
    }

    /// Returns true if [`Context::hand_out`] reads the next bytes, if there are that many; otherwise only their number
    /// matters.
    pub fn looks(&self, length: usize) -> bool {
        match &self.unit {
            Unit::Offload(offload) => offload.looks(length),
            _ => true,
        }
    }

    /// Returns true if another device processes its bytes.
    pub fn is_offloaded(&self) -> bool {
        matches!(self.unit, Unit::Offload(_))
    }

    /// Takes the device's answer to a task; `None` if it failed: then the stream no longer has a value.
    ///
    /// # Errors
    ///
    /// [`OperatorError::InternalError`] if it does not answer the task.
    pub fn take_in(&mut self, answer: Option<Answer>) -> Result<(), OperatorError> {
        match &mut self.unit {
            Unit::Offload(offload) => offload.take_in(answer),
            _ => Err(OperatorError::InternalError),
        }
    }

    /// Returns the operator.
    #[inline]
    pub fn operator(&self) -> Operator {
        self.operator
    }

    /// Takes the next bytes of a digest. A transform ignores them, and its [`Context::value`] stays `None`.
    pub fn absorb(&mut self, data: &[u8]) {
        match &mut self.unit {
            Unit::Digest(digest) => digest.absorb(data),
            Unit::Offload(offload) => offload.spoil(),
            _ => {}
        }
    }

    /// Returns the value of a digest over everything absorbed so far; the state goes on. A transform has a value only
    /// if it is finished and found one in the data ([`Operator::value_max`]).
    pub fn value(&self) -> Option<DigestValue> {
        match &self.unit {
            Unit::Digest(digest) => Some(digest.value()),
            Unit::Resize(resize) => resize.value(),
            Unit::Offload(offload) => offload.value(),
            Unit::Cipher { .. } => None,
        }
    }

    /// Checks a digest at the end of the stream.
    ///
    /// # Errors
    ///
    /// [`OperatorError::Mismatch`] if the digest differs from the expected value.
    pub fn check(&self) -> Result<(), OperatorError> {
        let wrong = self.expected.is_some() && self.value() != self.expected;
        if wrong { Err(OperatorError::Mismatch) } else { Ok(()) }
    }

    /// Changes the next bytes of the stream in place, for operators of kind
    /// [`dcs_abi::operator::OperatorKind::InPlace`]. With `whole_units`, every call but the last takes whole data
    /// units. `last` ends the stream. If it fails, `data` are unchanged.
    pub fn in_place(&mut self, data: &mut [u8], last: bool) -> Result<(), OperatorError> {
        match &mut self.unit {
            Unit::Cipher { cipher, ended: ended @ false } => {
                *ended = last;
                cipher.apply(data, last)
            }
            _ => Err(OperatorError::InternalError),
        }
    }

    /// Consumes from `input` and fills `output`, as far as either goes, for operators of kind
    /// [`dcs_abi::operator::OperatorKind::Resize`].
    ///
    /// `last` means that nothing follows `input`. Call it again with the rest of the input, which may be empty, until
    /// `finished`; the last of these calls may produce nothing. If `output` has room and there is input or `last`,
    /// every call consumes, produces, finishes or fails. An error comes after everything produced before it has been
    /// handed out, and is permanent.
    pub fn resize(&mut self, input: &[u8], output: &mut [u8], last: bool) -> Result<Progress, OperatorError> {
        match &mut self.unit {
            Unit::Resize(resize) => resize.run(input, output, last),
            _ => Err(OperatorError::InternalError),
        }
    }
}

const _: () = {
    const fn is_send<T: Send>() {}
    is_send::<Context>();
};
