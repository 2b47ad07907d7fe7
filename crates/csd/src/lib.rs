//! Virtual computational storage drives: a standard NVMe controller for every guest, and what is behind it.
//!
//! # Architecture
//!
//! ```text
//!   guest's registers, doorbells        guest's memory, interrupts
//!              |                                  ^
//!              v                                  | HostPort
//!     +---- Controller ---- one a guest ----------+----+
//!     |  registers, queues, admin commands, logs,      |     no I/O, no clock, no thread: a state machine
//!     |  events, features; commands to namespaces      |
//!     +------------------------------------------------+
//!              |  Request              ^  Response
//!              v                       |
//!           Drives: whose command is next; tenants before queues (Shares)
//!              |                       ^
//!              v                       |
//!           Storage: FileStorage (io_uring, O_DIRECT into the guest's memory), SsdStorage (an SSD's queues),
//!                    ModelStorage (memory, for tests)
//! ```
//!
//! | module | contents |
//! |---|---|
//! | [`config`] | what a drive and its namespaces are to be, and why they cannot |
//! | [`host`] | [`HostPort`]: all of the guest that a controller reaches |
//! | [`controller`] | [`Controller`]: a function as its guest sees it |
//! | `registers`, `queue` | the registers of BAR0; submission and completion queues, shadow doorbells |
//! | `admin`, `identify`, `features`, `logs` | commands of the admin queue |
//! | `command_sets` | command sets beside NVM |
//! | `timers` | the timestamp, keep alive |
//! | `io`, `slots`, `completions` | commands of the I/O queues, those under way, how they end |
//! | `copy`, `events`, `coalescing` | data that are copied at once; asynchronous events; interrupts for several completions |
//! | [`latency`], [`limits`] | where commands spend their time; limits of a drive's rate |
//! | [`chain`] | [`Chain`]: what the data of a namespace pass |
//! | [`namespace`] | [`Namespace`]: logical blocks on a volume, and their chain |
//! | [`near`] | near-storage commands: a source, operators, a destination; those of the standard's command sets |
//! | [`shares`] | [`Shares`]: who is next, by weight |
//! | [`pool`], [`placement`] | slots that do operators' work beside the loop; which slot may do which work |
//! | `waste` | memory that is given back beside it |
//! | [`drives`] | [`Drives`]: the controllers of a process, in turn |
//! | [`storage`] | [`Storage`]: volumes on files, block devices, SSDs that the process drives itself, or in memory |
//!
//! **Trust.** A guest may write anything at any time. Entries and lists are copied, then checked, then used;
//! its memory is only reached through the [`HostPort`], which refuses what the guest did not map. A guest
//! that breaks a rule gets the status that the specification names, and harms no other: a controller shares
//! nothing with the next but the storage, and of that it has its share.
//!
//! **Truth.** A command is completed when what it asked for has happened: a flush when the disk has said so
//! (fdatasync), a write with FUA when it is on the medium. A disk's error becomes a media status.
//!
//! Sections are those of the NVM Express Base Specification 2.0c (\[base\]), the NVM Command Set
//! Specification 1.0c (\[NVM\]) and the NVMe over PCIe Transport Specification 1.0c (\[PCIe\]).
//!
//! # What it doesn't implement
//!
//! * Fused commands, metadata and protection information, reservations, namespace management by the guest,
//!   firmware download, self-test, sanitize, format, security, directives, zones.
//! * Queues that are not contiguous, weighted arbitration (CC.AMS), I/O command sets other than NVM,
//!   Subsystem Local Memory and Computational Programs. Of the last one: programs other than WebAssembly modules, the
//!   fields of the logs of their types and of memory range sets.
//! * Operators of one chain side by side: a chain is in one slot at a time.
//! * Deallocation on block devices: it is taken, and nothing is done.
//! * A controller memory buffer, and bit buckets in scatter gather lists.
#![deny(unsafe_code)]

mod admin;
mod attach;
pub mod chain;
mod coalescing;
mod command_sets;
mod completions;
pub mod config;
pub mod controller;
mod copy;
pub mod drives;
mod events;
mod features;
pub mod host;
mod identify;
mod io;
pub mod latency;
pub mod limits;
mod logs;
pub mod namespace;
pub mod near;
pub mod placement;
pub mod pool;
mod queue;
mod registers;
pub mod shares;
mod slots;
pub mod storage;
mod timers;
mod waste;

pub use chain::Chain;
pub use config::{Config, ConfigError};
pub use controller::{Controller, Counters};
pub use drives::{Activity, DriveId, Drives};
pub use host::{Direction, HostError, HostPort, Piece};
pub use latency::Latencies;
pub use limits::Limits;
pub use namespace::Namespace;
pub use placement::Placement;
pub use pool::{SlotState, Workers};
pub use shares::Shares;
pub use storage::{
    Action, Buffer, Data, Request, Response, Storage, Ticket, VolumeError, VolumeId, VolumeInfo,
};
pub use waste::Waste;
