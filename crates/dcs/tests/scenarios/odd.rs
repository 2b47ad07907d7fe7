//! Files and sockets of odd kinds: urgent data, error queues, files without a size, descriptors opened with
//! O_DIRECT, O_APPEND that comes late, seals, pipes of packets, MPTCP. What a plain program gets from them, a
//! transfer gets.

use crate::ends::{
    Kind, Rest, contents, disk_file, drain, file_with, pipe, read_behind, stream, tcp4, write_behind,
};
use crate::oracle;
use crate::rig::{BLOCK, alone, data, eventually, for_each_backend, skip, verdict};
use dcs::{Handle, Mode, Op, Sink, Source, Stage, Status};
use rustix::fs::{MemfdFlags, OFlags, SealFlags, fcntl_getfl, fcntl_setfl};
use rustix::net::{SendFlags, Shutdown, recv, send, shutdown};
use rustix::time::{ClockId, clock_gettime};
use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::process::{Command, Stdio};
use std::time::Duration;

fn set_flag(fd: impl AsFd, flag: OFlags) {
    let flags = fcntl_getfl(&fd).unwrap();
    fcntl_setfl(fd, flags | flag).unwrap();
}

/// A connection whose peer has sent bytes, an urgent one, more bytes, another urgent one, more bytes and its
/// end. `inline`: urgent bytes are received among the others.
fn with_urgent(kind: Kind, inline: bool, tail: &[u8]) -> Option<(OwnedFd, OwnedFd)> {
    let (theirs, ours) = stream(kind)?;
    rustix::net::sockopt::set_socket_oobinline(&ours, inline).unwrap();
    for piece in [b"0123456789", tail, tail] {
        assert_eq!(send(&theirs, piece, SendFlags::empty()), Ok(piece.len()));
        send(&theirs, b"!", SendFlags::OOB).ok()?;
    }
    assert_eq!(send(&theirs, tail, SendFlags::empty()), Ok(tail.len()));
    shutdown(&theirs, Shutdown::Write).unwrap();
    Some((theirs, ours))
}

/// The bytes that a plain program receives.
fn receive_all(socket: &OwnedFd) -> Vec<u8> {
    let (mut all, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        match recv(socket, &mut piece, rustix::net::RecvFlags::empty()).unwrap().0 {
            0 => return all,
            count => all.extend_from_slice(&piece[..count]),
        }
    }
}

/// Where bytes stand before and behind urgent ones, the kernel's own copies stop, and say what they say at
/// the end.
#[test]
fn urgent_data_are_not_the_end() {
    use Kind::*;
    for_each_backend(|bench| {
        for (from, nonblocking, inline) in [
            (Tcp4, false, false),
            (Tcp4, true, false),
            (Tcp4, false, true),
            (Tcp4, true, true),
            (Tcp6, false, false),
            (Unix, false, false),
            (Unix, true, false),
            (Unix, true, true),
        ] {
            for (to, chain) in [File, Tcp4, Unix, Pipe, Memory]
                .into_iter()
                .flat_map(|to| [(to, vec![]), (to, vec![Op::Md5])])
            {
                let tail = data(2 * BLOCK + 7);
                let Some((plain_peer, plain)) = with_urgent(from, inline, &tail) else {
                    skip(&format!("urgent data of {from:?}"), "not available on this machine");
                    continue;
                };
                let expected = receive_all(&plain);
                drop(plain_peer);
                // An urgent byte that another one follows is one of the stream.
                assert!(expected.len() >= 10 + 3 * tail.len());
                let (_peer, ours) = with_urgent(from, inline, &tail).unwrap();
                if nonblocking {
                    set_flag(&ours, OFlags::NONBLOCK);
                }
                let sink = drain(to, expected.len(), None).unwrap();
                let mut into = sink.sink;
                if let Rest::Stream(end, _) = &sink.rest {
                    set_flag(end, OFlags::NONBLOCK);
                    into = Sink::fd(end);
                }
                let transfer = bench.session.transfer(Source::fd(&ours), chain.clone(), into).unwrap();
                let mut done = transfer.wait().unwrap();
                let memory = done.memory.take();
                let received = sink.rest.received(done.bytes_out, memory).unwrap();
                let what = format!("{from:?} to {to:?}, {nonblocking}, {inline}, {}", bench.backend.name);
                oracle::check(&what, &chain, &expected, &done, &received);
            }
        }
    });
}

/// CPU time of this process while half a second goes by.
fn cpu_of_half_a_second() -> Duration {
    let now = || Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap();
    let before = now();
    std::thread::sleep(Duration::from_millis(500));
    now() - before
}

/// Urgent bytes alone, that are not among those received, are nothing to wake up for again and again.
#[test]
fn urgent_bytes_do_not_keep_the_engine_awake() {
    alone("odd::urgent_bytes_do_not_keep_the_engine_awake", || {
        for_each_backend(|bench| {
            let bytes = data(BLOCK + 5);
            let ends = [Kind::Tcp4, Kind::Unix].into_iter().flat_map(|kind| [(kind, false), (kind, true)]);
            let waiting: Vec<_> = ends
                .flat_map(|(kind, nonblocking)| {
                    [(kind, nonblocking, vec![]), (kind, nonblocking, vec![Op::Md5])]
                })
                .filter_map(|(kind, nonblocking, chain)| {
                    let (theirs, ours) = stream(kind)?;
                    if nonblocking {
                        set_flag(&ours, OFlags::NONBLOCK);
                    }
                    send(&theirs, b"!", SendFlags::OOB).ok()?;
                    let file = file_with(&[]);
                    let sink = Sink::file(&file, 0);
                    let transfer = bench.session.transfer(Source::fd(&ours), chain.clone(), sink).unwrap();
                    let what =
                        format!("{kind:?} nonblocking: {nonblocking} {chain:?} {}", bench.backend.name);
                    let waiter = std::thread::spawn(move || transfer.wait().unwrap());
                    Some((what, theirs, file, chain, waiter))
                })
                .collect();
            for _ in 0..20 {
                bench.copy(b"until all of them wait");
            }
            let used = cpu_of_half_a_second();
            assert!(used < Duration::from_millis(25), "{}: {used:?} to wait", bench.backend.name);
            for (what, theirs, file, chain, waiter) in waiting {
                File::from(theirs).write_all(&bytes).unwrap();
                let done = waiter.join().unwrap();
                oracle::check(&what, &chain, &bytes, &done, &contents(&file, done.bytes_out as usize));
            }
        });
    });
}

/// A connection whose own end has a message in its error queue that nobody reads.
fn with_error_queue() -> Option<(TcpStream, TcpStream)> {
    let (ours, mut theirs) = tcp4();
    let on = 1i32;
    // SAFETY: setsockopt reads an int.
    let set = unsafe {
        use std::os::fd::AsRawFd;
        let size = size_of::<i32>() as libc::socklen_t;
        libc::setsockopt(ours.as_raw_fd(), libc::SOL_SOCKET, libc::SO_ZEROCOPY, (&raw const on).cast(), size)
    };
    if set != 0 {
        return None;
    }
    const ZEROCOPY: SendFlags = SendFlags::from_bits_retain(libc::MSG_ZEROCOPY as u32);
    assert_eq!(send(&ours, b"zero copy", ZEROCOPY), Ok(9));
    theirs.read_exact(&mut [0; 9]).unwrap();
    let in_error = || {
        use rustix::event::{PollFd, PollFlags, poll};
        let mut fds = [PollFd::new(&ours, PollFlags::empty())];
        poll(&mut fds, Some(&rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap();
        fds[0].revents().contains(PollFlags::ERR)
    };
    assert!(eventually(in_error), "its notification comes");
    Some((ours, theirs))
}

#[test]
fn an_error_queue_that_nobody_reads_does_not_keep_the_engine_awake() {
    alone("odd::an_error_queue_that_nobody_reads_does_not_keep_the_engine_awake", || {
        for_each_backend(|bench| {
            let Some((ours, mut theirs)) = with_error_queue() else {
                return skip("an error queue", "this kernel has no MSG_ZEROCOPY");
            };
            for (chain, to) in [(vec![Op::Md5], Kind::Memory), (vec![], Kind::File)] {
                let sink = drain(to, 4000, None).unwrap();
                let transfer =
                    bench.session.request(Source::socket(&ours), chain.clone(), sink.sink).length(4000);
                let transfer = transfer.submit().unwrap();
                let waiting = std::thread::spawn(move || transfer.wait().unwrap());
                let used = cpu_of_half_a_second();
                assert!(
                    used < Duration::from_millis(25),
                    "{}: {used:?} to wait for bytes",
                    bench.backend.name
                );
                let bytes = data(4000);
                // In two pieces: it waits again between them.
                theirs.write_all(&bytes[..1000]).unwrap();
                std::thread::sleep(Duration::from_millis(20));
                theirs.write_all(&bytes[1000..]).unwrap();
                let mut done = waiting.join().unwrap();
                let memory = done.memory.take();
                let received = sink.rest.received(done.bytes_out, memory).unwrap();
                oracle::check("behind an error queue", &chain, &bytes, &done, &received);
            }
            let bytes = data(1 << 20).repeat(64);
            let transfer =
                bench.session.transfer(Source::memory(&bytes[..]), [], Sink::socket(&ours)).unwrap();
            let waiting = std::thread::spawn(move || transfer.wait().unwrap());
            // The connection's buffers fill up first.
            std::thread::sleep(Duration::from_millis(300));
            let used = cpu_of_half_a_second();
            assert!(used < Duration::from_millis(25), "{}: {used:?} to wait for room", bench.backend.name);
            let mut received = vec![0; bytes.len()];
            theirs.read_exact(&mut received).unwrap();
            assert!(received == bytes);
            waiting.join().unwrap();
            // One that is cancelled while it waits so ends at once.
            let transfer = bench.session.transfer(Source::socket(&ours), [], Sink::memory(10)).unwrap();
            for _ in 0..50 {
                bench.copy(b"until it waits for an event");
            }
            transfer.cancel();
            assert_eq!(transfer.wait().unwrap_err().status, Status::Cancelled);
        });
    });
}

/// /proc says of its files that they are empty.
#[test]
fn files_that_do_not_tell_their_size_are_read_to_their_end() {
    // Its environment is a file of many blocks, and does not change.
    let long: String = data(100_003).iter().map(|byte| char::from(b'a' + byte % 26)).collect();
    let mut child = Command::new("cat").env("LONG", long).stdin(Stdio::piped()).spawn().unwrap();
    let environment = format!("/proc/{}/environ", child.id());
    assert!(eventually(|| std::fs::read(&environment).is_ok_and(|all| all.len() > 100_000)));
    for_each_backend(|bench| {
        for name in ["/proc/version", "/proc/self/limits", &environment] {
            let expected = std::fs::read(name).unwrap();
            for (to, chain) in [Kind::File, Kind::Tcp4, Kind::Memory]
                .into_iter()
                .flat_map(|to| [(to, vec![]), (to, vec![Op::Md5])])
            {
                let file = File::open(name).unwrap();
                let sink = drain(to, expected.len() + 100, None).unwrap();
                let source = Source::file(&file, ..);
                let mut done =
                    bench.session.transfer(source, chain.clone(), sink.sink).unwrap().wait().unwrap();
                let memory = done.memory.take();
                let received = sink.rest.received(done.bytes_out, memory).unwrap();
                oracle::check(&format!("{name} to {to:?}"), &chain, &expected, &done, &received);
            }
            // A part of it, and more than it has.
            let file = File::open(name).unwrap();
            let part = Source::file(&file, 5..20);
            let done = bench.session.transfer(part, [Op::Sha1], Sink::memory(20)).unwrap().wait().unwrap();
            assert_eq!(done.memory.unwrap(), &expected[5..20]);
            let more = Source::file(&file, ..expected.len() as u64 + 9);
            let sink = Sink::memory(expected.len() + 9);
            let error = bench.session.transfer(more, [], sink).unwrap().wait().unwrap_err();
            let all = expected.len() as u64;
            assert_eq!(verdict(&error), (Status::EndOfSource, Stage::Source, None, all));
        }
        // What says that it has a page, and gives less, is no success.
        if let Ok(file) = File::open("/sys/kernel/mm/transparent_hugepage/enabled") {
            let error = bench
                .session
                .transfer(Source::file(&file, ..), [], Sink::memory(5000))
                .unwrap()
                .wait()
                .unwrap_err();
            assert_eq!((error.status, error.stage), (Status::EndOfSource, Stage::Source));
        }
    });
    drop(child.stdin.take());
    child.wait().unwrap();
}

#[test]
fn a_descriptor_opened_with_o_direct_is_read_and_written_at_any_length() {
    for_each_backend(|bench| {
        let bytes = data(12 * BLOCK + 77);
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, &bytes).unwrap();
        let direct = libc::O_DIRECT;
        let Ok(file) = File::options().read(true).write(true).custom_flags(direct).open(&path) else {
            return skip("O_DIRECT", "the file system has none");
        };
        for range in [0..bytes.len(), 4096..4096 + BLOCK, 1..2, 513..5 * BLOCK + 9, 8 * BLOCK..bytes.len()] {
            for (to, chain) in [(Kind::Memory, vec![Op::Md5]), (Kind::Tcp4, vec![]), (Kind::File, vec![])] {
                let sink = drain(to, range.len(), None).unwrap();
                let source = Source::file(&file, range.start as u64..range.end as u64);
                let mut done =
                    bench.session.transfer(source, chain.clone(), sink.sink).unwrap().wait().unwrap();
                let memory = done.memory.take();
                let received = sink.rest.received(done.bytes_out, memory).unwrap();
                oracle::check(
                    &format!("{range:?} to {to:?}"),
                    &chain,
                    &bytes[range.clone()],
                    &done,
                    &received,
                );
                let past = done.path.has(dcs_abi::result::PATH_SOURCE_DIRECT);
                assert_eq!(
                    past,
                    range.start % 4096 == 0,
                    "past the page cache, as the descriptor is: {range:?}"
                );
            }
        }
        for (at, length) in [(0, bytes.len()), (4096, 4096), (4096, 5000), (7, 1), (100, 2 * BLOCK)] {
            std::fs::write(&path, vec![0xee; 20 * BLOCK]).unwrap();
            let source = Source::memory(&bytes[..length]);
            bench.session.transfer(source, [], Sink::file(&file, at as u64)).unwrap().wait().unwrap();
            let now = contents(&File::open(&path).unwrap(), 20 * BLOCK);
            assert!(now[at..at + length] == bytes[..length], "{at} {length}");
            assert!(now[..at].iter().chain(&now[at + length..]).all(|byte| *byte == 0xee), "{at} {length}");
        }
        assert!(fcntl_getfl(&file).unwrap().contains(OFlags::DIRECT), "the caller's descriptor is as it was");
    });
}

/// pwrite(2) to a descriptor with O_APPEND writes at the end, whatever its offset.
#[test]
fn o_append_that_comes_late_moves_nothing() {
    for_each_backend(|bench| {
        let file = file_with(&[b'.'; 100]);
        let handle = Handle::new(&file).unwrap();
        set_flag(&file, OFlags::APPEND);
        let late = bench
            .session
            .transfer(Source::memory(&b"xyz"[..]), [], Sink::handle(&handle, 5))
            .unwrap()
            .wait()
            .unwrap_err();
        assert_eq!(verdict(&late), (Status::UnsupportedEndpoint, Stage::Destination, None, 0));

        // Later still: half of it is there.
        let file = file_with(&[b'.'; 100]);
        let noappend = rustix::io::ReadWriteFlags::from_bits_retain(0x20);
        if rustix::io::pwritev2(&file, &[std::io::IoSlice::new(b".")], 0, noappend).is_err() {
            return skip("RWF_NOAPPEND", "Linux 6.9 has it");
        }
        for chain in [vec![], vec![Op::Md5]] {
            let (mut writer, reader) = pipe();
            let request = bench.session.request(Source::fd(&reader), chain, Sink::file(&file, 10)).length(20);
            let transfer = request.submit().unwrap();
            writer.write_all(b"0123456789").unwrap();
            for _ in 0..5 {
                bench.copy(b"until the first half may be written");
            }
            set_flag(&file, OFlags::APPEND);
            writer.write_all(b"abcdefghij").unwrap();
            let wrote = transfer.wait();
            let now = contents(&file, 100);
            assert_eq!(file.metadata().unwrap().len(), 100, "nothing at its end");
            assert!(now[..10].iter().chain(&now[30..]).all(|byte| *byte == b'.'));
            match wrote {
                Ok(_) => assert_eq!(&now[10..30], b"0123456789abcdefghij"),
                // splice(2) refuses it, and says so.
                Err(error) => assert_eq!(error.stage, Stage::Destination),
            }
            fcntl_setfl(&file, fcntl_getfl(&file).unwrap() - OFlags::APPEND).unwrap();
            file.write_all_at(&[b'.'; 100], 0).unwrap();
        }
    });
}

#[test]
fn seals_of_memory_files_are_kept_and_told() {
    let sealed = |seals| {
        let file = File::from(
            rustix::fs::memfd_create("sealed", MemfdFlags::ALLOW_SEALING | MemfdFlags::CLOEXEC).unwrap(),
        );
        file.write_all_at(&data(2 * BLOCK), 0).unwrap();
        rustix::fs::fcntl_add_seals(&file, seals).unwrap();
        file
    };
    for_each_backend(|bench| {
        for chain in [vec![], vec![Op::Md5]] {
            let file = sealed(SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK);
            let done = bench
                .session
                .transfer(Source::file(&file, ..), chain.clone(), Sink::memory(2 * BLOCK))
                .unwrap()
                .wait()
                .unwrap();
            assert!(done.memory.unwrap() == data(2 * BLOCK));
            let from = file_with(&data(9));
            let error = bench
                .session
                .transfer(Source::file(&from, ..), chain.clone(), Sink::file(&file, 0))
                .unwrap()
                .wait()
                .unwrap_err();
            assert_eq!(verdict(&error), (Status::AccessDenied, Stage::Destination, None, 0));
            let file = sealed(SealFlags::GROW);
            let from = file_with(&data(3 * BLOCK));
            let error = bench
                .session
                .transfer(Source::file(&from, ..), chain.clone(), Sink::file(&file, 0))
                .unwrap()
                .wait()
                .unwrap_err();
            assert_eq!((error.status, error.stage), (Status::AccessDenied, Stage::Destination));
            let there = error.completion.bytes_out as usize;
            assert!(there <= 2 * BLOCK && contents(&file, there) == data(3 * BLOCK)[..there]);
        }
    });
}

/// The part of a packet for which a read has no room is lost (pipe2(2), O_DIRECT): blocks end where packets
/// don't.
#[test]
fn a_pipe_of_packets_gives_all_of_them() {
    for_each_backend(|bench| {
        let bytes = data(4 * BLOCK + 5);
        for (to, chain) in [Kind::File, Kind::Memory, Kind::Tcp4, Kind::Pipe]
            .into_iter()
            .flat_map(|to| [(to, vec![]), (to, vec![Op::Md5])])
        {
            for (packet, length) in [(3000, bytes.len()), (4096, bytes.len()), (700, 3 * BLOCK + 11)] {
                let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::DIRECT).unwrap();
                let copy = bytes.clone();
                let writing = std::thread::spawn(move || {
                    let mut writer = File::from(writer);
                    copy.chunks(packet)
                        .for_each(|packet| assert_eq!(writer.write(packet).unwrap(), packet.len()));
                });
                let sink = drain(to, bytes.len(), None).unwrap();
                let request = bench.session.request(Source::fd(&reader), chain.clone(), sink.sink);
                let mut done = request.length(length as u64).submit().unwrap().wait().unwrap();
                let memory = done.memory.take();
                let received = sink.rest.received(done.bytes_out, memory).unwrap();
                let what = format!("packets of {packet} to {to:?}, {}", bench.backend.name);
                oracle::check(&what, &chain, &bytes[..length], &done, &received);
                // What was not asked for is there still.
                let rest = read_behind(reader).join().unwrap();
                writing.join().unwrap();
                assert!(rest == bytes[length..], "{what}: {} bytes are left", rest.len());
            }
        }
    });
}

/// A socket of MPTCP has no zero copy: where nobody demands it, bytes go without.
#[test]
fn mptcp_is_a_stream_like_any_other() {
    use rustix::net::{AddressFamily, SocketType, socket};
    let mptcp = || socket(AddressFamily::INET, SocketType::STREAM, Some(rustix::net::ipproto::MPTCP));
    let Some(address) = crate::ends::own_address() else {
        return skip("MPTCP", "this machine has no address but its loopback's");
    };
    let Ok(listener) = mptcp() else { return skip("MPTCP", "this kernel has none") };
    let address = std::net::SocketAddr::from((address, 0));
    rustix::net::bind(&listener, &address).unwrap();
    rustix::net::listen(&listener, 8).unwrap();
    let address = rustix::net::getsockname(&listener).unwrap();
    for_each_backend(|bench| {
        // Blocks that are worth a send without a copy.
        let engine = bench.backend.builder().block_size(64 << 10).start().unwrap();
        let session = engine.session().unwrap();
        for (plain_peer, mode) in
            [(false, Mode::Auto), (true, Mode::Auto), (false, Mode::Off), (false, Mode::On)]
        {
            for chain in [vec![], vec![Op::Md5]] {
                let peer = match plain_peer {
                    true => socket(AddressFamily::INET, SocketType::STREAM, None).unwrap(),
                    false => mptcp().unwrap(),
                };
                rustix::net::connect(&peer, &address).unwrap();
                let ours = rustix::net::accept(&listener).unwrap();
                let bytes = data(200_003);
                // The other way first.
                let file = file_with(&[]);
                let request = session.request(Source::fd(&ours), chain.clone(), Sink::file(&file, 0));
                let receiving = request.length(bytes.len() as u64).submit().unwrap();
                let writer = write_behind(peer.try_clone().unwrap(), bytes.clone());
                let done = receiving.wait().unwrap();
                writer.join().unwrap();
                oracle::check("from MPTCP", &chain, &bytes, &done, &contents(&file, bytes.len()));
                let reader = read_behind(peer);
                let sink = Sink::socket(&ours).zero_copy(mode);
                let wrote = session.transfer(Source::memory(&bytes[..]), chain.clone(), sink).unwrap().wait();
                drop(ours);
                let received = reader.join().unwrap();
                match wrote {
                    Ok(done) => oracle::check(&format!("MPTCP {mode:?}"), &chain, &bytes, &done, &received),
                    Err(error) => {
                        assert_eq!((error.status, mode), (Status::PathUnavailable, Mode::On));
                        assert!(received.is_empty());
                    }
                }
            }
        }
    });
}

/// A reader gets the bytes that the transfer has read, whatever is written to the file once the transfer is
/// done, before the reader has read a byte.
#[test]
fn what_was_digested_is_what_the_reader_gets_though_the_file_changes_afterwards() {
    for_each_backend(|bench| {
        let bytes = data(3 * BLOCK + 5);
        for (kind, nonblocking) in
            [Kind::Tcp4, Kind::Unix, Kind::Pipe].into_iter().flat_map(|kind| [(kind, true), (kind, false)])
        {
            for (chain, promised) in [
                (vec![], false),
                (vec![Op::Md5], false),
                (vec![Op::Sha256, Op::Crc32c], false),
                (vec![Op::Aes256Ctr { key: [1; 32], counter: [2; 16] }], true),
            ] {
                let file = disk_file(&bytes);
                let (ours, theirs) = stream(kind).unwrap();
                if nonblocking {
                    set_flag(&ours, OFlags::NONBLOCK);
                }
                let source = Source::file(&file, ..);
                // The promise is broken here: it changes nothing where the bytes change on their way.
                let source = if promised { source.immutable() } else { source };
                let done =
                    bench.session.transfer(source, chain.clone(), Sink::fd(&ours)).unwrap().wait().unwrap();
                file.write_all_at(&vec![b'X'; bytes.len()], 0).unwrap();
                file.set_len(1).unwrap();
                drop(ours);
                let received = read_behind(theirs).join().unwrap();
                oracle::check(
                    &format!("{kind:?} nonblocking: {nonblocking}"),
                    &chain,
                    &bytes,
                    &done,
                    &received,
                );
            }
        }
    });
}

/// Reading less than a packet needs a descriptor; where none is left nothing is read, and nothing lost.
#[test]
fn a_packet_stays_whole_where_no_descriptor_is_left() {
    alone("odd::a_packet_stays_whole_where_no_descriptor_is_left", || {
        let limit = |soft: Option<u64>| {
            let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
            // SAFETY: the structure is valid for reads and writes; the limit is this process's own.
            unsafe {
                assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit), 0);
                let before = limit.rlim_cur;
                limit.rlim_cur = soft.unwrap_or(before);
                assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &limit), 0);
                before
            }
        };
        for_each_backend(|bench| {
            let packet = data(3000);
            let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::DIRECT).unwrap();
            assert_eq!(File::from(writer).write(&packet).unwrap(), packet.len());
            let handle = Handle::new(&reader).unwrap();
            // Nothing can be opened any more.
            let before = limit(Some(0));
            let request = bench.session.request(Source::handle(&handle, ..), [], Sink::memory(1000));
            let result = request.length(1000).submit().map(dcs::Transfer::wait);
            limit(Some(before));
            drop(handle);
            let error = result.unwrap().unwrap_err();
            let what = format!("{}: {error}", bench.backend.name);
            assert_eq!((error.stage, error.errno), (Stage::Source, libc::EMFILE), "{what}");
            assert_eq!(error.completion.bytes_out, 0, "{what}");
            assert!(error.advice().contains("ulimit -n"), "{}", error.advice());
            assert!(read_behind(reader).join().unwrap() == packet, "{what}");
        });
    });
}
