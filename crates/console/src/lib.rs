//! The parts that `dcs`, `dcs-csd` and `dcs-bench` share.
//!
//! # Architecture
//!
//! ```text
//!   command line --units, keys, refusal--> a program --report, names--> people, or JSON on the output
//!                                             |
//!                                             +-- failure: a sentence and an exit code; interrupt: what ends it
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | [`failure`] | what went wrong, and its exit code |
//! | [`report`] | results and errors, for people and as JSON |
//! | [`names`] | names of files in messages and in JSON |
//! | [`refusal`] | a command line that is wrong |
//! | [`interrupt`] | Ctrl-C and SIGTERM |
//! | [`units`] | sizes, times and hexadecimal digits as people write them |
//! | [`keys`] | keys from files |
//! | [`pages`] | man pages |
//! | [`operate`] | a chain of operators without an engine |
//!
//! # What it doesn't implement
//!
//! Commands: each program has its own, and their help.
#![deny(unsafe_code)]

pub mod failure;
pub mod interrupt;
pub mod keys;
pub mod names;
pub mod operate;
pub mod pages;
pub mod refusal;
pub mod report;
pub mod units;
