//! Near-storage commands: data go from a source through a chain of operators to a destination, next to the
//! disk.
//!
//! | module | contents |
//! |---|---|
//! | `batch` | a bounded piece of a chain's work, done by the loop or by a slot |
//! | `budget` | limits of the memory of operators |
//! | `copy` | Copy of the NVM command set |
//! | `entry` | entries of near-storage commands |
//! | `flow` | data on their way from a source through a chain to a destination |
//! | `installed` | activated programs, sets of memory ranges |
//! | `loads` | WebAssembly modules that a guest loads |
//! | `local_memory` | commands of subsystem local memory |
//! | `pipeline` | a chain at work |
//! | `program` | loaded operators' parameters |
//! | `ranges` | ranges of a namespace, read block by block |
//! | `ready` | commands that can go on: queues take turns |
//! | `stream` | chains whose output several commands take |
//!
//! They are vendor commands of I/O queues; the opcode gives the direction of the guest's buffer: [`NO_DATA`],
//! [`FROM_GUEST`], [`TO_GUEST`]. So the stock driver's passthrough, which maps one buffer in one direction,
//! carries them. `docs/csd.md` has the table of their fields.
//!
//! The standard's commands of subsystem local memory and computational programs are carried out the same way.
//!
//! Operators are those of `dcs_ndp`, run here block by block, without the engine's core or the library. Both
//! of these move data between descriptors of their own process, which a guest's memory, a slice under a
//! chain, and device memory are not; and they have threads, while the controller is a state machine without.

mod batch;
mod budget;
mod copy;
pub(crate) mod entry;
pub(crate) mod flow;
mod installed;
mod loads;
mod local_memory;
mod pipeline;
mod program;
mod programs;
mod ranges;
mod ready;
mod run;
mod stream;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

pub use batch::{Batch, Operated};
pub use entry::{DataLocation, FROM_GUEST, Fields, NO_DATA, RESULT_SIZE, TO_GUEST};
pub use installed::{CHAIN, RANGES, SETS};
pub(crate) use installed::{GRANULARITY, program_count};
pub use loads::{Builder, LOADED, LOADED_BYTES, LOADED_MIB, WEBASSEMBLY};
pub use pipeline::Worked;
pub use ranges::{ENDED, FED, HUNGRY, REST};
pub use stream::STREAMS;

pub(crate) use copy::COPY_MAX;

use budget::{Budget, Taken};
use dcs_abi::operator::Operator;
use flow::Flow;
use installed::Programs;
use loads::Loads;
use program::Program;
use ready::Ready;
use stream::Stream;

use crate::waste::Waste;

/// Memory of this size or more is freed outside the loop: the kernel needs a tenth of a millisecond for each
/// MiB.
const LARGE: u64 = 4 << 20;

/// Maximum number of parameters that one controller keeps.
pub const HANDLES: usize = 64;
/// Number of result pages that are kept: those of the last requests.
pub const RESULTS: usize = 64;

/// The near-storage state of a controller.
#[derive(Default)]
pub(crate) struct NearStorage {
    /// Loaded parameters, by handle, less one.
    programs: Vec<Option<(Arc<Program>, Option<Taken>)>>,
    results: VecDeque<(u32, Box<[u8; RESULT_SIZE]>)>,
    /// By place: a stream's number has its place, plus one.
    streams: Vec<Stream>,
    /// The numbers of streams, by place, and the upper bits of the last number given.
    stream_numbers: Vec<u16>,
    opened: u16,
    /// Number of uses of streams so far.
    uses: u64,
    /// Device memory.
    memory: Vec<u8>,
    /// The standard's programs and sets of memory ranges.
    standard: Programs,
    /// Programs that the guest has loaded.
    loads: Loads,
    /// The memory that operators may use.
    budget: Budget,
    /// Commands that wait for memory, in order.
    wanting: VecDeque<u16>,
    /// The slot of a command that gets no memory and is about to end: the others wait for that.
    refused: Option<u16>,
    /// Commands that can go on without the storage.
    ready: Ready,
    /// Number of commands on which slots work.
    away: usize,
    /// The work of each operator so far, by number.
    worked: BTreeMap<u8, (Operator, Worked)>,
    /// Memory to be freed.
    waste: Vec<Waste>,
    /// Device memory that is being freed holds a reference to it.
    old_memory: Arc<()>,
}

impl NearStorage {
    /// Makes it with this many bytes of device memory, and of memory for operators.
    pub fn new(memory: u32, operators: u64) -> NearStorage {
        let (memory, budget) = (vec![0; memory as usize], Budget::new(operators));
        NearStorage { memory, budget, ..NearStorage::default() }
    }

    /// Forgets the guest's state, including its secrets. Commands in progress keep theirs. `again`: a reset
    /// is in progress, and nothing was stored in device memory since it began.
    pub fn reset(&mut self, again: bool) {
        self.programs.clear();
        self.results.clear();
        for stream in std::mem::take(&mut self.streams) {
            self.forget(stream);
        }
        self.standard = Programs::default();
        self.loads.reset();
        (self.ready, self.wanting, self.refused) = (Ready::default(), VecDeque::new(), None);
        if again {
            return;
        }
        // New memory: untouched pages.
        let new = vec![0; self.memory.len()];
        let old = std::mem::replace(&mut self.memory, new);
        if old.len() as u64 >= LARGE {
            self.waste.push(Waste::new((old, Arc::clone(&self.old_memory))));
        }
    }

    /// Returns true if all memory from before a reset was freed: a guest that resets again and again must not
    /// get more than its limit.
    pub fn is_clean(&self) -> bool {
        Arc::strong_count(&self.old_memory) == 1 && self.loads.is_clean()
    }

    /// Returns memory to be freed.
    pub fn waste(&mut self) -> &mut Vec<Waste> {
        self.loads.empty_bin(&mut self.waste);
        &mut self.waste
    }

    /// Drops a flow. If that may take long, it is done outside the loop; its memory counts as reserved until
    /// then.
    fn discard(&mut self, mut flow: Box<Flow>) {
        if let Some(memory) = flow.memory.as_mut().filter(|memory| memory.bytes() >= LARGE) {
            memory.passes();
            // It may be the last user of a program.
            self.waste.push(Waste::new((flow, self.loads.mark())));
        }
    }

    /// Lets the guest load programs, of which this makes operators.
    pub fn set_builder(&mut self, builder: Builder) {
        self.loads.set_builder(builder);
    }

    /// Returns the number of programs that the guest has loaded, and the bytes of all, including those that
    /// are being loaded.
    pub fn loaded(&self) -> (usize, u64) {
        self.loads.count()
    }

    /// Returns the maximum number of programs, and of MiB of loaded ones.
    pub fn most_programs(&self) -> (u16, u64) {
        match self.loads.are_taken() {
            true => (program_count() + LOADED, LOADED_MIB),
            false => (program_count(), 0),
        }
    }

    /// Returns the number of commands that wait neither for the storage nor for a slot.
    pub fn waiting(&self) -> usize {
        self.ready.len() + self.wanting.len()
    }

    /// Returns the number of commands on which slots work.
    pub fn away(&self) -> usize {
        self.away
    }

    /// Removes the first command that waits for memory for which `is_wanted` returns true.
    pub fn abort(&mut self, mut is_wanted: impl FnMut(u16) -> bool) -> Option<u16> {
        let place = self.wanting.iter().position(|index| is_wanted(*index))?;
        self.wanting.remove(place)
    }

    /// Returns the number of bytes of memory that operators have reserved.
    pub fn operator_memory(&self) -> u64 {
        self.budget.taken()
    }

    /// Counts an operator's work.
    fn work(&mut self, operator: Operator, work: Worked) {
        let (_, all) = self.worked.entry(operator as u8).or_insert((operator, Worked::default()));
        all.nanoseconds += work.nanoseconds;
        all.bytes += work.bytes;
        all.pieces += work.pieces;
    }

    /// Returns the work of each operator since the drive was made.
    pub fn worked(&self) -> impl Iterator<Item = (Operator, Worked)> {
        self.worked.values().copied()
    }

    /// Removes a waiting command.
    pub fn take_waiting(&mut self) -> Option<u16> {
        self.wanting.pop_front().or_else(|| self.ready.pop())
    }

    fn load(&mut self, program: Arc<Program>, memory: Option<Taken>) -> Option<u16> {
        let place = self.programs.iter().position(Option::is_none).unwrap_or(self.programs.len());
        if place >= HANDLES {
            return None;
        }
        if place == self.programs.len() {
            self.programs.push(None);
        }
        self.programs[place] = Some((program, memory));
        Some(place as u16 + 1)
    }

    fn program(&self, handle: u16) -> Option<&Arc<Program>> {
        self.programs.get(usize::from(handle).checked_sub(1)?)?.as_ref().map(|(program, _)| program)
    }

    fn unload(&mut self, handle: u16) -> bool {
        let place = usize::from(handle).checked_sub(1).and_then(|place| self.programs.get_mut(place));
        place.and_then(Option::take).is_some()
    }

    fn keep(&mut self, request: u32, page: Box<[u8; RESULT_SIZE]>) {
        self.results.retain(|(known, _)| *known != request);
        if self.results.len() == RESULTS {
            self.results.pop_front();
        }
        self.results.push_back((request, page));
    }

    fn result(&self, request: u32) -> Option<&[u8; RESULT_SIZE]> {
        self.results.iter().find(|(known, _)| *known == request).map(|(_, page)| &**page)
    }

    fn range(&self, first: u64, length: u64) -> Option<std::ops::Range<usize>> {
        let end = first.checked_add(length).filter(|end| *end <= self.memory.len() as u64)?;
        Some(first as usize..end as usize)
    }
}
