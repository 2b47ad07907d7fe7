//! `Engine`, and the process's default one.
//!
//! An engine has a thread, which fork(2) does not copy. So an engine belongs to the process that made it: in a child
//! every use of the parent's is an error, and dropping it there leaves its memory alone, because stopping it would mean
//! waiting for a thread that the child does not have. A child makes a new default engine.

use crate::calls::mode;
use crate::error::refused;
use dcs::{Backend, Cores, Io, Spread, Stage};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict};
use rustix::process::{Pid, getpid};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// An engine: moves bytes from sources to destinations, on its own thread.
///
/// Give all transfers of a process to one engine if possible, so that its multi-lane units are filled: see
/// `default_engine`. All options have defaults:
///
/// io: "auto" (io_uring if it is available), "uring" or "plain". The environment variable DCS_IO overrides "auto".
/// block_size: bytes of a block buffer, a multiple of 4096.
/// blocks: block buffers; block_size times blocks is the engine's memory.
/// window: blocks that one transfer may hold, which is how far reading runs ahead of writing.
/// commands: transfers that run at the same time; more wait for their turn.
/// depth: transfers that may be submitted but not done, up to 4096; more are refused with EAGAIN.
/// spin: seconds for which the engine looks for work before it sleeps.
/// cores: number of its threads, one for each processor, or "all"; 1 by default. Each has the blocks, commands and
/// depth given here. A transfer is on one of them: the one with the fewest, except that streams that can share lanes,
/// such as those through md5, gather on one until its lanes are full, and transfers with the same rid are on the same
/// one.
/// core: a CPU to bind its thread to; cpus: a list of one for each core.
/// numa_node: NUMA node, from 0, whose CPUs its threads run on and whose memory they take.
/// nice: the nice value of its thread, -20 to 19.
/// gpu: number of the GPU, from 0, that does operators like "gpu:md5"; none by default.
/// backend: "kernel", or in a guest with virtual drives (dcs csd) "drive": operators on files of such a drive run beside
/// its disk. That needs root. A file that cannot be had so is an error (PATH_UNAVAILABLE).
/// gpu_storage: whether the GPU reads files itself (GPUDirect Storage) if the first operator is on it: "auto", "on" or
/// "off".
///
/// Used as a context manager, it closes at the end.
#[pyclass(frozen, module = "dcs")]
pub struct Engine {
    owner: Pid,
    held: Mutex<Option<Arc<OpenEngine>>>,
}

/// State of an engine until it is closed. The sessions are dropped first.
pub struct OpenEngine {
    pub spread: Spread,
    engine: dcs::Engine,
}

/// Fails in a child of the process that made an engine or transfer.
pub fn check_owner(owner: Pid, what: &str) -> PyResult<()> {
    if owner == getpid() {
        return Ok(());
    }
    let line = format!("this {what} belongs to the process that made it: after fork, make a new engine");
    Err(PyRuntimeError::new_err(line))
}

fn seconds(value: f64, what: &str) -> PyResult<Duration> {
    Duration::try_from_secs_f64(value).map_err(|_| {
        PyValueError::new_err(format!("{what} must be a number of seconds, not negative: {value}"))
    })
}

/// Parses a backend's name.
fn backend_of(name: &str) -> PyResult<Backend> {
    match name {
        "kernel" => Ok(Backend::Kernel),
        "drive" => Ok(Backend::Drive),
        _ => Err(PyValueError::new_err(format!("backend must be kernel or drive, not {name:?}"))),
    }
}

/// Parses a number of cores, or "all".
fn cores_of(cores: &Bound<'_, PyAny>) -> PyResult<Cores> {
    let text = if cores.is_instance_of::<PyBool>() { String::new() } else { cores.str()?.to_string() };
    let wrong =
        |_| PyValueError::new_err(format!("cores must be a number from 1 on, or \"all\", not {cores}"));
    text.parse().map_err(wrong)
}

impl Engine {
    fn start(py: Python<'_>, builder: dcs::engine::Builder, depth: u16) -> PyResult<Engine> {
        // One session, because an engine guarantees each possible session a share.
        let started = py.detach(|| {
            let engine = builder.sessions(1).start()?;
            let spread = engine.spread_with_depth(depth)?;
            Ok(OpenEngine { spread, engine })
        });
        let held = started.map_err(|error: dcs::Error| match error {
            dcs::Error::Config(_)
            | dcs::Error::Depth
            | dcs::Error::Processors(..)
            | dcs::Error::OneCore(_)
            | dcs::Error::NumaNode(_) => PyValueError::new_err(error.to_string()),
            error => refused(py, &error, Stage::Frontend),
        })?;
        Ok(Engine { owner: getpid(), held: Mutex::new(Some(Arc::new(held))) })
    }

    /// Locks the state. Taken only with the interpreter's lock, and not kept beyond a clone, so that no fork can find
    /// it locked.
    fn slot(&self) -> MutexGuard<'_, Option<Arc<OpenEngine>>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn held(&self) -> PyResult<Arc<OpenEngine>> {
        check_owner(self.owner, "engine")?;
        self.slot().clone().ok_or_else(|| PyRuntimeError::new_err("the engine is closed"))
    }

    pub fn owner(&self) -> Pid {
        self.owner
    }
}

/// Most transfers in the default engine's queue, and default of [`Engine::new`].
const DEPTH: u16 = 1024;

#[pymethods]
impl Engine {
    #[new]
    #[pyo3(signature = (*, io="auto", block_size=None, blocks=None, window=None, commands=None, depth=1024, spin=None, cores=None, core=None, cpus=None, numa_node=None, nice=None, gpu=None, gpu_storage="auto", backend="kernel"))]
    #[expect(clippy::too_many_arguments, reason = "they are named in Python")]
    fn new(
        py: Python<'_>,
        io: &str,
        block_size: Option<u32>,
        blocks: Option<u32>,
        window: Option<u16>,
        commands: Option<u16>,
        depth: u16,
        spin: Option<f64>,
        cores: Option<&Bound<'_, PyAny>>,
        core: Option<usize>,
        cpus: Option<Vec<usize>>,
        numa_node: Option<u32>,
        nice: Option<i8>,
        gpu: Option<u32>,
        gpu_storage: &str,
        backend: &str,
    ) -> PyResult<Engine> {
        let io = match io {
            "auto" => Io::Auto,
            "uring" => Io::Uring,
            "plain" => Io::Plain,
            _ => return Err(PyValueError::new_err(format!("io must be auto, uring or plain, not {io:?}"))),
        };
        let mut builder = dcs::Engine::builder().io(io).backend(backend_of(backend)?);
        if let Some(bytes) = block_size {
            builder = builder.block_size(bytes);
        }
        if let Some(blocks) = blocks {
            builder = builder.blocks(blocks);
        }
        if let Some(blocks) = window {
            builder = builder.window(blocks);
        }
        if let Some(commands) = commands {
            builder = builder.commands(commands);
        }
        if let Some(spin) = spin {
            builder = builder.spin(seconds(spin, "spin")?);
        }
        if let Some(core) = core {
            builder = builder.core(core);
        }
        if let Some(cores) = cores {
            builder = builder.cores(cores_of(cores)?);
        }
        if let Some(cpus) = cpus {
            builder = builder.cpus(cpus);
        }
        if let Some(node) = numa_node {
            builder = builder.numa_node(node);
        }
        if let Some(nice) = nice {
            builder = builder.nice(nice);
        }
        if let Some(gpu) = gpu {
            builder = builder.gpu(gpu);
        }
        builder = builder.gpu_storage(mode(gpu_storage, "gpu_storage")?);
        Engine::start(py, builder, depth)
    }

    /// Counters, as a dict: transfers in flight, blocks and blocks_free, commands fetched, completed and failed, device
    /// operations, passes of multi-lane units and the lanes filled in them, batches of the GPU and the blocks in them.
    fn statistics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let counted = self.held()?.engine.statistics();
        let dict = PyDict::new(py);
        dict.set_item("transfers", counted.transfers)?;
        dict.set_item("blocks", counted.blocks)?;
        dict.set_item("blocks_free", counted.blocks_free)?;
        dict.set_item("is_idle", counted.is_idle)?;
        dict.set_item("fetched", counted.fetched)?;
        dict.set_item("completed", counted.completed)?;
        dict.set_item("failed", counted.failed)?;
        dict.set_item("operations", counted.operations)?;
        dict.set_item("passes", counted.passes)?;
        dict.set_item("lanes_filled", counted.lanes_filled)?;
        dict.set_item("gpu_batches", counted.gpu_batches)?;
        dict.set_item("gpu_blocks", counted.gpu_blocks)?;
        dict.set_item("ignored", counted.ignored)?;
        Ok(dict)
    }

    /// Number of its cores.
    #[getter]
    fn cores(&self) -> PyResult<usize> {
        Ok(self.held()?.engine.cores())
    }

    /// True if io_uring carries what takes time; otherwise plain system calls do.
    #[getter]
    fn uses_io_uring(&self) -> PyResult<bool> {
        Ok(self.held()?.engine.uses_io_uring())
    }

    /// Aborts the transfers in flight, waits until the engine has released them, and stops it. They fail with
    /// QUEUE_DELETED. Closing it again does nothing.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        check_owner(self.owner, "engine")?;
        let held = self.slot().take();
        py.detach(|| drop(held));
        Ok(())
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, pyo3::types::PyTuple>) -> PyResult<()> {
        self.close(py)
    }

    fn __repr__(&self) -> &'static str {
        if self.owner != getpid() {
            "<dcs.Engine of another process>"
        } else if self.slot().is_some() {
            "<dcs.Engine>"
        } else {
            "<dcs.Engine, closed>"
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let held = self.slot().take();
        if self.owner != getpid() {
            std::mem::forget(held);
            return;
        }
        // The interpreter may be gone: then its lock is not waited for.
        let mut held = Some(held);
        Python::try_attach(|py| py.detach(|| drop(held.take())));
    }
}

/// Default engine. Taken only with the interpreter's lock, which is kept meanwhile, so that no fork can find it locked.
static DEFAULT: Mutex<Option<Py<Engine>>> = Mutex::new(None);

fn default_slot() -> MutexGuard<'static, Option<Py<Engine>>> {
    DEFAULT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The process's engine, made at first use with all defaults. A child of fork(2) makes its own. A closed one is
/// replaced.
#[pyfunction]
pub fn default_engine(py: Python<'_>) -> PyResult<Py<Engine>> {
    let usable = |engine: &Py<Engine>| {
        let engine = engine.get();
        engine.owner == getpid() && engine.slot().is_some()
    };
    if let Some(engine) = default_slot().as_ref().filter(|engine| usable(engine)) {
        return Ok(engine.clone_ref(py));
    }
    // Several threads may get here, because starting an engine lets others run: the first one's engine stays.
    let engine = Py::new(py, Engine::start(py, dcs::Engine::builder(), DEPTH)?)?;
    let mut slot = default_slot();
    let (kept, other) = match slot.take().filter(|engine| usable(engine)) {
        Some(first) => (first, Some(engine)),
        None => (engine, None),
    };
    *slot = Some(kept.clone_ref(py));
    // Dropping an engine waits for its thread, so the lock must not be held.
    drop(slot);
    drop(other);
    Ok(kept)
}
