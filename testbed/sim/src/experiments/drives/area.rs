//! The FPGA's resources: the engine's (table 2), what renaming adds (table 1), the operators' (table 3), and beside them those of
//! the SystemVerilog of this repository, which is less than an engine.
//!
//! Nothing is measured here: the paper's numbers are its own, ours those of `docs/rtl.md`, which `make rtl` measures. A test holds
//! the two against each other.

use crate::experiments::figure::{Figure, Reach};

/// The resources of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    /// Lookup tables.
    pub luts: u32,
    /// Flip-flops.
    pub registers: u32,
    /// Block RAMs: of the paper, tiles of 36 Kb.
    pub block_rams: u32,
}

/// A part of the engine.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// The table that it is in.
    pub table: u8,
    /// Name for people.
    pub name: &'static str,
    /// The paper's, by Vivado on an Alveo U250 (UltraScale+).
    pub paper: Area,
    /// Ours, by yosys for 7 series, and the module it is of.
    pub ours: Option<(&'static str, Area)>,
}

const fn area(luts: u32, registers: u32, block_rams: u32) -> Area {
    Area { luts, registers, block_rams }
}

const fn part(table: u8, name: &'static str, paper: Area) -> Part {
    Part { table, name, paper, ours: None }
}

/// Module `renaming`: 8 pools of 4 units, 64 rows.
const RENAMING: Area = area(279, 90, 0);

/// What table 1's scheduler has with renaming, less what it has without.
pub const RENAMING_ADDS: Area = area(20_693 - 20_370, 6_892 - 6_702, 0);

/// All parts, by table.
pub const PARTS: [Part; 17] = [
    part(2, "all of the engine", area(313_069, 487_333, 441)),
    part(2, "PCIe, SR-IOV", area(46_970, 51_487, 61)),
    part(2, "DRAM", area(18_592, 20_817, 26)),
    part(2, "host interface, 4 VMs", area(74_886, 124_761, 266)),
    part(2, "storage interface", area(22_927, 39_403, 39)),
    part(2, "scheduler", area(2_507, 3_050, 4)),
    part(2, "interconnect", area(115_073, 203_827, 0)),
    part(2, "others", area(32_114, 43_988, 45)),
    Part { ours: Some(("renaming", RENAMING)), ..part(1, "renaming", RENAMING_ADDS) },
    part(3, "encryption (Blowfish)", area(38_031, 19_246, 168)),
    part(3, "decryption", area(37_655, 19_126, 168)),
    part(3, "hash", area(50_620, 13_541, 0)),
    part(3, "aggregate", area(2_292, 1_539, 2)),
    part(3, "filter", area(41_823, 5_428, 116)),
    part(3, "grep", area(37_288, 5_647, 6)),
    part(3, "KNN", area(14_052, 4_091, 8)),
    part(3, "bitmap", area(63_570, 5_588, 31)),
];

/// Operators of ours in SystemVerilog, none of which is in table 3.
pub const UNITS: [(&str, Area); 3] =
    [("md5", area(730, 260, 0)), ("sha256", area(822, 439, 0)), ("aes256-ctr", area(2_739, 4_127, 56))];

/// Returns what can be compared.
pub fn figures() -> Vec<Figure> {
    let parts = |table| PARTS.iter().filter(move |part| part.table == table);
    let sum: u32 = parts(2).skip(1).map(|part| part.paper.luts).sum();
    let figure = |what, ours, paper, reach, why| Figure { what, ours, paper, reach, why };
    vec![
        figure(
            "LUTs of renaming",
            RENAMING.luts.into(),
            Some(RENAMING_ADDS.luts.into()),
            None,
            "Not of like with like: the paper's is the difference of two schedulers, ours a module for 64 waiting rows and 8 kinds of units. Table 1's scheduler has 20,693 LUTs, table 2's 2,507: the paper doesn't say why.",
        ),
        figure(
            "registers of renaming",
            RENAMING.registers.into(),
            Some(RENAMING_ADDS.registers.into()),
            Some(Reach::AtMost(190.0)),
            "As above.",
        ),
        figure(
            "sum of table 2's parts, of its whole (LUTs)",
            f64::from(sum) / f64::from(PARTS[0].paper.luts),
            Some(1.0),
            None,
            "The paper's parts are those of a drive's scheduler with its shell and DRAM; what there is in SystemVerilog here (docs/rtl.md) is cut otherwise, and the operators of table 3 are the paper's own.",
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is said of ours is what `docs/rtl.md` says.
    #[test]
    fn our_area_is_that_of_the_document() {
        let document = include_str!("../../../../../docs/rtl.md");
        let cell = |line: &str, at: usize| -> u32 {
            let cell = line.split('|').nth(at).expect("a cell").trim().replace(',', "");
            cell.parse().unwrap_or_else(|_| panic!("{line}"))
        };
        let line = |begin: &str| document.lines().find(|line| line.starts_with(begin)).expect("a row");
        for (name, area) in UNITS {
            let line = line(&format!("| {name} | "));
            assert_eq!(
                [4, 5, 6].map(|at| cell(line, at)),
                [area.luts, area.registers, area.block_rams],
                "{name}"
            );
        }
        assert_eq!([2, 3].map(|at| cell(line("| LUTs |"), at)), [RENAMING_ADDS.luts, RENAMING.luts]);
        assert_eq!(
            [2, 3].map(|at| cell(line("| registers |"), at)),
            [RENAMING_ADDS.registers, RENAMING.registers]
        );
    }
}
