//! An object server: GET and PUT of many sizes with MD5, Poisson arrivals, CPU at equal throughput (dissertation, figure 3.12a).
//!
//! The dissertation takes the mix of Drago et al. (IMC 2012) without stating it, and its text was not at hand here. What is taken instead is
//! said at each constant.

use super::load::{Direction, Load, Measured, Request, run};
use crate::design::Design;
use crate::experiments::figure::{Figure, Reach};
use crate::parameters::Parameters;
use dcs_abi::operator::Operator;

/// GETs of 100 requests: assumed; more is retrieved than stored.
pub const GETS: u64 = 60;
/// Sizes are 4 KiB times a power of two up to 4 MiB, the largest chunk of the service that was measured; all equally likely: assumed.
pub const SIZES: u32 = 11;
/// Gb/s that are asked for: well below what every design can do.
pub const RATE: f64 = 4.0;
/// Connections, each with a thread.
const CONNECTIONS: usize = 8;

/// One design.
#[derive(Clone, Debug)]
pub struct Row {
    /// Which.
    pub design: Design,
    /// What came of it.
    pub measured: Measured,
}

/// `count` requests, the same for whoever asks.
pub fn requests(count: usize) -> Vec<Request> {
    let mut state = 0x2545_f491_4f6c_dd1du64;
    let mut draw = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 11
    };
    let mean: f64 = (0..SIZES).map(|power| (4096u64 << power) as f64).sum::<f64>() / f64::from(SIZES);
    // Nanoseconds from one arrival to the next, on average.
    let interval = mean * 8.0 / RATE;
    let mut at = 0.0;
    (0..count)
        .map(|_| {
            let uniform = (draw() + 1) as f64 / (1u64 << 53) as f64;
            at += -uniform.ln() * interval;
            let direction = if draw() % 100 < GETS { Direction::Send } else { Direction::Receive };
            let length = 4096 << (draw() % u64::from(SIZES));
            Request { at: at as u64, direction, length, operator: Some(Operator::Md5) }
        })
        .collect()
}

/// The designs that are compared. The processor does MD5 where there is no GPU.
pub const DESIGNS: [Design; 5] = [
    Design::HostCentric,
    Design::Software { gpu: false },
    Design::Software { gpu: true },
    Design::PeerToPeer,
    Design::Card,
];

/// All designs, the same requests.
pub fn measure(parameters: Parameters, count: usize) -> Vec<Row> {
    let of = |design: &Design| {
        let load = Load {
            connections: CONNECTIONS,
            application: true,
            parameters,
            ..Load::new(*design, requests(count))
        };
        Row { design: *design, measured: run(&load) }
    };
    DESIGNS.iter().map(of).collect()
}

fn cpu(rows: &[Row], design: Design) -> f64 {
    rows.iter().find(|row| row.design == design).expect("it was measured").measured.cpu_s_per_gib()
}

/// What [`measure`] comes to.
pub fn figures(rows: &[Row]) -> Vec<Figure> {
    let ratio = |other| cpu(rows, Design::Card) / cpu(rows, other);
    vec![
        Figure {
            what: "CPU at equal throughput, object server, card / software-optimised",
            ours: ratio(Design::Software { gpu: true }),
            paper: Some(0.48),
            reach: Some(Reach::AtMost(0.3)),
            why: "What is left is the request itself, the same in every design; Swift's takes much more (Python), and so the paper's ratio is nearer to one.",
        },
        Figure {
            what: "CPU at equal throughput, object server, card / software-controlled P2P",
            ours: ratio(Design::PeerToPeer),
            paper: Some(0.5),
            reach: None,
            why: "As above.",
        },
        Figure {
            what: "CPU at equal throughput, object server, card / host-centric",
            ours: ratio(Design::HostCentric),
            paper: None,
            reach: None,
            why: "",
        },
    ]
}
