//! A virtual server with a dcs card, an NVMe SSD and a NIC, and a stock Linux guest.
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
//! | module | contents |
//! |---|---|
//! | [`tools`] | programs and files that are needed: finding and running them |
//! | `fetch` | fetching what this machine lacks into a cache folder |
//! | `module` | the guest's kernel modules: what each needs, without what only costs time |
//! | `vmlinux` | the kernel unpacked, so that no boot unpacks it |
//! | [`debian`] | packages of Debian without installing them |
//! | [`cpio`] | the archive that a kernel unpacks as its first file system |
//! | [`initramfs`] | its contents |
//! | [`disk`] | disk images |
//! | [`machine`] | QEMU's command line |
//! | [`guest`] | a running QEMU and its console |
//! | [`wire`] | the outer end of a NIC's cable, frame by frame |
//! | `turn` | how many tests boot guests at the same time |
//!
//! Without QEMU 10.1 or later on the machine, or Debian's package manager and a network, there is no virtual server: every error
//! says what is missing, and [`Error::is_unavailable`] distinguishes this from a failure.
//!
//! # What it doesn't implement
//!
//! * Processors other than x86-64, in the guest and outside.
//! * KVM: the guest runs in software emulation, which suffices to show the division of work. Its times say nothing about
//!   hardware.
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
mod module;
pub mod tools;
mod turn;
mod vmlinux;
pub mod wire;

pub use error::Error;
pub use guest::Guest;
pub use initramfs::Initramfs;
pub use machine::{Machine, Network, Nic};
pub use tools::Tools;
pub use turn::{Turn, turn};
