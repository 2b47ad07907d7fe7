//! Bad input, and what it gets: status, stage, operator, bytes delivered. The engine is as good as new after
//! each.

use crate::ends::{contents, file_with, pipe, read_behind, tcp4};
use crate::oracle;
use crate::rig::{
    BACKENDS, BLOCK, Bench, Verdict, alone, data, descriptors, eventually, for_each_backend, is_root, skip,
    tool, verdict, watched,
};
use dcs::{Error, Op, Operator, Sink, Source, Stage, Status, TransferError};
use std::fs::File;
use std::io::Write;
use std::net::{TcpListener, UdpSocket};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

fn run(bench: &Bench, source: Source, chain: &[Op], sink: Sink) -> TransferError {
    let error = bench.session.transfer(source, chain.to_vec(), sink).unwrap().wait().unwrap_err();
    assert!(!error.advice().is_empty());
    assert!(error.to_string().contains(&format!("{} bytes", error.completion.bytes_out)), "{error}");
    bench.copy(b"the engine works on");
    error
}

fn bytes() -> Source {
    Source::memory(&b"0123456789"[..])
}

fn raw(number: u8, parameter: &[u8]) -> Op {
    Op::Raw { number, parameter: parameter.to_vec() }
}

#[test]
fn operators_that_are_none_and_parameters_that_are_wrong() {
    let key = |length| vec![7; length];
    let aes = Operator::Aes256Ctr as u8;
    let xts = Operator::Aes256Xts as u8;
    let unit = |size: u32| {
        let mut key = [9; 64];
        key[..32].fill(1);
        Op::Aes256Xts { key, unit_size: size, first_unit: 0 }
    };
    let cases: Vec<(Vec<Op>, Status, u8)> = vec![
        (vec![raw(0xee, &[])], Status::UnknownOperator, 0),
        (vec![Op::Md5, Op::Crc32, raw(0x7f, &[])], Status::UnknownOperator, 2),
        (vec![raw(aes, &key(47))], Status::BadParameter, 0),
        (vec![Op::Md5, raw(aes, &key(49))], Status::BadParameter, 1),
        (vec![raw(aes, &[])], Status::BadParameter, 0),
        (vec![raw(xts, &key(79))], Status::BadParameter, 0),
        (vec![unit(8)], Status::BadParameter, 0),
        (vec![unit(24)], Status::BadParameter, 0),
        (vec![raw(xts, &[0; 80])], Status::BadParameter, 0),
        // A data unit that no block of this engine holds.
        (vec![unit(2 * BLOCK as u32)], Status::OutOfResources, 0),
        (vec![raw(Operator::Md5 as u8, &[1])], Status::BadParameter, 0),
        (vec![Op::Gzip { level: 10 }], Status::BadParameter, 0),
        (vec![Op::Md5, Op::Zstd { level: 20 }], Status::BadParameter, 1),
    ];
    for_each_backend(|bench| {
        for (chain, status, at) in &cases {
            let error = run(bench, bytes(), chain, Sink::memory(100));
            let (got, stage, _, delivered) = verdict(&error);
            assert_eq!((got, stage, delivered), (*status, Stage::Operator, 0), "{chain:?}");
            let operator = Operator::from_number(chain[*at as usize].number());
            assert_eq!(error.operator, operator.map(|operator| (*at, operator)), "{chain:?}");
        }
        let long = bench.session.transfer(bytes(), vec![Op::Md5; 9], Sink::memory(100));
        assert!(matches!(long, Err(Error::ChainTooLong)));
        // A number of 0 ends a chain: what follows it has no place.
        let error = run(bench, bytes(), &[raw(0, &[]), Op::Md5], Sink::memory(100));
        assert_eq!(verdict(&error), (Status::InvalidField, Stage::Frontend, None, 0));
    });
}

#[test]
fn ranges_that_are_not_there() {
    for_each_backend(|bench| {
        let file = file_with(&data(1000));
        let source = |extents: &[(u64, u64)]| Source::extents(&file, extents);
        let outside = |stage| (Status::OutOfRange, stage, None, 0);
        for extents in [&[(0, 1001)][..], &[(1001, 1)], &[(0, 5), (u64::MAX - 9, 5)], &[(1 << 40, 1)]] {
            let error = run(bench, source(extents), &[Op::Md5], Sink::memory(9000));
            assert_eq!(verdict(&error), outside(Stage::Source), "{extents:?}");
        }
        // Overflowing, empty among others, none at all.
        for extents in [&[(u64::MAX, 2)][..], &[(0, 5), (9, 0)], &[]] {
            let error = run(bench, source(extents), &[], Sink::memory(9000));
            assert_eq!(verdict(&error), (Status::InvalidField, Stage::Frontend, None, 0), "{extents:?}");
        }
        let extents = |at, length| Sink::extents(&file, &[(at, length)]);
        let error = run(bench, bytes(), &[], extents(i64::MAX as u64, 10));
        assert_eq!(verdict(&error), outside(Stage::Destination));
        let error = run(bench, bytes(), &[], extents(0, 9));
        assert_eq!(verdict(&error), outside(Stage::Destination));
        let error = run(bench, bytes(), &[], Sink::memory(9));
        assert_eq!(verdict(&error), outside(Stage::Destination));
        // Longer than the source.
        let request = bench.session.request(source(&[(0, 10)]), [], Sink::memory(100)).length(11);
        assert_eq!(verdict(&request.submit().unwrap().wait().unwrap_err()), outside(Stage::Source));
        // The file shrank between submission and start.
        let (slow, feed) = pipe();
        let held = bench.session.request(Source::fd(&feed), [], Sink::memory(1)).rid(3).submit().unwrap();
        let late =
            bench.session.request(Source::file(&file, ..), [], Sink::memory(9000)).rid(3).submit().unwrap();
        file.set_len(10).unwrap();
        drop(slow);
        held.wait().unwrap();
        assert_eq!(verdict(&late.wait().unwrap_err()), outside(Stage::Source));
        // Caught before they are submitted.
        let (from, to) = (7, 3);
        let backwards = bench.session.transfer(Source::file(&file, from..to), [], Sink::memory(9));
        assert!(matches!(backwards, Err(Error::Range)));
        let many = vec![(0, 1); 2000];
        let many = bench.session.transfer(Source::extents(&file, &many), [], Sink::memory(9000));
        assert!(matches!(many, Err(Error::TooManyExtents)));
    });
}

/// More than the destination has room for, known only when it comes.
#[test]
fn destinations_that_are_too_small() {
    for_each_backend(|bench| {
        let input = data(3 * BLOCK);
        for chain in [vec![], vec![Op::Md5]] {
            let (theirs, ours) = pipe();
            let feeder = crate::ends::write_behind(theirs.into(), input.clone());
            let mut error = run(bench, Source::fd(&ours), &chain, Sink::memory(BLOCK + 100));
            let expected = (Status::CapacityExceeded, Stage::Destination, None, BLOCK as u64 + 100);
            assert_eq!(verdict(&error), expected);
            assert!(error.completion.memory.take().unwrap() == input[..BLOCK + 100]);
            drop(ours);
            feeder.join().unwrap();
            let (theirs, ours) = pipe();
            let feeder = crate::ends::write_behind(theirs.into(), input.clone());
            let file = file_with(&[0; 100]);
            let extents = [(5000, 10), (3, BLOCK as u64)];
            let error = run(bench, Source::fd(&ours), &chain, Sink::extents(&file, &extents));
            assert_eq!(verdict(&error).3, BLOCK as u64 + 10);
            assert_eq!(error.status, Status::CapacityExceeded);
            drop(ours);
            feeder.join().unwrap();
        }
        let zip = oracle::sequential(&[Op::Gzip { level: 1 }], &input).output;
        let error = run(bench, Source::memory(zip), &[Op::Gunzip], Sink::memory(2 * BLOCK));
        let expected = (Status::CapacityExceeded, Stage::Destination, None, 2 * BLOCK as u64);
        assert_eq!(verdict(&error), expected);
    });
}

#[test]
fn descriptors_that_will_not_do() {
    for_each_backend(|bench| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, b"0123456789").unwrap();
        let (read, write) = (File::open(&path).unwrap(), File::options().write(true).open(&path).unwrap());
        let denied = |stage| (Status::AccessDenied, stage, None, 0);
        let (writer, reader) = pipe();
        for chain in [vec![], vec![Op::Md5]] {
            let error = run(bench, Source::file(&write, ..), &chain, Sink::memory(100));
            assert_eq!(verdict(&error), denied(Stage::Source));
            let error = run(bench, bytes(), &chain, Sink::file(&read, 0));
            assert_eq!(verdict(&error), denied(Stage::Destination));
            let error = run(bench, Source::fd(&writer), &chain, Sink::memory(100));
            assert_eq!(verdict(&error), denied(Stage::Source));
            let error = run(bench, bytes(), &chain, Sink::fd(&reader));
            assert_eq!(verdict(&error), denied(Stage::Destination));
            let append = File::options().append(true).open(&path).unwrap();
            let error = run(bench, bytes(), &chain, Sink::file(&append, 0));
            assert_eq!(verdict(&error), (Status::UnsupportedEndpoint, Stage::Destination, None, 0));
        }
        assert_eq!(std::fs::read(&path).unwrap(), b"0123456789");
        let refused = |source| match bench.session.transfer(source, [], Sink::memory(10)) {
            Err(Error::Endpoint(error)) => error.to_string(),
            other => panic!("{other:?}"),
        };
        assert!(refused(Source::fd(&File::open(folder.path()).unwrap())).contains("directory"));
        assert!(refused(Source::fd(&UdpSocket::bind("127.0.0.1:0").unwrap())).contains("not a stream"));
        assert!(refused(Source::fd(&TcpListener::bind("127.0.0.1:0").unwrap())).contains("listening"));
        let event = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
        assert!(refused(Source::fd(&event)).contains("this kind"));
        // SAFETY: no such descriptor is open, which is what is tried; nobody else can be harmed.
        let closed = unsafe { BorrowedFd::borrow_raw(900_000) };
        assert!(refused(Source::fd(&closed)).contains("not open"));
        // Not connected.
        use rustix::net::{AddressFamily, SocketType, socket};
        let lonely = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        assert_eq!(run(bench, Source::fd(&lonely), &[Op::Md5], Sink::memory(9)).stage, Stage::Source);
        assert_eq!(run(bench, bytes(), &[Op::Md5], Sink::fd(&lonely)).stage, Stage::Destination);
        // The original may be closed as soon as it was named.
        let source = Source::file(&read, ..);
        drop(read);
        let done = bench.session.transfer(source, [], Sink::memory(10)).unwrap().wait().unwrap();
        assert_eq!(done.memory.unwrap(), b"0123456789");
    });
}

#[test]
fn disks_that_are_full() {
    let mounted = Tmpfs::new().map_err(|why| skip("a small file system", &why)).ok();
    for_each_backend(|bench| {
        for chain in [vec![], vec![Op::Md5]] {
            let full = File::options().write(true).open("/dev/full").unwrap();
            let error = run(bench, bytes(), &chain, Sink::fd(&full));
            assert_eq!(verdict(&error), (Status::CapacityExceeded, Stage::Destination, None, 0));
            let Some(mounted) = &mounted else { continue };
            let input = data(128 * 1024);
            for source in [Source::memory(&input[..]), Source::file(&file_with(&input), ..)] {
                // A process that another test is just starting may hold the file before open for a moment.
                let is_empty = || {
                    let stat = rustix::fs::statvfs(mounted.0.path()).unwrap();
                    stat.f_bfree == stat.f_blocks
                };
                assert!(eventually(is_empty), "the file before is gone");
                let file = tempfile::tempfile_in(mounted.0.path()).unwrap();
                let error = run(bench, source, &chain, Sink::file(&file, 0));
                let (status, stage, _, delivered) = verdict(&error);
                assert_eq!((status, stage), (Status::CapacityExceeded, Stage::Destination), "{error}");
                assert_eq!(delivered, 64 * 1024, "all that fitted in");
                assert!(contents(&file, 64 * 1024) == input[..64 * 1024]);
            }
        }
    });
}

/// A file system of 64 KiB.
struct Tmpfs(tempfile::TempDir);

impl Tmpfs {
    fn new() -> Result<Tmpfs, String> {
        if !is_root() {
            return Err("not root".into());
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_string_lossy().to_string();
        tool("mount", &["-t", "tmpfs", "-o", "size=64k", "none", &path])?;
        Ok(Tmpfs(folder))
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = tool("umount", &[&self.0.path().to_string_lossy()]);
    }
}

#[test]
fn compressed_data_that_are_cut_or_corrupt() {
    let plain = data(4 * BLOCK);
    let gzip = oracle::sequential(&[Op::Gzip { level: 6 }], &plain).output;
    let zstd = oracle::sequential(&[Op::Zstd { level: 3 }], &plain).output;
    for_each_backend(|bench| {
        for (packed, inverse) in [(&gzip, Op::Gunzip), (&zstd, Op::Unzstd)] {
            let try_it = |input: &[u8]| {
                let chain = [Op::Sha1, inverse.clone(), Op::Md5];
                let mut error = run(bench, Source::memory(input), &chain, Sink::memory(5 * BLOCK));
                let memory = error.completion.memory.take().unwrap();
                let delivered = error.completion.bytes_out as usize;
                assert!(memory == plain[..delivered], "what was delivered is right");
                let (status, stage, at, _) = verdict(&error);
                assert_eq!((stage, at), (Stage::Operator, Some(1)), "{error}");
                // The digest before the operator saw what came in, as far as it says.
                let sha1 = error.completion.digests[0];
                let covered = &input[..sha1.covered as usize];
                assert_eq!(sha1.to_string(), oracle::expect(&[Op::Sha1], covered).digests[0].0);
                status
            };
            for cut in [1, 5, 10, packed.len() / 2, packed.len() - 1] {
                assert_eq!(try_it(&packed[..cut]), Status::TruncatedData, "{inverse:?} cut at {cut}");
            }
            let mut damaged = packed.clone();
            damaged[0] ^= 0x55;
            assert_eq!(try_it(&damaged), Status::CorruptData, "{inverse:?} magic");
        }
        // The checksum at the end of a gzip member.
        let mut damaged = gzip.clone();
        let at = damaged.len() - 6;
        damaged[at] ^= 1;
        let error = run(bench, Source::memory(damaged), &[Op::Gunzip], Sink::memory(5 * BLOCK));
        assert_eq!((error.status, error.operator), (Status::CorruptData, Some((0, Operator::Gunzip))));
        let nothing = run(bench, Source::memory(&b""[..]), &[Op::Gunzip], Sink::memory(5 * BLOCK));
        assert_eq!(verdict(&nothing), (Status::TruncatedData, Stage::Operator, Some(0), 0));
        // A cipher of whole units, and less than a block of it.
        let xts = Op::Aes256Xts { key: std::array::from_fn(|at| at as u8), unit_size: 512, first_unit: 1 };
        let error = run(bench, Source::memory(vec![5; 1024 + 15]), &[xts], Sink::memory(5 * BLOCK));
        assert_eq!((error.status, error.stage), (Status::TruncatedData, Stage::Operator));
    });
}

#[test]
fn peers_that_never_write_or_never_read_run_out_of_time() {
    for_each_backend(|bench| {
        for chain in [vec![], vec![Op::Md5]] {
            for nonblocking in [false, true] {
                let (ours, theirs) = tcp4();
                ours.set_nonblocking(nonblocking).unwrap();
                let limit = Duration::from_millis(40);
                let start = Instant::now();
                let request = bench.session.request(Source::socket(&ours), chain.clone(), Sink::memory(100));
                let error = request.timeout(limit).submit().unwrap().wait().unwrap_err();
                assert!((limit..limit * 20).contains(&start.elapsed()), "{:?}", start.elapsed());
                assert_eq!(verdict(&error), (Status::Timeout, Stage::Source, None, 0));
                let large = file_with(&data(1000 * BLOCK));
                let request =
                    bench.session.request(Source::file(&large, ..), chain.clone(), Sink::socket(&ours));
                // Long enough for the socket to be full by then, whoever else has the processor.
                let error = request.timeout(limit * 15).submit().unwrap().wait().unwrap_err();
                drop(ours);
                let received = read_behind(theirs.into()).join().unwrap().len() as u64;
                let expected: Verdict = (Status::Timeout, Stage::Destination, None, received);
                assert_eq!(verdict(&error), expected);
                assert!(received > 0);
            }
        }
        // In order behind one that takes its time.
        let (theirs, ours) = pipe();
        let slow = bench.session.request(Source::fd(&ours), [], Sink::memory(1)).rid(5).submit().unwrap();
        let request = bench.session.request(bytes(), [], Sink::memory(10)).rid(5);
        let behind = request.timeout(Duration::from_millis(20)).submit().unwrap();
        assert_eq!(verdict(&behind.wait().unwrap_err()), (Status::Timeout, Stage::Queue, None, 0));
        drop(theirs);
        slow.wait().unwrap();
    });
}

#[test]
fn readers_that_went_away() {
    for_each_backend(|bench| {
        for chain in [vec![], vec![Op::Md5]] {
            for source in [Source::memory(vec![1; 100_000]), Source::file(&file_with(&[2; 100_000]), ..)] {
                let (writer, reader) = pipe();
                drop(reader);
                let error = run(bench, source, &chain, Sink::fd(&writer));
                assert_eq!(verdict(&error), (Status::PeerReset, Stage::Destination, None, 0));
                assert_eq!(error.errno, rustix::io::Errno::PIPE.raw_os_error());
            }
        }
    });
}

/// All that can go wrong, often, leaves no descriptor open.
#[test]
fn no_descriptor_is_leaked() {
    alone("bad::no_descriptor_is_leaked", || {
        for backend in BACKENDS {
            watched(backend.name, || {
                let before = descriptors();
                let engine = backend.start();
                let session = engine.session().unwrap();
                let bench = Bench { backend: backend.clone(), engine, session };
                bench.copy(b"warm");
                let started = descriptors();
                for round in 0..20 {
                    go_wrong(&bench, round);
                    let closed = crate::rig::eventually(|| {
                        bench.copy(b"drive");
                        descriptors() == started
                    });
                    assert!(closed, "{started} descriptors became {:?}", crate::rig::open_files());
                }
                let (writer, reader) = pipe();
                let flying = bench.session.transfer(Source::fd(&reader), [], Sink::memory(5)).unwrap();
                drop(bench);
                assert_eq!(flying.wait().unwrap_err().status, Status::QueueDeleted);
                drop((writer, reader));
                assert_eq!(descriptors(), before, "{}", backend.name);
            });
        }
    });
}

fn go_wrong(bench: &Bench, round: u64) {
    let (ours, mut theirs) = tcp4();
    ours.set_nonblocking(round.is_multiple_of(2)).unwrap();
    let (writer, reader) = pipe();
    let file = file_with(&data(20 * BLOCK));
    let to_socket = bench.session.transfer(Source::file(&file, ..), [], Sink::socket(&ours)).unwrap();
    let through = bench.session.transfer(Source::socket(&ours), [], Sink::fd(&writer)).unwrap();
    let staged = bench.session.transfer(Source::socket(&ours), [], Sink::file(&file, 0)).unwrap();
    let timed = bench.session.request(Source::fd(&reader), [Op::Md5], Sink::memory(10));
    let timed = timed.timeout(Duration::from_millis(1)).submit().unwrap();
    let refused = bench.session.transfer(Source::file(&file, ..), vec![Op::Md5; 9], Sink::memory(1));
    assert!(refused.is_err());
    let direct = Source::file(&file, ..).cache(dcs::Mode::Off);
    let direct = bench.session.transfer(direct, [Op::Crc32], Sink::memory(20 * BLOCK)).unwrap();
    theirs.write_all(b"something").unwrap();
    bench.copy(b"some of it happens");
    drop((through, staged));
    drop((theirs, reader, writer));
    let _ = (to_socket.wait(), timed.wait(), direct.wait());
}

/// What a drive's part of a transfer fails at is a failure of the engine's, though its pipe ended well.
#[test]
fn refusals_of_a_drive_are_counted() {
    let engine = dcs::Engine::builder().backend(dcs::Backend::Drive).start().unwrap();
    let session = engine.session().unwrap();
    let mut file = tempfile::tempfile().unwrap();
    std::io::Write::write_all(&mut file, b"on no virtual drive").unwrap();
    for count in 1..=3 {
        let source = dcs::Source::file(&file, ..);
        let refused = session.transfer(source, [dcs::Op::Md5], dcs::Sink::memory(100)).unwrap().wait();
        assert_eq!(refused.unwrap_err().status, dcs::Status::PathUnavailable);
        assert_eq!(engine.statistics().failed, count);
    }
    // What goes by the kernel alone is counted once, by it.
    session.transfer(dcs::Source::file(&file, ..), [], dcs::Sink::memory(100)).unwrap().wait().unwrap();
    assert_eq!(engine.statistics().failed, 3);
}
