//! Near-storage processing of 4 KiB blocks, one after the other, in four designs: speed-up over paravirtual devices
//! (figure 16).

use super::Setting;
use crate::drives::Operator;
use crate::drives::design::{Design, Request, Server};
use crate::drives::machine::Build;
use crate::experiments::figure::{Figure, Reach};

/// Bytes of a block.
pub const BLOCK: u64 = 4096;

/// A bar of the figure.
#[derive(Clone, Debug)]
pub struct Row {
    /// The design.
    pub design: Design,
    /// The operator.
    pub operator: Operator,
    /// True if results are written back.
    pub writes: bool,
    /// Bytes per second.
    pub rate: f64,
}

/// Returns the request for block `at`, with a place for its result.
fn request(build: &Build, at: u64, operator: Operator, writes: bool) -> Request {
    let half = build.ssd_bytes / 2;
    let from = at * BLOCK % half;
    Request { from: Some(from), operator: Some(operator), to: writes.then_some(half + from), length: BLOCK }
}

/// Measures one guest, one request after the other.
pub fn one(setting: &Setting, design: Design, operator: Operator, writes: bool) -> Row {
    let build =
        Build { ssd_bytes: 2 << 20, ..Build::new(setting.parameters, setting.timings, design.drives()) };
    let server = Server::new(design, build.clone());
    let handle = server.handle();
    let place = server.place(0, 0, BLOCK);
    let time = server.executor.run(async {
        let from = handle.now();
        for at in 0..setting.count {
            place.run(request(&build, at, operator, writes)).await;
        }
        handle.now() - from
    });
    Row { design, operator, writes, rate: (setting.count * BLOCK) as f64 * 1e9 / time as f64 }
}

/// Measures all designs and operators.
pub fn measure(setting: &Setting) -> Vec<Row> {
    let all = |writes| {
        Operator::ALL.into_iter().flat_map(move |operator| {
            Design::VIRTUAL.map(move |design| one(setting, design, operator, writes))
        })
    };
    all(true).chain(all(false)).collect()
}

/// Returns the speed-up of a design over another one.
pub fn speedup(rows: &[Row], (design, over): (Design, Design), operator: Operator, writes: bool) -> f64 {
    let rate = |design| {
        let is = |row: &&Row| (row.design, row.operator, row.writes) == (design, operator, writes);
        rows.iter().find(is).expect("it was measured").rate
    };
    rate(design) / rate(over)
}

/// Returns the geometric mean over all operators, with and without writing.
pub fn mean(rows: &[Row], pair: (Design, Design)) -> f64 {
    let all = Operator::ALL
        .into_iter()
        .flat_map(|operator| [true, false].map(|writes| speedup(rows, pair, operator, writes).ln()));
    (all.sum::<f64>() / 16.0).exp()
}

/// Returns the figures of [`measure`].
pub fn figures(rows: &[Row]) -> Vec<Figure> {
    let figure = |what, ours, paper, reach: Option<f64>, why| Figure {
        what,
        ours,
        paper,
        reach: reach.map(Reach::AtLeast),
        why,
    };
    let pair = (Design::FlexCsv, Design::Software);
    let passthrough = (Design::Passthrough, Design::Software);
    let rate = |operator, writes, design| {
        let is = |row: &&Row| (row.design, row.operator, row.writes) == (design, operator, writes);
        rows.iter().find(is).expect("it was measured").rate / 1e6
    };
    let (encryption, knn) = (Operator::Encryption, Operator::Knn);
    vec![
        figure(
            "speed-up over paravirtual devices, geometric mean of 8 operators, read and write, and read alone",
            mean(rows, pair),
            Some(2.1),
            None,
            "The host's stack and the guest's take 20 us each here (the paper's figure 3), and a guest's processor that sleeps is woken for each answer; the paper's software is faster than that.",
        ),
        figure(
            "the same, requests by the stock driver's character device",
            mean(rows, passthrough),
            None,
            Some(3.0),
            "That is how dcs asks in a guest: past the guest's storage stack. A call is assumed to take 2 us there, as one for the paravirtual FPGA is.",
        ),
        figure(
            "KNN, read and write, over paravirtual devices",
            speedup(rows, pair, knn, true),
            Some(2.8),
            None,
            "As above.",
        ),
        figure(
            "the same by the stock driver's character device",
            speedup(rows, passthrough, knn, true),
            None,
            Some(4.0),
            "",
        ),
        figure(
            "encryption, read and write, over paravirtual devices",
            speedup(rows, pair, encryption, true),
            Some(2.2),
            None,
            "",
        ),
        figure(
            "the same, encryption, read alone",
            speedup(rows, pair, encryption, false),
            Some(2.0),
            None,
            "",
        ),
        figure(
            "speed-up over the software engine, mean of all",
            mean(rows, (Design::FlexCsv, Design::SoftwareEngine)),
            Some(1.4),
            Some(1.6),
            "Exits, the host's stack for each access to the SSD, and a call for the FPGA are what the engine in hardware saves.",
        ),
        figure(
            "encryption, read and write, FlexCSV, MB/s",
            rate(encryption, true, Design::FlexCsv),
            Some(72.0),
            None,
            "",
        ),
        figure(
            "the same, paravirtual",
            rate(encryption, true, Design::Software),
            Some(33.0),
            None,
            "The paper's software is faster than its own 20 us for a stack: 85 us of software for two accesses and one call.",
        ),
        figure("KNN, read and write, FlexCSV, MB/s", rate(knn, true, Design::FlexCsv), Some(105.0), None, ""),
        figure("the same, paravirtual", rate(knn, true, Design::Software), Some(38.0), None, "As above."),
    ]
}
