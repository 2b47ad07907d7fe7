//! Identify data structures, checked: what a controller says about itself is believed only as far as it makes sense.
//! [base 5.17.2, NVM 4.1.5]

use super::spec::{u16_at, u32_at, u64_at};

/// CNS: a namespace, by the NVM command set.
pub const NAMESPACE: u32 = 0;
/// CNS: the controller.
pub const CONTROLLER: u32 = 1;
/// CNS: the numbers of active namespaces.
pub const ACTIVE_NAMESPACES: u32 = 2;

/// Why identify data are of no use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdentifyError {
    /// The entry sizes that every controller has to take (64 and 16 bytes) are not among those of this one.
    #[error("identify controller: no queue entries of 64 and 16 bytes")]
    EntrySizes,
    /// No namespace is active.
    #[error("identify: no active namespace")]
    NoNamespace,
    /// The namespace has no blocks: it is not active, or not there.
    #[error("identify namespace: no blocks")]
    Empty,
    /// Its logical blocks are smaller than 512 bytes or larger than 64 KiB.
    #[error("identify namespace: logical blocks of 2^{0} bytes")]
    BlockSize(u8),
    /// Its blocks carry metadata, which this host doesn't handle.
    #[error("identify namespace: {0} bytes of metadata a block")]
    Metadata(u16),
    /// It has more bytes than 64 bits can count.
    #[error("identify namespace: more bytes than can be addressed")]
    TooLarge,
}

/// What the host needs of the identify controller data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Controller {
    /// Bytes that a command may move at most; none: no limit. Counted in the smallest memory page.
    pub max_transfer: Option<u64>,
    /// Abort commands that may be outstanding.
    pub abort_limit: u16,
    /// Whether scatter gather lists may be used.
    pub sgl: Sgl,
    /// Whether there is a volatile write cache: without one, flush does nothing.
    pub write_cache: bool,
    /// PCI vendor.
    pub vendor: u16,
    /// Serial number, padded with spaces.
    pub serial: [u8; 20],
}

/// How scatter gather lists may be used. [base figure 275, SGLS]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sgl {
    /// Not at all.
    No,
    /// With any address and length.
    Bytes,
    /// With addresses and lengths that are multiples of four.
    DoubleWords,
}

impl Controller {
    /// Of the identify data of a controller whose smallest memory page is `2^page_shift` bytes.
    pub fn parse(data: &[u8], page_shift: u32) -> Result<Controller, IdentifyError> {
        let entry = |at: usize, size: u8| {
            let sizes = data.get(at).copied().unwrap_or(0);
            sizes & 0xf <= size && size <= sizes >> 4
        };
        if !entry(512, 6) || !entry(513, 4) {
            return Err(IdentifyError::EntrySizes);
        }
        let mdts = u32::from(data.get(77).copied().unwrap_or(0));
        let max_transfer = match mdts {
            0 => None,
            shift => 1u64.checked_shl(shift.saturating_add(page_shift)),
        };
        let sgl = match u32_at(data, 536) & 3 {
            1 => Sgl::Bytes,
            2 => Sgl::DoubleWords,
            _ => Sgl::No,
        };
        Ok(Controller {
            max_transfer,
            abort_limit: u16::from(data.get(258).copied().unwrap_or(0)) + 1,
            sgl,
            write_cache: data.get(525).is_some_and(|vwc| vwc & 1 != 0),
            vendor: u16_at(data, 0),
            serial: bytes_at(data, 4),
        })
    }
}

/// The first namespace of an active namespace list.
pub fn first_active(data: &[u8]) -> Result<u32, IdentifyError> {
    match u32_at(data, 0) {
        0 | u32::MAX => Err(IdentifyError::NoNamespace),
        number => Ok(number),
    }
}

/// A namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Namespace {
    /// Its number.
    pub number: u32,
    /// Bytes of a logical block: a power of two from 512 to 65,536.
    pub block_size: u32,
    /// Logical blocks.
    pub blocks: u64,
    /// Bytes that a command may move at most: the least of the controller's MDTS, of the host's configuration, and of
    /// 65,536 blocks.
    pub max_transfer: u64,
    /// Globally unique identifier; zeros: none.
    pub nguid: [u8; 16],
    /// IEEE extended unique identifier; zeros: none.
    pub eui64: [u8; 8],
}

/// So many bytes of the data; zeros where there are none.
fn bytes_at<const N: usize>(data: &[u8], at: usize) -> [u8; N] {
    data.get(at..at + N).and_then(|bytes| bytes.try_into().ok()).unwrap_or([0; N])
}

impl Namespace {
    /// Of the identify data of namespace `number`. `max_transfer` is what the host and the controller allow.
    pub fn parse(data: &[u8], number: u32, max_transfer: u64) -> Result<Namespace, IdentifyError> {
        let blocks = u64_at(data, 0);
        if blocks == 0 {
            return Err(IdentifyError::Empty);
        }
        // FLBAS: the format's number, its upper two bits are in bits 5 and 6. [NVM figure 97]
        let flbas = usize::from(data.get(26).copied().unwrap_or(0));
        let format = u32_at(data, 128 + 4 * (flbas & 0xf | (flbas >> 5 & 3) << 4));
        let (metadata, shift) = (format as u16, (format >> 16) as u8);
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
        let (nguid, eui64) = (bytes_at(data, 104), bytes_at(data, 120));
        Ok(Namespace { number, block_size, blocks, max_transfer, nguid, eui64 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn controller() -> Vec<u8> {
        let mut data = vec![0; 4096];
        data[512] = 0x66;
        data[513] = 0x44;
        data
    }

    fn namespace(blocks: u64, flbas: u8, format: u32) -> Vec<u8> {
        let mut data = vec![0; 4096];
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
        let parse = |data: &[u8]| Namespace::parse(data, 1, 1 << 20);
        let good = parse(&namespace(8, 0, 9 << 16)).unwrap();
        assert_eq!((good.block_size, good.blocks, good.max_transfer), (512, 8, 1 << 20));
        assert_eq!(parse(&namespace(8, 0x21, 12 << 16)).unwrap().block_size, 4096);
        assert_eq!(parse(&namespace(0, 0, 9 << 16)), Err(IdentifyError::Empty));
        assert_eq!(parse(&namespace(8, 0, 0)), Err(IdentifyError::BlockSize(0)));
        assert_eq!(parse(&namespace(8, 0, 63 << 16)), Err(IdentifyError::BlockSize(63)));
        assert_eq!(parse(&namespace(8, 0, 9 << 16 | 8)), Err(IdentifyError::Metadata(8)));
        assert_eq!(parse(&namespace(u64::MAX, 0, 9 << 16)), Err(IdentifyError::TooLarge));
        assert_eq!(parse(&[]), Err(IdentifyError::Empty));
        assert_eq!(Namespace::parse(&namespace(8, 0, 16 << 16), 1, 4096), Err(IdentifyError::BlockSize(16)));
    }
}
