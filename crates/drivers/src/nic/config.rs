//! The settings of a NIC, and its failures.

use super::descriptor::{self, LENGTH};
use super::model::{Format, Model, register};
use super::receive::RingLayout;
use crate::bus::{BusError, Window};
use dcs_engine::Nanos;

/// Size of a buffer for headers, in bytes.
pub(super) const HEADER: u32 = 256;

/// The settings of a NIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// BAR 0 of the NIC. No write goes outside of it.
    pub registers: Window,
    /// Number of this controller in the tags of its register reads.
    pub controller: u32,
    /// The model of the NIC.
    pub model: Model,
    /// Descriptors of the transmit ring: a multiple of 8 up to 4,096.
    pub transmit: u16,
    /// Descriptors of a second transmit ring, which somebody else uses ([`Nic::lent`](super::Nic::lent)): as for the first one, or 0 for
    /// none.
    pub lend: u16,
    /// Set if somebody else uses the receive ring ([`Nic::lent_receive`](super::Nic::lent_receive)). It has as many buffers as descriptors
    /// then, and does not split headers.
    pub lend_receive: bool,
    /// Descriptors of the receive ring: a multiple of 8 up to 4,096. One less is posted.
    pub receive: u16,
    /// Number of receive buffers. Those in excess of the ring make up for frames that are not returned at once.
    pub buffers: u16,
    /// Size of a receive buffer in bytes: 2,048, 4,096, 8,192 or 16,384. A longer frame takes several.
    pub buffer: u32,
    /// Set to put headers into separate buffers.
    pub split: bool,
    /// Largest frame in bytes, sent (without segmentation) and received: 1,514, or up to 9,216.
    pub max_frame: u16,
    /// Set to receive frames for any address.
    pub promiscuous: bool,
    /// Set to receive all multicast frames.
    pub multicast: bool,
    /// Boundary that no descriptor's memory crosses: multiples of this many bytes, a power of two. Needed if pages that are
    /// adjacent on the bus are apart in the machine. Hardware does not care; QEMU's models silently lose such a frame.
    /// `u64::MAX`: no boundary.
    pub page: u64,
    /// Set to have the rings raise MSI-X vector 0, once each time that [`Nic::arm`](super::Nic::arm) allows it.
    pub interrupts: bool,
    /// Time for which a frame may wait to be sent, with a link, until the NIC counts as hung.
    pub timeout: Nanos,
    /// Time limit of a step of a reset, and of a register read.
    pub admin_timeout: Nanos,
    /// Time for which the NIC is left alone after its reset.
    pub settle: Nanos,
    /// Interval at which the link is checked.
    pub interval: Nanos,
    /// Resets in a row, without any frame sent in between, after which the NIC is given up.
    pub resets: u32,
}

impl Config {
    /// Makes the usual settings: rings of 256, 768 buffers of 2 KiB, frames of 1,514 bytes.
    pub fn new(registers: Window, controller: u32, model: Model) -> Config {
        Config {
            registers,
            controller,
            model,
            transmit: 256,
            lend: 0,
            lend_receive: false,
            receive: 256,
            buffers: 768,
            buffer: 2048,
            split: false,
            max_frame: 1514,
            promiscuous: false,
            multicast: false,
            page: u64::MAX,
            interrupts: false,
            timeout: 5_000_000_000,
            admin_timeout: 1_000_000_000,
            settle: 10_000_000,
            interval: 100_000_000,
            resets: 3,
        }
    }

    /// Returns how many bytes of own memory a NIC with these settings takes.
    pub fn memory(&self) -> u64 {
        Layout::new(self, 0).end + ALIGN
    }

    /// Returns the format of receive descriptors.
    pub(super) fn receive_format(&self) -> Format {
        match self.model.chip().format {
            Format::Extended if self.split => Format::PacketSplit,
            format => format,
        }
    }

    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let ring = |entries: u16| entries.is_multiple_of(8) && (8..=4096).contains(&entries);
        let buffer = self.buffer.is_power_of_two() && (2048..=16384).contains(&self.buffer);
        let frame = (1514..=9216).contains(&self.max_frame);
        let registers = self.registers.length >= register::END;
        if ring(self.transmit)
            && (self.lend == 0 || ring(self.lend))
            && ring(self.receive)
            && buffer
            && frame
            && registers
            && (!self.lend_receive || self.receive == self.buffers && !self.split)
            && (self.page.is_power_of_two() || self.page == u64::MAX)
            && self.page >= 4096
            && self.buffers > 0
            && self.interval > 0
        {
            return Ok(());
        }
        Err(ConfigError::Range)
    }
}

/// The reason why settings are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A number is out of its range.
    #[error("a number in the NIC's settings is out of range")]
    Range,
    /// The region is smaller than [`Config::memory`].
    #[error("the region has {length} bytes, and {needed} are needed")]
    Region {
        /// Size of the region in bytes.
        length: u64,
        /// Bytes needed.
        needed: u64,
    },
}

/// The reason why a NIC was reset or given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResetCause {
    /// The owner requested it.
    #[error("requested by the owner")]
    Asked,
    /// The registers read as all ones, or nothing answers there: the NIC was removed, or its memory space was switched off.
    #[error("the NIC is gone")]
    Gone,
    /// A register could not be read.
    #[error("a register of the NIC could not be read: {0}")]
    Register(BusError),
    /// A register read was never answered.
    #[error("a register read was not answered by the NIC")]
    NoAnswer,
    /// CTRL.RST did not become 0.
    #[error("the NIC's reset did not end (CTRL.RST)")]
    NeverReset,
    /// A ring could not be switched on.
    #[error("a ring of the NIC could not be switched on (RXDCTL, TXDCTL)")]
    NeverReady,
    /// The NIC has no address: its EEPROM was not read, or holds none.
    #[error("the NIC has no Ethernet address (RAL, RAH)")]
    NoAddress,
    /// A frame was not sent in time.
    #[error("the NIC no longer sends")]
    Hung,
    /// The NIC reports having received more than a buffer holds.
    #[error("the NIC reports a frame that no buffer holds")]
    Impossible,
    /// The NIC has passed over a receive descriptor.
    #[error("the NIC passed over a receive descriptor")]
    Gap,
    /// The region is no longer in the card's memory.
    #[error("the region is outside of the card's memory")]
    Region,
}

const ALIGN: u64 = 4096;

/// Bytes for a frame's headers, of which a lent ring has as many places as descriptors.
pub(super) const LENT_HEADER: u64 = 64;

/// Layout of own memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Layout {
    pub transmit: u64,
    /// The ring that is lent, and the places of headers.
    pub lent: u64,
    pub lent_headers: u64,
    pub receive: RingLayout,
    /// Offset of the first byte that is not taken.
    pub end: u64,
}

impl Layout {
    /// Lays everything out from `base` on, which is aligned on the bus.
    pub fn new(config: &Config, base: u64) -> Layout {
        let up = |at: u64| at.next_multiple_of(ALIGN);
        let lent = up(base + u64::from(config.transmit) * LENGTH);
        let lent_headers = up(lent + u64::from(config.lend) * LENGTH);
        let ring = up(lent_headers + u64::from(config.lend) * LENT_HEADER);
        let packets =
            up(ring + u64::from(config.receive) * descriptor::receive_length(config.receive_format()));
        let headers = packets + u64::from(config.buffers) * u64::from(config.buffer);
        let header = if config.split { HEADER } else { 0 };
        let end = up(headers + u64::from(config.buffers) * u64::from(header));
        let receive = RingLayout { window: 0, ring, packets, packet: config.buffer, headers, header };
        Layout { transmit: base, lent, lent_headers, receive, end }
    }
}
