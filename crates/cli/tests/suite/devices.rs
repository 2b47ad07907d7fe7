//! SSDs that `dcs` drives itself, and `dcs doctor`: in a guest whose NVMe SSDs, QEMU's, are behind an IOMMU. Skipped,
//! with the reason, if no virtual server is available.

use crate::guest::{LIMIT, Rig, digest, function, md5, path_has, raw, ssd};
use crate::run::Place;
use dcs_testkit::bytes as data;
use dcs_vm::tools::Flavour;
use dcs_vm::{Machine, Network, Nic, Tools, disk};
use std::net::TcpListener;
use std::path::PathBuf;

const MIB: usize = 1 << 20;
/// Bytes of the SSD with the data, of those in one group, and of the one with a bad sector.
const BYTES: usize = 16 * MIB;
const SMALL: usize = MIB;
/// Bad sector, in units of 512 bytes.
const BAD_SECTOR: usize = 1500;

/// Makes one SSD with data, one with a bad sector, two in one group, and one with ext4.
fn machine(place: &Place, iommu: bool) -> Option<Machine> {
    let tools = Tools::find_or_skip(Flavour::Cloud)?;
    let image = |name: &str, length: usize, seed: u64| -> PathBuf {
        place.write(&format!("{name}.img"), &data(length, seed));
        place.path(&format!("{name}.img"))
    };
    std::fs::create_dir(place.path("files")).unwrap();
    disk::ext4(&tools, &place.path("ext4"), 32 << 20, &place.path("files")).unwrap();
    let machine = Machine::new().memory(768).limit(LIMIT);
    let machine = if iommu { machine.iommu() } else { machine };
    let bad = image("bad", SMALL, 2);
    let bad = format!(
        "driver=raw,file.driver=blkdebug,file.image.filename={},file.inject-error.0.event=read_aio,\
         file.inject-error.0.errno=5,file.inject-error.0.sector={BAD_SECTOR}",
        bad.display()
    );
    let machine = ssd(machine, "data", &raw(&image("data", BYTES, 1)), "");
    let machine = ssd(machine, "bad", &bad, "");
    let machine = ssd(machine, "one", &raw(&image("one", SMALL, 3)), ",addr=0x1d.0,multifunction=on");
    let machine = ssd(machine, "two", &raw(&image("two", SMALL, 4)), ",addr=0x1d.1");
    let machine = ssd(machine, "files", &raw(&place.path("ext4")), "");
    Some(machine.nic(Nic::Virtio, &Network::User(Vec::new())))
}

/// Returns the kernel with NVMe and ext4 built in, or the reason why it is missing.
const BUILT_IN: (Flavour, &[&str]) = (Flavour::Cloud, &["vfio-pci", "vfio_iommu_type1", "virtio_net"]);

/// Waits until the kernel has all SSDs.
const SETTLE: &str = r#"until [ -n "$(ssd data)" ] && [ -n "$(ssd bad)" ] && [ -n "$(ssd two)" ]; do sleep 0.2; done
"#;

/// Goes all the way from the kernel's driver to ours, and back.
const SCRIPT: &str = r#"
DATA=$(ssd data); BAD=$(ssd bad); ONE=$(ssd one); TWO=$(ssd two); FILES=$(ssd files)
ip addr add 10.0.2.15/24 dev eth0; ip link set eth0 up
DISK=/dev/$(ls /sys/bus/pci/devices/$FILES/nvme/*/ | grep '^nvme[0-9]*n1$')
echo "@out $DATA"; echo "@out $FILES"; echo "@out $ONE"; echo "@out $TWO"; echo "@end names 0"
step before dcs doctor --json
step unbound dcs send nvme:$DATA/1@0+4096 -
mount -t ext4 $DISK /mnt
step mounted dcs doctor --bind $FILES
umount /mnt
unshare -m sh -c "mount -t ext4 $DISK /mnt && touch /tmp/held && exec sleep 1000" &
until [ -e /tmp/held ]; do sleep 0.1; done
step held dcs doctor --bind $FILES
kill $!
step shared dcs doctor --bind $ONE
step bind dcs doctor --bind $DATA --json
step again dcs doctor --bind $DATA
step bound dcs doctor $DATA --json
step whole dcs send nvme:$DATA/1@0+16MiB 10.0.2.2:PORT --through md5 --json
echo 64 > /proc/sys/vm/nr_hugepages
step part dcs copy nvme:$DATA@2048+1MiB /tmp/part --through md5,crc32c --json
step sum md5sum /tmp/part
step plain dcs copy nvme:$DATA@2048+1MiB /tmp/plain --through md5 --io plain --json
step same cmp /tmp/part /tmp/plain
step stdout sh -c "dcs send nvme:$DATA/1@3+512 - | md5sum"
step write dcs copy /tmp/part nvme:$DATA/1@16384+1MiB --through md5 --durable --json
step inside dcs copy nvme:$DATA/1@0+64KiB nvme:$DATA/1@0x7000+64KiB --through crc32c --json
head -c 5000 /tmp/part > /tmp/short
step part_of_range dcs copy /tmp/short nvme:$DATA/1@0x5000+1MiB --through md5 --json
dcs recv 127.0.0.1:9000 nvme:$DATA/1@0x6000+1MiB --through md5 --json >/tmp/recv 2>&1 & RECV=$!
until grep -q listening /tmp/recv; do sleep 0.1; done
step sent dcs send /tmp/short 127.0.0.1:9000 --through md5 --json
wait $RECV; echo "@end recv $?"
step overlap dcs copy nvme:$DATA/1@0+64KiB nvme:$DATA/1@8+64KiB
step small dcs copy /tmp/part nvme:$DATA/1@0x7800+64KiB
step full sh -c "cat /tmp/part | dcs copy - nvme:$DATA/1@0x7800+64KiB"
step namespace dcs send nvme:$DATA/7@0+4096 -
step beyond dcs send nvme:$DATA/1@32768+4096 -
step across dcs send nvme:$DATA/1@32760+8192 -
step misaligned dcs send nvme:$DATA/1@0+1000 -
step offset dcs send nvme:$DATA/1 - --offset 512
step nowhere dcs copy /tmp/part nvme:$DATA
step cached dcs send nvme:$DATA/1@0+4096 - --cache on
NIC=$(basename $(readlink -f /sys/class/net/eth0/device/..))
step nic dcs send nvme:$NIC -
step missing dcs send nvme:0000:7f:00.0 -
step nicbind dcs doctor --bind $NIC
dcs send nvme:$DATA/1@0+16MiB 10.0.2.2:STUCK & SEND=$!
sleep 4; kill -9 $SEND; wait $SEND
step killed dcs copy nvme:$DATA/1@2048+1MiB /tmp/again --through md5 --json
dcs send nvme:$DATA/1@0+16MiB 10.0.2.2:STUCK & SEND=$!
sleep 4; step busy dcs send nvme:$DATA/1@0+4096 -
kill $SEND; wait $SEND
step badbind dcs doctor --bind $BAD
step bad dcs copy nvme:$BAD/1@0+1MiB /tmp/bad --through md5 --json
step good dcs copy nvme:$BAD/1@0+512KiB /tmp/good --through md5 --json
echo vfio-pci > /sys/bus/pci/devices/$ONE/driver_override; echo $ONE > /sys/bus/pci/devices/$ONE/driver/unbind; echo $ONE > /sys/bus/pci/drivers_probe
step group dcs send nvme:$ONE/1@0+4096 -
step grouped dcs doctor $ONE
step release dcs doctor --release $DATA --json
step unreleased dcs doctor --release $DATA
until [ -n "$(ssd data)" ] && ls /sys/bus/pci/devices/$DATA/nvme/*/ | grep -q '^nvme[0-9]*n1$'; do sleep 0.1; done
DISK=/dev/$(ls /sys/bus/pci/devices/$DATA/nvme/*/ | grep '^nvme[0-9]*n1$')
step kernel md5sum $DISK
echo "@end all 0"
"#;

#[test]
fn an_ssd_is_driven_past_the_kernel_and_given_back() {
    let place = Place::new();
    let Some(machine) = machine(&place, true) else { return };
    let receiver = place.recv("got --through md5", |_| {});
    let port = receiver.address.rsplit_once(':').unwrap().1.to_owned();
    // The peer takes connections, but none of their data.
    let stuck = TcpListener::bind("127.0.0.1:0").unwrap();
    let stuck_at = stuck.local_addr().unwrap().port().to_string();
    let script = SCRIPT.replace("PORT", &port).replace("STUCK", &stuck_at);
    let Some(mut rig) = Rig::boot(place, machine, BUILT_IN, &format!("{SETTLE}{script}")) else { return };
    let names = rig.step("names").out;
    let [ssd, files, one, two] = &names[..] else { panic!("{names:?}") };
    before(&mut rig, ssd, files, (one, two));
    rig.step("bind").ok();
    rig.step("again").ok();
    let bound = rig.step("bound").ok();
    let found = function(&bound, ssd);
    assert!(found["driver"] == "vfio-pci" && found["drivable"] == true, "{found}");

    let done = rig.step("whole").done();
    let got = receiver.end().ok();
    let image = rig.place.path("data.img");
    assert_eq!(rig.place.read("got"), std::fs::read(&image).unwrap(), "every byte");
    assert_eq!(digest(&done), md5(&image), "as hashlib has it");
    assert_eq!(digest(got.lines().last().unwrap()), digest(&done));
    assert!(path_has(&done, "VFIO") && done["bytes_out"] == BYTES, "{done}");
    let stages = done["breakdown"]["stages"].as_array().unwrap();
    assert!(stages.len() >= 3 && stages.iter().all(|stage| stage["last_ns"].as_u64() > Some(0)), "{done}");
    parts(&mut rig);
    errors(&mut rig);
    troubles(&mut rig, two);
    let released = rig.step("release").ok();
    assert!(released.lines()[0]["driver"] == "nvme", "{:?}", released.out);
    rig.step("unreleased").fails(1, &["nvme has it"]);
    let kernel = rig.step("kernel").ok();
    written(&rig.place);
    assert_eq!(kernel.out[0].split(' ').next().unwrap(), md5(&image), "the kernel's driver reads the same");
    rig.step("all");
    drop(stuck);
}

/// Checks what the doctor reports, and leaves alone, while the kernel has all SSDs.
fn before(rig: &mut Rig, ssd: &str, files: &str, (one, two): (&str, &str)) {
    let doctor = rig.step("before").ok();
    let found = function(&doctor, ssd);
    assert!(found["driver"] == "nvme" && found["drivable"] == false, "{found}");
    assert!(found["iommu_group"].as_str().is_some_and(|group| group.parse::<u32>().is_ok()), "{found}");
    assert_eq!(found["group_members"].as_array().unwrap().len(), 0, "{found}");
    assert_eq!(function(&doctor, one)["group_members"][0], *two);
    let lines = doctor.lines();
    let row =
        |name: &str| lines.iter().find(|line| line["name"] == name).unwrap_or_else(|| panic!("no {name}"));
    assert_eq!((&row("IOMMU")["state"], &row("vfio-pci")["state"]), (&"ok".into(), &"ok".into()));
    assert_eq!(row("huge pages")["state"], "note");
    rig.step("unbound")
        .fails(1, &["not bound to vfio-pci", "nvme has it", &format!("dcs doctor --bind {ssd}")]);
    rig.step("mounted").fails(1, &["in use", "mounted at /mnt"]);
    rig.step("held").fails(1, &["in use", "another program has /dev/nvme", files]);
    rig.step("shared").fails(1, &["shared with", two, "nvme"]);
}

/// Reads and writes parts of the SSD.
fn parts(rig: &mut Rig) {
    let image = std::fs::read(rig.place.path("data.img")).unwrap();
    let sum = |bytes: &[u8]| md5(&rig.place.write("sum", bytes));
    let part = sum(&image[MIB..2 * MIB]);
    let sector = sum(&image[3 * 512..4 * 512]);
    let step = rig.step("part").ok();
    let huge = step.lines().into_iter().find(|line| line["event"] == "nvme").unwrap();
    assert!(huge["huge_pages"] == true && huge["bytes"] == BYTES && huge["block_size"] == 512, "{huge}");
    assert_eq!(digest(&step.done()), part);
    assert!(rig.step("sum").ok().out[0].starts_with(&part));
    let plain = rig.step("plain").done();
    assert!(digest(&plain) == part && path_has(&plain, "VFIO") && !path_has(&plain, "io_uring"), "{plain}");
    rig.step("same").ok();
    assert!(rig.step("stdout").ok().out[0].starts_with(&sector));
    assert_eq!(digest(&rig.step("write").done()), part);
    assert_eq!(rig.step("inside").done()["bytes_out"], 64 << 10);
    assert_eq!(rig.step("part_of_range").done()["bytes_out"], 5000);
    rig.step("sent").ok();
    rig.step("recv").ok();
}

/// Checks that what [`parts`] has written is on the disk, and nothing else is.
fn written(place: &Place) {
    let mut expected = data(BYTES, 1);
    expected.copy_within(MIB..2 * MIB, 16384 * 512);
    expected.copy_within(0..64 << 10, 0x7000 * 512);
    // The part ends inside a logical block, the rest of which stays unchanged.
    for range in [0x5000, 0x6000] {
        expected.copy_within(MIB..MIB + 5000, range * 512);
    }
    // As much as there was room for.
    expected.copy_within(MIB..MIB + (64 << 10), 0x7800 * 512);
    let image = place.read("data.img");
    let differs = expected.iter().zip(&image).position(|(one, other)| one != other);
    assert_eq!(differs, None, "the first byte that differs");
}

/// Checks the messages and advice for everything that is not available.
fn errors(rig: &mut Rig) {
    rig.step("overlap").fails(
        2,
        &[
            "@0+64KiB ->",
            "@8+64KiB: destination: the destination overlaps the source",
            "ranges that do not overlap",
        ],
    );
    rig.step("small").fails(2, &["the range lies outside", "0 bytes had been delivered"]);
    rig.step("full").fails(4, &["65536 bytes had been delivered"]);
    rig.step("namespace").fails(7, &["has no namespace 7"]);
    rig.step("beyond").fails(2, &["logical block 32768 is beyond", "32768"]);
    rig.step("across").fails(2, &["there are 4096 bytes from logical block 32760"]);
    rig.step("misaligned").fails(2, &["1000 bytes are not whole logical blocks of 512", "+1024"]);
    rig.step("offset").fails(2, &["part of its name"]);
    rig.step("nowhere").fails(2, &["@0"]);
    rig.step("cached").fails(2, &["path"]);
    rig.step("nic").fails(2, &["is not an NVMe controller: its class is 020000"]);
    rig.step("missing").fails(7, &["no PCI function 0000:7f:00.0"]);
    rig.step("nicbind").fails(2, &["not a NIC that dcs can drive", "1af4:"]);
}

/// Kills the process that drives the SSD while another one wants it; then the medium fails, and the group is shared.
fn troubles(rig: &mut Rig, two: &str) {
    let part = md5(&rig.place.write("sum", &data(BYTES, 1)[MIB..2 * MIB]));
    assert_eq!(digest(&rig.step("killed").done()), part, "the SSD was reset behind who was killed");
    rig.step("busy").fails(1, &["another process"]);
    rig.step("badbind").ok();
    let bad = rig.step("bad");
    let error = bad.lines().into_iter().find(|line| line["event"] == "error").unwrap();
    assert!(error["stage"] == "source" && error["exit"] == 1, "{error}");
    assert!(error["bytes_out"].as_u64().unwrap() <= (BAD_SECTOR * 512) as u64, "{error}");
    let good = md5(&rig.place.write("sum", &data(SMALL, 2)[..512 << 10]));
    assert_eq!(digest(&rig.step("good").done()), good, "the rest of it is read");
    rig.step("group").fails(1, &["another function", "group"]);
    rig.step("grouped").fails(1, &["shared with", two]);
}

#[test]
fn without_an_iommu_the_doctor_says_so_and_binds_nothing() {
    let place = Place::new();
    let Some(machine) = machine(&place, false) else { return };
    let script = "DATA=$(ssd data)\n\
        step doctor dcs doctor --json\n\
        step bind dcs doctor --bind $DATA\n\
        step named dcs doctor $DATA\n\
        step driver basename $(readlink /sys/bus/pci/devices/$DATA/driver)\n\
        echo vfio-pci > /sys/bus/pci/devices/$DATA/driver_override\n\
        echo '@end all 0'";
    let Some(mut rig) = Rig::boot(place, machine, BUILT_IN, &format!("{SETTLE}{script}")) else { return };
    let doctor = rig.step("doctor").ok();
    let row = doctor.lines().into_iter().find(|line| line["name"] == "IOMMU").unwrap();
    assert!(row["state"] == "missing" && row["fix"].as_str().unwrap().contains("intel_iommu=on"), "{row}");
    rig.step("bind").fails(1, &["no IOMMU in front of it"]);
    rig.step("named").fails(1, &["no IOMMU group"]);
    assert_eq!(rig.step("driver").ok().out, ["nvme"], "it was left where it was");
    rig.step("all");
}

/// Runs anywhere, even in a container.
#[test]
fn the_doctor_examines_this_machine() {
    let place = Place::new();
    let text = place.run("doctor").ok().stdout();
    for topic in ["kernel", "memory", "devices", "processor", "paths"] {
        assert!(text.lines().any(|line| line == topic), "{topic}: {text}");
    }
    let done = place.run("doctor --json").ok();
    let lines = done.lines();
    assert!(lines.iter().any(|line| line["event"] == "check" && line["name"] == "io_uring"));
    let states = ["ok", "note", "missing", "unreadable"];
    let rows: Vec<_> = lines.iter().filter(|line| line["event"] == "check").collect();
    assert!(rows.len() > 10 && rows.iter().all(|row| states.iter().any(|state| row["state"] == *state)));
    let last = lines.last().unwrap();
    assert!(last["event"] == "doctor" && last["ok"] == true);
    // What is really missing here is counted.
    let missing = rows.iter().filter(|row| row["state"] == "missing").count();
    assert_eq!(last["missing"].as_u64(), Some(missing as u64));
    place.run("doctor 0000:7f:1f.7").fails(7, &["0000:7f:1f.7"]);
    place.run("doctor nonsense").fails(2, &["not the address"]);
    place.run("doctor --bind 0000:7f:1f.7").fails(7, &["no PCI function"]);
    assert_eq!(place.run("doctor --bind 01:00.0 --release 01:00.0").code(), 2);
    place.run("send nvme:0000:7f:1f.7 -").fails(7, &["no PCI function 0000:7f:1f.7", "dcs doctor"]);
    place.run("send nvme:somewhere -").fails(2, &["not the address of a PCI function", "nvme:0000:01:00.0"]);
    place.run("copy a nvme:0000:7f:1f.7/0@0").fails(2, &["namespace"]);
}
