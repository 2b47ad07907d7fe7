//! Users' own operators: WebAssembly modules that a chain of `dcs` may name.
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
//! | `load` | a module's bytes: what it exports and may not import, its name; [`LoadError`] |
//! | `bounds` | what costs time or memory that no fuel pays for, and is refused: large frames, many exports and items |
//! | `block` | what a module says in its memory: copied, checked, then used |
//! | `stream` | one stream through a module: fuel, memory, and what each failure is called |
//!
//! The interface is that of `docs/wasm.md`; `sdk/` has it for Rust and C.
//!
//! # What it doesn't do
//!
//! * Nothing can be imported: a module has no clock, no files, no network and no random numbers.
//! * Vector instructions, threads, tail calls and 64-bit memories are refused.
#![deny(unsafe_code)]

mod block;
mod bounds;
mod load;
mod stream;

pub use load::{Limits, LoadError, MODULE_MAX, Module};
