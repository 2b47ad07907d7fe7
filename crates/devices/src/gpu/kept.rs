//! Blocks whose bytes files were read to: they are on the GPU, and on the host only where it needs them.
//!
//! Such a block is out of the pool, so that nobody takes what the host has for its bytes by mistake. The
//! GPU's operators take it from here; whoever else comes to it has it brought back first.

use super::readers::{Came, Read};
use super::{Fetched, Gpu, GpuError, Job, Readers};
use crate::buffer::{BlockPool, Buffer};
use dcs_abi::status::Status;
use dcs_engine::{BlockId, Failure, OperationId};

/// A block whose mirror has its bytes.
#[derive(Debug)]
pub(super) struct Kept {
    pub buffer: Buffer,
    /// This many, from its first on.
    pub length: usize,
    /// The host has them too.
    pub here: bool,
}

impl Kept {
    /// Bytes in the mirror, and whether the host has them too; none unless the GPU finds the job's bytes
    /// where it looks: at the beginning.
    pub fn serves(&self, job: &Job) -> Option<(usize, bool)> {
        let piece = &job.piece;
        let first = piece.start == 0 && job.work.lead(piece.len()) == 0;
        // What changes is all of it, or the rest would be left on the GPU.
        let enough = piece.end == self.length || job.work.kind().answers() && piece.end < self.length;
        (first && enough).then_some((self.length, self.here))
    }
}

impl Gpu {
    /// True if it reads files directly.
    pub fn reads_files(&self) -> bool {
        self.readers.is_some() && self.losing.is_none()
    }

    /// Has a file read to a block's mirror; the answer comes as [`Fetched`].
    pub fn read(&mut self, read: Read) {
        if let Some(readers) = &self.readers {
            readers.read(read);
        }
    }

    /// Takes out a read that was not begun; false where there is none such.
    pub fn abort_read(&mut self, operation: OperationId, pool: &mut BlockPool) -> bool {
        let Some(readers) = &self.readers else { return false };
        let read = readers.take_back(|read| read.operation.id == operation).pop();
        read.map(|read| pool.put(read.block, read.buffer)).is_some()
    }

    /// A block that is kept here, as the host has it: its bytes may be on the GPU alone (false).
    pub fn kept(&self, block: BlockId) -> Option<(&Buffer, bool)> {
        self.kept.get(&block).map(|kept| (&kept.buffer, kept.here))
    }

    /// Puts a block that is kept here back into the pool, for whoever is not the GPU. `fresh`: what is in it
    /// matters to nobody.
    ///
    /// # Errors
    ///
    /// Where its bytes are on the GPU alone: those who asked for that have no use of them on the host.
    pub fn bring_back(&mut self, block: BlockId, fresh: bool, pool: &mut BlockPool) -> Result<(), Failure> {
        let Some(kept) = self.kept.remove(&block) else { return Ok(()) };
        pool.put(block, kept.buffer);
        let failure = self.losing.unwrap_or(Failure::new(Status::InternalError));
        if kept.here || fresh { Ok(()) } else { Err(failure) }
    }

    /// Takes in what was read.
    pub(super) fn hear_readers(&mut self, pool: &mut BlockPool, fetched: &mut Vec<Fetched>) {
        for (read, came) in self.readers.as_ref().map(Readers::done).unwrap_or_default() {
            match came {
                Came::There => {
                    fetched.push(Fetched { operation: read.operation, bytes: Some(read.length) });
                    let kept = Kept { buffer: read.buffer, length: read.length, here: read.copies_back };
                    self.kept.insert(read.block, kept);
                }
                Came::Not(error) => {
                    if self.losing.is_none() {
                        self.trouble = Some(GpuError::Storage(error));
                    }
                    super::give_back(read, pool, fetched);
                }
                Came::Lost(error) => {
                    self.stuck.push(read);
                    self.lose(error);
                }
            }
        }
    }
}
