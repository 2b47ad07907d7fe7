//! Messages between the benchmark's processes: JSON lines over standard input and output.
//!
//! | from | to | message |
//! |---|---|---|
//! | parent | server | [`Serve`], then a [`Round`] at a time, and during each round [`Signal`]s |
//! | server | parent | [`Listening`], then for each round an [`Account`] |
//! | parent | client | [`ClientTask`], then a [`ClientRound`] at a time |
//! | client | parent | for each round until it is stopped `null` at its first mark, then [`Marks`](crate::harness::figures::Marks); for one of all objects the marks; at the end of each round the bytes |

use super::contender::Contender;
use super::job::Job;
use crate::harness::counters::Counted;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// A file of the data set.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Item {
    /// Path of the original, or where a receiver writes.
    pub path: PathBuf,
    /// Offset in the pool of its first byte.
    pub offset: u64,
    pub length: u64,
    /// First counter block, if it has its own: one key, many files.
    pub counter: Option<[u8; 16]>,
    /// Digests of the whole object, in the order of the chain, in hexadecimal digits; empty if not known beforehand.
    pub expected: Vec<String>,
}

/// Request to a server.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Serve {
    pub contender: Contender,
    pub job: Job,
    /// Files of each stream, used in turn on its one connection.
    pub streams: Vec<Vec<Item>>,
    /// Opens descriptors beforehand, not for each object.
    pub open_once: bool,
    /// Makes the page cache useless.
    pub cold: bool,
    /// Objects are small: latency counts, and each stream has one in flight.
    pub small: bool,
    /// The loops use the engine's own operators, so that libraries are not compared.
    pub same_operators: bool,
    /// Counts instructions, cycles and cache misses between `Begin` and `End`.
    pub counters: bool,
    pub cores: Vec<usize>,
}

/// A round over one set of connections.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Round {
    /// Most bytes of each object.
    pub length: u64,
    pub extent: Extent,
}

/// Objects that each stream moves in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Extent {
    /// The first object.
    First,
    /// Each object once. The account lists each.
    All,
    /// The objects in turn, until told to stop.
    UntilStopped,
}

/// Requests to a server during a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Signal {
    /// Record latencies, and count, from now on.
    Begin,
    /// Stop recording latencies, and counting.
    End,
    /// Begin no further objects.
    Stop,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Listening {
    pub address: String,
    /// Library of its operators, such as `OpenSSL 3.0.19`.
    pub library: String,
}

/// Results of a server's round.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Account {
    pub streams: Vec<StreamAccount>,
    /// Latencies of the objects finished between `Begin` and `End`, in microseconds.
    pub latency_us: Vec<f32>,
    /// Values of the processor's counters for that time, if they were asked for.
    #[serde(default)]
    pub counted: Option<Counted>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct StreamAccount {
    pub objects: u64,
    pub bytes_in: u64,
    pub bytes_out: u64,
    /// Digests of the last object.
    pub digests: Vec<String>,
    /// Whole objects with wrong digests.
    pub wrong: u64,
    /// Results of each object, in a round of all.
    #[serde(default)]
    pub each: Vec<ObjectResult>,
}

/// Outcome of one object.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ObjectResult {
    pub bytes_in: u64,
    pub bytes_out: u64,
    pub digests: Vec<String>,
    /// The engine's latency breakdown; a loop has none.
    pub breakdown: serde_json::Value,
    /// The engine's paths; a loop has none.
    pub path: Vec<String>,
}

/// Request to a client.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ClientTask {
    pub address: String,
    pub job: Job,
    /// Bytes of each stream's objects, in turn.
    pub streams: Vec<Vec<Piece>>,
    /// File that is the pool, if there is one.
    pub pool: Option<PathBuf>,
    pub server_pid: u32,
    pub cores: Vec<usize>,
}

/// An object as the client sends it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Piece {
    /// A whole file; else the object is a part of the pool.
    pub file: Option<PathBuf>,
    pub offset: u64,
    pub length: u64,
}

/// A client's part of a round.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ClientRound {
    pub length: u64,
    pub extent: Extent,
    /// Folder for received data, a file for each stream; without it they are discarded.
    pub store: Option<PathBuf>,
    pub warm_s: f64,
    pub measure_s: f64,
}
