//! The parts of `dcs-csd` that others use too: a drive's controller behind a vfio-user function (the testbed), what
//! people and programs may say to it (the fuzz target). The program is `main.rs`, which says how it is built.
#![forbid(unsafe_code)]

pub mod backings;
pub mod port;
pub mod request;
pub mod spec;
pub mod state;
pub mod threads;
