//! Compares the query operators with programs that do the same: `cargo run --release --example query -p dcs-ndp [--
//! DIR]`. Every contender is a separate process that reads the same file, from the page cache, and writes to a pipe;
//! ours reads it in blocks of 64 KiB through the operators. Counts CPU seconds, user and system, of all threads,
//! without Python's start; medians of alternating rounds. Contenders that the machine lacks are left out. DIR is the
//! folder of the file, such as a tmpfs (default: the current one). Words after it choose what is measured: `log`,
//! `table`, `binary`.

mod binary;

use dcs_abi::operator::{Operator, OperatorKind};
use dcs_ndp::{Context, parameter};
use std::fmt::Write as _;
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};

const BLOCK: usize = 64 * 1024;
const SIZE: usize = 256 << 20;
const ROUNDS: usize = 5;

/// Searches in a log: a name, grep's options, the pattern.
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

/// A question about a table.
struct Question {
    name: &'static str,
    chain: &'static [(Operator, &'static str)],
    awk: &'static str,
    sql: &'static str,
    answer: Answer,
}

/// Part of the answer that contenders must agree on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Answer {
    /// Number of lines.
    Lines,
    /// A number.
    Number,
    /// A number, up to its tenth digit.
    Near,
    /// Text before the first comma.
    First,
    /// All bytes.
    Bytes,
    /// Number of bytes.
    Length,
}

const QUESTIONS: [Question; 4] = [
    Question {
        name: "filter:price>900",
        chain: &[(Operator::Filter, "price>900")],
        awk: "NR == 1 || $3 > 900",
        sql: "copy (select * from 'FILE' where price > 900) to '/dev/stdout' (header)",
        answer: Answer::Lines,
    },
    Question {
        name: "filter:city=Lisbon",
        chain: &[(Operator::Filter, "city=Lisbon")],
        awk: "NR == 1 || $2 == \"Lisbon\"",
        sql: "copy (select * from 'FILE' where city = 'Lisbon') to '/dev/stdout' (header)",
        answer: Answer::Lines,
    },
    Question {
        name: "aggregate:max(price)",
        chain: &[(Operator::Aggregate, "max(price)")],
        awk: "NR > 1 && $3 > m { m = $3 } END { print m }",
        sql: "copy (select max(price) from 'FILE') to '/dev/stdout' (header false)",
        answer: Answer::Number,
    },
    Question {
        name: "filter:price>900,aggregate:count",
        chain: &[(Operator::Filter, "price>900"), (Operator::Aggregate, "count")],
        awk: "NR > 1 && $3 > 900 { n++ } END { print n }",
        sql: "copy (select count(*) from 'FILE' where price > 900) to '/dev/stdout' (header false)",
        answer: Answer::Number,
    },
];

fn main() {
    let arguments: Vec<_> = std::env::args().collect();
    if let [_, mark, file, chain @ ..] = &arguments[..]
        && mark == "--chain"
    {
        return run(file, chain);
    }
    let folder = arguments.get(1).map_or(".", String::as_str);
    let path = Path::new(folder).join("query.data");
    let file = path.to_str().unwrap();
    let wanted = |what: &str| arguments.len() < 3 || arguments[2..].iter().any(|word| word == what);
    if wanted("log") {
        std::fs::write(&path, log()).unwrap();
        let contenders = ["dcs", "rg", "grep", "mawk", "gawk"];
        title("GiB of a log per CPU second", &contenders);
        for (name, options, pattern) in SEARCHES {
            let of = |contender: &str| search(contender, options, pattern, file);
            let answer = if options.contains('c') { Answer::Number } else { Answer::Lines };
            compare(&format!("{name}: {pattern}"), &contenders, &of, answer);
        }
    }
    if wanted("table") {
        // DuckDB needs a name's suffix to recognise the format.
        let path = path.with_extension("csv");
        let file = path.to_str().unwrap();
        std::fs::write(&path, table()).unwrap();
        let contenders = ["dcs", "mawk", "gawk", "duckdb"];
        title("GiB of a table per CPU second", &contenders);
        for asked in &QUESTIONS {
            let of = |contender: &str| question(contender, asked, file);
            compare(asked.name, &contenders, &of, asked.answer);
        }
        std::fs::remove_file(&path).unwrap();
    }
    if wanted("binary") {
        binary::measure(&path);
    }
    let _ = std::fs::remove_file(path);
}

fn title(text: &str, contenders: &[&str]) {
    let head: String = contenders.iter().map(|name| format!("{name:>10}")).collect();
    println!("\n{text}\n{:50}{head}  answer", "");
}

/// Prints one row of figures. A contender that the machine lacks, or whose answer differs (mawk has no braces), has
/// none.
fn compare(name: &str, contenders: &[&str], of: &dyn Fn(&str) -> Command, form: Answer) {
    let ask = |contender: &&str| is_there(contender).then(|| answer(&mut of(contender), form));
    let answers: Vec<_> = contenders.iter().map(ask).collect();
    let mut times = vec![Vec::new(); contenders.len()];
    for _ in 0..ROUNDS {
        for ((times, contender), theirs) in times.iter_mut().zip(contenders).zip(&answers) {
            if *theirs == answers[0] {
                times.push(cpu_of(&mut of(contender)) - start_of(contender));
            }
        }
    }
    let rates = times.iter_mut().map(|times| {
        times.sort_by(f64::total_cmp);
        let median = times.get(times.len() / 2);
        let rate = |seconds: &f64| format!("{:10.2}", SIZE as f64 / (1u64 << 30) as f64 / seconds);
        median.map_or(format!("{:>10}", "-"), rate)
    });
    let rates: String = rates.collect();
    println!("{name:50}{rates}  {}", answers[0].as_deref().unwrap_or(""));
}

fn is_there(contender: &str) -> bool {
    let mut command = match contender {
        "dcs" => return true,
        "duckdb" | "numpy" | "pyroaring" => Command::new("python3"),
        other => Command::new(other),
    };
    match contender {
        "duckdb" | "numpy" | "pyroaring" => command.args(["-c", &format!("import {contender}")]),
        "openssl" => command.arg("version"),
        _ => command.arg("--version"),
    };
    // mawk answers in another format.
    command.stdin(Stdio::null()).output().is_ok_and(|done| done.status.success() || contender == "mawk")
}

/// Returns this program as a separate process with these operators.
fn ours(file: &str, chain: &[(Operator, Vec<u8>)]) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--chain", file]);
    for (operator, parameter) in chain {
        let digits: String = parameter.iter().map(|byte| format!("{byte:02x}")).collect();
        command.args([operator.name(), &digits]);
    }
    command
}

fn question(contender: &str, asked: &Question, file: &str) -> Command {
    let own = asked.chain.iter().map(|(operator, text)| (*operator, text.as_bytes().to_vec()));
    match contender {
        "dcs" => ours(file, &own.collect::<Vec<_>>()),
        "duckdb" => {
            let sql = asked.sql.replace("FILE", file);
            let mut command = python();
            command.args(["-c", &format!("import duckdb\nduckdb.sql('set threads=1')\nduckdb.sql({sql:?})")]);
            command
        }
        awk => {
            let mut command = Command::new(awk);
            command.env("LC_ALL", "C").args(["-F,", asked.awk, file]);
            command
        }
    }
}

fn search(contender: &str, options: &str, pattern: &str, file: &str) -> Command {
    let mut command = Command::new(contender);
    match contender {
        "dcs" => {
            let parameter = parameter::Grep {
                pattern: pattern.to_string(),
                ignore_case: options.contains('i'),
                invert: options.contains('v'),
                count: options.contains('c'),
            };
            return ours(file, &[(Operator::Grep, parameter.block())]);
        }
        "rg" => command.args(["--no-config", "-a", "-j1", "--no-unicode", "-N"]),
        "grep" => command.env("LC_ALL", "C").args(["-a", "-E"]),
        _ => {
            let wanted = match options.contains('i') {
                true => format!("tolower($0) ~ /{}/", pattern.to_lowercase()),
                false => format!("{}/{pattern}/", if options.contains('v') { "!" } else { "" }),
            };
            let program = match options.contains('c') {
                true => format!("{wanted} {{ n++ }} END {{ print n }}"),
                false => wanted,
            };
            command.env("LC_ALL", "C").args([&program, file]);
            return command;
        }
    };
    command.args((!options.is_empty()).then(|| format!("-{options}"))).args(["-e", pattern, file]);
    command
}

/// Part of the answer that contenders must agree on.
fn answer(command: &mut Command, form: Answer) -> String {
    let output = command.output().unwrap().stdout;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_string();
    match form {
        Answer::Lines => output.iter().filter(|byte| **byte == b'\n').count().to_string(),
        Answer::Number => text(&output),
        Answer::Near => text(&output).parse().map_or(text(&output), |number: f64| format!("{number:.9e}")),
        Answer::First => text(output.split(|byte| *byte == b',').next().unwrap_or_default()),
        Answer::Bytes => {
            let mut digest = Context::new(Operator::Crc64Nvme, &[]).unwrap();
            digest.absorb(&output);
            format!("{} bytes, {}", output.len(), digest.value().unwrap())
        }
        Answer::Length => format!("{} bytes", output.len()),
    }
}

/// One thread, because CPU seconds are counted, and numpy's idle threads cost some.
fn python() -> Command {
    let mut command = Command::new("python3");
    command.env("OMP_NUM_THREADS", "1").env("OPENBLAS_NUM_THREADS", "1");
    command
}

/// Measures the CPU seconds that Python takes to start and to load its libraries, which are not counted. Returns the
/// least of three.
fn start_of(contender: &str) -> f64 {
    if !["duckdb", "numpy", "pyroaring"].contains(&contender) {
        return 0.0;
    }
    let start = || cpu_of(python().args(["-c", &format!("import {contender}")]));
    (0..3).map(|_| start()).fold(f64::INFINITY, f64::min)
}

/// Returns the CPU seconds of a child.
fn cpu_of(command: &mut Command) -> f64 {
    let before = children();
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    std::io::copy(&mut child.stdout.take().unwrap(), &mut std::io::sink()).unwrap();
    let status = child.wait().unwrap();
    // 1: nothing was found.
    assert!(matches!(status.code(), Some(0 | 1)), "{command:?}: {status}");
    children() - before
}

/// Returns the CPU seconds of all children that have ended.
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

/// Returns the process of a chain: names and parameters in turn.
fn run(file: &str, chain: &[String]) {
    let operators = chain.chunks(2).map(|words| {
        let byte = |at| u8::from_str_radix(&words[1][at..at + 2], 16).unwrap();
        let parameter: Vec<_> = (0..words[1].len()).step_by(2).map(byte).collect();
        (Context::new(Operator::from_name(&words[0]).unwrap(), &parameter).unwrap(), vec![0; BLOCK])
    });
    let mut operators: Vec<_> = operators.collect();
    let (mut file, mut output) = (File::open(file).unwrap(), std::io::stdout().lock());
    let mut block = vec![0; BLOCK];
    loop {
        let length = file.read(&mut block).unwrap();
        pass(&mut operators, &block[..length], length == 0, &mut output);
        if length == 0 {
            return output.flush().unwrap();
        }
    }
}

fn pass(operators: &mut [(Context, Vec<u8>)], data: &[u8], last: bool, output: &mut impl Write) {
    let Some(((context, room), after)) = operators.split_first_mut() else {
        return output.write_all(data).unwrap();
    };
    if context.operator().kind() != OperatorKind::Resize {
        let room = &mut room[..data.len()];
        room.copy_from_slice(data);
        context.in_place(room, last).unwrap();
        return pass(after, room, last, output);
    }
    let mut rest = data;
    loop {
        let progress = context.resize(rest, room, last).unwrap();
        rest = &rest[progress.consumed..];
        if progress.produced > 0 || progress.finished {
            pass(after, &room[..progress.produced], progress.finished, output);
        }
        if progress.finished || rest.is_empty() && progress.produced < room.len() && !last {
            return;
        }
    }
}

/// Makes lines of a server's log, about 110 bytes each; one of 10,000 is an error.
fn log() -> Vec<u8> {
    let mut next = random();
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
        let (whole, hundredths) = (took / 100, took % 100);
        let _ = match level {
            "ERROR" => {
                writeln!(log, "request {id:08x} java.net.SocketException: read timeout after {took} us")
            }
            _ => writeln!(
                log,
                "request {id:08x} GET /objects/{id:x}/data HTTP/1.1 200 took {whole}.{hundredths:02}ms"
            ),
        };
    }
    log.into_bytes()
}

/// Makes rows with an id, a city, a price and a note, about 40 bytes each.
fn table() -> Vec<u8> {
    let mut next = random();
    let mut table = String::with_capacity(SIZE + 200);
    table.push_str("id,city,price,note\n");
    let cities = ["Porto", "Lisbon", "Seoul", "Busan", "Aachen", "Lund", "Austin", "Pune"];
    while table.len() < SIZE {
        let (id, city, price, note) = (next(1 << 30), cities[next(8) as usize], next(100_000), next(1 << 30));
        let _ = writeln!(table, "{id},{city},{}.{:02},order {note:x}", price / 100, price % 100);
    }
    table.into_bytes()
}

fn random() -> impl FnMut(u64) -> u64 {
    let mut state = 1u64;
    move |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    }
}
