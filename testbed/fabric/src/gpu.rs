//! A GPU as in the papers: closed, and driven by others.
//!
//! Its memory is a BAR, for peer-to-peer reads and writes (GPUDirect). Others submit work by writing whole commands to doorbells,
//! one page for copies and one for kernel launches. It accesses other memory only by the copies it is told to make, and by
//! fences. Commands of a stream (as CUDA's) run in order, those of different streams concurrently.
//!
//! The owner supplies the kernels and their durations: [`Kernels`].
//!
//! # What it doesn't implement
//!
//! Command rings in memory, contexts and page tables, more than one copy engine's limits, events between
//! streams. Any number of kernels run side by side at full speed.

use std::any::Any;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use dcs_drivers::bus::BusError;

use crate::device::{Context, Device};
use crate::memory::Memory;

/// Offset to which copies are written: 64 bytes, a [`Command`].
pub const COPY_DOORBELL: u64 = 0x1000;
/// Offset to which kernel launches are written.
pub const LAUNCH_DOORBELL: u64 = 0x2000;
/// Fence value of a failed command: bad addresses, an unknown kernel, or memory that did not answer.
pub const FAILED: u64 = u64::MAX;

/// Kernels that a GPU runs.
pub trait Kernels: Any + Send {
    /// Runs a kernel on `data`, in place. Returns its duration and its result apart from the data, such as a digest; `None` if
    /// there is no such kernel.
    fn run(&mut self, launch: &Launch, data: &mut [u8]) -> Option<(Duration, Vec<u8>)>;
}

/// A kernel launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Number of the kernel.
    pub kernel: u32,
    /// True if it is the last kernel on these data.
    pub last: bool,
    /// The kernel's own argument: identifies the data that this is a part of.
    pub argument: u64,
    /// Address of its result in the GPU's memory.
    pub output: u64,
}

/// Work of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Copy from a bus address into the GPU's memory.
    CopyIn(u64),
    /// Copy from the GPU's memory to a bus address.
    CopyOut(u64),
    /// Run a kernel on the data.
    Launch(Launch),
}

/// A command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// The work.
    pub work: Work,
    /// Number of its stream.
    pub stream: u32,
    /// Offset of the data in the GPU's memory.
    pub offset: u64,
    /// Length of the data in bytes.
    pub length: u64,
    /// Bus address to write when the command is done, and the value.
    pub fence: Option<(u64, u64)>,
}

impl Command {
    /// Encodes the command for a doorbell: 16 words, little-endian.
    pub fn to_bytes(&self) -> [u8; 64] {
        let mut bytes = [0; 64];
        let mut put = |at: usize, value: u64| bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        let (code, first) = match self.work {
            Work::CopyIn(address) => (1, address),
            Work::CopyOut(address) => (2, address),
            Work::Launch(launch) => {
                put(32, launch.argument);
                put(40, launch.output);
                (3, u64::from(launch.kernel) | u64::from(launch.last) << 32)
            }
        };
        put(0, code | u64::from(self.stream) << 32);
        put(8, first);
        put(16, self.offset);
        put(24, self.length);
        let (address, value) = self.fence.unwrap_or_default();
        put(48, address);
        put(56, value);
        bytes
    }

    fn parse(bytes: &[u8]) -> Option<Command> {
        let bytes: &[u8; 64] = bytes.try_into().ok()?;
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let work = match word(0) as u32 {
            1 => Work::CopyIn(word(8)),
            2 => Work::CopyOut(word(8)),
            3 => Work::Launch(Launch {
                kernel: word(8) as u32,
                last: word(8) >> 32 & 1 == 1,
                argument: word(32),
                output: word(40),
            }),
            _ => return None,
        };
        let fence = (word(48) != 0).then_some((word(48), word(56)));
        Some(Command { work, stream: (word(0) >> 32) as u32, offset: word(16), length: word(24), fence })
    }
}

/// Configuration of a GPU.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Bytes of memory, all of it in the BAR: a power of two.
    pub memory: u64,
    /// Time from a launch to its kernel's start plus the time from the kernel's end to its fence.
    pub start: Duration,
}

/// Counters of a GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Bytes copied in and out by its own copies.
    pub copied: u64,
    /// Kernels run.
    pub launches: u64,
    /// Commands that failed, or were invalid.
    pub failed: u64,
}

/// A GPU. BAR 0 has the doorbells, BAR 1 is its memory.
pub struct Gpu {
    config: Config,
    kernels: Box<dyn Kernels>,
    memory: Memory,
    streams: BTreeMap<u32, VecDeque<Command>>,
    waits: HashMap<u64, u32>,
    next: u64,
    counts: Counts,
    hung: Option<bool>,
}

impl Gpu {
    /// Returns a GPU with these kernels.
    pub fn new(config: Config, kernels: impl Kernels) -> Gpu {
        assert!(
            config.memory.is_power_of_two() && config.memory >= 4096,
            "{} bytes of memory",
            config.memory
        );
        Gpu {
            config,
            kernels: Box::new(kernels),
            memory: Memory::default(),
            streams: BTreeMap::new(),
            waits: HashMap::new(),
            next: 0,
            counts: Counts::default(),
            hung: None,
        }
    }

    /// Returns the counters.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    fn begin(&mut self, stream: u32, cx: &mut Context<'_>) {
        let Some(command) = self.streams.get(&stream).and_then(|queue| queue.front()).copied() else {
            return;
        };
        self.next += 1;
        self.waits.insert(self.next, stream);
        let end = command.offset.checked_add(command.length);
        if end.is_none_or(|end| end > self.config.memory) {
            return self.end(self.next, false, cx);
        }
        match command.work {
            Work::CopyIn(address) => cx.read(address, command.length, self.next),
            Work::CopyOut(address) => {
                let mut bytes = vec![0; command.length as usize];
                self.memory.load(command.offset, &mut bytes);
                cx.write(address, bytes);
                self.counts.copied += command.length;
                cx.after(cx.backlog(), self.next);
            }
            Work::Launch(launch) => self.launch(&command, &launch, cx),
        }
    }

    fn launch(&mut self, command: &Command, launch: &Launch, cx: &mut Context<'_>) {
        let mut data = vec![0; command.length as usize];
        self.memory.load(command.offset, &mut data);
        let ran = self.kernels.run(launch, &mut data);
        let fits = |length: usize| {
            launch.output.checked_add(length as u64).is_some_and(|end| end <= self.config.memory)
        };
        let Some((time, output)) = ran.filter(|(_, output)| fits(output.len())) else {
            return self.end(self.next, false, cx);
        };
        self.memory.store(command.offset, &data);
        self.memory.store(launch.output, &output);
        self.counts.launches += 1;
        cx.after(self.config.start + time, self.next);
    }

    /// Ends a command; the stream's next one begins.
    fn end(&mut self, token: u64, good: bool, cx: &mut Context<'_>) {
        let Some(stream) = self.waits.remove(&token) else { return };
        let Some(command) = self.streams.get_mut(&stream).and_then(VecDeque::pop_front) else { return };
        self.counts.failed += u64::from(!good);
        if let Some((address, value)) = command.fence {
            let value = if good { value } else { FAILED };
            cx.write(address, value.to_le_bytes().to_vec());
        }
        self.begin(stream, cx);
    }
}

impl Device for Gpu {
    fn bars(&self) -> Vec<u64> {
        vec![0x4000, self.config.memory]
    }

    fn read(&mut self, bar: usize, offset: u64, bytes: &mut [u8], _: &mut Context<'_>) {
        if bar == 1 && self.hung.is_none() {
            self.memory.load(offset, bytes);
        }
    }

    fn write(&mut self, bar: usize, offset: u64, bytes: &[u8], cx: &mut Context<'_>) {
        if self.hung.is_some() {
            return;
        }
        if bar == 1 {
            return self.memory.store(offset, bytes);
        }
        let fits = |command: &Command| {
            let launch = matches!(command.work, Work::Launch(_));
            offset & !0xfff == if launch { LAUNCH_DOORBELL } else { COPY_DOORBELL }
        };
        let Some(command) = Command::parse(bytes).filter(fits) else {
            self.counts.failed += 1;
            return;
        };
        let queue = self.streams.entry(command.stream).or_default();
        queue.push_back(command);
        if queue.len() == 1 {
            self.begin(command.stream, cx);
        }
    }

    fn read_done(&mut self, token: u64, data: Result<Vec<u8>, BusError>, cx: &mut Context<'_>) {
        let Some(command) =
            self.waits.get(&token).and_then(|stream| self.streams.get(stream)?.front()).copied()
        else {
            return;
        };
        if let Ok(bytes) = &data {
            self.memory.store(command.offset, bytes);
            self.counts.copied += bytes.len() as u64;
        }
        self.end(token, data.is_ok(), cx);
    }

    fn timer(&mut self, token: u64, cx: &mut Context<'_>) {
        if self.hung.is_none() {
            self.end(token, true, cx);
        }
    }

    fn hang(&mut self, hard: bool) {
        self.hung = Some(hard);
    }

    fn reset(&mut self) {
        self.streams.clear();
        self.waits.clear();
        self.memory = Memory::default();
        self.hung = None;
    }
}
