//! An SSD and a NIC in virtual time: a bus that may lose, delay and double, a medium, a wire. Everything
//! random comes from a seed.

use dcs_d2d::driver::{Layout, Place, Receive, Report, Send, Write};
use dcs_d2d::register::{self, Grant, Rate, Status, Task};
use dcs_d2d::ssd::MediumError;
use dcs_d2d::uoe::Template;
use dcs_d2d::{Action, Nanos, Nic, Origin, Ssd, Token, nic, ssd};
use dcs_testkit::Random;
use std::collections::{BTreeMap, BTreeSet};

pub const US: Nanos = 1_000;
pub const MS: Nanos = 1_000_000;
pub const SECOND: Nanos = 1_000_000_000;

const SSD_BAR: u64 = 0x1_0000_0000;
const NIC_BAR: u64 = 0x2_0000_0000;
const SSD_APERTURE: u64 = 0x10_0000_0000;
const NIC_APERTURE: u64 = 0x20_0000_0000;

/// The two functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Ssd,
    Nic,
}

/// Chances of what goes wrong, in thousandths, and the longest delays.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    pub grant_lost: u32,
    pub grant_doubled: u32,
    pub grant_delay: Nanos,
    pub data_lost: u32,
    pub data_doubled: u32,
    pub data_delay: Nanos,
    pub read_fails: u32,
    pub store_fails: u32,
    pub write_refused: u32,
}

#[derive(Debug)]
enum Event {
    /// A write to either function's BARs.
    Write(u64, Vec<u8>),
    Refused(End, Origin),
    Read(Token, Result<Vec<u8>, MediumError>),
    Stored(Token, u64, Vec<u8>, Result<(), MediumError>),
}

pub struct Rig {
    pub ssd: Ssd,
    pub nic: Nic,
    pub now: Nanos,
    pub medium: Vec<u8>,
    pub block: usize,
    pub faults: Faults,
    pub random: Random,
    /// Time of a read or a store, of a byte on the wire in picoseconds, of a write's way.
    pub medium_time: Nanos,
    pub wire_ps: u64,
    pub bus_time: Nanos,
    /// Frames that left, by stream, with their time.
    pub frames: Vec<(Nanos, Option<u16>, Vec<u8>)>,
    /// What left of each run of the NIC's: by stream and epoch.
    pub sent: BTreeMap<(u16, u16), Vec<u8>>,
    pub interrupts: Vec<(Nanos, End, u16)>,
    /// Data writes that left the SSD: time, stream, bytes.
    pub writes: Vec<(Nanos, u16, usize)>,
    pub grants: u64,
    /// Polls of both functions.
    pub polls: u64,
    events: BTreeMap<(Nanos, u64), Event>,
    sequence: u64,
    data_order: [Nanos; 2],
    wire_free: Nanos,
    pub headers: usize,
}

impl Rig {
    pub fn new(ssd: ssd::Config, nic: nic::Config, seed: u64) -> Rig {
        let mut random = Random(seed);
        let medium = random.bytes((ssd.blocks << ssd.block_shift) as usize);
        let mut rig = Rig {
            ssd: Ssd::new(ssd).expect("a good one"),
            nic: Nic::new(nic).expect("a good one"),
            now: 0,
            medium,
            block: 1 << ssd.block_shift,
            faults: Faults::default(),
            random,
            medium_time: 80 * US,
            wire_ps: 800,
            bus_time: 500,
            frames: Vec::new(),
            sent: BTreeMap::new(),
            interrupts: Vec::new(),
            writes: Vec::new(),
            grants: 0,
            polls: 0,
            events: BTreeMap::new(),
            sequence: 0,
            data_order: [0; 2],
            wire_free: 0,
            headers: 42,
        };
        for (end, base) in [(End::Ssd, SSD_APERTURE), (End::Nic, NIC_APERTURE)] {
            rig.write(end, Write { offset: register::APERTURE_BASE, value: base });
        }
        rig
    }

    /// Powers the NIC off and on.
    pub fn replace_nic(&mut self, config: nic::Config) {
        self.nic = Nic::new(config).expect("a good one");
        self.write(End::Nic, Write { offset: register::APERTURE_BASE, value: NIC_APERTURE });
    }

    // Registers.

    pub fn write(&mut self, end: End, write: Write) {
        let bytes = write.value.to_le_bytes();
        match end {
            End::Ssd => self.ssd.write(write.offset, &bytes, self.now),
            End::Nic => self.nic.write(write.offset, &bytes, self.now),
        }
    }

    pub fn write_all(&mut self, end: End, writes: impl IntoIterator<Item = Write>) {
        for write in writes {
            self.write(end, write);
        }
    }

    pub fn read(&self, end: End, offset: u64) -> u64 {
        let mut bytes = [0; 8];
        match end {
            End::Ssd => self.ssd.read(offset, &mut bytes),
            End::Nic => self.nic.read(offset, &mut bytes),
        }
        u64::from_le_bytes(bytes)
    }

    pub fn layout(&self, end: End) -> Layout {
        Layout::from_values(Layout::READS.map(|offset| self.read(end, offset))).expect("a D2D function")
    }

    pub fn report(&self, end: End, stream: u16) -> Report {
        let reads = self.layout(end).report_reads(stream);
        Report::from_values(reads.map(|offset| self.read(end, offset)))
    }

    pub fn status(&self, end: End, stream: u16) -> Status {
        self.report(end, stream).status
    }

    pub fn place(&self, end: End, stream: u16) -> Result<Place, Status> {
        let layout = self.layout(end);
        layout.place(layout.place_reads(stream).map(|offset| self.read(end, offset)))
    }

    /// Address of a sender's Grant register.
    pub fn grants_to(&self, end: End, stream: u16) -> u64 {
        let bar = if end == End::Ssd { SSD_BAR } else { NIC_BAR };
        bar + self.layout(end).register(stream, register::GRANT)
    }

    // Streams from the SSD to the NIC.

    /// Puts template and tasks in place.
    pub fn prepare(&mut self, stream: u16, template: &Template, tasks: &[Task]) {
        self.headers = if template.rtp.is_some() { 54 } else { 42 };
        let writes = self.layout(End::Nic).template(stream, template);
        self.write_all(End::Nic, writes);
        let writes = self.layout(End::Ssd).tasks(stream, tasks).expect("room");
        self.write_all(End::Ssd, writes);
    }

    /// Starts the NIC's end, then the SSD's.
    pub fn start(&mut self, stream: u16, bytes: u64, send: &Send) {
        let receive = Receive {
            bytes,
            grants_to: self.grants_to(End::Ssd, stream),
            interrupt: send.interrupt,
            ..Receive::default()
        };
        self.receive(End::Nic, stream, &receive);
        let place = self.place(End::Nic, stream).expect("it runs");
        self.send(End::Ssd, stream, &place, &Send { bytes, ..*send });
    }

    pub fn receive(&mut self, end: End, stream: u16, receive: &Receive) {
        let writes = self.layout(end).receive(stream, receive);
        self.write_all(end, writes);
    }

    pub fn send(&mut self, end: End, stream: u16, place: &Place, send: &Send) {
        let writes = self.layout(end).send(stream, place, send);
        self.write_all(end, writes);
    }

    /// What the tasks name.
    pub fn content(&self, tasks: &[Task]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for task in tasks {
            let start = task.lba as usize * self.block;
            bytes.extend(&self.medium[start..start + task.blocks as usize * self.block]);
        }
        bytes
    }

    /// What left the NIC in the stream's last run.
    pub fn received(&self, stream: u16) -> Vec<u8> {
        let last = self.sent.range((stream, 0)..=(stream, u16::MAX)).next_back();
        last.map_or(Vec::new(), |(_, bytes)| bytes.clone())
    }

    // Time.

    fn chance(&mut self, permille: u32) -> bool {
        self.random.chance(permille)
    }

    fn delay(&mut self, most: Nanos) -> Nanos {
        self.random.below(most)
    }

    fn schedule(&mut self, at: Nanos, event: Event) {
        self.sequence += 1;
        self.events.insert((at, self.sequence), event);
    }

    fn post(&mut self, from: End, origin: Origin, address: u64, data: Vec<u8>) {
        let faults = self.faults;
        if self.chance(faults.write_refused) {
            return self.schedule(self.now + self.bus_time, Event::Refused(from, origin));
        }
        let is_grant = address < SSD_APERTURE;
        if is_grant {
            self.grants += 1;
            if self.chance(faults.grant_lost) {
                return;
            }
            for _ in 0..1 + u64::from(self.chance(faults.grant_doubled)) {
                let at = self.now + self.bus_time + self.delay(faults.grant_delay);
                self.schedule(at, Event::Write(address, data.clone()));
            }
            return;
        }
        if from == End::Ssd {
            self.writes.push((self.now, origin.stream, data.len()));
        }
        if self.chance(faults.data_lost) {
            return;
        }
        for _ in 0..1 + u64::from(self.chance(faults.data_doubled)) {
            // Posted writes keep their order.
            let order = self.data_order[from as usize];
            let at = order.max(self.now + self.bus_time + self.delay(faults.data_delay));
            self.data_order[from as usize] = at;
            self.schedule(at, Event::Write(address, data.clone()));
        }
    }

    /// Carries out an action of a function's.
    pub fn act(&mut self, from: End, action: Action) {
        let faults = self.faults;
        let done = self.now + self.medium_time;
        match action {
            Action::Read { token, lba, blocks } => {
                let start = lba as usize * self.block;
                let bytes = self.medium[start..start + blocks as usize * self.block].to_vec();
                let result = if self.chance(faults.read_fails) { Err(MediumError) } else { Ok(bytes) };
                let done = done + self.delay(self.medium_time);
                self.schedule(done, Event::Read(token, result));
            }
            Action::Store { token, lba, data } => {
                assert_eq!(data.len() % self.block, 0, "whole blocks");
                let result = if self.chance(faults.store_fails) { Err(MediumError) } else { Ok(()) };
                self.schedule(done, Event::Stored(token, lba, data, result));
            }
            Action::Write { origin, address, data } => self.post(from, origin, address, data),
            Action::Interrupt { stream } => self.interrupts.push((self.now, from, stream)),
            Action::Legacy { frame } => self.frames.push((self.now, None, frame)),
        }
    }

    fn happen(&mut self, event: Event) {
        let now = self.now;
        match event {
            Event::Write(address, data) => match address {
                NIC_APERTURE.. => self.nic.data(address - NIC_APERTURE, &data, now),
                SSD_APERTURE.. => self.ssd.data(address - SSD_APERTURE, &data, now),
                NIC_BAR.. => self.nic.write(address - NIC_BAR, &data, now),
                _ => self.ssd.write(address - SSD_BAR, &data, now),
            },
            Event::Refused(End::Ssd, origin) => self.ssd.write_failed(origin),
            Event::Refused(End::Nic, origin) => self.nic.write_failed(origin),
            Event::Read(token, data) => self.ssd.read_done(token, data, now),
            Event::Stored(token, lba, data, result) => {
                if result.is_ok() {
                    let start = lba as usize * self.block;
                    self.medium[start..start + data.len()].copy_from_slice(&data);
                }
                self.ssd.store_done(token, result, now);
            }
        }
    }

    /// Lets everything happen that can at this time.
    fn settle(&mut self) {
        loop {
            self.polls += 1;
            if let Some(action) = self.ssd.poll(self.now) {
                self.act(End::Ssd, action);
            } else if let Some(action) = self.nic.poll(self.now) {
                self.act(End::Nic, action);
            } else if self.wire_free <= self.now
                && let Some(frame) = self.nic.next_frame(self.now)
            {
                // Preamble, check sequence and gap.
                let bytes = frame.bytes.len() as u64 + 24;
                self.wire_free = self.now + (bytes * self.wire_ps).div_ceil(1000);
                if let Some(stream) = frame.stream {
                    let epoch = self.status(End::Nic, stream).epoch;
                    self.sent.entry((stream, epoch)).or_default().extend(&frame.bytes[self.headers..]);
                }
                self.frames.push((self.now, frame.stream, frame.bytes));
            } else {
                return;
            }
        }
    }

    /// Goes on until nothing is left to happen, or until `end`. True: nothing is left.
    pub fn run(&mut self, end: Nanos) -> bool {
        loop {
            self.settle();
            let wire = Some(self.wire_free).filter(|free| *free > self.now);
            let event = self.events.first_key_value().map(|((at, _), _)| *at);
            let times = [self.ssd.next_deadline(), self.nic.next_deadline(), event, wire];
            let Some(next) = times.into_iter().flatten().min() else { return true };
            if next > end {
                self.now = end;
                return false;
            }
            self.now = self.now.max(next);
            while let Some(entry) = self.events.first_entry().filter(|entry| entry.key().0 <= self.now) {
                let event = entry.remove();
                self.happen(event);
            }
        }
    }

    /// Passes the NIC's grant on to the SSD, as a driver does where there is no Tx Credit Update Address.
    pub fn pass_grant(&mut self, stream: u16) {
        let grant = self.read(End::Nic, self.layout(End::Nic).register(stream, register::GRANT));
        let write = self.layout(End::Ssd).grant(stream, Grant::from_bits(grant));
        self.write(End::Ssd, write);
    }
}

/// A template that can be, for a stream.
pub fn template(stream: u16, payload: u16) -> Template {
    let [high, low] = stream.to_be_bytes();
    Template {
        mac_destination: [0x02, 0, 0, 0, high, low],
        mac_source: [0x02, 0, 0, 1, 0, 1],
        tag: None,
        service: 0xb8,
        identification: 0xfffe,
        dont_fragment: true,
        ttl: 64,
        source: [10, 0, 0, 1],
        destination: [10, 1, high, low],
        source_port: 5004,
        destination_port: 6000 + stream,
        rtp: None,
        payload,
    }
}

/// This many bytes a second in slots of this many microseconds.
pub fn rate(bytes_per_second: u64, granularity_us: u32) -> Rate {
    Rate { bytes_per_second, granularity_us }
}

/// The streams that frames belong to.
pub fn streams_of(frames: &[(Nanos, Option<u16>, Vec<u8>)]) -> BTreeSet<u16> {
    frames.iter().filter_map(|(_, stream, _)| *stream).collect()
}
