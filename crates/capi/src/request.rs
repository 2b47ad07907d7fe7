//! Requests for transfers: read from the caller, checked, and submitted.

use crate::operators::{copy_chain, dcs_op};
use crate::slice;
use crate::status::Failure;
use dcs::binding::Range;
use dcs::endpoint::{Sink, Source};
use dcs::error::Error;
use dcs::op::Op;
use dcs::prepared::Prepared;
use dcs::session::{Request, Session, Transfer};
use dcs_abi::descriptor::{EndpointKind, Mode};
use dcs_abi::entry::{FLAG_ACKNOWLEDGED, FLAG_DURABLE, FLAG_MORE, FLAGS_ALL, LENGTH_TO_END};
use dcs_abi::status::{Stage, Status};
use dcs_devices::{Endpoint, EndpointError};
use std::ffi::{c_int, c_void};
use std::ops::Bound;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

/// Prefixes of up to this many bytes are copied when the transfer is submitted.
pub const DCS_PREFIX_COPIED: usize = 65536;

/// One end of a transfer: a descriptor, or memory.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct dcs_side {
    /// A file, block device, stream socket, pipe, FIFO or character device. The transfer has its own
    /// duplicate: this one may be closed once the transfer is submitted. Whether it is non-blocking makes no
    /// difference.
    pub fd: c_int,
    /// The page cache: DCS_MODE_ON through it, DCS_MODE_OFF past it (O_DIRECT).
    pub cache: u8,
    /// Zero-copy send, and the kernel's own copy where the chain is empty or, to a socket or pipe, the source
    /// is immutable: DCS_MODE_OFF forbids both; DCS_MODE_ON demands the former of a destination.
    pub zero_copy: u8,
    /// 1 for a source: a promise that these bytes of the file are neither written nor truncated until the
    /// reader at the other end has read them. That is later than the end of the transfer, and later than
    /// TCP's acknowledgement if the reader is on the same machine or in a container of it: a file that is
    /// replaced by renaming another one over it keeps the promise, one that is written in place does not. If
    /// the chain is empty or has only digests, the kernel may then be lent the pages of the page cache, as by
    /// sendfile(2): that saves a copy or two. If the file is written all the same, the reader may get other
    /// bytes than those that the digests cover. With 0 the reader gets the bytes that were read, whatever
    /// happens to the file. A destination's is 0.
    pub immutable: u8,
    /// 1 for a destination: the virtual drive that has the file writes it itself, with DCS_BACKEND_DRIVE and
    /// operators (else PATH_UNAVAILABLE). The range was written before, begins at a logical block, and has no
    /// other user meanwhile; the output has to fit into it. A source's is 0.
    pub near_storage: u8,
    /// Position in the file or block device. 0 for everything else. The file's own position is not used, nor
    /// changed.
    pub offset: u64,
    /// Memory in place of a descriptor; NULL where `fd` counts. It must stay valid and untouched until the
    /// transfer is done: until dcs_transfer_wait or dcs_transfer_poll has said so, or dcs_transfer_free,
    /// dcs_session_close or dcs_engine_stop has returned.
    pub memory: *mut c_void,
    /// Bytes of the memory: what there is to read, or the room that there is.
    pub memory_length: usize,
}

/// A transfer. Set all of it to zero first, then what is to be different.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct dcs_request {
    /// sizeof(struct dcs_request).
    pub size: usize,
    /// Source of the bytes.
    pub source: dcs_side,
    /// Destination of the bytes. A file grows as needed and is not truncated.
    pub destination: dcs_side,
    /// Bytes to move in all, those of the prefix included; a source that ends before fails with
    /// DCS_STATUS_END_OF_SOURCE. DCS_LENGTH_TO_END: all that there is, from a file as it is now. A file that
    /// says that it has no bytes (one of /proc) is read until it gives no more.
    pub length: u64,
    /// Bytes that come before the source's: what was already read off a socket, or a header. As many as
    /// DCS_PREFIX_COPIED are copied; more must stay valid and untouched until the transfer is done.
    pub prefix: *const c_void,
    /// Bytes of the prefix.
    pub prefix_length: usize,
    /// The chain of operators on the way; NULL for none.
    pub chain: *const dcs_op,
    /// Operators of the chain: 0 to DCS_CHAIN_MAX.
    pub operators: usize,
    /// Request id: the transfer does not start before the earlier ones of this engine with the same id are
    /// finished. 0: no such order.
    pub rid: u32,
    /// Milliseconds after which it fails with DCS_STATUS_TIMEOUT; 0: never.
    pub timeout_ms: u32,
    /// DCS_FLAG_*.
    pub flags: u32,
    /// Zero.
    pub reserved: u32,
}

/// One end, checked as far as possible without the other.
pub(crate) struct End {
    pub endpoint: Arc<Endpoint>,
    pub offset: u64,
    pub cache: Mode,
    pub zero_copy: Mode,
    pub immutable: bool,
    pub near_storage: bool,
}

/// A request, checked as far as possible.
pub(crate) struct Command {
    pub source: End,
    pub destination: End,
    pub prefix: Option<Endpoint>,
    pub prefix_length: u64,
    pub length: u64,
    pub chain: Vec<Op>,
    pub rid: u32,
    pub timeout: Duration,
    pub flags: u16,
}

impl End {
    /// Makes an end of a descriptor, at an offset if it has positions.
    pub fn fd(fd: c_int, offset: u64, stage: Stage) -> Result<End, Failure> {
        let endpoint = endpoint(fd).map_err(|error| refused(&error, stage))?;
        let endpoint = Arc::new(endpoint);
        let (cache, zero_copy) = (Mode::Auto, Mode::Auto);
        let end = End { endpoint, offset, cache, zero_copy, immutable: false, near_storage: false };
        if offset != 0 && !end.has_positions() {
            return Err(Failure { errno: libc::ESPIPE, ..Failure::new(Status::InvalidField, stage) });
        }
        Ok(end)
    }

    /// # Safety
    ///
    /// Memory, where there is any, is as [`Endpoint::foreign`] wants it.
    unsafe fn new(side: &dcs_side, stage: Stage) -> Result<End, Failure> {
        let invalid = Failure::new(Status::InvalidField, stage);
        let mode = |number| Mode::from_number(number).ok_or(invalid);
        let (cache, zero_copy) = (mode(side.cache)?, mode(side.zero_copy)?);
        let (immutable, near_storage) = (side.immutable == 1, side.near_storage == 1);
        let misplaced = immutable && stage != Stage::Source || near_storage && stage != Stage::Destination;
        if side.near_storage > 1 || side.immutable > 1 || misplaced {
            return Err(invalid);
        }
        if side.memory.is_null() {
            let end = End::fd(side.fd, side.offset, stage)?;
            return Ok(End { cache, zero_copy, immutable, near_storage, ..end });
        }
        if side.offset != 0 || isize::try_from(side.memory_length).is_err() {
            return Err(invalid);
        }
        // SAFETY: the caller's promise.
        let endpoint = unsafe { Endpoint::foreign(side.memory.cast(), side.memory_length) };
        Ok(End { endpoint: Arc::new(endpoint), offset: 0, cache, zero_copy, immutable, near_storage })
    }

    /// Returns true for a file or block device, which have offsets.
    pub fn has_positions(&self) -> bool {
        matches!(self.endpoint.kind(), EndpointKind::File | EndpointKind::Block)
    }

    /// Returns true for a file that says that it has no bytes: only reading tells.
    pub fn hides_size(&self) -> bool {
        self.endpoint.kind() == EndpointKind::File && self.endpoint.size().is_ok_and(|size| size == Some(0))
    }
}

fn endpoint(fd: c_int) -> Result<Endpoint, EndpointError> {
    if fd < 0 {
        return Err(EndpointError::NotOpen);
    }
    // SAFETY: not -1. It is used at once, for system calls that return EBADF if it is not open.
    Endpoint::from_fd(unsafe { BorrowedFd::borrow_raw(fd) })
}

/// Checks that a descriptor is open before another is duplicated: the duplicate may get the number of a closed one,
/// which would then look open.
pub(crate) fn check_open(fd: c_int, stage: Stage) -> Result<(), Failure> {
    // SAFETY: a system call that returns EBADF if the descriptor is not open.
    match unsafe { libc::fcntl(fd, libc::F_GETFD) } {
        -1 => Err(refused(&EndpointError::NotOpen, stage)),
        _ => Ok(()),
    }
}

/// Makes an endpoint of the prefix, copied if it is short.
///
/// # Safety
///
/// `prefix` is NULL or valid for `length` bytes, and stays so until the endpoint is dropped.
pub(crate) unsafe fn prefix(prefix: *const c_void, length: usize) -> Result<Option<Endpoint>, Failure> {
    // SAFETY: the caller's promise.
    let bytes = unsafe { slice(prefix.cast::<u8>(), length) }.map_err(Failure::invalid)?;
    Ok(match length {
        0 => None,
        1..=DCS_PREFIX_COPIED => Some(Endpoint::shared(bytes.into())),
        // SAFETY: the caller's promise; nothing is ever written to a prefix.
        _ => Some(unsafe { Endpoint::foreign(prefix.cast::<u8>().cast_mut(), length) }),
    })
}

impl Command {
    /// # Safety
    ///
    /// The caller promises that `request` points to a valid one, as `dcs.h` says.
    pub unsafe fn new(request: &dcs_request) -> Result<Command, Failure> {
        if request.destination.memory.is_null() {
            check_open(request.destination.fd, Stage::Destination)?;
        }
        // SAFETY: the caller's promise, for each of them.
        let (chain, source, destination, prefix) = unsafe {
            (
                copy_chain(request.chain, request.operators)?,
                End::new(&request.source, Stage::Source)?,
                End::new(&request.destination, Stage::Destination)?,
                prefix(request.prefix, request.prefix_length)?,
            )
        };
        let flags = u16::try_from(request.flags).ok().filter(|flags| flags & !FLAGS_ALL == 0);
        let invalid = Failure::invalid(libc::EINVAL);
        Ok(Command {
            source,
            destination,
            prefix,
            prefix_length: request.prefix_length as u64,
            length: request.length,
            chain,
            rid: request.rid,
            timeout: Duration::from_millis(request.timeout_ms.into()),
            flags: flags.filter(|_| request.reserved == 0).ok_or(invalid)?,
        })
    }

    pub fn submit(self, session: &Session) -> Result<Transfer, Failure> {
        self.request(session)?.submit().map_err(|error| failure(&error))
    }

    pub fn prepare(mut self, session: &Session) -> Result<Prepared, Failure> {
        // Neither counts: each submission has its own.
        (self.length, self.source.offset) = (LENGTH_TO_END, 0);
        self.request(session)?.prepare().map_err(|error| failure(&error))
    }

    fn request(self, session: &Session) -> Result<Request<'_>, Failure> {
        let source = self.source_range().map(|range| {
            let End { endpoint, cache, zero_copy, immutable, .. } = self.source;
            let source = Source::endpoint(endpoint, range).cache(cache).zero_copy(zero_copy);
            if immutable { source.immutable() } else { source }
        })?;
        let End { endpoint, offset, cache, zero_copy, near_storage, .. } = self.destination;
        let sink = Sink::endpoint(endpoint, Range::From(offset)).cache(cache).zero_copy(zero_copy);
        let sink = if near_storage { sink.near_storage() } else { sink };
        let mut request =
            session.request(source, self.chain, sink).length(self.length).timeout(self.timeout).rid(self.rid);
        if let Some(prefix) = self.prefix {
            let all = Range::Span(Bound::Unbounded, Bound::Unbounded);
            request = request.prefix_source(Source::endpoint(Arc::new(prefix), all));
        }
        if self.flags & FLAG_DURABLE != 0 {
            request = request.durable();
        }
        if self.flags & FLAG_ACKNOWLEDGED != 0 {
            request = request.acknowledged();
        }
        if self.flags & FLAG_MORE != 0 {
            request = request.more();
        }
        Ok(request)
    }

    /// Returns exactly the requested bytes, so that a file may shrink after them without failing the transfer.
    fn source_range(&self) -> Result<Range, Failure> {
        if self.length < self.prefix_length {
            return Err(Failure::invalid(libc::EINVAL));
        }
        if !self.source.has_positions() {
            return Ok(Range::Span(Bound::Unbounded, Bound::Unbounded));
        }
        let from = self.source.offset;
        let to = match self.length {
            LENGTH_TO_END => Bound::Unbounded,
            _ if self.source.hides_size() => Bound::Unbounded,
            length => Bound::Excluded(from.saturating_add(length - self.prefix_length)),
        };
        Ok(Range::Span(Bound::Included(from), to))
    }
}

/// Converts the error of a descriptor that cannot be an end.
fn refused(error: &EndpointError, stage: Stage) -> Failure {
    let (status, errno) = match error {
        EndpointError::NotOpen | EndpointError::Closed => (Status::BadHandle, libc::EBADF),
        EndpointError::Unsupported(_) => (Status::UnsupportedEndpoint, libc::EINVAL),
        EndpointError::System(error) => (Status::OutOfResources, error.raw_os_error().unwrap_or(libc::EIO)),
    };
    Failure { errno, ..Failure::new(status, stage) }
}

/// Converts the error of a command that was not submitted.
pub(crate) fn failure(error: &Error) -> Failure {
    match error {
        Error::SessionFull => {
            Failure { errno: libc::EAGAIN, ..Failure::new(Status::OutOfResources, Stage::Queue) }
        }
        Error::Stopped => {
            Failure { errno: libc::ESHUTDOWN, ..Failure::new(Status::QueueDeleted, Stage::Queue) }
        }
        Error::Forked => Failure { errno: libc::EPERM, ..Failure::new(Status::QueueDeleted, Stage::Queue) },
        Error::NoGpu(_, at) => {
            Failure { errno: libc::ENODEV, at: *at, ..Failure::new(Status::UnknownOperator, Stage::Operator) }
        }
        Error::UnknownOperator(_, at) => {
            Failure { at: *at, ..Failure::new(Status::UnknownOperator, Stage::Operator) }
        }
        Error::NotNear => {
            Failure { errno: libc::EOPNOTSUPP, ..Failure::new(Status::PathUnavailable, Stage::Destination) }
        }
        Error::UnderWay => {
            Failure { errno: libc::EBUSY, ..Failure::new(Status::CommandIdConflict, Stage::Queue) }
        }
        Error::NoOffset => Failure { errno: libc::ESPIPE, ..Failure::invalid(libc::ESPIPE) },
        Error::Range => Failure::new(Status::OutOfRange, Stage::Source),
        Error::Size(error) => Failure {
            errno: error.raw_os_error().unwrap_or(libc::EIO),
            ..Failure::new(Status::ReadError, Stage::Source)
        },
        _ => Failure::invalid(libc::EINVAL),
    }
}
