//! The engine as an application holds it: builder, threads, shutdown.

use crate::backend::{Control, Core};
use crate::card;
use crate::endpoint::Namespace;
use crate::error::Error;
use crate::queue::{Awaited, QueuePair};
use crate::session::{DEPTH, DEPTH_MAX, Session};
use crate::statistics::Statistics;
use dcs_abi::admin::AdminEntry;
use dcs_abi::descriptor::Mode;
use dcs_abi::status::Status;
use dcs_devices::Io;
use dcs_devices::controller::Waker;
use dcs_devices::fork::Process;
use dcs_devices::gpu;
use dcs_devices::vfio_devices::{Interface, Wanted, WantedNic};
use std::cell::RefCell;
use std::mem::ManuallyDrop;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::sync::{Arc, LockResult, Mutex, MutexGuard, TryLockError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long an engine looks for work before it sleeps, where there are cores for that.
#[doc(hidden)]
pub const SPIN: Duration = Duration::from_micros(20);

/// Steps of the engine that are taken for a caller who does not want to wait.
const STEPS_AT_ONCE: usize = 4;

/// What runs the devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Backend {
    /// This machine's kernel: files, sockets, memory through io_uring and plain system calls.
    #[default]
    Kernel,
    /// A dcs card in this machine, which drives SSDs and NICs of its own: see [`card`].
    Card,
}

/// Who drives the engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Driver {
    /// A thread of its own: it spins while there is work, and sleeps when there is none.
    #[default]
    Thread,
    /// Whoever waits for a transfer: no hand-over between threads. Nothing moves while nobody waits.
    Caller,
}

/// How an engine is to be made. Every setting has a default.
#[derive(Clone, Debug)]
pub struct Builder {
    backend: Backend,
    driver: Driver,
    io: Io,
    config: dcs_engine::Config,
    spin: Duration,
    core: Option<usize>,
    nice: Option<i8>,
    card: Option<card::Options>,
    drives: Vec<Wanted>,
    peer_to_peer: bool,
    nic: Option<WantedNic>,
    gpu: Option<gpu::Wanted>,
    gpu_storage: Mode,
    gpu_storage_library: Option<PathBuf>,
}

/// An engine: it runs the transfers that its sessions submit.
///
/// # Calling contract
///
/// 1. [`Engine::builder`], its settings, [`Builder::start`]: all devices are ready, or an error says which is not.
/// 2. [`Engine::session`]: a queue pair. Sessions are independent of each other; threads may share one.
/// 3. [`Session::transfer`] (or [`Session::request`], for a length, a prefix, a timeout or an order). An error means that
///    nothing was submitted and nothing moves. `Ok` means that the transfer ends once: with a [`Completion`], or with a
///    [`TransferError`] that says at which stage, and how much was delivered before.
/// 4. Wait for each [`Transfer`]: [`Transfer::wait`], [`Transfer::try_wait`] or, as a future, `.await`.
///    [`Session::wait_any`] waits for any of a session's. To drop a transfer cancels it.
/// 5. Drop sessions when their transfers are done, then the engine. Dropped earlier, the engine aborts what is in
///    flight and waits for that; its transfers end with [`Status::QueueDeleted`], and its sessions refuse new ones ([`Error::Stopped`]).
///
/// Keep an engine as long as the program transfers anything: to start one is slow, to submit to one is fast.
///
/// With [`Driver::Thread`] (the default) the engine works while your threads do something else. With
/// [`Driver::Caller`] it works inside the waiting calls alone: nothing moves, no timeout fires and no connection of
/// its NIC is served while nobody waits; futures panic, since nobody would wake them.
///
/// ```
/// use dcs::{Engine, Op, Sink, Source};
///
/// let engine = Engine::builder().start()?;
/// let session = engine.session()?;
/// // Both are in flight before the first is waited for.
/// let submit = |text: &'static [u8]| session.transfer(Source::memory(text), [Op::Crc32], Sink::memory(16));
/// let (first, second) = (submit(b"one")?, submit(b"second")?);
/// assert_eq!(first.wait()?.memory.as_deref(), Some(&b"one"[..]));
/// assert_eq!(second.wait()?.bytes_out, 6);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Processes
///
/// An engine belongs to the process that made it. In a child of fork(2) it does nothing, and neither do its sessions
/// and transfers: they say so ([`Error::Forked`], [`Status::QueueDeleted`] with `EPERM`), and dropping them there leaves
/// the parent's alone. A child makes an engine of its own. Descriptors of what the parent has in flight at a fork are
/// the child's too, until it ends or executes another program.
///
/// [`Completion`]: crate::Completion
/// [`TransferError`]: crate::TransferError
/// [`Transfer`]: crate::Transfer
/// [`Transfer::wait`]: crate::Transfer::wait
/// [`Transfer::try_wait`]: crate::Transfer::try_wait
#[derive(Debug)]
pub struct Engine {
    pub(crate) shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// What sessions share with the engine.
#[derive(Debug)]
pub(crate) struct Shared {
    driver: Driver,
    /// Who made it: nobody else may drive it.
    process: Process,
    /// The engine's thread holds it for good; without one, whoever drives. Dropped by the process that made it alone.
    core: ManuallyDrop<Mutex<Box<dyn Core>>>,
    control: Mutex<Vec<Control>>,
    /// There may be something in `control`.
    has_control: AtomicBool,
    /// The driver sleeps, or is about to: it wants to be woken.
    asleep: AtomicBool,
    stopping: AtomicBool,
    waker: Waker,
    spin: Duration,
    /// Somebody drives.
    driven: AtomicBool,
    /// Queues whose threads may be waiting for their turn to drive.
    waiting: Mutex<Vec<Arc<QueuePair>>>,
    statistics: Arc<Mutex<Statistics>>,
    has_ring: bool,
    /// The card's NICs, or the engine's own.
    pub nics: Vec<card::net::Port>,
    namespaces: Vec<Namespace>,
    interface: Option<Arc<Interface>>,
    gpu: Option<gpu::Properties>,
    gpu_storage: Option<Result<gpu::Storage, gpu::StorageError>>,
    trouble: Arc<Mutex<Option<String>>>,
    /// The backend has to be asked for its statistics.
    looks: bool,
}

impl Default for Builder {
    fn default() -> Self {
        // Spinning takes a core from those who could make work; with one core there is nothing to spin for.
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
        let spin = if cores > 1 { SPIN } else { Duration::ZERO };
        Builder {
            backend: Backend::Kernel,
            driver: Driver::Thread,
            io: Io::Auto,
            config: dcs_engine::Config::default(),
            spin,
            core: None,
            nice: None,
            card: None,
            drives: Vec::new(),
            peer_to_peer: false,
            nic: None,
            gpu: None,
            gpu_storage: Mode::Auto,
            gpu_storage_library: None,
        }
    }
}

impl Builder {
    /// Which backend.
    pub fn backend(mut self, backend: Backend) -> Self {
        self.backend = backend;
        self
    }

    /// The card and its devices, for [`Backend::Card`]; without it the environment says which
    /// ([`Options::from_environment`](card::Options::from_environment)).
    pub fn card(mut self, options: card::Options) -> Self {
        self.card = Some(options);
        self
    }

    /// An NVMe SSD that the engine of [`Backend::Kernel`] drives itself, past the kernel's driver: its PCI function (`0000:01:00.0`), which has
    /// to be bound to vfio-pci already, and one of its namespaces (without a number its first). [`Engine::namespaces`] has it then. The memory
    /// of all blocks is locked.
    pub fn nvme(mut self, function: impl Into<String>, namespace: Option<u32>) -> Self {
        self.drives.push(Wanted { function: function.into(), namespace, holds_blocks: false });
        self
    }

    /// Peer-to-peer: the blocks lie in the memory of the first SSD ([`Builder::nvme`]), which has to have a persistent memory region. It reads into
    /// them there, and the NIC ([`Builder::nic`]) fetches from there: data cross no host memory, and the processor sees none. So nothing but
    /// that is done: namespace to connection, without operators; and connection to memory, by a copy, so that requests are heard. What
    /// else is submitted fails with `PathUnavailable`.
    pub fn peer_to_peer(mut self) -> Self {
        self.peer_to_peer = true;
        self
    }

    /// The NIC that the engine of [`Backend::Kernel`] drives itself, past the kernel's driver and without its TCP: a PCI function, which has to be bound to
    /// vfio-pci already, and the address that it has on its network. Then [`Engine::connect`] and [`Engine::listen`] make connections of that
    /// address, which are sources and sinks ([`Source::connection`](crate::Source::connection)) of this engine's transfers. They are served by
    /// whoever drives the engine: with [`Driver::Caller`], only while somebody waits. The memory of all blocks is locked.
    pub fn nic(mut self, nic: crate::Nic) -> Self {
        self.nic = Some(nic);
        self
    }

    /// A GPU that does what chains ask of one ([`Op::on_gpu`](crate::Op::on_gpu)): NVIDIA's, by its number, from 0 on. [`Backend::Kernel`] alone has GPUs.
    /// The memory of all blocks is locked for it.
    pub fn gpu(mut self, device: u32) -> Self {
        self.gpu.get_or_insert_default().device = device;
        self
    }

    /// The library of CUDA's driver, for [`Builder::gpu`]; without it the environment variable `DCS_CUDA_LIBRARY` names one, or it is
    /// the system's `libcuda.so.1`.
    pub fn gpu_library(mut self, library: impl Into<PathBuf>) -> Self {
        self.gpu.get_or_insert_default().library = Some(library.into());
        self
    }

    /// Whether that GPU reads files itself, past the host's memory (GPUDirect Storage), where the first operator of a chain is on it. Auto: where that
    /// is to be had. On: the engine does not start without it. Off: never. [`Engine::gpu_storage`] says which; the path of each transfer says what
    /// was done.
    pub fn gpu_storage(mut self, mode: Mode) -> Self {
        self.gpu_storage = mode;
        self
    }

    /// The library of GPUDirect Storage; without it the environment variable `DCS_CUFILE_LIBRARY` names one, or it is the system's `libcufile.so.0`.
    pub fn gpu_storage_library(mut self, library: impl Into<PathBuf>) -> Self {
        self.gpu_storage_library = Some(library.into());
        self
    }

    /// Who drives the engine.
    pub fn driver(mut self, driver: Driver) -> Self {
        self.driver = driver;
        self
    }

    /// io_uring, plain system calls, or whichever is to be had. The environment variable `DCS_IO` (`auto`, `uring`,
    /// `plain`) overrides [`Io::Auto`].
    pub fn io(mut self, io: Io) -> Self {
        self.io = io;
        self
    }

    /// Bytes of a block buffer: a multiple of 4096.
    pub fn block_size(mut self, bytes: u32) -> Self {
        self.config.block_size = bytes;
        self
    }

    /// Block buffers.
    pub fn blocks(mut self, blocks: u32) -> Self {
        self.config.blocks = blocks;
        self
    }

    /// Blocks that one transfer may hold: how far reading runs ahead of writing.
    pub fn window(mut self, blocks: u16) -> Self {
        self.config.window = blocks;
        self
    }

    /// Transfers that may be in flight in all.
    pub fn commands(mut self, commands: u16) -> Self {
        self.config.commands = commands;
        self
    }

    /// Sessions that may be open.
    pub fn sessions(mut self, sessions: u16) -> Self {
        self.config.queues = sessions;
        self
    }

    /// How long the engine looks for work before it sleeps.
    pub fn spin(mut self, spin: Duration) -> Self {
        self.spin = spin;
        self
    }

    /// Binds the engine's thread to a CPU: one engine per core.
    pub fn core(mut self, core: usize) -> Self {
        self.core = Some(core);
        self
    }

    /// The nice value of the engine's thread, -20 (most favoured) to 19. One thread that does the work of many gets one
    /// thread's share of a core that others want too: here it can be given more. Values below the process's own need CAP_SYS_NICE
    /// or a limit (RLIMIT_NICE) that allows them.
    pub fn nice(mut self, level: i8) -> Self {
        self.nice = Some(level);
        self
    }

    /// Starts the engine.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for sizes that make no engine, [`Error::Start`] and [`Error::IoUring`] where the system has
    /// not what it needs, or does not permit the nice value (EACCES); [`Error::Card`], [`Error::Drive`] and [`Error::Gpu`] for devices that cannot be had.
    pub fn start(mut self) -> Result<Engine, Error> {
        if self.peer_to_peer {
            let there = self.backend == Backend::Kernel && self.gpu.is_none();
            let ssd = self.drives.first_mut().filter(|_| there).ok_or(Error::PeerToPeer)?;
            ssd.holds_blocks = true;
        }
        let gpu = self.gpu.clone().map(|gpu| gpu::Wanted {
            storage: self.gpu_storage,
            storage_library: self.gpu_storage_library.clone(),
            ..gpu
        });
        let parts = match self.backend {
            Backend::Kernel => {
                kernel(self.config, (self.io, self.driver), (&self.drives, self.nic.as_ref(), gpu.as_ref()))?
            }
            Backend::Card => card(&self.card)?,
        };
        let shared = Arc::new(Shared {
            driver: self.driver,
            waker: parts.waker,
            statistics: parts.statistics,
            has_ring: parts.has_ring,
            nics: parts.nics,
            namespaces: parts.namespaces,
            interface: parts.interface,
            gpu: parts.gpu,
            gpu_storage: parts.gpu_storage,
            trouble: parts.trouble,
            looks: self.backend == Backend::Card,
            process: Process::current(),
            core: ManuallyDrop::new(Mutex::new(parts.core)),
            control: Mutex::new(Vec::new()),
            has_control: AtomicBool::new(false),
            asleep: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            // A card interrupts.
            spin: if self.backend == Backend::Card { Duration::ZERO } else { self.spin },
            driven: AtomicBool::new(false),
            waiting: Mutex::new(Vec::new()),
        });
        let thread = match self.driver {
            Driver::Caller => None,
            Driver::Thread => Some(spawn(&shared, self.core, self.nice)?),
        };
        Ok(Engine { shared, thread })
    }
}

/// A backend that was started.
struct Parts {
    core: Box<dyn Core>,
    waker: Waker,
    statistics: Arc<Mutex<Statistics>>,
    has_ring: bool,
    nics: Vec<card::net::Port>,
    namespaces: Vec<Namespace>,
    interface: Option<Arc<Interface>>,
    gpu: Option<gpu::Properties>,
    gpu_storage: Option<Result<gpu::Storage, gpu::StorageError>>,
    trouble: Arc<Mutex<Option<String>>>,
}

/// Devices that an engine drives itself: SSDs, a NIC, a GPU.
pub(crate) type Own<'a> = (&'a [Wanted], Option<&'a WantedNic>, Option<&'a gpu::Wanted>);

fn kernel(config: dcs_engine::Config, (io, driver): (Io, Driver), own: Own<'_>) -> Result<Parts, Error> {
    let core = crate::kernel::Core::new(config, (io_from_environment(io)?, driver == Driver::Caller), own)?;
    let (waker, statistics, has_ring) = (core.waker(), core.statistics(), core.has_ring());
    let namespaces = core.namespaces().iter().map(Namespace::new).collect();
    let interface = core.interface().map(Arc::clone);
    let (gpu, gpu_storage, trouble) = (core.gpu().cloned(), core.gpu_storage().cloned(), core.trouble());
    // It needs no number: there is one.
    let port = |interface: &Arc<Interface>| card::net::Port { handle: 0, nic: interface.wanted.clone() };
    let nics = interface.iter().map(port).collect();
    let core = Box::new(core);
    Ok(Parts { core, waker, statistics, has_ring, nics, namespaces, interface, gpu, gpu_storage, trouble })
}

fn card(options: &Option<card::Options>) -> Result<Parts, Error> {
    let options = match options {
        Some(options) => options.clone(),
        None => card::Options::from_environment()?,
    };
    let core = card::Core::new(&options)?;
    let (waker, statistics, nics) = (core.waker(), core.statistics(), core.nics().to_vec());
    let (has_ring, namespaces, interface) = (false, Vec::new(), None);
    let (core, trouble): (Box<dyn Core>, _) = (Box::new(core), Arc::default());
    let (gpu, gpu_storage) = (None, None);
    Ok(Parts { core, waker, statistics, has_ring, nics, namespaces, interface, gpu, gpu_storage, trouble })
}

fn io_from_environment(io: Io) -> Result<Io, Error> {
    match (io, std::env::var("DCS_IO").as_deref()) {
        (Io::Auto, Ok("uring")) => Ok(Io::Uring),
        (Io::Auto, Ok("plain")) => Ok(Io::Plain),
        (Io::Auto, Ok(other)) if !matches!(other, "" | "auto") => {
            let text = format!("DCS_IO is {other:?}; it may be auto, uring or plain");
            Err(Error::Start(std::io::Error::new(std::io::ErrorKind::InvalidInput, text)))
        }
        (io, _) => Ok(io),
    }
}

fn spawn(shared: &Arc<Shared>, core: Option<usize>, nice: Option<i8>) -> Result<JoinHandle<()>, Error> {
    let shared = Arc::clone(shared);
    let (tell, told) = std::sync::mpsc::channel();
    let run = move || {
        let prepared = crate::kernel::thread::prepare(core, nice);
        let failed = prepared.is_err();
        if tell.send(prepared).is_err() || failed {
            return;
        }
        // After a panic, which is a defect, it goes on only to refuse what is asked of it: nobody waits for ever.
        let run = || std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| shared.run()));
        let _ = run().or_else(|_| run());
    };
    let thread = std::thread::Builder::new().name("dcs-engine".into()).spawn(run).map_err(Error::Start)?;
    let prepared = told.recv().unwrap_or_else(|_| Err(std::io::ErrorKind::Other.into()));
    prepared.map(|()| thread).map_err(Error::Start)
}

impl Engine {
    /// How an engine is to be made.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Opens a session with room for 64 transfers in flight.
    ///
    /// # Errors
    ///
    /// [`Error::NoSessions`], [`Error::Forked`].
    pub fn session(&self) -> Result<Session, Error> {
        self.session_with_depth(DEPTH)
    }

    /// Opens a session with room for `depth` transfers in flight.
    ///
    /// # Errors
    ///
    /// [`Error::NoSessions`], [`Error::Depth`], [`Error::Forked`].
    pub fn session_with_depth(&self, depth: u16) -> Result<Session, Error> {
        if !(1..=DEPTH_MAX).contains(&depth) {
            return Err(Error::Depth);
        }
        if self.shared.is_foreign() {
            return Err(Error::Forked);
        }
        let queue = Arc::new(QueuePair::new(depth));
        self.shared.push(Control::AddQueue(Arc::clone(&queue)));
        self.shared.wait(&queue, Awaited::Opened);
        queue.id.get().ok_or(Error::NoSessions)?;
        Ok(Session::new(Arc::clone(&self.shared), queue))
    }

    /// Whether io_uring carries what takes time; otherwise plain system calls do, by `poll` and on threads.
    /// On an engine that its callers drive with [`Io::Auto`] it carries zero-copy sends alone: what a thread puts into a ring interrupts it later and ends with it.
    pub fn uses_io_uring(&self) -> bool {
        self.shared.has_ring
    }

    /// The GPU that it has ([`Builder::gpu`]).
    pub fn gpu(&self) -> Option<&gpu::Properties> {
        self.shared.gpu.as_ref()
    }

    /// What reads files to the GPU directly ([`Builder::gpu_storage`]), or why nothing does. None: it has no GPU.
    pub fn gpu_storage(&self) -> Option<&Result<gpu::Storage, gpu::StorageError>> {
        self.shared.gpu_storage.as_ref()
    }

    /// What went wrong with the GPU last, in the words of its driver; also why GPUDirect Storage did not read a file, which was then read as ever.
    pub fn gpu_trouble(&self) -> Option<String> {
        self.shared.trouble.lock().unwrap_or_else(|error| error.into_inner()).clone()
    }

    /// The namespaces of the SSDs that it drives itself, in the order of [`Builder::nvme`].
    pub fn namespaces(&self) -> &[Namespace] {
        &self.shared.namespaces
    }

    /// The NIC that it drives itself ([`Builder::nic`]): what it is.
    pub fn interface(&self) -> Option<&Interface> {
        self.shared.interface.as_deref()
    }

    /// What it counts, as of its last step.
    pub fn statistics(&self) -> Statistics {
        if self.shared.is_foreign() {
            return Statistics::default();
        }
        if self.shared.looks {
            let (send, seen) = std::sync::mpsc::channel();
            self.shared.push(Control::Look(send));
            let _ = self.shared.answer(&seen, None);
        }
        *self.shared.statistics.lock().unwrap_or_else(|error| error.into_inner())
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if self.shared.is_foreign() {
            // The thread is the parent's.
            return std::mem::forget(self.thread.take());
        }
        self.shared.stopping.store(true, Ordering::SeqCst);
        self.shared.push(Control::Stop);
        match self.thread.take() {
            Some(thread) => drop(thread.join()),
            None => self.shared.run(),
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if !self.is_foreign() {
            // SAFETY: nobody has it any more.
            unsafe { ManuallyDrop::drop(&mut self.core) };
        }
    }
}

impl Shared {
    /// True in a process that was forked from the one that made the engine: nothing of it may be touched there, not even locks,
    /// which threads may hold that the child has not.
    pub fn is_foreign(&self) -> bool {
        !self.process.is_current()
    }

    /// Runs an admin command of a card, or of an engine's own NIC.
    pub fn admin(&self, entry: AdminEntry) -> Result<(u32, u32), Status> {
        self.admin_within(entry, None)
    }

    /// The same, and waits no longer than so.
    pub fn admin_within(&self, entry: AdminEntry, limit: Option<Duration>) -> Result<(u32, u32), Status> {
        self.answer(&self.begin_admin(entry), limit)?
    }

    /// Has an admin command run, whose answer comes here.
    pub fn begin_admin(&self, entry: AdminEntry) -> Receiver<Result<(u32, u32), Status>> {
        let (send, receive) = std::sync::mpsc::channel();
        self.push(Control::Admin(entry, send));
        receive
    }

    /// Waits for what the backend was asked, unless that takes too long, or it has stopped.
    pub fn answer<T>(&self, receive: &Receiver<T>, limit: Option<Duration>) -> Result<T, Status> {
        let end = limit.and_then(|limit| Instant::now().checked_add(limit));
        if self.driver == Driver::Thread {
            return match limit {
                None => receive.recv().map_err(|_| Status::QueueDeleted),
                Some(limit) => receive.recv_timeout(limit).map_err(|error| match error {
                    RecvTimeoutError::Timeout => Status::Timeout,
                    RecvTimeoutError::Disconnected => Status::QueueDeleted,
                }),
            };
        }
        let answer = RefCell::new(None);
        let is_there = || {
            let mut answer = answer.borrow_mut();
            match receive.try_recv() {
                _ if answer.is_some() => {}
                Ok(told) => *answer = Some(Ok(told)),
                Err(TryRecvError::Disconnected) => *answer = Some(Err(Status::QueueDeleted)),
                // Who ends the engine waits for this turn to end.
                Err(TryRecvError::Empty) if self.stopping.load(Ordering::SeqCst) => {
                    *answer = Some(Err(Status::QueueDeleted));
                }
                Err(TryRecvError::Empty) if end.is_some_and(|end| Instant::now() >= end) => {
                    *answer = Some(Err(Status::Timeout));
                }
                Err(TryRecvError::Empty) => {}
            }
            answer.is_some()
        };
        while !is_there() {
            match self.try_turn() {
                Some(mut turn) => {
                    while !is_there() {
                        self.round(&mut **turn.core, |_| is_there());
                    }
                }
                // Whoever drives does this too; should it stop, it is our turn.
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        }
        answer.into_inner().unwrap_or(Err(Status::QueueDeleted))
    }

    /// Has an admin command run, without waiting for it.
    pub fn admin_later(&self, entry: AdminEntry) {
        self.push(Control::Admin(entry, std::sync::mpsc::channel().0));
        self.drive_once();
    }

    pub fn has_gpu(&self) -> bool {
        self.gpu.is_some()
    }

    pub fn is_caller_driven(&self) -> bool {
        self.driver == Driver::Caller
    }

    /// There is something new in a queue.
    pub fn ring_doorbell(&self) {
        if !self.is_foreign() && self.asleep.swap(false, Ordering::SeqCst) {
            self.waker.wake();
        }
    }

    fn push(&self, control: Control) {
        if self.is_foreign() {
            return;
        }
        self.control.lock().unwrap_or_else(|error| error.into_inner()).push(control);
        self.has_control.store(true, Ordering::SeqCst);
        self.ring_doorbell();
    }

    pub fn cancel(&self, queue: &Arc<QueuePair>, cid: u16) {
        self.push(Control::Cancel(Arc::clone(queue), cid));
    }

    pub fn delete_queue(&self, queue: &Arc<QueuePair>) {
        if !self.is_foreign()
            && let Some(id) = queue.id.get()
        {
            self.push(Control::DeleteQueue(*id));
            self.drive_once();
        }
    }

    /// The engine's thread, or the last drive of an engine without one: until all queues are gone.
    fn run(&self) {
        let mut turn = self.turn(self.core.lock());
        let stopped =
            |core: &dyn Core| self.stopping.load(Ordering::SeqCst) && core.is_empty() && !self.has_control();
        while !stopped(&**turn.core) {
            self.round(&mut **turn.core, stopped);
        }
        turn.core.close();
    }

    /// Drives the engine until that is so; or, where another thread drives it, waits.
    pub fn wait(&self, queue: &Arc<QueuePair>, awaited: Awaited) {
        if self.is_foreign() {
            return;
        }
        if self.driver == Driver::Thread {
            return queue.wait(awaited, || false);
        }
        while !queue.has(awaited) {
            match self.try_turn() {
                Some(mut turn) => {
                    while !queue.has(awaited) {
                        self.round(&mut **turn.core, |_| queue.has(awaited));
                    }
                }
                None => queue.wait(awaited, || self.may_drive(queue)),
            }
        }
    }

    /// A bounded piece of work without waiting, where nobody else drives.
    pub fn drive_once(&self) {
        if self.driver == Driver::Caller
            && !self.is_foreign()
            && let Some(mut turn) = self.try_turn()
        {
            self.take_control(&mut **turn.core);
            for _ in 0..STEPS_AT_ONCE {
                if !turn.core.step() {
                    break;
                }
            }
        }
    }

    /// Whether nobody drives; if somebody does, this queue will be told when its turn is over. Asked under the
    /// queue's lock, so that the word cannot come before its thread listens.
    fn may_drive(&self, queue: &Arc<QueuePair>) -> bool {
        let mut waiting = self.waiting();
        if !waiting.iter().any(|other| Arc::ptr_eq(other, queue)) {
            waiting.push(Arc::clone(queue));
        }
        drop(waiting);
        !self.driven.load(Ordering::SeqCst)
    }

    /// Works until there is nothing to do; then spins a while, then sleeps once.
    fn round(&self, core: &mut dyn Core, done: impl Fn(&dyn Core) -> bool) {
        let mut idle_since = None;
        loop {
            let controlled = self.take_control(core);
            if core.step() || controlled {
                idle_since = None;
                if done(core) {
                    return;
                }
                continue;
            }
            if done(core) {
                return;
            }
            if self.spin.is_zero() || !core.is_busy() {
                break;
            }
            let now = Instant::now();
            if now - *idle_since.get_or_insert(now) >= self.spin {
                break;
            }
            std::hint::spin_loop();
        }
        self.asleep.store(true, Ordering::SeqCst);
        // Whoever rang before this line was not seen to sleep: look once more.
        if !core.has_doorbell() && !self.has_control() {
            core.sleep();
        }
        self.asleep.store(false, Ordering::SeqCst);
    }

    fn take_control(&self, core: &mut dyn Core) -> bool {
        if !self.has_control() || !self.has_control.swap(false, Ordering::SeqCst) {
            return false;
        }
        let control = std::mem::take(&mut *self.control.lock().unwrap_or_else(|error| error.into_inner()));
        let any = !control.is_empty();
        control.into_iter().for_each(|control| core.control(control));
        any
    }

    fn has_control(&self) -> bool {
        self.has_control.load(Ordering::SeqCst)
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<Arc<QueuePair>>> {
        self.waiting.lock().unwrap_or_else(|error| error.into_inner())
    }

    fn try_turn(&self) -> Option<Turn<'_>> {
        match self.core.try_lock() {
            Ok(core) => Some(self.turn(Ok(core))),
            Err(TryLockError::Poisoned(error)) => Some(self.turn(Err(error))),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    fn turn<'a>(&'a self, core: LockResult<MutexGuard<'a, Box<dyn Core>>>) -> Turn<'a> {
        self.driven.store(true, Ordering::SeqCst);
        let mut core = core.unwrap_or_else(|error| {
            // Whoever drove before panicked half-way: nothing that the core knows can be relied on.
            let mut core = error.into_inner();
            core.abandon();
            core
        });
        core.begin_turn(self.driver == Driver::Caller);
        Turn { core, end: End(self) }
    }
}

/// The right to drive the engine. When it ends, those who wait for theirs are told.
struct Turn<'a> {
    // Fields are dropped in this order: the core is free when the others are told.
    core: MutexGuard<'a, Box<dyn Core>>,
    end: End<'a>,
}

struct End<'a>(&'a Shared);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.core.end_turn();
        // Before the core is free: afterwards it would be a lie about whoever drives next.
        self.end.0.driven.store(false, Ordering::SeqCst);
    }
}

impl Drop for End<'_> {
    fn drop(&mut self) {
        let waiting = std::mem::take(&mut *self.0.waiting());
        waiting.iter().for_each(|queue| queue.nudge());
    }
}
