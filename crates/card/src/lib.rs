//! The dcs engine as a PCIe function: registers, queue pairs, controllers over the bus, served by vfio-user.
//!
//! # Architecture
//!
//! ```text
//!   host: registers, queues, descriptors              SSDs, NICs: their registers, their DMA into own memory
//!        |         ^ completions, MSI-X                    ^                      |
//!        v         |                                       |                      v
//!   Registers -> Card: dcs_engine::Engine, Handles, ----> Ssd (nvme), Network (nic, dcs_net) --- blocks, NDP units
//!        \___________________________________ one Bus __________________________________/
//! ```
//!
//! A [`card::Card`] is a state machine: it has no thread, no clock and no file descriptor, and reaches
//! everything by a [`Bus`](dcs_drivers::bus::Bus). Its SSDs and NICs are driven by
//! [`dcs_drivers::ssd`] and [`dcs_drivers::network`].
//!
//! | module | what it holds |
//! |---|---|
//! | [`card`] | the card: host queues in, devices out, the engine core between |
//! | [`registers`] | BAR0: NVMe's controller registers, the engine's own, doorbells |
//! | `admin`, `rings`, `handles` | the admin queue; queue pairs in host memory; what commands may name |
//! | `host`, `work` | its reach into host memory; the engine's operations, performed |
//! | [`costs`] | what its own work takes, in virtual time |
//! | [`serve`] | the card as a process beside QEMU: a function of [`dcs_vfio_user`], and the thread that owns its bus |
//!
//! # What it doesn't implement
//!
//! * Virtual functions, several hosts, live migration. A queue's tenant orders its commands; nothing more
//!   sets tenants apart.
//! * SSDs with logical blocks over 4 KiB; writes that begin inside a logical block.
//! * Passes of multi-lane units: each operator's unit takes one stream at a time.
//! * Aborting a write to a connection without ending the connection: bytes cannot be taken out of a stream.
//!
//! # What a guest can do with it
//!
//! A guest answers for whatever it names; its own IOMMU limits what it reaches by that, as with any other
//! function that it drives:
//!
//! | what | what the card reaches by it |
//! |---|---|
//! | AQA, ASQ, ACQ | the two rings of the admin queue, nowhere in the card's own memory |
//! | GRANT_MEMORY | the window, as it says, until it is released or the card is reset; never the card's own memory. Queues, descriptors, results and MEMORY endpoints lie in such windows, and are looked up again for each access |
//! | ATTACH_SSD, ATTACH_NIC | the window of registers. Whoever names memory there, or another device, has the card write registers' values to it, and to nothing outside. The window of an attached device overlaps no other one's |
//! | its CPU's writes to the card's own memory (BAR2) | nothing: what lies there is read as if a device had written it that lies. What devices do with commands that the guest has changed there is between it, the devices and their IOMMU |
//!
//! A controller reset, or one of the function, takes all of it back: grants, queues, connections and handles
//! are gone, devices are stopped (a NIC when it has told its peers), and their places are free for others
//! then: an ATTACH that finds them all taken before that is refused with OUT_OF_RESOURCES. What a device may
//! still write to stays out of use.
#![forbid(unsafe_code)]

mod admin;
pub mod card;
pub mod costs;
mod handles;
mod host;
pub mod registers;
mod rings;
pub mod serve;
mod timers;
mod work;
