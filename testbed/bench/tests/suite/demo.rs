//! `dcs demo`, in small.

use crate::run::{Done, Place};
use serde_json::Value;
use std::process::Command;

fn of<'a>(lines: &'a [Value], event: &str) -> Vec<&'a Value> {
    lines.iter().filter(|line| line["event"] == event).collect()
}

#[test]
fn it_checks_every_job_and_measures_every_contender() {
    let place = Place::new();
    let done = place.run("demo --size 1MiB --runs 1 --json --dir new/folder").ok();
    let lines = done.lines();
    let checks = of(&lines, "check");
    assert_eq!(checks.len(), 3 + 3, "what is compressed is opened for each contender");
    for check in checks {
        assert_eq!(check["ok"], true);
        assert!(check["files"].as_u64().unwrap() > 20 && check["bytes"].as_u64().unwrap() > 300_000);
    }
    let measurements = of(&lines, "measurement");
    assert_eq!(measurements.len(), 4 * 2 * 3);
    for row in measurements {
        assert!(row["gib_per_s"].as_f64().unwrap() > 0.0 && row["cpu_s_per_gib"].as_f64().unwrap() > 0.0);
        assert!(row["syscalls_per_gib"].is_null() || row["syscalls_per_gib"].as_f64().unwrap() > 100.0);
    }
    assert_eq!(of(&lines, "breakdown").len(), 4);
    assert_eq!(lines.last().unwrap()["ok"], true);
    assert!(std::fs::read_dir(place.path("new/folder")).unwrap().next().is_none(), "the data are removed");
}

/// Checks that a server's account of hundreds of files, which fills its pipe, is read.
#[test]
fn files_by_the_hundred_are_each_checked() {
    let place = Place::new();
    let demo = place.dcs("demo --size 54MiB --check-only --json --dir .");
    // A hang becomes a failure.
    let mut limited = Command::new("timeout");
    limited.arg("600").arg(demo.get_program()).args(demo.get_args()).current_dir(place.path(""));
    let lines = Done(limited.output().unwrap()).ok().lines();
    let checks = of(&lines, "check");
    assert_eq!(checks.len(), 3 + 3);
    assert!(checks.iter().all(|check| check["ok"] == true));
    let most = checks.iter().map(|check| check["files"].as_u64().unwrap()).max();
    assert!(most >= Some(256), "{most:?} files");
}

#[test]
fn it_says_what_it_could_not_check_and_fails() {
    let place = Place::new();
    let without_tools = |rest: &str| {
        let mut command = place.dcs(&format!("demo --size 256KiB --runs 1 --json --dir . {rest}"));
        Done(command.env("PATH", "/nonexistent").output().unwrap())
    };
    let done = without_tools("").fails(1, &["could not be checked without python3", "--unverified"]);
    assert!(of(&done.lines(), "check").iter().all(|check| check["ok"].is_null()));
    without_tools("--unverified").ok();
}

#[test]
fn it_needs_room() {
    Place::new().run("demo --size 100000TiB").fails(4, &["free", "--size"]);
}
