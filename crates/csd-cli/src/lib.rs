//! What `dcs-csd` has that the testbed uses too: a drive's controller behind a vfio-user function. The program
//! is `main.rs`, which says how it is built.
#![forbid(unsafe_code)]

pub mod port;
