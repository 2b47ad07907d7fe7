//! The chain of a namespace: the operators that data pass between guest and volume.

use dcs_abi::operator::Operator;
use dcs_ndp::{Context, parameter};

use crate::config::ConfigError;

/// AES-256-XTS: each logical block is a data unit, and its number is the tweak. [IEEE 1619]
pub struct Chain {
    key: [u8; 64],
}

impl std::fmt::Debug for Chain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Chain(aes256-xts)")
    }
}

impl PartialEq for Chain {
    fn eq(&self, other: &Chain) -> bool {
        self.key == other.key
    }
}

impl Eq for Chain {}

impl Drop for Chain {
    fn drop(&mut self) {
        self.key.fill(0);
        // Keeps the compiler from removing the fill.
        std::hint::black_box(&self.key);
    }
}

impl Chain {
    /// Makes a chain from a key: the half for the data, then the half for the tweaks.
    ///
    /// # Errors
    ///
    /// Fails if the two halves are equal.
    pub fn aes256_xts(key: &[u8; 64]) -> Result<Chain, ConfigError> {
        let chain = Chain { key: *key };
        // The operator itself checks the key.
        match chain.context(Operator::Aes256Xts, 0, 512) {
            Some(_) => Ok(chain),
            None => Err(ConfigError::Key),
        }
    }

    fn context(&self, operator: Operator, first: u64, block: u32) -> Option<Context> {
        let mut block = parameter::aes256_xts(&self.key, block, first);
        let context = Context::new(operator, &block).ok();
        block.fill(0);
        std::hint::black_box(&block);
        context
    }

    fn apply(&self, operator: Operator, first: u64, shift: u8, bytes: &mut [u8]) -> bool {
        let context = self.context(operator, first, 1 << shift);
        context.is_some_and(|mut context| context.in_place(bytes, true).is_ok())
    }

    /// Distinguishes chains by their keys without revealing a key: it is the encryption of a block number
    /// that no namespace has.
    pub fn fingerprint(&self) -> [u8; 16] {
        let mut bytes = [0; 512];
        self.encrypt(1 << 63, 9, &mut bytes);
        std::array::from_fn(|at| bytes[at])
    }

    /// Encrypts whole logical blocks of `1 << shift` bytes; `first` is the number of the first one. Returns
    /// false, and leaves the bytes unchanged, if that is impossible.
    pub(crate) fn encrypt(&self, first: u64, shift: u8, bytes: &mut [u8]) -> bool {
        self.apply(Operator::Aes256Xts, first, shift, bytes)
    }

    /// Decrypts in the same way.
    pub(crate) fn decrypt(&self, first: u64, shift: u8, bytes: &mut [u8]) -> bool {
        self.apply(Operator::Aes256XtsDecrypt, first, shift, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> [u8; 64] {
        std::array::from_fn(|i| i as u8)
    }

    #[test]
    fn blocks_are_encrypted_by_their_numbers() {
        let chain = Chain::aes256_xts(&key()).unwrap();
        let mut whole = [7; 4 * 512];
        assert!(chain.encrypt(100, 9, &mut whole));
        // Block by block gives the same result.
        for (number, block) in (100..).zip(whole.chunks_exact(512)) {
            let mut alone = [7; 512];
            assert!(chain.encrypt(number, 9, &mut alone));
            assert_eq!(alone, block);
        }
        assert_ne!(whole[..512], whole[512..1024]);
        assert!(chain.decrypt(100, 9, &mut whole));
        assert_eq!(whole, [7; 4 * 512]);
    }

    #[test]
    fn a_key_of_two_equal_halves_is_refused() {
        assert_eq!(Chain::aes256_xts(&[1; 64]).unwrap_err(), ConfigError::Key);
    }
}
