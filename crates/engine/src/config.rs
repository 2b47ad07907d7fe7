//! Sizes of an engine. All memory that it uses follows from them.

use alloc::vec::Vec;
use dcs_abi::CHAIN_MAX;
use dcs_abi::operator::{OPERATORS, Operator};

/// Fewest blocks of an engine: a chain of eight resizing operators has nine segments.
pub const BLOCKS_MIN: u32 = (CHAIN_MAX as u32 + 1) * 2;

/// Largest weight of a function.
const WEIGHT_MAX: u16 = 256;

/// Sizes of an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Bytes of a block: a multiple of 4096.
    pub block_size: u32,
    /// Block buffers.
    pub blocks: u32,
    /// Blocks that one segment of a command may hold at once: how far reading runs ahead of writing.
    pub window: u16,
    /// Number of blocks that fit close to the processor of the data (its second-level cache). If the commands
    /// in flight would hold more, each reads ahead less, down to one block.
    pub cached_blocks: u32,
    /// Commands in flight.
    pub commands: u16,
    /// Queue pairs.
    pub queues: u16,
    /// Physical units of each operator. An operator that is not named is not there.
    pub units: Vec<(Operator, u16)>,
    /// Physical units of each operator that a GPU does ([`ON_GPU`](dcs_abi::operator::ON_GPU)). They are
    /// others than those of [`Config::units`], and none of them gathers.
    pub gpu: Vec<(Operator, u16)>,
    /// Operators whose units are the lanes of one: their blocks are processed together, a pass at a time
    /// ([`Action::StartPass`](crate::Action)). It has no effect on operators that change the length of the
    /// data.
    pub multi_lane: Vec<Operator>,
    /// Bytes that one direct copy moves at most, so that commands take turns.
    pub direct_chunk: u64,
    /// The owner runs short commands ([`Action::Run`](crate::Action)).
    pub short: bool,
    /// The functions' weights, by their numbers: 1 to 256, and 1 for those that are not named. Functions that share have
    /// slots and blocks, and turns at operators' units, in proportion to them.
    pub weights: Vec<u16>,
    /// Nanoseconds that a failed command waits for its aborted operations before it completes without them.
    pub abort_grace: u64,
}

impl Default for Config {
    /// 256 blocks of 128 KiB, all of them near, 256 commands, 64 queues, one unit of each operator.
    fn default() -> Self {
        Config {
            block_size: 128 * 1024,
            blocks: 256,
            window: 4,
            cached_blocks: 256,
            commands: 256,
            queues: 64,
            units: OPERATORS.iter().map(|info| (info.operator, 1)).collect(),
            gpu: Vec::new(),
            multi_lane: Vec::new(),
            direct_chunk: 1 << 20,
            short: false,
            weights: Vec::new(),
            abort_grace: 5_000_000_000,
        }
    }
}

/// A reason why an engine cannot have these sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigError {
    /// `block_size` is 0, not a multiple of 4096, or over 1 GiB.
    BlockSize,
    /// Fewer than [`BLOCKS_MIN`] blocks, or more than 2^20.
    Blocks,
    /// `window`, `commands`, `queues` or `direct_chunk` is 0.
    Zero,
    /// A function's weight is 0, or over 256.
    Weight,
    /// Fewer than two blocks or two commands for each queue: half of each is for guarantees, and a queue
    /// without one could be kept out by the others for ever.
    Guarantee,
}

impl core::fmt::Display for ConfigError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            ConfigError::BlockSize => f.write_str("block_size must be a multiple of 4096, up to 1 GiB"),
            ConfigError::Blocks => write!(f, "blocks must be {BLOCKS_MIN} to {}", 1 << 20),
            ConfigError::Zero => f.write_str("window, commands, queues and direct_chunk must not be 0"),
            ConfigError::Weight => f.write_str("weights of functions must be 1 to 256"),
            ConfigError::Guarantee => f.write_str("there must be two blocks and two commands for each queue"),
        }
    }
}

impl core::error::Error for ConfigError {}

impl Config {
    /// Checks the sizes.
    ///
    /// # Errors
    ///
    /// [`ConfigError`].
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.block_size == 0 || !self.block_size.is_multiple_of(4096) || self.block_size > 1 << 30 {
            return Err(ConfigError::BlockSize);
        }
        if !(BLOCKS_MIN..=1 << 20).contains(&self.blocks) {
            return Err(ConfigError::Blocks);
        }
        let zero = self.window == 0 || self.queues == 0 || self.direct_chunk == 0;
        if zero || self.commands == 0 {
            return Err(ConfigError::Zero);
        }
        if !self.weights.iter().all(|weight| (1..=WEIGHT_MAX).contains(weight)) {
            return Err(ConfigError::Weight);
        }
        if self.blocks.min(u32::from(self.commands)) / 2 < u32::from(self.queues) {
            return Err(ConfigError::Guarantee);
        }
        Ok(())
    }

    /// Returns a function's weight.
    pub fn weight(&self, function: u16) -> u16 {
        self.weights.get(usize::from(function)).copied().unwrap_or(1)
    }
}

/// Sizes of one queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueConfig {
    /// The function of the device whose host has the queue. Functions share slots and blocks first, by their weights
    /// ([`Config::weights`]), then each one's queues share its part; and units take turns between functions. The
    /// owner's word, never the host's.
    pub function: u16,
    /// The tenant whose commands these are: request ids (`rid`) order commands of one tenant of a function.
    pub tenant: u16,
    /// Entries of the submission and of the completion ring: 2 to 32768.
    pub depth: u16,
    /// Entries that are fetched in a row before it is the next queue's turn: 1 to 256.
    pub weight: u16,
    /// The number by which its host knows it: completions carry it, and Cancel names it. None: the engine's
    /// own, which counts from 0.
    pub number: Option<u16>,
}

impl Default for QueueConfig {
    fn default() -> Self {
        QueueConfig { function: 0, tenant: 0, depth: 64, weight: 1, number: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn sizes_that_make_no_engine_are_told_apart() {
        let good = Config::default();
        assert_eq!(good.check(), Ok(()));
        let block_sizes = [0, 1, 4095, (1 << 30) + 4096];
        for block_size in block_sizes {
            assert_eq!(Config { block_size, ..good.clone() }.check(), Err(ConfigError::BlockSize));
        }
        for blocks in [0, BLOCKS_MIN - 1, (1 << 20) + 1] {
            assert_eq!(Config { blocks, ..good.clone() }.check(), Err(ConfigError::Blocks));
        }
        let zeros = [
            Config { window: 0, ..good.clone() },
            Config { queues: 0, ..good.clone() },
            Config { commands: 0, ..good.clone() },
            Config { direct_chunk: 0, ..good.clone() },
        ];
        assert!(zeros.iter().all(|config| config.check() == Err(ConfigError::Zero)));
        for weights in [vec![0], vec![1, 257], vec![256, 1, 0]] {
            assert_eq!(Config { weights, ..good.clone() }.check(), Err(ConfigError::Weight));
        }
        let weighted = Config { weights: vec![3, 256], ..good.clone() };
        assert_eq!(weighted.check(), Ok(()));
        assert_eq!([0, 1, 2].map(|function| weighted.weight(function)), [3, 256, 1]);
        assert_eq!(Config { queues: 129, ..good.clone() }.check(), Err(ConfigError::Guarantee));
        assert_eq!(Config { commands: 127, ..good }.check(), Err(ConfigError::Guarantee));
    }
}
