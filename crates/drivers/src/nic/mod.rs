//! Driver of Intel's NICs, with descriptor rings in the card's own memory: the 82574 (e1000e) and the 82576 (igb).
//!
//! It is a state machine over a [`Bus`]: no thread, no clock, never waits. It reads no register on the data path: sent and received frames
//! are found by the done bit that the NIC writes into the ring. Registers are read to reset the NIC and to check its link.
//!
//! # Architecture
//!
//! ```text
//!   transmit --> context and data descriptors --> tail doorbell ---> NIC ---> wire
//!   sent <------ done bit of the last descriptor <---------------------+
//!
//!   received <-- frame of pieces <-- done bits, lengths, checksums <-- NIC <--- wire
//!   give_back --> spare buffers --> empty descriptors, tail doorbell ---^
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | `host` | [`Nic`]: frames in and out |
//! | `start` | reset, set-up, link, hangs |
//! | `transmit`, `receive` | the rings |
//! | `lend` | a second transmit ring, and the receive ring, for hardware that uses them in the driver's place |
//! | `descriptor`, `model` | formats and registers: a table with a row for each NIC |
//! | `frame` | frames, the NIC's part in making them, and its verdict on received ones |
//! | `config` | sizes, timeouts, failures |
//!
//! # Ownership of memory
//!
//! A frame's memory is its owner's again when it was sent, or with [`Memory::Held`](crate::nvme::Memory), when the NIC was reset, as in
//! [`nvme`](crate::nvme). Receive buffers are in the NIC's own region; a received frame is lent until it is returned, even across resets.
//!
//! # Trust
//!
//! A received frame is at most as long as its buffers; a NIC that reports otherwise is reset. The bytes in the buffers may be anything. A
//! NIC that falsely reports frames as sent cannot be detected. One that hangs is detected when it has something to send, and one that
//! passed over a receive descriptor when a later one is done.
//!
//! # What it doesn't implement
//!
//! * More than one ring in each direction, but for the transmit ring that is lent; receive side scaling, VLAN tags, time stamps, flow control frames.
//! * Interrupts other than one MSI-X vector for both rings ([`Config::interrupts`]): INTx, MSI, the link's. With interrupts off, all are
//!   masked, and MSI-X must be left off.
//! * PHYs, except having them negotiate; EEPROM; management firmware; power states.

mod config;
mod descriptor;
mod frame;
mod host;
mod lend;
mod model;
mod receive;
mod start;
#[cfg(test)]
mod tests;
mod transmit;

pub use crate::nvme::Memory;
pub use config::{Config, ConfigError, ResetCause};
pub use frame::{
    Checksum, Frame, MAX_SEGMENTED, Offload, Piece, Received, Segmentation, TransmitError, Transport,
};
pub use host::{Counters, Nic, Sent, State};
pub use lend::{LentReceive, LentRing};
pub use model::Model;

#[cfg(doc)]
use crate::bus::Bus;
