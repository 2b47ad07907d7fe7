//! The memory of a queue pair: rings, doorbells, descriptors, results. Both sides copy; neither trusts.
//!
//! Everything that the engine reads here is plain atomics, so that a session may write to it at any time without undefined behaviour, just
//! as a host may to memory that a card reads. The engine copies, then checks, then uses.

pub(crate) mod alone;
mod memory;

use crate::engine::meter::Meter;
use crate::outcome::DriveOutcome;
use crate::ring::Ring;
use dcs_abi::CHAIN_MAX;
use dcs_abi::descriptor::{DescriptorHeader, Plain};
use dcs_abi::entry::{CompletionEntry, SubmissionEntry};
use dcs_abi::inline::InlineEntry;
use dcs_abi::result::ResultArea;
use dcs_abi::status::{Stage, Status};
use dcs_devices::Endpoint;
use dcs_devices::endpoint::Closing;
use dcs_engine::QueueId;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};
use std::task::Waker;

/// Transfers that may be in flight in a session without a given depth.
pub const DEPTH: u16 = 64;

/// Most transfers in flight of one session.
pub const DEPTH_MAX: u16 = 4096;

/// Bytes of memory for one command: its descriptor, then its result area.
const SLOT_SIZE: usize = 4096;
/// Offset of the result area in its slot.
const RESULT_AT: usize = SLOT_SIZE - ResultArea::SIZE;
/// Bus address of the first slot: 0 would mean "none".
const BASE: u64 = SLOT_SIZE as u64;
/// Room for a descriptor.
pub(crate) const DESCRIPTOR_ROOM: usize = RESULT_AT;
/// Extents for which a descriptor has room, about, beside the parameters of a full chain.
pub(crate) const EXTENTS_MAX: usize = (DESCRIPTOR_ROOM - 256 - 8 * 80) / 16;

/// Endpoints of a command: prefix, source, destination.
const ENDPOINTS_MAX: usize = 3;

/// The handle of a command's endpoint: valid while the command is in flight.
fn handle(cid: u16, at: usize) -> u32 {
    u32::from(cid) * ENDPOINTS_MAX as u32 + at as u32 + 1
}

/// The address of a command's result area.
fn result_address(cid: u16) -> u64 {
    BASE + (cid as usize * SLOT_SIZE + RESULT_AT) as u64
}

fn chain_length(chain: &OpChain) -> usize {
    chain.iter().position(|number| *number == 0).unwrap_or(CHAIN_MAX)
}

/// Command identifiers of a queue with room for that many transfers.
fn identifiers(depth: u16) -> u16 {
    depth + depth.div_ceil(4)
}

/// One queue pair.
#[derive(Debug)]
pub(crate) struct QueuePair {
    pub id: OnceLock<QueueId>,
    /// Transfers that may be in flight.
    depth: u16,
    ring_depth: u16,
    submissions: Ring,
    /// Doorbells.
    pub sq_tail: AtomicU32,
    pub cq_head: AtomicU32,
    memory: Box<[AtomicU64]>,
    state: Mutex<State>,
    /// By command identifier: a completion has come and was not taken. The same as in its slot, for those who
    /// have not locked the state.
    done: Box<[AtomicBool]>,
    finished: Condvar,
    event: OnceLock<OwnedFd>,
    /// The load of its core, to which its transfers belong.
    meter: Arc<Meter>,
}

/// The session's side of a queue pair.
#[derive(Debug)]
struct State {
    sq_tail: u16,
    /// Transfers that may be submitted now.
    room: u16,
    /// Free command identifiers. There are more of them than room: one whose transfer was cancelled may be
    /// with the engine a while longer.
    free: Vec<u16>,
    slots: Vec<Slot>,
    /// Scratch memory for descriptors.
    scratch: Box<[u8]>,
    closed: bool,
    /// Threads that sleep in [`QueuePair::wait`].
    sleepers: u32,
}

/// A transfer in flight or done, by its command identifier.
#[derive(Debug, Default)]
struct Slot {
    busy: bool,
    /// It takes room: in flight, or done and its completion was not taken.
    counted: bool,
    /// The engine was asked to abort it and has not done so yet: until then the identifier is not free.
    cancelling: bool,
    /// It was cancelled before the engine fetched its entry, which is still in the ring: until it is fetched,
    /// the identifier is not free.
    unfetched: bool,
    /// Its completion will not be taken.
    detached: bool,
    /// Submitted, and its completion has not come.
    in_flight: bool,
    /// The endpoints behind its handles: see [`handle`].
    endpoints: Endpoints,
    chain: OpChain,
    /// Its outcome at a drive, if one runs its chain.
    near: Option<Arc<DriveOutcome>>,
    /// Bytes of its descriptor that may hold keys, from its start.
    secret: usize,
    /// The descriptor in its memory is [`Plain`], or none was ever there that was not.
    is_plain: bool,
    /// Files of a transfer that is done. Closing them may block, so the thread that takes its completion
    /// closes them, not the engine. Usually there are none.
    files: Option<Box<Endpoints>>,
    /// Its completion came, and a drive still writes a file for it: it has not ended yet.
    held: Option<CompletionEntry>,
    /// Its completion has come, and was not taken.
    done: Option<CompletionEntry>,
    /// The engine's result then. The memory goes back and forth between the two.
    area: Option<Box<ResultArea>>,
    /// The reason of its failure in words, where its backend gives one.
    reason: Option<Box<str>>,
    waker: Option<Waker>,
}

/// Numbers of operators, then zeros.
pub(crate) type OpChain = [u8; CHAIN_MAX];

/// The endpoints of a command.
pub(crate) type Endpoints = [Option<Arc<Endpoint>>; ENDPOINTS_MAX];

/// A completion, with its result area.
#[derive(Debug)]
pub struct Finished<'a> {
    /// The ring's entry.
    pub entry: CompletionEntry,
    /// Numbers of operators, then zeros.
    pub chain: OpChain,
    /// Stages and digests of operators that the chain does not have are zero.
    pub result: &'a ResultArea,
    /// The reason of its failure in words, where its backend gives one.
    pub reason: Option<&'a str>,
}

impl Finished<'_> {
    /// Applies `of` to the end of a parent's transfers as a child of fork sees it.
    pub fn elsewhere<R>(of: impl FnOnce(&Finished<'_>) -> R) -> R {
        let mut entry = CompletionEntry { stage: Stage::Queue as u8, ..Default::default() };
        entry.set_status(Status::QueueDeleted, false);
        let result = ResultArea {
            status: Status::QueueDeleted.code(),
            stage: Stage::Queue as u8,
            errno: libc::EPERM as u32,
            ..Default::default()
        };
        of(&Finished { entry, chain: OpChain::default(), result: &result, reason: None })
    }

    /// The numbers of its operators.
    pub fn operators(&self) -> &[u8] {
        &self.chain[..chain_length(&self.chain)]
    }
}

/// The result of which the engine said nothing.
static NOTHING: ResultArea = <ResultArea as dcs_abi::Wire>::ZERO;

/// An event of a queue that threads wait for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Awaited {
    /// The engine has taken the queue in, or refused it.
    Opened,
    /// This transfer is done.
    Done(u16),
    /// Returns true if a transfer is done whose completion was not taken, or none is in flight.
    Any,
    /// The queue is gone, and with it all that was in flight.
    Closed,
}

/// Writes a descriptor, given the handles of its endpoints. Returns its length, or `None` if there is no
/// room.
type Describe<'a> = dyn Fn(&mut [u8], &[u32]) -> Option<usize> + 'a;

/// A command to be submitted.
pub(crate) struct Command<'a> {
    pub entry: SubmissionEntry,
    /// The chain that its completion tells of: that of the entry, or, of a transfer whose chain a drive runs,
    /// the drive's.
    pub chain: OpChain,
    pub endpoints: Endpoints,
    /// Parameters are among what `describe` writes: they may hold keys.
    pub secret: bool,
    /// A drive runs its chain.
    pub near: Option<Arc<DriveOutcome>>,
    /// Its descriptor, if it is of the most common kind, except for its handles; then `describe` is not
    /// called.
    pub plain: Option<Plain>,
    pub describe: &'a Describe<'a>,
}

/// Work that the end of transfers leaves for when the queue's lock is free.
#[derive(Debug, Default)]
struct AfterUnlock {
    wakers: Vec<Waker>,
    /// Endpoints whose close may block, and that nothing else will close.
    slow: Vec<Arc<Endpoint>>,
}

/// The reason for which a command was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    Full,
    Closed,
    NoRoom,
}

impl QueuePair {
    pub fn new(depth: u16, meter: Arc<Meter>) -> QueuePair {
        let identifiers = identifiers(depth);
        let words = identifiers as usize * SLOT_SIZE / 8;
        QueuePair {
            id: OnceLock::new(),
            depth,
            ring_depth: identifiers + 1,
            submissions: Ring::new(identifiers as usize + 1),
            sq_tail: AtomicU32::new(0),
            cq_head: AtomicU32::new(0),
            memory: memory::zeros(words),
            state: Mutex::new(State {
                sq_tail: 0,
                room: depth,
                free: (0..identifiers).rev().collect(),
                slots: (0..identifiers).map(|_| Slot { is_plain: true, ..Slot::default() }).collect(),
                scratch: vec![0; DESCRIPTOR_ROOM].into(),
                closed: false,
                sleepers: 0,
            }),
            done: (0..identifiers).map(|_| AtomicBool::new(false)).collect(),
            finished: Condvar::new(),
            event: OnceLock::new(),
            meter,
        }
    }

    /// Entries of each ring: one more than can be in them, so that a full ring differs from an empty one.
    pub fn ring_depth(&self) -> u16 {
        self.ring_depth
    }

    /// The slot behind that one, in either ring.
    #[inline]
    pub fn after(&self, slot: u16) -> u16 {
        if slot + 1 == self.ring_depth { 0 } else { slot + 1 }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|error| error.into_inner())
    }
}

// The session's side.
impl QueuePair {
    /// Writes an inline entry, and rings the doorbell; identifier, handles and result address are filled in. Returns the
    /// command identifier.
    pub fn submit_inline(
        &self,
        inline: &mut InlineEntry,
        chain: OpChain,
        endpoints: Endpoints,
    ) -> Result<u16, Refused> {
        let mut state = self.state();
        if state.closed {
            return Err(Refused::Closed);
        }
        let cid = *state.free.last().filter(|_| state.room > 0).ok_or(Refused::Full)?;
        (inline.cid, inline.result_address) = (cid, result_address(cid));
        (inline.source_handle, inline.destination_handle) = (handle(cid, 0), handle(cid, 1));
        self.take_in(&mut state, cid, endpoints, chain, None);
        self.push_bytes(&mut state, &inline.to_bytes());
        Ok(cid)
    }

    /// Writes descriptor and entry, and rings the doorbell. Returns the command identifier.
    pub fn submit(&self, command: Command<'_>) -> Result<u16, Refused> {
        let Command { mut entry, chain, endpoints, secret, near, plain, describe } = command;
        let mut state = self.state();
        if state.closed {
            return Err(Refused::Closed);
        }
        let cid = *state.free.last().filter(|_| state.room > 0).ok_or(Refused::Full)?;
        let handles: [u32; ENDPOINTS_MAX] = std::array::from_fn(|at| handle(cid, at));
        let slot = cid as usize * SLOT_SIZE;
        entry.cid = cid;
        entry.result_address = result_address(cid);
        let inline = plain.and_then(|mut plain| {
            (plain.source.0.handle, plain.destination.0.handle) = (handles[0], handles[1]);
            InlineEntry::new(&entry, &plain)
        });
        if let Some(inline) = inline {
            self.take_in(&mut state, cid, endpoints, chain, near);
            state.slots[cid as usize].secret = 0;
            self.push_bytes(&mut state, &inline.to_bytes());
            return Ok(cid);
        }
        let is_plain = std::mem::replace(&mut state.slots[cid as usize].is_plain, plain.is_some());
        let length = match plain {
            Some(plain) => self.write_plain(slot, plain, &handles, is_plain),
            None => self.write_descriptor(&mut state.scratch, slot, describe, &handles)?,
        };
        entry.descriptor_address = BASE + slot as u64;
        entry.descriptor_length = length as u32;
        self.take_in(&mut state, cid, endpoints, chain, near);
        state.slots[cid as usize].secret = if secret { length } else { 0 };
        self.push_bytes(&mut state, &entry.to_bytes());
        Ok(cid)
    }

    /// Takes an identifier, the last one that is free, for a transfer that is submitted now.
    #[inline]
    fn take_in(
        &self,
        state: &mut State,
        cid: u16,
        endpoints: Endpoints,
        chain: OpChain,
        near: Option<Arc<DriveOutcome>>,
    ) {
        state.free.pop();
        state.room -= 1;
        self.meter.begin(&chain);
        state.slots[cid as usize].begin(endpoints, chain, near);
    }

    /// Writes a plain descriptor into its slot; `again`: what is there is one already. Returns its length.
    fn write_plain(&self, slot: usize, mut plain: Plain, handles: &[u32], again: bool) -> usize {
        if !again {
            self.clear_memory(slot, DescriptorHeader::SIZE);
        }
        (plain.source.0.handle, plain.destination.0.handle) = (handles[0], handles[1]);
        let memory = &self.memory[slot / 8..(slot + RESULT_AT) / 8];
        plain.words(|at, word| memory[at].store(word, Ordering::Relaxed))
    }

    /// Writes a descriptor into its slot. Returns its length.
    fn write_descriptor(
        &self,
        scratch: &mut [u8],
        slot: usize,
        describe: &Describe<'_>,
        handles: &[u32],
    ) -> Result<usize, Refused> {
        let length = describe(scratch, handles).ok_or(Refused::NoRoom)?;
        self.write_memory(slot, &scratch[..length]);
        // Keys may have been in it.
        scratch[..length].fill(0);
        std::hint::black_box(&scratch);
        Ok(length)
    }

    /// Returns true if nothing can be submitted.
    pub fn is_full(&self) -> bool {
        let state = self.state();
        state.room == 0 || state.free.is_empty()
    }

    /// Records that the engine will be asked to abort a transfer; returns false if it is done, or was asked
    /// already.
    pub fn cancel(&self, cid: u16) -> bool {
        let mut state = self.state();
        let slot = &mut state.slots[cid as usize];
        if !slot.busy || slot.done.is_some() || slot.cancelling {
            return false;
        }
        slot.cancelling = true;
        true
    }

    /// Any bytes, as a process might write that has the ring in its memory.
    #[cfg(test)]
    pub fn push_raw(&self, bytes: &[u8; 64]) {
        self.push_bytes(&mut self.state(), bytes);
    }

    #[inline]
    fn push_bytes(&self, state: &mut State, entry: &[u8; 64]) {
        self.submissions.write(state.sq_tail as usize, entry);
        state.sq_tail = self.after(state.sq_tail);
        self.sq_tail.store(u32::from(state.sq_tail), Ordering::SeqCst);
    }

    /// Takes a finished transfer's completion, and applies `of` to it.
    pub fn take<R>(&self, cid: u16, of: impl FnOnce(&Finished<'_>) -> R) -> Option<R> {
        let mut state = self.state();
        let slot = &mut state.slots[cid as usize];
        let entry = slot.done.take()?;
        let found = slot.with_finished(entry, of);
        let files = slot.files.take();
        slot.detached = true;
        self.done[cid as usize].store(false, Ordering::Relaxed);
        state.release(cid);
        // Closed after the lock is released.
        drop(state);
        drop(files);
        Some(found)
    }

    /// Registers a task to be woken when a transfer is done; returns false if it is done already.
    pub fn wake_when_done(&self, cid: u16, waker: &Waker) -> bool {
        let slot = &mut self.state().slots[cid as usize];
        if slot.done.is_none() {
            slot.waker = Some(waker.clone());
        }
        slot.done.is_none()
    }

    /// Records that this transfer's completion will not be taken.
    pub fn detach(&self, cid: u16) {
        let mut state = self.state();
        let slot = &mut state.slots[cid as usize];
        slot.detached = true;
        slot.waker = None;
        let files = slot.files.take();
        if slot.done.take().is_some() {
            self.done[cid as usize].store(false, Ordering::Relaxed);
            state.release(cid);
        }
        drop(state);
        drop(files);
    }

    /// Applies `of` to a finished transfer's completion, which stays to be taken.
    pub fn peek<R>(&self, cid: u16, of: impl FnOnce(&Finished<'_>) -> R) -> Option<R> {
        let mut state = self.state();
        let slot = &mut state.slots[cid as usize];
        let found = slot.done.map(|entry| slot.with_finished(entry, of));
        let files = found.as_ref().and_then(|_| slot.files.take());
        drop(state);
        drop(files);
        found
    }

    /// Returns true if a transfer's completion can be taken, or the queue is gone.
    pub fn has(&self, awaited: Awaited) -> bool {
        match awaited {
            // The driving thread calls this often.
            Awaited::Done(cid) => self.done[cid as usize].load(Ordering::Acquire),
            _ => self.is_so(&self.state(), awaited),
        }
    }

    fn is_so(&self, state: &State, awaited: Awaited) -> bool {
        match awaited {
            Awaited::Opened => self.id.get().is_some() || state.closed,
            Awaited::Done(cid) => state.slots[cid as usize].done.is_some(),
            Awaited::Any => {
                let mut pending = state.slots.iter().filter(|slot| slot.in_flight && !slot.detached);
                state.slots.iter().any(|slot| slot.done.is_some()) || pending.next().is_none()
            }
            Awaited::Closed => state.closed,
        }
    }

    /// Waits for an event, or until `other` says that there is something else to do.
    pub fn wait(&self, awaited: Awaited, other: impl Fn() -> bool) {
        let mut state = self.state();
        while !self.is_so(&state, awaited) && !other() {
            state.sleepers += 1;
            state = self.finished.wait(state).unwrap_or_else(|error| error.into_inner());
            state.sleepers -= 1;
        }
    }

    /// Wakes those who wait, so that they ask `other` again.
    pub fn nudge(&self) {
        // Taken and dropped: a thread that has checked but does not wait yet holds the lock.
        let sleepers = self.state().sleepers;
        self.wake(sleepers);
    }

    /// A wake-up is a system call, so it is made only if a thread sleeps.
    fn wake(&self, sleepers: u32) {
        if sleepers > 0 {
            self.finished.notify_all();
        }
    }

    /// The eventfd that is readable after each completion; made when it is first wanted.
    pub fn event(&self) -> std::io::Result<&OwnedFd> {
        if self.event.get().is_none() {
            use rustix::event::EventfdFlags;
            let event = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
            let _ = self.event.set(event);
            // For completions from before there was an eventfd.
            if self.state().slots.iter().any(|slot| slot.done.is_some()) {
                self.signal();
            }
        }
        self.event.get().ok_or_else(|| std::io::Error::from(std::io::ErrorKind::Other))
    }
}

// The engine's side.
impl QueuePair {
    #[inline]
    pub fn read_submission(&self, slot: u16) -> [u8; 64] {
        self.submissions.read(slot as usize)
    }

    pub fn find(&self, handle: u32) -> Option<Arc<Endpoint>> {
        self.state().endpoint(handle).cloned()
    }

    /// Notes the reason of a command's failure, before its completion is written.
    pub fn explain(&self, cid: u16, reason: Box<str>) {
        if let Some(slot) = self.state().slots.get_mut(cid as usize) {
            slot.reason = Some(reason);
        }
    }

    /// Takes the completion in this slot of the completion ring, and wakes the thread that waits. `result`:
    /// the command's result, and the address that its entry gave for it. Returns the endpoints that are still
    /// to be closed, and memory of another result area.
    pub fn complete(
        &self,
        slot: u16,
        entry: CompletionEntry,
        result: Option<(u64, Box<ResultArea>)>,
    ) -> (Vec<Arc<Endpoint>>, Option<Box<ResultArea>>) {
        let mut state = self.state();
        let mut after = AfterUnlock::default();
        let cid = entry.cid;
        // A process may have written any address into the ring: an area counts only if it is its own
        // command's.
        let area = result.filter(|(address, _)| *address == result_address(cid)).map(|(_, area)| area);
        let of = state.slots.get_mut(cid as usize).filter(|slot| slot.in_flight && slot.held.is_none());
        let spare = of.and_then(|of| std::mem::replace(&mut of.area, area));
        self.take_completion(&mut state, entry, &mut after);
        self.cq_head.store(u32::from(self.after(slot)), Ordering::Release);
        let sleepers = state.sleepers;
        drop(state);
        (self.notify(sleepers, after), spare)
    }

    /// Makes the eventfd readable, if there is one.
    pub fn signal(&self) {
        if let Some(event) = self.event.get() {
            // EAGAIN: the counter is full, so it is readable.
            let _ = rustix::io::write(event, &1u64.to_ne_bytes());
        }
    }

    fn notify(&self, sleepers: u32, after: AfterUnlock) -> Vec<Arc<Endpoint>> {
        self.wake(sleepers);
        self.signal();
        after.wakers.into_iter().for_each(Waker::wake);
        after.slow
    }

    fn take_completion(&self, state: &mut State, entry: CompletionEntry, after: &mut AfterUnlock) {
        let Some(slot) = state.slots.get_mut(entry.cid as usize) else { return };
        if !slot.in_flight || slot.held.is_some() {
            // Its entry was fetched at last; its transfer ended long ago.
            slot.unfetched = false;
            return state.release(entry.cid);
        }
        self.end(state, entry, after);
    }

    /// Takes in that a transfer has ended.
    fn end(&self, state: &mut State, entry: CompletionEntry, after: &mut AfterUnlock) {
        self.forget_parameters(state, entry.cid);
        self.meter.end(&state.slots[entry.cid as usize].chain);
        self.finish(state, entry, after);
    }

    fn finish(&self, state: &mut State, entry: CompletionEntry, after: &mut AfterUnlock) {
        if state.finish(entry, after) {
            self.done[entry.cid as usize].store(true, Ordering::Release);
        }
    }

    /// Wipes a transfer's parameters: keys may be among them.
    fn forget_parameters(&self, state: &mut State, cid: u16) {
        let secret = std::mem::take(&mut state.slots[cid as usize].secret);
        if secret > 0 {
            self.clear_memory(cid as usize * SLOT_SIZE, secret);
        }
    }

    /// Finishes a transfer that the engine never had.
    fn abandon(&self, state: &mut State, cid: u16, status: Status, stage: Stage, after: &mut AfterUnlock) {
        let mut entry = CompletionEntry { cid, stage: stage as u8, ..Default::default() };
        entry.set_status(status, false);
        let result = ResultArea { status: status.code(), stage: stage as u8, ..Default::default() };
        state.slots[cid as usize].area = Some(Box::new(result));
        self.end(state, entry, after);
    }

    /// Takes in that the engine has aborted a cancelled transfer; `fetched`: it had its entry. Otherwise the
    /// transfer is done now: nothing of it was begun.
    pub fn cancelled(&self, cid: u16, fetched: bool) -> Vec<Arc<Endpoint>> {
        let mut state = self.state();
        let Some(slot) = state.slots.get_mut(cid as usize) else { return Vec::new() };
        slot.cancelling = false;
        let mut after = AfterUnlock::default();
        if !fetched && slot.in_flight {
            slot.unfetched = true;
            self.abandon(&mut state, cid, Status::Cancelled, Stage::Queue, &mut after);
        }
        state.release(cid);
        let sleepers = state.sleepers;
        drop(state);
        self.notify(sleepers, after)
    }

    /// Drives may have ended to write files: takes in that transfers have ended of which only that was missing.
    pub fn landed(&self) -> Vec<Arc<Endpoint>> {
        let mut state = self.state();
        let mut after = AfterUnlock::default();
        for cid in 0..state.slots.len() {
            if let Some(entry) = state.slots[cid].held.take() {
                self.finish(&mut state, entry, &mut after);
            }
        }
        let sleepers = state.sleepers;
        drop(state);
        self.notify(sleepers, after)
    }

    /// Closes the queue: transfers that were never fetched fail, and none can be submitted any more.
    pub fn close(&self) -> Vec<Arc<Endpoint>> {
        let mut state = self.state();
        state.closed = true;
        let mut after = AfterUnlock::default();
        for cid in 0..identifiers(self.depth) {
            let slot = &mut state.slots[cid as usize];
            (slot.cancelling, slot.unfetched) = (false, false);
            if slot.in_flight && slot.held.is_none() {
                self.abandon(&mut state, cid, Status::QueueDeleted, Stage::Frontend, &mut after);
            }
        }
        let sleepers = state.sleepers;
        drop(state);
        self.notify(sleepers, after)
    }
}

impl Slot {
    /// Becomes the slot of a transfer that is submitted. A free slot has no endpoints, completion or waker;
    /// everything else is set here.
    fn begin(&mut self, endpoints: Endpoints, chain: OpChain, near: Option<Arc<DriveOutcome>>) {
        debug_assert!(!self.busy && !self.cancelling && !self.unfetched && self.done.is_none());
        debug_assert!(self.endpoints.iter().all(Option::is_none) && self.files.is_none());
        (self.busy, self.counted, self.in_flight, self.detached) = (true, true, true, false);
        // Those that it had are gone: there is nothing to be dropped.
        std::mem::forget(std::mem::replace(&mut self.endpoints, endpoints));
        (self.chain, self.near) = (chain, near);
        (self.reason, self.waker) = (None, None);
    }

    /// Applies `of` to its completion.
    #[inline]
    fn with_finished<R>(&self, entry: CompletionEntry, of: impl FnOnce(&Finished<'_>) -> R) -> R {
        if self.near.is_some() {
            return self.with_both(entry, of);
        }
        let result = self.area.as_deref().unwrap_or(&NOTHING);
        of(&Finished { entry, chain: self.chain, result, reason: self.reason.as_deref() })
    }

    /// The same, of a transfer whose chain a drive has run.
    #[cold]
    fn with_both<R>(&self, mut entry: CompletionEntry, of: impl FnOnce(&Finished<'_>) -> R) -> R {
        let (mut result, mut reason) = (*self.area.as_deref().unwrap_or(&NOTHING), self.reason.clone());
        if let Some(near) = &self.near {
            near.join(&mut entry, &mut result, &mut reason);
        }
        of(&Finished { entry, chain: self.chain, result: &result, reason: reason.as_deref() })
    }
}

impl State {
    /// The endpoint behind a handle: see [`handle`].
    #[inline]
    fn endpoint(&self, handle: u32) -> Option<&Arc<Endpoint>> {
        let at = handle.checked_sub(1)? as usize;
        self.slots.get(at / ENDPOINTS_MAX)?.endpoints[at % ENDPOINTS_MAX].as_ref()
    }

    /// Ends a transfer; true where its completion is to be taken now.
    fn finish(&mut self, entry: CompletionEntry, after: &mut AfterUnlock) -> bool {
        let slot = &mut self.slots[entry.cid as usize];
        if let Some(near) = &slot.near {
            near.pipe_ended(entry.status());
        }
        for at in 0..ENDPOINTS_MAX {
            // Another owner, if there is one, closes it.
            let Some(endpoint) = slot.endpoints[at].take().and_then(Arc::into_inner) else { continue };
            match endpoint.closing() {
                Closing::AtOnce => drop(endpoint),
                Closing::OnDisk if !slot.detached => {
                    slot.files.get_or_insert_default()[at] = Some(Arc::new(endpoint));
                }
                Closing::OnDisk | Closing::OnPeer => after.slow.push(Arc::new(endpoint)),
            }
        }
        if let Some(near) = &slot.near {
            // The pipe has no reader any more: the drive hears of that before its next command.
            if !near.has_let_go() {
                slot.held = Some(entry);
                return false;
            }
            near.count(entry.status());
        }
        slot.in_flight = false;
        slot.done = Some(entry);
        after.wakers.extend(slot.waker.take());
        if slot.detached {
            slot.done = None;
            self.release(entry.cid);
            return false;
        }
        true
    }

    /// Gives a transfer's room back once its completion was taken, and its identifier once the engine is
    /// through with it as well.
    fn release(&mut self, cid: u16) {
        let slot = &mut self.slots[cid as usize];
        if !slot.busy || !slot.detached || slot.done.is_some() || slot.in_flight {
            return;
        }
        self.room += u16::from(std::mem::take(&mut slot.counted));
        if !slot.cancelling && !slot.unfetched {
            slot.busy = false;
            self.free.push(cid);
        }
    }
}

#[cfg(test)]
mod tests;
