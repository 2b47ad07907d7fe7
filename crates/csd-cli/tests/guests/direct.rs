//! Drives on an SSD that the process drives itself, over VFIO: QEMU's NVMe controller, behind its IOMMU. Process and clients
//! are in a guest, which stands for a machine with such an SSD.

use super::*;
use dcs_nvme_client::load::{Check, Mix, Order, Runner, Stop, Workload};
use dcs_nvme_client::{Drive, Options};

/// Where the namespaces lie, and how large the SSD is.
const PLACES: [u64; 4] = [8 * MB, 24 * MB, 16 * MB, 36 * MB];
const LENGTH: u64 = 8 * MB;
const SSD: u64 = 48 * MB;

const SERVES: &str = r#"
D=$(disk); D=${D#/dev/}; F=$(basename $(readlink -f /sys/class/nvme/${D%n1}/device))
echo "has $F"
mkdir /tmp/s
csd() { case "$*" in *--sockets*) timeout 60 dcs-csd csd "$@";; *) timeout 60 dcs-csd csd "$@" --sockets /tmp/s;; esac; }
no() { W=$1; shift; echo "tries $* at $(cut -d" " -f1 /proc/uptime)"; csd "$@" >/tmp/out 2>&1 && echo "@wrong $*"; grep -qi "$W" /tmp/out || { cat /tmp/out; echo "@wrong words"; }; }
no 'dcs doctor --bind' run --drive x:size=8M,backing=nvme:$F
echo unbinds
echo $F >/sys/bus/pci/drivers/nvme/unbind
echo vfio-pci >/sys/bus/pci/devices/$F/driver_override; echo $F >/sys/bus/pci/drivers_probe
echo bound
no 'has no namespace 7\|did not start' run --drive x:size=8M,backing=nvme:$F/7
no 'is not a namespace' run --drive x:size=8M,backing=nvme:$F/0
no 'there is no PCI function' run --drive x:size=8M,backing=nvme:0000:1f:1f.7
no 'asked for, and it has 50331648' run --drive x:size=64M,backing=nvme:$F
# A refused request gives the SSD back: other processes can take it.
dd if=/dev/zero of=/tmp/file bs=1M count=8 2>/dev/null; mkdir /tmp/z
dcs-csd csd run --sockets /tmp/z --drive z:size=1M,block=4096,backing=/tmp/file >/tmp/run 2>&1 &
for n in $(seq 200); do [ -S /tmp/z/z.sock ] && break; sleep 0.2; done
no 'asked for, and it has 50331648' add --sockets /tmp/z x:size=64M,backing=nvme:$F
serve() {
  rm -f /tmp/s/*
  dcs-csd csd run --sockets /tmp/s --drive $1:size=8M,offset=$2,backing=nvme:$F/1 \
    --drive $3:size=4M,offset=$4,block=4096,backing=nvme:$F >/tmp/run 2>&1 &
  P=$!
  for n in $(seq 200); do [ -S /tmp/s/$3.sock ] && return; sleep 0.2; done
  echo "@wrong start: $(tail -n 3 /tmp/run | tr '\n' ' ')"
}
clients() {
  DRIVES="$1 $2" timeout 100 guest-side --ignored --exact direct::in_the_guest --nocapture --test-threads 1 >/tmp/out 2>&1 && echo @clients && return
  echo "@wrong clients: $(tail -n 20 /tmp/out | tr '\n' ' ') the process: $(tail -n 20 /tmp/run | tr '\n' ' ') $(for t in /proc/$P/task/*; do echo $(cat $t/comm $t/wchan) $(grep State $t/status); done | tr '\n' ' ') $(csd stats 2>&1 | tr '\n' ' ')"
}
serve a 8M b 24M
csd resize b/1 8M
no 'overlap those of a/1' add c:size=8M,offset=9M,backing=nvme:$F
no 'drives one namespace of an SSD' add c:size=8M,backing=nvme:$F/2
csd list | grep -q "nvme:$F" || echo '@wrong list'
echo @serves
clients a b
kill -9 $P; wait $P
serve c 16M d 36M
csd resize d/1 8M
clients c d
"#;

#[test]
fn drives_lie_on_an_ssd_that_the_process_drives_itself() {
    let Some(tools) = Tools::find_or_skip(Flavour::Cloud) else { return };
    let Some(_turn) = turn() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = disk(folder.path(), "ssd", SSD);
    let mut initramfs = Initramfs::new(&tools).unwrap();
    initramfs.modules(&["vfio-pci", "vfio_iommu_type1"]).unwrap();
    initramfs.program("bin/guest-side", &std::env::current_exe().unwrap()).unwrap();
    initramfs.program("bin/dcs-csd", Path::new(env!("CARGO_BIN_EXE_dcs-csd"))).unwrap();
    let script = format!("{SHELL}{SERVES}");
    let machine = Machine::new().memory(1024).limit(LIMIT).iommu();
    let drive = format!("file={},format=raw,if=none,id=ssd,cache=unsafe", path.display());
    let machine = machine.arguments(["-drive", &drive, "-device", "nvme,drive=ssd,serial=ssd"]);
    let mut guest = machine.start(&tools, &initramfs.finish(&script), folder.path()).unwrap();
    wait(&mut guest, "serves");
    // Then the process is killed, and another one takes the SSD.
    (0..2).for_each(|_| _ = wait(&mut guest, "clients"));
    guest.wait(LIMIT).unwrap();
    // What the drives' guests wrote is on the SSD, in its place and nowhere else.
    let on_ssd = std::fs::read(&path).unwrap();
    let written =
        |at: u64| on_ssd[at as usize..(at + LENGTH) as usize].iter().filter(|byte| **byte != 0).count();
    assert!(PLACES.iter().all(|at| written(*at) > 500_000), "{:?}", PLACES.map(written));
    let inside = |at: u64| PLACES.iter().any(|place| (*place..place + LENGTH).contains(&at));
    let mut outside = on_ssd.iter().zip(0..).filter(|(_, at)| !inside(*at));
    assert!(outside.all(|(byte, _)| *byte == 0), "beside the namespaces");
}

#[test]
#[ignore = "the guest's side of another test"]
fn in_the_guest() {
    let names = std::env::var("DRIVES").unwrap();
    std::thread::scope(|scope| {
        for (seed, (name, bytes)) in names.split(' ').zip([4096, 131_072]).enumerate() {
            scope.spawn(move || {
                let socket = Path::new("/tmp/s").join(format!("{name}.sock"));
                // It sleeps until it is interrupted: the machine has one processor, which the process needs.
                let options = Options { memory: 16 * MB, interrupts: true, ..Options::default() };
                let mut drive = Drive::open(&socket, options).unwrap();
                let mut runner = Runner::new(&mut drive, 0, bytes, 16, LENGTH, seed as u64).unwrap();
                let (order, mix, check) = (Order::Random, Mix::Both, Check::All);
                let workload = Workload { order, mix, depth: 16, check, stop: Stop::Commands(400) };
                assert_eq!(runner.run(&mut drive, &workload).unwrap().commands, 400);
            });
        }
    });
}
