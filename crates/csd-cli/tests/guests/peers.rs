//! Independent drivers: Linux in other versions than the other tests use, and QEMU's own.

use super::*;

/// Programs of Debian's that the guest has: names and packages. Nothing where one is not available.
fn programs(tools: &Tools, initramfs: &mut Initramfs<'_>, wanted: &[(&str, &str)]) -> Option<()> {
    let say = |text: &str| eprintln!("dcs-vm: {text}");
    for (name, package) in wanted {
        match tools.program(name, package, &say) {
            Ok(program) => initramfs.fetched(name, &program).unwrap(),
            Err(why) if why.is_unavailable() => {
                say(&format!("skipped: {why}"));
                return None;
            }
            Err(other) => panic!("{other}"),
        }
    }
    Some(())
}

/// nvme-cli runs all of its queries, and moves blocks by passthrough; then a file system is used.
const SMOKE: &str = r#"
await /dev/nvme0n1
echo @kernel $(uname -r)
echo @controller $(nvme id-ctrl /dev/nvme0 -o json)
echo @space $(nvme id-ns /dev/nvme0n1 -o json)
asks() { nvme "$@" >/tmp/out 2>&1 || { cat /tmp/out; echo "@wrong nvme $*"; }; }
for log in smart-log error-log fw-log effects-log changed-ns-list-log supported-log-pages; do asks $log /dev/nvme0; done
for feature in 1 2 4 5 6 7 8 9 0xa 0xb 0xe 0xf; do asks get-feature /dev/nvme0 -f $feature; done
asks list-ns /dev/nvme0; asks ns-descs /dev/nvme0n1; asks list-subsys; asks show-regs /dev/nvme0
seq 1 2000 | head -c 4096 >/tmp/a; seq 5000 9000 | head -c 4096 >/tmp/b
asks write /dev/nvme0n1 -s 64 -c 7 -z 4096 -d /tmp/a
asks flush /dev/nvme0n1 -n 1
asks read /dev/nvme0n1 -s 64 -c 7 -z 4096 -d /tmp/read
cmp /tmp/a /tmp/read || echo '@wrong read'
asks compare /dev/nvme0n1 -s 64 -c 7 -z 4096 -d /tmp/a
nvme compare /dev/nvme0n1 -s 64 -c 7 -z 4096 -d /tmp/b 2>/tmp/said && echo '@wrong compare'
grep -qi 'compare fail' /tmp/said || { cat /tmp/said; echo '@wrong status'; }
asks write-zeroes /dev/nvme0n1 -s 64 -c 3
asks read /dev/nvme0n1 -s 64 -c 7 -z 4096 -d /tmp/read
(head -c 2048 /dev/zero; tail -c 2048 /tmp/a) | cmp - /tmp/read || echo '@wrong zeros'
asks dsm /dev/nvme0n1 -n 1 -d -s 64 -b 8
asks reset /dev/nvme0
echo @asked
mkfs.ext4 -q -F /dev/nvme0n1 && mount -t ext4 /dev/nvme0n1 /mnt || echo '@wrong mount'
SUM=$(fill /mnt/numbers 1000000)
umount /mnt && echo 3 >/proc/sys/vm/drop_caches && mount -t ext4 /dev/nvme0n1 /mnt
same "$(sum /mnt/numbers)" "$SUM" "read back"
umount /mnt
echo @files
"#;

/// Identify, features, logs and blocks by nvme-cli, a file system, and fio, with the kernel of this flavour.
fn smoke(flavour: Flavour) {
    let Some(tools) = Tools::find_or_skip(flavour) else { return };
    let Some(_turn) = turn() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = disk(folder.path(), "disk", 128 * MB);
    let drive = format!("d1:size=64M,backing={}", path.display());
    let serving = Serving::start(folder.path(), &["--drive", &drive]).unwrap();
    let mut initramfs = Initramfs::new(&tools).unwrap();
    initramfs.modules(&["nvme", "ext4"]).unwrap();
    if programs(&tools, &mut initramfs, &[("nvme", "nvme-cli"), ("mkfs.ext4", "e2fsprogs")]).is_none() {
        return;
    }
    let fio = hard::program(&mut initramfs, "fio");
    let verify = if fio { soak::verifying(&[(1, "512")]) } else { String::new() };
    let script = format!("{SHELL}{SMOKE}{verify}");
    let machine =
        Machine::new().memory(512).limit(soak::limit()).append("iomem=relaxed").card(&serving.socket("d1"));
    let mut guest = machine.start(&tools, &initramfs.finish(&script), folder.path()).unwrap();
    println!("Linux {}", wait(&mut guest, "kernel"));
    let told = |text: String| serde_json::from_str::<serde_json::Value>(&text).unwrap();
    let controller = told(wait(&mut guest, "controller"));
    assert_eq!(controller["sn"].as_str().unwrap().trim(), "d1");
    assert_eq!((&controller["nn"], &controller["vwc"]), (&16.into(), &7.into()), "{controller}");
    let space = told(wait(&mut guest, "space"));
    assert_eq!((&space["nsze"], &space["ncap"]), (&131_072.into(), &131_072.into()), "{space}");
    wait(&mut guest, "asked");
    wait(&mut guest, "files");
    if fio {
        soak::verified(&mut guest, 1);
    }
    guest.wait(LIMIT).unwrap();
}

#[test]
fn debian_s_kernel_of_the_release_before_drives_it() {
    smoke(Flavour::Before);
}

#[test]
fn debian_s_kernel_drives_it() {
    smoke(Flavour::Cloud);
}

#[test]
fn the_newest_kernel_that_debian_has_drives_it() {
    smoke(Flavour::Newest);
}

/// QEMU's block driver for NVMe takes a controller over VFIO: in the guest, behind an IOMMU that QEMU
/// emulates, the drive is one. Data, zeros, holes and several requests at once.
const OVER_VFIO: &str = r#"
await /dev/nvme0n1
F=$(basename $(readlink -f /sys/class/nvme/nvme0/device))
echo $F >/sys/bus/pci/drivers/nvme/unbind
echo vfio-pci >/sys/bus/pci/devices/$F/driver_override; echo $F >/sys/bus/pci/drivers_probe
[ "$(basename $(readlink /sys/bus/pci/devices/$F/driver))" = vfio-pci ] || echo '@wrong driver'
D=nvme://$F/1
io() {
  timeout 60 qemu-io -f raw $D "$@" >/tmp/out 2>&1 && ! grep -qi 'fail\|error' /tmp/out && return
  cat /tmp/out; echo "@wrong $*"
}
io -c 'write -P 0x5a 0 4M' -c 'read -P 0x5a 0 4M' -c flush && echo @moved
io -c 'write -z 1M 64k' -c 'read -P 0 1M 64k' -c 'read -P 0x5a 1088k 64k' -c 'discard 2M 1M' -c 'read -P 0x5a 3M 1M' && echo @zeros
io -c 'aio_write -P 1 8M 128k' -c 'aio_write -P 2 9M 512' -c 'aio_write -P 3 10M 1M' -c aio_flush \
  -c 'read -P 1 8M 128k' -c 'read -P 2 9M 512' -c 'read -P 3 10M 1M' && echo @several
seq 1 3000000 | head -c 16777216 >/tmp/image
qemu-img convert -n -f raw -O raw /tmp/image $D && qemu-img compare -f raw -F raw /tmp/image $D || echo '@wrong image'
echo @through
"#;

#[test]
fn qemu_s_own_nvme_driver_drives_it_from_a_guest_over_vfio() {
    let Some(tools) = Tools::find_or_skip(Flavour::Cloud) else { return };
    let Some(_turn) = turn() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = disk(folder.path(), "disk", 64 * MB);
    let drive = format!("d1:size=16M,backing={}", path.display());
    let serving = Serving::start(folder.path(), &["--drive", &drive]).unwrap();
    let mut initramfs = Initramfs::new(&tools).unwrap();
    initramfs.modules(&["vfio-pci", "vfio_iommu_type1"]).unwrap();
    let wanted = [("qemu-io", "qemu-utils"), ("qemu-img", "qemu-utils")];
    if programs(&tools, &mut initramfs, &wanted).is_none() {
        return;
    }
    let script = format!("{SHELL}{OVER_VFIO}");
    let machine = Machine::new().memory(768).limit(LIMIT).iommu().card(&serving.socket("d1"));
    let mut guest = machine.start(&tools, &initramfs.finish(&script), folder.path()).unwrap();
    for word in ["moved", "zeros", "several", "through"] {
        wait(&mut guest, word);
    }
    guest.wait(LIMIT).unwrap();
    let text: String = (1..=3_000_000).map(|n| format!("{n}\n")).collect();
    let on_disk = std::fs::read(&path).unwrap();
    assert!(on_disk[..16 << 20] == text.as_bytes()[..16 << 20], "the image is not on the disk");
}
