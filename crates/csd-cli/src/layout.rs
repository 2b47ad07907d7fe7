//! Slices: the bytes of files and block devices that belong to each namespace.
//!
//! Slices do not overlap, within a process or between several: each slice locks its byte range (an open file
//! description's lock). A second process that wants the same slice is refused, and one that was killed leaves
//! no lock behind.
//!
//! The slices of a shared namespace belong to all who share it, and to no other. A lock has no room for a
//! name, so three ranges are locked, two of them far beyond the end of any file:
//!
//! | owner | the bytes | from [`READERS`] | from [`NAMES`] |
//! |---|---|---|---|
//! | one owner, to write | exclusive | | |
//! | one owner, read only | shared | shared | others may have no lock |
//! | a shared namespace | shared | others may have no lock | shared, from a place that stands for its name;
//! the others begin there too |
//!
//! Each takes its own locks first, then looks for those of others: of two at once both may be refused, but
//! they never both succeed.

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Slices begin at multiples of this, so that two of them never share a block of any disk.
const ALIGNMENT: u64 = 1 << 20;

/// Positions of further locks in a file, with their names: those of slices' readers, and those of shared namespaces.
const READERS: u64 = 1 << 61;
const NAMES: u64 = 1 << 62;

/// The reason why a namespace cannot be placed.
#[derive(Debug, thiserror::Error)]
pub enum LayoutError {
    #[error("{0}: {1}")]
    Io(PathBuf, std::io::Error),
    #[error("{0} is neither a file nor a block device")]
    Kind(PathBuf),
    #[error(
        "a namespace has at least one logical block, and whole ones: {size} bytes are not a multiple of {block}"
    )]
    Size { size: u64, block: u64 },
    #[error("a striped namespace has whole rows of stripes: {size} bytes are not a multiple of {row}")]
    Rows { size: u64, row: u64 },
    #[error("{path}: bytes {from} to {to} were asked for, and it has {length}")]
    Short { path: PathBuf, from: u64, to: u64, length: u64 },
    #[error("{path}: bytes {from} to {to} overlap those of {owner}")]
    Overlap { path: PathBuf, from: u64, to: u64, owner: String },
    #[error("{path}: bytes {from} to {to} are in use by another process")]
    Locked { path: PathBuf, from: u64, to: u64 },
    #[error("{0} is named twice")]
    Twice(PathBuf),
    #[error("a slice of a shared namespace has at least {ALIGNMENT} bytes, not {0}")]
    Small(u64),
    #[error(
        "{0}: stripes lie on SSDs that the process drives itself, or on files and block devices, not on both"
    )]
    Mixed(PathBuf),
}

impl LayoutError {
    /// Returns advice about it.
    pub fn advice(&self) -> String {
        match self {
            LayoutError::Io(path, error) if error.kind() == std::io::ErrorKind::NotFound => {
                format!("make it: truncate -s 16G {}", path.display())
            }
            LayoutError::Io(..) => "check its name, its owner and its mode".into(),
            LayoutError::Kind(_) => "name a file or a block device".into(),
            LayoutError::Size { block, .. } => {
                format!("choose a size that is a multiple of {block}, such as 8G")
            }
            LayoutError::Rows { row, .. } => format!("choose a multiple of {row}, or another stripe"),
            LayoutError::Short { path, to, .. } => {
                format!("make it longer (truncate -s {to} {}), or the namespace smaller", path.display())
            }
            LayoutError::Overlap { .. } => {
                "give another offset, or none: then it is placed after the others".into()
            }
            LayoutError::Locked { .. } => "end the other process, or give another offset".into(),
            LayoutError::Twice(_) => "name each backing once".into(),
            LayoutError::Small(_) => "choose 1MiB for each backing, or more".into(),
            LayoutError::Mixed(_) => {
                "leave the SSDs to the kernel's driver, and name their block devices; or bind all of them to vfio-pci".into()
            }
        }
    }
}

/// A part of a namespace: its backing, and the offset at which it starts there.
#[derive(Debug)]
pub struct Slice {
    pub on: Backing,
    pub path: PathBuf,
    pub offset: u64,
}

/// The backing of a part of a namespace.
#[derive(Debug)]
pub enum Backing {
    File(File),
    Ssd(KnownSsd),
}

/// An SSD that this process drives.
#[derive(Clone, Copy, Debug)]
pub struct KnownSsd {
    /// Number among the process's SSDs.
    pub number: usize,
    /// Number of the SSD's namespace.
    pub namespace: u32,
    /// Bytes of the namespace.
    pub length: u64,
}

/// A shared namespace, by the first bytes of its identifier: those who have the same may have the same bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share(u64);

impl Share {
    /// Returns the share of the namespace with this identifier.
    pub fn of(identifier: [u8; 16]) -> Share {
        Share(u64::from_le_bytes(std::array::from_fn(|at| identifier[at])))
    }

    /// Returns the place where its lock begins, after the first byte of a slice.
    fn place(self) -> u64 {
        self.0 % ALIGNMENT
    }
}

/// Identifies a file or block device, whatever its name.
type Id = (u64, u64);

/// Used in its place for backings that are not files of a file system.
const BLOCK_DEVICE: u64 = u64::MAX;
const SSD: u64 = u64::MAX - 1;
const SPECIAL: u64 = SSD;

/// Bytes with an owner. The lock lasts as long as the file is open, here or where a slice was passed.
#[derive(Debug)]
struct Claim {
    id: Id,
    path: PathBuf,
    on: Backing,
    from: u64,
    to: u64,
    owner: String,
    read_only: bool,
    share: Option<Share>,
    /// The locked bytes, shared with those who still use the part that was cut off.
    locked: Arc<Mutex<Locked>>,
}

/// The locked bytes of a slice.
#[derive(Debug, Default)]
struct Locked {
    /// The end of its bytes, and the end of the locked bytes beyond, which may still be in use.
    end: u64,
    beyond: u64,
    /// Number of tails that were cut off and may be in use.
    tails: usize,
}

/// Bytes that were cut off from a slice. They, and all before them, stay locked until this is dropped:
/// requests may use them until then.
#[derive(Debug)]
pub struct Tail(Claim);

impl Drop for Tail {
    fn drop(&mut self) {
        let mut locked = self.0.locked();
        locked.tails -= 1;
        if locked.tails == 0 && locked.end < locked.beyond {
            self.0.unlock(locked.end, locked.beyond);
            locked.beyond = locked.end;
        }
    }
}

/// The slices of this process.
#[derive(Debug, Default)]
pub struct Layout {
    claims: Vec<Claim>,
    /// The SSDs that this process drives, by PCI function.
    pub ssds: BTreeMap<String, KnownSsd>,
    /// Disks that slices have ever been on, by number; for a file it is the number of its file system.
    disks: Vec<Id>,
}

impl Layout {
    /// Gives `owner` a slice of this length in each of these, or none at all if one has no room.
    pub fn place(
        &mut self,
        owner: &str,
        backing: &[PathBuf],
        offset: Option<u64>,
        length: u64,
        (read_only, share): (bool, Option<Share>),
    ) -> Result<Vec<Slice>, LayoutError> {
        if share.is_some() && length < ALIGNMENT {
            return Err(LayoutError::Small(length));
        }
        let on_ssds = backing.iter().filter(|path| ssd(path).is_some()).count();
        if on_ssds > 0 && on_ssds < backing.len() {
            return Err(LayoutError::Mixed(backing[0].clone()));
        }
        let before = self.claims.len();
        let placed: Result<_, LayoutError> = backing
            .iter()
            .map(|path| {
                let (on, id) = self.find(path, read_only)?;
                if self.claims[before..].iter().any(|claim| claim.id == id) {
                    return Err(LayoutError::Twice(path.clone()));
                }
                let from = offset.unwrap_or_else(|| self.behind(id, share));
                let to = from.saturating_add(length);
                let (path, owner) = (path.clone(), owner.to_owned());
                let claim = Claim { id, path, on, from, to, owner, read_only, share, locked: Arc::default() };
                self.check(&claim)?;
                claim.lock()?;
                let slice = Slice { on: claim.duplicate()?.on, path: claim.path.clone(), offset: from };
                self.claims.push(claim);
                Ok(slice)
            })
            .collect();
        if placed.is_err() {
            self.claims.truncate(before);
        }
        placed
    }

    /// Finds a backing: a file or block device, which is opened, or an SSD that the process drives.
    fn find(&self, path: &Path, read_only: bool) -> Result<(Backing, Id), LayoutError> {
        let Some((function, _)) = ssd(path) else {
            let (file, id, _) = open(path, read_only)?;
            return Ok((Backing::File(file), id));
        };
        let missing = || LayoutError::Io(path.to_path_buf(), io::ErrorKind::NotConnected.into());
        let known = self.ssds.get(&function).copied().ok_or_else(missing)?;
        Ok((Backing::Ssd(known), (SSD, known.number as u64)))
    }

    /// Returns the group of each drive: drives that may wait for the same disk have the same number. `drive`
    /// returns the drive of an owner.
    pub fn groups<'a>(&'a mut self, drive: impl Fn(&'a str) -> &'a str) -> BTreeMap<&'a str, usize> {
        let disk = |claim: &Claim| if claim.id.0 >= SPECIAL { claim.id } else { (claim.id.0, 0) };
        for claim in &self.claims {
            if !self.disks.contains(&disk(claim)) {
                self.disks.push(disk(claim));
            }
        }
        let number = |claim: &Claim| self.disks.iter().position(|known| *known == disk(claim)).unwrap_or(0);
        let on: Vec<_> = self.claims.iter().map(|claim| (drive(&claim.owner), number(claim))).collect();
        // Disks of one drive belong together: all get the lowest number.
        let mut groups: Vec<usize> = (0..self.disks.len()).collect();
        for (one, first) in &on {
            for (_, second) in on.iter().filter(|(other, _)| one == other) {
                let (low, high) = (groups[*first].min(groups[*second]), groups[*first].max(groups[*second]));
                groups.iter_mut().filter(|group| **group == high).for_each(|group| *group = low);
            }
        }
        on.into_iter().map(|(drive, disk)| (drive, groups[disk])).collect()
    }

    /// Returns the place of the same shared namespace in a file, or the first place after all claims there.
    fn behind(&self, id: Id, share: Option<Share>) -> u64 {
        let same = |claim: &&Claim| claim.id == id && share.is_some() && claim.share == share;
        if let Some(claim) = self.claims.iter().find(same) {
            return claim.from;
        }
        let ends = self.claims.iter().filter(|claim| claim.id == id).map(|claim| claim.to);
        ends.max().unwrap_or(0).next_multiple_of(ALIGNMENT)
    }

    /// Checks that the bytes have no other owner, and that the file is long enough.
    fn check(&self, new: &Claim) -> Result<(), LayoutError> {
        let Claim { from, to, .. } = *new;
        let length = match &new.on {
            Backing::File(file) => length(file).map_err(|error| LayoutError::Io(new.path.clone(), error))?,
            Backing::Ssd(ssd) => ssd.length,
        };
        let path = || new.path.clone();
        if to > length || to >= READERS {
            return Err(LayoutError::Short { path: path(), from, to, length });
        }
        let same =
            |claim: &Claim| claim.share.is_some() && (claim.share, claim.from) == (new.share, new.from);
        let others = self.claims.iter().filter(|claim| claim.owner != new.owner && claim.id == new.id);
        let others = others.filter(|claim| !same(claim));
        match others.into_iter().find(|claim| claim.from < to && from < claim.to) {
            Some(claim) => Err(LayoutError::Overlap { path: path(), from, to, owner: claim.owner.clone() }),
            None => Ok(()),
        }
    }

    /// Changes the length of each of an owner's slices, or of none. Returns the parts that were cut off, one
    /// for each slice.
    pub fn resize(&mut self, owner: &str, length: u64) -> Result<Vec<Tail>, LayoutError> {
        let mut changed = Vec::new();
        for claim in self.claims.iter().filter(|claim| claim.owner == owner) {
            if claim.share.is_some() && length < ALIGNMENT {
                return Err(LayoutError::Small(length));
            }
            changed.push(Claim { to: claim.from.saturating_add(length), ..claim.duplicate()? });
        }
        changed.iter().try_for_each(|claim| self.check(claim))?;
        let locked = changed.iter().try_for_each(Claim::lock);
        let mine = self.claims.iter_mut().filter(|claim| claim.owner == owner);
        let tails = mine.zip(changed).map(|(claim, changed)| {
            if locked.is_ok() {
                claim.to = changed.to;
            }
            changed.cut(claim.to)
        });
        let tails: Vec<Tail> = tails.collect();
        locked.map(|()| tails)
    }

    /// Releases all slices of an owner.
    pub fn release(&mut self, owner: &str) {
        self.claims.retain(|claim| claim.owner != owner);
    }
}

impl Claim {
    /// Returns the same claim with another descriptor of the file.
    fn duplicate(&self) -> Result<Claim, LayoutError> {
        let on = match &self.on {
            Backing::Ssd(ssd) => Backing::Ssd(*ssd),
            Backing::File(file) => {
                Backing::File(file.try_clone().map_err(|error| LayoutError::Io(self.path.clone(), error))?)
            }
        };
        let (path, owner, locked) = (self.path.clone(), self.owner.clone(), self.locked.clone());
        Ok(Claim { on, path, owner, locked, ..*self })
    }

    fn locked(&self) -> MutexGuard<'_, Locked> {
        self.locked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks its bytes, and records the end of the lock.
    fn lock(&self) -> Result<(), LayoutError> {
        let mut locked = self.locked();
        lock(self)?;
        locked.end = locked.end.max(self.to);
        locked.beyond = locked.beyond.max(locked.end);
        Ok(())
    }

    /// Sets its end.
    fn cut(self, to: u64) -> Tail {
        let mut locked = self.locked();
        locked.end = to;
        locked.tails += 1;
        drop(locked);
        Tail(self)
    }

    /// Unlocks bytes of any lock. If that fails, they are unlocked when the file is closed.
    fn unlock(&self, from: u64, to: u64) {
        let Backing::File(file) = &self.on else { return };
        for base in [0, READERS, NAMES] {
            let bytes = range(nix::libc::F_UNLCK, base + from, base + to);
            let _ = fcntl(file, FcntlArg::F_OFD_SETLK(&bytes));
        }
    }
}

/// Returns the PCI function, and the namespace if one is named, of a backing like `nvme:0000:01:00.0/1`: an
/// SSD that the process drives itself. Returns `None` for other backings.
pub fn ssd(path: &Path) -> Option<(String, Option<&str>)> {
    let text = path.to_str()?.strip_prefix("nvme:")?;
    let (function, namespace) =
        text.split_once('/').map_or((text, None), |(front, back)| (front, Some(back)));
    Some((dcs_vfio::address(function).unwrap_or_else(|| function.to_owned()), namespace))
}

/// Returns the length of a file or block device.
fn length(mut file: &File) -> io::Result<u64> {
    file.seek(SeekFrom::End(0))
}

fn open(path: &Path, read_only: bool) -> Result<(File, Id, u64), LayoutError> {
    let failed = |error| LayoutError::Io(path.to_path_buf(), error);
    // Opening anything else, such as a pipe, could wait for ever.
    let known = std::fs::metadata(path).map_err(failed)?;
    // A device has many names, and one number.
    let id = match known.file_type() {
        kind if kind.is_file() => (known.dev(), known.ino()),
        kind if kind.is_block_device() => (BLOCK_DEVICE, known.rdev()),
        _ => return Err(LayoutError::Kind(path.to_path_buf())),
    };
    let file = OpenOptions::new().read(true).write(!read_only).open(path).map_err(failed)?;
    let length = length(&file).map_err(failed)?;
    Ok((file, id, length))
}

/// Locks a claim's bytes against all who may not share them.
fn lock(claim: &Claim) -> Result<(), LayoutError> {
    let Claim { from, to, read_only, share, .. } = *claim;
    // VFIO gives an SSD to one process only.
    let Backing::File(file) = &claim.on else { return Ok(()) };
    let refused = || LayoutError::Locked { path: claim.path.clone(), from, to };
    let io = |error: Errno| match error {
        Errno::EAGAIN | Errno::EACCES => refused(),
        other => LayoutError::Io(claim.path.clone(), other.into()),
    };
    let set =
        |kind, from, to| fcntl(file, FcntlArg::F_OFD_SETLK(&range(kind, from, to))).map(drop).map_err(io);
    // The place where the first lock of another begins; `None` if there is none.
    let others = |from, to| {
        let mut found = range(nix::libc::F_WRLCK, from, to);
        fcntl(file, FcntlArg::F_OFD_GETLK(&mut found)).map_err(io)?;
        Ok((found.l_type != nix::libc::F_UNLCK as i16).then_some(found.l_start as u64))
    };
    match share {
        None if !read_only => set(nix::libc::F_WRLCK, from, to),
        None => {
            set(nix::libc::F_RDLCK, from, to)?;
            set(nix::libc::F_RDLCK, READERS + from, READERS + to)?;
            others(NAMES + from, NAMES + to)?.map_or(Ok(()), |_| Err(refused()))
        }
        Some(share) => {
            let place = NAMES + from + share.place();
            set(nix::libc::F_RDLCK, from, to)?;
            set(nix::libc::F_RDLCK, place, NAMES + to)?;
            let alone = others(READERS + from, READERS + to)?.is_none();
            let same = others(NAMES + from, NAMES + to)?.is_none_or(|there| there == place);
            if alone && same { Ok(()) } else { Err(refused()) }
        }
    }
}

fn range(kind: i32, from: u64, to: u64) -> nix::libc::flock {
    nix::libc::flock {
        l_type: kind as i16,
        l_whence: nix::libc::SEEK_SET as i16,
        l_start: from as i64,
        l_len: (to - from) as i64,
        l_pid: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALONE: (bool, Option<Share>) = (false, None);

    fn file(folder: &tempfile::TempDir, name: &str, length: u64) -> PathBuf {
        let path = folder.path().join(name);
        File::create(&path).unwrap().set_len(length).unwrap();
        path
    }

    #[test]
    fn drives_that_share_a_disk_are_a_group() {
        let mut layout = Layout::default();
        let on = KnownSsd { number: 0, namespace: 1, length: 1 };
        let files =
            [("a/1", 8, 1), ("b/1", 8, 2), ("c/1", 9, 1), ("d/1", 9, 2), ("d/2", SSD, 0), ("e/1", SSD, 0)];
        for (owner, disk, number) in files.into_iter().chain([("f/1", SSD, 1), ("g/1", BLOCK_DEVICE, 1)]) {
            let (id, owner) = ((disk, number), owner.to_owned());
            let (path, share, locked) = (PathBuf::new(), None, Arc::default());
            let (from, to, read_only, on) = (0, 1, false, Backing::Ssd(on));
            let claim = Claim { id, path, on, from, to, owner, read_only, share, locked };
            layout.claims.push(claim);
        }
        let groups = layout.groups(|owner| &owner[..1]);
        let of =
            |names: &[&str]| names.iter().map(|name| groups[name]).collect::<std::collections::BTreeSet<_>>();
        for group in [&["a", "b"][..], &["c", "d", "e"]] {
            assert_eq!(of(group).len(), 1, "{groups:?}");
        }
        assert_eq!(of(&["a", "c", "f", "g"]).len(), 4, "{groups:?}");
        // Numbers stay when other drives go.
        let g = groups["g"];
        layout.release("a/1");
        assert_eq!(layout.groups(|owner| &owner[..1])["g"], g);
    }

    #[test]
    fn slices_of_ssds_are_striped_and_shared_as_those_of_files_are() {
        const MIB: u64 = 1 << 20;
        let folder = tempfile::tempdir().unwrap();
        let disk = file(&folder, "disk", 8 * MIB);
        let mut layout = Layout::default();
        let path = |number: u64| PathBuf::from(format!("nvme:0000:0{number}:00.0"));
        for number in [1, 2] {
            let known = KnownSsd { number: number as usize - 1, namespace: 1, length: 8 * number * MIB };
            layout.ssds.insert(format!("0000:0{number}:00.0"), known);
        }
        let both = [path(1), path(2)];
        let striped = layout.place("a/1", &both, None, 2 * MIB, ALONE).unwrap();
        let on = |slice: &Slice| match slice.on {
            Backing::Ssd(ssd) => (ssd.number, slice.offset),
            Backing::File(_) => panic!("it is on an SSD"),
        };
        assert_eq!(striped.iter().map(on).collect::<Vec<_>>(), [(0, 0), (1, 0)]);
        let next = layout.place("b/1", &both[1..], None, MIB, ALONE).unwrap();
        assert_eq!(on(&next[0]), (1, 2 * MIB));
        // The second SSD is larger; the first one has to have room, too.
        let error = layout.place("c/1", &both, None, 7 * MIB, ALONE).unwrap_err();
        assert!(matches!(error, LayoutError::Short { .. }), "{error}");
        let error = layout.place("c/1", &[path(1), path(1)], None, MIB, ALONE).unwrap_err();
        assert!(matches!(error, LayoutError::Twice(_)), "{error}");
        for mixed in [[path(1), disk.clone()], [disk, path(1)]] {
            let error = layout.place("c/1", &mixed, None, MIB, ALONE).unwrap_err();
            assert!(matches!(error, LayoutError::Mixed(_)) && error.advice().contains("vfio-pci"), "{error}");
        }
        let error = layout.place("c/1", &[path(3)], None, MIB, ALONE).unwrap_err();
        assert!(matches!(error, LayoutError::Io(..)), "{error}");
        // Drives that show the same namespace have the same bytes, and nobody else.
        let share = |number| (false, Some(Share(number)));
        let first = layout.place("d/1", &both, None, MIB, share(7)).unwrap();
        let second = layout.place("e/1", &both, None, MIB, share(7)).unwrap();
        assert!(first.iter().map(on).eq(second.iter().map(on)));
        let place = on(&first[0]).1;
        for kind in [ALONE, share(8)] {
            let error = layout.place("f/1", &both[..1], Some(place), MIB, kind).unwrap_err();
            assert!(matches!(error, LayoutError::Overlap { .. }), "{error}");
        }
        layout.release("d/1");
        assert!(layout.place("f/1", &both[..1], Some(place), MIB, ALONE).is_err(), "one path is left");
        layout.release("e/1");
        assert!(layout.place("f/1", &both[..1], Some(place), MIB, ALONE).is_ok());
    }

    #[test]
    fn slices_lie_one_behind_the_other_and_never_overlap() {
        let folder = tempfile::tempdir().unwrap();
        let path = file(&folder, "disk", 8 << 20);
        let mut layout = Layout::default();
        let mut place = |owner: &str, offset, length| {
            layout.place(owner, std::slice::from_ref(&path), offset, length, ALONE)
        };
        let first = place("a/1", None, 1000).unwrap();
        let second = place("b/1", None, 2 << 20).unwrap();
        assert_eq!((first[0].offset, second[0].offset), (0, 1 << 20));
        let error = place("c/1", Some((3 << 20) - 1), 10).unwrap_err();
        assert!(error.to_string().ends_with("overlap those of b/1"), "{error}");
        let error = place("c/1", None, 6 << 20).unwrap_err();
        assert!(matches!(error, LayoutError::Short { from: 0x30_0000, length: 0x80_0000, .. }), "{error}");
        assert!(matches!(place("c/1", Some(u64::MAX), 2), Err(LayoutError::Short { .. })));
        drop(second);
        // A slice may grow into free bytes, and nowhere else.
        let error = layout.resize("a/1", (1 << 20) + 1).unwrap_err();
        assert!(error.to_string().ends_with("overlap those of b/1"), "{error}");
        layout.resize("a/1", 1 << 20).unwrap();
        assert!(matches!(layout.resize("b/1", 8 << 20), Err(LayoutError::Short { .. })));
        layout.resize("b/1", 7 << 20).unwrap();
        layout.release("b/1");
        let again = layout.place("c/1", &[path], Some(1 << 20), 2 << 20, ALONE).unwrap();
        assert_eq!(again[0].offset, 1 << 20);
    }

    #[test]
    fn a_name_more_for_a_file_is_the_same_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = file(&folder, "disk", 8 << 20);
        let other = folder.path().join("link");
        std::os::unix::fs::symlink(&path, &other).unwrap();
        let mut layout = Layout::default();
        let error = layout.place("a/1", &[path.clone(), other.clone()], None, 1 << 20, ALONE).unwrap_err();
        assert!(matches!(error, LayoutError::Twice(_)), "{error}");
        let _first = layout.place("a/1", &[path], Some(0), 1 << 20, ALONE).unwrap();
        assert!(matches!(layout.place("b/1", &[other], Some(0), 1, ALONE), Err(LayoutError::Overlap { .. })));
    }

    #[test]
    fn another_process_s_slice_is_refused_until_it_is_free() {
        let folder = tempfile::tempdir().unwrap();
        let path = file(&folder, "disk", 8 << 20);
        // An open file description of its own, as another process would have.
        let other = Layout::default().place("x", std::slice::from_ref(&path), None, 1 << 20, ALONE).unwrap();
        let mut layout = Layout::default();
        let paths = std::slice::from_ref(&path);
        let error = layout.place("a/1", paths, None, 1 << 20, ALONE).unwrap_err();
        assert!(matches!(error, LayoutError::Locked { .. }), "{error}");
        assert!(layout.place("a/1", paths, Some(1 << 20), 1 << 20, ALONE).is_ok());
        drop(other);
        assert!(layout.place("b/1", paths, Some(0), 1 << 20, ALONE).is_ok());
    }

    /// Bytes that are cut off become free when they are not used any more, not before; those that grow again
    /// meanwhile stay locked.
    #[test]
    fn a_slice_s_tail_is_free_when_nobody_uses_it() {
        const MIB: u64 = 1 << 20;
        let folder = tempfile::tempdir().unwrap();
        let path = file(&folder, "disk", 16 * MIB);
        for kind in [ALONE, (true, None), (false, Some(Share(7)))] {
            let place = |owner: &str, layout: &mut Layout, kind| {
                layout.place(owner, std::slice::from_ref(&path), Some(0), 8 * MIB, kind)
            };
            let mut layout = Layout::default();
            let slice = place("a/1", &mut layout, kind).unwrap();
            // An open file description of its own, as another process would have.
            let is_free = |from: u64, to: u64| {
                let mut other = Layout::default();
                other
                    .place("x", std::slice::from_ref(&path), Some(from * MIB), (to - from) * MIB, ALONE)
                    .is_ok()
            };
            let first = layout.resize("a/1", 4 * MIB).unwrap();
            assert!(!is_free(4, 8) && !is_free(7, 8) && is_free(8, 16), "{kind:?}: it is still used");
            drop(layout.resize("a/1", 6 * MIB).unwrap());
            let second = layout.resize("a/1", 5 * MIB).unwrap();
            drop(first);
            assert!(!is_free(5, 8), "{kind:?}: the second one may still use it");
            drop(second);
            assert!(is_free(5, 8) && !is_free(4, 5), "{kind:?}");
            // A slice that cannot grow keeps its bytes, and no more.
            let taken = Layout::default().place("x", std::slice::from_ref(&path), Some(7 * MIB), MIB, ALONE);
            assert!(layout.resize("a/1", 8 * MIB).is_err());
            drop(taken);
            assert!(is_free(5, 8) && !is_free(4, 5), "{kind:?}");
            if kind.1.is_some() {
                assert!(matches!(layout.resize("a/1", MIB - 512), Err(LayoutError::Small(_))));
            }
            layout.release("a/1");
            assert!(!is_free(0, 5));
            drop(slice);
            assert!(is_free(0, 16));
        }
    }

    #[test]
    fn what_is_no_disk_is_refused_and_nothing_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = file(&folder, "disk", 8 << 20);
        let mut layout = Layout::default();
        let missing = folder.path().join("missing");
        for (bad, said) in
            [(missing, "truncate"), (folder.path().to_path_buf(), "name a"), ("/dev/null".into(), "name a")]
        {
            let error = layout.place("a/1", &[path.clone(), bad], None, 1 << 20, ALONE).unwrap_err();
            assert!(error.advice().contains(said), "{error}: {}", error.advice());
        }
        assert!(layout.place("b/1", &[path], Some(0), 8 << 20, ALONE).is_ok(), "it is all free");
    }

    #[test]
    fn a_shared_namespace_s_bytes_are_had_by_those_who_show_the_same_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = file(&folder, "disk", 32 << 20);
        let (one, other) = (Some(Share(7)), Some(Share(8)));
        // Each has an open file description of its own, as in other processes.
        let place = |offset, (read_only, share)| {
            let mut layout = Layout::default();
            layout.place("a/1", std::slice::from_ref(&path), Some(offset), 4 << 20, (read_only, share))?;
            Ok::<Layout, LayoutError>(layout)
        };
        let refused = |offset, kind| matches!(place(offset, kind), Err(LayoutError::Locked { .. }));
        let mut first = place(8 << 20, (false, one)).unwrap();
        let second = place(8 << 20, (false, one)).unwrap();
        let reader = place(8 << 20, (true, one)).unwrap();
        for at in [8 << 20, 5 << 20, 11 << 20, 9 << 20] {
            for kind in [ALONE, (true, None), (false, other), (true, other)] {
                assert!(refused(at, kind), "{at}: {kind:?}");
            }
            assert_eq!(refused(at, (false, one)), at != 8 << 20, "the same, elsewhere");
        }
        assert!(place(4 << 20, ALONE).is_ok() && place(12 << 20, (false, other)).is_ok(), "beside it");
        // A longer one locks more, and another path may follow.
        first.resize("a/1", 8 << 20).unwrap();
        assert!(refused(12 << 20, ALONE));
        drop((first, second));
        assert!(refused(8 << 20, ALONE), "one path is left");
        drop(reader);
        // Several independent readers are allowed, but no shared namespace beside them.
        let readers = [place(8 << 20, (true, None)).unwrap(), place(8 << 20, (true, None)).unwrap()];
        assert!(refused(8 << 20, (false, one)) && refused(8 << 20, ALONE));
        drop(readers);
        assert!(place(8 << 20, ALONE).is_ok());
        let mut layout = Layout::default();
        let small = layout.place("a/1", std::slice::from_ref(&path), None, 1000, (false, one));
        assert!(matches!(small, Err(LayoutError::Small(1000))));
        // In one process it stays where it is.
        let paths = std::slice::from_ref(&path);
        layout.place("z/1", paths, None, 1 << 20, ALONE).unwrap();
        let first = layout.place("a/1", paths, None, 2 << 20, (false, one)).unwrap();
        let second = layout.place("b/1", paths, None, 2 << 20, (false, one)).unwrap();
        assert_eq!((first[0].offset, second[0].offset), (1 << 20, 1 << 20));
        let over = layout.place("c/1", paths, Some(1 << 20), 2 << 20, (false, other)).unwrap_err();
        assert!(matches!(over, LayoutError::Overlap { .. }), "{over}");
    }
}
