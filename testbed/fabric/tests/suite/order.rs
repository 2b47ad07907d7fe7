//! The rules of order, for any requests by any functions: PCIe's [5.0, 2.4], as `Bus` states them.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use dcs_drivers::bus::{Bus, Tag, Window};
use dcs_fabric::{Event, Fabric, Fault, FunctionId, HOST, Rate, Rule, Timing, When};
use proptest::prelude::*;

const SIZE: u64 = 1 << 16;

#[derive(Clone, Copy, Debug)]
enum Act {
    /// A write: requester, target, offset, length.
    Write(usize, usize, u64, u64),
    Read(usize, usize, u64),
    Interrupt(usize),
    Wait(u64),
}

fn act() -> impl Strategy<Value = Act> {
    let place = (0u64..8).prop_map(|slot| slot * 8192);
    let length = prop_oneof![Just(8u64), Just(64), 8u64..8192];
    prop_oneof![
        4 => (0usize..3, 0usize..4, place.clone(), length).prop_map(|(a, b, at, n)| Act::Write(a, b, at, n)),
        3 => (0usize..3, 0usize..4, place).prop_map(|(a, b, at)| Act::Read(a, b, at)),
        1 => (0usize..3).prop_map(Act::Interrupt),
        2 => (0u64..3000).prop_map(Act::Wait),
    ]
}

/// Events of one run, as far as known.
#[derive(Default)]
struct Seen {
    /// Number of the last write or interrupt that arrived, by requester.
    last: HashMap<usize, u64>,
    answers: usize,
    /// Number of each issued write, by requester, target and offset.
    made: HashMap<(usize, usize, u64), u64>,
    /// Least stamp that a read must return, by its tag.
    floor: HashMap<u64, (usize, u64)>,
    /// Interrupts that have yet to come, as writes.
    interrupts: HashMap<FunctionId, VecDeque<(usize, u64)>>,
}

impl Seen {
    /// Writes carry their maker and number in their first eight bytes.
    fn event(&mut self, event: Event) {
        match event {
            // The first piece alone carries it.
            Event::Written { bytes, offset, by, .. } if offset % 8192 == 0 => {
                let (maker, number) = read_stamp(&bytes);
                assert!(format!("{by:?}").contains(&maker.to_string()), "{by:?}");
                self.arrives(maker, number);
            }
            Event::Written { .. } => {}
            Event::Interrupt { function, .. } => {
                let made = self.interrupts.get_mut(&function).and_then(VecDeque::pop_front);
                let (maker, number) = made.expect("an interrupt that was raised");
                self.arrives(maker, number);
            }
            Event::Read { done, .. } => {
                let (maker, floor) = self.floor.remove(&done.tag.0).expect("one answer to each read");
                let (found, number) = read_stamp(&done.data.expect("an answer"));
                self.answers += 1;
                // The requester's own write is there, unless another overwrote it.
                assert!(found != maker || number >= floor, "{found} {number} < {floor}");
                assert!(found != 0 || floor == 0, "a write that is not there yet");
            }
            other => panic!("{other:?}"),
        }
    }

    fn arrives(&mut self, maker: usize, number: u64) {
        let last = self.last.insert(maker, number).unwrap_or(0);
        assert!(number > last, "{number} of {maker} after {last}");
    }
}

fn stamp(maker: usize, number: u64) -> [u8; 8] {
    (number << 8 | maker as u64).to_le_bytes()
}

fn read_stamp(bytes: &[u8]) -> (usize, u64) {
    let word = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
    ((word & 0xff) as usize, word >> 8)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn writes_keep_their_order_and_reads_push_them(
        acts in proptest::collection::vec(act(), 1..150),
        delayed in 0u16..300,
        seed: u64,
    ) {
        let mut fabric = Fabric::new(Timing::default(), SIZE, 1);
        let rates = [Rate::GEN2_X4, Rate::GEN3_X4, Rate::GEN3_X16];
        let makers: Vec<FunctionId> = rates.iter().map(|rate| fabric.add_endpoint("end", *rate, &[SIZE])).collect();
        let all = Window { address: 0, length: u64::MAX };
        for maker in &makers {
            fabric.set_bus_master(*maker, true);
            let late = Fault::DelayTransaction(Duration::from_micros(3));
            for when in [When::Write(all), When::Read(all)] {
                fabric.inject(*maker, Rule::sometimes(when, late, delayed, seed));
            }
        }
        let targets = [makers[0], makers[1], makers[2], HOST];
        let (mut seen, mut number, mut reads) = (Seen::default(), 0, 0);
        for act in acts {
            number += 1;
            match act {
                Act::Write(maker, target, at, length) => {
                    let address = fabric.port(targets[target]).window().address + at;
                    let mut bytes = vec![0; length as usize];
                    bytes[..8].copy_from_slice(&stamp(maker + 1, number));
                    fabric.port(makers[maker]).write(address, &bytes);
                    seen.made.insert((maker, target, at), number);
                }
                Act::Read(maker, target, at) => {
                    let address = fabric.port(targets[target]).window().address + at;
                    let floor = seen.made.get(&(maker, target, at)).copied().unwrap_or(0);
                    seen.floor.insert(number, (maker + 1, floor));
                    reads += 1;
                    fabric.port(makers[maker]).read(address, 8, Tag(number));
                }
                Act::Interrupt(maker) => {
                    seen.interrupts.entry(makers[maker]).or_default().push_back((maker + 1, number));
                    fabric.port(makers[maker]).interrupt(0);
                }
                Act::Wait(time) => {
                    let until = fabric.now() + Duration::from_nanos(time);
                    while let Some(event) = fabric.step(Some(until)) {
                        seen.event(event);
                    }
                }
            }
        }
        while let Some(event) = fabric.step(None) {
            seen.event(event);
        }
        prop_assert_eq!(seen.answers, reads);
        prop_assert!(seen.floor.is_empty() && seen.interrupts.values().all(VecDeque::is_empty));
    }
}

#[test]
fn transactions_are_recorded_with_who_and_whom() {
    let mut fabric = Fabric::new(Timing::default(), SIZE, 1);
    let card = fabric.add_endpoint("card", Rate::GEN2_X4, &[SIZE]);
    fabric.set_bus_master(card, true);
    fabric.port(card).write(0x10, &[1; 4]);
    fabric.record(true);
    fabric.port(card).write(0xffe, &[1; 4]);
    assert!(fabric.read(card, 1 << 60, 4).is_err());
    let found: Vec<_> =
        fabric.take_records().into_iter().map(|r| (r.to, r.address, r.length, r.write)).collect();
    assert_eq!(
        found,
        [(Some(HOST), 0xffe, 2, true), (Some(HOST), 0x1000, 2, true), (None, 1 << 60, 4, false)]
    );
    fabric.record(false);
    fabric.port(card).write(0x10, &[1; 4]);
    assert!(fabric.take_records().is_empty());
}
