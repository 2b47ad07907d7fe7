//! The engine in SystemVerilog beside the papers' hardware: area, cycles and clocks.
//!
//! Nothing is measured here: `make rtl` measures, and what it has shown is read from the tables of `docs/rtl.md`.

use crate::experiments::figure::{Figure, Reach};

const DOCUMENT: &str = include_str!("../../../../docs/rtl.md");

/// LUTs of DCS-ctrl's engine with controllers and interconnect, without its units (dissertation, table 3.4).
const PAPERS_ENGINE: f64 = 116_344.0;
/// Cycles of FlexCSV's submission path at 250 MHz, with renaming (table 1): 728 ns.
const PAPERS_SUBMISSION: f64 = 182.0;
/// The names that units have in the table beside the paper's.
const COMPARED: [(&str, &str); 6] = [
    ("md5", "MD5"),
    ("sha1", "SHA-1"),
    ("sha256", "SHA-256"),
    ("aes256-ctr", "AES-256"),
    ("crc32", "CRC-32, 64 bits"),
    ("crc32, 512 bits", "CRC-32, 512 bits"),
];

/// A unit or a module. A dash is not measured, an empty cell is none of its figures.
#[derive(Clone, Debug)]
pub struct Row {
    /// Its name.
    pub name: &'static str,
    /// Cycles of its clock for so many bytes.
    pub cycles: &'static str,
    /// LUTs, registers and block RAMs, by yosys for 7 series.
    pub area: [&'static str; 3],
    /// Its clock on an ECP5, in MHz.
    pub clock: &'static str,
    /// Mb/s a LUT at the paper's clock, and the paper's (DCS-ctrl, table 3.3).
    pub rate: Option<[f64; 2]>,
}

/// Returns units, then modules.
pub fn rows() -> Vec<Row> {
    let units = table("| unit | cycles |").map(|cells| Row {
        name: cells[0],
        cycles: cells[1],
        area: [cells[3], cells[4], cells[5]],
        clock: cells[6],
        rate: COMPARED.iter().find(|(unit, _)| *unit == cells[0]).map(|(_, name)| rate(name)),
    });
    let modules = table("| module | LUTs |").map(|cells| Row {
        name: cells[0],
        cycles: "",
        area: [cells[1], cells[2], cells[3]],
        clock: cells[4],
        rate: None,
    });
    units.chain(modules).collect()
}

/// Returns what can be compared.
pub fn figures() -> Vec<Figure> {
    let figure =
        |what, ours, paper, reach, why| Figure { what, ours, paper: Some(paper), reach: Some(reach), why };
    let faster = |what, name, why| {
        let [ours, paper] = rate(name);
        figure(what, ours, paper, Reach::AtLeast(paper), why)
    };
    let submission = |line| number(after(cells(line)[1], "; "));
    let (renaming, engine) = (cells("| LUTs | 323"), cells("| `engine` |"));
    let granted = number(cells("| from a request to the grant")[2]) + number(cells("| from a free unit")[2]);
    vec![
        figure(
            "LUTs of the card without units",
            number(after(DOCUMENT, "without units, has ")),
            PAPERS_ENGINE,
            Reach::AtMost(PAPERS_ENGINE / 2.0),
            "With two functions, two SSDs, a NIC, memory and the interconnect; DCS-ctrl's engine with controllers and interconnect, by Vivado for a Virtex-7.",
        ),
        faster("MD5, Mb/s a LUT", "MD5", "At the paper's clock: ours has not been placed for its family."),
        faster("SHA-1, Mb/s a LUT", "SHA-1", "As above."),
        faster("SHA-256, Mb/s a LUT", "SHA-256", "As above."),
        faster(
            "AES-256, Mb/s a LUT",
            "AES-256",
            "As above. Ours takes 56 block RAMs, which the paper does not count.",
        ),
        faster("CRC-32 of 512 bits, Mb/s a LUT", "CRC-32, 512 bits", "As above."),
        faster(
            "CRC-32 of 64 bits, Mb/s a LUT",
            "CRC-32, 64 bits",
            "The loop, the last word and the exchange of state cost the same however wide a unit is.",
        ),
        figure(
            "cycles of the submission path, an inline entry with an operator",
            submission("| from the doorbell of an inline entry"),
            PAPERS_SUBMISSION,
            Reach::AtMost(60.0),
            "The paper does not say exactly what it counts.",
        ),
        figure(
            "the same with a descriptor of 288 bytes",
            submission("| the same with a descriptor"),
            PAPERS_SUBMISSION,
            Reach::AtMost(60.0),
            "Its 36 words come by a port of 64 bits.",
        ),
        figure(
            "cycles of renaming: grant, and the next one",
            granted,
            18.0 + 6.0,
            Reach::AtMost(4.0),
            "Where nobody waits at the same time.",
        ),
        figure(
            "LUTs of renaming, % of the engine",
            100.0 * number(renaming[2]) / number(engine[1]),
            100.0 * 323.0 / 20_370.0,
            Reach::AtMost(2.0),
            "The paper's is the difference of two schedulers.",
        ),
    ]
}

/// The cells of the rows below a table's header.
fn table(header: &str) -> impl Iterator<Item = Vec<&'static str>> {
    let lines = DOCUMENT.lines().skip_while(move |line| !line.starts_with(header)).skip(2);
    lines.take_while(|line| line.starts_with('|')).map(split)
}

/// The cells of the row that begins so.
fn cells(begin: &str) -> Vec<&'static str> {
    let found = DOCUMENT.lines().find(|line| line.starts_with(begin));
    split(found.unwrap_or_else(|| panic!("docs/rtl.md has no row {begin}")))
}

fn split(line: &'static str) -> Vec<&'static str> {
    line.trim_matches('|').split('|').map(|cell| cell.trim().trim_matches('`')).collect()
}

/// Mb/s a LUT of a unit, and the paper's.
fn rate(name: &str) -> [f64; 2] {
    let row = table("| unit | clock, MHz |").find(|cells| cells[0] == name);
    let row = row.unwrap_or_else(|| panic!("docs/rtl.md does not compare {name}"));
    [row[7], row[4]].map(number)
}

fn after<'a>(text: &'a str, mark: &str) -> &'a str {
    text.split_once(mark).unwrap_or_else(|| panic!("docs/rtl.md has no {mark:?}")).1
}

/// The number at the beginning of a text, with commas among its digits.
fn number(text: &str) -> f64 {
    let length = text.find(|c: char| !c.is_ascii_digit() && c != ',' && c != '.').unwrap_or(text.len());
    let digits = text[..length].trim_end_matches([',', '.']).replace(',', "");
    digits.parse().unwrap_or_else(|_| panic!("docs/rtl.md has no number where there is {text:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_has_what_is_shown() {
        let rows = rows();
        for name in ["md5", "crc32, 512 bits", "aes256-xts", "engine", "nvme_controller", "uoe, 8 streams"] {
            let named = |row: &&Row| row.name.replace('`', "") == name;
            let row = rows.iter().find(named).unwrap_or_else(|| panic!("{name}"));
            assert!(number(row.area[0]) > 100.0, "{row:?}");
        }
        assert_eq!(rows.iter().filter(|row| row.rate.is_some()).count(), COMPARED.len());
        let figures = figures();
        let missed = |figure: &&Figure| figure.is_reached() == Some(false);
        let missed: Vec<_> = figures.iter().filter(missed).map(|figure| figure.what).collect();
        // What docs/rtl.md says is not reached.
        assert_eq!(missed, ["CRC-32 of 64 bits, Mb/s a LUT", "the same with a descriptor of 288 bytes"]);
    }
}
