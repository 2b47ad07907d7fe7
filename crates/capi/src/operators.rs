//! Chains of operators, and the table of all operators.

use crate::slice;
use crate::status::{Failure, text};
use dcs::op::Op;
use dcs_abi::CHAIN_MAX;
use dcs_abi::operator::{ON_GPU, OPERATORS, Operator, OperatorKind};
use dcs_abi::status::{Stage, Status};
use std::ffi::{CStr, c_char, c_void};
use std::sync::LazyLock;

/// Data pass unchanged, and a value comes out.
pub const DCS_KIND_DIGEST: u8 = 1;
/// Data change; their length does not.
pub const DCS_KIND_IN_PLACE: u8 = 2;
/// Data change, and so does their length.
pub const DCS_KIND_RESIZE: u8 = 3;

/// Bytes of the longest parameters of any operator; copying more is not needed to refuse them.
const PARAMETERS_MAX: usize = {
    let (mut most, mut row) = (0, 0);
    while row < OPERATORS.len() {
        let (_, bytes) = OPERATORS[row].parameter;
        most = if bytes > most { bytes } else { most };
        row += 1;
    }
    most
};

/// One operator of a chain. Data pass the chain in order: a digest before a cipher covers the plain data, one
/// behind it the encrypted data. Parameters are copied when the transfer is submitted.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct dcs_op {
    /// Which operator: DCS_OP_*; plus DCS_OP_ON_GPU where the engine's GPU is to do it.
    pub op: u8,
    /// Its parameters (key, level; see DCS_OP_*), or NULL where it takes none.
    pub parameter: *const c_void,
    /// Bytes of its parameters.
    pub parameter_length: usize,
}

/// The properties of an operator.
#[repr(C)]
pub struct dcs_operator_info {
    /// Its number in a chain: DCS_OP_*.
    pub op: u8,
    /// DCS_KIND_*.
    pub kind: u8,
    /// Bytes of its digest; 0 where it is none.
    pub digest_size: u8,
    /// Fewest bytes of its parameters.
    pub parameter_min: u16,
    /// Most bytes of its parameters.
    pub parameter_max: u16,
    /// The name that people type: `aes256-ctr`.
    pub name: *const c_char,
    /// A description in one line, with its source.
    pub summary: *const c_char,
    /// The contents of its parameters.
    pub parameter: *const c_char,
}

/// Table of operators, made once and never changed.
struct Table(Vec<dcs_operator_info>);

// SAFETY: its pointers are to static texts.
unsafe impl Send for Table {}
// SAFETY: as above; nothing writes to it.
unsafe impl Sync for Table {}

static TABLE: LazyLock<Table> = LazyLock::new(|| {
    let row = |info: &dcs_abi::operator::OperatorInfo| dcs_operator_info {
        op: info.operator as u8,
        kind: match info.kind {
            OperatorKind::Digest { .. } => DCS_KIND_DIGEST,
            OperatorKind::InPlace { .. } => DCS_KIND_IN_PLACE,
            OperatorKind::Resize => DCS_KIND_RESIZE,
        },
        digest_size: info.operator.digest_size() as u8,
        parameter_min: info.parameter.0 as u16,
        parameter_max: info.parameter.1 as u16,
        name: text(info.name),
        summary: text(info.doc),
        parameter: text(info.parameter_doc),
    };
    Table(OPERATORS.iter().map(row).collect())
});

/// Copies the chain.
///
/// # Safety
///
/// `chain` is NULL, or points to `operators` operators whose parameters are valid for reads.
pub(crate) unsafe fn copy_chain(chain: *const dcs_op, operators: usize) -> Result<Vec<Op>, Failure> {
    if operators > CHAIN_MAX {
        return Err(Failure::invalid(libc::EINVAL));
    }
    // SAFETY: the caller's promise.
    let chain = unsafe { slice(chain, operators) }.map_err(Failure::invalid)?;
    let copy = |(at, op): (usize, &dcs_op)| {
        let failure = |status| Failure { at: at as u8, ..Failure::new(status, Stage::Operator) };
        // A 0 ends a chain in the descriptor: this operator, a digest or a cipher perhaps, would be left out silently.
        if op.op == 0 {
            return Err(failure(Status::UnknownOperator));
        }
        if op.parameter_length > PARAMETERS_MAX {
            return Err(failure(Status::BadParameter));
        }
        // SAFETY: the caller's promise.
        let parameter = unsafe { slice(op.parameter.cast::<u8>(), op.parameter_length) };
        let parameter =
            parameter.map_err(|errno| Failure { errno, ..failure(Status::BadParameter) })?.to_vec();
        Ok(Op::Raw { number: op.op, parameter })
    };
    chain.iter().enumerate().map(copy).collect()
}

/// Returns the chain's numbers, to describe a transfer that was refused. Of a chain that is too long, the first ones.
///
/// # Safety
///
/// As for `copy_chain`.
pub(crate) unsafe fn numbers(chain: *const dcs_op, operators: usize) -> [u8; CHAIN_MAX] {
    let mut numbers = [0; CHAIN_MAX];
    // SAFETY: the caller's promise.
    if let Ok(chain) = unsafe { slice(chain, operators.min(CHAIN_MAX)) } {
        numbers.iter_mut().zip(chain).for_each(|(number, op)| *number = op.op);
    }
    numbers
}

/// Returns true if as many bytes come out of the chain as go in.
pub(crate) fn keeps_length(chain: &[Op]) -> bool {
    let resizes = |op: &Op| {
        Operator::from_number(op.number()).is_some_and(|operator| operator.kind() == OperatorKind::Resize)
    };
    !chain.iter().any(resizes)
}

/// The number of the operator of that name (`md5`, `aes256-ctr`, `gpu:md5`); 0 where there is none.
///
/// # Safety
///
/// `name` is NULL or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dcs_op_from_name(name: *const c_char) -> u8 {
    if name.is_null() {
        return 0;
    }
    // SAFETY: a string, by the caller's promise.
    let name = unsafe { CStr::from_ptr(name) };
    let found = name.to_str().ok().and_then(Operator::from_chain_name);
    found.map_or(0, |(operator, on_gpu)| operator as u8 | if on_gpu { ON_GPU } else { 0 })
}

/// Every operator that there is: points `table` at them, and returns how many there are. The table is static.
///
/// # Safety
///
/// `table` is NULL or points to a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dcs_operators(table: *mut *const dcs_operator_info) -> usize {
    if !table.is_null() {
        // SAFETY: valid for a write, by the caller's promise.
        unsafe { table.write(TABLE.0.as_ptr()) };
    }
    TABLE.0.len()
}
