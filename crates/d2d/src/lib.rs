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
//! | `interface` | what a function and its owner say to each other |
//! | `streams` | what both functions have in common: registers, runs, turns |
//! | `sender` | Tx FSM: credits, stall limit |
//! | `pace` | how many bytes are due |
//! | `receiver` | Rx FSM: gaps, overruns, grants |
//! | `wire`, `reassembly`, `sequence` | received frames: headers, fragments, RTP's order |
//! | `schedule` | turns and timers |
//!
//! Everything that another device or the network sent is checked before it is used. What cannot be ends the
//! stream by an [`Error`](register::Error) in its Status register, and no other stream.
//!
//! # What it doesn't implement
//!
//! TCP offload; IPv6; more than one tag; IP options in what is sent; contributing sources (CSRC); reordering
//! of received RTP packets (what is missing, or late, is counted); cryptography (an [`Operator`] is a hook); frame
//! check sequences and padding, which are the MAC's.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod bits;
mod checksum;
mod credit;
pub mod driver;
mod interface;
pub mod nic;
mod pace;
mod queue;
mod reassembly;
mod receiver;
pub mod register;
mod schedule;
mod sender;
mod sequence;
pub mod ssd;
mod streams;
pub mod uoe;
mod wire;

pub use credit::CREDIT;
pub use interface::{Action, ConfigError, Nanos, Operator, Origin, Token};
pub use nic::Nic;
pub use reassembly::Limits;
pub use ssd::Ssd;
