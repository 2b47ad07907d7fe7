//! Small objects' data, which lie in the database: no file is made, synced and removed for them.
//!
//! A segment whose id has its highest bit set is here and has no file; all others have a file. Its bytes are
//! cut into rows that fill a page of the database's each (whose pages are powers of two). They come and go with
//! the object's record, in the same transaction, so that there is nothing for a crash to leave behind, and
//! nothing to sweep.
//!
//! Parts of uploads always have files: who reads an object in parts holds all of them while they are read one
//! after the other ([`held`](super::held)), which rows of the database can't be.

use redb::{ReadTransaction, Table};

use super::error::StoreError;
use super::record::Segment;
use super::tables::INLINE;

/// Set in the ids of segments that lie in the database.
const IN_DATABASE: u64 = 1 << 63;

/// Bytes of a row: with its key and the page's own fields they fill a page of 32 KiB.
const ROW: usize = (32 << 10) - 64;

/// The id of a segment in the database, of an id that was never used.
pub(super) fn id(number: u64) -> u64 {
    number | IN_DATABASE
}

/// True if the segment of that id lies in the database.
pub(super) fn is_inline(id: u64) -> bool {
    id & IN_DATABASE != 0
}

/// Where a segment's data are, for people.
pub fn place(id: u64) -> String {
    let place = if is_inline(id) { "data in the database" } else { "data file" };
    format!("{place} {id:016x}")
}

/// The rows of a segment of that many bytes.
fn rows(bytes: usize) -> impl Iterator<Item = u16> {
    (0..=u16::MAX).take(bytes.div_ceil(ROW))
}

/// Adds a segment's bytes.
pub(super) fn insert(
    table: &mut Table<'_, (u64, u16), &'static [u8]>,
    id: u64,
    bytes: &[u8],
) -> Result<(), StoreError> {
    for (row, bytes) in rows(bytes.len()).zip(bytes.chunks(ROW)) {
        table.insert((id, row), bytes)?;
    }
    Ok(())
}

/// Removes a segment's bytes.
pub(super) fn remove(
    table: &mut Table<'_, (u64, u16), &'static [u8]>,
    segment: &Segment,
) -> Result<(), StoreError> {
    for row in rows(segment.stored as usize) {
        table.remove((segment.id, row))?;
    }
    Ok(())
}

/// Reads a segment's bytes.
///
/// # Errors
///
/// [`StoreError::NotFound`] where none of them are there, [`StoreError::Damaged`] where there are more or fewer.
pub(super) fn read(reading: &ReadTransaction, segment: &Segment) -> Result<Vec<u8>, StoreError> {
    let table = reading.open_table(INLINE)?;
    let mut bytes = Vec::with_capacity(rows(segment.stored as usize).count() * ROW);
    for row in table.range((segment.id, 0)..=(segment.id, u16::MAX))? {
        bytes.extend_from_slice(row?.1.value());
    }
    match bytes.len() as u64 {
        0 if segment.stored > 0 => Err(StoreError::NotFound),
        read if read == segment.stored => Ok(bytes),
        read => Err(StoreError::Damaged(format!("{segment}: {read} bytes, not {}", segment.stored))),
    }
}
