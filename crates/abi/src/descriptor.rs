//! The descriptor that a transfer's submission entry points to: endpoints, extents, parameters.
//!
//! A descriptor is one piece of memory: a header, then extents and parameter blocks, which the header places
//! by offset. [`Descriptor::parse`] takes bytes that were already copied out of shared memory and checks
//! every offset, count and sum before anything uses them.

use crate::entry::LENGTH_TO_END;
use crate::layout::Constant;
use crate::wire::wire_struct;
use crate::{ABI_VERSION, CHAIN_MAX, Wire, WireError};

/// Largest descriptor that an engine fetches, in bytes.
pub const DESCRIPTOR_MAX: usize = 64 * 1024;

/// End of a FILE extent that reaches to the end of the file: the largest offset that a file can have.
pub const OPEN_END: u64 = i64::MAX as u64;

wire_struct! {
    /// A run of bytes of a file, a block device or memory.
    Extent, ExtentPacket, EXTENT, "dcs_extent", 16 {
        /// First byte: file offset, device offset (LBA times block size) or bus address.
        offset: u64 = 0,
        /// Bytes. Where offset and length of a FILE's last extent come to 2^63 - 1, it goes on until the file
        /// gives no more: that is how a file is read that does not tell its size.
        length: u64 = 8,
    }
}

wire_struct! {
    /// Where bytes come from or go to.
    Endpoint, EndpointPacket, ENDPOINT, "dcs_endpoint", 32 {
        /// DCS_ENDPOINT_*.
        kind: u8 = 0,
        /// Page cache: DCS_MODE_AUTO, _ON (through the page cache) or _OFF (O_DIRECT).
        cache: u8 = 1,
        /// Zero copy and peer-to-peer: DCS_MODE_AUTO, _ON or _OFF.
        zero_copy: u8 = 2,
        /// 1: nobody writes to it before the reader at the destination has read what is sent, so that pages
        /// of the page cache may be lent out. The transfer's end does not end the promise. A source's; else
        /// 0.
        immutable: u8 = 3,
        /// Handle that the session was given for the file, device, socket or memory.
        handle: u32 = 4,
        /// Offset in the descriptor of the first struct dcs_extent; FILE, BLOCK, MEMORY and DEVICE_MEMORY.
        extents_offset: u32 = 8,
        /// Number of extents; at least 1 where there is an endpoint that has extents, 0 for FLOW, STREAM and
        /// PACED.
        extents_count: u32 = 12,
        /// Bits a second, without the headers of datagrams, where pacing is CONSTANT; else 0.
        rate: u64 = 16,
        /// Microseconds, at most DCS_WINDOW_MAX. PACED as a destination: datagrams that are due within this time
        /// go together. As a source: a missing datagram is waited for so long. Else 0.
        window_us: u32 = 24,
        /// DCS_PACING_*: what says when the bytes of a PACED destination are due; else 0.
        pacing: u8 = 28,
    }
}

wire_struct! {
    /// Where an operator's parameter block is. [FlexCSV direct_param and file_param]
    Parameter, ParameterPacket, PARAMETER, "dcs_parameter", 16 {
        /// DCS_PARAMETER_*: none, direct (in the descriptor).
        kind: u32 = 0,
        /// In bytes.
        length: u32 = 4,
        /// Offset in the descriptor.
        offset: u64 = 8,
    }
}

wire_struct! {
    /// Header of a descriptor.
    DescriptorHeader, DescriptorPacket, DESCRIPTOR, "dcs_descriptor", 256 {
        /// DCS_ABI_VERSION.
        version: u16 = 0,
        /// Bytes of this header, 256.
        header_length: u16 = 2,
        /// Bytes of header, extents and parameters together.
        total_length: u32 = 4,
        /// Bytes that come before the source's, kind MEMORY or NONE: what the caller had already read off a
        /// socket.
        prefix: Endpoint = 16,
        /// Where the bytes come from.
        source: Endpoint = 48,
        /// Where they go.
        destination: Endpoint = 80,
        /// Parameters of the operator at the same place of the chain.
        parameters: [Parameter; 8] = 112,
    }
}

/// Kind of an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum EndpointKind {
    /// No endpoint.
    #[default]
    None = 0,
    /// Extents of a file, by file offset.
    File = 1,
    /// Extents of a block device, by byte offset.
    Block = 2,
    /// A flow: a connected stream socket.
    Flow = 3,
    /// Memory of the host, by bus address.
    Memory = 4,
    /// Memory of a device (an NVMe memory range set).
    DeviceMemory = 5,
    /// An ordered stream without position: a pipe, a character device.
    Stream = 6,
    /// Datagrams of a media stream: as a destination each is sent when it is due, as a source they are put
    /// into their order.
    Paced = 7,
}

/// Endpoint kinds, for generators.
pub const ENDPOINT_KINDS: &[Constant] = &[
    Constant { name: "NONE", value: 0, doc: "no endpoint" },
    Constant { name: "FILE", value: 1, doc: "extents of a file, by file offset" },
    Constant { name: "BLOCK", value: 2, doc: "extents of a block device, by byte offset" },
    Constant { name: "FLOW", value: 3, doc: "a connected stream socket" },
    Constant { name: "MEMORY", value: 4, doc: "host memory, by bus address" },
    Constant { name: "DEVICE_MEMORY", value: 5, doc: "device memory [NVMe SLM memory range set]" },
    Constant {
        name: "STREAM",
        value: 6,
        doc: "an ordered stream without position: a pipe, a character device",
    },
    Constant {
        name: "PACED",
        value: 7,
        doc: "datagrams of a media stream: as a destination each is sent when it is due, as a source they are put into their order",
    },
];

impl EndpointKind {
    /// The kind of that number.
    pub fn from_number(number: u8) -> Option<EndpointKind> {
        use EndpointKind::*;
        const KINDS: [EndpointKind; 8] = [None, File, Block, Flow, Memory, DeviceMemory, Stream, Paced];
        KINDS.get(number as usize).copied()
    }

    /// True where bytes have a position, so that they may be read or written in any order.
    pub fn is_positional(self) -> bool {
        matches!(
            self,
            EndpointKind::File | EndpointKind::Block | EndpointKind::Memory | EndpointKind::DeviceMemory
        )
    }
}

/// Longest window of a paced endpoint, in microseconds.
pub const WINDOW_MAX_US: u32 = 10_000_000;

/// What says when the bytes of a paced destination are due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Pacing {
    /// Nothing: they go as fast as they can.
    #[default]
    Free = 0,
    /// A constant rate.
    Constant = 1,
    /// The clock references (PCR) of the MPEG transport stream that they are. (ISO/IEC 13818-1, 2.4.3.5)
    Pcr = 2,
}

/// Pacings, for generators.
pub const PACINGS: &[Constant] = &[
    Constant { name: "FREE", value: 0, doc: "as fast as they can be sent; always so for a source" },
    Constant { name: "CONSTANT", value: 1, doc: "at a constant rate" },
    Constant {
        name: "PCR",
        value: 2,
        doc: "by the clock references of the MPEG transport stream that they are [ISO/IEC 13818-1, 2.4.3.5]",
    },
];

impl Pacing {
    /// The pacing of that number.
    pub fn from_number(number: u8) -> Option<Pacing> {
        [Pacing::Free, Pacing::Constant, Pacing::Pcr].get(number as usize).copied()
    }
}

/// The pace of a paced endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    /// What says when bytes are due.
    pub pacing: Pacing,
    /// Bits a second, where it is constant.
    pub rate: u64,
    /// Microseconds: see [`Endpoint::window_us`].
    pub window_us: u32,
}

impl Pace {
    /// The pace that an endpoint's fields describe.
    fn of(endpoint: &Endpoint) -> Option<Pace> {
        let pacing = Pacing::from_number(endpoint.pacing)?;
        let pace = Pace { pacing, rate: endpoint.rate, window_us: endpoint.window_us };
        let is_paced = endpoint.kind == EndpointKind::Paced as u8;
        let sound = (pace.rate > 0) == (pacing == Pacing::Constant) && pace.window_us <= WINDOW_MAX_US;
        (if is_paced { sound } else { pace == Pace::default() }).then_some(pace)
    }
}

/// Choice of a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Mode {
    /// The engine decides.
    #[default]
    Auto = 0,
    /// It must be taken.
    On = 1,
    /// It must not be taken.
    Off = 2,
}

/// Modes, for generators.
pub const MODES: &[Constant] = &[
    Constant { name: "AUTO", value: 0, doc: "the engine decides; the result says what it did" },
    Constant { name: "ON", value: 1, doc: "must be taken" },
    Constant { name: "OFF", value: 2, doc: "must not be taken" },
];

impl Mode {
    /// The mode of that number.
    pub fn from_number(number: u8) -> Option<Mode> {
        [Mode::Auto, Mode::On, Mode::Off].get(number as usize).copied()
    }
}

/// A parameter block that is not there.
pub const PARAMETER_NONE: u32 = 0;
/// A parameter block inside the descriptor.
pub const PARAMETER_DIRECT: u32 = 1;

/// Kinds of parameter, for generators.
pub const PARAMETER_KINDS: &[Constant] = &[
    Constant { name: "NONE", value: PARAMETER_NONE as u64, doc: "no parameters" },
    Constant {
        name: "DIRECT",
        value: PARAMETER_DIRECT as u64,
        doc: "in the descriptor [FlexCSV direct_param]",
    },
];

/// A reason why a descriptor is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DescriptorError {
    /// The header is not one.
    Wire(WireError),
    /// Another version of the command set, or another header length.
    Version,
    /// `total_length` is not the length of the descriptor that was fetched.
    Length,
    /// An endpoint's kind or mode is not defined, or not allowed in its place; or `immutable` is.
    Endpoint,
    /// Extents or parameters lie outside the descriptor or inside its header, or are not aligned to 8 bytes.
    Bounds,
    /// Extents are missing, surplus, empty, or overflow.
    Extents,
    /// A parameter's kind is not defined, or its length does not go with it.
    Parameter,
}

impl core::fmt::Display for DescriptorError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            DescriptorError::Wire(error) => write!(f, "descriptor header: {error}"),
            DescriptorError::Version => f.write_str("descriptor of another version"),
            DescriptorError::Length => f.write_str("total_length is not the descriptor's length"),
            DescriptorError::Endpoint => {
                f.write_str("endpoint of an undefined or misplaced kind, mode or pace")
            }
            DescriptorError::Bounds => f.write_str("extents or parameters outside the descriptor"),
            DescriptorError::Extents => f.write_str("extents missing, surplus, empty or overflowing"),
            DescriptorError::Parameter => f.write_str("parameter of an undefined kind"),
        }
    }
}

impl core::error::Error for DescriptorError {}

impl From<WireError> for DescriptorError {
    fn from(error: WireError) -> Self {
        DescriptorError::Wire(error)
    }
}

/// A checked view of a whole descriptor: every offset in it is inside, every kind is known.
#[derive(Clone, Copy, Debug)]
pub struct Descriptor<'a> {
    bytes: &'a [u8],
    prefix: EndpointView<'a>,
    source: EndpointView<'a>,
    destination: EndpointView<'a>,
    /// One past the last parameter block that is there.
    parameters: usize,
}

/// One endpoint of a checked descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndpointView<'a> {
    /// Its kind.
    pub kind: EndpointKind,
    /// Page cache.
    pub cache: Mode,
    /// Zero copy, peer-to-peer.
    pub zero_copy: Mode,
    /// Nobody writes to it meanwhile.
    pub immutable: bool,
    /// The session's handle for it.
    pub handle: u32,
    /// Its pace, where it is paced.
    pub pace: Pace,
    extents: &'a [u8],
}

impl<'a> EndpointView<'a> {
    /// Its extents, in order. Only a single one may be empty, and their lengths add up to less than 2^64 - 1.
    pub fn extents(&self) -> impl ExactSizeIterator<Item = Extent> + use<'a> {
        self.extents.chunks_exact(Extent::SIZE).map(Extent::get)
    }

    /// Bytes of all extents together; [`LENGTH_TO_END`] for a flow, a stream and datagrams, 0 where there is no endpoint.
    pub fn length(&self) -> u64 {
        match self.kind {
            EndpointKind::Flow | EndpointKind::Stream | EndpointKind::Paced => LENGTH_TO_END,
            _ => self.extents().map(|extent| extent.length).sum(),
        }
    }
}

impl<'a> Descriptor<'a> {
    /// Checks a descriptor that was copied to `bytes`.
    ///
    /// # Errors
    ///
    /// [`DescriptorError`] for anything that would make a later access fail or mean two things.
    pub fn parse(bytes: &'a [u8]) -> Result<Descriptor<'a>, DescriptorError> {
        let packet = DescriptorPacket::new_checked(bytes)?;
        // The version first: a newer descriptor may use what is reserved here.
        if packet.version() != ABI_VERSION || packet.header_length() as usize != DescriptorHeader::SIZE {
            return Err(DescriptorError::Version);
        }
        packet.check_reserved()?;
        if packet.total_length() as usize != bytes.len() || bytes.len() > DESCRIPTOR_MAX {
            return Err(DescriptorError::Length);
        }
        // Most commands have none.
        let prefix = packet.prefix();
        let prefix = if prefix == Endpoint::default() {
            EndpointView {
                kind: EndpointKind::None,
                cache: Mode::Auto,
                zero_copy: Mode::Auto,
                immutable: false,
                handle: 0,
                pace: Pace::default(),
                extents: &[],
            }
        } else {
            view(bytes, &prefix)?
        };
        let source = view(bytes, &packet.source())?;
        let destination = view(bytes, &packet.destination())?;
        let missing = source.kind == EndpointKind::None || destination.kind == EndpointKind::None;
        let misplaced = prefix.immutable || destination.immutable || source.pace.pacing != Pacing::Free;
        if missing || misplaced || !matches!(prefix.kind, EndpointKind::None | EndpointKind::Memory) {
            return Err(DescriptorError::Endpoint);
        }
        let mut parameters = 0;
        if has_parameters(bytes) {
            for (at, parameter) in packet.parameters().iter().enumerate() {
                if *parameter != Parameter::default() && !block(bytes, parameter)?.is_empty() {
                    parameters = at + 1;
                }
            }
        }
        Ok(Descriptor { bytes, prefix, source, destination, parameters })
    }

    /// The bytes before the source's; kind [`EndpointKind::None`] where there are none.
    pub fn prefix(&self) -> EndpointView<'a> {
        self.prefix
    }

    /// Where the bytes come from.
    pub fn source(&self) -> EndpointView<'a> {
        self.source
    }

    /// Where they go.
    pub fn destination(&self) -> EndpointView<'a> {
        self.destination
    }

    /// The parameter block of the operator at that place of the chain; empty where it has none.
    pub fn parameter(&self, at: usize) -> &'a [u8] {
        if at >= self.parameters {
            return &[];
        }
        let raw = &self.bytes[PARAMETERS_AT + at * Parameter::SIZE..][..Parameter::SIZE];
        block(self.bytes, &Parameter::get(raw)).unwrap_or(&[])
    }

    /// One past the last place of the chain that has a parameter block.
    pub fn parameters(&self) -> usize {
        self.parameters
    }
}

/// The offset of the parameters in the header: its last field.
const PARAMETERS_AT: usize = DESCRIPTOR.fields[DESCRIPTOR.fields.len() - 1].offset;

/// The parameter block that a header's field names.
fn block<'a>(bytes: &'a [u8], parameter: &Parameter) -> Result<&'a [u8], DescriptorError> {
    match parameter.kind {
        PARAMETER_NONE if parameter.length == 0 && parameter.offset == 0 => Ok(&[]),
        PARAMETER_DIRECT if parameter.length > 0 => {
            inside(bytes, parameter.offset, u64::from(parameter.length))
        }
        _ => Err(DescriptorError::Parameter),
    }
}

/// Tells whether a descriptor, of which nothing is checked, has parameter blocks: there may be keys in them.
pub fn has_parameters(bytes: &[u8]) -> bool {
    !is_zero(bytes.get(PARAMETERS_AT..DescriptorHeader::SIZE).unwrap_or_default())
}

/// True where all bytes are zero. Without a branch a byte: where one is not does not matter.
fn is_zero(bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks::<8>();
    let some = words.iter().fold(0, |some, word| some | u64::from_le_bytes(*word));
    rest.iter().fold(some, |some, byte| some | u64::from(*byte)) == 0
}

/// The endpoint that a header's field describes.
fn view<'a>(bytes: &'a [u8], endpoint: &Endpoint) -> Result<EndpointView<'a>, DescriptorError> {
    let kind = EndpointKind::from_number(endpoint.kind).ok_or(DescriptorError::Endpoint)?;
    let cache = Mode::from_number(endpoint.cache).ok_or(DescriptorError::Endpoint)?;
    let zero_copy = Mode::from_number(endpoint.zero_copy).ok_or(DescriptorError::Endpoint)?;
    let pace = Pace::of(endpoint).ok_or(DescriptorError::Endpoint)?;
    let undefined = endpoint.immutable > 1;
    if undefined || kind == EndpointKind::None && *endpoint != Endpoint::default() {
        return Err(DescriptorError::Endpoint);
    }
    let count = u64::from(endpoint.extents_count);
    if kind.is_positional() != (count > 0) {
        return Err(DescriptorError::Extents);
    }
    let extents = match count {
        0 if endpoint.extents_offset == 0 => &[],
        0 => return Err(DescriptorError::Extents),
        _ => inside(bytes, u64::from(endpoint.extents_offset), count * Extent::SIZE as u64)?,
    };
    let mut total = 0u64;
    for extent in extents.chunks_exact(Extent::SIZE).map(Extent::get) {
        let end = extent.offset.checked_add(extent.length);
        total = total
            .checked_add(extent.length)
            .filter(|sum| *sum < LENGTH_TO_END)
            .ok_or(DescriptorError::Extents)?;
        if end.is_none() || (extent.length == 0 && count > 1) {
            return Err(DescriptorError::Extents);
        }
    }
    let immutable = endpoint.immutable == 1;
    Ok(EndpointView { kind, cache, zero_copy, immutable, handle: endpoint.handle, pace, extents })
}

fn inside(bytes: &[u8], offset: u64, length: u64) -> Result<&[u8], DescriptorError> {
    let end = offset.checked_add(length).ok_or(DescriptorError::Bounds)?;
    if offset < DescriptorHeader::SIZE as u64 || !offset.is_multiple_of(8) || end > bytes.len() as u64 {
        return Err(DescriptorError::Bounds);
    }
    Ok(&bytes[offset as usize..end as usize])
}

/// Writes a descriptor into a buffer: endpoints first, then [`Builder::finish`].
#[derive(Debug)]
pub struct Builder<'a> {
    bytes: &'a mut [u8],
    used: usize,
    header: DescriptorHeader,
}

/// The buffer is too small for the descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRoom;

impl core::fmt::Display for NoRoom {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("the buffer is too small for the descriptor")
    }
}

impl core::error::Error for NoRoom {}

/// One of the three endpoints of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EndpointRole {
    /// Bytes before the source's.
    Prefix,
    /// The source.
    Source,
    /// The destination.
    Destination,
}

impl<'a> Builder<'a> {
    /// Starts a descriptor in `bytes`.
    ///
    /// # Errors
    ///
    /// [`NoRoom`] where not even the header fits.
    pub fn new(bytes: &'a mut [u8]) -> Result<Builder<'a>, NoRoom> {
        if bytes.len() < DescriptorHeader::SIZE {
            return Err(NoRoom);
        }
        let header = DescriptorHeader {
            version: ABI_VERSION,
            header_length: DescriptorHeader::SIZE as u16,
            ..Default::default()
        };
        Ok(Builder { bytes, used: DescriptorHeader::SIZE, header })
    }

    /// Writes an endpoint and its extents; `endpoint`'s own extents fields are filled in.
    ///
    /// # Errors
    ///
    /// [`NoRoom`].
    pub fn endpoint(
        &mut self,
        role: EndpointRole,
        mut endpoint: Endpoint,
        extents: &[Extent],
    ) -> Result<&mut Self, NoRoom> {
        if !extents.is_empty() {
            let to = self.take(extents.len() * Extent::SIZE)?;
            for (chunk, extent) in self.bytes[to..].chunks_exact_mut(Extent::SIZE).zip(extents) {
                extent.put(chunk);
            }
            endpoint.extents_offset = to as u32;
            endpoint.extents_count = extents.len() as u32;
        }
        match role {
            EndpointRole::Prefix => self.header.prefix = endpoint,
            EndpointRole::Source => self.header.source = endpoint,
            EndpointRole::Destination => self.header.destination = endpoint,
        }
        Ok(self)
    }

    /// Writes the parameter block of the operator at place `at` of the chain; nothing where it is empty.
    ///
    /// # Errors
    ///
    /// [`NoRoom`], also where `at` is beyond the longest chain.
    pub fn parameter(&mut self, at: usize, block: &[u8]) -> Result<&mut Self, NoRoom> {
        if at >= CHAIN_MAX {
            return Err(NoRoom);
        }
        if !block.is_empty() {
            let to = self.take(block.len())?;
            self.bytes[to..to + block.len()].copy_from_slice(block);
            self.header.parameters[at] =
                Parameter { kind: PARAMETER_DIRECT, length: block.len() as u32, offset: to as u64 };
        }
        Ok(self)
    }

    /// Writes the header and tells how many bytes the descriptor has.
    pub fn finish(mut self) -> usize {
        self.header.total_length = self.used as u32;
        self.bytes[..DescriptorHeader::SIZE].copy_from_slice(&self.header.to_bytes());
        self.used
    }

    /// Takes room for `length` bytes, padded with zeros to 8.
    fn take(&mut self, length: usize) -> Result<usize, NoRoom> {
        let (from, padded) = (self.used, length.next_multiple_of(8));
        let end = from
            .checked_add(padded)
            .filter(|end| *end <= self.bytes.len().min(DESCRIPTOR_MAX))
            .ok_or(NoRoom)?;
        self.bytes[from..end].fill(0);
        self.used = end;
        Ok(from)
    }
}

/// A descriptor of the most common kind: an extent each at most, no prefix, no parameters. What [`Builder`] makes of the
/// same, with less work.
#[derive(Clone, Copy, Debug)]
pub struct Plain {
    /// Where bytes come from, and its extent, where it has positions.
    pub source: (Endpoint, Option<Extent>),
    /// Where they go.
    pub destination: (Endpoint, Option<Extent>),
}

impl Plain {
    /// Hands over its 64-bit words, each with its place, but those that are zero in all descriptors of the kind; tells how
    /// many bytes it has.
    #[inline]
    pub fn words(&self, mut word: impl FnMut(usize, u64)) -> usize {
        let mut used = DescriptorHeader::SIZE;
        for (field, (endpoint, extent)) in [(SOURCE_AT, &self.source), (DESTINATION_AT, &self.destination)] {
            let mut endpoint = *endpoint;
            if let Some(extent) = extent {
                (endpoint.extents_offset, endpoint.extents_count) = (used as u32, 1);
                word(used / 8, extent.offset);
                word(used / 8 + 1, extent.length);
                used += Extent::SIZE;
            }
            let bytes = endpoint.to_bytes();
            for (at, bytes) in bytes.as_chunks::<8>().0.iter().enumerate() {
                word(field / 8 + at, u64::from_le_bytes(*bytes));
            }
        }
        word(0, u64::from(ABI_VERSION) | (DescriptorHeader::SIZE as u64) << 16 | (used as u64) << 32);
        used
    }
}

/// The offsets of source and destination in the header.
const SOURCE_AT: usize = DESCRIPTOR.fields[DESCRIPTOR.fields.len() - 3].offset;
const DESTINATION_AT: usize = DESCRIPTOR.fields[DESCRIPTOR.fields.len() - 2].offset;

#[cfg(test)]
mod tests {
    use super::*;

    fn file(handle: u32) -> Endpoint {
        Endpoint { kind: EndpointKind::File as u8, handle, ..Default::default() }
    }

    fn socket(handle: u32) -> Endpoint {
        Endpoint { kind: EndpointKind::Flow as u8, handle, ..Default::default() }
    }

    fn sample(buffer: &mut [u8]) -> usize {
        let mut builder = Builder::new(buffer).unwrap();
        let extents = [Extent { offset: 4096, length: 100 }, Extent { offset: 0, length: 50 }];
        builder.endpoint(EndpointRole::Source, file(3), &extents).unwrap();
        builder.endpoint(EndpointRole::Destination, socket(4), &[]).unwrap();
        builder.parameter(1, &[7; 48]).unwrap();
        builder.finish()
    }

    #[test]
    fn what_is_built_parses_to_the_same() {
        let mut buffer = [0xee; 1024];
        let used = sample(&mut buffer);
        let descriptor = Descriptor::parse(&buffer[..used]).unwrap();
        assert_eq!(descriptor.prefix().kind, EndpointKind::None);
        assert_eq!(descriptor.source().handle, 3);
        assert_eq!(descriptor.source().length(), 150);
        assert_eq!(descriptor.source().extents().len(), 2);
        assert_eq!(descriptor.destination().kind, EndpointKind::Flow);
        assert_eq!(descriptor.destination().length(), LENGTH_TO_END);
        assert_eq!(descriptor.parameter(0), &[] as &[u8]);
        assert_eq!(descriptor.parameter(1), &[7; 48]);
    }

    #[test]
    fn a_plain_one_is_what_is_built() {
        let extent = Extent { offset: 0x1234_5678_9abc, length: 0xfed_cba9 };
        for (from, to) in
            [(None, None), (Some(extent), None), (None, Some(extent)), (Some(extent), Some(extent))]
        {
            let source =
                Endpoint { cache: 2, immutable: 1, ..if from.is_some() { file(3) } else { socket(3) } };
            let paced =
                Endpoint { kind: EndpointKind::Paced as u8, pacing: 1, rate: 77, window_us: 5, ..socket(9) };
            let destination = if to.is_some() { file(9) } else { paced };
            let mut built = [0; 1024];
            let mut builder = Builder::new(&mut built).unwrap();
            builder.endpoint(EndpointRole::Source, source, from.as_slice()).unwrap();
            builder.endpoint(EndpointRole::Destination, destination, to.as_slice()).unwrap();
            let length = builder.finish();
            let mut words = [0u64; 128];
            let plain = Plain { source: (source, from), destination: (destination, to) };
            assert_eq!(plain.words(|at, word| words[at] = word), length);
            let bytes = words.iter().flat_map(|word| word.to_le_bytes());
            assert!(bytes.take(length).eq(built[..length].iter().copied()));
        }
    }

    #[test]
    fn every_single_broken_field_has_its_error() {
        let mut buffer = [0; 1024];
        let used = sample(&mut buffer);
        type Case = (&'static str, fn(&mut DescriptorHeader), DescriptorError);
        let cases: &[Case] = &[
            ("version", |h| h.version = 9, DescriptorError::Version),
            ("total", |h| h.total_length -= 8, DescriptorError::Length),
            ("kind", |h| h.source.kind = 77, DescriptorError::Endpoint),
            ("mode", |h| h.source.cache = 3, DescriptorError::Endpoint),
            ("no source", |h| h.source = Endpoint::default(), DescriptorError::Endpoint),
            ("immutable", |h| h.source.immutable = 2, DescriptorError::Endpoint),
            ("immutable destination", |h| h.destination.immutable = 1, DescriptorError::Endpoint),
            ("socket as prefix", |h| h.prefix = h.destination, DescriptorError::Endpoint),
            ("a rate on a socket", |h| h.destination.rate = 1, DescriptorError::Endpoint),
            ("a window on a file", |h| h.source.window_us = 1, DescriptorError::Endpoint),
            ("a pacing that is none", |h| h.destination.pacing = 3, DescriptorError::Endpoint),
            ("extents on a socket", |h| h.destination.extents_count = 1, DescriptorError::Extents),
            ("file without extents", |h| h.source.extents_count = 0, DescriptorError::Extents),
            ("extents in the header", |h| h.source.extents_offset = 0, DescriptorError::Bounds),
            ("extents past the end", |h| h.source.extents_count = 1 << 30, DescriptorError::Bounds),
            ("unaligned", |h| h.source.extents_offset += 1, DescriptorError::Bounds),
            ("parameter past the end", |h| h.parameters[1].length = u32::MAX, DescriptorError::Bounds),
            ("parameter overflow", |h| h.parameters[1].offset = u64::MAX - 7, DescriptorError::Bounds),
            ("parameter kind", |h| h.parameters[1].kind = 9, DescriptorError::Parameter),
        ];
        for (what, damage, error) in cases {
            let mut damaged = buffer;
            let mut header = DescriptorHeader::get(&damaged[..256]);
            damage(&mut header);
            header.put(&mut damaged[..256]);
            assert_eq!(Descriptor::parse(&damaged[..used]).unwrap_err(), *error, "{what}");
        }
        assert!(matches!(Descriptor::parse(&buffer[..100]), Err(DescriptorError::Wire(_))));
        let mut damaged = buffer;
        damaged[48 + 29] = 1;
        let reserved = DescriptorError::Wire(WireError::Reserved { offset: 77 });
        assert_eq!(Descriptor::parse(&damaged[..used]).unwrap_err(), reserved, "inside a nested endpoint");
    }

    #[test]
    fn a_pace_belongs_to_datagrams_and_fits_its_pacing() {
        let parse = |paced: Endpoint, to_destination: bool| {
            let mut buffer = [0; 1024];
            let mut builder = Builder::new(&mut buffer).unwrap();
            let roles = [EndpointRole::Source, EndpointRole::Destination];
            let at = usize::from(to_destination);
            builder.endpoint(roles[at], paced, &[]).unwrap();
            builder.endpoint(roles[1 - at], socket(2), &[]).unwrap();
            let used = builder.finish();
            Descriptor::parse(&buffer[..used]).map(|parsed| (parsed.source().pace, parsed.destination().pace))
        };
        let paced = Endpoint { kind: EndpointKind::Paced as u8, handle: 1, ..Default::default() };
        let constant = Endpoint { pacing: 1, rate: 8_000_000, window_us: 1000, ..paced };
        let pace = Pace { pacing: Pacing::Constant, rate: 8_000_000, window_us: 1000 };
        assert_eq!(parse(constant, true), Ok((Pace::default(), pace)));
        assert_eq!(parse(Endpoint { pacing: 2, ..paced }, true).unwrap().1.pacing, Pacing::Pcr);
        assert_eq!(parse(Endpoint { window_us: 7, ..paced }, false).unwrap().0.window_us, 7);
        let bad = Err(DescriptorError::Endpoint);
        assert_eq!(parse(Endpoint { rate: 0, ..constant }, true), bad, "a rate of nothing");
        assert_eq!(parse(Endpoint { rate: 9, ..paced }, true), bad, "a rate without a pacing");
        assert_eq!(parse(Endpoint { window_us: WINDOW_MAX_US + 1, ..paced }, true), bad);
        assert_eq!(parse(constant, false), bad, "nobody paces what comes");
    }

    #[test]
    fn lengths_that_overflow_are_refused() {
        let mut buffer = [0; 1024];
        let mut builder = Builder::new(&mut buffer).unwrap();
        let extents = [Extent { offset: 0, length: u64::MAX - 1 }, Extent { offset: 0, length: 2 }];
        builder.endpoint(EndpointRole::Source, file(1), &extents).unwrap();
        builder.endpoint(EndpointRole::Destination, socket(2), &[]).unwrap();
        let used = builder.finish();
        assert_eq!(Descriptor::parse(&buffer[..used]).unwrap_err(), DescriptorError::Extents);
    }

    #[test]
    fn a_buffer_that_is_too_small_is_said() {
        assert_eq!(Builder::new(&mut [0; 255]).unwrap_err(), NoRoom);
        let mut buffer = [0; 300];
        let mut builder = Builder::new(&mut buffer).unwrap();
        assert_eq!(builder.parameter(0, &[1; 64]).unwrap_err(), NoRoom);
        assert_eq!(builder.parameter(8, &[1; 4]).unwrap_err(), NoRoom);
    }
}
