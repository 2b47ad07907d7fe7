//! Devices fail under every design. In each case the fault strikes, and the guarantees hold: a success has the right bytes and
//! the right digest, nothing is written in the wrong place (which the experiment itself checks), and a failure reports its place.

use dcs_abi::status::{Stage, Status};
use dcs_drivers::nvme::NvmeError;
use dcs_fabric::{FaultPlan, FaultPlanError};
use dcs_sim::design::Design;
use dcs_sim::experiments::faults::{DESIGNS, Row, measure};
use dcs_sim::experiments::load::{Direction, Fate};
use dcs_sim::failed::Failed;
use dcs_sim::parameters::Parameters;

const TRANSFERS: u64 = 8;
const LENGTH: u64 = 300_001;

fn rows(plans: &[&str]) -> Vec<Row> {
    let plans: Vec<FaultPlan> = plans.iter().map(|plan| plan.parse().unwrap()).collect();
    let rows = measure(Parameters::default(), (&plans, 1), (TRANSFERS, LENGTH)).expect("they are there");
    for row in &rows {
        let design = row.design;
        assert!(row.attempt.struck.iter().all(|one| one.struck > 0), "{plans:?} at {design:?}");
        assert_eq!(row.attempt.transfers.len() as u64, TRANSFERS, "{plans:?} at {design:?}");
        let lies = plans.iter().any(FaultPlan::corrupts_silently);
        for (request, fate) in &row.attempt.transfers {
            let wrong = matches!(fate, Fate::Wrong(_));
            assert!(lies || !wrong, "{plans:?} at {design:?}: {request:?}: {fate:?}");
        }
    }
    assert!(rows.iter().map(|row| row.design).eq(DESIGNS));
    rows
}

fn failures(row: &Row) -> Vec<(Direction, Failed)> {
    let failed = row.attempt.transfers.iter().filter_map(|(request, fate)| match fate {
        Fate::Failed(failed) => Some((request.direction, *failed)),
        _ => None,
    });
    failed.collect()
}

/// Checks that a design has one failure: the driver's error, or the card's status, each at that end.
fn assert_one(row: &Row, direction: Direction, is_it: impl Fn(NvmeError) -> bool, status: Status) {
    let failures = failures(row);
    let [(found, failed)] = failures[..] else { panic!("{:?}: {failures:?}", row.design) };
    assert_eq!(found, direction, "{:?}", row.design);
    let stage = if direction == Direction::Send { Stage::Source } else { Stage::Destination };
    match failed {
        Failed::Ssd(error) => assert!(is_it(error) && row.design != Design::Card, "{failed}"),
        Failed::Card { .. } => assert_eq!(failed, Failed::Card { status, stage }),
        other => panic!("{:?}: {other}", row.design),
    }
}

#[test]
fn a_command_that_fails_fails_its_transfer_alone() {
    for row in rows(&["ssd:read:3:status=0x281"]) {
        assert_one(&row, Direction::Send, |error| matches!(error, NvmeError::Status(_)), Status::ReadError);
    }
    for row in rows(&["ssd0:write:2:status=0x280"]) {
        assert_one(
            &row,
            Direction::Receive,
            |error| matches!(error, NvmeError::Status(_)),
            Status::WriteError,
        );
    }
}

#[test]
fn a_completion_that_never_comes_ends_with_a_reset() {
    for plan in ["ssd:read:2:drop", "ssd:read:2:hang"] {
        for row in rows(&[plan]) {
            // At most one failure of each connection: transfers after the reset are right again.
            let failures = failures(&row);
            assert!((1..=2).contains(&failures.len()), "{plan} at {:?}: {failures:?}", row.design);
            for (_, failed) in failures {
                let right = match failed {
                    Failed::Ssd(error) => matches!(error, NvmeError::TimedOut | NvmeError::Reset(_)),
                    Failed::Card { status, .. } => status == Status::DeviceReset,
                    _ => false,
                };
                assert!(right, "{plan} at {:?}: {failed}", row.design);
            }
        }
    }
}

#[test]
fn an_ssd_that_is_gone_fails_whatever_comes() {
    for row in rows(&["ssd:write:3:remove"]) {
        let failures = failures(&row);
        assert!(failures.len() as u64 >= TRANSFERS - 4, "{:?}: {failures:?}", row.design);
        assert!(failures.iter().all(|(_, failed)| matches!(failed, Failed::Ssd(_) | Failed::Card { .. })));
    }
}

#[test]
fn what_is_late_or_comes_twice_or_is_lost_on_the_wire_fails_nothing() {
    let plans = [
        "ssd:read:3:late=20ms",
        "ssd:write:1:twice",
        "nic:transmit:10-12:drop",
        "nic:transmit:1%:twice",
        "nic:receive:5:late=1ms",
        "nic:receive:20:corrupt",
    ];
    for plan in plans {
        for row in rows(&[plan]) {
            assert_eq!(failures(&row), [], "{plan} at {:?}", row.design);
        }
    }
    // All of them at once.
    assert!(rows(&plans).iter().all(|row| failures(row).is_empty()));
}

#[test]
fn a_late_completion_takes_its_time() {
    let time = |plans: &[&str]| rows(plans).iter().map(|row| row.attempt.measured.time).collect::<Vec<_>>();
    let without = time(&["ssd:read:1:twice"]);
    for (late, without) in time(&["ssd:read:1:late=1s"]).into_iter().zip(without) {
        assert!(late >= 1_000_000_000 && without < 100_000_000, "{late} {without}");
    }
}

#[test]
fn only_the_check_finds_an_ssd_that_lies() {
    for row in rows(&["ssd:read:3:corrupt"]) {
        assert_eq!(row.count(|fate| matches!(fate, Fate::Wrong("the peer got a wrong byte"))), 1, "{row:?}");
    }
    for row in rows(&["ssd:write:1:short=512"]) {
        assert_eq!(row.count(|fate| matches!(fate, Fate::Wrong("the SSD got a wrong byte"))), 1, "{row:?}");
    }
}

#[test]
fn a_nic_that_is_gone_ends_every_transfer() {
    for row in rows(&["nic:transmit:20:remove"]) {
        assert!(!failures(&row).is_empty(), "{:?}", row.design);
    }
}

#[test]
fn the_same_seed_gives_the_same_failures() {
    let told = || format!("{:?}", rows(&["ssd:any:40%:status=0x281"]));
    assert_eq!(told(), told());
}

#[test]
fn a_device_that_is_not_there_is_refused() {
    let plan = "ssd1:read:1:drop".parse().unwrap();
    let refused = measure(Parameters::default(), (&[plan], 1), (1, 4096)).map(|_| ());
    assert_eq!(refused, Err(FaultPlanError::Missing { plan: "ssd1:read:1:drop".into(), count: 1 }));
}
