//! The D2D transfer protocol: an SSD that feeds a NIC by itself, paced, under credits, as UDP; and a NIC that
//! feeds an SSD. Both functions as state machines that do no I/O: they are handed register accesses, data,
//! blocks, frames and the time, and hand back what to do.
//!
//! The protocol is that of S. Larsen, B. Lee et al., "Direct Device-to-Device Transfer Protocol: A New Look
//! at the Benefits of a Decentralized I/O Model": section III, Tables I and II. The paper leaves much open,
//! and contradicts itself in places; docs/d2d.md has every layout, the state tables and the decisions, so
//! that somebody else could build the other end.
//!
//! # Architecture
//!
//! ```text
//!   driver: writes registers of both ends, then sleeps
//!      |                                                      |
//!   Ssd (BAR0: registers, tasks)                           Nic (BAR0: registers, templates; BAR2: aperture)
//!      tasks --> Read --> Tx queue                            aperture --> Rx queue --> UOE --> next_frame
//!                           |  sender: Tx FSM, pace              ^           |   receiver: Rx FSM
//!                           +------- Write data --------------->-+           |
//!                           <------- Write grant: credits that were taken ---+
//! ```
//!
//! The way back has the same two machines in the other functions: a NIC's sender is fed by received frames,
//! an SSD's receiver stores blocks.
//!
//! A function is polled: [`Ssd::poll`] and [`Nic::poll`] return one [`Action`] after the other until there is
//! none; then the owner waits for an event, or for `next_deadline`. Frames are pulled by [`Nic::next_frame`]
//! when the wire is free, so that legacy frames go first and timestamps are right. Streams take turns action
//! by action; a stream to which nothing has happened is not looked at.
//!
//! | module | what it holds |
//! |---|---|
//! | [`register`] | the registers of Table I and what had to be added, with their offsets |
//! | [`uoe`] | the registers of Table II: headers as a template |
//! | [`ssd`], [`nic`] | the two functions |
//! | [`driver`] | the driver's part, as values: what to write and read, in which order |
//! | `streams` | what both functions have in common: registers, runs, turns |
//! | `sender` | Tx FSM: credits, stall limit |
//! | `pace` | how many bytes are due |
//! | `receiver` | Rx FSM: gaps, overruns, grants |
//! | `wire`, `reassembly` | received frames: headers, fragments |
//! | `schedule` | turns and timers |
//!
//! Everything that another device or the network sent is checked before it is used. What cannot be ends the
//! stream by an [`Error`](register::Error) in its Status register, and no other stream.
//!
//! # What it doesn't implement
//!
//! TCP offload; IPv6; more than one tag; IP options in what is sent; contributing sources (CSRC); reordering
//! of received RTP packets (what is missing is counted); cryptography (an [`Operator`] is a hook); frame
//! check sequences and padding, which are the MAC's.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod bits;
mod checksum;
mod credit;
pub mod driver;
pub mod nic;
mod pace;
mod queue;
mod reassembly;
mod receiver;
pub mod register;
mod schedule;
mod sender;
pub mod ssd;
mod streams;
pub mod uoe;
mod wire;

pub use credit::CREDIT;
pub use nic::Nic;
pub use reassembly::Limits;
pub use ssd::Ssd;

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
    /// Read blocks of the medium, and call [`Ssd::read_done`].
    Read {
        /// By which to answer.
        token: Token,
        /// First block.
        lba: u64,
        /// Blocks.
        blocks: u32,
    },
    /// Write blocks of the medium, and call [`Ssd::store_done`].
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
