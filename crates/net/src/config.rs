//! The owner's settings.

use crate::message::Nanos;
use core::net::Ipv4Addr;

const MILLISECOND: Nanos = 1_000_000;
const SECOND: Nanos = 1_000 * MILLISECOND;

/// The settings of a stack.
#[derive(Clone, Debug)]
pub struct Config {
    /// Ethernet address of the NIC.
    pub mac: [u8; 6],
    /// IPv4 address of the card.
    pub address: Ipv4Addr,
    /// Prefix length of the network: hosts in it are reached without a gateway.
    pub prefix: u8,
    /// Gateway to all other hosts.
    pub gateway: Option<Ipv4Addr>,
    /// Largest IPv4 packet on the link, in bytes: 576 to 9,216.
    pub mtu: u16,
    /// TCP segmentation offload: largest payload of one frame that the NIC segments, at most 65,000 bytes; `None` without the offload.
    pub segmentation: Option<u32>,
    /// Secret of this card: initial sequence numbers, timestamps and ports are made from it (RFC 6528). Take it from a good source of
    /// randomness, new at each start.
    pub key: [u8; 16],
    /// Limits on what peers can use.
    pub limits: Limits,
    /// Settings of TCP.
    pub tcp: TcpConfig,
}

impl Config {
    /// Makes the usual settings, for an Ethernet without offloads.
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

    /// Returns the next hop to this address: the address itself, or the gateway; `None` if no single host can have it.
    pub(crate) fn next_hop(&self, to: Ipv4Addr) -> Option<Ipv4Addr> {
        if !self.is_host(to) || to == self.address {
            return None;
        }
        if self.on_link(to) { Some(to) } else { self.gateway.filter(|gateway| self.on_link(*gateway)) }
    }

    /// Returns true if it can be one host's address: neither this network's broadcast address nor a reserved one.
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

/// Bounds on the resources that peers can make the card use.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Most connections, in all states except TIME-WAIT.
    pub flows: usize,
    /// Most connections of one listening port that are not yet established. A further one replaces the oldest.
    pub backlog: usize,
    /// Most connections that their owner has released and that have not ended yet. A further one resets the oldest; so does a new
    /// connection for which there is no room.
    pub orphans: usize,
    /// Most connections in TIME-WAIT. A further one replaces the oldest.
    pub time_wait: usize,
    /// Most bytes of a stream that may be received beyond what was granted, and wait in receive buffers.
    pub buffer: u32,
    /// Most receive buffers in which such bytes of one connection may wait.
    pub held: usize,
    /// Most receive buffers in which such bytes of all connections may wait. Choose fewer than the NIC has: the rest receives everything
    /// else. Half of them are promised to peers by windows; the other half is for the two segments that each connection has at least.
    pub held_total: usize,
    /// Most ranges of received bytes of one connection that follow a gap.
    pub ranges: usize,
    /// Largest window to advertise, in bytes.
    pub window: u32,
    /// Most chunks in one connection's send queue.
    pub chunks: usize,
    /// Most neighbours in the ARP cache. A further one replaces the least recently used.
    pub neighbours: usize,
    /// Most frames without a connection that wait to be sent: resets, echo replies.
    pub pending: usize,
    /// Most echo replies that are not sent yet: each keeps the receive buffer of its request.
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
    /// Selective acknowledgements (RFC 2018), if the peer supports them too.
    pub sack: bool,
    /// Timestamps (RFC 7323), if the peer supports them too.
    pub timestamps: bool,
    /// Least retransmission timeout. RFC 6298 says 1 s; 200 ms is common in practice.
    pub least_rto: Nanos,
    /// Largest retransmission timeout.
    pub most_rto: Nanos,
    /// Longest delay of an acknowledgement, which never waits for more than two full segments.
    pub delayed_ack: Nanos,
    /// Time without an answer from the peer after which a connection is given up.
    pub user_timeout: Nanos,
    /// Idle time after which a connection is probed, and given up by the user timeout; `None`: never probed.
    pub keep_alive: Option<Nanos>,
    /// Time without progress of the peer's acknowledgements after which a released connection
    /// ([`Stack::release`](crate::Stack::release)) is reset.
    pub linger: Nanos,
    /// Duration of TIME-WAIT: two maximum segment lifetimes.
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
