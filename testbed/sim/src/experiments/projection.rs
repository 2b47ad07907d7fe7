//! Faster devices: software's share of the latency (dissertation, figures 2.2 and 2.8), and the cores that a link takes (figure
//! 3.13).

use super::latency;
use super::load::{Direction, Load, Measured, run};
use super::{at_once, repeated};
use crate::design::Design;
use crate::experiments::figure::Figure;
use crate::host::Waiting;
use crate::parameters::Parameters;

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
