//! The database's tables, and the encoding of records in them.
//!
//! | table | key | value |
//! |---|---|---|
//! | `buckets` | name | [`Bucket`](super::record::Bucket) |
//! | `objects` | bucket, 0, key | [`Object`](super::record::Object) |
//! | `uploads` | (bucket, 0, key; id) | [`Upload`](super::record::Upload) |
//! | `parts` | (id of the upload, number) | [`Part`](super::record::Part) |
//! | `blobs` | id of a data file, or of an extent of a pack, that a record refers to | |
//! | `garbage` | id of one that no record refers to any more and that is perhaps still there; of a pack without any | |
//! | `completed` | bucket, 0, key | id of the upload that made the object |
//! | `state` | name | number |
//!
//! A bucket's name has no zero byte, so the bytes of a key order objects by bucket, then by key. Each record is
//! followed by a CRC-32C of its key and itself: the database finds torn pages after a crash, but not a byte that
//! changes later.

use crc_fast::{CrcAlgorithm, Digest};
use redb::{ReadTransaction, TableDefinition};
use serde::{Serialize, de::DeserializeOwned};

use super::error::StoreError;

/// Table of records.
pub(super) type Records<K> = TableDefinition<'static, K, &'static [u8]>;

pub(super) const BUCKETS: Records<&[u8]> = TableDefinition::new("buckets");
pub(super) const OBJECTS: Records<&[u8]> = TableDefinition::new("objects");
pub(super) const UPLOADS: Records<(&[u8], &[u8])> = TableDefinition::new("uploads");
pub(super) const PARTS: Records<(&[u8], u16)> = TableDefinition::new("parts");
pub(super) const BLOBS: TableDefinition<u64, ()> = TableDefinition::new("blobs");
pub(super) const GARBAGE: TableDefinition<u64, ()> = TableDefinition::new("garbage");
pub(super) const COMPLETED: Records<&[u8]> = TableDefinition::new("completed");
pub(super) const STATE: TableDefinition<&str, u64> = TableDefinition::new("state");

/// `STATE`: format of records and folder.
pub(super) const STATE_FORMAT: &str = "format";
/// `STATE`: lowest id that was in flight when ids were last reserved.
pub(super) const STATE_FLOOR: &str = "floor";
/// `STATE`: first id that was never handed out.
pub(super) const STATE_END: &str = "end";
/// `STATE`: plain bytes of all objects.
pub(super) const STATE_BYTES: &str = "bytes";
/// `STATE`: bytes of all objects at rest.
pub(super) const STATE_STORED: &str = "stored";

/// `STATE`: number of the journal's next entry.
pub(super) const STATE_JOURNAL: &str = "journal";
/// `STATE`: pack that has the journal's entries; 0 for none.
pub(super) const STATE_JOURNAL_PACK: &str = "journal-pack";
/// `STATE`: mark of the journal's entries.
pub(super) const STATE_JOURNAL_MARKS: [&str; 2] = ["journal-mark-0", "journal-mark-1"];

/// Returns the key of an object.
pub(super) fn object_key(bucket: &str, key: &str) -> Vec<u8> {
    [bucket.as_bytes(), &[0], key.as_bytes()].concat()
}

/// Returns the first key after all of a bucket's.
pub(super) fn after_bucket(bucket: &str) -> Vec<u8> {
    [bucket.as_bytes(), &[1]].concat()
}

/// Fails if the bucket does not exist.
pub(super) fn need_bucket(reading: &ReadTransaction, name: &str) -> Result<(), StoreError> {
    reading.open_table(BUCKETS)?.get(name.as_bytes())?.map(drop).ok_or(StoreError::NoSuchBucket)
}

/// Splits an object's key in the table into bucket and key.
pub(super) fn split_key(bytes: &[u8]) -> Result<(&str, &str), StoreError> {
    std::str::from_utf8(bytes).ok().and_then(|text| text.split_once('\0')).ok_or_else(|| {
        StoreError::Damaged(format!("the database: a key {:?}", String::from_utf8_lossy(bytes)))
    })
}

fn checksum(key: &[u8], record: &[u8]) -> [u8; 4] {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    digest.update(key);
    digest.update(record);
    (digest.finalize() as u32).to_le_bytes()
}

/// Encodes `record` as it is stored under `key`.
pub(super) fn encode<T: Serialize>(key: &[u8], record: &T) -> Vec<u8> {
    let mut bytes = postcard::to_stdvec(record).expect("records are plain data in memory");
    bytes.extend(checksum(key, &bytes));
    bytes
}

/// Decodes the record that was stored under `key`.
pub(super) fn decode<T: DeserializeOwned>(key: &[u8], bytes: &[u8]) -> Result<T, StoreError> {
    let damaged = || StoreError::Damaged(format!("the record of {:?}", String::from_utf8_lossy(key)));
    let (record, sum) = bytes.split_last_chunk::<4>().ok_or_else(damaged)?;
    if *sum != checksum(key, record) {
        return Err(damaged());
    }
    postcard::from_bytes(record).map_err(|_| damaged())
}

/// Returns the name that an upload's part is checked with, in place of its key in the table.
pub(super) fn part_key(id: &[u8], number: u16) -> Vec<u8> {
    [id, &number.to_be_bytes()].concat()
}

/// Returns the name that an upload is checked with, in place of its key in the table.
pub(super) fn upload_key(object: &[u8], id: &[u8]) -> Vec<u8> {
    [object, &[0], id].concat()
}
