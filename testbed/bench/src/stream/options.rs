//! The command line of `dcs bench stream`.

use crate::units;
use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct Options {
    /// Concurrent videos
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = units::count::<1, 1300>, default_value = "1,120,1000")]
    pub streams: Vec<usize>,
    /// Programs to compare; by default those that are installed
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub contenders: Vec<String>,
    /// Most processes to start of a program that sends one video per process
    #[arg(long, value_name = "N", default_value = "120")]
    pub most: usize,
    /// Window of dcs stream: datagrams that are due within this time go together
    #[arg(long, value_name = "TIME", default_value = "1ms")]
    pub window: String,
    /// Measured seconds of each run
    #[arg(long, value_name = "S", value_parser = units::seconds, default_value = "5")]
    pub seconds: f64,
    /// Seconds before the measurement begins
    #[arg(long, value_name = "S", value_parser = units::seconds, default_value = "3")]
    pub warm_up: f64,
    /// Runs of each program; the results are medians
    #[arg(long, default_value = "3", value_parser = clap::value_parser!(u32).range(1..=99))]
    pub runs: u32,
    /// Transport stream of 7.82 Mb/s to send instead of a generated one
    #[arg(long, value_name = "FILE")]
    pub video: Option<PathBuf>,
    /// Plot CPU time and deviation against streams
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Folder for the data: 25 MiB
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
}

const HELP: &str = "\
Examples:
  dcs bench stream
  dcs bench stream --streams 1,1000 --contenders dcs,dcs-ordinary --runs 5
  dcs bench stream --streams 120,1000 --contenders dcs --window 5ms
  dcs bench stream --json --svg stream.svg > stream.json

dcs: dcs stream with a list, with real-time priority where that is permitted; dcs-ordinary: with --realtime off. ffmpeg: -re -c copy;
ffmpeg-bitrate: the same with the pacing of its UDP output. multicat, tsp (TSDuck), gst (GStreamer), vlc. Each of the others is started
once per video. Programs that are missing are skipped, with a message; ffmpeg is found in the path, by FFMPEG=PATH, or in the Python
package imageio-ffmpeg. Without ffmpeg the video is packets without pictures, which programs that parse it refuse.

The time of arrival is the kernel's (SO_TIMESTAMPNS), of eight of the videos, so the listener adds nothing to it. Deviation is the
distance from the constant rate that fits best; it says little of a program that does not keep the rate because the machine has too few
cores, and a program that keeps less than 95 % of it is not plotted. CPU time is that of the programs, in user space and in the kernel;
over loopback it includes the kernel's receiving side, for each of them the same. Other work on the machine affects all of them: look at
the load average.

Exit codes: 0 measured; 1 a program failed, or sent nothing; 2 usage; 4 no space; 7 no dcs; 130 interrupted";
