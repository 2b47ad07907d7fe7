//! `dcs stream` and `dcs record` with bad input: it is reported, the other streams go on, and late and lost datagrams are counted.

use crate::run::{Done, Place, data};
use crate::stream::{Peer, TICKS, ended, interrupt, video, watch};
use dcs_media::ts::{PACKET, PAYLOAD};
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

#[test]
fn a_command_that_makes_no_sense_is_refused() {
    let place = Place::new();
    place.write("video.ts", &video(100, 0, 900));
    for (rest, words) in [
        ("udp://127.0.0.1:5004 --rate 0", "a rate is from 1 bit"),
        ("udp://127.0.0.1:5004 --rate fast", "not a rate"),
        ("udp://127.0.0.1:5004 --ttl 256", "256"),
        ("udp://127.0.0.1:0", "port 0"),
        ("rtp://127.0.0.1:65535", "port 65535"),
        ("127.0.0.1:5004", "udp://HOST:PORT"),
        ("", "name a file and its destination"),
        ("udp://127.0.0.1:5004 --sdp -", "only rtp://"),
        ("udp://127.0.0.1:5004 --list list.toml", "--list"),
        ("udp://127.0.0.1:5004 --through md6", "md6"),
        ("udp://127.0.0.1:5004 --window 11s", "at most 10 s"),
    ] {
        let done = place.run(&format!("stream video.ts {rest}"));
        assert!(
            done.code() == 2 && done.stderr().contains(words),
            "{rest}: {} {}",
            done.code(),
            done.stderr()
        );
    }
    assert_eq!(place.run("record 127.0.0.1:5004 out").code(), 2);
    let done = place.run("record udp://127.0.0.1:5004 out --window 1h");
    assert!(done.code() == 2 && done.stderr().contains("at most 10 s"), "{}", done.stderr());
    // Sockets of the kernel receive, and nothing else does. NICs that are driven directly send too.
    let (stream, record) = ("stream video.ts udp://127.0.0.1:5004", "record udp://127.0.0.1:5004 out");
    let nic = "--nic 0000:01:00.0";
    for (line, backend, nic, words) in [
        (record, "card", "", "DCS_BACKEND=card"),
        (record, "drive", "", "DCS_BACKEND=drive"),
        (record, "kernel", nic, "--nic 0000:01:00.0"),
        (record, "cart", "", "expected kernel, card or drive"),
        (stream, "cart", "", "expected kernel, card or drive"),
        (stream, "drive", "", "DCS_BACKEND=drive"),
        (stream, "kernel", nic, "--address"),
        (stream, "card", "--nic 0000:01:00.0 --address 10.0.2.15/24", "DCS_CARD_NIC"),
        (stream, "kernel", "--nic eth0 --address 10.0.2.15/24", "not the address of a PCI function"),
    ] {
        let mut command = place.dcs(&format!("{line} {nic}"));
        let output = command.env("DCS_BACKEND", backend).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && said.contains(words), "{line} {backend}: {said}");
    }
    place
        .run(&format!("{stream} --nic 0000:7f:1f.7 --address 10.0.2.15/24"))
        .fails(7, &["no PCI function 0000:7f:1f.7"]);
    let interface = "udp://239.1.1.1:5004 --interface nosuch0";
    let done = place.run(&format!("stream video.ts {interface}"));
    assert!(done.code() != 0 && done.stderr().contains("interface nosuch0"), "{}", done.stderr());
    let done = place.run(&format!("record {interface} out"));
    assert!(done.code() != 0 && done.stderr().contains("239.1.1.1"), "{}", done.stderr());
    place.run("record udp://192.0.2.1:5004 out").fails(3, &["192.0.2.1"]);
    assert_eq!(place.names(), ["video.ts"], "nothing was recorded");
}

#[test]
fn a_file_that_cannot_be_sent_is_said_and_the_next_one_goes_on() {
    let place = Place::new();
    place.write("good.ts", &video(801, 0, 900));
    place.write("noise.ts", &data(20_000));
    // Packets, and no clock; more than a sender keeps.
    let silent: Vec<u8> =
        (0..60_000u32).flat_map(|number| dcs_media::ts::make(5, number as u8, None, 1)).collect();
    place.write("silent.ts", &silent);
    place.write("short.ts", &silent[..100 * PACKET]);
    for (wrong, code, words) in [
        ("noise.ts", 5, "not an MPEG transport stream"),
        ("silent.ts", 5, "no clock (PCR)"),
        ("short.ts", 5, "short.ts -> "),
        ("short.ts", 5, "no clock (PCR)"),
        ("missing.ts", 7, "missing.ts"),
    ] {
        let peer = Peer::new();
        let line = format!("stream {wrong} good.ts udp://127.0.0.1:{} --json", peer.port);
        let sender = place.dcs(&line).spawn().unwrap();
        // What was taken of a file before it was refused may come first: the good one is heard to its end.
        let good = place.read("good.ts");
        let end = &good[good.len() - good.len() % PAYLOAD..];
        while !peer.datagram().ends_with(end) {}
        let (done, last) = ended(sender);
        assert_eq!(done.code(), code, "{}", done.stderr());
        assert!(done.stderr().contains(words), "{wrong}: {}", done.stderr());
        let told = &last["channels"][0];
        assert_eq!((told["files_sent"].clone(), told["files_failed"].clone()), (1.into(), 1.into()));
    }
}

#[test]
fn an_empty_file_is_said_and_not_begun_again_and_again() {
    let place = Place::new();
    place.write("good.ts", &video(801, 0, 900));
    place.write("empty.ts", b"");
    let peer = Peer::new();
    let line = |rest: &str| format!("stream {rest} udp://127.0.0.1:{} --json", peer.port);
    let (done, last) = ended(place.dcs(&line("empty.ts --loop=1000")).spawn().unwrap());
    assert_eq!(done.code(), 5, "{}", done.stderr());
    assert!(done.stderr().contains("empty.ts"), "{}", done.stderr());
    let told = &last["channels"][0];
    assert_eq!(told["files_sent"], 0);
    // One joins the other in flight.
    assert!(told["files_failed"].as_u64().unwrap() <= 2, "{told}");
    let sender = place.dcs(&line("empty.ts good.ts")).spawn().unwrap();
    assert!(peer.datagrams(0, 801 * PACKET).concat() == place.read("good.ts"));
    let (done, last) = ended(sender);
    assert_eq!(done.code(), 5, "{}", done.stderr());
    let told = &last["channels"][0];
    assert_eq!((told["files_sent"].clone(), told["files_failed"].clone()), (1.into(), 1.into()));
}

#[test]
fn metrics_that_cannot_be_written_are_said_once_and_the_stream_goes_on() {
    let place = Place::new();
    // A second and a half: they are to be written in its midst, and at its end.
    let bytes = video(8000, 0, 900);
    place.write("video.ts", &bytes);
    let peer = Peer::new();
    let line = format!("stream video.ts udp://127.0.0.1:{} --metrics nowhere/metrics.prom", peer.port);
    let sender = place.dcs(&line).spawn().unwrap();
    assert!(peer.datagrams(0, bytes.len()).concat() == bytes);
    let done = Done(sender.wait_with_output().unwrap()).ok();
    assert_eq!(done.stderr().matches("nowhere/metrics.prom").count(), 1, "{}", done.stderr());
}

#[test]
fn a_clock_that_jumps_is_counted_and_every_packet_sent() {
    let place = Place::new();
    let bytes = [video(400, 0, 900), video(400, 6, 90_000_000_000), video(400, 12, 900)].concat();
    place.write("video.ts", &bytes);
    let peer = Peer::new();
    let sender = place.dcs(&format!("stream video.ts udp://127.0.0.1:{}", peer.port)).spawn().unwrap();
    assert!(peer.datagrams(0, bytes.len()).concat() == bytes);
    let done = Done(sender.wait_with_output().unwrap()).ok();
    assert!(done.stderr().contains("2 jumps of the clock"), "{}", done.stderr());
}

#[test]
fn what_is_no_packet_is_left_out_and_counted() {
    let place = Place::new();
    let (before, after) = (video(400, 0, 900), video(400, 6, 900 + 400 * TICKS));
    place.write("video.ts", &[&before[..], &[0xff; 100], &after].concat());
    let peer = Peer::new();
    let sender = place.dcs(&format!("stream video.ts udp://127.0.0.1:{} --json", peer.port)).spawn().unwrap();
    let heard = peer.datagrams(0, before.len() + after.len()).concat();
    assert!(heard == [before, after].concat());
    watch(&heard);
    let (done, last) = ended(sender);
    done.ok();
    assert_eq!(last["total"]["skipped"], 100);
}

#[test]
fn a_disk_that_is_too_slow_puts_the_stream_off_and_that_is_counted() {
    let place = Place::new();
    let bytes = video(2000, 0, 900);
    let pipe = place.path("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let peer = Peer::new();
    let sender = place.dcs(&format!("stream pipe udp://127.0.0.1:{} --json", peer.port)).spawn().unwrap();
    let mut disk = std::fs::File::options().write(true).open(&pipe).unwrap();
    let (first, rest) = bytes.split_at(1000 * PACKET);
    disk.write_all(first).unwrap();
    // Till the last clock reference there is a time for all of it: 960 packets.
    let mut heard = peer.datagrams(0, 960 / 7 * 7 * PACKET).concat();
    // Too slow, whatever else the machine does: a stream is delayed if its bytes are late by a quarter of a second.
    std::thread::sleep(Duration::from_millis(400));
    disk.write_all(rest).unwrap();
    drop(disk);
    heard.extend(peer.datagrams(0, bytes.len() - heard.len()).concat());
    assert!(heard == bytes, "and nothing is left out");
    let (done, last) = ended(sender);
    done.ok();
    assert!(last["total"]["slips"].as_u64().unwrap() >= 1, "{last}");
    assert!(last["total"]["slipped_ms"].as_f64().unwrap() > 250.0, "{last}");
}

#[test]
fn channels_of_a_list_that_cannot_be_are_said_and_the_others_go_on() {
    let place = Place::new();
    place.write("video.ts", &video(2000, 0, 900));
    place.write("noise.ts", &data(20_000));
    nix::unistd::mkfifo(&place.path("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let peer = Peer::new();
    let channel = |name: &str, rest: &str| {
        format!("[{name}]\nto='udp://127.0.0.1:{}'\nloop=true\n{rest}\n", Peer::new().port)
    };
    let list = [
        format!("[good]\nto='udp://127.0.0.1:{}'\nfiles=['video.ts']\nloop=true\n", peer.port),
        channel("nothing", "files=['video.ts']\nrate='0'"),
        channel("speedy", "files=['video.ts']\nspeed=2"),
        channel("noise", "files=['noise.ts']"),
        channel("missing", "files=['missing.ts']"),
        channel("waiting", "files=['pipe']"),
        channel("nowhere", "files=['video.ts']\ninterface='nosuch0'").replace("127.0.0.1", "239.1.1.1"),
    ];
    place.write("list.toml", list.concat().as_bytes());
    let sender = place.dcs("stream --list list.toml --json").spawn().unwrap();
    let heard = peer.datagrams(0, 700 * 7 * PACKET).concat();
    assert_eq!(watch(&heard), 2, "the good one begins again and again");
    interrupt(&sender);
    let (done, last) = ended(sender);
    let said = done.stderr();
    for words in
        ["[nothing]: ", "[speedy]: unknown field", "noise.ts", "missing.ts", "pipe: a pipe", "[nowhere]: "]
    {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert_eq!(done.code(), 0);
    for told in last["channels"].as_array().unwrap() {
        let failed = told["files_failed"].as_u64().unwrap();
        // One joins the other in flight: each is said, and none tried again.
        let most = if told["channel"] == "good" { 0 } else { 2 };
        assert!(failed.min(1) == most.min(1) && failed <= most, "{told}");
    }
}

/// Takes an interface down and up again, in a network of its own, while a stream runs: a TUN device, whose
/// datagrams are read as IP packets.
const LINK: &str = r#"
import fcntl, os, re, select, signal, socket, struct, subprocess, sys, time
def ioctl(number, *rest):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        fcntl.ioctl(s, number, struct.pack("16s" + rest[0], b"wire", *rest[1:]))
tun = os.open("/dev/net/tun", os.O_RDWR)
fcntl.ioctl(tun, 0x400454CA, struct.pack("16sH22x", b"wire", 0x1001))
address = lambda text: (socket.AF_INET, 0, socket.inet_aton(text))
ioctl(0x8916, "HH4s8x", *address("10.9.9.1"))
ioctl(0x891C, "HH4s8x", *address("255.255.255.0"))
link = lambda up: ioctl(0x8914, "H14x", 1 if up else 0)
def video():
    # Neighbour discovery goes there too.
    while select.select([tun], [], [], 30)[0]:
        packet = os.read(tun, 2000)
        if packet[0] == 0x45 and packet[9] == 17: return len(packet)
    sys.exit("nothing comes")
link(True)
sender = subprocess.Popen([sys.argv[1], "stream", "video.ts", "udp://10.9.9.2:5004", "--loop", "--metrics", "m"],
    stderr=subprocess.PIPE, text=True)
assert video() == 28 + 1316
link(False)
def lost():
    try: found = re.search(r"dcs_stream_lost_total{.*} (\d+)", open("m").read())
    except FileNotFoundError: return 0
    return int(found.group(1)) if found else 0
while lost() == 0: time.sleep(0.01)
while select.select([tun], [], [], 0)[0]: os.read(tun, 2000)
link(True)
for _ in range(500): assert video() == 28 + 1316
sender.send_signal(signal.SIGINT)
said = sender.communicate()[1]
assert sender.returncode == 0, sender.returncode
assert re.search(r" [1-9]\d* lost;.*; the network: Network is (unreachable|down)", said), said
"#;

#[test]
fn a_link_that_goes_is_counted_and_the_stream_goes_on_when_it_is_back() {
    let place = Place::new();
    let own = |program: &str| {
        let mut command = Command::new("unshare");
        command.args(["--net", program]).current_dir(place.path(""));
        command
    };
    if !own("true").status().is_ok_and(|status| status.success()) || !Path::new("/dev/net/tun").exists() {
        return println!("skipped: a network of its own needs root, unshare and /dev/net/tun");
    }
    place.write("video.ts", &video(2000, 0, 900));
    let output = own("python3").args(["-c", LINK, crate::PROGRAM]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
