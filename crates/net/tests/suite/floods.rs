//! Tests with neighbours and peers that want more than their share: floods of every kind, and the bounds on what they get, over hours.

use crate::rig::forge::{LOCAL, Seg};
use dcs_net::{
    Chunk, Config, ConnectError, Event, Flow, HEAD, Limits, Piece, Reason, ReceivedFrame, Stack, Usage,
    Verdict, checksum::Sum,
};
use std::net::{Ipv4Addr, SocketAddrV4};

const SECOND: u64 = 1_000_000_000;
const CARD: [u8; 6] = [2, 0, 0, 0, 0, 1];
const THEM: [u8; 6] = [2, 0, 0, 0, 0, 9];
const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);

/// A stack on a link of 65,000 hosts, all at one Ethernet address.
struct Link {
    stack: Stack,
    now: u64,
    /// Frames that arrived.
    count: u64,
    /// Frames whose buffers are not returned.
    lent: i64,
    events: Vec<Event>,
}

/// A connection, its peer, and the first sequence number of its stream.
type Accepted = (Flow, (Ipv4Addr, u16), u32);

/// A frame that the stack sent.
struct Out {
    header: Vec<u8>,
    payload: u32,
}

impl Out {
    fn is_arp(&self) -> bool {
        self.header[12..14] == [8, 6]
    }

    fn is_syn(&self) -> bool {
        !self.is_arp() && self.header[23] == 6 && self.header[47] & 2 != 0
    }

    fn sequence(&self) -> u32 {
        u32::from_be_bytes(self.header[38..42].try_into().unwrap())
    }
}

impl Link {
    fn new(change: impl FnOnce(&mut Config)) -> Link {
        let mut config = Config::new(CARD, ADDRESS, 16, [3; 16]);
        change(&mut config);
        let mut stack = Stack::new(config);
        stack.listen(LOCAL).unwrap();
        Link { stack, now: SECOND, count: 0, lent: 0, events: Vec::new() }
    }

    fn give(&mut self, frame: &[u8]) {
        (self.count, self.lent) = (self.count + 1, self.lent + 1);
        let head = &frame[..frame.len().min(HEAD)];
        let (buffer, length, offset) = (self.count, frame.len() as u32, self.count << 16);
        let frame = ReceivedFrame { buffer, head, length, offset, split: None, checksum: Verdict::Good };
        self.stack.receive(&frame, self.now);
        self.take_events();
    }

    fn take_events(&mut self) {
        while let Some(event) = self.stack.next_event() {
            match event {
                Event::Release { .. } => self.lent -= 1,
                other => self.events.push(other),
            }
        }
    }

    fn packet(&mut self, from: Ipv4Addr, protocol: u8, body: &[u8]) {
        let mut frame = [&CARD[..], &THEM, &[8, 0, 0x45, 0]].concat();
        frame.extend((20 + body.len() as u16).to_be_bytes());
        frame.extend([0, 0, 0, 0, 64, protocol, 0, 0]);
        frame.extend(from.octets());
        frame.extend(ADDRESS.octets());
        let mut sum = Sum::new();
        sum.add(&frame[14..]);
        frame[24..26].copy_from_slice(&(!sum.value()).to_be_bytes());
        frame.extend(body);
        self.give(&frame);
    }

    fn segment(&mut self, from: (Ipv4Addr, u16), segment: &Seg, options: &[u8]) {
        let bytes = segment.with_options((from.1, LOCAL), options);
        self.packet(from.0, 6, &bytes);
    }

    fn echo(&mut self, from: Ipv4Addr) {
        self.packet(from, 1, &[8, 0, 0xf7, 0xfd, 0, 1, 0, 1]);
    }

    fn arp(&mut self, operation: u8, from: Ipv4Addr) {
        let mut arp = [&CARD[..], &THEM, &[8, 6, 0, 1, 8, 0, 6, 4, 0, operation], &THEM].concat();
        arp.extend(from.octets());
        arp.extend(CARD);
        arp.extend(ADDRESS.octets());
        self.give(&arp);
    }

    /// Takes the frames that the stack sends now, which the NIC has sent at once.
    fn out(&mut self) -> Vec<Out> {
        let mut out = Vec::new();
        while let Some(frame) = self.stack.next_frame(self.now) {
            self.stack.frame_sent(frame.id);
            let payload = frame.payload.iter().map(|piece| piece.length).sum();
            out.push(Out { header: frame.header.to_vec(), payload });
            self.take_events();
        }
        out
    }

    fn pass(&mut self, time: u64) {
        let end = self.now + time;
        while let Some(at) = self.stack.deadline().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.stack.poll(self.now);
            self.take_events();
            self.out();
            let next = self.stack.deadline();
            assert!(next.is_none_or(|next| next > self.now), "time stands still: {:#?}", self.stack);
        }
        self.now = end;
        self.stack.poll(end);
        self.take_events();
    }

    /// Opens a connection from the peer.
    fn accepted(&mut self, from: (Ipv4Addr, u16), options: &[u8]) -> Option<(Flow, u32)> {
        self.arp(1, from.0);
        self.out();
        self.segment(from, &Seg::new("S", 100, None), options);
        let answer = self.out().into_iter().find(Out::is_syn)?.sequence().wrapping_add(1);
        self.segment(from, &Seg { window: 65_535, ..Seg::new("", 101, answer) }, &[]);
        let flow = self.events.drain(..).find_map(|event| match event {
            Event::Accepted { flow, .. } => Some(flow),
            _ => None,
        })?;
        Some((flow, answer))
    }
}

fn host(n: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(ADDRESS.to_bits() + 1 + n % 60_000)
}

#[test]
fn echo_requests_of_hosts_that_are_not_there_keep_few_receive_buffers() {
    let mut link = Link::new(|_| {});
    for n in 0..2_000 {
        link.echo(host(n / 8));
    }
    let echoes = Limits::default().echoes;
    assert_eq!((link.lent, link.stack.usage().echoes), (echoes as i64, echoes));
    let replies = link.out();
    assert_eq!((replies.len(), link.lent), (echoes, 0), "no address is requested");
    assert!(replies.iter().all(|reply| reply.header[..6] == THEM && reply.header[34] == 0));
    assert_eq!(link.stack.usage(), Usage::default());
}

#[test]
fn connections_are_made_through_a_flood_of_strangers() {
    let mut link = Link::new(|_| {});
    let to = SocketAddrV4::new(Ipv4Addr::new(10, 0, 255, 9), 80);
    let flood = |link: &mut Link, round: u32| {
        for n in 0..2_000 {
            link.segment((host(round * 2_000 + n), 7), &Seg::new("S", 100, None), &[]);
            link.out();
        }
    };
    flood(&mut link, 0);
    assert_eq!(link.stack.usage().asked, Limits::default().neighbours);
    let flow = link.stack.connect(to, link.now).unwrap();
    assert!(link.out().iter().any(|frame| frame.is_arp() && frame.header[38..42] == to.ip().octets()));
    flood(&mut link, 1);
    link.arp(2, *to.ip());
    let out = link.out();
    assert!(out.iter().any(|frame| !frame.is_arp() && frame.header[30..34] == to.ip().octets()), "the SYN");
    // Sends to a host that does not exist, with the flood going on.
    let nobody = link.stack.connect(SocketAddrV4::new(Ipv4Addr::new(10, 0, 255, 8), 80), link.now).unwrap();
    for round in 2..14 {
        flood(&mut link, round);
        link.pass(SECOND / 2);
    }
    let closed = Event::Closed { flow: nobody, reason: Reason::Unreachable };
    assert!(link.events.contains(&closed), "it ends");
    link.stack.abort(flow);
    link.stack.unlisten(LOCAL);
    link.pass(60 * SECOND);
    link.out();
    assert_eq!(link.stack.usage(), Usage::default());
}

#[test]
fn bytes_that_are_acknowledged_here_and_there_cost_no_more_than_packets() {
    let mut link = Link::new(|_| {});
    let from = (host(3), 5000);
    let options = [2, 4, 5, 180, 1, 3, 3, 14, 1, 1, 4, 2];
    let (flow, first) = link.accepted(from, &options).unwrap();
    let (mut sent, mut block, mut acknowledged) = (0, 0, 0);
    // Acknowledged until much is in flight.
    for _ in 0..200 {
        while block < sent / 65_536 + 64 {
            block += 1;
            let piece = Piece { offset: 0, length: 65_536 };
            link.stack.send(flow, Chunk { piece, block, more: false }).unwrap();
        }
        sent += link.out().iter().map(|frame| u64::from(frame.payload)).sum::<u64>();
        if sent - acknowledged > 2 << 20 {
            break;
        }
        acknowledged = sent;
        link.now += 1_000_000;
        let window = Seg { window: 65_535, ..Seg::new("", 101, first.wrapping_add(acknowledged as u32)) };
        link.segment(from, &window, &[]);
    }
    let flight = sent - acknowledged;
    assert!(flight > 2 << 20, "{flight}");
    let packets = flight.div_ceil(1460) as usize;
    let base = first.wrapping_add(acknowledged as u32);
    let mut at = 2u32;
    while u64::from(at) + 8 < flight {
        let mut options = vec![1, 1, 5, 26];
        for _ in 0..3 {
            options.extend(base.wrapping_add(at).to_be_bytes());
            options.extend(base.wrapping_add(at + 1).to_be_bytes());
            at += 20;
        }
        link.segment(from, &Seg { window: 65_535, ..Seg::new("", 101, base) }, &options);
    }
    let kept = link.stack.usage().segments;
    assert!(kept <= packets, "{kept} segments of {packets} packets");
}

#[test]
fn connections_that_nobody_wants_any_more_make_room_and_end() {
    let mut link = Link::new(|_| {});
    let limits = Limits::default();
    for n in 0..limits.flows as u32 + 100 {
        let from = (host(3), 1000 + n as u16);
        let (flow, answer) = link.accepted(from, &[]).expect("there is room");
        // The peer acknowledges the end, and sends nothing more.
        link.stack.shutdown(flow);
        link.out();
        link.segment(from, &Seg::new("", 101, answer.wrapping_add(1)), &[]);
        link.stack.release(flow, link.now);
        assert!(link.stack.usage().orphans <= limits.orphans);
        link.out();
        link.now += 1_000;
    }
    assert_eq!(link.stack.usage().flows, limits.orphans);
    link.pass(61 * SECOND);
    link.out();
    assert_eq!(link.stack.usage().flows, 0);
}

#[test]
fn a_full_table_has_room_for_new_connections_while_others_are_on_their_way_out() {
    let mut link = Link::new(|config| config.limits.flows = 8);
    let flows: Vec<_> = (0..8).map(|n| link.accepted((host(3), 1000 + n), &[]).unwrap()).collect();
    assert_eq!(link.accepted((host(3), 2000), &[]), None);
    let to = SocketAddrV4::new(host(3), 9);
    assert_eq!(link.stack.connect(to, link.now), Err(ConnectError::Full));
    for (flow, _) in &flows[..2] {
        link.stack.shutdown(*flow);
        link.stack.release(*flow, link.now);
    }
    assert!(link.stack.connect(to, link.now).is_ok());
    assert!(link.accepted((host(3), 2000), &[]).is_some());
    assert_eq!(link.accepted((host(3), 2001), &[]), None, "the others are in use");
}

/// Keeps the window closed, and answers each probe of it: that can go on as long as the owner wants.
#[test]
fn a_peer_that_never_takes_the_rest_is_reset_once_nobody_waits_for_it() {
    let mut link = Link::new(|_| {});
    let from = (host(3), 5000);
    let (flow, answer) = link.accepted(from, &[]).unwrap();
    let closed = Seg { window: 0, ..Seg::new("", 101, answer) };
    link.segment(from, &closed, &[]);
    let piece = Piece { offset: 0, length: 1000 };
    link.stack.send(flow, Chunk { piece, block: 1, more: false }).unwrap();
    let hold_out = |link: &mut Link, time: u64| {
        for _ in 0..time {
            link.pass(SECOND);
            link.out();
            link.segment(from, &closed, &[]);
        }
    };
    hold_out(&mut link, 3600);
    assert_eq!(link.stack.usage().flows, 1, "the owner still has it");
    link.stack.shutdown(flow);
    link.stack.release(flow, link.now);
    hold_out(&mut link, 61);
    assert_eq!((link.stack.usage().flows, link.stack.usage().chunks), (0, 0));
}

/// Checks that under all floods at once, for hours, the stack never keeps more than its limits, and nothing when they end.
#[test]
fn floods_of_all_kinds_stay_within_their_bounds_for_hours() {
    let mut link = Link::new(|config| {
        config.limits = Limits {
            flows: 32,
            backlog: 16,
            orphans: 8,
            time_wait: 32,
            neighbours: 32,
            pending: 16,
            echoes: 4,
            held: 4,
            held_total: 32,
            ..Limits::default()
        };
        config.tcp.keep_alive = Some(600 * SECOND);
    });
    let mut random = crate::rig::Random(11);
    let mut flows: Vec<Accepted> = Vec::new();
    let mut most = Usage::default();
    let end = link.now + 3 * 3600 * SECOND;
    let mut block = 0;
    while link.now < end {
        let stranger = (host(random.below(2_000) as u32), 1 + random.below(60_000) as u16);
        match random.below(12) {
            0..3 => link.segment(stranger, &Seg::new("S", 100, None), &[2, 4, 5, 180, 1, 1, 4, 2]),
            3 => (0..8).for_each(|_| link.echo(stranger.0)),
            4 => link.arp(1 + random.below(2) as u8, stranger.0),
            5 => link.segment(stranger, &Seg::data(5, 7, 100), &[]),
            6 => flows
                .extend(link.accepted(stranger, &[2, 4, 5, 180, 1, 1, 4, 2]).map(|(a, b)| (a, stranger, b))),
            7 => _ = link.stack.connect(SocketAddrV4::new(stranger.0, 80), link.now),
            8 => {
                let time = random.below(20 * SECOND);
                link.pass(time);
            }
            _ if flows.is_empty() => {}
            9 => {
                let (flow, from, answer) = flows[random.below(flows.len() as u64) as usize];
                block += 1;
                let chunk = Chunk { piece: Piece { offset: 0, length: 60_000 }, block, more: false };
                let _ = link.stack.send(flow, chunk);
                link.out();
                let at = answer.wrapping_add(1 + random.below(9_000) as u32);
                let mut options = vec![1, 1, 5, 10];
                options.extend(at.to_be_bytes());
                options.extend(at.wrapping_add(random.below(2_000) as u32).to_be_bytes());
                link.segment(from, &Seg::new("", 101, answer), &options);
            }
            10 => {
                let (_, from, answer) = flows[random.below(flows.len() as u64) as usize];
                let seq = 101 + random.below(9_000) as u32;
                link.segment(from, &Seg::data(seq, answer, 1 + random.below(1_400) as u32), &[]);
            }
            _ => {
                let at = random.below(flows.len() as u64) as usize;
                let (flow, ..) = flows.swap_remove(at);
                link.stack.shutdown(flow);
                link.stack.release(flow, link.now);
            }
        }
        if random.below(4) > 0 {
            link.out();
        }
        link.take_events();
        let gone: Vec<Flow> = link.events.drain(..).filter_map(closed).collect();
        flows.retain(|(flow, ..)| !gone.contains(flow));
        let usage = link.stack.usage();
        assert!(usage.flows <= 32 && usage.orphans <= 8 && usage.time_wait <= 32, "{usage:?}");
        assert!(usage.echoes <= 4 && usage.asked <= 32 && usage.pending <= 16 + 8 * 32, "{usage:?}");
        assert!(usage.buffers <= 32 && usage.segments <= 2_000, "{usage:?}");
        assert_eq!(link.lent, (usage.buffers + usage.echoes) as i64, "every other receive buffer is back");
        most = Usage {
            flows: most.flows.max(usage.flows),
            orphans: most.orphans.max(usage.orphans),
            echoes: most.echoes.max(usage.echoes),
            asked: most.asked.max(usage.asked),
            buffers: most.buffers.max(usage.buffers),
            ..most
        };
    }
    let full = Usage { flows: 32, orphans: 8, echoes: 4, asked: 32, ..most };
    assert_eq!(most, full, "the flood was large");
    for (flow, ..) in flows {
        link.stack.abort(flow);
    }
    link.stack.unlisten(LOCAL);
    link.pass(3600 * SECOND);
    link.out();
    link.pass(SECOND);
    assert_eq!((link.stack.usage(), link.lent), (Usage::default(), 0));
}

fn closed(event: Event) -> Option<Flow> {
    match event {
        Event::Closed { flow, .. } => Some(flow),
        _ => None,
    }
}
