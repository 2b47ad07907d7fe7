//! The core of the cards that are tested: the one in SystemVerilog.

use dcs_card::card::Config;
use dcs_rtl::Body;

/// Command queues that it has.
pub const QUEUES: u16 = 4;

/// The settings of a card with it.
pub fn of(config: Config) -> Config {
    Config { core: Some(|| Box::new(Body::new())), ..config }
}
