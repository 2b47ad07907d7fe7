//! Tests with a peer that has a raw socket: its segments are nonsense, contradict each other or are forged. Whatever it sends, no byte is
//! delivered twice or where it was not granted, no block is freed before its bytes are acknowledged, and well-behaved peers are not
//! affected.

use crate::rig::SECOND;
use crate::rig::forge::{Forge, LOCAL, REMOTE, Seg};
use crate::rig::pair::ADDRESSES;
use dcs_net::{Chunk, Event, Flow, Owner, Piece, Reason, Verdict};
use dcs_testkit::Random;
use smoltcp::wire::IpProtocol;

/// The peer's initial sequence number: its data begin at 1001.
const ISN: u32 = 1000;
const FIRST: u32 = ISN + 1;
/// Bytes that the peer may send.
const GRANTED: u32 = 20_000;

/// Opens a connection; returns it with our next sequence number.
fn established() -> (Forge, Flow, u32) {
    established_with(&[])
}

/// Opens a connection whose SYN had these options.
fn established_with(options: &[u8]) -> (Forge, Flow, u32) {
    let mut forge = Forge::new(|_| {});
    forge.stack.listen(LOCAL).unwrap();
    forge.packet(IpProtocol::Tcp, &Seg::new("S", ISN, None).with_options((REMOTE, LOCAL), options));
    let syn = forge.segment();
    assert_eq!((syn.flags, syn.ack), ("S", Some(FIRST)), "{options:?}");
    let ours = syn.seq.wrapping_add(1);
    forge.send(Seg::new("", FIRST, ours));
    let flow = forge.events().iter().find_map(|event| match event {
        Event::Accepted { flow, .. } => Some(*flow),
        _ => None,
    });
    let flow = flow.unwrap_or_else(|| panic!("it is open: {options:?}"));
    forge.stack.grant(flow, GRANTED.into(), forge.now);
    forge.segments();
    forge.events();
    (forge, flow, ours)
}

/// Has the stack send this many bytes of block 7; returns the lengths of the segments.
fn send(forge: &mut Forge, flow: Flow, length: u32) -> Vec<u32> {
    let chunk = Chunk { piece: Piece { offset: 4096, length }, block: 7, more: false };
    forge.stack.send(flow, chunk).unwrap();
    let lengths = forge.segments().iter().map(|segment| segment.length).collect();
    forge.events();
    lengths
}

fn free(flow: Flow) -> Event {
    Event::Free { owner: Owner::Flow(flow), block: 7 }
}

/// Checks that the connection still works.
fn works(forge: &mut Forge, flow: Flow, ours: u32, theirs: u32) {
    forge.send(Seg::data(theirs, ours, 100));
    let received = u64::from(theirs - FIRST) + 100;
    assert!(forge.events().contains(&Event::Received { flow, offset: received }));
    let chunk = Chunk { piece: Piece { offset: 0, length: 50 }, block: 9, more: false };
    forge.stack.send(flow, chunk).unwrap();
    assert!(forge.segments().iter().any(|segment| segment.length == 50));
    forge.send(Seg::new("", theirs + 100, ours.wrapping_add(50)));
    assert!(forge.events().contains(&Event::Free { owner: Owner::Flow(flow), block: 9 }));
}

/// Options that are cut off, too long, of no length, or contain impossible values, padded to whole words by bytes that would continue them.
const OPTIONS: [&[u8]; 18] = [
    &[2, 0, 0, 0],
    &[2, 1, 5, 180],
    &[2, 4, 0, 0],
    &[2, 4, 0, 1],
    &[2, 4, 255, 255],
    &[2, 40, 5, 180],
    &[3, 3, 255, 1],
    &[3, 2, 7, 0],
    &[8, 10, 1, 1],
    &[8, 4, 1, 1],
    &[1, 1, 4, 9],
    &[1, 1, 5, 2],
    &[1, 1, 5, 3],
    &[5, 255, 0, 0],
    &[255, 0, 255, 0],
    &[254, 2, 254, 2],
    &[0, 2, 4, 5],
    &[1; 40],
];

#[test]
fn malformed_options_open_a_connection_that_works() {
    for options in OPTIONS {
        let (mut forge, flow, ours) = established_with(options);
        let lengths = send(&mut forge, flow, 1000);
        assert!(
            !lengths.is_empty() && lengths.iter().all(|length| (64..=1460).contains(length)),
            "{options:?}: {lengths:?}"
        );
        forge.send(Seg::new("", FIRST, ours.wrapping_add(lengths.iter().sum())));
        forge.segments();
        forge.stack.abort(flow);
        forge.segments();
        forge.events();
        forge.assert_held(0);
    }
}

#[test]
fn malformed_options_harm_no_open_connection() {
    let (mut forge, flow, ours) = established();
    for (options, at) in OPTIONS.iter().zip(0..) {
        let segment = Seg::data(FIRST + at * 10, ours, 10);
        forge.packet(IpProtocol::Tcp, &segment.with_options((REMOTE, LOCAL), options));
        let events = forge.events();
        assert!(
            events.contains(&Event::Received { flow, offset: u64::from(at + 1) * 10 }),
            "{options:?}: {events:?}"
        );
        forge.segments();
    }
    works(&mut forge, flow, ours, FIRST + OPTIONS.len() as u32 * 10);
}

/// Sends a header that is too short, longer than its segment, or a segment that is longer than its packet.
#[test]
fn malformed_headers_are_counted_and_dropped() {
    let (mut forge, flow, ours) = established();
    let usage = forge.stack.usage();
    let whole = Seg::data(FIRST, ours, 100).with_options((REMOTE, LOCAL), &[]);
    for words in 0..16u8 {
        if words == 5 {
            continue;
        }
        let mut bytes = whole[..20].to_vec();
        bytes[12] = words << 4 | bytes[12] & 0xf;
        forge.packet(IpProtocol::Tcp, &bytes);
    }
    (0..20).for_each(|length| forge.packet(IpProtocol::Tcp, &whole[..length]));
    assert_eq!((forge.segments(), forge.events(), forge.stack.usage()), (vec![], vec![], usage));
    assert_eq!(forge.stack.statistics().malformed, 15 + 20);
    forge.assert_held(0);
    works(&mut forge, flow, ours, FIRST);
}

/// Bytes of the stream that were put somewhere, each once.
#[derive(Default)]
struct Got(Vec<(u64, u64)>);

impl Got {
    fn take(&mut self, events: &[Event]) {
        for event in events {
            if let Event::Deliver { offset, piece, .. } = event {
                let range = (*offset, offset + u64::from(piece.length));
                assert!(range.1 <= u64::from(GRANTED), "it was not granted: {range:?}");
                let twice = self.0.iter().find(|other| other.0 < range.1 && range.0 < other.1);
                assert_eq!(twice, None, "delivered twice: {range:?}");
                self.0.push(range);
            }
        }
    }

    fn bytes(&self) -> u64 {
        self.0.iter().map(|(start, end)| end - start).sum()
    }
}

#[test]
fn of_segments_that_overlap_each_byte_is_delivered_once() {
    for seed in 1..200 {
        let (mut forge, flow, ours) = established();
        let (mut chance, mut got) = (Random(seed), Got::default());
        for _ in 0..60 {
            // Some begin before what has arrived, some end beyond what was granted.
            let start = chance.below(u64::from(GRANTED) + 2000) as u32;
            let segment = Seg::data((FIRST - 1000).wrapping_add(start), ours, chance.below(1460) as u32 + 1);
            forge.send(segment);
            got.take(&forge.events());
            forge.segments();
        }
        // The rest, in order.
        for start in (0..GRANTED).step_by(1000) {
            forge.send(Seg::data(FIRST + start, ours, 1000));
            got.take(&forge.events());
            forge.segments();
        }
        assert_eq!(got.bytes(), GRANTED.into(), "seed {seed}");
        forge.stack.abort(flow);
        forge.segments();
        forge.events();
        forge.assert_held(0);
    }
}

#[test]
fn an_end_that_lies_before_what_has_come_ends_nothing() {
    let (mut forge, flow, ours) = established();
    forge.send(Seg::data(FIRST, ours, 1000));
    forge.events();
    // Within the bytes that have arrived, and behind the place of an earlier one.
    forge.send(Seg { length: 100, ..Seg::new("F", FIRST + 200, ours) });
    assert_eq!(forge.events(), []);
    forge.send(Seg { length: 500, ..Seg::new("F", FIRST + 1500, ours) });
    forge.send(Seg { length: 100, ..Seg::new("F", FIRST + 1500, ours) });
    let events = forge.events();
    assert!(events.iter().all(|event| !matches!(event, Event::Closed { .. })), "{events:?}");
    forge.send(Seg::data(FIRST + 1000, ours, 500));
    let mut events = forge.events();
    forge.segments();
    // One of the two, reported once.
    events.retain(|event| matches!(event, Event::Ended { .. }));
    assert!(events.len() <= 1, "{events:?}");
    forge.stack.abort(flow);
    forge.segments();
    forge.events();
    forge.assert_held(0);
}

#[test]
fn flags_that_do_not_go_together_do_nothing() {
    let (mut forge, flow, ours) = established();
    let usage = forge.stack.usage();
    for flags in ["SF", "SR", "SFR", "SFRP", "SFP"] {
        for (ports, seq) in [((REMOTE, LOCAL), FIRST), ((REMOTE + 1, LOCAL), ISN), ((REMOTE, LOCAL + 1), ISN)]
        {
            forge.ports = ports;
            for ack in [None, Some(ours)] {
                forge.send(Seg { length: 10, ..Seg::new(flags, seq, ack) });
                forge.send(Seg::new(flags, seq, ack));
                assert_eq!((forge.segments(), forge.events()), (vec![], vec![]), "{flags} {ports:?} {ack:?}");
            }
        }
    }
    // Without ACK a segment of a connection means nothing: data, an end, or neither.
    forge.ports = (REMOTE, LOCAL);
    for flags in ["", "F", "P", "FP"] {
        forge.send(Seg { length: 10, ..Seg::new(flags, FIRST, None) });
        assert_eq!(forge.events(), [], "{flags}");
    }
    forge.segments();
    assert_eq!(forge.stack.usage(), usage);
    forge.assert_held(0);
    works(&mut forge, flow, ours, FIRST);
}

#[test]
fn a_window_that_closes_and_a_reset_give_all_blocks_back() {
    let (mut forge, flow, ours) = established();
    let sent: u32 = send(&mut forge, flow, 60_000).iter().sum();
    assert!(sent < 60_000, "the window is too small for everything");
    // Half of it is acknowledged, and there is no more room; then the peer shrinks even that.
    forge.send(Seg { window: 0, ..Seg::new("", FIRST, ours.wrapping_add(sent / 2)) });
    assert_eq!(forge.events(), [Event::Acknowledged { flow, offset: (sent / 2).into() }]);
    forge.pass(10 * SECOND);
    assert!(forge.segments().iter().all(|segment| segment.length <= 1460));
    forge.events();
    forge.send(Seg { window: 0, ..Seg::new("R", FIRST, ours.wrapping_add(sent / 2)) });
    let events = forge.events();
    assert_eq!(events.len(), 2, "{events:?}");
    assert!(events.contains(&Event::Closed { flow, reason: Reason::Reset }) && events.contains(&free(flow)));
    assert_eq!((forge.segments(), forge.stack.usage()), (vec![], dcs_net::Usage::default()));
    forge.assert_held(0);
}

#[test]
fn what_was_not_sent_cannot_be_acknowledged() {
    // The second knows selective acknowledgements.
    for options in [&[][..], &[1, 1, 4, 2]] {
        let (mut forge, flow, ours) = established_with(options);
        let sent: u32 = send(&mut forge, flow, 60_000).iter().sum();
        for beyond in [1, 1000, 60_000, 1 << 30, 1 << 31] {
            let ack = ours.wrapping_add(sent).wrapping_add(beyond);
            forge.send(Seg::new("", FIRST, ack));
            forge.send(Seg::data(FIRST, ack, 100));
            // Ranges of it, and one that ends before it begins, with an acknowledgement that is right.
            for range in [(ack, ack.wrapping_add(500)), (ours, ack), (ack, ours)] {
                let bytes = [[1, 1, 5, 10], range.0.to_be_bytes(), range.1.to_be_bytes()].concat();
                let segment = Seg::new("", FIRST, ours).with_options((REMOTE, LOCAL), &bytes);
                forge.packet(IpProtocol::Tcp, &segment);
            }
            // The stack may only send more, or send again.
            forge.segments();
            let events = forge.events();
            assert!(events.iter().all(|event| matches!(event, Event::Sent { .. })), "{beyond}: {events:?}");
        }
        assert_eq!(forge.stack.usage().flows, 1);
        forge.send(Seg::new("", FIRST, ours.wrapping_add(sent)));
        assert!(forge.events().contains(&Event::Acknowledged { flow, offset: sent.into() }));
    }
}

/// Sends errors as a router would, with quotes of this very connection.
#[test]
fn errors_with_forged_quotes_do_nothing() {
    let (mut forge, flow, ours) = established();
    let sent: u32 = send(&mut forge, flow, 60_000).iter().sum();
    let usage = forge.stack.usage();
    for (kind, codes) in [(3, 0..16u8), (4, 0..1), (5, 0..4), (11, 0..2), (12, 0..3), (13, 0..1), (255, 0..1)]
    {
        for code in codes {
            // A next hop's MTU: zero, tiny, or another gateway.
            for rest in [[0, 0, 0, 0], [0, 0, 0, 68], [10, 0, 0, 99]] {
                let mut quote = vec![0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0];
                quote.extend(ADDRESSES[0].octets());
                quote.extend(ADDRESSES[1].octets());
                quote.extend(Seg::new("", ours, FIRST).with_options((LOCAL, REMOTE), &[]));
                for length in [0, 8, 20, 28, quote.len()] {
                    let error = [&[kind, code, 0, 0][..], &rest, &quote[..length]].concat();
                    forge.packet(IpProtocol::Icmp, &error);
                }
            }
        }
    }
    assert_eq!((forge.frames(), forge.events(), forge.stack.usage()), (vec![], vec![], usage));
    forge.assert_held(0);
    forge.send(Seg::new("", FIRST, ours.wrapping_add(sent)));
    assert_eq!(forge.events(), [Event::Acknowledged { flow, offset: sent.into() }]);
    // To the same place as before, in segments as long as before.
    let frames = forge.frames();
    assert!(!frames.is_empty() && frames.iter().all(|(header, _)| header[..6] == [2, 0, 0, 0, 0, 2]));
    assert!(frames.iter().any(|(_, payload)| *payload >= 536));
}

#[test]
fn wrong_checksums_are_counted_and_dropped() {
    let (mut forge, flow, ours) = established();
    let before = forge.stack.statistics().checksum_errors;
    // TCP's checksum, which the NIC checks.
    forge.verdict = Verdict::Bad;
    forge.send(Seg::data(FIRST, ours, 100));
    forge.send(Seg::new("R", FIRST, ours));
    forge.send(Seg::new("S", FIRST, None));
    forge.verdict = Verdict::Good;
    // IP's checksum.
    forge.damaged = true;
    forge.send(Seg::data(FIRST, ours, 100));
    forge.send(Seg::new("R", FIRST, ours));
    forge.damaged = false;
    assert_eq!((forge.segments(), forge.events()), (vec![], vec![]));
    assert_eq!(forge.stack.statistics().checksum_errors - before, 5);
    forge.assert_held(0);
    works(&mut forge, flow, ours, FIRST);
}
