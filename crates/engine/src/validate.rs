//! From a submission entry and a descriptor, both copied, to a transfer that is checked as far as the core
//! can.

use crate::interface::Failure;
use crate::renaming::Renaming;
use crate::transfer::{EndpointSpec, OperatorSpec, TransferSpec};
use alloc::vec::Vec;
use dcs_abi::CHAIN_MAX;
use dcs_abi::descriptor::{Descriptor, EndpointKind, EndpointView, Pace};
use dcs_abi::entry::{FLAG_ACKNOWLEDGED, FLAG_DURABLE, FLAG_MORE, FLAGS_ALL, LENGTH_TO_END, SubmissionEntry};
use dcs_abi::inline::{InlineEnd, InlineEntry};
use dcs_abi::operator::{Operator, OperatorInfo, OperatorKind};
use dcs_abi::status::{Stage, Status};

impl OperatorSpec {
    /// Returns true if a block holds whole data units of an operator that needs them. Their size is after
    /// XTS's two keys; the operator itself checks whether it supports the size.
    fn fits(&self, block_size: u32) -> bool {
        if self.kind != (OperatorKind::InPlace { whole_units: true }) {
            return true;
        }
        let unit = self.parameter.get(64..68).and_then(|field| field.try_into().ok()).map(u32::from_le_bytes);
        // An invalid size is the operator's to refuse, as a bad parameter.
        let is_unit = |unit: &u32| unit.is_power_of_two() && (16..=65536).contains(unit);
        unit.filter(is_unit).is_none_or(|unit| block_size.is_multiple_of(unit))
    }
}

/// The stage that refused a command, its operator's index, and the reason.
pub(crate) type Refusal = (Stage, u8, Failure);

fn refuse<T>(status: Status) -> Result<T, Refusal> {
    Err((Stage::Frontend, 0, Failure::new(status)))
}

/// Extents for which memory is kept from command to command.
const EXTENTS_KEPT: usize = 16;

impl EndpointSpec {
    fn read(&mut self, view: &EndpointView<'_>) {
        (self.kind, self.cache, self.zero_copy) = (view.kind, view.cache, view.zero_copy);
        (self.immutable, self.handle, self.pace) = (view.immutable, view.handle, view.pace);
        self.extents.clear();
        self.extents.extend(view.extents());
    }

    #[inline]
    fn take_end(&mut self, end: &InlineEnd) {
        (self.kind, self.cache, self.zero_copy) = (end.kind, end.cache, end.zero_copy);
        (self.immutable, self.handle, self.pace) = (end.immutable, end.handle, Pace::default());
        self.extents.clear();
        self.extents.extend(end.extent);
    }

    /// Another end of the same kind and modes.
    #[inline]
    fn aim(&mut self, end: &InlineEnd) {
        self.handle = end.handle;
        if let (Some(known), Some(extent)) = (self.extents.first_mut(), end.extent) {
            *known = extent;
        }
    }

    fn clear(&mut self) {
        self.extents.clear();
        if self.extents.capacity() > EXTENTS_KEPT {
            self.extents = Vec::new();
        }
    }

    /// Bytes that a source has, as far as that is known: a stream, and a file that is read as far as it goes,
    /// has [`LENGTH_TO_END`].
    fn available(&self) -> u64 {
        if self.is_open_ended() { LENGTH_TO_END } else { self.length() }
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
        self.read_rest(entry)?;
        match self.chain.iter().position(|operator| !operator.fits(block_size)) {
            Some(at) => Err((Stage::Operator, at as u8, Failure::new(Status::OutOfResources))),
            None => Ok(()),
        }
    }

    /// Becomes what an inline entry asks for, if it is sound. `entry`: the one that it stands for.
    pub(crate) fn read_inline(
        &mut self,
        inline: &InlineEntry,
        entry: &SubmissionEntry,
        units: &Renaming,
    ) -> Result<(), Refusal> {
        let Ok((source, destination)) = inline.ends() else { return refuse(Status::InvalidField) };
        if entry.flags & !FLAGS_ALL != 0 || entry.nsid != 0 || entry.nvme_flags != 0 {
            return refuse(Status::InvalidField);
        }
        self.source.take_end(&source);
        self.destination.take_end(&destination);
        self.chain.clear();
        let [first, second] = inline.op_chain;
        if first == 0 && second != 0 {
            return refuse(Status::InvalidField);
        }
        for number in inline.op_chain.into_iter().take_while(|number| *number != 0) {
            self.chain.push(operator(number, self.chain.len(), &[], units)?);
        }
        self.read_rest(entry)
    }

    /// Becomes what another inline entry of the same shape asks for, if it is sound: what that says was checked.
    #[inline]
    pub(crate) fn read_again(
        &mut self,
        inline: &InlineEntry,
        entry: &SubmissionEntry,
    ) -> Result<(), Refusal> {
        let Ok((source, destination)) = inline.ends() else { return refuse(Status::InvalidField) };
        if entry.flags & !FLAGS_ALL != 0 || entry.nsid != 0 || entry.nvme_flags != 0 {
            return refuse(Status::InvalidField);
        }
        self.source.aim(&source);
        self.destination.aim(&destination);
        self.read_rest(entry)
    }

    /// Takes in the flags and the length, once ends and chain are known.
    #[inline]
    fn read_rest(&mut self, entry: &SubmissionEntry) -> Result<(), Refusal> {
        self.durable = entry.flags & FLAG_DURABLE != 0;
        self.acknowledged = entry.flags & FLAG_ACKNOWLEDGED != 0;
        self.more = entry.flags & FLAG_MORE != 0;
        self.length = entry.length;
        self.length = self.checked_length()?;
        Ok(())
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
            return Err((Stage::Source, 0, Failure::new(Status::OutOfRange)));
        }
        if length != LENGTH_TO_END && length > self.destination.length() && !self.resizes() {
            return Err((Stage::Destination, 0, Failure::new(Status::OutOfRange)));
        }
        Ok(length)
    }
}

/// The operator of that number at that place of a chain.
#[inline]
fn operator(number: u8, at: usize, parameter: &[u8], units: &Renaming) -> Result<OperatorSpec, Refusal> {
    let refuse = |status| (Stage::Operator, at as u8, Failure::new(status));
    let (operator, on_gpu) = Operator::from_chain(number).ok_or(refuse(Status::UnknownOperator))?;
    let pool = units.pool(operator, on_gpu).ok_or(refuse(Status::UnknownOperator))?;
    let &OperatorInfo { kind, parameter: (fewest, most), .. } = operator.info();
    if !(fewest..=most).contains(&parameter.len()) {
        return Err(refuse(Status::BadParameter));
    }
    Ok(OperatorSpec { operator, on_gpu, kind, pool, parameter: parameter.into() })
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
        chain.push(operator(*number, at, descriptor.parameter(at), units)?);
    }
    // A parameter for an operator that is not there is a mistake worth naming.
    if descriptor.parameters() > length {
        return refuse(Status::InvalidField);
    }
    Ok(())
}
