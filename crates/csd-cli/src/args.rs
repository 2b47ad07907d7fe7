//! The command line of `dcs csd`. Help teaches by example: every subcommand ends with commands that work as
//! they stand.

use clap::{Args, Parser, Subcommand};
use dcs_console::report::{self, Report};
use dcs_console::units;
use dcs_csd::placement::{Binding, Policy};
use dcs_csd_cli::request::Rates;
use dcs_csd_cli::spec::{Drive, policy_named};
use std::path::PathBuf;

/// Give virtual machines NVMe drives out of files and disks. `dcs` starts this program for its command csd.
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
    /// Give virtual machines NVMe drives out of files and disks, one process for all of them
    #[command(after_help = CSD_HELP)]
    Csd(Csd),
    /// Write man pages into a folder, for make install
    #[command(hide = true)]
    CsdPages { folder: PathBuf },
}

#[derive(Debug, Args)]
pub struct Csd {
    #[command(subcommand)]
    pub command: CsdCommand,
}

#[derive(Debug, Subcommand)]
pub enum CsdCommand {
    /// Serve drives until a signal ends the process
    #[command(after_help = RUN_HELP)]
    Run(Run),
    /// Add a drive, or a namespace to a drive, while guests run
    #[command(after_help = ADD_HELP)]
    Add(Add),
    /// Remove a namespace, or a whole drive, from a running guest
    #[command(after_help = REMOVE_HELP)]
    Remove(Remove),
    /// Resize a namespace while its guest runs
    #[command(after_help = RESIZE_HELP)]
    Resize(Resize),
    /// Change a drive's share or limits while its guest runs
    #[command(after_help = SET_HELP)]
    Set(Set),
    /// Let the chains of all drives use an operator of your own, a WebAssembly module
    #[command(after_help = LOAD_HELP)]
    Load(Load),
    /// List drives, namespaces and their backings
    #[command(after_help = LIST_HELP)]
    List(To),
    /// Show the counters of each drive
    #[command(after_help = STATS_HELP)]
    Stats(Stats),
    /// Boot two guests on one process, check every byte, and compare the cost of work in the guests and near storage
    #[command(after_help = DEMO_HELP)]
    Demo(Demo),
}

#[derive(Debug, Args)]
pub struct Run {
    /// Configuration, as TOML
    pub config: Option<PathBuf>,
    /// A drive: NAME:size=SIZE,backing=FILE, and more (see below)
    #[arg(long, value_name = "DRIVE", value_parser = Drive::parse)]
    pub drive: Vec<Drive>,
    /// Folder of the sockets: DIR/NAME.sock for each drive, DIR/csd.control for commands [default: /run/dcs]
    #[arg(long, value_name = "DIR")]
    pub sockets: Option<PathBuf>,
    /// Time to poll for more work before sleeping: a guest's next command is answered sooner, for more CPU time
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    pub poll: Option<std::time::Duration>,
    /// Threads that do operators' work, up to 64; 0: the thread that serves the drives does it [default: as many as there
    /// are processors, less one]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(..=64))]
    pub slots: Option<u16>,
    /// Policy of the slots: static-worst, static-best, dynamic, or reconfiguration (see below) [default: reconfiguration]
    #[arg(long, value_name = "POLICY", value_parser = policy_named)]
    pub policy: Option<Policy>,
    /// A slot with the operators that it is bound to, separated by commas: md5,sha256; or any. Once for each slot
    #[arg(long, value_name = "OPERATORS", value_parser = Binding::parse)]
    pub slot: Vec<Binding>,
    /// Address for Prometheus, which gets metrics by HTTP at /metrics: IP:PORT, such as 127.0.0.1:9464; port 0 for
    /// a free one. Anyone who can connect there sees all drives' names and counters
    #[arg(long, value_name = "ADDRESS")]
    pub metrics: Option<std::net::SocketAddr>,
}

/// The process that a command is for.
#[derive(Clone, Debug, Args)]
pub struct To {
    /// Folder of the sockets of the process
    #[arg(long, value_name = "DIR", default_value = "/run/dcs")]
    pub sockets: PathBuf,
}

#[derive(Debug, Args)]
pub struct Add {
    /// NAME:size=SIZE,backing=FILE, and more (see `dcs csd run --help`)
    #[arg(value_parser = Drive::parse)]
    pub drive: Drive,
    #[command(flatten)]
    pub to: To,
}

#[derive(Debug, Args)]
pub struct Load {
    /// The module; chains name it by the SHA-256 of its bytes
    pub module: PathBuf,
    #[command(flatten)]
    pub to: To,
}

#[derive(Debug, Args)]
pub struct Remove {
    /// NAME/NSID for a namespace, NAME for a drive with all of its namespaces
    #[arg(value_parser = Target::parse)]
    pub target: Target,
    #[command(flatten)]
    pub to: To,
}

#[derive(Debug, Args)]
pub struct Resize {
    /// NAME/NSID
    #[arg(value_parser = Target::parse)]
    pub target: Target,
    /// The new size
    #[arg(value_parser = units::size)]
    pub size: u64,
    #[command(flatten)]
    pub to: To,
}

#[derive(Debug, Args)]
pub struct Set {
    /// NAME of a drive
    pub name: String,
    /// weight=N, iops=N, bytes-per-s=SIZE, one or several, separated by commas; 0 removes a limit
    #[arg(value_parser = rates)]
    pub rates: Rates,
    #[command(flatten)]
    pub to: To,
}

fn rates(text: &str) -> Result<Rates, String> {
    let mut rates = Rates::default();
    for option in text.split(',') {
        let (key, value) = option.split_once('=').unwrap_or((option, ""));
        let number = || value.parse().map_err(|_| format!("{option}: not a number, or too large"));
        match key {
            "weight" => rates.weight = Some(value.parse().map_err(|_| format!("{option}: not a weight"))?),
            "iops" => rates.iops = Some(number()?),
            "bytes-per-s" => rates.bytes_per_s = Some(units::size(value)?),
            _ => return Err(format!("{option}: use weight=, iops= or bytes-per-s=")),
        }
    }
    Ok(rates)
}

#[derive(Debug, Args)]
pub struct Stats {
    /// In Prometheus's text format
    #[arg(long)]
    pub prometheus: bool,
    #[command(flatten)]
    pub to: To,
}

#[derive(Debug, Args)]
pub struct Demo {
    /// Bytes of each of the four files, 1MiB to 1GiB [default: 64MiB]
    #[arg(long, value_name = "SIZE", value_parser = units::size)]
    pub size: Option<u64>,
}

/// A drive, or one of its namespaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    pub name: String,
    pub nsid: Option<u32>,
}

impl Target {
    fn parse(text: &str) -> Result<Target, String> {
        let Some((name, nsid)) = text.split_once('/') else {
            return Ok(Target { name: text.to_owned(), nsid: None });
        };
        let nsid = nsid.parse().map_err(|_| "a namespace is NAME/NSID, as in a/1".to_string())?;
        Ok(Target { name: name.to_owned(), nsid: Some(nsid) })
    }
}

impl Arguments {
    /// Returns the report of the command, by the options for output.
    pub fn report(&self) -> Report {
        Report::new("csd", &self.output)
    }
}

const CSD_HELP: &str = "\
A drive is a standard NVMe controller, which the guest's own driver binds: Linux, Windows, firmware. QEMU 10.1 or later attaches it at
the drive's socket, and shares the guest's memory with the process:

  qemu-system-x86_64 -object memory-backend-memfd,id=m,size=4G,share=on -machine q35,memory-backend=m -m 4G \\
    -device '{\"driver\":\"vfio-user-pci\",\"socket\":{\"type\":\"unix\",\"path\":\"/run/dcs/a.sock\"},\"rombar\":0}' ...

Examples:
  dcs csd run --drive a:size=8G,backing=/srv/ssd0.img --drive b:size=8G,backing=/srv/ssd0.img
  dcs csd list
  dcs csd add a:size=4G,backing=/srv/ssd1.img
  dcs csd stats --prometheus";

const RUN_HELP: &str = "\
A drive: NAME:KEY=VALUE,...
  size=SIZE        bytes of its namespace; a multiple of the block size
  backing=FILE     a file or a block device, which must exist; several times: striped over all of them
  backing=nvme:0000:01:00.0/1   an SSD, bound to vfio-pci, that this process drives itself; /1 is its namespace
  offset=SIZE      where the namespace starts in its backing; by default after the others, at the next MiB
  stripe=SIZE      bytes on one backing before the next one's turn (128KiB)
  block=512|4096   bytes of a logical block (512)
  nsid=N           number of the namespace (the first free one)
  read-only        the guest cannot write
  through=aes256-xts   data on the backing are encrypted, each logical block by its number; the guest does not notice
  key-file=FILE    its key: 64 bytes, or 128 hexadecimal digits
  subsystem=NAME   several drives, of one process or of several, are paths to the same namespaces (native multipath)
  path=N           its number among them, 1 to 1000 (1)
  queues=N         I/O queue pairs, 1 to 64 (8)
  memory=SIZE      device memory for near-storage commands, up to 1GiB (1MiB)
  operator-memory=SIZE   memory that operators of its near-storage commands may take, 1MiB to 64GiB (512MiB)
  programs         the standard's command sets too: device memory as subsystem local memory (namespace 17), operators as
                   computational programs (namespace 18)
  load-programs    its guest may load programs of its own, WebAssembly modules (Load Program); with programs, and with slots
  weight=N         share relative to the other drives, 1 to 1000 (1)
  load=N           operators' work expected, relative to the other drives, 1 to 1000 (1), for static policies
  iops=N           most commands a second (any)
  bytes-per-s=SIZE most bytes read and written a second (any)
  msi              MSI instead of MSI-X: QEMU can unplug the drive from a running guest (device_del); fewer vectors

Which slot does which work, by --policy:
  reconfiguration  any slot does any chain: it is loaded with other operators when it has no more work for those it has
  dynamic          any slot does the chains whose operators it is bound to (--slot); without --slot all chains
  static-best      the same, and each drive has one of the slots with the same operators: drives with the largest loads have different ones
  static-worst     the same, and drives with the largest loads share a slot
A chain fails (unknown operator) if no slot has all of its operators.

The same as a file:
  sockets = \"/run/dcs\"
  policy = \"dynamic\"
  slot = [\"grep\", \"md5,sha256\"]
  [[drive]]
  name = \"a\"
  [[drive.namespace]]
  size = \"8G\"
  backing = [\"/srv/ssd0.img\", \"/srv/ssd1.img\"]

The same configuration after a restart or a crash gives the guests the same bytes: flushed data are there.
Anyone who can connect to a drive's socket controls the drive: the folder's owner and mode decide.

Examples:
  dcs csd run --drive a:size=8G,backing=/srv/ssd0.img --drive b:size=8G,backing=/srv/ssd0.img
  dcs csd run --policy static-best --slots 2 --drive a:size=8G,backing=/srv/ssd0.img,load=4 --drive b:size=8G,backing=/srv/ssd0.img
  dcs csd run --policy dynamic --slot grep --slot md5,sha256 --drive a:size=8G,backing=/srv/ssd0.img
  dcs csd run --drive fast:size=64G,backing=/dev/nvme0n1,backing=/dev/nvme1n1,block=4096
  (umask 077; openssl rand -hex 64 >key); dcs csd run --drive c:size=8G,backing=/srv/ssd1.img,through=aes256-xts,key-file=key
  dcs csd run /etc/dcs/csd.toml --sockets /run/dcs";

const ADD_HELP: &str = "\
A new NAME makes a drive with a socket of its own; an existing drive gets another namespace, which its guest sees at once.

Examples:
  dcs csd add c:size=8G,backing=/srv/ssd1.img
  dcs csd add a:size=1G,backing=/srv/ssd1.img,nsid=2";

const REMOVE_HELP: &str = "\
The guest's commands in progress on it end first. Its bytes stay in place.

Examples:
  dcs csd remove a/2
  dcs csd remove c";

const RESIZE_HELP: &str = "\
A namespace can grow if the bytes after it in its backing are free. Bytes beyond the end of a smaller one are not reached any more.

Examples:
  dcs csd resize a/2 2G";

const SET_HELP: &str = "\
A limit holds the guest's next commands back until the average is kept: none is refused. After a pause a drive may make up for 10 ms.

Examples:
  dcs csd set a iops=5000,bytes-per-s=200MiB
  dcs csd set a weight=4
  dcs csd set a iops=0";

const LOAD_HELP: &str = "\
Guests' near-storage commands name it by the SHA-256 of its bytes (sha256sum), and so does dcs in a guest, which has the same file:
DCS_BACKEND=drive dcs copy /mnt/notes - --through ./upper.wasm. It stays loaded until the process ends. docs/wasm.md
describes modules and their limits.

Examples:
  dcs csd load upper.wasm";

const LIST_HELP: &str = "\
Examples:
  dcs csd list
  dcs csd list --json --sockets /run/dcs";

const STATS_HELP: &str = "\
Examples:
  dcs csd stats
  dcs csd stats --prometheus";

const DEMO_HELP: &str = "\
Examples:
  dcs csd demo
  dcs csd demo --size 256MiB
  dcs csd demo --json | jq -r 'select(.event == \"measurement\") | [.job, .by, .guest_cpu_s_per_gib] | @tsv'

Two guests with stock kernels, each with a drive of one dcs csd: ext4 on a plain and on an encrypted namespace, files written, flushed, read
back and compared. Then both at once compute MD5s and search lines: dcs (and busybox) in the guest, and dcs near storage. It shows the CPU time of the
guests' processors for each GiB, and how much of it is left near storage. It leaves no files behind.

It needs an x86-64 Linux, and no root. An installed QEMU 10.1 or later is used (DCS_QEMU names it);
otherwise QEMU, a kernel and busybox are fetched from Debian's packages into ~/.cache/dcs (70 MB, once).
DCS_VM_CONSOLE=1 shows the guests' consoles.

Exit codes: 0 all checks passed; 1 a check or a guest failed; 2 usage; 7 dcs-bench is not installed; 9 no virtual server is available";
