//! An NVMe controller that answers like a real one [NVMe base specification 1.4, NVM command set].
//!
//! | module | contents |
//! |---|---|
//! | `admin` | commands of the admin queue |
//! | `identify` | data structures of Identify and Get Log Page |
//! | `io` | commands of I/O queues |
//! | `namespace` | the medium, which several controllers may share |
//! | `pointer` | PRP lists and SGLs, walked |
//! | `queue` | submission and completion queues as the controller keeps them |
//! | `registers` | the controller's registers and doorbells |
//! | `status` | statuses of failures that a retry would repeat |
//! | `task` | a command from its fetch to its completion |
//!
//! It fetches commands and moves data by transactions on the fabric, so the fabric counts, delays and refuses the same as for a
//! real device. See the crate's documentation for what is not implemented.

mod admin;
mod identify;
mod io;
mod namespace;
mod pointer;
mod queue;
mod registers;
pub mod status;
mod task;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use dcs_drivers::bus::{BusError, Window};
use dcs_testkit::Random;

pub use dcs_nvme::identify::Sgl;
pub use namespace::{Media, Namespace};
pub use pointer::{Next, Segment, Walk};

use crate::device::{Context, Device};
use crate::memory::Memory;
use queue::{CompletionQueue, Posted, SubmissionQueue};
use registers::Registers;
use task::Task;

/// Configuration of a controller.
#[derive(Clone)]
pub struct Config {
    /// Its namespaces: the first one has identifier 1.
    pub namespaces: Vec<Namespace>,
    /// Latencies and rate of the media.
    pub media: Media,
    /// Most I/O queues of each kind.
    pub queues: u16,
    /// Most entries of a queue: CAP.MQES + 1.
    pub entries: u32,
    /// Stride of doorbells, which are `4 << stride` bytes apart: CAP.DSTRD.
    pub stride: u8,
    /// Limit of a transfer's length, `4096 << mdts` bytes; no limit if 0.
    pub mdts: u8,
    /// SGLs that it accepts, if any.
    pub sgl: Sgl,
    /// True if there is a volatile write cache: see [`Namespace::lose_power`].
    pub cache: bool,
    /// Bytes of controller memory buffer, a power of two, at least 4096; none if 0.
    pub cmb: u64,
    /// Bytes of persistent memory region, a power of two, at least 4096; none if 0.
    pub pmr: u64,
    /// Time from CC.EN = 1 to CSTS.RDY = 1.
    pub ready: Duration,
    /// Time from CC.EN = 0 to CSTS.RDY = 0. Until then fetched commands continue, and move their data.
    pub reset: Duration,
    /// Duration of a shutdown.
    pub shutdown: Duration,
    /// Time from a command's fetch to its execution: the controller's own work.
    pub firmware: Duration,
    /// Most commands in progress at once.
    pub outstanding: usize,
    /// Most asynchronous event requests.
    pub async_events: usize,
    /// Serial number: at most 20 characters.
    pub serial: String,
}

impl Default for Config {
    /// Returns the configuration with one namespace of 64 MiB in blocks of 512 bytes, transfers of up to 128 KiB, no SGLs, and no
    /// memory on the bus.
    fn default() -> Config {
        Config {
            namespaces: vec![Namespace::new(1 << 17, 9)],
            media: Media::default(),
            queues: 16,
            entries: 1024,
            stride: 0,
            mdts: 5,
            sgl: Sgl::No,
            cache: true,
            cmb: 0,
            pmr: 0,
            ready: Duration::from_millis(1),
            reset: Duration::from_micros(100),
            shutdown: Duration::from_millis(1),
            firmware: Duration::from_micros(1),
            outstanding: 256,
            async_events: 4,
            serial: "FABRIC0001".into(),
        }
    }
}

/// Meaning of one of the controller's tokens.
#[derive(Debug)]
enum Wait {
    /// Entries of a submission queue arrive.
    Entries { queue: u16, count: u32 },
    /// A piece of a PRP list or SGL arrives.
    List { task: u64 },
    /// Data from the host arrive, for this place in the command's data.
    Data { task: u64, at: usize },
    /// The controller's own work on a command ends.
    Started { task: u64 },
    /// The medium is done.
    Media { task: u64 },
    /// The controller becomes ready.
    Ready,
    /// The controller is disabled.
    Disabled,
    /// The controller is shut down.
    Shutdown,
    /// The persistent memory region becomes ready.
    Pmr,
    /// The link has room again.
    Flow,
    /// A completion that a fault delayed is due.
    Held { completion: u16, posted: Posted },
}

/// A write that the controller initiates.
#[derive(Debug)]
enum Out {
    Write(u64, Vec<u8>),
    Interrupt(u16),
}

/// Backlog that the link is given: two pages on the slowest link of an SSD.
const AHEAD: Duration = Duration::from_micros(4);

/// Bytes given to the link at once.
const CHUNK: usize = 4096;

/// An NVMe controller.
pub struct Nvme {
    config: Config,
    registers: Registers,
    submission: BTreeMap<u16, SubmissionQueue>,
    completion: BTreeMap<u16, CompletionQueue>,
    tasks: BTreeMap<u64, Task>,
    waits: HashMap<u64, Wait>,
    /// Reads of the controller's own memory, answered when their timer fires.
    answers: HashMap<u64, Vec<u8>>,
    /// Next number of tasks and tokens. Numbers are never reused, so that late answers after a reset are ignored.
    next: u64,
    cmb: Memory,
    pmr: Memory,
    /// Writes to make, in order, as the link has room.
    out: VecDeque<Out>,
    flowing: bool,
    event_requests: VecDeque<u16>,
    events: VecDeque<u32>,
    masked: [bool; 8],
    features: BTreeMap<u8, u32>,
    errors: VecDeque<[u8; 64]>,
    error_count: u64,
    counts: Counts,
    media_free: Duration,
    random: Random,
    hung: Option<bool>,
}

/// Counters of the controller since its creation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Commands fetched.
    pub commands: u64,
    /// Blocks read.
    pub blocks_read: u64,
    /// Blocks written.
    pub blocks_written: u64,
    /// Blocks deallocated.
    pub blocks_deallocated: u64,
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Doorbell writes with an invalid value, or for an invalid queue.
    pub bad_doorbells: u64,
}

impl Nvme {
    /// Returns a controller after power on.
    ///
    /// # Panics
    ///
    /// If no controller can have this configuration.
    pub fn new(config: Config) -> Nvme {
        assert!((2..=65536).contains(&config.entries), "{} entries", config.entries);
        assert!(config.stride <= 15 && config.serial.len() <= 20);
        assert!(config.outstanding > 0 && config.queues > 0 && config.media.rate > 0);
        assert!(
            [config.cmb, config.pmr]
                .iter()
                .all(|bytes| *bytes == 0 || bytes.is_power_of_two() && *bytes >= 4096)
        );
        Nvme {
            registers: Registers::new(&config),
            submission: BTreeMap::new(),
            completion: BTreeMap::new(),
            tasks: BTreeMap::new(),
            waits: HashMap::new(),
            answers: HashMap::new(),
            next: 0,
            cmb: Memory::default(),
            pmr: Memory::default(),
            out: VecDeque::new(),
            flowing: false,
            event_requests: VecDeque::new(),
            events: VecDeque::new(),
            masked: [false; 8],
            features: BTreeMap::new(),
            errors: VecDeque::new(),
            error_count: 0,
            counts: Counts::default(),
            media_free: Duration::ZERO,
            random: Random(0),
            hung: None,
            config,
        }
    }

    /// Returns the counters.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Replaces the namespace with this identifier, as formatting would.
    ///
    /// # Panics
    ///
    /// If there is no such namespace.
    pub fn format(&mut self, identifier: u32, namespace: Namespace) {
        self.config.namespaces[identifier as usize - 1] = namespace;
    }

    /// Returns the number of commands neither completed nor abandoned, without asynchronous event requests.
    pub fn outstanding(&self) -> usize {
        self.tasks.len()
    }

    fn token(&mut self, wait: Wait) -> u64 {
        self.next += 1;
        self.waits.insert(self.next, wait);
        self.next
    }

    /// Returns the controller's own memory and the offset in it, if these addresses are there.
    fn local(&mut self, address: u64, length: u64) -> Option<(&mut Memory, u64)> {
        let (cmb, pmr) = (self.registers.cmb_window(self.config.cmb), self.registers.pmr_window());
        let inside = |window: &Window| window.contains(address, length);
        match (cmb.filter(inside), pmr.filter(inside)) {
            (Some(window), _) => Some((&mut self.cmb, address - window.address)),
            (None, Some(window)) => Some((&mut self.pmr, address - window.address)),
            (None, None) => None,
        }
    }

    /// Returns the memory behind a BAR.
    fn behind(&mut self, bar: usize) -> Option<&mut Memory> {
        match bar {
            1 if self.config.cmb > 0 => Some(&mut self.cmb),
            _ if self.registers.pmr_ready() => Some(&mut self.pmr),
            _ => None,
        }
    }

    fn dma_read(&mut self, address: u64, length: u64, wait: Wait, cx: &mut Context<'_>) {
        let token = self.token(wait);
        match self.local(address, length) {
            Some((memory, offset)) => {
                let mut bytes = vec![0; length as usize];
                memory.load(offset, &mut bytes);
                self.answers.insert(token, bytes);
                cx.after(Duration::ZERO, token);
            }
            None => cx.read(address, length, token),
        }
    }

    /// Queues a write, after all that are queued already.
    fn dma_write(&mut self, address: u64, bytes: &[u8], cx: &mut Context<'_>) {
        for (i, piece) in bytes.chunks(CHUNK).enumerate() {
            self.out.push_back(Out::Write(address.wrapping_add((i * CHUNK) as u64), piece.to_vec()));
        }
        self.flow(cx);
    }

    fn interrupt(&mut self, vector: u16, cx: &mut Context<'_>) {
        self.out.push_back(Out::Interrupt(vector));
        self.flow(cx);
    }

    /// Sends as much as the link has room for, so that commands are still fetched meanwhile.
    fn flow(&mut self, cx: &mut Context<'_>) {
        if self.flowing || self.out.is_empty() {
            return;
        }
        let mut room = if cx.backlog() > AHEAD { 0 } else { CHUNK };
        while room > 0 {
            match self.out.pop_front() {
                Some(Out::Write(address, bytes)) => {
                    room = room.saturating_sub(bytes.len());
                    match self.local(address, bytes.len() as u64) {
                        Some((memory, offset)) => memory.store(offset, &bytes),
                        None => cx.write(address, bytes),
                    }
                }
                Some(Out::Interrupt(vector)) => cx.interrupt(vector),
                None => return,
            }
        }
        // Writes of this call are not in the backlog yet: check again, at once or when there is room.
        self.flowing = true;
        let token = self.token(Wait::Flow);
        cx.after(cx.backlog().saturating_sub(AHEAD), token);
    }

    /// Does the work of a controller reset: clears everything but the admin queue's registers [NVMe 1.4, 7.3.2], and the
    /// persistent memory region.
    fn clear(&mut self) {
        self.submission.clear();
        self.completion.clear();
        self.tasks.clear();
        self.waits.retain(|_, wait| matches!(wait, Wait::Pmr));
        self.answers.clear();
        self.out.clear();
        self.flowing = false;
        self.event_requests.clear();
        self.events.clear();
        self.masked = [false; 8];
        self.features.clear();
    }

    /// Enters the fatal state, from which only a reset recovers [NVMe 1.4, 9.5].
    fn fatal(&mut self) {
        self.registers.fail();
    }

    fn running(&self) -> bool {
        self.hung.is_none() && self.registers.ready() && !self.registers.failed()
    }

    fn resume(&mut self, token: u64, data: Result<Vec<u8>, BusError>, cx: &mut Context<'_>) {
        let Some(wait) = self.waits.remove(&token) else { return };
        match wait {
            Wait::Disabled => self.disabled(),
            Wait::Pmr => self.registers.pmr_is_ready(),
            _ if self.hung.is_some() => {}
            Wait::Ready => self.become_ready(),
            Wait::Shutdown => {
                self.flush(u32::MAX);
                self.registers.shut_down();
            }
            _ if !self.running() => {}
            Wait::Entries { queue, count } => self.entries(queue, count, data, cx),
            Wait::List { task } => self.list(task, data, cx),
            Wait::Data { task, at } => self.data(task, at, data, cx),
            Wait::Started { task } => self.started(task, cx),
            Wait::Media { task } => self.media_done(task, cx),
            Wait::Flow => {
                self.flowing = false;
                self.flow(cx);
            }
            Wait::Held { completion, mut posted } => {
                // Heads never go back from one completion to the next.
                if let Some(submission) = self.submission.get(&posted.entry.submission_queue) {
                    posted.entry.submission_head = submission.head as u16;
                }
                self.post(completion, posted, cx);
            }
        }
    }
}

impl Device for Nvme {
    fn bars(&self) -> Vec<u64> {
        // Registers and the doorbells of both queues of each kind, and of the admin queue.
        let doorbells = (u64::from(self.config.queues) + 1) * 2 * (4 << self.config.stride);
        let registers = (0x1000 + doorbells).next_power_of_two().max(0x4000);
        let memories = [self.config.cmb, self.config.pmr].into_iter().filter(|bytes| *bytes > 0);
        std::iter::once(registers).chain(memories).collect()
    }

    fn read(&mut self, bar: usize, offset: u64, bytes: &mut [u8], _: &mut Context<'_>) {
        match self.behind(bar) {
            _ if bar == 0 => self.registers.read(offset, bytes),
            Some(memory) => memory.load(offset, bytes),
            None => bytes.fill(0xff),
        }
    }

    fn write(&mut self, bar: usize, offset: u64, bytes: &[u8], cx: &mut Context<'_>) {
        if bar > 0 {
            if let Some(memory) = self.behind(bar) {
                memory.store(offset, bytes);
            }
        } else if offset.is_multiple_of(4) && bytes.len().is_multiple_of(4) {
            for (i, dword) in bytes.chunks_exact(4).enumerate() {
                let value = u32::from_le_bytes(dword.try_into().expect("four bytes"));
                self.write_register(offset + 4 * i as u64, value, cx);
            }
        }
    }

    fn read_done(&mut self, token: u64, data: Result<Vec<u8>, BusError>, cx: &mut Context<'_>) {
        self.resume(token, data, cx);
    }

    fn timer(&mut self, token: u64, cx: &mut Context<'_>) {
        let data = self.answers.remove(&token).unwrap_or_default();
        self.resume(token, Ok(data), cx);
    }

    fn hang(&mut self, hard: bool) {
        self.hung = Some(hard);
    }

    fn reset(&mut self) {
        self.clear();
        self.waits.clear();
        self.registers = Registers::new(&self.config);
        self.cmb = Memory::default();
        self.hung = None;
    }
}
