//! An object server: GET and PUT of many sizes with MD5, Poisson arrivals, CPU at equal throughput
//! (dissertation, figure 3.12a).
//!
//! The dissertation uses the mix of Drago et al. (IMC 2012) without stating it, and their text was not available. Each constant
//! states the substitute.

use super::load::{Direction, Load, Measured, Request, run};
use crate::design::Design;
use crate::experiments::figure::{Figure, Reach};
use crate::parameters::Parameters;
use dcs_abi::operator::Operator;
use dcs_engine::Nanos;

/// A mix of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mix {
    /// Name for people.
    pub name: &'static str,
    /// Percentage of GETs.
    pub gets: u64,
    /// Bytes of the smallest objects.
    pub smallest: u64,
    /// Number of sizes, each twice the one before, all equally likely.
    pub sizes: u32,
    /// Load in Mb/s, well below what any design can sustain.
    pub rate: u64,
}

/// The mix, all of it assumed: more objects are retrieved than stored; the largest are as large as the largest chunk of the
/// measured service.
pub const MIX: Mix =
    Mix { name: "60 % GET, 4 KiB to 4 MiB", gets: 60, smallest: 4096, sizes: 11, rate: 4000 };
/// Other mixes, since [`MIX`] is assumed.
pub const OTHERS: [Mix; 4] = [
    Mix { name: "GET alone", gets: 100, ..MIX },
    Mix { name: "PUT alone", gets: 0, ..MIX },
    Mix { name: "4 to 64 KiB", sizes: 5, rate: 1000, ..MIX },
    Mix { name: "1 to 4 MiB", smallest: 1 << 20, sizes: 3, ..MIX },
];
/// Connections, each with a thread.
const CONNECTIONS: usize = 8;

/// One design.
#[derive(Clone, Debug)]
pub struct Row {
    /// Design.
    pub design: Design,
    /// Mix of the requests.
    pub mix: Mix,
    /// Number of requests.
    pub requests: usize,
    /// Time of each request apart from its data, in nanoseconds.
    pub request: Nanos,
    /// Result of the measurement.
    pub measured: Measured,
}

/// Returns `count` requests of a mix, the same for all designs.
pub fn requests(mix: Mix, count: usize) -> Vec<Request> {
    let mut state = 0x2545_f491_4f6c_dd1du64;
    let mut draw = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 11
    };
    let mean: f64 =
        (0..mix.sizes).map(|power| (mix.smallest << power) as f64).sum::<f64>() / f64::from(mix.sizes);
    // Average nanoseconds from one arrival to the next.
    let interval = mean * 8000.0 / mix.rate as f64;
    let mut at = 0.0;
    (0..count)
        .map(|_| {
            let uniform = (draw() + 1) as f64 / (1u64 << 53) as f64;
            at += -uniform.ln() * interval;
            let direction = if draw() % 100 < mix.gets { Direction::Send } else { Direction::Receive };
            let length = mix.smallest << (draw() % u64::from(mix.sizes));
            Request { at: at as u64, direction, length, operator: Some(Operator::Md5) }
        })
        .collect()
}

/// Designs to compare. The processor computes MD5 if there is no GPU.
pub const DESIGNS: [Design; 5] = [
    Design::HostCentric,
    Design::Software { gpu: false },
    Design::Software { gpu: true },
    Design::PeerToPeer,
    Design::Card,
];

/// Designs whose ratio has a target.
const COMPARED: [Design; 2] = [Design::Software { gpu: true }, Design::Card];

/// Measures all designs with the same requests; and, for other mixes, the two designs to compare with a third of the requests.
pub fn measure(parameters: Parameters, count: usize) -> Vec<Row> {
    let of = |design: Design, mix: Mix, count| {
        let load = Load {
            connections: CONNECTIONS,
            application: true,
            parameters,
            ..Load::new(design, requests(mix, count))
        };
        Row { design, mix, requests: count, request: parameters.request, measured: run(&load) }
    };
    let others = OTHERS.iter().flat_map(|mix| COMPARED.map(|design| of(design, *mix, count / 3)));
    DESIGNS.iter().map(|design| of(*design, MIX, count)).chain(others).collect()
}

fn cpu(rows: &[Row], design: Design, mix: Mix) -> f64 {
    let row = rows.iter().find(|row| row.design == design && row.mix == mix);
    row.expect("it was measured").measured.cpu_s_per_gib()
}

/// Returns the microseconds per request, apart from its data, at which the ratio would be 0.3 if every design took them.
fn longest_request(rows: &[Row]) -> f64 {
    let row = rows.iter().find(|row| row.design == Design::Card && row.mix == MIX).expect("it was measured");
    let (card, software) = (row.measured.cpu_s_per_gib(), cpu(rows, COMPARED[0], MIX));
    let requests_per_gib = (1u64 << 30) as f64 * row.requests as f64 / row.measured.bytes as f64;
    // (card + more) / (software + more) = 0.3
    let more = (0.3 * software - card) / 0.7 / requests_per_gib;
    row.request as f64 / 1e3 + more * 1e6
}

/// Returns the figures of [`measure`].
pub fn figures(rows: &[Row]) -> Vec<Figure> {
    let ratio = |other| cpu(rows, Design::Card, MIX) / cpu(rows, other, MIX);
    let of_mix = |mix| cpu(rows, Design::Card, mix) / cpu(rows, COMPARED[0], mix);
    vec![
        Figure {
            what: "CPU at equal throughput, object server, card / software-optimised",
            ours: ratio(Design::Software { gpu: true }),
            paper: Some(0.48),
            reach: Some(Reach::AtMost(0.3)),
            why: "What is left is the request itself, the same in every design; Swift's takes much more (Python), and so the paper's ratio is nearer to one.",
        },
        Figure {
            what: "the same, the largest of four other mixes",
            ours: OTHERS.map(of_mix).into_iter().fold(0.0, f64::max),
            paper: Some(0.48),
            reach: None,
            why: "The mix is assumed: the table has what others come to. Of small objects the request itself is most of what is left.",
        },
        Figure {
            what: "us that a request may take beside its data for a ratio of 0.3",
            ours: longest_request(rows),
            paper: None,
            reach: None,
            why: "A request is assumed to take 20 us in every design; the longer it takes, the nearer the ratio is to one.",
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
