//! The engine as an application holds it: [`Engine`], and what it says of itself.
//!
//! | module | contents |
//! |---|---|
//! | `builder` | settings, start, the engine's thread |
//! | `cores` | which processors its threads run on |
//! | `meter` | the load of each core, and the choice of one |
//! | `spread` | [`Spread`]: a session on each core |
//! | `shared` | the part of a core that its sessions share: who drives the backend, sleep, wake-up, control |

mod builder;
pub(crate) mod cores;
pub(crate) mod meter;
pub(crate) mod shared;
mod spread;

pub use crate::backend::{Backend, Driver};
pub use builder::{Builder, SPIN};
pub use cores::Cores;
pub use spread::Spread;

use crate::backend::Control;
use crate::endpoint::Namespace;
use crate::error::Error;
use crate::queue::{Awaited, DEPTH, DEPTH_MAX, QueuePair};
use crate::session::Session;
use crate::statistics::Statistics;
use dcs_devices::gpu;
use dcs_devices::vfio_devices::Interface;
use shared::Shared;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// An engine: it runs the transfers that its sessions submit.
///
/// # Calling contract
///
/// 1. [`Engine::builder`], its settings, [`Builder::start`]: all devices are ready, or an error says which is
///    not.
/// 2. [`Engine::session`]: a queue pair. Sessions are independent of each other; threads may share one.
/// 3. [`Session::transfer`] (or [`Session::request`], for a length, a prefix, a timeout or an order). An
///    error means that nothing was submitted and nothing moves. `Ok` means that the transfer ends once: with
///    a [`Completion`], or with a [`TransferError`] that says at which stage, and how much was delivered
///    before.
/// 4. Wait for each [`Transfer`]: [`Transfer::wait`], [`Transfer::try_wait`] or, as a future, `.await`.
///    [`Session::wait_any`] waits for any of a session's. To drop a transfer cancels it.
/// 5. Drop sessions when their transfers are done, then the engine. Dropped earlier, the engine aborts what
///    is in flight and waits for that; its transfers end with [`Status::QueueDeleted`], and its sessions
///    refuse new ones ([`Error::Stopped`]).
///
/// Keep an engine as long as the program transfers anything: to start one is slow, to submit to one is fast.
///
/// With [`Driver::Thread`] (the default) the engine works while your threads do something else. With
/// [`Driver::Caller`] it works only inside waiting calls: while no thread waits nothing moves, no timeout
/// fires and no connection of its NIC is served; futures panic, since nothing would wake them.
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
/// # Cores
///
/// With [`Builder::cores`] an engine has several threads, for several processors. They share nothing: each
/// has its own ring, blocks, and lanes, as many as the builder says, and what holds for an engine holds for
/// each core of it. A session is on one core for good, that with the least load when it is opened; so is each
/// of its transfers, source and destination and all operators. Open a session for each of your threads, or
/// let a [`Spread`] find the core of each transfer. A [`Handle`](crate::Handle) belongs to no core, nor to an
/// engine: transfers on any may use it.
///
/// # Processes
///
/// An engine belongs to the process that made it. In a child of fork(2) it does nothing, and neither do its
/// sessions and transfers: they say so ([`Error::Forked`], [`Status::QueueDeleted`] with `EPERM`), and
/// dropping them there leaves the parent's alone. A child makes an engine of its own. Descriptors of what the
/// parent has in flight at a fork are the child's too, until it ends or executes another program.
///
/// [`Completion`]: crate::Completion
/// [`Status::QueueDeleted`]: crate::Status::QueueDeleted
/// [`TransferError`]: crate::TransferError
/// [`Transfer`]: crate::Transfer
/// [`Transfer::wait`]: crate::Transfer::wait
/// [`Transfer::try_wait`]: crate::Transfer::try_wait
#[derive(Debug)]
pub struct Engine {
    /// At least one.
    cores: Vec<Core>,
    gather: bool,
    /// Held while a core is chosen for a session.
    placing: Mutex<()>,
}

/// One core, with the thread that drives it, if it has one.
#[derive(Debug)]
struct Core {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Engine {
    /// The settings of an engine that is to be started.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The only core of an engine that has devices of its own, or the first.
    pub(crate) fn first(&self) -> &Arc<Shared> {
        &self.cores[0].shared
    }

    /// Its cores: [`Builder::cores`].
    pub fn cores(&self) -> usize {
        self.cores.len()
    }

    /// Opens a session with room for 64 transfers in flight, on the core with the least load: transfers in
    /// flight and open sessions.
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
        if self.first().is_foreign() {
            return Err(Error::Forked);
        }
        // Two threads that come together do not choose the same core.
        let placing = self.placing.lock().unwrap_or_else(|error| error.into_inner());
        let order = meter::by_load(self.cores.iter().map(|core| &*core.shared.meter));
        let chosen = &self.cores[order[0]].shared;
        chosen.meter.open();
        drop(placing);
        let opened = Engine::open(chosen, depth);
        chosen.meter.close();
        // One without room: then any that has some.
        order[1..].iter().fold(opened, |opened, at| match opened {
            Err(Error::NoSessions) => Engine::open(&self.cores[*at].shared, depth),
            opened => opened,
        })
    }

    /// Opens a session on this core.
    fn open(core: &Arc<Shared>, depth: u16) -> Result<Session, Error> {
        if !(1..=DEPTH_MAX).contains(&depth) {
            return Err(Error::Depth);
        }
        if core.is_foreign() {
            return Err(Error::Forked);
        }
        let queue = Arc::new(QueuePair::new(depth, Arc::clone(&core.meter)));
        core.push(Control::AddQueue(Arc::clone(&queue)));
        core.wait(&queue, Awaited::Opened);
        queue.id.get().ok_or(Error::NoSessions)?;
        Ok(Session::new(Arc::clone(core), queue))
    }

    /// True if io_uring carries all calls that take time; otherwise plain system calls do, by `poll` and on
    /// threads. On an engine that its callers drive with [`Io::Auto`](crate::Io::Auto) it carries zero-copy sends alone: what
    /// a thread puts into a ring interrupts it later and ends with it.
    pub fn uses_io_uring(&self) -> bool {
        self.cores.iter().all(|core| core.shared.info.has_ring)
    }

    /// The GPU that it has ([`Builder::gpu`]).
    pub fn gpu(&self) -> Option<&gpu::Properties> {
        self.first().info.gpu.as_ref()
    }

    /// The means by which files are read to the GPU directly ([`Builder::gpu_storage`]), or why there is
    /// none. `None`: it has no GPU.
    pub fn gpu_storage(&self) -> Option<&Result<gpu::Storage, gpu::StorageError>> {
        self.first().info.gpu_storage.as_ref()
    }

    /// The GPU's last failure, in the words of its driver; also why GPUDirect Storage did not read a file,
    /// which was then read in the ordinary way.
    pub fn gpu_trouble(&self) -> Option<String> {
        self.first().info.gpu_trouble.lock().unwrap_or_else(|error| error.into_inner()).clone()
    }

    /// The namespaces of the SSDs that it drives itself, in the order of [`Builder::nvme`].
    pub fn namespaces(&self) -> &[Namespace] {
        &self.first().info.namespaces
    }

    /// The NIC that it drives itself ([`Builder::nic`]).
    pub fn interface(&self) -> Option<&Interface> {
        self.first().info.interface.as_deref()
    }

    /// Its counters, as of its last step; of all cores together.
    pub fn statistics(&self) -> Statistics {
        self.statistics_by_core().into_iter().reduce(std::ops::Add::add).unwrap_or_default()
    }

    /// The counters of each core.
    pub fn statistics_by_core(&self) -> Vec<Statistics> {
        self.cores.iter().map(|core| core.shared.statistics()).collect()
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if self.cores.iter().any(|core| core.shared.is_foreign()) {
            // The threads are the parent's.
            return self.cores.iter_mut().for_each(|core| std::mem::forget(core.thread.take()));
        }
        // All are asked before any is waited for.
        self.cores.iter().for_each(|core| core.shared.stop());
        for core in &mut self.cores {
            match core.thread.take() {
                Some(thread) => drop(thread.join()),
                None => core.shared.run(),
            }
        }
        // Their transfers have ended; a drive may still be at its last command.
        if let Some(near) = self.cores.first().and_then(|core| core.shared.near()) {
            near.wait();
        }
    }
}
