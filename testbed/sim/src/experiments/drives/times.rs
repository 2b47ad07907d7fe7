//! Times of single steps: the path to an SSD and back by software, bus and on-chip interconnect (figure 13); loading a slot from
//! the host and from the card (figure 14); the cost of renaming (table 1).

use super::Setting;
use super::qos;
use crate::drives::design::{Design, Request, Server};
use crate::drives::machine::{Build, Drives, Machine};
use crate::drives::{Operator, Timings};
use crate::executor::World;
use crate::experiments::figure::{Figure, Reach};
use dcs_drivers::bus::{Bus, Tag};
use dcs_engine::Nanos;
use dcs_fabric::{HOST, Rate};
use dcs_slots::Policy;

/// All measurements, in nanoseconds.
#[derive(Clone, Debug)]
pub struct Times {
    /// Time that the host's software adds to the SSD's own 10 us for 4 KiB.
    pub software: Nanos,
    /// Time that the bus adds when the card drives the SSD.
    pub bus: Nanos,
    /// Time that an on-chip interconnect adds.
    pub chip: Nanos,
    /// Time of the SSD itself.
    pub ssd: Nanos,
    /// Time to load a slot with the host's configuration writes.
    pub by_host: Nanos,
    /// Time to load a slot from the card's memory.
    pub by_card: Nanos,
    /// Time of a request of 4 KiB without an SSD: with renaming, less that without.
    pub renaming: Nanos,
}

fn build(setting: &Setting, drives: Drives) -> Build {
    Build { ssd_bytes: 1 << 20, ..Build::new(setting.parameters, setting.timings, drives) }
}

/// Measures one read of 4 KiB.
fn read(setting: &Setting, design: Design, build: Build) -> Nanos {
    let server = Server::new(design, build);
    let (handle, place) = (server.handle(), server.place(0, 0, 4096));
    let time = server.executor.run(async {
        let from = handle.now();
        if design == Design::Software {
            place.host_reads(4096).await;
        } else {
            place.card_reads(4096).await;
        }
        handle.now() - from
    });
    time - setting.timings.drive_ssd_latency
}

/// Measures the host's configuration writes, one word after the other: a system call for each, which is answered before the next is sent,
/// as PCIe requires. Only a part of the bitstream is sent; the rest would take the same time per word.
fn loading_by_host(setting: &Setting) -> Nanos {
    const WORDS: u64 = 4096;
    let mut machine = Machine::new(build(setting, Drives::Card));
    let address = machine.card_address(0);
    let from = machine.now();
    for _ in 0..WORDS {
        // Not posted, so each takes the time of a read on the bus.
        let before = machine.host_reads();
        machine.fabric.port(HOST).read(address, 4, Tag::new(0, 0));
        while machine.host_reads() == before {
            assert!(machine.step(), "the card answers");
        }
    }
    let taken = machine.now() - from + WORDS * setting.parameters.syscall;
    (u128::from(taken) * u128::from(setting.timings.bitstream) / u128::from(4 * WORDS)) as Nanos
}

/// Measures loading a slot from the card's memory: the first request, less one that needs no loading.
fn loading_by_card(setting: &Setting) -> Nanos {
    let first = |slot| {
        let build = Build {
            slots: vec![Some(slot)],
            policy: Policy::Reconfiguration,
            loading: qos::loading(&setting.timings),
            ..build(setting, Drives::Card)
        };
        one(build)
    };
    first(Operator::Filter) - first(Operator::Encryption)
}

/// Measures one request on 4 KiB in the card's memory.
fn one(build: Build) -> Nanos {
    let server = Server::new(Design::FlexCsv, build);
    let (handle, place) = (server.handle(), server.place(0, 0, 4096));
    server.executor.run(async {
        let from = handle.now();
        place.run(Request { from: None, operator: Some(Operator::Encryption), to: None, length: 4096 }).await;
        handle.now() - from
    })
}

/// Measures everything.
pub fn measure(setting: &Setting) -> Times {
    let chip = Build {
        hop: Some(setting.timings.interconnect),
        card_link: Rate::GEN3_X16,
        ..build(setting, Drives::Card)
    };
    let renaming = |policy| one(Build { policy, ..build(setting, Drives::Card) });
    Times {
        software: read(setting, Design::Software, build(setting, Drives::Host)),
        bus: read(setting, Design::FlexCsv, build(setting, Drives::Card)),
        chip: read(setting, Design::FlexCsv, chip),
        ssd: setting.timings.drive_ssd_latency,
        by_host: loading_by_host(setting),
        by_card: loading_by_card(setting),
        renaming: renaming(Policy::Dynamic) - renaming(Policy::Static),
    }
}

/// Returns the figures of [`measure`].
pub fn figures(times: &Times) -> Vec<Figure> {
    let figure = |what, ours, paper, reach, why| Figure { what, ours, paper, reach, why };
    let ratio = |one: Nanos, other: Nanos| one as f64 / other as f64;
    vec![
        figure(
            "the way to an SSD and back: by software / the SSD's own time",
            ratio(times.software, times.ssd),
            None,
            Some(Reach::AtLeast(1.0)),
            "\"The major performance bottleneck is moved to the software stacks\": figure 13 has bars without numbers.",
        ),
        figure(
            "the same, by the bus / by software",
            ratio(times.bus, times.software),
            None,
            Some(Reach::AtMost(0.2)),
            "Doorbell, entry, data and completion over PCIe, from card to SSD.",
        ),
        figure(
            "the same, on a chip / by the bus",
            ratio(times.chip, times.bus),
            None,
            Some(Reach::AtMost(1.0)),
            "",
        ),
        figure(
            "loading a slot from the card's memory, less than from the host by",
            1.0 - ratio(times.by_card, times.by_host),
            Some(0.997),
            Some(Reach::AtLeast(0.997)),
            "The host writes a word for each system call and round trip: 4.2 MB/s, of the 3 to 6 that XAPP1338 has. The FPGA's port takes 800 MB/s, its most. By both of Xilinx's figures 99.3 to 99.6 % is possible; the paper does not say how its host loads.",
        ),
        figure(
            "renaming, submission and completion, ns",
            times.renaming as f64,
            Some(96.0),
            None,
            "Table 1, put into the engine: what is shown is that all of it is on the way of a request.",
        ),
    ]
}

/// Returns the parameters of table 3.
pub fn table3(timings: &Timings) -> Vec<(Operator, u64)> {
    Operator::ALL.map(|operator| (operator, timings.rate(operator))).into()
}
