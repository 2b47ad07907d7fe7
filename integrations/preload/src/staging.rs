//! A pipe for bytes that a call may have to wait for: a file's disk, or room in a socket.
//!
//! splice(2) holds the locks of its pipes while it waits. The engine's thread needs the locks of a stream's pipes, and
//! all other streams need the engine's thread. So bytes that may have to be waited for go through a pipe that only the
//! calling thread uses.

use crate::sys::{self, Errno};
use libc::c_int;
use std::os::fd::OwnedFd;

/// The pipe, and the number of bytes in it.
pub struct Staging {
    output: OwnedFd,
    input: OwnedFd,
    held: usize,
}

impl Staging {
    pub fn new(size: c_int) -> Result<Staging, Errno> {
        let (output, input) = sys::pipe(size)?;
        Ok(Staging {
            output: sys::move_to_high_number(output),
            input: sys::move_to_high_number(input),
            held: 0,
        })
    }

    /// Returns the number of bytes in it.
    pub fn held(&self) -> usize {
        self.held
    }

    /// Takes bytes of a file, from `offset` on. May wait for the disk.
    pub fn take_file(&mut self, file: c_int, offset: u64, count: usize) -> Result<usize, Errno> {
        let bytes = sys::splice_file(file, offset, &self.input, count)?;
        self.held += bytes;
        Ok(bytes)
    }

    /// Takes bytes from a pipe, without waiting.
    pub fn take_pipe(&mut self, pipe: &OwnedFd, count: usize) -> Result<usize, Errno> {
        let bytes = sys::splice_pipe(pipe, &self.input, count)?;
        self.held += bytes;
        Ok(bytes)
    }

    /// Moves its bytes to a pipe, as far as that has room. Returns the bytes moved.
    pub fn give_pipe(&mut self, pipe: &OwnedFd) -> usize {
        let mut given = 0;
        while self.held > 0 {
            match sys::splice_pipe(&self.output, pipe, self.held) {
                Ok(bytes @ 1..) => {
                    self.held -= bytes;
                    given += bytes;
                }
                Err(libc::EINTR) => {}
                _ => break,
            }
        }
        given
    }

    /// Moves bytes to a socket, and waits as the socket does.
    pub fn give_socket(&mut self, socket: c_int, count: usize) -> Result<usize, Errno> {
        let bytes = sys::deliver(&self.output, socket, count.min(self.held))?;
        self.held -= bytes;
        Ok(bytes)
    }
}
