//! Bandwidth beside processes of the guest that spin, of that beside none.
//!
//! The guest's processor has a core of the outer machine to itself; whatever else there is (QEMU's devices, the card, the client) has the others. A
//! process of the lowest priority keeps the guest's core busy where the guest leaves it idle, so that it is as fast with spinners as without.
//! What differs then is what the guest's scheduler leaves to the design's process.

use super::pin::Pinned;
use super::{Measured, Measurement, Options, shown};
use crate::failure::Failure;
use crate::report::Report;
use crate::server::machine::Contents;
use crate::server::rig::Rig;
use crate::server::task::{Direction, Item, Task, Who};
use std::time::Duration;

/// Processes that spin: the papers' most, and on the way there.
pub const SPINNERS: [usize; 5] = [0, 1, 4, 12, 24];
const QUICK: [usize; 2] = [0, 24];
/// How often all of it is measured, and how long each takes at least.
const ROUNDS: usize = 3;
const LASTING: Duration = Duration::from_secs(3);
const QUICKLY: Duration = Duration::from_millis(1500);
/// Objects, as long as in `dcs bench server contention`.
const OBJECTS: usize = 16;
const LENGTH: u64 = 4 << 20;
/// Transfers that are asked for before the first is done. Who blocks has one.
const IN_FLIGHT: usize = 4;

pub fn measure(options: &Options, report: &Report) -> Result<Measured, Failure> {
    let contents = Contents { send: vec![LENGTH; OBJECTS], receive: Vec::new() };
    let mut rig = Rig::boot(&contents, options.nic, report)?;
    let pinned = Pinned::new(&rig)?;
    if let Some(why) = pinned.missing() {
        report.remark(format_args!("dcs: {why}"));
    }
    let (spinners, rounds) = if options.quick { (&QUICK[..], 1) } else { (&SPINNERS[..], ROUNDS) };
    let lasting = if options.quick { QUICKLY } else { LASTING };
    let mut rows: Vec<Measurement> = Vec::new();
    for _ in 0..rounds {
        for who in Who::ALL {
            let mut alone = None;
            for spinners in spinners {
                let row = rig.run(task(who, *spinners, lasting))?;
                let alone = *alone.get_or_insert(row.mib_per_s());
                let kept = row.mib_per_s() / alone;
                let is_it =
                    |known: &&mut Measurement| known.by == who.name() && known.spinners == row.task.spinners;
                match rows.iter_mut().find(is_it) {
                    Some(known) => known.add(Measurement::new(shown::CONTENTION, &row), kept),
                    None => rows.push(Measurement {
                        kept: Some(kept),
                        rounds: vec![kept],
                        ..Measurement::new(shown::CONTENTION, &row)
                    }),
                }
            }
        }
    }
    drop(pinned);
    Ok((rows, rig.problems()))
}

fn task(who: Who, spinners: usize, lasting: Duration) -> Task {
    let item = |file| Item { direction: Direction::Send, file, length: LENGTH, at_ns: 0 };
    Task {
        lasting_ns: Some(lasting.as_nanos() as u64),
        in_flight: IN_FLIGHT,
        spinners,
        ..Task::items(who, &[], (0..OBJECTS).map(item).collect())
    }
}

impl Measurement {
    /// Another round of the same.
    fn add(&mut self, other: Measurement, kept: f64) {
        self.rounds.push(kept);
        self.kept = Some(median(&self.rounds));
        self.bytes_verified += other.bytes_verified;
        self.digests_verified += other.digests_verified;
        self.transfers += other.transfers;
    }
}

fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let at = values.len() / 2;
    match values.len() % 2 {
        0 => (values[at - 1] + values[at]) / 2.0,
        _ => values[at],
    }
}

#[cfg(test)]
mod tests {
    use super::median;

    #[test]
    fn a_median_is_in_the_middle() {
        assert_eq!((median(&[3.0, 1.0, 2.0]), median(&[4.0, 1.0]), median(&[7.0])), (2.0, 2.5, 7.0));
    }
}
