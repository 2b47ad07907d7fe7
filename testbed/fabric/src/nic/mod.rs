//! Intel gigabit NICs: the 82576 (igb; advanced descriptors) and the 82574 (e1000e; legacy and extended
//! descriptors).
//!
//! | module | contents |
//! |---|---|
//! | `descriptor` | parses and builds transmit and receive descriptors of both families |
//! | `offload` | checksums and segmentation |
//! | `receive` | from the wire to a ring |
//! | `registers` | registers of both families |
//!
//! References are their data sheets, and QEMU's models of them where a data sheet leaves something open. The model is stricter
//! than QEMU's: it prefetches descriptors, adds the driver's contents of checksum fields to its sums, waits for a link to
//! transmit, and takes time for its PHY. See the crate's documentation for what is not implemented.

mod descriptor;
mod offload;
mod receive;
mod registers;
mod transmit;

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use dcs_drivers::bus::BusError;

use crate::device::{Context, Device};
use crate::fault::Fault;
use descriptor::{Data, Raw};
use registers::Registers;

/// Model of a NIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// 82576: QEMU's igb.
    Igb,
    /// 82574: QEMU's e1000e.
    E1000e,
}

impl Family {
    fn queues(self) -> usize {
        match self {
            Family::Igb => 16,
            Family::E1000e => 2,
        }
    }
}

/// Configuration of a NIC.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Model of the NIC.
    pub family: Family,
    /// Ethernet address, as in its EEPROM.
    pub mac: [u8; 6],
    /// Bits per second at which it reads frames from memory: the wire's rate.
    pub rate: u64,
    /// Time for the PHY to negotiate.
    pub autonegotiation: Duration,
    /// True if the PHY keeps the link through a reset of the MAC, as on hardware. Otherwise it waits for a request to negotiate,
    /// as in QEMU.
    pub keeps_link: bool,
    /// Most bytes of frames that wait for receive descriptors; further frames are dropped.
    pub fifo: usize,
}

impl Config {
    /// Returns the configuration of a NIC of this family, which keeps or loses its link on reset as QEMU's does. Negotiation
    /// takes 2 ms, not the second or two of real PHYs; the receive memory is 64 KiB.
    pub fn new(family: Family, mac: [u8; 6]) -> Config {
        Config {
            family,
            mac,
            rate: 1_000_000_000,
            autonegotiation: Duration::from_millis(2),
            keeps_link: family == Family::E1000e,
            fifo: 64 << 10,
        }
    }
}

/// A NIC's counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Frames sent; each segment counts.
    pub sent: u64,
    /// Bytes sent.
    pub bytes_sent: u64,
    /// Frames stored in receive buffers.
    pub received: u64,
    /// Bytes received.
    pub bytes_received: u64,
    /// Frames dropped: for other addresses, too long, or received while receiving was off.
    pub filtered: u64,
    /// Frames dropped for lack of room.
    pub missed: u64,
    /// Frames abandoned because memory could not be read.
    pub broken: u64,
}

/// Meaning of a token.
#[derive(Debug)]
enum Wait {
    TransmitDescriptors {
        queue: usize,
        count: u32,
    },
    ReceiveDescriptors {
        queue: usize,
        count: u32,
    },
    /// A piece of the frame that a queue sends.
    Piece {
        queue: usize,
        at: usize,
    },
    /// The transmitter has room again.
    Room {
        queue: usize,
    },
    /// A write-back that a fault delayed.
    Late {
        writes: Vec<(u64, Vec<u8>)>,
        causes: u32,
        queue: usize,
        transmit: bool,
    },
    /// The PHY's register was read or written.
    Phy,
    /// The PHY has negotiated.
    Link,
}

/// State of a transmit queue that is not in registers.
#[derive(Debug, Default)]
struct TransmitQueue {
    fetching: bool,
    /// Descriptors fetched and not yet used, from the queue's head on.
    fetched: VecDeque<Raw>,
    contexts: [descriptor::Context; 2],
    /// Descriptors of the frame being assembled.
    frame: Vec<Data>,
    bytes: Vec<u8>,
    /// Pieces of it being read.
    arriving: usize,
    broken: bool,
    fault: Option<Fault>,
    /// The frame is complete, and is sent once its pieces have been read.
    busy: bool,
}

/// State of a receive queue that is not in registers.
#[derive(Debug, Default)]
struct ReceiveQueue {
    fetching: bool,
    fetched: VecDeque<Raw>,
}

/// A NIC.
pub struct Nic {
    config: Config,
    registers: Registers,
    transmit: Vec<TransmitQueue>,
    receive: Vec<ReceiveQueue>,
    waits: HashMap<u64, Wait>,
    next: u64,
    /// Frames that wait for receive descriptors.
    fifo: VecDeque<Vec<u8>>,
    /// Time at which the transmitter will have sent all it has.
    line_free: Duration,
    carrier: bool,
    counts: Counts,
    hung: Option<bool>,
}

impl Nic {
    /// Returns a NIC after power on.
    pub fn new(config: Config) -> Nic {
        let queues = config.family.queues();
        Nic {
            registers: Registers::new(&config),
            transmit: (0..queues).map(|_| TransmitQueue::default()).collect(),
            receive: (0..queues).map(|_| ReceiveQueue::default()).collect(),
            waits: HashMap::new(),
            next: 0,
            fifo: VecDeque::new(),
            line_free: Duration::ZERO,
            carrier: false,
            counts: Counts::default(),
            hung: None,
            config,
        }
    }

    /// Returns the counters.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Returns the bytes of received frames that it has not stored.
    pub fn waiting(&self) -> usize {
        self.fifo.iter().map(Vec::len).sum()
    }

    /// Returns true if it has a link, according to its status register.
    pub fn link(&self) -> bool {
        self.registers.link()
    }

    fn token(&mut self, wait: Wait) -> u64 {
        self.next += 1;
        self.waits.insert(self.next, wait);
        self.next
    }

    /// Drops everything in progress.
    fn clear(&mut self) {
        let queues = self.config.family.queues();
        self.waits.clear();
        self.transmit = (0..queues).map(|_| TransmitQueue::default()).collect();
        self.receive = (0..queues).map(|_| ReceiveQueue::default()).collect();
        self.fifo.clear();
    }

    /// Drops a stopped queue's fetched descriptors and pending reads.
    fn stop(&mut self, stopped: usize, transmit: bool) {
        if transmit {
            self.transmit[stopped] = TransmitQueue::default();
        } else {
            self.receive[stopped] = ReceiveQueue::default();
        }
        self.waits.retain(|_, wait| match wait {
            Wait::TransmitDescriptors { queue, .. } | Wait::Piece { queue, .. } | Wait::Room { queue } => {
                !transmit || *queue != stopped
            }
            Wait::ReceiveDescriptors { queue, .. } => transmit || *queue != stopped,
            Wait::Late { queue, transmit: of, .. } => *of != transmit || *queue != stopped,
            Wait::Phy | Wait::Link => true,
        });
    }

    /// Resets the MAC (CTRL.RST).
    fn reset_mac(&mut self, cx: &mut Context<'_>) {
        if self.hung == Some(true) {
            return;
        }
        self.hung = None;
        self.clear();
        self.registers = Registers::new(&self.config);
        if self.config.keeps_link && self.carrier {
            self.negotiate(cx);
        }
    }

    /// Starts the PHY's negotiation, which ends with a link if there is a carrier then.
    fn negotiate(&mut self, cx: &mut Context<'_>) {
        self.set_link(false, cx);
        self.waits.retain(|_, wait| !matches!(wait, Wait::Link));
        let token = self.token(Wait::Link);
        cx.after(self.config.autonegotiation, token);
    }

    fn set_link(&mut self, up: bool, cx: &mut Context<'_>) {
        if self.registers.set_link(up) {
            self.cause(registers::LSC, cx);
        }
        if self.registers.link() {
            self.transmit_all(cx);
        }
    }

    /// Raises interrupt causes.
    fn cause(&mut self, causes: u32, cx: &mut Context<'_>) {
        if self.registers.cause(causes) {
            cx.interrupt(0);
        }
    }

    /// Raises the causes of a queue, on its own vector if the driver has set one up.
    fn queue_cause(&mut self, causes: u32, queue: usize, transmit: bool, cx: &mut Context<'_>) {
        match self.registers.queue_cause(queue, transmit) {
            Some(vector) => {
                self.registers.cause(causes);
                if let Some(vector) = vector {
                    cx.interrupt(vector);
                }
            }
            None => self.cause(causes, cx),
        }
    }

    /// Writes back descriptors, unless a fault prevents it.
    fn tell(
        &mut self,
        mut writes: Vec<(u64, Vec<u8>)>,
        (queue, transmit): (usize, bool),
        fault: Option<Fault>,
        cx: &mut Context<'_>,
    ) {
        let causes = if transmit { registers::TXDW } else { registers::RXDW };
        match fault {
            Some(Fault::DropCompletion) => return,
            Some(Fault::DelayCompletion(time)) => {
                let token = self.token(Wait::Late { writes, causes, queue, transmit });
                return cx.after(time, token);
            }
            // The head has advanced: the next descriptor is there.
            Some(Fault::DuplicateCompletion) => {
                let status = if transmit { 12 } else { 0 };
                let next = self.registers.ring(queue, transmit).head_address() + status;
                writes.extend(writes.last().cloned().map(|(_, bytes)| (next, bytes)));
            }
            _ => {}
        }
        for (address, bytes) in writes {
            cx.write(address, bytes);
        }
        self.queue_cause(causes, queue, transmit, cx);
    }

    /// Returns true if a fault stops the NIC here.
    fn stopped(&mut self, fault: Option<Fault>) -> bool {
        match fault {
            Some(Fault::Hang) => self.hung = Some(false),
            Some(Fault::HangHard) => self.hung = Some(true),
            Some(Fault::Remove) => {}
            _ => return false,
        }
        true
    }

    fn resume(&mut self, token: u64, data: Result<Vec<u8>, BusError>, cx: &mut Context<'_>) {
        let Some(wait) = self.waits.remove(&token) else { return };
        if self.hung.is_some() {
            return;
        }
        match wait {
            Wait::TransmitDescriptors { queue, count } => self.transmit_descriptors(queue, count, data, cx),
            Wait::ReceiveDescriptors { queue, count } => self.receive_descriptors(queue, count, data, cx),
            Wait::Piece { queue, at } => self.piece(queue, at, data, cx),
            Wait::Room { queue } => self.read_frame(queue, cx),
            Wait::Late { writes, causes, queue, transmit } => {
                for (address, bytes) in writes {
                    cx.write(address, bytes);
                }
                self.queue_cause(causes, queue, transmit, cx);
            }
            Wait::Phy => {
                let negotiate = self.registers.phy_done();
                self.cause(registers::MDAC, cx);
                if negotiate {
                    self.negotiate(cx);
                }
            }
            Wait::Link => self.set_link(self.carrier, cx),
        }
    }
}

impl Device for Nic {
    fn bars(&self) -> Vec<u64> {
        vec![1 << 17]
    }

    fn read(&mut self, _: usize, offset: u64, bytes: &mut [u8], _: &mut Context<'_>) {
        bytes.fill(0);
        // Registers are read whole.
        if offset.is_multiple_of(4) && bytes.len().is_multiple_of(4) {
            for (i, dword) in bytes.chunks_exact_mut(4).enumerate() {
                dword.copy_from_slice(&self.registers.read(offset + 4 * i as u64).to_le_bytes());
            }
        }
    }

    fn write(&mut self, _: usize, offset: u64, bytes: &[u8], cx: &mut Context<'_>) {
        if offset.is_multiple_of(4) && bytes.len().is_multiple_of(4) {
            for (i, dword) in bytes.chunks_exact(4).enumerate() {
                let value = u32::from_le_bytes(dword.try_into().expect("four bytes"));
                self.write_register(offset + 4 * i as u64, value, cx);
            }
        }
    }

    fn read_done(&mut self, token: u64, data: Result<Vec<u8>, BusError>, cx: &mut Context<'_>) {
        self.resume(token, data, cx);
    }

    fn timer(&mut self, token: u64, cx: &mut Context<'_>) {
        self.resume(token, Ok(Vec::new()), cx);
    }

    fn frame(&mut self, frame: Vec<u8>, cx: &mut Context<'_>) {
        if self.hung.is_none() {
            self.arrive(frame, cx);
        }
    }

    fn carrier(&mut self, up: bool, cx: &mut Context<'_>) {
        self.carrier = up;
        if !up {
            self.set_link(false, cx);
        } else if self.registers.negotiated() || self.config.keeps_link {
            self.negotiate(cx);
        }
    }

    fn hang(&mut self, hard: bool) {
        self.hung = Some(hard);
    }

    fn reset(&mut self) {
        self.hung = None;
        self.clear();
        self.registers = Registers::new(&self.config);
    }
}
