//! Whole messages, with their file descriptors, over a stream socket.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{self, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};

use crate::wire::{HEADER, Header, MAX_FDS, WireError};

/// A received message.
#[derive(Debug)]
pub struct Message {
    pub header: Header,
    pub body: Vec<u8>,
    /// File descriptors, at most [`MAX_FDS`]; further ones were closed.
    pub fds: Vec<OwnedFd>,
}

/// The reason why no more messages can be received.
#[derive(Debug, thiserror::Error)]
pub enum ReceiveError {
    #[error(transparent)]
    Wire(#[from] WireError),
    #[error("the connection broke: {0}")]
    Io(#[from] io::Error),
}

/// Waits for a message; returns `None` if the other side has hung up between two messages.
///
/// # Errors
///
/// If the connection breaks, or the stream can no longer be followed.
pub fn receive(socket: BorrowedFd<'_>) -> Result<Option<Message>, ReceiveError> {
    let mut fds = Vec::new();
    let mut head = [0; HEADER];
    match fill(socket, &mut head, &mut fds)? {
        0 => return Ok(None),
        HEADER => {}
        _ => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
    }
    let header = Header::parse(&head)?;
    let mut body = vec![0; header.body()];
    if fill(socket, &mut body, &mut fds)? < body.len() {
        return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
    }
    Ok(Some(Message { header, body, fds }))
}

/// Reads until the buffer is full or the stream ends; returns the number of bytes.
fn fill(socket: BorrowedFd<'_>, bytes: &mut [u8], fds: &mut Vec<OwnedFd>) -> io::Result<usize> {
    let mut filled = 0;
    while filled < bytes.len() {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut into = [IoSliceMut::new(&mut bytes[filled..])];
        let got = match net::recvmsg(socket, &mut into, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Ok(received) => received.bytes,
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        };
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                let room = MAX_FDS - fds.len();
                fds.extend(rights.take(room));
            }
        }
        if got == 0 {
            break;
        }
        filled += got;
    }
    Ok(filled)
}

/// Sends a message, with a file descriptor if there is one. The header leaves in one piece, which some clients require.
///
/// # Errors
///
/// If the connection breaks, or the other side takes nothing for the socket's time limit. The stream is unusable then.
pub fn send(socket: BorrowedFd<'_>, message: &[u8], fd: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let (mut sent, mut fd) = (0, fd);
    while sent < message.len() {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let rights = fd.map(|fd| [fd]);
        if let Some(rights) = &rights {
            ancillary.push(SendAncillaryMessage::ScmRights(rights));
        }
        match net::sendmsg(socket, &[IoSlice::new(&message[sent..])], &mut ancillary, SendFlags::NOSIGNAL) {
            Ok(count) => {
                sent += count;
                fd = None;
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::command;
    use std::io::Write;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_message_comes_with_its_own_descriptors() {
        let (here, there) = UnixStream::pair().unwrap();
        let message = |id| Header::request(id, command::RESET, 0, false).to_bytes();
        send(here.as_fd(), &message(1), None).unwrap();
        send(here.as_fd(), &message(2), Some(here.as_fd())).unwrap();
        send(here.as_fd(), &message(3), None).unwrap();
        drop(here);
        let fds: Vec<_> = std::iter::from_fn(|| receive(there.as_fd()).unwrap())
            .map(|m| (m.header.id, m.fds.len()))
            .collect();
        assert_eq!(fds, [(1, 0), (2, 1), (3, 0)]);
    }

    #[test]
    fn a_cut_message_is_an_error() {
        for length in [1, 15, 16, 20] {
            let (mut here, there) = UnixStream::pair().unwrap();
            let mut bytes = Header::request(1, command::RESET, 5, false).to_bytes().to_vec();
            bytes.extend([0; 5]);
            here.write_all(&bytes[..length]).unwrap();
            drop(here);
            assert!(matches!(receive(there.as_fd()), Err(ReceiveError::Io(_))), "{length}");
        }
    }
}
