//! Which way bytes go: page cache or not, zero copy, the kernel's own copy. It is as asked, it is said, and
//! the bytes are the same.

use crate::ends::{
    Kind, Rest, contents, disk_file, drain, feed, file_with, read_behind, stream, tcp4, write_behind,
};
use crate::oracle;
use crate::rig::{BLOCK, Bench, data, for_each_backend, is_root, skip, tool};
use dcs::{Mode, Op, Sink, Source, Stage, Status};
use dcs_abi::result::*;
use std::fs::File;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;

fn set_nonblocking(fd: impl AsFd, on: bool) {
    use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
    let flags = fcntl_getfl(&fd).unwrap();
    let wanted = if on { flags | OFlags::NONBLOCK } else { flags - OFlags::NONBLOCK };
    fcntl_setfl(fd, wanted).unwrap();
}

/// Disk to disk, with this cache mode on both sides; tells the path.
fn copy(bench: &Bench, cache: Mode, extents: &[(u64, u64)], to: u64, chain: &[Op]) -> dcs::completion::Path {
    let bytes = data(12 * BLOCK + 77);
    let file = disk_file(&bytes);
    let out = disk_file(&[]);
    let source = Source::extents(&file, extents).cache(cache);
    let transfer = bench.session.transfer(source, chain.to_vec(), Sink::file(&out, to).cache(cache)).unwrap();
    let done = transfer.wait().unwrap_or_else(|error| panic!("{cache:?} {extents:?}: {error}"));
    let taken =
        |(offset, length): &(u64, u64)| bytes[*offset as usize..(*offset + *length) as usize].to_vec();
    let input: Vec<u8> = extents.iter().flat_map(taken).collect();
    let mut received = contents(&out, (to + done.bytes_out) as usize);
    assert!(received.iter().take(to as usize).all(|byte| *byte == 0));
    received.drain(..to as usize);
    assert_eq!(out.metadata().unwrap().len(), to + done.bytes_out, "not a byte more");
    oracle::check(&format!("{cache:?} {extents:?}"), chain, &input, &done, &received);
    done.path
}

#[test]
fn through_the_page_cache_or_past_it() {
    let whole = [(0, 12 * BLOCK as u64 + 77)];
    let aligned = [(4096, 8 * BLOCK as u64)];
    let unaligned = [(1, 3 * BLOCK as u64), (5 * BLOCK as u64 + 513, 4096 * 5), (8192, 4097), (100, 1)];
    for_each_backend(|bench| {
        for extents in [&whole[..], &aligned, &unaligned] {
            for to in [0, 4096, 4096 * 3 + 512, 7] {
                for chain in [vec![], vec![Op::Sha256]] {
                    let path = copy(bench, Mode::On, extents, to, &chain);
                    assert!(path.has(PATH_SOURCE_CACHED | PATH_DESTINATION_CACHED), "{path:?}");
                    assert!(path.0 & (PATH_SOURCE_DIRECT | PATH_DESTINATION_DIRECT) == 0, "{path:?}");
                    assert_eq!(path.has(PATH_KERNEL_COPY), chain.is_empty(), "{path:?}");
                    let path = copy(bench, Mode::Off, extents, to, &chain);
                    let aligned = extents[0].0 % 4096 == 0;
                    assert_eq!(path.has(PATH_SOURCE_DIRECT), aligned || extents.len() > 1, "{path:?}");
                    assert!(path.has(PATH_SOURCE_CACHED) != aligned, "{path:?}");
                    assert_eq!(path.has(PATH_DESTINATION_DIRECT), to % 4096 == 0, "{path:?}");
                    assert!(!path.has(PATH_KERNEL_COPY), "{path:?}");
                    copy(bench, Mode::Auto, extents, to, &chain);
                }
            }
        }
    });
}

#[test]
fn direct_io_where_a_file_is_in_the_cache_and_dirty_is_never_stale() {
    for_each_backend(|bench| {
        let file = disk_file(&vec![0; 4 * BLOCK]);
        for round in 1..6u8 {
            file.write_all_at(&vec![round; 4 * BLOCK], 0).unwrap();
            let source = Source::file(&file, ..).cache(Mode::Off);
            let done = bench.session.transfer(source, [], Sink::memory(4 * BLOCK)).unwrap().wait().unwrap();
            assert!(done.memory.unwrap().iter().all(|byte| *byte == round));
            let back = vec![round | 0x80; 3 * BLOCK + 9];
            let sink = Sink::file(&file, 0).cache(Mode::Off);
            bench.session.transfer(Source::memory(back.clone()), [], sink).unwrap().wait().unwrap();
            let mut now = contents(&file, 4 * BLOCK);
            assert!(now[..back.len()] == back);
            assert!(now.split_off(back.len()).iter().all(|byte| *byte == round), "beside it nothing changed");
        }
    });
}

/// Pieces of one page that go directly and through the cache must not undo each other.
#[test]
fn extents_that_share_pages_are_written_whole() {
    for_each_backend(|bench| {
        for round in 0..6 {
            let bytes = data(16 * BLOCK);
            let out = disk_file(&vec![0xee; 20 * BLOCK]);
            // Each extent but the last ends 512 bytes into the page in which the next one begins.
            let piece = (BLOCK + 512) as u64;
            let extents: Vec<(u64, u64)> = (0..14).map(|at| (at * piece + round * 512, piece)).collect();
            let sink = Sink::extents(&out, &extents).cache(Mode::Off);
            let length = 14 * piece as usize;
            let source = Source::memory(&bytes[..length]);
            bench.session.transfer(source, [], sink).unwrap().wait().unwrap();
            let written = contents(&out, 20 * BLOCK);
            let start = round as usize * 512;
            assert!(written[start..start + length] == bytes[..length], "round {round}");
            assert!(written[start + length..].iter().all(|byte| *byte == 0xee));
        }
    });
}

#[test]
fn holes_and_files_in_memory() {
    for_each_backend(|bench| {
        let sparse = disk_file(b"head");
        sparse.set_len(5 * BLOCK as u64 + 3).unwrap();
        sparse.write_all_at(b"tail", 5 * BLOCK as u64 - 1).unwrap();
        let tmpfs = tempfile::tempfile_in("/dev/shm").unwrap();
        for cache in [Mode::Auto, Mode::On, Mode::Off] {
            for chain in [vec![], vec![Op::Md5]] {
                let input = contents(&sparse, 5 * BLOCK + 3);
                let source = Source::file(&sparse, ..).cache(cache);
                let done =
                    bench.session.transfer(source, chain.clone(), Sink::file(&tmpfs, 0)).unwrap().wait();
                oracle::check("sparse", &chain, &input, &done.unwrap(), &contents(&tmpfs, input.len()));
                // O_DIRECT on tmpfs: newer kernels take it.
                let (source, sink) = (Source::file(&tmpfs, ..).cache(cache), Sink::memory(input.len()));
                match bench.session.transfer(source, chain.clone(), sink).unwrap().wait() {
                    Ok(mut done) => {
                        let received = done.memory.take().unwrap();
                        oracle::check("tmpfs", &chain, &input, &done, &received);
                        assert_eq!(done.path.has(PATH_SOURCE_DIRECT), cache == Mode::Off);
                    }
                    Err(error) => {
                        assert_eq!((error.status, error.stage), (Status::PathUnavailable, Stage::Source));
                        assert_eq!(cache, Mode::Off);
                    }
                }
            }
        }
    });
}

/// Through a chain or not, to a socket with zero copy; tells the path or the failure.
fn send(bench: &Bench, ours: OwnedFd, theirs: OwnedFd, mode: Mode, chain: &[Op]) -> Result<u32, Status> {
    let bytes = data(7 * BLOCK + 1);
    let reader = read_behind(theirs);
    let sink = Sink::socket(&ours).zero_copy(mode);
    let result = bench.session.transfer(Source::memory(&bytes[..]), chain.to_vec(), sink).unwrap().wait();
    drop(ours);
    let received = reader.join().unwrap();
    match result {
        Ok(done) => {
            oracle::check("zero copy", chain, &bytes, &done, &received);
            Ok(done.path.0)
        }
        Err(error) => {
            assert_eq!((error.stage, received.len()), (Stage::Destination, 0));
            Err(error.status)
        }
    }
}

#[test]
fn zero_copy_is_claimed_only_where_the_kernel_did_not_copy() {
    for_each_backend(|bench| {
        for chain in [vec![], vec![Op::Md5]] {
            for (nonblocking, mode) in
                [(false, Mode::On), (true, Mode::On), (false, Mode::Auto), (false, Mode::Off)]
            {
                let (ours, theirs) = tcp4();
                ours.set_nonblocking(nonblocking).unwrap();
                match send(bench, ours.into(), theirs.into(), mode, &chain) {
                    // Loopback: the kernel copies when the peer receives.
                    Ok(path) => {
                        assert!(path & PATH_ZERO_COPY == 0, "{path:#x}");
                        assert_eq!(path & PATH_IO_URING != 0, mode == Mode::On);
                    }
                    Err(status) => {
                        assert_eq!((status, mode), (Status::PathUnavailable, Mode::On));
                        assert!(!bench.backend.has_ring());
                    }
                }
            }
            let (ours, theirs) = stream(Kind::Unix).unwrap();
            assert_eq!(send(bench, ours, theirs, Mode::On, &chain), Err(Status::PathUnavailable));
        }
        let file = file_with(&[]);
        let sink = Sink::file(&file, 0).zero_copy(Mode::On);
        let error = bench.session.transfer(Source::memory(&b"x"[..]), [], sink).unwrap().wait().unwrap_err();
        assert_eq!((error.status, error.stage), (Status::PathUnavailable, Stage::Destination));
    });
}

/// An immutable file through digests to a socket that does not block goes from the page cache; all else from
/// blocks.
#[test]
fn an_immutable_file_is_sent_from_the_page_cache() {
    let cipher = Op::Aes256Ctr { key: [1; 32], counter: [2; 16] };
    let extents = [(3, 2 * BLOCK as u64 + 9), (5 * BLOCK as u64, 3 * BLOCK as u64)];
    let cases = [
        (true, vec![Op::Md5], Mode::Auto, true),
        (true, vec![Op::Sha256, Op::Crc32c], Mode::Auto, true),
        (true, vec![Op::Md5, cipher], Mode::Auto, false),
        (true, vec![Op::Md5], Mode::Off, false),
        (false, vec![Op::Md5], Mode::Auto, false),
    ];
    for_each_backend(|bench| {
        let bytes = data(9 * BLOCK);
        let file = disk_file(&bytes);
        let input: Vec<u8> = extents
            .iter()
            .flat_map(|&(offset, length)| bytes[offset as usize..(offset + length) as usize].to_vec())
            .collect();
        for (nonblocking, chain, mode, again) in &cases {
            for immutable in [true, false] {
                for prefix in [&b""[..], b"HTTP/1.1 200 OK\r\n\r\n"] {
                    let (ours, theirs) = tcp4();
                    ours.set_nonblocking(*nonblocking).unwrap();
                    let reader = read_behind(theirs.into());
                    let source = Source::extents(&file, &extents).zero_copy(*mode);
                    let source = if immutable { source.immutable() } else { source };
                    let request = bench.session.request(source, chain.clone(), Sink::socket(&ours));
                    let done = request.prefix(prefix).submit().unwrap().wait().unwrap();
                    drop(ours);
                    let all = [prefix, &input].concat();
                    oracle::check("immutable", chain, &all, &done, &reader.join().unwrap());
                    assert_eq!(
                        done.path.has(PATH_ZERO_COPY),
                        *again && immutable,
                        "{:?} {chain:?}",
                        done.path
                    );
                }
            }
        }
    });
}

#[test]
fn an_immutable_file_that_is_cut_short_all_the_same() {
    for_each_backend(|bench| {
        let file = disk_file(&data(64 * BLOCK));
        let (ours, theirs) = tcp4();
        ours.set_nonblocking(true).unwrap();
        let source = Source::file(&file, ..).immutable();
        let transfer = bench.session.transfer(source, [Op::Md5], Sink::socket(&ours)).unwrap();
        file.set_len(3).unwrap();
        let reader = read_behind(theirs.into());
        // Whether it had been read by then is open, and what was read is sent: but it ends, and tells.
        match transfer.wait() {
            Ok(done) => assert_eq!(done.bytes_out, 64 * BLOCK as u64),
            Err(error) => {
                assert!(matches!(error.status, Status::EndOfSource | Status::OutOfRange), "{error}");
            }
        }
        drop(ours);
        assert!(reader.join().unwrap().len() <= 64 * BLOCK);
    });
}

/// A network namespace with one end of a veth pair; gone when dropped.
struct Namespace {
    name: String,
    /// The first three bytes of the addresses: its own, for the one before may not be quite gone.
    network: String,
}

impl Namespace {
    fn new() -> Result<Namespace, String> {
        if !is_root() {
            return Err("not root".into());
        }
        let (name, network) =
            (format!("dcs{}", std::process::id()), format!("198.18.{}", std::process::id() % 256));
        tool("ip", &["netns", "add", &name])?;
        let space = Namespace { name, network };
        let Namespace { name, network } = &space;
        let steps = [
            format!("link add {name}a type veth peer name {name}b netns {name}"),
            format!("addr add {network}.1/30 dev {name}a"),
            format!("link set {name}a up"),
            format!("-n {name} addr add {network}.2/30 dev {name}b"),
            format!("-n {name} link set {name}b up"),
        ];
        for step in steps {
            tool("ip", &step.split(' ').collect::<Vec<_>>())?;
        }
        Ok(space)
    }

    /// A listener inside.
    fn listen(&self) -> TcpListener {
        let (path, address) = (format!("/run/netns/{}", self.name), format!("{}.2:0", self.network));
        let enter = move || {
            use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
            let space = File::open(path).unwrap();
            move_into_link_name_space(space.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            TcpListener::bind(address).unwrap()
        };
        std::thread::spawn(enter).join().unwrap()
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = tool("ip", &["link", "del", &format!("{}a", self.name)]);
        let _ = tool("ip", &["netns", "del", &self.name]);
    }
}

#[test]
fn zero_copy_across_network_namespaces() {
    let space = match Namespace::new() {
        Ok(space) => space,
        Err(why) => return skip("network namespaces", &why),
    };
    let listener = space.listen();
    for_each_backend(|bench| {
        for (mode, chain) in [
            (Mode::Auto, vec![]),
            (Mode::Auto, vec![Op::Sha1]),
            (Mode::On, vec![Op::Sha1]),
            (Mode::Off, vec![Op::Sha1]),
        ] {
            let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let theirs = listener.accept().unwrap().0;
            let result = send(bench, ours.into(), theirs.into(), mode, &chain);
            match result {
                // A veth pair hands the sender's pages to a receiver of the same kernel, which must copy
                // them.
                Ok(path) => assert!(path & PATH_ZERO_COPY == 0, "{mode:?} {path:#x}"),
                Err(status) => {
                    assert_eq!((status, mode), (Status::PathUnavailable, Mode::On));
                    assert!(!bench.backend.has_ring());
                }
            }
        }
    });
}

/// Where an empty chain is left to the kernel: sources by destinations.
#[test]
fn the_kernels_own_copy_where_it_has_one() {
    use Kind::*;
    let sources = [File, Tcp4, Tcp6, Unix, Pipe, Fifo, Memory];
    let sinks = [File, Tcp4, Tcp6, Unix, Pipe, Fifo, Memory, Device];
    let is_socket = |kind| matches!(kind, Tcp4 | Tcp6 | Unix);
    for_each_backend(|bench| {
        let input = data(9 * BLOCK + 5);
        for (from, to) in sources.iter().flat_map(|from| sinks.map(|to| (*from, to))) {
            for (nonblocking, mode, promised) in [
                (true, Mode::Auto, true),
                (true, Mode::Auto, false),
                (false, Mode::Auto, true),
                (true, Mode::Off, true),
            ] {
                let (Some(feed), Some(drain)) = (feed(from, &input, None), drain(to, input.len(), None))
                else {
                    skip(&format!("{from:?} to {to:?}"), "not available on this machine");
                    continue;
                };
                let (source, feeder) = feed.split();
                let mut sink = drain.sink;
                if let Rest::Stream(ours, _) = &drain.rest {
                    // A sink looks at its socket when it is made.
                    set_nonblocking(ours, nonblocking);
                    sink = Sink::fd(ours);
                }
                let source = if promised { source.immutable() } else { source };
                let transfer = bench.session.transfer(source.zero_copy(mode), [], sink).unwrap();
                let mut done = transfer.wait().unwrap();
                let memory = done.memory.take();
                let what = format!(
                    "{from:?} to {to:?}, nonblocking: {nonblocking}, {mode:?}, immutable: {promised}: {:?}",
                    done.path
                );
                let received = drain.rest.received(done.bytes_out, memory).unwrap_or(input.clone());
                oracle::check(&what, &[], &input, &done, &received);
                let kernel_can = from != Memory && !matches!(to, Memory | Device);
                let waits = is_socket(to) && !nonblocking;
                // Pages of a file are lent out where nobody will write to them.
                let lends = from == File && !matches!(to, File);
                let expected = kernel_can && !waits && mode == Mode::Auto && (promised || !lends);
                assert_eq!(done.path.has(PATH_KERNEL_COPY), expected, "{what}");
                feeder.into_iter().for_each(|feeder| feeder.join().unwrap());
            }
        }
    });
}

/// The owner of a socket makes it block while the kernel copies to it: the engine does not wait for the peer
/// then.
#[test]
fn a_socket_that_begins_to_block_does_not_stop_the_engine() {
    for_each_backend(|bench| {
        let input = data(600 * BLOCK);
        let from_file = |input: &[u8]| (Source::file(&file_with(input), ..).immutable(), None);
        let from_socket = |input: &[u8]| {
            let (theirs, ours) = tcp4();
            (Source::socket(&ours), Some(write_behind(theirs.into(), input.to_vec())))
        };
        for socket in [false, true] {
            let (source, writer) = if socket { from_socket(&input) } else { from_file(&input) };
            let (ours, theirs) = tcp4();
            ours.set_nonblocking(true).unwrap();
            let transfer = bench.session.transfer(source, [], Sink::socket(&ours)).unwrap();
            for _ in 0..20 {
                bench.copy(b"until the peer's buffers are full");
            }
            ours.set_nonblocking(false).unwrap();
            let (go, may_read) = std::sync::mpsc::channel();
            let reader = std::thread::spawn(move || {
                let told = may_read.recv_timeout(std::time::Duration::from_secs(20));
                (told, read_behind(theirs.into()).join().unwrap())
            });
            bench.copy(b"the engine does something else");
            go.send(()).unwrap();
            let done = transfer.wait().unwrap();
            drop(ours);
            let (told, read) = reader.join().unwrap();
            assert_eq!(told, Ok(()), "{}: it waited for the peer", bench.backend.name);
            oracle::check("blocks", &[], &input, &done, &read);
            writer.into_iter().for_each(|writer| writer.join().unwrap());
        }
    });
}

#[test]
fn a_file_onto_itself() {
    for_each_backend(|bench| {
        let bytes = data(10 * BLOCK);
        let file = file_with(&bytes);
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
        let again = File::options().read(true).write(true).open(path).unwrap();
        let all = 10 * BLOCK as u64;
        let cipher = || Op::Aes256Ctr { key: [1; 32], counter: [2; 16] };
        let run = |source, chain: Vec<Op>, sink| bench.session.transfer(source, chain, sink).unwrap().wait();
        // In place, and to a place that is not read, is sound.
        run(Source::file(&file, ..), vec![cipher()], Sink::file(&again, 0)).unwrap();
        run(Source::file(&again, ..), vec![cipher()], Sink::file(&file, 0)).unwrap();
        run(Source::file(&again, ..all / 2), vec![], Sink::file(&file, all / 2)).unwrap();
        let half = &bytes[..5 * BLOCK];
        assert!(contents(&file, 10 * BLOCK) == [half, half].concat());
        // A place that is still to be read would be lost.
        let overlapping = [
            run(Source::file(&file, ..all / 2), vec![], Sink::file(&again, 100)),
            run(Source::file(&file, 100..), vec![Op::Md5], Sink::file(&again, 0)),
            run(Source::file(&file, ..), vec![Op::Gzip { level: 1 }], Sink::file(&again, 0)),
            run(Source::extents(&file, &[(8192, 4096), (0, 4096)]), vec![], Sink::file(&again, 0)),
        ];
        for result in overlapping {
            let error = result.unwrap_err();
            assert_eq!((error.status, error.stage), (Status::Overlap, Stage::Destination));
            let (said, advice) = (error.to_string(), error.advice());
            assert!(said.contains("overlaps the source") && said.contains("0 bytes had been"), "{said}");
            assert!(advice.contains("ranges that do not overlap"), "{advice}");
        }
        assert!(contents(&file, 10 * BLOCK) == [half, half].concat(), "nothing was written");
    });
}
