//! Drives in guests with stock kernels. Skipped, with the reason, where no virtual server is available.

mod beside;
#[path = "../common/mod.rs"]
mod common;
mod crash;
mod direct;
mod firmware;
mod hard;
mod many;
mod passthrough;
mod paths;
mod peers;
mod sets;
mod soak;

use common::{Serving, disk};
use dcs_vm::tools::Flavour;
use dcs_vm::{Guest, Initramfs, Machine, Tools, turn};
use std::path::Path;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(900);
const MB: u64 = 1 << 20;

/// Functions of the guests' scripts. A namespace's device is told by its number: kernels look for several at
/// once, and name them as they are found. Numbers in files are the same in both guests and outside.
const SHELL: &str = r#"
await() { while ! [ -b $1 ]; do sleep 0.2; done; }
space() { for d in /sys/block/nvme*n*; do [ "$(cat $d/nsid 2>/dev/null)" = $1 ] && echo /dev/${d##*/}; done; }
named() { while ! [ -b "$(space $1)" ]; do sleep 0.2; done; space $1; }
gone() { while [ -b $1 ]; do sleep 0.2; done; }
fill() { seq $2 $(($2 + 40000)) | tee $1 | md5sum | cut -c1-32; }
sum() { md5sum <$1 | cut -c1-32; }
same() { [ "$1" = "$2" ] && [ -n "$1" ] || { echo "@wrong $3: $1 is not $2"; poweroff -f; }; }
"#;

/// Boots a guest with the drive behind this socket, which runs this script.
fn boot(tools: &Tools, folder: &Path, name: &str, sockets: &[&Path], script: &str) -> Guest {
    let mut initramfs = Initramfs::new(tools).unwrap();
    initramfs.program("bin/guest-side", &std::env::current_exe().unwrap()).unwrap();
    // The one that is on this machine; its libraries come along.
    initramfs.program("sbin/mkfs.ext4", Path::new(tools.mkfs_ext4().get_program())).unwrap();
    let folder = folder.join(name);
    std::fs::create_dir(&folder).unwrap();
    let machine =
        sockets.iter().fold(Machine::new().memory(512).limit(LIMIT), |machine, socket| machine.card(socket));
    let script = format!("{SHELL}{script}");
    machine.start(tools, &initramfs.finish(&script), &folder).unwrap()
}

/// Waits for a word of the guest's; what it says is wrong is the failure.
fn wait(guest: &mut Guest, word: &str) -> String {
    let said = guest.wait_for("@", LIMIT).unwrap();
    let rest = said.strip_prefix(word);
    rest.unwrap_or_else(|| panic!("{said:?} instead of {word}")).trim().to_owned()
}

fn figures(serving: &Serving, drive: usize) -> serde_json::Value {
    let told = serving.does(&["stats", "--json"]);
    serde_json::from_str(told.lines().nth(drive).unwrap()).unwrap()
}

/// Makes a file system, writes, flushes, forgets, and reads again.
const FILES: &str = r#"
await /dev/nvme0n1
echo @bound $(cat /sys/class/nvme/nvme0/serial)
mkfs.ext4 -q -F /dev/nvme0n1 && mount -t ext4 /dev/nvme0n1 /mnt && echo @mounted
N=$(cat /sys/class/nvme/nvme0/serial | cut -c2)
SUM=$(fill /mnt/numbers ${N}000000)
umount /mnt && echo 3 >/proc/sys/vm/drop_caches && mount -t ext4 /dev/nvme0n1 /mnt
same "$(sum /mnt/numbers)" "$SUM" "read back"
umount /mnt
echo @sum $SUM
read ANSWER
"#;

#[test]
fn stock_kernels_bind_make_file_systems_and_read_back_two_at_once() {
    let Some(tools) = Tools::find_or_skip(Flavour::Cloud) else { return };
    let Some(_turn) = turn() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = disk(folder.path(), "disk", 128 * MB);
    let drive = |name: &str| format!("{name}:size=48M,backing={}", path.display());
    let serving = Serving::start(folder.path(), &["--drive", &drive("d1"), "--drive", &drive("d2")]).unwrap();
    let mut guests =
        ["d1", "d2"].map(|name| boot(&tools, folder.path(), name, &[&serving.socket(name)], FILES));
    let mut sums = Vec::new();
    for (guest, name) in guests.iter_mut().zip(["d1", "d2"]) {
        assert_eq!(wait(guest, "bound"), name);
        wait(guest, "mounted");
        sums.push(wait(guest, "sum"));
    }
    assert_ne!(sums[0], sums[1], "each wrote its own");
    for drive in 0..2 {
        let figures = figures(&serving, drive);
        assert!(figures["connected"].as_bool().unwrap(), "{figures}");
        assert!(figures["counted"]["bytes_written"].as_u64().unwrap() > 40000 * 7, "{figures}");
        assert_eq!(figures["under_way"], 0, "{figures}");
    }
    for guest in &mut guests {
        guest.send("go on").unwrap();
        guest.wait(LIMIT).unwrap();
    }
    // What is in a slice is a file system of its own.
    for at in [0, 48 * MB] {
        let mut magic = [0; 2];
        std::os::unix::fs::FileExt::read_exact_at(
            &std::fs::File::open(&path).unwrap(),
            &mut magic,
            at + 1080,
        )
        .unwrap();
        assert_eq!(magic, [0x53, 0xef], "ext4's magic number at {at}");
    }
}

#[test]
fn namespaces_come_grow_and_go_while_the_guest_runs() {
    let Some(tools) = Tools::find_or_skip(Flavour::Cloud) else { return };
    let Some(_turn) = turn() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = disk(folder.path(), "disk", 64 * MB);
    let drive = |size: &str| format!("d1:size={size},backing={}", path.display());
    let serving = Serving::start(folder.path(), &["--drive", &drive("8M")]).unwrap();
    let script = r#"
await /dev/nvme0n1; echo @there
await /dev/nvme0n2; echo @second $(cat /sys/block/nvme0n2/size)
seq 1 100000 | dd of=/dev/nvme0n2 bs=4k conv=fsync 2>/dev/null
while [ $(cat /sys/block/nvme0n2/size) = 16384 ]; do sleep 0.2; done; echo @grown $(cat /sys/block/nvme0n2/size)
gone /dev/nvme0n2; echo @gone
dd if=/dev/nvme0n1 of=/dev/null bs=4k 2>/dev/null && echo @alive
"#;
    let mut guest = boot(&tools, folder.path(), "guest", &[&serving.socket("d1")], script);
    wait(&mut guest, "there");
    serving.does(&["add", &drive("8M")]);
    assert_eq!(wait(&mut guest, "second"), "16384");
    serving.does(&["resize", "d1/2", "16M"]);
    assert_eq!(wait(&mut guest, "grown"), "32768");
    serving.does(&["remove", "d1/2"]);
    wait(&mut guest, "gone");
    wait(&mut guest, "alive");
    guest.wait(LIMIT).unwrap();
    let mut begin = [0; 8];
    std::os::unix::fs::FileExt::read_exact_at(&std::fs::File::open(&path).unwrap(), &mut begin, 8 * MB)
        .unwrap();
    assert_eq!(&begin, b"1\n2\n3\n4\n");
}

#[test]
fn a_guest_s_program_sends_commands_of_its_own() {
    let Some(tools) = Tools::find_or_skip(Flavour::Cloud) else { return };
    let Some(_turn) = turn() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = disk(folder.path(), "disk", 64 * MB);
    let drive = format!("d1:size=8M,backing={}", path.display());
    let serving = Serving::start(folder.path(), &["--drive", &drive]).unwrap();
    let script = "await /dev/nvme0n1\n\
        guest-side --ignored --exact passthrough::in_the_guest --nocapture --test-threads 1";
    let mut guest = boot(&tools, folder.path(), "guest", &[&serving.socket("d1")], script);
    guest.wait_for("@guest's end", LIMIT).unwrap();
}

#[test]
fn an_encrypted_namespace_is_plain_for_its_guest_and_not_on_the_disk() {
    let Some(tools) = Tools::find_or_skip(Flavour::Cloud) else { return };
    let Some(_turn) = turn() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (path, key) = (disk(folder.path(), "disk", 64 * MB), folder.path().join("key"));
    std::fs::write(&key, std::array::from_fn::<u8, 64, _>(|n| n as u8 ^ 0x5a)).unwrap();
    let drive = |through: &str| format!("d1:size=8M,backing={}{through}", path.display());
    let through = format!(",through=aes256-xts,key-file={}", key.display());
    let serving = Serving::start(folder.path(), &["--drive", &drive(&through)]).unwrap();
    let script = "await /dev/nvme0n1\n\
        seq 1 300000 | dd of=/dev/nvme0n1 bs=4k conv=fsync 2>/dev/null\n\
        echo 3 >/proc/sys/vm/drop_caches; echo @sum $(head -c 1000000 /dev/nvme0n1 | md5sum | cut -c1-32)";
    let mut guest = boot(&tools, folder.path(), "guest", &[&serving.socket("d1")], script);
    let sum = wait(&mut guest, "sum");
    drop((guest, serving));
    let on_disk = std::fs::read(&path).unwrap();
    assert!(on_disk[..MB as usize].iter().any(|byte| *byte != 0));
    assert!(!on_disk.windows(8).any(|bytes| bytes == b"\n100000\n"), "plain text on the disk");
    let text: String = (1..=300_000).map(|n| format!("{n}\n")).collect();
    std::fs::write(folder.path().join("text"), &text[..1_000_000]).unwrap();
    let outside = std::process::Command::new("md5sum").arg(folder.path().join("text")).output().unwrap();
    assert!(outside.stdout.starts_with(sum.as_bytes()), "the guest read {sum}");
    // The same key after a restart.
    let serving = Serving::start(folder.path(), &["--drive", &drive(&through)]).unwrap();
    let script = "await /dev/nvme0n1; echo @sum $(head -c 1000000 /dev/nvme0n1 | md5sum | cut -c1-32)";
    let mut guest = boot(&tools, folder.path(), "again", &[&serving.socket("d1")], script);
    assert_eq!(wait(&mut guest, "sum"), sum);
}
