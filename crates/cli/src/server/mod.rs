//! `dcs server`: a device-centric server in QEMU, with the card as a process of its own and a stock Linux guest.
//!
//! ```text
//!   this process                    QEMU                                    dcs card, a child process
//!     client: TCP, checks             guest: dcs server-guest                 the engine, its blocks, its NVMe and
//!     orders: JSON lines  <---------->   server-worker: one for each task     NIC queues, its TCP
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | `machine` | the virtual server's parts |
//! | `card` | `dcs card`, the card's process |
//! | `rig` | a running server: does tasks, has them checked |
//! | `demo`, `table` | `dcs server demo` |
//! | `bench` | `dcs server bench` |
//! | `shell` | `dcs server shell` |
//! | `task` | what is said between here and the guest |
//! | `client` | the other end of the network, which checks |
//! | `guest`, `worker`, `counters` | hidden subcommands, in the guest |
//! | `movers` | there: a module for each design |

pub mod bench;
pub mod card;
mod client;
mod counters;
mod demo;
pub mod guest;
mod machine;
mod movers;
mod rig;
mod shell;
mod table;
mod task;
pub mod worker;

use crate::args::{Server, ServerCommand};
use crate::failure::Failure;
use crate::report::Report;

pub fn run(server: &Server, report: &Report) -> Result<(), Failure> {
    match &server.command {
        ServerCommand::Demo(options) => demo::run(options, report),
        ServerCommand::Bench(options) => bench::run(options, report),
        ServerCommand::Shell(options) => shell::run(options, report),
    }
}
