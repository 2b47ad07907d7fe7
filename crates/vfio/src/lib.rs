//! PCI functions in user space over Linux VFIO: their registers and memory, their interrupts, and the memory that they may reach.
//!
//! # Architecture
//!
//! ```text
//!   take        unbinds a function that is not in use from its kernel driver, and binds it to vfio-pci
//!   bind        the same, even if it is in use
//!   in_use      the uses of a function, as sys reads them
//!   Container   an address space of the IOMMU, for all functions in it
//!     map         memory of this process (Buffer) or another function's BAR, at a bus address of our choice
//!   Function    one function in a container
//!     bar         Mapping: loads and stores
//!     config      its configuration space
//!     interrupts  MSI-X vectors as eventfds
//!   Signals     eventfds that other processes hold too, signalled without waiting
//! ```
//!
//! Unsafe code is in `ioctl` (calls to the kernel), `mapping` (memory that others change) and `signal` alone.
//!
//! Functions in one container reach each other if their BARs are mapped, and otherwise only what is mapped: an SSD and a NIC that have only
//! a card's BAR in their address space cannot touch the machine's memory.
//!
//! [`Mapping`] is memory that may change at any time, copied by atomics; the card's process uses it too.
//!
//! # What it doesn't implement
//!
//! * Machines without an IOMMU (VFIO's *noiommu*), and the newer iommufd interface.
//! * INTx, MSI, error and request interrupts.
//! * Groups of several functions: all of them would have to be taken.
#![deny(unsafe_code)]

mod bind;
mod container;
mod error;
mod function;
pub mod in_use;
mod ioctl;
mod mapping;
mod signal;
pub mod sys;

pub use bind::{address, bind, class, driver, functions, id, unbind};
pub use container::{Access, Buffer, Container};
pub use error::VfioError;
pub use function::Function;
pub use in_use::take;
pub use mapping::Mapping;
pub use signal::Signals;
