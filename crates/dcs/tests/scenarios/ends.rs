//! Endpoints of every kind, with a peer that feeds or drains them.

use crate::rig::{is_root, tool};
use dcs::{Sink, Source};
use std::fs::File;
use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;

/// A kind of endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    File,
    Block,
    Tcp4,
    Tcp6,
    Unix,
    Pipe,
    Fifo,
    Memory,
    /// /dev/zero as a source, /dev/null as a destination.
    Device,
}

pub const KINDS: [Kind; 9] = [
    Kind::File,
    Kind::Block,
    Kind::Tcp4,
    Kind::Tcp6,
    Kind::Unix,
    Kind::Pipe,
    Kind::Fifo,
    Kind::Memory,
    Kind::Device,
];

/// A source that gives certain bytes, and who feeds it.
pub struct Feed {
    pub source: Source,
    feeder: Option<JoinHandle<()>>,
}

/// A sink, and how to get at what it took.
pub struct Drain {
    pub sink: Sink,
    pub rest: Rest,
}

/// The other end of a [`Drain`] when its sink was given away.
pub enum Rest {
    File(File),
    /// Our end, to be closed, and the thread that reads the other one to its end.
    Stream(OwnedFd, JoinHandle<Vec<u8>>),
    Memory,
    Nothing,
}

/// Two ends of a TCP connection.
pub fn tcp(address: &str) -> std::io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind((address, 0))?;
    let one = TcpStream::connect(listener.local_addr()?)?;
    Ok((one, listener.accept()?.0))
}

pub fn tcp4() -> (TcpStream, TcpStream) {
    tcp("127.0.0.1").unwrap()
}

/// Writing end, reading end.
pub fn pipe() -> (File, File) {
    let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
    (writer.into(), reader.into())
}

/// Writing end, reading end of a FIFO; the reader was opened with O_NONBLOCK.
pub fn fifo() -> (File, File) {
    use rustix::fs::{CWD, FileType, Mode, OFlags};
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("fifo");
    rustix::fs::mknodat(CWD, &path, FileType::Fifo, Mode::RWXU, 0).unwrap();
    let reader =
        rustix::fs::open(&path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty()).unwrap();
    let writer = File::options().write(true).open(&path).unwrap();
    (writer, reader.into())
}

/// Two ends of a stream of this kind: the one to write to, the one to read from. `None` where there is none
/// here.
pub fn stream(kind: Kind) -> Option<(OwnedFd, OwnedFd)> {
    Some(match kind {
        Kind::Tcp4 => {
            let (one, other) = tcp4();
            (one.into(), other.into())
        }
        Kind::Tcp6 => {
            let (one, other) = tcp("::1").ok()?;
            (one.into(), other.into())
        }
        Kind::Unix => {
            let (one, other) = UnixStream::pair().unwrap();
            (one.into(), other.into())
        }
        Kind::Pipe => {
            let (writer, reader) = pipe();
            (writer.into(), reader.into())
        }
        Kind::Fifo => {
            let (writer, reader) = fifo();
            (writer.into(), reader.into())
        }
        _ => return None,
    })
}

/// Writes bytes to one end from another thread, then closes it.
pub fn write_behind(end: OwnedFd, bytes: Vec<u8>) -> JoinHandle<()> {
    std::thread::spawn(move || {
        // A transfer that failed closes the other end early.
        let _ = File::from(end).write_all(&bytes);
    })
}

/// Reads one end to its end in another thread.
pub fn read_behind(end: OwnedFd) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let (mut file, mut bytes) = (File::from(end), Vec::new());
        let mut piece = vec![0; 64 * 1024];
        loop {
            match file.read(&mut piece) {
                Ok(0) => return bytes,
                Ok(count) => bytes.extend_from_slice(&piece[..count]),
                // The FIFO's reader does not block.
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    std::thread::sleep(std::time::Duration::from_micros(200));
                }
                Err(_) => return bytes,
            }
        }
    })
}

pub fn file_with(bytes: &[u8]) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    file
}

/// A file on the disk that the build directory is on.
pub fn disk_file(bytes: &[u8]) -> File {
    let mut file = tempfile::tempfile_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    file.write_all(bytes).unwrap();
    file.sync_all().unwrap();
    file
}

/// An address of this machine other than the loopback's: connections to it are as those to another machine.
pub fn own_address() -> Option<IpAddr> {
    // No datagram is sent: the kernel looks for the way.
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    Some(socket.local_addr().ok()?.ip()).filter(|address| !address.is_loopback() && !address.is_unspecified())
}

pub fn contents(file: &File, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

/// A loop device over a temporary file of this many bytes; it goes when it is closed. Needs root.
pub fn loop_device(size: u64) -> Result<File, String> {
    if !is_root() {
        return Err("not root".into());
    }
    let backing = tempfile::NamedTempFile::new().map_err(|error| error.to_string())?;
    backing.as_file().set_len(size).map_err(|error| error.to_string())?;
    let path = backing.path().to_string_lossy().to_string();
    let device = tool("losetup", &["--find", "--show", &path])?;
    let file = File::options().read(true).write(true).open(&device).map_err(|error| error.to_string());
    // Detached when the last descriptor is closed.
    tool("losetup", &["--detach", &device])?;
    file
}

/// A source of that kind with these bytes; `block` is the device for block devices. `None`: not available.
pub fn feed(kind: Kind, bytes: &[u8], block: Option<&File>) -> Option<Feed> {
    let still = |source| Some(Feed { source, feeder: None });
    match kind {
        Kind::File => still(Source::file(&file_with(bytes), ..)),
        Kind::Memory => still(Source::memory(bytes)),
        Kind::Block => {
            block?.write_all_at(bytes, 0).unwrap();
            still(Source::file(block?, ..bytes.len() as u64))
        }
        Kind::Device => still(Source::fd(&File::open("/dev/zero").unwrap())),
        _ => {
            let (theirs, ours) = stream(kind)?;
            let source = Source::fd(&ours);
            Some(Feed { source, feeder: Some(write_behind(theirs, bytes.to_vec())) })
        }
    }
}

/// A sink of that kind with room for `capacity` bytes.
pub fn drain(kind: Kind, capacity: usize, block: Option<&File>) -> Option<Drain> {
    Some(match kind {
        Kind::File => {
            let file = tempfile::tempfile().unwrap();
            Drain { sink: Sink::file(&file, 0), rest: Rest::File(file) }
        }
        Kind::Block => Drain { sink: Sink::file(block?, 0), rest: Rest::File(block?.try_clone().unwrap()) },
        Kind::Memory => Drain { sink: Sink::memory(capacity), rest: Rest::Memory },
        Kind::Device => {
            let null = File::options().write(true).open("/dev/null").unwrap();
            Drain { sink: Sink::fd(&null), rest: Rest::Nothing }
        }
        _ => {
            let (ours, theirs) = stream(kind)?;
            Drain { sink: Sink::fd(&ours), rest: Rest::Stream(ours, read_behind(theirs)) }
        }
    })
}

impl Feed {
    /// The source, and who feeds it.
    pub fn split(self) -> (Source, Option<JoinHandle<()>>) {
        (self.source, self.feeder)
    }
}

impl Rest {
    /// The bytes that arrived, where that can be seen; `delivered` is the completion's count.
    pub fn received(self, delivered: u64, memory: Option<Vec<u8>>) -> Option<Vec<u8>> {
        match self {
            Rest::File(file) => Some(contents(&file, delivered as usize)),
            Rest::Stream(ours, reader) => {
                drop(ours);
                Some(reader.join().unwrap())
            }
            Rest::Memory => memory,
            Rest::Nothing => None,
        }
    }
}
