//! The core in SystemVerilog in the Rust core's rig, beside the Rust core.

#[path = "../../../engine/tests/suite/chains.rs"]
#[allow(dead_code)]
mod chains;
mod control;
mod functions;
mod layout;
mod lockstep;
mod nic_receive;
mod plan;
#[path = "../../../engine/tests/rig/mod.rs"]
mod rig;
mod units;

// It offers no short commands to run.
impl rig::short::Core for dcs_rtl::Body {}
