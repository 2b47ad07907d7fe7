//! `dcs stream` and `dcs record` over loopback. Whether a datagram is sent at its time is for the sender's own
//! tests in virtual time, and for benchmarks; here it is which bytes come, in which order, and what is said.

use crate::run::{Done, IV, KEY, Place, data, feed, python};
use dcs_media::rtcp::Report;
use dcs_media::rtp::Header;
use dcs_media::ts::{self, PACKET, PAYLOAD, Packet};
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{setsockopt, sockopt};
use nix::unistd::Pid;
use std::net::{Ipv4Addr, UdpSocket};
use std::process::Child;
use std::time::Duration;

/// 8 Mb/s: 188 us a packet.
pub const TICKS: u64 = 5076;
/// The PID of video, and of its clock.
const PID: u16 = 0x100;

/// A transport stream of this many packets, with a clock reference every 40; its clock begins there.
pub fn video(packets: u64, counter: u8, clock: u64) -> Vec<u8> {
    let mut counter = counter;
    let packet = |number: u64| {
        let pcr = number.is_multiple_of(40).then_some(clock + number * TICKS);
        counter = (counter + u8::from(pcr.is_none())) & 15;
        ts::make(PID, counter, pcr, number as u8)
    };
    (0..packets).flat_map(packet).collect()
}

/// Where a stream goes: a socket, and the one of the next port, where reports go.
pub struct Peer {
    pub socket: UdpSocket,
    pub reports: UdpSocket,
    pub port: u16,
}

impl Peer {
    pub fn new() -> Peer {
        loop {
            let (socket, port) = Peer::at(0).unwrap();
            let Ok(reports) = UdpSocket::bind(("127.0.0.1", port.saturating_add(1))) else { continue };
            reports.set_read_timeout(socket.read_timeout().unwrap()).unwrap();
            return Peer { socket, reports, port };
        }
    }

    /// A socket at a port; 0: at some port.
    pub fn at(port: u16) -> std::io::Result<(UdpSocket, u16)> {
        let socket = UdpSocket::bind(("127.0.0.1", port))?;
        let port = socket.local_addr()?.port();
        // Ends a test in which nothing comes.
        socket.set_read_timeout(Some(Duration::from_secs(30)))?;
        // What comes while the machine does something else.
        let room = 16 << 20;
        if setsockopt(&socket, sockopt::RcvBufForce, &room).is_err() {
            let _ = setsockopt(&socket, sockopt::RcvBuf, &room);
        }
        Ok((socket, port))
    }

    pub fn datagram(&self) -> Vec<u8> {
        let mut buffer = [0; 2000];
        let length = received(|| self.socket.recv(&mut buffer));
        buffer[..length].to_vec()
    }

    /// Datagrams until there are this many bytes behind headers of this length.
    pub fn datagrams(&self, header: usize, bytes: usize) -> Vec<Vec<u8>> {
        let (mut all, mut left) = (Vec::new(), bytes);
        while left > 0 {
            let datagram = self.datagram();
            left = left.checked_sub(datagram.len() - header).expect("no more than that");
            all.push(datagram);
        }
        all
    }

    /// The next report, and whether it says goodbye.
    pub fn report(&self) -> (Report, bool) {
        let mut buffer = [0; 500];
        let length = received(|| self.reports.recv(&mut buffer));
        let goodbye = buffer[length - 8..length - 6] == [0x81, 203];
        (Report::parse(&buffer[..length]).unwrap(), goodbye)
    }
}

/// Receives, again where a signal interrupts it: how many bytes.
fn received(mut receive: impl FnMut() -> std::io::Result<usize>) -> usize {
    loop {
        match receive() {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            received => return received.expect("something comes"),
        }
    }
}

pub fn interrupt(child: &Child) {
    kill(Pid::from_raw(child.id() as i32), Signal::SIGINT).unwrap();
}

/// A command that has ended, and its report of the end.
pub fn ended(child: Child) -> (Done, serde_json::Value) {
    let done = Done(child.wait_with_output().unwrap());
    let last = done.lines().into_iter().rfind(|line| line["event"] == "done");
    let last = last.unwrap_or_else(|| panic!("no end: {}{}", done.stdout(), done.stderr()));
    (done, last)
}

/// Checks what receivers of a transport stream watch: the counters of packets with payload, and the clock. Returns
/// the number of marks of a new clock.
pub fn watch(bytes: &[u8]) -> usize {
    let (mut counter, mut clock, mut marks) = (None, None, 0);
    for packet in bytes.as_chunks::<PACKET>().0 {
        let packet = Packet::parse(packet).expect("a packet");
        if let Some(before) = counter.replace(packet.counter) {
            assert_eq!(packet.counter, (before + u8::from(packet.has_payload)) & 15);
        }
        let Some(pcr) = packet.pcr else { continue };
        marks += usize::from(packet.discontinuity);
        if let Some(before) = clock.replace(pcr).filter(|_| !packet.discontinuity) {
            assert_eq!(ts::ticks(before, pcr), 40 * TICKS, "clock references in their order, each once");
        }
    }
    marks
}

#[test]
fn a_file_is_sent_as_it_is_and_its_md5_told() {
    let place = Place::new();
    let file = place.write("video.ts", &video(2003, 0, 900));
    let sum =
        python("import sys,hashlib;print(hashlib.md5(open(sys.argv[1],'rb').read()).hexdigest())", &file);
    for io in ["auto", "plain"] {
        let peer = Peer::new();
        let line = format!("stream video.ts udp://127.0.0.1:{} --through md5 --json --io {io}", peer.port);
        let sender = place.dcs(&line).spawn().unwrap();
        let heard = peer.datagrams(0, 2003 * PACKET);
        assert!(heard.iter().rev().skip(1).all(|datagram| datagram.len() == PAYLOAD));
        assert!(heard.concat() == place.read("video.ts"));
        let (done, last) = ended(sender);
        let done = done.ok();
        let sent = done.lines().into_iter().find(|line| line["event"] == "sent").unwrap();
        assert_eq!(sent["digests"][0]["value"], sum);
        assert_eq!(last["total"]["datagrams"], heard.len());
        assert_eq!(last["total"]["bytes"], 2003 * PACKET);
        for nothing in ["lost", "jumps", "skipped"] {
            assert_eq!(last["total"][nothing], 0, "{nothing}");
        }
    }
    let peer = Peer::new();
    let done = place.run(&format!("stream video.ts udp://127.0.0.1:{} --through md5", peer.port)).ok();
    assert_eq!(done.stdout(), format!("md5  {sum}  video.ts\n"));
    assert!(done.stderr().contains("1 stream: 287 datagrams"), "{}", done.stderr());
}

#[test]
fn files_that_follow_each_other_and_begin_again_leave_no_gap() {
    let place = Place::new();
    place.write("one.ts", &video(501, 3, 900));
    place.write("two.ts", &video(700, 9, 5_000_000_000));
    let peer = Peer::new();
    let line = format!("stream one.ts two.ts rtp://127.0.0.1:{} --loop=3 --sdp video.sdp --json", peer.port);
    let sender = place.dcs(&line).spawn().unwrap();
    let total = 3 * 1201 * PACKET;
    let heard = peer.datagrams(12, total);
    assert!(
        heard.iter().rev().skip(1).all(|datagram| datagram.len() == 12 + PAYLOAD),
        "joined ones are full"
    );
    let (first, _) = Header::parse(&heard[0]).unwrap();
    let (mut bytes, mut before) = (Vec::new(), first.timestamp);
    for (number, datagram) in heard.iter().enumerate() {
        let (header, payload) = Header::parse(datagram).unwrap();
        assert_eq!(header.sequence, first.sequence.wrapping_add(number as u16));
        assert_eq!((header.ssrc, header.payload_type), (first.ssrc, 33));
        assert!(header.timestamp.wrapping_sub(before) < 90_000, "time goes on");
        before = header.timestamp;
        bytes.extend_from_slice(payload);
    }
    assert_eq!(watch(&bytes), 5, "each file but the first has a new clock");
    let (report, _) = peer.report();
    assert_eq!(report.ssrc, first.ssrc);
    let (last, goodbye) = std::iter::repeat_with(|| peer.report()).find(|(_, goodbye)| *goodbye).unwrap();
    assert!(goodbye);
    assert_eq!((last.packets, last.octets), (heard.len() as u32, total as u32));
    let (done, told) = ended(sender);
    done.ok();
    assert_eq!(told["channels"][0]["files_sent"], 6);
    let sdp = String::from_utf8(place.read("video.sdp")).unwrap();
    for line in ["c=IN IP4 127.0.0.1", &format!("m=video {} RTP/AVP 33", peer.port), "a=rtpmap:33 MP2T/90000"]
    {
        assert!(sdp.lines().any(|there| there == line), "{line}: {sdp}");
    }
}

#[test]
fn a_list_changes_while_it_runs_and_the_others_do_not_notice() {
    let place = Place::new();
    place.write("video.ts", &video(4000, 0, 900));
    let (one, two, three) = (Peer::new(), Peer::new(), Peer::new());
    let channel = |name: &str, peer: &Peer| {
        format!("[{name}]\nto='rtp://127.0.0.1:{}'\nfiles=['video.ts']\nloop=true\n", peer.port)
    };
    let change = |text: String| {
        place.write("new.toml", text.as_bytes());
        std::fs::rename(place.path("new.toml"), place.path("list.toml")).unwrap();
    };
    change(channel("one", &one) + &channel("two", &two));
    let sender = place.dcs("stream --list list.toml --metrics metrics.prom --json").spawn().unwrap();
    let (first, _) = Header::parse(&one.datagram()).unwrap();
    two.datagram();
    // The second one ends, with a goodbye, a third one begins. What makes no sense is no channel.
    change(
        channel("one", &one) + &channel("three", &three) + "[four]\nto='udp://nowhere'\nfiles=['video.ts']\n",
    );
    let mut expected = first.sequence;
    // The first one is listened to all the time.
    std::thread::scope(|scope| {
        let others = scope.spawn(|| {
            three.datagram();
            while !two.report().1 {}
        });
        let mut bytes = Vec::new();
        while !others.is_finished() || bytes.len() < 4000 * PACKET {
            let datagram = one.datagram();
            let (header, payload) = Header::parse(&datagram).unwrap();
            expected = expected.wrapping_add(1);
            assert_eq!((header.ssrc, header.sequence), (first.ssrc, expected), "not one is missing");
            bytes.extend_from_slice(payload);
        }
        assert!(watch(&bytes) >= 1, "it began again");
        // A list that makes no sense at all changes nothing.
        change("[four".to_string());
        for _ in 0..1000 {
            one.datagram();
        }
    });
    let metrics = String::from_utf8(place.read("metrics.prom")).unwrap();
    let label = format!("{{channel=\"one\",to=\"rtp://127.0.0.1:{}\"}}", one.port);
    let sent =
        metrics.lines().find_map(|line| line.strip_prefix(&format!("dcs_stream_datagrams_total{label} ")));
    assert!(sent.unwrap().parse::<u64>().unwrap() > 0);
    interrupt(&sender);
    let (done, last) = ended(sender);
    assert!(done.stderr().contains("[four]: 'udp://nowhere'"), "{}", done.stderr());
    assert_eq!(done.code(), 0, "that is its ordinary end");
    let names: Vec<_> =
        last["channels"].as_array().unwrap().iter().map(|one| one["channel"].clone()).collect();
    assert_eq!(names, ["one", "three"]);
}

#[test]
fn an_operator_on_the_way_changes_what_is_sent_at_a_rate() {
    let place = Place::new();
    let plain = data(100_003);
    place.write("plain", &plain);
    let peer = Peer::new();
    let line = format!("udp://127.0.0.1:{} --through aes256-ctr --iv {IV}", peer.port);
    let run = |rest: &str| {
        let mut command = place.dcs(&format!("stream plain {line} {rest}"));
        Done(command.env("DCS_KEY", KEY).output().unwrap())
    };
    run("").fails(2, &["no clock", "--rate"]);
    run("--rate 50M --loop=2").fails(2, &["aes256-ctr"]);
    run("--rate 50M").ok();
    let sealed = peer.datagrams(0, plain.len()).concat();
    assert!(sealed != plain);
    let mut open = place.dcs(&format!("copy - - --through aes256-ctr --iv {IV}"));
    open.env("DCS_KEY", KEY);
    assert!(feed(open, &sealed).ok().0.stdout == plain);
}

/// A `dcs record` that listens, at this port.
pub fn recording(place: &Place, scheme: &str, rest: &str) -> (Child, u16) {
    // A port that was free a moment ago.
    let port = Peer::new().port;
    let child = place.dcs(&format!("record {scheme}://127.0.0.1:{port} {rest}")).spawn().unwrap();
    let row = format!("0100007F:{port:04X} ");
    while !std::fs::read_to_string("/proc/net/udp").unwrap().contains(&row) {
        std::thread::yield_now();
    }
    (child, port)
}

#[test]
fn what_is_sent_is_recorded() {
    let place = Place::new();
    place.write("video.ts", &video(2003, 0, 900));
    for scheme in ["udp", "rtp"] {
        let rest = format!("out.ts --length {} --through md5 --durable --json", 2003 * PACKET);
        let (recorder, port) = recording(&place, scheme, &rest);
        let sender = place.dcs(&format!("stream video.ts {scheme}://127.0.0.1:{port} --through md5 --json"));
        let (_, _) = ended({ sender }.spawn().unwrap());
        let (done, last) = ended(recorder);
        done.ok();
        assert!(place.read("out.ts") == place.read("video.ts"));
        assert_eq!((last["datagrams"].clone(), last["lost"].clone()), (287.into(), 0.into()));
        assert!(last["stopped"].is_null());
    }
}

#[test]
fn a_recording_is_put_in_order_and_what_is_missing_counted() {
    let place = Place::new();
    let (recorder, port) = recording(&place, "rtp", "out --window 50ms --json");
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(("127.0.0.1", port)).unwrap();
    let send = |sequence: u16| {
        let header = Header { payload_type: 33, sequence, ssrc: 9, ..Header::default() };
        let mut datagram = vec![0; 12];
        header.write(datagram.first_chunk_mut().unwrap());
        datagram.extend_from_slice(&[sequence as u8; PACKET]);
        socket.send(&datagram).unwrap();
    };
    // 65,533 is missing; 65,535 and 0 are late; 1 comes twice; one is of nobody.
    [65_532, 65_534, 1, 0, 65_535, 1].into_iter().for_each(send);
    socket.send(b"no datagram of RTP").unwrap();
    send(2);
    let expected: Vec<u8> = [252, 254, 255, 0, 1, 2].into_iter().flat_map(|byte| [byte; PACKET]).collect();
    // All is out of the socket.
    let row = format!("0100007F:{port:04X} 00000000:0000 07 00000000:00000000 ");
    while !std::fs::read_to_string("/proc/net/udp").unwrap().contains(&row) {
        std::thread::yield_now();
    }
    interrupt(&recorder);
    let (done, last) = ended(recorder);
    done.ok();
    assert!(place.read("out") == expected);
    assert_eq!(last["stopped"], "interrupted");
    for (what, count) in [("lost", 1), ("reordered", 2), ("surplus", 1), ("foreign", 1), ("restarts", 0)] {
        assert_eq!(last[what], count, "{what}");
    }
}

#[test]
fn a_recording_ends_when_nothing_comes_or_its_time_is_over() {
    let place = Place::new();
    for (option, why) in [("--idle 100ms", "no more datagrams came"), ("--for 100ms", "its time")] {
        let (recorder, port) = recording(&place, "udp", &format!("out {option} --json"));
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.send_to(&[7; 100], ("127.0.0.1", port)).unwrap();
        let (done, last) = ended(recorder);
        done.ok();
        assert!(last["stopped"].as_str().unwrap().contains(why));
        assert_eq!(place.read("out"), [7; 100]);
    }
}

#[test]
fn a_group_gets_a_stream_by_the_interface_that_is_named() {
    let group = Ipv4Addr::new(239, 255, 77, 20);
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    if let Err(error) = socket.join_multicast_v4(&group, &Ipv4Addr::LOCALHOST) {
        return println!("skipped: loopback takes no group: {error}");
    }
    let place = Place::new();
    place.write("video.ts", &video(700, 0, 900));
    let port = Peer::new().port;
    let rest = format!("out.ts --length {} --interface 127.0.0.1 --json", 700 * PACKET);
    let recorder = place.dcs(&format!("record udp://@{group}:{port} {rest}")).spawn().unwrap();
    let row = format!("{:08X}:{port:04X} ", u32::from(group).swap_bytes());
    while !std::fs::read_to_string("/proc/net/udp").unwrap().contains(&row) {
        std::thread::yield_now();
    }
    // Once the socket is bound, it joins; what is sent before that is sent again.
    let line = format!("stream video.ts udp://{group}:{port} --interface lo --ttl 0 --loop --json");
    let sender = place.dcs(&line).spawn().unwrap();
    let (done, last) = ended(recorder);
    done.ok();
    interrupt(&sender);
    let (done, _) = ended(sender);
    assert_eq!(done.code(), 0);
    assert_eq!(
        (last["bytes_out"].clone(), place.read("out.ts").len()),
        ((700 * PACKET).into(), 700 * PACKET)
    );
    watch(&place.read("out.ts"));
}
