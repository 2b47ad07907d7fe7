//! Numbers and data that can be had again.

/// SplitMix64.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % limit
    }
}

/// The data of that number: each block says which it is. Cheap to make, since one thread is all the clients.
pub fn data(seed: u64, length: usize) -> Vec<u8> {
    const BLOCK: usize = 4096;
    let mut block = [seed as u8; BLOCK];
    block[8..16].copy_from_slice(&seed.to_le_bytes());
    let mut bytes = Vec::with_capacity(length + BLOCK);
    for number in 0..length.div_ceil(BLOCK) as u64 {
        block[..8].copy_from_slice(&number.to_le_bytes());
        bytes.extend_from_slice(&block);
    }
    bytes.truncate(length);
    bytes
}
