//! Has Verilator make models of modules of `rtl/`, and writes what Rust needs to call it: its ports and the core's structures and sizes.
//!
//! `tools/rtl body` installs Verilator where it is not there yet, and says which files, sizes and structures there are.

#[cfg(not(feature = "verilator"))]
fn main() {
    println!("cargo:rerun-if-changed=build.rs");
}

#[cfg(feature = "verilator")]
fn main() {
    verilator::build();
}

#[cfg(feature = "verilator")]
#[path = "build/verilator.rs"]
mod verilator;
