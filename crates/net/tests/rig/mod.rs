//! A card with its stack, an owner that checks every byte, a NIC, and a wire that loses, delays, doubles,
//! reorders and corrupts, in virtual time.
#![allow(dead_code, unused_imports)]

pub mod card;
pub mod forge;
pub mod nic;
pub mod pair;
pub mod smol;
pub mod wire;

pub use card::{Card, Plan};
pub use pair::Pair;
pub use wire::{Faults, Wire};

pub const MS: u64 = 1_000_000;
pub const SECOND: u64 = 1_000 * MS;

/// SplitMix64.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }

    /// True so many times in a thousand.
    pub fn chance(&mut self, permille: u32) -> bool {
        self.below(1000) < u64::from(permille)
    }
}

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The bytes of stream `seed` from `offset` on: no two places look alike.
pub fn fill(seed: u64, offset: u64, bytes: &mut [u8]) {
    let word = |at: u64| mix(seed ^ (at / 8).wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_le_bytes();
    let (mut at, mut rest) = (offset, bytes);
    while !rest.is_empty() {
        let from = &word(at)[(at % 8) as usize..];
        let (now, later) = rest.split_at_mut(from.len().min(rest.len()));
        now.copy_from_slice(&from[..now.len()]);
        at += now.len() as u64;
        rest = later;
    }
}

/// True if these are the stream's bytes.
pub fn is_filled(seed: u64, offset: u64, bytes: &[u8]) -> bool {
    let mut expected = vec![0; bytes.len()];
    fill(seed, offset, &mut expected);
    expected == bytes
}
