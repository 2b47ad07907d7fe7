//! The library in the guest: chains on files of a drive run beside its disk.

use super::*;
use dcs::{Backend, Engine, Op, Sink, Source, Status, TransferError};
use dcs_scenarios::{Flow, World, loopback};
use nix::fcntl::FallocateFlags;
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::net::TcpStream;
use std::process::Command;

/// The guest's disk has a namespace for files and an encrypted one.
#[test]
fn every_scenario_beside_the_disk() {
    let Some(tools) = Tools::find_or_skip(Flavour::Cloud) else { return };
    let Some(_turn) = turn() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (path, key) = (disk(folder.path(), "disk", 320 * MB), folder.path().join("key"));
    std::fs::write(&key, std::array::from_fn::<u8, 64, _>(|n| n as u8 ^ 0x5a)).unwrap();
    let plain = format!("d1:size=200M,backing={}", path.display());
    let sealed = format!(
        "d1:size=64M,block=4096,backing={},through=aes256-xts,key-file={}",
        path.display(),
        key.display()
    );
    let serving = Serving::start(folder.path(), &["--drive", &plain]).unwrap();
    serving.does(&["add", &sealed]);
    let script = "export PLAIN=$(named 1) SEALED=$(named 2); ip link set lo up\n\
        mkfs.ext4 -q -F $PLAIN && mount -t ext4 $PLAIN /mnt || echo '@no ext4'\n\
        guest-side --ignored --exact beside::in_the_guest --nocapture --test-threads 1";
    let mut guest = boot(&tools, folder.path(), "guest", &[&serving.socket("d1")], script);
    for (name, _) in dcs_scenarios::all() {
        assert_eq!(wait(&mut guest, "done"), *name);
    }
    let read = |serving: &Serving| {
        let counted = &figures(serving, 0)["counted"];
        counted["bytes_read"].as_u64().unwrap() + counted["bytes_written"].as_u64().unwrap()
    };
    wait(&mut guest, "large");
    let before = read(&serving);
    guest.send("go on").unwrap();
    wait(&mut guest, "digested");
    let plainly = read(&serving) - before;
    assert!(plainly < 4 * MB, "{plainly} bytes of the files crossed the bus");
    let figures = figures(&serving, 0);
    assert!(figures["counted"]["near"].as_u64().unwrap() > 100);
    let md5 = figures["operators"].as_array().unwrap().iter().find(|one| one["operator"] == "md5").unwrap();
    assert!(md5["bytes"].as_u64().unwrap() > 48 * MB && md5["time_ns"].as_u64().unwrap() > 0, "{md5}");
    guest.send("go on").unwrap();
    guest.wait_for("@guest's end", LIMIT).unwrap();
}

struct Beside(Engine);

impl World for Beside {
    fn engine(&self) -> &Engine {
        &self.0
    }
    fn folder(&self) -> &Path {
        Path::new("/mnt")
    }
    fn connect(&self) -> (Box<dyn Flow>, TcpStream) {
        loopback(Duration::from_secs(300))
    }
    fn prepare(&self, _: &File, _: u64) {}
    fn prepares_chains(&self) -> bool {
        false
    }
}

/// By busybox.
fn md5(path: &str) -> String {
    let output = Command::new("md5sum").arg(path).output().unwrap();
    String::from_utf8(output.stdout).unwrap()[..32].to_owned()
}

fn answered() {
    std::io::stdin().read_line(&mut String::new()).unwrap();
}

#[test]
#[ignore = "the guest's side of another test"]
fn in_the_guest() {
    let world = Beside(Engine::builder().backend(Backend::Drive).start().unwrap());
    for (name, scenario) in dcs_scenarios::all() {
        scenario(&world);
        println!("@done {name}");
    }
    pieces(&world.0);
    first(&world.0);
    landed(&world.0);
    fed(&world.0);
    refusals(&world.0);
    encrypted(&world.0);
    large(&world.0);
    println!("@guest's end");
}

fn digest(engine: &Engine, file: &File, sink: Sink) -> Result<(String, dcs::Completion), TransferError> {
    let session = engine.session().unwrap();
    let done = session.transfer(Source::file(file, ..), [Op::Md5], sink).unwrap().wait()?;
    Ok((done.digests[0].to_string(), done))
}

fn null() -> Sink {
    Sink::fd(&File::options().write(true).open("/dev/null").unwrap())
}

/// Files that lie in many pieces, and end amid a block.
fn pieces(engine: &Engine) {
    for (path, length) in [("/mnt/one", 900_017), ("/mnt/two", 500_000)] {
        let mut file = File::create(path).unwrap();
        file.write_all(&(0..length).map(|at| (at / 11) as u8).collect::<Vec<_>>()).unwrap();
        file.sync_all().unwrap();
        // The blocks behind those that are taken out stay where they are.
        for at in 1..40 {
            let flags = FallocateFlags::FALLOC_FL_COLLAPSE_RANGE;
            nix::fcntl::fallocate(&file, flags, at * 8192, 4096).unwrap();
        }
    }
    for path in ["/mnt/one", "/mnt/two"] {
        let file = File::open(path).unwrap();
        let extents = dcs::card::extents::of(
            &file,
            0,
            file.metadata().unwrap().len(),
            dcs::card::extents::Purpose::Read,
            1000,
        );
        assert!(extents.unwrap().len() > 30, "it lies in pieces");
        let (value, done) = digest(engine, &file, null()).unwrap();
        assert_eq!((value, done.bytes_out), (md5(path), file.metadata().unwrap().len()));
        assert!(done.path.names().any(|name| name == "beside the disk"));
    }
}

fn refusals(engine: &Engine) {
    let refused = |file: &File, words: &str| {
        let error = digest(engine, file, null()).unwrap_err();
        assert_eq!(error.status, Status::PathUnavailable, "{error}");
        assert!(error.to_string().contains(words), "{error}");
    };
    let mut holes = File::create("/mnt/holes").unwrap();
    holes.write_all(&[7; 10_000]).unwrap();
    holes.seek(SeekFrom::Start(1_000_000)).unwrap();
    holes.write_all(&[7; 10_000]).unwrap();
    let reads = File::open("/mnt/holes").unwrap();
    refused(&reads, "open for writing");
    drop(holes);
    refused(&reads, "hole");
    std::fs::write("/tmp/elsewhere", [7; 10_000]).unwrap();
    refused(&File::open("/tmp/elsewhere").unwrap(), "no virtual drive");
    refused(&File::open(std::env::var("PLAIN").unwrap()).unwrap(), "mounted");
    // Without operators there is nothing to compute beside a disk.
    let session = engine.session().unwrap();
    let done =
        session.transfer(Source::file(&reads, ..), [], Sink::memory(2_000_000)).unwrap().wait().unwrap();
    assert_eq!(done.bytes_out, 1_010_000);
    // Too many bytes that come first.
    let file = File::open("/mnt/one").unwrap();
    let request =
        session.request(Source::file(&file, ..), [Op::Md5], Sink::memory(1 << 20)).prefix(vec![0; 40_000]);
    let error = request.submit().unwrap().wait().unwrap_err();
    assert!(error.status == Status::PathUnavailable && error.to_string().contains("come first"), "{error}");
}

/// A file of this content that nobody else has open.
fn written(path: &str, bytes: &[u8]) -> File {
    let mut file = File::options().read(true).write(true).create(true).truncate(true).open(path).unwrap();
    file.write_all(bytes).unwrap();
    file.sync_all().unwrap();
    file
}

/// The drive writes what comes out: pieces, a beginning amid the file, a rest that fills no block, what lies
/// behind it.
fn landed(engine: &Engine) {
    let (source, session) = (File::open("/mnt/one").unwrap(), engine.session().unwrap());
    let bytes = std::fs::read("/mnt/one").unwrap();
    let length = bytes.len() as u64;
    for (from, at, size) in
        [(0, 0, length), (0, 8192, 1 << 20), (4567, 512, 1 << 20), (length - 100, 4096, 4196)]
    {
        let file = written("/mnt/landed", &vec![0xee; size as usize]);
        let sink = Sink::file(&file, at).near_storage();
        let done = session.transfer(Source::file(&source, from..), [Op::Md5], sink).unwrap().wait().unwrap();
        let count = (length - from) as usize;
        assert_eq!(done.bytes_out, count as u64);
        drop(file);
        let found = std::fs::read("/mnt/landed").unwrap();
        let (before, rest) = found.split_at(at as usize);
        assert!(rest[..count] == bytes[from as usize..], "from {from} to {at}");
        assert!(
            before.iter().chain(&rest[count..]).all(|byte| *byte == 0xee),
            "beside it, from {from} to {at}"
        );
        assert_eq!(found.len() as u64, size);
    }
    // Into several ranges.
    let file = written("/mnt/landed", &[0xee; 1 << 20]);
    let sink = Sink::extents(&file, &[(65_536, 8192), (4096, 512), (131_072, 900_000)]).near_storage();
    let done = session.transfer(Source::file(&source, ..), [Op::Md5], sink).unwrap().wait().unwrap();
    assert_eq!(done.bytes_out, length);
    drop(file);
    let found = std::fs::read("/mnt/landed").unwrap();
    let pieces = [&found[65_536..][..8192], &found[4096..][..512], &found[131_072..][..bytes.len() - 8704]];
    assert!(pieces.concat() == bytes && found[4608..65_536].iter().all(|byte| *byte == 0xee));
    // Of another length, and back, to a file in pieces.
    let packed = written("/mnt/packed", &vec![0; 1 << 20]);
    let sink = Sink::file(&packed, 0).near_storage();
    let chain = [Op::Crc32c, Op::Gzip { level: 1 }];
    let done = session.transfer(Source::file(&source, ..), chain, sink).unwrap().wait().unwrap();
    drop(packed);
    let pieces = File::options().read(true).write(true).open("/mnt/two").unwrap();
    let room = pieces.metadata().unwrap().len();
    let packed = File::open("/mnt/packed").unwrap();
    let back = |room: u64| {
        let source = Source::file(&packed, ..done.bytes_out);
        let chain = [Op::Gunzip, Op::Slice { skip: 7, take: room }];
        session.transfer(source, chain, Sink::file(&pieces, 0).near_storage()).unwrap().wait()
    };
    let error = back(room + 1).unwrap_err();
    assert_eq!(error.status, Status::CapacityExceeded, "{error}");
    assert_eq!(back(room).unwrap().bytes_out, room);
    drop(pieces);
    assert!(std::fs::read("/mnt/two").unwrap() == bytes[7..7 + room as usize]);
    // What cannot be.
    let refused = |sink: Sink, words: &str| {
        let error =
            session.transfer(Source::file(&source, ..), [Op::Md5], sink.near_storage()).unwrap().wait();
        let error = error.unwrap_err();
        assert!(error.status == Status::PathUnavailable && error.to_string().contains(words), "{error}");
    };
    let file = written("/mnt/landed", &[0xee; 1 << 20]);
    refused(Sink::file(&file, 100), "amid a logical block");
    let other = File::open("/mnt/landed").unwrap();
    refused(Sink::file(&file, 0), "somebody else has the file open");
    drop(other);
    refused(Sink::memory(1 << 20), "no file");
    refused(Sink::file(&written("/tmp/landed", &[0; 1 << 20]), 0), "no virtual drive");
    let room = File::create_new("/mnt/room").unwrap();
    nix::fcntl::fallocate(&room, FallocateFlags::empty(), 0, 1 << 20).unwrap();
    refused(Sink::file(&room, 0), "never written");
    let none = session.transfer(Source::file(&source, ..), [], Sink::file(&file, 0).near_storage());
    assert!(matches!(none, Err(dcs::Error::NotNear)));
    drop(file);
    assert!(std::fs::read("/mnt/landed").unwrap().iter().all(|byte| *byte == 0xee));
}

/// The drive writes what the guest sends, through a chain: of memory, of a file elsewhere, of a pipe, of any length, into pieces.
fn fed(engine: &Engine) {
    let session = engine.session().unwrap();
    let bytes: Vec<u8> = (0..1_300_007u32).map(|at| (at / 9 % 253) as u8).collect();
    std::fs::write("/tmp/source", &bytes).unwrap();
    let elsewhere = File::open("/tmp/source").unwrap();
    let near = |source: Source, chain: &[Op], file: &File, at: u64| {
        let sink = Sink::file(file, at).near_storage();
        session.request(source, chain.to_vec(), sink).durable().submit().unwrap().wait()
    };
    let expected = md5("/tmp/source");
    let (mut out, pipe) = (bytes.clone(), nix::unistd::pipe().unwrap());
    let writer = std::thread::spawn(move || {
        let mut file = File::from(pipe.1);
        (0..bytes.len()).step_by(50_000).for_each(|at| {
            file.write_all(&bytes[at..bytes.len().min(at + 50_000)]).unwrap();
        });
        bytes
    });
    let sources = [Source::fd(&pipe.0), Source::memory(out.clone()), Source::file(&elsewhere, ..)];
    for source in sources {
        // What lies behind it stays.
        let file = written("/mnt/landed", &vec![0xee; 1_400_000]);
        let done = near(source, &[Op::Md5], &file, 4096).unwrap();
        assert_eq!((done.digests[0].to_string(), done.bytes_out), (expected.clone(), out.len() as u64));
        assert_eq!(done.bytes_in, out.len() as u64);
        assert!(done.path.names().any(|name| name == "beside the disk"));
        drop(file);
        let found = std::fs::read("/mnt/landed").unwrap();
        assert!(found[4096..][..out.len()] == out && found.len() == 1_400_000);
        assert!(found[..4096].iter().chain(&found[4096 + out.len()..]).all(|byte| *byte == 0xee));
    }
    let bytes = writer.join().unwrap();
    // Of another length, and into a file in pieces, which is as long as what comes out.
    let packed = written("/mnt/packed", &vec![0; 1 << 20]);
    let done = near(Source::memory(bytes.clone()), &[Op::Md5, Op::Gzip { level: 1 }], &packed, 0).unwrap();
    assert_eq!(done.digests[0].to_string(), expected);
    drop(packed);
    let packed = std::fs::read("/mnt/packed").unwrap()[..done.bytes_out as usize].to_vec();
    let pieces = File::options().read(true).write(true).open("/mnt/two").unwrap();
    let room = pieces.metadata().unwrap().len();
    let take = |take: u64| [Op::Gunzip, Op::Slice { skip: 11, take }];
    let error = near(Source::memory(packed.clone()), &take(room + 1), &pieces, 0).unwrap_err();
    assert_eq!(error.status, Status::CapacityExceeded, "{error}");
    assert_eq!(near(Source::memory(packed.clone()), &take(room), &pieces, 0).unwrap().bytes_out, room);
    drop(pieces);
    out = std::fs::read("/mnt/two").unwrap();
    assert!(out == bytes[11..11 + room as usize]);
    // The operator that fails, and a source that ends too early, are told.
    let file = written("/mnt/landed", &vec![0xee; 1 << 20]);
    let error = near(Source::memory(bytes[..5000].to_vec()), &[Op::Gunzip], &file, 0).unwrap_err();
    assert_eq!(error.status, Status::CorruptData, "{error}");
    let sink = Sink::file(&file, 0).near_storage();
    let (reader, writer) = nix::unistd::pipe().unwrap();
    File::from(writer).write_all(&bytes[..5000]).unwrap();
    let request = session.request(Source::fd(&reader), [Op::Md5], sink);
    let error = request.length(6000).submit().unwrap().wait().unwrap_err();
    assert_eq!(error.status, Status::EndOfSource, "{error}");
}

/// Bytes that come first, a length, and how long the operators worked.
fn first(engine: &Engine) {
    let (file, session) = (File::open("/mnt/one").unwrap(), engine.session().unwrap());
    let expected = [vec![9; 20_000], std::fs::read("/mnt/one").unwrap()].concat();
    for length in [7, 20_000, 20_001, 300_000] {
        let request = session.request(Source::file(&file, ..), [Op::Crc32c, Op::Md5], Sink::memory(1 << 20));
        let done = request.prefix(vec![9; 20_000]).length(length).submit().unwrap().wait().unwrap();
        assert!(done.memory.unwrap() == expected[..length as usize], "{length}");
        let worked: Vec<_> = done.breakdown.stages.iter().filter(|stage| stage.operations > 0).collect();
        for name in ["crc32c", "md5"] {
            assert!(worked.iter().any(|stage| stage.name == name && !stage.busy.is_zero()), "{worked:?}");
        }
    }
    let request = session.request(Source::file(&file, ..), [Op::Md5], Sink::memory(1 << 20));
    let error = request.prefix(&b"before"[..]).length(10 << 20).submit().unwrap().wait().unwrap_err();
    assert_eq!(error.status, Status::EndOfSource);
}

/// A block device; the drive deciphers what lies there before the chain sees it.
fn encrypted(engine: &Engine) {
    let written = Command::new("sh")
        .args(["-c", "seq 1 300000 | dd of=$SEALED bs=4k conv=fsync,notrunc 2>/dev/null"])
        .status();
    assert!(written.unwrap().success());
    let file = File::open(std::env::var("SEALED").unwrap()).unwrap();
    let session = engine.session().unwrap();
    let chain = [Op::Md5, Op::Gzip { level: 1 }];
    let source = Source::file(&file, 1000..1_000_000);
    let done = session.transfer(source, chain, Sink::memory(1_000_000)).unwrap().wait().unwrap();
    let output =
        Command::new("sh").args(["-c", "seq 1 300000 | head -c 1000000 | tail -c 999000 | md5sum"]).output();
    assert_eq!(done.digests[0].to_string(), String::from_utf8_lossy(&output.unwrap().stdout)[..32]);
    std::fs::write("/tmp/packed", done.memory.unwrap()).unwrap();
    let output = Command::new("sh").args(["-c", "gunzip -c /tmp/packed | md5sum"]).output();
    assert_eq!(done.digests[0].to_string(), String::from_utf8_lossy(&output.unwrap().stdout)[..32]);
}

/// Of a file that is not in the page cache, nothing is read by the guest.
fn large(engine: &Engine) {
    let block: Vec<u8> = (0..1u32 << 20).map(|at| (at / 7) as u8).collect();
    let mut file = File::create("/mnt/large").unwrap();
    (0..48).for_each(|_| file.write_all(&block).unwrap());
    file.sync_all().unwrap();
    drop(file);
    let expected = md5("/mnt/large");
    let copy = File::options().read(true).write(true).create_new(true).open("/mnt/copy").unwrap();
    dcs::card::extents::prepare(&copy, 48 << 20).unwrap();
    std::fs::write("/proc/sys/vm/drop_caches", "3").unwrap();
    println!("@large");
    answered();
    let (value, done) = digest(engine, &File::open("/mnt/large").unwrap(), null()).unwrap();
    assert_eq!((&value, done.bytes_in, done.bytes_out), (&expected, 48 << 20, 48 << 20));
    let large = File::open("/mnt/large").unwrap();
    let session = engine.session().unwrap();
    let request =
        session.request(Source::file(&large, ..), [Op::Md5], Sink::file(&copy, 0).near_storage()).durable();
    assert_eq!(request.submit().unwrap().wait().unwrap().digests[0].to_string(), expected);
    println!("@digested");
    answered();
    assert_eq!(md5("/mnt/copy"), expected);
}
