//! Short commands: an owner that takes them through their stages by itself changes nothing but who is asked.

use crate::chains::{chain, small};
use crate::rig::device::Device;
use crate::rig::host::{End, Transfer};
use crate::rig::{Options, Rig};
use dcs_abi::descriptor::{Endpoint, EndpointKind, Extent, Plain};
use dcs_abi::entry::{CompletionEntry, OPCODE_TRANSFER, SubmissionEntry};
use dcs_abi::inline::InlineEntry;
use dcs_abi::operator::OPERATORS;
use dcs_abi::operator::Operator::*;
use dcs_abi::result::ResultArea;
use dcs_abi::status::{Stage, Status};
use dcs_engine::{
    Action, Alone, Binding, Config, Engine, Event, Failure, Operation, OperationKind, Outcome, Progress,
    QueueConfig, QueueId, Ran, Short, Then,
};

/// Every pair of ends and every chain that a short command may have, wherever chance has the owner stop: the bytes and
/// digests are those of the plain program, and some commands ran to their end at once, others not.
#[test]
fn wherever_the_owner_stops_the_bytes_are_the_same() {
    let (mut ran, mut went, mut inlined) = ((0, 0), (0, 0), 0);
    for seed in 0..60 {
        let mut rig = Rig::new(small(), Options { seed, ..Options::default() });
        let queue = rig.queue(QueueConfig::default());
        for of in [&[][..], &[Md5], &[Crc32c], &[Aes256Ctr], &[Sha256, Aes256Ctr], &[Aes256Ctr, Crc32c]] {
            for length in [1, 100, 4095, 4096] {
                let bytes = rig.random.compressible(length);
                let file = rig.device(Device::file(bytes.clone()));
                let stream = rig.device(Device::source(bytes, 3000));
                let (sink, grows) = (rig.device(Device::sink(5000)), rig.device(Device::file(Vec::new())));
                let length = length as u64;
                for (from, to) in [
                    (End::file(file, &[(0, length)]), End::stream(sink)),
                    (End::file(file, &[(0, length)]), End::file(grows, &[(7, length)])),
                    (End::stream(stream), End::stream(sink)),
                ] {
                    let transfer = Transfer { length, chain: chain(of), ..Transfer::new(from, to) };
                    let ticket = rig.submit(queue, &transfer);
                    rig.settle();
                    assert_eq!(rig.verify(ticket), Status::Success, "{:?}", rig.end(ticket));
                }
            }
        }
        ran = (ran.0 + rig.ran.0, ran.1 + rig.ran.1);
        went = (went.0 + rig.went.0, went.1 + rig.went.1);
        inlined += rig.inlined;
    }
    assert!(ran.0 > 100 && ran.1 > 100 && inlined > 100, "all ways are taken: {ran:?}, {inlined}");
    assert!(went.0 > 30 && went.1 > 100, "some as their entries came: {went:?}");
}

/// What is too long, or needs a flush, or lanes that others are in, is asked for stage by stage.
#[test]
fn others_are_asked_for_stage_by_stage() {
    let mut rig = Rig::new(small(), Options::default());
    let queue = rig.queue(QueueConfig::default());
    let bytes = rig.random.compressible(4097);
    let file = rig.device(Device::file(bytes));
    let to = rig.device(Device::file(Vec::new()));
    let long = Transfer::new(End::file(file, &[(0, 4097)]), End::file(to, &[(0, 4097)]));
    let durable = Transfer {
        flags: dcs_abi::entry::FLAG_DURABLE,
        ..Transfer::new(End::file(file, &[(0, 10)]), End::file(to, &[(0, 10)]))
    };
    let longer_chain = Transfer {
        chain: chain(&[Crc32c, Crc32, Sha1]),
        ..Transfer::new(End::file(file, &[(0, 10)]), End::file(to, &[(0, 10)]))
    };
    for transfer in [long, durable, longer_chain] {
        let ticket = rig.submit(queue, &transfer);
        rig.settle();
        assert_eq!(rig.verify(ticket), Status::Success);
    }
    assert_eq!(rig.ran, (0, 0));
}

/// Short commands that come together share the passes of a multi-lane unit; one that is alone goes by itself.
#[test]
fn short_commands_gather_in_lanes() {
    const STREAMS: usize = 24;
    for seed in 0..10 {
        let units = OPERATORS.iter().map(|info| (info.operator, 8)).collect();
        let config = Config { blocks: 200, commands: 40, units, multi_lane: vec![Md5], ..small() };
        let options = Options { seed, latency: 20_000, pass_time: Some(2_000_000), ..Options::default() };
        let mut rig = Rig::new(config, options);
        let queue = rig.queue(QueueConfig::default());
        let submit = |rig: &mut Rig| {
            let bytes = rig.random.compressible(100);
            let (from, to) = (rig.device(Device::file(bytes)), rig.device(Device::sink(5000)));
            let ends = Transfer::new(End::file(from, &[(0, 100)]), End::stream(to));
            rig.submit(queue, &Transfer { chain: chain(&[Md5]), ..ends })
        };
        let all: Vec<_> = (0..STREAMS).map(|_| submit(&mut rig)).collect();
        rig.settle();
        assert!(all.iter().all(|ticket| rig.verify(*ticket) == Status::Success));
        let filled: Vec<usize> = rig.passes.iter().map(|pass| pass.2).collect();
        // The last one may be alone by then.
        let in_lanes = filled.iter().sum::<usize>();
        assert!(in_lanes + 1 >= STREAMS && rig.ran.0 == 0, "all take a lane: {filled:?}");
        assert!(rig.ran.1 > 0, "their sources are read at once");
        assert!(filled.len() <= STREAMS / 2, "{filled:?}");
        for _ in 0..STREAMS {
            let alone = submit(&mut rig);
            rig.settle();
            assert_eq!(rig.verify(alone), Status::Success);
        }
        let passes = rig.passes.len() - filled.len();
        assert!((1..STREAMS).contains(&passes), "{passes}: now and then its owner stops before it");
    }
}

/// An engine with one command of 100 bytes from memory through CRC-32C to memory, which its owner is to run.
fn to_run() -> (Engine, Short) {
    let mut engine = Engine::new(Config { short: true, ..small() }).unwrap();
    let queue = engine.add_queue(QueueConfig::default()).unwrap();
    let memory = |handle| {
        let endpoint = Endpoint { kind: EndpointKind::Memory as u8, handle, ..Default::default() };
        (endpoint, Some(Extent { offset: 0, length: 100 }))
    };
    let op_chain = [Crc32c as u8, 0, 0, 0, 0, 0, 0, 0];
    let entry = SubmissionEntry {
        opcode: OPCODE_TRANSFER,
        length: 100,
        result_address: 8,
        op_chain,
        ..Default::default()
    };
    let inline = InlineEntry::new(&entry, &Plain { source: memory(1), destination: memory(2) }).unwrap();
    engine.handle(50, Event::SubmissionDoorbell { queue, tail: 1 });
    assert!(matches!(engine.poll_action(), Some(Action::FetchEntry { .. })));
    engine.handle(60, Event::Entry { queue, bytes: &inline.to_bytes() });
    let Some(Action::Run(short)) = engine.poll_action() else { panic!("it is short") };
    (engine, short)
}

fn crc() -> dcs_abi::result::DigestSlot {
    dcs_abi::result::DigestSlot { operator: Crc32c as u8, size: 4, ..Default::default() }
}

fn issued(engine: &mut Engine) -> Operation {
    match engine.poll_action() {
        Some(Action::Issue(operation)) => operation,
        other => panic!("{other:?}"),
    }
}

/// What is left to be done once all bytes have arrived: the result.
fn result(engine: &mut Engine) -> Box<ResultArea> {
    loop {
        match engine.poll_action() {
            Some(Action::Complete { entry, result, .. }) => {
                assert!(entry.status().is_success());
                return result.unwrap().1;
            }
            Some(Action::Unbind { .. }) => {}
            other => panic!("{other:?}"),
        }
    }
}

/// A destination that tells late is flushed behind a short command too: only then it is done.
#[test]
fn a_short_command_is_flushed_where_its_destination_wants_that() {
    let (mut engine, short) = to_run();
    let mut ran = Ran::new(Binding { flush: true, ..Binding::default() }, 100);
    (0..3).for_each(|stage| ran.pass(200 + stage, 0));
    ran.digests[0] = crc();
    engine.handle(300, Event::Ran { command: short.command, ran: &ran });
    let flush = issued(&mut engine);
    assert_eq!(flush.kind, OperationKind::Flush);
    engine.handle(400, Event::Done { operation: flush.id, outcome: Outcome::Flushed });
    assert!(matches!(engine.poll_action(), Some(Action::Unbind { .. })));
    assert_eq!(result(&mut engine).bytes_out, 100);
    assert!(engine.is_idle());
}

/// The time of a stage that its owner could not finish at once begins where the stage before ended.
#[test]
fn the_stage_at_which_a_short_command_stops_keeps_its_time() {
    let write = |engine: &mut Engine| {
        let write = issued(engine);
        assert!(matches!(write.kind, OperationKind::Write { .. }));
        let moved = Outcome::Moved { bytes: 100, path: 0, held: false };
        engine.handle(9000, Event::Done { operation: write.id, outcome: moved });
    };
    for begun in [false, true] {
        let (mut engine, short) = to_run();
        let mut ran = Ran::new(Binding::default(), 1000);
        ran.pass(2000, 0);
        let outcome = Outcome::Digest(crc());
        ran.then = if begun { Then::Begun } else { Then::Answered(outcome) };
        engine.handle(5000, Event::Ran { command: short.command, ran: &ran });
        if begun {
            let operation = short.operation.later(1);
            engine.handle(5000, Event::Done { operation, outcome });
        }
        write(&mut engine);
        let stages = result(&mut engine).stages;
        let times = stages.iter().filter(|stage| stage.operations > 0);
        let times: Vec<_> = times.map(|stage| (stage.first_issue, stage.last_done, stage.busy)).collect();
        assert_eq!(times, [(1000, 2000, 1000), (5000, 9000, 4000), (2000, 5000, 3000)], "{begun}");
    }
}

/// An engine with one queue of four slots, and the entry of 100 bytes from memory through CRC-32C to memory.
fn alone() -> (Engine, QueueId, impl Fn(u16) -> InlineEntry) {
    let mut engine = Engine::new(Config { short: true, ..small() }).unwrap();
    let queue = engine.add_queue(QueueConfig { depth: 4, ..QueueConfig::default() }).unwrap();
    let memory = |handle| {
        let endpoint = Endpoint { kind: EndpointKind::Memory as u8, handle, ..Default::default() };
        (endpoint, Some(Extent { offset: 0, length: 100 }))
    };
    let entry = move |cid| {
        let op_chain = [Crc32c as u8, 0, 0, 0, 0, 0, 0, 0];
        let entry = SubmissionEntry {
            opcode: OPCODE_TRANSFER,
            cid,
            length: 100,
            result_address: 8,
            op_chain,
            ..Default::default()
        };
        InlineEntry::new(&entry, &Plain { source: memory(1), destination: memory(2) }).unwrap()
    };
    (engine, queue, entry)
}

/// Does so many stages of a passage.
fn stages(ran: &mut Ran, done: u8, now: u64) {
    (0..done).for_each(|stage| ran.pass(now + 1 + u64::from(stage), 1));
    ran.digests[0] = crc();
}

/// The completion that is next, of a command that had the slots `slot` of both rings.
fn completed(engine: &mut Engine, queue: QueueId, slot: u16) -> (CompletionEntry, Box<ResultArea>) {
    loop {
        match engine.poll_action() {
            Some(Action::Complete { slot: of, entry, result, .. }) => {
                assert_eq!(of, slot);
                let head = u32::from((slot + 1) % 4);
                engine.handle(5000, Event::CompletionDoorbell { queue, head });
                return (entry, result.unwrap().1);
            }
            Some(Action::Unbind { .. }) => {}
            other => panic!("{other:?}"),
        }
    }
}

/// Commands that are alone, and others, in any order on one ring: slots, heads and phases are as if all had been fetched and posted, and
/// so are results.
#[test]
fn a_command_that_is_alone_leaves_the_rings_as_every_other() {
    let (mut engine, queue, entry) = alone();
    for at in 0..40u16 {
        let (slot, tail) = (at % 4, u32::from((at + 1) % 4));
        let (bytes, now) = (entry(at % 7).to_bytes(), 10_000 * (1 + u64::from(at)));
        let (posted, result) = if at % 5 < 3 {
            let went = engine.enter_alone(now, (queue, tail), &bytes, |passage, ran| {
                assert_eq!((passage.spec.length, passage.spec.source.handle), (100, 1));
                stages(ran, 3, now);
                Progress::Ran(now + 3)
            });
            let Alone::Ended(of, entry, result) = went else { panic!("{went:?}") };
            assert_eq!(of, slot);
            (entry, Box::new(*result))
        } else {
            engine.handle(now, Event::SubmissionDoorbell { queue, tail });
            let fetch = engine.poll_action();
            assert!(matches!(fetch, Some(Action::FetchEntry { slot: of, .. }) if of == slot), "{fetch:?}");
            engine.handle(now, Event::Entry { queue, bytes: &bytes });
            let Some(Action::Run(short)) = engine.poll_action() else { panic!("it is short") };
            let mut ran = Ran::new(Binding::default(), now);
            stages(&mut ran, 3, now);
            engine.handle(now, Event::Ran { command: short.command, ran: &ran });
            completed(&mut engine, queue, slot)
        };
        assert!(posted.status().is_success());
        assert_eq!((posted.cid, posted.delivered.value()), (at % 7, 100));
        assert_eq!(u32::from(posted.sq_head), tail);
        assert_eq!(posted.phase(), (at / 4) % 2 == 0, "{at}");
        assert_eq!((result.bytes_in, result.bytes_out, result.path), (100, 100, 1));
        assert_eq!((result.digests[0], result.digests[1].size), (crc(), 0));
        let times = (result.queued, result.started, result.finished);
        assert_eq!(times, (now, now, now + 3));
        assert!(engine.is_idle());
    }
    let counters = engine.counters();
    assert_eq!((counters.entries, counters.completions, counters.operations), (40, 40, 120));
    assert_eq!((counters.commands_peak, counters.blocks_peak, counters.failures), (1, 1, 0));
    assert_eq!((counters.bad_doorbells, counters.stale_events), (0, 0));
}

/// Wherever the owner of a command that was alone stops, it goes on as every other, and the rings with it.
#[test]
fn a_command_that_was_alone_goes_on_where_its_owner_stopped() {
    let (mut engine, queue, entry) = alone();
    for at in 0..24u16 {
        let (slot, tail) = (at % 4, u32::from((at + 1) % 4));
        let (done, begun) = ((at % 3) as u8, at % 2 == 1);
        let mut begun_as = None;
        let went = engine.enter_alone(100, (queue, tail), &entry(at).to_bytes(), |passage, ran| {
            stages(ran, done, 100);
            if begun && done != 1 {
                ran.then = Then::Begun;
                begun_as = Some(passage.operation.later(done.into()));
            }
            Progress::Ran(200)
        });
        assert!(matches!(went, Alone::GoesOn), "{went:?}");
        let answer = |engine: &mut Engine, operation, kind: OperationKind| {
            let outcome = match kind {
                OperationKind::Process { .. } => Outcome::Digest(crc()),
                _ => Outcome::Moved { bytes: 100, path: 1, held: false },
            };
            engine.handle(1000, Event::Done { operation, outcome });
        };
        if let Some(operation) = begun_as {
            answer(&mut engine, operation, OperationKind::Flush);
        }
        for _ in u8::from(begun_as.is_some())..3 - done {
            let operation = issued(&mut engine);
            answer(&mut engine, operation.id, operation.kind);
        }
        let (posted, result) = completed(&mut engine, queue, slot);
        assert!(posted.status().is_success() && posted.cid == at);
        assert_eq!((result.bytes_out, result.digests[0]), (100, crc()));
        assert!(engine.is_idle(), "{engine:?}");
    }
}

/// Commands that cannot be bound fail, alone or not; others that are not alone, or are no such commands, are not touched.
#[test]
fn a_command_that_is_not_alone_is_not_taken() {
    let (mut engine, queue, entry) = alone();
    let refused = Err((Stage::Source, 0, Failure::new(Status::OutOfRange)));
    let went = engine.enter_alone(1, (queue, 1), &entry(1).to_bytes(), |_, _| Progress::Bound(refused));
    assert!(matches!(went, Alone::GoesOn), "{went:?}");
    let (posted, _) = completed(&mut engine, queue, 0);
    assert_eq!((posted.status(), posted.stage()), (Status::OutOfRange, Stage::Source));
    let not = |engine: &mut Engine, tail, entry: InlineEntry| {
        let went = engine.enter_alone(2, (queue, tail), &entry.to_bytes(), |_, _| panic!("nobody runs it"));
        assert!(matches!(went, Alone::Not), "{went:?}");
    };
    not(&mut engine, 3, entry(1));
    not(&mut engine, 1, entry(1));
    for others in [
        InlineEntry { rid: 1, ..entry(1) },
        InlineEntry { timeout_ms: 1, ..entry(1) },
        InlineEntry { nsid: 1, ..entry(1) },
        InlineEntry { nvme_flags: 1, ..entry(1) },
        InlineEntry { result_address: 0, ..entry(1) },
        InlineEntry { length: 0, ..entry(1) },
        InlineEntry { length: 4097, ..entry(1) },
        InlineEntry { source_offset: u64::MAX - 50, ..entry(1) },
        InlineEntry { op_chain: [200, 0], ..entry(1) },
        InlineEntry { op_chain: [0, Crc32c as u8], ..entry(1) },
        InlineEntry { op_chain: [Gzip as u8, 0], ..entry(1) },
        InlineEntry { source_kind: 200, ..entry(1) },
        InlineEntry { modes: 1 << 9, ..entry(1) },
        InlineEntry { flags: entry(1).flags | dcs_abi::entry::FLAG_DURABLE, ..entry(1) },
    ] {
        not(&mut engine, 2, others);
    }
    // One is under way, then its completion is not read: the next is not alone.
    engine.handle(3, Event::SubmissionDoorbell { queue, tail: 2 });
    assert!(matches!(engine.poll_action(), Some(Action::FetchEntry { .. })));
    not(&mut engine, 3, entry(2));
    engine.handle(3, Event::Entry { queue, bytes: &entry(2).to_bytes() });
    not(&mut engine, 3, entry(3));
    let Some(Action::Run(short)) = engine.poll_action() else { panic!("it is short") };
    not(&mut engine, 3, entry(3));
    let mut ran = Ran::new(Binding::default(), 4);
    stages(&mut ran, 3, 4);
    engine.handle(5, Event::Ran { command: short.command, ran: &ran });
    not(&mut engine, 3, entry(3));
    assert!(matches!(engine.poll_action(), Some(Action::Complete { slot: 1, .. })));
    not(&mut engine, 3, entry(3));
    engine.handle(5, Event::CompletionDoorbell { queue, head: 2 });
    let went = engine.enter_alone(6, (queue, 3), &entry(3).to_bytes(), |_, ran| {
        stages(ran, 3, 6);
        Progress::Ran(9)
    });
    assert!(matches!(went, Alone::Ended(..)), "{went:?}");
    assert!(engine.is_idle());
}

/// So does that of one that was alone.
#[test]
fn the_stage_at_which_one_stops_that_was_alone_keeps_its_time() {
    let (mut engine, queue, entry) = alone();
    let went = engine.enter_alone(1000, (queue, 1), &entry(1).to_bytes(), |_, ran| {
        ran.pass(2000, 0);
        ran.then = Then::Answered(Outcome::Digest(crc()));
        Progress::Ran(5000)
    });
    assert!(matches!(went, Alone::GoesOn), "{went:?}");
    let write = issued(&mut engine);
    let moved = Outcome::Moved { bytes: 100, path: 0, held: false };
    engine.handle(9000, Event::Done { operation: write.id, outcome: moved });
    let (_, result) = completed(&mut engine, queue, 0);
    let times = result.stages.iter().filter(|stage| stage.operations > 0);
    let times: Vec<_> = times.map(|stage| (stage.first_issue, stage.last_done, stage.busy)).collect();
    assert_eq!(times, [(1000, 2000, 1000), (5000, 9000, 4000), (2000, 5000, 3000)]);
    assert_eq!((result.queued, result.started), (1000, 1000));
}
