//! Operators' work in slots, threads of their own, while neighbours read.

use super::common::{Serving, disk};
use super::{Ends, MB, folder, serve_with, until};
use dcs::Status;
use dcs_nvme::Completion;
use dcs_nvme_client::load::{Check, Mix, Order, Runner, Stop, Workload};
use dcs_nvme_client::{Device, Drive, Options};
use serde_json::{Value, json};
use std::sync::Barrier;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// Opcodes, places and operators (docs/csd.md, docs/operators.md).
const NO_DATA: u32 = 0xc0;
const FROM_GUEST: u32 = 0xc1;
const TO_GUEST: u32 = 0xc2;
const LOAD: u32 = 3 << 4;
const SHA256: u8 = 3;

/// The SHA-256 of 4 MiB of zeros, as sha256sum tells it.
const ZEROS: &str = "bb9f8df61474d25e71fa00722318cd387396ca1736605e1248821cc0de3d3af8";

/// Carries out a near-storage command: double words 0 to 3, and 10 to 15.
fn near(drive: &mut Drive, first: [u32; 4], buffer: u64, words: [u32; 6]) -> Completion {
    let mut entry = [0; 64];
    let mut put = |at: usize, word: u32| entry[4 * at..][..4].copy_from_slice(&word.to_le_bytes());
    first.iter().enumerate().for_each(|(at, word)| put(at, *word));
    words.iter().enumerate().for_each(|(at, word)| put(10 + at, *word));
    let address = Device::address(buffer);
    put(6, address as u32);
    put(7, (address >> 32) as u32);
    drive.queues[0].submit(&drive.device, &entry);
    drive.queues[0].ring(&mut drive.device).unwrap();
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(done) = drive.queues[0].reap(&drive.device) {
            drive.queues[0].ring(&mut drive.device).unwrap();
            return done;
        }
        assert!(Instant::now() < end, "no answer");
        std::thread::yield_now();
    }
}

/// The digest of the first 4 MiB of a drive, beside its disk, this many times through sha256.
fn digest(drive: &mut Drive, buffer: u64, operators: u8) -> String {
    let mut parameters = vec![0; 8 + 8 * usize::from(operators)];
    parameters[0] = operators;
    (0..usize::from(operators)).for_each(|at| parameters[8 + 8 * at] = SHA256);
    drive.device.memory().store(buffer, &parameters);
    let length = parameters.len() as u32;
    let loaded = near(drive, [FROM_GUEST, 0, LOAD, 0], buffer, [length / 4, length, 0, 0, 0, 0]);
    assert!(loaded.status.is_success(), "{}", loaded.status);
    // Blocks to nowhere.
    let handle = loaded.result;
    let done = near(drive, [NO_DATA, 1, 1 | 6 << 4 | handle << 16, 7], buffer, [0, 8192, 0, 0, 0, 0]);
    assert!(done.status.is_success(), "{}", done.status);
    assert!(near(drive, [TO_GUEST, 0, 4, 7], buffer, [192, 0, 0, 0, 0, 0]).status.is_success());
    let mut page = [0; 768];
    drive.device.memory().load(buffer, &mut page);
    assert!(near(drive, [NO_DATA, 0, 3 | handle << 16, 0], buffer, [0; 6]).status.is_success());
    dcs_testkit::hex(&page[80..112])
}

/// Drives that always have operators work, and one that reads: every digest is right, and reads do not wait for
/// operators where these have slots.
#[test]
fn operators_in_slots_give_the_same_and_leave_reads_alone() {
    for slots in ["0", "2"] {
        let folder = folder();
        let serving = serve_with(folder.path(), 3, &["--slots", slots]);
        let socket = &|number: usize| serving.socket(&format!("d{number}"));
        let (stop, ready) = (&AtomicBool::new(false), &Barrier::new(3));
        let (reads, digests) = std::thread::scope(|scope| {
            let busy = [1, 2].map(|number| {
                scope.spawn(move || {
                    let mut drive = Drive::open(&socket(number), Options::default()).unwrap();
                    let buffer = drive.device.take(4096).unwrap();
                    ready.wait();
                    // One of them at least also where the reads are quick.
                    until(stop, |_| assert_eq!(digest(&mut drive, buffer, 2 * number as u8), ZEROS)).max(1)
                })
            });
            let mut drive = Drive::open(&socket(0), Options::default()).unwrap();
            let mut runner = Runner::new(&mut drive, 0, 4096, 1, 8 * MB, 3).unwrap();
            let (order, mix, check) = (Order::Random, Mix::Read, Check::Nothing);
            ready.wait();
            let ends = Ends(stop);
            let reads = Workload { order, mix, depth: 1, check, stop: Stop::Commands(2000) };
            let mut reads = runner.run(&mut drive, &reads).unwrap().latencies;
            drop(ends);
            reads.sort_unstable();
            (reads, busy.map(|thread| thread.join().unwrap()))
        });
        let at = |share: usize| Duration::from_nanos(reads[reads.len() * share / 100].into());
        let told = serving.does(&["stats"]);
        println!(
            "{slots} slots: reads of 4 KiB beside operators take {:.0?}, at most {:.0?} (99 %); digests {digests:?}\n{told}",
            at(50),
            at(99)
        );
        let lines: Vec<&str> = told.lines().filter(|line| line.starts_with("slot ")).collect();
        assert_eq!(lines.len().to_string(), slots, "{told}");
        let metrics = serving.does(&["stats", "--prometheus"]);
        let loads = metrics.lines().filter(|line| line.starts_with("dcs_csd_operator_slot_loads_total{"));
        assert_eq!(loads.count().to_string(), slots, "{metrics}");
        if slots != "0" {
            assert!(lines.iter().any(|line| line.contains("holds sha256")), "{told}");
        }
    }
}

/// Drives with these settings, and slots: each drive, in turn, digests its first 4 MiB. The slots, as `dcs csd stats` tells them.
fn slots_after_digests(drives: &[&str], more: &[&str], operators: u8) -> Vec<Value> {
    let folder = folder();
    let path = disk(folder.path(), "disk", drives.len() as u64 * 8 * MB);
    let drives: Vec<String> =
        drives.iter().map(|drive| drive.replace("DISK", path.to_str().unwrap())).collect();
    let named = drives.iter().flat_map(|drive| ["--drive", drive]);
    let arguments: Vec<&str> = named.chain(more.iter().copied()).collect();
    let serving = Serving::start(folder.path(), &arguments).unwrap();
    for drive in &drives {
        let mut drive = Drive::open(&serving.socket(&drive[..1]), Options::default()).unwrap();
        let buffer = drive.device.take(4096).unwrap();
        assert_eq!(digest(&mut drive, buffer, operators), ZEROS);
    }
    let stats = serving.does(&["stats", "--json"]);
    let lines = stats.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let slots: Vec<Value> = lines.filter(|line| line.get("slot").is_some()).collect();
    let metrics = serving.does(&["stats", "--prometheus"]);
    for slot in &slots {
        for (drive, batches) in slot["drives"].as_object().unwrap() {
            let labels = format!("{{drive=\"{drive}\",slot=\"{}\"}} {batches}", slot["slot"]);
            let line = format!("dcs_csd_operator_slot_drive_batches_total{labels}");
            assert!(metrics.lines().any(|one| one == line), "{line} is not in\n{metrics}");
        }
    }
    slots
}

/// The drives that each slot has served, and those whose own it is.
fn served(slots: &[Value]) -> Vec<(Vec<&str>, Vec<&str>)> {
    let served = |slot: &Value| -> u64 {
        slot["drives"].as_object().unwrap().values().filter_map(Value::as_u64).sum()
    };
    assert!(slots.iter().all(|slot| slot["batches"] == served(slot)), "{slots:?}");
    slots
        .iter()
        .map(|slot| {
            let drives = slot["drives"].as_object().unwrap().keys().map(String::as_str).collect();
            let owners = slot["owners"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
            (drives, owners)
        })
        .collect()
}

/// Each policy places the drives' work as it says, in a process with threads.
#[test]
fn each_policy_has_the_slots_serve_whom_it_says() {
    let settings = "size=8M,backing=DISK";
    let loads = [4, 1, 4, 1].iter().zip("abcd".chars());
    let loaded: Vec<String> = loads.map(|(load, name)| format!("{name}:{settings},load={load}")).collect();
    let loaded: Vec<&str> = loaded.iter().map(String::as_str).collect();
    let plain: Vec<String> = "abcd".chars().map(|name| format!("{name}:{settings}")).collect();
    let plain: Vec<&str> = plain.iter().map(String::as_str).collect();
    let bound = ["--slot", "sha256,md5", "--slot", "grep", "--slot", "md5,sha256"];
    let with = |policy: &'static str| [&["--policy", policy][..], &bound].concat();
    let all = vec!["a", "b", "c", "d"];
    let worst = slots_after_digests(&loaded, &with("static-worst"), 1);
    assert_eq!(
        served(&worst),
        [(vec!["a", "c"], vec!["a", "c"]), (vec![], all.clone()), (vec!["b", "d"], vec!["b", "d"])]
    );
    assert_eq!(worst[0]["bound"], json!(["md5", "sha256"]));
    let best = slots_after_digests(&loaded, &with("static-best"), 2);
    assert_eq!(
        served(&best),
        [(vec!["a", "b"], vec!["a", "b"]), (vec![], all.clone()), (vec!["c", "d"], vec!["c", "d"])]
    );
    // One command at a time: the first slot that is bound to its operators is free.
    let dynamic = slots_after_digests(&plain, &with("dynamic"), 1);
    assert_eq!(served(&dynamic), [(all.clone(), vec![]), (vec![], vec![]), (vec![], vec![])]);
    assert_eq!(dynamic[0]["policy"], "dynamic");
    let placed = [&worst, &best, &dynamic];
    assert!(placed.iter().all(|slots| slots.iter().all(|slot| slot["loads"] == 0)), "{placed:?}");
    let reconfigured = slots_after_digests(&plain, &["--slots", "2", "--policy", "reconfiguration"], 1);
    assert!(reconfigured[0]["loads"].as_u64() > Some(0), "{reconfigured:?}");
    assert!(reconfigured[0].get("bound").is_none(), "{reconfigured:?}");
    let drives = served(&reconfigured);
    assert!(all.iter().all(|drive| drives.iter().any(|(served, _)| served.contains(drive))), "{drives:?}");
}

/// A chain of which no slot has all operators fails with *unknown operator*, and others go on.
#[test]
fn what_no_slot_is_bound_to_is_unknown_to_guests() {
    let folder = folder();
    let serving = serve_with(folder.path(), 1, &["--policy", "dynamic", "--slot", "md5", "--slot", "sha256"]);
    let mut drive = Drive::open(&serving.socket("d0"), Options::default()).unwrap();
    let buffer = drive.device.take(4096).unwrap();
    for chain in [&[8u8][..], &[1, SHA256]] {
        let mut parameters = vec![chain.len() as u8, 0, 0, 0, 0, 0, 0, 0];
        chain.iter().for_each(|number| parameters.extend([*number, 0, 0, 0, 0, 0, 0, 0]));
        drive.device.memory().store(buffer, &parameters);
        let length = parameters.len() as u32;
        let refused = near(&mut drive, [FROM_GUEST, 0, LOAD, 0], buffer, [length / 4, length, 0, 0, 0, 0]);
        assert_eq!(refused.status.0, Status::UnknownOperator.code(), "{chain:?}: {}", refused.status);
    }
    assert_eq!(digest(&mut drive, buffer, 2), ZEROS);
}
