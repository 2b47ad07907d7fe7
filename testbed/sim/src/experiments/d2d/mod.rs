//! D2D streams: latency of a packet from NIC to NIC compared with descriptor DMA, the share of the wire that an SSD and a NIC
//! fill, and the punctuality of many videos (Larsen et al., "Direct Device-to-Device Transfer Protocol", figures 8, 9 and 11).

mod latency;
mod streams;
mod utilization;

pub use latency::{Design, Latency};
pub use streams::{Pace, Throughput};
pub use utilization::Utilization;

use crate::experiments::figure::{Figure, Reach};
use crate::parameters::Parameters;

/// All measurements.
#[derive(Clone, Debug)]
pub struct Rows {
    /// Latencies of a packet from wire to wire.
    pub latency: Vec<Latency>,
    /// Throughput of streams at full speed.
    pub throughput: Vec<Throughput>,
    /// Videos of 7.82 Mb/s.
    pub pace: Vec<Pace>,
    /// The processor's part in the videos.
    pub utilization: Vec<Utilization>,
}

/// Bytes of the measured frames, without the check sequence: the shortest, and one with a packet of 1,500 bytes.
pub const FRAMES: [usize; 2] = [60, 1514];

/// Measures everything, videos for that many milliseconds.
///
/// # Panics
///
/// If a byte is wrong.
pub fn measure(parameters: Parameters, milliseconds: u64) -> Rows {
    let designs = [Design::Application, Design::Routed, Design::D2d];
    let latency =
        FRAMES.iter().flat_map(|frame| designs.map(|design| latency::measure(parameters, design, *frame)));
    let pace = [1, 120, 1000].map(|count| streams::pace(count, milliseconds));
    let utilization =
        designs.iter().flat_map(|design| pace.iter().map(|pace| utilization::of(&parameters, *design, pace)));
    Rows {
        latency: latency.collect(),
        throughput: [10, 100].map(streams::throughput).into(),
        utilization: utilization.collect(),
        pace: pace.into(),
    }
}

/// Returns the figures of [`measure`].
pub fn figures(rows: &Rows) -> Vec<Figure> {
    let total = |design: Design, frame: usize| {
        let row = rows.latency.iter().find(|row| (row.design, row.frame) == (design, frame));
        row.expect("it was measured").total as f64
    };
    let (small, large) = (FRAMES[0], FRAMES[1]);
    let share = |gbps| rows.throughput.iter().find(|row| row.gbps == gbps).expect("it was measured").share();
    let pace = |streams| rows.pace.iter().find(|row| row.streams == streams).expect("it was measured");
    let utilization = |design: Design| {
        let row = rows.utilization.iter().find(|row| (row.design, row.streams) == (design, 120));
        row.expect("it was measured").share
    };
    let figure = |what, ours, paper, reach, why| Figure { what, ours, paper, reach, why };
    vec![
        figure(
            "NIC -> NIC, a packet of 1,500 bytes, latency, D2D / descriptor DMA by an application",
            total(Design::D2d, large) / total(Design::Application, large),
            Some(0.42),
            Some(Reach::AtMost(0.35)),
            "The paper's descriptor DMA is of 64 bytes, its D2D of 1,500. Both ends' wires are counted here.",
        ),
        figure(
            "the same, beside descriptor DMA by the kernel's routing",
            total(Design::D2d, large) / total(Design::Routed, large),
            None,
            None,
            "No process is woken; of 1,500 bytes the two wires are most of what D2D takes.",
        ),
        figure(
            "a frame of 64 bytes, latency, descriptor DMA by an application / D2D",
            total(Design::Application, small) / total(Design::D2d, small),
            Some(9.0),
            Some(Reach::AtLeast(9.0)),
            "\"Up to 9 times\"; the paper did not measure it by itself.",
        ),
        figure(
            "SSD -> NIC, 8 streams as fast as they go, of a wire of 10 Gb/s",
            share(10),
            Some(0.092),
            Some(Reach::AtLeast(0.99)),
            "The paper's board stops at 922 Mb/s; its router of two common NICs has 9.8 Gb/s.",
        ),
        figure(
            "the same, of a wire of 100 Gb/s",
            share(100),
            None,
            Some(Reach::AtLeast(0.99)),
            "With links and a medium that are fast enough.",
        ),
        figure(
            "120 videos of 7.82 Mb/s: interrupts, and bytes that devices moved to or from host memory",
            (pace(120).interrupts + pace(120).host_bytes) as f64,
            Some(0.0),
            Some(Reach::AtMost(0.0)),
            "",
        ),
        figure(
            "120 videos through a router, CPU of a core: descriptor DMA by the kernel's routing",
            utilization(Design::Routed),
            Some(0.72),
            None,
            "The paper's 18 % of four cores have drivers and interrupts of 2013 in them; here it is the stack's time alone.",
        ),
        figure("the same, D2D", utilization(Design::D2d), Some(0.0), Some(Reach::AtMost(0.0)), ""),
        figure(
            "120 videos: the latest datagram, after its due time, ms",
            pace(120).most as f64 / 1e6,
            None,
            Some(Reach::AtMost(1.0)),
            "A slot is 1 ms.",
        ),
        figure(
            "1,000 videos: the latest datagram, after its due time, ms",
            pace(1000).most as f64 / 1e6,
            None,
            Some(Reach::AtMost(1.0)),
            "They fill 0.83 of the wire.",
        ),
    ]
}
