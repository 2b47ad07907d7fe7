//! The scenarios. Sizes cross the blocks of any backend, and are small enough for a guest in emulation.
//! emulation.

use crate::{Scenario, World};
use dcs::media::{Pace, Settings};
use dcs::{
    AwsChunked, EndpointError, Error, Handle, Op, Operator, Sink, Source, Stage, Status, TransferError,
};
use dcs_media::rtp::{HEADER, Header};
use dcs_media::ts::{self, PACKET, PAYLOAD, Packet};
use dcs_testkit::{bytes as data, hex};
use openssl::hash::{MessageDigest, hash};
use openssl::symm::{Cipher, encrypt};
use std::fs::File;
use std::io::{Read, Write};
use std::net::{Shutdown, UdpSocket};
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// errno for bytes that are no transport stream (EBADMSG).
const BADMSG: i32 = 74;

/// Every scenario, with its name.
#[rustfmt::skip]
pub const ALL: &[(&str, Scenario)] = &[
    ("a file comes to memory with its digests", file_to_memory),
    ("pieces of a file come in the order that was asked for", pieces_of_a_file),
    ("a file goes to a peer through digest and cipher", file_to_peer),
    ("what a peer sends comes to a file", peer_to_file),
    ("a connection is kept across transfers", many_on_one_connection),
    ("a prefix comes first", prefix_first),
    ("what is prepared once is submitted often", prepared),
    ("what is prepared is not submitted twice at once, nor with a closed handle", prepared_in_vain),
    ("what is compressed is restored", compressed_and_restored),
    ("many transfers at once each have their own bytes", many_at_once),
    ("more memory than a backend has at once is waited for", much_memory),
    ("transfers of one request id go one after the other", in_order),
    ("nothing is a transfer too", of_nothing),
    ("a source that ends early is said", early_end),
    ("a peer that resets is said, and what was delivered", reset_by_peer),
    ("a peer that takes nothing costs time, until it is over", stuck_peer),
    ("a transfer is cancelled while it waits", cancelled),
    ("descriptors are used as they were opened, and ranges are checked", not_permitted),
    ("keys of the wrong length and damaged data are refused", bad_input),
    ("a session that goes tells its transfers", session_goes),
    ("S3's framing comes off, and its checksum is told", framing_comes_off),
    ("a digest that is not the expected one withholds the end", expected_digest),
    ("a media stream goes out in datagrams", media_stream),
    ("media streams go by their clock, and join", joined_streams),
    ("a media stream without a clock is said", clockless_stream),
];

fn digest(kind: MessageDigest, bytes: &[u8]) -> String {
    hex(&hash(kind, bytes).expect("OpenSSL has it"))
}

/// Makes a file with these bytes, opened for reading only: a card accepts only files that nobody can write.
fn file(world: &dyn World, name: &str, bytes: &[u8]) -> File {
    let path = world.folder().join(name);
    std::fs::write(&path, bytes).unwrap();
    File::open(path).unwrap()
}

/// Makes a file that the engine can write.
fn empty(world: &dyn World, name: &str, length: usize) -> File {
    let path = world.folder().join(name);
    let file = File::options().read(true).write(true).create(true).truncate(true).open(path).unwrap();
    world.prepare(&file, length as u64);
    file
}

fn contents(file: &File, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

fn verdict(error: &TransferError) -> (Status, Stage) {
    (error.status, error.stage)
}

fn file_to_memory(world: &dyn World) {
    let bytes = data(700_001, 1);
    let file = file(world, "to-memory", &bytes);
    let session = world.engine().session().unwrap();
    let chain = [Op::Md5, Op::Sha1, Op::Sha256, Op::Crc32c];
    let done =
        session.transfer(Source::file(&file, ..), chain, Sink::memory(bytes.len())).unwrap().wait().unwrap();
    assert_eq!((done.bytes_in, done.bytes_out), (bytes.len() as u64, bytes.len() as u64));
    assert_eq!(done.digests[0].to_string(), digest(MessageDigest::md5(), &bytes));
    assert_eq!(done.digests[1].to_string(), digest(MessageDigest::sha1(), &bytes));
    assert_eq!(done.digests[2].to_string(), digest(MessageDigest::sha256(), &bytes));
    assert!(done.memory.unwrap() == bytes);
}

/// Pieces of a file go to a peer and to another file, with and without a descriptor (a cipher has a key), short ones and
/// such as are of many blocks.
fn prepared(world: &dyn World) {
    let bytes = data(700_001, 31);
    let from = Handle::new(&file(world, "prepared", &bytes)).unwrap();
    let session = world.engine().session().unwrap();
    let pieces = [(0, 64), (4096, 4096), (100, 1), (1000, 600_000), (699_000, 1001)];
    let (key, counter) = ([3; 32], [5; 16]);
    let cipher = Op::Aes256Ctr { key, counter };
    for chain in [vec![Op::Md5], vec![Op::Crc32c, Op::Md5], vec![], vec![Op::Md5, cipher]] {
        let (flow, mut peer) = world.connect();
        let at = chain.iter().position(|op| *op == Op::Md5);
        let encrypts = chain.iter().any(|op| matches!(op, Op::Aes256Ctr { .. }));
        let prepared = session.prepare(Source::handle(&from, ..), chain.clone(), flow.sink());
        if !chain.is_empty() && !world.prepares_chains() {
            assert!(matches!(prepared, Err(dcs::Error::NotPrepared(_))));
            continue;
        }
        let mut prepared = prepared.unwrap();
        for (offset, length) in pieces {
            let piece = &bytes[offset..offset + length];
            prepared.submit(offset as u64, 0, length as u64).unwrap();
            let mut arrived = vec![0; length];
            let done = std::thread::scope(|scope| {
                let reading = scope.spawn(|| peer.read_exact(&mut arrived));
                let done = prepared.wait().unwrap();
                reading.join().unwrap().unwrap();
                done
            });
            assert_eq!((done.bytes_in, done.bytes_out), (length as u64, length as u64));
            let digests: Vec<String> = done.digests.iter().map(ToString::to_string).collect();
            assert!(at.is_none_or(|at| digests[at] == digest(MessageDigest::md5(), piece)), "{digests:?}");
            let sent = if encrypts {
                encrypt(Cipher::aes_256_ctr(), &key, Some(&counter), piece).unwrap()
            } else {
                piece.to_vec()
            };
            assert!(arrived == sent, "{chain:?}: {length} bytes from {offset}");
        }
    }
    if !world.prepares_chains() {
        return;
    }
    let to = empty(world, "prepared-to", 10_000);
    let sink = Sink::handle(&Handle::new(&to).unwrap(), 0);
    let mut prepared = session.prepare(Source::handle(&from, ..), [Op::Sha256], sink).unwrap();
    for (source, destination, length) in [(4096, 0, 4096), (0, 4096, 4096)] {
        prepared.submit(source, destination, length).unwrap();
        assert_eq!(prepared.wait().unwrap().bytes_out, length);
    }
    assert!(contents(&to, 8192) == [&bytes[4096..8192], &bytes[..4096]].concat());
}

fn prepared_in_vain(world: &dyn World) {
    let bytes = data(5000, 32);
    let from = Handle::new(&file(world, "prepared-in-vain", &bytes)).unwrap();
    let session = world.engine().session().unwrap();
    let (flow, mut peer) = world.connect();
    let chain = world.prepares_chains().then_some(Op::Crc32);
    let mut prepared = session.prepare(Source::handle(&from, ..), chain, flow.sink()).unwrap();
    // More than there is: the submission fails, and what was prepared does not.
    prepared.submit(4000, 0, 2000).unwrap();
    let failed = prepared.wait().unwrap_err();
    assert!(matches!(failed.status, Status::OutOfRange | Status::EndOfSource), "{failed}");
    assert!(matches!(prepared.submit(0, 7, 100), Err(Error::NoOffset)), "a connection has no offsets");
    prepared.submit(0, 0, 100).unwrap();
    assert!(matches!(prepared.submit(0, 0, 100), Err(Error::UnderWay)), "its end was not waited for");
    assert_eq!(prepared.wait().unwrap().bytes_out, 100);
    let mut arrived = vec![0; 100];
    peer.read_exact(&mut arrived).unwrap();
    assert!(arrived == bytes[..100]);
    from.close();
    let closed = |result| matches!(result, Err(Error::Endpoint(EndpointError::Closed)));
    assert!(closed(prepared.submit(0, 0, 100)), "its handle is closed");
    assert!(closed(session.prepare(Source::handle(&from, ..), [], flow.sink()).map(drop)));
    let in_memory = session.prepare(Source::memory(*b"x"), [], Sink::memory(1));
    assert!(matches!(in_memory, Err(Error::NotPrepared(_))));
}

fn pieces_of_a_file(world: &dyn World) {
    let bytes = data(500_000, 2);
    let file = file(world, "pieces", &bytes);
    let session = world.engine().session().unwrap();
    let pieces = [(400_000, 70_000), (1, 1), (99_999, 131_073), (0, 4096)];
    let expected: Vec<u8> = pieces
        .iter()
        .flat_map(|(at, length)| &bytes[*at as usize..(at + length) as usize])
        .copied()
        .collect();
    let done = session.transfer(Source::extents(&file, &pieces), [Op::Md5], Sink::memory(expected.len()));
    let done = done.unwrap().wait().unwrap();
    assert_eq!(done.digests[0].to_string(), digest(MessageDigest::md5(), &expected));
    assert!(done.memory.unwrap() == expected);
}

fn file_to_peer(world: &dyn World) {
    let bytes = data(1_500_000, 3);
    let file = file(world, "to-peer", &bytes);
    let (flow, mut peer) = world.connect();
    let reader = std::thread::spawn(move || {
        let mut got = vec![0; 1_500_000];
        peer.read_exact(&mut got).map(|()| got)
    });
    let session = world.engine().session().unwrap();
    let (key, counter) = ([7; 32], [9; 16]);
    let chain = [Op::Md5, Op::Aes256Ctr { key, counter }, Op::Sha256];
    let done = session.transfer(Source::file(&file, ..), chain, flow.sink()).unwrap().wait().unwrap();
    let sealed = encrypt(Cipher::aes_256_ctr(), &key, Some(&counter), &bytes).unwrap();
    assert_eq!(done.digests[0].to_string(), digest(MessageDigest::md5(), &bytes));
    assert_eq!(done.digests[1].to_string(), digest(MessageDigest::sha256(), &sealed));
    assert!(reader.join().unwrap().unwrap() == sealed);
}

fn peer_to_file(world: &dyn World) {
    let bytes = data(1_200_345, 4);
    let file = empty(world, "from-peer", bytes.len());
    let (flow, mut peer) = world.connect();
    let sent = bytes.clone();
    let writer = std::thread::spawn(move || peer.write_all(&sent).map(|()| peer));
    let session = world.engine().session().unwrap();
    let request = session.request(flow.source(), [Op::Md5], Sink::file(&file, 0));
    let done = request.length(bytes.len() as u64).durable().submit().unwrap().wait().unwrap();
    assert_eq!(done.bytes_out, bytes.len() as u64);
    assert_eq!(done.digests[0].to_string(), digest(MessageDigest::md5(), &bytes));
    assert!(contents(&file, bytes.len()) == bytes);
    drop(writer.join().unwrap().unwrap());
}

fn many_on_one_connection(world: &dyn World) {
    let bytes = data(300_000, 5);
    let file = file(world, "again", &bytes);
    let (flow, mut peer) = world.connect();
    let session = world.engine().session().unwrap();
    for round in 0..8usize {
        let range = round as u64 * 1000..round as u64 * 1000 + 30_000;
        let done =
            session.transfer(Source::file(&file, range), [Op::Md5], flow.sink()).unwrap().wait().unwrap();
        let expected = &bytes[round * 1000..round * 1000 + 30_000];
        let mut got = vec![0; 30_000];
        peer.read_exact(&mut got).unwrap();
        assert!(got == expected && done.digests[0].to_string() == digest(MessageDigest::md5(), expected));
        // And back, on the same connection.
        peer.write_all(&expected[..9999]).unwrap();
        let back = session.request(flow.source(), [], Sink::memory(9999)).length(9999).submit().unwrap();
        assert!(back.wait().unwrap().memory.unwrap() == expected[..9999]);
    }
}

fn prefix_first(world: &dyn World) {
    let bytes = data(100_000, 6);
    let file = file(world, "prefix", &bytes);
    let (flow, mut peer) = world.connect();
    let session = world.engine().session().unwrap();
    let request = session.request(Source::file(&file, ..), [Op::Md5], flow.sink());
    let done = request.prefix(&b"HTTP/1.1 200 OK\r\n\r\n"[..]).submit().unwrap().wait().unwrap();
    let expected = [&b"HTTP/1.1 200 OK\r\n\r\n"[..], &bytes].concat();
    let mut got = vec![0; expected.len()];
    peer.read_exact(&mut got).unwrap();
    assert!(got == expected);
    assert_eq!(done.digests[0].to_string(), digest(MessageDigest::md5(), &expected));
}

fn compressed_and_restored(world: &dyn World) {
    let text: Vec<u8> = (0..200_000u32).flat_map(|number| (number / 3).to_string().into_bytes()).collect();
    let plain = file(world, "plain", &text);
    let session = world.engine().session().unwrap();
    let to = Sink::memory(text.len());
    let sealed =
        session.transfer(Source::file(&plain, ..), [Op::Gzip { level: 1 }], to).unwrap().wait().unwrap();
    let sealed = sealed.memory.unwrap();
    assert!(sealed.len() < text.len() / 2 && sealed[..2] == [0x1f, 0x8b]);
    let packed = file(world, "packed", &sealed);
    let restored =
        session.transfer(Source::file(&packed, ..), [Op::Gunzip, Op::Md5], Sink::memory(text.len()));
    let restored = restored.unwrap().wait().unwrap();
    assert_eq!(restored.digests[0].to_string(), digest(MessageDigest::md5(), &text));
    assert!(restored.memory.unwrap() == text);
}

fn many_at_once(world: &dyn World) {
    let bytes = data(600_000, 7);
    let file = file(world, "many", &bytes);
    let session = world.engine().session().unwrap();
    let transfers: Vec<_> = (0..24u64)
        .map(|at| {
            let range = at * 7000..at * 7000 + 150_000;
            (at, session.transfer(Source::file(&file, range), [Op::Md5], Sink::memory(150_000)).unwrap())
        })
        .collect();
    for (at, transfer) in transfers {
        let done = transfer.wait().unwrap();
        let expected = &bytes[at as usize * 7000..at as usize * 7000 + 150_000];
        assert_eq!(done.digests[0].to_string(), digest(MessageDigest::md5(), expected));
        assert!(done.memory.unwrap() == expected);
    }
}

fn much_memory(world: &dyn World) {
    let bytes = data(1 << 20, 14);
    let file = file(world, "much", &bytes);
    let session = world.engine().session().unwrap();
    let submit = |_| session.transfer(Source::file(&file, ..), [Op::Crc32c], Sink::memory(1 << 20)).unwrap();
    let transfers: Vec<_> = (0..32).map(submit).collect();
    for transfer in transfers {
        assert!(transfer.wait().unwrap().memory.unwrap() == bytes);
    }
}

fn in_order(world: &dyn World) {
    let bytes = data(40_000, 8);
    let file = file(world, "order", &bytes);
    let (flow, mut peer) = world.connect();
    let session = world.engine().session().unwrap();
    let transfers: Vec<_> = (0..10u64)
        .map(|at| {
            let source = Source::file(&file, at * 4000..(at + 1) * 4000);
            session.request(source, [Op::Crc32], flow.sink()).rid(5).submit().unwrap()
        })
        .collect();
    let mut got = vec![0; bytes.len()];
    peer.read_exact(&mut got).unwrap();
    assert!(got == bytes);
    transfers.into_iter().for_each(|transfer| _ = transfer.wait().unwrap());
}

fn of_nothing(world: &dyn World) {
    let file = file(world, "nothing", b"something");
    let session = world.engine().session().unwrap();
    let done =
        session.transfer(Source::file(&file, 3..3), [Op::Md5], Sink::memory(10)).unwrap().wait().unwrap();
    assert_eq!((done.bytes_out, done.digests[0].to_string()), (0, digest(MessageDigest::md5(), b"")));
}

fn early_end(world: &dyn World) {
    let (flow, mut peer) = world.connect();
    peer.write_all(&data(70_000, 9)).unwrap();
    peer.shutdown(Shutdown::Write).unwrap();
    let session = world.engine().session().unwrap();
    let request = session.request(flow.source(), [Op::Md5], Sink::memory(100_000)).length(100_000);
    let error = request.submit().unwrap().wait().unwrap_err();
    assert_eq!(verdict(&error), (Status::EndOfSource, Stage::Source));
    assert_eq!(error.completion.bytes_out, 70_000);
    assert!(error.completion.memory.unwrap() == data(70_000, 9));
    // A stream's end is not an error if no length was given.
    let rest = session.transfer(flow.source(), [], Sink::memory(10)).unwrap().wait().unwrap();
    assert_eq!(rest.bytes_out, 0);
}

fn reset_by_peer(world: &dyn World) {
    let bytes = data(8 << 20, 10);
    let file = file(world, "reset", &bytes);
    let (flow, mut peer) = world.connect();
    let session = world.engine().session().unwrap();
    let transfer = session.transfer(Source::file(&file, ..), [Op::Md5], flow.sink()).unwrap();
    // A backend that counts what is acknowledged may not know of the last bytes: those that are under way at once,
    // far fewer than these.
    let mut some = vec![0; 1 << 20];
    peer.read_exact(&mut some).unwrap();
    assert!(some == bytes[..1 << 20]);
    rustix::net::sockopt::set_socket_linger(&peer, Some(Duration::ZERO)).unwrap();
    drop(peer);
    let error = transfer.wait().unwrap_err();
    assert_eq!(verdict(&error), (Status::PeerReset, Stage::Destination));
    assert!((100_000..8 << 20).contains(&error.completion.bytes_out), "{error}");
}

fn stuck_peer(world: &dyn World) {
    let bytes = data(12 << 20, 11);
    let file = file(world, "stuck", &bytes);
    let session = world.engine().session().unwrap();
    // On a busy machine the time may be over while the source is still read: then it gets more.
    for limit in [800, 8_000, 60_000].map(Duration::from_millis) {
        let (flow, _peer) = world.connect();
        let request = session.request(Source::file(&file, ..), [Op::Crc32], flow.sink());
        let stuck = request.timeout(limit).submit().unwrap();
        // Other transfers continue.
        let other =
            session.transfer(Source::file(&file, ..100_000), [Op::Md5], Sink::memory(100_000)).unwrap();
        let md5 = digest(MessageDigest::md5(), &bytes[..100_000]);
        assert_eq!(other.wait().unwrap().digests[0].to_string(), md5);
        let error = stuck.wait().unwrap_err();
        assert_eq!(error.status, Status::Timeout);
        assert!(error.completion.bytes_out < 12 << 20);
        if error.stage == Stage::Destination {
            return;
        }
    }
    panic!("no time was spent at the destination");
}

fn cancelled(world: &dyn World) {
    let (flow, mut peer) = world.connect();
    let session = world.engine().session().unwrap();
    let waiting =
        session.request(flow.source(), [Op::Md5], Sink::memory(1000)).length(1000).submit().unwrap();
    std::thread::sleep(Duration::from_millis(50));
    waiting.cancel();
    assert_eq!(waiting.wait().unwrap_err().status, Status::Cancelled);
    // Later bytes belong to the next transfer.
    peer.write_all(&[6; 500]).unwrap();
    let next = session.request(flow.source(), [], Sink::memory(500)).length(500).submit().unwrap();
    assert_eq!(next.wait().unwrap().memory.unwrap(), [6; 500]);
}

fn not_permitted(world: &dyn World) {
    let bytes = data(50_000, 12);
    file(world, "permitted", &bytes);
    let path = world.folder().join("permitted");
    let (reads, writes) = (File::open(&path).unwrap(), File::options().write(true).open(&path).unwrap());
    let session = world.engine().session().unwrap();
    let run = |source, sink| {
        let request = session.request(source, [Op::Md5], sink).length(1000);
        verdict(&request.submit().unwrap().wait().unwrap_err())
    };
    assert_eq!(run(Source::file(&writes, ..1000), Sink::memory(1000)), (Status::AccessDenied, Stage::Source));
    let memory = || Source::memory(vec![1; 1000]);
    assert_eq!(run(memory(), Sink::file(&reads, 0)), (Status::AccessDenied, Stage::Destination));
    assert!(contents(&reads, 50_000) == bytes, "nothing was written");
    // Nothing exists beyond the end: each backend has its own error for that.
    let beyond = session.transfer(Source::file(&reads, 40_000..60_000), [Op::Md5], Sink::memory(20_000));
    let error = beyond.unwrap().wait().unwrap_err();
    assert!(matches!(error.status, Status::OutOfRange | Status::PathUnavailable), "{error}");
}

fn bad_input(world: &dyn World) {
    let file = file(world, "bad", &data(20_000, 13));
    let session = world.engine().session().unwrap();
    let run = |op| {
        let transfer = session.transfer(Source::file(&file, ..), [Op::Md5, op], Sink::memory(100_000));
        transfer.unwrap().wait().unwrap_err()
    };
    let error = run(Op::Gunzip);
    assert_eq!(verdict(&error), (Status::CorruptData, Stage::Operator));
    assert_eq!(error.operator.map(|(at, _)| at), Some(1));
    let error = run(Op::Gzip { level: 77 });
    assert_eq!(verdict(&error), (Status::BadParameter, Stage::Operator));
}

fn session_goes(world: &dyn World) {
    let (flow, mut peer) = world.connect();
    // A device may have just begun to fetch them.
    for _ in 0..30 {
        let session = world.engine().session().unwrap();
        let request = || session.request(flow.source(), [Op::Md5], Sink::memory(100)).length(100);
        let lost: Vec<_> = (0..3).map(|_| request().submit().unwrap()).collect();
        drop(session);
        for transfer in lost {
            assert_eq!(transfer.wait().unwrap_err().status, Status::QueueDeleted);
        }
    }
    // The engine and the connection survive.
    let session = world.engine().session().unwrap();
    peer.write_all(b"still here").unwrap();
    let done = session.request(flow.source(), [], Sink::memory(10)).length(10).submit().unwrap();
    assert_eq!(done.wait().unwrap().memory.unwrap(), b"still here");
}

fn framing_comes_off(world: &dyn World) {
    let bytes = data(300_000, 20);
    let mut framed = Vec::new();
    for chunk in bytes.chunks(65_536) {
        framed.extend(format!("{:x}\r\n", chunk.len()).bytes());
        framed.extend([chunk, b"\r\n"].concat());
    }
    let sha256 = hash(MessageDigest::sha256(), &bytes).expect("OpenSSL has it");
    let base64 = openssl::base64::encode_block(&sha256);
    framed.extend(format!("0\r\nx-amz-checksum-sha256:{base64}\r\n\r\n").bytes());
    let chain = |decoded_length| {
        let checksum = Some(Operator::Sha256);
        let framing = AwsChunked { decoded_length, trailers: true, checksum, signature: None };
        [Op::AwsChunked(Box::new(framing)), Op::Md5]
    };
    let session = world.engine().session().unwrap();
    for decoded_length in [bytes.len() as u64, 299_999] {
        let (flow, mut peer) = world.connect();
        let file = empty(world, "framed", bytes.len());
        let request = session.request(flow.source(), chain(decoded_length), Sink::file(&file, 0));
        let transfer = request.length(framed.len() as u64).submit().unwrap();
        peer.write_all(&framed).unwrap();
        let done = match transfer.wait() {
            Ok(done) => done,
            Err(error) => {
                assert_eq!(verdict(&error), (Status::FramingError, Stage::Operator), "{error}");
                assert_eq!(error.operator, Some((0, Operator::AwsChunked)));
                assert_eq!(decoded_length, 299_999, "{error}");
                continue;
            }
        };
        assert_eq!((done.bytes_out, decoded_length), (300_000, 300_000));
        let values: Vec<_> = done.digests.iter().map(|value| (value.operator, value.to_string())).collect();
        let expected =
            [(Operator::AwsChunked, hex(&sha256)), (Operator::Md5, digest(MessageDigest::md5(), &bytes))];
        assert_eq!(values, expected);
        assert!(contents(&file, bytes.len()) == bytes);
    }
}

fn expected_digest(world: &dyn World) {
    let bytes = data(700_000, 21);
    let md5 = hash(MessageDigest::md5(), &bytes).expect("OpenSSL has it").to_vec();
    let session = world.engine().session().unwrap();
    for (length, right) in [(700_000, true), (700_000, false), (1000, false)] {
        let file = file(world, "expected", &bytes[..length]);
        let (flow, mut peer) = world.connect();
        let value = if right { md5.clone() } else { vec![7; 16] };
        let chain = [Op::Expect { digest: Operator::Md5, value }];
        let transfer = session.transfer(Source::file(&file, ..), chain, flow.sink()).unwrap();
        let reader = std::thread::spawn(move || {
            let mut got = Vec::new();
            peer.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            // A connection that is reset ends, too; one that stays open has delivered everything.
            _ = peer.read_to_end(&mut got);
            got
        });
        let delivered = match transfer.wait() {
            Ok(done) => done.bytes_out,
            Err(error) => {
                assert_eq!(verdict(&error), (Status::DigestMismatch, Stage::Operator), "{error}");
                let told = error.completion.digests[0].to_string();
                assert_eq!(told, digest(MessageDigest::md5(), &bytes[..length]), "the value that it has");
                error.completion.bytes_out
            }
        };
        assert!(if right { delivered == length as u64 } else { delivered < length as u64 });
        assert!(length > 1000 || delivered == 0, "what fits into a block is not sent at all");
        drop(flow);
        let got = reader.join().unwrap();
        // Bytes in transit when the transfer failed may arrive without having been counted, but never all of them.
        assert!(bytes.starts_with(&got) && if right { got.len() == length } else { got.len() < length });
        assert!(length > 1000 || got.is_empty(), "what fits into a block is not sent at all");
    }
}

fn media_stream(world: &dyn World) {
    let bytes = data(100_001, 22);
    let file = file(world, "stream", &bytes);
    let (sender, peer) = world.media(Settings::plain());
    let session = world.engine().session().unwrap();
    let sink = sender.sink(Pace::constant(10_000_000));
    let done = session.transfer(Source::file(&file, ..), [Op::Md5], sink).unwrap().wait().unwrap();
    assert_eq!(done.digests[0].to_string(), digest(MessageDigest::md5(), &bytes));
    let heard = heard(&peer, 0, bytes.len());
    assert!(heard.iter().rev().skip(1).all(|datagram| datagram.len() == PAYLOAD));
    assert!(heard.concat() == bytes);
    let counts = sender.state().counts;
    assert_eq!((counts.datagrams, counts.bytes, counts.lost), (heard.len() as u64, bytes.len() as u64, 0));
    assert_eq!(counts.deviations.iter().sum::<u64>(), counts.datagrams);
}

/// Receives datagrams until there are this many bytes of payload behind headers of this length.
fn heard(peer: &UdpSocket, header: usize, bytes: usize) -> Vec<Vec<u8>> {
    let (mut all, mut left, mut buffer) = (Vec::new(), bytes, [0; 2000]);
    while left > 0 {
        let length = peer.recv(&mut buffer).expect("all of it comes");
        left = left.checked_sub(length - header).expect("no more than that");
        all.push(buffer[..length].to_vec());
    }
    all
}

/// A transport stream of this many packets at 20 Mb/s, with a clock reference every 40.
fn video(packets: u64, counter: u8) -> Vec<u8> {
    let mut counter = counter;
    let packet = |number: u64| {
        let pcr = number.is_multiple_of(40).then_some(900 + number * 2030);
        counter = (counter + u8::from(pcr.is_none())) & 15;
        ts::make(0x100, counter, pcr, number as u8)
    };
    (0..packets).flat_map(packet).collect()
}

fn joined_streams(world: &dyn World) {
    let videos = [video(301, 3), video(202, 9)];
    let (sender, peer) = world.media(Settings::rtp(u64::MAX - 7));
    let session = world.engine().session().unwrap();
    let transfers: Vec<_> = videos
        .iter()
        .enumerate()
        .map(|(at, bytes)| {
            let file = file(world, &format!("video-{at}"), bytes);
            let request = session.request(Source::file(&file, ..), [], sender.sink(Pace::pcr())).rid(7);
            if at == 0 { request.more() } else { request }.submit().unwrap()
        })
        .collect();
    let total = videos.iter().map(Vec::len).sum();
    let heard = heard(&peer, HEADER, total);
    for (transfer, bytes) in transfers.into_iter().zip(&videos) {
        assert_eq!(transfer.wait().unwrap().bytes_out, bytes.len() as u64);
    }
    assert!(heard.iter().rev().skip(1).all(|datagram| datagram.len() == HEADER + PAYLOAD));
    let (mut counter, mut marks) = (3, 0);
    for (number, datagram) in heard.iter().enumerate() {
        let (header, packets) = Header::parse(datagram).unwrap();
        assert_eq!(header.sequence, u16::MAX.wrapping_add(number as u16));
        for packet in packets.as_chunks::<PACKET>().0 {
            let packet = Packet::parse(packet).unwrap();
            assert_eq!(packet.counter, (counter + u8::from(packet.has_payload)) & 15);
            counter = packet.counter;
            marks += usize::from(packet.discontinuity);
        }
    }
    assert_eq!(marks, 1);
    assert_eq!(sender.state().counts.bytes, total as u64);
}

fn clockless_stream(world: &dyn World) {
    let (sender, _peer) = world.media(Settings::plain());
    let session = world.engine().session().unwrap();
    let noise = file(world, "noise", &data(20_000, 23));
    let sent = session.transfer(Source::file(&noise, ..), [], sender.sink(Pace::pcr())).unwrap().wait();
    let error = sent.expect_err("nothing says when it is due");
    assert_eq!((verdict(&error), error.errno), ((Status::CorruptData, Stage::Destination), BADMSG));
    // The next one goes on.
    let memory = Source::memory(vec![7; 1316]);
    let done = session.transfer(memory, [], sender.sink(Pace::free())).unwrap().wait().unwrap();
    assert_eq!(done.bytes_out, 1316);
}
