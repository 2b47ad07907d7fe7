//! A guest's NVMe driver without a guest: it connects to a drive's socket, as QEMU does, and drives the controller through queues
//! in memory shared with the drive's process. Without a virtual machine in between it shows how fast a drive is, and how drives
//! share a process.
//!
//! | module | contents |
//! |---|---|
//! | `device` | a vfio-user client: one function of another process |
//!
//! # Architecture
//!
//! ```text
//!   load      workloads: which commands, how many at once, every byte checked where it can be
//!   Drive     an NVMe controller brought up as a host does: admin queue, identify, I/O queues, shadow doorbells
//!   Queue     a submission queue and its completion queue, in shared memory
//!   Device    a vfio-user client: messages, registers, shared memory, eventfds
//! ```
//!
//! Doorbells are trapped registers: each is a message to the process. With shadow doorbells (NVMe's *doorbell buffer config*)
//! they are words in shared memory, and a message is sent only if the drive asks for it. BAR0 of these drives cannot be mapped,
//! and no released kernel has ioregionfd, so there is no third way.
//!
//! # What it doesn't implement
//!
//! * Scatter gather lists, metadata, several namespaces at once: the tests of `dcs_csd` cover those.
//! * Recovery: a command that fails, or a drive that disappears, is an error.
#![forbid(unsafe_code)]

mod device;
mod drive;
pub mod load;
mod queue;

pub use device::{Device, Error};
pub use drive::{Drive, Options};
pub use queue::Queue;
