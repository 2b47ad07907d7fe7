//! SHA-256 (FIPS 180-4): the compression function of the `sha2` crate for one stream, and for two streams at
//! once on the SHA instructions of x86 (`x86`).

#[cfg(target_arch = "x86_64")]
pub(crate) mod x86;

use crate::hash::{BLOCK, Function};

/// SHA-256 as a hash function.
pub(crate) enum Sha256 {}

impl Function for Sha256 {
    type State = [u32; 8];
    const START: [u32; 8] = [
        0x6a09_e667,
        0xbb67_ae85,
        0x3c6e_f372,
        0xa54f_f53a,
        0x510e_527f,
        0x9b05_688c,
        0x1f83_d9ab,
        0x5be0_cd19,
    ];
    const BIG_ENDIAN: bool = true;

    fn compress(state: &mut [u32; 8], blocks: &[[u8; BLOCK]]) {
        sha2::block_api::compress256(state, blocks);
    }
}
