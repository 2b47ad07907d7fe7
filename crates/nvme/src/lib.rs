//! NVMe on the wire, for both sides: the host's driver and the controller. Layouts and numbers; nothing that acts.
//!
//! # Architecture
//!
//! Each register, entry and data structure is a plain struct that is decoded from its bits and encoded to them. Decoding never fails and
//! never panics: bytes from the other side are decoded as they are, and the user of a value checks it first. Bits outside of all fields are
//! dropped; values too large for their field are cut off.
//!
//! | module | what it holds |
//! |---|---|
//! | [`register`] | the registers of BAR0, with their offsets, and the doorbells |
//! | [`cmb`], [`pmr`] | registers of a controller memory buffer, of a persistent memory region |
//! | [`command`] | submission entries, opcodes, and the content of their double words |
//! | [`local_memory`] | the Subsystem Local Memory command set |
//! | [`programs`] | the Computational Programs command set |
//! | [`sgl`] | descriptors of scatter gather lists |
//! | [`walk`] | the location of a command's data: walks along page lists and scatter gather lists |
//! | [`completion`] | completion entries |
//! | [`status`] | statuses, with the specification's texts |
//! | [`identify`] | identify data |
//! | [`bytes`] | little-endian numbers |
//!
//! Sections are those of the NVM Express Base Specification 2.0c (\[base\]), the NVM Command Set
//! Specification 1.0c (\[NVM\]) and the NVMe over PCIe Transport Specification 1.0c (\[PCIe\]).
//!
//! # What it doesn't implement
//!
//! Bit buckets in walks, metadata, and command sets other than NVM, Subsystem Local Memory and Computational Programs.

#![no_std]
#![forbid(unsafe_code)]

pub mod bytes;
pub mod cmb;
pub mod command;
pub mod completion;
pub mod identify;
pub mod local_memory;
pub mod pmr;
pub mod programs;
pub mod register;
pub mod sgl;
pub mod status;
pub mod walk;

pub use command::{Command, DataPointer};
pub use completion::Completion;
pub use register::{AdminQueueSizes, Capabilities, Configuration, ControllerStatus};
pub use status::Status;
pub use walk::Walk;
