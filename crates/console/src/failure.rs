//! Failures of a command, and their exit codes.

use dcs::{Error, Status, TransferError};
use std::io;

/// Exit codes. They are part of the interface, because scripts depend on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// The transfer failed for a reason that has no code of its own.
    Failed = 1,
    /// The command line is wrong, by itself or for these files and keys.
    Usage = 2,
    /// The peer or the network.
    Peer = 3,
    /// The destination is full.
    NoSpace = 4,
    /// The input is corrupt, cut short, or not as expected.
    Corrupt = 5,
    /// Not permitted.
    Permission = 6,
    /// Not found.
    NotFound = 7,
    /// The time limit was reached.
    Timeout = 8,
    /// No virtual server can run on this machine.
    Unavailable = 9,
    /// Ctrl-C or SIGTERM.
    Interrupted = 130,
}

/// A failure: one line that says what is wrong, and one that says what to do.
#[derive(Debug)]
pub struct Failure {
    /// Exit code.
    pub exit: Exit,
    /// Message in one line.
    pub line: String,
    /// Advice about it.
    pub advice: Option<String>,
    /// Error of the transfer, if one had begun.
    pub transfer: Option<Box<TransferError>>,
}

impl Failure {
    /// Makes a failure without advice.
    pub fn new(exit: Exit, line: impl Into<String>) -> Failure {
        Failure { exit, line: line.into(), advice: None, transfer: None }
    }

    /// Makes the failure of a wrong command line.
    pub fn usage(line: impl Into<String>) -> Failure {
        Failure::new(Exit::Usage, line)
    }

    /// Adds advice.
    pub fn advise(mut self, advice: impl Into<String>) -> Failure {
        self.advice = Some(advice.into());
        self
    }

    /// Makes the failure of a system call on `what`.
    pub fn io(what: impl std::fmt::Display, error: &io::Error) -> Failure {
        use io::ErrorKind as Kind;
        let (exit, advice) = match error.kind() {
            Kind::NotFound => (Exit::NotFound, "check the name"),
            Kind::PermissionDenied | Kind::ReadOnlyFilesystem => {
                (Exit::Permission, "check owner and mode of the file and of its folder")
            }
            Kind::StorageFull | Kind::QuotaExceeded | Kind::FileTooLarge => {
                (Exit::NoSpace, "make room at the destination")
            }
            Kind::ConnectionRefused => (Exit::Peer, "start the receiver first: dcs recv PORT FILE"),
            Kind::ConnectionReset
            | Kind::ConnectionAborted
            | Kind::BrokenPipe
            | Kind::HostUnreachable
            | Kind::NetworkUnreachable
            | Kind::NetworkDown => (Exit::Peer, "check the peer and the network"),
            Kind::TimedOut => (Exit::Timeout, "give more time, or check the peer"),
            Kind::AddrInUse => {
                (Exit::Peer, "choose another port or path, or end the program that listens there")
            }
            Kind::AddrNotAvailable => (Exit::Peer, "choose an address that this machine has"),
            Kind::IsADirectory | Kind::InvalidInput => (Exit::Usage, "name a file"),
            Kind::AlreadyExists => (Exit::Failed, "remove it, or leave out --no-clobber"),
            _ => return Failure::new(Exit::Failed, format!("{what}: {error}")),
        };
        Failure::new(exit, format!("{what}: {error}")).advise(advice)
    }

    /// Makes the failure of a transfer of `what` that could not begin.
    pub fn refused(what: &str, error: Error) -> Failure {
        match error {
            Error::ChainTooLong | Error::Range | Error::Endpoint(_) => {
                Failure::usage(format!("{what}: {error}"))
            }
            Error::IoUring(_) => Failure::new(Exit::Failed, format!("{what}: {error}"))
                .advise("try --io plain: it needs no io_uring"),
            Error::Start(ref cause) if cause.kind() == io::ErrorKind::InvalidInput => {
                Failure::new(Exit::Failed, format!("{what}: {error}"))
                    .advise("correct the environment variable")
            }
            _ => Failure::new(Exit::Failed, format!("{what}: {error}")),
        }
    }

    /// Makes the failure of a transfer of `what`.
    pub fn transfer(what: &str, error: TransferError, interrupted: bool) -> Failure {
        let exit = match error.status {
            Status::Cancelled if interrupted => Exit::Interrupted,
            Status::PeerReset => Exit::Peer,
            Status::CapacityExceeded => Exit::NoSpace,
            Status::CorruptData | Status::TruncatedData | Status::EndOfSource => Exit::Corrupt,
            Status::FramingError | Status::SignatureMismatch | Status::DigestMismatch => Exit::Corrupt,
            Status::AccessDenied => Exit::Permission,
            Status::Timeout => Exit::Timeout,
            Status::UnknownOperator
            | Status::BadParameter
            | Status::OutOfRange
            | Status::Overlap
            | Status::UnsupportedEndpoint
            | Status::PathUnavailable => Exit::Usage,
            _ => Exit::Failed,
        };
        let line = match exit {
            Exit::Interrupted => {
                format!("{what}: interrupted; {} bytes had been delivered", error.completion.bytes_out)
            }
            _ => format!("{what}: {error}"),
        };
        let advice = Some(error.advice().to_string()).filter(|_| exit != Exit::Interrupted);
        Failure { exit, line, advice, transfer: Some(Box::new(error)) }
    }
}
