//! `dcs bench stream`: cost of programs that send videos in datagrams, and each datagram's deviation from its due time.
//!
//! | module | contents |
//! |---|---|
//! | `options` | the command line |
//! | `contender` | the programs, and how they are started |
//! | `video` | the file that is sent |
//! | `listen` | the sockets, and the deviation of datagrams |

pub mod contender;
mod listen;
mod options;
pub mod video;

use crate::failure::Failure;
use crate::harness::clocks::Account;
use crate::harness::contender::Named;
use crate::harness::figures::median;
use crate::harness::folder::Folder;
use crate::harness::plot::{self, Point};
use crate::harness::table::{Table, number};
use crate::harness::turns::{Board, Runs};
use crate::interrupt;
use crate::report::Report;
use contender::{Contender, Programs};
use listen::Listeners;
pub use options::Options;
use serde::Serialize;
use serde_json::json;
use std::io;
use std::time::{Duration, Instant};
use video::Video;

/// Bits per second of the video, as in the D2D paper.
pub const RATE: u64 = 7_820_000;
/// Least share of the rate, in percent, at which a program is plotted.
const KEPT: f64 = 95.0;
/// Streams that are listened to; the others go to a socket that is not read.
const HEARD: usize = 8;

/// Results of one run.
#[derive(Debug)]
struct Run {
    /// CPU time of a stream, in percent of a core.
    cpu: f64,
    /// Bytes received, in percent of those due.
    kept: f64,
    /// Deviations of all datagrams received, in milliseconds, sorted.
    deviations: Vec<f32>,
}

/// Medians of a contender.
#[derive(Debug, Serialize)]
struct Row {
    event: &'static str,
    contender: &'static str,
    streams: usize,
    runs: usize,
    rate_kept_percent: f64,
    cpu_percent_a_stream: f64,
    deviation_ms_median: f64,
    deviation_ms_99: f64,
    deviation_ms_most: f64,
    datagrams_heard: usize,
}

pub fn run(options: &Options, report: &Report) -> Result<(), Failure> {
    interrupt::install();
    let folder = Folder::new(options.dir.as_deref(), "dcs-bench-stream-")?;
    let programs = Programs::find()?;
    let video = Video::make(options.video.as_deref(), &folder, &programs)?;
    let picked = match Contender::picked(&options.contenders)? {
        picked if picked.is_empty() => Contender::ALL.iter().map(|(one, ..)| *one).collect(),
        picked => picked,
    };
    let mut there = Vec::new();
    for one in picked {
        match programs.missing(one) {
            None => there.push(one),
            Some(why) => {
                report.text(format_args!("Without {}: {why}.", one.name()));
                report.object(&json!({ "event": "skipped", "contender": one.name(), "why": why }));
            }
        }
    }
    report.text(format_args!(
        "Videos of {} Mb/s to 127.0.0.1, {}; {} s each after {} s; dcs with a window of {}. Processor: {}; load average {}.",
        RATE as f64 / 1e6,
        video.what,
        options.seconds,
        options.warm_up,
        options.window,
        processor(),
        load(),
    ));
    if cfg!(debug_assertions) {
        report.text("This is a DEBUG build: its CPU time means nothing. Use make bench.");
    }
    let runs = (options.streams.len() * there.len()) as u64 * u64::from(options.runs);
    let board = Board::new(runs, report);
    let mut rows = Vec::new();
    for streams in &options.streams {
        let fits = |one: &Contender| one.is_ours() || *streams <= options.most;
        let some: Vec<Contender> = there.iter().copied().filter(fits).collect();
        if some.len() < there.len() {
            report.text(format_args!(
                "{streams} streams: others are not started more than {} times.",
                options.most
            ));
        }
        let what = format!("{streams} streams");
        let all = board
            .turns(&what, &some, options.runs, |one, _| measure(one, *streams, &programs, &video, options))?;
        let some: Vec<Row> = all.iter().map(|runs| row(runs, *streams)).collect();
        board.show(&some, table);
        rows.extend(some);
    }
    drop(board);
    if let Some(path) = &options.svg {
        draw(&rows, path, report)?;
    }
    report.text(format_args!("Load average at the end: {}.", load()));
    report.object(&json!({ "event": "done", "ok": true }));
    Ok(())
}

/// Makes one run: measures CPU time of the program and its children, and listens to eight streams meanwhile.
fn measure(
    one: Contender,
    streams: usize,
    programs: &Programs,
    video: &Video,
    options: &Options,
) -> io::Result<Run> {
    if interrupt::pressed() {
        return Err(io::Error::other("interrupted"));
    }
    let listeners = Listeners::new(streams.min(HEARD))?;
    let senders = programs.start(one, (streams, &options.window), &listeners.ports(), video)?;
    listeners.until(Instant::now() + Duration::from_secs_f64(options.warm_up), None)?;
    let account =
        |_: ()| senders.iter().map(|sender| Account::of(sender.id())).collect::<io::Result<Vec<_>>>();
    let (before, start) = (account(())?, Instant::now());
    let mut heard = listeners.empty();
    listeners.until(start + Duration::from_secs_f64(options.seconds), Some(&mut heard))?;
    let (after, wall) = (account(())?, start.elapsed());
    let cpu: Duration = after.iter().zip(&before).map(|(after, before)| after.since(before)).sum();
    let said = senders.end();
    let expected = wall.as_secs_f64() * RATE as f64 / 8.0 * heard.len() as f64;
    let bytes: u64 = heard.iter().flatten().map(|(_, length)| u64::from(*length)).sum();
    if bytes == 0 {
        return Err(io::Error::other(format!("nothing came: {said}")));
    }
    Ok(Run {
        cpu: cpu.as_secs_f64() / wall.as_secs_f64() * 100.0 / streams as f64,
        kept: bytes as f64 / expected * 100.0,
        deviations: listen::deviations(&heard, RATE),
    })
}

fn row(runs: &Runs<Contender, Run>, streams: usize) -> Row {
    let of = |share: f64| {
        median(runs.runs.iter().map(|run| {
            let last = run.deviations.len().saturating_sub(1);
            f64::from(run.deviations[(last as f64 * share).round() as usize])
        }))
    };
    Row {
        event: "result",
        contender: runs.contender.name(),
        streams,
        runs: runs.runs.len(),
        rate_kept_percent: median(runs.runs.iter().map(|run| run.kept)),
        cpu_percent_a_stream: median(runs.runs.iter().map(|run| run.cpu)),
        deviation_ms_median: of(0.5),
        deviation_ms_99: of(0.99),
        deviation_ms_most: of(1.0),
        datagrams_heard: runs.runs.iter().map(|run| run.deviations.len()).sum(),
    }
}

fn table(rows: &[Row], report: &Report) {
    let header = [
        "streams",
        "program",
        "rate kept, %",
        "CPU of a core a stream, %",
        "deviation, ms: median",
        "99 %",
        "most",
    ];
    let mut table = Table::new(header).words(&[1]);
    for row in rows {
        table.row([
            row.streams.to_string(),
            row.contender.to_string(),
            number(Some(row.rate_kept_percent), 1),
            number(Some(row.cpu_percent_a_stream), 3),
            number(Some(row.deviation_ms_median), 2),
            number(Some(row.deviation_ms_99), 2),
            number(Some(row.deviation_ms_most), 2),
        ]);
    }
    table.show(report);
}

/// The value of a row that a panel shows.
type Measure = fn(&Row) -> f64;

/// Draws a panel for the CPU time, and one for the deviation that 99 % do not exceed, of programs that keep the rate.
fn draw(rows: &[Row], path: &std::path::Path, report: &Report) -> Result<(), Failure> {
    let panels: [(&str, Measure); 2] = [
        ("CPU of a core a stream, %", |row| row.cpu_percent_a_stream),
        ("deviation from the due time, ms, 99 %", |row| row.deviation_ms_99),
    ];
    let point = |(panel, value): &(&str, Measure), row: &Row| {
        (panel.to_string(), row.contender, row.streams, value(row))
    };
    // The deviation of a program that does not keep the rate only grows with the time.
    let keeps_rate = |row: &&Row| row.rate_kept_percent >= KEPT;
    let points: Vec<Point<'_>> = panels
        .iter()
        .flat_map(|panel| rows.iter().filter(keeps_rate).map(move |row| point(panel, row)))
        .map(|(panel, series, x, y)| Point { panel, series, x, y })
        .collect();
    plot::draw(&points, &Contender::names(), ("streams", ""), path, report)
}

fn processor() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!("{}, {cores} cores", model.map_or("unknown", |(_, name)| name))
}

/// Returns the load averages of the machine.
fn load() -> String {
    let line = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    line.split(' ').take(3).collect::<Vec<_>>().join(", ")
}
