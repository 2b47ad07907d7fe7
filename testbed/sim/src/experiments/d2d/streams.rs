//! Streams from an SSD to a NIC: their share of the wire, and their punctuality.

use dcs_d2d::driver::Send;
use dcs_d2d::register::{Rate as Speed, Task};
use dcs_d2d::uoe::Template;
use dcs_engine::Nanos;
use dcs_fabric::d2d::{self, D2dFunction, NicConfig, Ssd, SsdConfig};
use dcs_fabric::nic::{Config, Family, Nic};
use dcs_fabric::nvme::{Media, Namespace};
use dcs_fabric::{Event, Fabric, FunctionId, Rate, Timing, Wire};
use dcs_testkit::Random;
use std::collections::BTreeMap;
use std::time::Duration;

/// Throughput of streams at full speed.
#[derive(Clone, Copy, Debug)]
pub struct Throughput {
    /// Rate of the wire in Gb/s.
    pub gbps: u64,
    /// Bits on the wire, with preambles, check sequences and gaps.
    pub bits: u64,
    /// Time for these bits.
    pub time: Nanos,
}

impl Throughput {
    /// Returns the share of the wire.
    pub fn share(&self) -> f64 {
        self.bits as f64 / (self.gbps * self.time) as f64
    }
}

/// Videos of 7.82 Mb/s on a wire of 10 Gb/s.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Number of streams.
    pub streams: u16,
    /// Datagrams examined.
    pub datagrams: usize,
    /// Median of the datagrams' lateness against the due time of their last byte.
    pub median: Nanos,
    /// 99th percentile of the lateness.
    pub most_of_them: Nanos,
    /// Largest lateness.
    pub most: Nanos,
    /// Interrupts of both functions in that time.
    pub interrupts: u64,
    /// Bytes that devices wrote to host memory or read from there.
    pub host_bytes: u64,
    /// Time over which both were counted.
    pub seconds: f64,
}

const BLOCKS: u64 = 512;
const PORT: u16 = 10_000;
const HEADERS: usize = 42;
/// Speed of a video, in slots of a millisecond.
const VIDEO: Speed = Speed { bytes_per_second: 977_500, granularity_us: 1000 };
const SLOT: Nanos = 1_000_000;
/// Packets of a video per second.
pub const PACKETS_A_SECOND: f64 = VIDEO.bytes_per_second as f64 / 1316.0;
/// Bytes of the frame of a packet.
pub const PACKET: usize = HEADERS + 1316;
/// Slots to leave out at the start, when all streams wait for their first reads.
const WARM_UP: Nanos = 20;

/// An SSD, a NIC, and the far end of the NIC's wire.
struct Pair {
    fabric: Fabric,
    ssd: D2dFunction,
    nic: D2dFunction,
    content: Vec<u8>,
    frames: Vec<(Nanos, Vec<u8>)>,
    interrupts: u64,
}

impl Pair {
    fn new(streams: u16, gbps: u64, media: Media, link: Rate, read_ahead: u32) -> Pair {
        let mut fabric = Fabric::new(Timing::default(), 1 << 20, 1);
        let content = Random(7).bytes((BLOCKS * 4096) as usize);
        let namespace = Namespace::new(BLOCKS, 12);
        namespace.store(0, &content);
        let mut config = SsdConfig { media, ..SsdConfig::new(streams) };
        (config.function.read_ahead, config.function.transfer) = (read_ahead, (read_ahead / 2).min(64 << 10));
        config.function.outstanding = 4096;
        config.function.tasks = 1;
        let ssd = Ssd::new(config, namespace).expect("the set-up is sound");
        let ssd = fabric.add_device("ssd", link, ssd);
        let rate = gbps * 1_000_000_000;
        let legacy = Nic::new(Config::new(Family::Igb, [2, 0, 0, 0, 0, 1]));
        let nic = d2d::Nic::new(NicConfig { rate, ..NicConfig::new(streams) }, legacy).expect("sound");
        let bar = nic.registers();
        let nic = fabric.add_device("nic", link, nic);
        fabric.connect(Wire { rate, ..Wire::default() }, [Some(nic), None]);
        let mut end = |function: FunctionId, bar| {
            fabric.set_bus_master(function, true);
            D2dFunction::new(&mut fabric, function, bar).expect("a D2D function")
        };
        let (ssd, nic) = (end(ssd, 0), end(nic, bar));
        let mut pair = Pair { fabric, ssd, nic, content, frames: Vec::new(), interrupts: 0 };
        pair.run(1_000_000);
        pair
    }

    fn start(&mut self, stream: u16, rate: Speed) {
        let template = Template {
            mac_destination: [2, 0, 0, 0, 0, 2],
            mac_source: [2, 0, 0, 0, 0, 1],
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
        };
        let (ssd, nic) = (self.ssd, self.nic);
        nic.write(&mut self.fabric, &nic.layout.template(stream, &template));
        let tasks = ssd.layout.tasks(stream, &[Task { lba: 0, blocks: BLOCKS as u32 }]).expect("room");
        ssd.write(&mut self.fabric, &tasks);
        let send = Send { rate, bytes: BLOCKS * 4096, ..Send::default() };
        d2d::start(&mut self.fabric, (ssd, stream), (nic, stream), &send).expect("it starts");
    }

    fn run(&mut self, time: Nanos) {
        let until = self.fabric.now() + Duration::from_nanos(time);
        while let Some(event) = self.fabric.step(Some(until)) {
            match event {
                Event::Frame { bytes, .. } => self.frames.push((self.fabric.now().as_nanos() as u64, bytes)),
                Event::Interrupt { .. } => self.interrupts += 1,
                _ => {}
            }
        }
    }
}

fn port(frame: &[u8]) -> u16 {
    u16::from_be_bytes([frame[36], frame[37]])
}

/// Runs eight streams at full speed.
pub fn throughput(gbps: u64) -> Throughput {
    // Fast enough: links of 31 GB/s, a medium of 20 GB/s, and as much read-ahead as its 80 us need.
    let media = Media { rate: 20_000_000_000, ..Media::default() };
    let mut pair = Pair::new(8, gbps, media, Rate { ps_per_byte: 32 }, 512 << 10);
    for stream in 0..8 {
        pair.start(stream, Speed::default());
    }
    pair.run(200_000);
    pair.frames.clear();
    let time = 40_000_000 / gbps;
    pair.run(time);
    let bits = pair.frames.iter().map(|(_, frame)| (frame.len() as u64 + 24) * 8).sum();
    Throughput { gbps, bits, time }
}

/// Runs this many videos for that many milliseconds.
///
/// # Panics
///
/// If a byte is wrong, or arrives before it is due.
pub fn pace(streams: u16, milliseconds: u64) -> Pace {
    // 16 KiB are 16 ms of video; the first reads of 1,000 of them take the medium 7 ms.
    let mut pair = Pair::new(streams, 10, Media::default(), Rate::GEN3_X8, 16 << 10);
    let mut started = BTreeMap::new();
    for stream in 0..streams {
        pair.start(stream, VIDEO);
        started.insert(PORT + stream, pair.fabric.now().as_nanos() as u64);
    }
    pair.run((milliseconds + WARM_UP) * SLOT);
    let mut sent: BTreeMap<u16, usize> = BTreeMap::new();
    let mut late = Vec::new();
    for (time, frame) in &pair.frames {
        let position = sent.entry(port(frame)).or_default();
        let payload = &frame[HEADERS..];
        assert_eq!(*payload, pair.content[*position..][..payload.len()], "a byte was wrong");
        *position += payload.len();
        let bytes = *position as u64 * 1_000_000;
        let slot = bytes.div_ceil(VIDEO.bytes_per_second * u64::from(VIDEO.granularity_us)) - 1;
        let due = started[&port(frame)] + slot * SLOT;
        assert!(*time > due, "before it was due");
        if slot >= WARM_UP {
            late.push(time - due);
        }
    }
    late.sort_unstable();
    let host = pair.fabric.host_memory_traffic();
    let [median, most_of_them, most] =
        [late.len() / 2, late.len() * 99 / 100, late.len() - 1].map(|at| late[at]);
    let (datagrams, interrupts) = (late.len(), pair.interrupts);
    let seconds = pair.fabric.now().as_secs_f64();
    Pace { streams, datagrams, median, most_of_them, most, interrupts, host_bytes: host.bytes(), seconds }
}
