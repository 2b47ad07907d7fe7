//! The controllers of a process, in turn: tenants have their shares of the storage, and within them their
//! queues.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::controller::Controller;
use crate::host::HostPort;
use crate::near::Operated;
use crate::placement::{Placement, PlacementError};
use crate::pool::{Pool, SlotState, Workers};
use crate::shares::Shares;
use crate::storage::{Response, Storage};
use crate::waste::Waste;

/// Commands that are begun in one call at most.
const BATCH: usize = 64;

/// Commands that are begun before the storage gets them: a disk works on the first of a batch while the rest
/// are begun.
const CHUNK: usize = 8;

/// Steps of near-storage commands in one call, where slots do the work.
const STEPS_MAX: usize = 4;

/// Batches of one drive that slots have, or that wait for one, for each slot: one more is ready when one is done. The
/// rest waits with its drive, so that a guest with many chains makes nobody's scheduling long, nor its own reset.
const AWAY_MAX: usize = 2;

/// The findings of a call of [`Drives::poll`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    /// Something was done: call again.
    Busy,
    /// Nothing is to do before a guest rings a doorbell or the storage answers.
    Idle,
}

/// A drive among others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DriveId(pub(crate) u32);

/// Controllers with their guests, and the storage that they share.
pub struct Drives<P, S> {
    drives: Vec<Option<Drive<P>>>,
    /// Shares of the storage, by group, and the group whose turn it is.
    shares: Vec<Shares>,
    turn: usize,
    /// The drive whose turn it is among those that have admin commands and no room.
    admin_turn: usize,
    storage: S,
    responses: Vec<Response>,
    /// Commands that the storage may have at once of each group of drives, and those that it has.
    window: usize,
    under_way: Vec<usize>,
    /// Shares of the time of operators: whose turn it is.
    operators: Shares,
    /// Slots that do operators' work; without, the loop does it.
    pool: Option<Pool>,
    /// Commands that were begun, and requests that the storage answered, since it was made.
    begun: u64,
    answered: u64,
    /// Guests must ring the real doorbells.
    armed: bool,
    /// Memory that is to be given back, and who does so; nobody: the loop, a bit at a time.
    waste: VecDeque<Waste>,
    disposal: Option<Disposal>,
}

/// Gives memory back beside the loop.
type Disposal = Box<dyn FnMut(Waste) + Send>;

struct Drive<P> {
    controller: Arc<Mutex<Controller>>,
    port: P,
    /// It goes when the storage has answered.
    removed: bool,
    /// Drives of one group share a window, by weight: they may wait for the same disk.
    group: usize,
    weight: u32,
    /// Commands that the storage has for it, and those that slots work on.
    outstanding: usize,
    away: usize,
}

/// A controller is in order after every call, even one that panicked.
fn lock(controller: &Mutex<Controller>) -> MutexGuard<'_, Controller> {
    controller.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<P: HostPort, S: Storage> Drives<P, S> {
    /// No drives yet. The storage has up to `window` commands at once of each [group](Drives::set_group) of drives; what is beyond
    /// waits with its guest, and the shares decide whose is next.
    pub fn new(storage: S, window: usize) -> Drives<P, S> {
        let (drives, responses) = (Vec::new(), Vec::with_capacity(window));
        Drives {
            drives,
            shares: vec![Shares::default()],
            turn: 0,
            admin_turn: 0,
            storage,
            responses,
            window,
            under_way: vec![0],
            operators: Shares::default(),
            pool: None,
            begun: 0,
            answered: 0,
            armed: false,
            waste: VecDeque::new(),
            disposal: None,
        }
    }

    /// Operators' work is done by these from now on. Before the first drive is added; nothing changes where there are no
    /// slots.
    pub fn set_workers(&mut self, workers: Box<dyn Workers>) {
        self.pool = Pool::new(workers);
    }

    /// The same, with a policy and bindings.
    ///
    /// # Errors
    ///
    /// Where the placement is for another number of slots.
    pub fn set_placed_workers(
        &mut self,
        workers: Box<dyn Workers>,
        placement: Placement,
    ) -> Result<(), PlacementError> {
        self.pool = Some(Pool::placed(workers, placement)?);
        Ok(())
    }

    /// Sets the load of a drive relative to others', by which static policies give it slots.
    pub fn set_load(&mut self, drive: DriveId, load: u32) {
        if let Some(pool) = &mut self.pool {
            pool.set_load(drive.0 as usize, load);
        }
    }

    /// Memory is given back by this from now on, which drops what it is handed beside the loop, and wakes the loop then.
    pub fn set_disposal(&mut self, disposal: impl FnMut(Waste) + Send + 'static) {
        self.disposal = Some(Box::new(disposal));
    }

    /// Slots that do operators' work, if there are any.
    pub fn slots(&self) -> impl Iterator<Item = SlotState> {
        self.pool.iter().flat_map(Pool::state)
    }

    /// The storage.
    pub fn storage(&self) -> &S {
        &self.storage
    }

    /// The storage, to be changed.
    pub fn storage_mut(&mut self) -> &mut S {
        &mut self.storage
    }

    /// Commands that the storage has.
    pub fn under_way(&self) -> usize {
        self.drives.iter().flatten().map(|held| held.outstanding).sum()
    }

    /// Commands that were begun since this was made.
    pub fn begun(&self) -> u64 {
        self.begun
    }

    /// Requests that the storage answered since this was made.
    pub fn answered(&self) -> u64 {
        self.answered
    }

    /// Adds a drive. Whoever else has the controller calls `register_read`, `register_write` and `reset`.
    pub fn add(&mut self, controller: Arc<Mutex<Controller>>, port: P, weight: u32) -> DriveId {
        let place = self.drives.iter().position(Option::is_none).unwrap_or(self.drives.len());
        if place == self.drives.len() {
            self.drives.push(None);
        }
        let (removed, group, outstanding, away) = (false, 0, 0, 0);
        self.drives[place] = Some(Drive { controller, port, removed, group, weight, outstanding, away });
        self.shares[group].set(place, weight);
        self.operators.set(place, weight);
        if let Some(pool) = &mut self.pool {
            pool.set(place, weight);
        }
        DriveId(place as u32)
    }

    /// Gives a drive another weight.
    pub fn set_weight(&mut self, drive: DriveId, weight: u32) {
        if let Some(Some(held)) = self.drives.get_mut(drive.0 as usize) {
            held.weight = weight;
            self.shares[held.group].set(drive.0 as usize, weight);
            self.operators.set(drive.0 as usize, weight);
            if let Some(pool) = &mut self.pool {
                pool.set(drive.0 as usize, weight);
            }
        }
    }

    /// Says which drives may wait for the same disk: those of one group. A disk that is slow, or hangs, holds up no drive of another
    /// group. Groups have small numbers; a drive begins in group 0.
    pub fn set_group(&mut self, drive: DriveId, group: usize) {
        let groups = self.shares.len().max(group + 1);
        self.shares.resize(groups, Shares::default());
        self.under_way.resize(groups, 0);
        let index = drive.0 as usize;
        if let Some(Some(held)) = self.drives.get_mut(index)
            && held.group != group
        {
            self.shares[held.group].remove(index);
            held.group = group;
            self.shares[group].set(index, held.weight);
        }
    }

    /// Takes a drive out: its controller is reset, and gets no command any more. What the storage has of it
    /// is waited for by later calls of [`Drives::poll`]; [`Drives::is_removed`] says when that is over.
    pub fn remove(&mut self, drive: DriveId) {
        let index = drive.0 as usize;
        if let Some(Some(held)) = self.drives.get_mut(index) {
            held.removed = true;
            lock(&held.controller).reset();
            self.shares[held.group].remove(index);
            self.operators.remove(index);
            self.forget(index);
        }
    }

    /// True if nothing is left of a drive that was taken out.
    pub fn is_removed(&self, drive: DriveId) -> bool {
        self.drives.get(drive.0 as usize).is_none_or(Option::is_none)
    }

    fn forget(&mut self, index: usize) {
        let is_over = |held: &mut Drive<P>| held.removed && held.outstanding == 0 && held.away == 0;
        if let Some(held) = self.drives[index].take_if(is_over) {
            self.waste.push_back(Waste::new(held.controller));
            // Who gets its place is a tenant like any other.
            if let Some(pool) = &mut self.pool {
                pool.remove(index);
            }
        }
    }

    /// Gives memory back that nobody has any more; true where there was some.
    fn dispose(&mut self) -> bool {
        let busy = !self.waste.is_empty();
        match &mut self.disposal {
            Some(disposal) => self.waste.drain(..).for_each(disposal),
            None => drop(self.waste.pop_front()),
        }
        busy
    }

    /// For how long nothing is to do where neither a guest nor the storage says anything; nothing: for ever.
    pub fn rest(&mut self) -> Option<Duration> {
        let all = self.drives.iter_mut().flatten().filter(|held| !held.removed);
        let rests = all.filter_map(|held| {
            let deadline = lock(&held.controller).deadline()?;
            Some(Duration::from_nanos(deadline.saturating_sub(held.port.uptime())))
        });
        rests.min()
    }

    /// Takes what the storage has answered to the guests, and their next commands to the storage: a bounded
    /// number of them.
    pub fn poll(&mut self) -> Activity {
        if std::mem::take(&mut self.armed) {
            for held in self.drives.iter_mut().flatten().filter(|held| !held.removed) {
                lock(&held.controller).disarm(&mut held.port);
            }
        }
        let mut busy = self.answer() | self.take_back() | self.recall();
        for (index, held) in self.drives.iter_mut().enumerate() {
            if let Some(Drive { controller, port, removed: false, .. }) = held {
                busy |= lock(controller).attend(index as u32, port, &mut self.storage);
            }
        }
        if busy {
            // Guests hear of their answers first: they wake up while their next commands are begun.
            self.settle();
        }
        let mut left = BATCH;
        loop {
            match self.begin_next(left.min(CHUNK)) {
                0 => break,
                begun => left -= begun,
            }
            busy = true;
            self.storage.commit();
        }
        self.begun += (BATCH - left) as u64;
        self.storage.commit();
        self.settle();
        // Last, when the disk has its commands and guests their answers.
        busy |= self.operate();
        busy |= self.dispose();
        if busy { Activity::Busy } else { Activity::Idle }
    }

    /// Interrupts guests that have new completions.
    fn settle(&mut self) {
        for held in self.drives.iter_mut().flatten() {
            let mut controller = lock(&held.controller);
            self.waste.extend(controller.waste().drain(..));
            if !held.removed {
                controller.settle(&mut held.port);
                held.outstanding = controller.outstanding();
            }
        }
    }

    /// Takes near-storage commands on. Where slots work, by several steps that only move data; else by one piece of one
    /// command's work: however many there are, everybody's plain commands wait for no more than that.
    fn operate(&mut self) -> bool {
        let steps = if self.pool.is_some() { STEPS_MAX } else { 1 };
        let busy = (0..steps).take_while(|_| self.operate_once()).count() > 0;
        if let Some(pool) = &mut self.pool
            && let Some(held) = self.drives.iter_mut().flatten().next()
        {
            // All ports have one clock.
            pool.dispatch(held.port.uptime());
        }
        busy
    }

    /// Takes one near-storage command of one drive on by a step. Drives have shares of the time.
    fn operate_once(&mut self) -> bool {
        // Those that could not.
        let mut tried = Vec::new();
        let most = self.pool.as_ref().map_or(usize::MAX, |pool| pool.count() * AWAY_MAX);
        loop {
            let drives = &self.drives;
            let next = self.operators.next(|index| {
                let held = drives[index].as_ref().filter(|held| !held.removed && !tried.contains(&index));
                let held = held.filter(|held| held.away < most);
                held.is_some_and(|held| lock(&held.controller).operates())
            });
            let Some(index) = next else { return false };
            let Some(Some(held)) = self.drives.get_mut(index) else { return false };
            let (mut controller, hands_over) = (lock(&held.controller), self.pool.is_some());
            let operated = controller.operate(index as u32, &mut held.port, &mut self.storage, hands_over);
            (held.outstanding, held.away) = (controller.outstanding(), controller.away());
            let Some(Operated { cost, batch }) = operated else {
                tried.push(index);
                continue;
            };
            self.operators.charge(index, cost);
            self.shares[held.group].charge(index, controller.take_unpaid());
            if let (Some(pool), Some(batch)) = (&mut self.pool, batch) {
                pool.request(batch, held.port.uptime());
            }
            self.storage.commit();
            controller.settle_times(&mut held.port);
            return true;
        }
    }

    /// Takes work back that slots have done.
    fn take_back(&mut self) -> bool {
        let mut busy = false;
        while let Some(pool) = &mut self.pool
            && let Some(held) = self.drives.iter_mut().flatten().next()
            && let Some(batch) = pool.done(held.port.uptime())
        {
            busy = true;
            let index = batch.ticket.drive as usize;
            if let Some(Some(held)) = self.drives.get_mut(index) {
                let mut controller = lock(&held.controller);
                controller.take_back(&mut held.port, batch);
                (held.outstanding, held.away) = (controller.outstanding(), controller.away());
                drop(controller);
                self.forget(index);
            }
        }
        busy
    }

    /// Takes back what waits for a slot, of drives that are being reset or were removed: nobody wants it any more, and a
    /// reset ends when it is back.
    fn recall(&mut self) -> bool {
        let mut busy = false;
        for index in 0..self.drives.len() {
            let (Some(pool), Some(Some(held))) = (&mut self.pool, self.drives.get_mut(index)) else {
                continue;
            };
            if held.away == 0 {
                continue;
            }
            let mut controller = lock(&held.controller);
            if !held.removed && !controller.is_resetting() {
                continue;
            }
            let batches = pool.recall(index);
            busy |= !batches.is_empty();
            batches.into_iter().for_each(|batch| controller.take_back(&mut held.port, batch));
            (held.outstanding, held.away) = (controller.outstanding(), controller.away());
            drop(controller);
            self.forget(index);
        }
        busy
    }

    /// Nobody polls for a while: guests with shadow doorbells are to ring the real ones. True where one has
    /// written a shadow meanwhile: poll again.
    pub fn arm(&mut self) -> bool {
        let mut more = false;
        self.armed = true;
        for held in self.drives.iter_mut().flatten().filter(|held| !held.removed) {
            more |= lock(&held.controller).arm(&mut held.port);
        }
        more
    }

    fn answer(&mut self) -> bool {
        self.storage.reap(&mut self.responses);
        let busy = !self.responses.is_empty();
        self.answered += self.responses.len() as u64;
        let mut responses = std::mem::take(&mut self.responses);
        let mut now = None;
        let mut rest = responses.drain(..).peekable();
        while let Some(first) = rest.next() {
            let drive = first.ticket.drive;
            let index = drive as usize;
            let Some(Some(held)) = self.drives.get_mut(index) else { continue };
            let mut controller = lock(&held.controller);
            controller.at(*now.get_or_insert_with(|| held.port.uptime()));
            // Several at once, if they follow each other: a guest's registers wait for a few.
            let (mut next, mut left) = (Some(first), CHUNK);
            while let Some(response) = next {
                controller.complete(&mut held.port, &mut self.storage, response);
                left -= 1;
                next = rest.next_if(|next| left > 0 && next.ticket.drive == drive);
            }
            held.outstanding = controller.outstanding();
            self.shares[held.group].charge(index, controller.take_unpaid());
            drop(controller);
            self.forget(index);
        }
        drop(rest);
        self.responses = responses;
        busy
    }

    /// Begins commands of the drive whose turn it is, as long as that is so, up to `most`. Returns their number.
    fn begin_next(&mut self, most: usize) -> usize {
        self.under_way.fill(0);
        for held in self.drives.iter().flatten() {
            self.under_way[held.group] += held.outstanding;
        }
        let (groups, turn) = (self.shares.len(), self.turn);
        for group in (0..groups).map(|at| (turn + at) % groups) {
            let room = self.window.saturating_sub(self.under_way[group]);
            let Some(index) = self.next_of(group, room) else { continue };
            self.turn = (group + 1) % groups;
            let Some(Some(held)) = self.drives.get_mut(index) else { return 0 };
            let (mut controller, mut begun) = (lock(&held.controller), 0);
            controller.at(held.port.uptime());
            let shares = &mut self.shares[group];
            while begun < most && (begun < room && shares.has_credit(index) || controller.is_admin_ready()) {
                // None where it has no more, or a reset came between.
                let Some(cost) = controller.step(index as u32, &mut held.port, &mut self.storage) else {
                    break;
                };
                shares.charge(index, cost);
                begun += 1;
            }
            held.outstanding = controller.outstanding();
            return begun;
        }
        0
    }

    /// Returns the drive of a group whose turn it is. Without room in the group's window, it is the turn of those that have an admin command:
    /// a guest can find out about a disk that hangs, and abort what waits for it.
    fn next_of(&mut self, group: usize, room: usize) -> Option<usize> {
        let drives = &self.drives;
        let is_ready = |index: usize, is_ready: fn(&Controller) -> bool| {
            let held = drives[index].as_ref().filter(|held| !held.removed && held.group == group);
            held.is_some_and(|held| is_ready(&lock(&held.controller)))
        };
        if room == 0 {
            // Not by the shares, in which others keep their turn. It is the next drive's turn afterwards: one that floods holds up none.
            let count = drives.len();
            let mut turns = (0..count).map(|at| (self.admin_turn + at) % count);
            let next = turns.find(|index| is_ready(*index, Controller::is_admin_ready));
            self.admin_turn = next.map_or(self.admin_turn, |index| index + 1);
            return next;
        }
        self.shares[group].next(|index| is_ready(index, Controller::is_ready))
    }
}
