//! Errors of the storage.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use thiserror::Error;

/// Why an operation on the storage failed. Where it is not said otherwise, nothing was changed.
#[derive(Clone, Debug, Error)]
pub enum StoreError {
    /// There is no bucket of that name.
    #[error("no such bucket")]
    NoSuchBucket,
    /// There is a bucket of that name already.
    #[error("the bucket exists")]
    BucketExists,
    /// The bucket has objects.
    #[error("the bucket is not empty")]
    BucketNotEmpty,
    /// There is no object of that key.
    #[error("no such key")]
    NoSuchKey,
    /// There is no upload of that id for that key.
    #[error("no such upload")]
    NoSuchUpload,
    /// The object is not what the condition says.
    #[error("the condition does not hold")]
    ConditionFailed,
    /// A part that an upload was to be completed with is not there, or was replaced meanwhile.
    #[error("part {0} is not there or was replaced")]
    InvalidPart(u16),
    /// The segment has no file: its object was replaced or deleted since the record was read, which is to be
    /// read again. Where the record is still the same then, the file is lost.
    #[error("the segment's file is gone")]
    NotFound,
    /// A record or a data file is not what was written.
    #[error("damaged: {0}")]
    Damaged(String),
    /// The request makes no sense; which is a defect of whoever called.
    #[error("invalid: {0}")]
    Invalid(&'static str),
    /// The file system is full, or so nearly that the room left is kept for deletions.
    #[error("no space left in the store's folder")]
    NoSpace,
    /// Another process has the folder open.
    #[error("{0} is in use by another server")]
    InUse(PathBuf),
    /// The folder has something in it, and it is not a store.
    #[error("{0} is not empty and not a store")]
    Foreign(PathBuf),
    /// The folder is of another format.
    #[error("the store is of format {found}, this program knows format {known}")]
    Format {
        /// The folder's version.
        found: u64,
        /// The version that this program can read.
        known: u32,
    },
    /// The operating system refused something. A change may have happened or not where it was the answer to
    /// one.
    #[error("{what}: {error}")]
    Io {
        /// The call that failed.
        what: String,
        /// The operating system's error.
        error: Arc<io::Error>,
    },
    /// The database failed. A change may have happened or not, but not by half.
    #[error("database: {0}")]
    Database(Arc<redb::Error>),
    /// A folder's names could not be synced. They may be lost, and a later sync would not tell.
    #[error("sync {path}: {error}")]
    Unsynced {
        /// Which folder.
        path: PathBuf,
        /// The operating system's error.
        error: Arc<io::Error>,
    },
    /// The store has stopped: it can't know any more what is on the disk.
    #[error("the store has stopped: {0}. Look after the disk, then start the server again")]
    Stopped(&'static str),
    /// The store is being closed.
    #[error("the store is closed")]
    Closed,
}

impl StoreError {
    /// A failed system call on `path`, e.g. `io("open", path)`.
    pub(super) fn io(what: &str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let what = format!("{what} {}", path.display());
        move |error| if is_full(&error) { Self::NoSpace } else { Self::Io { what, error: Arc::new(error) } }
    }

    /// True if it concerns more than the one operation that met it: the transaction can't go on.
    pub(super) fn is_fatal(&self) -> bool {
        matches!(
            self,
            Self::NoSpace | Self::Io { .. } | Self::Unsynced { .. } | Self::Database(_) | Self::Stopped(_)
        )
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

impl From<redb::Error> for StoreError {
    fn from(error: redb::Error) -> Self {
        match error {
            redb::Error::Io(error) if is_full(&error) => Self::NoSpace,
            error => Self::Database(Arc::new(error)),
        }
    }
}

macro_rules! from_database {
    ($($error:ident)*) => {
        $(impl From<redb::$error> for StoreError {
            fn from(error: redb::$error) -> Self {
                redb::Error::from(error).into()
            }
        })*
    };
}

from_database! { StorageError TableError TransactionError CommitError DatabaseError }
