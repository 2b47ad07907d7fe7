//! The target of a session's handle: a file, a block device, a socket, a pipe, memory, a namespace of an SSD.
//!
//! An endpoint owns a duplicate of its descriptor. Closing the original, or reusing its number, cannot redirect a transfer. A program that
//! has a descriptor open for reading or writing may use it that way, and no other program may (the papers' model).

use crate::buffer::ALIGNMENT;
use crate::gpu::{RegisteredFile, StorageError};
use crate::paced::{Incoming, Outgoing, Paced, Receiving, Sending, locked};
use crate::page_cache;
use crate::vfio_devices::Namespace;
use dcs_abi::descriptor::EndpointKind;
use rustix::fd::{AsFd, BorrowedFd, IntoRawFd, OwnedFd};
use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;
use rustix::net::SocketType;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

/// The pool of threads for sockets whose close waits for their peers.
pub(crate) const LINGERING: u64 = u64::MAX;

/// The reason why a descriptor cannot be an endpoint.
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    /// The descriptor is not open.
    #[error("the file descriptor is not open")]
    NotOpen,
    /// A handle of it was closed.
    #[error("the handle was closed: make another one, of an open file descriptor")]
    Closed,
    /// The descriptor is of a kind that cannot be read or written as a stream of bytes.
    #[error("{0} cannot be the source or destination of a transfer")]
    Unsupported(&'static str),
    /// A system call failed.
    #[error("the file descriptor could not be examined: {0}")]
    System(std::io::Error),
}

impl From<Errno> for EndpointError {
    fn from(errno: Errno) -> Self {
        if errno == Errno::BADF { EndpointError::NotOpen } else { EndpointError::System(errno.into()) }
    }
}

/// The wait that closing the last descriptor may cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closing {
    /// No wait.
    AtOnce,
    /// Wait for a file system or a device.
    OnDisk,
    /// Wait for the peer (SO_LINGER).
    OnPeer,
}

/// A source or destination.
#[derive(Debug)]
pub struct Endpoint {
    pub(crate) object: Object,
    kind: EndpointKind,
    readable: bool,
    writable: bool,
}

#[derive(Debug)]
pub(crate) enum Object {
    File(File),
    Flow(Flow),
    Stream(Stream),
    Memory(Memory),
    Device(DeviceFlow),
    Namespace(Arc<Namespace>),
    Part(Part),
    Paced(Paced),
}

/// A part of an SSD that a function of a card was lent. Only that card's backend can use it.
#[derive(Debug)]
pub struct Part {
    /// The backend's number, which differs from every other's in this process.
    pub backend: u64,
    /// The card's handle.
    pub handle: u32,
    /// Length in bytes.
    pub bytes: u64,
    /// Keeps the part open.
    pub held: Arc<dyn std::any::Any + Send + Sync>,
}

/// A connection of a card, or of a NIC that the engine drives. Its backend knows it by number.
#[derive(Debug)]
pub(crate) struct DeviceFlow {
    pub handle: u32,
    /// Keeps the connection open.
    _connection: Arc<dyn std::any::Any + Send + Sync>,
}

/// A regular file or a block device.
#[derive(Debug)]
pub(crate) struct File {
    // Released before the descriptor that it refers to is closed.
    /// The file as registered with GPUDirect Storage, or why it was refused.
    pub to_gpu: OnceLock<Result<RegisteredFile, StorageError>>,
    /// Set after a read to the GPU failed.
    pub gpu_failed: AtomicBool,
    pub fd: OwnedFd,
    /// The same file opened without O_DIRECT, if the descriptor has it.
    cached: Option<OwnedFd>,
    pub is_block_device: bool,
    /// Identity of the file, equal however it was opened: device and inode, or the device itself.
    pub identity: (u64, u64),
    /// Set if the file system supports RWF_NOWAIT.
    pub nowait: AtomicBool,
    /// Set if the kernel supports RWF_NOAPPEND.
    pub noappend: AtomicBool,
    /// Set if the file is in memory (tmpfs): no call waits for a disk.
    pub in_memory: bool,
    /// Set if the file system may report lost writes only when the file is closed: one of a server or a program (NFS, SMB, FUSE).
    pub reports_at_close: bool,
    /// Number of the device that the file system is on, or of the block device itself.
    device: u64,
    /// Size at the last query, if a query may wait (a file system without a disk of this machine).
    size_seen: Option<AtomicU64>,
    /// The same file opened with O_DIRECT on first use, and its alignment for offsets and lengths.
    direct: OnceLock<Result<(OwnedFd, u64), Errno>>,
}

/// A connected stream socket.
#[derive(Debug)]
pub(crate) struct Flow {
    pub fd: OwnedFd,
    /// Set if the socket has O_NONBLOCK, so that sendfile(2) does not wait.
    pub nonblocking: bool,
    /// Cached answer of [`Flow::is_remote`].
    remote: OnceLock<bool>,
    /// Set when the kernel reports that it had to copy what was sent with zero copy.
    pub zero_copy_copies: AtomicBool,
    /// Set when the kernel reports a send without a copy.
    pub zero_copy_works: AtomicBool,
}

/// A pipe, a FIFO, a character device.
#[derive(Debug)]
pub(crate) struct Stream {
    pub fd: OwnedFd,
    pub is_pipe: bool,
    pub nowait: AtomicBool,
    /// The engine's own pipe for short reads (reader, writer); always empty.
    pub aside: Mutex<Option<(OwnedFd, OwnedFd)>>,
    /// Bytes that it takes without waiting when it is ready for writing.
    pub piece: usize,
}

/// Bytes that a pipe takes without waiting when it is ready for writing (POSIX PIPE_BUF on Linux); also the longest packet.
pub(crate) const PIPE_BUF: usize = 4096;

/// Memory of this process.
#[derive(Debug)]
pub(crate) enum Memory {
    Shared(Arc<[u8]>),
    Sink(Arc<Mutex<Vec<u8>>>),
    Foreign(ForeignMemory),
}

/// Memory that a caller vouches for; see [`Endpoint::foreign`].
#[derive(Debug)]
pub(crate) struct ForeignMemory {
    address: *mut u8,
    length: usize,
}

// SAFETY: the maker of a foreign endpoint promised that any thread may access the memory.
unsafe impl Send for ForeignMemory {}
// SAFETY: as above; concurrent writes to one range are excluded by the same promise.
unsafe impl Sync for ForeignMemory {}

impl Endpoint {
    /// Duplicates a descriptor and finds out what it is.
    ///
    /// # Errors
    ///
    /// [`EndpointError`]; nothing stays open then.
    pub fn from_fd(fd: BorrowedFd<'_>) -> Result<Endpoint, EndpointError> {
        let flags = rustix::fs::fcntl_getfl(fd)?;
        if flags.contains(OFlags::PATH) {
            return Err(EndpointError::Unsupported("a descriptor opened with O_PATH"));
        }
        let fd = rustix::io::fcntl_dupfd_cloexec(fd, 3)?;
        let access = flags & OFlags::RWMODE;
        let stat = rustix::fs::fstat(&fd)?;
        let object = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Object::File(File::new(fd, false, (stat.st_dev, stat.st_ino), flags)?),
            FileType::BlockDevice => Object::File(File::new(fd, true, (stat.st_rdev, u64::MAX), flags)?),
            FileType::Socket => Object::Flow(Flow::new(fd, flags)?),
            FileType::Fifo => Object::Stream(Stream::new(fd, true, PIPE_BUF)),
            FileType::CharacterDevice if rustix::termios::isatty(&fd) => {
                Object::Stream(Stream::terminal(fd, flags))
            }
            FileType::CharacterDevice => Object::Stream(Stream::new(fd, false, PIPE_BUF)),
            FileType::Directory => return Err(EndpointError::Unsupported("a directory")),
            _ => return Err(EndpointError::Unsupported("this kind of descriptor")),
        };
        Ok(Endpoint::of(object, access != OFlags::WRONLY, access != OFlags::RDONLY))
    }

    /// Makes an endpoint of memory to read from.
    pub fn shared(bytes: Arc<[u8]>) -> Endpoint {
        Endpoint::of(Object::Memory(Memory::Shared(bytes)), true, false)
    }

    /// Makes an endpoint of memory to write to; its length is its capacity.
    pub fn sink(bytes: Arc<Mutex<Vec<u8>>>) -> Endpoint {
        Endpoint::of(Object::Memory(Memory::Sink(bytes)), false, true)
    }

    /// Makes an endpoint of memory of a caller in another language.
    ///
    /// # Safety
    ///
    /// Until the endpoint is dropped, `length` bytes at `address` must be valid for reads and, if the endpoint is used as a destination,
    /// for writes, from any thread, and nothing else may change them.
    pub unsafe fn foreign(address: *mut u8, length: usize) -> Endpoint {
        let memory = Memory::Foreign(ForeignMemory { address, length });
        Endpoint::of(Object::Memory(memory), true, true)
    }

    /// Makes an endpoint of a connection of a card or a NIC, by the card's number for it or [`NicRequest`](crate::vfio_devices::NicRequest)'s.
    /// `connection` keeps it open.
    pub fn device_flow(handle: u32, connection: Arc<dyn std::any::Any + Send + Sync>) -> Endpoint {
        let object = Object::Device(DeviceFlow { handle, _connection: connection });
        Endpoint::of(object, true, true)
    }

    /// Makes an endpoint of a media stream sent by a NIC of a card or of the engine, by its number. `stream` keeps it open.
    pub fn device_paced(handle: u32, stream: Arc<dyn std::any::Any + Send + Sync>) -> Endpoint {
        let object = Object::Paced(Paced::Device(DeviceFlow { handle, _connection: stream }));
        Endpoint::of(object, false, true)
    }

    /// Makes an endpoint of a namespace of an SSD that an engine drives ([`Controller::attach`](crate::Controller::attach)). Only that
    /// engine can use it.
    pub fn namespace(namespace: &Arc<Namespace>) -> Endpoint {
        let object = Object::Namespace(Arc::clone(namespace));
        Endpoint::of(object, true, true)
    }

    /// Makes an endpoint of a media stream sent by this connected datagram socket. `reports`: where reports about it go (RTCP), and the
    /// sender's canonical name.
    ///
    /// # Errors
    ///
    /// [`EndpointError`]; nothing stays open then.
    pub fn outgoing(
        socket: BorrowedFd<'_>,
        reports: Option<(BorrowedFd<'_>, String)>,
        settings: dcs_media::sender::Settings,
    ) -> Result<Endpoint, EndpointError> {
        let socket = datagrams(socket)?;
        let reports = reports.map(|(fd, name)| datagrams(fd).map(|fd| (fd, name))).transpose()?;
        let outgoing = Box::new(Mutex::new(Outgoing::new(socket, reports, settings)));
        Ok(Endpoint::of(Object::Paced(Paced::Out(outgoing)), false, true))
    }

    /// Makes an endpoint of a media stream received by this datagram socket.
    ///
    /// # Errors
    ///
    /// [`EndpointError`]; nothing stays open then.
    pub fn incoming(socket: BorrowedFd<'_>, framing: dcs_media::Framing) -> Result<Endpoint, EndpointError> {
        let incoming = Box::new(Mutex::new(Incoming::new(datagrams(socket)?, framing)));
        Ok(Endpoint::of(Object::Paced(Paced::In(incoming)), true, false))
    }

    /// Returns the state of an outgoing stream, if this is one.
    pub fn sending(&self) -> Option<Sending> {
        match &self.object {
            Object::Paced(Paced::Out(outgoing)) => Some(locked(outgoing).state()),
            _ => None,
        }
    }

    /// Returns the state of an incoming stream, if this is one.
    pub fn receiving(&self) -> Option<Receiving> {
        match &self.object {
            Object::Paced(Paced::In(incoming)) => Some(locked(incoming).state()),
            _ => None,
        }
    }

    /// Ends an incoming stream: its transfer succeeds with what has arrived.
    pub fn stop_receiving(&self) {
        if let Object::Paced(Paced::In(incoming)) = &self.object {
            locked(incoming).stop();
        }
    }

    /// Returns the card's number for its connection or media stream, if this is one.
    pub fn device_handle(&self) -> Option<u32> {
        match &self.object {
            Object::Device(flow) | Object::Paced(Paced::Device(flow)) => Some(flow.handle),
            _ => None,
        }
    }

    /// Makes an endpoint of a part of an SSD that a card's function was lent.
    pub fn part(part: Part) -> Endpoint {
        Endpoint::of(Object::Part(part), true, true)
    }

    /// Returns the part of an SSD that it is, if it is one.
    pub fn as_part(&self) -> Option<&Part> {
        match &self.object {
            Object::Part(part) => Some(part),
            _ => None,
        }
    }

    /// Returns the descriptor of a file or block device, if this is one.
    pub fn file(&self) -> Option<BorrowedFd<'_>> {
        match &self.object {
            Object::File(file) => Some(file.fd.as_fd()),
            _ => None,
        }
    }

    /// Returns true for /dev/null: the bytes are discarded.
    pub fn is_null(&self) -> bool {
        let Object::Stream(stream) = &self.object else { return false };
        let null = rustix::fs::makedev(1, 3);
        let same = |stat: rustix::fs::Stat| {
            FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice && stat.st_rdev == null
        };
        rustix::fs::fstat(&stream.fd).is_ok_and(same)
    }

    /// Returns the number of the block device that a file is on, or that this is.
    pub fn disk(&self) -> Option<u64> {
        match &self.object {
            Object::File(file) => Some(file.identity.0),
            _ => None,
        }
    }

    /// Copies bytes out of memory; returns how many there were, `None` if this is not memory.
    pub fn read_memory(&self, offset: u64, into: &mut [u8]) -> Option<usize> {
        match &self.object {
            Object::Memory(memory) => Some(memory.read(offset, into)),
            _ => None,
        }
    }

    /// Copies bytes into memory; returns how many there was room for, `None` if this is not memory.
    pub fn write_memory(&self, offset: u64, from: &[u8]) -> Option<usize> {
        match &self.object {
            Object::Memory(memory) => Some(memory.write(offset, from)),
            _ => None,
        }
    }

    fn of(object: Object, readable: bool, writable: bool) -> Endpoint {
        let kind = match &object {
            Object::File(file) if file.is_block_device => EndpointKind::Block,
            Object::File(_) => EndpointKind::File,
            Object::Flow(_) | Object::Device(_) => EndpointKind::Flow,
            Object::Stream(_) => EndpointKind::Stream,
            Object::Memory(_) => EndpointKind::Memory,
            Object::Namespace(_) | Object::Part(_) => EndpointKind::Block,
            Object::Paced(_) => EndpointKind::Paced,
        };
        Endpoint { object, kind, readable, writable }
    }

    /// Returns the kind of endpoint by which a command may name it.
    #[inline]
    pub fn kind(&self) -> EndpointKind {
        self.kind
    }

    /// Returns the wait that releasing it may cause.
    pub fn closing(&self) -> Closing {
        match &self.object {
            Object::File(file) if !file.in_memory => Closing::OnDisk,
            Object::Flow(flow) if flow.lingers() => Closing::OnPeer,
            Object::Stream(stream) if !stream.is_pipe => Closing::OnDisk,
            _ => Closing::AtOnce,
        }
    }

    /// Returns the number of the thread pool for its calls that may wait. Calls of one file system or device share a pool.
    pub(crate) fn pool(&self) -> u64 {
        match &self.object {
            Object::File(file) => file.device,
            Object::Flow(_) => LINGERING,
            _ => 0,
        }
    }

    /// Opens what a transfer past the page cache will need. Opening may wait, and the thread that submits the transfer is allowed to.
    pub fn prepare_direct(&self) {
        if let Object::File(file) = &self.object {
            // A failure is reported when the transfer is bound.
            let _ = file.direct();
        }
    }

    /// Returns true if it may be read.
    #[inline]
    pub fn readable(&self) -> bool {
        self.readable
    }

    /// Returns true if it may be written.
    #[inline]
    pub fn writable(&self) -> bool {
        self.writable
    }

    /// Returns its current size in bytes; `None` for streams.
    ///
    /// # Errors
    ///
    /// The error of the system call.
    pub fn size(&self) -> std::io::Result<Option<u64>> {
        Ok(match &self.object {
            Object::File(file) => Some(file.size()?),
            Object::Flow(_) | Object::Stream(_) | Object::Device(_) | Object::Paced(_) => None,
            Object::Memory(memory) => Some(memory.length() as u64),
            Object::Namespace(namespace) => Some(namespace.bytes()),
            Object::Part(part) => Some(part.bytes),
        })
    }
}

/// Duplicates a descriptor that is a datagram socket.
fn datagrams(fd: BorrowedFd<'_>) -> Result<OwnedFd, EndpointError> {
    let kind = rustix::net::sockopt::socket_type(fd).map_err(|errno| match errno {
        Errno::NOTSOCK => EndpointError::Unsupported("a descriptor that is not a datagram socket"),
        errno => errno.into(),
    })?;
    if kind != SocketType::DGRAM {
        return Err(EndpointError::Unsupported("a socket that is not a datagram socket"));
    }
    Ok(rustix::io::fcntl_dupfd_cloexec(fd, 3)?)
}

impl File {
    fn new(
        fd: OwnedFd,
        is_block_device: bool,
        identity: (u64, u64),
        flags: OFlags,
    ) -> Result<File, EndpointError> {
        let refused = "a descriptor opened with O_DIRECT, of a file that cannot be opened again without it,";
        let cached = match flags.contains(OFlags::DIRECT) {
            true => Some(reopen(&fd, OFlags::empty()).map_err(|_| EndpointError::Unsupported(refused))?),
            false => None,
        };
        let in_memory = !is_block_device && is_in_memory(&fd, identity.0);
        let reports_at_close = !is_block_device && !in_memory && reports_at_close(&fd, identity.0);
        Ok(File {
            to_gpu: OnceLock::new(),
            gpu_failed: AtomicBool::new(false),
            fd,
            cached,
            is_block_device,
            identity,
            nowait: AtomicBool::new(true),
            noappend: AtomicBool::new(true),
            in_memory,
            reports_at_close,
            device: identity.0,
            size_seen: (!in_memory && rustix::fs::major(identity.0) == 0).then(AtomicU64::default),
            direct: OnceLock::new(),
        })
    }

    /// Closes duplicates of the descriptors that may have been written to. This reports the same errors as the last close.
    pub fn close_aside(&self) -> Result<(), Errno> {
        let direct = self.direct.get().and_then(|direct| direct.as_ref().ok()).map(|(fd, _)| fd);
        for fd in [Some(&self.fd), self.cached.as_ref(), direct].into_iter().flatten() {
            let duplicate = rustix::io::fcntl_dupfd_cloexec(fd, 3)?;
            // SAFETY: the number is owned, and released here: nothing closes it again, whatever the call returns.
            if unsafe { libc::close(duplicate.into_raw_fd()) } != 0 {
                return Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO));
            }
        }
        Ok(())
    }

    /// Returns the file through the page cache, for offsets and lengths of any alignment.
    #[inline]
    pub fn cached(&self) -> BorrowedFd<'_> {
        self.cached.as_ref().unwrap_or(&self.fd).as_fd()
    }

    /// Returns true if the descriptor was opened with O_DIRECT.
    pub fn is_direct(&self) -> bool {
        self.cached.is_some()
    }

    /// Returns true if it has O_APPEND now: positional writes would go to the end instead.
    pub fn appends(&self) -> Result<bool, Errno> {
        Ok(rustix::fs::fcntl_getfl(&self.fd)?.contains(OFlags::APPEND))
    }

    /// Returns true if the file reports that it is empty, but may not know its size, as the files of /proc: only a read tells.
    pub fn hides_size(&self, size: u64) -> bool {
        size == 0 && !self.is_block_device
    }

    pub fn size(&self) -> Result<u64, Errno> {
        let size = self.ask_size()?;
        if let Some(seen) = &self.size_seen {
            seen.store(size, Ordering::Relaxed);
        }
        Ok(size)
    }

    /// Returns true if it is known to have that many bytes, without asking a file system that may wait: it had them when its transfer was
    /// submitted.
    pub fn surely_has(&self, bytes: u64) -> bool {
        self.size_seen.as_ref().is_some_and(|seen| seen.load(Ordering::Relaxed) >= bytes)
    }

    fn ask_size(&self) -> Result<u64, Errno> {
        if !self.is_block_device {
            return Ok(rustix::fs::fstat(&self.fd)?.st_size as u64);
        }
        // BLKGETSIZE64: _IOR(0x12, 114, size_t), the size of a block device in bytes.
        const BLKGETSIZE64: rustix::ioctl::Opcode = rustix::ioctl::opcode::read::<usize>(0x12, 114);
        // SAFETY: BLKGETSIZE64 writes a u64 and nothing else (linux/fs.h, block/ioctl.c).
        unsafe { rustix::ioctl::ioctl(&self.fd, rustix::ioctl::Getter::<BLKGETSIZE64, u64>::new()) }
    }

    /// Returns true if it is worth trying to read it to a GPU.
    pub fn may_go_to_gpu(&self) -> bool {
        let refused = matches!(self.to_gpu.get(), Some(Err(_)));
        !refused && !self.gpu_failed.load(Ordering::Relaxed) && self.direct().is_ok()
    }

    /// Returns true if the page cache has any of those bytes; `None` if the kernel (before 6.5) does not tell, or not this process.
    pub fn is_cached(&self, offset: u64, length: u64) -> Option<bool> {
        self.cached_pages(offset, length).map(|pages| pages > 0)
    }

    /// Returns true if the page cache has all of those bytes.
    pub fn is_all_cached(&self, offset: u64, length: u64) -> bool {
        let page = rustix::param::page_size() as u64;
        let pages = offset.saturating_add(length).div_ceil(page) - offset / page;
        self.cached_pages(offset, length).is_some_and(|cached| cached >= pages)
    }

    fn cached_pages(&self, offset: u64, length: u64) -> Option<u64> {
        page_cache::counts(self.fd.as_fd(), offset, length).ok().map(|counts| counts.cached)
    }

    /// Returns the file opened with O_DIRECT, and the alignment that offsets and lengths need.
    pub fn direct(&self) -> Result<(BorrowedFd<'_>, u64), Errno> {
        match self.direct.get_or_init(|| self.open_direct()) {
            Ok((fd, alignment)) => Ok((fd.as_fd(), *alignment)),
            Err(errno) => Err(*errno),
        }
    }

    fn open_direct(&self) -> Result<(OwnedFd, u64), Errno> {
        let fd = reopen(&self.fd, OFlags::DIRECT)?;
        let alignment = match rustix::fs::statx(
            &fd,
            "",
            rustix::fs::AtFlags::EMPTY_PATH,
            rustix::fs::StatxFlags::DIOALIGN,
        ) {
            Ok(stat) if stat.stx_dio_offset_align > 0 => u64::from(stat.stx_dio_offset_align),
            _ => ALIGNMENT as u64,
        };
        // Blocks are aligned to ALIGNMENT in memory, so a device that needs more is not supported.
        if alignment > ALIGNMENT as u64 { Err(Errno::INVAL) } else { Ok((fd, alignment)) }
    }
}

/// Returns true for file systems in memory.
fn is_in_memory(fd: &OwnedFd, device: u64) -> bool {
    // linux/magic.h: TMPFS_MAGIC, RAMFS_MAGIC, HUGETLBFS_MAGIC.
    const IN_MEMORY: [i64; 3] = [0x0102_1994, 0x8584_58f6, 0x9584_58f6];
    // A file system on a disk has the disk's number.
    let without_disk = rustix::fs::major(device) == 0;
    without_disk && rustix::fs::fstatfs(fd).is_ok_and(|stat| IN_MEMORY.contains(&stat.f_type))
}

/// Returns true if a close may report what no write has reported. A file system on a disk of this machine has written to the page cache,
/// and a close adds nothing; FUSE may be on a disk too.
fn reports_at_close(fd: &OwnedFd, device: u64) -> bool {
    // linux/magic.h: FUSE_SUPER_MAGIC, BTRFS_SUPER_MAGIC.
    const FUSE: i64 = 0x6573_5546;
    const BTRFS: i64 = 0x9123_683e;
    let kind = rustix::fs::fstatfs(fd).map_or(0, |stat| stat.f_type);
    kind == FUSE || rustix::fs::major(device) == 0 && kind != BTRFS
}

/// Opens a file again, for the same access: setting flags on the caller's open file would change it for the caller too.
fn reopen(fd: &OwnedFd, flags: OFlags) -> Result<OwnedFd, Errno> {
    use rustix::fd::AsRawFd;
    let access = rustix::fs::fcntl_getfl(fd)? & OFlags::RWMODE;
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    rustix::fs::open(path, access | flags | OFlags::CLOEXEC, rustix::fs::Mode::empty())
}

impl Stream {
    fn new(fd: OwnedFd, is_pipe: bool, piece: usize) -> Stream {
        Stream { fd, is_pipe, nowait: AtomicBool::new(true), aside: Mutex::default(), piece }
    }

    /// Opens a terminal again, without blocking: one that is ready for writing may have room for one byte, and wait until all others have
    /// been read. Opening the master of a pseudo-terminal again would make another one, and a process that runs as another user may not
    /// open it: these get a byte at a time.
    fn terminal(fd: OwnedFd, flags: OFlags) -> Stream {
        let is_master = rustix::pty::ptsname(&fd, Vec::new()).is_ok();
        let again = if is_master { None } else { reopen(&fd, OFlags::NONBLOCK | OFlags::NOCTTY).ok() };
        let never_waits = again.is_some() || flags.contains(OFlags::NONBLOCK);
        Stream::new(again.unwrap_or(fd), false, if never_waits { PIPE_BUF } else { 1 })
    }
}

impl Flow {
    fn new(fd: OwnedFd, flags: OFlags) -> Result<Flow, EndpointError> {
        if rustix::net::sockopt::socket_type(&fd)? != SocketType::STREAM {
            return Err(EndpointError::Unsupported("a socket that is not a stream socket"));
        }
        if rustix::net::sockopt::socket_acceptconn(&fd)? {
            return Err(EndpointError::Unsupported("a listening socket"));
        }
        Ok(Flow {
            fd,
            nonblocking: flags.contains(OFlags::NONBLOCK),
            remote: OnceLock::new(),
            zero_copy_copies: AtomicBool::new(false),
            zero_copy_works: AtomicBool::new(false),
        })
    }

    /// Returns true if the peer may be reached through a NIC: not loopback, not a Unix socket.
    pub fn is_remote(&self) -> bool {
        let ask =
            || rustix::net::getpeername(&self.fd).is_ok_and(|peer| peer.is_some_and(|peer| is_remote(&peer)));
        *self.remote.get_or_init(ask)
    }

    /// Returns true if closing it would wait for what it has sent.
    fn lingers(&self) -> bool {
        rustix::net::sockopt::socket_linger(&self.fd)
            .is_ok_and(|linger| linger.is_some_and(|time| !time.is_zero()))
    }

    /// Notes the kernel's report of a zero-copy send.
    pub fn note_zero_copy(&self, copied: bool) {
        let which = if copied { &self.zero_copy_copies } else { &self.zero_copy_works };
        which.store(true, Ordering::Relaxed);
    }
}

fn is_remote(peer: &rustix::net::SocketAddrAny) -> bool {
    match std::net::SocketAddr::try_from(peer.clone()) {
        Ok(address) => !address.ip().to_canonical().is_loopback(),
        Err(_) => false,
    }
}

impl Memory {
    pub fn length_u64(&self) -> u64 {
        self.length() as u64
    }

    fn length(&self) -> usize {
        match self {
            Memory::Shared(bytes) => bytes.len(),
            Memory::Sink(bytes) => bytes.lock().unwrap_or_else(|error| error.into_inner()).len(),
            Memory::Foreign(memory) => memory.length,
        }
    }

    /// Copies bytes out; returns how many there were.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> usize {
        let range = |length: usize| {
            let from = usize::try_from(offset).unwrap_or(usize::MAX).min(length);
            from..length.min(from.saturating_add(into.len()))
        };
        match self {
            Memory::Shared(bytes) => copy(&bytes[range(bytes.len())], into),
            Memory::Sink(bytes) => {
                let bytes = bytes.lock().unwrap_or_else(|error| error.into_inner());
                copy(&bytes[range(bytes.len())], into)
            }
            Memory::Foreign(memory) => {
                let range = range(memory.length);
                // SAFETY: the range is inside the memory, which is valid for reads by `Endpoint::foreign`'s promise.
                let bytes =
                    unsafe { std::slice::from_raw_parts(memory.address.add(range.start), range.len()) };
                copy(bytes, into)
            }
        }
    }

    /// Copies bytes in; returns how many there was room for.
    pub fn write(&self, offset: u64, from: &[u8]) -> usize {
        let range = |length: usize| {
            let start = usize::try_from(offset).unwrap_or(usize::MAX).min(length);
            start..length.min(start.saturating_add(from.len()))
        };
        match self {
            Memory::Shared(_) => 0,
            Memory::Sink(bytes) => {
                let mut bytes = bytes.lock().unwrap_or_else(|error| error.into_inner());
                let range = range(bytes.len());
                copy(from, &mut bytes[range])
            }
            Memory::Foreign(memory) => {
                let range = range(memory.length);
                // SAFETY: the range is inside the memory, which is valid for writes by `Endpoint::foreign`'s promise.
                let bytes =
                    unsafe { std::slice::from_raw_parts_mut(memory.address.add(range.start), range.len()) };
                copy(from, bytes)
            }
        }
    }
}

fn copy(from: &[u8], into: &mut [u8]) -> usize {
    let length = from.len().min(into.len());
    into[..length].copy_from_slice(&from[..length]);
    length
}
