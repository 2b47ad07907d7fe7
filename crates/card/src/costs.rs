//! Times that the card's own work takes, in virtual time.
//!
//! A card in software takes real time. A card in virtual time is given the costs of hardware, to show what the engine adds to devices and
//! links.

use dcs_abi::operator::Operator;
use dcs_engine::{Action, Nanos};

/// Costs of the card's own work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// Duration of a clock cycle, in nanoseconds.
    pub cycle: Nanos,
    /// Cycles from the start of an action to its effect: reading and writing a scoreboard row, arbitration, building a command.
    pub action: u64,
    /// Cycles from an input block's first word to an operator unit's first answer.
    pub unit_latency: u64,
    /// Most bytes that a unit takes in a cycle.
    pub unit_width: u64,
    /// Operators whose units are slower than that, with picoseconds per byte.
    pub slower: &'static [(Operator, u64)],
}

/// Throughput of a unit in an FPGA (DCS-ctrl; Ahn's dissertation, table 3.3), in picoseconds per byte: MD5 0.97 Gb/s, SHA-1 1.10, SHA-256
/// 0.80, CRC32 10. AES-256 takes 40.9 Gb/s and gzip 100, about as much as the width allows or more.
const TABLE: &[(Operator, u64)] = &[
    (Operator::Md5, 8_247),
    (Operator::Sha1, 7_273),
    (Operator::Sha256, 10_000),
    (Operator::Crc32, 800),
    (Operator::Crc32c, 800),
    (Operator::Aes256Ctr, 196),
];

impl Costs {
    /// No cost for anything.
    pub const NONE: Costs = Costs { cycle: 0, action: 0, unit_latency: 0, unit_width: 1, slower: &[] };

    /// Costs of an FPGA at 250 MHz, the clock of the prototypes (DCS-ctrl: PCIe gen 2 x8 on a Virtex-7). An action takes 12 cycles: four
    /// for the row (two reads and two writes of a block RAM of one cycle each), two for arbitration, four to write an NVMe entry of 64
    /// bytes 16 bytes wide, two for the doorbell. Units take 16 bytes per cycle, or the rate of the dissertation's table 3.3 if that is
    /// less: a serial digest is slower than the wire, and a command's stream goes through one unit.
    pub const FPGA: Costs = Costs { cycle: 4, action: 12, unit_latency: 64, unit_width: 16, slower: TABLE };

    /// Returns the time that an action takes the engine.
    pub fn of(&self, _action: &Action) -> Nanos {
        self.cycle * self.action
    }

    /// Returns the time that an operator's unit takes for that many bytes.
    pub fn processing(&self, operator: Option<Operator>, bytes: u32) -> Nanos {
        if bytes == 0 {
            return 0;
        }
        let wide = self.cycle * u64::from(bytes).div_ceil(self.unit_width);
        let slower = self.slower.iter().find(|(other, _)| Some(*other) == operator);
        let serial = slower.map_or(0, |(_, rate)| u64::from(bytes) * rate / 1000);
        self.cycle * self.unit_latency + wide.max(serial)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_takes_its_width_or_what_its_operator_takes() {
        let costs = Costs::FPGA;
        assert_eq!(costs.processing(None, 4096), 64 * 4 + 4096 / 16 * 4);
        assert_eq!(costs.processing(Some(Operator::Md5), 4096), 64 * 4 + 33_779);
        assert_eq!(costs.processing(Some(Operator::Md5), 0), 0);
        assert_eq!(Costs::NONE.processing(Some(Operator::Md5), 4096), 0);
    }
}
