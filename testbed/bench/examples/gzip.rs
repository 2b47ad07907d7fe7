//! Speed and size of gzip, compared with zlib at level 1 as in this machine's Python: `cargo run --release
//! --example gzip -p dcs-bench [DIR]`. CPU time of one thread, medians of rounds in turns.
//!
//! The data are the demo's, the sources of this project, this program, and the files of the folder; each file
//! is a stream of its own.

// The demo's data generator, from its own module.
#[allow(dead_code)]
#[path = "../src/demo/dataset.rs"]
mod dataset;
#[allow(dead_code)]
#[path = "../src/harness/random.rs"]
mod random;

/// The path at which the generator finds its random numbers.
mod harness {
    pub(crate) use crate::random;
}

/// A file, as the generator tells of it.
mod task {
    use std::path::PathBuf;

    #[derive(Clone)]
    #[allow(dead_code)]
    pub struct Item {
        pub path: PathBuf,
        pub size: u64,
        pub copy: PathBuf,
        pub counter: [u8; 16],
    }
}

use dcs_testkit::median;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs};

use dcs_abi::operator::Operator;
use dcs_ndp::{Context, library};
use rustix::time::{ClockId, clock_gettime};

/// Block size of the engine.
const BLOCK: usize = 256 * 1024;
const DEMO: u64 = 64 << 20;
const ROUNDS: usize = 5;

/// Compresses the files named on the standard input with zlib at level 1. Prints CPU seconds and bytes of output.
const ZLIB: &str = r"
import sys, time, zlib
data = [memoryview(open(name, 'rb').read()) for name in sys.stdin.read().splitlines()]
start, size = time.process_time(), 0
for file in data:
    stream = zlib.compressobj(1, zlib.DEFLATED, 31)
    for at in range(0, len(file), 262144):
        size += len(stream.compress(file[at:at + 262144]))
    size += len(stream.flush())
print(time.process_time() - start, size)
";

fn main() {
    let folder = tempfile::tempdir().unwrap();
    let demo: Vec<PathBuf> = dataset::generate(folder.path(), folder.path(), DEMO)
        .unwrap()
        .into_iter()
        .map(|item| item.path)
        .collect();
    let of = |kind: &str| {
        let kind = |path: &&PathBuf| path.file_name().unwrap().to_string_lossy().starts_with(kind);
        demo.iter().filter(kind).cloned().collect()
    };
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join("crates");
    let mut sets = vec![
        ("demo, all", demo.clone()),
        ("demo, JSON logs", of("log")),
        ("demo, noise", of("media")),
        ("demo, images", of("image")),
        ("demo, small files", of("small")),
        ("sources", files(&root)),
        ("this program", vec![env::current_exe().unwrap()]),
    ];
    if let Some(folder) = env::args_os().nth(1) {
        sets.push(("folder", files(Path::new(&folder))));
    }
    println!("gzip by {}; MiB per CPU second, percent of the input", library(Operator::Gzip).unwrap_or("?"));
    println!(
        "{:18} {:>7} {:>8} {:>6} {:>8} {:>6} {:>8} {:>6}",
        "data", "MiB", "zlib -1", "size", "gzip:1", "size", "speed", "size"
    );
    for (name, set) in sets {
        let read: Vec<Vec<u8>> = set.iter().map(|path| fs::read(path).unwrap()).collect();
        let bytes: usize = read.iter().map(Vec::len).sum();
        let (mut zlib, mut gzip, mut sizes) = (vec![], vec![], (0, 0));
        for _ in 0..ROUNDS {
            let theirs = theirs(&set);
            let ours = ours(&read);
            zlib.push(theirs.0);
            gzip.push(ours.0);
            sizes = (theirs.1, ours.1);
        }
        let rates = [median(zlib), median(gzip)].map(|time| bytes as f64 / time / f64::from(1 << 20));
        let percent = |size: usize| 100.0 * size as f64 / bytes as f64;
        println!(
            "{name:18} {:7.1} {:8.1} {:5.1}% {:8.1} {:5.1}% {:7.2}x {:6.3}",
            bytes as f64 / f64::from(1 << 20),
            rates[0],
            percent(sizes.0),
            rates[1],
            percent(sizes.1),
            rates[1] / rates[0],
            sizes.1 as f64 / sizes.0 as f64
        );
    }
}

/// Returns CPU seconds and bytes of output.
fn ours(files: &[Vec<u8>]) -> (f64, usize) {
    let (mut room, mut size) = (vec![0; BLOCK], 0);
    let start = cpu();
    for file in files {
        let mut context = Context::new(Operator::Gzip, &[]).unwrap();
        let mut at = 0;
        loop {
            let end = file.len().min(at / BLOCK * BLOCK + BLOCK);
            let progress = context.resize(&file[at..end], &mut room, end == file.len()).unwrap();
            at += progress.consumed;
            size += progress.produced;
            if progress.finished {
                break;
            }
        }
    }
    (cpu() - start, size)
}

fn cpu() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn theirs(files: &[PathBuf]) -> (f64, usize) {
    let mut python = Command::new("python3")
        .args(["-c", ZLIB])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let names: Vec<_> = files.iter().map(|path| path.display().to_string()).collect();
    python.stdin.take().unwrap().write_all(names.join("\n").as_bytes()).unwrap();
    let printed = String::from_utf8(python.wait_with_output().unwrap().stdout).unwrap();
    let (time, size) = printed.trim().split_once(' ').expect("python3 with zlib is needed");
    (time.parse().unwrap(), size.parse().unwrap())
}

/// Returns every file under a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut all = vec![];
    for entry in fs::read_dir(folder).unwrap().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => all.extend(files(&entry.path())),
            Ok(kind) if kind.is_file() => all.push(entry.path()),
            _ => {}
        }
    }
    all
}
