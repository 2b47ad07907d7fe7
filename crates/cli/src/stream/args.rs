//! The command line of `dcs stream` and `dcs record`, and its help.

use super::ends::{Address, Interface};
use crate::args::{Choice, CipherOptions, IoChoice};
use crate::units;
use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// The rate by which datagrams are due, as people write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rate {
    Pcr,
    Free,
    Bits(u64),
}

impl std::str::FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Rate, String> {
        let wrong = || format!("'{text}' is no rate: pcr, free, or bits a second, as 7.82M");
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

#[derive(Debug, Args)]
#[command(after_help = STREAM_HELP)]
pub struct Stream {
    /// Files, in the order in which they are sent, then where they go: udp://HOST:PORT, rtp://HOST:PORT
    #[arg(value_name = "FILE... ADDRESS", required_unless_present = "list", conflicts_with = "list")]
    pub what: Vec<OsString>,
    /// Many channels, from a file that is read again when it changes
    #[arg(long, value_name = "FILE")]
    pub list: Option<PathBuf>,
    /// When bytes are due: pcr (by the clock in the transport stream), free (at once), or bits a second: 7.82M
    #[arg(long, default_value = "pcr", conflicts_with = "list")]
    pub rate: Rate,
    /// Begin again at the end, without a gap: --loop=3 sends all three times, --loop for ever
    #[arg(long, value_name = "TIMES", num_args = 0..=1, require_equals = true, default_missing_value = "0",
          conflicts_with = "list")]
    pub r#loop: Option<u32>,
    /// Hops that a multicast datagram may take
    #[arg(long, default_value = "1", conflicts_with = "list")]
    pub ttl: u8,
    /// Interface by which multicast goes: its name, or its address
    #[arg(long, conflicts_with = "list")]
    pub interface: Option<Interface>,
    /// Datagrams that are due within this time go together
    #[arg(long, value_name = "TIME", value_parser = units::duration, default_value = "1ms")]
    pub window: Duration,
    /// Send before all that the machine does otherwise (SCHED_RR): auto where that is allowed, as it is to root
    #[arg(long, value_enum, default_value = "auto")]
    pub realtime: Choice,
    /// Operators that the data pass, in order, as with dcs send: md5
    #[arg(long, value_name = "OPERATORS", conflicts_with = "list")]
    pub through: Vec<String>,
    #[command(flatten)]
    pub ciphers: CipherOptions,
    /// Write a description of an RTP stream for players (SDP); - for standard output
    #[arg(long, value_name = "FILE", conflicts_with = "list")]
    pub sdp: Option<OsString>,
    /// Tell how the streams fare so often
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    pub every: Option<Duration>,
    /// Keep metrics in this file, in Prometheus's text format, rewritten every second
    #[arg(long, value_name = "FILE")]
    pub metrics: Option<PathBuf>,
    /// Interface to the kernel: auto takes io_uring where it is available, else plain system calls
    #[arg(long, value_enum, default_value = "auto")]
    pub io: IoChoice,
    /// Refused: what dcs send has it for, streams in datagrams have not
    #[arg(long, value_name = "FUNCTION", hide = true)]
    pub nic: Option<String>,
}

#[derive(Debug, Args)]
#[command(after_help = RECORD_HELP)]
pub struct Record {
    /// udp://HOST:PORT or rtp://HOST:PORT: a group, an address of this machine, or nothing for all of them
    pub from: Address,
    /// File to write; - for standard output
    pub file: OsString,
    /// Stop after so long
    #[arg(long = "for", value_name = "TIME", value_parser = units::duration)]
    pub time: Option<Duration>,
    /// Stop when nothing has come for so long
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    pub idle: Option<Duration>,
    /// Stop after this many bytes
    #[arg(long, value_name = "SIZE", value_parser = units::size)]
    pub length: Option<u64>,
    /// A missing datagram is waited for so long (RTP)
    #[arg(long, value_name = "TIME", value_parser = units::duration, default_value = "100ms")]
    pub window: Duration,
    /// Interface by which a group is joined: its name, or its address
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
    /// Refused: what dcs send has it for, streams in datagrams have not
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

A file is an MPEG transport stream; with --rate free, or bits a second, any file. Datagrams have seven packets, each is sent
when the stream's clock (PCR) says. Files follow each other without a gap of their counters (continuity_counter); where the clock
begins anew, the stream says so. What is late (5 ms), put off, or not taken by the network is counted and told at the end.
--through md5 tells the md5 of each file as it is read. Of the first one these are the bytes that are sent; in those that
follow, also when a file begins again, counters are shifted and the new clock is marked after that.
rtp:// adds RTP's header (payload type 33) and sends reports to the next port (RTCP).

A list has a table for each channel:
  [news]
  to = \"rtp://239.1.1.1:5004\"
  files = [\"news.ts\", \"weather.ts\"]
  loop = true        # also: rate = \"8M\", ttl = 4, interface = \"eth0\", through = [\"md5\"], sdp = \"news.sdp\"
When the file changes, channels that are new begin, those that are gone or different end; all others go on. A channel that is
wrong is told, and stays as it was.

Exit codes: 0 all was sent, or a stream without an end was interrupted; 1 failed; 2 usage; 3 network; 5 a file is no transport stream;
6 not permitted; 7 not found; 130 interrupted";

const RECORD_HELP: &str = "\
Examples:
  dcs record udp://239.1.1.1:5004 video.ts --interface eth0 --for 1h
  dcs record rtp://:5004 video.ts --idle 5s --through md5
  dcs record udp://127.0.0.1:5004 - --length 1MiB > video.ts

It records what the datagrams carry, until it is stopped: --for, --idle, --length, or Ctrl-C, which is its ordinary end. RTP's datagrams
are put into their order; one that is missing is waited for as long as --window says, then counted as lost. FILE is written as the
bytes come, a block at a time; what it had before is gone. Tags of 802.1Q are the kernel's: record on the address of its interface (eth0.7).

Exit codes: 0 recorded; 1 failed; 2 usage; 3 network; 4 no space; 6 not permitted; 7 not found";
