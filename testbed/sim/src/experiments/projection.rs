//! Faster devices: software's share of the latency (dissertation, figures 2.2 and 2.8), and the cores that a link takes (figure
//! 3.13): of data alone, and of an object server and the HDFS balancer with six SSDs.

use super::latency;
use super::load::{Direction, Load, Measured, Request, run};
use super::object::{MIX, requests};
use super::{at_once, balancer, repeated};
use crate::design::Design;
use crate::experiments::figure::{Figure, Reach};
use crate::host::Waiting;
use crate::parameters::Parameters;
use dcs_abi::operator::Operator;

/// A set of devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Devices {
    /// Name for people.
    pub name: &'static str,
    /// Latency of a read, in ns.
    pub ssd_read: u64,
    /// Bytes per second.
    pub ssd_rate: u64,
    /// Bits per second.
    pub nic_rate: u64,
}

/// The prototypes' devices; an NVMe SSD of 10 us (FlexCSV, section 6: Optane 900P) with faster links; and devices that take
/// almost no time.
pub const DEVICES: [Devices; 4] = [
    Devices { name: "80 us, 10 Gb/s", ssd_read: 80_000, ssd_rate: 2_150_000_000, nic_rate: 10_000_000_000 },
    Devices { name: "10 us, 40 Gb/s", ssd_read: 10_000, ssd_rate: 6_000_000_000, nic_rate: 40_000_000_000 },
    Devices {
        name: "10 us, 100 Gb/s",
        ssd_read: 10_000,
        ssd_rate: 14_000_000_000,
        nic_rate: 100_000_000_000,
    },
    Devices { name: "ideal", ssd_read: 100, ssd_rate: 100_000_000_000, nic_rate: 400_000_000_000 },
];

/// Row of devices and a design.
#[derive(Clone, Debug)]
pub struct Row {
    /// Devices.
    pub devices: Devices,
    /// Latency of 4 KiB.
    pub latency: latency::Row,
    /// Throughput from SSD to NIC at full speed; `None` for ideal devices, with which no link could keep up.
    pub throughput: Option<Measured>,
}

/// Designs to compare.
pub const DESIGNS: [Design; 3] = [Design::HostCentric, Design::Software { gpu: false }, Design::Card];

/// Measures all designs, with `count` objects of 4 MiB over four connections.
pub fn measure(given: Parameters, count: u64) -> Vec<Row> {
    let of = |devices: Devices, design| {
        let Devices { ssd_read, ssd_rate, nic_rate, .. } = devices;
        let parameters = Parameters { ssd_read, ssd_rate, nic_rate, ..given };
        let latency = latency::measure(design, Waiting::Interrupt, None, parameters);
        let requests = repeated(count, at_once(Direction::Send, 4 << 20));
        let load = Load { parameters, connections: 4, fast_links: true, ..Load::new(design, requests) };
        let throughput = (devices.name != "ideal").then(|| run(&load));
        Row { devices, latency, throughput }
    };
    DEVICES.iter().flat_map(|devices| DESIGNS.map(|design| of(*devices, design))).collect()
}

/// Returns the figures of [`measure`].
pub fn figures(rows: &[Row]) -> Vec<Figure> {
    let of = |devices: usize, design: Design| {
        let row = rows.iter().find(|row| row.devices == DEVICES[devices] && row.latency.design == design);
        row.expect("it was measured")
    };
    let share = |devices, design| {
        let latency = &of(devices, design).latency;
        latency.control() as f64 / latency.total as f64
    };
    let cores = |devices, design| {
        of(devices, design).throughput.as_ref().map_or(f64::NAN, |measured| measured.cores())
    };
    let (host, card) = (Design::HostCentric, Design::Card);
    let figure = |what, ours, paper, why| Figure { what, ours, paper, reach: None, why };
    vec![
        figure(
            "software's share of the latency, prototypes' devices, host-centric",
            share(0, host),
            Some(0.507),
            "The paper's is for 1 KiB on a slower processor (Core 2 Duo, 2.0 GHz).",
        ),
        figure(
            "software's share of the latency, ideal devices, host-centric",
            share(3, host),
            Some(0.921),
            "Ideal in the paper: a PCIe 3.0 x32 link; here PCIe 3.0 x16 and its round trips remain.",
        ),
        figure("software's and the card's control's share, ideal devices, card", share(3, card), None, ""),
        figure(
            "cores for 40 Gb/s, host-centric",
            cores(1, host),
            None,
            "The paper estimates over six for its baselines with HDFS.",
        ),
        figure(
            "cores for 40 Gb/s, card",
            cores(1, card),
            Some(3.0),
            "The paper's three or fewer are for HDFS and Swift, with all else that they do.",
        ),
    ]
}

/// Cores of the server of figure 3.13.
pub const CORES: usize = 6;

/// SSDs of that server. One SSD stands for all: it has their rate and the latency of one, as a stripe over them has.
const SSDS: u64 = 6;

/// A workload of figure 3.13.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// An object server: GET and PUT of [`MIX`], with MD5.
    Swift,
    /// The HDFS balancer's sender.
    Sender,
    /// The HDFS balancer's receiver, with CRC32.
    Receiver,
}

impl Workload {
    /// All of them.
    pub const ALL: [Workload; 3] = [Workload::Swift, Workload::Sender, Workload::Receiver];

    /// Name for people.
    pub fn name(self) -> &'static str {
        match self {
            Workload::Swift => "object server",
            Workload::Sender => "balancer's sender",
            Workload::Receiver => "balancer's receiver",
        }
    }

    /// Connections, each with a thread. A stream's MD5 runs at 1 Gb/s on a unit and on a GPU.
    fn connections(self) -> usize {
        if self == Workload::Swift { 48 } else { 8 }
    }

    /// Requests, all there at once: `count` pieces of the balancer, or 16 times as many objects.
    fn requests(self, count: usize) -> Vec<Request> {
        let piece = |direction, operator| Request { at: 0, direction, length: balancer::LENGTH, operator };
        match self {
            Workload::Swift => {
                requests(MIX, 16 * count).into_iter().map(|request| Request { at: 0, ..request }).collect()
            }
            Workload::Sender => vec![piece(Direction::Send, None); count],
            Workload::Receiver => vec![piece(Direction::Receive, Some(Operator::Crc32)); count],
        }
    }
}

/// A design at work.
#[derive(Clone, Debug)]
pub struct Work {
    /// Design.
    pub design: Design,
    /// Workload.
    pub workload: Workload,
    /// Result, as fast as it goes.
    pub measured: Measured,
}

/// Designs to compare at work.
pub const AT_WORK: [Design; 4] =
    [Design::HostCentric, Design::Software { gpu: true }, Design::PeerToPeer, Design::Card];

/// Measures the prototypes' SSD six times, a NIC of 40 Gb/s, as many units for it as the prototypes' have for 10 Gb/s, and six
/// cores: each design as fast as it goes.
pub fn measure_work(given: Parameters, count: usize) -> Vec<Work> {
    let parameters = Parameters {
        cores: CORES,
        ssd_rate: SSDS * given.ssd_rate,
        nic_rate: 40_000_000_000,
        units: 4 * given.units,
        ..given
    };
    let of = |workload: Workload, design| {
        let load = Load {
            parameters,
            connections: workload.connections(),
            fast_links: true,
            application: workload == Workload::Swift,
            ..Load::new(design, workload.requests(count))
        };
        Work { design, workload, measured: run(&load) }
    };
    Workload::ALL.iter().flat_map(|workload| AT_WORK.map(|design| of(*workload, design))).collect()
}

/// Reason for which throughput differs less than in the paper.
const LEAN: &str = "The paper does not measure it: it has each design use up six cores, by its cores for each bit at 10 Gb/s, with Swift and HDFS in them. Here it is measured, and the data path alone leaves cores idle in both designs.";

/// Returns the figures of [`measure_work`]: cores for each bit, and throughput.
pub fn work_figures(rows: &[Work]) -> Vec<Figure> {
    let of = |workload: Workload, design: Design| {
        let row = rows.iter().find(|row| (row.workload, row.design) == (workload, design));
        &row.expect("it was measured").measured
    };
    let (card, peer) = (Design::Card, Design::PeerToPeer);
    // As the paper counts: cores for each bit, times 40 Gb/s.
    let cores = |workload, design| of(workload, design).cores() / of(workload, design).gbps() * 40.0;
    let gbps = |workload, design| of(workload, design).gbps();
    let balanced = |design| gbps(Workload::Sender, design).min(gbps(Workload::Receiver, design));
    let balancer = |design| cores(Workload::Sender, design).max(cores(Workload::Receiver, design));
    let figure = |what, ours, paper, reach, why| Figure { what, ours, paper, reach, why };
    let at_most = Some(Reach::AtMost(3.0));
    vec![
        figure(
            "cores for 40 Gb/s with six SSDs, object server, card",
            cores(Workload::Swift, card),
            Some(3.0),
            at_most,
            "The paper's three or fewer have Swift (Python) in them; here a request takes 20 us beside its data. As in the paper, the cores for each bit, times 40 Gb/s.",
        ),
        figure("the same, software-controlled P2P", cores(Workload::Swift, peer), None, None, ""),
        figure(
            "cores for 40 Gb/s with six SSDs, balancer, the dearer side, card",
            balancer(card),
            Some(3.0),
            at_most,
            "The paper's have HDFS (Java) in them; here it is the data path alone.",
        ),
        figure(
            "the same, software-controlled P2P",
            balancer(peer),
            None,
            None,
            "In the paper the baselines' HDFS cannot have 40 Gb/s on six cores.",
        ),
        figure(
            "throughput with six SSDs, object server, card / software-controlled P2P",
            gbps(Workload::Swift, card) / gbps(Workload::Swift, peer),
            Some(1.95),
            None,
            LEAN,
        ),
        figure(
            "the same, balancer, the slower side",
            balanced(card) / balanced(peer),
            Some(2.06),
            None,
            LEAN,
        ),
    ]
}
