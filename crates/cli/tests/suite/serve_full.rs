//! `dcs serve` on a disk that fills up: clients get an error, existing objects stay, and once there is room it goes on.

use crate::run::Place;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

const OBJECT: usize = 3 << 20;

struct Client(String);

impl Client {
    fn ask(&self, method: &str, target: &str, body: &[u8]) -> (u16, Vec<u8>) {
        let mut stream = TcpStream::connect(&self.0).unwrap();
        let length = body.len();
        let head = format!(
            "{method} {target} HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        // A server that refuses the body may end the connection.
        let _ = stream.write_all(body);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let end = answer.windows(4).position(|four| four == b"\r\n\r\n").expect("an answer");
        let status = std::str::from_utf8(&answer[9..12]).unwrap().parse().unwrap();
        (status, answer.split_off(end + 4))
    }

    fn put(&self, number: usize) -> (u16, String) {
        let (status, said) = self.ask("PUT", &format!("/bucket/{number}"), &vec![number as u8; OBJECT]);
        (status, String::from_utf8_lossy(&said).into_owned())
    }
}

/// Starts a server on a disk of 64 MiB, half of which it keeps free, with a bucket; `None` if no file system may be
/// mounted.
fn on_a_small_disk(place: &Place) -> Option<(Child, Client)> {
    std::fs::create_dir(place.path("small")).unwrap();
    // A mount of the process's own, which goes away with it.
    let script = "mount -t tmpfs -o size=64m none small && exec \"$@\"";
    let unshared = |command: &[&str]| {
        let mut unshare = Command::new("unshare");
        unshare.args(["-m", "sh", "-c", script, "sh"]).args(command).current_dir(place.path(""));
        unshare
    };
    let may = unshared(&["true"]).output();
    if !may.as_ref().is_ok_and(|output| output.status.success()) {
        println!("skipped: no file system may be mounted here: {may:?}");
        return None;
    }
    let line = ["serve", "small/store", "--listen", "127.0.0.1:0", "--anonymous", "all", "--verify"];
    let command: Vec<&str> = [env!("CARGO_BIN_EXE_dcs")].into_iter().chain(line).collect();
    let mut server = unshared(&command).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
    let address = lines.find_map(|line| Some(line.ok()?.split_once("http://")?.1.to_string()));
    let client = Client(address.unwrap());
    assert_eq!(client.ask("PUT", "/bucket", b"").0, 200);
    Some((server, client))
}

#[test]
fn a_body_for_which_there_is_no_room_is_refused_before_it_is_read() {
    let place = Place::new();
    let Some((mut server, client)) = on_a_small_disk(&place) else { return };
    for expect in ["", "Expect: 100-continue\r\n"] {
        let mut stream = TcpStream::connect(&client.0).unwrap();
        let head =
            format!("PUT /bucket/key HTTP/1.1\r\nHost: h\r\n{expect}Content-Length: {}\r\n\r\n", 40 << 20);
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 507 ") && answer.contains("StorageFull"), "{expect}{answer}");
    }
    assert_eq!(client.put(0).0, 200, "what there is room for is taken");
    server.kill().unwrap();
    server.wait().unwrap();
}

#[test]
fn a_full_disk_is_said_and_loses_nothing() {
    let place = Place::new();
    let Some((mut server, client)) = on_a_small_disk(&place) else { return };
    let mut there = 0;
    let (status, said) = loop {
        match client.put(there) {
            (200, _) => there += 1,
            refused => break refused,
        }
        assert!(there * OBJECT < 64 << 20, "more than there is room for");
    };
    assert!(status == 507 && said.contains("StorageFull"), "{status} {said}");
    assert!(there >= 5, "{there}");
    // Health tells a load balancer, once there is no room for small objects either.
    let ballast = (there..).take_while(|number| {
        client.ask("PUT", &format!("/bucket/small{number}"), &vec![0; 100 << 10]).0 == 200
    });
    assert!(ballast.count() < OBJECT / (100 << 10) + 64, "more than there is room for");
    let (status, said) = client.ask("GET", "/_dcs/health", b"");
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(status == 503 && said.contains("the file system is full"), "{status} {said}");
    // Overwriting needs room before it frees some; the old object stays.
    let (status, said) = client.put(0);
    assert_eq!(status, 507, "{said}");
    let all_there = |numbers: std::ops::Range<usize>| {
        for number in numbers {
            let (status, body) = client.ask("GET", &format!("/bucket/{number}"), b"");
            assert!(status == 200 && body == vec![number as u8; OBJECT], "{number}: {status}");
        }
    };
    all_there(0..there);
    for number in 0..3 {
        assert_eq!(client.ask("DELETE", &format!("/bucket/{number}"), b"").0, 204);
    }
    // The files are removed a little later.
    let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while client.put(0).0 != 200 {
        assert!(std::time::Instant::now() < until, "with room again it goes on");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert_eq!(client.ask("GET", "/_dcs/health", b"").0, 200);
    all_there(0..1);
    all_there(3..there);
    server.kill().unwrap();
    server.wait().unwrap();
}
