//! MD5 (RFC 1321): the compression function for one stream, and for many streams in the lanes of a vector unit (`x86`).

/// The 64 steps of RFC 1321 section 3.4: round function, registers, message word, rotation, constant.
macro_rules! steps {
    ($step:ident) => {
        $step!(F, 0, 1, 2, 3, 0, 7, 0xd76aa478);
        $step!(F, 3, 0, 1, 2, 1, 12, 0xe8c7b756);
        $step!(F, 2, 3, 0, 1, 2, 17, 0x242070db);
        $step!(F, 1, 2, 3, 0, 3, 22, 0xc1bdceee);
        $step!(F, 0, 1, 2, 3, 4, 7, 0xf57c0faf);
        $step!(F, 3, 0, 1, 2, 5, 12, 0x4787c62a);
        $step!(F, 2, 3, 0, 1, 6, 17, 0xa8304613);
        $step!(F, 1, 2, 3, 0, 7, 22, 0xfd469501);
        $step!(F, 0, 1, 2, 3, 8, 7, 0x698098d8);
        $step!(F, 3, 0, 1, 2, 9, 12, 0x8b44f7af);
        $step!(F, 2, 3, 0, 1, 10, 17, 0xffff5bb1);
        $step!(F, 1, 2, 3, 0, 11, 22, 0x895cd7be);
        $step!(F, 0, 1, 2, 3, 12, 7, 0x6b901122);
        $step!(F, 3, 0, 1, 2, 13, 12, 0xfd987193);
        $step!(F, 2, 3, 0, 1, 14, 17, 0xa679438e);
        $step!(F, 1, 2, 3, 0, 15, 22, 0x49b40821);
        $step!(G, 0, 1, 2, 3, 1, 5, 0xf61e2562);
        $step!(G, 3, 0, 1, 2, 6, 9, 0xc040b340);
        $step!(G, 2, 3, 0, 1, 11, 14, 0x265e5a51);
        $step!(G, 1, 2, 3, 0, 0, 20, 0xe9b6c7aa);
        $step!(G, 0, 1, 2, 3, 5, 5, 0xd62f105d);
        $step!(G, 3, 0, 1, 2, 10, 9, 0x02441453);
        $step!(G, 2, 3, 0, 1, 15, 14, 0xd8a1e681);
        $step!(G, 1, 2, 3, 0, 4, 20, 0xe7d3fbc8);
        $step!(G, 0, 1, 2, 3, 9, 5, 0x21e1cde6);
        $step!(G, 3, 0, 1, 2, 14, 9, 0xc33707d6);
        $step!(G, 2, 3, 0, 1, 3, 14, 0xf4d50d87);
        $step!(G, 1, 2, 3, 0, 8, 20, 0x455a14ed);
        $step!(G, 0, 1, 2, 3, 13, 5, 0xa9e3e905);
        $step!(G, 3, 0, 1, 2, 2, 9, 0xfcefa3f8);
        $step!(G, 2, 3, 0, 1, 7, 14, 0x676f02d9);
        $step!(G, 1, 2, 3, 0, 12, 20, 0x8d2a4c8a);
        $step!(H, 0, 1, 2, 3, 5, 4, 0xfffa3942);
        $step!(H, 3, 0, 1, 2, 8, 11, 0x8771f681);
        $step!(H, 2, 3, 0, 1, 11, 16, 0x6d9d6122);
        $step!(H, 1, 2, 3, 0, 14, 23, 0xfde5380c);
        $step!(H, 0, 1, 2, 3, 1, 4, 0xa4beea44);
        $step!(H, 3, 0, 1, 2, 4, 11, 0x4bdecfa9);
        $step!(H, 2, 3, 0, 1, 7, 16, 0xf6bb4b60);
        $step!(H, 1, 2, 3, 0, 10, 23, 0xbebfbc70);
        $step!(H, 0, 1, 2, 3, 13, 4, 0x289b7ec6);
        $step!(H, 3, 0, 1, 2, 0, 11, 0xeaa127fa);
        $step!(H, 2, 3, 0, 1, 3, 16, 0xd4ef3085);
        $step!(H, 1, 2, 3, 0, 6, 23, 0x04881d05);
        $step!(H, 0, 1, 2, 3, 9, 4, 0xd9d4d039);
        $step!(H, 3, 0, 1, 2, 12, 11, 0xe6db99e5);
        $step!(H, 2, 3, 0, 1, 15, 16, 0x1fa27cf8);
        $step!(H, 1, 2, 3, 0, 2, 23, 0xc4ac5665);
        $step!(I, 0, 1, 2, 3, 0, 6, 0xf4292244);
        $step!(I, 3, 0, 1, 2, 7, 10, 0x432aff97);
        $step!(I, 2, 3, 0, 1, 14, 15, 0xab9423a7);
        $step!(I, 1, 2, 3, 0, 5, 21, 0xfc93a039);
        $step!(I, 0, 1, 2, 3, 12, 6, 0x655b59c3);
        $step!(I, 3, 0, 1, 2, 3, 10, 0x8f0ccc92);
        $step!(I, 2, 3, 0, 1, 10, 15, 0xffeff47d);
        $step!(I, 1, 2, 3, 0, 1, 21, 0x85845dd1);
        $step!(I, 0, 1, 2, 3, 8, 6, 0x6fa87e4f);
        $step!(I, 3, 0, 1, 2, 15, 10, 0xfe2ce6e0);
        $step!(I, 2, 3, 0, 1, 6, 15, 0xa3014314);
        $step!(I, 1, 2, 3, 0, 13, 21, 0x4e0811a1);
        $step!(I, 0, 1, 2, 3, 4, 6, 0xf7537e82);
        $step!(I, 3, 0, 1, 2, 11, 10, 0xbd3af235);
        $step!(I, 2, 3, 0, 1, 2, 15, 0x2ad7d2bb);
        $step!(I, 1, 2, 3, 0, 9, 21, 0xeb86d391);
    };
}

#[cfg(target_arch = "x86_64")]
pub(crate) mod x86;

use crate::hash::{BLOCK, Function};

/// MD5 as a hash function.
pub(crate) enum Md5 {}

impl Function for Md5 {
    type State = [u32; 4];
    const START: [u32; 4] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
    const BIG_ENDIAN: bool = false;

    fn compress(state: &mut [u32; 4], blocks: &[[u8; BLOCK]]) {
        #[cfg(target_arch = "x86_64")]
        if x86::lone(state, blocks) {
            return;
        }
        portable(state, blocks);
    }
}

/// Compresses on general registers. Each step waits for the one before it, so the number of instructions after the new
/// register counts: everything else is added before.
fn portable(state: &mut [u32; 4], blocks: &[[u8; BLOCK]]) {
    let mut registers = *state;
    for block in blocks {
        let words = block.as_chunks().0;
        let before = registers;
        // The part of the round function that does not need the new register, and the rest. The two parts of G have no
        // bit in common, so they may be added one after the other.
        macro_rules! parts {
            (F, $b:expr, $c:expr, $d:expr) => {
                (0, (($c ^ $d) & $b) ^ $d)
            };
            (G, $b:expr, $c:expr, $d:expr) => {
                ($c & !$d, $b & $d)
            };
            (H, $b:expr, $c:expr, $d:expr) => {
                (0, as_it_stands($c ^ $d) ^ $b)
            };
            (I, $b:expr, $c:expr, $d:expr) => {
                (0, ($b | !$d) ^ $c)
            };
        }
        macro_rules! step {
            ($f:ident, $a:literal, $b:literal, $c:literal, $d:literal, $word:literal, $rotation:literal, $constant:literal) => {
                let (early, late) = parts!($f, registers[$b], registers[$c], registers[$d]);
                let early = u32::from_le_bytes(words[$word])
                    .wrapping_add($constant)
                    .wrapping_add(registers[$a])
                    .wrapping_add(early);
                let sum = as_it_stands(early).wrapping_add(late);
                registers[$a] = sum.rotate_left($rotation).wrapping_add(registers[$b]);
            };
        }
        steps!(step);
        for (register, before) in registers.iter_mut().zip(before) {
            *register = register.wrapping_add(before);
        }
    }
    *state = registers;
}

/// Returns the same number, but keeps the compiler from reordering its sum. Otherwise it would add the parts after the
/// register that is waited for, which measurably costs a fifth of the speed.
#[allow(unsafe_code)]
#[inline(always)]
fn as_it_stands(value: u32) -> u32 {
    #[cfg(target_arch = "x86_64")]
    {
        let mut value = value;
        // SAFETY: it is no instruction at all.
        unsafe {
            std::arch::asm!("/* {0:e} */", inout(reg) value, options(pure, nomem, nostack, preserves_flags));
        }
        value
    }
    #[cfg(not(target_arch = "x86_64"))]
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Processors with AVX-512 never run this code otherwise.
    #[test]
    fn the_portable_function_gives_what_openssl_gives() {
        for blocks in [0, 1, 2, 3, 100] {
            let data: Vec<u8> = (0..blocks * BLOCK).map(|at| (at * at / 7 + at) as u8).collect();
            let bits = (data.len() as u64 * 8).to_le_bytes();
            let mut padding = [0; BLOCK];
            padding[0] = 0x80;
            padding[BLOCK - 8..].copy_from_slice(&bits);
            let mut state = Md5::START;
            portable(&mut state, data.as_chunks().0);
            portable(&mut state, &[padding]);
            let value = openssl::hash::hash(openssl::hash::MessageDigest::md5(), &data).unwrap();
            assert_eq!(state.map(u32::to_le_bytes).as_flattened(), &*value);
        }
    }
}
