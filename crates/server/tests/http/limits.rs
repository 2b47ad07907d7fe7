//! Limits: clients that are slow, silent, or one too many.

use crate::rig::{Client, Rig, Setting};
use crate::signer::signer;
use dcs_server::access::Anonymous;
use dcs_testkit::bytes as data;
use std::io::{Read, Write};
use std::time::{Duration, Instant};

const MIB: usize = 1 << 20;

#[test]
fn one_connection_too_many_waits_for_its_place() {
    let rig = Rig::with(Setting { connections: 2, ..Setting::default() });
    // Both are at a request, so neither gives way.
    let (mut first, mut second) = (rig.client(), rig.client());
    for client in [&mut first, &mut second] {
        client.send_head("PUT", "/bucket/key", &[("Expect", "100-continue")], 2);
        assert_eq!(client.head().status, 100);
        client.stream.write_all(b"1").unwrap();
    }
    let mut third = rig.client();
    third.send_head("HEAD", "/bucket", &[], 0);
    third.stream.set_read_timeout(Some(Duration::from_millis(1500))).unwrap();
    assert!(third.stream.peek(&mut [0]).is_err(), "it is not served yet");
    first.stream.write_all(b"2").unwrap();
    assert_eq!(first.answer("PUT").status, 200);
    third.stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    assert_eq!(third.answer("HEAD").status, 200, "the first one waits for a request, and has given way");
    second.stream.write_all(b"2").unwrap();
    assert_eq!(second.answer("PUT").status, 200);
}

#[test]
fn who_may_nothing_and_takes_no_answer_keeps_nobody_out() {
    // Longer than an honest client waits here.
    let head_timeout = Duration::from_secs(60);
    let anonymous = Anonymous::Nothing;
    let rig = Rig::with(Setting { connections: 2, head_timeout, anonymous, ..Setting::default() });
    let strangers: Vec<_> = (0..2).map(|_| rig.client()).collect();
    std::thread::scope(|scope| {
        for stranger in &strangers {
            scope.spawn(|| flood(stranger, "/bucket/key"));
        }
    });
    let made = signer("tester").ask(&mut rig.client(), "PUT", "/bucket", &[], b"");
    assert_eq!(made.status, 200, "{}", made.text());
}

/// Requests it again and again until the server takes no more requests, because it waits for its answers to be taken.
fn flood(client: &Client, target: &str) {
    let requests = format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n").repeat(100);
    client.stream.set_write_timeout(Some(Duration::from_secs(2))).unwrap();
    while (&client.stream).write(requests.as_bytes()).is_ok() {}
}

#[test]
fn readers_who_take_nothing_keep_nobody_out() {
    // Longer than an honest client waits here; a sixth of it is not.
    let long = Duration::from_secs(60);
    let rig = Rig::with(Setting { connections: 4, head_timeout: long, patience: long, ..Setting::default() });
    let mut client = rig.client();
    assert_eq!(client.ask("PUT", "/bucket/big", &[], &data(64 * MIB, 5)).status, 200);
    for number in 0..20 {
        let target = format!("/bucket/{}{number}", "long".repeat(200));
        assert_eq!(client.ask("PUT", &target, &[], b"").status, 200);
    }
    drop(client);
    let mut reader = rig.client();
    reader.send_head("GET", "/bucket/big", &[], 0);
    assert_eq!(reader.head().status, 200, "the engine is at it");
    let silent = [rig.client(), rig.client(), rig.client()];
    std::thread::scope(|scope| {
        for (client, target) in silent.iter().zip(["/bucket", "/bucket?list-type=2", "/bucket/none"]) {
            scope.spawn(move || flood(client, target));
        }
    });
    assert_eq!(rig.client().ask("HEAD", "/bucket/big", &[], b"").status, 200);
}

#[test]
fn who_says_nothing_is_let_go() {
    let rig = Rig::with(Setting { idle: Duration::from_secs(1), ..Setting::default() });
    let begun = Instant::now();
    let mut silent = rig.client();
    assert!(silent.ended());
    assert!(begun.elapsed() >= Duration::from_millis(950));
    let mut kept = rig.client();
    assert_eq!(kept.ask("HEAD", "/bucket", &[], b"").status, 200);
    assert!(kept.ended(), "after a request too");
}

#[test]
fn a_head_has_to_come_whole() {
    // The rig sets this to two seconds.
    let rig = Rig::new();
    let begun = Instant::now();
    let mut slow = rig.client();
    slow.stream.write_all(b"GET /bucket HTTP/1.1\r\nHost: ").unwrap();
    assert!(slow.ended());
    let took = begun.elapsed();
    assert!(took > Duration::from_millis(1500) && took < Duration::from_secs(15), "{took:?}");
}

#[test]
fn who_moves_data_too_slowly_is_given_up() {
    let patience = Duration::from_secs(6);
    let rig = Rig::with(Setting { min_rate: 1 << 30, patience, ..Setting::default() });
    let body = data(64 * MIB, 5);
    let mut client = rig.client();
    assert_eq!(client.ask("PUT", "/bucket/big", &[], &body).status, 200);
    let begun = Instant::now();
    let mut reader = rig.client();
    reader.send_head("GET", "/bucket/big", &[], 0);
    let mut writer = rig.client();
    writer.send_head("PUT", "/bucket/slow", &[], MIB);
    // A byte now and then is not progress.
    let mut stream = writer.stream.try_clone().unwrap();
    let drip = std::thread::spawn(move || {
        for _ in 0..400 {
            if stream.write_all(b"x").is_err() {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    });
    writer.stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut answer = Vec::new();
    let _ = writer.stream.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.is_empty() || !answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(begun.elapsed() >= Duration::from_secs(5), "{answer}");
    drip.join().unwrap();
    // A reader that did not read gets only what the kernel holds.
    let mut got = Vec::new();
    let _ = reader.stream.read_to_end(&mut got);
    assert!(got.len() < body.len(), "{}", got.len());
    assert!(begun.elapsed() < Duration::from_secs(120));
    // The others are served.
    assert_eq!(rig.client().ask("HEAD", "/bucket/big", &[], b"").status, 200);
    assert!(rig.store.object("bucket", "slow").unwrap().is_none());
    rig.has_files(&[body.len() as u64]);
}
