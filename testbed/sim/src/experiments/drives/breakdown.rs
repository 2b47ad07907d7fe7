//! The time of one near-storage request by component (figures 1 and 5).

use super::Setting;
use super::speedup::BLOCK;
use crate::breakdown::breakdown;
use crate::cpu::Component;
use crate::drives::design::{Design, Request, Server};
use crate::drives::{Operator, machine::Build};
use crate::experiments::figure::{Figure, Reach};
use dcs_engine::Nanos;

/// Operators of figure 1.
pub const OPERATORS: [Operator; 4] = [Operator::Encryption, Operator::Hash, Operator::Filter, Operator::Grep];

/// Breakdown of one request.
#[derive(Clone, Debug)]
pub struct Row {
    /// The design.
    pub design: Design,
    /// The operator.
    pub operator: Operator,
    /// Total time.
    pub total: Nanos,
    /// Time by component.
    pub parts: Vec<(Component, Nanos)>,
}

impl Row {
    /// Returns software's part: guest, hypervisor, host.
    pub fn software(&self) -> f64 {
        let software = self.parts.iter().filter(|(what, _)| what.is_software());
        software.map(|(_, time)| time).sum::<Nanos>() as f64 / self.total as f64
    }
}

/// Runs one request, which reads 4 KiB and passes them through an operator.
pub fn one(setting: &Setting, design: Design, operator: Operator) -> Row {
    let build =
        Build { ssd_bytes: 1 << 20, ..Build::new(setting.parameters, setting.timings, design.drives()) };
    let server = Server::new(design, build);
    let handle = server.handle();
    let place = server.place(0, 0, BLOCK);
    let (from, to) = server.executor.run(async {
        let from = handle.now();
        handle.with(|machine| machine.trace = Some(Vec::new()));
        place.run(Request { from: Some(0), operator: Some(operator), to: None, length: BLOCK }).await;
        (from, handle.now())
    });
    let trace = handle.with(|machine| machine.trace.take()).unwrap_or_default();
    Row { design, operator, total: to - from, parts: breakdown(&trace, from, to) }
}

/// Measures figure 1, and figure 5 with all designs.
pub fn measure(setting: &Setting) -> Vec<Row> {
    let first = OPERATORS.map(|operator| one(setting, Design::Software, operator));
    let rest = [Design::Optimised, Design::SoftwareEngine, Design::FlexCsv];
    first.into_iter().chain(rest.map(|design| one(setting, design, Operator::Encryption))).collect()
}

/// Returns the figures of [`measure`].
pub fn figures(rows: &[Row]) -> Vec<Figure> {
    let of = |design, operator| {
        let is = |row: &&Row| (row.design, row.operator) == (design, operator);
        rows.iter().find(is).expect("it was measured")
    };
    let software = |operator| of(Design::Software, operator).software();
    let all = OPERATORS.map(software);
    let total = |design| of(design, Operator::Encryption).total as f64;
    let figure = |what, ours, paper, reach, why| Figure { what, ours, paper, reach, why };
    vec![
        figure(
            "software's part, paravirtual SSD and FPGA, the operator with least",
            all.into_iter().fold(f64::MAX, f64::min),
            Some(0.72),
            None,
            "The paper measured 14 us for 4 KiB of Blowfish here, and 211 MB/s (19 us) later.",
        ),
        figure(
            "the same, the operator with most",
            all.into_iter().fold(0.0, f64::max),
            Some(0.81),
            None,
            "The paper's FPGA has less time for the other three, or its software more.",
        ),
        figure(
            "software's part, FlexCSV, encryption",
            of(Design::FlexCsv, Operator::Encryption).software(),
            None,
            None,
            "What is left is the guest's own.",
        ),
        figure(
            "time of a request, SSD by SR-IOV / paravirtual SSD",
            total(Design::Optimised) / total(Design::Software),
            None,
            Some(Reach::AtMost(1.0)),
            "Figure 5 has bars without numbers.",
        ),
        figure(
            "the same, FlexCSV / paravirtual SSD",
            total(Design::FlexCsv) / total(Design::Software),
            None,
            Some(Reach::AtMost(0.5)),
            "",
        ),
    ]
}
