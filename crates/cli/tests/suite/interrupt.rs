//! Ctrl-C.

use crate::run::{Done, Place, data};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::{Child, Stdio};

fn interrupt(child: &Child, signal: Signal) {
    kill(Pid::from_raw(child.id() as i32), signal).unwrap();
}

#[test]
fn it_cancels_the_transfer_and_says_what_was_delivered() {
    let place = Place::new();
    place.write("a", &data(64 << 20));
    for (signal, through) in [(Signal::SIGINT, "--through md5"), (Signal::SIGTERM, "")] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let sender = place.dcs(&format!("send a {address} {through} --json")).spawn().unwrap();
        let (mut peer, _) = listener.accept().unwrap();
        peer.read_exact(&mut [0; 5000]).unwrap();
        interrupt(&sender, signal);
        let done = Done(sender.wait_with_output().unwrap());
        let done = done.fails(130, &["interrupted", "bytes had been delivered"]);
        let delivered = done.json()["bytes_out"].as_u64().unwrap();
        let mut rest = Vec::new();
        let end = peer.read_to_end(&mut rest).unwrap_err();
        assert_eq!(end.kind(), std::io::ErrorKind::ConnectionReset, "no end as after success");
        let arrived = rest.len() as u64 + 5000;
        assert!(arrived <= delivered, "{arrived} arrived, {delivered} were taken by the kernel");
        assert!(data(64 << 20)[5000..].starts_with(&rest));
    }
}

#[test]
fn it_leaves_no_half_file() {
    let place = Place::new();
    place.write("b", b"older");
    let mut child = place.dcs("copy - b --through md5").stdin(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(&data(1 << 20)).unwrap();
    while place.names().len() < 2 {
        std::thread::yield_now();
    }
    interrupt(&child, Signal::SIGINT);
    Done(child.wait_with_output().unwrap()).fails(130, &["interrupted"]);
    assert_eq!(place.read("b"), b"older");
    assert_eq!(place.names(), ["b"]);
}

#[test]
fn it_ends_a_receiver_that_nobody_connects_to() {
    let place = Place::new();
    let child = place.dcs("recv unix:socket b").spawn().unwrap();
    while !place.path("socket").exists() {
        std::thread::yield_now();
    }
    interrupt(&child, Signal::SIGINT);
    let done = Done(child.wait_with_output().unwrap());
    assert_eq!(done.code(), 130, "{}", done.stderr());
    assert!(place.names().is_empty(), "{:?}", place.names());
}
