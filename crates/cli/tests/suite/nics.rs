//! NICs that `dcs` drives itself: in a guest whose NICs, QEMU's of Intel's models, are behind an IOMMU beside its NVMe SSDs. Skipped, with the reason,
//! where no virtual server is to be had.

use crate::guest::{LIMIT, Rig, data, digest, md5, path_has, raw, ssd};
use crate::run::Place;
use dcs_vm::tools::Flavour;
use dcs_vm::{Machine, Network, Nic};

const MIB: usize = 1 << 20;
const BYTES: usize = 16 * MIB;

/// The kernel with drivers of Intel's NICs.
const ALL: (Flavour, &[&str]) =
    (Flavour::Full, &["nvme", "igb", "e1000e", "virtio_net", "vfio-pci", "vfio_iommu_type1"]);

/// One SSD with data, and a NIC.
fn machine(place: &Place, nic: Nic, network: &Network) -> Machine {
    place.write("data.img", &data(BYTES, 1));
    let machine = Machine::new().memory(768).limit(LIMIT).iommu();
    let machine = ssd(machine, "data", &raw(&place.path("data.img")), "");
    machine.nic(nic, network)
}

const BOUND: &str = r#"
until [ -n "$(ssd data)" ]; do sleep 0.2; done
DATA=$(ssd data); NIC=$(basename $(readlink -f /sys/class/net/eth0/device))
AT="--nic $NIC --address 10.0.2.15/24"
dcs doctor --bind $DATA
echo vfio-pci > /sys/bus/pci/devices/$NIC/driver_override; echo $NIC > /sys/bus/pci/devices/$NIC/driver/unbind; echo $NIC > /sys/bus/pci/drivers_probe
"#;

#[test]
fn an_ssd_is_sent_by_a_nic() {
    let place = Place::new();
    let machine = machine(&place, Nic::Igb, &Network::User(Vec::new()));
    let receiver = place.recv("got --through md5", |_| {});
    let port = receiver.address.rsplit_once(':').unwrap().1.to_owned();
    let script = format!("{BOUND}step send dcs send nvme:$DATA/1 10.0.2.2:{port} $AT --through md5 --json\n");
    let Some(mut rig) = Rig::boot(place, machine, ALL, &script) else { return };
    let sent = rig.step("send");
    eprintln!("{:?} {}", sent.out, sent.err);
    let done = sent.done();
    receiver.end().ok();
    let image = rig.place.path("data.img");
    assert_eq!(rig.place.read("got"), std::fs::read(&image).unwrap(), "every byte");
    assert_eq!(digest(&done), md5(&image), "as hashlib has it");
    assert!(path_has(&done, "VFIO") && done["bytes_out"] == BYTES, "{done}");
}
