//! The outer end of a NIC's cable: Ethernet frames, one at a time.

use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::error::{self, Error};
use crate::machine::Network;

/// Longest frame: a segmented one of 64 KiB, with its headers.
const FRAME_MAX: usize = 80 << 10;

/// A socket for the end of a NIC's cable.
#[derive(Debug)]
pub struct Socket {
    listener: UnixListener,
    path: PathBuf,
}

/// A cable with a NIC at its other end.
#[derive(Debug)]
pub struct Wire {
    stream: UnixStream,
    /// Bytes received of an incomplete frame.
    partial: Vec<u8>,
}

impl Socket {
    /// Makes a socket at a path that does not exist yet.
    ///
    /// # Errors
    ///
    /// The errors of bind(2).
    pub fn new(path: &Path) -> Result<Socket, Error> {
        let listener = UnixListener::bind(path).map_err(error::at(path))?;
        Ok(Socket { listener, path: path.to_owned() })
    }

    /// Returns the network to connect a NIC to.
    pub fn network(&self) -> Network {
        Network::Stream(self.path.clone())
    }

    /// Waits until the server is powered on.
    ///
    /// # Errors
    ///
    /// If it is not powered on in time.
    pub fn plug(&self, limit: Duration) -> Result<Wire, Error> {
        let end = Instant::now() + limit;
        self.listener.set_nonblocking(true).map_err(error::at(&self.path))?;
        loop {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    stream.set_nonblocking(false).map_err(error::at(&self.path))?;
                    return Ok(Wire { stream, partial: Vec::new() });
                }
                Err(reason) if reason.kind() == io::ErrorKind::WouldBlock && Instant::now() < end => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                Err(reason) => return Err(error::at(&self.path)(reason)),
            }
        }
    }
}

impl Wire {
    /// Returns another handle of the same end, for sending while this one receives. It cannot receive.
    ///
    /// # Errors
    ///
    /// If there are no more file descriptors.
    pub fn sender(&self) -> Result<Wire, Error> {
        let stream = self.stream.try_clone().map_err(error::io("the cable"))?;
        Ok(Wire { stream, partial: Vec::new() })
    }

    /// Sends a frame, from its destination address on, without checksum.
    ///
    /// # Errors
    ///
    /// If the server is off.
    pub fn send(&mut self, frame: &[u8]) -> Result<(), Error> {
        let mut message = (frame.len() as u32).to_be_bytes().to_vec();
        message.extend(frame);
        self.stream.write_all(&message).map_err(error::io("the cable"))
    }

    /// Returns the next frame; `None` if none arrives within `limit`.
    ///
    /// # Errors
    ///
    /// If the server is off, or sends something that is not a frame.
    pub fn receive(&mut self, limit: Duration) -> Result<Option<Vec<u8>>, Error> {
        let end = Instant::now() + limit;
        loop {
            if let Some(frame) = self.take()? {
                return Ok(Some(frame));
            }
            // A time limit of 0 would mean none.
            let left = end.saturating_duration_since(Instant::now()).max(Duration::from_micros(1));
            self.stream.set_read_timeout(Some(left)).map_err(error::io("the cable"))?;
            let mut bytes = [0; 16 << 10];
            match self.stream.read(&mut bytes) {
                Ok(0) => return Err(error::io("the cable")(io::ErrorKind::UnexpectedEof.into())),
                Ok(count) => self.partial.extend(&bytes[..count]),
                Err(reason) if reason.kind() == io::ErrorKind::Interrupted => {}
                Err(reason)
                    if matches!(reason.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) =>
                {
                    if Instant::now() >= end {
                        return Ok(None);
                    }
                }
                Err(reason) => return Err(error::io("the cable")(reason)),
            }
        }
    }

    fn take(&mut self) -> Result<Option<Vec<u8>>, Error> {
        let Some((length, rest)) = self.partial.split_first_chunk::<4>() else { return Ok(None) };
        let length = u32::from_be_bytes(*length) as usize;
        if length > FRAME_MAX {
            return Err(error::io("the cable")(io::ErrorKind::InvalidData.into()));
        }
        if rest.len() < length {
            return Ok(None);
        }
        let frame = rest[..length].to_vec();
        self.partial.drain(..4 + length);
        Ok(Some(frame))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_cut_out_of_the_stream() {
        let (mut other, stream) = UnixStream::pair().unwrap();
        let mut wire = Wire { stream, partial: Vec::new() };
        other.write_all(&[0, 0, 0, 2, 1, 2, 0, 0, 0, 1]).unwrap();
        assert_eq!(wire.receive(Duration::ZERO).unwrap(), Some(vec![1, 2]));
        assert_eq!(wire.receive(Duration::from_millis(5)).unwrap(), None);
        other.write_all(&[3]).unwrap();
        assert_eq!(wire.receive(Duration::ZERO).unwrap(), Some(vec![3]));
        wire.sender().unwrap().send(&[9, 9]).unwrap();
        let mut sent = [0; 6];
        other.read_exact(&mut sent).unwrap();
        assert_eq!(sent, [0, 0, 0, 2, 9, 9]);
        other.write_all(&[1, 0, 0, 0]).unwrap();
        assert!(wire.receive(Duration::from_secs(1)).is_err());
        drop(other);
        assert!(wire.receive(Duration::from_secs(1)).is_err());
    }
}
