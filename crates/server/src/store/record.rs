//! Records of the database: buckets, objects, uploads and their parts.
//!
//! Records are stored by `postcard`; a change of a field is a change of the format, and of [`FORMAT`].

use std::fmt;

use serde::{Deserialize, Serialize};

use super::pack;

/// The format of the records and of the folder. A folder of a later one is refused; one of an earlier one is
/// read, and is of this one from then on. 2 has more ways of [`Encryption`], 3 has packs, which small
/// objects share.
pub const FORMAT: u32 = 3;

/// Milliseconds since 1970-01-01 00:00 UTC.
pub type Time = u64;

/// A bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bucket {
    /// When it was made.
    pub created: Time,
    /// The access key of the user who made it.
    pub owner: String,
    /// Its tags, in the order that they were given in.
    pub tags: Vec<(String, String)>,
    /// Compression and encryption of new objects where a request does not say.
    pub defaults: BucketDefaults,
}

/// A bucket's settings for new objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BucketDefaults {
    /// Compressed.
    pub compression: Compression,
    /// Encrypted with a key of the server's (SSE-S3).
    pub encrypted: bool,
}

/// Compression of data at rest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Compression {
    /// They are not.
    #[default]
    None,
    /// gzip (RFC 1952).
    Gzip,
    /// Zstandard (RFC 8878).
    Zstd,
}

/// Encryption of data at rest: AES-256 in counter mode, each segment's counter beginning at its number in the
/// upper 64 bits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Encryption {
    /// They are not.
    #[default]
    None,
    /// With a key of the object's own, which is wrapped by the server's master key (SSE-S3).
    Managed {
        /// Nonce, encrypted key, tag (AES-256-GCM).
        wrapped_key: Vec<u8>,
    },
    /// With the customer's key (SSE-C). It is not kept.
    Customer {
        /// Random; the object's key is made from the customer's and this (HMAC-SHA256).
        salt: [u8; 32],
        /// Recognises the key: HMAC-SHA256 of the salt and a word, under the customer's key.
        check: [u8; 32],
        /// MD5 of the key in base64, which clients are told.
        key_md5: String,
    },
    /// As [`Encryption::Managed`], with the wrapped key good for the bucket and key of this object only.
    ManagedBound {
        /// Nonce, encrypted key, tag (AES-256-GCM).
        wrapped_key: Vec<u8>,
    },
    /// As [`Encryption::Customer`], with the object's key made from its bucket and key too. Digests in its
    /// records are veiled, so that they tell nobody without the key what the data are
    /// ([`Keys`](crate::encryption::Keys)).
    CustomerBound {
        /// As above.
        salt: [u8; 32],
        /// As above.
        check: [u8; 32],
        /// As above.
        key_md5: String,
    },
}

impl Encryption {
    /// True if the server has the key.
    pub fn is_managed(&self) -> bool {
        matches!(self, Encryption::Managed { .. } | Encryption::ManagedBound { .. })
    }

    /// MD5 in base64 of the customer's key, where there is one.
    pub fn customer_key_md5(&self) -> Option<&str> {
        match self {
            Encryption::Customer { key_md5, .. } | Encryption::CustomerBound { key_md5, .. } => Some(key_md5),
            _ => None,
        }
    }
}

/// The form of an object's data at rest: compressed first, then encrypted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AtRest {
    /// Their compression.
    pub compression: Compression,
    /// Their encryption.
    pub encryption: Encryption,
}

/// The headers that S3 keeps with an object and gives back.
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
    /// Expires, as it was given.
    pub expires: Option<String>,
    /// User metadata: names without `x-amz-meta-`, in lower case, and values.
    pub metadata: Vec<(String, String)>,
}

/// An additional checksum's algorithm.
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
    /// Of what kind.
    pub algorithm: Algorithm,
    /// Its bytes, most significant first.
    pub value: Vec<u8>,
    /// Of how many parts' checksums it is one (COMPOSITE); `None` where it covers the object's own bytes
    /// (FULL_OBJECT).
    pub parts: Option<u16>,
}

/// The data of a whole object or of a part of one, in a file or in a pack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Segment {
    /// The file's id; or that of an extent, which says where in which pack it is.
    pub id: u64,
    /// Bytes of plain data.
    pub size: u64,
    /// Bytes at rest.
    pub stored: u64,
    /// MD5 of the plain data, perhaps veiled ([`Encryption::CustomerBound`]).
    pub md5: [u8; 16],
    /// The additional checksum of the plain data, where one was asked for; perhaps veiled.
    pub checksum: Option<Checksum>,
}

impl Segment {
    /// True if it lies in a pack, and has no file of its own.
    pub fn is_packed(&self) -> bool {
        pack::is_packed(self.id)
    }
}

/// Where the data are, for people.
impl fmt::Display for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&pack::place(self.id))
    }
}

/// An object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Object {
    /// Bytes of plain data.
    pub size: u64,
    /// ETag without quotes: MD5 in hex, or MD5 of the parts' MD5s in hex with `-` and their number.
    pub etag: String,
    /// When it was put.
    pub modified: Time,
    /// Where its data are, in their order. None for an empty object.
    pub segments: Vec<Segment>,
    /// It was put in parts: then each segment is one.
    pub in_parts: bool,
    /// The form of the data at rest.
    pub at_rest: AtRest,
    /// Headers that are given back with it.
    pub headers: Headers,
    /// Its tags.
    pub tags: Vec<(String, String)>,
    /// Its additional checksum, perhaps veiled.
    pub checksum: Option<Checksum>,
    /// Why it can't be read any more: its data were found to be wrong.
    pub quarantined: Option<String>,
}

impl Object {
    /// Stands for an object whose record can't be read: its key is there, and nothing is known of it.
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

/// A multipart upload that is going on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Upload {
    /// When it was begun.
    pub initiated: Time,
    /// By whom.
    pub owner: String,
    /// The form of the data at rest.
    pub at_rest: AtRest,
    /// Headers of the object.
    pub headers: Headers,
    /// Tags of the object.
    pub tags: Vec<(String, String)>,
    /// Additional checksums: of which kind, and whether the object's covers its own bytes rather than the
    /// parts' checksums.
    pub checksum: Option<(Algorithm, bool)>,
}

/// A part of an upload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// When it came.
    pub modified: Time,
    /// Its data; its ETag is their MD5.
    pub segment: Segment,
}
