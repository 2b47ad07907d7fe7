//! Commands of I/O queues [NVMe 1.4, 6].

use dcs_nvme::command::{ALL_NAMESPACES, Blocks, Command, Datasets, Range, nvm};

use super::namespace::Namespace;
use super::task::{Action, Direction, Task};
use super::{Nvme, status};

impl Nvme {
    fn namespace(&self, nsid: u32) -> Option<&Namespace> {
        let index = usize::try_from(nsid).ok()?.checked_sub(1)?;
        self.config.namespaces.get(index)
    }

    /// Checks a command, and decides which data to move.
    pub(super) fn io(&mut self, command: &Command) -> Action {
        let everywhere = command.opcode == nvm::FLUSH && command.namespace == ALL_NAMESPACES;
        let namespace = self.namespace(command.namespace);
        match command.opcode {
            nvm::FLUSH if everywhere || namespace.is_some() => Action::Media(self.config.media.flush),
            nvm::DATASET_MANAGEMENT if namespace.is_some() => {
                let length = usize::from(Datasets::from_words(&command.words).ranges) * Range::SIZE;
                Action::Transfer(Direction::FromHost, length as u64)
            }
            nvm::FLUSH | nvm::READ | nvm::WRITE | nvm::WRITE_ZEROES | nvm::DATASET_MANAGEMENT => {
                match namespace {
                    None => status::INVALID_NAMESPACE.into(),
                    Some(namespace) => self.blocks(command, namespace),
                }
            }
            _ => status::INVALID_OPCODE.into(),
        }
    }

    fn blocks(&self, command: &Command, namespace: &Namespace) -> Action {
        let blocks = Blocks::from_words(&command.words);
        let length = u64::from(blocks.count) << namespace.shift();
        let moves = command.opcode != nvm::WRITE_ZEROES;
        if moves && self.config.mdts > 0 && length > 4096 << self.config.mdts {
            return status::INVALID_FIELD.into();
        }
        let end = blocks.first.checked_add(blocks.count.into());
        if end.is_none_or(|end| end > namespace.blocks()) {
            return status::LBA_OUT_OF_RANGE.into();
        }
        match command.opcode {
            nvm::READ => Action::Transfer(Direction::ToHost, length),
            nvm::WRITE => Action::Transfer(Direction::FromHost, length),
            _ => Action::Media(self.config.media.write),
        }
    }

    /// Carries out a command on the medium.
    pub(super) fn execute(&mut self, task: &mut Task) {
        let command = &task.command;
        let (nsid, blocks) = (command.namespace, Blocks::from_words(&command.words));
        if command.opcode == nvm::FLUSH {
            self.counts.flushes += 1;
            return self.flush(nsid);
        }
        if command.opcode == nvm::DATASET_MANAGEMENT {
            return self.manage_datasets(task);
        }
        // FUA, or no cache.
        let durable = blocks.durable || !self.caches();
        let namespace = &self.config.namespaces[nsid as usize - 1];
        let (offset, blocks) = (blocks.first << namespace.shift(), u64::from(blocks.count));
        match command.opcode {
            nvm::READ => {
                namespace.load(offset, &mut task.data);
                self.counts.reads += 1;
                self.counts.blocks_read += blocks;
            }
            nvm::WRITE => {
                task.corrupt();
                namespace.write(offset, &task.data, durable);
                self.counts.writes += 1;
                self.counts.blocks_written += blocks;
            }
            _ => {
                namespace.clear(offset, blocks << namespace.shift(), durable);
                self.counts.writes += 1;
            }
        }
    }

    /// Deallocates ranges, which read as zeros then. Those that the namespace does not have are left out: it is a hint.
    fn manage_datasets(&mut self, task: &Task) {
        let namespace = &self.config.namespaces[task.command.namespace as usize - 1];
        if !Datasets::from_words(&task.command.words).deallocate {
            return;
        }
        for range in task.data.chunks_exact(Range::SIZE).map(Range::from_bytes) {
            let end = range.first.checked_add(range.count.into());
            if end.is_some_and(|end| end <= namespace.blocks()) {
                let (offset, blocks) = (range.first << namespace.shift(), u64::from(range.count));
                namespace.clear(offset, blocks << namespace.shift(), false);
                self.counts.blocks_deallocated += blocks;
            }
        }
    }

    /// Makes a namespace's contents durable; with the broadcast identifier, those of all namespaces.
    pub(super) fn flush(&self, nsid: u32) {
        for (number, namespace) in (1..).zip(&self.config.namespaces) {
            if nsid == ALL_NAMESPACES || nsid == number {
                namespace.flush();
            }
        }
    }
}
