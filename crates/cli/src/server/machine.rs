//! The virtual server: its devices, its guest and the card beside it.

use super::guest::{GATEWAY, KERNEL_ADDRESS};
use super::task::object;
use crate::args::KernelNic;
use crate::failure::{Exit, Failure};
use crate::interrupt::{self, Leftover};
use crate::report::Report;
use crate::workload::process::Helper;
use dcs_vm::tools::Flavour;
use dcs_vm::{Initramfs, Machine, Network, Nic, Tools, disk};
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

/// Of the guest.
const MEMORY_MIB: u32 = 512;
/// The seed of the objects that the SSD has from the beginning.
pub const SEED: u64 = 1;

/// What comes before whatever the guest is to do. The kernel's NIC is the first, its address says so.
const PREPARE: &str = r#"
DISK=$(disk | head -n 1)
mount -t ext4 "$DISK" /mnt || echo "guest: no file system on $DISK"
for net in /sys/class/net/*; do [ "$(cat $net/address)" = 52:54:00:dc:50:01 ] && NET=${net##*/}; done
ip link set "$NET" up && ip addr add KERNEL/24 dev "$NET" && ip route add default via GATEWAY
environment=$(dcs server-environment "$DISK") || echo "guest: no card"
eval "$environment"
"#;

/// Everything that a guest needs, before it is switched on.
pub struct Parts {
    pub tools: Tools,
    pub machine: Machine,
    pub folder: TempDir,
    initramfs: Vec<u8>,
    /// The card's process.
    card: Helper,
    _leftover: Leftover,
}

/// What is wanted of it.
pub struct Wanted<'a> {
    pub contents: &'a Contents,
    pub nic: KernelNic,
    /// What the guest does when it is up.
    pub script: &'a str,
    /// It switches itself off after so long.
    pub limit: Duration,
}

/// Objects on the SSD to be sent, and to be received into: bytes of each.
#[derive(Clone, Debug, Default)]
pub struct Contents {
    pub send: Vec<u64>,
    pub receive: Vec<u64>,
}

#[derive(Deserialize)]
struct Listening {
    event: String,
}

impl Parts {
    pub fn new(wanted: &Wanted<'_>, report: &Report) -> Result<Parts, Failure> {
        let flavour = match wanted.nic {
            KernelNic::Virtio => Flavour::Cloud,
            KernelNic::E1000e | KernelNic::Igb => Flavour::Full,
        };
        let tools = Tools::find(flavour, &|step| report.remark(format_args!("dcs: {step}")));
        let tools = tools.map_err(failure)?;
        let folder = tempfile::Builder::new().prefix("dcs-server.").tempdir();
        let folder = folder.map_err(|error| Failure::io("folder of the virtual server", &error))?;
        let leftover = interrupt::leftover(folder.path());
        let step = report.step("making the SSD and the guest".into());
        let image = image(&tools, folder.path(), wanted.contents)?;
        let initramfs = initramfs(&tools, flavour, wanted)?;
        drop(step);
        let socket = folder.path().join("card");
        let card = start_card(&socket)?;
        let user = Network::User(Vec::new());
        let machine = Machine::new()
            .memory(MEMORY_MIB)
            .limit(wanted.limit)
            .iommu()
            // What the kernel keeps goes past the IOMMU: the host-centric path has no work with it.
            .append("iommu=pt")
            // The processor's thread is found by its name.
            .arguments(["-name", "dcs,debug-threads=on"])
            .nvme(&image)
            .nic(wanted.nic.into(), &user)
            .nic(Nic::Igb, &user)
            .card(&socket);
        Ok(Parts { tools, machine, folder, initramfs, card, _leftover: leftover })
    }

    pub fn initramfs(&self) -> &[u8] {
        &self.initramfs
    }

    /// The card's process.
    pub fn card(&self) -> u32 {
        self.card.pid()
    }
}

impl From<KernelNic> for Nic {
    fn from(nic: KernelNic) -> Nic {
        match nic {
            KernelNic::Virtio => Nic::Virtio,
            KernelNic::E1000e => Nic::E1000e,
            KernelNic::Igb => Nic::Igb,
        }
    }
}

/// The card in a process of its own, which listens when this returns.
fn start_card(socket: &Path) -> Result<Helper, Failure> {
    let failed = |error| Failure::io("the card's process", &error);
    let program = std::env::current_exe().map_err(failed)?;
    let mut command = Command::new(program);
    command.arg("card").arg(socket).args(["--json", "--with-parent"]);
    let mut card = Helper::spawn(&mut command).map_err(failed)?;
    let listening: Listening = card.hear().map_err(failed)?;
    match listening.event.as_str() {
        "listening" => Ok(card),
        _ => Err(Failure::new(Exit::Failed, "the card's process does not listen")),
    }
}

/// An ext4 file system with the objects.
fn image(tools: &Tools, folder: &Path, objects: &Contents) -> Result<PathBuf, Failure> {
    let (contents, image) = (folder.join("contents"), folder.join("ssd"));
    let write = || {
        for (name, lengths) in [("send", &objects.send), ("receive", &objects.receive)] {
            std::fs::create_dir_all(contents.join(name))?;
            for (number, length) in lengths.iter().enumerate() {
                // Places on the disk that were written once: an object store has them before it receives.
                let bytes = match name {
                    "send" => object(SEED, number, *length),
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
    // The SSD has them now.
    let _ = std::fs::remove_dir_all(&contents);
    Ok(image)
}

fn initramfs(tools: &Tools, flavour: Flavour, wanted: &Wanted<'_>) -> Result<Vec<u8>, Failure> {
    let mut initramfs = Initramfs::new(tools).map_err(failure)?;
    if flavour == Flavour::Full {
        initramfs.modules(&["nvme", "crc32c_generic", "ext4"]).map_err(failure)?;
    }
    let nic = match wanted.nic {
        KernelNic::Virtio => "virtio_net",
        KernelNic::E1000e => "e1000e",
        KernelNic::Igb => "igb",
    };
    initramfs.modules(&[nic, "vfio-pci", "vfio_iommu_type1"]).map_err(failure)?;
    let program = std::env::current_exe().map_err(|error| Failure::io("this program", &error))?;
    initramfs.program("bin/dcs", &program).map_err(failure)?;
    let prepare = PREPARE.replace("KERNEL", KERNEL_ADDRESS).replace("GATEWAY", GATEWAY);
    Ok(initramfs.finish(&format!("{prepare}{}", wanted.script)))
}

/// What a virtual server says that cannot be had, or has failed.
pub fn failure(error: dcs_vm::Error) -> Failure {
    match error.is_unavailable() {
        true => Failure::new(Exit::Unavailable, format!("no virtual server here: {error}"))
            .advise("all else of dcs works without one; docs/server.md says what it needs"),
        false => Failure::new(Exit::Failed, format!("the virtual server: {error}")),
    }
}
