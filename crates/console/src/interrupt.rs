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

static PRESSED: AtomicBool = AtomicBool::new(false);
static EVENT: OnceLock<EventFd> = OnceLock::new();
static STATE: Mutex<State> =
    Mutex::new(State { transferring: false, leftovers: Vec::new(), children: Vec::new() });

struct State {
    transferring: bool,
    /// What must not outlive the process: half files, socket files, the demo's folder.
    leftovers: Vec<PathBuf>,
    /// Processes that must not either.
    children: Vec<u32>,
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

/// Past RLIMIT_FSIZE a call fails, and the failure is told; SIGXFSZ would end the process first, with its half file left behind.
/// A handler, since children would inherit that the signal is ignored.
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

/// On a thread of its own, so it may lock and allocate.
fn on_signal() {
    let again = PRESSED.swap(true, Ordering::SeqCst);
    let state = state();
    if state.transferring && !again {
        let _ = EVENT.get().map(|event| event.write(1));
        return;
    }
    for pid in &state.children {
        // One that has just ended is not yet waited for: the number is nobody else's.
        let _ = kill(Pid::from_raw(*pid as i32), Signal::SIGKILL);
    }
    for path in &state.leftovers {
        let _ = if path.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) };
    }
    let _ = writeln!(std::io::stderr(), "dcs: interrupted; no transfer was under way");
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

/// While this lives, a signal that ends the process removes the path first.
pub struct Leftover(PathBuf);

/// Such a path.
pub fn leftover(path: &Path) -> Leftover {
    state().leftovers.push(path.to_path_buf());
    Leftover(path.to_path_buf())
}

impl Drop for Leftover {
    fn drop(&mut self) {
        state().leftovers.retain(|path| *path != self.0);
    }
}

/// While this lives, a signal that ends the process ends this child first. To be dropped before the child is waited for.
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
