//! An object server: the requests of `dcs bench sim object`, more slowly, one after the other.

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
use dcs_sim::experiments::load;
use dcs_sim::experiments::object::{MIX, Mix, OTHERS, requests};

/// Requests of the mix.
const COUNT: usize = 160;
/// Requests of the mix with small objects only.
const SMALL: usize = 80;
const QUICK: usize = 24;
/// Requests over which system calls are counted.
const SAMPLE: usize = 24;
/// Load in MiB per second, well below what any design can sustain in QEMU.
const MIB_PER_S: f64 = 8.0;
const SMALL_MIB_PER_S: f64 = 0.5;

pub fn measure(options: &Options, report: &Report) -> Result<Measured, Failure> {
    let mut contents = Contents::default();
    let small = OTHERS.iter().find(|mix| mix.sizes < MIX.sizes && mix.smallest == MIX.smallest);
    let mut jobs = vec![(
        MIX.name,
        MIB_PER_S,
        items(MIX, if options.quick { QUICK } else { COUNT }, MIB_PER_S, &mut contents),
    )];
    if let Some(mix) = small.filter(|_| !options.quick) {
        jobs.push((mix.name, SMALL_MIB_PER_S, items(*mix, SMALL, SMALL_MIB_PER_S, &mut contents)));
    }
    let mut rig = Rig::boot(&contents, 1, (options.nic, &Faults::default(), CardEngine::Rust), report)?;
    let mut all = Vec::new();
    for (name, rate, items) in jobs {
        let run = |who| rig.run_and_trace(Task::items(who, &["md5"], items.clone()), SAMPLE);
        let rows = DesignName::all(true, &["md5"]).map(run).collect::<Result<Vec<_>, _>>()?;
        all.extend(measurement::rows(shown::OBJECT, name, rate, &rows));
    }
    Ok((all, rig.problems()))
}

/// Returns the requests, each with a file of its own.
fn items(mix: Mix, count: usize, mib_per_s: f64, contents: &mut Contents) -> Vec<Item> {
    let slower = mix.rate as f64 * 1e6 / 8.0 / (mib_per_s * (1u64 << 20) as f64);
    let item = |request: &load::Request| {
        let (direction, files) = match request.direction {
            load::Direction::Send => (Direction::Send, &mut contents.send),
            load::Direction::Receive => (Direction::Receive, &mut contents.receive),
        };
        files.push(request.length);
        let at_ns = (request.at as f64 * slower) as u64;
        Item { direction, file: files.len() - 1, length: request.length, at_ns }
    };
    requests(mix, count).iter().map(item).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_come_to_the_rate_and_every_object_has_a_file() {
        let mut contents = Contents::default();
        let items = items(MIX, 1000, MIB_PER_S, &mut contents);
        let bytes: u64 = items.iter().map(|item| item.length).sum();
        let rate = bytes as f64 / (items.last().unwrap().at_ns as f64 / 1e9) / (1u64 << 20) as f64;
        assert!((0.8..1.25).contains(&(rate / MIB_PER_S)), "{rate}");
        assert_eq!(contents.send.len() + contents.receive.len(), 1000);
        for item in items {
            let files = if item.direction == Direction::Send { &contents.send } else { &contents.receive };
            assert_eq!(files[item.file], item.length);
            assert_eq!(item.length % 4096, 0);
        }
    }
}
