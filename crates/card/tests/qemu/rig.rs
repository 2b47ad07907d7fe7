//! A card whose registers are a mailbox, a server with it, and a guest that sets the devices up with shell commands.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use dcs_drivers::bus::{Bus, Tag};
use dcs_vfio_user::pci::{Function, Identity, Interrupts, Registers, Setup};
use dcs_vfio_user::wake::{Idle, Wake, Watch};
use dcs_vfio_user::{Running, Server, VfioUserBus};
use dcs_vm::tools::Flavour;
use dcs_vm::{Guest, Initramfs, Machine, Network, Nic, Tools, Turn, disk, turn};
use tempfile::TempDir;

pub const LIMIT: Duration = Duration::from_secs(900);
/// Guest memory that its kernel leaves alone.
pub const RAM: u64 = 0x0e00_0000;
pub const MEMORY: u64 = 16 << 20;

/// Shell functions of the guest for the test: find devices by class or vendor, enable them, and read and write their registers.
const SHELL: &str = r#"
device() { for d in /sys/bus/pci/devices/*; do case "$(cat $d/vendor $d/class | tr '\n' ' ')" in $1) echo $d;; esac; done | tail -n 1; }
bar() { sed -n "$(($2 + 1))p" $1/resource | cut -d' ' -f1; }
byte() { printf "\\x$3" | dd of=$1/config bs=1 seek=$2 conv=notrunc 2>/dev/null; }
release() { [ -e $1/driver ] && basename $1 > $1/driver/unbind; byte $1 4 06; }
CARD=$(device '0xdc51 *'); SSD=$(device '* 0x010802 '); NIC=$(device '* 0x020000 ')
release $CARD; release $SSD; release $NIC
MAIL=$(bar $CARD 0)
post() { devmem $((MAIL + $1)) 64 $2; }
post 0x10 $(bar $SSD 0); post 0x18 $(bar $NIC 0)
done_() { while [ $(devmem $((MAIL + 8)) 32) != "0x$(printf %08X $1)" ]; do sleep 0.05; done; }
"#;

/// Registers: a write is a letter to the card's thread; a read at 8 returns its answer.
struct Mailbox {
    letters: Sender<(u64, u64)>,
    answer: Arc<AtomicU32>,
    wake: Wake,
}

impl Registers for Mailbox {
    fn read(&mut self, offset: u64, bytes: &mut [u8]) {
        bytes.fill(0);
        if offset == 8 && bytes.len() == 4 {
            bytes.copy_from_slice(&self.answer.load(Ordering::Acquire).to_le_bytes());
        }
    }
    fn write(&mut self, offset: u64, bytes: &[u8]) {
        let mut value = [0; 8];
        value[..bytes.len().min(8)].copy_from_slice(&bytes[..bytes.len().min(8)]);
        let _ = self.letters.send((offset, u64::from_le_bytes(value)));
        self.wake.notify();
    }
    fn reset(&mut self) {}
}

pub struct Rig {
    pub bus: VfioUserBus,
    pub guest: Guest,
    letters: Receiver<(u64, u64)>,
    answer: Arc<AtomicU32>,
    card: Option<Running>,
    _turn: Turn,
    _folder: TempDir,
}

impl Rig {
    /// Boots a server; the guest runs `script` after it has set the devices up. Returns `None` if no virtual server is available.
    pub fn boot(script: &str) -> Option<Rig> {
        Rig::boot_with_nic(Nic::Igb, &Network::User(Vec::new()), script)
    }

    /// Boots with this NIC on this network.
    pub fn boot_with_nic(nic: Nic, network: &Network, script: &str) -> Option<Rig> {
        Rig::start(Machine::new(), false, (nic, network), &format!("{SHELL}{script}"))
    }

    /// Boots with an SSD that has a controller memory buffer of 1 MiB.
    pub fn boot_with_cmb(script: &str) -> Option<Rig> {
        let machine = Machine::new().arguments(["-global", "nvme.cmb_size_mb=1"]);
        Rig::start(machine, false, (Nic::Igb, &Network::User(Vec::new())), &format!("{SHELL}{script}"))
    }

    /// Boots with an IOMMU before all devices; the guest runs this program's ignored test `name`.
    pub fn boot_with_iommu(name: &str) -> Option<Rig> {
        let network = Network::User(Vec::new());
        let script = format!("guest-side --ignored --exact {name} --nocapture --test-threads 1");
        Rig::start(Machine::new().iommu(), true, (Nic::Igb, &network), &script)
    }

    fn start(machine: Machine, inside: bool, (nic, network): (Nic, &Network), script: &str) -> Option<Rig> {
        let tools = Tools::find_or_skip(Flavour::Cloud)?;
        let _turn = turn()?;
        let folder = tempfile::tempdir().unwrap();
        let (letters_in, letters) = channel();
        let (answer, wake): (Arc<AtomicU32>, _) = (Default::default(), Wake::new().unwrap());
        let mailbox = Mailbox { letters: letters_in, answer: answer.clone(), wake: wake.clone() };
        let setup = Setup {
            identity: Identity::ACCELERATOR,
            registers: 8192,
            memory: MEMORY,
            aperture: 0,
            interrupts: Interrupts::MsiX(4),
        };
        let function = Function::new(setup, Box::new(mailbox)).unwrap();
        let socket = folder.path().join("card");
        let (server, bus) = Server::bind(&socket, function, wake).unwrap();
        let card = server.start().unwrap();

        let (contents, image) = (folder.path().join("contents"), folder.path().join("disk.img"));
        std::fs::create_dir(&contents).unwrap();
        std::fs::write(contents.join("hello"), "from the disk").unwrap();
        disk::ext4(&tools, &image, 32 << 20, &contents).unwrap();
        let mut initramfs = Initramfs::new(&tools).unwrap();
        if inside {
            initramfs.modules(&["vfio-pci", "vfio_iommu_type1"]).unwrap();
            initramfs.program("bin/guest-side", &std::env::current_exe().unwrap()).unwrap();
        }
        let machine = machine
            .limit(LIMIT)
            .append(format!("memmap=1M${RAM:#x}"))
            .nvme(&image)
            .nic(nic, network)
            .card(&socket);
        let initramfs = initramfs.finish(script);
        let guest = machine.start(&tools, &initramfs, folder.path()).unwrap();
        Some(Rig { bus, guest, letters, answer, card: Some(card), _turn, _folder: folder })
    }

    /// Waits for the guest's next write to this register; skips other writes before it.
    pub fn letter(&mut self, register: u64) -> u64 {
        let (end, mut idle) = (Instant::now() + LIMIT, Idle::default());
        // Clears the resets of the guest's boot.
        self.bus.acknowledge_resets();
        while Instant::now() < end {
            match self.letters.try_recv() {
                Ok((offset, value)) if offset == register => {
                    self.bus.acknowledge_resets();
                    return value;
                }
                Ok(_) => idle.worked(),
                Err(_) => {
                    let soon = Instant::now() + Duration::from_millis(100);
                    self.bus.wait(&mut idle, Watch::Host, Some(soon), || false);
                }
            }
            while self.guest.line(Duration::ZERO).expect("the guest runs").is_some() {}
        }
        panic!("the guest did not write register {register:#x}");
    }

    /// Unplugs the card: its process is gone.
    pub fn pull(&mut self) {
        self.card = None;
    }

    /// Lets the guest continue after `done_ number`.
    pub fn answer(&self, number: u32) {
        self.answer.store(number, Ordering::Release);
    }

    pub fn read32(&mut self, address: u64) -> u32 {
        u32::from_le_bytes(self.read(address, 4).try_into().unwrap())
    }

    pub fn read(&mut self, address: u64, length: u32) -> Vec<u8> {
        self.bus.read(address, length, Tag(1));
        self.bus.wait_for(Tag(1), LIMIT).unwrap()
    }
}
