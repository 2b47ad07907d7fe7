//! Errors of the storage.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use thiserror::Error;

/// Reason why an operation on the storage failed. Nothing was changed, unless a variant says otherwise.
#[derive(Clone, Debug, Error)]
pub enum StoreError {
    /// The bucket does not exist.
    #[error("no such bucket")]
    NoSuchBucket,
    /// A bucket of that name exists already.
    #[error("the bucket exists")]
    BucketExists,
    /// The bucket has objects.
    #[error("the bucket is not empty")]
    BucketNotEmpty,
    /// The object does not exist.
    #[error("no such key")]
    NoSuchKey,
    /// The key has no upload with that id.
    #[error("no such upload")]
    NoSuchUpload,
    /// The object does not meet the condition.
    #[error("the condition does not hold")]
    ConditionFailed,
    /// A part to complete an upload with does not exist, or was replaced meanwhile.
    #[error("part {0} does not exist, or was replaced")]
    InvalidPart(u16),
    /// The segment's file does not exist: its object was replaced or deleted since the record was read. Read the record
    /// again; if it is unchanged, the file is lost.
    #[error("the segment's file is gone")]
    NotFound,
    /// A record or a data file differs from what was written.
    #[error("damaged: {0}")]
    Damaged(String),
    /// The request makes no sense, which is a bug of the caller.
    #[error("invalid: {0}")]
    Invalid(&'static str),
    /// The file system is full, or so nearly that the room left is kept for deletions.
    #[error("no space left in the store's folder")]
    NoSpace,
    /// Another process has the folder open.
    #[error("{0} is in use by another server")]
    InUse(PathBuf),
    /// The folder is not empty, and not a store.
    #[error("{0} is not empty and not a store")]
    Foreign(PathBuf),
    /// The folder has another format.
    #[error("the store has format {found}, this program reads format {known}")]
    Format {
        /// Version of the folder's format.
        found: u64,
        /// Version that this program can read.
        known: u32,
    },
    /// The operating system refused something. A change that fails this way may have happened or not.
    #[error("{what}: {error}")]
    Io {
        /// Call that failed.
        what: String,
        /// Error of the operating system.
        error: Arc<io::Error>,
    },
    /// The database failed. A change may have happened or not, but never by half.
    #[error("database: {0}")]
    Database(Arc<redb::Error>),
    /// A folder's names could not be synced. They may be lost, and a later sync would not report it.
    #[error("sync {path}: {error}")]
    Unsynced {
        /// Path of the folder.
        path: PathBuf,
        /// Error of the operating system.
        error: Arc<io::Error>,
    },
    /// The store has stopped, because it no longer knows what is on the disk.
    #[error("the store has stopped: {0}. Check the disk, then start the server again")]
    Stopped(&'static str),
    /// The store is being closed.
    #[error("the store is closed")]
    Closed,
}

impl StoreError {
    /// Makes the error of a failed system call on `path`, e.g. `io("open", path)`.
    pub(super) fn io(what: &str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let what = format!("{what} {}", path.display());
        move |error| if is_full(&error) { Self::NoSpace } else { Self::Io { what, error: Arc::new(error) } }
    }

    /// Returns true if the error concerns more than one operation, so that the transaction can't go on.
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

from_database! { StorageError TableError TransactionError CommitError DatabaseError SetDurabilityError }
