//! An NVMe controller, started as a host starts it. [base 3.5.1]

use std::path::Path;
use std::time::{Duration, Instant};

use dcs_nvme::command::{Command, CreateCompletionQueue, CreateSubmissionQueue, Feature, QueueCounts};
use dcs_nvme::command::{admin, feature};
use dcs_nvme::identify;
use dcs_nvme::register::{ACQ, AQA, ASQ, CAP, CC, CSTS};
use dcs_nvme::{AdminQueueSizes, Capabilities, Completion, Configuration, ControllerStatus, DataPointer};

use crate::device::{Device, Error, PAGE};
use crate::queue::{Queue, Shadow};

/// Entries of the admin queues.
const ADMIN_ENTRIES: u32 = 32;
/// Bit of OACS: doorbell buffer config.
const DOORBELL_BUFFER: u16 = 1 << 8;
/// Time limit for a controller to become ready, or to answer.
const LIMIT: Duration = Duration::from_secs(60);

/// Options for using a drive.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// I/O queue pairs.
    pub queues: u16,
    /// Entries of each queue.
    pub entries: u32,
    /// True if completions raise interrupts; otherwise they are polled.
    pub interrupts: bool,
    /// True to use doorbells in shared memory, if the controller offers that.
    pub shadow: bool,
    /// Bytes of shared memory.
    pub memory: u64,
}

impl Default for Options {
    fn default() -> Options {
        Options { queues: 1, entries: 256, interrupts: true, shadow: true, memory: 64 << 20 }
    }
}

/// A drive with one namespace, number 1, of which everything is used.
#[derive(Debug)]
pub struct Drive {
    /// Function that it is.
    pub device: Device,
    /// Its I/O queues.
    pub queues: Vec<Queue>,
    admin: Queue,
    options: Options,
    blocks: u64,
    block: u64,
    shadow: bool,
}

impl Drive {
    /// Connects to a drive, and starts it.
    ///
    /// # Errors
    ///
    /// Any reason that prevents using it.
    pub fn open(path: &Path, options: Options) -> Result<Drive, Error> {
        let mut device = Device::connect(path, options.memory)?;
        if options.interrupts {
            device.listen(options.queues + 1)?;
        }
        let stride = Capabilities::from_bits(u64::from_le_bytes(device.load(CAP)?)).doorbell_stride();
        let admin = Queue::new(&mut device, 0, ADMIN_ENTRIES, stride)?;
        let mut drive =
            Drive { device, queues: Vec::new(), admin, options, blocks: 0, block: 0, shadow: false };
        drive.enable()?;
        let shadow = drive.identify()?.then(|| drive.shadow()).transpose()?;
        for number in 1..=options.queues {
            let mut queue = Queue::new(&mut drive.device, number, options.entries, stride)?;
            drive.create(&queue)?;
            if let Some(shadow) = shadow {
                queue.use_shadow(shadow);
            }
            drive.queues.push(queue);
        }
        drive.shadow = shadow.is_some();
        Ok(drive)
    }

    /// Returns the number of logical blocks, and the bytes of one.
    pub fn geometry(&self) -> (u64, u64) {
        (self.blocks, self.block)
    }

    /// Returns true if it uses shadow doorbells.
    pub fn has_shadow(&self) -> bool {
        self.shadow
    }

    /// Returns the options that it was opened with.
    pub fn options(&self) -> Options {
        self.options
    }

    fn enable(&mut self) -> Result<(), Error> {
        self.device.write(CC, &0u32.to_le_bytes())?;
        self.until_ready(false)?;
        let entries = ADMIN_ENTRIES as u16;
        let sizes = AdminQueueSizes { submissions: entries, completions: entries };
        let (submissions, completions) = self.admin.addresses();
        self.device.write(AQA, &sizes.bits().to_le_bytes())?;
        self.device.write(ASQ, &submissions.to_le_bytes())?;
        self.device.write(ACQ, &completions.to_le_bytes())?;
        let wanted = Configuration { enabled: true, ..Configuration::new(PAGE.trailing_zeros()) };
        self.device.write(CC, &wanted.bits().to_le_bytes())?;
        self.until_ready(true)
    }

    fn until_ready(&mut self, wanted: bool) -> Result<(), Error> {
        let end = Instant::now() + LIMIT;
        loop {
            let bits = u32::from_le_bytes(self.device.load(CSTS)?);
            let status = ControllerStatus::from_bits(bits);
            if status.ready == wanted && !status.fatal {
                return Ok(());
            }
            if status.fatal && wanted || Instant::now() >= end {
                return Err(Error::NotReady(bits));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Sends an admin command, and waits for its completion.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] if it failed.
    pub fn admin(&mut self, command: Command) -> Result<Completion, Error> {
        self.admin.submit(&self.device, &command.bytes());
        self.admin.ring(&mut self.device)?;
        let end = Instant::now() + LIMIT;
        loop {
            if let Some(done) = self.admin.reap(&self.device) {
                self.admin.ring(&mut self.device)?;
                let status = done.status;
                let failed = Error::Failed { opcode: command.opcode, status: status.0 };
                return if status.is_success() { Ok(done) } else { Err(failed) };
            }
            if Instant::now() >= end {
                return Err(Error::Silent);
            }
            match self.options.interrupts {
                true => _ = self.device.wait(0, Duration::from_millis(100))?,
                false => std::thread::yield_now(),
            }
        }
    }

    /// Identifies the drive. Returns true if shadow doorbells are requested and offered.
    fn identify(&mut self) -> Result<bool, Error> {
        let page = self.device.take(PAGE)?;
        let mut data = [0; identify::SIZE];
        let read = |drive: &mut Drive, namespace, what: u8| {
            let words = [what.into(), 0, 0, 0, 0, 0];
            let data = DataPointer::Prp(Device::address(page), 0);
            drive.admin(Command { opcode: admin::IDENTIFY, namespace, data, words, ..Command::default() })
        };
        read(self, 0, identify::CONTROLLER)?;
        self.device.memory().load(page, &mut data);
        let controller = identify::Controller::from_bytes(&data);
        read(self, 1, identify::NAMESPACE)?;
        self.device.memory().load(page, &mut data);
        let namespace = identify::Namespace::from_bytes(&data);
        self.blocks = namespace.blocks;
        self.block = 1 << namespace.current_format().shift;
        let counts =
            QueueCounts { submissions: self.options.queues.into(), completions: self.options.queues.into() };
        let wanted =
            Feature { number: feature::NUMBER_OF_QUEUES, value: counts.bits(), ..Feature::default() };
        self.admin(Command { opcode: admin::SET_FEATURES, words: wanted.words(), ..Command::default() })?;
        Ok(self.options.shadow && controller.optional_admin & DOORBELL_BUFFER != 0)
    }

    fn shadow(&mut self) -> Result<Shadow, Error> {
        let shadow = Shadow { doorbells: self.device.take(PAGE)?, events: self.device.take(PAGE)? };
        let data = DataPointer::Prp(Device::address(shadow.doorbells), Device::address(shadow.events));
        self.admin(Command { opcode: admin::DOORBELL_BUFFER_CONFIG, data, ..Command::default() })?;
        Ok(shadow)
    }

    fn create(&mut self, queue: &Queue) -> Result<(), Error> {
        let (submissions, completions) = queue.addresses();
        let (number, entries) = (queue.number(), queue.entries());
        let words = CreateCompletionQueue {
            queue: number,
            entries,
            contiguous: true,
            interrupts: self.options.interrupts,
            vector: number,
        };
        let opcode = admin::CREATE_COMPLETION_QUEUE;
        let data = DataPointer::Prp(completions, 0);
        self.admin(Command { opcode, data, words: words.words(), ..Command::default() })?;
        let words = CreateSubmissionQueue {
            queue: number,
            entries,
            contiguous: true,
            priority: 0,
            completion_queue: number,
        };
        let opcode = admin::CREATE_SUBMISSION_QUEUE;
        let data = DataPointer::Prp(submissions, 0);
        self.admin(Command { opcode, data, words: words.words(), ..Command::default() })?;
        Ok(())
    }
}
