//! State tables: each command in each state, for both roles, by the tables of docs/d2d.md.

use crate::rig::{End, MS, Rig, SECOND, rate, template};
use dcs_d2d::driver::{Receive, Send, Write};
use dcs_d2d::register::{self, Error, Grant, State, Status, Task};
use dcs_d2d::{nic, ssd};

const TASKS: [Task; 1] = [Task { lba: 0, blocks: 8 }];
const BYTES: u64 = 8 * 4096;

/// The ways to bring a stream into a state.
const STATES: [State; 6] = [State::Init, State::Send, State::Wait, State::Check, State::Idle, State::Failed];

/// A sender in this state; its receiver has the epoch that the sender's registers name.
fn sender_in(state: State) -> Rig {
    let mut rig = Rig::new(ssd::Config::new(1, 8), nic::Config::new(1), 1);
    rig.prepare(0, &template(0, 1316), &TASKS);
    let send = Send { rate: rate(4096 * 1000, 1000), ..Send::default() };
    match state {
        State::Init => {}
        State::Send => rig.start(0, BYTES, &send),
        State::Wait => {
            rig.start(0, BYTES, &send);
            rig.run(2 * MS + MS / 2);
        }
        State::Check => {
            rig.wire_ps = 1 << 40;
            rig.start(0, BYTES, &send);
            rig.run(50 * MS);
        }
        State::Idle => {
            rig.start(0, BYTES, &send);
            rig.run(SECOND);
        }
        _ => {
            rig.start(0, BYTES, &send);
            rig.run(MS);
            let epoch = rig.status(End::Nic, 0).epoch;
            let grant = Grant { epoch, failed: true, ..Grant::default() };
            let write = rig.layout(End::Ssd).grant(0, grant);
            rig.write(End::Ssd, write);
        }
    }
    assert_eq!(rig.status(End::Ssd, 0).state, state);
    rig
}

/// The commands, as the low bits of Tx Address.
const START: u64 = 1;
const CLEAR: u64 = 2;
const PAUSE: u64 = 4;

#[test]
fn each_combination_of_commands_in_each_state_of_a_sender() {
    for state in STATES {
        for bits in 0..8 {
            let mut rig = sender_in(state);
            // A fresh run for the sender, which a start needs.
            let receive =
                Receive { bytes: BYTES, grants_to: rig.grants_to(End::Ssd, 0), ..Receive::default() };
            if bits & START != 0 {
                let was = rig.status(End::Ssd, 0);
                rig.receive(End::Nic, 0, &receive);
                assert_eq!(rig.status(End::Ssd, 0), was, "the receiver's grant is under way still");
                let place = rig.place(End::Nic, 0).unwrap();
                let writes = rig.layout(End::Ssd).send(0, &place, &Send { bytes: BYTES, ..Send::default() });
                rig.write_all(End::Ssd, writes.into_iter().filter(|write| write.offset != 0x1000));
            }
            let address = rig.place(End::Nic, 0).map_or(0x20_0000_0000, |place| place.address);
            rig.write(End::Ssd, Write { offset: 0x1000, value: address | bits });
            let Status { state: after, paused, error, .. } = rig.status(End::Ssd, 0);
            let expected = match bits & (START | CLEAR) {
                0 => state,
                CLEAR => State::Init,
                START => State::Send,
                // The tasks are gone before the start looks for them.
                _ => State::Failed,
            };
            assert_eq!(after, expected, "{state:?} and {bits:#b}");
            assert_eq!(paused, bits & PAUSE != 0);
            if bits & (START | CLEAR) == START | CLEAR {
                assert_eq!(error, Some(Error::Tasks));
            }
            // Commands read as zero, and the pause as it is.
            assert_eq!(rig.read(End::Ssd, 0x1000), address | bits & PAUSE);
            let moved = rig.report(End::Ssd, 0).moved;
            assert!(bits & (START | CLEAR) == 0 || moved == 0);
        }
    }
}

#[test]
fn each_combination_of_commands_in_each_state_of_a_receiver() {
    for state in [State::Init, State::Fetch, State::Calc, State::Idle, State::Failed] {
        for bits in 0..8 {
            let mut rig = match state {
                State::Init => sender_in(State::Init),
                State::Fetch => sender_in(State::Send),
                State::Calc => sender_in(State::Check),
                State::Idle => sender_in(State::Idle),
                _ => {
                    let mut rig = sender_in(State::Send);
                    rig.nic.set_link(false);
                    rig.nic.set_link(true);
                    rig
                }
            };
            let before = rig.status(End::Nic, 0);
            assert_eq!(before.state, state);
            rig.write(End::Nic, Write { offset: 0x1000, value: bits });
            let after = rig.status(End::Nic, 0);
            let expected = match bits & (START | CLEAR) {
                // A queue that nobody empties waits where it is.
                0 if state == State::Calc && bits & PAUSE != 0 => State::Fetch,
                0 => state,
                CLEAR => State::Init,
                _ => State::Fetch,
            };
            assert_eq!(after.state, expected, "{state:?} and {bits:#b}");
            assert_eq!(after.paused, bits & PAUSE != 0);
            assert_eq!(after.epoch, before.epoch + u16::from(bits & START != 0), "each start is a run");
            // Data of the run before go to another place.
            let place = rig.read(End::Nic, 0x1008);
            assert_eq!(place, 0x20_0000_0000 + u64::from(after.epoch % 4) * 64 * 4096);
        }
    }
}

#[test]
fn what_is_written_during_a_run_counts_from_the_next_start_on() {
    let mut rig = sender_in(State::Wait);
    for offset in [register::RATE, register::BASE_CREDITS, register::CONTROL, register::TIMES] {
        rig.write(End::Ssd, Write { offset: 0x1000 + offset, value: 0 });
    }
    rig.write(End::Ssd, Write { offset: 0x1000, value: 0 });
    rig.write(End::Ssd, Write { offset: 0x1000 + register::TASK_LIST, value: 0 });
    rig.run(SECOND);
    assert_eq!(rig.status(End::Ssd, 0).state, State::Idle);
    assert_eq!(rig.received(0), rig.content(&TASKS));
}

#[test]
fn a_grant_that_is_written_in_two_takes_effect_with_its_upper_half() {
    let mut rig = sender_in(State::Wait);
    let offset = 0x1000 + register::GRANT;
    let epoch = rig.status(End::Nic, 0).epoch;
    let grant = Grant { epoch, failed: true, ..Grant::default() }.bits().to_le_bytes();
    rig.ssd.write(offset, &grant[..4], rig.now);
    assert_eq!(rig.status(End::Ssd, 0).state, State::Wait);
    rig.ssd.write(offset + 4, &grant[4..], rig.now);
    assert_eq!(rig.status(End::Ssd, 0).error, Some(Error::Peer));
}

#[test]
fn a_command_in_the_upper_half_alone_is_none() {
    let mut rig = sender_in(State::Wait);
    rig.ssd.write(0x1004, &[0xff; 4], rig.now);
    assert_eq!(rig.status(End::Ssd, 0).state, State::Wait);
}

#[test]
fn a_stream_may_change_its_role_from_run_to_run() {
    let mut rig = sender_in(State::Idle);
    let receive = Receive { bytes: 100, ..Receive::default() };
    rig.receive(End::Ssd, 0, &receive);
    let place = rig.place(End::Ssd, 0).unwrap();
    let status = rig.status(End::Ssd, 0);
    assert_eq!((status.state, status.role), (State::Fetch, register::Role::Receiver));
    let offset = place.address - 0x10_0000_0000;
    rig.ssd.data(offset, &[7; 100], rig.now);
    rig.run(2 * SECOND);
    assert_eq!(rig.status(End::Ssd, 0).state, State::Idle);
    assert_eq!(rig.medium[..100], [7; 100]);
    assert_eq!(rig.medium[100..4096], [0; 3996]);
}

#[test]
fn a_data_write_is_judged_by_its_place() {
    // With 8 credits: the aperture wraps after 16.
    let credit = 4096;
    let config = nic::Config { window: 8, ..nic::Config::new(2) };
    // Written already: a packet and a bit. Offset, bytes, the error; None and a count: dropped.
    type Case = (u64, usize, Option<Error>, u32);
    let cases: [Case; 10] = [
        (1400, 100, None, 0),
        (1401, 100, Some(Error::Sequence), 0),
        (8 * credit, 100, Some(Error::Sequence), 0),
        (1300, 100, None, 1),
        (0, 1400, None, 1),
        (1300, 101, Some(Error::Sequence), 0),
        (16 * credit - 1, 1, None, 1),
        (16 * credit - 1, 2, Some(Error::Overrun), 0),
        // Another run's place, and another stream's.
        (16 * credit + 1400, 100, None, 1),
        (4 * 16 * credit, 100, None, 0),
    ];
    for (offset, bytes, error, late) in cases {
        let mut rig = Rig::new(ssd::Config::new(2, 8), config, 1);
        rig.prepare(0, &template(0, 1316), &TASKS);
        rig.receive(End::Nic, 0, &Receive::default());
        let base = rig.place(End::Nic, 0).unwrap().address - 0x20_0000_0000;
        rig.nic.data(base, &[1; 1400], 0);
        // Epoch 1's place is the second of four: the case with another stream's counts from the first
        // stream's start.
        let at = if offset == 4 * 16 * credit { offset } else { base + offset };
        rig.nic.data(at, &vec![2; bytes], 0);
        let report = rig.report(End::Nic, 0);
        assert_eq!((report.status.error, report.dropped.late), (error, late), "{offset} {bytes}");
    }
    let mut rig = Rig::new(ssd::Config::new(2, 8), config, 1);
    rig.prepare(0, &template(0, 1316), &TASKS);
    rig.receive(End::Nic, 0, &Receive { bytes: 5000, ..Receive::default() });
    let base = rig.place(End::Nic, 0).unwrap().address - 0x20_0000_0000;
    rig.nic.data(base, &[1; 4096], 0);
    rig.nic.data(base + 4096, &[1; 905], 0);
    assert_eq!(rig.status(End::Nic, 0).error, Some(Error::Overrun), "more than the stream has");
    rig.receive(End::Nic, 0, &Receive::default());
    let base = rig.place(End::Nic, 0).unwrap().address - 0x20_0000_0000;
    for at in 0..8 {
        rig.nic.data(base + at * 4096, &[1; 4096], 0);
        assert_eq!(rig.status(End::Nic, 0).error, None);
    }
    rig.nic.data(base + 8 * 4096, &[1], 0);
    assert_eq!(rig.status(End::Nic, 0).error, Some(Error::Overrun), "more than the queue has");
    // Beyond the aperture is nothing.
    rig.nic.data(u64::MAX, &[1], 0);
}
