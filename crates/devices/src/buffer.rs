//! Block buffers: page-aligned memory that is owned by exactly one of pool, operation and kernel at any time.

use dcs_engine::BlockId;

/// Alignment of every block: O_DIRECT needs at most this.
pub const ALIGNMENT: usize = 4096;

/// One block. Moving it does not move its bytes.
#[derive(Debug)]
pub struct Buffer {
    memory: Vec<u8>,
    start: usize,
    size: usize,
}

impl Buffer {
    fn new(size: usize) -> Buffer {
        let memory = vec![0; size + ALIGNMENT];
        let start = memory.as_ptr().align_offset(ALIGNMENT);
        Buffer { memory, start, size }
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.size]
    }

    /// Its bytes, to be changed.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.size]
    }
}

/// All blocks of an engine. A block that is with the kernel is not here: its buffer was taken out, so nothing can
/// touch it before the kernel is done.
#[derive(Debug)]
pub struct BlockPool {
    buffers: Vec<Option<Buffer>>,
}

impl BlockPool {
    /// Makes `count` blocks of `size` bytes. Their memory is touched when it is first used.
    pub fn new(count: u32, size: u32) -> BlockPool {
        BlockPool { buffers: (0..count).map(|_| Some(Buffer::new(size as usize))).collect() }
    }

    /// The buffer of a block, unless the kernel has it.
    pub fn get(&self, block: BlockId) -> Option<&Buffer> {
        self.buffers.get(block.index())?.as_ref()
    }

    /// The buffer of a block, to be changed, unless the kernel has it.
    pub fn get_mut(&mut self, block: BlockId) -> Option<&mut Buffer> {
        self.buffers.get_mut(block.index())?.as_mut()
    }

    /// The buffers of two different blocks.
    pub fn pair_mut(&mut self, one: BlockId, other: BlockId) -> Option<(&mut Buffer, &mut Buffer)> {
        let [one, other] = self.buffers.get_disjoint_mut([one.index(), other.index()]).ok()?;
        Some((one.as_mut()?, other.as_mut()?))
    }

    /// Takes a buffer out, to give it to the kernel.
    pub fn take(&mut self, block: BlockId) -> Option<Buffer> {
        self.buffers.get_mut(block.index())?.take()
    }

    /// Puts a buffer back.
    pub fn put(&mut self, block: BlockId, buffer: Buffer) {
        if let Some(place) = self.buffers.get_mut(block.index()) {
            *place = Some(buffer);
        }
    }

    /// Start and length of every block's memory, for registration with the kernel; `None` while the kernel has one.
    pub(crate) fn regions(&self) -> Option<Vec<(*const u8, usize)>> {
        self.buffers.iter().map(|buffer| buffer.as_ref().map(|b| (b.bytes().as_ptr(), b.size))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_aligned_and_do_not_move_with_their_owner() {
        let mut pool = BlockPool::new(3, 8192);
        let block = BlockId(1);
        let buffer = pool.take(block).unwrap();
        let address = buffer.bytes().as_ptr();
        assert_eq!(address.align_offset(ALIGNMENT), 0);
        assert_eq!(buffer.bytes().len(), 8192);
        assert!(pool.get_mut(block).is_none(), "a block that was taken is nobody else's");
        assert!(pool.pair_mut(BlockId(0), block).is_none());
        pool.put(block, buffer);
        assert_eq!(pool.get_mut(block).unwrap().bytes().as_ptr(), address);
        assert!(pool.pair_mut(block, block).is_none());
        assert!(pool.get_mut(BlockId(9)).is_none());
    }
}
