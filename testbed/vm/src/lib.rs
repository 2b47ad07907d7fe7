//! A virtual server in which a dcs card sits beside an NVMe SSD and a NIC, with a stock Linux guest.
//!
//! # Architecture
//!
//! ```text
//!   Tools::find      a QEMU that has vfio-user-pci, a kernel with its modules, busybox, mkfs.ext4:
//!                    those of this machine, or Debian's packages in a cache folder, without root
//!   Initramfs        the guest: busybox, programs of this machine with their libraries, kernel modules, a script
//!   disk::ext4       the SSD's contents
//!   Machine          the server: processors, memory, SSD, NIC, card; boots into
//!   Guest            runs until it is dropped; its console is read and written line by line
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | [`tools`] | what is needed, where it is, and how it is run |
//! | `fetch` | what this machine has not, in a cache folder |
//! | [`debian`] | packages of Debian without installing them |
//! | [`cpio`] | the archive that a kernel unpacks as its first file system |
//! | [`initramfs`] | what is in it |
//! | [`disk`] | disk images |
//! | [`machine`] | QEMU's command line |
//! | [`guest`] | a running QEMU and its console |
//! | [`wire`] | the outer end of a NIC's cable, frame by frame |
//!
//! Without QEMU 10.1 or later on the machine, Debian's package manager and a network, there is no virtual
//! server: every error says what is missing, and [`Error::is_unavailable`] tells this from a failure.
//!
//! # What it doesn't implement
//!
//! * Other processors than x86-64, in the guest and outside.
//! * KVM: the guest runs in software emulation, which is enough to show who does what. Times in it say nothing about hardware.
//! * A persistent guest: it is built anew for each boot.
#![forbid(unsafe_code)]

pub mod cpio;
pub mod debian;
pub mod disk;
pub mod error;
mod fetch;
pub mod guest;
pub mod initramfs;
pub mod machine;
pub mod tools;
pub mod wire;

pub use error::Error;
pub use guest::Guest;
pub use initramfs::Initramfs;
pub use machine::{Machine, Network, Nic};
pub use tools::Tools;
