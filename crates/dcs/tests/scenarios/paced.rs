//! Media streams in datagrams, over loopback. Whether a datagram is sent at its time is for the sender's own
//! tests in virtual time, and for benchmarks; here it is which bytes come, and what is said.

use crate::rig::{Bench, for_each_backend};
use dcs::media::{Framing, PATIENCE, Pace, Receiver, Sender, Settings};
use dcs::{Op, Sink, Source, Stage, Status};
use dcs_media::rtcp::Report;
use dcs_media::rtp::Header;
use dcs_media::ts::{self, PACKET, PAYLOAD, Packet};
use dcs_testkit::bytes as data;
use std::net::UdpSocket;
use std::time::Duration;

/// 50 Mb/s: 30.08 us a packet.
const TICKS: u64 = 812;

/// A transport stream of this many packets, with a clock reference every 40.
fn stream(packets: u64, counter: u8) -> Vec<u8> {
    let mut counter = counter;
    let packet = |number: u64| {
        let pcr = number.is_multiple_of(40).then_some(900 + number * TICKS);
        counter = (counter + u8::from(pcr.is_none())) & 15;
        ts::make(0x100, counter, pcr, number as u8)
    };
    (0..packets).flat_map(packet).collect()
}

/// Two ends of a way for datagrams. The receiver has room for all that a scenario sends: how soon somebody reads
/// does not matter.
fn sockets() -> (UdpSocket, UdpSocket) {
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
    // The kernel gives what its settings allow, twice: 416 KiB by default, which are 180 datagrams.
    rustix::net::sockopt::set_socket_recv_buffer_size(&peer, 4 << 20).unwrap();
    peer.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(peer.local_addr().unwrap()).unwrap();
    (socket, peer)
}

/// Datagrams until there are this many bytes of payload behind headers of this length.
fn datagrams(peer: &UdpSocket, header: usize, bytes: usize) -> Vec<Vec<u8>> {
    let (mut all, mut left, mut buffer) = (Vec::new(), bytes, [0; 2000]);
    while left > 0 {
        // What the caller of an engine has put into a ring may interrupt it.
        let length = match peer.recv(&mut buffer) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            received => received.expect("it comes"),
        };
        left = left.checked_sub(length - header).expect("no more than that");
        all.push(buffer[..length].to_vec());
    }
    all
}

#[test]
fn a_transport_stream_is_sent_by_its_clock() {
    for_each_backend(|bench: &Bench| {
        let (socket, peer) = sockets();
        let bytes = stream(900, 0);
        let sender = Sender::new(&socket, None, Settings::plain()).unwrap();
        let source = Source::memory(bytes.clone());
        let transfer = bench.session.transfer(source, [Op::Md5], sender.sink(Pace::pcr())).unwrap();
        let heard = std::thread::spawn({
            let length = bytes.len();
            move || datagrams(&peer, 0, length)
        });
        let done = transfer.wait().unwrap();
        assert_eq!(done.digests[0].to_string(), md5(&bytes));
        let heard = heard.join().unwrap();
        assert!(heard.iter().rev().skip(1).all(|datagram| datagram.len() == PAYLOAD));
        assert!(heard.concat() == bytes);
        let counted = sender.state().counts;
        assert_eq!((counted.datagrams, counted.bytes), (heard.len() as u64, bytes.len() as u64));
        assert_eq!((counted.lost, counted.skipped, counted.jumps), (0, 0, 0));
    });
}

fn md5(bytes: &[u8]) -> String {
    let digest = openssl::hash::hash(openssl::hash::MessageDigest::md5(), bytes).unwrap();
    dcs_testkit::hex(&digest)
}

#[test]
fn files_that_join_leave_no_gap_and_reports_tell_of_them() {
    for_each_backend(|bench: &Bench| {
        let (socket, peer) = sockets();
        let (reports, controller) = sockets();
        let sender = Sender::new(&socket, Some((&reports, "here")), Settings::rtp(u64::MAX - 7)).unwrap();
        let files = [stream(301, 3), stream(400, 9), stream(202, 1)];
        let total: usize = files.iter().map(Vec::len).sum();
        let heard = std::thread::spawn(move || datagrams(&peer, 12, total));
        let transfers: Vec<_> = files
            .iter()
            .enumerate()
            .map(|(at, bytes)| {
                let source = Source::memory(bytes.clone());
                let request = bench.session.request(source, [], sender.sink(Pace::pcr())).rid(7);
                if at + 1 < files.len() { request.more() } else { request }.submit().unwrap()
            })
            .collect();
        for (transfer, bytes) in transfers.into_iter().zip(&files) {
            assert_eq!(transfer.wait().unwrap().bytes_out, bytes.len() as u64);
        }
        let heard = heard.join().unwrap();
        let mut payload = Vec::new();
        for (number, datagram) in heard.iter().enumerate() {
            let (header, bytes) = Header::parse(datagram).unwrap();
            assert_eq!(header.sequence, 65_535u16.wrapping_add(number as u16));
            assert_eq!((header.ssrc, header.payload_type), (u32::MAX - 7, 33));
            payload.extend_from_slice(bytes);
        }
        assert!(heard.iter().rev().skip(1).all(|datagram| datagram.len() == 12 + PAYLOAD));
        let (mut counter, mut announced) = (3, 0);
        for packet in payload.as_chunks::<PACKET>().0 {
            let packet = Packet::parse(packet).unwrap();
            assert_eq!(packet.counter, (counter + u8::from(packet.has_payload)) & 15);
            counter = packet.counter;
            announced += usize::from(packet.discontinuity);
        }
        assert_eq!(announced, 2);
        let mut buffer = [0; 200];
        let length = controller.recv(&mut buffer).unwrap();
        assert_eq!(Report::parse(&buffer[..length]).unwrap().ssrc, u32::MAX - 7);
        drop(sender);
        drop(bench.session.transfer(Source::memory([0; 1]), [], Sink::memory(1)).unwrap().wait());
        let length = controller.recv(&mut buffer).unwrap();
        assert_eq!(buffer[length - 8..length - 6], [0x81, 203], "a goodbye");
        let last = Report::parse(&buffer[..length]).unwrap();
        assert_eq!((last.packets, last.octets), (heard.len() as u32, total as u32));
    });
}

#[test]
fn a_transfer_of_nothing_ends_what_came_before_it() {
    for_each_backend(|bench: &Bench| {
        let (socket, peer) = sockets();
        let sender = Sender::new(&socket, None, Settings::plain()).unwrap();
        // The last packets fill no datagram.
        let bytes = stream(303, 5);
        let send = |bytes: Vec<u8>| {
            bench.session.request(Source::memory(bytes), [], sender.sink(Pace::pcr())).rid(3)
        };
        let first = send(bytes.clone()).more().submit().unwrap();
        let last = send(Vec::new()).submit().unwrap();
        first.wait().unwrap();
        assert_eq!(last.wait().unwrap().bytes_out, 0);
        // What was sent is in the socket by now: it has room for it.
        peer.set_nonblocking(true).unwrap();
        let mut heard = Vec::new();
        let mut buffer = [0; 2000];
        while let Ok(length) = peer.recv(&mut buffer) {
            heard.extend_from_slice(&buffer[..length]);
        }
        assert_eq!(heard.len(), bytes.len());
        assert!(heard == bytes);
    });
}

#[test]
fn what_was_sent_is_received_in_its_order() {
    for_each_backend(|bench: &Bench| {
        for framing in [Framing::Plain, Framing::Rtp] {
            let (socket, peer) = sockets();
            let settings = if framing == Framing::Rtp { Settings::rtp(5) } else { Settings::plain() };
            let sender = Sender::new(&socket, None, settings).unwrap();
            let receiver = Receiver::new(&peer, framing).unwrap();
            let bytes = data(150_001, 4);
            let record = bench
                .session
                .transfer(receiver.source(PATIENCE), [Op::Md5], Sink::memory(bytes.len() * 2))
                .unwrap();
            let pace = Pace::constant(30_000_000);
            let done = bench.session.transfer(Source::memory(bytes.clone()), [], sender.sink(pace)).unwrap();
            assert_eq!(done.wait().unwrap().bytes_out, bytes.len() as u64);
            while receiver.state().bytes < bytes.len() as u64 {
                std::thread::sleep(Duration::from_millis(1));
                // Where nobody else drives the engine.
                let _ = record.peek(|_| ());
            }
            receiver.stop();
            let done = record.wait().unwrap();
            assert!(done.memory.unwrap() == bytes);
            assert_eq!(done.digests[0].to_string(), md5(&bytes));
            assert_eq!((receiver.state().lost, receiver.state().foreign), (0, 0));
        }
    });
}

#[test]
fn what_cannot_be_sent_is_said_and_others_go_on() {
    for_each_backend(|bench: &Bench| {
        let (socket, peer) = sockets();
        let sender = Sender::new(&socket, None, Settings::plain()).unwrap();
        let other = Sender::new(&socket, None, Settings::plain()).unwrap();
        let good = stream(400, 0);
        let source = Source::memory(good.clone());
        let goes = bench.session.transfer(source, [], other.sink(Pace::pcr())).unwrap();
        let send = |bytes: Vec<u8>, pace| {
            let sent = bench.session.transfer(Source::memory(bytes), [], sender.sink(pace)).unwrap().wait();
            sent.map_err(|error| (error.status, error.stage, error.errno)).map(|done| done.bytes_out)
        };
        let corrupt = |errno| Err((Status::CorruptData, Stage::Destination, errno));
        assert_eq!(send(data(20_000, 1), Pace::pcr()), corrupt(libc::EBADMSG));
        assert_eq!(send(Vec::new(), Pace::pcr()), Ok(0));
        let frontend = Err((Status::InvalidField, Stage::Frontend, 0));
        assert_eq!(send(vec![1], Pace::constant(0)), frontend, "a rate of nothing");
        assert_eq!(send(vec![1], Pace::free().window(Duration::from_secs(11))), frontend);
        let heard = std::thread::spawn({
            let length = good.len();
            move || datagrams(&peer, 0, length)
        });
        goes.wait().unwrap();
        assert!(heard.join().unwrap().concat() == good);
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(Sender::new(&file, None, Settings::plain()).is_err());
        assert!(
            Sender::new(&std::net::TcpListener::bind("127.0.0.1:0").unwrap(), None, Settings::plain())
                .is_err()
        );
    });
}

#[test]
fn a_short_stream_without_a_clock_is_said() {
    for_each_backend(|bench: &Bench| {
        let (socket, _peer) = sockets();
        let sender = Sender::new(&socket, None, Settings::plain()).unwrap();
        for (packets, errno) in [(20, libc::ENODATA), (7, 0)] {
            let silent: Vec<u8> = (0..packets).flat_map(|number| ts::make(5, number, None, 1)).collect();
            let transfer = bench.session.transfer(Source::memory(silent), [], sender.sink(Pace::pcr()));
            let said = transfer.unwrap().wait().err().map(|error| (error.status, error.stage, error.errno));
            let expected = (Status::CorruptData, Stage::Destination, errno);
            assert_eq!(said, (errno != 0).then_some(expected), "{packets} packets");
        }
    });
}

#[test]
fn a_stream_is_cancelled_and_the_next_one_goes_on() {
    for_each_backend(|bench: &Bench| {
        let (socket, peer) = sockets();
        let sender = Sender::new(&socket, None, Settings::plain()).unwrap();
        // A second's worth for each datagram: it would take minutes.
        let slow = sender.sink(Pace::constant(PAYLOAD as u64 * 8));
        let transfer = bench.session.transfer(Source::memory(vec![7; PAYLOAD * 300]), [], slow).unwrap();
        let heard = std::thread::spawn(move || datagrams(&peer, 0, PAYLOAD));
        while !heard.is_finished() {
            std::thread::sleep(Duration::from_millis(1));
            // Where nobody else drives the engine.
            let _ = transfer.peek(|_| ());
        }
        assert_eq!(heard.join().unwrap(), [[7; PAYLOAD]]);
        transfer.cancel();
        assert_eq!(transfer.wait().unwrap_err().status, Status::Cancelled);
        let fresh = Sender::new(&socket, None, Settings::plain()).unwrap();
        let done = bench
            .session
            .transfer(Source::memory([8; 100]), [], fresh.sink(Pace::free()))
            .unwrap()
            .wait()
            .unwrap();
        assert_eq!((done.bytes_out, fresh.state().counts.datagrams), (100, 1));
    });
}
