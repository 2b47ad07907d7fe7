//! The fabric as a world of the scenarios: a card, a NIC, and a wire whose other end is the test's.

use super::scenarios::World;
use dcs_drivers::bus::{Bus, ReadDone, Region};
use dcs_drivers::nic::{Config, Model};
use dcs_fabric::{Event, Fabric, FunctionId, Rate, Timing, Wire, WireEnd, nic};
use std::collections::VecDeque;
use std::time::Duration;

/// The card's own memory.
pub const OWN: u64 = 8 << 20;
pub const MAC: [u8; 6] = [2, 0, 0, 0, 0, 7];

/// A server with one NIC.
pub struct Server {
    pub fabric: Fabric,
    pub card: FunctionId,
    pub nic: FunctionId,
    pub end: WireEnd,
    model: Model,
    frames: VecDeque<Vec<u8>>,
}

/// Returns a server with this NIC.
pub fn server(model: Model) -> Server {
    let family = match model {
        Model::E1000e => nic::Family::E1000e,
        Model::Igb => nic::Family::Igb,
    };
    let mut fabric = Fabric::new(Timing::default(), 1 << 20, 1);
    let card = fabric.add_endpoint("card", Rate::GEN2_X8, &[OWN]);
    let nic = fabric.add_device("nic", Rate::GEN2_X4, nic::Nic::new(nic::Config::new(family, MAC)));
    let [_, end] = fabric.connect(Wire::default(), [Some(nic), None]);
    fabric.set_bus_master(card, true);
    fabric.set_bus_master(nic, true);
    Server { fabric, card, nic, end, model, frames: VecDeque::new() }
}

impl World for Server {
    fn config(&self) -> Config {
        Config::new(self.fabric.bar(self.nic, 0), 1, self.model)
    }

    fn memory(&mut self) -> Region {
        Region::whole(self.fabric.bar(self.card, 0))
    }

    fn bus(&mut self, with: &mut dyn FnMut(&mut dyn Bus)) {
        with(&mut self.fabric.port(self.card));
    }

    fn now(&self) -> u64 {
        self.fabric.now().as_nanos() as u64
    }

    fn advance(&mut self, until: Option<u64>) -> Option<ReadDone> {
        match self.fabric.step(until.map(Duration::from_nanos)) {
            Some(Event::Read { done, .. }) => return Some(done),
            Some(Event::Frame { bytes, .. }) => self.frames.push_back(bytes),
            _ => {}
        }
        None
    }

    fn to_wire(&mut self, frame: &[u8]) {
        self.fabric.send(self.end, frame.to_vec());
    }

    fn next_from_wire(&mut self) -> Option<Vec<u8>> {
        self.frames.pop_front()
    }

    /// The model of the 82574 has no packet split descriptors.
    fn splits_headers(&self) -> bool {
        self.model == Model::Igb
    }

    fn carrier(&mut self, up: bool) {
        self.fabric.set_carrier(self.end, up);
    }
}
