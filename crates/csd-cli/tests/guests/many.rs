//! Sixteen drives of one process at once, in two guests, each with a file system.

use super::hard::program;
use super::*;

const GUESTS: usize = 2;
const DRIVES: usize = 8;

/// Makes a file system on each drive; fio writes at random on it, verifies that, and again when it was mounted anew: all at once.
const SCRIPT: &str = r#"
export HOME=/tmp; cd /tmp; modprobe ext4 2>/dev/null
while [ $(ls /sys/class/nvme | wc -l) -lt 8 ] || [ $(ls -d /dev/nvme*n1 | wc -l) -lt 8 ]; do sleep 0.5; done
echo @all
JOBS=
for d in /sys/class/nvme/nvme*; do
  (N=${d##*/}; S=$(cat $d/serial); S=$(echo $S); mkdir -p /mnt/$S
  mkfs.ext4 -q -F /dev/${N}n1 && mount -t ext4 /dev/${N}n1 /mnt/$S || { echo "@wrong mkfs $S"; exit; }
  fio --name=$S --directory=/mnt/$S --bsrange=4k-64k --size=6M --rw=randwrite --direct=1 \
    --ioengine=libaio --iodepth=16 --verify=crc32c --verify_fatal=1 --eta=never --randseed=${S#d} --output=/tmp/$S \
    || { cat /tmp/$S; echo "@wrong fio $S"; exit; }
  umount /mnt/$S && mount -t ext4 /dev/${N}n1 /mnt/$S || { echo "@wrong mount $S"; exit; }
  fio --name=$S --directory=/mnt/$S --bsrange=4k-64k --size=6M --rw=randwrite --direct=1 --verify_only=1 \
    --ioengine=libaio --iodepth=16 --verify=crc32c --verify_fatal=1 --eta=never --randseed=${S#d} --output=/tmp/$S.again \
    || { cat /tmp/$S.again; echo "@wrong again $S"; exit; }
  umount /mnt/$S; echo "@verified $S") &
  JOBS="$JOBS $!"
done
wait $JOBS
dmesg | grep -i "i/o error" && echo "@wrong errors"
echo @through
"#;

#[test]
fn sixteen_drives_have_file_systems_that_fio_verifies_at_once() {
    let Some(tools) = Tools::find_or_skip(Flavour::Cloud) else { return };
    let Some(_turn) = turn() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = disk(folder.path(), "disk", 20 * (GUESTS * DRIVES) as u64 * MB);
    let names: Vec<String> = (0..GUESTS * DRIVES).map(|number| format!("d{number}")).collect();
    let drives: Vec<String> =
        names.iter().map(|name| format!("{name}:size=16M,queues=2,backing={}", path.display())).collect();
    let arguments: Vec<&str> = drives.iter().flat_map(|drive| ["--drive", drive]).collect();
    let serving = Serving::start(folder.path(), &arguments).unwrap();
    let mut guests = Vec::new();
    for (number, names) in names.chunks(DRIVES).enumerate() {
        let mut initramfs = Initramfs::new(&tools).unwrap();
        if !program(&mut initramfs, "fio") {
            return;
        }
        initramfs.program("sbin/mkfs.ext4", Path::new(tools.mkfs_ext4().get_program())).unwrap();
        let own = folder.path().join(number.to_string());
        std::fs::create_dir(&own).unwrap();
        let machine = names.iter().fold(Machine::new().memory(512).limit(LIMIT), |machine, name| {
            machine.card(&serving.socket(name))
        });
        guests.push(machine.start(&tools, &initramfs.finish(&format!("{SHELL}{SCRIPT}")), &own).unwrap());
    }
    // Each begins when its own drives are there; the other one boots at the same time.
    for (guest, names) in guests.iter_mut().zip(names.chunks(DRIVES)) {
        wait(guest, "all");
        let mut verified: Vec<String> = names.iter().map(|_| wait(guest, "verified")).collect();
        verified.sort_by_key(|name| name[1..].parse::<usize>().unwrap());
        assert_eq!(verified, names);
        wait(guest, "through");
    }
    for number in 0..names.len() {
        let figures = figures(&serving, number);
        assert_eq!(figures["counted"]["errors"], 0, "{figures}");
        assert!(figures["counted"]["bytes_written"].as_u64().unwrap() >= 6 * MB, "{figures}");
    }
}
