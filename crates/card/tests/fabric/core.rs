//! The core of the cards that are tested: the Rust one. `crates/rtl` runs the same tests with another.

use dcs_card::card::Config;

/// Command queues that it has.
pub const QUEUES: u16 = 8;

/// The settings of a card with it.
pub fn of(config: Config) -> Config {
    config
}

/// What it has not, of what tests need.
const LACKS: &[&str] = &[];

/// Returns true, and says so, if it has not what a test needs.
pub fn lacks(what: &str) -> bool {
    let lacks = LACKS.contains(&what);
    if lacks {
        println!("skipped: the core has no {what}");
    }
    lacks
}
