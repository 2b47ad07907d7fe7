//! The operators: numbers, names, kinds and the layout of their parameters.
//!
//! An operator stands in a chain by its number, one byte (FlexCSV section 4.3.1, `op_chain`). The table
//! [`OPERATORS`] is the one place that knows them; the engine validates against it, the NDP pool implements
//! it, and `dcs.h` and the command line are made from it.

use crate::layout::Constant;

/// An operator of the table below. The number is what stands in a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Operator {
    /// MD5 (RFC 1321).
    Md5 = 0x01,
    /// SHA-1 (FIPS 180-4).
    Sha1 = 0x02,
    /// SHA-256 (FIPS 180-4).
    Sha256 = 0x03,
    /// SHA-512 (FIPS 180-4).
    Sha512 = 0x04,
    /// CRC-32 of Ethernet, gzip and zip (CRC-32/ISO-HDLC).
    Crc32 = 0x08,
    /// CRC-32C of iSCSI, NVMe and ext4 (RFC 3720; CRC-32/ISCSI).
    Crc32c = 0x09,
    /// CRC-64 of NVMe (NVM Command Set Specification 1.1; CRC-64/NVME).
    Crc64Nvme = 0x0a,
    /// AES-256 in counter mode (SP 800-38A section 6.5); its own inverse.
    Aes256Ctr = 0x10,
    /// AES-256 in XTS mode, encryption (IEEE 1619, SP 800-38E).
    Aes256Xts = 0x12,
    /// AES-256 in XTS mode, decryption.
    Aes256XtsDecrypt = 0x13,
    /// Blowfish in counter mode; its own inverse.
    BlowfishCtr = 0x14,
    /// gzip (RFC 1952), compression.
    Gzip = 0x20,
    /// gzip, decompression; several members in a row are one stream.
    Gunzip = 0x21,
    /// Zstandard (RFC 8878), compression.
    Zstd = 0x22,
    /// Zstandard, decompression; several frames in a row are one stream.
    Unzstd = 0x23,
    /// S3's aws-chunked framing, taken off.
    AwsChunked = 0x30,
    /// A range of the data.
    Slice = 0x31,
    /// Lines that match a regular expression.
    Grep = 0x32,
    /// Rows of a table whose field compares so with a constant.
    Filter = 0x33,
    /// Count, sum, least, most and mean of a table's columns.
    Aggregate = 0x34,
    /// The vectors nearest to one.
    Knn = 0x35,
    /// Bitmaps in Roaring's format: decompression, AND, OR.
    Bitmap = 0x36,
    /// A module that users brought: see [`MODULE`].
    Module = 0x3f,
}

/// Effect of an operator on the data that pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperatorKind {
    /// Data pass unchanged; a value of this many bytes comes out at the end.
    Digest {
        /// Bytes of the value, most significant first for CRCs.
        size: usize,
    },
    /// Data change in place; their length does not.
    InPlace {
        /// True where a block must hold whole data units (XTS): blocks are then filled before they are
        /// processed.
        whole_units: bool,
    },
    /// Data change and so does their length. One that finds a value in the data tells it at the end, as a
    /// digest does ([`Operator::value_max`]).
    Resize,
}

/// One operator, as generators, validators and people are told of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperatorInfo {
    /// The one described.
    pub operator: Operator,
    /// The name that people type: `aes256-ctr`.
    pub name: &'static str,
    /// The name of its constant in C: `AES256_CTR`.
    pub constant: &'static str,
    /// Its effect on the data.
    pub kind: OperatorKind,
    /// Bytes of its parameter block: fewest and most. `(0, 0)`: it takes none.
    pub parameter: (usize, usize),
    /// The fields of the parameter block.
    pub parameter_doc: &'static str,
    /// Its description, with its source.
    pub doc: &'static str,
    /// Its name where a GPU is to do it, `gpu:md5`; none where GPUs don't.
    pub gpu: Option<&'static str>,
}

/// Added to an operator's number in a chain: a GPU does it, not the engine's own units. Only operators whose
/// rows have a name for it ([`OperatorInfo::gpu`]).
pub const ON_GPU: u8 = 0x80;

const fn digest(
    operator: Operator,
    name: &'static str,
    constant: &'static str,
    size: usize,
    doc: &'static str,
) -> OperatorInfo {
    let kind = OperatorKind::Digest { size };
    OperatorInfo {
        operator,
        name,
        constant,
        kind,
        parameter: (0, size),
        parameter_doc: DIGEST_PARAMETER,
        doc,
        gpu: None,
    }
}

/// One that a GPU does too.
const fn or_gpu(name: &'static str, info: OperatorInfo) -> OperatorInfo {
    OperatorInfo { gpu: Some(name), ..info }
}

const DIGEST_PARAMETER: &str = "none, or the value expected, as the digest is told: the command fails with DIGEST_MISMATCH where it is another";
const XTS_PARAMETER: &str = "key[64] (data key, then tweak key), unit_size u32 (bytes of a data unit: 16 to 65536, a power of two), reserved u32, first_unit u64";
const LEVEL_PARAMETER: &str = "none, or level u8";
const AWS_CHUNKED_PARAMETER: &str = "flags u8 (1: the chunks are signed; 2: trailers follow the last chunk), checksum u8 (the operator whose checksum a trailer brings: CRC32, CRC32C, CRC64_NVME, SHA1 or SHA256; 0: none), reserved[6], decoded_length u64; where signed also: signing_key[32], seed_signature[32], timestamp[16] (YYYYMMDDTHHMMSSZ), scope[1 to 128] (YYYYMMDD/region/s3/aws4_request)";

const GREP_PARAMETER: &str = "flags u8 (1: letters match in either case; 2: lines that do not match; 4: the lines' number in place of them), reserved[7], pattern[1 to 1016] (UTF-8; docs/operators.md says which expressions)";

const fn transform(
    operator: Operator,
    name: &'static str,
    constant: &'static str,
    kind: OperatorKind,
    parameter: (usize, usize),
    parameter_doc: &'static str,
    doc: &'static str,
) -> OperatorInfo {
    OperatorInfo { operator, name, constant, kind, parameter, parameter_doc, doc, gpu: None }
}

/// Every operator, by rising number.
pub const OPERATORS: &[OperatorInfo] = &[
    or_gpu("gpu:md5", digest(Operator::Md5, "md5", "MD5", 16, "MD5 (RFC 1321)")),
    digest(Operator::Sha1, "sha1", "SHA1", 20, "SHA-1 (FIPS 180-4)"),
    or_gpu("gpu:sha256", digest(Operator::Sha256, "sha256", "SHA256", 32, "SHA-256 (FIPS 180-4)")),
    digest(Operator::Sha512, "sha512", "SHA512", 64, "SHA-512 (FIPS 180-4)"),
    or_gpu(
        "gpu:crc32",
        digest(Operator::Crc32, "crc32", "CRC32", 4, "CRC-32/ISO-HDLC, as in Ethernet and gzip (RFC 1952)"),
    ),
    or_gpu(
        "gpu:crc32c",
        digest(Operator::Crc32c, "crc32c", "CRC32C", 4, "CRC-32/ISCSI (RFC 3720 section 12.1)"),
    ),
    digest(
        Operator::Crc64Nvme,
        "crc64-nvme",
        "CRC64_NVME",
        8,
        "CRC-64/NVME (NVM Command Set Specification 1.1)",
    ),
    or_gpu(
        "gpu:aes256-ctr",
        transform(
            Operator::Aes256Ctr,
            "aes256-ctr",
            "AES256_CTR",
            OperatorKind::InPlace { whole_units: false },
            (48, 48),
            "key[32], counter[16] (the initial counter block, big-endian, counted up over all 128 bits)",
            "AES-256 in counter mode (SP 800-38A section 6.5); encryption and decryption are the same",
        ),
    ),
    transform(
        Operator::Aes256Xts,
        "aes256-xts",
        "AES256_XTS",
        OperatorKind::InPlace { whole_units: true },
        (80, 80),
        XTS_PARAMETER,
        "AES-256 in XTS mode, encryption (IEEE 1619, SP 800-38E)",
    ),
    transform(
        Operator::Aes256XtsDecrypt,
        "aes256-xts-decrypt",
        "AES256_XTS_DECRYPT",
        OperatorKind::InPlace { whole_units: true },
        (80, 80),
        XTS_PARAMETER,
        "AES-256 in XTS mode, decryption (IEEE 1619, SP 800-38E)",
    ),
    transform(
        Operator::BlowfishCtr,
        "blowfish-ctr",
        "BLOWFISH_CTR",
        OperatorKind::InPlace { whole_units: false },
        (12, 64),
        "counter[8] (the initial counter block, big-endian, counted up over all 64 bits), key[4 to 56]",
        "Blowfish (Schneier, 1993) in counter mode (SP 800-38A section 6.5); encryption and decryption are the same",
    ),
    transform(
        Operator::Gzip,
        "gzip",
        "GZIP",
        OperatorKind::Resize,
        (0, 1),
        LEVEL_PARAMETER,
        "gzip compression (RFC 1952), level 0 to 9, 1 where none is given",
    ),
    transform(
        Operator::Gunzip,
        "gunzip",
        "GUNZIP",
        OperatorKind::Resize,
        (0, 0),
        "none",
        "gzip decompression (RFC 1952), of one or more members",
    ),
    transform(
        Operator::Zstd,
        "zstd",
        "ZSTD",
        OperatorKind::Resize,
        (0, 1),
        LEVEL_PARAMETER,
        "Zstandard compression (RFC 8878), level 1 to 19, 3 where none is given",
    ),
    transform(
        Operator::Unzstd,
        "unzstd",
        "UNZSTD",
        OperatorKind::Resize,
        (0, 0),
        "none",
        "Zstandard decompression (RFC 8878), of one or more frames",
    ),
    transform(
        Operator::AwsChunked,
        "aws-chunked",
        "AWS_CHUNKED",
        OperatorKind::Resize,
        (16, 224),
        AWS_CHUNKED_PARAMETER,
        "takes off S3's aws-chunked framing and checks its signatures; its value is the trailing checksum, decoded (Amazon S3 API Reference, SigV4 streaming)",
    ),
    transform(
        Operator::Slice,
        "slice",
        "SLICE",
        OperatorKind::Resize,
        (16, 16),
        "skip u64, take u64",
        "drops skip bytes, passes take bytes and drops what follows",
    ),
    transform(
        Operator::Grep,
        "grep",
        "GREP",
        OperatorKind::Resize,
        (9, 1024),
        GREP_PARAMETER,
        "lines that match a regular expression on bytes, or their number",
    ),
    transform(
        Operator::Filter,
        "filter",
        "FILTER",
        OperatorKind::Resize,
        (1, 1024),
        "expression[1 to 1024] (UTF-8; docs/operators.md has the syntax): price>100",
        "rows of comma-separated values (RFC 4180), or binary ones of a fixed width, whose field compares so with a constant",
    ),
    transform(
        Operator::Aggregate,
        "aggregate",
        "AGGREGATE",
        OperatorKind::Resize,
        (1, 1024),
        "expression[1 to 1024] (UTF-8; docs/operators.md has the syntax): sum(price)",
        "count, sum, least, most and mean of columns of comma-separated values (RFC 4180) or of binary rows of a fixed width",
    ),
    transform(
        Operator::Knn,
        "knn",
        "KNN",
        OperatorKind::Resize,
        (9, 2056),
        "element u8 (0: u8; 1: f32, little-endian), reserved[3], k u32 (1 to 65536), query[1 to 2048] (whole elements; a row of the data has as many)",
        "the k rows nearest to a vector by squared Euclidean distance: index and distance of each",
    ),
    transform(
        Operator::Bitmap,
        "bitmap",
        "BITMAP",
        OperatorKind::Resize,
        (0, 2),
        "none, or operation u8 (0: decompress one bitmap; 1: AND of all; 2: OR of all), result u8 (0: its bits; 1: their number)",
        "run-length compressed bitmaps (RoaringFormatSpec, 32 bits): decompresses one, or combines several",
    ),
];

/// Bytes of the name of a module: the SHA-256 of what was loaded.
pub const MODULE_NAME: usize = 32;

/// Users' own operators. It stands beside the table: which modules there are is not known beforehand, only some
/// engines run them, and those that do say so in their units.
pub const MODULE: OperatorInfo = transform(
    Operator::Module,
    "module",
    "MODULE",
    OperatorKind::Resize,
    (MODULE_NAME, MODULE_NAME + 1024),
    "module[32] (the SHA-256 of a module that was loaded), parameter[0 to 1024] (what that module takes)",
    "an operator of the user's own, in WebAssembly (docs/wasm.md); its value, if it tells one, has up to 64 bytes",
);

/// The row of [`OPERATORS`] of each number; past its end where the number is no operator's.
const ROWS: [u8; 256] = {
    let mut rows = [u8::MAX; 256];
    let mut row = 0;
    while row < OPERATORS.len() {
        rows[OPERATORS[row].operator as usize] = row as u8;
        row += 1;
    }
    rows
};

impl Operator {
    /// The operator of that number.
    pub fn from_number(number: u8) -> Option<Operator> {
        if number == Operator::Module as u8 {
            return Some(Operator::Module);
        }
        OPERATORS.get(ROWS[number as usize] as usize).map(|info| info.operator)
    }

    /// The operator of that name, as in [`OperatorInfo::name`]. Modules have names of their own, and are none of these.
    pub fn from_name(name: &str) -> Option<Operator> {
        OPERATORS.iter().find(|info| info.name == name).map(|info| info.operator)
    }

    /// The operator that a number stands for in a chain, and whether a GPU is to do it ([`ON_GPU`]).
    pub fn from_chain(number: u8) -> Option<(Operator, bool)> {
        let operator = Operator::from_number(number & !ON_GPU)?;
        let on_gpu = number & ON_GPU != 0;
        (!on_gpu || operator.info().gpu.is_some()).then_some((operator, on_gpu))
    }

    /// The name of what a number stands for in a chain: `md5`, `gpu:md5`.
    #[inline]
    pub fn chain_name(number: u8) -> Option<&'static str> {
        let (operator, on_gpu) = Operator::from_chain(number)?;
        Some(if on_gpu { operator.info().gpu? } else { operator.name() })
    }

    /// The operator of such a name, and whether a GPU is to do it.
    pub fn from_chain_name(name: &str) -> Option<(Operator, bool)> {
        let on_gpu = |info: &&OperatorInfo| info.gpu == Some(name);
        match OPERATORS.iter().find(on_gpu) {
            Some(info) => Some((info.operator, true)),
            None => Operator::from_name(name).map(|operator| (operator, false)),
        }
    }

    /// Its row of the table.
    #[inline]
    pub fn info(self) -> &'static OperatorInfo {
        match self {
            Operator::Module => &MODULE,
            built_in => &OPERATORS[ROWS[built_in as usize] as usize],
        }
    }

    /// The name that people type.
    pub fn name(self) -> &'static str {
        self.info().name
    }

    /// Its effect on the data.
    #[inline]
    pub fn kind(self) -> OperatorKind {
        self.info().kind
    }

    /// Bytes of the longest value that it tells at its end; 0 where it tells none. A digest always tells one,
    /// and of this size.
    pub fn value_max(self) -> usize {
        match self {
            // A trailing checksum: SHA-256 is the longest.
            Operator::AwsChunked => 32,
            Operator::Module => 64,
            _ => self.digest_size(),
        }
    }

    /// Bytes of its digest; 0 for a transform.
    pub fn digest_size(self) -> usize {
        match self.kind() {
            OperatorKind::Digest { size } => size,
            _ => 0,
        }
    }
}

/// The constant of an operator, for generators.
pub const fn constant(info: &OperatorInfo) -> Constant {
    Constant { name: info.constant, value: info.operator as u64, doc: info.doc }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_holds_each_operator_once_by_rising_number() {
        for pair in OPERATORS.windows(2) {
            assert!((pair[0].operator as u8) < pair[1].operator as u8);
        }
        for info in OPERATORS {
            assert_eq!(Operator::from_number(info.operator as u8), Some(info.operator));
            assert_eq!(Operator::from_name(info.name), Some(info.operator));
            assert_eq!(info.operator.info(), info, "every operator has its own row");
            assert!(info.parameter.0 <= info.parameter.1);
        }
        for info in OPERATORS.iter().filter(|info| info.gpu.is_some()) {
            let number = info.operator as u8 | ON_GPU;
            assert_eq!(Operator::from_chain(number), Some((info.operator, true)));
            assert_eq!(Operator::chain_name(number), info.gpu);
            assert_eq!(info.gpu.and_then(Operator::from_chain_name), Some((info.operator, true)));
            assert_eq!(info.gpu.and_then(|name| name.strip_prefix("gpu:")), Some(info.name));
        }
        assert_eq!(Operator::from_chain(Operator::Gzip as u8 | ON_GPU), None);
        assert_eq!(Operator::from_chain_name("sha1"), Some((Operator::Sha1, false)));
        assert_eq!(Operator::from_chain(ON_GPU), None);
        assert_eq!(Operator::from_chain(Operator::Module as u8), Some((Operator::Module, false)));
        assert_eq!(Operator::Module.info(), &MODULE);
        assert_eq!(Operator::from_name("module"), None, "it is named by its module");
        assert!(Operator::Module as u8 > OPERATORS[OPERATORS.len() - 1].operator as u8);
        assert_eq!(Operator::from_number(0), None);
        assert_eq!(Operator::from_number(0xff), None);
    }
}
