//! The chain that `libdcs-preload.so` applies to each file, and the counters that it keeps.
//!
//! The library, which applies it, shares this crate with `dcs run`, which checks it before a program starts.
//!
//! # Architecture
//!
//! | module | contents |
//! |---|---|
//! | [`config`] | [`Config`] and its rules, read from TOML |
//! | [`chain`] | [`Chain`]: the operators of a rule, checked |
//! | [`key`] | key files, and where a file's first counter block is found |
//! | [`path`] | paths as text, any bytes |
//! | [`counters`] | the names of the counters, and their file |
//!
//! # What it doesn't implement
//!
//! * No engine, no system call but reading configuration, keys and counters.
//! * No conditions but path and port.
#![forbid(unsafe_code)]

pub mod chain;
pub mod config;
pub mod counters;
pub mod key;
pub mod path;

pub use chain::{Chain, Step};
pub use config::{Config, ConfigError, Rule};
pub use counters::Counter;
pub use key::FirstCounter;
