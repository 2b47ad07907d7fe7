//! Block buffers: which are free, whose the others are.

use crate::message::BlockId;
use crate::quota::Quota;
use alloc::vec::Vec;

/// What the engine knows of a block in use.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Block {
    /// Its command's slot; meaningless once `orphan`.
    pub command: u16,
    /// Its queue.
    pub queue: u16,
    /// The segment of the command's chain that it belongs to.
    pub segment: u8,
    /// Bytes in it.
    pub length: u32,
    /// Its place in its segment, from 0.
    pub sequence: u64,
    /// It ends the stream.
    pub last: bool,
    /// Issued operations that use it.
    pub busy: u8,
    /// Devices that still read it after their operation was done.
    pub holds: u32,
    /// Its row of entries is done: it is free as soon as nothing uses it.
    pub retired: bool,
    /// Its command is finished.
    pub orphan: bool,
    /// Somebody's.
    pub used: bool,
}

#[derive(Debug)]
pub(crate) struct Blocks {
    free: Vec<BlockId>,
    table: Vec<Block>,
    /// Who may take how many.
    pub quota: Quota,
}

impl Blocks {
    pub fn new(count: u32, queues: u16) -> Blocks {
        Blocks {
            free: (0..count).rev().map(BlockId).collect(),
            table: (0..count).map(|_| Block::default()).collect(),
            quota: Quota::new(count, queues),
        }
    }

    /// Takes a free block; the quota was asked before.
    pub fn take(&mut self, block: Block) -> Option<BlockId> {
        let id = self.free.pop()?;
        self.table[id.index()] = Block { used: true, ..block };
        Some(id)
    }

    /// Puts a block back.
    pub fn put(&mut self, id: BlockId) {
        debug_assert!(self.table[id.index()].used);
        self.table[id.index()] = Block::default();
        self.free.push(id);
    }

    pub fn get(&self, id: BlockId) -> &Block {
        &self.table[id.index()]
    }

    pub fn get_mut(&mut self, id: BlockId) -> &mut Block {
        &mut self.table[id.index()]
    }

    /// The block of a number that came from outside.
    pub fn find(&self, id: BlockId) -> Option<&Block> {
        self.table.get(id.index()).filter(|block| block.used)
    }

    pub fn free(&self) -> u32 {
        self.free.len() as u32
    }

    /// Every block of a command.
    pub fn of_command(&self, command: u16) -> impl Iterator<Item = BlockId> + '_ {
        self.table
            .iter()
            .enumerate()
            .filter(move |(_, block)| block.used && !block.orphan && block.command == command)
            .map(|(index, _)| BlockId(index as u32))
    }
}
