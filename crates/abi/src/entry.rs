//! Submission entries (64 bytes) and completion entries (16 bytes), laid out as NVMe's.

use crate::layout::Constant;
use crate::status::Stage;
use crate::wire::wire_struct;
use crate::{CHAIN_MAX, U48, Wire, WireError};

/// Opcode of a transfer. Vendor specific; bits 1:0 = 01b: the controller reads the command's data buffer,
/// which holds the descriptor (NVMe Base 2.1, Opcode field of Command Dword 0).
pub const OPCODE_TRANSFER: u8 = 0x81;
/// Opcode of NVMe's Cancel command (NVMe Base 2.1, I/O command 18h).
pub const OPCODE_CANCEL: u8 = 0x18;

/// Opcodes, for generators.
pub const OPCODES: &[Constant] = &[
    Constant {
        name: "TRANSFER",
        value: OPCODE_TRANSFER as u64,
        doc: "Transfer: source, operator chain, destination (struct dcs_sqe)",
    },
    Constant {
        name: "CANCEL",
        value: OPCODE_CANCEL as u64,
        doc: "cancel a command of the same queue [NVMe I/O command 18h]: op_chain[0..2] = SQID, op_chain[2..4] = CID (CDW10)",
    },
];

wire_struct! {
    /// Submission queue entry: one command. Shaped as an NVMe common command (NVMe Base 2.1, Common
    /// Command Format); FlexCSV (section 4.3.1) names op_chain and rid.
    SubmissionEntry, SubmissionPacket, SUBMISSION, "dcs_sqe", 64 {
        /// Opcode: DCS_OPCODE_*. [NVMe CDW0 bits 7:0]
        opcode: u8 = 0,
        /// Zero. [NVMe CDW0 bits 15:8: no fused commands, PRPs]
        nvme_flags: u8 = 1,
        /// Command identifier, the submitter's choice, unique among the commands in flight of this queue.
        /// [NVMe CDW0 bits 31:16]
        cid: u16 = 2,
        /// Namespace: 0 for the engine itself. [NVMe NSID]
        nsid: u32 = 4,
        /// Request id: a command does not start before the earlier ones of this tenant with the same rid are
        /// finished; 0: no such order. [CDW2; FlexCSV request_id]
        rid: u32 = 8,
        /// Bytes of the descriptor. [CDW3]
        descriptor_length: u32 = 12,
        /// Bus address of the result area, DCS_RESULT_SIZE bytes; 0: none wanted. [NVMe MPTR]
        result_address: u64 = 16,
        /// Bus address of the descriptor. [NVMe DPTR, PRP entry 1]
        descriptor_address: u64 = 24,
        /// The operator chain in the order in which data pass, DCS_OP_*; 0 ends it. [CDW10-11; FlexCSV
        /// op_chain]
        op_chain: [u8; 8] = 40,
        /// Bytes to move, those of the prefix included, or DCS_LENGTH_TO_END: until the source ends or, where
        /// it has extents, all of them. [CDW12-13]
        length: u64 = 48,
        /// Milliseconds after which the command fails with TIMEOUT; 0: never. [CDW14]
        timeout_ms: u32 = 56,
        /// DCS_FLAG_*. [CDW15 bits 15:0]
        flags: u16 = 60,
    }
}

wire_struct! {
    /// Completion queue entry. Shaped as NVMe's (NVMe Base 2.1, Common Completion Queue Entry Layout); DW0
    /// and DW1 say how far the command came, success or not.
    CompletionEntry, CompletionPacket, COMPLETION, "dcs_cqe", 16 {
        /// Bytes that the destination took, in order, from the first one; at most 2^48 - 1. Cancel: commands
        /// aborted later in bits 31:16, at once in bits 15:0. [DW0-1 bits 47:0; NVMe Cancel DW0]
        delivered: U48 = 0,
        /// Stage that failed, DCS_STAGE_*; 0 on success. [DW1 bits 23:16]
        stage: u8 = 6,
        /// Which operator of the chain failed, where stage is OPERATOR. [DW1 bits 31:24]
        stage_index: u8 = 7,
        /// Submission queue head: entries before it may be reused. [DW2 bits 15:0]
        sq_head: u16 = 8,
        /// Submission queue of the command. [DW2 bits 31:16]
        sq_id: u16 = 10,
        /// Command identifier. [DW3 bits 15:0]
        cid: u16 = 12,
        /// Bit 0: phase, inverted each time the queue wraps. Bits 15:1: status, DCS_STATUS_*. [DW3 bits
        /// 31:16]
        status: u16 = 14,
    }
}

/// `length` that means: until the source ends; for a source with extents, all of them.
pub const LENGTH_TO_END: u64 = u64::MAX;

/// The destination is made durable (fdatasync, NVMe flush) before the completion.
pub const FLAG_DURABLE: u16 = 1 << 0;
/// More data follow on the destination socket soon: the last block is sent with MSG_MORE.
pub const FLAG_MORE: u16 = 1 << 1;
/// The completion comes when the destination's peer has acknowledged every byte: not earlier, when all are
/// sent, and not later, when its application has read them.
pub const FLAG_ACKNOWLEDGED: u16 = 1 << 2;

/// The entry has no descriptor: it is an [`InlineEntry`](crate::inline::InlineEntry).
pub const FLAG_INLINE: u16 = 1 << 3;

/// Flags of a submission entry, for generators.
pub const FLAGS: &[Constant] = &[
    Constant {
        name: "DURABLE",
        value: FLAG_DURABLE as u64,
        doc: "make the destination durable (fdatasync, NVMe Flush) before the completion",
    },
    Constant {
        name: "MORE",
        value: FLAG_MORE as u64,
        doc: "more data follow on the destination socket soon (MSG_MORE on the last block)",
    },
    Constant {
        name: "ACKNOWLEDGED",
        value: FLAG_ACKNOWLEDGED as u64,
        doc: "complete when the TCP of the destination's peer has acknowledged every byte; without it, when all are sent. Acknowledged is not read by the peer's application",
    },
    Constant {
        name: "INLINE",
        value: FLAG_INLINE as u64,
        doc: "the entry has no descriptor: it is laid out as struct dcs_inline_sqe",
    },
];

/// All flags that a transfer may have, whichever form its entry has.
pub const FLAGS_ALL: u16 = FLAG_DURABLE | FLAG_MORE | FLAG_ACKNOWLEDGED;

impl SubmissionEntry {
    /// A Cancel entry for command `cid` of queue `sq_id`, itself identified by `own_cid`.
    pub fn cancel(own_cid: u16, sq_id: u16, cid: u16) -> SubmissionEntry {
        let mut op_chain = [0; CHAIN_MAX];
        sq_id.put(&mut op_chain[..2]);
        cid.put(&mut op_chain[2..4]);
        SubmissionEntry { opcode: OPCODE_CANCEL, cid: own_cid, op_chain, ..Default::default() }
    }

    /// The command that a Cancel entry is for: queue and identifier.
    pub fn cancel_target(&self) -> (u16, u16) {
        (u16::get(&self.op_chain[..2]), u16::get(&self.op_chain[2..4]))
    }
}

impl CompletionEntry {
    /// The phase bit.
    pub fn phase(&self) -> bool {
        self.status & 1 == 1
    }

    /// The status.
    pub fn status(&self) -> crate::status::Status {
        crate::status::Status::from_code(self.status >> 1)
    }

    /// Sets status and phase.
    pub fn set_status(&mut self, status: crate::status::Status, phase: bool) {
        self.status = status.code() << 1 | phase as u16;
    }

    /// The stage that failed.
    pub fn stage(&self) -> Stage {
        Stage::from_number(self.stage)
    }

    /// Reads an entry of a ring if its phase bit says that it is new.
    ///
    /// # Errors
    ///
    /// [`WireError`] where the bytes are too few.
    pub fn if_new(bytes: &[u8], phase: bool) -> Result<Option<CompletionEntry>, WireError> {
        let packet = CompletionPacket::new_checked(bytes)?;
        Ok((packet.status() & 1 == phase as u16).then(|| CompletionEntry::get(&bytes[..16])))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::Status;

    #[test]
    fn sixty_four_and_sixteen_bytes_with_nvmes_fields_in_nvmes_places() {
        let entry = SubmissionEntry {
            opcode: 0x81,
            cid: 0x1234,
            nsid: 7,
            descriptor_address: 0xaa,
            ..Default::default()
        };
        let bytes = entry.to_bytes();
        assert_eq!(bytes[0], 0x81);
        assert_eq!(bytes[2..4], [0x34, 0x12]);
        assert_eq!(bytes[4], 7);
        assert_eq!(bytes[24], 0xaa);
        let parsed = SubmissionEntry::parse(&SubmissionPacket::new_checked(&bytes).unwrap()).unwrap();
        assert_eq!(parsed, entry);
    }

    #[test]
    fn the_phase_bit_is_bit_zero_of_the_status_word() {
        let mut entry = CompletionEntry { delivered: U48::saturating(u64::MAX), ..Default::default() };
        entry.set_status(Status::EndOfSource, true);
        let bytes = entry.to_bytes();
        assert_eq!(bytes[14] & 1, 1);
        assert_eq!(CompletionEntry::if_new(&bytes, false).unwrap(), None);
        let read = CompletionEntry::if_new(&bytes, true).unwrap().unwrap();
        assert_eq!(read.status(), Status::EndOfSource);
        assert_eq!(read.delivered.value(), (1 << 48) - 1);
    }

    #[test]
    fn short_bytes_and_reserved_bytes_are_refused() {
        assert_eq!(
            SubmissionPacket::new_checked([0u8; 63]).unwrap_err(),
            WireError::Truncated { needed: 64, given: 63 }
        );
        let mut bytes = [0u8; 64];
        bytes[33] = 1;
        let packet = SubmissionPacket::new_checked(bytes).unwrap();
        assert_eq!(SubmissionEntry::parse(&packet), Err(WireError::Reserved { offset: 33 }));
    }

    #[test]
    fn cancel_carries_its_target_in_cdw10() {
        let entry = SubmissionEntry::cancel(9, 3, 0x0102);
        assert_eq!(entry.to_bytes()[40..44], [3, 0, 2, 1]);
        assert_eq!(entry.cancel_target(), (3, 0x0102));
    }
}
