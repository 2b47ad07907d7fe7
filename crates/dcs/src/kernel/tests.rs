//! Attacks that a process could make on an engine that reads its memory: entries, descriptors and doorbells
//! of any value.

use super::*;
use crate::queue::{Awaited, Command as QueueCommand};
use dcs_abi::descriptor::{Builder, Endpoint, EndpointKind, EndpointRole, Extent, Plain};
use dcs_abi::entry::{LENGTH_TO_END, OPCODE_TRANSFER, SubmissionEntry};
use dcs_abi::operator::Operator;

/// The core in the hands of a test, with one queue.
fn core() -> (KernelLoop, Arc<QueuePair>) {
    let config = Config { block_size: 4096, ..Config::default() };
    let mut core = KernelLoop::new(config, (Io::Plain, false), DirectDevices::default()).unwrap();
    let pair = Arc::new(QueuePair::new(16, Arc::default()));
    core.control(Control::AddQueue(Arc::clone(&pair)));
    settle(&mut core);
    assert!(pair.id.get().is_some());
    (core, pair)
}

fn settle(core: &mut KernelLoop) {
    for _ in 0..10_000 {
        if !core.step() {
            return;
        }
    }
    panic!("the core does not come to rest");
}

/// Submits a transfer from memory to memory as a well-behaved session makes it, but for what `change` does to
/// its descriptor; tells its command identifier, and its destination.
fn submit(
    pair: &QueuePair,
    bytes: &[u8],
    op_chain: [u8; 8],
    change: impl Fn(&mut [u8]),
) -> (u16, Arc<Mutex<Vec<u8>>>) {
    let memory = Arc::new(Mutex::new(vec![0; bytes.len()]));
    let endpoints = [
        Some(Arc::new(dcs_devices::Endpoint::shared(bytes.into()))),
        Some(Arc::new(dcs_devices::Endpoint::sink(Arc::clone(&memory)))),
        None,
    ];
    let describe = |descriptor: &mut [u8], handles: &[u32]| {
        let all = [Extent { offset: 0, length: bytes.len() as u64 }];
        let endpoint = |at: usize| Endpoint {
            kind: EndpointKind::Memory as u8,
            handle: handles[at],
            ..Default::default()
        };
        let mut builder = Builder::new(descriptor).ok()?;
        builder.endpoint(EndpointRole::Source, endpoint(0), &all).ok()?;
        builder.endpoint(EndpointRole::Destination, endpoint(1), &all).ok()?;
        let length = builder.finish();
        change(&mut descriptor[..length]);
        Some(length)
    };
    let entry =
        SubmissionEntry { opcode: OPCODE_TRANSFER, op_chain, length: LENGTH_TO_END, ..Default::default() };
    let cid = pair
        .submit(QueueCommand {
            chain: entry.op_chain,
            entry,
            endpoints,
            secret: false,
            near: None,
            plain: None,
            describe: &describe,
        })
        .unwrap();
    (cid, memory)
}

/// Submits a transfer from a stream that gives nothing.
fn stuck(pair: &QueuePair, stream: Arc<dcs_devices::Endpoint>, timeout_ms: u32) {
    let sink = dcs_devices::Endpoint::sink(Arc::new(Mutex::new(vec![0; 8])));
    let describe = |descriptor: &mut [u8], handles: &[u32]| {
        let endpoint = |kind: EndpointKind, at: usize| Endpoint {
            kind: kind as u8,
            handle: handles[at],
            ..Default::default()
        };
        let mut builder = Builder::new(descriptor).ok()?;
        builder.endpoint(EndpointRole::Source, endpoint(EndpointKind::Stream, 0), &[]).ok()?;
        let room = [Extent { offset: 0, length: 8 }];
        builder.endpoint(EndpointRole::Destination, endpoint(EndpointKind::Memory, 1), &room).ok()?;
        Some(builder.finish())
    };
    let endpoints = [Some(stream), Some(Arc::new(sink)), None];
    let entry = SubmissionEntry { opcode: OPCODE_TRANSFER, length: 8, timeout_ms, ..Default::default() };
    pair.submit(QueueCommand {
        chain: entry.op_chain,
        entry,
        endpoints,
        secret: false,
        near: None,
        plain: None,
        describe: &describe,
    })
    .unwrap();
}

/// A small one, run to its end; tells its status.
fn good(core: &mut KernelLoop, pair: &QueuePair, change: impl Fn(&mut [u8])) -> Status {
    let (cid, memory) = submit(pair, b"bytes", [0; 8], change);
    settle(core);
    let status = take(pair, cid);
    let moved = memory.lock().unwrap().as_slice() == b"bytes";
    assert_eq!(moved, status == Status::Success, "bytes are moved where success is said, and nowhere else");
    status
}

/// One of this many bytes through CRC-32C; tells its command identifier.
fn long(pair: &QueuePair, length: usize) -> u16 {
    submit(pair, &vec![7; length], [Operator::Crc32c as u8, 0, 0, 0, 0, 0, 0, 0], |_| ()).0
}

/// A transfer whose devices never have to be waited for always leaves the engine something to do.
#[test]
fn a_long_transfer_does_not_keep_others_from_being_fetched() {
    let (mut core, pair) = core();
    let first = long(&pair, 4 << 20);
    for _ in 0..4 {
        assert!(core.step());
    }
    let second = long(&pair, 4096);
    let rounds = (1..).find(|_| !core.step() || pair.has(Awaited::Done(second)));
    assert!(!pair.has(Awaited::Done(first)), "it takes its time");
    assert!(rounds.is_some_and(|rounds| rounds < 8), "{rounds:?}");
    settle(&mut core);
    assert_eq!((take(&pair, first), take(&pair, second)), (Status::Success, Status::Success));
}

/// Whatever a transfer has left in its place, the next one there has the descriptor that it was given.
#[test]
fn a_plain_descriptor_follows_any_other() {
    let (mut core, pair) = core();
    let bytes = b"plain";
    let extent = Extent { offset: 0, length: bytes.len() as u64 };
    let side = (Endpoint { kind: EndpointKind::Memory as u8, ..Default::default() }, Some(extent));
    for garbage in [false, true, true, false, true] {
        let (left, _) = submit(&pair, bytes, [0; 8], |descriptor| {
            descriptor.fill(if garbage { 0xff } else { descriptor[0] })
        });
        settle(&mut core);
        assert_ne!(take(&pair, left), Status::Success);
        for _ in 0..2 {
            let memory = Arc::new(Mutex::new(vec![0; bytes.len()]));
            let endpoints = [
                Some(Arc::new(dcs_devices::Endpoint::shared(bytes[..].into()))),
                Some(Arc::new(dcs_devices::Endpoint::sink(Arc::clone(&memory)))),
                None,
            ];
            // More operators than an inline entry has room for.
            let op_chain =
                [Operator::Crc32 as u8, Operator::Crc32c as u8, Operator::Md5 as u8, 0, 0, 0, 0, 0];
            let entry = SubmissionEntry {
                opcode: OPCODE_TRANSFER,
                length: LENGTH_TO_END,
                op_chain,
                ..Default::default()
            };
            let cid = pair.submit(QueueCommand {
                chain: op_chain,
                entry,
                endpoints,
                secret: false,
                near: None,
                plain: Some(Plain { source: side, destination: side }),
                describe: &|_, _| unreachable!("it is plain"),
            });
            assert_eq!(cid, Ok(left), "the same place");
            settle(&mut core);
            assert_eq!(take(&pair, left), Status::Success);
            assert_eq!(*memory.lock().unwrap(), bytes);
        }
    }
}

/// The status of a transfer that is done.
fn take(pair: &QueuePair, cid: u16) -> Status {
    pair.take(cid, |finished| finished.entry.status()).expect("it is done")
}

/// A transfer that was cancelled before its entry was fetched, and whose completion was taken, takes no room.
#[test]
fn a_cancelled_transfer_takes_no_room() {
    let (mut core, pair) = core();
    let submit = || {
        let endpoints = [Some(Arc::new(dcs_devices::Endpoint::shared(b"bytes"[..].into()))), None, None];
        let entry = SubmissionEntry { opcode: OPCODE_TRANSFER, ..Default::default() };
        pair.submit(QueueCommand {
            chain: entry.op_chain,
            entry,
            endpoints,
            secret: false,
            near: None,
            plain: None,
            describe: &|_, _| Some(8),
        })
    };
    let all: Vec<u16> = (0..16).map(|_| submit().unwrap()).collect();
    assert!(submit().is_err() && pair.is_full());
    // The engine hears of the cancel first.
    assert!(pair.cancel(all[3]));
    core.control(Control::Cancel(Arc::clone(&pair), all[3]));
    assert!(submit().is_err(), "it is not done yet");
    settle(&mut core);
    assert_eq!(take(&pair, all[3]), Status::Cancelled);
    let next = submit().unwrap();
    assert!(submit().is_err());
    settle(&mut core);
    let cancelled = all[3];
    for cid in all.into_iter().filter(|cid| *cid != cancelled).chain([next]) {
        assert_eq!(take(&pair, cid), Status::InvalidField);
    }
    assert_eq!(good(&mut core, &pair, |_| ()), Status::Success);
    let again: Vec<_> = (0..16).map(|_| submit().unwrap()).collect();
    assert_eq!(again.len(), 16);
    settle(&mut core);
}

/// A transfer of one block that was cancelled before its entry was fetched moves nothing.
#[test]
fn a_cancelled_transfer_of_one_block_moves_nothing() {
    let (mut core, pair) = core();
    let side = |handle| {
        let endpoint = Endpoint { kind: EndpointKind::Memory as u8, handle, ..Default::default() };
        (endpoint, Some(Extent { offset: 0, length: 4 }))
    };
    let submit = |timeout_ms| {
        let memory = Arc::new(Mutex::new(vec![0; 4]));
        let endpoints = [
            Some(Arc::new(dcs_devices::Endpoint::shared(b"some"[..].into()))),
            Some(Arc::new(dcs_devices::Endpoint::sink(Arc::clone(&memory)))),
            None,
        ];
        let entry = SubmissionEntry { opcode: OPCODE_TRANSFER, length: 4, timeout_ms, ..Default::default() };
        let command = QueueCommand {
            chain: entry.op_chain,
            entry,
            endpoints,
            secret: false,
            near: None,
            plain: Some(Plain { source: side(0), destination: side(1) }),
            describe: &|_, _| unreachable!("it is plain"),
        };
        (pair.submit(command).unwrap(), memory)
    };
    for of in 1..8 {
        let all: Vec<_> = (0..of).map(|at| submit(at as u32 % 2 * 60_000)).collect();
        let (cancelled, untouched) = &all[of / 2];
        assert!(pair.cancel(*cancelled));
        core.control(Control::Cancel(Arc::clone(&pair), *cancelled));
        settle(&mut core);
        assert_eq!(
            (take(&pair, *cancelled), &untouched.lock().unwrap()[..]),
            (Status::Cancelled, &[0; 4][..])
        );
        for (cid, memory) in all.iter().filter(|(cid, _)| cid != cancelled) {
            assert_eq!((take(&pair, *cid), &memory.lock().unwrap()[..]), (Status::Success, &b"some"[..]));
        }
        assert!(core.engine.is_idle());
    }
    // The same where it waits for the owner when its queue goes: it has a time, so it does not go through.
    let (_, untouched) = submit(60_000);
    core.take_doorbells();
    core.perform(1);
    core.control(Control::DeleteQueue(*pair.id.get().unwrap()));
    settle(&mut core);
    assert!(pair.has(Awaited::Closed) && core.engine.is_idle());
    assert_eq!(untouched.lock().unwrap()[..], [0; 4]);
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 8
    }
}

#[test]
fn entries_of_any_bytes_harm_nobody() {
    let (mut core, pair) = core();
    let mut random = Random(0x5eed);
    for round in 0..3000u64 {
        let mut bytes: [u8; 64] = std::array::from_fn(|_| random.next() as u8);
        if round % 2 == 0 {
            // Most of an entry is right, and one byte of it is not.
            let entry = SubmissionEntry { opcode: OPCODE_TRANSFER, cid: 900, ..Default::default() };
            bytes = entry.to_bytes();
            bytes[random.next() as usize % 64] = random.next() as u8;
        }
        // The identifier of a cancel or of none: the session must not take it for the completion of a
        // transfer.
        pair.push_raw(&bytes);
        settle(&mut core);
        if round % 100 == 0 {
            assert_eq!(good(&mut core, &pair, |_| ()), Status::Success);
        }
    }
    let statistics = Statistics::of(&core.engine);
    assert!(statistics.is_idle, "{statistics:?}");
    assert!(statistics.failed > 2500, "{statistics:?}");
}

#[test]
fn an_opcode_that_is_none_is_answered() {
    let (mut core, pair) = core();
    let entry = SubmissionEntry { opcode: 0x33, ..Default::default() };
    pair.push_raw(&entry.to_bytes());
    settle(&mut core);
    assert_eq!(core.engine.counters().failures, 1);
    assert_eq!(good(&mut core, &pair, |_| ()), Status::Success);
}

#[test]
fn descriptors_of_any_bytes_harm_nobody() {
    let (mut core, pair) = core();
    assert_eq!(good(&mut core, &pair, |_| ()), Status::Success);
    assert_eq!(good(&mut core, &pair, |bytes| bytes[0] ^= 0x80), Status::InvalidField);
    // Another handle than the session has given away.
    assert_eq!(good(&mut core, &pair, |bytes| bytes[48 + 5] = 9), Status::BadHandle);
    let random = std::cell::RefCell::new(Random(0xdead));
    let mut refused = 0;
    for _ in 0..3000 {
        let damage = |bytes: &mut [u8]| {
            let mut random = random.borrow_mut();
            for _ in 0..1 + random.next() % 3 {
                let at = random.next() as usize % bytes.len();
                bytes[at] ^= 1 << (random.next() % 8);
            }
        };
        refused += usize::from(good(&mut core, &pair, damage) != Status::Success);
    }
    assert!(refused > 2500, "{refused}");
    assert!(core.engine.is_idle());
}

#[test]
fn doorbells_of_any_value_are_ignored() {
    let (mut core, pair) = core();
    for value in [33, 1000, u32::MAX] {
        let (tail, head) = (pair.sq_tail.load(Ordering::SeqCst), pair.cq_head.load(Ordering::SeqCst));
        pair.sq_tail.store(value, Ordering::SeqCst);
        pair.cq_head.store(value, Ordering::SeqCst);
        settle(&mut core);
        pair.sq_tail.store(tail, Ordering::SeqCst);
        pair.cq_head.store(head, Ordering::SeqCst);
        settle(&mut core);
        assert_eq!(good(&mut core, &pair, |_| ()), Status::Success);
    }
    assert!(core.engine.counters().bad_doorbells >= 6);
}

/// A queue that comes when another one goes, in the same round, has nothing to do with it, though it may get
/// its number.
#[test]
fn a_number_that_is_used_again_is_another_queue() {
    let (mut core, first) = core();
    let second = Arc::new(QueuePair::new(16, Arc::default()));
    // An entry is under way when the queue goes, so that actions for it are still to be performed.
    first.push_raw(&SubmissionEntry { opcode: 0x33, cid: 5, ..Default::default() }.to_bytes());
    core.control(Control::DeleteQueue(*first.id.get().unwrap()));
    core.control(Control::AddQueue(Arc::clone(&second)));
    settle(&mut core);
    assert!(first.has(Awaited::Closed));
    assert!(!second.has(Awaited::Closed));
    assert_eq!(good(&mut core, &second, |_| ()), Status::Success);
}

#[test]
fn a_core_that_was_given_up_tells_everybody() {
    let (mut core, pair) = core();
    core.abandon();
    let late = Arc::new(QueuePair::new(1, Arc::default()));
    core.control(Control::AddQueue(Arc::clone(&late)));
    assert!(!core.step());
    for pair in [pair, late] {
        assert!(pair.has(Awaited::Closed));
    }
}

/// A loop that was given up never runs out of work: it sleeps until somebody wants something.
#[test]
fn a_core_that_was_given_up_sleeps() {
    let (mut core, pair) = core();
    let (reader, _writer) = rustix::pipe::pipe().unwrap();
    let endpoint = Arc::new(dcs_devices::Endpoint::from_fd(std::os::fd::AsFd::as_fd(&reader)).unwrap());
    stuck(&pair, endpoint, 1);
    settle(&mut core);
    assert!(core.is_busy());
    core.abandon();
    assert!(!core.is_busy());
    // Its timeout is long over.
    std::thread::sleep(std::time::Duration::from_millis(20));
    let (waker, began) = (core.waker(), std::time::Instant::now());
    let late = std::time::Duration::from_millis(50);
    let wakes = std::thread::spawn(move || {
        std::thread::sleep(late);
        waker.wake();
    });
    core.sleep();
    assert!(began.elapsed() >= late, "it slept {:?}", began.elapsed());
    wakes.join().unwrap();
}

/// A transfer that is all there is to do is run as it is waited for, and leaves the rings as every other; one that was cancelled, one
/// that has another behind it, and one whose endpoints are nobody else's are run in rounds.
#[test]
fn a_transfer_that_is_alone_is_run_as_it_is_waited_for() {
    let (mut core, pair) = core();
    let memory = Arc::new(Mutex::new(vec![0; 100]));
    let from = Arc::new(dcs_devices::Endpoint::shared((0..100).collect::<Vec<u8>>().into()));
    let to = Arc::new(dcs_devices::Endpoint::sink(Arc::clone(&memory)));
    let chain = [Operator::Crc32c as u8, 0, 0, 0, 0, 0, 0, 0];
    let submit = |from: &Arc<dcs_devices::Endpoint>, to: &Arc<dcs_devices::Endpoint>| {
        memory.lock().unwrap().fill(0);
        let entry =
            SubmissionEntry { opcode: OPCODE_TRANSFER, op_chain: chain, length: 100, ..Default::default() };
        let end = |endpoint: &Arc<dcs_devices::Endpoint>| {
            let wire = Endpoint { kind: endpoint.kind() as u8, ..Default::default() };
            (wire, Some(Extent { offset: 0, length: 100 }))
        };
        let plain = Plain { source: end(from), destination: end(to) };
        let mut inline = dcs_abi::inline::InlineEntry::new(&entry, &plain).unwrap();
        pair.submit_inline(&mut inline, chain, [Some(Arc::clone(from)), Some(Arc::clone(to)), None]).unwrap()
    };
    let is_right = |finished: &Finished<'_>| {
        let right = finished.entry.status().is_success() && finished.result.bytes_out == 100;
        right && finished.operators() == [Operator::Crc32c as u8] && finished.result.digests[0].size == 4
    };
    let moved = || memory.lock().unwrap().iter().copied().eq(0..100);
    for round in 0..100 {
        let cid = submit(&from, &to);
        if round % 4 == 3 {
            let other = submit(&from, &to);
            assert!(!core.run_alone(&pair, cid, &mut |_| panic!("it has another behind it")));
            settle(&mut core);
            assert!([cid, other].into_iter().all(|cid| pair.take(cid, is_right) == Some(true)));
        } else {
            let mut seen = None;
            assert!(core.run_alone(&pair, cid, &mut |finished| seen = Some(is_right(finished))));
            assert_eq!(seen, Some(true));
            assert!(!pair.has(Awaited::Done(cid)), "its completion is taken");
            assert!(round % 5 > 0 || !core.step(), "nothing is left to do");
        }
        assert!(moved());
        assert_eq!((Arc::strong_count(&from), Arc::strong_count(&to)), (1, 1), "it has let go of them");
    }
    assert!(core.engine.is_idle());
    let lone = Arc::new(dcs_devices::Endpoint::sink(Arc::clone(&memory)));
    let cid = submit(&from, &lone);
    drop(lone);
    assert!(!core.run_alone(&pair, cid, &mut |_| panic!("closing its destination is for its taker")));
    settle(&mut core);
    assert!(pair.take(cid, is_right) == Some(true) && moved());
    let cid = submit(&from, &to);
    assert!(pair.cancel(cid));
    assert!(!core.run_alone(&pair, cid, &mut |_| panic!("it was cancelled")));
    core.control(Control::Cancel(Arc::clone(&pair), cid));
    settle(&mut core);
    assert_eq!(pair.take(cid, |finished| finished.entry.status()), Some(Status::Cancelled));
    assert!(!moved() && core.engine.is_idle());
}

/// Submits a transfer that needs no descriptor and has no operators.
fn submit_short(
    pair: &QueuePair,
    from: dcs_devices::Endpoint,
    to: dcs_devices::Endpoint,
    length: u64,
) -> u16 {
    let end = |endpoint: &dcs_devices::Endpoint| {
        let wire = Endpoint { kind: endpoint.kind() as u8, ..Default::default() };
        (wire, endpoint.kind().is_positional().then_some(Extent { offset: 0, length }))
    };
    let plain = Some(Plain { source: end(&from), destination: end(&to) });
    let entry = SubmissionEntry { opcode: OPCODE_TRANSFER, length, ..Default::default() };
    let command = QueueCommand {
        chain: entry.op_chain,
        entry,
        endpoints: [Some(Arc::new(from)), Some(Arc::new(to)), None],
        secret: false,
        near: None,
        plain,
        describe: &|_, _| unreachable!("it is plain"),
    };
    pair.submit(command).unwrap()
}

/// One that stops half-way keeps what it is bound to, whichever command had its slot before, and takes no memory for good.
#[test]
fn a_transfer_that_stops_half_way_has_its_slot_for_itself() {
    let (mut core, pair) = core();
    let bytes = |length: usize| dcs_devices::Endpoint::shared(vec![1; length].into());
    let room = |length: usize| dcs_devices::Endpoint::sink(Arc::new(Mutex::new(vec![0; length])));
    for round in 0..256usize {
        let fill: Vec<_> = (0..round % 13).map(|_| submit_short(&pair, bytes(4), room(4), 4)).collect();
        // Two blocks: it is bound.
        let (long, _) = submit(&pair, &[7; 5000], [0; 8], |_| ());
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let reader = dcs_devices::Endpoint::from_fd(std::os::fd::AsFd::as_fd(&reader)).unwrap();
        let waits = submit_short(&pair, reader, room(8), 8);
        settle(&mut core);
        rustix::io::write(&writer, &[1; 8]).unwrap();
        // The ring tells in its own time that the pipe is ready.
        let end = std::time::Instant::now() + Duration::from_secs(60);
        while !pair.has(Awaited::Done(waits)) && std::time::Instant::now() < end {
            core.step();
        }
        for cid in fill.into_iter().chain([long, waits]) {
            assert_eq!(take(&pair, cid), Status::Success, "round {round}");
        }
        assert!(core.spare_chains.len() <= 4, "{} chains", core.spare_chains.len());
    }
}

/// A completion doorbell is not trusted, whoever reads it.
#[test]
fn a_bad_completion_doorbell_leaves_one_that_is_alone_on_its_ring() {
    let (mut core, pair) = core();
    let from = Arc::new(dcs_devices::Endpoint::shared(vec![1; 4].into()));
    let to = Arc::new(dcs_devices::Endpoint::sink(Arc::new(Mutex::new(vec![0; 4]))));
    for round in 0..80 {
        let end = Endpoint { kind: EndpointKind::Memory as u8, ..Default::default() };
        let extent = Some(Extent { offset: 0, length: 4 });
        let entry = SubmissionEntry { opcode: OPCODE_TRANSFER, length: 4, ..Default::default() };
        let plain = Plain { source: (end, extent), destination: (end, extent) };
        let mut inline = dcs_abi::inline::InlineEntry::new(&entry, &plain).unwrap();
        let endpoints = [Some(Arc::clone(&from)), Some(Arc::clone(&to)), None];
        let cid = pair.submit_inline(&mut inline, entry.op_chain, endpoints).unwrap();
        if round % 20 == 5 {
            pair.cq_head.store(65535, Ordering::Release);
        }
        let mut seen = None;
        if !core.run_alone(&pair, cid, &mut |finished| seen = Some(finished.entry.status())) {
            settle(&mut core);
            seen = Some(take(&pair, cid));
        }
        assert_eq!(seen, Some(Status::Success), "round {round}");
        assert!(pair.cq_head.load(Ordering::Acquire) < u32::from(pair.ring_depth()));
    }
    assert!(core.engine.is_idle());
}
