//! The parts of `dcs-csd` that others use too: a drive's controller behind a vfio-user function (for the
//! testbed), and the configurations and requests that users write (for the fuzz target). The program is
//! `main.rs`, whose first lines describe its structure.
//!
//! | module | contents |
//! |---|---|
//! | `backings` | files, block devices and SSDs behind volumes |
//! | `metrics` | the state of a process as metrics in Prometheus's text format |
//! | `port` | a drive's controller behind its vfio-user function |
//! | `request` | requests of the management socket, and their answers |
//! | `spec` | drives as users write them |
//! | `state` | state and counters, sent over the management socket and printed for people |
//! | `threads` | threads of operators' slots, and the one that frees memory |
#![forbid(unsafe_code)]

pub mod backings;
pub mod metrics;
pub mod port;
pub mod request;
pub mod spec;
pub mod state;
pub mod threads;
