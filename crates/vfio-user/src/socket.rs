//! Whole messages, with their file descriptors, over a stream socket.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{self, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};

use crate::wire::{HEADER, Header, MAX_FDS, WireError};

/// Bytes that are read at once at most, longer messages apart.
const AHEAD: usize = 4096;

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

/// Reads messages from a stream, all bytes that are there at once: several short messages, such as doorbells, take one call of the kernel.
#[derive(Debug)]
pub struct Reader {
    bytes: Box<[u8; AHEAD]>,
    /// The bytes that were read, and belong to no message yet.
    unread: Range<usize>,
    /// Descriptors for coming messages, each with the end of the bytes that came with it. The kernel ends a read behind bytes that were
    /// sent with descriptors, so they belong to the message in which that end lies.
    fds: Vec<(usize, OwnedFd)>,
}

impl Reader {
    /// Makes a reader of a stream.
    pub fn new() -> Reader {
        Reader { bytes: Box::new([0; AHEAD]), unread: 0..0, fds: Vec::new() }
    }

    /// Waits for a message; returns `None` if the other side has hung up between two messages.
    ///
    /// # Errors
    ///
    /// If the connection breaks, or the stream can no longer be followed.
    pub fn receive(&mut self, socket: BorrowedFd<'_>) -> Result<Option<Message>, ReceiveError> {
        while self.unread.len() < HEADER {
            if self.read(socket)? == 0 {
                let is_cut = !self.unread.is_empty();
                let cut = || Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
                return if is_cut { cut() } else { Ok(None) };
            }
        }
        let mut head = [0; HEADER];
        self.take(&mut head);
        let header = Header::parse(&head)?;
        let mut body = vec![0; header.body()];
        let there = self.take(&mut body);
        let end = self.unread.start;
        let mut fds: Vec<OwnedFd> = self.fds.extract_if(.., |(at, _)| *at <= end).map(|(_, fd)| fd).collect();
        fds.truncate(MAX_FDS);
        // The rest, which may be long, goes where it belongs.
        let rest = &mut body[there..];
        let mut filled = 0;
        while filled < rest.len() {
            match receive_some(socket, &mut rest[filled..], |fd| {
                if fds.len() < MAX_FDS {
                    fds.push(fd);
                }
            })? {
                0 => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                got => filled += got,
            }
        }
        Ok(Some(Message { header, body, fds }))
    }

    /// Reads what is there, at least a byte; returns the number of bytes, 0 at the end of the stream.
    fn read(&mut self, socket: BorrowedFd<'_>) -> io::Result<usize> {
        let start = self.unread.start;
        self.bytes.copy_within(self.unread.clone(), 0);
        self.fds.iter_mut().for_each(|(end, _)| *end -= start);
        self.unread = 0..self.unread.len();
        let mut came = Vec::new();
        let got = receive_some(socket, &mut self.bytes[self.unread.end..], |fd| came.push(fd))?;
        self.unread.end += got;
        let room = (2 * MAX_FDS).saturating_sub(self.fds.len());
        self.fds.extend(came.into_iter().take(room).map(|fd| (self.unread.end, fd)));
        Ok(got)
    }

    /// Takes bytes that were read, as many as there are; returns their number.
    fn take(&mut self, to: &mut [u8]) -> usize {
        let count = to.len().min(self.unread.len());
        let from = self.unread.start;
        to[..count].copy_from_slice(&self.bytes[from..from + count]);
        self.unread.start += count;
        count
    }
}

/// Waits for bytes, and returns the number of those that fit; 0 at the end of the stream.
fn receive_some(
    socket: BorrowedFd<'_>,
    bytes: &mut [u8],
    mut take: impl FnMut(OwnedFd),
) -> io::Result<usize> {
    loop {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut into = [IoSliceMut::new(bytes)];
        let got = match net::recvmsg(socket, &mut into, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Ok(received) => received.bytes,
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        };
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                rights.for_each(&mut take);
            }
        }
        return Ok(got);
    }
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

    /// Receives messages until the end of the stream: the number, the body's length and the number of descriptors of each.
    fn all(socket: &UnixStream) -> Vec<(u16, usize, usize)> {
        let mut reader = Reader::new();
        let messages = std::iter::from_fn(|| reader.receive(socket.as_fd()).unwrap());
        messages.map(|message| (message.header.id, message.body.len(), message.fds.len())).collect()
    }

    #[test]
    fn a_message_comes_with_its_own_descriptors() {
        let (here, there) = UnixStream::pair().unwrap();
        let message = |id| Header::request(id, command::RESET, 0, false).to_bytes();
        let send = |id, fd| send(here.as_fd(), &message(id), fd).unwrap();
        (1..4).for_each(|id| send(id, None));
        send(4, Some(here.as_fd()));
        send(5, Some(here.as_fd()));
        send(6, None);
        drop(here);
        assert_eq!(all(&there), [(1, 0, 0), (2, 0, 0), (3, 0, 0), (4, 0, 1), (5, 0, 1), (6, 0, 0)]);
    }

    #[test]
    fn messages_are_the_same_however_they_are_cut() {
        let lengths = [0, 24, 4096 - 16, 9, 100_000, 24, 24, 4096, 0];
        let message = |(id, length)| {
            let header = Header::request(id, command::REGION_WRITE, length, true).to_bytes();
            [header.to_vec(), vec![id as u8; length]].concat()
        };
        let stream: Vec<u8> = (0u16..).zip(lengths).flat_map(message).collect();
        for piece in [1, 15, 17, 4096, 5000, stream.len()] {
            let (mut here, there) = UnixStream::pair().unwrap();
            let stream = stream.clone();
            let sender = std::thread::spawn(move || {
                stream.chunks(piece).for_each(|part| here.write_all(part).unwrap())
            });
            let mut reader = Reader::new();
            for (id, length) in (0u16..).zip(lengths) {
                let message = reader.receive(there.as_fd()).unwrap().unwrap();
                assert_eq!(message.header.id, id);
                assert!(message.body == vec![id as u8; length], "message {id}, pieces of {piece}");
            }
            assert!(reader.receive(there.as_fd()).unwrap().is_none());
            sender.join().unwrap();
        }
    }

    /// Descriptors that come with each byte of a message are its own, as far as it may have any; the next one gets none of them.
    #[test]
    fn descriptors_that_come_in_the_middle_are_bounded() {
        let (here, there) = UnixStream::pair().unwrap();
        let header = Header::request(1, command::RESET, 24, false).to_bytes();
        let stream = [header.to_vec(), vec![0; 24]].concat();
        stream.iter().for_each(|byte| send(here.as_fd(), &[*byte], Some(here.as_fd())).unwrap());
        send(here.as_fd(), &Header::request(2, command::RESET, 0, false).to_bytes(), None).unwrap();
        drop(here);
        assert_eq!(all(&there), [(1, 24, MAX_FDS), (2, 0, 0)]);
    }

    #[test]
    fn a_cut_message_is_an_error() {
        for length in [1, 15, 16, 20] {
            let (mut here, there) = UnixStream::pair().unwrap();
            let mut bytes = Header::request(1, command::RESET, 5, false).to_bytes().to_vec();
            bytes.extend([0; 5]);
            here.write_all(&bytes[..length]).unwrap();
            drop(here);
            assert!(matches!(Reader::new().receive(there.as_fd()), Err(ReceiveError::Io(_))), "{length}");
        }
    }
}
