//! Checks that with any register writes and any contents of memory the models keep working, and access only
//! granted memory.

use std::time::Duration;

use dcs_drivers::bus::{Bus, Tag, Window};
use dcs_fabric::{Access, Fabric, FunctionId, Iommu, Rate, Timing, Wire, nic, nvme};
use proptest::prelude::*;

const MEMORY: u64 = 1 << 18;

/// A card, a model that may reach only the second half of the card's memory, and a wire at it.
struct Rig {
    fabric: Fabric,
    card: FunctionId,
    model: FunctionId,
    end: dcs_fabric::WireEnd,
}

fn rig(add: impl FnOnce(&mut Fabric) -> FunctionId) -> Rig {
    let mut fabric = Fabric::new(Timing::default(), 1 << 20, 1);
    let card = fabric.add_endpoint("card", Rate::GEN3_X8, &[MEMORY]);
    let model = add(&mut fabric);
    fabric.set_bus_master(card, true);
    fabric.set_bus_master(model, true);
    let window = fabric.port(card).window();
    let mut iommu = Iommu::new();
    let granted = Window { address: window.address + MEMORY / 2, length: MEMORY / 2 };
    iommu.map(granted, granted.address, Access::ReadWrite);
    fabric.set_iommu(model, Some(iommu));
    let [_, end] = fabric.connect(Wire::default(), [Some(model), None]);
    Rig { fabric, card, model, end }
}

#[derive(Clone, Debug)]
enum Act {
    /// Write a register: a value, or an address in the granted memory.
    Write(u64, u32),
    Point(u64, u32),
    Read(u64, u32),
    /// Store these bytes in memory.
    Store(u32, Vec<u8>),
    /// Store a list of plausible entries in memory: words with the top bit set become addresses in the granted
    /// memory.
    Entries(u32, Vec<u64>),
    Frame(Vec<u8>),
    Wait(u32),
}

/// Generates actions that favour important registers.
fn act(
    doorbells: &'static [u64],
    registers: &'static [u64],
    entry: impl Strategy<Value = Vec<u64>>,
) -> impl Strategy<Value = Act> {
    let entries = proptest::collection::vec(entry, 1..8).prop_map(|entries| entries.concat());
    let start = prop_oneof![Just(0), Just(0x1000), Just(0x3000), (0u32..32).prop_map(|page| page * 4096)];
    let register =
        prop_oneof![4 => proptest::sample::select(registers), 1 => (0u64..1 << 15).prop_map(|at| at & !3)];
    let value = prop_oneof![any::<u32>(), 0u32..64, Just(1 << 25), (0u32..32).prop_map(|bit| 1 << bit)];
    let page = (0u32..(MEMORY / 2 / 4096) as u32).prop_map(|page| page * 4096);
    prop_oneof![
        16 => (proptest::sample::select(doorbells), 0u32..17).prop_map(|(at, value)| Act::Write(at, value)),
        1 => (register.clone(), value).prop_map(|(at, value)| Act::Write(at, value)),
        1 => (register.clone(), page.clone()).prop_map(|(at, page)| Act::Point(at, page)),
        1 => (register, 1u32..9).prop_map(|(at, length)| Act::Read(at, length)),
        1 => (page, proptest::collection::vec(any::<u8>(), 1..200)).prop_map(|(at, bytes)| Act::Store(at, bytes)),
        12 => (start, entries).prop_map(|(at, words)| Act::Entries(at, words)),
        1 => proptest::collection::vec(any::<u8>(), 0..1600).prop_map(Act::Frame),
        1 => proptest::collection::vec(any::<u8>(), 60..200).prop_map(|bytes| Act::Frame([&MAC[..], &bytes].concat())),
        4 => (0u32..2_000_000).prop_map(Act::Wait),
    ]
}

fn carry_out(mut rig: Rig, setup: &[(u64, u64)], acts: Vec<Act>) {
    let registers = rig.fabric.bar(rig.model, 0);
    let memory = rig.fabric.port(rig.card).window();
    let granted = memory.address + MEMORY / 2;
    rig.fabric.port(rig.card).store(0, &vec![0xa5; MEMORY as usize / 2]);
    for (at, value) in setup {
        let value = if *value >> 63 == 1 { granted + (value & 0xffff) } else { *value };
        let bytes =
            if value >> 32 == 0 { value.to_le_bytes()[..4].to_vec() } else { value.to_le_bytes().to_vec() };
        rig.fabric.port(rig.card).write(registers.address + at, &bytes);
    }
    rig.fabric.run(Duration::from_millis(30));
    for act in acts {
        let now = rig.fabric.now();
        let mut port = rig.fabric.port(rig.card);
        match act {
            Act::Write(at, value) => port.write(registers.address + at, &value.to_le_bytes()),
            Act::Point(at, page) => {
                port.write(registers.address + at, &(granted + u64::from(page)).to_le_bytes());
            }
            Act::Read(at, length) => port.read(registers.address + at, length, Tag(0)),
            Act::Store(at, bytes) => {
                // Favours addresses in the granted memory: every eighth byte may begin one.
                let mut bytes = bytes;
                for word in bytes.chunks_exact_mut(8).filter(|word| word[0] & 3 == 0) {
                    word.copy_from_slice(&(granted + u64::from(word[1]) * 512).to_le_bytes());
                }
                port.store(MEMORY / 2 + u64::from(at), &bytes);
            }
            Act::Entries(at, words) => {
                let pointed = |word: u64| if word & GRANTED != 0 { granted + (word & 0x1ffff) } else { word };
                let bytes: Vec<u8> = words.into_iter().map(pointed).flat_map(u64::to_le_bytes).collect();
                port.store(MEMORY / 2 + u64::from(at), &bytes);
            }
            Act::Frame(bytes) => rig.fabric.send(rig.end, bytes),
            Act::Wait(time) => rig.fabric.run(now + Duration::from_nanos(time.into())),
        }
    }
    rig.fabric.run(rig.fabric.now() + Duration::from_millis(100));
    let mut kept = vec![0; MEMORY as usize / 2];
    rig.fabric.port(rig.card).load(0, &mut kept);
    assert!(kept.iter().all(|byte| *byte == 0xa5), "memory that was not granted");
    assert_eq!(rig.fabric.host_memory_traffic().bytes(), 0);
    // It still answers.
    assert!(rig.fabric.read(rig.card, registers.address + 8, 4).is_ok());
}

const GRANTED: u64 = 1 << 63;
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];

/// Generates a submission queue entry that is nearly right.
fn command() -> impl Strategy<Value = Vec<u64>> {
    let opcode = proptest::sample::select(&[0u64, 1, 2, 4, 5, 6, 8, 9, 10, 12][..]);
    let flags = prop_oneof![5 => Just(0u64), 1 => Just(0x40), 1 => 0u64..256];
    let nsid = prop_oneof![5 => Just(1u64), 1 => any::<u64>()];
    let pointer = prop_oneof![
        (0u64..32).prop_map(|page| GRANTED | (page * 4096)),
        any::<u64>().prop_map(|at| at | GRANTED)
    ];
    let number = prop_oneof![0u64..4, (0u64..64).prop_map(|n| n << 16 | 1), any::<u64>()];
    let high = prop_oneof![4 => Just(0), 1 => any::<u64>()];
    let tail = [number.clone().boxed(), high.boxed(), number.boxed()];
    (opcode, flags, any::<u16>(), nsid, [pointer.clone(), pointer], tail).prop_map(
        |(opcode, flags, cid, nsid, data, tail)| {
            let first = opcode | flags << 8 | u64::from(cid) << 16 | nsid << 32;
            let [a, b, c] = tail;
            vec![first, 0, 0, data[0], data[1], a | b << 32, c, 0]
        },
    )
}

/// Returns the creation of queue 1, at an offset in the granted memory.
fn queue(opcode: u64, at: u64) -> Vec<u64> {
    vec![opcode, 0, 0, GRANTED | at, 0, 15 << 16 | 1 | 1 << 32 | u64::from(opcode == 1) << 48, 0, 0]
}

/// Generates a descriptor that is nearly right: any kind, small lengths, most bits.
fn descriptor() -> impl Strategy<Value = Vec<u64>> {
    let kind = prop_oneof![Just(0u64), Just(1), Just(2), Just(3), any::<u64>().prop_map(|kind| kind & 15)];
    let length = prop_oneof![0u64..2000, 0u64..65536];
    let command = prop_oneof![Just(0x2bu64), Just(0xab), Just(0x2f), 0u64..256];
    (0u64..1 << 17, length, kind, command, any::<u32>()).prop_map(|(at, length, kind, command, high)| {
        vec![at | GRANTED, length | kind << 20 | command << 24 | u64::from(high) << 32]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nvme(acts in proptest::collection::vec(
        act(&[0x1000, 0x1004, 0x1008, 0x1008, 0x100c], &[0x14, 0x24, 0x28, 0x30, 0x50, 0x54, 0xe04, 0xe14, 0xe18, 0x1010], command()), 0..120)) {
        let config = nvme::Config { sgl: nvme::Sgl::Bytes, cmb: 1 << 14, pmr: 1 << 14, ..nvme::Config::default() };
        let rig = rig(|fabric| fabric.add_device("ssd", Rate::GEN3_X4, nvme::Nvme::new(config)));
        let setup = [(0x24, 0x003f_003f), (0x28, GRANTED), (0x30, GRANTED | 0x1000), (0x14, 0x0046_0001)];
        // A queue pair: 16 entries each.
        let pair = [Act::Entries(0, [queue(5, 0x2000), queue(1, 0x3000)].concat()), Act::Write(0x1000, 2), Act::Wait(1_000_000)];
        carry_out(rig, &setup, pair.into_iter().chain(acts).collect());
    }

    #[test]
    fn igb(acts in proptest::collection::vec(
        act(&[0x2818, 0x3818], &[0, 0x18, 0x20, 0x100, 0x400, 0x2800, 0x2808, 0x280c, 0x2810, 0x2818, 0x2828, 0x3800, 0x3808, 0x3810,
            0x3818, 0x3818, 0x3828, 0xc058, 0xe058, 0x5008, 0x1514, 0x1700, 0x5480], descriptor()), 0..120)) {
        nic(nic::Family::Igb, acts);
    }

    #[test]
    fn e1000e(acts in proptest::collection::vec(
        act(&[0x2818, 0x3818], &[0, 0x20, 0x100, 0x400, 0x2800, 0x2808, 0x2810, 0x2818, 0x2828, 0x3800, 0x3808, 0x3810,
            0x3818, 0x3818, 0x5008], descriptor()), 0..120)) {
        nic(nic::Family::E1000e, acts);
    }
}

fn nic(family: nic::Family, acts: Vec<Act>) {
    let config = nic::Config::new(family, MAC);
    let rig = rig(|fabric| fabric.add_device("nic", Rate::GEN2_X4, nic::Nic::new(config)));
    let setup = [
        (0, 0x241),
        (0x20, 1 << 26 | 1 << 21 | 0x1340),
        (0x2800, GRANTED),
        (0x2808, 256),
        (0x280c, 2 << 25 | 0x201),
        (0x3800, GRANTED | 0x1000),
        (0x3808, 256),
        (0x100, 0x0400_803e),
        (0x400, 0xa),
        (0x2828, 1 << 25),
        (0x3828, 1 << 25),
        (0x2818, 15),
    ];
    carry_out(rig, &setup, acts);
}
