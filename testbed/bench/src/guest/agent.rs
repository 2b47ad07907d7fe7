//! In the guest: names of the devices, and the process that takes tasks.

use super::task::{Task, TaskResult};
use crate::failure::{Exit, Failure};
use crate::harness::process::Helper;
use dcs_vfio_user::pci::Identity;
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Last byte of the card's address on QEMU's networks.
const CARD: u8 = 15;
/// Last byte of the guest kernel's address.
const KERNEL: u8 = 16;
/// Last byte of QEMU's own address, behind which is this machine.
const GATEWAY: u8 = 2;
/// Intel 82576, the card's NIC.
const IGB: (u16, u16) = (0x8086, 0x10c9);
/// The programming interface of NVMe.
const NVME: u32 = 0x01_0802;
/// Time limit for the kernel to find all controllers.
const PROBING: Duration = Duration::from_secs(60);

/// Returns the network of a set of an SSD and a NIC: each has a router of QEMU's.
pub fn network(set: usize) -> u8 {
    2 + set as u8
}

fn address(set: usize, host: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, network(set), host)
}

/// Returns the address of this machine as seen from the guest.
pub fn gateway(set: usize) -> Ipv4Addr {
    address(set, GATEWAY)
}

/// Returns the address of the guest's kernel.
pub fn kernel(set: usize) -> Ipv4Addr {
    address(set, KERNEL)
}

/// The hidden subcommand: prints shell lines with which the library finds the card and its devices, `sets` SSDs and NICs. DISKS
/// are the SSDs as the kernel sees them.
pub fn environment(sets: usize) -> Result<(), Failure> {
    let missing = |what: &str| Failure::new(Exit::NotFound, format!("the guest has too few: {what}"));
    let Identity { vendor, device, .. } = Identity::ACCELERATOR;
    let card = dcs_vfio::functions(Some(vendor), Some(device), None).pop().ok_or(missing("dcs card"))?;
    let ssds = ssds(sets).ok_or(missing("NVMe SSDs with two controllers each"))?;
    let nics = dcs_vfio::functions(Some(IGB.0), Some(IGB.1), None);
    // The kernel's own come first.
    let nics =
        nics.len().checked_sub(sets).map(|first| &nics[first..]).ok_or(missing("NICs for the card"))?;
    let list = |items: Vec<String>, between: &str| items.join(between);
    let drives = ssds.iter().map(|ssd| format!("{}=/dev/{}", ssd.controller, ssd.disk)).collect();
    let wires = nics.iter().enumerate().map(|(set, nic)| {
        let (own, gateway) = (address(set, CARD), gateway(set));
        format!("{nic}={own}/24,{gateway}")
    });
    println!("export DCS_CARD={card}");
    println!("export DCS_CARD_DISKS={}", list(drives, ","));
    println!("export DCS_CARD_NIC='{}'", list(wires.collect(), ";"));
    println!("DISKS='{}'", list(ssds.iter().map(|ssd| format!("/dev/{}", ssd.disk)).collect(), " "));
    Ok(())
}

/// An SSD: its disk as the kernel sees it, and its last controller, which is the card's.
struct Ssd {
    disk: String,
    controller: String,
}

/// Returns the SSDs in the order of their serial numbers, once the kernel has found this many. [Linux: drivers/nvme/host/sysfs.c]
fn ssds(count: usize) -> Option<Vec<Ssd>> {
    let end = Instant::now() + PROBING;
    loop {
        let found: Option<Vec<Ssd>> = (0..count).map(|set| ssd(&format!("dcs{set}"))).collect();
        if found.is_some() || Instant::now() > end {
            return found;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn ssd(serial: &str) -> Option<Ssd> {
    let is_it = |path: PathBuf| fs::read_to_string(path).is_ok_and(|text| text.trim() == serial);
    let mut disks: Vec<String> = fs::read_dir("/sys/block")
        .ok()?
        .flatten()
        .filter(|disk| is_it(disk.path().join("device/serial")))
        .map(|disk| disk.file_name().to_string_lossy().into_owned())
        // A path of a disk, named with its controller's number (nvme0c1n1), has no device file.
        .filter(|name| Path::new("/dev").join(name).exists())
        .collect();
    disks.sort();
    let has_it = |function: &String| {
        let controllers = fs::read_dir(format!("/sys/bus/pci/devices/{function}/nvme"));
        controllers.is_ok_and(|mut found| {
            found.any(|entry| entry.is_ok_and(|entry| is_it(entry.path().join("serial"))))
        })
    };
    let mut controllers: Vec<String> =
        dcs_vfio::functions(None, None, Some(NVME)).into_iter().filter(has_it).collect();
    // The kernel keeps the other controller.
    let controller = controllers.pop().filter(|_| !controllers.is_empty())?;
    Some(Ssd { disk: disks.into_iter().next()?, controller })
}

/// The hidden subcommand: takes tasks from `host` until that ends, and runs each in a process of its own.
pub fn run(host: SocketAddrV4) -> Result<(), Failure> {
    serve_requests(host).map_err(|error| Failure::new(Exit::Failed, format!("the guest's side: {error}")))
}

fn serve_requests(host: SocketAddrV4) -> io::Result<()> {
    let mut stream = TcpStream::connect(host)?;
    for line in BufReader::new(stream.try_clone()?).lines() {
        let outcome = perform(&serde_json::from_str(&line?)?).map_err(|error| error.to_string());
        let mut line = serde_json::to_vec(&outcome)?;
        line.push(b'\n');
        stream.write_all(&line)?;
    }
    Ok(())
}

fn perform(task: &Task) -> io::Result<TaskResult> {
    const WORKER: &str = "guest-worker";
    let start = if task.traced { Helper::start_traced } else { Helper::start };
    let mut worker = start(WORKER, task)?;
    let outcome: Result<TaskResult, String> = worker.hear()?;
    let mut outcome = outcome.map_err(io::Error::other)?;
    outcome.system_calls = worker.system_calls().transpose().map_err(io::Error::other)?;
    Ok(outcome)
}
