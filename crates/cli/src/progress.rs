//! Progress of a transfer, read from the device that takes or gives the bytes, without asking the engine.

use crate::address::Connection;
use std::fs::File;
use std::net::TcpStream;
use std::os::fd::AsRawFd;

/// Device to watch.
pub enum Watch {
    /// A growing file.
    Growing(File),
    /// Bytes that the peer has acknowledged.
    Sent(TcpStream),
    /// Bytes that the peer has sent.
    Received(TcpStream),
    /// Nothing that can be watched: a pipe, a Unix socket.
    Nothing,
}

impl Watch {
    pub fn sent(connection: &Connection) -> Watch {
        tcp(connection).map_or(Watch::Nothing, Watch::Sent)
    }

    pub fn received(connection: &Connection) -> Watch {
        tcp(connection).map_or(Watch::Nothing, Watch::Received)
    }

    /// Returns the bytes so far, if they can be seen.
    pub fn bytes(&self) -> Option<u64> {
        match self {
            Watch::Growing(file) => file.metadata().ok().map(|metadata| metadata.len()),
            Watch::Sent(stream) => tcp_counter(stream, BYTES_ACKED),
            Watch::Received(stream) => tcp_counter(stream, BYTES_RECEIVED),
            Watch::Nothing => None,
        }
    }
}

fn tcp(connection: &Connection) -> Option<TcpStream> {
    match connection {
        Connection::Tcp(stream) => stream.try_clone().ok(),
        Connection::Unix(_) => None,
    }
}

/// Offset in struct tcp_info (linux/tcp.h since 4.1), which only ever grows at its end.
const BYTES_ACKED: usize = 120;
const BYTES_RECEIVED: usize = 128;

/// Reads one counter of TCP_INFO.
#[allow(unsafe_code)]
fn tcp_counter(stream: &TcpStream, offset: usize) -> Option<u64> {
    use nix::libc;
    let mut info = [0u8; 136];
    let mut length = info.len() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes to `info`, which is that long, and the length that it
    // wrote to `length`; the descriptor is open while `stream` is borrowed.
    let result = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &mut length,
        )
    };
    let field = info[..length as usize].get(offset..offset + 8)?;
    (result == 0).then(|| field.try_into().ok().map(u64::from_ne_bytes))?
}
