//! A GPU as a processing unit: NVIDIA's, by CUDA's driver, which is loaded when it is first asked for.
//!
//! ```text
//!   Job --> waiting --> batch: one launch over many streams' pieces, on a free lane
//!                         |
//!                         |  lane = a stream of CUDA's, which does in order, beside the others':
//!                         |     copies in    block --> its mirror on the GPU       (the blocks' pages are locked)
//!                         |     the jobs     states, keys
//!                         |     the kernel
//!                         |     copies out   mirror --> block, where data change; the jobs, where states do
//!                         |     a moment     that the controller asks for
//!                         v
//!   Done  <-- polled while the engine is busy; an eventfd, from a host function at the lane's end, where it sleeps
//! ```
//!
//! A job waits only while all lanes are busy; those that wait by then go together. Nothing here waits: each call gives the driver something
//! to do or asks whether it is done.
//!
//! A block that is with the GPU is out of the pool, so that nobody else can touch it. Each has its mirror: memory of the GPU that no other block
//! uses, so that nothing is allocated while data flow.
//!
//! What a call of the driver refuses fails its batch. What the GPU itself does wrong (a fault in a kernel, an uncorrectable error in
//! memory, a GPU that has fallen off the bus) makes the driver refuse all that follows: the context is destroyed then, after which the GPU is at no block any
//! more, and only then are blocks given back and their operations failed.
//!
//! # What it doesn't implement
//!
//! * More than one GPU of an engine. A GPU that is lost stays so until the engine is started anew.
//! * Blocks that stay on the GPU from one operator to the next, and files that the GPU reads itself (GPUDirect Storage).

mod driver;
mod error;
mod jobs;
pub mod measure;

use crate::buffer::{BlockPool, Buffer};
use dcs_abi::status::Status;
use dcs_engine::{BlockId, Fault, OperationId};
use driver::{Context, DeviceMemory, Driver, HostMemory, Kernel, Launch, Moment, OUT_OF_MEMORY, Stream};
use jobs::Kind;
use rustix::fd::{AsFd, OwnedFd};
use std::collections::VecDeque;
use std::ffi::CStr;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

pub use driver::{Code, Properties};
pub use error::GpuError;
pub use jobs::{Answer, Work};

/// What the kernels compile to; `tools/gpu-kernels` writes it.
const KERNELS: &CStr = match CStr::from_bytes_with_nul(concat!(include_str!("kernels.ptx"), "\0").as_bytes())
{
    Ok(text) => text,
    Err(_) => panic!("the kernels' text has a zero byte"),
};

/// Batches that are with the GPU at once: one copies in while another computes and a third copies out.
const LANES: usize = 4;
/// Jobs of a batch at most.
const JOBS: usize = 256;
/// Jobs that are not divided among lanes: a launch costs about as much as the copies of so many.
const TOGETHER: usize = 16;
/// Room behind a block's mirror: kernels work in units of 16 bytes, at both ends.
const SLACK: usize = 256;
/// How long a sleep lasts at most while the GPU works: a GPU that is lost calls nobody.
const WATCH: Duration = Duration::from_millis(20);

/// Which GPU, and by which library.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Its number, from 0 on.
    pub device: u32,
    /// CUDA's driver; none: the library that `DCS_CUDA_LIBRARY` names, or the system's `libcuda.so.1`.
    pub library: Option<PathBuf>,
}

/// A piece of a block, and what the GPU is to do to it.
#[derive(Debug)]
pub struct Job {
    /// Its operation.
    pub operation: OperationId,
    /// The block.
    pub block: BlockId,
    /// Which bytes of it: not none.
    pub piece: Range<usize>,
    /// What to do.
    pub work: Work,
}

/// What came of a job. Its block is back in the pool.
#[derive(Debug)]
pub struct Done {
    /// Its operation.
    pub operation: OperationId,
    /// The answer.
    pub result: Result<Answer, Fault>,
}

/// The GPUs of this machine, as the driver tells of them.
///
/// # Errors
///
/// [`GpuError`] where there is no driver or no GPU.
pub fn find(wanted: &Wanted) -> Result<Vec<Properties>, GpuError> {
    let driver = Driver::load(wanted.library.as_deref())?;
    (0..driver.count()?).map(|number| driver.properties(number)).collect()
}

/// One of them.
///
/// # Errors
///
/// As [`find`]; and where there is no GPU of that number.
pub fn describe(wanted: &Wanted) -> Result<Properties, GpuError> {
    Driver::load(wanted.library.as_deref())?.properties(wanted.device)
}

/// Whether the library of GPUDirect Storage is installed. Nothing here uses it.
pub fn has_storage_library() -> bool {
    driver::is_installed(c"libcufile.so.0")
}

/// A job with its block.
#[derive(Debug)]
struct Held {
    job: Job,
    buffer: Buffer,
}

/// What a lane has to do.
#[derive(Debug)]
struct Batch {
    kind: Kind,
    jobs: Vec<Held>,
    /// A call was refused: the jobs fail when the GPU is through with those before it.
    refused: Option<GpuError>,
    /// A host function will wake the engine at its end.
    signalled: bool,
}

#[derive(Debug)]
struct Lane {
    stream: Stream,
    end: Moment,
    /// Jobs on their way in and out,
    host: HostMemory,
    /// and on the GPU.
    device: DeviceMemory,
    batch: Option<Batch>,
}

/// The GPU of a controller.
#[derive(Debug)]
pub(crate) struct Gpu {
    context: Context,
    kernels: [Kernel; jobs::NAMES.len()],
    lanes: Vec<Lane>,
    /// The copy of block `n` begins at `n * stride`.
    mirror: DeviceMemory,
    stride: usize,
    waiting: VecDeque<Held>,
    /// Pages that are locked, by their addresses.
    registered: Vec<usize>,
    wake: Arc<OwnedFd>,
    trouble: Option<GpuError>,
    properties: Properties,
    batches: u64,
    blocks: u64,
}

impl Gpu {
    /// Takes a GPU, and locks the pool's blocks for it. At the end of what it does it signals `wake`.
    pub fn open(
        wanted: &Wanted,
        pool: &BlockPool,
        block_size: u32,
        wake: Arc<OwnedFd>,
    ) -> Result<Gpu, GpuError> {
        let driver = Driver::load(wanted.library.as_deref())?;
        let properties = driver.properties(wanted.device)?;
        let context = Context::new(&driver, &properties, driver::BLOCKING_SYNC)?;
        let kernels = context.kernels(KERNELS, jobs::NAMES)?;
        let lane = || {
            Ok(Lane {
                stream: context.stream()?,
                end: context.moment(false)?,
                host: context.host_memory(JOBS * jobs::JOB_MAX)?,
                device: context.device_memory(JOBS * jobs::JOB_MAX)?,
                batch: None,
            })
        };
        let lanes = (0..LANES).map(|_| lane()).collect::<Result<_, GpuError>>()?;
        let regions = pool.regions().ok_or(GpuError::Busy)?;
        let stride = block_size as usize + SLACK;
        let mirror = context.device_memory(stride * regions.len()).map_err(|error| match error {
            GpuError::Call { code: OUT_OF_MEMORY, .. } => GpuError::Memory((stride * regions.len()) as u64),
            error => error,
        })?;
        let (waiting, registered) = (VecDeque::new(), Vec::new());
        let mut gpu = Gpu {
            context,
            kernels,
            lanes,
            mirror,
            stride,
            waiting,
            registered,
            wake,
            trouble: None,
            batches: 0,
            blocks: 0,
            properties,
        };
        for (start, length) in regions {
            // SAFETY: the pool's memory stays where it is as long as the pool, which its owner keeps longer than this.
            unsafe { gpu.context.register(start, length) }?;
            gpu.registered.push(start.expose_provenance());
        }
        Ok(gpu)
    }

    pub fn properties(&self) -> &Properties {
        &self.properties
    }

    /// Batches that it was given, and blocks in them.
    pub fn counts(&self) -> (u64, u64) {
        (self.batches, self.blocks)
    }

    /// Why it was lost, or refused something last.
    pub fn trouble(&self) -> Option<&GpuError> {
        self.trouble.as_ref()
    }

    /// Takes a job and its block; gives both back where the GPU is lost or the job cannot be.
    pub fn submit(&mut self, job: Job, buffer: Buffer) -> Result<(), (Fault, Buffer)> {
        if self.context.is_gone() {
            return Err((Fault::new(Status::DeviceReset), buffer));
        }
        let fits = job.piece.start < job.piece.end && job.piece.end <= buffer.bytes().len();
        if !fits || job.block.index() >= self.mirror_count() {
            return Err((Fault::new(Status::InternalError), buffer));
        }
        self.waiting.push_back(Held { job, buffer });
        Ok(())
    }

    fn mirror_count(&self) -> usize {
        self.registered.len()
    }

    /// Takes out a job that no lane has yet; false where there is none such.
    pub fn abort(&mut self, operation: OperationId, pool: &mut BlockPool) -> bool {
        let at = self.waiting.iter().position(|held| held.job.operation == operation);
        let held = at.and_then(|at| self.waiting.remove(at));
        held.map(|held| pool.put(held.job.block, held.buffer)).is_some()
    }

    /// True where it has something to do.
    pub fn is_busy(&self) -> bool {
        !self.waiting.is_empty() || self.lanes.iter().any(|lane| lane.batch.is_some())
    }

    /// Tells what is done by now, and gives free lanes what waits.
    pub fn poll(&mut self, pool: &mut BlockPool, done: &mut Vec<Done>) {
        for at in 0..self.lanes.len() {
            if self.lanes[at].batch.is_none() {
                continue;
            }
            match self.context.is_past(self.lanes[at].end) {
                Ok(false) => {}
                Ok(true) => self.finish(at, pool, done),
                Err(error) => return self.lose(error, pool, done),
            }
        }
        while !self.waiting.is_empty()
            && let Some(at) = self.lanes.iter().position(|lane| lane.batch.is_none())
        {
            if let Err(error) = self.start(at) {
                return self.lose(error, pool, done);
            }
        }
    }

    /// Before the engine sleeps: it is woken when a lane is through. For how long it may sleep at most.
    pub fn before_sleep(&mut self) -> Option<Duration> {
        for lane in &mut self.lanes {
            if let Some(batch) = &mut lane.batch
                && !std::mem::replace(&mut batch.signalled, true)
            {
                // SAFETY: the descriptor stays open as long as this, which destroys the context first. What goes wrong shows when the
                // batch is asked for.
                let _ = unsafe { self.context.signal(self.wake.as_fd(), lane.stream) };
            }
        }
        self.is_busy().then_some(WATCH)
    }

    /// Gives a lane a batch. An error says that not even its end can be told.
    fn start(&mut self, at: usize) -> Result<(), GpuError> {
        let Some(kind) = self.waiting.front().map(|held| held.job.work.kind()) else { return Ok(()) };
        let idle = self.lanes.iter().filter(|lane| lane.batch.is_none()).count().max(1);
        let same = self.waiting.iter().filter(|held| held.job.work.kind() == kind).count();
        let wanted = same.div_ceil(idle).clamp(TOGETHER, JOBS);
        let mut jobs = Vec::with_capacity(wanted.min(same));
        let mut rest = VecDeque::with_capacity(self.waiting.len());
        for held in self.waiting.drain(..) {
            if jobs.len() < wanted && held.job.work.kind() == kind {
                jobs.push(held);
            } else {
                rest.push_back(held);
            }
        }
        self.waiting = rest;
        self.batches += 1;
        self.blocks += jobs.len() as u64;
        let mut batch = Batch { kind, jobs, refused: None, signalled: false };
        let enqueued = self.enqueue(at, &mut batch);
        if let Err(error) = enqueued {
            self.trouble = Some(error.clone());
            batch.refused = Some(error);
        }
        let lane = &mut self.lanes[at];
        lane.batch = Some(batch);
        self.context.record(lane.end, lane.stream)
    }

    fn enqueue(&mut self, at: usize, batch: &mut Batch) -> Result<(), GpuError> {
        let (context, mirror, stride) = (&self.context, self.mirror, self.stride);
        let lane = &mut self.lanes[at];
        let (kind, size, stream) = (batch.kind, batch.kind.job(), lane.stream);
        let place = |job: &Job| {
            let lead = job.work.lead(job.piece.len());
            (job.block.index() * stride, mirror.part(job.block.index() * stride + lead, job.piece.len()))
        };
        // SAFETY: the lane has no batch: no copy from or to it is under way.
        let bytes = unsafe { lane.host.bytes() };
        let mut most = 0;
        for (held, bytes) in batch.jobs.iter().zip(bytes.chunks_exact_mut(size)) {
            let (length, work) = (held.job.piece.len(), &held.job.work);
            work.write(mirror.part(place(&held.job).0, stride).address(), length, bytes);
            most = most.max(work.blocks(length));
        }
        for held in &batch.jobs {
            let from = held.buffer.bytes()[held.job.piece.clone()].as_ptr();
            // SAFETY: the piece lies in a block, whose pages are locked. The block is the batch's until the lane's end has come, or the
            // context is destroyed.
            unsafe { context.copy_in(place(&held.job).1, from, stream) }?;
        }
        let jobs = lane.device.part(0, size * batch.jobs.len());
        // SAFETY: nobody writes to the lane's jobs before its end has come.
        unsafe { context.send(jobs, &lane.host, stream) }?;
        let count = batch.jobs.len();
        // SAFETY: the jobs name pieces of the mirror with room for whole units around them.
        unsafe { launch(context, &self.kernels, kind, (jobs, count, most), stream) }?;
        if kind.answers() {
            // SAFETY: nobody reads the lane's jobs before its end has come.
            return unsafe { context.receive(&lane.host, jobs, stream) };
        }
        for held in &mut batch.jobs {
            let piece = held.job.piece.clone();
            let to = held.buffer.bytes_mut()[piece].as_mut_ptr();
            // SAFETY: as for the copy in.
            unsafe { context.copy_out(to, place(&held.job).1, stream) }?;
        }
        // There are keys in them.
        context.wipe(jobs, stream)
    }

    /// The end of a lane's batch has come.
    fn finish(&mut self, at: usize, pool: &mut BlockPool, done: &mut Vec<Done>) {
        let lane = &mut self.lanes[at];
        let Some(batch) = lane.batch.take() else { return };
        let (kind, size) = (batch.kind, batch.kind.job());
        // SAFETY: the lane's end has come.
        let bytes = unsafe { lane.host.bytes() };
        for (held, bytes) in batch.jobs.into_iter().zip(bytes.chunks_exact_mut(size)) {
            let result = match &batch.refused {
                None => Ok(kind.answer(bytes)),
                Some(error) => Err(fault(error)),
            };
            bytes.fill(0);
            pool.put(held.job.block, held.buffer);
            done.push(Done { operation: held.job.operation, result });
        }
    }

    /// The GPU is lost. All that it had fails.
    fn lose(&mut self, error: GpuError, pool: &mut BlockPool, done: &mut Vec<Done>) {
        // From here on it is at no block any more.
        self.context.destroy();
        let fault = fault(&error);
        self.trouble = Some(error);
        let batches = self.lanes.iter_mut().filter_map(|lane| lane.batch.take());
        for held in batches.flat_map(|batch| batch.jobs).chain(self.waiting.drain(..)) {
            pool.put(held.job.block, held.buffer);
            done.push(Done { operation: held.job.operation, result: Err(fault) });
        }
    }
}

/// Launches the kernel of a kind over so many jobs, of which the longest takes `most` blocks of threads.
///
/// # Safety
///
/// The jobs lie there when the stream comes to it, and name pieces with room for whole units around them.
unsafe fn launch(
    context: &Context,
    kernels: &[Kernel],
    kind: Kind,
    (jobs, count, most): (DeviceMemory, usize, u32),
    stream: Stream,
) -> Result<(), GpuError> {
    let mut address = jobs.address();
    let mut count = count as u32;
    let mut constants =
        if let Kind::Crc32(polynomial) = kind { jobs::crc_constants(polynomial) } else { [0; 32] };
    let (blocks, threads) = kind.grid(count, most);
    let second = match kind {
        Kind::Crc32(_) => std::ptr::from_mut(&mut constants).cast(),
        _ => std::ptr::from_mut(&mut count).cast(),
    };
    let mut parameters = [std::ptr::from_mut(&mut address).cast(), second];
    let parameters = if kind == Kind::Aes256Ctr { &mut parameters[..1] } else { &mut parameters[..] };
    let launch = Launch { kernel: kernels[kind.kernel()], blocks, threads, parameters };
    // SAFETY: the parameters are those that the kernel is declared with; the jobs are the caller's promise.
    unsafe { context.launch(launch, stream) }
}

/// What a command that it hit is told.
fn fault(error: &GpuError) -> Fault {
    Fault::new(match error {
        GpuError::Call { code: OUT_OF_MEMORY, .. } => Status::OutOfResources,
        _ => Status::DeviceReset,
    })
}

impl Drop for Gpu {
    fn drop(&mut self) {
        if !self.context.is_gone() {
            // Pages that the GPU may still be at are unlocked by the context's end. What else goes wrong here matters to nobody any more.
            if self.lanes.iter().all(|lane| self.context.synchronize(lane.stream).is_ok()) {
                for start in &self.registered {
                    let _ = self.context.forget(std::ptr::with_exposed_provenance(*start));
                }
            }
            self.context.destroy();
        }
    }
}
