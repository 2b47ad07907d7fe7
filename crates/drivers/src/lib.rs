//! Drivers over a bus: NVMe SSDs, and Intel NICs with TCP and UDP on top. A card runs them, and so does the kernel backend over VFIO.
//!
//! # Architecture
//!
//! A driver is a state machine without threads, clocks and unsafe code. A [`bus::Bus`] is all that it reaches: it makes no system call. The
//! owner of the bus gives it the time and the answers to its reads, and takes the results of its operations.
//!
//! ```text
//!   engine's operations --> Ssd ------> Nvme: an NVMe host --\
//!                                                             > Bus: own memory, writes, split reads
//!   engine's operations --> Network --> Nic: rings, frames --/
//!                             |
//!                           dcs_net: TCP, UDP; dcs_media: when a datagram is due
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | [`bus`] | a driver's access to the bus; the card's own memory |
//! | [`nvme`] | an NVMe host |
//! | [`ssd`] | an NVMe host as source and destination of an engine's operations |
//! | [`nic`] | Intel NICs: 82574, 82576 |
//! | [`network`] | a NIC with TCP and UDP on top: connections, datagrams and media streams as ends of an engine's operations |
//! | [`pacer`] | the sender of a media stream, with the transfers that feed it |
//! | `registers` | reads of a controller's registers, one at a time |
//!
//! # What it doesn't implement
//!
//! Other devices. [`nvme`] and [`nic`] list what these drivers leave out of NVMe and of the NICs.

#![forbid(unsafe_code)]

pub mod bus;
pub mod network;
pub mod nic;
pub mod nvme;
pub mod pacer;
pub mod ssd;

mod registers;
#[cfg(test)]
mod testbus;
