//! From a submission entry and a descriptor, both copied, to a transfer that is checked as far as the core
//! can.

use crate::interface::Fault;
use crate::renaming::Renaming;
use alloc::boxed::Box;
use alloc::vec::Vec;
use dcs_abi::CHAIN_MAX;
use dcs_abi::descriptor::{Descriptor, EndpointKind, EndpointView, Extent, Mode, OPEN_END};
use dcs_abi::entry::{FLAG_ACKNOWLEDGED, FLAG_DURABLE, FLAG_MORE, FLAGS_ALL, LENGTH_TO_END, SubmissionEntry};
use dcs_abi::operator::{Operator, OperatorInfo, OperatorKind};
use dcs_abi::status::{Stage, Status};

/// A transfer, as a command asks for it.
#[derive(Debug, Default)]
pub struct TransferSpec {
    /// Bytes before the source's.
    pub prefix: Option<EndpointSpec>,
    /// The source.
    pub source: EndpointSpec,
    /// The destination.
    pub destination: EndpointSpec,
    /// The operators, in the order in which the data pass them.
    pub chain: Vec<OperatorSpec>,
    /// Bytes in all, or [`LENGTH_TO_END`] for a source that ends by itself.
    pub length: u64,
    /// Make the destination durable.
    pub durable: bool,
    /// Done when the destination's peer has acknowledged everything.
    pub acknowledged: bool,
    /// More data follow on the destination after this transfer.
    pub more: bool,
}

/// One endpoint.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct EndpointSpec {
    /// Its kind.
    pub kind: EndpointKind,
    /// Page cache.
    pub cache: Mode,
    /// Zero copy, peer-to-peer.
    pub zero_copy: Mode,
    /// Nobody writes to it meanwhile.
    pub immutable: bool,
    /// The queue's handle.
    pub handle: u32,
    /// Its extents; none for a stream.
    pub extents: Vec<Extent>,
}

/// One operator of a chain. The parameter block may hold a key: it is wiped when dropped and not printed.
pub struct OperatorSpec {
    /// The operator.
    pub operator: Operator,
    /// A GPU does it.
    pub on_gpu: bool,
    /// Its effect on the data.
    pub(crate) kind: OperatorKind,
    /// The pool of physical units that implement it.
    pub(crate) pool: u8,
    /// Its parameter block, of a length that the operator takes.
    pub parameter: Box<[u8]>,
}

impl OperatorSpec {
    /// True where a block holds whole data units of an operator that needs them. Their size stands behind
    /// XTS's two keys; whether it is one that the operator takes is for the operator to say.
    fn fits(&self, block_size: u32) -> bool {
        if self.kind != (OperatorKind::InPlace { whole_units: true }) {
            return true;
        }
        let unit = self.parameter.get(64..68).and_then(|field| field.try_into().ok()).map(u32::from_le_bytes);
        // What is no data unit at all is the operator's to refuse, as a bad parameter.
        let is_unit = |unit: &u32| unit.is_power_of_two() && (16..=65536).contains(unit);
        unit.filter(is_unit).is_none_or(|unit| block_size.is_multiple_of(unit))
    }
}

impl core::fmt::Debug for OperatorSpec {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{} ({} bytes of parameters)", self.operator.name(), self.parameter.len())
    }
}

impl Drop for OperatorSpec {
    fn drop(&mut self) {
        self.parameter.fill(0);
        // Keeps the compiler from leaving the fill out.
        core::hint::black_box(&self.parameter);
    }
}

/// The stage that refused a command, its operator's index, and the reason.
pub(crate) type Refusal = (Stage, u8, Fault);

fn refuse<T>(status: Status) -> Result<T, Refusal> {
    Err((Stage::Frontend, 0, Fault::new(status)))
}

/// Extents for which memory is kept from command to command.
const EXTENTS_KEPT: usize = 16;

impl EndpointSpec {
    fn read(&mut self, view: &EndpointView<'_>) {
        (self.kind, self.cache, self.zero_copy) = (view.kind, view.cache, view.zero_copy);
        (self.immutable, self.handle) = (view.immutable, view.handle);
        self.extents.clear();
        self.extents.extend(view.extents());
    }

    fn clear(&mut self) {
        self.extents.clear();
        if self.extents.capacity() > EXTENTS_KEPT {
            self.extents = Vec::new();
        }
    }

    /// True for a file that is read until it gives no more: nobody knows how long it is.
    #[inline]
    pub(crate) fn is_open_ended(&self) -> bool {
        let ends_open = |extent: &Extent| extent.offset.checked_add(extent.length) == Some(OPEN_END);
        self.kind == EndpointKind::File && self.extents.last().is_some_and(ends_open)
    }

    /// Bytes that a source has, as far as that is known: a stream, and a file that is read as far as it goes,
    /// has [`LENGTH_TO_END`].
    fn available(&self) -> u64 {
        if self.is_open_ended() { LENGTH_TO_END } else { self.length() }
    }

    /// Bytes of its extents; [`LENGTH_TO_END`] for a stream.
    pub fn length(&self) -> u64 {
        match self.extents.as_slice() {
            _ if !self.kind.is_positional() => LENGTH_TO_END,
            // By far the most common.
            [extent] => extent.length,
            extents => extents.iter().map(|extent| extent.length).sum(),
        }
    }
}

impl TransferSpec {
    /// Becomes what an entry and its descriptor ask for, if they are sound.
    pub(crate) fn read(
        &mut self,
        entry: &SubmissionEntry,
        bytes: &[u8],
        units: &Renaming,
        block_size: u32,
    ) -> Result<(), Refusal> {
        let Ok(descriptor) = Descriptor::parse(bytes) else { return refuse(Status::InvalidField) };
        if entry.flags & !FLAGS_ALL != 0 || entry.nsid != 0 || entry.nvme_flags != 0 {
            return refuse(Status::InvalidField);
        }
        let prefix = descriptor.prefix();
        if prefix.kind != EndpointKind::None {
            self.prefix.get_or_insert_default().read(&prefix);
        }
        self.source.read(&descriptor.source());
        self.destination.read(&descriptor.destination());
        read_chain(&mut self.chain, entry, &descriptor, units)?;
        self.durable = entry.flags & FLAG_DURABLE != 0;
        self.acknowledged = entry.flags & FLAG_ACKNOWLEDGED != 0;
        self.more = entry.flags & FLAG_MORE != 0;
        self.length = entry.length;
        self.length = self.checked_length()?;
        match self.chain.iter().position(|operator| !operator.fits(block_size)) {
            Some(at) => Err((Stage::Operator, at as u8, Fault::new(Status::OutOfResources))),
            None => Ok(()),
        }
    }

    /// Asks for nothing any more, and holds no key; its memory is kept for the next command.
    pub(crate) fn clear(&mut self) {
        self.prefix = None;
        self.source.clear();
        self.destination.clear();
        self.chain.clear();
    }

    fn checked_length(&self) -> Result<u64, Refusal> {
        let prefix = self.prefix.as_ref().map_or(0, EndpointSpec::length);
        let available = match self.source.available() {
            LENGTH_TO_END => LENGTH_TO_END,
            source => match prefix.checked_add(source) {
                Some(sum) if sum < LENGTH_TO_END => sum,
                _ => return refuse(Status::InvalidField),
            },
        };
        let length = if self.length == LENGTH_TO_END { available } else { self.length };
        if length < prefix {
            return refuse(Status::InvalidField);
        }
        if length > available {
            return Err((Stage::Source, 0, Fault::new(Status::OutOfRange)));
        }
        if length != LENGTH_TO_END && length > self.destination.length() && !self.resizes() {
            return Err((Stage::Destination, 0, Fault::new(Status::OutOfRange)));
        }
        Ok(length)
    }

    /// True where an operator changes the length of the data.
    pub fn resizes(&self) -> bool {
        self.chain.iter().any(|spec| spec.kind == OperatorKind::Resize)
    }

    /// True where what goes out is what came in, and is still at the source then. Without operators the
    /// direct path may have moved some of it, and blocks are no longer counted from the first byte on.
    pub(crate) fn repeats_source(&self) -> bool {
        let passes_on = |spec: &OperatorSpec| matches!(spec.kind, OperatorKind::Digest { .. });
        let digests = !self.chain.is_empty() && self.chain.iter().all(passes_on);
        self.source.immutable && self.source.kind.is_positional() && digests
    }

    /// True where a digest is to have a value that is known beforehand.
    pub(crate) fn expects(&self) -> bool {
        self.chain
            .iter()
            .any(|spec| matches!(spec.kind, OperatorKind::Digest { .. }) && !spec.parameter.is_empty())
    }

    /// True where blocks are filled before they go on: the destination has positions, or an operator needs
    /// whole data units (the papers' packet gathering).
    pub(crate) fn gathers(&self) -> bool {
        let whole = |spec: &OperatorSpec| spec.kind == OperatorKind::InPlace { whole_units: true };
        self.destination.kind.is_positional() || self.chain.iter().any(whole)
    }
}

fn read_chain(
    chain: &mut Vec<OperatorSpec>,
    entry: &SubmissionEntry,
    descriptor: &Descriptor<'_>,
    units: &Renaming,
) -> Result<(), Refusal> {
    let length = CHAIN_MAX - u64::from_le_bytes(entry.op_chain).leading_zeros() as usize / 8;
    if entry.op_chain[..length].contains(&0) {
        return refuse(Status::InvalidField);
    }
    chain.clear();
    for (at, number) in entry.op_chain[..length].iter().enumerate() {
        let refuse = |status| (Stage::Operator, at as u8, Fault::new(status));
        let (operator, on_gpu) = Operator::from_chain(*number).ok_or(refuse(Status::UnknownOperator))?;
        let pool = units.pool(operator, on_gpu).ok_or(refuse(Status::UnknownOperator))?;
        let parameter = descriptor.parameter(at);
        let &OperatorInfo { kind, parameter: (fewest, most), .. } = operator.info();
        if !(fewest..=most).contains(&parameter.len()) {
            return Err(refuse(Status::BadParameter));
        }
        chain.push(OperatorSpec { operator, on_gpu, kind, pool, parameter: parameter.into() });
    }
    // A parameter for an operator that is not there is a mistake worth naming.
    if descriptor.parameters() > length {
        return refuse(Status::InvalidField);
    }
    Ok(())
}
