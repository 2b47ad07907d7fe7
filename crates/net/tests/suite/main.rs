//! Tests of the stack against itself and against smoltcp, in virtual time.

#[path = "../rig/mod.rs"]
mod rig;

mod datagrams;
mod floods;
mod goodput;
mod hostile;
mod links;
mod states;
mod transfers;
