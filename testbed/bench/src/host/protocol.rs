//! Messages between the benchmark's processes: JSON lines over standard input and output.
//!
//! | from | to | what |
//! |---|---|---|
//! | parent | server | [`Serve`], then a [`Round`] at a time, and during it [`Word`]s |
//! | server | parent | [`Listening`], then for each round an [`Account`] |
//! | parent | client | [`Drive`], then a [`ClientRound`] at a time |
//! | client | parent | for each round until it is stopped `null` at its first mark, then [`Marks`](crate::harness::figures::Marks); for one of all objects the marks; at the end of each round the bytes |

use super::contender::Contender;
use super::job::Job;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// One file of the data set.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Item {
    /// The original, or where a receiver puts it.
    pub path: PathBuf,
    /// Where its bytes begin in the pool.
    pub offset: u64,
    pub length: u64,
    /// The first counter block, where it has one of its own: one key, many files.
    pub counter: Option<[u8; 16]>,
    /// Digests of the whole object, in the order of the chain, in hexadecimal digits; empty where they are
    /// not known before.
    pub expected: Vec<String>,
}

/// The order to a server.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Serve {
    pub contender: Contender,
    pub job: Job,
    /// The files of each stream; each stream has one connection, and takes its files in turn.
    pub streams: Vec<Vec<Item>>,
    /// Descriptors are opened before, not for each object.
    pub open_once: bool,
    /// The page cache is to be of no use.
    pub cold: bool,
    /// Objects are small: latency counts, and one is in flight in each stream.
    pub small: bool,
    /// The loops have the engine's own operators, so that libraries are not compared.
    pub same_operators: bool,
    pub cores: Vec<usize>,
}

/// One set of connections.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Round {
    /// Bytes of each object, where it has as many.
    pub length: u64,
    pub extent: Extent,
}

/// The objects that each stream moves in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Extent {
    /// The first one.
    First,
    /// Each once. The account tells of each.
    All,
    /// In turn, until told to stop.
    UntilStopped,
}

/// Orders to a server during a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Word {
    /// Latencies count from now on.
    Begin,
    /// Latencies count no more.
    End,
    /// No further objects.
    Stop,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Listening {
    pub address: String,
    /// Whose operators it has: `OpenSSL 3.0.19`.
    pub library: String,
}

/// The results of a server's round.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Account {
    pub streams: Vec<StreamAccount>,
    /// Of the objects that were done between `Begin` and `End`, in microseconds.
    pub latency_us: Vec<f32>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct StreamAccount {
    pub objects: u64,
    pub bytes_in: u64,
    pub bytes_out: u64,
    /// Of the last object.
    pub digests: Vec<String>,
    /// Whole objects whose digests were not as expected.
    pub wrong: u64,
    /// Each object, in a round of all.
    #[serde(default)]
    pub each: Vec<Told>,
}

/// The outcome of one object.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Told {
    pub bytes_in: u64,
    pub bytes_out: u64,
    pub digests: Vec<String>,
    /// The engine's latency breakdown and paths; a loop has none.
    pub breakdown: serde_json::Value,
    pub path: Vec<String>,
}

/// The order to a client.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Drive {
    pub address: String,
    pub job: Job,
    /// The bytes of each stream's objects, in turn.
    pub streams: Vec<Vec<Piece>>,
    /// The file that is the pool, where there is one.
    pub pool: Option<PathBuf>,
    pub server_pid: u32,
    pub cores: Vec<usize>,
}

/// An object as the client sends it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Piece {
    /// The whole of this file, or a part of the pool.
    pub file: Option<PathBuf>,
    pub offset: u64,
    pub length: u64,
}

/// A client's part of a round.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ClientRound {
    pub length: u64,
    pub extent: Extent,
    /// Where to put what is received, a file for each stream; it is forgotten where that is not said.
    pub store: Option<PathBuf>,
    pub warm_s: f64,
    pub measure_s: f64,
}
