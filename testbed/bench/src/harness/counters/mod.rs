//! Counters of the processor: instructions, cycles and cache misses of this process, of its calls of the kernel, and of the threads
//! that it starts.
//!
//! Virtual machines often have none, and containers may not use them: then the reason is told, and nothing is counted.

#[cfg(feature = "benchmarks")]
mod processor;

#[cfg(feature = "benchmarks")]
pub use processor::Counters;
use serde::{Deserialize, Serialize};

/// Counts between two marks. Those of a counter that others used for a part of the time are extrapolated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Counts {
    pub instructions: f64,
    pub cycles: f64,
    /// Accesses to the last level of cache, and those that it did not have.
    pub cache_references: f64,
    pub cache_misses: f64,
}

/// Counts, or the reason why there are none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Counted {
    Counts(Counts),
    Refused(String),
}

/// Stand-in in the demo's program, which leaves the counters out.
#[cfg(not(feature = "benchmarks"))]
pub struct Counters;

#[cfg(not(feature = "benchmarks"))]
impl Counters {
    pub fn open() -> Result<Counters, String> {
        Err("this dcs-bench is that of the demo: make workshop".into())
    }

    pub fn begin(&mut self) -> std::io::Result<()> {
        Ok(())
    }

    pub fn end(&mut self) -> std::io::Result<Counts> {
        Ok(Counts::default())
    }
}
