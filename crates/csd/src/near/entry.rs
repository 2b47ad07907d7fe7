//! Entries of near-storage commands.

use dcs_nvme::Status;
use dcs_nvme::bytes::u32_at;
use dcs_nvme::command;

/// The guest has no buffer.
pub const NO_DATA: u8 = 0xc0;
/// The guest's buffer is the source.
pub const FROM_GUEST: u8 = 0xc1;
/// The guest's buffer is the destination.
pub const TO_GUEST: u8 = 0xc2;

/// Places of a near-storage command's data: the values in double word 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataLocation {
    /// 0: the guest's buffer.
    Guest,
    /// 1: logical blocks of the command's namespace.
    Blocks,
    /// 2: device memory.
    Memory,
    /// 3: parameters: a destination loads them, a source forgets them.
    Parameters,
    /// 4: the result page of a request that has ended, or of a stream; a source only.
    Results,
    /// 5: a stream. A destination opens it; a source takes its output, with the guest's buffer as its next
    /// input if the opcode has one from the guest, or closes it.
    Stream,
    /// 6: nowhere, a destination only: output is dropped, and only digests are kept.
    Nowhere,
}

impl DataLocation {
    fn from_bits(bits: u32) -> Option<DataLocation> {
        Some(match bits {
            0 => DataLocation::Guest,
            1 => DataLocation::Blocks,
            2 => DataLocation::Memory,
            3 => DataLocation::Parameters,
            4 => DataLocation::Results,
            5 => DataLocation::Stream,
            6 => DataLocation::Nowhere,
            _ => return None,
        })
    }
}

/// The fields of a near-storage command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fields {
    /// Source: double word 2, bits 3:0.
    pub source: DataLocation,
    /// Destination: double word 2, bits 7:4.
    pub destination: DataLocation,
    /// Handle of loaded parameters (0: no operators), or number of a stream: double word 2, bits 31:16.
    pub handle: u16,
    /// The guest's own number of the request, by which it finds the result page: double word 3.
    pub request: u32,
    /// Bytes of the guest's buffer: double word 10, in double words.
    pub buffer: u64,
    /// Length of the source: double word 11, in logical blocks or bytes. For a stream the bytes of its source
    /// after which the command ends; 0: no limit.
    pub length: u64,
    /// First block or byte of the source: double words 12 and 13; 0 for a buffer. For a stream's input,
    /// double word 13 is 1 if it is the last.
    pub first: u64,
    /// First block or byte of the destination: double words 14 and 15.
    pub target: u64,
    /// Room in the destination, in logical blocks or bytes: of the buffer; double word 12 if the buffer is
    /// the source; double word 10 if there is no buffer.
    pub room: u64,
}

impl Fields {
    /// Decodes an entry.
    ///
    /// # Errors
    ///
    /// Returns Invalid Field in Command if a place is not defined, or not with this opcode.
    pub fn from_entry(entry: &[u8; command::SIZE]) -> Result<Fields, Status> {
        let word = |at: usize| u32_at(entry, 4 * at);
        let long = |at: usize| u64::from(word(at + 1)) << 32 | u64::from(word(at));
        let place = |shift: u32| DataLocation::from_bits(word(2) >> shift & 0xf).ok_or(Status::INVALID_FIELD);
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
        use DataLocation::{Blocks, Guest, Memory, Nowhere, Parameters, Results, Stream};
        let fields = match (entry[0], source, destination) {
            (NO_DATA, Blocks | Memory, Blocks | Memory) => fields(long(12), word(10).into()),
            (NO_DATA, Stream, Blocks | Memory) => fields(0, word(10).into()),
            (NO_DATA, Blocks | Memory | Stream, Nowhere) => fields(long(12), 0),
            (NO_DATA, Parameters | Stream, Guest) => fields(0, 0),
            (FROM_GUEST, Guest, Blocks | Memory | Parameters | Stream) => fields(0, word(12).into()),
            (FROM_GUEST, Stream, Blocks | Memory | Nowhere) if word(13) <= 1 => {
                fields(word(13).into(), word(12).into())
            }
            // Later commands take the output.
            (FROM_GUEST, Stream, Guest) if word(13) <= 1 => fields(word(13).into(), 0),
            (TO_GUEST, Blocks | Memory | Results | Stream, Guest) => fields(long(12), buffer),
            _ => return Err(Status::INVALID_FIELD),
        };
        let reserved = word(2) & 0xff00 != 0;
        if reserved { Err(Status::INVALID_FIELD) } else { Ok(fields) }
    }
}

/// Bytes of a result page.
pub const RESULT_SIZE: usize = 768;
