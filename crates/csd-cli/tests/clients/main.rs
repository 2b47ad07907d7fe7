//! Drives of one process under many drivers at once, by clients that need no virtual machine: every byte is
//! checked, and a neighbour that floods, stalls, resets or dies takes nothing from the others but its share.

#[path = "../common/mod.rs"]
mod common;
mod slots;

use common::{Serving, disk};
use dcs_nvme::command::{Blocks, Command, Feature, admin, feature, nvm};
use dcs_nvme::register::CSTS;
use dcs_nvme::{ControllerStatus, DataPointer};
use dcs_nvme_client::load::{Check, Mix, Order, Runner, Stop, Workload};
use dcs_nvme_client::{Device, Drive, Options};
use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const MB: u64 = 1 << 20;

/// Reads, writes and flushes at drawn places, of which every byte is checked.
fn verified(commands: u64, depth: u32) -> Workload {
    let (order, mix, check) = (Order::Random, Mix::Both, Check::All);
    Workload { order, mix, depth, check, stop: Stop::Commands(commands) }
}

/// Drives `d0`, `d1` and so on, of 8 MiB each, on one file.
fn serve(folder: &Path, drives: usize) -> Serving {
    serve_with(folder, drives, &[])
}

/// The same, with more arguments.
fn serve_with(folder: &Path, drives: usize, more: &[&str]) -> Serving {
    let path = disk(folder, "disk", drives as u64 * 8 * MB);
    let drives: Vec<String> =
        (0..drives).map(|number| format!("d{number}:size=8M,backing={}", path.display())).collect();
    let named = drives.iter().flat_map(|drive| ["--drive", drive]);
    let arguments: Vec<&str> = named.chain(more.iter().copied()).collect();
    Serving::start(folder, &arguments).unwrap()
}

fn folder() -> tempfile::TempDir {
    // A file system with O_DIRECT, as a user has.
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

#[test]
fn sixteen_drives_at_once_mix_up_nothing() {
    let folder = folder();
    let serving = serve(folder.path(), 16);
    std::thread::scope(|scope| {
        for number in 0..16u64 {
            let socket = serving.socket(&format!("d{number}"));
            scope.spawn(move || {
                // Some with shadow doorbells, some without; small commands and large ones, with page lists.
                let options = Options { shadow: number % 2 == 0, memory: 16 * MB, ..Options::default() };
                let bytes = [4096, 8192, 65_536, 131_072][number as usize / 4];
                let mut drive = Drive::open(&socket, options).unwrap();
                assert_eq!(drive.has_shadow(), options.shadow);
                let mut runner = Runner::new(&mut drive, 0, bytes, 16, 8 * MB, number).unwrap();
                let done = runner.run(&mut drive, &verified(600, 16)).unwrap();
                assert_eq!(done.commands, 600);
            });
        }
    });
    let stats = serving.does(&["stats"]);
    assert_eq!(stats.lines().filter(|line| line.starts_with('d')).count(), 16, "{stats}");
}

/// Sixty-four drives of one process, all connected and at work at once; what they take of the process is what
/// docs/csd.md says.
#[test]
fn sixty_four_drives_are_served_at_once() {
    const DRIVES: usize = 64;
    let folder = folder();
    let serving = serve(folder.path(), DRIVES);
    let ready = Barrier::new(DRIVES + 1);
    std::thread::scope(|scope| {
        for number in 0..DRIVES {
            let (socket, ready) = (serving.socket(&format!("d{number}")), &ready);
            scope.spawn(move || {
                let options = Options { memory: 2 * MB, ..Options::default() };
                let mut drive = Drive::open(&socket, options).unwrap();
                let mut runner = Runner::new(&mut drive, 0, 4096, 4, MB, number as u64).unwrap();
                let done = runner.run(&mut drive, &verified(60, 4)).unwrap();
                assert_eq!(done.commands, 60);
                ready.wait();
                ready.wait();
            });
        }
        ready.wait();
        let descriptors = std::fs::read_dir(serving.about("fd")).unwrap().count();
        let status = std::fs::read_to_string(serving.about("status")).unwrap();
        let number = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.split_whitespace().next().unwrap().parse::<usize>().unwrap()
        };
        let (threads, kilobytes) = (number("Threads:"), number("RssAnon:"));
        println!("{descriptors} descriptors, {threads} threads, {kilobytes} KiB");
        ready.wait();
        // One a drive, a slot a processor, some of the process's own, and the kernel's workers of its ring.
        let processors = std::thread::available_parallelism().unwrap().get();
        assert!(threads <= DRIVES + 16 + 8 * processors, "{threads} threads");
        assert!(descriptors <= 64 + DRIVES * 46, "{descriptors} descriptors");
        assert!(kilobytes < (64 << 10) + DRIVES * 1024, "{kilobytes} KiB beside device memory");
    });
}

/// A neighbour that does its worst until it is stopped; returns how often it did.
fn until(stop: &AtomicBool, mut act: impl FnMut(u64)) -> u64 {
    let mut done = 0;
    while !stop.load(Ordering::Acquire) {
        act(done);
        done += 1;
    }
    done
}

/// Has the neighbours stop, also where the test fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Gives a drive some reads without ever looking at their ends.
fn neglect(drive: &mut Drive, reads: u16) {
    let words = Blocks { first: 0, count: 8, durable: false }.words();
    let place = drive.device.take(4096).unwrap();
    for cid in 0..reads {
        let data = DataPointer::Prp(Device::address(place), 0);
        let read = Command { opcode: nvm::READ, cid, namespace: 1, data, words, ..Command::default() };
        drive.queues[0].submit(&drive.device, &read.bytes());
    }
    drive.queues[0].ring(&mut drive.device).unwrap();
}

#[test]
fn a_bad_neighbour_takes_nothing_from_the_others_but_its_share() {
    let folder = folder();
    let serving = serve(folder.path(), 5);
    let socket = &|number: usize| serving.socket(&format!("d{number}"));
    let mut drive = Drive::open(&socket(0), Options::default()).unwrap();
    let mut runner = Runner::new(&mut drive, 0, 4096, 16, 8 * MB, 7).unwrap();
    let mut good = || {
        let done = runner.run(&mut drive, &verified(3000, 16)).unwrap();
        assert_eq!(done.commands, 3000);
        done
    };
    let alone = good();
    let stop = &AtomicBool::new(false);
    let small = Options { memory: 2 * MB, ..Options::default() };
    let ready = &Barrier::new(5);
    let (beside, bad) = std::thread::scope(|scope| {
        let floods = scope.spawn(move || {
            let options = Options { memory: 64 * MB, ..Options::default() };
            let mut drive = Drive::open(&socket(1), options).unwrap();
            let mut runner = Runner::new(&mut drive, 0, 131_072, 200, 8 * MB, 9).unwrap();
            let (order, mix, check) = (Order::Sequential, Mix::Read, Check::Nothing);
            let flood = Workload { order, mix, depth: 200, check, stop: Stop::Commands(200) };
            ready.wait();
            until(stop, |_| _ = runner.run(&mut drive, &flood).unwrap())
        });
        // Its completion queue is full, and it does not read it.
        let stalls = scope.spawn(move || {
            let mut drive = Drive::open(&socket(2), Options { entries: 16, ..small }).unwrap();
            neglect(&mut drive, 15);
            ready.wait();
            until(stop, |_| std::thread::sleep(Duration::from_millis(10)))
        });
        let resets = scope.spawn(move || {
            ready.wait();
            until(stop, |_| {
                let mut drive = Drive::open(&socket(3), small).unwrap();
                neglect(&mut drive, 100);
                drive.device.reset().unwrap();
            })
        });
        // It hangs up while the disk works for it.
        let dies = scope.spawn(move || {
            ready.wait();
            until(stop, |_| neglect(&mut Drive::open(&socket(4), small).unwrap(), 100))
        });
        ready.wait();
        let ends = Ends(stop);
        let beside = good();
        drop(ends);
        (beside, [floods, stalls, resets, dies].map(|neighbour| neighbour.join().unwrap()))
    });
    assert!(bad.iter().all(|count| *count > 0), "all were at it meanwhile: {bad:?}");
    println!(
        "alone {:.0}/s, beside them {:.0}/s; longest time without an answer {:?}, {:?}; floods, stalls, resets, deaths: {bad:?}",
        alone.rate(),
        beside.rate(),
        alone.longest_gap,
        beside.longest_gap
    );
    // All of them can be used again.
    for number in 1..5 {
        let mut drive = Drive::open(&socket(number), small).unwrap();
        let mut runner = Runner::new(&mut drive, 0, 4096, 4, MB, 11).unwrap();
        let (order, mix, check) = (Order::Sequential, Mix::Read, Check::Nothing);
        let reads = Workload { order, mix, depth: 4, check, stop: Stop::Commands(100) };
        assert_eq!(runner.run(&mut drive, &reads).unwrap().commands, 100);
    }
}

/// A guest falls silent: the process notices by itself.
#[test]
fn an_idle_process_notices_that_a_keep_alive_has_run_out() {
    let folder = folder();
    let serving = serve(folder.path(), 1);
    let mut drive = Drive::open(&serving.socket("d0"), Options::default()).unwrap();
    let words = Feature { number: feature::KEEP_ALIVE, value: 300, ..Feature::default() }.words();
    drive.admin(Command { opcode: admin::SET_FEATURES, words, ..Command::default() }).unwrap();
    let mut status = || ControllerStatus::from_bits(u32::from_le_bytes(drive.device.load(CSTS).unwrap()));
    assert!(status().ready);
    // Loads of a register do not wake the process.
    let end = Instant::now() + Duration::from_secs(60);
    while !status().fatal {
        assert!(Instant::now() < end, "nobody noticed");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A limit holds for as long as it stands, and stages tell where the time went.
#[test]
fn limits_hold_while_a_client_runs() {
    let folder = folder();
    let serving = serve(folder.path(), 1);
    let mut drive = Drive::open(&serving.socket("d0"), Options::default()).unwrap();
    let mut runner = Runner::new(&mut drive, 0, 4096, 16, 8 * MB, 3).unwrap();
    let mut reads = |commands| {
        let (order, mix, check) = (Order::Random, Mix::Read, Check::Nothing);
        let began = Instant::now();
        let reads = Workload { order, mix, depth: 16, check, stop: Stop::Commands(commands) };
        assert_eq!(runner.run(&mut drive, &reads).unwrap().commands, commands);
        began.elapsed()
    };
    serving.does(&["set", "d0", "iops=500"]);
    // The first 5 are those of a rest; the last one need not be over.
    let took = reads(300);
    assert!(took >= Duration::from_millis(2 * (300 - 6)), "500 a second, and 300 took {took:?}");
    serving.does(&["set", "d0", "iops=0,bytes-per-s=4MiB"]);
    let took = reads(300);
    assert!(took >= Duration::from_micros(976 * (300 - 12)), "1024 a second, and 300 took {took:?}");
    serving.does(&["set", "d0", "bytes-per-s=0"]);
    reads(300);
    serving.refuses(&["set", "d0", "weight=0"], "1 to 1000");
    serving.refuses(&["set", "nobody", "weight=1"], "no drive nobody");
    let metrics = serving.does(&["stats", "--prometheus"]);
    for stage in ["fetch", "storage", "completion", "whole"] {
        let line = format!("dcs_csd_latency_seconds_count{{drive=\"d0\",stage=\"{stage}\"}} 900");
        assert!(metrics.lines().any(|one| one == line), "{line} is not in\n{metrics}");
    }
    let told = serving.does(&["stats"]);
    assert!(told.contains("50 %, 99 % of the commands within: fetch"), "{told}");
}
