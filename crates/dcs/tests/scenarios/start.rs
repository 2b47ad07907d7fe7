//! The start of an engine, its costs when it does nothing, and its effects on its process: each measured in a
//! process of its own.

use crate::ends::{file_with, pipe};
use crate::oracle;
use crate::rig::{BACKENDS, alone, data, watched};
use dcs::{Driver, Engine, Error, Io, Op, Sink, Source, Status};
use std::time::{Duration, Instant};

/// From now on io_uring_setup fails with this errno in this process, as in a container that forbids it.
fn forbid_io_uring(errno: i32) {
    let statement = |code: u32, jt: u8, jf: u8, k: u32| libc::sock_filter { code: code as u16, jt, jf, k };
    let mut program = [
        // The system call's number is the first word of seccomp_data.
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, libc::SYS_io_uring_setup as u32),
        statement(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | errno as u32),
        statement(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: prctl reads the program, which is four valid statements, and keeps no pointer to it.
    let failed = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
            || libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program) != 0
    };
    assert!(!failed, "{}", std::io::Error::last_os_error());
}

fn works(engine: &Engine) {
    let input = data(300_000);
    let session = engine.session().unwrap();
    let source = Source::file(&file_with(&input), ..).cache(dcs::Mode::On);
    let done = session.transfer(source, [Op::Md5], Sink::memory(input.len())).unwrap().wait().unwrap();
    oracle::check("works", &[Op::Md5], &input, &done, done.memory.as_deref().unwrap());
}

fn without_io_uring(errno: i32) {
    assert!(Engine::builder().start().unwrap().uses_io_uring(), "it was there before");
    forbid_io_uring(errno);
    for driver in [Driver::Thread, Driver::Caller] {
        let engine = Engine::builder().driver(driver).io(Io::Auto).start().unwrap();
        assert!(!engine.uses_io_uring());
        works(&engine);
        match Engine::builder().driver(driver).io(Io::Uring).start() {
            Err(Error::IoUring(error)) => assert_eq!(error.raw_os_error(), Some(errno)),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn peer_to_peer_needs_an_ssd_that_the_engine_drives() {
    let ssd = || Engine::builder().nvme("0000:7f:00.0", None).peer_to_peer();
    for builder in [Engine::builder().peer_to_peer(), ssd().gpu(0), ssd().backend(dcs::Backend::Card)] {
        assert!(matches!(builder.start(), Err(Error::PeerToPeer)));
    }
    assert!(matches!(ssd().start(), Err(Error::Drive(_))), "there is none");
}

#[test]
fn io_uring_forbidden() {
    alone("start::io_uring_forbidden", || without_io_uring(libc::EPERM));
}

#[test]
fn io_uring_missing() {
    alone("start::io_uring_missing", || without_io_uring(libc::ENOSYS));
}

#[test]
fn the_environment_chooses_where_the_program_does_not() {
    alone("start::the_environment_chooses_where_the_program_does_not", || {
        let start = |value: &str, io| {
            // SAFETY: this process runs this test only, and no other thread while the variable is set.
            unsafe { std::env::set_var("DCS_IO", value) };
            Engine::builder().driver(Driver::Caller).io(io).start()
        };
        let auto = start("auto", Io::Auto).unwrap().uses_io_uring();
        assert!(!start("plain", Io::Auto).unwrap().uses_io_uring());
        assert_eq!(start("", Io::Auto).unwrap().uses_io_uring(), auto);
        assert!(!start("uring", Io::Plain).unwrap().uses_io_uring());
        if auto {
            assert!(start("uring", Io::Auto).unwrap().uses_io_uring());
            assert!(start("plain", Io::Uring).unwrap().uses_io_uring());
        }
        let error = start("fast", Io::Auto).unwrap_err().to_string();
        assert!(error.contains("DCS_IO") && error.contains("fast"), "{error}");
    });
}

#[test]
fn sizes_that_make_no_engine() {
    for builder in [
        Engine::builder().block_size(0),
        Engine::builder().block_size(5000),
        Engine::builder().blocks(3),
        Engine::builder().window(0),
        Engine::builder().commands(0),
        Engine::builder().sessions(0),
        Engine::builder().sessions(1000),
    ] {
        assert!(matches!(builder.start(), Err(Error::Config(_))));
    }
}

/// Processor time of all threads of this process.
fn cpu() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

fn resident() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * rustix::param::page_size()
}

#[test]
fn an_idle_engine_costs_no_time_and_little_memory() {
    alone("start::an_idle_engine_costs_no_time_and_little_memory", || {
        for backend in BACKENDS.iter().filter(|backend| backend.has_thread()) {
            let before = resident();
            let engine = Engine::builder().io(backend.io).start().unwrap();
            works(&engine);
            let grown = resident().saturating_sub(before);
            assert!(grown < 64 << 20, "{}: {grown} bytes", backend.name);
            // Idle: without a transfer; and with one that waits for a peer.
            let session = engine.session().unwrap();
            let (theirs, ours) = pipe();
            for waiting in [false, true] {
                let transfer =
                    waiting.then(|| session.transfer(Source::fd(&ours), [], Sink::memory(5)).unwrap());
                std::thread::sleep(Duration::from_millis(20));
                let before = cpu();
                std::thread::sleep(Duration::from_secs(1));
                let used = cpu() - before;
                assert!(used < Duration::from_millis(5), "{}, {waiting}: {used:?}", backend.name);
                drop(transfer);
            }
            drop(theirs);
        }
    });
}

/// As in a C program: nobody has told the system to ignore SIGPIPE.
#[test]
fn signals_of_transfers_do_not_end_the_process() {
    alone("start::signals_of_transfers_do_not_end_the_process", || {
        // SAFETY: restores the default action of two signals, as a C program has it; the limit is this
        // process's own.
        unsafe {
            libc::signal(libc::SIGPIPE, libc::SIG_DFL);
            libc::signal(libc::SIGXFSZ, libc::SIG_DFL);
            let limit = libc::rlimit { rlim_cur: 100_000, rlim_max: libc::RLIM_INFINITY };
            assert_eq!(libc::setrlimit(libc::RLIMIT_FSIZE, &limit), 0);
        }
        for backend in BACKENDS {
            watched(backend.name, || {
                let engine = backend.start();
                let session = engine.session().unwrap();
                let input = data(90_000);
                let long = [&input[..], &input].concat();
                for chain in [vec![], vec![Op::Md5]] {
                    for source in [Source::memory(&input[..]), Source::file(&file_with(&input), ..)] {
                        let (writer, reader) = pipe();
                        drop(reader);
                        let transfer = session.transfer(source, chain.clone(), Sink::fd(&writer)).unwrap();
                        assert_eq!(transfer.wait().unwrap_err().status, Status::PeerReset);
                    }
                    for immutable in [false, true] {
                        let (ours, theirs) = crate::ends::tcp4();
                        ours.set_nonblocking(true).unwrap();
                        drop(theirs);
                        std::thread::sleep(Duration::from_millis(5));
                        for _ in 0..2 {
                            let source = Source::file(&file_with(&input), ..);
                            let source = if immutable { source.immutable() } else { source };
                            let sink = Sink::socket(&ours);
                            let _ = session.transfer(source, chain.clone(), sink).unwrap().wait();
                        }
                    }
                    for source in [
                        Source::memory(&long[..]),
                        Source::extents(&file_with(&input), &[(0, 90_000), (0, 90_000)]),
                    ] {
                        let file = tempfile::tempfile().unwrap();
                        let sink = Sink::file(&file, 0);
                        let error =
                            session.transfer(source, chain.clone(), sink).unwrap().wait().unwrap_err();
                        assert_eq!(
                            (error.status, error.completion.bytes_out),
                            (Status::CapacityExceeded, 100_000)
                        );
                    }
                }
                works_within_limits(&engine);
            });
        }
        assert!(!pending_signals(), "none is left behind for the program");
    });
}

fn works_within_limits(engine: &Engine) {
    let session = engine.session().unwrap();
    let done = session.transfer(Source::memory(&b"on"[..]), [], Sink::memory(2)).unwrap().wait().unwrap();
    assert_eq!(done.memory.unwrap(), b"on");
}

fn pending_signals() -> bool {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let masks = status.lines().filter(|line| line.starts_with("SigPnd") || line.starts_with("ShdPnd"));
    masks.flat_map(|line| line.split('\t').nth(1)).any(|mask| u64::from_str_radix(mask, 16) != Ok(0))
}

/// A thread that drove and ended takes nothing along that others wait for.
#[test]
fn drivers_that_end_leave_the_work_of_others() {
    for io in [Io::Uring, Io::Plain] {
        watched("drivers end", || {
            let engine = Engine::builder().driver(Driver::Caller).io(io).block_size(4096).start().unwrap();
            let session = engine.session().unwrap();
            let input = data(1 << 20);
            let mut file = tempfile::tempfile_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
            std::io::Write::write_all(&mut file, &input).unwrap();
            file.sync_all().unwrap();
            let start = Instant::now();
            for _ in 0..5 {
                let source = Source::file(&file, ..).cache(dcs::Mode::Off);
                let big = session.transfer(source, [Op::Crc32], Sink::memory(input.len())).unwrap();
                for _ in 0..20 {
                    std::thread::scope(|scope| {
                        scope.spawn(|| {
                            let small = session.transfer(Source::memory(&b"-"[..]), [], Sink::memory(1));
                            small.unwrap().wait().unwrap();
                        });
                    });
                }
                let done = big.wait().unwrap();
                oracle::check("big", &[Op::Crc32], &input, &done, done.memory.as_deref().unwrap());
            }
            assert!(start.elapsed() < Duration::from_secs(30));
        });
    }
}

/// The scheduling policy of the thread of that name (field 41 of proc_pid_stat(5)): 0 ordinary, 2 SCHED_RR.
fn policy_of(name: &str) -> Option<u32> {
    let threads = std::fs::read_dir("/proc/self/task").unwrap();
    let stat = threads
        .filter_map(|thread| std::fs::read_to_string(thread.ok()?.path().join("stat")).ok())
        .find(|stat| stat.contains(&format!("({name})")))?;
    stat.rsplit_once(") ")?.1.split(' ').nth(38)?.parse().ok()
}

#[test]
fn the_engine_s_thread_runs_in_real_time_where_asked_and_allowed() {
    alone("start::the_engine_s_thread_runs_in_real_time_where_asked_and_allowed", || {
        drop(Engine::builder().realtime(dcs::Mode::Auto).start().unwrap());
        {
            let _engine = Engine::builder().start().unwrap();
            assert_eq!(policy_of("dcs-engine"), Some(0));
        }
        match Engine::builder().realtime(dcs::Mode::On).start() {
            Ok(_engine) => assert_eq!(policy_of("dcs-engine"), Some(2)),
            Err(Error::Start(error)) => {
                assert_eq!(error.raw_os_error(), Some(libc::EPERM));
                println!("skipped: real time is not allowed here");
            }
            Err(error) => panic!("{error}"),
        }
    });
}

/// The nice value of the thread of that name (field 19 of proc_pid_stat(5)).
fn nice_of(name: &str) -> Option<i32> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let mut stats = tasks.filter_map(|task| std::fs::read_to_string(task.unwrap().path().join("stat")).ok());
    let stat = stats.find(|stat| stat.contains(&format!("({name})")))?;
    let after_name = stat.rsplit_once(") ")?.1;
    after_name.split(' ').nth(16)?.parse().ok()
}

#[test]
fn the_engine_s_thread_is_as_nice_as_asked_for() {
    alone("start::the_engine_s_thread_is_as_nice_as_asked_for", || {
        let engine = Engine::builder().nice(7).start().unwrap();
        assert_eq!(nice_of("dcs-engine"), Some(7));
        works(&engine);
        drop(engine);
        // What is not permitted is said, and nothing is left behind.
        match Engine::builder().nice(-20).start() {
            Ok(_engine) => assert_eq!(nice_of("dcs-engine"), Some(-20)),
            Err(Error::Start(error)) => {
                assert_eq!(error.raw_os_error(), Some(libc::EACCES));
                assert_eq!(nice_of("dcs-engine"), None);
            }
            Err(other) => panic!("{other:?}"),
        }
    });
}
