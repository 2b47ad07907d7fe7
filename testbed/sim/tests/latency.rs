//! One transfer of each design: bytes and digests are checked as it runs, and results are checked here.

use dcs_sim::design::Design;
use dcs_sim::experiments::latency::{self, LENGTH, measure};
use dcs_sim::host::Waiting;
use dcs_sim::parameters::Parameters;

fn parameters() -> Parameters {
    Parameters::default()
}

#[test]
fn what_the_issue_asks_for_is_reached_or_is_said_not_to_be() {
    let figures = latency::figures(&latency::run(parameters()));
    let reached: Vec<Option<bool>> = figures.iter().map(|figure| figure.is_reached()).collect();
    let found: Vec<String> = figures.iter().map(|figure| format!("{:.3}", figure.ours)).collect();
    println!("{found:?}");
    // Host software alone reaches both; with the card's control as software, SSD -> MD5 -> NIC alone does.
    assert_eq!(
        reached,
        [Some(true), Some(false), None, None, Some(true), Some(true), None, Some(true), None]
    );
}

#[test]
fn the_same_run_gives_the_same_nanoseconds() {
    let run = || format!("{:?}", measure(Design::Card, Waiting::Interrupt, None, parameters()));
    assert_eq!(run(), run());
    let run = || format!("{:?}", measure(Design::PeerToPeer, Waiting::Poll, None, parameters()));
    assert_eq!(run(), run());
}

#[test]
fn every_moment_is_some_component_s() {
    for row in latency::run(parameters()) {
        let sum: u64 = row.parts.iter().map(|(_, time)| time).sum();
        assert_eq!(sum, row.total, "{row:?}");
        assert!(row.software() <= row.control() && row.control() < row.total, "{row:?}");
    }
}

/// Checks that a parameter has its intended effect.
#[test]
fn software_s_time_is_what_the_parameters_say() {
    let software = |design, parameters| measure(design, Waiting::Interrupt, None, parameters).software();
    let given = parameters();
    let kernel = software(Design::HostCentric, given);
    let sending = given.kernel_send + LENGTH / 4096 * given.kernel_page;
    assert_eq!(kernel, given.kernel_read + sending);
    let user = given.user_nvme + given.user_send + given.interrupt + given.wake + given.syscall;
    assert_eq!(software(Design::Software { gpu: false }, given), user);
    assert_eq!(software(Design::Card, given), given.library / 2);
    let slower = Parameters { wake: given.wake + 1000, ..given };
    assert_eq!(software(Design::Software { gpu: false }, slower), user + 1000);
}
