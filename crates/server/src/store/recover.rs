//! Recovery at a start after a crash.
//!
//! A draft that was in flight has a file and no record. Its id is between the lowest one in flight when ids were last
//! reserved and the end of that reservation. So the work is bounded by what was in progress, not by what is stored.

use std::fs;
use std::io::ErrorKind;
use std::ops::Range;

use redb::{Database, ReadOnlyTable, ReadableDatabase, ReadableTable};

use super::change::Changes;
use super::database;
use super::durability::Durability;
use super::error::StoreError;
use super::extent;
use super::folder::{Folder, RANGE, sync_folder};
use super::journal::Mark;
use super::pack;
use super::sweep::sweep;
use super::tables::*;

/// Findings of a start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// True if the store had not been closed: its process was killed, or the machine stopped.
    pub crashed: bool,
    /// Removed files of unfinished uploads.
    pub unfinished: usize,
    /// Removed files of objects that were replaced or deleted before.
    pub garbage: usize,
}

/// Removes what a crash left behind, reserves the first ids, and begins a journal with that mark.
pub(super) fn clean_up(
    database: &Database,
    folder: &Folder,
    durability: Durability,
    crashed: bool,
    mark: Mark,
) -> Result<Recovery, StoreError> {
    let (floor, end) = (database::state(database, STATE_FLOOR)?, database::state(database, STATE_END)?);
    let reading = database.begin_read()?;
    let mut garbage = Vec::new();
    for entry in reading.open_table(GARBAGE)?.iter()? {
        garbage.push(entry?.0.value());
    }
    let blobs = reading.open_table(BLOBS)?;
    let mut unfinished = Vec::new();
    for id in files_between(folder, floor, end)? {
        if blobs.get(id)?.is_none() && garbage.binary_search(&id).is_err() {
            unfinished.push(id);
        }
    }
    unfinished.sort_unstable();
    let untrimmed = trim_packs(folder, &blobs, floor..end)?;
    drop(blobs);
    reading.close()?;
    let recovery = Recovery { crashed, unfinished: unfinished.len(), garbage: garbage.len() };
    // Names that the last process made but was killed before making durable.
    if durability != Durability::None {
        sync_folder(folder.data())?;
        sync_folder(folder.packs())?;
    }
    sweep(folder, &mut garbage, durability)?;
    let mut left = unfinished.clone();
    sweep(folder, &mut unfinished, durability)?;
    // A file that can't be removed stays in the range that this start and the next ones check.
    left.retain(|id| unfinished.binary_search(id).is_err());
    left.extend(untrimmed);
    left.sort_unstable();
    folder.mark_unremovable(&left);
    let floor = left.first().copied().unwrap_or(end);
    let transaction = database.begin_write()?;
    let mut changes = Changes::new(&transaction)?;
    changes.removed(&garbage)?;
    changes.reserve(floor, end + RANGE)?;
    changes.begin_journal(mark)?;
    changes.finish()?;
    transaction.commit()?;
    Ok(recovery)
}

/// Frees what is in packs that were being filled and that no record refers to. Returns the packs where that failed.
fn trim_packs(
    folder: &Folder,
    blobs: &ReadOnlyTable<u64, ()>,
    ids: Range<u64>,
) -> Result<Vec<u64>, StoreError> {
    let at = |error| StoreError::io("look through", folder.packs())(error);
    let mut left = Vec::new();
    for pack in pack::packs_between(folder.packs(), ids).map_err(at)? {
        let mut referred = Vec::new();
        for entry in blobs.range(extent::extents(pack))? {
            referred.push(entry?.0.value());
        }
        let trimmed = match referred.is_empty() {
            true => folder.remove(extent::whole(pack)).map(drop),
            false => pack::trim(folder.packs(), pack, referred.into_iter()).map_err(at),
        };
        if let Err(error) = trimmed {
            tracing::warn!(%error, "a pack keeps what a crash left in it until the next start");
            left.push(pack);
        }
    }
    Ok(left)
}

/// Returns the ids of files in `floor..end`.
fn files_between(folder: &Folder, floor: u64, end: u64) -> Result<Vec<u64>, StoreError> {
    let mut ids = Vec::new();
    for number in Folder::number(floor)..=Folder::number(end) {
        let path = folder.subfolder(number);
        let entries = match fs::read_dir(&path) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) => return Err(StoreError::io("read", &path)(error)),
        };
        for entry in entries {
            let name = entry.map_err(StoreError::io("read", &path))?.file_name();
            let id = name.to_str().and_then(|name| u64::from_str_radix(name, 16).ok());
            ids.extend(id.filter(|id| (floor..end).contains(id) && folder.path(*id).ends_with(&name)));
        }
    }
    Ok(ids)
}
