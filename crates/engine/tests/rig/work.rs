//! Performs operations: bytes move, operators run.

use super::device::Device;
use super::fault::Kind;
use super::serve::Flight;
use super::short::Core;
use super::{Due, Rig};
use dcs_abi::result::{DigestSlot, PATH_KERNEL_COPY};
use dcs_abi::status::Status;
use dcs_engine::{BlockId, CommandId, EndpointRole, EndpointSpec, Failure, OperationKind, Outcome};
use dcs_ndp::{DigestValue, OperatorError};
use std::sync::Arc;

impl<E: Core> Rig<E> {
    /// Does what an operation asks for.
    pub(super) fn carry_out(&mut self, flight: &Flight) -> Outcome {
        let command = flight.operation.command;
        let Some(bound) = self.bound.get(&command) else {
            return Outcome::Failed(Failure::new(Status::DeviceReset));
        };
        let spec = Arc::clone(&bound.spec);
        match flight.operation.kind {
            OperationKind::Read { role, offset, block, start, length } => {
                let end =
                    if role == EndpointRole::Prefix { spec.prefix.as_ref() } else { Some(&spec.source) };
                let end = end.expect("there is a prefix");
                let length = self.piece(end, length as usize, flight.kind);
                let to = &mut self.blocks[block.index()].bytes[start as usize..start as usize + length];
                moved(self.devices[end.handle as usize].read(offset, to, usize::MAX), 0, false)
            }
            OperationKind::Write { offset, block, start, length, origin, more } => {
                if let Some(origin) = origin {
                    self.repeated += 1;
                    let mut there = vec![0; length as usize];
                    let source = &mut self.devices[spec.source.handle as usize];
                    assert_eq!(source.read(origin, &mut there, usize::MAX), Ok(there.len()));
                    let range = start as usize..(start + length) as usize;
                    assert!(
                        there == self.blocks[block.index()].bytes[range],
                        "the origin of a block is another"
                    );
                }
                let length = self.piece(&spec.destination, length as usize, flight.kind);
                let device = &mut self.devices[spec.destination.handle as usize];
                let from = &self.blocks[block.index()].bytes[start as usize..start as usize + length];
                let answer = device.write(offset, from, usize::MAX, more);
                let held = matches!(device, Device::Sink { holds: true, .. }) && self.random.one_in(2);
                if held {
                    self.hold(block);
                }
                moved(answer, 0, held)
            }
            OperationKind::Direct { source, destination, length, more } => {
                self.directs += 1;
                if self.directs > self.options.direct_lasts {
                    return Outcome::Failed(Failure::new(Status::PathUnavailable));
                }
                let length = length.min(1 << 20) as usize;
                let length = self.piece(&spec.source, length, flight.kind);
                let length = self.piece(&spec.destination, length, flight.kind);
                let mut buffer = vec![0; length];
                let read = self.devices[spec.source.handle as usize].read(source, &mut buffer, usize::MAX);
                let Ok(count @ 1..) = read else { return moved(read, PATH_KERNEL_COPY, false) };
                let sink = &mut self.devices[spec.destination.handle as usize];
                let written = sink.write(destination, &buffer[..count], usize::MAX, more);
                moved(written, PATH_KERNEL_COPY, false)
            }
            OperationKind::Process { operator, block, length, last, .. } => {
                self.process(command, operator, block, length, last)
            }
            OperationKind::Resize { .. } => self.resize(command, flight.operation.kind),
            OperationKind::Snapshot { operator } => self.digest(command, operator),
            OperationKind::Flush => {
                if let Device::File { flushes, .. } = &mut self.devices[spec.destination.handle as usize] {
                    *flushes += 1;
                }
                Outcome::Flushed
            }
        }
    }

    /// The part of `length` that moves at once.
    fn piece(&mut self, end: &EndpointSpec, length: usize, kind: Option<Kind>) -> usize {
        let most = length.min(self.devices[end.handle as usize].piece());
        if kind == Some(Kind::Short) {
            return most.div_ceil(3);
        }
        let fragile = !end.kind.is_positional() || (self.options.pieces && self.random.one_in(3));
        if fragile { self.random.range(1, most as u64) as usize } else { most }
    }

    pub(super) fn hold(&mut self, block: BlockId) {
        let state = &mut self.blocks[block.index()];
        state.holds += 1;
        let content = state.bytes.clone();
        let delay = self.random.range(1, 5 * self.options.latency);
        self.later(delay, Due::Release { block, content });
    }

    fn process(
        &mut self,
        command: CommandId,
        operator: u8,
        block: BlockId,
        length: u32,
        last: bool,
    ) -> Outcome {
        let bound = self.bound.get_mut(&command).expect("carry_out looked");
        let at = operator as usize;
        let bytes = &mut self.blocks[block.index()].bytes[..length as usize];
        bound.covered[at] += u64::from(length);
        if bound.spec.chain[at].operator.digest_size() > 0 {
            bound.contexts[at].absorb(bytes);
            if last {
                if let Err(error) = bound.contexts[at].check() {
                    return failed(error);
                }
                return self.digest(command, operator);
            }
        } else if let Err(error) = bound.contexts[at].in_place(bytes, last) {
            return failed(error);
        }
        Outcome::Processed { consumed: length, produced: 0, finished: false }
    }

    fn resize(&mut self, command: CommandId, kind: OperationKind) -> Outcome {
        let OperationKind::Resize {
            operator,
            block,
            start,
            length,
            output,
            output_start,
            output_length,
            last,
            ..
        } = kind
        else {
            unreachable!("only resizing operations come here")
        };
        let bound = self.bound.get_mut(&command).expect("carry_out looked");
        let input = self.blocks[block.index()].bytes[start as usize..][..length as usize].to_vec();
        let room = &mut self.blocks[output.index()].bytes[output_start as usize..][..output_length as usize];
        match bound.contexts[operator as usize].resize(&input, room, last) {
            Ok(progress) => {
                bound.covered[operator as usize] += progress.produced as u64;
                let (consumed, produced) = (progress.consumed as u32, progress.produced as u32);
                match self.digest(command, operator) {
                    Outcome::Digest(value) => Outcome::Concluded { produced, value },
                    _ => Outcome::Processed { consumed, produced, finished: progress.finished },
                }
            }
            Err(error) => failed(error),
        }
    }

    fn digest(&self, command: CommandId, operator: u8) -> Outcome {
        let bound = &self.bound[&command];
        let at = operator as usize;
        match bound.contexts[at].value() {
            Some(value) => {
                Outcome::Digest(slot(bound.spec.chain[at].operator as u8, &value, bound.covered[at]))
            }
            None => Outcome::Failed(Failure::new(Status::InternalError)),
        }
    }
}

/// A digest as results carry it.
pub fn slot(operator: u8, value: &DigestValue, covered: u64) -> DigestSlot {
    let bytes = value.as_bytes();
    let mut slot = DigestSlot { operator, size: bytes.len() as u8, covered, ..Default::default() };
    slot.value[..bytes.len()].copy_from_slice(bytes);
    slot
}

fn failed(error: OperatorError) -> Outcome {
    Outcome::Failed(Failure::new(error.status()))
}

fn moved(answer: Result<usize, Failure>, path: u32, held: bool) -> Outcome {
    match answer {
        Ok(bytes) => Outcome::Moved { bytes: bytes as u64, path, held },
        Err(failure) => Outcome::Failed(failure),
    }
}
