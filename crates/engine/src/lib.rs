//! The engine core: it runs D2D commands, and it does no I/O.
//!
//! An [`Engine`] is a state machine. Whoever owns it hands it [`Event`]s and the time ([`Engine::handle`]) and does
//! the [`Action`]s that it hands back ([`Engine::poll_action`]). It has no thread, no file descriptor and no clock:
//! the same code runs over io_uring, behind a PCIe function, in virtual time in a test, and as the reference for the
//! engine in SystemVerilog. The crate is `no_std`, so that this cannot change unnoticed.
//!
//! # Architecture
//!
//! ```text
//!  doorbells, entries                                                            completion entries
//!        |                                                                                ^
//!   frontend     fetches entries of many queue pairs by weighted round robin, posts completions
//!        |
//!      spec      checks entry and descriptor, which were copied first
//!        |
//!      order     commands of one tenant with one request id (rid) go one after the other
//!        |
//!   scoreboard   one row per block: at one stage at a time, which waits, is ready, is issued, is done
//!      |    \
//!   credit   renaming    block buffers with credits; operators of chains onto physical units
//!        |
//!   operations out, outcomes in: source, operators, destination
//! ```
//!
//! A command's data go in *blocks*. Each block has a row of the scoreboard, which goes from stage to stage: read it,
//! process it by each operator, write it. Where order matters (operators, sockets) a row waits for the row of the block
//! before to pass the stage. Nothing else is ordered: blocks of one command overlap, and commands overtake each other
//! freely. An operator that changes the length of the data (gzip) ends one
//! *segment* of the chain and begins the next, whose blocks it fills. Each segment of a started command has at least one block
//! reserved, so that commands cannot starve each other into a deadlock; more are credits, taken while there are any.
//!
//! | module | what it holds |
//! |---|---|
//! | [`message`] | events, actions, operations, outcomes: the whole interface |
//! | [`config`] | sizes |
//! | `frontend`, `quota` | queue pairs, arbitration, phase bits; what one tenant can never take from another |
//! | `spec` | from entry and descriptor to a checked transfer |
//! | `command`, `position` | one command's state; where in its extents it is |
//! | `gather` | when a pass of a multi-lane unit starts |
//! | `scoreboard`, `renaming`, `order` | rows and their blocks, units, request ids |
//! | `engine` | the state machine's step |
//! | `waiting` | entries that wait for a command slot |
//! | `admit`, `finish` | a command's start, its end |
//! | `plan`, `credit`, `dispatch`, `done` | its data: blocks get their rows, ready ones go to devices and come back |
//!
//! # What it doesn't implement
//!
//! * Devices, operators, memory: an operation names a block by number; whoever performs it owns the bytes.
//! * Recovery of devices: an operation that fails, fails its command. Device controllers retry what is worth it.
//! * Virtual functions.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod admit;
mod command;
pub mod config;
mod credit;
mod dispatch;
mod done;
mod engine;
mod finish;
mod frontend;
mod gather;
pub mod message;
mod order;
mod plan;
mod position;
mod quota;
mod renaming;
mod scoreboard;
mod spec;
mod waiting;

pub use config::{Config, ConfigError, QueueConfig};
pub use engine::{Counters, Engine};
pub use message::{
    Action, Binding, BlockId, CommandId, Event, Fault, Nanos, Operation, OperationId, OperationKind, Outcome,
    Place, QueueId,
};
pub use spec::{EndpointSpec, OperatorSpec, TransferSpec};
