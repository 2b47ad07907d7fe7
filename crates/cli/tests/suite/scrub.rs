//! `dcs scrub`, and the scrub of `dcs serve`: on the folder of a server that ran before.

use crate::run::Place;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// A server and its address.
struct Server(Child, String);

impl Server {
    fn start(place: &Place, more: &str) -> Server {
        let line = format!("serve store --listen 127.0.0.1:0 --anonymous all --durability none {more}");
        let mut child = place.dcs(&line).stderr(Stdio::null()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let address = lines.find_map(|line| Some(line.unwrap().split_once("http://")?.1.to_string()));
        Server(child, address.unwrap())
    }

    /// Returns the status, and what follows the head.
    fn ask(&self, method: &str, target: &str, body: &[u8]) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.1).unwrap();
        let length = body.len();
        let head = format!(
            "{method} {target} HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(body).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head[9..12].parse().unwrap(), body.to_string())
    }

    fn stop(mut self) {
        let status = std::process::Command::new("kill").arg(self.0.id().to_string()).status().unwrap();
        assert!(status.success());
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Changes a byte of the only data file of that size.
fn flip(place: &Place, size: usize) {
    for folder in std::fs::read_dir(place.path("store/data")).unwrap() {
        for file in std::fs::read_dir(folder.unwrap().path()).unwrap() {
            let path = file.unwrap().path();
            let mut bytes = std::fs::read(&path).unwrap();
            if bytes.len() == size {
                bytes[size / 2] ^= 1;
                return std::fs::write(path, bytes).unwrap();
            }
        }
    }
    panic!("no file of {size} bytes");
}

#[test]
fn damage_is_told_and_kept_from_readers() {
    let place = Place::new();
    let server = Server::start(&place, "--pack 0");
    assert_eq!(server.ask("PUT", "/bucket", b"").0, 200);
    for length in [1000, 2000, 3000] {
        assert_eq!(server.ask("PUT", &format!("/bucket/{length}"), &vec![7; length]).0, 200);
    }
    place.run("scrub store").fails(1, &["in use", "--scrub-every"]);
    server.stop();
    let sound = place.run("scrub store --json").ok().lines();
    assert!(sound[0]["ok"] == true && sound[0]["objects"] == 3 && sound[0]["bytes"] == 6000, "{sound:?}");
    flip(&place, 2000);
    place.run("scrub store --dry-run").fails(5, &["1 of 3 objects", "--dry-run"]);
    let done = place.run("scrub store --json");
    assert_eq!(done.code(), 5);
    let lines = done.lines();
    assert_eq!(lines[0]["key"], "2000");
    assert!(lines[0]["verdict"] == "damaged" && lines[0]["action"] == "quarantined", "{lines:?}");
    assert!(lines[1]["bad"] == 1 && lines[1]["quarantined"] == 1, "{lines:?}");
    assert!(place.run("scrub store").stdout().contains("(quarantined before)"));

    let server = Server::start(&place, "");
    let (status, said) = server.ask("GET", "/bucket/2000", b"");
    assert!(status == 500 && said.contains("kept from readers"), "{said}");
    assert_eq!(server.ask("GET", "/bucket/1000", b"").0, 200);
    assert_eq!(server.ask("PUT", "/bucket/2000", b"again").0, 200);
    server.stop();
    place.run("scrub store").ok();
    place.run("scrub nowhere").fails(7, &["nowhere"]);
    assert!(!place.path("nowhere").exists(), "nothing is made");
}

#[test]
fn a_server_scrubs_itself() {
    let place = Place::new();
    let server = Server::start(&place, "--pack 0");
    assert_eq!(server.ask("PUT", "/bucket", b"").0, 200);
    assert_eq!(server.ask("PUT", "/bucket/key", &[7; 5000]).0, 200);
    server.stop();
    flip(&place, 5000);
    let server = Server::start(&place, "--scrub-every 300ms --scrub-rate 1M");
    let until = Instant::now() + Duration::from_secs(20);
    while server.ask("GET", "/bucket/key", b"").0 == 200 {
        assert!(Instant::now() < until, "it is not found");
        std::thread::sleep(Duration::from_millis(50));
    }
    while !place.path("store/scrubbed").exists() {
        assert!(Instant::now() < until, "the pass does not end");
        std::thread::sleep(Duration::from_millis(50));
    }
    server.stop();
    // The next scrub is not due yet.
    let server = Server::start(&place, "--pack 0 --scrub-every 7d");
    assert_eq!(server.ask("PUT", "/bucket/key", &[7; 5000]).0, 200);
    flip(&place, 5000);
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(server.ask("GET", "/bucket/key", b"").0, 200);
    server.stop();
}

#[test]
fn a_scrub_that_is_interrupted_says_so() {
    let place = Place::new();
    let server = Server::start(&place, "");
    assert_eq!(server.ask("PUT", "/bucket", b"").0, 200);
    assert_eq!(server.ask("PUT", "/bucket/key", &[7; 1 << 20]).0, 200);
    server.stop();
    let child = place.dcs("scrub store --rate 10K").spawn().unwrap();
    let until = Instant::now() + Duration::from_secs(20);
    while !handles_interrupts(child.id()) {
        assert!(Instant::now() < until, "it does not begin");
        std::thread::sleep(Duration::from_millis(20));
    }
    let killed = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(killed.unwrap().success());
    crate::run::Done(child.wait_with_output().unwrap()).fails(130, &["interrupted after 0 objects"]);
    place.run("scrub store").ok();
}

/// Returns true if a process has its own handler for SIGINT (proc(5), `SigCgt`).
fn handles_interrupts(process: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
    u64::from_str_radix(caught.trim(), 16).unwrap() & 1 << (nix::sys::signal::Signal::SIGINT as u32 - 1) != 0
}

#[test]
fn a_damaged_record_is_told_of_and_repaired_and_keys_do_nothing_to_a_terminal() {
    let place = Place::new();
    let server = Server::start(&place, "--pack 0");
    assert_eq!(server.ask("PUT", "/bucket", b"").0, 200);
    for key in ["good", "evil%1b%5b2J", "broken"] {
        assert_eq!(server.ask("PUT", &format!("/bucket/{key}"), &[b'x'; 5000]).0, 200);
    }
    let tag = "<Tag><Key>t</Key><Value>as-nothing-else-is</Value></Tag>";
    let tagging = format!("<Tagging><TagSet>{tag}</TagSet></Tagging>");
    assert_eq!(server.ask("PUT", "/bucket/broken?tagging", tagging.as_bytes()).0, 200);
    server.stop();
    let path = place.path("store/meta.redb");
    let mut bytes = std::fs::read(&path).unwrap();
    let pattern = b"as-nothing-else-is";
    let places: Vec<_> = (0..bytes.len()).filter(|at| bytes[*at..].starts_with(pattern)).collect();
    places.iter().for_each(|place| bytes[*place] ^= 1);
    std::fs::write(&path, bytes).unwrap();
    let evil = place.path("store/data/0").read_dir().unwrap().map(|file| file.unwrap().path());
    let mut files: Vec<_> = evil.collect();
    files.sort();
    std::fs::write(&files[1], [b'y'; 5000]).unwrap();
    let done = place.run("scrub store");
    assert_eq!(done.code(), 5);
    let said = done.stdout() + &done.stderr();
    assert!(said.contains("damaged  bucket/evil\\u{1b}[2J") && !said.contains('\x1b'), "{said}");
    assert!(
        said.contains("damaged  bucket/broken: damaged: the record") && said.contains("--repair"),
        "{said}"
    );
    let told = place.run("scrub store --repair --dry-run");
    assert!(told.stdout().contains("unreadable  bucket/broken"), "{}", told.stdout());
    let done = place.run("scrub store --repair");
    let said = done.stdout() + &done.stderr();
    assert!(said.contains("unreadable  bucket/broken") && said.contains("records of 1 objects"), "{said}");
    assert!(said.contains("1 data files and 0 small objects' data without a record"), "{said}");
    let done = place.run("scrub store");
    assert!(!done.stdout().contains("broken"), "{}", done.stdout());
    assert_eq!(std::fs::read_dir(place.path("store/data/0")).unwrap().count(), 2);
}
