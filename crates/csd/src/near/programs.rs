//! Computational programs: the operators as the controller's own programs, which work on ranges of device
//! memory.
//!
//! The index of a program is the number of its operator; [`CHAIN`] is a chain of several. The first memory
//! range is the source. The output is at the beginning of the second: the data, or the value of a digest. A
//! third range, if there is one, gets the result page. The data after the ranges' descriptors are the
//! operator's parameter block, or for a chain parameters as in the vendor's commands. CPARAM1 is the number
//! of bytes of the source that are taken, 0 for all; the returned value is the length of the output.

use std::sync::Arc;

use dcs_abi::operator::{Operator, OperatorKind};
use dcs_nvme::Status;
use dcs_nvme::command::{self, Command, admin};
use dcs_nvme::programs::{
    Descriptor, EXECUTE, Execute, LIST_HEADER, LoadProgram, MemoryRange, MemoryRangeSets, ProgramActivation,
};

use super::NearStorage;
use super::entry::RESULT_SIZE;
use super::flow::{Flow, Near, Origin, Source, Target};
use super::installed::{CHAIN, Execution, GRANULARITY, RANGES, exists};
use super::program::{PARAMETERS_MAX, Program};
use crate::controller::Controller;
use crate::host::HostPort;

/// The program is one of the controller's own.
const OWN: u8 = 2;

impl NearStorage {
    /// Returns the program log: a descriptor for each index.
    pub(crate) fn program_list(&self, page: &mut Vec<u8>) {
        let last = self.loads.last();
        let count = u32::from(last) + 1;
        page.extend_from_slice(&count.to_le_bytes());
        page.resize(LIST_HEADER, 0);
        for program in 0..=last {
            let activated = self.standard.activated.contains_key(&program);
            let descriptor = match exists(&self.loads, program) {
                _ if program > CHAIN => self.loads.descriptor(program, activated),
                Err(_) => Descriptor::default(),
                Ok(()) => Descriptor { occupied: OWN, activated, kind: 0, identifier: Some(program.into()) },
            };
            page.extend_from_slice(&descriptor.bytes());
        }
    }

    fn put(&mut self, at: u64, bytes: &[u8]) {
        let range = self.range(at, bytes.len() as u64);
        if let Some(place) = range.and_then(|range| self.memory.get_mut(range)) {
            place.copy_from_slice(bytes);
        }
    }

    /// Stores a digest's value and the result page where the execution wants them; returns the value's
    /// length.
    pub(super) fn end_execution(
        &mut self,
        execution: &Execution,
        flow: &Flow,
        status: Status,
    ) -> Option<u64> {
        if let Some(at) = execution.page {
            self.put(at, &flow.page(0, status)[..]);
        }
        let at = execution.digest.filter(|_| status.is_success())?;
        let value = flow.digest();
        self.put(at, &value);
        Some(value.len() as u64)
    }
}

impl Controller {
    /// Carries out an admin command of programs: returns its result; `None` if it ends later.
    pub(crate) fn manage_programs(
        &mut self,
        port: &mut dyn HostPort,
        command: &Command,
    ) -> Result<Option<u32>, Status> {
        if !self.has_sets() {
            return Err(Status::INVALID_OPCODE);
        }
        if command.namespace != self.config.programs_namespace() {
            return Err(Status::INVALID_NAMESPACE);
        }
        match command.opcode {
            admin::LOAD_PROGRAM => self.load_program(port, command, &LoadProgram::from_words(&command.words)),
            admin::PROGRAM_ACTIVATION => {
                let wanted = ProgramActivation::from_words(&command.words);
                self.near.standard.activate(&self.near.loads, wanted).map(|()| Some(0))
            }
            _ => {
                let wanted = MemoryRangeSets::from_words(&command.words);
                match wanted.select {
                    0 => {
                        let count = usize::from(wanted.ranges);
                        let ranges = self.ranges(port, command, count)?;
                        self.near.standard.create(ranges).map(|set| Some(set.into()))
                    }
                    1 => self.near.standard.delete(wanted.set).map(|()| Some(0)),
                    _ => Err(Status::INVALID_FIELD),
                }
            }
        }
    }

    /// Returns the number of bytes that an admin command copies from the guest: those of Load Program.
    pub(crate) fn piece_of_program(&self, command: &Command) -> u64 {
        let loads = command.opcode == admin::LOAD_PROGRAM && self.has_sets();
        let bytes = u64::from(LoadProgram::from_words(&command.words).bytes);
        if loads { bytes.min(1 << self.config.transfer_shift) } else { 0 }
    }

    /// Takes a piece of a program, of which an operator is made after the last piece; or unloads a program.
    fn load_program(
        &mut self,
        port: &mut dyn HostPort,
        command: &Command,
        wanted: &LoadProgram,
    ) -> Result<Option<u32>, Status> {
        let index = wanted.program;
        if index > self.near.loads.last() {
            return Err(Status::INVALID_PROGRAM_INDEX);
        }
        if index <= CHAIN {
            // One of the controller's own.
            return Err(Status::PROGRAM_INDEX_NOT_DOWNLOADABLE);
        }
        if wanted.unload {
            return match self.near.standard.activated.contains_key(&index) {
                true => Err(Status::PROGRAM_IN_USE),
                false => self.near.loads.unload(index).map(|()| Some(0)),
            };
        }
        if wanted.bytes == 0 || wanted.bytes > 1 << self.config.transfer_shift {
            return Err(Status::INVALID_FIELD);
        }
        if !self.slots.has_free() {
            // The last piece needs a slot.
            return Err(Status::INTERRUPTED);
        }
        self.near.loads.expect(wanted)?;
        let mut piece = vec![0; wanted.bytes as usize];
        match self.copy_in(port, &command.data, &mut piece) {
            Status::SUCCESS => {}
            status => return Err(status),
        }
        let Some(install) = self.near.loads.arrived(index, &piece) else { return Ok(Some(0)) };
        match self.start(port, (0, command.cid), None, |_| Ok(Near::install(install))) {
            Ok(_) => Ok(None),
            // It needs more memory than the operators can ever have.
            Err(_) => Err(Status::INSUFFICIENT_PROGRAM_RESOURCES),
        }
    }

    /// Returns the memory ranges of a set that is to be made.
    fn ranges(
        &self,
        port: &mut dyn HostPort,
        command: &Command,
        count: usize,
    ) -> Result<Vec<MemoryRange>, Status> {
        if count == 0 {
            return Err(Status::INVALID_FIELD);
        }
        if count > RANGES {
            return Err(Status::TOO_MANY_MEMORY_RANGES);
        }
        let mut bytes = [0; RANGES * MemoryRange::SIZE];
        let bytes = &mut bytes[..count * MemoryRange::SIZE];
        match self.copy_in(port, &command.data, bytes) {
            Status::SUCCESS => self.read_ranges(bytes),
            status => Err(status),
        }
    }

    fn read_ranges(&self, bytes: &[u8]) -> Result<Vec<MemoryRange>, Status> {
        let ranges: Vec<_> = bytes.chunks_exact(MemoryRange::SIZE).map(MemoryRange::from_bytes).collect();
        for (place, range) in ranges.iter().enumerate() {
            let (first, length) = (range.first, u64::from(range.length));
            if range.namespace != self.config.local_memory_namespace() {
                return Err(Status::INVALID_MEMORY_NAMESPACE);
            }
            let whole = first.is_multiple_of(GRANULARITY) && length.is_multiple_of(GRANULARITY);
            if length == 0 || !whole || self.near.range(first, length).is_none() {
                return Err(Status::INVALID_MEMORY_RANGE_SET);
            }
            let meets = |other: &MemoryRange| {
                first < other.first + u64::from(other.length) && other.first < first + length
            };
            if ranges[..place].iter().any(meets) {
                return Err(Status::OVERLAPPING_MEMORY_RANGES);
            }
        }
        Ok(ranges)
    }

    /// Begins to execute a program; returns its cost.
    pub(crate) fn execute(
        &mut self,
        port: &mut dyn HostPort,
        queue: u16,
        command: &Command,
        entry: &[u8; command::SIZE],
    ) -> Result<u64, Status> {
        if command.opcode != EXECUTE {
            return Err(Status::INVALID_OPCODE.with_do_not_retry());
        }
        if command.fused != 0 {
            return Err(Status::INVALID_FIELD.with_do_not_retry());
        }
        let near = self.execution(port, command, &Execute::from_entry(entry));
        self.start(port, (queue, command.cid), None, |_| near)
    }

    fn execution(
        &mut self,
        port: &mut dyn HostPort,
        command: &Command,
        wanted: &Execute,
    ) -> Result<Near, Status> {
        exists(&self.near.loads, wanted.program)?;
        let activated = self.near.standard.activated.get(&wanted.program);
        let running = activated.ok_or(Status::PROGRAM_NOT_ACTIVATED)?.clone();
        if wanted.ranges as usize > RANGES {
            return Err(Status::TOO_MANY_MEMORY_RANGES);
        }
        let (head, length) = (wanted.ranges as usize * MemoryRange::SIZE, wanted.length as usize);
        if length < head || length > head + PARAMETERS_MAX || (wanted.set != 0 && wanted.ranges != 0) {
            return Err(Status::INVALID_FIELD);
        }
        // While the command waits for the rest of its memory, no other can wait for this part.
        let taken = self.near.budget.take(length as u64, true).ok_or(Status::INTERRUPTED)?;
        let mut bytes = vec![0; length];
        let near = match self.copy_in(port, &command.data, &mut bytes) {
            Status::SUCCESS => {
                let (ranges, parameter) = bytes.split_at(head);
                self.set(wanted.set, ranges).and_then(|set| self.program(wanted, running, set, parameter))
            }
            status => Err(status),
        };
        // They may hold keys.
        bytes.fill(0);
        std::hint::black_box(&bytes);
        near.map(|near| Near { parameters: Some(taken), ..near })
    }

    /// Returns the memory ranges of an execution: those of a set, or those in its data.
    fn set(&self, set: u16, ranges: &[u8]) -> Result<Arc<Vec<MemoryRange>>, Status> {
        match set {
            0 => self.read_ranges(ranges).map(Arc::new),
            set => {
                let there = self.near.standard.sets.get(&set);
                there.cloned().ok_or(Status::INVALID_MEMORY_RANGE_SET_ID)
            }
        }
    }

    fn program(
        &self,
        wanted: &Execute,
        running: Arc<()>,
        set: Arc<Vec<MemoryRange>>,
        parameter: &[u8],
    ) -> Result<Near, Status> {
        let [source, target, rest @ ..] = &set[..] else { return Err(Status::INVALID_FIELD) };
        let left = match wanted.parameters[0] {
            0 => source.length.into(),
            length => length,
        };
        let page = match rest {
            [] => None,
            [page, ..] if page.length as usize >= RESULT_SIZE => Some(page.first),
            _ => return Err(Status::INVALID_FIELD),
        };
        if left > source.length.into() || wanted.parameters[1] != 0 {
            return Err(Status::INVALID_FIELD);
        }
        let operator = u8::try_from(wanted.program).ok().and_then(Operator::from_number);
        let program = match (operator, self.near.loads.get(wanted.program)) {
            (Some(operator), _) => Program::of(operator, parameter),
            (None, Some(loaded)) => Program::of_loaded(loaded.clone(), parameter),
            (None, None) => Program::read(parameter, &self.near.loads)?,
        };
        let room = u64::from(target.length);
        let (next, at) = (source.first, target.first);
        let (target, digest) = match operator.map(Operator::kind) {
            Some(OperatorKind::Digest { size }) if size as u64 > room => {
                return Err(Status::CAPACITY_EXCEEDED);
            }
            Some(OperatorKind::Digest { .. }) => (Target::Nowhere, Some(at)),
            _ => (Target::Memory { next: at, room }, None),
        };
        let source = Source::Memory { next, left };
        let origin = Origin::Program(Execution { _running: running, _set: set.clone(), digest, page });
        Ok(Near::new(origin, Arc::new(program), source, target))
    }
}
