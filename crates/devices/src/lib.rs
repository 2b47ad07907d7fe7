//! The kernel backend's device controllers: files, block devices, sockets, pipes, memory, a GPU, and devices
//! that the process drives itself over VFIO.
//!
//! # Architecture
//!
//! The engine says *read this block from there*; a [`Controller`] does it: at once, if that needs no waiting, or over io_uring, or when a
//! socket is ready. It answers each operation once.
//!
//! ```text
//!   Operation --> Controller::start --+--> file    preadv2(RWF_NOWAIT)              \
//!                                     +--> flow    recv, send (MSG_DONTWAIT), pipes  > done at once: Outcome
//!                                     +--> memory  copy                             /
//!                                     +--> copy    sendfile, splice, copy_file_range
//!                                     |
//!                                     +--> vfio    an NVMe host's commands, a NIC's frames (dcs_drivers); an eventfd tells of their end
//!                                     +--> gpu     a file to the GPU's memory; an eventfd tells of the end
//!                                     +--> not ready: ring (poll) or poll(2), then again
//!                                     +--> disk:      ring (reads, O_DIRECT, zero-copy send)
//!                                     +--> may wait:  a plain call on a thread of its file system (writes, fsync, copies, close)
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | [`endpoint`] | what a handle stands for; owns a duplicate of the descriptor |
//! | [`route`] | one command's endpoints, checked, and the path between them |
//! | [`buffer`] | block buffers, owned by pool, operation or kernel, never two of them |
//! | [`controller`] | starts, aborts, reaps, waits |
//! | `paced` | media streams in datagrams: each is sent when it is due |
//! | `file`, `flow`, `copy` | one attempt at an operation, without waiting |
//! | [`Traffic`] | bytes moved over a TCP connection, as the kernel counts them |
//! | `acknowledged` | the wait until a peer has acknowledged what was sent |
//! | `calls` | system calls that may wait, on separate threads |
//! | `edge` | waits that report a descriptor once for each change |
//! | `failure` | errno to status |
//! | `uring` | io_uring, and all unsafe code for it |
//! | [`page_cache`] | what the kernel has in memory of a file |
//! | [`fork`] | which process an engine belongs to, after a fork |
//! | [`vfio_devices`] | SSDs and a NIC that the process drives directly, over VFIO |
//! | [`gpu`] | a GPU that processes blocks, by CUDA's driver, and reads files, by cuFile |
//! | `traffic` | the kernel's counts of a TCP connection |
//!
//! # What it doesn't implement
//!
//! * Datagram sockets except for media streams, and writing to files that are open for appending: a position would mean nothing.
//! * Retries of failed disk requests. The engine continues short reads and writes.

pub mod buffer;
pub mod controller;
pub mod endpoint;
pub mod fork;
pub mod gpu;
pub mod page_cache;
pub mod route;
pub mod vfio_devices;

mod acknowledged;
mod attempt;
mod calls;
mod copy;
mod edge;
mod failure;
mod file;
mod flow;
mod paced;
mod traffic;
mod uring;

pub use buffer::{BlockPool, Buffer};
pub use controller::{Controller, Event, Io, Setup};
pub use endpoint::{Endpoint, EndpointError};
pub use paced::{Receiving, Sending};
pub use route::{Ends, Route};
pub use traffic::Traffic;
