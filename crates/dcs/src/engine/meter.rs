//! The load of each of an engine's cores, and the choice of one by it.
//!
//! A session is opened on the core with the least load: transfers in flight and open sessions, one for one.
//! A transfer of a [`Spread`](super::Spread) goes to the core with the least load too, but for one exception,
//! gathering: where its chain has an operator whose unit takes many streams side by side, it goes to the core
//! that has most such streams, as long as that has a lane free. A pass costs about the same however few lanes
//! are filled, so streams that are spread thinly cost each core what they would cost one.

use dcs_abi::operator::OPERATORS;
use dcs_ndp::Lanes;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A unit that takes several streams side by side: its operator's number in chains, and its lanes.
type Unit = (u8, usize);

/// The units of this machine, that with most lanes first.
static UNITS: LazyLock<Vec<Unit>> = LazyLock::new(|| {
    let unit = |operator| (operator as u8, Lanes::detect(operator).count());
    let mut units: Vec<Unit> = OPERATORS.iter().map(|info| unit(info.operator)).collect();
    units.retain(|(_, lanes)| *lanes > 1);
    units.sort_by_key(|(_, lanes)| std::cmp::Reverse(*lanes));
    units
});

/// The place in [`UNITS`] of each number of a chain; [`NO_UNIT`] where it has none.
static PLACES: LazyLock<[u8; 256]> = LazyLock::new(|| {
    let mut places = [NO_UNIT; 256];
    UNITS.iter().enumerate().for_each(|(at, (number, _))| places[*number as usize] = at as u8);
    places
});

const NO_UNIT: u8 = u8::MAX;

/// The place in [`UNITS`] of the widest unit that a chain of these operators (then zeros) goes through.
fn unit_of(chain: impl Iterator<Item = u8>) -> Option<usize> {
    let places = &*PLACES;
    let widest = chain.take_while(|number| *number != 0).map(|number| places[number as usize]).min()?;
    (widest != NO_UNIT).then_some(widest as usize)
}

/// The load of one core. Both sides of its sessions count.
#[derive(Debug)]
pub(crate) struct Meter {
    sessions: AtomicUsize,
    transfers: AtomicUsize,
    /// Transfers of each of [`UNITS`].
    streams: Box<[AtomicUsize]>,
}

impl Default for Meter {
    fn default() -> Meter {
        let streams = UNITS.iter().map(|_| AtomicUsize::new(0)).collect();
        Meter { sessions: AtomicUsize::new(0), transfers: AtomicUsize::new(0), streams }
    }
}

impl Meter {
    pub fn open(&self) {
        self.sessions.fetch_add(1, Ordering::Relaxed);
    }

    pub fn close(&self) {
        self.sessions.fetch_sub(1, Ordering::Relaxed);
    }

    /// A transfer through these operators (numbers, then zeros) is submitted.
    #[inline]
    pub fn begin(&self, chain: &[u8]) {
        self.transfers.fetch_add(1, Ordering::Relaxed);
        if let Some(unit) = unit_of(chain.iter().copied()) {
            self.streams[unit].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// It has ended.
    #[inline]
    pub fn end(&self, chain: &[u8]) {
        self.transfers.fetch_sub(1, Ordering::Relaxed);
        if let Some(unit) = unit_of(chain.iter().copied()) {
            self.streams[unit].fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Transfers in flight.
    pub fn transfers(&self) -> usize {
        self.transfers.load(Ordering::Relaxed)
    }

    /// Transfers in flight and open sessions.
    pub fn load(&self) -> usize {
        self.transfers() + self.sessions.load(Ordering::Relaxed)
    }

    fn streams(&self, unit: usize) -> usize {
        self.streams[unit].load(Ordering::Relaxed)
    }
}

/// The cores by their load, the least first; of equal ones that with the lower number.
pub(super) fn by_load<'a>(meters: impl Iterator<Item = &'a Meter>) -> Vec<usize> {
    let loads: Vec<usize> = meters.map(Meter::load).collect();
    let mut order: Vec<usize> = (0..loads.len()).collect();
    order.sort_by_key(|at| loads[*at]);
    order
}

/// The core for a transfer through a chain of these operators, among those with room for it (number, meter).
pub(super) fn place<'a>(
    cores: impl Iterator<Item = (usize, &'a Meter)> + Clone,
    chain: impl Iterator<Item = u8> + Clone,
    gather: bool,
) -> Option<usize> {
    let unit = if gather { unit_of(chain) } else { None };
    let joined = unit.and_then(|unit| {
        let lanes = UNITS[unit].1;
        let fill = cores.clone().map(|(core, meter)| (meter.streams(unit), core));
        let free = fill.filter(|(streams, _)| (1..lanes).contains(streams));
        free.max_by_key(|(streams, core)| (*streams, std::cmp::Reverse(*core)))
    });
    match joined {
        Some((_, core)) => Some(core),
        None => cores.min_by_key(|(core, meter)| (meter.transfers(), *core)).map(|(core, _)| core),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dcs_testkit::Random;

    const CRC: [u8; 2] = [dcs_abi::operator::Operator::Crc32c as u8, 0];

    fn meters(count: usize) -> Vec<Meter> {
        (0..count).map(|_| Meter::default()).collect()
    }

    fn pick(meters: &[Meter], chain: &[u8], gather: bool) -> usize {
        place(meters.iter().enumerate(), chain.iter().copied(), gather).unwrap()
    }

    /// Whatever came and went: the core of a new transfer has no more in flight than any other, unless it
    /// joins streams that share its lanes; and then none of the others that have a lane free has more of
    /// them.
    #[test]
    fn a_transfer_goes_where_least_is_or_where_its_lanes_are() {
        let mut random = Random(22);
        let kinds: Vec<[u8; 2]> = UNITS.iter().map(|(number, _)| [*number, 0]).chain([CRC, [0; 2]]).collect();
        for _ in 0..50 {
            let cores = meters(1 + random.index(5));
            let mut flying: Vec<(usize, [u8; 2])> = Vec::new();
            for _ in 0..400 {
                if random.below(5) < 2 && !flying.is_empty() {
                    let (core, chain) = flying.swap_remove(random.index(flying.len()));
                    cores[core].end(&chain);
                    continue;
                }
                let chain = *random.pick(&kinds);
                let at = pick(&cores, &chain, true);
                let least = cores.iter().map(Meter::transfers).min().unwrap();
                match unit_of(chain.into_iter()).map(|unit| (unit, UNITS[unit].1)) {
                    Some((unit, lanes)) if (1..lanes).contains(&cores[at].streams(unit)) => {
                        let fills = cores.iter().map(|core| core.streams(unit));
                        let most = fills.filter(|streams| *streams < lanes).max().unwrap();
                        assert_eq!(cores[at].streams(unit), most);
                    }
                    Some((unit, lanes)) => {
                        assert_eq!(cores[at].transfers(), least);
                        let free = |core: &Meter| (1..lanes).contains(&core.streams(unit));
                        assert!(!cores.iter().any(free));
                    }
                    None => assert_eq!(cores[at].transfers(), least),
                }
                cores[at].begin(&chain);
                flying.push((at, chain));
            }
            for (core, chain) in flying {
                cores[core].end(&chain);
            }
            assert!(cores.iter().all(|core| core.load() == 0));
        }
    }

    #[test]
    fn streams_of_one_unit_fill_a_core_before_the_next() {
        let Some((number, lanes)) = UNITS.first().copied() else { return };
        let cores = meters(3);
        let chain = [number, 0];
        for at in 0..3 * lanes {
            let core = pick(&cores, &chain, true);
            assert_eq!(core, at / lanes);
            cores[core].begin(&chain);
        }
        // All lanes are full: then it is by load.
        cores[2].end(&chain);
        cores[2].end(&chain);
        cores[2].begin(&CRC);
        assert_eq!(pick(&cores, &chain, true), 2);
    }

    #[test]
    fn without_gathering_streams_spread() {
        let cores = meters(2);
        let chain = [UNITS.first().map_or(CRC[0], |unit| unit.0), 0];
        for at in 0..10 {
            let core = pick(&cores, &chain, false);
            assert_eq!(core, at % 2);
            cores[core].begin(&chain);
        }
    }

    #[test]
    fn sessions_and_transfers_are_load() {
        let cores = meters(3);
        cores[0].open();
        cores[1].begin(&CRC);
        cores[1].begin(&CRC);
        assert_eq!(by_load(cores.iter()), [2, 0, 1]);
        cores[2].open();
        cores[2].open();
        cores[2].open();
        assert_eq!(by_load(cores.iter()), [0, 1, 2]);
        cores[2].close();
        cores[2].close();
        cores[2].close();
        assert_eq!(by_load(cores.iter()), [2, 0, 1]);
    }
}
