//! The guest, as its controller reaches it.

use std::any::Any;
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use dcs_vfio::Mapping;

/// Which way data go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Into the guest's memory: a read.
    ToGuest,
    /// Out of it: a write.
    FromGuest,
}

/// The guest's memory is not there, or may not be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no memory of the guest at this address, or it may not be reached")]
pub struct HostError;

/// All of a guest that its controller reaches: memory by bus address, and interrupts.
pub trait HostPort {
    /// Copies from the guest's memory: all or nothing. Reads of 4 and 8 bytes that are aligned are not torn.
    ///
    /// # Errors
    ///
    /// Where any byte may not be reached.
    fn read(&mut self, address: u64, bytes: &mut [u8]) -> Result<(), HostError>;

    /// Copies into the guest's memory: all or nothing. Within one call the last bytes are written last, so
    /// that an entry whose end says that it is new is whole by then.
    ///
    /// # Errors
    ///
    /// Where any byte may not be reached.
    fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), HostError>;

    /// The same memory for the kernel, which reads or writes it without a copy. Nothing where it is not in
    /// one mapping, or not to be reached in this direction: then it is copied.
    fn direct(&mut self, address: u64, length: u64, direction: Direction) -> Option<Piece>;

    /// Nanoseconds of a clock that goes on evenly, wherever it began: one clock for all guests of a process.
    fn uptime(&mut self) -> u64;

    /// Raises an interrupt. Ignored where the guest has not set the vector up.
    fn interrupt(&mut self, vector: u16);
}

/// Memory of a guest that is lent to the kernel. The mapping is kept as long as the piece is.
#[derive(Clone)]
pub struct Piece {
    memory: Arc<Mapping>,
    offset: u64,
    length: usize,
    /// Somebody's who wants to know how long the kernel may have the memory.
    _hold: Option<Arc<dyn Any + Send + Sync>>,
}

impl fmt::Debug for Piece {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Piece({:#x}+{:#x})", self.offset, self.length)
    }
}

impl Piece {
    /// A piece of a mapping; nothing where that is shorter.
    pub fn new(memory: Arc<Mapping>, offset: u64, length: u64) -> Option<Piece> {
        let fits = offset.checked_add(length).is_some_and(|end| end <= memory.length());
        let length = usize::try_from(length).ok().filter(|_| fits)?;
        Some(Piece { memory, offset, length, _hold: None })
    }

    /// The same; `hold` is dropped with it.
    #[must_use]
    pub fn held(self, hold: Arc<dyn Any + Send + Sync>) -> Piece {
        Piece { _hold: Some(hold), ..self }
    }

    /// In bytes.
    pub fn length(&self) -> usize {
        self.length
    }

    /// Where it is in this process: for the kernel, which may have it as long as the piece is kept.
    pub(crate) fn pointer(&self) -> NonNull<u8> {
        self.memory.pointer(self.offset, self.length)
    }

    /// True if it begins at a multiple of `start`, and its length is one of `length`.
    pub(crate) fn is_aligned(&self, (start, length): (usize, usize)) -> bool {
        (self.pointer().as_ptr() as usize).is_multiple_of(start) && self.length.is_multiple_of(length)
    }

    /// Copies from it.
    pub fn load(&self, bytes: &mut [u8]) {
        self.memory.load(self.offset, &mut bytes[..self.length]);
    }

    /// Copies from its byte `at` on.
    ///
    /// # Panics
    ///
    /// Beyond its end, as [`Piece::store_at`].
    pub fn load_at(&self, at: usize, bytes: &mut [u8]) {
        assert!(at.checked_add(bytes.len()).is_some_and(|end| end <= self.length));
        self.memory.load(self.offset + at as u64, bytes);
    }

    /// Copies into it, from its byte `at` on.
    pub fn store_at(&self, at: usize, bytes: &[u8]) {
        assert!(at.checked_add(bytes.len()).is_some_and(|end| end <= self.length));
        self.memory.store(self.offset + at as u64, bytes);
    }

    /// Copies into it.
    pub fn store(&self, bytes: &[u8]) {
        self.memory.store(self.offset, &bytes[..self.length]);
    }
}
