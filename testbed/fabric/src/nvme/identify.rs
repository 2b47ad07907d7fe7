//! The data structures of Identify and Get Log Page [NVMe 1.4, 5.14, 5.15].

use super::namespace::Namespace;
use super::registers::VERSION;
use super::{Config, Counts, Sgl};

/// Entries of the error log.
pub(super) const ERRORS: usize = 16;
/// Aborts at once, from zero.
const ABORTS: u8 = 3;

fn text(at: &mut [u8], value: &str) {
    at.fill(b' ');
    at[..value.len()].copy_from_slice(value.as_bytes());
}

pub(super) fn controller(config: &Config) -> Vec<u8> {
    let mut data = vec![0; 4096];
    let mut put = |at: usize, bytes: &[u8]| data[at..at + bytes.len()].copy_from_slice(bytes);
    // The namespace is shared by several controllers of the subsystem.
    put(76, &[0b10]);
    put(77, &[config.mdts]);
    put(80, &VERSION.to_le_bytes());
    // An I/O controller.
    put(111, &[1]);
    put(258, &[ABORTS, (config.async_events - 1) as u8]);
    // One firmware slot, read only.
    put(260, &[0b11]);
    // Log pages of any length and offset.
    put(261, &[0b100, (ERRORS - 1) as u8]);
    put(266, &343u16.to_le_bytes());
    put(268, &353u16.to_le_bytes());
    put(512, &[0x66, 0x44]);
    put(516, &(config.namespaces.len() as u32).to_le_bytes());
    // Write Zeroes.
    put(520, &(1u16 << 3).to_le_bytes());
    // Flush takes the broadcast namespace identifier.
    put(525, &[0b110 | u8::from(config.cache)]);
    let sgl: u32 = match config.sgl {
        Sgl::No => 0,
        Sgl::Bytes => 1 | 1 << 16,
        Sgl::Dwords => 2 | 1 << 16,
    };
    put(536, &sgl.to_le_bytes());
    // 25 W, in units of 10 mW.
    put(2048, &2500u16.to_le_bytes());
    text(&mut data[4..24], &config.serial);
    text(&mut data[24..64], "dcs fabric NVMe model");
    text(&mut data[64..72], "1");
    let name = format!("nqn.2014-08.org.nvmexpress:dcs:{}", config.serial);
    data[768..768 + name.len()].copy_from_slice(name.as_bytes());
    data
}

pub(super) fn namespace(held: Option<&Namespace>) -> Vec<u8> {
    let mut data = vec![0; 4096];
    let Some(held) = held else { return data };
    for at in [0, 8, 16] {
        data[at..at + 8].copy_from_slice(&held.blocks().to_le_bytes());
    }
    // It may be attached to several controllers.
    data[30] = 1;
    data[130] = held.shift();
    data
}

/// The identifiers after `after`, in order.
pub(super) fn list(count: usize, after: u32) -> Vec<u8> {
    let mut data = vec![0; 4096];
    let numbers = (1..=count as u32).filter(|number| *number > after);
    for (slot, number) in data.chunks_exact_mut(4).zip(numbers) {
        slot.copy_from_slice(&number.to_le_bytes());
    }
    data
}

/// One descriptor: a UUID made of the serial number and the identifier.
pub(super) fn descriptors(config: &Config, nsid: u32) -> Vec<u8> {
    let mut data = vec![0; 4096];
    data[..2].copy_from_slice(&[3, 16]);
    let serial = config.serial.as_bytes();
    let kept = serial.len().min(12);
    data[4..4 + kept].copy_from_slice(&serial[serial.len() - kept..]);
    data[16..20].copy_from_slice(&nsid.to_be_bytes());
    data
}

/// SMART / Health Information: what the model knows. Units of 1,000 blocks of 512 bytes, rounded up.
pub(super) fn health(counts: &Counts, errors: u64, shift: u8) -> Vec<u8> {
    let mut data = vec![0; 512];
    let units = |blocks: u64| ((blocks << shift) / 512).div_ceil(1000);
    // 300 K; all of the spare is left, the threshold is a tenth.
    data[1..3].copy_from_slice(&300u16.to_le_bytes());
    data[3..5].copy_from_slice(&[100, 10]);
    let values = [
        (32, units(counts.blocks_read)),
        (48, units(counts.blocks_written)),
        (64, counts.reads),
        (80, counts.writes),
        (112, 1),
        (176, errors),
    ];
    for (at, value) in values {
        data[at..at + 8].copy_from_slice(&value.to_le_bytes());
    }
    data
}

/// Firmware Slot Information: slot 1 is active.
pub(super) fn firmware() -> Vec<u8> {
    let mut data = vec![0; 512];
    data[0] = 1;
    text(&mut data[8..16], "1");
    data
}
