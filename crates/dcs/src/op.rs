//! Operators with their parameters, as an application names them.

use dcs_abi::operator::{ON_GPU, Operator};
pub use dcs_ndp::parameter::{
    AwsChunked, AwsSignature, Bitmap, BitmapOperation, Element, Grep, Knn, KnnError,
};
pub use dcs_ndp::parameter::{check_aggregate, check_filter};
pub use dcs_ndp::{ExpressionError, PatternError};

/// One operator of a chain. Data pass the chain in order: a digest before a cipher covers the plain data, one
/// after it the encrypted data.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Op {
    /// MD5 of the data (RFC 1321), 16 bytes.
    Md5,
    /// SHA-1 (FIPS 180-4), 20 bytes.
    Sha1,
    /// SHA-256 (FIPS 180-4), 32 bytes.
    Sha256,
    /// SHA-512 (FIPS 180-4), 64 bytes.
    Sha512,
    /// CRC-32 of Ethernet and gzip, 4 bytes.
    Crc32,
    /// CRC-32C of iSCSI (RFC 3720), 4 bytes.
    Crc32c,
    /// CRC-64 of NVMe, 8 bytes.
    Crc64Nvme,
    /// AES-256 in counter mode (SP 800-38A); encrypts and decrypts. Never use a counter block twice with a
    /// key.
    Aes256Ctr {
        /// The key.
        key: [u8; 32],
        /// The first counter block.
        counter: [u8; 16],
    },
    /// AES-256 in XTS mode (IEEE 1619), encryption.
    Aes256Xts {
        /// Data key, then tweak key.
        key: [u8; 64],
        /// Bytes of a data unit.
        unit_size: u32,
        /// Number of the first data unit.
        first_unit: u64,
    },
    /// AES-256 in XTS mode, decryption.
    Aes256XtsDecrypt {
        /// Data key, then tweak key.
        key: [u8; 64],
        /// Bytes of a data unit.
        unit_size: u32,
        /// Number of the first data unit.
        first_unit: u64,
    },
    /// Blowfish in counter mode; encrypts and decrypts. Never use a counter block twice with a key; its blocks have 64
    /// bits, so that a key is good for some GiB: for what is old, or has to be like others. New data take AES.
    BlowfishCtr {
        /// The key, 4 to 56 bytes.
        key: Vec<u8>,
        /// The first counter block.
        counter: [u8; 8],
    },
    /// gzip compression (RFC 1952), level 0 to 9.
    Gzip {
        /// 0 (stored) to 9 (smallest).
        level: u8,
    },
    /// gzip decompression.
    Gunzip,
    /// Zstandard compression (RFC 8878), level 1 to 19.
    Zstd {
        /// 1 (fastest) to 19 (smallest).
        level: u8,
    },
    /// Zstandard decompression.
    Unzstd,
    /// S3's aws-chunked framing, taken off. The data go on before the signature of their chunk was checked:
    /// they are good only once the transfer has succeeded. Its value in the completion is the trailing
    /// checksum, decoded.
    AwsChunked(Box<AwsChunked>),
    /// A range of the data: drops `skip` bytes, passes `take` bytes and drops what follows. Data that end
    /// before the range does are an error.
    Slice {
        /// Bytes before the range.
        skip: u64,
        /// Bytes of the range.
        take: u64,
    },
    /// Lines that match a regular expression, or their number. A line of more than a MiB is an error.
    Grep(Grep),
    /// Rows of comma-separated values (RFC 4180) whose field compares so with a constant, `price>100`, or binary
    /// rows of a fixed width, `-w16:u32@8>100` (`docs/operators.md` has the syntax; [`check_filter`] says why an expression is refused).
    Filter(String),
    /// Count, sum, least, most and mean of columns of such rows: `sum(price)`, `-w16:sum(u32@8)` (as above;
    /// [`check_aggregate`]).
    Aggregate(String),
    /// The rows nearest to a vector: index and distance of each ([`Knn::check`] says why parameters are refused).
    Knn(Knn),
    /// Roaring bitmaps: decompresses one, or combines all of the data by AND or OR.
    Bitmap(Bitmap),
    /// A module that this process has loaded (`dcs-wasm`), by the SHA-256 of its bytes, with a parameter of at most
    /// 1,024 bytes. Where no such module is loaded the transfer fails with
    /// [`Status::UnknownOperator`](crate::Status).
    Module {
        /// The module.
        name: [u8; 32],
        /// Its parameters.
        parameter: Vec<u8>,
    },
    /// A digest with an expected value: if it differs, the transfer fails with
    /// [`Status::DigestMismatch`](crate::Status), and the last data are not delivered.
    Expect {
        /// The digest.
        digest: Operator,
        /// Its value, as the completion would tell it.
        value: Vec<u8>,
    },
    /// An operator that the engine's GPU does ([`Builder::gpu`](crate::engine::Builder::gpu)): [`Op::on_gpu`]
    /// makes it.
    Gpu(Box<Op>),
    /// An operator by its number with a parameter block as it is, unchecked: for tools that know operators
    /// that this library does not.
    Raw {
        /// Its number in the chain.
        number: u8,
        /// Its parameter block.
        parameter: Vec<u8>,
    },
}

impl Op {
    /// Its number in a chain.
    pub fn number(&self) -> u8 {
        match self {
            Op::Md5 => Operator::Md5 as u8,
            Op::Sha1 => Operator::Sha1 as u8,
            Op::Sha256 => Operator::Sha256 as u8,
            Op::Sha512 => Operator::Sha512 as u8,
            Op::Crc32 => Operator::Crc32 as u8,
            Op::Crc32c => Operator::Crc32c as u8,
            Op::Crc64Nvme => Operator::Crc64Nvme as u8,
            Op::Aes256Ctr { .. } => Operator::Aes256Ctr as u8,
            Op::Aes256Xts { .. } => Operator::Aes256Xts as u8,
            Op::Aes256XtsDecrypt { .. } => Operator::Aes256XtsDecrypt as u8,
            Op::BlowfishCtr { .. } => Operator::BlowfishCtr as u8,
            Op::Gzip { .. } => Operator::Gzip as u8,
            Op::Gunzip => Operator::Gunzip as u8,
            Op::Zstd { .. } => Operator::Zstd as u8,
            Op::Unzstd => Operator::Unzstd as u8,
            Op::AwsChunked(_) => Operator::AwsChunked as u8,
            Op::Slice { .. } => Operator::Slice as u8,
            Op::Grep(_) => Operator::Grep as u8,
            Op::Filter(_) => Operator::Filter as u8,
            Op::Aggregate(_) => Operator::Aggregate as u8,
            Op::Knn(_) => Operator::Knn as u8,
            Op::Bitmap(_) => Operator::Bitmap as u8,
            Op::Module { .. } => Operator::Module as u8,
            Op::Expect { digest, .. } => *digest as u8,
            Op::Gpu(op) => op.number() | ON_GPU,
            Op::Raw { number, .. } => *number,
        }
    }

    /// The same, done by the engine's GPU ([`Builder::gpu`](crate::engine::Builder::gpu)). GPUs do MD5,
    /// SHA-256, CRC-32, CRC-32C and AES-256 in counter mode; all others are refused as unknown.
    pub fn on_gpu(self) -> Op {
        match self {
            Op::Gpu(_) => self,
            op => Op::Gpu(Box::new(op)),
        }
    }

    /// Its name, where a GPU is to do it.
    pub(crate) fn gpu_name(&self) -> Option<&'static str> {
        let (operator, on_gpu) = Operator::from_chain(self.number())?;
        operator.info().gpu.filter(|_| on_gpu)
    }

    /// True if its parameter block has any bytes. They may be a key.
    pub(crate) fn has_parameter(&self) -> bool {
        if let Op::Gpu(op) = self {
            return op.has_parameter();
        }
        if let Op::Raw { parameter, .. } = self {
            return !parameter.is_empty();
        }
        !matches!(self, Op::Md5 | Op::Sha1 | Op::Sha256 | Op::Sha512 | Op::Crc32 | Op::Crc32c | Op::Crc64Nvme)
    }

    /// Its parameter block, as `docs/abi.md` lays it out.
    pub fn parameter(&self) -> Vec<u8> {
        match self {
            Op::Aes256Ctr { key, counter } => dcs_ndp::parameter::aes256_ctr(key, counter).to_vec(),
            Op::Aes256Xts { key, unit_size, first_unit }
            | Op::Aes256XtsDecrypt { key, unit_size, first_unit } => {
                dcs_ndp::parameter::aes256_xts(key, *unit_size, *first_unit).to_vec()
            }
            Op::BlowfishCtr { key, counter } => dcs_ndp::parameter::blowfish_ctr(key, counter),
            Op::Gzip { level } | Op::Zstd { level } => dcs_ndp::parameter::level(*level).to_vec(),
            Op::AwsChunked(parameter) => parameter.block(),
            Op::Slice { skip, take } => dcs_ndp::parameter::slice(*skip, *take).to_vec(),
            Op::Grep(grep) => grep.block(),
            Op::Filter(expression) | Op::Aggregate(expression) => expression.as_bytes().to_vec(),
            Op::Knn(knn) => knn.block(),
            Op::Bitmap(bitmap) => bitmap.block(),
            Op::Module { name, parameter } => dcs_ndp::module::parameter(name, parameter),
            Op::Expect { value, .. } => value.clone(),
            Op::Gpu(op) => op.parameter(),
            Op::Raw { parameter, .. } => parameter.clone(),
            Op::Md5 | Op::Sha1 | Op::Sha256 | Op::Sha512 | Op::Crc32 | Op::Crc32c | Op::Crc64Nvme => {
                Vec::new()
            }
            Op::Gunzip | Op::Unzstd => Vec::new(),
        }
    }
}

/// Keys are not printed.
impl std::fmt::Debug for Op {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match Operator::chain_name(self.number()) {
            Some(name) => f.write_str(name),
            None => write!(f, "operator {:#04x}", self.number()),
        }
    }
}
