//! The HDFS balancer: a sender, and a receiver that takes CRC32, as in `dcs bench sim balancer`, more slowly.

use super::measurement::{self, Measured};
use super::options::Options;
use super::shown;
use crate::failure::Failure;
use crate::guest::engine::CardEngine;
use crate::guest::machine::Contents;
use crate::guest::rig::Rig;
use crate::guest::task::{DesignName, Item, Task};
use crate::harness::data::Direction;
use crate::harness::faults::Faults;
use crate::report::Report;
use dcs_sim::experiments::balancer::LENGTH;

/// Pieces of each side.
const COUNT: usize = 8;
const QUICK: usize = 2;
/// Pieces over which system calls are counted.
const SAMPLE: usize = 2;
/// Load in MiB per second, which every design can sustain in QEMU.
pub const MIB_PER_S: f64 = 8.0;

pub fn measure(options: &Options, report: &Report) -> Result<Measured, Failure> {
    let count = if options.quick { QUICK } else { COUNT };
    let contents = Contents { send: vec![LENGTH; count], receive: vec![LENGTH; count] };
    let mut rig = Rig::boot(&contents, 1, (options.nic, &Faults::default(), CardEngine::Rust), report)?;
    let mut all = Vec::new();
    for (direction, chain) in [(Direction::Send, &[][..]), (Direction::Receive, &["crc32"][..])] {
        let run = |who| rig.run_and_trace(Task::items(who, chain, items(direction, count)), SAMPLE);
        let rows = DesignName::all(direction == Direction::Receive, chain)
            .map(run)
            .collect::<Result<Vec<_>, _>>()?;
        let side = if direction == Direction::Send { shown::SENDER } else { shown::RECEIVER };
        all.extend(measurement::rows(shown::BALANCER, side, MIB_PER_S, &rows));
    }
    Ok((all, rig.problems()))
}

fn items(direction: Direction, count: usize) -> Vec<Item> {
    let interval = LENGTH as f64 / (MIB_PER_S * (1u64 << 20) as f64) * 1e9;
    let item = |file| Item { direction, file, length: LENGTH, at_ns: (file as f64 * interval) as u64 };
    (0..count).map(item).collect()
}
