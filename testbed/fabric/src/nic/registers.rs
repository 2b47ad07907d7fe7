//! Registers of both families [82576 data sheet, 8; 82574 data sheet, 10].

use std::collections::HashMap;
use std::time::Duration;

use super::descriptor::{DESCRIPTOR, Format};
use super::{Config, Family, Nic, Wait};
use crate::device::Context;

const CTRL: u64 = 0x0000;
const STATUS: u64 = 0x0008;
const EECD: u64 = 0x0010;
const EERD: u64 = 0x0014;
const MDIC: u64 = 0x0020;
const RCTL: u64 = 0x0100;
const TCTL: u64 = 0x0400;
const GPIE: u64 = 0x1514;
const EICR: u64 = 0x1580;
const EICS: u64 = 0x1520;
const EIMS: u64 = 0x1524;
const EIMC: u64 = 0x1528;
const EIAC: u64 = 0x152c;
const IVAR: u64 = 0x1700;
/// Arbitration of the first transmit queue of the 82574; the second one's is 0x100 bytes further [82574 data sheet, 10.2.6.9].
const TARC: u64 = 0x3840;
const TARC_ENABLE: u32 = 1 << 10;
const MPC: u64 = 0x4010;
const GPRC: u64 = 0x4074;
const GPTC: u64 = 0x4080;
const RXCSUM: u64 = 0x5000;
const RLPML: u64 = 0x5004;
const RFCTL: u64 = 0x5008;
const MTA: u64 = 0x5200;
const RAL: u64 = 0x5400;
const SWSM: u64 = 0x5b50;
const PSRTYPE: u64 = 0x5480;

/// Interrupt causes.
pub(super) const TXDW: u32 = 1;
pub(super) const LSC: u32 = 1 << 2;
pub(super) const RXO: u32 = 1 << 6;
pub(super) const RXDW: u32 = 1 << 7;
pub(super) const MDAC: u32 = 1 << 9;
const ASSERTED: u32 = 1 << 31;

const FULL_DUPLEX: u32 = 1;
const LINK_UP: u32 = 1 << 1;
const GIGABIT: u32 = 0b10 << 6;
const SET_LINK_UP: u32 = 1 << 6;
const RST: u32 = 1 << 26;
const ENABLE: u32 = 1 << 25;

/// A queue's registers, as word offsets from its base.
pub(super) const BASE_LOW: usize = 0;
const BASE_HIGH: usize = 1;
pub(super) const LENGTH: usize = 2;
const SPLIT: usize = 3;
pub(super) const HEAD: usize = 4;
pub(super) const TAIL: usize = 6;
const CONTROL: usize = 10;
const REPORT_LOW: usize = 14;
const REPORT_HIGH: usize = 15;

/// The PHY's registers [IEEE 802.3, 22.2.4].
const BMCR: usize = 0;
const BMSR: usize = 1;
const PARTNER: usize = 5;
const RESTART: u16 = 1 << 9;
const PHY_RESET: u16 = 1 << 15;

/// A register of the interrupt block: ICR, ICS, IMS, IMC.
#[derive(Clone, Copy, Debug)]
enum Interrupt {
    Cause,
    Set,
    Unmask,
    Mask,
}

/// A queue's register.
struct QueueRegister {
    transmit: bool,
    queue: usize,
    field: usize,
}

#[derive(Debug)]
pub(super) struct Registers {
    family: Family,
    mac: [u8; 6],
    /// Value written, or the value after a reset.
    plain: HashMap<u64, u32>,
    transmit: Vec<[u32; 16]>,
    receive: Vec<[u32; 16]>,
    icr: u32,
    ims: u32,
    eicr: u32,
    eims: u32,
    phy: [u16; 32],
    /// The PHY has a link, whether or not the MAC uses it.
    phy_link: bool,
    /// The PHY was told to negotiate.
    told: bool,
}

/// A ring's place in memory and its state.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ring {
    pub(super) base: u64,
    pub(super) size: u32,
    pub(super) head: u32,
    pub(super) tail: u32,
}

impl Ring {
    /// Returns an address and a count: the descriptors from the `ahead`th after the head on, at most `most`, not past the ring's
    /// end.
    pub(super) fn next(&self, ahead: u32, most: u32) -> Option<(u64, u32)> {
        if self.size == 0 || self.tail >= self.size || self.head >= self.size {
            return None;
        }
        let filled = (self.tail + self.size - self.head) % self.size;
        let left = filled.checked_sub(ahead)?;
        let at = (self.head + ahead) % self.size;
        let count = left.min(most).min(self.size - at);
        (count > 0).then(|| (self.base.wrapping_add(u64::from(at) * DESCRIPTOR), count))
    }

    pub(super) fn head_address(&self) -> u64 {
        self.base.wrapping_add(u64::from(self.head) * DESCRIPTOR)
    }
}

impl Registers {
    pub(super) fn new(config: &Config) -> Registers {
        let word = |at: usize| u32::from(config.mac[at]);
        let mut plain = HashMap::new();
        let control = match config.family {
            // Full duplex, 1000 Mb/s; the 82574 also asks for a link.
            Family::Igb => FULL_DUPLEX | 0b10 << 8,
            Family::E1000e => FULL_DUPLEX | SET_LINK_UP | 0b10 << 8,
        };
        plain.insert(CTRL, control);
        // The EEPROM is present, and has been read.
        plain.insert(EECD, 1 << 8 | 1 << 9);
        plain.insert(RAL, word(0) | word(1) << 8 | word(2) << 16 | word(3) << 24);
        plain.insert(RAL + 4, word(4) | word(5) << 8 | 1 << 31);
        plain.insert(RLPML, 0x2600);
        if config.family == Family::E1000e {
            (0..2).for_each(|queue| _ = plain.insert(TARC + 0x100 * queue, TARC_ENABLE | 3));
        }
        let mut queue = [0; 16];
        queue[SPLIT] = if config.family == Family::Igb { 0x400 } else { 0 };
        let mut phy = [0; 32];
        phy[BMCR] = 0x1140;
        phy[BMSR] = 0x7949;
        // An I347 or similar; it must only differ from the values of a PHY that is absent.
        (phy[2], phy[3], phy[4], phy[9]) = (0x02a8, 0x0390, 0x0de1, 0x0e00);
        Registers {
            family: config.family,
            mac: config.mac,
            plain,
            transmit: vec![[0; 16]; config.family.queues()],
            receive: vec![queue; config.family.queues()],
            icr: 0,
            ims: 0,
            eicr: 0,
            eims: 0,
            phy,
            phy_link: false,
            told: false,
        }
    }

    fn get(&self, offset: u64) -> u32 {
        self.plain.get(&offset).copied().unwrap_or(0)
    }

    pub(super) fn count(&mut self, received: bool) {
        let at = if received { GPRC } else { GPTC };
        *self.plain.entry(at).or_default() += 1;
    }

    pub(super) fn count_missed(&mut self) {
        *self.plain.entry(MPC).or_default() += 1;
    }

    /// Finds the queue register at an offset, in either layout: 0x100 bytes per queue, or the 82576's 0x40.
    fn place(&self, offset: u64) -> Option<QueueRegister> {
        let (start, distance, transmit) = match offset {
            0x2800..0x2c00 => (0x2800, 0x100, false),
            0x3800..0x3c00 => (0x3800, 0x100, true),
            0xc000..0xc400 if self.family == Family::Igb => (0xc000, 0x40, false),
            0xe000..0xe400 if self.family == Family::Igb => (0xe000, 0x40, true),
            _ => return None,
        };
        let (queue, within) = ((offset - start) / distance, (offset - start) % distance);
        let there = (queue as usize) < self.transmit.len() && within < 0x40;
        there.then_some(QueueRegister { transmit, queue: queue as usize, field: (within / 4) as usize })
    }

    fn queue(&mut self, place: &QueueRegister) -> &mut u32 {
        let queues = if place.transmit { &mut self.transmit } else { &mut self.receive };
        &mut queues[place.queue][place.field]
    }

    /// Finds a register of the interrupt block, which the 82576 has at two places.
    fn interrupt_register(&self, offset: u64) -> Option<Interrupt> {
        let offset = match offset {
            0x1500..0x1510 if self.family == Family::Igb => 0xc0 + (offset - 0x1500) * 2,
            other => other,
        };
        match offset {
            0xc0 => Some(Interrupt::Cause),
            0xc8 => Some(Interrupt::Set),
            0xd0 => Some(Interrupt::Unmask),
            0xd8 => Some(Interrupt::Mask),
            _ => None,
        }
    }

    pub(super) fn read(&mut self, offset: u64) -> u32 {
        if let Some(place) = self.place(offset) {
            return *self.queue(&place);
        }
        match self.interrupt_register(offset) {
            Some(Interrupt::Cause) => return std::mem::take(&mut self.icr),
            Some(Interrupt::Unmask) => return self.ims,
            Some(_) => return 0,
            None => {}
        }
        match offset {
            STATUS => {
                let up = if self.link() { LINK_UP | GIGABIT | FULL_DUPLEX } else { 0 };
                // The reset is complete; bus mastering is enabled.
                up | 1 << 19 | if self.family == Family::Igb { 1 << 21 } else { 0 }
            }
            MPC | GPRC | GPTC => self.plain.remove(&offset).unwrap_or(0),
            SWSM => {
                let value = self.get(SWSM);
                self.plain.insert(SWSM, value | 1);
                value
            }
            EICR if self.family == Family::Igb => std::mem::take(&mut self.eicr),
            EIMS if self.family == Family::Igb => self.eims,
            _ => self.get(offset),
        }
    }

    /// Stores causes. Returns true if vector 0 is to be raised.
    pub(super) fn cause(&mut self, causes: u32) -> bool {
        let before = self.icr & self.ims & !ASSERTED;
        self.icr |= causes;
        let pending = self.icr & self.ims & !ASSERTED;
        if pending != 0 {
            self.icr |= ASSERTED;
        }
        pending & !before != 0
    }

    /// Returns a queue's own vector, if the driver uses several [82576 data sheet, 7.3.1]: `None` inside if it is masked.
    pub(super) fn queue_cause(&mut self, queue: usize, transmit: bool) -> Option<Option<u16>> {
        if self.family != Family::Igb || self.get(GPIE) & 1 << 4 == 0 {
            return None;
        }
        // Queue n and n + 8 share a register: receive n, transmit n, receive n + 8, transmit n + 8.
        let byte = usize::from(transmit) + 2 * (queue / 8);
        let entry = self.get(IVAR + 4 * (queue as u64 % 8)) >> (8 * byte);
        if entry & 0x80 == 0 {
            return Some(None);
        }
        let bit = 1 << (entry & 0x1f);
        let raised = self.eicr & bit == 0 && self.eims & bit != 0;
        // Causes that are raised and clear themselves are never seen.
        if !raised || self.get(EIAC) & bit == 0 {
            self.eicr |= bit;
        }
        Some(raised.then_some((entry & 0x1f) as u16))
    }

    pub(super) fn link(&self) -> bool {
        self.phy_link && self.get(CTRL) & SET_LINK_UP != 0
    }

    /// Sets or clears the PHY's link. Returns true if that is a change.
    pub(super) fn set_link(&mut self, up: bool) -> bool {
        let news = self.phy_link != up;
        self.phy_link = up;
        // Link status, and negotiation complete.
        self.phy[BMSR] = self.phy[BMSR] & !0x24 | if up { 0x24 } else { 0 };
        self.phy[PARTNER] = if up { 0xcde1 } else { 0 };
        self.phy[10] = if up { 0x3c00 } else { 0 };
        news
    }

    /// Returns true if the PHY negotiates by itself when there is a carrier: once it was told to.
    pub(super) fn negotiated(&self) -> bool {
        self.told
    }

    /// Carries out the command in MDIC. Returns true if the PHY is to negotiate now.
    pub(super) fn phy_done(&mut self) -> bool {
        let command = self.get(MDIC);
        let (register, phy, operation) =
            ((command >> 16) as usize & 31, (command >> 21) & 31, command >> 26 & 3);
        let mut answer = command & 0x23ff_ffff | 1 << 28;
        let mut negotiate = false;
        match operation {
            _ if phy != 1 => answer |= 1 << 30,
            1 if register == BMCR => {
                let value = command as u16;
                negotiate = value & (RESTART | PHY_RESET) != 0;
                self.phy[BMCR] = value & !(RESTART | PHY_RESET);
            }
            1 if !matches!(register, BMSR | PARTNER | 2 | 3 | 10) => self.phy[register] = command as u16,
            1 => {}
            2 => answer = answer & !0xffff | u32::from(self.phy[register]),
            _ => answer |= 1 << 30,
        }
        self.told |= negotiate;
        self.plain.insert(MDIC, answer & !(3 << 26) | operation << 26);
        negotiate
    }

    pub(super) fn ring(&self, queue: usize, transmit: bool) -> Ring {
        let held = if transmit { &self.transmit[queue] } else { &self.receive[queue] };
        Ring {
            base: u64::from(held[BASE_HIGH]) << 32 | u64::from(held[BASE_LOW] & !0x7f),
            size: held[LENGTH] / DESCRIPTOR as u32,
            head: held[HEAD] & 0xffff,
            tail: held[TAIL] & 0xffff,
        }
    }

    /// Advances a ring's head, wrapping at its end.
    pub(super) fn advance(&mut self, queue: usize, transmit: bool) {
        let size = self.ring(queue, transmit).size.max(1);
        let held = if transmit { &mut self.transmit[queue] } else { &mut self.receive[queue] };
        held[HEAD] = (held[HEAD] + 1) % size;
    }

    fn enabled(&self, held: &[u32; 16]) -> bool {
        self.family == Family::E1000e || held[CONTROL] & ENABLE != 0
    }

    pub(super) fn transmits(&self, queue: usize) -> bool {
        let arbitrates =
            self.family == Family::Igb || self.get(TARC + 0x100 * queue as u64) & TARC_ENABLE != 0;
        self.get(TCTL) & 2 != 0 && self.link() && arbitrates && self.enabled(&self.transmit[queue])
    }

    pub(super) fn pads(&self) -> bool {
        self.get(TCTL) & 1 << 3 != 0
    }

    pub(super) fn receives(&self, queue: usize) -> bool {
        self.get(RCTL) & 2 != 0 && self.link() && self.enabled(&self.receive[queue])
    }

    /// Returns the address to which a queue's head is written instead of marking descriptors [82576 data sheet, 7.2.3].
    pub(super) fn head_report(&self, queue: usize) -> Option<u64> {
        let held = &self.transmit[queue];
        let on = self.family == Family::Igb && held[REPORT_LOW] & 1 != 0;
        on.then(|| u64::from(held[REPORT_HIGH]) << 32 | u64::from(held[REPORT_LOW] & !3))
    }

    /// Returns true if a frame, given without its frame check sequence, is for this NIC and not too long.
    pub(super) fn accepts(&self, frame: &[u8]) -> bool {
        let control = self.get(RCTL);
        let length = frame.len() as u32 + 4;
        let longest = match (control & 1 << 5 != 0, self.family) {
            (false, _) => 1518,
            (true, Family::Igb) => self.get(RLPML),
            (true, Family::E1000e) => 16384,
        };
        if frame.len() < 14 || length > longest {
            return false;
        }
        let to = &frame[..6];
        let multicast = to[0] & 1 == 1;
        match multicast {
            _ if (0..16).any(|slot| self.is_own(slot, to)) => true,
            false => control & 1 << 3 != 0,
            true if to == [0xff; 6] && control & 1 << 15 != 0 => true,
            true => control & 1 << 4 != 0 || self.in_table(to, control),
        }
    }

    fn is_own(&self, slot: u64, to: &[u8]) -> bool {
        let (low, high) = (self.get(RAL + 8 * slot), self.get(RAL + 8 * slot + 4));
        high & 1 << 31 != 0 && to[..4] == low.to_le_bytes() && to[4..] == high.to_le_bytes()[..2]
    }

    /// Looks up the multicast table: 12 bits of the address, from RCTL.MO on.
    fn in_table(&self, to: &[u8], control: u32) -> bool {
        let shift = [4, 3, 2, 0][(control >> 12) as usize & 3];
        let hash = (u64::from(to[5]) << 8 | u64::from(to[4])) >> shift & 0xfff;
        self.get(MTA + hash / 32 * 4) & 1 << (hash % 32) != 0
    }

    /// Returns true if the frame check sequence is not stored.
    pub(super) fn strips(&self) -> bool {
        self.get(RCTL) & 1 << 26 != 0
    }

    /// Returns true if checksums of IP, and of TCP and UDP, are checked.
    pub(super) fn checks(&self) -> (bool, bool) {
        let control = self.get(RXCSUM);
        (control & 1 << 8 != 0, control & 1 << 9 != 0)
    }

    /// Returns the format of a receive queue's descriptors.
    pub(super) fn format(&self, queue: usize) -> Format {
        match self.family {
            Family::Igb if (self.receive[queue][SPLIT] >> 25) & 7 == 0 => Format::Legacy,
            Family::Igb => Format::Advanced,
            Family::E1000e if self.get(RFCTL) & 1 << 15 != 0 => Format::Extended,
            Family::E1000e => Format::Legacy,
        }
    }

    /// Returns the bytes of a queue's buffer for packets.
    pub(super) fn buffer(&self, queue: usize) -> usize {
        let own = self.receive[queue][SPLIT] & 0x7f;
        if self.family == Family::Igb && own != 0 {
            return own as usize * 1024;
        }
        let control = self.get(RCTL);
        let size = [2048, 1024, 512, 256][(control >> 16) as usize & 3];
        if control & ENABLE != 0 && size < 2048 { size * 16 } else { size }
    }

    /// Returns the bytes of a queue's buffer for headers, if it splits them off, and true if it always uses it. Only for
    /// protocols of PSRTYPE.
    pub(super) fn split(&self, queue: usize) -> Option<(usize, bool)> {
        let control = self.receive[queue][SPLIT];
        let kind = (control >> 25) & 7;
        let split = self.family == Family::Igb && matches!(kind, 2 | 5);
        split.then_some(((control >> 8) as usize % 64 * 64, kind == 5))
    }

    /// Returns true if headers of this protocol are split off.
    pub(super) fn splits(&self, queue: usize, protocol: u8, ip: u8) -> bool {
        let kinds = self.get(PSRTYPE + 4 * (queue as u64 % 8));
        let bit = match (protocol, ip) {
            (6, _) => 4,
            (17, _) => 5,
            (_, 4) => 8,
            (_, 6) => 9,
            _ => return false,
        };
        kinds & 1 << bit != 0
    }

    fn read_eeprom(&mut self, value: u32) {
        let word = match (value >> 2) as usize & 0x3fff {
            at @ 0..3 => u16::from_le_bytes([self.mac[2 * at], self.mac[2 * at + 1]]),
            _ => 0,
        };
        self.plain.insert(EERD, value & 0xfffc | 1 << 1 | u32::from(word) << 16);
    }
}

/// Duration of a transfer on the serial bus to the PHY: 64 bits at 2.5 MHz.
const PHY_TIME: Duration = Duration::from_micros(26);

impl Nic {
    pub(super) fn write_register(&mut self, offset: u64, value: u32, cx: &mut Context<'_>) {
        if let Some(place) = self.registers.place(offset) {
            return self.write_queue(&place, value, cx);
        }
        if let Some(which) = self.registers.interrupt_register(offset) {
            return self.write_interrupt(which, value, cx);
        }
        match offset {
            CTRL if value & RST != 0 => self.reset_mac(cx),
            CTRL => {
                self.registers.plain.insert(CTRL, value);
                self.transmit_all(cx);
            }
            STATUS => {}
            EERD if value & 1 != 0 => self.registers.read_eeprom(value),
            MDIC => {
                // Bits 28 and 30 are the NIC's.
                self.registers.plain.insert(MDIC, value & !(5 << 28));
                let token = self.token(Wait::Phy);
                cx.after(PHY_TIME, token);
            }
            RCTL | TCTL => {
                self.registers.plain.insert(offset, value);
                self.transmit_all(cx);
                self.receive_all(cx);
            }
            EICR => self.registers.eicr &= !value,
            EICS => self.registers.eicr |= value,
            EIMS => self.registers.eims |= value,
            EIMC => self.registers.eims &= !value,
            _ => {
                self.registers.plain.insert(offset, value);
            }
        }
    }

    fn write_queue(&mut self, place: &QueueRegister, value: u32, cx: &mut Context<'_>) {
        *self.registers.queue(place) = value;
        if place.field == CONTROL && value & ENABLE == 0 && self.config.family == Family::Igb {
            self.stop(place.queue, place.transmit);
        }
        match place.transmit {
            true => self.transmit(place.queue, cx),
            false => self.receive_fetch(place.queue, cx),
        }
    }

    fn write_interrupt(&mut self, which: Interrupt, value: u32, cx: &mut Context<'_>) {
        match which {
            Interrupt::Cause => self.registers.icr &= !value,
            Interrupt::Set => self.cause(value, cx),
            Interrupt::Unmask => {
                self.registers.ims |= value;
                // Unmasking raises causes that are pending already.
                if self.registers.icr & value & !ASSERTED != 0 {
                    cx.interrupt(0);
                }
            }
            Interrupt::Mask => self.registers.ims &= !value,
        }
    }
}
