//! Numbers and layouts of the NVMe base specification 1.4 and its NVM command set, as far as the model has them.

/// A status as a completion carries it, without the phase bit: SC in bits 7:0, SCT in 10:8, DNR in 14 [NVMe 1.4, 4.6.1].
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Status(pub u16);

impl std::fmt::Debug for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Status({:x}:{:02x})", (self.0 >> 8) & 7, self.0 & 0xff)
    }
}

impl Status {
    const fn generic(code: u16) -> Status {
        Status(code)
    }

    /// A repetition fails the same way.
    const fn final_generic(code: u16) -> Status {
        Status(code | 1 << 14)
    }

    const fn final_specific(code: u16) -> Status {
        Status(code | 1 << 8 | 1 << 14)
    }

    pub const SUCCESS: Status = Status::generic(0x00);
    pub const INVALID_OPCODE: Status = Status::final_generic(0x01);
    pub const INVALID_FIELD: Status = Status::final_generic(0x02);
    pub const ID_CONFLICT: Status = Status::generic(0x03);
    pub const DATA_TRANSFER_ERROR: Status = Status::generic(0x04);
    pub const ABORT_REQUESTED: Status = Status::generic(0x07);
    pub const SQ_DELETED: Status = Status::generic(0x08);
    pub const INVALID_NAMESPACE: Status = Status::final_generic(0x0b);
    pub const SEQUENCE_ERROR: Status = Status::final_generic(0x0c);
    pub const INVALID_SGL_SEGMENT: Status = Status::final_generic(0x0d);
    pub const INVALID_SGL_COUNT: Status = Status::final_generic(0x0e);
    pub const SGL_LENGTH_INVALID: Status = Status::final_generic(0x0f);
    pub const SGL_TYPE_INVALID: Status = Status::final_generic(0x11);
    pub const PRP_OFFSET_INVALID: Status = Status::final_generic(0x13);
    pub const LBA_OUT_OF_RANGE: Status = Status::final_generic(0x80);
    pub const INVALID_CQ: Status = Status::final_specific(0x00);
    pub const INVALID_QUEUE_ID: Status = Status::final_specific(0x01);
    pub const INVALID_QUEUE_SIZE: Status = Status::final_specific(0x02);
    pub const AER_LIMIT: Status = Status::final_specific(0x05);
    pub const INVALID_VECTOR: Status = Status::final_specific(0x08);
    pub const INVALID_LOG_PAGE: Status = Status::final_specific(0x09);
    pub const INVALID_DELETION: Status = Status::final_specific(0x0c);
    pub const NOT_SAVEABLE: Status = Status::final_specific(0x0d);
    pub const NOT_CHANGEABLE: Status = Status::final_specific(0x0e);
}

/// Opcodes of the admin queue [NVMe 1.4, figure 139].
pub mod admin {
    pub const DELETE_SQ: u8 = 0x00;
    pub const CREATE_SQ: u8 = 0x01;
    pub const GET_LOG_PAGE: u8 = 0x02;
    pub const DELETE_CQ: u8 = 0x04;
    pub const CREATE_CQ: u8 = 0x05;
    pub const IDENTIFY: u8 = 0x06;
    pub const ABORT: u8 = 0x08;
    pub const SET_FEATURES: u8 = 0x09;
    pub const GET_FEATURES: u8 = 0x0a;
    pub const ASYNC_EVENT: u8 = 0x0c;
}

/// Opcodes of I/O queues [NVMe 1.4, figure 346].
pub mod io {
    pub const FLUSH: u8 = 0x00;
    pub const WRITE: u8 = 0x01;
    pub const READ: u8 = 0x02;
    pub const WRITE_ZEROES: u8 = 0x08;
}

/// Bytes of a submission queue entry.
pub const SQE: u64 = 64;
/// Bytes of a completion queue entry.
pub const CQE: u64 = 16;

/// A command, taken apart [NVMe 1.4, 4.2].
#[derive(Clone, Debug)]
pub struct Command {
    /// CDW0 bits 7:0.
    pub opcode: u8,
    /// Fused operation.
    pub fuse: u8,
    /// PRP or SGL for data transfer.
    pub psdt: u8,
    /// Command identifier.
    pub cid: u16,
    /// Namespace identifier.
    pub nsid: u32,
    /// Data pointer: two PRP entries, or an SGL descriptor.
    pub data: [u8; 16],
    /// Command dwords 10 to 15.
    pub dwords: [u32; 6],
}

impl Command {
    /// The command in 64 bytes.
    pub fn parse(entry: &[u8]) -> Command {
        let dword = |at: usize| u32::from_le_bytes(entry[at..at + 4].try_into().expect("four bytes"));
        let first = dword(0);
        Command {
            opcode: first as u8,
            fuse: (first >> 8) as u8 & 3,
            psdt: (first >> 14) as u8 & 3,
            cid: (first >> 16) as u16,
            nsid: dword(4),
            data: entry[24..40].try_into().expect("16 bytes"),
            dwords: std::array::from_fn(|i| dword(40 + 4 * i)),
        }
    }

    /// Command dword `number`, 10 to 15.
    pub fn dword(&self, number: usize) -> u32 {
        self.dwords[number - 10]
    }

    /// First logical block of a read, write or write zeroes.
    pub fn lba(&self) -> u64 {
        u64::from(self.dword(11)) << 32 | u64::from(self.dword(10))
    }

    /// How many logical blocks: the field counts from zero.
    pub fn blocks(&self) -> u64 {
        u64::from(self.dword(12) & 0xffff) + 1
    }

    /// The first PRP entry.
    pub fn prp1(&self) -> u64 {
        u64::from_le_bytes(self.data[..8].try_into().expect("eight bytes"))
    }

    /// The second PRP entry.
    pub fn prp2(&self) -> u64 {
        u64::from_le_bytes(self.data[8..].try_into().expect("eight bytes"))
    }
}

/// A completion, before it has a phase.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Completion {
    pub(crate) result: u32,
    pub(crate) queue: u16,
    pub(crate) head: u16,
    pub(crate) cid: u16,
    pub(crate) status: Status,
}

impl Completion {
    pub(crate) fn emit(&self, phase: bool) -> Vec<u8> {
        let mut entry = vec![0; CQE as usize];
        entry[..4].copy_from_slice(&self.result.to_le_bytes());
        entry[8..10].copy_from_slice(&self.head.to_le_bytes());
        entry[10..12].copy_from_slice(&self.queue.to_le_bytes());
        entry[12..14].copy_from_slice(&self.cid.to_le_bytes());
        entry[14..].copy_from_slice(&(self.status.0 << 1 | u16::from(phase)).to_le_bytes());
        entry
    }
}
