//! Entries that need no descriptor: the whole of a common transfer in 64 bytes.
//!
//! With [`FLAG_INLINE`] an entry says where the bytes are itself: two endpoints of one extent each, two operators without
//! parameters. [`parse`] takes bytes that were already copied out of shared memory, as
//! [`Descriptor::parse`](crate::descriptor::Descriptor::parse) does.

use crate::descriptor::{DescriptorError, Endpoint, EndpointKind, Extent, Mode, OPEN_END, Plain};
use crate::entry::{FLAG_INLINE, LENGTH_TO_END, OPCODE_TRANSFER, SubmissionEntry, SubmissionPacket};
use crate::operator::{Operator, OperatorKind};
use crate::wire::wire_struct;
use crate::{CHAIN_MAX, WireError};

/// Most operators of an inline entry.
pub const INLINE_CHAIN_MAX: usize = 2;

wire_struct! {
    /// Submission queue entry of a transfer with DCS_FLAG_INLINE: it has no descriptor. What it has in common with
    /// struct dcs_sqe is in the same place and means the same.
    InlineEntry, InlinePacket, INLINE, "dcs_inline_sqe", 64 {
        /// DCS_OPCODE_TRANSFER.
        opcode: u8 = 0,
        /// Zero.
        nvme_flags: u8 = 1,
        /// Command identifier.
        cid: u16 = 2,
        /// Zero.
        nsid: u32 = 4,
        /// Request id.
        rid: u32 = 8,
        /// Handle of the source.
        source_handle: u32 = 12,
        /// Bus address of the result area; 0: none wanted.
        result_address: u64 = 16,
        /// First byte at the source, of FILE, BLOCK, MEMORY and DEVICE_MEMORY: from there on it has `length` bytes. Else 0.
        source_offset: u64 = 24,
        /// First byte at the destination, of the same kinds: from there on a FILE goes as far as it can, the others for
        /// `length` bytes. Else 0.
        destination_offset: u64 = 32,
        /// The operator chain: two operators that take no parameters; 0 ends it.
        op_chain: [u8; 2] = 40,
        /// DCS_ENDPOINT_* of the source; neither NONE nor PACED.
        source_kind: u8 = 42,
        /// DCS_ENDPOINT_* of the destination; likewise.
        destination_kind: u8 = 43,
        /// Handle of the destination.
        destination_handle: u32 = 44,
        /// Bytes to move; DCS_LENGTH_TO_END where neither end needs to know.
        length: u64 = 48,
        /// Milliseconds after which the command fails with TIMEOUT; 0: never.
        timeout_ms: u32 = 56,
        /// DCS_FLAG_*, DCS_FLAG_INLINE among them.
        flags: u16 = 60,
        /// DCS_MODE_*: bits 1:0 the source's page cache, 3:2 its zero copy, 5:4 and 7:6 the destination's; bit 8: the
        /// source is immutable. Others zero. See struct dcs_endpoint.
        modes: u16 = 62,
    }
}

/// One end of an inline entry, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InlineEnd {
    /// Its kind.
    pub kind: EndpointKind,
    /// The session's handle for it.
    pub handle: u32,
    /// Page cache.
    pub cache: Mode,
    /// Zero copy, peer-to-peer.
    pub zero_copy: Mode,
    /// Nobody writes to it meanwhile.
    pub immutable: bool,
    /// Its extent, where it has positions.
    pub extent: Option<Extent>,
}

/// All of an inline entry but for handles, offsets, length, and what every entry has: operators, kinds and modes. What
/// was checked of it for one entry holds for another of the same shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InlineShape {
    op_chain: [u8; INLINE_CHAIN_MAX],
    kinds: [u8; 2],
    modes: u16,
}

/// Both ends of an inline entry: source and destination.
pub type InlineEnds = (InlineEnd, InlineEnd);

/// Reads a submission entry of either form: an inline one as the entry that it stands for, which has no descriptor,
/// and its ends.
///
/// # Errors
///
/// [`WireError`] where reserved bytes are not zero.
#[inline]
pub fn parse(bytes: &[u8; 64]) -> Result<(SubmissionEntry, Option<InlineEntry>), WireError> {
    if bytes[0] == OPCODE_TRANSFER && u16::from_le_bytes([bytes[60], bytes[61]]) & FLAG_INLINE != 0 {
        // It has no byte that is reserved.
        let inline = <InlineEntry as crate::Wire>::get(bytes);
        return Ok((inline.entry(), Some(inline)));
    }
    let entry = SubmissionEntry::parse(&SubmissionPacket::new_checked(bytes)?)?;
    Ok((entry, None))
}

impl InlineEntry {
    /// An inline entry of a transfer between these ends, whose extents are as [`InlineEntry::ends`] makes them; the rest
    /// is as in `entry`. None where they, or the chain, need a descriptor.
    pub fn new(entry: &SubmissionEntry, plain: &Plain) -> Option<InlineEntry> {
        let ((source, from), (destination, to)) = (&plain.source, &plain.destination);
        let length = match (entry.length, from) {
            (LENGTH_TO_END, Some(extent)) => extent.length,
            (length, _) => length,
        };
        let short = entry.op_chain[INLINE_CHAIN_MAX..] == [0; CHAIN_MAX - INLINE_CHAIN_MAX];
        let opens = |at: Extent| at.offset.checked_add(at.length).is_none_or(|end| end == OPEN_END);
        let fits = has_place(source) && has_place(destination) && source.immutable <= 1;
        if !short || !fits || destination.immutable != 0 || from.is_some_and(opens) {
            return None;
        }
        let offset = |extent: &Option<Extent>| extent.map_or(0, |extent| extent.offset);
        let mode = |endpoint: &Endpoint| u16::from(endpoint.cache) | u16::from(endpoint.zero_copy) << 2;
        let inline = InlineEntry {
            opcode: entry.opcode,
            nvme_flags: entry.nvme_flags,
            cid: entry.cid,
            nsid: entry.nsid,
            rid: entry.rid,
            source_handle: source.handle,
            result_address: entry.result_address,
            source_offset: offset(from),
            destination_offset: offset(to),
            op_chain: [entry.op_chain[0], entry.op_chain[1]],
            source_kind: source.kind,
            destination_kind: destination.kind,
            destination_handle: destination.handle,
            length,
            timeout_ms: entry.timeout_ms,
            flags: entry.flags | FLAG_INLINE,
            modes: mode(source) | mode(destination) << 4 | u16::from(source.immutable) << 8,
        };
        let (one, other) = inline.ends().ok()?;
        let is_said = match (other.extent, to) {
            // Memory may have more room than is used. An SSD has not: its extents are whole logical blocks.
            (Some(made), Some(wanted)) if made.offset == wanted.offset && made.length < wanted.length => {
                other.kind == EndpointKind::Memory && !inline.resizes()
            }
            (made, wanted) => made == *wanted,
        };
        (one.extent == *from && is_said).then_some(inline)
    }

    /// True where more or fewer bytes than `length` may come out of its chain.
    fn resizes(&self) -> bool {
        let resizes = |number: &u8| {
            Operator::from_chain(*number).is_none_or(|(operator, _)| operator.kind() == OperatorKind::Resize)
        };
        self.op_chain.iter().take_while(|number| **number != 0).any(resizes)
    }

    /// The entry that it stands for; its descriptor has no address.
    #[inline]
    pub fn entry(&self) -> SubmissionEntry {
        let mut op_chain = [0; CHAIN_MAX];
        op_chain[..INLINE_CHAIN_MAX].copy_from_slice(&self.op_chain);
        SubmissionEntry {
            opcode: self.opcode,
            nvme_flags: self.nvme_flags,
            cid: self.cid,
            nsid: self.nsid,
            rid: self.rid,
            result_address: self.result_address,
            op_chain,
            length: self.length,
            timeout_ms: self.timeout_ms,
            flags: self.flags & !FLAG_INLINE,
            ..Default::default()
        }
    }

    /// Its shape.
    #[inline]
    pub fn shape(&self) -> InlineShape {
        let kinds = [self.source_kind, self.destination_kind];
        InlineShape { op_chain: self.op_chain, kinds, modes: self.modes }
    }

    /// Its ends.
    ///
    /// # Errors
    ///
    /// [`DescriptorError`] for kinds and modes that are none or have no place here, and extents that overflow.
    #[inline]
    pub fn ends(&self) -> Result<InlineEnds, DescriptorError> {
        if self.modes >> 9 != 0 {
            return Err(DescriptorError::Endpoint);
        }
        let length = self.length;
        let source =
            end(self.source_kind, self.source_handle, self.modes & 15, self.source_offset, |_| Some(length))?;
        let immutable = self.modes >> 8 == 1;
        let to_end = |kind| match kind {
            EndpointKind::File => OPEN_END.checked_sub(self.destination_offset),
            _ => Some(length),
        };
        let destination = end(
            self.destination_kind,
            self.destination_handle,
            self.modes >> 4 & 15,
            self.destination_offset,
            to_end,
        )?;
        Ok((InlineEnd { immutable, ..source }, destination))
    }

    /// The descriptor that it stands for.
    ///
    /// # Errors
    ///
    /// As [`InlineEntry::ends`].
    pub fn plain(&self) -> Result<Plain, DescriptorError> {
        let (source, destination) = self.ends()?;
        let plain = |end: InlineEnd| {
            let endpoint = Endpoint {
                kind: end.kind as u8,
                cache: end.cache as u8,
                zero_copy: end.zero_copy as u8,
                immutable: end.immutable.into(),
                handle: end.handle,
                ..Default::default()
            };
            (endpoint, end.extent)
        };
        Ok(Plain { source: plain(source), destination: plain(destination) })
    }
}

/// True where an inline entry has room for all that an endpoint says.
fn has_place(endpoint: &Endpoint) -> bool {
    let unpaced = (endpoint.rate, endpoint.window_us, endpoint.pacing) == (0, 0, 0);
    unpaced && endpoint.cache | endpoint.zero_copy <= 3
}

#[inline]
fn end(
    kind: u8,
    handle: u32,
    modes: u16,
    offset: u64,
    length: impl FnOnce(EndpointKind) -> Option<u64>,
) -> Result<InlineEnd, DescriptorError> {
    let kind = EndpointKind::from_number(kind)
        .filter(|kind| !matches!(kind, EndpointKind::None | EndpointKind::Paced))
        .ok_or(DescriptorError::Endpoint)?;
    let mode = |bits: u16| Mode::from_number(bits as u8 & 3).ok_or(DescriptorError::Endpoint);
    let extent = if kind.is_positional() {
        let length = length(kind).filter(|length| *length != LENGTH_TO_END);
        let length = length.ok_or(DescriptorError::Extents)?;
        offset.checked_add(length).ok_or(DescriptorError::Extents)?;
        Some(Extent { offset, length })
    } else if offset == 0 {
        None
    } else {
        return Err(DescriptorError::Extents);
    };
    let (cache, zero_copy) = (mode(modes)?, mode(modes >> 2)?);
    Ok(InlineEnd { kind, handle, cache, zero_copy, immutable: false, extent })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::descriptor::{Builder, Descriptor, DescriptorHeader, EndpointRole};

    fn endpoint(kind: EndpointKind, handle: u32) -> Endpoint {
        Endpoint { kind: kind as u8, handle, ..Default::default() }
    }

    fn entry() -> SubmissionEntry {
        SubmissionEntry {
            opcode: OPCODE_TRANSFER,
            cid: 5,
            rid: 9,
            result_address: 0x1234_5000,
            op_chain: [1, 2, 0, 0, 0, 0, 0, 0],
            length: LENGTH_TO_END,
            timeout_ms: 77,
            flags: 1,
            ..Default::default()
        }
    }

    fn plain() -> Plain {
        let source = Endpoint { cache: 2, zero_copy: 1, immutable: 1, ..endpoint(EndpointKind::File, 3) };
        let destination = Endpoint { zero_copy: 2, ..endpoint(EndpointKind::Flow, 0xffff_fff1) };
        Plain {
            source: (source, Some(Extent { offset: 4096, length: 100 })),
            destination: (destination, None),
        }
    }

    #[test]
    fn an_inline_entry_says_what_its_descriptor_would() {
        let inline = InlineEntry::new(&entry(), &plain()).unwrap();
        let (read, again) = parse(&inline.to_bytes()).unwrap();
        assert_eq!(again, Some(inline));
        assert_eq!(read, SubmissionEntry { length: 100, ..entry() });
        let mut words = [0u64; 64];
        let used = inline.plain().unwrap().words(|at, word| words[at] = word);
        let mut bytes = [0; 512];
        words
            .iter()
            .zip(bytes.chunks_exact_mut(8))
            .for_each(|(word, to)| to.copy_from_slice(&word.to_le_bytes()));
        let mut built = [0; 512];
        let mut builder = Builder::new(&mut built).unwrap();
        let Plain { source, destination } = plain();
        builder.endpoint(EndpointRole::Source, source.0, source.1.as_slice()).unwrap();
        builder.endpoint(EndpointRole::Destination, destination.0, &[]).unwrap();
        assert_eq!((builder.finish(), &bytes[..used]), (used, &built[..used]));
        assert!(Descriptor::parse(&bytes[..used]).is_ok() && used > DescriptorHeader::SIZE);
    }

    #[test]
    fn a_file_is_written_to_its_end_and_memory_for_so_many_bytes() {
        let to = |kind, offset, length| Plain {
            destination: (endpoint(kind, 4), Some(Extent { offset, length })),
            ..plain()
        };
        let made = |plain: &Plain| InlineEntry::new(&entry(), plain)?.ends().ok()?.1.extent;
        let open = to(EndpointKind::File, 7, OPEN_END - 7);
        assert_eq!(made(&open), Some(Extent { offset: 7, length: OPEN_END - 7 }));
        assert_eq!(made(&to(EndpointKind::File, 7, 100)), None, "a file that is not to grow");
        assert_eq!(made(&to(EndpointKind::Memory, 7, 100)), Some(Extent { offset: 7, length: 100 }));
        assert_eq!(made(&to(EndpointKind::Memory, 7, 300)), Some(Extent { offset: 7, length: 100 }));
        assert_eq!(made(&to(EndpointKind::Memory, 7, 99)), None, "there is too little room");
        assert_eq!(made(&to(EndpointKind::Block, 512, 100)), Some(Extent { offset: 512, length: 100 }));
        for kind in [EndpointKind::Block, EndpointKind::DeviceMemory] {
            assert_eq!(made(&to(kind, 512, 512)), None, "whole logical blocks stay whole");
        }
    }

    /// An operator that changes the length needs the room that it was given.
    #[test]
    fn memory_behind_an_operator_that_changes_the_length_keeps_its_room() {
        let memory = |length| Plain {
            destination: (endpoint(EndpointKind::Memory, 4), Some(Extent { offset: 0, length })),
            ..plain()
        };
        for operator in [Operator::Gunzip, Operator::Gzip, Operator::Unzstd] {
            for op_chain in [[operator as u8, 0], [Operator::Crc32 as u8, operator as u8]] {
                let mut entry = entry();
                entry.op_chain[..2].copy_from_slice(&op_chain);
                assert_eq!(InlineEntry::new(&entry, &memory(300)), None, "{operator:?}");
                assert!(InlineEntry::new(&entry, &memory(100)).is_some(), "{operator:?}");
            }
        }
    }

    /// Whatever the fields of endpoints and entry: an inline entry says the same, or there is none.
    #[test]
    fn no_field_becomes_another() {
        let change: [fn(&mut Plain, &mut SubmissionEntry, u8); 12] = [
            |plain, _, to| plain.source.0.kind = to,
            |plain, _, to| plain.source.0.cache = to,
            |plain, _, to| plain.source.0.zero_copy = to,
            |plain, _, to| plain.source.0.immutable = to,
            |plain, _, to| plain.source.0.pacing = to,
            |plain, _, to| plain.destination.0.kind = to,
            |plain, _, to| plain.destination.0.cache = to,
            |plain, _, to| plain.destination.0.zero_copy = to,
            |plain, _, to| plain.destination.0.immutable = to,
            |plain, _, to| plain.destination.0.window_us = to.into(),
            |_, entry, to| entry.nvme_flags = to,
            |_, entry, to| entry.nsid = to.into(),
        ];
        let mut made = 0;
        for (at, change) in change.iter().enumerate() {
            for to in 0..=u8::MAX {
                let (mut plain, mut entry) = (plain(), entry());
                change(&mut plain, &mut entry, to);
                let Some(inline) = InlineEntry::new(&entry, &plain) else { continue };
                let (read, again) = parse(&inline.to_bytes()).unwrap();
                assert_eq!(read, SubmissionEntry { length: 100, ..entry }, "{at} {to}");
                let said = again.unwrap().plain().unwrap();
                assert_eq!((said.source, said.destination), (plain.source, plain.destination), "{at} {to}");
                made += 1;
            }
        }
        assert!(made > 500, "{made}");
    }

    #[test]
    fn what_needs_a_descriptor_gets_one() {
        let needs = |entry: &SubmissionEntry, plain: &Plain| InlineEntry::new(entry, plain).is_none();
        assert!(!needs(&entry(), &plain()));
        let mut long = entry();
        long.op_chain[2] = 7;
        assert!(needs(&long, &plain()));
        assert!(needs(&SubmissionEntry { length: 50, ..entry() }, &plain()), "less than the extent has");
        let mut paced = plain();
        paced.destination.0 = Endpoint { pacing: 1, rate: 5, ..endpoint(EndpointKind::Paced, 1) };
        assert!(needs(&entry(), &paced));
        let mut open = plain();
        open.source.1 = Some(Extent { offset: 10, length: OPEN_END - 10 });
        assert!(needs(&entry(), &open), "a file that does not tell its size");
    }

    #[test]
    fn every_broken_field_is_refused() {
        let good = InlineEntry::new(&entry(), &plain()).unwrap();
        assert!(good.ends().is_ok());
        type Case = (&'static str, fn(&mut InlineEntry), DescriptorError);
        let cases: [Case; 9] = [
            ("no source", |e| e.source_kind = 0, DescriptorError::Endpoint),
            ("a kind that is none", |e| e.destination_kind = 9, DescriptorError::Endpoint),
            ("datagrams", |e| e.destination_kind = 7, DescriptorError::Endpoint),
            ("a mode that is none", |e| e.modes |= 3, DescriptorError::Endpoint),
            ("bits that are reserved", |e| e.modes |= 1 << 9, DescriptorError::Endpoint),
            ("a socket with a position", |e| e.destination_offset = 1, DescriptorError::Extents),
            ("an extent that overflows", |e| e.source_offset = u64::MAX - 5, DescriptorError::Extents),
            ("a file without a length", |e| e.length = LENGTH_TO_END, DescriptorError::Extents),
            (
                "a file beyond its largest offset",
                |e| (e.destination_kind, e.destination_offset) = (1, OPEN_END + 1),
                DescriptorError::Extents,
            ),
        ];
        for (what, damage, error) in cases {
            let mut damaged = good;
            damage(&mut damaged);
            assert_eq!(damaged.ends(), Err(error), "{what}");
        }
        let ordinary = entry().to_bytes();
        assert_eq!(parse(&ordinary), Ok((entry(), None)));
        let mut reserved = ordinary;
        reserved[62] = 1;
        assert_eq!(parse(&reserved), Err(WireError::Reserved { offset: 62 }));
    }
}
