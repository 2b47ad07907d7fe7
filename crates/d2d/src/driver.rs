//! The driver's part: which registers are written and read, in which order, to set up, start, pause and end a
//! stream and to learn its end. Nothing here does it: all are values, for a guest's program, a model and a
//! test alike.
//!
//! A stream from an SSD to a NIC:
//!
//! ```text
//! layouts    read Layout::READS of both functions, once
//! receiver   write receive(..) to the NIC             it starts, with the next epoch
//!            read Layout::place_reads(..) of the NIC   the address, the epoch
//! sender     write tasks(..), send(..) to the SSD      it starts
//!            sleep until the interrupt, then read Layout::report_reads(..) of both
//! again      all of it from `receiver` on: an epoch is good for one run
//! ```
//!
//! Where an operating system writes registers by halves, the upper half goes first.

use crate::register::*;
use crate::uoe::{self, Template};
use alloc::vec::Vec;

/// A write of one register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write {
    /// Offset in BAR0.
    pub offset: u64,
    /// The value.
    pub value: u64,
}

/// This is no D2D function, or not of this version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no D2D function of version {}: its first register is {identity:#x}", Identity::VERSION)]
pub struct LayoutError {
    /// The first register.
    pub identity: u64,
}

/// What a function has, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// SSD or NIC.
    pub kind: Kind,
    /// Streams and aperture.
    pub capabilities: Capabilities,
    /// Where registers begin.
    pub offsets: Offsets,
    /// Where lists of tasks begin.
    pub task_memory: TaskMemory,
    /// Blocks, MTU.
    pub medium: Medium,
    /// Blocks of the medium.
    pub blocks: u64,
}

/// Where a receiver takes data, for the run that it has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its Rx Address.
    pub address: u64,
    /// Credits of its Rx queue.
    pub credits: u32,
    /// Credits after which its aperture wraps.
    pub aperture: u32,
    /// The run.
    pub epoch: u16,
}

/// How a stream receives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Receive {
    /// Bytes of the stream. 0: until it is told.
    pub bytes: u64,
    /// Address of the sender's [`GRANT`] register; 0: the driver passes grants on.
    pub grants_to: u64,
    /// Stall limit and refresh interval.
    pub times: Times,
    /// An interrupt at the end.
    pub interrupt: bool,
}

/// How a stream sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Send {
    /// Bytes of the stream. 0: all that there are.
    pub bytes: u64,
    /// The rate.
    pub rate: Rate,
    /// Credits that may be under way; 0: as many as the receiver has.
    pub credits: u32,
    /// Stall limit.
    pub times: Times,
    /// An interrupt at the end.
    pub interrupt: bool,
}

/// How a stream stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// State and error.
    pub status: Status,
    /// Bytes written or received.
    pub moved: u64,
    /// Bytes that have left the receiver.
    pub taken: u64,
    /// What was not used.
    pub dropped: Dropped,
    /// Packets sent or received by a NIC.
    pub packets: u64,
    /// RTP sequence numbers that were missing.
    pub lost: u64,
}

impl Layout {
    /// The registers that [`Layout::from_values`] is made from.
    pub const READS: [u64; 6] = [IDENTITY, CAPABILITIES, OFFSETS, TASK_MEMORY, MEDIUM, BLOCKS];

    /// The layout that these values tell.
    pub fn from_values(values: [u64; 6]) -> Result<Layout, LayoutError> {
        let kind = Identity::from_bits(values[0]).known().ok_or(LayoutError { identity: values[0] })?;
        Ok(Layout {
            kind,
            capabilities: Capabilities::from_bits(values[1]),
            offsets: Offsets::from_bits(values[2]),
            task_memory: TaskMemory::from_bits(values[3]),
            medium: Medium::from_bits(values[4]),
            blocks: values[5],
        })
    }

    /// Offset of a stream's register.
    pub fn register(&self, stream: u16, register: u64) -> u64 {
        u64::from(self.offsets.streams) + u64::from(stream) * STRIDE + register
    }

    fn write(&self, stream: u16, register: u64, value: u64) -> Write {
        Write { offset: self.register(stream, register), value }
    }

    /// Puts a NIC's template in place.
    pub fn template(&self, stream: u16, template: &Template) -> Vec<Write> {
        let first = u64::from(self.offsets.uoe) + u64::from(stream) * STRIDE;
        let values: [u64; uoe::COUNT] = template.registers();
        (first..).step_by(8).zip(values).map(|(offset, value)| Write { offset, value }).collect()
    }

    /// Puts an SSD's list of tasks in place. None: the list is longer than the function's memory for it.
    pub fn tasks(&self, stream: u16, tasks: &[Task]) -> Option<Vec<Write>> {
        let room = self.task_memory.tasks;
        let count = u32::try_from(tasks.len()).ok().filter(|count| *count <= room)?;
        let list = u64::from(self.task_memory.offset) + u64::from(stream) * u64::from(room) * Task::SIZE;
        let words = tasks.iter().flat_map(|task| task.bits());
        let mut writes: Vec<Write> =
            (list..).step_by(8).zip(words).map(|(offset, value)| Write { offset, value }).collect();
        writes.push(self.write(stream, TASK_LIST, TaskList { tail: count, head: 0 }.bits()));
        Some(writes)
    }

    /// Starts a receiver.
    pub fn receive(&self, stream: u16, receive: &Receive) -> Vec<Write> {
        let control = Control { interrupt_at_end: receive.interrupt, ..Control::default() };
        let control = Control { interrupt_at_grant: receive.interrupt && receive.grants_to == 0, ..control };
        alloc::vec![
            self.write(stream, BYTE_COUNT, receive.bytes),
            self.write(stream, CREDIT_ADDRESS, receive.grants_to),
            self.write(stream, TIMES, receive.times.bits()),
            self.write(stream, CONTROL, control.bits()),
            self.write(stream, TX_ADDRESS, TxAddress { start: true, ..TxAddress::default() }.bits()),
        ]
    }

    /// The registers that [`Layout::place`] is made from, after a receiver's start.
    pub fn place_reads(&self, stream: u16) -> [u64; 3] {
        [RX_ADDRESS, BASE_CREDITS, STATUS].map(|register| self.register(stream, register))
    }

    /// The place that these values tell. An error: the receiver did not start.
    pub fn place(&self, values: [u64; 3]) -> Result<Place, Status> {
        let status = Status::from_bits(values[2]);
        if !status.state.is_running() {
            return Err(status);
        }
        Ok(Place {
            address: values[0],
            credits: BaseCredits::from_bits(values[1]).rx,
            aperture: self.capabilities.aperture,
            epoch: status.epoch,
        })
    }

    /// Starts a sender to a receiver that has started.
    pub fn send(&self, stream: u16, place: &Place, send: &Send) -> Vec<Write> {
        let credits = if send.credits == 0 { place.credits } else { send.credits.min(place.credits) };
        let control = Control {
            epoch: place.epoch,
            interrupt_at_end: send.interrupt,
            interrupt_at_grant: false,
            aperture: place.aperture,
        };
        let start = TxAddress { address: place.address, start: true, ..TxAddress::default() };
        alloc::vec![
            self.write(stream, RATE, send.rate.bits()),
            self.write(stream, BASE_CREDITS, BaseCredits { tx: credits, rx: 0 }.bits()),
            self.write(stream, BYTE_COUNT, send.bytes),
            self.write(stream, TIMES, send.times.bits()),
            self.write(stream, CONTROL, control.bits()),
            self.write(stream, TX_ADDRESS, start.bits()),
        ]
    }

    /// Lets a stream stand still, or go on. `address` is a sender's Tx Address, and 0 of a receiver.
    pub fn pause(&self, stream: u16, address: u64, pause: bool) -> Write {
        self.write(stream, TX_ADDRESS, TxAddress { address, pause, ..TxAddress::default() }.bits())
    }

    /// Ends a run after this many bytes, or where it is if that is later. [`END_HERE`]: where it is.
    pub fn end_at(&self, stream: u16, bytes: u64) -> Write {
        self.write(stream, BYTE_COUNT, bytes)
    }

    /// Empties a stream, tasks too, and ends its run at once.
    pub fn clear(&self, stream: u16) -> Write {
        self.write(stream, TX_ADDRESS, TxAddress { clear: true, ..TxAddress::default() }.bits())
    }

    /// Passes a receiver's grant, which was read from its [`GRANT`], on to the sender.
    pub fn grant(&self, stream: u16, grant: Grant) -> Write {
        self.write(stream, GRANT, grant.bits())
    }

    /// The registers that [`Report::from_values`] is made from.
    pub fn report_reads(&self, stream: u16) -> [u64; 6] {
        [STATUS, MOVED, TAKEN, DROPPED, PACKETS, LOST].map(|register| self.register(stream, register))
    }
}

impl Report {
    /// The report that these values tell.
    pub fn from_values(values: [u64; 6]) -> Report {
        Report {
            status: Status::from_bits(values[0]),
            moved: values[1],
            taken: values[2],
            dropped: Dropped::from_bits(values[3]),
            packets: values[4],
            lost: values[5],
        }
    }
}
