//! Holds on files, and on extents of packs, that are read later: they stay, even if their object is replaced, until
//! nothing holds them.
//!
//! An object in parts may have ten thousand files. Its reader holds all of them, and opens one after the other.

use std::collections::HashMap;
use std::fs::File;
use std::io::ErrorKind;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard};

use super::error::StoreError;
use super::extent::Extent;
use super::folder::Folder;
use super::record::Segment;

/// Holders of each file, and the sweeper that removes files after the last.
#[derive(Debug, Default)]
pub(super) struct Holds(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    held: HashMap<u64, Count>,
    /// Queue of the sweeper; `None` after it has stopped.
    sweeper: Option<Sender<Vec<u64>>>,
    /// Files that were looked at for their removal.
    looked_at: u64,
}

#[derive(Debug, Default)]
struct Count {
    holders: usize,
    /// True if no record refers to the file any more, so that it must be removed.
    unwanted: bool,
}

/// A moment of a store: files that were looked at for their removal until then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment(u64);

impl Holds {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no code that holds it panics")
    }

    /// Sets the sweeper that removes files after their last holder.
    pub(super) fn swept_by(&self, sweeper: Option<Sender<Vec<u64>>>) {
        self.state().sweeper = sweeper;
    }

    /// Returns true if a file must stay; it is removed after its last holder.
    pub(super) fn keeps(&self, id: u64) -> bool {
        let mut state = self.state();
        state.looked_at += 1;
        state.held.get_mut(&id).map(|count| count.unwanted = true).is_some()
    }

    /// Returns the present moment.
    pub(super) fn now(&self) -> Moment {
        Moment(self.state().looked_at)
    }
}

/// A hold on files, which stay until it is dropped.
#[derive(Debug)]
pub(super) struct Hold {
    folder: Arc<Folder>,
    ids: Vec<u64>,
}

impl Hold {
    pub(super) fn new(folder: &Arc<Folder>, ids: Vec<u64>) -> Hold {
        let mut state = folder.holds().state();
        for id in &ids {
            state.held.entry(*id).or_default().holders += 1;
        }
        Hold { folder: folder.clone(), ids }
    }

    /// Holds a segment of a record that was read after a moment. Returns the hold, and true if nothing was looked at
    /// for its removal since then: so the segment is still there, and stays.
    pub(super) fn since(folder: &Arc<Folder>, segment: u64, moment: Moment) -> (Hold, bool) {
        let mut state = folder.holds().state();
        state.held.entry(segment).or_default().holders += 1;
        let is_there = Moment(state.looked_at) == moment;
        drop(state);
        (Hold { folder: folder.clone(), ids: vec![segment] }, is_there)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut state = self.folder.holds().state();
        let mut free = Vec::new();
        for id in &self.ids {
            let Some(count) = state.held.get_mut(id) else { continue };
            count.holders -= 1;
            if count.holders == 0 {
                free.extend(count.unwanted.then_some(*id));
                state.held.remove(id);
            }
        }
        if let Some(sweeper) = state.sweeper.as_ref().filter(|_| !free.is_empty()) {
            // If the thread has ended, the next start removes the files.
            let _ = sweeper.send(free);
        }
    }
}

/// A segment whose file stays until this is dropped, open or not.
#[derive(Clone, Debug)]
pub struct HeldSegment {
    hold: Arc<Hold>,
    segment: Segment,
}

impl HeldSegment {
    /// Makes one of a hold that has this segment.
    pub(super) fn new(hold: &Arc<Hold>, segment: &Segment) -> HeldSegment {
        HeldSegment { hold: hold.clone(), segment: segment.clone() }
    }

    /// Opens the segment's file for reading.
    ///
    /// # Errors
    ///
    /// The errors of [`Store::open_segment`](super::Store::open_segment); but a missing file is lost.
    pub fn open(&self) -> Result<File, StoreError> {
        self.hold.folder.open(&self.segment)
    }
}

impl Folder {
    /// Opens a segment's file for reading, and checks its length.
    pub(super) fn open(&self, segment: &Segment) -> Result<File, StoreError> {
        let path = self.path(segment.id);
        let file = match File::open(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Err(StoreError::NotFound),
            file => file.map_err(StoreError::io("open", &path))?,
        };
        let length = file.metadata().map_err(StoreError::io("look at", &path))?.len();
        self.check(segment, length).map(|()| file)
    }

    /// Checks a segment's file without opening it.
    pub(super) fn look(&self, segment: &Segment) -> Result<(), StoreError> {
        let path = self.path(segment.id);
        match std::fs::metadata(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Err(StoreError::NotFound),
            found => self.check(segment, found.map_err(StoreError::io("look at", &path))?.len()),
        }
    }

    /// Returns the pack of a segment in an extent, opened for reading, and checks its length.
    pub(super) fn open_pack(&self, segment: &Segment, extent: Extent) -> Result<Arc<File>, StoreError> {
        let (file, length) = match self.open_packs().get(self.packs(), extent.pack) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Err(StoreError::NotFound),
            found => found.map_err(StoreError::io("open", &self.path(segment.id)))?,
        };
        self.check(segment, length).map(|()| file)
    }

    fn check(&self, segment: &Segment, length: u64) -> Result<(), StoreError> {
        let stored = segment.stored;
        let (right, wanted) = match Extent::of(segment.id) {
            None => (length == stored, stored),
            Some(extent) => {
                let end = extent.bytes().start + stored;
                // Other extents follow, or will. An empty extent writes nothing.
                (length >= end || stored == 0, end)
            }
        };
        if right {
            return Ok(());
        }
        let path = self.path(segment.id);
        Err(StoreError::Damaged(format!("{}: {length} bytes, not {wanted}", path.display())))
    }
}
