//! The doctor on machines made of folders.

use super::probe::Probes;
use super::{Examination, Row, State, bind, examine, pci, verdict};
use crate::failure::Exit;
use dcs::gpu::{GpuError, Properties, Storage, StorageError};
use dcs_vfio::sys::Root;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use tempfile::TempDir;

const SSD: &str = "0000:02:00.0";
const OTHER: &str = "0000:03:00.0";
const NIC: &str = "0000:04:00.0";
const BRIDGE: &str = "0000:00:01.0";

/// A machine under construction.
struct Tree(TempDir);

impl Tree {
    fn new() -> Tree {
        Tree(tempfile::tempdir().unwrap())
    }

    fn root(&self) -> Root {
        Root::new(self.0.path())
    }

    fn file(&self, name: &str, text: &str) -> &Tree {
        let path = self.0.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
        self
    }

    fn folder(&self, name: &str) -> &Tree {
        fs::create_dir_all(self.0.path().join(name)).unwrap();
        self
    }

    fn link(&self, name: &str, to: &str) -> &Tree {
        let path = self.0.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let _ = fs::remove_file(&path);
        symlink(self.0.path().join(to), path).unwrap();
        self
    }

    /// Adds a PCI function below these bridges.
    fn function(&self, address: &str, above: &str, class: &str, driver: &str, group: &str) -> &Tree {
        let folder = format!("sys/devices/{above}/{address}");
        for (name, text) in [("class", class), ("vendor", "0x1b36"), ("device", "0x0010")] {
            self.file(&format!("{folder}/{name}"), text);
        }
        self.link(&format!("sys/bus/pci/devices/{address}"), &folder);
        if !driver.is_empty() {
            self.folder(&format!("sys/bus/pci/drivers/{driver}"));
            self.link(&format!("{folder}/driver"), &format!("sys/bus/pci/drivers/{driver}"));
        }
        if !group.is_empty() {
            let of_group = format!("sys/kernel/iommu_groups/{group}");
            self.link(&format!("{of_group}/devices/{address}"), &folder);
            self.link(&format!("{folder}/iommu_group"), &of_group);
            self.folder("sys/class/iommu/dmar0");
        }
        self
    }

    /// Adds two SSDs, the first with a partition, and a NIC, all driven by the kernel and behind one bridge.
    fn server(&self) -> &Tree {
        let above = format!("pci0000:00/{BRIDGE}");
        self.function(SSD, &above, "0x010802", "nvme", "7");
        self.function(OTHER, &above, "0x010802", "nvme", "8");
        self.function(NIC, "pci0000:80", "0x020000", "igb", "9");
        let ssd = format!("sys/devices/{above}/{SSD}/nvme/nvme0");
        self.folder(&format!("{ssd}/nvme0n1")).folder(&format!("{ssd}/hwmon1"));
        self.folder(&format!("sys/devices/{above}/{OTHER}/nvme/nvme1/nvme0c1n1"));
        self.file("sys/class/block/nvme0n1/dev", "259:0").file("sys/class/block/nvme0n1p1/dev", "259:1");
        self.file("sys/class/block/nvme0n12/dev", "259:9");
        self.file("proc/self/mountinfo", "22 1 8:1 / / rw - ext4 /dev/sda1 rw")
            .file("proc/swaps", "Filename Type");
        self.folder(&format!("sys/devices/pci0000:80/{NIC}/net/eth0"))
            .file("sys/class/net/eth0/flags", "0x1003")
            .file(&format!("sys/devices/pci0000:80/{NIC}/vendor"), "0x8086")
            .file(&format!("sys/devices/pci0000:80/{NIC}/device"), "0x10c9");
        self.file("dev/vfio/vfio", "").folder("sys/bus/pci/drivers/vfio-pci")
    }

    fn found(&self) -> Examination {
        examine(&self.root(), &probes())
    }

    fn ssd(&self, address: &str) -> pci::Function {
        let all = pci::functions(&self.root());
        all.into_iter().find(|function| function.address == address).unwrap()
    }

    /// Gives a function to vfio-pci.
    fn take(&self, address: &str, group: &str) {
        let driver = format!("sys/bus/pci/devices/{address}/driver");
        self.link(&driver, "sys/bus/pci/drivers/vfio-pci").file(&format!("dev/vfio/{group}"), "");
        let path = self.0.path().join(format!("sys/bus/pci/devices/{address}/nvme"));
        fs::remove_dir_all(path).unwrap();
    }
}

fn probes() -> Probes {
    Probes {
        plain: Ok(()),
        io_uring: Ok(()),
        sendfile: Ok(()),
        direct: Ok(()),
        folder: ".".into(),
        lanes: vec![("md5", 32, "AVX-512"), ("sha256", 1, "one stream after the other")],
        features: vec![("avx2", true), ("sha", false)],
        locks_freely: false,
        gpus: Err(GpuError::NoDevice),
        storage: None,
    }
}

fn row<'a>(found: &'a Examination, name: &str) -> &'a Row {
    found.rows.iter().find(|row| row.name == name).unwrap_or_else(|| panic!("no {name}: {:#?}", found.rows))
}

fn says(row: &Row, state: State, words: &[&str]) {
    assert_eq!(row.state, state, "{row:?}");
    let said = format!("{} {}", row.found, row.fix.as_deref().unwrap_or_default());
    for word in words {
        assert!(said.contains(word), "{word:?} is not in {said:?}");
    }
}

#[test]
fn an_empty_machine_is_said_to_be_unreadable_and_not_to_be_without() {
    let tree = Tree::new();
    let found = tree.found();
    for name in ["Linux", "huge pages", "locked memory", "IOMMU", "vfio-pci", "SSDs and NICs", "kernel TLS"] {
        assert_eq!(row(&found, name).state, State::Unreadable, "{name}");
    }
    assert_eq!(row(&found, "nvme:ADDRESS").state, State::Note);
    assert!(verdict(&tree.root(), &found, &[], &probes()).is_ok(), "transfers run all the same");
}

#[test]
fn what_may_not_be_read_is_not_taken_for_what_is_not_there() {
    if nix::unistd::geteuid().is_root() {
        eprintln!("skipped: root may read everything");
        return;
    }
    let tree = Tree::new();
    tree.folder("sys/class/iommu");
    let path = tree.0.path().join("sys/class/iommu");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
    says(row(&tree.found(), "IOMMU"), State::Unreadable, &["denied"]);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
}

#[test]
fn an_ssd_of_the_kernel_s_is_named_with_its_group_and_how_to_take_it() {
    let tree = Tree::new();
    tree.server();
    let found = tree.found();
    let name = format!("NVMe {SSD}");
    let bind = format!("dcs doctor --bind {SSD}");
    says(row(&found, &name), State::Note, &["1b36:0010", "nvme, group 7", "nvme0n1", &bind]);
    says(row(&found, &format!("nvme:{SSD}")), State::Note, &["refused", "nvme has it"]);
    says(row(&found, "IOMMU"), State::Ok, &["dmar0", "3 groups"]);
    says(row(&found, &format!("NIC {NIC}")), State::Note, &["igb, group 9", "eth0", "is up"]);
    let failure = verdict(&tree.root(), &found, &[SSD.into()], &probes()).unwrap_err();
    assert!(failure.exit == Exit::Failed && failure.advice.unwrap().contains(&bind), "{}", failure.line);
    let failure = verdict(&tree.root(), &found, &["9:0.0".into()], &probes()).unwrap_err();
    assert_eq!(failure.exit, Exit::NotFound);
}

#[test]
fn one_that_is_taken_can_be_driven() {
    let tree = Tree::new();
    tree.server();
    tree.take(SSD, "7");
    let found = tree.found();
    says(row(&found, &format!("NVMe {SSD}")), State::Ok, &["vfio-pci, group 7", "driven by nvme:"]);
    says(row(&found, &format!("nvme:{SSD}")), State::Ok, &["VFIO"]);
    assert!(verdict(&tree.root(), &found, &["2:0.0".into()], &probes()).is_ok());
    // Without the group's file, the group belongs to another container.
    fs::remove_file(tree.0.path().join("dev/vfio/7")).unwrap();
    let found = tree.found();
    says(row(&found, &format!("NVMe {SSD}")), State::Missing, &["/dev/vfio/7 does not exist"]);
    assert!(verdict(&tree.root(), &found, &[SSD.into()], &probes()).is_err());
}

#[test]
fn one_in_use_is_not_taken() {
    let mounted = "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n23 22 259:1 / /srv rw - xfs /dev/nvme0n1p1 rw";
    let btrfs = "23 22 0:44 / /data rw - btrfs /dev/nvme0n1 rw";
    for (name, text, word) in [
        ("proc/self/mountinfo", mounted, "mounted at /srv"),
        ("proc/self/mountinfo", btrfs, "mounted at /data"),
        ("proc/swaps", "Filename Type\n/dev/nvme0n1p1 partition 8 0 -2", "nvme0n1p1 is used as swap"),
        ("sys/class/block/nvme0n1p1/holders/dm-0/x", "", "nvme0n1p1 is part of dm-0"),
    ] {
        let tree = Tree::new();
        tree.server().file(name, text);
        // The second controller leads to the same namespace.
        for address in [SSD, OTHER] {
            let function = tree.ssd(address);
            assert_eq!(function.uses.len(), 1, "{function:?}");
            assert!(function.uses[0].contains(word), "{function:?}");
            let failure = bind::may_be_taken(&function).unwrap_err();
            assert!(failure.line.contains("is in use") && failure.line.contains(word), "{}", failure.line);
        }
        // If the kernel also has the namespace by the other controller, one may go.
        let state =
            |address| format!("sys/bus/pci/devices/{address}/nvme/nvme{}/state", u8::from(address == OTHER));
        tree.file(&state(SSD), "connecting").file(&state(OTHER), "live");
        assert_eq!((tree.ssd(SSD).uses.len(), tree.ssd(OTHER).uses.len()), (0, 1));
    }
    let tree = Tree::new();
    tree.server().file("proc/self/mountinfo", "23 22 259:9 / /n12 rw - xfs /dev/nvme0n12 rw");
    assert!(bind::may_be_taken(&tree.ssd(SSD)).is_ok(), "that is another namespace");
}

#[test]
fn a_nic_in_use_is_not_taken() {
    let is_down = |tree: &Tree| {
        tree.server().file("sys/class/net/eth0/flags", "0x1002");
    };
    let nic = format!("sys/devices/pci0000:80/{NIC}");
    type Made<'a> = &'a dyn Fn(&Tree);
    let cases: [(Made<'_>, &str); 6] = [
        (&|tree| _ = tree.file("sys/class/net/eth0/flags", "0x1003"), "eth0 is up"),
        (&|tree| _ = tree.file("proc/net/route", "Iface Destination\neth0 00000000"), "eth0 has routes"),
        (&|tree| _ = tree.file("proc/net/ipv6_route", "fe80 40 00 eth1\nfe80 40 00 eth0"), "eth0 has routes"),
        (&|tree| _ = tree.folder("sys/class/net/eth0/upper_bond0"), "eth0 is part of bond0"),
        (&|tree| _ = tree.file(&format!("{nic}/sriov_numvfs"), "2"), "virtual functions"),
        (
            &|tree| fs::remove_dir_all(tree.0.path().join(format!("{nic}/net"))).unwrap(),
            "a container may have one",
        ),
    ];
    for (make, word) in cases {
        let tree = Tree::new();
        is_down(&tree);
        assert!(bind::may_be_taken(&tree.ssd(NIC)).is_ok(), "{:?}", tree.ssd(NIC));
        make(&tree);
        let failure = bind::may_be_taken(&tree.ssd(NIC)).unwrap_err();
        assert!(failure.line.contains("is in use") && failure.line.contains(word), "{}", failure.line);
    }
}

#[test]
fn a_nic_is_named_with_what_drives_it() {
    let tree = Tree::new();
    tree.server().file("sys/class/net/eth0/flags", "0x1002");
    let (name, option) = (format!("NIC {NIC}"), format!("--nic {NIC}"));
    let bind = format!("--nic {NIC}: sudo dcs doctor --bind {NIC}");
    says(row(&tree.found(), &name), State::Note, &["8086:10c9, igb, group 9", "eth0", &bind]);
    says(row(&tree.found(), &option), State::Note, &["refused: igb has it"]);
    tree.link(&format!("sys/bus/pci/devices/{NIC}/driver"), "sys/bus/pci/drivers/vfio-pci")
        .file("dev/vfio/9", "");
    fs::remove_dir_all(tree.0.path().join(format!("sys/bus/pci/devices/{NIC}/net"))).unwrap();
    let found = tree.found();
    says(row(&found, &name), State::Ok, &["driven by --nic"]);
    says(row(&found, &option), State::Ok, &["TCP in this process"]);
    assert!(verdict(&tree.root(), &found, &[NIC.into()], &probes()).is_ok());
    // Another NIC is only listed.
    tree.file(&format!("sys/devices/pci0000:80/{NIC}/device"), "0x1572");
    let found = tree.found();
    says(row(&found, &name), State::Note, &["8086:1572", "82574 and 82576"]);
    assert!(!found.rows.iter().any(|row| row.name == option));
    assert!(verdict(&tree.root(), &found, &[NIC.into()], &probes()).is_err());
}

#[test]
fn a_group_that_others_are_in_is_said() {
    let tree = Tree::new();
    tree.server().function("0000:05:00.0", "pci0000:00", "0x010601", "ahci", "7");
    tree.function(BRIDGE, "pci0000:00", "0x060400", "pcieport", "7");
    let function = tree.ssd(SSD);
    assert_eq!(function.rivals, [("0000:05:00.0".to_owned(), "ahci".to_owned())], "a bridge is none");
    let failure = bind::may_be_taken(&function).unwrap_err();
    assert!(failure.line.contains("shared with 0000:05:00.0 (ahci)"), "{}", failure.line);
    tree.take(SSD, "7");
    says(row(&tree.found(), &format!("NVMe {SSD}")), State::Missing, &["shared with 0000:05:00.0"]);
    // Without the other function in the way it can be driven.
    fs::remove_file(tree.0.path().join("sys/bus/pci/devices/0000:05:00.0/driver")).unwrap();
    assert_eq!(row(&tree.found(), &format!("NVMe {SSD}")).state, State::Ok);
}

#[test]
fn without_an_iommu_nothing_is_driven() {
    let tree = Tree::new();
    tree.function(SSD, "pci0000:00", "0x010802", "nvme", "").folder("sys/kernel");
    let found = tree.found();
    says(row(&found, "IOMMU"), State::Missing, &["intel_iommu=on"]);
    says(row(&found, "vfio-pci"), State::Missing, &["modprobe vfio-pci"]);
    says(row(&found, &format!("NVMe {SSD}")), State::Note, &["no IOMMU group"]);
    assert!(bind::may_be_taken(&tree.ssd(SSD)).unwrap_err().line.contains("no IOMMU"));
}

#[test]
fn bridges_in_common_are_found() {
    let tree = Tree::new();
    tree.server();
    let found = tree.found();
    says(row(&found, BRIDGE), State::Ok, &["one bridge in common, below pci0000:00", SSD, OTHER]);
    assert!(!row(&found, BRIDGE).found.contains(NIC), "it is below another one");
    assert!(!found.rows.iter().any(|row| row.name.starts_with("pci")), "nobody else is there");
    says(row(&found, "p2pdma"), State::Unreadable, &["can't be read"]);
    tree.function("0000:05:00.0", "pci0000:00", "0x010802", "", "");
    tree.file("proc/sys/kernel/osrelease", "6.1")
        .file("boot/config-6.1", "CONFIG_PCI=y\nCONFIG_PCI_P2PDMA=y");
    let path = tree.root().resolved(&format!("sys/bus/pci/devices/{SSD}")).unwrap();
    fs::create_dir(Path::new(&path).join("p2pmem")).unwrap();
    fs::write(path.join("p2pmem/size"), "1048576").unwrap();
    let found = tree.found();
    let parts = format!("0000:05:00.0, {SSD} and {OTHER}: no bridge in common");
    says(row(&found, "pci0000:00"), State::Note, &[&parts]);
    says(row(&found, "p2pdma"), State::Ok, &["in this kernel"]);
    says(row(&found, SSD), State::Ok, &["1048576 bytes"]);
}

#[test]
fn why_io_uring_is_not_to_be_had_is_told_apart() {
    let refused = |errno| Probes { io_uring: Err(("refused".into(), errno)), ..probes() };
    let tree = Tree::new();
    let seen = |probes: &Probes, words: &[&str]| {
        let found = examine(&tree.root(), probes);
        says(row(&found, "io_uring"), State::Missing, words);
        says(row(&found, "file -> operators -> socket"), State::Ok, &["on another thread"]);
    };
    seen(&refused(Some(38)), &["this kernel has none"]);
    seen(&refused(Some(12)), &["ulimit -l"]);
    tree.file("proc/self/status", "Name:\tdcs\nSeccomp:\t2");
    seen(&refused(Some(1)), &["seccomp"]);
    tree.file("proc/sys/kernel/io_uring_disabled", "1");
    seen(&refused(Some(1)), &["io_uring_group"]);
    tree.file("proc/sys/kernel/io_uring_disabled", "2");
    seen(&refused(Some(1)), &["sysctl -w kernel.io_uring_disabled=0"]);
    assert_eq!(row(&tree.found(), "io_uring").state, State::Ok);
}

#[test]
fn gpus_are_listed_and_none_is_no_fault() {
    let tree = Tree::new();
    says(row(&tree.found(), "CUDA's driver"), State::Note, &["no GPU", "refused"]);
    let gpu = |device, major| Properties {
        device,
        name: "NVIDIA A".into(),
        memory: 16 << 30,
        cache: 50 << 20,
        multiprocessors: 40,
        capability: (major, 5),
        driver: (12, 8),
        library: "libcuda.so.1".into(),
        stand_in: false,
    };
    let storage = Storage {
        library: "libcufile.so.0".into(),
        nvidia_fs: Some((2, 20)),
        peer_to_peer: false,
        stand_in: false,
    };
    let gpus = Ok(vec![gpu(0, 8), gpu(1, 6)]);
    let probes = Probes { gpus, storage: Some(Ok(storage.clone())), ..probes() };
    tree.file("proc/driver/nvidia/version", "NVRM version: NVIDIA 570\nGCC version: 12");
    let found = examine(&tree.root(), &probes);
    says(row(&found, "CUDA's driver"), State::Ok, &["CUDA 12.8", "NVRM version: NVIDIA 570"]);
    says(row(&found, "GPU 0"), State::Ok, &["NVIDIA A", "16.00 GiB", "8.5"]);
    says(row(&found, "GPU 1"), State::Note, &["too old"]);
    says(
        row(&found, "GPUDirect Storage"),
        State::Ok,
        &["libcufile.so.0, nvidia-fs 2.20", "reads files itself"],
    );
    let with = |storage| examine(&tree.root(), &Probes { storage: Some(storage), ..probes.clone() });
    let found = with(Ok(Storage { nvidia_fs: None, ..storage.clone() }));
    says(
        row(&found, "GPUDirect Storage"),
        State::Note,
        &["compatibility mode", "copied to a GPU", "modprobe nvidia-fs"],
    );
    let found = with(Ok(Storage { nvidia_fs: None, peer_to_peer: true, ..storage.clone() }));
    says(row(&found, "GPUDirect Storage"), State::Ok, &["the kernel's peer-to-peer"]);
    let found = with(Ok(Storage { stand_in: true, ..storage }));
    says(row(&found, "GPUDirect Storage"), State::Note, &["stand-in", "unset DCS_CUFILE_LIBRARY"]);
    let missing = StorageError::Missing { library: "libcufile.so.0".into(), why: "no such file".into() };
    says(
        row(&with(Err(missing)), "GPUDirect Storage"),
        State::Note,
        &["libcufile.so.0", "no such file", "install"],
    );
    let found = with(Err(StorageError::Mixed));
    says(row(&found, "GPUDirect Storage"), State::Note, &["stand-in", "gdscheck"]);
}

#[test]
fn memory_is_counted() {
    let tree = Tree::new();
    let pages = "sys/kernel/mm/hugepages/hugepages-2048kB";
    tree.file(&format!("{pages}/nr_hugepages"), "64").file(&format!("{pages}/free_hugepages"), "3");
    tree.file(
        "proc/self/limits",
        "Limit   Soft Limit  Hard Limit  Units\nMax locked memory         8388608   8388608   bytes",
    );
    let found = tree.found();
    says(row(&found, "huge pages"), State::Note, &["3 of 64", "vm.nr_hugepages=40"]);
    says(row(&found, "locked memory"), State::Missing, &["8.00 MiB", "ulimit -l"]);
    tree.file(&format!("{pages}/free_hugepages"), "60");
    tree.file("proc/self/limits", "Max locked memory         unlimited   unlimited   bytes");
    let found = tree.found();
    assert_eq!((row(&found, "huge pages").state, row(&found, "locked memory").state), (State::Ok, State::Ok));
}

#[test]
fn aio_requests_are_counted() {
    let tree = Tree::new();
    assert_eq!(row(&tree.found(), "Linux AIO").state, State::Unreadable);
    for (used, most, state, words) in [
        ("0", "65536", State::Ok, ["0 of 65536", ""]),
        ("65472", "65536", State::Ok, ["65472 of 65536", ""]),
        ("65473", "65536", State::Missing, ["dcs d2d", "fs.aio-max-nr=131072"]),
        // The limit was lowered meanwhile.
        ("500", "64", State::Missing, ["500 of 64", "fs.aio-max-nr=66036"]),
    ] {
        tree.file("proc/sys/fs/aio-nr", used).file("proc/sys/fs/aio-max-nr", most);
        says(row(&tree.found(), "Linux AIO"), state, &words);
    }
}

#[test]
fn paths_that_will_not_run_are_said() {
    let tree = Tree::new();
    let none = |text: &str| Err(text.to_owned());
    let probes = Probes { direct: none("no"), sendfile: none("no"), ..probes() };
    let found = examine(&tree.root(), &probes);
    says(row(&found, "file --cache off"), State::Missing, &["no O_DIRECT"]);
    says(row(&found, "file -> socket"), State::Note, &["page cache"]);
    let broken = Probes { plain: none("no memory"), ..probes };
    assert_eq!(verdict(&tree.root(), &found, &[], &broken).unwrap_err().exit, Exit::Failed);
}

#[test]
fn this_machine_is_examined_without_a_fault() {
    let probes = Probes::here(Path::new("."));
    assert_eq!((&probes.plain, &probes.sendfile), (&Ok(()), &Ok(())));
    let found = examine(&Root::new("/"), &probes);
    for name in [
        "Linux",
        "io_uring",
        "Linux AIO",
        "huge pages",
        "locked memory",
        "IOMMU",
        "vfio-pci",
        "md5",
        "file -> socket",
    ] {
        assert!(!row(&found, name).found.is_empty(), "{name}");
    }
    assert_eq!(row(&found, "Linux").state, State::Ok);
}
