//! Tests the stack against Linux's TCP, in real time: a TAP device in a separate network namespace, with the faults injected on our side of
//! it. Needs root and `/dev/net/tun`; prints the reason if it is skipped.

#[path = "../rig/mod.rs"]
mod rig;
mod tap;

use dcs_net::Reason;
use dcs_net::checksum::Sum;
use rig::pair::{Node, address, config};
use rig::{Card, Faults, MS, Plan, Wire, fill, is_filled};
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;

/// A card on one side, Linux on the other.
struct Lab {
    card: Card,
    tap: File,
    wire: Wire,
    start: Instant,
}

/// The link, and what the card's NIC does by itself.
#[derive(Clone, Copy)]
struct Link {
    faults: Faults,
    offload: bool,
}

fn clean() -> Link {
    Link { faults: Faults::none(), offload: false }
}

fn bad() -> Link {
    Link { faults: Faults::bad(), offload: false }
}

/// Runs `linux` in a thread inside the namespace, and the card until that thread is done and `done` holds. `prepare` runs before the card
/// starts.
fn lab<P, T: Send + 'static>(
    link: Link,
    card: impl FnOnce(&mut Card, u64),
    prepare: impl FnOnce() -> P + Send + 'static,
    linux: impl FnOnce(P) -> T + Send + 'static,
    mut done: impl FnMut(&Card) -> bool,
) -> Option<(Card, T)> {
    let (send, receive) = mpsc::channel();
    let thread = thread::spawn(move || {
        let tap = tap::enter("10.0.0.2/24");
        let prepared = tap.is_ok().then(prepare);
        send.send(tap).unwrap();
        prepared.map(linux)
    });
    let tap = match receive.recv().unwrap() {
        Ok(tap) => tap,
        Err(why) => {
            println!("skipped: {why}");
            return None;
        }
    };
    let mut stack = config(0);
    stack.tcp.time_wait = 100 * MS;
    stack.segmentation = link.offload.then_some(60_000);
    let mut lab = Lab {
        card: Card::new(stack, link.offload),
        tap,
        wire: Wire::new(11, MS / 5, link.faults),
        start: Instant::now(),
    };
    lab.card.nic.byte_time = 0;
    card(&mut lab.card, 0);
    while !thread.is_finished() || !done(&lab.card) {
        assert!(lab.start.elapsed() < Duration::from_secs(100), "{:?}", lab.card.stack.statistics());
        lab.step();
    }
    let result = thread.join().unwrap();
    Some((lab.card, result?))
}

impl Lab {
    fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    fn step(&mut self) {
        let mut frame = [0; 2048];
        while let Ok(length) = self.tap.read(&mut frame) {
            let now = self.now();
            self.wire.carry(1, frame[..length].to_vec(), now);
        }
        let now = self.now();
        while let Some((side, frame)) = self.wire.arrived(now) {
            if side == 0 {
                self.card.receive(&frame, now);
                self.send(now);
            } else if let Err(error) = self.tap.write(&frame) {
                assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
            }
        }
        self.send(now);
        let deadline = [self.card.deadline(), self.wire.deadline()].into_iter().flatten().min();
        let wait = deadline.map_or(20 * MS, |at| at.saturating_sub(now)).min(20 * MS);
        tap::wait(&self.tap, wait);
    }

    fn send(&mut self, now: u64) {
        for frame in self.card.step(now) {
            self.wire.carry(0, frame, now);
        }
    }
}

fn listen() -> TcpListener {
    TcpListener::bind(address(1, 8080)).unwrap()
}

/// Checks that an echo is returned as it was sent.
fn ping(length: u8) {
    let socket = tap::icmp();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut request = vec![8, 0, 0, 0, 1, 2, 3, length];
    request.extend((0..usize::from(length) * 700).map(|n| n as u8));
    let mut sum = Sum::new();
    sum.add(&request);
    request[2..4].copy_from_slice(&(!sum.value()).to_be_bytes());
    socket.send_to(&request, address(0, 0)).unwrap();
    let mut reply = [0; 2000];
    let count = socket.recv(&mut reply).unwrap();
    let reply = &reply[20..count];
    let mut sum = Sum::new();
    sum.add(reply);
    assert_eq!((&reply[..2], &reply[4..], sum.value()), (&[0, 0][..], &request[4..], 0xffff));
}

fn all_closed(card: &Card) -> bool {
    card.live.is_empty()
}

/// Plays the other end of a plan with Linux's sockets: every byte both ways.
fn exchange(stream: TcpStream, plan: Plan, send: u64) {
    stream.set_read_timeout(Some(Duration::from_secs(90))).unwrap();
    let mut writer = stream.try_clone().unwrap();
    let thread = thread::spawn(move || {
        let mut bytes = vec![0; 64 << 10];
        let mut offset = 0;
        while offset < send {
            let count = (send - offset).min(bytes.len() as u64) as usize;
            fill(plan.receive_seed, offset, &mut bytes[..count]);
            writer.write_all(&bytes[..count]).unwrap();
            offset += count as u64;
        }
        writer.shutdown(Shutdown::Write).unwrap();
    });
    let mut reader = stream;
    let mut bytes = vec![0; 64 << 10];
    let mut offset = 0;
    loop {
        let count = reader.read(&mut bytes).unwrap();
        if count == 0 {
            break;
        }
        assert!(is_filled(plan.send_seed, offset, &bytes[..count]), "wrong bytes near {offset}");
        offset += count as u64;
    }
    assert_eq!(offset, plan.send);
    thread.join().unwrap();
}

fn check(card: &Card, connections: usize, received: u64) {
    assert_eq!(card.apps.len(), connections);
    for app in card.apps.values() {
        assert!(app.is_done(), "{app:?}");
        assert_eq!((app.received, app.ended), (received, Some(received)));
        assert_eq!((app.sent, app.acknowledged), (app.plan.send, app.plan.send));
    }
    card.assert_idle();
}

/// Has Linux connect `count` times, `workers` at once.
fn clients(count: usize, workers: usize, plan: Plan, back: u64) {
    let threads = (0..workers).map(|worker| {
        thread::spawn(move || {
            for _ in (worker..count).step_by(workers) {
                exchange(TcpStream::connect(address(0, 80)).unwrap(), plan, back);
            }
        })
    });
    threads.collect::<Vec<_>>().into_iter().for_each(|thread| thread.join().unwrap());
}

fn serve(link: Link, connections: usize, workers: usize, plan: Plan, back: u64) {
    serve_with(link, connections, workers, plan, back, &[]);
}

/// Serves likewise, with some of Linux's options off.
fn serve_with(
    link: Link,
    connections: usize,
    workers: usize,
    plan: Plan,
    back: u64,
    off: &'static [&'static str],
) {
    let setup = |card: &mut Card, _| {
        card.stack.listen(80).unwrap();
        card.accepts = Some(plan);
    };
    // The thread sees its own namespace's settings there.
    let prepare = move || {
        for option in off {
            std::fs::write(format!("/proc/sys/net/ipv4/{option}"), "0").unwrap();
        }
    };
    let linux = move |()| clients(connections, workers, plan, back);
    let done = |card: &Card| card.apps.len() == connections && all_closed(card);
    let Some((card, ())) = lab(link, setup, prepare, linux, done) else { return };
    check(&card, connections, back);
}

#[test]
fn linux_connects_on_a_clean_link() {
    serve(clean(), 2, 2, Plan::new(8 * MIB), 8 * MIB);
}

#[test]
fn linux_connects_on_a_bad_link() {
    serve(bad(), 4, 4, Plan::new(MIB), MIB);
}

#[test]
fn linux_connects_to_a_card_whose_nic_segments() {
    for link in [clean(), bad()] {
        serve(Link { offload: true, ..link }, 2, 2, Plan::new(2 * MIB), 2 * MIB);
    }
}

#[test]
fn linux_without_options_on_a_bad_link() {
    let plan = Plan::new(MIB / 2);
    for off in [&["tcp_sack"][..], &["tcp_timestamps"], &["tcp_sack", "tcp_timestamps", "tcp_window_scaling"]]
    {
        serve_with(bad(), 2, 2, plan, MIB / 2, off);
    }
}

#[test]
fn a_thousand_connections_on_a_bad_link() {
    serve(bad(), 1_000, 40, Plan::new(5_000), 3_000);
}

#[test]
fn linux_listens_on_a_bad_link() {
    let plan = Plan::new(MIB);
    let connections = 4;
    let setup = |card: &mut Card, now| {
        for _ in 0..connections {
            card.connect(address(1, 8080), plan, now);
        }
    };
    let linux = move |listener: TcpListener| {
        let streams = (0..connections).map(|_| listener.accept().unwrap().0);
        let threads: Vec<_> =
            streams.map(|stream| thread::spawn(move || exchange(stream, plan, MIB))).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    };
    let Some((card, ())) = lab(bad(), setup, listen, linux, all_closed) else { return };
    check(&card, connections, MIB);
}

#[test]
fn a_slow_reader_and_a_slow_ssd_on_a_bad_link() {
    let plan = Plan { place: 100_000, ..Plan::new(8 * MIB) };
    let setup = move |card: &mut Card, _| {
        card.stack.listen(80).unwrap();
        card.accepts = Some(plan);
        card.stalled_until = 2_000 * MS;
    };
    let linux = move |()| {
        let stream = TcpStream::connect(address(0, 80)).unwrap();
        // Both windows are closed by now.
        thread::sleep(Duration::from_secs(2));
        exchange(stream, plan, MIB);
    };
    let done = |card: &Card| !card.apps.is_empty() && all_closed(card);
    let Some((card, ())) = lab(bad(), setup, || (), linux, done) else { return };
    check(&card, 1, MIB);
    assert!(card.stack.statistics().probes > 0);
}

#[test]
fn linux_resets_and_refuses() {
    let plan = Plan::new(100 * MIB);
    let setup = move |card: &mut Card, now| {
        card.connect(address(1, 8080), plan, now);
        card.connect(address(1, 8081), plan, now);
    };
    let linux = |listener: TcpListener| {
        let (mut stream, _) = listener.accept().unwrap();
        stream.read_exact(&mut [0; 100_000]).unwrap();
        // Closed with bytes unread: Linux resets.
    };
    let Some((card, ())) = lab(clean(), setup, listen, linux, all_closed) else { return };
    let mut reasons: Vec<_> = card.apps.values().map(|app| app.closed).collect();
    reasons.sort_by_key(|reason| *reason == Some(Reason::Refused));
    assert_eq!(reasons, [Some(Reason::Reset), Some(Reason::Refused)]);
    card.assert_idle();
}

#[test]
fn linux_pings_and_exchanges_datagrams() {
    let setup = |card: &mut Card, _| card.stack.open_udp(9).unwrap();
    let linux = |()| {
        let socket = UdpSocket::bind(address(1, 9)).unwrap();
        for length in [0, 1, 100, 1472] {
            let mut bytes = vec![0; length];
            fill(5, 0, &mut bytes);
            assert_eq!(socket.send_to(&bytes, address(0, 9)).unwrap(), length);
        }
        (0..3).for_each(ping);
    };
    let Some((card, ())) = lab(clean(), setup, || (), linux, |card| card.datagrams.len() == 4) else {
        return;
    };
    for (_, from, bytes) in &card.datagrams {
        assert_eq!(*from, address(1, 9));
        assert!(is_filled(5, 0, bytes));
    }
    assert_eq!(card.stack.statistics().echoes, 3);
    card.assert_idle();
}
