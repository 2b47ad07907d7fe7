//! The store's operations, one by one, as a server uses them.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use dcs_server::store::record::AtRest;
use dcs_server::store::*;

fn open(dir: &Path) -> Arc<Store> {
    Store::open(dir, Options { durability: Durability::None, ..Options::default() })
        .expect("the store opens")
        .0
}

fn wait<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

fn segment(draft: &mut Draft, data: &[u8]) -> Segment {
    draft.fill(data.to_vec()).unwrap();
    Segment {
        id: draft.id(),
        size: data.len() as u64,
        stored: data.len() as u64,
        md5: [7; 16],
        checksum: None,
    }
}

fn object(segments: Vec<Segment>, etag: &str) -> Object {
    Object {
        size: segments.iter().map(|segment| segment.size).sum(),
        etag: etag.into(),
        modified: 1,
        in_parts: segments.len() > 1,
        segments,
        at_rest: AtRest::default(),
        headers: Default::default(),
        tags: Vec::new(),
        checksum: None,
        quarantined: None,
    }
}

fn upload() -> Upload {
    Upload {
        initiated: 1,
        owner: "me".into(),
        at_rest: AtRest::default(),
        headers: Default::default(),
        tags: Vec::new(),
        checksum: None,
    }
}

fn put_if(store: &Store, key: &str, data: &[u8], condition: Condition) -> Result<(), StoreError> {
    let mut draft = store.draft()?;
    let object = object(vec![segment(&mut draft, data)], &String::from_utf8_lossy(data));
    wait(store.put("b", key, object, vec![draft], condition))
}

fn put(store: &Store, key: &str, data: &[u8]) {
    put_if(store, key, data, Condition::None).unwrap();
}

fn get(store: &Store, key: &str) -> Option<Vec<u8>> {
    let object = store.object("b", key).unwrap()?;
    let mut data = Vec::new();
    for segment in &object.segments {
        data.extend(store.open_segment(segment).unwrap().read().unwrap());
    }
    Some(data)
}

fn with_bucket() -> (tempfile::TempDir, Arc<Store>) {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    wait(store.create_bucket("b", Bucket::default())).unwrap();
    (dir, store)
}

/// Returns the data files. A store that is being closed finishes its removals.
fn files(dir: &Path) -> usize {
    std::fs::read_dir(dir.join("data"))
        .unwrap()
        .map(|folder| std::fs::read_dir(folder.unwrap().path()).unwrap().count())
        .sum()
}

#[test]
fn objects_are_put_replaced_deleted_and_survive() {
    let (dir, store) = with_bucket();
    put(&store, "k", b"one");
    put(&store, "k", b"second");
    put(&store, "gone", b"third");
    assert_eq!(get(&store, "k").unwrap(), b"second");
    let deleted = wait(store.delete("b", vec!["gone".into(), "gone".into(), "never".into()])).unwrap();
    assert_eq!(deleted, [true, false, false]);
    let usage = Usage { buckets: 1, objects: 1, uploads: 0, bytes: 6, stored: 6 };
    assert_eq!(store.usage().unwrap(), usage);
    drop(store);
    assert_eq!(files(dir.path()), 1);
    let store = open(dir.path());
    assert_eq!(get(&store, "k").unwrap(), b"second");
    assert_eq!(store.usage().unwrap(), usage);
}

#[test]
fn a_reader_keeps_what_it_opened() {
    let (_dir, store) = with_bucket();
    put(&store, "k", b"one");
    let record = store.object("b", "k").unwrap().unwrap();
    let file = store.open_segment(&record.segments[0]).unwrap();
    put(&store, "k", b"two");
    // The removal comes after the answer.
    let gone = (0..1000).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(5));
        matches!(store.open_segment(&record.segments[0]), Err(StoreError::NotFound))
    });
    assert!(gone);
    assert_eq!(file.read().unwrap(), b"one");
}

#[test]
fn conditions_are_looked_at_in_the_transaction() {
    let (dir, store) = with_bucket();
    let matches = |etag: &str| Condition::Matches(etag.into());
    assert!(matches!(put_if(&store, "k", b"x", matches("x")), Err(StoreError::NoSuchKey)));
    put_if(&store, "k", b"one", Condition::Absent).unwrap();
    assert!(matches!(put_if(&store, "k", b"two", Condition::Absent), Err(StoreError::ConditionFailed)));
    assert!(matches!(put_if(&store, "k", b"two", matches("zero")), Err(StoreError::ConditionFailed)));
    put_if(&store, "k", b"two", matches("one")).unwrap();
    assert_eq!(get(&store, "k").unwrap(), b"two");
    drop(store);
    assert_eq!(files(dir.path()), 1, "refused drafts are removed");
}

fn put_packed(store: &Store, key: &str, byte: u8) {
    let data = vec![byte; 60_000];
    let mut draft = store.draft_of(60_000, 60_000, 0).unwrap();
    let object = object(vec![segment(&mut draft, &data)], key);
    assert!(object.segments[0].is_packed());
    wait(store.put("b", key, object, vec![draft], Condition::None)).unwrap();
}

/// Returns the packs by the room that they take.
fn packs(dir: &Path) -> Vec<u64> {
    let packs = std::fs::read_dir(dir.join("packs")).unwrap();
    packs.map(|pack| pack.unwrap().metadata().unwrap().blocks() * 512).collect()
}

#[test]
fn a_record_that_was_read_in_time_opens_its_data_or_nothing() {
    let (_dir, store) = with_bucket();
    put_packed(&store, "k", 1);
    let moment = store.now();
    let record = store.object("b", "k").unwrap().unwrap();
    let open = || store.open_segment_of(&record.segments[0], Some(moment));
    assert!(open().unwrap().read().unwrap() == [1; 60_000]);
    assert!(wait(store.delete("b", vec!["k".into()])).unwrap()[0]);
    // Until the removal begins, it may still be opened, and then it stays.
    let gone = (0..1000).any(|_| match open() {
        Ok(opened) => {
            std::thread::sleep(std::time::Duration::from_millis(5));
            assert!(opened.read().unwrap() == [1; 60_000]);
            false
        }
        Err(error) => matches!(error, StoreError::NotFound),
    });
    assert!(gone);
}

#[test]
fn data_in_a_pack_stay_while_they_are_read_and_their_room_comes_back() {
    let (dir, store) = with_bucket();
    put_packed(&store, "read", 1);
    put_packed(&store, "kept", 2);
    let record = store.object("b", "read").unwrap().unwrap();
    let reader = store.open_segment(&record.segments[0]).unwrap();
    assert!(wait(store.delete("b", vec!["read".into()])).unwrap()[0]);
    assert!(matches!(store.open_segment(&record.segments[0]), Err(StoreError::NotFound)));
    // A sweep that ignored holds would be over by then.
    for _ in 0..20 {
        put_packed(&store, "kept", 2);
        assert!(reader.read().unwrap() == [1; 60_000]);
    }
    drop(reader);
    let room = || packs(dir.path()).iter().sum::<u64>();
    let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while room() > 120_000 && std::time::Instant::now() < until {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert!(room() <= 120_000, "{} bytes for one object of 60,000", room());
    let kept = store.object("b", "kept").unwrap().unwrap();
    assert!(store.open_segment(&kept.segments[0]).unwrap().read().unwrap() == [2; 60_000]);
    assert!(wait(store.delete("b", vec!["kept".into()])).unwrap()[0]);
    drop(store);
    drop(open(dir.path()));
    assert_eq!(packs(dir.path()), [0; 0], "a pack without data goes");
}

#[test]
fn small_objects_have_files_where_too_many_wait() {
    let (_dir, store) = with_bucket();
    let drafts: Vec<_> = (0..70).map(|_| store.draft_of(60_000, 1 << 20, 0).unwrap()).collect();
    let packed = drafts.iter().filter(|draft| matches!(draft.target(), Target::Memory)).count();
    assert_eq!(packed, 64, "64 MiB");
    drop(drafts);
    assert!(matches!(store.draft_of(60_000, 1 << 20, 0).unwrap().target(), Target::Memory));
}

#[test]
fn a_record_has_to_name_its_drafts() {
    let (_dir, store) = with_bucket();
    let (mut one, two) = (store.draft().unwrap(), store.draft().unwrap());
    let record = object(vec![segment(&mut one, b"1")], "1");
    let result = wait(store.put("b", "k", record, vec![two], Condition::None));
    assert!(matches!(result, Err(StoreError::Invalid(_))));
    assert_eq!(store.object("b", "k").unwrap(), None);
}

#[test]
fn buckets_are_made_changed_and_deleted() {
    let (_dir, store) = with_bucket();
    let again = wait(store.create_bucket("b", Bucket::default()));
    assert!(matches!(again, Err(StoreError::BucketExists)));
    wait(store.change_bucket("b", |bucket| bucket.owner = "you".into())).unwrap();
    assert_eq!(store.bucket("b").unwrap().unwrap().owner, "you");
    wait(store.create_bucket("a", Bucket::default())).unwrap();
    let names: Vec<_> = store.buckets().unwrap().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["a", "b"]);
    put(&store, "k", b"x");
    assert!(matches!(wait(store.delete_bucket("b")), Err(StoreError::BucketNotEmpty)));
    wait(store.delete("b", vec!["k".into()])).unwrap();
    wait(store.delete_bucket("b")).unwrap();
    assert!(matches!(wait(store.delete_bucket("b")), Err(StoreError::NoSuchBucket)));
    assert!(matches!(put_if(&store, "k", b"x", Condition::None), Err(StoreError::NoSuchBucket)));
    let missing = store.list("b", &Listing { max: 1, ..Listing::default() });
    assert!(matches!(missing, Err(StoreError::NoSuchBucket)));
}

#[test]
fn an_upload_becomes_an_object() {
    let (dir, store) = with_bucket();
    let id = wait(store.create_upload("b", "k", upload())).unwrap();
    let mut segments = Vec::new();
    for (number, data) in [(1, "old"), (1, "one"), (2, "two"), (7, "seven")] {
        let mut draft = store.draft().unwrap();
        let part = Part { modified: 1, segment: segment(&mut draft, data.as_bytes()) };
        segments.push(part.segment.clone());
        wait(store.put_part("b", "k", &id, number, part, draft)).unwrap();
    }
    let parts = store.parts("b", "k", &id, 1, 10).unwrap();
    assert_eq!(parts.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [2, 7]);
    let stale = object(vec![segments[0].clone()], "stale");
    let refused = wait(store.complete("b", "k", &id, vec![1], stale, Condition::None));
    assert!(matches!(refused, Err(StoreError::InvalidPart(1))));
    let whole = object(vec![segments[1].clone(), segments[3].clone()], "whole");
    wait(store.complete("b", "k", &id, vec![1, 7], whole.clone(), Condition::None)).unwrap();
    let again = wait(store.complete("b", "k", &id, vec![1, 7], whole, Condition::None));
    assert!(matches!(again, Err(StoreError::NoSuchUpload)));
    assert_eq!(get(&store, "k").unwrap(), b"oneseven");
    drop(store);
    assert_eq!(files(dir.path()), 2);
}

#[test]
fn deleting_a_bucket_aborts_its_uploads() {
    let (dir, store) = with_bucket();
    for key in ["k", "l"] {
        let id = wait(store.create_upload("b", key, upload())).unwrap();
        let mut draft = store.draft().unwrap();
        let part = Part { modified: 1, segment: segment(&mut draft, b"data") };
        wait(store.put_part("b", key, &id, 1, part, draft)).unwrap();
    }
    wait(store.delete_bucket("b")).unwrap();
    wait(store.create_bucket("b", Bucket::default())).unwrap();
    let listing = UploadListing { max: 10, ..UploadListing::default() };
    assert_eq!(store.uploads("b", &listing).unwrap(), ListedUploads::default());
    drop(store);
    assert_eq!(files(dir.path()), 0);
}

#[test]
fn what_is_wrong_is_quarantined_unless_it_was_replaced() {
    let (_dir, store) = with_bucket();
    put(&store, "k", b"one");
    let id = store.object("b", "k").unwrap().unwrap().segments[0].id;
    assert!(wait(store.quarantine("b", "k", id, "md5".into())).unwrap());
    assert_eq!(store.object("b", "k").unwrap().unwrap().quarantined.unwrap(), "md5");
    put(&store, "k", b"two");
    assert!(!wait(store.quarantine("b", "k", id, "md5".into())).unwrap());
    assert_eq!(store.object("b", "k").unwrap().unwrap().quarantined, None);
}

#[test]
fn a_folder_is_opened_once_and_only_if_it_is_ours() {
    let (dir, store) = with_bucket();
    let second = Store::open(dir.path(), Options::default());
    assert!(matches!(second, Err(StoreError::InUse(_))));
    drop(store);
    Store::open(dir.path(), Options::default()).unwrap();

    let other = tempfile::tempdir().unwrap();
    std::fs::write(other.path().join("thesis.tex"), "precious").unwrap();
    assert!(matches!(Store::open(other.path(), Options::default()), Err(StoreError::Foreign(_))));
    assert_eq!(std::fs::read_dir(other.path()).unwrap().count(), 1, "it was left alone");

    let neither = tempfile::tempdir().unwrap();
    std::fs::write(neither.path().join("meta.redb"), "no database").unwrap();
    assert!(matches!(Store::open(neither.path(), Options::default()), Err(StoreError::Database(_))));
}

#[test]
fn a_file_of_another_length_is_damaged() {
    let (dir, store) = with_bucket();
    put(&store, "k", b"one");
    let segment = store.object("b", "k").unwrap().unwrap().segments[0].clone();
    let path = dir.path().join(format!("data/{:x}/{:016x}", segment.id >> 10, segment.id));
    std::fs::write(path, "on").unwrap();
    assert!(matches!(store.open_segment(&segment), Err(StoreError::Damaged(_))));
}

#[test]
fn ids_go_on_beyond_what_was_reserved_at_first() {
    let (dir, store) = with_bucket();
    let mut last = 0;
    for _ in 0..10_000 {
        let id = store.draft().unwrap().id();
        assert!(id > last);
        last = id;
    }
    drop(store);
    assert_eq!(files(dir.path()), 0);
    assert!(open(dir.path()).draft().unwrap().id() > last);
}

#[test]
fn a_draft_that_was_in_flight_for_long_is_found_after_a_crash() {
    let (dir, store) = with_bucket();
    // As if the process had ended, so that nothing removes it.
    std::mem::forget(store.draft().unwrap());
    for _ in 0..10_000 {
        store.draft().unwrap();
    }
    std::mem::forget(store.draft().unwrap());
    put(&store, "k", b"kept");
    drop(store);
    assert_eq!(files(dir.path()), 3);
    let (store, recovery) = Store::open(dir.path(), Options::default()).unwrap();
    assert_eq!(recovery, Recovery { crashed: false, unfinished: 2, garbage: 0 });
    assert_eq!(files(dir.path()), 1);
    assert_eq!(get(&store, "k").unwrap(), b"kept");
}

#[test]
fn a_common_prefix_is_skipped_not_walked() {
    let (_dir, store) = with_bucket();
    let put_empty = |key: String| {
        wait(store.put("b", &key, object(Vec::new(), ""), Vec::new(), Condition::None)).unwrap();
    };
    std::thread::scope(|scope| {
        for thread in 0..16 {
            scope.spawn(move || (0..250).for_each(|number| put_empty(format!("many/{thread}/{number}"))));
        }
    });
    put_empty("z".into());
    let time = |delimiter: Option<&str>, entries: usize| {
        let delimiter = delimiter.map(String::from);
        let listing = Listing { delimiter, max: 10_000, ..Listing::default() };
        let start = std::time::Instant::now();
        let listed = store.list("b", &listing).unwrap();
        assert_eq!(listed.objects.len() + listed.prefixes.len(), entries);
        start.elapsed()
    };
    let best = |delimiter, entries| (0..5).map(|_| time(delimiter, entries)).min().unwrap();
    let (whole, grouped) = (best(None, 4001), best(Some("/"), 2));
    assert!(grouped * 20 < whole, "{grouped:?} for two entries, {whole:?} for 4001");
}

/// Changes the format's number in the database. Returns the old one.
fn format(dir: &Path, new: u64) -> u64 {
    let state = redb::TableDefinition::<&str, u64>::new("state");
    let database = redb::Database::open(dir.join("meta.redb")).unwrap();
    let transaction = database.begin_write().unwrap();
    let old = transaction.open_table(state).unwrap().insert("format", new).unwrap().unwrap().value();
    transaction.commit().unwrap();
    old
}

#[test]
fn a_folder_of_an_earlier_format_is_taken_and_one_of_a_later_is_not() {
    let (dir, store) = with_bucket();
    put(&store, "k", b"data");
    drop(store);
    let current = format(dir.path(), 1);
    let store = open(dir.path());
    assert_eq!(get(&store, "k").unwrap(), b"data");
    drop(store);
    assert_eq!(format(dir.path(), current + 1), current, "an earlier program does not read it any more");
    let refused = Store::open(dir.path(), Options::default());
    assert!(matches!(refused, Err(StoreError::Format { found, .. }) if found == current + 1));
}
