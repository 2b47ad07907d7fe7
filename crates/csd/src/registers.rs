//! The registers of BAR0, and the effects of writing them.

use dcs_nvme::register::{
    ACQ, AQA, ASQ, CAP, CC, CSTS, DOORBELLS, INTMC, INTMS, Shutdown, ShutdownRequest, VS,
};
use dcs_nvme::{AdminQueueSizes, Capabilities, Configuration, ControllerStatus};

use crate::controller::Controller;

/// NVMe 1.4.
pub const VERSION: u32 = 0x0001_0400;

/// Bytes from one doorbell to the next.
pub const STRIDE: u64 = 4;

/// Largest memory page, as a power of two: 64 KiB.
const PAGE_SHIFT_MAX: u8 = 16;

/// Time that a reset may take, in units of 500 ms: the disk's answers are waited for, since it may write to
/// the guest's memory until then.
const TIMEOUT: u8 = 60;

/// The values of the registers.
pub struct Registers {
    cap: Capabilities,
    mask: u32,
    cc: u32,
    pub csts: ControllerStatus,
    aqa: AdminQueueSizes,
    asq: u64,
    acq: u64,
    /// CC at the time when the controller was enabled.
    pub enabled_by: Configuration,
}

/// The admin queues as the registers describe them.
pub struct AdminQueues {
    pub submissions: (u64, u32),
    pub completions: (u64, u32),
}

impl Registers {
    /// Makes registers for queues of at most this many entries; `command_sets`: of more sets than NVM.
    pub fn new(entries: u32, command_sets: bool) -> Registers {
        let cap = Capabilities {
            max_entries: entries,
            command_sets,
            contiguous: true,
            timeout: TIMEOUT,
            stride: 0,
            nvm_commands: true,
            page_shift_max: PAGE_SHIFT_MAX,
            ..Capabilities::default()
        };
        Registers {
            cap,
            mask: 0,
            cc: 0,
            csts: ControllerStatus::default(),
            aqa: AdminQueueSizes::from_bits(0),
            asq: 0,
            acq: 0,
            enabled_by: Configuration::default(),
        }
    }

    /// Sets all registers but the capabilities to their values after power-on.
    pub fn reset(&mut self) {
        *self = Registers::new(self.cap.max_entries, self.cap.command_sets);
    }

    pub fn configuration(&self) -> Configuration {
        Configuration::from_bits(self.cc)
    }

    /// Returns the bytes of a page of the guest's memory.
    pub fn page(&self) -> u64 {
        self.enabled_by.page_bytes()
    }

    /// Returns the admin queues, if CC and their registers are valid.
    pub fn admin_queues(&self) -> Option<AdminQueues> {
        let wanted = self.configuration();
        let sizes = [self.aqa.submissions, self.aqa.completions];
        let sets = wanted.command_set == Configuration::ALL_SETS && self.cap.command_sets;
        let sensible = (wanted.command_set == 0 || sets)
            && wanted.page <= PAGE_SHIFT_MAX - 12
            && wanted.arbitration == 0
            && sizes.iter().all(|size| *size >= 2)
            && [self.asq, self.acq].iter().all(|base| base.is_multiple_of(wanted.page_bytes()));
        sensible.then(|| AdminQueues {
            submissions: (self.asq, self.aqa.submissions.into()),
            completions: (self.acq, self.aqa.completions.into()),
        })
    }

    fn get(&self, offset: u64) -> u32 {
        let half = |value: u64| (value >> (8 * (offset & 4))) as u32;
        match offset & !4 {
            CAP => half(self.cap.bits()),
            ASQ => half(self.asq),
            ACQ => half(self.acq),
            _ => match offset {
                VS => VERSION,
                INTMS | INTMC => self.mask,
                CC => self.cc,
                CSTS => self.csts.bits(),
                AQA => self.aqa.bits(),
                _ => 0,
            },
        }
    }

    pub fn read(&self, offset: u64, bytes: &mut [u8]) {
        for (at, byte) in (offset..).zip(bytes) {
            *byte = (self.get(at & !3) >> (8 * (at & 3))) as u8;
        }
    }
}

/// Writes half of a 64-bit register.
fn set_half(register: &mut u64, offset: u64, value: u32) {
    let shift = 8 * (offset & 4);
    *register = *register & !(0xffff_ffff << shift) | u64::from(value) << shift;
}

impl Controller {
    /// Returns the bytes of the registers and doorbells.
    pub fn registers_len(&self) -> u64 {
        DOORBELLS + 2 * STRIDE * (u64::from(self.config.queues) + 1)
    }

    /// Reads registers for the guest. Doorbells, and offsets beyond them, read as zeros.
    pub fn register_read(&self, offset: u64, bytes: &mut [u8]) {
        self.registers.read(offset, bytes);
    }

    /// Writes registers for the guest: 4 bytes, or 8 that are two registers or a long one. Anything else is
    /// ignored. Returns true if the controller has something to do.
    pub fn register_write(&mut self, offset: u64, bytes: &[u8]) -> bool {
        let word = |bytes: &[u8]| bytes.try_into().map(u32::from_le_bytes).unwrap_or_default();
        match bytes.len() {
            4 if offset.is_multiple_of(4) => self.write_word(offset, word(bytes)),
            8 if offset.is_multiple_of(8) => {
                let lower = self.write_word(offset, word(&bytes[..4]));
                self.write_word(offset + 4, word(&bytes[4..])) || lower
            }
            _ => false,
        }
    }

    fn write_word(&mut self, offset: u64, value: u32) -> bool {
        if let Some(offset) = offset.checked_sub(DOORBELLS) {
            return self.doorbell(offset, value);
        }
        let registers = &mut self.registers;
        let enabled = registers.configuration().enabled;
        match offset {
            INTMS => registers.mask |= value,
            INTMC => registers.mask &= !value,
            CC => return self.write_configuration(value),
            AQA if !enabled => registers.aqa = AdminQueueSizes::from_bits(value),
            _ if offset & !4 == ASQ && !enabled => set_half(&mut registers.asq, offset, value),
            _ if offset & !4 == ACQ && !enabled => set_half(&mut registers.acq, offset, value),
            _ => {}
        }
        false
    }

    fn write_configuration(&mut self, value: u32) -> bool {
        let before = self.registers.configuration();
        self.registers.cc = value;
        let wanted = self.registers.configuration();
        if before.enabled && !wanted.enabled {
            self.begin_reset();
        } else if !before.enabled && wanted.enabled && self.registers.csts.shutdown != Shutdown::None {
            // It was shut down while it was disabled: it restarts when the flush of the shutdown is done.
            self.begin_reset();
        } else if !before.enabled && wanted.enabled {
            self.try_enable();
        }
        let asked = |cc: Configuration| cc.shutdown != ShutdownRequest::None;
        if asked(wanted) && !asked(before) {
            self.registers.csts.shutdown = Shutdown::Occurring;
            self.shutdown_wanted = true;
        }
        true
    }

    fn doorbell(&mut self, offset: u64, value: u32) -> bool {
        let (number, queue) = (offset / STRIDE, offset / STRIDE / 2);
        if !self.is_running() {
            return false;
        }
        if self.shadow.is_some() && queue > 0 {
            // A hint to look at the shadow doorbells, which may be newer already.
            return true;
        }
        let is_tail = number.is_multiple_of(2);
        let (submissions, completions) = (&mut self.submissions, &mut self.completions);
        let good = match usize::try_from(queue).unwrap_or(usize::MAX) {
            queue if is_tail => {
                submissions.get_mut(queue).and_then(Option::as_mut).map(|held| held.ring(value))
            }
            queue => completions.get_mut(queue).and_then(Option::as_mut).map(|held| held.ring(value)),
        };
        match good {
            Some(true) => {}
            Some(false) => self.events.doorbell(true),
            None => self.events.doorbell(false),
        }
        true
    }
}
