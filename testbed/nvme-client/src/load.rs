//! Workloads: reads and writes of one size, many in flight, with data that identify their place.
//!
//! A namespace is divided into units of one command's size. Each unit has a round: the number of times it was written. A unit's
//! bytes follow from seed, unit and round, so a read shows whether it returned the last write of the right place. Units that were
//! never written are zeros, or are not checked.

use std::time::{Duration, Instant};

use dcs_nvme::command::{Blocks, Command, nvm};
use dcs_nvme::{Completion, DataPointer};
use dcs_testkit::Random;
use dcs_testkit::random::mix;

use crate::device::{Device, Error, PAGE};
use crate::drive::Drive;

/// Most latencies that are kept.
const SAMPLES: usize = 1 << 20;
/// Time after which a command counts as lost.
const LIMIT: Duration = Duration::from_secs(60);

/// Number of rings by message for a whole queue depth.
const BATCHES: usize = 4;

/// Order of the places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// One after the other, from the beginning again at the end.
    Sequential,
    /// Random.
    Random,
}

/// Kind of the commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mix {
    /// Reads.
    Read,
    /// Writes.
    Write,
    /// Either at random; now and then a flush.
    Both,
}

/// Extent of the check of read data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// Every byte.
    All,
    /// The first word only, for workloads whose speed counts: it identifies unit and round. Writes change no other word of the memory
    /// that they are from.
    First,
    /// Nothing: the data were written by others.
    Nothing,
}

/// End of a workload.
#[derive(Clone, Copy, Debug)]
pub enum Stop {
    /// Ends after this many commands.
    Commands(u64),
    /// Ends after this time.
    After(Duration),
}

/// A workload.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    /// Order of the places.
    pub order: Order,
    /// Kind of the commands.
    pub mix: Mix,
    /// Commands in flight, at most the runner's depth.
    pub depth: u32,
    /// Extent of the check of read data.
    pub check: Check,
    /// End of the workload.
    pub stop: Stop,
}

/// Results of a workload.
#[derive(Clone, Debug, Default)]
pub struct Done {
    /// Commands completed, all with success.
    pub commands: u64,
    /// Bytes that they moved.
    pub bytes: u64,
    /// Time from the first submission to the last completion.
    pub elapsed: Duration,
    /// Latencies in nanoseconds, from submission to completion, in the order of completion. Kept at depth 1 only.
    pub latencies: Vec<u32>,
    /// Longest time between two completions.
    pub longest_gap: Duration,
}

impl Done {
    /// Returns the commands per second.
    pub fn rate(&self) -> f64 {
        self.commands as f64 / self.elapsed.as_secs_f64()
    }
}

/// A command in flight.
#[derive(Clone, Copy, Debug)]
struct Slot {
    /// Offset of its data in the shared memory.
    data: u64,
    /// Offset of its page list.
    list: u64,
    unit: u64,
    write: bool,
    flush: bool,
    began: Option<Instant>,
}

/// Runs workloads of commands of one size on one queue of a drive.
#[derive(Debug)]
pub struct Runner {
    queue: usize,
    bytes: u64,
    seed: u64,
    random: Random,
    slots: Vec<Slot>,
    free: Vec<u16>,
    /// Number of times that each unit was written.
    rounds: Vec<u32>,
    /// Units with a command in flight.
    busy: Vec<bool>,
    next: u64,
}

impl Runner {
    /// Returns a runner of commands of `bytes`, a multiple of 4,096, up to `depth` in flight, on the first `span` bytes of a
    /// drive's namespace, with its queue number `queue` (from 0).
    ///
    /// # Errors
    ///
    /// [`Error::Memory`].
    ///
    /// # Panics
    ///
    /// If the sizes are invalid.
    pub fn new(
        drive: &mut Drive,
        queue: usize,
        bytes: u64,
        depth: u32,
        span: u64,
        seed: u64,
    ) -> Result<Runner, Error> {
        let (blocks, block) = drive.geometry();
        assert!(bytes > 0 && bytes.is_multiple_of(PAGE) && bytes <= 512 * PAGE, "commands of {bytes} bytes");
        assert!(depth > 0 && depth < drive.queues[queue].entries(), "a depth of {depth}");
        let units = span.min(blocks * block) / bytes;
        assert!(units > 0, "{span} bytes in units of {bytes}");
        let mut slots = Vec::with_capacity(depth as usize);
        for _ in 0..depth {
            let (data, list) = (drive.device.take(bytes)?, drive.device.take(PAGE)?);
            let pages: Vec<u8> = (PAGE..bytes)
                .step_by(PAGE as usize)
                .flat_map(|at| Device::address(data + at).to_le_bytes())
                .collect();
            drive.device.memory().store(list, &pages);
            slots.push(Slot { data, list, unit: 0, write: false, flush: false, began: None });
        }
        let free = (0..depth as u16).rev().collect();
        let (rounds, busy) = (vec![0; units as usize], vec![false; units as usize]);
        Ok(Runner { queue, bytes, seed, random: Random(seed), slots, free, rounds, busy, next: 0 })
    }

    /// Returns the number of units that it reads and writes.
    pub fn units(&self) -> u64 {
        self.rounds.len() as u64
    }

    /// Marks all units as written once, by a runner with the same seed and size.
    pub fn is_filled(&mut self) {
        self.rounds.fill(1);
    }

    /// Runs a workload to its end.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] for the first command that fails, [`Error::Wrong`] for wrong bytes, [`Error::Silent`] if commands stop
    /// completing; errors of the connection.
    pub fn run(&mut self, drive: &mut Drive, workload: &Workload) -> Result<Done, Error> {
        let start = Instant::now();
        let interrupts = drive.options().interrupts;
        let shadow = drive.options().shadow;
        let (mut done, mut begun, mut last) = (Done::default(), 0, start);
        let depth = (workload.depth as usize).min(self.slots.len());
        let timed = depth == 1;
        // Taken at once where each ring is a message: the drive works on the others meanwhile.
        let batch = if shadow { usize::MAX } else { depth.div_ceil(BATCHES) };
        if timed {
            done.latencies.reserve(SAMPLES);
        }
        loop {
            let now = Instant::now();
            let more = |begun| match workload.stop {
                Stop::Commands(count) => begun < count,
                Stop::After(time) => now.duration_since(start) < time,
            };
            while more(begun) && self.under_way() < depth {
                self.begin(drive, workload, timed)?;
                begun += 1;
            }
            drive.queues[self.queue].ring(&mut drive.device)?;
            if self.under_way() == 0 {
                done.elapsed = last.duration_since(start);
                return Ok(done);
            }
            let before = done.commands;
            let mut left = batch;
            while let Some(end) = (left > 0).then(|| drive.queues[self.queue].reap(&drive.device)).flatten() {
                self.end(drive, workload, &end, &mut done)?;
                left -= 1;
                // Submits the next command at once: the drive works while other completions are taken.
                if shadow && more(begun) {
                    self.begin(drive, workload, timed)?;
                    begun += 1;
                }
            }
            if done.commands > before {
                let now = Instant::now();
                done.longest_gap = done.longest_gap.max(now.duration_since(last));
                last = now;
                continue;
            }
            match interrupts {
                true => _ = drive.device.wait(self.queue as u16 + 1, Duration::from_millis(100))?,
                false => std::hint::spin_loop(),
            }
            if now.duration_since(last) > LIMIT {
                return Err(Error::Silent);
            }
        }
    }

    fn under_way(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    fn begin(&mut self, drive: &mut Drive, workload: &Workload, timed: bool) -> Result<(), Error> {
        let shadow = drive.options().shadow;
        let unit = self.draw(workload);
        let index = self.free.pop().expect("fewer commands than the depth are under way");
        let draw = if workload.mix == Mix::Both { self.random.below(64) } else { 1 };
        let slot = &mut self.slots[usize::from(index)];
        let write = match workload.mix {
            Mix::Read => false,
            Mix::Write => true,
            Mix::Both => draw & 1 == 0,
        };
        (slot.unit, slot.write, slot.flush) = (unit, write, draw == 0);
        slot.began = timed.then(Instant::now);
        let mut command = Command { opcode: nvm::FLUSH, cid: index, namespace: 1, ..Command::default() };
        if !slot.flush {
            let (_, block) = drive.geometry();
            let count = (self.bytes / block) as u32;
            let words = Blocks { first: unit * u64::from(count), count, durable: false }.words();
            let second = match self.bytes.div_ceil(PAGE) {
                1 => 0,
                2 => Device::address(slot.data + PAGE),
                _ => Device::address(slot.list),
            };
            let data = DataPointer::Prp(Device::address(slot.data), second);
            let opcode = if write { nvm::WRITE } else { nvm::READ };
            command = Command { opcode, data, words, ..command };
            self.busy[unit as usize] = true;
            if write {
                self.rounds[unit as usize] += 1;
                self.fill(drive, workload.check, usize::from(index));
            }
        }
        let queue = &mut drive.queues[self.queue];
        queue.submit(&drive.device, &command.bytes());
        // A doorbell in memory costs nothing, so it is rung for each command, as in Linux.
        if shadow { queue.ring(&mut drive.device) } else { Ok(()) }
    }

    /// Chooses the next unit. If data are checked, it has no command in flight.
    fn draw(&mut self, workload: &Workload) -> u64 {
        loop {
            let unit = match workload.order {
                Order::Random => self.random.below(self.units()),
                Order::Sequential => self.next % self.units(),
            };
            self.next += 1;
            let exclusive = workload.mix == Mix::Both || workload.mix == Mix::Write;
            if !exclusive || !self.busy[unit as usize] {
                return unit;
            }
        }
    }

    fn end(
        &mut self,
        drive: &Drive,
        workload: &Workload,
        end: &Completion,
        done: &mut Done,
    ) -> Result<(), Error> {
        let index = usize::from(end.cid);
        let slot = *self.slots.get(index).ok_or(Error::Protocol)?;
        if !end.status.is_success() {
            let opcode = if slot.flush {
                nvm::FLUSH
            } else if slot.write {
                nvm::WRITE
            } else {
                nvm::READ
            };
            return Err(Error::Failed { opcode, status: end.status.0 });
        }
        if let Some(began) = slot.began
            && done.latencies.len() < SAMPLES
        {
            done.latencies.push(began.elapsed().as_nanos().try_into().unwrap_or(u32::MAX));
        }
        done.commands += 1;
        if !slot.flush {
            done.bytes += self.bytes;
            self.busy[slot.unit as usize] = false;
            if !slot.write && !self.is_right(drive, workload.check, &slot) {
                return Err(Error::Wrong(slot.unit));
            }
        }
        self.free.push(end.cid);
        Ok(())
    }

    /// Returns the first word of a unit, from which the others follow; zero if it was never written.
    fn word(&self, unit: u64) -> u64 {
        match self.rounds[unit as usize] {
            0 => 0,
            round => mix(self.seed ^ unit << 24 ^ u64::from(round)) | 1,
        }
    }

    /// Returns page number `page` of a unit with this first word.
    fn page(word: u64, page: u64) -> [u8; PAGE as usize] {
        let mut bytes = [0; PAGE as usize];
        if word != 0 {
            for (at, place) in bytes.chunks_exact_mut(8).enumerate() {
                let number = page * (PAGE / 8) + at as u64;
                place.copy_from_slice(&word.wrapping_mul(2 * number + 1).to_le_bytes());
            }
        }
        bytes
    }

    fn fill(&self, drive: &Drive, check: Check, index: usize) {
        let slot = self.slots[index];
        let word = self.word(slot.unit);
        if check == Check::First {
            return drive.device.memory().store(slot.data, &word.to_le_bytes());
        }
        for page in 0..self.bytes / PAGE {
            drive.device.memory().store(slot.data + page * PAGE, &Runner::page(word, page));
        }
    }

    fn is_right(&self, drive: &Drive, check: Check, slot: &Slot) -> bool {
        let (word, memory) = (self.word(slot.unit), drive.device.memory());
        match check {
            Check::Nothing => true,
            Check::First => memory.read64(slot.data) == word,
            Check::All => (0..self.bytes / PAGE).all(|page| {
                let mut bytes = [0; PAGE as usize];
                memory.load(slot.data + page * PAGE, &mut bytes);
                bytes == Runner::page(word, page)
            }),
        }
    }
}
