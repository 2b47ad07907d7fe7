//! The driver's part: which registers to write and read, in which order, to set up, start, pause and end a stream and to learn its result.
//! These are only values: a guest's program, a model or a test carries them out.
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
//! An operating system that writes registers by halves writes the upper half first.

use crate::register::*;
use crate::uoe::{self, Template};
use alloc::vec::Vec;

/// A write of one register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write {
    /// Offset in BAR0.
    pub offset: u64,
    /// Value to write.
    pub value: u64,
}

/// The registers are not those of a D2D function of this version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no D2D function of version {}: its first register is {identity:#x}", Identity::VERSION)]
pub struct LayoutError {
    /// Value of the first register.
    pub identity: u64,
}

/// The sizes and register offsets of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// SSD or NIC.
    pub kind: Kind,
    /// Streams and aperture.
    pub capabilities: Capabilities,
    /// Offsets of the registers.
    pub offsets: Offsets,
    /// Offset and size of the lists of tasks.
    pub task_memory: TaskMemory,
    /// Size of blocks, MTU.
    pub medium: Medium,
    /// Number of blocks of the medium.
    pub blocks: u64,
}

/// The place at which a receiver takes data in its current run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Rx Address of the receiver.
    pub address: u64,
    /// Credits of its Rx queue.
    pub credits: u32,
    /// Credits after which its aperture wraps.
    pub aperture: u32,
    /// Epoch of the run.
    pub epoch: u16,
}

/// The settings of a receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Receive {
    /// Bytes of the stream. 0: until the driver ends it.
    pub bytes: u64,
    /// Address of the sender's [`GRANT`] register; 0: the driver passes grants on.
    pub grants_to: u64,
    /// Stall limit and refresh interval.
    pub times: Times,
    /// True for an interrupt at the end.
    pub interrupt: bool,
}

/// The settings of a sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Send {
    /// Bytes of the stream. 0: all.
    pub bytes: u64,
    /// Data rate and granularity.
    pub rate: Rate,
    /// Credits that may be under way; 0: as many as the receiver has.
    pub credits: u32,
    /// Stall limit.
    pub times: Times,
    /// True for an interrupt at the end.
    pub interrupt: bool,
}

/// The state and counts of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// State and error.
    pub status: Status,
    /// Bytes written or received.
    pub moved: u64,
    /// Bytes that have left the receiver.
    pub taken: u64,
    /// Writes and packets that were not used.
    pub dropped: Dropped,
    /// Packets sent or received by a NIC.
    pub packets: u64,
    /// RTP sequence numbers that were missing.
    pub lost: u64,
}

impl Layout {
    /// The registers that [`Layout::from_values`] is made from.
    pub const READS: [u64; 6] = [IDENTITY, CAPABILITIES, OFFSETS, TASK_MEMORY, MEDIUM, BLOCKS];

    /// Parses the values of [`Layout::READS`].
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

    /// Returns the offset of a stream's register.
    pub fn register(&self, stream: u16, register: u64) -> u64 {
        u64::from(self.offsets.streams) + u64::from(stream) * STRIDE + register
    }

    fn write(&self, stream: u16, register: u64, value: u64) -> Write {
        Write { offset: self.register(stream, register), value }
    }

    /// Returns the writes that set a NIC's template.
    pub fn template(&self, stream: u16, template: &Template) -> Vec<Write> {
        let first = u64::from(self.offsets.uoe) + u64::from(stream) * STRIDE;
        let values: [u64; uoe::COUNT] = template.registers();
        (first..).step_by(8).zip(values).map(|(offset, value)| Write { offset, value }).collect()
    }

    /// Returns the writes that set an SSD's list of tasks; `None` if the list is too long for the function.
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

    /// Returns the writes that start a receiver.
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

    /// Returns the registers that [`Layout::place`] parses, to be read after a receiver's start.
    pub fn place_reads(&self, stream: u16) -> [u64; 3] {
        [RX_ADDRESS, BASE_CREDITS, STATUS].map(|register| self.register(stream, register))
    }

    /// Parses the values of [`Layout::place_reads`].
    ///
    /// # Errors
    ///
    /// The status of a receiver that did not start.
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

    /// Returns the writes that start a sender to a receiver that has started.
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

    /// Returns the write that pauses or resumes a stream. `address` is the Tx Address of a sender, and 0 for a receiver.
    pub fn pause(&self, stream: u16, address: u64, pause: bool) -> Write {
        self.write(stream, TX_ADDRESS, TxAddress { address, pause, ..TxAddress::default() }.bits())
    }

    /// Returns the write that ends a run after this many bytes, or at its position if that is later. [`END_HERE`]: at its position.
    pub fn end_at(&self, stream: u16, bytes: u64) -> Write {
        self.write(stream, BYTE_COUNT, bytes)
    }

    /// Returns the write that clears a stream: it ends the run and empties the queues and the list of tasks.
    pub fn clear(&self, stream: u16) -> Write {
        self.write(stream, TX_ADDRESS, TxAddress { clear: true, ..TxAddress::default() }.bits())
    }

    /// Returns the write that passes a grant, read from a receiver's [`GRANT`] register, on to the sender.
    pub fn grant(&self, stream: u16, grant: Grant) -> Write {
        self.write(stream, GRANT, grant.bits())
    }

    /// Returns the registers that [`Report::from_values`] parses.
    pub fn report_reads(&self, stream: u16) -> [u64; 6] {
        [STATUS, MOVED, TAKEN, DROPPED, PACKETS, LOST].map(|register| self.register(stream, register))
    }
}

impl Report {
    /// Parses the values of [`Layout::report_reads`].
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
