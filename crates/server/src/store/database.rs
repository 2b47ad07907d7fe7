//! The database's file: how it is made and opened, and what may be lost.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redb::backends::FileBackend;
use redb::{Database, ReadableDatabase, StorageBackend};

use super::error::StoreError;
use super::folder::sync_folder;
use super::record::FORMAT;
use super::tables::*;

/// Pages of the database that are kept in memory.
const CACHE: usize = 256 << 20;

/// The database in a file that nobody else has open: the folder is locked.
#[derive(Debug)]
struct Backend {
    file: FileBackend,
    /// Whether the disk is waited for. Without, all that was written survives the process, but not the machine.
    syncs: bool,
}

impl StorageBackend for Backend {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        if self.syncs { self.file.sync_data() } else { Ok(()) }
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.file.write(offset, data)
    }
}

/// Opens the database at `path`, and says whether it had not been closed.
pub(super) fn open(path: &Path, syncs: bool) -> Result<(Database, bool), StoreError> {
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
    let file = FileBackend::new(file.map_err(StoreError::io("open", path))?)?;
    let repaired = Arc::new(AtomicBool::new(false));
    let database = {
        let repaired = repaired.clone();
        Database::builder()
            .set_cache_size(CACHE)
            .set_repair_callback(move |_| repaired.store(true, Ordering::Relaxed))
            .create_with_backend(Backend { file, syncs })?
    };
    Ok((database, repaired.load(Ordering::Relaxed)))
}

/// Makes a new store in `root`: the database appears under its name when it is whole.
pub(super) fn create(root: &Path) -> Result<(), StoreError> {
    let (draft, path, data) = (root.join("meta.redb.new"), root.join("meta.redb"), root.join("data"));
    fs::create_dir_all(&data).map_err(StoreError::io("create", &data))?;
    match fs::remove_file(&draft) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(StoreError::io("remove", &draft)(error));
        }
        _ => {}
    }
    let (database, _) = open(&draft, true)?;
    let transaction = database.begin_write()?;
    transaction.open_table(BUCKETS)?;
    transaction.open_table(OBJECTS)?;
    transaction.open_table(UPLOADS)?;
    transaction.open_table(PARTS)?;
    transaction.open_table(BLOBS)?;
    transaction.open_table(GARBAGE)?;
    let mut state = transaction.open_table(STATE)?;
    state.insert(STATE_FORMAT, u64::from(FORMAT))?;
    for name in [STATE_FLOOR, STATE_END] {
        state.insert(name, 1)?;
    }
    for name in [STATE_BYTES, STATE_STORED] {
        state.insert(name, 0)?;
    }
    drop(state);
    transaction.commit()?;
    database.close()?;
    fs::rename(&draft, &path).map_err(StoreError::io("rename", &draft))?;
    sync_folder(root)?;
    root.parent().filter(|parent| !parent.as_os_str().is_empty()).map_or(Ok(()), sync_folder)
}

/// A number of the state.
pub(super) fn state(database: &Database, name: &str) -> Result<u64, StoreError> {
    let value = database.begin_read()?.open_table(STATE)?.get(name)?.map(|value| value.value());
    value.ok_or_else(|| StoreError::Damaged(format!("the database: it has no state {name:?}")))
}

/// Refuses a database of another format.
pub(super) fn check_format(database: &Database) -> Result<(), StoreError> {
    match state(database, STATE_FORMAT)? {
        found if found == u64::from(FORMAT) => Ok(()),
        found => Err(StoreError::Format { found, known: FORMAT }),
    }
}
