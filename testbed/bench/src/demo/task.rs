//! The orders to a helper process, and its answers: JSON lines over its standard input and output.

use crate::harness::data::{Direction, KEY};
use crate::host::contender::Contender;
use dcs::{Op, Operator};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::PathBuf;

/// One file of the data set.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Item {
    pub path: PathBuf,
    pub size: u64,
    /// Where a receiver puts it.
    pub copy: PathBuf,
    /// First counter block, of its own for each file: one key, many files.
    pub counter: [u8; 16],
}

/// A job for the measured process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Task {
    pub direction: Direction,
    pub contender: Contender,
    /// Names of the operators.
    pub chain: Vec<String>,
    /// The files of each stream, in order; each stream has one connection.
    pub streams: Vec<Vec<Item>>,
    /// Where the peer listens; a receiver listens itself.
    pub address: Option<String>,
}

/// A job for the process at the other end.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Peer {
    /// Reads and forgets.
    Discard { connections: usize },
    /// Stores each connection's bytes in a file named by its stream's number.
    Store { connections: usize, folder: PathBuf },
    /// Sends files.
    Feed { address: String, streams: Vec<Vec<Item>> },
}

/// Either.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Order {
    Task(Task),
    Peer(Peer),
}

/// The first answer of a helper.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Ready {
    /// Where it listens, if it does.
    pub address: Option<String>,
}

/// The last answer of a helper.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Outcome {
    pub wall_s: f64,
    /// CPU time of all threads of the process.
    pub cpu_s: f64,
    pub bytes_in: u64,
    pub bytes_out: u64,
    /// By stream and file, in order.
    pub files: Vec<Vec<FileOutcome>>,
}

/// The outcome of one file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FileOutcome {
    pub bytes_in: u64,
    pub bytes_out: u64,
    pub digests: Vec<(String, String)>,
    /// The engine's latency breakdown and paths; a loop has none.
    pub breakdown: serde_json::Value,
    pub path: Vec<String>,
}

impl Task {
    /// The chain for one file.
    pub fn ops(&self, item: &Item) -> io::Result<Vec<Op>> {
        let op = |name: &String| {
            Ok(match Operator::from_name(name).ok_or(io::ErrorKind::Unsupported)? {
                Operator::Aes256Ctr => Op::Aes256Ctr { key: KEY, counter: item.counter },
                Operator::Gzip => Op::Gzip { level: 1 },
                other => Op::Raw { number: other as u8, parameter: Vec::new() },
            })
        };
        self.chain.iter().map(op).collect()
    }

    /// `file>md5>socket`.
    pub fn job(&self) -> String {
        let chain = self.chain.join(",");
        match self.direction {
            Direction::Send => format!("file>{chain}>socket"),
            Direction::Receive => format!("socket>{chain}>file"),
        }
    }

    pub fn bytes(&self) -> u64 {
        self.streams.iter().flatten().map(|item| item.size).sum()
    }
}
