//! Digests: the data pass unchanged, and a value comes out.

use core::fmt;

use crc_fast::CrcAlgorithm;
use dcs_abi::operator::Operator;
use sha1::Sha1;
use sha2::{Digest as _, Sha512};

use crate::hash::Hash;
use crate::md5::Md5;
use crate::sha256::Sha256;

/// Bytes of the longest value.
const SIZE_MAX: usize = 64;

/// Value of a digest operator, with the number of bytes of [`Operator::digest_size`], or a value that a transform
/// found. A CRC has its most significant byte first. `Display` prints hexadecimal digits, as `md5sum` does.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct DigestValue {
    size: u8,
    /// Bytes of the value; zero beyond `size`, so that the derived comparison is right.
    bytes: [u8; SIZE_MAX],
}

impl DigestValue {
    pub(crate) fn new(value: &[u8]) -> DigestValue {
        let mut bytes = [0; SIZE_MAX];
        bytes[..value.len()].copy_from_slice(value);
        DigestValue { size: value.len() as u8, bytes }
    }

    /// Makes a value of these bytes; `None` if no digest is that long.
    pub fn from_bytes(value: &[u8]) -> Option<DigestValue> {
        (value.len() <= SIZE_MAX).then(|| DigestValue::new(value))
    }

    /// Returns the bytes of the value.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.size)]
    }
}

impl AsRef<[u8]> for DigestValue {
    fn as_ref(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl fmt::Display for DigestValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for DigestValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DigestValue({self})")
    }
}

/// Returns the bytes of a number of `size` bytes, zeros behind them.
#[inline]
fn first_bytes(number: u64, size: usize) -> [u8; 8] {
    (number << (64 - 8 * size)).to_be_bytes()
}

/// Running state of a digest.
pub(crate) enum Digest {
    Md5(Hash<Md5>),
    Sha1(Sha1),
    Sha256(Hash<Sha256>),
    Sha512(Sha512),
    Crc { state: crc_fast::Digest, size: usize },
}

impl Digest {
    /// Makes the digest of that operator; `None` for a transform.
    pub(crate) fn new(operator: Operator) -> Option<Digest> {
        let crc =
            |algorithm| Digest::Crc { state: crc_fast::Digest::new(algorithm), size: operator.digest_size() };
        Some(match operator {
            Operator::Md5 => Digest::Md5(Hash::new()),
            Operator::Sha1 => Digest::Sha1(Sha1::new()),
            Operator::Sha256 => Digest::Sha256(Hash::new()),
            Operator::Sha512 => Digest::Sha512(Sha512::new()),
            Operator::Crc32 => crc(CrcAlgorithm::Crc32IsoHdlc),
            Operator::Crc32c => crc(CrcAlgorithm::Crc32Iscsi),
            Operator::Crc64Nvme => crc(CrcAlgorithm::Crc64Nvme),
            _ => return None,
        })
    }

    /// Resets the state to that of a new stream.
    pub(crate) fn begin_again(&mut self) {
        match self {
            Digest::Md5(state) => *state = Hash::new(),
            Digest::Sha1(state) => state.reset(),
            Digest::Sha256(state) => *state = Hash::new(),
            Digest::Sha512(state) => state.reset(),
            Digest::Crc { state, .. } => state.reset(),
        }
    }

    #[inline]
    pub(crate) fn absorb(&mut self, data: &[u8]) {
        match self {
            Digest::Md5(state) => state.absorb(data),
            Digest::Sha1(state) => state.update(data),
            Digest::Sha256(state) => state.absorb(data),
            Digest::Sha512(state) => state.update(data),
            Digest::Crc { state, .. } => state.update(data),
        }
    }

    /// Returns the value of everything absorbed; more may follow.
    #[inline]
    pub(crate) fn value(&self) -> DigestValue {
        match self {
            Digest::Crc { state, size } => {
                let mut bytes = [0; SIZE_MAX];
                bytes[..8].copy_from_slice(&first_bytes(state.finalize(), *size));
                DigestValue { size: *size as u8, bytes }
            }
            others => others.value_of_hash(),
        }
    }

    /// Writes the value of everything absorbed, and zeros behind it. Returns the number of its bytes.
    #[inline]
    pub(crate) fn write(&self, into: &mut [u8; SIZE_MAX]) -> u8 {
        if let Digest::Crc { state, size } = self {
            *into = [0; SIZE_MAX];
            into[..8].copy_from_slice(&first_bytes(state.finalize(), *size));
            return *size as u8;
        }
        let value = self.value_of_hash();
        *into = value.bytes;
        value.size
    }

    fn value_of_hash(&self) -> DigestValue {
        match self {
            Digest::Md5(state) => DigestValue::new(state.value().as_ref()),
            Digest::Sha1(state) => DigestValue::new(&state.clone().finalize()),
            Digest::Sha256(state) => DigestValue::new(state.value().as_ref()),
            Digest::Sha512(state) => DigestValue::new(&state.clone().finalize()),
            Digest::Crc { .. } => self.value(),
        }
    }
}
