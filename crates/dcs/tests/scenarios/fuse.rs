//! Files of a FUSE file system that this process serves: disks that fail halfway, destinations that take
//! nothing, files that tell no size. Needs root and /dev/fuse; skipped elsewhere.

use crate::ends::{Kind, Rest, drain, file_with, read_behind, stream, tcp4, write_behind};
use crate::oracle;
use crate::rig::{BLOCK, data, eventually, for_each_backend, skip, watched};
use dcs::{Op, Sink, Source, Stage, Status};
use std::ffi::CString;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Bytes of a file that can be read; behind them the disk fails.
const SOUND: usize = 40 * BLOCK;

/// A file system with the files that [`NAMES`] tells of.
struct Fuse {
    files: Vec<File>,
    end: Option<Sender<()>>,
    threads: Vec<JoinHandle<()>>,
}

/// `broken` cannot be read from [`SOUND`] on; `mute` takes no byte that is written; `short` takes 1000 at
/// once; `unsized` says that it is empty; whoever reads, writes or flushes `stuck` waits from one flush of
/// `short` to the next; `late` takes everything, and says when it is closed that there was no room for it.
const NAMES: [&str; 6] = ["broken", "mute", "short", "unsized", "stuck", "late"];
const BROKEN: usize = 0;
const MUTE: usize = 1;
const SHORT: usize = 2;
const UNSIZED: usize = 3;
const STUCK: usize = 4;
const LATE: usize = 5;

impl Fuse {
    fn mount() -> Result<Fuse, String> {
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let device =
            File::options().read(true).write(true).open("/dev/fuse").map_err(|error| error.to_string())?;
        let (ready, mounted) = channel();
        let (end, ended) = channel::<()>();
        // A mount namespace is a thread's: nobody else sees the file system, and it goes with the threads.
        let server = std::thread::spawn(move || {
            let path = CString::new(folder.path().to_str().unwrap()).unwrap();
            if let Err(error) = mount_alone(&device, &path) {
                return ready.send(Err(error.to_string())).unwrap();
            }
            let opener = std::thread::spawn(move || {
                let open = |name: &str| File::options().read(true).write(true).open(folder.path().join(name));
                let files: Result<Vec<File>, _> = NAMES.iter().map(|name| open(name)).collect();
                ready.send(files.map_err(|error| error.to_string())).unwrap();
                let _ = ended.recv();
                // SAFETY: a system call with a string that ends in 0.
                unsafe { libc::umount2(path.as_ptr(), libc::MNT_DETACH) };
            });
            serve(device);
            opener.join().unwrap();
        });
        let files = mounted.recv().unwrap();
        Ok(Fuse { files: files?, end: Some(end), threads: vec![server] })
    }
}

impl Drop for Fuse {
    fn drop(&mut self) {
        self.files.clear();
        self.end = None;
        self.threads.drain(..).for_each(|thread| thread.join().unwrap());
    }
}

fn mount_alone(device: &File, path: &CString) -> std::io::Result<()> {
    let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
    let options = CString::new(options).unwrap();
    // SAFETY: system calls with strings that end in 0; the namespace is this thread's alone.
    let codes = unsafe {
        if libc::unshare(libc::CLONE_NEWNS | libc::CLONE_FS) != 0 {
            return Err(std::io::Error::last_os_error());
        }
        let private = libc::MS_REC | libc::MS_PRIVATE;
        let none = std::ptr::null();
        [
            libc::mount(none, c"/".as_ptr(), none, private, none.cast()),
            libc::mount(c"dcs".as_ptr(), path.as_ptr(), c"fuse".as_ptr(), 0, options.as_ptr().cast()),
        ]
    };
    if codes == [0, 0] { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

/// Answers the kernel until the file system is gone (linux/fuse.h, version 7.31).
fn serve(mut device: File) {
    let (mut request, bytes) = (vec![0; 1 << 20], data(2 * SOUND));
    let (mut keeps, mut kept) = (false, Vec::new());
    loop {
        let length = match device.read(&mut request) {
            Ok(length) => length,
            Err(error) if error.raw_os_error() == Some(libc::EINTR) => continue,
            Err(_) => return,
        };
        let number = |at: usize| u32::from_le_bytes(request[at..at + 4].try_into().unwrap());
        let long = |at: usize| u64::from_le_bytes(request[at..at + 8].try_into().unwrap());
        let (unique, node) = (long(8), long(16));
        let file = (node as usize).wrapping_sub(2);
        if keeps && file == STUCK && matches!(number(4), 15 | 16 | 20) {
            kept.push(unique);
            continue;
        }
        if file == SHORT && number(4) == 20 {
            keeps = !keeps;
            for unique in kept.drain(..) {
                answer(&mut device, unique, Err(libc::EIO));
            }
        }
        let answered = match number(4) {
            // FORGET, INTERRUPT, BATCH_FORGET have no answer.
            2 | 36 | 42 => continue,
            // LOOKUP
            1 => {
                let name = &request[40..length - 1];
                match NAMES.iter().position(|known| known.as_bytes() == name) {
                    Some(at) => Ok(entry(at as u64 + 2)),
                    None => Err(libc::ENOENT),
                }
            }
            // GETATTR, SETATTR
            3 | 4 => Ok([numbers(&[0, 0]), attributes(node)].concat()),
            // OPEN: past the page cache, but for the one whose pages are to be sent.
            14 => Ok(numbers(&[0, u64::from(node != BROKEN as u64 + 2)])),
            // READ
            15 => read(&bytes, node as usize - 2, long(48) as usize, number(56) as usize),
            // WRITE
            16 => {
                let takes = match file {
                    SHORT => number(56).min(1000),
                    LATE => number(56),
                    _ => 0,
                };
                Ok(numbers(&[u64::from(takes)]))
            }
            // INIT
            26 => {
                let mut words = [0u32; 16];
                (words[0], words[1], words[2], words[5]) = (7, 31, 1 << 17, 1 << 17);
                Ok(words.iter().flat_map(|word| word.to_le_bytes()).collect())
            }
            // FLUSH
            25 if file == LATE => Err(libc::EDQUOT),
            // RELEASE, FLUSH, DESTROY, ACCESS, FSYNC
            18 | 25 | 38 | 34 | 20 => Ok(Vec::new()),
            _ => Err(libc::ENOSYS),
        };
        answer(&mut device, unique, answered);
    }
}

fn answer(device: &mut File, unique: u64, answered: Result<Vec<u8>, i32>) {
    let (error, body) = match answered {
        Ok(body) => (0, body),
        Err(errno) => (-errno, Vec::new()),
    };
    let mut whole = ((16 + body.len()) as u32).to_le_bytes().to_vec();
    whole.extend(i32::to_le_bytes(error));
    whole.extend(unique.to_le_bytes());
    whole.extend(body);
    // ENOENT: nobody waits for it any more.
    let _ = device.write(&whole);
}

fn read(bytes: &[u8], file: usize, offset: usize, length: usize) -> Result<Vec<u8>, i32> {
    match file {
        BROKEN if offset + length > SOUND => Err(libc::EIO),
        _ => Ok(bytes[offset.min(SOUND)..(offset + length).min(SOUND)].to_vec()),
    }
}

fn numbers(all: &[u64]) -> Vec<u8> {
    all.iter().flat_map(|number| number.to_le_bytes()).collect()
}

/// struct fuse_entry_out: node, generation, how long it is good for, attributes.
fn entry(node: u64) -> Vec<u8> {
    [numbers(&[node, 0, 0, 0, 0]), attributes(node)].concat()
}

/// struct fuse_attr.
fn attributes(node: u64) -> Vec<u8> {
    let has_size = [BROKEN, STUCK].iter().any(|file| node == *file as u64 + 2);
    let size = if has_size { 2 * SOUND as u64 } else { 0 };
    let mode = if node == 1 { libc::S_IFDIR | 0o755 } else { libc::S_IFREG | 0o644 };
    let mut attributes = numbers(&[node, size, size / 512, 0, 0, 0]);
    let words = [0, 0, 0, mode, 1, 0, 0, 0, 4096, 0];
    attributes.extend(words.iter().flat_map(|word: &u32| word.to_le_bytes()));
    attributes
}

/// A FUSE file system, if there can be one.
fn mounted() -> Option<Fuse> {
    watched("mounting FUSE", Fuse::mount).map_err(|why| skip("FUSE", &why)).ok()
}

#[test]
fn a_disk_that_fails_is_the_source_by_every_path() {
    let Some(fuse) = mounted() else { return };
    let broken = &fuse.files[BROKEN];
    let bytes = data(2 * SOUND);
    for_each_backend(|bench| {
        for (to, chain) in [Kind::Tcp4, Kind::Unix, Kind::Pipe, Kind::File, Kind::Memory]
            .into_iter()
            .flat_map(|to| [(to, vec![]), (to, vec![Op::Md5])])
        {
            for immutable in [true, false] {
                let sink = drain(to, bytes.len(), None).unwrap();
                let mut into = sink.sink;
                if let Rest::Stream(end, _) = &sink.rest {
                    use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
                    fcntl_setfl(end, fcntl_getfl(end).unwrap() | OFlags::NONBLOCK).unwrap();
                    into = Sink::fd(end);
                }
                let source = Source::file(broken, ..);
                let source = if immutable { source.immutable() } else { source };
                let error = bench.session.transfer(source, chain.clone(), into).unwrap().wait().unwrap_err();
                let what = format!("{to:?} {chain:?} {immutable} {}", bench.backend.name);
                assert_eq!(
                    (error.status, error.stage),
                    (Status::ReadError, Stage::Source),
                    "{what}: {error}"
                );
                assert_eq!(error.errno, libc::EIO, "{what}");
                let delivered = error.completion.bytes_out;
                if let Some(received) = sink.rest.received(delivered, None) {
                    assert_eq!(received.len() as u64, delivered, "{what}");
                    assert!(received == bytes[..received.len()], "{what}");
                }
            }
        }
    });
}

#[test]
fn a_destination_that_takes_nothing_is_no_success() {
    let Some(fuse) = mounted() else { return };
    for_each_backend(|bench| {
        let bytes = data(3 * BLOCK);
        for chain in [vec![], vec![Op::Md5]] {
            for from in [Kind::Tcp4, Kind::Unix, Kind::Pipe, Kind::File, Kind::Memory] {
                let mut writer = None;
                let source = match from {
                    Kind::File => Source::file(&file_with(&bytes), ..),
                    Kind::Memory => Source::memory(&bytes[..]),
                    _ => {
                        let (theirs, ours) = stream(from).unwrap();
                        writer = Some(write_behind(theirs, bytes.clone()));
                        Source::fd(&ours)
                    }
                };
                let sink = Sink::file(&fuse.files[MUTE], 0);
                let error = bench.session.transfer(source, chain.clone(), sink).unwrap().wait().unwrap_err();
                let what = format!("{from:?} {chain:?} {}: {error}", bench.backend.name);
                assert_eq!((error.status, error.stage), (Status::WriteError, Stage::Destination), "{what}");
                assert_eq!(error.completion.bytes_out, 0, "{what}");
                writer.into_iter().for_each(|writer| writer.join().unwrap());
                // One that takes a little at a time takes all.
                let sink = Sink::file(&fuse.files[SHORT], 0);
                let done =
                    bench.session.transfer(Source::memory(&bytes[..]), chain.clone(), sink).unwrap().wait();
                assert_eq!(done.unwrap().bytes_out, bytes.len() as u64, "{what}");
            }
        }
    });
}

#[test]
fn a_file_that_tells_no_size_is_read_to_its_end() {
    let Some(fuse) = mounted() else { return };
    for_each_backend(|bench| {
        for chain in [vec![], vec![Op::Sha1]] {
            let (ours, theirs) = tcp4();
            let reader = read_behind(theirs.into());
            let source = Source::file(&fuse.files[UNSIZED], ..);
            let done =
                bench.session.transfer(source, chain.clone(), Sink::socket(&ours)).unwrap().wait().unwrap();
            drop(ours);
            oracle::check("FUSE", &chain, &data(2 * SOUND)[..SOUND], &done, &reader.join().unwrap());
        }
    });
}

#[test]
fn a_file_system_that_answers_nothing_holds_up_its_own_transfers_and_they_time_out() {
    let Some(fuse) = mounted() else { return };
    let stuck = &fuse.files[STUCK];
    for_each_backend(|bench| {
        let (ours, _theirs) = tcp4();
        ours.set_nonblocking(true).unwrap();
        fuse.files[SHORT].sync_all().unwrap();
        let (here, there) = (file_with(&[]), file_with(&[7; 100]));
        let ways = [
            (Source::file(stuck, ..), vec![Op::Md5], Sink::memory(2 * SOUND)),
            (Source::file(stuck, ..).immutable(), vec![], Sink::socket(&ours)),
            (Source::file(stuck, ..), vec![], Sink::file(&here, 0)),
            (Source::memory(vec![1; 100]), vec![Op::Md5], Sink::file(stuck, 0)),
            (Source::file(&there, ..), vec![], Sink::file(stuck, 0)),
        ];
        let submit = |(source, chain, sink): (Source, Vec<Op>, Sink)| {
            bench.session.request(source, chain, sink).timeout(Duration::from_millis(200)).submit().unwrap()
        };
        let transfers: Vec<_> = ways.into_iter().map(submit).collect();
        bench.copy(b"meanwhile");
        for (at, transfer) in transfers.into_iter().enumerate() {
            let error = transfer.wait().unwrap_err();
            let what = format!("{at}, {}: {error}", bench.backend.name);
            assert_eq!((error.status, error.completion.bytes_out), (Status::Timeout, 0), "{what}");
        }
        // All of that while nothing was answered.
        fuse.files[SHORT].sync_all().unwrap();
        // The calls return one after the other. An engine that its callers drive takes that in when it is
        // driven.
        assert!(eventually(|| {
            bench.copy(b"drives");
            bench.engine.statistics().is_idle
        }));
    });
}

/// File systems of networks and users may say only at a close that what they took is lost.
#[test]
fn a_close_that_fails_is_no_success() {
    let Some(fuse) = mounted() else { return };
    for_each_backend(|bench| {
        let bytes = data(3 * BLOCK + 5);
        let from = file_with(&bytes);
        for chain in [vec![], vec![Op::Md5]] {
            for durable in [false, true] {
                for source in [Source::memory(&bytes[..]), Source::file(&from, ..)] {
                    let sink = Sink::file(&fuse.files[LATE], 0);
                    let request = bench.session.request(source, chain.clone(), sink);
                    let request = if durable { request.durable() } else { request };
                    let error = request.submit().unwrap().wait().unwrap_err();
                    let what = format!("{chain:?} {durable} {}: {error}", bench.backend.name);
                    assert_eq!((error.stage, error.errno), (Stage::Destination, libc::EDQUOT), "{what}");
                    assert_eq!(error.completion.bytes_out, bytes.len() as u64, "{what}");
                }
            }
        }
    });
}
