//! The core of the cards that are tested: the Rust one. `crates/rtl` runs the same tests with another.

use dcs_card::card::Config;

/// Command queues that it has.
pub const QUEUES: u16 = 8;

/// The settings of a card with it.
pub fn of(config: Config) -> Config {
    config
}
