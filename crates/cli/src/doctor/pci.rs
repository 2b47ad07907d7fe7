//! SSDs and NICs: their drivers, their IOMMU groups and the groups' other members, and their users.

use super::row::{Row, State};
use dcs::NicModel;
use dcs_vfio::in_use;
use dcs_vfio::sys::{Root, Seen};
use serde_json::{Value, json};

const DEVICES: &str = "sys/bus/pci/devices";
/// PCI class codes: the upper 16 bits, and all 24 of an NVMe controller.
const NVME: u32 = 0x01_0802;
const NETWORK: u32 = 0x02;

/// Kind of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Ssd,
    Nic,
}

/// Text about the NICs that a process can drive.
const DRIVEN: &str = "Intel's 82574 and 82576 are the NICs that are driven directly";

/// A PCI function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    pub address: String,
    pub kind: Kind,
    /// Vendor and device.
    pub id: (u16, u16),
    pub driver: Option<String>,
    pub group: Option<String>,
    /// Other functions of its group that keep it from being driven, each with its driver.
    pub rivals: Vec<(String, String)>,
    /// Other functions of its group.
    pub members: Vec<String>,
    /// Names of the kernel's devices on it: block devices, interfaces.
    pub names: Vec<String>,
    /// Uses that the kernel or a process makes of it.
    pub uses: Vec<String>,
}

/// Lists all SSDs and NICs.
pub fn functions(root: &Root) -> Vec<Function> {
    let names = root.names(DEVICES).ok().unwrap_or_default();
    names.into_iter().filter_map(|address| function(root, address)).collect()
}

/// Makes the row for a machine without any.
pub fn none(root: &Root) -> Row {
    let row = |state, found: &str| Row::new("devices", "SSDs and NICs", state, found);
    match root.names(DEVICES) {
        Seen::Is(all) => row(State::Note, &format!("none among {} PCI functions", all.len())),
        Seen::Absent => row(State::Unreadable, "no PCI bus found"),
        Seen::Unreadable(why) => row(State::Unreadable, &why),
    }
}

fn function(root: &Root, address: String) -> Option<Function> {
    let folder = format!("{DEVICES}/{address}");
    let class = class(root, &address)?;
    let kind = match (class, class >> 16) {
        (NVME, _) => Kind::Ssd,
        (_, NETWORK) => Kind::Nic,
        _ => return None,
    };
    let id = |name: &str| root.number(&format!("{folder}/{name}")).ok().unwrap_or(0) as u16;
    let (names, uses) = (in_use::names(root, &address), in_use::uses(root, &address));
    let driver = root.link(&format!("{folder}/driver"));
    let group = root.link(&format!("{folder}/iommu_group"));
    let members = root.names(&format!("{folder}/iommu_group/devices")).ok().unwrap_or_default();
    let members: Vec<String> = members.into_iter().filter(|other| *other != address).collect();
    let rivals = members
        .iter()
        .filter_map(|other| Some((other.clone(), in_use::blocking_driver(root, other)?)))
        .collect();
    Some(Function {
        kind,
        id: (id("vendor"), id("device")),
        driver,
        group,
        rivals,
        members,
        names,
        uses,
        address,
    })
}

fn class(root: &Root, address: &str) -> Option<u32> {
    root.number(&format!("{DEVICES}/{address}/class")).ok().map(|class| class as u32)
}

impl Function {
    /// Returns true if a process can drive this kind.
    pub fn is_driven(&self) -> bool {
        self.kind == Kind::Ssd || NicModel::of_function(self.id).is_some()
    }

    /// Returns the option or name by which a command has a process drive it.
    pub fn option(&self) -> String {
        match self.kind {
            Kind::Ssd => format!("nvme:{}", self.address),
            Kind::Nic => format!("--nic {}", self.address),
        }
    }

    /// Checks that a process can drive it now. Otherwise returns the reason.
    pub fn drivable(&self, root: &Root) -> Result<(), String> {
        if !self.is_driven() {
            return Err(DRIVEN.into());
        }
        let Some(group) = &self.group else { return Err("it has no IOMMU group".into()) };
        match self.driver.as_deref() {
            Some("vfio-pci") => {}
            Some(driver) => return Err(format!("{driver} has it")),
            None => return Err("it has no driver; bind it to vfio-pci".into()),
        }
        if let Some(rivals) = self.rivalry() {
            return Err(rivals);
        }
        let file = format!("dev/vfio/{group}");
        if !root.exists(&file) {
            return Err(format!("/{file} does not exist"));
        }
        if root.is_real()
            && nix::unistd::access(
                &root.path(&file),
                nix::unistd::AccessFlags::R_OK | nix::unistd::AccessFlags::W_OK,
            )
            .is_err()
        {
            return Err(format!("this user may not open /{file}"));
        }
        Ok(())
    }

    /// Describes the other functions of its group that are in the way.
    pub fn rivalry(&self) -> Option<String> {
        if self.rivals.is_empty() {
            return None;
        }
        let rivals: Vec<String> =
            self.rivals.iter().map(|(address, driver)| format!("{address} ({driver})")).collect();
        Some(format!("its IOMMU group is shared with {}", rivals.join(", ")))
    }

    fn what(&self) -> &'static str {
        match self.kind {
            Kind::Ssd => "NVMe",
            Kind::Nic => "NIC",
        }
    }

    /// Makes its row.
    pub fn row(&self, root: &Root) -> Row {
        let (vendor, device) = self.id;
        let driver = self.driver.as_deref().unwrap_or("no driver");
        let group = self.group.as_ref().map_or("no IOMMU group".into(), |group| format!("group {group}"));
        let with = if self.members.is_empty() {
            String::new()
        } else {
            format!(" with {}", self.members.join(", "))
        };
        let mut found = format!("{vendor:04x}:{device:04x}, {driver}, {group}{with}");
        for word in [&self.names, &self.uses] {
            if !word.is_empty() {
                found = format!("{found}; {}", word.join(", "));
            }
        }
        let name = format!("{} {}", self.what(), self.address);
        let row = |state, found: String| Row::new("devices", name, state, found);
        match self.drivable(root) {
            _ if !self.is_driven() => row(State::Note, format!("{found}; {DRIVEN}")),
            Ok(()) => row(State::Ok, format!("{found}; driven by {}", self.option())),
            Err(why) if self.driver.as_deref() == Some("vfio-pci") => {
                row(State::Missing, format!("{found}; {why}")).fix(self.fix())
            }
            Err(_) => row(State::Note, found).fix(self.fix()),
        }
    }

    /// Returns the steps after which a process can drive it.
    fn fix(&self) -> String {
        if self.group.is_none() {
            return "switch the IOMMU on first (above)".into();
        }
        if !self.uses.is_empty() {
            return "leave it to the kernel, or end what uses it, then run dcs doctor --bind".to_owned()
                + &format!(" {}", self.address);
        }
        if self.rivalry().is_some() {
            return "bind the others of its group to vfio-pci too, or put it into another slot".into();
        }
        match self.driver.as_deref() {
            Some("vfio-pci") => "run as root, or give the group's file in /dev/vfio to this user".into(),
            _ => format!("to drive it by {}: sudo dcs doctor --bind {}", self.option(), self.address),
        }
    }

    pub fn json(&self, root: &Root) -> Value {
        let drivable = self.drivable(root);
        let rivals =
            self.rivals.iter().map(|(address, driver)| json!({ "address": address, "driver": driver }));
        json!({
            "event": "function", "address": self.address, "kind": self.what(),
            "vendor": self.id.0, "device": self.id.1, "driver": self.driver, "iommu_group": self.group,
            "group_members": self.members, "group_in_use_by": rivals.collect::<Vec<_>>(),
            "names": self.names, "uses": self.uses,
            "drivable": drivable.is_ok(), "why_not": drivable.err(),
        })
    }
}
