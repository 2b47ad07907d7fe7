//! A GPU as a processing unit: NVIDIA's, by CUDA's driver, which is loaded on first use.
//!
//! ```text
//!   Job --> waiting --> batch: one launch over many streams' pieces, on a free lane
//!                         |
//!                         |  lane = a CUDA stream, which works in order, in parallel with the other lanes:
//!                         |     copies in    block --> its mirror on the GPU       (the blocks' pages are locked)
//!                         |     the jobs     states, keys
//!                         |     the kernel
//!                         |     copies out   mirror --> block, where data change; the jobs, where states do
//!                         |     a moment     that the controller polls
//!                         v
//!   Done  <-- polled while the engine is busy; while it sleeps, an eventfd signalled by a host function at the lane's end
//! ```
//!
//! A job waits only while all lanes are busy; jobs that wait then go together. Nothing here blocks: each call gives the driver something to
//! do or asks whether it is done.
//!
//! If the source is a file, the GPU may read it itself (cuFile): to the beginning of a block's mirror, on threads whose calls wait. Jobs on
//! such a block need no copy in. It is kept out of the pool until something other than the GPU uses it, since its bytes may be on the GPU
//! alone.
//!
//! ```text
//!   Read --> readers: file --> mirror, and from there to the block if the host needs the bytes --> Fetched; otherwise the host reads it
//! ```
//!
//! A block that is with the GPU is out of the pool, so that nothing else can touch it. Each has its mirror: memory of the GPU that no other
//! block uses, so that nothing is allocated while data flow.
//!
//! A call that the driver refuses fails its batch. A failure of the GPU itself (in a kernel, an uncorrectable memory error, a GPU that has
//! fallen off the bus) makes the driver refuse everything that follows. The context is destroyed then, after which the GPU uses no block
//! any more; only then are blocks returned and their operations failed. Reads in progress are waited for first.
//!
//! # What it doesn't implement
//!
//! * More than one GPU per engine. A lost GPU stays lost until the engine is restarted.
//! * Blocks that stay on the GPU from one operator to the next, unless files were read to it directly.

mod driver;
mod error;
mod jobs;
mod kept;
mod library;
pub mod measure;
mod readers;
mod storage;

use crate::buffer::{BlockPool, Buffer};
use dcs_abi::descriptor::Mode;
use dcs_abi::status::Status;
use dcs_engine::{BlockId, Failure, Operation, OperationId};
use driver::{Context, DeviceMemory, Driver, HostMemory, Kernel, Launch, Moment, OUT_OF_MEMORY, Stream};
use jobs::Kind;
use kept::Kept;
use readers::Readers;
use rustix::fd::{AsFd, OwnedFd};
use std::collections::{HashMap, VecDeque};
use std::ffi::CStr;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

pub use driver::{Code, Properties};
pub use error::GpuError;
pub use jobs::{Answer, Work};
pub(crate) use readers::Read;
pub(crate) use storage::{PAGE, RegisteredFile};
pub use storage::{Storage, StorageError};

/// The compiled kernels; `tools/gpu-kernels` writes it.
const KERNELS: &CStr = match CStr::from_bytes_with_nul(concat!(include_str!("kernels.ptx"), "\0").as_bytes())
{
    Ok(text) => text,
    Err(_) => panic!("the kernels' text has a zero byte"),
};

/// Batches that are with the GPU at once: one copies in while another computes and a third copies out.
const LANES: usize = 4;
/// Most copies of blocks in a batch, and so its most jobs: a driver queues about a thousand items for a GPU, and makes a caller with more
/// wait.
const JOBS: usize = 240;
// In addition to the copies: the jobs in and out, the kernel, the end, and the call that wakes.
const _: () = assert!(LANES * (JOBS + 5) < 1000);
/// Most jobs that are not divided among lanes: a launch costs about as much as the copies of this many.
const UNDIVIDED_MAX: usize = 16;
/// Room behind a block's mirror, in bytes: kernels work in units of 16 bytes, at both ends.
const SLACK: usize = 256;
/// Longest sleep while the GPU works: a lost GPU sends no signal.
const SLEEP_MAX: Duration = Duration::from_millis(20);

/// The choice of a GPU and of its libraries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GpuOptions {
    /// Number of the GPU, from 0 on.
    pub device: u32,
    /// CUDA's driver; `None`: the library that `DCS_CUDA_LIBRARY` names, or the system's `libcuda.so.1`.
    pub library: Option<PathBuf>,
    /// Direct reads of files by GPUDirect Storage: if available, or demanded (an error if not available; cuFile's
    /// compatibility mode will do), or off.
    pub storage: Mode,
    /// GPUDirect Storage's library; `None`: the library that `DCS_CUFILE_LIBRARY` names, or the system's `libcufile.so.0`.
    pub storage_library: Option<PathBuf>,
}

/// A piece of a block, and the GPU's work on it.
#[derive(Debug)]
pub struct Job {
    /// Operation that the job belongs to.
    pub operation: OperationId,
    /// The block.
    pub block: BlockId,
    /// Range of the block's bytes; not empty.
    pub piece: Range<usize>,
    /// The work.
    pub work: Work,
}

/// The end of a job. Its block is back in the pool.
#[derive(Debug)]
pub struct Done {
    /// Operation that the job belongs to.
    pub operation: OperationId,
    /// The answer.
    pub result: Result<Answer, Failure>,
}

/// Returns this machine's GPUs, as the driver reports them.
///
/// # Errors
///
/// [`GpuError`] if there is no driver or no GPU.
pub fn find(options: &GpuOptions) -> Result<Vec<Properties>, GpuError> {
    let driver = Driver::load(options.library.as_deref())?;
    (0..driver.count()?).map(|number| driver.properties(number)).collect()
}

/// Returns the GPU of `options`.
///
/// # Errors
///
/// As [`find`]; and if there is no GPU of that number.
pub fn describe(options: &GpuOptions) -> Result<Properties, GpuError> {
    Driver::load(options.library.as_deref())?.properties(options.device)
}

/// Finds out by which means files would be read to a GPU directly.
///
/// # Errors
///
/// As [`describe`]; the inner error if files would not be.
pub fn find_storage(options: &GpuOptions) -> Result<Result<Storage, StorageError>, GpuError> {
    let driver = Driver::load(options.library.as_deref())?;
    let context = Context::new(&driver, &driver.properties(options.device)?, driver::BLOCKING_SYNC)?;
    let found = storage::CuFile::open(options.storage_library.as_deref(), &context);
    Ok(found.map(|(_, storage)| storage))
}

/// The end of a read to the GPU: the number of bytes, or a request to read another way.
#[derive(Debug)]
pub(crate) struct Fetched {
    pub operation: Operation,
    pub bytes: Option<usize>,
}

/// A job with its block.
#[derive(Debug)]
struct LoadedJob {
    job: Job,
    buffer: Buffer,
    /// Number of the block's first bytes that are in the mirror already, if any, and whether the host has them too.
    resident: Option<(usize, bool)>,
}

/// A lane's work.
#[derive(Debug)]
struct Batch {
    kind: Kind,
    jobs: Vec<LoadedJob>,
    /// Error of a refused call: the jobs fail when the GPU is done with those before it.
    refused: Option<GpuError>,
    /// Set if a host function will wake the engine at its end.
    signalled: bool,
}

#[derive(Debug)]
struct Lane {
    stream: Stream,
    end: Moment,
    /// Jobs on the host, on their way in and out.
    host: HostMemory,
    /// Jobs on the GPU.
    device: DeviceMemory,
    batch: Option<Batch>,
}

/// The GPU of a controller.
#[derive(Debug)]
pub(crate) struct Gpu {
    readers: Option<Readers>,
    storage: Result<Storage, StorageError>,
    context: Arc<Context>,
    kernels: [Kernel; jobs::NAMES.len()],
    lanes: Vec<Lane>,
    /// Copies of the blocks: that of block `n` begins at `n * stride`.
    mirror: DeviceMemory,
    stride: usize,
    waiting: VecDeque<LoadedJob>,
    /// Blocks whose bytes are in their mirrors too, or there alone.
    kept: HashMap<BlockId, Kept>,
    /// Locked pages, by their addresses.
    registered: Vec<usize>,
    wake: Arc<OwnedFd>,
    trouble: Option<GpuError>,
    /// Set when it is lost and reads may still be in progress.
    losing: Option<Failure>,
    /// Reads whose copies to the host may go on as long as the context exists.
    stuck: Vec<Read>,
    properties: Properties,
    batches: u64,
    blocks: u64,
}

impl Gpu {
    /// Opens a GPU, and locks the pool's blocks for it. It signals `wake` when work is done.
    pub fn open(
        options: &GpuOptions,
        pool: &BlockPool,
        block_size: u32,
        wake: Arc<OwnedFd>,
    ) -> Result<Gpu, GpuError> {
        let driver = Driver::load(options.library.as_deref())?;
        let properties = driver.properties(options.device)?;
        let context = Arc::new(Context::new(&driver, &properties, driver::BLOCKING_SYNC)?);
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
        // Files are read in whole pages.
        let stride = (block_size as usize + SLACK).next_multiple_of(PAGE);
        let mirror = context.device_memory(stride * regions.len()).map_err(|error| match error {
            GpuError::Call { code: OUT_OF_MEMORY, .. } => GpuError::Memory((stride * regions.len()) as u64),
            error => error,
        })?;
        let (waiting, registered) = (VecDeque::new(), Vec::new());
        let mut gpu = Gpu {
            readers: None,
            storage: Err(StorageError::Off),
            context,
            kernels,
            lanes,
            mirror,
            stride,
            waiting,
            kept: HashMap::new(),
            registered,
            wake,
            trouble: None,
            losing: None,
            stuck: Vec::new(),
            batches: 0,
            blocks: 0,
            properties,
        };
        for (start, length) in regions {
            // SAFETY: the pool's memory stays where it is as long as the pool, which its owner keeps longer than this.
            unsafe { gpu.context.register(start, length) }?;
            gpu.registered.push(start.expose_provenance());
        }
        gpu.storage = gpu.open_storage(options);
        match &gpu.storage {
            Err(error) if options.storage == Mode::On => Err(GpuError::Storage(error.clone())),
            _ => Ok(gpu),
        }
    }

    fn open_storage(&mut self, options: &GpuOptions) -> Result<Storage, StorageError> {
        if options.storage == Mode::Off {
            return Err(StorageError::Off);
        }
        let (library, storage) = storage::CuFile::open(options.storage_library.as_deref(), &self.context)?;
        if options.storage == Mode::Auto && !storage.is_direct() {
            return Err(StorageError::Compatibility);
        }
        let place = (self.mirror, self.stride);
        self.readers = Some(Readers::start(library, &self.context, place, Arc::clone(&self.wake))?);
        Ok(storage)
    }

    /// Returns how files are read to it directly, or why they are not.
    pub fn storage(&self) -> &Result<Storage, StorageError> {
        &self.storage
    }

    pub fn properties(&self) -> &Properties {
        &self.properties
    }

    /// Returns how many batches it was given, and how many blocks in them.
    pub fn counts(&self) -> (u64, u64) {
        (self.batches, self.blocks)
    }

    /// Returns why it was lost, or what it refused last.
    pub fn trouble(&self) -> Option<&GpuError> {
        self.trouble.as_ref()
    }

    /// Takes a job, and takes its block out of the pool.
    ///
    /// # Errors
    ///
    /// If the GPU is lost, the block is in use elsewhere, or the job is invalid. The block is then in the pool, if it was ours.
    pub fn submit(&mut self, job: Job, pool: &mut BlockPool) -> Result<(), Failure> {
        let broken = Failure::new(Status::InternalError);
        let resident = self.kept.get(&job.block).and_then(|kept| kept.serves(&job));
        let buffer = match resident {
            Some(_) => self.kept.remove(&job.block).map(|kept| kept.buffer),
            None => self
                .bring_back(job.block, false, pool)
                .and_then(|()| pool.take(job.block).ok_or(broken))
                .map(Some)?,
        };
        let buffer = buffer.ok_or(broken)?;
        let fits = job.piece.start < job.piece.end && job.piece.end <= buffer.bytes().len();
        let is_lost = self.losing.is_some() || self.context.is_gone();
        if is_lost || !fits || job.block.index() >= self.mirror_count() {
            pool.put(job.block, buffer);
            return Err(if is_lost { Failure::new(Status::DeviceReset) } else { broken });
        }
        self.waiting.push_back(LoadedJob { job, buffer, resident });
        Ok(())
    }

    fn mirror_count(&self) -> usize {
        self.registered.len()
    }

    /// Removes a job that no lane has yet; returns false if there is none.
    pub fn abort(&mut self, operation: OperationId, pool: &mut BlockPool) -> bool {
        let at = self.waiting.iter().position(|held| held.job.operation == operation);
        let held = at.and_then(|at| self.waiting.remove(at));
        held.map(|held| pool.put(held.job.block, held.buffer)).is_some()
    }

    /// Returns true if it has something to do.
    pub fn is_busy(&self) -> bool {
        let reads = self.readers.as_ref().is_some_and(Readers::is_busy);
        reads || !self.waiting.is_empty() || self.lanes.iter().any(|lane| lane.batch.is_some())
    }

    /// Reports what is done, and gives free lanes the waiting jobs.
    pub fn poll(&mut self, pool: &mut BlockPool, done: &mut Vec<Done>, fetched: &mut Vec<Fetched>) {
        self.reap_readers(pool, fetched);
        if self.losing.is_none()
            && let Err(error) = self.poll_lanes(pool, done)
        {
            self.lose(error);
        }
        if let Some(failure) = self.losing {
            self.fail_all(failure, pool, done, fetched);
        }
    }

    /// Polls the lanes. An error means that the GPU is lost.
    fn poll_lanes(&mut self, pool: &mut BlockPool, done: &mut Vec<Done>) -> Result<(), GpuError> {
        for at in 0..self.lanes.len() {
            if self.lanes[at].batch.is_none() {
                continue;
            }
            if self.context.is_past(self.lanes[at].end)? {
                self.finish(at, pool, done);
            }
        }
        while !self.waiting.is_empty()
            && let Some(at) = self.lanes.iter().position(|lane| lane.batch.is_none())
        {
            self.start(at)?;
        }
        Ok(())
    }

    /// Arranges a wake-up for when a lane is done, before the engine sleeps. Returns how long it may sleep at most.
    pub fn before_sleep(&mut self) -> Option<Duration> {
        for lane in &mut self.lanes {
            if let Some(batch) = &mut lane.batch
                && !std::mem::replace(&mut batch.signalled, true)
            {
                // SAFETY: the descriptor stays open as long as this, which destroys the context first. An error shows when the batch is
                // polled.
                let _ = unsafe { self.context.signal(self.wake.as_fd(), lane.stream) };
            }
        }
        self.is_busy().then_some(SLEEP_MAX)
    }

    /// Gives a lane a batch. An error means that not even its end can be observed.
    fn start(&mut self, at: usize) -> Result<(), GpuError> {
        let Some(kind) = self.waiting.front().map(|held| held.job.work.kind()) else { return Ok(()) };
        let idle = self.lanes.iter().filter(|lane| lane.batch.is_none()).count().max(1);
        let same = self.waiting.iter().filter(|held| held.job.work.kind() == kind).count();
        let wanted = same.div_ceil(idle).clamp(UNDIVIDED_MAX, kind.jobs_most());
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
        // Start of the GPU's units of a piece, and of the piece: for one that is there already, both are the mirror's beginning.
        let place = |held: &LoadedJob| {
            let (start, length) = (held.job.block.index() * stride, held.job.piece.len());
            (mirror.part(start, stride), mirror.part(start + held.job.work.lead(length), length))
        };
        // SAFETY: the lane has no batch: no copy from or to it is in progress.
        let bytes = unsafe { lane.host.bytes() };
        let mut most = 0;
        for (held, bytes) in batch.jobs.iter().zip(bytes.chunks_exact_mut(size)) {
            let (length, work) = (held.job.piece.len(), &held.job.work);
            work.write(place(held).0.address(), length, bytes);
            most = most.max(work.blocks(length));
        }
        for held in batch.jobs.iter().filter(|held| held.resident.is_none()) {
            let from = held.buffer.bytes()[held.job.piece.clone()].as_ptr();
            // SAFETY: the piece is in a block, whose pages are locked. The block is the batch's until the lane's end has come, or the
            // context is destroyed.
            unsafe { context.copy_in(place(held).1, from, stream) }?;
        }
        let jobs = lane.device.part(0, size * batch.jobs.len());
        // SAFETY: nothing writes to the lane's jobs before its end has come.
        unsafe { context.send(jobs, &lane.host, stream) }?;
        let count = batch.jobs.len();
        // SAFETY: the jobs name pieces of the mirror with room for whole units around them.
        unsafe { launch(context, &self.kernels, kind, (jobs, count, most), stream) }?;
        if kind.answers() {
            // SAFETY: nothing reads the lane's jobs before its end has come.
            return unsafe { context.receive(&lane.host, jobs, stream) };
        }
        for held in &mut batch.jobs {
            let (from, piece) = (place(held).1, held.job.piece.clone());
            let to = held.buffer.bytes_mut()[piece].as_mut_ptr();
            // SAFETY: as for the copy in.
            unsafe { context.copy_out(to, from, stream) }?;
        }
        // The jobs contain keys.
        context.wipe(jobs, stream)
    }

    /// Completes a lane's batch.
    fn finish(&mut self, at: usize, pool: &mut BlockPool, done: &mut Vec<Done>) {
        let lane = &mut self.lanes[at];
        let Some(batch) = lane.batch.take() else { return };
        let (kind, size) = (batch.kind, batch.kind.job());
        // SAFETY: the lane's end has come.
        let bytes = unsafe { lane.host.bytes() };
        for (held, bytes) in batch.jobs.into_iter().zip(bytes.chunks_exact_mut(size)) {
            let result = match &batch.refused {
                None => Ok(kind.answer(bytes)),
                Some(error) => Err(failure(error)),
            };
            bytes.fill(0);
            done.push(Done { operation: held.job.operation, result });
            match held.resident {
                Some((length, here)) if result.is_ok() => {
                    // Changed bytes were copied out.
                    let kept = Kept { buffer: held.buffer, length, here: here || !kind.answers() };
                    self.kept.insert(held.job.block, kept);
                }
                _ => pool.put(held.job.block, held.buffer),
            }
        }
    }

    /// Marks the GPU as lost: it gets no more work. Everything that it had fails once it uses nothing any more.
    fn lose(&mut self, error: GpuError) {
        self.losing = Some(failure(&error));
        self.trouble = Some(error);
    }

    /// Fails everything that a lost GPU had, once no read is in progress.
    fn fail_all(
        &mut self,
        failure: Failure,
        pool: &mut BlockPool,
        done: &mut Vec<Done>,
        fetched: &mut Vec<Fetched>,
    ) {
        if let Some(readers) = &self.readers {
            let unread = readers.take_back(|_| true);
            unread.into_iter().for_each(|read| give_back(read, pool, fetched));
            if readers.is_busy() {
                return;
            }
        }
        self.readers = None;
        if self.context.is_gone() {
            return;
        }
        let destroyed = self.context.destroy();
        let jobs = self.lanes.iter_mut().filter_map(|lane| lane.batch.take()).flat_map(|batch| batch.jobs);
        let operations: Vec<_> = jobs.map(|held| (held.job.operation, held.job.block, held.buffer)).collect();
        let reads = std::mem::take(&mut self.stuck);
        match destroyed {
            Ok(()) => {
                for (operation, block, buffer) in operations {
                    pool.put(block, buffer);
                    done.push(Done { operation, result: Err(failure) });
                }
                reads.into_iter().for_each(|read| give_back(read, pool, fetched));
            }
            Err(error) => {
                // It is unknown what the GPU still writes to: those blocks are never used again.
                self.trouble = Some(error);
                for (operation, block, buffer) in operations {
                    pool.lose(block, buffer);
                    done.push(Done { operation, result: Err(failure) });
                }
                for read in reads {
                    pool.lose(read.block, read.buffer);
                    fetched.push(Fetched { operation: read.operation, bytes: None });
                }
            }
        }
        for held in self.waiting.drain(..) {
            pool.put(held.job.block, held.buffer);
            done.push(Done { operation: held.job.operation, result: Err(failure) });
        }
    }
}

/// Returns a read that must be done another way.
fn give_back(read: Read, pool: &mut BlockPool, fetched: &mut Vec<Fetched>) {
    pool.put(read.block, read.buffer);
    fetched.push(Fetched { operation: read.operation, bytes: None });
}

/// Launches the kernel of a kind over this many jobs, the longest of which takes `most` blocks of threads.
///
/// # Safety
///
/// The jobs must be there when the stream comes to them, and must name pieces with room for whole units around them.
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

/// Returns the failure of a command that it affects.
fn failure(error: &GpuError) -> Failure {
    Failure::new(match error {
        GpuError::Call { code: OUT_OF_MEMORY, .. } => Status::OutOfResources,
        _ => Status::DeviceReset,
    })
}

impl Drop for Gpu {
    fn drop(&mut self) {
        let read = self.readers.as_mut().map(Readers::stop).unwrap_or_default();
        self.stuck.extend(read);
        if self.context.is_gone() {
            return;
        }
        // Ending the context unlocks pages that the GPU may still use. Other errors here no longer matter.
        if self.lanes.iter().all(|lane| self.context.synchronize(lane.stream).is_ok()) {
            for start in &self.registered {
                let _ = self.context.forget(std::ptr::with_exposed_provenance(*start));
            }
        }
        if self.context.destroy().is_err() {
            // It is unknown what the GPU still writes to: that memory stays where it is.
            let batches = self.lanes.iter_mut().filter_map(|lane| lane.batch.take());
            batches.flat_map(|batch| batch.jobs).for_each(|held| std::mem::forget(held.buffer));
            self.stuck.drain(..).for_each(|read| std::mem::forget(read.buffer));
        }
    }
}
