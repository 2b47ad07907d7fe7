//! Frames between the stack and the NIC's driver, or the hardware in its place.

use super::Network;
use super::sender::Given;
use crate::bus::{Bus, Window};
use crate::nic::{self, Checksum, Offload, Segmentation, Transport};
use dcs_engine::Nanos;
use dcs_net::{self as net, FrameId, Verdict, checksum};

/// Offset of the checksum in a TCP header.
const TCP_CHECKSUM: u16 = 16;

impl Network {
    pub(super) fn take_sent(&mut self) {
        while let Some(sent) = self.nic.sent() {
            let place = self.frames.get(&sent.id).and_then(|(_, _, place)| *place);
            if let (Err(_), Some(place)) = (sent.result, place) {
                self.paced.reset_at(place);
            }
            if sent.memory == nic::Memory::Quiet {
                self.frame_is_over(sent.id);
            }
        }
        while let Some(id) = self.nic.freed() {
            self.frame_is_over(id);
        }
    }

    pub(super) fn frame_is_over(&mut self, id: u64) {
        let Some((frame, slot, _)) = self.frames.remove(&id) else { return };
        self.free_headers.push(slot);
        self.frame_is_done(frame);
    }

    /// Notes that the NIC's driver is done with a frame.
    pub(super) fn frame_is_done(&mut self, frame: FrameId) {
        self.transmission.iter_mut().for_each(|transmission| transmission.driver_is_done(frame));
        self.stack.iter_mut().for_each(|stack| stack.frame_sent(frame));
    }

    pub(super) fn take_received(&mut self, bus: &mut dyn Bus, now: Nanos) {
        if self.reception.is_some() {
            return self.receive_frames(bus);
        }
        while let Some(frame) = self.nic.received() {
            let buffer = self.next_buffer;
            self.next_buffer += 1;
            let pieces = frame.pieces();
            let (Some(stack), Some(first)) = (&mut self.stack, pieces.first().copied()) else {
                self.nic.give_back(frame);
                continue;
            };
            let split = match (frame.split, pieces.len()) {
                (_, 1) => None,
                (true, 2) => Some((first.length, pieces[1].offset)),
                // Longer than a buffer: not a frame that this network's MTU allows.
                _ => {
                    self.nic.give_back(frame);
                    continue;
                }
            };
            let mut head = [0; net::HEAD];
            let head = &mut head[..net::HEAD.min(first.length as usize)];
            bus.load(first.offset, head);
            let mut arrived = net::ReceivedFrame {
                buffer,
                head,
                length: frame.length(),
                offset: first.offset,
                split,
                checksum: Verdict::Good,
            };
            arrived.checksum = match frame.transport {
                Checksum::Good => Verdict::Good,
                Checksum::Bad => Verdict::Bad,
                Checksum::Unknown => checksum::verify(&arrived, |piece, sum| {
                    let mut bytes = vec![0; piece.length as usize];
                    bus.load(piece.offset, &mut bytes);
                    sum.add(&bytes);
                }),
            };
            stack.receive(&arrived, now);
            self.received.insert(buffer, frame);
            self.take_events(bus);
        }
    }

    /// Gives the hardware and the NIC the stack's frames, as far as there is room.
    pub(super) fn transmit(&mut self, bus: &mut dyn Bus, now: Nanos) {
        while self.fresh && self.nic.state() == nic::State::Ready && self.nic.link() {
            let Some((frame, slot)) = self.back.take().or_else(|| self.next_frame(now)) else { return };
            match self.give_sender(bus, &frame) {
                Given::Driver => {}
                Given::Later => {
                    self.back = Some((frame, slot));
                    return;
                }
                Given::Hardware | Given::Over => {
                    self.free_headers.push(slot);
                    continue;
                }
            }
            let base = bus.window().address;
            let (header, offload) = prepare(&frame);
            let place = self.headers[slot].offset();
            bus.store(place, &header);
            let mut data = vec![Window { address: base + place, length: header.len() as u64 }];
            data.extend(
                frame
                    .payload
                    .iter()
                    .map(|piece| Window { address: base + piece.offset, length: piece.length.into() }),
            );
            self.frames_given += 1;
            let id = self.frames_given;
            self.frames.insert(id, (frame.id, slot, frame.payload.first().map(|piece| piece.offset)));
            match self.nic.transmit(bus, now, id, &nic::Frame { data: &data, offload }) {
                Ok(()) => {}
                Err(nic::TransmitError::Full) => {
                    self.frames.remove(&id);
                    self.back = Some((frame, slot));
                    return;
                }
                // The NIC cannot send such a frame: it counts as lost on the wire.
                Err(_) => return self.frame_is_over(id),
            }
        }
    }

    /// Returns the stack's next frame, and a place for its headers.
    pub(super) fn next_frame(&mut self, now: Nanos) -> Option<(net::Frame, usize)> {
        let slot = *self.free_headers.last()?;
        let frame = self.stack.as_mut()?.next_frame(now)?;
        self.free_headers.pop();
        Some((frame, slot))
    }
}

/// Returns a frame's headers as the NIC wants them, and the work that is left to it.
fn prepare(frame: &net::Frame) -> (Vec<u8>, Option<Offload>) {
    let mut header = frame.header.to_vec();
    let Some(checksum) = frame.checksum else { return (header, None) };
    let tcp = checksum.offset == TCP_CHECKSUM;
    let segment = frame.segment.filter(|_| tcp).map(|size| {
        // The NIC fills in lengths and checksums of each segment.
        header[16..18].fill(0);
        header[24..26].fill(0);
        Segmentation { header: (header.len() - usize::from(checksum.start)) as u8, size }
    });
    let offload = Offload {
        link: 14,
        network: checksum.start - 14,
        ipv4: true,
        ip_checksum: segment.is_some(),
        transport: Some(if tcp { Transport::Tcp } else { Transport::Udp }),
        segment,
    };
    (header, Some(offload))
}
