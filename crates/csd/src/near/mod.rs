//! Near-storage commands: data go from a source through a chain of operators to a destination, beside the
//! disk.
//!
//! They are vendor commands of I/O queues, whose opcodes say which way the guest's buffer goes: [`NO_DATA`],
//! [`FROM_GUEST`], [`TO_GUEST`]. So the stock driver's passthrough carries them, which maps one buffer in one
//! direction. `docs/csd.md` has the table of their fields.
//!
//! Operators are those of `dcs_ndp`, run here block by block: neither the engine's core nor the library is
//! between. Both move data between descriptors of their own process, and a guest's memory, a slice under a
//! chain, and device memory are none; and the controller is a state machine without threads, as they are not.

mod pipeline;
mod program;
mod run;
mod stream;

use std::collections::VecDeque;
use std::sync::Arc;

use dcs_nvme::Status;
use dcs_nvme::bytes::u32_at;
use dcs_nvme::command;

pub(crate) use run::Near;
pub use stream::{ENDED, STREAMS};

use program::Program;
use stream::Stream;

/// No buffer of the guest.
pub const NO_DATA: u8 = 0xc0;
/// Its buffer is the source.
pub const FROM_GUEST: u8 = 0xc1;
/// Its buffer is the destination.
pub const TO_GUEST: u8 = 0xc2;

/// Where data of a near-storage command are: the values of its double word 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// 0: the guest's buffer.
    Guest,
    /// 1: logical blocks of the command's namespace.
    Blocks,
    /// 2: device memory.
    Memory,
    /// 3: parameters: as a destination they are loaded, as a source forgotten.
    Parameters,
    /// 4: the result page of a request that ended, or of a stream, as a source.
    Results,
    /// 5: a stream: as a destination it is opened; as a source its output is taken, or it is closed.
    Stream,
    /// 6: nowhere, as a destination: what comes out is dropped, and digests are told.
    Nowhere,
}

impl Place {
    fn from_bits(bits: u32) -> Option<Place> {
        Some(match bits {
            0 => Place::Guest,
            1 => Place::Blocks,
            2 => Place::Memory,
            3 => Place::Parameters,
            4 => Place::Results,
            5 => Place::Stream,
            6 => Place::Nowhere,
            _ => return None,
        })
    }
}

/// The fields of a near-storage command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fields {
    /// Where the data come from: double word 2, bits 3:0.
    pub source: Place,
    /// Where they go: bits 7:4.
    pub destination: Place,
    /// Parameters that were loaded, 0: no operators; or a stream's number. Bits 31:16.
    pub handle: u16,
    /// The guest's own number for it, by which its result page is found: double word 3.
    pub request: u32,
    /// Bytes of the guest's buffer: double word 10, in double words.
    pub buffer: u64,
    /// Length of the source: double word 11, in logical blocks or bytes; bytes of a stream's source after
    /// which its command ends, 0: none.
    pub length: u64,
    /// Where in the source: double words 12 and 13, in logical blocks or bytes; 0 for a buffer.
    pub first: u64,
    /// Where in the destination: double words 14 and 15.
    pub target: u64,
    /// Room in the destination, in logical blocks or bytes: the buffer's; double word 12 where the buffer is
    /// the source; double word 10 where there is none.
    pub room: u64,
}

impl Fields {
    /// Of an entry.
    ///
    /// # Errors
    ///
    /// Invalid Field in Command, where a place has no meaning or not with this opcode.
    pub fn from_entry(entry: &[u8; command::SIZE]) -> Result<Fields, Status> {
        let word = |at: usize| u32_at(entry, 4 * at);
        let long = |at: usize| u64::from(word(at + 1)) << 32 | u64::from(word(at));
        let place = |shift: u32| Place::from_bits(word(2) >> shift & 0xf).ok_or(Status::INVALID_FIELD);
        let (source, destination, buffer) = (place(0)?, place(4)?, u64::from(word(10)) * 4);
        let fields = |first, room| Fields {
            source,
            destination,
            handle: (word(2) >> 16) as u16,
            request: word(3),
            buffer,
            length: word(11).into(),
            first,
            target: long(14),
            room,
        };
        use Place::{Blocks, Guest, Memory, Nowhere, Parameters, Results, Stream};
        let fields = match (entry[0], source, destination) {
            (NO_DATA, Blocks | Memory, Blocks | Memory) => fields(long(12), word(10).into()),
            (NO_DATA, Stream, Memory) => fields(0, word(10).into()),
            (NO_DATA, Blocks | Memory | Stream, Nowhere) => fields(long(12), 0),
            (NO_DATA, Parameters | Stream, Guest) => fields(0, 0),
            (FROM_GUEST, Guest, Blocks | Memory | Parameters | Stream) => fields(0, word(12).into()),
            (TO_GUEST, Blocks | Memory | Results | Stream, Guest) => fields(long(12), buffer),
            _ => return Err(Status::INVALID_FIELD),
        };
        let reserved = word(2) & 0xff00 != 0;
        if reserved { Err(Status::INVALID_FIELD) } else { Ok(fields) }
    }
}

/// Parameters that one controller keeps at most.
pub const HANDLES: usize = 64;
/// Result pages that it keeps: those of the last requests.
pub const RESULTS: usize = 64;
/// Bytes of a result page.
pub const RESULT_SIZE: usize = 768;

/// All that near-storage commands have of a controller.
#[derive(Default)]
pub(crate) struct NearStorage {
    /// By handle, less one.
    programs: Vec<Option<Arc<Program>>>,
    results: VecDeque<(u32, Box<[u8; RESULT_SIZE]>)>,
    /// By number, less one.
    streams: Vec<Stream>,
    /// Uses of streams so far.
    uses: u64,
    /// Device memory.
    memory: Vec<u8>,
    /// Commands that can go on without the storage.
    ready: VecDeque<u16>,
}

impl NearStorage {
    /// With so many bytes of device memory.
    pub fn new(memory: u32) -> NearStorage {
        NearStorage { memory: vec![0; memory as usize], ..NearStorage::default() }
    }

    /// The guest's secrets go with it. Commands under way keep theirs.
    pub fn reset(&mut self) {
        self.programs.clear();
        self.results.clear();
        self.streams.clear();
        self.ready.clear();
        // New memory: pages that nobody has touched.
        self.memory = vec![0; self.memory.len()];
    }

    /// Commands that do not wait for the storage.
    pub fn waiting(&self) -> usize {
        self.ready.len()
    }

    /// Takes one of them out.
    pub fn take_ready(&mut self) -> Option<u16> {
        self.ready.pop_front()
    }

    fn load(&mut self, program: Program) -> Option<u16> {
        let place = self.programs.iter().position(Option::is_none).unwrap_or(self.programs.len());
        if place >= HANDLES {
            return None;
        }
        if place == self.programs.len() {
            self.programs.push(None);
        }
        self.programs[place] = Some(Arc::new(program));
        Some(place as u16 + 1)
    }

    fn program(&self, handle: u16) -> Option<&Arc<Program>> {
        self.programs.get(usize::from(handle).checked_sub(1)?)?.as_ref()
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
