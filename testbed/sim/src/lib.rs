//! Servers in virtual time: the designs that the papers compare, and their experiments.
//!
//! # Architecture
//!
//! ```text
//!   experiments        latency, contention, object, balancer, encrypted sendfile, scaling, projection, d2d
//!        |
//!   design             host-centric, software-optimised, software-controlled P2P, integrated device, card
//!        |
//!   host               steps of the host's software and their costs: programs on threads
//!        |      \
//!   cpu          server    fabric: NVMe, NIC, GPU models, peers with a TCP of their own; NVMe host, NIC driver, TCP, card
//! ```
//!
//! Every design moves the bytes: its programs use the same NVMe host ([`dcs_drivers::nvme`]), NIC driver ([`dcs_drivers::nic`])
//! and TCP ([`dcs_net`]) over the same fabric, and the peer compares each byte that arrives. Designs differ in who calls them, at
//! what cost, and where the data are. Time is virtual: the same build gives the same nanoseconds.
//!
//! | module | contents |
//! |---|---|
//! | [`parameters`] | every parameter, with its source |
//! | [`cpu`] | cores, run queue, interrupts |
//! | [`server`], [`card`], [`peer`], [`pattern`] | the machine and the far end of its wires |
//! | `egress` | a peer's frames that the NIC has no room for yet |
//! | [`executor`] | programs as futures |
//! | [`host`], [`design`] | software, step by step; the designs |
//! | [`kernels`] | operators on the GPU |
//! | [`drives`] | guests with virtual drives: another machine, with a hypervisor and operator slots |
//! | [`integrated`] | an SSD and a NIC in one function |
//! | [`failed`] | failures of transfers, where faults are injected |
//! | [`breakdown`] | a transfer's time by component |
//! | [`experiments`] | the papers' experiments |
//!
//! # What it doesn't implement
//!
//! * Caches, memory channels and NUMA: copies have one rate, which contenders divide. Instructions cost only their step's time.
//! * Interrupt messages of SSDs and NICs: an interrupt is raised when a completion or a descriptor arrives in
//!   host memory.
//! * The page cache: every read goes to the SSD. File systems: extents are known.
//! * Requests themselves: they appear at the application, and cost what a parameter says.
//! * Per-core queues: each device has one queue pair.
#![forbid(unsafe_code)]

pub mod breakdown;
pub mod card;
pub mod cpu;
pub mod design;
pub mod drives;
pub mod egress;
pub mod executor;
pub mod experiments;
pub mod failed;
pub mod host;
pub mod integrated;
pub mod kernels;
pub mod parameters;
pub mod pattern;
pub mod peer;
pub mod server;
