//! Listings: ranges of keys in the order of their UTF-8 bytes, with common prefixes grouped.

use std::ops::Bound;

use super::Store;
use super::error::StoreError;
use super::record::Object;
use super::tables::{OBJECTS, after_bucket, decode, need_bucket, object_key, split_key};

/// A request for a listing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// Prefix of the keys.
    pub prefix: String,
    /// Delimiter: keys that contain it after the prefix are listed once, as a common prefix that ends with it. An empty
    /// one counts as none.
    pub delimiter: Option<String>,
    /// Name after which the listing begins. If it is a common prefix of this listing, its keys are skipped.
    pub after: Option<String>,
    /// Most objects and common prefixes.
    pub max: usize,
}

/// A listing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListingPage {
    /// Keys and objects, in order. Segments are left out: a page of objects in ten thousand parts each would fill the
    /// memory.
    pub objects: Vec<(String, Object)>,
    /// Common prefixes, in order, as if they were keys.
    pub prefixes: Vec<String>,
    /// `after` of the next page, if there is more.
    pub next: Option<String>,
}

impl Store {
    /// Lists objects. Keys with a common prefix are skipped, not walked. A key whose record can't be read is listed as
    /// [`Object::unreadable`].
    ///
    /// # Errors
    ///
    /// [`StoreError::NoSuchBucket`], [`StoreError::Database`].
    pub fn list(&self, bucket: &str, listing: &Listing) -> Result<ListingPage, StoreError> {
        let mut listed = ListingPage::default();
        let grouping = Grouping { prefix: &listing.prefix, delimiter: listing.delimiter.as_deref() };
        let mut from = grouping.start(listing.after.as_deref());
        let end = after_bucket(bucket);
        let mut last = None;
        self.read_settled(|reading| {
            need_bucket(reading, bucket)?;
            let table = reading.open_table(OBJECTS)?;
            'seek: while let Some(bound) = from.take() {
                let bound = bound.map(|key| object_key(bucket, &key));
                let range = (bound.as_ref().map(|key| &**key), Bound::Excluded(&*end));
                for entry in table.range::<&[u8]>(range)? {
                    let (bytes, record) = entry?;
                    // A repair handles malformed names.
                    let Ok((_, key)) = split_key(bytes.value()) else { continue };
                    if !key.starts_with(&listing.prefix) {
                        return Ok(());
                    }
                    if listed.objects.len() + listed.prefixes.len() >= listing.max {
                        listed.next = last.take();
                        return Ok(());
                    }
                    if let Some(common) = grouping.common(key) {
                        listed.prefixes.push(common.to_owned());
                        last = Some(common.to_owned());
                        from = first_after_prefix(common);
                        continue 'seek;
                    }
                    let object = decode(bytes.value(), record.value());
                    let mut object: Object = object.unwrap_or_else(|why| Object::unreadable(&why));
                    object.segments = Vec::new();
                    listed.objects.push((key.to_owned(), object));
                    last = Some(key.to_owned());
                }
            }
            Ok(())
        })?;
        Ok(listed)
    }
}

/// Grouping of keys into common prefixes.
pub(super) struct Grouping<'a> {
    pub(super) prefix: &'a str,
    pub(super) delimiter: Option<&'a str>,
}

impl Grouping<'_> {
    /// Returns the common prefix under which a key with the listing's prefix is listed.
    pub(super) fn common<'k>(&self, key: &'k str) -> Option<&'k str> {
        let delimiter = self.delimiter.filter(|delimiter| !delimiter.is_empty())?;
        let at = key.strip_prefix(self.prefix)?.find(delimiter)?;
        Some(&key[..self.prefix.len() + at + delimiter.len()])
    }

    /// Returns the start of a listing; `None` if nothing can follow `after`.
    pub(super) fn start(&self, after: Option<&str>) -> Option<Bound<String>> {
        match after {
            Some(after) if self.common(after) == Some(after) => first_after_prefix(after),
            Some(after) if after >= self.prefix => Some(Bound::Excluded(after.to_owned())),
            _ => Some(Bound::Included(self.prefix.to_owned())),
        }
    }
}

/// Returns the first text after all that begin with `prefix`; `None` if there is none. Characters are ordered like
/// their UTF-8.
pub(super) fn first_after_prefix(prefix: &str) -> Option<Bound<String>> {
    let mut text = prefix.to_owned();
    while let Some(last) = text.pop() {
        let next = (u32::from(last) + 1..=u32::from(char::MAX)).find_map(char::from_u32);
        if let Some(next) = next {
            text.push(next);
            return Some(Bound::Included(text));
        }
    }
    None
}
