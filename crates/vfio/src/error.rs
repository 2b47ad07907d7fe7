//! Errors of functions that cannot be used.

use std::io;
use std::path::Path;

/// The reason why a function cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum VfioError {
    /// The kernel refused.
    #[error("{what}: {source}")]
    Io {
        /// Description of the call that failed.
        what: String,
        /// Error of the call.
        source: io::Error,
    },
    /// The function is in no IOMMU group: there is no IOMMU, or it is off.
    #[error("{0} has no IOMMU in front of it")]
    NoIommu(String),
    /// Another function of the group has a kernel driver.
    #[error("another function of {0}'s IOMMU group is in use")]
    Group(String),
    /// The function is in use, in the described ways.
    #[error("{0} is in use: {1}")]
    InUse(String, String),
    /// The function lacks something.
    #[error("{0} has no {1}")]
    Missing(String, &'static str),
}

impl VfioError {
    /// Returns true if there is not enough memory, or no more of it may be locked (RLIMIT_MEMLOCK).
    pub fn is_out_of_memory(&self) -> bool {
        matches!(self, VfioError::Io { source, .. } if source.kind() == io::ErrorKind::OutOfMemory)
    }
}

pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> VfioError {
    let what = what.into();
    move |source| VfioError::Io { what, source }
}

pub(crate) fn at(path: &Path) -> impl FnOnce(io::Error) -> VfioError {
    io(path.display().to_string())
}
