//! What the card's own work takes, in virtual time.
//!
//! A card of software takes the time that it takes; one in virtual time is given costs of hardware, so that what the engine
//! adds to devices and links can be told.

use dcs_engine::{Action, Nanos};

/// Costs of the card's own work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// Nanoseconds of a clock cycle.
    pub cycle: Nanos,
    /// Cycles that the engine is at an action before that has an effect: reading and writing a scoreboard row, arbitration, building a command.
    pub action: u64,
    /// Cycles from an input block's first word to an operator unit's first answer.
    pub unit_latency: u64,
    /// Bytes that a unit takes in a cycle.
    pub unit_width: u64,
}

impl Costs {
    /// Nothing takes any time of its own.
    pub const NONE: Costs = Costs { cycle: 0, action: 0, unit_latency: 0, unit_width: 1 };

    /// An FPGA at 250 MHz, the clock of the prototypes (DCS-ctrl: PCIe gen 2 x8 on a Virtex-7). An action takes 12 cycles: four for
    /// the row (two reads and two writes of a block RAM of one cycle each), two for arbitration, four to write an NVMe entry of
    /// 64 bytes 16 bytes wide, two for the doorbell. Units take 16 bytes a cycle, as that of AES does (one round a stage);
    /// that of a serial digest takes less (MD5: 64 bytes in 68 cycles), which is its own time and not the engine's.
    pub const FPGA: Costs = Costs { cycle: 4, action: 12, unit_latency: 64, unit_width: 16 };

    /// How long the engine is at this action.
    pub fn of(&self, _action: &Action) -> Nanos {
        self.cycle * self.action
    }

    /// How long a unit is at so many bytes.
    pub fn processing(&self, bytes: u32) -> Nanos {
        if bytes == 0 {
            0
        } else {
            self.cycle * (self.unit_latency + u64::from(bytes).div_ceil(self.unit_width))
        }
    }
}
