//! Starts a controller from whatever state it is in: stop it, set it up, start it, identify it, make its queues. [base 3.5.1] Every reset
//! takes this path too.

use super::config::{ADMIN_ENTRIES, Config, Layout};
use super::error::ResetCause;
use super::host::Nvme;
use super::identify::{Controller, Namespace, first_active};
use super::pmr::PmrStep;
use super::queue::{Address, Queue, QueueAddress, Reaped};
use crate::bus::{Bus, BusError};
use crate::registers::Registers;
use dcs_engine::Nanos;
use dcs_nvme::command::{
    Command, CreateCompletionQueue, CreateSubmissionQueue, DataPointer, Feature, QueueCounts, admin, feature,
};
use dcs_nvme::register::{self, Shutdown, ShutdownRequest};
use dcs_nvme::{AdminQueueSizes, Capabilities, Configuration, ControllerStatus, cmb, identify};

/// A stage of the start or stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Off,
    /// Reading CAP.
    Capabilities,
    /// Reading CC.
    Configuration,
    /// Waiting for an enabled controller to become ready, before it may be disabled.
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
    Failed(ResetCause),
}

impl Stage {
    /// Returns true if the controller has its admin queue.
    pub fn has_admin(self) -> bool {
        matches!(self, Stage::Setup(_) | Stage::Ready)
    }

    /// Returns the register that shows the stage's progress, and its size in bytes.
    fn watched(self) -> (u64, u32) {
        match self {
            Stage::Capabilities => (register::CAP, 8),
            Stage::Configuration => (register::CC, 4),
            Stage::Pmr(PmrStep::Capabilities) => (register::PMRCAP, 4),
            Stage::Pmr(_) => (register::PMRSTS, 4),
            _ => (register::CSTS, 4),
        }
    }

    /// Returns true if a controller that does not answer now is asked again. One that is stopping may be busy with that alone: QEMU's
    /// refuses every access while it waits for its disk.
    fn is_patient(self) -> bool {
        use Stage::{Capabilities, Configuration, Disabling, Enabling, Pmr, Settling, Shutdown};
        matches!(self, Capabilities | Configuration | Settling | Disabling | Pmr(_) | Enabling | Shutdown)
    }
}

/// The admin commands of a start, in order. Numbers are of I/O queue pairs, from 0.
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

/// The purpose of an admin command.
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
    /// Time by which the stage must be over.
    pub until: Option<Nanos>,
    /// Time of the next read of the stage's register.
    pub look: Option<Nanos>,
    /// Stage to end in when the controller has stopped; `None`: it is started again.
    pub then: Option<Stage>,
    /// Address of the I/O submission queues in the controller memory buffer.
    pub cmb: Option<u64>,
    cmb_location: cmb::Location,
    queues: u16,
    entries: u16,
}

impl Bringup {
    pub fn new(config: &Config) -> Bringup {
        Bringup {
            registers: Registers::new(config.registers, config.controller),
            capabilities: Capabilities::default(),
            until: None,
            look: None,
            then: None,
            cmb: None,
            cmb_location: cmb::Location::default(),
            queues: 0,
            entries: 0,
        }
    }

    pub fn deadline(&self) -> Option<Nanos> {
        [self.until, self.look].into_iter().flatten().min()
    }
}

impl Nvme {
    /// Starts the controller. Does nothing if that is in progress or done.
    pub fn start(&mut self, bus: &mut dyn Bus, now: Nanos) {
        if matches!(self.stage, Stage::Off | Stage::Failed(_)) {
            self.recovery.attempts = 0;
            self.bringup.then = None;
            self.restart(bus, now);
        }
    }

    /// Shuts the controller down in order, so that it may lose power [base 3.6.1]: then the state is [`State::Off`](super::State::Off).
    /// Outstanding commands fail as by a reset.
    pub fn stop(&mut self, bus: &mut dyn Bus, now: Nanos) {
        match self.stage {
            Stage::Off | Stage::Failed(ResetCause::Gone) => {}
            Stage::Ready => {
                self.end_all(ResetCause::Asked);
                self.bringup.then = Some(Stage::Off);
                let shutdown = ShutdownRequest::Normal;
                self.configure(bus, Configuration { shutdown, ..self.enabled() });
                self.enter(Stage::Shutdown, now, self.config.timeout);
                self.look(bus, now);
            }
            _ => self.halt(bus, now),
        }
    }

    /// Disables the controller, if it is enabled: then the state is [`State::Off`](super::State::Off). Nothing is written to one that was
    /// reset meanwhile. Outstanding commands fail as by a reset.
    pub fn halt(&mut self, bus: &mut dyn Bus, now: Nanos) {
        if !matches!(self.stage, Stage::Off | Stage::Failed(ResetCause::Gone)) {
            self.end_all(ResetCause::Asked);
            self.restart(bus, now);
            self.bringup.then = Some(Stage::Off);
        }
    }

    /// Restarts from the first stage.
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

    /// Processes a register's value.
    pub(super) fn register(&mut self, bus: &mut dyn Bus, now: Nanos, answer: Result<u64, BusError>) {
        let value = match answer {
            Ok(value) => value,
            Err(BusError::Unsupported) => return self.fail(bus, now, ResetCause::Gone),
            // Polls again, for as long as the stage may take.
            Err(BusError::Aborted) if self.stage.is_patient() => {
                self.bringup.look = Some(now.saturating_add(self.config.interval));
                return;
            }
            Err(error) => return self.fail(bus, now, ResetCause::Register(error)),
        };
        let status = ControllerStatus::from_bits(value as u32);
        // All ones are read if there is no controller any more.
        let gone = match self.stage {
            Stage::Capabilities => value == u64::MAX,
            _ => value as u32 == u32::MAX,
        };
        if gone {
            return self.fail(bus, now, ResetCause::Gone);
        }
        match self.stage {
            Stage::Capabilities => match self.capabilities(Capabilities::from_bits(value)) {
                Ok(()) => {
                    self.stage = Stage::Configuration;
                    self.look(bus, now);
                }
                Err(failure) => self.fail(bus, now, failure),
            },
            Stage::Configuration if !Configuration::from_bits(value as u32).enabled => {
                self.disabling(bus, now)
            }
            Stage::Configuration => {
                self.enter(Stage::Settling, now, self.bringup.capabilities.timeout_nanos());
                self.look(bus, now);
            }
            Stage::Settling if status.ready || status.fatal => self.disable(bus, now),
            Stage::Disabling if !status.ready => self.stopped(bus, now),
            Stage::Pmr(step) => self.pmr(bus, now, step, value as u32),
            Stage::CmbLocation => {
                self.bringup.cmb_location = cmb::Location::from_bits(value as u32);
                self.stage = Stage::CmbSize;
                self.read(bus, register::CMBSZ, 4);
            }
            Stage::CmbSize => self.cmb(bus, now, cmb::Size::from_bits(value as u32)),
            Stage::CmbStatus => {
                let status = cmb::Status::from_bits(value as u32);
                self.bringup.cmb = self.bringup.cmb.filter(|_| !status.address_invalid);
                self.enable(bus, now);
            }
            Stage::Enabling if status.fatal => self.fail(bus, now, ResetCause::Fatal),
            Stage::Enabling if status.ready => self.setup(bus, now, Setup::Controller),
            Stage::Shutdown if status.shutdown == Shutdown::Complete => self.restart(bus, now),
            Stage::Settling | Stage::Disabling | Stage::Enabling | Stage::Shutdown => {
                self.bringup.look = Some(now.saturating_add(self.config.interval));
            }
            Stage::Ready => self.looked(bus, now, status),
            Stage::Off | Stage::Setup(_) | Stage::Failed(_) => {}
        }
    }

    /// Fails a stage that has taken too long.
    pub(super) fn late(&mut self, bus: &mut dyn Bus, now: Nanos) {
        match self.stage {
            Stage::Settling => self.disable(bus, now),
            Stage::Shutdown => self.restart(bus, now),
            Stage::Disabling => self.fail(bus, now, ResetCause::NeverStopped),
            Stage::Enabling => self.fail(bus, now, ResetCause::NeverReady),
            Stage::Pmr(PmrStep::Ready) => self.fail(bus, now, ResetCause::MemoryNeverReady),
            _ => self.fail(bus, now, ResetCause::NoAnswer),
        }
    }

    fn capabilities(&mut self, capabilities: Capabilities) -> Result<(), ResetCause> {
        if !capabilities.nvm_commands {
            return Err(ResetCause::Unsupported("the NVM command set (CAP.CSS)"));
        }
        if capabilities.max_entries < 2 {
            return Err(ResetCause::Unsupported("queues of two entries (CAP.MQES)"));
        }
        let (least, most) = (capabilities.page_shift_min, capabilities.page_shift_max);
        if least > most {
            return Err(ResetCause::Unsupported("a memory page size (CAP.MPSMIN, CAP.MPSMAX)"));
        }
        if self.config.lend && u32::from(self.config.depth) > capabilities.max_entries {
            return Err(ResetCause::Unsupported("queues as long as the one that is lent (CAP.MQES)"));
        }
        // Doorbells of as many queue pairs as fit in the BAR.
        let (length, stride) = (self.config.registers.length, capabilities.doorbell_stride());
        let pairs = length.saturating_sub(register::DOORBELLS) / (2 * stride);
        if pairs < 2 {
            return Err(ResetCause::Unsupported("doorbells inside its BAR (CAP.DSTRD)"));
        }
        self.bringup.queues = u64::from(self.config.queues).min(pairs - 1) as u16;
        self.bringup.entries = u32::from(self.config.depth).min(capabilities.max_entries) as u16;
        self.page_shift = self.config.page.trailing_zeros().clamp(least.into(), most.into());
        self.bringup.capabilities = capabilities;
        Ok(())
    }

    fn disable(&mut self, bus: &mut dyn Bus, now: Nanos) {
        self.configure(bus, Configuration::new(self.page_shift));
        self.disabling(bus, now);
    }

    /// Returns the configuration for the controller to run with.
    fn enabled(&self) -> Configuration {
        Configuration { enabled: true, ..Configuration::new(self.page_shift) }
    }

    fn configure(&self, bus: &mut dyn Bus, configuration: Configuration) {
        self.write32(bus, register::CC, configuration.bits());
    }

    fn disabling(&mut self, bus: &mut dyn Bus, now: Nanos) {
        self.enter(Stage::Disabling, now, self.bringup.capabilities.timeout_nanos());
        self.look(bus, now);
    }

    /// Continues when CSTS.RDY is 0: the controller does nothing by itself any more, and all its writes have arrived.
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

    /// Looks for a controller memory buffer, if one is wanted; then the controller is enabled.
    pub(super) fn start_cmb(&mut self, bus: &mut dyn Bus, now: Nanos) {
        self.bringup.cmb = None;
        if self.config.cmb.is_none() {
            return self.enable(bus, now);
        }
        if self.bringup.capabilities.cmb {
            let control = cmb::Control { registers: true, ..cmb::Control::default() };
            self.write64(bus, register::CMBMSC, control.bits());
        }
        self.enter(Stage::CmbLocation, now, self.config.admin_timeout);
        self.read(bus, register::CMBLOC, 4);
    }

    fn lay_out(&mut self, bus: &dyn Bus) -> Result<(), ResetCause> {
        let (window, page) = (bus.window(), 1 << self.page_shift);
        let begin = window.address.checked_add(self.region.offset()).ok_or(ResetCause::Region)?;
        let base = begin.checked_next_multiple_of(page).ok_or(ResetCause::Region)? - window.address;
        let bringup = &self.bringup;
        let layout = Layout::new(base, bringup.queues, bringup.entries, page, self.config.max_transfer);
        let end = self.region.offset() + self.region.length();
        if layout.end > end || end > window.length {
            return Err(ResetCause::Region);
        }
        (self.window, self.layout) = (window, layout);
        Ok(())
    }

    /// Decides whether the submission queues go into the controller's memory buffer.
    fn cmb(&mut self, bus: &mut dyn Bus, now: Nanos, size: cmb::Size) {
        let location = self.bringup.cmb_location;
        let offset = u64::from(location.offset) * size.unit();
        let needed = u64::from(self.bringup.queues) * self.layout.submission_bytes();
        let address = self.config.cmb.and_then(|bar| {
            let address = bar.window.address.checked_add(offset)?;
            let fits = size.submission_queues
                && location.bar == bar.bar
                && needed <= size.bytes()
                && bar.window.contains(address, needed)
                && address % (1 << self.page_shift) == 0;
            fits.then_some(address)
        });
        self.bringup.cmb = address;
        match address {
            Some(base) if self.bringup.capabilities.cmb => {
                let control = cmb::Control { registers: true, space: true, base };
                self.write64(bus, register::CMBMSC, control.bits());
                self.stage = Stage::CmbStatus;
                self.read(bus, register::CMBSTS, 4);
            }
            _ => self.enable(bus, now),
        }
    }

    /// Returns the bus addresses of a queue pair's doorbells: the submission queue's tail, and the completion queue's head.
    pub(super) fn doorbells(&self, queue: u16) -> (u64, u64) {
        let (base, stride) = (self.config.registers.address, self.bringup.capabilities.doorbell_stride());
        (base + register::tail_doorbell(queue, stride), base + register::head_doorbell(queue, stride))
    }

    fn enable(&mut self, bus: &mut dyn Bus, now: Nanos) {
        let layout = self.layout;
        let (tail_doorbell, head_doorbell) = self.doorbells(0);
        let address = Address {
            submissions: QueueAddress::Own(layout.admin_submissions()),
            completions: layout.admin_completions(),
            tail_doorbell,
            head_doorbell,
        };
        let entries = u32::from(ADMIN_ENTRIES).min(self.bringup.capabilities.max_entries) as u16;
        renew(&mut self.admin, bus, 0, entries, address);
        if !self.config.interrupts {
            // With MSI-X this register must not be accessed. [base 3.1.3.3]
            self.write32(bus, register::INTMS, u32::MAX);
        }
        let sizes = AdminQueueSizes { submissions: entries, completions: entries };
        self.write32(bus, register::AQA, sizes.bits());
        self.write64(bus, register::ASQ, self.window.address + layout.admin_submissions());
        self.write64(bus, register::ACQ, self.window.address + layout.admin_completions());
        self.configure(bus, self.enabled());
        self.enter(Stage::Enabling, now, self.bringup.capabilities.timeout_nanos());
        self.look(bus, now);
    }

    /// Sends the admin command of a step.
    fn setup(&mut self, bus: &mut dyn Bus, now: Nanos, step: Setup) {
        let identify = |cns: u8, namespace| Command {
            opcode: admin::IDENTIFY,
            namespace,
            data: DataPointer::Prp(self.window.address + self.layout.identify(), 0),
            words: [cns.into(), 0, 0, 0, 0, 0],
            ..Command::default()
        };
        let create = |opcode, address, words| {
            let data = DataPointer::Prp(address, 0);
            Command { opcode, data, words, ..Command::default() }
        };
        let (entries, contiguous) = (self.bringup.entries.into(), true);
        let entry = match step {
            Setup::Controller => identify(identify::CONTROLLER, 0),
            Setup::Active => identify(identify::ACTIVE_NAMESPACES, 0),
            Setup::Namespace(number) => identify(identify::NAMESPACE, number),
            Setup::Queues => {
                let wanted = self.bringup.queues.into();
                let value = QueueCounts { submissions: wanted, completions: wanted }.bits();
                let number = feature::NUMBER_OF_QUEUES;
                let words = Feature { number, value, ..Feature::default() }.words();
                Command { opcode: admin::SET_FEATURES, words, ..Command::default() }
            }
            Setup::CompletionQueue(pair) => {
                let (queue, interrupts, vector) = (pair + 1, self.config.interrupts, 0);
                let words = CreateCompletionQueue { queue, entries, contiguous, interrupts, vector }.words();
                let address = self.window.address + self.layout.completions(pair);
                create(admin::CREATE_COMPLETION_QUEUE, address, words)
            }
            Setup::SubmissionQueue(pair) => {
                let (queue, completion_queue, priority) = (pair + 1, pair + 1, 0);
                let wanted = CreateSubmissionQueue { queue, entries, contiguous, priority, completion_queue };
                create(admin::CREATE_SUBMISSION_QUEUE, self.submission_queue(pair), wanted.words())
            }
        };
        self.rest(Stage::Setup(step));
        // Cleared, so that old data are not mistaken for data from the controller.
        bus.store(self.layout.identify(), &[0; identify::SIZE]);
        self.send_admin(bus, now, Purpose::Setup(entry.opcode), entry);
    }

    /// Returns the bus address of an I/O submission queue.
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
        entry: Command,
    ) -> bool {
        let deadline = now.saturating_add(self.config.admin_timeout);
        let Some(queue) = &mut self.admin else { return false };
        queue.push(bus, Admin { purpose, deadline }, entry).is_some()
    }

    /// Returns the time by which the first admin command must be done.
    pub(super) fn admin_deadline(&self) -> Option<Nanos> {
        let slots = &self.admin.as_ref()?.slots;
        if slots.used() == 0 { None } else { slots.iter().map(|(_, admin)| admin.deadline).min() }
    }

    /// Reaps the completions of admin commands.
    pub(super) fn reap_admin(&mut self, bus: &mut dyn Bus, now: Nanos) {
        for _ in 0..ADMIN_ENTRIES {
            let Some(reaped) = self.admin.as_mut().and_then(|queue| queue.reap(bus)) else { return };
            match reaped {
                Reaped::Unknown => self.counters.unknown += 1,
                Reaped::Impossible => return self.fail(bus, now, ResetCause::Impossible),
                Reaped::Done(Admin { purpose: Purpose::Abort, .. }, _) => self.aborted(bus, now),
                Reaped::Done(Admin { purpose: Purpose::Setup(opcode), .. }, completion) => {
                    let status = completion.status;
                    let next = if status.is_success() {
                        self.advance(bus, completion.result)
                    } else {
                        Err(ResetCause::Admin { opcode, status })
                    };
                    match next {
                        Ok(Some(step)) => self.setup(bus, now, step),
                        Ok(None) => {
                            self.recovery.is_lent = self.config.lend;
                            self.rest(Stage::Ready);
                        }
                        Err(failure) => return self.fail(bus, now, failure),
                    }
                }
            }
        }
    }

    /// Processes the result of a step of the set-up, and returns the next step.
    fn advance(&mut self, bus: &mut dyn Bus, result: u32) -> Result<Option<Setup>, ResetCause> {
        let Stage::Setup(step) = self.stage else { return Err(ResetCause::Impossible) };
        let mut data = [0; identify::SIZE];
        bus.load(self.layout.identify(), &mut data);
        Ok(Some(match step {
            Setup::Controller => {
                let shift = self.bringup.capabilities.page_shift_min;
                self.controller = Some(Controller::parse(&data, shift)?);
                Setup::Queues
            }
            Setup::Queues => {
                let granted = QueueCounts::from_bits(result);
                let least = granted.submissions.min(granted.completions).min(self.bringup.queues.into());
                self.bringup.queues = least as u16;
                self.config.namespace.map_or(Setup::Active, Setup::Namespace)
            }
            Setup::Active => Setup::Namespace(first_active(&data)?),
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
            let (tail_doorbell, head_doorbell) = self.doorbells(pair + 1);
            let address = Address {
                submissions: match self.bringup.cmb {
                    Some(_) => QueueAddress::Peer(self.submission_queue(pair)),
                    None => QueueAddress::Own(self.layout.submissions(pair)),
                },
                completions: self.layout.completions(pair),
                tail_doorbell,
                head_doorbell,
            };
            let mut queue = queues.next();
            renew(&mut queue, bus, pair + 1, self.bringup.entries, address);
            self.io.extend(queue.filter(|_| !self.config.lend));
        }
    }
}

/// Returns an empty queue pair: the existing one if it has the right size, so that its cids go on.
fn renew<T>(queue: &mut Option<Queue<T>>, bus: &mut dyn Bus, number: u16, entries: u16, address: Address) {
    match queue {
        Some(old) if old.entries() == entries => old.clear(bus, address),
        _ => *queue = Some(Queue::new(bus, number, entries, address)),
    }
}
