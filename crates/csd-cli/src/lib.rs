//! The parts of `dcs-csd` that others use too: a drive's controller behind a vfio-user function (for the
//! testbed), and the configurations and requests that users write (for the fuzz target). The program is
//! `main.rs`, whose first lines describe its structure.
#![forbid(unsafe_code)]

pub mod backings;
pub mod metrics;
pub mod port;
pub mod request;
pub mod spec;
pub mod state;
pub mod threads;
