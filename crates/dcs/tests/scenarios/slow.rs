//! Peers that are slow, odd or gone; sources that end early or change; prefixes and lengths.

use crate::ends::{Kind, contents, drain, fifo, file_with, pipe, read_behind, stream, tcp4, write_behind};
use crate::oracle;
use crate::rig::{BLOCK, Bench, data, for_each_backend, verdict};
use dcs::{Op, Sink, Source, Stage, Status, page_cache};
use rustix::fs::{OFlags, fcntl_getfl};
use std::fs::File;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

fn chains() -> [Vec<Op>; 2] {
    [vec![], vec![Op::Md5, Op::Crc32c]]
}

/// A connection with small buffers. (Smaller ones for what is received would make TCP wait for its timers.)
fn narrow() -> (TcpStream, TcpStream) {
    use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_send_buffer_size};
    let (one, other) = tcp4();
    for end in [&one, &other] {
        set_socket_send_buffer_size(end, 1).unwrap();
        set_socket_recv_buffer_size(end, 20_000).unwrap();
    }
    (one, other)
}

/// Reads to the end in odd pieces with pauses.
fn read_oddly(mut end: impl Read + Send + 'static) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let (mut bytes, mut piece, mut size) = (Vec::new(), vec![0; 5000], 1);
        loop {
            match end.read(&mut piece[..size]) {
                Ok(0) => return bytes,
                Ok(count) => bytes.extend_from_slice(&piece[..count]),
                Err(_) => return bytes,
            }
            size = (size * 7 + 3) % 4999 + 1;
            if size % 5 == 0 {
                std::thread::sleep(Duration::from_micros(300));
            }
        }
    })
}

#[test]
fn peers_that_read_and_write_in_odd_pieces() {
    for_each_backend(|bench| {
        for (chain, nonblocking) in chains().iter().flat_map(|chain| [(chain, false), (chain, true)]) {
            let input = data(11 * BLOCK + 3);
            let ((mut theirs, ours), (to, end)) = (narrow(), narrow());
            for socket in [&ours, &to] {
                socket.set_nonblocking(nonblocking).unwrap();
            }
            let flags = [&ours, &to].map(|socket| fcntl_getfl(socket).unwrap());
            let copy = input.clone();
            let writer = std::thread::spawn(move || {
                for piece in copy.chunks(3333) {
                    theirs.write_all(piece).unwrap();
                    std::thread::sleep(Duration::from_micros(200));
                }
            });
            let reader = read_oddly(end);
            let transfer =
                bench.session.transfer(Source::socket(&ours), chain.clone(), Sink::socket(&to)).unwrap();
            let done = transfer.wait().unwrap();
            writer.join().unwrap();
            assert_eq!([&ours, &to].map(|socket| fcntl_getfl(socket).unwrap()), flags, "as they were");
            drop(to);
            oracle::check(bench.backend.name, chain, &input, &done, &reader.join().unwrap());
        }
    });
}

#[test]
fn pipes_that_are_nearly_full() {
    for_each_backend(|bench| {
        for chain in chains() {
            for make in [pipe, fifo] {
                let input = data(40_000);
                let ((mut theirs, ours), (to, end)) = (make(), make());
                rustix::pipe::fcntl_setpipe_size(&to, 4096).unwrap();
                (&to).write_all(&[b'x'; 100]).unwrap();
                theirs.write_all(&input).unwrap();
                drop(theirs);
                let reader = read_behind(end.into());
                let done = bench.session.transfer(Source::fd(&ours), chain.clone(), Sink::fd(&to)).unwrap();
                let done = done.wait().unwrap();
                assert!(fcntl_getfl(&to).unwrap().contains(OFlags::WRONLY));
                drop(to);
                oracle::check("pipes", &chain, &input, &done, &reader.join().unwrap()[100..]);
            }
        }
    });
}

/// A file that loses its end while it is sent: what is there is delivered, and the rest is said to be
/// missing.
#[test]
fn a_file_that_shrinks() {
    for_each_backend(|bench| {
        for (chain, nonblocking) in chains().iter().flat_map(|chain| [(chain, false), (chain, true)]) {
            let input = data(700 * BLOCK);
            let file = file_with(&input);
            let (ours, theirs) = tcp4();
            ours.set_nonblocking(nonblocking).unwrap();
            let transfer =
                bench.session.transfer(Source::file(&file, ..), chain.clone(), Sink::socket(&ours)).unwrap();
            for _ in 0..10 {
                bench.copy(b"until the socket is full");
            }
            file.set_len(690 * BLOCK as u64 + 5).unwrap();
            let reader = read_behind(theirs.into());
            let error = transfer.wait().unwrap_err();
            drop(ours);
            let received = reader.join().unwrap();
            let left = 690 * BLOCK as u64 + 5;
            assert_eq!(verdict(&error), (Status::EndOfSource, Stage::Source, None, left), "{chain:?}");
            assert!(received == input[..left as usize]);
            let expected = oracle::expect(chain, &received).digests;
            let said = error.completion.digests.iter().map(|digest| (digest.to_string(), digest.covered));
            assert_eq!(said.collect::<Vec<_>>(), expected);
        }
    });
}

#[test]
fn a_file_that_grows_is_sent_as_it_was() {
    for_each_backend(|bench| {
        for chain in chains() {
            let input = data(5 * BLOCK);
            let mut file = file_with(&input);
            let sink = drain(Kind::Tcp4, 0, None).unwrap();
            let transfer = bench.session.transfer(Source::file(&file, ..), chain.clone(), sink.sink).unwrap();
            file.write_all(&input).unwrap();
            let done = transfer.wait().unwrap();
            let received = sink.rest.received(0, None).unwrap();
            oracle::check("grows", &chain, &input, &done, &received);
        }
    });
}

fn reset(socket: TcpStream) {
    rustix::net::sockopt::set_socket_linger(&socket, Some(Duration::ZERO)).unwrap();
    drop(socket);
}

#[test]
fn a_peer_that_resets_while_it_is_sent_to() {
    for_each_backend(|bench| {
        for (chain, nonblocking) in chains().iter().flat_map(|chain| [(chain, false), (chain, true)]) {
            for file in [false, true] {
                let (ours, mut theirs) = tcp4();
                ours.set_nonblocking(nonblocking).unwrap();
                let endless = File::open("/dev/zero").unwrap();
                let large = file_with(&[]);
                large.set_len(1 << 30).unwrap();
                let source = if file { Source::file(&large, ..) } else { Source::fd(&endless) };
                let request =
                    bench.session.request(source, chain.clone(), Sink::socket(&ours)).length(1 << 30);
                let transfer = request.submit().unwrap();
                let peer = std::thread::spawn(move || {
                    theirs.read_exact(&mut vec![0; 100_000]).unwrap();
                    reset(theirs);
                });
                let error = transfer.wait().unwrap_err();
                peer.join().unwrap();
                let (status, stage, at, delivered) = verdict(&error);
                assert_eq!((status, stage, at), (Status::PeerReset, Stage::Destination, None), "{error}");
                assert!(delivered >= 100_000);
                assert_ne!(error.errno, 0);
            }
        }
    });
}

/// The stage is the source's, whatever path was taken, and never is what came before taken for all there was.
#[test]
fn a_peer_that_resets_while_it_is_received_from() {
    for_each_backend(|bench| {
        for (chain, to) in chains().iter().flat_map(|chain| {
            [Kind::File, Kind::Tcp4, Kind::Pipe, Kind::Memory, Kind::Device].map(|to| (chain, to))
        }) {
            for nonblocking in [false, true] {
                let (ours, mut theirs) = tcp4();
                ours.set_nonblocking(nonblocking).unwrap();
                let sink = drain(to, 1 << 20, None).unwrap();
                if let crate::ends::Rest::Stream(fd, _) = &sink.rest {
                    rustix::fs::fcntl_setfl(fd, fcntl_getfl(fd).unwrap() | OFlags::NONBLOCK).unwrap();
                }
                let transfer =
                    bench.session.transfer(Source::socket(&ours), chain.clone(), sink.sink).unwrap();
                theirs.write_all(&data(30_000)).unwrap();
                for _ in 0..5 {
                    bench.copy(b"all that came is on its way");
                }
                let peer = std::thread::spawn(move || {
                    std::thread::sleep(Duration::from_millis(5));
                    reset(theirs);
                });
                let error = transfer.wait().expect_err("a reset is not an end");
                peer.join().unwrap();
                let (status, stage, at, _) = verdict(&error);
                let what = format!("{chain:?} to {to:?}, {}: {error}", bench.backend.name);
                assert_eq!((status, stage, at), (Status::PeerReset, Stage::Source, None), "{what}");
            }
        }
    });
}

#[test]
fn a_peer_that_stops_sending_but_still_receives() {
    for_each_backend(|bench| {
        for chain in chains() {
            let (ours, mut theirs) = tcp4();
            let input = data(2 * BLOCK + 1);
            theirs.write_all(&input).unwrap();
            theirs.shutdown(Shutdown::Write).unwrap();
            // Back to where it came from.
            let done =
                bench.session.transfer(Source::socket(&ours), chain.clone(), Sink::socket(&ours)).unwrap();
            let done = done.wait().unwrap();
            drop(ours);
            let received = read_behind(theirs.into()).join().unwrap();
            oracle::check("half closed", &chain, &input, &done, &received);
        }
    });
}

#[test]
fn a_length_and_a_source_that_ends_before_it_or_goes_on_after_it() {
    for_each_backend(|bench| {
        for (chain, kind) in
            chains().iter().flat_map(|chain| [Kind::Tcp4, Kind::Unix, Kind::Pipe].map(|kind| (chain, kind)))
        {
            let input = data(3 * BLOCK + 9);
            for to in [Kind::File, Kind::Tcp4, Kind::Memory] {
                let (theirs, ours) = stream(kind).unwrap();
                let feeder = write_behind(theirs, input.clone());
                let take = |length, sink| {
                    let request = bench.session.request(Source::fd(&ours), chain.clone(), sink);
                    request.length(length).submit().unwrap().wait()
                };
                let first = drain(to, input.len(), None).unwrap();
                let mut done = take(BLOCK as u64 + 5, first.sink).unwrap();
                let memory = done.memory.take();
                let received = first.rest.received(done.bytes_out, memory).unwrap();
                oracle::check("so many", chain, &input[..BLOCK + 5], &done, &received);
                // The next one takes what follows: nothing was lost on the way.
                let rest = drain(to, 5 * BLOCK, None).unwrap();
                let mut error = take(5 * BLOCK as u64, rest.sink).unwrap_err();
                let left = (2 * BLOCK + 4) as u64;
                assert_eq!(verdict(&error), (Status::EndOfSource, Stage::Source, None, left));
                let memory = error.completion.memory.take();
                assert!(rest.rest.received(left, memory).unwrap() == input[BLOCK + 5..]);
                feeder.join().unwrap();
            }
        }
    });
}

#[test]
fn a_prefix_comes_first() {
    for_each_backend(|bench| {
        let (prefix, input) = (data(BLOCK + 17), data(4 * BLOCK + 1));
        let whole = [&prefix[..], &input].concat();
        for (chain, from) in
            chains().iter().flat_map(|chain| [Kind::File, Kind::Tcp4, Kind::Memory].map(|from| (chain, from)))
        {
            for (to, nonblocking) in [(Kind::Tcp4, false), (Kind::Tcp4, true), (Kind::File, false)] {
                for length in [None, Some(whole.len()), Some(prefix.len()), Some(prefix.len() + 3)] {
                    let (source, feeder) = crate::ends::feed(from, &input, None).unwrap().split();
                    let end = drain(to, 0, None).unwrap();
                    if let crate::ends::Rest::Stream(fd, _) = &end.rest {
                        let flags = if nonblocking { OFlags::NONBLOCK } else { OFlags::empty() };
                        rustix::fs::fcntl_setfl(fd, fcntl_getfl(fd).unwrap() | flags).unwrap();
                    }
                    let mut request =
                        bench.session.request(source, chain.clone(), end.sink).prefix(&prefix[..]).more();
                    if let Some(length) = length {
                        request = request.length(length as u64);
                    }
                    let done = request.submit().unwrap().wait().unwrap();
                    let received = end.rest.received(done.bytes_out, None).unwrap();
                    let expected = &whole[..length.unwrap_or(whole.len())];
                    let what = format!("{from:?} to {to:?} {nonblocking} {length:?}");
                    oracle::check(&what, chain, expected, &done, &received);
                    feeder.into_iter().for_each(|feeder| feeder.join().unwrap());
                }
            }
        }
        // Shorter than the prefix alone is no length.
        let request =
            bench.session.request(Source::memory(&b"x"[..]), [], Sink::memory(9)).prefix(*b"prefix");
        let error = request.length(5).submit().unwrap().wait().unwrap_err();
        assert_eq!(verdict(&error), (Status::InvalidField, Stage::Frontend, None, 0));
        let request = bench.session.request(Source::memory(&b"x"[..]), [], Sink::memory(9)).prefix([]);
        assert_eq!(request.submit().unwrap().wait().unwrap().memory.unwrap(), b"x");
    });
}

/// More follows: the last segment may wait for it, but not for ever, and not when more came.
#[test]
fn transfers_one_behind_the_other_on_one_socket() {
    for_each_backend(|bench| {
        let (ours, theirs) = tcp4();
        let reader = read_behind(OwnedFd::from(theirs));
        let input = data(3 * BLOCK);
        for (at, piece) in input.chunks(1000).enumerate() {
            let request =
                bench.session.request(Source::memory(piece), [Op::Crc32], Sink::socket(&ours)).rid(1);
            let request = if at % 3 == 2 { request } else { request.more() };
            let transfer = request.submit().unwrap();
            if at % 10 == 0 { drop(transfer.wait().unwrap()) } else { transfer.detach() }
        }
        let last = bench.session.request(Source::memory(&b""[..]), [], Sink::socket(&ours)).rid(1);
        last.submit().unwrap().wait().unwrap();
        drop(ours);
        assert!(reader.join().unwrap() == input);
    });
}

/// Pages of a file that are in memory and not on the disk; `None` before Linux 6.5.
fn not_on_disk(file: &File) -> Option<u64> {
    page_cache::counts(file.as_fd(), 0, u64::MAX).ok().map(|counts| counts.unwritten)
}

#[test]
fn durable_means_on_the_disk_before_it_is_done() {
    for_each_backend(|bench: &Bench| {
        let file = tempfile::tempfile_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let input = data(2 * BLOCK + 1);
        (&file).write_all(&input).unwrap();
        file.sync_all().unwrap();
        // Where files are in memory and nowhere else, nothing can be seen of it.
        let has_disk = page_cache::forget(file.as_fd(), 0, input.len() as u64).unwrap() == 0;
        let can_see = has_disk && not_on_disk(&file).is_some();
        if !can_see {
            println!(
                "what is on the disk is not looked at: there is none under {}, or no cachestat(2)",
                env!("CARGO_TARGET_TMPDIR")
            );
        }
        for chain in chains() {
            file.set_len(0).unwrap();
            let request =
                bench.session.request(Source::memory(&input[..]), chain.clone(), Sink::file(&file, 0));
            let done = request.durable().submit().unwrap().wait().unwrap();
            assert!(!can_see || not_on_disk(&file) == Some(0), "every byte of it");
            oracle::check("durable", &chain, &input, &done, &contents(&file, input.len()));
            let destination = done.breakdown.stages.iter().find(|stage| stage.name == "destination").unwrap();
            let plain =
                bench.session.transfer(Source::memory(&input[..]), chain, Sink::file(&file, 0)).unwrap();
            let plain = plain.wait().unwrap();
            let without = plain.breakdown.stages.iter().find(|stage| stage.name == "destination").unwrap();
            // A file system without a disk of this machine is asked for what a close says, in the same
            // operation.
            let is_asked = rustix::fs::major(rustix::fs::fstat(&file).unwrap().st_dev) == 0;
            let flushes = u64::from(!is_asked);
            assert_eq!(destination.operations, without.operations + flushes, "one flush");
        }
        // To a destination that has no disk it means nothing.
        let request = bench.session.request(Source::memory(&input[..]), [], Sink::memory(input.len()));
        assert!(request.durable().submit().unwrap().wait().unwrap().memory.unwrap() == input);
    });
}
