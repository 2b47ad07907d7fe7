//! The virtual server: its devices, its guest and the card's process.

use super::agent;
use super::card::{self, Asked, Listening};
use super::task::object;
use crate::failure::{Exit, Failure};
use crate::guest::engine::CardEngine;
use crate::guest::nic::KernelNic;
use crate::harness::faults::{Faults, Strikes};
use crate::harness::process::Helper;
use crate::interrupt::{self, Leftover};
use crate::report::Report;
use dcs_fabric::Struck;
use dcs_vm::tools::Flavour;
use dcs_vm::{Initramfs, Machine, Network, Nic, Tools, disk};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

/// Memory of the guest.
const MEMORY_MIB: u32 = 512;
/// Memory of the SSD's second controller, which software that drives it uses for blocks.
const SSD_MEMORY_MIB: u32 = 32;
/// Seed of the objects that are on the SSD from the start.
pub const SEED: u64 = 1;

/// The script that runs before anything else in the guest. It mounts the first set's file system at /mnt, the second's at /mnt1.
const PREPARE: &str = r#"
environment=$(dcs-bench guest-environment SETS) || echo "guest: no card"
eval "$environment"
set --
for disk in $DISKS; do
  at=/mnt$1; mkdir -p $at
  mount -t ext4 "$disk" $at || echo "guest: no file system on $disk"
  set -- $((${1:-0} + 1))
done
nic() { for net in /sys/class/net/*; do [ "$(cat $net/address)" = "$1" ] && echo ${net##*/}; done; }
"#;

/// Everything that a guest needs before it boots.
pub struct Parts {
    pub tools: Tools,
    pub machine: Machine,
    pub folder: TempDir,
    initramfs: Vec<u8>,
    /// The card's process.
    card: Helper,
    _leftover: Leftover,
}

/// Requirements for a server.
pub struct Wanted<'a> {
    /// Contents of each SSD.
    pub contents: &'a Contents,
    /// Number of sets of an SSD, a NIC for the card, and a NIC for the kernel.
    pub sets: usize,
    pub nic: KernelNic,
    /// The `dcs` to install in the guest for people.
    pub dcs: Option<&'a Path>,
    /// The script that the guest runs when it is up.
    pub script: &'a str,
    /// Time after which the guest powers off by itself.
    pub limit: Duration,
    /// Faults of the card's SSDs.
    pub faults: &'a Faults,
    /// The core of the card's engine.
    pub engine: CardEngine,
}

/// Objects on the SSD to send, and to receive into: bytes of each.
#[derive(Clone, Debug, Default)]
pub struct Contents {
    pub send: Vec<u64>,
    pub receive: Vec<u64>,
}

impl Parts {
    pub fn new(wanted: &Wanted<'_>, report: &Report) -> Result<Parts, Failure> {
        card::interposer(wanted.faults)?;
        wanted.engine.make()?;
        let flavour = wanted.nic.flavour();
        let tools = Tools::find(flavour, &|step| report.remark(format_args!("dcs: {step}")));
        let tools = tools.map_err(failure)?;
        let make = || tempfile::Builder::new().prefix("dcs-server.").tempdir();
        let (folder, leftover) = interrupt::folder_of(make)
            .map_err(|error| Failure::io("folder of the virtual server", &error))?;
        let step = report.step("making the SSD and the guest".into());
        let images = (0..wanted.sets).map(|set| image(&tools, folder.path(), wanted.contents, set));
        let images = images.collect::<Result<Vec<_>, _>>()?;
        let initramfs = initramfs(&tools, flavour, wanted)?;
        drop(step);
        let socket = folder.path().join("card");
        let card = start_card(&socket, wanted.faults, wanted.engine)?;
        let mut machine = Machine::new()
            .memory(MEMORY_MIB)
            .limit(wanted.limit)
            .iommu()
            // The kernel's own devices bypass the IOMMU, so that the host-centric path has no work with it.
            .append("iommu=pt")
            // The name identifies the processor's thread.
            .arguments(["-name", "dcs,debug-threads=on"]);
        for image in &images {
            machine = machine.nvme_with_memory(image, SSD_MEMORY_MIB);
        }
        // The kernel's NICs come first: the order tells which are the card's.
        for nic in [wanted.nic.into(), Nic::Igb] {
            for set in 0..wanted.sets {
                machine = machine.nic(nic, &Network::Subnet(agent::network(set)));
            }
        }
        let machine = machine.card(&socket);
        Ok(Parts { tools, machine, folder, initramfs, card, _leftover: leftover })
    }

    pub fn initramfs(&self) -> &[u8] {
        &self.initramfs
    }

    /// Returns the ID of the card's process.
    pub fn card(&self) -> u32 {
        self.card.pid()
    }

    /// Returns how often each fault struck.
    pub fn struck(&mut self) -> Result<Vec<Struck>, Failure> {
        let failed = |error| Failure::io("the card's process", &error);
        self.card.tell(&Asked {}).map_err(failed)?;
        let told: Vec<Strikes> = self.card.hear().map_err(failed)?;
        Ok(told.iter().filter_map(Strikes::struck).collect())
    }
}

/// Starts the card in a process of its own. It listens when this returns.
fn start_card(socket: &Path, faults: &Faults, engine: CardEngine) -> Result<Helper, Failure> {
    let failed = |error| Failure::io("the card's process", &error);
    let program = std::env::current_exe().map_err(failed)?;
    let mut command = Command::new(program);
    command.arg("guest-card").arg(socket).args(["--engine", engine.name()]);
    for plan in &faults.plans {
        command.args(["--fault", &plan.to_string()]);
    }
    command.args(["--fault-seed", &faults.seed.to_string()]);
    let mut card = Helper::spawn(&mut command).map_err(failed)?;
    let Listening {} = card.hear().map_err(failed)?;
    Ok(card)
}

/// Returns the seed of a set's SSD.
pub fn seed(set: usize) -> u64 {
    SEED + ((set as u64) << 32)
}

/// Makes an ext4 file system with the objects.
fn image(tools: &Tools, folder: &Path, objects: &Contents, set: usize) -> Result<PathBuf, Failure> {
    let (contents, image) = (folder.join("contents"), folder.join(format!("ssd{set}")));
    let write = || {
        for (name, lengths) in [("send", &objects.send), ("receive", &objects.receive)] {
            std::fs::create_dir_all(contents.join(name))?;
            for (number, length) in lengths.iter().enumerate() {
                // Allocates blocks that were written before, as an object store has before it receives.
                let bytes = match name {
                    "send" => object(seed(set), number, *length),
                    _ => vec![0xff; *length as usize],
                };
                std::fs::write(contents.join(name).join(number.to_string()), bytes)?;
            }
        }
        Ok(())
    };
    write().map_err(|error| Failure::io("contents of the SSD", &error))?;
    let bytes: u64 = objects.send.iter().chain(&objects.receive).sum();
    disk::ext4(tools, &image, bytes.next_multiple_of(1 << 20) + (64 << 20), &contents).map_err(failure)?;
    // The SSD's image has the contents now.
    let _ = std::fs::remove_dir_all(&contents);
    Ok(image)
}

fn initramfs(tools: &Tools, flavour: Flavour, wanted: &Wanted<'_>) -> Result<Vec<u8>, Failure> {
    let mut initramfs = Initramfs::new(tools).map_err(failure)?;
    if flavour == Flavour::Full {
        initramfs.modules(&["nvme", "crc32c_generic", "ext4"]).map_err(failure)?;
    }
    initramfs.modules(&[wanted.nic.module(), "vfio-pci", "vfio_iommu_type1"]).map_err(failure)?;
    let program = std::env::current_exe().map_err(|error| Failure::io("this program", &error))?;
    initramfs.program("bin/dcs-bench", &program).map_err(failure)?;
    if let Some(dcs) = wanted.dcs {
        initramfs.program("bin/dcs", dcs).map_err(failure)?;
    }
    let mut script = PREPARE.replace("SETS", &wanted.sets.to_string());
    for set in 0..wanted.sets {
        let (mac, address) = (Machine::mac(set as u32), agent::kernel(set));
        script += &format!("NET=$(nic {mac}); ip link set $NET up && ip addr add {address}/24 dev $NET\n");
    }
    script += &format!("ip route add default via {}\n{}", agent::gateway(0), wanted.script);
    Ok(initramfs.finish(&script))
}

/// Returns the failure of a virtual server that is not available, or has failed.
pub fn failure(error: dcs_vm::Error) -> Failure {
    match error.is_unavailable() {
        true => Failure::new(Exit::Unavailable, format!("no virtual server here: {error}"))
            .advise("everything else in dcs works without one; see docs/server.md for what it needs"),
        false => Failure::new(Exit::Failed, format!("the virtual server: {error}")),
    }
}
