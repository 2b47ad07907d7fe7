//! Threads that read files to the GPU, since cuFile's reads block.
//!
//! A read has its block, and so the block's mirror, to itself, and keeps its file open. The context is destroyed after all reads.

use super::GpuError;
use super::driver::{Context, DeviceMemory, Stream};
use super::storage::{CuFile, StorageError};
use crate::buffer::Buffer;
use crate::endpoint::{Endpoint, Object};
use dcs_engine::{BlockId, Operation};
use rustix::fd::OwnedFd;
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Reads that run at once.
const READERS: usize = 8;

/// A read of whole pages to the beginning of a block's mirror.
#[derive(Debug)]
pub(crate) struct Read {
    pub operation: Operation,
    pub block: BlockId,
    pub buffer: Buffer,
    pub length: usize,
    /// Offset in the file, in bytes.
    pub offset: u64,
    pub endpoint: Arc<Endpoint>,
    /// Set if the host needs the bytes too.
    pub copies_back: bool,
}

/// The result of a read.
#[derive(Debug)]
pub(super) enum ReadResult {
    /// The bytes are there.
    Done,
    /// The file must be read another way.
    Unsupported(StorageError),
    /// The GPU is lost, and may still use the block.
    Lost(GpuError),
}

#[derive(Debug, Default)]
struct Work {
    waiting: VecDeque<Read>,
    done: Vec<(Read, ReadResult)>,
    running: usize,
    stopping: bool,
}

#[derive(Debug)]
struct Shared {
    work: Mutex<Work>,
    more: Condvar,
    context: Arc<Context>,
    library: Arc<CuFile>,
    mirror: DeviceMemory,
    stride: usize,
    wake: Arc<OwnedFd>,
}

/// The reader threads, and the memory that they read to.
#[derive(Debug)]
pub(super) struct Readers {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Readers {
    /// Starts them. Block `n` is read to `n * stride`. They signal `wake` at the end of each read.
    pub fn start(
        library: Arc<CuFile>,
        context: &Arc<Context>,
        (mirror, stride): (DeviceMemory, usize),
        wake: Arc<OwnedFd>,
    ) -> Result<Readers, StorageError> {
        let streams = (0..READERS).map(|_| context.stream()).collect::<Result<Vec<_>, _>>()?;
        let shared = Shared {
            work: Mutex::default(),
            more: Condvar::new(),
            context: Arc::clone(context),
            library,
            mirror,
            stride,
            wake,
        };
        let mut readers = Readers { shared: Arc::new(shared), threads: Vec::with_capacity(READERS) };
        readers.shared.library.register(mirror, context)?;
        for stream in streams {
            let shared = Arc::clone(&readers.shared);
            let thread = std::thread::Builder::new().name("dcs-gpu-read".into());
            let started = thread.spawn(move || shared.run(stream));
            match started {
                Ok(thread) => readers.threads.push(thread),
                // Fewer threads will do.
                Err(_) if !readers.threads.is_empty() => break,
                Err(error) => {
                    readers.shared.library.forget(mirror, context);
                    return Err(StorageError::Threads(error.to_string()));
                }
            }
        }
        Ok(readers)
    }

    /// Takes a read.
    pub fn read(&self, read: Read) {
        self.shared.lock().waiting.push_back(read);
        self.shared.more.notify_one();
    }

    /// Returns true if any read is not answered.
    pub fn is_busy(&self) -> bool {
        let work = self.shared.lock();
        work.running > 0 || !work.waiting.is_empty() || !work.done.is_empty()
    }

    /// Takes the results of finished reads.
    pub fn done(&self) -> Vec<(Read, ReadResult)> {
        std::mem::take(&mut self.shared.lock().done)
    }

    /// Waits for reads in progress; returns those that have not begun.
    pub fn stop(&mut self) -> Vec<Read> {
        self.shared.lock().stopping = true;
        self.shared.more.notify_all();
        if !self.threads.is_empty() {
            for thread in self.threads.drain(..) {
                let _ = thread.join();
            }
            self.shared.library.forget(self.shared.mirror, &self.shared.context);
        }
        self.done().into_iter().map(|(read, _)| read).collect()
    }

    /// Removes reads that have not begun and for which `which` is true.
    pub fn take_back(&self, which: impl Fn(&Read) -> bool) -> Vec<Read> {
        let mut work = self.shared.lock();
        let (out, rest) = std::mem::take(&mut work.waiting).into_iter().partition(|read| which(read));
        work.waiting = rest;
        Vec::from(out)
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, stream: Stream) {
        block_signals();
        let mut work = self.lock();
        while !work.stopping {
            let Some(mut read) = work.waiting.pop_front() else {
                work = self.more.wait(work).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            work.running += 1;
            drop(work);
            let came = self.serve(&mut read, stream);
            work = self.lock();
            work.running -= 1;
            work.done.push((read, came));
            // EAGAIN: the counter is full of wake-ups already.
            let _ = rustix::io::write(&*self.wake, &1u64.to_ne_bytes());
        }
    }

    fn serve(&self, read: &mut Read, stream: Stream) -> ReadResult {
        if let Err(error) = self.read(read) {
            return ReadResult::Unsupported(error);
        }
        if read.copies_back {
            let from = self.mirror.part(read.block.index() * self.stride, read.length);
            let to = read.buffer.bytes_mut()[..read.length].as_mut_ptr();
            // SAFETY: the block's pages are locked, and they belong to this read alone until the copy is done, or the context is destroyed.
            let copied = unsafe { self.context.copy_out(to, from, stream) };
            if let Err(error) = copied.and_then(|()| self.context.synchronize(stream)) {
                return ReadResult::Lost(error);
            }
        }
        ReadResult::Done
    }

    fn read(&self, read: &Read) -> Result<(), StorageError> {
        let Object::File(file) = &read.endpoint.object else { return Err(StorageError::Off) };
        let registered = file.to_gpu.get_or_init(|| {
            let (descriptor, _) = file.direct().map_err(|errno| StorageError::Direct(errno.to_string()))?;
            self.library.take(descriptor, &self.context)
        });
        let registered = registered.as_ref().map_err(Clone::clone)?;
        let at = read.block.index() * self.stride;
        // SAFETY: the block belongs to this read alone, and its mirror with it.
        let done = unsafe { registered.read(read.offset, self.mirror, at..at + read.length, &self.context) };
        if done.as_ref().is_err_and(|error| !matches!(error, StorageError::Short(..))) {
            // A file that fails once is not tried again for each block.
            file.gpu_failed.store(true, Ordering::Relaxed);
        }
        done
    }
}

/// Blocks signals, which are for the application's threads.
fn block_signals() {
    // SAFETY: the set is initialised by sigfillset before it is used; pthread_sigmask changes only this
    // thread.
    unsafe {
        let mut set = std::mem::zeroed::<libc::sigset_t>();
        libc::sigfillset(&mut set);
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
    }
}
