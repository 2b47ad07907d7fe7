//! QEMU's command line.

use std::fmt;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

use crate::error::{self, Error};
use crate::guest::Guest;
use crate::tools::Tools;

/// A server before it is powered on.
#[derive(Clone, Debug)]
pub struct Machine {
    memory: u32,
    processors: u32,
    limit: Duration,
    append: Vec<String>,
    arguments: Vec<String>,
    firmware: bool,
    nics: u32,
    igbs: u32,
    ssds: u32,
}

/// A NIC model of QEMU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nic {
    /// Intel 82574L.
    E1000e,
    /// Intel 82576.
    Igb,
    /// Paravirtual: for guests whose kernel has no driver for the others.
    Virtio,
}

impl Nic {
    fn name(self) -> &'static str {
        match self {
            Nic::E1000e => "e1000e",
            Nic::Igb => "igb",
            Nic::Virtio => "virtio-net-pci",
        }
    }
}

/// The far end of a NIC's cable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Network {
    /// QEMU's own router, with the addresses 10.0.2.0/24 and itself at 10.0.2.2. These ports of this machine are forwarded to
    /// ports of the server, TCP or UDP.
    User(Vec<Forward>),
    /// QEMU's router with the addresses 10.0.N.0/24 and itself at 10.0.N.2: a router for each NIC.
    Subnet(u8),
    /// A stream of frames, each after its length in 32 bits, big-endian, over a Unix socket that another process listens on.
    Stream(std::path::PathBuf),
    /// A cable within the server, shared by all NICs with the same number.
    Cable(u32),
}

/// A port of this machine that is forwarded to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forward {
    /// True for TCP, false for UDP.
    pub tcp: bool,
    /// Address on this machine.
    pub from: SocketAddr,
    /// Address in the server.
    pub to: SocketAddr,
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Network::User(forwards) => {
                write!(f, "user,restrict=off")?;
                forwards.iter().try_for_each(|Forward { tcp, from, to }| {
                    let kind = if *tcp { "tcp" } else { "udp" };
                    write!(f, ",hostfwd={kind}:{}:{}-{}:{}", from.ip(), from.port(), to.ip(), to.port())
                })
            }
            Network::Subnet(number) => write!(f, "user,restrict=off,net=10.0.{number}.0/24"),
            Network::Stream(path) => {
                write!(f, "stream,server=off,addr.type=unix,addr.path={}", escaped(path))
            }
            Network::Cable(number) => write!(f, "hubport,hubid={number}"),
        }
    }
}

/// Escapes a path for an option: commas are doubled. [QEMU, invocation]
fn escaped(path: &Path) -> String {
    path.display().to_string().replace(',', ",,")
}

impl Default for Machine {
    fn default() -> Machine {
        Machine::new()
    }
}

impl Machine {
    /// Returns a server with one processor, 384 MiB and no devices, which powers off after five minutes.
    pub fn new() -> Machine {
        let limit = Duration::from_secs(300);
        let (append, arguments) = Default::default();
        let (memory, processors, firmware) = (384, 1, false);
        Machine { memory, processors, limit, append, arguments, firmware, nics: 0, igbs: 0, ssds: 0 }
    }

    /// Sets the memory in MiB.
    pub fn memory(mut self, mebibytes: u32) -> Machine {
        self.memory = mebibytes;
        self
    }

    /// Sets the number of processors.
    pub fn processors(mut self, processors: u32) -> Machine {
        self.processors = processors;
        self
    }

    /// Sets the time after which the guest powers off by itself, so that it cannot be left running.
    pub fn limit(mut self, limit: Duration) -> Machine {
        self.limit = limit;
        self
    }

    /// Adds a word to the kernel's command line.
    pub fn append(mut self, word: impl Into<String>) -> Machine {
        self.append.push(word.into());
        self
    }

    /// Boots with EDK2 from a disk, instead of a kernel supplied to QEMU.
    pub fn firmware(mut self) -> Machine {
        self.firmware = true;
        self
    }

    /// Adds arguments for QEMU that have no method here.
    pub fn arguments<'a>(mut self, arguments: impl IntoIterator<Item = &'a str>) -> Machine {
        self.arguments.extend(arguments.into_iter().map(str::to_owned));
        self
    }

    /// Adds an IOMMU, which the guest's kernel uses for every device. Add it before the devices.
    pub fn iommu(self) -> Machine {
        self.arguments(["-device", "intel-iommu,caching-mode=on,intremap=on"]).append("intel_iommu=on")
    }

    /// Adds an SSD with two controllers that share one namespace, the disk image: the guest's kernel keeps one, and the card can
    /// drive the other. The first SSD's serial number is `dcs0`, the second one's `dcs1`.
    pub fn nvme(self, image: &Path) -> Machine {
        self.nvme_with_memory(image, 0)
    }

    /// Adds an SSD whose second controller has memory that other devices reach too (a persistent memory region): this many MiB, a
    /// power of two, or none.
    pub fn nvme_with_memory(mut self, image: &Path, mebibytes: u32) -> Machine {
        let n = self.ssds;
        self.ssds += 1;
        let mut memory = String::new();
        if mebibytes > 0 {
            let backend = format!("memory-backend-memfd,id=ssd{n}memory,size={mebibytes}M,share=on");
            self = self.arguments(["-object", &backend]);
            memory = format!(",pmrdev=ssd{n}memory");
        }
        let controller = format!("serial=dcs{n},subsys=ssd{n},max_ioqpairs=8");
        self.arguments([
            "-drive",
            &format!("file={},format=raw,if=none,id=disk{n},cache=unsafe", escaped(image)),
            "-device",
            &format!("nvme-subsys,id=ssd{n}"),
            "-device",
            &format!("nvme,id=ssd{n}a,{controller}"),
            "-device",
            // Large transfers to another device's memory go through a buffer of this size.
            &format!("nvme,id=ssd{n}b,{controller},x-max-bounce-buffer-size=1048576{memory}"),
            "-device",
            &format!("nvme-ns,drive=disk{n},bus=ssd{n}a,shared=on"),
        ])
    }

    /// Adds a paravirtual disk (virtio-blk), the disk image, past this machine's page cache where its file system can.
    pub fn virtio(self, image: &Path) -> Machine {
        let file = format!("file={},format=raw,if=none,id=virtio0,cache=none,aio=threads", escaped(image));
        self.arguments(["-drive", &file, "-device", "virtio-blk-pci,drive=virtio0"])
    }

    /// Returns the address of a NIC. NICs are numbered from 0 in the order of their addition.
    pub fn mac(nic: u32) -> String {
        format!("52:54:00:dc:50:{:02x}", nic + 1)
    }

    /// Adds a NIC with its cable. QEMU's monitor calls the first one's cable `net0`, the second one's `net1`.
    pub fn nic(mut self, nic: Nic, network: &Network) -> Machine {
        let name = format!("net{}", self.nics);
        let mac = Machine::mac(self.nics);
        self.nics += 1;
        // A frame whose pieces in another device's memory don't fit into this buffer together is lost silently.
        let bounce = if nic == Nic::Virtio { "" } else { ",x-max-bounce-buffer-size=1048576" };
        let (device, bus) = (nic.name(), self.bus(nic));
        self.arguments([
            "-netdev",
            &format!("{network},id={name}"),
            "-device",
            &format!("{device},netdev={name},mac={mac},romfile={bounce}{bus}"),
        ])
    }

    /// Returns a NIC's bus. The virtual functions of an 82576 occupy the next device's place on its bus: all NICs but the first
    /// have root ports of their own.
    fn bus(&mut self, nic: Nic) -> String {
        let number = self.igbs;
        self.igbs += u32::from(nic == Nic::Igb);
        if nic != Nic::Igb || number == 0 {
            return String::new();
        }
        let port = format!("pcie-root-port,id=port{number},chassis={number}");
        self.arguments.extend(["-device".to_owned(), port]);
        format!(",bus=port{number}")
    }

    /// Adds a card that is served at this socket. A process must listen there when the server is powered on.
    pub fn card(self, socket: &Path) -> Machine {
        let path = socket.display().to_string().replace('\\', "\\\\").replace('"', "\\\"");
        let socket = format!("{{\"type\":\"unix\",\"path\":\"{path}\"}}");
        self.arguments([
            "-device",
            &format!("{{\"driver\":\"vfio-user-pci\",\"socket\":{socket},\"rombar\":0}}"),
        ])
    }

    /// Powers the server on. Files that it needs go into `folder`.
    ///
    /// # Errors
    ///
    /// If QEMU cannot be started. Errors in its arguments show only when something is waited for.
    pub fn start(&self, tools: &Tools, initramfs: &[u8], folder: &Path) -> Result<Guest, Error> {
        let mut qemu = self.command(tools, initramfs, folder)?;
        let monitor = folder.join("monitor");
        qemu.args(["-serial", "stdio"]);
        qemu.args(["-monitor", &format!("unix:{},server=on,wait=off", escaped(&monitor))]);
        Guest::start(qemu, monitor)
    }

    /// Powers the server on with its console on this process's terminal; Ctrl-A x powers it off, Ctrl-C goes to the guest. QEMU's
    /// own messages go to `qemu.log` in `folder`. The caller has to wait for the process.
    ///
    /// # Errors
    ///
    /// The same as [`Machine::start`].
    pub fn start_on_terminal(&self, tools: &Tools, initramfs: &[u8], folder: &Path) -> Result<Child, Error> {
        let mut qemu = self.command(tools, initramfs, folder)?;
        qemu.args(["-serial", "mon:stdio"]);
        let log = folder.join("qemu.log");
        qemu.stderr(fs::File::create(&log).map_err(error::at(&log))?);
        let what = qemu.get_program().to_string_lossy().into_owned();
        qemu.spawn().map_err(error::io(what))
    }

    fn command(&self, tools: &Tools, initramfs: &[u8], folder: &Path) -> Result<Command, Error> {
        let image = folder.join("initramfs.cpio");
        fs::write(&image, initramfs).map_err(error::at(&image))?;
        let memory = format!("memory-backend-memfd,id=memory,size={}M,share=on", self.memory);
        let mut qemu = tools.qemu();
        qemu.args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"])
            .args(["-machine", "q35,memory-backend=memory,kernel-irqchip=off", "-accel", "tcg,thread=multi"])
            .args(["-cpu", "qemu64", "-smp", &self.processors.to_string()])
            .args(["-m", &format!("{}M", self.memory), "-object", &memory]);
        if self.firmware {
            let (code, first) = tools.firmware(&|_| ())?;
            let variables = folder.join("variables");
            fs::copy(&first, &variables).map_err(error::at(&first))?;
            let flash = |unit, path: &Path, more| {
                format!("if=pflash,format=raw,unit={unit},file={}{more}", escaped(path))
            };
            qemu.args(["-drive", &flash(0, &code, ",readonly=on"), "-drive", &flash(1, &variables, "")]);
        } else {
            qemu.arg("-kernel").arg(tools.bootable()?).arg("-initrd").arg(&image);
            qemu.args(["-append", &self.command_line()]);
        }
        qemu.args(&self.arguments);
        Ok(qemu)
    }

    /// Returns the kernel's command line.
    pub fn command_line(&self) -> String {
        // The time stamp counter of an emulated processor is not steady, even if it claims to be.
        let clock = "tsc=unstable clocksource=acpi_pm no_timer_check";
        let limit = self.limit.as_secs();
        let append = self.append.join(" ");
        // Each of these spares a part of a boot under emulation: security modules, tests of the kernel's own ciphers, an entropy
        // source that times itself, names for traces, patches of locked instructions for one processor, and zeros in memory
        // that is written anyway.
        let spared = "lsm= cryptomgr.notests initcall_blacklist=jent_mod_init,trace_eval_init noreplace-smp init_on_alloc=0";
        format!("console=ttyS0 quiet panic=-1 mitigations=off {spared} {clock} dcs.limit={limit} {append}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_82576_leaves_the_place_of_another_s_virtual_functions() {
        let cable = Network::Cable(1);
        let machine = Machine::new().nic(Nic::Igb, &cable).nic(Nic::Virtio, &cable).nic(Nic::Igb, &cable);
        let has = |wanted: &str| machine.arguments.iter().filter(|one| one.contains(wanted)).count();
        assert_eq!((has("igb,netdev=net0"), has("igb,netdev=net2"), has("bus=port")), (1, 1, 1));
        let port = machine.arguments.iter().position(|one| one.starts_with("pcie-root-port,id=port1"));
        let behind = machine.arguments.iter().position(|one| one.ends_with(",bus=port1"));
        assert!(port.is_some() && port < behind, "{:?}", machine.arguments);
    }

    #[test]
    fn a_network_is_an_option() {
        let forward = Forward {
            tcp: true,
            from: "127.0.0.1:8080".parse().unwrap(),
            to: "10.0.2.15:80".parse().unwrap(),
        };
        let user = Network::User(vec![forward]).to_string();
        assert_eq!(user, "user,restrict=off,hostfwd=tcp:127.0.0.1:8080-10.0.2.15:80");
        let stream = Network::Stream("/a,b/c".into()).to_string();
        assert_eq!(stream, "stream,server=off,addr.type=unix,addr.path=/a,,b/c");
        assert_eq!(Network::Cable(7).to_string(), "hubport,hubid=7");
        assert_eq!(Network::Subnet(3).to_string(), "user,restrict=off,net=10.0.3.0/24");
    }
}
