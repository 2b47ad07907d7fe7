//! The core, the units, and the controllers of SSDs and NICs of the cards that are tested: those in SystemVerilog.

use dcs_card::card::Config;

/// Bytes of several of its blocks, of 4 KiB.
pub const SEVERAL: u64 = 75_000;

/// Bytes that fit into the blocks of one of its commands, four.
pub const UNACKNOWLEDGED: usize = 12_000;

/// The settings of a card with it.
pub fn of(config: Config) -> Config {
    Config { hardware: Some(dcs_rtl::HARDWARE), ..config }
}

/// Features that tests ask for and this core lacks.
const LACKS: &[&str] = &["operators that change the length", "blocks of 64 KiB"];

/// Returns true, and says so, if it has not what a test needs.
pub fn lacks(what: &str) -> bool {
    let lacks = LACKS.contains(&what);
    if lacks {
        println!("skipped: the core has no {what}");
    }
    lacks
}
