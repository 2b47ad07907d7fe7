//! What the guest is told to do, and what it tells back: JSON lines over a connection of the guest's kernel.

use crate::workload::random::Random;
use dcs::{Op, Operator};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddrV4;

/// Bytes of an object: what one transfer moves.
pub const OBJECT: usize = 1 << 20;
/// The key of SP 800-38A, F.5.5: no secret, as the data are none.
const KEY: [u8; 32] = [
    0x60, 0x3d, 0xeb, 0x10, 0x15, 0xca, 0x71, 0xbe, 0x2b, 0x73, 0xae, 0xf0, 0x85, 0x7d, 0x77, 0x81, 0x1f,
    0x35, 0x2c, 0x07, 0x3b, 0x61, 0x08, 0xd7, 0x2d, 0x98, 0x10, 0xa3, 0x09, 0x14, 0xdf, 0xf4,
];

/// Who does the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Who {
    /// The card, on its own controller of the SSD and its own NIC.
    Card,
    /// A loop of system calls, on the controller and the NIC that the guest's kernel has.
    Host,
}

impl Who {
    pub fn name(self) -> &'static str {
        match self {
            Who::Card => "card",
            Who::Host => "host",
        }
    }
}

/// Which way the objects go, seen from the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Direction {
    /// Files to a client.
    Send,
    /// From a client into files.
    Receive,
}

/// So many objects, one after the other, over one connection.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Task {
    pub who: Who,
    pub direction: Direction,
    /// Names of the operators.
    pub chain: Vec<String>,
    pub objects: usize,
    /// Where the client listens.
    pub client: SocketAddrV4,
    /// System calls are counted: the times mean nothing.
    pub traced: bool,
}

impl Task {
    pub fn job(&self) -> String {
        let middle =
            if self.chain.is_empty() { String::new() } else { format!("{} -> ", self.chain.join(",")) };
        match self.direction {
            Direction::Send => format!("SSD -> {middle}NIC"),
            Direction::Receive => format!("NIC -> {middle}SSD"),
        }
    }

    pub fn bytes(&self) -> u64 {
        (self.objects * OBJECT) as u64
    }

    /// The chain for one object: each has counter blocks of its own.
    pub fn ops(&self, object: usize) -> io::Result<Vec<Op>> {
        let op = |name: &String| {
            Ok(match Operator::from_name(name).ok_or(io::ErrorKind::Unsupported)? {
                Operator::Aes256Ctr => {
                    let mut counter = [0; 16];
                    counter[..8].copy_from_slice(&(object as u64 + 1).to_be_bytes());
                    Op::Aes256Ctr { key: KEY, counter }
                }
                other => Op::Raw { number: other as u8, parameter: Vec::new() },
            })
        };
        self.chain.iter().map(op).collect()
    }
}

/// The bytes of an object: the same seed and number give the same.
pub fn object(seed: u64, number: usize) -> Vec<u8> {
    let mut random = Random(seed.wrapping_mul(0x1_0001) ^ (number as u64) << 20);
    let mut bytes = Vec::with_capacity(OBJECT);
    while bytes.len() < OBJECT {
        bytes.extend(random.next().to_le_bytes());
    }
    bytes
}

/// What became of one object.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Transfer {
    pub digests: Vec<(String, String)>,
    pub bytes_in: u64,
    pub bytes_out: u64,
    pub path: Vec<String>,
    /// From the submission to the completion, as the application saw it.
    pub latency_ns: u64,
    /// In the order of the data's way.
    pub stages: Vec<Stage>,
}

/// When a stage of a transfer was at work, from the transfer's start.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Stage {
    pub name: String,
    pub first_ns: u64,
    pub last_ns: u64,
    /// Sum over its operations; those that overlap count each.
    pub busy_ns: u64,
    pub operations: u64,
}

/// What the guest's kernel counts.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Counters {
    pub wall_ns: u64,
    /// In which the guest's processors had nothing to do.
    pub idle_ns: u64,
    /// User and system time of the process.
    pub process_ns: u64,
    /// Interrupts by name: a number with its device, or what the architecture calls it.
    pub interrupts: BTreeMap<String, u64>,
}

/// What came of a task.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Outcome {
    pub transfers: Vec<Transfer>,
    /// How much was counted from before the connection was made until the client had said that it has everything.
    pub counted: Counters,
    /// Commands that the library gave the card for the transfers, and interrupts of the card meanwhile.
    pub submissions: u64,
    pub card_interrupts: u64,
    /// MD5 of each received object, as the kernel reads it from the disk afterwards.
    pub stored: Vec<String>,
    /// Where they were counted.
    pub system_calls: Option<u64>,
}

impl Outcome {
    /// Time that the guest's processors were not idle.
    pub fn busy_ns(&self) -> u64 {
        self.counted.wall_ns.saturating_sub(self.counted.idle_ns)
    }

    /// Interrupts whose name has this in it.
    pub fn interrupts(&self, wanted: impl Fn(&str) -> bool) -> u64 {
        self.counted.interrupts.iter().filter(|(name, _)| wanted(name)).map(|(_, count)| count).sum()
    }
}

/// The name that an interrupt has where a device raised it, and not the processors among themselves or their timers.
pub fn is_device(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_digit())
}
