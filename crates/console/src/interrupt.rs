//! Ctrl-C and SIGTERM: a transfer under way is cancelled; without one the process cleans up and ends.

use crate::failure::Exit;
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, kill, sigaction};
use nix::unistd::Pid;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock};

/// Signals that came to this process, and those that came to the one that waits for it: one that came to both
/// counts once.
static CAME: Mutex<[u32; 2]> = Mutex::new([0; 2]);
static PRESSED: AtomicBool = AtomicBool::new(false);
static EVENT: OnceLock<EventFd> = OnceLock::new();
static LAST: OnceLock<LastWords> = OnceLock::new();
static STATE: Mutex<State> =
    Mutex::new(State { transferring: false, leftovers: Vec::new(), next: 0, children: Vec::new() });

/// Told by a process that a signal ends: that it cleans up now; and its exit code.
struct LastWords {
    begin: fn(),
    end: fn(u8),
}

struct State {
    transferring: bool,
    leftovers: Vec<(u64, Left)>,
    /// The number of the next of them.
    next: u64,
    /// Processes that must not either.
    children: Vec<u32>,
}

/// Files that must not outlive the process.
enum Left {
    /// A socket's file, the demo's folder.
    Path(PathBuf),
    /// Clean-ups that only their owners know.
    Other(Box<dyn Fn() + Send>),
}

impl Left {
    fn remove(&self) {
        match self {
            Left::Path(path) if path.is_dir() => _ = std::fs::remove_dir_all(path),
            Left::Path(path) => _ = std::fs::remove_file(path),
            Left::Other(remove) => remove(),
        }
    }
}

/// Listens for signals from now on.
pub fn install() {
    outlive_file_limit();
    let Ok(event) = EventFd::from_value_and_flags(0, EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK) else {
        // Without it, a signal ends the process as it always does.
        return;
    };
    if EVENT.set(event).is_ok() {
        let _ = ctrlc::set_handler(on_signal);
    }
}

/// Past RLIMIT_FSIZE a call fails, and the failure is told; SIGXFSZ would end the process first, with its
/// half file left behind. A handler, since children would inherit that the signal is ignored.
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

/// The process that waits for this one got a signal.
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

/// On a thread that is for signals, so it may lock and allocate.
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
    for pid in &state.children {
        // One that has just ended is not yet waited for: the number is nobody else's.
        let _ = kill(Pid::from_raw(*pid as i32), Signal::SIGKILL);
    }
    state.leftovers.iter().for_each(|(_, left)| left.remove());
    let _ = writeln!(std::io::stderr(), "dcs: interrupted; no transfer was under way");
    if let Some(LastWords { end, .. }) = LAST.get() {
        end(Exit::Interrupted as u8);
    }
    std::process::exit(Exit::Interrupted as i32);
}

/// A signal came.
pub fn pressed() -> bool {
    PRESSED.load(Ordering::SeqCst)
}

/// Readable once a signal came that a transfer has to answer.
pub fn event() -> Option<BorrowedFd<'static>> {
    EVENT.get().map(|event| event.as_fd())
}

/// While this lives, a first signal cancels the transfer instead of ending the process.
pub struct Transferring(());

/// A transfer begins.
pub fn transferring() -> Transferring {
    state().transferring = true;
    Transferring(())
}

impl Drop for Transferring {
    fn drop(&mut self) {
        state().transferring = false;
    }
}

/// While this lives, a signal that ends the process removes something first.
pub struct Leftover(u64);

/// Such a path.
pub fn leftover(path: &Path) -> Leftover {
    state().leave(Left::Path(path.to_path_buf()))
}

/// As [`leftover`], of a path that `make` makes, in no time: no signal is answered in between.
pub fn leftover_of<T, E>(path: &Path, make: impl FnOnce() -> Result<T, E>) -> Result<(T, Leftover), E> {
    let mut state = state();
    let made = make()?;
    Ok((made, state.leave(Left::Path(path.to_path_buf()))))
}

/// As [`leftover`], by a way of its own.
pub fn leftover_by(remove: impl Fn() + Send + 'static) -> Leftover {
    state().leave(Left::Other(Box::new(remove)))
}

/// Has a signal's end of the process told: before it cleans up, which may wait for a file system; and its
/// exit code.
pub fn tell_end(begin: fn(), end: fn(u8)) {
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

/// While this lives, a signal that ends the process ends this child first. To be dropped before the child is
/// waited for.
pub struct Child(u32);

/// Such a child.
pub fn child(pid: u32) -> Child {
    state().children.push(pid);
    Child(pid)
}

impl Drop for Child {
    fn drop(&mut self) {
        state().children.retain(|pid| *pid != self.0);
    }
}
