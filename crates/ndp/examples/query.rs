//! Measures the query operators beside programs that do the same: `cargo run --release --example query -p
//! dcs-ndp [-- FOLDER]`. Every contender is a process of its own that reads the same file, which lies in the
//! page cache, and writes to a pipe; ours reads it in blocks of 64 KiB through the operator. CPU seconds,
//! user and system, so that threads count; medians of rounds that take turns. Contenders that the machine has
//! not are left out. FOLDER is where the file is made: a tmpfs, or the current one.

use dcs_abi::operator::Operator;
use dcs_ndp::{Context, parameter};
use std::fmt::Write as _;
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};

const BLOCK: usize = 64 * 1024;
const SIZE: usize = 256 << 20;
const ROUNDS: usize = 5;

/// Searches: a name, grep's options, the pattern.
const SEARCHES: [(&str, &str, &str); 8] = [
    ("a rare word", "", "ERROR"),
    ("the same in either case", "i", "error"),
    ("one of three words", "", "ERROR|FATAL|PANIC"),
    ("behind any name", "", r"[a-z]+Exception: .*timeout"),
    ("no literal", "", r"[0-9]{3}\.[0-9]{2}ms$"),
    ("lines without a common word", "v", "INFO"),
    ("every line", "", "^"),
    ("count of a common word", "c", "INFO"),
];

fn main() {
    let arguments: Vec<_> = std::env::args().collect();
    if let [_, mark, options, pattern, file] = &arguments[..]
        && mark == "--operator"
    {
        return grep(options, pattern, file);
    }
    let folder = arguments.get(1).map_or(".", String::as_str);
    let path = Path::new(folder).join("query.log");
    std::fs::write(&path, log()).unwrap();
    let file = path.to_str().unwrap();
    let contenders = ["dcs", "rg", "grep", "mawk", "gawk"].into_iter().filter(|name| is_there(name));
    let contenders: Vec<_> = contenders.collect();
    println!("GiB of log per CPU second\n");
    let head: String = contenders.iter().map(|name| format!("{name:>8}")).collect();
    println!("{:50}{head}  lines", "");
    for (name, options, pattern) in SEARCHES {
        let mut times = vec![Vec::new(); contenders.len()];
        for _ in 0..ROUNDS {
            for (times, contender) in times.iter_mut().zip(&contenders) {
                times.push(cpu_of(&mut command(contender, options, pattern, file)));
            }
        }
        let answers: Vec<_> = contenders.iter().map(|who| answer(who, options, pattern, file)).collect();
        let rates = times.iter_mut().zip(&answers).map(|(times, theirs)| {
            times.sort_by(f64::total_cmp);
            let rate = SIZE as f64 / (1u64 << 30) as f64 / times[times.len() / 2];
            // mawk has no braces.
            if *theirs == answers[0] { format!("{rate:8.2}") } else { format!("{:>8}", "-") }
        });
        let rates: String = rates.collect();
        let shown = format!("{name}: {pattern}");
        println!("{shown:50}{rates}  {}", answers[0]);
    }
    std::fs::remove_file(path).unwrap();
}

fn is_there(contender: &str) -> bool {
    contender == "dcs" || Command::new(contender).arg("--version").output().is_ok()
}

fn command(contender: &str, options: &str, pattern: &str, file: &str) -> Command {
    let mut command = Command::new(contender);
    match contender {
        "dcs" => {
            command = Command::new(std::env::current_exe().unwrap());
            command.args(["--operator", options, pattern, file]);
        }
        "rg" => {
            command.args(["--no-config", "-a", "-j1", "--no-unicode", "-N"]);
        }
        "grep" => {
            command.env("LC_ALL", "C").args(["-a", "-E"]);
        }
        _ => {
            // Both take bytes so.
            command.env("LC_ALL", "C");
            let wanted = if options.contains('i') {
                format!("tolower($0) ~ /{}/", pattern.to_lowercase())
            } else {
                format!("{}/{pattern}/", if options.contains('v') { "!" } else { "" })
            };
            let program =
                if options.contains('c') { format!("{wanted} {{ n++ }} END {{ print n }}") } else { wanted };
            command.args([&program, file]);
        }
    }
    if contender == "rg" || contender == "grep" {
        command.args((!options.is_empty()).then(|| format!("-{options}"))).args(["-e", pattern, file]);
    }
    command
}

/// Lines, or the number that was asked for.
fn answer(contender: &str, options: &str, pattern: &str, file: &str) -> String {
    let output = command(contender, options, pattern, file).output().unwrap().stdout;
    match options.contains('c') {
        true => String::from_utf8(output).unwrap().trim().to_string(),
        false => output.iter().filter(|byte| **byte == b'\n').count().to_string(),
    }
}

/// CPU seconds of a child.
fn cpu_of(command: &mut Command) -> f64 {
    let before = children();
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    std::io::copy(&mut child.stdout.take().unwrap(), &mut std::io::sink()).unwrap();
    let status = child.wait().unwrap();
    // 1: nothing was found.
    assert!(matches!(status.code(), Some(0 | 1)), "{command:?}: {status}");
    children() - before
}

/// CPU seconds of all children that have ended.
fn children() -> f64 {
    // SAFETY: plain numbers, for which zeros are values; the pointer is to them.
    let usage = unsafe {
        let mut usage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &mut usage);
        usage
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

/// The operator's process.
fn grep(options: &str, pattern: &str, file: &str) {
    let parameter = parameter::Grep {
        pattern: pattern.to_string(),
        ignore_case: options.contains('i'),
        invert: options.contains('v'),
        count: options.contains('c'),
    };
    let mut context = Context::new(Operator::Grep, &parameter.block()).unwrap();
    let (mut file, mut output) = (File::open(file).unwrap(), std::io::stdout().lock());
    let (mut block, mut room) = (vec![0; BLOCK], vec![0; BLOCK]);
    loop {
        let length = file.read(&mut block).unwrap();
        let mut rest = &block[..length];
        loop {
            let progress = context.resize(rest, &mut room, length == 0).unwrap();
            output.write_all(&room[..progress.produced]).unwrap();
            rest = &rest[progress.consumed..];
            if progress.finished {
                return output.flush().unwrap();
            }
            if rest.is_empty() && progress.produced < room.len() && length > 0 {
                break;
            }
        }
    }
}

/// Lines of a server's log, about 110 bytes each; one of 10,000 an error.
fn log() -> Vec<u8> {
    let mut state = 1u64;
    let mut next = move |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut log = String::with_capacity(SIZE + 200);
    while log.len() < SIZE {
        let level = match next(10_000) {
            0 => "ERROR",
            1..500 => "WARN",
            500..2000 => "DEBUG",
            _ => "INFO",
        };
        let (time, thread, id, took) = (log.len() / 110, next(64), next(1 << 30), next(100_000));
        let _ =
            write!(log, "2026-11-23T05:{:02}:{:02} {level} [worker-{thread}] ", time / 60 % 60, time % 60);
        let _ = match level {
            "ERROR" => {
                writeln!(log, "request {id:08x} java.net.SocketException: read timeout after {took} us")
            }
            _ => writeln!(
                log,
                "request {id:08x} GET /objects/{id:x}/data HTTP/1.1 200 took {}.{:02}ms",
                took / 100,
                took % 100
            ),
        };
    }
    log.into_bytes()
}
