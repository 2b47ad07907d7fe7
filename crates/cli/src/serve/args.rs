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

/// Serves a folder.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct Serve {
    /// Where objects and their records are kept; made if it is not there
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
    /// ADDR:PORT; a PORT alone is of this machine only (127.0.0.1), :PORT of all its addresses; port 0 is any
    /// free one
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:9000", value_parser = listen::parse)]
    pub listen: Listen,
    /// Users: a line for each, with access key, secret key and rights (docs/serve.md). Read again at SIGHUP.
    /// Without it DIR/users, made at the first start
    #[arg(long, value_name = "FILE")]
    pub users: Option<PathBuf>,
    /// Rights of requests without a signature
    #[arg(long, value_enum, default_value = "nothing")]
    pub anonymous: AnonymousMay,
    /// Failures that an answered PUT survives. full: a power loss. metadata: a power loss may take the data
    /// of the last seconds, which digests find. none: the death of the process only
    #[arg(long, value_name = "LEVEL", default_value = "full")]
    pub durability: Durability,
    /// Have objects up to this size share files (packs): at most 128K, and 0 gives each a file of its own. What is
    /// there already stays where it is
    #[arg(long, value_name = "SIZE", value_parser = units::size, default_value = "64K")]
    pub pack: u64,
    /// Compute the digest of every whole object that is read, and cut the answer short where it is wrong
    #[arg(long)]
    pub verify: bool,
    /// The master key of encryption at rest: a file with 64 hexadecimal digits (openssl rand -hex 32)
    #[arg(long, value_name = "FILE")]
    pub master_key: Option<PathBuf>,
    /// Connections at a time. For one more, the one gives way that has waited longest for a request; while
    /// there is none, others wait
    #[arg(long, value_name = "N", default_value = "2048")]
    pub connections: usize,
    /// Transfers at a time; others wait. The engine has room for all of them
    #[arg(long, value_name = "N", default_value = "512", value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub transfers: u16,
    /// End a connection on which no request comes for so long
    #[arg(long, value_name = "TIME", value_parser = units::duration, default_value = "75s")]
    pub idle: Duration,
    /// End a connection on which a request's head, or a small answer, takes longer
    #[arg(long, value_name = "TIME", value_parser = units::duration, default_value = "20s")]
    pub head_timeout: Duration,
    /// End a transfer whose client moves data more slowly, in bytes a second, ...
    #[arg(long, value_name = "SIZE", value_parser = units::size, default_value = "4K")]
    pub min_rate: u64,
    /// ... for so long, or nothing at all; in a sixth of it while others wait for its place
    #[arg(long, value_name = "TIME", value_parser = units::duration, default_value = "30s")]
    pub patience: Duration,
    /// Read every object so often, and keep those that are damaged from readers: 7d
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    pub scrub_every: Option<Duration>,
    /// Read no more for that, in bytes a second
    #[arg(long, value_name = "SIZE", value_parser = units::size, default_value = "50M")]
    pub scrub_rate: u64,
    /// Serve over TLS, with this chain of certificates in PEM. It costs the connection's core the encryption
    /// and two copies more
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// The certificate's key in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Take keys of customers (SSE-C) over plain connections from other machines, too: where a proxy in front
    /// speaks TLS
    #[arg(long)]
    pub customer_keys_without_tls: bool,
    /// Who may see /_dcs/ (the status page), /_dcs/status.json and /_dcs/metrics: who comes from this machine
    /// (and not by a proxy), or everybody. /_dcs/health is for everybody always
    #[arg(long, value_name = "WHO", value_enum, default_value = "loopback")]
    pub status_for: StatusMay,
    /// Time that answers under way have after a signal to stop
    #[arg(long, value_name = "TIME", value_parser = units::duration, default_value = "30s")]
    pub grace: Duration,
    /// Write objects of 1 MiB and more through the page cache. auto: past it where they have to be on the
    /// disk anyway (durability full) and the file system can; the first GET then reads the disk
    #[arg(long, value_enum, default_value = "auto")]
    pub write_cache: WriteCache,
    /// Cores to serve on: a number, or all. Each has an engine and an event loop of its own; limits are of all
    /// together
    #[arg(long, value_name = "N", default_value = "1")]
    pub cores: Cores,
    /// Run the engine's thread on this processor; of several cores 0,1,2: one for each
    #[arg(long, value_name = "N", value_delimiter = ',')]
    pub core: Vec<usize>,
    /// Logs on standard error: for people, or an object a line. DCS_LOG=warn makes them fewer
    #[arg(long, value_enum, default_value = "text")]
    pub log: Log,
}

/// See [`Anonymous`].
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

/// See [`StatusFor`].
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum StatusMay {
    /// Who comes from this machine
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

/// Choice of whether large objects are written through the page cache.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum WriteCache {
    /// As the durability asks for
    Auto,
    /// Through it
    On,
    /// Past it
    Off,
}

/// The format of logs.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Log {
    /// A line for people
    Text,
    /// A JSON object a line
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
      for other machines too, over TLS; every object's digest checked when it is read; logs for a machine
docs/serve.md tells more.";
