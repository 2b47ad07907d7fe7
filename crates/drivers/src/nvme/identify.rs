//! Identify data structures, checked: a controller's statements about itself are accepted only as far as they make sense. [base 5.17.2, NVM
//! 4.1.5]

use dcs_nvme::identify::{self, Format, Sgl};
use dcs_nvme::{command, completion};

/// The reason why identify data are unusable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdentifyError {
    /// The controller lacks the entry sizes that every controller must support (64 and 16 bytes).
    #[error("identify controller: no queue entries of 64 and 16 bytes")]
    EntrySizes,
    /// No namespace is active.
    #[error("identify: no active namespace")]
    NoNamespace,
    /// The namespace has no blocks: it is not active, or not there.
    #[error("identify namespace: no blocks")]
    Empty,
    /// The namespace's logical blocks are smaller than 512 bytes or larger than 64 KiB.
    #[error("identify namespace: logical blocks of 2^{0} bytes")]
    BlockSize(u8),
    /// The namespace's blocks carry metadata, which this host doesn't handle.
    #[error("identify namespace: {0} bytes of metadata per block")]
    Metadata(u16),
    /// The namespace has more bytes than 64 bits can count.
    #[error("identify namespace: more bytes than can be addressed")]
    TooLarge,
}

/// Bit of ONCS: the dataset management command is supported.
const DATASET_MANAGEMENT: u16 = 1 << 2;

/// The fields of the identify controller data that the host needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Controller {
    /// Most bytes that a command may move; `None`: no limit. Counted in the smallest memory page.
    pub max_transfer: Option<u64>,
    /// Most Abort commands that may be outstanding.
    pub abort_limit: u16,
    /// Support for scatter gather lists.
    pub sgl: Sgl,
    /// Set if there is a volatile write cache: without one, flush does nothing.
    pub write_cache: bool,
    /// Set if it supports dataset management: hints that blocks are not needed any more.
    pub deallocates: bool,
    /// PCI vendor number.
    pub vendor: u16,
    /// Serial number, padded with spaces.
    pub serial: [u8; 20],
}

impl Controller {
    /// Decodes the identify data of a controller whose smallest memory page is `2^page_shift` bytes.
    pub fn parse(data: &[u8; identify::SIZE], page_shift: u8) -> Result<Controller, IdentifyError> {
        let found = identify::Controller::from_bytes(data);
        let (submission, completion) = (command::SIZE.trailing_zeros(), completion::SIZE.trailing_zeros());
        if !found.submission_entries.contains(submission as u8)
            || !found.completion_entries.contains(completion as u8)
        {
            return Err(IdentifyError::EntrySizes);
        }
        let max_transfer = match found.max_transfer {
            0 => None,
            shift => 1u64.checked_shl(u32::from(shift) + u32::from(page_shift)),
        };
        Ok(Controller {
            max_transfer,
            abort_limit: found.aborts,
            sgl: found.sgl,
            write_cache: found.write_cache,
            deallocates: found.optional_commands & DATASET_MANAGEMENT != 0,
            vendor: found.vendor,
            serial: found.serial,
        })
    }
}

/// Returns the first namespace of an active namespace list.
pub fn first_active(data: &[u8; identify::SIZE]) -> Result<u32, IdentifyError> {
    let first = identify::active_namespaces(data).next();
    first.filter(|number| *number != command::ALL_NAMESPACES).ok_or(IdentifyError::NoNamespace)
}

/// A namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Namespace {
    /// Namespace number.
    pub number: u32,
    /// Size of a logical block in bytes: a power of two from 512 to 65,536.
    pub block_size: u32,
    /// Number of logical blocks.
    pub blocks: u64,
    /// Most bytes that a command may move: the least of the controller's MDTS, the host's configuration, and 65,536 blocks.
    pub max_transfer: u64,
    /// Globally unique identifier; zeros if none.
    pub nguid: [u8; 16],
    /// IEEE extended unique identifier; zeros if none.
    pub eui64: [u8; 8],
}

impl Namespace {
    /// Decodes the identify data of namespace `number`. `max_transfer` is what the host and the controller allow.
    pub fn parse(
        data: &[u8; identify::SIZE],
        number: u32,
        max_transfer: u64,
    ) -> Result<Namespace, IdentifyError> {
        let found = identify::Namespace::from_bytes(data);
        let blocks = found.blocks;
        if blocks == 0 {
            return Err(IdentifyError::Empty);
        }
        let Format { metadata, shift } = found.current_format();
        if !(9..=16).contains(&shift) {
            return Err(IdentifyError::BlockSize(shift));
        }
        if metadata != 0 {
            return Err(IdentifyError::Metadata(metadata));
        }
        let block_size = 1u32 << shift;
        if blocks.checked_mul(u64::from(block_size)).is_none() {
            return Err(IdentifyError::TooLarge);
        }
        let most = max_transfer.min(u64::from(block_size) << 16);
        let max_transfer = most - most % u64::from(block_size);
        if max_transfer == 0 {
            return Err(IdentifyError::BlockSize(shift));
        }
        Ok(Namespace { number, block_size, blocks, max_transfer, nguid: found.nguid, eui64: found.eui64 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn controller() -> [u8; identify::SIZE] {
        let mut data = [0; identify::SIZE];
        data[512] = 0x66;
        data[513] = 0x44;
        data
    }

    fn namespace(blocks: u64, flbas: u8, format: u32) -> [u8; identify::SIZE] {
        let mut data = [0; identify::SIZE];
        data[..8].copy_from_slice(&blocks.to_le_bytes());
        data[26] = flbas;
        let at = 128 + 4 * (usize::from(flbas) & 0xf | (usize::from(flbas) >> 5 & 3) << 4);
        data[at..at + 4].copy_from_slice(&format.to_le_bytes());
        data
    }

    #[test]
    fn a_transfer_limit_that_makes_no_sense_is_none() {
        let mut data = controller();
        assert_eq!(Controller::parse(&data, 12).unwrap().max_transfer, None);
        data[77] = 5;
        assert_eq!(Controller::parse(&data, 12).unwrap().max_transfer, Some(128 << 10));
        data[77] = 255;
        assert_eq!(Controller::parse(&data, 12).unwrap().max_transfer, None);
        data[512] = 0x77;
        assert_eq!(Controller::parse(&data, 12), Err(IdentifyError::EntrySizes));
    }

    #[test]
    fn namespaces_that_lie_are_refused() {
        let parse = |data: &[u8; identify::SIZE]| Namespace::parse(data, 1, 1 << 20);
        let good = parse(&namespace(8, 0, 9 << 16)).unwrap();
        assert_eq!((good.block_size, good.blocks, good.max_transfer), (512, 8, 1 << 20));
        assert_eq!(parse(&namespace(8, 0x21, 12 << 16)).unwrap().block_size, 4096);
        assert_eq!(parse(&namespace(0, 0, 9 << 16)), Err(IdentifyError::Empty));
        assert_eq!(parse(&namespace(8, 0, 0)), Err(IdentifyError::BlockSize(0)));
        assert_eq!(parse(&namespace(8, 0, 63 << 16)), Err(IdentifyError::BlockSize(63)));
        assert_eq!(parse(&namespace(8, 0, 9 << 16 | 8)), Err(IdentifyError::Metadata(8)));
        assert_eq!(parse(&namespace(u64::MAX, 0, 9 << 16)), Err(IdentifyError::TooLarge));
        assert_eq!(Namespace::parse(&namespace(8, 0, 16 << 16), 1, 4096), Err(IdentifyError::BlockSize(16)));
    }
}
