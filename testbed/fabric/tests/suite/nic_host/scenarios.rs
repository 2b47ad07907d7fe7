//! Scenarios that a NIC's driver has to pass on any bus, with any NIC, over a [`World`].

use super::packets::{KINDS, Kind};
use dcs_drivers::bus::{Bus, ReadDone, Region, Tag, Window};
use dcs_drivers::nic::{
    Checksum, Config, Frame, Memory, Nic, Offload, Received, ResetCause, Sent, State, TransmitError,
    Transport,
};
pub use dcs_testkit::Random;
use std::collections::BTreeMap;

/// A bus with a NIC on it, a wire, and time.
pub trait World {
    /// Returns the NIC's registers, and other configuration that depends on the world.
    fn config(&self) -> Config;
    /// Returns all of the card's own memory: at least 8 MiB.
    fn memory(&mut self) -> Region;
    /// Lends the card's bus.
    fn bus(&mut self, with: &mut dyn FnMut(&mut dyn Bus));
    /// Returns the time in nanoseconds.
    fn now(&self) -> u64;
    /// Advances time to the next event, at most to `until`.
    fn advance(&mut self, until: Option<u64>) -> Option<ReadDone>;
    /// Sends a frame to the NIC.
    fn to_wire(&mut self, frame: &[u8]);
    /// Returns the next frame that the NIC has sent.
    fn next_from_wire(&mut self) -> Option<Vec<u8>>;
    /// Returns true if the NIC loses PSH and FIN of a frame that it segments.
    fn loses_flags(&self) -> bool {
        false
    }
    /// Returns true if the NIC puts headers into separate buffers.
    fn splits_headers(&self) -> bool {
        true
    }
    /// Pulls the wire, or plugs it in.
    fn carrier(&mut self, up: bool);
}

/// A copy of a received frame.
#[derive(Clone, Debug)]
pub struct Came {
    pub bytes: Vec<u8>,
    pub pieces: usize,
    /// Bytes of the headers, where they were split.
    pub header: Option<usize>,
    pub ip: Checksum,
    pub transport: Checksum,
}

/// A NIC in a world, with memory for frames to be sent.
pub struct Rig<W: World> {
    pub world: W,
    pub nic: Nic,
    data: u64,
    address: u64,
    pub sent: BTreeMap<u64, Sent>,
    pub freed: Vec<u64>,
    pub came: Vec<Came>,
    /// Frames that are not returned.
    pub kept: Vec<Received>,
    pub keep: bool,
}

/// Bytes of the memory for data.
pub const DATA: u64 = 2 << 20;
const SECOND: u64 = 1_000_000_000;

impl<W: World> Rig<W> {
    /// Returns a NIC that is not started, with the world's configuration, changed.
    pub fn new(mut world: W, change: impl FnOnce(&mut Config)) -> Rig<W> {
        let mut config = world.config();
        change(&mut config);
        let mut memory = world.memory();
        let data = memory.take(DATA, 4096).expect("8 MiB").offset();
        let nic = Nic::new(config, memory).expect("a good set-up");
        let mut address = 0;
        world.bus(&mut |bus| address = bus.window().address + data);
        let (sent, freed, came, kept) = (BTreeMap::new(), Vec::new(), Vec::new(), Vec::new());
        Rig { world, nic, data, address, sent, freed, came, kept, keep: false }
    }

    /// Returns a NIC that has a link.
    pub fn ready(world: W, change: impl FnOnce(&mut Config)) -> Rig<W> {
        let mut rig = Rig::new(world, change);
        rig.start();
        rig
    }

    pub fn start(&mut self) {
        self.with(|nic, bus, now| nic.start(bus, now));
        self.until("a link", 20 * SECOND, |rig| rig.nic.link());
    }

    pub fn with(&mut self, what: impl FnOnce(&mut Nic, &mut dyn Bus, u64)) {
        let (now, nic) = (self.world.now(), &mut self.nic);
        let mut what = Some(what);
        self.world.bus(&mut |bus| what.take().expect("once")(nic, bus, now));
    }

    pub fn at(&self, offset: u64, length: u64) -> Window {
        assert!(offset + length <= DATA);
        Window { address: self.address + offset, length }
    }

    pub fn put(&mut self, offset: u64, bytes: &[u8]) {
        let at = self.data + offset;
        self.world.bus(&mut |bus| bus.store(at, bytes));
    }

    pub fn get(&mut self, offset: u64, length: u32) -> Vec<u8> {
        self.load(self.data + offset, length)
    }

    pub fn load(&mut self, offset: u64, length: u32) -> Vec<u8> {
        let mut bytes = vec![0; length as usize];
        self.world.bus(&mut |bus| bus.load(offset, &mut bytes));
        bytes
    }

    pub fn transmit(
        &mut self,
        id: u64,
        data: &[Window],
        offload: Option<Offload>,
    ) -> Result<(), TransmitError> {
        let mut result = Ok(());
        self.with(|nic, bus, now| result = nic.transmit(bus, now, id, &Frame { data, offload }));
        result
    }

    fn copy(&mut self, frame: &Received) -> Came {
        let pieces = frame.pieces().to_vec();
        let bytes = pieces.iter().flat_map(|piece| self.load(piece.offset, piece.length)).collect();
        let header = frame.split.then(|| pieces[0].length as usize);
        Came { bytes, pieces: pieces.len(), header, ip: frame.ip, transport: frame.transport }
    }

    /// Makes one round: reaps, takes received frames, returns their memory.
    pub fn round(&mut self) {
        self.with(|nic, bus, now| nic.poll(bus, now));
        while let Some(end) = self.nic.sent() {
            assert_eq!(self.sent.insert(end.id, end), None, "{} ended twice", end.id);
        }
        while let Some(id) = self.nic.freed() {
            assert_eq!(self.sent.get(&id).map(|end| end.memory), Some(Memory::Held));
            assert!(!self.freed.contains(&id), "the memory of {id} was freed twice");
            self.freed.push(id);
        }
        while let Some(frame) = self.nic.received() {
            let came = self.copy(&frame);
            self.came.push(came);
            if self.keep {
                self.kept.push(frame);
            } else {
                self.nic.give_back(frame);
            }
        }
        self.with(|nic, bus, _| nic.ring(bus));
    }

    /// Waits for a condition, at most for `limit`. Returns true if it came true.
    pub fn wait(&mut self, limit: u64, so: impl Fn(&Rig<W>) -> bool) -> bool {
        let end = self.world.now() + limit;
        loop {
            self.round();
            if so(self) {
                return true;
            }
            if self.world.now() >= end {
                return false;
            }
            let until = self.nic.deadline().map_or(end, |deadline| deadline.min(end));
            if let Some(done) = self.world.advance(Some(until)) {
                self.with(|nic, bus, now| nic.read_done(bus, now, done));
            }
        }
    }

    pub fn until(&mut self, what: &str, limit: u64, so: impl Fn(&Rig<W>) -> bool) {
        assert!(
            self.wait(limit, so),
            "not in time: {what}; {:?}, {:?}",
            self.nic.state(),
            self.nic.counters()
        );
    }

    /// Waits until all frames given to the NIC have ended.
    pub fn drain(&mut self) {
        self.until("all frames end", 60 * SECOND, |rig| rig.nic.outstanding() == 0);
    }

    /// Returns the next `count` frames from the wire.
    pub fn wire(&mut self, count: usize) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        let end = self.world.now() + 10 * SECOND;
        while self.world.now() < end {
            while let Some(frame) = self.world.next_from_wire() {
                frames.push(frame);
            }
            if frames.len() >= count {
                return frames;
            }
            self.wait(SECOND / 1000, |_| false);
        }
        panic!(
            "{} of {count} frames came out, the first of {:?} bytes",
            frames.len(),
            frames.first().map(Vec::len)
        );
    }

    /// Sends one contiguous frame, and takes it from the wire.
    pub fn send(&mut self, bytes: &[u8], offload: Option<Offload>, count: usize) -> Vec<Vec<u8>> {
        self.put(0, bytes);
        self.sent.remove(&0);
        assert_eq!(self.transmit(0, &[self.at(0, bytes.len() as u64)], offload), Ok(()));
        self.drain();
        assert_eq!(self.sent[&0].result, Ok(()));
        self.wire(count)
    }

    /// Waits until all writes to the NIC have arrived there: it answers a read.
    pub fn settle(&mut self) {
        let (register, tag) = (self.world.config().registers.address + 8, Tag::new(u32::MAX, 0));
        self.world.bus(&mut |bus| bus.read(register, 4, tag));
        let end = self.world.now() + 10 * SECOND;
        while self.world.now() < end {
            match self.world.advance(Some(end)) {
                Some(done) if done.tag == tag => return,
                Some(done) => self.with(|nic, bus, now| nic.read_done(bus, now, done)),
                None => {}
            }
        }
        panic!("the NIC answers no read");
    }

    /// Puts frames on the wire, and waits until they arrive.
    pub fn receive(&mut self, frames: &[Vec<u8>]) -> Vec<Came> {
        self.came.clear();
        // A NIC drops frames until it knows of buffers for them.
        self.settle();
        for frame in frames {
            self.world.to_wire(frame);
        }
        let count = frames.len();
        self.until("frames come", 10 * SECOND, |rig| rig.came.len() >= count);
        std::mem::take(&mut self.came)
    }

    pub fn mac(&self) -> [u8; 6] {
        self.nic.address().expect("a NIC that was ready")
    }
}

const PEER: [u8; 6] = [2, 0, 0, 0, 0, 9];

/// Returns a frame of no known kind, which stays unchanged.
pub fn raw(to: [u8; 6], random: &mut Random, length: usize) -> Vec<u8> {
    let mut frame = [&to[..], &PEER, &[0x88, 0xb5]].concat();
    frame.extend(random.bytes(length - 14));
    frame
}

/// Ethernet's shortest frame: some NICs pad to it, others leave that to the wire.
fn padded(mut frame: Vec<u8>) -> Vec<u8> {
    frame.resize(frame.len().max(60), 0);
    frame
}

/// Checks that frames are sent unchanged, from pieces anywhere.
pub fn frames_are_sent(world: impl World) {
    let mut rig = Rig::ready(world, |_| {});
    let mut random = Random(1);
    for length in [14, 15, 59, 60, 61, 64, 128, 1000, 1513, 1514] {
        let frame = raw(PEER, &mut random, length);
        assert_eq!(rig.send(&frame, None, 1).pop().map(padded), Some(padded(frame)), "{length} bytes");
    }
    for _ in 0..50 {
        let length = 60 + random.below(1455) as usize;
        let frame = raw(PEER, &mut random, length);
        let (mut pieces, mut done, mut at) = (Vec::new(), 0, random.below(5000));
        while done < frame.len() {
            let length = (1 + random.below(400) as usize).min(frame.len() - done);
            rig.put(at, &frame[done..done + length]);
            pieces.push(rig.at(at, length as u64));
            done += length;
            at += length as u64 + random.below(5000);
        }
        rig.sent.clear();
        assert_eq!(rig.transmit(1, &pieces, None), Ok(()));
        rig.drain();
        assert_eq!(rig.wire(1), [frame]);
    }
}

/// Checks that frames stay in order while the ring wraps many times, sometimes full.
pub fn many_frames_are_sent(world: impl World) {
    let mut rig = Rig::ready(world, |config| config.transmit = 32);
    let mut random = Random(2);
    let frames: Vec<Vec<u8>> = (0..200).map(|i| raw(PEER, &mut random, 60 + i * 7)).collect();
    let (mut full, mut wire) = (0, Vec::new());
    for (id, frame) in frames.iter().enumerate() {
        let offset = (id % 64) as u64 * 2048;
        rig.put(offset, frame);
        let half = frame.len() as u64 / 2;
        let pieces = [rig.at(offset, half), rig.at(offset + half, frame.len() as u64 - half)];
        while let Err(error) = rig.transmit(id as u64, &pieces, None) {
            assert_eq!(error, TransmitError::Full);
            full += 1;
            rig.drain();
            wire.extend(rig.wire(0));
        }
    }
    rig.drain();
    wire.extend(rig.wire(frames.len() - wire.len()));
    assert!(full > 0);
    assert!(wire == frames);
    assert_eq!(rig.sent.len(), frames.len());
    let order: Vec<u64> = rig.sent.keys().copied().collect();
    assert_eq!(order, (0..200).collect::<Vec<_>>());
}

/// Checks that the NIC's checksums are those that software computes.
pub fn checksums_are_inserted(world: impl World) {
    let mut rig = Rig::ready(world, |_| {});
    let mut random = Random(3);
    for round in 0..8 {
        for kind in KINDS {
            let payload = random.bytes(7 + round * 100);
            let frame = kind.prepared(PEER, &payload, false);
            let got = rig.send(&frame, Some(kind.offload(None)), 1).pop().map(padded);
            assert!(got == Some(padded(kind.finished(PEER, &payload))), "{kind:?}, {} bytes", payload.len());
        }
    }
    // One after the other, with and without.
    let (tcp, udp) = (KINDS[0], KINDS[1]);
    let frames = [
        tcp.prepared(PEER, &[1; 100], false),
        raw(PEER, &mut random, 100),
        udp.prepared(PEER, &[2; 100], false),
    ];
    let expected = [tcp.finished(PEER, &[1; 100]), frames[1].clone(), udp.finished(PEER, &[2; 100])];
    let offloads = [Some(tcp.offload(None)), None, Some(udp.offload(None))];
    for id in 0..12 {
        let (offset, which) = (id * 2048, id as usize % 3);
        rig.put(offset, &frames[which]);
        let at = rig.at(offset, frames[which].len() as u64);
        assert_eq!(rig.transmit(100 + id, &[at], offloads[which]), Ok(()));
    }
    rig.drain();
    for (i, frame) in rig.wire(12).into_iter().enumerate() {
        assert!(frame == expected[i % 3], "frame {i}");
    }
}

/// Checks that a long frame is sent as the segments that software would make.
pub fn segments_are_made(world: impl World) {
    let mut rig = Rig::ready(world, |_| {});
    let mut random = Random(4);
    for (length, size) in [(1448, 1448), (1449, 1448), (3000, 536), (20_000, 1448), (60_000, 1000)] {
        for kind in KINDS.into_iter().filter(|kind| kind.transport == Transport::Tcp) {
            let payload = random.bytes(length);
            let frame = kind.prepared(PEER, &payload, true);
            let count = length.div_ceil(usize::from(size));
            let segments = rig.send(&frame, Some(kind.offload(Some(size))), count);
            assert_eq!(segments.len(), count);
            let mut got = Vec::<u8>::new();
            for (i, segment) in segments.iter().enumerate() {
                check_segment(kind, segment, got.len() as u32, i);
                // PSH and FIN are the last segment's.
                let last = i + 1 == count && !rig.world.loses_flags();
                assert_eq!(segment[14 + kind.network() + 13], if last { 0x19 } else { 0x10 });
                got.extend(&segment[kind.headers()..]);
            }
            assert!(got == payload, "{length} bytes in {size}");
        }
    }
}

fn check_segment(kind: Kind, segment: &[u8], before: u32, i: usize) {
    assert!(kind.right(segment), "checksums of segment {i}: {kind:?}");
    let (at, length) = if kind.ipv4 { (16, segment.len() - 14) } else { (18, segment.len() - 54) };
    assert_eq!(segment[at..at + 2], (length as u16).to_be_bytes());
    if kind.ipv4 {
        assert_eq!(segment[18..20], (0x1234 + i as u16).to_be_bytes(), "identification");
    }
    let tcp = &segment[14 + kind.network()..];
    assert_eq!(tcp[4..8], 0xffff_f000u32.wrapping_add(before).to_be_bytes(), "sequence number");
}

/// Checks that frames are received whole, with the NIC's verdict on their checksums.
pub fn frames_come(world: impl World) {
    let mut rig = Rig::ready(world, |_| {});
    let (mac, mut random) = (rig.mac(), Random(5));
    for length in [60, 61, 100, 1000, 1513, 1514] {
        let frame = raw(mac, &mut random, length);
        let came = rig.receive(std::slice::from_ref(&frame));
        assert!(came[0].bytes == frame);
        assert_eq!(came[0].transport, Checksum::Unknown);
    }
    let broadcast = raw([0xff; 6], &mut random, 80);
    assert!(rig.receive(std::slice::from_ref(&broadcast))[0].bytes == broadcast);
    for kind in KINDS {
        let good = kind.finished(mac, &random.bytes(500));
        let came = rig.receive(std::slice::from_ref(&good));
        assert!(came[0].bytes == good);
        assert_eq!(came[0].transport, Checksum::Good, "{kind:?}");
        assert_eq!(came[0].ip, if kind.ipv4 { Checksum::Good } else { Checksum::Unknown });
        let mut bad = good.clone();
        *bad.last_mut().unwrap() ^= 1;
        let came = rig.receive(std::slice::from_ref(&bad));
        assert!(came[0].bytes == bad);
        assert_eq!(came[0].transport, Checksum::Bad, "{kind:?}");
        if kind.ipv4 {
            let mut bad = good.clone();
            bad[22] ^= 1;
            assert_eq!(rig.receive(&[bad])[0].ip, Checksum::Bad);
        }
    }
    assert_eq!(rig.nic.counters().dropped, 0);
}

/// Checks that frames for other addresses are not received.
pub fn frames_for_others_do_not_come(world: impl World) {
    let mut rig = Rig::ready(world, |_| {});
    let (mac, mut random) = (rig.mac(), Random(6));
    let other = raw([2, 9, 9, 9, 9, 9], &mut random, 100);
    let multicast = raw([1, 0, 0x5e, 0, 0, 1], &mut random, 100);
    let mine = raw(mac, &mut random, 100);
    rig.world.to_wire(&other);
    rig.world.to_wire(&multicast);
    let came = rig.receive(std::slice::from_ref(&mine));
    assert!(came.len() == 1 && came[0].bytes == mine);
}

/// Checks that while the receive ring wraps many times, kept frames are not overwritten, and no frame is lost that
/// has a buffer.
pub fn many_frames_come(world: impl World) {
    let mut rig = Rig::ready(world, |config| (config.receive, config.buffers) = (16, 40));
    let (mac, mut random) = (rig.mac(), Random(7));
    for _ in 0..20 {
        let frames: Vec<Vec<u8>> = (0..10).map(|i| raw(mac, &mut random, 60 + i * 100)).collect();
        let came = rig.receive(&frames);
        assert!(came.iter().map(|came| &came.bytes).eq(&frames));
    }
    rig.keep = true;
    let mut expected = Vec::new();
    for _ in 0..3 {
        let frames: Vec<Vec<u8>> = (0..10).map(|i| raw(mac, &mut random, 60 + i * 100)).collect();
        rig.receive(&frames);
        expected.extend(frames);
    }
    let kept = std::mem::take(&mut rig.kept);
    rig.keep = false;
    for (frame, expected) in kept.iter().zip(&expected) {
        assert!(rig.copy(frame).bytes == *expected);
    }
    for frame in kept {
        rig.nic.give_back(frame);
    }
    let frames: Vec<Vec<u8>> = (0..15).map(|i| raw(mac, &mut random, 60 + i * 50)).collect();
    rig.round();
    let came = rig.receive(&frames);
    assert!(came.iter().map(|came| &came.bytes).eq(&frames));
}

/// Checks that long frames are received in several pieces.
pub fn long_frames_come_in_pieces(world: impl World) {
    let mut rig = Rig::ready(world, |config| config.max_frame = 9014);
    let (mac, mut random) = (rig.mac(), Random(8));
    for length in [1514, 2047, 2048, 2049, 4096, 4097, 9014] {
        let frame = raw(mac, &mut random, length);
        let came = rig.receive(std::slice::from_ref(&frame));
        assert!(came[0].bytes == frame, "{length}");
        assert_eq!(came[0].pieces, length.div_ceil(2048), "{length}");
        assert_eq!(rig.send(&frame, None, 1), [frame]);
    }
}

/// Checks that headers are received in separate buffers.
pub fn headers_are_split(world: impl World) {
    if !world.splits_headers() {
        return;
    }
    let mut rig = Rig::ready(world, |config| config.split = true);
    let (mac, mut random) = (rig.mac(), Random(9));
    for kind in KINDS {
        for length in [1, 100, 1400] {
            let frame = kind.finished(mac, &random.bytes(length));
            let came = rig.receive(std::slice::from_ref(&frame));
            assert!(came[0].bytes.starts_with(&frame), "{kind:?}, {length}");
            assert_eq!(came[0].header, Some(kind.headers()), "{kind:?}, {length}");
            assert_eq!(came[0].transport, Checksum::Good);
        }
    }
    let frame = raw(mac, &mut random, 300);
    let came = rig.receive(std::slice::from_ref(&frame));
    assert!(came[0].bytes == frame);
    assert_eq!(came[0].header, None);
}

/// Checks that without a wire nothing is taken, and with it work continues.
pub fn the_link_comes_and_goes(world: impl World) {
    let mut rig = Rig::ready(world, |_| {});
    let (mac, mut random) = (rig.mac(), Random(10));
    for _ in 0..2 {
        rig.world.carrier(false);
        rig.until("the link is gone", 10 * SECOND, |rig| !rig.nic.link());
        assert_eq!(rig.nic.state(), State::Ready);
        assert_eq!(rig.transmit(1, &[rig.at(0, 60)], None), Err(TransmitError::LinkDown));
        rig.world.carrier(true);
        rig.until("the link is back", 10 * SECOND, |rig| rig.nic.link());
        let frame = raw(PEER, &mut random, 100);
        assert_eq!(rig.send(&frame, None, 1), [frame]);
        let frame = raw(mac, &mut random, 100);
        assert!(rig.receive(std::slice::from_ref(&frame))[0].bytes == frame);
    }
    assert_eq!(rig.nic.counters().resets, 0);
}

/// Checks that a reset under load ends each frame once, and work continues; the same for a stop.
pub fn resets_under_load(world: impl World) {
    let mut rig = Rig::ready(world, |_| {});
    let (mac, mut random) = (rig.mac(), Random(11));
    for turn in 0..4 {
        rig.sent.clear();
        rig.freed.clear();
        let frames: Vec<Vec<u8>> = (0..40).map(|_| raw(PEER, &mut random, 1000)).collect();
        for (id, frame) in frames.iter().enumerate() {
            rig.put(id as u64 * 1024, frame);
            assert_eq!(rig.transmit(id as u64, &[rig.at(id as u64 * 1024, 1000)], None), Ok(()));
        }
        rig.with(|nic, bus, _| nic.ring(bus));
        rig.wait(turn * 50_000, |_| false);
        if turn == 3 {
            rig.with(|nic, bus, now| nic.stop(bus, now));
            rig.until("it has stopped", 10 * SECOND, |rig| rig.nic.state() == State::Off);
            rig.start();
        } else {
            rig.with(|nic, bus, now| nic.reset(bus, now));
        }
        rig.until("a link", 20 * SECOND, |rig| rig.nic.link());
        assert_eq!(rig.sent.len(), 40);
        let held: Vec<u64> =
            rig.sent.values().filter(|end| end.memory == Memory::Held).map(|end| end.id).collect();
        rig.freed.sort_unstable();
        assert_eq!(rig.freed, held);
        assert!(rig.sent.values().all(|end| matches!(end.result, Ok(()) | Err(ResetCause::Asked))));
        let wire = rig.wire(0);
        assert!(wire.iter().zip(&frames).all(|(got, sent)| got == sent), "in order, and unchanged");
        let frame = raw(PEER, &mut random, 100);
        assert_eq!(rig.send(&frame, None, 1), [frame]);
        let frame = raw(mac, &mut random, 100);
        assert!(rig.receive(std::slice::from_ref(&frame))[0].bytes == frame);
    }
}

/// Moves frames of all kinds in both directions at once.
pub fn random_frames_both_ways(world: impl World, seed: u64, rounds: u32) {
    let mut rig = Rig::ready(world, |_| {});
    let (mac, mut random) = (rig.mac(), Random(seed));
    for _ in 0..rounds {
        rig.sent.clear();
        rig.came.clear();
        let (mut out, mut back) = (Vec::new(), Vec::new());
        for id in 0..1 + random.below(30) {
            let offset = id * 4096 + random.below(2000);
            let (bytes, offload, expected) = one(&mut random);
            rig.put(offset, &bytes);
            let cut = 1 + random.below(bytes.len() as u64 - 1);
            let pieces = [rig.at(offset, cut), rig.at(offset + cut, bytes.len() as u64 - cut)];
            rig.transmit(id, &pieces, offload).unwrap();
            out.push(padded(expected));
            if random.below(2) == 0 {
                let length = random.below(1400) as usize;
                let kind = KINDS[random.below(4) as usize];
                let frame = padded(kind.finished(mac, &random.bytes(length)));
                rig.world.to_wire(&frame);
                back.push(frame);
            }
        }
        rig.drain();
        let wire: Vec<Vec<u8>> = rig.wire(out.len()).into_iter().map(padded).collect();
        assert!(wire == out);
        let count = back.len();
        rig.until("frames come", 10 * SECOND, |rig| rig.came.len() >= count);
        assert!(rig.came.iter().map(|came| &came.bytes).eq(&back));
    }
}

/// Returns a frame as the NIC gets it, the offload, and the result.
fn one(random: &mut Random) -> (Vec<u8>, Option<Offload>, Vec<u8>) {
    let length = random.below(1400) as usize;
    if random.below(3) == 0 {
        let frame = raw(PEER, random, 14 + length);
        return (frame.clone(), None, frame);
    }
    let (kind, payload) = (KINDS[random.below(4) as usize], random.bytes(length));
    (kind.prepared(PEER, &payload, false), Some(kind.offload(None)), kind.finished(PEER, &payload))
}
