//! The fabric: functions, addresses, and the transactions between them, in virtual time.

use std::any::Any;
use std::collections::{BTreeMap, BinaryHeap, HashMap, VecDeque};
use std::time::Duration;

use dcs_drivers::bus::{BusError, ReadDone, Tag, Window};
use dcs_testkit::Random;

use crate::count::{Meter, Record, Traffic};
use crate::device::{Action, Context, Device};
use crate::event::{Event, Part, Pending, Scheduled};
use crate::fault::{Fault, Injector, Operation, Rule};
use crate::iommu::{Iommu, Refused};
use crate::link::{Link, Ps, Rate, Timing, to_duration, to_ps};
use crate::memory::Memory;
use crate::port::Port;
use crate::wire::{Wire, WireCount, WireEnd, WireState};

/// A function on the fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FunctionId(pub(crate) usize);

/// The root: the guest's software as a requester, and host memory as a target.
pub const HOST: FunctionId = FunctionId(0);

/// The answer of an absent function, or of an address that no function has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absent {
    /// [`BusError::Unsupported`], as a device on the bus sees it.
    Unsupported,
    /// All ones, as the software of a host sees it.
    Ones,
}

pub(crate) struct Bar {
    pub(crate) window: Window,
    pub(crate) memory: Option<Memory>,
}

pub(crate) struct Function {
    name: String,
    pub(crate) bars: Vec<Bar>,
    device: Option<Box<dyn Device>>,
    pub(crate) link: Link,
    pub(crate) iommu: Option<Iommu>,
    pub(crate) refused: Vec<Refused>,
    pub(crate) bus_master: bool,
    memory_space: bool,
    pub(crate) removed: bool,
    hung: bool,
    /// Arrival time of the function's last write. Anything that must not pass it arrives later.
    pub(crate) posted: Ps,
    pub(crate) faults: Injector,
    interrupts: BTreeMap<u16, u64>,
    vectors: BTreeMap<u16, (u64, u32)>,
}

/// The requester that waits for a read.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Requester {
    Device(u64),
    Port(Tag),
    /// The call that steps the fabric itself.
    Here,
}

/// A read with unanswered pieces.
pub(crate) struct Split {
    pub(crate) function: FunctionId,
    pub(crate) asker: Requester,
    pub(crate) data: Vec<u8>,
    pub(crate) left: usize,
    pub(crate) error: Option<BusError>,
}

/// A PCIe fabric: one switch, with each function and the root on a link of its own.
pub struct Fabric {
    pub(crate) timing: Timing,
    pub(crate) now: Ps,
    sequence: u64,
    queue: BinaryHeap<Scheduled>,
    pub(crate) functions: Vec<Function>,
    next_address: u64,
    pub(crate) reads: HashMap<u64, Split>,
    pub(crate) next_read: u64,
    answered: Option<Result<Vec<u8>, BusError>>,
    ready: VecDeque<Event>,
    pub(crate) traffic: BTreeMap<(FunctionId, FunctionId), Traffic>,
    pub(crate) meters: Vec<(Window, Traffic)>,
    pub(crate) unclaimed: u64,
    pub(crate) records: Option<Vec<Record>>,
    absent: Absent,
    wires: Vec<WireState>,
    random: Random,
}

impl Fabric {
    /// Returns a fabric with `host_memory` bytes of host memory from bus address 0 on, and nothing else. All random draws come
    /// from `seed`.
    ///
    /// # Panics
    ///
    /// If the host memory is not a whole number of pages.
    pub fn new(timing: Timing, host_memory: u64, seed: u64) -> Fabric {
        assert_eq!(host_memory % 4096, 0, "whole pages");
        let mut fabric = Fabric {
            timing,
            now: 0,
            sequence: 0,
            queue: BinaryHeap::new(),
            functions: Vec::new(),
            next_address: 0,
            reads: HashMap::new(),
            next_read: 0,
            answered: None,
            ready: VecDeque::new(),
            traffic: BTreeMap::new(),
            meters: Vec::new(),
            unclaimed: 0,
            records: None,
            absent: Absent::Unsupported,
            wires: Vec::new(),
            random: Random(seed),
        };
        let memory =
            Bar { window: Window { address: 0, length: host_memory }, memory: Some(Memory::default()) };
        fabric.push("host", Rate::GEN3_X16, vec![memory], None);
        // BARs are above 64 GiB: an address truncated to 32 bits hits none of them.
        fabric.next_address = host_memory.max(1 << 36);
        fabric.set_bus_master(HOST, true);
        fabric
    }

    fn push(
        &mut self,
        name: &str,
        rate: Rate,
        bars: Vec<Bar>,
        device: Option<Box<dyn Device>>,
    ) -> FunctionId {
        self.functions.push(Function {
            name: name.into(),
            bars,
            device,
            link: Link::new(rate),
            iommu: None,
            refused: Vec::new(),
            bus_master: false,
            memory_space: true,
            removed: false,
            hung: false,
            posted: 0,
            faults: Injector::default(),
            interrupts: BTreeMap::new(),
            vectors: BTreeMap::new(),
        });
        FunctionId(self.functions.len() - 1)
    }

    /// Returns a free place in the address space, aligned to its length, with a gap behind it.
    fn place(&mut self, length: u64) -> Window {
        assert!(length.is_power_of_two() && length >= 4096, "a BAR of {length} bytes");
        let address = self.next_address.next_multiple_of(length);
        self.next_address = address + length + 4096;
        Window { address, length }
    }

    /// Plugs in a function that the caller plays through a [`Port`]. Its BARs are plain memory; the last one is the one that
    /// [`dcs_drivers::bus::Bus::window`] names. Bus mastering is off.
    ///
    /// # Panics
    ///
    /// If a BAR's length is not a power of two, or below 4096 bytes.
    pub fn add_endpoint(&mut self, name: &str, rate: Rate, bars: &[u64]) -> FunctionId {
        assert!(!bars.is_empty(), "an endpoint has memory");
        let bars = bars
            .iter()
            .map(|length| Bar { window: self.place(*length), memory: Some(Memory::default()) })
            .collect();
        self.push(name, rate, bars, None)
    }

    /// Plugs in a device model. Bus mastering is off.
    ///
    /// # Panics
    ///
    /// The same as [`Fabric::add_endpoint`].
    pub fn add_device(&mut self, name: &str, rate: Rate, mut device: impl Device) -> FunctionId {
        let windows: Vec<Window> = device.bars().into_iter().map(|length| self.place(length)).collect();
        device.placed(&windows);
        let bars = windows.iter().map(|window| Bar { window: *window, memory: None }).collect();
        self.push(name, rate, bars, Some(Box::new(device)))
    }

    /// Returns the time since the start.
    pub fn now(&self) -> Duration {
        to_duration(self.now)
    }

    /// Returns the function's end of the bus, for the caller that plays it: the card, the host, a test.
    pub fn port(&mut self, function: FunctionId) -> Port<'_> {
        Port { fabric: self, function }
    }

    /// Copies from a BAR of a function that the caller plays.
    ///
    /// # Panics
    ///
    /// If the range is outside of it, or the function is a device model.
    pub fn load_bar(&self, function: FunctionId, bar: usize, offset: u64, bytes: &mut [u8]) {
        let held = &self.functions[function.0].bars[bar];
        let within = held.window.contains(held.window.address.saturating_add(offset), bytes.len() as u64);
        assert!(within, "outside of the BAR: {offset:#x}");
        held.memory.as_ref().expect("plain memory").load(offset, bytes);
    }

    /// Returns the function's name.
    pub fn name(&self, function: FunctionId) -> &str {
        &self.functions[function.0].name
    }

    /// Returns the window of a function's BAR.
    pub fn bar(&self, function: FunctionId, bar: usize) -> Window {
        self.functions[function.0].bars[bar].window
    }

    /// Returns the device model, for inspecting or changing it from outside. It cannot act on the bus here.
    ///
    /// # Panics
    ///
    /// If the function is not a device model of this type.
    pub fn device<D: Device>(&mut self, function: FunctionId) -> &mut D {
        let device = self.functions[function.0].device.as_mut().expect("a device model");
        let device: &mut dyn Any = &mut **device;
        device.downcast_mut().expect("a model of this kind")
    }

    /// Sets the bus master enable bit. While it is off, the function's requests are dropped.
    pub fn set_bus_master(&mut self, function: FunctionId, on: bool) {
        self.functions[function.0].bus_master = on;
    }

    /// Sets the memory space enable bit. While it is off, the function's BARs do not answer.
    pub fn set_memory_space(&mut self, function: FunctionId, on: bool) {
        self.functions[function.0].memory_space = on;
    }

    /// Puts an IOMMU before a requester, or removes it: without one its addresses are bus addresses.
    pub fn set_iommu(&mut self, function: FunctionId, iommu: Option<Iommu>) {
        self.functions[function.0].iommu = iommu;
    }

    /// Returns the requester's IOMMU, for changing its mappings.
    pub fn iommu(&mut self, function: FunctionId) -> Option<&mut Iommu> {
        self.functions[function.0].iommu.as_mut()
    }

    /// Takes the requests that the requester's IOMMU refused, oldest first.
    pub fn take_refused(&mut self, function: FunctionId) -> Vec<Refused> {
        std::mem::take(&mut self.functions[function.0].refused)
    }

    /// Programs an MSI-X vector of a function: its interrupt is then a write of `data` to `address`. Without an address it is an
    /// [`Event::Interrupt`].
    pub fn set_vector(&mut self, function: FunctionId, vector: u16, write: Option<(u64, u32)>) {
        let vectors = &mut self.functions[function.0].vectors;
        match write {
            Some(write) => vectors.insert(vector, write),
            None => vectors.remove(&vector),
        };
    }

    /// Returns how often the function raised this interrupt.
    pub fn interrupts(&self, function: FunctionId, vector: u16) -> u64 {
        self.functions[function.0].interrupts.get(&vector).copied().unwrap_or(0)
    }

    /// Adds a fault rule to a function.
    pub fn inject(&mut self, function: FunctionId, rule: Rule) {
        self.functions[function.0].faults.add(rule);
    }

    /// Strikes a function as a whole, now, with `Hang`, `HangHard`, `HangBus` or `Remove`.
    ///
    /// # Panics
    ///
    /// If it is any other fault.
    pub fn strike(&mut self, function: FunctionId, fault: Fault) {
        let whole = matches!(fault, Fault::Hang | Fault::HangHard | Fault::HangBus | Fault::Remove);
        assert!(whole, "{fault:?} strikes an operation");
        self.break_function(function, fault);
    }

    /// Removes all rules of the function. Existing damage stays.
    pub fn clear_faults(&mut self, function: FunctionId) {
        self.functions[function.0].faults.clear();
    }

    /// Returns the rules of a function, in the order in which they were injected.
    pub fn rules(&self, function: FunctionId) -> &[Rule] {
        self.functions[function.0].faults.rules()
    }

    /// Returns how many of the function's operations a fault struck.
    pub fn faults_struck(&self, function: FunctionId) -> u64 {
        self.functions[function.0].faults.struck()
    }

    /// Pulls a function out. Reads from it are answered as [`Fabric::absent`] says, writes vanish, and the function does nothing.
    /// The other end of its wire loses the carrier.
    pub fn remove(&mut self, function: FunctionId) {
        self.functions[function.0].removed = true;
        if let Some(end) = self.wire_at(function) {
            self.schedule(self.now, Pending::Carrier { end: end.other(), up: false });
        }
    }

    /// Returns the end of a wire that a function holds.
    fn wire_at(&self, function: FunctionId) -> Option<WireEnd> {
        self.wires.iter().enumerate().find_map(|(wire, state)| {
            let side = state.ends.iter().position(|end| *end == Some(function))?;
            Some(WireEnd { wire, side })
        })
    }

    /// Sets the answer for addresses that no function has. The default is [`Absent::Unsupported`].
    pub fn absent(&mut self, absent: Absent) {
        self.absent = absent;
    }

    /// Resets a function, and plugs it in again if it was pulled out. Bus mastering is off afterwards.
    pub fn reset(&mut self, function: FunctionId) {
        let state = &mut self.functions[function.0];
        state.removed = false;
        state.hung = false;
        state.bus_master = false;
        state.vectors.clear();
        if let Some(device) = &mut state.device {
            device.reset();
        }
        if let Some(end) = self.wire_at(function) {
            let up = self.wires[end.wire].up;
            self.schedule(self.now, Pending::Carrier { end, up });
            self.schedule(self.now, Pending::Carrier { end: end.other(), up });
        }
    }

    /// Returns the transactions from one function to another.
    pub fn traffic(&self, from: FunctionId, to: FunctionId) -> Traffic {
        self.traffic.get(&(from, to)).copied().unwrap_or_default()
    }

    /// Returns the transactions of all functions but the host to host memory.
    pub fn host_memory_traffic(&self) -> Traffic {
        let to_host = self.traffic.iter().filter(|((from, to), _)| *to == HOST && *from != HOST);
        to_host.fold(Traffic::default(), |sum, (_, traffic)| sum + *traffic)
    }

    /// Starts to count all transactions to bus addresses in `window`, from any requester.
    pub fn meter(&mut self, window: Window) -> Meter {
        self.meters.push((window, Traffic::default()));
        Meter(self.meters.len() - 1)
    }

    /// Returns the traffic that a meter has counted.
    pub fn metered(&self, meter: Meter) -> Traffic {
        self.meters[meter.0].1
    }

    /// Starts or stops keeping a [`Record`] of every transaction.
    pub fn record(&mut self, on: bool) {
        self.records = on.then(Vec::new);
    }

    /// Takes the transactions since the last call, in the order in which they were made.
    pub fn take_records(&mut self) -> Vec<Record> {
        self.records.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Returns the bytes on the function's link including packet overhead: from it, and to it.
    pub fn link_bytes(&self, function: FunctionId) -> (u64, u64) {
        let link = &self.functions[function.0].link;
        (link.up, link.down)
    }

    /// Returns the transactions to addresses that no function has.
    pub fn unclaimed(&self) -> u64 {
        self.unclaimed
    }

    /// Connects two functions by a wire. An end without a function is the caller's.
    pub fn connect(&mut self, wire: Wire, ends: [Option<FunctionId>; 2]) -> [WireEnd; 2] {
        let number = self.wires.len();
        self.wires.push(WireState::new(wire, ends));
        let ends = [WireEnd { wire: number, side: 0 }, WireEnd { wire: number, side: 1 }];
        for end in ends {
            self.schedule(self.now, Pending::Carrier { end, up: true });
        }
        ends
    }

    /// Pulls a wire, or plugs it in again. Frames already on it arrive.
    pub fn set_carrier(&mut self, wire: WireEnd, up: bool) {
        self.wires[wire.wire].up = up;
        for end in [wire, wire.other()] {
            self.schedule(self.now, Pending::Carrier { end, up });
        }
    }

    /// Plugs the caller's end of a wire into a function.
    ///
    /// # Panics
    ///
    /// If a function holds the end.
    pub fn plug(&mut self, end: WireEnd, function: FunctionId) {
        let held = self.wires[end.wire].ends[end.side].replace(function);
        assert!(held.is_none(), "the end is held by {held:?}");
        let up = self.wires[end.wire].up;
        self.schedule(self.now, Pending::Carrier { end, up });
    }

    /// Changes the properties of a wire.
    pub fn set_wire(&mut self, wire: WireEnd, to: Wire) {
        self.wires[wire.wire].wire = to;
    }

    /// Returns the traffic sent into this end of a wire.
    pub fn wire_count(&self, end: WireEnd) -> WireCount {
        self.wires[end.wire].counts[end.side]
    }

    /// Sends a frame into an end of a wire, without its frame check sequence.
    pub fn send(&mut self, end: WireEnd, frame: Vec<u8>) {
        let now = self.now;
        let random = &mut self.random;
        let copies = self.wires[end.wire].send(end.side, now, frame.len(), || random.below(1000) as u16);
        for at in copies {
            self.schedule(at, Pending::Frame { end: end.other(), bytes: frame.clone() });
        }
    }

    /// Advances to the next [`Event`], or to the time `until`, whichever is first. Returns `None` if that time has come or,
    /// without `until`, if nothing is pending. Time never goes back: an `until` in the past means now.
    pub fn step(&mut self, until: Option<Duration>) -> Option<Event> {
        let until = until.map_or(Ps::MAX, to_ps);
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            if !self.advance(until) {
                return None;
            }
        }
    }

    /// Does the next pending action due by `until`. Returns false if there is none.
    fn advance(&mut self, until: Ps) -> bool {
        if self.queue.peek().is_none_or(|next| next.at > until) {
            if until != Ps::MAX {
                self.now = self.now.max(until);
            }
            return false;
        }
        let next = self.queue.pop().expect("it was there");
        self.now = next.at;
        self.happen(next.what);
        true
    }

    /// Reads on behalf of a function and waits for the answer: for tests and for the host's plain loads. Events in that time are
    /// kept for [`Fabric::step`].
    pub fn read(&mut self, function: FunctionId, address: u64, length: u64) -> Result<Vec<u8>, BusError> {
        self.issue_read(function, address, length, Requester::Here);
        loop {
            if let Some(answer) = self.answered.take() {
                return answer;
            }
            assert!(self.advance(Ps::MAX), "every read is answered");
        }
    }

    /// Runs everything due by `until`; events are kept for [`Fabric::step`].
    pub fn run(&mut self, until: Duration) {
        while self.advance(to_ps(until)) {}
    }

    pub(crate) fn schedule(&mut self, at: Ps, what: Pending) {
        debug_assert!(at >= self.now, "time does not go back");
        self.sequence += 1;
        self.queue.push(Scheduled { at, sequence: self.sequence, what });
    }

    fn happen(&mut self, what: Pending) {
        match what {
            Pending::Write { by, to, bytes } => self.write_arrives(by, to, bytes),
            Pending::Request { to, length, part } => self.request_arrives(to, length, part),
            Pending::Reply { from, part, data } => self.complete(from, part, data),
            Pending::Answer { part, data } => self.answer_arrives(part, data),
            Pending::Timer { function, token } => self.call(function, |device, cx| device.timer(token, cx)),
            Pending::Wake { function, token } => self.ready.push_back(Event::Wake { function, token }),
            Pending::Interrupt { function, vector } => {
                self.ready.push_back(Event::Interrupt { function, vector });
            }
            Pending::Frame { end, bytes } => self.frame_arrives(end, bytes),
            Pending::Send { end, bytes } => self.send(end, bytes),
            Pending::Receive { function, bytes } => {
                self.call(function, |device, cx| device.frame(bytes, cx));
            }
            Pending::Carrier { end, up } => {
                if let Some(function) = self.wires[end.wire].ends[end.side] {
                    self.call(function, |device, cx| device.carrier(up, cx));
                }
            }
        }
    }

    /// Calls a device, unless it is absent, and carries out its actions.
    fn call<T: Default>(
        &mut self,
        function: FunctionId,
        with: impl FnOnce(&mut dyn Device, &mut Context<'_>) -> T,
    ) -> T {
        let now = self.now();
        let state = &mut self.functions[function.0];
        let Some(mut device) = state.device.take_if(|_| !state.removed) else { return T::default() };
        let backlog = to_duration(state.link.backlog(self.now));
        let mut cx = Context { now, backlog, actions: Vec::new(), faults: &mut state.faults };
        let result = with(&mut *device, &mut cx);
        let actions = cx.actions;
        state.device = Some(device);
        for action in actions {
            self.act(function, action);
        }
        result
    }

    fn act(&mut self, function: FunctionId, action: Action) {
        match action {
            Action::Read { address, length, token } => {
                self.issue_read(function, address, length, Requester::Device(token));
            }
            Action::Write { address, bytes } => self.issue_write(function, address, &bytes),
            Action::Interrupt(vector) => self.raise(function, vector),
            Action::After(time, token) => {
                let at = self.now.saturating_add(to_ps(time));
                self.schedule(at, Pending::Timer { function, token });
            }
            Action::Send(frame) => self.send_from(function, frame),
            Action::Break(fault) => self.break_function(function, fault),
        }
    }

    /// Sends a function's frame into the wire at it, or drops it without one.
    fn send_from(&mut self, function: FunctionId, frame: Vec<u8>) {
        let Some(end) = self.wire_at(function) else { return };
        match self.functions[function.0].faults.strike(&Operation::Transmit) {
            None => self.send(end, frame),
            Some(fault) => {
                for (delay, frame) in self.apply_fault(function, fault, frame) {
                    let at = self.now + to_ps(delay);
                    self.schedule(at, Pending::Send { end, bytes: frame });
                }
            }
        }
    }

    /// Applies a fault to a frame. Returns copies of the frame with the delay of each.
    fn apply_fault(
        &mut self,
        function: FunctionId,
        fault: Fault,
        mut frame: Vec<u8>,
    ) -> Vec<(Duration, Vec<u8>)> {
        match fault {
            Fault::DuplicateFrame => vec![(Duration::ZERO, frame.clone()), (Duration::ZERO, frame)],
            Fault::DelayFrame(time) => vec![(time, frame)],
            Fault::CorruptFrame { undetected: true } if !frame.is_empty() => {
                let at = frame.len() - 1;
                frame[at] ^= 1;
                vec![(Duration::ZERO, frame)]
            }
            other => {
                self.break_function(function, other);
                Vec::new()
            }
        }
    }

    /// Carries out faults that strike the whole function.
    pub(crate) fn break_function(&mut self, function: FunctionId, fault: Fault) {
        match fault {
            Fault::Hang | Fault::HangHard => {
                self.call(function, |device, _| device.hang(fault == Fault::HangHard))
            }
            Fault::HangBus => self.functions[function.0].hung = true,
            Fault::Remove => self.remove(function),
            _ => {}
        }
    }

    fn frame_arrives(&mut self, end: WireEnd, bytes: Vec<u8>) {
        match self.wires[end.wire].ends[end.side] {
            Some(function) => match self.functions[function.0].faults.strike(&Operation::Receive) {
                None => self.call(function, |device, cx| device.frame(bytes, cx)),
                Some(fault) => {
                    for (delay, bytes) in self.apply_fault(function, fault, bytes) {
                        let at = self.now + to_ps(delay);
                        self.schedule(at, Pending::Receive { function, bytes });
                    }
                }
            },
            None => self.ready.push_back(Event::Frame { end, bytes }),
        }
    }

    fn write_arrives(&mut self, by: FunctionId, to: crate::event::Target, bytes: Vec<u8>) {
        let function = &mut self.functions[to.function.0];
        if function.removed {
            return;
        }
        match &mut function.bars[to.bar].memory {
            Some(memory) => {
                memory.store(to.offset, &bytes);
                let (function, bar, offset) = (to.function, to.bar, to.offset);
                self.ready.push_back(Event::Written { function, bar, offset, bytes, by });
            }
            None => self.call(to.function, |device, cx| device.write(to.bar, to.offset, &bytes, cx)),
        }
    }

    fn request_arrives(&mut self, to: crate::event::Target, length: u64, part: Part) {
        let function = &mut self.functions[to.function.0];
        if function.hung {
            let at = part.deadline.max(self.now);
            self.schedule(at, Pending::Answer { part, data: Err(BusError::Timeout) });
            return;
        }
        let mut bytes = vec![0; length as usize];
        let data = match &mut function.bars[to.bar].memory {
            _ if function.removed => Err(BusError::Unsupported),
            Some(memory) => {
                memory.load(to.offset, &mut bytes);
                Ok(bytes)
            }
            None => {
                self.call(to.function, |device, cx| device.read(to.bar, to.offset, &mut bytes, cx));
                Ok(bytes)
            }
        };
        let at = self.now + to_ps(self.timing.completer);
        self.schedule(at, Pending::Reply { from: to.function, part, data });
    }

    fn answer_arrives(&mut self, part: Part, data: Result<Vec<u8>, BusError>) {
        let Some(split) = self.reads.get_mut(&part.read) else { return };
        match data {
            Ok(bytes) => split.data[part.at as usize..][..bytes.len()].copy_from_slice(&bytes),
            Err(BusError::Unsupported) if self.absent == Absent::Ones => {
                split.data[part.at as usize..][..part.length as usize].fill(0xff);
            }
            Err(error) => split.error = Some(error),
        }
        split.left -= 1;
        if split.left > 0 {
            return;
        }
        let split = self.reads.remove(&part.read).expect("it was there");
        let data = split.error.map_or(Ok(split.data), Err);
        let function = split.function;
        match split.asker {
            Requester::Device(token) => self.call(function, |device, cx| device.read_done(token, data, cx)),
            Requester::Port(tag) => {
                self.ready.push_back(Event::Read { function, done: ReadDone { tag, data } });
            }
            Requester::Here => self.answered = Some(data),
        }
    }

    /// Raises an interrupt of a function: a write, or a message to the root.
    pub(crate) fn raise(&mut self, function: FunctionId, vector: u16) {
        let state = &mut self.functions[function.0];
        if state.removed || !state.bus_master {
            return;
        }
        *state.interrupts.entry(vector).or_default() += 1;
        match state.vectors.get(&vector).copied() {
            Some((address, data)) => self.issue_write(function, address, &data.to_le_bytes()),
            None => {
                let at = self.travel(function, HOST, self.now, 4);
                let at = at.max(self.functions[function.0].posted);
                self.functions[function.0].posted = at;
                self.schedule(at, Pending::Interrupt { function, vector });
            }
        }
    }

    pub(crate) fn reachable(&self, function: FunctionId) -> bool {
        self.functions[function.0].memory_space
    }
}
