//! Bandwidth and CPU with contenders: 0 to 24 spinning processes (dissertation, figure 2.9), and processes that take memory
//! bandwidth (figure 2.10).

use super::load::{Direction, Load, Measured, run};
use super::{at_once, repeated};
use crate::design::Design;
use crate::experiments::figure::{Figure, Reach};
use crate::parameters::Parameters;
use dcs_abi::operator::Operator;

/// Numbers of spinning processes.
pub const SPINNERS: [usize; 5] = [0, 6, 12, 18, 24];
/// Numbers of processes that take memory bandwidth.
pub const CONTENDERS: [u64; 3] = [0, 1, 2];
/// Cores of DCS's host (table 2.3).
const CORES: usize = 2;

/// Row of one design with this many contenders.
#[derive(Clone, Debug)]
pub struct Row {
    /// Design.
    pub design: Design,
    /// Contenders.
    pub contenders: usize,
    /// Result of the measurement.
    pub measured: Measured,
}

/// Designs compared with spinners.
pub const DESIGNS: [Design; 4] =
    [Design::HostCentric, Design::Software { gpu: false }, Design::Integrated, Design::Card];
/// Designs compared under contention for memory: an integrated device cannot receive.
pub const RECEIVERS: [Design; 3] = [Design::HostCentric, Design::Software { gpu: false }, Design::Card];

fn parameters(parameters: Parameters) -> Parameters {
    Parameters { cores: CORES, ..parameters }
}

/// Sends from SSD to NIC: one process, `count` objects of 4 MiB, two cores, 10 Gb/s.
pub fn cpu(given: Parameters, count: u64) -> Vec<Row> {
    let of = |design, spinners| {
        let requests = repeated(count, at_once(Direction::Send, 4 << 20));
        let load = Load { parameters: parameters(given), spinners, ..Load::new(design, requests) };
        Row { design, contenders: spinners, measured: run(&load) }
    };
    DESIGNS.iter().flat_map(|design| SPINNERS.map(|spinners| of(*design, spinners))).collect()
}

/// Receives from NIC to CRC32 to SSD, which copies in every design but the card's, with processes that each take an even share of
/// host memory's bandwidth.
pub fn memory(given: Parameters, count: u64) -> Vec<Row> {
    let of = |design, contenders: u64| {
        let request = at_once(Direction::Receive, 4 << 20);
        let requests = repeated(count, super::load::Request { operator: Some(Operator::Crc32), ..request });
        let load = Load {
            parameters: parameters(given),
            memory_contenders: contenders,
            ..Load::new(design, requests)
        };
        Row { design, contenders: contenders as usize, measured: run(&load) }
    };
    RECEIVERS.iter().flat_map(|design| CONTENDERS.map(|contenders| of(*design, contenders))).collect()
}

/// Returns the bandwidth with this many contenders, relative to that without.
fn kept(rows: &[Row], design: Design, contenders: usize) -> f64 {
    let of = |contenders| {
        let row = rows.iter().find(|row| row.design == design && row.contenders == contenders);
        row.expect("it was measured").measured.gbps()
    };
    of(contenders) / of(0)
}

/// Returns the figures of [`cpu`].
pub fn cpu_figures(rows: &[Row]) -> Vec<Figure> {
    let figure =
        |what, design, paper, reach, why| Figure { what, ours: kept(rows, design, 24), paper, reach, why };
    vec![
        figure(
            "bandwidth beside 24 spinners, card",
            Design::Card,
            Some(0.71),
            Some(Reach::AtLeast(0.95)),
            "The paper's loss is its NetFPGA driver's interrupts; here the host submits one command for 4 MiB and gets one interrupt.",
        ),
        figure(
            "bandwidth beside 24 spinners, host-centric",
            Design::HostCentric,
            Some(0.14),
            None,
            "The paper's figure is for 10 Gb/s too (slides of 2018: 14 %). The thread gets its share of two cores among 25; what interrupts do, and what a sleeper is credited, comes on top.",
        ),
        figure(
            "bandwidth beside 24 spinners, software-optimised",
            Design::Software { gpu: false },
            None,
            None,
            "",
        ),
    ]
}

/// Returns the figures of [`memory`].
pub fn memory_figures(rows: &[Row]) -> Vec<Figure> {
    let figure =
        |what, design, paper, why| Figure { what, ours: kept(rows, design, 1), paper, reach: None, why };
    vec![
        figure("bandwidth beside one that takes memory bandwidth, card", Design::Card, Some(1.0), ""),
        figure(
            "bandwidth beside one that takes memory bandwidth, host-centric",
            Design::HostCentric,
            Some(0.713),
            "The paper sends by sendfile, which does not copy, and loses by cache misses; here caches are not modelled, and what is received and checksummed is copied twice.",
        ),
    ]
}
