//! The command line of `dcs serve`.

use super::listen::{self, Listen};
use crate::units;
use clap::{Args, ValueEnum};
use dcs::Cores;
use dcs_server::access::Anonymous;
use dcs_server::status::StatusFor;
use dcs_server::store::Durability;
use std::path::PathBuf;
use std::time::Duration;

/// Options of the server.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct Serve {
    /// Folder for objects and their records; made if it does not exist
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
    /// Address to listen on. PORT alone listens on this machine only (127.0.0.1), :PORT on all its addresses; port 0
    /// takes any free one
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:9000", value_parser = listen::parse)]
    pub listen: Listen,
    /// File of users: a line for each, with access key, secret key and rights (docs/serve.md). Read again at SIGHUP
    /// (default: DIR/users, made at the first start)
    #[arg(long, value_name = "FILE")]
    pub users: Option<PathBuf>,
    /// Rights of requests without a signature
    #[arg(long, value_enum, default_value = "nothing")]
    pub anonymous: AnonymousMay,
    /// Failures that an acknowledged PUT survives. full: a power loss. metadata: a power loss may take data of the last
    /// seconds, which digests detect. none: only the death of the process
    #[arg(long, value_name = "LEVEL", default_value = "full")]
    pub durability: Durability,
    /// Largest object that shares files with others (packs): at most 128K, and 0 gives each object its own file.
    /// Existing objects stay where they are
    #[arg(long, value_name = "SIZE", value_parser = units::size, default_value = "64K")]
    pub pack: u64,
    /// Compute the digest of every whole object that is read, and cut the answer short if it is wrong
    #[arg(long)]
    pub verify: bool,
    /// Master key of encryption at rest: a file with 64 hexadecimal digits (openssl rand -hex 32)
    #[arg(long, value_name = "FILE")]
    pub master_key: Option<PathBuf>,
    /// Most connections. For one more, the connection that has waited longest for a request is closed; if there is
    /// none, new ones wait
    #[arg(long, value_name = "N", default_value = "2048")]
    pub connections: usize,
    /// Most transfers at the same time; others wait. The engine has room for all of them
    #[arg(long, value_name = "N", default_value = "512", value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub transfers: u16,
    /// End a connection after this time without a request
    #[arg(long, value_name = "TIME", value_parser = units::duration, default_value = "75s")]
    pub idle: Duration,
    /// End a connection whose request head, or small answer, takes longer
    #[arg(long, value_name = "TIME", value_parser = units::duration, default_value = "20s")]
    pub head_timeout: Duration,
    /// Slowest rate of a client, in bytes a second, before its transfer may be ended
    #[arg(long, value_name = "SIZE", value_parser = units::size, default_value = "4K")]
    pub min_rate: u64,
    /// Time after which a slower transfer is ended; a sixth of it while others wait for its place
    #[arg(long, value_name = "TIME", value_parser = units::duration, default_value = "30s")]
    pub patience: Duration,
    /// Time between two scrubs, which read every object and keep damaged ones from readers, for example 7d (default:
    /// never)
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    pub scrub_every: Option<Duration>,
    /// Most bytes that a scrub reads a second
    #[arg(long, value_name = "SIZE", value_parser = units::size, default_value = "50M")]
    pub scrub_rate: u64,
    /// Certificate chain in PEM, to serve over TLS. This costs the connection's core the encryption and two more copies
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// Key of the certificate, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Take customers' keys (SSE-C) over plain connections from other machines too, for a server behind a proxy that
    /// speaks TLS
    #[arg(long)]
    pub customer_keys_without_tls: bool,
    /// Clients that may see /_dcs/ (the status page), /_dcs/status.json and /_dcs/metrics: those on this machine (and
    /// not behind a proxy), or all. /_dcs/health is always for all
    #[arg(long, value_name = "WHO", value_enum, default_value = "loopback")]
    pub status_for: StatusMay,
    /// Time for answers in progress after a signal to stop
    #[arg(long, value_name = "TIME", value_parser = units::duration, default_value = "30s")]
    pub grace: Duration,
    /// Write objects of 1 MiB and more through the page cache. auto bypasses it if they must be on the disk anyway
    /// (durability full) and the file system supports it; the first GET then reads the disk
    #[arg(long, value_enum, default_value = "auto")]
    pub write_cache: WriteCache,
    /// Cores to serve on: a number, or all. Each has its own engine and event loop; limits apply to all together
    #[arg(long, value_name = "N", default_value = "1")]
    pub cores: Cores,
    /// Processor for the engine's thread; with several cores, one for each: 0,1,2
    #[arg(long, value_name = "N", value_delimiter = ',')]
    pub core: Vec<usize>,
    /// Format of logs on standard error: for people, or a JSON object per line. DCS_LOG=warn reduces them
    #[arg(long, value_enum, default_value = "text")]
    pub log: Log,
}

/// Rights of clients without credentials: see [`Anonymous`].
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum AnonymousMay {
    /// Nothing
    Nothing,
    /// Read objects and list them
    Read,
    /// Everything
    All,
}

impl From<AnonymousMay> for Anonymous {
    fn from(may: AnonymousMay) -> Anonymous {
        match may {
            AnonymousMay::Nothing => Anonymous::Nothing,
            AnonymousMay::Read => Anonymous::Read,
            AnonymousMay::All => Anonymous::All,
        }
    }
}

/// Clients that may see the status page: see [`StatusFor`].
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum StatusMay {
    /// Clients on this machine
    Loopback,
    /// Everybody
    All,
}

impl From<StatusMay> for StatusFor {
    fn from(may: StatusMay) -> StatusFor {
        match may {
            StatusMay::Loopback => StatusFor::Loopback,
            StatusMay::All => StatusFor::All,
        }
    }
}

/// Use of the page cache for writing large objects.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum WriteCache {
    /// Depends on the durability
    Auto,
    /// Through the page cache
    On,
    /// Bypass the page cache
    Off,
}

/// Format of logs.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Log {
    /// A line of text
    Text,
    /// A JSON object per line
    Json,
}

const HELP: &str = "\
Examples:
  dcs serve /srv/objects
      serves at 127.0.0.1:9000; the first start makes a user and prints its keys
  aws --endpoint-url http://127.0.0.1:9000 s3 mb s3://photos
  aws --endpoint-url http://127.0.0.1:9000 s3 cp holiday.jpg s3://photos/
      with AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment
  dcs serve /srv/objects --cores all
      on all cores of the machine
  dcs serve /srv/objects --listen :9000 --tls-cert cert.pem --tls-key key.pem --verify --log json
      for other machines too, over TLS; checks every object's digest when it is read; logs JSON
docs/serve.md tells more.";
