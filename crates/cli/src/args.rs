//! The command line. Help teaches by example: every subcommand ends with commands that work as shown.

use crate::report::Report;
use crate::units;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Move bytes between files and sockets through digests, ciphers and compression, with one command per
/// transfer.
#[derive(Debug, Parser)]
#[command(name = "dcs", version, after_help = EXAMPLES)]
pub struct Arguments {
    #[command(flatten)]
    pub output: dcs_console::report::Options,
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
    /// Send videos (MPEG transport streams) in datagrams, each when it is due: UDP, RTP, multicast; a thousand
    /// from one thread
    Stream(crate::stream::args::Stream),
    /// Record a video that comes in datagrams
    Record(crate::stream::args::Record),
    /// List the operators, and measure them on this machine
    Ops(Ops),
    /// Run the main job on generated data, check every byte, and compare with the ordinary loop
    #[command(disable_help_flag = true)]
    Demo(Companion),
    /// Measure what jobs cost, compared with other ways to do them
    #[command(disable_help_flag = true)]
    Bench(Companion),
    /// Boot a whole server in QEMU: the engine as a PCIe card that drives an SSD and a NIC, and a stock Linux
    /// guest
    #[command(disable_help_flag = true)]
    Vm(Companion),
    /// Give virtual machines NVMe drives from files and disks, with one process for all of them
    #[command(disable_help_flag = true)]
    Csd(Companion),
    /// Run a program that uses sendfile(2), with its files going through a chain of operators
    Run(crate::run::Run),
    /// Serve a folder as an S3 object server
    Serve(crate::serve::Serve),
    /// Scrub the folder of an object server for damaged objects
    Scrub(crate::scrub::Scrub),
    /// Show what this machine can do, which path will run for what, and how to fix what is missing
    Doctor(Doctor),
    /// Serve the card to a QEMU of your own
    Card(Card),
    /// Lend parts of the card's SSDs to other functions of the card, until interrupted
    Lend(Lend),
    /// An SSD that sends videos to a NIC by itself, for a QEMU of your own, and their driver in the guest
    D2d(crate::d2d::args::D2d),
    /// Write man pages and completions into a folder, for make install
    #[command(hide = true)]
    Pages { folder: PathBuf },
}

/// Command of another program, which parses its arguments.
#[derive(Debug, Args)]
pub struct Companion {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    _arguments: Vec<OsString>,
}

impl Arguments {
    /// Makes the report of the command's results.
    pub fn report(&self) -> Report {
        let report = |name| Report::new(name, &self.output);
        let to = |name, destination: &OsString| match destination == "-" {
            true => report(name).results_to_stderr(),
            false => report(name),
        };
        match &self.command {
            Command::Send(send) => to("send", &send.to),
            Command::Recv(recv) => to("recv", &recv.file),
            Command::Copy(copy) => to("copy", &copy.to),
            Command::Stream(_) => report("stream"),
            Command::Record(record) => to("record", &record.file),
            Command::Ops(_) => report("ops"),
            Command::Demo(_) => report("demo"),
            Command::Bench(_) => report("bench"),
            Command::Vm(_) => report("vm"),
            Command::Csd(_) => report("csd"),
            Command::Run(_) => report("run"),
            Command::Serve(_) => report("serve"),
            Command::Scrub(_) => report("scrub"),
            Command::Doctor(_) => report("doctor"),
            Command::Card(_) => report("card"),
            Command::Lend(_) => report("lend"),
            Command::D2d(_) => report("d2d"),
            Command::Pages { .. } => report("pages"),
        }
    }
}

#[derive(Debug, Args)]
#[command(after_help = SEND_HELP)]
pub struct Send {
    /// File, FIFO or block device; nvme:FUNCTION/NAMESPACE@LBA+LENGTH for an SSD driven directly; - for
    /// standard input
    pub file: OsString,
    /// HOST:PORT, unix:PATH, or - for standard output
    pub to: OsString,
    #[command(flatten)]
    pub moving: Moving,
    /// First byte to send (files and block devices)
    #[arg(long, value_name = "SIZE", value_parser = units::size, default_value = "0")]
    pub offset: u64,
    /// Bytes to send (default: all)
    #[arg(long, value_name = "SIZE", value_parser = units::size)]
    pub length: Option<u64>,
    /// Zero-copy send: on demands it, off also forbids the kernel's own copy
    #[arg(long, value_enum, default_value = "auto")]
    pub zero_copy: Choice,
    /// Keep trying to connect for this long
    #[arg(long, value_name = "TIME", value_parser = units::duration, default_value = "30s")]
    pub connect_timeout: Duration,
    #[command(flatten)]
    pub nic: NicOptions,
}

#[derive(Debug, Args)]
#[command(after_help = RECV_HELP)]
pub struct Recv {
    /// PORT (on all addresses), HOST:PORT (on that one), or unix:PATH; port 0 takes any free one
    pub from: OsString,
    /// File to receive into; nvme:FUNCTION/NAMESPACE@LBA+LENGTH; - for standard output
    pub file: OsString,
    #[command(flatten)]
    pub moving: Moving,
    #[command(flatten)]
    pub sink: SinkOptions,
    /// Bytes to receive (default: until the sender ends)
    #[arg(long, value_name = "SIZE", value_parser = units::size)]
    pub length: Option<u64>,
    /// Wait this long for a connection (default: no limit)
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    pub accept_timeout: Option<Duration>,
    #[command(flatten)]
    pub nic: NicOptions,
}

/// A NIC that this process drives.
#[derive(Debug, Args)]
pub struct NicOptions {
    /// PCI function of a NIC to drive directly, bypassing the kernel's driver and its TCP (see dcs doctor)
    #[arg(long, value_name = "FUNCTION", requires = "address")]
    pub nic: Option<String>,
    /// IPv4 address of the NIC, with the prefix length of its network: 10.0.2.15/24
    #[arg(long, value_name = "ADDRESS/PREFIX", requires = "nic")]
    pub address: Option<String>,
    /// Default gateway
    #[arg(long, value_name = "ADDRESS", requires = "nic")]
    pub gateway: Option<std::net::Ipv4Addr>,
}

#[derive(Debug, Args)]
#[command(after_help = COPY_HELP)]
pub struct Copy {
    /// File, FIFO or block device; nvme:FUNCTION/NAMESPACE@LBA+LENGTH; - for standard input
    pub from: OsString,
    /// File or folder; nvme:FUNCTION/NAMESPACE@LBA+LENGTH; - for standard output
    pub to: OsString,
    #[command(flatten)]
    pub moving: Moving,
    #[command(flatten)]
    pub sink: SinkOptions,
    /// Fail if the destination exists, instead of replacing it
    #[arg(long, short)]
    pub no_clobber: bool,
}

/// Options of all transfers.
#[derive(Debug, Args)]
pub struct Moving {
    /// Operators that the data pass, in order: md5,aes256-ctr,gzip:9 (dcs ops lists them)
    #[arg(long, value_name = "OPERATORS")]
    pub through: Vec<String>,
    #[command(flatten)]
    pub ciphers: CipherOptions,
    /// Page cache: off bypasses it (O_DIRECT)
    #[arg(long, value_enum, default_value = "auto")]
    pub cache: Choice,
    /// Fail if the transfer takes longer
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    pub timeout: Option<Duration>,
    /// Interface to the kernel: auto takes io_uring if it is available, else plain system calls
    #[arg(long, value_enum, default_value = "auto")]
    pub io: IoChoice,
    /// GPU that runs operators prefixed with gpu:, as in gpu:md5
    #[arg(long, value_name = "N", default_value = "0")]
    pub gpu: u32,
    /// Have that GPU read files itself (GPUDirect Storage) if it runs the first operator (see dcs doctor)
    #[arg(long, value_enum, default_value = "auto")]
    pub gpu_storage: Choice,
}

/// Options for keys and counters.
#[derive(Debug, Args)]
pub struct CipherOptions {
    /// Key of the next cipher in the chain: raw bytes or hexadecimal digits (default: DCS_KEY, DCS_KEY_2, ...)
    #[arg(long, value_name = "FILE")]
    pub key_file: Vec<PathBuf>,
    /// First counter block of the next aes256-ctr. To encrypt, random draws one and prints it; to decrypt, give its 32
    /// hexadecimal digits
    #[arg(long, value_name = "HEX")]
    pub iv: Vec<String>,
}

/// Options for a written file.
#[derive(Debug, Args)]
pub struct SinkOptions {
    /// Write into the file itself, instead of a temporary file that replaces it at the end
    #[arg(long)]
    pub in_place: bool,
    /// Make the file durable (fdatasync, and fsync of its folder) before finishing
    #[arg(long)]
    pub durable: bool,
    /// Fail unless a digest in the chain has this value: md5=HEX
    #[arg(long, value_name = "DIGEST=HEX")]
    pub expect: Vec<String>,
}

#[derive(Debug, Args)]
#[command(after_help = OPS_HELP)]
pub struct Ops {
    /// Only list the operators
    #[arg(long)]
    pub no_measure: bool,
    /// Keep a WebAssembly module as an operator named after its file: mine.wasm becomes mine
    #[arg(long, value_name = "FILE", conflicts_with = "unload")]
    pub load: Option<PathBuf>,
    /// Forget a kept module
    #[arg(long, value_name = "NAME")]
    pub unload: Option<String>,
}

#[derive(Debug, Args)]
#[command(after_help = DOCTOR_HELP)]
pub struct Doctor {
    /// PCI functions of SSDs and NICs: fail unless each can be driven directly
    #[arg(value_name = "FUNCTION")]
    pub functions: Vec<String>,
    /// Folder whose file system is probed
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub dir: PathBuf,
    /// Take an SSD or a NIC that nothing uses from the kernel's driver, and bind it to vfio-pci
    #[arg(long, value_name = "FUNCTION", conflicts_with_all = ["functions", "release"])]
    pub bind: Option<String>,
    /// Return an SSD or a NIC to the kernel's driver
    #[arg(long, value_name = "FUNCTION", conflicts_with = "functions")]
    pub release: Option<String>,
}

#[derive(Debug, Args)]
#[command(after_help = CARD_HELP)]
pub struct Card {
    /// Unix socket to serve the card at (vfio-user); of several, each serves a function to a guest of its own
    #[arg(required = true, value_name = "SOCKET")]
    pub sockets: Vec<PathBuf>,
    /// Memory of the card, a power of two: blocks, queues, rings
    #[arg(long, value_name = "SIZE", value_parser = units::size, default_value = "16MiB")]
    pub memory: u64,
    /// Weights of the functions, 1 to 256, in the order of the sockets: each gets slots, blocks and operators' time in
    /// proportion while several have work (default: 1 each)
    #[arg(long, value_name = "WEIGHTS", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..=256))]
    pub weights: Vec<u16>,
    /// Core, units, and controllers of SSDs and NICs of its engine; rtl needs a dcs that was built with the feature rtl
    #[arg(long, value_enum, default_value = "rust")]
    pub engine: CardEngine,
}

#[derive(Debug, Args)]
#[command(after_help = LEND_HELP)]
pub struct Lend {
    /// FUNCTION=DEVICE, or FUNCTION=DEVICE@FIRST+LENGTH in bytes: a block device of an SSD that the card drives, for
    /// example a partition, which nobody else uses meanwhile
    #[arg(required = true, value_name = "PART", value_parser = wanted)]
    pub parts: Vec<Wanted>,
    /// Lend them to be read only
    #[arg(long)]
    pub read_only: bool,
}

/// A part to lend, as the command line names it: `1=/dev/nvme0n1p2`, `1=/dev/nvme0n1@4MiB+1GiB`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    pub function: u16,
    pub device: PathBuf,
    /// First byte and length; `None`: all of the device.
    pub range: Option<(u64, u64)>,
}

/// Parses a part to lend.
pub fn wanted(text: &str) -> Result<Wanted, String> {
    const LIKE: &str =
        "expected FUNCTION=DEVICE, or FUNCTION=DEVICE@FIRST+LENGTH, like 1=/dev/nvme0n1@4MiB+1GiB";
    let (function, rest) = text.split_once('=').ok_or(LIKE)?;
    let function = function.parse().map_err(|_| LIKE)?;
    // A name may have the sign itself.
    let range = |text: &str| {
        let (first, length) = text.split_once('+')?;
        Some((units::size(first).ok()?, units::size(length).ok()?))
    };
    let parted = rest.rsplit_once('@').and_then(|(device, text)| Some((device, range(text)?)));
    let (device, range) = parted.map_or((rest, None), |(device, range)| (device, Some(range)));
    if device.is_empty() {
        return Err(LIKE.into());
    }
    Ok(Wanted { function, device: device.into(), range })
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum CardEngine {
    /// The Rust core
    Rust,
    /// Core, processing units, and controllers of SSDs and NICs in SystemVerilog, simulated
    Rtl,
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

A file's name may have any bytes. Messages show an unprintable one as bash writes it: $'a\\xff\\n b'. JSON has U+FFFD for what
is not UTF-8, and a second field with all bytes in hexadecimal digits: source_hex for source.

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
Otherwise, even if it is killed, the connection is reset, and dcs recv fails. (On a Unix socket only dcs
recv notices; another program sees an ordinary end.) Only the receiver knows that its file is in place.
With DCS_BACKEND=card a dcs card in this machine does it, on the devices that DCS_CARD_DISKS and DCS_CARD_NIC name.
With DCS_BACKEND=drive, in a guest, a virtual drive of dcs csd runs the operators next to its disk, on files stored there.

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

A PORT alone listens on all addresses; 127.0.0.1:PORT takes connections from this machine only.
It accepts one connection. FILE appears, or is replaced, only when all has been received and is as
expected. Until then the data are in a temporary file next to it. A dcs send that fails or is killed makes
recv fail, and FILE stays as it was. Other senders just close, whatever the reason: give --length or
--expect for them. A replaced file keeps its owner, group, mode and access list, as dcs copy --help says.
A FILE that is a pipe or a device, - and --in-place are written directly.
With DCS_BACKEND=card a dcs card in this machine does it, on the devices that DCS_CARD_DISKS and DCS_CARD_NIC name.
With DCS_BACKEND=drive, in a guest, a virtual drive of dcs csd runs the operators next to its disk, on files stored there.

",
    exit_codes!()
);

const COPY_HELP: &str = concat!(
    "\
Examples:
  dcs copy log log.gz --through gzip:9
  dcs copy log.gz - --through gunzip | less
  dcs copy disk.img /backup/ --through sha256 --durable
  dcs copy access.log - --through grep:ERROR
  dcs copy log.gz - --through 'gunzip,grep:-iv:debug|trace'
  dcs copy plain sealed --through aes256-ctr --key-file key --iv random     # prints the counter
  dcs copy sealed plain --through aes256-ctr --key-file key --iv $iv        # and back
  dcs copy plain sealed --through aes256-xts:512 --key-file key64           # undo: aes256-xts-decrypt:512
  dcs copy download.iso /backup/ --through md5 --expect md5=$sum

As cp does, it replaces TO (--no-clobber: it fails instead), copies into TO if that is a folder, follows
symbolic links, keeps holes where the chain changes no data, and refuses to copy a file onto itself. A new
file gets the permissions of FROM, but not set-uid and set-gid. A replaced one keeps its own owner, group,
permissions, access list and attributes; if its owner or group cannot be kept, it loses set-uid or set-gid.

Unlike cp it never leaves half a file: TO changes at once, after success, and after a crash it is the old
file or the new one. It becomes a new file, so other hard links keep the old data. --in-place writes into
the file itself. Only --durable waits until the new file will survive a crash.

With DCS_BACKEND=card a dcs card in this machine does it, on the devices that DCS_CARD_DISKS and DCS_CARD_NIC name.
With DCS_BACKEND=drive, in a guest, a virtual drive of dcs csd runs the operators next to its disk, on files stored there.

",
    exit_codes!()
);

const DOCTOR_HELP: &str = "\
Examples:
  dcs doctor                            # what this machine can do, and how to fix what is missing
  dcs doctor --json | jq -r 'select(.state == \"missing\") | .fix'
  dcs doctor 0000:01:00.0               # for scripts: can it be driven by dcs send nvme:0000:01:00.0 ... now?
  dcs doctor --bind 0000:01:00.0        # takes the SSD (or NIC) from the kernel, if nothing uses it
  dcs doctor --release 0000:01:00.0     # returns it

ok: as it should be. note: it works, with less. missing: a path that needs it will not run. unread: it can't
be found out here, for example in a container.

Exit codes: 0 transfers run here, and every FUNCTION can be driven; 1 otherwise, or in use; 2 usage; 6 not permitted; 7 not found";

const OPS_HELP: &str = "\
Examples:
  dcs ops
  dcs ops --no-measure
  dcs ops --json | jq -r 'select(.gib_per_s > 1) | .name'
  dcs ops --load upper.wasm             # an operator of your own, in WebAssembly; docs/wasm.md says how to write one
  dcs copy notes - --through upper
  dcs ops --unload upper

Modules are kept in DCS_OPERATORS, or dcs/operators in the user's data folder (XDG_DATA_HOME, ~/.local/share). A
module that is not kept is named by its file: --through ./upper.wasm. It has no access to files or the network, and
limits of memory, and of time for each byte; if it exceeds one, its transfer fails.

Rates are of one stream on one core, in blocks of 64 KiB, about 0.2 s each. A decompressor's is of what it
writes, all others' of what they read. dcs bench gpu measures what a GPU does.";

const CARD_HELP: &str = "\
Examples:
  dcs card /run/user/1000/card &
  qemu-system-x86_64 ... -object memory-backend-memfd,id=m,size=1G,share=on -machine q35,memory-backend=m \\
    -device '{\"driver\":\"vfio-user-pci\",\"socket\":{\"type\":\"unix\",\"path\":\"/run/user/1000/card\"},\"rombar\":0}'

  dcs card /run/user/1000/f0 /run/user/1000/f1    # two functions: the first guest lends parts of its SSDs to the second

It serves until it is interrupted; then QEMU's guests see the card pulled out. dcs vm does all of this by itself.
Function 0, at the first socket, has the card's memory and devices. The guests of the others use what it lends them.";

const LEND_HELP: &str = "\
Examples, in the guest that has the card's function 0:
  export DCS_CARD_DISKS=0000:00:05.0=/dev/nvme0n1
  dcs lend 1=/dev/nvme0n1p2                              # a partition
  dcs lend 1=/dev/nvme0n1@4MiB+1GiB 2=/dev/nvme0n1@2GiB+1GiB
  dcs lend 1=/dev/nvme0n1p3 2=/dev/nvme0n1p3 --read-only # the same one to two functions

It says the number of each part, by which the function's guest opens it (Engine::open_part), and runs until it is
interrupted. Then it takes the parts back, and ends when the SSDs have ended what the functions began on them.
DCS_CARD names the card's function 0 if there are several functions in this machine. Meanwhile no other command can
have this function: it is this one's.";
