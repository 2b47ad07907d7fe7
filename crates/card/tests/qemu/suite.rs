//! Runs the scenarios that every backend passes on the card: in a guest whose kernel has mounted the SSD's file system, and has a NIC at
//! the other end of the card's cable, so that Linux's TCP is the peer.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use dcs::card::{Disk, Nic as CardNic, Options, extents};
use dcs::media::{Sender, Settings};
use dcs::net::{Connection, Listener};
use dcs::{Backend, Engine, Sink, Source};
use dcs_card::card::Config;
use dcs_card::serve::serve;
use dcs_scenarios::{Flow, World};
use dcs_vm::tools::Flavour;
use dcs_vm::{Initramfs, Machine, Network, Nic, Tools, disk};

use crate::rig::{LIMIT, MEMORY};

const CARD: Ipv4Addr = Ipv4Addr::new(10, 0, 3, 1);
const LINUX: Ipv4Addr = Ipv4Addr::new(10, 0, 3, 2);
const PORT: u16 = 80;

#[test]
fn every_scenario_on_the_card() {
    let Some(tools) = Tools::find_or_skip(Flavour::Cloud) else { return };
    let Some(_turn) = dcs_vm::turn() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::create_dir(path("files")).unwrap();
    disk::ext4(&tools, &path("disk"), 256 << 20, &path("files")).unwrap();
    let card = serve(&path("card"), MEMORY, Config { key: [3; 16], ..Config::default() }).unwrap();
    let mut initramfs = Initramfs::new(&tools).unwrap();
    initramfs.modules(&["vfio-pci", "vfio_iommu_type1", "virtio_net"]).unwrap();
    initramfs.program("bin/guest-side", &std::env::current_exe().unwrap()).unwrap();
    let script = "export DISK=$(disk)\n\
        mkdir -p /mnt; mount -t ext4 $DISK /mnt || echo 'no ext4'\n\
        ip link set lo up; ip addr add 10.0.3.2/24 dev eth0; ip link set eth0 up\n\
        guest-side --ignored --exact suite::the_scenarios_in_the_guest --nocapture --test-threads 1";
    // A cable of QEMU's own: with a socket between two of its NICs, one might connect before the other listens, and never try again.
    let machine = Machine::new().memory(512).limit(LIMIT).iommu().nvme(&path("disk"));
    let machine = machine.nic(Nic::Virtio, &Network::Cable(1)).nic(Nic::Igb, &Network::Cable(1));
    let machine = machine.card(&path("card"));
    let mut guest = machine.start(&tools, &initramfs.finish(script), folder.path()).unwrap();
    for (name, _) in dcs_scenarios::all() {
        let done = guest.wait_for(&format!("@done {name}"), LIMIT);
        println!("{name}: {}", done.unwrap_or_else(|error| panic!("{name}: {error}")));
    }
    guest.wait_for("@guest's end", LIMIT).unwrap();
    drop(card);
}

/// Makes the engine of the guest's card, which has its last SSD, and its last NIC at this address.
pub fn engine_in_the_guest(address: Ipv4Addr) -> Engine {
    let last =
        |vendor, class| dcs_vfio::functions(vendor, None, Some(class)).last().expect("there is one").clone();
    let device = Some(PathBuf::from(std::env::var_os("DISK").expect("the script says")));
    let disk = Disk { function: last(None, 0x01_0802), device };
    let nic = CardNic { function: last(Some(0x8086), 0x02_0000), address, prefix: 24, gateway: None };
    let options = Options { card: None, disks: vec![disk], nics: vec![nic] };
    Engine::builder().backend(Backend::Card).card(options).start().unwrap()
}

struct Card {
    engine: Engine,
    listener: Listener,
    /// Lock for making connections one at a time, so that the accepted one is the peer.
    one: Mutex<()>,
}

struct Connected(Connection);

impl Flow for Connected {
    fn source(&self) -> Source {
        Source::connection(&self.0)
    }
    fn sink(&self) -> Sink {
        Sink::connection(&self.0)
    }
}

impl World for Card {
    fn engine(&self) -> &Engine {
        &self.engine
    }
    fn folder(&self) -> &Path {
        Path::new("/mnt")
    }
    fn connect(&self) -> (Box<dyn Flow>, TcpStream) {
        let _one = self.one.lock().unwrap();
        // The card's NIC gets its link some time after it was attached.
        let reach = || TcpStream::connect_timeout(&(CARD, PORT).into(), Duration::from_secs(1));
        let peer = (0..30).find_map(|_| reach().ok()).expect("the card is reached");
        peer.set_read_timeout(Some(Duration::from_secs(300))).unwrap();
        (Box::new(Connected(self.listener.accept().unwrap())), peer)
    }
    fn prepare(&self, file: &File, length: u64) {
        extents::prepare(file, length).unwrap();
    }

    fn media(&self, settings: Settings) -> (Sender, UdpSocket) {
        let peer = dcs_scenarios::receiver(LINUX);
        let SocketAddr::V4(to) = peer.local_addr().unwrap() else { panic!("it has an address of IPv4") };
        (Sender::by_nic(&self.engine, to, 1, settings).unwrap(), peer)
    }
}

#[test]
#[ignore = "runs in the guest of every_scenario_on_the_card"]
fn the_scenarios_in_the_guest() {
    let engine = engine_in_the_guest(CARD);
    let listener = engine.listen(PORT).unwrap();
    let world = Card { engine, listener, one: Mutex::new(()) };
    for (name, scenario) in dcs_scenarios::all() {
        let start = std::time::Instant::now();
        scenario(&world);
        println!("@done {name} {:?}", start.elapsed());
    }
    println!("@guest's end");
}
