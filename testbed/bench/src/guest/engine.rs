//! Core, units, and controllers of SSDs and NICs of the card's engine, as `--engine` names them.

use crate::failure::Failure;
use clap::ValueEnum;
use dcs_card::card::Hardware;

/// A core with its units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum CardEngine {
    /// The Rust core
    #[default]
    Rust,
    /// Core, processing units, and controllers of SSDs and NICs in SystemVerilog, simulated
    Rtl,
}

impl CardEngine {
    /// Its name as an option.
    pub fn name(self) -> &'static str {
        match self {
            CardEngine::Rust => "rust",
            CardEngine::Rtl => "rtl",
        }
    }

    /// Returns what makes them, unless they are those in Rust.
    pub fn make(self) -> Result<Option<Hardware>, Failure> {
        match self {
            CardEngine::Rust => Ok(None),
            #[cfg(feature = "rtl")]
            CardEngine::Rtl => Ok(Some(dcs_rtl::HARDWARE)),
            #[cfg(not(feature = "rtl"))]
            CardEngine::Rtl => {
                Err(Failure::usage("--engine rtl: this program was built without the core in SystemVerilog")
                    .advise("cargo build -p dcs-bench --features rtl"))
            }
        }
    }
}
