//! Neighbours: their Ethernet addresses (RFC 826), and the senders that wait for one.

use crate::message::Nanos;
use core::net::Ipv4Addr;
use std::collections::{BTreeMap, VecDeque};

const SECOND: Nanos = 1_000_000_000;

/// Time for which an address is used before it is requested again.
const REACHABLE_TIME: Nanos = 60 * SECOND;

/// Interval between two requests.
const INTERVAL: Nanos = SECOND;

/// Requests without an answer after which a neighbour is given up: enough for a link that loses one frame in ten.
const REQUESTS_MAX: u32 = 5;

/// Most frames without a connection that wait for one neighbour.
const PENDING: usize = 8;

/// The senders that wait for a neighbour.
#[derive(Debug)]
pub(crate) struct Waiting<T, P> {
    pub(crate) turns: Vec<T>,
    pub(crate) packets: Vec<P>,
}

impl<T, P> Default for Waiting<T, P> {
    fn default() -> Self {
        Waiting { turns: Vec::new(), packets: Vec::new() }
    }
}

#[derive(Debug)]
struct Neighbour<T, P> {
    mac: Option<[u8; 6]>,
    learned: Nanos,
    used: Nanos,
    /// Set if the owner has chosen to send there; otherwise a stranger made the card send a request.
    own: bool,
    /// Set if the neighbour seems to be gone.
    doubted: bool,
    /// Time of the last request, and its number.
    asked: Option<(Nanos, u32)>,
    waiting: Waiting<T, P>,
}

#[derive(Debug)]
pub(crate) struct Neighbours<T, P> {
    entries: BTreeMap<Ipv4Addr, Neighbour<T, P>>,
    most: usize,
    requests: VecDeque<Ipv4Addr>,
    /// Senders that waited for an entry that was evicted.
    take_evicted: Vec<Waiting<T, P>>,
}

impl<T: PartialEq, P> Neighbours<T, P> {
    pub(crate) fn new(most: usize) -> Neighbours<T, P> {
        Neighbours { entries: BTreeMap::new(), most, requests: VecDeque::new(), take_evicted: Vec::new() }
    }

    /// Returns the Ethernet address, if it is known. Otherwise the address is requested and [`Neighbours::wait`] works, unless there are
    /// too many entries. `own`: the owner has chosen to send there.
    pub(crate) fn find(&mut self, address: Ipv4Addr, own: bool, now: Nanos) -> Option<[u8; 6]> {
        if !self.entries.contains_key(&address) {
            self.add(address, None, own, now);
        }
        let entry = self.entries.get_mut(&address)?;
        entry.own |= own;
        entry.used = now;
        let fresh =
            entry.mac.is_some() && !entry.doubted && now.saturating_sub(entry.learned) < REACHABLE_TIME;
        if !fresh && entry.asked.is_none() {
            entry.asked = Some((now, 1));
            self.requests.push_back(address);
        }
        entry.mac
    }

    /// Adds an entry, if there is room. Room is made by evicting the least recently used entry whose address is known; or, for the owner's
    /// own destinations, the oldest one that a stranger caused.
    fn add(&mut self, address: Ipv4Addr, mac: Option<[u8; 6]>, own: bool, now: Nanos) {
        if self.entries.len() >= self.most {
            let oldest = |may: &dyn Fn(&Neighbour<T, P>) -> bool| {
                let those = self.entries.iter().filter(|(_, entry)| may(entry));
                those.min_by_key(|(_, entry)| entry.used).map(|(address, _)| *address)
            };
            let known = oldest(&|entry| entry.mac.is_some());
            let Some(oldest) = known.or_else(|| oldest(&|entry| own && !entry.own)) else { return };
            self.take_evicted.extend(self.entries.remove(&oldest).map(|entry| entry.waiting));
            self.requests.retain(|asked| *asked != oldest);
        }
        let waiting = Waiting::default();
        let neighbour = Neighbour { mac, learned: now, used: now, own, doubted: false, asked: None, waiting };
        self.entries.insert(address, neighbour);
    }

    /// Takes the senders that waited for an evicted neighbour.
    pub(crate) fn take_evicted(&mut self) -> Option<Waiting<T, P>> {
        self.take_evicted.pop()
    }

    /// Returns the number of neighbours whose address is requested.
    pub(crate) fn asked(&self) -> usize {
        self.entries.values().filter(|entry| entry.mac.is_none()).count()
    }

    /// Marks an entry as doubtful: its neighbour does not answer. The address stays in use and is requested again.
    pub(crate) fn doubt(&mut self, address: Ipv4Addr) {
        if let Some(entry) = self.entries.get_mut(&address) {
            entry.doubted = true;
        }
    }

    pub(crate) fn wait(&mut self, address: Ipv4Addr, turn: T) -> bool {
        let Some(entry) = self.entries.get_mut(&address) else { return false };
        if !entry.waiting.turns.contains(&turn) {
            entry.waiting.turns.push(turn);
        }
        true
    }

    /// Queues a packet for a neighbour; returns the packet if it cannot wait.
    pub(crate) fn wait_packet(&mut self, address: Ipv4Addr, packet: P) -> Result<(), P> {
        match self.entries.get_mut(&address) {
            Some(entry) if entry.waiting.packets.len() < PENDING => entry.waiting.packets.push(packet),
            _ => return Err(packet),
        }
        Ok(())
    }

    /// Learns a neighbour's address, if it was requested or known, or if `new`: the neighbour requests ours. Returns the senders that
    /// waited for it.
    pub(crate) fn learn(&mut self, address: Ipv4Addr, mac: [u8; 6], new: bool, now: Nanos) -> Waiting<T, P> {
        match self.entries.get_mut(&address) {
            Some(entry) => {
                (entry.mac, entry.learned, entry.asked) = (Some(mac), now, None);
                entry.doubted = false;
                std::mem::take(&mut entry.waiting)
            }
            None => {
                if new {
                    self.add(address, Some(mac), false, now);
                }
                Waiting::default()
            }
        }
    }

    /// Takes the next address to send a request for.
    pub(crate) fn request(&mut self) -> Option<Ipv4Addr> {
        self.requests.pop_front()
    }

    pub(crate) fn deadline(&self) -> Option<Nanos> {
        let asked = self.entries.values().filter_map(|entry| entry.asked);
        asked.map(|(at, _)| at.saturating_add(INTERVAL)).min()
    }

    /// Repeats requests, or gives up; returns the senders that waited for a neighbour that does not answer.
    pub(crate) fn poll(&mut self, now: Nanos) -> Vec<Waiting<T, P>> {
        let mut given_up = Vec::new();
        for (address, entry) in &mut self.entries {
            match &mut entry.asked {
                Some((at, tries)) if at.saturating_add(INTERVAL) <= now => {
                    if *tries == REQUESTS_MAX {
                        given_up.push(*address);
                    } else {
                        (*at, *tries) = (now, *tries + 1);
                        self.requests.push_back(*address);
                    }
                }
                _ => {}
            }
        }
        given_up
            .iter()
            .filter_map(|address| self.entries.remove(address))
            .map(|entry| entry.waiting)
            .collect()
    }

    /// Returns the number of packets that wait.
    pub(crate) fn pending(&self) -> usize {
        self.entries.values().map(|entry| entry.waiting.packets.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slab::Key;

    #[test]
    fn it_asks_some_times_and_gives_up() {
        let mut neighbours: Neighbours<Key, u8> = Neighbours::new(2);
        let [a, b, c] = [1, 2, 3].map(|n| Ipv4Addr::new(10, 0, 0, n));
        assert_eq!(neighbours.find(a, false, 0), None);
        assert_eq!(neighbours.find(a, false, 1), None);
        assert_eq!((neighbours.request(), neighbours.request()), (Some(a), None));
        assert!(neighbours.wait(a, Key::new(1, 1)) && neighbours.wait_packet(a, 7).is_ok());
        for at in 1..u64::from(REQUESTS_MAX) {
            assert_eq!(neighbours.deadline(), Some(at * SECOND));
            assert!(neighbours.poll(at * SECOND).is_empty());
            assert_eq!(neighbours.request(), Some(a));
        }
        assert_eq!(neighbours.find(b, false, 0), None);
        assert_eq!(neighbours.find(c, false, 0), None, "full");
        assert!(!neighbours.wait(c, Key::new(1, 1)));
        let waiting = neighbours.poll(u64::from(REQUESTS_MAX) * SECOND);
        assert_eq!(waiting.len(), 1);
        assert_eq!((&waiting[0].turns[..], &waiting[0].packets[..]), (&[Key::new(1, 1)][..], &[7][..]));
        assert_eq!(neighbours.pending(), 0);
    }

    #[test]
    fn an_address_is_used_while_it_is_asked_for_again() {
        let mut neighbours: Neighbours<Key, u8> = Neighbours::new(2);
        let [a, b, c] = [1, 2, 3].map(|n| Ipv4Addr::new(10, 0, 0, n));
        neighbours.learn(a, [1; 6], false, 0);
        assert_eq!(neighbours.find(a, false, 0), None, "it was not requested before");
        neighbours.request();
        neighbours.learn(a, [1; 6], false, 0);
        assert_eq!(neighbours.find(a, false, REACHABLE_TIME - 1), Some([1; 6]));
        assert_eq!(neighbours.deadline(), None);
        assert_eq!(neighbours.find(a, false, REACHABLE_TIME), Some([1; 6]));
        assert_eq!(neighbours.request(), Some(a));
        neighbours.learn(a, [7; 6], false, REACHABLE_TIME);
        assert_eq!((neighbours.find(a, false, REACHABLE_TIME), neighbours.request()), (Some([7; 6]), None));
        neighbours.doubt(a);
        assert_eq!(neighbours.find(a, false, REACHABLE_TIME), Some([7; 6]));
        assert_eq!(neighbours.request(), Some(a));
        neighbours.learn(b, [2; 6], true, REACHABLE_TIME);
        neighbours.learn(c, [3; 6], true, REACHABLE_TIME);
        assert_eq!(neighbours.find(b, false, REACHABLE_TIME), Some([2; 6]));
        assert_eq!(neighbours.find(c, false, REACHABLE_TIME), Some([3; 6]), "the oldest was evicted");
    }
}
