//! `dcs vm` and `dcs bench guest`: the demo in small, in a virtual server where there can be one.

use crate::run::Place;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const JOBS: [&str; 4] =
    ["SSD -> NIC", "SSD -> md5 -> NIC", "SSD -> md5,aes256-ctr -> NIC", "NIC -> crc32c -> SSD"];
const DESIGNS: [&str; 4] = ["host", "software-tcp", "software-nic", "card"];
/// The design that moves data from device to device, without a processing unit between them.
const PEER: &str = "software-p2p";
/// Exit code for a virtual server that is not available.
const UNAVAILABLE: i32 = 9;

/// Returns the designs that do a job: without operators or receiving, also peer-to-peer.
fn designs(peer: bool) -> Vec<&'static str> {
    let mut designs = DESIGNS.to_vec();
    if peer {
        designs.insert(3, PEER);
    }
    designs
}

fn number(row: &Value, name: &str) -> f64 {
    row[name].as_f64().unwrap_or_else(|| panic!("no {name} in {row}"))
}

#[test]
fn the_server_s_demo_checks_every_byte_and_each_design_has_its_figures() {
    let place = Place::new();
    let done = place.run("vm demo --size 2MiB --json");
    if done.code() == UNAVAILABLE {
        eprintln!("skipped: {}", done.stderr());
        return;
    }
    let done = done.ok();
    let lines = done.lines();
    let of = |event: &str| lines.iter().filter(|line| line["event"] == event).collect::<Vec<_>>();
    let checks = of("check");
    // Each job with each design, measured and traced.
    let count = JOBS.len() * DESIGNS.len() + 1;
    assert_eq!(checks.len(), count * 2);
    for check in checks {
        assert!(check["ok"] == true && check["bytes"] == 2 << 20, "{check}");
        let digests = if check["job"] == JOBS[0] { 0 } else { 2 };
        assert_eq!(check["digests"], digests, "{check}");
    }
    let rows = of("measurement");
    for job in JOBS {
        let rows_of: Vec<_> = rows.iter().copied().filter(|row| row["job"] == job).collect();
        let (host, tcp, nic, peer, card) = match rows_of[..] {
            [host, tcp, nic, peer, card] => (host, tcp, nic, Some(peer), card),
            [host, tcp, nic, card] => (host, tcp, nic, None, card),
            _ => panic!("{job} is missing"),
        };
        assert_eq!(peer.is_some(), job == JOBS[0]);
        for (row, by) in rows_of.iter().zip(designs(peer.is_some())) {
            assert!(row["job"] == job && row["by"] == by && row["bytes_verified"] == 2 << 20, "{row}");
            assert!(number(row, "guest_cpu_s_per_gib") > 0.0 && number(row, "process_cpu_s_per_gib") > 0.0);
            // Time not idle is that of the process, the kernel, and waiting processes.
            assert!(number(row, "guest_not_idle_s_per_gib") > 0.0);
            assert!((1024.0..10_000_000.0).contains(&number(row, "system_calls_per_gib")), "{row}");
        }
        // The papers' point, on any machine: the host is told once per transfer, and never of packets.
        assert_eq!(number(card, "submissions_per_transfer"), 1.0);
        assert!(number(card, "card_interrupts_per_transfer") <= 1.0, "{card}");
        let of_devices = "device_interrupts_per_gib";
        for other in [Some(host), Some(tcp), Some(nic), peer].into_iter().flatten() {
            assert!(number(card, of_devices) < number(other, of_devices) / 2.0, "{other} {card}");
        }
        // The process drives the SSD, or the SSD and the NIC.
        let of_vfio = |row: &Value| {
            row["interrupts"].as_object().unwrap().keys().filter(|name| name.contains("vfio")).count()
        };
        assert_eq!((of_vfio(tcp), of_vfio(nic)), (1, 2), "{tcp} {nic}");
        // Peer-to-peer: none of the data pass through host memory or the processor.
        let blocks = |row: &Value, name: &str| row["blocks"][name].as_u64().unwrap();
        for (row, ssd) in [(Some(nic), 0), (peer, 2 * (2 << 20))] {
            let Some(row) = row else { continue };
            let host = 2 * (2 << 20) - ssd;
            assert_eq!((blocks(row, "host_bytes"), blocks(row, "ssd_bytes")), (host, ssd), "{row}");
            assert_eq!(blocks(row, "copied_bytes"), 0, "{row}");
        }
        assert!(host["blocks"].is_null() && card["blocks"].is_null());
        // A loose bound, since this is a debug build with two objects on a busy machine; the release build has the real figure.
        let ratio = number(card, "guest_cpu_ratio");
        assert!(ratio > 0.0 && (ratio < 1.0 || !job.contains("aes")), "{card}");
        let ratio = number(card, "guest_cpu_ratio_to_software");
        assert!(ratio > 0.0 && (ratio < 1.0 || !job.contains("aes")), "{card}");
    }
    let breakdowns = of("breakdown");
    assert_eq!(breakdowns.len(), count);
    for row in breakdowns {
        let through = row["path"].as_array().unwrap().iter().any(|path| path == "VFIO");
        assert_eq!(through, row["by"].as_str().unwrap().starts_with("software"), "{row}");
        let through = row["path"].as_array().unwrap().iter().any(|path| path == "peer-to-peer");
        assert_eq!(through, [PEER, "card"].iter().any(|by| row["by"] == *by), "{row}");
        let stages = row["stages"].as_array().unwrap();
        assert!(stages.len() >= 2 && number(row, "latency_ns") > 0.0);
        assert!(stages.iter().all(|stage| number(stage, "last_ns") <= number(row, "latency_ns")), "{row}");
    }
    assert_eq!(lines.last().unwrap()["ok"], true);
}

/// The shortest of the experiments. The real figures are the release build's.
#[test]
fn an_experiment_in_the_guest_has_every_byte_right() {
    let place = Place::new();
    let done = place.run("bench guest object --quick --json --svg bars.svg");
    if done.code() == UNAVAILABLE {
        eprintln!("skipped: {}", done.stderr());
        return;
    }
    let lines = done.ok().lines();
    let of = |event: &str| lines.iter().filter(|line| line["event"] == event).collect::<Vec<_>>();
    assert_eq!(of("check").len(), 2 * DESIGNS.len());
    assert!(of("check").iter().all(|check| check["ok"] == true));
    let rows = of("measurement");
    assert!(rows.iter().map(|row| row["by"].as_str().unwrap()).eq(DESIGNS));
    for row in rows {
        assert!(number(row, "guest_cpu_s_per_gib") > 0.0 && number(row, "system_calls_per_gib") > 0.0);
        assert!(number(row, "bytes_verified") > 0.0 && number(row, "mib_per_s_in_qemu") > 0.0, "{row}");
    }
    assert!(of("figure").iter().any(|line| line["to_reach"] == "<= 0.3"));
    let svg = String::from_utf8(place.read("bars.svg")).unwrap();
    assert!(DESIGNS.iter().all(|by| svg.contains(by)));
}

/// Sends from one set of an SSD and a NIC, then from two, on one card.
#[test]
fn two_sets_on_a_card_have_every_byte_right() {
    const STREAM: u64 = 8 << 20;
    let place = Place::new();
    let done = place.run("bench guest scaling --quick --json --svg bars.svg");
    if done.code() == UNAVAILABLE {
        eprintln!("skipped: {}", done.stderr());
        return;
    }
    let lines = done.ok().lines();
    let of = |event: &str| lines.iter().filter(|line| line["event"] == event).collect::<Vec<_>>();
    // Each set has two streams, each design one set and two.
    let moved = of("check").into_iter().map(|check| {
        assert!(check["ok"] == true, "{check}");
        (check["by"].as_str().unwrap(), check["bytes"].as_u64().unwrap())
    });
    assert!(moved.eq(DESIGNS.into_iter().flat_map(|by| [(by, 2 * STREAM), (by, 4 * STREAM)])));
    let rows = of("measurement");
    assert_eq!(rows.len(), 2 * DESIGNS.len());
    for (at, row) in rows.iter().enumerate() {
        let (sets, count) = (&row["sets"], at % 2 + 1);
        assert!(row["by"] == DESIGNS[at / 2] && sets["count"] == count, "{row}");
        assert!(number(row, "guest_cpu_s_per_gib") > 0.0 && number(sets, "guest_cpu_share") > 0.0, "{row}");
        let (least, most) = (number(sets, "least"), number(sets, "most"));
        assert!(0.0 < least && least <= 1.0 && 1.0 <= most && most <= count as f64, "{row}");
    }
    // A loose bound, for a busy machine and few transfers; the release build has the real figure.
    let [.., card] = &rows[..] else { panic!("no rows") };
    assert!(number(&card["sets"], "of_one_set") < 1.3 && number(&card["sets"], "least") > 0.6, "{card}");
    assert!(of("figure").iter().any(|line| line["to_reach"] == "<= 1.05"));
    let svg = String::from_utf8(place.read("bars.svg")).unwrap();
    assert!(DESIGNS.iter().all(|by| svg.contains(by)));
}

/// All experiments, with --quick.
#[test]
#[ignore = "five minutes in a debug build, four guests: cargo test -p dcs-bench --test suite -- --ignored the_experiments"]
fn the_experiments_in_the_guest_have_every_byte_right() {
    let place = Place::new();
    let done = place.run("bench guest all --quick --json --svg bars.svg");
    if done.code() == UNAVAILABLE {
        eprintln!("skipped: {}", done.stderr());
        return;
    }
    let lines = done.ok().lines();
    let checks: Vec<_> = lines.iter().filter(|line| line["event"] == "check").collect();
    assert!(checks.len() >= 4 * DESIGNS.len() && checks.iter().all(|check| check["ok"] == true));
    let of = |experiment: &str| {
        let is_it = |line: &&Value| line["event"] == "measurement" && line["experiment"] == experiment;
        lines.iter().filter(is_it).collect::<Vec<_>>()
    };
    for (experiment, jobs) in [("guest-object", 1), ("guest-balancer", 2)] {
        let rows = of(experiment);
        // Peer-to-peer only sends, without operators.
        let peer = usize::from(experiment == "guest-balancer");
        assert_eq!(rows.len(), jobs * DESIGNS.len() + peer, "{experiment}");
        for row in rows {
            assert!(number(row, "guest_cpu_s_per_gib") > 0.0 && number(row, "system_calls_per_gib") > 0.0);
            assert!(number(row, "bytes_verified") > 0.0 && number(row, "mib_per_s_in_qemu") > 0.0, "{row}");
        }
    }
    let rows = of("guest-contention");
    assert_eq!(rows.len(), 2 * designs(true).len());
    let kept = |by: &str| {
        let row = rows.iter().find(|row| row["by"] == by && row["spinners"] == 24);
        number(row.unwrap(), "kept")
    };
    // A loose bound, for a busy machine; the release build has the real figure.
    assert!(kept("host") < 0.6 && kept("card") > 2.0 * kept("host"), "{} {}", kept("host"), kept("card"));
    for experiment in ["guest-contention", "guest-object", "guest-balancer", "guest-scaling"] {
        let svg = String::from_utf8(place.read(&format!("bars-{experiment}.svg"))).unwrap();
        assert!(designs(experiment != "guest-object").iter().all(|by| svg.contains(by)), "{experiment}");
        let is_it = |line: &&Value| line["event"] == "figure" && line["experiment"] == experiment;
        assert!(lines.iter().filter(is_it).any(|line| line["to_reach"].is_string()), "{experiment}");
    }
}

#[test]
fn videos_go_from_an_ssd_to_a_nic_while_the_guest_sleeps() {
    let place = Place::new();
    let done = place.run("vm d2d --streams 4 --json");
    if done.code() == UNAVAILABLE {
        eprintln!("skipped: {}", done.stderr());
        return;
    }
    let done = done.ok();
    let lines = done.lines();
    let outcome = lines.iter().find(|line| line["event"] == "d2d").expect("an outcome");
    assert_eq!((outcome["streams"].clone(), outcome["whole"].clone()), (4.into(), 4.into()));
    for nothing in ["device_interrupts", "driver_context_switches"] {
        assert_eq!(outcome[nothing], 0, "{outcome}");
    }
    assert!(
        number(outcome, "guest_cpu_idle_ms") > 0.0 && number(outcome, "nic_cpu_percent") > 0.0,
        "{outcome}"
    );
    assert_eq!(place.run("vm d2d --streams 129").code(), 2);
    // The report shows it, with a frame of what arrived where there is an ffmpeg to decode it.
    place.write("guest.json", outcome.to_string().as_bytes());
    place.run("bench sim latency --quick --json --html report.html --guest guest.json").ok();
    let page = String::from_utf8(place.read("report.html")).unwrap();
    assert!(page.contains("interrupts of the SSD and the NIC"));
    let jpeg = page.split_once("data:image/jpeg;base64,").map(|(_, rest)| &rest[..8]);
    // The first bytes of a JPEG picture: FF D8 FF E0.
    assert_eq!(jpeg.is_some_and(|jpeg| jpeg.starts_with("/9j/")), outcome["decoded"] == true);
}

#[test]
fn a_server_that_cannot_be_had_is_said_with_the_reason() {
    let place = Place::new();
    let mut command = place.dcs("vm demo --size 1MiB");
    // A QEMU without vfio-user-pci.
    let done = crate::run::Done(command.env("DCS_QEMU", "/bin/false").output().unwrap());
    done.fails(UNAVAILABLE, &["no virtual server here", "DCS_QEMU", "vfio-user-pci"]);
}

#[test]
fn the_server_teaches() {
    let place = Place::new();
    let done = place.run("vm");
    assert_eq!(done.code(), 2);
    assert!(done.stderr().contains("dcs vm demo") && done.stderr().contains("dcs vm shell"));
    place.run("vm demo --size 0").fails(2, &["--size"]);
    let help = place.run("bench guest --help").ok().stdout();
    assert!(help.contains("dcs bench guest object") && help.contains("Exit codes:"));
}

#[test]
fn a_demo_that_is_interrupted_leaves_nothing_behind() {
    let place = Place::new();
    let mut command = place.dcs("vm demo --size 8MiB --json");
    let folder = place.path("");
    let mut demo = command.env("TMPDIR", &folder).stdout(Stdio::piped()).spawn().unwrap();
    let mut first = String::new();
    BufReader::new(demo.stdout.take().unwrap()).read_line(&mut first).unwrap();
    if !first.contains("\"server\"") {
        assert_eq!(demo.wait().unwrap().code(), Some(UNAVAILABLE));
        eprintln!("skipped: {first}");
        return;
    }
    // The guest is up and working.
    assert!(Command::new("kill").arg(demo.id().to_string()).status().unwrap().success());
    assert_eq!(demo.wait().unwrap().code(), Some(130));
    assert!(place.names().is_empty(), "{:?}", place.names());
    let named = folder.to_string_lossy().into_owned();
    let is_left = || {
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        let lines = processes.filter_map(|process| std::fs::read(process.path().join("cmdline")).ok());
        lines.into_iter().any(|line| String::from_utf8_lossy(&line).contains(&named))
    };
    let end = Instant::now() + Duration::from_secs(10);
    while is_left() {
        assert!(Instant::now() < end, "QEMU or the card is left over");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The failing SSD is QEMU's; the interposer is between it and the card.
#[test]
fn a_fault_strikes_the_card_s_ssd_and_its_transfers_alone() {
    let place = Place::new();
    let faults = "--fault ssd:read:1:late=20ms --fault ssd:read:2:twice --fault ssd:write:3:status=0x280 --fault ssd:flush:9000:drop";
    let done = place.run(&format!("vm demo --size 2MiB {faults} --json"));
    if done.code() == UNAVAILABLE {
        eprintln!("skipped: {}", done.stderr());
        return;
    }
    let lines = done.ok().lines();
    let of = |event: &str| lines.iter().filter(|line| line["event"] == event).collect::<Vec<_>>();
    // A late or repeated operation fails nothing; a failed write fails its transfer, which reports the stage.
    let rows = of("measurement");
    assert!(rows.iter().map(|row| row["job"].as_str().unwrap()).eq(JOBS[..3].iter().copied()), "{rows:?}");
    assert!(of("check").iter().all(|check| check["ok"] == true && check["bytes"] == 2 << 20));
    let failed = of("failed");
    assert_eq!(failed.len(), 1);
    assert!(failed[0]["job"] == JOBS[3] && failed[0]["by"] == "card", "{failed:?}");
    assert!(failed[0]["why"].as_str().unwrap().contains("destination"), "{failed:?}");
    let struck = of("fault").into_iter().map(|line| line["struck"].as_u64().unwrap());
    assert!(struck.eq([1, 1, 1, 0]));
    assert!(of("fault")[3]["never"].as_str().unwrap().starts_with("ssd:flush:9000:drop never struck"));
    assert_eq!(lines.last().unwrap()["ok"], true);
}
