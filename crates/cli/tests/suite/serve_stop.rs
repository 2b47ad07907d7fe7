//! The stop of `dcs serve`.

use crate::run::Place;
use crate::serve_log::Logged;
use nix::sys::signal::Signal;
use std::io::{Read, Write};
use std::net::TcpStream;

/// Sends a request, and reads up to the end of the answer's head.
fn ask(client: &mut TcpStream, head: &str) -> String {
    write!(client, "{head}\r\nHost: h\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        client.read_exact(&mut byte).unwrap();
        answer.push(byte[0]);
    }
    String::from_utf8(answer).unwrap()
}

#[test]
fn a_second_signal_does_not_wait_for_answers_under_way() {
    for (signal, cores) in
        [(Signal::SIGTERM, 1), (Signal::SIGINT, 1), (Signal::SIGTERM, 2), (Signal::SIGINT, 2)]
    {
        let place = Place::new();
        // Later it would end normally.
        let options = format!("--anonymous all --patience 1h --grace 60s --cores {cores}");
        let mut server = Logged::start(&place, &options);
        let mut client = TcpStream::connect(&server.address).unwrap();
        assert!(ask(&mut client, "PUT /bucket HTTP/1.1").starts_with("HTTP/1.1 200 "));
        let put = "PUT /bucket/key HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 10";
        assert!(ask(&mut client, put).starts_with("HTTP/1.1 100 "), "it is at the request");
        client.write_all(b"12345").unwrap();
        server.signal(signal);
        server.says("stopping: answers under way are finished first");
        server.signal(signal);
        assert_eq!(server.child.wait().unwrap().code(), Some(130), "{signal}, {cores}");
    }
}
