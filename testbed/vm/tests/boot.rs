//! Boots a guest and communicates with it. Skipped, with the reason, if no virtual server is available.

use std::os::unix::fs::FileExt;
use std::time::Duration;

use dcs_vm::tools::Flavour;
use dcs_vm::wire::Socket;
use dcs_vm::{Initramfs, Machine, Nic, Tools, disk};

const LIMIT: Duration = Duration::from_secs(120);

#[test]
fn a_guest_reads_its_disk_runs_our_programs_and_answers() {
    let Some(tools) = Tools::find_or_skip(Flavour::Cloud) else { return };
    let folder = tempfile::tempdir().unwrap();
    let (contents, image) = (folder.path().join("contents"), folder.path().join("disk.img"));
    std::fs::create_dir(&contents).unwrap();
    std::fs::write(contents.join("hello"), "from the disk").unwrap();
    disk::ext4(&tools, &image, 32 << 20, &contents).unwrap();
    let mut initramfs = Initramfs::new(&tools).unwrap();
    // A program of this machine that needs its libraries: this test itself.
    initramfs.program("bin/ours", &std::env::current_exe().unwrap()).unwrap();
    initramfs.modules(&["vfio-pci", "vfio_iommu_type1"]).unwrap();
    let script = "mount -t ext4 -o ro $(disk) /mnt && echo \"@file $(cat /mnt/hello)\"
        echo \"@controllers $(ls -d /sys/class/nvme/nvme? | wc -l)\"
        echo \"@program $(ours --list | grep -c 'answers: test')\"
        echo \"@modules $(lsmod | grep -c '^vfio')\"
        echo \"@word $(word some)\"
        read -r said; echo \"@said $said\"";
    let machine = Machine::new().nvme(&image).append("some=thing").limit(LIMIT);
    let mut guest = machine.start(&tools, &initramfs.finish(script), folder.path()).unwrap();
    assert_eq!(guest.wait_for("@file", LIMIT).unwrap(), "from the disk");
    assert_eq!(guest.wait_for("@controllers", LIMIT).unwrap(), "2");
    assert_eq!(guest.wait_for("@program", LIMIT).unwrap(), "1");
    assert_eq!(guest.wait_for("@modules", LIMIT).unwrap(), "4");
    assert_eq!(guest.wait_for("@word", LIMIT).unwrap(), "thing");
    assert!(guest.monitor("info status").unwrap().contains("running"));
    guest.send("good evening").unwrap();
    assert_eq!(guest.wait_for("@said", LIMIT).unwrap(), "good evening");
    guest.wait(LIMIT).unwrap();
}

#[test]
fn a_file_system_that_is_damaged_is_found_out() {
    let Some(tools) = Tools::find_or_skip(Flavour::Cloud) else { return };
    let folder = tempfile::tempdir().unwrap();
    let (ext4, xfs) = (folder.path().join("ext4"), folder.path().join("xfs"));
    std::fs::create_dir(folder.path().join("contents")).unwrap();
    disk::ext4(&tools, &ext4, 32 << 20, &folder.path().join("contents")).unwrap();
    disk::xfs(&tools, &xfs, 300 << 20, None, &|_| ()).unwrap();
    disk::check_ext4(&tools, &ext4).unwrap();
    disk::check_xfs(&tools, &xfs, &|_| ()).unwrap();
    // Behind the superblock: ext4's group descriptors, XFS's free-space trees.
    for image in [&ext4, &xfs] {
        let file = std::fs::File::options().write(true).open(image).unwrap();
        file.write_all_at(&[0xa5; 4096], 4096).unwrap();
    }
    disk::check_ext4(&tools, &ext4).unwrap_err();
    disk::check_xfs(&tools, &xfs, &|_| ()).unwrap_err();
}

#[test]
fn a_machine_that_cannot_start_says_why() {
    let Some(tools) = Tools::find_or_skip(Flavour::Cloud) else { return };
    let folder = tempfile::tempdir().unwrap();
    let machine = Machine::new().card(&folder.path().join("nobody"));
    let mut guest = machine.start(&tools, &[], folder.path()).unwrap();
    let said = guest.wait_for("anything", LIMIT).unwrap_err().to_string();
    assert!(said.contains("nobody") && said.contains("qemu:"), "{said}");
}

#[test]
fn a_cable_carries_frames_both_ways() {
    let Some(tools) = Tools::find_or_skip(Flavour::Cloud) else { return };
    let folder = tempfile::tempdir().unwrap();
    let socket = Socket::new(&folder.path().join("cable")).unwrap();
    let mut initramfs = Initramfs::new(&tools).unwrap();
    initramfs.modules(&["virtio_net"]).unwrap();
    let script = "ip address add 10.0.2.15/24 dev eth0; ip link set eth0 up
        arping -c 20 -f -I eth0 10.0.2.2 >/dev/null && echo '@answered'";
    let machine = Machine::new().nic(Nic::Virtio, &socket.network()).limit(LIMIT);
    let mut guest = machine.start(&tools, &initramfs.finish(script), folder.path()).unwrap();
    let mut wire = socket.plug(LIMIT).unwrap();
    let request = loop {
        let frame = wire.receive(LIMIT).unwrap().expect("a request");
        // An ARP request for our address.
        if frame.len() >= 42
            && frame[12..14] == [8, 6]
            && frame[20..22] == [0, 1]
            && frame[38..42] == [10, 0, 2, 2]
        {
            break frame;
        }
    };
    let (us, them) = ([2, 0, 0, 0, 0, 2], &request[22..32]);
    let answer =
        [&request[6..12], &us, &request[12..20], &[0, 2], &us, &[10, 0, 2, 2], them, &[0; 18]].concat();
    wire.send(&answer).unwrap();
    guest.wait_for("@answered", LIMIT).unwrap();
    guest.wait(LIMIT).unwrap();
}

/// Needs 100 MB of downloads, so it does not run by default.
#[test]
#[ignore = "fetches a kernel of 100 MB"]
fn the_full_kernel_has_drivers_for_the_nics() {
    let Some(tools) = Tools::find_or_skip(Flavour::Full) else { return };
    let folder = tempfile::tempdir().unwrap();
    let (contents, image) = (folder.path().join("contents"), folder.path().join("disk.img"));
    std::fs::create_dir(&contents).unwrap();
    std::fs::write(contents.join("hello"), "from the disk").unwrap();
    disk::ext4(&tools, &image, 32 << 20, &contents).unwrap();
    let socket = Socket::new(&folder.path().join("cable")).unwrap();
    let mut initramfs = Initramfs::new(&tools).unwrap();
    initramfs
        .modules(&["nvme", "crc32c_generic", "ext4", "igb", "e1000e", "vfio-pci", "vfio_iommu_type1"])
        .unwrap();
    let script = "mount -t ext4 -o ro $(disk) /mnt && echo \"@file $(cat /mnt/hello)\"
        echo \"@drivers $(basename $(readlink /sys/class/net/eth0/device/driver))\"";
    let machine = Machine::new().nvme(&image).nic(Nic::Igb, &socket.network()).limit(LIMIT);
    let mut guest = machine.start(&tools, &initramfs.finish(script), folder.path()).unwrap();
    assert_eq!(guest.wait_for("@file", LIMIT).unwrap(), "from the disk");
    assert_eq!(guest.wait_for("@drivers", LIMIT).unwrap(), "igb");
    guest.wait(LIMIT).unwrap();
}
