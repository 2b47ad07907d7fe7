//! The fabric as a world of the scenarios: a card, an SSD, a host that has nothing to do.

use super::scenarios::World;
use dcs_drivers::bus::{Bus, ReadDone, Region};
use dcs_drivers::nvme::Config;
use dcs_fabric::{Event, Fabric, FunctionId, Rate, Timing, nvme};
use std::time::Duration;

/// The card's own memory.
pub const OWN: u64 = 16 << 20;

/// A server with one SSD.
pub struct Server {
    pub fabric: Fabric,
    pub card: FunctionId,
    pub ssd: FunctionId,
    medium: nvme::Namespace,
}

impl Server {
    pub fn new(config: nvme::Config) -> Server {
        let mut fabric = Fabric::new(Timing::default(), 1 << 20, 1);
        let medium = config.namespaces[0].clone();
        let card = fabric.add_endpoint("card", Rate::GEN2_X8, &[OWN]);
        let ssd = fabric.add_device("ssd", Rate::GEN3_X4, nvme::Nvme::new(config));
        fabric.set_bus_master(card, true);
        fabric.set_bus_master(ssd, true);
        Server { fabric, card, ssd, medium }
    }

    /// Returns the contents of its first namespace.
    pub fn medium(&self) -> nvme::Namespace {
        self.medium.clone()
    }
}

/// Returns a server with the model's usual controller.
pub fn server() -> Server {
    Server::new(nvme::Config::default())
}

impl World for Server {
    fn config(&self) -> Config {
        Config::new(self.fabric.bar(self.ssd, 0), 1)
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
            Some(Event::Read { done, .. }) => Some(done),
            _ => None,
        }
    }
}
