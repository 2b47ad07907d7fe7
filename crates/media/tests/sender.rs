//! Tests of the sender's promises: order, times, joins, and the refusal of bytes that are not a transport stream.

use dcs_media::clock::Pacing;
use dcs_media::rtp::{HEADER, Header};
use dcs_media::sender::{Error, LATE_AFTER, SLIP, Sender, Settings};
use dcs_media::ts::{self, PACKET, PAYLOAD, Packet};
use dcs_media::{Framing, Nanos, Receiver};
use proptest::prelude::*;

/// Makes a stream of this many packets with a clock reference in every `every`th, each packet this many ticks long.
fn stream(packets: u64, every: u64, ticks: u64, first: u64) -> Vec<u8> {
    let mut counter = 0u8;
    let packet = |number: u64| {
        let pcr = number.is_multiple_of(every).then_some(first + number * ticks);
        if pcr.is_none() {
            counter = (counter + 1) & 15;
        }
        ts::make(0x100, counter, pcr, number as u8)
    };
    (0..packets).flat_map(packet).collect()
}

/// Sends everything, each datagram at its time; records times and bytes.
fn drain(sender: &mut Sender, out: &mut Vec<(Nanos, Vec<u8>)>) {
    while let Some(due) = sender.next_due() {
        let Some(batch) = sender.batch(due, due) else { panic!("nothing at {due}") };
        let (size, count) = (batch.size, batch.count);
        out.extend(batch.bytes.chunks(size).map(|datagram| (due, datagram.to_vec())));
        sender.sent(count, due);
    }
}

/// Gives a sender bytes in pieces, and takes due datagrams whenever it has no room.
fn feed(sender: &mut Sender, bytes: &[u8], piece: usize, out: &mut Vec<(Nanos, Vec<u8>)>) {
    for piece in bytes.chunks(piece) {
        let mut rest = piece;
        while !rest.is_empty() {
            let now = out.last().map_or(1000, |(at, _)| *at);
            rest = &rest[sender.push(rest, now).unwrap()..];
            if !rest.is_empty() {
                drain(sender, out);
            }
        }
    }
}

fn rtp() -> Settings {
    let first = Header { sequence: 65_500, timestamp: u32::MAX - 5, ssrc: 77, ..Header::default() };
    Settings { framing: Framing::Rtp, first, ..Settings::default() }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Checks that with any pieces, every datagram has seven whole packets except the last, all bytes arrive unchanged, and each is due at
    /// the time of the clock references.
    #[test]
    fn every_byte_goes_out_at_its_time(
        packets in 10u64..3000, every in 2u64..400, ticks in 100u64..60_000, first in 0..ts::WRAP, piece in 1usize..5000,
    ) {
        let bytes = stream(packets, every.min(packets - 1), ticks.min(ts::CLOCK / every), first);
        let ticks = ticks.min(ts::CLOCK / every);
        let mut sender = Sender::new(rtp());
        sender.begin(Pacing::Pcr);
        let mut out = Vec::new();
        feed(&mut sender, &bytes, piece, &mut out);
        sender.end(false, out.last().map_or(1000, |(at, _)| *at)).unwrap();
        drain(&mut sender, &mut out);
        prop_assert!(sender.is_empty());
        let start = out[0].0;
        let mut receiver = Receiver::new(Framing::Rtp, 0);
        for (number, (at, datagram)) in out.iter().enumerate() {
            prop_assert_eq!((datagram.len() - HEADER) % PACKET, 0);
            prop_assert!(datagram.len() == HEADER + PAYLOAD || number == out.len() - 1);
            let ideal = number as u64 * 7 * ticks * 1000 / 27;
            prop_assert!((at - start).abs_diff(ideal) <= 2_000, "{} is due at {}, not {}", number, at - start, ideal);
            let (header, _) = Header::parse(datagram).unwrap();
            let expected = (u32::MAX - 5).wrapping_add(((at - start) * 9 / 100_000) as u32);
            prop_assert_eq!((header.timestamp, header.marker, header.ssrc), (expected, false, 77));
            receiver.put(datagram, *at);
        }
        let mut received = vec![0; bytes.len() + 1];
        let count = receiver.read(&mut received);
        prop_assert!(received[..count] == bytes);
        let counted = sender.statistics();
        prop_assert_eq!((counted.datagrams, counted.bytes), (out.len() as u64, bytes.len() as u64));
        prop_assert_eq!((counted.late, counted.slips, counted.lost, counted.jumps, counted.skipped), (0, 0, 0, 0, 0));
    }

    /// Joins files: no gap of a counter, no pause, the new clock is announced.
    #[test]
    fn joins_leave_no_gap(files in prop::collection::vec(20u64..200, 2..8), piece in 1usize..5000) {
        let mut sender = Sender::new(Settings::default());
        let mut out = Vec::new();
        for (at, packets) in files.iter().enumerate() {
            sender.begin(Pacing::Pcr);
            feed(&mut sender, &stream(*packets, 10, 2700, at as u64 * 999_999), piece, &mut out);
            let more = at + 1 < files.len();
            sender.end(more, out.last().map_or(1000, |(at, _)| *at)).unwrap();
        }
        drain(&mut sender, &mut out);
        let bytes: Vec<u8> = out.iter().flat_map(|(_, datagram)| datagram.clone()).collect();
        let total: u64 = files.iter().sum();
        prop_assert_eq!(bytes.len() as u64, total * PACKET as u64);
        let (mut counter, mut announced) = (0, 0);
        for packet in bytes.as_chunks::<PACKET>().0 {
            let packet = Packet::parse(packet).unwrap();
            if packet.has_payload {
                prop_assert_eq!(packet.counter, (counter + 1) & 15);
            } else {
                prop_assert_eq!(packet.counter, counter);
            }
            counter = packet.counter;
            announced += usize::from(packet.discontinuity);
        }
        prop_assert_eq!(announced, files.len() - 1);
        // 0.1 ms per packet, all the way.
        let took = out[out.len() - 1].0 - out[0].0;
        prop_assert!(took.abs_diff((total - 1) / 7 * 7 * 100_000) < 1000, "{} packets took {}", total, took);
    }

    /// Checks that with any bytes and times, nothing is sent out of order or twice, and everything that was taken is sent or counted.
    #[test]
    fn anything_at_any_time(
        pieces in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..600), any::<bool>(), 0u64..400_000_000), 1..60),
        pacing in prop_oneof![Just(Pacing::Pcr), Just(Pacing::Free), (1u64..100_000_000).prop_map(Pacing::Constant)],
    ) {
        let mut sender = Sender::new(Settings::default());
        let (mut now, mut given, mut out) = (0, Vec::new(), Vec::new());
        sender.begin(pacing);
        for (bytes, ends, later) in pieces {
            now += later;
            match sender.push(&bytes, now) {
                Ok(count) => given.extend_from_slice(&bytes[..count]),
                Err(error) => { prop_assert_eq!(error, Error::NotTransportStream); break; }
            }
            if ends && sender.end(later % 2 == 0, now).is_ok() {
                sender.begin(pacing);
            }
            while let Some(batch) = sender.batch(now, now) {
                out.extend_from_slice(batch.bytes);
                let count = batch.count;
                sender.sent(count, now);
            }
        }
        let _ = sender.end(false, now);
        drain(&mut sender, &mut Vec::new());
        prop_assert!(sender.is_empty());
        if pacing != Pacing::Pcr {
            prop_assert!(given.starts_with(&out));
            prop_assert_eq!(sender.statistics().bytes, given.len() as u64);
        }
    }
}

#[test]
fn a_constant_rate_is_kept_whatever_the_bytes_are() {
    let mut sender = Sender::new(rtp());
    sender.begin(Pacing::Constant(10_528_000));
    let bytes = dcs_testkit::bytes(100_000, 1);
    let mut out = Vec::new();
    feed(&mut sender, &bytes, 777, &mut out);
    sender.end(false, 0).unwrap();
    drain(&mut sender, &mut out);
    // 1,316 bytes per millisecond.
    for (number, (at, _)) in out.iter().enumerate() {
        assert_eq!(*at, 1000 + number as u64 * 1_000_000);
    }
    let sent: Vec<u8> = out.iter().flat_map(|(_, datagram)| datagram[HEADER..].to_vec()).collect();
    assert!(sent == bytes);
}

#[test]
fn free_goes_in_batches() {
    let mut sender = Sender::new(Settings::default());
    sender.begin(Pacing::Free);
    let bytes = dcs_testkit::bytes(200_000, 2);
    let (mut rest, mut batches, mut sent) = (&bytes[..], 0, Vec::new());
    while !rest.is_empty() {
        rest = &rest[sender.push(rest, 5).unwrap()..];
        while let Some(batch) = sender.batch(5, 5) {
            sent.extend_from_slice(batch.bytes);
            let count = batch.count;
            sender.sent(count, 5);
            batches += 1;
        }
    }
    sender.end(false, 5).unwrap();
    sent.extend_from_slice(sender.batch(5, 5).unwrap().bytes);
    assert!(sent == bytes && batches <= 9, "{batches} batches");
}

#[test]
fn what_is_no_transport_stream_is_said() {
    let push = |bytes: &[u8]| {
        let mut sender = Sender::new(Settings::default());
        sender.begin(Pacing::Pcr);
        let pushed = sender.push(bytes, 0);
        pushed.and_then(|_| sender.end(false, 0))
    };
    assert_eq!(push(&dcs_testkit::bytes(5000, 3)), Err(Error::NotTransportStream));
    let wide: Vec<u8> =
        stream(50, 7, 100, 0).chunks(PACKET).flat_map(|packet| [packet, &[0; 4]].concat()).collect();
    assert_eq!(push(&wide), Err(Error::NotTransportStream), "packets of 192 bytes");
    assert_eq!(push(b"short"), Err(Error::NotTransportStream));
    let silent: Vec<u8> = (0..70_000u32).flat_map(|number| ts::make(0x100, number as u8, None, 0)).collect();
    assert_eq!(push(&silent), Err(Error::NoClock));
    assert_eq!(push(&[]), Ok(()));
}

#[test]
fn what_has_no_clock_goes_out_at_once_and_puts_nothing_off() {
    let silent: Vec<u8> = (0..70_000u32).flat_map(|number| ts::make(9, number as u8, None, 0)).collect();
    let mut sender = Sender::new(Settings::default());
    sender.begin(Pacing::Pcr);
    let now = 40 * SLIP;
    assert_eq!(sender.push(&silent, now), Err(Error::NoClock));
    while let Some(batch) = sender.batch(now, now) {
        let count = batch.count;
        sender.sent(count, now);
    }
    let counts = sender.statistics();
    assert!(counts.datagrams > 8000, "{counts:?}");
    assert_eq!((counts.slips, counts.slipped, counts.worst), (0, 0, 0));
}

#[test]
fn a_short_stream_without_a_clock_is_said() {
    let silent = |packets: u32| {
        (0..packets).flat_map(|number| ts::make(9, number as u8, None, 0)).collect::<Vec<u8>>()
    };
    let once = |bytes: &[u8], more| {
        let mut sender = Sender::new(Settings::default());
        sender.begin(Pacing::Pcr);
        sender.push(bytes, 0).unwrap();
        let ended = sender.end(more, 0);
        let mut out = Vec::new();
        drain(&mut sender, &mut out);
        assert!(sender.is_empty() && out.iter().flat_map(|(_, datagram)| datagram).eq(bytes));
        ended
    };
    // One datagram needs no clock.
    assert_eq!(once(&silent(7), false), Ok(()));
    for more in [false, true] {
        assert_eq!(once(&silent(14), more), Err(Error::NoClock));
    }
    assert_eq!(once(&silent(8), false), Err(Error::NoClock));
    assert_eq!(once(&stream(14, 20, 2700, 0), false), Err(Error::NoClock), "one reference gives no rate");
    assert_eq!(once(&stream(14, 10, 2700, 0), false), Ok(()));
    // Continues at the rate of the stream that it joins.
    let mut sender = Sender::new(Settings::default());
    for (bytes, more) in [(stream(70, 10, 2700, 0), true), (silent(70), false)] {
        sender.begin(Pacing::Pcr);
        sender.push(&bytes, 0).unwrap();
        assert_eq!(sender.end(more, 0), Ok(()));
    }
}

#[test]
fn damage_is_left_out_and_counted() {
    let good = stream(100, 10, 2700, 0);
    let bytes = [&good[..PACKET * 30], &[0; 77], &good[PACKET * 30..], &[SYNC_TAIL; 3]].concat();
    let mut sender = Sender::new(Settings::default());
    sender.begin(Pacing::Pcr);
    let mut out = Vec::new();
    feed(&mut sender, &bytes, 1000, &mut out);
    sender.end(false, 0).unwrap();
    drain(&mut sender, &mut out);
    assert!(out.iter().flat_map(|(_, datagram)| datagram.clone()).collect::<Vec<u8>>() == good);
    assert_eq!(sender.statistics().skipped, 80);
}

const SYNC_TAIL: u8 = ts::SYNC;

#[test]
fn bytes_that_come_too_late_are_counted_and_put_off() {
    let mut sender = Sender::new(rtp());
    sender.begin(Pacing::Constant(10_528_000));
    let bytes = [0; PAYLOAD * 20];
    sender.push(&bytes[..PAYLOAD * 4], 0).unwrap();
    // 10 ms late: sent at once, all of them.
    let batch = sender.batch(3_000_000 + 2 * LATE_AFTER, 3_000_000 + 2 * LATE_AFTER).unwrap();
    assert_eq!(batch.count, 4);
    sender.sent(4, 3_000_000 + 2 * LATE_AFTER);
    assert_eq!((sender.statistics().late, sender.statistics().worst), (4, 3_000_000 + 2 * LATE_AFTER));
    // A second late: not in a burst.
    let now = 1_000_000_000;
    sender.push(&bytes[..PAYLOAD * 4], now).unwrap();
    let batch = sender.batch(now, now).unwrap();
    let (header, _) = Header::parse(batch.bytes).unwrap();
    assert_eq!((batch.count, header.marker), (1, true));
    sender.sent(1, now);
    assert_eq!(sender.next_due(), Some(now + 1_000_000));
    let counted = sender.statistics();
    assert_eq!((counted.slips, counted.slipped, counted.late), (1, now - 4_000_000, 4));
    assert!(counted.slipped > SLIP);
    sender.lost(1);
    assert_eq!(sender.statistics().lost, 1);
    let report = sender.report(now, 0);
    assert_eq!((report.packets, report.octets, report.ssrc), (5, 5 * PAYLOAD as u32, 77));
}
