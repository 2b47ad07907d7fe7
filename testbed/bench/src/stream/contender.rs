//! The programs that send videos, and their command lines.

use super::RATE;
use super::video::Video;
use crate::command;
use crate::failure::Failure;
use crate::harness::contender::Named;
use std::fmt::Write;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contender {
    Dcs,
    DcsOrdinary,
    Ffmpeg,
    FfmpegBitrate,
    Multicat,
    Tsp,
    Gst,
    Vlc,
}

impl Named for Contender {
    const ALL: &'static [(Contender, &'static str, &'static str)] = &[
        (Contender::Dcs, "dcs", "dcs stream --list, with real-time priority if permitted"),
        (Contender::DcsOrdinary, "dcs-ordinary", "dcs stream --list --realtime off"),
        (Contender::Ffmpeg, "ffmpeg", "ffmpeg -re -c copy"),
        (Contender::FfmpegBitrate, "ffmpeg-bitrate", "the same with bitrate and burst_bits"),
        (Contender::Multicat, "multicat", "multicat -U, after ingests"),
        (Contender::Tsp, "tsp", "TSDuck: -P regulate -O ip"),
        (Contender::Gst, "gst", "GStreamer: tsparse ! udpsink"),
        (Contender::Vlc, "vlc", "VLC: standard{access=udp,mux=ts}"),
    ];
}

impl Contender {
    /// Returns true if one process sends all videos.
    pub fn is_ours(self) -> bool {
        matches!(self, Contender::Dcs | Contender::DcsOrdinary)
    }

    fn program(self) -> &'static str {
        match self {
            Contender::Dcs | Contender::DcsOrdinary => "dcs",
            Contender::Ffmpeg | Contender::FfmpegBitrate => "ffmpeg",
            Contender::Multicat => "multicat",
            Contender::Tsp => "tsp",
            Contender::Gst => "gst-launch-1.0",
            Contender::Vlc => "cvlc",
        }
    }
}

/// Paths of the programs.
pub struct Programs {
    dcs: PathBuf,
    pub ffmpeg: Option<PathBuf>,
}

/// Sending processes. Dropping this ends them.
pub struct Senders(Vec<Child>);

impl Programs {
    pub fn find() -> Result<Programs, Failure> {
        Ok(Programs { dcs: command::find()?, ffmpeg: ffmpeg() })
    }

    /// Returns the reason why a program cannot be measured, if there is one.
    pub fn missing(&self, one: Contender) -> Option<String> {
        let is_there = match one.program() {
            "dcs" => true,
            "ffmpeg" => self.ffmpeg.is_some(),
            name => in_path(name),
        };
        (!is_there).then(|| format!("{} is not installed", one.program()))
    }

    /// Starts this many streams, ours with that window: the first to a port each, the rest to the last port.
    pub fn start(
        &self,
        one: Contender,
        (streams, window): (usize, &str),
        ports: &[u16],
        video: &Video,
    ) -> io::Result<Senders> {
        let port = |number: usize| ports[number.min(ports.len() - 1)];
        let mut senders = Senders(Vec::new());
        if one.is_ours() {
            let list = video.path.with_extension("toml");
            std::fs::write(&list, channels(streams, port, &video.path))?;
            let realtime = if one == Contender::Dcs { "auto" } else { "off" };
            let mut command = Command::new(&self.dcs);
            command
                .args(["stream", "--quiet", "--realtime", realtime, "--window", window, "--list"])
                .arg(&list);
            senders.0.push(spawn(command)?);
            return Ok(senders);
        }
        if one == Contender::Multicat {
            // The program's index of the file.
            let done = Command::new("ingests").args(["-p", "256"]).arg(&video.path).output()?;
            if !done.status.success() {
                return Err(io::Error::other(String::from_utf8_lossy(&done.stderr).into_owned()));
            }
        }
        for number in 0..streams {
            senders.0.push(spawn(self.one(one, port(number), &video.path))?);
        }
        Ok(senders)
    }

    /// Returns the command for one video.
    fn one(&self, one: Contender, port: u16, video: &Path) -> Command {
        let file = video.display();
        let ffmpeg = |rest: &str| {
            format!(
                "-nostdin -v error -re -stream_loop -1 -i {file} -map 0 -c copy -muxrate {RATE} -f mpegts \
                 udp://127.0.0.1:{port}?pkt_size=1316{rest}"
            )
        };
        let line = match one {
            Contender::Dcs | Contender::DcsOrdinary | Contender::Ffmpeg => ffmpeg(""),
            Contender::FfmpegBitrate => ffmpeg(&format!("&bitrate={RATE}&burst_bits=10528")),
            Contender::Multicat => format!("-U {file} 127.0.0.1:{port}"),
            Contender::Tsp => format!(
                "-I file --infinite {file} -P regulate --bitrate {RATE} -O ip --packet-burst 7 127.0.0.1:{port}"
            ),
            Contender::Gst => format!(
                "-q filesrc location={file} ! tsparse set-timestamps=true alignment=7 ! udpsink host=127.0.0.1 port={port}"
            ),
            Contender::Vlc => {
                format!("-I dummy --repeat {file} --sout #standard{{access=udp,mux=ts,dst=127.0.0.1:{port}}}")
            }
        };
        let program = match (one.program(), &self.ffmpeg) {
            ("ffmpeg", Some(path)) => path.clone(),
            (name, _) => name.into(),
        };
        let mut command = Command::new(program);
        command.args(line.split_whitespace());
        command
    }
}

impl Senders {
    pub fn iter(&self) -> impl Iterator<Item = &Child> {
        self.0.iter()
    }

    /// Ends the processes, and returns the messages of the first one.
    pub fn end(mut self) -> String {
        self.kill();
        let mut said = String::new();
        if let Some(mut stderr) = self.0.first_mut().and_then(|child| child.stderr.take()) {
            let _ = stderr.read_to_string(&mut said);
        }
        said.trim().to_string()
    }

    fn kill(&mut self) {
        self.0.iter_mut().for_each(|child| _ = child.kill());
        self.0.iter_mut().for_each(|child| _ = child.wait());
    }
}

impl Drop for Senders {
    fn drop(&mut self) {
        self.kill();
    }
}

fn spawn(mut command: Command) -> io::Result<Child> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()
}

/// Returns the list for `dcs stream`.
fn channels(streams: usize, port: impl Fn(usize) -> u16, video: &Path) -> String {
    let mut list = String::new();
    for number in 0..streams {
        let (port, file) = (port(number), video.display());
        let _ = write!(list, "[c{number}]\nto='udp://127.0.0.1:{port}'\nfiles=['{file}']\nloop=true\n");
    }
    list
}

fn in_path(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(name).is_file())
}

/// Returns the path of ffmpeg: from the environment, the path, or the Python package imageio-ffmpeg.
fn ffmpeg() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("FFMPEG") {
        return Some(path.into());
    }
    if in_path("ffmpeg") {
        return Some("ffmpeg".into());
    }
    let script = "import imageio_ffmpeg;print(imageio_ffmpeg.get_ffmpeg_exe())";
    let found = Command::new("python3").args(["-c", script]).output().ok()?;
    let path = String::from_utf8(found.stdout).ok()?;
    Some(PathBuf::from(path.trim())).filter(|path| path.is_file())
}
