//! The engine under test, in virtual time. See the rig's documentation.

mod chains;
mod control;
mod expect;
mod fairness;
mod faults;
mod frontend;
mod garbage;
mod multi_lane;
mod order;
mod paced;
mod properties;
#[path = "../rig/mod.rs"]
mod rig;
mod short;
mod transfers;
