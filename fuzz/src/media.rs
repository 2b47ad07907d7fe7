//! Target for `dcs-media`: bytes for a sender, datagrams for a receiver, and arbitrary times.

use dcs_media::clock::Pacing;
use dcs_media::rtp::{Header, MP2T};
use dcs_media::sender::{Sender, Settings};
use dcs_media::{Framing, Receiver, rtcp, ts};

/// Input is a sequence of steps: an action, a delay, and operands.
pub fn media(mut input: &[u8]) {
    let mut take = |count: usize| {
        let (piece, rest) = input.split_at(count.min(input.len()));
        input = rest;
        piece
    };
    let mode = take(1).first().copied().unwrap_or(0);
    let framing = if mode & 1 == 0 { Framing::Plain } else { Framing::Rtp };
    let pacing = [Pacing::Pcr, Pacing::Pcr, Pacing::Free, Pacing::Constant(u64::from(mode) << 20 | 1)];
    let pacing = pacing[usize::from(mode >> 1) & 3];
    let mut sender = Sender::new(Settings { framing, ..Settings::default() });
    let mut receiver = Receiver::new(framing, 1_000_000);
    let (mut now, mut last, mut came) = (0u64, 0u64, 0u64);
    sender.begin(pacing);
    while let &[step, later, length] = take(3) {
        now += u64::from(later) * u64::from(later) * 10_000;
        let bytes = take(usize::from(length));
        match step % 8 {
            0 => _ = sender.push(bytes, now),
            // Packets with clock references from the input.
            1 | 2 => {
                for (at, byte) in bytes.iter().enumerate() {
                    let pcr = (step % 8 == 1).then_some(u64::from(*byte) * 5_000_000 + at as u64 * 27_000);
                    let _ = sender.push(&ts::make(u16::from(step / 8), *byte, pcr, *byte), now);
                }
            }
            3 => {
                let _ = sender.end(step & 8 == 0, now);
                sender.begin(pacing);
            }
            4 => receiver.put(bytes, now),
            5 => {
                if let [sequence, ssrc, payload @ ..] = bytes {
                    let sequence = u16::from(*sequence) * if step & 8 == 0 { 1 } else { 257 };
                    let header = Header {
                        payload_type: MP2T,
                        sequence,
                        ssrc: u32::from(*ssrc & 1),
                        ..Header::default()
                    };
                    let mut head = [0; 12];
                    header.write(&mut head);
                    receiver.put(&[&head[..], payload].concat(), now);
                }
            }
            6 => sender.lost(u64::from(step / 8)),
            _ => _ = rtcp::Report::parse(bytes),
        }
        while let Some(batch) = sender.batch(now, now) {
            let (count, size) = (batch.count, batch.size);
            assert!(
                count > 0
                    && batch.bytes.len() <= size * count as usize
                    && batch.bytes.len() > size * (count as usize - 1)
            );
            batch.bytes.chunks(size).for_each(|datagram| receiver.put(datagram, now));
            sender.sent(count, now);
        }
        // Nothing that is due is left, and times never decrease.
        if let Some(due) = sender.next_due() {
            assert!(due > now && due >= last);
            last = due;
        }
        receiver.advance(now, step & 16 == 0);
        let mut out = [0; 4096];
        came += receiver.read(&mut out) as u64;
    }
    let counted = receiver.statistics();
    assert_eq!(counted.bytes, came);
    assert!(counted.surplus + counted.foreign <= counted.datagrams);
}
