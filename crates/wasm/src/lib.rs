//! Users' own operators: WebAssembly modules that a `dcs` chain may name.
//!
//! # Architecture
//!
//! ```text
//!   bytes --load--> Module: checked, compiled, tried --install--> chains of this process name it
//!                     |  start: an instance with a memory of its own
//!                     v
//!                  Stream: input block -> dcs_step -> output block
//! ```
//!
//! | module | contents |
//! |---|---|
//! | `load` | a module's bytes: required exports, forbidden imports, its name; [`LoadError`] |
//! | `bounds` | resources that fuel does not cover, and their limits: large frames, many exports and items |
//! | `block` | a module's answers in its memory: copied, checked, then used |
//! | `stream` | one stream through a module: fuel, memory, and the error for each failure |
//!
//! docs/wasm.md has the interface; `sdk/` has it for Rust and C.
//!
//! # What it doesn't implement
//!
//! * Nothing can be imported: a module has no clock, no files, no network and no random numbers.
//! * Vector instructions, threads, tail calls and 64-bit memories are refused.
#![deny(unsafe_code)]

mod block;
mod bounds;
mod load;
mod stream;

pub use load::{Limits, LoadError, MODULE_MAX, Module};
