//! Parameter blocks, as [`dcs_abi::operator::OperatorInfo::parameter_doc`] lays them out.

use crate::OperatorError;

/// The parameters of `aes256-ctr`: key, then the initial counter block.
pub fn aes256_ctr(key: &[u8; 32], counter: &[u8; 16]) -> [u8; 48] {
    let mut block = [0; 48];
    block[..32].copy_from_slice(key);
    block[32..].copy_from_slice(counter);
    block
}

/// The parameters of `aes256-xts` and `aes256-xts-decrypt`: data key and tweak key, the bytes of a data unit, the
/// number of the first one.
pub fn aes256_xts(key: &[u8; 64], unit_size: u32, first_unit: u64) -> [u8; 80] {
    let mut block = [0; 80];
    block[..64].copy_from_slice(key);
    block[64..68].copy_from_slice(&unit_size.to_le_bytes());
    block[72..].copy_from_slice(&first_unit.to_le_bytes());
    block
}

/// The parameter of `gzip` and `zstd`.
pub fn level(level: u8) -> [u8; 1] {
    [level]
}

/// The parameters of XTS, checked.
pub(crate) struct Xts<'a> {
    pub(crate) data_key: &'a [u8; 32],
    pub(crate) tweak_key: &'a [u8; 32],
    pub(crate) unit_size: usize,
    pub(crate) first_unit: u64,
}

pub(crate) fn parse_ctr(block: &[u8]) -> Result<(&[u8; 32], &[u8; 16]), OperatorError> {
    let block: &[u8; 48] = block.try_into().map_err(|_| OperatorError::BadParameter)?;
    let (key, counter) = block.split_first_chunk().ok_or(OperatorError::BadParameter)?;
    Ok((key, counter.try_into().map_err(|_| OperatorError::BadParameter)?))
}

pub(crate) fn parse_xts(block: &[u8]) -> Result<Xts<'_>, OperatorError> {
    let bad = OperatorError::BadParameter;
    let (data_key, rest) = block.split_first_chunk::<32>().ok_or(bad)?;
    let (tweak_key, rest) = rest.split_first_chunk::<32>().ok_or(bad)?;
    let (unit_size, rest) = rest.split_first_chunk::<4>().ok_or(bad)?;
    let (reserved, rest) = rest.split_first_chunk::<4>().ok_or(bad)?;
    let first_unit = rest.try_into().map_err(|_| bad)?;
    let unit_size = u32::from_le_bytes(*unit_size);
    let unit_allowed = (16..=65536).contains(&unit_size) && unit_size.is_power_of_two();
    // Equal halves make the tweak predictable: FIPS 140 (implementation guidance C.I) has them refused.
    if !unit_allowed || *reserved != [0; 4] || data_key == tweak_key {
        return Err(bad);
    }
    Ok(Xts { data_key, tweak_key, unit_size: unit_size as usize, first_unit: u64::from_le_bytes(first_unit) })
}

/// A level in `allowed`; `default` where the block is empty.
pub(crate) fn parse_level(
    block: &[u8],
    default: u8,
    allowed: core::ops::RangeInclusive<u8>,
) -> Result<u8, OperatorError> {
    match block {
        [] => Ok(default),
        [level] if allowed.contains(level) => Ok(*level),
        _ => Err(OperatorError::BadParameter),
    }
}

pub(crate) fn parse_none(block: &[u8]) -> Result<(), OperatorError> {
    if block.is_empty() { Ok(()) } else { Err(OperatorError::BadParameter) }
}
