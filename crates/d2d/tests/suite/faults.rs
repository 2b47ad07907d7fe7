//! Whatever goes wrong on the way, a stream ends with the right bytes, or says why not; the others go on.

use crate::rig::{End, Faults, MS, Rig, SECOND, US, rate, template};
use dcs_d2d::driver::{Receive, Send};
use dcs_d2d::register::{Error, State, Task, Times};
use dcs_d2d::{Origin, nic, ssd};
use proptest::prelude::*;
use std::collections::BTreeMap;

const TASKS: [Task; 3] =
    [Task { lba: 11, blocks: 3 }, Task { lba: 0, blocks: 9 }, Task { lba: 40, blocks: 20 }];
const BYTES: u64 = 31 * 4096 + 77;
const TIMES: Times = Times { stall_us: 50_000, refresh_us: 5_000 };

fn rig(seed: u64, streams: u16) -> Rig {
    let nic = nic::Config { window: 4, places: 64, ..nic::Config::new(streams) };
    let mut rig = Rig::new(ssd::Config::new(streams, 64), nic, seed);
    for stream in 0..streams {
        rig.prepare(stream, &template(stream, 1316), &TASKS);
    }
    rig
}

fn start_receiver(rig: &mut Rig, stream: u16) {
    let grants_to = rig.grants_to(End::Ssd, stream);
    let receive =
        Receive { bytes: BYTES, grants_to, times: Times { stall_us: 0, ..TIMES }, ..Receive::default() };
    rig.receive(End::Nic, stream, &receive);
}

fn start_sender(rig: &mut Rig, stream: u16, bytes_per_second: u64) {
    if let Ok(place) = rig.place(End::Nic, stream) {
        let rate = rate(bytes_per_second, if bytes_per_second == 0 { 0 } else { 500 });
        rig.send(End::Ssd, stream, &place, &Send { bytes: BYTES, rate, times: TIMES, ..Send::default() });
    }
}

/// Checks what left the NIC in every run: a prefix of the content, and all of it if both ends say so.
fn check(rig: &Rig, stream: u16) {
    let content = &rig.content(&TASKS)[..BYTES as usize];
    for ((of, epoch), bytes) in &rig.sent {
        assert!(*of != stream || content.starts_with(bytes), "run {epoch} of {stream}: wrong bytes");
    }
    let (sender, receiver) = (rig.status(End::Ssd, stream), rig.status(End::Nic, stream));
    assert!(matches!(sender.state, State::Init | State::Idle | State::Failed), "{sender:?}");
    assert_eq!(sender.state == State::Failed, sender.error.is_some());
    if sender.state == State::Idle && sender.epoch == receiver.epoch {
        assert!(matches!(receiver.state, State::Idle | State::Init), "{receiver:?}");
    }
    if receiver.state == State::Idle {
        assert_eq!(rig.sent[&(stream, receiver.epoch)], content);
    }
}

#[test]
fn each_fault_is_said_by_its_name() {
    let always = 1000;
    type Case = (Faults, Error, Option<Error>);
    let cases: [Case; 4] = [
        (Faults { read_fails: always, ..Faults::default() }, Error::Read, None),
        (Faults { data_lost: 40, ..Faults::default() }, Error::Peer, Some(Error::Sequence)),
        (Faults { grant_lost: always, ..Faults::default() }, Error::Stalled, None),
        (Faults { data_lost: always, ..Faults::default() }, Error::Stalled, None),
    ];
    for (faults, sender, receiver) in cases {
        let mut rig = rig(7, 1);
        rig.faults = faults;
        start_receiver(&mut rig, 0);
        start_sender(&mut rig, 0, 0);
        rig.run(SECOND);
        assert_eq!(rig.status(End::Ssd, 0).error, Some(sender), "{faults:?}");
        assert_eq!(rig.status(End::Nic, 0).error, receiver, "{faults:?}");
        check(&rig, 0);
    }
}

#[test]
fn a_write_that_cannot_be_delivered_ends_its_stream_alone() {
    let mut rig = rig(7, 2);
    for stream in [0, 1] {
        start_receiver(&mut rig, stream);
        start_sender(&mut rig, stream, 2_000_000);
    }
    rig.run(10 * MS);
    rig.faults.write_refused = 1000;
    rig.run(10 * MS + 600 * US);
    rig.faults.write_refused = 0;
    for stream in [0, 1] {
        assert_eq!(rig.status(End::Ssd, stream).error, Some(Error::Bus));
        start_receiver(&mut rig, stream);
    }
    start_sender(&mut rig, 1, 2_000_000);
    // A refusal that is told late, of the run before, is not the new run's.
    rig.ssd.write_failed(Origin { stream: 1, run: 1 });
    assert!(rig.status(End::Ssd, 1).state.is_running());
    rig.run(2 * SECOND);
    assert_eq!(rig.status(End::Ssd, 1).state, State::Idle);
    check(&rig, 1);
}

#[test]
fn a_link_that_goes_ends_the_nics_runs_and_the_next_start_is_refused() {
    let mut rig = rig(7, 2);
    for stream in [0, 1] {
        start_receiver(&mut rig, stream);
        start_sender(&mut rig, stream, 2_000_000);
    }
    rig.run(10 * MS);
    rig.nic.set_link(false);
    rig.run(SECOND);
    for stream in [0, 1] {
        assert_eq!(rig.status(End::Nic, stream).error, Some(Error::Link));
        assert_eq!(rig.status(End::Ssd, stream).error, Some(Error::Peer));
    }
    start_receiver(&mut rig, 0);
    assert_eq!(rig.status(End::Nic, 0).error, Some(Error::Link));
    rig.nic.set_link(true);
    start_receiver(&mut rig, 0);
    start_sender(&mut rig, 0, 0);
    rig.run(2 * SECOND);
    assert_eq!(rig.status(End::Ssd, 0).state, State::Idle);
    check(&rig, 0);
}

#[test]
fn data_writes_that_come_twice_do_no_harm() {
    let mut rig = rig(7, 1);
    rig.faults = Faults { data_doubled: 300, grant_doubled: 300, ..Faults::default() };
    start_receiver(&mut rig, 0);
    start_sender(&mut rig, 0, 0);
    rig.run(SECOND);
    assert_eq!(rig.status(End::Ssd, 0).state, State::Idle);
    assert!(rig.report(End::Nic, 0).dropped.late > 10);
    check(&rig, 0);
}

#[test]
fn lost_late_and_doubled_grants_only_cost_time() {
    let mut rig = rig(7, 1);
    rig.faults = Faults { grant_lost: 400, grant_doubled: 200, grant_delay: 8 * MS, ..Faults::default() };
    start_receiver(&mut rig, 0);
    start_sender(&mut rig, 0, 0);
    rig.run(5 * SECOND);
    assert_eq!(rig.status(End::Ssd, 0).state, State::Idle);
    check(&rig, 0);
}

/// Something that is done to a stream's end, at some time.
#[derive(Clone, Debug)]
enum Deed {
    Pause(End, bool),
    Clear(End),
    StartReceiver,
    StartSender(u64),
    StartBoth(u64),
    End(End, u64),
    /// For each stream, since the link and functions are everyone's.
    Link(bool),
    Reset(End),
    Faults(Faults),
}

fn ends() -> impl Strategy<Value = End> {
    prop_oneof![Just(End::Ssd), Just(End::Nic)]
}

fn faults() -> impl Strategy<Value = Faults> {
    let permille = || prop_oneof![2 => Just(0u32), 1 => 0u32..300, 1 => 300u32..1001];
    let small = || prop_oneof![3 => Just(0u32), 1 => 0u32..50];
    let delay = || prop_oneof![Just(0u64), 0..20 * MS];
    (permille(), permille(), delay(), small(), small(), delay(), small(), small()).prop_map(
        |(grant_lost, grant_doubled, grant_delay, data_lost, data_doubled, data_delay, read, refused)| {
            Faults {
                grant_lost,
                grant_doubled,
                grant_delay,
                data_lost,
                data_doubled,
                data_delay,
                read_fails: read,
                store_fails: 0,
                write_refused: refused / 5,
            }
        },
    )
}

fn deeds() -> impl Strategy<Value = Deed> {
    let speed = || prop_oneof![Just(0u64), 500_000u64..20_000_000];
    prop_oneof![
        3 => (ends(), any::<bool>()).prop_map(|(end, on)| Deed::Pause(end, on)),
        1 => ends().prop_map(Deed::Clear),
        1 => Just(Deed::StartReceiver),
        1 => speed().prop_map(Deed::StartSender),
        4 => speed().prop_map(Deed::StartBoth),
        1 => (ends(), 0u64..200_000).prop_map(|(end, count)| Deed::End(end, count)),
        1 => any::<bool>().prop_map(Deed::Link),
        1 => ends().prop_map(Deed::Reset),
        2 => faults().prop_map(Deed::Faults),
    ]
}

fn carry_out(rig: &mut Rig, stream: u16, deed: &Deed) {
    match *deed {
        Deed::Pause(end, on) => {
            let layout = rig.layout(end);
            let offset = layout.register(stream, dcs_d2d::register::TX_ADDRESS);
            let address = rig.read(end, offset) & !7;
            rig.write(end, layout.pause(stream, address, on));
        }
        Deed::Clear(end) => {
            let layout = rig.layout(end);
            rig.write(end, layout.clear(stream));
            // The list, which is cleared as well.
            rig.prepare(stream, &template(stream, 1316), &TASKS);
        }
        Deed::StartReceiver => start_receiver(rig, stream),
        Deed::StartSender(speed) => start_sender(rig, stream, speed),
        Deed::StartBoth(speed) => {
            start_receiver(rig, stream);
            start_sender(rig, stream, speed);
        }
        // A shorter stream would be right as well; here the other end is not told, so that it cannot end.
        Deed::End(end, count) => {
            let layout = rig.layout(end);
            rig.write(end, layout.end_at(stream, count.max(1)));
        }
        Deed::Link(up) => rig.nic.set_link(up),
        Deed::Reset(End::Ssd) => rig.ssd.reset(),
        Deed::Reset(End::Nic) => {
            rig.nic.reset();
            rig.write(
                End::Nic,
                dcs_d2d::driver::Write { offset: dcs_d2d::register::APERTURE_BASE, value: 0x20_0000_0000 },
            );
        }
        Deed::Faults(faults) => rig.faults = faults,
    }
    if matches!(deed, Deed::Reset(_)) {
        for stream in 0..2 {
            rig.prepare(stream, &template(stream, 1316), &TASKS);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Two streams; everything is done to the first, and to the second nothing but what both share.
    #[test]
    fn any_interleaving_ends_in_the_right_bytes_or_a_said_failure(
        seed in any::<u64>(),
        first in faults(),
        deeds in prop::collection::vec((0u64..30 * MS, deeds()), 0..40),
    ) {
        let mut rig = rig(seed, 2);
        rig.faults = first;
        let mut shortened = BTreeMap::new();
        for stream in [0, 1] {
            start_receiver(&mut rig, stream);
            start_sender(&mut rig, stream, 3_000_000);
        }
        for (wait, deed) in &deeds {
            let until = rig.now + wait;
            rig.run(until);
            carry_out(&mut rig, 0, deed);
            if let Deed::End(..) = deed {
                shortened.insert(rig.status(End::Nic, 0).epoch, ());
            }
        }
        // Whoever stands still goes on; grants still get lost, unless all do.
        rig.nic.set_link(true);
        rig.faults.grant_lost = rig.faults.grant_lost.min(900);
        carry_out(&mut rig, 0, &Deed::Pause(End::Ssd, false));
        carry_out(&mut rig, 0, &Deed::Pause(End::Nic, false));
        let until = rig.now + 60 * SECOND;
        rig.run(until);
        for stream in [0, 1] {
            let sender = rig.status(End::Ssd, stream);
            prop_assert!(!sender.state.is_running(), "stream {stream} is stuck: {sender:?}");
        }
        check(&rig, 1);
        if shortened.is_empty() {
            check(&rig, 0);
        } else {
            let content = rig.content(&TASKS);
            for ((stream, _), bytes) in &rig.sent {
                prop_assert!(*stream == 1 || content.starts_with(bytes));
            }
        }
        // And whatever has been, the next run is as good as the first.
        rig.faults = Faults::default();
        carry_out(&mut rig, 0, &Deed::StartBoth(0));
        let until = rig.now + SECOND;
        rig.run(until);
        prop_assert_eq!(rig.status(End::Ssd, 0).state, State::Idle);
        check(&rig, 0);
    }
}
