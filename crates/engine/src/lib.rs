//! The engine core: it runs commands, and it does no I/O.
//!
//! An [`Engine`] is a state machine. Its owner hands it [`Event`]s and the time ([`Engine::handle`]) and
//! performs the [`Action`]s that it returns ([`Engine::poll_action`]). It has no thread, no file descriptor
//! and no clock: the same code runs over io_uring, behind a PCIe function, in virtual time in a test, and as
//! the reference for the engine in SystemVerilog. The crate is `no_std`, so that this cannot change
//! unnoticed.
//!
//! # Architecture
//!
//! ```text
//!  doorbells, entries                                                            completion entries
//!        |                                                                                ^
//!   frontend     fetches entries of many queue pairs by weighted round robin, posts completions
//!        |
//!    validate    checks entry and descriptor, which were copied first
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
//! A command's data go in *blocks*. Each block has a row of the scoreboard, which goes from stage to stage:
//! read it, process it by each operator, write it. Where order matters (operators, sockets) a row waits for
//! the row of the block before to pass the stage. Nothing else is ordered: blocks of one command overlap, and
//! commands overtake each other freely. An operator that changes the length of the data (gzip) ends one
//! *segment* of the chain and begins the next, whose blocks it fills. Each segment of a started command has
//! at least one block reserved, so that commands cannot starve each other into a deadlock; more are credits,
//! taken while there are any.
//!
//! | module | contents |
//! |---|---|
//! | [`interface`] | events, actions, operations, outcomes |
//! | [`config`] | sizes |
//! | `engine`, `owned` | the state machine's step; its calls as a trait, [`Core`], which a core in hardware has too; [`Units`] |
//! | `frontend`, `quota` | queue pairs, arbitration, phase bits; the share that no tenant can take from another |
//! | `backlog`, `waiting` | entries that wait for a command slot, in lines; their start and their end |
//! | `transfer` | the specification of a transfer |
//! | `validate` | entry and descriptor become a checked [`TransferSpec`] |
//! | `command`, `position` | one command's state; its progress through its extents |
//! | `admission`, `completion` | a command's start and its end |
//! | `short` | commands of one block, which the owner may take through their stages by itself |
//! | `through` | short commands of which nothing is kept: the owner runs them as it hands in their entries |
//! | `order` | request ids |
//! | `scoreboard`, `renaming`, `multi_lane` | rows and their blocks; physical units; passes of multi-lane units |
//! | `credit`, `plan`, `dispatch`, `outcome` | a block's way: taken, planned, given to a device, answered |
//!
//! # What it doesn't implement
//!
//! * Devices, operators, memory: an operation names a block by number; whoever performs it owns the bytes.
//! * Recovery of devices: an operation that fails, fails its command. Device controllers retry what is worth
//!   it.
//! * Functions of a device: it shares what there is among them, and knows nothing else of them.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod admission;
mod backlog;
mod command;
mod completion;
pub mod config;
mod credit;
mod dispatch;
mod engine;
mod frontend;
pub mod interface;
mod multi_lane;
mod order;
mod outcome;
mod owned;
mod plan;
mod position;
mod quota;
mod renaming;
mod scoreboard;
mod short;
mod through;
mod transfer;
mod validate;
mod waiting;

pub use config::{Config, ConfigError, QueueConfig};
pub use engine::{Counters, Engine};
pub use interface::{
    Action, Binding, BlockId, CommandId, DeviceEvent, EndpointRole, Event, Failure, Nanos, Operation,
    OperationId, OperationKind, Outcome, QueueId, Ran, SHORT_CHAIN_MAX, SHORT_STAGES_MAX, Short, Then,
};
pub use owned::{Core, Units};
pub use through::{Alone, Passage, Posted, Progress};
pub use transfer::{EndpointSpec, OperatorSpec, TransferSpec};
