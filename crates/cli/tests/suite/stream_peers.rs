//! ffmpeg, unmodified, at the other end of `dcs stream` and `dcs record`: it decodes each frame, and reports missing data. It is the one
//! in the path, or that of the Python package imageio-ffmpeg. And Wireshark's dissectors (tshark), which read what was sent.

use crate::run::{Done, Place};
use crate::stream::{Peer, ended, recording, video};
use dcs_media::ts::PACKET;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Frames of the video, at 25 a second.
const FRAMES: u64 = 75;

/// ffmpeg, or why there is none.
pub fn ffmpeg() -> Option<PathBuf> {
    let works =
        |path: &Path| Command::new(path).arg("-version").output().is_ok_and(|done| done.status.success());
    let asked = std::env::var_os("FFMPEG").map(PathBuf::from);
    let package = || {
        let script = "import imageio_ffmpeg;print(imageio_ffmpeg.get_ffmpeg_exe())";
        let found = Command::new("python3").args(["-c", script]).output().ok()?;
        Some(PathBuf::from(String::from_utf8(found.stdout).ok()?.trim()))
    };
    let found = [asked, Some("ffmpeg".into()), package()].into_iter().flatten().find(|path| works(path));
    if found.is_none() {
        println!("skipped: there is no ffmpeg: pip install imageio-ffmpeg, or FFMPEG=PATH");
        assert!(std::env::var("DCS_CLIENTS").as_deref() != Ok("demand"), "there is no ffmpeg");
    }
    found
}

pub fn run(program: &Path, place: &Place, line: &str) -> Command {
    let mut command = Command::new(program);
    command.current_dir(place.path("")).args(["-nostdin", "-v", "error"]).args(line.split_whitespace());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// MPEG-2 video and MPEG audio at a constant rate, as broadcast.
pub fn make_video(program: &Path, place: &Place, frames: u64) {
    let line = format!(
        "-f lavfi -i testsrc2=s=352x288:r=25 -f lavfi -i sine -frames:v {frames} -shortest -c:v mpeg2video -b:v 1M \
         -c:a mp2 -muxrate 1700000 -f mpegts video.ts"
    );
    Done(run(program, place, &line).output().unwrap()).ok();
}

/// Decodes it all; tells the number of frames.
pub fn decode(mut command: Command) -> u64 {
    // A clock that begins anew is no fault; times are those of the frames' numbers.
    command.args("-map 0:v -vf setpts=N/25/TB -f null -progress - -".split(' '));
    let done = Done(command.output().unwrap()).ok();
    assert_eq!(done.stderr(), "", "ffmpeg misses nothing");
    let frames = done.stdout();
    let frames = frames.lines().filter_map(|line| line.strip_prefix("frame=")).next_back();
    frames.expect("it tells of frames").trim().parse().unwrap()
}

#[test]
fn ffmpeg_plays_what_is_sent_by_its_description() {
    let Some(ffmpeg) = ffmpeg() else { return };
    let place = Place::new();
    make_video(&ffmpeg, &place, FRAMES);
    let whole = decode(run(&ffmpeg, &place, "-i video.ts"));
    assert_eq!(whole, FRAMES);
    // It listens at these ports; what describes them is written by a stream that goes nowhere.
    let port = Peer::new().port;
    let line = format!("stream video.ts rtp://127.0.0.1:{port} --sdp video.sdp --rate 1G");
    place.run(&line).ok();
    let player = std::thread::scope(|scope| {
        let line =
            "-protocol_whitelist file,udp,rtp -reorder_queue_size 0 -i video.sdp -c copy -f mpegts played.ts";
        let player = run(&ffmpeg, &place, line).spawn().unwrap();
        let row = format!("0100007F:{port:04X} ");
        let any = format!("00000000:{port:04X} ");
        let bound = |text: String| text.contains(&row) || text.contains(&any);
        while !bound(std::fs::read_to_string("/proc/net/udp").unwrap()) {
            std::thread::yield_now();
        }
        let player = scope.spawn(move || Done(player.wait_with_output().unwrap()));
        place.run(&format!("stream video.ts rtp://127.0.0.1:{port} --loop=2")).ok();
        // It ends by the goodbye.
        player.join().unwrap()
    });
    let player = player.ok();
    assert_eq!(player.stderr(), "", "ffmpeg misses nothing");
    // A frame ends where the next one begins: by a goodbye it forgets the last one.
    assert_eq!(decode(run(&ffmpeg, &place, "-i played.ts")), 2 * FRAMES - 1);
}

#[test]
fn what_is_sent_twice_and_recorded_has_every_frame_twice() {
    let Some(ffmpeg) = ffmpeg() else { return };
    let place = Place::new();
    make_video(&ffmpeg, &place, FRAMES);
    let (recorder, port) = recording(&place, "rtp", "out.ts --idle 2s --json");
    place.run(&format!("stream video.ts rtp://127.0.0.1:{port} --loop=2")).ok();
    let (done, last) = ended(recorder);
    done.ok();
    assert_eq!(last["lost"], 0);
    assert_eq!(decode(run(&ffmpeg, &place, "-i out.ts")), 2 * FRAMES);
}

#[test]
fn what_ffmpeg_sends_is_recorded_and_decoded() {
    let Some(ffmpeg) = ffmpeg() else { return };
    let place = Place::new();
    make_video(&ffmpeg, &place, FRAMES);
    for (scheme, format) in [("udp", "mpegts"), ("rtp", "rtp_mpegts")] {
        let (recorder, port) = recording(&place, scheme, "out.ts --idle 2s --json");
        let query = if scheme == "udp" { "?pkt_size=1316" } else { "" };
        let line = format!("-re -i video.ts -map 0 -c copy -f {format} {scheme}://127.0.0.1:{port}{query}");
        Done(run(&ffmpeg, &place, &line).output().unwrap()).ok();
        let (done, last) = ended(recorder);
        done.ok();
        assert_eq!(last["lost"], 0);
        assert_eq!(decode(run(&ffmpeg, &place, "-i out.ts")), FRAMES, "{scheme}");
    }
}

/// Makes a capture of datagrams: pcap with raw IPv4 packets (LINKTYPE_RAW), from their ports and payloads.
fn capture(datagrams: &[(u16, Vec<u8>)]) -> Vec<u8> {
    let words = [0xa1b2_c3d4u32, 0x0004_0002, 0, 0, 65_535, 101];
    let mut file: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    for (number, (port, payload)) in datagrams.iter().enumerate() {
        let length = 28 + payload.len() as u32;
        let record = [number as u32, 0, length, length];
        file.extend(record.iter().flat_map(|word| word.to_le_bytes()));
        file.extend([0x45, 0]);
        file.extend((length as u16).to_be_bytes());
        // Neither IPv4's checksum nor UDP's is checked.
        file.extend([0, 0, 0, 0, 64, 17, 0, 0, 127, 0, 0, 1, 127, 0, 0, 1, 0x40, 0]);
        file.extend(port.to_be_bytes());
        file.extend((length as u16 - 20).to_be_bytes());
        file.extend([0, 0]);
        file.extend(payload);
    }
    file
}

/// Has tshark read a capture of RTP, and of reports at the next port. Returns a row for each packet: numbers and types of RTP, the PIDs of
/// its transport stream, types of RTCP, and complaints.
fn dissect(place: &Place, port: u16, datagrams: &[(u16, Vec<u8>)]) -> Vec<[String; 5]> {
    place.write("stream.pcap", &capture(datagrams));
    let mut command = Command::new("tshark");
    command.current_dir(place.path("")).args(["-r", "stream.pcap", "-T", "fields"]);
    for (port, protocol) in [(port, "rtp"), (port + 1, "rtcp")] {
        command.args(["-d", &format!("udp.port=={port},{protocol}")]);
    }
    for field in ["rtp.seq", "rtp.p_type", "mp2t.pid", "rtcp.pt", "_ws.expert.message"] {
        command.args(["-e", field]);
    }
    let done = Done(command.output().unwrap()).ok();
    let row = |line: &str| {
        let mut fields = line.split('\t').map(str::to_owned);
        std::array::from_fn(|_| fields.next().unwrap_or_default())
    };
    done.stdout().lines().map(row).collect()
}

#[test]
fn wireshark_finds_no_fault_in_what_is_sent_again_and_again() {
    if !Command::new("tshark").arg("-v").output().is_ok_and(|done| done.status.success()) {
        return println!("skipped: there is no tshark");
    }
    let place = Place::new();
    let bytes = video(800, 0, 900);
    place.write("video.ts", &bytes);
    let peer = Peer::new();
    let sender =
        place.dcs(&format!("stream video.ts rtp://127.0.0.1:{} --loop=3", peer.port)).spawn().unwrap();
    let sent = peer.datagrams(12, 3 * bytes.len());
    Done(sender.wait_with_output().unwrap()).ok();
    let mut datagrams: Vec<(u16, Vec<u8>)> = sent.into_iter().map(|bytes| (peer.port, bytes)).collect();
    let packets = datagrams.len();
    let is_goodbye = |report: &[u8]| report[report.len() - 8..].starts_with(&[0x81, 203]);
    while datagrams.len() == packets || !datagrams.last().is_some_and(|(_, report)| is_goodbye(report)) {
        let mut report = vec![0; 500];
        let length = peer.reports.recv(&mut report).unwrap();
        datagrams.push((peer.port + 1, report[..length].to_vec()));
    }

    let rows = dissect(&place, peer.port, &datagrams);
    assert_eq!(rows.len(), datagrams.len());
    let (packets, reports) = rows.split_at(packets);
    let first: u16 = packets[0][0].parse().unwrap();
    for (number, [sequence, kind, pids, _, complaints]) in packets.iter().enumerate() {
        assert_eq!(*sequence, first.wrapping_add(number as u16).to_string());
        assert_eq!((kind.as_str(), complaints.as_str()), ("33", ""), "{number}");
        let count = (datagrams[number].1.len() - 12) / PACKET;
        assert_eq!(*pids, ["0x00000100"].repeat(count).join(","));
    }
    // Sender reports with a description of the source, and a goodbye.
    let (goodbye, reports) = reports.split_last().unwrap();
    assert_eq!((goodbye[3].as_str(), goodbye[4].as_str()), ("200,202,203", ""));
    assert!(reports.iter().all(|row| (row[3].as_str(), row[4].as_str()) == ("200,202", "")));

    // It would have noticed a datagram that is missing.
    datagrams.remove(100);
    let complaints = dissect(&place, peer.port, &datagrams).into_iter().map(|row| row[4].clone());
    assert!(complaints.into_iter().any(|complaint| !complaint.is_empty()));
}
