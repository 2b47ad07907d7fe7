//! Many streams: each gets its share, keeps its pace, and costs nothing while it waits.

use crate::rig::{End, MS, Rig, SECOND, US, rate, template};
use dcs_d2d::driver::{Receive, Send};
use dcs_d2d::register::{EVENT, Event, State, Task, Times};
use dcs_d2d::{nic, ssd};

#[test]
fn streams_that_want_all_get_the_same() {
    let mut rig = Rig::new(ssd::Config::new(16, 512), nic::Config::new(16), 3);
    let bytes = 256 * 4096;
    for stream in 0..16 {
        rig.prepare(stream, &template(stream, 1316), &[Task { lba: 0, blocks: 256 }]);
        rig.start(stream, bytes, &Send::default());
    }
    // Once their queues are filled, the wire is what all of them wait for.
    let packets = |rig: &Rig| (0..16).map(|stream| rig.report(End::Nic, stream).packets).collect::<Vec<_>>();
    rig.run(4 * MS);
    let before = packets(&rig);
    rig.run(8 * MS);
    let taken: Vec<u64> = packets(&rig).iter().zip(before).map(|(after, before)| after - before).collect();
    let (least, most) = (taken.iter().min().unwrap(), taken.iter().max().unwrap());
    assert!(*least > 20 && most - least <= 1, "{taken:?}");
    rig.run(SECOND);
    for stream in 0..16 {
        assert_eq!(rig.status(End::Ssd, stream).state, State::Idle);
        assert_eq!(rig.received(stream), rig.content(&[Task { lba: 0, blocks: 256 }]));
    }
}

#[test]
fn a_hundred_and_twenty_videos_keep_their_pace() {
    const STREAMS: u16 = 120;
    let nic = nic::Config::new(STREAMS);
    let mut rig = Rig::new(ssd::Config::new(STREAMS, 64), nic, 3);
    let tasks = [Task { lba: 0, blocks: 64 }];
    // 7.82 Mb/s in slots of a millisecond, on a wire of 10 Gb/s.
    let send = Send { rate: rate(977_500, 1000), interrupt: true, ..Send::default() };
    for stream in 0..STREAMS {
        rig.prepare(stream, &template(stream, 1316), &tasks);
        rig.start(stream, 64 * 4096, &send);
    }
    assert!(rig.run(2 * SECOND));
    let mut bytes = vec![0u64; STREAMS.into()];
    let mut worst = 0;
    for (time, stream, count) in &rig.writes {
        let sent = &mut bytes[usize::from(*stream)];
        // The slot in which its first byte was due.
        let slot = (u128::from(*sent + 1) * 1_000_000).div_ceil(977_500 * 1000) as u64 - 1;
        if slot > 0 {
            worst = worst.max(time - slot * MS);
        }
        *sent += *count as u64;
    }
    assert_eq!(worst, 0, "data are there when they are due");
    assert!(bytes.iter().all(|bytes| *bytes == 64 * 4096));
    // Each run's end is an event of its own, which the driver takes one by one.
    let mut ended = Vec::new();
    while let Some(stream) = Event::from_bits(rig.read(End::Ssd, EVENT)).stream {
        ended.push(stream);
        rig.write(End::Ssd, dcs_d2d::driver::Write { offset: EVENT, value: stream.into() });
    }
    ended.sort_unstable();
    assert_eq!(ended, (0..STREAMS).collect::<Vec<_>>());
}

#[test]
fn four_thousand_streams_of_which_one_is_busy_cost_what_one_does() {
    let polls = |streams: u16| {
        let ssd = ssd::Config { tasks: 4, ..ssd::Config::new(streams, 64) };
        let mut rig = Rig::new(ssd, nic::Config::new(streams), 3);
        let tasks = [Task { lba: 0, blocks: 64 }];
        for stream in 0..streams {
            rig.prepare(stream, &template(stream, 1316), &tasks);
        }
        // All but one stand still: a byte in 16 seconds.
        for stream in 0..streams {
            let slow = Send { rate: rate(1, 16_000_000), ..Send::default() };
            let send =
                if stream == streams - 1 { Send { rate: rate(1_000_000, 1000), ..slow } } else { slow };
            rig.start(stream, 64 * 4096, &send);
        }
        rig.run(20 * MS);
        let before = rig.polls;
        rig.run(80 * MS);
        rig.polls - before
    };
    assert_eq!(polls(1), polls(4000));
}

/// A read that has ended makes room for one stream. The one that has waited longest may have been cleared.
#[test]
fn room_at_the_medium_goes_to_who_needs_it() {
    let config = ssd::Config { outstanding: 1, ..ssd::Config::new(3, 64) };
    let mut rig = Rig::new(config, nic::Config::new(3), 3);
    for stream in 0..3 {
        rig.prepare(stream, &template(stream, 1316), &[Task { lba: 0, blocks: 1 }]);
        rig.start(stream, 4096, &Send::default());
    }
    rig.run(10 * US);
    let clear = rig.layout(End::Ssd).clear(1);
    rig.write(End::Ssd, clear);
    // Less than the refresh interval: a grant would wake the stream, too.
    rig.run(50 * MS);
    assert_eq!(rig.status(End::Ssd, 0).state, State::Idle);
    assert_eq!(rig.status(End::Ssd, 2).state, State::Idle);
}

#[test]
fn grants_are_repeated_once_a_millisecond_at_most() {
    let mut rig = Rig::new(ssd::Config::new(1, 64), nic::Config::new(1), 3);
    rig.prepare(0, &template(0, 1316), &[Task { lba: 0, blocks: 1 }]);
    let times = Times { refresh_us: 1, ..Times::default() };
    let grants_to = rig.grants_to(End::Ssd, 0);
    rig.receive(End::Nic, 0, &Receive { bytes: 4096, grants_to, times, ..Receive::default() });
    rig.run(100 * MS);
    assert!((90..=101).contains(&rig.grants), "{} grants in 100 ms", rig.grants);
}
