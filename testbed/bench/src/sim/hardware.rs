//! The engine in SystemVerilog, shown: units and modules, and figures beside the papers'.

use super::bars::{Bar, Chart};
use super::results::Results;
use dcs_sim::cpu::Component;
use dcs_sim::experiments::rtl;
use serde_json::{Value, json};

pub fn results() -> Results {
    let rows = rtl::rows();
    let shown = |row: &rtl::Row| {
        let rate = |at: usize| row.rate.map_or_else(String::new, |rate| rate[at].to_string());
        let [luts, registers, block_rams] = row.area;
        let cells =
            [row.name, row.cycles, luts, registers, block_rams, row.clock].map(|cell| cell.replace('`', ""));
        cells.into_iter().chain([rate(0), rate(1)]).collect()
    };
    let object = |row: &rtl::Row| {
        let [luts, registers, block_rams] = row.area.map(value);
        json!({
            "event": "measurement", "experiment": "rtl", "of": row.name.replace('`', ""), "cycles": row.cycles,
            "luts": luts, "registers": registers, "block_rams": block_rams, "ecp5_mhz": value(row.clock),
            "mbps_per_lut": row.rate.map(|rate| rate[0]), "papers_mbps_per_lut": row.rate.map(|rate| rate[1]),
        })
    };
    let compared = rows.iter().filter_map(|row| Some((row.name, row.rate?)));
    let bars = compared.flat_map(|(name, rate)| {
        ["here", "paper"].into_iter().zip(rate).map(move |(whose, rate)| Bar {
            panel: format!("Mb/s a LUT: {name}"),
            label: whose.into(),
            parts: vec![(Component::Ndp, rate)],
        })
    });
    Results {
        name: "rtl",
        title: "The engine in SystemVerilog (DCS-ctrl, tables 3.3 and 3.4; FlexCSV, table 1)",
        header: vec![
            "",
            "cycles",
            "LUTs",
            "registers",
            "block RAMs",
            "ECP5, MHz",
            "Mb/s a LUT",
            "paper's Mb/s a LUT",
        ],
        rows: rows.iter().map(shown).collect(),
        objects: rows.iter().map(object).collect(),
        figures: rtl::figures(),
        chart: Chart { unit: "", bars: bars.collect() },
    }
}

/// A number where a cell is one, else what it says: a dash, or several values.
fn value(cell: &str) -> Value {
    cell.replace(',', "").parse::<f64>().map_or_else(|_| json!(cell), |number| json!(number))
}
