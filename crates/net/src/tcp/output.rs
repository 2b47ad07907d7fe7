//! A connection's output: one segment per call, when the NIC has room for it.

use super::queue::Gathered;
use super::segment::{Flags, Header, OptionBytes, Timestamp};
use super::{State, Tcb};
use crate::message::Nanos;
use crate::shared::Shared;
use core::ops::Range;

/// A segment to send.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) header: Header,
    pub(crate) payload: Gathered,
    /// Size of the segments that the NIC makes from it, in bytes.
    pub(crate) segment: Option<u16>,
    /// End position of its new bytes, if it has any.
    pub(crate) new: Option<u64>,
    /// Offset of its first byte in the stream, and most bytes of a segment, if it has any bytes.
    pub(crate) stream: Option<(u64, u16)>,
}

impl Tcb {
    /// Makes the next segment, if one is due.
    pub(crate) fn transmit(&mut self, now: Nanos, shared: &mut Shared) -> Option<Outgoing> {
        if let Some(seq) = self.reset_due.take() {
            shared.statistics.resets_out += 1;
            let flags = Flags { rst: true, ..Flags::default() };
            let ports = (self.local.port(), self.remote.port());
            let options = OptionBytes::default();
            return Some(Outgoing::bare(Header { ports, seq, ack: None, flags, window: 0, options }));
        }
        if std::mem::take(&mut self.syn_due) {
            return Some(self.syn(now, shared));
        }
        if !self.is_open() {
            return None;
        }
        if self.ack_due && self.receiver.has_gaps() {
            return Some(self.acknowledgement(now, shared));
        }
        if self.state != State::Over {
            let data = self.retransmission(now, shared).or_else(|| self.new_data(now, shared));
            if data.is_some() {
                return data;
            }
        }
        if std::mem::take(&mut self.probe_due) {
            shared.statistics.probes += 1;
            let mut probe = self.acknowledgement(now, shared);
            // An old number, which the peer must answer.
            probe.header.seq = self.seq(self.una).wrapping_sub(1);
            return Some(probe);
        }
        if self.ack_due {
            return Some(self.acknowledgement(now, shared));
        }
        self.arm_persist(now);
        None
    }

    fn syn(&mut self, now: Nanos, shared: &mut Shared) -> Outgoing {
        let passive = self.state == State::SynReceived;
        let tcp = &shared.config.tcp;
        let mut options = OptionBytes::default();
        options.mss(shared.config.mtu - 40);
        // The answer has the SYN's options.
        if !passive || self.send_scale > 0 || self.receive_scale > 0 {
            options.scale(self.receive_scale);
        }
        if if passive { self.sack } else { tcp.sack } {
            options.sack_permitted();
        }
        if !passive && tcp.timestamps || self.stamps.is_some() {
            let echo = self.stamps.map_or(0, |stamps| stamps.recent);
            options.timestamp(Timestamp { value: clock(self.stamp_offset, now), echo });
        }
        let window = self.receiver.advertise(0, shared);
        let again = self.nxt > 0;
        self.nxt = 1;
        if again {
            shared.statistics.retransmissions += 1;
        } else {
            self.sent_at = now;
        }
        self.silent_since.get_or_insert(now);
        if self.timer == super::Timer::Off {
            self.arm(now);
        }
        let ack = passive.then(|| self.irs.wrapping_add(1));
        let ports = (self.local.port(), self.remote.port());
        let flags = Flags { syn: true, ..Flags::default() };
        Outgoing::bare(Header { ports, seq: self.iss, ack, flags, window, options })
    }

    /// Makes the header of a segment of an open connection, which acknowledges everything received.
    fn header(&mut self, position: u64, flags: Flags, now: Nanos, shared: &mut Shared) -> Header {
        let mut options = OptionBytes::default();
        if let Some(stamps) = self.stamps {
            options.timestamp(Timestamp { value: clock(stamps.offset, now), echo: stamps.recent });
        }
        self.ack_due = false;
        self.ack_at = None;
        self.unacknowledged = 0;
        let ack = self.receiver.nxt();
        self.acknowledged = ack;
        Header {
            ports: (self.local.port(), self.remote.port()),
            seq: self.seq(position),
            ack: Some(self.irs.wrapping_add(ack as u32)),
            flags,
            window: self.receiver.advertise(self.receive_scale, shared),
            options,
        }
    }

    /// Makes the acknowledgement that is due as the connection enters TIME-WAIT.
    pub(crate) fn last_acknowledgement(&mut self, now: Nanos, shared: &mut Shared) -> Option<Header> {
        self.ack_due.then(|| self.acknowledgement(now, shared).header)
    }

    fn acknowledgement(&mut self, now: Nanos, shared: &mut Shared) -> Outgoing {
        let mut header = self.header(self.nxt, Flags::default(), now, shared);
        if self.sack {
            let irs = self.irs;
            let number = |position: u64| irs.wrapping_add(position as u32);
            header.options.sacks(self.receiver.sacks().map(|range| number(range.start)..number(range.end)));
        }
        Outgoing::bare(header)
    }

    /// Returns the bytes in flight.
    fn pipe(&self) -> u64 {
        // Without SACK, each duplicate means that some segment has arrived.
        let arrived = if self.sack { 0 } else { u64::from(self.duplicates) * u64::from(self.mss) };
        self.scoreboard.pipe().saturating_sub(arrived)
    }

    /// Returns how many bytes the congestion window allows now.
    fn room(&mut self) -> u64 {
        let room = self.congestion.window().saturating_sub(self.pipe());
        if std::mem::take(&mut self.force) { room.max(self.mss.into()) } else { room }
    }

    /// Returns the most payload of one frame, in bytes.
    fn frame_most(&self, shared: &Shared) -> u64 {
        let mss = u64::from(self.mss);
        let most = shared.config.segmentation.map_or(mss, |most| u64::from(most.min(65_000)).max(mss));
        most - most % mss
    }

    fn retransmission(&mut self, now: Nanos, shared: &mut Shared) -> Option<Outgoing> {
        let lost = self.scoreboard.next_lost()?;
        let force = self.force;
        let room = self.room();
        let length = lost.end - lost.start;
        if room < length.min(self.mss.into()) {
            self.congestion.limited = true;
            self.force = force;
            return None;
        }
        let mss = u64::from(self.mss);
        let most = self.frame_most(shared).min(room - room % mss).max(mss).min(length);
        let bytes = lost.start..(lost.start + most);
        // A FIN is sent with the last bytes.
        let data = bytes.start..bytes.end.min(self.queue.end().max(bytes.start));
        let with_fin = bytes.end > self.queue.end();
        Some(self.emit(data, with_fin, true, now, shared))
    }

    fn new_data(&mut self, now: Nanos, shared: &mut Shared) -> Option<Outgoing> {
        let unsent = self.queue.end().saturating_sub(self.nxt);
        let fin_unsent = self.fin && self.nxt <= self.queue.end();
        let usable = (self.una + self.wnd).saturating_sub(self.nxt);
        if usable == 0 || unsent == 0 && !fin_unsent {
            return None;
        }
        if unsent == 0 {
            return Some(self.emit(self.nxt..self.nxt, true, false, now, shared));
        }
        if self.una == self.nxt && now.saturating_sub(self.sent_at) > self.rtt.timeout() {
            self.congestion.idle();
        }
        let mss = u64::from(self.mss);
        let room = self.room();
        let most = unsent.min(usable).min(self.frame_most(shared));
        if room < most.min(mss) {
            self.congestion.limited = true;
            return None;
        }
        let mut length = most.min(room);
        let all = length == unsent && !self.queue.more();
        if length > mss && !all {
            length -= length % mss;
        }
        // Avoid silly windows (RFC 9293, 3.8.6.2.1).
        if length < mss && !all && 2 * length < self.most_wnd && !self.push {
            return None;
        }
        self.push = false;
        self.congestion.limited |= room - length < mss;
        let bytes = self.nxt..self.nxt + length;
        let with_fin = fin_unsent && bytes.end == self.queue.end();
        Some(self.emit(bytes, with_fin, false, now, shared))
    }

    /// Makes a segment of queued bytes. It may be shorter than requested.
    fn emit(
        &mut self,
        bytes: Range<u64>,
        fin: bool,
        again: bool,
        now: Nanos,
        shared: &mut Shared,
    ) -> Outgoing {
        let mut payload = Gathered::default();
        let data_end = self.queue.gather(bytes.clone(), &mut payload);
        let length = (data_end - bytes.start) as u32;
        // Not in a frame that the NIC segments: NICs differ in which segments carry it, and some carry it in none.
        let fin = fin && data_end == self.queue.end() && length <= self.mss;
        let end = data_end + u64::from(fin);
        let flags = Flags { fin, psh: length > 0 && data_end == self.queue.end(), ..Flags::default() };
        let header = self.header(bytes.start, flags, now, shared);
        if again {
            self.scoreboard.sent_again(bytes.start..end, now);
            if let Some(stamps) = self.stamps.filter(|_| self.congestion.recovery.is_some()) {
                self.again.get_or_insert(clock(stamps.offset, now));
            }
            shared.statistics.retransmissions += 1;
            shared.statistics.retransmitted_bytes += u64::from(length);
        } else {
            self.scoreboard.sent(bytes.start..end, now);
            self.nxt = end;
        }
        // Counted before the queue releases them.
        payload.blocks.iter().for_each(|block| shared.blocks.framed(*block));
        self.sent_at = now;
        self.silent_since.get_or_insert(now);
        if !matches!(self.timer, super::Timer::Retransmit(_)) || !again && self.scoreboard.is_single() {
            self.arm(now);
        }
        let new = (!again && length > 0).then_some(data_end);
        let segment = (length > self.mss).then_some(self.mss as u16);
        let stream = (length > 0).then(|| (bytes.start - 1, self.mss as u16));
        Outgoing { header, payload, segment, new, stream }
    }
}

/// Returns the time in milliseconds, as timestamps have it.
pub(super) fn clock(offset: u32, now: Nanos) -> u32 {
    ((now / 1_000_000) as u32).wrapping_add(offset)
}

impl Outgoing {
    fn bare(header: Header) -> Outgoing {
        Outgoing { header, payload: Gathered::default(), segment: None, new: None, stream: None }
    }
}
