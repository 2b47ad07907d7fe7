//! Chain of signatures: each chunk's signature covers the one before it (AWS Signature Version 4 for streams).

use hmac::{Hmac, KeyInit, Mac};

use crate::OperatorError;
use crate::hash::Hash;
use crate::parameter::AwsSignature;
use crate::sha256::Sha256;

/// SHA-256 of no data, which is in every chunk's string to sign.
const EMPTY: &[u8; 64] = b"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/// The chain, as far as it has come.
pub(super) struct Signature {
    /// HMAC with the key, before any data.
    key: Hmac<sha2::Sha256>,
    timestamp: [u8; 16],
    scope: Box<[u8]>,
    /// Previous signature, in hexadecimal digits.
    previous: [u8; 64],
    /// Hash of the chunk's data, or of the trailers, so far.
    hash: Hash<Sha256>,
}

impl Signature {
    pub fn new(parameter: &AwsSignature) -> Result<Signature, OperatorError> {
        let key = Hmac::new_from_slice(&parameter.key).map_err(|_| OperatorError::BadParameter)?;
        let scope = parameter.scope.as_bytes().into();
        let (timestamp, previous) = (parameter.timestamp, hex(&parameter.seed));
        Ok(Signature { key, timestamp, scope, previous, hash: Hash::new() })
    }

    /// Adds the next bytes of the chunk's data.
    pub fn absorb(&mut self, data: &[u8]) {
        self.hash.absorb(data);
    }

    /// Adds the next trailer in the form that is signed: its name in lower case.
    pub fn absorb_trailer(&mut self, name: &[u8], value: &[u8]) {
        for byte in name {
            self.hash.absorb(&[byte.to_ascii_lowercase()]);
        }
        self.hash.absorb(b":");
        self.hash.absorb(value);
        self.hash.absorb(b"\n");
    }

    /// Ends the chunk, and checks its signature.
    pub fn verify_chunk(&mut self, claimed: &[u8; 32]) -> Result<(), OperatorError> {
        self.verify(b"AWS4-HMAC-SHA256-PAYLOAD", &[EMPTY, b"\n"], claimed)
    }

    /// Ends the trailers, and checks their signature.
    pub fn verify_trailers(&mut self, claimed: &[u8; 32]) -> Result<(), OperatorError> {
        self.verify(b"AWS4-HMAC-SHA256-TRAILER", &[], claimed)
    }

    fn verify(
        &mut self,
        algorithm: &[u8],
        before_hash: &[&[u8]],
        claimed: &[u8; 32],
    ) -> Result<(), OperatorError> {
        let hash = std::mem::replace(&mut self.hash, Hash::new());
        let hash = hash.value();
        let hash = hash.as_ref().first_chunk().ok_or(OperatorError::InternalError)?;
        let mut mac = self.key.clone();
        for line in [algorithm, &self.timestamp, &self.scope, &self.previous] {
            mac.update(line);
            mac.update(b"\n");
        }
        before_hash.iter().for_each(|part| mac.update(part));
        mac.update(&hex(hash));
        // This comparison takes constant time.
        mac.verify_slice(claimed).map_err(|_| OperatorError::Signature)?;
        self.previous = hex(claimed);
        Ok(())
    }
}

/// Parses a signature's 64 hexadecimal digits.
pub(super) fn parse(digits: &[u8]) -> Result<[u8; 32], OperatorError> {
    let digits: &[u8; 64] = digits.try_into().map_err(|_| OperatorError::Framing)?;
    let mut bytes = [0; 32];
    for (byte, [high, low]) in bytes.iter_mut().zip(digits.as_chunks().0) {
        let digit = |digit: u8| (digit as char).to_digit(16).ok_or(OperatorError::Framing);
        *byte = (digit(*high)? << 4 | digit(*low)?) as u8;
    }
    Ok(bytes)
}

fn hex(bytes: &[u8; 32]) -> [u8; 64] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    std::array::from_fn(|at| DIGITS[usize::from(bytes[at / 2] >> (4 * (1 - at % 2)) & 15)])
}
