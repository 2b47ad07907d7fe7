//! The card on the in-memory fabric: real queues, real NVMe commands, virtual time.

mod faults;
mod host;
mod rig;
mod transfers;
