//! The controllers of a process, in turn: tenants have shares of the storage, and so have the queues of each.

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

/// Maximum number of commands that are begun in one call.
const BATCH: usize = 64;

/// Bytes that an admin command copies, such as those of a program that is loaded, for each call in which its
/// drive then begins no further one but in its turn.
const ADMIN_BYTES: u64 = 16 << 10;

/// Commands that are begun before the storage gets them: a disk works on the first of a batch while the rest
/// is begun.
const CHUNK: usize = 8;

/// The storage gets the next commands of a batch in chunks that are so many times as large: each chunk costs a
/// call of the kernel and the disk's doorbell.
const CHUNK_GROWTH: usize = 4;

/// Steps of near-storage commands in one call if operators have slots.
const STEPS_MAX: usize = 4;

/// Batches of one drive for each slot, at work or waiting for one: the next is ready when one is done. The
/// rest waits with its drive, so that a guest with many chains makes neither scheduling nor its own reset
/// slow.
const AWAY_MAX: usize = 2;

/// The result of [`Drives::poll`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    /// Some work was done: call again.
    Busy,
    /// There is nothing to do until a guest rings a doorbell or the storage answers.
    Idle,
}

/// One of the drives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DriveId(pub(crate) u32);

/// Controllers with their guests, and the storage that they share.
pub struct Drives<P, S> {
    drives: Vec<Option<Drive<P>>>,
    /// Shares of the storage, by group, and the group whose turn it is.
    shares: Vec<Shares>,
    turn: usize,
    /// The drive whose turn it is among those that have admin commands.
    admin_turn: usize,
    storage: S,
    responses: Vec<Response>,
    /// Maximum number of commands that the storage has from each group, and the number that it has.
    window: usize,
    under_way: Vec<usize>,
    /// Shares of the operators' time.
    operators: Shares,
    /// Slots that do the operators' work; if there are none, the loop does it.
    pool: Option<Pool>,
    /// Commands begun, and requests answered by the storage, since it was made.
    begun: u64,
    answered: u64,
    /// Guests must ring the real doorbells.
    armed: bool,
    /// Memory to be freed, and the thread that frees it; without one the loop does, a bit at a time.
    waste: VecDeque<Waste>,
    disposal: Option<Disposal>,
}

/// Frees memory outside the loop.
type Disposal = Box<dyn FnMut(Waste) + Send>;

struct Drive<P> {
    controller: Arc<Mutex<Controller>>,
    port: P,
    /// It is removed once the storage has answered.
    removed: bool,
    /// Drives of one group share a window, by weight: they may wait for the same disk.
    group: usize,
    weight: u32,
    /// Its commands at the storage, and those on which slots work.
    outstanding: usize,
    away: usize,
    /// Calls until it may begin an admin command out of its turn.
    admin_rest: u64,
}

/// A controller's state is valid after every call, even one that panicked.
fn lock(controller: &Mutex<Controller>) -> MutexGuard<'_, Controller> {
    controller.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<P: HostPort, S: Storage> Drives<P, S> {
    /// Makes it without drives. The storage has up to `window` commands at once from each
    /// [group](Drives::set_group) of drives; further ones wait with their guests, and the shares decide whose
    /// is next.
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

    /// Has these slots do the operators' work. Call it before the first drive is added; it does nothing if
    /// there are no slots.
    pub fn set_workers(&mut self, workers: Box<dyn Workers>) {
        self.pool = Pool::new(workers);
    }

    /// The same, with a policy and bindings.
    ///
    /// # Errors
    ///
    /// Fails if the placement is for another number of slots.
    pub fn set_placed_workers(
        &mut self,
        workers: Box<dyn Workers>,
        placement: Placement,
    ) -> Result<(), PlacementError> {
        self.pool = Some(Pool::placed(workers, placement)?);
        Ok(())
    }

    /// Sets a drive's load relative to others, by which static policies assign slots.
    pub fn set_load(&mut self, drive: DriveId, load: u32) {
        if let Some(pool) = &mut self.pool {
            pool.set_load(drive.0 as usize, load);
        }
    }

    /// Has this free memory outside the loop; it wakes the loop when it has.
    pub fn set_disposal(&mut self, disposal: impl FnMut(Waste) + Send + 'static) {
        self.disposal = Some(Box::new(disposal));
    }

    /// Returns the slots that do operators' work, if there are any.
    pub fn slots(&self) -> impl Iterator<Item = SlotState> {
        self.pool.iter().flat_map(Pool::state)
    }

    /// Returns the storage.
    pub fn storage(&self) -> &S {
        &self.storage
    }

    /// Returns the storage, mutably.
    pub fn storage_mut(&mut self) -> &mut S {
        &mut self.storage
    }

    /// Returns the number of commands that the storage has.
    pub fn under_way(&self) -> usize {
        self.drives.iter().flatten().map(|held| held.outstanding).sum()
    }

    /// Returns the number of commands begun since this was made.
    pub fn begun(&self) -> u64 {
        self.begun
    }

    /// Returns the number of requests that the storage has answered since this was made.
    pub fn answered(&self) -> u64 {
        self.answered
    }

    /// Adds a drive. Others that hold the controller may call `register_read`, `register_write` and `reset`.
    pub fn add(&mut self, controller: Arc<Mutex<Controller>>, port: P, weight: u32) -> DriveId {
        let place = self.drives.iter().position(Option::is_none).unwrap_or(self.drives.len());
        if place == self.drives.len() {
            self.drives.push(None);
        }
        let (removed, group, outstanding, away, admin_rest) = (false, 0, 0, 0, 0);
        self.drives[place] =
            Some(Drive { controller, port, removed, group, weight, outstanding, away, admin_rest });
        self.shares[group].set(place, weight);
        self.operators.set(place, weight);
        if let Some(pool) = &mut self.pool {
            pool.set(place, weight);
        }
        DriveId(place as u32)
    }

    /// Changes a drive's weight.
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

    /// Puts a drive into a group: drives of one group may wait for the same disk. A slow or hanging disk
    /// holds up no drive of another group. Groups have small numbers; a drive begins in group 0.
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

    /// Removes a drive: its controller is reset and gets no more commands. Later calls of [`Drives::poll`]
    /// wait for its requests at the storage; [`Drives::is_removed`] says when they have ended.
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

    /// Returns true if nothing is left of a removed drive.
    pub fn is_removed(&self, drive: DriveId) -> bool {
        self.drives.get(drive.0 as usize).is_none_or(Option::is_none)
    }

    fn forget(&mut self, index: usize) {
        let is_over = |held: &mut Drive<P>| held.removed && held.outstanding == 0 && held.away == 0;
        if let Some(held) = self.drives[index].take_if(is_over) {
            self.waste.push_back(Waste::new(held.controller));
            // The next drive at this place is a tenant like any other.
            if let Some(pool) = &mut self.pool {
                pool.remove(index);
            }
        }
    }

    /// Frees memory that is not used any more; returns true if there was some.
    fn dispose(&mut self) -> bool {
        let busy = !self.waste.is_empty();
        match &mut self.disposal {
            Some(disposal) => self.waste.drain(..).for_each(disposal),
            None => drop(self.waste.pop_front()),
        }
        busy
    }

    /// Returns how long there is nothing to do unless a guest or the storage does something; `None` for ever.
    pub fn rest(&mut self) -> Option<Duration> {
        let all = self.drives.iter_mut().flatten().filter(|held| !held.removed);
        let rests = all.filter_map(|held| {
            let deadline = lock(&held.controller).deadline()?;
            Some(Duration::from_nanos(deadline.saturating_sub(held.port.uptime())))
        });
        rests.min()
    }

    /// Passes the storage's answers to the guests, and their next commands to the storage: a bounded number
    /// of them.
    pub fn poll(&mut self) -> Activity {
        if std::mem::take(&mut self.armed) {
            for held in self.drives.iter_mut().flatten().filter(|held| !held.removed) {
                lock(&held.controller).disarm(&mut held.port);
            }
        }
        let mut busy = self.answer() | self.take_back() | self.recall() | self.attend();
        if busy {
            // Guests get their answers first: they wake up while their next commands are begun.
            self.settle();
        }
        let (mut left, mut chunk, mut room) = (BATCH, CHUNK, CHUNK);
        loop {
            match self.begin_next(left.min(room).min(CHUNK)) {
                0 => break,
                begun => (left, room) = (left - begun, room - begun),
            }
            busy = true;
            if room == 0 {
                self.storage.commit();
                chunk *= CHUNK_GROWTH;
                room = chunk;
            }
        }
        self.begun += (BATCH - left) as u64;
        self.storage.commit();
        self.settle();
        // Last, once the disk has its commands and the guests have their answers.
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

    /// Does near-storage work. With slots, several steps, which only move data; else one piece of one
    /// command's work, so that plain commands of all guests wait for no more than that.
    fn operate(&mut self) -> bool {
        let steps = if self.pool.is_some() { STEPS_MAX } else { 1 };
        let busy = (0..steps).take_while(|_| self.operate_once()).count() > 0;
        if let Some(pool) = &mut self.pool
            && let Some(held) = self.drives.iter_mut().flatten().next()
        {
            // All ports have the same clock.
            pool.dispatch(held.port.uptime());
        }
        busy
    }

    /// Does a step of one near-storage command of one drive. Drives have shares of the time.
    fn operate_once(&mut self) -> bool {
        // Drives that could not.
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

    /// Takes back work that slots have done.
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

    /// Takes back the waiting batches of drives that are being reset or were removed: their results are not
    /// needed, and a reset waits for them.
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

    /// Asks guests with shadow doorbells to ring the real ones, since nobody polls for a while. Returns true
    /// if one has written a shadow doorbell meanwhile: poll again.
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
            // Several at once if they follow each other: register accesses of a guest may wait for a few
            // commands.
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

    /// Has all drives do what needs no new command, and begins an admin command of one of them. Returns true
    /// if there was anything to do.
    fn attend(&mut self) -> bool {
        let (mut busy, mut admin, turn) = (false, None, self.admin_turn);
        for (index, held) in self.drives.iter_mut().enumerate() {
            if let Some(Drive { controller, port, removed: false, admin_rest, .. }) = held {
                let mut controller = lock(controller);
                busy |= controller.attend(index as u32, port, &mut self.storage);
                let is_ready = controller.is_admin_ready();
                if *admin_rest > 0 {
                    *admin_rest -= 1;
                    busy |= is_ready;
                } else if is_ready && admin.is_none_or(|first| first < turn && turn <= index) {
                    admin = Some(index);
                }
            }
        }
        admin.is_some_and(|index| self.begin_admin(index)) || busy
    }

    /// Begins an admin command of a drive, whose share of the storage is charged with it. It waits neither
    /// for the drive's turn, which others' weights may put off, nor for a disk that hangs: a guest can abort
    /// the commands that wait for it. The next drive is next: one that floods holds up no other, and one
    /// whose commands copy much rests.
    fn begin_admin(&mut self, index: usize) -> bool {
        let Some(Some(held)) = self.drives.get_mut(index) else { return false };
        self.admin_turn = index + 1;
        let mut controller = lock(&held.controller);
        controller.at(held.port.uptime());
        let Some(cost) = controller.step(index as u32, &mut held.port, &mut self.storage) else {
            return false;
        };
        held.outstanding = controller.outstanding();
        held.admin_rest = cost / ADMIN_BYTES;
        self.shares[held.group].charge(index, cost);
        self.begun += 1;
        true
    }

    /// Begins commands of the drive whose turn it is, as long as it has the turn, up to `most`. Returns their
    /// number.
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
            while begun < most.min(room) && shares.has_credit(index) {
                // `None` if it has no more commands, or a reset came in between.
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

    /// Returns the drive of a group whose turn it is; `None` if the group's window is full.
    fn next_of(&mut self, group: usize, room: usize) -> Option<usize> {
        let drives = &self.drives;
        let is_ready = |index: usize| {
            let held = drives[index].as_ref().filter(|held| !held.removed && held.group == group);
            held.is_some_and(|held| lock(&held.controller).is_ready())
        };
        if room == 0 { None } else { self.shares[group].next(is_ready) }
    }
}
