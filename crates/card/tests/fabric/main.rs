//! Tests of the card on the in-memory fabric: real queues, real NVMe commands, virtual time.

mod core;
mod datagrams;
mod faults;
mod flows;
mod functions;
mod host;
mod hostile;
mod nic_faults;
mod paced;
mod peer;
mod properties;
mod rig;
mod transfers;
