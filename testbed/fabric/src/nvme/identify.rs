//! Data structures of Identify and Get Log Page [NVMe 1.4, 5.14, 5.15].

use dcs_nvme::identify::{self, EntrySizes, Format, active_namespaces_bytes};
use dcs_nvme::{command, completion};

use super::namespace::Namespace;
use super::registers::VERSION;
use super::{Config, Counts};

/// Entries of the error log.
pub(super) const ERRORS: usize = 16;
/// Most concurrent aborts.
const ABORTS: u16 = 4;
/// Warning temperature in Kelvin.
pub(super) const WARM: u16 = 343;
/// Critical temperature in Kelvin.
const HOT: u16 = 353;

fn text<const N: usize>(value: &str) -> [u8; N] {
    let mut bytes = [b' '; N];
    bytes[..value.len()].copy_from_slice(value.as_bytes());
    bytes
}

/// Returns entry sizes for one size only.
fn only(bytes: usize) -> EntrySizes {
    let shift = bytes.trailing_zeros() as u8;
    EntrySizes { least: shift, most: shift }
}

pub(super) fn controller(config: &Config) -> Vec<u8> {
    let name = format!("nqn.2014-08.org.nvmexpress:dcs:{}", config.serial);
    let mut subsystem = [0; 256];
    subsystem[..name.len()].copy_from_slice(name.as_bytes());
    let data = identify::Controller {
        vendor: 0,
        serial: text(&config.serial),
        model: text("dcs fabric NVMe model"),
        firmware: text("1"),
        // The namespace is shared by several controllers of the subsystem.
        sharing: 0b10,
        max_transfer: config.mdts,
        number: 0,
        version: VERSION,
        events: 0,
        attributes: 0,
        // An I/O controller.
        kind: 1,
        optional_admin: 0,
        aborts: ABORTS,
        event_requests: config.async_events as u16,
        // One, read only.
        firmware_slots: 0b11,
        // Of any length and offset.
        log_pages: 0b100,
        error_entries: ERRORS as u16,
        warning_temperature: WARM,
        critical_temperature: HOT,
        keep_alive: 0,
        submission_entries: only(command::SIZE),
        completion_entries: only(completion::SIZE),
        namespaces: config.namespaces.len() as u32,
        // Dataset Management, Write Zeroes.
        optional_commands: 1 << 2 | 1 << 3,
        copy_forms: 0,
        write_cache: config.cache,
        // Flush takes the broadcast namespace identifier.
        flush_all: 0b11,
        sgl: config.sgl,
        bit_buckets: config.sgl != identify::Sgl::No,
        subsystem,
        // 25 W.
        power: 2500,
    };
    data.bytes().to_vec()
}

pub(super) fn namespace(held: Option<&Namespace>) -> Vec<u8> {
    let mut data = identify::Namespace::default();
    if let Some(held) = held {
        (data.blocks, data.capacity, data.used) = (held.blocks(), held.blocks(), held.blocks());
        // It may be attached to several controllers.
        data.sharing = 1;
        data.formats[0] = Format { metadata: 0, shift: held.shift() };
    }
    data.bytes().to_vec()
}

/// Returns the identifiers greater than `after`, in order.
pub(super) fn list(count: usize, after: u32) -> Vec<u8> {
    active_namespaces_bytes((1..=count as u32).filter(|number| *number > after)).to_vec()
}

/// Returns one descriptor: a UUID made from the serial number and the identifier.
pub(super) fn descriptors(config: &Config, nsid: u32) -> Vec<u8> {
    let mut data = vec![0; 4096];
    data[..2].copy_from_slice(&[3, 16]);
    let serial = config.serial.as_bytes();
    let kept = serial.len().min(12);
    data[4..4 + kept].copy_from_slice(&serial[serial.len() - kept..]);
    data[16..20].copy_from_slice(&nsid.to_be_bytes());
    data
}

/// Returns SMART / Health Information, as far as the model has it. Units of 1,000 blocks of 512 bytes, rounded up.
pub(super) fn health(counts: &Counts, errors: u64, shift: u8) -> Vec<u8> {
    let mut data = vec![0; 512];
    let units = |blocks: u64| ((blocks << shift) / 512).div_ceil(1000);
    // 300 K; the whole spare is left, its threshold is a tenth.
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

/// Returns Firmware Slot Information: slot 1 is active.
pub(super) fn firmware() -> Vec<u8> {
    let mut data = vec![0; 512];
    data[0] = 1;
    data[8..16].copy_from_slice(&text::<8>("1"));
    data
}
