//! Parses and builds transmit and receive descriptors of both families.

use super::Family;
use super::offload::{Offload, Parsed};

/// Bytes of every descriptor.
pub(super) const DESCRIPTOR: u64 = 16;

/// A descriptor as stored in memory.
pub(super) type Raw = [u8; DESCRIPTOR as usize];

fn dword(raw: &Raw, number: usize) -> u32 {
    u32::from_le_bytes(raw[4 * number..4 * number + 4].try_into().expect("four bytes"))
}

fn quad(raw: &Raw, number: usize) -> u64 {
    u64::from_le_bytes(raw[8 * number..8 * number + 8].try_into().expect("eight bytes"))
}

/// A transmit descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transmit {
    /// A context for the frames after it.
    Context { slot: usize, context: Context, report: bool },
    /// A piece of a frame.
    Data(Data),
    /// An unknown kind, which is skipped.
    Unknown,
}

/// The context that a context descriptor sets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Context {
    offload: Offload,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Data {
    pub(super) address: u64,
    pub(super) length: u64,
    pub(super) end: bool,
    pub(super) report: bool,
    /// The NIC adds the frame check sequence.
    pub(super) check: bool,
    /// Number of its context; `None` for a descriptor without one.
    slot: Option<usize>,
    segment: bool,
    insert_ip: bool,
    insert_l4: bool,
    /// Legacy: start of the checksum's range, and its place.
    legacy: Option<(usize, usize)>,
}

const DEXT: u32 = 1 << 29;

impl Transmit {
    pub(super) fn parse(raw: &Raw, family: Family) -> Transmit {
        let command = dword(raw, 2);
        let kind = (command >> 20) & 15;
        match (family, command & DEXT != 0, kind) {
            (_, false, _) => Transmit::Data(legacy(raw)),
            (Family::Igb, true, 2) => advanced_context(raw),
            (Family::Igb, true, 3) => Transmit::Data(advanced(raw)),
            (Family::E1000e, true, 0) => extended_context(raw),
            (Family::E1000e, true, 1) => Transmit::Data(extended(raw)),
            _ => Transmit::Unknown,
        }
    }
}

/// [82574 data sheet, 7.2.2]
fn legacy(raw: &Raw) -> Data {
    let (command, status) = (dword(raw, 2), dword(raw, 3));
    let sum = command & 1 << 26 != 0;
    let places = ((status >> 8) as usize & 0xff, (command >> 16) as usize & 0xff);
    Data {
        address: quad(raw, 0),
        length: u64::from(command & 0xffff),
        end: command & 1 << 24 != 0,
        check: command & 1 << 25 != 0,
        report: command & 1 << 27 != 0,
        legacy: sum.then_some(places),
        ..Data::default()
    }
}

/// [82576 data sheet, 7.2.2.3]
fn advanced(raw: &Raw) -> Data {
    let (command, status) = (dword(raw, 2), dword(raw, 3));
    Data {
        address: quad(raw, 0),
        length: u64::from(command & 0xffff),
        end: command & 1 << 24 != 0,
        check: command & 1 << 25 != 0,
        report: command & 1 << 27 != 0,
        slot: Some((status >> 4) as usize & 1),
        segment: command & 1 << 31 != 0,
        insert_ip: status & 1 << 8 != 0,
        insert_l4: status & 1 << 9 != 0,
        legacy: None,
    }
}

/// [82574 data sheet, 7.2.7]
fn extended(raw: &Raw) -> Data {
    let (command, status) = (dword(raw, 2), dword(raw, 3));
    Data {
        address: quad(raw, 0),
        length: u64::from(command & 0xf_ffff),
        end: command & 1 << 24 != 0,
        check: command & 1 << 25 != 0,
        report: command & 1 << 27 != 0,
        slot: Some(0),
        segment: command & 1 << 26 != 0,
        insert_ip: status & 1 << 8 != 0,
        insert_l4: status & 1 << 9 != 0,
        legacy: None,
    }
}

/// [82576 data sheet, 7.2.2.2]
fn advanced_context(raw: &Raw) -> Transmit {
    let (lengths, command, sizes) = (dword(raw, 0), dword(raw, 2), dword(raw, 3));
    let (ip_length, mac_length) = (lengths as usize & 0x1ff, (lengths >> 9) as usize & 0x7f);
    let l4 = mac_length + ip_length;
    let tcp = (command >> 11) & 3 == 1;
    let offload = Offload {
        ip: mac_length,
        ip_sum: mac_length + 10,
        ip_end: l4,
        l4,
        l4_sum: l4 + if tcp { 16 } else { 6 },
        header: l4 + (sizes >> 8) as usize % 256,
        segment: (sizes >> 16) as usize,
        tcp,
        ipv4: command & 1 << 10 != 0,
        ..Offload::default()
    };
    Transmit::Context { slot: (sizes >> 4) as usize & 1, context: Context { offload }, report: false }
}

/// [82574 data sheet, 7.2.6]
fn extended_context(raw: &Raw) -> Transmit {
    let (ip, l4, command, sizes) = (dword(raw, 0), dword(raw, 1), dword(raw, 2), dword(raw, 3));
    let end = (ip >> 16) as usize;
    let offload = Offload {
        ip: ip as usize & 0xff,
        ip_sum: (ip >> 8) as usize & 0xff,
        // The last byte; zero means the frame's end.
        ip_end: if end == 0 { usize::MAX } else { end + 1 },
        l4: l4 as usize & 0xff,
        l4_sum: (l4 >> 8) as usize & 0xff,
        header: (sizes >> 8) as usize & 0xff,
        segment: (sizes >> 16) as usize,
        tcp: command & 1 << 24 != 0,
        ipv4: command & 1 << 25 != 0,
        ..Offload::default()
    };
    Transmit::Context { slot: 0, context: Context { offload }, report: command & 1 << 27 != 0 }
}

impl Data {
    /// Returns the offloads for the frame whose first descriptor this is, and true if it is segmented.
    pub(super) fn offload(&self, contexts: &[Context; 2]) -> (Offload, bool) {
        if let Some((start, at)) = self.legacy {
            return (
                Offload { l4: start, l4_sum: at, insert_l4: true, tcp: true, ..Offload::default() },
                false,
            );
        }
        let kept = self.slot.map_or(Offload::default(), |slot| contexts[slot].offload);
        let asked = Offload { insert_ip: self.insert_ip, insert_l4: self.insert_l4, ..kept };
        (asked, self.segment)
    }
}

/// Returns a receive descriptor's buffers: for the packet, and for its header.
pub(super) fn buffers(raw: &Raw) -> (u64, u64) {
    (quad(raw, 0), quad(raw, 1))
}

/// Format of receive descriptors at write-back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Legacy,
    /// 82574, RFCTL.EXTEN.
    Extended,
    /// 82576.
    Advanced,
}

/// Contents of a receive descriptor.
#[derive(Clone, Copy, Debug)]
pub(super) struct Received {
    /// Bytes in the packet's buffer.
    pub(super) length: u16,
    /// Bytes in the header's buffer, if the header was split.
    pub(super) header: Option<u16>,
    /// True if the header did not fit into its buffer.
    pub(super) overflow: bool,
    /// True for a line error.
    pub(super) error: bool,
    /// Kind of the frame, in its last descriptor.
    pub(super) last: Option<Parsed>,
    pub(super) check_ip: bool,
    pub(super) check_l4: bool,
}

impl Received {
    /// Extended status and errors [82576 data sheet, 7.1.5.2; 82574 data sheet, 7.1.4.2].
    fn status(&self) -> u32 {
        let Some(parsed) = self.last else { return 1 };
        let mut status = 0b11;
        let mut set = |on: bool, bit: u32| status |= u32::from(on) << bit;
        if self.check_ip && parsed.ip == 4 {
            set(true, 6);
            set(!parsed.ip_right, 30);
        }
        if self.check_l4
            && let Some(l4_right) = parsed.l4_right
        {
            set(true, 5);
            set(parsed.protocol == 17, 4);
            set(!l4_right, 29);
        }
        set(parsed.ip == 4, 9);
        set(parsed.pure_ack, 15);
        set(self.overflow, 23);
        set(self.error, 31);
        status
    }

    pub(super) fn emit(&self, format: Format, address: u64) -> Raw {
        let mut raw = [0; 16];
        let status = self.status();
        let parsed = self.last.unwrap_or_default();
        if format == Format::Legacy {
            raw[..8].copy_from_slice(&address.to_le_bytes());
            raw[8..10].copy_from_slice(&self.length.to_le_bytes());
            raw[12] = status as u8;
            raw[13] = (status >> 24) as u8;
            return raw;
        }
        if format == Format::Advanced {
            let kind = match parsed.ip {
                4 => 1 << 4,
                6 => 1 << 6,
                _ => 0,
            } | match parsed.protocol {
                6 => 1 << 8,
                17 => 1 << 9,
                _ => 0,
            };
            let split = self.header.map_or(0, |length| length << 5 | 1 << 15);
            raw[..2].copy_from_slice(&u16::to_le_bytes(kind));
            raw[2..4].copy_from_slice(&split.to_le_bytes());
        }
        raw[4..6].copy_from_slice(&parsed.id.to_le_bytes());
        raw[8..12].copy_from_slice(&status.to_le_bytes());
        raw[12..14].copy_from_slice(&self.length.to_le_bytes());
        raw
    }
}
