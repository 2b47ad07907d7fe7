//! Tables and JSON of the server demo's results.

use super::rig::Row;
use super::task::{DesignName, OBJECT, TaskResult, Transfer, is_device};
use crate::guest::nic::KernelNic;
use crate::harness::contender::Named;
use crate::harness::shown;
use crate::harness::table::{Table, number};
use crate::report::Report;
use crate::units::human;
use serde_json::{Value, json};
use std::time::Duration;

pub fn introduce(objects: usize, ready: Duration, nic: KernelNic, report: &Report) {
    let seconds = ready.as_secs_f64();
    report.object(&json!({
        "event": "server", "objects": objects, "object_bytes": OBJECT, "kernel_nic": format!("{nic:?}"),
        "ready_seconds": seconds,
    }));
    report.text(format_args!(
        "A server in QEMU, up after {seconds:.0} s: one SSD with two controllers, two NICs, the dcs card, a stock kernel.\n\
         The guest's kernel has ext4 on one controller, and one NIC ({nic:?}). The card and the software designs, in turn,\n\
         drive the other controller; the card, software-nic and software-p2p the other NIC.\n\
         {objects} objects of 1 MiB, one transfer each, one after the other; a client outside checks every byte and digest."
    ));
}

/// Figures of a row.
pub struct Figures {
    /// CPU seconds per GiB of the guest's processor, as this machine counts them.
    pub cpu: f64,
    /// The same as the guest counts them: time not idle.
    busy: f64,
    /// CPU seconds per GiB of the process alone.
    pub process: f64,
    /// Device interrupts per GiB.
    pub interrupts: f64,
    /// All interrupts per GiB.
    all_interrupts: f64,
    pub system_calls: Option<f64>,
    /// Submissions per transfer, of the card.
    submissions: f64,
    /// Interrupts per transfer, of the card.
    card_interrupts: f64,
}

impl Figures {
    pub fn new(row: &Row) -> Figures {
        let (gib, outcome) = (row.gib(), &row.outcome);
        let transfers = outcome.transfers.len() as f64;
        Figures {
            cpu: row.cpu(),
            busy: outcome.busy_ns() as f64 / 1e9 / gib,
            process: outcome.counted.process_ns as f64 / 1e9 / gib,
            interrupts: outcome.interrupts(is_device) as f64 / gib,
            all_interrupts: outcome.interrupts(|_| true) as f64 / gib,
            system_calls: row.system_calls.map(|calls| calls * (1u64 << 30) as f64),
            submissions: outcome.submissions as f64 / transfers,
            card_interrupts: outcome.vfio_interrupts as f64 / transfers,
        }
    }
}

/// Returns the CPU time of a row relative to the host-centric design's in the same job, and to that of the better
/// software-optimised one.
pub fn ratios(row: &Row, rows: &[Row]) -> [Option<f64>; 2] {
    let least = |is_it: fn(DesignName) -> bool| {
        let them = rows.iter().filter(|other| is_it(other.task.who));
        them.map(Row::cpu).min_by(f64::total_cmp).map(|cpu| row.cpu() / cpu)
    };
    [least(|who| who == DesignName::Host), least(DesignName::is_software)]
}

/// Returns a row as JSON.
pub fn object(row: &Row, rows: &[Row]) -> Value {
    let figures = Figures::new(row);
    let [to_host, to_software] = ratios(row, rows);
    let mut object = json!({
        "event": "measurement", "job": row.task.job(), "by": row.task.who.name(),
        "design": row.task.who.what(), "transfers": row.outcome.transfers.len(), "bytes": row.bytes,
        "bytes_verified": row.bytes, "digests_verified": row.digests,
        "guest_cpu_s_per_gib": figures.cpu, "guest_cpu_ratio": to_host,
        "guest_cpu_ratio_to_software": to_software,
        "guest_not_idle_s_per_gib": figures.busy, "process_cpu_s_per_gib": figures.process,
        "device_interrupts_per_gib": figures.interrupts, "interrupts_per_gib": figures.all_interrupts,
        "system_calls_per_gib": figures.system_calls,
        "wall_s_in_qemu": row.outcome.counted.wall_ns as f64 / 1e9,
        "interrupts": row.outcome.counted.interrupts, "blocks": row.outcome.blocks,
    });
    if row.task.who == DesignName::Card {
        object["submissions_per_transfer"] = figures.submissions.into();
        object["card_interrupts_per_transfer"] = figures.card_interrupts.into();
    }
    object
}

/// Reports one job with all designs.
pub fn job(rows: &[Row], report: &Report) {
    let Some(first) = rows.first() else { return };
    report.text(format_args!("\n{}, of each GiB", first.task.job()));
    let header = [
        "",
        "guest CPU s",
        "of host's",
        "of software's",
        "not idle s",
        "process s",
        "device interrupts",
        "system calls",
        "per transfer: submissions",
        "interrupts",
    ];
    let mut table = Table::new(header);
    for row in rows {
        let figures = Figures::new(row);
        let [to_host, to_software] = ratios(row, rows).map(|ratio| number(ratio, 3));
        let of_card = |figure| number(Some(figure).filter(|_| row.task.who == DesignName::Card), 2);
        table.row([
            row.task.who.name().to_string(),
            format!("{:.3}", figures.cpu),
            to_host,
            to_software,
            format!("{:.3}", figures.busy),
            format!("{:.3}", figures.process),
            format!("{:.0}", figures.interrupts),
            number(figures.system_calls, 0),
            of_card(figures.submissions),
            of_card(figures.card_interrupts),
        ]);
        report.object(&object(row, rows));
    }
    table.show(report);
    rows.iter().for_each(|row| blocks(row, report));
    rows.iter().filter_map(|row| Some((row, median(&row.outcome)?))).for_each(|(row, transfer)| {
        breakdown(row, transfer, report);
    });
}

/// Reports where the data were between SSD and NIC, or socket.
fn blocks(row: &Row, report: &Report) {
    let Some(blocks) = row.outcome.blocks else { return };
    report.text(format_args!(
        "  {}: devices moved {} into and out of host memory, {} into and out of the SSD's, where the processor copied {}",
        row.task.who.name(),
        human(blocks.host_bytes),
        human(blocks.ssd_bytes),
        human(blocks.copied_bytes),
    ));
}

/// Returns the transfer of median latency.
fn median(outcome: &TaskResult) -> Option<&Transfer> {
    let mut order: Vec<&Transfer> = outcome.transfers.iter().collect();
    order.sort_by_key(|transfer| transfer.latency_ns);
    order.get(order.len() / 2).copied()
}

fn breakdown(row: &Row, transfer: &Transfer, report: &Report) {
    let latency = transfer.latency_ns.max(1);
    report.object(&json!({
        "event": "breakdown", "job": row.task.job(), "by": row.task.who.name(), "path": transfer.path,
        "latency_ns": latency, "stages": transfer.stages,
    }));
    report.text(format_args!(
        "  {}: one transfer of {}, {:.3} ms in QEMU",
        row.task.who.name(),
        human(transfer.bytes_in),
        latency as f64 / 1e6
    ));
    shown::stages(&transfer.stages, latency, report);
}

pub fn conclude(seconds: f64, report: &Report) {
    report.text(format_args!(
        "\nguest CPU: all that the guest's processor did but idle, from before the connection to the client's last word. host: a loop of\n\
         one O_DIRECT read, the operators, one send (or receive and write) with a buffer of 1 MiB, by the same dcs-ndp code.\n\
         System calls: counted by ptrace in a pass of their own. Bars: the transfer of median latency; the shade is the share of\n\
         its time in which a stage was busy. Times are QEMU's, which emulates every instruction: ratios mean something, seconds do not.\n\
         Done in {seconds:.0} s."
    ));
}
