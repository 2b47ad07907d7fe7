//! Types that pass between a function and its owner.

use alloc::vec::Vec;

/// A time, or a span of it, in nanoseconds.
pub type Nanos = u64;

/// Identifies the run of a stream to which a write belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Number of the stream.
    pub stream: u16,
    /// Number of its run.
    pub run: u32,
}

/// Identifies an operation on the medium, to report its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Token(pub(crate) u64);

/// An action for the owner of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Read blocks of the medium, and call [`Ssd::read_done`](crate::Ssd::read_done).
    Read {
        /// Identifies the operation in the answer.
        token: Token,
        /// Number of the first block.
        lba: u64,
        /// Number of blocks.
        blocks: u32,
    },
    /// Write blocks of the medium, and call [`Ssd::store_done`](crate::Ssd::store_done).
    Store {
        /// Identifies the operation in the answer.
        token: Token,
        /// Number of the first block.
        lba: u64,
        /// Contents of whole blocks.
        data: Vec<u8>,
    },
    /// Write data or a grant to another function. The write is posted: call `write_failed` only if it cannot be delivered.
    Write {
        /// Identifies the run if the write fails.
        origin: Origin,
        /// Address, in the function's address space.
        address: u64,
        /// Bytes to write, at most the largest payload.
        data: Vec<u8>,
    },
    /// Raise the interrupt of a stream.
    Interrupt {
        /// Number of the stream.
        stream: u16,
    },
    /// Hand a received frame to the legacy function after all.
    Legacy {
        /// Frame as it was received.
        frame: Vec<u8>,
    },
}

/// A digest or a cipher that each byte of a stream passes once, in order. (Not in the paper.)
pub trait Operator {
    /// Begins a run.
    fn start(&mut self);
    /// Processes the next bytes before they are written to the receiver. It may change them.
    fn update(&mut self, bytes: &mut [u8]);
}

/// A configuration is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// Number of streams.
    #[error(
        "at least one stream, with room for a task in an SSD, and registers and tasks of all within 4 GiB"
    )]
    Streams,
    /// Size of the Rx queue.
    #[error("a window of 2 to 1,048,576 credits")]
    Window,
    /// Number of places.
    #[error("places that are a power of two, at most 128")]
    Places,
    /// Size of writes.
    #[error("a largest payload that is a power of two, 64 to 4,096 bytes")]
    Payload,
    /// Sizes of blocks and transfers.
    #[error(
        "blocks of 512 to 4,096 bytes, and transfers of whole ones, which fit the read-ahead and the window"
    )]
    Blocks,
    /// Largest packet of the network.
    #[error("an MTU of at least 68 bytes")]
    Mtu,
}
