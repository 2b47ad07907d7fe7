//! `dcs bench sim faults`: transfers of every design while devices fail.

use crate::failure::{Exit, Failure};
use crate::harness::faults::{Faults, report_strikes};
use crate::harness::table::Table;
use crate::report::Report;
use crate::units;
use clap::Args;
use dcs_fabric::FAULT_HELP;
use dcs_sim::experiments::faults::{self, Row};
use dcs_sim::experiments::load::{Direction, Fate};
use dcs_sim::parameters::Parameters;
use serde_json::json;

/// Longest transfer: its expected data are kept in memory.
const TRANSFER_MAX: u64 = 64 << 20;

#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(after_help = help())]
pub struct Options {
    #[command(flatten)]
    pub faults: Faults,
    /// Transfers of each design, alternating SSD -> MD5 -> NIC and NIC -> CRC32 -> SSD
    #[arg(long, value_name = "N", value_parser = units::count::<1, 10_000>, default_value = "16")]
    pub transfers: usize,
    /// Bytes of each transfer: at most 64 MiB
    #[arg(long, value_name = "SIZE", value_parser = units::size, default_value = "1MiB")]
    pub size: u64,
}

fn help() -> String {
    format!(
        "\
Examples:
  dcs bench sim faults --fault ssd:read:3:late=20ms
  dcs bench sim faults --fault ssd:write:2:drop --transfers 4          # the driver's timeout, an abort, a reset
  dcs bench sim faults --fault nic:transmit:1%:drop --size 8MiB        # TCP sends again
  dcs bench sim faults --fault ssd:read:5:corrupt                      # the SSD lies: only a digest tells
  dcs bench sim faults --fault ssd:any:4%:status=0x281 --json | jq 'select(.event == \"failed\")'

{FAULT_HELP}
Operations are counted from the time the server is up. Every byte that a transfer has delivered is checked, even if it failed, and
every digest; files that are not written are read again at the end. After a failed transfer, the next uses a new connection.

Exit codes: 0 done, whatever failed; 1 a byte or a digest was wrong though no SSD lied, which is a defect; 2 usage"
    )
}

/// Runs the transfers.
pub fn run(options: &Options, parameters: Parameters, report: &Report) -> Result<(), Failure> {
    if !(1..=TRANSFER_MAX).contains(&options.size) {
        return Err(Failure::usage("--size must be 1 to 64MiB").advise("for example 1MiB"));
    }
    let Faults { plans, seed } = &options.faults;
    let step = report.step("transfers in every design".into());
    let transfers = (options.transfers as u64, options.size);
    let rows = faults::measure(parameters, (plans, *seed), transfers);
    let rows = rows.map_err(|error| {
        Failure::usage(error.to_string()).advise("there are one SSD and one NIC: ssd0 and nic0")
    })?;
    drop(step);
    report.text(format_args!(
        "\n{} transfers of {} in every design, in turn SSD -> MD5 -> NIC and NIC -> CRC32 -> SSD\n",
        options.transfers,
        units::human(options.size)
    ));
    let header = ["design", "right", "failed", "wrong", "ms", "the first that is not right"];
    let mut table = Table::new(header).words(&[5]).indent(0);
    rows.iter().for_each(|row| table.row(cells(row)));
    table.show(report);
    report.text("");
    for row in &rows {
        objects(row, report);
        report_strikes(Some(row.design.name()), &row.attempt.struck, report);
    }
    let wrong: usize = rows.iter().map(|row| row.count(is_wrong)).sum();
    if wrong > 0 && !plans.iter().any(|plan| plan.corrupts_silently()) {
        let line = format!("{wrong} transfers were wrong, and no SSD lied");
        return Err(Failure::new(Exit::Failed, line).advise("this is a defect: please report it"));
    }
    report.object(&json!({ "event": "done", "ok": true }));
    Ok(())
}

fn is_wrong(fate: &Fate) -> bool {
    matches!(fate, Fate::Wrong(_))
}

fn counts(row: &Row) -> [usize; 3] {
    [
        row.count(|fate| *fate == Fate::Right),
        row.count(|fate| matches!(fate, Fate::Failed(_))),
        row.count(is_wrong),
    ]
}

fn cells(row: &Row) -> Vec<String> {
    let counts = counts(row).map(|count| count.to_string());
    let time = format!("{:.1}", row.attempt.measured.time as f64 / 1e6);
    let rest = [time, row.first().unwrap_or("-".into())];
    [vec![row.design.name().to_string()], counts.to_vec(), rest.to_vec()].concat()
}

fn objects(row: &Row, report: &Report) {
    let [right, failed, wrong] = counts(row);
    report.object(&json!({
        "event": "measurement", "experiment": "faults", "design": row.design.name(), "right": right,
        "failed": failed, "wrong": wrong, "ns": row.attempt.measured.time,
    }));
    for (request, fate) in &row.attempt.transfers {
        let (event, why) = match fate {
            Fate::Right => continue,
            Fate::Failed(failed) => ("failed", failed.to_string()),
            Fate::Wrong(what) => ("wrong", what.to_string()),
        };
        let job = match request.direction {
            Direction::Send => "SSD -> MD5 -> NIC",
            Direction::Receive => "NIC -> CRC32 -> SSD",
        };
        report.object(&json!({
            "event": event, "design": row.design.name(), "job": job, "bytes": request.length, "why": why,
        }));
    }
}
