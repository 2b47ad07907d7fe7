//! A full-duplex link with faults.

use super::Random;
use std::collections::BTreeMap;

/// Faults of a wire, each as a number per thousand frames.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    pub lose: u32,
    pub double: u32,
    /// Frames delayed by up to `late` nanoseconds, so that others overtake them.
    pub delay: u32,
    pub late: u64,
    pub corrupt: u32,
}

impl Faults {
    pub fn none() -> Faults {
        Faults::default()
    }

    /// Returns the faults that the engine promises to tolerate: 5 % lost, 5 % overtaken, 3 % duplicated.
    pub fn bad() -> Faults {
        Faults { lose: 50, double: 30, delay: 50, late: 3_000_000, corrupt: 0 }
    }

    pub fn loss(permille: u32) -> Faults {
        Faults { lose: permille, ..Faults::default() }
    }
}

#[derive(Debug)]
pub struct Wire {
    pub faults: Faults,
    /// One-way latency, in nanoseconds.
    pub latency: u64,
    /// Time that a byte takes if the link is the bottleneck, in nanoseconds.
    pub byte_time: u64,
    busy: [u64; 2],
    random: Random,
    flying: BTreeMap<(u64, u64), (usize, Vec<u8>)>,
    count: u64,
    pub lost: u64,
    /// Every frame that was put on it, if recorded.
    pub tap: Option<Vec<(usize, Vec<u8>)>>,
}

impl Wire {
    pub fn new(seed: u64, latency: u64, faults: Faults) -> Wire {
        let flying = BTreeMap::new();
        let random = Random(seed);
        Wire { faults, latency, byte_time: 0, busy: [0; 2], random, flying, count: 0, lost: 0, tap: None }
    }

    /// Sends a frame from side `from`.
    pub fn carry(&mut self, from: usize, mut frame: Vec<u8>, now: u64) {
        if let Some(tap) = &mut self.tap {
            tap.push((from, frame.clone()));
        }
        let busy = self.busy[from].max(now) + self.byte_time * frame.len() as u64;
        self.busy[from] = busy;
        let faults = self.faults;
        if self.random.chance(faults.corrupt) {
            let bit = self.random.below(frame.len() as u64 * 8);
            frame[(bit / 8) as usize] ^= 1 << (bit % 8);
        }
        let copies = 1 + u64::from(self.random.chance(faults.double));
        for _ in 0..copies {
            if self.random.chance(faults.lose) {
                self.lost += 1;
                continue;
            }
            let late = if self.random.chance(faults.delay) { self.random.below(faults.late) } else { 0 };
            self.count += 1;
            self.flying.insert((busy + self.latency + late, self.count), (1 - from, frame.clone()));
        }
    }

    pub fn deadline(&self) -> Option<u64> {
        self.flying.keys().next().map(|(at, _)| *at)
    }

    /// Returns the frame that has arrived: the side, and its bytes.
    pub fn arrived(&mut self, now: u64) -> Option<(usize, Vec<u8>)> {
        let entry = self.flying.first_entry().filter(|entry| entry.key().0 <= now)?;
        Some(entry.remove())
    }
}
