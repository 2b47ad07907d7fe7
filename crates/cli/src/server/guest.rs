//! In the guest: what the devices are called there, and the one who takes orders.

use super::task::{Outcome, Task};
use crate::failure::{Exit, Failure};
use crate::workload::process::Helper;
use dcs_card::pci::Identity;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddrV4, TcpStream};

/// The card's own address, and the guest kernel's, on networks that are QEMU's.
pub const CARD_ADDRESS: &str = "10.0.2.15";
pub const KERNEL_ADDRESS: &str = "10.0.2.16";
pub const GATEWAY: &str = "10.0.2.2";
/// Intel 82576, the NIC that is the card's.
const IGB: (u16, u16) = (0x8086, 0x10c9);
/// The programming interface that is NVMe's.
const NVME: u32 = 0x01_0802;

/// The hidden subcommand: lines for a shell, by which the library finds the card and its devices. `disk` is the device that the
/// kernel has the SSD's namespace as.
pub fn environment(disk: &str) -> Result<(), Failure> {
    let last = |found: Vec<String>, what: &str| {
        let missing = || Failure::new(Exit::NotFound, format!("the guest has no {what}"));
        found.into_iter().next_back().ok_or_else(missing)
    };
    let Identity { vendor, device, .. } = Identity::ACCELERATOR;
    let card = last(dcs_vfio::functions(Some(vendor), Some(device), None), "dcs card")?;
    let ssd = last(dcs_vfio::functions(None, None, Some(NVME)), "NVMe controller")?;
    let nic = last(dcs_vfio::functions(Some(IGB.0), Some(IGB.1), None), "NIC for the card")?;
    println!("export DCS_CARD={card}");
    println!("export DCS_CARD_DISKS={ssd}={disk}");
    println!("export DCS_CARD_NIC={nic}={CARD_ADDRESS}/24,{GATEWAY}");
    Ok(())
}

/// The hidden subcommand: takes tasks from `orders` until that ends. Each has a process of its own.
pub fn run(orders: SocketAddrV4) -> Result<(), Failure> {
    obey(orders).map_err(|error| Failure::new(Exit::Failed, format!("the guest's side: {error}")))
}

fn obey(orders: SocketAddrV4) -> io::Result<()> {
    let mut stream = TcpStream::connect(orders)?;
    for line in BufReader::new(stream.try_clone()?).lines() {
        let outcome = perform(&serde_json::from_str(&line?)?).map_err(|error| error.to_string());
        let mut line = serde_json::to_vec(&outcome)?;
        line.push(b'\n');
        stream.write_all(&line)?;
    }
    Ok(())
}

fn perform(task: &Task) -> io::Result<Outcome> {
    const WORKER: &str = "server-worker";
    let start = if task.traced { Helper::start_traced } else { Helper::start };
    let mut worker = start(WORKER, task)?;
    let outcome: Result<Outcome, String> = worker.hear()?;
    let mut outcome = outcome.map_err(io::Error::other)?;
    outcome.system_calls = worker.system_calls().transpose().map_err(io::Error::other)?;
    Ok(outcome)
}
