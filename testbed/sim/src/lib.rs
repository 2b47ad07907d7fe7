//! Servers in virtual time: the designs that the papers compare, and their experiments.
//!
//! # Architecture
//!
//! ```text
//!   experiments        latency, contention, object, balancer, encrypted sendfile, scaling, projection, d2d
//!        |
//!   design             host-centric, software-optimised, software-controlled P2P, integrated device, card
//!        |
//!   host               what the host's software does, and what each step costs: programs on threads
//!        |      \
//!   cpu          server    fabric: NVMe, NIC, GPU models, peers with a TCP of their own; NVMe host, NIC driver, TCP, card
//! ```
//!
//! Every design moves the bytes: its programs give commands to the same NVMe host ([`dcs_drivers::nvme`]),
//! NIC driver ([`dcs_drivers::nic`]) and TCP ([`dcs_net`]) over the same fabric, and the peer compares each
//! byte that arrives. What differs is who calls them, at what cost, and where the data lie. Time is virtual:
//! the same build gives the same nanoseconds.
//!
//! | module | what it holds |
//! |---|---|
//! | [`parameters`] | every figure, with its source |
//! | [`cpu`] | cores, run queue, interrupts |
//! | [`server`], [`card`], [`peer`], [`pattern`] | the machine and the far end of its wires |
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
//! * Caches, memory channels and NUMA: copies have one rate, which contenders divide. Instructions have no
//!   cost but their step's.
//! * Interrupt messages of SSDs and NICs: an interrupt is raised when a completion or a descriptor arrives in
//!   host memory.
//! * The page cache: every read goes to the SSD. File systems: extents are known.
//! * Requests themselves: they arrive at the application by themselves, and cost what a parameter says.
//! * Per-core queues: one queue pair a device.
#![forbid(unsafe_code)]

pub mod breakdown;
pub mod card;
pub mod cpu;
pub mod design;
pub mod drives;
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
