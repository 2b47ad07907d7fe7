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
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Weak;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use super::folder::Folder;
use super::trace;

/// Bytes in a block.
pub(super) const BLOCK: u64 = 4096;

/// Blocks in a pack.
pub(super) const PACK_BLOCKS: u64 = 1 << 14;

const FLAG: u64 = 1 << 63;
const BLOCKS_BITS: u32 = 9;
const FIRST_BITS: u32 = 14;

/// A run of blocks in a pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    /// Id of the pack.
    pub(super) pack: u64,
    /// First block.
    pub(super) first: u64,
    /// Number of blocks; 0 stands for the whole pack.
    pub(super) blocks: u64,
}

impl Extent {
    /// Returns the extent of an id; `None` for a file's id.
    pub(super) fn of(id: u64) -> Option<Extent> {
        let field = |shift: u32, bits: u32| id >> shift & ((1 << bits) - 1);
        (id & FLAG != 0).then(|| Extent {
            pack: (id & !FLAG) >> (BLOCKS_BITS + FIRST_BITS),
            first: field(BLOCKS_BITS, FIRST_BITS),
            blocks: field(0, BLOCKS_BITS),
        })
    }

    pub(super) fn id(self) -> u64 {
        FLAG | self.pack << (BLOCKS_BITS + FIRST_BITS) | self.first << BLOCKS_BITS | self.blocks
    }

    /// Returns its range of bytes in the pack.
    pub(super) fn bytes(self) -> Range<u64> {
        self.first * BLOCK..(self.first + self.blocks) * BLOCK
    }
}

/// Returns the id of a whole pack.
pub(super) fn whole(pack: u64) -> u64 {
    Extent { pack, first: 0, blocks: 0 }.id()
}

/// Returns the ids of all extents of a pack.
pub(super) fn extents(pack: u64) -> Range<u64> {
    whole(pack) + 1..whole(pack + 1)
}

/// Returns true for the id of a whole pack.
pub(super) fn is_whole(id: u64) -> bool {
    Extent::of(id).is_some_and(|extent| extent.blocks == 0)
}

/// Returns true if the segment of that id is in a pack.
pub(super) fn is_packed(id: u64) -> bool {
    id & FLAG != 0
}

/// Returns true if the ids are of extents and the second begins where the first ends.
pub(super) fn are_neighbours(id: u64, next: u64) -> bool {
    let (Some(extent), Some(next)) = (Extent::of(id), Extent::of(next)) else { return false };
    let both = extent.blocks > 0 && next.blocks > 0 && extent.pack == next.pack;
    both && extent.first + extent.blocks == next.first
}

/// Describes the place of a segment's data, for people.
pub fn place(id: u64) -> String {
    match Extent::of(id) {
        None => format!("data file {id:016x}"),
        Some(Extent { pack, first, .. }) => format!("data in pack {pack:016x} from byte {}", first * BLOCK),
    }
}

/// Returns the path of a pack.
pub(super) fn path(packs: &Path, pack: u64) -> PathBuf {
    packs.join(format!("{pack:016x}"))
}

/// Most blocks of an extent.
pub(super) const EXTENT_MAX: u64 = (1 << BLOCKS_BITS) - 1;

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
    fn an_id_says_where_its_extent_is() {
        let last = Extent { pack: (1 << 40) - 2, first: PACK_BLOCKS - 1, blocks: 511 };
        for extent in
            [Extent { pack: 1, first: 0, blocks: 1 }, Extent { pack: 7, first: 3, blocks: 16 }, last]
        {
            assert_eq!(Extent::of(extent.id()), Some(extent));
            assert!(extents(extent.pack).contains(&extent.id()));
            assert!(!extents(extent.pack - 1).contains(&extent.id()));
        }
        assert_eq!(Extent::of((1 << 40) - 1), None);
        let id = |pack, first, blocks| Extent { pack, first, blocks }.id();
        assert!(are_neighbours(id(1, 0, 3), id(1, 3, 1)));
        for other in [id(2, 3, 1), id(1, 4, 1), id(1, 3, 0), 3] {
            assert!(!are_neighbours(id(1, 0, 3), other), "{other:x}");
        }
        assert!(!are_neighbours(whole(1), id(1, 0, 3)));
    }
}
