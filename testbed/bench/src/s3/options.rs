//! The command line of `dcs bench s3`.

use crate::harness::cores::ServerCores;
use crate::units;
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// Numbers of clients measured with `--all`.
pub const CLIENTS: [usize; 3] = [1, 8, 64];
/// Most clients.
pub const CLIENTS_MAX: usize = 2000;
/// Clients of `--memory` unless given.
pub const MEMORY_CLIENTS: usize = 1000;
/// Object sizes measured with `--all`.
pub const SIZES: [u64; 4] = [64 << 10, 1 << 20, 16 << 20, 128 << 20];
/// Most bytes of an object.
pub const SIZE_MAX: u64 = 1 << 30;

#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct Options {
    /// Jobs to measure: put, get; both by default
    #[arg(value_name = "JOB", value_enum)]
    pub jobs: Vec<Job>,
    /// List the contenders, whether each is available here, and how it stores; measure nothing
    #[arg(long)]
    pub list: bool,
    /// Measure the whole grid: objects of 64k, 1M, 16M and 128M, with 1, 8 and 64 clients
    #[arg(long, conflicts_with = "memory")]
    pub all: bool,
    /// Measure each server's peak memory while 1000 clients, or as many as --clients says, move objects slowly
    #[arg(long, conflicts_with_all = ["cold", "svg", "requests"])]
    pub memory: bool,
    /// Concurrent clients, each on a persistent connection
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = units::count::<1, CLIENTS_MAX>)]
    pub clients: Vec<usize>,
    /// Bytes of each object
    #[arg(long, value_name = "SIZE", value_delimiter = ',', value_parser = units::size)]
    pub size: Vec<u64>,
    /// Contenders; by default all that are available
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub contenders: Vec<String>,
    /// Measured seconds of each run, after a warm-up of one second, or of twice --seconds if that is less; a run lasts
    /// until
    /// each client has made two requests, but at most ten times as long
    #[arg(long, value_name = "S", value_parser = units::seconds, default_value = "2")]
    pub seconds: f64,
    /// End each run after this many requests instead
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub requests: Option<u64>,
    /// Runs of each contender; the results are medians
    #[arg(long, default_value = "3", value_parser = clap::value_parser!(u32).range(1..=99))]
    pub runs: u32,
    /// Start with a cold page cache: drop it before each run, and get each object once per run
    #[arg(long, conflicts_with = "requests")]
    pub cold: bool,
    /// Cores of the servers, a number or all; the clients use the others
    #[arg(long, value_name = "N", default_value = "1")]
    pub server_cores: ServerCores,
    /// Plot CPU seconds per GiB against clients
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Folder for the objects, on the file system to measure: some GiB
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Leaves out contenders that are named but not available
    #[arg(skip)]
    pub lenient: bool,
}

/// Jobs of the clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum)]
pub enum Job {
    Put,
    Get,
}

impl Job {
    pub fn name(self) -> &'static str {
        match self {
            Job::Put => "put",
            Job::Get => "get",
        }
    }
}

const HELP: &str = "\
Examples:
  dcs bench s3                                      # a few minutes: 16M with 8 clients, 64k with 64, PUT and GET
  dcs bench s3 --list                               # contenders, and what a finished PUT has on the disk
  dcs bench s3 get --size 1M --clients 1,64 --contenders dcs,dcs-verify,nginx
  dcs bench s3 put --size 64k --clients 64 --seconds 5 --runs 5
  dcs bench s3 get --cold --size 16M --dir /mnt/nvme
  dcs bench s3 --all --svg serve.svg --json > serve.json
  dcs bench s3 --memory                             # peak memory with 1000 clients

Contenders are S3 servers: dcs (dcs serve), versitygw, MinIO and rclone, each with one folder of the same file system, and nginx
for GET alone. The first run builds those that are written in Go, of pinned versions, into ~/.cache/dcs/serve: it needs Go and the
Go module proxy, a quarter of an hour and 6 GiB. nginx is Debian's (apt-get install nginx-light). Contenders that are not available are
left out, with a message; those that --contenders names must be available.

Each server has one core unless --server-cores says otherwise, and runs alone; in each repetition all run once, in another order.
Clients speak HTTP/1.1 on persistent connections, with presigned URLs and unsigned payload (nginx: unsigned). CPU time is that
of all threads and children of the server and of kernel threads (which may include work of other programs); the clients' is reported
separately. Every answer is checked: status, length, ETag; and in each run all bytes of some objects. A contender that gives a wrong
answer is an error, not a result. Contenders differ in what is on the disk when a PUT is answered: a column shows it, and
dcs runs at both levels. Ratios are to versitygw, or else to nginx, within a repetition. Use a release build on a quiet machine.
As root it runs in a network namespace of its own, where all use cubic congestion control; else they use the machine's default.

Exit codes: 0 measured; 1 a contender failed or delivered wrong bytes; 2 usage; 4 no space; 7 a named contender is not available;
            130 interrupted";
