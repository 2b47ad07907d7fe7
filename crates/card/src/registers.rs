//! BAR0 of the card: NVMe's controller registers, the engine's own, and the doorbells. [dcs_abi::register]
//!
//! Plain state, without a bus and without waiting: an access stores or reads, and its requests to the card are kept until the card takes
//! them ([`Registers::take`]). They are bounded: for each doorbell only the newest value is kept.

use dcs_abi::register as engine;
use dcs_nvme::register::{
    ACQ, AQA, ASQ, CAP, CC, CSTS, DOORBELLS, INTMC, INTMS, Shutdown, ShutdownRequest, VS,
};
use dcs_nvme::{AdminQueueSizes, Capabilities, Configuration, ControllerStatus};
use dcs_vfio_user::pci;
use dcs_vfio_user::wake::Wake;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Version 2.1.
const VERSION: u32 = 0x0002_0100;
/// Time limit for becoming ready, in units of 500 ms: 10 s.
const TIMEOUT: u8 = 20;
/// Distance between doorbells, in bytes.
const STRIDE: u64 = 4;

/// The capabilities of the engine that a card's registers show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineCapabilities {
    /// Size of a block in bytes.
    pub block_size: u32,
    /// Number of blocks.
    pub blocks: u32,
    /// Most commands that may be active at once.
    pub commands: u32,
    /// Available operators: bit n is operator n.
    pub operators: u64,
    /// Most entries of a queue.
    pub depth: u16,
}

/// The addresses and sizes of the admin queues.
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

/// The host's requests to the card, made by register writes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostRequests {
    /// Set if the function was reset, or lost its host: no device can be reached, and reads of the host's memory are not answered.
    pub reset: bool,
    /// Set to end everything without a trace (CC.EN = 0, or the function was reset).
    pub stop: bool,
    /// Admin queues for the card to start with after that (CC.EN = 1).
    pub start: Option<AdminQueues>,
    /// New tails: queue, value.
    pub tails: Vec<(u16, u32)>,
    /// New heads: queue, value.
    pub heads: Vec<(u16, u32)>,
    /// Interrupts whose mask the host has removed while they were pending: bit n is vector n.
    pub interrupts: u32,
}

/// The registers.
#[derive(Clone, Debug)]
pub struct Registers {
    engine: EngineCapabilities,
    blocks_free: u32,
    scoreboard: u32,
    /// CC, as written.
    cc: u32,
    csts: ControllerStatus,
    aqa: AdminQueueSizes,
    asq: u64,
    acq: u64,
    /// Vectors that the host has masked (INTMS, INTMC): bit n is vector n.
    masked: u32,
    /// Masked vectors whose interrupt is due: bit n is vector n.
    pending: u32,
    requests: HostRequests,
    queues: u16,
}

impl Registers {
    /// Makes registers in their power-on state, with doorbells of this many queues, including the admin queue.
    pub fn new(engine: EngineCapabilities, queues: u16) -> Registers {
        let (blocks_free, requests) = (engine.blocks, HostRequests::default());
        let (csts, aqa) = (ControllerStatus::default(), AdminQueueSizes::from_bits(0));
        let (scoreboard, cc, asq, acq, masked, pending) = Default::default();
        Registers {
            engine,
            blocks_free,
            scoreboard,
            cc,
            csts,
            aqa,
            asq,
            acq,
            masked,
            pending,
            requests,
            queues,
        }
    }

    /// Reads registers.
    pub fn read(&self, offset: u64, bytes: &mut [u8]) {
        for (at, byte) in (offset..).zip(bytes) {
            let (register, value) = self.value(at);
            *byte = value.to_le_bytes()[(at - register) as usize];
        }
    }

    /// Returns the register at an offset: its start, and its value; 0 if there is none.
    fn value(&self, at: u64) -> (u64, u64) {
        let (quad, word) = (at & !7, at & !3);
        match quad {
            CAP => return (quad, self.capabilities().bits()),
            ASQ => return (quad, self.asq),
            ACQ => return (quad, self.acq),
            _ if quad == engine::ENGINE_OPERATORS as u64 => return (quad, self.engine.operators),
            _ => {}
        }
        let value = match word {
            VS => VERSION,
            INTMS | INTMC => self.masked,
            CC => self.cc,
            CSTS => self.csts.bits(),
            AQA => self.aqa.bits(),
            _ => match word as usize {
                engine::ENGINE_ID => engine::ENGINE_ID_VALUE,
                engine::ENGINE_ABI => dcs_abi::ABI_VERSION.into(),
                engine::ENGINE_BLOCK_SIZE => self.engine.block_size,
                engine::ENGINE_BLOCKS => self.engine.blocks,
                engine::ENGINE_BLOCKS_FREE => self.blocks_free,
                engine::ENGINE_COMMANDS => self.engine.commands,
                engine::ENGINE_SCOREBOARD => self.scoreboard,
                _ => 0,
            },
        };
        (word, value.into())
    }

    /// Returns the value of CAP: contiguous queues, the admin command set alone, pages of 4 KiB.
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            max_entries: self.engine.depth.into(),
            contiguous: true,
            timeout: TIMEOUT,
            admin_only: true,
            ..Capabilities::default()
        }
    }

    fn configuration(&self) -> Configuration {
        Configuration::from_bits(self.cc)
    }

    /// Writes 4 bytes, or 8 if the register has them; ignores other writes, and those to read-only places.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        match (offset, bytes.len()) {
            (ASQ | ACQ, 8) => {
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
            INTMS => self.masked |= value,
            INTMC => self.unmask(value),
            CC => self.configure(value),
            AQA => self.aqa = AdminQueueSizes::from_bits(value),
            ASQ => self.asq = low(self.asq) & !0xfff,
            ACQ => self.acq = low(self.acq) & !0xfff,
            _ if offset == ASQ + 4 => self.asq = high(self.asq),
            _ if offset == ACQ + 4 => self.acq = high(self.acq),
            _ if offset >= DOORBELLS => self.ring((offset - DOORBELLS) / STRIDE, value),
            _ => {}
        }
    }

    fn configure(&mut self, value: u32) {
        let before = self.configuration();
        self.cc = value;
        let wanted = self.configuration();
        if wanted.enabled && !before.enabled {
            // A shutdown's state from before is cleared too.
            self.csts = ControllerStatus::default();
        }
        match (before.enabled, wanted.enabled) {
            (true, false) => self.stop(),
            (false, true) if !is_possible(wanted) => self.csts.fatal = true,
            (false, true) => {
                self.requests.start = Some(AdminQueues {
                    submissions: self.asq,
                    submission_depth: self.aqa.submissions,
                    completions: self.acq,
                    completion_depth: self.aqa.completions,
                });
            }
            _ => {}
        }
        // Nothing of the card's outlives a shutdown, so there is nothing to wait for.
        if wanted.shutdown != ShutdownRequest::None {
            self.csts.shutdown = Shutdown::Complete;
        }
    }

    fn stop(&mut self) {
        self.requests = HostRequests { stop: true, reset: self.requests.reset, ..HostRequests::default() };
        self.csts = ControllerStatus::default();
        (self.masked, self.pending) = (0, 0);
    }

    /// Handles INTMC: pending interrupts are due now.
    fn unmask(&mut self, vectors: u32) {
        self.masked &= !vectors;
        self.requests.interrupts |= self.pending & vectors;
        self.pending &= !vectors;
    }

    /// Returns true if an interrupt may be raised now. A masked one stays pending until its mask is removed; vectors 0 to 31 have masks.
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
        if queue >= u64::from(self.queues) || !self.configuration().enabled {
            return;
        }
        let queue = queue as u16;
        let side =
            if doorbell.is_multiple_of(2) { &mut self.requests.tails } else { &mut self.requests.heads };
        match side.iter_mut().find(|(other, _)| *other == queue) {
            Some((_, newest)) => *newest = value,
            None => side.push((queue, value)),
        }
    }

    /// Resets the registers, since the function was reset.
    pub fn reset(&mut self) {
        *self = Registers::new(self.engine, self.queues);
        (self.requests.reset, self.requests.stop) = (true, true);
    }

    /// Returns true if work that was begun must end before anything else is done.
    pub fn is_stopped(&self) -> bool {
        self.requests.stop
    }

    /// Returns true if there is something to take.
    pub fn has_requests(&self) -> bool {
        self.requests != HostRequests::default()
    }

    /// Takes the host's requests since the last time.
    pub fn take(&mut self) -> HostRequests {
        std::mem::take(&mut self.requests)
    }

    /// Notes that the card has started, if the host still wants that.
    pub fn set_ready(&mut self) {
        if self.configuration().enabled && !self.requests.stop {
            self.csts.ready = true;
        }
    }

    /// Notes that the card cannot go on until it is reset (CSTS.CFS).
    pub fn set_fatal(&mut self) {
        self.csts.fatal = true;
    }

    /// Updates the engine's load.
    pub fn set_load(&mut self, blocks_free: u32, rows_in_use: u16, rows: u16) {
        self.blocks_free = blocks_free;
        self.scoreboard = u32::from(rows_in_use) | u32::from(rows) << 16;
    }
}

/// Returns true if the entry sizes, page size and arbitration are the only supported ones.
fn is_possible(wanted: Configuration) -> bool {
    wanted.has_entry_sizes() && wanted.page == 0 && wanted.arbitration == 0
}

/// The registers, shared by the host's side and the card's.
#[derive(Clone, Debug)]
pub struct SharedRegisters {
    registers: Arc<Mutex<Registers>>,
    /// Wakes the card if it sleeps.
    wake: Option<Wake>,
}

impl SharedRegisters {
    /// Shares the registers. `wake` wakes the thread that runs the card.
    pub fn new(registers: Registers, wake: Option<Wake>) -> SharedRegisters {
        SharedRegisters { registers: Arc::new(Mutex::new(registers)), wake }
    }

    /// Locks and returns the registers.
    pub fn lock(&self) -> MutexGuard<'_, Registers> {
        self.registers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn notify(&self) {
        if let Some(wake) = &self.wake {
            wake.notify();
        }
    }
}

impl pci::Registers for SharedRegisters {
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

    /// CAP except MQES: contiguous queues (16), 20 units (31:24), admin commands alone (44).
    const CAP: u64 = 1 << 16 | 20 << 24 | 1 << 44;
    /// CC: entries of 64 (19:16) and 16 bytes (23:20); enabled.
    const CONFIGURATION: u32 = 6 << 16 | 4 << 20;
    const ENABLE: u32 = 1;
    /// CSTS: ready, fatal, shutdown complete.
    const READY: u32 = 1;
    const FATAL: u32 = 1 << 1;
    const SHUT_DOWN: u32 = 2 << 2;

    fn registers() -> Registers {
        let capabilities =
            EngineCapabilities { block_size: 65536, blocks: 64, commands: 32, operators: 0b110, depth: 1024 };
        Registers::new(capabilities, 5)
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
        assert_eq!(word(&registers, 0xf00), 0x4443_5331);
        assert_eq!((word(&registers, 0xf08), word(&registers, 0xf20)), (65536, 0b110));
        assert_eq!(word(&registers, 0xfff_fff0), 0);
    }

    #[test]
    fn it_starts_once_where_the_admin_queues_are() {
        let mut registers = registers();
        enable(&mut registers);
        let requests = registers.take();
        let queues = AdminQueues {
            submissions: 0x1_2345_6000,
            submission_depth: 32,
            completions: 0x8000,
            completion_depth: 16,
        };
        assert_eq!((requests.start, requests.stop), (Some(queues), false));
        registers.set_ready();
        assert_eq!(word(&registers, 0x1c), READY);
        registers.write(0x14, &(CONFIGURATION | ENABLE).to_le_bytes());
        assert_eq!(registers.take(), HostRequests::default());
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
        let requests = registers.take();
        assert!(requests.stop && requests.start.is_some(), "stop, then start");
    }

    /// Checks the order of requests, however late the card takes them: the reset, then the end of earlier work, then the start.
    #[test]
    fn a_reset_is_not_forgotten_by_the_start_that_follows() {
        let mut registers = registers();
        enable(&mut registers);
        registers.take();
        registers.reset();
        enable(&mut registers);
        registers.write(0x14, &[0; 4]);
        enable(&mut registers);
        let requests = registers.take();
        assert!(requests.reset && requests.stop && requests.start.is_some());
        registers.write(0x14, &[0; 4]);
        assert!(!registers.take().reset);
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
        assert_eq!(registers.take(), HostRequests::default(), "it is off");
        enable(&mut registers);
        for value in [1u32, 2, 3] {
            registers.write(sq_tail_doorbell(4) as u64, &value.to_le_bytes());
            registers.write(cq_head_doorbell(0) as u64, &value.to_le_bytes());
            registers.write(sq_tail_doorbell(5) as u64, &value.to_le_bytes());
            registers.write(sq_tail_doorbell(4) as u64 + 1, &value.to_le_bytes());
            registers.write(u64::MAX - 3, &value.to_le_bytes());
        }
        let requests = registers.take();
        assert_eq!((requests.tails, requests.heads), (vec![(4, 3)], vec![(0, 3)]));
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
        assert_eq!(registers.take(), HostRequests::default(), "nothing was due");
        registers.write(0x10, &0b010u32.to_le_bytes());
        assert_eq!(registers.take().interrupts, 0b010);
        assert!(registers.may_interrupt(1) && word(&registers, 0x0c) == 0);
        registers.write(0x0c, &1u32.to_le_bytes());
        registers.write(0x14, &[0; 4]);
        assert!(registers.may_interrupt(0), "a reset takes masks away");
    }
}
