//! SSDs and NICs: which driver has them, in which IOMMU group they are with whom, and who uses them.

use super::sys::{Root, Seen};
use super::{Row, State};
use dcs::NicModel;
use serde_json::{Value, json};

const DEVICES: &str = "sys/bus/pci/devices";
/// PCI's classes: the upper 16 bits, and all 24 of an NVMe controller.
const NVME: u32 = 0x01_0802;
const NETWORK: u32 = 0x02;
const BRIDGE: u32 = 0x0604;

/// What a function is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Ssd,
    Nic,
}

/// Which NICs a process can drive.
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
    /// The other functions of its group that keep it from being driven: each with the driver that has it.
    pub rivals: Vec<(String, String)>,
    /// The other functions of its group.
    pub members: Vec<String>,
    /// What the kernel has it as: block devices, interfaces.
    pub names: Vec<String>,
    /// What is done with it.
    pub uses: Vec<String>,
}

/// All SSDs and NICs.
pub fn functions(root: &Root) -> Vec<Function> {
    let names = root.names(DEVICES).ok().unwrap_or_default();
    names.into_iter().filter_map(|address| function(root, address)).collect()
}

/// What is said where there is none.
pub fn none(root: &Root) -> Row {
    let row = |state, found: &str| Row::new("devices", "SSDs and NICs", state, found);
    match root.names(DEVICES) {
        Seen::Is(all) => row(State::Note, &format!("none among {} PCI functions", all.len())),
        Seen::Absent => row(State::Unreadable, "no PCI bus is to be seen here"),
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
    let names = match kind {
        Kind::Ssd => namespaces(root, &address),
        Kind::Nic => root.names(&format!("{folder}/net")).ok().unwrap_or_default(),
    };
    let driver = root.link(&format!("{folder}/driver"));
    let mut uses: Vec<String> = match kind {
        Kind::Ssd => names.iter().flat_map(|name| uses_of_disk(root, name)).collect(),
        Kind::Nic => names.iter().flat_map(|name| uses_of_interface(root, name)).collect(),
    };
    if kind == Kind::Nic {
        uses.extend(uses_of_nic(root, &folder, driver.as_deref(), &names));
    }
    let group = root.link(&format!("{folder}/iommu_group"));
    let members = root.names(&format!("{folder}/iommu_group/devices")).ok().unwrap_or_default();
    let members: Vec<String> = members.into_iter().filter(|other| *other != address).collect();
    let rivals = members.iter().filter_map(|other| Some((other.clone(), rival(root, other)?))).collect();
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

/// The driver of another function of a group, where that keeps the group from a process. [linux, Documentation/driver-api/vfio.rst]
fn rival(root: &Root, address: &str) -> Option<String> {
    let driver = root.link(&format!("{DEVICES}/{address}/driver"))?;
    let harmless = matches!(driver.as_str(), "vfio-pci" | "pci-stub" | "pcieport");
    let bridge = class(root, address).is_some_and(|class| class >> 8 == BRIDGE);
    (!harmless && !bridge).then_some(driver)
}

/// The block devices of an SSD's namespaces. A path of several has a name of its own beside the namespace's: `nvme0c1n1` of `nvme0n1`.
fn namespaces(root: &Root, address: &str) -> Vec<String> {
    let folder = format!("{DEVICES}/{address}/nvme");
    let mut found = Vec::new();
    for controller in root.names(&folder).ok().unwrap_or_default() {
        for name in root.names(&format!("{folder}/{controller}")).ok().unwrap_or_default() {
            found.extend(disk_name(&name));
        }
    }
    found.sort();
    found.dedup();
    found
}

fn disk_name(name: &str) -> Option<String> {
    let rest = name.strip_prefix("nvme")?;
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let (controller, namespace) = rest.split_once('n')?;
    let subsystem = controller.split_once('c').map_or(
        controller,
        |(subsystem, path)| {
            if digits(path) { subsystem } else { "" }
        },
    );
    (digits(subsystem) && digits(namespace)).then(|| format!("nvme{subsystem}n{namespace}"))
}

/// Mounts, swap, and whatever was made of a disk or its partitions.
fn uses_of_disk(root: &Root, disk: &str) -> Vec<String> {
    let mut uses = Vec::new();
    let partition = |name: &String| {
        let rest = name.strip_prefix(disk).and_then(|rest| rest.strip_prefix('p'));
        rest.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let all = root.names("sys/class/block").ok().unwrap_or_default();
    let devices = std::iter::once(disk.to_owned()).chain(all.into_iter().filter(partition));
    let mounts = root.text("proc/self/mountinfo").ok().unwrap_or_default();
    let swaps = root.text("proc/swaps").ok().unwrap_or_default();
    for name in devices {
        let number = root.text(&format!("sys/class/block/{name}/dev")).ok();
        let path = format!("/dev/{name}");
        for line in mounts.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            // Some file systems of several devices have a number of their own: the source says one.
            let source = line.split_once(" - ").and_then(|(_, rest)| rest.split(' ').nth(1));
            let is_it =
                words.get(2).copied() == number.as_deref() && number.is_some() || source == Some(&path);
            if is_it && let Some(at) = words.get(4) {
                uses.push(format!("{name} is mounted at {at}"));
            }
        }
        if swaps.lines().any(|line| line.split_whitespace().next() == Some(&path)) {
            uses.push(format!("{name} is swapped to"));
        }
        for holder in root.names(&format!("sys/class/block/{name}/holders")).ok().unwrap_or_default() {
            uses.push(format!("{name} is part of {holder}"));
        }
    }
    uses.dedup();
    uses
}

/// Whether an interface is up, has addresses or routes, and what was made of it.
fn uses_of_interface(root: &Root, name: &str) -> Vec<String> {
    const UP: u64 = 1;
    let mut uses = Vec::new();
    let folder = format!("sys/class/net/{name}");
    match root.number(&format!("{folder}/flags")) {
        Seen::Is(flags) if flags & UP == 0 => {}
        Seen::Is(_) => uses.push(format!("{name} is up")),
        _ => uses.push(format!("whether {name} is up is not to be read")),
    }
    for address in addresses(root, name) {
        uses.push(format!("{name} has the address {address}"));
    }
    // [linux, net/ipv4/fib_trie.c and net/ipv6/route.c: the interface is the first and the last word]
    let of_line = |line: &str, first: bool| {
        let mut words = line.split_whitespace();
        if first { words.next() == Some(name) } else { words.next_back() == Some(name) }
    };
    let routes =
        |file: &str, first| root.text(file).ok().unwrap_or_default().lines().any(|line| of_line(line, first));
    if routes("proc/net/route", true) || routes("proc/net/ipv6_route", false) {
        uses.push(format!("{name} has routes"));
    }
    for other in root.names(&folder).ok().unwrap_or_default() {
        if let Some(upper) = other.strip_prefix("upper_") {
            uses.push(format!("{name} is part of {upper}"));
        }
    }
    uses
}

/// Only this machine's kernel tells those of an interface that is down.
fn addresses(root: &Root, name: &str) -> Vec<String> {
    if !root.is_real() {
        return Vec::new();
    }
    let all = nix::ifaddrs::getifaddrs().into_iter().flatten();
    let of_it = all.filter(|one| one.interface_name == name).filter_map(|one| one.address);
    let text = |address: nix::sys::socket::SockaddrStorage| match address.as_sockaddr_in() {
        Some(four) => Some(four.ip().to_string()),
        None => address.as_sockaddr_in6().map(|six| six.ip().to_string()),
    };
    of_it.filter_map(text).collect()
}

/// What is done with a NIC beside its interfaces here.
fn uses_of_nic(root: &Root, folder: &str, driver: Option<&str>, names: &[String]) -> Vec<String> {
    let mut uses = Vec::new();
    if root.number(&format!("{folder}/sriov_numvfs")).ok().is_some_and(|count| count > 0) {
        uses.push("it has virtual functions".into());
    }
    if let Some(driver) = driver.filter(|driver| *driver != "vfio-pci" && names.is_empty()) {
        uses.push(format!(
            "{driver} has it, and no interface of it is to be seen: a container may have that"
        ));
    }
    uses
}

impl Function {
    /// Whether it is of a kind that a process can drive.
    pub fn is_driven(&self) -> bool {
        self.kind == Kind::Ssd || NicModel::of_function(self.id).is_some()
    }

    /// What names it where it is driven by a process.
    pub fn option(&self) -> String {
        match self.kind {
            Kind::Ssd => format!("nvme:{}", self.address),
            Kind::Nic => format!("--nic {}", self.address),
        }
    }

    /// Whether a process can drive it now, or why not.
    pub fn drivable(&self, root: &Root) -> Result<(), String> {
        if !self.is_driven() {
            return Err(DRIVEN.into());
        }
        let Some(group) = &self.group else { return Err("it is in no IOMMU group".into()) };
        match self.driver.as_deref() {
            Some("vfio-pci") => {}
            Some(driver) => return Err(format!("{driver} has it")),
            None => return Err("it has no driver; vfio-pci has to have it".into()),
        }
        if let Some(rivals) = self.rivalry() {
            return Err(rivals);
        }
        let file = format!("dev/vfio/{group}");
        if !root.exists(&file) {
            return Err(format!("/{file} is not here"));
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

    /// Who else of its group is in the way.
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

    /// Its line.
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
                row(State::Missing, format!("{found}; {why}")).mend(self.mend())
            }
            Err(_) => row(State::Note, found).mend(self.mend()),
        }
    }

    /// What it takes to have it driven by a process.
    fn mend(&self) -> String {
        if self.group.is_none() {
            return "switch the IOMMU on first (above)".into();
        }
        if !self.uses.is_empty() {
            return "leave it to the kernel, or end what uses it; then: dcs doctor --bind".to_owned()
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
