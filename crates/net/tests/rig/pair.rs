//! Two nodes and the wire between them.

use super::{Card, Faults, SECOND, Wire};
use dcs_net::Config;
use std::any::Any;
use std::net::{Ipv4Addr, SocketAddrV4};

/// A node on the link.
pub trait Node {
    fn receive(&mut self, frame: &[u8], now: u64);
    /// Does what is due, and returns the frames that it sends.
    fn step(&mut self, now: u64) -> Vec<Vec<u8>>;
    fn deadline(&self) -> Option<u64>;
    fn as_any(&mut self) -> &mut dyn Any;
}

pub const ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2)];

pub fn config(side: usize) -> Config {
    let n = side as u8 + 1;
    Config::new([2, 0, 0, 0, 0, n], ADDRESSES[side], 24, [n; 16])
}

pub fn address(side: usize, port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(ADDRESSES[side], port)
}

pub struct Pair {
    pub nodes: [Box<dyn Node>; 2],
    pub wire: Wire,
    pub now: u64,
}

impl Pair {
    pub fn new(a: impl Node + 'static, b: impl Node + 'static, wire: Wire) -> Pair {
        Pair { nodes: [Box::new(a), Box::new(b)], wire, now: SECOND }
    }

    /// Makes a pair of two cards.
    pub fn cards(seed: u64, latency: u64, faults: Faults, configs: [Config; 2]) -> Pair {
        let [a, b] = configs;
        let offload = (a.segmentation.is_some(), b.segmentation.is_some());
        Pair::new(Card::new(a, offload.0), Card::new(b, offload.1), Wire::new(seed, latency, faults))
    }

    pub fn card(&mut self, side: usize) -> &mut Card {
        self.node(side)
    }

    pub fn node<N: Node + 'static>(&mut self, side: usize) -> &mut N {
        self.nodes[side].as_any().downcast_mut().unwrap()
    }

    /// Lets both nodes do what is due at this time.
    fn settle(&mut self) {
        loop {
            let mut moved = false;
            while let Some((side, frame)) = self.wire.arrived(self.now) {
                self.nodes[side].receive(&frame, self.now);
                // A card takes frames one by one.
                for frame in self.nodes[side].step(self.now) {
                    self.wire.carry(side, frame, self.now);
                }
                moved = true;
            }
            for side in 0..2 {
                for frame in self.nodes[side].step(self.now) {
                    self.wire.carry(side, frame, self.now);
                    moved = true;
                }
            }
            if !moved {
                return;
            }
        }
    }

    /// Runs until `done` holds, for `limit` nanoseconds at most; returns whether it does.
    pub fn run_until(&mut self, limit: u64, mut done: impl FnMut(&mut Pair) -> bool) -> bool {
        let end = self.now + limit;
        loop {
            self.settle();
            if done(self) {
                return true;
            }
            let times = [self.wire.deadline(), self.nodes[0].deadline(), self.nodes[1].deadline()];
            match times.into_iter().flatten().min() {
                Some(at) if at <= end => {
                    assert!(
                        at > self.now || self.wire.deadline() == Some(at),
                        "a deadline does not pass: {times:?} at {}",
                        self.now
                    );
                    self.now = self.now.max(at);
                }
                _ => {
                    self.now = end;
                    return false;
                }
            }
        }
    }

    pub fn run_for(&mut self, time: u64) {
        self.run_until(time, |_| false);
        self.settle();
    }
}
