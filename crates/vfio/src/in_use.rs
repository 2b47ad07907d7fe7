//! Uses of a function, as far as /sys and /proc show them, and taking a function that is not in use.

use crate::bind;
use crate::error::VfioError;
use crate::sys::{Root, Seen};
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;

const DEVICES: &str = "sys/bus/pci/devices";
/// PCI classes: all 24 bits for an NVMe controller, the upper 8 for a network device, the upper 16 for a bridge.
const NVME: u32 = 0x01_0802;
const NETWORK: u32 = 0x02;
const BRIDGE: u32 = 0x0604;

/// Unbinds a function from its kernel driver, if it has one, and binds it to vfio-pci, unless it is in use.
///
/// # Errors
///
/// [`VfioError::InUse`] with all uses, if there are any; otherwise as [`bind`](crate::bind).
pub fn take(address: &str) -> Result<(), VfioError> {
    if bind::driver(address).as_deref() == Some("vfio-pci") {
        return Ok(());
    }
    let root = Root::new("/");
    let uses = uses(&root, address);
    if !uses.is_empty() {
        return Err(VfioError::InUse(address.to_owned(), uses.join(", ")));
    }
    // Held until it is done, so that nothing of it is mounted meanwhile.
    let _claims = claim(&root, address)?;
    bind::bind(address)
}

/// Returns the uses of a function; empty if there are none.
pub fn uses(root: &Root, address: &str) -> Vec<String> {
    match class(root, address) {
        Some(NVME) => {
            let disks = exclusive_disks(root, address);
            disks.iter().flat_map(|name| uses_of_disk(root, name)).collect()
        }
        Some(class) if class >> 16 == NETWORK => {
            let names = names(root, address);
            let mut uses: Vec<String> = names.iter().flat_map(|name| uses_of_interface(root, name)).collect();
            uses.extend(uses_of_nic(root, address, &names));
            uses
        }
        _ => Vec::new(),
    }
}

/// Returns the kernel's devices of a function: block devices of an SSD, interfaces of a NIC.
pub fn names(root: &Root, address: &str) -> Vec<String> {
    match class(root, address) {
        Some(NVME) => namespaces(root, address),
        _ => root.names(&format!("{DEVICES}/{address}/net")).ok().unwrap_or_default(),
    }
}

fn class(root: &Root, address: &str) -> Option<u32> {
    root.number(&format!("{DEVICES}/{address}/class")).ok().map(|class| class as u32)
}

/// Returns the block devices of an SSD that the kernel reaches through this controller alone. Those that it also reaches through another
/// one stay.
fn exclusive_disks(root: &Root, address: &str) -> Vec<String> {
    let others = root.names(DEVICES).ok().unwrap_or_default().into_iter().filter(|other| other != address);
    let live = |other: &String| {
        let folder = format!("{DEVICES}/{other}/nvme");
        let controllers = root.names(&folder).ok().unwrap_or_default();
        let state = |name: &String| root.text(&format!("{folder}/{name}/state")).ok();
        controllers.iter().any(|name| state(name).as_deref() == Some("live"))
    };
    let by_others: Vec<String> = others.filter(live).flat_map(|other| namespaces(root, &other)).collect();
    let mut names = namespaces(root, address);
    names.retain(|name| !by_others.contains(name));
    names
}

/// Returns the driver of another function of a group, if it keeps a process from using the group. [linux,
/// Documentation/driver-api/vfio.rst]
pub fn blocking_driver(root: &Root, address: &str) -> Option<String> {
    let driver = root.link(&format!("{DEVICES}/{address}/driver"))?;
    let harmless = matches!(driver.as_str(), "vfio-pci" | "pci-stub" | "pcieport");
    let bridge = class(root, address).is_some_and(|class| class >> 8 == BRIDGE);
    (!harmless && !bridge).then_some(driver)
}

/// Returns the block devices of an SSD's namespaces. With multipath, a path has its own name in addition to the namespace's: `nvme0c1n1` of
/// `nvme0n1`.
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

/// Returns mounts, swap, and everything made of a disk or its partitions.
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
            // Some multi-device file systems have their own device number: the source names one of the devices.
            let source = line.split_once(" - ").and_then(|(_, rest)| rest.split(' ').nth(1));
            let is_it =
                words.get(2).copied() == number.as_deref() && number.is_some() || source == Some(&path);
            if is_it && let Some(at) = words.get(4) {
                uses.push(format!("{name} is mounted at {at}"));
            }
        }
        if swaps.lines().any(|line| line.split_whitespace().next() == Some(&path)) {
            uses.push(format!("{name} is used as swap"));
        }
        for holder in root.names(&format!("sys/class/block/{name}/holders")).ok().unwrap_or_default() {
            uses.push(format!("{name} is part of {holder}"));
        }
    }
    uses.dedup();
    uses
}

/// Returns the uses of an interface: it is up, has addresses or routes, or is part of something.
fn uses_of_interface(root: &Root, name: &str) -> Vec<String> {
    const UP: u64 = 1;
    let mut uses = Vec::new();
    let folder = format!("sys/class/net/{name}");
    match root.number(&format!("{folder}/flags")) {
        Seen::Is(flags) if flags & UP == 0 => {}
        Seen::Is(_) => uses.push(format!("{name} is up")),
        _ => uses.push(format!("whether {name} is up could not be read")),
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

/// Returns the addresses of an interface. Those of an interface that is down are known to this machine's kernel only.
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

/// Returns the uses of a NIC other than through its interfaces here.
fn uses_of_nic(root: &Root, address: &str, names: &[String]) -> Vec<String> {
    let mut uses = Vec::new();
    let folder = format!("{DEVICES}/{address}");
    let driver = root.link(&format!("{folder}/driver"));
    if root.number(&format!("{folder}/sriov_numvfs")).ok().is_some_and(|count| count > 0) {
        uses.push("it has virtual functions".into());
    }
    if let Some(driver) = driver.filter(|driver| driver != "vfio-pci" && names.is_empty()) {
        uses.push(format!(
            "{driver} has it, but none of its interfaces is visible: a container may have one"
        ));
    }
    uses
}

/// Opens a function's disks exclusively: that fails if another program has one exclusively (a mount in another container, a volume).
/// Interfaces cannot be claimed; but taking one that is not up breaks no connection.
///
/// # Errors
///
/// [`VfioError::InUse`] if a disk is in use, [`VfioError::Io`] if that cannot be determined.
pub fn claim(root: &Root, address: &str) -> Result<Vec<File>, VfioError> {
    if class(root, address) != Some(NVME) {
        return Ok(Vec::new());
    }
    let open = |name: &String| {
        let path = root.path(&format!("dev/{name}"));
        let flags = (rustix::fs::OFlags::EXCL | rustix::fs::OFlags::CLOEXEC).bits() as i32;
        match File::options().read(true).custom_flags(flags).open(&path) {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == ErrorKind::ResourceBusy => {
                Err(VfioError::InUse(address.to_owned(), format!("another program has {}", path.display())))
            }
            // One that is already gone is not in use.
            Err(error)
                if matches!(error.kind(), ErrorKind::NotFound)
                    && !root.exists(&format!("sys/class/block/{name}")) =>
            {
                Ok(None)
            }
            Err(source) => {
                let what = format!("cannot determine whether {address} is in use: {}", path.display());
                Err(VfioError::Io { what, source })
            }
        }
    };
    let disks = exclusive_disks(root, address).iter().map(open).collect::<Result<Vec<_>, _>>()?;
    Ok(disks.into_iter().flatten().collect())
}
