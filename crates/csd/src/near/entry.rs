//! The fields of near-storage commands in their entries.

use dcs_nvme::Status;
use dcs_nvme::bytes::u32_at;
use dcs_nvme::command;

/// No buffer of the guest.
pub const NO_DATA: u8 = 0xc0;
/// Its buffer is the source.
pub const FROM_GUEST: u8 = 0xc1;
/// Its buffer is the destination.
pub const TO_GUEST: u8 = 0xc2;

/// Where data of a near-storage command are: the values of its double word 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataLocation {
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
    /// 5: a stream: as a destination it is opened; as a source its output is taken, with the buffer's bytes as its next input
    /// if the opcode has one from the guest, or it is closed.
    Stream,
    /// 6: nowhere, as a destination: what comes out is dropped, and digests are told.
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
    /// Where the data come from: double word 2, bits 3:0.
    pub source: DataLocation,
    /// Where they go: bits 7:4.
    pub destination: DataLocation,
    /// Parameters that were loaded, 0: no operators; or a stream's number. Bits 31:16.
    pub handle: u16,
    /// The guest's own number for it, by which its result page is found: double word 3.
    pub request: u32,
    /// Bytes of the guest's buffer: double word 10, in double words.
    pub buffer: u64,
    /// Length of the source: double word 11, in logical blocks or bytes; bytes of a stream's source after
    /// which its command ends, 0: none.
    pub length: u64,
    /// Where in the source: double words 12 and 13, in logical blocks or bytes; 0 for a buffer. Of a stream's input: 1 if
    /// nothing follows it (double word 13).
    pub first: u64,
    /// Where in the destination: double words 14 and 15.
    pub target: u64,
    /// Room in the destination, in logical blocks or bytes: the buffer's; double word 12 where the buffer is
    /// the source; double word 10 where there is none.
    pub room: u64,
}

impl Fields {
    /// Decodes an entry.
    ///
    /// # Errors
    ///
    /// Invalid Field in Command, where a place has no meaning or not with this opcode.
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
            // The output is taken by later commands.
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
