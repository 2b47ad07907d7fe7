//! `dcs-bench` as a user has it: the built program, real files and sockets, other servers and a guest where
//! they are available.

mod demo;
mod drives;
mod guest;
mod help;
mod host;
mod s3;
mod sim;
mod stream;

/// The program that is tested.
const PROGRAM: &str = env!("CARGO_BIN_EXE_dcs-bench");

#[allow(dead_code)]
#[path = "../../../../crates/cli/tests/suite/run.rs"]
mod run;
