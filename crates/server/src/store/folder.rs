//! The folder: its data files, their ids, and drafts.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use super::error::StoreError;
use super::held::Holds;
use super::inline;
use super::trace;

/// Ids that are reserved at a time.
pub(super) const RANGE: u64 = 4096;

/// Bits of an id that are not in its folder's name: up to 1024 files a folder.
const FOLDER_BITS: u32 = 10;

/// Below this much room no draft is begun: a database that copies on write needs some even to delete.
pub(crate) const RESERVE: u64 = 32 << 20;

/// The folder of a store.
#[derive(Debug)]
pub(super) struct Folder {
    data: PathBuf,
    handle: File,
    ids: Mutex<Ids>,
    /// Data folders whose own names are perhaps not durable yet.
    made: Mutex<BTreeSet<u64>>,
    holds: Holds,
}

/// Which ids are handed out.
#[derive(Debug, Default)]
struct Ids {
    next: u64,
    end: u64,
    /// Those of drafts, and of files of which it is not known whether a record refers to them.
    in_flight: BTreeSet<u64>,
}

impl Folder {
    /// Opens the folder `root`, of which ids below `next` have been used.
    pub(super) fn new(root: &Path, next: u64, end: u64) -> Result<Self, StoreError> {
        let handle = File::open(root).map_err(StoreError::io("open", root))?;
        let ids = Mutex::new(Ids { next, end, in_flight: BTreeSet::new() });
        Ok(Self { data: root.join("data"), handle, ids, made: Mutex::default(), holds: Holds::default() })
    }

    fn ids(&self) -> MutexGuard<'_, Ids> {
        self.ids.lock().expect("no code that holds it panics")
    }

    /// The number of the folder that a file is in.
    pub(super) fn number(id: u64) -> u64 {
        id >> FOLDER_BITS
    }

    /// The folder of data folders.
    pub(super) fn data(&self) -> &Path {
        &self.data
    }

    /// The path of a data folder.
    pub(super) fn subfolder(&self, number: u64) -> PathBuf {
        self.data.join(format!("{number:x}"))
    }

    /// The path of a data file.
    pub(super) fn path(&self, id: u64) -> PathBuf {
        self.subfolder(Self::number(id)).join(format!("{id:016x}"))
    }

    /// The files that are held.
    pub(super) fn holds(&self) -> &Holds {
        &self.holds
    }

    /// True if the file system has room for more than deletions, and this many bytes.
    pub(super) fn has_room(&self, bytes: u64) -> Result<bool, StoreError> {
        Ok(self.free()? >= RESERVE.saturating_add(bytes))
    }

    /// Bytes that the file system has left.
    pub(super) fn free(&self) -> Result<u64, StoreError> {
        let stat = rustix::fs::fstatvfs(&self.handle)
            .map_err(|error| StoreError::io("statvfs", &self.data)(error.into()))?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    /// Makes a new file for the next id; `None` where no reserved id is left. Says how many are left after
    pub(super) fn draft(self: &Arc<Self>) -> Result<Option<(Draft, u64)>, StoreError> {
        while let Some((id, left)) = self.next_id() {
            match self.create(id) {
                Ok(file) => {
                    let content = Content::File(file);
                    return Ok(Some((Draft { id, content, folder: self.clone(), kept: false }, left)));
                }
                // The database is an older one than the files.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => self.landed(id),
                Err(error) => {
                    self.landed(id);
                    return Err(StoreError::io("create", &self.path(id))(error));
                }
            }
        }
        Ok(None)
    }

    /// A draft in memory, with the next id; `None` where no reserved id is left. Says how many are left after.
    pub(super) fn inline_draft(self: &Arc<Self>) -> Option<(Draft, u64)> {
        let mut ids = self.ids();
        if ids.next == ids.end {
            return None;
        }
        let id = inline::id(ids.next);
        ids.next += 1;
        let content = Content::Inline(Vec::new());
        Some((Draft { id, content, folder: self.clone(), kept: false }, ids.end - ids.next))
    }

    fn next_id(&self) -> Option<(u64, u64)> {
        let mut ids = self.ids();
        if ids.next == ids.end {
            return None;
        }
        let id = ids.next;
        ids.next += 1;
        ids.in_flight.insert(id);
        Some((id, ids.end - ids.next))
    }

    /// Empty folders are removed at any time, so that one may vanish between its making and the file's.
    fn create(&self, id: u64) -> io::Result<File> {
        let path = self.path(id);
        let mut tries = 0;
        loop {
            match OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path) {
                Err(error) if error.kind() == ErrorKind::NotFound && tries < 8 => tries += 1,
                result => return result.inspect(|_| trace::made_file(&path)),
            }
            self.make_subfolder(Self::number(id))?;
        }
    }

    /// The lock is held meanwhile, so that nobody's draft in it is committed before it is known to be new.
    fn make_subfolder(&self, number: u64) -> io::Result<()> {
        let mut made = self.made();
        let path = self.subfolder(number);
        match trace::makes_folder(&path, || fs::create_dir(&path)) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
            _ => made.insert(number),
        };
        Ok(())
    }

    fn made(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        self.made.lock().expect("no code that holds it panics")
    }

    /// Makes the names of these files durable.
    pub(super) fn sync_names(&self, ids: impl Iterator<Item = u64>) -> Result<(), StoreError> {
        let numbers: BTreeSet<u64> = ids.map(Self::number).collect();
        for number in &numbers {
            sync_folder(&self.subfolder(*number))?;
        }
        let made = std::mem::take(&mut *self.made());
        if made.is_empty() {
            return Ok(());
        }
        sync_folder(&self.data).inspect_err(|_| self.made().extend(made))
    }

    /// Removes a file, if it is there. Says whether it was.
    pub(super) fn remove(&self, id: u64) -> Result<bool, StoreError> {
        let path = self.path(id);
        trace::removes(&path);
        match fs::remove_file(&path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(StoreError::io("remove", &path)(error)),
        }
    }

    /// The reservation to be written into the database so that more ids can be handed out: the lowest id in
    /// flight and the new end; `None` where half of a range is left.
    pub(super) fn reservation(&self) -> Option<(u64, u64)> {
        let ids = self.ids();
        let floor = ids.in_flight.first().copied().unwrap_or(ids.next);
        (ids.end - ids.next < RANGE / 2).then_some((floor, ids.end + RANGE))
    }

    /// Says that the reservation is in the database.
    pub(super) fn reserved(&self, end: u64) {
        self.ids().end = end;
    }

    /// Files that no record refers to, and that can't be removed: they stay in what the next start looks at.
    pub(super) fn left(&self, ids: &[u64]) {
        self.ids().in_flight.extend(ids);
    }

    fn landed(&self, id: u64) {
        self.ids().in_flight.remove(&id);
    }
}

/// Makes a folder for its owner alone, and those above it, where they are not there.
pub(super) fn make_folder(path: &Path) -> Result<(), StoreError> {
    let make = || trace::makes_folder(path, || fs::DirBuilder::new().mode(0o700).create(path));
    let made = match (make(), path.parent()) {
        (Err(error), Some(above)) if error.kind() == ErrorKind::NotFound => {
            make_folder(above)?;
            make()
        }
        (made, _) => made,
    };
    match made {
        Err(error) if error.kind() == ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        made => made.map_err(StoreError::io("create", path)),
    }
}

/// Takes all rights on a file or folder from others.
pub(super) fn close_to_others(path: &Path) -> Result<(), StoreError> {
    let mode = fs::metadata(path).map_err(StoreError::io("look at", path))?.permissions().mode();
    if mode & 0o077 == 0 {
        return Ok(());
    }
    let permissions = fs::Permissions::from_mode(mode & 0o7700);
    fs::set_permissions(path, permissions).map_err(StoreError::io("change the mode of", path))
}

/// Makes the names of a folder and of those above it durable: this process may have made them, or one that
/// did not live to.
pub(super) fn sync_above(path: &Path) -> Result<(), StoreError> {
    let path = fs::canonicalize(path).map_err(StoreError::io("look at", path))?;
    for above in path.ancestors().skip(1) {
        match sync_folder(above) {
            // Nothing was made in a folder that is not this user's to read, nor in one that is on no disk.
            Err(StoreError::Io { error, .. } | StoreError::Unsynced { error, .. })
                if matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::InvalidInput) => {}
            done => done?,
        }
    }
    Ok(())
}

/// Makes a folder's entries durable.
pub(super) fn sync_folder(path: &Path) -> Result<(), StoreError> {
    let folder = File::open(path).map_err(StoreError::io("open", path))?;
    let failed = |error| StoreError::Unsynced { path: path.to_owned(), error: Arc::new(error) };
    trace::syncs(path, || folder.sync_all()).map_err(failed)
}

/// Data that no record refers to yet: a file, or bytes in memory that go into the database. The file is removed
/// when this is dropped, unless it was put.
#[derive(Debug)]
pub struct Draft {
    id: u64,
    content: Content,
    folder: Arc<Folder>,
    kept: bool,
}

#[derive(Debug)]
enum Content {
    File(File),
    Inline(Vec<u8>),
}

/// Where a draft's data are to be written.
#[derive(Clone, Copy, Debug)]
pub enum Target<'a> {
    /// To this file, open for reading and writing, empty at first.
    File(&'a File),
    /// To memory, and from there to [`Draft::fill`].
    Memory,
}

impl Draft {
    /// The id, for the record's segment.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Where it is.
    #[cfg(test)]
    pub(super) fn path(&self) -> PathBuf {
        self.folder.path(self.id)
    }

    /// Where its data are to be written.
    pub fn target(&self) -> Target<'_> {
        match &self.content {
            Content::File(file) => Target::File(file),
            Content::Inline(_) => Target::Memory,
        }
    }

    /// Gives it data: bytes that were in memory. To a file they are written, behind those that it has.
    ///
    /// # Errors
    ///
    /// [`StoreError::Io`], [`StoreError::NoSpace`]: of a file.
    pub fn fill(&mut self, bytes: Vec<u8>) -> Result<(), StoreError> {
        match &mut self.content {
            Content::File(file) => {
                file.write_all(&bytes).map_err(StoreError::io("write", &self.folder.path(self.id)))
            }
            Content::Inline(content) => {
                *content = bytes;
                Ok(())
            }
        }
    }

    /// Takes the bytes that go into the database.
    pub(super) fn take_inline(&mut self) -> Option<(u64, Vec<u8>)> {
        match &mut self.content {
            Content::File(_) => None,
            Content::Inline(bytes) => Some((self.id, std::mem::take(bytes))),
        }
    }

    /// True if it has a file.
    pub(super) fn is_file(&self) -> bool {
        matches!(self.content, Content::File(_))
    }

    /// Makes a file's data durable (fdatasync). The store does not do it: who puts at
    /// [`Durability::Full`](super::Durability::Full) calls it first, or has the engine flush.
    ///
    /// # Errors
    ///
    /// [`StoreError::Io`], [`StoreError::NoSpace`]: then the data may be lost, and the draft has to be
    /// dropped.
    pub fn sync(&self) -> Result<(), StoreError> {
        let Content::File(file) = &self.content else { return Ok(()) };
        let path = self.folder.path(self.id);
        trace::syncs(&path, || file.sync_data()).map_err(StoreError::io("sync", &path))
    }

    /// A record refers to it now.
    pub(super) fn keep(mut self) {
        self.kept = true;
        self.folder.landed(self.id);
    }

    /// Nobody knows whether a record refers to it: the file stays, and stays in flight, for the next start to
    /// look at.
    pub(super) fn leave(mut self) {
        self.kept = true;
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if self.kept || !self.is_file() {
            return;
        }
        match self.folder.remove(self.id) {
            Ok(_) => self.folder.landed(self.id),
            Err(error) => tracing::warn!(%error, "a draft stays until the next start"),
        }
    }
}
