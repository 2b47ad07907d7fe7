//! The start of `dcs serve`: errors in its options are found before anything is made; its address.

use crate::run::Place;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};

#[test]
fn wrong_options_are_found_before_anything_is_made() {
    let place = Place::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let text = place.write("text", b"neither a key nor a certificate nor a user");
    std::fs::set_permissions(text, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    for (options, code, words) in [
        (format!("--listen 127.0.0.1:{port}"), 3, &["in use", "another port"][..]),
        (format!("--listen {port}"), 3, &["in use"]),
        (format!("--listen :{port}"), 3, &["in use"]),
        ("--listen 203.0.113.77:0".into(), 3, &["203.0.113.77"]),
        ("--listen 0 --master-key absent".into(), 2, &["absent"]),
        ("--listen 0 --master-key text".into(), 2, &["text", "openssl rand -hex 32"]),
        ("--listen 0 --tls-cert absent --tls-key text".into(), 2, &["absent"]),
        ("--listen 0 --tls-cert text --tls-key text".into(), 2, &["no certificate"]),
        ("--listen 0 --users absent".into(), 2, &["absent"]),
        ("--listen 0 --users text".into(), 2, &["text", "line 1"]),
        ("--listen 0 --core 9999".into(), 2, &["no such processor"]),
        ("--listen 0 --cores 2 --core 0".into(), 2, &["--core names 1", "--cores 2 --core 0,1"]),
    ] {
        place.run(&format!("serve new/store {options}")).fails(code, words);
        assert_eq!(place.names(), ["text"], "{options}");
    }
    for (option, words) in [
        ("--listen here", "ADDR:PORT"),
        ("--cores 0", "from 1 on, or all"),
        ("--cores some", "from 1 on, or all"),
    ] {
        let wrong = place.run(&format!("serve new/store {option}"));
        assert!(wrong.code() == 2 && wrong.stderr().contains(words), "{}", wrong.stderr());
    }
}

/// Returns the address that a server reports, and its log.
fn serve(listen: &str) -> (SocketAddr, String) {
    let place = Place::new();
    let mut child = place.dcs(&format!("serve store --listen {listen}")).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let address = lines.find_map(|line| Some(line.unwrap().split_once("http://")?.1.to_string())).unwrap();
    let address: SocketAddr = address.parse().unwrap();
    TcpStream::connect(("127.0.0.1", address.port())).expect("it takes connections of this machine");
    kill(Pid::from_raw(child.id() as i32), Signal::SIGTERM).unwrap();
    let log = String::from_utf8(child.wait_with_output().unwrap().stderr).unwrap();
    (address, log)
}

#[test]
fn a_port_alone_is_for_this_machine_and_more_is_remarked() {
    let (address, log) = serve("0");
    assert!(address.ip().is_loopback() && !log.contains("nothing is encrypted"), "{address}: {log}");
    for everywhere in [":0", "0.0.0.0:0"] {
        let (address, log) = serve(everywhere);
        assert!(address.ip().is_unspecified(), "{address}");
        assert!(log.contains("WARN") && log.contains("nothing is encrypted on the way: --tls-cert"), "{log}");
    }
}

/// Starts a server after a shell has set limits. Returns its limit of open files (soft, hard) once it serves, and its
/// log.
fn limits_of_a_server(limits: &str) -> (u64, u64, String) {
    let place = Place::new();
    let mut command = Command::new("sh");
    command.arg("-c").arg(format!("{limits} && exec \"$0\" serve \"$1\" --listen 0"));
    command.arg(crate::PROGRAM).arg(place.path("store"));
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().starts_with("serving")), "it serves");
    let told = std::fs::read_to_string(format!("/proc/{}/limits", child.id())).unwrap();
    let line = told.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap();
    let limit: Vec<u64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    kill(Pid::from_raw(child.id() as i32), Signal::SIGTERM).unwrap();
    let log = String::from_utf8(child.wait_with_output().unwrap().stderr).unwrap();
    (limit[0], limit[1], log)
}

/// Shells begin with 1024 descriptors, too few for 2048 connections; the server can raise the limit.
#[test]
fn the_limit_of_open_files_is_raised_as_far_as_it_is_needed_and_goes() {
    let (soft, hard, log) = limits_of_a_server("ulimit -Sn 300");
    if hard >= 4096 {
        assert!((2048..=4096).contains(&soft) && !log.contains("there will be fewer"), "{soft}: {log}");
    } else {
        println!("skipped in part: this machine allows {hard} descriptors");
    }
    let (soft, hard, log) = limits_of_a_server("ulimit -Sn 300 && ulimit -Hn 1000");
    assert_eq!((soft, hard), (1000, 1000), "{log}");
    assert!(log.contains("there will be fewer"), "{log}");
    // Already enough: nothing is changed.
    let (soft, hard, _) = limits_of_a_server("ulimit -Sn 5000 || ulimit -Sn hard");
    assert_eq!(soft, hard.min(5000));
}
