//! One to four sets of an SSD and a NIC: bandwidth and CPU (dissertation, figure 2.14).

use super::load::{Direction, Load, Measured, run};
use super::{at_once, repeated};
use crate::design::Design;
use crate::experiments::figure::{Figure, Reach};
use crate::parameters::Parameters;

/// Numbers of sets.
pub const SETS: [usize; 4] = [1, 2, 3, 4];

/// Row of one design with this many sets.
#[derive(Clone, Debug)]
pub struct Row {
    /// Design.
    pub design: Design,
    /// Sets.
    pub sets: usize,
    /// Result of the measurement.
    pub measured: Measured,
}

/// Designs to compare.
pub const DESIGNS: [Design; 3] = [Design::HostCentric, Design::Software { gpu: false }, Design::Card];

/// Sends from SSD to NIC: two connections per set, `count` objects of 4 MiB per set, two cores as in DCS's host. Links are PCIe
/// 3.0 x16: four NICs of 10 Gb/s need more than the prototype's 2.0 x8.
pub fn measure(parameters: Parameters, count: u64) -> Vec<Row> {
    let parameters = Parameters { cores: 2, ..parameters };
    let of = |design, sets| {
        let requests = repeated(count, at_once(Direction::Send, 4 << 20));
        let load = Load { parameters, sets, connections: 2, fast_links: true, ..Load::new(design, requests) };
        Row { design, sets, measured: run(&load) }
    };
    DESIGNS.iter().flat_map(|design| SETS.map(|sets| of(*design, sets))).collect()
}

/// Returns the figures of [`measure`].
pub fn figures(rows: &[Row]) -> Vec<Figure> {
    let of = |design: Design, sets: usize| {
        let row = rows.iter().find(|row| (row.design, row.sets) == (design, sets));
        &row.expect("it was measured").measured
    };
    let linear = |design| of(design, 4).gbps() / (4.0 * of(design, 1).gbps());
    let card = Design::Card;
    let figure = |what, ours, paper, reach, why| Figure { what, ours, paper, reach, why };
    vec![
        figure(
            "bandwidth of 4 sets, of 4 times that of one, card",
            linear(card),
            Some(1.0),
            Some(Reach::AtLeast(0.95)),
            "The paper has two sets of 1 Gb/s.",
        ),
        figure(
            "bandwidth of 4 sets, of 4 times that of one, host-centric",
            linear(Design::HostCentric),
            None,
            None,
            "Two cores are not enough; in the paper they are not for two sets of 1 Gb/s.",
        ),
        figure(
            "CPU seconds a GiB, 4 sets / one, card",
            of(card, 4).cpu_s_per_gib() / of(card, 1).cpu_s_per_gib(),
            None,
            Some(Reach::AtMost(1.05)),
            "What a transfer costs the host does not depend on how many there are.",
        ),
        figure("cores that 4 sets keep busy, card", of(card, 4).cores(), None, Some(Reach::AtMost(0.05)), ""),
    ]
}
