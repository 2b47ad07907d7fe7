//! The store in trouble: a full disk, bytes that changed; and how many small puts a second it takes.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use dcs::page_cache;
use dcs_server::store::record::AtRest;
use dcs_server::store::*;

fn wait<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

fn open(dir: &Path, durability: Durability) -> Arc<Store> {
    // A process that another test has just forked has this one's files until it runs its program, and with
    // them the lock.
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        match Store::open(dir, Options { durability, pack: 0 }) {
            Err(StoreError::InUse(_)) if Instant::now() < until => std::thread::yield_now(),
            opened => return opened.expect("the store opens").0,
        }
    }
}

fn empty(etag: &str) -> Object {
    Object {
        size: 0,
        etag: etag.into(),
        modified: 1,
        segments: Vec::new(),
        in_parts: false,
        at_rest: AtRest::default(),
        headers: Default::default(),
        tags: Vec::new(),
        checksum: None,
        quarantined: None,
    }
}

fn object(draft: &mut Draft, data: &[u8], etag: &str) -> Object {
    draft.fill(data.to_vec()).unwrap();
    let size = data.len() as u64;
    let segment = Segment { id: draft.id(), size, stored: size, md5: [0; 16], checksum: None };
    Object { size, segments: vec![segment], ..empty(etag) }
}

fn put(store: &Store, key: &str, data: &[u8], etag: &str) -> Result<(), StoreError> {
    let mut draft = store.draft_of(data.len() as u64, data.len() as u64, 0)?;
    let object = object(&mut draft, data, etag);
    if store.durability() == Durability::Full {
        draft.sync()?;
    }
    wait(store.put("b", key, object, vec![draft], Condition::None))
}

/// Set in the process that has a small file system of its own: its path.
const SMALL: &str = "DCS_STORE_SMALL";

/// Not a test of its own: runs [`a_full_disk_changes_nothing`] on a small file system.
#[test]
fn on_a_small_file_system() {
    let Some(dir) = std::env::var_os(SMALL) else { return };
    let (dir, filler) = (Path::new(&dir).join("store"), Path::new(&dir).join("filler"));
    let store = open(&dir, Durability::Full);
    wait(store.create_bucket("b", Bucket::default())).unwrap();
    put(&store, "k", b"old", "old").unwrap();
    let (draft, mut small) = (store.draft().unwrap(), store.draft().unwrap());

    fill(&filler);
    assert!(matches!(store.draft(), Err(StoreError::NoSpace)));
    let Target::File(mut file) = draft.target() else { panic!("a draft in memory") };
    let full = file.write_all(&[1; 1 << 20]).unwrap_err();
    assert_eq!(full.kind(), ErrorKind::StorageFull);
    drop(draft);
    fill(&filler);
    // Puts records until there is no room: the database's own file has some left.
    let mut tagged = 0;
    let error = loop {
        let tag = |bucket: &mut Bucket| bucket.tags.push(("t".into(), "x".repeat(1 << 20)));
        match wait(store.change_bucket("b", tag)) {
            Ok(()) => tagged += 1,
            Err(error) => break error,
        }
        assert!(tagged < 1000);
    };
    assert!(matches!(error, StoreError::NoSpace), "{error}");
    let mut huge = object(&mut small, b"", "huge");
    huge.headers.metadata.push(("m".into(), "x".repeat(8 << 20)));
    let refused = wait(store.put("b", "k", huge, vec![small], Condition::None));
    assert!(matches!(refused, Err(StoreError::NoSpace)), "{refused:?}");
    assert_eq!(store.object("b", "k").unwrap().unwrap().etag, "old", "it can be read as before");
    assert_eq!(store.bucket("b").unwrap().unwrap().tags.len(), tagged);

    fs::remove_file(&filler).unwrap();
    put(&store, "k", b"new", "new").expect("with room again it goes on");
    wait(store.change_bucket("b", |bucket| bucket.tags.clear())).unwrap();
    drop(store);
    let store = open(&dir, Durability::Full);
    assert_eq!(store.object("b", "k").unwrap().unwrap().etag, "new");
    assert_eq!(store.bucket("b").unwrap().unwrap().tags.len(), 0);
    let files = fs::read_dir(dir.join("data/0")).unwrap().count();
    assert_eq!(files, 1, "what was refused left no file");
    println!("done after {tagged} changes");
}

fn fill(path: &Path) {
    let mut file = File::options().create(true).append(true).open(path).unwrap();
    let mut piece = 1 << 20;
    while piece > 0 {
        match file.write(&vec![0; piece]) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::StorageFull => piece /= 2,
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn a_full_disk_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    // A mount of the process's own, which goes away with it.
    let script = format!("mount -t tmpfs -o size=64m none {0} && exec \"$@\"", dir.path().display());
    let may = Command::new("unshare").args(["-m", "sh", "-c", &script, "sh", "true"]).output();
    if !may.as_ref().is_ok_and(|output| output.status.success()) {
        println!("skipped: no file system may be mounted here: {may:?}");
        return;
    }
    let output = Command::new("unshare")
        .args(["-m", "sh", "-c", &script, "sh"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "on_a_small_file_system", "--nocapture"])
        .env(SMALL, dir.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("done after"), "{said}{errors}");
}

#[test]
fn a_byte_of_a_record_that_changed_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let (etag, mark) = ("3d1f-an-etag-that-is-nowhere-else", "owner-who-is-nowhere-else");
    let store = open(dir.path(), Durability::None);
    wait(store.create_bucket("b", Bucket { owner: mark.into(), ..Bucket::default() })).unwrap();
    put(&store, "bad", b"one", etag).unwrap();
    put(&store, "good", b"two", "good").unwrap();
    drop(store);
    let path = dir.path().join("meta.redb");
    let whole = fs::read(&path).unwrap();
    let change = |pattern: &str, at: usize| {
        let mut bytes = whole.clone();
        let places: Vec<_> =
            (0..bytes.len()).filter(|at| bytes[*at..].starts_with(pattern.as_bytes())).collect();
        assert!(!places.is_empty());
        places.into_iter().for_each(|place| bytes[place + at] ^= 0x10);
        fs::write(&path, bytes).unwrap();
        open(dir.path(), Durability::None)
    };
    let damaged = |result: Result<(), StoreError>| matches!(result, Err(StoreError::Damaged(_)));
    // In the text, and after it.
    for at in [0, 7, etag.len() + 1] {
        let store = change(etag, at);
        assert!(damaged(store.object("b", "bad").map(drop)));
        assert!(damaged(wait(store.change_object("b", "bad", |_| {}))));
        // The others are listed and scrubbed as before, and its key is among them.
        let listed = store.list("b", &Listing { max: 9, ..Listing::default() }).unwrap().objects;
        let listed: Vec<_> =
            listed.iter().map(|(key, object)| (key.as_str(), object.etag.as_str())).collect();
        assert_eq!(listed, [("bad", "unreadable"), ("good", "good")]);
        let all = store.objects_after(None, 9).unwrap();
        assert!(damaged(all[0].2.clone().map(drop)) && all[1].2.as_ref().unwrap().etag == "good");
        assert_eq!(store.object("b", "good").unwrap().unwrap().etag, "good");
        put(&store, "good", b"new", "good").expect("the others go on");
        // An object with an unreadable record meets no condition.
        let mut draft = store.draft().unwrap();
        let new = object(&mut draft, b"new", "new");
        let refused = wait(store.put("b", "bad", new, vec![draft], Condition::Matches(etag.into())));
        assert!(matches!(refused, Err(StoreError::ConditionFailed)));
        put(&store, "bad", b"newer", "newer").expect("it can be put again");
        assert_eq!(store.object("b", "bad").unwrap().unwrap().etag, "newer");
        drop(store);
        let store = change(etag, at);
        wait(store.delete("b", vec!["good".into(), "bad".into()])).expect("and deleted");
        assert!(store.objects_after(None, 9).unwrap().is_empty());
    }
    let store = change(mark, 3);
    assert!(matches!(store.bucket("b"), Err(StoreError::Damaged(_))));
    assert_eq!(store.buckets().unwrap().len(), 1);
}

#[test]
fn keys_out_of_order_send_nobody_round_for_ever() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), Durability::None);
    wait(store.create_bucket("b", Bucket::default())).unwrap();
    let middle = "b-a-key-that-is-nowhere-else";
    for key in ["a", middle, "c"] {
        put(&store, key, b"data", "etag").unwrap();
    }
    drop(store);
    let path = dir.path().join("meta.redb");
    let mut bytes = fs::read(&path).unwrap();
    let places: Vec<_> = (0..bytes.len()).filter(|at| bytes[*at..].starts_with(middle.as_bytes())).collect();
    assert!(!places.is_empty());
    // Its key is after c now, but its record is stored before it.
    places.into_iter().for_each(|place| bytes[place] ^= 0x10);
    fs::write(&path, bytes).unwrap();
    let store = open(dir.path(), Durability::None);
    let mut after = None;
    let ended = (0..10).find_map(|_| match store.objects_after(after.take(), 1) {
        Ok(page) => {
            after = page.into_iter().map(|(bucket, key, _)| (bucket, key)).next_back();
            after.is_none().then_some(Ok(()))
        }
        Err(error) => Some(Err(error)),
    });
    assert!(matches!(ended, Some(Err(StoreError::Damaged(_)))), "{ended:?}");
}

#[test]
fn a_repair_removes_what_can_t_be_read_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let (etag, mark) = ("3d1f-an-etag-that-is-nowhere-else", "owner-who-is-nowhere-else");
    let store = open(dir.path(), Durability::None);
    wait(store.create_bucket("b", Bucket { owner: mark.into(), ..Bucket::default() })).unwrap();
    put(&store, "bad", b"one", etag).unwrap();
    put(&store, "good", b"second", "good").unwrap();
    let upload = |owner: &str| Upload {
        initiated: 1,
        owner: owner.into(),
        at_rest: AtRest::default(),
        headers: Default::default(),
        tags: Vec::new(),
        checksum: None,
    };
    let mut parts = Vec::new();
    for owner in ["uploader-who-is-nowhere-else", "fine"] {
        let id = wait(store.create_upload("b", "u", upload(owner))).unwrap();
        let mut draft = store.draft().unwrap();
        let segment = object(&mut draft, b"part", "").segments.remove(0);
        wait(store.put_part("b", "u", &id, 1, Part { modified: 1, segment }, draft)).unwrap();
        parts.push(id);
    }
    assert!(wait(store.repair(false)).unwrap().is_nothing());
    drop(store);
    let path = dir.path().join("meta.redb");
    let mut bytes = fs::read(&path).unwrap();
    for pattern in [etag, mark, "uploader-who-is-nowhere-else"] {
        let places: Vec<_> =
            (0..bytes.len()).filter(|at| bytes[*at..].starts_with(pattern.as_bytes())).collect();
        places.into_iter().for_each(|place| bytes[place] ^= 0x10);
    }
    fs::write(&path, bytes).unwrap();
    let store = open(dir.path(), Durability::None);
    let expected = Repaired {
        objects: vec!["b/bad".into()],
        buckets: vec!["b".into()],
        uploads: 2,
        files: 2,
        extents: 0,
    };
    assert_eq!(wait(store.repair(true)).unwrap(), expected);
    assert!(store.object("b", "bad").is_err(), "that was only to tell");
    assert_eq!(wait(store.repair(false)).unwrap(), expected);
    assert!(wait(store.repair(false)).unwrap().is_nothing());
    assert!(store.object("b", "bad").unwrap().is_none());
    let good = store.object("b", "good").unwrap().unwrap();
    store.open_segment(&good.segments[0]).unwrap();
    assert_eq!(store.parts("b", "u", &parts[1], 0, 9).unwrap().len(), 1);
    assert!(matches!(store.parts("b", "u", &parts[0], 0, 9), Err(StoreError::NoSuchUpload)));
    let usage = store.usage().unwrap();
    assert_eq!((usage.objects, usage.uploads, usage.bytes, usage.stored), (1, 1, 6, 6));
    // The bucket can be used again.
    put(&store, "new", b"new", "new").unwrap();
    drop(store);
    let files = |folder: std::path::PathBuf| fs::read_dir(folder).unwrap().count();
    let folders = fs::read_dir(dir.path().join("data")).unwrap();
    assert_eq!(folders.map(|folder| files(folder.unwrap().path())).sum::<usize>(), 3);
}

/// A damaged record of an object in a pack leaves its data there, for a repair to remove.
#[test]
fn a_repair_removes_bytes_that_no_record_refers_to() {
    let dir = tempfile::tempdir().unwrap();
    let etag = "3d1f-an-etag-that-is-nowhere-else";
    let reopened =
        || Store::open(dir.path(), Options { durability: Durability::None, pack: 1 << 20 }).unwrap().0;
    let store = reopened();
    wait(store.create_bucket("b", Bucket::default())).unwrap();
    put(&store, "bad", &[1; 100_000], etag).unwrap();
    put(&store, "good", &[2; 100_000], "good").unwrap();
    assert!(wait(store.repair(true)).unwrap().is_nothing());
    drop(store);
    let path = dir.path().join("meta.redb");
    let mut bytes = fs::read(&path).unwrap();
    let places: Vec<_> = (0..bytes.len()).filter(|at| bytes[*at..].starts_with(etag.as_bytes())).collect();
    places.into_iter().for_each(|place| bytes[place] ^= 0x10);
    fs::write(&path, bytes).unwrap();
    let store = reopened();
    let expected = Repaired { objects: vec!["b/bad".into()], extents: 1, ..Repaired::default() };
    assert_eq!(wait(store.repair(true)).unwrap(), expected);
    assert_eq!(wait(store.repair(false)).unwrap(), expected);
    assert!(wait(store.repair(false)).unwrap().is_nothing());
    let good = store.object("b", "good").unwrap().unwrap();
    assert_eq!(store.open_segment(&good.segments[0]).unwrap().read().unwrap(), [2; 100_000]);
}

fn opened(segment: Result<Opened, StoreError>) -> Arc<File> {
    segment.unwrap().file
}

#[test]
fn a_scrub_s_file_is_not_in_memory() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), Durability::None);
    wait(store.create_bucket("b", Bucket::default())).unwrap();
    put(&store, "k", &[7; 100_000], "etag").unwrap();
    let segment = store.object("b", "k").unwrap().unwrap().segments.remove(0);
    let in_memory = |file: &File| page_cache::cached(file.as_fd(), 0, 100_000).unwrap();
    let file = opened(store.open_segment(&segment));
    assert_eq!(in_memory(&file), 25, "it was just written");
    file.sync_all().unwrap();
    if page_cache::forget(file.as_fd(), 0, 100_000).unwrap() > 0 {
        return println!("skipped: files here are in memory and nowhere else");
    }
    std::io::copy(&mut &*file, &mut std::io::sink()).unwrap();
    assert_eq!(in_memory(&file), 25, "it was just read");
    let file = opened(store.open_on_disk(&segment));
    assert_eq!(in_memory(&file), 0);
}

#[test]
#[ignore = "figures: run it alone, with --release --nocapture; DCS_STORE_DIR says where"]
fn small_puts_a_second() {
    let root = std::env::var_os("DCS_STORE_DIR").unwrap_or_else(|| std::env::temp_dir().into());
    for durability in [Durability::Full, Durability::Metadata, Durability::None] {
        for threads in [1, 8, 64] {
            let dir = tempfile::tempdir_in(&root).unwrap();
            let store = open(dir.path(), durability);
            wait(store.create_bucket("b", Bucket::default())).unwrap();
            let (puts, start) = (AtomicU64::new(0), Instant::now());
            std::thread::scope(|scope| {
                for thread in 0..threads {
                    let (store, puts) = (&store, &puts);
                    scope.spawn(move || {
                        while start.elapsed() < Duration::from_secs(3) {
                            let number = puts.fetch_add(1, Ordering::Relaxed);
                            put(store, &format!("{thread}/{number}"), &[7; 4096], "etag").unwrap();
                        }
                    });
                }
            });
            let rate = puts.load(Ordering::Relaxed) as f64 / start.elapsed().as_secs_f64();
            assert_eq!(store.usage().unwrap().objects, puts.into_inner());
            println!("{durability}, {threads} at a time: {rate:.0} puts of 4 KiB a second");
        }
    }
}

#[test]
#[ignore = "figures: run it alone, with --release --nocapture; DCS_STORE_DIR says where"]
fn a_start_after_a_crash() {
    let root = std::env::var_os("DCS_STORE_DIR").unwrap_or_else(|| std::env::temp_dir().into());
    for objects in [6_400, 64_000, 640_000] {
        let dir = tempfile::tempdir_in(&root).unwrap();
        let store = open(dir.path(), Durability::None);
        wait(store.create_bucket("b", Bucket::default())).unwrap();
        let put =
            |key: String| wait(store.put("b", &key, empty("etag"), Vec::new(), Condition::None)).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..64 {
                scope.spawn(move || (0..objects / 64).for_each(|number| put(format!("{thread}/{number}"))));
            }
        });
        // A killed process would leave this.
        let copy = tempfile::tempdir_in(&root).unwrap();
        fs::create_dir(copy.path().join("data")).unwrap();
        fs::copy(dir.path().join("meta.redb"), copy.path().join("meta.redb")).unwrap();
        let start = Instant::now();
        let (crashed, recovery) = Store::open(copy.path(), Options::default()).unwrap();
        println!("{objects} objects: {:?}", start.elapsed());
        assert!(recovery.crashed);
        assert_eq!(crashed.usage().unwrap().objects, objects);
    }
}
