//! Tables, JSON and charts of FlexCSV's experiments.

use super::bars::{Bar, Chart};
use super::results::Results;
use crate::harness::shown::plural;
use dcs_sim::cpu::Component;
use dcs_sim::drives::Operator;
use dcs_sim::experiments::drives::{Setting, area, breakdown, native, qos, speedup, ssds, times};
use serde_json::json;

fn mb_per_s(rate: f64) -> String {
    format!("{:.1}", rate / 1e6)
}

fn us(nanos: u64) -> String {
    format!("{:.1}", nanos as f64 / 1e3)
}

fn with(writes: bool) -> &'static str {
    if writes { "read and write" } else { "read alone" }
}

/// Returns figures 1 and 5.
pub fn breakdown(rows: &[breakdown::Row]) -> Results {
    let cells = |row: &breakdown::Row| {
        let of = |what: &[Component]| {
            let sum = row.parts.iter().filter(|(other, _)| what.contains(other)).map(|(_, time)| time).sum();
            us(sum)
        };
        vec![
            row.design.name().into(),
            row.operator.name().into(),
            us(row.total),
            of(&[Component::Guest]),
            of(&[Component::Hypervisor]),
            of(&[Component::Kernel, Component::Crossing, Component::Copy]),
            of(&[Component::Ssd]),
            of(&[Component::Ndp]),
            of(&[Component::Bus, Component::Card]),
            format!("{:.2}", row.software()),
        ]
    };
    let object = |row: &breakdown::Row| {
        let parts = row.parts.iter().map(|(what, time)| (what.name().to_string(), json!(time)));
        json!({
            "event": "measurement", "experiment": "csd-breakdown", "design": row.design.name(),
            "operator": row.operator.name(), "total_ns": row.total, "software": row.software(),
            "parts_ns": parts.collect::<serde_json::Map<_, _>>(),
        })
    };
    let bar = |row: &breakdown::Row| Bar {
        panel: match row.operator {
            Operator::Encryption => "encryption, by design (figure 5)".into(),
            _ => "paravirtual SSD and FPGA, by operator (figure 1)".into(),
        },
        label: match row.operator {
            Operator::Encryption => row.design.name().into(),
            operator => operator.name().into(),
        },
        parts: row.parts.iter().map(|(what, time)| (*what, *time as f64 / 1e3)).collect(),
    };
    Results {
        name: "csd-breakdown",
        title: "4 KiB from an SSD through an operator, for a guest, by component, us (FlexCSV, figures 1 and 5)",
        header: vec![
            "design",
            "operator",
            "total",
            "guest",
            "hypervisor",
            "host",
            "SSD",
            "operator",
            "bus, engine",
            "software's part",
        ],
        rows: rows.iter().map(cells).collect(),
        objects: rows.iter().map(object).collect(),
        figures: breakdown::figures(rows),
        chart: Chart { unit: "us", bars: rows.iter().map(bar).collect() },
    }
}

/// Returns figure 16.
pub fn speedup(rows: &[speedup::Row]) -> Results {
    let over = |row: &speedup::Row| {
        let pair = (row.design, dcs_sim::drives::Design::Software);
        speedup::speedup(rows, pair, row.operator, row.writes)
    };
    let cells = |row: &speedup::Row| {
        vec![
            row.operator.name().into(),
            with(row.writes).into(),
            row.design.name().into(),
            mb_per_s(row.rate),
            format!("{:.2}", over(row)),
        ]
    };
    let object = |row: &speedup::Row| {
        json!({
            "event": "measurement", "experiment": "csd-speedup", "design": row.design.name(),
            "operator": row.operator.name(), "writes": row.writes, "mb_per_s": row.rate / 1e6, "speedup": over(row),
        })
    };
    let bar = |row: &speedup::Row| Bar {
        panel: format!("{}, {}", row.operator.name(), with(row.writes)),
        label: row.design.name().into(),
        parts: vec![(Component::Ndp, over(row))],
    };
    Results {
        name: "csd-speedup",
        title: "Near-storage processing of 4 KiB blocks, one after the other, by one guest (FlexCSV, figure 16)",
        header: vec!["operator", "", "design", "MB/s", "speed-up"],
        rows: rows.iter().map(cells).collect(),
        objects: rows.iter().map(object).collect(),
        figures: speedup::figures(rows),
        chart: Chart { unit: "speed-up", bars: rows.iter().map(bar).collect() },
    }
}

/// Returns figure 15.
pub fn native(rows: &[native::Row]) -> Results {
    let what = |row: &native::Row| row.operator.map_or("SSD", Operator::name);
    let cells = |row: &native::Row| {
        vec![
            what(row).into(),
            row.design.name().into(),
            format!("{}", row.block / 1024),
            row.depth.to_string(),
            mb_per_s(row.rate),
        ]
    };
    let object = |row: &native::Row| {
        json!({
            "event": "measurement", "experiment": "csd-native", "design": row.design.name(), "of": what(row),
            "block": row.block, "depth": row.depth, "mb_per_s": row.rate / 1e6,
        })
    };
    let bar = |row: &native::Row| Bar {
        panel: format!("{}, {} at once", what(row), row.depth),
        label: format!("{} KiB {}", row.block / 1024, row.design.name()),
        parts: vec![(if row.operator.is_some() { Component::Ndp } else { Component::Ssd }, row.rate / 1e6)],
    };
    Results {
        name: "csd-native",
        title: "SSD and operators of a virtual drive beside the same without virtualization (FlexCSV, figure 15)",
        header: vec!["", "design", "KiB", "at once", "MB/s"],
        rows: rows.iter().map(cells).collect(),
        objects: rows.iter().map(object).collect(),
        figures: native::figures(rows),
        chart: Chart { unit: "MB/s", bars: rows.iter().map(bar).collect() },
    }
}

/// Returns figures 6 and 17.
pub fn ssds(rows: &ssds::Rows) -> Results {
    let alone = rows.contended[0].latency;
    let coupled = |row: &ssds::Contended| if row.decoupled { "one each" } else { "one" };
    let through = |row: &ssds::Bandwidth| match (row.operator, row.wide) {
        (false, _) => "reads",
        (true, false) => "through operators, x4",
        (true, true) => "through operators, x16",
    };
    let latency = |row: &ssds::Contended| {
        vec![
            format!("latency beside {} guests, {} reads each", row.others, row.depth),
            coupled(row).into(),
            format!("{:.1} us", row.latency / 1e3),
            format!("{:.2}", row.latency / alone),
        ]
    };
    let one = |guests: usize| {
        let is = |row: &&ssds::Bandwidth| (row.guests, row.ssds, row.operator) == (guests, 1, false);
        rows.bandwidth.iter().find(is).map_or(1.0, |row| row.rate)
    };
    let bandwidth = |row: &ssds::Bandwidth| {
        vec![
            format!("bandwidth of {} guests, {}", row.guests, through(row)),
            row.ssds.to_string(),
            format!("{:.2} GB/s", row.rate / 1e9),
            format!("{:.2}", row.rate / one(row.guests)),
        ]
    };
    let contended_object = |row: &ssds::Contended| {
        json!({
            "event": "measurement", "experiment": "csd-ssds", "figure": 6, "others": row.others, "depth": row.depth,
            "decoupled": row.decoupled, "latency_ns": row.latency, "of_alone": row.latency / alone,
        })
    };
    let bandwidth_object = |row: &ssds::Bandwidth| {
        json!({
            "event": "measurement", "experiment": "csd-ssds", "figure": 17, "guests": row.guests, "ssds": row.ssds,
            "through": through(row), "gb_per_s": row.rate / 1e9,
        })
    };
    let contended_bar = |row: &ssds::Contended| Bar {
        panel: "latency / alone (figure 6)".into(),
        label: format!("{} x {} {}", row.others, row.depth, coupled(row)),
        parts: vec![(Component::Ssd, row.latency / alone)],
    };
    let bandwidth_bar = |row: &ssds::Bandwidth| Bar {
        panel: "GB/s (figure 17)".into(),
        label: format!(
            "{} {} {}",
            plural(row.guests, "guest"),
            plural(row.ssds, "SSD"),
            if row.operator { "card" } else { "" }
        ),
        parts: vec![(Component::Bus, row.rate / 1e9)],
    };
    Results {
        name: "csd-ssds",
        title: "Guests that share SSDs: one for all, and one each (FlexCSV, figures 6 and 17)",
        header: vec!["", "SSDs", "", "of one"],
        rows: rows.contended.iter().map(latency).chain(rows.bandwidth.iter().map(bandwidth)).collect(),
        objects: rows
            .contended
            .iter()
            .map(contended_object)
            .chain(rows.bandwidth.iter().map(bandwidth_object))
            .collect(),
        figures: ssds::figures(rows),
        chart: Chart {
            unit: "",
            bars: rows
                .contended
                .iter()
                .map(contended_bar)
                .chain(rows.bandwidth.iter().map(bandwidth_bar))
                .collect(),
        },
    }
}

/// Returns figures 7, 8 and 18, and fairness.
pub fn qos(rows: &qos::Rows) -> Results {
    let groups = |row: &qos::Violations| format!("[{}, {}]", row.groups[0], row.groups[1]);
    let part = |value: f64| format!("{value:.3}");
    let violations = rows.violations.iter().map(|row| {
        let all = part(row.ratio);
        vec![
            format!("violations, {}", groups(row)),
            row.strategy.name().into(),
            all,
            part(row.by_group[0]),
            part(row.by_group[1]),
        ]
    });
    let distributions = rows.distributions.iter().map(|row| {
        let what = format!("latency of guests with 1/{}T: violations, 50 %, 95 %", 1.0 / row.rate);
        vec![
            what,
            row.strategy.name().into(),
            part(row.violations),
            part(row.quantiles[1]),
            part(row.quantiles[4]),
        ]
    });
    let rates = rows.rates.iter().map(|row| {
        let what = format!("{} guests, {} requests/s each: mean, ms", row.guests, row.rate);
        vec![what, "one operator".into(), part(row.mean / 1e6), String::new(), String::new()]
    });
    let neighbours = rows.neighbours.iter().map(|row| {
        let moderate = row.violations[..3].iter().sum::<f64>() / 3.0;
        let what = "beside a guest that always asks: violations; least, most slot time of a share";
        vec![
            what.into(),
            row.strategy.name().into(),
            part(moderate),
            part(row.shares[0]),
            part(row.shares[1]),
        ]
    });
    let objects = rows.violations.iter().map(|row| {
        json!({
            "event": "measurement", "experiment": "csd-qos", "figure": 18, "groups": row.groups,
            "strategy": row.strategy.name(), "violations": row.ratio, "by_group": row.by_group,
        })
    });
    let distribution_objects = rows.distributions.iter().map(|row| {
        json!({
            "event": "measurement", "experiment": "csd-qos", "figure": 7, "rate": row.rate,
            "strategy": row.strategy.name(), "parts": qos::QUANTILES, "latency_of_alone": row.quantiles,
            "violations": row.violations,
        })
    });
    let rate_objects = rows.rates.iter().map(|row| {
        json!({
            "event": "measurement", "experiment": "csd-qos", "figure": 8, "guests": row.guests,
            "requests_per_s": row.rate, "mean_ns": row.mean,
        })
    });
    let neighbour_objects = rows.neighbours.iter().map(|row| {
        json!({
            "event": "measurement", "experiment": "csd-qos", "strategy": row.strategy.name(),
            "violations_by_guest": row.violations, "least_and_most_share": row.shares, "of_bound": row.of_bound,
        })
    });
    let violation_bars = rows.violations.iter().map(|row| Bar {
        panel: format!("violations, [A, B] = {} (figure 18)", groups(row)),
        label: row.strategy.name().into(),
        parts: vec![(Component::Ndp, row.ratio)],
    });
    let distribution_bars = rows.distributions.iter().flat_map(|row| {
        qos::QUANTILES.iter().zip(row.quantiles).map(move |(part, latency)| Bar {
            panel: format!("latency / alone, 1/{}T, {} (figure 7)", 1.0 / row.rate, row.strategy.name()),
            label: format!("{:.0} % of requests", part * 100.0),
            parts: vec![(Component::Ndp, latency)],
        })
    });
    let rate_bars = rows.rates.iter().map(|row| Bar {
        panel: format!("mean latency, ms, {} guests (figure 8)", row.guests),
        label: format!("{} a second", row.rate),
        parts: vec![(Component::Ndp, row.mean / 1e6)],
    });
    Results {
        name: "csd-qos",
        title: "Four guests that share operators: requests that take more than 1.5 times the time alone (FlexCSV, figures 7, 8 and 18)",
        header: vec!["", "slots", "", "group A", "group B"],
        rows: violations.chain(distributions).chain(rates).chain(neighbours).collect(),
        objects: objects.chain(distribution_objects).chain(rate_objects).chain(neighbour_objects).collect(),
        figures: qos::figures(rows),
        chart: Chart { unit: "", bars: violation_bars.chain(distribution_bars).chain(rate_bars).collect() },
    }
}

/// Returns figures 13 and 14, and tables 1 and 3.
pub fn times(times: &times::Times, setting: &Setting) -> Results {
    let single = [
        ("the way to an SSD and back, by the host's software", times.software, Component::Kernel),
        ("the same, by the bus", times.bus, Component::Bus),
        ("the same, on a chip", times.chip, Component::Card),
        ("the SSD's own time for 4 KiB", times.ssd, Component::Ssd),
        ("loading a slot, by the host", times.by_host, Component::Kernel),
        ("loading a slot, from the card's memory", times.by_card, Component::Card),
        ("what renaming adds to a request (table 1)", times.renaming, Component::Card),
    ];
    let tables = times::table3(&setting.timings);
    let operator_rows = tables.iter().map(|(operator, rate)| {
        let time = setting.timings.working(*operator, 4096);
        vec![format!("{} (table 3: {:.0} MB/s), 4 KiB", operator.name(), *rate as f64 / 1e6), us(time)]
    });
    let objects = single.iter().map(|(what, time, _)| {
        json!({ "event": "measurement", "experiment": "csd-steps", "of": what, "ns": time })
    });
    let bar = |(what, time, component): &(&str, u64, Component)| {
        let loads = what.starts_with("loading");
        let (panel, unit) =
            if loads { ("loading, ms (figure 14)", 1e6) } else { ("us (figure 13, table 1)", 1e3) };
        Bar { panel: panel.into(), label: (*what).into(), parts: vec![(*component, *time as f64 / unit)] }
    };
    Results {
        name: "csd-steps",
        title: "Single steps, us (FlexCSV, figures 13 and 14, tables 1 and 3)",
        header: vec!["", "us"],
        rows: single
            .iter()
            .map(|(what, time, _)| vec![(*what).into(), us(*time)])
            .chain(operator_rows)
            .collect(),
        objects: objects.collect(),
        figures: times::figures(times),
        chart: Chart { unit: "", bars: single.iter().map(bar).collect() },
    }
}

/// Returns tables 1 to 3, of the FPGA's resources.
pub fn area() -> Results {
    let cells =
        |area: area::Area| [area.luts, area.registers, area.block_rams].map(|count| count.to_string());
    let none = || ["-"; 3].map(String::from);
    let row = |part: &area::Part| {
        let mut row = vec![format!("table {}: {}", part.table, part.name)];
        row.extend(cells(part.paper));
        row.extend(part.ours.map_or_else(none, |(_, area)| cells(area)));
        row
    };
    let unit = |(name, area): &(&str, area::Area)| {
        let mut row = vec![format!("{name}, of this repository")];
        row.extend(none());
        row.extend(cells(*area));
        row
    };
    let object = |whose: &str, name: &str, area: area::Area| {
        json!({
            "event": "measurement", "experiment": "csd-area", "of": name, "whose": whose, "luts": area.luts,
            "registers": area.registers, "block_rams": area.block_rams,
        })
    };
    let paper = area::PARTS.iter().map(|part| object("paper", part.name, part.paper));
    let ours = area::PARTS.iter().filter_map(|part| part.ours).chain(area::UNITS);
    let bar = |part: &area::Part| Bar {
        panel: format!("thousand LUTs (table {})", part.table),
        label: part.name.into(),
        parts: vec![(Component::Card, f64::from(part.paper.luts) / 1e3)],
    };
    Results {
        name: "csd-area",
        title: "The FPGA's resources (FlexCSV, tables 1 to 3), and those of the SystemVerilog of this repository",
        header: vec!["", "LUTs", "registers", "block RAMs", "LUTs here", "registers here", "block RAMs here"],
        rows: area::PARTS.iter().map(row).chain(area::UNITS.iter().map(unit)).collect(),
        objects: paper.chain(ours.map(|(name, area)| object("ours", name, area))).collect(),
        figures: area::figures(),
        chart: Chart {
            unit: "",
            bars: area::PARTS.iter().skip(1).filter(|part| part.table > 1).map(bar).collect(),
        },
    }
}
