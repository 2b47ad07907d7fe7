//! The controller's registers and doorbells [NVMe 1.4, 3.1].

use dcs_drivers::bus::Window;
use dcs_nvme::register::{
    ACQ, AQA, ASQ, CAP, CC, CMBLOC, CMBMSC, CMBSZ, CSTS, DOORBELLS, INTMC, INTMS, PMRCAP, PMRCTL, PMRMSCL,
    PMRMSCU, PMRSTS, Shutdown, ShutdownRequest, VS,
};
use dcs_nvme::{AdminQueueSizes, Capabilities, Configuration, ControllerStatus, cmb, pmr};

use super::queue::{CompletionQueue, SubmissionQueue};
use super::{Config, Nvme, Wait};
use crate::device::Context;

/// NVMe 1.4.0.
pub(super) const VERSION: u32 = 0x0001_0400;

/// Largest page size as a power of two times 4096 bytes: CAP.MPSMAX.
const MPSMAX: u8 = 4;

/// The persistent memory region's registers.
#[derive(Debug)]
struct Pmr {
    bytes: u64,
    capabilities: pmr::Capabilities,
    control: pmr::Control,
    ready: bool,
    /// PMRMSCU and PMRMSCL, as written.
    space: u64,
    /// True if the host named invalid addresses.
    refused: bool,
}

#[derive(Debug)]
pub(super) struct Registers {
    cap: Capabilities,
    mask: u32,
    /// CC, as written.
    cc: u32,
    csts: ControllerStatus,
    aqa: AdminQueueSizes,
    asq: u64,
    acq: u64,
    cmb_size: cmb::Size,
    /// CMBMSC, as written.
    cmb_control: u64,
    pmr: Option<Pmr>,
    /// CC at the time of enabling, which applies to commands in progress.
    enabled_by: Configuration,
}

impl Registers {
    pub(super) fn new(config: &Config) -> Registers {
        // In units of 500 ms, rounded up.
        let timeout = (config.ready.as_millis() as u64).div_ceil(500).clamp(1, 255);
        let cap = Capabilities {
            max_entries: config.entries,
            contiguous: true,
            timeout: timeout as u8,
            stride: config.stride,
            nvm_commands: true,
            page_shift_max: 12 + MPSMAX,
            pmr: config.pmr > 0,
            cmb: config.cmb > 0,
            ..Capabilities::default()
        };
        // All kinds of data may be in it.
        let there = config.cmb > 0;
        let cmb_size = cmb::Size {
            submission_queues: there,
            completion_queues: there,
            lists: there,
            read_data: there,
            write_data: there,
            granularity: 0,
            units: (config.cmb / 4096) as u32,
        };
        // The host sets its address.
        let capabilities = pmr::Capabilities {
            read_data: true,
            write_data: true,
            bar: 4,
            timeout_unit: 0,
            timeout: timeout as u8,
            space: true,
        };
        let pmr = (config.pmr > 0).then_some(Pmr {
            bytes: config.pmr,
            capabilities,
            control: pmr::Control::default(),
            ready: false,
            space: 0,
            refused: false,
        });
        Registers {
            cap,
            mask: 0,
            cc: 0,
            csts: ControllerStatus::default(),
            aqa: AdminQueueSizes::from_bits(0),
            asq: 0,
            acq: 0,
            cmb_size,
            cmb_control: 0,
            pmr,
            enabled_by: Configuration::default(),
        }
    }

    pub(super) fn ready(&self) -> bool {
        self.csts.ready
    }

    pub(super) fn failed(&self) -> bool {
        self.csts.fatal
    }

    pub(super) fn fail(&mut self) {
        self.csts.fatal = true;
    }

    pub(super) fn shut_down(&mut self) {
        self.csts.shutdown = Shutdown::Complete;
    }

    fn configuration(&self) -> Configuration {
        Configuration::from_bits(self.cc)
    }

    pub(super) fn enabled(&self) -> bool {
        self.configuration().enabled
    }

    /// Returns the bytes of a memory page: CC.MPS.
    pub(super) fn page(&self) -> u64 {
        self.enabled_by.page_bytes()
    }

    /// Returns true if CC has the entry sizes of I/O queues.
    pub(super) fn entry_sizes(&self) -> bool {
        self.enabled_by.has_entry_sizes()
    }

    /// Returns true if a controller with these values of CC and the admin queue's registers can be enabled.
    fn sensible(&self) -> bool {
        let wanted = self.configuration();
        let sizes = [self.aqa.submissions, self.aqa.completions];
        wanted.command_set == 0
            && wanted.page <= MPSMAX
            && wanted.arbitration == 0
            && sizes.iter().all(|size| *size >= 2)
            && [self.asq, self.acq].iter().all(|base| base.is_multiple_of(wanted.page_bytes()))
    }

    /// Returns the window of the controller memory buffer in the controller's own addresses, once the host has set it
    /// (CMBMSC.CBA).
    pub(super) fn cmb_window(&self, length: u64) -> Option<Window> {
        let control = cmb::Control::from_bits(self.cmb_control);
        (control.registers && control.space).then_some(Window { address: control.base, length })
    }

    /// Returns the same window for the persistent memory region.
    pub(super) fn pmr_window(&self) -> Option<Window> {
        let pmr = self.pmr.as_ref().filter(|pmr| pmr.ready && !pmr.refused)?;
        let space = pmr::Space::from_bits(pmr.space);
        space.enabled.then_some(Window { address: space.base, length: pmr.bytes })
    }

    /// Returns true if its BAR answers.
    pub(super) fn pmr_ready(&self) -> bool {
        self.pmr.as_ref().is_some_and(|pmr| pmr.ready)
    }

    pub(super) fn pmr_is_ready(&mut self) {
        if let Some(pmr) = &mut self.pmr {
            pmr.ready = pmr.control.enabled;
        }
    }

    /// Handles a write to PMRCTL. Returns true if the region is to become ready.
    fn switch_pmr(&mut self, value: u32) -> bool {
        let Some(pmr) = &mut self.pmr else { return false };
        let before = std::mem::replace(&mut pmr.control, pmr::Control::from_bits(value));
        pmr.ready &= pmr.control.enabled;
        pmr.control.enabled && !before.enabled
    }

    /// Handles a write to half of its address. The lower half takes effect.
    fn place_pmr(&mut self, offset: u64, value: u32) {
        let Some(pmr) = &mut self.pmr else { return };
        if offset == PMRMSCU {
            pmr.space = pmr.space & 0xffff_ffff | u64::from(value) << 32;
        } else {
            pmr.space = pmr.space & !0xffff_ffff | u64::from(value);
            pmr.refused = pmr::Space::from_bits(pmr.space).base.checked_add(pmr.bytes).is_none();
        }
    }

    fn get_pmr(&self, offset: u64) -> u32 {
        let Some(pmr) = &self.pmr else { return 0 };
        match offset {
            PMRCAP => pmr.capabilities.bits(),
            PMRCTL => pmr.control.bits(),
            PMRSTS => {
                let (not_ready, address_invalid) = (!pmr.ready, pmr.refused);
                pmr::Status { not_ready, address_invalid, ..pmr::Status::default() }.bits()
            }
            PMRMSCL => pmr.space as u32,
            PMRMSCU => (pmr.space >> 32) as u32,
            _ => 0,
        }
    }

    fn get(&self, offset: u64) -> u32 {
        let half = |value: u64| (value >> (8 * (offset & 4))) as u32;
        let shown = cmb::Control::from_bits(self.cmb_control).registers;
        match offset & !4 {
            CAP => half(self.cap.bits()),
            ASQ => half(self.asq),
            ACQ => half(self.acq),
            CMBMSC => half(self.cmb_control),
            _ => match offset {
                VS => VERSION,
                INTMS | INTMC => self.mask,
                CC => self.cc,
                CSTS => self.csts.bits(),
                AQA => self.aqa.bits(),
                // The whole of BAR 1. Both read as zero until the host enables them (CMBMSC.CRE).
                CMBLOC if shown => cmb::Location { bar: 2, offset: 0 }.bits(),
                CMBSZ if shown => self.cmb_size.bits(),
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

/// Writes half of a 64-bit register.
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
            AQA if !registers.enabled() => registers.aqa = AdminQueueSizes::from_bits(value),
            _ if offset & !4 == ASQ && !registers.enabled() => set_half(&mut registers.asq, offset, value),
            _ if offset & !4 == ACQ && !registers.enabled() => set_half(&mut registers.acq, offset, value),
            _ if offset & !4 == CMBMSC && registers.cmb_size.units > 0 => {
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
        let before = self.registers.configuration();
        self.registers.cc = value;
        let wanted = self.registers.configuration();
        if before.enabled && !wanted.enabled {
            if self.hung != Some(true) {
                let token = self.token(Wait::Disabled);
                cx.after(self.config.reset, token);
            }
        } else if !before.enabled && wanted.enabled && self.hung.is_none() {
            self.registers.enabled_by = wanted;
            if self.registers.sensible() {
                let token = self.token(Wait::Ready);
                cx.after(self.config.ready, token);
            } else {
                self.registers.fail();
            }
        }
        let asked = |cc: Configuration| cc.shutdown != ShutdownRequest::None;
        if asked(wanted) && !asked(before) && self.hung.is_none() {
            self.registers.csts.shutdown = Shutdown::Occurring;
            let token = self.token(Wait::Shutdown);
            cx.after(self.config.shutdown, token);
        }
    }

    /// Ends a controller reset: CC.EN was written from one to zero.
    pub(super) fn disabled(&mut self) {
        self.hung = None;
        self.clear();
        self.registers.csts = ControllerStatus::default();
        if self.registers.enabled() {
            // Enabled before the disabling was complete, which the host must not do [NVMe 1.4, 3.1.5].
            self.registers.fail();
        }
    }

    pub(super) fn become_ready(&mut self) {
        let registers = &mut self.registers;
        registers.csts.ready = true;
        let AdminQueueSizes { submissions, completions } = registers.aqa;
        self.submission.insert(0, SubmissionQueue::new(registers.asq, submissions.into(), 0));
        self.completion.insert(0, CompletionQueue::new(registers.acq, completions.into(), Some(0)));
    }

    fn doorbell(&mut self, offset: u64, value: u32, cx: &mut Context<'_>) {
        if !self.running() || !self.registers.enabled() {
            return;
        }
        let distance = self.registers.cap.doorbell_stride();
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
