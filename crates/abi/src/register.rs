//! Registers and doorbells of an engine that is a PCIe function.
//!
//! The controller registers are NVMe's (NVMe Base 2.1, Controller Properties) at NVMe's offsets, so that a
//! stock NVMe driver finds what it expects. What NVMe has no register for lies in a block of its own, at
//! [`ENGINE_BLOCK`]. An engine in the same process has the same doorbells as plain variables and the rest as
//! methods.

use dcs_nvme::register as nvme;

/// Access to a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Read only.
    ReadOnly,
    /// Read and write.
    ReadWrite,
    /// Write only: reads return zero.
    WriteOnly,
}

/// One register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Register {
    /// Name, upper case.
    pub name: &'static str,
    /// Byte offset in BAR0.
    pub offset: usize,
    /// Bytes: 4 or 8.
    pub width: usize,
    /// Access.
    pub access: Access,
    /// Meaning and source.
    pub doc: &'static str,
}

/// Where the engine's own registers start in BAR0. NVMe Base 2.1 reserves 0E1Ch to 0FFFh.
pub const ENGINE_BLOCK: usize = 0xf00;
/// The first doorbell (NVMe over PCIe Transport 1.1, doorbell properties).
pub const DOORBELL_BASE: usize = nvme::DOORBELLS as usize;

/// Identity of an engine: [`ENGINE_ID_VALUE`].
pub const ENGINE_ID: usize = 0xf00;
/// Version of this command set.
pub const ENGINE_ABI: usize = 0xf04;
/// Bytes of a block buffer.
pub const ENGINE_BLOCK_SIZE: usize = 0xf08;
/// Block buffers in all.
pub const ENGINE_BLOCKS: usize = 0xf0c;
/// Block buffers that are free now.
pub const ENGINE_BLOCKS_FREE: usize = 0xf10;
/// Commands that may be active at once.
pub const ENGINE_COMMANDS: usize = 0xf14;
/// Scoreboard entries: in use 15:0, in all 31:16.
pub const ENGINE_SCOREBOARD: usize = 0xf18;
/// Operators that are there, a bit each; 8 bytes.
pub const ENGINE_OPERATORS: usize = 0xf20;

/// The ASCII letters 'DCS1', most significant first: what [`ENGINE_ID`] holds.
pub const ENGINE_ID_VALUE: u32 = 0x4443_5331;

const fn register(
    name: &'static str,
    offset: usize,
    width: usize,
    access: Access,
    doc: &'static str,
) -> Register {
    Register { name, offset, width, access, doc }
}

/// Every register but the doorbells, by rising offset.
#[rustfmt::skip]
pub const REGISTERS: &[Register] = &[
    register("CAP", nvme::CAP as usize, 8, Access::ReadOnly, "controller capabilities: MQES 15:0, CQR 16, TO 31:24, DSTRD 35:32, CSS 44:37, MPSMIN 51:48, MPSMAX 55:52 [NVMe CAP]"),
    register("VS", nvme::VS as usize, 4, Access::ReadOnly, "version, 0x00020100 [NVMe VS]"),
    register("INTMS", nvme::INTMS as usize, 4, Access::ReadWrite, "interrupt mask set [NVMe INTMS]"),
    register("INTMC", nvme::INTMC as usize, 4, Access::ReadWrite, "interrupt mask clear [NVMe INTMC]"),
    register("CC", nvme::CC as usize, 4, Access::ReadWrite, "controller configuration: EN 0, CSS 6:4, MPS 10:7, AMS 13:11, SHN 15:14, IOSQES 19:16 (6: 64 bytes), IOCQES 23:20 (4: 16 bytes) [NVMe CC]"),
    register("CSTS", nvme::CSTS as usize, 4, Access::ReadOnly, "controller status: RDY 0, CFS 1, SHST 3:2 [NVMe CSTS]"),
    register("AQA", nvme::AQA as usize, 4, Access::ReadWrite, "admin queue attributes: ASQS 11:0, ACQS 27:16, zero-based [NVMe AQA]"),
    register("ASQ", nvme::ASQ as usize, 8, Access::ReadWrite, "admin submission queue base address [NVMe ASQ]"),
    register("ACQ", nvme::ACQ as usize, 8, Access::ReadWrite, "admin completion queue base address [NVMe ACQ]"),
    register("ENGINE_ID", ENGINE_ID, 4, Access::ReadOnly, "0x44435331: the ASCII letters 'DCS1', most significant first"),
    register("ENGINE_ABI", ENGINE_ABI, 4, Access::ReadOnly, "version of this command set, DCS_ABI_VERSION"),
    register("ENGINE_BLOCK_SIZE", ENGINE_BLOCK_SIZE, 4, Access::ReadOnly, "bytes of a block buffer"),
    register("ENGINE_BLOCKS", ENGINE_BLOCKS, 4, Access::ReadOnly, "block buffers in all (the credits of the D2D protocol's Rx Base Credit)"),
    register("ENGINE_BLOCKS_FREE", ENGINE_BLOCKS_FREE, 4, Access::ReadOnly, "block buffers that are free now"),
    register("ENGINE_COMMANDS", ENGINE_COMMANDS, 4, Access::ReadOnly, "commands that may be active at once"),
    register("ENGINE_SCOREBOARD", ENGINE_SCOREBOARD, 4, Access::ReadOnly, "scoreboard entries: in use 15:0, in all 31:16"),
    register("ENGINE_OPERATORS", ENGINE_OPERATORS, 8, Access::ReadOnly, "bit n: operator number n (below 64) is there"),
];

/// Bytes from one doorbell to the next.
const DOORBELL_STRIDE: u64 = 4;

/// Offset of a queue's submission tail doorbell, for `CAP.DSTRD` = 0.
pub const fn sq_tail_doorbell(queue: u16) -> usize {
    nvme::tail_doorbell(queue, DOORBELL_STRIDE) as usize
}

/// Offset of a queue's completion head doorbell, for `CAP.DSTRD` = 0.
pub const fn cq_head_doorbell(queue: u16) -> usize {
    nvme::head_doorbell(queue, DOORBELL_STRIDE) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_do_not_overlap_and_are_aligned() {
        for pair in REGISTERS.windows(2) {
            assert!(pair[0].offset + pair[0].width <= pair[1].offset, "{}", pair[1].name);
        }
        for register in REGISTERS {
            assert_eq!(register.offset % register.width, 0, "{}", register.name);
            assert!(register.offset + register.width <= DOORBELL_BASE);
        }
        assert_eq!(sq_tail_doorbell(1), 0x1008);
        assert_eq!(cq_head_doorbell(1), 0x100c);
    }
}
