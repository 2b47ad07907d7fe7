//! The store against a model in memory: random operations, with the store reopened in between.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use dcs_server::store::record::AtRest;
use dcs_server::store::*;
use proptest::collection::vec;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Op {
    CreateBucket(usize),
    DeleteBucket(usize),
    Put { bucket: usize, key: String, segments: usize, condition: usize },
    Delete { bucket: usize, keys: Vec<String> },
    Tag { bucket: usize, key: String },
    Quarantine { bucket: usize, key: String, current: bool },
    CreateUpload { bucket: usize, key: String, initiated: u64 },
    PutPart { upload: usize, number: u16 },
    Complete { upload: usize, every: usize, condition: usize },
    Abort { upload: usize },
    List { bucket: usize, prefix: String, delimiter: Option<String>, after: Option<String>, max: usize },
    Reopen,
}

/// Characters at the edges of UTF-8: of one to four bytes, before and after the surrogates, the last.
fn key() -> impl Strategy<Value = String> {
    let character =
        prop::sample::select(vec!['a', 'b', '/', '/', '\u{7f}', 'é', '\u{d7ff}', '\u{e000}', '\u{10ffff}']);
    vec(character, 0..4).prop_map(String::from_iter)
}

fn op() -> impl Strategy<Value = Op> {
    let (bucket, upload, condition) = (0..2usize, 0..8usize, 0..5usize);
    let delimiter = prop::option::of(prop::sample::select(vec!["/", "a", "//", "\u{10ffff}", ""]));
    prop_oneof![
        1 => bucket.clone().prop_map(Op::CreateBucket),
        1 => bucket.clone().prop_map(Op::DeleteBucket),
        12 => (bucket.clone(), key(), 0..3usize, condition.clone())
            .prop_map(|(bucket, key, segments, condition)| Op::Put { bucket, key, segments, condition }),
        3 => (bucket.clone(), vec(key(), 0..4)).prop_map(|(bucket, keys)| Op::Delete { bucket, keys }),
        1 => (bucket.clone(), key()).prop_map(|(bucket, key)| Op::Tag { bucket, key }),
        1 => (bucket.clone(), key(), any::<bool>())
            .prop_map(|(bucket, key, current)| Op::Quarantine { bucket, key, current }),
        2 => (bucket.clone(), key(), 0..3u64)
            .prop_map(|(bucket, key, initiated)| Op::CreateUpload { bucket, key, initiated }),
        4 => (upload.clone(), 1..4u16).prop_map(|(upload, number)| Op::PutPart { upload, number }),
        2 => (upload.clone(), 1..3usize, condition)
            .prop_map(|(upload, every, condition)| Op::Complete { upload, every, condition }),
        1 => upload.prop_map(|upload| Op::Abort { upload }),
        8 => (bucket, key(), delimiter, prop::option::of(key()), 0..5usize).prop_map(
            |(bucket, prefix, delimiter, after, max)| {
                let prefix = prefix.chars().take(1).collect();
                Op::List { bucket, prefix, delimiter: delimiter.map(String::from), after, max }
            }
        ),
        1 => Just(Op::Reopen),
    ]
}

#[derive(Debug)]
struct ModelUpload {
    bucket: &'static str,
    key: String,
    id: String,
    parts: BTreeMap<u16, Part>,
}

struct Rig {
    dir: tempfile::TempDir,
    store: Option<Arc<Store>>,
    buckets: BTreeMap<&'static str, BTreeMap<String, Object>>,
    uploads: Vec<ModelUpload>,
    contents: BTreeMap<u64, Vec<u8>>,
    serial: u64,
}

const BUCKETS: [&str; 2] = ["b", "b-"];

fn wait<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

fn open(dir: &Path) -> (Arc<Store>, Recovery) {
    Store::open(dir, Options { durability: Durability::None, ..Options::default() }).expect("the store opens")
}

/// Answer to a change, as far as a model knows it.
fn class<T: PartialEq>(result: &Result<T, StoreError>) -> Result<&T, String> {
    result.as_ref().map_err(|error| error.to_string())
}

impl Rig {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = Some(open(dir.path()).0);
        let (buckets, contents) = Default::default();
        Self { dir, store, buckets, uploads: Vec::new(), contents, serial: 0 }
    }

    fn store(&self) -> &Store {
        self.store.as_ref().unwrap()
    }

    /// Makes data in a file or in a pack.
    fn draft(&mut self, packed: bool) -> (Draft, Segment) {
        self.serial += 1;
        let data = self.serial.to_string().repeat(self.serial as usize % 7);
        let room = data.len() as u64;
        let draft = if packed { self.store().draft_of(room, room, 0) } else { self.store().draft() };
        let mut draft = draft.unwrap();
        draft.fill(data.clone().into_bytes()).unwrap();
        let (size, id) = (data.len() as u64, draft.id());
        self.contents.insert(id, data.into_bytes());
        let segment = Segment { id, size, stored: size, md5: self.md5(), checksum: None };
        (draft, segment)
    }

    fn md5(&self) -> [u8; 16] {
        u128::from(self.serial).to_le_bytes()
    }

    fn object(&mut self, segments: Vec<Segment>) -> Object {
        self.serial += 1;
        Object {
            size: segments.iter().map(|segment| segment.size).sum(),
            etag: self.serial.to_string(),
            modified: self.serial,
            in_parts: segments.len() > 1,
            segments,
            at_rest: AtRest::default(),
            headers: Default::default(),
            tags: Vec::new(),
            checksum: None,
            quarantined: None,
        }
    }

    /// Makes a condition for an object, and the error that is expected for it.
    fn condition(&self, bucket: &str, key: &str, which: usize) -> (Condition, Option<StoreError>) {
        let old = self.buckets.get(bucket).and_then(|objects| objects.get(key));
        match (which, old) {
            (0, None) => (Condition::Absent, None),
            (0, Some(_)) => (Condition::Absent, Some(StoreError::ConditionFailed)),
            (1, None) => (Condition::Matches("x".into()), Some(StoreError::NoSuchKey)),
            (1, Some(_)) => (Condition::Matches("x".into()), Some(StoreError::ConditionFailed)),
            (2, Some(old)) => (Condition::Matches(old.etag.clone()), None),
            _ => (Condition::None, None),
        }
    }

    fn expect(&self, bucket: &str, error: Option<StoreError>) -> Result<&(), String> {
        match (self.buckets.contains_key(bucket), error) {
            (false, _) => Err(StoreError::NoSuchBucket.to_string()),
            (true, Some(error)) => Err(error.to_string()),
            (true, None) => Ok(&()),
        }
    }

    fn put(&mut self, bucket: &'static str, key: String, segments: usize, condition: usize) {
        let (drafts, segments): (Vec<_>, Vec<_>) =
            (0..segments).map(|_| self.draft(!self.serial.is_multiple_of(3))).unzip();
        let object = self.object(segments);
        let (condition, error) = self.condition(bucket, &key, condition);
        let result = wait(self.store().put(bucket, &key, object.clone(), drafts, condition));
        assert_eq!(class(&result), self.expect(bucket, error));
        if result.is_ok() {
            self.buckets.get_mut(bucket).unwrap().insert(key, object);
        }
    }

    fn delete(&mut self, bucket: &str, keys: Vec<String>) {
        let result = wait(self.store().delete(bucket, keys.clone()));
        match self.buckets.get_mut(bucket) {
            Some(objects) => {
                let expected: Vec<_> = keys.iter().map(|key| objects.remove(key).is_some()).collect();
                assert_eq!(result.unwrap(), expected);
            }
            None => assert!(matches!(result, Err(StoreError::NoSuchBucket))),
        }
    }

    fn tag(&mut self, bucket: &str, key: &str) {
        let tags = vec![("serial".to_owned(), self.serial.to_string())];
        let new = tags.clone();
        let change = move |object: &mut Object| {
            object.tags = new;
            object.segments.clear();
            object.size = 0;
        };
        let result = wait(self.store().change_object(bucket, key, change));
        match self.buckets.get_mut(bucket).map(|objects| objects.get_mut(key)) {
            Some(Some(object)) => object.tags = result.map(|()| tags).unwrap(),
            Some(None) => assert!(matches!(result, Err(StoreError::NoSuchKey))),
            None => assert!(matches!(result, Err(StoreError::NoSuchBucket))),
        }
    }

    fn quarantine(&mut self, bucket: &str, key: &str, current: bool) {
        let object = self.buckets.get_mut(bucket).and_then(|objects| objects.get_mut(key));
        let segment = object.as_ref().and_then(|object| object.segments.first()).map_or(0, |first| first.id);
        let expected = current && segment != 0;
        if let (true, Some(object)) = (expected, object) {
            object.quarantined = Some("why".into());
        }
        let id = if current { segment } else { u64::MAX };
        assert_eq!(wait(self.store().quarantine(bucket, key, id, "why".into())).unwrap(), expected);
    }

    fn create_upload(&mut self, bucket: &'static str, key: String, initiated: u64) {
        let at_rest = AtRest::default();
        let upload = Upload {
            initiated,
            owner: "me".into(),
            at_rest,
            headers: Default::default(),
            tags: Vec::new(),
            checksum: None,
        };
        match wait(self.store().create_upload(bucket, &key, upload)) {
            Ok(id) => self.uploads.push(ModelUpload { bucket, key, id, parts: BTreeMap::new() }),
            Err(error) => assert_eq!(self.expect(bucket, None), Err(error.to_string())),
        }
    }

    fn put_part(&mut self, upload: usize, number: u16) {
        if upload >= self.uploads.len() {
            return;
        }
        let (draft, segment) = self.draft(false);
        let part = Part { modified: self.serial, segment };
        let upload = &self.uploads[upload];
        wait(self.store().put_part(upload.bucket, &upload.key, &upload.id, number, part.clone(), draft))
            .unwrap();
        let id = upload.id.clone();
        self.uploads.iter_mut().find(|upload| upload.id == id).unwrap().parts.insert(number, part);
    }

    fn complete(&mut self, upload: usize, every: usize, condition: usize) {
        if upload >= self.uploads.len() {
            return;
        }
        let ModelUpload { bucket, key, id, parts } = self.uploads.remove(upload);
        let (numbers, segments) =
            parts.iter().step_by(every).map(|(number, part)| (*number, part.segment.clone())).unzip();
        let object = self.object(segments);
        let (condition, error) = self.condition(bucket, &key, condition);
        let result = wait(self.store().complete(bucket, &key, &id, numbers, object.clone(), condition));
        assert_eq!(class(&result), self.expect(bucket, error));
        match result {
            Ok(()) => drop(self.buckets.get_mut(bucket).unwrap().insert(key, object)),
            Err(_) => self.uploads.insert(upload, ModelUpload { bucket, key, id, parts }),
        }
    }

    fn abort(&mut self, upload: usize) {
        if upload >= self.uploads.len() {
            return;
        }
        let ModelUpload { bucket, key, id, .. } = self.uploads.remove(upload);
        wait(self.store().abort_upload(bucket, &key, &id)).unwrap();
        let again = wait(self.store().abort_upload(bucket, &key, &id));
        assert!(matches!(again, Err(StoreError::NoSuchUpload)));
    }

    fn delete_bucket(&mut self, bucket: &str) {
        let result = wait(self.store().delete_bucket(bucket));
        match self.buckets.get(bucket) {
            None => assert!(matches!(result, Err(StoreError::NoSuchBucket))),
            Some(objects) if objects.is_empty() => {
                result.unwrap();
                self.buckets.remove(bucket);
                self.uploads.retain(|upload| upload.bucket != bucket);
            }
            Some(_) => assert!(matches!(result, Err(StoreError::BucketNotEmpty))),
        }
    }

    fn apply(&mut self, op: Op) {
        match op {
            Op::CreateBucket(bucket) => {
                let name = BUCKETS[bucket];
                let result = wait(self.store().create_bucket(name, Bucket::default()));
                assert_eq!(result.is_ok(), !self.buckets.contains_key(name));
                self.buckets.entry(name).or_default();
            }
            Op::DeleteBucket(bucket) => self.delete_bucket(BUCKETS[bucket]),
            Op::Put { bucket, key, segments, condition } => {
                self.put(BUCKETS[bucket], key, segments, condition);
            }
            Op::Delete { bucket, keys } => self.delete(BUCKETS[bucket], keys),
            Op::Tag { bucket, key } => self.tag(BUCKETS[bucket], &key),
            Op::Quarantine { bucket, key, current } => self.quarantine(BUCKETS[bucket], &key, current),
            Op::CreateUpload { bucket, key, initiated } => {
                self.create_upload(BUCKETS[bucket], key, initiated);
            }
            Op::PutPart { upload, number } => self.put_part(upload, number),
            Op::Complete { upload, every, condition } => self.complete(upload, every, condition),
            Op::Abort { upload } => self.abort(upload),
            Op::List { bucket, prefix, delimiter, after, max } => {
                let listing = Listing { prefix, delimiter, after, max };
                self.list(BUCKETS[bucket], listing.clone());
                self.list_uploads(BUCKETS[bucket], listing);
            }
            Op::Reopen => self.reopen(),
        }
    }

    fn list(&self, bucket: &str, mut listing: Listing) {
        let Some(objects) = self.buckets.get(bucket) else { return };
        let keys: Vec<_> = objects.keys().map(|key| (&**key, "")).collect();
        let after = listing.after.clone().map(|after| (after, None));
        let mut expected = entries(&keys, &listing, after);
        loop {
            let listed = self.store().list(bucket, &listing).unwrap();
            let page: Vec<_> = expected.drain(..listing.max.min(expected.len())).collect();
            let mut found: Vec<_> = listed.objects.iter().map(|(key, _)| (key.clone(), false)).collect();
            found.extend(listed.prefixes.iter().map(|prefix| (prefix.clone(), true)));
            found.sort();
            let page: Vec<_> = page.into_iter().map(|(key, _, is_prefix)| (key, is_prefix)).collect();
            assert_eq!(found, page, "{listing:?}");
            // Pages have no segments.
            let light = |object: &Object| Object { segments: Vec::new(), ..object.clone() };
            assert!(listed.objects.iter().all(|(key, object)| light(&objects[key]) == *object));
            let more = !expected.is_empty() && listing.max > 0;
            assert_eq!(listed.next.is_some(), more);
            match listed.next {
                Some(next) => listing.after = Some(next),
                None => return,
            }
        }
    }

    fn list_uploads(&self, bucket: &str, listing: Listing) {
        if !self.buckets.contains_key(bucket) {
            return;
        }
        let mut keys: Vec<_> = (self.uploads.iter())
            .filter(|upload| upload.bucket == bucket)
            .map(|upload| (&*upload.key, &*upload.id))
            .collect();
        keys.sort();
        let after = listing.after.clone().map(|after| (after, None));
        let mut expected = entries(&keys, &listing, after.clone());
        let Listing { prefix, delimiter, max, .. } = listing;
        let mut listing = UploadListing { prefix, delimiter, after, max };
        loop {
            let listed = self.store().uploads(bucket, &listing).unwrap();
            let page: Vec<_> = expected.drain(..listing.max.min(expected.len())).collect();
            let mut found: Vec<_> =
                listed.uploads.iter().map(|(key, id, _)| (key.clone(), id.clone(), false)).collect();
            found.extend(listed.prefixes.iter().map(|prefix| (prefix.clone(), String::new(), true)));
            found.sort();
            assert_eq!(found, page, "{listing:?}");
            assert_eq!(listed.next.is_some(), !expected.is_empty() && listing.max > 0);
            match listed.next {
                Some(next) => listing.after = Some(next),
                None => return,
            }
        }
    }

    fn reopen(&mut self) {
        self.store = None;
        let mut referred = BTreeSet::new();
        for object in self.buckets.values().flat_map(|objects| objects.values()) {
            let in_files = object.segments.iter().filter(|segment| !segment.is_packed());
            referred.extend(in_files.map(|segment| segment.id));
        }
        for part in self.uploads.iter().flat_map(|upload| upload.parts.values()) {
            referred.insert(part.segment.id);
        }
        assert_eq!(files(self.dir.path()), referred);
        let (store, recovery) = open(self.dir.path());
        assert_eq!(recovery, Recovery::default());
        self.store = Some(store);
        self.check();
        assert!(wait(self.store().repair(true)).unwrap().is_nothing());
    }

    /// Checks that everything readable is as in the model.
    fn check(&self) {
        let mut bytes = 0;
        let mut all = Vec::new();
        for (bucket, objects) in &self.buckets {
            for (key, object) in objects {
                assert_eq!(self.store().object(bucket, key).unwrap().as_ref(), Some(object));
                object.segments.iter().for_each(|segment| self.check_segment(segment));
                bytes += object.size;
                all.push((bucket.to_string(), key.clone(), object.clone()));
            }
        }
        for upload in &self.uploads {
            let parts = self.store().parts(upload.bucket, &upload.key, &upload.id, 0, 100).unwrap();
            assert_eq!(BTreeMap::from_iter(parts), upload.parts);
            upload.parts.values().for_each(|part| self.check_segment(&part.segment));
        }
        let names: Vec<_> = self.store().buckets().unwrap().into_iter().map(|(name, _)| name).collect();
        assert!(names.iter().eq(self.buckets.keys()));
        let usage = Usage {
            buckets: self.buckets.len() as u64,
            objects: all.len() as u64,
            uploads: self.uploads.len() as u64,
            bytes,
            stored: bytes,
        };
        assert_eq!(self.store().usage().unwrap(), usage);
        let mut walked: Vec<(String, String, Object)> = Vec::new();
        loop {
            let after = walked.last().map(|(bucket, key, _)| (bucket.clone(), key.clone()));
            match self.store().objects_after(after, 3).unwrap() {
                some if some.is_empty() => break,
                some => walked
                    .extend(some.into_iter().map(|(bucket, key, object)| (bucket, key, object.unwrap()))),
            }
        }
        assert_eq!(walked, all);
    }

    fn check_segment(&self, segment: &Segment) {
        let data = self.store().open_segment(segment).unwrap().read().unwrap();
        assert_eq!(data, self.contents[&segment.id]);
    }
}

/// Returns the listing by its definition: takes what follows, groups it. Entries are key, id, and true for a common
/// prefix.
fn entries(
    keys: &[(&str, &str)],
    listing: &Listing,
    after: Option<(String, Option<String>)>,
) -> Vec<(String, String, bool)> {
    let common = |key: &str| {
        let delimiter = listing.delimiter.as_deref().filter(|delimiter| !delimiter.is_empty())?;
        let rest = key.strip_prefix(&*listing.prefix)?;
        Some(format!("{}{}{delimiter}", listing.prefix, &rest[..rest.find(delimiter)?]))
    };
    let mut found = Vec::new();
    for (key, id) in keys.iter().filter(|(key, _)| key.starts_with(&listing.prefix)) {
        if let Some((after, _)) = &after
            && (**key <= **after || (common(key).is_some() && common(key).as_ref() == Some(after)))
        {
            continue;
        }
        match common(key) {
            Some(prefix) => found.push((prefix, String::new(), true)),
            None => found.push((key.to_string(), id.to_string(), false)),
        }
    }
    found.dedup();
    found
}

fn files(dir: &Path) -> BTreeSet<u64> {
    let mut ids = BTreeSet::new();
    for folder in std::fs::read_dir(dir.join("data")).unwrap() {
        for file in std::fs::read_dir(folder.unwrap().path()).unwrap() {
            ids.insert(u64::from_str_radix(file.unwrap().file_name().to_str().unwrap(), 16).unwrap());
        }
    }
    ids
}

proptest! {
    // A case is a hundred operations: a quarter as many cases as elsewhere (PROPTEST_CASES).
    #![proptest_config(ProptestConfig {
        cases: ProptestConfig::default().cases / 4,
        max_shrink_iters: 400,
        ..ProptestConfig::default()
    })]

    #[test]
    fn the_store_does_what_its_model_does(ops in vec(op(), 1..120)) {
        let mut rig = Rig::new();
        rig.apply(Op::CreateBucket(0));
        for op in ops {
            rig.apply(op);
        }
        rig.check();
        rig.reopen();
    }
}
