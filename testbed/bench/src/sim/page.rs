//! The report: one page with every experiment, its figures compared with the papers', and all data.
//!
//! The page is self-contained: it includes the plots, and the measurements as JSON lines. It runs no script.

use super::Options;
use super::bars;
use super::real::Real;
use super::results::Results;
use super::show;
use crate::failure::{Exit, Failure};
use crate::guest::drives;
use crate::guest::experiments::{measurement::Measurement, shown};
use crate::report::Report;
use dcs_sim::drives::Timings;
use dcs_sim::experiments::figure::Figure;
use dcs_sim::parameters::Parameters;
use serde_json::Value;
use std::fmt::Write;
use std::path::Path;

const STYLE: &str = "
body { font: 16px/1.5 system-ui, sans-serif; max-width: 76rem; margin: 0 auto; padding: 0 1rem 4rem; color: #1b1b1b; background: #fff; }
h1 { margin-top: 2rem; } h2 { margin-top: 3rem; border-bottom: 1px solid #bbb; }
nav a { margin-right: 1rem; white-space: nowrap; }
table { border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums; }
th, td { padding: .2rem .7rem; text-align: right; border-bottom: 1px solid #ddd; vertical-align: top; }
th { border-bottom: 2px solid #888; } .text { text-align: left; }
.scroll { overflow-x: auto; } figure { margin: 1rem 0; } svg { max-width: 100%; height: auto; }
.yes { color: #006b2d; } .no { color: #a40000; font-weight: bold; } small { color: #444; }
";

const INTRODUCTION: &str = "\
Experiments of DCS (MICRO 2015) and DCS-ctrl (ISCA 2018; both in Ahn's dissertation, 2019), on servers that differ in one thing: who controls \
the devices, and which way the data go. The servers are models in virtual time; the programs on them are real, move every byte over an \
in-memory PCIe fabric and have it checked at the far end. What a step of software costs is a parameter, listed at the end with its source; \
none was chosen for what comes out. Which figures from outside the papers were not checked against their originals is said in docs/experiments.md. The same build gives the same figures on any machine. docs/experiments.md says what is modelled and \
what is not.";

const IN_QEMU: &str = "\
A stock Linux guest and the card, booted in QEMU: the same jobs by the guest's kernel (host), by software in user space that drives the SSD itself, with \
the kernel's TCP (software-tcp) or a NIC and a TCP of its own (software-nic, and software-p2p, where data go from the SSD's own memory to the NIC), and by one command to the card, on the same devices. QEMU emulates each instruction, so that its seconds mean nothing; ratios of guest CPU \
time, and counts, are what is compared. Of the papers' designs, software-controlled P2P is here without processing, as QEMU has no GPU, and the \
integrated device is missing. docs/server.md says what is counted.";

/// A page, and its contents: all measurements, and those of a guest if given.
pub struct Page<'a> {
    pub shown: &'a [Results],
    pub parameters: &'a Parameters,
    pub timings: &'a Timings,
    pub guest: Option<Guest>,
    pub real: Real,
    pub quick: bool,
}

/// Measurements of a guest.
pub struct Guest {
    /// Rows of `dcs vm demo --json`.
    demo: Vec<Value>,
    /// Result of `dcs vm d2d --json`.
    d2d: Option<Value>,
    /// Experiments of `dcs bench guest --json`.
    shown: Vec<Results>,
}

/// Reads a guest's measurements from a file with the output of `dcs vm demo --json`, of `dcs bench guest --json`, also of `drives`, of `dcs
/// vm d2d --json`, or of several, one after the other.
pub fn guest(options: &Options) -> Result<Option<Guest>, Failure> {
    let Some(path) = &options.guest else { return Ok(None) };
    let text = std::fs::read_to_string(path).map_err(|error| Failure::io(path.display(), &error))?;
    let bad = |why: String| {
        Failure::usage(format!("{}: {why}", path.display())).advise(
            "expected the output of dcs vm demo --json, dcs bench guest all --json, dcs bench guest drives --json or dcs vm d2d --json",
        )
    };
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    let all: Vec<Value> =
        lines.map(serde_json::from_str).collect::<Result<_, _>>().map_err(|error| bad(error.to_string()))?;
    let d2d = all.iter().rfind(|row| row["event"] == "d2d").cloned();
    let drives: Vec<Value> = all.iter().filter(|row| row["event"] == "design").cloned().collect();
    let rows: Vec<Value> = all.into_iter().filter(|row| row["event"] == "measurement").collect();
    if rows.is_empty() && drives.is_empty() && d2d.is_none() {
        return Err(bad("it has no measurement".into()));
    }
    let (experiments, demo): (Vec<Value>, Vec<Value>) =
        rows.into_iter().partition(|row| row["experiment"].is_string());
    if let Some(row) = demo.iter().find(|row| !row["guest_cpu_s_per_gib"].is_number()) {
        return Err(bad(format!("a measurement without guest_cpu_s_per_gib: {row}")));
    }
    let rows = experiments.into_iter().map(serde_json::from_value);
    let rows: Vec<Measurement> = rows.collect::<Result<_, _>>().map_err(|error| bad(error.to_string()))?;
    let mut shown = shown::all(&rows);
    if !drives.is_empty() {
        let of_drives = drives::designs_shown(&drives);
        shown.push(of_drives.ok_or_else(|| bad("a row of drives without its figures".into()))?);
    }
    Ok(Some(Guest { demo, d2d, shown }))
}

const D2D: &str = "\
An SSD sends videos to a NIC by itself, which sends them as UDP (D2D streams, docs/d2d.md): two functions beside a stock guest in QEMU, whose driver \
has written some registers and sleeps. Each datagram is compared with the file; the picture is a frame of what the last stream brought, decoded by ffmpeg. \
The D2D paper's figure 10, power, is left out: it was measured on boards, and nothing here has a model of power with a source. Its other figures \
are in virtual time: the experiments d2d-... above.";

/// Rows of the D2D streams in a guest: name of the field, text, unit.
const D2D_ROWS: [(&str, &str, &str); 8] = [
    ("streams", "videos", ""),
    ("whole", "of these, arrived with every byte as in the file", ""),
    ("bits_a_second", "bits a second of each", ""),
    ("counted_seconds", "time over which is counted, all of them running", "s"),
    ("device_interrupts", "interrupts of the SSD and the NIC", ""),
    ("driver_context_switches", "context switches of the driver", ""),
    ("guest_cpu_ms", "the guest's processor", "ms"),
    ("guest_cpu_idle_ms", "the same before a stream was started", "ms"),
];

/// Columns of a guest's measurement.
const GUEST: [(&str, &str); 7] = [
    ("job", "job"),
    ("by", "by"),
    ("guest_cpu_s_per_gib", "guest CPU s/GiB"),
    ("guest_cpu_ratio", "of host's"),
    ("guest_cpu_ratio_to_software", "of software's"),
    ("device_interrupts_per_gib", "device interrupts/GiB"),
    ("system_calls_per_gib", "system calls/GiB"),
];

impl Page<'_> {
    pub fn write(&self, path: &Path, report: &Report) -> Result<(), Failure> {
        std::fs::write(path, self.html()?).map_err(|error| Failure::io(path.display(), &error))?;
        report.remark(format_args!("the report is in {}", path.display()));
        Ok(())
    }

    fn html(&self) -> Result<String, Failure> {
        let mut page = String::new();
        self.head(&mut page);
        self.reached(&mut page);
        for shown in self.shown {
            experiment(&mut page, shown)?;
        }
        self.guest(&mut page)?;
        self.d2d(&mut page);
        self.real.write(&mut page);
        self.sources(&mut page);
        self.data(&mut page);
        page.push_str("</main></body></html>\n");
        Ok(page)
    }

    fn head(&self, page: &mut String) {
        let version = env!("CARGO_PKG_VERSION");
        push(
            page,
            format_args!(
                "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
             <meta name=\"viewport\" content=\"width=device-width\">\
             <title>dcs: the papers' experiments</title><style>{STYLE}</style></head><body><main>\
             <h1>The papers' experiments, reproduced</h1><p>{INTRODUCTION}</p>\
             <p>dcs {version}; made by <code>make report</code>.</p>"
            ),
        );
        if self.quick {
            page.push_str("<p class=\"no\">A quick run (--quick): a few transfers of each, so that figures differ from those of a whole one.</p>");
        }
        page.push_str("<nav>");
        let link = |page: &mut String, name: &str| push(page, format_args!("<a href=\"#{name}\">{name}</a>"));
        self.shown.iter().for_each(|shown| link(page, shown.name));
        link(page, "qemu");
        self.in_guest().for_each(|shown| link(page, shown.name));
        link(page, "d2d-qemu");
        self.real.links().into_iter().for_each(|name| link(page, name));
        page.push_str("<a href=\"#parameters\">parameters</a><a href=\"#data-lines\">data</a></nav>");
    }

    /// Returns the experiments in the guest.
    fn in_guest(&self) -> impl Iterator<Item = &Results> {
        self.guest.iter().flat_map(|guest| &guest.shown)
    }

    /// Returns the experiments in virtual time, then those in the guest.
    fn all(&self) -> impl Iterator<Item = &Results> {
        self.shown.iter().chain(self.in_guest())
    }

    /// Writes a table of all targets.
    fn reached(&self, page: &mut String) {
        page.push_str("<h2 id=\"reached\">What was to be reached</h2>");
        let all = self.all().flat_map(|shown| shown.figures.iter().map(move |figure| (shown.name, figure)));
        let rows = all.filter(|(_, figure)| figure.reach.is_some()).map(|(name, figure)| {
            let mut cells = vec![format!("<a href=\"#{name}\">{name}</a>")];
            cells.extend(figure_cells(figure));
            cells
        });
        table(page, &["experiment", "figure", "here", "papers", "to reach", ""], 2, rows);
    }

    fn guest(&self, page: &mut String) -> Result<(), Failure> {
        push(page, format_args!("<h2 id=\"qemu\">In QEMU: the designs in a guest</h2><p>{IN_QEMU}</p>"));
        let Some(guest) = &self.guest else {
            page.push_str("<p>Not measured for this page: <code>dcs vm demo --json &gt; guest.json</code>, <code>dcs bench guest all --json &gt;&gt; guest.json</code>, <code>dcs bench guest drives --json &gt;&gt; guest.json</code>, then <code>--guest guest.json</code>.</p>");
            return Ok(());
        };
        if !guest.demo.is_empty() {
            let cells =
                guest.demo.iter().map(|row| GUEST.iter().map(|(field, _)| cell(&row[*field])).collect());
            table(page, &GUEST.map(|(_, name)| name), 2, cells);
        }
        guest.shown.iter().try_for_each(|shown| experiment(page, shown))
    }

    /// Writes what `dcs vm d2d` counted, and a frame of what arrived.
    fn d2d(&self, page: &mut String) {
        push(page, format_args!("<h2 id=\"d2d-qemu\">In QEMU: D2D streams</h2><p>{D2D}</p>"));
        let Some(d2d) = self.guest.as_ref().and_then(|guest| guest.d2d.as_ref()) else {
            page.push_str("<p>Not measured for this page: <code>dcs vm d2d --json &gt;&gt; guest.json</code>, then <code>--guest guest.json</code>.</p>");
            return;
        };
        let rows = D2D_ROWS.map(|(field, what, unit)| vec![what.into(), cell(&d2d[field]), unit.into()]);
        table(page, &["", "counted", "unit"], 1, rows.into_iter());
        page.push_str(match &d2d["decoded"] {
            Value::Bool(true) => "<p class=\"yes\">ffmpeg decodes every frame.</p>",
            Value::Bool(false) => "<p class=\"no\">ffmpeg misses something.</p>",
            _ => "<p>Not decoded: there was no ffmpeg.</p>",
        });
        // Of base64's letters alone: it goes into an attribute.
        let is_base64 =
            |text: &&str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte));
        if let Some(jpeg) = d2d["frame_jpeg"].as_str().filter(is_base64) {
            push(
                page,
                format_args!(
                    "<figure><img alt=\"A frame of a video that a NIC has sent\" src=\"data:image/jpeg;base64,{jpeg}\"></figure>"
                ),
            );
        }
    }

    fn sources(&self, page: &mut String) {
        page.push_str("<h2 id=\"parameters\">Parameters, and where each is from</h2>");
        let rows: Vec<_> = self.parameters.rows().into_iter().chain(self.timings.rows()).collect();
        let cells = rows.iter().map(|row| {
            let [name, unit, source] = [row.name, row.unit, row.source].map(escape);
            vec![name, source, row.value.to_string(), unit]
        });
        table(page, &["parameter", "source", "value", "unit"], 2, cells);
    }

    /// Writes all data as JSON lines, for plotting them again.
    fn data(&self, page: &mut String) {
        page.push_str("<h2 id=\"data-lines\">Data</h2><details><summary>Measurements and figures, a JSON object a line</summary><pre id=\"lines\">");
        let figures = |shown: &Results| {
            shown.figures.iter().map(|figure| show::figure_object(shown.name, figure)).collect::<Vec<_>>()
        };
        for shown in self.all() {
            for object in shown.objects.iter().chain(&figures(shown)) {
                page.push_str(&escape(&object.to_string()));
                page.push('\n');
            }
        }
        let demo = self.guest.iter().flat_map(|guest| &guest.demo);
        for object in demo.chain(self.real.data()) {
            page.push_str(&escape(&object.to_string()));
            page.push('\n');
        }
        if let Some(mut object) = self.guest.as_ref().and_then(|guest| guest.d2d.clone()) {
            // Shown above.
            object["frame_jpeg"] = Value::Null;
            page.push_str(&escape(&object.to_string()));
            page.push('\n');
        }
        page.push_str("</pre></details>");
    }
}

fn experiment(page: &mut String, shown: &Results) -> Result<(), Failure> {
    let svg = bars::svg(&shown.chart)
        .map_err(|error| Failure::new(Exit::Failed, format!("the plot of {}: {error}", shown.name)))?;
    let title = escape(shown.title);
    push(
        page,
        format_args!(
            "<h2 id=\"{0}\">{0}</h2><p>{title}</p><figure role=\"img\" aria-label=\"{title}\" class=\"scroll\">{svg}</figure>",
            shown.name,
        ),
    );
    table(page, &shown.header, 1, shown.rows.iter().map(|row| row.iter().map(|text| escape(text)).collect()));
    table(page, &["figure", "here", "papers", "to reach", ""], 1, shown.figures.iter().map(figure_cells));
    Ok(())
}

fn figure_cells(figure: &Figure) -> Vec<String> {
    let why = if figure.why.is_empty() {
        String::new()
    } else {
        format!("<br><small>{}</small>", escape(figure.why))
    };
    let reached = match figure.is_reached() {
        Some(true) => "<span class=\"yes\">reached</span>",
        Some(false) => "<span class=\"no\">not reached</span>",
        None => "",
    };
    vec![
        format!("{}{why}", escape(figure.what)),
        format!("{:.3}", figure.ours),
        figure.paper.map_or("-".into(), |paper| format!("{paper:.2}")),
        figure.reach.map_or(String::new(), |reach| escape(&show::reach(reach))),
        reached.into(),
    ]
}

/// Writes a table of HTML cells; the first `texts` columns are text.
pub(super) fn table(
    page: &mut String,
    header: &[&str],
    texts: usize,
    rows: impl Iterator<Item = Vec<String>>,
) {
    let class = |at: usize| if at < texts { " class=\"text\"" } else { "" };
    page.push_str("<div class=\"scroll\"><table><thead><tr>");
    for (at, name) in header.iter().enumerate() {
        push(page, format_args!("<th{}>{}</th>", class(at), escape(name)));
    }
    page.push_str("</tr></thead><tbody>");
    for row in rows {
        page.push_str("<tr>");
        for (at, cell) in row.iter().enumerate() {
            push(page, format_args!("<td{}>{cell}</td>", class(at)));
        }
        page.push_str("</tr>");
    }
    page.push_str("</tbody></table></div>");
}

/// Formats a measured value: numbers with their significant digits.
pub(super) fn cell(value: &Value) -> String {
    match value {
        Value::String(text) => escape(text),
        Value::Number(number) => match number.as_f64() {
            Some(number) if number < 100.0 => format!("{number:.2}"),
            Some(number) => format!("{number:.0}"),
            None => escape(&number.to_string()),
        },
        _ => "-".into(),
    }
}

pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

pub(super) fn push(page: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a String never fails.
    let _ = page.write_fmt(text);
}
