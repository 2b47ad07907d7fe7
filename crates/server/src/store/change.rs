//! Changes that operations make to the database, in a transaction that many of them share.
//!
//! Each change checks everything that can fail before it changes tables, so that a failed one leaves no trace and the
//! others go on.

use std::collections::BTreeSet;
use std::sync::Arc;

use redb::{ReadableTable, Table, WriteTransaction};

use super::error::StoreError;
use super::extent::{self, Extent};
use super::journal::{Mark, Put};
use super::record::{Bucket, Object, Part, Segment, Upload};
use super::tables::*;

/// A condition on the object that is replaced, checked in the transaction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Condition {
    /// No condition.
    #[default]
    None,
    /// No object may exist (`If-None-Match: *`).
    Absent,
    /// An object must exist (`If-Match: *`).
    Present,
    /// An object must exist with this ETag, without quotes (`If-Match`).
    Matches(String),
    /// No object may exist with this ETag (`If-None-Match`).
    Differs(String),
}

impl Condition {
    pub(super) fn is_none(&self) -> bool {
        *self == Self::None
    }

    pub(super) fn check(&self, old: Option<&Old>) -> Result<(), StoreError> {
        match (self, old) {
            (Self::None, _) | (Self::Absent, None) => Ok(()),
            (Self::Matches(_) | Self::Present, None) => Err(StoreError::NoSuchKey),
            (Self::Present, Some(_)) => Ok(()),
            (Self::Matches(etag), Some(Old::Sound(old))) if old.etag == *etag => Ok(()),
            (Self::Differs(_), None) => Ok(()),
            (Self::Differs(etag), Some(Old::Sound(old))) if old.etag != *etag => Ok(()),
            (Self::Absent | Self::Matches(_) | Self::Differs(_), Some(_)) => Err(StoreError::ConditionFailed),
        }
    }
}

type Bytes = &'static [u8];

/// Tables of a transaction, and its counters.
pub(super) struct Changes<'t> {
    pub(super) state: Table<'t, &'static str, u64>,
    pub(super) buckets: Table<'t, Bytes, Bytes>,
    pub(super) objects: Table<'t, Bytes, Bytes>,
    pub(super) uploads: Table<'t, (Bytes, Bytes), Bytes>,
    pub(super) parts: Table<'t, (Bytes, u16), Bytes>,
    pub(super) blobs: Table<'t, u64, ()>,
    pub(super) garbage: Table<'t, u64, ()>,
    pub(super) completed: Table<'t, Bytes, Bytes>,
    bytes: i64,
    stored: i64,
    pub(super) discarded: Vec<u64>,
    /// Packs of which extents were discarded.
    emptied: BTreeSet<u64>,
}

/// An object's record, encoded for the database.
#[derive(Debug)]
pub(super) struct Entry {
    /// Its key in the table.
    pub(super) key: Vec<u8>,
    pub(super) record: Vec<u8>,
    size: u64,
    pub(super) segments: Vec<Segment>,
}

impl Entry {
    pub(super) fn new(bucket: &str, key: &str, object: Object) -> Self {
        let key = object_key(bucket, key);
        Self { record: encode(&key, &object), key, size: object.size, segments: object.segments }
    }

    /// Makes one of what the journal has.
    pub(super) fn of(put: Put) -> Result<Self, StoreError> {
        let Put { key, record, .. } = put;
        let object: Object = decode(&key, &record)?;
        Ok(Self { key, record, size: object.size, segments: object.segments })
    }

    /// Returns what the journal has of it. The bytes of its segments have these CRC-64s.
    pub(super) fn put(&self, sums: Vec<u64>) -> Put {
        Put { key: self.key.clone(), record: self.record.clone(), sums }
    }

    /// Returns the most bytes that it takes in the journal.
    pub(super) fn journaled(&self) -> usize {
        self.key.len() + self.record.len() + super::journal::frame_max(self.segments.len())
    }
}

/// An object to put, if its condition holds.
pub(super) struct NewPut {
    pub(super) bucket: String,
    pub(super) entry: Arc<Entry>,
    pub(super) condition: Condition,
}

/// An object that is replaced or deleted.
pub(super) enum Old {
    Sound(Box<Object>),
    /// An object whose record is damaged.
    Damaged,
}

impl Old {
    /// Decodes an object that is replaced or deleted. A damaged record does not block its key: a repair finds out which
    /// files it had.
    pub(super) fn of(key: &[u8], record: &[u8]) -> Result<Old, StoreError> {
        match decode(key, record) {
            Err(StoreError::Damaged(why)) => {
                tracing::warn!(why, "its data stay until dcs scrub --repair removes them");
                Ok(Old::Damaged)
            }
            found => Ok(Old::Sound(Box::new(found?))),
        }
    }
}

fn stored(segments: &[Segment]) -> i64 {
    segments.iter().map(|segment| segment.stored as i64).sum()
}

impl<'t> Changes<'t> {
    pub(super) fn new(transaction: &'t WriteTransaction) -> Result<Self, StoreError> {
        Ok(Self {
            state: transaction.open_table(STATE)?,
            buckets: transaction.open_table(BUCKETS)?,
            objects: transaction.open_table(OBJECTS)?,
            uploads: transaction.open_table(UPLOADS)?,
            parts: transaction.open_table(PARTS)?,
            blobs: transaction.open_table(BLOBS)?,
            garbage: transaction.open_table(GARBAGE)?,
            completed: transaction.open_table(COMPLETED)?,
            bytes: 0,
            stored: 0,
            discarded: Vec::new(),
            emptied: BTreeSet::new(),
        })
    }

    /// Has the journal begin with entries of this mark.
    pub(super) fn begin_journal(&mut self, mark: Mark) -> Result<(), StoreError> {
        for (name, word) in STATE_JOURNAL_MARKS.into_iter().zip(mark) {
            self.state.insert(name, word)?;
        }
        self.state.insert(STATE_JOURNAL_PACK, 0)?;
        Ok(())
    }

    /// Writes the counters. Returns the ids whose files are to be removed after the commit.
    pub(super) fn finish(mut self) -> Result<Vec<u64>, StoreError> {
        for (name, change) in [(STATE_BYTES, self.bytes), (STATE_STORED, self.stored)] {
            if change != 0 {
                let before = self.state.get(name)?.map_or(0, |value| value.value());
                self.state.insert(name, before.saturating_add_signed(change))?;
            }
        }
        Ok(self.discarded)
    }

    /// Reserves ids.
    pub(super) fn reserve(&mut self, floor: u64, end: u64) -> Result<(), StoreError> {
        self.state.insert(STATE_FLOOR, floor)?;
        self.state.insert(STATE_END, end)?;
        Ok(())
    }

    /// Notes that the files of these ids are gone.
    pub(super) fn removed(&mut self, ids: &[u64]) -> Result<(), StoreError> {
        for id in ids {
            self.garbage.remove(id)?;
        }
        Ok(())
    }

    fn discard(&mut self, segments: &[Segment]) -> Result<(), StoreError> {
        for Segment { id, .. } in segments {
            self.discard_id(*id)?;
        }
        Ok(())
    }

    /// Has a file, or an extent of a pack, removed after the commit.
    pub(super) fn discard_id(&mut self, id: u64) -> Result<(), StoreError> {
        self.blobs.remove(id)?;
        self.garbage.insert(id, ())?;
        self.discarded.push(id);
        self.emptied.extend(Extent::of(id).map(|extent| extent.pack));
        Ok(())
    }

    /// Has the packs of these extents looked at by [`Changes::discard_packs`].
    pub(super) fn emptied(&mut self, ids: impl Iterator<Item = u64>) {
        self.emptied.extend(ids.filter_map(Extent::of).map(|extent| extent.pack));
    }

    /// Has packs removed that are not being filled and have no extents left.
    pub(super) fn discard_packs(
        &mut self,
        closed: &[u64],
        is_open: impl Fn(u64) -> bool,
    ) -> Result<(), StoreError> {
        let mut packs = std::mem::take(&mut self.emptied);
        packs.extend(closed);
        for pack in packs.into_iter().filter(|pack| !is_open(*pack)) {
            if self.blobs.range(extent::extents(pack))?.next().is_none() {
                self.garbage.insert(extent::whole(pack), ())?;
                self.discarded.push(extent::whole(pack));
            }
        }
        Ok(())
    }

    fn need_bucket(&self, name: &str) -> Result<(), StoreError> {
        self.buckets.get(name.as_bytes())?.map(drop).ok_or(StoreError::NoSuchBucket)
    }

    pub(super) fn create_bucket(&mut self, name: &str, bucket: &Bucket) -> Result<(), StoreError> {
        if self.buckets.get(name.as_bytes())?.is_some() {
            return Err(StoreError::BucketExists);
        }
        self.buckets.insert(name.as_bytes(), &*encode(name.as_bytes(), bucket))?;
        Ok(())
    }

    pub(super) fn change_bucket(
        &mut self,
        name: &str,
        change: impl FnOnce(&mut Bucket),
    ) -> Result<(), StoreError> {
        let key = name.as_bytes();
        let found = self.buckets.get(key)?.map(|record| decode(key, record.value()));
        let mut bucket = found.ok_or(StoreError::NoSuchBucket)??;
        change(&mut bucket);
        self.buckets.insert(key, &*encode(key, &bucket))?;
        Ok(())
    }

    pub(super) fn delete_bucket(&mut self, name: &str) -> Result<(), StoreError> {
        self.need_bucket(name)?;
        let (from, to) = (object_key(name, ""), after_bucket(name));
        if self.objects.range(&*from..&*to)?.next().transpose()?.is_some() {
            return Err(StoreError::BucketNotEmpty);
        }
        let no_id: &[u8] = &[];
        let mut uploads = Vec::new();
        for entry in self.uploads.range((&*from, no_id)..(&*to, no_id))? {
            let (key, _) = entry?;
            let (object, id) = key.value();
            let (object, id) = (object.to_vec(), id.to_vec());
            let parts = self.parts_of(&id)?;
            uploads.push((object, id, parts));
        }
        for (object, id, parts) in uploads {
            self.remove_upload(&object, &id, &parts, |_| true)?;
        }
        self.buckets.remove(name.as_bytes())?;
        Ok(())
    }

    fn object(&self, key: &[u8]) -> Result<Option<Object>, StoreError> {
        self.objects.get(key)?.map(|record| decode(key, record.value())).transpose()
    }

    /// Returns the object that is replaced or deleted.
    fn old(&self, key: &[u8]) -> Result<Option<Old>, StoreError> {
        self.objects.get(key)?.map(|record| Old::of(key, record.value())).transpose()
    }

    /// Puts an object with new segments.
    pub(super) fn put(&mut self, put: &NewPut) -> Result<(), StoreError> {
        self.need_bucket(&put.bucket)?;
        let old = self.old(&put.entry.key)?;
        put.condition.check(old.as_ref())?;
        self.insert(&put.entry, old)
    }

    /// Puts an object that the journal has.
    pub(super) fn put_again(&mut self, entry: &Entry) -> Result<(), StoreError> {
        let old = self.old(&entry.key)?;
        self.insert(entry, old)
    }

    fn insert(&mut self, entry: &Entry, old: Option<Old>) -> Result<(), StoreError> {
        for segment in &entry.segments {
            self.blobs.insert(segment.id, ())?;
        }
        self.replace(entry, old)
    }

    fn replace(&mut self, entry: &Entry, old: Option<Old>) -> Result<(), StoreError> {
        self.forget(&entry.key, old)?;
        self.objects.insert(&*entry.key, &*entry.record)?;
        self.bytes += entry.size as i64;
        self.stored += stored(&entry.segments);
        Ok(())
    }

    fn forget(&mut self, key: &[u8], old: Option<Old>) -> Result<(), StoreError> {
        self.completed.remove(key)?;
        let Some(Old::Sound(object)) = old else { return Ok(()) };
        self.bytes -= object.size as i64;
        self.stored -= stored(&object.segments);
        self.discard(&object.segments)
    }

    /// Changes an object's record, but not its data.
    pub(super) fn change_object<T>(
        &mut self,
        bucket: &str,
        key: &str,
        change: impl FnOnce(&mut Object) -> T,
    ) -> Result<T, StoreError> {
        self.need_bucket(bucket)?;
        let key = object_key(bucket, key);
        let mut object = self.object(&key)?.ok_or(StoreError::NoSuchKey)?;
        let (size, segments) = (object.size, object.segments.clone());
        let result = change(&mut object);
        object = Object { size, segments, ..object };
        self.objects.insert(&*key, &*encode(&key, &object))?;
        Ok(result)
    }

    /// Deletes the objects whose conditions hold. Returns for each whether it existed.
    pub(super) fn delete(
        &mut self,
        bucket: &str,
        keys: &[(String, Condition)],
    ) -> Result<Vec<Result<bool, StoreError>>, StoreError> {
        self.need_bucket(bucket)?;
        let mut done = Vec::with_capacity(keys.len());
        for (key, condition) in keys {
            let key = object_key(bucket, key);
            let old = self.old(&key)?;
            if let Err(error) = condition.check(old.as_ref()) {
                done.push(Err(error));
                continue;
            }
            done.push(Ok(old.is_some()));
            self.objects.remove(&*key)?;
            self.forget(&key, old)?;
        }
        Ok(done)
    }

    /// Marks an object whose data are wrong, if it still has that segment.
    pub(super) fn quarantine(
        &mut self,
        bucket: &str,
        key: &str,
        segment: u64,
        reason: String,
    ) -> Result<bool, StoreError> {
        let still = |object: Object| object.segments.iter().any(|other| other.id == segment);
        if !self.object(&object_key(bucket, key))?.is_some_and(still) {
            return Ok(false);
        }
        self.change_object(bucket, key, |object| object.quarantined = Some(reason))?;
        Ok(true)
    }

    pub(super) fn create_upload(
        &mut self,
        bucket: &str,
        key: &str,
        id: &str,
        upload: &Upload,
    ) -> Result<(), StoreError> {
        self.need_bucket(bucket)?;
        let (key, id) = (object_key(bucket, key), id.as_bytes());
        self.uploads.insert((&*key, id), &*encode(&upload_key(&key, id), upload))?;
        Ok(())
    }

    fn need_upload(&self, object: &[u8], id: &[u8]) -> Result<(), StoreError> {
        self.uploads.get((object, id))?.map(drop).ok_or(StoreError::NoSuchUpload)
    }

    /// Returns the parts of an upload; `None` for each whose record is damaged.
    fn parts_of(&self, id: &[u8]) -> Result<Vec<(u16, Option<Part>)>, StoreError> {
        let mut parts = Vec::new();
        for entry in self.parts.range((id, 0)..=(id, u16::MAX))? {
            let (key, record) = entry?;
            let number = key.value().1;
            parts.push((number, decode(&part_key(id, number), record.value()).ok()));
        }
        Ok(parts)
    }

    pub(super) fn put_part(
        &mut self,
        bucket: &str,
        key: &str,
        id: &str,
        number: u16,
        part: &Part,
    ) -> Result<(), StoreError> {
        let id = id.as_bytes();
        self.need_upload(&object_key(bucket, key), id)?;
        let name = part_key(id, number);
        let old = self.parts.get((id, number))?;
        let old: Option<Part> = old.and_then(|record| decode(&name, record.value()).ok());
        self.blobs.insert(part.segment.id, ())?;
        self.parts.insert((id, number), &*encode(&name, part))?;
        old.map_or(Ok(()), |old| self.discard(&[old.segment]))
    }

    /// Makes an object of parts. The upload's other parts become garbage.
    pub(super) fn complete(
        &mut self,
        bucket: &str,
        id: &str,
        chosen: &[u16],
        entry: &Entry,
        condition: &Condition,
    ) -> Result<(), StoreError> {
        self.need_bucket(bucket)?;
        let id = id.as_bytes();
        self.need_upload(&entry.key, id)?;
        let parts = self.parts_of(id)?;
        for (number, segment) in chosen.iter().zip(&entry.segments) {
            let found = parts.binary_search_by_key(number, |(number, _)| *number);
            let found = found.ok().and_then(|at| parts[at].1.as_ref());
            if found.is_none_or(|part| part.segment != *segment) {
                return Err(StoreError::InvalidPart(*number));
            }
        }
        let old = self.old(&entry.key)?;
        condition.check(old.as_ref())?;
        self.remove_upload(&entry.key, id, &parts, |number| chosen.binary_search(&number).is_err())?;
        self.replace(entry, old)?;
        // A client that did not get the answer asks again.
        self.completed.insert(&*entry.key, id)?;
        Ok(())
    }

    pub(super) fn abort_upload(&mut self, bucket: &str, key: &str, id: &str) -> Result<(), StoreError> {
        let (object, id) = (object_key(bucket, key), id.as_bytes());
        self.need_upload(&object, id)?;
        let parts = self.parts_of(id)?;
        self.remove_upload(&object, id, &parts, |_| true)
    }

    fn remove_upload(
        &mut self,
        object: &[u8],
        id: &[u8],
        parts: &[(u16, Option<Part>)],
        is_garbage: impl Fn(u16) -> bool,
    ) -> Result<(), StoreError> {
        self.uploads.remove((object, id))?;
        for (number, part) in parts {
            self.parts.remove((id, *number))?;
            if let Some(part) = part.as_ref().filter(|_| is_garbage(*number)) {
                self.discard(std::slice::from_ref(&part.segment))?;
            }
        }
        Ok(())
    }
}
