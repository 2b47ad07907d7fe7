//! The core of the card's engine, as `--engine` names it.

use crate::failure::Failure;
use clap::ValueEnum;
use dcs_card::card::MakeCore;

/// A core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum CardEngine {
    /// The Rust core
    #[default]
    Rust,
    /// The core in SystemVerilog, simulated
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

    /// Returns what makes it, unless it is the Rust core.
    pub fn make(self) -> Result<Option<MakeCore>, Failure> {
        match self {
            CardEngine::Rust => Ok(None),
            #[cfg(feature = "rtl")]
            CardEngine::Rtl => Ok(Some(|weights| Box::new(dcs_rtl::Body::new(weights)))),
            #[cfg(not(feature = "rtl"))]
            CardEngine::Rtl => {
                Err(Failure::usage("--engine rtl: this program was built without the core in SystemVerilog")
                    .advise("cargo build -p dcs-bench --features rtl"))
            }
        }
    }
}
