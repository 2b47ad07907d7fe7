//! Tests of the load generator against a small server with known contents, and of the shape of results.

use super::contender::Contender;
use super::figures::{Runs, rows};
use super::http;
use super::load::measure;
use super::measure::Scenario;
use super::objects::{Objects, key};
use super::options::Job;
use super::programs::Programs;
use super::protocol::{Load, Measured, Pace, Request};
use super::request::Writer;
use crate::harness::figures::Marks;
use crate::harness::load::Setting;
use crate::harness::pool::Pool;
use crate::harness::shown::object;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Mutex;
use std::time::{Duration, Instant};

const SIZE: u64 = 300_007;

/// An error of the small server.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    None,
    Status,
    Length,
    Etag,
    Cut,
    Closes,
}

/// A small server, and the data put into it.
struct Small {
    address: String,
    put: &'static Mutex<Vec<Vec<u8>>>,
}

/// Serves until the test ends: its threads wait for connections or requests.
fn serve(objects: &'static Objects, fault: Fault) -> Small {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let put: &'static Mutex<Vec<Vec<u8>>> = Box::leak(Box::default());
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            std::thread::spawn(
                move || while answer(socket.as_ref().unwrap(), objects, put, fault).is_some() {},
            );
        }
    });
    Small { address, put }
}

/// Answers one request. `None`: the connection has ended.
fn answer(mut socket: &TcpStream, objects: &Objects, put: &Mutex<Vec<Vec<u8>>>, fault: Fault) -> Option<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        socket.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    let number = (0..objects.count()).find(|number| head.contains(&format!("/{}?", key(*number)))).unwrap();
    let is_put = head.starts_with("PUT ");
    if is_put {
        let mut bytes = vec![0; SIZE as usize];
        socket.read_exact(&mut bytes).ok()?;
        put.lock().unwrap().push(bytes);
    }
    let body = if is_put { &[][..] } else { objects.bytes(number) };
    let status = if fault == Fault::Status { "503 Slow Down" } else { "200 OK" };
    let etag = if fault == Fault::Etag { "0" } else { objects.etag(number) };
    let length = body.len() + usize::from(fault == Fault::Length);
    let closes = if fault == Fault::Closes { "Connection: close\r\n" } else { "" };
    let head = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nETag: \"{etag}\"\r\n{closes}\r\n");
    socket.write_all(head.as_bytes()).ok()?;
    let body = if fault == Fault::Cut { &body[..body.len() / 2] } else { body };
    socket.write_all(body).ok()?;
    (fault != Fault::Cut).then_some(())
}

fn objects(folder: &tempfile::TempDir) -> &'static Objects {
    Box::leak(Box::new(Objects::new(folder.path(), SIZE, 5).unwrap()))
}

fn load(objects: &Objects, address: &str, job: Job, limit: Option<u64>) -> Load {
    let writer = Writer::new(address, Contender::Minio).unwrap();
    let request = |number: usize| Request {
        head: match job {
            Job::Put => writer.put(&key(number), SIZE),
            Job::Get => writer.get(&key(number)),
        },
        put: (job == Job::Put).then(|| Pool::offset(number)),
        etag: Some(objects.etag(number).to_string()),
    };
    Load {
        address: address.to_string(),
        clients: 3,
        requests: (0..objects.count()).map(request).collect(),
        size: SIZE,
        pool: objects.pool.path.clone(),
        pace: Pace::Full,
        warm_s: 0.0,
        measure_s: 0.05,
        limit,
        server_pid: std::process::id(),
        cores: vec![0, 1],
    }
}

#[test]
fn so_many_requests_move_so_many_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let objects = objects(&folder);
    for job in [Job::Get, Job::Put] {
        let small = serve(objects, Fault::None);
        let measured = measure(&load(objects, &small.address, job, Some(40))).unwrap();
        assert_eq!((measured.requests, measured.marks.bytes), (40, 40 * SIZE), "{job:?}");
        assert!(measured.marks.wall_s > 0.0 && measured.marks.server_cpu_s > 0.0);
        assert!(measured.latency_ms.len() <= 40 && measured.latency_ms.is_sorted());
        let put = small.put.lock().unwrap();
        assert_eq!(put.len(), if job == Job::Put { 40 } else { 0 });
        for (number, bytes) in put.iter().enumerate() {
            let known = (0..objects.count()).any(|object| bytes == objects.bytes(object));
            assert!(known, "what came with PUT {number} is one of the objects");
        }
    }
}

#[test]
fn a_time_is_kept_and_prolonged_until_all_have_had_two() {
    let folder = tempfile::tempdir().unwrap();
    let objects = objects(&folder);
    let small = serve(objects, Fault::None);
    let mut load = load(objects, &small.address, Job::Get, None);
    (load.warm_s, load.measure_s) = (0.05, 0.2);
    let measured = measure(&load).unwrap();
    assert!(measured.marks.wall_s >= 0.2 && measured.requests >= 6, "{measured:?}");
    load.measure_s = 0.05;
    load.pace = Pace::Slow { object_s: 0.2 };
    let measured = measure(&load).unwrap();
    assert!(measured.marks.wall_s >= 0.3, "two objects in 0.2 s each: {}", measured.marks.wall_s);
    assert!(measured.latency_ms.iter().all(|ms| *ms >= 199.0), "{:?}", measured.latency_ms);
}

#[test]
fn what_is_wrong_is_no_result() {
    let folder = tempfile::tempdir().unwrap();
    let objects = objects(&folder);
    for (fault, words) in [
        (Fault::Status, "status 503"),
        (Fault::Length, "300007"),
        (Fault::Etag, "ETag"),
        (Fault::Cut, "closed the connection"),
        (Fault::Closes, "keep"),
    ] {
        let small = serve(objects, fault);
        let error = measure(&load(objects, &small.address, Job::Get, Some(10))).unwrap_err();
        assert!(error.to_string().contains(words), "{fault:?}: {error}");
    }
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    assert!(measure(&load(objects, &nobody, Job::Get, Some(1))).is_err());
}

#[test]
fn one_that_asks_gets_the_whole_answer() {
    let folder = tempfile::tempdir().unwrap();
    let objects = objects(&folder);
    let small = serve(objects, Fault::None);
    let writer = Writer::new(&small.address, Contender::Minio).unwrap();
    let mut peer = http::Peer::new(&small.address);
    for number in [0, 3, 0] {
        let answer = peer.ask(&writer.get(&key(number)), &[]).unwrap();
        assert_eq!(objects.fault(number, &answer.body, answer.head.etag.as_deref()), None);
        assert_eq!(
            peer.ask(&writer.put(&key(number), SIZE), objects.bytes(number)).unwrap().head.status,
            200
        );
    }
    let cut = serve(objects, Fault::Cut);
    let begun = Instant::now();
    assert!(
        http::Peer::new(&cut.address)
            .ask(&Writer::new(&cut.address, Contender::Minio).unwrap().get(&key(1)), &[])
            .is_err()
    );
    assert!(begun.elapsed() < Duration::from_secs(20));
}

#[test]
fn rows_have_medians_and_ratios_of_pairs() {
    let folder = tempfile::tempdir().unwrap();
    let objects = Objects::new(folder.path(), 1 << 20, 1).unwrap();
    let programs = Programs::default();
    let scenario = Scenario {
        job: Job::Get,
        objects: &objects,
        clients: 8,
        setting: Setting {
            cold: false,
            warm_s: 0.0,
            measure_s: 1.0,
            server_cores: vec![1],
            client_cores: vec![0],
        },
        requests: None,
        programs: &programs,
        folder: folder.path().to_path_buf(),
    };
    let run = |gib: u64, cpu_s: f64| Measured {
        marks: Marks {
            wall_s: 2.0,
            bytes: gib << 30,
            server_cpu_s: cpu_s,
            kernel_cpu_s: 0.0,
            client_cpu_s: 0.5,
        },
        requests: gib << 10,
        latency_ms: (1..=101).map(|ms| ms as f32).collect(),
        checks_signatures: true,
    };
    let runs =
        |contender, cpu_s: [f64; 3]| Runs { contender, runs: cpu_s.map(|cpu_s| run(2, cpu_s)).to_vec() };
    let all = [runs(Contender::Dcs, [1.0, 2.0, 1.5]), runs(Contender::Versitygw, [4.0, 8.0, 3.0])];
    let rows = rows(&scenario, &all);
    let row = object(&rows[0]);
    for (field, value) in [
        ("gib_per_s", 1.0),
        ("cpu_s_per_gib", 0.75),
        ("client_cpu_s_per_gib", 0.25),
        ("requests_per_s", 1024.0),
        ("p50_ms", 51.0),
        ("p99_ms", 100.0),
        ("cpu_ratio", 0.25),
        ("throughput_ratio", 1.0),
    ] {
        assert!((row[field].as_f64().unwrap() - value).abs() < 1e-9, "{field} in {row}");
    }
    assert!((row["requests_per_cpu_s"].as_f64().unwrap() - 1024.0 / 0.75).abs() < 1e-6);
    assert_eq!(row["cpu_ratio_spread"], serde_json::json!([0.25, 0.5]));
    for (field, value) in
        [("event", "measurement"), ("job", "get"), ("contender", "dcs"), ("signing", "presigned")]
    {
        assert_eq!(row[field], value);
    }
    assert_eq!(
        (row["clients"].as_u64(), row["size"].as_u64(), row["runs"].as_u64()),
        (Some(8), Some(1 << 20), Some(3))
    );
}
