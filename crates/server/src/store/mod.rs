//! Buckets, objects and uploads: records in a database, data in files. Small objects share files.
//!
//! # Architecture
//!
//! ```text
//!   DIR/lock                 locked while a server has the folder open
//!   DIR/meta.redb            the database: every record
//!   DIR/data/1f/0000000000007c3a    a data file: a whole object, or a part of one. Up to 1024 a folder
//!   DIR/packs/0000000000007c3b      a pack: small objects, up to 64 MiB
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | [`record`] | the records |
//! | `tables` | how they lie in the database |
//! | `database` | its file |
//! | `durability` | when a change is acknowledged |
//! | `folder` | data files, their ids, drafts |
//! | `pack`, `extent` | files that small objects share; runs of blocks in them |
//! | `held` | files that are read later |
//! | `commit` | group commit |
//! | `journal` | commits of small objects, made durable with their data |
//! | `waiting` | small objects that the journal has and the database takes later |
//! | `change` | what operations do inside a transaction |
//! | `list`, `uploads` | listings; multipart uploads |
//! | `trace` | tells tests what is written and synced |
//! | `repair` | removes what can't be read |
//! | `sweep`, `recover` | removal of files: of what was replaced, of what a crash left |
//!
//! **Puts.** A [`Draft`] is a data file under its final name that no record refers to. It is filled, then
//! [`Store::put`] commits a record that does. A reader sees the old object or the new one. What was replaced becomes
//! garbage in the same transaction, and its files are removed afterwards; a reader that has one open reads on. A small
//! object's draft is in memory, and its bytes are written together with all that wait, and with the change of the
//! database: one sync makes them all durable.
//!
//! **What a crash loses**: nothing that was acknowledged, as far as [`Durability`] says. An operation in progress has
//! happened or not, never by half, and leaves no file behind.
//!
//! **A start after a crash** checks the files of operations that were in flight, not all files. The database is read
//! through once, which takes some tenths of a second for a million objects in the page cache; to avoid that, every
//! commit would have to wait for the disk twice.
//!
//! **A failed sync** loses what it should have written, though memory still shows it. The store does not build on that:
//! it reads the database from the disk again, or stops.
//!
//! **Checks.** Every record has a checksum, which is checked when it is read. Data files are checked for their length
//! here, and for their digests by their readers. The database's own pages are checked only after a crash.

mod change;
mod commit;
#[cfg(test)]
mod crash_tests;
mod database;
mod durability;
mod error;
mod extent;
mod folder;
mod held;
mod journal;
mod kill_points;
mod list;
mod pack;
#[cfg(test)]
mod power_tests;
pub mod record;
mod recover;
mod repair;
mod sweep;
mod tables;
mod trace;
mod uploads;
mod waiting;

use std::fmt;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::num::NonZeroU64;
use std::ops::{Bound, Range};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock};

use redb::{ReadTransaction, ReadableDatabase, ReadableTable, ReadableTableMetadata};

pub use change::Condition;
pub use durability::Durability;
pub use error::StoreError;
pub use extent::place;
pub(crate) use folder::RESERVE;
pub use folder::{Draft, Target};
pub use held::{HeldSegment, Moment};
pub use list::{Listing, ListingPage};
pub use record::{Bucket, Object, Part, Segment, Upload};
pub use recover::Recovery;
pub use repair::Repaired;
pub use uploads::{ListedUploads, UploadListing};

use change::{Entry, NewPut};
use commit::{Committer, Shared};
use extent::Extent;
use folder::Folder;
use journal::Journal;
use tables::*;
use waiting::Waiting;

/// Settings of a store.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Durability of a change when it is acknowledged.
    pub durability: Durability,
    /// Largest object that shares a file with others, in bytes. At most [`PACK_MAX`].
    pub pack: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { durability: Durability::default(), pack: PACK_DEFAULT }
    }
}

/// Default of [`Options::pack`].
pub const PACK_DEFAULT: u64 = 64 << 10;

/// Largest [`Options::pack`]: the data of packs are in memory until their commit, and when they are sent.
pub const PACK_MAX: u64 = 128 << 10;

/// Most bytes that wait in memory for their commit. Beyond that, small objects have a file each.
const WAITING_MAX: u64 = 64 << 20;

/// A segment's data, opened for reading.
#[derive(Debug)]
pub struct Opened {
    /// File that they are in. Other readers may have the same.
    pub file: Arc<File>,
    /// Range of the file, in bytes.
    pub range: Range<u64>,
    /// True if others share the file: it is still written to, and these bytes stay only until this is dropped.
    pub is_packed: bool,
    _hold: Option<held::Hold>,
}

impl Opened {
    /// Appends a range of the bytes to `to` if all of them are in memory and share a file. Returns true if it did.
    pub fn from_memory(&self, range: Range<u64>, to: &mut Vec<u8>) -> bool {
        let (begin, length) = (to.len(), (range.end - range.start) as usize);
        if !self.is_packed {
            return false;
        }
        to.resize(begin + length, 0);
        let mut room = [io::IoSliceMut::new(&mut to[begin..])];
        let at = self.range.start + range.start;
        let read = rustix::io::preadv2(&self.file, &mut room, at, rustix::io::ReadWriteFlags::NOWAIT);
        let has_all = read == Ok(length);
        to.truncate(if has_all { begin + length } else { begin });
        has_all
    }

    /// Reads all of the bytes.
    ///
    /// # Errors
    ///
    /// Fails if the file can't be read.
    pub fn read(&self) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; (self.range.end - self.range.start) as usize];
        self.file.read_exact_at(&mut bytes, self.range.start).map(|()| bytes)
    }
}

/// Numbers of objects and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Buckets.
    pub buckets: u64,
    /// Objects in them.
    pub objects: u64,
    /// Uploads in progress.
    pub uploads: u64,
    /// Plain bytes of the objects.
    pub bytes: u64,
    /// Bytes of the objects at rest.
    pub stored: u64,
}

/// Bucket, key, and the object or the reason why its record can't be read.
pub type Recorded = (String, String, Result<Object, StoreError>);

/// Storage of a server. Reads see what was committed when they began; those of more than one object first have the
/// database take what waits for it. Changes wait for their commit, which they share. Dropping it commits what waits.
pub struct Store {
    // Stopped first, because it uses the others.
    committer: Committer,
    database: Shared,
    waiting: Arc<Waiting>,
    folder: Arc<Folder>,
    options: Options,
    quarantined: AtomicU64,
    _lock: File,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("data", &self.folder.data()).finish_non_exhaustive()
    }
}

impl Store {
    /// Opens the store in `dir`, or makes one if `dir` does not exist or is empty.
    ///
    /// # Errors
    ///
    /// [`StoreError::InUse`], [`StoreError::Foreign`], [`StoreError::Format`]; [`StoreError::Database`] if the database
    /// is malformed or damaged; [`StoreError::Io`].
    pub fn open(dir: &Path, options: Options) -> Result<(Arc<Self>, Recovery), StoreError> {
        folder::make_folder(dir)?;
        let path = dir.join("meta.redb");
        if !path.try_exists().map_err(StoreError::io("look at", &path))? {
            check_is_empty(dir)?;
        }
        let lock = lock(dir)?;
        if !path.try_exists().map_err(StoreError::io("look at", &path))? {
            database::create(dir)?;
        }
        let options = Options { pack: options.pack.min(PACK_MAX), ..options };
        let durability = options.durability;
        database::heed_mark(&path)?;
        let unsynced = Arc::default();
        let (database, crashed) = database::open(&path, durability != Durability::None, &unsynced)?;
        database::take_format(&database)?;
        folder::make_folder(&dir.join("packs"))?;
        if durability != Durability::None {
            folder::sync_folder(dir)?;
        }
        // Records hold more than objects' readers may know, and older programs let everybody read them.
        for name in ["lock", "meta.redb", "data", "packs"] {
            folder::close_to_others(&dir.join(name))?;
        }
        let end = database::state(&database, STATE_END)?;
        let folder = Arc::new(Folder::new(dir, end, end + folder::RANGE)?);
        let (next, _) = journal::replay(&database, &folder, durability, u64::MAX)?;
        let mark = journal::new_mark()?;
        let recovery = recover::clean_up(&database, &folder, durability, crashed, mark)?;
        let journal = Journal::new(mark, next);
        let database = Arc::new(RwLock::new(Some(database)));
        let (waiting, opened) = (Arc::<Waiting>::default(), database.clone());
        let committer =
            Committer::start(opened, path, folder.clone(), durability, unsynced, journal, waiting.clone())?;
        Ok((
            Arc::new(Self {
                committer,
                database,
                waiting,
                folder,
                options,
                quarantined: AtomicU64::new(0),
                _lock: lock,
            }),
            recovery,
        ))
    }

    /// Returns the durability of changes when they are acknowledged.
    pub fn durability(&self) -> Durability {
        self.options.durability
    }

    fn read<T>(&self, read: impl FnOnce(&ReadTransaction) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let database = self.database.read().expect("readers do not panic");
        let database = database.as_ref().ok_or(StoreError::Closed)?;
        self.noted(database.begin_read().map_err(Into::into).and_then(|reading| read(&reading)))
    }

    /// Has the committer look at a database that has failed: it refuses all that is not in memory until it is opened
    /// again, and commits of the journal alone do not notice.
    fn noted<T>(&self, result: Result<T, StoreError>) -> Result<T, StoreError> {
        if matches!(result, Err(StoreError::Database(_))) {
            self.committer.look();
        }
        result
    }

    /// Has the database take the small objects that wait for it, beside the calling task: [`Store::list`] and other reads
    /// of more than one object have little left to wait for then.
    ///
    /// # Errors
    ///
    /// [`StoreError::Database`], [`StoreError::Closed`].
    pub async fn settle(self: &Arc<Store>) -> Result<(), StoreError> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let store = self.clone();
        let settled = tokio::task::spawn_blocking(move || store.read_settled(|_| Ok(())));
        settled.await.unwrap_or(Err(StoreError::Closed))
    }

    /// Reads tables that a put of a small object changes.
    fn read_settled<T>(
        &self,
        read: impl FnOnce(&ReadTransaction) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let database = self.database.read().expect("readers do not panic");
        let database = database.as_ref().ok_or(StoreError::Closed)?;
        let settled = self.waiting.settle(database);
        self.noted(settled.and_then(|()| read(&database.begin_read()?)))
    }

    /// Returns a bucket's record.
    ///
    /// # Errors
    ///
    /// [`StoreError::Damaged`], [`StoreError::Database`], as for every read of records.
    pub fn bucket(&self, name: &str) -> Result<Option<Bucket>, StoreError> {
        let key = name.as_bytes();
        self.read(|reading| {
            let record = reading.open_table(BUCKETS)?.get(key)?;
            record.map(|record| decode(key, record.value())).transpose()
        })
    }

    /// Returns all buckets with their names, in order.
    ///
    /// # Errors
    ///
    /// The errors of [`Store::bucket`].
    pub fn buckets(&self) -> Result<Vec<(String, Bucket)>, StoreError> {
        self.read(|reading| {
            let mut buckets = Vec::new();
            for entry in reading.open_table(BUCKETS)?.iter()? {
                let (key, record) = entry?;
                // A bucket whose record can't be read still exists.
                let bucket = decode(key.value(), record.value()).unwrap_or_default();
                buckets.push((String::from_utf8_lossy(key.value()).into_owned(), bucket));
            }
            Ok(buckets)
        })
    }

    /// Makes a bucket.
    ///
    /// # Errors
    ///
    /// [`StoreError::BucketExists`]; [`StoreError::Invalid`] for a name with a zero byte; and those of every change:
    /// [`StoreError::NoSpace`], [`StoreError::Io`], [`StoreError::Database`], [`StoreError::Damaged`],
    /// [`StoreError::Closed`].
    pub async fn create_bucket(&self, name: &str, bucket: Bucket) -> Result<(), StoreError> {
        if name.contains('\0') {
            return Err(StoreError::Invalid("a zero byte in a bucket's name"));
        }
        let name = name.to_owned();
        self.committer.submit(Vec::new(), move |changes| changes.create_bucket(&name, &bucket)).await
    }

    /// Deletes a bucket without objects. Its uploads are aborted.
    ///
    /// # Errors
    ///
    /// [`StoreError::NoSuchBucket`], [`StoreError::BucketNotEmpty`], and those of every change
    /// ([`Store::create_bucket`]).
    pub async fn delete_bucket(&self, name: &str) -> Result<(), StoreError> {
        let name = name.to_owned();
        self.committer.submit(Vec::new(), move |changes| changes.delete_bucket(&name)).await
    }

    /// Changes a bucket's record. `change` runs on the thread that commits, and must be quick.
    ///
    /// # Errors
    ///
    /// [`StoreError::NoSuchBucket`], and those of every change ([`Store::create_bucket`]).
    pub async fn change_bucket(
        &self,
        name: &str,
        change: impl FnOnce(&mut Bucket) + Send + 'static,
    ) -> Result<(), StoreError> {
        let name = name.to_owned();
        self.committer.submit(Vec::new(), move |changes| changes.change_bucket(&name, change)).await
    }

    /// Returns an object's record.
    ///
    /// # Errors
    ///
    /// The errors of [`Store::bucket`]. A missing bucket has no objects.
    pub fn object(&self, bucket: &str, key: &str) -> Result<Option<Object>, StoreError> {
        let key = object_key(bucket, key);
        if let Some(waiting) = self.waiting.newest(&key) {
            return decode(&key, &waiting.record).map(Some);
        }
        self.read(|reading| {
            let record = reading.open_table(OBJECTS)?.get(&*key)?;
            record.map(|record| decode(&key, record.value())).transpose()
        })
    }

    /// Returns the present moment, to read a record after it whose segment will be opened.
    pub fn now(&self) -> Moment {
        self.folder.holds().now()
    }

    /// Opens a segment for reading. It can be read to its end whatever happens to the object.
    ///
    /// # Errors
    ///
    /// [`StoreError::NotFound`] if the object was replaced since its record was read: read it again, and take it for
    /// damaged if the record is unchanged; [`StoreError::Damaged`] for data of the wrong length; [`StoreError::Io`].
    pub fn open_segment(&self, segment: &Segment) -> Result<Opened, StoreError> {
        self.open_segment_of(segment, None)
    }

    /// Opens a segment as [`Store::open_segment`] does, with less work if its record was read after a moment that is
    /// told.
    ///
    /// # Errors
    ///
    /// The errors of [`Store::open_segment`].
    pub fn open_segment_of(
        &self,
        segment: &Segment,
        read_after: Option<Moment>,
    ) -> Result<Opened, StoreError> {
        let Some(extent) = Extent::of(segment.id) else {
            let file = Arc::new(self.folder.open(segment)?);
            return Ok(Opened { file, range: 0..segment.stored, is_packed: false, _hold: None });
        };
        let (hold, is_there) = match read_after {
            Some(moment) => held::Hold::since(&self.folder, segment.id, moment),
            None => (held::Hold::new(&self.folder, vec![segment.id]), false),
        };
        // Once held, a segment that is still referred to cannot have been removed, and will not be.
        let is_referred = is_there
            || self.waiting.has_segment(segment.id)
            || self.read(|reading| Ok(reading.open_table(BLOBS)?.get(segment.id)?.is_some()))?;
        if !is_referred {
            return Err(StoreError::NotFound);
        }
        let file = self.folder.open_pack(segment, extent)?;
        let range = extent.bytes().start..extent.bytes().start + segment.stored;
        Ok(Opened { file, range, is_packed: true, _hold: Some(hold) })
    }

    /// Holds segments of an object, so that their files can be opened one after the other, whatever happens
    /// to the object meanwhile.
    ///
    /// # Errors
    ///
    /// The errors of [`Store::open_segment`], for any of them: the object was replaced since its record was read, or a file
    /// is damaged.
    pub fn hold(
        &self,
        (bucket, key): (&str, &str),
        object: &Object,
        segments: &[&Segment],
    ) -> Result<Vec<HeldSegment>, StoreError> {
        if segments.iter().any(|segment| segment.is_packed()) {
            return Err(StoreError::Invalid("several segments that share a file"));
        }
        let ids = segments.iter().map(|segment| segment.id).collect();
        let hold = Arc::new(held::Hold::new(&self.folder, ids));
        // Once held, a segment that is still referred to cannot have been removed, and will not be.
        if self.object(bucket, key)?.is_none_or(|now| now.segments != object.segments) {
            return Err(StoreError::NotFound);
        }
        segments
            .iter()
            .map(|segment| self.folder.look(segment).map(|()| HeldSegment::new(&hold, segment)))
            .collect()
    }

    /// Opens a segment so that it is read from the disk rather than from the page cache. Pages of a pack that are in
    /// one folio with a neighbour's may stay cached.
    ///
    /// # Errors
    ///
    /// The errors of [`Store::open_segment`].
    pub fn open_on_disk(&self, segment: &Segment) -> Result<Opened, StoreError> {
        let (mut opened, path) = (self.open_segment(segment)?, self.folder.path(segment.id));
        // Opened for this alone: an error of what was written before is no matter of this segment.
        opened.file = Arc::new(self.folder.open(segment)?);
        // Only pages that are on the disk can be dropped.
        opened.file.sync_data().map_err(StoreError::io("sync", &path))?;
        // All of its blocks, since the kernel does not drop a page in part.
        let range = Extent::of(segment.id).map_or(0..segment.stored, Extent::bytes);
        let length = NonZeroU64::new(range.end - range.start);
        rustix::fs::fadvise(&opened.file, range.start, length, rustix::fs::Advice::DontNeed)
            .map_err(|error| StoreError::io("forget what is in memory of", &path)(error.into()))?;
        Ok(opened)
    }

    /// Makes a new data file. Once in some thousand calls it waits for a commit.
    ///
    /// # Errors
    ///
    /// [`StoreError::NoSpace`] if the file system is nearly full, [`StoreError::Io`], [`StoreError::Closed`].
    pub fn draft(&self) -> Result<Draft, StoreError> {
        self.draft_for(0)
    }

    /// Makes a new data file for this many bytes.
    ///
    /// # Errors
    ///
    /// The errors of [`Store::draft`], and [`StoreError::NoSpace`] if there is no room for this many.
    pub fn draft_for(&self, bytes: u64) -> Result<Draft, StoreError> {
        self.check_room(bytes)?;
        self.with_ids(|| Ok(self.folder.draft()?.map(|(draft, left)| (draft, Some(left)))))
    }

    /// Makes a draft for an object of `size` bytes, at most `stored` at rest: in memory if it is small, else a file,
    /// for which `room` bytes must be free.
    ///
    /// # Errors
    ///
    /// The errors of [`Store::draft_for`].
    pub fn draft_of(&self, size: u64, stored: u64, room: u64) -> Result<Draft, StoreError> {
        // The drafts that wait need room as well.
        let waiting = self.folder.waiting().saturating_add(stored);
        if self.options.pack == 0 || size > self.options.pack || waiting > WAITING_MAX {
            return self.draft_for(room);
        }
        self.check_room(waiting)?;
        self.with_ids(|| self.folder.packed_draft(stored))
    }

    /// Takes a draft if there are ids, and requests more in time.
    fn with_ids(
        &self,
        take: impl Fn() -> Result<Option<(Draft, Option<u64>)>, StoreError>,
    ) -> Result<Draft, StoreError> {
        loop {
            match take()? {
                // Nothing waits for these: they come with a later commit.
                Some((draft, Some(left))) if left == folder::RANGE / 4 => {
                    self.committer.more_ids()?;
                    return Ok(draft);
                }
                Some((draft, _)) => return Ok(draft),
                None => self.committer.more_ids()?.recv().unwrap_or(Err(StoreError::Closed))?,
            }
        }
    }

    /// Checks that the file system has room for this many bytes.
    ///
    /// # Errors
    ///
    /// [`StoreError::NoSpace`] if it has not, [`StoreError::Io`].
    pub fn check_room(&self, bytes: u64) -> Result<(), StoreError> {
        if self.folder.has_room(bytes)? { Ok(()) } else { Err(StoreError::NoSpace) }
    }

    /// Returns the free bytes of the file system, and true if they are enough for new objects.
    ///
    /// # Errors
    ///
    /// [`StoreError::Io`].
    pub fn free(&self) -> Result<(u64, bool), StoreError> {
        Ok((self.folder.free()?, self.folder.has_room(0)?))
    }

    /// Returns true if changes can be made: the thread that commits them runs, and the database is open.
    pub fn takes_changes(&self) -> bool {
        self.committer.is_there() && self.database.read().is_ok_and(|database| database.is_some())
    }

    /// Returns the number of objects that [`Store::quarantine`] has marked since the store was opened.
    pub fn quarantined(&self) -> u64 {
        self.quarantined.load(Ordering::Relaxed)
    }

    /// Puts an object, and replaces any object of that key. Its segments are the drafts, complete and in their order.
    ///
    /// # Errors
    ///
    /// [`StoreError::NoSuchBucket`]; [`StoreError::ConditionFailed`], or [`StoreError::NoSuchKey`] if there is no
    /// object to match; [`StoreError::Invalid`]; and those of every change ([`Store::create_bucket`]). The drafts are
    /// removed then.
    pub async fn put(
        &self,
        bucket: &str,
        key: &str,
        object: Object,
        drafts: Vec<Draft>,
        condition: Condition,
    ) -> Result<(), StoreError> {
        if !object.segments.iter().map(|segment| segment.id).eq(drafts.iter().map(Draft::id)) {
            return Err(StoreError::Invalid("the segments are not the drafts"));
        }
        if !drafts.iter().zip(&object.segments).all(|(draft, segment)| draft.is_of(segment)) {
            return Err(StoreError::Invalid("a segment is longer or shorter than its data"));
        }
        let entry = Arc::new(Entry::new(bucket, key, object));
        let in_packs = !drafts.is_empty() && drafts.iter().all(|draft| !draft.is_file());
        let journaled = in_packs.then(|| entry.journaled());
        let put = NewPut { bucket: bucket.to_owned(), entry, condition };
        self.committer.submit_put(drafts, journaled, put).await
    }

    /// Changes an object's record, except for its size and segments. `change` runs on the thread that
    /// commits, and must be quick.
    ///
    /// # Errors
    ///
    /// [`StoreError::NoSuchBucket`], [`StoreError::NoSuchKey`], and those of every change
    /// ([`Store::create_bucket`]).
    pub async fn change_object(
        &self,
        bucket: &str,
        key: &str,
        change: impl FnOnce(&mut Object) + Send + 'static,
    ) -> Result<(), StoreError> {
        let (bucket, key) = (bucket.to_owned(), key.to_owned());
        self.committer.submit(Vec::new(), move |changes| changes.change_object(&bucket, &key, change)).await
    }

    /// Deletes objects. Returns for each whether it existed.
    ///
    /// # Errors
    ///
    /// [`StoreError::NoSuchBucket`], and those of every change ([`Store::create_bucket`]).
    pub async fn delete(&self, bucket: &str, keys: Vec<String>) -> Result<Vec<bool>, StoreError> {
        let keys = keys.into_iter().map(|key| (key, Condition::None)).collect();
        self.delete_if(bucket, keys).await?.into_iter().collect()
    }

    /// Deletes objects whose conditions hold. Returns for each whether it existed, or that its condition does not hold
    /// ([`StoreError::ConditionFailed`], or [`StoreError::NoSuchKey`] if there is no object to match).
    ///
    /// # Errors
    ///
    /// The errors of [`Store::delete`].
    pub async fn delete_if(
        &self,
        bucket: &str,
        keys: Vec<(String, Condition)>,
    ) -> Result<Vec<Result<bool, StoreError>>, StoreError> {
        let bucket = bucket.to_owned();
        self.committer.submit(Vec::new(), move |changes| changes.delete(&bucket, &keys)).await
    }

    /// Marks an object whose data in that segment were found to be wrong. Returns true if it did: an object that does
    /// not have that segment (any more) is left alone.
    ///
    /// # Errors
    ///
    /// The errors of every change ([`Store::create_bucket`]).
    pub async fn quarantine(
        &self,
        bucket: &str,
        key: &str,
        segment: u64,
        reason: String,
    ) -> Result<bool, StoreError> {
        let (bucket, key) = (bucket.to_owned(), key.to_owned());
        let marked = self
            .committer
            .submit(Vec::new(), move |changes| changes.quarantine(&bucket, &key, segment, reason))
            .await?;
        self.quarantined.fetch_add(marked.into(), Ordering::Relaxed);
        Ok(marked)
    }

    /// Returns true if this upload made the object of that key.
    ///
    /// # Errors
    ///
    /// The errors of [`Store::bucket`].
    pub fn is_of_upload(&self, bucket: &str, key: &str, id: &str) -> Result<bool, StoreError> {
        let key = object_key(bucket, key);
        self.read_settled(|reading| {
            let found = reading.open_table(COMPLETED)?.get(&*key)?;
            Ok(found.is_some_and(|found| found.value() == id.as_bytes()))
        })
    }

    /// Removes records that can't be read, and data that no record refers to, and counts anew. `dry_run` only reports.
    ///
    /// # Errors
    ///
    /// The errors of every change ([`Store::create_bucket`]).
    pub async fn repair(&self, dry_run: bool) -> Result<Repaired, StoreError> {
        self.committer.submit(Vec::new(), move |changes| changes.repair(dry_run)).await
    }

    /// Returns up to `max` objects of all buckets, in order, after that bucket and key: an error for each whose record
    /// can't be read.
    ///
    /// # Errors
    ///
    /// The errors of [`Store::bucket`].
    pub fn objects_after(
        &self,
        after: Option<(String, String)>,
        max: usize,
    ) -> Result<Vec<Recorded>, StoreError> {
        let after = after.map(|(bucket, key)| object_key(&bucket, &key));
        let from = after.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let mut last = after.clone();
        self.read_settled(|reading| {
            let mut objects = Vec::new();
            for entry in reading.open_table(OBJECTS)?.range::<&[u8]>((from, Bound::Unbounded))? {
                if objects.len() == max {
                    break;
                }
                let (key, record) = entry?;
                // A caller that continues from the last key of a page would loop without end.
                if last.as_deref().is_some_and(|last| last >= key.value()) {
                    return Err(StoreError::Damaged("the database: its keys are out of order".into()));
                }
                last = Some(key.value().to_vec());
                let object = decode(key.value(), record.value());
                // A repair handles malformed names.
                let Ok((bucket, key)) = split_key(key.value()) else { continue };
                objects.push((bucket.to_owned(), key.to_owned(), object));
            }
            Ok(objects)
        })
    }

    /// Returns the numbers of objects and bytes, in constant time.
    ///
    /// # Errors
    ///
    /// The errors of [`Store::bucket`].
    pub fn usage(&self) -> Result<Usage, StoreError> {
        self.read_settled(|reading| {
            let state = reading.open_table(STATE)?;
            let number = |name| Ok::<_, StoreError>(state.get(name)?.map_or(0, |value| value.value()));
            Ok(Usage {
                buckets: reading.open_table(BUCKETS)?.len()?,
                objects: reading.open_table(OBJECTS)?.len()?,
                uploads: reading.open_table(UPLOADS)?.len()?,
                bytes: number(STATE_BYTES)?,
                stored: number(STATE_STORED)?,
            })
        })
    }
}

/// Refuses a folder without a database that holds anything but what an interrupted [`Store::open`] leaves.
fn check_is_empty(dir: &Path) -> Result<(), StoreError> {
    for entry in fs::read_dir(dir).map_err(StoreError::io("read", dir))? {
        let name = entry.map_err(StoreError::io("read", dir))?.file_name();
        let data = dir.join("data");
        let is_ours = match name.to_str() {
            Some("lock" | "meta.redb.new" | "lost+found") => true,
            // Data files without a database are refused rather than given a new database.
            Some("data") => fs::read_dir(&data).map_err(StoreError::io("read", &data))?.next().is_none(),
            _ => false,
        };
        if !is_ours {
            return Err(StoreError::Foreign(dir.to_owned()));
        }
    }
    Ok(())
}

fn lock(dir: &Path) -> Result<File, StoreError> {
    let path = dir.join("lock");
    let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
    let file = file.map_err(StoreError::io("open", &path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(StoreError::InUse(dir.to_owned())),
        Err(TryLockError::Error(error)) => Err(StoreError::io("lock", &path)(error)),
    }
}
