//! Blocks that files were read into on the GPU: their bytes are on the GPU, and on the host only if it needs them.
//!
//! Such a block is out of the pool, so that nothing takes the host's copy for its bytes by mistake. The GPU's operators take it from here;
//! any other user has it brought back first.

use super::readers::{Read, ReadResult};
use super::{Fetched, Gpu, GpuError, Job, Readers};
use crate::buffer::{BlockPool, Buffer};
use dcs_abi::status::Status;
use dcs_engine::{BlockId, Failure, OperationId};

/// A block whose bytes are in its mirror.
#[derive(Debug)]
pub(super) struct Kept {
    pub buffer: Buffer,
    /// Number of bytes, from the first on.
    pub length: usize,
    /// Set if the host has them too.
    pub here: bool,
}

impl Kept {
    /// Returns the number of bytes in the mirror, and whether the host has them too; `None` unless the job's bytes start at the mirror's
    /// beginning.
    pub fn serves(&self, job: &Job) -> Option<(usize, bool)> {
        let piece = &job.piece;
        let first = piece.start == 0 && job.work.lead(piece.len()) == 0;
        // A job that changes bytes must cover all of them, or the rest would be left on the GPU.
        let enough = piece.end == self.length || job.work.kind().answers() && piece.end < self.length;
        (first && enough).then_some((self.length, self.here))
    }
}

impl Gpu {
    /// Returns true if it reads files directly.
    pub fn reads_files(&self) -> bool {
        self.readers.is_some() && self.losing.is_none()
    }

    /// Starts reading a file to a block's mirror; the answer comes as [`Fetched`].
    pub fn read(&mut self, read: Read) {
        if let Some(readers) = &self.readers {
            readers.read(read);
        }
    }

    /// Removes a read that has not begun; returns false if there is none.
    pub fn abort_read(&mut self, operation: OperationId, pool: &mut BlockPool) -> bool {
        let Some(readers) = &self.readers else { return false };
        let read = readers.take_back(|read| read.operation.id == operation).pop();
        read.map(|read| pool.put(read.block, read.buffer)).is_some()
    }

    /// Returns the host's copy of a kept block, and false if the bytes are on the GPU alone.
    pub fn kept(&self, block: BlockId) -> Option<(&Buffer, bool)> {
        self.kept.get(&block).map(|kept| (&kept.buffer, kept.here))
    }

    /// Puts a kept block back into the pool, for users other than the GPU. `fresh`: its content is not needed.
    ///
    /// # Errors
    ///
    /// If its bytes are on the GPU alone: they were requested there only, and are of no use on the host.
    pub fn bring_back(&mut self, block: BlockId, fresh: bool, pool: &mut BlockPool) -> Result<(), Failure> {
        let Some(kept) = self.kept.remove(&block) else { return Ok(()) };
        pool.put(block, kept.buffer);
        let failure = self.losing.unwrap_or(Failure::new(Status::InternalError));
        if kept.here || fresh { Ok(()) } else { Err(failure) }
    }

    /// Processes what was read.
    pub(super) fn reap_readers(&mut self, pool: &mut BlockPool, fetched: &mut Vec<Fetched>) {
        for (read, came) in self.readers.as_ref().map(Readers::done).unwrap_or_default() {
            match came {
                ReadResult::Done => {
                    fetched.push(Fetched { operation: read.operation, bytes: Some(read.length) });
                    let kept = Kept { buffer: read.buffer, length: read.length, here: read.copies_back };
                    self.kept.insert(read.block, kept);
                }
                ReadResult::Unsupported(error) => {
                    if self.losing.is_none() {
                        self.trouble = Some(GpuError::Storage(error));
                    }
                    super::give_back(read, pool, fetched);
                }
                ReadResult::Lost(error) => {
                    self.stuck.push(read);
                    self.lose(error);
                }
            }
        }
    }
}
