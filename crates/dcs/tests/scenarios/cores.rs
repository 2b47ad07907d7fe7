//! Engines with several cores: sessions and transfers find one each, and what holds for an engine holds for
//! all of them.

use crate::ends::{contents, file_with, pipe, read_behind, tcp4};
use crate::oracle;
use crate::rig::{BLOCK, alone, eventually, noise, watched};
use dcs::engine::Builder;
use dcs::{Backend, Cores, Driver, Engine, Error, Handle, Io, Op, Sink, Source, Status};
use std::num::NonZeroUsize;

fn number(cores: usize) -> Cores {
    Cores::Number(NonZeroUsize::new(cores).unwrap())
}

fn builder(cores: usize, io: Io) -> Builder {
    Engine::builder().io(io).block_size(BLOCK as u32).blocks(160).cores(number(cores))
}

fn for_each_io(scenario: impl Fn(Io)) {
    for io in [Io::Uring, Io::Plain] {
        watched("cores", || scenario(io));
    }
}

/// Nothing is lent out any more, on any core.
fn assert_nothing_lent(engine: &Engine) {
    let idle = || {
        let all = engine.statistics_by_core();
        all.iter().all(|one| one.is_idle && one.blocks_free == one.blocks)
    };
    assert!(eventually(idle), "{:?}", engine.statistics_by_core());
}

#[test]
fn sessions_go_where_the_load_is_least() {
    for_each_io(|io| {
        let engine = builder(3, io).start().unwrap();
        assert_eq!(engine.cores(), 3);
        let sessions: Vec<_> = (0..6).map(|_| engine.session().unwrap()).collect();
        for (at, session) in sessions.iter().enumerate() {
            let input = noise(at as u64, 3 * BLOCK + at);
            let (source, sink) = (Source::memory(&input[..]), Sink::memory(input.len()));
            let done = session.transfer(source, [Op::Sha1], sink).unwrap().wait().unwrap();
            oracle::check("a session's", &[Op::Sha1], &input, &done, done.memory.as_deref().unwrap());
        }
        // Two sessions each, so two transfers each.
        let completed =
            || -> Vec<_> { engine.statistics_by_core().iter().map(|one| one.completed).collect() };
        assert!(eventually(|| completed() == [2, 2, 2]), "{:?}", completed());
        assert_eq!(engine.statistics().completed, 6);
        // Two go, and the next two come to their core.
        let (_, stay) = (drop(sessions), engine.session().unwrap());
        let (theirs, ours) = pipe();
        let stalled: Vec<_> =
            (0..3).map(|_| stay.transfer(Source::fd(&ours), [], Sink::memory(1)).unwrap()).collect();
        let others: Vec<_> = (0..4).map(|_| engine.session().unwrap()).collect();
        for session in &others {
            session.transfer(Source::memory(*b"-"), [], Sink::memory(1)).unwrap().wait().unwrap();
        }
        // The core with the three that wait got none of them.
        let busy: Vec<_> = engine.statistics_by_core().iter().map(|one| one.completed).collect();
        assert_eq!(busy.iter().sum::<u64>(), 10);
        assert_eq!(busy.iter().filter(|completed| **completed == 2).count(), 1, "{busy:?}");
        drop((stalled, theirs));
        assert_nothing_lent(&engine);
    });
}

#[test]
fn transfers_of_a_spread_are_on_all_cores_and_right() {
    for_each_io(|io| {
        let engine = builder(2, io).gather(false).start().unwrap();
        let spread = engine.spread().unwrap();
        let chains = [vec![Op::Md5], vec![Op::Crc32c], vec![], vec![Op::Sha256, Op::Md5]];
        let inputs: Vec<Vec<u8>> = (0..60).map(|at| noise(at, at as usize * 913)).collect();
        let submit = |(at, input): (usize, &Vec<u8>)| {
            let sink = Sink::memory(input.len());
            spread.transfer(Source::file(&file_with(input), ..), chains[at % 4].clone(), sink).unwrap()
        };
        let transfers: Vec<_> = inputs.iter().enumerate().map(submit).collect();
        for (at, (input, transfer)) in inputs.iter().zip(transfers).enumerate() {
            let done = transfer.wait().unwrap();
            oracle::check("one of a spread", &chains[at % 4], input, &done, done.memory.as_deref().unwrap());
        }
        assert!(engine.statistics_by_core().iter().all(|one| one.completed > 0));
        assert_nothing_lent(&engine);
    });
}

/// A descriptor that was examined once belongs to no core: a file and a socket serve transfers on any, one
/// after the other and, the file, at the same time.
#[test]
fn handles_serve_transfers_on_any_core() {
    for_each_io(|io| {
        let (one, other) = (builder(2, io).start().unwrap(), builder(1, io).start().unwrap());
        let input = noise(7, 5 * BLOCK + 3);
        let file = Handle::new(&file_with(&input)).unwrap();
        let (ours, theirs) = tcp4();
        let socket = Handle::new(&ours).unwrap();
        let reader = read_behind(theirs.into());
        let spread = one.spread().unwrap();
        let alone = other.session().unwrap();
        let sessions: Vec<_> = spread.sessions().iter().chain([&alone]).collect();
        for session in &sessions {
            let sink = Sink::handle(&socket, 0);
            session.transfer(Source::handle(&file, ..), [Op::Md5], sink).unwrap().wait().unwrap();
        }
        drop((ours, socket));
        assert!(reader.join().unwrap() == input.repeat(sessions.len()));
        let together: Vec<_> = sessions
            .iter()
            .map(|session| {
                session.transfer(Source::handle(&file, ..), [Op::Md5], Sink::memory(input.len())).unwrap()
            })
            .collect();
        for transfer in together {
            assert!(transfer.wait().unwrap().memory.unwrap() == input);
        }
        for engine in [&one, &other] {
            assert_nothing_lent(engine);
        }
    });
}

/// As many threads as there is room for transfers, each with one at a time: there is always room for the next.
#[test]
fn threads_that_share_a_spread_find_the_room_that_there_is() {
    let engine = builder(2, Io::Auto).start().unwrap();
    let spread = engine.spread_with_depth(2).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let spread = &spread;
            scope.spawn(move || {
                for at in 0..3_000 {
                    let bytes = [thread, at as u8];
                    let done = spread.transfer(Source::memory(bytes), [], Sink::memory(2)).unwrap().wait();
                    assert_eq!(done.unwrap().memory.as_deref(), Some(&bytes[..]));
                }
            });
        }
    });
}

#[test]
fn one_request_id_is_one_order_on_a_spread() {
    for_each_io(|io| {
        let engine = builder(3, io).start().unwrap();
        let spread = engine.spread().unwrap();
        let file = tempfile::tempfile().unwrap();
        // All write to the same place: the last one stays.
        for rid in [1, 2, 3, u32::MAX] {
            let transfers: Vec<_> = (0..20u8)
                .map(|at| {
                    let bytes = vec![at; 2 * BLOCK - usize::from(at)];
                    let request = spread.request(Source::memory(bytes), [Op::Crc32], Sink::file(&file, 0));
                    request.rid(rid).submit().unwrap()
                })
                .collect();
            transfers.into_iter().for_each(|transfer| drop(transfer.wait().unwrap()));
            let bytes = contents(&file, 2 * BLOCK - 19);
            assert!(bytes.iter().all(|byte| *byte == 19), "{rid}");
        }
    });
}

#[test]
fn full_cores_send_transfers_and_sessions_to_others() {
    for_each_io(|io| {
        let engine = builder(2, io).sessions(1).start().unwrap();
        let sessions = [engine.session().unwrap(), engine.session().unwrap()];
        assert!(matches!(engine.session(), Err(Error::NoSessions)));
        assert!(matches!(engine.spread(), Err(Error::NoSessions)));
        drop(sessions);
        let engine = builder(2, io).start().unwrap();
        let spread = engine.spread_with_depth(2).unwrap();
        let (theirs, ours) = pipe();
        let stalled = || spread.transfer(Source::fd(&ours), [Op::Md5], Sink::memory(1));
        let transfers: Vec<_> = (0..4).map(|_| stalled().unwrap()).collect();
        assert!(matches!(stalled(), Err(Error::SessionFull)));
        assert!(matches!(engine.spread_with_depth(0), Err(Error::Depth)));
        drop((transfers, theirs));
        assert_nothing_lent(&engine);
    });
}

#[test]
fn a_dropped_engine_ends_what_is_in_flight_on_all_cores() {
    for_each_io(|io| {
        let engine = builder(3, io).start().unwrap();
        let spread = engine.spread().unwrap();
        let (_theirs, ours) = pipe();
        let stalled = || spread.transfer(Source::fd(&ours), [Op::Crc32c], Sink::memory(1)).unwrap();
        let transfers: Vec<_> = (0..9).map(|_| stalled()).collect();
        drop(engine);
        for transfer in transfers {
            assert_eq!(transfer.wait().unwrap_err().status, Status::QueueDeleted);
        }
        let refused = spread.transfer(Source::memory(*b"-"), [], Sink::memory(1));
        assert!(matches!(refused, Err(Error::Stopped)));
    });
}

#[test]
fn cores_that_cannot_be_are_refused() {
    let refused = [
        Engine::builder().driver(Driver::Caller),
        Engine::builder().backend(Backend::Card),
        Engine::builder().nvme("0000:7f:00.0", None),
        Engine::builder().gpu(0),
    ];
    for builder in refused {
        assert!(matches!(builder.cores(number(2)).start(), Err(Error::OneCore(_))));
    }
    let caller = Engine::builder().driver(Driver::Caller).cores(number(1)).start().unwrap();
    assert_eq!(caller.cores(), 1);
    assert!(matches!(Engine::builder().cores(number(3)).cpus([0, 1]).start(), Err(Error::Processors(2, 3))));
    assert!(matches!(Engine::builder().numa_node(4000).start(), Err(Error::NumaNode(4000))));
    // Sizes are told as of one core.
    assert!(matches!(Engine::builder().cores(number(2)).blocks(3).start(), Err(Error::Config(_))));
}

/// The processors that each of the engine's threads may run on.
fn allowed() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path());
    let engine = tasks.filter(|task| {
        std::fs::read_to_string(task.join("comm")).is_ok_and(|name| name.trim() == "dcs-engine")
    });
    let status = engine.map(|task| std::fs::read_to_string(task.join("status")).unwrap());
    let mut all: Vec<String> = status
        .flat_map(|status| {
            let line = status.lines().find(|line| line.starts_with("Cpus_allowed_list"));
            line.and_then(|line| Some(line.split_once(':')?.1.trim().to_string()))
        })
        .collect();
    all.sort();
    all
}

/// The numbers in a list such as `0-3,8`.
fn expand(list: &str) -> Vec<usize> {
    let ends = list.trim().split(',').map(|part| part.split_once('-').unwrap_or((part, part)));
    ends.flat_map(|(first, last)| first.parse().unwrap()..=last.parse().unwrap()).collect()
}

#[test]
fn threads_run_where_they_were_told_to() {
    alone("cores::threads_run_where_they_were_told_to", || {
        // SAFETY: cpu_set_t is plain bits; 0 means the calling thread.
        let mine: Vec<usize> = unsafe {
            let mut set = std::mem::zeroed::<libc::cpu_set_t>();
            assert_eq!(libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set), 0);
            (0..libc::CPU_SETSIZE as usize).filter(|cpu| libc::CPU_ISSET(*cpu, &set)).collect()
        };
        let engine = Engine::builder().cores(Cores::All).cpus(mine.clone()).start().unwrap();
        let mut named: Vec<String> = mine.iter().map(ToString::to_string).collect();
        named.sort();
        assert_eq!(allowed(), named);
        drop(engine);
        let Ok(list) = std::fs::read_to_string("/sys/devices/system/node/node0/cpulist") else {
            return println!("skipped: this kernel tells of no NUMA node");
        };
        let wanted: Vec<usize> = expand(&list).into_iter().filter(|cpu| mine.contains(cpu)).collect();
        if wanted.is_empty() {
            return println!("skipped: this process may run on no processor of node 0");
        }
        let engine = Engine::builder().cores(number(2)).numa_node(0).start().unwrap();
        let lists = allowed();
        assert!(lists.len() == 2 && lists.iter().all(|list| expand(list) == wanted), "{lists:?}, {wanted:?}");
        let session = engine.session().unwrap();
        session.transfer(Source::memory(*b"-"), [Op::Md5], Sink::memory(1)).unwrap().wait().unwrap();
    });
}
