//! `dcs bench s3` on a small scale, with the servers that are available.

use crate::run::{Done, Place};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::time::{Duration, Instant};

/// Returns those of these servers that are available: tests build nothing.
fn here(place: &Place, names: &[&str]) -> Vec<String> {
    let lines = place.run("bench s3 --list --json").ok().lines();
    let is_here = |name: &&&str| {
        let line = lines.iter().find(|line| line["contender"] == ***name).expect("it is listed");
        if !line["missing"].is_null() {
            println!("skipped {name}: {}", line["missing"]);
        }
        line["missing"].is_null()
    };
    names.iter().filter(is_here).map(ToString::to_string).collect()
}

fn positive(row: &Value, field: &str) -> f64 {
    let value = row[field].as_f64().unwrap_or_else(|| panic!("{field} in {row}"));
    assert!(value > 0.0 && value.is_finite(), "{field} in {row}");
    value
}

#[test]
fn servers_are_listed_with_what_they_promise() {
    let place = Place::new();
    let list = place.run("bench s3 --list").ok().stdout();
    for name in ["dcs", "dcs-none", "dcs-verify", "versitygw", "minio", "rclone", "nginx"] {
        assert!(list.lines().any(|line| line.starts_with(&format!("{name} "))), "{name} in {list}");
    }
    for line in place.run("bench s3 --list --json").ok().lines() {
        assert!(!line["durability"].as_str().unwrap().is_empty(), "{line}");
        assert!(line["put"] == true || line["get"] == true, "{line}");
    }
}

#[test]
fn both_jobs_are_measured_and_checked() {
    let place = Place::new();
    for job in ["get", "put"] {
        let candidates = match job {
            "get" => &["dcs", "dcs-verify", "versitygw", "minio", "rclone", "nginx"][..],
            _ => &["dcs", "dcs-none", "versitygw", "minio", "rclone"],
        };
        let names = here(&place, candidates);
        if names.is_empty() {
            println!("skipped {job}: no server is here");
            continue;
        }
        let line = format!(
            "bench s3 {job} --contenders {} --size 100k --clients 3 --seconds 0.1 --runs 1 --json --dir . --svg {job}.svg",
            names.join(",")
        );
        let mut lines = place.run(&line).ok().lines();
        assert_eq!(lines.pop().unwrap()["ok"], true);
        let found: Vec<_> = lines.iter().map(|row| row["contender"].as_str().unwrap()).collect();
        assert_eq!(found, names);
        for row in &lines {
            assert_eq!((row["job"].as_str(), row["clients"].as_u64()), (Some(job), Some(3)));
            let (rate, each) = (positive(row, "gib_per_s"), positive(row, "requests_per_s"));
            assert!((rate * (1u64 << 30) as f64 / 102_400.0 / each - 1.0).abs() < 1e-6, "{row}");
            assert!(positive(row, "p50_ms") <= positive(row, "p99_ms"));
            positive(row, "cpu_s_per_gib");
            positive(row, "client_cpu_s_per_gib");
            positive(row, "requests_per_cpu_s");
            assert_eq!(row["signing"], if row["contender"] == "nginx" { "unsigned" } else { "presigned" });
        }
        let plot = String::from_utf8(place.read(&format!("{job}.svg"))).unwrap();
        for text in [&job.to_uppercase(), "clients", "CPU s per GiB", names[0].as_str()] {
            assert!(plot.contains(text), "{text}");
        }
    }
    assert!(place.names().iter().all(|name| name.ends_with(".svg")), "the data are removed");
}

#[test]
fn nginx_is_measured_with_and_without_digests() {
    let place = Place::new();
    if here(&place, &["nginx"]).is_empty() {
        return;
    }
    let line = "bench apps nginx --size 100k --clients 3 --seconds 0.1 --runs 1 --json --svg apps.svg";
    let mut lines = place.run(line).ok().lines();
    assert_eq!(lines.pop().unwrap()["ok"], true);
    let (skipped, rows): (Vec<_>, Vec<_>) = lines.into_iter().partition(|line| line["event"] == "skipped");
    skipped.iter().for_each(|line| println!("skipped {}: {}", line["contender"], line["why"]));
    assert!(rows[0]["contender"] == "nginx" && rows.len() + skipped.len() == 5, "{rows:?}");
    for row in &rows {
        assert_eq!(row["base"], "nginx");
        positive(row, "cpu_s_per_gib");
        positive(row, "cpu_ratio");
    }
    assert!(std::fs::read_to_string(place.path("apps-nginx.svg")).unwrap().contains("nginx"));
}

#[test]
fn cold_objects_come_once_and_requests_are_counted() {
    let place = Place::new();
    if here(&place, &["nginx"]).is_empty() {
        return;
    }
    let rows =
        place.run("bench s3 get --contenders nginx --size 8M --clients 2 --cold --runs 1 --json --dir .");
    let rows = rows.ok().lines();
    assert_eq!((rows[0]["cold"].as_bool(), rows.len()), (Some(true), 2));
    positive(&rows[0], "gib_per_s");
    let line = "bench s3 get --contenders nginx --size 1k --clients 2 --requests 50 --runs 2 --json --dir .";
    let rows = place.run(line).ok().lines();
    assert_eq!(rows[0]["runs"], 2);
    positive(&rows[0], "requests_per_s");
}

#[test]
fn memory_is_that_of_the_server() {
    let place = Place::new();
    for name in here(&place, &["versitygw"]) {
        let line = format!(
            "bench s3 --memory --contenders {name} --clients 20 --size 64k --seconds 0.1 --json --dir ."
        );
        let lines = place.run(&line).ok().lines();
        assert_eq!((lines[0]["event"].as_str(), lines[0]["clients"].as_u64()), (Some("memory"), Some(20)));
        let peak = positive(&lines[0], "peak_rss_mib");
        assert!((5.0..4096.0).contains(&peak), "{peak} MiB");
    }
}

#[test]
fn an_interrupted_run_leaves_no_server_and_no_data() {
    let place = Place::new();
    if here(&place, &["nginx"]).is_empty() {
        return;
    }
    let line = "bench s3 get --contenders nginx --size 64k --clients 2 --seconds 60 --dir .";
    let child = place.dcs(line).spawn().unwrap();
    let begun = Instant::now();
    let mine = || servers_in(&place);
    while mine().is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(60), "no server has begun");
        std::thread::sleep(Duration::from_millis(20));
    }
    kill(Pid::from_raw(child.id() as i32), Signal::SIGINT).unwrap();
    assert_eq!(Done(child.wait_with_output().unwrap()).code(), 130);
    assert_eq!(place.names(), Vec::<String>::new());
    let begun = Instant::now();
    while !mine().is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?} goes on", mine());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Returns the processes whose working directory is in the place's folder.
fn servers_in(place: &Place) -> Vec<String> {
    let root = std::fs::canonicalize(place.path(".")).unwrap();
    let is_there = |entry: &std::fs::DirEntry| {
        std::fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd.starts_with(&root) && cwd != root)
    };
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    all.filter(is_there).map(|entry| entry.file_name().into_string().unwrap()).collect()
}

#[test]
fn what_makes_no_sense_is_a_usage_error() {
    let place = Place::new();
    for (line, words) in [
        ("bench s3 --contenders apache", &["there is no contender", "versitygw"][..]),
        ("bench s3 put --contenders nginx", &["none of these", "--list"]),
        ("bench s3 --size 0", &["--size 0", "64k"]),
        ("bench s3 --server-cores 4097", &["there are"]),
    ] {
        place.run(line).fails(2, words);
    }
    for line in [
        "bench s3 delete",
        "bench s3 --clients 0",
        "bench s3 --seconds 0",
        "bench s3 --requests 0",
        "bench s3 --memory --cold",
        "bench --size 1M serve",
    ] {
        assert_eq!(place.run(line).code(), 2, "{line}");
    }
}
