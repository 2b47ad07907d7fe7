//! A NIC: fetches frames from own memory when it sends them, and segments and computes checksums if it can.

use dcs_net::checksum::Sum;
use dcs_net::{Frame, FrameId, Piece};
use smoltcp::wire::{Ipv4Packet, TcpPacket};
use std::collections::VecDeque;

#[derive(Debug)]
pub struct Nic {
    /// Set if it computes checksums.
    pub checksum: bool,
    /// Time that a byte takes, in nanoseconds.
    pub byte_time: u64,
    pub depth: usize,
    ring: VecDeque<(u64, Frame)>,
    busy: u64,
}

impl Nic {
    pub fn new(checksum: bool) -> Nic {
        Nic { checksum, byte_time: 8, depth: 32, ring: VecDeque::new(), busy: 0 }
    }

    pub fn has_room(&self) -> bool {
        self.ring.len() < self.depth
    }

    pub fn take(&mut self, frame: Frame, now: u64) {
        self.busy = self.busy.max(now) + self.byte_time * frame.length() as u64;
        self.ring.push_back((self.busy, frame));
    }

    pub fn deadline(&self) -> Option<u64> {
        self.ring.front().map(|(at, _)| *at)
    }

    /// Returns the next frame that has been sent by now, as the link has it.
    pub fn sent(&mut self, memory: &[u8], now: u64) -> Option<(FrameId, Vec<Vec<u8>>)> {
        self.ring.front().filter(|(at, _)| *at <= now)?;
        let (_, mut frame) = self.ring.pop_front()?;
        if !self.checksum {
            assert_eq!(frame.segment, None, "without offload nothing is segmented");
            frame.fill_checksum(|piece, sum| sum.add(part(memory, piece)));
        }
        let mut bytes = frame.header.to_vec();
        frame.payload.iter().for_each(|piece| bytes.extend_from_slice(part(memory, *piece)));
        let frames = match frame.segment {
            None => vec![bytes],
            Some(mss) => segmented(&bytes, frame.header.len(), mss.into()),
        };
        let offload = frame.checksum;
        let finish = |mut bytes: Vec<u8>| {
            if let Some(offload) = offload {
                let (start, at) = (usize::from(offload.start), usize::from(offload.start + offload.offset));
                let mut sum = Sum::new();
                sum.add(&bytes[start..]);
                bytes[at..at + 2].copy_from_slice(&(!sum.value()).to_be_bytes());
            }
            bytes.resize(bytes.len().max(60), 0);
            bytes
        };
        Some((frame.id, frames.into_iter().map(finish).collect()))
    }
}

pub fn part(memory: &[u8], piece: Piece) -> &[u8] {
    &memory[piece.offset as usize..piece.offset as usize + piece.length as usize]
}

/// Segments a frame, as Intel's controllers do.
fn segmented(bytes: &[u8], header: usize, mss: usize) -> Vec<Vec<u8>> {
    let (head, payload) = bytes.split_at(header);
    let count = payload.len().div_ceil(mss);
    let segments = payload.chunks(mss).enumerate().map(|(index, payload)| {
        let mut frame = [head, payload].concat();
        let mut ip = Ipv4Packet::new_unchecked(&mut frame[14..]);
        ip.set_total_len((header - 14 + payload.len()) as u16);
        ip.set_ident(ip.ident().wrapping_add(index as u16));
        ip.fill_checksum();
        let mut tcp = TcpPacket::new_unchecked(&mut frame[34..]);
        tcp.set_seq_number(tcp.seq_number() + index * mss);
        if index + 1 < count {
            tcp.set_fin(false);
            tcp.set_psh(false);
        }
        // The pseudo header lacks the length.
        let mut sum = Sum::new();
        sum.add(&tcp.checksum().to_be_bytes());
        sum.add(&((header - 34 + payload.len()) as u16).to_be_bytes());
        tcp.set_checksum(sum.value());
        frame
    });
    segments.collect()
}
