//! `dcs send` and `dcs recv`.

use crate::run::{IV, KEY, KEY_XTS, Place, Receiver, data, feed};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;

const SIZE: usize = 2_000_003;

fn receive(place: &Place, through: &str, key: &str, rest: &str) -> Receiver {
    let through = if through.is_empty() { String::new() } else { format!("--through {through}") };
    place.recv(&format!("b {through} {rest}"), |command| {
        command.env("DCS_KEY", key);
    })
}

#[test]
fn every_operator_there_and_its_inverse_back_gives_the_file() {
    let iv = format!("--iv {IV}");
    let pairs = [
        ("", "", "", ""),
        ("md5", "md5", "", ""),
        ("sha1,sha256,sha512", "crc32,crc32c,crc64-nvme", "", ""),
        ("aes256-ctr", "aes256-ctr", KEY, iv.as_str()),
        ("aes256-xts", "aes256-xts-decrypt", KEY_XTS, ""),
        ("aes256-xts:512:7", "aes256-xts-decrypt:512:7", KEY_XTS, ""),
        ("gzip", "gunzip", "", ""),
        ("zstd:3", "unzstd", "", ""),
        ("md5,gzip:6,aes256-ctr,sha256", "sha256,aes256-ctr,gunzip,md5", KEY, iv.as_str()),
    ];
    for (there, back, key, iv) in pairs {
        let place = Place::new();
        place.write("a", &data(SIZE));
        let receiver = receive(&place, back, key, iv);
        let through = if there.is_empty() { String::new() } else { format!("--through {there}") };
        let mut send = place.dcs(&format!("send a {} {through} {iv} --json", receiver.address));
        let sent = crate::run::Done(send.env("DCS_KEY", key).output().unwrap()).ok();
        let received = receiver.end().ok();
        assert!(place.read("b") == data(SIZE), "{there}");
        assert_eq!(sent.json()["bytes_in"], SIZE);
        assert_eq!(received.json()["bytes_out"], SIZE);
        assert_eq!(sent.json()["bytes_out"], received.json()["bytes_in"]);
        if there.starts_with("md5") {
            assert_eq!(sent.digests()[0], *received.digests().last().unwrap(), "{there}");
        }
    }
}

#[test]
fn a_range_of_a_file_is_sent() {
    let place = Place::new();
    let bytes = data(SIZE);
    place.write("a", &bytes);
    for (options, range) in [
        ("--offset 1000 --length 64KiB", 1000..1000 + 65536),
        ("--offset 1999999", 1_999_999..SIZE),
        ("--length 1", 0..1),
        ("--offset 2000003", SIZE..SIZE),
    ] {
        let receiver = receive(&place, "", "", "");
        place.run(&format!("send a {} {options}", receiver.address)).ok();
        receiver.end().ok();
        assert!(place.read("b") == bytes[range], "{options}");
    }
}

#[test]
fn standard_input_goes_to_a_socket_and_a_socket_to_standard_output() {
    let place = Place::new();
    let receiver = place.dcs("recv unix:socket - --through md5").spawn().unwrap();
    while !place.path("socket").exists() {
        std::thread::yield_now();
    }
    // Both at once: the receiver's output must be read for the sender to go on.
    let received = std::thread::scope(|scope| {
        scope.spawn(|| feed(place.dcs("send - unix:socket --through crc32"), &data(SIZE)).ok());
        crate::run::Done(receiver.wait_with_output().unwrap()).ok()
    });
    assert!(received.0.stdout == data(SIZE));
    assert!(received.stderr().contains("md5  "), "{}", received.stderr());
    assert!(!place.path("socket").exists(), "the socket's file is removed");
}

#[test]
fn a_fifo_is_an_input() {
    let place = Place::new();
    let fifo = place.path("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let receiver = receive(&place, "", "", "");
    let sender = place.dcs(&format!("send fifo {} --length 500000", receiver.address)).spawn().unwrap();
    let mut file = std::fs::File::options().write(true).open(fifo).unwrap();
    file.write_all(&data(600_000)[..550_000]).ok();
    crate::run::Done(sender.wait_with_output().unwrap()).ok();
    receiver.end().ok();
    assert!(place.read("b") == data(600_000)[..500_000]);
}

#[test]
fn a_receiver_takes_so_many_bytes_and_leaves_the_rest() {
    let place = Place::new();
    let receiver = receive(&place, "sha1", "", "--length 3");
    let mut peer = TcpStream::connect(&receiver.address).unwrap();
    peer.write_all(b"abc").unwrap();
    // The connection stays open: the length alone ends it.
    assert_eq!(receiver.end().ok().digests(), ["a9993e364706816aba3e25717850c26c9cd0d89d"]);
    assert_eq!(place.read("b"), b"abc");
}

#[test]
fn anybody_can_be_the_peer() {
    let place = Place::new();
    place.write("a", b"hello");
    let listener = std::os::unix::net::UnixListener::bind(place.path("socket")).unwrap();
    let sender = place.dcs("send a unix:socket").spawn().unwrap();
    let (mut peer, _): (UnixStream, _) = listener.accept().unwrap();
    let mut heard = String::new();
    peer.read_to_string(&mut heard).unwrap();
    assert_eq!(heard, "hello");
    crate::run::Done(sender.wait_with_output().unwrap()).ok();
}

#[test]
fn what_is_expected_is_checked_before_the_file_appears() {
    let place = Place::new();
    place.write("a", b"abc");
    place.write("b", b"what was there");
    let right = "900150983cd24fb0d6963f7d28e17f72";
    let wrong = "900150983cd24fb0d6963f7d28e17f73";
    let receiver = receive(&place, "md5", "", &format!("--expect md5={wrong}"));
    place.run(&format!("send a {}", receiver.address)).ok();
    receiver.end().fails(5, &["md5 is", right, "expected", wrong, "not put in place"]);
    assert_eq!(place.read("b"), b"what was there");
    assert_eq!(place.names(), ["a", "b"]);
    let receiver = receive(&place, "md5", "", &format!("--expect md5={right}"));
    place.run(&format!("send a {}", receiver.address)).ok();
    receiver.end().ok();
    assert_eq!(place.read("b"), b"abc");
    place.run("copy a c --through md5 --expect sha1=00").fails(2, &["--expect"]);
    place.run(&format!("copy a c --expect md5={right}")).fails(2, &["no such md5"]);
    place.run(&format!("copy a c --through md5 --expect md5={wrong}")).fails(5, &[]);
    assert_eq!(place.names(), ["a", "b"]);
}
