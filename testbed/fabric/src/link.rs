//! The time of a transaction: link rates, hops and packets. No queueing inside the switch, and no flow
//! control credits.

use std::time::Duration;

/// Picoseconds since the start of the fabric: a byte takes a quarter of a nanosecond on a common link.
pub(crate) type Ps = u64;

pub(crate) fn to_ps(time: Duration) -> Ps {
    u64::try_from(time.as_nanos() * 1000).unwrap_or(Ps::MAX)
}

pub(crate) fn to_duration(ps: Ps) -> Duration {
    Duration::from_nanos(ps / 1000)
}

/// Rate of a PCIe link in one direction, after line coding. The default is that of a current SSD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Picoseconds per byte.
    pub ps_per_byte: u64,
}

impl Rate {
    /// 2 x4: 5 GT/s, 8b/10b: 2.0 GB/s [PCIe 2.0, 4.2.1].
    pub const GEN2_X4: Rate = Rate { ps_per_byte: 500 };
    /// 2 x8: 4.0 GB/s.
    pub const GEN2_X8: Rate = Rate { ps_per_byte: 250 };
    /// 3 x4: 8 GT/s, 128b/130b: 3.94 GB/s [PCIe 3.0, 4.2.2].
    pub const GEN3_X4: Rate = Rate { ps_per_byte: 254 };
    /// 3 x8: 7.88 GB/s.
    pub const GEN3_X8: Rate = Rate { ps_per_byte: 127 };
    /// 3 x16: 15.75 GB/s: host memory behind its root port.
    pub const GEN3_X16: Rate = Rate { ps_per_byte: 63 };
}

/// Components of the fabric's times. [`Timing::default`] gives the source of each figure.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// One hop: function to switch, or switch to function: serialiser, link layer, half of the switch.
    pub hop: Duration,
    /// From a read request's arrival to the start of its answer: registers, on-board memory, or host memory.
    pub completer: Duration,
    /// Most bytes of a packet's payload (Max_Payload_Size). Longer transfers are several packets.
    pub payload: u64,
    /// Bytes that a packet adds to its payload.
    pub overhead: u64,
    /// Time after which a read without an answer fails.
    pub completion_timeout: Duration,
}

impl Default for Timing {
    /// A hop of 125 ns, so that a peer-to-peer write needs 250 ns: switches of the second and third
    /// generation state 110 to 150 ns from port to port, and the serialisers of both ends add about as much.
    /// With 100 ns at the completer a 64-byte read takes 600 ns; Neugebauer et al. (SIGCOMM 2018,
    /// "Understanding PCIe performance for end host networking") measured 520 to 1,000 ns. 256-byte payloads
    /// are what most root ports allow. A packet adds 4 bytes of framing with sequence number, a 16-byte
    /// header and a 4-byte LCRC [PCIe 3.0, 4.2.2, 2.2.1, 3.5.1]. 50 ms is the top of the default range of the
    /// completion timeout [PCIe 3.0, 7.8.16].
    fn default() -> Timing {
        Timing {
            hop: Duration::from_nanos(125),
            completer: Duration::from_nanos(100),
            payload: 256,
            overhead: 24,
            completion_timeout: Duration::from_millis(50),
        }
    }
}

impl Timing {
    /// Returns the bytes on the link for `payload` bytes: at least one packet.
    pub(crate) fn on_link(&self, payload: u64) -> u64 {
        payload + payload.div_ceil(self.payload).max(1) * self.overhead
    }
}

/// A function's link to the switch: two directions, each of which sends one packet at a time.
#[derive(Debug)]
pub(crate) struct Link {
    rate: Rate,
    up_free: Ps,
    down_free: Ps,
    /// Bytes with overhead from the function.
    pub(crate) up: u64,
    /// Bytes with overhead to the function.
    pub(crate) down: u64,
}

impl Link {
    pub(crate) fn new(rate: Rate) -> Link {
        Link { rate, up_free: 0, down_free: 0, up: 0, down: 0 }
    }

    /// Returns the time for which the upstream direction is still busy.
    pub(crate) fn backlog(&self, now: Ps) -> Ps {
        self.up_free.saturating_sub(now)
    }

    /// Sends `payload` bytes up. Returns when the first packet and when the last packet is at the switch.
    pub(crate) fn send_up(&mut self, timing: &Timing, start: Ps, payload: u64) -> (Ps, Ps) {
        let bytes = timing.on_link(payload);
        let start = start.max(self.up_free);
        let end = start + bytes * self.rate.ps_per_byte;
        self.up_free = end;
        self.up += bytes;
        let first = timing.on_link(payload.min(timing.payload)) * self.rate.ps_per_byte;
        (start + first + to_ps(timing.hop), end + to_ps(timing.hop))
    }

    /// Forwards a transfer that arrives at the switch from `first` to `last`, packet by packet, so that a long one uses both
    /// links at once. Returns when the last packet arrives.
    pub(crate) fn send_down(&mut self, timing: &Timing, (first, last): (Ps, Ps), payload: u64) -> Ps {
        let bytes = timing.on_link(payload);
        let packet = timing.on_link(payload.min(timing.payload)) * self.rate.ps_per_byte;
        let start = first.max(self.down_free);
        let end = (start + bytes * self.rate.ps_per_byte).max(last + packet);
        self.down_free = end;
        self.down += bytes;
        end + to_ps(timing.hop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_transfer_is_on_both_links_at_once() {
        let timing = Timing::default();
        let (mut from, mut to) = (Link::new(Rate::GEN3_X4), Link::new(Rate::GEN3_X4));
        let at_switch = from.send_up(&timing, 0, 4096);
        let end = to.send_down(&timing, at_switch, 4096);
        let alone = (4096 + 16 * 24) * 254;
        // Both hops, the whole transfer once, and one additional packet.
        assert_eq!(end, alone + 2 * 125_000 + 280 * 254);
    }

    #[test]
    fn a_link_sends_one_thing_at_a_time() {
        let timing = Timing::default();
        let mut link = Link::new(Rate::GEN2_X4);
        let (_, first) = link.send_up(&timing, 0, 256);
        let (_, second) = link.send_up(&timing, 0, 256);
        assert_eq!(second - first, 280 * 500);
        assert_eq!(link.up, 560);
    }
}
