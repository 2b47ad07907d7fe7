//! Runs the NIC driver's scenarios, which it passes on the fabric's models, on QEMU's NICs.

#[path = "../../../../testbed/fabric/tests/suite/nic_host/packets.rs"]
pub mod packets;
#[path = "../../../../testbed/fabric/tests/suite/nic_host/scenarios.rs"]
#[allow(dead_code, reason = "other worlds use the rest")]
pub mod scenarios;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use dcs_drivers::bus::{Bus, ReadDone, Region, Window};
use dcs_drivers::nic::{Config, Model};
use dcs_vm::{Nic, wire};
use scenarios::World;

use crate::rig::{LIMIT, Rig};

/// QEMU's NIC, and the other end of its cable.
struct Network<'a> {
    rig: &'a mut Rig,
    wire: &'a mut wire::Wire,
    address: u64,
    model: Model,
    start: Instant,
    /// Frames in flight to the NIC.
    coming: VecDeque<Vec<u8>>,
}

impl World for Network<'_> {
    fn config(&self) -> Config {
        Config::new(Window { address: self.address, length: 128 << 10 }, 1, self.model)
    }

    fn memory(&mut self) -> Region {
        Region::whole(self.rig.bus.window())
    }

    fn bus(&mut self, with: &mut dyn FnMut(&mut dyn Bus)) {
        with(&mut self.rig.bus);
    }

    fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    fn advance(&mut self, until: Option<u64>) -> Option<ReadDone> {
        // QEMU's 82576 has no memory for frames: those that find no descriptor are lost. So deliver one at a time, when the doorbells
        // before it have arrived, which a read ensures.
        if let Some(frame) = self.coming.pop_front() {
            self.rig.read(self.address + 8, 4);
            self.wire.send(&frame).unwrap();
        }
        let left = until.map_or(u64::MAX, |until| until.saturating_sub(self.now()));
        if let Some(done) = self.rig.bus.answer() {
            return Some(done);
        }
        // The NIC's writes to the card's memory arrive without a notification.
        let nap = Duration::from_nanos(left.min(20_000));
        self.rig.bus.wake().sleep(Some(nap), || false);
        self.rig.bus.answer()
    }

    fn to_wire(&mut self, frame: &[u8]) {
        self.coming.push_back(frame.to_vec());
    }

    fn next_from_wire(&mut self) -> Option<Vec<u8>> {
        self.wire.receive(Duration::ZERO).unwrap()
    }

    /// Returns true: QEMU clears the flags in every segment (net_tx_pkt.c).
    fn loses_flags(&self) -> bool {
        true
    }

    fn carrier(&mut self, up: bool) {
        let said =
            self.rig.guest.monitor(&format!("set_link net0 {}", if up { "on" } else { "off" })).unwrap();
        assert_eq!(said, "");
    }
}

fn scenarios_on(nic: Nic, model: Model) {
    let folder = tempfile::tempdir().unwrap();
    let socket = wire::Socket::new(&folder.path().join("wire")).unwrap();
    let Some(mut rig) = Rig::boot_with_nic(nic, &socket.network(), "post 0x20 1; done_ 1") else { return };
    let mut wire = socket.plug(LIMIT).unwrap();
    let address = rig.letter(0x18);
    rig.letter(0x20);
    macro_rules! world {
        () => {
            Network {
                rig: &mut rig,
                wire: &mut wire,
                address,
                model,
                start: Instant::now(),
                coming: VecDeque::new(),
            }
        };
    }
    macro_rules! all {
        ($($name:ident)*) => { $(println!("{}", stringify!($name)); scenarios::$name(world!());)* };
    }
    all!(frames_are_sent many_frames_are_sent checksums_are_inserted segments_are_made frames_come);
    all!(frames_for_others_do_not_come many_frames_come long_frames_come_in_pieces headers_are_split resets_under_load);
    all!(the_link_comes_and_goes);
    scenarios::random_frames_both_ways(world!(), 1, 10);
    rig.answer(1);
    rig.guest.wait(LIMIT).unwrap();
}

#[test]
fn the_driver_drives_qemu_s_82576() {
    scenarios_on(Nic::Igb, Model::Igb);
}

#[test]
fn the_driver_drives_qemu_s_82574() {
    scenarios_on(Nic::E1000e, Model::E1000e);
}
