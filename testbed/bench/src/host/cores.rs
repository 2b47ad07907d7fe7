//! `dcs bench cores`: streams from files through an operator to /dev/null, on an engine with one core and on engines with
//! several, with and without gathering streams in lanes.
//!
//! There is no client: only the engine and the submitting thread are measured.

use super::data::{Data, total};
use super::job::Job;
use super::protocol::Item;
use crate::failure::Failure;
use crate::harness::connections::cpu_time;
use crate::harness::contender::Named;
use crate::harness::figures::{GIB, Ratio, median};
use crate::harness::folder::{self, Folder};
use crate::harness::plot::{self, Point};
use crate::harness::shown;
use crate::harness::table::{Table, number};
use crate::harness::turns::Board;
use crate::interrupt;
use crate::report::Report;
use crate::units::{self, from_hex};
use clap::Args;
use dcs::{Cores, Engine, Handle, Op, Sink, Source, Spread, Statistics, Transfer};
use nix::poll::{PollFd, PollFlags, PollTimeout};
use serde::Serialize;
use serde_json::json;
use std::fs::File;
use std::io;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::{Duration, Instant};

#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct Options {
    /// Cores of the wide engines, a number or all
    #[arg(long, value_name = "N", default_value = "2")]
    pub cores: Cores,
    /// Operators of the chain
    #[arg(long, value_name = "OPERATORS", value_delimiter = ',', default_value = "md5")]
    pub through: Vec<String>,
    /// Concurrent streams
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = units::count::<1, 1024>, default_value = "16,64")]
    pub streams: Vec<usize>,
    /// Bytes of each object
    #[arg(long, value_name = "SIZE", value_parser = units::size, default_value = "4M")]
    pub size: u64,
    /// Measured seconds of each run, after a warm-up of half a second
    #[arg(long, value_name = "S", value_parser = units::seconds, default_value = "1")]
    pub seconds: f64,
    /// Runs of each engine; the results are medians
    #[arg(long, default_value = "5", value_parser = clap::value_parser!(u32).range(1..=99))]
    pub runs: u32,
    /// Plot GiB/s against streams
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Folder for the data: up to a few hundred MiB
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
}

const HELP: &str = "\
Examples:
  dcs bench cores
  dcs bench cores --streams 16,32,64,128 --runs 9
  dcs bench cores --through sha256 --cores all --json > cores.json
  dcs bench cores --streams 4,16,64 --svg cores.svg

one: an engine with one core. gathered: several cores, with streams that can share lanes put on one core until its lanes are
full. spread: several cores, each transfer on the core with the fewest. They run in turns, and ratios are of the runs of one turn.
CPU time is that of the process: engine, submitting thread, io_uring's workers. Every digest is checked; a wrong one is an error.
Other work on the machine takes processors from the wide engines: the load average is shown at the beginning and at the end.

Exit codes: 0 measured; 1 a transfer failed or had a wrong digest; 2 usage; 4 no space; 130 interrupted";

const WARM_UP: Duration = Duration::from_millis(500);

/// An engine to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wide {
    One,
    Gathered,
    Spread,
}

impl Named for Wide {
    const ALL: &'static [(Wide, &'static str, &'static str)] = &[
        (Wide::One, "one", "one core"),
        (Wide::Gathered, "gathered", "several; streams fill the lanes of one core before the next"),
        (Wide::Spread, "spread", "several; each transfer on the core with the fewest"),
    ];
}

/// Results of one run.
#[derive(Clone, Copy, Debug)]
struct Run {
    gib_per_s: f64,
    cpu_s_per_gib: f64,
    lanes_a_pass: Option<f64>,
}

/// Medians of a contender, and its ratios to one core.
#[derive(Debug, Serialize)]
struct Row {
    event: &'static str,
    contender: &'static str,
    cores: usize,
    streams: usize,
    size: u64,
    gib_per_s: f64,
    throughput_of_one: Ratio,
    cpu_s_per_gib: f64,
    cpu_of_one: Ratio,
    lanes_a_pass: Option<f64>,
}

pub fn run(options: &Options, report: &Report) -> Result<(), Failure> {
    interrupt::install();
    let job = Job::parse(&format!("file>{}>socket", options.through.join(",")))?;
    let ops = job.ops()?;
    let failed = |error| Failure::io("data folder", &error);
    let most = options.streams.iter().copied().max().unwrap_or(1);
    let folder = Folder::new(options.dir.as_deref(), "dcs-bench.")?;
    folder::has_free(folder.path(), total(options.size, most), "--size and --streams")?;
    let cores = options.cores.count();
    report.text(format_args!(
        "file -> {} -> /dev/null, objects of {}, in the page cache. Wide engines have {cores} cores; this machine {}.\n\
         Medians of {} runs in turns, {} s each; load average {}.",
        options.through.join(","),
        units::human(options.size),
        Cores::All.count(),
        options.runs,
        options.seconds,
        load(),
    ));
    if cfg!(debug_assertions) {
        report.text("This is a DEBUG build: its figures mean nothing. Use make bench.");
    }
    let data = Data::new(folder.path(), options.size, most).map_err(failed)?;
    let all = [Wide::One, Wide::Gathered, Wide::Spread];
    let runs = (all.len() * options.streams.len()) as u64 * u64::from(options.runs);
    let board = Board::new(runs, report);
    let mut all_rows = Vec::new();
    for streams in &options.streams {
        let items = data.streams(&job, *streams).map_err(failed)?;
        let what = format!("{streams} streams");
        let run = |wide, _| measure(wide, options, &ops, &items);
        let runs = board.turns(&what, &all, options.runs, run)?;
        let one = runs[0].runs.clone();
        let rows: Vec<Row> = runs
            .iter()
            .map(|of| {
                let cores = if of.contender == Wide::One { 1 } else { cores };
                row(of.contender, &of.runs, &one, (cores, *streams, options.size))
            })
            .collect();
        board.show(&rows, table);
        all_rows.extend(rows);
    }
    drop(board);
    if let Some(path) = &options.svg {
        let panel = format!("file>{}>null, {}", options.through.join(","), units::human(options.size));
        let point = |row: &Row| Point {
            panel: panel.clone(),
            series: row.contender,
            x: row.streams,
            y: row.gib_per_s,
        };
        let points: Vec<_> = all_rows.iter().map(point).collect();
        plot::draw(&points, &Wide::names(), ("streams", "GiB/s"), path, report)?;
    }
    report.text(format_args!("Load average at the end: {}.", load()));
    report.object(&json!({ "event": "done", "ok": true }));
    Ok(())
}

/// Returns the load averages of the machine.
fn load() -> String {
    let line = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    line.split(' ').take(3).collect::<Vec<_>>().join(", ")
}

fn row(contender: Wide, runs: &[Run], one: &[Run], (cores, streams, size): (usize, usize, u64)) -> Row {
    let of = |value: fn(&Run) -> f64| median(runs.iter().map(value));
    let ratio = |value: fn(&Run) -> f64| {
        Ratio::of(runs.iter().zip(one).map(|(run, one)| value(run) / value(one)).collect())
    };
    let lanes: Vec<f64> = runs.iter().filter_map(|run| run.lanes_a_pass).collect();
    Row {
        event: "result",
        contender: contender.name(),
        cores,
        streams,
        size,
        gib_per_s: of(|run| run.gib_per_s),
        throughput_of_one: ratio(|run| run.gib_per_s),
        cpu_s_per_gib: of(|run| run.cpu_s_per_gib),
        cpu_of_one: ratio(|run| run.cpu_s_per_gib),
        lanes_a_pass: (!lanes.is_empty()).then(|| median(lanes)),
    }
}

fn table(rows: &[Row], report: &Report) {
    let header = [
        "streams",
        "engine",
        "GiB/s",
        "x one (least..most)",
        "CPU s/GiB",
        "x one (least..most)",
        "lanes/pass",
    ];
    let mut table = Table::new(header).words(&[1]);
    for row in rows {
        table.row([
            row.streams.to_string(),
            row.contender.to_string(),
            number(Some(row.gib_per_s), 2),
            shown::ratio(Some(row.throughput_of_one)),
            number(Some(row.cpu_s_per_gib), 3),
            shown::ratio(Some(row.cpu_of_one)),
            number(row.lanes_a_pass, 1),
        ]);
    }
    table.show(report);
}

/// An object of a stream.
struct Object {
    file: Handle,
    length: u64,
    /// Its first digest, if known.
    expected: Option<Vec<u8>>,
}

/// A stream: its objects, again and again.
struct Stream {
    objects: Vec<Object>,
    next: usize,
    /// Its only transfer in flight: there are as many transfers as streams.
    running: Option<(usize, Transfer)>,
}

fn measure(wide: Wide, options: &Options, ops: &[Op], items: &[Vec<Item>]) -> io::Result<Run> {
    let one = Cores::Number(NonZeroUsize::MIN);
    let cores = if wide == Wide::One { one } else { options.cores };
    let engine =
        Engine::builder().cores(cores).gather(wide != Wide::Spread).start().map_err(io::Error::other)?;
    let depth = u16::try_from(items.len()).map_err(io::Error::other)?;
    let spread = engine.spread_with_depth(depth).map_err(io::Error::other)?;
    let streams: io::Result<Vec<Stream>> = items.iter().map(|items| stream(items)).collect();
    let mut streams = streams?;
    let sink = Handle::new(&File::options().write(true).open("/dev/null")?).map_err(io::Error::other)?;
    let mut work = Work { spread: &spread, sink, ops, bytes: 0 };
    work.until(&mut streams, Instant::now() + WARM_UP)?;
    let (bytes, cpu, at, before) = (work.bytes, cpu_time()?, Instant::now(), engine.statistics());
    work.until(&mut streams, at + Duration::from_secs_f64(options.seconds))?;
    let (wall, cpu, after) = (at.elapsed(), cpu_time()?.saturating_sub(cpu), engine.statistics());
    let gib = (work.bytes - bytes) as f64 / GIB;
    for (_, transfer) in streams.into_iter().filter_map(|stream| stream.running) {
        transfer.wait().map_err(io::Error::other)?;
    }
    Ok(Run {
        gib_per_s: gib / wall.as_secs_f64(),
        cpu_s_per_gib: cpu.as_secs_f64() / gib,
        lanes_a_pass: lanes(&before, &after),
    })
}

/// Returns the lanes filled in a pass on average: nothing where every transfer was done in one go, without a pass.
fn lanes(before: &Statistics, after: &Statistics) -> Option<f64> {
    let (passes, filled) = (after.passes - before.passes, after.lanes_filled - before.lanes_filled);
    (passes > 0).then(|| filled as f64 / passes as f64)
}

fn stream(items: &[Item]) -> io::Result<Stream> {
    let object = |item: &Item| {
        let file = Handle::new(&File::open(&item.path)?).map_err(io::Error::other)?;
        let expected = item.expected.first().and_then(|hex| from_hex(hex.as_bytes()));
        Ok(Object { file, length: item.length, expected })
    };
    let objects: io::Result<Vec<Object>> = items.iter().map(object).collect();
    Ok(Stream { objects: objects?, next: 0, running: None })
}

struct Work<'a> {
    spread: &'a Spread,
    sink: Handle,
    ops: &'a [Op],
    /// Bytes of the finished transfers.
    bytes: u64,
}

impl Work<'_> {
    /// Keeps all streams busy until `end`.
    fn until(&mut self, streams: &mut [Stream], end: Instant) -> io::Result<()> {
        let events: io::Result<Vec<_>> =
            self.spread.sessions().iter().map(|one| one.event_fd().map_err(io::Error::other)).collect();
        let events = events?;
        while Instant::now() < end {
            for stream in &mut *streams {
                self.advance(stream)?;
            }
            let mut fds: Vec<_> = events.iter().map(|fd| PollFd::new(*fd, PollFlags::POLLIN)).collect();
            nix::poll::poll(&mut fds, PollTimeout::from(100u8))?;
            let ready: Vec<bool> = fds.iter().map(|fd| fd.any().unwrap_or(false)).collect();
            for (fd, _) in events.iter().zip(ready).filter(|(_, ready)| *ready) {
                nix::unistd::read(fd, &mut [0; 8])?;
            }
        }
        Ok(())
    }

    fn advance(&mut self, stream: &mut Stream) -> io::Result<()> {
        let is_done = |(_, transfer): &mut (usize, Transfer)| transfer.is_done();
        if let Some((at, transfer)) = stream.running.take_if(is_done) {
            let done = transfer.wait().map_err(io::Error::other)?;
            let object = &stream.objects[at];
            let first = done.digests.first().map(|digest| digest.bytes());
            if object.expected.is_some() && first != object.expected.as_deref() {
                return Err(io::Error::other("a digest is wrong"));
            }
            self.bytes += done.bytes_in;
        }
        if stream.running.is_none() {
            let at = stream.next % stream.objects.len();
            stream.next += 1;
            let object = &stream.objects[at];
            let source = Source::handle(&object.file, ..object.length);
            let transfer =
                self.spread.transfer(source, self.ops.iter().cloned(), Sink::handle(&self.sink, 0));
            stream.running = Some((at, transfer.map_err(io::Error::other)?));
        }
        Ok(())
    }
}
