//! PCIe functions of a process, served to QEMU and other clients by vfio-user (protocol 0.0 and 0.1), and the bus through which they access
//! other devices.
//!
//! # Architecture
//!
//! ```text
//!    client (QEMU)                                     this process
//!    ------------                                      ------------
//!    loads and stores of the guest   --- requests -->  Server's thread: Function, Registers   answers at once,
//!    memory map, eventfds            --- requests -->     |                                   never waits for the bus
//!                                                         | Link: maps, vectors, reads
//!    other devices' BARs             <-- DMA_READ ----    |
//!                                    <-- DMA_WRITE ---  VfioUserBus: the thread of the function's owner
//!    guest memory                    <== mapped ======    |
//!    BAR2, mapped by the client      ==================>  own memory
//! ```
//!
//! One socket goes both ways: a reply is known by its flag, and matched to our request by its id.
//!
//! | module | what it holds |
//! |---|---|
//! | [`pci`] | the function that a host sees: configuration space, BARs, MSI-X, registers as a trait |
//! | [`wire`] | the messages, as checked values |
//! | [`memory`] | mapped files that cannot become shorter |
//! | [`maps`] | the memory that the client lets the device reach |
//! | `socket` | whole messages with their file descriptors |
//! | `link` | the state that the two threads share |
//! | [`listen()`] | sockets at paths, in place of those that are no longer in use |
//! | [`Server`] | answers a client |
//! | [`VfioUserBus`] | the bus, as device controllers see it |
//! | [`Port`] | the host's memory and interrupts, for a function that needs only those and never waits |
//! | [`switch`] | posted writes from function to function, past the client |
//! | [`wake`] | the wait of the bus's owner |
//! | `port` | the host as seen by a function that only reaches its memory and interrupts it |
//! | `server` | one client after the other, answered |
//!
//! # Trust in a client
//!
//! A client may change or unmap its guest's memory at any time. A file that could become shorter is not mapped, but reached by messages. On
//! any invalid input the client gets an error or is disconnected; then the function is reset and the next client may connect. Its eventfds
//! are signalled without waiting, although it can make writers to them block ([`dcs_vfio::Signals`]). Nothing keeps it from wasting time: a
//! program that connects may keep the connection.
//!
//! # What it doesn't implement
//!
//! * Migration and dirty page tracking.
//! * Regions as several mappable areas, ioeventfd and ioregionfd: BAR0 is trapped, BAR2 is all mapped or all trapped, nothing in
//!   between.
//! * INTx, masking of single vectors by the client (it masks them itself).
//! * More than one client of a function at a time. A process serves any number of functions, each with its own socket and thread.
#![forbid(unsafe_code)]

mod bus;
mod link;
mod listen;
pub mod maps;
pub mod memory;
pub mod pci;
mod port;
mod server;
mod socket;
pub mod switch;
pub mod wake;
pub mod wire;

pub use bus::VfioUserBus;
pub use link::Hold;
pub use listen::{listen, listen_with_mode};
pub use port::{MappedPiece, Port, Unreachable};
pub use server::{Running, Server};

#[cfg(test)]
mod tests;
