//! ffmpeg, unmodified, at the other end of `dcs stream` and `dcs record`: it decodes each frame, and says
//! what it misses. It is the one of the path, or that of the Python package imageio-ffmpeg, which brings one.

use crate::run::{Done, Place};
use crate::stream::{Peer, ended, recording};
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
