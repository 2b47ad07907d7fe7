//! Ctrl-C and SIGTERM: cancels a transfer under way; without one, the process cleans up and ends.

use crate::failure::Exit;
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, kill, sigaction};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

/// Time limit to end a child, and to remove a folder, before the process ends all the same.
const PATIENCE: Duration = Duration::from_secs(5);

/// Signals to this process, and signals to the process that waits for it. One that came to both counts once.
static CAME: Mutex<[u32; 2]> = Mutex::new([0; 2]);
static PRESSED: AtomicBool = AtomicBool::new(false);
static EVENT: OnceLock<EventFd> = OnceLock::new();
static LAST: OnceLock<LastWords> = OnceLock::new();
static STATE: Mutex<State> =
    Mutex::new(State { transferring: false, leftovers: Vec::new(), next: 0, children: Vec::new() });

/// Callbacks for the end by a signal: before the process cleans up, and with its exit code.
struct LastWords {
    begin: fn(),
    end: fn(u8),
}

struct State {
    transferring: bool,
    leftovers: Vec<(u64, Left)>,
    /// Number of the next leftover.
    next: u64,
    /// Children that must not outlive the process.
    children: Vec<u32>,
}

/// A leftover, which must not outlive the process.
enum Left {
    /// A path: a socket's file, or the demo's folder.
    Path(PathBuf),
    /// A clean-up that only its owner knows.
    Other(Box<dyn Fn() + Send>),
}

impl Left {
    fn remove(&self) {
        match self {
            Left::Path(path) if path.is_dir() => remove_folder(path),
            Left::Path(path) => _ = std::fs::remove_file(path),
            Left::Other(remove) => remove(),
        }
    }
}

/// Removes a folder, in which this process's other threads may be making files: as often as one comes in between.
fn remove_folder(path: &Path) {
    until(|| std::fs::remove_dir_all(path).is_ok() || !path.exists());
}

/// Tries this until it is true, for a bounded time.
fn until(mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() && begun.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Waits until a killed child has ended, and makes no more files. Its owner may still wait for it: its number stays.
fn await_end(pid: Pid) {
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    until(|| !matches!(waitid(Id::Pid(pid), flags), Ok(WaitStatus::StillAlive)));
}

/// Starts listening for signals.
pub fn install() {
    outlive_file_limit();
    let Ok(event) = EventFd::from_value_and_flags(0, EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK) else {
        // Without this, a signal ends the process as usual.
        return;
    };
    if EVENT.set(event).is_ok() {
        let _ = ctrlc::set_handler(on_signal);
    }
}

/// Has calls past RLIMIT_FSIZE fail and be reported; SIGXFSZ would end the process first, and leave half a file behind.
/// A handler is used, because children would inherit an ignored signal.
#[allow(unsafe_code)]
fn outlive_file_limit() {
    extern "C" fn nothing(_: i32) {}
    let action = SigAction::new(SigHandler::Handler(nothing), SaFlags::SA_RESTART, SigSet::empty());
    // SAFETY: the handler does nothing.
    let _ = unsafe { sigaction(Signal::SIGXFSZ, &action) };
}

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(|error| error.into_inner())
}

fn on_signal() {
    count(0);
}

/// Notes a signal to the process that waits for this one.
pub fn passed_on() {
    count(1);
}

fn count(which: usize) {
    let mut came = CAME.lock().unwrap_or_else(|error| error.into_inner());
    let most = came.iter().max().copied();
    came[which] += 1;
    if came.iter().max().copied() > most {
        answer();
    }
}

/// Answers a signal, on a thread for signals, so it may lock and allocate.
fn answer() {
    let again = PRESSED.swap(true, Ordering::SeqCst);
    let state = state();
    if state.transferring && !again {
        let _ = EVENT.get().map(|event| event.write(1));
        return;
    }
    if let Some(LastWords { begin, .. }) = LAST.get() {
        begin();
    }
    let children = || state.children.iter().map(|pid| Pid::from_raw(*pid as i32));
    // A child that has just ended is not yet waited for, so its number is not reused.
    children().for_each(|pid| _ = kill(pid, Signal::SIGKILL));
    children().for_each(await_end);
    state.leftovers.iter().for_each(|(_, left)| left.remove());
    let _ = writeln!(std::io::stderr(), "dcs: interrupted; no transfer was under way");
    if let Some(LastWords { end, .. }) = LAST.get() {
        end(Exit::Interrupted as u8);
    }
    std::process::exit(Exit::Interrupted as i32);
}

/// Returns true if a signal came.
pub fn pressed() -> bool {
    PRESSED.load(Ordering::SeqCst)
}

/// Returns a descriptor that is readable once a signal came that a transfer must answer.
pub fn event() -> Option<BorrowedFd<'static>> {
    EVENT.get().map(|event| event.as_fd())
}

/// Guard: while it lives, a first signal cancels the transfer instead of ending the process.
pub struct Transferring(());

/// Begins a transfer.
pub fn transferring() -> Transferring {
    state().transferring = true;
    Transferring(())
}

impl Drop for Transferring {
    fn drop(&mut self) {
        state().transferring = false;
    }
}

/// Guard: while it lives, a signal that ends the process removes something first.
pub struct Leftover(u64);

/// Makes a folder for data, which a signal removes, without a gap: no signal is answered in between.
pub fn folder_of<T: AsRef<Path>, E>(make: impl FnOnce() -> Result<T, E>) -> Result<(T, Leftover), E> {
    let mut state = state();
    let made = make()?;
    let left = Left::Path(made.as_ref().to_path_buf());
    Ok((made, state.leave(left)))
}

/// Has a signal remove the path that `make` makes, likewise.
pub fn leftover_of<T, E>(path: &Path, make: impl FnOnce() -> Result<T, E>) -> Result<(T, Leftover), E> {
    let mut state = state();
    let made = make()?;
    Ok((made, state.leave(Left::Path(path.to_path_buf()))))
}

/// Has a signal remove all of these paths, which `make` makes, likewise.
pub fn leftovers_of<T, E>(
    paths: &[PathBuf],
    make: impl FnOnce() -> Result<T, E>,
) -> Result<(T, Vec<Leftover>), E> {
    let mut state = state();
    let made = make()?;
    Ok((made, paths.iter().map(|path| state.leave(Left::Path(path.clone()))).collect()))
}

/// Has a signal call this to clean up.
pub fn leftover_by(remove: impl Fn() + Send + 'static) -> Leftover {
    state().leave(Left::Other(Box::new(remove)))
}

/// Sets the callbacks for the end by a signal: before the process cleans up, which may wait for a file system, and with
/// its exit code.
pub fn on_end(begin: fn(), end: fn(u8)) {
    let _ = LAST.set(LastWords { begin, end });
}

impl State {
    fn leave(&mut self, left: Left) -> Leftover {
        let number = self.next;
        self.next += 1;
        self.leftovers.push((number, left));
        Leftover(number)
    }
}

impl Drop for Leftover {
    fn drop(&mut self) {
        state().leftovers.retain(|(number, _)| *number != self.0);
    }
}

/// Guard: while it lives, a signal that ends the process ends this child first. Drop it before waiting for the child.
pub struct Child(u32);

/// Has a signal end the child that `start` starts, without a gap: no signal is answered in between.
pub fn child_of<T, E>(
    start: impl FnOnce() -> Result<T, E>,
    pid: impl FnOnce(&T) -> u32,
) -> Result<(T, Child), E> {
    let mut state = state();
    let started = start()?;
    let pid = pid(&started);
    state.children.push(pid);
    Ok((started, Child(pid)))
}

impl Drop for Child {
    fn drop(&mut self) {
        state().children.retain(|pid| *pid != self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_folder_goes_while_a_thread_makes_files_in_it() {
        let folder = tempfile::tempdir().unwrap();
        let (path, made) = (folder.path().to_path_buf(), Arc::new(AtomicBool::new(false)));
        let (writer, first) = (path.clone(), made.clone());
        let writes = std::thread::spawn(move || {
            // So many that the folder is not empty when a first try to remove it ends.
            for number in 0..20_000 {
                if std::fs::write(writer.join(format!("{number}")), "data").is_err() {
                    break;
                }
                first.store(true, Ordering::SeqCst);
            }
        });
        until(|| made.load(Ordering::SeqCst));
        Left::Path(path.clone()).remove();
        writes.join().unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn a_killed_child_has_ended_and_can_still_be_waited_for() {
        let start = || std::process::Command::new("sleep").arg("60").spawn();
        let (mut child, guard) = child_of(start, std::process::Child::id).unwrap();
        let pid = Pid::from_raw(child.id() as i32);
        kill(pid, Signal::SIGKILL).unwrap();
        await_end(pid);
        drop(guard);
        assert!(child.try_wait().unwrap().is_some(), "it has ended");
    }
}
