//! The controller of an SSD: jobs become operations at the ports of `rtl/nvme_controller.sv`, and its doorbells writes on the bus.
//!
//! The SSD does DMA to the card's memory alone. Two rings and a page there stand for the controller's own memory: before a doorbell is rung,
//! what the controller has written is copied out, and what the SSD has written is copied in before the controller is clocked again.

use crate::model::nvme_controller::{self, In, Out};
use crate::model::{self, BLOCK_SIZE, BLOCKS, COMMANDS, ENTRIES, Model};
use dcs_abi::status::Status;
use dcs_drivers::bus::Bus;
use dcs_drivers::ssd::{Controller, ControllerEvent, Job, Lent, Work};
use dcs_engine::{Failure, Nanos, OperationId};
use std::collections::VecDeque;

/// Bytes of a word of block memory and of the controller's own.
const WORD: usize = 16;
type Word = [u8; WORD];
/// Words of a submission entry.
const SUBMISSION: usize = 4;
/// Rows of its own memory: the rings, submission entries first, and the page for what is not whole logical blocks.
const RINGS: u64 = 0;
const PAGE: u64 = 1;
/// Size of that page, and its distance from the rings, in bytes.
const PAGE_SIZE: u64 = 4096;
/// Cycles without a sign of life after which nothing happens by itself: it looks at its ring, and at every command's time, every 16.
const CALM: u32 = 48;
/// Cycles in which everything that one call leads to is done.
const MOST: u32 = 1_000_000;
/// Nanoseconds of a millisecond, the accuracy of timeouts.
const MILLISECOND: Nanos = 1_000_000;
/// Opcodes of NVMe.
const WRITE: u8 = 1;
const READ: u8 = 2;

/// A controller of an SSD in SystemVerilog.
pub struct SsdController {
    model: Model<In, Out>,
    input: In,
    /// Its outputs in the last cycle.
    out: Out,
    lent: Option<Lent>,
    /// What it has: by row, or behind them by a number for those without one.
    flights: Vec<Option<(u64, OperationId)>>,
    serial: u64,
    /// Words of block memory that were asked for: they come two cycles later.
    asked: [Option<u64>; 2],
    /// The completion ring as it was last copied in.
    completions: [Word; ENTRIES as usize],
    /// The first entry that was not copied out.
    tail: usize,
    /// Words of the page that the SSD may be writing.
    incoming: usize,
    events: VecDeque<ControllerEvent>,
    is_stirred: bool,
    /// Time at which a command may have taken too long.
    watch: Option<Nanos>,
    cycles: u64,
}

impl core::fmt::Debug for SsdController {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let flights = self.flights.iter().flatten().count();
        let state = if self.out.broken_o { ", broken" } else { "" };
        write!(f, "SsdController after {} cycles, with {flights} operations{state}", self.cycles)
    }
}

impl Default for SsdController {
    fn default() -> SsdController {
        SsdController::new()
    }
}

impl SsdController {
    /// Makes a controller, after a reset. Its sizes are those of `rtl/tools/body.py`.
    pub fn new() -> SsdController {
        let input = In {
            outcome_ready_i: true,
            cancel_ready_i: true,
            read_ready_i: true,
            write_ready_i: true,
            ..In::default()
        };
        let mut controller = SsdController {
            model: Model::new(&nvme_controller::MODELS[0]),
            input,
            out: Out::default(),
            lent: None,
            flights: vec![None; (BLOCKS + COMMANDS) as usize],
            serial: 0,
            asked: [None; 2],
            completions: Default::default(),
            tail: 0,
            incoming: 0,
            events: VecDeque::new(),
            is_stirred: false,
            watch: None,
            cycles: 0,
        };
        (0..3).for_each(|_| controller.edge());
        controller.input.rst_ni = true;
        (0..CALM).for_each(|_| controller.edge());
        controller
    }

    /// Cycles of the clock so far.
    pub fn cycles(&self) -> u64 {
        self.cycles
    }

    // ---- The clock ----

    /// Clocks until nothing goes on any more.
    fn run(&mut self, bus: &mut dyn Bus, now: Nanos) {
        self.input.millis_i = now / MILLISECOND;
        self.is_stirred = false;
        let (mut calm, mut cycles) = (0, 0);
        while calm < CALM {
            self.clock(bus);
            let request = model::BusRequest::unpack(self.out.bus_o);
            if request.aw_valid == 1 {
                self.ring(bus, now, request.aw_addr, request.w_data_0 as u32);
            }
            let out = &self.out;
            let moves = out.read_valid_o || out.write_valid_o || self.asked.iter().any(Option::is_some);
            let tells = out.outcome_valid_o || out.cancel_valid_o || request.aw_valid == 1;
            calm = if moves || tells { 0 } else { calm + 1 };
            cycles += 1;
            assert!(cycles < MOST, "the controller runs in circles: {self:?}");
        }
        let next = (now / MILLISECOND + 1) * MILLISECOND;
        let is_idle = self.flights.iter().all(Option::is_none);
        self.watch = self.watch.filter(|_| !is_idle).map(|watch| watch.max(next));
    }

    /// A cycle, in which it may move bytes of blocks: what it puts out before the edge is taken then.
    fn clock(&mut self, bus: &mut dyn Bus) {
        let [next, due] = self.asked;
        let blocks = self.lent.map_or(0, |lent| lent.blocks);
        self.input.read_done_i = due.is_some();
        if let Some(at) = due {
            let mut word = Word::default();
            bus.load(blocks + at * WORD as u64, &mut word);
            self.input.read_data_i = bits(&word);
        }
        self.edge();
        let out = self.out;
        self.asked = [out.read_valid_o.then_some(out.read_at_o), next];
        if out.write_valid_o && out.write_keep_o != 0 {
            let from = out.write_keep_o.trailing_zeros() as usize;
            let to = (u64::BITS - out.write_keep_o.leading_zeros()) as usize;
            bus.store(
                blocks + out.write_at_o * WORD as u64 + from as u64,
                &bytes(out.write_data_o)[from..to],
            );
        }
    }

    /// A cycle: what it tells before the edge is taken then.
    fn edge(&mut self) {
        self.out = self.model.settle(&self.input);
        self.model.edge();
        self.cycles += 1;
        if self.out.cancel_valid_o {
            self.events.push_back(ControllerEvent::Abort(self.out.cancel_identifier_o as u16));
        }
        if self.out.outcome_valid_o {
            self.ended(&model::Outcome::unpack(self.out.outcome_o));
        }
    }

    fn ended(&mut self, outcome: &model::Outcome) {
        let id = model::OperationId::unpack(outcome.id);
        let Some((_, operation)) = self.flights[key(&id)].take() else { return };
        let result = match outcome.kind {
            model::FAILED => Err(Failure::new(Status::from_code(outcome.status as u16))),
            _ => Ok(outcome.bytes as u32),
        };
        self.events.push_back(ControllerEvent::Ended(operation, result));
    }

    // ---- Its bus: doorbells ----

    /// Writes a doorbell, once the SSD can see what that tells it of.
    fn ring(&mut self, bus: &mut dyn Bus, now: Nanos, address: u64, value: u32) {
        if let Some(lent) = self.lent
            && address == lent.pair.tail_doorbell
        {
            self.copy_out(bus, &lent, value as usize % ENTRIES as usize);
            self.watch.get_or_insert(now.saturating_add(lent.pair.patience).saturating_add(2 * MILLISECOND));
        }
        bus.write(address, &value.to_le_bytes());
        let taken = model::BusResponse { aw_ready: 1, w_ready: 1, ..Default::default() };
        let written = model::BusResponse { b_valid: 1, ..Default::default() };
        for response in [taken, written] {
            self.input.bus_i = response.pack();
            self.clock(bus);
        }
        self.input.bus_i = Default::default();
    }

    // ---- Its own memory ----

    /// Copies entries out up to this one, and the page where one of them has it written to the SSD.
    fn copy_out(&mut self, bus: &mut dyn Bus, lent: &Lent, tail: usize) {
        let page = bus.window().address + lent.page;
        while self.tail != tail {
            let mut entry = [Word::default(); SUBMISSION];
            for (at, word) in entry.iter_mut().enumerate() {
                *word = self.own(bus, RINGS, self.tail * SUBMISSION + at);
            }
            let place = lent.pair.submissions + (self.tail * SUBMISSION * WORD) as u64;
            bus.store(place, entry.as_flattened());
            let opcode = entry[0][0];
            let is_page = entry[1][8..] == page.to_le_bytes();
            if is_page && opcode == WRITE {
                self.incoming = 0;
                for at in 0..words(lent.pair.block_size) {
                    let word = self.own(bus, PAGE, at);
                    bus.store(lent.page + (at * WORD) as u64, &word);
                }
            } else if is_page && opcode == READ {
                self.incoming = words(lent.pair.block_size);
            }
            self.tail = (self.tail + 1) % ENTRIES as usize;
        }
    }

    /// Copies in what the SSD has completed; returns false if that is nothing.
    fn copy_in(&mut self, bus: &mut dyn Bus, lent: &Lent) -> bool {
        let mut ring = [Word::default(); ENTRIES as usize];
        let phase = |word: &Word| word[14] & 1;
        bus.load(lent.pair.completions, ring.as_flattened_mut());
        let fresh: Vec<_> =
            (0..ring.len()).filter(|at| phase(&ring[*at]) != phase(&self.completions[*at])).collect();
        if fresh.is_empty() {
            return false;
        }
        for at in 0..self.incoming {
            let mut word = Word::default();
            bus.load(lent.page + (at * WORD) as u64, &mut word);
            self.set_own(bus, PAGE, at, &word);
        }
        // What comes before the phase bit is sure to be there only behind it.
        bus.load(lent.pair.completions, ring.as_flattened_mut());
        for at in fresh {
            self.completions[at] = ring[at];
            self.set_own(bus, RINGS, ENTRIES as usize * SUBMISSION + at, &ring[at]);
        }
        true
    }

    fn own(&mut self, bus: &mut dyn Bus, row: u64, word: usize) -> Word {
        self.input.own_read_at_i = model::WordAt { row, word: word as u64 }.pack();
        self.input.own_read_valid_i = true;
        self.until(bus, |out| out.own_read_ready_o);
        self.input.own_read_valid_i = false;
        self.until(bus, |out| out.own_read_done_o);
        bytes(self.out.own_read_data_o)
    }

    fn set_own(&mut self, bus: &mut dyn Bus, row: u64, word: usize, data: &Word) {
        self.input.own_write_at_i = model::WordAt { row, word: word as u64 }.pack();
        self.input.own_write_data_i = bits(data);
        self.input.own_write_keep_i = (1 << WORD) - 1;
        self.input.own_write_valid_i = true;
        self.until(bus, |out| out.own_write_ready_o);
        self.input.own_write_valid_i = false;
    }

    /// Clocks until this is so.
    fn until(&mut self, bus: &mut dyn Bus, is_so: fn(&Out) -> bool) {
        for _ in 0..MOST {
            self.clock(bus);
            if is_so(&self.out) {
                return;
            }
        }
        unreachable!("the controller does not answer: {self:?}")
    }

    // ---- Operations ----

    /// A number for an operation, if there is one: that of its row, or any for one without.
    fn name(&mut self, job: &Job) -> Option<model::OperationId> {
        self.serial = (self.serial + 1) % 256;
        let id = model::OperationId { serial: self.serial, ..Default::default() };
        let is_free = |id: &model::OperationId| self.flights[key(id)].is_none();
        match job.work {
            Work::Read(span) | Work::Write(span) => {
                let row = span.block.index() as u64;
                Some(model::OperationId { row, ..id }).filter(|_| row < BLOCKS).filter(is_free)
            }
            Work::Flush => {
                (0..COMMANDS).map(|command| model::OperationId { blockless: 1, command, ..id }).find(is_free)
            }
        }
    }
}

impl Controller for SsdController {
    fn entries(&self) -> u16 {
        ENTRIES as u16
    }

    fn enable(&mut self, bus: &mut dyn Bus, now: Nanos, lent: &Lent) {
        assert!(self.out.ready_o, "its rings are empty: {self:?}");
        let (pair, base) = (&lent.pair, bus.window().address);
        let config = model::QueuePair {
            tail_doorbell: pair.tail_doorbell,
            head_doorbell: pair.head_doorbell,
            blocks: base + lent.blocks,
            // Where its rings would be by its page: software has said elsewhere where they are.
            own: base + lent.page - PAGE_SIZE,
            name_space: pair.namespace.into(),
            shift: pair.block_size.trailing_zeros().into(),
            number: pair.number.into(),
            patience: pair.patience.div_ceil(MILLISECOND).min(u32::MAX.into()),
        };
        self.lent = Some(*lent);
        (self.completions, self.tail, self.incoming, self.watch) = Default::default();
        self.input.config_i = config.pack();
        self.input.enable_i = true;
        self.run(bus, now);
    }

    fn disable(&mut self, bus: &mut dyn Bus, now: Nanos) {
        self.input.enable_i = false;
        self.run(bus, now);
        assert!(self.flights.iter().all(Option::is_none), "all has failed: {self:?}");
        self.lent = None;
    }

    fn submit(&mut self, bus: &mut dyn Bus, _: Nanos, job: &Job) -> bool {
        let Some(lent) = self.lent else { return false };
        let Some(id) = self.name(job) else { return false };
        self.flights[key(&id)] = Some((id.pack(), job.operation));
        let (kind, span) = match job.work {
            Work::Read(span) => (model::DO_READ, Some(span)),
            Work::Write(span) => (model::DO_WRITE, Some(span)),
            Work::Flush => (model::DO_FLUSH, None),
        };
        let asked = model::Operation { kind, id: id.pack(), ..Default::default() };
        let asked = span.map_or(asked, |span| model::Operation {
            offset: span.position,
            start: (span.memory - lent.blocks) % BLOCK_SIZE,
            length: span.length.into(),
            ..asked
        });
        self.input.operation_i = asked.pack();
        self.input.operation_valid_i = true;
        self.clock(bus);
        self.input.operation_valid_i = false;
        self.is_stirred = true;
        true
    }

    fn abort(&mut self, bus: &mut dyn Bus, _: Nanos, operation: OperationId) {
        let flight = self.flights.iter().flatten().find(|(_, other)| *other == operation);
        let Some((id, _)) = flight.copied() else { return };
        self.input.abort_id_i = id;
        self.input.abort_valid_i = true;
        self.until(bus, |out| out.abort_ready_o);
        self.input.abort_valid_i = false;
        self.is_stirred = true;
    }

    fn poll(&mut self, bus: &mut dyn Bus, now: Nanos) {
        let Some(lent) = self.lent else { return };
        let is_late = self.watch.is_some_and(|watch| watch <= now);
        if self.copy_in(bus, &lent) || self.is_stirred || is_late {
            self.run(bus, now);
        }
    }

    fn next_event(&mut self) -> Option<ControllerEvent> {
        self.events.pop_front()
    }

    fn is_broken(&self) -> bool {
        self.out.broken_o
    }

    fn deadline(&self) -> Option<Nanos> {
        self.watch
    }
}

/// The place of what an operation's number names.
fn key(id: &model::OperationId) -> usize {
    (if id.blockless == 0 { id.row } else { BLOCKS + id.command }) as usize
}

/// Words of a logical block.
fn words(block_size: u32) -> usize {
    block_size as usize / WORD
}

fn bits(word: &Word) -> [u32; WORD / 4] {
    let mut parts = word.as_chunks::<4>().0.iter();
    std::array::from_fn(|_| parts.next().map_or(0, |part| u32::from_le_bytes(*part)))
}

fn bytes(words: [u32; WORD / 4]) -> Word {
    let mut bytes = Word::default();
    bytes.as_chunks_mut::<4>().0.iter_mut().zip(words).for_each(|(to, from)| *to = from.to_le_bytes());
    bytes
}
