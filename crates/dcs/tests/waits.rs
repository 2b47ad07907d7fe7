//! Calls into the kernel that wait for long: whoever makes them, it is not the engine's thread. Timeouts
//! fire, and others go on.

use dcs::{Driver, Engine, Io, Mode, Op, Session, Sink, Source, Status};
use dcs_testkit::disk::Disk;
use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::sync::{Arc, Barrier};
use std::task::{Context, Wake, Waker};
use std::time::{Duration, Instant};

/// Longer than anything takes that does not wait; shorter than what is waited for here would.
const SOON: Duration = Duration::from_secs(25);

fn engines() -> Vec<Engine> {
    let io = [Io::Auto, Io::Plain];
    io.map(|io| Engine::builder().io(io).blocks(24).block_size(4096).sessions(2).start().unwrap()).into()
}

/// Other tenants' transfers, which have nothing to do with what is stuck: memory, a file that is not on the
/// stuck file system, its flush.
fn others_go_on(session: &Session) {
    let began = Instant::now();
    let file = tempfile::tempfile_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    for _ in 0..20 {
        let copy = session.transfer(Source::memory(&b"abc"[..]), [Op::Md5], Sink::memory(3)).unwrap().wait();
        assert_eq!(copy.unwrap().digests[0].to_string(), "900150983cd24fb0d6963f7d28e17f72");
        let write = session.request(Source::memory(&b"abc"[..]), [], Sink::file(&file, 0)).durable();
        assert_eq!(write.submit().unwrap().wait().unwrap().bytes_out, 3);
    }
    assert!(began.elapsed() < SOON, "others were held up for {:?}", began.elapsed());
}

fn tcp() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (ours, listener.accept().unwrap().0)
}

#[test]
fn a_socket_that_lingers_is_closed_by_somebody_else() {
    for engine in engines() {
        let [session, other] = [0; 2].map(|_| engine.session().unwrap());
        let (ours, mut theirs) = tcp();
        let linger = libc::linger { l_onoff: 1, l_linger: 120 };
        let size = std::mem::size_of::<libc::linger>() as u32;
        // SAFETY: the value is valid for reads of its size.
        let set = unsafe {
            libc::setsockopt(
                ours.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_LINGER,
                (&raw const linger).cast(),
                size,
            )
        };
        assert_eq!(set, 0);
        ours.set_nonblocking(true).unwrap();
        let request = session.request(Source::memory(vec![1; 16 << 20]), [], Sink::socket(&ours));
        let transfer = request.timeout(Duration::from_millis(100)).submit().unwrap();
        // As whoever has submitted a transfer may: from now on the engine has the last descriptor.
        drop(ours);
        let began = Instant::now();
        let error = transfer.wait().unwrap_err();
        assert_eq!(error.status, Status::Timeout);
        assert!(error.completion.bytes_out > 0, "what was sent waits in the socket");
        others_go_on(&other);
        assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
        // It was closed all the same: what was sent arrives, and then the end.
        let mut received = 0;
        let mut bytes = vec![0; 1 << 20];
        while let Ok(length @ 1..) = theirs.read(&mut bytes) {
            received += length as u64;
        }
        assert_eq!(received, error.completion.bytes_out);
    }
}

fn file(disk: &Disk, name: &str) -> File {
    File::options().create(true).truncate(true).read(true).write(true).open(disk.mount().join(name)).unwrap()
}

#[test]
fn a_file_system_that_is_frozen_holds_up_its_own_transfers_and_they_time_out() {
    for engine in engines() {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let Some(disk) = Disk::new(folder.path()) else { return };
        let [session, other] = [0; 2].map(|_| engine.session().unwrap());
        let files: Vec<File> = (0..8).map(|at| file(&disk, &format!("file{at}"))).collect();
        files.iter().for_each(|file| file.set_len(8192).unwrap());
        // Blocks that did not come back would be missed the third time.
        for _ in 0..3 {
            stuck(&disk, &files, &session, &other);
        }
        drop((session, other));
    }
}

/// Freezes a file system under transfers that write to its files, and thaws it again.
fn stuck(disk: &Disk, files: &[File], session: &Session, other: &Session) {
    disk.freeze();
    let began = Instant::now();
    // More than there are threads for one file system, at first.
    let stuck: Vec<_> = files
        .iter()
        .map(|file| {
            let request = session.request(Source::memory(vec![7; 5000]), [Op::Crc32], Sink::file(file, 0));
            request.timeout(Duration::from_millis(300)).durable().submit().unwrap()
        })
        .collect();
    others_go_on(other);
    for transfer in stuck {
        let error = transfer.wait().unwrap_err();
        assert_eq!((error.status, error.completion.bytes_out), (Status::Timeout, 0));
    }
    assert!(began.elapsed() < SOON, "the timeout of 300 ms was told after {:?}", began.elapsed());
    // To be cancelled is the same, and so is to be forgotten with the last descriptor of its file.
    let forgotten = disk.mount().join("file7");
    let file = File::options().write(true).open(&forgotten).unwrap();
    let transfer = session.transfer(Source::memory(vec![8; 5000]), [], Sink::file(&file, 0)).unwrap();
    drop(file);
    drop(transfer);
    others_go_on(other);
    disk.thaw();
    // The blocks come back: more than half of all are wanted at once.
    for _ in 0..50 {
        let many: Vec<_> = files
            .iter()
            .map(|file| {
                session.transfer(Source::memory(vec![9; 8192]), [Op::Md5], Sink::file(file, 0)).unwrap()
            })
            .collect();
        many.into_iter().for_each(|transfer| assert_eq!(transfer.wait().unwrap().bytes_out, 8192));
    }
    for at in 0..8 {
        assert_eq!(std::fs::read(disk.mount().join(format!("file{at}"))).unwrap(), vec![9; 8192]);
    }
}

#[test]
fn an_engine_ends_though_a_file_system_is_frozen() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let Some(disk) = Disk::new(folder.path()) else { return };
    for engine in engines() {
        let file = file(&disk, "file");
        disk.freeze();
        let session = engine.session().unwrap();
        let transfer = session.transfer(Source::memory(vec![7; 5000]), [], Sink::file(&file, 0)).unwrap();
        let began = Instant::now();
        drop(engine);
        assert_eq!(transfer.wait().unwrap_err().status, Status::QueueDeleted);
        assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
        disk.thaw();
    }
}

/// A thread that drove an engine for a while waits elsewhere later, while others drive and are woken.
#[test]
fn who_drove_is_not_interrupted_later() {
    let engine = Engine::builder().driver(Driver::Caller).start().unwrap();
    let session = engine.session().unwrap();
    let copy = || session.transfer(Source::memory(&b"abc"[..]), [Op::Md5], Sink::memory(3)).unwrap();
    let waits = || {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (session.transfer(Source::socket(&ours), [Op::Md5], Sink::memory(3)).unwrap(), theirs)
    };
    let (stop, stopped) = UnixStream::pair().unwrap();
    let ((first, mut one), (second, mut other)) = (waits(), waits());
    let (drove, has_driven) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let later = scope.spawn(move || {
            // It sleeps in the engine, for itself and for the other transfer.
            first.wait().unwrap();
            drove.send(()).unwrap();
            // poll(2) would be carried on with; epoll_wait is not.
            let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
            // SAFETY: plain calls; the event is valid for reads and writes.
            let ready = unsafe {
                let epoll = libc::epoll_create1(libc::EPOLL_CLOEXEC);
                assert_eq!(libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, stopped.as_raw_fd(), &mut event), 0);
                let ready = libc::epoll_wait(epoll, &mut event, 1, -1);
                libc::close(epoll);
                ready
            };
            (ready, std::io::Error::last_os_error())
        });
        std::thread::sleep(Duration::from_millis(20));
        one.write_all(b"abc").unwrap();
        drop(one);
        has_driven.recv().unwrap();
        let drives = scope.spawn(move || second.wait().unwrap());
        for _ in 0..20 {
            // Who submits wakes the one that drives.
            std::thread::sleep(Duration::from_millis(2));
            copy().wait().unwrap();
        }
        other.write_all(b"abc").unwrap();
        drop(other);
        drives.join().unwrap();
        drop(stop);
        let (ready, error) = later.join().unwrap();
        assert_eq!(ready, 1, "{error}");
    });
}

/// A copy within the kernel that hangs outlives its command: when it comes back, there is no command that it
/// is of.
#[test]
fn a_copy_that_comes_back_after_its_command_has_ended_is_let_go_of() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let Some(disk) = Disk::new(folder.path()) else { return };
    for io in [Io::Auto, Io::Plain] {
        let engine = Engine::builder().io(io).sessions(1).start().unwrap();
        let session = engine.session().unwrap();
        let (from, to) = (file(&disk, "from"), file(&disk, "to"));
        std::fs::write(disk.mount().join("from"), vec![7; 100_000]).unwrap();
        let copy = |timeout| {
            let request = session.request(Source::file(&from, ..), [], Sink::file(&to, 0));
            request.timeout(timeout).submit().unwrap()
        };
        disk.freeze();
        assert_eq!(copy(Duration::from_millis(100)).wait().unwrap_err().status, Status::Timeout);
        // Another command is in the midst of its work meanwhile.
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let next = session.transfer(Source::socket(&ours), [Op::Md5], Sink::memory(3)).unwrap();
        theirs.write_all(b"a").unwrap();
        while in_queue(&ours) != 0 {
            std::thread::yield_now();
        }
        disk.thaw();
        // What was begun is carried out, which is seen in the file.
        while std::fs::metadata(disk.mount().join("to")).unwrap().len() == 0 {
            std::thread::yield_now();
        }
        theirs.write_all(b"bc").unwrap();
        drop(theirs);
        let done = next.wait().unwrap();
        assert_eq!(done.digests[0].to_string(), "900150983cd24fb0d6963f7d28e17f72");
        assert_eq!(done.memory.as_deref(), Some(&b"abc"[..]));
        assert_eq!(copy(Duration::ZERO).wait().unwrap().bytes_out, 100_000);
        drop((from, to));
        // The descriptors of the one that had hung are given back too.
        while !engine.statistics().is_idle || is_open(disk.mount()) {
            std::thread::yield_now();
        }
    }
}

/// Bytes that a socket has and nobody has read.
fn in_queue(socket: &UnixStream) -> i32 {
    let mut bytes = 0;
    // SAFETY: FIONREAD writes one int; the descriptor is open.
    assert_eq!(unsafe { libc::ioctl(socket.as_raw_fd(), libc::FIONREAD, &mut bytes) }, 0);
    bytes
}

/// Whether this process has a file open below a folder.
fn is_open(folder: &std::path::Path) -> bool {
    let open = std::fs::read_dir("/proc/self/fd").unwrap();
    open.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok()).any(|path| path.starts_with(folder))
}

/// A zero-copy send that waits in the ring outlives the thread that began it: the kernel completes it, or
/// cancels it when that thread ends, and then whoever drives next sends it again.
#[test]
fn a_zero_copy_send_outlives_the_thread_that_began_it() {
    for io in [Io::Auto, Io::Uring] {
        let engine = match Engine::builder().driver(Driver::Caller).io(io).start() {
            Ok(engine) => engine,
            Err(error) => {
                println!("skipped: {error}");
                continue;
            }
        };
        let session = engine.session().unwrap();
        // A socket that blocks: a send that finds no room stays with the kernel.
        let (ours, mut theirs) = tcp();
        let bytes: Vec<u8> = (0..4_000_000_u32).flat_map(u32::to_le_bytes).collect();
        let source = Source::memory(bytes.clone());
        let begin = || {
            let sink = Sink::socket(&ours).zero_copy(Mode::On);
            let mut transfer = session.transfer(source, [], sink).unwrap();
            // Nothing goes any more, however often it is driven: the socket is full, and the next send
            // waits in the ring.
            let (mut held, mut same) = (0, 0);
            while same < 1000 {
                transfer = match transfer.try_wait() {
                    Ok(done) => panic!("{done:?} though nobody reads"),
                    Err(transfer) => transfer,
                };
                let now = not_taken(&ours);
                same = if now == held && now > 0 { same + 1 } else { 0 };
                held = now;
            }
            transfer
        };
        let transfer = std::thread::scope(|scope| scope.spawn(begin).join().unwrap());
        let reads = std::thread::spawn(move || {
            let mut received = Vec::new();
            theirs.read_to_end(&mut received).unwrap();
            received
        });
        let done = transfer.wait().unwrap();
        assert_eq!(done.bytes_out, bytes.len() as u64);
        drop((session, engine, ours));
        assert!(reads.join().unwrap() == bytes);
    }
}

/// Bytes that the peer has not acknowledged.
fn not_taken(socket: &TcpStream) -> i32 {
    let mut bytes = 0;
    // SAFETY: SIOCOUTQ, by its other name, writes one int; the descriptor is open.
    assert_eq!(unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &mut bytes) }, 0);
    bytes
}

/// Dead sockets of one session, more than the engine has commands for, in real time.
#[test]
fn a_session_full_of_dead_sockets_stops_nobody() {
    for io in [Io::Auto, Io::Plain] {
        let engine = Engine::builder().io(io).commands(64).sessions(2).blocks(64).start().unwrap();
        let (session, other) = (engine.session_with_depth(200).unwrap(), engine.session().unwrap());
        let dead: Vec<_> = (0..200)
            .map(|at| {
                let (ours, theirs) = UnixStream::pair().unwrap();
                let full = Source::memory(vec![1; 4 << 20]);
                // Half of them never give a byte, the others take none after what the socket holds.
                let transfer = match at % 2 {
                    0 => session.transfer(Source::socket(&ours), [Op::Md5], Sink::memory(100)),
                    _ => session.transfer(full, [Op::Md5], Sink::socket(&ours)),
                };
                (transfer.unwrap(), theirs)
            })
            .collect();
        others_go_on(&other);
        assert!(dead.iter().all(|(transfer, _)| !transfer.is_done()));
    }
}

/// Counters of an engine whose thread does not come back are those that it told last, and nobody waits for them.
#[test]
fn counters_of_an_engine_that_is_stuck_are_had_at_once() {
    struct Stuck(Barrier);
    impl Wake for Stuck {
        fn wake(self: Arc<Self>) {
            self.0.wait();
            self.0.wait();
        }
    }
    for engine in engines() {
        let session = engine.session().unwrap();
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut transfer = session.transfer(Source::socket(&ours), [], Sink::memory(3)).unwrap();
        // The engine's thread wakes it, and does not return from that.
        let stuck = Arc::new(Stuck(Barrier::new(2)));
        let waker = Waker::from(Arc::clone(&stuck));
        assert!(Pin::new(&mut transfer).poll(&mut Context::from_waker(&waker)).is_pending());
        theirs.write_all(b"abc").unwrap();
        drop(theirs);
        stuck.0.wait();
        let looks = 200;
        let began = Instant::now();
        let seen: Vec<u64> = (0..looks).map(|_| engine.statistics().operations).collect();
        assert!(began.elapsed() < SOON, "{looks} looks took {:?}", began.elapsed());
        assert!(seen.iter().all(|operations| *operations == seen[0]));
        stuck.0.wait();
        assert_eq!(transfer.wait().unwrap().bytes_out, 3);
        while engine.statistics().completed != 1 {
            std::thread::yield_now();
        }
        assert!(engine.statistics().operations >= 2);
    }
}

/// Whoever only asks for counters drives nothing: what a step may wait for is for those who wait.
#[test]
fn counters_of_an_engine_that_callers_drive_move_nothing() {
    let engine = Engine::builder().driver(Driver::Caller).start().unwrap();
    let session = engine.session().unwrap();
    let transfer = session.transfer(Source::memory(&b"abc"[..]), [Op::Md5], Sink::memory(3)).unwrap();
    for _ in 0..10 {
        assert_eq!(engine.statistics().fetched, 0);
    }
    assert_eq!(transfer.wait().unwrap().bytes_out, 3);
    assert_eq!(engine.statistics().completed, 1);
}
