//! Settings of an engine, and its start.

use super::cores::{Cores, Placement, Where};
use super::shared::Shared;
use super::{Core, Engine};
use crate::backend::{Backend, BackendLoop, Driver, Info};
use crate::card::{self, CardLoop};
use crate::drive::Near;
use crate::error::Error;
use crate::kernel::{DirectDevices, KernelLoop};
use dcs_abi::descriptor::Mode;
use dcs_devices::Io;
use dcs_devices::controller::Waker;
use dcs_devices::gpu;
use dcs_devices::vfio_devices::{NicOptions, SsdOptions};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Default time for which an engine looks for work before it sleeps, if there are cores for that.
#[doc(hidden)]
pub const SPIN: Duration = Duration::from_micros(20);

/// The settings of an engine that is to be started. Every setting has a default.
#[derive(Clone, Debug)]
pub struct Builder {
    backend: Backend,
    driver: Driver,
    io: Io,
    config: dcs_engine::Config,
    spin: Duration,
    place: Where,
    gather: bool,
    nice: Option<i8>,
    realtime: Mode,
    card: Option<card::Options>,
    drives: Vec<SsdOptions>,
    peer_to_peer: bool,
    nic: Option<NicOptions>,
    gpu: Option<gpu::GpuOptions>,
    gpu_storage: Mode,
    gpu_storage_library: Option<PathBuf>,
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
            place: Where::default(),
            gather: true,
            nice: None,
            realtime: Mode::Off,
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
    /// Sets the backend.
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

    /// An NVMe SSD that the engine of [`Backend::Kernel`] drives itself, past the kernel's driver: its PCI
    /// function (`0000:01:00.0`), which has to be bound to vfio-pci already, and one of its namespaces
    /// (without a number its first). [`Engine::namespaces`] has it then. The memory of all blocks is locked.
    pub fn nvme(mut self, function: impl Into<String>, namespace: Option<u32>) -> Self {
        self.drives.push(SsdOptions { function: function.into(), namespace, holds_blocks: false });
        self
    }

    /// Peer-to-peer: the blocks are in the memory of the first SSD ([`Builder::nvme`]), which must have a
    /// persistent memory region. It reads into that memory, and the NIC ([`Builder::nic`]) fetches from it:
    /// data cross no host memory, and the processor does not touch them. So only these transfers are
    /// possible: namespace to connection, without operators; and connection to memory, by a copy, so that
    /// requests can be received. Others fail with `PathUnavailable`.
    pub fn peer_to_peer(mut self) -> Self {
        self.peer_to_peer = true;
        self
    }

    /// The NIC that the engine of [`Backend::Kernel`] drives itself, without the kernel's driver and TCP: a
    /// PCI function, which must be bound to vfio-pci already, and the address that it has on its network.
    /// Then [`Engine::connect`] and [`Engine::listen`] make connections of that address, which are sources
    /// and sinks ([`Source::connection`](crate::Source::connection)) of this engine's transfers. The thread
    /// that drives the engine serves them: with [`Driver::Caller`] only while a thread waits. The memory of
    /// all blocks is locked.
    pub fn nic(mut self, nic: crate::Nic) -> Self {
        self.nic = Some(nic);
        self
    }

    /// A GPU that does what chains ask of one ([`Op::on_gpu`](crate::Op::on_gpu)): NVIDIA's, by its number,
    /// from 0 on. [`Backend::Kernel`] alone has GPUs. The memory of all blocks is locked for it.
    pub fn gpu(mut self, device: u32) -> Self {
        self.gpu.get_or_insert_default().device = device;
        self
    }

    /// The library of CUDA's driver, for [`Builder::gpu`]; without it the environment variable
    /// `DCS_CUDA_LIBRARY` names one, or it is the system's `libcuda.so.1`.
    pub fn gpu_library(mut self, library: impl Into<PathBuf>) -> Self {
        self.gpu.get_or_insert_default().library = Some(library.into());
        self
    }

    /// Selects whether that GPU reads files itself, without the host's memory (GPUDirect Storage), if the
    /// first operator of a chain is on it. Auto: if that is available. On: the engine does not start without
    /// it. Off: never. [`Engine::gpu_storage`] returns the choice; the path of each transfer shows which way
    /// its data went.
    pub fn gpu_storage(mut self, mode: Mode) -> Self {
        self.gpu_storage = mode;
        self
    }

    /// The library of GPUDirect Storage; without it the environment variable `DCS_CUFILE_LIBRARY` names one,
    /// or it is the system's `libcufile.so.0`.
    pub fn gpu_storage_library(mut self, library: impl Into<PathBuf>) -> Self {
        self.gpu_storage_library = Some(library.into());
        self
    }

    /// Sets the driver of the engine.
    pub fn driver(mut self, driver: Driver) -> Self {
        self.driver = driver;
        self
    }

    /// Selects io_uring, plain system calls, or automatic choice. The environment variable `DCS_IO` (`auto`,
    /// `uring`, `plain`) overrides [`Io::Auto`].
    pub fn io(mut self, io: Io) -> Self {
        self.io = io;
        self
    }

    /// Bytes of a block buffer: a multiple of 4096.
    pub fn block_size(mut self, bytes: u32) -> Self {
        self.config.block_size = bytes;
        self
    }

    /// Block buffers; of several cores each has that many.
    pub fn blocks(mut self, blocks: u32) -> Self {
        self.config.blocks = blocks;
        self
    }

    /// Blocks that one transfer may hold: how far reading runs ahead of writing.
    pub fn window(mut self, blocks: u16) -> Self {
        self.config.window = blocks;
        self
    }

    /// Transfers that may be in flight in all; on each of several cores.
    pub fn commands(mut self, commands: u16) -> Self {
        self.config.commands = commands;
        self
    }

    /// Sessions that may be open; on each of several cores.
    pub fn sessions(mut self, sessions: u16) -> Self {
        self.config.queues = sessions;
        self
    }

    /// Time for which the engine looks for work before it sleeps.
    pub fn spin(mut self, spin: Duration) -> Self {
        self.spin = spin;
        self
    }

    /// This many threads, for as many processors: see [`Engine`], *Cores*. One without this. Each has the
    /// blocks, commands and sessions that this builder says. An engine that its callers drive
    /// ([`Driver::Caller`]), and one that has devices of its own (a card, SSDs, a NIC, a GPU), has one.
    pub fn cores(mut self, cores: impl Into<Cores>) -> Self {
        self.place.cores = Some(cores.into());
        self
    }

    /// Binds the engine's thread to a processor, by its number from 0. If the processor does not exist or is
    /// not allowed, the scheduler chooses. With several cores: [`Builder::cpus`].
    pub fn core(self, core: usize) -> Self {
        self.cpus([core])
    }

    /// Binds the thread of each core to a processor, in this order: one for each core, and
    /// [`Cores::All`] are as many as these.
    pub fn cpus(mut self, cpus: impl IntoIterator<Item = usize>) -> Self {
        self.place.cpus = cpus.into_iter().collect();
        self
    }

    /// Runs the engine's threads on a NUMA node's processors, and takes memory from that node while it has
    /// some: blocks, and everything that the threads allocate. The memory of a session's queues comes from
    /// the node of the thread that opens it. [`Builder::cpus`], if given, names the processors.
    pub fn numa_node(mut self, node: u32) -> Self {
        self.place.node = Some(node);
        self
    }

    /// Choice of whether a [`Spread`](super::Spread) gathers streams that can share lanes on one core. It
    /// does without this.
    pub fn gather(mut self, gather: bool) -> Self {
        self.gather = gather;
        self
    }

    /// The nice value of the engine's thread, -20 (most favoured) to 19. One thread that does the work of
    /// many gets one thread's share of a core that others want too: here it can be given more. Values below
    /// the process's own need CAP_SYS_NICE or a limit (RLIMIT_NICE) that allows them.
    pub fn nice(mut self, level: i8) -> Self {
        self.nice = Some(level);
        self
    }

    /// Selects whether the engine's threads run before all ordinary ones of the machine (SCHED_RR, priority
    /// 1), for media streams whose datagrams must be sent in time. It needs CAP_SYS_NICE or a limit
    /// (RLIMIT_RTPRIO) that allows it; [`Mode::Auto`] does without if it is not allowed, and then has timers
    /// that are not delayed (PR_SET_TIMERSLACK). Its blocks are pinned at the start, if io_uring requires
    /// that, so that no stream waits for it later. Threads that make blocking calls stay ordinary.
    /// [`Mode::Off`] does without.
    pub fn realtime(mut self, mode: Mode) -> Self {
        self.realtime = mode;
        self
    }

    /// Starts the engine.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for invalid sizes; [`Error::Start`] and [`Error::IoUring`] if the system lacks
    /// something, or does not permit the nice value (EACCES) or real time (EPERM); [`Error::Card`],
    /// [`Error::Drive`] and [`Error::Gpu`] for devices that are not available; [`Error::Processors`],
    /// [`Error::NumaNode`] and [`Error::OneCore`] for invalid choices of cores.
    pub fn start(mut self) -> Result<Engine, Error> {
        if self.peer_to_peer {
            let there = self.backend == Backend::Kernel && self.gpu.is_none();
            let ssd = self.drives.first_mut().filter(|_| there).ok_or(Error::PeerToPeer)?;
            ssd.holds_blocks = true;
        }
        let places = self.place.places()?;
        if let Some(why) = self.only_one().filter(|_| places.len() > 1) {
            return Err(Error::OneCore(why));
        }
        let near = (self.backend == Backend::Drive).then(Arc::<Near>::default);
        let builder = Arc::new(self);
        let mut engine = Engine { cores: Vec::new(), gather: builder.gather, placing: Mutex::new(()) };
        for place in places {
            // Where one fails, those before are stopped.
            engine.cores.push(match builder.driver {
                Driver::Caller => Core { shared: Arc::new(builder.shared(near.as_ref())?), thread: None },
                Driver::Thread => spawn(&builder, place, near.clone())?,
            });
        }
        Ok(engine)
    }

    /// The reason why the engine cannot have several cores.
    fn only_one(&self) -> Option<&'static str> {
        if self.driver == Driver::Caller {
            Some("its callers drive it (Driver::Caller)")
        } else if self.backend == Backend::Card {
            Some("a card runs its transfers (Backend::Card)")
        } else if !self.drives.is_empty() {
            Some("it drives an SSD (Builder::nvme)")
        } else if self.nic.is_some() {
            Some("it drives a NIC (Builder::nic)")
        } else {
            self.gpu.as_ref().map(|_| "it has a GPU (Builder::gpu)")
        }
    }

    /// Starts the backend of one core, with the devices that it has.
    fn shared(&self, near: Option<&Arc<Near>>) -> Result<Shared, Error> {
        let gpu = self.gpu.clone().map(|gpu| gpu::GpuOptions {
            storage: self.gpu_storage,
            storage_library: self.gpu_storage_library.clone(),
            ..gpu
        });
        let (backend, waker, info) = match self.backend {
            Backend::Kernel | Backend::Drive => {
                let direct = DirectDevices { ssds: &self.drives, nic: self.nic.as_ref(), gpu: gpu.as_ref() };
                let (backend, waker, info) =
                    kernel(self.config.clone(), (self.io, self.driver), self.realtime, direct)?;
                (backend, waker, Info { near: near.cloned(), ..info })
            }
            Backend::Card => card(&self.card)?,
        };
        // A card interrupts.
        let spin = if self.backend == Backend::Card { Duration::ZERO } else { self.spin };
        Ok(Shared::new(backend, self.driver, spin, waker, info))
    }
}

type Started = (Box<dyn BackendLoop>, Waker, Info);

fn kernel(
    config: dcs_engine::Config,
    (io, driver): (Io, Driver),
    realtime: Mode,
    direct: DirectDevices<'_>,
) -> Result<Started, Error> {
    let by_callers = driver == Driver::Caller;
    let mut kernel = KernelLoop::new(config, (io_from_environment(io)?, by_callers), direct)?;
    if realtime != Mode::Off {
        kernel.pin();
    }
    let (waker, info) = (kernel.waker(), kernel.info());
    Ok((Box::new(kernel), waker, info))
}

fn card(options: &Option<card::Options>) -> Result<Started, Error> {
    let options = match options {
        Some(options) => options.clone(),
        None => card::Options::from_environment()?,
    };
    let card = CardLoop::new(&options)?;
    let (waker, info) = (card.waker(), card.info());
    Ok((Box::new(card), waker, info))
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

/// Starts a thread, which starts its own backend: its memory is where the thread runs.
fn spawn(builder: &Arc<Builder>, place: Placement, near: Option<Arc<Near>>) -> Result<Core, Error> {
    let builder = Arc::clone(builder);
    let (send, receive) = std::sync::mpsc::channel();
    let run = move || {
        let prepared = crate::kernel::thread::prepare(&place, builder.nice)
            .and_then(|()| crate::kernel::thread::in_time(builder.realtime))
            .map_err(Error::Start);
        let shared = match prepared.and_then(|()| builder.shared(near.as_ref())) {
            Ok(shared) => Arc::new(shared),
            Err(error) => return drop(send.send(Err(error))),
        };
        drop(builder);
        if send.send(Ok(Arc::clone(&shared))).is_err() {
            return;
        }
        drop(send);
        // After a panic, which is a defect, it goes on only to refuse requests, so that no caller waits for
        // ever.
        let run = || std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| shared.run()));
        let _ = run().or_else(|_| run());
    };
    let thread = std::thread::Builder::new().name("dcs-engine".into()).spawn(run).map_err(Error::Start)?;
    match receive.recv() {
        Ok(Ok(shared)) => Ok(Core { shared, thread: Some(thread) }),
        Ok(Err(error)) => {
            let _ = thread.join();
            Err(error)
        }
        Err(_) => Err(Error::Start(std::io::ErrorKind::Other.into())),
    }
}
