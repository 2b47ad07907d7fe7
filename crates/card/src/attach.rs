//! Devices of the card: how function 0 attaches them, and lends parts of SSDs to the other functions.

use crate::admin::Awaited;
use crate::card::{Card, FIRST_SSD};
use crate::handles::{Access, HandleTarget};
use crate::part::Part;
use dcs_abi::admin::{AdminEntry, Answer, GRANT_READ, GRANT_WRITE, LentPart, SsdIdentity};
use dcs_abi::result::PATH_PEER_TO_PEER;
use dcs_abi::status::Status;
use dcs_drivers::bus::{Buses, Window};
use dcs_drivers::network::{Address, Network};
use dcs_drivers::nic;
use dcs_drivers::nvme;
use dcs_drivers::ssd::Ssd;
use dcs_engine::OperationId;
use std::net::Ipv4Addr;

impl Card {
    /// Writes the identity of an SSD's namespace, or of a part, to the host's memory, so that the host can check that it is the intended
    /// one. A part has no names: they are the SSD's.
    pub(crate) fn identify_ssd(
        &self,
        bus: &mut dyn Buses,
        function: usize,
        entry: &AdminEntry,
    ) -> Result<(), Status> {
        let (at, part) = match self.functions[function].handles.get(entry.words[0]) {
            Some(HandleTarget::Ssd(at)) => (at, None),
            Some(HandleTarget::Part(_, part)) if !self.has_part(&part) => return Err(Status::DeviceReset),
            Some(HandleTarget::Part(_, part)) => (part.ssd, Some(part)),
            Some(HandleTarget::Gone) => return Err(Status::DeviceReset),
            _ => return Err(Status::BadHandle),
        };
        self.ssds[at].block_size().ok_or(Status::DeviceReset)?;
        let host = self.ssds[at].host();
        let (namespace, controller) = host.namespace().zip(host.controller()).ok_or(Status::DeviceReset)?;
        let identity = match part {
            None => SsdIdentity {
                nguid: namespace.nguid,
                eui64: namespace.eui64,
                nsid: namespace.number,
                block_size: namespace.block_size,
                blocks: namespace.blocks,
                serial: controller.serial,
            },
            Some(part) => SsdIdentity {
                block_size: part.block_size,
                blocks: part.length / u64::from(part.block_size),
                serial: [b' '; 20],
                ..SsdIdentity::default()
            },
        };
        let window = Window { address: entry.data_address, length: SsdIdentity::SIZE as u64 };
        if !self.is_granted(function, window, Access::Write) {
            return Err(Status::DataTransferError);
        }
        bus.write_host(function, window.address, &identity.to_bytes());
        Ok(())
    }

    /// Lends a part of an SSD to another function.
    pub(crate) fn lend_ssd(&mut self, entry: &AdminEntry) -> Answer {
        let LentPart { ssd, function, grants, first, length } = LentPart::of(entry);
        let Some(HandleTarget::Ssd(at)) = self.functions[0].handles.get(ssd) else {
            return Err(Status::BadHandle);
        };
        let (to, grants) = (usize::from(function), u32::from(grants));
        if to == 0 || to >= self.functions.len() || grants & !(GRANT_READ | GRANT_WRITE) != 0 {
            return Err(Status::InvalidField);
        }
        let block_size = self.ssds[at].block_size().ok_or(Status::DeviceReset)?;
        if !(first | length).is_multiple_of(u64::from(block_size)) || length == 0 {
            return Err(Status::InvalidField);
        }
        if let Some(refusal) = self.ssds[at].refuses(first, length, true) {
            return Err(refusal);
        }
        let part = Part { ssd: at, first, length, block_size, grants };
        let number = self.functions[to].lend(part).ok_or(Status::OutOfResources)?;
        match self.functions[0].handles.add(HandleTarget::Lent(to, number)) {
            Some(handle) => Ok((handle, number)),
            None => {
                self.functions[to].take_back(number);
                Err(Status::OutOfResources)
            }
        }
    }

    /// Takes a part back, and returns what is to be awaited before its bytes are nobody's: operations at the SSD that the function began.
    pub(crate) fn take_back(&mut self, function: usize, number: u32) -> Option<Awaited> {
        let part = self.functions[function].part(number)??;
        self.functions[function].take_back(number);
        let operations = self.ssds[part.ssd].operations_on(part.first, part.length);
        (!self.have_ended(part.ssd, &operations)).then_some(Awaited::Ended(part.ssd, operations))
    }

    /// Notes what SSDs still do to the parts of a function that is reset: a command may end before its operations.
    pub(crate) fn note_ending(&mut self, at: usize) {
        self.forget_ended(at);
        let mut ending = std::mem::take(&mut self.functions[at].ending);
        for part in self.functions[at].parts() {
            for operation in self.ssds[part.ssd].operations_on(part.first, part.length) {
                if !ending.contains(&(part.ssd, operation)) {
                    ending.push((part.ssd, operation));
                }
            }
        }
        self.functions[at].ending = ending;
    }

    /// Forgets operations from before a function's reset that have ended.
    pub(crate) fn forget_ended(&mut self, at: usize) {
        let mut ending = std::mem::take(&mut self.functions[at].ending);
        ending.retain(|(ssd, operation)| !self.have_ended(*ssd, &[*operation]));
        self.functions[at].ending = ending;
    }

    /// Returns true if an SSD does nothing more for these operations. One that failed carries out no command before it is started again,
    /// and none from before then.
    pub(crate) fn have_ended(&self, at: usize, operations: &[OperationId]) -> bool {
        let ssd = &self.ssds[at];
        let is_on = matches!(ssd.host().state(), nvme::State::Ready | nvme::State::Starting);
        !is_on || !operations.iter().any(|operation| ssd.has(*operation))
    }

    /// Returns true if a part's SSD is there, with the logical blocks that it had when the part was lent.
    pub(crate) fn has_part(&self, part: &Part) -> bool {
        self.ssds.get(part.ssd).and_then(Ssd::block_size) == Some(part.block_size)
    }

    /// Opens a part of an SSD that a function was lent.
    pub(crate) fn open_part(&mut self, function: usize, entry: &AdminEntry) -> Answer {
        let number = entry.words[0];
        let part = self.functions[function].part(number);
        let part = part.ok_or(Status::InvalidField)?.ok_or(Status::DeviceReset)?;
        if !self.has_part(&part) {
            return Err(Status::DeviceReset);
        }
        let handles = &mut self.functions[function].handles;
        let handle = handles.add(HandleTarget::Part(number, part)).ok_or(Status::OutOfResources)?;
        Ok((handle, part.block_size))
    }

    /// Returns the window of a device's registers, if the address is allowed.
    fn registers_of(&self, bus: &dyn Buses, entry: &AdminEntry, least: u64) -> Option<Window> {
        let registers = Window { address: entry.data_address, length: entry.words[0].into() };
        let end = registers.address.checked_add(registers.length);
        let sound = registers.length >= least && end.is_some() && registers.address.is_multiple_of(4096);
        (sound && !overlaps(registers, bus.window())).then_some(registers)
    }

    /// Starts driving a NIC, from scratch if it was driven before. The answer comes when it is up.
    pub(crate) fn attach_nic(&mut self, bus: &mut dyn Buses, entry: &AdminEntry) -> Option<Answer> {
        let registers = self.registers_of(bus, entry, 0x2_0000);
        let model = u16::try_from(entry.words[1]).ok().and_then(nic::Model::of);
        let (Some(registers), Some(model)) = (registers, model) else {
            return Some(Err(Status::InvalidField));
        };
        let gateway = Some(entry.words[4]).filter(|bits| *bits != 0).map(Ipv4Addr::from_bits);
        let (ip, prefix, mtu) =
            (Ipv4Addr::from_bits(entry.words[2]), entry.words[3] as u8, (entry.words[3] >> 16) as u16);
        if prefix > 32 || !(576..=1500).contains(&mtu) {
            return Some(Err(Status::InvalidField));
        }
        let address = Address { ip, prefix, gateway, mtu };
        let at = match self.place_of_nic(registers, model, address) {
            Ok(at) => at,
            Err(status) => return Some(Err(status)),
        };
        self.functions[0].handles.forget_network(at);
        self.networks[at].start(bus, self.now, address);
        if let Some(admin) = &mut self.functions[0].admin {
            admin.awaited.push((entry.cid, Awaited::Nic(at)));
        }
        None
    }

    /// Starts driving an SSD, from scratch if it was driven before. The answer comes when it is up.
    pub(crate) fn attach_ssd(&mut self, bus: &mut dyn Buses, entry: &AdminEntry) -> Option<Answer> {
        let Some(registers) = self.registers_of(bus, entry, 0x1010) else {
            return Some(Err(Status::InvalidField));
        };
        let at = match self.place_of_ssd(registers, entry.words[1]) {
            Ok(at) => at,
            Err(status) => return Some(Err(status)),
        };
        self.ssds[at].start(bus, self.now);
        if let Some(admin) = &mut self.functions[0].admin {
            admin.awaited.push((entry.cid, Awaited::Ssd(at)));
        }
        None
    }

    /// Finds a NIC's place in the card's list: its old place, a new one, or the place of one that was detached at a reset.
    fn place_of_nic(
        &mut self,
        registers: Window,
        model: nic::Model,
        address: Address,
    ) -> Result<usize, Status> {
        let mut others = self.networks.iter().filter(|network| !network.is_detached());
        if others.any(|other| other.registers() != registers && overlaps(other.registers(), registers)) {
            return Err(Status::InvalidField);
        }
        if let Some(at) = self.networks.iter().position(|network| network.registers() == registers) {
            let same = self.networks[at].model() == model || self.networks[at].relocate(registers, model);
            return if same { Ok(at) } else { Err(Status::InvalidField) };
        }
        let at = self.networks.len();
        if at < self.config().nics {
            let controller = FIRST_SSD + (self.config().ssds + at) as u32;
            let config = nic::Config::new(registers, controller, model);
            let secret = (self.config().key, PATH_PEER_TO_PEER);
            let network = match self.config.hardware {
                Some(hardware) => {
                    let nic = (hardware.nic, self.blocks.offset());
                    Network::with_hardware(config, address, secret, nic, &mut self.memory)
                }
                None => Network::new(config, address, secret, &mut self.memory),
            };
            self.networks.push(network.ok_or(Status::OutOfResources)?);
            return Ok(at);
        }
        let free = self.networks.iter_mut().position(|network| network.relocate(registers, model));
        free.ok_or(Status::OutOfResources)
    }

    /// Finds a place as [`Card::place_of_nic`] does, for a namespace of an SSD.
    fn place_of_ssd(&mut self, registers: Window, namespace: u32) -> Result<usize, Status> {
        let mut others = self.ssds.iter().filter(|ssd| !ssd.is_detached());
        if others.any(|other| other.registers() != registers && overlaps(other.registers(), registers)) {
            return Err(Status::InvalidField);
        }
        let namespace = (namespace > 0).then_some(namespace);
        if let Some(at) = self.ssds.iter().position(|ssd| ssd.registers() == registers) {
            let same = self.ssds[at].namespace() == namespace || self.ssds[at].relocate(registers, namespace);
            return if same { Ok(at) } else { Err(Status::InvalidField) };
        }
        if self.ssds.len() < self.config().ssds {
            return self.new_ssd(registers, namespace).ok_or(Status::OutOfResources);
        }
        let free = self.ssds.iter_mut().position(|ssd| ssd.relocate(registers, namespace));
        free.ok_or(Status::OutOfResources)
    }

    fn new_ssd(&mut self, registers: Window, namespace: Option<u32>) -> Option<usize> {
        let at = self.ssds.len();
        let block_size = self.config().engine.block_size;
        let config = nvme::Config {
            registers,
            controller: FIRST_SSD + at as u32,
            namespace,
            max_transfer: self.config().nvme.max_transfer.min(u64::from(block_size) + 8192),
            ..self.config().nvme
        };
        let most = self.config().engine.blocks as usize / (2 * self.config().ssds);
        let (limits, memory) = ((most.max(1), PATH_PEER_TO_PEER), &mut self.memory);
        let ssd = match self.config.hardware {
            Some(hardware) => {
                let controller = ((hardware.ssd)(), self.blocks.offset());
                Ssd::with_controller(config, limits, controller, memory)
            }
            None => Ssd::new(config, limits, block_size, memory),
        };
        self.ssds.push(ssd?);
        Some(at)
    }
}

fn overlaps(one: Window, other: Window) -> bool {
    one.address < other.address.saturating_add(other.length)
        && other.address < one.address.saturating_add(one.length)
}
