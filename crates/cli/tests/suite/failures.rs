//! Bad input, and its results: exit code, one line, no half file.

use crate::run::{Place, data, feed};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

/// Failures: the command, its exit code, and its message.
#[test]
fn each_mistake_has_its_code_and_its_words() {
    let place = Place::new();
    place.write("a", &data(300_000));
    place.write("text", b"this is no gzip file, and long enough to be sure");
    std::fs::create_dir(place.path("folder")).unwrap();
    let nine = ["md5"; 9].join(",");
    let long = format!("copy a b --through {nine}");
    for (line, code, words) in [
        ("copy absent b", 7, &["absent", "No such file"][..]),
        ("send absent 127.0.0.1:1", 7, &["absent"]),
        ("copy a nowhere/b", 7, &["nowhere/b"]),
        ("copy a /sys/kernel/dcs-test", 6, &["/sys/kernel/dcs-test"]),
        ("copy folder b", 2, &["folder"]),
        ("recv 0 folder", 2, &["folder"]),
        ("send a 127.0.0.1:1", 3, &["127.0.0.1:1", "refused", "dcs recv"]),
        ("send a unix:absent", 7, &["unix:absent"]),
        ("send a nonsense", 2, &["nonsense", "HOST:PORT"]),
        ("copy a b --through md6", 2, &["md6", "aes256-ctr"]),
        ("copy a b --through gzip:10", 2, &["gzip", "level 10", "0 to 9"]),
        ("copy a b --through md5:1", 2, &["md5", "no other parameters"]),
        ("copy a b --through grep", 2, &["grep needs a pattern"]),
        ("copy a b --through grep:a{1,3}", 2, &["operator \"3}\"", "\\,"]),
        ("copy a b --through grep:-x:a", 2, &["no option 'x'"]),
        ("copy a b --through grep:(", 2, &["unclosed group"]),
        ("copy a b --through filter:price", 2, &["filter", "COLUMN"]),
        ("copy a b --through aggregate:median(a)", 2, &["median(a)", "sum(COLUMN)"]),
        ("copy text b --through aggregate:sum(price)", 5, &["operator 1 (aggregate)"]),
        ("copy a b --through slice:1", 2, &["slice", "SKIP:TAKE"]),
        ("copy a b --through slice:1:99999999", 5, &["operator 1 (slice)"]),
        ("copy a b --through crc32=00000000", 5, &["operator 1 (crc32)", "not the expected one"]),
        ("copy a b --through aws-chunked", 2, &["aws-chunked", "length"]),
        ("copy a b --through aws-chunked:5:md5", 2, &["md5", "CHECKSUM"]),
        ("copy a b --through aws-chunked:5", 5, &["operator 1 (aws-chunked)", "framing"]),
        ("copy a b --through aes256-xts:100", 2, &["aes256-xts"]),
        (&long, 2, &["9 operators", "at most 8"]),
        ("send a - --offset 300001", 2, &["beyond", "300000"]),
        ("send a - --offset 1 --length 300000", 2, &["beyond", "300000"]),
        ("copy text b --through gunzip", 5, &["operator 1 (gunzip)", "0 bytes had been delivered"]),
        ("copy a /dev/full", 4, &["destination", "bytes had been delivered", "room"]),
        ("copy a /dev/full --through md5,gzip:0", 4, &["destination"]),
        ("recv 0 b --accept-timeout 50ms", 8, &["no connection"]),
        ("recv 203.0.113.77:0 b", 3, &["203.0.113.77"]),
    ] {
        let done = place.run(line);
        if line.contains("xts:100") {
            assert_eq!(done.code(), 2, "{}", done.stderr());
        } else {
            done.fails(code, words);
        }
        assert_eq!(place.names(), ["a", "folder", "text"], "{line}");
    }
}

#[test]
fn errors_are_json_too() {
    let place = Place::new();
    place.write("a", &data(300_000));
    let error = place.run("copy a /dev/full --through md5 --json").json();
    assert_eq!(error["ok"], false);
    assert_eq!(error["exit"], 4);
    assert_eq!(error["stage"], "destination");
    assert_eq!(error["status"], "CAPACITY_EXCEEDED");
    assert_eq!(error["bytes_out"], 0);
    assert!(error["advice"].is_string());
    let error = place.run("copy absent b --json").json();
    assert_eq!((&error["exit"], &error["event"]), (&7.into(), &"error".into()));
}

#[test]
fn a_damaged_or_cut_gzip_stream_leaves_nothing_under_the_name() {
    let place = Place::new();
    place.write("a", &data(3_000_000));
    place.write("kept", b"older");
    place.run("copy a a.gz --through gzip").ok();
    let mut bytes = place.read("a.gz");
    place.write("cut.gz", &bytes[..bytes.len() / 2]);
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x55;
    place.write("damaged.gz", &bytes);
    let names = place.names();
    for (name, words) in [("cut.gz", "unit that the operator needs"), ("damaged.gz", "gunzip")] {
        place.run(&format!("copy {name} new --through gunzip")).fails(5, &["operator 1 (gunzip)", words]);
        place.run(&format!("copy {name} kept --through gunzip")).fails(5, &["bytes had been delivered"]);
        assert_eq!(place.names(), names);
        assert_eq!(place.read("kept"), b"older");
    }
}

#[test]
fn a_peer_that_resets_is_told_with_what_it_had_taken() {
    let place = Place::new();
    place.write("a", &data(64 << 20));
    for through in ["", "--through md5"] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let sender = place.dcs(&format!("send a {address} {through} --json")).spawn().unwrap();
        let (mut peer, _) = listener.accept().unwrap();
        peer.read_exact(&mut [0; 1000]).unwrap();
        // Closed with bytes unread, so that the kernel resets the connection.
        drop(peer);
        let done = crate::run::Done(sender.wait_with_output().unwrap());
        let done = done.fails(3, &["destination", "peer", "bytes had been delivered"]);
        let delivered = done.json()["bytes_out"].as_u64().unwrap();
        assert!((1000..64 << 20).contains(&delivered), "{delivered}");
    }
}

#[test]
fn a_sender_that_resets_or_stops_early_leaves_nothing_under_the_name() {
    let place = Place::new();
    let receiver = place.recv("b --through md5", |_| ());
    let mut peer = TcpStream::connect(&receiver.address).unwrap();
    peer.write_all(&data(100_000)).unwrap();
    // Closed with no linger time, so that the connection is reset.
    let linger = nix::libc::linger { l_onoff: 1, l_linger: 0 };
    nix::sys::socket::setsockopt(&peer, nix::sys::socket::sockopt::Linger, &linger).unwrap();
    drop(peer);
    receiver.end().fails(3, &["source", "bytes had been delivered"]);
    let receiver = place.recv("b --length 200000", |_| ());
    let mut peer = TcpStream::connect(&receiver.address).unwrap();
    peer.write_all(&data(100_000)).unwrap();
    drop(peer);
    receiver.end().fails(5, &["source", "ended before", "100000 bytes had been delivered"]);
    assert!(place.names().is_empty(), "{:?}", place.names());
}

#[test]
fn a_peer_that_does_not_read_times_out() {
    let place = Place::new();
    place.write("a", &data(64 << 20));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    for through in ["", "--through crc32"] {
        let line = format!("send a {address} {through} --timeout 300ms");
        place.run(&line).fails(8, &["time", "bytes had been delivered"]);
    }
}

#[test]
fn a_reader_that_left_is_a_peer_that_left() {
    let place = Place::new();
    let mut child = place.dcs("copy /dev/zero - --through crc32").spawn().unwrap();
    child.stdout.as_mut().unwrap().read_exact(&mut [0; 100]).unwrap();
    drop(child.stdout.take());
    crate::run::Done(child.wait_with_output().unwrap()).fails(3, &["destination"]);
}

#[test]
fn a_stream_has_no_offset_and_a_short_one_is_told() {
    let place = Place::new();
    feed(place.dcs("send - - --offset 3"), b"abcdef").fails(2, &["stream"]);
    let done = feed(place.dcs("send - - --length 7"), b"abcdef").fails(5, &["source"]);
    assert_eq!(done.stdout(), "abcdef");
}
