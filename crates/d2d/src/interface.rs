//! What a function and its owner say to each other.

use alloc::vec::Vec;

/// A time, or a span of it, in nanoseconds.
pub type Nanos = u64;

/// The run of a stream to which a write belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The stream.
    pub stream: u16,
    /// Its run.
    pub run: u32,
}

/// An operation on the medium, by which its owner tells how it went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Token(pub(crate) u64);

/// Something that the owner of a function is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Read blocks of the medium, and call [`Ssd::read_done`](crate::Ssd::read_done).
    Read {
        /// By which to answer.
        token: Token,
        /// First block.
        lba: u64,
        /// Blocks.
        blocks: u32,
    },
    /// Write blocks of the medium, and call [`Ssd::store_done`](crate::Ssd::store_done).
    Store {
        /// By which to answer.
        token: Token,
        /// First block.
        lba: u64,
        /// Whole blocks.
        data: Vec<u8>,
    },
    /// Write to another function: data or a grant. Posted: there is an answer only where it cannot be
    /// delivered, `write_failed`.
    Write {
        /// By which to say that it failed.
        origin: Origin,
        /// Where, in the address space of the function.
        address: u64,
        /// At most the largest payload of a write.
        data: Vec<u8>,
    },
    /// Raise the interrupt of a stream.
    Interrupt {
        /// The stream.
        stream: u16,
    },
    /// Hand a received frame to the legacy function after all.
    Legacy {
        /// The frame as it came.
        frame: Vec<u8>,
    },
}

/// Something that is done to a stream's bytes on the way, in order, once each: a digest, a cipher. The paper
/// has none.
pub trait Operator {
    /// A run begins.
    fn start(&mut self);
    /// The next bytes to be written to the receiver, which it may change.
    fn update(&mut self, bytes: &mut [u8]);
}

/// A function cannot be made as its configuration says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The number of streams.
    #[error(
        "at least one stream, with room for a task in an SSD, and registers and tasks of all within 4 GiB"
    )]
    Streams,
    /// The Rx queue.
    #[error("a window of 2 to 1,048,576 credits")]
    Window,
    /// Places for runs.
    #[error("places that are a power of two, at most 128")]
    Places,
    /// Writes.
    #[error("a largest payload that is a power of two, 64 to 4,096 bytes")]
    Payload,
    /// Blocks.
    #[error(
        "blocks of 512 to 4,096 bytes, and transfers of whole ones, which fit the read-ahead and the window"
    )]
    Blocks,
    /// The network.
    #[error("an MTU of at least 68 bytes")]
    Mtu,
}
