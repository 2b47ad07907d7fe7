//! Removes damaged records, and the data files that nothing refers to then.
//!
//! One transaction goes over everything. An operator starts it, with no server running.

use std::collections::HashSet;

use redb::{ReadableTable, Table};
use serde::de::DeserializeOwned;

use super::change::Changes;
use super::error::StoreError;
use super::extent;
use super::record::{Bucket, Object, Part, Upload};
use super::tables::*;

/// Key of an upload: its object's key, and its id.
type UploadKey = (Vec<u8>, Vec<u8>);

/// Records and files that a repair removed, or would remove.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Repaired {
    /// Objects whose records could not be read: bucket and key, as far as they are readable.
    pub objects: Vec<String>,
    /// Buckets whose records could not be read. They stay, without their tags and settings.
    pub buckets: Vec<String>,
    /// Uploads, or parts of them, whose records could not be read: they must be sent again.
    pub uploads: usize,
    /// Data files that no record refers to.
    pub files: usize,
    /// Extents of packs that no record refers to.
    pub extents: usize,
}

impl Repaired {
    /// Returns true if all was well.
    pub fn is_nothing(&self) -> bool {
        *self == Repaired::default()
    }
}

/// Formats a key for people.
fn shown(key: &[u8]) -> String {
    String::from_utf8_lossy(key).replace('\0', "/")
}

/// Returns the keys whose records can't be read, and the records of the others.
fn sort<T: DeserializeOwned>(table: &Table<'_, &[u8], &[u8]>) -> Result<(Vec<Vec<u8>>, Vec<T>), StoreError> {
    let (mut damaged, mut sound) = (Vec::new(), Vec::new());
    for entry in table.iter()? {
        let (key, record) = entry?;
        match decode(key.value(), record.value()) {
            Ok(record) => sound.push(record),
            Err(_) => damaged.push(key.value().to_vec()),
        }
    }
    Ok((damaged, sound))
}

impl Changes<'_> {
    /// Removes damaged records, and counts anew.
    pub(super) fn repair(&mut self, dry_run: bool) -> Result<Repaired, StoreError> {
        let mut repaired = Repaired::default();
        let (buckets, _) = sort::<Bucket>(&self.buckets)?;
        let (objects, sound) = sort::<Object>(&self.objects)?;
        let mut referred: HashSet<u64> = HashSet::new();
        let (mut bytes, mut stored) = (0, 0);
        for object in &sound {
            bytes += object.size;
            stored += object.segments.iter().map(|segment| segment.stored).sum::<u64>();
            referred.extend(object.segments.iter().map(|segment| segment.id));
        }
        drop(sound);
        repaired.buckets = buckets.iter().map(|key| shown(key)).collect();
        repaired.objects = objects.iter().map(|key| shown(key)).collect();
        let uploads = self.damaged_uploads()?;
        let parts = self.damaged_parts(&mut referred)?;
        repaired.uploads = uploads.len() + parts.len();
        if !dry_run {
            for key in buckets {
                self.buckets.insert(&*key, &*encode(&key, &Bucket::default()))?;
            }
            for key in objects {
                self.objects.remove(&*key)?;
                self.completed.remove(&*key)?;
            }
            for (key, id) in uploads {
                self.uploads.remove((&*key, &*id))?;
            }
            for (id, number) in parts {
                self.parts.remove((&*id, number))?;
            }
            self.state.insert(STATE_BYTES, bytes)?;
            self.state.insert(STATE_STORED, stored)?;
        }
        (repaired.files, repaired.extents) = self.remove_others(&referred, dry_run)?;
        Ok(repaired)
    }

    /// Returns the uploads whose record can't be read, as object and id.
    fn damaged_uploads(&self) -> Result<Vec<UploadKey>, StoreError> {
        let mut damaged = Vec::new();
        for entry in self.uploads.iter()? {
            let (key, record) = entry?;
            let (object, id) = key.value();
            if decode::<Upload>(&upload_key(object, id), record.value()).is_err() {
                damaged.push((object.to_vec(), id.to_vec()));
            }
        }
        Ok(damaged)
    }

    /// Returns the parts that can't be read, or whose upload can't. Adds the files of the others to `referred`.
    fn damaged_parts(&self, referred: &mut HashSet<u64>) -> Result<Vec<(Vec<u8>, u16)>, StoreError> {
        let mut ids = HashSet::new();
        for entry in self.uploads.iter()? {
            let (key, record) = entry?;
            let (object, id) = key.value();
            if decode::<Upload>(&upload_key(object, id), record.value()).is_ok() {
                ids.insert(id.to_vec());
            }
        }
        let mut damaged = Vec::new();
        for entry in self.parts.iter()? {
            let (key, record) = entry?;
            let (id, number) = key.value();
            match decode::<Part>(&part_key(id, number), record.value()) {
                Ok(part) if ids.contains(id) => drop(referred.insert(part.segment.id)),
                _ => damaged.push((id.to_vec(), number)),
            }
        }
        Ok(damaged)
    }

    /// Has files and extents removed that nothing refers to. Returns the number of each.
    fn remove_others(
        &mut self,
        referred: &HashSet<u64>,
        dry_run: bool,
    ) -> Result<(usize, usize), StoreError> {
        let mut others = Vec::new();
        for entry in self.blobs.iter()? {
            let id = entry?.0.value();
            others.extend(Some(id).filter(|id| !referred.contains(id)));
        }
        if !dry_run {
            for id in &others {
                self.discard_id(*id)?;
            }
        }
        let extents = others.iter().filter(|id| extent::is_packed(**id)).count();
        Ok((others.len() - extents, extents))
    }
}
