//! Settings that an owner chooses.

use crate::message::Nanos;
use core::net::Ipv4Addr;

const MILLISECOND: Nanos = 1_000_000;
const SECOND: Nanos = 1_000 * MILLISECOND;

/// The settings of a stack.
#[derive(Clone, Debug)]
pub struct Config {
    /// The NIC's address.
    pub mac: [u8; 6],
    /// The card's address.
    pub address: Ipv4Addr,
    /// Length of the network's prefix: whom the card reaches without a gateway.
    pub prefix: u8,
    /// Whom it reaches the others by.
    pub gateway: Option<Ipv4Addr>,
    /// Largest IPv4 packet on the link, in bytes: 576 to 9,216.
    pub mtu: u16,
    /// TCP segmentation offload: largest payload of one frame that the NIC segments, at most 65,000 bytes.
    /// None without.
    pub segmentation: Option<u32>,
    /// Secret of this card: initial sequence numbers, timestamps and ports are made from it (RFC 6528). From
    /// a good source of randomness, new at each start.
    pub key: [u8; 16],
    /// The limits.
    pub limits: Limits,
    /// The settings of TCP.
    pub tcp: TcpConfig,
}

impl Config {
    /// The usual choices, for an Ethernet without offloads.
    pub fn new(mac: [u8; 6], address: Ipv4Addr, prefix: u8, key: [u8; 16]) -> Config {
        Config {
            mac,
            address,
            prefix: prefix.min(32),
            gateway: None,
            mtu: 1500,
            segmentation: None,
            key,
            limits: Limits::default(),
            tcp: TcpConfig::default(),
        }
    }

    pub(crate) fn on_link(&self, to: Ipv4Addr) -> bool {
        let differ = to.to_bits() ^ self.address.to_bits();
        u64::from(differ) >> (32 - self.prefix.min(32)) == 0
    }

    /// The next hop to this address: the address itself, or the gateway. None where no single host has it.
    pub(crate) fn next_hop(&self, to: Ipv4Addr) -> Option<Ipv4Addr> {
        if !self.is_host(to) || to == self.address {
            return None;
        }
        if self.on_link(to) { Some(to) } else { self.gateway.filter(|gateway| self.on_link(*gateway)) }
    }

    /// True if it can be one host's address: not this network's broadcast address, nor a reserved one.
    pub(crate) fn is_host(&self, address: Ipv4Addr) -> bool {
        let host = u32::MAX.checked_shr(self.prefix.into()).unwrap_or(0);
        let is_broadcast = self.prefix < 31
            && self.on_link(address)
            && matches!(address.to_bits() & host, bits if bits == host || bits == 0);
        !(is_broadcast
            || address.is_unspecified()
            || address.is_broadcast()
            || address.is_multicast()
            || address.is_loopback())
    }
}

/// Bounds on what peers can make the card keep.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Connections, of all states but TIME-WAIT.
    pub flows: usize,
    /// Connections of one listening port that are not yet established. One more takes the place of the
    /// oldest.
    pub backlog: usize,
    /// Connections that their owner has let go of and that are not at their end yet. One more, and the oldest
    /// is reset; so it is where there is no room for a new connection.
    pub orphans: usize,
    /// Connections in TIME-WAIT. One more takes the place of the oldest.
    pub time_wait: usize,
    /// Bytes of a stream that may be received beyond what was granted, and wait in receive buffers.
    pub buffer: u32,
    /// Receive buffers in which such bytes may wait, of one connection.
    pub held: usize,
    /// Receive buffers in which such bytes may wait, of all connections. Fewer than the NIC has: what is left
    /// receives everything else. Half of them are promised to peers by windows; the rest is for the two
    /// segments that each connection has at least.
    pub held_total: usize,
    /// Ranges of received bytes, of one connection, before which bytes are missing.
    pub ranges: usize,
    /// Largest window that is ever advertised, in bytes.
    pub window: u32,
    /// Chunks in one connection's send queue.
    pub chunks: usize,
    /// Neighbours in the ARP cache. One more takes the place of the one that was used longest ago.
    pub neighbours: usize,
    /// Frames without a connection that wait to be sent: resets, echo replies.
    pub pending: usize,
    /// Echo replies that have not left yet: each keeps the receive buffer of its request.
    pub echoes: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            flows: 4096,
            backlog: 128,
            orphans: 1024,
            time_wait: 4096,
            buffer: 64 << 10,
            held: 64,
            held_total: 512,
            ranges: 64,
            window: 4 << 20,
            chunks: 4096,
            neighbours: 1024,
            pending: 256,
            echoes: 32,
        }
    }
}

/// The settings of TCP.
#[derive(Clone, Debug)]
pub struct TcpConfig {
    /// Selective acknowledgements (RFC 2018), where the peer has them too.
    pub sack: bool,
    /// Timestamps (RFC 7323), where the peer has them too.
    pub timestamps: bool,
    /// Least retransmission timeout. RFC 6298 says 1 s; 200 ms is what is used in practice.
    pub least_rto: Nanos,
    /// Largest retransmission timeout.
    pub most_rto: Nanos,
    /// An acknowledgement is delayed so long at most, and no longer than for two full segments.
    pub delayed_ack: Nanos,
    /// A connection whose peer does not answer for so long is given up.
    pub user_timeout: Nanos,
    /// One that is idle for so long is probed, and given up by the user timeout. None: never probed.
    pub keep_alive: Option<Nanos>,
    /// A connection that its owner has let go of ([`Stack::release`](crate::Stack::release)) is reset when
    /// its peer has acknowledged nothing new for so long.
    pub linger: Nanos,
    /// The duration of TIME-WAIT: two maximum segment lifetimes.
    pub time_wait: Nanos,
}

impl Default for TcpConfig {
    fn default() -> TcpConfig {
        TcpConfig {
            sack: true,
            timestamps: true,
            least_rto: 200 * MILLISECOND,
            most_rto: 60 * SECOND,
            delayed_ack: 40 * MILLISECOND,
            user_timeout: 120 * SECOND,
            keep_alive: None,
            linger: 60 * SECOND,
            time_wait: 60 * SECOND,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_hop_is_the_host_or_the_gateway() {
        let mut config = Config::new([2; 6], Ipv4Addr::new(10, 0, 0, 1), 24, [0; 16]);
        let [near, far] = [Ipv4Addr::new(10, 0, 0, 9), Ipv4Addr::new(10, 0, 1, 9)];
        assert_eq!((config.next_hop(near), config.next_hop(far)), (Some(near), None));
        config.gateway = Some(near);
        assert_eq!(config.next_hop(far), Some(near));
        for nobody in
            ["10.0.0.255", "10.0.0.0", "10.0.0.1", "0.0.0.0", "224.0.0.1", "255.255.255.255", "127.0.0.1"]
        {
            assert_eq!(config.next_hop(nobody.parse().unwrap()), None, "{nobody}");
        }
        config.prefix = 32;
        assert_eq!(config.next_hop(near), None, "the gateway is not reached directly");
        config.prefix = 0;
        assert_eq!(config.next_hop(far), Some(far));
    }
}
