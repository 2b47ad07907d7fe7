//! Bandwidth with spinning processes in the guest, relative to that with none.
//!
//! The guest's processor has a core of the outer machine to itself; everything else (QEMU's devices,
//! the card, the client) uses the others. A process of the lowest priority keeps the guest's core busy where
//! the guest leaves it idle, so that it is as fast with spinners as without. What differs then is what the
//! guest's scheduler leaves to the design's process.

use super::measurement::{Measured, Measurement};
use super::options::Options;
use super::pin::Pinned;
use super::shown;
use crate::failure::Failure;
use crate::guest::engine::CardEngine;
use crate::guest::machine::Contents;
use crate::guest::rig::Rig;
use crate::guest::task::{DesignName, Item, Task};
use crate::harness::data::Direction;
use crate::harness::faults::Faults;
use crate::harness::figures::median;
use crate::report::Report;
use std::time::Duration;

/// Numbers of spinning processes, up to the papers' most.
const SPINNERS: [usize; 5] = [0, 1, 4, 12, 24];
/// Numbers of spinners that are measured repeatedly.
const ENDS: [usize; 2] = [0, 24];
/// Number of measurements of these.
const ROUNDS: usize = 3;
const OBJECTS: usize = 8;

/// Extent of the experiment.
struct Size {
    rounds: usize,
    /// Least time for which each is measured.
    lasting: Duration,
    /// Bytes of an object.
    length: u64,
    /// Transfers submitted before the first is done. A design that blocks has one.
    in_flight: usize,
}

/// Objects of 8 MiB: the guest's processor is ten to thirty times as slow as a real one, and a 25th of it has
/// to suffice for a design's software. With 4 MiB, twice the commands, the card's library needs more than
/// that, and keeps 0.82.
const WHOLE: Size = Size { rounds: ROUNDS, lasting: Duration::from_secs(3), length: 8 << 20, in_flight: 3 };
const QUICK: Size = Size { rounds: 1, lasting: Duration::from_millis(1500), length: 4 << 20, in_flight: 2 };

pub fn measure(options: &Options, report: &Report) -> Result<Measured, Failure> {
    let size = if options.quick { QUICK } else { WHOLE };
    let contents = Contents { send: vec![size.length; OBJECTS], receive: Vec::new() };
    let mut rig = Rig::boot(&contents, 1, (options.nic, &Faults::default(), CardEngine::Rust), report)?;
    let pinned = Pinned::new(&rig)?;
    if let Some(why) = pinned.missing() {
        report.remark(format_args!("dcs: {why}"));
    }
    let mut rows: Vec<Measurement> = Vec::new();
    for round in 0..size.rounds {
        let levels = if round == 0 && !options.quick { &SPINNERS[..] } else { &ENDS[..] };
        for who in DesignName::all(false, &[]) {
            let mut alone = None;
            for spinners in levels {
                let row = rig.run(task(who, *spinners, &size))?;
                let kept = row.mib_per_s() / *alone.get_or_insert(row.mib_per_s());
                add(&mut rows, Measurement::new(shown::CONTENTION, &row), kept);
            }
        }
    }
    drop(pinned);
    Ok((rows, rig.problems()))
}

fn task(who: DesignName, spinners: usize, size: &Size) -> Task {
    let item = |file| Item { direction: Direction::Send, file, length: size.length, at_ns: 0 };
    Task {
        lasting_ns: Some(size.lasting.as_nanos() as u64),
        in_flight: size.in_flight,
        spinners,
        ..Task::items(who, &[], (0..OBJECTS).map(item).collect())
    }
}

/// Adds a row, or another round to a row.
fn add(rows: &mut Vec<Measurement>, row: Measurement, kept: f64) {
    let is_it = |known: &&mut Measurement| known.by == row.by && known.spinners == row.spinners;
    let Some(known) = rows.iter_mut().find(is_it) else {
        return rows.push(Measurement { kept: Some(kept), rounds: vec![kept], ..row });
    };
    known.rounds.push(kept);
    known.kept = Some(median(known.rounds.iter().copied()));
    known.bytes_verified += row.bytes_verified;
    known.digests_verified += row.digests_verified;
    known.transfers += row.transfers;
    known.blocks = row.blocks.map(|blocks| blocks.and(known.blocks.unwrap_or_default()));
}
