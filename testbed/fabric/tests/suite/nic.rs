//! The NIC model against a raw driver, and against a wire whose other end the test holds.

use std::time::Duration;

use dcs_drivers::bus::{Bus, Window};
use dcs_fabric::nic::{Config, Family, Nic};
use dcs_fabric::{Event, Fabric, Fault, FunctionId, Rate, Rule, Timing, When, Wire, WireEnd};

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 7];
const TX: u64 = 0;
const RX: u64 = 0x1000;
const OUT: u64 = 0x1_0000;
const IN: u64 = 0x8_0000;
const HEADERS: u64 = 0x4_0000;

struct Driver {
    fabric: Fabric,
    card: FunctionId,
    nic: FunctionId,
    end: WireEnd,
    family: Family,
    size: u32,
    /// Offset of its rings and buffers in the card's memory.
    base: u64,
    tx_tail: u32,
    rx_head: u32,
    came: Vec<Vec<u8>>,
}

impl Driver {
    /// A NIC after power on, and a wire.
    fn cold(config: Config) -> Driver {
        let mut fabric = Fabric::new(Timing::default(), 1 << 20, 3);
        let card = fabric.add_endpoint("card", Rate::GEN2_X8, &[1 << 21]);
        let nic = fabric.add_device("nic", Rate::GEN2_X4, Nic::new(config));
        let [_, end] = fabric.connect(Wire::default(), [Some(nic), None]);
        fabric.set_bus_master(card, true);
        fabric.set_bus_master(nic, true);
        let family = config.family;
        Driver { fabric, card, nic, end, family, size: 16, base: 0, tx_tail: 0, rx_head: 0, came: Vec::new() }
    }

    /// Returns a NIC with a link, and both rings of 16 descriptors with all receive buffers of 2 KiB.
    fn new(family: Family) -> Driver {
        let mut driver = Driver::cold(Config::new(family, MAC));
        driver.bring_up();
        driver
    }

    fn bring_up(&mut self) {
        self.set(0, 1 << 26);
        self.set(0, 0x241);
        self.phy(0, Some(0x1340));
        self.wait(Duration::from_millis(3));
        assert_eq!(self.get(8) & 3, 3, "a link");
        let window = self.address(0);
        let (rx, tx) = (0x2800, 0x3800);
        for (base, at) in [(rx, window + RX), (tx, window + TX)] {
            self.set(base, at as u32);
            self.set(base + 4, (at >> 32) as u32);
            self.set(base + 8, self.size * 16);
        }
        if self.family == Family::Igb {
            self.set(rx + 0xc, 1 << 25 | 2);
        } else {
            self.set(0x5008, 1 << 15);
        }
        // Checksums are checked; frames of up to 1518 bytes, broadcasts too, their check sequence left out.
        self.set(0x5000, 3 << 8);
        self.set(0x100, 1 << 1 | 1 << 15 | 1 << 26);
        self.set(0x400, 1 << 1 | 1 << 3);
        for base in [rx, tx] {
            self.set(base + 0x28, 1 << 25);
        }
        (self.tx_tail, self.rx_head) = (0, 0);
        for slot in 0..self.size {
            self.give(slot);
        }
        self.set(rx + 0x18, self.size - 1);
        self.run();
    }

    fn give(&mut self, slot: u32) {
        let (at, header) =
            (self.address(IN + u64::from(slot) * 2048), self.address(HEADERS + u64::from(slot) * 256));
        let header = if self.family == Family::Igb { header } else { 0 };
        let raw = [at.to_le_bytes(), header.to_le_bytes()].concat();
        self.store(RX + u64::from(slot) * 16, &raw);
    }

    fn address(&mut self, offset: u64) -> u64 {
        self.fabric.port(self.card).window().address + self.base + offset
    }

    fn store(&mut self, offset: u64, bytes: &[u8]) {
        self.fabric.port(self.card).store(self.base + offset, bytes);
    }

    fn load(&mut self, offset: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.fabric.port(self.card).load(self.base + offset, &mut bytes);
        bytes
    }

    fn get(&mut self, offset: u64) -> u32 {
        let at = self.fabric.bar(self.nic, 0).address + offset;
        u32::from_le_bytes(self.fabric.read(self.card, at, 4).unwrap().try_into().unwrap())
    }

    fn set(&mut self, offset: u64, value: u32) {
        let at = self.fabric.bar(self.nic, 0).address + offset;
        self.fabric.port(self.card).write(at, &value.to_le_bytes());
    }

    fn phy(&mut self, register: u32, write: Option<u16>) -> u16 {
        let operation = if write.is_some() { 1 } else { 2 };
        self.set(0x20, u32::from(write.unwrap_or(0)) | register << 16 | 1 << 21 | operation << 26);
        for _ in 0..100 {
            let value = self.get(0x20);
            if value & 1 << 28 != 0 {
                assert_eq!(value & 1 << 30, 0);
                return value as u16;
            }
            self.wait(Duration::from_micros(5));
        }
        panic!("no answer of the PHY");
    }

    fn wait(&mut self, time: Duration) {
        let until = self.fabric.now() + time;
        while let Some(event) = self.fabric.step(Some(until)) {
            if let Event::Frame { bytes, .. } = event {
                self.came.push(bytes);
            }
        }
    }

    fn run(&mut self) {
        self.wait(Duration::from_millis(20));
    }

    /// Puts a raw descriptor into the transmit ring, without telling the NIC.
    fn put(&mut self, low: u64, high: [u32; 2]) -> u32 {
        let slot = self.tx_tail;
        let raw = [&low.to_le_bytes()[..], &high[0].to_le_bytes(), &high[1].to_le_bytes()].concat();
        self.store(TX + u64::from(slot) * 16, &raw);
        self.tx_tail = (slot + 1) % self.size;
        slot
    }

    fn kick(&mut self) {
        self.set(0x3818, self.tx_tail);
        self.run();
    }

    /// A data descriptor of either family: the whole of a piece, with the commands and options given.
    fn data(&mut self, offset: u64, length: u32, command: u32, options: u32, payload: u32) -> u32 {
        let at = self.address(offset);
        let kind = if self.family == Family::Igb { 3 } else { 1 };
        // Segmentation is at different places.
        let segment = command & TSE != 0;
        let command = command & !TSE | u32::from(segment) << if self.family == Family::Igb { 31 } else { 26 };
        let payload = if self.family == Family::Igb { payload << 14 } else { 0 };
        self.put(at, [length | kind << 20 | command | 1 << 29, options << 8 | payload])
    }

    fn done(&mut self, slot: u32) -> bool {
        self.load(TX + u64::from(slot) * 16 + 12, 1)[0] & 1 == 1
    }

    /// The next received descriptor: status and errors, length, the frame's piece, the first two words.
    fn take(&mut self) -> Option<(u32, Vec<u8>, u32)> {
        let slot = self.rx_head;
        let raw = self.load(RX + u64::from(slot) * 16, 16);
        let word = |at: usize| u32::from_le_bytes(raw[at..at + 4].try_into().unwrap());
        if word(8) & 1 == 0 {
            return None;
        }
        let bytes = self.load(IN + u64::from(slot) * 2048, (word(12) & 0xffff) as usize);
        self.rx_head = (slot + 1) % self.size;
        self.give(slot);
        self.set(0x2818, slot);
        Some((word(8), bytes, word(0)))
    }
}

const EOP: u32 = 1 << 24;
const IFCS: u32 = 1 << 25;
const RS: u32 = 1 << 27;
/// Stands for either family's bit.
const TSE: u32 = 1 << 30;

fn sum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)));
    let mut total: u32 = words.sum();
    while total > 0xffff {
        total = (total >> 16) + (total & 0xffff);
    }
    total as u16
}

/// An IPv4 TCP frame to `to`, checksums right.
fn tcp(to: [u8; 6], sequence: u32, flags: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = [&to[..], &[2, 0, 0, 0, 0, 9, 8, 0, 0x45, 0]].concat();
    frame.extend((40 + payload.len() as u16).to_be_bytes());
    frame.extend([0, 1, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0, 80, 0, 81]);
    frame.extend(sequence.to_be_bytes());
    frame.extend([0, 0, 0, 1, 0x50, flags, 4, 0, 0, 0, 0, 0]);
    frame.extend(payload);
    let ip = !sum(&frame[14..34]);
    frame[24..26].copy_from_slice(&ip.to_be_bytes());
    let pseudo = [&frame[26..34], &[0, 6], &(20 + payload.len() as u16).to_be_bytes(), &frame[34..]].concat();
    let l4 = !sum(&pseudo);
    frame[50..52].copy_from_slice(&l4.to_be_bytes());
    frame
}

fn both(test: impl Fn(Driver)) {
    for family in [Family::Igb, Family::E1000e] {
        test(Driver::new(family));
    }
}

#[test]
fn it_has_its_address_and_a_link_when_its_phy_is_told() {
    let mut driver = Driver::cold(Config::new(Family::Igb, MAC));
    driver.run();
    assert_eq!(driver.get(8) & 2, 0);
    assert_eq!(driver.get(0x5400), 2);
    assert_eq!(driver.get(0x5404), 0x8000_0700);
    driver.set(0x14, 2 << 2 | 1);
    assert_eq!(driver.get(0x14), 0x0700_0000 | 2 << 2 | 2);
    assert_eq!(driver.phy(1, None) & 0x24, 0);
    driver.set(0xd0, 1 << 2);
    driver.phy(0, Some(0x1340));
    assert_eq!(driver.get(8) & 2, 0);
    driver.run();
    assert_eq!(driver.phy(1, None) & 0x24, 0x24);
    // The MAC has to be told as well.
    assert_eq!(driver.get(8) & 2, 0);
    driver.set(0, 0x241);
    assert_eq!(driver.get(8) & 0xc3, 0x83);
    assert_eq!(driver.fabric.interrupts(driver.nic, 0), 1);
    assert_eq!(driver.get(0xc0) & 4, 4);
    assert_eq!(driver.get(0xc0), 0);
    // The wire is pulled.
    driver.fabric.set_carrier(driver.end, false);
    driver.run();
    assert_eq!(driver.get(8) & 2, 0);
    assert_eq!(driver.get(0xc0) & 4, 4);
    assert_eq!(driver.fabric.interrupts(driver.nic, 0), 2);
}

#[test]
fn frames_go_out_whole_and_the_driver_is_told_where_it_asked() {
    both(|mut driver| {
        let frame: Vec<u8> = (0..200).map(|i| i as u8).collect();
        driver.store(OUT, &frame);
        let first = driver.data(OUT, 150, IFCS, 0, 200);
        let second = driver.data(OUT + 150, 50, EOP | IFCS | RS, 0, 200);
        driver.kick();
        assert_eq!(driver.came, std::slice::from_ref(&frame));
        assert!(!driver.done(first) && driver.done(second));
        assert_eq!(driver.get(0x3810), 2);
        // A short one is padded; one without a check sequence is lost on the way.
        driver.came.clear();
        driver.data(OUT, 20, EOP | IFCS, 0, 20);
        driver.data(OUT, 64, EOP, 0, 64);
        driver.kick();
        assert_eq!(driver.came, [[&frame[..20], &[0; 40]].concat()]);
        let counts = driver.fabric.device::<Nic>(driver.nic).counts();
        assert_eq!((counts.sent, counts.bytes_sent), (2, 260));
        assert_eq!(driver.get(0x4080), 2);
        assert_eq!(driver.get(0x4080), 0);
    });
}

#[test]
fn the_ring_wraps() {
    both(|mut driver| {
        for round in 0..10u8 {
            for i in 0..7 {
                driver.store(OUT + 2048 * u64::from(i), &[round * 7 + i; 60]);
                driver.data(OUT + 2048 * u64::from(i), 60, EOP | IFCS | RS, 0, 60);
            }
            driver.kick();
        }
        assert_eq!(driver.came.len(), 70);
        assert!(driver.came.iter().enumerate().all(|(i, frame)| *frame == [i as u8; 60]));
        assert_eq!(driver.get(0x3810), 70 % 16);
    });
}

/// A context for Ethernet, IPv4 and TCP without options, and segments of `size` bytes.
fn context(driver: &mut Driver, size: u32) {
    if driver.family == Family::Igb {
        driver.put(20 | 14 << 9, [2 << 20 | 1 << 29 | 1 << 11 | 1 << 10, size << 16 | 20 << 8]);
    } else {
        let ip = 14 | 24 << 8 | 33 << 16;
        let l4 = 34 | 50 << 8;
        driver.put(ip | l4 << 32, [1 << 29 | 7 << 24, size << 16 | 54 << 8]);
    }
}

#[test]
fn checksums_are_put_in_and_long_frames_cut_up() {
    both(|mut driver| {
        let payload: Vec<u8> = (0..20_000u32).map(|i| ((i * 31) >> 3) as u8).collect();
        // A driver leaves the sum of the pseudo header without the length where it wants segments, else with
        // it.
        let mut given = tcp([4; 6], 1000, 0x18, &payload[..1000]);
        let right = given.clone();
        given[24..26].fill(0);
        let pseudo =
            sum(&[10, 0, 0, 1, 10, 0, 0, 2, 0, 6, 1020u16.to_be_bytes()[0], 1020u16.to_be_bytes()[1]]);
        given[50..52].copy_from_slice(&pseudo.to_be_bytes());
        driver.store(OUT, &given);
        context(&mut driver, 0);
        driver.data(OUT, given.len() as u32, EOP | IFCS | RS, 3, 1054);
        driver.kick();
        assert_eq!(driver.came, [right]);

        driver.came.clear();
        let mut given = tcp([4; 6], 1000, 0x18, &payload);
        given[16..18].fill(0);
        given[24..26].fill(0);
        given[50..52].copy_from_slice(&sum(&[10, 0, 0, 1, 10, 0, 0, 2, 0, 6]).to_be_bytes());
        driver.store(OUT, &given);
        context(&mut driver, 1460);
        // More pieces than are fetched at once.
        driver.data(OUT, 54, IFCS | TSE, 3, 20_000);
        for i in 0..9 {
            driver.data(OUT + 54 + i * 2000, 2000, IFCS | TSE, 3, 0);
        }
        driver.data(OUT + 54 + 18_000, 2000, EOP | IFCS | RS | TSE, 3, 0);
        driver.kick();
        assert_eq!(driver.came.len(), 14);
        for (i, piece) in payload.chunks(1460).enumerate() {
            let flags = if i == 13 { 0x18 } else { 0x10 };
            let mut expected = tcp([4; 6], 1000 + 1460 * i as u32, flags, piece);
            expected[18..20].copy_from_slice(&(1 + i as u16).to_be_bytes());
            expected[24..26].fill(0);
            let ip = !sum(&expected[14..34]);
            expected[24..26].copy_from_slice(&ip.to_be_bytes());
            assert_eq!(driver.came[i], expected, "segment {i}");
        }
    });
}

#[test]
fn what_can_not_be_read_is_not_sent() {
    both(|mut driver| {
        let nowhere = 1 << 55;
        let kind = if driver.family == Family::Igb { 3 } else { 1 };
        let slot = driver.put(nowhere, [100 | kind << 20 | 1 << 29 | EOP | IFCS | RS, 0]);
        driver.store(OUT, &[7; 100]);
        driver.data(OUT, 100, EOP | IFCS, 0, 100);
        driver.kick();
        assert!(driver.done(slot));
        assert_eq!(driver.came, [[7; 100]]);
        assert_eq!(driver.fabric.device::<Nic>(driver.nic).counts().broken, 1);
    });
}

#[test]
fn frames_come_in_with_their_length_and_what_their_checksums_are() {
    both(|mut driver| {
        let good = tcp(MAC, 5, 0x18, &[1; 700]);
        let mut bad = good.clone();
        bad[400] ^= 1;
        let mut worse = good.clone();
        worse[24] ^= 1;
        for frame in [&good, &bad, &worse] {
            driver.fabric.send(driver.end, frame.clone());
        }
        driver.run();
        let flags = 1 << 9 | 1 << 6 | 1 << 5 | 3;
        for (frame, errors) in [(&good, 0), (&bad, 1 << 29), (&worse, 1 << 30)] {
            let (status, bytes, first) = driver.take().unwrap();
            assert_eq!((&bytes, status), (frame, flags | errors));
            if driver.family == Family::Igb {
                assert_eq!(first, 1 << 8 | 1 << 4);
            }
        }
        assert_eq!(driver.take(), None);
        // A pure acknowledgement is short, and padded.
        driver.fabric.send(driver.end, tcp(MAC, 5, 0x10, &[]));
        driver.run();
        let (status, bytes, _) = driver.take().unwrap();
        assert_eq!((status, bytes.len()), (flags | 1 << 15, 60));
    });
}

#[test]
fn only_frames_for_it_come_in() {
    both(|mut driver| {
        let to = |to: [u8; 6]| [&to[..], &[0; 60]].concat();
        let multicast = [1, 0, 0x5e, 0, 0, 1];
        for frame in [to(MAC), to([2; 6]), to([0xff; 6]), to(multicast), [&MAC[..], &[0; 1600]].concat()] {
            driver.fabric.send(driver.end, frame);
        }
        driver.run();
        assert_eq!(driver.take().unwrap().1, to(MAC));
        assert_eq!(driver.take().unwrap().1, to([0xff; 6]));
        assert_eq!(driver.take(), None);
        // The multicast table, then everything.
        let hash = (0x0100u64 >> 4) & 0xfff;
        driver.set(0x5200 + hash / 32 * 4, 1 << (hash % 32));
        driver.fabric.send(driver.end, to(multicast));
        driver.run();
        assert_eq!(driver.take().unwrap().1, to(multicast));
        driver.set(0x100, 1 << 1 | 1 << 3 | 1 << 5);
        driver.fabric.send(driver.end, to([2; 6]));
        driver.fabric.send(driver.end, [&MAC[..], &[9; 4000]].concat());
        driver.run();
        // Now the check sequence is stored as well.
        assert_eq!(driver.take().unwrap().1.len(), 70);
        let (status, first, _) = driver.take().unwrap();
        assert_eq!((status & 3, first.len()), (1, 2048));
        let (status, second, _) = driver.take().unwrap();
        assert_eq!((status & 3, second.len()), (3, 4010 - 2048));
    });
}

#[test]
fn frames_wait_for_descriptors_and_are_missed_when_there_is_no_room() {
    both(|mut driver| {
        for i in 0..100u8 {
            driver.fabric.send(driver.end, [&MAC[..], &[i; 1000]].concat());
        }
        driver.run();
        // The ring took 15; 64 KiB wait; the rest is lost.
        let missed = driver.get(0x4010);
        assert_eq!(missed, 100 - 15 - 65);
        for i in 0..80 {
            let taken = driver.take().unwrap_or_else(|| panic!("frame {i}"));
            assert_eq!(taken.1[6..], [i; 1000]);
            driver.wait(Duration::from_micros(20));
        }
        assert_eq!(driver.take(), None);
    });
}

#[test]
fn headers_are_split_off() {
    let mut driver = Driver::new(Family::Igb);
    // TCP headers, into buffers of 128 bytes.
    driver.set(0x280c, 2 << 25 | 2 << 8 | 2);
    driver.set(0x5480, 1 << 4);
    let frame = tcp(MAC, 5, 0x18, &[3; 700]);
    let other = [&MAC[..], &[5; 80]].concat();
    driver.fabric.send(driver.end, frame.clone());
    driver.fabric.send(driver.end, other.clone());
    driver.run();
    let (status, bytes, first) = driver.take().unwrap();
    assert_eq!((status & 3, &bytes[..], first >> 16), (3, &frame[54..], 54 << 5 | 1 << 15));
    assert_eq!(driver.load(HEADERS, 54), frame[..54]);
    let (_, bytes, first) = driver.take().unwrap();
    assert_eq!((bytes, first >> 16), (other, 0));
    // Into 0 bytes nothing fits.
    driver.set(0x280c, 2 << 25 | 2);
    driver.fabric.send(driver.end, frame.clone());
    driver.run();
    let (status, bytes, first) = driver.take().unwrap();
    assert_eq!((status & 1 << 23, bytes, first >> 31), (1 << 23, frame, 0));
}

#[test]
fn a_reset_forgets_and_a_hung_one_needs_it() {
    both(|mut driver| {
        driver.fabric.strike(driver.nic, Fault::Hang);
        driver.store(OUT, &[7; 100]);
        let slot = driver.data(OUT, 100, EOP | IFCS | RS, 0, 100);
        driver.kick();
        assert!(!driver.done(slot) && driver.came.is_empty());
        driver.bring_up();
        let slot = driver.data(OUT, 100, EOP | IFCS | RS, 0, 100);
        driver.kick();
        assert!(driver.done(slot));
        assert_eq!(driver.came, [[7; 100]]);
    });
}

#[test]
fn a_second_transmit_ring_has_a_context_of_its_own() {
    const SECOND: u64 = TX + 0x800;
    both(|mut driver| {
        let mut frame = tcp([4; 6], 1000, 0x18, &[7; 3000]);
        frame[16..18].fill(0);
        frame[24..26].fill(0);
        driver.store(OUT, &frame);
        let registers = if driver.family == Family::Igb { 0xe040 } else { 0x3900 };
        let at = driver.address(SECOND);
        driver.set(registers, at as u32);
        driver.set(registers + 4, (at >> 32) as u32);
        driver.set(registers + 8, 16 * 16);
        driver.set(registers + 0x28, 1 << 25);
        if driver.family == Family::E1000e {
            assert_eq!(driver.get(0x3940), 1 << 10 | 3, "on, after a reset");
            driver.set(0x3940, 3);
        }
        // The same frame by both rings, in segments of 1500 and of 1000 bytes.
        for (size, ring) in [(1000, SECOND), (1500, TX)] {
            driver.tx_tail = 0;
            context(&mut driver, size);
            driver.data(OUT, 54, IFCS | TSE, 3, 3000);
            driver.data(OUT + 54, 3000, EOP | IFCS | RS | TSE, 3, 0);
            let raw = driver.load(TX, 3 * 16);
            driver.store(ring, &raw);
        }
        driver.set(registers + 0x18, 3);
        driver.run();
        if driver.family == Family::E1000e {
            assert_eq!(driver.came.len(), 0, "it is not arbitrated for (TARC1)");
            driver.set(0x3940, 1 << 10 | 3);
            driver.set(registers + 0x18, 3);
        }
        driver.kick();
        let mut lengths: Vec<usize> = driver.came.iter().map(Vec::len).collect();
        lengths.sort_unstable();
        assert_eq!(lengths, [1054, 1054, 1054, 1554, 1554]);
        assert!(driver.done(2), "the first ring's");
        assert_eq!(driver.load(SECOND + 2 * 16 + 12, 1), [1], "the second one's");
        assert_eq!((driver.get(0x3810), driver.get(registers + 0x10)), (3, 3), "heads");
    });
}

#[test]
fn a_queue_that_is_stopped_forgets_what_is_under_way() {
    let mut driver = Driver::new(Family::Igb);
    driver.store(OUT, &[7; 2000]);
    for steps in 0..60 {
        driver.data(OUT, 1000, EOP | IFCS | RS, 0, 1000);
        driver.set(0x3818, driver.tx_tail);
        driver.wait(Duration::from_nanos(steps * 100));
        // Stopped in the middle, set up anew, and started with a shorter frame.
        driver.came.clear();
        driver.set(0x3828, 0);
        driver.tx_tail = 0;
        driver.set(0x3810, 0);
        driver.set(0x3818, 0);
        driver.store(TX, &[0; 256]);
        driver.set(0x3828, 1 << 25);
        let slot = driver.data(OUT, 100, EOP | IFCS | RS, 0, 100);
        driver.kick();
        assert!(driver.done(slot), "{steps}");
        assert_eq!(driver.came.last(), Some(&vec![7; 100]));
        assert!(driver.came[..driver.came.len() - 1].iter().all(|frame| *frame == [7; 1000]));
        assert_eq!(driver.get(0x3810), 1);
    }
}

#[test]
fn long_frames_take_many_small_buffers() {
    let mut driver = Driver::cold(Config::new(Family::E1000e, MAC));
    driver.size = 96;
    driver.bring_up();
    // 256-byte buffers, long frames.
    driver.set(0x100, 1 << 1 | 1 << 5 | 3 << 16 | 1 << 26);
    let frame = [&MAC[..], &[5; 9000]].concat();
    driver.fabric.send(driver.end, frame.clone());
    driver.run();
    let mut bytes = Vec::new();
    loop {
        let (status, piece, _) = driver.take().unwrap();
        bytes.extend(piece);
        if status & 2 != 0 {
            break;
        }
    }
    assert_eq!(bytes, frame);
}

#[test]
fn frames_are_struck_by_faults() {
    both(|mut driver| {
        let at = driver.fabric.now();
        for (skip, fault) in [
            (0, Fault::DropFrame),
            (1, Fault::DuplicateFrame),
            (2, Fault::DelayFrame(Duration::from_millis(1))),
            (3, Fault::CorruptFrame { undetected: false }),
            (4, Fault::CorruptFrame { undetected: true }),
        ] {
            driver.fabric.inject(driver.nic, Rule::once(When::Transmit, fault).after(skip));
            driver.fabric.inject(driver.nic, Rule::once(When::Receive, fault).after(skip));
        }
        for i in 0..6u8 {
            driver.store(OUT + 2048 * u64::from(i), &[i; 60]);
            driver.data(OUT + 2048 * u64::from(i), 60, EOP | IFCS, 0, 60);
            driver.fabric.send(driver.end, [&MAC[..], &[i; 60]].concat());
        }
        driver.kick();
        assert!(driver.fabric.now() > at);
        let firsts: Vec<u8> = driver.came.iter().map(|frame| frame[59]).collect();
        assert_eq!(firsts, [1, 1, 5, 5, 2]);
        let received: Vec<u8> = std::iter::from_fn(|| driver.take()).map(|(_, bytes, _)| bytes[65]).collect();
        assert_eq!(received, [1, 1, 5, 5, 2]);
    });
}

#[test]
fn rings_are_struck_by_faults() {
    both(|mut driver| {
        let frame: Vec<u8> = [&MAC[..], &[7; 94]].concat();
        let receive = |driver: &mut Driver, fault| {
            driver.fabric.inject(driver.nic, Rule::once(When::Store, fault));
            driver.store(IN, &[0xee; 2048 * 16]);
            driver.fabric.send(driver.end, frame.clone());
            driver.run();
            driver.take()
        };
        let (status, bytes, _) = receive(&mut driver, Fault::ShortDma(10)).unwrap();
        assert_eq!((status & 3, &bytes[..]), (3, &[&frame[..90], &[0xee; 10]].concat()[..]));
        let (_, bytes, _) = receive(&mut driver, Fault::MisdirectedDma(1024)).unwrap();
        assert_eq!(bytes, [0xee; 100]);
        let (_, bytes, _) = receive(&mut driver, Fault::CorruptDma).unwrap();
        assert_eq!((&bytes[..99], bytes[99]), (&frame[..99], 6));
        assert_eq!(receive(&mut driver, Fault::WrongLength(60_000)).unwrap().1.len(), 60_000);
        assert_eq!(receive(&mut driver, Fault::ReceiveError).unwrap().0 >> 31, 1);
        assert_eq!(receive(&mut driver, Fault::DelayCompletion(Duration::from_millis(30))), None);
        driver.run();
        assert_eq!(driver.take().unwrap().1, frame);
        assert_eq!(receive(&mut driver, Fault::DuplicateCompletion).unwrap().1, frame);
        assert_eq!(driver.take().unwrap().1, [0xee; 100]);
        driver.store(OUT, &[1; 100]);
        for (fault, done, sent) in [
            (Fault::DropCompletion, false, vec![1; 100]),
            (Fault::ShortDma(50), true, [[1; 50], [0; 50]].concat()),
            (Fault::CorruptDma, true, [&[1; 99][..], &[0]].concat()),
            (Fault::MisdirectedDma(200), true, vec![0; 100]),
        ] {
            driver.fabric.inject(driver.nic, Rule::once(When::Fetch, fault));
            driver.came.clear();
            let slot = driver.data(OUT, 100, EOP | IFCS | RS, 0, 100);
            driver.kick();
            assert_eq!((driver.done(slot), &driver.came), (done, &vec![sent]), "{fault:?}");
        }
        driver.fabric.inject(driver.nic, Rule::once(When::Fetch, Fault::Hang));
        driver.came.clear();
        driver.data(OUT, 100, EOP | IFCS | RS, 0, 100);
        driver.kick();
        assert!(driver.came.is_empty());
    });
}

#[test]
fn a_lost_write_back_is_seen_as_no_frame() {
    both(|mut driver| {
        let ring = Window { address: driver.address(RX), length: 256 };
        driver.fabric.inject(driver.nic, Rule::once(When::Write(ring), Fault::DropTransaction));
        driver.fabric.send(driver.end, [&MAC[..], &[1; 100]].concat());
        driver.run();
        assert_eq!(driver.take(), None);
        driver.fabric.remove(driver.nic);
        driver.fabric.send(driver.end, [&MAC[..], &[1; 100]].concat());
        driver.run();
        assert_eq!(driver.take(), None);
    });
}

#[test]
fn legacy_descriptors_work_both_ways() {
    both(|mut driver| {
        if driver.family == Family::Igb {
            driver.set(0x280c, 2);
        } else {
            driver.set(0x5008, 0);
        }
        let frame = tcp(MAC, 5, 0x18, &[1; 301]);
        driver.fabric.send(driver.end, frame.clone());
        driver.run();
        let raw = driver.load(RX, 16);
        assert_eq!(raw[8..10], (frame.len() as u16).to_le_bytes());
        assert_eq!((raw[12], raw[13]), (1 << 6 | 1 << 5 | 3, 0));
        assert_eq!(driver.load(IN, frame.len()), frame);
        // A sum from the TCP header on.
        let mut given = frame.clone();
        given[50..52].copy_from_slice(&sum(&[10, 0, 0, 1, 10, 0, 0, 2, 0, 6, 1, 65]).to_be_bytes());
        driver.store(OUT, &given);
        let at = driver.address(OUT);
        let slot = driver.put(at, [given.len() as u32 | 50 << 16 | EOP | IFCS | RS | 1 << 26, 34 << 8]);
        driver.kick();
        assert!(driver.done(slot));
        assert_eq!(driver.came, [frame]);
    });
}

#[test]
fn what_one_nic_cuts_up_the_other_finds_right() {
    for (from, to) in [(Family::Igb, Family::E1000e), (Family::E1000e, Family::Igb)] {
        let mut driver = Driver::cold(Config::new(from, [4; 6]));
        let other = driver.fabric.add_device("other", Rate::GEN2_X4, Nic::new(Config::new(to, MAC)));
        driver.fabric.set_bus_master(other, true);
        let first = driver.nic;
        driver.fabric.plug(driver.end, other);
        driver.size = 64;
        (driver.nic, driver.family, driver.base) = (other, to, 1 << 20);
        driver.bring_up();
        (driver.nic, driver.family, driver.base) = (first, from, 0);
        driver.bring_up();
        let payload: Vec<u8> = (0..60_000u32).map(|i| ((i * 31) >> 3) as u8).collect();
        let mut given = tcp(MAC, 1000, 0x18, &payload);
        given[16..18].fill(0);
        given[24..26].fill(0);
        given[50..52].copy_from_slice(&sum(&[10, 0, 0, 1, 10, 0, 0, 2, 0, 6]).to_be_bytes());
        driver.store(OUT, &given);
        context(&mut driver, 1000);
        let length = given.len() as u32;
        driver.data(OUT, 60_000, IFCS | TSE, 3, length - 54);
        driver.data(OUT + 60_000, length - 60_000, EOP | IFCS | TSE | RS, 3, 0);
        driver.kick();
        (driver.nic, driver.family, driver.base, driver.rx_head) = (other, to, 1 << 20, 0);
        let mut came = Vec::new();
        while let Some((status, bytes, _)) = driver.take() {
            assert_eq!(status, 1 << 9 | 1 << 6 | 1 << 5 | 3);
            came.extend_from_slice(&bytes[54..]);
        }
        assert_eq!(came, payload);
    }
}

#[test]
fn each_family_has_its_own_way_to_a_link() {
    let mut fabric = Fabric::new(Timing::default(), 1 << 20, 3);
    let one = fabric.add_device("one", Rate::GEN2_X4, Nic::new(Config::new(Family::Igb, MAC)));
    let two = fabric.add_device("two", Rate::GEN2_X4, Nic::new(Config::new(Family::E1000e, [4; 6])));
    let [_, far] = fabric.connect(Wire::default(), [Some(one), Some(two)]);
    fabric.run(Duration::from_millis(10));
    // The second keeps its link by itself; the first waits to be told.
    assert!(!fabric.device::<Nic>(one).link());
    assert!(fabric.device::<Nic>(two).link());
    fabric.set_carrier(far, false);
    fabric.run(Duration::from_millis(20));
    assert!(!fabric.device::<Nic>(two).link());
    // A NIC that is pulled out takes the carrier with it, and brings it back.
    fabric.set_carrier(far, true);
    fabric.run(Duration::from_millis(30));
    assert!(fabric.device::<Nic>(two).link());
    fabric.remove(one);
    fabric.run(Duration::from_millis(40));
    assert!(!fabric.device::<Nic>(two).link());
    fabric.reset(one);
    fabric.run(Duration::from_millis(50));
    assert!(fabric.device::<Nic>(two).link());
}

#[test]
fn frames_go_out_at_the_rate_of_the_wire() {
    let mut driver = Driver::new(Family::Igb);
    driver.store(OUT, &[1; 1514]);
    let start = driver.fabric.now();
    for _ in 0..15 {
        driver.data(OUT, 1514, EOP | IFCS, 0, 1514);
    }
    driver.set(0x3818, driver.tx_tail);
    let mut last = start;
    while let Some(event) = driver.fabric.step(Some(start + Duration::from_millis(5))) {
        if matches!(event, Event::Frame { .. }) {
            last = driver.fabric.now();
        }
    }
    let line = Duration::from_nanos(15 * 1538 * 8);
    assert!(last - start > line && last - start < line + Duration::from_micros(10), "{:?}", last - start);
}

#[test]
fn a_queue_of_the_82576_has_a_vector_of_its_own_and_reports_its_head() {
    let mut driver = Driver::new(Family::Igb);
    driver.set(0x1514, 1 << 4);
    driver.set(0x1700, 0x8382);
    driver.set(0x1524, 0xff);
    driver.set(0x152c, 0xff);
    let report = driver.address(OUT + 0x1000);
    driver.set(0xe038, report as u32 | 1);
    driver.set(0xe03c, (report >> 32) as u32);
    driver.store(OUT, &[1; 100]);
    let slot = driver.data(OUT, 100, EOP | IFCS | RS, 0, 100);
    driver.kick();
    assert!(!driver.done(slot));
    assert_eq!(driver.load(OUT + 0x1000, 4), [1, 0, 0, 0]);
    driver.fabric.send(driver.end, [&MAC[..], &[1; 100]].concat());
    driver.run();
    assert_eq!([2, 3].map(|vector| driver.fabric.interrupts(driver.nic, vector)), [1, 1]);
    assert_eq!(driver.fabric.interrupts(driver.nic, 0), 0);
}
