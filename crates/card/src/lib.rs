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
//! A [`card::Card`] is a state machine: it has no thread, no clock and no file descriptor, and reaches everything through
//! [`Buses`](dcs_drivers::bus::Buses). [`dcs_drivers::ssd`] and [`dcs_drivers::network`] drive its SSDs and NICs.
//!
//! # Functions
//!
//! A card has one or several functions, each with a host of its own. A function is all that its host has: registers, an admin queue, queue
//! pairs, handles. On the other side is what they share: the engine, the devices, the card's own memory.
//!
//! ```text
//!   host 0 --- function 0 ---+--- attaches devices, lends parts of SSDs (LEND_SSD) ---> SSDs, NICs
//!   host 1 --- function 1 ---+--- opens its parts (OPEN_PART)
//!   host 2 --- function 2 ---+--- Engine: slots and blocks by weights, units by turns, functions before queues
//! ```
//!
//! The card reaches a host over its function's bus, and nothing else of that host's. A function's reset, failure or removal ends its own
//! commands; what it was lent stays. Function 0's takes its devices, and with them what it has lent. The others have no devices of their own,
//! do not see the engine's load, and cannot tell how many they are.
//!
//! | module | what it holds |
//! |---|---|
//! | [`card`] | the card: host queues in, devices out, the engine core between |
//! | [`registers`] | BAR0: NVMe's controller registers, the engine's own, doorbells |
//! | `function`, `part` | a function; parts of SSDs that it is lent |
//! | `admin`, `attach`, `rings`, `handles` | a function's admin queue; devices; queue pairs in host memory; the targets that commands may name |
//! | `timers` | things that are due at a time |
//! | `host`, `work` | its accesses to hosts' memory; the engine's operations, performed |
//! | [`costs`] | the costs of its own work, in virtual time |
//! | [`serve`] | the card as a process next to QEMU: a function of [`dcs_vfio_user`], and the thread that owns its bus |
//!
//! # What it doesn't implement
//!
//! * Live migration. Parts of NICs: they are function 0's.
//! * Tenants within a function: a queue's tenant affects the order of its commands; nothing else separates tenants of one function.
//! * SSDs with logical blocks over 4 KiB; writes that begin inside a logical block.
//! * Passes of multi-lane units: each operator's unit takes one stream at a time.
//! * Aborting a write to a connection without ending the connection: bytes cannot be taken out of a stream.
//!
//! # Guests' access
//!
//! A guest is responsible for everything that it names; its own IOMMU limits what it reaches by that, as with any other function that it
//! drives:
//!
//! | the guest's means | the card's reach through it |
//! |---|---|
//! | AQA, ASQ, ACQ | the two rings of the admin queue, nowhere in the card's own memory |
//! | GRANT_MEMORY | the window, as granted, until it is released or the card is reset; never the card's own memory. Queues, descriptors,
//! results and MEMORY endpoints are in such windows, and are looked up again for each access |
//! | ATTACH_SSD, ATTACH_NIC | the window of registers. A guest that names memory there, or another device, has the card write register
//! values to it, and to nothing outside. The windows of attached devices never overlap |
//! | its CPU's writes to the card's own memory (BAR2) | nothing: the content is treated as if a lying device had written it. If the guest
//! changes commands there, the effect on devices is between it, the devices and their IOMMU |
//!
//! A reset of the controller or of the function revokes all of it: grants, queues, connections and handles are gone, devices are stopped (a
//! NIC once it has told its peers), and then their places are free for others. An ATTACH that finds them all taken before that is refused
//! with OUT_OF_RESOURCES. Memory that a device may still write to stays out of use.
#![forbid(unsafe_code)]

mod admin;
mod attach;
pub mod card;
pub mod costs;
mod function;
mod handles;
mod host;
mod part;
pub mod registers;
mod rings;
pub mod serve;
mod timers;
mod work;
