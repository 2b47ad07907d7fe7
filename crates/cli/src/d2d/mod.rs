//! `dcs d2d`: an SSD that sends videos to a NIC by itself, both PCI functions of a QEMU guest in processes of their own; and their driver,
//! in the guest. docs/d2d.md has the protocol.
//!
//! ```text
//!   guest: dcs d2d stream --- registers, once ---+---------------------------+
//!          (sleeps)                              v                           v
//!                                   QEMU, vfio-user              QEMU, vfio-user
//!                                        |                           |
//!   IMAGE <-- blocks --> dcs d2d ssd: Function <-- data ---> dcs d2d nic: Function <-- frames --> UDP, tap
//!                                             <-- grants ->
//!                                              the switch: a socket
//! ```
//!
//! | module | contents |
//! |---|---|
//! | [`args`] | the command line and its help |
//! | `function` | registers, switch and loop, common to both functions |
//! | `ssd` | the SSD and its medium, a file |
//! | `nic`, `tap` | the NIC and its wire: a UDP socket, or a tap device |
//! | `driver` | the driver: takes the functions, sleeps, reports the results |
//! | `stream`, `record` | the driver's writes for streams to the network, and from it |

pub mod args;
mod driver;
mod function;
mod nic;
mod record;
mod ssd;
mod stream;
mod tap;

use crate::failure::Failure;
use crate::report::Report;
use args::{Command, D2d};

pub fn run(d2d: &D2d, report: &Report) -> Result<(), Failure> {
    match &d2d.command {
        Command::Ssd(options) => ssd::run(options, report),
        Command::Nic(options) => nic::run(options, report),
        Command::Stream(options) => stream::run(options, report),
        Command::Record(options) => record::run(options, report),
    }
}
