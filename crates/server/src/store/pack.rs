//! Packs: files that small objects' data share, so that no file is made, synced and removed for each.
//!
//! A pack is cut into blocks of 4 KiB. An *extent* is a run of blocks in one pack. Its place is in its id, whose
//! highest bit is set, so that a segment's id says where its data are. Room is taken when a draft is begun, so that the
//! id (and with it the cipher's counter) is known before the data are. The data wait in memory for their commit, which
//! writes all that wait and syncs once. A pack has 64 MiB; nothing is written past its end, nor twice in one place.
//!
//! ```text
//!   id   1 | pack: 40 bits | first block: 14 | blocks: 9          blocks 0: the pack itself
//! ```
//!
//! Some extents hold entries of the journal ([`journal`](super::journal)).
//!
//! Extents that nothing refers to any more are garbage, like files, and *removing* one returns its blocks to the file
//! system (fallocate(2), FALLOC_FL_PUNCH_HOLE). A pack without extents is removed. What a crash left in packs that were
//! being filled is found at the next start: it is between the extents that records refer to.
//!
//! A reader of an extent holds it ([`held`](super::held)): it would read zeros from a hole, while a removed file stays
//! readable to whatever has it open. For the same reason, sockets get copies of packs' pages.
//!
//! # What it doesn't implement
//!
//! Compaction. On a file system without holes (NFS, FAT), room is freed only when all of a pack is garbage. The same
//! holds for a hole that a power loss undoes.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use super::extent::{BLOCK, Extent, PACK_BLOCKS};
use super::folder::Folder;
use super::trace;

/// Returns the path of a pack.
pub(super) fn path(packs: &Path, pack: u64) -> PathBuf {
    packs.join(format!("{pack:016x}"))
}

/// A pack that is being filled, or was, while drafts in it are in flight.
#[derive(Debug)]
pub(super) struct Pack {
    pub(super) id: u64,
    pub(super) path: PathBuf,
    file: File,
    folder: Weak<Folder>,
    is_new: AtomicBool,
}

impl Pack {
    pub(super) fn make(packs: &Path, id: u64, folder: Weak<Folder>) -> io::Result<Pack> {
        let path = path(packs, id);
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
        trace::made_file(&path);
        Ok(Pack { id, path, file, folder, is_new: AtomicBool::new(true) })
    }

    /// Writes an extent's data.
    pub(super) fn write(&self, extent: Extent, data: &[u8]) -> io::Result<()> {
        trace::writes(&self.path, extent.bytes().start, data);
        self.file.write_all_at(data, extent.bytes().start)
    }

    pub(super) fn sync(&self) -> io::Result<()> {
        trace::syncs(&self.path, || self.file.sync_data())
    }

    /// Returns true if its name may not be durable yet.
    pub(super) fn is_new(&self) -> bool {
        self.is_new.load(Relaxed)
    }

    /// Notes that its name is durable.
    pub(super) fn named(&self) {
        self.is_new.store(false, Relaxed);
    }
}

impl Drop for Pack {
    fn drop(&mut self) {
        if let Some(folder) = self.folder.upgrade() {
            folder.pack_closed(self.id);
        }
    }
}

/// Most packs that are kept open for readers.
const OPEN_MAX: usize = 64;

/// Packs by their ids, each in its only place.
type Places = [Option<(u64, Arc<File>)>; OPEN_MAX];

/// Packs that readers opened, kept open for the next.
#[derive(Debug)]
pub(super) struct OpenPacks(Mutex<Places>);

impl Default for OpenPacks {
    fn default() -> OpenPacks {
        OpenPacks(Mutex::new([const { None }; OPEN_MAX]))
    }
}

impl OpenPacks {
    fn places(&self) -> MutexGuard<'_, Places> {
        self.0.lock().expect("no code that holds it panics")
    }

    /// Returns a pack, opened for reading, and its length. One whose name is gone is not there.
    pub(super) fn get(&self, packs: &Path, pack: u64) -> io::Result<(Arc<File>, u64)> {
        let place = pack as usize % OPEN_MAX;
        let known = self.places()[place].clone().filter(|(id, _)| *id == pack);
        if let Some((_, file)) = known {
            let found = file.metadata()?;
            if found.nlink() > 0 {
                return Ok((file, found.len()));
            }
            self.forget(pack);
        }
        let file = Arc::new(File::open(path(packs, pack))?);
        // What was there is closed when the lock is free: that may take a while.
        let before = self.places()[place].replace((pack, file.clone()));
        drop(before);
        let found = file.metadata()?;
        if found.nlink() == 0 {
            // It was removed meanwhile, and forgotten before it was there.
            self.forget(pack);
        }
        Ok((file, found.len()))
    }

    /// Forgets a pack that is removed, whose room it would keep.
    pub(super) fn forget(&self, pack: u64) {
        let kept = self.places()[pack as usize % OPEN_MAX].take_if(|(id, _)| *id == pack);
        drop(kept);
    }
}

/// Frees what a crash left of drafts in a pack: everything that is in no referred extent. `referred` are the ids of
/// those, in order.
pub(super) fn trim(packs: &Path, pack: u64, referred: impl Iterator<Item = u64>) -> io::Result<()> {
    let file = match OpenOptions::new().write(true).open(path(packs, pack)) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        file => file?,
    };
    let mut end = 0;
    for extent in referred.filter_map(Extent::of) {
        if extent.bytes().start > end {
            punch(&file, end..extent.bytes().start)?;
        }
        end = extent.bytes().end;
    }
    if file.metadata()?.len() > end { punch(&file, end..PACK_BLOCKS * BLOCK) } else { Ok(()) }
}

/// Returns the ids of existing packs in a range.
pub(super) fn packs_between(packs: &Path, ids: Range<u64>) -> io::Result<Vec<u64>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(packs)? {
        let name = entry?.file_name();
        let id = name.to_str().and_then(|name| u64::from_str_radix(name, 16).ok());
        found.extend(id.filter(|id| ids.contains(id) && path(packs, *id).ends_with(&name)));
    }
    Ok(found)
}

/// Frees the blocks of an extent, or removes a whole pack. Returns true if there was anything.
pub(super) fn remove(packs: &Path, extent: Extent) -> io::Result<bool> {
    let path = path(packs, extent.pack);
    if extent.blocks == 0 {
        trace::removes(&path);
        return match std::fs::remove_file(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            removed => removed.map(|()| true),
        };
    }
    match File::options().write(true).open(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        file => punch(&file?, extent.bytes()).map(|()| true),
    }
}

/// Punches a hole. A file system without holes keeps the bytes.
pub(super) fn punch(file: &File, bytes: Range<u64>) -> io::Result<()> {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let punched = rustix::io::retry_on_intr(|| {
        rustix::fs::fallocate(file, flags, bytes.start, bytes.end - bytes.start)
    });
    match punched {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
        punched => Ok(punched?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pack_stays_open_until_it_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let (packs, kept) = (dir.path(), OpenPacks::default());
        let (one, other) = (3, 3 + OPEN_MAX as u64);
        let missing = |pack| kept.get(packs, pack).is_err_and(|error| error.kind() == ErrorKind::NotFound);
        assert!(missing(one));
        std::fs::write(path(packs, one), [1; 10]).unwrap();
        let (file, length) = kept.get(packs, one).unwrap();
        assert_eq!(length, 10);
        std::fs::write(path(packs, one), [1; 30]).unwrap();
        let (again, length) = kept.get(packs, one).unwrap();
        assert!(Arc::ptr_eq(&file, &again) && length == 30, "the same, which has grown");
        std::fs::write(path(packs, other), [2; 20]).unwrap();
        assert_eq!(kept.get(packs, other).unwrap().1, 20, "it takes the place of the first");
        assert_eq!(kept.get(packs, one).unwrap().1, 30);
        std::fs::remove_file(path(packs, one)).unwrap();
        assert!(missing(one), "its name is gone");
        let (file, _) = kept.get(packs, other).unwrap();
        kept.forget(one);
        assert_eq!(Arc::strong_count(&file), 2, "another one is not forgotten");
        kept.forget(other);
        assert_eq!(Arc::strong_count(&file), 1);
    }
}
