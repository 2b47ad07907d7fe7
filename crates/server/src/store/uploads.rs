//! Multipart uploads.

use std::ops::Bound;

use super::change::{Condition, Entry};
use super::error::StoreError;
use super::list::{Grouping, first_after_prefix};
use super::record::{Object, Part, Upload};
use super::tables::{
    PARTS, UPLOADS, after_bucket, decode, need_bucket, object_key, part_key, split_key, upload_key,
};
use super::{Draft, Store};

/// Request for a listing of uploads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UploadListing {
    /// Prefix of the keys.
    pub prefix: String,
    /// Delimiter, as in [`Listing`](super::Listing).
    pub delimiter: Option<String>,
    /// Key after which the listing begins or, with an id, the upload of that key after which it begins. As for objects,
    /// a common prefix is skipped.
    pub after: Option<(String, Option<String>)>,
    /// Most uploads and common prefixes.
    pub max: usize,
}

/// Uploads in progress.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListedUploads {
    /// Keys, ids and uploads, ordered by key, then by the time at which they were begun.
    pub uploads: Vec<(String, String, Upload)>,
    /// Common prefixes, in order.
    pub prefixes: Vec<String>,
    /// `after` of the next page, if there is more.
    pub next: Option<(String, Option<String>)>,
}

/// Makes an id. Its time orders the ids of one key, its rest can't be guessed.
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

    /// Returns an upload in progress.
    ///
    /// # Errors
    ///
    /// The errors of [`Store::bucket`].
    pub fn upload(&self, bucket: &str, key: &str, id: &str) -> Result<Option<Upload>, StoreError> {
        let (key, id) = (object_key(bucket, key), id.as_bytes());
        self.read(|reading| {
            let record = reading.open_table(UPLOADS)?.get((&*key, id))?;
            record.map(|record| decode(&upload_key(&key, id), record.value())).transpose()
        })
    }

    /// Puts a part, and replaces any of that number. Its segment is the draft, which is a complete file.
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
            return Err(StoreError::Invalid("the part is not the draft's file"));
        }
        let (bucket, key, id) = (bucket.to_owned(), key.to_owned(), id.to_owned());
        self.committer
            .submit(vec![draft], move |changes| changes.put_part(&bucket, &key, &id, number, &part))
            .await
    }

    /// Returns up to `max` parts with numbers above `after`, in order.
    ///
    /// # Errors
    ///
    /// [`StoreError::NoSuchUpload`], and those of [`Store::bucket`].
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

    /// Makes an object of parts, whose numbers rise and whose segments are the object's. The upload's other parts are
    /// removed.
    ///
    /// # Errors
    ///
    /// [`StoreError::NoSuchBucket`], [`StoreError::NoSuchUpload`]; [`StoreError::InvalidPart`] if a part does not exist
    /// or was replaced meanwhile; [`StoreError::ConditionFailed`], or [`StoreError::NoSuchKey`] if there is no object
    /// to match; [`StoreError::Invalid`]; and those of every change ([`Store::create_bucket`]). The upload stays then.
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
            return Err(StoreError::Invalid("the parts are not the segments, or out of order"));
        }
        let entry = Entry::new(bucket, key, object);
        let (bucket, id) = (bucket.to_owned(), id.to_owned());
        self.committer
            .submit(Vec::new(), move |changes| changes.complete(&bucket, &id, &parts, &entry, &condition))
            .await
    }

    /// Ends an upload, and removes its parts.
    ///
    /// # Errors
    ///
    /// [`StoreError::NoSuchUpload`], and those of every change ([`Store::create_bucket`]).
    pub async fn abort_upload(&self, bucket: &str, key: &str, id: &str) -> Result<(), StoreError> {
        let (bucket, key, id) = (bucket.to_owned(), key.to_owned(), id.to_owned());
        self.committer.submit(Vec::new(), move |changes| changes.abort_upload(&bucket, &key, &id)).await
    }

    /// Lists uploads in progress.
    ///
    /// # Errors
    ///
    /// [`StoreError::NoSuchBucket`], and those of [`Store::bucket`].
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
                    // A repair handles malformed names.
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
                        from = at(bucket, first_after_prefix(common));
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

/// Start of a range of uploads: key of the object, id.
type Start = Option<Bound<(Vec<u8>, String)>>;

/// Text that follows every id of a key.
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
