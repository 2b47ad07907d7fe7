//! Group commit: one thread applies all waiting operations in one transaction, makes it durable once, and answers each.
//!
//! ```text
//!   submit --job--> [queue] --batch--> committer: write packs, sync folders, apply each, commit --answers-->
//!                                          |  ^
//!                              discarded   v  |  removed
//!                                        sweeper: unlink
//! ```
//!
//! A batch of small objects alone is made durable by the journal: write their pack, check each, append an entry, sync
//! the pack ([`journal`](super::journal)). The database takes them later ([`waiting`](super::waiting)).
//!
//! A job that fails does not affect others. If a folder or the database fails, all jobs of the batch do. The database
//! is then opened again, which is the only way to go on after a failed write, and tells which of the two states it is
//! in. So a draft is removed only when it is known that no record refers to it.
//!
//! After a failed sync the kernel takes unwritten data for written: it shows them to readers, but will never write
//! them. So the database is read from the disk before it is opened again. If that fails, or a folder's names could not
//! be synced, the store stops: it takes no more changes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, RwLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use redb::{Database, ReadableDatabase};
use tokio::sync::oneshot;

use super::change::{Changes, NewPut};
use super::database;
use super::durability::Durability;
use super::error::StoreError;
use super::extent::Extent;
use super::folder::{Draft, Folder};
use super::journal::{self, Journal};
use super::pack::Pack;
use super::sweep::Sweeper;
use super::tables::BLOBS;
use super::waiting::Waiting;

/// Most operations in a transaction.
const BATCH: usize = 1024;

/// Time without a commit after which there is a checkpoint. Tests of the store's inside see what waits for it.
const REST: Duration = Duration::from_secs(if cfg!(test) { 60 } else { 1 });

/// Least time between two looks at a database that fails for readers. A record may stay unreadable, and whoever reads
/// it would cost a commit each time.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Database; `None` after it failed and could not be opened again.
pub(super) type Shared = Arc<RwLock<Option<Database>>>;

/// A waiting operation.
pub(super) trait Job: Send {
    /// Applies the operation, and keeps its result. An error concerns the whole transaction.
    fn apply(&mut self, changes: &mut Changes<'_>) -> Result<(), StoreError>;

    /// Returns its drafts.
    fn drafts(&mut self) -> &mut Vec<Draft>;

    /// Returns the most bytes that it takes in the journal; `None` if it can't be there.
    fn journaled(&self) -> Option<usize> {
        None
    }

    /// Returns the object that it puts, if it has not failed, and does nothing else.
    fn put(&self) -> Option<&NewPut> {
        None
    }

    /// Fails only this operation.
    fn fail(&mut self, error: StoreError);

    /// Answers the caller. Drafts that are still there are kept or dropped, depending on the result.
    fn answer(self: Box<Self>, committed: Result<(), StoreError>);
}

/// An operation whose caller waits for the result.
struct Operation<T, F> {
    change: Option<F>,
    drafts: Vec<Draft>,
    result: Result<T, StoreError>,
    reply: oneshot::Sender<Result<T, StoreError>>,
}

impl<T, F> Job for Operation<T, F>
where
    T: Send,
    F: FnOnce(&mut Changes<'_>) -> Result<T, StoreError> + Send,
{
    fn apply(&mut self, changes: &mut Changes<'_>) -> Result<(), StoreError> {
        let Some(change) = self.change.take() else { return Ok(()) };
        self.result = change(changes);
        match &self.result {
            Err(error) if error.is_fatal() => Err(error.clone()),
            _ => Ok(()),
        }
    }

    fn drafts(&mut self) -> &mut Vec<Draft> {
        &mut self.drafts
    }

    fn fail(&mut self, error: StoreError) {
        self.change = None;
        self.result = Err(error);
    }

    fn answer(self: Box<Self>, committed: Result<(), StoreError>) {
        answer(self.drafts, committed.and(self.result), self.reply);
    }
}

/// A put whose caller waits for the result.
struct PutOperation {
    /// `None` after it was applied, or failed.
    put: Option<NewPut>,
    drafts: Vec<Draft>,
    journaled: Option<usize>,
    result: Result<(), StoreError>,
    reply: oneshot::Sender<Result<(), StoreError>>,
}

impl Job for PutOperation {
    fn apply(&mut self, changes: &mut Changes<'_>) -> Result<(), StoreError> {
        let Some(put) = self.put.take() else { return Ok(()) };
        self.result = changes.put(&put);
        self.result.clone().or_else(|error| if error.is_fatal() { Err(error) } else { Ok(()) })
    }

    fn drafts(&mut self) -> &mut Vec<Draft> {
        &mut self.drafts
    }

    fn journaled(&self) -> Option<usize> {
        self.journaled
    }

    fn put(&self) -> Option<&NewPut> {
        self.put.as_ref()
    }

    fn fail(&mut self, error: StoreError) {
        self.put = None;
        self.result = Err(error);
    }

    fn answer(self: Box<Self>, committed: Result<(), StoreError>) {
        answer(self.drafts, committed.and(self.result), self.reply);
    }
}

fn answer<T>(
    drafts: Vec<Draft>,
    result: Result<T, StoreError>,
    reply: oneshot::Sender<Result<T, StoreError>>,
) {
    if result.is_ok() {
        drafts.into_iter().for_each(Draft::keep);
    } else {
        drop(drafts);
    }
    // The send fails if the caller does not wait any more.
    let _ = reply.send(result);
}

/// Request for more ids, which every transaction grants.
struct MoreIds(mpsc::Sender<Result<(), StoreError>>, Vec<Draft>);

impl Job for MoreIds {
    fn apply(&mut self, _: &mut Changes<'_>) -> Result<(), StoreError> {
        Ok(())
    }

    fn drafts(&mut self) -> &mut Vec<Draft> {
        &mut self.1
    }

    /// Does nothing, because this job writes nothing.
    fn fail(&mut self, _: StoreError) {}

    fn answer(self: Box<Self>, committed: Result<(), StoreError>) {
        let _ = self.0.send(committed);
    }
}

/// Handle to the committer's thread, which takes operations. When it is dropped, waiting operations are done, and the
/// thread ends.
pub(super) struct Committer {
    jobs: Option<Sender<Box<dyn Job>>>,
    thread: Option<JoinHandle<()>>,
    /// When it was last asked to look at the database.
    looked: Mutex<Option<Instant>>,
}

impl Committer {
    pub(super) fn start(
        database: Shared,
        path: PathBuf,
        folder: Arc<Folder>,
        durability: Durability,
        unsynced: Arc<AtomicBool>,
        journal: Journal,
        waiting: Arc<Waiting>,
    ) -> Result<Self, StoreError> {
        let (jobs, queue) = mpsc::channel();
        let sweeper = Sweeper::start(folder.clone(), durability)?;
        let stopped = None;
        let worker =
            Worker { database, path, folder, durability, unsynced, sweeper, journal, waiting, stopped };
        let thread = thread::Builder::new()
            .name("store-commit".into())
            .spawn(move || worker.run(&queue))
            .map_err(StoreError::io("start a thread for", "commits".as_ref()))?;
        Ok(Self { jobs: Some(jobs), thread: Some(thread), looked: Mutex::default() })
    }

    /// Returns true while the thread runs. It ends early only by a panic, which is a bug.
    pub(super) fn is_there(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    fn send(&self, job: Box<dyn Job>) -> Result<(), StoreError> {
        self.jobs.as_ref().ok_or(StoreError::Closed)?.send(job).map_err(|_| StoreError::Closed)
    }

    /// Has `change` applied and committed. `drafts` are the files that records refer to after it.
    pub(super) async fn submit<T: Send + 'static>(
        &self,
        drafts: Vec<Draft>,
        change: impl FnOnce(&mut Changes<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (reply, answer) = oneshot::channel();
        let result = Err(StoreError::Closed);
        self.send(Box::new(Operation { change: Some(change), drafts, result, reply }))?;
        answer.await.unwrap_or(Err(StoreError::Closed))
    }

    /// Has an object put and committed. `journaled` tells the most bytes that it takes in the journal, if it can be
    /// there.
    pub(super) async fn submit_put(
        &self,
        drafts: Vec<Draft>,
        journaled: Option<usize>,
        put: NewPut,
    ) -> Result<(), StoreError> {
        let (reply, answer) = oneshot::channel();
        self.send(Box::new(PutOperation { put: Some(put), drafts, journaled, result: Ok(()), reply }))?;
        answer.await.unwrap_or(Err(StoreError::Closed))
    }

    /// Looks at the database, which has failed for a reader, unless that was done a moment ago. Nobody waits for the
    /// answer. Returns true if it looks.
    pub(super) fn look(&self) -> bool {
        let mut looked = self.looked.lock().expect("no code that holds it panics");
        if looked.is_some_and(|at| at.elapsed() < LOOK_AGAIN) {
            return false;
        }
        *looked = Some(Instant::now());
        // Every transaction finds out.
        self.more_ids().is_ok()
    }

    /// Requests more ids. They are there when the answer is.
    pub(super) fn more_ids(&self) -> Result<Receiver<Result<(), StoreError>>, StoreError> {
        let (reply, answer) = mpsc::channel();
        self.send(Box::new(MoreIds(reply, Vec::new())))?;
        Ok(answer)
    }
}

impl Drop for Committer {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the committer panicked");
        }
    }
}

type Batch = Vec<Box<dyn Job>>;

struct Worker {
    database: Shared,
    path: PathBuf,
    folder: Arc<Folder>,
    durability: Durability,
    /// True if a sync of the database has failed since it was last read from the disk.
    unsynced: Arc<AtomicBool>,
    sweeper: Sweeper,
    journal: Journal,
    waiting: Arc<Waiting>,
    /// Error for which the store takes no more changes.
    stopped: Option<StoreError>,
}

impl Worker {
    fn run(mut self, queue: &Receiver<Box<dyn Job>>) {
        loop {
            let job = match self.journal.is_pending() {
                true => queue.recv_timeout(REST),
                false => queue.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match job {
                Ok(job) => {
                    let mut batch = vec![job];
                    batch.extend(queue.try_iter().take(BATCH - 1));
                    self.commit(batch);
                }
                // A checkpoint: the database takes what only the journal has.
                Err(RecvTimeoutError::Timeout) => self.commit(Batch::new()),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        // The next start has no journal to read.
        if let Some(pack) = self.folder.filling() {
            self.folder.leave_pack(pack.id);
            drop(pack);
            self.commit(Batch::new());
        }
        self.sweeper.stop();
        if self.stopped.is_some() {
            return;
        }
        if let Err(error) = self.transact(&mut Vec::new()) {
            tracing::warn!(%error, "files that are gone are still listed as garbage");
        }
    }

    fn commit(&mut self, mut batch: Batch) {
        if let Some(why) = &self.stopped {
            batch.into_iter().for_each(|job| job.answer(Err(why.clone())));
            return;
        }
        let packs = self.write_packs(&mut batch);
        let result = match self.journal_place(&packs, &mut batch) {
            Some((pack, extent)) => self.append(&mut batch, &pack, extent).map(|()| Vec::new()),
            None => {
                self.sync_packs(packs, &mut batch);
                self.sync_folders(&mut batch).and_then(|()| self.transact(&mut batch))
            }
        };
        if let Err(error) = &result {
            tracing::error!(%error, operations = batch.len(), "a commit failed");
            self.recover(&mut batch);
        }
        let is_well = result.is_ok();
        let (discarded, committed) = match result {
            Ok(discarded) => (discarded, Ok(())),
            Err(error) => (Vec::new(), Err(error)),
        };
        for job in batch {
            job.answer(committed.clone());
        }
        self.sweeper.sweep(discarded);
        if is_well
            && self.waiting.are_many()
            && let Err(error) = self.settle()
        {
            tracing::error!(%error, "the database does not take what the journal has");
            self.recover(&mut Batch::new());
        }
    }

    /// Has the database take the puts that wait for it.
    fn settle(&mut self) -> Result<(), StoreError> {
        let database = self.database.read().expect("readers do not panic");
        self.waiting.settle(database.as_ref().ok_or(StoreError::Closed)?)?;
        self.journal.replaced(self.waiting.take_replaced());
        Ok(())
    }

    /// Writes small objects' data to their packs. A failed write fails one operation.
    fn write_packs(&mut self, batch: &mut Batch) -> BTreeMap<u64, Arc<Pack>> {
        let mut packs: BTreeMap<u64, Arc<Pack>> = BTreeMap::new();
        for job in batch.iter_mut() {
            let written = job.drafts().iter_mut().try_for_each(|draft| {
                packs.extend(draft.pack().map(|pack| (pack.id, pack.clone())));
                draft.write()
            });
            written.unwrap_or_else(|error| job.fail(error));
        }
        packs
    }

    /// Returns the pack and the extent for a batch's entry in the journal; `None` if the batch has anything but small
    /// objects in the pack of the journal, or there is more to write down.
    fn journal_place(
        &self,
        packs: &BTreeMap<u64, Arc<Pack>>,
        batch: &mut Batch,
    ) -> Option<(Arc<Pack>, Extent)> {
        let pack = packs.get(&self.journal.pack()?).filter(|_| packs.len() == 1)?;
        let room: Option<usize> = batch.iter().map(|job| job.journaled()).sum();
        let is_open = self.database.read().expect("readers do not panic").is_some();
        if !is_open || self.folder.reservation().is_some() {
            return None;
        }
        let extent = self.folder.journal_extent(pack.id, room? + journal::FRAME_MAX)?;
        Some((pack.clone(), extent))
    }

    /// Checks a batch of small objects, and makes it durable by an entry in the journal. If that can't be written, the
    /// operations fail, and nothing is changed.
    fn append(&mut self, batch: &mut Batch, pack: &Arc<Pack>, extent: Extent) -> Result<(), StoreError> {
        let (mut objects, mut puts) = (Vec::new(), Vec::new());
        let database = self.database.read().expect("readers do not panic");
        let reading = database.as_ref().ok_or(StoreError::Closed)?;
        for job in batch.iter_mut() {
            let Some(put) = job.put() else { continue };
            let object = put.entry.clone();
            match self.waiting.check(reading, put, &objects) {
                Err(error) if error.is_fatal() => return Err(error),
                Err(error) => job.fail(error),
                Ok(()) => {
                    puts.push(object.put(job.drafts().iter().map(Draft::sum).collect()));
                    objects.push(object);
                }
            }
        }
        drop(database);
        if puts.is_empty() {
            return Ok(());
        }
        let entry = self.journal.entry(&puts);
        debug_assert!(entry.len() as u64 <= extent.bytes().end - extent.bytes().start);
        super::kill_points::point("before the commit");
        let written = pack.write(extent, &entry).map_err(StoreError::io("write", &pack.path));
        let synced = written.and_then(|()| match self.durability {
            Durability::None => Ok(()),
            _ => pack.sync().map_err(StoreError::io("sync", &pack.path)),
        });
        if let Err(error) = synced {
            tracing::error!(%error, path = %pack.path.display(), "the journal could not be written");
            // A later sync would succeed though these data are lost.
            self.folder.leave_pack(pack.id);
            self.journal.broken();
            batch.iter_mut().for_each(|job| job.fail(error.clone()));
            return Ok(());
        }
        super::kill_points::point("after the commit");
        self.journal.appended(extent);
        self.waiting.add(objects, self.journal.acknowledged());
        Ok(())
    }

    /// Syncs each pack once. A failed sync fails all operations whose data it should have made durable.
    fn sync_packs(&mut self, packs: BTreeMap<u64, Arc<Pack>>, batch: &mut Batch) {
        if self.durability != Durability::Full {
            return;
        }
        for pack in packs.into_values() {
            let Err(error) = pack.sync() else { continue };
            tracing::error!(%error, path = %pack.path.display(), "a sync failed");
            // A later sync would succeed though these data are lost.
            self.folder.leave_pack(pack.id);
            let error = StoreError::io("sync", &pack.path)(error);
            let is_of = |draft: &Draft| draft.pack().is_some_and(|other| other.id == pack.id);
            for job in batch.iter_mut() {
                if job.drafts().iter().any(is_of) {
                    job.fail(error.clone());
                }
            }
        }
    }

    /// Makes the drafts' names durable: each folder is synced once a batch.
    fn sync_folders(&mut self, batch: &mut Batch) -> Result<(), StoreError> {
        if self.durability == Durability::None {
            return Ok(());
        }
        let (mut files, mut new_packs) = (Vec::new(), Vec::new());
        for draft in batch.iter_mut().flat_map(|job| job.drafts().iter()) {
            match draft.pack() {
                Some(pack) => new_packs.extend(pack.is_new().then(|| pack.clone())),
                None => files.push(draft.id()),
            }
        }
        let synced = self.folder.sync_names(files.into_iter(), !new_packs.is_empty());
        if synced.is_ok() {
            new_packs.iter().for_each(|pack| pack.named());
        }
        if matches!(synced, Err(StoreError::Unsynced { .. })) {
            // A later sync would succeed though these names are lost.
            self.stop("the names of data files could not be synced");
        }
        synced
    }

    fn stop(&mut self, why: &'static str) {
        let why = StoreError::Stopped(why);
        tracing::error!(%why);
        self.stopped = Some(why);
        *self.database.write().expect("readers do not panic") = None;
    }

    /// Applies a batch. Returns the ids whose files are not needed any more.
    fn transact(&mut self, batch: &mut Batch) -> Result<Vec<u64>, StoreError> {
        if self.database.read().expect("readers do not panic").is_none() {
            self.reopen()?;
        }
        self.settle()?;
        let removed = self.sweeper.take_removed();
        self.folder.leave_old_pack();
        // The order matters: a pack that closes in between is still in flight for the first, or known to the second.
        let reservation = self.folder.reservation();
        let closed = self.folder.take_closed();
        // At the level `none` nothing waits for names.
        let named = |pack: &Arc<Pack>| self.durability == Durability::None || !pack.is_new();
        let pack = self.folder.filling().filter(named).map(|pack| pack.id);
        let mut result = self.write(batch, &removed, &closed, reservation, pack);
        match &mut result {
            Ok(discarded) => {
                discarded.extend(self.journal.checkpointed(pack));
                reservation.into_iter().for_each(|(_, end)| self.folder.reserved(end));
            }
            Err(_) => {
                self.sweeper.put_back(removed);
                closed.into_iter().for_each(|pack| self.folder.pack_closed(pack));
            }
        }
        result
    }

    fn write(
        &self,
        batch: &mut Batch,
        removed: &[u64],
        closed: &[u64],
        reservation: Option<(u64, u64)>,
        pack: Option<u64>,
    ) -> Result<Vec<u64>, StoreError> {
        let database = self.database.read().expect("readers do not panic");
        let transaction = database.as_ref().ok_or(StoreError::Closed)?.begin_write()?;
        let mut changes = Changes::new(&transaction)?;
        changes.removed(removed)?;
        if let Some((floor, end)) = reservation {
            changes.reserve(floor, end)?;
        }
        for job in batch {
            job.apply(&mut changes)?;
        }
        self.journal.checkpoint(&mut changes, pack)?;
        changes.discard_packs(closed, |pack| self.folder.is_in_flight(pack))?;
        let discarded = changes.finish()?;
        super::kill_points::point("before the commit");
        transaction.commit()?;
        super::kill_points::point("after the commit");
        Ok(discarded)
    }

    fn reopen(&mut self) -> Result<(), StoreError> {
        let shared = self.database.clone();
        let mut database = shared.write().expect("readers do not panic");
        *database = None;
        if self.unsynced.load(Relaxed) {
            database::mark_unsynced(&self.path);
            if let Err(error) = database::heed_mark(&self.path) {
                drop(database);
                tracing::error!(%error, "the database can't be read from the disk");
                self.stop("a sync of the database failed");
                return Err(error);
            }
            self.unsynced.store(false, Relaxed);
        }
        let opened = database::open(&self.path, self.durability != Durability::None, &self.unsynced)?.0;
        let before = self.journal.acknowledged();
        let (_, replaced) = journal::replay(&opened, &self.folder, self.durability, before)?;
        self.waiting.forget();
        self.journal.replaced(self.waiting.take_replaced());
        self.journal.replaced(replaced);
        *database = Some(opened);
        Ok(())
    }

    /// Recovers after a failure: finds out which drafts records refer to, and takes those and the doubtful ones from
    /// their jobs.
    fn recover(&mut self, batch: &mut Batch) {
        self.journal.broken();
        let drafts: Vec<_> = batch.iter_mut().flat_map(|job| std::mem::take(job.drafts())).collect();
        if self.stopped.is_some() {
            return drafts.into_iter().for_each(Draft::leave);
        }
        match self.reopen().and_then(|()| self.referred(&drafts)) {
            Ok(referred) => {
                for draft in drafts {
                    if referred.contains(&draft.id()) { draft.keep() } else { drop(draft) }
                }
            }
            Err(error) => {
                tracing::error!(%error, "the database can't be opened again");
                drafts.into_iter().for_each(Draft::leave);
            }
        }
    }

    fn referred(&self, drafts: &[Draft]) -> Result<BTreeSet<u64>, StoreError> {
        let database = self.database.read().expect("readers do not panic");
        let blobs = database.as_ref().ok_or(StoreError::Closed)?.begin_read()?.open_table(BLOBS)?;
        let mut referred = BTreeSet::new();
        for draft in drafts {
            if blobs.get(draft.id())?.is_some() {
                referred.insert(draft.id());
            }
        }
        Ok(referred)
    }
}
