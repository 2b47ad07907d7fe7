//! The receive path: from the wire to a ring.

use dcs_drivers::bus::BusError;

use super::descriptor::{DESCRIPTOR, Received, buffers};
use super::offload::{Parsed, frame_check, parse};
use super::{Nic, Wait, registers};
use crate::device::Context;
use crate::fault::{Fault, Operation};

/// Most descriptors fetched at once.
const BURST: u32 = 32;

/// Descriptors to prefetch: a frame may need 64 buffers of 256 bytes.
const AHEAD: usize = 96;

/// All frames go to the first queue: there is no receive side scaling.
const QUEUE: usize = 0;

impl Nic {
    pub(super) fn receive_all(&mut self, cx: &mut Context<'_>) {
        for queue in 0..self.receive.len() {
            self.receive_fetch(queue, cx);
        }
    }

    /// Handles a frame from the wire.
    pub(super) fn arrive(&mut self, mut frame: Vec<u8>, cx: &mut Context<'_>) {
        if !self.registers.receives(QUEUE) || !self.registers.accepts(&frame) {
            self.counts.filtered += 1;
            return;
        }
        if frame.len() < 60 {
            frame.resize(60, 0);
        }
        let held: usize = self.fifo.iter().map(Vec::len).sum();
        if held + frame.len() > self.config.fifo {
            self.counts.missed += 1;
            self.registers.count_missed();
            return self.cause(registers::RXO, cx);
        }
        self.fifo.push_back(frame);
        self.deliver(cx);
    }

    /// Prefetches descriptors.
    pub(super) fn receive_fetch(&mut self, queue: usize, cx: &mut Context<'_>) {
        let held = &self.receive[queue];
        let ahead = held.fetched.len();
        if self.hung.is_some() || held.fetching || !self.registers.receives(queue) || ahead >= AHEAD {
            return;
        }
        let ring = self.registers.ring(queue, false);
        if let Some((address, count)) = ring.next(ahead as u32, BURST) {
            self.receive[queue].fetching = true;
            let token = self.token(Wait::ReceiveDescriptors { queue, count });
            cx.read(address, u64::from(count) * DESCRIPTOR, token);
        }
    }

    pub(super) fn receive_descriptors(
        &mut self,
        queue: usize,
        count: u32,
        data: Result<Vec<u8>, BusError>,
        cx: &mut Context<'_>,
    ) {
        let held = &mut self.receive[queue];
        let Ok(bytes) = data else {
            held.fetching = false;
            self.counts.broken += 1;
            return;
        };
        held.fetching = false;
        let found = bytes.chunks_exact(DESCRIPTOR as usize).take(count as usize);
        held.fetched.extend(found.map(|raw| <[u8; 16]>::try_from(raw).expect("a descriptor")));
        self.deliver(cx);
    }

    /// Stores frames for which there are descriptors.
    fn deliver(&mut self, cx: &mut Context<'_>) {
        while let Some(frame) = self.fifo.front() {
            let stored = if self.registers.strips() { frame.len() } else { frame.len() + 4 };
            let parsed = parse(frame);
            let split = self.header(&parsed, frame.len());
            let needed =
                (stored - split.map_or(0, |(header, _)| header)).div_ceil(self.registers.buffer(QUEUE));
            if self.receive[QUEUE].fetched.len() < needed.max(1) {
                break;
            }
            let mut frame = self.fifo.pop_front().expect("it was there");
            self.counts.received += 1;
            self.counts.bytes_received += frame.len() as u64;
            self.registers.count(true);
            if !self.registers.strips() {
                frame.extend(frame_check(&frame));
            }
            let fault = cx.strike(&Operation::Store);
            if self.stopped(fault) {
                return;
            }
            let writes = self.store(&frame, parsed, split, fault, cx);
            self.tell(writes, (QUEUE, false), fault, cx);
        }
        self.receive_fetch(QUEUE, cx);
    }

    /// Returns the length of the part of a frame for the header's buffer, and true if the header does not fit there.
    fn header(&self, parsed: &Parsed, length: usize) -> Option<(usize, bool)> {
        let (room, always) = self.registers.split(QUEUE)?;
        let known = parsed.header > 0 && self.registers.splits(QUEUE, parsed.protocol, parsed.ip);
        match (known, always) {
            (true, _) if parsed.header <= room => Some((parsed.header, false)),
            (true, false) => Some((0, true)),
            (_, true) => Some((length.min(room), known)),
            (false, false) => None,
        }
    }

    /// Stores a frame buffer by buffer. Returns the contents to write to the descriptors.
    fn store(
        &mut self,
        frame: &[u8],
        parsed: Parsed,
        split: Option<(usize, bool)>,
        fault: Option<Fault>,
        cx: &mut Context<'_>,
    ) -> Vec<(u64, Vec<u8>)> {
        let (header, overflow) = split.unwrap_or((0, false));
        let (check_ip, check_l4) = self.registers.checks();
        let format = self.registers.format(QUEUE);
        let size = self.registers.buffer(QUEUE);
        let mut mover = Mover::new(frame.len(), fault);
        let (mut head, mut rest) = frame.split_at(header);
        let mut writes = Vec::new();
        loop {
            let raw = self.receive[QUEUE].fetched.pop_front().expect("there are enough");
            let (packet, header_buffer) = buffers(&raw);
            let (piece, left) = rest.split_at(rest.len().min(size));
            rest = left;
            let first = std::mem::take(&mut head);
            mover.write(header_buffer & !1, first, cx);
            mover.write(packet, piece, cx);
            let received = Received {
                length: if let Some(Fault::WrongLength(lie)) = fault { lie } else { piece.len() as u16 },
                header: (!first.is_empty()).then_some(first.len() as u16),
                overflow,
                error: fault == Some(Fault::ReceiveError),
                last: rest.is_empty().then_some(parsed),
                check_ip,
                check_l4,
            };
            let at = self.registers.ring(QUEUE, false).head_address();
            writes.push((at, received.emit(format, packet).to_vec()));
            self.registers.advance(QUEUE, false);
            if rest.is_empty() {
                return writes;
            }
        }
    }
}

/// Moves a frame's bytes to memory, subject to a fault.
struct Mover {
    left: usize,
    astray: u64,
    corrupt: bool,
}

impl Mover {
    fn new(length: usize, fault: Option<Fault>) -> Mover {
        let mut mover = Mover { left: length, astray: 0, corrupt: false };
        match fault {
            Some(Fault::ShortDma(missing)) => {
                mover.left = (length as u64).saturating_sub(missing) as usize;
            }
            Some(Fault::MisdirectedDma(offset)) => mover.astray = offset,
            Some(Fault::CorruptDma) => mover.corrupt = true,
            _ => {}
        }
        mover
    }

    fn write(&mut self, address: u64, bytes: &[u8], cx: &mut Context<'_>) {
        let mut bytes = bytes[..bytes.len().min(self.left)].to_vec();
        self.left -= bytes.len();
        if let Some(byte) = bytes.last_mut() {
            *byte ^= u8::from(std::mem::take(&mut self.corrupt));
            cx.write(address.wrapping_add(self.astray), bytes);
        }
    }
}
