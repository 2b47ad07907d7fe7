//! Random guests: no panic, no access outside their memory, and the drive goes on. And the bound of the
//! shares.

use dcs_csd::near::{FROM_GUEST, NO_DATA, TO_GUEST};
use dcs_csd::shares::QUANTUM;
use dcs_csd::storage::ModelStorage;
use dcs_csd::{Config, Shares, VolumeId};
use dcs_nvme::command::{Blocks, Command, nvm};
use dcs_nvme::walk::{HostRange, Walk};
use dcs_nvme::{DataPointer, Status};
use proptest::prelude::*;

use crate::rig::{BASE, DATA, ENTRIES, LENGTH, LISTS, Machine, disk};

/// An action of a guest.
#[derive(Clone, Debug)]
enum Act {
    Register { offset: u64, bytes: Vec<u8> },
    Entry { queue: u16, bytes: Vec<u8> },
    Command { queue: u16, command: Command },
    List { at: u64, bytes: Vec<u8> },
    Reset,
    Enable,
    Detach(u32),
    Work,
}

fn address() -> impl Strategy<Value = u64> {
    prop_oneof![
        (0u64..LENGTH / 512).prop_map(|at| BASE + at * 512),
        Just(DATA),
        Just(LISTS),
        Just(BASE + LENGTH - 4096),
        any::<u64>(),
    ]
}

fn command() -> impl Strategy<Value = Command> {
    let opcode = prop_oneof![
        Just(nvm::READ),
        Just(nvm::WRITE),
        Just(nvm::FLUSH),
        Just(nvm::COMPARE),
        Just(nvm::WRITE_ZEROES),
        Just(nvm::DATASET_MANAGEMENT),
        Just(NO_DATA),
        Just(FROM_GUEST),
        Just(TO_GUEST),
        0u8..16,
        Just(0x7c),
    ];
    let data = prop_oneof![
        (address(), address()).prop_map(|(first, second)| DataPointer::Prp(first, second)),
        (address(), 0u32..70_000, 0u8..5).prop_map(|(address, length, kind)| {
            let one = dcs_nvme::sgl::Descriptor { kind, ..dcs_nvme::sgl::Descriptor::data(address, length) };
            DataPointer::Sgl(one)
        }),
    ];
    let words = prop_oneof![
        any::<[u32; 6]>(),
        (0u64..300, 1u32..300).prop_map(|(first, count)| Blocks { first, count, durable: false }.words()),
        (0u32..12, any::<u32>()).prop_map(|(low, high)| [low | high & 0x7_0000, high & 0x3_0003, 0, 0, 0, 0]),
    ];
    (opcode, prop_oneof![Just(1u32), any::<u32>(), Just(0)], data, words).prop_map(
        |(opcode, namespace, data, words)| Command { opcode, namespace, data, words, ..Command::default() },
    )
}

fn act() -> impl Strategy<Value = Act> {
    let offset = prop_oneof![0u64..0x60, 0x1000u64..0x1060, any::<u64>()];
    prop_oneof![
        1 => (offset, prop::collection::vec(any::<u8>(), 0..10)).prop_map(|(offset, bytes)| Act::Register { offset, bytes }),
        1 => (0u16..3, prop::collection::vec(any::<u8>(), 64)).prop_map(|(queue, bytes)| Act::Entry { queue, bytes }),
        8 => (0u16..3, command()).prop_map(|(queue, command)| Act::Command { queue, command }),
        2 => (0u64..64, prop::collection::vec(any::<u8>(), 0..200)).prop_map(|(at, bytes)| Act::List { at: at * 8, bytes }),
        2 => prop::collection::vec(address(), 1..40).prop_map(|list| {
            Act::List { at: 0, bytes: list.iter().flat_map(|one| one.to_le_bytes()).collect() }
        }),
        1 => Just(Act::Reset),
        2 => Just(Act::Enable),
        1 => (0u32..4).prop_map(Act::Detach),
        3 => Just(Act::Work),
    ]
}

/// Only the parts of the guest's memory that the controller may write change; the machine itself reports
/// other attempts.
fn behave(acts: &[Act], direct: bool) -> Machine<ModelStorage> {
    let config = Config { queues: 2, commands: 5, buffers: 1, ..Config::new("anything") };
    let mut machine = Machine::new(config, disk(128 << 10), direct).up();
    machine.create(2);
    for act in acts {
        match act {
            Act::Register { offset, bytes } => {
                machine.controller().register_write(*offset, bytes);
                let mut read = vec![0; bytes.len()];
                machine.controller().register_read(*offset, &mut read);
            }
            Act::Entry { queue, bytes } => {
                let bytes: [u8; 64] = bytes[..].try_into().unwrap();
                machine.submit(*queue, Command::from_bytes(&bytes));
            }
            Act::Command { queue, command } => {
                machine.submit(*queue, *command);
            }
            Act::List { at, bytes } => machine.guest.store(LISTS + at, bytes),
            Act::Reset => machine.controller().reset(),
            Act::Enable => {
                machine.again();
                machine.create(2);
            }
            Act::Detach(number) => drop(machine.controller().detach(*number)),
            Act::Work => machine.work(),
        }
        while machine.reap(0).is_some() {}
    }
    machine
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn whatever_a_guest_does_the_drive_goes_on(acts in prop::collection::vec(act(), 0..60), direct in any::<bool>()) {
        let mut machine = behave(&acts, direct);
        // A reset later it is as new.
        machine.controller().reset();
        machine.work();
        machine.enable();
        machine.create(1);
        let _ = machine.controller().detach(1);
        machine.attach(1, dcs_csd::VolumeId(0), 512);
        let words = Blocks { first: 0, count: 1, durable: false }.words();
        let data = DataPointer::Prp(DATA, 0);
        let read = Command { opcode: nvm::READ, namespace: 1, data, words, ..Command::default() };
        for _ in 0..2 * ENTRIES {
            prop_assert_eq!(machine.run(1, read).status, Status::SUCCESS);
        }
        prop_assert_eq!(machine.controller().outstanding(), 0);
    }

    /// A walk reads lists where it is told, names as many bytes as are wanted, and ends.
    #[test]
    fn walks_end(
        pointer in prop_oneof![
            (0u64..1 << 20, 0u64..1 << 20).prop_map(|(first, second)| DataPointer::Prp(first, second * 8)),
            (any::<u64>(), any::<u32>(), 0u8..4).prop_map(|(address, length, kind)| {
                DataPointer::Sgl(dcs_nvme::sgl::Descriptor { address, length, kind, subtype: 0 })
            }),
        ],
        length in 0u64..3 << 20,
        bytes in prop::collection::vec(any::<u8>(), 1..300),
    ) {
        let mut at = 0;
        let mut read = |_: u64, group: &mut [u8]| {
            for byte in group.iter_mut() {
                *byte = bytes[at % bytes.len()];
                at += 1;
            }
            true
        };
        let mut walk = Walk::new(&pointer, length, 4096).unwrap();
        let (mut total, mut steps) = (0, 0);
        loop {
            match walk.next(&mut read) {
                Ok(Some(HostRange { length, .. })) => {
                    prop_assert!(length > 0);
                    (total, steps) = (total + length, steps + 1);
                }
                Ok(None) => {
                    prop_assert_eq!(total, length);
                    break;
                }
                Err(status) => {
                    prop_assert!(!status.is_success());
                    break;
                }
            }
            prop_assert!(steps <= 1 << 15);
        }
    }

    /// Data within one page are found where a walk finds them; nothing else is taken for that.
    #[test]
    fn data_within_one_page_are_where_a_walk_finds_them(first in 0u64..1 << 14, length in 0u64..9000, second in any::<u64>()) {
        let pointer = DataPointer::Prp(first, second);
        let mut walk = Walk::new(&pointer, length, 4096).unwrap();
        let mut found = Vec::new();
        let ended = loop {
            match walk.next(&mut |_, _| false) {
                Ok(Some(place)) => found.push(place),
                end => break end.is_ok(),
            }
        };
        let is_one = ended && found.len() == 1;
        prop_assert_eq!(HostRange::of_one_page(&pointer, length, 4096), is_one.then(|| found[0]));
    }

    /// The bound that the documentation of `Shares` names.
    #[test]
    fn members_get_their_shares(
        weights in prop::collection::vec(1u32..20, 2..6),
        costs in prop::collection::vec(1u64..2 << 20, 1..400),
        restless in any::<u64>(),
    ) {
        let mut shares = Shares::default();
        for (index, weight) in weights.iter().enumerate() {
            shares.set(index, *weight);
        }
        // The last member comes and goes; the others always have jobs.
        let last = weights.len() - 1;
        let mut got = vec![0u64; weights.len()];
        let mut largest = vec![0u64; weights.len()];
        for (turn, cost) in costs.iter().enumerate() {
            let index = shares.next(|index| index != last || restless >> (turn % 64) & 1 == 1).unwrap();
            prop_assert!(index != last || restless >> (turn % 64) & 1 == 1);
            shares.charge(index, *cost);
            // Answers come that cost nothing more.
            shares.charge((restless >> (turn % 61)) as usize % weights.len(), 0);
            got[index] += cost;
            largest[index] = largest[index].max(*cost);
            for one in 0..last {
                for other in 0..last {
                    let share = |of: usize| got[of] / u64::from(weights[of]);
                    let slack = |of: usize| largest[of].div_ceil(u64::from(weights[of]));
                    let bound = QUANTUM + slack(one) + slack(other) + 2;
                    prop_assert!(share(one) <= share(other) + bound, "{one} and {other}: {got:?}, {weights:?}");
                }
            }
        }
    }
}

/// Two guests on one storage, which does one command at a time.
#[test]
fn a_tenant_that_floods_gets_no_more_than_its_share() {
    let mut large = Machine::with_window(Config::new("large"), disk(4 << 20), true, 1).up();
    let small = Machine::new(Config::new("small"), ModelStorage::new(0), true);
    let mut small = large.beside(small, VolumeId(0), 1);
    let read = |count| {
        let words = Blocks { first: 0, count, durable: false }.words();
        let data = DataPointer::Sgl(dcs_nvme::sgl::Descriptor::data(DATA, count * 512));
        Command { opcode: nvm::READ, namespace: 1, data, words, ..Command::default() }
    };
    for _ in 1..ENTRIES {
        large.submit(1, read(2048));
        small.submit(1, read(8));
    }
    let (mut of_large, mut of_small) = (0, 0);
    while of_small < 7 {
        large.drives.poll();
        of_large += usize::from(large.reap(1).is_some());
        of_small += usize::from(small.reap(1).is_some());
    }
    // One that was begun, and one for the credit of a round.
    assert!(of_large <= 2, "{of_large} commands of 1 MiB before 7 of 4 KiB");
    large.work();
    assert_eq!(std::iter::from_fn(|| large.reap(1)).count() + of_large, 7);
}

/// 64 guests of different weights on one storage, each with two queues that are never empty: what each got
/// differs from its share by no more than `dcs_csd::shares` says, and what is under way.
#[test]
fn sixty_four_guests_get_their_shares() {
    const GUESTS: usize = 64;
    // Fewer than a queue has entries: what ends is followed before a queue is empty.
    const WINDOW: u64 = 4;
    let mut storage = ModelStorage::new(5);
    let volume = storage.add(1 << 20, 512);
    let mut shared = dcs_csd::Drives::new(storage, WINDOW as usize);
    let weight = |number: usize| 1 + number as u64 % 4;
    // Bytes of its commands: 512, 4,096 and 32,768; the first ones flood with large ones.
    let bytes = |number: usize| 512 << (3 * (number as u64 % 3));
    let mut machines: Vec<Machine<ModelStorage>> = Vec::new();
    for number in 0..GUESTS {
        let config = Config { memory: 0, ..Config::new(&format!("guest {number}")) };
        let mut machine = Machine::new(config, ModelStorage::new(0), true);
        machine.drive = shared.add(machine.controller.clone(), machine.guest.clone(), weight(number) as u32);
        std::mem::swap(&mut shared, &mut machine.drives);
        machine.attach(1, volume, 512);
        machine.enable();
        machine.create(1);
        machine.create(2);
        std::mem::swap(&mut shared, &mut machine.drives);
        machines.push(machine);
    }
    let submit = |machine: &mut Machine<ModelStorage>, number: usize, queue| {
        let words = Blocks { first: 0, count: (bytes(number) / 512) as u32, durable: false }.words();
        let data = DataPointer::Sgl(dcs_nvme::sgl::Descriptor::data(DATA, bytes(number) as u32));
        machine.submit(queue, Command { opcode: nvm::READ, namespace: 1, data, words, ..Command::default() });
    };
    for (number, machine) in machines.iter_mut().enumerate() {
        (1..ENTRIES).for_each(|_| [1, 2].into_iter().for_each(|queue| submit(machine, number, queue)));
    }
    let cost = |number: usize| 4096 + bytes(number);
    let (mut got, mut now) = ([0u64; GUESTS], 0);
    for _ in 0..6_000 {
        now += 5;
        shared.storage_mut().advance(now);
        shared.poll();
        for (number, machine) in machines.iter_mut().enumerate() {
            for queue in [1, 2] {
                while let Some(done) = machine.reap(queue) {
                    assert_eq!(done.status, Status::SUCCESS);
                    got[number] += cost(number);
                    submit(machine, number, queue);
                }
            }
        }
    }
    let share = |number: usize| got[number] / weight(number);
    let slack = |number: usize| (1 + WINDOW) * cost(number) / weight(number);
    for one in 0..GUESTS {
        for other in 0..GUESTS {
            let bound = QUANTUM + slack(one) + slack(other);
            assert!(
                share(one).abs_diff(share(other)) <= bound,
                "{one} got {}, {other} {}",
                got[one],
                got[other]
            );
        }
    }
    // Each had many turns.
    assert!((0..GUESTS).all(|number| share(number) > 15 * QUANTUM), "{got:?}");
}

/// 64 guests on one storage: each writes its own pattern and reads it again, while one resets its
/// controller again and again, one sends anything, and one is taken out.
#[test]
fn guests_keep_to_themselves() {
    const GUESTS: usize = 64;
    const BYTES: usize = 64 << 10;
    let mut storage = ModelStorage::new(5);
    let volumes: Vec<_> = (0..GUESTS).map(|_| storage.add(BYTES, 512)).collect();
    let mut shared = dcs_csd::Drives::new(storage, 8);
    let mut machines: Vec<Machine<ModelStorage>> = Vec::new();
    for (number, volume) in volumes.iter().enumerate() {
        let config = Config { buffers: 2, memory: 0, ..Config::new(&format!("guest {number}")) };
        // Every third one's memory cannot be reached by the kernel.
        let mut machine = Machine::new(config, ModelStorage::new(0), number % 3 > 0);
        machine.drive = shared.add(machine.controller.clone(), machine.guest.clone(), 1 + number as u32 % 4);
        std::mem::swap(&mut shared, &mut machine.drives);
        machine.attach(1, *volume, 512);
        machine.enable();
        machine.create(1);
        std::mem::swap(&mut shared, &mut machine.drives);
        machines.push(machine);
    }
    let block = |guest: usize, lba: u64| [guest as u8 ^ (lba as u8).wrapping_mul(31); 512];
    let command = |opcode, slot: u64, lba| {
        let words = Blocks { first: lba, count: 1, durable: false }.words();
        let data = DataPointer::Prp(DATA + slot * 512, 0);
        Command { opcode, namespace: 1, data, words, ..Command::default() }
    };
    let (resets, hostile, leaves) = (3, 7, 11);
    let mut now = 0;
    for opcode in [nvm::WRITE, nvm::READ] {
        for first in (0..BYTES as u64 / 512).step_by(7) {
            let count = (BYTES as u64 / 512 - first).min(7);
            for (number, machine) in machines.iter_mut().enumerate() {
                match number {
                    _ if number == resets && first % 3 == 0 => machine.controller().reset(),
                    _ if number == hostile => {
                        let junk = std::array::from_fn(|at| (first as u8).wrapping_mul(at as u8 | 1));
                        machine.submit_bytes(1, junk);
                    }
                    _ if number == leaves && first == 70 => shared.remove(machine.drive),
                    _ => {
                        for slot in 0..count {
                            let lba = first + slot;
                            if opcode == nvm::WRITE {
                                machine.guest.store(DATA + slot * 512, &block(number, lba));
                            }
                            machine.submit(1, command(opcode, slot, lba));
                        }
                    }
                }
            }
            let good = |number| ![resets, hostile, leaves].contains(&number);
            let mut left = [count; GUESTS];
            while (0..GUESTS).any(|number| good(number) && left[number] > 0) {
                now += 5;
                shared.storage_mut().advance(now);
                shared.poll();
                for (number, machine) in machines.iter_mut().enumerate() {
                    while let Some(done) = machine.reap(1) {
                        assert!(!good(number) || done.status == Status::SUCCESS, "{number}: {}", done.status);
                        left[number] = left[number].saturating_sub(1);
                    }
                }
            }
            for (number, machine) in machines.iter().enumerate().filter(|(number, _)| good(*number)) {
                for slot in 0..count {
                    assert!(machine.guest.load(DATA + slot * 512) == block(number, first + slot));
                }
            }
        }
    }
    assert!(shared.is_removed(machines[leaves].drive));
    for number in (0..GUESTS).filter(|number| ![resets, hostile, leaves].contains(number)) {
        let bytes = shared.storage().bytes(volumes[number]).chunks(512).zip(0..);
        assert!(bytes.into_iter().all(|(bytes, lba)| bytes == block(number, lba)), "guest {number}");
    }
}
