//! The HDFS balancer: a sender (SSD to NIC) and a receiver (NIC to CRC32 to SSD), CPU at equal throughput
//! (dissertation, figure 3.12b).

use super::load::{Direction, Load, Measured, Request, run};
use crate::design::Design;
use crate::experiments::figure::{Figure, Reach};
use crate::parameters::Parameters;
use dcs_abi::operator::Operator;

/// Bytes of a piece. HDFS's blocks are larger, but pieces only need to be large.
pub const LENGTH: u64 = 8 << 20;
/// Load in Gb/s, which every design can sustain.
pub const RATE: u64 = 3;
/// Concurrent movers: dfs.datanode.balance.max.concurrent.moves was 5 in the Hadoop of the time.
const MOVERS: usize = 5;

/// One design, one side.
#[derive(Clone, Debug)]
pub struct Row {
    /// Design.
    pub design: Design,
    /// Sender or receiver.
    pub direction: Direction,
    /// Result of the measurement.
    pub measured: Measured,
}

/// Designs to compare.
pub const DESIGNS: [Design; 4] =
    [Design::HostCentric, Design::Software { gpu: true }, Design::PeerToPeer, Design::Card];

/// Measures both sides of all designs, with `count` pieces each.
pub fn measure(parameters: Parameters, count: u64) -> Vec<Row> {
    let of = |design: Design, direction| {
        let operator = (direction == Direction::Receive).then_some(Operator::Crc32);
        let request = |at| Request { at: at * LENGTH * 8 / RATE, direction, length: LENGTH, operator };
        let requests = (0..count).map(request).collect();
        let load = Load { connections: MOVERS, parameters, ..Load::new(design, requests) };
        Row { design, direction, measured: run(&load) }
    };
    DESIGNS
        .iter()
        .flat_map(|design| [Direction::Send, Direction::Receive].map(|direction| of(*design, direction)))
        .collect()
}

/// Returns the figures of [`measure`].
pub fn figures(rows: &[Row]) -> Vec<Figure> {
    let cpu = |design: Design, direction: Direction| {
        let row = rows.iter().find(|row| (row.design, row.direction) == (design, direction));
        row.expect("it was measured").measured.cpu_s_per_gib()
    };
    let both = |design| cpu(design, Direction::Send) + cpu(design, Direction::Receive);
    let software = Design::Software { gpu: true };
    let figure = |what, ours, paper, reach, why| Figure { what, ours, paper, reach, why };
    vec![
        figure(
            "CPU at equal throughput, balancer, sender and receiver, card / software-optimised",
            both(Design::Card) / both(software),
            Some(0.49),
            Some(Reach::AtMost(0.3)),
            "The paper has HDFS around it (Java); here it is the data path alone, and pieces are of 8 MiB.",
        ),
        figure(
            "the same, sender",
            cpu(Design::Card, Direction::Send) / cpu(software, Direction::Send),
            None,
            None,
            "",
        ),
        figure(
            "the same, receiver",
            cpu(Design::Card, Direction::Receive) / cpu(software, Direction::Receive),
            None,
            None,
            "",
        ),
        figure(
            "software-controlled P2P / software-optimised",
            both(Design::PeerToPeer) / both(software),
            Some(1.0),
            None,
            "The sender has no GPU, and what the receiver gets has to be gathered in host memory first: nothing goes from device to device, in the paper and here.",
        ),
    ]
}
