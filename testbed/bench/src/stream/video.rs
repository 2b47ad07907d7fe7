//! The file that is sent: a transport stream of a constant rate.

use super::RATE;
use super::contender::Programs;
use crate::failure::{Exit, Failure};
use crate::harness::folder::Folder;
use dcs_media::ts;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Length in seconds; programs repeat it.
const SECONDS: u64 = 20;
/// Packets from one clock reference to the next: 24 ms.
const CLOCKED: u64 = 125;

/// Contents of a video that is made without ffmpeg.
const WITHOUT_PICTURES: &str = "packets without pictures";

pub struct Video {
    pub path: PathBuf,
    /// Description of the contents.
    pub what: &'static str,
}

impl Video {
    /// True unless it was made without ffmpeg.
    pub fn has_pictures(&self) -> bool {
        self.what != WITHOUT_PICTURES
    }

    pub fn make(given: Option<&Path>, folder: &Folder, programs: &Programs) -> Result<Video, Failure> {
        if let Some(path) = given {
            let path = path.canonicalize().map_err(|error| Failure::io(path.display(), &error))?;
            return Ok(Video { path, what: "a file of yours" });
        }
        let path = folder.path().join("video.ts");
        match &programs.ffmpeg {
            Some(ffmpeg) => encode(ffmpeg, &path).map(|()| Video { path, what: "MPEG-2, 720x480" }),
            None => {
                packets(&path).map_err(|error| Failure::io(path.display(), &error))?;
                Ok(Video { path, what: WITHOUT_PICTURES })
            }
        }
    }
}

fn encode(ffmpeg: &Path, path: &Path) -> Result<(), Failure> {
    let line = format!(
        "-nostdin -v error -f lavfi -i testsrc2=s=720x480:r=30 -f lavfi -i sine -t {SECONDS} -c:v mpeg2video -b:v 7M \
         -minrate 7M -maxrate 7M -bufsize 2M -c:a mp2 -muxrate {RATE} -f mpegts"
    );
    let mut command = Command::new(ffmpeg);
    command.args(line.split_whitespace()).arg(path).stdin(Stdio::null());
    let output = command.output().map_err(|error| Failure::io(ffmpeg.display(), &error))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_string();
    Err(Failure::new(Exit::Failed, format!("{}: {said}", ffmpeg.display())))
}

/// Writes packets of one PID, with its clock.
fn packets(path: &Path) -> std::io::Result<()> {
    let mut file = BufWriter::new(std::fs::File::create(path)?);
    let bits = (ts::PACKET * 8) as u64;
    let mut counter = 0;
    for number in 0..SECONDS * RATE / bits {
        let clock = number.is_multiple_of(CLOCKED).then(|| number * bits * ts::CLOCK / RATE);
        counter = (counter + u8::from(clock.is_none())) & 15;
        file.write_all(&ts::make(0x100, counter, clock, number as u8))?;
    }
    file.flush()
}
