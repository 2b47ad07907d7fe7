//! Namespaces: logical blocks on a volume.

use std::sync::Arc;

use crate::chain::Chain;
use crate::config::ConfigError;
use crate::storage::{VolumeId, VolumeInfo};

/// Logical blocks that a guest sees, and their place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Namespace {
    /// Namespace number (NSID), from 1.
    pub number: u32,
    /// The volume that it is on, from the volume's first byte.
    pub volume: VolumeId,
    /// Number of logical blocks.
    pub blocks: u64,
    /// Bytes of a logical block, as a power of two: 9 or 12.
    pub shift: u8,
    /// Globally unique identifier; zeros if there is none.
    pub nguid: [u8; 16],
    /// IEEE extended unique identifier; zeros if there is none.
    pub eui64: [u8; 8],
    /// Other controllers have it too.
    pub shared: bool,
    /// It cannot be written.
    pub read_only: bool,
    /// Deallocated blocks take no space.
    pub thin: bool,
    /// Deallocation is passed on, and what is read then is not known.
    pub takes_hints: bool,
    /// The operators that its data pass on their way to the volume, and in reverse on their way back.
    pub chain: Option<Arc<Chain>>,
}

impl Namespace {
    /// Makes the namespace with this number on a whole volume, in logical blocks of `block` bytes.
    ///
    /// # Errors
    ///
    /// Fails if the block size is not supported, or smaller than the volume's.
    pub fn new(
        number: u32,
        volume: VolumeId,
        info: &VolumeInfo,
        block: u64,
    ) -> Result<Namespace, ConfigError> {
        if block != 512 && block != 4096 {
            return Err(ConfigError::Block);
        }
        if block < info.alignment {
            return Err(ConfigError::Alignment { block, alignment: info.alignment });
        }
        Ok(Namespace {
            number,
            volume,
            blocks: info.length / block,
            shift: block.trailing_zeros() as u8,
            nguid: [0; 16],
            eui64: [0; 8],
            shared: false,
            read_only: info.read_only,
            thin: info.thin,
            takes_hints: info.takes_hints,
            chain: None,
        })
    }

    /// Checks that the volume can hold it.
    ///
    /// # Errors
    ///
    /// Returns the first error.
    pub(crate) fn check(&self, volume: Option<&VolumeInfo>) -> Result<(), ConfigError> {
        if self.shift != 9 && self.shift != 12 {
            return Err(ConfigError::Block);
        }
        let info = volume.ok_or(ConfigError::Missing(self.number))?;
        if 1 << self.shift < info.alignment {
            return Err(ConfigError::Alignment { block: 1 << self.shift, alignment: info.alignment });
        }
        let wanted = self.blocks.saturating_mul(1 << self.shift);
        if self.blocks == 0 || wanted > info.length {
            return Err(ConfigError::Size { wanted, there: info.length });
        }
        Ok(())
    }

    /// Returns the first byte and the length of these logical blocks in its volume; `None` beyond its end.
    pub fn bytes(&self, first: u64, count: u64) -> Option<(u64, u64)> {
        let end = first.checked_add(count)?;
        (end <= self.blocks).then_some((first << self.shift, count << self.shift))
    }
}

/// Returns the identifier (NGUID) by which a guest knows a namespace, wherever it is and however large: the
/// MD5 of the subsystem's name and the namespace's number.
pub fn identifier(subsystem: &str, number: u32) -> [u8; 16] {
    let mut identifier = [0; 16];
    if let Ok(mut digest) = dcs_ndp::Context::new(dcs_abi::operator::Operator::Md5, &[]) {
        digest.absorb(format!("{subsystem}/{number}").as_bytes());
        if let Some(value) = digest.value() {
            identifier.copy_from_slice(&value.as_bytes()[..16]);
        }
    }
    identifier
}
