//! Many at once: transfers, sessions, threads, engines, callers that take turns at driving.

use crate::ends::{contents, file_with, pipe, read_behind, tcp4, write_behind};
use crate::oracle;
use crate::rig::{BLOCK, data, for_each_backend, noise, watched};
use dcs::{Driver, Engine, Error, Io, Op, Sink, Source, Status};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

#[test]
fn sixty_four_transfers_of_one_session() {
    for_each_backend(|bench| {
        let inputs: Vec<Vec<u8>> = (0..64).map(|at| noise(at, at as usize * 777)).collect();
        let chain = [Op::Md5, Op::Crc32c];
        let submit = |input: &Vec<u8>| {
            let sink = Sink::memory(input.len());
            bench.session.transfer(Source::file(&file_with(input), ..), chain.clone(), sink)
        };
        let transfers: Vec<_> = inputs.iter().map(|input| submit(input).unwrap()).collect();
        let full = submit(&inputs[0]);
        // With a thread of its own the engine may have finished one before it is asked for one more: it stays
        // the session's until somebody takes its completion.
        assert!(matches!(full, Err(Error::SessionFull)), "{full:?}");
        for (input, transfer) in inputs.iter().zip(transfers) {
            let done = transfer.wait().unwrap();
            oracle::check("one of 64", &chain, input, &done, done.memory.as_deref().unwrap());
        }
    });
}

#[test]
fn more_sockets_than_blocks_can_serve_at_once() {
    for_each_backend(|bench| {
        let input = data(6 * BLOCK + 11);
        let start = |_| {
            let ((theirs, ours), (to, end)) = (tcp4(), tcp4());
            let writer = write_behind(theirs.into(), input.clone());
            let transfer =
                bench.session.transfer(Source::socket(&ours), [Op::Sha1], Sink::socket(&to)).unwrap();
            (transfer, writer, read_behind(end.into()))
        };
        let started: Vec<_> = (0..40).map(start).collect();
        for (transfer, writer, reader) in started {
            let done = transfer.wait().unwrap();
            oracle::check("one of 40", &[Op::Sha1], &input, &done, &reader.join().unwrap());
            writer.join().unwrap();
        }
    });
}

#[test]
fn sessions_in_threads_and_a_session_shared_by_threads() {
    for_each_backend(|bench| {
        std::thread::scope(|scope| {
            for at in 0..8 {
                scope.spawn(move || {
                    let own = bench.engine.session().unwrap();
                    for round in 0..12 {
                        let input = noise(at * 100 + round, 2 * BLOCK + at as usize);
                        let session = if round % 2 == 0 { &own } else { &bench.session };
                        let (source, sink) = (Source::memory(&input[..]), Sink::memory(input.len()));
                        let done = session.transfer(source, [Op::Sha1], sink).unwrap().wait().unwrap();
                        oracle::check("shared", &[Op::Sha1], &input, &done, done.memory.as_deref().unwrap());
                    }
                });
            }
        });
    });
}

/// Callers drive by turns: whoever is done hands over to one who is not, however the turns fall.
#[test]
fn callers_hand_over() {
    for io in [Io::Uring, Io::Plain] {
        watched("callers hand over", || {
            let builder = Engine::builder().driver(Driver::Caller).io(io).block_size(4096);
            let engine = builder.start().unwrap();
            let shared = engine.session().unwrap();
            std::thread::scope(|scope| {
                for at in 0..8u64 {
                    let (engine, shared) = (&engine, &shared);
                    scope.spawn(move || hammer(engine, shared, at));
                }
            });
        });
    }
}

fn hammer(engine: &Engine, shared: &dcs::Session, at: u64) {
    let input = noise(at, 9000);
    for round in 0..150u64 {
        let own = (round % 5 == 0).then(|| engine.session().unwrap());
        let session = own.as_ref().unwrap_or(shared);
        // A pipe that is written to at once, or a little later: then the driver sleeps in between.
        let (theirs, ours) = pipe();
        let transfer = session.transfer(Source::fd(&ours), [Op::Crc32], Sink::memory(9000)).unwrap();
        let writer = match round % 3 {
            0 => Some(write_behind(theirs.into(), input.clone())),
            _ => {
                std::io::Write::write_all(&mut { theirs }, &input).unwrap();
                None
            }
        };
        let mut waiting = Some(transfer);
        if at.is_multiple_of(2) {
            waiting = waiting.and_then(|transfer| transfer.try_wait().err());
        }
        if let Some(transfer) = waiting {
            assert!(transfer.wait().unwrap().memory.unwrap() == input);
        }
        writer.into_iter().for_each(|writer| writer.join().unwrap());
    }
}

#[test]
fn sessions_come_and_go() {
    for_each_backend(|bench| {
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for round in 0..150 {
                        let session = bench.engine.session_with_depth(4).unwrap();
                        let (source, sink) = (Source::memory(&b"here"[..]), Sink::memory(4));
                        let transfer = session.transfer(source, [], sink).unwrap();
                        if round % 2 == 0 {
                            assert_eq!(transfer.wait().unwrap().memory.unwrap(), b"here");
                        }
                    }
                });
            }
        });
    });
}

#[test]
fn as_many_sessions_as_the_engine_was_made_for() {
    for backend in crate::rig::BACKENDS {
        let engine = backend.builder().sessions(2).start().unwrap();
        let (one, two) = (engine.session().unwrap(), engine.session().unwrap());
        assert!(matches!(engine.session(), Err(Error::NoSessions)));
        drop(one);
        let three = engine.session().unwrap();
        drop((two, three));
        assert!(matches!(engine.session_with_depth(0), Err(Error::Depth)));
        assert!(matches!(engine.session_with_depth(4097), Err(Error::Depth)));
        assert!(engine.session_with_depth(4096).is_ok());
    }
}

#[test]
fn an_engine_for_each_core() {
    watched("engines", || {
        let cores = std::thread::available_parallelism().unwrap().get().min(4);
        let engines: Vec<Engine> =
            (0..cores).map(|core| Engine::builder().core(core).start().unwrap()).collect();
        let sessions: Vec<_> = engines.iter().map(|engine| engine.session().unwrap()).collect();
        let inputs: Vec<Vec<u8>> = (0..40).map(|at| noise(at, 50_000)).collect();
        let start = |(at, input): (usize, &Vec<u8>)| {
            let (source, sink) = (Source::memory(&input[..]), Sink::memory(input.len()));
            sessions[at % cores].transfer(source, [Op::Md5], sink).unwrap()
        };
        let transfers: Vec<_> = inputs.iter().enumerate().map(start).collect();
        for (input, transfer) in inputs.iter().zip(transfers) {
            let done = transfer.wait().unwrap();
            oracle::check("engines", &[Op::Md5], input, &done, done.memory.as_deref().unwrap());
        }
    });
}

#[test]
fn one_after_the_other_where_they_have_a_request_id() {
    for_each_backend(|bench| {
        let input = data(20 * BLOCK + 3);
        let first = file_with(&input);
        let files: Vec<_> = (0..6).map(|_| file_with(&vec![0; input.len()])).collect();
        let mut source = &first;
        let mut transfers = Vec::new();
        // Each reads what the one before writes: out of order they would read zeros.
        for file in &files {
            let request = bench.session.request(Source::file(source, ..), [Op::Md5], Sink::file(file, 0));
            transfers.push(request.rid(7).submit().unwrap());
            source = file;
        }
        let done: Vec<_> = transfers.into_iter().map(|transfer| transfer.wait().unwrap()).collect();
        for (file, done) in files.iter().zip(&done) {
            oracle::check("one of six", &[Op::Md5], &input, done, &contents(file, input.len()));
        }
    });
}

#[test]
fn those_without_a_request_id_do_not_wait() {
    for_each_backend(|bench| {
        let (theirs, ours) = pipe();
        let request = |source, rid| {
            bench.session.request(source, [Op::Crc32], Sink::memory(100)).rid(rid).submit().unwrap()
        };
        let slow = request(Source::fd(&ours), 9);
        let behind = request(Source::memory(&b"behind"[..]), 9);
        let beside = request(Source::memory(&b"beside"[..]), 10);
        assert_eq!(beside.wait().unwrap().memory.unwrap(), b"beside");
        bench.copy(b"and another");
        let behind = behind.try_wait().unwrap_err();
        // One that fails lets the next one go as well.
        slow.cancel();
        assert_eq!(slow.wait().unwrap_err().status, Status::Cancelled);
        assert_eq!(behind.wait().unwrap().memory.unwrap(), b"behind");
        drop(theirs);
    });
}

/// Transfers come, go and are dropped in one session: identifiers are used again all the time.
#[test]
fn results_go_to_whom_they_belong() {
    for_each_backend(|bench| {
        let counter = Arc::new(AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for at in 0..6u64 {
                let counter = Arc::clone(&counter);
                scope.spawn(move || {
                    for round in 0..60 {
                        let input = noise(at << 32 | round, 1 + (at * 100 + round) as usize);
                        let (source, sink) = (Source::memory(&input[..]), Sink::memory(input.len()));
                        let transfer = bench.session.transfer(source, [Op::Crc64Nvme], sink).unwrap();
                        if round % 4 == 1 {
                            // Its identifier is free again only when its cancel is through.
                            drop(transfer);
                            continue;
                        }
                        let done = transfer.wait().unwrap();
                        assert!(done.memory.unwrap() == input);
                        counter.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(counter.load(Ordering::Relaxed), 6 * 45);
    });
}
