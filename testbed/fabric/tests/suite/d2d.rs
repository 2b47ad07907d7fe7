//! D2D streams on the fabric: SSDs and NICs next to their legacy functions, on buses and wires in virtual time.

use std::collections::BTreeMap;
use std::time::Duration;

use dcs_d2d::driver::{Report, Send, Write};
use dcs_d2d::register::{Error, Rate as Speed, State, Task, Times};
use dcs_d2d::uoe::{Rtp, Template};
use dcs_d2d::{nic, ssd};
use dcs_drivers::bus::Window;
use dcs_fabric::d2d::{self, D2dFunction, Nic, NicConfig, Ssd, SsdConfig};
use dcs_fabric::nic::{Config as LegacyConfig, Family, Nic as Legacy};
use dcs_fabric::nvme::{Config as NvmeConfig, Media, Namespace, Nvme};
use dcs_fabric::{Event, Fabric, Fault, FunctionId, Rate, Rule, Timing, When, Wire, WireEnd};
use dcs_testkit::Random;

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const BLOCK: u64 = 4096;

/// A machine with SSDs and NICs, whose wires end in the test's hands.
struct Machine {
    fabric: Fabric,
    ssds: Vec<D2dFunction>,
    nics: Vec<D2dFunction>,
    nvme: Vec<FunctionId>,
    media: Vec<Namespace>,
    wires: Vec<WireEnd>,
    /// Start times of streams, by port.
    started: BTreeMap<u16, Duration>,
    /// Frames that came out of the wires: time, wire, frame.
    frames: Vec<(Duration, usize, Vec<u8>)>,
    interrupts: Vec<(FunctionId, u16)>,
}

struct Plan {
    ssd: SsdConfig,
    nic: NicConfig,
    wire: Wire,
    link: Rate,
    ssds: usize,
    nics: usize,
    blocks: u64,
}

fn plan(streams: u16) -> Plan {
    let wire = Wire { rate: 10_000_000_000, ..Wire::default() };
    Plan {
        ssd: SsdConfig::new(streams),
        nic: NicConfig::new(streams),
        wire,
        link: Rate::GEN3_X8,
        ssds: 1,
        nics: 1,
        blocks: 512,
    }
}

impl Machine {
    fn new(plan: &Plan) -> Machine {
        let mut fabric = Fabric::new(Timing::default(), 1 << 20, 9);
        let (mut functions, mut nvme, mut media, mut wires) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for number in 0..plan.ssds {
            let namespace = Namespace::new(plan.blocks, 12);
            namespace.store(0, &Random(number as u64 + 1).bytes((plan.blocks * BLOCK) as usize));
            let config = NvmeConfig { namespaces: vec![namespace.clone()], ..NvmeConfig::default() };
            nvme.push(fabric.add_device("nvme", plan.link, Nvme::new(config)));
            let ssd = Ssd::new(plan.ssd, namespace.clone()).expect("a good one");
            functions.push((fabric.add_device("d2d ssd", plan.link, ssd), 0));
            media.push(namespace);
        }
        for number in 0..plan.nics {
            let legacy = Legacy::new(LegacyConfig::new(Family::Igb, [2, 0, 0, 0, 9, number as u8]));
            let nic = Nic::new(NicConfig { rate: plan.wire.rate, ..plan.nic }, legacy).expect("a good one");
            let registers = nic.registers();
            let function = fabric.add_device("d2d nic", plan.link, nic);
            let [_, end] = fabric.connect(plan.wire, [Some(function), None]);
            functions.push((function, registers));
            wires.push(end);
        }
        let mut ends = Vec::new();
        for (function, bar) in functions {
            fabric.set_bus_master(function, true);
            ends.push(D2dFunction::new(&mut fabric, function, bar).expect("a D2D function"));
        }
        let nics = ends.split_off(plan.ssds);
        let mut machine = Machine {
            fabric,
            ssds: ends,
            nics,
            nvme,
            media,
            wires,
            started: BTreeMap::new(),
            frames: Vec::new(),
            interrupts: Vec::new(),
        };
        machine.run(MS);
        machine
    }

    fn write(&mut self, end: D2dFunction, writes: Vec<Write>) {
        end.write(&mut self.fabric, &writes);
    }

    fn report(&mut self, end: D2dFunction, stream: u16) -> Report {
        end.report(&mut self.fabric, stream)
    }

    /// Starts a receiver, and then its sender.
    fn start(&mut self, from: D2dFunction, to: D2dFunction, stream: u16, send: Send) {
        d2d::start(&mut self.fabric, (from, stream), (to, stream), &send).expect("it runs");
    }

    /// Puts a template and tasks in place, and starts a stream from an SSD to a NIC.
    fn stream(&mut self, ssd: usize, nic: usize, stream: u16, tasks: &[Task], send: Send) {
        let (from, to) = (self.ssds[ssd], self.nics[nic]);
        self.write(to, to.layout.template(stream, &template(stream)));
        self.write(from, from.layout.tasks(stream, tasks).expect("room"));
        self.start(from, to, stream, send);
        self.started.insert(PORT + stream, self.fabric.now());
    }

    /// Advances time, and keeps frames and interrupts.
    fn run(&mut self, time: Duration) {
        let until = self.fabric.now() + time;
        while let Some(event) = self.fabric.step(Some(until)) {
            match event {
                Event::Frame { end, bytes } => {
                    let wire = self.wires.iter().position(|wire| *wire == end).expect("a wire");
                    self.frames.push((self.fabric.now(), wire, bytes));
                }
                Event::Interrupt { function, vector } => self.interrupts.push((function, vector)),
                event => panic!("{event:?}"),
            }
        }
    }

    fn content(&self, ssd: usize, tasks: &[Task]) -> Vec<u8> {
        let mut content = Vec::new();
        for task in tasks {
            let mut bytes = vec![0; task.blocks as usize * BLOCK as usize];
            self.media[ssd].load(task.lba * BLOCK, &mut bytes);
            content.extend(bytes);
        }
        content
    }

    /// Returns the payload of each wire's streams, by wire and port.
    fn payload(&self) -> BTreeMap<(usize, u16), Vec<u8>> {
        let mut payload: BTreeMap<_, Vec<u8>> = BTreeMap::new();
        for (_, wire, frame) in self.frames.iter().filter(|(_, _, frame)| frame[12..14] == [8, 0]) {
            let port = u16::from_be_bytes([frame[36], frame[37]]);
            payload.entry((*wire, port - PORT)).or_default().extend(&frame[42..]);
        }
        payload
    }

    fn d2d_nic(&mut self, nic: usize) -> &mut Nic<Legacy> {
        self.fabric.device(self.nics[nic].function)
    }
}

const PORT: u16 = 10_000;

fn template(stream: u16) -> Template {
    Template {
        mac_destination: [2, 0, 0, 0, 0, 2],
        mac_source: [2, 0, 0, 0, 9, 0],
        tag: None,
        service: 0,
        identification: 0,
        dont_fragment: true,
        ttl: 64,
        source: [10, 0, 0, 1],
        destination: [10, 0, 0, 2],
        source_port: 5004,
        destination_port: PORT + stream,
        rtp: None,
        payload: 1316,
    }
}

/// 7.82 Mb/s, the paper's video, in slots of a millisecond.
const VIDEO: Speed = Speed { bytes_per_second: 977_500, granularity_us: 1000 };
const ALL: [Task; 1] = [Task { lba: 0, blocks: 512 }];

#[test]
fn a_stream_takes_the_host_two_interrupts_and_no_memory() {
    let mut machine = Machine::new(&plan(1));
    let tasks = [Task { lba: 100, blocks: 50 }, Task { lba: 7, blocks: 30 }];
    let bytes = 80 * BLOCK - 5;
    machine.stream(0, 0, 0, &tasks, Send { bytes, rate: VIDEO, interrupt: true, ..Send::default() });
    let (ssd, nic) = (machine.ssds[0].function, machine.nics[0].function);
    machine.run(SECOND);
    assert_eq!(machine.payload()[&(0, 0)], machine.content(0, &tasks)[..bytes as usize]);
    assert_eq!(machine.interrupts, [(nic, 0x100), (ssd, 0)]);
    // Memory of the host was neither read nor written by a device; the NVMe function was not asked for
    // anything.
    assert_eq!(machine.fabric.traffic(ssd, machine.nvme[0]).bytes(), 0);
    let traffic = machine.fabric.host_memory_traffic();
    assert_eq!((traffic.reads, traffic.bytes_read, traffic.bytes_written), (0, 0, 0), "{traffic:?}");
    assert_eq!(machine.fabric.traffic(ssd, nic).bytes_written, bytes);
    for end in [machine.ssds[0], machine.nics[0]] {
        assert_eq!(machine.report(end, 0).status.state, State::Idle);
    }
}

/// Returns the lateness of each datagram against the due time of its last byte, in nanoseconds, sorted. Leaves out
/// the first 10 ms of each stream, in which all wait for their first reads.
fn deviations(machine: &Machine) -> Vec<u64> {
    let mut sent: BTreeMap<u16, u128> = BTreeMap::new();
    let mut all = Vec::new();
    for (time, _, frame) in &machine.frames {
        let port = u16::from_be_bytes([frame[36], frame[37]]);
        let bytes = sent.entry(port).or_default();
        *bytes += (frame.len() - 42) as u128;
        let slot = (*bytes * 1_000_000).div_ceil(977_500 * 1000) as u64 - 1;
        let due = machine.started[&port] + MS * slot as u32;
        assert!(*time > due, "before it was due");
        if slot >= 10 {
            all.push((*time - due).as_nanos() as u64);
        }
    }
    all.sort_unstable();
    all
}

#[test]
fn a_hundred_and_twenty_videos_leave_on_time_while_the_host_sleeps() {
    const STREAMS: u16 = 120;
    let mut machine = Machine::new(&Plan { blocks: 40, ..plan(STREAMS) });
    let tasks = [Task { lba: 0, blocks: 40 }];
    let send = Send { bytes: 40 * BLOCK, rate: VIDEO, ..Send::default() };
    for stream in 0..STREAMS {
        machine.stream(0, 0, stream, &tasks, send);
    }
    machine.run(SECOND);
    let payload = machine.payload();
    assert_eq!(payload.len(), STREAMS.into());
    assert!(payload.values().all(|bytes| *bytes == machine.content(0, &tasks)));
    assert!(machine.interrupts.is_empty());
    assert_eq!(machine.fabric.host_memory_traffic().bytes(), 0);
    let late = deviations(&machine);
    let [median, most_of_them, most] =
        [late.len() / 2, late.len() * 99 / 100, late.len() - 1].map(|at| late[at]);
    println!(
        "120 streams: datagrams later than due by {median} ns (median), {most_of_them} (99 %), {most} (most)"
    );
    assert!(most < 1_000_000, "less than a slot");
}

#[test]
fn a_pair_fills_its_wire() {
    for (rate, link) in [(10_000_000_000u64, Rate::GEN3_X8), (100_000_000_000, Rate { ps_per_byte: 32 })] {
        let mut plan = plan(8);
        plan.wire.rate = rate;
        plan.link = link;
        plan.ssd.media = Media { rate: 20_000_000_000, ..Media::default() };
        // A read takes up to 90 us: at 100 Gb/s, 1.1 MB of them are under way.
        plan.ssd.function = ssd::Config { read_ahead: 512 << 10, transfer: 64 << 10, ..plan.ssd.function };
        plan.ssd.function.window = 32;
        let mut machine = Machine::new(&plan);
        for stream in 0..8 {
            machine.stream(0, 0, stream, &ALL, Send::default());
        }
        machine.run(MS / 4);
        machine.frames.clear();
        let span = if rate > 10_000_000_000 { MS / 2 } else { 4 * MS };
        machine.run(span);
        let bits: u64 = machine.frames.iter().map(|(_, _, frame)| (frame.len() as u64 + 24) * 8).sum();
        let share = bits as f64 / (rate as f64 * span.as_secs_f64());
        println!("{} Gb/s: {:.4} of the wire", rate / 1_000_000_000, share);
        assert!(share > 0.995, "{share}");
    }
}

#[test]
fn four_thousand_streams_of_two_ssds_leave_by_two_nics() {
    const STREAMS: u16 = 2_000;
    let mut plan = Plan { ssds: 2, nics: 2, blocks: 8, ..plan(STREAMS) };
    plan.ssd.function =
        ssd::Config { tasks: 2, read_ahead: 16 << 10, transfer: 8 << 10, ..plan.ssd.function };
    plan.ssd.function.outstanding = 1_000;
    plan.nic.function = nic::Config { window: 8, ..plan.nic.function };
    // 4,000 videos are 31 Gb/s.
    plan.wire.rate = 40_000_000_000;
    plan.link = Rate::GEN3_X16;
    plan.ssd.media.rate = 10_000_000_000;
    let mut machine = Machine::new(&plan);
    let tasks = [Task { lba: 3, blocks: 3 }, Task { lba: 0, blocks: 1 }];
    let send = Send { bytes: 4 * BLOCK - 100, rate: VIDEO, ..Send::default() };
    for stream in 0..STREAMS {
        for side in 0..2 {
            // Half of each SSD's streams leave by either NIC.
            let nic = (side + usize::from(stream) % 2) % 2;
            machine.stream(side, nic, stream, &tasks, send);
        }
    }
    machine.run(SECOND);
    let payload = machine.payload();
    assert_eq!(payload.len(), 2 * usize::from(STREAMS));
    for ((wire, stream), bytes) in payload {
        let ssd = (wire + usize::from(stream) % 2) % 2;
        assert_eq!(bytes, machine.content(ssd, &tasks)[..4 * BLOCK as usize - 100], "{wire} {stream}");
    }
    assert!(machine.interrupts.is_empty());
}

/// An IPv4 packet with UDP, in frames of at most this many bytes of IP payload.
fn datagram(stream: u16, payload: &[u8], identification: u16, largest: usize) -> Vec<Vec<u8>> {
    let sum = |bytes: &[u8]| {
        let mut sum: u32 =
            bytes.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !(sum as u16)
    };
    // Without a checksum.
    let mut udp = [5004u16, PORT + stream, 8 + payload.len() as u16, 0].map(u16::to_be_bytes).concat();
    udp.extend(payload);
    let pieces: Vec<&[u8]> = udp.chunks(largest).collect();
    let mut frames = Vec::new();
    for (at, piece) in pieces.iter().enumerate() {
        let more = if at + 1 < pieces.len() { 0x2000 } else { 0 };
        let offset = (at * largest / 8) as u16;
        let mut ip =
            [0x4500, 20 + piece.len() as u16, identification, more | offset, 0x0911, 0, 0x0a00, 1, 0x0a00, 2]
                .map(u16::to_be_bytes)
                .concat();
        let checksum = sum(&ip);
        ip[10..12].copy_from_slice(&checksum.to_be_bytes());
        let mut frame = vec![2, 0, 0, 0, 9, 0, 2, 0, 0, 0, 0, 2, 8, 0];
        frame.extend(ip);
        frame.extend(*piece);
        frames.push(frame);
    }
    frames
}

#[test]
fn what_a_nic_receives_is_stored_and_the_rest_is_the_legacy_functions() {
    let mut machine = Machine::new(&plan(1));
    let tasks = [Task { lba: 9, blocks: 20 }, Task { lba: 300, blocks: 20 }];
    let (ssd, nic) = (machine.ssds[0], machine.nics[0]);
    let here = Template { mac_destination: [2, 0, 0, 0, 9, 0], ..template(0) };
    machine.write(nic, nic.layout.template(0, &here));
    machine.write(ssd, ssd.layout.tasks(0, &tasks).unwrap());
    let bytes = 100_000;
    machine.start(nic, ssd, 0, Send { bytes, ..Send::default() });
    machine.run(MS);
    let data = Random(77).bytes(bytes as usize);
    let wire = machine.wires[0];
    for (at, payload) in data.chunks(4_000).enumerate() {
        let mut fragments = datagram(0, payload, at as u16, 1480);
        fragments.rotate_left(at % 3);
        for frame in fragments {
            machine.fabric.send(wire, frame);
        }
        // Another port: the legacy NIC, which is not set up, drops and counts it.
        machine.fabric.send(wire, datagram(9, &[1; 100], 500, 1480).remove(0));
        machine.run(MS / 10);
    }
    machine.run(10 * MS);
    assert_eq!(machine.content(0, &tasks)[..bytes as usize], data);
    let end = bytes as usize;
    assert!(machine.content(0, &tasks)[end..end.next_multiple_of(4096)].iter().all(|byte| *byte == 0));
    for end in [ssd, nic] {
        assert_eq!(machine.report(end, 0).status.state, State::Idle);
    }
    assert_eq!(machine.d2d_nic(0).legacy().counts().filtered, 25);
    assert_eq!(machine.fabric.host_memory_traffic().bytes_written, 0);
}

#[test]
fn a_nic_feeds_another_as_in_the_papers_prototype() {
    let mut machine = Machine::new(&Plan { nics: 2, ..plan(1) });
    let (from, to) = (machine.nics[0], machine.nics[1]);
    let rtp = Some(Rtp { kind: 33, sequence: 1, timestamp: 0, ssrc: 1 });
    machine.write(from, from.layout.template(0, &Template { mac_destination: [0; 6], ..template(0) }));
    machine.write(to, to.layout.template(0, &Template { rtp, ..template(0) }));
    machine.start(from, to, 0, Send::default());
    machine.run(MS);
    let mut sent = Vec::new();
    for at in 0..50u8 {
        let frame = datagram(0, &[at; 1316], at.into(), 1480).remove(0);
        machine.fabric.send(machine.wires[0], frame);
        sent.extend([at; 1316]);
        machine.run(Duration::from_micros(20));
    }
    machine.run(MS);
    let came: Vec<u8> = machine.frames.iter().flat_map(|(_, _, frame)| frame[54..].to_vec()).collect();
    assert_eq!(came, sent);
    assert!(machine.frames.iter().all(|(_, wire, _)| *wire == 1));
}

/// Runs a stream, with a fault that is injected at one of the functions while it runs, and a second stream
/// between other functions. Returns the errors of the first stream's sender and receiver.
fn with_fault(
    at: fn(&Machine) -> FunctionId,
    rule: impl Fn(&Machine) -> Rule,
) -> (Option<Error>, Option<Error>, Machine) {
    let mut machine = Machine::new(&Plan { ssds: 2, nics: 2, ..plan(2) });
    let times = Times { stall_us: 20_000, refresh_us: 2_000 };
    let send = Send {
        bytes: 500 * BLOCK,
        rate: Speed { bytes_per_second: 20_000_000, ..VIDEO },
        times,
        ..Send::default()
    };
    machine.stream(0, 0, 0, &ALL, send);
    machine.stream(1, 1, 1, &ALL, send);
    machine.run(10 * MS);
    let rule = rule(&machine);
    let function = at(&machine);
    machine.fabric.inject(function, rule);
    machine.run(SECOND);
    let (ssd, nic) = (machine.ssds[0], machine.nics[0]);
    let errors = (machine.report(ssd, 0).status.error, machine.report(nic, 0).status.error);
    // Data sent are the start of the contents; the other stream is complete.
    let content = machine.content(0, &ALL);
    let payload = machine.payload();
    assert!(content.starts_with(&payload[&(0, 0)]));
    assert_eq!(payload[&(1, 1)], machine.content(1, &ALL)[..500 * BLOCK as usize]);
    let other = machine.ssds[1];
    assert_eq!(machine.report(other, 1).status.state, State::Idle);
    (errors.0, errors.1, machine)
}

fn everywhere() -> Window {
    Window { address: 0, length: 1 << 60 }
}

#[test]
fn faults_end_their_stream_with_a_name_and_no_other() {
    let ssd = |machine: &Machine| machine.ssds[0].function;
    let nic = |machine: &Machine| machine.nics[0].function;
    let lost = |_: &Machine| Rule::once(When::Write(everywhere()), Fault::DropTransaction);
    let (sender, receiver, _) = with_fault(ssd, lost);
    assert_eq!((sender, receiver), (Some(Error::Peer), Some(Error::Sequence)), "a data write is lost");
    let (sender, receiver, mut machine) = with_fault(nic, lost);
    assert_eq!((sender, receiver), (None, None), "a grant is lost");
    let end = machine.ssds[0];
    assert_eq!(machine.report(end, 0).status.state, State::Idle);
    let late = |_: &Machine| Rule::always(When::Write(everywhere()), Fault::DelayTransaction(MS));
    assert_eq!(with_fault(nic, late).0, None, "grants are late");
    let bad = |_: &Machine| Rule::once(When::Io(None), Fault::BadStatus(0x281));
    assert_eq!(with_fault(ssd, bad).0, Some(Error::Read), "the medium fails");
    let stuck = |_: &Machine| Rule::once(When::Io(None), Fault::LoseCommand);
    assert_eq!(with_fault(ssd, stuck).0, Some(Error::Stalled), "the medium is silent");
}

#[test]
fn a_nic_that_hangs_or_goes_or_loses_its_link_ends_its_streams() {
    for (name, error) in [("hang", Error::Stalled), ("remove", Error::Stalled), ("link", Error::Peer)] {
        let mut machine = Machine::new(&plan(1));
        let times = Times { stall_us: 20_000, refresh_us: 2_000 };
        let send = Send { bytes: 512 * BLOCK, rate: VIDEO, times, interrupt: true, ..Send::default() };
        machine.stream(0, 0, 0, &ALL, send);
        machine.run(10 * MS);
        let (ssd, nic) = (machine.ssds[0], machine.nics[0]);
        match name {
            "hang" => machine.fabric.strike(nic.function, Fault::HangHard),
            "remove" => machine.fabric.remove(nic.function),
            _ => machine.fabric.set_carrier(machine.wires[0], false),
        }
        machine.run(SECOND);
        assert_eq!(machine.report(ssd, 0).status.error, Some(error), "{name}");
        assert!(machine.interrupts.contains(&(ssd.function, 0)), "{name}: it is said");
        if name == "link" {
            assert_eq!(machine.report(nic, 0).status.error, Some(Error::Link));
        }
        // After a reset of the function, or with a link, it runs as before.
        if name == "link" {
            machine.fabric.set_carrier(machine.wires[0], true);
        } else {
            machine.fabric.reset(nic.function);
            machine.fabric.set_bus_master(nic.function, true);
        }
        machine.run(MS);
        machine.frames.clear();
        machine.stream(0, 0, 0, &ALL, Send { bytes: 512 * BLOCK, ..Send::default() });
        machine.run(SECOND);
        assert_eq!(machine.payload()[&(0, 0)], machine.content(0, &ALL), "{name}");
    }
}
