//! One to four sets of an SSD and a NIC on one card: guest CPU per GiB, and each set's share of the whole.
//!
//! Each set sends as much as one alone. Their total bandwidth means nothing: it is the speed at which this machine emulates them,
//! since all devices, the card and the client share its cores.

use super::measurement::{Measured, Measurement, Sets};
use super::options::Options;
use super::pin::Pinned;
use super::shown;
use crate::failure::Failure;
use crate::guest::engine::CardEngine;
use crate::guest::machine::Contents;
use crate::guest::rig::{Rig, Row};
use crate::guest::task::{Blocks, DesignName, Item, Stream, Task};
use crate::harness::data::Direction;
use crate::harness::faults::Faults;
use crate::harness::figures::median;
use crate::report::Report;

/// Designs, without peer-to-peer, which has an engine and a thread for each set as `software-nic` has.
const DESIGNS: [DesignName; 4] =
    [DesignName::Host, DesignName::SoftwareTcp, DesignName::SoftwareNic, DesignName::Card];
/// Connections of a set, the same number as in virtual time.
const STREAMS: usize = 2;

/// Extent of the experiment.
struct Size {
    rounds: usize,
    sets: &'static [usize],
    /// Files of each SSD.
    files: usize,
    /// Number of times that each file is sent over each connection.
    times: usize,
    /// Bytes of a file, and of a command.
    length: u64,
}

const WHOLE: Size = Size { rounds: 3, sets: &[1, 2, 3, 4], files: 4, times: 4, length: 4 << 20 };
const QUICK: Size = Size { rounds: 1, sets: &[1, 2], files: 4, times: 2, length: 1 << 20 };

pub fn measure(options: &Options, report: &Report) -> Result<Measured, Failure> {
    let size = if options.quick { QUICK } else { WHOLE };
    let contents = Contents { send: vec![size.length; size.files], receive: Vec::new() };
    let most = size.sets.iter().copied().max().unwrap_or(1);
    let mut rig = Rig::boot(&contents, most, (options.nic, &Faults::default(), CardEngine::Rust), report)?;
    let pinned = Pinned::new(&rig)?;
    let mut rounds = Vec::new();
    for _ in 0..size.rounds {
        for who in DESIGNS {
            for sets in size.sets {
                rounds.push(rig.run(task(who, *sets, &size))?);
            }
        }
    }
    drop(pinned);
    let all = DESIGNS.iter().flat_map(|who| size.sets.iter().map(move |sets| (*who, *sets)));
    let rows = all.filter_map(|(who, sets)| measurement(&rounds, who, sets)).collect();
    Ok((rows, rig.problems()))
}

fn task(who: DesignName, sets: usize, size: &Size) -> Task {
    let item = |number| Item {
        direction: Direction::Send,
        file: number % size.files,
        length: size.length,
        at_ns: 0,
    };
    let items = (0..size.files * size.times).map(item).collect();
    Task {
        streams: (0..STREAMS * sets).map(|stream| Stream::new(stream % sets)).collect(),
        // The card and the software have their next transfer before the last is done.
        in_flight: if who == DesignName::Host { 1 } else { 2 },
        ..Task::items(who, &[], items)
    }
}

/// Returns the rounds of a design with this many sets, as one row.
fn measurement(rounds: &[Row], who: DesignName, sets: usize) -> Option<Measurement> {
    let of = |count: usize| {
        let is_it = move |row: &&Row| row.task.who == who && row.task.sets() == count;
        rounds.iter().filter(is_it).collect::<Vec<_>>()
    };
    let (rows, alone) = (of(sets), of(1));
    let ratios: Vec<f64> = rows.iter().zip(&alone).map(|(row, alone)| row.cpu() / alone.cpu()).collect();
    let middle = |figure: fn(&Row) -> f64| median(rows.iter().map(|row| figure(row)));
    let shares: Vec<f64> = rows.iter().flat_map(|row| shares(&row.by_set)).collect();
    let sum = |figure: fn(&Row) -> u64| rows.iter().map(|row| figure(row)).sum();
    Some(Measurement {
        guest_cpu_s_per_gib: Some(middle(Row::cpu)),
        mib_per_s_in_qemu: middle(Row::mib_per_s),
        bytes_verified: sum(|row| row.bytes),
        digests_verified: sum(|row| row.digests),
        blocks: rows.iter().filter_map(|row| row.outcome.blocks).reduce(Blocks::and),
        transfers: rows.iter().map(|row| row.outcome.transfers.len()).sum(),
        sets: Some(Sets {
            count: sets,
            of_one_set: median(ratios.iter().copied()),
            guest_cpu_share: middle(Row::cpu_share),
            least: shares.iter().copied().fold(f64::INFINITY, f64::min),
            most: shares.iter().copied().fold(0.0, f64::max),
        }),
        rounds: ratios,
        ..Measurement::new(shown::SCALING, rows.first()?)
    })
}

/// Returns each set's part of an equal share.
fn shares(by_set: &[u64]) -> Vec<f64> {
    let equal = by_set.iter().sum::<u64>() as f64 / by_set.len() as f64;
    by_set.iter().map(|bytes| *bytes as f64 / equal).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_of_what_each_would_have() {
        assert_eq!(shares(&[100]), [1.0]);
        assert_eq!(shares(&[50, 150]), [0.5, 1.5]);
        assert_eq!(shares(&[90, 100, 110]), [0.9, 1.0, 1.1]);
    }

    #[test]
    fn each_set_has_its_streams_and_as_much_as_one_alone() {
        for sets in 1..=4 {
            let task = task(DesignName::Card, sets, &WHOLE);
            assert_eq!((task.sets(), task.streams.len()), (sets, STREAMS * sets));
            for set in 0..sets {
                assert_eq!(task.streams.iter().filter(|stream| stream.set == set).count(), STREAMS);
            }
            assert_eq!(task.items.len(), WHOLE.files * WHOLE.times);
        }
    }
}
