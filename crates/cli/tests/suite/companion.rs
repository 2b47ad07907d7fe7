//! `dcs demo`, `dcs bench` and `dcs vm` start `dcs-bench`, `dcs csd` starts `dcs-csd`. Here a script replaces them and
//! prints its arguments.

use crate::run::{Done, Place};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

const SCRIPT: &str = "#!/bin/sh\nprintf '%s|' \"$@\"; exit 7\n";

/// Makes a copy of `dcs` with nothing next to it.
fn alone() -> Place {
    let place = Place::new();
    std::fs::create_dir(place.path("bin")).unwrap();
    std::fs::copy(crate::PROGRAM, place.path("bin/dcs")).unwrap();
    place
}

fn script(place: &Place, name: &str) {
    let path = place.write(name, SCRIPT.as_bytes());
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

fn run(place: &Place, path: &str, line: &str) -> Done {
    let mut command = Command::new(place.path("bin/dcs"));
    Done(command.args(line.split_whitespace()).env("PATH", place.path(path)).output().unwrap())
}

#[test]
fn all_arguments_are_passed_on_and_its_exit_code_comes_back() {
    let place = alone();
    script(&place, "bin/dcs-bench");
    for line in [
        "bench file>md5>socket --streams 1,16 --json",
        "--json demo --size 1MiB",
        "bench s3 --help",
        "bench --help",
        "vm -h",
        "help vm demo",
        "-q vm shell -- x",
    ] {
        let done = run(&place, "nothing", line);
        assert_eq!((done.code(), done.stdout()), (7, line.replace(' ', "|") + "|"), "{}", done.stderr());
    }
    // The program is listed, and gets only its own commands.
    assert!(run(&place, "nothing", "--help").ok().stdout().contains("  bench "));
    assert!(run(&place, "nothing", "help send").ok().stdout().contains("dcs send"));
}

#[test]
fn it_is_looked_for_in_path_and_where_it_is_nowhere_that_is_said() {
    let place = alone();
    for line in ["demo", "--json bench gpu", "help vm"] {
        run(&place, "nothing", line).fails(7, &["no dcs-bench", "cargo build --release -p dcs-bench"]);
    }
    run(&place, "nothing", "csd list").fails(7, &["no dcs-csd", "cargo build --release -p dcs-csd-cli"]);
    std::fs::create_dir(place.path("path")).unwrap();
    script(&place, "path/dcs-bench");
    assert_eq!(run(&place, "path", "demo").stdout(), "demo|");
    script(&place, "path/dcs-csd");
    assert_eq!(run(&place, "path", "csd run --drive a").stdout(), "csd|run|--drive|a|");
    assert_eq!(run(&place, "path", "help csd run").stdout(), "help|csd|run|");
}
