//! Engines, and the pipes that their transfers run between.

use crate::staging::Staging;
use crate::sys::{self, Errno};
use dcs::{Driver, Engine, Handle, Session};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Most streams in one engine: more than the lanes that its units have. Another engine is started for more.
const STREAMS: usize = 120;

/// Commands of an engine: more than streams, because those that end are freed a moment later.
const COMMANDS: u16 = 128;

const BLOCK_SIZE: u32 = 64 * 1024;
const BLOCKS: u32 = 256;

/// Bytes of each pipe, which is how far a stream runs ahead of its socket.
const PIPE_SIZE: libc::c_int = 256 * 1024;

/// Pipes that are kept for later streams.
const SPARE_MAX: usize = 32;

/// Staging pipes that are kept for later calls.
const SPARE_STAGING_MAX: usize = 8;

/// Pause after an engine could not be started.
const PAUSE: Duration = Duration::from_secs(1);

/// Number of operations that no engine reaches.
const NO_OPERATIONS: u64 = u64::MAX;

/// An engine with one session.
pub struct Unit {
    session: Session,
    // Dropped after its session; in fact never dropped.
    engine: Engine,
    caller_drives: bool,
    streams: AtomicUsize,
    /// Number of operations that it had done when it was given up.
    stuck_at: AtomicU64,
}

/// Permit for a stream in an engine. It is given back when dropped.
pub struct Permit(Arc<Unit>);

/// Two pipes with an engine between them.
pub struct Pipes {
    /// End for the file's bytes.
    pub input: OwnedFd,
    /// End for the processed bytes.
    pub output: OwnedFd,
    /// Bytes that the first pipe holds.
    size: usize,
    /// Source of the engine's transfer.
    pub source: Handle,
    pub sink: Handle,
}

/// All engines of a process.
#[derive(Default)]
pub struct Units {
    units: Mutex<Vec<Arc<Unit>>>,
    failed: Mutex<Option<Instant>>,
    spare: Mutex<Vec<Pipes>>,
    spare_staging: Mutex<Vec<Staging>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|error| error.into_inner())
}

impl Units {
    /// Returns a permit for an engine with room, or for a new one.
    pub fn place(&self) -> Result<Permit, String> {
        let mut units = lock(&self.units);
        if let Some(unit) = units.iter().find(|unit| unit.has_place()) {
            return Ok(Permit::new(unit));
        }
        let mut failed = lock(&self.failed);
        if failed.is_some_and(|at| at.elapsed() < PAUSE) {
            return Err("the engine could not be started a moment ago".into());
        }
        match without_signals(start) {
            Ok(unit) => {
                units.push(Arc::new(unit));
                Ok(Permit::new(&units[units.len() - 1]))
            }
            Err(error) => {
                *failed = Some(Instant::now());
                Err(error.to_string())
            }
        }
    }

    /// Makes empty pipes.
    pub fn pipes(&self) -> Result<Pipes, String> {
        if let Some(pipes) = lock(&self.spare).pop() {
            return Ok(pipes);
        }
        Pipes::new()
    }

    /// Keeps empty pipes for later streams.
    pub fn keep(&self, pipes: Pipes) {
        let mut spare = lock(&self.spare);
        let is_empty = sys::waiting(&pipes.input) == 0 && sys::waiting(&pipes.output) == 0;
        if is_empty && spare.len() < SPARE_MAX {
            spare.push(pipes);
        }
    }

    /// Returns an empty staging pipe. Without one the stream cannot go on; programs are not told this error.
    pub fn staging(&self) -> Result<Staging, Errno> {
        if let Some(staging) = lock(&self.spare_staging).pop() {
            return Ok(staging);
        }
        Staging::new(PIPE_SIZE).map_err(|_| libc::ENOSYS)
    }

    /// Keeps an empty staging pipe for later calls.
    pub fn keep_staging(&self, staging: Staging) {
        let mut spare = lock(&self.spare_staging);
        if staging.held() == 0 && spare.len() < SPARE_STAGING_MAX {
            spare.push(staging);
        }
    }
}

impl Unit {
    fn has_place(&self) -> bool {
        self.streams.load(Ordering::Relaxed) < STREAMS && !self.is_stuck()
    }

    fn operations(&self) -> u64 {
        self.engine.statistics().operations
    }

    /// Returns true if it was given up, and has done nothing since.
    fn is_stuck(&self) -> bool {
        let stuck_at = self.stuck_at.load(Ordering::Relaxed);
        stuck_at != NO_OPERATIONS && stuck_at == self.operations()
    }
}

/// Starts an engine. A process may be forbidden to have threads (vsftpd is); then callers do the work.
fn start() -> Result<Unit, dcs::Error> {
    start_with(Driver::Thread).or_else(|_| start_with(Driver::Caller))
}

fn start_with(driver: Driver) -> Result<Unit, dcs::Error> {
    let builder = Engine::builder().commands(COMMANDS).block_size(BLOCK_SIZE).blocks(BLOCKS).sessions(1);
    let engine = builder.driver(driver).start()?;
    let session = engine.session_with_depth(COMMANDS)?;
    let caller_drives = driver == Driver::Caller;
    let (streams, stuck_at) = (AtomicUsize::new(0), AtomicU64::new(NO_OPERATIONS));
    Ok(Unit { session, engine, caller_drives, streams, stuck_at })
}

/// Runs `body` with all signals blocked: signals are for the program's own threads, and threads that are started here
/// get none from the first moment.
pub fn without_signals<T>(body: impl FnOnce() -> T) -> T {
    // SAFETY: the sets are initialised by sigfillset and pthread_sigmask before they are read; only this
    // thread changes.
    let before = unsafe {
        let (mut all, mut before) = (std::mem::zeroed::<libc::sigset_t>(), std::mem::zeroed());
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        before
    };
    let made = body();
    // SAFETY: the mask that this thread had.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut()) };
    made
}

impl Pipes {
    fn new() -> Result<Pipes, String> {
        let failed = |errno: Errno| format!("no pipe: {}", std::io::Error::from_raw_os_error(errno));
        let (source, input) = sys::pipe(PIPE_SIZE).map_err(failed)?;
        let (output, sink) = sys::pipe(PIPE_SIZE).map_err(failed)?;
        let handle = |end: OwnedFd| Handle::new(&end).map_err(|error| error.to_string());
        let (input, output) = (sys::move_to_high_number(input), sys::move_to_high_number(output));
        let size = sys::pipe_size(&input);
        Ok(Pipes { input, output, size, source: handle(source)?, sink: handle(sink)? })
    }

    /// Returns the most bytes that can be fed.
    pub fn room(&self) -> usize {
        self.size.saturating_sub(sys::waiting(&self.input))
    }
}

impl Permit {
    fn new(unit: &Arc<Unit>) -> Permit {
        unit.streams.fetch_add(1, Ordering::Relaxed);
        Permit(Arc::clone(unit))
    }

    /// Returns true if the engine has no thread.
    pub fn caller_drives(&self) -> bool {
        self.0.caller_drives
    }

    pub fn session(&self) -> &Session {
        &self.0.session
    }

    /// Returns the number of operations that the engine has done, for all streams.
    pub fn operations(&self) -> u64 {
        self.0.operations()
    }

    /// Returns true if the engine was given up, and has done nothing since.
    pub fn is_stuck(&self) -> bool {
        self.0.is_stuck()
    }

    /// Gives the engine up: nothing waits for it until it does something.
    pub fn give_up(&self) {
        self.0.stuck_at.store(self.operations(), Ordering::Relaxed);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.streams.fetch_sub(1, Ordering::Relaxed);
    }
}
