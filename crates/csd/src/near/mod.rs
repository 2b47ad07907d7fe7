//! Near-storage commands: data go from a source through a chain of operators to a destination, beside the
//! disk.
//!
//! They are vendor commands of I/O queues, whose opcodes say which way the guest's buffer goes: [`NO_DATA`],
//! [`FROM_GUEST`], [`TO_GUEST`]. So the stock driver's passthrough carries them, which maps one buffer in one
//! direction. `docs/csd.md` has the table of their fields.
//!
//! The standard's commands of subsystem local memory and computational programs come to the same.
//!
//! Operators are those of `dcs_ndp`, run here block by block: neither the engine's core nor the library is
//! between. Both move data between descriptors of their own process, and a guest's memory, a slice under a
//! chain, and device memory are none; and the controller is a state machine without threads, as they are not.

mod batch;
mod budget;
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

use budget::{Budget, Taken};
use dcs_abi::operator::Operator;
use flow::Flow;
use installed::Programs;
use loads::Loads;
use program::Program;
use ready::Ready;
use stream::Stream;

use crate::waste::Waste;

/// Bytes of memory from which on others give it back: it takes the kernel a tenth of a millisecond for each MiB.
const LARGE: u64 = 4 << 20;

/// Parameters that one controller keeps at most.
pub const HANDLES: usize = 64;
/// Result pages that it keeps: those of the last requests.
pub const RESULTS: usize = 64;

/// All that near-storage commands have of a controller.
#[derive(Default)]
pub(crate) struct NearStorage {
    /// By handle, less one.
    programs: Vec<Option<(Arc<Program>, Option<Taken>)>>,
    results: VecDeque<(u32, Box<[u8; RESULT_SIZE]>)>,
    /// By number, less one.
    streams: Vec<Stream>,
    /// The numbers of streams, by place, and what the last one that was opened has above its place.
    stream_numbers: Vec<u16>,
    opened: u16,
    /// Uses of streams so far.
    uses: u64,
    /// Device memory.
    memory: Vec<u8>,
    /// The standard's programs and sets of memory ranges.
    standard: Programs,
    /// Programs that the guest has loaded.
    loads: Loads,
    /// The memory that operators may take.
    budget: Budget,
    /// Commands that wait for memory, in order.
    wanting: VecDeque<u16>,
    /// The slot of a command that gets no memory and is about to end: the others wait until it has.
    refused: Option<u16>,
    /// Commands that can go on without the storage.
    ready: Ready,
    /// Commands that slots work on.
    away: usize,
    /// The work of each operator that there was, by number.
    worked: BTreeMap<u8, (Operator, Worked)>,
    /// Memory that is to be given back.
    waste: Vec<Waste>,
    /// Whoever gives device memory back has one more of it.
    old_memory: Arc<()>,
}

impl NearStorage {
    /// With this many bytes of device memory, and of memory for operators.
    pub fn new(memory: u32, operators: u64) -> NearStorage {
        let (memory, budget) = (vec![0; memory as usize], Budget::new(operators));
        NearStorage { memory, budget, ..NearStorage::default() }
    }

    /// Forgets what the guest has, its secrets included. Commands under way keep theirs. `again`: a reset is going on, and nothing was stored
    /// in device memory since it began.
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
        // New memory: pages that nobody has touched.
        let new = vec![0; self.memory.len()];
        let old = std::mem::replace(&mut self.memory, new);
        if old.len() as u64 >= LARGE {
            self.waste.push(Waste::new((old, Arc::clone(&self.old_memory))));
        }
    }

    /// True where all memory of before a reset was given back: a guest that resets again and again has no more than it
    /// may.
    pub fn is_clean(&self) -> bool {
        Arc::strong_count(&self.old_memory) == 1 && self.loads.is_clean()
    }

    /// Memory that is to be given back.
    pub fn waste(&mut self) -> &mut Vec<Waste> {
        self.loads.empty_bin(&mut self.waste);
        &mut self.waste
    }

    /// Lets go of a flow. Where that may take long, somebody else does it; its memory counts as taken until then.
    fn discard(&mut self, mut flow: Box<Flow>) {
        if let Some(memory) = flow.memory.as_mut().filter(|memory| memory.bytes() >= LARGE) {
            memory.passes();
            // It may be the last that uses a program.
            self.waste.push(Waste::new((flow, self.loads.mark())));
        }
    }

    /// Lets the guest load programs, of which this makes operators.
    pub fn set_builder(&mut self, builder: Builder) {
        self.loads.set_builder(builder);
    }

    /// The number of programs that the guest has loaded, and the bytes of all, with those that are on their way.
    pub fn loaded(&self) -> (usize, u64) {
        self.loads.count()
    }

    /// Programs that may be there at once, and bytes of those that are loaded, in MiB.
    pub fn most_programs(&self) -> (u16, u64) {
        match self.loads.are_taken() {
            true => (program_count() + LOADED, LOADED_MIB),
            false => (program_count(), 0),
        }
    }

    /// Commands that wait neither for the storage nor for a slot.
    pub fn waiting(&self) -> usize {
        self.ready.len() + self.wanting.len()
    }

    /// Commands that slots work on.
    pub fn away(&self) -> usize {
        self.away
    }

    /// Takes out the command that waits for memory of which this is true.
    pub fn abort(&mut self, mut is_wanted: impl FnMut(u16) -> bool) -> Option<u16> {
        let place = self.wanting.iter().position(|index| is_wanted(*index))?;
        self.wanting.remove(place)
    }

    /// Bytes of memory that operators have, or may yet take.
    pub fn operator_memory(&self) -> u64 {
        self.budget.taken()
    }

    /// An operator has worked.
    fn work(&mut self, operator: Operator, work: Worked) {
        let (_, all) = self.worked.entry(operator as u8).or_insert((operator, Worked::default()));
        all.nanoseconds += work.nanoseconds;
        all.bytes += work.bytes;
        all.pieces += work.pieces;
    }

    /// The work of each operator that there was, all guests' commands since the drive was made.
    pub fn worked(&self) -> impl Iterator<Item = (Operator, Worked)> {
        self.worked.values().copied()
    }

    /// Takes one of them out.
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
