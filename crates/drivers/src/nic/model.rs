//! A table of the differences between NICs, and the registers that all share.
//!
//! Numbers are from Intel's data sheets of the 82574 (revision 3.4) and the 82576 (revision 2.61). Another NIC with one of the two
//! descriptor formats is one more row: the 82599 has the 82576's, with its rings at 0x1000 and 0x6000, and a few additional registers to
//! switch the units on.

/// The model of a NIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Model {
    /// 82574 (e1000e).
    E1000e,
    /// 82576 (igb).
    Igb,
}

/// The format of descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// Extended descriptors. [82574, 7.1.4 and 7.2.10]
    Extended,
    /// Extended descriptors for transmission, packet split descriptors for reception. [82574, 7.1.5]
    PacketSplit,
    /// Advanced descriptors. [82576, 7.1.5 and 7.2.2]
    Advanced,
}

/// A row of the table.
#[derive(Debug)]
pub(super) struct Chip {
    pub format: Format,
    /// First register of the receive and of the transmit ring; see [`ring`].
    pub receive: u64,
    pub transmit: u64,
    /// Distance from there to the next transmit ring's first register.
    pub next_ring: u64,
    /// Register and value that have the NIC serve the second transmit ring.
    pub second: Option<(u64, u32)>,
    /// Set if rings must be switched on one by one, and report when they are.
    pub ring_enable: bool,
    /// Set if the PHY negotiates only when it is told to, after a reset.
    pub negotiate: bool,
    /// Most bytes that a transmit descriptor may name.
    pub piece: u64,
    /// Register and value that allow one MSI-X message. See [`Nic::arm`](super::Nic::arm).
    pub arm: (u64, u32),
    /// Register and value that allow no MSI-X message.
    pub disarm: (u64, u32),
    /// Register and value that clear the causes of pending interrupts.
    pub quiet: (u64, u32),
    /// Registers and values that route both rings to MSI-X vector 0, which is raised once each time that it is allowed.
    pub vectors: &'static [(u64, u32)],
    /// Values of TXDCTL and RXDCTL.
    pub transmit_control: u32,
    pub receive_control: u32,
}

impl core::fmt::Display for Model {
    /// Prints Intel's number of the NIC.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Model::E1000e => "82574",
            Model::Igb => "82576",
        })
    }
}

impl Model {
    /// Returns the model with these vendor and device numbers; `None` if no driver here supports it.
    pub fn of_function((vendor, device): (u16, u16)) -> Option<Model> {
        const INTEL: u16 = 0x8086;
        if vendor == INTEL { Model::of(device) } else { None }
    }

    /// Returns the model with this device number of Intel's; `None` if no driver here supports it. [82574, 1.5; 82576, 1.6]
    pub fn of(device: u16) -> Option<Model> {
        match device {
            0x10d3 => Some(Model::E1000e),
            // Copper, fibre, and the model with four ports.
            0x10c9 | 0x10e6 | 0x1526 => Some(Model::Igb),
            _ => None,
        }
    }

    pub(super) fn chip(self) -> &'static Chip {
        match self {
            Model::E1000e => &E1000E,
            Model::Igb => &IGB,
        }
    }
}

/// Descriptors are written back one by one (WTHRESH = 1, counted in descriptors). [82574, 10.2.6.7]
const WRITE_BACK_EACH: u32 = 1 << 24 | 1 << 16;

static E1000E: Chip = Chip {
    format: Format::Extended,
    receive: 0x2800,
    transmit: 0x3800,
    next_ring: 0x100,
    // Enabled, with the count that it has after a reset. [82574, 10.2.6.9]
    second: Some((register::TARC1, 1 << 10 | 3)),
    ring_enable: false,
    negotiate: false,
    piece: 8192,
    arm: (register::IMS, 1 << 20 | 1 << 22),
    disarm: (register::IMC, 1 << 20 | 1 << 22),
    quiet: (register::ICR, 1 << 20 | 1 << 22),
    // The causes of queue 0 are routed to vector 0 (IVAR), which clears and masks them again (EIAC, IAM, CTRL_EXT.EIAME).
    vectors: &[
        (register::CTRL_EXT, 1 << 24 | 1 << 31),
        (register::IVAR, 1 << 31 | 1 << 3 | 1 << 11),
        (register::EIAC_82574, 1 << 20 | 1 << 22),
        (register::IAM, 1 << 20 | 1 << 22),
    ],
    transmit_control: WRITE_BACK_EACH | 1 << 22,
    receive_control: WRITE_BACK_EACH,
};

static IGB: Chip = Chip {
    format: Format::Advanced,
    receive: 0xc000,
    transmit: 0xe000,
    next_ring: 0x40,
    second: None,
    ring_enable: true,
    negotiate: true,
    piece: 32768,
    arm: (register::EIMS, 1),
    disarm: (register::EIMC, 1),
    quiet: (register::EICR, 1),
    // Both causes of queue 0 are routed to vector 0 (IVAR), which clears itself (EIAC) and masks itself again (EIAM).
    vectors: &[
        (register::GPIE, 1 << 4 | 1 << 30 | 1 << 31 | 1),
        (register::IVAR_0, 1 << 7 | 1 << 15),
        (register::EIAC, 1),
        (register::EIAM, 1),
    ],
    transmit_control: ring::ENABLE,
    receive_control: ring::ENABLE,
};

/// Registers of a ring, relative to its first one.
pub(super) mod ring {
    pub const BASE: u64 = 0x00;
    pub const LENGTH: u64 = 0x08;
    /// Split and replication control, for receive rings with advanced descriptors.
    pub const SRRCTL: u64 = 0x0c;
    pub const HEAD: u64 = 0x10;
    pub const TAIL: u64 = 0x18;
    /// RXDCTL, TXDCTL.
    pub const CONTROL: u64 = 0x28;
    /// Bit of CONTROL that enables the ring.
    pub const ENABLE: u32 = 1 << 25;
}

/// Registers by their offset in BAR 0.
pub(super) mod register {
    pub const CTRL: u64 = 0x0000;
    pub const STATUS: u64 = 0x0008;
    pub const CTRL_EXT: u64 = 0x0018;
    pub const MDIC: u64 = 0x0020;
    pub const ICR: u64 = 0x00c0;
    pub const IMS: u64 = 0x00d0;
    pub const IMC: u64 = 0x00d8;
    /// Interrupts of the 82574. [82574, 10.2.4]
    pub const EIAC_82574: u64 = 0x00dc;
    pub const IAM: u64 = 0x00e0;
    pub const IVAR: u64 = 0x00e4;
    pub const RCTL: u64 = 0x0100;
    pub const TCTL: u64 = 0x0400;
    pub const TIPG: u64 = 0x0410;
    /// Arbitration between the transmit rings of the 82574.
    pub const TARC1: u64 = 0x3940;
    /// Interrupts of the 82576. [82576, 8.8]
    pub const GPIE: u64 = 0x1514;
    pub const EIMS: u64 = 0x1524;
    pub const EIMC: u64 = 0x1528;
    pub const EIAC: u64 = 0x152c;
    pub const EIAM: u64 = 0x1530;
    pub const EICR: u64 = 0x1580;
    pub const IVAR_0: u64 = 0x1700;
    pub const RXCSUM: u64 = 0x5000;
    /// Longest frame. Advanced only.
    pub const RLPML: u64 = 0x5004;
    pub const RFCTL: u64 = 0x5008;
    /// Sizes of the buffers of a packet split descriptor. Extended only.
    pub const PSRCTL: u64 = 0x2170;
    pub const MTA: u64 = 0x5200;
    pub const RAL: u64 = 0x5400;
    pub const RAH: u64 = 0x5404;
    /// Selects which headers are split. Advanced only.
    pub const PSRTYPE: u64 = 0x5480;
    pub const MRQC: u64 = 0x5818;
    /// End of the registers that are used: the rings of the 82576 come last.
    pub const END: u64 = 0xf000;
}

/// Bits of the registers.
pub(super) mod bit {
    pub const CTRL_FULL_DUPLEX: u32 = 1 << 0;
    pub const CTRL_MASTER_DISABLE: u32 = 1 << 2;
    pub const CTRL_LINK_UP: u32 = 1 << 6;
    pub const CTRL_RESET: u32 = 1 << 26;
    pub const STATUS_LINK: u32 = 1 << 1;
    pub const STATUS_MASTER: u32 = 1 << 19;
    /// Value for PHY 1, register 0 (control): negotiate, and restart.
    pub const MDIC_NEGOTIATE: u32 = 1 << 26 | 1 << 21 | 0x1200;
    pub const RCTL_ENABLE: u32 = 1 << 1;
    pub const RCTL_UNICAST_ALL: u32 = 1 << 3;
    pub const RCTL_MULTICAST_ALL: u32 = 1 << 4;
    pub const RCTL_LONG: u32 = 1 << 5;
    /// Packet split descriptors. Extended only.
    pub const RCTL_SPLIT: u32 = 1 << 10;
    pub const RCTL_BROADCAST: u32 = 1 << 15;
    pub const RCTL_SIZE_SHIFT: u32 = 16;
    pub const RCTL_SIZE_EXTENDED: u32 = 1 << 25;
    pub const RCTL_STRIP_CRC: u32 = 1 << 26;
    pub const RFCTL_EXTENDED: u32 = 1 << 15;
    pub const RXCSUM_IP: u32 = 1 << 8;
    pub const RXCSUM_TRANSPORT: u32 = 1 << 9;
    /// Suppresses the packet checksum: the RSS hash is written in its place.
    pub const RXCSUM_NO_PACKET: u32 = 1 << 13;
    pub const RAH_VALID: u32 = 1 << 31;
    pub const SRRCTL_ONE_BUFFER: u32 = 1 << 25;
    pub const SRRCTL_SPLIT: u32 = 2 << 25;
    /// TCP, UDP, IPv4 and IPv6.
    pub const PSRTYPE_ALL: u32 = 1 << 4 | 1 << 5 | 1 << 8 | 1 << 9;
    /// Enabled, short packets padded, collision threshold 15 and distance 64.
    pub const TCTL: u32 = 1 << 1 | 1 << 3 | 15 << 4 | 64 << 12;
    /// IEEE 802.3's gaps for copper.
    pub const TIPG: u32 = 8 | 8 << 10 | 6 << 20;
}
