//! Guests that are hard on their drives: resets, drives that are pulled and plugged, many writers, several
//! programs at once.

use super::*;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::Command;

/// A program that this machine may have, for the guest.
pub fn program(initramfs: &mut Initramfs<'_>, name: &str) -> bool {
    let found = ["/usr/bin", "/usr/sbin"].map(|folder| Path::new(folder).join(name));
    let Some(path) = found.into_iter().find(|path| path.is_file()) else {
        println!("skipped: there is no {name} here");
        return false;
    };
    initramfs.program(&format!("bin/{name}"), &path).unwrap();
    true
}

/// A reset of the function, as the guest's kernel makes it (FLR), while files are written: what was flushed is
/// there, and the drive goes on.
#[test]
fn the_guest_resets_the_function_under_load() {
    let Some(tools) = Tools::find_or_skip(Flavour::Cloud) else { return };
    let Some(_turn) = turn() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = disk(folder.path(), "disk", 64 * MB);
    let drive = format!("d1:size=48M,backing={}", path.display());
    let serving = Serving::start(folder.path(), &["--drive", &drive]).unwrap();
    let script = r#"
await /dev/nvme0n1
F=/sys/class/nvme/nvme0/device
[ "$(cat $F/reset_method 2>/dev/null)" ] && echo @methods $(cat $F/reset_method)
mkfs.ext4 -q -F /dev/nvme0n1 && mount -t ext4 /dev/nvme0n1 /mnt
SUM=$(fill /mnt/flushed 1000000); sync
for n in 1 2 3; do
  dd if=/dev/zero of=/mnt/load$n bs=64k count=60 conv=fsync 2>/dev/null &
  echo flr >$F/reset_method; echo 1 >$F/reset || echo "@wrong reset $n is refused"
  wait %%; [ $(stat -c %s /mnt/load$n) = 3932160 ] || echo "@wrong load $n"
done
umount /mnt && echo 3 >/proc/sys/vm/drop_caches && mount -t ext4 /dev/nvme0n1 /mnt || echo "@wrong mount"
same "$(sum /mnt/flushed)" "$SUM" "read back"
dmesg | grep -i "i/o error" && echo "@wrong errors"
echo @through
"#;
    let mut guest = boot(&tools, folder.path(), "guest", &[&serving.socket("d1")], script);
    assert!(wait(&mut guest, "methods").contains("flr"));
    wait(&mut guest, "through");
}

/// Random writes of many at once, checked by fio.
#[test]
fn fio_reads_back_what_it_wrote() {
    let Some(tools) = Tools::find_or_skip(Flavour::Cloud) else { return };
    let Some(_turn) = turn() else { return };
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
    let mut initramfs = Initramfs::new(&tools).unwrap();
    if !program(&mut initramfs, "fio") {
        return;
    }
    let machine = Machine::new().memory(512).limit(soak::limit()).card(&serving.socket("d1"));
    let script = format!("{SHELL}{}", soak::verifying(&[(1, "512"), (2, "4k")]));
    let mut guest = machine.start(&tools, &initramfs.finish(&script), folder.path()).unwrap();
    soak::verified(&mut guest, 2);
    assert_eq!(figures(&serving, 0)["counted"]["errors"], 0);
}

/// QEMU's machine protocol.
pub fn qmp(socket: &Path, command: &str) -> String {
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
    let Some(_turn) = turn() else { return };
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

/// Programs of one guest, each with a drive of its own, and two on one drive, have near-storage work done at
/// once.
#[test]
fn programs_share_a_guest_s_drives() {
    let Some(tools) = Tools::find_or_skip(Flavour::Cloud) else { return };
    let Some(_turn) = turn() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = disk(folder.path(), "disk", 64 * MB);
    let drive = |name: &str| format!("{name}:size=16M,backing={}", path.display());
    let serving = Serving::start(folder.path(), &["--drive", &drive("d1"), "--drive", &drive("d2")]).unwrap();
    let script = r#"
await /dev/nvme0n1; await /dev/nvme1n1
for n in 0 1; do
  mkdir -p /mnt/$n; mkfs.ext4 -q -F /dev/nvme${n}n1 && mount -t ext4 /dev/nvme${n}n1 /mnt/$n
  seq ${n}000000 ${n}700000 >/mnt/$n/data; sync
done
for job in "0 1" "0 2" "1 3"; do
  set -- $job
  FILE=/mnt/$1/data guest-side --ignored --exact hard::one_of_several --nocapture --test-threads 1 >/tmp/out$2 2>&1 &
  programs="$programs $!"
done
# Not for the guest's own limit, which runs in the background too.
wait $programs
for n in 1 2 3; do grep -q "@well" /tmp/out$n || { cat /tmp/out$n; echo "@wrong program $n"; }; done
echo @all
"#;
    let sockets = [serving.socket("d1"), serving.socket("d2")];
    let mut guest = boot(&tools, folder.path(), "guest", &[&sockets[0], &sockets[1]], script);
    wait(&mut guest, "all");
    // Linux looks at both at once: either may be the one that two programs have.
    let mut near = [0, 1].map(|drive| figures(&serving, drive)["counted"]["near"].as_u64().unwrap());
    near.sort_unstable();
    assert!(near[1] > near[0] && near[0] > 20, "{near:?}");
}

#[test]
#[ignore = "the guest's side of another test"]
fn one_of_several() {
    use dcs::{Backend, Engine, Op, Sink, Source};
    let path = std::env::var("FILE").unwrap();
    let output = Command::new("md5sum").arg(&path).output().unwrap();
    let expected = String::from_utf8_lossy(&output.stdout)[..32].to_owned();
    let engine = Engine::builder().backend(Backend::Drive).start().unwrap();
    let session = engine.session().unwrap();
    let file = File::open(&path).unwrap();
    for round in 0..10 {
        let transfer = session.transfer(Source::file(&file, ..), [Op::Md5], Sink::memory(16 << 20)).unwrap();
        let done = transfer.wait().unwrap();
        assert_eq!(done.digests[0].to_string(), expected, "round {round}");
    }
    println!("@well");
}
