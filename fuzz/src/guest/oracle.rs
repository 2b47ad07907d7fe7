//! Memory that the card may touch with its guest's permission, derived from the bytes that the card sees. Every transaction of
//! the card is checked against it.

use dcs_abi::admin::{AdminEntry, AdminPacket, opcode};
use dcs_card::registers::AdminQueues;
use dcs_drivers::bus::{Bus, Buses, ReadDone, Tag, Window};
use dcs_fabric::Port;
use std::collections::HashSet;

/// Permissions granted since the last reset. Released memory stays permitted until then.
pub struct Oracle {
    own: Window,
    /// Registers of devices, each with the opcode that attaches it.
    devices: Vec<(Window, u8)>,
    admin: Vec<Window>,
    submissions: Option<Window>,
    granted: Vec<Window>,
    /// Registers of attached devices: the card uses them until they have stopped, even after a reset.
    attached: Vec<Window>,
    /// Reads of admin entries in progress.
    entries: HashSet<Tag>,
    /// True if the guest had the card, or a device, use a device's registers or rings wrongly: the devices' behaviour is then the
    /// guest's fault.
    pub meddled: bool,
}

impl Oracle {
    pub fn new(own: Window, devices: Vec<(Window, u8)>) -> Oracle {
        let (admin, granted, attached, entries) = Default::default();
        Oracle { own, devices, admin, submissions: None, granted, attached, entries, meddled: false }
    }

    /// Handles the enabling of the controller.
    pub fn start(&mut self, queues: AdminQueues) {
        let ring = |address, depth: u16, bytes| Window { address, length: u64::from(depth) * bytes };
        let submissions = ring(queues.submissions, queues.submission_depth, 64);
        self.submissions = Some(submissions);
        let completions = ring(queues.completions, queues.completion_depth, 16);
        self.admin =
            [submissions, completions].into_iter().filter(|ring| !overlap(*ring, self.own)).collect();
        self.meddled |= self.devices.iter().any(|(device, _)| overlap(*device, completions));
    }

    /// Handles the disabling of the controller, or a reset of the function.
    pub fn stop(&mut self) {
        self.admin.clear();
        self.granted.clear();
        self.submissions = None;
        self.entries.clear();
    }

    fn check(&self, address: u64, length: u64, what: &str) {
        let mut all = self.admin.iter().chain(&self.granted).chain(&self.attached);
        let allowed = all.any(|window| window.contains(address, length));
        assert!(allowed || length == 0, "{what} of {length} bytes at {address:#x}, which nobody has allowed");
    }

    /// Handles an answer before the card sees it.
    pub fn seen(&mut self, done: &ReadDone) {
        let Ok(bytes) = &done.data else { return };
        if !self.entries.remove(&done.tag) {
            return;
        }
        let entry = AdminPacket::new_checked(&bytes[..]).and_then(|packet| AdminEntry::parse(&packet));
        let Ok(entry) = entry else { return };
        let low = u64::from(entry.words[0]);
        let window = |length| Window { address: entry.data_address, length };
        match entry.opcode {
            opcode::GRANT_MEMORY => {
                let window = window(low | u64::from(entry.words[1]) << 32);
                if !overlap(window, self.own) {
                    self.meddled |= self.devices.iter().any(|(device, _)| overlap(*device, window));
                    self.granted.push(window);
                }
            }
            opcode::ATTACH_SSD | opcode::ATTACH_NIC if !overlap(window(low), self.own) => {
                self.meddled |= !self.devices.contains(&(window(low), entry.opcode));
                self.attached.push(window(low));
            }
            _ => {}
        }
    }
}

fn overlap(one: Window, other: Window) -> bool {
    one.address < other.address.saturating_add(other.length)
        && other.address < one.address.saturating_add(one.length)
}

/// The card's port, with checks.
pub struct Watch<'a> {
    pub port: Port<'a>,
    pub oracle: &'a mut Oracle,
}

impl Buses for Watch<'_> {}

impl Bus for Watch<'_> {
    fn window(&self) -> Window {
        self.port.window()
    }
    fn load(&self, offset: u64, bytes: &mut [u8]) {
        self.port.load(offset, bytes);
    }
    fn store(&mut self, offset: u64, bytes: &[u8]) {
        self.port.store(offset, bytes);
    }
    fn write(&mut self, address: u64, bytes: &[u8]) {
        self.oracle.check(address, bytes.len() as u64, "a write");
        self.port.write(address, bytes);
    }
    fn read(&mut self, address: u64, length: u32, tag: Tag) {
        self.oracle.check(address, length.into(), "a read");
        if length == 64 && self.oracle.submissions.is_some_and(|ring| ring.contains(address, 64)) {
            self.oracle.entries.insert(tag);
        }
        self.port.read(address, length, tag);
    }
    fn interrupt(&mut self, vector: u16) {
        self.port.interrupt(vector);
    }
}
