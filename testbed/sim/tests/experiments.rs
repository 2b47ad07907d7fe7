//! The experiments at a small scale. Every byte and digest is checked in every design as they run, and results are checked here.

use dcs_sim::design::{Design, Job, bring_up, build};
use dcs_sim::experiments::figure::Figure;
use dcs_sim::experiments::load::{Direction, Load, Request, run};
use dcs_sim::experiments::{balancer, contention, d2d, encrypted, object, projection, scaling};
use dcs_sim::host::Waiting;
use dcs_sim::parameters::Parameters;

fn parameters() -> Parameters {
    Parameters::default()
}

/// Checks that every target was reached.
fn assert_reached(figures: &[Figure]) {
    for figure in figures {
        println!("{:7.4} {}", figure.ours, figure.what);
        assert_ne!(figure.is_reached(), Some(false), "{figure:?}");
    }
}

#[test]
fn the_card_keeps_its_bandwidth_beside_spinners_and_the_kernel_does_not() {
    let rows = contention::cpu(parameters(), 4);
    let figures = contention::cpu_figures(&rows);
    assert_reached(&figures);
    assert!(figures[1].ours < 0.7, "the kernel's stacks have to wait for a core: {figures:?}");
    let spun = rows.iter().filter(|row| row.contenders > 0);
    assert!(spun.into_iter().all(|row| row.measured.busy.iter().any(|(what, _)| what.name() == "spinners")));
}

#[test]
fn who_copies_feels_who_takes_memory() {
    let figures = contention::memory_figures(&contention::memory(parameters(), 3));
    assert!((0.99..=1.01).contains(&figures[0].ours) && figures[1].ours < 0.8, "{figures:?}");
}

#[test]
fn the_object_server_s_cpu() {
    let rows = object::measure(parameters(), 40);
    assert_reached(&object::figures(&rows));
}

#[test]
fn requests_come_at_the_rate_that_is_asked_for() {
    let requests = object::requests(object::MIX, 4000);
    let bytes: u64 = requests.iter().map(|request| request.length).sum();
    let rate = bytes as f64 * 8.0 / requests[3999].at as f64;
    assert!((0.9..1.1).contains(&(rate * 1000.0 / object::MIX.rate as f64)), "{rate} Gb/s");
    let gets = requests.iter().filter(|request| request.direction == Direction::Send).count() as u64;
    assert!((gets * 100 / 4000).abs_diff(object::MIX.gets) < 4, "{gets} GETs");
}

#[test]
fn the_balancer_s_cpu() {
    assert_reached(&balancer::figures(&balancer::measure(parameters(), 2)));
}

#[test]
fn an_encrypted_object_comes_to_the_peer_in_every_design() {
    let rows = encrypted::measure(parameters(), 5_000_000);
    assert_eq!(rows.len(), encrypted::DESIGNS.len());
    assert_reached(&encrypted::figures(&rows));
}

#[test]
fn four_sets_do_what_four_can() {
    assert_reached(&scaling::figures(&scaling::measure(parameters(), 2)));
}

#[test]
fn faster_devices_leave_software_the_larger_share() {
    let figures = projection::figures(&projection::measure(parameters(), 4));
    assert!(figures[1].ours > 0.7 && figures[0].ours < 0.3, "{figures:?}");
}

#[test]
fn six_ssds_fill_40_gbps_with_few_cores() {
    let rows = projection::measure_work(parameters(), 3);
    for projection::Work { workload, design, measured } in &rows {
        // A frame that is lost at the end of a transfer has the link stand still for a second, as smoltcp's least timeout is.
        assert_eq!(measured.missed, 0, "{} by {design:?}", workload.name());
        let least = if *workload == projection::Workload::Swift { 1.0 } else { 10.0 };
        assert!(measured.gbps() > least, "{} by {design:?}: {} Gb/s", workload.name(), measured.gbps());
    }
    let figures = projection::work_figures(&rows);
    assert_reached(&figures);
}

/// Checks that received bytes are compared: a design that sends wrong ones is found.
#[test]
#[should_panic(expected = "the peer got a wrong byte")]
fn a_wrong_byte_is_seen() {
    let (executor, program) =
        bring_up(Design::Card, build(Design::Card, parameters()), Waiting::Interrupt, 1);
    let handle = executor.handle();
    handle.with(|server| {
        server.sets[0].namespace.store(70_000, &[0, 1, 2, 3]);
        server.stream(0).expect(0, 1 << 20);
    });
    executor.run(async {
        let thread = handle.thread();
        let job = Job { connection: 0, position: 0, length: 1 << 20, operator: None };
        program.send(thread, job).await;
        handle.until(|server| (server.stream(0).received == 1 << 20).then_some(())).await;
        assert!(!handle.with(|server| server.stream(0).wrong), "the peer got a wrong byte");
    });
}

/// Checks odd lengths, in both directions, in every design.
#[test]
fn any_length_goes_through_every_design() {
    let designs = [Design::HostCentric, Design::Software { gpu: true }, Design::PeerToPeer, Design::Card];
    for design in designs {
        for operator in [None, Some(dcs_abi::operator::Operator::Md5)] {
            let request = |at: u64, direction, length| Request { at, direction, length, operator };
            let requests = vec![
                request(0, Direction::Send, 1),
                request(0, Direction::Receive, 100_001),
                request(50_000, Direction::Send, 131_073),
                request(60_000, Direction::Receive, 512),
                request(60_000, Direction::Send, 777_777),
            ];
            let measured = run(&Load { connections: 2, ..Load::new(design, requests) });
            assert_eq!(measured.bytes, 1 + 100_001 + 131_073 + 512 + 777_777);
        }
    }
}

#[test]
fn d2d_streams() {
    let rows = d2d::measure(parameters(), 10);
    assert_reached(&d2d::figures(&rows));
    for row in &rows.latency {
        println!("{} bytes, {}: {} ns, {:?}", row.frame, row.design.name(), row.total, row.parts);
        assert_eq!(row.parts.iter().map(|(_, time)| time).sum::<u64>(), row.total);
    }
    for row in &rows.pace {
        println!("{row:?}");
        assert!(row.datagrams >= 9 * usize::from(row.streams) / 2);
    }
}
