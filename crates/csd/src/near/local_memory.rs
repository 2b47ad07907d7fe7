//! Commands of subsystem local memory: device memory as bytes.

use std::collections::VecDeque;
use std::sync::Arc;

use dcs_nvme::command::{self, Command, nvm};
use dcs_nvme::local_memory::{self, Blocks, Bytes, Range};
use dcs_nvme::{Status, local_memory::Copy};

use super::flow::{Near, Origin, Source, Target};
use super::installed::GRANULARITY;
use crate::controller::{COMMAND_COST, Controller};
use crate::host::HostPort;

pub(super) fn is_whole(numbers: &[u64]) -> bool {
    numbers.iter().all(|number| number.is_multiple_of(GRANULARITY))
}

impl Controller {
    /// Begins a command of local memory; returns its cost.
    pub(crate) fn local_memory(
        &mut self,
        port: &mut dyn HostPort,
        queue: u16,
        command: &Command,
        entry: &[u8; command::SIZE],
    ) -> Result<u64, Status> {
        if command.fused != 0 {
            return Err(Status::INVALID_FIELD.with_do_not_retry());
        }
        match command.opcode {
            // Local memory is volatile: there is nothing to flush.
            nvm::FLUSH => {
                self.end(port, queue, command.cid, Status::SUCCESS, 0);
                Ok(COMMAND_COST)
            }
            local_memory::READ | local_memory::WRITE | local_memory::FILL => {
                let (near, length) = self.memory_range(command).map_err(Status::with_do_not_retry)?;
                let has_data = command.opcode != local_memory::FILL && length > 0;
                let buffer = has_data.then_some((&command.data, length));
                self.start(port, (queue, command.cid), buffer, |_| Ok(near))
            }
            local_memory::COPY => {
                let near = self.memory_copy(port, command, &Copy::from_entry(entry));
                self.start(port, (queue, command.cid), None, |_| near)
            }
            _ => Err(Status::INVALID_OPCODE.with_do_not_retry()),
        }
    }

    fn memory_range(&self, command: &Command) -> Result<(Near, u64), Status> {
        let Range { first, length } = Range::from_words(&command.words);
        let length = u64::from(length);
        let too_long = command.opcode != local_memory::FILL && length > 1 << self.config.transfer_shift;
        if too_long || !is_whole(&[first, length]) || self.near.range(first, length).is_none() {
            return Err(Status::INVALID_FIELD);
        }
        let (source, target) = match command.opcode {
            local_memory::READ => {
                (Source::Memory { next: first, left: length }, Target::Guest { room: length })
            }
            local_memory::WRITE => {
                (Source::Guest { next: 0, left: length }, Target::Memory { next: first, room: length })
            }
            _ => (Source::Zeros { left: length }, Target::Memory { next: first, room: length }),
        };
        Ok((Near::new(Origin::Memory, Arc::default(), source, target), length))
    }

    fn memory_copy(&self, port: &mut dyn HostPort, command: &Command, copy: &Copy) -> Result<Near, Status> {
        let mut bytes = [0; 256 * local_memory::SOURCE_SIZE];
        let bytes = &mut bytes[..usize::from(copy.sources) * local_memory::SOURCE_SIZE];
        match self.copy_in(port, &command.data, bytes) {
            Status::SUCCESS => {}
            status => return Err(status),
        }
        let target = self.near.range(copy.target, copy.length);
        if !is_whole(&[copy.target, copy.length]) || target.is_none() {
            return Err(Status::INVALID_FIELD);
        }
        let (mut sources, mut total) = (VecDeque::new(), 0u64);
        for descriptor in bytes.chunks_exact(local_memory::SOURCE_SIZE) {
            let (source, length) = match copy.form {
                local_memory::FORM_BLOCKS => self.source_of_blocks(&Blocks::from_bytes(descriptor))?,
                local_memory::FORM_BYTES => {
                    self.source_of_bytes(command.namespace, copy, &Bytes::from_bytes(descriptor))?
                }
                _ => return Err(Status::INVALID_FIELD),
            };
            total = total.saturating_add(length);
            if length > 0 {
                sources.push_back(source);
            }
        }
        if total != copy.length {
            return Err(Status::INVALID_FIELD);
        }
        let target = Target::Memory { next: copy.target, room: copy.length };
        Ok(Near::new(Origin::Memory, Arc::default(), Source::Several(sources), target))
    }

    fn source_of_blocks(&self, blocks: &Blocks) -> Result<(Source, u64), Status> {
        if blocks.fast_only {
            return Err(Status::FAST_COPY_NOT_POSSIBLE);
        }
        if self.set_of(blocks.namespace) != dcs_nvme::identify::set::NVM {
            return Err(Status::INCOMPATIBLE_NAMESPACE);
        }
        let (run, next, left) =
            self.near_blocks(blocks.namespace, blocks.first, blocks.count.into(), false)?;
        Ok((Source::Blocks { run, next, left }, left))
    }

    fn source_of_bytes(&self, namespace: u32, copy: &Copy, part: &Bytes) -> Result<(Source, u64), Status> {
        if part.fast_only {
            return Err(Status::FAST_COPY_NOT_POSSIBLE);
        }
        if part.namespace != namespace {
            return Err(Status::INVALID_NAMESPACE);
        }
        let (first, length) = (part.first, u64::from(part.length));
        if !is_whole(&[first, length]) || self.near.range(first, length).is_none() {
            return Err(Status::INVALID_FIELD);
        }
        let overlaps = first < copy.target + copy.length && copy.target < first + length;
        if overlaps && length > 0 {
            return Err(Status::OVERLAPPING_IO_RANGE);
        }
        Ok((Source::Memory { next: first, left: length }, length))
    }
}
