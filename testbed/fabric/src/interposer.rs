//! An interposer between an NVMe host and the bus to its SSDs, which injects faults into commands. The SSDs are not models: they
//! are QEMU's, or any others behind a [`Bus`].
//!
//! It sees the host's accesses. It changes a struck command before its doorbell is rung, or changes its completion. For that
//! purpose the host never sees the completion queues that an SSD writes, but copies, to which the interposer adds completions
//! when the host is to see them.
//!
//! ```text
//!   host --- store: entry ------------------------------------> submission queue --- DMA ---> SSD
//!        --- write: doorbell --> Interposer: strikes, counts --- write: doorbell -----------> |
//!        <-- load: copy -------- Interposer: hides, changes, delays <--- completion queue <---+
//! ```
//!
//! Its owner calls [`Interposer::poll`] when it polls for completions, and passes it the answers to register reads
//! ([`Interposer::answered`]).
//!
//! It does not strike commands of submission queues in an SSD's own memory, nor corrupt data outside of the host's own memory:
//! such a command is counted, and passes.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use dcs_drivers::bus::{Bus, Buses, ReadDone, Tag, Window};
use dcs_nvme::Status;
use dcs_nvme::command::{self, Blocks, Command, CreateCompletionQueue, CreateSubmissionQueue, DataPointer};
use dcs_nvme::command::{admin, nvm};
use dcs_nvme::completion::{self, Completion};
use dcs_nvme::register::{self, AdminQueueSizes, Capabilities, Configuration};

use crate::fault::{Fault, Injector, Operation};
use crate::nvme::{Next, Segment, Walk};
use crate::plan::{FaultPlan, FaultPlanError, Struck};

/// A reserved opcode of the NVM command set. [NVM 3.2] An SSD refuses it and does nothing else.
const RESERVED: u8 = 0x7f;

/// Plans in force at the SSDs behind a bus.
#[derive(Debug, Default)]
pub struct Interposer {
    plans: Vec<FaultPlan>,
    /// Number of operations that each plan has struck.
    struck: Vec<u64>,
    seed: u64,
    ssds: Vec<Ssd>,
    now: u64,
    /// Reads of capabilities in progress, with their SSD.
    capabilities: HashMap<Tag, usize>,
    /// Register reads that get no answer.
    unanswered: HashSet<Tag>,
}

/// A bus with the interposer on it.
pub struct Interposed<'a> {
    interposer: &'a mut Interposer,
    bus: &'a mut dyn Bus,
}

/// An SSD, as far as known from its host's commands.
#[derive(Debug)]
struct Ssd {
    registers: Window,
    /// Bytes of a logical block, once the host knows them.
    block_size: Option<u64>,
    page: u64,
    stride: u64,
    injector: Injector,
    /// Plan of each of the injector's rules.
    plans: Vec<usize>,
    state: State,
    admin: Option<SubmissionQueue>,
    admin_entries: u32,
    submissions: HashMap<u16, SubmissionQueue>,
    completions: HashMap<u16, CompletionQueue>,
    /// Struck commands in progress, by submission queue and command identifier.
    outstanding: HashMap<(u16, u16), Ending>,
    /// Delayed completions: the time to show each, and its completion queue.
    late: Vec<(u64, u16, Completion)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Working,
    /// Ignores the host, and shows it nothing, until the host resets it.
    Hung,
    Removed,
}

#[derive(Debug)]
struct SubmissionQueue {
    /// Offset in the host's own memory.
    base: u64,
    entries: u32,
    tail: u32,
    /// Entry up to which the SSD has fetched, according to its last completion.
    head: u16,
}

#[derive(Debug)]
struct CompletionQueue {
    /// Offset in the host's own memory.
    base: u64,
    entries: u32,
    /// Entry that the SSD writes next.
    next: u32,
    /// Phase of the next entry.
    phase: bool,
    /// Entries that the host sees instead.
    copy: Vec<u8>,
    /// Entry of the copy to write next.
    copied: u32,
    /// Phase of that entry.
    copied_phase: bool,
    /// First entry that the host has not taken.
    taken: u32,
    /// Completions for which the copy has no room.
    waiting: VecDeque<Completion>,
}

/// Fate of the completion of a struck command.
#[derive(Debug)]
enum Ending {
    Hidden,
    Late(Duration),
    Twice,
    Failed(u16),
    /// Flips a bit of the byte at this offset of the host's own memory first.
    Flipped(u64),
    /// Restores these bytes first, at offsets of the host's own memory.
    Restored(Vec<(u64, Vec<u8>)>),
}

impl Interposer {
    /// Returns an interposer with plans for SSDs to be attached. The seed decides the draws of plans with a share.
    ///
    /// # Errors
    ///
    /// [`FaultPlanError::Unfit`]: a fault that is not possible here.
    pub fn new(plans: &[FaultPlan], seed: u64) -> Result<Interposer, FaultPlanError> {
        plans.iter().try_for_each(FaultPlan::fits_an_interposer)?;
        Ok(Interposer { plans: plans.to_vec(), struck: vec![0; plans.len()], seed, ..Interposer::default() })
    }

    /// Adds an SSD that the host drives through these registers, with logical blocks of that size, if known. SSDs are numbered in
    /// the order of their first use.
    pub fn attach(&mut self, registers: Window, block_size: Option<u32>) {
        let known = self.ssds.iter_mut().find(|ssd| ssd.registers.address == registers.address);
        if let Some(ssd) = known {
            ssd.block_size = block_size.map(u64::from).or(ssd.block_size);
            return;
        }
        let number = self.ssds.len();
        let mut ssd = Ssd::new(registers);
        ssd.block_size = block_size.map(u64::from);
        for (at, plan) in self.plans.iter().enumerate() {
            if plan.number().is_none_or(|wanted| wanted == number) {
                ssd.injector.add(plan.rule(self.seed.wrapping_add((at + number * 1000) as u64)));
                ssd.plans.push(at);
            }
        }
        self.ssds.push(ssd);
    }

    /// Returns the bus for the host.
    pub fn on<'a>(&'a mut self, bus: &'a mut dyn Bus) -> Interposed<'a> {
        Interposed { interposer: self, bus }
    }

    /// Looks for completions, and shows the host those that are due.
    pub fn poll(&mut self, bus: &mut dyn Bus, now: u64) {
        self.now = now;
        self.ssds.iter_mut().for_each(|ssd| ssd.poll(bus, now));
    }

    /// Returns the latest time for the next call of [`Interposer::poll`].
    pub fn deadline(&self) -> Option<u64> {
        self.ssds.iter().flat_map(|ssd| ssd.late.iter().map(|(at, ..)| *at)).min()
    }

    /// Returns the answer to a read, changed as the host is to see it.
    pub fn answered(&mut self, mut done: ReadDone) -> ReadDone {
        if let (Some(at), Ok(bytes)) = (self.capabilities.remove(&done.tag), &done.data)
            && let Ok(bytes) = <[u8; 8]>::try_from(&bytes[..])
        {
            self.ssds[at].stride = Capabilities::from_bits(u64::from_le_bytes(bytes)).doorbell_stride();
        }
        if self.unanswered.remove(&done.tag)
            && let Ok(bytes) = &mut done.data
        {
            bytes.fill(0xff);
        }
        done
    }

    /// Returns the strikes of each plan.
    pub fn struck(&self) -> Vec<Struck> {
        let met = |plan: usize| {
            let rule = |ssd: &Ssd| {
                let at = ssd.plans.iter().position(|of| *of == plan)?;
                Some(ssd.injector.rules()[at].met())
            };
            self.ssds.iter().filter_map(rule).max().unwrap_or(0)
        };
        let one =
            |(at, plan): (usize, &FaultPlan)| Struck { plan: *plan, met: met(at), struck: self.struck[at] };
        self.plans.iter().enumerate().map(one).collect()
    }

    fn at(&self, address: u64, length: u64) -> Option<usize> {
        self.ssds.iter().position(|ssd| ssd.registers.contains(address, length))
    }
}

impl Buses for Interposed<'_> {}

impl Bus for Interposed<'_> {
    fn window(&self) -> Window {
        self.bus.window()
    }

    fn load(&self, offset: u64, bytes: &mut [u8]) {
        let queues = self.interposer.ssds.iter().flat_map(|ssd| ssd.completions.values());
        match queues.into_iter().find_map(|queue| queue.seen(offset, bytes.len())) {
            Some(seen) => bytes.copy_from_slice(seen),
            None => self.bus.load(offset, bytes),
        }
    }

    fn store(&mut self, offset: u64, bytes: &[u8]) {
        self.bus.store(offset, bytes);
    }

    fn write(&mut self, address: u64, bytes: &[u8]) {
        let Interposer { ssds, struck, .. } = self.interposer;
        let ssd = ssds.iter_mut().find(|ssd| ssd.registers.contains(address, bytes.len() as u64));
        let passes = ssd.is_none_or(|ssd| {
            let value = bytes.iter().take(8).rev().fold(0, |value, byte| value << 8 | u64::from(*byte));
            let plans = ssd.write(self.bus, address - ssd.registers.address, value);
            plans.struck.into_iter().for_each(|plan| struck[plan] += 1);
            plans.passes
        });
        if passes {
            self.bus.write(address, bytes);
        }
    }

    fn read(&mut self, address: u64, length: u32, tag: Tag) {
        if let Some(at) = self.interposer.at(address, length.into()) {
            let ssd = &self.interposer.ssds[at];
            if ssd.state == State::Removed {
                self.interposer.unanswered.insert(tag);
            } else if address == ssd.registers.address + register::CAP && length == 8 {
                self.interposer.capabilities.insert(tag, at);
            }
        }
        self.bus.read(address, length, tag);
    }

    fn interrupt(&mut self, vector: u16) {
        self.bus.interrupt(vector);
    }
}

/// Outcome of a write to a register.
struct Written {
    /// True if it goes on to the SSD.
    passes: bool,
    /// Plans that struck.
    struck: Vec<usize>,
}

impl Ssd {
    fn new(registers: Window) -> Ssd {
        Ssd {
            registers,
            block_size: None,
            page: 4096,
            stride: 4,
            injector: Injector::default(),
            plans: Vec::new(),
            state: State::Working,
            admin: None,
            admin_entries: 0,
            submissions: HashMap::new(),
            completions: HashMap::new(),
            outstanding: HashMap::new(),
            late: Vec::new(),
        }
    }

    fn write(&mut self, bus: &mut dyn Bus, register: u64, value: u64) -> Written {
        let mut struck = Vec::new();
        let passes = match register {
            _ if self.state == State::Removed => false,
            register::CC => {
                self.configure(Configuration::from_bits(value as u32));
                true
            }
            register::AQA => {
                self.admin_entries = AdminQueueSizes::from_bits(value as u32).submissions.into();
                true
            }
            register::ASQ => {
                self.admin = own(bus, value, 64).map(|base| SubmissionQueue::new(base, self.admin_entries));
                true
            }
            register::DOORBELLS.. => self.doorbell(bus, register, value as u32, &mut struck),
            _ => true,
        };
        Written { passes, struck }
    }

    /// Handles CC. CC.EN = 0 deletes all I/O queues with their contents. [base 3.1.3.5]
    fn configure(&mut self, configuration: Configuration) {
        if configuration.enabled {
            self.page = configuration.page_bytes();
            return;
        }
        self.state = State::Working;
        self.submissions.clear();
        self.completions.clear();
        self.outstanding.clear();
        self.late.clear();
        self.admin.iter_mut().for_each(|admin| admin.tail = 0);
    }

    fn doorbell(&mut self, bus: &mut dyn Bus, register: u64, value: u32, struck: &mut Vec<usize>) -> bool {
        if self.state == State::Hung {
            return false;
        }
        let number = (register - register::DOORBELLS) / self.stride;
        let (queue, is_head) = ((number / 2) as u16, number % 2 == 1);
        if is_head {
            let Some(found) = self.completions.get_mut(&queue) else { return true };
            found.taken = value;
            found.show();
            return false;
        }
        if queue == 0 {
            self.admin_commands(bus, value);
            return true;
        }
        if self.submissions.get(&queue).is_none_or(|found| value >= found.entries) {
            return true;
        }
        let before = self.submissions[&queue].tail;
        self.commands(bus, queue, value, struck);
        let tail = self.submissions.get(&queue).map_or(before, |found| found.tail);
        if tail != before && self.state != State::Removed {
            bus.write(self.registers.address + register, &tail.to_le_bytes());
        }
        false
    }

    /// Handles new admin commands, and learns of queues from them.
    fn admin_commands(&mut self, bus: &mut dyn Bus, tail: u32) {
        while let Some(admin) = self.admin.as_mut().filter(|admin| tail < admin.entries && admin.tail != tail)
        {
            let command = admin.next(bus);
            let DataPointer::Prp(address, _) = command.data else { continue };
            match command.opcode {
                admin::CREATE_COMPLETION_QUEUE => {
                    let create = CreateCompletionQueue::from_words(&command.words);
                    let length = u64::from(create.entries) * completion::SIZE as u64;
                    if let Some(base) = own(bus, address, length) {
                        self.completions.insert(create.queue, CompletionQueue::new(base, create.entries));
                    }
                }
                admin::CREATE_SUBMISSION_QUEUE => {
                    let create = CreateSubmissionQueue::from_words(&command.words);
                    let length = u64::from(create.entries) * command::SIZE as u64;
                    if let Some(base) = own(bus, address, length) {
                        self.submissions.insert(create.queue, SubmissionQueue::new(base, create.entries));
                    }
                }
                _ => {}
            }
        }
    }

    /// Handles new I/O commands, and strikes those that are to be struck.
    fn commands(&mut self, bus: &mut dyn Bus, queue: u16, tail: u32, struck: &mut Vec<usize>) {
        let Some(mut held) = self.submissions.remove(&queue) else { return };
        while held.tail != tail {
            let (before, offset) = (held.tail, held.offset());
            let command = held.next(bus);
            let Blocks { first, count, .. } = Blocks::from_words(&command.words);
            let blocks = first..first.saturating_add(count.into());
            let operation = Operation::Command { queue, opcode: command.opcode, blocks };
            if let Some((rule, fault)) = self.injector.strike_by(&operation) {
                match self.strike(bus, offset, &command, fault) {
                    Some(ending) => _ = self.outstanding.insert((queue, command.cid), ending),
                    // Its data are outside of the host's memory.
                    None if self.state == State::Working => continue,
                    None => held.tail = before,
                }
                struck.push(self.plans[rule]);
            }
            if self.state != State::Working {
                break;
            }
        }
        self.submissions.insert(queue, held);
    }

    /// Carries out the part of a fault that is due before the SSD sees the command. Returns the part for its end.
    fn strike(&mut self, bus: &mut dyn Bus, entry: u64, command: &Command, fault: Fault) -> Option<Ending> {
        match fault {
            Fault::DropCompletion => Some(Ending::Hidden),
            Fault::DelayCompletion(time) => Some(Ending::Late(time)),
            Fault::DuplicateCompletion => Some(Ending::Twice),
            Fault::BadStatus(status) => {
                let refused = Command { opcode: RESERVED, ..*command };
                bus.store(entry, &refused.bytes());
                Some(Ending::Failed(status))
            }
            Fault::CorruptDma => {
                let (offset, _) = *self.data(bus, command)?.first()?;
                if command.opcode == nvm::READ {
                    return Some(Ending::Flipped(offset));
                }
                let original = vec![flip(bus, offset)];
                Some(Ending::Restored(vec![(offset, original)]))
            }
            Fault::ShortDma(missing) => {
                let (mut left, mut kept) = (missing, Vec::new());
                for (offset, length) in self.data(bus, command)?.into_iter().rev() {
                    let count = length.min(left);
                    left -= count;
                    let mut bytes = vec![0; count as usize];
                    bus.load(offset + length - count, &mut bytes);
                    kept.push((offset + length - count, bytes));
                }
                Some(Ending::Restored(kept))
            }
            Fault::Hang => {
                self.state = State::Hung;
                None
            }
            Fault::Remove => {
                // Stops the real SSD, so that it writes nowhere once the host knows it is gone.
                let off = Configuration::new(12).bits().to_le_bytes();
                bus.write(self.registers.address + register::CC, &off);
                self.configure(Configuration::default());
                self.state = State::Removed;
                None
            }
            _ => None,
        }
    }

    /// Returns the places of a command's data: offsets in the host's own memory, and lengths. `None` if any data are elsewhere.
    fn data(&self, bus: &dyn Bus, command: &Command) -> Option<Vec<(u64, u64)>> {
        let length = u64::from(Blocks::from_words(&command.words).count) * self.block_size?;
        let write = command.opcode == nvm::WRITE;
        let walk = match command.data {
            DataPointer::Prp(first, second) => Walk::prp((first, second), length, self.page),
            DataPointer::Sgl(first) | DataPointer::SglWithMetadata(first) => {
                Walk::sgl(first, length, write, false)
            }
            DataPointer::Reserved(_) => return None,
        };
        let (mut walk, mut next) = walk.ok()?;
        loop {
            match next {
                Next::Fetch { address, length } => {
                    let mut bytes = vec![0; length as usize];
                    bus.load(own(bus, address, length)?, &mut bytes);
                    next = walk.feed(&bytes).ok()?;
                }
                Next::Done(segments) => {
                    let place =
                        |Segment { address, length }: Segment| Some((own(bus, address?, length)?, length));
                    return segments.into_iter().map(place).collect();
                }
            }
        }
    }

    fn poll(&mut self, bus: &mut dyn Bus, now: u64) {
        if self.state != State::Working {
            return;
        }
        let numbers: Vec<u16> = self.completions.keys().copied().collect();
        for number in numbers {
            let mut any = false;
            while let Some(entry) = self.completions.get_mut(&number).and_then(|queue| queue.next(bus)) {
                any = true;
                self.completed(bus, now, number, entry);
            }
            if any {
                // Frees the SSD's queue entry at once; the host's head refers to the copy.
                let head = self.completions[&number].next;
                let doorbell = register::head_doorbell(number, self.stride);
                bus.write(self.registers.address + doorbell, &head.to_le_bytes());
            }
        }
        let (due, late) = self.late.drain(..).partition(|(at, ..)| *at <= now);
        self.late = late;
        let due: Vec<(u64, u16, Completion)> = due;
        due.into_iter().for_each(|(_, queue, entry)| self.show(queue, entry));
    }

    /// Handles a completion by the SSD.
    fn completed(&mut self, bus: &mut dyn Bus, now: u64, queue: u16, mut entry: Completion) {
        if let Some(held) = self.submissions.get_mut(&entry.submission_queue) {
            held.head = entry.submission_head;
        }
        match self.outstanding.remove(&(entry.submission_queue, entry.cid)) {
            None => {}
            Some(Ending::Hidden) => return,
            Some(Ending::Late(time)) => {
                let at = now.saturating_add(time.as_nanos() as u64);
                return self.late.push((at, queue, entry));
            }
            Some(Ending::Twice) => self.show(queue, entry),
            Some(Ending::Failed(status)) => entry.status = Status(status),
            Some(Ending::Flipped(offset)) => _ = flip(bus, offset),
            Some(Ending::Restored(all)) => all.iter().for_each(|(offset, bytes)| bus.store(*offset, bytes)),
        }
        self.show(queue, entry);
    }

    /// Shows the host a completion. A delayed one gets the current submission queue head, as an SSD would write it.
    fn show(&mut self, queue: u16, mut entry: Completion) {
        if let Some(held) = self.submissions.get(&entry.submission_queue) {
            entry.submission_head = held.head;
        }
        if let Some(queue) = self.completions.get_mut(&queue) {
            queue.waiting.push_back(entry);
            queue.show();
        }
    }
}

impl SubmissionQueue {
    fn new(base: u64, entries: u32) -> SubmissionQueue {
        SubmissionQueue { base, entries, tail: 0, head: 0 }
    }

    /// Returns the offset of the entry at the tail.
    fn offset(&self) -> u64 {
        self.base + u64::from(self.tail) * command::SIZE as u64
    }

    /// Returns the command at the tail, and advances the tail.
    fn next(&mut self, bus: &dyn Bus) -> Command {
        let mut bytes = [0; command::SIZE];
        bus.load(self.offset(), &mut bytes);
        self.tail = (self.tail + 1) % self.entries;
        Command::from_bytes(&bytes)
    }
}

impl CompletionQueue {
    fn new(base: u64, entries: u32) -> CompletionQueue {
        let copy = vec![0; entries as usize * completion::SIZE];
        CompletionQueue {
            base,
            entries,
            next: 0,
            phase: true,
            copy,
            copied: 0,
            copied_phase: true,
            taken: 0,
            waiting: VecDeque::new(),
        }
    }

    /// Returns the next entry that the SSD has written.
    fn next(&mut self, bus: &dyn Bus) -> Option<Completion> {
        let (offset, mut last) = (self.base + u64::from(self.next) * completion::SIZE as u64, [0; 4]);
        bus.load(offset + completion::SIZE as u64 - 4, &mut last);
        if completion::phase(last) != self.phase {
            return None;
        }
        // The fields before the phase bit are valid only once the phase bit is set: read after it.
        let mut bytes = [0; completion::SIZE];
        bus.load(offset, &mut bytes);
        self.next = (self.next + 1) % self.entries;
        self.phase ^= self.next == 0;
        Some(Completion::from_bytes(&bytes))
    }

    /// Writes waiting completions into the copy, as far as there is room.
    fn show(&mut self) {
        while (self.copied + 1) % self.entries != self.taken
            && let Some(entry) = self.waiting.pop_front()
        {
            let at = self.copied as usize * completion::SIZE;
            let entry = Completion { phase: self.copied_phase, ..entry };
            self.copy[at..at + completion::SIZE].copy_from_slice(&entry.bytes());
            self.copied = (self.copied + 1) % self.entries;
            self.copied_phase ^= self.copied == 0;
        }
    }

    /// Returns the bytes that the host sees at an offset of its own memory, if that is in this queue.
    fn seen(&self, offset: u64, length: usize) -> Option<&[u8]> {
        let at = usize::try_from(offset.checked_sub(self.base)?).ok()?;
        self.copy.get(at..at.checked_add(length)?)
    }
}

/// Translates a bus address to an offset in the host's own memory.
fn own(bus: &dyn Bus, address: u64, length: u64) -> Option<u64> {
    let window = bus.window();
    window.contains(address, length).then(|| address - window.address)
}

/// Flips a bit of a byte. Returns the byte's former value.
fn flip(bus: &mut dyn Bus, offset: u64) -> u8 {
    let mut byte = [0];
    bus.load(offset, &mut byte);
    bus.store(offset, &[byte[0] ^ 1]);
    byte[0]
}
