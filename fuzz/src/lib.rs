//! The bodies of the fuzz targets: each takes bytes and panics where a promise is broken.
//!
//! ```text
//! cargo +nightly fuzz run entry -- -max_total_time=60
//! cargo +nightly fuzz run descriptor -- -max_total_time=60 -max_len=4096
//! ```
//!
//! A module holds the targets of one crate and uses nothing but that crate, so that the crate's own tests can include
//! the module and replay `corpus/` on a stable toolchain (`crates/abi/tests/corpus.rs`). A new target is a function
//! here, four lines in `fuzz_targets/`, a `[[bin]]`, and seeds.
#![forbid(unsafe_code)]

mod abi;

pub use abi::{descriptor, entry};
