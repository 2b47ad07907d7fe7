//! Bringing a controller up, from wherever it is: stop it, set it up, start it, ask what it is, make its queues.
//! [base 3.5.1] Every reset goes this way too.

use super::config::{ADMIN_ENTRIES, Config, Layout};
use super::error::Failure;
use super::host::Nvme;
use super::identify::{self, Controller, Namespace};
use super::pmr::PmrStep;
use super::queue::{Address, Place, Queue, Reaped};
use super::spec::{
    Capabilities, ControllerStatus, DataPointer, ENABLED, IDENTIFY, MemoryBuffer, SHUTDOWN, Submission,
    admin, configuration, register,
};
use crate::bus::{Bus, BusError};
use crate::registers::Registers;
use dcs_engine::Nanos;

/// What a host is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Off,
    /// Reading CAP.
    Capabilities,
    /// Reading CC.
    Configuration,
    /// It is enabled, and has to become ready before it may be disabled.
    Settling,
    /// Waiting for CSTS.RDY = 0.
    Disabling,
    /// Switching the persistent memory region on.
    Pmr(PmrStep),
    /// Reading CMBLOC.
    CmbLocation,
    /// Reading CMBSZ.
    CmbSize,
    /// Reading CMBSTS.
    CmbStatus,
    /// Waiting for CSTS.RDY = 1.
    Enabling,
    /// An admin command is outstanding.
    Setup(Setup),
    Ready,
    /// Waiting for CSTS.SHST = shutdown complete.
    Shutdown,
    Failed(Failure),
}

impl Stage {
    /// Whether the controller has its admin queue.
    pub fn has_admin(self) -> bool {
        matches!(self, Stage::Setup(_) | Stage::Ready)
    }

    /// The register that tells how far the stage is, and its bytes.
    fn watched(self) -> (u64, u32) {
        match self {
            Stage::Capabilities => (register::CAP, 8),
            Stage::Configuration => (register::CC, 4),
            Stage::Pmr(PmrStep::Capabilities) => (register::PMRCAP, 4),
            Stage::Pmr(_) => (register::PMRSTS, 4),
            _ => (register::CSTS, 4),
        }
    }

    /// Whether a controller that does not answer now is asked again. One that is stopping may be busy with that alone: QEMU's refuses every access
    /// while it waits for its disk.
    fn is_patient(self) -> bool {
        use Stage::{Capabilities, Configuration, Disabling, Enabling, Pmr, Settling, Shutdown};
        matches!(self, Capabilities | Configuration | Settling | Disabling | Pmr(_) | Enabling | Shutdown)
    }
}

/// The admin commands of a start, in their order. Numbers are of I/O queue pairs, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Setup {
    Controller,
    Queues,
    Active,
    Namespace(u32),
    CompletionQueue(u16),
    SubmissionQueue(u16),
}

/// An admin command that is outstanding.
#[derive(Debug)]
pub(super) struct Admin {
    pub purpose: Purpose,
    pub deadline: Nanos,
}

/// What an admin command is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Setup(u8),
    Abort,
}

/// The state of a start.
#[derive(Debug)]
pub(super) struct Bringup {
    pub registers: Registers,
    pub capabilities: Capabilities,
    /// When the stage has to be over.
    pub until: Option<Nanos>,
    /// When the stage's register is to be read next.
    pub look: Option<Nanos>,
    /// Where the controller is to be left when it has stopped; none: it is started.
    pub then: Option<Stage>,
    /// Where the I/O submission queues lie in the controller memory buffer.
    pub cmb: Option<u64>,
    cmb_location: u32,
    queues: u16,
    entries: u16,
}

impl Bringup {
    pub fn new(config: &Config) -> Bringup {
        Bringup {
            registers: Registers::new(config.registers, config.controller),
            capabilities: Capabilities(0),
            until: None,
            look: None,
            then: None,
            cmb: None,
            cmb_location: 0,
            queues: 0,
            entries: 0,
        }
    }

    pub fn deadline(&self) -> Option<Nanos> {
        [self.until, self.look].into_iter().flatten().min()
    }
}

impl Nvme {
    /// Brings the controller up. Nothing where that is under way already, or done.
    pub fn start(&mut self, bus: &mut dyn Bus, now: Nanos) {
        if matches!(self.stage, Stage::Off | Stage::Failed(_)) {
            self.recovery.attempts = 0;
            self.bringup.then = None;
            self.restart(bus, now);
        }
    }

    /// Shuts the controller down in order, so that it may lose its power [base 3.6.1]: then the state is
    /// [`State::Off`](super::State::Off). Commands that are outstanding fail as by a reset.
    pub fn stop(&mut self, bus: &mut dyn Bus, now: Nanos) {
        match self.stage {
            Stage::Off | Stage::Failed(Failure::Gone) => {}
            Stage::Ready => {
                self.end_all(Failure::Asked);
                self.bringup.then = Some(Stage::Off);
                self.write32(bus, register::CC, configuration(self.page_shift) | SHUTDOWN);
                self.enter(Stage::Shutdown, now, self.config.timeout);
                self.look(bus, now);
            }
            _ => self.halt(bus, now),
        }
    }

    /// Disables the controller, if it is enabled: then the state is [`State::Off`](super::State::Off). Nothing is written to one that
    /// was reset meanwhile. Commands that are outstanding fail as by a reset.
    pub fn halt(&mut self, bus: &mut dyn Bus, now: Nanos) {
        if !matches!(self.stage, Stage::Off | Stage::Failed(Failure::Gone)) {
            self.end_all(Failure::Asked);
            self.restart(bus, now);
            self.bringup.then = Some(Stage::Off);
        }
    }

    /// Begins at the beginning.
    pub(super) fn restart(&mut self, bus: &mut dyn Bus, now: Nanos) {
        self.bringup.registers.forget();
        self.enter(Stage::Capabilities, now, self.config.admin_timeout);
        self.look(bus, now);
    }

    pub(super) fn enter(&mut self, stage: Stage, now: Nanos, limit: Nanos) {
        self.stage = stage;
        self.bringup.until = Some(now.saturating_add(limit));
        self.bringup.look = None;
    }

    pub(super) fn rest(&mut self, stage: Stage) {
        self.stage = stage;
        self.bringup.until = None;
        self.bringup.look = None;
    }

    fn read(&mut self, bus: &mut dyn Bus, register: u64, length: u32) {
        self.bringup.registers.read(bus, register, length);
    }

    /// Reads the stage's register, unless one is being read already.
    pub(super) fn look(&mut self, bus: &mut dyn Bus, now: Nanos) {
        self.bringup.look = None;
        if !self.bringup.registers.is_reading() {
            let (register, length) = self.stage.watched();
            self.read(bus, register, length);
        } else {
            self.bringup.look = Some(now.saturating_add(self.config.interval));
        }
    }

    pub(super) fn write32(&self, bus: &mut dyn Bus, register: u64, value: u32) {
        self.bringup.registers.write32(bus, register, value);
    }

    fn write64(&self, bus: &mut dyn Bus, register: u64, value: u64) {
        self.bringup.registers.write64(bus, register, value);
    }

    /// A register was read.
    pub(super) fn register(&mut self, bus: &mut dyn Bus, now: Nanos, answer: Result<u64, BusError>) {
        let value = match answer {
            Ok(value) => value,
            Err(BusError::Unsupported) => return self.fail(bus, now, Failure::Gone),
            // As long as the stage may take.
            Err(BusError::Aborted) if self.stage.is_patient() => {
                self.bringup.look = Some(now.saturating_add(self.config.interval));
                return;
            }
            Err(error) => return self.fail(bus, now, Failure::Register(error)),
        };
        let status = ControllerStatus(value as u32);
        let gone = match self.stage {
            Stage::Capabilities => value == u64::MAX,
            _ => status.gone(),
        };
        if gone {
            return self.fail(bus, now, Failure::Gone);
        }
        match self.stage {
            Stage::Capabilities => match self.capabilities(Capabilities(value)) {
                Ok(()) => {
                    self.stage = Stage::Configuration;
                    self.look(bus, now);
                }
                Err(failure) => self.fail(bus, now, failure),
            },
            Stage::Configuration if value as u32 & ENABLED == 0 => self.disabling(bus, now),
            Stage::Configuration => {
                self.enter(Stage::Settling, now, self.bringup.capabilities.timeout());
                self.look(bus, now);
            }
            Stage::Settling if status.ready() || status.fatal() => self.disable(bus, now),
            Stage::Disabling if !status.ready() => self.stopped(bus, now),
            Stage::Pmr(step) => self.pmr(bus, now, step, value as u32),
            Stage::CmbLocation => {
                self.bringup.cmb_location = value as u32;
                self.stage = Stage::CmbSize;
                self.read(bus, register::CMBLOC + 4, 4);
            }
            Stage::CmbSize => self.cmb(bus, now, value as u32),
            Stage::CmbStatus => {
                const INVALID_ADDRESS: u64 = 1;
                self.bringup.cmb = self.bringup.cmb.filter(|_| value & INVALID_ADDRESS == 0);
                self.enable(bus, now);
            }
            Stage::Enabling if status.fatal() => self.fail(bus, now, Failure::Fatal),
            Stage::Enabling if status.ready() => self.setup(bus, now, Setup::Controller),
            Stage::Shutdown if status.shut_down() => self.restart(bus, now),
            Stage::Settling | Stage::Disabling | Stage::Enabling | Stage::Shutdown => {
                self.bringup.look = Some(now.saturating_add(self.config.interval));
            }
            Stage::Ready => self.looked(bus, now, status),
            Stage::Off | Stage::Setup(_) | Stage::Failed(_) => {}
        }
    }

    /// The stage has taken too long.
    pub(super) fn late(&mut self, bus: &mut dyn Bus, now: Nanos) {
        match self.stage {
            Stage::Settling => self.disable(bus, now),
            Stage::Shutdown => self.restart(bus, now),
            Stage::Disabling => self.fail(bus, now, Failure::NeverStopped),
            Stage::Enabling => self.fail(bus, now, Failure::NeverReady),
            Stage::Pmr(PmrStep::Ready) => self.fail(bus, now, Failure::MemoryNeverReady),
            _ => self.fail(bus, now, Failure::NoAnswer),
        }
    }

    fn capabilities(&mut self, capabilities: Capabilities) -> Result<(), Failure> {
        if !capabilities.nvm_command_set() {
            return Err(Failure::Unsupported("the NVM command set (CAP.CSS)"));
        }
        if capabilities.max_entries() < 2 {
            return Err(Failure::Unsupported("queues of two entries (CAP.MQES)"));
        }
        let (least, most) = (capabilities.page_shift_min(), capabilities.page_shift_max());
        if least > most {
            return Err(Failure::Unsupported("a memory page size (CAP.MPSMIN, CAP.MPSMAX)"));
        }
        // Doorbells of as many queue pairs as lie in the BAR.
        let (length, stride) = (self.config.registers.length, capabilities.doorbell_stride());
        let pairs = length.saturating_sub(register::DOORBELLS) / (2 * stride);
        if pairs < 2 {
            return Err(Failure::Unsupported("doorbells inside its BAR (CAP.DSTRD)"));
        }
        self.bringup.queues = u64::from(self.config.queues).min(pairs - 1) as u16;
        self.bringup.entries = u32::from(self.config.depth).min(capabilities.max_entries()) as u16;
        self.page_shift = self.config.page.trailing_zeros().clamp(least, most);
        self.bringup.capabilities = capabilities;
        Ok(())
    }

    fn disable(&mut self, bus: &mut dyn Bus, now: Nanos) {
        self.write32(bus, register::CC, configuration(self.page_shift) & !ENABLED);
        self.disabling(bus, now);
    }

    fn disabling(&mut self, bus: &mut dyn Bus, now: Nanos) {
        self.enter(Stage::Disabling, now, self.bringup.capabilities.timeout());
        self.look(bus, now);
    }

    /// CSTS.RDY is 0: the controller does nothing by itself any more, and what it wrote has arrived.
    fn stopped(&mut self, bus: &mut dyn Bus, now: Nanos) {
        self.free_all();
        if let Some(stage) = self.bringup.then.take() {
            return self.rest(stage);
        }
        if let Err(failure) = self.lay_out(bus) {
            return self.fail(bus, now, failure);
        }
        self.start_pmr(bus, now);
    }

    /// Looks for a controller memory buffer, where one is wanted; then the controller is enabled.
    pub(super) fn start_cmb(&mut self, bus: &mut dyn Bus, now: Nanos) {
        self.bringup.cmb = None;
        if self.config.cmb.is_none() {
            return self.enable(bus, now);
        }
        if self.bringup.capabilities.cmb_switch() {
            const ENABLE_REGISTERS: u64 = 1;
            self.write64(bus, register::CMBMSC, ENABLE_REGISTERS);
        }
        self.enter(Stage::CmbLocation, now, self.config.admin_timeout);
        self.read(bus, register::CMBLOC, 4);
    }

    fn lay_out(&mut self, bus: &dyn Bus) -> Result<(), Failure> {
        let (window, page) = (bus.window(), 1 << self.page_shift);
        let begin = window.address.checked_add(self.region.offset()).ok_or(Failure::Region)?;
        let base = begin.checked_next_multiple_of(page).ok_or(Failure::Region)? - window.address;
        let bringup = &self.bringup;
        let layout = Layout::new(base, bringup.queues, bringup.entries, page, self.config.max_transfer);
        let end = self.region.offset() + self.region.length();
        if layout.end > end || end > window.length {
            return Err(Failure::Region);
        }
        (self.window, self.layout) = (window, layout);
        Ok(())
    }

    /// Decides whether the submission queues go into the controller's memory buffer.
    fn cmb(&mut self, bus: &mut dyn Bus, now: Nanos, size: u32) {
        let buffer = MemoryBuffer { location: self.bringup.cmb_location, size };
        let needed = u64::from(self.bringup.queues) * self.layout.submission_bytes();
        let address = self.config.cmb.and_then(|bar| {
            let address = bar.window.address.checked_add(buffer.offset())?;
            let fits = buffer.takes_submission_queues()
                && buffer.bar() == bar.bar
                && needed <= buffer.length()
                && bar.window.contains(address, needed)
                && address % (1 << self.page_shift) == 0;
            fits.then_some(address)
        });
        self.bringup.cmb = address;
        match address {
            Some(address) if self.bringup.capabilities.cmb_switch() => {
                const ENABLE_BOTH: u64 = 3;
                self.write64(bus, register::CMBMSC, address | ENABLE_BOTH);
                self.stage = Stage::CmbStatus;
                self.read(bus, register::CMBSTS, 4);
            }
            _ => self.enable(bus, now),
        }
    }

    fn doorbell(&self, queue: u16, head: bool) -> u64 {
        let index = 2 * u64::from(queue) + u64::from(head);
        self.config.registers.address
            + register::DOORBELLS
            + index * self.bringup.capabilities.doorbell_stride()
    }

    fn enable(&mut self, bus: &mut dyn Bus, now: Nanos) {
        let layout = self.layout;
        let address = Address {
            submissions: Place::Own(layout.admin_submissions()),
            completions: layout.admin_completions(),
            tail_doorbell: self.doorbell(0, false),
            head_doorbell: self.doorbell(0, true),
        };
        let entries = u32::from(ADMIN_ENTRIES).min(self.bringup.capabilities.max_entries()) as u16;
        renew(&mut self.admin, bus, 0, entries, address);
        if !self.config.interrupts {
            // With MSI-X this register is not to be touched. [base 3.1.3.3]
            self.write32(bus, register::INTMS, u32::MAX);
        }
        let attribute = u32::from(entries - 1);
        self.write32(bus, register::AQA, attribute << 16 | attribute);
        self.write64(bus, register::ASQ, self.window.address + layout.admin_submissions());
        self.write64(bus, register::ACQ, self.window.address + layout.admin_completions());
        self.write32(bus, register::CC, configuration(self.page_shift));
        self.enter(Stage::Enabling, now, self.bringup.capabilities.timeout());
        self.look(bus, now);
    }

    /// Sends the admin command of a step.
    fn setup(&mut self, bus: &mut dyn Bus, now: Nanos, step: Setup) {
        let identify = |cns, namespace| Submission {
            opcode: admin::IDENTIFY,
            namespace,
            data: DataPointer::Prp(self.window.address + self.layout.identify(), 0),
            words: [cns, 0, 0, 0, 0, 0],
            ..Submission::default()
        };
        let queue = |opcode, pair: u16, address, attributes| Submission {
            opcode,
            data: DataPointer::Prp(address, 0),
            words: [u32::from(self.bringup.entries - 1) << 16 | u32::from(pair + 1), attributes, 0, 0, 0, 0],
            ..Submission::default()
        };
        const CONTIGUOUS: u32 = 1;
        const INTERRUPTS: u32 = 1 << 1;
        let entry = match step {
            Setup::Controller => identify(identify::CONTROLLER, 0),
            Setup::Active => identify(identify::ACTIVE_NAMESPACES, 0),
            Setup::Namespace(number) => identify(identify::NAMESPACE, number),
            Setup::Queues => {
                let wanted = u32::from(self.bringup.queues - 1);
                let words = [admin::NUMBER_OF_QUEUES, wanted << 16 | wanted, 0, 0, 0, 0];
                Submission { opcode: admin::SET_FEATURES, words, ..Submission::default() }
            }
            Setup::CompletionQueue(pair) => {
                let address = self.window.address + self.layout.completions(pair);
                let interrupts = if self.config.interrupts { INTERRUPTS } else { 0 };
                queue(admin::CREATE_COMPLETION_QUEUE, pair, address, CONTIGUOUS | interrupts)
            }
            Setup::SubmissionQueue(pair) => {
                let address = self.submission_queue(pair);
                queue(admin::CREATE_SUBMISSION_QUEUE, pair, address, u32::from(pair + 1) << 16 | CONTIGUOUS)
            }
        };
        self.rest(Stage::Setup(step));
        // What a controller doesn't write is not to be taken for what it said before.
        bus.store(self.layout.identify(), &[0; IDENTIFY as usize]);
        self.send_admin(bus, now, Purpose::Setup(entry.opcode), entry);
    }

    /// Bus address of an I/O submission queue.
    fn submission_queue(&self, pair: u16) -> u64 {
        match self.bringup.cmb {
            Some(cmb) => cmb + u64::from(pair) * self.layout.submission_bytes(),
            None => self.window.address + self.layout.submissions(pair),
        }
    }

    /// Puts an admin command into its queue. There is always room for a step of the setup.
    pub(super) fn send_admin(
        &mut self,
        bus: &mut dyn Bus,
        now: Nanos,
        purpose: Purpose,
        entry: Submission,
    ) -> bool {
        let deadline = now.saturating_add(self.config.admin_timeout);
        let Some(queue) = &mut self.admin else { return false };
        queue.push(bus, Admin { purpose, deadline }, entry).is_some()
    }

    /// When the first admin command has to be done.
    pub(super) fn admin_deadline(&self) -> Option<Nanos> {
        let slots = &self.admin.as_ref()?.slots;
        if slots.used() == 0 { None } else { slots.iter().map(|(_, admin)| admin.deadline).min() }
    }

    /// Takes the completions of admin commands.
    pub(super) fn reap_admin(&mut self, bus: &mut dyn Bus, now: Nanos) {
        for _ in 0..ADMIN_ENTRIES {
            let Some(reaped) = self.admin.as_mut().and_then(|queue| queue.reap(bus)) else { return };
            match reaped {
                Reaped::Unknown => self.counters.unknown += 1,
                Reaped::Impossible => return self.fail(bus, now, Failure::Impossible),
                Reaped::Done(Admin { purpose: Purpose::Abort, .. }, _) => self.aborted(bus, now),
                Reaped::Done(Admin { purpose: Purpose::Setup(opcode), .. }, completion) => {
                    let status = completion.status();
                    let next = if status.is_success() {
                        self.advance(bus, completion.result())
                    } else {
                        Err(Failure::Admin { opcode, status })
                    };
                    match next {
                        Ok(Some(step)) => self.setup(bus, now, step),
                        Ok(None) => self.rest(Stage::Ready),
                        Err(failure) => return self.fail(bus, now, failure),
                    }
                }
            }
        }
    }

    /// Takes what a step of the setup brought, and says which is next.
    fn advance(&mut self, bus: &mut dyn Bus, result: u32) -> Result<Option<Setup>, Failure> {
        let Stage::Setup(step) = self.stage else { return Err(Failure::Impossible) };
        let mut data = [0; IDENTIFY as usize];
        bus.load(self.layout.identify(), &mut data);
        Ok(Some(match step {
            Setup::Controller => {
                let shift = self.bringup.capabilities.page_shift_min();
                self.controller = Some(Controller::parse(&data, shift)?);
                Setup::Queues
            }
            Setup::Queues => {
                let granted = (result as u16).min((result >> 16) as u16);
                self.bringup.queues = self.bringup.queues.min(granted.saturating_add(1));
                self.config.namespace.map_or(Setup::Active, Setup::Namespace)
            }
            Setup::Active => Setup::Namespace(identify::first_active(&data)?),
            Setup::Namespace(number) => {
                let most = self.controller.and_then(|controller| controller.max_transfer);
                let most = most.map_or(self.config.max_transfer, |most| most.min(self.config.max_transfer));
                self.namespace = Some(Namespace::parse(&data, number, most)?);
                self.make_queues(bus);
                Setup::CompletionQueue(0)
            }
            Setup::CompletionQueue(pair) => Setup::SubmissionQueue(pair),
            Setup::SubmissionQueue(pair) if pair + 1 < self.bringup.queues => {
                Setup::CompletionQueue(pair + 1)
            }
            Setup::SubmissionQueue(_) => return Ok(None),
        }))
    }

    fn make_queues(&mut self, bus: &mut dyn Bus) {
        self.io.truncate(usize::from(self.bringup.queues));
        let mut queues = core::mem::take(&mut self.io).into_iter();
        for pair in 0..self.bringup.queues {
            let address = Address {
                submissions: match self.bringup.cmb {
                    Some(_) => Place::Peer(self.submission_queue(pair)),
                    None => Place::Own(self.layout.submissions(pair)),
                },
                completions: self.layout.completions(pair),
                tail_doorbell: self.doorbell(pair + 1, false),
                head_doorbell: self.doorbell(pair + 1, true),
            };
            let mut queue = queues.next();
            renew(&mut queue, bus, pair + 1, self.bringup.entries, address);
            self.io.extend(queue);
        }
    }
}

/// An empty queue pair: the one that is there already where it has the right size, so that its cids go on.
fn renew<T>(queue: &mut Option<Queue<T>>, bus: &mut dyn Bus, number: u16, entries: u16, address: Address) {
    match queue {
        Some(old) if old.entries() == entries => old.clear(bus, address),
        _ => *queue = Some(Queue::new(bus, number, entries, address)),
    }
}
