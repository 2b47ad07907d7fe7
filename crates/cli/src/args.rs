//! The command line. Help teaches by example: every subcommand ends with commands that work as they stand.

use crate::units;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Move bytes between files and sockets through digests, ciphers and compression, with one command per transfer.
#[derive(Debug, Parser)]
#[command(name = "dcs", version, after_help = EXAMPLES)]
pub struct Arguments {
    /// Print results as JSON, one object per line
    #[arg(long, global = true)]
    pub json: bool,
    /// Print no progress, no summary: only digests, counters and errors
    #[arg(long, short, global = true)]
    pub quiet: bool,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Send a file, a pipe or a block device to a socket
    Send(Send),
    /// Wait for one connection and receive what it carries into a file
    Recv(Recv),
    /// Copy a file or a pipe
    Copy(Copy),
    /// List the operators, and measure them here
    Ops(Ops),
    /// Run the main job on generated data, check every byte, and compare with the ordinary loop
    Demo(Demo),
    /// Measure what jobs cost, beside what else could do them
    Bench(Bench),
    /// Run a program that uses sendfile(2) with its files going through a chain of operators
    Run(crate::preload::Run),
    /// Serve a folder as an S3 object server
    Serve(crate::serve::Serve),
    /// Go through the folder of an object server for damaged objects
    Scrub(crate::scrub::Scrub),
    /// Tell what this machine can do, which path will run for what, and how to fix what is missing
    Doctor(Doctor),
    /// A whole server in QEMU: the engine as a PCIe card that drives an SSD and a NIC, and a stock Linux guest
    Server(Server),
    /// Serve the card to a QEMU of your own
    Card(Card),
    /// Write man pages and completions into a folder, for make install
    #[command(hide = true)]
    Pages { folder: PathBuf },
    #[command(hide = true)]
    DemoWorker,
    #[command(hide = true)]
    ServerEnvironment { sets: usize },
    #[command(hide = true)]
    ServerGuest { orders: std::net::SocketAddrV4 },
    #[command(hide = true)]
    ServerWorker,
    #[command(hide = true)]
    BenchControl { contender: String, transfers: usize },
    #[command(hide = true)]
    BenchServer,
    #[command(hide = true)]
    BenchClient,
    #[command(hide = true)]
    BenchHog { cores: Vec<usize> },
    #[command(hide = true)]
    BenchLoad,
    #[command(hide = true)]
    BenchBecome {
        cores: String,
        #[arg(last = true)]
        command: Vec<OsString>,
    },
}

#[derive(Debug, Args)]
#[command(after_help = SEND_HELP)]
pub struct Send {
    /// File, FIFO or block device; nvme:FUNCTION/NAMESPACE@LBA+LENGTH for an SSD driven directly; - for standard input
    pub file: String,
    /// HOST:PORT, unix:PATH, or - for standard output
    pub to: String,
    #[command(flatten)]
    pub moving: Moving,
    /// First byte to send (files and block devices)
    #[arg(long, value_name = "SIZE", value_parser = units::size, default_value = "0")]
    pub offset: u64,
    /// Bytes to send; without it, all there are
    #[arg(long, value_name = "SIZE", value_parser = units::size)]
    pub length: Option<u64>,
    /// Zero-copy send: on demands it, off also forbids the kernel's own copy
    #[arg(long, value_enum, default_value = "auto")]
    pub zero_copy: Choice,
    /// How long to try to connect
    #[arg(long, value_name = "TIME", value_parser = units::duration, default_value = "30s")]
    pub connect_timeout: Duration,
    #[command(flatten)]
    pub nic: NicOptions,
}

#[derive(Debug, Args)]
#[command(after_help = RECV_HELP)]
pub struct Recv {
    /// PORT (on all addresses), HOST:PORT (on that one), or unix:PATH; port 0 is any free one
    pub from: String,
    /// File to receive into; nvme:FUNCTION/NAMESPACE@LBA+LENGTH; - for standard output
    pub file: String,
    #[command(flatten)]
    pub moving: Moving,
    #[command(flatten)]
    pub target: TargetOptions,
    /// Bytes to receive; without it, all until the sender ends
    #[arg(long, value_name = "SIZE", value_parser = units::size)]
    pub length: Option<u64>,
    /// How long to wait for a connection; without it, for ever
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    pub accept_timeout: Option<Duration>,
    #[command(flatten)]
    pub nic: NicOptions,
}

/// A NIC that this process drives.
#[derive(Debug, Args)]
pub struct NicOptions {
    /// PCI function of a NIC to drive directly, past the kernel's driver and its TCP: dcs doctor
    #[arg(long, value_name = "FUNCTION", requires = "address")]
    pub nic: Option<String>,
    /// Its IPv4 address, with the length of the network's prefix: 10.0.2.15/24
    #[arg(long, value_name = "ADDRESS/PREFIX", requires = "nic")]
    pub address: Option<String>,
    /// Its way to other networks
    #[arg(long, value_name = "ADDRESS", requires = "nic")]
    pub gateway: Option<std::net::Ipv4Addr>,
}

#[derive(Debug, Args)]
#[command(after_help = COPY_HELP)]
pub struct Copy {
    /// File, FIFO or block device; nvme:FUNCTION/NAMESPACE@LBA+LENGTH; - for standard input
    pub from: String,
    /// File or folder; nvme:FUNCTION/NAMESPACE@LBA+LENGTH; - for standard output
    pub to: String,
    #[command(flatten)]
    pub moving: Moving,
    #[command(flatten)]
    pub target: TargetOptions,
    /// Fail where the destination exists, instead of replacing it
    #[arg(long, short)]
    pub no_clobber: bool,
}

/// What every transfer has.
#[derive(Debug, Args)]
pub struct Moving {
    /// Operators that the data pass, in order: md5,aes256-ctr,gzip:9 (dcs ops lists them)
    #[arg(long, value_name = "OPERATORS", value_delimiter = ',')]
    pub through: Vec<String>,
    #[command(flatten)]
    pub ciphers: CipherOptions,
    /// Page cache: off goes past it (O_DIRECT)
    #[arg(long, value_enum, default_value = "auto")]
    pub cache: Choice,
    /// Fail where the transfer takes longer
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    pub timeout: Option<Duration>,
    /// How the kernel is asked: auto takes io_uring where it is available, else plain system calls
    #[arg(long, value_enum, default_value = "auto")]
    pub io: IoChoice,
    /// Which GPU does the operators that gpu: stands before, as in gpu:md5
    #[arg(long, value_name = "N", default_value = "0")]
    pub gpu: u32,
    /// Whether that GPU reads files itself (GPUDirect Storage), where the first operator is on it: dcs doctor
    #[arg(long, value_enum, default_value = "auto")]
    pub gpu_storage: Choice,
}

/// Keys and counters.
#[derive(Debug, Args)]
pub struct CipherOptions {
    /// Key of the next cipher of the chain: raw bytes or hexadecimal digits; else DCS_KEY, DCS_KEY_2, ...
    #[arg(long, value_name = "FILE")]
    pub key_file: Vec<PathBuf>,
    /// First counter block of the next aes256-ctr. To encrypt: random, which draws one and prints it. To decrypt: its 32
    /// hexadecimal digits
    #[arg(long, value_name = "HEX")]
    pub iv: Vec<String>,
}

/// How a file is written.
#[derive(Debug, Args)]
pub struct TargetOptions {
    /// Write into the file itself, not into a temporary one that takes its place at the end
    #[arg(long)]
    pub in_place: bool,
    /// Make the file durable (fdatasync, and fsync of its folder) before it is done
    #[arg(long)]
    pub durable: bool,
    /// Fail unless a digest of the chain has this value: md5=HEX
    #[arg(long, value_name = "DIGEST=HEX")]
    pub expect: Vec<String>,
}

#[derive(Debug, Args)]
#[command(after_help = OPS_HELP)]
pub struct Ops {
    /// Only list them
    #[arg(long)]
    pub no_measure: bool,
}

#[derive(Debug, Args)]
#[command(after_help = DOCTOR_HELP)]
pub struct Doctor {
    /// PCI functions of SSDs and NICs: fail unless each can be driven directly
    #[arg(value_name = "FUNCTION")]
    pub functions: Vec<String>,
    /// Folder whose file system is tried
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    pub dir: PathBuf,
    /// Take an SSD or a NIC that nobody uses from the kernel's driver, and give it to vfio-pci
    #[arg(long, value_name = "FUNCTION", conflicts_with_all = ["functions", "release"])]
    pub bind: Option<String>,
    /// Give it back to the kernel's driver
    #[arg(long, value_name = "FUNCTION", conflicts_with = "functions")]
    pub release: Option<String>,
}

#[derive(Debug, Args)]
#[command(after_help = DEMO_HELP)]
pub struct Demo {
    /// Bytes of the data set
    #[arg(long, value_name = "SIZE", value_parser = units::size, default_value = "256MiB")]
    pub size: u64,
    /// Folder for the data; it needs about 2.5 times the size
    #[arg(long, value_name = "FOLDER")]
    pub dir: Option<PathBuf>,
    /// Measured runs of each contender, of which the median counts
    #[arg(long, default_value = "3", value_parser = clap::value_parser!(u32).range(1..=99))]
    pub runs: u32,
    /// Succeed even where python3 or openssl is missing, so that not all could be checked
    #[arg(long)]
    pub unverified: bool,
}

#[derive(Debug, Args)]
#[command(after_help = BENCH_HELP, args_conflicts_with_subcommands = true)]
pub struct Bench {
    #[command(subcommand)]
    pub command: Option<BenchCommand>,
    /// What to measure: 'file>md5>socket', 'socket>md5>file', any chain between the two, or control; without one, a set
    /// that takes a few minutes
    #[arg(value_name = "JOB")]
    pub jobs: Vec<String>,
    /// List jobs and contenders, and measure nothing
    #[arg(long)]
    pub list: bool,
    /// Streams side by side, each on a connection of its own: 1,4,16,64 where none are given
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = units::count::<1, 1024>)]
    pub streams: Vec<usize>,
    /// Bytes of each object: 4 MiB where none are given; up to 256k they are small, and many
    #[arg(long, value_name = "SIZE", value_delimiter = ',', value_parser = units::size)]
    pub size: Vec<u64>,
    /// Contenders: those that suit the job where none are given
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub contenders: Vec<String>,
    /// Busy processes beside the measured one, on its cores
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = units::count::<0, 256>)]
    pub hogs: Vec<usize>,
    /// Seconds that are measured in each run, after a warm-up of one second (of twice as long, where that is less)
    #[arg(long, value_name = "S", value_parser = units::seconds, default_value = "1")]
    pub seconds: f64,
    /// Runs of each contender, of which the median counts
    #[arg(long, default_value = "3", value_parser = clap::value_parser!(u32).range(1..=99))]
    pub runs: u32,
    /// Open the file for each object, or all files before
    #[arg(long, value_enum, default_value = "each")]
    pub open: OpenChoice,
    /// Files are not in the page cache: O_DIRECT, or dropped from it after each object
    #[arg(long)]
    pub cold: bool,
    /// Cores of the measured process, a number or all; the client has the others
    #[arg(long, value_name = "N", default_value = "1")]
    pub server_cores: ServerCores,
    /// Plot CPU seconds per GiB by streams
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Folder for the data: up to some hundred MiB
    #[arg(long, value_name = "FOLDER")]
    pub dir: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// S3 object servers side by side: dcs, versitygw, MinIO, rclone, nginx
    Serve(crate::bench::serve::options::Options),
    /// Applications as they are, and on the engine: OpenStack Swift, nginx
    Apps(crate::bench::apps::Options),
    /// What a GPU does with each operator, beside its memory, its bus, and one core
    Gpu(crate::bench::gpu::Options),
    /// The papers' experiments on whole servers, in virtual time: host-centric, software-optimised, peer-to-peer, card
    Server(crate::bench::lab::Options),
}

#[derive(Debug, Args)]
#[command(after_help = SERVER_HELP, subcommand_required = true, arg_required_else_help = true)]
pub struct Server {
    #[command(subcommand)]
    pub command: ServerCommand,
}

#[derive(Debug, Subcommand)]
pub enum ServerCommand {
    /// Run the main jobs by each design: the guest's kernel, software in user space, the card; check every byte, and compare
    Demo(ServerDemo),
    /// The papers' experiments in the guest: beside spinning processes, an object server, the HDFS balancer
    Bench(crate::server::bench::Options),
    /// A shell in the guest, on this terminal
    Shell(ServerShell),
}

#[derive(Debug, Args)]
#[command(after_help = SERVER_HELP)]
pub struct ServerDemo {
    /// Bytes of each job, in objects of 1 MiB
    #[arg(long, value_name = "SIZE", value_parser = units::size, default_value = "32MiB")]
    pub size: u64,
    /// The NIC that the guest's kernel has; all but virtio need the kernel with all drivers, 100 MB to fetch once
    #[arg(long, value_enum, default_value = "virtio")]
    pub nic: KernelNic,
}

#[derive(Debug, Args)]
#[command(after_help = SERVER_HELP)]
pub struct ServerShell {
    /// The NIC that the guest's kernel has
    #[arg(long, value_enum, default_value = "virtio")]
    pub nic: KernelNic,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum KernelNic {
    Virtio,
    E1000e,
    Igb,
}

#[derive(Debug, Args)]
#[command(after_help = CARD_HELP)]
pub struct Card {
    /// Unix socket to serve it at (vfio-user)
    pub socket: PathBuf,
    /// Its own memory, a power of two: blocks, queues, rings
    #[arg(long, value_name = "SIZE", value_parser = units::size, default_value = "16MiB")]
    pub memory: u64,
    /// End with the process that started it
    #[arg(long, hide = true)]
    pub with_parent: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OpenChoice {
    Each,
    Once,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerCores {
    Some(usize),
    All,
}

impl std::str::FromStr for ServerCores {
    type Err = String;

    fn from_str(text: &str) -> Result<ServerCores, String> {
        match (text, text.parse()) {
            ("all", _) => Ok(ServerCores::All),
            (_, Ok(count)) if count > 0 => Ok(ServerCores::Some(count)),
            _ => Err("a number of cores, or all".into()),
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Choice {
    Auto,
    On,
    Off,
}

impl From<Choice> for dcs::Mode {
    fn from(choice: Choice) -> dcs::Mode {
        match choice {
            Choice::Auto => dcs::Mode::Auto,
            Choice::On => dcs::Mode::On,
            Choice::Off => dcs::Mode::Off,
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum IoChoice {
    Auto,
    Uring,
    Plain,
}

impl From<IoChoice> for dcs::Io {
    fn from(choice: IoChoice) -> dcs::Io {
        match choice {
            IoChoice::Auto => dcs::Io::Auto,
            IoChoice::Uring => dcs::Io::Uring,
            IoChoice::Plain => dcs::Io::Plain,
        }
    }
}

macro_rules! exit_codes {
    () => {
        "\
Exit codes:
  0 done              3 peer or network      6 not permitted
  1 failed            4 no space             7 not found
  2 usage, bad key,   5 input corrupt, cut,  8 timeout
    range outside       or not as expected   9 no virtual server here
                                             130 interrupted"
    };
}

const EXAMPLES: &str = concat!(
    "\
Examples:
  dcs recv 9000 video.mp4 --through md5               # on the one machine
  dcs send video.mp4 there:9000 --through md5         # on the other
  dcs copy log log.gz --through sha256,gzip
  dcs ops
  dcs demo

",
    exit_codes!()
);

const SEND_HELP: &str = concat!(
    "\
Examples:
  dcs send video.mp4 there:9000 --through md5
  tar c src | dcs send - there:9000 --through sha256,zstd:3
  dcs send disk.img unix:/run/backup.sock --offset 1GiB --length 64MiB --cache off
  dcs send video.mp4 there:9000 --through gpu:md5                     # the GPU does it: dcs doctor
  dcs send nvme:0000:01:00.0/1@2048+1GiB there:9000 --through md5     # past the kernel's driver: dcs doctor
  dcs send nvme:01:00.0@0+1GiB 10.0.2.2:9000 --nic 02:00.0 --address 10.0.2.15/24     # and past its TCP

  (umask 077; openssl rand -hex 32 > key); iv=$(openssl rand -hex 16)
  dcs send secret there:9000 --through md5,aes256-ctr --key-file key --iv $iv

A digest covers the data at its place in the chain: md5,aes256-ctr is the MD5 of the plain data.
aes256-ctr needs --iv, and the receiver the same one. Never use a counter twice with one key: --iv random
draws one and prints it. The n-th cipher takes the n-th --key-file; without one, DCS_KEY, DCS_KEY_2, ...
(hexadecimal digits).
It succeeds when the receiver's kernel has acknowledged every byte, or a Unix socket's receiver has read it.
Otherwise, also when it is killed, the connection is reset, and dcs recv fails. (On a Unix socket only dcs
recv notices; another program sees an ordinary end.) Only the receiver knows that its file is in place.
With DCS_BACKEND=card a dcs card in this machine does it, on the devices that DCS_CARD_DISKS and DCS_CARD_NIC name.

",
    exit_codes!()
);

const RECV_HELP: &str = concat!(
    "\
Examples:
  dcs recv 9000 video.mp4 --through md5
  dcs recv 127.0.0.1:9000 log --through gunzip,sha256 --durable
  dcs recv 9000 secret --through aes256-ctr,md5 --key-file key --iv $iv --expect md5=$sum
  dcs recv unix:/run/backup.sock - --through crc32c > disk.img
  dcs recv 9000 nvme:01:00.0@0+1GiB --nic 02:00.0 --address 10.0.2.15/24     # past the kernel: dcs doctor

A PORT alone listens on all addresses; 127.0.0.1:PORT takes connections of this machine only.
One connection is accepted. FILE appears, or is replaced, only when all has been received and is as
expected; until then the data are in a temporary file beside it. A dcs send that fails or is killed makes
recv fail, and FILE stays as it was. Other senders end by closing, whatever their reason: give --length or
--expect for them. A replaced file keeps its owner, group, mode and access list, as dcs copy --help says.
A FILE that is a pipe or a device, - and --in-place are written directly.
With DCS_BACKEND=card a dcs card in this machine does it, on the devices that DCS_CARD_DISKS and DCS_CARD_NIC name.

",
    exit_codes!()
);

const COPY_HELP: &str = concat!(
    "\
Examples:
  dcs copy log log.gz --through gzip:9
  dcs copy log.gz - --through gunzip | less
  dcs copy disk.img /backup/ --through sha256 --durable
  dcs copy plain sealed --through aes256-ctr --key-file key --iv random     # prints the counter
  dcs copy sealed plain --through aes256-ctr --key-file key --iv $iv        # and back
  dcs copy plain sealed --through aes256-xts:512 --key-file key64           # undo: aes256-xts-decrypt:512
  dcs copy download.iso /backup/ --through md5 --expect md5=$sum

As cp does, it replaces TO (--no-clobber: it fails instead), copies into TO where that is a folder, follows
symbolic links, keeps holes where the chain changes no data, and refuses to copy a file onto itself. A new
file gets the permissions of FROM, but not set-uid and set-gid. A replaced one keeps its own owner, group,
permissions, access list and attributes; where its owner or group cannot be kept, it loses set-uid or set-gid.

Unlike cp it never leaves half a file: TO changes at once, when all is well, and after a crash it is the old
file or the new one. It becomes a new file, so other hard links keep the old data. --in-place writes into
the file itself. Only --durable waits until the new file will survive a crash.

With DCS_BACKEND=card a dcs card in this machine does it, on the devices that DCS_CARD_DISKS and DCS_CARD_NIC name.

",
    exit_codes!()
);

const DOCTOR_HELP: &str = "\
Examples:
  dcs doctor                            # what this machine can do, and how to fix what is missing
  dcs doctor --json | jq -r 'select(.state == \"missing\") | .fix'
  dcs doctor 0000:01:00.0               # for scripts: can it be driven by dcs send nvme:0000:01:00.0 ... now?
  dcs doctor --bind 0000:01:00.0        # takes the SSD (or NIC) from the kernel, if nobody uses it
  dcs doctor --release 0000:01:00.0     # gives it back

ok: as it should be. note: it works, with less. missing: a path that needs it will not run. unread: it could not
be found out here, in a container for example.

Exit codes: 0 transfers run here, and every FUNCTION can be driven; 1 not so, or in use; 2 usage; 6 not permitted; 7 not found";

const OPS_HELP: &str = "\
Examples:
  dcs ops
  dcs ops --no-measure
  dcs ops --json | jq -r 'select(.gib_per_s > 1) | .name'

Rates are of one stream on one core, in blocks of 64 KiB, about 0.2 s each: of a decompressor what it
writes, of all others what they read. dcs bench gpu measures what a GPU does.";

const DEMO_HELP: &str = "\
Examples:
  dcs demo
  dcs demo --size 1GiB --dir /mnt/nvme
  dcs demo --json > demo.jsonl

Sends a generated data set over TCP through md5, through md5,aes256-ctr and through gzip, and receives
one with md5. Python's hashlib and gzip and the openssl command check every byte and every digest
(where they are missing the demo fails, unless --unverified). Then the engine and the ordinary loop
run side by side. Fair comparison needs a release build.

Exit codes: 0 all checks passed; 1 a check failed or could not be made; 4 no space; 130 interrupted";

const SERVER_HELP: &str = "\
Examples:
  dcs server demo                                  # boots a server, compares the designs on it, the card among them
  dcs server demo --size 256MiB --nic igb
  dcs server demo --json | jq -r 'select(.event == \"measurement\") | [.job, .by, .guest_cpu_s_per_gib] | @tsv'
  dcs server bench all                             # the papers' experiments in the guest: dcs server bench --help
  dcs server shell                                 # the same server, and its shell; leave by exit, or Ctrl-A x

It needs an x86-64 Linux, and no root. A QEMU of version 10.1 or later is used where there is one (DCS_QEMU names it);
else QEMU, a kernel and busybox are fetched from Debian's packages into ~/.cache/dcs (70 MB, once).
The card is a process of its own (dcs card); docs/server.md has a picture of who writes to whom.
DCS_VM_CONSOLE=1 shows the guest's console during the demo.

Exit codes: 0 all checks passed; 1 a check or the guest failed; 2 usage; 9 no virtual server can be had here; 130 interrupted";

const CARD_HELP: &str = "\
Examples:
  dcs card /run/user/1000/card &
  qemu-system-x86_64 ... -object memory-backend-memfd,id=m,size=1G,share=on -machine q35,memory-backend=m \\
    -device '{\"driver\":\"vfio-user-pci\",\"socket\":{\"type\":\"unix\",\"path\":\"/run/user/1000/card\"},\"rombar\":0}'

It serves until it is interrupted; QEMU's guests see a card that is pulled out then. dcs server does all of this by itself.";

const BENCH_HELP: &str = "\
Examples:
  dcs bench                                        # five minutes, a table at the end
  dcs bench 'file>md5>socket' --streams 1,16 --seconds 2
  dcs bench 'file>md5>socket' --size 4k --streams 1,64 --open once
  dcs bench 'socket>md5>file' --streams 16 --contenders loop-direct,engine-direct
  dcs bench 'file>sha256,aes256-ctr>socket' --hogs 0,8
  dcs bench 'file>gzip>socket' --json | jq -r '[.contender, .cpu_s_per_gib] | @tsv'
  dcs bench 'file>md5>socket' --svg md5.svg
  dcs bench control                                # instructions of one small transfer
  dcs bench serve                                  # object servers: dcs bench serve --help
  dcs bench gpu                                    # what a GPU does: dcs bench gpu --help
  dcs bench server latency                         # the papers' experiments in virtual time: dcs bench server --help

Each contender is a process of its own, on one core unless --server-cores says otherwise; in each repetition all run
once, in another order. CPU time is that of all its threads and of kernel threads (of which other programs may have
some); the client's is told apart. Ratios are to the contender loop, within a repetition. Every run is checked: a
contender that delivers a wrong byte or digest is an error, not a result. A release build on a quiet machine is needed.
TCP runs with cubic, whatever the machine's default: BBR's timers cost more on loopback than all the rest. The variable
DCS_CONGESTION names another congestion control.
control counts instructions one by one, by ptrace: the same every time, whatever else runs.

Exit codes: 0 measured; 1 a contender failed or delivered wrong bytes; 2 usage; 130 interrupted";
