//! The command line of `dcs stream` and `dcs record`, and its help.

use super::ends::{Address, Interface};
use crate::args::{Choice, CipherOptions, IoChoice, NicOptions};
use crate::units;
use clap::Args;
use dcs::media::WINDOW_MAX;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// The rate at which datagrams are due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rate {
    Pcr,
    Free,
    Bits(u64),
}

impl std::str::FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Rate, String> {
        let wrong = || format!("'{text}' is not a rate; expected pcr, free, or bits per second, as in 7.82M");
        let (digits, unit) = match text.strip_suffix(['K', 'M', 'G']) {
            Some(digits) if text.ends_with('K') => (digits, 1e3),
            Some(digits) if text.ends_with('M') => (digits, 1e6),
            Some(digits) => (digits, 1e9),
            None => (text, 1.0),
        };
        match text {
            "pcr" => Ok(Rate::Pcr),
            "free" => Ok(Rate::Free),
            _ => {
                let number: f64 = digits.parse().map_err(|_| wrong())?;
                let bits = number * unit;
                if !(1.0..=1e12).contains(&bits) {
                    return Err(format!("'{text}': a rate is from 1 bit to 1000G a second"));
                }
                Ok(Rate::Bits(bits as u64))
            }
        }
    }
}

/// Parses the span of a window.
fn window(text: &str) -> Result<Duration, String> {
    let window = units::duration(text)?;
    match window <= WINDOW_MAX {
        true => Ok(window),
        false => Err(format!("a window has at most {} s", WINDOW_MAX.as_secs())),
    }
}

#[derive(Debug, Args)]
#[command(after_help = STREAM_HELP)]
pub struct Stream {
    /// Files, in the order in which to send them, then their destination: udp://HOST:PORT or rtp://HOST:PORT
    #[arg(value_name = "FILE... ADDRESS", required_unless_present = "list", conflicts_with = "list")]
    pub what: Vec<OsString>,
    /// Send many channels, listed in a file that is read again when it changes
    #[arg(long, value_name = "FILE")]
    pub list: Option<PathBuf>,
    /// Send by the clock in the transport stream (pcr), at once (free), or at this many bits per second: 7.82M
    #[arg(long, default_value = "pcr", conflicts_with = "list")]
    pub rate: Rate,
    /// Start again at the end, without a gap: --loop=3 sends everything three times, --loop until it is stopped
    #[arg(long, value_name = "TIMES", num_args = 0..=1, require_equals = true, default_missing_value = "0",
          conflicts_with = "list")]
    pub r#loop: Option<u32>,
    /// Hops that a multicast datagram may take
    #[arg(long, default_value = "1", conflicts_with = "list")]
    pub ttl: u8,
    /// Interface for multicast: its name or its address
    #[arg(long, conflicts_with = "list")]
    pub interface: Option<Interface>,
    /// Send datagrams together that are due within this time
    #[arg(long, value_name = "TIME", value_parser = window, default_value = "1ms")]
    pub window: Duration,
    /// Run with real-time priority (SCHED_RR): auto does if it is permitted, as to root
    #[arg(long, value_enum, default_value = "auto")]
    pub realtime: Choice,
    /// Operators that the data pass, in order, as in dcs send: md5
    #[arg(long, value_name = "OPERATORS", conflicts_with = "list")]
    pub through: Vec<String>,
    #[command(flatten)]
    pub ciphers: CipherOptions,
    /// Write a description of an RTP stream for players (SDP); - is standard output
    #[arg(long, value_name = "FILE", conflicts_with = "list")]
    pub sdp: Option<OsString>,
    /// Report statistics at this interval
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    pub every: Option<Duration>,
    /// Write metrics to this file every second, in Prometheus's text format
    #[arg(long, value_name = "FILE")]
    pub metrics: Option<PathBuf>,
    /// Interface to the kernel: auto takes io_uring where it is available, else plain system calls
    #[arg(long, value_enum, default_value = "auto")]
    pub io: IoChoice,
    #[command(flatten)]
    pub nic: NicOptions,
}

#[derive(Debug, Args)]
#[command(after_help = RECORD_HELP)]
pub struct Record {
    /// udp://HOST:PORT or rtp://HOST:PORT. HOST: a multicast group, an address of this machine, or nothing for all
    pub from: Address,
    /// File to write; - is standard output
    pub file: OsString,
    /// Stop after this time
    #[arg(long = "for", value_name = "TIME", value_parser = units::duration)]
    pub time: Option<Duration>,
    /// Stop when nothing has arrived for this long
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    pub idle: Option<Duration>,
    /// Stop after this many bytes
    #[arg(long, value_name = "SIZE", value_parser = units::size)]
    pub length: Option<u64>,
    /// Wait this long for a missing datagram (RTP)
    #[arg(long, value_name = "TIME", value_parser = window, default_value = "100ms")]
    pub window: Duration,
    /// Interface on which to join the group: its name or its address
    #[arg(long)]
    pub interface: Option<Interface>,
    /// Operators that the data pass, in order, as with dcs recv: md5
    #[arg(long, value_name = "OPERATORS")]
    pub through: Vec<String>,
    #[command(flatten)]
    pub ciphers: CipherOptions,
    /// Make the file durable (fdatasync, and fsync of its folder) before it is done
    #[arg(long)]
    pub durable: bool,
    /// Interface to the kernel: auto takes io_uring where it is available, else plain system calls
    #[arg(long, value_enum, default_value = "auto")]
    pub io: IoChoice,
    /// Refused: only sockets of the kernel receive streams
    #[arg(long, value_name = "FUNCTION", hide = true)]
    pub nic: Option<String>,
}

const STREAM_HELP: &str = "\
Examples:
  dcs stream video.ts udp://239.1.1.1:5004 --ttl 4 --interface eth0
  dcs stream one.ts two.ts rtp://10.0.0.7:5004 --loop --sdp video.sdp     # ffplay -protocol_whitelist file,udp,rtp video.sdp
  dcs stream video.ts udp://127.0.0.1:5004 --through md5                  # prints the md5 of the file as it was read
  dcs stream data.bin udp://127.0.0.1:5004 --rate 8M --window 5ms
  dcs stream --list channels.toml --every 10s --metrics /run/dcs/stream.prom
  dcs stream video.ts udp://239.1.1.1:5004 --nic 0000:02:00.0 --address 10.0.2.15/24

A file is an MPEG transport stream; with --rate free, or bits per second, any file. Datagrams have seven packets each, and are sent
according to the stream's clock (PCR). Files follow each other without a gap in their counters (continuity_counter); where the clock
starts again, the stream is marked. Late (5 ms), delayed and lost datagrams are counted and reported at the end.
--through md5 prints the md5 of each file as it is read. Of the first file these are the bytes that are sent; in later files, also
when a file starts again, counters and the mark of the new clock are set after that.
rtp:// adds RTP's header (payload type 33) and sends reports to the next port (RTCP).
With --nic, or with DCS_BACKEND=card, a NIC that this process or the card drives sends it, by IPv4.

A list has a table for each channel:
  [news]
  to = \"rtp://239.1.1.1:5004\"
  files = [\"news.ts\", \"weather.ts\"]
  loop = true        # also: rate = \"8M\", ttl = 4, interface = \"eth0\", through = [\"md5\"], sdp = \"news.sdp\"
When the list changes, new channels begin, removed or changed ones end, and all others go on. A wrong channel is reported, and
stays as it was.

Exit codes: 0 all was sent, or an endless stream was interrupted; 1 failed; 2 usage; 3 network; 5 a file is not a transport stream;
6 not permitted; 7 not found; 130 interrupted";

const RECORD_HELP: &str = "\
Examples:
  dcs record udp://239.1.1.1:5004 video.ts --interface eth0 --for 1h
  dcs record rtp://:5004 video.ts --idle 5s --through md5
  dcs record udp://127.0.0.1:5004 - --length 1MiB > video.ts

It records the payload of datagrams until --for, --idle, --length or Ctrl-C, which is its normal end. RTP datagrams are put in order; a
missing one is waited for during --window, then counted as lost. FILE is overwritten as the bytes arrive, a block at a time. Tags of
802.1Q are the kernel's: record on the address of its interface (eth0.7).

Exit codes: 0 recorded; 1 failed; 2 usage; 3 network; 4 no space; 6 not permitted; 7 not found";
