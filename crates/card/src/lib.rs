//! The dcs engine as a PCIe function: registers, queue pairs, controllers over the bus, served by vfio-user.
//!
//! # Architecture
//!
//! | module | what it holds |
//! |---|---|
//! | [`pci`] | the function that a host sees: configuration space, BARs, MSI-X, registers as a trait |
//! | [`vfio_user`] | the function as a process of its own beside QEMU, and the bus over it |
//! | [`wake`] | how the card's own thread waits |
#![forbid(unsafe_code)]

mod admin;
pub mod card;
pub mod costs;
mod flow;
mod handles;
mod network;
pub mod pci;
pub mod registers;
mod rings;
mod ssd;
mod timers;
pub mod vfio_user;
pub mod wake;
