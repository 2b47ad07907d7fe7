//! BAR0 of the card: NVMe's controller registers, the engine's own, and the doorbells. [dcs_abi::register]
//!
//! Plain state, without a bus and without waiting: an access stores or reads, and what it asks of the card is kept until the card
//! takes it ([`Registers::take`]). What is kept has a bound: of each doorbell only the newest value counts.

use crate::pci;
use crate::wake::Wake;
use dcs_abi::register::{DOORBELL_BASE, ENGINE_BLOCK};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Version 2.1.
const VERSION: u32 = 0x0002_0100;
/// 'DCS1'.
const ENGINE_ID: u32 = 0x4443_5331;
/// CAP: queues are contiguous (CQR); 10 s to become ready (TO, in 500 ms); the admin command set alone (CSS bit 7); pages of 4 KiB.
const CAP: u64 = 1 << 16 | 20 << 24 | 1 << 44;
/// CC.EN.
const ENABLE: u32 = 1;
/// CC with the only entry sizes, page size and arbitration that there are: IOSQES 6, IOCQES 4.
const CONFIGURATION: u32 = 6 << 16 | 4 << 20;
/// The bits of CC that have to be as in [`CONFIGURATION`]: IOCQES, IOSQES, AMS, MPS.
const CONFIGURATION_MASK: u32 = 0x00ff_3f80;
/// CSTS.RDY, CSTS.CFS, CSTS.SHST (complete).
const READY: u32 = 1;
const FATAL: u32 = 1 << 1;
const SHUT_DOWN: u32 = 2 << 2;

/// What a card tells of itself in its registers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Bytes of a block.
    pub block_size: u32,
    /// Blocks.
    pub blocks: u32,
    /// Commands that may be active at once.
    pub commands: u32,
    /// Bit n: operator n is there.
    pub operators: u64,
    /// Most entries of a queue.
    pub depth: u16,
}

/// Where the admin queues are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdminQueues {
    /// Bus address of the submission queue.
    pub submissions: u64,
    /// Entries of the submission queue.
    pub submission_depth: u16,
    /// Bus address of the completion queue.
    pub completions: u64,
    /// Entries of the completion queue.
    pub completion_depth: u16,
}

/// What the host wants of the card, by its register writes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// The function was reset, or lost its host: the devices can be told nothing, and what was asked of the host is answered by nobody.
    pub silenced: bool,
    /// Everything that was begun ends without a trace (CC.EN = 0, or the function was reset).
    pub stop: bool,
    /// The admin queues, where the card is to start (CC.EN = 1), after that.
    pub start: Option<AdminQueues>,
    /// New tails: queue, value.
    pub tails: Vec<(u16, u32)>,
    /// New heads: queue, value.
    pub heads: Vec<(u16, u32)>,
    /// Interrupts that were held back by a mask which the host has taken away: bit n is vector n.
    pub interrupts: u32,
}

/// The registers.
#[derive(Clone, Debug)]
pub struct Registers {
    facts: Facts,
    blocks_free: u32,
    scoreboard: u32,
    cc: u32,
    csts: u32,
    aqa: u32,
    asq: u64,
    acq: u64,
    /// Vectors that the host has masked (INTMS, INTMC), and those of them that are due: bit n is vector n.
    masked: u32,
    pending: u32,
    wanted: Wanted,
    queues: u16,
}

impl Registers {
    /// Registers as they are after power on, with doorbells of so many queues, the admin queue included.
    pub fn new(facts: Facts, queues: u16) -> Registers {
        let (blocks_free, wanted) = (facts.blocks, Wanted::default());
        let (scoreboard, cc, csts, aqa, asq, acq, masked, pending) = Default::default();
        Registers { facts, blocks_free, scoreboard, cc, csts, aqa, asq, acq, masked, pending, wanted, queues }
    }

    /// A load.
    pub fn read(&self, offset: u64, bytes: &mut [u8]) {
        for (at, byte) in (offset..).zip(bytes) {
            let (register, value) = self.value(at);
            *byte = value.to_le_bytes()[(at - register) as usize];
        }
    }

    /// The register that a byte belongs to, and its value; 0 where there is none.
    fn value(&self, at: u64) -> (u64, u64) {
        let (quad, word) = (at & !7, at & !3);
        let engine = ENGINE_BLOCK as u64;
        match quad {
            0x00 => return (quad, CAP | u64::from(self.facts.depth.saturating_sub(1))),
            0x28 => return (quad, self.asq),
            0x30 => return (quad, self.acq),
            _ if quad == engine + 0x20 => return (quad, self.facts.operators),
            _ => {}
        }
        let value = match word {
            0x08 => VERSION,
            0x0c | 0x10 => self.masked,
            0x14 => self.cc,
            0x1c => self.csts,
            0x24 => self.aqa,
            _ if word < engine => 0,
            _ => match word - engine {
                0x00 => ENGINE_ID,
                0x04 => dcs_abi::ABI_VERSION.into(),
                0x08 => self.facts.block_size,
                0x0c => self.facts.blocks,
                0x10 => self.blocks_free,
                0x14 => self.facts.commands,
                0x18 => self.scoreboard,
                _ => 0,
            },
        };
        (word, value.into())
    }

    /// A store of 4 bytes, or 8 where the register has them; others are ignored, as are those to where nothing can be written.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        match (offset, bytes.len()) {
            (0x28 | 0x30, 8) => {
                self.write(offset, &bytes[..4]);
                self.write(offset + 4, &bytes[4..]);
            }
            (_, 4) if offset.is_multiple_of(4) => {
                let value = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
                self.write_word(offset, value);
            }
            _ => {}
        }
    }

    fn write_word(&mut self, offset: u64, value: u32) {
        let low = |old: u64| old & !0xffff_ffff | u64::from(value);
        let high = |old: u64| old & 0xffff_ffff | u64::from(value) << 32;
        match offset {
            0x0c => self.masked |= value,
            0x10 => self.unmask(value),
            0x14 => self.configure(value),
            0x24 => self.aqa = value & 0x0fff_0fff,
            0x28 => self.asq = low(self.asq) & !0xfff,
            0x2c => self.asq = high(self.asq),
            0x30 => self.acq = low(self.acq) & !0xfff,
            0x34 => self.acq = high(self.acq),
            _ if offset >= DOORBELL_BASE as u64 => self.ring((offset - DOORBELL_BASE as u64) / 4, value),
            _ => {}
        }
    }

    fn configure(&mut self, value: u32) {
        let before = std::mem::replace(&mut self.cc, value);
        if value & !before & ENABLE != 0 {
            // Also what a shutdown left while it was off.
            self.csts = 0;
        }
        match (before & ENABLE, value & ENABLE) {
            (1, 0) => self.stop(),
            (0, 1) if value & CONFIGURATION_MASK != CONFIGURATION => self.csts |= FATAL,
            (0, 1) => {
                let depth = |field: u32| (field & 0xfff) as u16 + 1;
                self.wanted.start = Some(AdminQueues {
                    submissions: self.asq,
                    submission_depth: depth(self.aqa),
                    completions: self.acq,
                    completion_depth: depth(self.aqa >> 16),
                });
            }
            _ => {}
        }
        // CC.SHN: nothing of the card's outlives a shutdown that has to be waited for.
        if value >> 14 & 3 != 0 {
            self.csts |= SHUT_DOWN;
        }
    }

    fn stop(&mut self) {
        self.wanted = Wanted { stop: true, silenced: self.wanted.silenced, ..Wanted::default() };
        (self.csts, self.masked, self.pending) = (0, 0, 0);
    }

    /// INTMC: what was held back meanwhile is due now.
    fn unmask(&mut self, vectors: u32) {
        self.masked &= !vectors;
        self.wanted.interrupts |= self.pending & vectors;
        self.pending &= !vectors;
    }

    /// True where an interrupt may be raised now. One whose vector is masked stays due until the mask is gone; vectors 0 to 31 have masks.
    pub fn may_interrupt(&mut self, vector: u16) -> bool {
        let bit = 1u32.checked_shl(vector.into()).unwrap_or(0);
        let masked = self.masked & bit != 0;
        if masked {
            self.pending |= bit;
        }
        !masked
    }

    fn ring(&mut self, doorbell: u64, value: u32) {
        let queue = doorbell / 2;
        if queue >= u64::from(self.queues) || self.cc & ENABLE == 0 {
            return;
        }
        let queue = queue as u16;
        let side = if doorbell.is_multiple_of(2) { &mut self.wanted.tails } else { &mut self.wanted.heads };
        match side.iter_mut().find(|(other, _)| *other == queue) {
            Some((_, newest)) => *newest = value,
            None => side.push((queue, value)),
        }
    }

    /// The function was reset.
    pub fn reset(&mut self) {
        *self = Registers::new(self.facts, self.queues);
        (self.wanted.silenced, self.wanted.stop) = (true, true);
    }

    /// True where work that was begun must end before anything else is done.
    pub fn is_stopped(&self) -> bool {
        self.wanted.stop
    }

    /// Whether there is something to take.
    pub fn is_wanted(&self) -> bool {
        self.wanted != Wanted::default()
    }

    /// What the host has asked for since the last time.
    pub fn take(&mut self) -> Wanted {
        std::mem::take(&mut self.wanted)
    }

    /// The card has started; only if the host still wants that.
    pub fn set_ready(&mut self) {
        if self.cc & ENABLE == 1 && !self.wanted.stop {
            self.csts |= READY;
        }
    }

    /// The card cannot go on until it is reset (CSTS.CFS).
    pub fn set_fatal(&mut self) {
        self.csts |= FATAL;
    }

    /// What the engine has left.
    pub fn set_load(&mut self, blocks_free: u32, rows_in_use: u16, rows: u16) {
        self.blocks_free = blocks_free;
        self.scoreboard = u32::from(rows_in_use) | u32::from(rows) << 16;
    }
}

/// The registers as the host's side and the card's share them.
#[derive(Clone, Debug)]
pub struct Front {
    registers: Arc<Mutex<Registers>>,
    /// Wakes the card, where it sleeps.
    wake: Option<Wake>,
}

impl Front {
    /// Shares them. `wake` wakes whoever runs the card.
    pub fn new(registers: Registers, wake: Option<Wake>) -> Front {
        Front { registers: Arc::new(Mutex::new(registers)), wake }
    }

    /// The registers.
    pub fn lock(&self) -> MutexGuard<'_, Registers> {
        self.registers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn notify(&self) {
        if let Some(wake) = &self.wake {
            wake.notify();
        }
    }
}

impl pci::Registers for Front {
    fn read(&mut self, offset: u64, bytes: &mut [u8]) {
        self.lock().read(offset, bytes);
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) {
        self.lock().write(offset, bytes);
        self.notify();
    }

    fn reset(&mut self) {
        self.lock().reset();
        self.notify();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dcs_abi::register::{cq_head_doorbell, sq_tail_doorbell};

    fn registers() -> Registers {
        let facts = Facts { block_size: 65536, blocks: 64, commands: 32, operators: 0b110, depth: 1024 };
        Registers::new(facts, 5)
    }

    fn word(registers: &Registers, offset: u64) -> u32 {
        let mut bytes = [0; 4];
        registers.read(offset, &mut bytes);
        u32::from_le_bytes(bytes)
    }

    fn enable(registers: &mut Registers) {
        registers.write(0x24, &0x000f_001fu32.to_le_bytes());
        registers.write(0x28, &0x1_2345_6789u64.to_le_bytes());
        registers.write(0x30, &0x8000u64.to_le_bytes());
        registers.write(0x14, &(CONFIGURATION | ENABLE).to_le_bytes());
    }

    #[test]
    fn what_the_card_is_can_be_read_in_any_pieces() {
        let registers = registers();
        let mut all = [0; 8];
        registers.read(0, &mut all);
        assert_eq!(u64::from_le_bytes(all), CAP | 1023);
        let mut one = [0];
        registers.read(2, &mut one);
        assert_eq!(one, [1]);
        assert_eq!(word(&registers, 0xf00), ENGINE_ID);
        assert_eq!((word(&registers, 0xf08), word(&registers, 0xf20)), (65536, 0b110));
        assert_eq!(word(&registers, 0xfff_fff0), 0);
    }

    #[test]
    fn it_starts_once_where_the_admin_queues_are() {
        let mut registers = registers();
        enable(&mut registers);
        let wanted = registers.take();
        let queues = AdminQueues {
            submissions: 0x1_2345_6000,
            submission_depth: 32,
            completions: 0x8000,
            completion_depth: 16,
        };
        assert_eq!((wanted.start, wanted.stop), (Some(queues), false));
        registers.set_ready();
        assert_eq!(word(&registers, 0x1c), READY);
        registers.write(0x14, &(CONFIGURATION | ENABLE).to_le_bytes());
        assert_eq!(registers.take(), Wanted::default());
        registers.write(0x14, &CONFIGURATION.to_le_bytes());
        assert!(registers.take().stop && word(&registers, 0x1c) == 0);
    }

    #[test]
    fn a_start_that_was_taken_back_is_not_ready() {
        let mut registers = registers();
        enable(&mut registers);
        registers.take();
        registers.write(0x14, &[0; 4]);
        registers.set_ready();
        assert_eq!(word(&registers, 0x1c), 0);
        enable(&mut registers);
        let wanted = registers.take();
        assert!(wanted.stop && wanted.start.is_some(), "first the one, then the other");
    }

    /// However late the card looks: the reset comes first, then the end of what was there, then the start.
    #[test]
    fn a_reset_is_not_forgotten_by_the_start_that_follows() {
        let mut registers = registers();
        enable(&mut registers);
        registers.take();
        registers.reset();
        enable(&mut registers);
        registers.write(0x14, &[0; 4]);
        enable(&mut registers);
        let wanted = registers.take();
        assert!(wanted.silenced && wanted.stop && wanted.start.is_some());
        registers.write(0x14, &[0; 4]);
        assert!(!registers.take().silenced);
    }

    #[test]
    fn sizes_that_are_not_to_be_had_are_fatal() {
        let mut registers = registers();
        registers.write(0x14, &(CONFIGURATION | 1 << 7 | ENABLE).to_le_bytes());
        assert_eq!((registers.take().start, word(&registers, 0x1c)), (None, FATAL));
    }

    #[test]
    fn a_shutdown_of_what_is_off_is_forgotten_when_it_starts() {
        let mut registers = registers();
        registers.write(0x14, &(1u32 << 14).to_le_bytes());
        assert_eq!(word(&registers, 0x1c), SHUT_DOWN);
        enable(&mut registers);
        registers.take();
        registers.set_ready();
        assert_eq!(word(&registers, 0x1c), READY);
    }

    #[test]
    fn of_a_doorbell_the_newest_value_counts_and_those_that_are_not_there_do_nothing() {
        let mut registers = registers();
        registers.write(sq_tail_doorbell(0) as u64, &[1, 0, 0, 0]);
        assert_eq!(registers.take(), Wanted::default(), "it is off");
        enable(&mut registers);
        for value in [1u32, 2, 3] {
            registers.write(sq_tail_doorbell(4) as u64, &value.to_le_bytes());
            registers.write(cq_head_doorbell(0) as u64, &value.to_le_bytes());
            registers.write(sq_tail_doorbell(5) as u64, &value.to_le_bytes());
            registers.write(sq_tail_doorbell(4) as u64 + 1, &value.to_le_bytes());
            registers.write(u64::MAX - 3, &value.to_le_bytes());
        }
        let wanted = registers.take();
        assert_eq!((wanted.tails, wanted.heads), (vec![(4, 3)], vec![(0, 3)]));
    }

    #[test]
    fn a_masked_interrupt_is_due_when_its_mask_is_gone() {
        let mut registers = registers();
        enable(&mut registers);
        registers.take();
        registers.write(0x0c, &0b110u32.to_le_bytes());
        registers.write(0x0c, &[0; 4]);
        assert_eq!((word(&registers, 0x0c), word(&registers, 0x10)), (0b110, 0b110));
        assert!(registers.may_interrupt(0) && !registers.may_interrupt(1) && registers.may_interrupt(40));
        registers.write(0x10, &0b100u32.to_le_bytes());
        assert_eq!(registers.take(), Wanted::default(), "nothing was due");
        registers.write(0x10, &0b010u32.to_le_bytes());
        assert_eq!(registers.take().interrupts, 0b010);
        assert!(registers.may_interrupt(1) && word(&registers, 0x0c) == 0);
        registers.write(0x0c, &1u32.to_le_bytes());
        registers.write(0x14, &[0; 4]);
        assert!(registers.may_interrupt(0), "a reset takes masks away");
    }
}
