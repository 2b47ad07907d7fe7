//! Errors of the library, and their texts.

use crate::card::error::CardError;
use crate::card::options::OptionsError;
use crate::completion::Completion;
use dcs_abi::operator::Operator;
use dcs_abi::status::{Stage, Status};
use dcs_devices::EndpointError;

/// A command could not be submitted, or an engine not be started. Nothing was moved.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The engine cannot have these sizes.
    #[error("the engine cannot be made so: {0}")]
    Config(#[from] dcs_engine::ConfigError),
    /// A thread or descriptor could not be made, or the environment asks for what is not there.
    #[error("the engine could not be started: {0}")]
    Start(#[source] std::io::Error),
    /// io_uring was demanded, and the kernel has none, or forbids it.
    #[error("io_uring is not available here: {0} (Io::Auto and Io::Plain work without it)")]
    IoUring(#[source] std::io::Error),
    /// The settings of the card's functions make no sense.
    #[error(transparent)]
    CardOptions(#[from] OptionsError),
    /// The card cannot be used.
    #[error("the card cannot be used: {0}")]
    Card(#[from] CardError),
    /// An SSD that the engine is to drive itself cannot be driven.
    #[error(transparent)]
    Drive(#[from] dcs_devices::vfio_devices::DriveError),
    /// The requested GPU is not available.
    #[error(transparent)]
    Gpu(#[from] dcs_devices::gpu::GpuError),
    /// This many processors were named, and the engine is to have that many cores.
    #[error("{0} processors were named for {1} cores: name one for each (Builder::cpus, Builder::cores)")]
    Processors(usize, usize),
    /// There is no such NUMA node, or it has no processors.
    #[error("there is no NUMA node {0} with processors (/sys/devices/system/node)")]
    NumaNode(u32),
    /// The engine can have one core alone.
    #[error("{0}: such an engine has one core (Builder::cores)")]
    OneCore(&'static str),
    /// Data cannot be moved in this way.
    #[error(
        "peer-to-peer is between an SSD and a NIC that the engine drives itself (Builder::nvme, Backend::Kernel), without a GPU"
    )]
    PeerToPeer,
    /// There is no operator of this number, at this place of the chain.
    #[error("there is no operator {0:#04x}: use operators that this engine has (dcs ops)")]
    UnknownOperator(u8, u8),
    /// A chain asks for a GPU, by this operator at this place, and the engine has none.
    #[error("{0}: this engine has no GPU (Builder::gpu)")]
    NoGpu(&'static str, u8),
    /// The engine has all the sessions that it was made for.
    #[error("the engine has no room for another session (Builder::sessions)")]
    NoSessions,
    /// The session's depth is out of range.
    #[error("a session may have 1 to {} transfers in flight", crate::queue::DEPTH_MAX)]
    Depth,
    /// As many transfers are in flight as the session has room for.
    #[error("the session is full: wait for a transfer, or make the session deeper")]
    SessionFull,
    /// The engine was dropped.
    #[error("the engine has stopped")]
    Stopped,
    /// The engine was made before a fork, by the parent.
    #[error("this engine belongs to the process that made it: after fork, make a new one")]
    Forked,
    /// A prepared transfer was submitted again before its last submission was waited for.
    #[error("this prepared transfer is under way: wait for it, or prepare another one")]
    UnderWay,
    /// Such a transfer cannot be prepared.
    #[error("{0} cannot be prepared: submit each such transfer as a request")]
    NotPrepared(&'static str),
    /// An offset was given for a socket or a pipe.
    #[error("a socket or pipe has no offsets: give 0")]
    NoOffset,
    /// More operators than a chain can have.
    #[error("a chain has at most {} operators", dcs_abi::CHAIN_MAX)]
    ChainTooLong,
    /// A destination that only a drive can write itself, and the transfer is none of a drive's.
    #[error("a drive writes only what has passed operators (Sink::near_storage, Backend::Drive)")]
    NotNear,
    /// More extents, or longer parameters, than a descriptor of this session has room for: 3 KiB together.
    #[error(
        "too many extents for one command (at most about {}), or too long parameters",
        crate::queue::EXTENTS_MAX
    )]
    TooManyExtents,
    /// A source or sink cannot be one.
    #[error("{0}")]
    Endpoint(#[from] EndpointError),
    /// The size of a source could not be found out.
    #[error("the size of the source could not be read: {0}")]
    Size(#[source] std::io::Error),
    /// The range begins after its end, or ends behind what an offset can name.
    #[error("the range begins after it ends, or its end cannot be named")]
    Range,
    /// Futures and eventfds need an engine with a thread of its own: nothing would drive this one.
    #[error("this engine is driven by the caller that waits: use wait(), or start it with Driver::Thread")]
    CallerDriven,
}

/// A transfer failed. Its results so far are in [`TransferError::completion`].
#[derive(Clone, Debug, thiserror::Error)]
#[error("{}", self.sentence())]
pub struct TransferError {
    /// The status of the failure.
    pub status: Status,
    /// The stage that failed.
    pub stage: Stage,
    /// The operator of the chain, if the stage is [`Stage::Operator`].
    pub operator: Option<(u8, Operator)>,
    /// A GPU was to do that operator.
    pub on_gpu: bool,
    /// The errno of the failed system call; 0 if there was none.
    pub errno: i32,
    /// Why, in a sentence, where status and errno do not say enough: a file that a card cannot have.
    pub reason: Option<Box<str>>,
    /// Bytes, digests and times up to the failure. `completion.bytes_out` bytes had been delivered.
    pub completion: Box<Completion>,
}

impl TransferError {
    /// One line: stage, status, errno, bytes delivered.
    fn sentence(&self) -> String {
        let name =
            |operator: Operator| operator.info().gpu.filter(|_| self.on_gpu).unwrap_or(operator.name());
        let operator = self.operator.map(|(at, operator)| (at, name(operator)));
        match &self.reason {
            Some(reason) => {
                let (stage, delivered) = (self.stage.name(), self.completion.bytes_out);
                format!("{stage}: {reason}; {delivered} bytes had been delivered")
            }
            None => sentence(self.status, self.stage, operator, self.errno, self.completion.bytes_out),
        }
    }

    /// The errno of the failure: that of the system call behind it, else the nearest in meaning (`ETIMEDOUT`,
    /// `ENODATA`, `EBADMSG` and the like), for those who answer in errno.
    pub fn nearest_errno(&self) -> i32 {
        nearest_errno(self.status, self.errno)
    }

    /// Advice for the user of the transfer, in one line.
    pub fn advice(&self) -> &'static str {
        match self.reason {
            Some(_) => {
                "docs/server.md, Who may move a file's blocks, says which files a card or a virtual drive can have, and when; DCS_BACKEND=kernel takes any"
            }
            None if [libc::EMFILE, libc::ENFILE].contains(&self.errno) => {
                "close files that are not needed, or raise the limit of open files (ulimit -n)"
            }
            None => advice(self.status),
        }
    }
}

/// errno for a status: that of the system call behind it, else the nearest in meaning.
#[doc(hidden)]
pub fn nearest_errno(status: Status, system: i32) -> i32 {
    if system != 0 {
        return system;
    }
    match status {
        Status::Success => 0,
        Status::InvalidOpcode | Status::InvalidField | Status::BadParameter | Status::Overlap => libc::EINVAL,
        Status::UnsupportedEndpoint => libc::EINVAL,
        Status::UnknownOperator | Status::PathUnavailable => libc::EOPNOTSUPP,
        Status::BadHandle | Status::AccessDenied => libc::EBADF,
        Status::OutOfRange => libc::ERANGE,
        Status::CapacityExceeded => libc::ENOSPC,
        Status::EndOfSource => libc::ENODATA,
        Status::PeerReset => libc::ECONNRESET,
        Status::CorruptData | Status::TruncatedData | Status::FramingError => libc::EBADMSG,
        Status::SignatureMismatch | Status::DigestMismatch => libc::EBADMSG,
        Status::ModuleTrap | Status::ModuleFuel | Status::ModuleMemory | Status::ModuleAnswer => {
            libc::ENOEXEC
        }
        Status::OutOfResources => libc::ENOBUFS,
        Status::DeviceReset => libc::ENODEV,
        Status::Timeout => libc::ETIMEDOUT,
        Status::Cancelled => libc::ECANCELED,
        Status::QueueDeleted => libc::ESHUTDOWN,
        _ => libc::EIO,
    }
}

/// A failure in one line: stage, status, errno and bytes delivered.
#[doc(hidden)]
pub fn sentence(
    status: Status,
    stage: Stage,
    operator: Option<(u8, &'static str)>,
    errno: i32,
    delivered: u64,
) -> String {
    let stage = match operator {
        Some((at, operator)) => format!("operator {} ({operator})", at + 1),
        None => stage.name().to_string(),
    };
    let errno = match errno {
        0 => String::new(),
        errno => format!(" ({})", std::io::Error::from_raw_os_error(errno)),
    };
    format!("{stage}: {status}{errno}; {delivered} bytes had been delivered")
}

/// Advice about a status, in one line.
#[doc(hidden)]
pub fn advice(status: Status) -> &'static str {
    match status {
        Status::Success => "nothing: it succeeded",
        Status::InvalidField => "check lengths, offsets, modes and flags of the command",
        Status::UnknownOperator => "use operators that this engine has (dcs ops)",
        Status::BadParameter => "check the operator's key, counter or level (docs/operators.md)",
        Status::BadHandle => "keep file descriptors open until the transfer is submitted",
        Status::AccessDenied => "open the source for reading and the destination for writing",
        Status::OutOfRange => "ask for a range that lies inside the file, or grow the destination",
        Status::CapacityExceeded => "make room at the destination and send the rest again",
        Status::EndOfSource => "the file shrank or the peer stopped early: check the sender",
        Status::PeerReset => "the peer closed the connection: look at its log, then send again",
        Status::CorruptData => "the input is damaged or of another format: fetch it again",
        Status::FramingError => {
            "the sender's framing is broken: check lengths, trailers and the operator's parameters"
        }
        Status::SignatureMismatch => {
            "reject the data: they were changed on the way, or signed with another key"
        }
        Status::DigestMismatch => "reject the data: they are not the ones expected; send them again",
        Status::Overlap => {
            "choose ranges that do not overlap, or the same range for both; or go by way of another file"
        }
        Status::TruncatedData => "the input is cut: fetch all of it",
        Status::ModuleTrap | Status::ModuleFuel | Status::ModuleMemory | Status::ModuleAnswer => {
            "correct the module: docs/wasm.md has its rules and limits"
        }
        Status::Timeout => "give more time, or find out why the named stage is slow",
        Status::Cancelled => "it was cancelled as asked",
        Status::QueueDeleted => "the engine stopped first: keep it until its transfers are done",
        Status::UnsupportedEndpoint => {
            "use a regular file not opened for appending, a block device, a stream socket, a pipe or memory"
        }
        Status::PathUnavailable => "leave the path to the engine (AUTO), or use a file system that has it",
        Status::OutOfResources => "start the engine with more blocks",
        Status::ReadError | Status::WriteError | Status::DeviceReset => {
            "look for device errors in the kernel log"
        }
        _ => "this is a defect of the engine or of the program that made the command: please report it",
    }
}
