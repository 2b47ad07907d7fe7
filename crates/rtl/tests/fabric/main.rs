//! The card's own tests on the fabric, with the core in SystemVerilog; all but the random transfers (`properties`:
//! half of them change the length of the data).
//!
//! Those that need what this core has not are skipped, and say so: [`core`] has the list.

mod core;
#[path = "../../../card/tests/fabric/datagrams.rs"]
mod datagrams;
#[path = "../../../card/tests/fabric/faults.rs"]
mod faults;
#[path = "../../../card/tests/fabric/flows.rs"]
mod flows;
#[path = "../../../card/tests/fabric/functions.rs"]
mod functions;
#[path = "../../../card/tests/fabric/host.rs"]
mod host;
#[path = "../../../card/tests/fabric/hostile.rs"]
mod hostile;
#[path = "../../../card/tests/fabric/nic_faults.rs"]
mod nic_faults;
#[path = "../../../card/tests/fabric/paced.rs"]
mod paced;
mod paths;
#[path = "../../../card/tests/fabric/peer.rs"]
mod peer;
#[path = "../../../card/tests/fabric/rig.rs"]
mod rig;
#[path = "../../../card/tests/fabric/transfers.rs"]
mod transfers;
