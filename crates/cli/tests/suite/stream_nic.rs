//! `dcs stream` by NICs that it drives itself: in a guest with QEMU's models of Intel's NICs. Receivers are sockets of the kernels at the
//! other ends: the guest's own, and the one that QEMU runs on. Skipped, with the reason, if no virtual server is available.

use crate::guest::{LIMIT, Rig, digest, md5, raw, ssd};
use crate::run::Place;
use crate::stream::{Peer, video, watch};
use dcs_media::rtp::Header;
use dcs_media::ts::PAYLOAD;
use dcs_vm::tools::Flavour;
use dcs_vm::{Machine, Network, Nic};

/// A cloud's kernel has no driver of Intel's NICs: nothing else has them.
const KERNEL: (Flavour, &[&str]) = (Flavour::Cloud, &["virtio_net", "vfio-pci", "vfio_iommu_type1"]);
/// Packets of the video: whole logical blocks of an SSD, 385 ms of 8 Mb/s.
const PACKETS: usize = 2048;
const BYTES: usize = PACKETS * 188;

/// Names for the devices: an 82576 on QEMU's router, an 82574 and the guest's own NIC on a cable.
const NAMES: &str = r#"
nic() { for n in /sys/bus/pci/devices/*; do [ "$(cat $n/vendor) $(cat $n/device)" = "0x8086 $1" ] && { basename $n; return; }; done; }
until [ -n "$(ssd data)" ] && [ -e /sys/class/net/eth0 ]; do sleep 0.2; done
DATA=$(ssd data); ROUTER="--nic $(nic 0x10c9) --address 10.0.2.15/24"; CABLE="--nic $(nic 0x10d3) --address 10.0.3.1/24"
ip link set lo up; ip addr add 10.0.3.2/24 dev eth0; ip link set eth0 up
# What comes while a receiver waits for the only processor.
echo 16777216 >/proc/sys/net/core/rmem_max
dcs doctor --bind $(nic 0x10c9); dcs doctor --bind $(nic 0x10d3)
head -c BYTES /dev/nvme0n1 >/tmp/video.ts
joined() { until grep -qi $1 /proc/net/igmp; do sleep 0.1; done; }
"#;

const SCRIPT: &str = r#"
step rtp dcs stream /tmp/video.ts rtp://10.0.2.2:RTP $ROUTER --through md5 --json --sdp /tmp/sdp
step sdp cat /tmp/sdp
dcs record udp://239.1.1.1:5004 /tmp/got --interface eth0 --length BYTES --idle 30s --through md5 --json >/tmp/record 2>&1 & RECORD=$!
joined 010101EF
step group dcs stream /tmp/video.ts udp://239.1.1.1:5004 --ttl 3 $CABLE --through md5 --json
wait $RECORD; step record sh -c "cat /tmp/record; exit $?"
step same md5sum /tmp/got
printf '[a]\nto = "udp://10.0.3.2:6000"\nfiles = ["/tmp/video.ts"]\n[b]\nto = "rtp://10.0.3.2:6002"\nfiles = ["/tmp/video.ts"]\n' >/tmp/list
dcs record udp://:6000 /tmp/a --length BYTES --idle 30s --through md5 --json >/tmp/recorda 2>&1 & A=$!
dcs record rtp://:6002 /tmp/b --length BYTES --idle 30s --through md5 --json >/tmp/recordb 2>&1 & B=$!
until [ $(grep -c -i -E ':(1770|1772) ' /proc/net/udp) = 2 ]; do sleep 0.1; done
dcs stream --list /tmp/list $CABLE --json >/tmp/list.out 2>&1 & LIST=$!
wait $A; step a sh -c "cat /tmp/recorda; exit $?"
wait $B; step b sh -c "cat /tmp/recordb; exit $?"
kill -TERM $LIST; wait $LIST; step list sh -c "cat /tmp/list.out; exit $?"
step nobody dcs stream /tmp/video.ts udp://10.0.3.77:5004 $CABLE
step noway dcs stream /tmp/video.ts udp://192.0.2.1:5004 $CABLE
step six dcs stream /tmp/video.ts udp://[::1]:5004 $CABLE
step interface dcs stream /tmp/video.ts udp://239.1.1.1:5004 --interface eth0 $CABLE
step hops dcs stream /tmp/video.ts udp://239.1.1.1:5004 --ttl 0 $CABLE
step noise sh -c "head -c 20000 /dev/urandom >/tmp/noise; dcs stream /tmp/noise udp://10.0.3.2:5004 $CABLE"
dcs stream /tmp/video.ts udp://10.0.2.2:RTP --loop $ROUTER --every 200ms --json >/tmp/link 2>&1 & LINK=$!
until grep -q '"datagrams":[1-9]' /tmp/link; do sleep 0.1; done; echo "@end pull 0"; read -r SAID
until grep -q '"lost":[1-9]' /tmp/link; do sleep 0.1; done; echo "@end plug 0"; read -r SAID
kill -INT $LINK; wait $LINK; step link sh -c "tail -n 1 /tmp/link; exit $?"
dcs stream /tmp/video.ts udp://10.0.2.2:RTP --loop $ROUTER --every 200ms >/tmp/link 2>&1 & LINK=$!
until grep -q 'datagrams' /tmp/link; do sleep 0.1; done; kill -9 $LINK; wait $LINK
step killed dcs stream /tmp/video.ts rtp://10.0.2.2:RTP $ROUTER --json
"#;

#[test]
fn videos_go_by_nics_that_dcs_drives() {
    let place = Place::new();
    let bytes = video(PACKETS as u64, 0, 900);
    assert_eq!(bytes.len(), BYTES);
    let mut image = bytes.clone();
    image.resize(1 << 20, 0);
    place.write("data.img", &image);
    let sum = md5(&place.write("video.ts", &bytes));
    let machine =
        ssd(Machine::new().memory(768).limit(3 * LIMIT).iommu(), "data", &raw(&place.path("data.img")), "");
    let machine = machine.nic(Nic::Igb, &Network::User(Vec::new()));
    let machine = machine.nic(Nic::Virtio, &Network::Cable(1)).nic(Nic::E1000e, &Network::Cable(1));
    let peer = Peer::new();
    let script = format!("{NAMES}{SCRIPT}");
    let script = script.replace("RTP", &peer.port.to_string()).replace("BYTES", &BYTES.to_string());
    let Some(mut rig) = Rig::boot(place, machine, KERNEL, &script) else { return };
    rtp(&mut rig, &peer, &bytes, &sum);
    let done = rig.step("group").done();
    assert_eq!(
        (&done["total"]["datagrams"], &done["total"]["lost"]),
        (&(BYTES.div_ceil(PAYLOAD)).into(), &0.into())
    );
    let record = rig.step("record").done();
    assert_eq!(digest(&record), sum, "what the guest's kernel has received from the group: {record} {done}");
    assert!(rig.step("same").ok().out[0].starts_with(&sum));
    for name in ["a", "b"] {
        assert_eq!(digest(&rig.step(name).done()), sum);
    }
    let list = rig.step("list").done();
    assert_eq!(list["channels"].as_array().unwrap().len(), 2);
    let nobody = rig.step("nobody").ok();
    assert!(nobody.err.contains("293 lost") && nobody.err.contains("No route to host"), "{}", nobody.err);
    rig.step("noway").fails(3, &["192.0.2.1"]);
    rig.step("six").fails(2, &["IPv4"]);
    rig.step("interface").fails(2, &["interface"]);
    rig.step("hops").fails(3, &["--ttl"]);
    rig.step("noise").fails(5, &["not an MPEG transport stream"]);
    link(&mut rig, &peer);
    let killed = rig.step("killed").done();
    assert_eq!(killed["total"]["lost"], 0, "a NIC whose driver was killed is driven again: {killed}");
}

/// Receives the first stream on this machine, and checks its numbers, its bytes, its reports and its description.
fn rtp(rig: &mut Rig, peer: &Peer, bytes: &[u8], sum: &str) {
    // The guest takes its time to start: what it has sent by then is in the socket.
    let step = rig.step("rtp").ok();
    let came = peer.datagrams(12, bytes.len());
    let sent = step.lines().into_iter().find(|line| line["event"] == "sent").expect("a file was sent");
    assert_eq!(digest(&sent), sum);
    let nic = step.lines().into_iter().find(|line| line["event"] == "nic").expect("a NIC is named");
    assert_eq!(nic["model"], "igb");
    let heads: Vec<Header> = came.iter().map(|datagram| Header::parse(datagram).unwrap().0).collect();
    for two in heads.windows(2) {
        assert_eq!((two[1].sequence, two[1].ssrc), (two[0].sequence.wrapping_add(1), two[0].ssrc));
    }
    let payload: Vec<u8> = came.iter().flat_map(|datagram| datagram[12..].to_vec()).collect();
    assert!(payload == bytes && watch(&payload) == 0);
    assert!(came.iter().rev().skip(1).all(|datagram| datagram.len() == 12 + PAYLOAD));
    let (mut last, mut goodbye) = peer.report();
    while !goodbye {
        (last, goodbye) = peer.report();
    }
    assert_eq!(
        (last.ssrc, last.packets as usize, last.octets as usize),
        (heads[0].ssrc, came.len(), bytes.len())
    );
    let sdp = rig.step("sdp").ok().out.join("\n");
    assert!(sdp.contains("10.0.2.15") && sdp.contains(&format!("m=video {}", peer.port)), "{sdp}");
}

/// Pulls the cable of a stream without end, and plugs it in again: what is lost is counted, and it goes on.
fn link(rig: &mut Rig, peer: &Peer) {
    rig.step("pull");
    assert_eq!(rig.guest.monitor("set_link net0 off").unwrap(), "");
    rig.guest.send("go").unwrap();
    rig.step("plug");
    peer.socket.set_nonblocking(true).unwrap();
    while peer.socket.recv(&mut [0; 2000]).is_ok() {}
    peer.socket.set_nonblocking(false).unwrap();
    assert_eq!(rig.guest.monitor("set_link net0 on").unwrap(), "");
    assert_eq!(peer.datagram().len(), PAYLOAD, "it goes on");
    rig.guest.send("go").unwrap();
    let done = rig.step("link").done();
    assert!(done["total"]["lost"].as_u64() > Some(0), "{done}");
}

/// Measures CPU seconds of 1 and of 120 videos of 8 Mb/s: by QEMU's 82576 and 82574 that `dcs` drives, and by the guest's kernel with a
/// virtio NIC. The guest's time for the emulated registers is in it, QEMU's own work is not.
#[test]
#[ignore = "measures: run it alone, on a quiet machine, with --nocapture"]
fn cpu_time_of_videos_by_a_nic_and_by_the_kernel() {
    const PACKETS: usize = 26_624;
    const SCRIPT: &str = r#"
cpu() { name=$1; shift; dcs stream "$@" --json >/tmp/said 2>&1 & P=$!
    sleep 4; A=$(cut -d' ' -f14,15 /proc/$P/stat); sleep 10; B=$(cut -d' ' -f14,15 /proc/$P/stat)
    kill -INT $P; wait $P; step $name sh -c "echo $A $B; tail -n 1 /tmp/said"; }
list() { for i in $(seq $1); do printf '[c%d]\nto = "udp://239.2.0.%d:5004"\nfiles = ["/tmp/video.ts"]\nloop = true\n' $i $i
    [ -z "$2" ] || echo "interface = \"$2\""; done; }
for n in 1 120; do
    list $n "" >/tmp/list; list $n eth0 >/tmp/list.eth0
    cpu igb-$n --list /tmp/list $ROUTER
    cpu e1000e-$n --list /tmp/list $CABLE
    cpu kernel-$n --list /tmp/list.eth0
done
"#;
    let place = Place::new();
    place.write("data.img", &video(PACKETS as u64, 0, 900));
    let machine = Machine::new().memory(768).limit(3 * LIMIT).iommu();
    let machine = ssd(machine, "data", &raw(&place.path("data.img")), "");
    let machine = machine.nic(Nic::Igb, &Network::User(Vec::new()));
    let machine = machine.nic(Nic::Virtio, &Network::Subnet(7)).nic(Nic::E1000e, &Network::Subnet(3));
    let script = format!("{NAMES}{SCRIPT}").replace("BYTES", &(PACKETS * 188).to_string());
    let Some(mut rig) = Rig::boot(place, machine, KERNEL, &script) else { return };
    for streams in [1, 120] {
        for by in ["igb", "e1000e", "kernel"] {
            let step = rig.step(&format!("{by}-{streams}")).ok();
            let ticks: Vec<u64> = step.out[0].split(' ').map(|word| word.parse().unwrap()).collect();
            let (user, system) = (ticks[2] - ticks[0], ticks[3] - ticks[1]);
            let last = step.lines().pop();
            let total = &last.unwrap_or_else(|| panic!("{:?} {}", step.out, step.err))["total"];
            // 100 ticks a second, 10 seconds.
            let share = (user + system) as f64 / 10.0 / streams as f64;
            println!(
                "{by}, {streams} videos: {share:.3} % of a core each ({user} ticks user, {system} system); {total}"
            );
        }
    }
}
