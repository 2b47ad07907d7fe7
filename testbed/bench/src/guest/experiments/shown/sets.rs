//! Several sets of an SSD and a NIC.

use super::{HOST, SCALING, is, lines, number};
use crate::guest::experiments::measurement::{Measurement, Sets};
use crate::guest::task::DesignName;
use crate::sim::bars::{Bar, Chart};
use crate::sim::results::Results;
use dcs_sim::cpu::Component;
use dcs_sim::experiments::figure::{Figure, Reach};

const CARD: fn(DesignName) -> bool = |who| who == DesignName::Card;

fn cells(row: &&Measurement) -> Vec<String> {
    let of = |figure: fn(&Sets) -> f64| row.sets.as_ref().map(figure);
    vec![
        row.by.clone(),
        row.sets.as_ref().map_or("-".into(), |sets| sets.count.to_string()),
        number(row.guest_cpu_s_per_gib, 2),
        number(of(|sets| sets.of_one_set), 3),
        row.rounds.iter().map(|ratio| format!("{ratio:.2}")).collect::<Vec<_>>().join(" "),
        number(of(|sets| 100.0 * sets.guest_cpu_share), 0),
        number(of(|sets| sets.least), 3),
        number(of(|sets| sets.most), 3),
        format!("{:.1}", row.mib_per_s_in_qemu),
        format!("{:.0}", row.device_interrupts_per_gib),
        (row.bytes_verified >> 20).to_string(),
    ]
}

/// Returns the results of [`super::super::scaling`].
pub fn scaling(rows: &[&Measurement]) -> Results {
    let counted = |row: &Measurement| row.sets.as_ref().map_or(0, |sets| sets.count);
    let most = rows.iter().map(|row| counted(row)).max().unwrap_or(0);
    let of = |is_it: fn(DesignName) -> bool, figure: fn(&Sets) -> f64| {
        let row = rows.iter().find(|row| counted(row) == most && is(row, is_it));
        row.and_then(|row| row.sets.as_ref()).map(figure)
    };
    let figure =
        |what, ours: Option<f64>, reach, why| ours.map(|ours| Figure { what, ours, paper: None, reach, why });
    let bar = |row: &&Measurement| Bar {
        panel: format!("guest CPU s/GiB by sets: {}", row.by),
        label: counted(row).to_string(),
        parts: vec![(Component::Kernel, row.guest_cpu_s_per_gib.unwrap_or(0.0))],
    };
    let figures = [
        figure(
            "in QEMU: guest CPU seconds a GiB, all sets / one, card",
            of(CARD, |sets| sets.of_one_set),
            Some(Reach::AtMost(1.05)),
            "One thread has all streams' commands in flight. The median of the rounds.",
        ),
        figure(
            "in QEMU: what the set that had least got, of an equal share, all sets, card",
            of(CARD, |sets| sets.least),
            Some(Reach::AtLeast(0.95)),
            "While all streams were at it; the worst of the rounds.",
        ),
        figure(
            "in QEMU: guest CPU seconds a GiB, all sets / one, host-centric",
            of(HOST, |sets| sets.of_one_set),
            None,
            "A thread for each stream.",
        ),
        figure(
            "in QEMU: the same, software-optimised, the kernel's TCP",
            of(|who| who == DesignName::SoftwareTcp, |sets| sets.of_one_set),
            None,
            "An engine, and a thread, for each set.",
        ),
        figure(
            "in QEMU: the same, software-optimised, with a NIC and a TCP of its own",
            of(|who| who == DesignName::SoftwareNic, |sets| sets.of_one_set),
            None,
            "An engine, and a thread, for each set.",
        ),
    ];
    Results {
        name: SCALING,
        title: "In QEMU: SSD -> NIC from 1 to 4 sets of an SSD and a NIC, two streams each, as much from each set; MiB/s is the emulation's, whose \
                cores all sets share, and means nothing",
        header: vec![
            "design",
            "sets",
            "guest CPU s/GiB",
            "of one set's",
            "rounds",
            "guest CPU % of time",
            "least set's share",
            "most",
            "MiB/s in QEMU",
            "device interrupts/GiB",
            "MiB verified",
        ],
        rows: rows.iter().map(cells).collect(),
        objects: lines(rows),
        figures: figures.into_iter().flatten().collect(),
        chart: Chart { unit: "guest CPU s/GiB", bars: rows.iter().map(bar).collect() },
    }
}
