//! The engine under test, in virtual time. See the rig's documentation.

mod chains;
mod faults;
mod properties;
#[path = "../rig/mod.rs"]
mod rig;
mod transfers;
