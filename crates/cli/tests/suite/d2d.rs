//! `dcs d2d`: an SSD and a NIC in processes of their own beside a stock guest, whose driver writes their registers
//! and sleeps while 120 videos go out. Every byte is compared here; where ffmpeg is there the video is real, and
//! decoded as it came out of each stream. The guest is skipped, with the reason, where no virtual server is
//! available.

use crate::guest::{LIMIT, Rig};
use crate::run::Place;
use crate::stream::{Peer, video};
use crate::stream_peers::{decode, ffmpeg, make_video, run};
use dcs_vm::Machine;
use dcs_vm::tools::Flavour;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Child, Stdio};
use std::thread::JoinHandle;

const STREAMS: u16 = 120;
/// Bits a second of each, and frames of the real video: ten seconds.
const RATE: u64 = 1_700_000;
const FRAMES: u64 = 250;
/// The time over which interrupts and processor time are counted, in seconds.
const COUNTED: u64 = 5;

/// A function's process, which listens when this returns. Dropping it ends it.
pub struct Function(Child);

impl Function {
    pub fn start(place: &Place, line: &str) -> Function {
        let mut child = place.dcs(&format!("d2d {line} --json")).stdout(Stdio::piped()).spawn().unwrap();
        let mut said = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut said).unwrap();
        let said: Value = serde_json::from_str(&said).unwrap();
        assert_eq!(said["event"], "listening");
        Function(child)
    }
}

impl Drop for Function {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Sockets at every second port from one on, and that port.
fn receivers() -> (Vec<UdpSocket>, u16) {
    loop {
        let Peer { socket, port, .. } = Peer::new();
        let others = (1..STREAMS).map(|n| Some(Peer::at(port.checked_add(2 * n)?).ok()?.0));
        if let Some(others) = others.collect::<Option<Vec<_>>>() {
            return ([socket].into_iter().chain(others).collect(), port);
        }
    }
}

/// Receives a video of this many bytes, whatever they are.
fn receive(socket: UdpSocket, length: usize) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        // The guest boots first.
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        let (mut bytes, mut datagram) = (Vec::with_capacity(length), [0; 2000]);
        while bytes.len() < length {
            let Ok(count) = socket.recv(&mut datagram) else { break };
            bytes.extend_from_slice(&datagram[..count]);
        }
        bytes
    })
}

const SCRIPT: &str = r#"
find() { for d in /sys/bus/pci/devices/*; do [ "$(cat $d/vendor) $(cat $d/device)" = "0xdc51 $1" ] && echo ${d##*/}; done; }
SSD=$(find 0x0003); NIC=$(find 0x0004)
interrupts() { awk '/vfio/ { n += $2 } END { print n + 0 }' /proc/interrupts; }
switches() { cat /proc/$1/task/*/status | awk '/ctxt_switches/ { n += $2 } END { print n }'; }
step swapped dcs d2d stream $NIC $SSD udp://10.0.2.2:PORT --length LENGTH --rate RATE
step beyond dcs d2d stream $SSD $NIC udp://10.0.2.2:PORT --length 1TiB --rate RATE
step many dcs d2d stream $SSD $NIC udp://10.0.2.2:PORT --length 1 --rate RATE --streams 129
echo "@idle"; sleep COUNTED; echo "@idled"
dcs d2d stream $SSD $NIC udp://10.0.2.2:PORT --length LENGTH --rate RATE --streams STREAMS --json >/tmp/said 2>&1 & DRIVER=$!
until grep -q streaming /tmp/said || ! [ -d /proc/$DRIVER ]; do sleep 0.1; done
sleep 0.5
BEFORE="$(interrupts) $(switches $DRIVER)"; echo "@begin"
sleep COUNTED
echo "@over"
[ -d /proc/$DRIVER ] || cat /tmp/said
echo "@counted $BEFORE $(interrupts) $(switches $DRIVER)"
# Stopped, it keeps its interrupt: the first end is counted, as all would have been.
kill -STOP $DRIVER
for i in $(seq 600); do [ "$(interrupts)" -gt 0 ] && break; sleep 0.1; done
echo "@ended $(interrupts)"
kill -CONT $DRIVER
wait $DRIVER; CODE=$?
step stream sh -c "cat /tmp/said; exit $CODE"
step again dcs d2d stream $SSD $NIC rtp://10.0.2.2:PORT --length 13160 --rate free --json
rm /tmp/said
dcs d2d stream $SSD $NIC udp://10.0.2.2:PORT --length LENGTH --rate 0.1M --stall 1s >/tmp/said 2>&1 & DRIVER=$!
until grep -q "streams run" /tmp/said || ! [ -d /proc/$DRIVER ]; do sleep 0.1; done
echo "@lost"
# The kernel takes a minute to let go of a function that does not answer: that is not waited for.
until grep -q "has gone" /tmp/said || ! [ -d /proc/$DRIVER ]; do sleep 0.1; done
step lost grep "a function has gone" /tmp/said
"#;

/// CPU time of QEMU's thread that is the guest's processor, in seconds.
fn processor(qemu: u32) -> f64 {
    let threads = std::fs::read_dir(format!("/proc/{qemu}/task")).unwrap();
    let text = |path: &Path, name: &str| std::fs::read_to_string(path.join(name)).unwrap_or_default();
    let mut threads = threads.map(|thread| thread.unwrap().path());
    let thread = threads.find(|thread| text(thread, "comm").starts_with("CPU 0")).expect("it has a name");
    let nanos = text(&thread, "schedstat").split(' ').next().and_then(|first| first.parse::<f64>().ok());
    nanos.unwrap() / 1e9
}

#[test]
fn a_guest_sleeps_while_its_ssd_sends_120_videos_to_its_nic() {
    let place = Place::new();
    let ffmpeg = ffmpeg();
    match &ffmpeg {
        Some(ffmpeg) => make_video(ffmpeg, &place, FRAMES),
        None => drop(place.write("video.ts", &video(11_000, 0, 900))),
    }
    let bytes = place.read("video.ts");
    let _nic = Function::start(&place, "nic nic.sock --switch switch.sock --udp 127.0.0.1");
    let ssd = Function::start(&place, "ssd ssd.sock video.ts --switch switch.sock");
    let (sockets, port) = receivers();
    let first = sockets[0].try_clone().unwrap();
    let received: Vec<_> = sockets.into_iter().map(|socket| receive(socket, bytes.len())).collect();
    let machine = Machine::new().memory(512).limit(3 * LIMIT).iommu();
    // The processor's thread is found by its name.
    let machine = machine.arguments(["-name", "dcs,debug-threads=on"]);
    let machine = machine.card(&place.path("ssd.sock")).card(&place.path("nic.sock"));
    let values = [("PORT", port.into()), ("LENGTH", bytes.len() as u64), ("RATE", RATE)];
    let values = values.into_iter().chain([("STREAMS", STREAMS.into()), ("COUNTED", COUNTED)]);
    let script =
        values.fold(SCRIPT.to_string(), |script, (name, value)| script.replace(name, &value.to_string()));
    let modules = ["vfio-pci", "vfio_iommu_type1"];
    let Some(mut rig) = Rig::boot(place, machine, (Flavour::Cloud, &modules), &script) else { return };
    rig.step("swapped").fails(2, &["the SSD comes first"]);
    rig.step("beyond").fails(2, &["blocks"]);
    rig.step("many").fails(2, &["the functions have 128"]);

    let mut used = |from: &str, to: &str| {
        rig.guest.wait_for(from, LIMIT).unwrap();
        let before = processor(rig.guest.id());
        rig.guest.wait_for(to, LIMIT).unwrap();
        processor(rig.guest.id()) - before
    };
    let (idle, busy) = (used("@idle", "@idled"), used("@begin", "@over"));
    let said = rig.guest.wait_for("@counted", LIMIT).unwrap();
    println!(
        "guest's processor in {COUNTED} s: {idle:.3} s idle, {busy:.3} s with {STREAMS} streams; {said}"
    );
    let counted: Vec<u64> = said.split_whitespace().map(|number| number.parse().unwrap()).collect();
    assert_eq!(counted[0], counted[2], "no interrupt of the functions");
    assert_eq!(counted[1], counted[3], "the driver sleeps");
    assert!(busy < 2.0 * idle + 0.1 * COUNTED as f64, "the processor has nothing to do with it");

    let ended = rig.guest.wait_for("@ended", LIMIT).unwrap();
    assert_ne!(ended.trim(), "0", "interrupts of the functions are counted");

    let done = rig.step("stream").done();
    assert_eq!((done["streams"].clone(), done["failed"].clone()), (STREAMS.into(), 0.into()));
    assert_eq!(done["bytes"], bytes.len() as u64 * u64::from(STREAMS));
    assert!(done["woken"].as_u64().unwrap() <= STREAMS.into(), "at most by each stream's end: {done}");
    for (stream, received) in received.into_iter().enumerate() {
        let came = received.join().unwrap();
        assert!(came == bytes, "stream {stream}: {} bytes of {}", came.len(), bytes.len());
        if let Some(ffmpeg) = &ffmpeg {
            rig.place.write("came.ts", &came);
            assert_eq!(decode(run(ffmpeg, &rig.place, "-i came.ts")), FRAMES, "stream {stream}");
        }
    }
    rtp(&first, &bytes);
    assert_eq!(rig.step("again").done()["packets"], 10);
    rig.guest.wait_for("@lost", LIMIT).unwrap();
    drop(ssd);
    rig.step("lost").ok();
}

/// Ten packets of RTP, with its header.
fn rtp(socket: &UdpSocket, bytes: &[u8]) {
    for number in 0..10u16 {
        let mut datagram = [0; 2000];
        let length = socket.recv(&mut datagram).unwrap();
        let (header, payload) = dcs_media::rtp::Header::parse(&datagram[..length]).unwrap();
        assert_eq!((header.sequence, header.payload_type, header.ssrc), (number, 33, 1));
        assert!(payload == &bytes[usize::from(number) * 1316..][..1316]);
    }
}

#[test]
fn functions_that_cannot_be_are_refused() {
    let place = Place::new();
    place.write("empty.ts", b"");
    place.run("d2d ssd ssd.sock missing.ts --switch switch").fails(7, &["missing.ts"]);
    place.run("d2d ssd ssd.sock empty.ts --switch switch").fails(2, &["empty.ts"]);
    place.run("d2d nic no/folder/nic --switch switch --udp 127.0.0.1").fails(7, &["no/folder/nic"]);
    let done = place.run("d2d nic nic --switch switch --udp 127.0.0.1 --streams 0");
    assert!(done.code() == 2 && done.stderr().contains("1 to 4096"), "{}", done.stderr());
    let stream = "d2d stream 0000:ff:1f.7 0000:ff:1f.6 udp://10.0.2.2:5004 --length 1MiB";
    place.run(&format!("{stream} --rate pcr")).fails(2, &["--rate pcr"]);
    place.run("d2d stream a b udp://10.0.2.2:65000 --length 1 --rate 1M --streams 1000").fails(2, &["ports"]);
    let done = place.run(&format!("{stream} --rate 1M"));
    assert!(done.code() != 0 && done.stderr().contains("dcs doctor"), "{}", done.stderr());
    assert_eq!(place.names(), ["empty.ts"]);
}
