//! A transfer as a command asks for it: its endpoints and its chain.

use alloc::boxed::Box;
use alloc::vec::Vec;
use dcs_abi::descriptor::{EndpointKind, Extent, Mode, OPEN_END, Pace};
use dcs_abi::entry::LENGTH_TO_END;
use dcs_abi::operator::{Operator, OperatorKind};

/// A transfer, as a command asks for it.
#[derive(Clone, Debug, Default)]
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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndpointSpec {
    /// Its kind.
    pub kind: EndpointKind,
    /// Page cache.
    pub cache: Mode,
    /// Zero copy, peer-to-peer.
    pub zero_copy: Mode,
    /// It is not written to meanwhile.
    pub immutable: bool,
    /// The queue's handle.
    pub handle: u32,
    /// The schedule of its bytes, if it is paced.
    pub pace: Pace,
    /// Its extents; none for a stream.
    pub extents: Vec<Extent>,
}

/// One operator of a chain. The parameter block may hold a key: it is wiped when dropped and not printed.
#[derive(Clone)]
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
    /// An operator with its parameter block, as a core that is not [`Engine`](crate::Engine) tells it to its owner.
    pub fn new(operator: Operator, parameter: Box<[u8]>) -> OperatorSpec {
        OperatorSpec { operator, on_gpu: false, kind: operator.kind(), pool: 0, parameter }
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

impl EndpointSpec {
    /// Returns true for a file of unknown length, which is read to its end.
    #[inline]
    pub(crate) fn is_open_ended(&self) -> bool {
        let ends_open = |extent: &Extent| extent.offset.checked_add(extent.length) == Some(OPEN_END);
        self.kind == EndpointKind::File && self.extents.last().is_some_and(ends_open)
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
    /// Returns true if an operator changes the length of the data.
    pub fn resizes(&self) -> bool {
        self.chain.iter().any(|spec| spec.kind == OperatorKind::Resize)
    }

    /// Returns true if the output is the input, and the source still has it then. Without operators the
    /// direct path may have moved some of it, and blocks are no longer counted from the first byte on.
    pub(crate) fn repeats_source(&self) -> bool {
        let passes_on = |spec: &OperatorSpec| matches!(spec.kind, OperatorKind::Digest { .. });
        let digests = !self.chain.is_empty() && self.chain.iter().all(passes_on);
        self.source.immutable && self.source.kind.is_positional() && digests
    }

    /// Returns true if a digest has an expected value.
    pub(crate) fn expects(&self) -> bool {
        self.chain
            .iter()
            .any(|spec| matches!(spec.kind, OperatorKind::Digest { .. }) && !spec.parameter.is_empty())
    }

    /// Returns true if blocks are filled before they go on: the destination has positions, or an operator
    /// needs whole data units (the papers' packet gathering).
    pub(crate) fn gathers(&self) -> bool {
        let whole = |spec: &OperatorSpec| spec.kind == OperatorKind::InPlace { whole_units: true };
        self.destination.kind.is_positional() || self.chain.iter().any(whole)
    }
}
