//! A PCIe fabric in memory, in virtual time: address routing with peer-to-peer, an IOMMU, NVMe, NIC and GPU
//! models, faults.
//!
//! It stands in for the server that the card is plugged into, so that tests of device controllers need no such server and take no
//! longer than their work. It does no I/O and has no thread and no clock: [`Fabric::step`] advances time to the next event. The
//! same seed and the same calls give the same run.
//!
//! # Architecture
//!
//! ```text
//!   card (Port: Bus) --link--+            +--link-- Nvme  --- Namespace
//!                            |-- switch --+
//!   host (Port: Bus) --link--+            +--link-- Nvme, a NIC --- Wire --- another NIC, or the test
//!   and its memory                 |
//!                              Event, returned by step
//! ```
//!
//! A *function* is a device model ([`Device`]), or an endpoint whose far end the caller plays through a
//! [`Port`]: the card under test, and [`HOST`], whose memory is a BAR like another. Any function writes to
//! and reads from any address: there is no difference between host memory and a peer's BAR but the counters.
//! A write or read is split at pages, meets the faults of its requester, its bus master bit and IOMMU, is
//! routed, and takes the time of both links ([`Timing`], [`Rate`]).
//!
//! **Order**: a function's writes arrive in the order in which it made them, for any targets. A read
//! arrives after the writes that its requester made before it, and its answer after those that its target
//! made before it. An interrupt is a write.
//!
//! ```
//! use dcs_drivers::bus::{Bus, Tag};
//! use dcs_fabric::{Event, Fabric, Rate, Timing, nvme};
//!
//! let mut fabric = Fabric::new(Timing::default(), 1 << 20, 1);
//! let card = fabric.add_endpoint("card", Rate::GEN2_X8, &[1 << 20]);
//! let ssd = fabric.add_device("ssd", Rate::GEN3_X4, nvme::Nvme::new(nvme::Config::default()));
//! fabric.set_bus_master(card, true);
//! fabric.set_bus_master(ssd, true);
//! let version = fabric.bar(ssd, 0).address + 8;
//! fabric.port(card).read(version, 4, Tag::new(1, 2));
//! while let Some(event) = fabric.step(None) {
//!     if let Event::Read { done, .. } = event {
//!         assert_eq!(done.data.unwrap(), [0, 4, 1, 0]);
//!     }
//! }
//! ```
//!
//! A rig passes [`Event`]s to the card's controllers and calls `step` with the earliest of their deadlines; `step` returns `None`
//! at that time.
//!
//! | module | contents |
//! |---|---|
//! | `fabric` | functions, events, time |
//! | `transaction` | the path of a write or read |
//! | `link` | rates, hops, packets |
//! | `count` | counters of the traffic |
//! | `iommu` | access rights and translation |
//! | `fault` | faults: [`Fault`], [`Rule`], [`When`] |
//! | `plan` | faults in the users' syntax: [`FaultPlan`], [`Faults`] |
//! | `interposer` | faults of SSDs that are not models: [`Interposer`] |
//! | `wire` | Ethernet between NICs |
//! | [`nvme`] | the NVMe controller |
//! | [`nic`] | the NICs |
//! | [`d2d`] | SSDs and NICs that stream to each other |
//! | [`gpu`] | a GPU: memory, copies, kernels |
//!
//! # What it doesn't implement
//!
//! * Configuration space: bus mastering, memory space, MSI-X vectors and resets are calls. BARs do not move.
//! * More than one switch, flow control credits, relaxed ordering, atomics, message TLPs. A read or write of
//!   up to 4096 bytes is one transaction that arrives as a whole; its packets only cost time.
//! * Caches: stored data are visible at once.
//! * Of NVMe: namespace management, formatting, reservations, protection information, metadata, fused
//!   commands, queues that are not contiguous, weighted arbitration, virtualization, firmware update,
//!   directives, power states.
//! * Of the NICs: several receive queues (the rings are there, all frames go to the first), VLANs, time
//!   stamps, flow control, interrupt throttling, write-back thresholds, the packet checksum, the 82574's
//!   packet split and MSI-X, virtual functions, wake-up.
#![forbid(unsafe_code)]

mod count;
mod device;
mod event;
mod fabric;
mod fault;
mod interposer;
mod iommu;
mod link;
mod memory;
mod plan;
mod port;
mod transaction;
mod wire;

pub mod d2d;
pub mod gpu;
pub mod nic;
pub mod nvme;

pub use count::{Meter, Record, Traffic};
pub use device::{Context, Device};
pub use event::Event;
pub use fabric::{Absent, Fabric, FunctionId, HOST};
pub use fault::{Fault, Rule, When};
pub use interposer::{Interposed, Interposer};
pub use iommu::{Access, Iommu, Refused};
pub use link::{Rate, Timing};
pub use memory::Memory;
pub use plan::{Device as FaultDevice, FAULT_HELP, FaultPlan, FaultPlanError, Faults, Struck};
pub use port::Port;
pub use wire::{Wire, WireCount, WireEnd};
