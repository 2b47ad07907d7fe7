//! The guest as its controller reaches it.

use std::any::Any;
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use dcs_vfio::Mapping;

/// The direction in which data go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Into the guest's memory: a read.
    ToGuest,
    /// Out of the guest's memory: a write.
    FromGuest,
}

/// The guest has no memory at this address, or does not allow access to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the guest has no memory at this address, or does not allow this access")]
pub struct HostError;

/// A guest as its controller reaches it: memory by bus address, and interrupts.
pub trait HostPort {
    /// Copies from the guest's memory, all or nothing. Aligned reads of 4 and 8 bytes are atomic.
    ///
    /// # Errors
    ///
    /// Fails if any byte cannot be reached.
    fn read(&mut self, address: u64, bytes: &mut [u8]) -> Result<(), HostError>;

    /// Copies into the guest's memory, all or nothing. A call writes the last bytes last, so that an entry is
    /// complete once its last word marks it as new.
    ///
    /// # Errors
    ///
    /// Fails if any byte cannot be reached.
    fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), HostError>;

    /// Returns the same memory for the kernel to read or write without a copy; `None` if it is not in one
    /// mapping, or not accessible in this direction: then it is copied.
    fn direct(&mut self, address: u64, length: u64, direction: Direction) -> Option<Piece>;

    /// Returns the nanoseconds of a monotonic clock: one clock for all guests of a process.
    fn uptime(&mut self) -> u64;

    /// Raises an interrupt. Ignored if the guest has not set up the vector.
    fn interrupt(&mut self, vector: u16);
}

/// Memory of a guest that is lent to the kernel. The mapping lives as long as the piece.
#[derive(Clone)]
pub struct Piece {
    memory: Arc<Mapping>,
    offset: u64,
    length: usize,
    /// Held by the owner of the memory, to know how long the kernel may use it.
    _hold: Option<Arc<dyn Any + Send + Sync>>,
}

impl fmt::Debug for Piece {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Piece({:#x}+{:#x})", self.offset, self.length)
    }
}

impl Piece {
    /// Returns a piece of a mapping; `None` if the mapping is shorter.
    pub fn new(memory: Arc<Mapping>, offset: u64, length: u64) -> Option<Piece> {
        let fits = offset.checked_add(length).is_some_and(|end| end <= memory.length());
        let length = usize::try_from(length).ok().filter(|_| fits)?;
        Some(Piece { memory, offset, length, _hold: None })
    }

    /// The same; `hold` is dropped with the piece.
    #[must_use]
    pub fn held(self, hold: Arc<dyn Any + Send + Sync>) -> Piece {
        Piece { _hold: Some(hold), ..self }
    }

    /// Returns its length in bytes.
    pub fn length(&self) -> usize {
        self.length
    }

    /// Returns its address in this process: for the kernel, which may use it as long as the piece lives.
    pub(crate) fn pointer(&self) -> NonNull<u8> {
        self.memory.pointer(self.offset, self.length)
    }

    /// Returns true if it begins at a multiple of `start`, and its length is a multiple of `length`.
    pub(crate) fn is_aligned(&self, (start, length): (usize, usize)) -> bool {
        (self.pointer().as_ptr() as usize).is_multiple_of(start) && self.length.is_multiple_of(length)
    }

    /// Copies from it.
    pub fn load(&self, bytes: &mut [u8]) {
        self.memory.load(self.offset, &mut bytes[..self.length]);
    }

    /// Copies from it, from byte `at` on.
    ///
    /// # Panics
    ///
    /// Panics beyond its end, as [`Piece::store_at`] does.
    pub fn load_at(&self, at: usize, bytes: &mut [u8]) {
        assert!(at.checked_add(bytes.len()).is_some_and(|end| end <= self.length));
        self.memory.load(self.offset + at as u64, bytes);
    }

    /// Copies into it, from byte `at` on.
    pub fn store_at(&self, at: usize, bytes: &[u8]) {
        assert!(at.checked_add(bytes.len()).is_some_and(|end| end <= self.length));
        self.memory.store(self.offset + at as u64, bytes);
    }

    /// Copies into it.
    pub fn store(&self, bytes: &[u8]) {
        self.memory.store(self.offset, &bytes[..self.length]);
    }
}
