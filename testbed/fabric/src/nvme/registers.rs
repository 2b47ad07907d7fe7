//! The controller's registers and doorbells [NVMe 1.4, 3.1].

use dcs_drivers::bus::Window;

use super::queue::{CompletionQueue, SubmissionQueue};
use super::{Config, Nvme, Wait};
use crate::device::Context;

const CAP: u64 = 0x00;
const VS: u64 = 0x08;
const INTMS: u64 = 0x0c;
const INTMC: u64 = 0x10;
const CC: u64 = 0x14;
const CSTS: u64 = 0x1c;
const AQA: u64 = 0x24;
const ASQ: u64 = 0x28;
const ACQ: u64 = 0x30;
const CMBLOC: u64 = 0x38;
const CMBSZ: u64 = 0x3c;
const CMBMSC: u64 = 0x50;
const PMRCAP: u64 = 0xe00;
const PMRCTL: u64 = 0xe04;
const PMRSTS: u64 = 0xe08;
const PMRMSCL: u64 = 0xe14;
const PMRMSCU: u64 = 0xe18;
const DOORBELLS: u64 = 0x1000;

/// 1.4.0.
pub(super) const VERSION: u32 = 0x0001_0400;

/// Pages up to so many times 4096 bytes, times two: CAP.MPSMAX.
const LARGEST_PAGE: u32 = 4;

/// The persistent memory region's.
#[derive(Debug)]
struct Pmr {
    bytes: u64,
    capabilities: u32,
    control: u32,
    ready: bool,
    /// PMRMSCU and PMRMSCL.
    space: u64,
    /// The host named addresses that cannot be.
    refused: bool,
}

const READY: u32 = 1;
const FATAL: u32 = 1 << 1;
const SHUTTING: u32 = 1 << 2;
const SHUT: u32 = 2 << 2;

#[derive(Debug)]
pub(super) struct Registers {
    cap: u64,
    mask: u32,
    cc: u32,
    csts: u32,
    aqa: u32,
    asq: u64,
    acq: u64,
    cmb_size: u32,
    cmb_control: u64,
    pmr: Option<Pmr>,
    /// CC as it was when the controller was enabled: what is under way goes by it.
    enabled_by: u32,
}

impl Registers {
    pub(super) fn new(config: &Config) -> Registers {
        // In units of 500 ms, rounded up.
        let timeout = (config.ready.as_millis() as u64).div_ceil(500).clamp(1, 255);
        let cap = u64::from(config.entries - 1)
            | 1 << 16
            | timeout << 24
            | u64::from(config.stride) << 32
            | 1 << 37
            | u64::from(LARGEST_PAGE) << 52
            | u64::from(config.pmr > 0) << 56
            | u64::from(config.cmb > 0) << 57;
        // In units of 4 KiB; submission and completion queues, lists, and data both ways may lie in it.
        let cmb_size = (config.cmb / 4096) as u32;
        let cmb_size = if cmb_size > 0 { cmb_size << 12 | 0x1f } else { 0 };
        // Data both ways, BAR 4, and the host says where it is.
        let capabilities = 1 << 24 | (timeout as u32) << 16 | 4 << 5 | 3 << 3;
        let pmr = (config.pmr > 0).then_some(Pmr {
            bytes: config.pmr,
            capabilities,
            control: 0,
            ready: false,
            space: 0,
            refused: false,
        });
        let (mask, cc, csts, aqa, asq, acq, cmb_control, enabled_by) = (0, 0, 0, 0, 0, 0, 0, 0);
        Registers { cap, mask, cc, csts, aqa, asq, acq, cmb_size, cmb_control, pmr, enabled_by }
    }

    pub(super) fn ready(&self) -> bool {
        self.csts & READY != 0
    }

    pub(super) fn failed(&self) -> bool {
        self.csts & FATAL != 0
    }

    pub(super) fn fail(&mut self) {
        self.csts |= FATAL;
    }

    pub(super) fn shut_down(&mut self) {
        self.csts = self.csts & !(3 << 2) | SHUT;
    }

    pub(super) fn enabled(&self) -> bool {
        self.cc & 1 != 0
    }

    /// Bytes of a page of memory: CC.MPS.
    pub(super) fn page(&self) -> u64 {
        4096 << ((self.enabled_by >> 7) & 15)
    }

    /// Whether CC names the entry sizes that I/O queues have.
    pub(super) fn entry_sizes(&self) -> bool {
        (self.enabled_by >> 16) & 0xff == 0x46
    }

    /// Whether what CC and the admin queue's registers say can be enabled.
    fn sensible(&self) -> bool {
        let command_set = (self.cc >> 4) & 7;
        let page = (self.cc >> 7) & 15;
        let arbitration = (self.cc >> 11) & 7;
        let sizes = [self.aqa & 0xfff, (self.aqa >> 16) & 0xfff];
        let bases = [self.asq, self.acq];
        command_set == 0
            && page <= LARGEST_PAGE
            && arbitration == 0
            && sizes.iter().all(|size| *size >= 1)
            && bases.iter().all(|base| base.trailing_zeros() >= 12 + page)
    }

    /// Where the controller memory buffer is for the controller's own addresses: where the host says (CMBMSC.CBA), once it has.
    pub(super) fn cmb_window(&self, length: u64) -> Option<Window> {
        let enabled = self.cmb_control & 3 == 3;
        enabled.then_some(Window { address: self.cmb_control & !0xfff, length })
    }

    /// The same for the persistent memory region.
    pub(super) fn pmr_window(&self) -> Option<Window> {
        let pmr = self.pmr.as_ref().filter(|pmr| pmr.ready && !pmr.refused && pmr.space & 2 != 0)?;
        Some(Window { address: pmr.space & !0xfff, length: pmr.bytes })
    }

    /// Whether its BAR answers.
    pub(super) fn pmr_ready(&self) -> bool {
        self.pmr.as_ref().is_some_and(|pmr| pmr.ready)
    }

    pub(super) fn pmr_is_ready(&mut self) {
        if let Some(pmr) = &mut self.pmr {
            pmr.ready = pmr.control & 1 != 0;
        }
    }

    /// PMRCTL is written. True where the region is to become ready.
    fn switch_pmr(&mut self, value: u32) -> bool {
        let Some(pmr) = &mut self.pmr else { return false };
        let before = std::mem::replace(&mut pmr.control, value & 1);
        pmr.ready &= pmr.control != 0;
        before < pmr.control
    }

    /// Half of where it is is written. The lower half counts.
    fn place_pmr(&mut self, offset: u64, value: u32) {
        let Some(pmr) = &mut self.pmr else { return };
        if offset == PMRMSCU {
            pmr.space = pmr.space & 0xffff_ffff | u64::from(value) << 32;
        } else {
            pmr.space = pmr.space & !0xffff_ffff | u64::from(value);
            pmr.refused = (pmr.space & !0xfff).checked_add(pmr.bytes).is_none();
        }
    }

    fn get_pmr(&self, offset: u64) -> u32 {
        let Some(pmr) = &self.pmr else { return 0 };
        match offset {
            PMRCAP => pmr.capabilities,
            PMRCTL => pmr.control,
            PMRSTS => u32::from(!pmr.ready) << 8 | u32::from(pmr.refused) << 12,
            PMRMSCL => pmr.space as u32,
            PMRMSCU => (pmr.space >> 32) as u32,
            _ => 0,
        }
    }

    fn get(&self, offset: u64) -> u32 {
        let half = |value: u64| (value >> (8 * (offset & 4))) as u32;
        let shown = self.cmb_control & 1 != 0;
        match offset & !4 {
            CAP => half(self.cap),
            ASQ => half(self.asq),
            ACQ => half(self.acq),
            CMBMSC => half(self.cmb_control),
            _ => match offset {
                VS => VERSION,
                INTMS | INTMC => self.mask,
                CC => self.cc,
                CSTS => self.csts,
                AQA => self.aqa,
                // The whole of BAR 1. Both read as zero until the host asks for them (CMBMSC.CRE).
                CMBLOC if shown => 2,
                CMBSZ if shown => self.cmb_size,
                _ => self.get_pmr(offset),
            },
        }
    }

    pub(super) fn read(&self, offset: u64, bytes: &mut [u8]) {
        for (i, byte) in bytes.iter_mut().enumerate() {
            let at = offset + i as u64;
            *byte = (self.get(at & !3) >> (8 * (at & 3))) as u8;
        }
    }
}

/// Half of a 64-bit register is written.
fn set_half(register: &mut u64, offset: u64, value: u32) {
    let shift = 8 * (offset & 4);
    *register = *register & !(0xffff_ffff << shift) | u64::from(value) << shift;
}

impl Nvme {
    pub(super) fn write_register(&mut self, offset: u64, value: u32, cx: &mut Context<'_>) {
        let registers = &mut self.registers;
        match offset {
            INTMS => registers.mask |= value,
            INTMC => registers.mask &= !value,
            CC => self.write_cc(value, cx),
            AQA if !registers.enabled() => registers.aqa = value & 0x0fff_0fff,
            _ if offset & !4 == ASQ && !registers.enabled() => set_half(&mut registers.asq, offset, value),
            _ if offset & !4 == ACQ && !registers.enabled() => set_half(&mut registers.acq, offset, value),
            _ if offset & !4 == CMBMSC && registers.cmb_size > 0 => {
                set_half(&mut registers.cmb_control, offset, value);
            }
            PMRCTL if registers.switch_pmr(value) => {
                let token = self.token(Wait::Pmr);
                cx.after(self.config.ready, token);
            }
            PMRMSCL | PMRMSCU => registers.place_pmr(offset, value),
            _ if offset >= DOORBELLS => self.doorbell(offset - DOORBELLS, value, cx),
            _ => {}
        }
    }

    fn write_cc(&mut self, value: u32, cx: &mut Context<'_>) {
        let before = std::mem::replace(&mut self.registers.cc, value);
        let (was, is) = (before & 1 != 0, value & 1 != 0);
        if was && !is {
            if self.hung != Some(true) {
                let token = self.token(Wait::Disabled);
                cx.after(self.config.reset, token);
            }
        } else if !was && is && self.hung.is_none() {
            self.registers.enabled_by = value;
            if self.registers.sensible() {
                let token = self.token(Wait::Ready);
                cx.after(self.config.ready, token);
            } else {
                self.registers.fail();
            }
        }
        let shutdown = |cc: u32| (cc >> 14) & 3 != 0;
        if shutdown(value) && !shutdown(before) && self.hung.is_none() {
            self.registers.csts = self.registers.csts & !(3 << 2) | SHUTTING;
            let token = self.token(Wait::Shutdown);
            cx.after(self.config.shutdown, token);
        }
    }

    /// A controller reset is through: CC.EN was written from one to zero.
    pub(super) fn disabled(&mut self) {
        self.hung = None;
        self.clear();
        self.registers.csts = 0;
        if self.registers.enabled() {
            // Enabled before it was disabled, which the host must not do [NVMe 1.4, 3.1.5].
            self.registers.fail();
        }
    }

    pub(super) fn become_ready(&mut self) {
        let registers = &mut self.registers;
        registers.csts |= READY;
        let size = |shift: u32| ((registers.aqa >> shift) & 0xfff) + 1;
        self.submission.insert(0, SubmissionQueue::new(registers.asq, size(0), 0));
        self.completion.insert(0, CompletionQueue::new(registers.acq, size(16), Some(0)));
    }

    fn doorbell(&mut self, offset: u64, value: u32, cx: &mut Context<'_>) {
        if !self.running() || !self.registers.enabled() {
            return;
        }
        let distance = 4 << self.config.stride;
        let number = offset / distance;
        if !offset.is_multiple_of(distance) || number / 2 > u64::from(u16::MAX) {
            return;
        }
        let queue = (number / 2) as u16;
        let good = if number.is_multiple_of(2) {
            match self.submission.get_mut(&queue) {
                Some(held) if value < held.size => {
                    held.tail = value;
                    Ok(())
                }
                Some(_) => Err(1),
                None => Err(0),
            }
        } else {
            match self.completion.get_mut(&queue) {
                Some(held) => held.take(value).then_some(()).ok_or(1),
                None => Err(0),
            }
        };
        match good {
            Ok(()) => {
                self.drain(queue, cx);
                self.pump(cx);
            }
            Err(information) => {
                self.counts.bad_doorbells += 1;
                self.event(0, information, cx);
            }
        }
    }
}
