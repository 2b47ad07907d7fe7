//! `dcs bench apps`: unmodified applications, compared with the same applications on the engine.
//!
//! nginx is measured by `dcs bench s3`'s clients; OpenStack Swift by `integrations/swift/run bench`, which
//! sets up stock Swift and clusters of its own. This module finds that script, runs it, and shows its rows as
//! those of every other benchmark.

use crate::failure::{Exit, Failure};
use crate::harness::plot::{self, Point};
use crate::harness::table::{Table, number};
use crate::interrupt;
use crate::report::Report;
use crate::s3::options::Options as ServeOptions;
use crate::units::{self, human};
use clap::{Args, Parser, ValueEnum};
use serde::Deserialize;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct Options {
    /// Applications to measure; all by default
    #[arg(value_name = "APPLICATION", value_enum)]
    pub applications: Vec<Application>,
    /// Bytes of each object; by default 64k, 1M, 16M and 64M
    #[arg(long, value_name = "SIZE", value_delimiter = ',', value_parser = units::size)]
    pub size: Vec<u64>,
    /// Concurrent clients; by default 1, 8 and 32
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = units::count::<1, 1000>)]
    pub clients: Vec<usize>,
    /// Swift servers to send requests to: the object server directly, or through the proxy
    #[arg(long, value_name = "SERVERS", value_delimiter = ',', value_enum, default_value = "object,proxy")]
    pub servers: Vec<Server>,
    /// Minimum seconds of each run
    #[arg(long, value_name = "S", value_parser = units::seconds, default_value = "2")]
    pub seconds: f64,
    /// Runs of each contender; the results are medians
    #[arg(long, default_value = "3", value_parser = clap::value_parser!(u32).range(1..=99))]
    pub runs: u32,
    /// Plot CPU seconds per GiB by clients: two files, NAME-swift.svg and NAME-nginx.svg
    #[arg(long, value_name = "NAME.svg")]
    pub svg: Option<PathBuf>,
    /// Path of integrations/swift in a source tree; by default searched for upwards from the current directory and
    /// from the command
    #[arg(long, value_name = "DIR")]
    pub swift: Option<PathBuf>,
}

/// An application.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Application {
    /// OpenStack Swift: stock, with hashlib in the same hooks, with the engine
    Swift,
    /// nginx: as it is, by dcs run without a rule, with digests by the engine, with digests by a Perl handler
    Nginx,
}

/// A server of Swift.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Server {
    Object,
    Proxy,
}

const HELP: &str = "\
Examples:
  dcs bench apps                                     # everything: an hour
  dcs bench apps swift --servers object --size 64M --clients 8
  dcs bench apps nginx --size 1M --clients 8,32 --svg apps.svg
  dcs bench apps --json > apps.json

Contenders for Swift: stock; hashlib (the plug-in's hooks with ordinary hashing and larger reads, so that a gain from those is not
credited to the engine); dcs (the plug-in on the engine). CPU seconds are those of a server's whole process, including the engine's
threads, and those of the engine alone. As root, Swift and nginx run in a network namespace where all use cubic congestion control.
Contenders for nginx: nginx; nginx-preload (dcs run without a rule); nginx-md5 (dcs run, digests to a log); nginx-md5-threads (the
same with nginx's aio threads: many answers at once); nginx-perl (a Perl handler that reads, hashes and sends: apt-get install
nginx-light libnginx-mod-http-perl).
Swift's part runs from a source tree (docs/swift.md) and sets up what it needs; where that is not possible it is left out, with a message.
Every byte of some objects of each run is checked. A release build on a quiet machine is needed.

Exit codes: 0 measured; 1 a contender failed or delivered wrong bytes; 2 usage; 7 a named application is not available; 130 interrupted";

const CONTENDERS: [&str; 3] = ["stock", "hashlib", "dcs"];
const SIZES: [u64; 4] = [64 << 10, 1 << 20, 16 << 20, 64 << 20];
const CLIENTS: [usize; 3] = [1, 8, 32];
const SCRIPT: &str = "run";
/// Exit status with which the script reports that something it needs is missing.
const MISSING: i32 = 9;

/// A row of Swift's benchmark: the fields that are plotted. Rows are passed on whole.
#[derive(Debug, Deserialize)]
struct Row {
    contender: String,
    server: String,
    job: String,
    size: u64,
    clients: usize,
    object_cpu_s_per_gib: f64,
    proxy_cpu_s_per_gib: f64,
}

pub fn run(options: &Options, report: &Report) -> Result<(), Failure> {
    let asked = |application| options.applications.is_empty() || options.applications.contains(&application);
    if asked(Application::Swift) {
        match script(options.swift.as_deref()) {
            Ok(script) => swift(options, &script, report)?,
            Err(why) if options.applications.is_empty() => {
                report.text(format_args!("Without Swift: {}.", why.line));
                report.object(&json!({ "event": "skipped", "application": "swift", "why": why.line }));
            }
            Err(why) => return Err(why),
        }
    }
    if asked(Application::Nginx) {
        return crate::s3::run(&nginx(options), report);
    }
    report.object(&json!({ "event": "done", "ok": true }));
    Ok(())
}

/// Runs `dcs bench s3` with nginx's contenders.
fn nginx(options: &Options) -> ServeOptions {
    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: ServeOptions,
    }
    let line = ["", "get", "--contenders", "nginx,nginx-preload,nginx-md5,nginx-md5-threads,nginx-perl"];
    let mut serve = Line::parse_from(line).options;
    serve.lenient = true;
    serve.size = given(&options.size, &SIZES);
    serve.clients = given(&options.clients, &CLIENTS);
    serve.seconds = options.seconds;
    serve.runs = options.runs;
    serve.svg = options.svg.as_deref().map(|path| plot::named(path, "nginx"));
    serve
}

fn given<T: Copy>(asked: &[T], usual: &[T]) -> Vec<T> {
    if asked.is_empty() { usual.to_vec() } else { asked.to_vec() }
}

/// Returns the path of Swift's benchmark script, which is part of the source tree.
fn script(named: Option<&Path>) -> Result<PathBuf, Failure> {
    let from =
        |folder: &Path| folder.ancestors().map(|root| root.join("integrations/swift")).collect::<Vec<_>>();
    let folders = match named {
        Some(folder) => vec![folder.to_path_buf()],
        None => {
            let here = std::env::current_dir().unwrap_or_default();
            let own = std::env::current_exe().unwrap_or_default();
            [from(&here), from(&own)].concat()
        }
    };
    let found = folders.iter().map(|folder| folder.join(SCRIPT)).find(|script| script.is_file());
    found.ok_or_else(|| {
        Failure::new(
            Exit::NotFound,
            "integrations/swift was not found in this directory, its parents, or next to the command",
        )
        .advise("run it in a source tree of dcs, or pass its path with --swift")
    })
}

fn swift(options: &Options, script: &Path, report: &Report) -> Result<(), Failure> {
    let failed = |error| Failure::io(script.display(), &error);
    let comma = |values: Vec<String>| values.join(",");
    let mut command = Command::new(script);
    command.args(["bench", "--json", "-", "--contenders", &CONTENDERS.join(",")]);
    command.args(["--sizes", &comma(given(&options.size, &SIZES).iter().map(u64::to_string).collect())]);
    command.args([
        "--clients",
        &comma(given(&options.clients, &CLIENTS).iter().map(usize::to_string).collect()),
    ]);
    let servers = options.servers.iter().filter_map(|server| server.to_possible_value());
    command.args(["--servers", &comma(servers.map(|value| value.get_name().to_string()).collect())]);
    command.args(["--seconds", &options.seconds.to_string(), "--runs", &options.runs.to_string()]);
    // Progress goes to standard error.
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    interrupt::install();
    let (mut child, ends) = interrupt::child_of(|| command.spawn(), Child::id).map_err(failed)?;
    let rows = read(&mut child);
    let status = child.wait();
    drop(ends);
    let status = status.map_err(failed)?;
    if !status.success() && status.code() != Some(MISSING) {
        return Err(Failure::new(Exit::Failed, format!("{}: {status}", script.display()))
            .advise("see its output above"));
    }
    show(&rows?, options, report)
}

fn read(child: &mut Child) -> Result<Vec<Value>, Failure> {
    let Some(output) = child.stdout.take() else { return Ok(Vec::new()) };
    let mut rows = Vec::new();
    for line in BufReader::new(output).lines() {
        let line = line.map_err(|error| Failure::io("Swift's benchmark", &error))?;
        // Installers that the script runs may print other lines.
        if let Ok(row @ Value::Object(_)) = serde_json::from_str(&line) {
            rows.push(row);
        }
    }
    Ok(rows)
}

fn show(rows: &[Value], options: &Options, report: &Report) -> Result<(), Failure> {
    if rows.is_empty() {
        let line = "Swift: skipped; see its output above";
        report.text(line);
        report.object(&json!({ "event": "skipped", "application": "swift" }));
        return match options.applications.contains(&Application::Swift) {
            true => Err(Failure::new(Exit::NotFound, line).advise("docs/swift.md lists what is needed")),
            false => Ok(()),
        };
    }
    report.text("\nOpenStack Swift");
    let header = [
        "server",
        "job",
        "objects of",
        "clients",
        "contender",
        "MiB/s",
        "of stock",
        "object CPU s/GiB",
        "of stock",
        "engine's",
        "proxy CPU s/GiB",
    ];
    let mut table = Table::new(header).words(&[1, 4]);
    let mut parsed = Vec::new();
    for value in rows {
        let mut told = value.clone();
        told["event"] = "measurement".into();
        told["application"] = "swift".into();
        report.object(&told);
        let row: Row = serde_json::from_value(value.clone())
            .map_err(|error| Failure::new(Exit::Failed, format!("a row of Swift's benchmark: {error}")))?;
        let told = |field: &str, digits| number(value[field].as_f64(), digits);
        table.row([
            row.server.clone(),
            row.job.clone(),
            human(row.size),
            row.clients.to_string(),
            row.contender.clone(),
            told("mib_per_s", 0),
            told("throughput_of_stock", 2),
            format!("{:.3}", row.object_cpu_s_per_gib),
            told("object_cpu_of_stock", 2),
            told("engine_cpu_s_per_gib", 3),
            format!("{:.3}", row.proxy_cpu_s_per_gib),
        ]);
        parsed.push(row);
    }
    table.show(report);
    let Some(svg) = &options.svg else { return Ok(()) };
    let points: Vec<Point<'_>> = parsed.iter().map(point).collect();
    plot::draw(&points, &CONTENDERS, ("clients", "CPU s per GiB"), &plot::named(svg, "swift"), report)
}

/// Returns a point of the plot: CPU time of the object server, or of both servers where requests go through the proxy.
fn point(row: &Row) -> Point<'_> {
    let through = row.server == "proxy";
    let y = row.object_cpu_s_per_gib + if through { row.proxy_cpu_s_per_gib } else { 0.0 };
    let servers = if through { "proxy and object server" } else { "object server" };
    let panel = format!("Swift {}, {}, {servers}", row.job, human(row.size));
    Point { panel, series: &row.contender, x: row.clients, y }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nginx_s_options_are_those_of_object_servers() {
        #[derive(Parser)]
        struct Line {
            #[command(flatten)]
            options: Options,
        }
        let options = Line::parse_from(["", "--size", "1M", "--runs", "5"]).options;
        let serve = nginx(&options);
        assert_eq!((serve.size, serve.clients, serve.runs), (vec![1 << 20], CLIENTS.to_vec(), 5));
        assert_eq!(serve.contenders.len(), 5);
    }
}
