//! Virtual computational storage drives: a standard NVMe controller for every guest, and the storage behind
//! it.
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
//! | [`config`] | the configuration of a drive and its namespaces, and errors in it |
//! | [`host`] | [`HostPort`]: the guest as a controller reaches it |
//! | [`controller`] | [`Controller`]: an NVMe controller as its guest sees it |
//! | `registers`, `queue` | the registers of BAR0; submission and completion queues, shadow doorbells |
//! | `admin`, `identify`, `features`, `logs` | commands of the admin queue |
//! | `attach` | namespaces that come, go and grow while the guest runs |
//! | `command_sets` | command sets other than NVM |
//! | `timers` | the timestamp, keep alive |
//! | `io`, `slots`, `completions` | commands of the I/O queues, those in progress, their completions |
//! | `copy`, `events`, `coalescing` | small data of commands; asynchronous events; interrupts for several
//! completions |
//! | [`latency`], [`limits`] | times of commands in each stage; limits of a drive's rate |
//! | [`chain`] | [`Chain`]: the operators that a namespace's data pass |
//! | [`namespace`] | [`Namespace`]: logical blocks on a volume, and their chain |
//! | [`near`] | near-storage commands: a source, operators, a destination; those of the standard's command sets |
//! | [`shares`] | [`Shares`]: whose turn it is, by weight |
//! | [`pool`], [`placement`] | slots that do operators' work outside the loop; which slot may do which work |
//! | `waste` | memory that is freed outside the loop |
//! | [`drives`] | [`Drives`]: the controllers of a process, in turn |
//! | [`storage`] | [`Storage`]: volumes on files, block devices, SSDs that the process drives itself, or in memory |
//!
//! **Trust.** A guest may write anything at any time. Entries and lists are copied, then checked, then used;
//! its memory is only reached through the [`HostPort`], which refuses what the guest did not map. A guest
//! that breaks a rule gets the status that the specification defines, and harms no other: controllers share
//! only the storage, and each has its share of it.
//!
//! **Durability.** A command is completed when its work is done: a flush when the disk has acknowledged it
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
//!   Subsystem Local Memory and Computational Programs. Of the last one: programs other than WebAssembly
//!   modules, the fields of the logs of their types and of memory range sets.
//! * Parallel operators of one chain: a chain is in one slot at a time.
//! * Deallocation on block devices: it is accepted and ignored.
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
