//! Power-loss tests: the store's writes and syncs are recorded, and every state of the disk that a power loss may leave
//! is made from them, opened and checked. What was acknowledged at [`Durability::Full`] is there, whole.
//!
//! A disk keeps what was synced. Of what was not, each sector of a file has any of the contents written to it since the
//! last sync, a file any of its lengths, and a folder any of the names made or removed in it, each independently. All
//! of these states are tried if they are few. Otherwise many are drawn by a seeded generator, in addition to those
//! where nothing and where everything is there.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::crash_tests::{States, check, content, follow, object, open, put, put_in_parts, segment, wait};
use super::trace::{Event, Recorder};
use super::*;
use dcs_testkit::Random;

/// Number of disk states for each place where the power goes, 6 by default.
const LOSSES: &str = "DCS_STORE_LOSSES";
/// The unit that a disk writes as a whole.
const SECTOR: u64 = 512;

/// Choice among the possible contents of a disk, the first of which is what was synced.
enum Choice {
    /// Everything that was synced, and nothing after it.
    Oldest,
    /// Everything that was written.
    Newest,
    /// Any.
    Any(Random),
    /// The state of this number, among all.
    Numbered(u128),
}

impl Choice {
    fn of(&mut self, states: usize) -> usize {
        match self {
            Choice::Oldest => 0,
            Choice::Newest => states - 1,
            Choice::Any(random) => random.index(states),
            Choice::Numbered(rest) => {
                let state = *rest % states as u128;
                *rest /= states as u128;
                state as usize
            }
        }
    }
}

/// A file of the disk, before its contents are chosen.
#[derive(Clone, Debug, Default)]
struct File {
    /// Bytes that are certainly there.
    bytes: Vec<u8>,
    /// Later changes that may be on the disk in part: number of the event, and the change.
    since: Vec<(usize, Change)>,
}

#[derive(Clone, Debug)]
enum Change {
    Bytes(u64, Vec<u8>),
    Length(u64),
}

impl File {
    fn apply(bytes: &mut Vec<u8>, change: &Change) {
        match change {
            Change::Bytes(at, data) => {
                let (at, end) = (*at as usize, *at as usize + data.len());
                bytes.resize(bytes.len().max(end), 0);
                bytes[at..end].copy_from_slice(data);
            }
            Change::Length(length) => bytes.resize(*length as usize, 0),
        }
    }

    /// Keeps everything from before the beginning of the sync for good.
    fn synced(&mut self, begun: usize) {
        let (now, later): (Vec<_>, Vec<_>) = self.since.drain(..).partition(|(at, _)| *at < begun);
        now.iter().for_each(|(_, change)| File::apply(&mut self.bytes, change));
        self.since = later;
    }

    /// Loses everything from before, unless it is written again.
    fn lost(&mut self, begun: usize) {
        self.since.retain(|(at, _)| *at >= begun);
    }

    /// Chooses the file's content on the disk.
    fn choose(&self, choice: &mut Choice) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        // Any of its lengths.
        let mut lengths = vec![bytes.len()];
        let mut length = bytes.len();
        let mut sectors: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
        for (number, (_, change)) in self.since.iter().enumerate() {
            match change {
                Change::Length(new) => length = *new as usize,
                Change::Bytes(at, data) => {
                    length = length.max(*at as usize + data.len());
                    let last = (at + data.len() as u64).div_ceil(SECTOR);
                    for sector in at / SECTOR..last {
                        sectors.entry(sector).or_default().push(number);
                    }
                }
            }
            if lengths.last() != Some(&length) {
                lengths.push(length);
            }
        }
        let length = lengths[choice.of(lengths.len())];
        // Each sector has any of its writes.
        for (sector, writes) in sectors {
            let kept = choice.of(writes.len() + 1);
            for number in &writes[..kept] {
                let Change::Bytes(at, data) = &self.since[*number].1 else { continue };
                let from = at.max(&(sector * SECTOR)) - at;
                let to = (at + data.len() as u64).min((sector + 1) * SECTOR) - at;
                let piece = Change::Bytes(at + from, data[from as usize..to as usize].to_vec());
                File::apply(&mut bytes, &piece);
            }
        }
        bytes.resize(length, 0);
        bytes
    }
}

/// A name's changes since its folder was synced.
#[derive(Clone, Debug, Default)]
struct Name {
    /// Content that is certain: a file by its number, a folder, or nothing.
    is: Option<Node>,
    since: Vec<(usize, Option<Node>)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Node {
    File(usize),
    Folder,
}

impl Name {
    fn now(&self) -> Option<Node> {
        self.since.last().map_or(self.is, |(_, node)| *node)
    }
}

/// A disk, with everything that may or may not be on it.
#[derive(Clone, Debug, Default)]
struct Disk {
    files: Vec<File>,
    names: BTreeMap<PathBuf, Name>,
}

impl Disk {
    /// Makes the disk after these events.
    fn after(events: &[Event]) -> Disk {
        let mut disk = Disk::default();
        events.iter().enumerate().for_each(|(at, event)| disk.happens(at, event));
        disk
    }

    fn file(&mut self, path: &Path) -> Option<&mut File> {
        match self.names.get(path)?.now()? {
            Node::File(number) => Some(&mut self.files[number]),
            Node::Folder => None,
        }
    }

    fn name(&mut self, at: usize, path: &Path, node: Option<Node>) {
        self.names.entry(path.into()).or_default().since.push((at, node));
    }

    fn happens(&mut self, at: usize, event: &Event) {
        match event {
            Event::Write(path, offset, data) => {
                let file = self.file(path).expect("what is written has a name");
                file.since.push((at, Change::Bytes(*offset, data.clone())));
            }
            Event::Resize(path, length) => {
                self.file(path).expect("it has a name").since.push((at, Change::Length(*length)));
            }
            Event::File(path) => {
                self.files.push(File::default());
                self.name(at, path, Some(Node::File(self.files.len() - 1)));
            }
            Event::Folder(path) => self.name(at, path, Some(Node::Folder)),
            Event::Rename(from, to) => {
                let node = self.names[from].now();
                self.name(at, from, None);
                self.name(at, to, node);
            }
            Event::Remove(path) => {
                if self.names.contains_key(path) {
                    self.name(at, path, None);
                }
            }
            Event::Synced(path, begun) => match self.file(path) {
                Some(file) => file.synced(*begun),
                None => self.folder_synced(path, *begun),
            },
            Event::SyncFailed(path, begun) => {
                if let Some(file) = self.file(path) {
                    file.lost(*begun);
                }
            }
            Event::Note(_) => {}
        }
    }

    fn folder_synced(&mut self, folder: &Path, begun: usize) {
        for (path, name) in &mut self.names {
            if path.parent() == Some(folder) {
                while name.since.first().is_some_and(|(at, _)| *at < begun) {
                    name.is = name.since.remove(0).1;
                }
            }
        }
    }

    /// Makes one of the possible disks: its names are those in `from`, its folder is `to`.
    fn make(&self, from: &Path, to: &Path, choice: &mut Choice) {
        for (path, name) in &self.names {
            let kept = choice.of(name.since.len() + 1);
            let node = if kept == 0 { name.is } else { name.since[kept - 1].1 };
            let place = to.join(path.strip_prefix(from).unwrap());
            // Everything in a lost folder is lost.
            if !place.parent().is_some_and(Path::is_dir) {
                continue;
            }
            match node {
                Some(Node::Folder) => fs::create_dir(&place).unwrap(),
                Some(Node::File(number)) => fs::write(&place, self.files[number].choose(choice)).unwrap(),
                None => {}
            }
        }
    }

    /// Returns the number of possible disks, as far as names and files tell it separately.
    fn states(&self) -> u128 {
        let names = self.names.values().map(|name| name.since.len() as u128 + 1);
        let files = self.files.iter().map(|file| {
            let sectors: u64 = file
                .since
                .iter()
                .map(|(_, change)| match change {
                    Change::Bytes(_, data) => (data.len() as u64).div_ceil(SECTOR) + 1,
                    Change::Length(_) => 1,
                })
                .sum();
            1_u128.checked_shl(u32::try_from(sectors).unwrap_or(u32::MAX)).unwrap_or(u128::MAX)
        });
        names.chain(files).fold(1, u128::saturating_mul)
    }
}

/// Runs operations on a store by some threads at the same time. Returns its events.
fn events_of(dir: &Path, threads: u64, operations: u64) -> Vec<Event> {
    let recorder = Recorder::start(dir);
    let (store, _) = open(&dir.join("store/deep"), Durability::Full);
    wait(store.create_bucket("b", Bucket::default())).unwrap();
    recorder.note("bucket".into());
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (store, recorder) = (&store, &recorder);
            scope.spawn(move || {
                for number in 0..operations {
                    let serial = 1 + thread + number * threads;
                    let key = format!("{thread}-{}", number % 3);
                    let kind = if number % 5 == 4 { "delete" } else { "put" };
                    recorder.note(format!("begin {kind} {key} {serial}"));
                    match number % 5 {
                        4 => drop(wait(store.delete("b", vec![key.clone()])).unwrap()),
                        2 => put_in_parts(store, &key, serial).unwrap(),
                        _ => put(store, &key, serial).unwrap(),
                    }
                    recorder.note(format!("end {kind} {key} {serial}"));
                }
            });
        }
    });
    drop(store);
    std::mem::take(&mut *recorder.events())
}

/// Returns what clients had been told by then: the possible states of each key, and true if the bucket must exist.
fn told(events: &[Event]) -> (States, bool) {
    let mut states = States::new();
    let mut bucket = false;
    for event in events {
        let Event::Note(text) = event else { continue };
        bucket |= text == "bucket";
        follow(&mut states, text);
    }
    (states, bucket)
}

/// Opens a possible disk, and checks it.
fn look(disk: &Disk, from: &Path, events: &[Event], choice: &mut Choice, what: &str) {
    let dir = tempfile::tempdir().unwrap();
    disk.make(from, dir.path(), choice);
    let place = dir.path().join("store/deep");
    let (mut states, bucket) = told(events);
    // Recovery is the same at every level, and this one does not wait for this machine's own disk.
    let opened = Store::open(&place, Options { durability: Durability::None, ..Options::default() });
    let store = opened.unwrap_or_else(|error| panic!("{what}: {error}")).0;
    let there = store.bucket("b").unwrap().is_some();
    assert!(there || !bucket, "{what}: the bucket is lost");
    if there {
        check(&store, &place, &mut states);
        // The store goes on.
        put(&store, "after", 99).unwrap();
    }
}

/// Takes the power away at every event, or at this many of them, and tries some of the possible disks each time.
fn lose_power(dir: &Path, events: &[Event], most: usize) -> usize {
    let losses = std::env::var(LOSSES).map_or(6, |losses| losses.parse().unwrap());
    let mut tried = 0;
    let step = events.len().div_ceil(most).max(1);
    let mut disk = Disk::default();
    for at in 0..=events.len() {
        if at % step == 0 || at == events.len() {
            let few = disk.states() <= losses as u128;
            let numbered = (0..if few { disk.states() } else { 0 }).map(Choice::Numbered);
            let drawn = (0..if few { 0 } else { losses }).map(|number| match number {
                0 => Choice::Oldest,
                1 => Choice::Newest,
                number => Choice::Any(Random((at as u64) << 20 | number as u64)),
            });
            for (number, mut choice) in numbered.chain(drawn).enumerate() {
                let what = format!("power lost after event {at} of {}, disk {number}", events.len());
                look(&disk, dir, &events[..at], &mut choice, &what);
                tried += 1;
            }
        }
        if let Some(event) = events.get(at) {
            disk.happens(at, event);
        }
    }
    tried
}

#[test]
fn a_power_loss_takes_nothing_that_was_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let events = events_of(dir.path(), 1, 6);
    let one = lose_power(dir.path(), &events, 50);
    let dir = tempfile::tempdir().unwrap();
    let events = events_of(dir.path(), 4, 6);
    let more = lose_power(dir.path(), &events, 50);
    println!("{one} disks after one client, {more} after four at a time");
    assert!(one > 50 && more > 150);
}

/// Returns the events without those that `without` selects, as of a store that leaves them out.
fn without(events: &[Event], without: impl Fn(&Event) -> bool) -> Vec<Event> {
    // The remaining ones keep their numbers, which syncs refer to.
    let blank = |event: &Event| if without(event) { Event::Note(String::new()) } else { event.clone() };
    events.iter().map(blank).collect()
}

#[test]
fn a_store_that_does_not_sync_is_found_out() {
    type Is<'a> = dyn Fn(&Path) -> bool + 'a;
    let dir = tempfile::tempdir().unwrap();
    let events = events_of(dir.path(), 1, 6);
    let synced = |event: &Event, is: &Is<'_>| matches!(event, Event::Synced(path, _) if is(path));
    let is_data = |path: &Path| path.parent().is_some_and(|above| above.ends_with("data/0"));
    let cases: [(&str, &Is<'_>); 6] = [
        ("packs", &|path| path.parent().is_some_and(|above| above.ends_with("packs"))),
        ("the database", &|path| path.ends_with("meta.redb")),
        ("data files", &is_data),
        ("names of data files", &|path| path.ends_with("data/0")),
        ("the names of data folders", &|path| path.ends_with("deep/data")),
        ("the store's own name", &|path| path.ends_with("store") || path == dir.path()),
    ];
    for (what, is) in cases {
        let bad = without(&events, |event| synced(event, is));
        assert!(
            bad.iter()
                .zip(&events)
                .any(|(bad, event)| matches!((bad, event), (Event::Note(_), Event::Synced(..)))),
            "{what}"
        );
        let found = std::panic::catch_unwind(|| {
            let disk = Disk::after(&bad);
            for number in 0..8 {
                let mut choice = if number == 0 { Choice::Oldest } else { Choice::Any(Random(number)) };
                look(&disk, dir.path(), &bad, &mut choice, what);
            }
        });
        assert!(found.is_err(), "{what}: what is not synced is not missed");
    }
}

#[test]
fn what_a_failed_sync_loses_is_not_built_upon() {
    let dir = tempfile::tempdir().unwrap();
    let recorder = Recorder::start(dir.path());
    let place = dir.path().join("store/deep");
    let (store, _) = open(&place, Durability::Full);
    wait(store.create_bucket("b", Bucket::default())).unwrap();
    recorder.note("bucket".into());
    let attempt = |key: &str, serial: u64| {
        recorder.note(format!("begin put {key} {serial}"));
        let done = put(&store, key, serial);
        if done.is_ok() {
            recorder.note(format!("end put {key} {serial}"));
        }
        done
    };
    attempt("a", 1).unwrap();
    // After the failure, memory and disk differ, and a read after the kernel has dropped memory sees the disk.
    let root = dir.path().to_owned();
    recorder.fail_next_sync("meta.redb", move |recorder, file| {
        let disk = Disk::after(&recorder.events());
        let there = disk.names[file].now();
        let Some(Node::File(number)) = there else { panic!("{} of {}", file.display(), root.display()) };
        let bytes = disk.files[number].choose(&mut Choice::Oldest);
        let memory = std::fs::OpenOptions::new().write(true).open(file).unwrap();
        memory
            .set_len(0)
            .and_then(|()| std::os::unix::fs::FileExt::write_all_at(&memory, &bytes, 0))
            .unwrap();
        memory.sync_all().unwrap();
        rustix::fs::fadvise(&memory, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    });
    let failed = attempt("b", 2);
    assert!(recorder.has_failed() && failed.is_err(), "{failed:?}");
    // It goes on from what the disk has, or not at all if memory can't be dropped.
    let mut goes_on = 0;
    for serial in 3..9 {
        match attempt("c", serial) {
            Ok(()) => goes_on += 1,
            Err(error) => assert!(matches!(error, StoreError::Stopped(_) | StoreError::Closed), "{error}"),
        }
    }
    println!("{goes_on} of 6 changes after the failure");
    let events = recorder.events().clone();
    drop(store);
    let tried = lose_power(dir.path(), &events, 50);
    assert!(tried > 50);
}

#[test]
fn a_folder_that_can_t_be_synced_stops_the_store() {
    let dir = tempfile::tempdir().unwrap();
    let recorder = Recorder::start(dir.path());
    let (store, _) = open(&dir.path().join("store"), Durability::Full);
    wait(store.create_bucket("b", Bucket::default())).unwrap();
    // These are large enough to have files.
    put(&store, "a", 1).unwrap();
    recorder.fail_next_sync("data/0", |_, _| {});
    assert!(matches!(put(&store, "a", 3), Err(StoreError::Unsynced { .. })));
    assert!(matches!(put(&store, "a", 6), Err(StoreError::Stopped(_))));
    drop(store);
    let (store, _) = open(&dir.path().join("store"), Durability::Full);
    assert_eq!(store.object("b", "a").unwrap().unwrap().modified, 1);
    put(&store, "a", 8).unwrap();
}

/// The folder of packs can't be opened once, when the name of a new pack is to be made durable: that put fails, and the
/// next one in the same pack makes the name durable before it is acknowledged.
#[test]
fn a_pack_whose_name_is_not_durable_yet_is_named_by_the_next_put() {
    let dir = tempfile::tempdir().unwrap();
    let recorder = Recorder::start(dir.path());
    let place = dir.path().join("store/deep");
    let (store, _) = open(&place, Durability::Full);
    wait(store.create_bucket("b", Bucket::default())).unwrap();
    recorder.note("bucket".into());
    recorder.note("begin put a 2".into());
    let data = content(2, 0);
    let mut draft = store.draft_of(data.len() as u64, data.len() as u64, 0).unwrap();
    assert!(!draft.is_file(), "it goes to a pack");
    let first = object(2, vec![segment(&mut draft, &data, Durability::Full)]);
    let (packs, away) = (place.join("packs"), place.join("away"));
    fs::rename(&packs, &away).unwrap();
    let failed = wait(store.put("b", "a", first, vec![draft], Condition::None));
    fs::rename(&away, &packs).unwrap();
    assert!(matches!(failed, Err(StoreError::Io { .. })), "{failed:?}");
    assert!(store.object("b", "a").unwrap().is_none());
    let syncs = |events: &[Event]| {
        events.iter().filter(|event| matches!(event, Event::Synced(path, _) if *path == packs)).count()
    };
    let before = syncs(&recorder.events());
    for (serial, more) in [(7, 1), (5, 1)] {
        recorder.note(format!("begin put a {serial}"));
        put(&store, "a", serial).unwrap();
        recorder.note(format!("end put a {serial}"));
        assert_eq!(syncs(&recorder.events()) - before, more, "once for the pack");
    }
    let events = recorder.events().clone();
    drop(store);
    assert!(lose_power(dir.path(), &events, 50) > 50);
}

/// Returns the first numbers of operations whose data go to a pack.
fn small(count: usize) -> Vec<u64> {
    let is_small = |serial: &u64| content(*serial, 0).len() as u64 <= super::crash_tests::PACK;
    (1..).filter(is_small).take(count).collect()
}

/// Makes a store whose writes a recorder takes down, with a bucket.
fn recorded(dir: &Path) -> (Arc<Recorder>, Arc<Store>) {
    let recorder = Recorder::start(dir);
    let (store, _) = open(&dir.join("store/deep"), Durability::Full);
    wait(store.create_bucket("b", Bucket::default())).unwrap();
    recorder.note("bucket".into());
    (recorder, store)
}

fn noted(recorder: &Recorder, store: &Store, key: &str, serial: u64) -> Result<(), StoreError> {
    recorder.note(format!("begin put {key} {serial}"));
    let done = put(store, key, serial);
    if done.is_ok() {
        recorder.note(format!("end put {key} {serial}"));
    }
    done
}

/// Counts the successful syncs of files that `is` selects.
fn syncs(events: &[Event], is: impl Fn(&Path) -> bool) -> usize {
    events.iter().filter(|event| matches!(event, Event::Synced(path, _) if is(path))).count()
}

/// Small objects are durable by the sync of their pack alone, and the database has them later.
#[test]
fn the_journal_loses_nothing_that_was_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let (recorder, store) = recorded(dir.path());
    let is_database = |path: &Path| path.ends_with("meta.redb");
    let is_pack = |path: &Path| path.parent().is_some_and(|above| above.ends_with("packs"));
    for (at, serial) in small(12).into_iter().enumerate() {
        let before = recorder.events().len();
        noted(&recorder, &store, &format!("{}", at % 3), serial).unwrap();
        let events = &recorder.events()[before..];
        let expected = if at == 0 { (1, 1) } else { (0, 1) };
        assert_eq!((syncs(events, is_database), syncs(events, is_pack)), expected, "put {at}");
    }
    // Another kind of change takes all of them into the database.
    recorder.note("begin delete 0 99".into());
    assert!(wait(store.delete("b", vec!["0".into()])).unwrap()[0]);
    recorder.note("end delete 0 99".into());
    for (at, serial) in small(16)[12..].iter().enumerate() {
        noted(&recorder, &store, &format!("{}", at % 3), *serial).unwrap();
    }
    let running = recorder.events().clone();
    drop(store);
    let closed = recorder.events().clone();
    assert!(lose_power(dir.path(), &closed, 80) > 80);
    let is_synced_pack = |event: &Event| matches!(event, Event::Synced(path, _) if is_pack(path));
    let bad = without(&running, is_synced_pack);
    let found = std::panic::catch_unwind(|| {
        look(&Disk::after(&bad), dir.path(), &bad, &mut Choice::Oldest, "packs are not synced");
    });
    assert!(found.is_err(), "what is not synced is not missed");
}

/// The journal can't be synced once: that put fails, and has happened or not after a crash. The next ones do not
/// depend on it.
#[test]
fn an_entry_that_can_t_be_synced_is_not_built_upon() {
    let dir = tempfile::tempdir().unwrap();
    let (recorder, store) = recorded(dir.path());
    let serials = small(8);
    noted(&recorder, &store, "a", serials[0]).unwrap();
    noted(&recorder, &store, "b", serials[1]).unwrap();
    let id = store.object("b", "a").unwrap().unwrap().segments[0].id;
    let pack = super::extent::Extent::of(id).unwrap().pack;
    recorder.fail_next_sync(format!("packs/{pack:016x}").leak(), |_, _| {});
    let failed = noted(&recorder, &store, "a", serials[2]);
    assert!(recorder.has_failed() && matches!(failed, Err(StoreError::Io { .. })), "{failed:?}");
    assert_eq!(store.object("b", "a").unwrap().unwrap().modified, serials[0]);
    for serial in &serials[3..] {
        noted(&recorder, &store, "a", *serial).unwrap();
        noted(&recorder, &store, "b", *serial).unwrap();
    }
    let events = recorder.events().clone();
    drop(store);
    assert!(lose_power(dir.path(), &events, 60) > 60);
}

/// Returns an event in another folder, as one that came after `more` others.
fn moved(event: &Event, (from, to): (&Path, &Path), more: usize) -> Event {
    let place = |path: &Path| to.join(path.strip_prefix(from).unwrap());
    match event {
        Event::Write(path, offset, data) => Event::Write(place(path), *offset, data.clone()),
        Event::Resize(path, length) => Event::Resize(place(path), *length),
        Event::File(path) => Event::File(place(path)),
        Event::Folder(path) => Event::Folder(place(path)),
        Event::Rename(before, after) => Event::Rename(place(before), place(after)),
        Event::Remove(path) => Event::Remove(place(path)),
        Event::Synced(path, begun) => Event::Synced(place(path), begun + more),
        Event::SyncFailed(path, begun) => Event::SyncFailed(place(path), begun + more),
        Event::Note(text) => Event::Note(text.clone()),
    }
}

/// A process is killed when it has written an entry of the journal and not synced it, and the power goes while or after
/// the next one starts: what the entry would replace was acknowledged, and is there unless all of the entry is.
#[test]
fn an_entry_that_a_killed_process_did_not_sync_is_not_built_upon() {
    let dir = tempfile::tempdir().unwrap();
    let (recorder, store) = recorded(dir.path());
    for (key, serial) in ["a", "b", "a"].into_iter().zip(small(3)) {
        noted(&recorder, &store, key, serial).unwrap();
    }
    let mut events = recorder.events().clone();
    drop(store);
    let is_pack = |path: &Path| path.parent().is_some_and(|above| above.ends_with("packs"));
    let synced = |event: &Event| matches!(event, Event::Synced(path, _) if is_pack(path));
    let killed = events.iter().rposition(synced).unwrap();
    events.truncate(killed);
    // The next process finds in memory what the killed one wrote.
    let next = tempfile::tempdir().unwrap();
    Disk::after(&events).make(dir.path(), next.path(), &mut Choice::Newest);
    let recorder = Recorder::start(next.path());
    let (store, recovery) = open(&next.path().join("store/deep"), Durability::Full);
    assert!(recovery.crashed);
    assert_eq!(store.object("b", "a").unwrap().unwrap().modified, small(3)[2], "the entry is taken");
    let later = recorder.events().clone();
    drop(store);
    let mut all: Vec<_> = events.iter().map(|event| moved(event, (dir.path(), next.path()), 0)).collect();
    all.extend(later.iter().map(|event| moved(event, (next.path(), next.path()), killed)));
    for end in killed..=all.len() {
        let (disk, what) = (Disk::after(&all[..end]), format!("after event {end} of {}", all.len()));
        for number in 0..4 {
            let mut choice = if number == 0 { Choice::Oldest } else { Choice::Any(Random(number)) };
            look(&disk, next.path(), &all[..end], &mut choice, &what);
        }
    }
}

/// The database fails while the journal has what it lacks: it is opened again, and has all that was acknowledged.
#[test]
fn a_database_that_failed_takes_the_journal_again() {
    let dir = tempfile::tempdir().unwrap();
    let (recorder, store) = recorded(dir.path());
    let serials = small(6);
    for (key, serial) in ["a", "b", "a", "c"].into_iter().zip(&serials) {
        noted(&recorder, &store, key, *serial).unwrap();
    }
    recorder.fail_next_sync("meta.redb", |_, _| {});
    let failed = wait(store.delete("b", vec!["c".into()]));
    assert!(recorder.has_failed() && failed.is_err(), "{failed:?}");
    // This machine's kernel may keep the database in memory: the store has stopped then.
    if store.takes_changes() {
        let modified = |key: &str| store.object("b", key).unwrap().map(|object| object.modified);
        assert_eq!([modified("a"), modified("b")], [Some(serials[2]), Some(serials[1])]);
        noted(&recorder, &store, "d", serials[4]).unwrap();
    }
    drop(store);
    let (store, _) = open(&dir.path().join("store/deep"), Durability::Full);
    let modified = |key: &str| store.object("b", key).unwrap().map(|object| object.modified);
    assert_eq!([modified("a"), modified("b")], [Some(serials[2]), Some(serials[1])]);
    assert_eq!(wait(store.repair(true)).unwrap(), Repaired::default());
}

/// A read of the database fails once, and puts go on in the journal alone: the database is opened again, though no
/// change of another kind comes, and lists all of them.
#[test]
fn a_database_that_a_reader_saw_fail_is_opened_again() {
    let dir = tempfile::tempdir().unwrap();
    let (recorder, store) = recorded(dir.path());
    noted(&recorder, &store, "a", small(1)[0]).unwrap();
    drop(store);
    let (store, _) = open(&dir.path().join("store/deep"), Durability::Full);
    let listed = || store.list("b", &super::Listing { max: 10, ..Default::default() });
    recorder.fail_next_read("meta.redb");
    let failed = listed();
    assert!(recorder.has_failed() && matches!(failed, Err(StoreError::Database(_))), "{failed:?}");
    let begun = std::time::Instant::now();
    while listed().is_err() {
        assert!(begun.elapsed() < std::time::Duration::from_secs(30), "it fails for good");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert_eq!(listed().unwrap().objects.len(), 1);
}

/// A record that stays unreadable does not cost a commit each time that somebody reads it.
#[test]
fn a_database_that_fails_for_readers_is_looked_at_once_in_a_while() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = open(dir.path(), Durability::Full);
    let begun = std::time::Instant::now();
    let looks = (0..1000).filter(|_| store.committer.look()).count() as u64;
    assert!((1..=1 + begun.elapsed().as_secs()).contains(&looks), "{looks} looks");
}

#[test]
fn what_can_t_be_removed_is_tried_again_at_each_start() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = open(dir.path(), Durability::Full);
    wait(store.create_bucket("b", Bucket::default())).unwrap();
    drop(store);
    // A crash leaves this of a put in progress; it can't be removed, because it is a folder.
    let (store, _) = open(dir.path(), Durability::Full);
    let draft = store.draft().unwrap();
    let path = draft.path();
    draft.leave();
    drop(store);
    assert!(path.is_file());
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    for _ in 0..3 {
        let (store, recovery) = open(dir.path(), Durability::Full);
        assert_eq!(recovery.unfinished, 1);
        // Enough drafts that ids are reserved again.
        (0..5000).for_each(|_| drop(store.draft().unwrap()));
        put(&store, "k", 1).unwrap();
    }
    fs::remove_dir(&path).unwrap();
    fs::write(&path, content(1, 1)).unwrap();
    let (_store, recovery) = open(dir.path(), Durability::Full);
    assert_eq!((recovery.unfinished, path.exists()), (1, false));
}
