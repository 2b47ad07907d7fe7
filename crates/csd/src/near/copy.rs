//! Copy of the NVM command set: into logical blocks, from logical blocks or local memory. [NVM 1.1 3.3.2]

use std::collections::VecDeque;
use std::sync::Arc;

use dcs_nvme::command::{BlocksCopy, Command};
use dcs_nvme::identify::set;
use dcs_nvme::local_memory::{self, Blocks, Bytes};
use dcs_nvme::{Status, local_memory::SOURCE_SIZE};

use super::flow::{Near, Origin, Source, Target};
use crate::controller::Controller;
use crate::host::HostPort;

/// Most bytes of a copy.
pub(crate) const COPY_MAX: u64 = 128 << 20;

impl Controller {
    /// Returns the forms of sources that copies may have: bit n, form n.
    pub(crate) fn copy_forms(&self) -> u16 {
        let of_memory = u16::from(self.config.programs) << local_memory::FORM_BYTES;
        1 << local_memory::FORM_OWN_BLOCKS | 1 << local_memory::FORM_BLOCKS | of_memory
    }

    /// Begins a copy into logical blocks; what it cost.
    pub(crate) fn copy_into_blocks(
        &mut self,
        port: &mut dyn HostPort,
        queue: u16,
        command: &Command,
    ) -> Result<u64, Status> {
        let copy = BlocksCopy::from_words(&command.words);
        let near = self.blocks_copy(port, command, &copy);
        self.start(port, (queue, command.cid), None, |_| near)
    }

    fn blocks_copy(
        &mut self,
        port: &mut dyn HostPort,
        command: &Command,
        copy: &BlocksCopy,
    ) -> Result<Near, Status> {
        // Forms that name another namespace have to be enabled.
        let enabled = copy.form == local_memory::FORM_OWN_BLOCKS || self.has_enabled(copy.form);
        if self.copy_forms() >> copy.form & 1 == 0 || !enabled {
            return Err(Status::INVALID_FIELD);
        }
        let shift = self.known(command.namespace)?.ok_or(Status::INVALID_FIELD)?.shift;
        let mut bytes = [0; 256 * SOURCE_SIZE];
        let bytes = &mut bytes[..usize::from(copy.sources) * SOURCE_SIZE];
        match self.copy_in(port, &command.data, bytes) {
            Status::SUCCESS => {}
            status => return Err(status),
        }
        let (mut sources, mut total, mut own) = (VecDeque::new(), 0u64, Vec::new());
        for descriptor in bytes.chunks_exact(SOURCE_SIZE) {
            let source = match copy.form {
                local_memory::FORM_BYTES => self.copied_bytes(&Bytes::from_bytes(descriptor))?,
                form => {
                    let mut blocks = Blocks::from_bytes(descriptor);
                    if form == local_memory::FORM_OWN_BLOCKS {
                        (blocks.namespace, blocks.fast_only) = (command.namespace, false);
                    }
                    if blocks.namespace == command.namespace {
                        own.push((blocks.first, u64::from(blocks.count)));
                    }
                    self.copied_blocks(&blocks, shift)?
                }
            };
            total = total.saturating_add(source.left());
            if source.left() > 0 {
                sources.push_back(source);
            }
        }
        if total > COPY_MAX {
            return Err(Status::SIZE_LIMIT_EXCEEDED);
        }
        if total == 0 || !total.is_multiple_of(1 << shift) {
            return Err(Status::INVALID_FIELD);
        }
        let count = total >> shift;
        let (run, next, room) = self.near_blocks(command.namespace, copy.target, count, true)?;
        let overlaps = |(first, length): &(u64, u64)| {
            *first < copy.target + count && copy.target < first.saturating_add(*length)
        };
        if own.iter().any(overlaps) {
            return Err(Status::OVERLAPPING_IO_RANGE);
        }
        let target = Target::Blocks { run, next, room };
        let near = Near::new(Origin::Memory, Arc::default(), Source::Several(sources), target);
        Ok(Near { durable: copy.durable, ..near })
    }

    /// A source of logical blocks of `1 << shift` bytes.
    fn copied_blocks(&self, blocks: &Blocks, shift: u8) -> Result<Source, Status> {
        if blocks.fast_only {
            return Err(Status::FAST_COPY_NOT_POSSIBLE);
        }
        if blocks.count > u32::from(u16::MAX) {
            return Err(Status::SIZE_LIMIT_EXCEEDED);
        }
        if self.set_of(blocks.namespace) != set::NVM {
            return Err(Status::INVALID_NAMESPACE);
        }
        let (run, next, left) =
            self.near_blocks(blocks.namespace, blocks.first, blocks.count.into(), false)?;
        match run.shift == shift {
            true => Ok(Source::Blocks { run, next, left }),
            false => Err(Status::INCOMPATIBLE_NAMESPACE),
        }
    }

    /// A source of local memory.
    fn copied_bytes(&self, part: &Bytes) -> Result<Source, Status> {
        if part.fast_only {
            return Err(Status::FAST_COPY_NOT_POSSIBLE);
        }
        if self.set_of(part.namespace) != set::LOCAL_MEMORY {
            return Err(Status::INVALID_NAMESPACE);
        }
        let (next, left) = (part.first, u64::from(part.length));
        match super::local_memory::is_whole(&[next, left]) && self.near.range(next, left).is_some() {
            true => Ok(Source::Memory { next, left }),
            false => Err(Status::INVALID_FIELD),
        }
    }
}
