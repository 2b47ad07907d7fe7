//! A guest that has nothing but its drive: EDK2's NVMe driver boots it from there.

use super::*;

/// Puts a file system on the drive, with a kernel, its file system in memory, and what EDK2's shell is to do.
const INSTALL: &str = r#"
mkdosfs -n BOOT $(disk) && mount -t vfat $(disk) /mnt || echo '@wrong vfat'
cp /boot/* /mnt/ || echo '@wrong copy'
umount /mnt && sync && echo @installed
"#;

#[test]
fn a_guest_boots_from_its_drive() {
    let Some(tools) = Tools::find_or_skip(Flavour::Cloud) else { return };
    let say = |text: &str| eprintln!("dcs-vm: {text}");
    if let Err(why) = tools.firmware(&say) {
        return say(&format!("skipped: {why}"));
    }
    let Some(_turn) = turn() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = disk(folder.path(), "disk", 64 * MB);
    let drive = format!("d1:size=64M,backing={}", path.display());
    let serving = Serving::start(folder.path(), &["--drive", &drive]).unwrap();
    let machine = Machine::new().memory(512).limit(LIMIT).card(&serving.socket("d1"));
    let booted =
        "echo @booted $(cat /sys/class/nvme/nvme0/serial); [ -d /sys/firmware/efi ] && echo @by-edk2";
    let inner = Initramfs::new(&tools).unwrap().finish(booted);
    let mut initramfs = Initramfs::new(&tools).unwrap();
    initramfs.modules(&["vfat", "nls_cp437", "nls_ascii"]).unwrap();
    initramfs.file("boot/linux.efi", 0o644, &std::fs::read(tools.kernel().unwrap()).unwrap());
    initramfs.file("boot/initrd", 0o644, &inner);
    let start = format!("fs0:\r\nlinux.efi initrd=\\initrd {}\r\n", machine.command_line());
    initramfs.file("boot/startup.nsh", 0o644, start.as_bytes());
    let install = folder.path().join("install");
    std::fs::create_dir(&install).unwrap();
    let mut guest = machine.start(&tools, &initramfs.finish(INSTALL), &install).unwrap();
    wait(&mut guest, "installed");
    guest.wait(LIMIT).unwrap();
    let before = figures(&serving, 0)["counted"]["bytes_read"].as_u64().unwrap();
    let mut guest = machine.firmware().start(&tools, &[], folder.path()).unwrap();
    assert_eq!(wait(&mut guest, "booted"), "d1");
    wait(&mut guest, "by-edk2");
    guest.wait(LIMIT).unwrap();
    let read = figures(&serving, 0)["counted"]["bytes_read"].as_u64().unwrap() - before;
    assert!(read > 8 * MB, "{read} bytes of the drive were read: that is no kernel");
}
