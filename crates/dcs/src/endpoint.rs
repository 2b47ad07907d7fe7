//! Sources and sinks, as an application names them.

use crate::error::Error;
use dcs_abi::descriptor::{EndpointKind, Extent, Mode, OPEN_END, Pace};
use dcs_devices::{Endpoint, EndpointError};
use std::ops::{Bound, RangeBounds};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// The source of a transfer's bytes. It holds a duplicate of its descriptor: the original may be closed any time.
#[derive(Debug)]
pub struct Source(pub(crate) Side);

/// The destination of a transfer's bytes. It holds a duplicate of its descriptor.
#[derive(Debug)]
pub struct Sink(pub(crate) Side);

/// A descriptor that was duplicated and examined once, to be the source or destination of many transfers. A
/// transfer that is given the descriptor itself does that each time, which for a small one is most of its
/// cost.
#[derive(Clone, Debug)]
pub struct Handle {
    endpoint: Arc<Endpoint>,
    open: Open,
}

/// Tells whether a handle is open, to all that hold it.
#[derive(Clone, Debug)]
pub(crate) struct Open(Arc<AtomicBool>);

impl Open {
    #[inline]
    pub fn is_open(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl Handle {
    /// Duplicates a descriptor and determines its kind. Whether a socket blocks is determined here: set
    /// O_NONBLOCK before.
    ///
    /// # Errors
    ///
    /// [`Error::Endpoint`].
    pub fn new(fd: &impl AsFd) -> Result<Handle, Error> {
        let endpoint = Arc::new(Endpoint::from_fd(fd.as_fd()).map_err(Error::Endpoint)?);
        Ok(Handle { endpoint, open: Open(Arc::new(AtomicBool::new(true))) })
    }

    /// Closes it: no transfer that is submitted later can have it, neither one of a clone nor one that was prepared
    /// before ([`EndpointError::Closed`]). Those under way go on.
    pub fn close(&self) {
        self.open.0.store(false, Ordering::Relaxed);
    }

    fn side(&self, range: Range) -> Side {
        let open = self.open.is_open();
        let endpoint = if open { Ok(Arc::clone(&self.endpoint)) } else { Err(EndpointError::Closed) };
        Side { open: Some(self.open.clone()), ..Side::shared(endpoint, range) }
    }
}

/// A namespace of an NVMe SSD that an engine drives itself ([`Builder::nvme`](crate::engine::Builder::nvme)):
/// a source and a destination of that engine's transfers, and of no other's.
#[derive(Clone, Debug)]
pub struct Namespace {
    namespace: Arc<dcs_devices::vfio_devices::Namespace>,
    endpoint: Arc<Endpoint>,
}

impl Namespace {
    pub(crate) fn new(namespace: &Arc<dcs_devices::vfio_devices::Namespace>) -> Namespace {
        let endpoint = Arc::new(Endpoint::namespace(namespace));
        Namespace { namespace: Arc::clone(namespace), endpoint }
    }

    /// Its PCI function: `0000:01:00.0`.
    pub fn function(&self) -> &str {
        &self.namespace.function
    }

    /// Its number.
    pub fn number(&self) -> u32 {
        self.namespace.number
    }

    /// Bytes of a logical block.
    pub fn block_size(&self) -> u32 {
        self.namespace.block_size
    }

    /// Bytes of all of it.
    pub fn bytes(&self) -> u64 {
        self.namespace.bytes()
    }

    /// The engine's blocks are in huge pages.
    pub fn has_huge_pages(&self) -> bool {
        self.namespace.huge_pages
    }
}

#[derive(Debug)]
pub(crate) struct Side {
    pub endpoint: Result<Arc<Endpoint>, EndpointError>,
    pub range: Range,
    pub cache: Mode,
    pub zero_copy: Mode,
    pub immutable: bool,
    /// The schedule of its bytes, if it is paced.
    pub pace: Pace,
    /// The memory of a memory sink, to be handed back.
    pub memory: Option<Arc<Mutex<Vec<u8>>>>,
    /// A drive writes it itself.
    pub near: bool,
    /// Its handle, if it has one, is not closed.
    pub open: Option<Open>,
}

/// A range of an endpoint's bytes.
#[derive(Clone, Debug)]
#[doc(hidden)]
pub enum Range {
    /// From here to there, or to the end.
    Span(Bound<u64>, Bound<u64>),
    /// These extents.
    Extents(Vec<Extent>),
    /// As far as it goes: a stream, or a file that is written.
    From(u64),
}

impl Range {
    fn extents(extents: &[(u64, u64)]) -> Range {
        Range::Extents(extents.iter().map(|&(offset, length)| Extent { offset, length }).collect())
    }
}

/// The extents that a descriptor names: mostly one.
#[derive(Clone, Debug)]
pub(crate) enum Extents {
    None,
    One(Extent),
    Many(Vec<Extent>),
}

impl Extents {
    /// The only one, or that there is none; `None` if there are several.
    pub fn at_most_one(&self) -> Option<Option<Extent>> {
        match self {
            Extents::None => Some(None),
            Extents::One(extent) => Some(Some(*extent)),
            Extents::Many(_) => None,
        }
    }

    pub fn as_slice(&self) -> &[Extent] {
        match self {
            Extents::None => &[],
            Extents::One(extent) => std::slice::from_ref(extent),
            Extents::Many(extents) => extents,
        }
    }
}

impl Side {
    fn new(endpoint: Result<Endpoint, EndpointError>, range: Range) -> Side {
        Side::shared(endpoint.map(Arc::new), range)
    }

    pub(crate) fn shared(endpoint: Result<Arc<Endpoint>, EndpointError>, range: Range) -> Side {
        Side {
            endpoint,
            range,
            cache: Mode::Auto,
            zero_copy: Mode::Auto,
            immutable: false,
            pace: Pace::default(),
            memory: None,
            near: false,
            open: None,
        }
    }

    fn fd(fd: &impl AsFd, range: Range) -> Side {
        Side::new(Endpoint::from_fd(fd.as_fd()), range)
    }

    /// The extents that a descriptor names; none for a stream.
    pub fn extents(&self, endpoint: &Endpoint) -> Result<Extents, Error> {
        if !endpoint.kind().is_positional() {
            return Ok(Extents::None);
        }
        let span = |from: u64, to: u64| {
            to.checked_sub(from)
                .map(|length| Extents::One(Extent { offset: from, length }))
                .ok_or(Error::Range)
        };
        match &self.range {
            Range::Extents(extents) => Ok(Extents::Many(extents.clone())),
            // A regular file grows when it is written.
            Range::From(offset) if endpoint.kind() == EndpointKind::File => {
                span((*offset).min(OPEN_END), OPEN_END)
            }
            Range::From(offset) => span(*offset, endpoint.size().map_err(Error::Size)?.unwrap_or(0)),
            Range::Span(from, to) => {
                let from = match from {
                    Bound::Included(from) => *from,
                    Bound::Excluded(before) => before.saturating_add(1),
                    Bound::Unbounded => 0,
                };
                let to = match to {
                    Bound::Included(last) => last.saturating_add(1),
                    Bound::Excluded(to) => *to,
                    Bound::Unbounded => match endpoint.size().map_err(Error::Size)?.unwrap_or(0) {
                        // It has none, or does not tell: reading does.
                        0 if endpoint.kind() == EndpointKind::File => OPEN_END.max(from),
                        size => size.max(from),
                    },
                };
                span(from, to)
            }
        }
    }
}

impl Source {
    /// A range of a file or block device: `..` for all of it as it is now. A file that says that it has no
    /// bytes (one of /proc) is read until it gives no more.
    pub fn file(file: &impl AsFd, range: impl RangeBounds<u64>) -> Source {
        let range = Range::Span(range.start_bound().cloned(), range.end_bound().cloned());
        Source(Side::fd(file, range))
    }

    /// Several runs of bytes of a file or block device, one after the other: (offset, length) each.
    pub fn extents(file: &impl AsFd, extents: &[(u64, u64)]) -> Source {
        Source(Side::fd(file, Range::extents(extents)))
    }

    /// Reads from a socket, until its peer stops sending (or the request's length is reached).
    pub fn socket(socket: &impl AsFd) -> Source {
        Source::fd(socket)
    }

    /// Any descriptor: a file from its start, else a stream until its end.
    pub fn fd(fd: &impl AsFd) -> Source {
        Source(Side::fd(fd, Range::Span(Bound::Unbounded, Bound::Unbounded)))
    }

    /// Reads from a descriptor: a range of a file or block device, or a stream, for which the range means
    /// nothing.
    pub fn handle(handle: &Handle, range: impl RangeBounds<u64>) -> Source {
        let range = Range::Span(range.start_bound().cloned(), range.end_bound().cloned());
        Source(handle.side(range))
    }

    /// Bytes of a namespace of an SSD that the engine drives itself. They need not be whole logical blocks.
    pub fn namespace(namespace: &Namespace, range: impl RangeBounds<u64>) -> Source {
        let range = Range::Span(range.start_bound().cloned(), range.end_bound().cloned());
        Source(Side::shared(Ok(Arc::clone(&namespace.endpoint)), range))
    }

    /// Several runs of bytes of a namespace, one after the other: (offset, length) each, in bytes.
    pub fn namespace_extents(namespace: &Namespace, extents: &[(u64, u64)]) -> Source {
        Source(Side::shared(Ok(Arc::clone(&namespace.endpoint)), Range::extents(extents)))
    }

    /// Bytes in memory.
    pub fn memory(bytes: impl Into<Arc<[u8]>>) -> Source {
        let range = Range::Span(Bound::Unbounded, Bound::Unbounded);
        Source(Side::new(Ok(Endpoint::shared(bytes.into())), range))
    }

    /// Bytes of a caller in another language, which are not copied.
    ///
    /// # Safety
    ///
    /// `length` bytes at `address` must be valid for reads from any thread, and must not change, until the
    /// transfer's completion was taken, or the engine was dropped. Dropping a transfer does not wait for
    /// that. If a transfer is prepared with it: until the [`Prepared`](crate::Prepared) was dropped, and the
    /// completions of all its submissions were taken before.
    pub unsafe fn raw(address: *const u8, length: usize) -> Source {
        let range = Range::Span(Bound::Unbounded, Bound::Unbounded);
        // SAFETY: the caller's promise; the engine drops a command's endpoints before it posts its
        // completion, and nothing is ever written to a source.
        Source(Side::new(Ok(unsafe { Endpoint::foreign(address.cast_mut(), length) }), range))
    }

    /// An endpoint that was made before.
    #[doc(hidden)]
    pub fn endpoint(endpoint: Arc<Endpoint>, range: Range) -> Source {
        Source(Side::shared(Ok(endpoint), range))
    }

    /// Page cache: [`Mode::On`] uses it, [`Mode::Off`] bypasses it (O_DIRECT). Data that are not aligned as
    /// the device requires go through it in any case: see [`Completion::path`](crate::Completion::path).
    pub fn cache(mut self, mode: Mode) -> Source {
        self.0.cache = mode;
        self
    }

    /// The kernel's own copy, if the chain is empty, or if a socket or pipe is the destination and the source
    /// is [immutable](Source::immutable): [`Mode::Off`] forbids it.
    pub fn zero_copy(mut self, mode: Mode) -> Source {
        self.0.zero_copy = mode;
        self
    }

    /// Promises that these bytes of the file are neither written nor truncated until the reader at the other
    /// end has read them. That is later than the end of the transfer, and later than TCP's acknowledgement if
    /// the reader is on the same machine or in a container of it: a file that is replaced by renaming another
    /// one over it keeps the promise, one that is written in place does not.
    ///
    /// If the chain is empty or has only digests, and bytes go to a socket that does not block, or to a pipe,
    /// the kernel is then lent the pages of the page cache, as by sendfile(2): that saves a copy or two. If
    /// the file is written all the same, the reader may get other bytes than those that the digests cover.
    /// Without the promise the reader gets the bytes that were read, whatever happens to the file.
    pub fn immutable(mut self) -> Source {
        self.0.immutable = true;
        self
    }
}

impl Sink {
    /// A file, from this offset on; it grows as needed and is not truncated.
    pub fn file(file: &impl AsFd, offset: u64) -> Sink {
        Sink(Side::fd(file, Range::From(offset)))
    }

    /// Several runs of bytes of a file or block device, one after the other: (offset, length) each.
    pub fn extents(file: &impl AsFd, extents: &[(u64, u64)]) -> Sink {
        Sink(Side::fd(file, Range::extents(extents)))
    }

    /// Bytes of a namespace of an SSD that the engine drives itself, from the beginning of a logical block.
    /// Bytes after the last one written are unchanged.
    pub fn namespace(namespace: &Namespace, range: impl RangeBounds<u64>) -> Sink {
        let range = Range::Span(range.start_bound().cloned(), range.end_bound().cloned());
        Sink(Side::shared(Ok(Arc::clone(&namespace.endpoint)), range))
    }

    /// Several runs of bytes of a namespace, one after the other: (offset, length) each, in bytes, whole
    /// logical blocks.
    pub fn namespace_extents(namespace: &Namespace, extents: &[(u64, u64)]) -> Sink {
        Sink(Side::shared(Ok(Arc::clone(&namespace.endpoint)), Range::extents(extents)))
    }

    /// A socket.
    pub fn socket(socket: &impl AsFd) -> Sink {
        Sink::fd(socket)
    }

    /// Any descriptor: a file from its start, a block device, a stream.
    pub fn fd(fd: &impl AsFd) -> Sink {
        Sink::file(fd, 0)
    }

    /// Writes to a descriptor: a file or block device from this offset on, or a stream.
    pub fn handle(handle: &Handle, offset: u64) -> Sink {
        Sink(handle.side(Range::From(offset)))
    }

    /// Memory of this many bytes, handed back in [`Completion::memory`](crate::Completion::memory), as long
    /// as what was written.
    pub fn memory(capacity: usize) -> Sink {
        let memory = Arc::new(Mutex::new(vec![0; capacity]));
        let mut side = Side::new(Ok(Endpoint::sink(Arc::clone(&memory))), Range::From(0));
        side.memory = Some(memory);
        Sink(side)
    }

    /// Memory of a caller in another language.
    ///
    /// # Safety
    ///
    /// `length` bytes at `address` must be valid for reads and writes from any thread, and must not be used
    /// otherwise, until the transfer's completion was taken, or the engine was dropped. Dropping a transfer
    /// does not wait for that. If a transfer is prepared with it: until the [`Prepared`](crate::Prepared) was
    /// dropped, and the completions of all its submissions were taken before.
    pub unsafe fn raw(address: *mut u8, length: usize) -> Sink {
        // SAFETY: the caller's promise; the engine drops a command's endpoints before it posts its
        // completion.
        Sink(Side::new(Ok(unsafe { Endpoint::foreign(address, length) }), Range::From(0)))
    }

    /// An endpoint that was made before.
    #[doc(hidden)]
    pub fn endpoint(endpoint: Arc<Endpoint>, range: Range) -> Sink {
        Sink(Side::shared(Ok(endpoint), range))
    }

    /// Has the virtual drive that has the file write it: the chain's output does not cross the bus. For
    /// transfers of [`Backend::Drive`](crate::Backend::Drive) with operators (otherwise [`Error::NotNear`]).
    /// If the source is a file of the same block device, none of it crosses the bus either; from any other
    /// source the guest sends the bytes, and the drive takes them through the chain. The destination is a
    /// range that was written before, as [`prepare`](crate::card::extents::prepare) leaves it, begins at a
    /// logical block, and has no other user meanwhile, as for a card (`docs/server.md`); the output has to
    /// fit into it. A file that the drive cannot write is refused with the reason.
    ///
    /// A transfer that is cancelled or runs out of time ends when its drive has ended the command that it is at, within about a second.
    pub fn near_storage(mut self) -> Sink {
        self.0.near = true;
        self
    }

    /// Page cache: [`Mode::On`] uses it, [`Mode::Off`] bypasses it (O_DIRECT). Bytes that are less than a
    /// page go through it in any case: see [`Completion::path`](crate::Completion::path).
    pub fn cache(mut self, mode: Mode) -> Sink {
        self.0.cache = mode;
        self
    }

    /// Zero-copy send, and the kernel's own copy if the chain is empty: [`Mode::On`] demands the former,
    /// [`Mode::Off`] forbids both.
    pub fn zero_copy(mut self, mode: Mode) -> Sink {
        self.0.zero_copy = mode;
        self
    }
}
