//! What `dcs serve` logs.

use crate::run::Place;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

#[test]
fn a_log_that_is_no_terminal_has_no_colours() {
    let place = Place::new();
    let mut command = place.dcs("serve store --listen 127.0.0.1:0");
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().starts_with("serving ")));
    kill(Pid::from_raw(child.id() as i32), Signal::SIGTERM).unwrap();
    let done = child.wait_with_output().unwrap();
    let log = String::from_utf8(done.stderr).unwrap();
    assert!(
        done.status.success() && log.contains(" INFO dcs::serve: opened ") && !log.contains('\x1b'),
        "{log}"
    );
}
