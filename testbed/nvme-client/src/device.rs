//! A vfio-user client: one function of another process, reached by messages, and shared memory.

use std::io::{self, IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use dcs_vfio_user::memory::Memory;
use dcs_vfio_user::wire::{HEADER, Header, command};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

/// Bus address of the shared memory.
const BASE: u64 = 0x1_0000_0000;
/// Bytes of a page.
pub(crate) const PAGE: u64 = 4096;
/// Regions: BAR0, and the configuration space. [linux/vfio.h]
const BAR0: u32 = 0;
const CONFIG: u32 = 7;
/// MSI-X. [linux/vfio.h]
const MSIX: u32 = 2;
/// Command register: memory space and bus mastering. [PCI 6.2.2]
const COMMAND: u64 = 4;
const MEMORY_AND_MASTER: u16 = 6;
/// Time after which an answer counts as missing.
const LIMIT: Duration = Duration::from_secs(60);

/// Errors of driving a drive.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The connection broke, or could not be made.
    #[error("the drive's socket: {0}")]
    Io(#[from] io::Error),
    /// The process refused a message.
    #[error("the drive refused message {command} (errno {errno})")]
    Refused {
        /// Number of the message.
        command: u16,
        /// Reason of the refusal.
        errno: u32,
    },
    /// An answer that does not match its request.
    #[error("the drive's process broke the protocol")]
    Protocol,
    /// The shared memory is too small for this many bytes.
    #[error("the shared memory is too small: {0} more bytes are wanted")]
    Memory(u64),
    /// The controller did not become ready, or failed.
    #[error("the controller does not become ready (CSTS {0:#x})")]
    NotReady(u32),
    /// A command ended with an error.
    #[error("command {opcode:#x} ended with status {status:#x}")]
    Failed {
        /// Opcode of the command.
        opcode: u8,
        /// Status code and type.
        status: u16,
    },
    /// Data differ from those that were written.
    #[error("wrong bytes at block {0}")]
    Wrong(u64),
    /// A command got no answer.
    #[error("no answer after {} s", LIMIT.as_secs())]
    Silent,
}

impl From<rustix::io::Errno> for Error {
    fn from(error: rustix::io::Errno) -> Error {
        Error::Io(error.into())
    }
}

/// A function, and memory that it shares with us.
#[derive(Debug)]
pub struct Device {
    socket: UnixStream,
    next: u16,
    memory: Memory,
    /// Bytes of it in use.
    taken: u64,
    interrupts: Vec<OwnedFd>,
}

impl Device {
    /// Connects to the function at this socket, and shares `memory` bytes with it.
    ///
    /// # Errors
    ///
    /// If no process serves there, or it refuses.
    pub fn connect(path: &Path, memory: u64) -> Result<Device, Error> {
        let socket = UnixStream::connect(path)?;
        socket.set_read_timeout(Some(LIMIT))?;
        let length = memory.next_multiple_of(PAGE);
        let (memory, file) = Memory::create("guest", length)?;
        let mut device = Device { socket, next: 0, memory, taken: 0, interrupts: Vec::new() };
        device.ask(command::VERSION, &[0, 0, 1, 0], None)?;
        device.store(CONFIG, COMMAND, &MEMORY_AND_MASTER.to_le_bytes(), false)?;
        // Readable and writable.
        let map = [words(&[32, 3]), wide(&[0, BASE, length])].concat();
        device.ask(command::DMA_MAP, &map, Some(file.as_fd()))?;
        Ok(device)
    }

    /// Connects the function's first `count` vectors to eventfds.
    ///
    /// # Errors
    ///
    /// The errors of eventfd(2), or a refusal by the process.
    pub fn listen(&mut self, count: u16) -> Result<(), Error> {
        for vector in 0..count {
            let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
            // Data are eventfds, the action is a trigger.
            let set = words(&[20, 4 | 32, MSIX, vector.into(), 1]);
            self.ask(command::SET_IRQS, &set, Some(event.as_fd()))?;
            self.interrupts.push(event);
        }
        Ok(())
    }

    /// Waits for an interrupt, at most for `limit`. Returns true if there was one.
    ///
    /// # Errors
    ///
    /// The errors of poll(2).
    pub fn wait(&self, vector: u16, limit: Duration) -> Result<bool, Error> {
        let event = &self.interrupts[usize::from(vector)];
        let limit = Timespec::try_from(limit).ok();
        poll(&mut [PollFd::new(event, PollFlags::IN)], limit.as_ref())?;
        Ok(rustix::io::read(event, &mut [0; 8]).is_ok())
    }

    /// Resets the function.
    ///
    /// # Errors
    ///
    /// If the process refuses, or is gone.
    pub fn reset(&mut self) -> Result<(), Error> {
        self.ask(command::RESET, &[], None)?;
        self.store(CONFIG, COMMAND, &MEMORY_AND_MASTER.to_le_bytes(), false)
    }

    /// Allocates shared memory, and returns its offset.
    ///
    /// # Errors
    ///
    /// [`Error::Memory`].
    pub fn take(&mut self, bytes: u64) -> Result<u64, Error> {
        let (start, bytes) = (self.taken, bytes.next_multiple_of(PAGE));
        if start + bytes > self.memory.length() {
            return Err(Error::Memory(start + bytes - self.memory.length()));
        }
        self.taken += bytes;
        Ok(start)
    }

    /// Returns the shared memory.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Returns the bus address of an offset in the shared memory.
    pub fn address(offset: u64) -> u64 {
        BASE + offset
    }

    /// Loads a register of BAR0 of `N` bytes.
    ///
    /// # Errors
    ///
    /// If the process refuses, or is gone.
    pub fn load<const N: usize>(&mut self, offset: u64) -> Result<[u8; N], Error> {
        let body = [wide(&[offset]), words(&[BAR0, N as u32])].concat();
        let answer = self.ask(command::REGION_READ, &body, None)?;
        answer.get(16..).and_then(|bytes| bytes.try_into().ok()).ok_or(Error::Protocol)
    }

    /// Stores to a register of BAR0, and waits for the acknowledgement.
    ///
    /// # Errors
    ///
    /// If the process refuses, or is gone.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        self.store(BAR0, offset, bytes, false)
    }

    /// Stores to registers of 4 bytes without waiting: doorbells. Several are one message, as QEMU sends them.
    ///
    /// # Errors
    ///
    /// If the process is gone.
    ///
    /// # Panics
    ///
    /// If there are more than two.
    pub fn post(&mut self, stores: &[(u64, u32)]) -> Result<(), Error> {
        match stores {
            [] => Ok(()),
            [(offset, value)] => self.store(BAR0, *offset, &value.to_le_bytes(), true),
            _ => {
                let mut body = [0; 8 + 2 * 24];
                body[0] = stores.len() as u8;
                for (one, (offset, value)) in body[8..].chunks_exact_mut(24).zip(stores) {
                    one[..8].copy_from_slice(&offset.to_le_bytes());
                    one[8..12].copy_from_slice(&BAR0.to_le_bytes());
                    one[12..16].copy_from_slice(&4u32.to_le_bytes());
                    one[16..20].copy_from_slice(&value.to_le_bytes());
                }
                self.send(command::REGION_WRITE_MULTI, &body[..8 + stores.len() * 24], None, true)
            }
        }
    }

    fn store(&mut self, region: u32, offset: u64, bytes: &[u8], posted: bool) -> Result<(), Error> {
        let mut body = [0; 24];
        body[..8].copy_from_slice(&offset.to_le_bytes());
        body[8..12].copy_from_slice(&region.to_le_bytes());
        body[12..16].copy_from_slice(&(bytes.len() as u32).to_le_bytes());
        body[16..16 + bytes.len()].copy_from_slice(bytes);
        let body = &body[..16 + bytes.len()];
        match posted {
            true => self.send(command::REGION_WRITE, body, None, true),
            false => self.ask(command::REGION_WRITE, body, None).map(|_| ()),
        }
    }

    fn send(
        &mut self,
        command: u16,
        body: &[u8],
        fd: Option<BorrowedFd<'_>>,
        posted: bool,
    ) -> Result<(), Error> {
        self.next = self.next.wrapping_add(1);
        let mut message = [0; HEADER + 64];
        message[..HEADER]
            .copy_from_slice(&Header::request(self.next, command, body.len(), posted).to_bytes());
        message[HEADER..HEADER + body.len()].copy_from_slice(body);
        let message = &message[..HEADER + body.len()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let rights = fd.map(|fd| [fd]);
        if let Some(rights) = &rights {
            ancillary.push(SendAncillaryMessage::ScmRights(rights));
        }
        // The socket takes a message this short as a whole, and waits until there is room.
        let sent = sendmsg(&self.socket, &[IoSlice::new(message)], &mut ancillary, SendFlags::NOSIGNAL)?;
        if sent == message.len() { Ok(()) } else { Err(Error::Protocol) }
    }

    /// Sends a message, and waits for its answer.
    fn ask(&mut self, command: u16, body: &[u8], fd: Option<BorrowedFd<'_>>) -> Result<Vec<u8>, Error> {
        self.send(command, body, fd, false)?;
        let mut head = [0; HEADER];
        self.socket.read_exact(&mut head)?;
        let header = Header::parse(&head).map_err(|_| Error::Protocol)?;
        let mut answer = vec![0; header.body()];
        self.socket.read_exact(&mut answer)?;
        match header.failure() {
            _ if !header.is_reply() || header.id != self.next => Err(Error::Protocol),
            Some(errno) => Err(Error::Refused { command, errno }),
            None => Ok(answer),
        }
    }
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn wide(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}
