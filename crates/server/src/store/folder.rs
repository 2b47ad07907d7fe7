//! The folder: its data files, their ids, and drafts.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};

use super::error::StoreError;
use super::held::Holds;
use super::pack::{self, BLOCK, Extent, PACK_BLOCKS, Pack};
use super::record::Segment;
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
    packs: PathBuf,
    handle: File,
    ids: Mutex<Ids>,
    /// Data folders whose own names are perhaps not durable yet.
    made: Mutex<BTreeSet<u64>>,
    holds: Holds,
    /// The pack that is being filled, and its next block.
    filling: Mutex<Option<(Arc<Pack>, u64)>>,
    /// Bytes of extents that wait in memory for their commit.
    waiting: AtomicU64,
}

/// Which ids are handed out.
#[derive(Debug, Default)]
struct Ids {
    next: u64,
    end: u64,
    /// Those of drafts, and of files of which it is not known whether a record refers to them.
    in_flight: BTreeSet<u64>,
    /// Packs that are not written to any more, since this was last taken.
    closed: Vec<u64>,
}

impl Folder {
    /// Opens the folder `root`, of which ids below `next` have been used.
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
            waiting: AtomicU64::new(0),
        })
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

    /// The path of a data file, or of an extent's pack.
    pub(super) fn path(&self, id: u64) -> PathBuf {
        if let Some(extent) = Extent::of(id) {
            return pack::path(&self.packs, extent.pack);
        }
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

    /// A draft in memory with a place in a pack for this many bytes; `None` where no reserved id is left. Says how many
    /// are left after, where it took one.
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
        let content = Content::Packed(Packed { pack, extent, bytes: Vec::new(), written: false });
        self.waiting.fetch_add(blocks * BLOCK, Relaxed);
        Ok(Some((Draft { id: extent.id(), content, folder: self.clone(), kept: false }, taken)))
    }

    fn make_pack(self: &Arc<Self>) -> Result<Option<(Pack, u64)>, StoreError> {
        while let Some((id, left)) = self.next_id() {
            match Pack::make(&self.packs, id, Arc::downgrade(self)) {
                Ok(pack) => return Ok(Some((pack, left))),
                // The database is an older one than the packs.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => self.landed(id),
                Err(error) => {
                    self.landed(id);
                    return Err(StoreError::io("create", &pack::path(&self.packs, id))(error));
                }
            }
        }
        Ok(None)
    }

    /// Bytes of extents that wait in memory.
    pub(super) fn waiting(&self) -> u64 {
        self.waiting.load(Relaxed)
    }

    /// Has the next draft begin a new pack, where this one is filled: what was written to it may be lost.
    pub(super) fn leave_pack(&self, id: u64) {
        let mut filling = self.filling.lock().expect("no code that holds it panics");
        filling.take_if(|(pack, _)| pack.id == id);
    }

    /// The same with a pack that is filled slowly: a start looks at all ids from its own on.
    pub(super) fn leave_old_pack(&self) {
        let next = self.ids().next;
        let mut filling = self.filling.lock().expect("no code that holds it panics");
        filling.take_if(|(pack, _)| pack.id + 2 * RANGE < next);
    }

    /// A pack is not written to any more.
    pub(super) fn pack_closed(&self, id: u64) {
        let mut ids = self.ids();
        ids.in_flight.remove(&id);
        ids.closed.push(id);
    }

    /// The packs that are not written to any more, since this was last asked.
    pub(super) fn take_closed(&self) -> Vec<u64> {
        std::mem::take(&mut self.ids().closed)
    }

    /// True if a draft or pack of that id is in flight.
    pub(super) fn is_in_flight(&self, id: u64) -> bool {
        self.ids().in_flight.contains(&id)
    }

    /// The folder of packs.
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

    /// Makes the names of these files durable, and those of packs where one is new.
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

    /// Removes a file, an extent or a pack, if it is there. Says whether it was.
    pub(super) fn remove(&self, id: u64) -> Result<bool, StoreError> {
        let path = self.path(id);
        if let Some(extent) = Extent::of(id) {
            return pack::remove(&self.packs, extent).map_err(StoreError::io("remove data of", &path));
        }
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

/// Data that no record refers to yet: a file, or bytes in memory with a place in a pack. The file is removed when
/// this is dropped, unless it was put.
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
    /// They are in the pack, or some of them.
    written: bool,
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
            Content::Packed(_) => Target::Memory,
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
            Content::Packed(packed) => {
                packed.bytes = bytes;
                Ok(())
            }
        }
    }

    /// The pack that its data are to be written to.
    pub(super) fn pack(&self) -> Option<&Arc<Pack>> {
        match &self.content {
            Content::File(_) => None,
            Content::Packed(packed) => Some(&packed.pack),
        }
    }

    /// Writes data that wait in memory to their pack.
    pub(super) fn write(&mut self) -> Result<(), StoreError> {
        let Content::Packed(packed) = &mut self.content else { return Ok(()) };
        packed.written = true;
        let written = packed.pack.write(packed.extent, &packed.bytes);
        written.map_err(StoreError::io("write", &packed.pack.path))
    }

    /// True if a segment has the length of its data, as far as these are known here.
    pub(super) fn is_of(&self, segment: &Segment) -> bool {
        match &self.content {
            Content::File(_) => true,
            Content::Packed(Packed { bytes, extent, .. }) => {
                let room = extent.bytes();
                segment.stored == bytes.len() as u64 && segment.stored <= room.end - room.start
            }
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
        self.keep_in_flight();
    }

    /// Has the next start look at it. A file's id is in flight until somebody says otherwise, an extent's pack as
    /// long as somebody has it.
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
