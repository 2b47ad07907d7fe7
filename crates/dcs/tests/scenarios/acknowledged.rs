//! Transfers that are done when the peer has acknowledged every byte (`Request::acknowledged`), over sockets
//! of the kernel.

use crate::ends::{Kind, disk_file, file_with, pipe, read_behind, stream, tcp4};
use crate::rig::{BLOCK, Bench, data, for_each_backend, skip};
use dcs::{Op, Sink, Source, Stage, Status, Transfer};
use dcs_devices::Traffic;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, ipproto, socket, sockopt};
use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

/// Bytes that a peer does not read: more than it has room for, and less than we have.
const UNREAD: usize = 96 << 10;
/// Bytes behind them.
const AWAITED: usize = 1000;
const LONG: Duration = Duration::from_secs(60);

/// A connection to a peer that has no room, with much room here.
struct Stuck {
    ours: TcpStream,
    theirs: TcpStream,
    /// The kernel's count of acknowledged bytes before there was one.
    first: u64,
}

impl Stuck {
    fn new(bench: &Bench) -> Stuck {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        sockopt::set_socket_recv_buffer_size(&listener, 4096).unwrap();
        let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        sockopt::set_socket_send_buffer_size(&ours, 1 << 20).unwrap();
        let theirs = listener.accept().unwrap().0;
        let first = Traffic::of(&ours).unwrap().acknowledged;
        let stuck = Stuck { ours, theirs, first };
        stuck.send(bench, UNREAD).wait().expect("there is room for them, and nobody asked for more");
        stuck
    }

    fn send(&self, bench: &Bench, bytes: usize) -> Transfer {
        let source = Source::memory(vec![7; bytes]);
        bench.session.transfer(source, [], Sink::socket(&self.ours)).unwrap()
    }

    fn traffic(&self) -> Traffic {
        Traffic::of(&self.ours).unwrap()
    }

    /// A transfer whose bytes are sent, and cannot have been acknowledged.
    fn send_acknowledged(&self, bench: &Bench, limit: Duration) -> Transfer {
        let all = self.first + (UNREAD + AWAITED) as u64;
        let request =
            bench.session.request(Source::memory(vec![8; AWAITED]), [Op::Md5], Sink::socket(&self.ours));
        let mut transfer = request.acknowledged().timeout(limit).submit().unwrap();
        loop {
            let now = self.traffic();
            if now.acknowledged + now.unacknowledged >= all {
                return transfer;
            }
            transfer = undone(transfer);
        }
    }
}

/// Drives the engine where callers do. Nobody has acknowledged the transfer's bytes.
fn undone(transfer: Transfer) -> Transfer {
    transfer.try_wait().expect_err("it is done before its bytes are acknowledged")
}

#[test]
fn it_waits_for_its_own_bytes_alone() {
    for_each_backend(|bench| {
        let mut stuck = Stuck::new(bench);
        let transfer = stuck.send_acknowledged(bench, LONG);
        assert_eq!(stuck.send(bench, UNREAD).wait().unwrap().bytes_out, UNREAD as u64);
        let transfer = undone(transfer);
        let mut got = vec![0; UNREAD + AWAITED];
        stuck.theirs.read_exact(&mut got).unwrap();
        assert_eq!((transfer.wait().unwrap().bytes_out, got[UNREAD - 1], got[UNREAD]), (1000, 7, 8));
        assert!(stuck.traffic().unacknowledged > 0, "what came behind it waits still");
        stuck.theirs.read_exact(&mut got[..UNREAD]).unwrap();
    });
}

#[test]
fn it_fails_where_the_connection_ends_before() {
    for_each_backend(|bench| {
        let stuck = Stuck::new(bench);
        let transfer = stuck.send_acknowledged(bench, LONG);
        // There are bytes that the peer has not read: it resets.
        drop(stuck.theirs);
        let error = transfer.wait().unwrap_err();
        assert_eq!((error.status, error.stage), (Status::PeerReset, Stage::Destination), "{error}");
        assert_eq!(error.errno, Errno::CONNRESET.raw_os_error());
        // They were sent, if to nobody.
        assert_eq!(error.completion.bytes_out, AWAITED as u64);
    });
}

#[test]
fn it_waits_no_longer_than_it_was_given_and_can_be_cancelled() {
    for_each_backend(|bench| {
        let stuck = Stuck::new(bench);
        let transfer = stuck.send_acknowledged(bench, LONG);
        transfer.cancel();
        let error = transfer.wait().unwrap_err();
        assert_eq!(
            (error.status, error.completion.bytes_out),
            (Status::Cancelled, AWAITED as u64),
            "{error}"
        );
        let source = Source::memory(vec![8; AWAITED]);
        let request = bench.session.request(source, [Op::Md5], Sink::socket(&stuck.ours)).acknowledged();
        let error = request.timeout(Duration::from_millis(300)).submit().unwrap().wait().unwrap_err();
        assert_eq!((error.status, error.completion.bytes_out), (Status::Timeout, AWAITED as u64), "{error}");
        assert_eq!(error.stage, Stage::Destination);
    });
}

/// A source of a file, or of what is in it.
type Made = fn(&File, &[u8]) -> Source;

/// By whichever path the bytes go.
#[test]
fn a_peer_that_takes_everything_has_it_all() {
    for_each_backend(|bench| {
        let bytes = data(5 * BLOCK + 77);
        let file = disk_file(&bytes);
        for (nonblocking, chain) in
            [(true, vec![]), (true, vec![Op::Md5]), (false, vec![]), (false, vec![Op::Md5])]
        {
            let sources: [(&str, Made); 4] = [
                ("memory", |_, bytes| Source::memory(bytes)),
                ("a file", |file, _| Source::file(file, ..)),
                ("an immutable file", |file, _| Source::file(file, ..).immutable()),
                ("a pipe", |_, bytes| {
                    let (mut writer, reader) = pipe();
                    writer.write_all(bytes).unwrap();
                    Source::fd(&reader)
                }),
            ];
            for (what, source) in sources {
                let (ours, theirs) = tcp4();
                ours.set_nonblocking(nonblocking).unwrap();
                let reader = read_behind(theirs.into());
                let request =
                    bench.session.request(source(&file, &bytes), chain.clone(), Sink::socket(&ours));
                let done = request.acknowledged().timeout(LONG).submit().unwrap().wait();
                assert_eq!(
                    done.unwrap_or_else(|error| panic!("{what}: {error}")).bytes_out,
                    bytes.len() as u64
                );
                assert_eq!(Traffic::of(&ours).unwrap().unacknowledged, 0);
                drop(ours);
                assert!(reader.join().unwrap() == bytes, "{what}");
            }
        }
    });
}

/// Nobody says what the peers of these have: that is told, and nothing is moved.
#[test]
fn where_nobody_can_tell_it_is_refused() {
    for_each_backend(|bench| {
        let (unix, _their_unix) = stream(Kind::Unix).unwrap();
        let (writer, _reader) = pipe();
        let file = file_with(&[]);
        let mut ends: Vec<(&str, OwnedFd)> =
            vec![("a Unix socket", unix), ("a pipe", writer.into()), ("a file", file.into())];
        match socket(AddressFamily::INET, SocketType::STREAM, Some(ipproto::MPTCP)) {
            Ok(mptcp) => {
                let listener = TcpListener::bind("127.0.0.1:0").unwrap();
                rustix::net::connect(&mptcp, &listener.local_addr().unwrap()).unwrap();
                ends.push(("MPTCP", mptcp));
            }
            Err(_) => skip("MPTCP", "this kernel has none"),
        }
        let (tls, mut their_tls) = tcp4();
        match with_tls(&tls) {
            true => ends.push(("TLS", tls.into())),
            false => {
                drop(tls);
                skip("TLS in the kernel", "this kernel has none");
            }
        }
        for (what, end) in &ends {
            let request =
                bench.session.request(Source::memory(&b"x"[..]), vec![], Sink::fd(end)).acknowledged();
            let error = request.submit().unwrap().wait().expect_err(what);
            assert_eq!((error.status, error.stage), (Status::PathUnavailable, Stage::Destination), "{what}");
        }
        let file = &ends[2].1;
        assert_eq!(rustix::fs::fstat(file).unwrap().st_size, 0);
        drop(ends);
        assert_eq!(their_tls.read(&mut [0]).unwrap(), 0);
    });
}

/// Has the kernel do TLS on a connection, without keys yet.
fn with_tls(socket: &TcpStream) -> bool {
    // SAFETY: setsockopt(2) reads this many bytes of a string.
    let code = unsafe {
        libc::setsockopt(socket.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_ULP, c"tls".as_ptr().cast(), 3)
    };
    code == 0
}
