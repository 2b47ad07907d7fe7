//! Registers, runs and turns of streams, common to both functions.

use crate::credit::CREDIT;
use crate::interface::{Action, ConfigError, Nanos, Operator, Origin};
use crate::receiver::{self, Arrival, Receiver};
use crate::register::*;
use crate::schedule::{Circle, Timers};
use crate::sender::{self, Sender};
use crate::uoe;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// The settings common to both kinds of functions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub kind: Kind,
    pub streams: u16,
    pub window: u32,
    pub places: u8,
    /// Epoch before each stream's first run.
    pub epoch: u16,
    pub payload: u32,
    /// Tasks of a list; 0 in a NIC.
    pub tasks: u32,
    pub medium: Medium,
    pub blocks: u64,
}

impl Settings {
    fn check(&self) -> Result<(), ConfigError> {
        let has_tasks = self.kind == Kind::Nic || self.tasks > 0;
        if self.streams == 0 || !has_tasks || self.bar() > 1 << 32 {
            Err(ConfigError::Streams)
        } else if !(2..=1 << 20).contains(&self.window) {
            Err(ConfigError::Window)
        } else if !self.places.is_power_of_two() {
            Err(ConfigError::Places)
        } else if !self.payload.is_power_of_two() || !(64..=4096).contains(&self.payload) {
            Err(ConfigError::Payload)
        } else {
            Ok(())
        }
    }

    /// Bytes of each stream's register block, over all streams, in whole pages.
    fn blocks_of_registers(&self) -> u64 {
        (u64::from(self.streams) * STRIDE).next_multiple_of(4096)
    }

    fn uoe(&self) -> u64 {
        STREAMS + self.blocks_of_registers()
    }

    fn task_memory(&self) -> u64 {
        STREAMS + self.blocks_of_registers()
    }

    /// Bytes of BAR0.
    pub fn bar(&self) -> u64 {
        let rest = match self.kind {
            Kind::Nic => self.blocks_of_registers(),
            Kind::Ssd => u64::from(self.streams) * u64::from(self.tasks) * Task::SIZE,
        };
        (STREAMS + self.blocks_of_registers() + rest).next_power_of_two()
    }

    /// Bytes of a place in the aperture.
    pub fn place(&self) -> u64 {
        2 * u64::from(self.window) * CREDIT
    }
}

/// A stream: its registers, a sender and a receiver. The role decides which of them runs.
pub(crate) struct Stream {
    tx_address: TxAddress,
    rate: Rate,
    credits: u32,
    pub count: u64,
    credit_address: u64,
    times: Times,
    control: Control,
    pub tail: u32,
    /// Lower half of a grant that is written in two halves.
    grant_half: u32,
    pub role: Role,
    pub sender: Sender,
    pub receiver: Receiver,
    pub run: u32,
    operator: Option<Box<dyn Operator + Send>>,
    announced: bool,
    pub late: u32,
    pub dropped: u32,
    pub packets: u64,
    pub lost: u64,
}

impl Stream {
    fn new(window: u32, epoch: u16) -> Stream {
        Stream {
            tx_address: TxAddress::default(),
            rate: Rate::default(),
            credits: 0,
            count: 0,
            credit_address: 0,
            times: Times::default(),
            control: Control::default(),
            tail: 0,
            grant_half: 0,
            role: Role::None,
            sender: Sender::default(),
            receiver: Receiver::new(window, epoch),
            run: 0,
            operator: None,
            announced: false,
            late: 0,
            dropped: 0,
            packets: 0,
            lost: 0,
        }
    }

    pub fn is_running(&self) -> bool {
        match self.role {
            Role::None => false,
            Role::Sender => self.sender.state().is_running(),
            Role::Receiver => self.receiver.state().is_running(),
        }
    }

    /// Ends the run with an error.
    pub fn fail(&mut self, error: Error) {
        match self.role {
            Role::None => {}
            Role::Sender => self.sender.fail(error),
            Role::Receiver => self.receiver.fail(error),
        }
    }

    /// Returns a sender's plan from the registers.
    pub fn sender_plan(&self, end: Option<u64>, patient: bool) -> sender::Plan {
        let stall = if self.times.stall_us == 0 { Times::STALL_US } else { self.times.stall_us };
        sender::Plan {
            address: self.tx_address.address,
            rate: self.rate,
            credits: self.credits,
            aperture: self.control.aperture,
            epoch: self.control.epoch,
            end,
            stall: Nanos::from(stall) * 1000,
            patient,
        }
    }

    /// Returns a receiver's plan from the registers.
    pub fn receiver_plan(&self, unit: u64) -> receiver::Plan {
        let refresh = if self.times.refresh_us == 0 { Times::REFRESH_US } else { self.times.refresh_us };
        let stall = self.times.stall_us;
        receiver::Plan {
            end: (self.count != 0).then_some(self.count),
            unit,
            refresh: Nanos::from(refresh.max(Times::REFRESH_MIN_US)) * 1000,
            stall: (stall != 0).then_some(Nanos::from(stall) * 1000),
        }
    }

    /// Returns true if grants go to a sender, not to the driver.
    fn tells_sender(&self) -> bool {
        self.credit_address != 0
    }

    fn status(&self) -> Status {
        let (state, error, epoch) = match self.role {
            Role::None => (State::Init, None, self.receiver.epoch()),
            Role::Sender => (self.sender.state(), self.sender.error(), self.sender.epoch()),
            Role::Receiver => (self.receiver.state(), self.receiver.error(), self.receiver.epoch()),
        };
        let starved = self.role == Role::Sender && self.sender.is_starved();
        Status { state, role: self.role, paused: self.tx_address.pause, starved, error, epoch }
    }

    fn bytes(&self) -> (u64, u64) {
        match self.role {
            Role::None => (0, 0),
            Role::Sender => (self.sender.sent(), self.sender.taken()),
            Role::Receiver => (self.receiver.received(), self.receiver.consumed()),
        }
    }

    fn count_now(&self) -> u64 {
        let end = match self.role {
            Role::Sender => self.sender.end(),
            Role::Receiver => self.receiver.end_of_stream(),
            Role::None => None,
        };
        end.filter(|_| self.is_running()).unwrap_or(self.count)
    }

    fn deadline(&self) -> Option<Nanos> {
        match self.role {
            Role::None => None,
            Role::Sender => self.sender.deadline(),
            Role::Receiver => self.receiver.deadline(self.tells_sender()),
        }
    }
}

/// The register at an offset in BAR0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decoded {
    Global(u64),
    /// Stream, and offset in its registers.
    Stream(u16, u64),
    /// Stream, and number of the UOE's register.
    Uoe(u16, usize),
    /// Stream, and number of the word in its list of tasks.
    Task(u16, usize),
    Nothing,
}

/// A write to BAR0: the bits in `mask` become those of `value`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access {
    pub at: u64,
    value: u64,
    mask: u64,
}

impl Access {
    /// Parses a write of eight bytes, or of either half. Returns `None` for others, which have no effect.
    pub fn of(offset: u64, bytes: &[u8]) -> Option<Access> {
        let at = offset & !7;
        if let Ok(bytes) = bytes.try_into() {
            return (offset == at).then_some(Access { at, value: u64::from_le_bytes(bytes), mask: u64::MAX });
        }
        let half = u64::from(u32::from_le_bytes(bytes.try_into().ok()?));
        let shift = (offset - at) * 8;
        shift.is_multiple_of(32).then_some(Access { at, value: half << shift, mask: 0xffff_ffff << shift })
    }

    pub fn into(self, old: u64) -> u64 {
        old & !self.mask | self.value & self.mask
    }

    fn has_lower_half(self) -> bool {
        self.mask as u32 != 0
    }

    fn has_upper_half(self) -> bool {
        self.mask >> 32 != 0
    }
}

/// The commands of a register write, in the order of their execution.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Command {
    pub clear: bool,
    pub start: bool,
    pub end: Option<u64>,
}

/// The streams of a function.
pub(crate) struct Streams {
    pub settings: Settings,
    all: Vec<Stream>,
    pub circle: Circle,
    timers: Timers,
    events: VecDeque<u16>,
    aperture_base: u64,
}

impl Streams {
    pub fn new(settings: Settings) -> Result<Streams, ConfigError> {
        settings.check()?;
        let count = settings.streams;
        Ok(Streams {
            settings,
            all: (0..count).map(|_| Stream::new(settings.window, settings.epoch)).collect(),
            circle: Circle::new(count),
            timers: Timers::new(count),
            events: VecDeque::new(),
            aperture_base: 0,
        })
    }

    /// Resets all streams. Epochs go on, so that earlier grants and data are of other runs. Operators stay.
    pub fn reset(&mut self) {
        for number in 0..self.settings.streams {
            self.clear(number);
            let window = self.settings.window;
            let stream = self.stream(number);
            let (run, operator) = (stream.run, stream.operator.take());
            let sender = core::mem::take(&mut stream.sender);
            let receiver = core::mem::replace(&mut stream.receiver, Receiver::new(window, 0));
            *stream = Stream { run, operator, sender, receiver, ..Stream::new(window, 0) };
        }
        self.circle.clear();
        self.timers.clear();
        self.events.clear();
        self.aperture_base = 0;
    }

    pub fn stream(&mut self, stream: u16) -> &mut Stream {
        &mut self.all[usize::from(stream)]
    }

    pub fn set_operator(&mut self, stream: u16, operator: Option<Box<dyn Operator + Send>>) {
        if let Some(stream) = self.all.get_mut(usize::from(stream)) {
            stream.operator = operator;
        }
    }

    // Registers.

    pub fn decode(&self, offset: u64) -> Decoded {
        let settings = &self.settings;
        let Some(behind) = offset.checked_sub(STREAMS) else { return Decoded::Global(offset) };
        let stream = |at: u64, stride: u64| {
            u16::try_from(at / stride)
                .ok()
                .filter(|stream| *stream < settings.streams)
                .map(|s| (s, at % stride))
        };
        if let Some((stream, at)) = stream(behind, STRIDE) {
            return Decoded::Stream(stream, at);
        }
        match settings.kind {
            Kind::Nic => match offset.checked_sub(settings.uoe()).and_then(|at| stream(at, STRIDE)) {
                Some((stream, at)) if at < 8 * uoe::COUNT as u64 => Decoded::Uoe(stream, at as usize / 8),
                _ => Decoded::Nothing,
            },
            Kind::Ssd => {
                let list = u64::from(settings.tasks) * Task::SIZE;
                match offset.checked_sub(settings.task_memory()).and_then(|at| stream(at, list)) {
                    Some((stream, at)) => Decoded::Task(stream, at as usize / 8),
                    None => Decoded::Nothing,
                }
            }
        }
    }

    pub fn read_global(&self, at: u64) -> u64 {
        let settings = &self.settings;
        let is_ssd = settings.kind == Kind::Ssd;
        match at {
            IDENTITY => Identity::new(settings.kind).bits(),
            CAPABILITIES => Capabilities {
                streams: settings.streams,
                places: settings.places,
                aperture: 2 * settings.window,
            }
            .bits(),
            OFFSETS => {
                let uoe = if is_ssd { 0 } else { settings.uoe() as u32 };
                Offsets { streams: STREAMS as u32, uoe }.bits()
            }
            TASK_MEMORY if is_ssd => {
                TaskMemory { offset: settings.task_memory() as u32, tasks: settings.tasks }.bits()
            }
            MEDIUM => settings.medium.bits(),
            BLOCKS => settings.blocks,
            APERTURE_BASE => self.aperture_base,
            EVENT => Event { stream: self.events.front().copied() }.bits(),
            _ => 0,
        }
    }

    /// Reads a stream's register. `head`: number of tasks that have begun.
    pub fn read_stream(&self, number: u16, at: u64, head: u32) -> u64 {
        let stream = &self.all[usize::from(number)];
        match at {
            TX_ADDRESS => stream.tx_address.bits(),
            RX_ADDRESS => {
                let places = u64::from(self.settings.places);
                let place = u64::from(number) * places + u64::from(stream.receiver.epoch()) % places;
                self.aperture_base.wrapping_add(place * self.settings.place())
            }
            RATE => stream.rate.bits(),
            BASE_CREDITS => BaseCredits { tx: stream.credits, rx: self.settings.window }.bits(),
            BYTE_COUNT => stream.count_now(),
            CREDIT_ADDRESS => stream.credit_address,
            GRANT if stream.role == Role::Sender => Grant {
                taken: stream.sender.taken_credits(),
                epoch: stream.sender.epoch(),
                ..Grant::default()
            }
            .bits(),
            GRANT => stream.receiver.grant().bits(),
            STATUS => stream.status().bits(),
            MOVED => stream.bytes().0,
            TAKEN => stream.bytes().1,
            TASK_LIST => TaskList { tail: stream.tail, head }.bits(),
            TIMES => stream.times.bits(),
            CONTROL => stream.control.bits(),
            DROPPED => Dropped { late: stream.late, packets: stream.dropped }.bits(),
            PACKETS => stream.packets,
            LOST => stream.lost,
            _ => 0,
        }
    }

    pub fn write_global(&mut self, access: Access) {
        match access.at {
            APERTURE_BASE => self.aperture_base = access.into(self.aperture_base) & !(CREDIT - 1),
            EVENT if access.has_lower_half() => {
                let front = self.events.front().copied();
                if let Some(stream) = front.filter(|stream| *stream == access.into(0) as u16) {
                    self.events.pop_front();
                    self.stream(stream).announced = false;
                }
            }
            _ => {}
        }
    }

    /// Writes a stream's register. Grants and pauses are handled here, the returned commands by the function.
    pub fn write_stream(&mut self, number: u16, access: Access, now: Nanos) -> Command {
        let tasks = self.settings.tasks;
        let stream = self.stream(number);
        let mut command = Command::default();
        match access.at & (STRIDE - 1) {
            TX_ADDRESS => {
                let new = TxAddress::from_bits(access.into(stream.tx_address.bits()));
                stream.tx_address.address = new.address;
                if access.has_lower_half() {
                    command = Command { clear: new.clear, start: new.start, end: None };
                    stream.tx_address.pause = new.pause;
                    // A run that begins with this write takes the pause from it.
                    if !new.start {
                        stream.sender.pause(new.pause, now);
                        stream.receiver.pause(new.pause, now);
                    }
                }
            }
            RATE => stream.rate = Rate::from_bits(access.into(stream.rate.bits())),
            BASE_CREDITS => stream.credits = access.into(stream.credits.into()) as u32,
            BYTE_COUNT => {
                stream.count = access.into(stream.count);
                command.end = (stream.count != 0 && stream.is_running()).then_some(stream.count);
            }
            CREDIT_ADDRESS => stream.credit_address = access.into(stream.credit_address) & !7,
            GRANT => {
                let bits = access.into(stream.grant_half.into());
                stream.grant_half = bits as u32;
                if access.has_upper_half() && stream.role == Role::Sender {
                    let used = stream.sender.grant(Grant::from_bits(bits), now);
                    stream.late = stream.late.saturating_add(u32::from(!used));
                }
            }
            TASK_LIST => stream.tail = (access.into(stream.tail.into()) as u32).min(tasks),
            TIMES => stream.times = Times::from_bits(access.into(stream.times.bits())),
            CONTROL => stream.control = Control::from_bits(access.into(stream.control.bits())),
            _ => {}
        }
        self.circle.add(number);
        command
    }

    // Runs.

    /// Returns a stream to Init, with empty queues and counts of 0.
    pub fn clear(&mut self, number: u16) {
        let stream = self.stream(number);
        stream.run = stream.run.wrapping_add(1);
        stream.sender.clear();
        stream.receiver.clear();
        stream.role = Role::None;
        (stream.late, stream.dropped, stream.packets, stream.lost) = (0, 0, 0, 0);
    }

    /// Begins a run, whose role comes from the Tx Address.
    pub fn begin(&mut self, number: u16) -> Role {
        self.clear(number);
        let stream = self.stream(number);
        stream.role = if stream.tx_address.address == 0 { Role::Receiver } else { Role::Sender };
        stream.role
    }

    pub fn start_sender(&mut self, number: u16, plan: Result<sender::Plan, Error>, now: Nanos) {
        let stream = self.stream(number);
        stream.sender.start(plan, stream.tx_address.pause, now);
        if let Some(operator) = &mut stream.operator {
            operator.start();
        }
    }

    pub fn start_receiver(&mut self, number: u16, plan: Result<receiver::Plan, Error>, now: Nanos) {
        let stream = self.stream(number);
        stream.receiver.start(plan, stream.tx_address.pause, now);
    }

    /// Takes a write to the aperture. Returns the stream that received data.
    pub fn data(&mut self, offset: u64, bytes: &[u8], now: Nanos) -> Option<u16> {
        let (place, places) = (self.settings.place(), u64::from(self.settings.places));
        let at = offset / place;
        let number = u16::try_from(at / places).ok().filter(|number| *number < self.settings.streams)?;
        let stream = self.stream(number);
        if bytes.is_empty() {
            return None;
        }
        let arrival = match stream.role {
            Role::Receiver => stream.receiver.data(at % places, places, offset % place, bytes, now),
            Role::None | Role::Sender => Arrival::Late,
        };
        match arrival {
            Arrival::Late => {
                stream.late = stream.late.saturating_add(1);
                None
            }
            Arrival::Taken | Arrival::Failed => {
                self.circle.add(number);
                Some(number)
            }
        }
    }

    /// Ends a run of which a write could not be delivered.
    pub fn write_failed(&mut self, origin: Origin) {
        let Some(stream) = self.all.get_mut(usize::from(origin.stream)) else { return };
        if stream.run == origin.run {
            stream.fail(Error::Bus);
            self.circle.add(origin.stream);
        }
    }

    // Turns.

    /// Returns the next stream to look at.
    pub fn turn(&mut self, now: Nanos) -> Option<u16> {
        while let Some(number) = self.timers.expired(now) {
            let stream = self.stream(number);
            match stream.role {
                Role::None => {}
                Role::Sender => stream.sender.expire(now),
                Role::Receiver => stream.receiver.expire(now),
            }
            self.circle.add(number);
        }
        self.circle.next()
    }

    /// Puts a stream to rest until an event or its deadline.
    pub fn rest(&mut self, number: u16) {
        let deadline = self.stream(number).deadline();
        self.timers.set(number, deadline);
    }

    pub fn next_deadline(&self) -> Option<Nanos> {
        if self.circle.first().is_some() { Some(0) } else { self.timers.first() }
    }

    /// Returns the write of a stream's grant if one is due, or the interrupt that reports it to the driver.
    pub fn grant_action(&mut self, number: u16, now: Nanos) -> Option<Action> {
        let stream = self.stream(number);
        if stream.role != Role::Receiver {
            return None;
        }
        let tells_sender = stream.tells_sender();
        let grant = stream.receiver.next_grant(tells_sender, now)?;
        if !tells_sender {
            return stream.control.interrupt_at_grant.then_some(Action::Interrupt { stream: number });
        }
        let origin = Origin { stream: number, run: stream.run };
        Some(Action::Write {
            origin,
            address: stream.credit_address,
            data: grant.bits().to_le_bytes().into(),
        })
    }

    /// Returns the next write of a sender's data.
    pub fn data_action(&mut self, number: u16, now: Nanos) -> Option<Action> {
        let payload = u64::from(self.settings.payload);
        let stream = self.stream(number);
        if stream.role != Role::Sender {
            return None;
        }
        let (address, mut data) = stream.sender.next(now, payload)?;
        if let Some(operator) = &mut stream.operator {
            operator.update(&mut data);
        }
        Some(Action::Write { origin: Origin { stream: number, run: stream.run }, address, data })
    }

    /// Returns the interrupt that reports the end of a run.
    pub fn end_action(&mut self, number: u16) -> Option<Action> {
        let stream = self.stream(number);
        let ended = stream.sender.take_ended() | stream.receiver.take_ended();
        if !ended {
            return None;
        }
        let interrupts = stream.control.interrupt_at_end;
        if !core::mem::replace(&mut stream.announced, true) {
            self.events.push_back(number);
        }
        interrupts.then_some(Action::Interrupt { stream: number })
    }
}

/// Reads any bytes of BAR0, register by register.
pub(crate) fn read(offset: u64, bytes: &mut [u8], register: impl Fn(u64) -> u64) {
    let mut at = 0;
    while at < bytes.len() {
        let Some(place) = offset.checked_add(at as u64) else {
            bytes[at..].fill(0);
            return;
        };
        let value = register(place & !7).to_le_bytes();
        let skip = (place % 8) as usize;
        let count = (8 - skip).min(bytes.len() - at);
        bytes[at..at + count].copy_from_slice(&value[skip..skip + count]);
        at += count;
    }
}
