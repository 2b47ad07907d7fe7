//! The card backend: a dcs card in this machine runs the transfers, on SSDs and NICs that it drives itself.
//!
//! There is no kernel module: the card, its SSDs and its NICs are taken by vfio-pci, and this process owns
//! them. The devices reach the card's memory and nothing else; the card reaches them and one buffer of this
//! process, in which commands and the memory of memory endpoints lie. Of a file's bytes the processor sees
//! none.
//!
//! # Architecture
//!
//! ```text
//!   QueuePair (as with every backend) --> translate: files to extents of an SSD (FIEMAP), memory to the buffer
//!                                            |
//!   this loop -- hardware: submission ring, doorbell --> card --> SSDs, NIC (peer-to-peer)
//!             <- completion ring <- MSI-X, an eventfd --+
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | [`extents`] | where on its disk a file's bytes lie, and why they may not be had there |
//! | `options` | which functions are the card's |
//! | `error` | why a card cannot be used |
//! | `hardware` | the functions over VFIO, the rings, admin commands |
//! | `translate` | from a session's command to the card's |
//! | `page_allocator` | the buffer's free pages |
//! | `disks` | the disks: the same ones as the kernel's |
//! | `files` | which files a card may have |
//! | `lease`, `range` | what keeps a file's blocks where they are meanwhile; ranges that are held |
//! | `cache` | the page cache of what the card writes |
//! | `parts`, `lending` | parts of SSDs: function 0 lends them, the card's other functions open them |
//!
//! # The page cache
//!
//! Dirty pages of the page cache are written back before the card reads (FIEMAP_FLAG_SYNC). A range that the
//! card writes into a file is read anew from the disk: the pages that the kernel has of that range are
//! dropped before and after, and where some stay, the transfer fails. While the card has a file, nobody may
//! move its blocks: `lease` says by what means.
//!
//! # A card that goes
//!
//! If the card has commands and reports nothing for a second, its status (CSTS) is read. A card that was
//! pulled out, was reset or has failed ends all commands, and all later ones, with `DEVICE_RESET` at stage
//! `frontend`; how much they had delivered is unknown.
//!
//! # Functions
//!
//! Of a card with several functions this process drives one. Function 0 has the devices, and lends parts of its SSDs to
//! the others ([`Engine::lend`](crate::Engine::lend)). Another one is driven without disks and NICs, has no memory of the
//! card as a BAR, and opens the parts that it is lent ([`Engine::open_part`](crate::Engine::open_part)).
//!
//! # What it doesn't implement
//!
//! * Files that grow: a destination has to have all its bytes allocated and written once
//!   ([`extents::prepare`]).
//! * File systems other than ext4 and XFS, and files whose bytes on the disk are not those that are read.
//! * Sockets of the kernel: connections are the card's own ([`net`](crate::net)).
//! * A card that several processes share.

pub mod extents;

mod disks;
pub(crate) mod error;
mod files;
mod hardware;
pub(crate) mod lease;
pub(crate) mod lending;
pub(crate) mod options;
mod page_allocator;
mod parts;
pub(crate) mod range;
mod translate;

pub use error::CardError;
pub use lending::{Access, PartError};
pub use options::{Disk, Nic, Options, OptionsError};
pub use parts::{Lent, Part};

use crate::backend::{BackendLoop, Control, Info};
use crate::error::Error;
use crate::queue::QueuePair;
use crate::statistics::Statistics;
use dcs_abi::descriptor::{DescriptorHeader, Extent};
use dcs_abi::entry::{CompletionEntry, SubmissionEntry};
use dcs_abi::inline::{self, InlineEntry};
use dcs_abi::result::ResultArea;
use dcs_abi::status::{Stage, Status};
use dcs_devices::controller::Waker;
use dcs_engine::QueueId;
use hardware::{BUFFER_HANDLE, Hardware, SLOTS};
use lending::Lending;
use page_allocator::PageAllocator;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use translate::{LATER, Refusal, Translated, Translator};

/// Silence of the card after which it is asked whether it is still there: one that has gone sends no
/// interrupts.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);

/// Interval at which the loop checks for programs that wait for a file that the card has, and aborts again what goes on.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// The refusal of commands whose card has gone.
fn gone() -> Refusal {
    Refusal::new(Stage::Frontend, Status::DeviceReset, 0)
}

/// The descriptor that an inline entry stands for.
fn spelled_out(inline: &InlineEntry) -> Result<Vec<u8>, Status> {
    let plain = inline.plain().map_err(|_| Status::InvalidField)?;
    let mut bytes = vec![0; DescriptorHeader::SIZE + 2 * Extent::SIZE];
    let used = plain.words(|at, word| bytes[at * 8..][..8].copy_from_slice(&word.to_le_bytes()));
    bytes.truncate(used);
    Ok(bytes)
}

/// A session's queue.
#[derive(Debug)]
struct Queue {
    pair: Arc<QueuePair>,
    seen_tail: u32,
    next_fetch: u16,
    next_completion: u16,
    phase: bool,
    unwanted: Vec<u16>,
    deleting: bool,
}

/// A command that the card has.
#[derive(Debug)]
struct Flight {
    queue: QueueId,
    /// The session's identifier of it, and where its result goes.
    cid: u16,
    result: u64,
    translated: Translated,
    /// It was aborted because another program waits for its file at this stage.
    given_up: Option<Stage>,
    /// Set if it was aborted.
    is_aborted: bool,
}

/// The card backend: the sessions' queues, and the commands that the card has.
#[derive(Debug)]
pub(crate) struct CardLoop {
    hardware: Hardware,
    translator: Translator,
    lending: Arc<Lending>,
    memory: PageAllocator,
    queues: Vec<Option<Queue>>,
    opening: Vec<Arc<QueuePair>>,
    /// By the card's identifier.
    flights: Vec<Option<Flight>>,
    waker: Waker,
    statistics: Arc<Mutex<Statistics>>,
    counted: Statistics,
    /// A command waits for room in the buffer, and nothing was done since.
    stalled: bool,
    stopping: bool,
    closed: bool,
    /// The card has gone, or has given up: it is asked for nothing any more.
    lost: bool,
    /// When it was last known to be there, while it has something.
    heard: Option<Instant>,
    /// Time of the last check for programs that wait for a file.
    looked: Instant,
    /// Time of the last Abort, as long as some aborted command may go on.
    aborted_at: Option<Instant>,
}

impl CardLoop {
    pub fn new(options: &Options) -> Result<CardLoop, Error> {
        let waker = Waker::new().map_err(Error::Start)?;
        let (hardware, disks) = Hardware::new(options)?;
        let lending = Arc::new(Lending::new(disks.clone()));
        let counted = Statistics {
            blocks: hardware.blocks(),
            blocks_free: hardware.blocks(),
            is_idle: true,
            ..Default::default()
        };
        Ok(CardLoop {
            memory: PageAllocator::new(hardware.data()),
            hardware,
            translator: Translator::new(disks, lending.number(), BUFFER_HANDLE),
            lending,
            queues: Vec::new(),
            opening: Vec::new(),
            flights: (0..SLOTS).map(|_| None).collect(),
            waker,
            statistics: Arc::new(Mutex::new(counted)),
            counted,
            stalled: false,
            stopping: false,
            closed: false,
            lost: false,
            heard: None,
            looked: Instant::now(),
            aborted_at: None,
        })
    }

    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Facts about the card, and where its statistics are written.
    pub fn info(&self) -> Info {
        Info {
            statistics: Arc::clone(&self.statistics),
            asks_for_statistics: true,
            nics: self.hardware.nics.clone(),
            lending: Some(Arc::clone(&self.lending)),
            ..Info::default()
        }
    }

    fn publish(&mut self) {
        self.counted.transfers = self.flights.iter().flatten().count();
        self.counted.is_idle = self.counted.transfers == 0;
        *self.statistics.lock().unwrap_or_else(|error| error.into_inner()) = self.counted;
    }

    fn add_queue(&mut self, pair: Arc<QueuePair>) {
        let at = self.queues.iter().position(Option::is_none).unwrap_or(self.queues.len());
        if at > usize::from(u16::MAX) {
            return drop(pair.close());
        }
        let _ = pair.id.set(QueueId(at as u16));
        pair.nudge();
        let queue = Queue {
            pair,
            seen_tail: 0,
            next_fetch: 0,
            next_completion: 0,
            phase: true,
            unwanted: Vec::new(),
            deleting: false,
        };
        if at == self.queues.len() {
            self.queues.push(None);
        }
        self.queues[at] = Some(queue);
    }

    fn delete_queue(&mut self, id: QueueId) {
        let Some(Some(queue)) = self.queues.get_mut(id.0 as usize) else { return };
        queue.deleting = true;
        for cid in 0..self.flights.len() {
            if self.flights[cid].as_ref().is_some_and(|flight| flight.queue == id) {
                self.abort(cid);
            }
        }
    }

    /// Has a command aborted, if there is one.
    fn abort(&mut self, cid: usize) {
        if let Some(flight) = &mut self.flights[cid] {
            flight.is_aborted = true;
            self.hardware.abort(cid as u16);
            self.aborted_at = Some(Instant::now());
        }
    }

    /// Aborts again what was aborted and goes on: the card may not have fetched it when it was told.
    fn abort_again(&mut self) {
        if self.aborted_at.is_none_or(|at| at.elapsed() < LOOK_INTERVAL) {
            return;
        }
        self.aborted_at = None;
        for cid in 0..self.flights.len() {
            if self.flights[cid].as_ref().is_some_and(|flight| flight.is_aborted) {
                self.abort(cid);
            }
        }
    }

    /// Returns an identifier for the card's next command.
    fn free_slot(&self) -> Option<usize> {
        let is_free = |at: &usize| self.flights[*at].is_none() && !self.hardware.is_aborting(*at as u16);
        (0..self.flights.len()).find(is_free)
    }

    /// Ends all commands of the card. How much of them was delivered is unknown.
    fn lose(&mut self) {
        self.lost = true;
        self.stalled = false;
        self.hardware.stop();
        self.hardware.silence();
        for at in 0..self.flights.len() {
            let Some(flight) = self.flights[at].take() else { continue };
            let (completion, area) = failed(flight.cid, &gone());
            // The kernel's cached pages of its file may be outdated.
            let _ = flight.translated.finish(&self.hardware, &completion);
            flight.translated.release(&mut self.memory);
            self.complete(flight.queue, completion, flight.result, &area, None);
        }
        self.publish();
    }

    fn cancel(&mut self, pair: &Arc<QueuePair>, cid: u16) {
        let Some(id) = pair.id.get().copied() else { return drop(pair.cancelled(cid, true)) };
        let flight = self
            .flights
            .iter()
            .position(|flight| flight.as_ref().is_some_and(|flight| flight.queue == id && flight.cid == cid));
        if let Some(flight) = flight {
            self.abort(flight);
            return drop(pair.cancelled(cid, true));
        }
        let Some(Some(queue)) = self.queues.get_mut(id.0 as usize) else {
            return drop(pair.cancelled(cid, true));
        };
        let unfetched = queue.has_unfetched(cid);
        if unfetched {
            queue.unwanted.push(cid);
        }
        drop(pair.cancelled(cid, !unfetched));
    }

    /// Takes entries of all queues, one of each in turn, as long as the card has room.
    fn fetch(&mut self) -> bool {
        let mut any = false;
        loop {
            let mut more = false;
            for at in 0..self.queues.len() {
                let Some(free) = self.free_slot() else { return any };
                let Some(queue) = self.queues[at].as_mut().filter(|queue| !queue.deleting) else { continue };
                queue.seen_tail = queue.pair.sq_tail.load(Ordering::SeqCst);
                let depth = queue.pair.ring_depth();
                if queue.seen_tail % u32::from(depth) == u32::from(queue.next_fetch) {
                    continue;
                }
                let bytes = queue.pair.read_submission(queue.next_fetch);
                let next = (queue.next_fetch + 1) % depth;
                if !self.begin(QueueId(at as u16), &bytes, free as u16) {
                    // It stays in the ring until something is done.
                    self.stalled = true;
                    continue;
                }
                if let Some(queue) = &mut self.queues[at] {
                    queue.next_fetch = next;
                }
                self.counted.fetched += 1;
                (any, more) = (true, true);
            }
            if !more {
                return any;
            }
        }
    }

    /// Hands a session's command to the card, under the identifier `as_cid`, or completes it at once. Returns
    /// false if there is no room for it now.
    fn begin(&mut self, id: QueueId, bytes: &[u8; 64], as_cid: u16) -> bool {
        let Some(queue) = self.queues[id.0 as usize].as_mut() else { return true };
        let Ok((entry, inline)) = inline::parse(bytes) else {
            let entry =
                SubmissionEntry { cid: u16::from_le_bytes([bytes[2], bytes[3]]), ..Default::default() };
            return self.refuse(id, &entry, (Stage::Frontend, Status::InvalidField, 0).into());
        };
        if let Some(at) = queue.unwanted.iter().position(|cid| *cid == entry.cid) {
            queue.unwanted.swap_remove(at);
            return self.refuse(id, &entry, (Stage::Queue, Status::Cancelled, 0).into());
        }
        if self.lost {
            return self.refuse(id, &entry, gone());
        }
        let described = match inline {
            Some(inline) => spelled_out(&inline),
            None => {
                let mut descriptor = Vec::new();
                let (address, length) = (entry.descriptor_address, entry.descriptor_length);
                let read = queue.pair.read_bus(address, length, &mut descriptor);
                read.map(|()| descriptor).ok_or(Status::DataTransferError)
            }
        };
        let mut descriptor = match described {
            Ok(descriptor) => descriptor,
            Err(status) => return self.refuse(id, &entry, (Stage::Frontend, status, 0).into()),
        };
        let pair = Arc::clone(&queue.pair);
        let translated =
            self.translator
                .translate(&entry, &descriptor, &mut self.memory, &self.hardware, |handle| pair.find(handle));
        // Keys may have been in it.
        descriptor.fill(0);
        match translated {
            Ok((translated, entry_of_card, descriptor)) => {
                let result = entry.result_address;
                self.flights[as_cid as usize] = Some(Flight {
                    queue: id,
                    cid: entry.cid,
                    result,
                    translated,
                    given_up: None,
                    is_aborted: false,
                });
                self.hardware.submit(as_cid, entry_of_card, &descriptor);
            }
            Err(Refusal { status: LATER, .. }) if self.flights.iter().any(Option::is_some) => return false,
            Err(Refusal { stage, status: LATER, errno, .. }) => {
                return self.refuse(id, &entry, (stage, Status::OutOfResources, errno).into());
            }
            Err(refusal) => return self.refuse(id, &entry, refusal),
        }
        true
    }

    /// Completes a command that the card never sees. True: nothing of it waits.
    fn refuse(&mut self, id: QueueId, entry: &SubmissionEntry, refusal: Refusal) -> bool {
        let (completion, area) = failed(entry.cid, &refusal);
        self.complete(id, completion, entry.result_address, &area, refusal.reason);
        true
    }

    /// Completes a session's command, with the reason of a failure in words if there is one.
    fn complete(
        &mut self,
        id: QueueId,
        mut completion: CompletionEntry,
        result: u64,
        area: &ResultArea,
        reason: Option<Box<str>>,
    ) {
        self.counted.completed += 1;
        self.counted.failed += u64::from(!completion.status().is_success());
        let Some(queue) = self.queues[id.0 as usize].as_mut() else { return };
        completion.set_status(completion.status(), queue.phase);
        if let Some(reason) = reason {
            queue.pair.explain(completion.cid, reason);
        }
        let slot = queue.next_completion;
        queue.next_completion = (slot + 1) % queue.pair.ring_depth();
        queue.phase ^= queue.next_completion == 0;
        let pair = Arc::clone(&queue.pair);
        self.publish();
        drop(pair.complete(slot, completion, Some((result, Box::new(*area)))));
    }

    /// Takes the card's completions.
    fn reap(&mut self) -> bool {
        let mut any = false;
        while let Some(entry) = self.hardware.completion() {
            (any, self.stalled) = (true, false);
            let Some(flight) = self.flights.get_mut(entry.cid as usize).and_then(Option::take) else {
                self.counted.ignored += 1;
                continue;
            };
            self.hardware.ended(entry.cid);
            let mut area = self.hardware.result(entry.cid);
            let mut completion = CompletionEntry { cid: flight.cid, ..entry };
            let mut reason = None;
            let failure = flight.translated.finish(&self.hardware, &completion).err();
            let given_up = flight.given_up.filter(|_| completion.status() == Status::Cancelled);
            let given_up = given_up
                .map(|stage| Refusal::of_file(stage, Status::PathUnavailable, &extents::ExtentError::Wanted));
            // The card itself gives the reason of a failure.
            let failure = failure.filter(|_| completion.status().is_success());
            if let Some(refusal) = given_up.or(failure) {
                (completion.stage, area.stage) = (refusal.stage as u8, refusal.stage as u8);
                (area.status, area.errno) = (refusal.status.code(), refusal.errno as u32);
                completion.set_status(refusal.status, false);
                reason = refusal.reason;
            }
            let deleting = |queue: &Queue| queue.deleting;
            let goes = self.queues[flight.queue.0 as usize].as_ref().is_some_and(deleting);
            if goes && completion.status() == Status::Cancelled {
                // Aborted because its session went.
                area.status = Status::QueueDeleted.code();
                completion.set_status(Status::QueueDeleted, false);
            }
            flight.translated.release(&mut self.memory);
            self.complete(flight.queue, completion, flight.result, &area, reason);
        }
        any
    }

    /// Aborts transfers whose files other programs wait for. A card that does not release them in time is
    /// switched off: then the kernel lets the programs in.
    fn look_after_holds(&mut self) {
        self.looked = Instant::now();
        let mut limits = None;
        let mut late = false;
        for cid in 0..self.flights.len() {
            let Some(flight) = &mut self.flights[cid] else { continue };
            let Some((stage, since)) = flight.translated.wanted() else { continue };
            let (gently, at_all) = *limits.get_or_insert_with(lease::limits);
            if since.elapsed() >= gently && flight.given_up.is_none() {
                flight.given_up = Some(stage);
                self.abort(cid);
            }
            late |= since.elapsed() >= at_all;
        }
        if late {
            self.lose();
        }
    }

    /// Queues that are to go do so when the card has nothing of theirs any more.
    fn close_queues(&mut self) -> bool {
        let mut any = false;
        for at in 0..self.queues.len() {
            let busy = self.flights.iter().flatten().any(|flight| flight.queue.0 as usize == at);
            if !busy && let Some(queue) = self.queues[at].take_if(|queue| queue.deleting) {
                drop(queue.pair.close());
                any = true;
            }
        }
        any
    }
}

impl BackendLoop for CardLoop {
    fn begin_turn(&mut self, _gets_signals: bool) {}

    fn end_turn(&mut self) {}

    fn is_empty(&self) -> bool {
        self.opening.is_empty() && self.queues.iter().all(Option::is_none)
    }

    fn is_busy(&self) -> bool {
        self.flights.iter().any(Option::is_some)
    }

    fn close(&mut self) {
        self.closed = true;
        self.hardware.stop();
    }

    fn abandon(&mut self) {
        self.closed = true;
        self.hardware.stop();
        let open = self.queues.iter_mut().filter_map(Option::take).map(|queue| queue.pair);
        open.chain(self.opening.drain(..)).for_each(|pair| drop(pair.close()));
    }

    fn control(&mut self, control: Control) {
        match control {
            Control::AddQueue(pair) if self.stopping || self.closed => drop(pair.close()),
            Control::AddQueue(pair) => self.opening.push(pair),
            Control::DeleteQueue(queue) => self.delete_queue(queue),
            Control::Cancel(pair, cid) => self.cancel(&pair, cid),
            // Threads that query a lost card learn that no answer will come.
            // Dropped, which answers them.
            Control::Admin(..) | Control::PacedSending(..) | Control::Identity(..)
                if self.lost || self.closed => {}
            Control::Admin(entry, answer) => self.hardware.admin(entry, answer),
            Control::Identity(handle, answer) => self.hardware.ask_identity(handle, answer),
            Control::PacedSending(handle, answer) => self.hardware.paced_sending(handle, answer),
            Control::UpdateStatistics(seen) => {
                // A register read stops the processor for longer than all else that a transfer takes.
                if !self.lost {
                    self.counted.blocks_free = self.hardware.blocks_free();
                }
                self.publish();
                let _ = seen.send(());
            }
            Control::Stop => {
                self.stopping = true;
                self.opening.drain(..).for_each(|pair| drop(pair.close()));
                (0..self.queues.len() as u16).for_each(|at| self.delete_queue(QueueId(at)));
            }
        }
    }

    fn step(&mut self) -> bool {
        if self.closed {
            return false;
        }
        let mut any = !self.opening.is_empty();
        for pair in std::mem::take(&mut self.opening) {
            self.add_queue(pair);
        }
        let answered = self.hardware.reap_admin() | self.reap();
        if answered {
            self.heard = None;
        }
        any |= answered;
        self.abort_again();
        any |= self.fetch();
        any |= self.close_queues();
        if any {
            self.hardware.ring();
            self.publish();
        }
        any
    }

    fn has_doorbell(&self) -> bool {
        let full = self.free_slot().is_none();
        let waits = |queue: &Queue| {
            let tail = queue.pair.sq_tail.load(Ordering::SeqCst) % u32::from(queue.pair.ring_depth());
            !queue.deleting && tail != u32::from(queue.next_fetch)
        };
        !full && !self.stalled && self.queues.iter().flatten().any(waits)
    }

    fn sleep(&mut self) {
        if self.lost || !self.is_busy() && !self.hardware.is_asked() {
            self.heard = None;
            return self.hardware.wait(&self.waker, None);
        }
        // Since it was given something, or was last heard. Others may wake us meanwhile, as often as they
        // like.
        let silent = self.heard.get_or_insert_with(Instant::now).elapsed();
        let holds = self.flights.iter().flatten().any(|flight| flight.translated.holds_any());
        if holds && self.looked.elapsed() >= LOOK_INTERVAL {
            self.look_after_holds();
        }
        if silent < WATCH_INTERVAL {
            let left = WATCH_INTERVAL - silent;
            let limit = if holds || self.aborted_at.is_some() { LOOK_INTERVAL.min(left) } else { left };
            return self.hardware.wait(&self.waker, Some(limit));
        }
        self.heard = None;
        if !self.hardware.is_well() && !self.reap() {
            self.lose();
        }
    }
}

/// The completion and the result area of a command for which the card makes none.
fn failed(cid: u16, refusal: &Refusal) -> (CompletionEntry, ResultArea) {
    let (stage, errno) = (refusal.stage as u8, refusal.errno as u32);
    let mut completion = CompletionEntry { cid, stage, ..Default::default() };
    completion.set_status(refusal.status, false);
    (completion, ResultArea { status: refusal.status.code(), stage, errno, ..Default::default() })
}

impl Queue {
    /// Returns true if an entry with this command identifier is in the ring and was not taken.
    fn has_unfetched(&self, cid: u16) -> bool {
        let depth = self.pair.ring_depth();
        let tail = self.pair.sq_tail.load(Ordering::SeqCst) % u32::from(depth);
        let mut slot = self.next_fetch;
        while u32::from(slot) != tail {
            let bytes = self.pair.read_submission(slot);
            if u16::from_le_bytes([bytes[2], bytes[3]]) == cid {
                return true;
            }
            slot = (slot + 1) % depth;
        }
        false
    }
}

const _: () = assert!(ResultArea::SIZE <= hardware::RESULT as usize);
