//! Ends of connections: `dcs recv` knows whether `dcs send` succeeded, on TCP and on Unix sockets.

use crate::run::{Done, Place, Receiver, data, feed};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Child, Stdio};

const SIZE: usize = 3_000_017;

fn signal(child: &Child, signal: Signal) {
    kill(Pid::from_raw(child.id() as i32), signal).unwrap();
}

/// Addresses of the receiver, for both transports.
const AT: [&str; 2] = ["127.0.0.1:0", "unix:socket"];

/// Starts a `dcs recv` that listens and may replace an older file.
fn receiver(place: &Place, at: &str, options: &str) -> Receiver {
    place.write("b", b"older and good");
    place.listening(&format!("recv {at} b {options} --json"))
}

#[track_caller]
fn failed_and_kept_the_older(place: &Place, receiver: Receiver, what: &str) {
    let received = receiver.end();
    assert_eq!(received.code(), 3, "{what}: {}", received.stderr());
    assert_eq!(place.read("b"), b"older and good", "{what}");
    assert!(!place.names().iter().any(|name| name.ends_with(".part")), "{what}: {:?}", place.names());
}

/// Waits until the receiver has written some of the data.
fn until_some_arrived(place: &Place) {
    let part = || place.names().into_iter().find(|name| name.ends_with(".part"));
    while part().is_none_or(|name| std::fs::metadata(place.path(&name)).is_ok_and(|file| file.len() == 0)) {
        std::thread::yield_now();
    }
}

#[test]
fn a_sender_that_is_killed_in_the_middle_is_no_end_of_the_data() {
    for at in AT {
        for (how, options) in [
            (Signal::SIGKILL, ""),
            (Signal::SIGKILL, "--through md5"),
            (Signal::SIGKILL, "--io plain"),
            (Signal::SIGKILL, "--io plain --through md5"),
            (Signal::SIGINT, "--through md5"),
            (Signal::SIGTERM, ""),
        ] {
            let place = Place::new();
            let receiver = receiver(&place, at, options);
            let mut sender = place.dcs(&format!("send - {}", receiver.address));
            let mut sender = sender.stdin(Stdio::piped()).spawn().unwrap();
            sender.stdin.as_mut().unwrap().write_all(&data(SIZE)).unwrap();
            until_some_arrived(&place);
            signal(&sender, how);
            failed_and_kept_the_older(&place, receiver, &format!("{at} {how} {options}"));
            assert!(!sender.wait().unwrap().success());
        }
    }
}

#[test]
fn a_sender_that_fails_is_no_end_of_the_data() {
    for at in AT {
        let place = Place::new();
        place.write("plain", &data(SIZE));
        place.run("copy plain cut.gz --through gzip").ok();
        let whole = place.read("cut.gz");
        place.write("cut.gz", &whole[..whole.len() - 100]);
        let fails = |what: &str, code: i32| {
            let receiver = receiver(&place, at, "");
            assert_eq!(place.run(&format!("send {what} {}", receiver.address)).code(), code, "{at} {what}");
            failed_and_kept_the_older(&place, receiver, &format!("{at} {what}"));
        };
        fails("cut.gz --through gunzip", 5);
        fails("plain --through crc32=00000000", 5);
        let receiver = receiver(&place, at, "");
        let sender = place.dcs(&format!("send - {} --length {}", receiver.address, SIZE + 1));
        feed(sender, &data(SIZE)).fails(5, &["source"]);
        failed_and_kept_the_older(&place, receiver, &format!("{at}, a source that is cut"));
    }
}

#[test]
fn a_sender_that_runs_out_of_time_is_no_end_of_the_data() {
    for at in AT {
        let place = Place::new();
        let receiver = receiver(&place, at, "");
        let mut sender = place.dcs(&format!("send - {} --timeout 300ms", receiver.address));
        let mut sender = sender.stdin(Stdio::piped()).spawn().unwrap();
        // Kept open, as if more could follow.
        let mut input = sender.stdin.take().unwrap();
        // On a slow machine the time runs out before it has taken everything.
        let _ = input.write_all(&data(SIZE));
        assert_eq!(sender.wait().unwrap().code(), Some(8), "{at}");
        failed_and_kept_the_older(&place, receiver, at);
    }
}

/// A stopped receiver first checks when the sender is gone.
#[test]
fn a_sender_that_is_killed_before_it_was_accepted_is_no_empty_file() {
    for (at, bytes, rest) in [
        ("unix:socket", b"hello".as_slice(), false),
        ("unix:socket", b"", false),
        ("unix:socket", b"hello", true),
        ("unix:socket", b"", true),
        // The receiver has what TCP has acknowledged: only further data would make it incomplete.
        ("127.0.0.1:0", b"hello", true),
        ("127.0.0.1:0", b"", true),
    ] {
        let place = Place::new();
        let receiver = receiver(&place, at, "");
        receiver.signal(Signal::SIGSTOP);
        let mut sender = place.dcs(&format!("send - {}", receiver.address));
        let mut sender = sender.stdin(Stdio::piped()).spawn().unwrap();
        let mut input = sender.stdin.take().unwrap();
        input.write_all(bytes).unwrap();
        let input = Some(input).filter(|_| rest);
        while !connected(sender.id(), &receiver.address) {
            assert!(sender.try_wait().unwrap().is_none(), "{at}: it waits for the receiver");
            std::thread::yield_now();
        }
        signal(&sender, Signal::SIGKILL);
        sender.wait().unwrap();
        drop(input);
        receiver.signal(Signal::SIGCONT);
        failed_and_kept_the_older(&place, receiver, &format!("{at}, {} bytes, {rest}", bytes.len()));
    }
}

/// A receiver that wants no more than there is ends when it has that, and both have succeeded.
#[test]
fn a_receiver_of_so_many_bytes_is_a_success_on_both_sides() {
    for at in AT {
        let place = Place::new();
        place.write("a", b"abc");
        let receiver = place.listening(&format!("recv {at} b --length 3 --json"));
        place.run(&format!("send a {}", receiver.address)).ok();
        receiver.end().ok();
        assert_eq!(place.read("b"), b"abc");
    }
}

/// Waits until the process is connected to that address.
fn connected(pid: u32, address: &str) -> bool {
    let inodes = match address.rsplit_once(':').map(|(_, port)| port.parse::<u16>()) {
        Some(Ok(port)) => tcp_to(port),
        _ => unix_senders(),
    };
    let Ok(open) = std::fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    let mut links = open.flatten().filter_map(|entry| std::fs::read_link(entry.path()).ok());
    links.any(|link| inodes.iter().any(|inode| link.as_os_str() == inode.as_str()))
}

/// Returns the connections to a port of this machine.
fn tcp_to(port: u16) -> Vec<String> {
    let sockets = std::fs::read_to_string("/proc/net/tcp").unwrap();
    // sl local_address rem_address st tx:rx tr:tm retrnsmt uid timeout inode; state 01 is connected.
    let words = sockets.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let there = words.filter(|words| words[2].ends_with(&format!(":{port:04X}")) && words[3] == "01");
    there.map(|words| format!("socket:[{}]", words[9])).collect()
}

/// Returns the connected Unix sockets with a sender's name.
fn unix_senders() -> Vec<String> {
    let sockets = std::fs::read_to_string("/proc/net/unix").unwrap();
    // Num RefCount Protocol Flags Type St Inode Path; state 3 is connected.
    let ours = sockets.lines().filter(|line| line.contains(" @dcs-send/"));
    let words = ours.map(|line| line.split_whitespace().collect::<Vec<_>>());
    words.filter(|words| words[5] == "03").map(|words| format!("socket:[{}]", words[6])).collect()
}

#[test]
fn a_slow_receiver_gets_everything() {
    for at in AT {
        for size in [0, 1, SIZE] {
            let place = Place::new();
            place.write("a", &data(size));
            let mut receiver = place.dcs(&format!("recv {at} - --json")).spawn().unwrap();
            let mut said = String::new();
            // Its JSON is on standard error, because standard output has the data.
            let mut errors = BufReader::new(receiver.stderr.take().unwrap());
            errors.read_line(&mut said).unwrap();
            let said: serde_json::Value = serde_json::from_str(&said).unwrap();
            let address = said["address"].as_str().unwrap();
            let mut sender = place.dcs(&format!("send a {address}")).spawn().unwrap();
            let mut output = receiver.stdout.take().unwrap();
            if size == SIZE {
                // Nothing reads: a sender that left now would take back what is still in its kernel.
                std::thread::sleep(std::time::Duration::from_millis(200));
                if at.starts_with("unix") {
                    assert!(sender.try_wait().unwrap().is_none(), "it waits until the receiver has all");
                }
            }
            let mut received = Vec::new();
            output.read_to_end(&mut received).unwrap();
            assert!(received == data(size), "{at}: {} bytes of {size}", received.len());
            assert!(sender.wait().unwrap().success() && receiver.wait().unwrap().success(), "{at} {size}");
        }
    }
}

#[test]
fn a_receiver_that_fails_is_a_failed_send() {
    for at in AT {
        let place = Place::new();
        place.write("a", &data(64 << 20));
        let receiver = place.listening(&format!("recv {at} b --through gunzip --json"));
        place.run(&format!("send a {}", receiver.address)).fails(3, &[]);
        assert_eq!(receiver.end().code(), 5);
        assert_eq!(place.names(), ["a"]);
    }
}

#[test]
fn other_receivers_get_the_data_alone_and_on_tcp_the_reset() {
    let place = Place::new();
    place.write("a", b"hello");
    place.write("empty", b"");
    place.write("text", &data(SIZE));
    let unix = UnixListener::bind(place.path("socket")).unwrap();
    for (name, bytes) in [("a", b"hello".as_slice()), ("empty", b"")] {
        let sender = place.dcs(&format!("send {name} unix:socket")).spawn().unwrap();
        let mut heard = Vec::new();
        unix.accept().unwrap().0.read_to_end(&mut heard).unwrap();
        assert_eq!(heard, bytes);
        Done(sender.wait_with_output().unwrap()).ok();
    }
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = tcp.local_addr().unwrap();
    for (line, kind) in
        [("send a", None), ("send text --through gunzip", Some(std::io::ErrorKind::ConnectionReset))]
    {
        let (file, rest) = line[5..].split_once(' ').unwrap_or((&line[5..], ""));
        let sender = place.dcs(&format!("send {file} {address} {rest}")).spawn().unwrap();
        let mut heard = Vec::new();
        let end = tcp.accept().unwrap().0.read_to_end(&mut heard);
        assert_eq!(end.err().map(|error| error.kind()), kind, "{line}");
        assert_eq!(sender.wait_with_output().unwrap().status.success(), kind.is_none());
    }
}

#[test]
fn other_senders_are_told_nothing_and_end_by_closing() {
    let place = Place::new();
    for how in ["close", "shutdown"] {
        let receiver = receiver(&place, "unix:socket", "");
        let mut peer = UnixStream::connect(place.path("socket")).unwrap();
        peer.write_all(b"from somebody else").unwrap();
        if how == "shutdown" {
            peer.shutdown(std::net::Shutdown::Write).unwrap();
            let mut said = Vec::new();
            peer.read_to_end(&mut said).unwrap();
            assert_eq!(said, b"");
        }
        drop(peer);
        receiver.end().ok();
        assert_eq!(place.read("b"), b"from somebody else");
    }
}
