//! One object of 512 MiB, encrypted and sent (dissertation, figure 2.12).

use super::load::{Direction, Load, Measured, Request, run};
use crate::design::Design;
use crate::experiments::figure::Figure;
use crate::parameters::Parameters;
use dcs_abi::operator::Operator;

/// Bytes of the object in the paper.
pub const LENGTH: u64 = 512 << 20;

/// One design.
#[derive(Clone, Debug)]
pub struct Row {
    /// Design.
    pub design: Design,
    /// Result of the measurement.
    pub measured: Measured,
}

/// Designs to compare.
pub const DESIGNS: [Design; 5] = [
    Design::HostCentric,
    Design::Software { gpu: false },
    Design::Software { gpu: true },
    Design::PeerToPeer,
    Design::Card,
];

/// Measures all designs. The peer decrypts and compares every byte.
pub fn measure(parameters: Parameters, length: u64) -> Vec<Row> {
    let request = Request { at: 0, direction: Direction::Send, length, operator: Some(Operator::Aes256Ctr) };
    let of = |design: &Design| {
        let load = Load { parameters, ..Load::new(*design, vec![request]) };
        Row { design: *design, measured: run(&load) }
    };
    DESIGNS.iter().map(of).collect()
}

/// Returns the figures of [`measure`].
pub fn figures(rows: &[Row]) -> Vec<Figure> {
    let of =
        |design: Design| &rows.iter().find(|row| row.design == design).expect("it was measured").measured;
    let time = |design| of(Design::Card).time as f64 / of(design).time as f64;
    let cpu = |design| of(Design::Card).cpu_s_per_gib() / of(design).cpu_s_per_gib();
    let software = Design::Software { gpu: true };
    vec![
        Figure {
            what: "time of an encrypted sendfile at 10 Gb/s, card / software-optimised (GPU)",
            ours: time(software),
            paper: Some(0.62),
            reach: None,
            why: "The paper loads the whole object, encrypts it, then sends it, one step after the other; here the steps overlap in every design, and the wire is what limits them.",
        },
        Figure {
            what: "CPU of an encrypted sendfile, card / software-optimised (GPU)",
            ours: cpu(software),
            paper: None,
            reach: None,
            why: "",
        },
        Figure {
            what: "CPU of an encrypted sendfile, card / software-optimised (CPU)",
            ours: cpu(Design::Software { gpu: false }),
            paper: None,
            reach: None,
            why: "",
        },
    ]
}
