//! An SSD's D2D function: BAR 0 has registers and tasks, BAR 1 is the aperture.

use std::collections::HashMap;
use std::time::Duration;

use dcs_d2d::register::APERTURE_BASE;
use dcs_d2d::ssd::{Config, MediumError};
use dcs_d2d::{Action, ConfigError, Token};
use dcs_drivers::bus::{BusError, Window};
use dcs_testkit::Random;

use super::{AHEAD, Alarm, CHUNK, nanos};
use crate::device::{Context, Device};
use crate::fault::{Fault, Operation};
use crate::nvme::{Media, Namespace};

/// Token of the timer for the state machine's deadline.
const DEADLINE: u64 = 0;
/// Token of the timer for room on the link.
const ROOM: u64 = 1;
/// First token of operations at the medium.
const FIRST: u64 = 2;

/// Queue number for fault rules, which no NVMe queue has. The opcodes are NVMe's for read and write.
const QUEUE: u16 = u16::MAX;
const READ: u8 = 2;
const WRITE: u8 = 1;

/// Configuration of an SSD's D2D function.
#[derive(Clone, Copy, Debug)]
pub struct SsdConfig {
    /// Configuration of the state machine. Blocks are the namespace's.
    pub function: Config,
    /// Latencies and rate of the medium.
    pub media: Media,
    /// Seed of its jitter.
    pub seed: u64,
}

impl SsdConfig {
    /// Returns the usual configuration, with this many streams.
    pub fn new(streams: u16) -> SsdConfig {
        SsdConfig { function: Config::new(streams, 0), media: Media::default(), seed: 1 }
    }
}

/// An operation in progress at the medium.
struct Operating {
    token: Token,
    offset: u64,
    /// Bytes to read, or data to store.
    work: Result<u64, Vec<u8>>,
    fault: Option<Fault>,
}

/// An SSD's D2D function on a namespace, which an NVMe controller may share.
pub struct Ssd {
    config: SsdConfig,
    function: dcs_d2d::Ssd,
    namespace: Namespace,
    base: u64,
    random: Random,
    /// Time at which the medium finishes its current work, in nanoseconds.
    busy: u64,
    operating: HashMap<u64, Operating>,
    tokens: u64,
    alarm: Alarm,
    /// True while a timer for room on the link is set.
    waits: bool,
    hung: bool,
}

impl Ssd {
    /// Returns a function after power on.
    pub fn new(mut config: SsdConfig, namespace: Namespace) -> Result<Ssd, ConfigError> {
        config.function.blocks = namespace.blocks();
        config.function.block_shift = namespace.shift();
        Ok(Ssd {
            config,
            function: dcs_d2d::Ssd::new(config.function)?,
            namespace,
            base: 0,
            random: Random(config.seed),
            busy: 0,
            operating: HashMap::new(),
            tokens: FIRST,
            alarm: Alarm::default(),
            waits: false,
            hung: false,
        })
    }

    /// Returns the state machine, for adding operators to it.
    pub fn function(&mut self) -> &mut dcs_d2d::Ssd {
        &mut self.function
    }

    /// Reads registers without the bus, as a debugger does.
    pub fn peek(&self, offset: u64) -> u64 {
        let mut bytes = [0; 8];
        self.function.read(offset, &mut bytes);
        u64::from_le_bytes(bytes)
    }

    fn set_base(&mut self) {
        self.function.write(APERTURE_BASE, &self.base.to_le_bytes(), 0);
    }

    /// Runs the state machine as far as the link has room.
    fn work(&mut self, cx: &mut Context<'_>) {
        if self.hung || self.waits {
            return;
        }
        let now = nanos(cx.now());
        let mut room = if cx.backlog() > AHEAD { 0 } else { CHUNK };
        while room > 0 {
            let Some(action) = self.function.poll(now) else {
                return self.alarm.set(self.function.next_deadline(), DEADLINE, cx);
            };
            match action {
                Action::Write { address, data, .. } => {
                    room = room.saturating_sub(data.len());
                    cx.write(address, data);
                }
                Action::Read { token, lba, blocks } => {
                    let offset = lba << self.namespace.shift();
                    let length = u64::from(blocks) << self.namespace.shift();
                    self.begin(token, READ, offset, Ok(length), cx);
                }
                Action::Store { token, lba, data } => {
                    self.begin(token, WRITE, lba << self.namespace.shift(), Err(data), cx);
                }
                Action::Interrupt { stream: _ } => cx.interrupt(0),
                Action::Legacy { .. } => unreachable!("an SSD receives no frames"),
            }
        }
        self.waits = true;
        cx.after(cx.backlog().saturating_sub(AHEAD), ROOM);
    }

    fn begin(
        &mut self,
        token: Token,
        opcode: u8,
        offset: u64,
        work: Result<u64, Vec<u8>>,
        cx: &mut Context<'_>,
    ) {
        let length = work.as_ref().map_or_else(|data| data.len() as u64, |length| *length);
        let shift = self.namespace.shift();
        let blocks = offset >> shift..(offset + length) >> shift;
        let fault = cx.strike(&Operation::Command { queue: QUEUE, opcode, blocks });
        let media = self.config.media;
        let now = nanos(cx.now());
        self.busy = self.busy.max(now) + length * 1_000_000_000 / media.rate.max(1);
        let first = nanos(if opcode == READ { media.read } else { media.write });
        let mut done = self.busy + first + self.random.below(nanos(media.jitter) + 1);
        if let Some(Fault::DelayCompletion(time)) = fault {
            done += nanos(time);
        }
        self.tokens += 1;
        self.operating.insert(self.tokens, Operating { token, offset, work, fault });
        let lost = [Fault::LoseCommand, Fault::StallCommand, Fault::DropCompletion];
        if !fault.is_some_and(|fault| lost.contains(&fault)) {
            cx.after(Duration::from_nanos(done - now), self.tokens);
        }
    }

    fn end(&mut self, operating: Operating, cx: &Context<'_>) {
        let now = nanos(cx.now());
        let failed = matches!(operating.fault, Some(Fault::BadStatus(_) | Fault::FalseStatus(_)));
        match operating.work {
            Ok(length) => {
                let mut data = vec![0; length as usize];
                self.namespace.load(operating.offset, &mut data);
                if operating.fault == Some(Fault::CorruptDma) {
                    data[0] ^= 1;
                }
                self.function.read_done(
                    operating.token,
                    if failed { Err(MediumError) } else { Ok(data) },
                    now,
                );
            }
            Err(data) => {
                if !matches!(operating.fault, Some(Fault::BadStatus(_))) {
                    self.namespace.store(operating.offset, &data);
                }
                self.function.store_done(
                    operating.token,
                    if failed { Err(MediumError) } else { Ok(()) },
                    now,
                );
            }
        }
    }
}

impl Device for Ssd {
    fn bars(&self) -> Vec<u64> {
        let config = self.config.function;
        vec![config.registers().max(4096), config.aperture().next_power_of_two()]
    }

    fn placed(&mut self, bars: &[Window]) {
        self.base = bars[1].address;
        self.set_base();
    }

    fn read(&mut self, bar: usize, offset: u64, bytes: &mut [u8], _: &mut Context<'_>) {
        match bar {
            0 => self.function.read(offset, bytes),
            _ => bytes.fill(0),
        }
    }

    fn write(&mut self, bar: usize, offset: u64, bytes: &[u8], cx: &mut Context<'_>) {
        if self.hung {
            return;
        }
        let now = nanos(cx.now());
        match bar {
            0 => self.function.write(offset, bytes, now),
            _ => self.function.data(offset, bytes, now),
        }
        self.work(cx);
    }

    fn read_done(&mut self, _: u64, _: Result<Vec<u8>, BusError>, _: &mut Context<'_>) {}

    fn timer(&mut self, token: u64, cx: &mut Context<'_>) {
        match token {
            DEADLINE => self.alarm.rang(cx),
            ROOM => self.waits = false,
            _ => {
                if let Some(operating) = self.operating.remove(&token)
                    && !self.hung
                {
                    self.end(operating, cx);
                }
            }
        }
        self.work(cx);
    }

    fn hang(&mut self, _: bool) {
        self.hung = true;
    }

    fn reset(&mut self) {
        self.hung = false;
        self.function.reset();
        self.set_base();
        // The medium stops with the function: nothing from before is stored.
        for (_, operating) in self.operating.drain() {
            match operating.work {
                Ok(_) => self.function.read_done(operating.token, Err(MediumError), 0),
                Err(_) => self.function.store_done(operating.token, Err(MediumError), 0),
            }
        }
    }
}
