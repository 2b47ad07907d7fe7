//! NICs that `dcs` drives itself: in a guest whose NICs, QEMU's models of Intel's, are behind an IOMMU next to its NVMe
//! SSDs. Skipped, with the reason, if no virtual server is available.

use crate::guest::{LIMIT, Rig, digest, function, md5, path_has, raw, ssd};
use crate::run::{Place, Receiver};
use dcs_testkit::{Random, bytes as data};
use dcs_vm::machine::Forward;
use dcs_vm::tools::Flavour;
use dcs_vm::wire::{Socket, Wire};
use dcs_vm::{Machine, Network, Nic};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

const MIB: usize = 1 << 20;
const BYTES: usize = 16 * MIB;

/// Returns the kernel with drivers of Intel's NICs.
const ALL: (Flavour, &[&str]) =
    (Flavour::Full, &["nvme", "igb", "e1000e", "virtio_net", "vfio-pci", "vfio_iommu_type1"]);

/// Makes one SSD with data, and a NIC.
fn machine(place: &Place, nic: Nic, network: &Network) -> Machine {
    place.write("data.img", &data(BYTES, 1));
    let machine = Machine::new().memory(768).limit(3 * LIMIT).iommu();
    let machine = ssd(machine, "data", &raw(&place.path("data.img")), "");
    machine.nic(nic, network)
}

/// Address outside that leads to the guest's port 9000.
fn forwarded() -> (Network, SocketAddr) {
    let from = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let forward = Forward { tcp: true, from, to: "10.0.2.15:9000".parse().unwrap() };
    (Network::User(vec![forward]), from)
}

fn port(receiver: &Receiver) -> &str {
    receiver.address.rsplit_once(':').unwrap().1
}

/// Names for the devices while the kernel has both. `at`: has `dcs` drive the NIC.
const NAMES: &str = r#"
until [ -n "$(ssd data)" ] && [ -e /sys/class/net/eth0 ]; do sleep 0.2; done
DATA=$(ssd data); NIC=$(basename $(readlink -f /sys/class/net/eth0/device))
AT="--nic $NIC --address 10.0.2.15/24"
listening() { until grep -q listening $1; do sleep 0.1; done; echo "@end listening 0"; }
bound() { until [ -e /sys/class/net/eth0 ]; do sleep 0.1; done; }
"#;

/// Goes all the way from the kernel's driver to ours, and back.
const SCRIPT: &str = r#"
echo "@out $NIC"; echo "@end name 0"
ip addr add 10.0.2.15/24 dev eth0; ip link set eth0 up
step before dcs doctor --json
step unbound dcs send /init 10.0.2.2:STUCK $AT
step up dcs doctor --bind $NIC
ip link set eth0 down
step address dcs doctor --bind $NIC
ip addr flush dev eth0
dcs doctor --bind $DATA
step bind dcs doctor --bind $NIC --json
step bound dcs doctor $NIC --json
step whole dcs send nvme:$DATA/1 10.0.2.2:WHOLE $AT --through md5 --json
dcs copy nvme:$DATA/1@2048+1MiB /tmp/part
step file dcs send /tmp/part 10.0.2.2:FILE $AT --through md5 --json
step pipe sh -c "cat /tmp/part | dcs send - 10.0.2.2:PIPE $AT --through md5 --json --io plain"
dcs recv 9000 nvme:$DATA/1@16384+1MiB $AT --through md5 --durable --json >/tmp/recv 2>&1 & RECV=$!
listening /tmp/recv
wait $RECV; step recv sh -c "cat /tmp/recv; exit $?"
dcs recv 9000 /tmp/got $AT --through md5 --json >/tmp/recv 2>&1 & RECV=$!
listening /tmp/recv
wait $RECV; step recvfile sh -c "cat /tmp/recv; exit $?"
step same md5sum /tmp/got
echo 64 > /proc/sys/vm/nr_hugepages
dcs recv 9000 nvme:$DATA/1@0x6000+64KiB $AT --json >/tmp/recv 2>&1 & RECV=$!
listening /tmp/recv
wait $RECV; step full sh -c "cat /tmp/recv; exit $?"
step reset dcs send nvme:$DATA/1 10.0.2.2:RESET $AT --json
step refused dcs send nvme:$DATA/1@0+4096 10.0.2.2:1 $AT
step nobody dcs send nvme:$DATA/1@0+4096 10.0.2.77:9000 $AT --connect-timeout 20s
step noway dcs send nvme:$DATA/1@0+4096 192.0.2.1:9000 $AT
step late dcs recv 9000 /tmp/late $AT --accept-timeout 1s
step stuck dcs send nvme:$DATA/1 10.0.2.2:STUCK $AT --timeout 3s --json
step host dcs send nvme:$DATA/1@0+4096 10.0.2.2:STUCK --nic $NIC --address 224.0.0.1/24
step none dcs send nvme:$DATA/1@0+4096 10.0.2.2:STUCK --nic $DATA --address 10.0.2.15/24
dcs send nvme:$DATA/1@0+16MiB 10.0.2.2:STUCK $AT & SEND=$!
sleep 4; step busy dcs send nvme:$DATA/1@0+4096 10.0.2.2:STUCK $AT
kill -9 $SEND; wait $SEND
step killed dcs send nvme:$DATA/1@2048+1MiB 10.0.2.2:KILLED $AT --through md5 --json
dcs send nvme:$DATA/1@0+16MiB 10.0.2.2:STUCK $AT --json >/tmp/hung 2>&1 & SEND=$!
sleep 4; printf '\002\000' | dd of=/sys/bus/pci/devices/$NIC/config bs=1 seek=4 count=2 conv=notrunc 2>/dev/null
wait $SEND; step hung sh -c "cat /tmp/hung; exit $?"
echo "@end pull 0"; read -r SAID
step unplugged dcs send nvme:$DATA/1@0+4096 10.0.2.2:STUCK $AT
echo "@end plug 0"; read -r SAID
step release dcs doctor --release $NIC --json
bound; ip addr add 10.0.2.15/24 dev eth0; ip link set eth0 up
until [ "$(cat /sys/class/net/eth0/carrier)" = 1 ]; do sleep 0.1; done
step kernel dcs send nvme:$DATA/1@2048+1MiB 10.0.2.2:KERNEL --through md5 --json
echo "@end all 0"
"#;

#[test]
fn a_nic_is_driven_past_the_kernel_and_given_back() {
    let place = Place::new();
    let (network, outside) = forwarded();
    let machine = machine(&place, Nic::Igb, &network);
    // The peer takes connections, but none of their data.
    let stuck = TcpListener::bind("127.0.0.1:0").unwrap();
    let resets = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut script = format!("{NAMES}{SCRIPT}");
    for (word, listener) in [("STUCK", &stuck), ("RESET", &resets)] {
        script = script.replace(word, &listener.local_addr().unwrap().port().to_string());
    }
    let names = ["WHOLE", "FILE", "PIPE", "KILLED", "KERNEL"];
    let receivers = names.map(|name| place.recv(&format!("{name} --through md5"), |_| {}));
    for (name, receiver) in names.iter().zip(&receivers) {
        script = script.replace(name, port(receiver));
    }
    let Some(mut rig) = Rig::boot(place, machine, ALL, &script) else { return };
    let nic = rig.step("name").out.remove(0);
    before(&mut rig, &nic);
    let [whole, file, pipe, killed, kernel] = receivers;
    let image = data(BYTES, 1);
    let done = arrived(&mut rig, whole, "whole", &image);
    assert!(path_has(&done, "VFIO"), "{done}");
    let stages = done["breakdown"]["stages"].as_array().unwrap();
    assert!(stages.len() >= 3 && stages.iter().all(|stage| stage["last_ns"].as_u64() > Some(0)), "{done}");
    let part = &image[MIB..2 * MIB];
    arrived(&mut rig, file, "file", part);
    let plain = arrived(&mut rig, pipe, "pipe", part);
    assert!(!path_has(&plain, "io_uring"), "{plain}");
    received(&mut rig, outside);
    peers(&mut rig, &resets);
    rig.step("busy").fails(1, &["another process"]);
    arrived(&mut rig, killed, "killed", part);
    let hung = rig.step("hung");
    let error = error(&hung.lines());
    assert!(
        hung.code == 1 && error["status"] == "DEVICE_RESET" && error["stage"] == "destination",
        "{error}"
    );
    rig.step("pull");
    rig.guest.monitor("set_link net0 off").unwrap();
    rig.guest.send("go").unwrap();
    rig.step("unplugged").fails(3, &["has no link", "cable"]);
    rig.step("plug");
    rig.guest.monitor("set_link net0 on").unwrap();
    rig.guest.send("go").unwrap();
    let released = rig.step("release").ok();
    assert!(released.lines()[0]["driver"] == "igb", "{:?}", released.out);
    arrived(&mut rig, kernel, "kernel", part);
    rig.step("all");
    written(&rig.place);
    drop(stuck);
}

/// Checks what the doctor reports, and leaves alone, while the kernel has the NIC; then binds it.
fn before(rig: &mut Rig, nic: &str) {
    let doctor = rig.step("before").ok();
    let found = function(&doctor, nic);
    assert!(found["driver"] == "igb" && found["drivable"] == false, "{found}");
    let row = doctor.lines().into_iter().find(|line| line["name"] == format!("--nic {nic}")).unwrap();
    assert!(row["state"] == "note" && row["found"].as_str().unwrap().contains("igb has it"), "{row}");
    rig.step("unbound").fails(1, &["not bound to vfio-pci", "igb has it", &format!("--bind {nic}")]);
    rig.step("up").fails(1, &["in use", "eth0 is up"]);
    rig.step("address").fails(1, &["in use", "eth0 has the address 10.0.2.15"]);
    rig.step("bind").ok();
    let found = function(&rig.step("bound").ok(), nic);
    assert!(found["driver"] == "vfio-pci" && found["drivable"] == true, "{found}");
}

/// Runs a sending step to its end: every byte arrives, and all digests agree, including hashlib's.
#[track_caller]
fn arrived(rig: &mut Rig, receiver: Receiver, step: &str, bytes: &[u8]) -> Value {
    let sent = rig.step(step).done();
    let got = receiver.end().ok().lines();
    let name = got.last().unwrap()["destination"].as_str().unwrap().to_owned();
    assert!(rig.place.read(&name) == bytes, "every byte of {name}");
    assert_eq!(digest(&sent), md5(&rig.place.path(&name)), "as hashlib has it");
    assert_eq!(digest(got.last().unwrap()), digest(&sent));
    assert_eq!(sent["bytes_out"], bytes.len());
    sent
}

/// Receives a transfer from outside.
fn received(rig: &mut Rig, outside: SocketAddr) {
    let bytes = data(MIB, 7);
    let sum = md5(&rig.place.write("sum", &bytes));
    let send = |rig: &mut Rig| {
        rig.step("listening");
        let mut stream = TcpStream::connect(outside).unwrap();
        let _ = stream.write_all(&bytes).and_then(|()| stream.shutdown(Shutdown::Write));
        // Waits until the other end has everything, and has ended.
        let _ = stream.read_to_end(&mut Vec::new());
    };
    send(rig);
    let done = rig.step("recv").done();
    assert!(digest(&done) == sum && path_has(&done, "VFIO") && done["bytes_out"] == MIB, "{done}");
    send(rig);
    assert_eq!(digest(&rig.step("recvfile").done()), sum);
    assert!(rig.step("same").ok().out[0].starts_with(&sum));
    send(rig);
    let full = rig.step("full");
    let nic = full.lines().into_iter().find(|line| line["event"] == "nic").unwrap();
    assert!(nic["huge_pages"] == true && nic["model"] == "igb" && nic["mac"] == "52:54:00:dc:50:01", "{nic}");
    let error = error(&full.lines());
    assert!(full.code == 4 && error["bytes_out"] == 64 << 10, "{error}");
}

/// Checks that the received data are on the disk, and nothing else is.
fn written(place: &Place) {
    let mut expected = data(BYTES, 1);
    let came = data(MIB, 7);
    expected[16384 * 512..][..MIB].copy_from_slice(&came);
    expected[0x6000 * 512..][..64 << 10].copy_from_slice(&came[..64 << 10]);
    let image = place.read("data.img");
    assert_eq!(expected.iter().zip(&image).position(|(one, other)| one != other), None, "first that differs");
}

fn error(lines: &[Value]) -> Value {
    let found = lines.iter().find(|line| line["event"] == "error");
    found.unwrap_or_else(|| panic!("no error: {lines:?}")).clone()
}

/// Peers that reset, refuse, are missing, or take nothing.
fn peers(rig: &mut Rig, resets: &TcpListener) {
    let (mut stream, _) = resets.accept().unwrap();
    stream.read_exact(&mut [0; 100_000]).unwrap();
    // Closing with unread bytes is a reset.
    drop(stream);
    let reset = rig.step("reset");
    let said = error(&reset.lines());
    assert!(reset.code == 3 && said["stage"] == "destination", "{said}");
    assert!((1..BYTES as u64).contains(&said["bytes_out"].as_u64().unwrap()), "{said}");
    rig.step("refused").fails(3, &["cannot connect"]);
    rig.step("nobody").fails(3, &["cannot connect"]);
    rig.step("noway").fails(3, &["cannot connect"]);
    rig.step("late").fails(8, &["ran out"]);
    let stuck = rig.step("stuck");
    let said = error(&stuck.lines());
    assert!(stuck.code == 8 && said["bytes_out"].as_u64().unwrap() < BYTES as u64, "{said}");
    rig.step("host").fails(2, &["224.0.0.1/24 is not an address that a host can have"]);
    rig.step("none").fails(2, &["not a NIC that can be driven (1b36:0010)"]);
}

#[test]
fn an_82574_is_driven_too() {
    let place = Place::new();
    let (network, outside) = forwarded();
    let machine = machine(&place, Nic::E1000e, &network);
    let receiver = place.recv("got --through md5", |_| {});
    let script = r#"
step bind dcs doctor --bind $NIC
dcs doctor --bind $DATA
step send dcs send nvme:$DATA/1 10.0.2.2:GOT $AT --through md5 --json
dcs recv 9000 nvme:$DATA/1@16384+1MiB $AT --through md5 --durable --json >/tmp/recv 2>&1 & RECV=$!
listening /tmp/recv
wait $RECV; step recv sh -c "cat /tmp/recv; exit $?"
step release dcs doctor --release $NIC --json
"#;
    let script = format!("{NAMES}{}", script.replace("GOT", port(&receiver)));
    let Some(mut rig) = Rig::boot(place, machine, ALL, &script) else { return };
    rig.step("bind").ok();
    arrived(&mut rig, receiver, "send", &data(BYTES, 1));
    let bytes = data(MIB, 9);
    rig.step("listening");
    let mut stream = TcpStream::connect(outside).unwrap();
    stream.write_all(&bytes).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    stream.read_to_end(&mut Vec::new()).unwrap();
    let done = rig.step("recv").done();
    assert_eq!(digest(&done), md5(&rig.place.write("sum", &bytes)));
    assert_eq!(rig.place.read("data.img")[16384 * 512..][..MIB], bytes);
    assert!(rig.step("release").ok().lines()[0]["driver"] == "e1000e");
}

/// Carries frames badly: of each hundred, it loses two, duplicates three and reorders three.
fn carry(mut from: Wire, mut to: Wire, seed: u64, end: &Arc<AtomicBool>, lost: &Arc<AtomicU64>) {
    let mut random = Random(seed);
    let mut late: Option<Vec<u8>> = None;
    while !end.load(Ordering::Relaxed) {
        let frame = match from.receive(Duration::from_millis(20)) {
            Ok(Some(frame)) => frame,
            Ok(None) => match late.take() {
                Some(frame) => frame,
                None => continue,
            },
            Err(_) => return,
        };
        let times = match random.below(100) {
            0..2 => {
                lost.fetch_add(1, Ordering::Relaxed);
                0
            }
            2..5 => 2,
            5..8 if late.is_none() => {
                late = Some(frame);
                continue;
            }
            _ => 1,
        };
        for _ in 0..times {
            if to.send(&frame).is_err() {
                return;
            }
        }
        if let Some(frame) = late.take_if(|_| times > 0)
            && to.send(&frame).is_err()
        {
            return;
        }
    }
}

/// The other end of the cable is the guest's own kernel, with another NIC.
#[test]
fn nothing_is_lost_with_frames() {
    let place = Place::new();
    let [ours, theirs] = ["ours", "theirs"].map(|name| Socket::new(&place.path(name)).unwrap());
    let machine = machine(&place, Nic::Igb, &ours.network()).nic(Nic::Virtio, &theirs.network());
    let script = r#"
for n in /sys/class/net/eth*; do case $(basename $(readlink $n/device/driver)) in igb) NIC=$(basename $(readlink -f $n/device));; *) ETH=$(basename $n);; esac; done
ip addr add 10.0.2.2/24 dev $ETH; ip link set $ETH up
AT="--nic $NIC --address 10.0.2.15/24"
dcs doctor --bind $NIC; dcs doctor --bind $DATA
dcs recv 9001 /tmp/got --through md5 --json >/tmp/recv 2>&1 & RECV=$!
listening /tmp/recv
step send dcs send nvme:$DATA/1@0+4MiB 10.0.2.2:9001 $AT --through md5 --json
wait $RECV; step got sh -c "cat /tmp/recv; exit $?"
step sum md5sum /tmp/got
dcs recv 9000 nvme:$DATA/1@16384+4MiB $AT --through md5 --durable --json >/tmp/recv 2>&1 & RECV=$!
listening /tmp/recv
step sendback dcs send /tmp/got 10.0.2.15:9000 --through md5 --json
wait $RECV; step back sh -c "cat /tmp/recv; exit $?"
"#;
    let script = format!("{NAMES}{script}");
    let Some(mut rig) = Rig::boot(place, machine, ALL, &script) else { return };
    let wires = [ours.plug(LIMIT).unwrap(), theirs.plug(LIMIT).unwrap()];
    let (end, lost) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let [ours, theirs] = wires;
    let ways = [(ours.sender().unwrap(), theirs.sender().unwrap())];
    let [(to_ours, to_theirs)] = ways;
    let carriers = [(ours, to_theirs, 11), (theirs, to_ours, 22)].map(|(from, to, seed)| {
        let (end, lost) = (Arc::clone(&end), Arc::clone(&lost));
        thread::spawn(move || carry(from, to, seed, &end, &lost))
    });
    let sum = md5(&rig.place.write("sum", &data(BYTES, 1)[..4 * MIB]));
    rig.step("listening");
    assert_eq!(digest(&rig.step("send").done()), sum);
    assert_eq!(digest(&rig.step("got").done()), sum);
    assert!(rig.step("sum").ok().out[0].starts_with(&sum));
    rig.step("listening");
    rig.step("sendback").ok();
    assert_eq!(digest(&rig.step("back").done()), sum);
    end.store(true, Ordering::Relaxed);
    carriers.into_iter().for_each(|carrier| carrier.join().unwrap());
    let image = rig.place.read("data.img");
    assert!(image[16384 * 512..][..4 * MIB] == image[..4 * MIB], "what came back is what was sent");
    assert!(lost.load(Ordering::Relaxed) > 20, "{lost:?} frames were lost");
}

/// Runs anywhere, even in a container.
#[test]
fn what_names_no_nic_is_said() {
    let place = Place::new();
    place.write("a", b"a");
    let at = "--address 10.0.2.15/24";
    place
        .run(&format!("send a 10.0.2.2:9 --nic 0000:7f:1f.7 {at}"))
        .fails(7, &["no PCI function 0000:7f:1f.7"]);
    place.run(&format!("recv 9000 b --nic eth0 {at}")).fails(2, &["eth0: not the address of a PCI function"]);
    place
        .run("send a 10.0.2.2:9 --nic 01:00.0 --address 10.0.2.15")
        .fails(2, &["--address 10.0.2.15", "/24"]);
    assert_eq!(place.run("send a 10.0.2.2:9 --nic 01:00.0").code(), 2, "it has no address");
    assert_eq!(place.run(&format!("send a 10.0.2.2:9 {at}")).code(), 2, "what has it?");
    assert_eq!(place.names(), ["a"]);
}
