//! The processing units: operations on blocks become signals at the ports of `rtl/processing.sv`. Each pool has a model of its own with one
//! unit, which is quicker than one of all: a command's operators are in the models of their pools.

use crate::model::processing::{In, MODELS, Out};
use crate::model::{self, BLOCK_SIZE, COMMANDS, Functions, Model, OPERATORS};
use dcs_abi::CHAIN_MAX;
use dcs_abi::result::{DigestSlot, DigestSlotPacket};
use dcs_abi::status::Status;
use dcs_engine::{CommandId, Failure, Operation, OperationKind, Outcome, TransferSpec};

/// Bytes of a word of block memory.
const WORD: usize = 16;
/// Cycles in which a block is through any unit.
const MOST: u32 = 100_000;
/// For a bug: an operation that is none of units.
const BROKEN: Outcome = Outcome::Failed(Failure { status: Status::InternalError, errno: 0 });

/// Processing units in SystemVerilog: one of each operator that the core has. It does the operations of all of the core's units, one after
/// the other.
#[derive(Debug)]
pub struct Units {
    pools: Vec<Pool>,
    /// The pool of each operator of each command.
    chains: Vec<[usize; CHAIN_MAX]>,
}

impl Default for Units {
    fn default() -> Units {
        Units::new()
    }
}

impl Units {
    /// Makes the units, after a reset. Their sizes are those of `rtl/tools/body.py`.
    pub fn new() -> Units {
        let pools = MODELS.iter().map(Pool::new).collect();
        Units { pools, chains: vec![[0; CHAIN_MAX]; COMMANDS as usize] }
    }

    /// Cycles of all pools' clocks so far.
    pub fn cycles(&self) -> u64 {
        self.pools.iter().map(|pool| pool.cycles).sum()
    }

    /// Has an operation of this kind done on a block.
    fn perform(
        &mut self,
        operation: &Operation,
        asked: model::Operation,
        at: u8,
        block: &mut [u8],
    ) -> Outcome {
        let slot = operation.command.slot();
        let pool = self.chains[slot][usize::from(at)];
        let id = model::OperationId { command: slot as u64, at: at.into(), ..Default::default() };
        self.pools[pool].perform(&model::Operation { id: id.pack(), pool: pool as u64, ..asked }, block)
    }
}

impl dcs_engine::Units for Units {
    fn load(&mut self, command: CommandId, spec: &TransferSpec) -> Result<(), (u8, Failure)> {
        let mut transfer = model::Transfer { operators: spec.chain.len() as u64, ..Default::default() };
        for (at, spec) in spec.chain.iter().enumerate() {
            let pool = OPERATORS.iter().position(|number| *number == spec.operator as u8);
            let pool = pool.ok_or((at as u8, Failure::new(Status::UnknownOperator)))?;
            let (fewest, most) = spec.operator.info().parameter;
            let (given, size) = (spec.parameter.len(), spec.operator.digest_size());
            if !(fewest..=most).contains(&given) {
                return Err((at as u8, Failure::new(Status::BadParameter)));
            }
            self.chains[command.slot()][at] = pool;
            transfer.chain |= (pool as u64) << (3 * at);
            transfer.given |= u64::from(given > 0) << at;
            transfer.misfit |= u64::from(size > 0 && given > 0 && given != size) << at;
        }
        let concerned = |pool: usize| self.chains[command.slot()][..spec.chain.len()].contains(&pool);
        let pools = self.pools.iter_mut().enumerate().filter(|(at, _)| concerned(*at));
        let refused = pools.filter_map(|(_, pool)| pool.load(command.slot() as u64, spec, &transfer).err());
        refused.min_by_key(|(at, _)| *at).map_or(Ok(()), Err)
    }

    fn process(&mut self, operation: &Operation, bytes: &mut [u8]) -> Outcome {
        let OperationKind::Process { operator, last, .. } = operation.kind else { return BROKEN };
        let (kind, length) = (model::DO_PROCESS, bytes.len() as u64);
        let asked = model::Operation { kind, length, last: last.into(), ..Default::default() };
        self.perform(operation, asked, operator, bytes)
    }

    fn resize(&mut self, _: &Operation, _: &[u8], _: &mut [u8]) -> Outcome {
        // The core has no operator that changes the length.
        BROKEN
    }

    fn snapshot(&mut self, operation: &Operation) -> Outcome {
        let OperationKind::Snapshot { operator } = operation.kind else { return BROKEN };
        let asked = model::Operation { kind: model::DO_SNAPSHOT, ..Default::default() };
        self.perform(operation, asked, operator, &mut [])
    }

    fn unload(&mut self, _: CommandId) {
        // The next command with this number has other contexts.
    }
}

/// The unit of an operator, and the contexts that it has in commands.
struct Pool {
    model: Model<In, Out>,
    input: In,
    /// Words of the block that were asked for: they come two cycles later.
    asked: [Option<usize>; 2],
    cycles: u64,
}

/// Contexts hold keys, so they are not printed.
impl core::fmt::Debug for Pool {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Pool after {} cycles", self.cycles)
    }
}

impl Pool {
    fn new(functions: &'static Functions<In, Out>) -> Pool {
        let input = In { read_ready_i: true, write_ready_i: true, outcome_ready_i: true, ..In::default() };
        let mut pool = Pool { model: Model::new(functions), input, asked: [None; 2], cycles: 0 };
        (0..3).for_each(|_| _ = pool.clock(&mut []));
        pool.input.rst_ni = true;
        pool.clock(&mut []);
        pool.cycles = 0;
        pool
    }

    /// A cycle, with this block as block memory. Returns what the units put out before its end.
    fn clock(&mut self, block: &mut [u8]) -> Out {
        let [next, due] = self.asked;
        self.input.read_done_i = due.is_some();
        self.input.read_data_i = due.map_or_else(Default::default, |word| load(block, word));
        let out = self.model.settle(&self.input);
        self.asked = [out.read_valid_o.then(|| word_of(out.read_at_o)), next];
        if out.write_valid_o {
            store(block, word_of(out.write_at_o), out.write_data_o);
        }
        self.model.edge();
        self.cycles += 1;
        out
    }

    /// Clocks until this is there.
    fn until<T>(&mut self, block: &mut [u8], there: impl Fn(&Out) -> Option<T>) -> T {
        for _ in 0..MOST {
            let out = self.clock(block);
            if let Some(found) = there(&out) {
                return found;
            }
        }
        unreachable!("the units run in circles: {self:?}")
    }

    /// Tells of a command's transfer and its operators' parameter blocks, as `validate` does.
    fn load(
        &mut self,
        slot: u64,
        spec: &TransferSpec,
        transfer: &model::Transfer,
    ) -> Result<(), (u8, Failure)> {
        self.input.checked_i = slot;
        for (at, spec) in spec.chain.iter().enumerate() {
            self.parameter(at, &spec.parameter);
        }
        self.input.transfer_i = transfer.pack();
        self.input.transfer_valid_i = true;
        self.clock(&mut []);
        self.input.transfer_valid_i = false;
        self.input.bind_command_i = slot;
        let out = self.clock(&mut []);
        if out.sound_o {
            return Ok(());
        }
        let refusal = model::Failure::unpack(out.failure_o);
        Err((refusal.at as u8, failure(refusal.status)))
    }

    fn parameter(&mut self, at: usize, block: &[u8]) {
        self.input.parameter_valid_i = true;
        self.input.parameter_at_i = at as u64;
        for (index, part) in block.chunks(8).enumerate() {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            self.input.parameter_index_i = index as u64;
            self.input.parameter_i = u64::from_le_bytes(word);
            self.clock(&mut []);
        }
        self.input.parameter_valid_i = false;
        self.input.parameter_i = 0;
    }

    fn perform(&mut self, operation: &model::Operation, block: &mut [u8]) -> Outcome {
        self.input.operation_i = operation.pack();
        self.input.operation_valid_i = true;
        self.until(block, |out| out.operation_ready_o.then_some(()));
        self.input.operation_valid_i = false;
        let outcome = self.until(block, |out| out.outcome_valid_o.then_some(out.outcome_o));
        let outcome = model::Outcome::unpack(outcome);
        match outcome.kind {
            model::PROCESSED => {
                Outcome::Processed { consumed: outcome.bytes as u32, produced: 0, finished: false }
            }
            model::DIGEST => Outcome::Digest(self.digest(&model::OperationId::unpack(operation.id))),
            _ => Outcome::Failed(failure(outcome.status)),
        }
    }

    /// The value of a digest, read word by word.
    fn digest(&mut self, id: &model::OperationId) -> DigestSlot {
        (self.input.digest_command_i, self.input.digest_at_i) = (id.command, id.at);
        self.input.digest_valid_i = true;
        let mut bytes = [0; DigestSlot::SIZE];
        for (index, word) in bytes.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            self.input.digest_index_i = index as u64;
            *word = self.until(&mut [], |out| out.digest_ready_o.then_some(out.digest_o)).to_le_bytes();
        }
        self.input.digest_valid_i = false;
        self.clock(&mut []);
        // It has no fields that could be wrong.
        DigestSlot::parse(&DigestSlotPacket::from(bytes)).unwrap_or_default()
    }
}

/// The status of a failure. The units make no system call.
fn failure(status: u64) -> Failure {
    Failure::new(Status::from_code(status as u16))
}

/// The place of a word in its block. Every operation is told to be on block 0.
fn word_of(at: u64) -> usize {
    at as usize % (BLOCK_SIZE as usize / WORD)
}

/// A word of a block: behind its end there are zeros.
fn load(block: &[u8], word: usize) -> [u32; WORD / 4] {
    let start = (word * WORD).min(block.len());
    let part = &block[start..(start + WORD).min(block.len())];
    let mut bytes = [0; WORD];
    bytes[..part.len()].copy_from_slice(part);
    let mut words = bytes.as_chunks::<4>().0.iter();
    std::array::from_fn(|_| words.next().map_or(0, |bytes| u32::from_le_bytes(*bytes)))
}

/// Stores a word of a block: what is behind its end is dropped.
fn store(block: &mut [u8], word: usize, data: [u32; WORD / 4]) {
    let start = (word * WORD).min(block.len());
    let part = &mut block[start..];
    part.iter_mut().zip(data.into_iter().flat_map(u32::to_le_bytes)).for_each(|(to, from)| *to = from);
}
