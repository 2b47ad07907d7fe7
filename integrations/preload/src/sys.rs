//! System calls, each with its errno as the error.

use libc::{c_int, c_void, off_t};
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;

/// errno.
pub type Errno = c_int;

/// Identity of a file or socket: device and inode.
pub type Identity = (u64, u64);

unsafe extern "C-unwind" {
    // The C library's functions; but they may end the thread, which unwinds its callers.
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
    fn pthread_setcanceltype(kind: c_int, before: *mut c_int) -> c_int;
    fn pthread_testcancel();
}

const PTHREAD_CANCEL_DISABLE: c_int = 1;
const PTHREAD_CANCEL_DEFERRED: c_int = 0;

/// State and type of this thread's cancellation.
#[derive(Clone, Copy)]
pub struct Cancellation {
    state: c_int,
    kind: c_int,
}

/// Defers this thread's cancellation: sendfile(2) itself is not a cancellation point, but calls that the library makes
/// are. Returns the former state.
pub fn put_off_cancellation() -> Cancellation {
    let mut before = Cancellation { state: 0, kind: PTHREAD_CANCEL_DEFERRED };
    // SAFETY: valid for the writes; with these values neither ends the thread.
    unsafe {
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &mut before.state);
        pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &mut before.kind);
    }
    before
}

/// Restores cancellation. A thread that may be cancelled at any time ends here, so its callers must have nothing left
/// to drop.
pub fn restore_cancellation(before: Cancellation) {
    let mut none = 0;
    // SAFETY: `none` is valid for the writes.
    unsafe {
        pthread_setcancelstate(before.state, &mut none);
        if before.kind != PTHREAD_CANCEL_DEFERRED {
            pthread_testcancel();
            pthread_setcanceltype(before.kind, &mut none);
        }
    }
}

/// Least number of the descriptors that the library keeps, because programs count on low numbers. Those that the engine
/// makes for itself (its duplicates of a stream's pipes, a few of its own) get the lowest free numbers.
const DESCRIPTOR_MIN: c_int = 200;

/// Most bytes that the kernel moves in one call (MAX_RW_COUNT).
pub const COUNT_MAX: usize = 0x7fff_f000;

fn check(returned: isize) -> Result<usize, Errno> {
    usize::try_from(returned).map_err(|_| errno())
}

/// Returns the calling thread's errno.
pub fn errno() -> Errno {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

/// Sets the calling thread's errno.
pub fn set_errno(errno: Errno) {
    // SAFETY: the C library returns a valid pointer to the thread's own errno.
    unsafe { *libc::__errno_location() = errno };
}

/// Calls the kernel's own sendfile. It checks `offset` itself, and returns EFAULT if that is invalid.
pub fn sendfile(out_fd: c_int, in_fd: c_int, offset: *mut off_t, count: usize) -> isize {
    // SAFETY: a system call: the kernel checks descriptors and the pointer.
    unsafe { libc::syscall(libc::SYS_sendfile, out_fd, in_fd, offset, count) as isize }
}

/// Returns the stat of a descriptor.
pub fn stat(fd: c_int) -> Option<libc::stat> {
    // SAFETY: stat is plain bits, and valid for the write.
    unsafe {
        let mut stat = std::mem::zeroed::<libc::stat>();
        (libc::fstat(fd, &mut stat) == 0).then_some(stat)
    }
}

pub fn identity(stat: &libc::stat) -> Identity {
    (stat.st_dev, stat.st_ino)
}

pub fn is_kind(stat: &libc::stat, kind: libc::mode_t) -> bool {
    stat.st_mode & libc::S_IFMT == kind
}

/// Moves bytes of a file, from `offset` on, into a pipe, as far as it has room. May wait for the disk, with the pipe
/// locked.
pub fn splice_file(file: c_int, offset: u64, pipe: &OwnedFd, count: usize) -> Result<usize, Errno> {
    let mut at = offset as libc::loff_t;
    let flags = libc::SPLICE_F_NONBLOCK;
    let to = pipe.as_raw_fd();
    // SAFETY: the offset is valid for reads and writes; the kernel checks the descriptors.
    check(unsafe { libc::splice(file, &mut at, to, std::ptr::null_mut(), count, flags) })
}

/// Moves bytes from one pipe to another, as far as that has room. Never waits.
pub fn splice_pipe(from: &OwnedFd, to: &OwnedFd, count: usize) -> Result<usize, Errno> {
    let (from, to, none) = (from.as_raw_fd(), to.as_raw_fd(), std::ptr::null_mut());
    // SAFETY: no memory is involved; the kernel checks the descriptors.
    check(unsafe { libc::splice(from, none, to, none, count, libc::SPLICE_F_NONBLOCK) })
}

/// Moves bytes of a pipe into a socket. Waits as the socket does, with the pipe locked.
pub fn deliver(pipe: &OwnedFd, socket: c_int, count: usize) -> Result<usize, Errno> {
    let (from, none) = (pipe.as_raw_fd(), std::ptr::null_mut());
    // SAFETY: no memory is involved; the kernel checks the descriptors.
    check(unsafe { libc::splice(from, none, socket, none, count, libc::SPLICE_F_NONBLOCK) })
}

/// Returns true if calls on this socket do not wait.
pub fn is_nonblocking(socket: c_int) -> bool {
    // SAFETY: no memory is involved.
    unsafe { libc::fcntl(socket, libc::F_GETFL) & libc::O_NONBLOCK != 0 }
}

/// Returns why a socket took less than it was given: it is full, its timeout has passed, or a signal came.
pub fn why_short(socket: c_int) -> Errno {
    let mut timeout = libc::timeval { tv_sec: 0, tv_usec: 0 };
    let mut size = std::mem::size_of_val(&timeout) as libc::socklen_t;
    let value = (&raw mut timeout).cast::<c_void>();
    // SAFETY: the value is valid for `size` bytes.
    unsafe { libc::getsockopt(socket, libc::SOL_SOCKET, libc::SO_SNDTIMEO, value, &mut size) };
    let waits_for_ever = !is_nonblocking(socket) && timeout.tv_sec == 0 && timeout.tv_usec == 0;
    if waits_for_ever { libc::EINTR } else { libc::EAGAIN }
}

/// Returns the bytes in a pipe.
pub fn waiting(pipe: &OwnedFd) -> usize {
    let mut bytes: c_int = 0;
    // SAFETY: FIONREAD writes one int, for which `bytes` is valid.
    let told = unsafe { libc::ioctl(pipe.as_raw_fd(), libc::FIONREAD, &mut bytes) };
    if told == 0 { bytes as usize } else { 0 }
}

/// Discards bytes of a pipe, without waiting.
pub fn drop_bytes(pipe: &OwnedFd, count: usize) -> usize {
    let mut bytes = [0_u8; 16];
    let count = count.min(bytes.len());
    // SAFETY: the buffer is valid for `count` bytes, which are no more than it has.
    check(unsafe { libc::read(pipe.as_raw_fd(), bytes.as_mut_ptr().cast::<c_void>(), count) }).unwrap_or(0)
}

/// Waits, but not long, until the first pipe is readable or the second, if given, writable. Returns true on a timeout.
pub fn wait(readable: &OwnedFd, writable: Option<&OwnedFd>, milliseconds: c_int) -> bool {
    let end = |fd: c_int, events| libc::pollfd { fd, events, revents: 0 };
    // poll ignores a negative descriptor.
    let second = writable.map_or(-1, |pipe| pipe.as_raw_fd());
    let mut ends = [end(readable.as_raw_fd(), libc::POLLIN), end(second, libc::POLLOUT)];
    // SAFETY: the array is valid for its two entries.
    unsafe { libc::poll(ends.as_mut_ptr(), ends.len() as libc::nfds_t, milliseconds) == 0 }
}

/// Returns the bytes that a pipe has room for; if that can't be found out, the least that any pipe has.
pub fn pipe_size(pipe: &OwnedFd) -> usize {
    // SAFETY: no memory is involved.
    let size = unsafe { libc::fcntl(pipe.as_raw_fd(), libc::F_GETPIPE_SZ) };
    usize::try_from(size).unwrap_or(libc::PIPE_BUF)
}

/// Makes a non-blocking pipe, of that size if allowed: (reading end, writing end).
pub fn pipe(size: c_int) -> Result<(OwnedFd, OwnedFd), Errno> {
    let mut ends = [-1; 2];
    // SAFETY: the array has room for the two descriptors, which nothing else owns once the call succeeded.
    unsafe {
        check(libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) as isize)?;
        // A process without the right to this size goes on with the default.
        libc::fcntl(ends[1], libc::F_SETPIPE_SZ, size);
        Ok((OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])))
    }
}

/// Returns true if the file has a byte at that offset.
pub fn has_byte(file: c_int, at: u64) -> Result<bool, Errno> {
    let mut byte = 0_u8;
    let to = (&raw mut byte).cast::<c_void>();
    // SAFETY: the buffer is valid for one byte.
    check(unsafe { libc::pread(file, to, 1, at as off_t) }).map(|bytes| bytes > 0)
}

/// Returns a file's position.
pub fn position(fd: c_int) -> Result<u64, Errno> {
    // SAFETY: no memory is involved.
    check(unsafe { libc::lseek(fd, 0, libc::SEEK_CUR) } as isize).map(|at| at as u64)
}

pub fn set_position(fd: c_int, at: u64) {
    // SAFETY: no memory is involved. If the descriptor was closed meanwhile, there is no position to set.
    unsafe { libc::lseek(fd, at as off_t, libc::SEEK_SET) };
}

/// Returns true for a stream socket.
pub fn is_stream(socket: c_int) -> bool {
    let mut kind: c_int = 0;
    let mut size = std::mem::size_of::<c_int>() as libc::socklen_t;
    let value = (&raw mut kind).cast::<c_void>();
    // SAFETY: the value is valid for `size` bytes.
    let told = unsafe { libc::getsockopt(socket, libc::SOL_SOCKET, libc::SO_TYPE, value, &mut size) };
    told == 0 && kind == libc::SOCK_STREAM
}

/// Returns an address of a socket.
fn address(socket: c_int, peer: bool) -> Option<std::net::SocketAddr> {
    // SAFETY: the storage is plain bits and valid for `size` bytes; each family is read as the structure that
    // it has, none of which is larger.
    unsafe {
        let mut storage = std::mem::zeroed::<libc::sockaddr_storage>();
        let mut size = std::mem::size_of_val(&storage) as libc::socklen_t;
        let to = (&raw mut storage).cast::<libc::sockaddr>();
        let told = match peer {
            true => libc::getpeername(socket, to, &mut size),
            false => libc::getsockname(socket, to, &mut size),
        };
        if told != 0 {
            return None;
        }
        match i32::from(storage.ss_family) {
            libc::AF_INET => {
                let address = *(&raw const storage).cast::<libc::sockaddr_in>();
                let ip = std::net::Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr));
                Some((ip, u16::from_be(address.sin_port)).into())
            }
            libc::AF_INET6 => {
                let address = *(&raw const storage).cast::<libc::sockaddr_in6>();
                let ip = std::net::Ipv6Addr::from(address.sin6_addr.s6_addr);
                Some((ip, u16::from_be(address.sin6_port)).into())
            }
            _ => None,
        }
    }
}

pub fn local_address(socket: c_int) -> Option<std::net::SocketAddr> {
    address(socket, false)
}

pub fn peer_address(socket: c_int) -> Option<std::net::SocketAddr> {
    address(socket, true)
}

/// Returns an extended attribute of a file, of up to 64 bytes.
pub fn attribute(file: c_int, name: &str) -> Result<Vec<u8>, Errno> {
    let name = std::ffi::CString::new(name).map_err(|_| libc::EINVAL)?;
    let mut value = vec![0_u8; 64];
    let room = value.as_mut_ptr().cast::<c_void>();
    // SAFETY: the name ends with a zero, and the buffer is valid for the bytes that it has.
    let size = check(unsafe { libc::fgetxattr(file, name.as_ptr(), room, value.len()) })?;
    value.truncate(size);
    Ok(value)
}

/// Returns the open sockets of this process, each with one of its numbers, from a descriptor of /proc.
pub fn sockets(proc: c_int) -> Option<HashMap<Identity, c_int>> {
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
    // SAFETY: the path ends with a zero. The stream is closed below, and nothing else has it; each entry is read before
    // the next call for one.
    unsafe {
        let folder = libc::openat(proc, c"self/fd".as_ptr(), flags);
        let stream = libc::fdopendir(folder);
        if stream.is_null() {
            libc::close(folder);
            return None;
        }
        let mut sockets = HashMap::new();
        while let Some(entry) = libc::readdir(stream).as_ref() {
            let name = std::ffi::CStr::from_ptr(entry.d_name.as_ptr()).to_str().unwrap_or_default();
            let Ok(fd) = name.parse() else { continue };
            if let Some(stat) = stat(fd).filter(|stat| is_kind(stat, libc::S_IFSOCK)) {
                sockets.insert(identity(&stat), fd);
            }
        }
        libc::closedir(stream);
        Some(sockets)
    }
}

/// Returns the identity of the file that a path names.
pub fn identity_of(path: &OsStr) -> Option<Identity> {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(path).ok().map(|metadata| (metadata.dev(), metadata.ino()))
}

/// Returns the path of an open file as /proc reports it, from a descriptor of /proc.
pub fn path(proc: c_int, fd: c_int) -> Option<OsString> {
    let link = std::ffi::CString::new(format!("self/fd/{fd}")).ok()?;
    let mut bytes = vec![0_u8; libc::PATH_MAX as usize];
    let room = bytes.as_mut_ptr().cast::<libc::c_char>();
    // SAFETY: the link ends with a zero, and the buffer is valid for the bytes that it has.
    let size = check(unsafe { libc::readlinkat(proc, link.as_ptr(), room, bytes.len()) }).ok()?;
    bytes.truncate(size);
    Some(OsString::from_vec(bytes))
}

/// Writes a line by one call.
pub fn write(fd: c_int, line: &[u8]) -> bool {
    // SAFETY: the line is valid for the bytes that it has.
    unsafe { libc::write(fd, line.as_ptr().cast(), line.len()) == line.len() as isize }
}

/// Moves the descriptor to a high number, if the process may have that many.
pub fn move_to_high_number(fd: OwnedFd) -> OwnedFd {
    // SAFETY: no memory is involved.
    let high = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, DESCRIPTOR_MIN) };
    if high < 0 {
        return fd;
    }
    // SAFETY: the descriptor was just made, and nothing else owns it.
    unsafe { OwnedFd::from_raw_fd(high) }
}

/// Replaces the file behind one descriptor by that of another, at once for all threads, and closes the other.
pub fn replace(old: c_int, new: c_int) {
    // SAFETY: no memory is involved; both descriptors are the library's own.
    unsafe {
        libc::dup3(new, old, libc::O_CLOEXEC);
        libc::close(new);
    }
}
