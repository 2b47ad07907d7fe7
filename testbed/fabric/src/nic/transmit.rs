//! The transmit path: from a ring to the wire.

use std::time::Duration;

use dcs_drivers::bus::BusError;

use super::descriptor::{DESCRIPTOR, Data, Transmit};
use super::offload::{frame_check, insert, segments};
use super::{Nic, Wait};
use crate::device::Context;
use crate::fault::{Fault, Operation};

/// Most descriptors fetched at once.
const BURST: u32 = 16;

/// Most bytes that the transmitter holds before it waits for the line: the 82576's packet buffer has 40 KiB.
const BUFFER: u64 = 40 << 10;

/// Most bytes of a frame before segmentation.
const FRAME_MAX: u64 = 1 << 18;

impl Nic {
    pub(super) fn transmit_all(&mut self, cx: &mut Context<'_>) {
        for queue in 0..self.transmit.len() {
            self.transmit(queue, cx);
        }
    }

    /// Processes a queue as far as possible.
    pub(super) fn transmit(&mut self, queue: usize, cx: &mut Context<'_>) {
        if self.hung.is_some() || !self.registers.transmits(queue) {
            return;
        }
        self.transmit_fetch(queue, cx);
        while !self.transmit[queue].busy {
            let Some(raw) = self.transmit[queue].fetched.front() else { break };
            match Transmit::parse(raw, self.config.family) {
                Transmit::Data(data) => self.take(queue, data, cx),
                Transmit::Context { slot, context, report } => {
                    self.transmit[queue].contexts[slot] = context;
                    self.retire(queue, report, cx);
                }
                Transmit::Unknown => self.retire(queue, false, cx),
            }
        }
        self.transmit_fetch(queue, cx);
    }

    fn transmit_fetch(&mut self, queue: usize, cx: &mut Context<'_>) {
        let held = &self.transmit[queue];
        let ahead = held.fetched.len() + held.frame.len();
        if held.fetching || held.fetched.len() >= BURST as usize {
            return;
        }
        let ring = self.registers.ring(queue, true);
        if let Some((address, count)) = ring.next(ahead as u32, BURST) {
            self.transmit[queue].fetching = true;
            let token = self.token(Wait::TransmitDescriptors { queue, count });
            cx.read(address, u64::from(count) * DESCRIPTOR, token);
        }
    }

    pub(super) fn transmit_descriptors(
        &mut self,
        queue: usize,
        count: u32,
        data: Result<Vec<u8>, BusError>,
        cx: &mut Context<'_>,
    ) {
        let held = &mut self.transmit[queue];
        let Ok(bytes) = data else {
            // The queue stops until the driver writes to it again.
            held.fetching = false;
            self.counts.broken += 1;
            return;
        };
        held.fetching = false;
        let found = bytes.chunks_exact(DESCRIPTOR as usize).take(count as usize);
        held.fetched.extend(found.map(|raw| <[u8; 16]>::try_from(raw).expect("a descriptor")));
        self.transmit(queue, cx);
    }

    /// Takes a frame's descriptor. With the last one, reads the frame's pieces.
    fn take(&mut self, queue: usize, data: Data, cx: &mut Context<'_>) {
        let held = &mut self.transmit[queue];
        held.fetched.pop_front();
        held.frame.push(data);
        if !data.end {
            return;
        }
        held.busy = true;
        let fault = cx.strike(&Operation::Fetch);
        held.fault = fault;
        if !self.stopped(fault) {
            self.read_frame(queue, cx);
        }
    }

    /// Reads a frame's pieces, once the transmitter has room.
    pub(super) fn read_frame(&mut self, queue: usize, cx: &mut Context<'_>) {
        let backlog = self.line_free.saturating_sub(cx.now());
        let room = self.line_time(BUFFER);
        if backlog > room {
            let token = self.token(Wait::Room { queue });
            return cx.after(backlog - room, token);
        }
        let held = &mut self.transmit[queue];
        let total: u64 = held.frame.iter().map(|data| data.length).sum();
        held.broken = total > FRAME_MAX;
        held.bytes = vec![0; total.min(FRAME_MAX) as usize];
        held.arriving = 1;
        if !held.broken {
            let astray = match held.fault {
                Some(Fault::MisdirectedDma(offset)) => offset,
                _ => 0,
            };
            let piece = |data: &Data| (data.address.wrapping_add(astray), data.length);
            let pieces: Vec<(u64, u64)> = held.frame.iter().map(piece).collect();
            let mut at = 0;
            for (address, length) in pieces.into_iter().filter(|(_, length)| *length > 0) {
                self.transmit[queue].arriving += 1;
                let token = self.token(Wait::Piece { queue, at });
                cx.read(address, length, token);
                at += length as usize;
            }
        }
        self.arrived(queue, cx);
    }

    pub(super) fn piece(
        &mut self,
        queue: usize,
        at: usize,
        data: Result<Vec<u8>, BusError>,
        cx: &mut Context<'_>,
    ) {
        let held = &mut self.transmit[queue];
        match data {
            Ok(bytes) => held.bytes[at..at + bytes.len()].copy_from_slice(&bytes),
            Err(_) => held.broken = true,
        }
        self.arrived(queue, cx);
    }

    fn arrived(&mut self, queue: usize, cx: &mut Context<'_>) {
        let held = &mut self.transmit[queue];
        held.arriving -= 1;
        if held.arriving > 0 {
            return;
        }
        let (frame, mut bytes) = (std::mem::take(&mut held.frame), std::mem::take(&mut held.bytes));
        let (contexts, fault) = (held.contexts, held.fault.take());
        apply_fault(&mut bytes, fault);
        if std::mem::replace(&mut held.broken, false) {
            self.counts.broken += 1;
        } else {
            let (offload, cut) = frame[0].offload(&contexts);
            if cut {
                for segment in segments(&bytes, &offload) {
                    self.send(segment, frame[0].check, cx);
                }
            } else {
                let mut whole = bytes;
                insert(&mut whole, &offload);
                self.send(whole, frame[0].check, cx);
            }
        }
        self.transmit[queue].busy = false;
        for data in frame {
            self.report(queue, data.report, fault, cx);
        }
        self.transmit(queue, cx);
    }

    fn send(&mut self, mut frame: Vec<u8>, check: bool, cx: &mut Context<'_>) {
        if !check {
            // The driver supplies the frame check sequence. Dropping a wrong one is the receiver's job.
            let at = frame.len().saturating_sub(4);
            if frame_check(&frame[..at]) != frame[at..] {
                return;
            }
            frame.truncate(at);
        } else if self.registers.pads() && frame.len() < 60 {
            frame.resize(60, 0);
        }
        self.counts.sent += 1;
        self.counts.bytes_sent += frame.len() as u64;
        self.registers.count(false);
        self.line_free = self.line_free.max(cx.now()) + self.line_time(frame.len() as u64 + 24);
        cx.send(frame);
    }

    fn line_time(&self, bytes: u64) -> Duration {
        Duration::from_nanos(bytes * 8 * 1_000_000_000 / self.config.rate)
    }

    /// Completes a fetched descriptor.
    fn retire(&mut self, queue: usize, report: bool, cx: &mut Context<'_>) {
        self.transmit[queue].fetched.pop_front();
        self.report(queue, report, None, cx);
    }

    /// Completes the descriptor at the head: advances the head, and reports to the driver if it asked for that.
    fn report(&mut self, queue: usize, report: bool, fault: Option<Fault>, cx: &mut Context<'_>) {
        let address = self.registers.ring(queue, true).head_address();
        self.registers.advance(queue, true);
        if !report {
            return;
        }
        let write = match self.registers.head_report(queue) {
            Some(at) => {
                let head = self.registers.ring(queue, true).head;
                (at, head.to_le_bytes().to_vec())
            }
            // Status: descriptor done.
            None => (address + 12, vec![1, 0, 0, 0]),
        };
        self.tell(vec![write], (queue, true), fault, cx);
    }
}

/// Applies a fault to a frame that was read.
fn apply_fault(bytes: &mut [u8], fault: Option<Fault>) {
    match fault {
        Some(Fault::ShortDma(missing)) => {
            let kept = (bytes.len() as u64).saturating_sub(missing) as usize;
            bytes[kept..].fill(0);
        }
        Some(Fault::CorruptDma) => {
            if let Some(byte) = bytes.last_mut() {
                *byte ^= 1;
            }
        }
        _ => {}
    }
}
