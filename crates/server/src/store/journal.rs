//! The journal: what PUTs of small objects change in the database, next to the objects' data, so that one sync makes
//! both durable.
//!
//! A commit of small objects alone appends a *journal entry* to the pack that has their data. The database takes them
//! later ([`waiting`](super::waiting)), in a transaction that stays in memory (redb's `Durability::None`) until a
//! *checkpoint*: a commit of another kind, or to another pack, or a second without any. Whoever opens the database
//! applies the entries that it lacks.
//!
//! ```text
//!   pack   | data | data | entry 7 | data | entry 8 | ...
//!   entry    mark: 16 bytes | number: u64 | length of the body: u32 | body | CRC-64 of all of these
//!   body     postcard: of each object its key, its record, and the CRC-64 of its bytes in the pack
//! ```
//!
//! * **Whole or not at all.** The disk may have an entry without its data, or the reverse. An entry counts if its own
//!   CRC-64 is right and those of all its data are. Each is durable before the next is written, so what comes after one
//!   that does not count was never acknowledged.
//! * **Once.** Each transaction with puts moves the number of the next entry in the database, so a state of the
//!   database says which entries it has.
//! * **Not forged.** The mark is random, made at each start, and known from the database alone: no object can have
//!   bytes that pass for an entry.
//! * **Until the checkpoint** entries and the data that they replaced stay where they are. Afterwards they are garbage.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::Path;

use crc_fast::CrcAlgorithm;
use redb::{Database, ReadableDatabase};
use serde::{Deserialize, Serialize};

use super::change::{Changes, Entry};
use super::durability::Durability;
use super::error::StoreError;
use super::extent::{BLOCK, Extent};
use super::folder::Folder;
use super::pack;
use super::record::Segment;
use super::tables::*;
use super::trace;

/// A mark of 16 bytes: what entries begin with.
pub(super) type Mark = [u64; 2];

const HEAD: usize = 16 + 8 + 4;
const SUM: usize = 8;

/// The committer's part of the journal: what has happened since the last checkpoint.
#[derive(Debug)]
pub(super) struct Journal {
    /// Mark of this start's entries.
    mark: Mark,
    /// Number of the next entry.
    next: u64,
    /// Number after that of the last entry that was acknowledged, or of the last checkpoint.
    acknowledged: u64,
    /// Pack that takes entries, as the last checkpoint says; `None` before, and after a failure.
    pack: Option<u64>,
    /// Extents of the entries.
    entries: Vec<u64>,
    /// Files and extents that are not needed any more.
    replaced: BTreeSet<u64>,
}

impl Journal {
    /// Begins with this mark and number, without a pack.
    pub(super) fn new(mark: Mark, next: u64) -> Journal {
        Journal { mark, next, acknowledged: next, pack: None, entries: Vec::new(), replaced: BTreeSet::new() }
    }

    /// Returns the pack that takes entries.
    pub(super) fn pack(&self) -> Option<u64> {
        self.pack
    }

    /// Returns true if there is something to check in: entries, or a number to move past one that failed.
    pub(super) fn is_pending(&self) -> bool {
        !self.entries.is_empty() || self.next != self.acknowledged
    }

    /// Returns the number after the last entry that may be applied again.
    pub(super) fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// Encodes the next entry.
    pub(super) fn entry(&self, puts: &[Put]) -> Vec<u8> {
        encode_entry(self.mark, self.next, puts)
    }

    /// Notes that the next entry was written to that extent.
    pub(super) fn appended(&mut self, extent: Extent) {
        self.next += 1;
        self.acknowledged = self.next;
        self.entries.push(extent.id());
    }

    /// Notes what entries replaced. It stays until the next checkpoint.
    pub(super) fn replaced(&mut self, ids: Vec<u64>) {
        self.replaced.extend(ids);
    }

    /// Notes that it is not known what the disk has of the next entry. Nothing is appended before a checkpoint has
    /// moved the number past it.
    pub(super) fn broken(&mut self) {
        self.next = self.acknowledged + 1;
        self.pack = None;
    }

    /// Makes a transaction a checkpoint, after which that pack takes entries.
    pub(super) fn checkpoint(&self, changes: &mut Changes<'_>, pack: Option<u64>) -> Result<(), StoreError> {
        changes.state.insert(STATE_JOURNAL, self.next)?;
        changes.state.insert(STATE_JOURNAL_PACK, pack.unwrap_or(0))?;
        changes.emptied(self.replaced.iter().copied());
        self.entries.iter().try_for_each(|id| changes.discard_id(*id))
    }

    /// Notes that the checkpoint is durable. Returns what is not needed any more, besides what the transaction tells.
    pub(super) fn checkpointed(&mut self, pack: Option<u64>) -> BTreeSet<u64> {
        self.acknowledged = self.next;
        self.pack = pack;
        self.entries.clear();
        std::mem::take(&mut self.replaced)
    }
}

/// Returns a new mark.
pub(super) fn new_mark() -> Result<Mark, StoreError> {
    let word = || {
        getrandom::u64()
            .map_err(|error| StoreError::io("get", "random bytes".as_ref())(io::Error::other(error)))
    };
    Ok([word()?, word()?])
}

/// Most bytes of a number in a body.
const NUMBER_MAX: usize = 10;

/// Most bytes of an entry beside its objects.
pub(super) const FRAME_MAX: usize = HEAD + NUMBER_MAX + SUM;

/// Returns the most bytes of an object with that many segments, beside its key and record.
pub(super) fn frame_max(segments: usize) -> usize {
    NUMBER_MAX * (3 + segments)
}

/// An object that was put.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Put {
    /// Its key in the table of objects.
    pub(super) key: Vec<u8>,
    /// Its record, as it is in the table.
    pub(super) record: Vec<u8>,
    /// CRC-64/NVME of the bytes of each of its segments.
    pub(super) sums: Vec<u64>,
}

/// Returns the CRC-64/NVME of these bytes.
pub(super) fn sum(bytes: &[u8]) -> u64 {
    crc_fast::checksum(CrcAlgorithm::Crc64Nvme, bytes)
}

/// Encodes an entry.
pub(super) fn encode_entry(mark: Mark, number: u64, puts: &[Put]) -> Vec<u8> {
    let body = postcard::to_stdvec(puts).expect("puts are plain data in memory");
    let mut bytes = Vec::with_capacity(HEAD + body.len() + SUM);
    bytes.extend(mark.iter().flat_map(|word| word.to_le_bytes()));
    bytes.extend(number.to_le_bytes());
    bytes.extend(u32::try_from(body.len()).expect("a batch has a few MiB").to_le_bytes());
    bytes.extend(body);
    bytes.extend(sum(&bytes).to_le_bytes());
    bytes
}

/// Decodes the entry that these bytes begin with. Returns its number and its objects; `None` if there is none, or not
/// all of it.
pub(super) fn decode_entry(mark: Mark, bytes: &[u8]) -> Option<(u64, Vec<Put>)> {
    let word = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    if [word(0)?, word(8)?] != mark {
        return None;
    }
    let length = u32::from_le_bytes(bytes.get(24..HEAD)?.try_into().ok()?) as usize;
    let end = HEAD.checked_add(length)?;
    if word(end)? != sum(&bytes[..end]) {
        return None;
    }
    Some((word(16)?, postcard::from_bytes(&bytes[HEAD..end]).ok()?))
}

/// Applies the entries that the database lacks, those numbered below `before`. Returns the number of the next entry,
/// and what is not needed any more.
///
/// A process that was killed may have written an entry and not synced it. So unless nothing is durable, the pack is
/// synced first: what is applied here replaces objects for good.
pub(super) fn replay(
    database: &Database,
    folder: &Folder,
    durability: Durability,
    before: u64,
) -> Result<(u64, Vec<u64>), StoreError> {
    let state = database.begin_read()?.open_table(STATE)?;
    let number = |name| Ok::<_, StoreError>(state.get(name)?.map_or(0, |value| value.value()));
    let (mut next, pack) = (number(STATE_JOURNAL)?, number(STATE_JOURNAL_PACK)?);
    let mark = [number(STATE_JOURNAL_MARKS[0])?, number(STATE_JOURNAL_MARKS[1])?];
    let mut replaced = Vec::new();
    if pack == 0 {
        return Ok((next, replaced));
    }
    let Some(bytes) = read_pack(&pack::path(folder.packs(), pack), durability)? else {
        return Ok((next, replaced));
    };
    let places = (0..bytes.len()).step_by(BLOCK as usize);
    let mut entries: BTreeMap<u64, Vec<Put>> =
        places.filter_map(|at| decode_entry(mark, &bytes[at..])).collect();
    let transaction = database.begin_write()?;
    let mut changes = Changes::new(&transaction)?;
    let first = next;
    while let Some(puts) = entries.remove(&next).filter(|_| next < before) {
        let sums: Vec<_> = puts.iter().map(|put| put.sums.clone()).collect();
        let entries = puts.into_iter().map(Entry::of).collect::<Result<Vec<_>, _>>()?;
        if !entries.iter().zip(&sums).all(|(entry, sums)| has_data(&entry.segments, sums, pack, &bytes)) {
            break;
        }
        entries.iter().try_for_each(|entry| changes.put_again(entry))?;
        next += 1;
    }
    if next > first {
        tracing::info!(entries = next - first, "the journal has changes that the database lacked");
        changes.state.insert(STATE_JOURNAL, next)?;
        changes.discard_packs(&[], |pack| folder.is_in_flight(pack))?;
        replaced = changes.finish()?;
        transaction.commit()?;
    }
    Ok((next, replaced))
}

/// Reads a whole pack as it is on the disk; `None` if there is none.
fn read_pack(path: &Path, durability: Durability) -> Result<Option<Vec<u8>>, StoreError> {
    let mut file = match File::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(StoreError::io("open", path))?,
    };
    if durability != Durability::None {
        trace::syncs(path, || file.sync_data()).map_err(StoreError::io("sync", path))?;
        // Memory may have what an earlier sync failed to write. The kernel drops what it takes for written.
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)
            .map_err(|error| StoreError::io("forget what is in memory of", path)(error.into()))?;
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(StoreError::io("read", path))?;
    Ok(Some(bytes))
}

/// Returns true if all of an object's data are in the pack, with these CRC-64s.
fn has_data(segments: &[Segment], sums: &[u64], pack: u64, bytes: &[u8]) -> bool {
    let is_there = |segment: &Segment, expected: u64| {
        let extent = Extent::of(segment.id).filter(|extent| extent.pack == pack)?;
        let from = usize::try_from(extent.bytes().start).ok()?;
        let end = from.checked_add(usize::try_from(segment.stored).ok()?)?;
        Some(sum(bytes.get(from..end)?) == expected)
    };
    sums.len() == segments.len()
        && segments.iter().zip(sums).all(|(segment, sum)| is_there(segment, *sum) == Some(true))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn puts() -> Vec<Put> {
        let put = |key: &str, sum| Put { key: key.into(), record: vec![7; 300], sums: vec![sum] };
        vec![put("one", 1), put("two", u64::MAX)]
    }

    #[test]
    fn an_entry_comes_back_and_no_other_does() {
        let mark = [3, 1 << 63];
        let mut bytes = encode_entry(mark, 9, &puts());
        let length = bytes.len();
        bytes.resize(length + 1000, 0);
        assert_eq!(decode_entry(mark, &bytes), Some((9, puts())));
        assert_eq!(decode_entry([3, 1], &bytes), None, "another start's");
        for end in 0..length {
            assert_eq!(decode_entry(mark, &bytes[..end]), None, "cut at {end}");
        }
        for bit in 0..length * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode_entry(mark, &bytes), None, "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }
}
