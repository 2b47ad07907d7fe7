//! Requests to the guest, and its answers: JSON lines over a connection of the guest's kernel.

use crate::harness::contender::Named;
use crate::harness::data::{Direction, KEY};
use crate::harness::random::Random;
use crate::harness::shown::Stage;
use dcs::{Op, Operator};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddrV4;

/// Bytes of an object of the demo: one transfer moves one object.
pub const OBJECT: u64 = 1 << 20;
/// A design that does the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DesignName {
    /// Host-centric: a loop of system calls, on the controller and the NIC that the guest's kernel has.
    Host,
    /// Software-optimised: the process drives the card's controller of the SSD itself, over VFIO; data in host memory, operators
    /// on the processor; the kernel's TCP and its NIC.
    SoftwareTcp,
    /// Like `SoftwareTcp`, and the process drives the card's NIC too, with a TCP of its own.
    SoftwareNic,
    /// Software-controlled peer-to-peer: as `SoftwareNic`, but data are in the SSD's own memory, where the NIC reads them.
    SoftwareP2p,
    /// The card, on its own controller of the SSD and its own NIC.
    Card,
}

impl Named for DesignName {
    /// All designs, each with its name and its exact contents.
    const ALL: &'static [(DesignName, &'static str, &'static str)] = &[
        (DesignName::Host, "host", "host-centric: the kernel's NVMe driver, ext4, TCP and NIC driver"),
        (
            DesignName::SoftwareTcp,
            "software-tcp",
            "software-optimised: NVMe in user space (VFIO), the kernel's TCP and NIC driver",
        ),
        (
            DesignName::SoftwareNic,
            "software-nic",
            "software-optimised: NVMe, NIC (VFIO) and TCP in user space",
        ),
        (
            DesignName::SoftwareP2p,
            "software-p2p",
            "software-controlled P2P: the same, from the SSD's memory to the NIC; no operators, no receiving",
        ),
        (DesignName::Card, "card", "one command to the dcs card, which drives SSD and NIC"),
    ];
}

impl DesignName {
    /// Returns the designs that can do such jobs. Peer-to-peer is from SSD to NIC alone: no device on the bus is a processing
    /// unit, and received data are between headers.
    pub fn all(receives: bool, chain: &[&str]) -> impl Iterator<Item = DesignName> {
        let peer = !receives && chain.is_empty();
        DesignName::ALL
            .iter()
            .map(|(who, ..)| *who)
            .filter(move |who| peer || *who != DesignName::SoftwareP2p)
    }

    /// Returns true for the software-optimised designs, which the card is compared with.
    pub fn is_software(self) -> bool {
        matches!(self, DesignName::SoftwareTcp | DesignName::SoftwareNic)
    }
}

impl Stream {
    /// Returns a connection of that set; its client's address is filled in later.
    pub fn new(set: usize) -> Stream {
        Stream { client: SocketAddrV4::new(std::net::Ipv4Addr::UNSPECIFIED, 0), set }
    }
}

/// The object of one transfer: a whole file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Item {
    pub direction: Direction,
    /// Name of the file in the direction's folder.
    pub file: usize,
    /// Bytes: whole pages.
    pub length: u64,
    /// Time of its request, from the start.
    pub at_ns: u64,
}

/// A connection that carries all of a task's objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stream {
    /// Address of the client.
    pub client: SocketAddrV4,
    /// Number of its set of an SSD and a NIC.
    pub set: usize,
}

/// Some objects, over one connection or concurrently over several, from as many sets of an SSD and a NIC.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Task {
    pub who: DesignName,
    /// Names of the operators.
    pub chain: Vec<String>,
    /// Objects in the order of their requests, over each connection.
    pub items: Vec<Item>,
    pub streams: Vec<Stream>,
    /// Time during which the objects are moved again and again, regardless of their own times: for bandwidth.
    pub lasting_ns: Option<u64>,
    /// Transfers of a connection that are submitted before the first of them is done. The kernel's loop has one.
    pub in_flight: usize,
    /// Concurrent processes that only spin.
    pub spinners: usize,
    /// Counts system calls; the times mean nothing then.
    pub traced: bool,
}

impl Task {
    /// Returns a task with objects one after the other, each submitted when the one before is done.
    pub fn objects(who: DesignName, direction: Direction, chain: &[&str], count: usize) -> Task {
        let item = |file| Item { direction, file, length: OBJECT, at_ns: 0 };
        Task::items(who, chain, (0..count).map(item).collect())
    }

    pub fn items(who: DesignName, chain: &[&str], items: Vec<Item>) -> Task {
        Task {
            who,
            chain: chain.iter().map(ToString::to_string).collect(),
            items,
            streams: vec![Stream::new(0)],
            lasting_ns: None,
            in_flight: 1,
            spinners: 0,
            traced: false,
        }
    }

    pub fn job(&self) -> String {
        let middle =
            if self.chain.is_empty() { String::new() } else { format!("{} -> ", self.chain.join(",")) };
        let goes = |direction| self.items.iter().any(|item| item.direction == direction);
        match (goes(Direction::Send), goes(Direction::Receive)) {
            (true, true) => format!("SSD -> {middle}NIC, NIC -> {middle}SSD"),
            (false, true) => format!("NIC -> {middle}SSD"),
            _ => format!("SSD -> {middle}NIC"),
        }
    }

    /// Returns the connections that share a thread: the kernel's calls block; the software drives one NIC in an engine; the card
    /// has them all.
    pub fn groups(&self) -> Vec<Vec<usize>> {
        let mut groups: Vec<(usize, Vec<usize>)> = Vec::new();
        for (number, stream) in self.streams.iter().enumerate() {
            let key = match self.who {
                DesignName::Host => number,
                DesignName::SoftwareTcp | DesignName::SoftwareNic | DesignName::SoftwareP2p => stream.set,
                DesignName::Card => 0,
            };
            match groups.iter_mut().find(|(other, _)| *other == key) {
                Some((_, group)) => group.push(number),
                None => groups.push((key, vec![number])),
            }
        }
        groups.into_iter().map(|(_, group)| group).collect()
    }

    /// Returns the number of sets of an SSD and a NIC.
    pub fn sets(&self) -> usize {
        self.streams.iter().map(|stream| stream.set + 1).max().unwrap_or(0)
    }

    /// Returns the object of a transfer.
    pub fn item(&self, transfer: usize) -> Item {
        self.items[transfer % self.items.len()]
    }

    /// Returns the chain for one transfer: each has its own counter blocks.
    pub fn ops(&self, transfer: usize) -> io::Result<Vec<Op>> {
        let op = |name: &String| {
            Ok(match Operator::from_name(name).ok_or(io::ErrorKind::Unsupported)? {
                Operator::Aes256Ctr => {
                    let mut counter = [0; 16];
                    counter[..8].copy_from_slice(&(transfer as u64 + 1).to_be_bytes());
                    Op::Aes256Ctr { key: KEY, counter }
                }
                other => Op::Raw { number: other as u8, parameter: Vec::new() },
            })
        };
        self.chain.iter().map(op).collect()
    }
}

/// Returns the bytes of an object: the same seed and number give the same bytes.
pub fn object(seed: u64, number: usize, length: u64) -> Vec<u8> {
    let mut random = Random(seed.wrapping_mul(0x1_0001) ^ (number as u64) << 20);
    let mut bytes = Vec::with_capacity(length as usize);
    while (bytes.len() as u64) < length {
        bytes.extend(random.next().to_le_bytes());
    }
    bytes
}

/// Outcome of one object.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Transfer {
    /// Number of its connection.
    pub stream: usize,
    pub digests: Vec<(String, String)>,
    pub bytes_in: u64,
    pub bytes_out: u64,
    pub path: Vec<String>,
    /// Time from submission to completion, as the application saw it.
    pub latency_ns: u64,
    /// Stages in the order of the data path.
    pub stages: Vec<Stage>,
}

/// Counters of the guest's kernel.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Counters {
    pub wall_ns: u64,
    /// Time in which the guest's processors were idle.
    pub idle_ns: u64,
    /// User and system time of the process.
    pub process_ns: u64,
    /// Interrupts by name: a number with its device, or the architecture's name for it.
    pub interrupts: BTreeMap<String, u64>,
}

/// Bytes that SSD and NIC moved into and out of blocks, by the memory that holds the blocks, and bytes that the processor copied
/// into or out of the SSD's memory. Copies within host memory are not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blocks {
    pub host_bytes: u64,
    pub ssd_bytes: u64,
    pub copied_bytes: u64,
}

impl Blocks {
    /// Returns the sum of both.
    pub fn and(self, other: Blocks) -> Blocks {
        Blocks {
            host_bytes: self.host_bytes + other.host_bytes,
            ssd_bytes: self.ssd_bytes + other.ssd_bytes,
            copied_bytes: self.copied_bytes + other.copied_bytes,
        }
    }

    /// Returns the counts since then.
    pub fn since(self, before: Blocks) -> Blocks {
        Blocks {
            host_bytes: self.host_bytes - before.host_bytes,
            ssd_bytes: self.ssd_bytes - before.ssd_bytes,
            copied_bytes: self.copied_bytes - before.copied_bytes,
        }
    }
}

/// Outcome of a task.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct TaskResult {
    pub transfers: Vec<Transfer>,
    /// Counters from before the connection was made until the client confirmed that it has everything.
    pub counted: Counters,
    /// Commands that the library gave the card for the transfers.
    pub submissions: u64,
    /// Interrupts of functions over VFIO in that time.
    pub vfio_interrupts: u64,
    /// Places of the software designs' data in that time.
    pub blocks: Option<Blocks>,
    /// MD5 of each received object, in order, as the kernel reads it from the disk afterwards.
    pub stored: Vec<String>,
    /// System calls, if they were counted.
    pub system_calls: Option<u64>,
}

impl TaskResult {
    /// Returns the time in which the guest's processors were not idle.
    pub fn busy_ns(&self) -> u64 {
        self.counted.wall_ns.saturating_sub(self.counted.idle_ns)
    }

    /// Sums the interrupts whose name is wanted.
    pub fn interrupts(&self, wanted: impl Fn(&str) -> bool) -> u64 {
        self.counted.interrupts.iter().filter(|(name, _)| wanted(name)).map(|(_, count)| count).sum()
    }
}

/// Returns true for the name of a device's interrupt, false for those between processors and for timers.
pub fn is_device(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_blocks_has_a_thread_for_each_connection() {
        let streams: Vec<Stream> = [0, 1, 0, 1].map(Stream::new).into();
        let groups = |who| Task { streams: streams.clone(), ..Task::items(who, &[], Vec::new()) }.groups();
        assert_eq!(groups(DesignName::Host), [[0], [1], [2], [3]]);
        assert_eq!(groups(DesignName::SoftwareNic), [[0, 2], [1, 3]]);
        assert_eq!(groups(DesignName::Card), [[0, 1, 2, 3]]);
    }
}
