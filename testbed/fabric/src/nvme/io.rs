//! Commands of I/O queues [NVMe 1.4, 6].

use super::Nvme;
use super::namespace::Namespace;
use super::spec::{Command, Status, io};
use super::task::{Direction, Outcome, Task};

impl Nvme {
    fn namespace(&self, nsid: u32) -> Option<&Namespace> {
        let index = usize::try_from(nsid).ok()?.checked_sub(1)?;
        self.config.namespaces.get(index)
    }

    /// The first look at a command: whether it can be done, and what has to move.
    pub(super) fn io(&mut self, command: &Command) -> Outcome {
        let everywhere = command.opcode == io::FLUSH && command.nsid == u32::MAX;
        let namespace = self.namespace(command.nsid);
        match command.opcode {
            io::FLUSH if everywhere || namespace.is_some() => Outcome::Media(self.config.media.flush),
            io::FLUSH | io::READ | io::WRITE | io::WRITE_ZEROES => match namespace {
                None => Status::INVALID_NAMESPACE.into(),
                Some(namespace) => self.blocks(command, namespace),
            },
            _ => Status::INVALID_OPCODE.into(),
        }
    }

    fn blocks(&self, command: &Command, namespace: &Namespace) -> Outcome {
        let length = command.blocks() << namespace.shift();
        let moves = command.opcode != io::WRITE_ZEROES;
        if moves && self.config.mdts > 0 && length > 4096 << self.config.mdts {
            return Status::INVALID_FIELD.into();
        }
        let end = command.lba().checked_add(command.blocks());
        if end.is_none_or(|end| end > namespace.blocks()) {
            return Status::LBA_OUT_OF_RANGE.into();
        }
        match command.opcode {
            io::READ => Outcome::Transfer(Direction::ToHost, length),
            io::WRITE => Outcome::Transfer(Direction::FromHost, length),
            _ => Outcome::Media(self.config.media.write),
        }
    }

    /// The medium does what the command says.
    pub(super) fn execute(&mut self, task: &mut Task) {
        let command = &task.command;
        let (nsid, blocks) = (command.nsid, command.blocks());
        if command.opcode == io::FLUSH {
            self.counts.flushes += 1;
            return self.flush(nsid);
        }
        // FUA, or no cache.
        let durable = command.dword(12) & 1 << 30 != 0 || !self.caches();
        let namespace = &self.config.namespaces[nsid as usize - 1];
        let offset = command.lba() << namespace.shift();
        match command.opcode {
            io::READ => {
                namespace.load(offset, &mut task.data);
                self.counts.reads += 1;
                self.counts.blocks_read += blocks;
            }
            io::WRITE => {
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

    /// Makes a namespace's content durable, or, with the broadcast identifier, all namespaces'.
    pub(super) fn flush(&self, nsid: u32) {
        for (number, namespace) in (1..).zip(&self.config.namespaces) {
            if nsid == u32::MAX || nsid == number {
                namespace.flush();
            }
        }
    }
}
