//! Block buffers: page-aligned memory, owned at any time by exactly one of pool, operation, kernel and SSD.

use dcs_engine::BlockId;
use dcs_vfio::Mapping;
use std::ptr::NonNull;
use std::sync::Arc;

/// Alignment of every block. O_DIRECT needs at most this.
pub const ALIGNMENT: usize = 4096;

/// A block buffer. Moving it does not move its bytes.
#[derive(Debug)]
pub struct Buffer {
    memory: Memory,
    size: usize,
}

/// Location of a block's bytes.
#[derive(Debug)]
enum Memory {
    /// Memory owned by this block, starting at this offset.
    Own(Vec<u8>, usize),
    /// Piece of memory that devices reach, used by this block alone.
    Shared(Piece),
}

/// A piece of shared memory; see [`Memory::Shared`].
#[derive(Debug)]
struct Piece {
    start: NonNull<u8>,
    /// Keeps the mapping alive as long as a piece of it is.
    _memory: Arc<Mapping>,
}

// SAFETY: a piece belongs to exactly one buffer. Nothing is tied to a thread.
unsafe impl Send for Piece {}
// SAFETY: as above; a shared reference gives shared access to the bytes only.
unsafe impl Sync for Piece {}

impl Buffer {
    fn new(size: usize) -> Buffer {
        let memory = vec![0; size + ALIGNMENT];
        let start = memory.as_ptr().align_offset(ALIGNMENT);
        Buffer { memory: Memory::Own(memory, start), size }
    }

    /// Returns the block's bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        match &self.memory {
            Memory::Own(memory, start) => &memory[*start..start + self.size],
            // SAFETY: the piece has `size` bytes, which belong to this buffer alone. A device writes to them only while the buffer is with
            // `DirectDevices`, which takes no reference to it.
            Memory::Shared(piece) => unsafe { std::slice::from_raw_parts(piece.start.as_ptr(), self.size) },
        }
    }

    /// Returns the block's bytes, mutable.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        match &mut self.memory {
            Memory::Own(memory, start) => &mut memory[*start..*start + self.size],
            // SAFETY: as above, and the buffer is borrowed for this alone.
            Memory::Shared(piece) => unsafe {
                std::slice::from_raw_parts_mut(piece.start.as_ptr(), self.size)
            },
        }
    }
}

/// The blocks of an engine. A block that is with the kernel is not here: its buffer was taken out, so nothing can touch it before the
/// kernel is done.
#[derive(Debug)]
pub struct BlockPool {
    buffers: Vec<Option<Buffer>>,
    /// Memory that the blocks are pieces of, if any, and the offset of the first block in it.
    shared: Option<(Arc<Mapping>, u64, u32)>,
    /// Blocks that a device may keep writing to; never reused.
    lost: Vec<BlockId>,
}

impl BlockPool {
    /// Makes `count` blocks of `size` bytes. Their memory is not touched before its first use.
    pub fn new(count: u32, size: u32) -> BlockPool {
        BlockPool {
            buffers: (0..count).map(|_| Some(Buffer::new(size as usize))).collect(),
            shared: None,
            lost: Vec::new(),
        }
    }

    /// Makes `count` contiguous blocks of `size` bytes in memory that devices reach, starting at `first`. Nothing else uses that part of
    /// it.
    ///
    /// # Panics
    ///
    /// If they don't fit.
    pub(crate) fn shared(count: u32, size: u32, memory: &Arc<Mapping>, first: u64) -> BlockPool {
        let buffer = |at: u32| {
            let start = memory.pointer(first + u64::from(at) * u64::from(size), size as usize);
            let piece = Piece { start, _memory: Arc::clone(memory) };
            Some(Buffer { memory: Memory::Shared(piece), size: size as usize })
        };
        let shared = Some((Arc::clone(memory), first, size));
        BlockPool { buffers: (0..count).map(buffer).collect(), shared, lost: Vec::new() }
    }

    /// Returns a block's buffer, unless the kernel has it.
    #[inline]
    pub fn get(&self, block: BlockId) -> Option<&Buffer> {
        self.buffers.get(block.index())?.as_ref()
    }

    /// Returns a block's buffer, mutable, unless the kernel has it.
    #[inline]
    pub fn get_mut(&mut self, block: BlockId) -> Option<&mut Buffer> {
        self.buffers.get_mut(block.index())?.as_mut()
    }

    /// Returns the buffers of two different blocks.
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

    /// Takes a block out of use because a device may keep writing to it. Its memory stays where it is.
    pub(crate) fn lose(&mut self, block: BlockId, buffer: Buffer) {
        std::mem::forget(buffer);
        self.lost.push(block);
    }

    /// Returns true if the block was taken out of use.
    pub(crate) fn is_lost(&self, block: BlockId) -> bool {
        self.lost.contains(&block)
    }

    /// Returns start and length of every block's memory, for registration with the kernel; `None` if a block with its own memory is
    /// taken out.
    pub(crate) fn regions(&self) -> Option<Vec<(*const u8, usize)>> {
        if let Some((memory, first, size)) = &self.shared {
            let start = |at: usize| memory.pointer(first + at as u64 * u64::from(*size), *size as usize);
            let regions = 0..self.buffers.len();
            return Some(regions.map(|at| (start(at).as_ptr().cast_const(), *size as usize)).collect());
        }
        self.buffers.iter().map(|buffer| buffer.as_ref().map(|b| (b.bytes().as_ptr(), b.size))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_shared_memory_lie_one_behind_the_other() {
        let memory = Arc::new(Mapping::anonymous(5 * 4096).unwrap());
        let mut pool = BlockPool::shared(2, 8192, &memory, 4096);
        for (at, byte) in [(0, 1), (1, 2)] {
            pool.get_mut(BlockId(at)).unwrap().bytes_mut().fill(byte);
        }
        drop(pool);
        let mut all = vec![9; 5 * 4096];
        memory.load(0, &mut all);
        assert!(all[..4096].iter().all(|byte| *byte == 0));
        assert!(all[4096..3 * 4096].iter().all(|byte| *byte == 1));
        assert!(all[3 * 4096..].iter().all(|byte| *byte == 2));
    }

    #[test]
    fn blocks_are_aligned_and_do_not_move_with_their_owner() {
        let mut pool = BlockPool::new(3, 8192);
        let block = BlockId(1);
        let buffer = pool.take(block).unwrap();
        let address = buffer.bytes().as_ptr();
        assert_eq!(address.align_offset(ALIGNMENT), 0);
        assert_eq!(buffer.bytes().len(), 8192);
        assert!(pool.get_mut(block).is_none(), "a block that was taken is not available");
        assert!(pool.pair_mut(BlockId(0), block).is_none());
        pool.put(block, buffer);
        assert_eq!(pool.get_mut(block).unwrap().bytes().as_ptr(), address);
        assert!(pool.pair_mut(block, block).is_none());
        assert!(pool.get_mut(BlockId(9)).is_none());
    }
}
