//! Tests of the card next to QEMU's own devices, in a guest with a stock kernel. Skipped, with the reason, if no virtual server is
//! available.

mod bringup;
mod card;
#[path = "../fabric/core.rs"]
#[allow(dead_code, reason = "only the settings are needed here")]
mod core;
mod datagrams;
mod files;
mod functions;
mod iommu;
mod kinds;
mod library;
mod nic;
mod nvme;
mod owners;
mod rig;
mod stress;
mod suite;
mod wire;
