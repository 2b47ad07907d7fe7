//! `dcs d2d` with a tap device as the wire, whose other end is Linux's own network: what the NIC sends is read from
//! an ordinary socket, and what an ordinary socket sends, in fragments too, is stored by the SSD. All of it in a
//! network namespace of its own. Skipped, with the reason, where that, or a virtual server, is not available.

use crate::d2d::Function;
use crate::guest::{LIMIT, Rig};
use crate::run::{Place, data};
use dcs_media::rtp::Header;
use dcs_vm::Machine;
use dcs_vm::tools::Flavour;
use nix::sched::{CloneFlags, unshare};
use std::net::UdpSocket;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const BLOCK: usize = 4096;
/// Bytes of a stream: no whole number of blocks, nor of datagrams.
const LENGTH: usize = 300_007;
const STREAMS: usize = 3;
/// Blocks of a stream.
const BLOCKS: usize = LENGTH.div_ceil(BLOCK);
/// Payloads of datagrams of each stream that is stored: as a video's, in fragments, of any length.
const SIZES: [&[usize]; STREAMS] = [&[1316], &[4000], &[1, 2999, 1472, 1473, 700]];

const SCRIPT: &str = r#"
find() { for d in /sys/bus/pci/devices/*; do [ "$(cat $d/vendor) $(cat $d/device)" = "0xdc51 $1" ] && echo ${d##*/}; done; }
SSD=$(find 0x0003 | head -n 1); READONLY=$(find 0x0003 | tail -n 1); NIC=$(find 0x0004)
record() {
  name=$1; shift; rm -f /tmp/said
  dcs d2d record "$@" --json >/tmp/said 2>/tmp/complained & DRIVER=$!
  until grep -q streaming /tmp/said || ! [ -d /proc/$DRIVER ]; do sleep 0.1; done
  echo "@$name"
  wait $DRIVER; CODE=$?
  step $name sh -c "cat /tmp/said; cat /tmp/complained >&2; exit $CODE"
}
step sent dcs d2d stream $SSD $NIC udp://10.213.0.1:5004 --length LENGTH --rate 10M --streams STREAMS --from 10.213.0.2 --json
record unplugged $SSD $NIC udp://10.213.0.2:6000 --length LENGTH --block BLOCKS
step down dcs d2d stream $SSD $NIC udp://10.213.0.1:5004 --length LENGTH --rate 10M
until dcs d2d stream $SSD $NIC udp://10.213.0.1:5004 --length LENGTH --rate 10M --json >/tmp/up 2>&1; do sleep 0.1; done
step up cat /tmp/up
record stored $SSD $NIC udp://10.213.0.2:6000 --length LENGTH --block BLOCKS --streams STREAMS
record rtp $SSD $NIC rtp://10.213.0.2:7000 --length LENGTH --block BLOCKS --from 10.213.0.1
record readonly $READONLY $NIC udp://10.213.0.2:6000 --length 1000
step silent dcs d2d record $SSD $NIC udp://10.213.0.2:6000 --length 1MiB --stall 1s
step beyond dcs d2d record $SSD $NIC udp://10.213.0.2:6000 --length LENGTH --block BLOCKS --streams 9
"#;

/// Puts the calling thread into a network namespace of its own, or says what that lacks here.
fn enter() -> Result<(), String> {
    unshare(CloneFlags::CLONE_NEWNET).map_err(|error| format!("no network namespace of its own: {error}"))?;
    match Path::new("/dev/net/tun").exists() && Command::new("ip").arg("-V").output().is_ok() {
        true => Ok(()),
        false => Err("it takes /dev/net/tun and ip".into()),
    }
}

fn ip(line: &str) {
    let done = Command::new("ip").args(line.split(' ')).output().unwrap();
    assert!(done.status.success(), "ip {line}: {}", String::from_utf8_lossy(&done.stderr));
}

fn socket(port: u16) -> UdpSocket {
    let socket = UdpSocket::bind(("10.213.0.1", port)).unwrap();
    // The guest boots first. A stream's bytes and their bookkeeping, whoever reads them late.
    socket.set_read_timeout(Some(LIMIT)).unwrap();
    nix::sys::socket::setsockopt(&socket, nix::sys::socket::sockopt::RcvBufForce, &(4 << 20)).unwrap();
    socket
}

/// Sends datagrams of these sizes in turn, at a pace that needs no more than the queues on the way.
fn send(to: &str, bytes: &[u8], sizes: &[usize], mut header: Option<Header>) {
    let socket = socket(0);
    let (mut left, mut sizes) = (bytes, sizes.iter().cycle());
    while !left.is_empty() {
        let (payload, rest) = left.split_at((*sizes.next().unwrap()).min(left.len()));
        let mut datagram = Vec::new();
        if let Some(header) = &mut header {
            let mut bytes = [0; dcs_media::rtp::HEADER];
            header.write(&mut bytes);
            header.sequence = header.sequence.wrapping_add(1);
            datagram.extend(bytes);
        }
        datagram.extend(payload);
        socket.send_to(&datagram, to).unwrap();
        left = rest;
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn receive(socket: &UdpSocket) -> Vec<u8> {
    let (mut came, mut datagram) = (Vec::new(), [0; 2000]);
    while came.len() < LENGTH {
        let count = socket.recv(&mut datagram).expect("it comes");
        assert!(count == 1316 || came.len() + count == LENGTH, "{count} bytes after {}", came.len());
        came.extend_from_slice(&datagram[..count]);
    }
    came
}

#[test]
fn a_nic_on_a_tap_device_sends_to_linux_and_stores_what_linux_sends() {
    // The namespace is this thread's, and its children's.
    std::thread::spawn(|| match enter() {
        Ok(()) => linux(),
        Err(why) => println!("skipped: {why}"),
    })
    .join()
    .unwrap();
}

fn linux() {
    let place = Place::new();
    let video = data(BLOCKS * BLOCK);
    let disk = [video.clone(), vec![0xee; (STREAMS + 1) * BLOCKS * BLOCK]].concat();
    place.write("disk", &disk);
    place.write("readonly", &video);
    let _nic = Function::start(&place, "nic nic.sock --switch switch.sock --tap wire0");
    let _ssd = Function::start(&place, "ssd ssd.sock disk --switch switch.sock --writable");
    let _readonly = Function::start(&place, "ssd readonly.sock readonly --switch switch.sock");
    place.run("d2d nic other --switch other.sock --tap wire0").fails(1, &["--tap wire0", "another program"]);
    for line in [
        "link set wire0 address 02:00:00:00:00:01",
        "addr add 10.213.0.1/24 dev wire0",
        "link set wire0 up",
        "neighbour add 10.213.0.2 lladdr 02:00:00:00:00:02 dev wire0 nud permanent",
    ] {
        ip(line);
    }
    let sockets: Vec<UdpSocket> = (0..STREAMS as u16).map(|n| socket(5004 + 2 * n)).collect();
    place.run("d2d ssd again.sock disk --switch switch.sock").fails(1, &["another program", "--writable"]);
    let machine = Machine::new().memory(512).limit(3 * LIMIT).iommu();
    let machine = machine.card(&place.path("ssd.sock")).card(&place.path("nic.sock"));
    let machine = machine.card(&place.path("readonly.sock"));
    let values = [("LENGTH", LENGTH), ("STREAMS", STREAMS), ("BLOCKS", BLOCKS)];
    let script = values
        .iter()
        .fold(SCRIPT.to_string(), |script, (name, value)| script.replace(name, &value.to_string()));
    let modules = ["vfio-pci", "vfio_iommu_type1"];
    let Some(mut rig) = Rig::boot(place, machine, (Flavour::Cloud, &modules), &script) else { return };

    assert_eq!(rig.step("sent").done()["failed"], 0);
    for socket in &sockets {
        assert!(receive(socket) == video[..LENGTH]);
    }

    // The link goes while a stream waits for datagrams; none starts without it.
    rig.guest.wait_for("@unplugged", LIMIT).unwrap();
    ip("link set wire0 down");
    rig.step("unplugged").fails(1, &["stream 0: the NIC: the NIC has no link"]);
    rig.step("down").fails(1, &["stream 0: the NIC: the NIC has no link"]);
    ip("link set wire0 up");
    ip("neighbour replace 10.213.0.2 lladdr 02:00:00:00:00:02 dev wire0 nud permanent");
    assert_eq!(rig.step("up").done()["failed"], 0);

    // Every stream's bytes are its own.
    let bytes = data((STREAMS + 1) * LENGTH);
    let of = |stream: usize| &bytes[stream * LENGTH..][..LENGTH];
    rig.guest.wait_for("@stored", LIMIT).unwrap();
    std::thread::scope(|scope| {
        for (stream, sizes) in SIZES.iter().enumerate() {
            // The namespace is inherited.
            scope.spawn(move || send(&format!("10.213.0.2:{}", 6000 + 2 * stream), of(stream), sizes, None));
        }
    });
    let done = rig.step("stored").done();
    assert_eq!((&done["failed"], &done["dropped"]), (&0.into(), &0.into()), "{done}");
    assert_eq!(done["bytes"], STREAMS * LENGTH);
    let expect = |rig: &Rig, blocks: &[&[u8]]| {
        let mut expected = disk.clone();
        for (number, bytes) in blocks.iter().enumerate() {
            let place = &mut expected[(1 + number) * BLOCKS * BLOCK..][..BLOCKS * BLOCK];
            place.fill(0);
            place[..LENGTH].copy_from_slice(bytes);
        }
        assert!(rig.place.read("disk") == expected);
    };
    expect(&rig, &[of(0), of(1), of(2)]);

    rig.guest.wait_for("@rtp", LIMIT).unwrap();
    let header = Header { sequence: 65_500, payload_type: 33, ssrc: 7, ..Header::default() };
    send("10.213.0.2:7000", of(3), &[1316, 3948], Some(header));
    let done = rig.step("rtp").done();
    assert_eq!(
        (&done["failed"], &done["dropped"], &done["lost"]),
        (&0.into(), &0.into(), &0.into()),
        "{done}"
    );
    expect(&rig, &[of(3), of(1), of(2)]);

    rig.guest.wait_for("@readonly", LIMIT).unwrap();
    send("10.213.0.2:6000", &[1; 1000], &[1000], None);
    rig.step("readonly").fails(1, &["stream 0: the SSD", "the medium could not be written"]);
    assert!(rig.place.read("readonly") == video);
    rig.step("silent").fails(1, &["stream 0: the SSD", "stall limit"]);
    rig.step("beyond").fails(2, &["for each of 9 streams"]);
    expect(&rig, &[of(3), of(1), of(2)]);
}

#[test]
fn a_wire_or_a_disk_that_cannot_be_is_refused() {
    let place = Place::new();
    place.write("odd", &[1; 5000]);
    place.run("d2d ssd ssd.sock odd --switch switch --writable").fails(2, &["5000", "truncate"]);
    place.run("d2d nic nic --switch switch").fails(2, &["--udp or --tap"]);
    let done = place.run("d2d nic nic --switch switch --udp 127.0.0.1 --tap wire0");
    assert!(done.code() == 2 && done.stderr().contains("cannot be used with"), "{}", done.stderr());
    // An interface that is no tap device: root is told so, and all others that they may not.
    let done = place.run("d2d nic nic --switch switch --tap lo");
    assert!([2, 6, 7].contains(&done.code()) && done.stderr().contains("--tap lo"), "{}", done.stderr());
    place.run("d2d nic nic --switch switch --tap a-name-of-too-many-letters").fails(2, &["15 letters"]);
    assert_eq!(place.names(), ["odd"]);
}
