//! The D2D transfer protocol: an SSD that feeds a NIC by itself, paced and under credits, as UDP; and a NIC that feeds an SSD. Both
//! functions are state machines without I/O: they get register accesses, data, blocks, frames and the time, and return actions.
//!
//! The protocol is that of S. Larsen, B. Lee et al., "Direct Device-to-Device Transfer Protocol: A New Look
//! at the Benefits of a Decentralized I/O Model": section III, Tables I and II. The paper leaves much open,
//! and contradicts itself in places. docs/d2d.md has every layout, the state tables and the decisions, so that others can build either end.
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
//! Functions are polled: [`Ssd::poll`] and [`Nic::poll`] return one [`Action`] at a time, until there is none; then the owner waits for an
//! event or for `next_deadline`. [`Nic::next_frame`] returns a frame when the wire is free, so that legacy frames go first and timestamps
//! are right. Streams take turns, an action each; a poll does not look at streams to which nothing has happened.
//!
//! | module | contents |
//! |---|---|
//! | [`register`] | the registers of Table I and those that had to be added, with their offsets |
//! | [`uoe`] | the registers of Table II: headers as a template |
//! | [`ssd`], [`nic`] | the two functions |
//! | [`driver`] | the driver's part, as values: registers to write and read, in order |
//! | `interface` | types that pass between a function and its owner |
//! | `streams` | registers, runs and turns, common to both functions |
//! | `sender` | Tx FSM: credits, stall limit |
//! | `pace` | due times |
//! | `credit`, `bits`, `checksum` | credits, and numbers that wrap; bit fields; the Internet checksum |
//! | `receiver` | Rx FSM: gaps, overruns, grants |
//! | `wire`, `reassembly`, `sequence` | received frames: headers, fragments, RTP's order |
//! | `schedule` | turns and timers |
//!
//! Everything from another device or the network is checked before it is used. Anything invalid ends its stream, and no other, with an
//! [`Error`](register::Error) in its Status register.
//!
//! # What it doesn't implement
//!
//! TCP offload; IPv6; more than one tag; IP options in what is sent; contributing sources (CSRC); reordering
//! of received RTP packets (missing and late ones are counted); cryptography (an [`Operator`] is a hook); frame
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
