//! Tables, JSON and charts of the experiments.

use super::bars::{Bar, Chart};
use super::results::Results;
use crate::harness::table::Table;
use crate::report::Report;
use dcs_sim::cpu::Component;
use dcs_sim::drives::Timings;
use dcs_sim::experiments::figure::{Figure, Reach};
use dcs_sim::experiments::load::{Direction, Measured};
use dcs_sim::experiments::{balancer, contention, d2d, encrypted, latency, object, projection, scaling};
use dcs_sim::host::Waiting;
use dcs_sim::parameters::Parameters;
use serde_json::{Value, json};

/// Reports `dcs bench sim parameters`.
pub fn parameters(parameters: &Parameters, timings: &Timings, report: &Report) {
    for row in parameters.rows().into_iter().chain(timings.rows()) {
        report.text(format_args!("{:20} {:>13} {:9} {}", row.name, row.value, row.unit, row.source));
        report.object(&json!({
            "event": "parameter", "name": row.name, "value": row.value, "unit": row.unit, "source": row.source,
        }));
    }
}

/// Reports a table, then the figures compared with the papers'.
pub fn experiment(shown: &Results, report: &Report) {
    report.text(format_args!("\n{}\n", shown.title));
    let mut table = Table::new(shown.header.iter().copied()).indent(0);
    shown.rows.iter().for_each(|row| table.row(row.iter().cloned()));
    table.show(report);
    for object in &shown.objects {
        report.object(object);
    }
    report.text("\n  ours   paper   to reach");
    for figure in &shown.figures {
        report.text(self::figure(figure));
        report.object(&figure_object(shown.name, figure));
    }
}

/// Returns a figure of an experiment as JSON.
pub fn figure_object(experiment: &str, figure: &Figure) -> Value {
    json!({
        "event": "figure", "experiment": experiment, "figure": figure.what, "ours": figure.ours,
        "paper": figure.paper, "to_reach": figure.reach.map(reach), "reached": figure.is_reached(),
        "why": figure.why,
    })
}

/// Formats a target.
pub fn reach(reach: Reach) -> String {
    match reach {
        Reach::AtMost(most) => format!("<= {most}"),
        Reach::AtLeast(least) => format!(">= {least}"),
    }
}

fn figure(figure: &Figure) -> String {
    let paper = figure.paper.map_or("    -".into(), |paper| format!("{paper:5.2}"));
    let reached = match figure.is_reached() {
        Some(true) => "reached",
        Some(false) => "NOT reached",
        None => "",
    };
    let to_reach = figure.reach.map_or(String::new(), reach);
    let why = if figure.why.is_empty() { String::new() } else { format!("\n{:34}{}", "", figure.why) };
    format!("{:6.3}   {paper}   {to_reach:7} {reached:11} {}{why}", figure.ours, figure.what)
}

fn us(nanos: u64) -> String {
    format!("{:.1}", nanos as f64 / 1e3)
}

/// Returns time by component, as fields.
fn parts(parts: &[(Component, u64)]) -> Value {
    parts
        .iter()
        .map(|(what, time)| (what.name().to_string(), json!(time)))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

/// Returns CPU time by component, in cores.
fn cores(measured: &Measured) -> Vec<(Component, f64)> {
    let of = |(what, time): &(Component, u64)| (*what, *time as f64 / measured.time as f64);
    measured.busy.iter().filter(|(what, _)| *what != Component::Spinner).map(of).collect()
}

fn load_cells(measured: &Measured) -> Vec<String> {
    vec![
        format!("{:.2}", measured.gbps()),
        format!("{:.4}", measured.cores()),
        format!("{:.4}", measured.cpu_s_per_gib()),
    ]
}

fn load_object(experiment: &str, design: &str, more: Value, measured: &Measured) -> Value {
    let mut object = json!({
        "event": "measurement", "experiment": experiment, "design": design, "gb_per_s": measured.gbps(),
        "cores": measured.cores(), "cpu_s_per_gib": measured.cpu_s_per_gib(), "bytes": measured.bytes,
        "ns": measured.time, "busy_ns": parts(&measured.busy),
    });
    if let (Some(fields), Value::Object(more)) = (object.as_object_mut(), more) {
        fields.extend(more);
    }
    object
}

/// Returns the results of [`latency`].
pub fn latency(rows: &[latency::Row]) -> Results {
    let waits = |waiting| if waiting == Waiting::Poll { ", polling" } else { "" };
    let name = |row: &latency::Row| format!("{}{}", row.design.name(), waits(row.waiting));
    let job = |row: &latency::Row| match row.operator {
        None => "SSD -> NIC",
        Some(operator) if operator.digest_size() > 0 => "SSD -> MD5 -> NIC",
        Some(_) => "SSD -> AES256 -> NIC",
    };
    let cells = |row: &latency::Row| {
        let card = row.control() - row.software();
        let devices = row.total - row.control();
        vec![
            name(row),
            job(row).into(),
            us(row.total),
            us(row.software()),
            us(card),
            us(devices),
            us(row.returned),
        ]
    };
    let object = |row: &latency::Row| {
        json!({
            "event": "measurement", "experiment": "latency", "design": row.design.name(), "job": job(row),
            "waiting": format!("{:?}", row.waiting).to_lowercase(), "total_ns": row.total, "software_ns": row.software(),
            "control_ns": row.control(), "returned_ns": row.returned, "parts_ns": parts(&row.parts),
        })
    };
    let bar = |row: &latency::Row| Bar {
        panel: job(row).into(),
        label: name(row),
        parts: row.parts.iter().map(|(what, time)| (*what, *time as f64 / 1e3)).collect(),
    };
    Results {
        name: "latency",
        title: "4 KiB from the application's call to the last bit at the far end of a 10 Gb/s wire, us",
        header: vec!["design", "job", "total", "host software", "card control", "devices", "call returned"],
        rows: rows.iter().map(cells).collect(),
        objects: rows.iter().map(object).collect(),
        figures: latency::figures(rows),
        chart: Chart { unit: "us", bars: rows.iter().map(bar).collect() },
    }
}

/// Returns the results of [`contention`].
pub fn contention(cpu: &[contention::Row], memory: &[contention::Row]) -> Results {
    let all =
        || cpu.iter().map(|row| ("spinners", row)).chain(memory.iter().map(|row| ("memory contenders", row)));
    let cells = |(what, row): (&str, &contention::Row)| {
        let mut cells = vec![row.design.name().into(), format!("{} {what}", row.contenders)];
        cells.extend(load_cells(&row.measured));
        cells
    };
    let object = |(what, row): (&str, &contention::Row)| {
        let more = json!({ "contenders": row.contenders, "of": what });
        load_object("contention", row.design.name(), more, &row.measured)
    };
    let bar = |(what, row): (&str, &contention::Row)| Bar {
        panel: format!("Gb/s beside {what}: {}", row.design.name()),
        label: row.contenders.to_string(),
        parts: vec![(Component::Network, row.measured.gbps())],
    };
    Results {
        name: "contention",
        title: "4 MiB objects on two cores and 10 Gb/s: SSD -> NIC beside spinners, NIC -> CRC32 -> SSD beside memory contenders",
        header: vec!["design", "beside", "Gb/s", "cores", "CPU s/GiB"],
        rows: all().map(cells).collect(),
        objects: all().map(object).collect(),
        figures: [contention::cpu_figures(cpu), contention::memory_figures(memory)].concat(),
        chart: Chart { unit: "Gb/s", bars: all().map(bar).collect() },
    }
}

fn cpu_bar(panel: String, label: &str, measured: &Measured) -> Bar {
    Bar { panel, label: label.into(), parts: cores(measured) }
}

/// Returns the results of [`object`].
pub fn object(rows: &[object::Row]) -> Results {
    Results {
        name: "object",
        title: "An object server: GET and PUT with MD5, 4 KiB to 4 MiB, Poisson arrivals; below, other mixes",
        header: vec!["design", "mix", "Gb/s", "cores", "CPU s/GiB"],
        rows: rows
            .iter()
            .map(|row| {
                [vec![row.design.name().into(), row.mix.name.into()], load_cells(&row.measured)].concat()
            })
            .collect(),
        objects: rows
            .iter()
            .map(|row| {
                load_object("object", row.design.name(), json!({ "mix": row.mix.name }), &row.measured)
            })
            .collect(),
        figures: object::figures(rows),
        chart: Chart {
            unit: "cores",
            bars: rows
                .iter()
                .map(|row| cpu_bar(row.mix.name.into(), row.design.name(), &row.measured))
                .collect(),
        },
    }
}

/// Returns the results of [`balancer`].
pub fn balancer(rows: &[balancer::Row]) -> Results {
    let side = |direction| if direction == Direction::Send { "sender" } else { "receiver" };
    let cells = |row: &balancer::Row| {
        [vec![row.design.name().into(), side(row.direction).into()], load_cells(&row.measured)].concat()
    };
    let object = |row: &balancer::Row| {
        load_object("balancer", row.design.name(), json!({ "side": side(row.direction) }), &row.measured)
    };
    let bar = |row: &balancer::Row| cpu_bar(side(row.direction).into(), row.design.name(), &row.measured);
    Results {
        name: "balancer",
        title: "The HDFS balancer: pieces of 8 MiB at 3 Gb/s; the receiver takes CRC32",
        header: vec!["design", "side", "Gb/s", "cores", "CPU s/GiB"],
        rows: rows.iter().map(cells).collect(),
        objects: rows.iter().map(object).collect(),
        figures: balancer::figures(rows),
        chart: Chart { unit: "cores", bars: rows.iter().map(bar).collect() },
    }
}

/// Returns the results of [`encrypted`].
pub fn encrypted(rows: &[encrypted::Row]) -> Results {
    let cells = |row: &encrypted::Row| {
        let time = format!("{:.1}", row.measured.time as f64 / 1e6);
        [vec![row.design.name().into(), time], load_cells(&row.measured)].concat()
    };
    Results {
        name: "encrypted-sendfile",
        title: "One object, AES-256 in counter mode, over 10 Gb/s; the peer decrypts it",
        header: vec!["design", "ms", "Gb/s", "cores", "CPU s/GiB"],
        rows: rows.iter().map(cells).collect(),
        objects: rows
            .iter()
            .map(|row| load_object("encrypted-sendfile", row.design.name(), json!({}), &row.measured))
            .collect(),
        figures: encrypted::figures(rows),
        chart: Chart {
            unit: "cores",
            bars: rows
                .iter()
                .map(|row| cpu_bar("encrypted sendfile".into(), row.design.name(), &row.measured))
                .collect(),
        },
    }
}

/// Returns the results of [`scaling`].
pub fn scaling(rows: &[scaling::Row]) -> Results {
    let cells = |row: &scaling::Row| {
        [vec![row.design.name().into(), row.sets.to_string()], load_cells(&row.measured)].concat()
    };
    let object = |row: &scaling::Row| {
        load_object("scaling", row.design.name(), json!({ "sets": row.sets }), &row.measured)
    };
    let bar = |row: &scaling::Row| Bar {
        panel: format!("Gb/s by sets: {}", row.design.name()),
        label: row.sets.to_string(),
        parts: vec![(Component::Network, row.measured.gbps())],
    };
    Results {
        name: "scaling",
        title: "SSD -> NIC, 1 to 4 sets of an SSD and a 10 Gb/s NIC, two cores",
        header: vec!["design", "sets", "Gb/s", "cores", "CPU s/GiB"],
        rows: rows.iter().map(cells).collect(),
        objects: rows.iter().map(object).collect(),
        figures: scaling::figures(rows),
        chart: Chart { unit: "Gb/s", bars: rows.iter().map(bar).collect() },
    }
}

/// Returns the results of [`projection`].
pub fn projection(rows: &[projection::Row], work: &[projection::Work]) -> Results {
    let cells = |row: &projection::Row| {
        let latency = &row.latency;
        let share = format!("{:.1}", 100.0 * latency.control() as f64 / latency.total as f64);
        let or = |cell: Option<String>| cell.unwrap_or("-".into());
        let throughput = row.throughput.as_ref();
        vec![
            latency.design.name().into(),
            row.devices.name.into(),
            us(latency.total),
            us(latency.software()),
            us(latency.control() - latency.software()),
            share,
            or(throughput.map(|measured| format!("{:.1}", measured.gbps()))),
            or(throughput.map(|measured| format!("{:.3}", measured.cores()))),
        ]
    };
    let object = |row: &projection::Row| {
        json!({
            "event": "measurement", "experiment": "projection", "design": row.latency.design.name(),
            "devices": row.devices.name, "total_ns": row.latency.total, "software_ns": row.latency.software(),
            "control_ns": row.latency.control(), "parts_ns": parts(&row.latency.parts),
            "gb_per_s": row.throughput.as_ref().map(Measured::gbps),
            "cores": row.throughput.as_ref().map(Measured::cores),
        })
    };
    let work_cells = |row: &projection::Work| {
        let devices = format!("{}, six SSDs, 40 Gb/s, {} cores", row.workload.name(), projection::CORES);
        let mut cells = vec![row.design.name().into(), devices];
        cells.extend(["-"; 4].map(String::from));
        cells.extend([format!("{:.1}", row.measured.gbps()), format!("{:.3}", row.measured.cores())]);
        cells
    };
    let work_object = |row: &projection::Work| {
        let more = json!({ "workload": row.workload.name() });
        load_object("projection", row.design.name(), more, &row.measured)
    };
    let bar = |row: &projection::Row| Bar {
        panel: format!("us: {}", row.devices.name),
        label: row.latency.design.name().into(),
        parts: row.latency.parts.iter().map(|(what, time)| (*what, *time as f64 / 1e3)).collect(),
    };
    let work_bar = |row: &projection::Work| Bar {
        panel: format!("cores for 40 Gb/s, six SSDs: {}", row.workload.name()),
        label: row.design.name().into(),
        parts: vec![(Component::Kernel, row.measured.cores() / row.measured.gbps() * 40.0)],
    };
    let rate_bar = |row: &projection::Work| Bar {
        panel: format!("Gb/s, six SSDs and cores: {}", row.workload.name()),
        label: row.design.name().into(),
        parts: vec![(Component::Network, row.measured.gbps())],
    };
    let work_bars = || work.iter().map(work_bar).chain(work.iter().map(rate_bar));
    Results {
        name: "projection",
        title: "Faster devices: the latency of 4 KiB (us), and SSD -> NIC as fast as it goes",
        header: vec![
            "design",
            "devices",
            "total",
            "host software",
            "card control",
            "% no device's",
            "Gb/s",
            "cores",
        ],
        rows: rows.iter().map(cells).chain(work.iter().map(work_cells)).collect(),
        objects: rows.iter().map(object).chain(work.iter().map(work_object)).collect(),
        figures: [projection::figures(rows), projection::work_figures(work)].concat(),
        chart: Chart { unit: "", bars: rows.iter().map(bar).chain(work_bars()).collect() },
    }
}

/// Returns the results of [`d2d`].
pub fn d2d(rows: &d2d::Rows) -> Results {
    let latency = |row: &d2d::Latency| {
        let cells = row.parts.iter().map(|(what, time)| format!("{} {}", what.name(), us(*time)));
        vec![
            format!("{} bytes, {}", row.frame, row.design.name()),
            us(row.total),
            cells.collect::<Vec<_>>().join(", "),
        ]
    };
    let throughput = |row: &d2d::Throughput| {
        vec![
            format!("8 streams, as fast as they go, {} Gb/s", row.gbps),
            "-".into(),
            format!("{:.4} of the wire", row.share()),
        ]
    };
    let pace = |row: &d2d::Pace| {
        let (most_of_them, most) = (us(row.most_of_them), us(row.most));
        let host = format!("{} interrupts, {} bytes of host memory", row.interrupts, row.host_bytes);
        vec![
            format!("{} videos of 7.82 Mb/s, after due time", row.streams),
            us(row.median),
            format!("99 % {most_of_them}, most {most}; {} datagrams; {host}", row.datagrams),
        ]
    };
    let utilization = |row: &d2d::Utilization| {
        let share = format!("{:.1} % of a core", row.share * 100.0);
        vec![format!("{} videos, {}", row.streams, row.design.name()), "-".into(), share]
    };
    let mut cells: Vec<_> = rows.latency.iter().map(latency).collect();
    cells.extend(rows.throughput.iter().map(throughput));
    cells.extend(rows.pace.iter().map(pace));
    cells.extend(rows.utilization.iter().map(utilization));
    let mut objects: Vec<Value> = Vec::new();
    objects.extend(rows.latency.iter().map(|row| {
        json!({
            "event": "measurement", "experiment": "d2d", "design": row.design.name(), "frame": row.frame,
            "total_ns": row.total, "parts_ns": parts(&row.parts),
        })
    }));
    objects.extend(rows.throughput.iter().map(|row| {
        json!({
            "event": "measurement", "experiment": "d2d", "gb_per_s_of_wire": row.gbps, "share": row.share(),
        })
    }));
    objects.extend(rows.pace.iter().map(|row| {
        json!({
            "event": "measurement", "experiment": "d2d", "streams": row.streams, "datagrams": row.datagrams,
            "late_ns_median": row.median, "late_ns_99": row.most_of_them, "late_ns_most": row.most,
            "interrupts": row.interrupts, "host_memory_bytes": row.host_bytes,
        })
    }));
    objects.extend(rows.utilization.iter().map(|row| {
        json!({
            "event": "measurement", "experiment": "d2d", "design": row.design.name(), "streams": row.streams,
            "cpu_of_a_core": row.share,
        })
    }));
    let bar = |row: &d2d::Latency| Bar {
        panel: format!("us, a frame of {} bytes", row.frame),
        label: row.design.name().into(),
        parts: row.parts.iter().map(|(what, time)| (*what, *time as f64 / 1e3)).collect(),
    };
    Results {
        name: "d2d",
        title: "D2D streams, two 10 Gb/s NICs, an SSD",
        header: vec!["what", "us", "of it"],
        rows: cells,
        objects,
        figures: d2d::figures(rows),
        chart: Chart { unit: "us", bars: rows.latency.iter().map(bar).collect() },
    }
}
