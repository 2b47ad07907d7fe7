//! Tests of the state machine, segment by segment, against a hand-made peer.

use crate::rig::forge::{Forge, LOCAL, Seg};
use crate::rig::pair::address;
use crate::rig::{MS, SECOND};
use dcs_net::{Chunk, ConnectError, Event, Flow, Piece, Reason, SendError, StreamPart};

/// The peer's initial sequence number: its data begin at 1001.
const ISN: u32 = 1000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    SynSent,
    SynReceived,
    Established,
    FinWait1,
    FinWait2,
    CloseWait,
    Closing,
    LastAck,
    TimeWait,
}

const STATES: [At; 9] = [
    At::SynSent,
    At::SynReceived,
    At::Established,
    At::FinWait1,
    At::FinWait2,
    At::CloseWait,
    At::Closing,
    At::LastAck,
    At::TimeWait,
];

/// A connection brought to a state, with our and the peer's next sequence numbers.
struct Case {
    forge: Forge,
    flow: Option<Flow>,
    ours: u32,
    theirs: u32,
}

fn accepted(events: &[Event]) -> Option<Flow> {
    events.iter().find_map(|event| match event {
        Event::Accepted { flow, .. } => Some(*flow),
        _ => None,
    })
}

fn bring(state: At) -> Case {
    let mut forge = Forge::new(|_| {});
    if state == At::SynSent {
        let flow = forge.stack.connect(address(1, 4000), forge.now).unwrap();
        let syn = forge.segment();
        assert_eq!((syn.flags, syn.ack), ("S", None));
        forge.ports = (4000, forge.stack.ends(flow).unwrap().0.port());
        return Case { forge, flow: Some(flow), ours: syn.seq.wrapping_add(1), theirs: ISN };
    }
    forge.stack.listen(LOCAL).unwrap();
    forge.send(Seg { mss: Some(1460), ..Seg::new("S", ISN, None) });
    let syn = forge.segment();
    assert_eq!((syn.flags, syn.ack), ("S", Some(ISN + 1)));
    let mut case = Case { forge, flow: None, ours: syn.seq.wrapping_add(1), theirs: ISN + 1 };
    if state == At::SynReceived {
        return case;
    }
    let Case { forge, ours, theirs, flow } = &mut case;
    forge.send(Seg::new("", *theirs, *ours));
    *flow = accepted(&forge.events());
    let flow = flow.unwrap();
    forge.stack.grant(flow, 10_000, forge.now);
    forge.segments();
    if state == At::Established {
        return case;
    }
    if matches!(state, At::CloseWait | At::LastAck) {
        forge.send(Seg::new("F", *theirs, *ours));
        *theirs += 1;
        assert_eq!(forge.segment(), Seg { window: forge_window(), ..Seg::new("", *ours, *theirs) });
        assert_eq!(forge.events(), [Event::Ended { flow, offset: 0 }]);
    }
    if state == At::CloseWait {
        return case;
    }
    forge.stack.shutdown(flow);
    assert_eq!(forge.segment().flags, "F");
    *ours = ours.wrapping_add(1);
    match state {
        At::FinWait1 | At::LastAck => {}
        At::Closing => {
            forge.send(Seg::new("F", *theirs, ours.wrapping_sub(1)));
            *theirs += 1;
        }
        _ => forge.send(Seg::new("", *theirs, *ours)),
    }
    if state == At::TimeWait {
        forge.send(Seg::new("F", *theirs, *ours));
        *theirs += 1;
        assert_eq!(forge.stack.usage().time_wait, 1);
    }
    forge.segments();
    forge.events();
    case
}

/// Returns the window of a peer that does not scale: 10,000 granted and 64 KiB of receive buffers exceed it.
fn forge_window() -> u16 {
    0xffff
}

#[test]
fn whether_the_end_of_a_stream_is_acknowledged_is_known() {
    for state in STATES {
        let Case { forge, flow, .. } = bring(state);
        let Some(flow) = flow else { continue };
        let sent = matches!(state, At::FinWait2 | At::TimeWait);
        assert_eq!(forge.stack.has_sent_all(flow), sent, "{state:?}");
    }
}

#[test]
fn a_reset_with_the_very_number_ends_every_state() {
    for state in STATES {
        let Case { mut forge, flow, ours, theirs } = bring(state);
        let ack = (state == At::SynSent).then_some(ours);
        forge.send(Seg::new("R", theirs, ack));
        let expected = match (state, flow) {
            // The owner does not know of it.
            (At::SynReceived, None) => vec![],
            // RFC 1337.
            (At::TimeWait, _) => vec![],
            (At::SynSent, Some(flow)) => vec![Event::Closed { flow, reason: Reason::Refused }],
            (_, Some(flow)) => vec![Event::Closed { flow, reason: Reason::Reset }],
            _ => panic!("{state:?} has no flow"),
        };
        assert_eq!(forge.events(), expected, "{state:?}");
        assert_eq!(forge.segments(), [], "{state:?}: a reset is not answered");
        assert_eq!(
            (forge.stack.usage().flows, forge.stack.usage().time_wait),
            (0, usize::from(state == At::TimeWait))
        );
        forge.assert_held(0);
    }
}

#[test]
fn a_reset_that_was_guessed_ends_none() {
    for state in STATES {
        let Case { mut forge, ours, theirs, .. } = bring(state);
        let usage = forge.stack.usage();
        // In the window, but not the next number: a challenge (RFC 5961, 3.2).
        let ack = (state == At::SynSent).then_some(ours.wrapping_add(1));
        forge.send(Seg::new("R", theirs.wrapping_add(5), ack));
        let answer = forge.segments();
        if matches!(state, At::SynSent | At::TimeWait) {
            assert_eq!(answer, [], "{state:?}");
        } else if state != At::SynReceived {
            assert_eq!((answer[0].ack, answer[0].flags), (Some(theirs), ""), "{state:?}");
        }
        // Outside of the window: nothing.
        forge.send(Seg::new("R", theirs.wrapping_sub(5), ack));
        forge.send(Seg::new("R", theirs.wrapping_add(1 << 30), ack));
        assert_eq!(forge.segments(), [], "{state:?}");
        assert_eq!((forge.events(), forge.stack.usage()), (vec![], usage), "{state:?}");
    }
}

#[test]
fn a_syn_or_an_acknowledgement_from_nowhere_is_challenged() {
    for state in [At::Established, At::FinWait1, At::FinWait2, At::CloseWait, At::Closing, At::LastAck] {
        let Case { mut forge, ours, theirs, .. } = bring(state);
        forge.send(Seg::new("S", theirs, None));
        assert_eq!(forge.segment().ack, Some(theirs), "{state:?}");
        forge.send(Seg::new("", theirs, ours.wrapping_add(100)));
        assert_eq!(forge.segment().ack, Some(theirs), "{state:?}");
        forge.send(Seg::new("", theirs, ours.wrapping_sub(1_000_000)));
        assert_eq!(forge.segment().ack, Some(theirs), "{state:?}");
        assert_eq!(forge.events(), [], "{state:?}");
        // No more than ten per second.
        (0..50).for_each(|_| forge.send(Seg::new("S", theirs, None)));
        (0..50).for_each(|_| assert!(forge.segments().len() <= 1));
        let challenges = forge.stack.statistics().challenges;
        assert!(challenges <= 10, "{challenges}");
    }
}

#[test]
fn both_open_at_once() {
    let Case { mut forge, flow, ours, .. } = bring(At::SynSent);
    forge.send(Seg { mss: Some(1460), ..Seg::new("S", ISN, None) });
    let answer = forge.segment();
    assert_eq!((answer.flags, answer.seq, answer.ack), ("S", ours.wrapping_sub(1), Some(ISN + 1)));
    forge.send(Seg::new("S", ISN, ours));
    assert_eq!(forge.events(), [Event::Connected { flow: flow.unwrap() }]);
    assert_eq!(forge.segment().ack, Some(ISN + 1));
}

#[test]
fn both_close_at_once() {
    let Case { mut forge, flow, ours, theirs } = bring(At::Closing);
    forge.send(Seg::new("", theirs, ours));
    assert_eq!(forge.events(), [Event::Closed { flow: flow.unwrap(), reason: Reason::Finished }]);
    assert_eq!(forge.stack.usage().time_wait, 1);
    // The last acknowledgement was lost.
    forge.send(Seg::new("F", theirs.wrapping_sub(1), ours));
    assert_eq!(forge.segment().ack, Some(theirs));
    forge.pass(61 * SECOND);
    assert_eq!(forge.stack.usage(), dcs_net::Usage::default());
    forge.send(Seg::new("", theirs, ours));
    assert_eq!(forge.segment(), Seg { window: 0, ..Seg::new("R", ours, None) });
}

#[test]
fn a_new_connection_may_follow_one_in_time_wait() {
    let Case { mut forge, theirs, .. } = bring(At::TimeWait);
    forge.send(Seg::new("S", theirs.wrapping_sub(10), None));
    assert_eq!(forge.segment().flags, "", "an old SYN is answered as anything old is");
    forge.send(Seg::new("S", theirs.wrapping_add(10), None));
    let answer = forge.segment();
    assert_eq!((answer.flags, answer.ack), ("S", Some(theirs.wrapping_add(11))));
    assert_eq!(forge.stack.usage().time_wait, 0);
}

#[test]
fn a_peer_that_is_not_there_or_refuses() {
    let Case { mut forge, flow, ours, .. } = bring(At::SynSent);
    forge.pass(200 * SECOND);
    assert_eq!(forge.events(), [Event::Closed { flow: flow.unwrap(), reason: Reason::TimedOut }]);
    let syns = forge.stack.statistics().timeouts;
    assert!((5..10).contains(&syns), "{syns}");
    let _ = ours;

    let to = address(1, 9).ip().octets();
    let nobody = std::net::SocketAddrV4::new([to[0], to[1], to[2], 77].into(), 9);
    let flow = forge.stack.connect(nobody, forge.now).unwrap();
    for _ in 0..6 {
        forge.frames();
        forge.pass(SECOND);
    }
    assert_eq!(forge.events(), [Event::Closed { flow, reason: Reason::Unreachable }]);
    let away = "192.168.1.1:9".parse().unwrap();
    assert_eq!(forge.stack.connect(away, forge.now), Err(ConnectError::Unreachable(away)));
    assert_eq!(forge.stack.usage(), dcs_net::Usage::default());
}

#[test]
fn data_are_acknowledged_at_once_for_two_segments_and_late_for_one() {
    let Case { mut forge, flow, ours, theirs } = bring(At::Established);
    let flow = flow.unwrap();
    forge.send(Seg::data(theirs, ours, 1000));
    assert_eq!(forge.segments(), []);
    forge.pass(41 * MS);
    assert_eq!(forge.segment().ack, Some(theirs + 1000));
    forge.send(Seg::data(theirs + 1000, ours, 1000));
    forge.send(Seg::data(theirs + 2000, ours, 1000));
    assert_eq!(forge.segment().ack, Some(theirs + 3000));
    // A hole, and what fills it.
    forge.send(Seg::data(theirs + 4000, ours, 1000));
    assert_eq!(forge.segment().ack, Some(theirs + 3000));
    forge.send(Seg::data(theirs + 3000, ours, 1000));
    assert_eq!(forge.segment().ack, Some(theirs + 5000));
    let offsets = |event: &Event| match event {
        Event::Deliver { offset, piece, .. } => (*offset, u64::from(piece.length)),
        Event::Received { offset, .. } => (*offset, 0),
        other => panic!("{other:?}"),
    };
    let got: Vec<_> = forge.events().iter().map(offsets).collect();
    let expected = [
        (0, 1000),
        (1000, 0),
        (1000, 1000),
        (2000, 0),
        (2000, 1000),
        (3000, 0),
        (4000, 1000),
        (3000, 1000),
        (5000, 0),
    ];
    assert_eq!(got, expected, "{flow:?}");
    forge.assert_held(0);
}

#[test]
fn what_was_not_granted_waits_in_its_receive_buffer() {
    let Case { mut forge, flow, ours, theirs } = bring(At::Established);
    let flow = flow.unwrap();
    for n in 0..15 {
        forge.send(Seg::data(theirs + n * 1000, ours, 1000));
        forge.segments();
    }
    // 10,000 are granted.
    assert_eq!(forge.events().last(), Some(&Event::Received { flow, offset: 10_000 }));
    forge.assert_held(5);
    forge.stack.grant(flow, 2_500, forge.now);
    let events = forge.events();
    assert_eq!(events.last(), Some(&Event::Received { flow, offset: 12_500 }));
    forge.assert_held(3);
    // Its end waits with it.
    forge.send(Seg::new("F", theirs + 15_000, ours));
    assert_eq!(forge.events(), [Event::Ended { flow, offset: 15_000 }]);
    forge.stack.shutdown(flow);
    assert_eq!(forge.segment().flags, "F");
    forge.send(Seg::new("", theirs + 15_001, ours.wrapping_add(1)));
    assert_eq!(forge.events(), [], "the bytes are still wanted");
    forge.stack.grant(flow, 2_500, forge.now);
    let events = forge.events();
    assert_eq!(events.last(), Some(&Event::Closed { flow, reason: Reason::Finished }));
    assert!(events.contains(&Event::Received { flow, offset: 15_000 }));
    forge.assert_held(0);
}

#[test]
fn receive_buffers_are_bounded() {
    let mut forge = Forge::new(|config| {
        config.limits.held = 20;
        config.limits.ranges = 30;
    });
    forge.stack.listen(LOCAL).unwrap();
    forge.send(Seg::new("S", ISN, None));
    let (ours, theirs) = (forge.segment().seq.wrapping_add(1), ISN + 1);
    forge.send(Seg::new("", theirs, ours));
    let flow = accepted(&forge.events());
    forge.stack.grant(flow.unwrap(), 10_000, forge.now);
    // In the granted part they are ranges; beyond it, buffers.
    for n in 1..1000 {
        forge.send(Seg::data(theirs + n * 2, ours, 1));
        forge.segments();
    }
    assert_eq!((forge.stack.usage().buffers, forge.events().len()), (0, 30));
    forge.send(Seg::data(theirs, ours, 9000));
    forge.segments();
    forge.events();
    for n in 0..1000 {
        forge.send(Seg::data(theirs + 10_000 + n * 2, ours, 1));
        forge.segments();
    }
    assert_eq!(forge.stack.usage().buffers, 20);
    forge.stack.abort(flow.unwrap());
    assert_eq!(forge.segment().flags, "R");
    forge.events();
    forge.assert_held(0);
}

#[test]
fn old_timestamps_are_refused() {
    let mut forge = Forge::new(|_| {});
    forge.stack.listen(LOCAL).unwrap();
    let stamp = u32::MAX - 10;
    forge.send(Seg { stamp: Some((stamp, 0)), ..Seg::new("S", ISN, None) });
    let ours = forge.segment().seq.wrapping_add(1);
    let data = |seq, value: u32| Seg { stamp: Some((value, 0)), ..Seg::data(seq, ours, 100) };
    forge.send(Seg { stamp: Some((stamp, 0)), ..Seg::new("", ISN + 1, ours) });
    let flow = accepted(&forge.events()).unwrap();
    forge.stack.grant(flow, 10_000, forge.now);
    forge.segments();
    // The clock wraps.
    forge.send(data(ISN + 1, stamp.wrapping_add(100)));
    forge.pass(50 * MS);
    assert_eq!(forge.segment().ack, Some(ISN + 101));
    assert_eq!(forge.events().len(), 2);
    forge.send(data(ISN + 101, stamp));
    assert_eq!((forge.segment().ack, forge.events()), (Some(ISN + 101), vec![]));
    forge.send(Seg { stamp: None, ..data(ISN + 101, 0) });
    assert_eq!((forge.events(), forge.stack.statistics().old_timestamps), (vec![], 2));
    forge.segments();
    forge.send(data(ISN + 101, stamp.wrapping_add(101)));
    assert_eq!(forge.events().len(), 2);
}

fn chunk(block: u64, length: u32, more: bool) -> Chunk {
    Chunk { piece: Piece { offset: block << 20, length }, block, more }
}

#[test]
fn a_small_segment_waits_for_more_but_not_forever() {
    let Case { mut forge, flow, ours, .. } = bring(At::Established);
    let flow = flow.unwrap();
    forge.stack.send(flow, chunk(1, 100, true)).unwrap();
    assert_eq!(forge.segments(), []);
    forge.stack.send(flow, chunk(2, 100, false)).unwrap();
    let segment = forge.segment();
    assert_eq!((segment.seq, segment.length), (ours, 200));
    forge.send(Seg::new("", ISN + 1, ours.wrapping_add(200)));
    forge.stack.send(flow, chunk(3, 100, true)).unwrap();
    assert_eq!(forge.segments(), []);
    forge.pass(250 * MS);
    assert_eq!(forge.segment().length, 100);
}

#[test]
fn a_closed_window_is_probed_until_it_opens() {
    let Case { mut forge, flow, ours, theirs } = bring(At::Established);
    let flow = flow.unwrap();
    forge.send(Seg { window: 0, ..Seg::new("", theirs, ours) });
    forge.stack.send(flow, chunk(1, 1000, false)).unwrap();
    assert_eq!(forge.segments(), []);
    let mut probes = 0;
    for _ in 0..300 {
        forge.pass(SECOND);
        for probe in forge.segments() {
            assert_eq!((probe.seq, probe.length), (ours.wrapping_sub(1), 0), "no byte outside of the window");
            forge.send(Seg { window: 0, ..Seg::new("", theirs, ours) });
            probes += 1;
        }
    }
    assert!((8..30).contains(&probes), "{probes}");
    assert_eq!(forge.events(), [], "a peer that answers is not given up");
    forge.send(Seg { window: 500, ..Seg::new("", theirs, ours) });
    assert_eq!(forge.segments(), []);
    forge.pass(SECOND);
    assert_eq!(forge.segment().length, 500, "a silly window, after some patience");
    forge.send(Seg { window: 5000, ..Seg::new("", theirs, ours.wrapping_add(500)) });
    assert_eq!(forge.segment().length, 500);
    forge.send(Seg { window: 5000, ..Seg::new("", theirs, ours.wrapping_add(1000)) });
    assert!(forge.events().contains(&Event::Free { owner: dcs_net::Owner::Flow(flow), block: 1 }));
}

#[test]
fn an_idle_peer_is_probed_and_given_up_where_asked_for() {
    let mut forge = Forge::new(|config| config.tcp.keep_alive = Some(30 * SECOND));
    forge.stack.listen(LOCAL).unwrap();
    forge.send(Seg::new("S", ISN, None));
    let ours = forge.segment().seq.wrapping_add(1);
    forge.send(Seg::new("", ISN + 1, ours));
    let flow = accepted(&forge.events()).unwrap();
    for _ in 0..10 {
        forge.pass(31 * SECOND);
        assert_eq!(forge.segment().seq, ours.wrapping_sub(1));
        forge.send(Seg::new("", ISN + 1, ours));
    }
    assert_eq!(forge.events(), []);
    for _ in 0..200 {
        forge.pass(SECOND);
        forge.segments();
    }
    assert_eq!(forge.events(), [Event::Closed { flow, reason: Reason::TimedOut }]);
}

#[test]
fn a_flood_of_syns_is_bounded_and_passes() {
    let mut forge = Forge::new(|config| config.limits.backlog = 10);
    forge.stack.listen(LOCAL).unwrap();
    for port in 1..1000 {
        forge.ports.0 = port;
        forge.send(Seg::new("S", ISN, None));
        forge.segments();
    }
    assert_eq!((forge.stack.usage().flows, forge.stack.statistics().backlog_dropped), (10, 989));
    forge.ports.0 = 5000;
    forge.send(Seg::new("S", ISN, None));
    let ours = forge.segment().seq.wrapping_add(1);
    forge.send(Seg::new("", ISN + 1, ours));
    let flow = accepted(&forge.events()).unwrap();
    for _ in 0..200 {
        forge.pass(SECOND);
        forge.segments();
    }
    assert_eq!((forge.events(), forge.stack.usage().flows), (vec![], 1), "only the real one is left");
    forge.stack.unlisten(LOCAL);
    forge.ports.0 = 5001;
    forge.send(Seg::new("S", ISN, None));
    assert_eq!(forge.segment(), Seg { window: 0, ..Seg::new("R", 0, ISN + 1) });
    forge.stack.abort(flow);
    forge.segments();
    assert_eq!(forge.stack.usage(), dcs_net::Usage::default());
}

fn piece(offset: u64, length: u32) -> Piece {
    Piece { offset, length }
}

#[test]
fn done_is_not_free() {
    let Case { mut forge, flow, ours, theirs } = bring(At::Established);
    let flow = flow.unwrap();
    let free = Event::Free { owner: dcs_net::Owner::Flow(flow), block: 7 };
    let chunk = Chunk { piece: piece(4096, 1000), block: 7, more: false };
    assert_eq!(forge.stack.send(flow, chunk), Ok(0));
    let frame = forge.stack.next_frame(forge.now).unwrap();
    assert_eq!((&frame.payload[..], forge.events()), (&[piece(4096, 1000)][..], vec![]));
    forge.stack.frame_sent(frame.id);
    assert_eq!(forge.events(), [Event::Sent { flow, offset: 1000 }]);
    forge.stack.frame_sent(frame.id);
    assert_eq!(forge.events(), [], "a frame is sent once");
    forge.send(Seg::new("", theirs, ours.wrapping_add(1000)));
    assert_eq!(forge.events(), [free, Event::Acknowledged { flow, offset: 1000 }]);
}

#[test]
fn a_frame_that_has_left_is_sent_and_keeps_its_blocks() {
    let Case { mut forge, flow, ours, theirs } = bring(At::Established);
    let flow = flow.unwrap();
    forge.stack.send(flow, Chunk { piece: piece(4096, 1000), block: 7, more: false }).unwrap();
    forge.stack.send(flow, Chunk { piece: piece(8192, 500), block: 8, more: false }).unwrap();
    let frame = forge.stack.next_frame(forge.now).unwrap();
    let part = |offset| Some(StreamPart { flow, offset, most: 1460 });
    assert_eq!(frame.stream, part(0));
    forge.stack.frame_left(frame.id);
    assert_eq!(forge.events(), [Event::Sent { flow, offset: 1460 }]);
    forge.stack.frame_left(frame.id);
    let rest = forge.stack.next_frame(forge.now).unwrap();
    assert_eq!((rest.stream, forge.events()), (part(1460), vec![]));
    forge.stack.frame_sent(rest.id);
    assert_eq!(forge.events(), [Event::Sent { flow, offset: 1500 }]);
    forge.send(Seg::new("", theirs, ours.wrapping_add(1500)));
    let free = |block| Event::Free { owner: dcs_net::Owner::Flow(flow), block };
    assert_eq!(forge.events(), [Event::Acknowledged { flow, offset: 1500 }]);
    forge.stack.frame_sent(frame.id);
    assert_eq!(forge.events(), [free(7), free(8)]);
    // Frames without data have no place in the stream.
    forge.stack.shutdown(flow);
    assert_eq!(forge.stack.next_frame(forge.now).unwrap().stream, None);
}

#[test]
fn what_is_lost_is_sent_again_from_its_block() {
    let Case { mut forge, flow, ours, theirs } = bring(At::Established);
    let flow = flow.unwrap();
    forge.stack.send(flow, Chunk { piece: piece(4096, 2000), block: 7, more: false }).unwrap();
    forge.segments();
    // Two segments, each reported when it is sent.
    let sent = |offset| Event::Sent { flow, offset };
    assert_eq!(forge.events(), [sent(1460), sent(2000)]);
    forge.pass(2 * SECOND);
    let frame = forge.stack.next_frame(forge.now).unwrap();
    assert_eq!((&frame.payload[..], forge.events()), (&[piece(4096, 1460)][..], vec![]));
    assert_eq!(u32::from_be_bytes(frame.header[38..42].try_into().unwrap()), ours);
    // The peer had all of it: the block is free when the NIC is done with it, not before.
    forge.send(Seg::new("", theirs, ours.wrapping_add(2000)));
    assert_eq!(forge.events(), [Event::Acknowledged { flow, offset: 2000 }]);
    forge.stack.frame_sent(frame.id);
    assert_eq!(forge.events(), [Event::Free { owner: dcs_net::Owner::Flow(flow), block: 7 }]);
}

#[test]
fn an_abort_leaves_the_nic_its_blocks() {
    let Case { mut forge, flow, .. } = bring(At::Established);
    let flow = flow.unwrap();
    forge.stack.send(flow, chunk(1, 1000, false)).unwrap();
    forge.stack.send(flow, chunk(2, 1000, false)).unwrap();
    let frame = forge.stack.next_frame(forge.now).unwrap();
    forge.stack.abort(flow);
    let free = |block| Event::Free { owner: dcs_net::Owner::Flow(flow), block };
    let closed = Event::Closed { flow, reason: Reason::Aborted };
    assert_eq!(frame.payload, [piece(1 << 20, 1000), piece(2 << 20, 460)]);
    assert_eq!(forge.events(), [closed]);
    assert_eq!(forge.segment().flags, "R");
    forge.stack.frame_sent(frame.id);
    assert_eq!(forge.events(), [free(1), free(2)]);
    assert_eq!(forge.stack.send(flow, chunk(3, 1, false)), Err(SendError::Gone));
    assert_eq!(forge.stack.usage(), dcs_net::Usage::default());
}
