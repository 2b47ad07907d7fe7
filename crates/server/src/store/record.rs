//! Records of the database: buckets, objects, uploads and their parts.
//!
//! Records are stored by `postcard`; a change of a field is a change of the format, and of [`FORMAT`].

use std::fmt;

use serde::{Deserialize, Serialize};

use super::extent;

/// Format of the records and of the folder. A folder of a later format is refused; one of an earlier format is read,
/// and has this format from then on. 2 has more kinds of [`Encryption`], 3 has packs, which small objects share, 4 has
/// a journal in them.
pub const FORMAT: u32 = 4;

/// Milliseconds since 1970-01-01 00:00 UTC.
pub type Time = u64;

/// A bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bucket {
    /// Time at which it was made.
    pub created: Time,
    /// Access key of the user who made it.
    pub owner: String,
    /// Tags, in the order in which they were given.
    pub tags: Vec<(String, String)>,
    /// Compression and encryption of new objects, unless a request says otherwise.
    pub defaults: BucketDefaults,
}

/// A bucket's settings for new objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BucketDefaults {
    /// Compression of the data.
    pub compression: Compression,
    /// True to encrypt with a key of the server's (SSE-S3).
    pub encrypted: bool,
}

/// Compression of data at rest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Compression {
    /// Not compressed.
    #[default]
    None,
    /// gzip (RFC 1952).
    Gzip,
    /// Zstandard (RFC 8878).
    Zstd,
}

/// Encryption of data at rest: AES-256 in counter mode. Each segment's counter begins at the segment's number in the
/// upper 64 bits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Encryption {
    /// Not encrypted.
    #[default]
    None,
    /// A random key of the object's own, wrapped by the server's master key (SSE-S3).
    Managed {
        /// Nonce, encrypted key, tag (AES-256-GCM).
        wrapped_key: Vec<u8>,
    },
    /// A key derived from the customer's (SSE-C), which is not kept.
    Customer {
        /// Random salt; the object's key is derived from the customer's key and this (HMAC-SHA256).
        salt: [u8; 32],
        /// Check value of the key: HMAC-SHA256 of the salt and a word, under the customer's key.
        check: [u8; 32],
        /// MD5 of the customer's key in base64, which clients are told.
        key_md5: String,
    },
    /// Like [`Encryption::Managed`], with the wrapped key good only for the bucket and key of this object.
    ManagedBound {
        /// Nonce, encrypted key, tag (AES-256-GCM).
        wrapped_key: Vec<u8>,
    },
    /// Like [`Encryption::Customer`], with the object's key also derived from its bucket and key. Digests in its
    /// records are veiled, so that they tell nobody without the key what the data are
    /// ([`Keys`](crate::encryption::Keys)).
    CustomerBound {
        /// Random salt.
        salt: [u8; 32],
        /// Check value of the key.
        check: [u8; 32],
        /// MD5 of the customer's key in base64.
        key_md5: String,
    },
}

impl Encryption {
    /// Returns true if the server has the key.
    pub fn is_managed(&self) -> bool {
        matches!(self, Encryption::Managed { .. } | Encryption::ManagedBound { .. })
    }

    /// Returns the MD5 of the customer's key in base64, if there is one.
    pub fn customer_key_md5(&self) -> Option<&str> {
        match self {
            Encryption::Customer { key_md5, .. } | Encryption::CustomerBound { key_md5, .. } => Some(key_md5),
            _ => None,
        }
    }
}

/// Form of an object's data at rest: compressed first, then encrypted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AtRest {
    /// Compression of the data.
    pub compression: Compression,
    /// Encryption of the data.
    pub encryption: Encryption,
}

/// Headers that S3 stores with an object and returns.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Headers {
    /// Content-Type.
    pub content_type: Option<String>,
    /// Content-Encoding, without aws-chunked.
    pub content_encoding: Option<String>,
    /// Content-Language.
    pub content_language: Option<String>,
    /// Content-Disposition.
    pub content_disposition: Option<String>,
    /// Cache-Control.
    pub cache_control: Option<String>,
    /// Expires, as the client gave it.
    pub expires: Option<String>,
    /// User metadata: names without `x-amz-meta-`, in lower case, and values.
    pub metadata: Vec<(String, String)>,
}

/// Algorithm of an additional checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Algorithm {
    /// CRC-32.
    Crc32,
    /// CRC-32C.
    Crc32c,
    /// CRC-64/NVME.
    Crc64Nvme,
    /// SHA-1.
    Sha1,
    /// SHA-256.
    Sha256,
}

/// An additional checksum.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checksum {
    /// Algorithm that computed it.
    pub algorithm: Algorithm,
    /// Bytes, most significant first.
    pub value: Vec<u8>,
    /// Number of parts if it is a checksum of their checksums (COMPOSITE); `None` if it covers the object's own bytes
    /// (FULL_OBJECT).
    pub parts: Option<u16>,
}

/// Data of a whole object or of one part, in a file or in a pack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Segment {
    /// Id of the file, or of the extent, which tells its place in a pack.
    pub id: u64,
    /// Bytes of plain data.
    pub size: u64,
    /// Bytes at rest.
    pub stored: u64,
    /// MD5 of the plain data, perhaps veiled ([`Encryption::CustomerBound`]).
    pub md5: [u8; 16],
    /// Another checksum of the plain data, perhaps veiled: of a whole object CRC-64/NVME; of a part the additional
    /// one, or else CRC-64/NVME. Older versions wrote the additional one, or none.
    pub checksum: Option<Checksum>,
}

impl Segment {
    /// Returns true if it is in a pack, and has no file of its own.
    pub fn is_packed(&self) -> bool {
        extent::is_packed(self.id)
    }
}

/// Describes the place of the data, for people.
impl fmt::Display for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&extent::place(self.id))
    }
}

/// An object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Object {
    /// Bytes of plain data.
    pub size: u64,
    /// ETag without quotes: MD5 in hex, or MD5 of the parts' MD5s in hex with `-` and their number.
    pub etag: String,
    /// Time at which it was put.
    pub modified: Time,
    /// Segments of its data, in order. Empty for an empty object.
    pub segments: Vec<Segment>,
    /// True if it was put in parts: each segment is one.
    pub in_parts: bool,
    /// Form of the data at rest.
    pub at_rest: AtRest,
    /// Headers that are returned with it.
    pub headers: Headers,
    /// Tags of the object.
    pub tags: Vec<(String, String)>,
    /// Additional checksum, perhaps veiled.
    pub checksum: Option<Checksum>,
    /// Reason why it can't be read any more: its data were found to be wrong.
    pub quarantined: Option<String>,
}

impl Object {
    /// Makes the stand-in for an object whose record can't be read: only its key is known.
    pub fn unreadable(why: &dyn std::fmt::Display) -> Object {
        Object {
            size: 0,
            etag: "unreadable".into(),
            modified: 0,
            segments: Vec::new(),
            in_parts: false,
            at_rest: AtRest::default(),
            headers: Headers::default(),
            tags: Vec::new(),
            checksum: None,
            quarantined: Some(why.to_string()),
        }
    }
}

/// A multipart upload in progress.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Upload {
    /// Time at which it was begun.
    pub initiated: Time,
    /// Access key of the user who began it.
    pub owner: String,
    /// Form of the data at rest.
    pub at_rest: AtRest,
    /// Headers of the object.
    pub headers: Headers,
    /// Tags of the object.
    pub tags: Vec<(String, String)>,
    /// Algorithm of the additional checksums, and true if the object's covers its own bytes rather than the parts'
    /// checksums.
    pub checksum: Option<(Algorithm, bool)>,
}

/// A part of an upload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// Time at which it came.
    pub modified: Time,
    /// Segment of its data. Its ETag is their MD5.
    pub segment: Segment,
}
