//! A card with its stack, an owner that checks every byte, a NIC, and a wire that loses, delays, duplicates, reorders and corrupts, in
//! virtual time.
#![allow(dead_code, unused_imports)]

pub mod card;
pub mod forge;
pub mod nic;
pub mod pair;
pub mod smol;
pub mod wire;

pub use card::{Card, Plan};
pub use dcs_testkit::{Random, random::fill};
pub use pair::Pair;
pub use wire::{Faults, Wire};

pub const MS: u64 = 1_000_000;
pub const SECOND: u64 = 1_000 * MS;

/// Returns true if these are the stream's bytes.
pub fn is_filled(seed: u64, offset: u64, bytes: &[u8]) -> bool {
    let mut expected = vec![0; bytes.len()];
    fill(seed, offset, &mut expected);
    expected == bytes
}
