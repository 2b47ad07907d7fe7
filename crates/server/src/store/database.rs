//! The database's file: made, opened, and read again from the disk after a failed sync.

use std::cmp::Ordering;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use dcs::page_cache;
use redb::backends::FileBackend;
use redb::{Database, ReadableDatabase, StorageBackend};

use super::error::StoreError;
use super::folder::{make_folder, sync_above, sync_folder};
use super::record::FORMAT;
use super::tables::*;
use super::trace;

/// Bytes of the database that are kept in memory. In unit tests all is read again, since reads may fail there.
const CACHE: usize = if cfg!(test) { 0 } else { 256 << 20 };

/// Database file. The folder's lock keeps other processes from opening it.
#[derive(Debug)]
struct Backend {
    file: FileBackend,
    path: PathBuf,
    /// Set when a sync fails: what the kernel has of the file in memory may not be on the disk, and never will be.
    unsynced: Arc<AtomicBool>,
    /// True if commits wait for the disk. If false, what was written survives the process, but not the machine.
    syncs: bool,
}

impl StorageBackend for Backend {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        trace::reads(&self.path)?;
        self.file.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        trace::resizes(&self.path, len);
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        if !self.syncs {
            return Ok(());
        }
        let synced = trace::syncs(&self.path, || self.file.sync_data());
        synced.inspect_err(|_| self.unsynced.store(true, Relaxed))
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        trace::writes(&self.path, offset, data);
        self.file.write(offset, data)
    }
}

/// Opens the database at `path`. Also returns true if it had not been closed. `unsynced` is set when a sync fails.
pub(super) fn open(
    path: &Path,
    syncs: bool,
    unsynced: &Arc<AtomicBool>,
) -> Result<(Database, bool), StoreError> {
    let is_new = !path.exists();
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create(true).truncate(false).mode(0o600).open(path);
    let file = FileBackend::new(file.map_err(StoreError::io("open", path))?)?;
    if is_new {
        trace::made_file(path);
    }
    let (path, unsynced) = (path.to_owned(), unsynced.clone());
    let repaired = Arc::new(AtomicBool::new(false));
    let database = {
        let repaired = repaired.clone();
        Database::builder()
            .set_cache_size(CACHE)
            .set_repair_callback(move |_| repaired.store(true, Relaxed))
            .create_with_backend(Backend { file, path, unsynced, syncs })?
    };
    Ok((database, repaired.load(Relaxed)))
}

/// Name of the mark that a sync of the database has failed, and that its file has not been read from the disk since.
const MARK: &str = "unsynced";

/// Has the next start read the database from the disk too.
pub(super) fn mark_unsynced(database: &Path) {
    let mark = database.with_file_name(MARK);
    if let Err(error) = fs::write(&mark, "a sync of the database failed\n") {
        tracing::error!(%error, path = %mark.display(), "could not be written");
    }
}

/// Reads the database from the disk if its last server marked it ([`mark_unsynced`]).
///
/// # Errors
///
/// The errors of [`forget_memory`].
pub(super) fn heed_mark(database: &Path) -> Result<(), StoreError> {
    let mark = database.with_file_name(MARK);
    if !mark.exists() {
        return Ok(());
    }
    forget_memory(database)?;
    fs::remove_file(&mark).map_err(StoreError::io("remove", &mark))
}

/// Has the kernel drop the database from memory, so that it is read from the disk. After a failed sync the two may
/// differ for good: a later sync succeeds without writing what the failed one did not.
///
/// # Errors
///
/// Fails if some of it is still in memory.
pub(super) fn forget_memory(path: &Path) -> Result<(), StoreError> {
    let file = File::open(path).map_err(StoreError::io("open", path))?;
    // Data that were written after the failed sync must reach the disk first.
    trace::syncs(path, || file.sync_data()).map_err(StoreError::io("sync", path))?;
    // Tests put the content of their simulated disk in place before anything is read.
    let forget = || page_cache::forget(file.as_fd(), 0, file.metadata()?.len());
    forget().map_err(StoreError::io("forget what is in memory of", path))?;
    trace::forgot(path);
    match forget().map_err(StoreError::io("forget what is in memory of", path))? {
        0 => Ok(()),
        _ => Err(StoreError::Stopped(
            "the database can't be read from the disk: the kernel keeps some of it in memory",
        )),
    }
}

/// Makes a new store in `root`. The database appears under its name when it is complete.
pub(super) fn create(root: &Path) -> Result<(), StoreError> {
    let (draft, path, data) = (root.join("meta.redb.new"), root.join("meta.redb"), root.join("data"));
    make_folder(&data)?;
    // A store whose database is there has its data folder.
    sync_folder(root)?;
    trace::removes(&draft);
    match fs::remove_file(&draft) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(StoreError::io("remove", &draft)(error));
        }
        _ => {}
    }
    let (database, _) = open(&draft, true, &Arc::default())?;
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
    trace::renamed(&draft, &path);
    sync_folder(root)?;
    sync_above(root)
}

/// Returns a number of the state.
pub(super) fn state(database: &Database, name: &str) -> Result<u64, StoreError> {
    let value = database.begin_read()?.open_table(STATE)?.get(name)?.map(|value| value.value());
    value.ok_or_else(|| StoreError::Damaged(format!("the database: it has no state {name:?}")))
}

/// Refuses a database of a later format. Marks one of an earlier format as this one, because an earlier program must
/// not read what this one writes.
pub(super) fn take_format(database: &Database) -> Result<(), StoreError> {
    let found = state(database, STATE_FORMAT)?;
    match found.cmp(&u64::from(FORMAT)) {
        Ordering::Equal => Ok(()),
        Ordering::Greater => Err(StoreError::Format { found, known: FORMAT }),
        Ordering::Less => {
            let transaction = database.begin_write()?;
            transaction.open_table(STATE)?.insert(STATE_FORMAT, u64::from(FORMAT))?;
            Ok(transaction.commit()?)
        }
    }
}
