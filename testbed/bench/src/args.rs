//! The command line of `dcs demo`, `dcs bench` and `dcs vm`. Help teaches by example: every subcommand ends
//! with commands that work as they stand.

use crate::guest::engine::CardEngine;
use crate::guest::nic::KernelNic;
use crate::harness::cores::ServerCores;
use crate::harness::faults::Faults;
use crate::report::{self, Report};
use crate::units;
use clap::{Args, Parser, Subcommand, ValueEnum};
use dcs_fabric::FAULT_HELP;
use std::path::PathBuf;

/// Measure what dcs does, and check every byte of it. `dcs` starts this program for its commands demo, bench and vm.
#[derive(Debug, Parser)]
#[command(name = "dcs", bin_name = "dcs", version)]
pub struct Arguments {
    #[command(flatten)]
    pub output: report::Options,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the main job on generated data, check every byte, and compare with the ordinary loop
    Demo(Demo),
    /// Measure what jobs cost, compared with other ways to do them
    Bench(Box<Bench>),
    /// Boot a whole server in QEMU: the engine as a PCIe card that drives an SSD and a NIC, with a stock Linux guest
    Vm(Vm),
    /// Internal part of `dcs csd`, whose program starts this one
    #[command(hide = true)]
    Csd(Csd),
    /// Write man pages into a folder, for make install
    #[command(hide = true)]
    BenchPages { folder: PathBuf },
    #[command(hide = true)]
    GuestCard {
        socket: PathBuf,
        #[arg(long, value_enum, default_value = "rust")]
        engine: CardEngine,
        #[command(flatten)]
        faults: Faults,
    },
    #[command(hide = true)]
    GuestEnvironment { sets: usize },
    #[command(hide = true)]
    GuestAgent { from: std::net::SocketAddrV4 },
    #[command(hide = true)]
    GuestWorker,
    #[command(hide = true)]
    GuestDrive {
        seed: u64,
        bytes: u64,
        #[arg(long)]
        virtio: bool,
    },
    #[command(hide = true)]
    BenchControl { contender: String, transfers: usize },
    #[command(hide = true)]
    BenchServer,
    #[command(hide = true)]
    BenchClient,
    #[command(hide = true)]
    BenchHog { cores: Vec<usize> },
    #[command(hide = true)]
    BenchMemoryHog { cores: Vec<usize> },
    #[cfg(feature = "benchmarks")]
    #[command(hide = true)]
    BenchLoad,
    #[cfg(feature = "benchmarks")]
    #[command(hide = true)]
    BenchBecome {
        cores: String,
        #[arg(last = true)]
        command: Vec<std::ffi::OsString>,
    },
}

impl Arguments {
    /// Returns how the command reports its results, and to where.
    pub fn report(&self) -> Report {
        let name = match &self.command {
            Command::Demo(_) => "demo",
            Command::Bench(_) => "bench",
            Command::Vm(_) => "vm",
            Command::Csd(_) => "csd",
            _ => "helper",
        };
        Report::new(name, &self.output)
    }
}

#[derive(Debug, Args)]
#[command(after_help = DEMO_HELP)]
pub struct Demo {
    /// Size of the data set, in bytes
    #[arg(long, value_name = "SIZE", value_parser = units::size, default_value = "256MiB")]
    pub size: u64,
    /// Folder for the data; needs about 2.5 times --size of free space
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Measured runs of each contender; the results are medians
    #[arg(long, default_value = "3", value_parser = clap::value_parser!(u32).range(1..=99))]
    pub runs: u32,
    /// Check what arrives, and measure nothing
    #[arg(long, conflicts_with_all = ["runs", "unverified"])]
    pub check_only: bool,
    /// Succeed even if python3 or openssl is missing and some checks could not be made
    #[arg(long)]
    pub unverified: bool,
}

#[derive(Debug, Args)]
#[command(after_help = HOST_HELP, args_conflicts_with_subcommands = true)]
pub struct Bench {
    #[command(subcommand)]
    pub command: Option<BenchCommand>,
    #[command(flatten)]
    pub host: Host,
}

#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Jobs of the engine on this machine, compared with loops, Python and sendfile(2); the default of dcs bench
    Host(Host),
    /// An engine with several cores compared with one that has one: file -> md5 -> null
    Cores(crate::host::cores::Options),
    /// S3 object servers compared: dcs, versitygw, MinIO, rclone, nginx
    #[cfg(feature = "benchmarks")]
    S3(crate::s3::options::Options),
    /// The papers' experiments on whole servers, in virtual time: host-centric, software-optimised,
    /// peer-to-peer, card
    #[cfg(feature = "benchmarks")]
    Sim(crate::sim::Options),
    /// The papers' experiments in a guest in QEMU: contention with spinning processes, an object server, the HDFS
    /// balancer
    #[cfg(feature = "benchmarks")]
    Guest(crate::guest::experiments::Options),
    /// Unmodified applications compared with the same on the engine: OpenStack Swift, nginx
    #[cfg(feature = "benchmarks")]
    Apps(crate::apps::Options),
    /// Virtual drives compared with io_uring on the same file: throughput, latency, CPU time per command
    #[cfg(feature = "benchmarks")]
    Csd(crate::csd::Options),
    /// Each operator on a GPU, compared with its memory, its bus, and one core
    #[cfg(feature = "benchmarks")]
    Gpu(crate::gpu::Options),
    /// Videos in datagrams, compared with ffmpeg, multicat, TSDuck, GStreamer and VLC: CPU time, deviation from the due
    /// time
    #[cfg(feature = "benchmarks")]
    Stream(crate::stream::Options),
}

#[derive(Debug, Args)]
#[command(after_help = HOST_HELP)]
pub struct Host {
    /// Jobs to measure: 'file>md5>socket', 'socket>md5>file', any other chain between the two, or control; by default
    /// a set that takes a few minutes
    #[arg(value_name = "JOB")]
    pub jobs: Vec<String>,
    /// List jobs and contenders without measuring
    #[arg(long)]
    pub list: bool,
    /// Concurrent streams, each on its own connection; by default 1,4,16,64
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = units::count::<1, 1024>)]
    pub streams: Vec<usize>,
    /// Bytes of each object; by default 4 MiB. Sizes up to 256k use many small objects
    #[arg(long, value_name = "SIZE", value_delimiter = ',', value_parser = units::size)]
    pub size: Vec<u64>,
    /// Contenders; by default all that suit the job
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub contenders: Vec<String>,
    /// Busy processes that run on the measured process's cores
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = units::count::<0, 256>)]
    pub hogs: Vec<usize>,
    /// Processes that go through more memory than any cache holds, each on a core of the client's
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = units::count::<0, 256>)]
    pub memory_hogs: Vec<usize>,
    /// Count instructions, cycles and cache misses of the measured process, where the machine has counters
    #[arg(long)]
    pub counters: bool,
    /// Measured seconds of each run, after a warm-up of one second, or of twice --seconds if that is less
    #[arg(long, value_name = "S", value_parser = units::seconds, default_value = "1")]
    pub seconds: f64,
    /// Runs of each contender; the results are medians
    #[arg(long, default_value = "3", value_parser = clap::value_parser!(u32).range(1..=99))]
    pub runs: u32,
    /// Open the file for each object, or all files beforehand
    #[arg(long, value_enum, default_value = "each")]
    pub open: OpenChoice,
    /// Keep files out of the page cache: with O_DIRECT, or by dropping them from it after each object
    #[arg(long)]
    pub cold: bool,
    /// Cores of the measured process, a number or all; the client uses the others
    #[arg(long, value_name = "N", default_value = "1")]
    pub server_cores: ServerCores,
    /// Plot CPU seconds per GiB against streams
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Folder for the data: up to a few hundred MiB
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct Csd {
    #[command(subcommand)]
    pub command: CsdCommand,
}

#[derive(Debug, Subcommand)]
pub enum CsdCommand {
    Demo(CsdDemo),
}

/// Arguments of `dcs csd demo`. Its help is in the program behind `dcs csd`.
#[derive(Debug, Args)]
pub struct CsdDemo {
    /// Bytes of each file
    #[arg(long, value_name = "SIZE", value_parser = units::size, default_value = "64MiB")]
    pub size: u64,
}

#[derive(Debug, Args)]
#[command(after_help = VM_HELP, subcommand_required = true, arg_required_else_help = true)]
pub struct Vm {
    #[command(subcommand)]
    pub command: VmCommand,
}

#[derive(Debug, Subcommand)]
pub enum VmCommand {
    /// Run the main jobs with each design: the guest's kernel, software in user space, the card; check every byte, and
    /// compare
    Demo(VmDemo),
    /// Open a shell in the guest on this terminal
    Shell(VmShell),
    /// Have an SSD send videos to a NIC by itself while the guest sleeps; check every byte, and count the guest's work
    #[cfg(feature = "benchmarks")]
    D2d(VmD2d),
}

#[cfg(feature = "benchmarks")]
#[derive(Debug, Args)]
#[command(after_help = VM_HELP)]
pub struct VmD2d {
    /// Concurrent videos, of 7.82 Mb/s each
    #[arg(long, value_name = "COUNT", value_parser = units::count::<1, 128>, default_value = "120")]
    pub streams: usize,
    /// Transport stream of this rate, at least 12 s long, to send instead of a generated one
    #[arg(long, value_name = "FILE")]
    pub video: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(after_help = vm_faults())]
pub struct VmDemo {
    /// Bytes moved by each job, in objects of 1 MiB
    #[arg(long, value_name = "SIZE", value_parser = units::size, default_value = "32MiB")]
    pub size: u64,
    /// NIC of the guest's kernel; all but virtio need the kernel with all drivers, a download of 100 MB, once
    #[arg(long, value_enum, default_value = "virtio")]
    pub nic: KernelNic,
    /// Core, units, and controllers of SSDs and NICs of the card's engine; rtl needs a program that was built with the feature rtl
    #[arg(long, value_enum, default_value = "rust")]
    pub engine: CardEngine,
    #[command(flatten)]
    pub faults: Faults,
}

#[derive(Debug, Args)]
#[command(after_help = vm_faults())]
pub struct VmShell {
    /// NIC of the guest's kernel
    #[arg(long, value_enum, default_value = "virtio")]
    pub nic: KernelNic,
    /// Core, units, and controllers of SSDs and NICs of the card's engine; rtl needs a program that was built with the feature rtl
    #[arg(long, value_enum, default_value = "rust")]
    pub engine: CardEngine,
    #[command(flatten)]
    pub faults: Faults,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OpenChoice {
    Each,
    Once,
}

const DEMO_HELP: &str = "\
Examples:
  dcs demo
  dcs demo --size 1GiB --dir /mnt/nvme
  dcs demo --json > demo.jsonl

Sends a generated data set over TCP through md5, through md5,aes256-ctr and through gzip, and receives
one with md5. Python's hashlib and gzip and the openssl command check every byte and every digest
(if they are missing the demo fails, unless --unverified is given). Then the engine is compared with the
ordinary loop. A fair comparison needs a release build.

Exit codes: 0 all checks passed; 1 a check failed or could not be made; 4 no space; 130 interrupted";

const VM_HELP: &str = "\
Examples:
  dcs vm demo                                  # boots a server, compares the designs on it, the card among them
  dcs vm demo --size 256MiB --nic igb
  dcs vm demo --json | jq -r 'select(.event == \"measurement\") | [.job, .by, .guest_cpu_s_per_gib] | @tsv'
  dcs bench guest all                             # the papers' experiments in the guest: dcs bench guest --help
  dcs vm shell                                 # the same server, and its shell; leave by exit, or Ctrl-A x
  dcs vm d2d                                   # 120 videos from an SSD to a NIC while the guest sleeps; docs/d2d.md
  dcs vm d2d --streams 20 --json

Needs x86-64 Linux, and no root. Uses QEMU 10.1 or later if it is installed (DCS_QEMU names it); otherwise
QEMU, a kernel and busybox are fetched from Debian's packages into ~/.cache/dcs (70 MB, once).
The card is a process of its own (dcs card); docs/server.md has a picture of who writes to whom.
DCS_VM_CONSOLE=1 shows the guest's console during the demo.

Exit codes: 0 all checks passed; 1 a check or the guest failed; 2 usage; 9 no virtual server is available here; 130 interrupted";

fn vm_faults() -> String {
    format!(
        "\
{VM_HELP}

  dcs vm demo --size 4MiB --fault ssd:read:3:late=20ms        # the card alone moves data, and its SSD fails
  dcs vm shell --fault ssd:write:2:status=0x280 --fault ssd:flush:1:hang

With --fault the card's SSD fails: the controller that the card drives, not the kernel's. A transfer that fails is reported, and the demo
goes on; at the end it says how often each fault struck. QEMU cannot simulate nic faults, hang=hard, or short=N of anything but reads.

{FAULT_HELP}"
    )
}

const HOST_HELP: &str = "\
Examples:
  dcs bench                                        # five minutes, a table at the end
  dcs bench 'file>md5>socket' --streams 1,16 --seconds 2
  dcs bench 'file>md5>socket' --size 4k --streams 1,64 --open once
  dcs bench 'socket>md5>file' --streams 16 --contenders loop-direct,engine-direct
  dcs bench 'file>sha256,aes256-ctr>socket' --hogs 0,8
  dcs bench 'file>socket' --memory-hogs 0,1 --counters
  dcs bench 'file>gzip>socket' --json | jq -r '[.contender, .cpu_s_per_gib] | @tsv'
  dcs bench 'file>md5>socket' --svg md5.svg
  dcs bench control                                # instructions of one small transfer
  dcs bench s3                                     # object servers: dcs bench s3 --help
  dcs bench gpu                                    # what a GPU does: dcs bench gpu --help
  dcs bench csd                                    # virtual drives: dcs bench csd --help
  dcs bench sim latency                            # the papers' experiments in virtual time: dcs bench sim --help
  dcs bench guest object                           # and in a guest: dcs bench guest --help

Each contender is a process of its own, on one core unless --server-cores says otherwise; in each repetition all run
once, in another order. CPU time is that of all its threads and of kernel threads (which may include work of other
programs); the client's is reported separately. Ratios are to the contender loop, within a repetition. Every run is checked:
a contender that delivers a wrong byte or digest is an error, not a result. Use a release build on a quiet machine.
TCP uses cubic, whatever the machine's default: BBR's timers cost more on loopback than all the rest. The variable
DCS_CONGESTION selects another congestion control.
control counts instructions one by one, by ptrace: the count is the same every time, whatever else runs.

Exit codes: 0 measured; 1 a contender failed or delivered wrong bytes; 2 usage; 130 interrupted";
