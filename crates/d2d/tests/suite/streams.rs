//! One stream from an SSD to a NIC: the bytes, the pace, the states, and what register writes do.

use crate::rig::{End, MS, Rig, SECOND, US, rate, template};
use dcs_d2d::driver::{Receive, Send};
use dcs_d2d::register::{END_HERE, Error, Grant, State, Task, Times};
use dcs_d2d::{Operator, nic, ssd};
use proptest::prelude::*;
use std::sync::{Arc, Mutex};

pub const TASKS: [Task; 3] =
    [Task { lba: 30, blocks: 9 }, Task { lba: 0, blocks: 25 }, Task { lba: 40, blocks: 2 }];
/// Of 36 blocks, the last is not whole.
const BYTES: u64 = 35 * 4096 + 1234;

pub fn rig(seed: u64) -> Rig {
    let mut rig = Rig::new(ssd::Config::new(2, 64), nic::Config::new(2), seed);
    rig.prepare(0, &template(0, 1316), &TASKS);
    rig
}

#[test]
fn all_bytes_leave_in_packets_and_both_ends_are_idle() {
    for rate in [rate(0, 0), rate(2_500_000, 1638), rate(977_500, 1000)] {
        let mut rig = rig(1);
        rig.start(0, BYTES, &Send { rate, interrupt: true, ..Send::default() });
        assert!(rig.run(10 * SECOND));
        let expected = &rig.content(&TASKS)[..BYTES as usize];
        assert_eq!(rig.received(0), expected);
        for end in [End::Ssd, End::Nic] {
            let report = rig.report(end, 0);
            assert_eq!((report.status.state, report.status.error), (State::Idle, None));
            assert_eq!((report.moved, report.taken), (BYTES, BYTES));
            assert_eq!(report.dropped.late, 0);
            assert_eq!(rig.interrupts.iter().filter(|(_, from, _)| *from == end).count(), 1);
        }
        let lengths: Vec<usize> = rig.frames.iter().map(|(_, _, frame)| frame.len() - 42).collect();
        let (last, whole) = lengths.split_last().unwrap();
        assert!(whole.iter().all(|length| *length == 1316));
        assert_eq!(*last as u64, BYTES % 1316);
        assert_eq!(rig.report(End::Nic, 0).packets, lengths.len() as u64);
    }
}

#[test]
fn a_sender_without_a_count_sends_all_its_tasks() {
    let mut rig = rig(1);
    let all = 36 * 4096;
    let receive = Receive { bytes: all, grants_to: rig.grants_to(End::Ssd, 0), ..Receive::default() };
    rig.receive(End::Nic, 0, &receive);
    let place = rig.place(End::Nic, 0).unwrap();
    rig.send(End::Ssd, 0, &place, &Send::default());
    assert!(rig.run(SECOND));
    assert_eq!(rig.received(0), rig.content(&TASKS));
    assert_eq!(rig.status(End::Ssd, 0).state, State::Idle);
}

#[test]
fn writes_are_due_by_the_rate_and_nothing_drifts() {
    let mut rig = rig(1);
    // Slots of which none has a whole number of bytes.
    rig.start(0, BYTES, &Send { rate: rate(333_333, 777), ..Send::default() });
    assert!(rig.run(10 * SECOND));
    let mut sent = 0;
    for (time, _, bytes) in &rig.writes {
        sent += *bytes as u128;
        // The slot that began last at this time, and the bytes due in it.
        let slots = u128::from(*time) / 777_000 + 1;
        assert!(sent <= 333_333 * slots * 777 / 1_000_000, "{sent} bytes at {time}");
    }
    let end = rig.writes.last().unwrap().0;
    let slots = (u128::from(BYTES) * 1_000_000).div_ceil(333_333 * 777);
    // The first slot waits for the medium; no other does.
    assert!(u128::from(end) <= (slots - 1) * 777_000, "the last at {end}");
}

#[test]
fn the_sender_goes_through_the_states_of_the_figure() {
    let mut rig = rig(1);
    assert_eq!(rig.status(End::Ssd, 0).state, State::Init);
    assert_eq!(rig.status(End::Nic, 0).state, State::Init);
    rig.start(0, 4096, &Send { rate: rate(2048 * 1000, 1000), ..Send::default() });
    assert_eq!(rig.status(End::Ssd, 0).state, State::Send);
    assert_eq!(rig.status(End::Nic, 0).state, State::Fetch);
    rig.run(500 * US);
    assert_eq!(rig.status(End::Ssd, 0).state, State::Wait);
    // The wire is taken away, so that the receiver keeps what comes.
    rig.wire_ps = 1 << 40;
    rig.run(SECOND / 2);
    assert_eq!(rig.status(End::Ssd, 0).state, State::Check);
    assert_eq!(rig.status(End::Nic, 0).state, State::Calc);
    rig.run(2 * SECOND);
    let status = rig.status(End::Ssd, 0);
    assert_eq!((status.state, status.error), (State::Failed, Some(Error::Stalled)));
}

#[test]
fn a_pause_keeps_the_position_and_is_followed_by_no_burst() {
    for end in [End::Ssd, End::Nic] {
        let mut rig = rig(1);
        rig.start(0, BYTES, &Send { rate: rate(1_000_000, 1000), ..Send::default() });
        rig.run(20 * MS);
        let address = if end == End::Ssd { rig.place(End::Nic, 0).unwrap().address } else { 0 };
        let write = rig.layout(end).pause(0, address, true);
        rig.write(end, write);
        assert!(rig.status(end, 0).paused);
        rig.run(40 * MS);
        let (frames, writes) = (rig.frames.len(), rig.writes.len());
        // For longer than any stall limit.
        rig.run(5 * SECOND);
        assert_eq!(rig.frames.len(), frames);
        let write = rig.layout(end).pause(0, address, false);
        rig.write(end, write);
        let resumed = rig.now;
        assert!(rig.run(10 * SECOND));
        assert_eq!(rig.received(0), rig.content(&TASKS)[..BYTES as usize]);
        assert_eq!(rig.status(End::Ssd, 0).state, State::Idle);
        if end == End::Ssd {
            let early: usize = rig.writes[writes..]
                .iter()
                .filter(|(time, _, _)| *time < resumed + 10 * MS)
                .map(|(_, _, bytes)| bytes)
                .sum();
            assert_eq!(early, 10_000, "in the first ten slots after the pause");
        }
    }
}

#[test]
fn a_stream_that_starts_paused_begins_at_the_resume() {
    let mut rig = rig(1);
    let receive = Receive { bytes: BYTES, grants_to: rig.grants_to(End::Ssd, 0), ..Receive::default() };
    rig.receive(End::Nic, 0, &receive);
    let place = rig.place(End::Nic, 0).unwrap();
    let mut writes = rig.layout(End::Ssd).send(0, &place, &Send { bytes: BYTES, ..Send::default() });
    writes.last_mut().unwrap().value |= 4;
    rig.write_all(End::Ssd, writes);
    rig.run(3 * SECOND);
    assert!(rig.writes.is_empty());
    assert!(rig.status(End::Ssd, 0).paused);
    let write = rig.layout(End::Ssd).pause(0, place.address, false);
    rig.write(End::Ssd, write);
    assert!(rig.run(10 * SECOND));
    assert_eq!(rig.received(0), rig.content(&TASKS)[..BYTES as usize]);
}

#[test]
fn a_replay_sends_the_same_from_the_start() {
    let mut rig = rig(1);
    let send = Send { rate: rate(1_000_000, 1000), ..Send::default() };
    rig.start(0, BYTES, &send);
    rig.run(30 * MS);
    // In the middle of the run: both ends anew, from the registers as they are.
    rig.start(0, BYTES, &send);
    assert!(rig.run(10 * SECOND));
    assert_eq!(rig.received(0), rig.content(&TASKS)[..BYTES as usize]);
    assert_eq!(rig.status(End::Nic, 0).epoch, 2);
    let first = &rig.sent[&(0, 1)];
    assert_eq!(first[..], rig.content(&TASKS)[..first.len()]);
}

#[test]
fn a_sender_needs_a_run_of_its_own() {
    let mut rig = rig(1);
    rig.start(0, BYTES, &Send::default());
    let place = rig.place(End::Nic, 0).unwrap();
    rig.run(MS / 4);
    rig.send(End::Ssd, 0, &place, &Send { bytes: BYTES, ..Send::default() });
    let status = rig.status(End::Ssd, 0);
    assert_eq!((status.state, status.error), (State::Failed, Some(Error::Epoch)));
    rig.run(10 * SECOND);
    let left = rig.received(0);
    assert_eq!(left[..], rig.content(&TASKS)[..left.len()]);
}

#[test]
fn a_sender_may_go_to_another_receiver_with_the_same_epoch() {
    let mut rig = rig(1);
    rig.prepare(1, &template(1, 1316), &[]);
    rig.start(0, BYTES, &Send::default());
    rig.run(10 * SECOND);
    // The other stream of the NIC is in its first run too.
    let grants_to = rig.grants_to(End::Ssd, 0);
    rig.receive(End::Nic, 1, &Receive { bytes: BYTES, grants_to, ..Receive::default() });
    let place = rig.place(End::Nic, 1).unwrap();
    assert_eq!(place.epoch, rig.status(End::Nic, 0).epoch);
    rig.send(End::Ssd, 0, &place, &Send { bytes: BYTES, ..Send::default() });
    rig.run(10 * SECOND);
    assert_eq!(rig.status(End::Ssd, 0).state, State::Idle);
    assert_eq!(rig.received(1), rig.content(&TASKS)[..BYTES as usize]);
}

#[test]
fn a_sender_takes_a_receiver_that_was_powered_on_again_for_another() {
    let config = |epoch| nic::Config { epoch, ..nic::Config::new(2) };
    for (epoch, first, error) in [(u16::MAX, 0, None), (0, 1, Some(Error::Epoch))] {
        let mut rig = rig(1);
        rig.start(0, BYTES, &Send::default());
        rig.run(10 * SECOND);
        assert_eq!(rig.status(End::Nic, 0).epoch, 1);
        rig.replace_nic(config(epoch));
        rig.prepare(0, &template(0, 1316), &TASKS);
        let grants_to = rig.grants_to(End::Ssd, 0);
        rig.receive(End::Nic, 0, &Receive { bytes: BYTES, grants_to, ..Receive::default() });
        let place = rig.place(End::Nic, 0).unwrap();
        assert_eq!(place.epoch, first);
        rig.send(End::Ssd, 0, &place, &Send { bytes: BYTES, ..Send::default() });
        rig.run(10 * SECOND);
        assert_eq!(rig.status(End::Ssd, 0).error, error);
    }
}

#[test]
fn a_receiver_that_is_started_anew_ends_the_senders_run() {
    let mut rig = rig(1);
    rig.start(0, BYTES, &Send { rate: rate(1_000_000, 1000), ..Send::default() });
    rig.run(20 * MS);
    let receive = Receive { bytes: BYTES, grants_to: rig.grants_to(End::Ssd, 0), ..Receive::default() };
    rig.receive(End::Nic, 0, &receive);
    rig.run(30 * MS);
    let status = rig.status(End::Ssd, 0);
    assert_eq!((status.state, status.error), (State::Failed, Some(Error::Restarted)));
    assert!(!rig.sent.contains_key(&(0, 2)), "nothing of the old run is in the new one");
}

#[test]
fn clear_goes_back_to_init_and_empties_the_queues() {
    let mut rig = rig(1);
    rig.start(0, BYTES, &Send { rate: rate(1_000_000, 1000), ..Send::default() });
    rig.run(20 * MS);
    for end in [End::Ssd, End::Nic] {
        let write = rig.layout(end).clear(0);
        rig.write(end, write);
        let report = rig.report(end, 0);
        assert_eq!(report.status.state, State::Init);
        assert_eq!((report.moved, report.taken), (0, 0));
    }
    assert!(rig.run(10 * SECOND), "nothing goes on");
    // The list of tasks is a queue as well: a start has none to send.
    rig.start(0, BYTES, &Send::default());
    let status = rig.status(End::Ssd, 0);
    assert_eq!((status.state, status.error), (State::Failed, Some(Error::Tasks)));
}

#[test]
fn a_count_that_is_written_during_the_run_ends_it_there() {
    for (count, least, most) in [(50_000, 50_000, 50_000), (1, 20_000, 30_000), (END_HERE, 20_000, 30_000)] {
        let mut rig = rig(1);
        rig.start(0, BYTES, &Send { rate: rate(1_000_000, 1000), ..Send::default() });
        rig.run(25 * MS);
        let write = rig.layout(End::Ssd).end_at(0, count);
        rig.write(End::Ssd, write);
        rig.run(MS * 200);
        let moved = rig.report(End::Ssd, 0).moved;
        assert!((least..=most).contains(&moved), "{moved}");
        assert_eq!(rig.status(End::Ssd, 0).state, State::Check, "the receiver waits for more");
        // The receiver is told what the sender ended at.
        let write = rig.layout(End::Nic).end_at(0, moved);
        rig.write(End::Nic, write);
        assert!(rig.run(10 * SECOND));
        assert_eq!(rig.status(End::Ssd, 0).state, State::Idle);
        assert_eq!(rig.status(End::Nic, 0).state, State::Idle);
        assert_eq!(rig.received(0), rig.content(&TASKS)[..moved as usize]);
    }
}

#[test]
fn the_driver_passes_grants_on_where_the_receiver_has_no_address() {
    let mut rig = rig(1);
    let receive = Receive { bytes: BYTES, interrupt: true, ..Receive::default() };
    rig.receive(End::Nic, 0, &receive);
    let place = rig.place(End::Nic, 0).unwrap();
    // Four credits under way, of the receiver's 32.
    rig.send(End::Ssd, 0, &place, &Send { bytes: BYTES, credits: 4, ..Send::default() });
    let mut steps = 0;
    while rig.status(End::Ssd, 0).state.is_running() {
        let until = rig.now + MS;
        rig.run(until);
        let report = rig.report(End::Ssd, 0);
        assert!(report.moved - report.taken <= 4 * 4096);
        rig.pass_grant(0);
        steps += 1;
        assert!(steps < 200);
    }
    assert_eq!(rig.status(End::Ssd, 0).state, State::Idle);
    assert_eq!(rig.received(0), rig.content(&TASKS)[..BYTES as usize]);
    assert_eq!(rig.grants, 0);
    assert!(rig.interrupts.iter().filter(|(_, end, _)| *end == End::Nic).count() > 2);
}

#[test]
fn a_paused_receiver_whose_grants_the_driver_repeats_is_not_taken_for_gone() {
    for repeats in [true, false] {
        let mut rig = rig(1);
        rig.receive(End::Nic, 0, &Receive { bytes: BYTES, ..Receive::default() });
        let place = rig.place(End::Nic, 0).unwrap();
        let times = Times { stall_us: 10_000, refresh_us: 0 };
        rig.send(End::Ssd, 0, &place, &Send { bytes: BYTES, times, ..Send::default() });
        let write = rig.layout(End::Nic).pause(0, 0, true);
        rig.write(End::Nic, write);
        rig.pass_grant(0);
        for _ in 0..10 {
            let until = rig.now + 5 * MS;
            rig.run(until);
            if repeats {
                rig.pass_grant(0);
            }
        }
        let status = rig.status(End::Ssd, 0);
        assert_eq!((status.starved, status.error), (repeats, (!repeats).then_some(Error::Stalled)));
    }
}

#[test]
fn a_grant_for_what_was_never_sent_is_an_error() {
    let mut rig = rig(1);
    rig.start(0, BYTES, &Send { rate: rate(1_000_000, 1000), ..Send::default() });
    rig.run(5 * MS);
    let epoch = rig.status(End::Nic, 0).epoch;
    let write = rig.layout(End::Ssd).grant(0, Grant { taken: 20, epoch, ..Grant::default() });
    rig.write(End::Ssd, write);
    assert_eq!(rig.status(End::Ssd, 0).error, Some(Error::Grant));
}

#[test]
fn what_cannot_be_is_said_at_the_start() {
    type Change = fn(&mut Send, &mut dcs_d2d::driver::Place);
    let cases: [(Error, Change); 5] = [
        (Error::Rate, |send, _| send.rate = rate(1000, 0)),
        (Error::Credits, |_, place| place.credits = 0),
        (Error::Credits, |_, place| place.aperture = 63),
        (Error::Address, |_, place| place.address += 8),
        (Error::Tasks, |send, _| send.bytes = 36 * 4096 + 1),
    ];
    for (error, change) in cases {
        let mut rig = rig(1);
        let receive = Receive { bytes: BYTES, grants_to: rig.grants_to(End::Ssd, 0), ..Receive::default() };
        rig.receive(End::Nic, 0, &receive);
        let mut place = rig.place(End::Nic, 0).unwrap();
        let mut send = Send { bytes: BYTES, interrupt: true, ..Send::default() };
        change(&mut send, &mut place);
        rig.send(End::Ssd, 0, &place, &send);
        let status = rig.status(End::Ssd, 0);
        assert_eq!((status.state, status.error), (State::Failed, Some(error)));
        rig.run(MS);
        assert_eq!(rig.interrupts, [(0, End::Ssd, 0)]);
    }
    for task in [Task { lba: 64, blocks: 1 }, Task { lba: u64::MAX, blocks: 2 }, Task { lba: 1, blocks: 0 }] {
        let mut rig = rig(1);
        rig.prepare(0, &template(0, 1316), &[TASKS[0], task]);
        rig.start(0, 4096, &Send::default());
        assert_eq!(rig.status(End::Ssd, 0).error, Some(Error::Tasks));
    }
}

#[test]
fn a_queue_that_cannot_hold_a_packet_and_a_credit_is_refused() {
    let config = nic::Config { window: 2, mtu: 9000, ..nic::Config::new(1) };
    for (payload, error) in [(4096, None), (4097, Some(Error::Credits))] {
        let mut rig = Rig::new(ssd::Config { window: 8, ..ssd::Config::new(1, 64) }, config, 1);
        rig.prepare(0, &template(0, payload), &TASKS);
        let receive = Receive { bytes: BYTES, grants_to: rig.grants_to(End::Ssd, 0), ..Receive::default() };
        rig.receive(End::Nic, 0, &receive);
        assert_eq!(rig.status(End::Nic, 0).error, error);
        if error.is_none() {
            rig.start(0, BYTES, &Send::default());
            assert!(rig.run(SECOND), "it never stands still");
            assert_eq!(rig.status(End::Ssd, 0).state, State::Idle);
        }
    }
}

#[test]
fn a_receiver_that_hears_nothing_fails_if_it_has_a_limit() {
    let mut rig = rig(1);
    let times = Times { stall_us: 5_000, refresh_us: 0 };
    let receive =
        Receive { bytes: BYTES, grants_to: rig.grants_to(End::Ssd, 0), times, ..Receive::default() };
    rig.receive(End::Nic, 0, &receive);
    assert!(rig.run(10 * SECOND), "its last grant is not repeated for ever");
    let status = rig.status(End::Nic, 0);
    assert_eq!((status.state, status.error), (State::Failed, Some(Error::Stalled)));
}

/// Adds a number to each byte, which depends on its place; and keeps what it made.
struct Adder(u8, Arc<Mutex<Vec<u8>>>);

impl Operator for Adder {
    fn start(&mut self) {
        self.0 = 0;
        self.1.lock().unwrap().clear();
    }

    fn update(&mut self, bytes: &mut [u8]) {
        for byte in bytes.iter_mut() {
            *byte = byte.wrapping_add(self.0);
            self.0 = self.0.wrapping_add(1);
        }
        self.1.lock().unwrap().extend_from_slice(bytes);
    }
}

#[test]
fn an_operator_sees_every_byte_that_is_sent_once_and_in_order() {
    let mut rig = rig(1);
    let seen = Arc::new(Mutex::new(Vec::new()));
    rig.ssd.set_operator(0, Some(Box::new(Adder(9, seen.clone()))));
    for _ in 0..2 {
        rig.start(0, BYTES, &Send::default());
        rig.run(MS / 2);
    }
    assert!(rig.run(10 * SECOND));
    let plain = &rig.content(&TASKS)[..BYTES as usize];
    let expected: Vec<u8> = plain.iter().enumerate().map(|(at, byte)| byte.wrapping_add(at as u8)).collect();
    assert_eq!(rig.received(0), expected);
    assert_eq!(*seen.lock().unwrap(), expected);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_sizes_give_the_same_bytes(
        seed in any::<u64>(),
        shift in 9u8..=12,
        window in 2u32..20,
        payload in 6u32..=12,
        packet in 1u16..1473,
        bytes in 1u64..100_000,
        bytes_per_second in 0u64..50_000_000,
        granularity in 1u32..5_000,
        credits in 2u32..20,
    ) {
        let blocks = 200_000 >> shift;
        let mut ssd = ssd::Config { block_shift: shift, payload: 1 << payload, ..ssd::Config::new(1, blocks) };
        (ssd.transfer, ssd.read_ahead) = (4096, 3 * 4096);
        let nic = nic::Config { window, payload: 256, ..nic::Config::new(1) };
        let mut rig = Rig::new(ssd, nic, seed);
        let tasks = [Task { lba: 3, blocks: 7 }, Task { lba: 0, blocks: (110_000 >> shift) as u32 }];
        rig.prepare(0, &template(0, packet), &tasks);
        let bytes = bytes.min(rig.content(&tasks).len() as u64);
        // Slow ones would take days.
        let bytes_per_second = if bytes_per_second < 100_000 { 0 } else { bytes_per_second };
        rig.start(0, bytes, &Send { rate: rate(bytes_per_second, granularity), credits, ..Send::default() });
        prop_assert!(rig.run(1000 * SECOND));
        prop_assert_eq!(rig.status(End::Ssd, 0).state, State::Idle);
        prop_assert_eq!(&rig.received(0)[..], &rig.content(&tasks)[..bytes as usize]);
    }
}
