//! `dcs doctor`: shows what this machine can do, which path will run for what, and how to fix what is missing.
//!
//! | module | what it holds |
//! |---|---|
//! | `probe` | what only trying tells: io_uring, sendfile(2), O_DIRECT |
//! | `machine` | kernel, huge pages, IOMMU, VFIO, processor, limits |
//! | `row` | a line of the table |
//! | `pci` | SSDs and NICs: driver, IOMMU group, who uses them |
//! | `gpu` | GPUs, as CUDA's driver tells of them |
//! | `p2p` | what lies between two devices |
//! | `paths` | which path will run for what |
//! | `bind` | `--bind` and `--release` |

mod bind;
mod gpu;
mod machine;
mod p2p;
mod paths;
mod pci;
mod probe;
mod row;
#[cfg(test)]
mod tests;

use crate::args::Doctor;
use crate::failure::{Exit, Failure};
use crate::report::Report;
use dcs_vfio::sys::Root;
use probe::Probes;
use row::{Row, State};
use serde_json::json;

/// Everything that was found out.
struct Examination {
    rows: Vec<Row>,
    functions: Vec<pci::Function>,
}

fn examine(root: &Root, probes: &Probes) -> Examination {
    let functions = pci::functions(root);
    let mut rows = machine::rows(root, probes);
    rows.extend(functions.iter().map(|function| function.row(root)));
    if functions.is_empty() {
        rows.push(pci::none(root));
    }
    rows.extend(gpu::rows(root, probes));
    rows.extend(p2p::rows(root, &functions));
    rows.extend(paths::rows(root, probes, &functions));
    Examination { rows, functions }
}

pub fn run(options: &Doctor, report: &Report) -> Result<(), Failure> {
    let root = Root::new("/");
    if let Some(function) = &options.bind {
        return bind::bind(&root, function, report);
    }
    if let Some(function) = &options.release {
        return bind::release(&root, function, report);
    }
    let probes = Probes::here(&options.dir);
    let found = examine(&root, &probes);
    print(&found.rows, report);
    for function in &found.functions {
        report.object(&function.json(&root));
    }
    let verdict = verdict(&root, &found, &options.functions, &probes);
    let ok = verdict.is_ok();
    let counted = |state| found.rows.iter().filter(|row| row.state == state).count();
    report.object(&json!({
        "event": "doctor", "ok": ok, "missing": counted(State::Missing), "unreadable": counted(State::Unreadable),
    }));
    verdict
}

/// Succeeds if transfers run at all and every named function can be driven.
fn verdict(root: &Root, found: &Examination, wanted: &[String], probes: &Probes) -> Result<(), Failure> {
    if let Err(error) = &probes.plain {
        return Err(Failure::new(Exit::Failed, format!("no engine starts here: {error}")));
    }
    for name in wanted {
        let address = bind::address(name)?;
        let function = found.functions.iter().find(|function| function.address == address);
        let function = function.ok_or_else(|| {
            Failure::new(Exit::NotFound, format!("this machine has no NVMe SSD or NIC {address}"))
        })?;
        if let Err(why) = function.drivable(root) {
            let failure = Failure::new(Exit::Failed, format!("{address} cannot be driven directly: {why}"));
            let fix = function.row(root).fix;
            return Err(fix.into_iter().fold(failure, |failure, fix| failure.advise(fix)));
        }
    }
    Ok(())
}

fn print(rows: &[Row], report: &Report) {
    let width = |of: fn(&Row) -> usize| rows.iter().map(of).max().unwrap_or(0).min(34);
    let name = width(|row| row.name.chars().count());
    let mut topic = "";
    for row in rows {
        if row.topic != topic {
            topic = row.topic;
            report.text(format_args!("{topic}"));
        }
        let mark = match row.state {
            State::Ok => "ok",
            State::Note => "note",
            State::Missing => "missing",
            State::Unreadable => "unread",
        };
        report.text(format_args!("  {:name$}  {mark:7}  {}", row.name, row.found));
        if let Some(fix) = &row.fix {
            report.text(format_args!("  {:name$}  {:7}  -> {fix}", "", ""));
        }
        let mut object = serde_json::to_value(row).unwrap_or_default();
        object["event"] = "check".into();
        report.object(&object);
    }
}
