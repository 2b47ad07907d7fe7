//! A drive's controller behind a vfio-user function: the part of `dcs-csd` that the testbed uses too. The program
//! is `main.rs`, which says how it is built.
#![forbid(unsafe_code)]

pub mod port;
