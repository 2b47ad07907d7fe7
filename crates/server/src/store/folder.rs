//! The store's folder: its data files, their ids, and drafts.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use super::error::StoreError;
use super::extent::{BLOCK, EXTENT_MAX, Extent, PACK_BLOCKS};
use super::held::Holds;
use super::pack::{self, OpenPacks, Pack};
use super::record::Segment;
use super::trace;

/// Ids reserved at a time.
pub(super) const RANGE: u64 = 4096;

/// Bits of an id that are not in its folder's name: a folder has up to 1024 files.
const FOLDER_BITS: u32 = 10;

/// Bytes that must be free to begin a draft: a database that copies on write needs some even to delete.
pub(crate) const RESERVE: u64 = 32 << 20;

/// Most bytes of a draft for which the file system is not asked again about its room, for [`PLENTY_LASTS`] after it had
/// [`PLENTY`] more than was needed.
const SMALL: u64 = 1 << 20;
const PLENTY: u64 = 1 << 30;
const PLENTY_LASTS: Duration = Duration::from_millis(20);

/// The folder of a store.
#[derive(Debug)]
pub(super) struct Folder {
    data: PathBuf,
    packs: PathBuf,
    handle: File,
    ids: Mutex<Ids>,
    /// Data folders whose own names may not be durable yet.
    made: Mutex<BTreeSet<u64>>,
    holds: Holds,
    /// Pack that is being filled, and its next block.
    filling: Mutex<Option<(Arc<Pack>, u64)>>,
    /// Packs that are open for readers.
    open_packs: OpenPacks,
    /// Bytes of extents that wait in memory for their commit.
    waiting: AtomicU64,
    /// Time at which the file system last had plenty of room.
    plenty: Mutex<Option<Instant>>,
}

/// Ids: handed out, in flight, and done.
#[derive(Debug, Default)]
struct Ids {
    next: u64,
    end: u64,
    /// Ids of drafts, and of files that a record may or may not refer to.
    in_flight: BTreeSet<u64>,
    /// Packs that were closed since this was last taken.
    closed: Vec<u64>,
}

impl Folder {
    /// Opens the folder `root`, in which ids below `next` have been used.
    pub(super) fn new(root: &Path, next: u64, end: u64) -> Result<Self, StoreError> {
        let handle = File::open(root).map_err(StoreError::io("open", root))?;
        let ids = Mutex::new(Ids { next, end, ..Ids::default() });
        Ok(Self {
            data: root.join("data"),
            packs: root.join("packs"),
            handle,
            ids,
            made: Mutex::default(),
            holds: Holds::default(),
            filling: Mutex::default(),
            open_packs: OpenPacks::default(),
            waiting: AtomicU64::new(0),
            plenty: Mutex::default(),
        })
    }

    fn ids(&self) -> MutexGuard<'_, Ids> {
        self.ids.lock().expect("no code that holds it panics")
    }

    /// Returns the number of the folder that a file is in.
    pub(super) fn number(id: u64) -> u64 {
        id >> FOLDER_BITS
    }

    /// Returns the path of the folder of data folders.
    pub(super) fn data(&self) -> &Path {
        &self.data
    }

    /// Returns the path of a data folder.
    pub(super) fn subfolder(&self, number: u64) -> PathBuf {
        self.data.join(format!("{number:x}"))
    }

    /// Returns the path of a data file, or of an extent's pack.
    pub(super) fn path(&self, id: u64) -> PathBuf {
        if let Some(extent) = Extent::of(id) {
            return pack::path(&self.packs, extent.pack);
        }
        self.subfolder(Self::number(id)).join(format!("{id:016x}"))
    }

    /// Returns the held files.
    pub(super) fn holds(&self) -> &Holds {
        &self.holds
    }

    /// Returns true if the file system has room for this many bytes, in addition to the reserve for deletions.
    pub(super) fn has_room(&self, bytes: u64) -> Result<bool, StoreError> {
        let mut plenty = self.plenty.lock().expect("no code that holds it panics");
        if bytes <= SMALL && plenty.is_some_and(|at| at.elapsed() < PLENTY_LASTS) {
            return Ok(true);
        }
        let (free, needed) = (self.free()?, RESERVE.saturating_add(bytes));
        *plenty = (free >= needed.saturating_add(PLENTY)).then(Instant::now);
        Ok(free >= needed)
    }

    /// Returns the free bytes of the file system.
    pub(super) fn free(&self) -> Result<u64, StoreError> {
        let stat = rustix::fs::fstatvfs(&self.handle)
            .map_err(|error| StoreError::io("statvfs", &self.data)(error.into()))?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    /// Makes a new file for the next id; `None` if no reserved id is left. Also returns how many are left.
    pub(super) fn draft(self: &Arc<Self>) -> Result<Option<(Draft, u64)>, StoreError> {
        while let Some((id, left)) = self.next_id() {
            match self.create(id) {
                Ok(file) => {
                    let content = Content::File(file);
                    return Ok(Some((Draft { id, content, folder: self.clone(), kept: false }, left)));
                }
                // The database is older than the files.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => self.landed(id),
                Err(error) => {
                    self.landed(id);
                    return Err(StoreError::io("create", &self.path(id))(error));
                }
            }
        }
        Ok(None)
    }

    /// Makes a draft in memory, with a place in a pack for this many bytes; `None` if no reserved id is left. Also
    /// returns how many are left, if it took one.
    pub(super) fn packed_draft(
        self: &Arc<Self>,
        bytes: u64,
    ) -> Result<Option<(Draft, Option<u64>)>, StoreError> {
        let blocks = bytes.div_ceil(BLOCK).max(1);
        let mut filling = self.filling.lock().expect("no code that holds it panics");
        let mut taken = None;
        if filling.as_ref().is_none_or(|(_, next)| next + blocks > PACK_BLOCKS) {
            let Some((pack, left)) = self.make_pack()? else { return Ok(None) };
            (*filling, taken) = (Some((Arc::new(pack), 0)), Some(left));
        }
        let Some((pack, next)) = filling.as_mut() else { return Ok(None) };
        let (pack, extent) = (pack.clone(), Extent { pack: pack.id, first: *next, blocks });
        *next += blocks;
        let content = Content::Packed(Packed { pack, extent, bytes: Vec::new(), written: false, sum: 0 });
        self.waiting.fetch_add(blocks * BLOCK, Relaxed);
        Ok(Some((Draft { id: extent.id(), content, folder: self.clone(), kept: false }, taken)))
    }

    fn make_pack(self: &Arc<Self>) -> Result<Option<(Pack, u64)>, StoreError> {
        while let Some((id, left)) = self.next_id() {
            match Pack::make(&self.packs, id, Arc::downgrade(self)) {
                Ok(pack) => return Ok(Some((pack, left))),
                // The database is older than the packs.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => self.landed(id),
                Err(error) => {
                    self.landed(id);
                    return Err(StoreError::io("create", &pack::path(&self.packs, id))(error));
                }
            }
        }
        Ok(None)
    }

    /// Takes room for this many bytes of the journal, if this pack is being filled and has it.
    pub(super) fn journal_extent(&self, pack: u64, bytes: usize) -> Option<Extent> {
        let blocks = (bytes as u64).div_ceil(BLOCK);
        let mut filling = self.filling.lock().expect("no code that holds it panics");
        let (_, next) = filling.as_mut().filter(|(filling, next)| {
            filling.id == pack && blocks <= EXTENT_MAX && *next + blocks <= PACK_BLOCKS
        })?;
        let extent = Extent { pack, first: *next, blocks };
        *next += blocks;
        Some(extent)
    }

    /// Returns the pack that is being filled.
    pub(super) fn filling(&self) -> Option<Arc<Pack>> {
        let filling = self.filling.lock().expect("no code that holds it panics");
        filling.as_ref().map(|(pack, _)| pack.clone())
    }

    /// Returns the bytes of extents that wait in memory.
    pub(super) fn waiting(&self) -> u64 {
        self.waiting.load(Relaxed)
    }

    /// Has the next draft begin a new pack if this one is being filled, because what was written to it may be lost.
    pub(super) fn leave_pack(&self, id: u64) {
        let mut filling = self.filling.lock().expect("no code that holds it panics");
        filling.take_if(|(pack, _)| pack.id == id);
    }

    /// Leaves a pack that is filled slowly, because a start checks all ids from the pack's own on.
    pub(super) fn leave_old_pack(&self) {
        let next = self.ids().next;
        let mut filling = self.filling.lock().expect("no code that holds it panics");
        filling.take_if(|(pack, _)| pack.id + 2 * RANGE < next);
    }

    /// Notes that a pack is not written to any more.
    pub(super) fn pack_closed(&self, id: u64) {
        let mut ids = self.ids();
        ids.in_flight.remove(&id);
        ids.closed.push(id);
    }

    /// Returns the packs that were closed since the last call.
    pub(super) fn take_closed(&self) -> Vec<u64> {
        std::mem::take(&mut self.ids().closed)
    }

    /// Returns true if a draft or pack of that id is in flight.
    pub(super) fn is_in_flight(&self, id: u64) -> bool {
        self.ids().in_flight.contains(&id)
    }

    /// Returns the path of the folder of packs.
    pub(super) fn packs(&self) -> &Path {
        &self.packs
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

    /// Creates a data file. Empty folders are removed at any time, so its folder may vanish before the file is there.
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

    /// Makes a data folder. The lock is held meanwhile, so that no draft in it is committed before the folder is known
    /// to be new.
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

    /// Makes the names of these files durable, and the names of packs if one is new.
    pub(super) fn sync_names(
        &self,
        ids: impl Iterator<Item = u64>,
        new_pack: bool,
    ) -> Result<(), StoreError> {
        if new_pack {
            sync_folder(&self.packs)?;
        }
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

    /// Returns the packs that are open for readers.
    pub(super) fn open_packs(&self) -> &OpenPacks {
        &self.open_packs
    }

    /// Removes a file, an extent or a pack. Returns true if it was there.
    pub(super) fn remove(&self, id: u64) -> Result<bool, StoreError> {
        let path = self.path(id);
        if let Some(extent) = Extent::of(id) {
            if extent.blocks == 0 {
                self.open_packs.forget(extent.pack);
            }
            return pack::remove(&self.packs, extent).map_err(StoreError::io("remove data of", &path));
        }
        trace::removes(&path);
        match fs::remove_file(&path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(StoreError::io("remove", &path)(error)),
        }
    }

    /// Removes a file, a pack, or extents that follow each other.
    pub(super) fn remove_run(&self, ids: &[u64]) -> Result<(), StoreError> {
        match (ids.first().copied().and_then(Extent::of), ids.last().copied().and_then(Extent::of)) {
            (Some(first), Some(last)) if first.blocks > 0 => {
                let all = Extent { blocks: last.first + last.blocks - first.first, ..first };
                let path = pack::path(&self.packs, all.pack);
                pack::remove(&self.packs, all).map(drop).map_err(StoreError::io("remove data of", &path))
            }
            _ => ids.iter().try_for_each(|id| self.remove(*id).map(drop)),
        }
    }

    /// Returns the reservation to write into the database before more ids are handed out: the lowest id in flight and
    /// the new end. `None` while half of a range is left.
    pub(super) fn reservation(&self) -> Option<(u64, u64)> {
        let ids = self.ids();
        let floor = ids.in_flight.first().copied().unwrap_or(ids.next);
        (ids.end - ids.next < RANGE / 2).then_some((floor, ids.end + RANGE))
    }

    /// Notes that the reservation is in the database.
    pub(super) fn reserved(&self, end: u64) {
        self.ids().end = end;
    }

    /// Notes files that no record refers to and that can't be removed, so that the next start checks them.
    pub(super) fn mark_unremovable(&self, ids: &[u64]) {
        self.ids().in_flight.extend(ids);
    }

    fn landed(&self, id: u64) {
        self.ids().in_flight.remove(&id);
    }
}

/// Makes a folder for its owner alone, and any missing folders above it.
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

/// Removes all rights of others on a file or folder.
pub(super) fn close_to_others(path: &Path) -> Result<(), StoreError> {
    let mode = fs::metadata(path).map_err(StoreError::io("look at", path))?.permissions().mode();
    if mode & 0o077 == 0 {
        return Ok(());
    }
    let permissions = fs::Permissions::from_mode(mode & 0o7700);
    fs::set_permissions(path, permissions).map_err(StoreError::io("change the mode of", path))
}

/// Makes the names of a folder and of those above it durable: this process may have made them, or one that was killed.
pub(super) fn sync_above(path: &Path) -> Result<(), StoreError> {
    let path = fs::canonicalize(path).map_err(StoreError::io("look at", path))?;
    for above in path.ancestors().skip(1) {
        match sync_folder(above) {
            // Nothing was made in a folder that this user can't read, nor in one that is on no disk.
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

/// Data that no record refers to yet: a file, or bytes in memory with a place in a pack. Dropping it removes the file,
/// unless it was put.
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
    Packed(Packed),
}

/// Bytes that wait for their commit.
#[derive(Debug)]
struct Packed {
    pack: Arc<Pack>,
    extent: Extent,
    bytes: Vec<u8>,
    /// True if some of the bytes may be in the pack.
    written: bool,
    /// CRC-64 of the bytes, once they are written.
    sum: u64,
}

/// Destination of a draft's data.
#[derive(Clone, Copy, Debug)]
pub enum Target<'a> {
    /// File, open for reading and writing, empty at first.
    File(&'a File),
    /// Memory, and from there [`Draft::fill`].
    Memory,
}

impl Draft {
    /// Returns the id, for the record's segment.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Returns the path of its file or pack.
    #[cfg(test)]
    pub(super) fn path(&self) -> PathBuf {
        self.folder.path(self.id)
    }

    /// Returns the destination of its data.
    pub fn target(&self) -> Target<'_> {
        match &self.content {
            Content::File(file) => Target::File(file),
            Content::Packed(_) => Target::Memory,
        }
    }

    /// Adds data from memory: appends them to the file, or keeps them for the pack.
    ///
    /// # Errors
    ///
    /// [`StoreError::Io`] or [`StoreError::NoSpace`], if it has a file.
    pub fn fill(&mut self, bytes: Vec<u8>) -> Result<(), StoreError> {
        match &mut self.content {
            Content::File(file) => {
                file.write_all(&bytes).map_err(StoreError::io("write", &self.folder.path(self.id)))
            }
            Content::Packed(packed) => {
                packed.bytes = bytes;
                Ok(())
            }
        }
    }

    /// Returns the pack for its data, if they wait for one.
    pub(super) fn pack(&self) -> Option<&Arc<Pack>> {
        match &self.content {
            Content::File(_) => None,
            Content::Packed(packed) => Some(&packed.pack),
        }
    }

    /// Writes the waiting data to their pack.
    pub(super) fn write(&mut self) -> Result<(), StoreError> {
        let Content::Packed(packed) = &mut self.content else { return Ok(()) };
        packed.written = true;
        packed.sum = super::journal::sum(&packed.bytes);
        let written = packed.pack.write(packed.extent, &packed.bytes);
        written.map_err(StoreError::io("write", &packed.pack.path))
    }

    /// Returns the CRC-64 of the data that were written to the pack.
    pub(super) fn sum(&self) -> u64 {
        match &self.content {
            Content::File(_) => 0,
            Content::Packed(packed) => packed.sum,
        }
    }

    /// Returns true if a segment's length is that of the draft's data, as far as it is known here.
    pub(super) fn is_of(&self, segment: &Segment) -> bool {
        match &self.content {
            Content::File(_) => true,
            Content::Packed(Packed { bytes, extent, .. }) => {
                let room = extent.bytes();
                segment.stored == bytes.len() as u64 && segment.stored <= room.end - room.start
            }
        }
    }

    /// Returns true if it has a file.
    pub(super) fn is_file(&self) -> bool {
        matches!(self.content, Content::File(_))
    }

    /// Makes a file's data durable (fdatasync). The store does not do it: to put at
    /// [`Durability::Full`](super::Durability::Full), call this first or have the engine flush.
    ///
    /// # Errors
    ///
    /// [`StoreError::Io`] or [`StoreError::NoSpace`]. The data may be lost then, and the draft must be dropped.
    pub fn sync(&self) -> Result<(), StoreError> {
        let Content::File(file) = &self.content else { return Ok(()) };
        let path = self.folder.path(self.id);
        trace::syncs(&path, || file.sync_data()).map_err(StoreError::io("sync", &path))
    }

    /// Keeps the file, since a record refers to it now.
    pub(super) fn keep(mut self) {
        self.kept = true;
        self.folder.landed(self.id);
    }

    /// Keeps the file, and keeps it in flight for the next start to check, since a record may or may not refer to it.
    pub(super) fn leave(mut self) {
        self.kept = true;
        self.keep_in_flight();
    }

    /// Has the next start check it. A file's id stays in flight until it is released; an extent's pack as long as the
    /// pack is in use.
    fn keep_in_flight(&self) {
        if let Content::Packed(packed) = &self.content {
            std::mem::forget(packed.pack.clone());
        }
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if let Content::Packed(packed) = &self.content {
            self.folder.waiting.fetch_sub(packed.extent.blocks * BLOCK, Relaxed);
            if !packed.written {
                return;
            }
        }
        if self.kept {
            return;
        }
        match self.folder.remove(self.id) {
            Ok(_) => self.folder.landed(self.id),
            Err(error) => {
                self.keep_in_flight();
                tracing::warn!(%error, "a draft stays until the next start");
            }
        }
    }
}
