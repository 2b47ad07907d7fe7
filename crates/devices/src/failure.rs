//! Maps errno to status.

use crate::attempt::Attempt;
use dcs_abi::status::Status;
use dcs_engine::Failure;
use rustix::io::Errno;

/// Returns the failure of a system call that was reading from a source.
pub(crate) fn reading(errno: Errno) -> Failure {
    let status = match errno {
        Errno::CONNRESET | Errno::PIPE | Errno::NOTCONN | Errno::TIMEDOUT | Errno::CONNABORTED => {
            Status::PeerReset
        }
        other => common(other).unwrap_or(Status::ReadError),
    };
    with_errno(status, errno)
}

/// Returns the failure of a system call that was writing to a destination.
pub(crate) fn writing(errno: Errno) -> Failure {
    let status = match errno {
        Errno::CONNRESET | Errno::PIPE | Errno::NOTCONN | Errno::TIMEDOUT | Errno::CONNABORTED => {
            Status::PeerReset
        }
        Errno::NOSPC | Errno::DQUOT | Errno::FBIG => Status::CapacityExceeded,
        other => common(other).unwrap_or(Status::WriteError),
    };
    with_errno(status, errno)
}

/// Returns the outcome of a write. Zero bytes is a failure without an errno.
pub(crate) fn written(bytes: usize, path: u32) -> Attempt {
    match bytes {
        0 => Attempt::failed(writing(Errno::IO)),
        bytes => Attempt::moved(bytes, path),
    }
}

fn common(errno: Errno) -> Option<Status> {
    match errno {
        Errno::BADF => Some(Status::BadHandle),
        Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::TXTBSY => Some(Status::AccessDenied),
        Errno::CANCELED | Errno::INTR => Some(Status::Cancelled),
        Errno::NODEV | Errno::NXIO => Some(Status::DeviceReset),
        _ => None,
    }
}

/// Returns a failure with its errno.
pub(crate) fn with_errno(status: Status, errno: Errno) -> Failure {
    Failure { status, errno: errno.raw_os_error() as u32 }
}
