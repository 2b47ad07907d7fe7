//! Crash tests: a process that uses the store is killed, at random instants and at chosen ones. Afterwards the store
//! has what it acknowledged.
//!
//! The process is this test binary itself, with [`CHILD`] set. It prints a line before and after each
//! operation.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::extent::Extent;
use super::kill_points::DIE_AT;
use super::record::AtRest;
use super::*;

/// Set in the child: `folder durability first-serial`.
const CHILD: &str = "DCS_STORE_CHILD";
/// Number of rounds, 30 by default.
const ROUNDS: &str = "DCS_STORE_CRASHES";

const THREADS: u64 = 4;
const KEYS: u64 = 5;

pub(super) fn wait<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

/// Largest object in a pack, so that about half of the objects are in packs.
pub(super) const PACK: u64 = 32 << 10;

/// Returns the data that the operation of that number writes: 0 to 64 KiB.
pub(super) fn content(serial: u64, part: u64) -> Vec<u8> {
    let length = serial.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48;
    (0..length).map(|at| (serial * 31 + part * 7 + at) as u8).collect()
}

pub(super) fn segment(draft: &mut Draft, data: &[u8], durability: Durability) -> Segment {
    // The commit writes data that go to a pack.
    if draft.is_file() {
        trace::writes(&draft.path(), 0, data);
    }
    draft.fill(data.to_vec()).unwrap();
    if durability == Durability::Full {
        draft.sync().unwrap();
    }
    Segment {
        id: draft.id(),
        size: data.len() as u64,
        stored: data.len() as u64,
        md5: [0; 16],
        checksum: None,
    }
}

pub(super) fn object(serial: u64, segments: Vec<Segment>) -> Object {
    Object {
        size: segments.iter().map(|segment| segment.size).sum(),
        etag: serial.to_string(),
        modified: serial,
        in_parts: segments.len() == 2,
        segments,
        at_rest: AtRest::default(),
        headers: Default::default(),
        tags: Vec::new(),
        checksum: None,
        quarantined: None,
    }
}

pub(super) fn put(store: &Store, key: &str, serial: u64) -> Result<(), StoreError> {
    let data = content(serial, 0);
    let mut draft = store.draft_of(data.len() as u64, data.len() as u64, 0)?;
    let object = object(serial, vec![segment(&mut draft, &data, store.durability())]);
    wait(store.put("b", key, object, vec![draft], Condition::None))
}

pub(super) fn put_in_parts(store: &Store, key: &str, serial: u64) -> Result<(), StoreError> {
    let upload = Upload {
        initiated: serial,
        owner: String::new(),
        at_rest: AtRest::default(),
        headers: Default::default(),
        tags: Vec::new(),
        checksum: None,
    };
    let id = wait(store.create_upload("b", key, upload))?;
    let mut segments = Vec::new();
    // The last one is not used.
    for number in [1, 2, 3] {
        let mut draft = store.draft()?;
        let data = content(serial, number.into());
        let part = Part { modified: serial, segment: segment(&mut draft, &data, store.durability()) };
        segments.push(part.segment.clone());
        wait(store.put_part("b", key, &id, number, part, draft))?;
    }
    segments.pop();
    wait(store.complete("b", key, &id, vec![1, 2], object(serial, segments), Condition::None))
}

/// Not a test of its own: runs in the process that is killed. Ends by itself after a while.
#[test]
fn child() {
    let Ok(orders) = std::env::var(CHILD) else { return };
    let orders: Vec<_> = orders.split(' ').collect();
    let durability = orders[1].parse().unwrap();
    let (store, _) = open(Path::new(orders[0]), durability);
    let say = |line: String| std::io::stdout().write_all(line.as_bytes()).unwrap();
    // The test's name is on this line.
    say("\n".into());
    let serial = AtomicU64::new(orders[2].parse().unwrap());
    // Wherever it is killed, this file is unfinished.
    let _unfinished = store.draft().unwrap();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (store, serial) = (&store, &serial);
            scope.spawn(move || {
                for _ in 0..10_000 {
                    let serial = serial.fetch_add(1, Ordering::Relaxed);
                    let key = format!("{thread}-{}", serial % KEYS);
                    let kind = if serial.is_multiple_of(7) { "delete" } else { "put" };
                    say(format!("begin {kind} {key} {serial}\n"));
                    match serial % 7 {
                        0 => drop(wait(store.delete("b", vec![key.clone()])).unwrap()),
                        1 | 2 => put_in_parts(store, &key, serial).unwrap(),
                        _ => put(store, &key, serial).unwrap(),
                    }
                    say(format!("end {kind} {key} {serial}\n"));
                }
            });
        }
    });
}

fn command(dir: &Path, durability: Durability, serial: u64) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "store::crash_tests::child", "--nocapture"]);
    command.env(CHILD, format!("{} {durability} {serial}", dir.display()));
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    command
}

/// Serial numbers that may be under each key: of the last put, or none.
pub(super) type States = BTreeMap<String, BTreeSet<Option<u64>>>;

/// Adds a process's output to what was known before.
pub(super) fn follow(states: &mut States, output: &str) {
    for line in output.lines() {
        let words: Vec<_> = line.split(' ').collect();
        let [when @ ("begin" | "end"), kind, key, serial] = words[..] else { continue };
        let state = (kind == "put").then(|| serial.parse().unwrap());
        let possible = states.entry(key.to_owned()).or_insert_with(|| BTreeSet::from([None]));
        if when == "end" {
            possible.clear();
        }
        possible.insert(state);
    }
}

/// Checks that the store holds one of the states for each key, whole, and its folder no other file.
pub(super) fn check(store: &Store, dir: &Path, states: &mut States) {
    let (mut referred, mut packed) = (BTreeSet::new(), BTreeSet::new());
    for (key, possible) in states.iter_mut() {
        let object = store.object("b", key).unwrap();
        let serial = object.as_ref().map(|object| object.modified);
        assert!(possible.contains(&serial), "{key} is {serial:?}, not one of {possible:?}");
        *possible = BTreeSet::from([serial]);
        let Some(object) = object else { continue };
        for (at, segment) in object.segments.iter().enumerate() {
            let part = if object.in_parts { at as u64 + 1 } else { 0 };
            let data = store.open_segment(segment).unwrap().read().unwrap();
            assert!(data == content(object.modified, part), "{key}: other data than were put");
            let of = if segment.is_packed() { &mut packed } else { &mut referred };
            of.insert(segment.id);
        }
    }
    let uploads = store.uploads("b", &UploadListing { max: usize::MAX, ..UploadListing::default() }).unwrap();
    for (key, id, _) in uploads.uploads {
        let parts = store.parts("b", &key, &id, 0, usize::MAX).unwrap();
        referred.extend(parts.iter().map(|(_, part)| part.segment.id));
        for (_, part) in parts {
            store.open_segment(&part.segment).unwrap();
        }
    }
    assert_eq!(files(dir), referred, "files and what refers to them");
    let extents: Vec<Extent> = packed.iter().filter_map(|id| Extent::of(*id)).collect();
    assert_eq!(packs(dir, &extents), BTreeSet::from_iter(extents.iter().map(|extent| extent.pack)));
    assert_eq!(wait(store.repair(true)).unwrap().extents, 0, "data that nothing refers to");
}

fn files(dir: &Path) -> BTreeSet<u64> {
    let folders = fs::read_dir(dir.join("data")).unwrap();
    let files = folders.flat_map(|folder| fs::read_dir(folder.unwrap().path()).unwrap());
    files.map(|file| u64::from_str_radix(file.unwrap().file_name().to_str().unwrap(), 16).unwrap()).collect()
}

/// Returns the packs, and checks that they take no more room than these extents of them.
fn packs(dir: &Path, extents: &[Extent]) -> BTreeSet<u64> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(dir.join("packs")).unwrap() {
        let entry = entry.unwrap();
        let id = u64::from_str_radix(entry.file_name().to_str().unwrap(), 16).unwrap();
        let of_pack = extents.iter().filter(|extent| extent.pack == id);
        let room: u64 = of_pack.map(|extent| extent.bytes().end - extent.bytes().start).sum();
        // The file system's own blocks come on top.
        let taken = entry.metadata().unwrap().blocks() * 512;
        assert!(taken <= room + (64 << 10), "pack {id:x} takes {taken} bytes for {room}");
        found.insert(id);
    }
    found
}

pub(super) fn open(dir: &Path, durability: Durability) -> (Arc<Store>, Recovery) {
    // A process that another test has just forked inherits this one's files, and with them the lock, until it runs its
    // program.
    let until = std::time::Instant::now() + Duration::from_secs(20);
    loop {
        match Store::open(dir, Options { durability, pack: PACK }) {
            Err(StoreError::InUse(_)) if std::time::Instant::now() < until => std::thread::yield_now(),
            opened => return opened.unwrap(),
        }
    }
}

/// Returns a number for each round, below `limit`.
fn scatter(round: u64, limit: u64) -> u64 {
    (round.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33) % limit
}

/// Reads a process's output until it has acknowledged this many operations. A process that was just started may have
/// none.
fn listen(output: &mut impl Read, operations: u64) -> Vec<u8> {
    let (mut said, mut line, mut seen) = (Vec::new(), 0, 0);
    while seen < operations {
        let mut byte = [0];
        output.read_exact(&mut byte).expect("the child goes on");
        said.extend(byte);
        if byte == *b"\n" {
            seen += u64::from(said[line..].starts_with(b"end "));
            line = said.len();
        }
    }
    said
}

#[test]
fn what_was_acknowledged_survives_a_kill() {
    let rounds = std::env::var(ROUNDS).map_or(30, |rounds| rounds.parse().unwrap());
    let dir = tempfile::tempdir().unwrap();
    let mut states = States::new();
    wait(open(dir.path(), Durability::Full).0.create_bucket("b", Bucket::default())).unwrap();
    let (mut crashes, mut acknowledged) = (0, 0);
    for round in 0..rounds {
        let durability = [Durability::Full, Durability::Metadata, Durability::None][round as usize % 3];
        let mut child = command(dir.path(), durability, round << 32).spawn().unwrap();
        let mut output = child.stdout.take().unwrap();
        // Every fourth process is killed while it starts, or soon afterwards.
        let operations = if round % 4 == 3 { 0 } else { 1 + scatter(round, 24) };
        let mut said = listen(&mut output, operations);
        std::thread::sleep(Duration::from_micros(scatter(round + 1, 16_000)));
        child.kill().unwrap();
        output.read_to_end(&mut said).unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(9), "it was killed while it ran");
        let said = String::from_utf8(said).unwrap();
        acknowledged += said.lines().filter(|line| line.starts_with("end ")).count();
        follow(&mut states, &said);
        let (store, recovery) = open(dir.path(), durability);
        crashes += u64::from(recovery.crashed);
        check(&store, dir.path(), &mut states);
    }
    println!("{rounds} kills, {crashes} of an open store, {acknowledged} acknowledged operations");
    assert!(crashes >= rounds / 2 && acknowledged > rounds as usize);
}

/// Replaces an object in a process that kills itself at `place`, and opens the store again.
fn die_at(place: &str) -> (tempfile::TempDir, Arc<Store>, Recovery) {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = open(dir.path(), Durability::Full);
    wait(store.create_bucket("b", Bucket::default())).unwrap();
    // The child's first operation of each thread replaces one of these.
    for thread in 0..THREADS {
        for key in 0..KEYS {
            put(&store, &format!("{thread}-{key}"), 1).unwrap();
        }
    }
    drop(store);
    let mut command = command(dir.path(), Durability::Full, 3);
    let output = command.stderr(Stdio::piped()).env(DIE_AT, place).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), Some(9), "it died at its point: {errors}");
    assert!(!String::from_utf8_lossy(&output.stdout).contains("end") || place == "before the removal");
    let (store, recovery) = open(dir.path(), Durability::Full);
    let mut states = States::new();
    for thread in 0..THREADS {
        for key in 0..KEYS {
            states.insert(format!("{thread}-{key}"), BTreeSet::from([Some(1)]));
        }
    }
    follow(&mut states, &String::from_utf8_lossy(&output.stdout));
    check(&store, dir.path(), &mut states);
    (dir, store, recovery)
}

fn replaced(store: &Store) -> usize {
    let listed = store.list("b", &Listing { max: 100, ..Listing::default() }).unwrap();
    listed.objects.iter().filter(|(_, object)| object.modified != 1).count()
}

#[test]
fn killed_before_the_commit_all_is_as_it_was() {
    let (_dir, store, recovery) = die_at("before the commit");
    assert_eq!(replaced(&store), 0);
    assert!(recovery.crashed && recovery.unfinished > 0 && recovery.garbage == 0, "{recovery:?}");
}

#[test]
fn killed_after_the_commit_it_has_happened() {
    let (_dir, store, recovery) = die_at("after the commit");
    assert!(replaced(&store) > 0);
    assert!(recovery.crashed && recovery.garbage > 0, "{recovery:?}");
}

#[test]
fn killed_before_the_removal_the_next_start_removes() {
    let (_dir, store, recovery) = die_at("before the removal");
    assert!(replaced(&store) > 0);
    assert!(recovery.crashed && recovery.garbage > 0, "{recovery:?}");
}
