//! The Computational Programs command set (CSI 4): programs of a controller that work on subsystem local
//! memory.
//!
//! The specification (revision 1.0 of January 2024, and later) was not available. Opcodes of admin commands are libnvme's; the rest follows
//! two implementations where they agree, SPDK's of `hsung-yang/spdk`, which names the figures of revision 1.1, and CEMU's. Items that only
//! one of them has are marked. Statuses are from base 2.2 figure 104, numbers of log pages from its figure 31.

use crate::bytes::{put, u16_at, u32_at, u64_at};
use crate::command;

/// Execute program, the command of I/O queues: [`Execute`].
pub const EXECUTE: u8 = 0x01;

/// An execution. Its data are descriptors of memory ranges ([`MemoryRange`]), then the program's parameters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Execute {
    /// Program index: double word 2 bits 15:0 (PIND).
    pub program: u16,
    /// Set of memory ranges that it works on; 0: those in the data. Double word 2 bits 31:16 (RSID).
    pub set: u16,
    /// Number of memory ranges in the data: double word 3 (NUMR).
    pub ranges: u32,
    /// Length of the data in bytes: double word 4 (DLEN).
    pub length: u32,
    /// Parameters of the program: double words 10 and 11, 12 and 13 (CPARAM1, CPARAM2).
    pub parameters: [u64; 2],
}

impl Execute {
    /// Decodes an entry.
    pub fn from_entry(entry: &[u8; command::SIZE]) -> Execute {
        Execute {
            program: u16_at(entry, 8),
            set: u16_at(entry, 10),
            ranges: u32_at(entry, 12),
            length: u32_at(entry, 16),
            parameters: [u64_at(entry, 40), u64_at(entry, 48)],
        }
    }

    /// Writes its fields to an entry.
    pub fn put(self, entry: &mut [u8; command::SIZE]) {
        put(entry, 8, &self.program.to_le_bytes());
        put(entry, 10, &self.set.to_le_bytes());
        put(entry, 12, &self.ranges.to_le_bytes());
        put(entry, 16, &self.length.to_le_bytes());
        put(entry, 40, &self.parameters[0].to_le_bytes());
        put(entry, 48, &self.parameters[1].to_le_bytes());
    }
}

/// A program to load, in one command or several, or to unload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadProgram {
    /// Program index: double word 10 bits 15:0 (PIND).
    pub program: u16,
    /// Program type: bits 23:16 (PTYPE).
    pub kind: u8,
    /// Set to unload: bit 24 (SEL).
    pub unload: bool,
    /// Identifier type: bits 27:25 (PIT). 0: it has none; 1: a number.
    pub identifier_kind: u8,
    /// Bytes of the whole program: double word 11 (PSIZE).
    pub size: u32,
    /// Identifier: double words 12 and 13 (PID).
    pub identifier: u64,
    /// Bytes of this command's data: double word 14 (NUMB).
    pub bytes: u32,
    /// Place of these bytes in the program: double word 15 (LOFF).
    pub offset: u32,
}

impl LoadProgram {
    /// Decodes a command's double words.
    pub fn from_words(words: &[u32; 6]) -> LoadProgram {
        let [low, high, kind, flags] = words[0].to_le_bytes();
        LoadProgram {
            program: u16::from_le_bytes([low, high]),
            kind,
            unload: flags & 1 != 0,
            identifier_kind: flags >> 1 & 7,
            size: words[1],
            identifier: u64::from(words[3]) << 32 | u64::from(words[2]),
            bytes: words[4],
            offset: words[5],
        }
    }

    /// Encodes it as a command's double words.
    pub fn words(self) -> [u32; 6] {
        let flags = u32::from(self.identifier_kind & 7) << 1 | u32::from(self.unload);
        let word = flags << 24 | u32::from(self.kind) << 16 | u32::from(self.program);
        let identifier = [self.identifier as u32, (self.identifier >> 32) as u32];
        [word, self.size, identifier[0], identifier[1], self.bytes, self.offset]
    }
}

/// A program to activate or deactivate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProgramActivation {
    /// Program index: double word 10 bits 15:0 (PIND).
    pub program: u16,
    /// Action, bits 19:16 (SEL): 1 activates, 0 deactivates.
    pub select: u8,
}

impl ProgramActivation {
    /// Decodes a command's double words.
    pub fn from_words(words: &[u32; 6]) -> ProgramActivation {
        ProgramActivation { program: words[0] as u16, select: (words[0] >> 16 & 0xf) as u8 }
    }

    /// Encodes it as a command's double words.
    pub fn words(self) -> [u32; 6] {
        [u32::from(self.select & 0xf) << 16 | u32::from(self.program), 0, 0, 0, 0, 0]
    }
}

/// A set of memory ranges to create, from the descriptors in the data, or to delete. The completion's double word 0 is the number of the
/// new one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryRangeSets {
    /// Action, double word 10 bits 3:0 (SEL): 0 creates, 1 deletes.
    pub select: u8,
    /// Set to delete: double word 10 bits 31:16 (RSID).
    pub set: u16,
    /// Number of memory ranges of the set to create: double word 11 bits 7:0 (NUMR).
    pub ranges: u8,
}

impl MemoryRangeSets {
    /// Decodes a command's double words.
    pub fn from_words(words: &[u32; 6]) -> MemoryRangeSets {
        MemoryRangeSets {
            select: (words[0] & 0xf) as u8,
            set: (words[0] >> 16) as u16,
            ranges: words[1] as u8,
        }
    }

    /// Encodes it as a command's double words.
    pub fn words(self) -> [u32; 6] {
        [u32::from(self.set) << 16 | u32::from(self.select & 0xf), self.ranges.into(), 0, 0, 0, 0]
    }
}

/// A memory range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryRange {
    /// Namespace of subsystem local memory.
    pub namespace: u32,
    /// Length in bytes.
    pub length: u32,
    /// First byte.
    pub first: u64,
}

impl MemoryRange {
    /// Size of a descriptor in bytes.
    pub const SIZE: usize = 32;

    /// Decodes a descriptor. Bytes past the end of `bytes` count as zero.
    pub fn from_bytes(bytes: &[u8]) -> MemoryRange {
        MemoryRange { namespace: u32_at(bytes, 0), length: u32_at(bytes, 4), first: u64_at(bytes, 8) }
    }

    /// Encodes it as bytes.
    pub fn bytes(self) -> [u8; MemoryRange::SIZE] {
        let mut bytes = [0; MemoryRange::SIZE];
        put(&mut bytes, 0, &self.namespace.to_le_bytes());
        put(&mut bytes, 4, &self.length.to_le_bytes());
        put(&mut bytes, 8, &self.first.to_le_bytes());
        bytes
    }
}

/// Identify data of a namespace of programs. Only SPDK's fork has them. [figure 36]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Namespace {
    /// Most programs that may be activated (MAXACT).
    pub activated: u16,
    /// Most sets of memory ranges (MAXMEMRS).
    pub sets: u16,
    /// Alignment of both ends of memory ranges, as `1 << granularity` bytes (MRSG).
    pub granularity: u16,
    /// Most memory ranges of a set (MAXMEMR).
    pub ranges: u8,
    /// Most bytes of all loaded programs, in MiB (MAXPB).
    pub program_bytes: u64,
}

impl Namespace {
    /// Decodes identify data.
    pub fn from_bytes(data: &[u8; crate::identify::SIZE]) -> Namespace {
        Namespace {
            activated: u16_at(data, 0),
            sets: u16_at(data, 2),
            granularity: u16_at(data, 4),
            ranges: data[6],
            program_bytes: u64_at(data, 8),
        }
    }

    /// Encodes it as identify data.
    pub fn bytes(&self) -> [u8; crate::identify::SIZE] {
        let mut data = [0; crate::identify::SIZE];
        put(&mut data, 0, &self.activated.to_le_bytes());
        put(&mut data, 2, &self.sets.to_le_bytes());
        put(&mut data, 4, &self.granularity.to_le_bytes());
        put(&mut data, 6, &[self.ranges]);
        put(&mut data, 8, &self.program_bytes.to_le_bytes());
        data
    }
}

/// Bytes before the first descriptor of the log of programs: their number, of 32 bits, then zeros. No source has the specification's
/// layout: this one is from its draft of July 2021 (TP 4091).
pub const LIST_HEADER: usize = 64;

/// A program's entry in the log: one for each index, from 0 on. Only SPDK's fork has it. [figure 27]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Descriptor {
    /// Occupancy of the index (PEOCC): 0 empty, 1 a loaded program, 2 a program of the controller.
    pub occupied: u8,
    /// Set if the program is activated (ACT).
    pub activated: bool,
    /// Program type (PTYPE): 0 for a program of the controller.
    pub kind: u8,
    /// Unique identifier of the program, if it has one (PIT, PID).
    pub identifier: Option<u64>,
}

impl Descriptor {
    /// Size of a descriptor in bytes.
    pub const SIZE: usize = 64;

    /// Decodes a descriptor. Bytes past the end of `bytes` count as zero.
    pub fn from_bytes(bytes: &[u8]) -> Descriptor {
        let flags = u16_at(bytes, 0);
        Descriptor {
            occupied: (flags & 3) as u8,
            activated: flags & 4 != 0,
            kind: (flags >> 8) as u8,
            identifier: (flags >> 3 & 7 == 1).then(|| u64_at(bytes, 8)),
        }
    }

    /// Encodes it as bytes.
    pub fn bytes(self) -> [u8; Descriptor::SIZE] {
        let mut bytes = [0; Descriptor::SIZE];
        let identified = u8::from(self.identifier.is_some());
        bytes[0] = self.occupied & 3 | u8::from(self.activated) << 2 | identified << 3;
        bytes[1] = self.kind;
        put(&mut bytes, 8, &self.identifier.unwrap_or_default().to_le_bytes());
        bytes
    }
}
