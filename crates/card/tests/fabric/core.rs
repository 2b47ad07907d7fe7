//! The core of the cards that are tested: the Rust one. `crates/rtl` runs the same tests with another.

use dcs_card::card::Config;

/// Bytes of several of its blocks, of 64 KiB.
pub const SEVERAL: u64 = 300_000;

/// Bytes that fit into the blocks of one of its commands.
pub const UNACKNOWLEDGED: usize = 100_000;

/// The settings of a card with it.
pub fn of(config: Config) -> Config {
    config
}

/// Needs of tests that it does not meet.
const LACKS: &[&str] = &[];

/// Returns true, and prints that the test is skipped, if it does not have what a test needs.
pub fn lacks(what: &str) -> bool {
    let lacks = LACKS.contains(&what);
    if lacks {
        println!("skipped: the core has no {what}");
    }
    lacks
}
