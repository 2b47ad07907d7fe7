//! Multipart uploads.

use std::ops::Bound;

use super::change::{Condition, Entry};
use super::error::StoreError;
use super::list::{Grouping, behind};
use super::record::{Object, Part, Upload};
use super::tables::{
    PARTS, UPLOADS, after_bucket, decode, need_bucket, object_key, part_key, split_key, upload_key,
};
use super::{Draft, Store};

/// Which uploads are to be listed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UploadListing {
    /// Prefix of the keys.
    pub prefix: String,
    /// As for objects.
    pub delimiter: Option<String>,
    /// Only what comes behind this key, or, where an id is given, behind this upload of it. As for objects, a
    /// common prefix is skipped.
    pub after: Option<(String, Option<String>)>,
    /// Most uploads and common prefixes.
    pub max: usize,
}

/// Uploads in progress.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListedUploads {
    /// Keys, ids and uploads: by key, and those of a key in the order in which they were begun.
    pub uploads: Vec<(String, String, Upload)>,
    /// Common prefixes, in order.
    pub prefixes: Vec<String>,
    /// Where to go on (`after`); there is more.
    pub next: Option<(String, Option<String>)>,
}

/// The time makes ids of one key come in order, the rest can't be guessed.
fn new_id(upload: &Upload) -> Result<String, StoreError> {
    let mut secret = [0; 16];
    rustix::rand::getrandom(&mut secret, rustix::rand::GetRandomFlags::empty())
        .map_err(|error| StoreError::io("read random bytes for", "an upload".as_ref())(error.into()))?;
    Ok(format!("{:012x}{:032x}", upload.initiated, u128::from_le_bytes(secret)))
}

impl Store {
    /// Begins an upload. Returns its id, which can't be guessed.
    ///
    /// # Errors
    ///
    /// [`StoreError::NoSuchBucket`], and those of every change ([`Store::create_bucket`]).
    pub async fn create_upload(&self, bucket: &str, key: &str, upload: Upload) -> Result<String, StoreError> {
        let id = new_id(&upload)?;
        let (bucket, key, name) = (bucket.to_owned(), key.to_owned(), id.clone());
        self.committer
            .submit(Vec::new(), move |changes| changes.create_upload(&bucket, &key, &name, &upload))
            .await?;
        Ok(id)
    }

    /// An upload that goes on.
    ///
    /// # Errors
    ///
    /// As for [`Store::bucket`].
    pub fn upload(&self, bucket: &str, key: &str, id: &str) -> Result<Option<Upload>, StoreError> {
        let (key, id) = (object_key(bucket, key), id.as_bytes());
        self.read(|reading| {
            let record = reading.open_table(UPLOADS)?.get((&*key, id))?;
            record.map(|record| decode(&upload_key(&key, id), record.value())).transpose()
        })
    }

    /// Puts a part; one of that number is replaced. Its segment is the draft, a file that is complete.
    ///
    /// # Errors
    ///
    /// [`StoreError::NoSuchUpload`], [`StoreError::Invalid`], and those of every change
    /// ([`Store::create_bucket`]).
    pub async fn put_part(
        &self,
        bucket: &str,
        key: &str,
        id: &str,
        number: u16,
        part: Part,
        draft: Draft,
    ) -> Result<(), StoreError> {
        if part.segment.id != draft.id() || !draft.is_file() {
            return Err(StoreError::Invalid("a part that is not the draft's file"));
        }
        let (bucket, key, id) = (bucket.to_owned(), key.to_owned(), id.to_owned());
        self.committer
            .submit(vec![draft], move |changes| changes.put_part(&bucket, &key, &id, number, &part))
            .await
    }

    /// Up to `max` parts with numbers above `after`, in order.
    ///
    /// # Errors
    ///
    /// [`StoreError::NoSuchUpload`], and as for [`Store::bucket`].
    pub fn parts(
        &self,
        bucket: &str,
        key: &str,
        id: &str,
        after: u16,
        max: usize,
    ) -> Result<Vec<(u16, Part)>, StoreError> {
        let object = object_key(bucket, key);
        let bytes = id.as_bytes();
        self.read(|reading| {
            let upload = reading.open_table(UPLOADS)?.get((&*object, bytes))?;
            upload.ok_or(StoreError::NoSuchUpload)?;
            let range = (Bound::Excluded((bytes, after)), Bound::Included((bytes, u16::MAX)));
            let mut parts = Vec::new();
            if after == u16::MAX {
                return Ok(parts);
            }
            for entry in reading.open_table(PARTS)?.range(range)?.take(max) {
                let (key, record) = entry?;
                let number = key.value().1;
                parts.push((number, decode(&part_key(bytes, number), record.value())?));
            }
            Ok(parts)
        })
    }

    /// Makes an object of parts, whose numbers rise and whose segments are the object's. The other parts are
    /// removed.
    ///
    /// # Errors
    ///
    /// [`StoreError::NoSuchBucket`], [`StoreError::NoSuchUpload`]; [`StoreError::InvalidPart`] where a part
    /// is not there or was replaced meanwhile; [`StoreError::ConditionFailed`], or [`StoreError::NoSuchKey`]
    /// where there is no object to match; [`StoreError::Invalid`]; and those of every change
    /// ([`Store::create_bucket`]). The upload goes on then.
    pub async fn complete(
        &self,
        bucket: &str,
        key: &str,
        id: &str,
        parts: Vec<u16>,
        object: Object,
        condition: Condition,
    ) -> Result<(), StoreError> {
        if parts.len() != object.segments.len() || !parts.is_sorted_by(|one, next| one < next) {
            return Err(StoreError::Invalid("parts that are not the segments, or out of order"));
        }
        let entry = Entry::new(bucket, key, object);
        let (bucket, id) = (bucket.to_owned(), id.to_owned());
        self.committer
            .submit(Vec::new(), move |changes| changes.complete(&bucket, &id, &parts, &entry, &condition))
            .await
    }

    /// Ends an upload. Its parts are removed.
    ///
    /// # Errors
    ///
    /// [`StoreError::NoSuchUpload`], and those of every change ([`Store::create_bucket`]).
    pub async fn abort_upload(&self, bucket: &str, key: &str, id: &str) -> Result<(), StoreError> {
        let (bucket, key, id) = (bucket.to_owned(), key.to_owned(), id.to_owned());
        self.committer.submit(Vec::new(), move |changes| changes.abort_upload(&bucket, &key, &id)).await
    }

    /// Lists uploads that go on.
    ///
    /// # Errors
    ///
    /// [`StoreError::NoSuchBucket`], and as for [`Store::bucket`].
    pub fn uploads(&self, bucket: &str, listing: &UploadListing) -> Result<ListedUploads, StoreError> {
        let mut listed = ListedUploads::default();
        let grouping = Grouping { prefix: &listing.prefix, delimiter: listing.delimiter.as_deref() };
        let mut from = start(bucket, &grouping, listing);
        let (no_id, end) = (&[][..], after_bucket(bucket));
        let mut last = None;
        self.read(|reading| {
            need_bucket(reading, bucket)?;
            let table = reading.open_table(UPLOADS)?;
            'seek: while let Some(bound) = from.take() {
                let bound = bound.as_ref().map(|(key, id)| (&**key, id.as_bytes()));
                for entry in table.range((bound, Bound::Excluded((&*end, no_id))))? {
                    let (name, record) = entry?;
                    let (object, id) = name.value();
                    // What can't be read is gone through by a repair.
                    let Ok((_, key)) = split_key(object) else { continue };
                    if !key.starts_with(&listing.prefix) {
                        return Ok(());
                    }
                    if listed.uploads.len() + listed.prefixes.len() >= listing.max {
                        listed.next = last.take();
                        return Ok(());
                    }
                    if let Some(common) = grouping.common(key) {
                        listed.prefixes.push(common.to_owned());
                        last = Some((common.to_owned(), None));
                        from = at(bucket, behind(common));
                        continue 'seek;
                    }
                    let Ok(upload) = decode(&upload_key(object, id), record.value()) else { continue };
                    let id = String::from_utf8_lossy(id).into_owned();
                    last = Some((key.to_owned(), Some(id.clone())));
                    listed.uploads.push((key.to_owned(), id, upload));
                }
            }
            Ok(())
        })?;
        Ok(listed)
    }
}

/// Where a range of uploads begins: key of the object, id.
type Start = Option<Bound<(Vec<u8>, String)>>;

/// Behind every id of a key.
const LAST_ID: &str = "g";

fn at(bucket: &str, from: Option<Bound<String>>) -> Start {
    Some(match from? {
        Bound::Excluded(key) => Bound::Excluded((object_key(bucket, &key), LAST_ID.into())),
        Bound::Included(key) => Bound::Included((object_key(bucket, &key), String::new())),
        Bound::Unbounded => Bound::Unbounded,
    })
}

fn start(bucket: &str, grouping: &Grouping<'_>, listing: &UploadListing) -> Start {
    match &listing.after {
        Some((key, Some(id))) if **key >= *grouping.prefix && grouping.common(key) != Some(key) => {
            Some(Bound::Excluded((object_key(bucket, key), id.clone())))
        }
        after => at(bucket, grouping.start(after.as_ref().map(|(key, _)| &**key))),
    }
}
