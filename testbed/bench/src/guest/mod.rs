//! `dcs vm` and `dcs bench guest`: a device-centric server in QEMU, with the card as a process of its own and
//! a stock Linux guest.
//!
//! ```text
//!   this process                    QEMU                                    the card, a child process
//!     client: TCP, checks             guest: guest-agent                     the engine, its blocks, its NVMe and
//!     requests: JSON lines<---------->   guest-worker: one for each task      NIC queues, its TCP
//! ```
//!
//! | module | contents |
//! |---|---|
//! | `machine`, `nic` | the virtual server's parts |
//! | `card`, `engine` | the card's process, and which core it has |
//! | `rig` | a running server: runs tasks, and has them checked |
//! | `demo`, `table` | `dcs vm demo` |
//! | `d2d` | `dcs vm d2d` |
//! | `experiments` | `dcs bench guest` |
//! | `shell` | `dcs vm shell` |
//! | `task` | messages between here and the guest |
//! | `client` | the other end of the network, which checks |
//! | `agent`, `worker`, `counters` | hidden subcommands, in the guest |
//! | `designs` | in the guest, a module for each design |
//! | `drives` | `dcs csd demo`: guests with virtual drives |

pub mod agent;
pub mod card;
mod client;
mod counters;
#[cfg(feature = "benchmarks")]
pub mod d2d;
pub mod demo;
mod designs;
pub mod drives;
pub mod engine;
#[cfg(feature = "benchmarks")]
pub mod experiments;
mod machine;
pub mod nic;
mod rig;
pub mod shell;
mod table;
mod task;
pub mod worker;
