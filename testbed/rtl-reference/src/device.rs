//! The devices behind a command: sizes and positions, no bytes.

use crate::Command;
use dcs_abi::result::DigestSlot;
use dcs_abi::status::Status;
use dcs_engine::{EndpointRole, Failure, OperationKind, Outcome, TransferSpec};
use std::collections::BTreeMap;

/// Stages as faults name them.
const SOURCE: u64 = 0;
const DESTINATION: u64 = 9;
const FLUSH: u64 = 10;
const BINDING: u64 = 11;

/// Kinds of operations as the engine in SystemVerilog numbers them: `operation_e` of `rtl/core_pkg.sv`.
const READ: u64 = 0;
const WRITE: u64 = 1;
const PROCESS: u64 = 2;
const SNAPSHOT: u64 = 3;
const DO_FLUSH: u64 = 4;

/// The same number for the same numbers, here and in `rtl/test/scenario.py`.
fn mix(numbers: [u64; 3]) -> u64 {
    let step = |state: u64, number: u64| {
        let product = (state ^ number).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        product ^ product >> 29
    };
    numbers.into_iter().fold(0x9e37_79b9_7f4a_7c15, step) >> 16
}

/// The devices that one command meets.
pub struct World<'a> {
    number: u64,
    command: &'a Command,
    /// Bytes that a stream gave, and took.
    given: u64,
    taken: u64,
    /// Bytes that went through each operator.
    processed: BTreeMap<u8, u64>,
    /// Operations issued.
    pub operations: Vec<Vec<u64>>,
}

impl World<'_> {
    pub fn new(number: u64, command: &Command) -> World<'_> {
        World { number, command, given: 0, taken: 0, processed: BTreeMap::new(), operations: Vec::new() }
    }

    pub fn fails_to_bind(&self) -> bool {
        self.command.fault.is_some_and(|(place, ..)| place == BINDING)
    }

    /// The part of so many bytes that moves at once.
    fn piece(&self, place: u64, position: u64, length: u64) -> u64 {
        let chance = mix([self.number, place, position]);
        if chance % 8 < 2 { 1 + chance / 8 % length } else { length }
    }

    /// The failure that strikes an operation of that stage which ends there.
    fn fault(&self, stage: u64, end: u64) -> Option<Outcome> {
        let (place, at, status) = self.command.fault?;
        let strikes = place == stage && (end > at || stage == FLUSH);
        strikes.then(|| Outcome::Failed(Failure::new(Status::from_code(status))))
    }

    pub fn carry_out(&mut self, spec: &TransferSpec, kind: &OperationKind) -> Outcome {
        match *kind {
            OperationKind::Read { role, offset, start, length, .. } => {
                let is_prefix = role == EndpointRole::Prefix;
                self.operations.push(vec![READ, is_prefix.into(), offset, start.into(), length.into()]);
                self.read(spec, is_prefix, offset, u64::from(length))
            }
            OperationKind::Write { offset, start, length, more, .. } => {
                let (from, count) = (u64::from(start), u64::from(length));
                self.operations.push(vec![WRITE, 0, offset, from, count, more.into()]);
                self.write(spec, offset, count)
            }
            OperationKind::Process { operator, length, last, .. } => {
                self.operations.push(vec![PROCESS, operator.into(), 0, length.into(), last.into()]);
                self.process(spec, operator, length, last)
            }
            OperationKind::Snapshot { operator } => {
                self.operations.push(vec![SNAPSHOT, operator.into()]);
                digest(spec, operator)
            }
            OperationKind::Flush => {
                self.operations.push(vec![DO_FLUSH, 0]);
                self.fault(FLUSH, 0).unwrap_or(Outcome::Flushed)
            }
            OperationKind::Direct { .. } | OperationKind::Resize { .. } => {
                Outcome::Failed(Failure::new(Status::InternalError))
            }
        }
    }

    fn read(&mut self, spec: &TransferSpec, is_prefix: bool, offset: u64, length: u64) -> Outcome {
        let positional = is_prefix || spec.source.kind.is_positional();
        let position = if positional { offset } else { self.given };
        if !is_prefix && let Some(failed) = self.fault(SOURCE, position.saturating_add(length)) {
            return failed;
        }
        let size = if is_prefix { u64::MAX } else { self.command.source_size };
        let place = u64::from(!is_prefix);
        let bytes = self.piece(place, position, length).min(size.saturating_sub(position));
        self.given += if positional { 0 } else { bytes };
        Outcome::Moved { bytes, path: 0, held: false }
    }

    fn write(&mut self, spec: &TransferSpec, offset: u64, length: u64) -> Outcome {
        let position = if spec.destination.kind.is_positional() { offset } else { self.taken };
        let end = position.saturating_add(length);
        if let Some(failed) = self.fault(DESTINATION, end) {
            return failed;
        }
        if end > self.command.capacity {
            return Outcome::Failed(Failure::new(Status::CapacityExceeded));
        }
        let bytes = self.piece(DESTINATION, position, length);
        self.taken += bytes;
        Outcome::Moved { bytes, path: 0, held: false }
    }

    fn process(&mut self, spec: &TransferSpec, operator: u8, length: u32, last: bool) -> Outcome {
        let before = *self.processed.entry(operator).or_default();
        let after = before + u64::from(length);
        if let Some(failed) = self.fault(u64::from(operator) + 1, after) {
            return failed;
        }
        self.processed.insert(operator, after);
        match spec.chain.get(operator as usize) {
            Some(known) if last && known.operator.digest_size() > 0 => digest(spec, operator),
            _ => Outcome::Processed { consumed: length, produced: 0, finished: false },
        }
    }
}

/// A digest's value; which one does not matter here.
fn digest(spec: &TransferSpec, operator: u8) -> Outcome {
    match spec.chain.get(operator as usize) {
        Some(known) => {
            let size = known.operator.digest_size() as u8;
            Outcome::Digest(DigestSlot { operator: known.operator as u8, size, ..Default::default() })
        }
        None => Outcome::Failed(Failure::new(Status::InternalError)),
    }
}
