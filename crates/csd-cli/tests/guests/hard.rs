//! Guests that are hard on their drives: many writers at once, and a drive that is pulled and plugged.

use super::*;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

/// A program that this machine may have, for the guest.
fn program(initramfs: &mut Initramfs<'_>, name: &str) -> bool {
    let found = ["/usr/bin", "/usr/sbin"].map(|folder| Path::new(folder).join(name));
    let Some(path) = found.into_iter().find(|path| path.is_file()) else {
        println!("skipped: there is no {name} here");
        return false;
    };
    initramfs.program(&format!("bin/{name}"), &path).unwrap();
    true
}

/// Random writes of many at once, checked by fio.
#[test]
fn fio_reads_back_what_it_wrote() {
    let Some(tools) = Tools::find_or_skip(Flavour::Cloud) else { return };
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    let (path, key) = (disk(folder.path(), "disk", 256 * MB), folder.path().join("key"));
    std::fs::write(&key, std::array::from_fn::<u8, 64, _>(|n| n as u8 ^ 0x5a)).unwrap();
    let plain = format!("d1:size=100M,backing={}", path.display());
    let through = format!(
        "d1:size=100M,block=4096,backing={},through=aes256-xts,key-file={}",
        path.display(),
        key.display()
    );
    let serving = Serving::start(folder.path(), &["--drive", &plain]).unwrap();
    serving.does(&["add", &through]);
    let jobs = [(1, "512"), (2, "4k")].map(|(space, least)| {
        format!(
            "fio --name={space} --filename=$(named {space}) --bsrange={least}-128k --size=16M --rw=randwrite --direct=1 \
             --ioengine=libaio --iodepth=32 --verify=crc32c --verify_fatal=1 --randseed=7 --output=/tmp/{space} \
             && echo '@verified {space}' || {{ cat /tmp/{space}; echo '@wrong {space}'; }}\n"
        )
    });
    let mut initramfs = Initramfs::new(&tools).unwrap();
    if !program(&mut initramfs, "fio") {
        return;
    }
    let machine = Machine::new().memory(512).limit(LIMIT).card(&serving.socket("d1"));
    let script = format!("{SHELL}export HOME=/tmp; cd /tmp\n{}", jobs.concat());
    let mut guest = machine.start(&tools, &initramfs.finish(&script), folder.path()).unwrap();
    for space in ["1", "2"] {
        assert_eq!(wait(&mut guest, "verified"), space);
    }
    assert_eq!(figures(&serving, 0)["counted"]["errors"], 0);
}

/// QEMU's machine protocol.
fn qmp(socket: &Path, command: &str) -> String {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut text = String::new();
    for line in ["{\"execute\":\"qmp_capabilities\"}", command] {
        stream.write_all(format!("{line}\n").as_bytes()).unwrap();
    }
    let mut bytes = [0; 4096];
    // A greeting, and two answers.
    while text.matches("\"return\"").count() < 2 && !text.contains("\"error\"") {
        match stream.read(&mut bytes) {
            Ok(0) | Err(_) => break,
            Ok(count) => text.push_str(&String::from_utf8_lossy(&bytes[..count])),
        }
    }
    text
}

/// A drive with MSI is pulled out of a running guest, and plugged again: its files are there.
#[test]
fn a_drive_is_pulled_and_plugged_again() {
    let Some(tools) = Tools::find_or_skip(Flavour::Cloud) else { return };
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    let path = disk(folder.path(), "disk", 64 * MB);
    let drive = format!("d1:size=48M,backing={},msi", path.display());
    let serving = Serving::start(folder.path(), &["--drive", &drive]).unwrap();
    let mut initramfs = Initramfs::new(&tools).unwrap();
    initramfs.program("sbin/mkfs.ext4", Path::new(tools.mkfs_ext4().get_program())).unwrap();
    initramfs.modules(&["pciehp"]).ok();
    let script = r#"
await /dev/nvme0n1
mkfs.ext4 -q -F /dev/nvme0n1 && mount -t ext4 /dev/nvme0n1 /mnt
SUM=$(fill /mnt/numbers 1000000); umount /mnt; echo @ready
while ls /dev/nvme*n1 >/dev/null 2>&1; do sleep 0.2; done; echo @gone
disk >/tmp/disk; echo @back
mount -t ext4 $(cat /tmp/disk) /mnt && same "$(sum /mnt/numbers)" "$SUM" "plugged again"
echo @same
"#;
    let (socket, monitor) = (serving.socket("d1"), folder.path().join("qmp"));
    let device = format!(
        "{{\"driver\":\"vfio-user-pci\",\"id\":\"d1\",\"bus\":\"port0\",\"rombar\":0,\"socket\":{{\"type\":\"unix\",\"path\":\"{}\"}}}}",
        socket.display()
    );
    let machine = Machine::new().memory(512).limit(LIMIT).arguments([
        "-device",
        "pcie-root-port,id=port0,chassis=1",
        "-device",
        &device,
        "-qmp",
        &format!("unix:{},server=on,wait=off", monitor.display()),
    ]);
    let script = format!("{SHELL}{script}");
    let mut guest = machine.start(&tools, &initramfs.finish(&script), folder.path()).unwrap();
    wait(&mut guest, "ready");
    let said = qmp(&monitor, "{\"execute\":\"device_del\",\"arguments\":{\"id\":\"d1\"}}");
    assert!(!said.contains("\"error\""), "{said}");
    wait(&mut guest, "gone");
    // The guest has let go of it; QEMU takes it out some time after that.
    let add = format!("{{\"execute\":\"device_add\",\"arguments\":{device}}}");
    let end = std::time::Instant::now() + LIMIT;
    loop {
        let said = qmp(&monitor, &add);
        if !said.contains("\"error\"") {
            break;
        }
        assert!(std::time::Instant::now() < end, "{said}");
        std::thread::sleep(Duration::from_millis(500));
    }
    wait(&mut guest, "back");
    wait(&mut guest, "same");
}
