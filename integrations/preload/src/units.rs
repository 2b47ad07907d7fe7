//! Engines, and the pipes between which their transfers run.

use crate::staging::Staging;
use crate::sys::{self, Errno};
use dcs::{Driver, Engine, Handle, Session};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Streams of one engine: more than the lanes that its units have. Another engine is started for more.
const STREAMS: usize = 120;

/// Commands of an engine: those that end give theirs back a moment later.
const COMMANDS: u16 = 128;

const BLOCK_SIZE: u32 = 64 * 1024;
const BLOCKS: u32 = 256;

/// Bytes of each pipe: how far a stream runs ahead of its socket.
const PIPE_SIZE: libc::c_int = 256 * 1024;

/// Pipes that are kept for the next streams.
const SPARE_MAX: usize = 32;

/// Pipes for waiting that are kept for the next calls.
const SPARE_STAGING_MAX: usize = 8;

/// How long nothing is tried again after an engine could not be started.
const PAUSE: Duration = Duration::from_secs(1);

/// No engine has done this many operations.
const NO_OPERATIONS: u64 = u64::MAX;

/// An engine with one session.
pub struct Unit {
    session: Session,
    // Dropped after its session; in fact never.
    engine: Engine,
    caller_drives: bool,
    streams: AtomicUsize,
    /// How many operations it had done when it was given up.
    stuck_at: AtomicU64,
}

/// A stream's place in an engine. It is given back when dropped.
pub struct Permit(Arc<Unit>);

/// Two pipes with an engine between them.
pub struct Pipes {
    /// Where the file's bytes go in.
    pub input: OwnedFd,
    /// Where the processed bytes come out.
    pub output: OwnedFd,
    /// Bytes that the first one takes.
    size: usize,
    /// The engine's ends.
    pub source: Handle,
    pub sink: Handle,
}

/// All of a process.
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
    /// A place in an engine that has one, or in a new one.
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

    /// Empty pipes.
    pub fn pipes(&self) -> Result<Pipes, String> {
        if let Some(pipes) = lock(&self.spare).pop() {
            return Ok(pipes);
        }
        Pipes::new()
    }

    /// Keeps pipes for others, if nothing is in them.
    pub fn keep(&self, pipes: Pipes) {
        let mut spare = lock(&self.spare);
        let is_empty = sys::waiting(&pipes.input) == 0 && sys::waiting(&pipes.output) == 0;
        if is_empty && spare.len() < SPARE_MAX {
            spare.push(pipes);
        }
    }

    /// An empty pipe to wait in. Without one the stream cannot go on, which is the
    /// library's affair: the error is one that no program is told of a stream.
    pub fn staging(&self) -> Result<Staging, Errno> {
        if let Some(staging) = lock(&self.spare_staging).pop() {
            return Ok(staging);
        }
        Staging::new(PIPE_SIZE).map_err(|_| libc::ENOSYS)
    }

    /// Keeps it for others, if nothing is in it.
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

    /// It was given up, and has done nothing since.
    fn is_stuck(&self) -> bool {
        let stuck_at = self.stuck_at.load(Ordering::Relaxed);
        stuck_at != NO_OPERATIONS && stuck_at == self.operations()
    }
}

/// A process may be forbidden to have threads (vsftpd is): then whoever calls does the work.
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

/// Signals are for the program's own threads: those that are started here get none from the first moment.
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
        let (input, output) = (sys::out_of_the_way(input), sys::out_of_the_way(output));
        let size = sys::pipe_size(&input);
        Ok(Pipes { input, output, size, source: handle(source)?, sink: handle(sink)? })
    }

    /// Bytes that can be fed at most.
    pub fn room(&self) -> usize {
        self.size.saturating_sub(sys::waiting(&self.input))
    }
}

impl Permit {
    fn new(unit: &Arc<Unit>) -> Permit {
        unit.streams.fetch_add(1, Ordering::Relaxed);
        Permit(Arc::clone(unit))
    }

    /// The engine has no thread.
    pub fn caller_drives(&self) -> bool {
        self.0.caller_drives
    }

    pub fn session(&self) -> &Session {
        &self.0.session
    }

    /// What the engine has done so far, in all streams.
    pub fn operations(&self) -> u64 {
        self.0.operations()
    }

    /// The engine was given up, and has done nothing since.
    pub fn is_stuck(&self) -> bool {
        self.0.is_stuck()
    }

    /// Nobody waits for the engine any more, until it does something.
    pub fn give_up(&self) {
        self.0.stuck_at.store(self.operations(), Ordering::Relaxed);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.streams.fetch_sub(1, Ordering::Relaxed);
    }
}
