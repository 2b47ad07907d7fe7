//! Removes the files of replaced and deleted segments, on a thread next to the commits, because removing a large file
//! takes a while.

use std::collections::BTreeSet;
use std::fs;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};

use super::durability::Durability;
use super::error::StoreError;
use super::extent::{self, is_packed, is_whole};
use super::folder::{Folder, sync_folder};
use super::trace;

/// A thread that removes files.
pub(super) struct Sweeper {
    ids: Option<Sender<Vec<u64>>>,
    thread: Option<JoinHandle<()>>,
    folder: Arc<Folder>,
    /// Files that were removed since this was last taken.
    removed: Arc<Mutex<Vec<u64>>>,
}

impl Sweeper {
    pub(super) fn start(folder: Arc<Folder>, durability: Durability) -> Result<Self, StoreError> {
        let (ids, queue) = mpsc::channel();
        folder.holds().swept_by(Some(ids.clone()));
        let removed = Arc::<Mutex<Vec<u64>>>::default();
        let thread = thread::Builder::new()
            .name("store-sweep".into())
            .spawn({
                let (removed, folder) = (removed.clone(), folder.clone());
                move || run(&queue, &folder, durability, &removed)
            })
            .map_err(StoreError::io("start a thread for", "removals".as_ref()))?;
        Ok(Self { ids: Some(ids), thread: Some(thread), folder, removed })
    }

    fn removed(&self) -> MutexGuard<'_, Vec<u64>> {
        lock(&self.removed)
    }

    /// Has the files of these ids removed.
    pub(super) fn sweep(&self, ids: Vec<u64>) {
        if let Some(queue) = &self.ids
            && !ids.is_empty()
        {
            // If the thread has ended, the next start removes the files.
            let _ = queue.send(ids);
        }
    }

    /// Returns the ids whose files were removed since the last call.
    pub(super) fn take_removed(&self) -> Vec<u64> {
        std::mem::take(&mut self.removed())
    }

    /// Puts ids back for the next [`take_removed`](Self::take_removed).
    pub(super) fn put_back(&self, mut ids: Vec<u64>) {
        self.removed().append(&mut ids);
    }

    /// Waits until all is removed.
    pub(super) fn stop(&mut self) {
        self.ids = None;
        self.folder.holds().swept_by(None);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the sweeper panicked");
        }
    }
}

fn lock(removed: &Mutex<Vec<u64>>) -> MutexGuard<'_, Vec<u64>> {
    removed.lock().expect("no code that holds it panics")
}

fn run(queue: &Receiver<Vec<u64>>, folder: &Folder, durability: Durability, removed: &Mutex<Vec<u64>>) {
    while let Ok(mut ids) = queue.recv() {
        queue.try_iter().for_each(|mut more| ids.append(&mut more));
        // Files that are being read come again later.
        ids.retain(|id| !folder.holds().keeps(*id));
        super::kill_points::point("before the removal");
        match sweep(folder, &mut ids, durability) {
            Ok(()) => lock(removed).append(&mut ids),
            Err(error) => tracing::warn!(%error, "removed files stay listed until the next start"),
        }
    }
}

/// Removes files, extents and packs, and the folders that they leave empty. Keeps in `ids` those that are gone.
pub(super) fn sweep(folder: &Folder, ids: &mut Vec<u64>, durability: Durability) -> Result<(), StoreError> {
    ids.sort_unstable();
    let mut gone = Vec::with_capacity(ids.len());
    // Extents that follow each other are one hole.
    for run in ids.chunk_by(|id, next| extent::are_neighbours(*id, *next)) {
        match folder.remove_run(run) {
            Ok(()) => gone.extend(run),
            Err(error) => tracing::warn!(%error, "a file stays until the next start"),
        }
    }
    *ids = gone;
    if ids.iter().any(|id| is_whole(*id)) && durability != Durability::None {
        sync_folder(folder.packs())?;
    }
    let files = ids.iter().filter(|id| !is_packed(**id));
    let numbers: BTreeSet<u64> = files.map(|id| Folder::number(*id)).collect();
    let mut some_gone = false;
    for path in numbers.into_iter().map(|number| folder.subfolder(number)) {
        if trace::removes_folder(&path, || fs::remove_dir(&path)).is_ok() {
            some_gone = true;
        } else if durability != Durability::None && path.exists() {
            // A name that came back after a power loss would be in no list.
            sync_folder(&path)?;
        }
    }
    if some_gone && durability != Durability::None { sync_folder(folder.data()) } else { Ok(()) }
}
