//! Tests with a NIC that writes anything at all, and of refused input. Whole scenarios are in the fabric's tests.

use super::model::{bit, register, ring};
use super::start::Stage;
use super::*;
use crate::bus::{Bus, BusError, ReadDone, Region, Window};
use crate::testbus::TestBus;
use proptest::prelude::*;

const OWN: Window = Window { address: 0x4000_0000, length: 1 << 18 };
const REGISTERS: Window = Window { address: 0x9000_0000, length: 1 << 17 };

/// A driver, with the NIC's part played by the test.
struct Rig {
    bus: TestBus,
    nic: Nic,
    now: u64,
}

impl Rig {
    fn new(model: Model) -> Rig {
        Rig::lending(model, 0)
    }

    fn lending(model: Model, lend: u16) -> Rig {
        let config = Config {
            lend,
            transmit: 8,
            receive: 8,
            buffers: 10,
            split: true,
            max_frame: 9000,
            ..Config::new(REGISTERS, 3, model)
        };
        let nic = Nic::new(config, Region::whole(OWN)).unwrap();
        let mut rig = Rig { bus: TestBus::new(OWN, REGISTERS), nic, now: 0 };
        rig.nic.start(&mut rig.bus, rig.now);
        rig
    }

    fn answer(&mut self, data: Result<u32, BusError>) {
        let (_, length, tag) = self.bus.reads.remove(0);
        let data = data.map(|value| value.to_le_bytes()[..length as usize].to_vec());
        self.nic.read_done(&mut self.bus, self.now, ReadDone { tag, data });
    }

    /// Answers as a NIC that works.
    fn answer_well(&mut self) {
        let value = match self.bus.reads[0].0 {
            register::STATUS => bit::STATUS_LINK,
            register::RAL => 0x3322_1102,
            register::RAH => bit::RAH_VALID | 0x5544,
            register::CTRL => 0,
            _ => ring::ENABLE,
        };
        self.answer(Ok(value));
    }

    fn up(model: Model) -> Rig {
        Rig::new(model).started()
    }

    fn started(self) -> Rig {
        let mut rig = self;
        for _ in 0..20 {
            if rig.nic.link() {
                return rig;
            }
            if rig.bus.reads.is_empty() {
                rig.now = rig.nic.deadline().unwrap();
                rig.nic.poll(&mut rig.bus, rig.now);
            } else {
                rig.answer_well();
            }
        }
        panic!("{:?}", rig.nic.state());
    }

    /// Returns the offset of a receive descriptor.
    fn received(&self, at: u8) -> u64 {
        let length = super::descriptor::receive_length(self.nic.config.receive_format());
        self.nic.layout.receive.ring + u64::from(at) * length
    }

    fn transmit(&mut self, id: u64, data: &[Window], offload: Option<Offload>) -> Result<(), TransmitError> {
        self.nic.transmit(&mut self.bus, self.now, id, &Frame { data, offload })
    }
}

#[test]
fn it_comes_up_with_its_address_and_one_doorbell_for_all_buffers() {
    for model in [Model::E1000e, Model::Igb] {
        let rig = Rig::up(model);
        assert_eq!(rig.nic.address(), Some([2, 0x11, 0x22, 0x33, 0x44, 0x55]));
        let tail = rig.nic.chip.receive + ring::TAIL;
        let tails: Vec<u32> = rig
            .bus
            .writes
            .iter()
            .filter(|(at, _)| *at == tail)
            .map(|(_, bytes)| u32::from_le_bytes(bytes[..].try_into().unwrap()))
            .collect();
        // Packet split descriptors count as two.
        let all = if model == Model::E1000e { 14 } else { 7 };
        assert_eq!(tails, [0, all, all], "set up, filled, tail written again at a link check");
        let reset = rig.bus.writes.iter().position(|(at, b)| *at == register::CTRL && b[3] == 4).unwrap();
        let masked = rig.bus.writes.iter().position(|(at, _)| *at == register::IMC).unwrap();
        assert!(masked < reset);
    }
}

#[test]
fn a_second_ring_is_lent_until_the_nic_has_stopped() {
    let rig = Rig::up(Model::Igb);
    assert!(rig.nic.lent().is_none() && !rig.nic.is_lent(), "nobody asked for it");
    for (model, first) in [(Model::E1000e, 0x3900), (Model::Igb, 0xe040)] {
        let mut rig = Rig::lending(model, 64).started();
        let lent = rig.nic.lent().unwrap();
        assert_eq!((lent.tail, lent.start), (REGISTERS.address + first + ring::TAIL, 1));
        assert_eq!(rig.bus.memory[lent.descriptors as usize..][..64 * 16], [0; 64 * 16]);
        let written = |at: u64| {
            let mut values = rig.bus.writes.iter().filter(|(register, _)| *register == at);
            values.next().map(|(_, bytes)| u32::from_le_bytes(bytes[..].try_into().unwrap()))
        };
        assert_eq!(written(first + ring::BASE), Some((OWN.address + lent.descriptors) as u32));
        assert_eq!((written(first + ring::LENGTH), written(first + ring::TAIL)), (Some(64 * 16), Some(0)));
        assert_eq!(written(register::TARC1).is_some(), model == Model::E1000e);
        // Headers, receive ring and descriptors are apart.
        assert!(lent.descriptors + 64 * 16 <= lent.headers);
        assert!(lent.headers + 64 * 64 <= rig.nic.layout.receive.ring);

        rig.nic.note_lent(Some(rig.now), false);
        assert_eq!(rig.nic.deadline(), rig.nic.look, "the link is looked at before");
        rig.now += rig.nic.config.timeout;
        rig.nic.poll(&mut rig.bus, rig.now);
        assert_eq!((rig.nic.counters().hung, rig.nic.lent(), rig.nic.is_lent()), (1, None, true));
        rig.answer_well();
        assert!(rig.nic.is_lent(), "it has not stopped");
        let rig = rig.started();
        let again = rig.nic.lent().unwrap();
        assert_eq!((again.start, again.descriptors, again.tail), (2, lent.descriptors, lent.tail));
    }
}

#[test]
fn a_nic_that_is_gone_or_off_lends_nothing() {
    let mut rig = Rig::lending(Model::Igb, 64).started();
    rig.nic.on_reset();
    assert!(rig.nic.lent().is_none() && !rig.nic.is_lent());
    let mut rig = Rig::lending(Model::Igb, 64).started();
    rig.nic.stop(&mut rig.bus, rig.now);
    assert!(rig.nic.lent().is_none() && rig.nic.is_lent());
    assert!(!rig.nic.relocate(REGISTERS, Model::Igb), "it may still reach memory");
}

#[test]
fn frames_that_cannot_be_are_refused() {
    let mut rig = Rig::up(Model::Igb);
    let piece = |length| Window { address: 0x1000, length };
    assert_eq!(rig.transmit(1, &[], None), Err(TransmitError::Empty));
    assert_eq!(rig.transmit(1, &[piece(13)], None), Err(TransmitError::Empty));
    assert_eq!(rig.transmit(1, &[piece(60), piece(0)], None), Err(TransmitError::Empty));
    assert_eq!(rig.transmit(1, &[piece(9001)], None), Err(TransmitError::TooLong { max: 9000 }));
    assert_eq!(rig.transmit(1, &[piece(u64::MAX); 2], None), Err(TransmitError::TooLong { max: 9000 }));
    assert_eq!(rig.transmit(1, &[piece(60); 8], None), Err(TransmitError::Pieces));
    let good = Offload {
        link: 14,
        network: 20,
        ipv4: true,
        ip_checksum: true,
        transport: Some(Transport::Tcp),
        segment: Some(Segmentation { header: 20, size: 1000 }),
    };
    for bad in [
        Offload { link: 13, ..good },
        Offload { network: 19, ..good },
        Offload { ipv4: false, ..good },
        Offload { transport: Some(Transport::Udp), ..good },
        Offload { transport: None, ..good },
        Offload { segment: Some(Segmentation { header: 20, size: 0 }), ..good },
        Offload { segment: Some(Segmentation { header: 64, size: 1 }), ..good },
    ] {
        assert_eq!(rig.transmit(1, &[piece(2000)], Some(bad)), Err(TransmitError::Offload), "{bad:?}");
    }
    assert_eq!(rig.transmit(1, &[piece(53)], Some(good)), Err(TransmitError::Offload));
    assert_eq!(rig.transmit(1, &[piece(65_536)], Some(good)), Err(TransmitError::TooLong { max: 65_535 }));
    assert_eq!(rig.nic.counters().transmitted, 0);
    assert_eq!(rig.transmit(1, &[piece(65_535)], Some(good)), Ok(()));
    assert_eq!(rig.transmit(2, &[piece(60); 5], None), Err(TransmitError::Full));
    assert_eq!(rig.transmit(2, &[piece(60); 4], None), Ok(()));
}

#[test]
fn a_frame_that_is_not_sent_in_time_brings_a_reset_and_its_memory_is_held_until_then() {
    let mut rig = Rig::up(Model::E1000e);
    rig.transmit(5, &[Window { address: 0x1000, length: 60 }], None).unwrap();
    rig.nic.ring(&mut rig.bus);
    while rig.nic.counters().hung == 0 {
        rig.now = rig.nic.deadline().unwrap();
        rig.nic.poll(&mut rig.bus, rig.now);
        while rig.nic.counters().hung == 0 && !rig.bus.reads.is_empty() {
            rig.answer_well();
        }
    }
    assert_eq!(rig.nic.sent(), Some(Sent { id: 5, result: Err(ResetCause::Hung), memory: Memory::Held }));
    while rig.nic.state() != State::Ready {
        let running = matches!(rig.nic.stage, Stage::Probing | Stage::Quiescing | Stage::Resetting);
        assert_eq!(rig.nic.freed.is_empty(), running);
        if rig.bus.reads.is_empty() {
            rig.now = rig.nic.deadline().unwrap();
            rig.nic.poll(&mut rig.bus, rig.now);
        } else {
            rig.answer_well();
        }
    }
    assert_eq!((rig.nic.freed(), rig.nic.freed()), (Some(5), None));
    assert_eq!(rig.nic.counters().resets, 1);
}

#[derive(Clone, Debug)]
enum Step {
    Answer(u32),
    Well,
    Error,
    /// A write into a ring: which, entry, bytes.
    Descriptor(bool, u8, [u8; 16]),
    /// A receive descriptor of the usual kind: entry, length, status.
    Received(u8, u16, u8),
    Sent(u8),
    Transmit(u16),
    GiveBack,
    Wait,
    Reset,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        1 => any::<u32>().prop_map(Step::Answer),
        8 => Just(Step::Well),
        1 => Just(Step::Error),
        3 => (any::<bool>(), 0u8..8, any::<[u8; 16]>()).prop_map(|(t, at, bytes)| Step::Descriptor(t, at, bytes)),
        8 => (0u8..8, prop_oneof![4 => 0u16..2049, 1 => any::<u16>()], any::<u8>())
            .prop_map(|(at, length, status)| Step::Received(at, length, status)),
        3 => (0u8..8).prop_map(Step::Sent),
        3 => (14u16..9000).prop_map(Step::Transmit),
        3 => Just(Step::GiveBack),
        3 => Just(Step::Wait),
        1 => Just(Step::Reset),
    ]
}

/// Checks that every frame that was taken ends once, and that a buffer is in one place at a time, whatever the NIC reports.
fn survives(model: Model, up: bool, steps: Vec<Step>) {
    let mut rig = if up { Rig::up(model) } else { Rig::new(model) };
    let (mut taken, mut ended, mut held, mut freed) = (0u64, Vec::new(), 0, 0);
    let mut kept: Vec<Received> = Vec::new();
    for step in steps {
        match step {
            Step::Answer(_) | Step::Well | Step::Error if rig.bus.reads.is_empty() => {}
            Step::Answer(value) => rig.answer(Ok(value)),
            Step::Well => rig.answer_well(),
            Step::Error => rig.answer(Err(BusError::Timeout)),
            Step::Descriptor(transmit, at, bytes) => {
                let at =
                    if transmit { rig.nic.layout.transmit + u64::from(at) * 16 } else { rig.received(at) };
                rig.bus.store(at, &bytes);
            }
            Step::Received(at, length, status) => {
                let ring = rig.received(at);
                let mut bytes = [0; 8];
                bytes[0] = status | 1;
                bytes[4..6].copy_from_slice(&length.to_le_bytes());
                rig.bus.store(ring + 8, &bytes);
                if model == Model::E1000e {
                    // The header's length, the split flag, and the packet's length.
                    rig.bus.store(ring + 12, &[status, 0]);
                    rig.bus.store(ring + 16, &[&[status, 0x80], &length.to_le_bytes()[..]].concat());
                }
            }
            Step::Sent(at) => rig.bus.store(rig.nic.layout.transmit + u64::from(at) * 16 + 12, &[1]),
            Step::Transmit(length) => {
                let data = [Window { address: 1 << 30, length: length.into() }];
                taken += u64::from(rig.transmit(taken, &data, None).is_ok());
            }
            Step::GiveBack => kept.drain(..).for_each(|frame| rig.nic.give_back(frame)),
            Step::Wait => rig.now = rig.nic.deadline().unwrap_or(rig.now).max(rig.now),
            Step::Reset => rig.nic.reset(&mut rig.bus, rig.now),
        }
        rig.nic.poll(&mut rig.bus, rig.now);
        while let Some(end) = rig.nic.sent() {
            held += u64::from(end.memory == Memory::Held);
            ended.push(end.id);
        }
        freed += core::iter::from_fn(|| rig.nic.freed()).count() as u64;
        assert!(freed <= held);
        assert_eq!(taken, ended.len() as u64 + rig.nic.outstanding() as u64);
        while let Some(frame) = rig.nic.received() {
            assert!(!frame.pieces().is_empty() && frame.pieces().iter().all(|piece| piece.length > 0));
            assert!(frame.pieces().iter().all(|piece| OWN.length >= piece.offset + u64::from(piece.length)));
            kept.push(frame);
        }
        let mut lent: Vec<u16> = kept.iter().flat_map(|frame| frame.buffers()).copied().collect();
        lent.extend(rig.nic.receive.all_buffers());
        lent.sort_unstable();
        assert_eq!(lent, (0..10).collect::<Vec<_>>(), "each buffer in one place");
    }
    rig.nic.on_reset();
    ended.extend(core::iter::from_fn(|| rig.nic.sent()).map(|end| end.id));
    freed += core::iter::from_fn(|| rig.nic.freed()).count() as u64;
    ended.sort_unstable();
    assert_eq!(ended, (0..taken).collect::<Vec<_>>(), "each ends once");
    assert_eq!(freed, held);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn whatever_a_nic_writes(
        igb in any::<bool>(),
        up in proptest::bool::weighted(0.8),
        steps in proptest::collection::vec(step(), 1..150),
    ) {
        survives(if igb { Model::Igb } else { Model::E1000e }, up, steps);
    }
}

#[test]
fn a_nic_that_takes_the_place_of_another_has_descriptors_of_its_own() {
    for split in [true, false] {
        for (before, after) in [(Model::Igb, Model::E1000e), (Model::E1000e, Model::Igb)] {
            let config = |model| Config { split, ..Config::new(REGISTERS, 3, model) };
            let region = || Region::whole(Window { address: 0x4000_0000, length: 8 << 20 });
            let mut nic = Nic::new(config(before), region()).unwrap();
            assert!(nic.relocate(REGISTERS, after));
            let fresh = Nic::new(config(after), region()).unwrap();
            assert_eq!(nic.receive.format(), fresh.receive.format(), "{after:?}, split: {split}");
        }
    }
}
