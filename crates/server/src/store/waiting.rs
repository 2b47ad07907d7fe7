//! Puts that wait for the database: the journal has them, and they are acknowledged.
//!
//! A transaction costs much more than what it does for one put. So many share one: when there are [`MANY`], before any
//! other change, and before a read of more than one object. A read of one object looks here first, and then into the
//! database: a put is taken from here after the transaction that it is in.

use std::sync::{Arc, Mutex, MutexGuard};

use redb::{Database, ReadableDatabase};

use super::change::{Changes, Entry, NewPut, Old};
use super::error::StoreError;
use super::tables::*;

/// Number of puts that the database takes without being asked.
pub(super) const MANY: usize = 64;

/// Puts that wait for the database. Only the committer adds some; whoever needs the database has it take them.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    state: Mutex<State>,
    /// Held by the one who has the database take them.
    taking: Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    /// In the order of their commits.
    puts: Vec<Arc<Entry>>,
    /// Number of the journal's next entry after them.
    next: u64,
    /// Files and extents that are not needed any more after what the database took.
    replaced: Vec<u64>,
}

impl Waiting {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no code that holds it panics")
    }

    /// Adds puts, after which the journal's next entry has that number.
    pub(super) fn add(&self, puts: Vec<Arc<Entry>>, next: u64) {
        let mut state = self.state();
        state.puts.extend(puts);
        state.next = next;
    }

    /// Returns true if there are so many that the database should take them.
    pub(super) fn are_many(&self) -> bool {
        self.state().puts.len() >= MANY
    }

    /// Returns true if there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.state().puts.is_empty()
    }

    /// Returns what was put last under a key of the table.
    pub(super) fn newest(&self, key: &[u8]) -> Option<Arc<Entry>> {
        newest(&self.state().puts, key).cloned()
    }

    /// Returns true if one of them has this segment.
    pub(super) fn has_segment(&self, id: u64) -> bool {
        self.state().puts.iter().any(|put| put.segments.iter().any(|segment| segment.id == id))
    }

    /// Checks a put against its bucket and the object that it replaces, which may be one of those that were checked
    /// `before` in the same commit.
    pub(super) fn check(
        &self,
        database: &Database,
        put: &NewPut,
        before: &[Arc<Entry>],
    ) -> Result<(), StoreError> {
        need_bucket(&database.begin_read()?, &put.bucket)?;
        if put.condition.is_none() {
            return Ok(());
        }
        let key = &put.entry.key;
        let old = match newest(before, key).cloned().or_else(|| self.newest(key)) {
            Some(entry) => Some(Old::of(key, &entry.record)?),
            None => {
                let record = database.begin_read()?.open_table(OBJECTS)?.get(&**key)?;
                record.map(|record| Old::of(key, record.value())).transpose()?
            }
        };
        put.condition.check(old.as_ref())
    }

    /// Has the database take them, in memory.
    pub(super) fn settle(&self, database: &Database) -> Result<(), StoreError> {
        if self.is_empty() {
            return Ok(());
        }
        let _alone = self.taking.lock().expect("no code that holds it panics");
        let (puts, next) = {
            let state = self.state();
            (state.puts.clone(), state.next)
        };
        if puts.is_empty() {
            return Ok(());
        }
        let mut transaction = database.begin_write()?;
        transaction.set_durability(redb::Durability::None)?;
        let mut changes = Changes::new(&transaction)?;
        puts.iter().try_for_each(|put| changes.put_again(put))?;
        changes.state.insert(STATE_JOURNAL, next)?;
        let replaced = changes.finish()?;
        transaction.commit()?;
        let mut state = self.state();
        state.puts.drain(..puts.len());
        state.replaced.extend(replaced);
        Ok(())
    }

    /// Returns what is not needed any more after what the database took since the last call.
    pub(super) fn take_replaced(&self) -> Vec<u64> {
        std::mem::take(&mut self.state().replaced)
    }

    /// Forgets them, because the database has them from the journal.
    pub(super) fn forget(&self) {
        self.state().puts.clear();
    }
}

fn newest<'a>(puts: &'a [Arc<Entry>], key: &[u8]) -> Option<&'a Arc<Entry>> {
    puts.iter().rev().find(|put| put.key == key)
}

#[cfg(test)]
mod tests {
    use super::super::crash_tests::{object, open, segment, wait};
    use super::super::{Bucket, Condition, Durability, Listing, Store};
    use super::*;

    /// Returns a store with a bucket and a pack that takes the journal's entries.
    fn store() -> (tempfile::TempDir, Arc<Store>) {
        let dir = tempfile::tempdir().unwrap();
        let (store, _) = open(dir.path(), Durability::Full);
        wait(store.create_bucket("b", Bucket::default())).unwrap();
        put(&store, "first", 1, Condition::None).unwrap();
        assert_eq!(waiting(&store), 0, "its pack was new");
        (dir, store)
    }

    fn waiting(store: &Store) -> usize {
        store.waiting.state().puts.len()
    }

    fn put(store: &Store, key: &str, serial: u64, condition: Condition) -> Result<(), StoreError> {
        put_to(store, "b", key, serial, condition)
    }

    fn put_to(
        store: &Store,
        bucket: &str,
        key: &str,
        serial: u64,
        condition: Condition,
    ) -> Result<(), StoreError> {
        let data = vec![serial as u8; 1000];
        let mut draft = store.draft_of(1000, 1000, 0).unwrap();
        let object = object(serial, vec![segment(&mut draft, &data, Durability::Full)]);
        wait(store.put(bucket, key, object, vec![draft], condition))
    }

    fn get(store: &Store, key: &str) -> Option<u64> {
        let object = store.object("b", key).unwrap()?;
        let data = store.open_segment(&object.segments[0]).unwrap().read().unwrap();
        assert!(data == [object.modified as u8; 1000]);
        Some(object.modified)
    }

    #[test]
    fn what_waits_is_read_and_listed() {
        let (_dir, store) = store();
        put(&store, "one", 1, Condition::None).unwrap();
        put(&store, "two", 2, Condition::None).unwrap();
        put(&store, "one", 3, Condition::None).unwrap();
        assert_eq!((get(&store, "one"), get(&store, "two"), get(&store, "three")), (Some(3), Some(2), None));
        assert_eq!(waiting(&store), 3, "no read of one object has the database take them");
        let listed = store.list("b", &Listing { max: 10, ..Listing::default() }).unwrap().objects;
        assert_eq!(listed.iter().map(|(key, _)| key.as_str()).collect::<Vec<_>>(), ["first", "one", "two"]);
        assert_eq!(waiting(&store), 0);
        assert_eq!((get(&store, "one"), get(&store, "two")), (Some(3), Some(2)));
        put(&store, "three", 4, Condition::None).unwrap();
        let usage = store.usage().unwrap();
        assert_eq!((usage.objects, usage.bytes, waiting(&store)), (4, 4000, 0));
        put(&store, "four", 5, Condition::None).unwrap();
        let objects = store.objects_after(Some(("b".into(), "first".into())), 10).unwrap();
        assert_eq!((objects.len(), waiting(&store)), (4, 0));
    }

    #[test]
    fn the_database_takes_what_waits_beside_the_event_loop() {
        let (_dir, store) = store();
        put(&store, "one", 1, Condition::None).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let busy = store.waiting.taking.lock().unwrap();
        let settling = runtime.spawn({
            let store = store.clone();
            async move { store.settle().await }
        });
        runtime.block_on(async {
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
        });
        assert!(!settling.is_finished(), "another thread takes them now");
        drop(busy);
        runtime.block_on(settling).unwrap().unwrap();
        assert_eq!(waiting(&store), 0);
        wait(store.settle()).unwrap();
    }

    #[test]
    fn conditions_are_checked_against_what_waits() {
        let (_dir, store) = store();
        let failed = |result| matches!(result, Err(StoreError::ConditionFailed));
        let missing = |result| matches!(result, Err(StoreError::NoSuchKey));
        assert!(missing(put(&store, "k", 1, Condition::Present)));
        put(&store, "k", 1, Condition::Absent).unwrap();
        assert!(failed(put(&store, "k", 2, Condition::Absent)));
        assert!(failed(put(&store, "k", 2, Condition::Matches("2".into()))));
        put(&store, "k", 2, Condition::Matches("1".into())).unwrap();
        assert!(failed(put(&store, "k", 3, Condition::Differs("2".into()))));
        assert!(failed(put(&store, "first", 3, Condition::Absent)), "the database has that one");
        put(&store, "first", 3, Condition::Matches("1".into())).unwrap();
        assert!(matches!(put_to(&store, "c", "k", 1, Condition::None), Err(StoreError::NoSuchBucket)));
        assert_eq!((waiting(&store), get(&store, "k"), get(&store, "first")), (3, Some(2), Some(3)));
    }

    #[test]
    fn puts_of_one_commit_see_each_other() {
        let (_dir, store) = store();
        let database = store.database.read().unwrap();
        let put = |serial, condition| {
            let entry = Arc::new(Entry::new("b", "k", object(serial, Vec::new())));
            NewPut { bucket: "b".into(), entry, condition }
        };
        let (one, two, again) =
            (put(1, Condition::Absent), put(2, Condition::Absent), put(2, Condition::Matches("1".into())));
        let before = [one.entry.clone()];
        let check = |put, before| store.waiting.check(database.as_ref().unwrap(), put, before);
        check(&one, &[]).unwrap();
        assert!(matches!(check(&two, &before), Err(StoreError::ConditionFailed)));
        check(&again, &before).unwrap();
    }

    #[test]
    fn the_database_takes_many_and_before_any_other_change() {
        let (_dir, store) = store();
        for serial in 0..MANY as u64 + 2 {
            put(&store, &format!("k-{serial}"), serial, Condition::None).unwrap();
        }
        // The last of many was answered before the database took them, those after it later.
        assert_eq!(waiting(&store), 2);
        assert!(matches!(wait(store.delete_bucket("b")), Err(StoreError::BucketNotEmpty)));
        assert_eq!(waiting(&store), 0);
        put(&store, "last", 1, Condition::None).unwrap();
        assert_eq!(wait(store.delete("b", vec!["last".into()])).unwrap(), [true]);
        assert_eq!((waiting(&store), get(&store, "last")), (0, None));
        put(&store, "last", 1, Condition::None).unwrap();
        wait(store.change_object("b", "last", |object| object.etag = "new".into())).unwrap();
        assert_eq!(store.object("b", "last").unwrap().unwrap().etag, "new");
        assert_eq!(wait(store.repair(true)).unwrap(), Default::default());
    }

    #[test]
    fn what_waits_is_there_after_the_next_start() {
        let (dir, store) = store();
        put(&store, "one", 1, Condition::None).unwrap();
        put(&store, "one", 2, Condition::None).unwrap();
        assert_eq!(waiting(&store), 2);
        drop(store);
        let (store, recovery) = open(dir.path(), Durability::Full);
        assert!(!recovery.crashed && get(&store, "one") == Some(2), "{recovery:?}");
        assert_eq!(wait(store.repair(true)).unwrap().extents, 0);
    }
}
