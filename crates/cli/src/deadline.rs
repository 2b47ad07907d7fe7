//! Ends the command at `--timeout`, or at a signal, whatever the kernel does.
//!
//! A call into a file system that is frozen, or whose server is gone, may never return, and the process that made it
//! cannot end before: not by itself, and not when killed. So a command with a time limit is two processes. The second
//! does the work. Each of its steps sets beforehand the message for the case that it does not end in time, and a thread
//! prints it. The first process ends when it reads the exit code, and leaves the second to the kernel. It passes
//! signals on. If it is stopped, the second stops too, which it can only find out by polling.

use crate::failure::{Exit, Failure};
use crate::interrupt;
use crate::report::Report;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork, getpid, getppid};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Time for cleaning up, once the command has ended or has a limit of its own.
const GRACE: Duration = Duration::from_secs(2);
/// Signals that end a command in order. The first process passes them on.
const SIGNALS: [Signal; 3] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];

/// Interval at which the second process checks whether the first is stopped.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

static STATE: Mutex<State> =
    Mutex::new(State { first: None, limit: None, end: None, step: None, left: None });
static CHANGED: Condvar = Condvar::new();

struct State {
    /// Connection to the first process; `None` if there is only one.
    first: Option<UnixStream>,
    /// Limit of `--timeout`.
    limit: Option<Duration>,
    /// Time at which the command must end.
    end: Option<Instant>,
    /// Deadline of the current step, if it has one, and the ending if it is missed.
    step: Option<(Option<Instant>, Ending)>,
    /// File that is removed if the command fails.
    left: Option<String>,
}

enum Ending {
    /// A step that did not end.
    Late(Late),
    Failed(Box<Failure>),
    /// An exit code, after all messages.
    Code(u8),
}

/// Report on a step that did not end.
pub struct Late {
    name: String,
    state: String,
    advice: &'static str,
}

impl Late {
    pub fn advise(self, advice: &'static str) -> Late {
        Late { advice, ..self }
    }

    fn failure(&self, interrupted: bool) -> Failure {
        let (exit, why, advice) = match interrupted {
            true => (Exit::Interrupted, "interrupted", "check that its file system answers"),
            false => (Exit::Timeout, "out of time", self.advice),
        };
        Failure::new(exit, format!("{}: {why}; {}", self.name, self.state)).advise(advice)
    }
}

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(|error| error.into_inner())
}

/// Splits the command into two processes, and returns in the second. Call it before there are threads.
#[allow(unsafe_code)]
pub fn begin(timeout: Duration, report: Report) -> io::Result<()> {
    let (told, tells) = UnixStream::pair()?;
    let mut signals = SigSet::from_iter(SIGNALS);
    signals.add(Signal::SIGCHLD);
    signals.add(Signal::SIGCONT);
    let before = signals.thread_swap_mask(nix::sys::signal::SigmaskHow::SIG_BLOCK)?;
    let first = getpid();
    // SAFETY: there is one thread, so no other holds a lock.
    if let ForkResult::Parent { child } = unsafe { fork() }? {
        drop(tells);
        wait_for(child, &told, &signals);
    }
    drop(told);
    before.thread_set_mask()?;
    set_pdeathsig(Signal::SIGKILL)?;
    if getppid() != first {
        return Err(io::ErrorKind::Interrupted.into());
    }
    let mut passed_on = tells.try_clone()?;
    {
        let mut state = state();
        (state.first, state.limit) = (Some(tells), Some(timeout));
    }
    interrupt::on_end(interrupted, over);
    std::thread::Builder::new().name("dcs-deadline".into()).spawn(move || watch(&report))?;
    std::thread::Builder::new().name("dcs-signals".into()).spawn(move || {
        while passed_on.read_exact(&mut [0]).is_ok() {
            interrupt::passed_on();
        }
    })?;
    std::thread::Builder::new().name("dcs-stops".into()).spawn(move || stop_with(first))?;
    Ok(())
}

/// Stops this process whenever the first is stopped (SIGSTOP). The first continues it later.
fn stop_with(first: Pid) {
    while let Ok(stat) = std::fs::read_to_string(format!("/proc/{first}/stat")) {
        // The state comes after the name, which may have any characters: proc_pid_stat(5).
        if stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('T')) {
            let _ = kill(getpid(), Signal::SIGSTOP);
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Runs the first process: waits for the second, and ends as that does or as it reports.
fn wait_for(child: Pid, mut told: &UnixStream, signals: &SigSet) -> ! {
    let signals = SignalFd::with_flags(signals, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK);
    let (mut code, mut silent) = (None, false);
    loop {
        let left = code.map(|(_, at): (u8, Instant)| at.saturating_duration_since(Instant::now()));
        let limit = left.and_then(|left| PollTimeout::try_from(left).ok()).unwrap_or(PollTimeout::NONE);
        let mut fds: Vec<PollFd<'_>> = Vec::new();
        fds.extend(signals.iter().map(|signals| PollFd::new(signals.as_fd(), PollFlags::POLLIN)));
        if code.is_none() && !silent {
            fds.push(PollFd::new(told.as_fd(), PollFlags::POLLIN));
        }
        let _ = poll(&mut fds, limit);
        let has_told = fds.len() == 2 && fds[1].any().unwrap_or(false);
        if has_told {
            let mut byte = [0];
            match told.read(&mut byte) {
                Ok(1) => code = Some((byte[0], Instant::now() + GRACE)),
                _ => silent = true,
            }
        }
        match waitpid(child, Some(WaitPidFlag::WNOHANG | WaitPidFlag::WUNTRACED)) {
            Ok(WaitStatus::Exited(_, code)) => leave(code),
            Ok(WaitStatus::Signaled(_, signal, _)) => leave(128 + signal as i32),
            // The child stopped itself for this process, which is running again.
            Ok(WaitStatus::Stopped(_, Signal::SIGSTOP)) => _ = kill(child, Signal::SIGCONT),
            _ => {}
        }
        if let Some((code, _)) = code.filter(|(_, at)| Instant::now() >= *at) {
            leave(code.into());
        }
        while let Some(signal) = signals.as_ref().ok().and_then(|signals| signals.read_signal().ok()?) {
            match Signal::try_from(signal.ssi_signo as i32) {
                Ok(Signal::SIGCHLD) => {}
                Ok(Signal::SIGCONT) => _ = kill(child, Signal::SIGCONT),
                // A terminal sends it to both.
                _ if signal.ssi_code > 0 => {}
                _ => _ = told.write_all(&[signal.ssi_signo as u8]),
            }
        }
    }
}

/// Ends this process without waiting for its other threads.
#[allow(unsafe_code)]
fn leave(code: i32) -> ! {
    // SAFETY: nothing runs in this process afterwards.
    unsafe { libc::_exit(code) }
}

/// Prints the message of a step that is too late.
fn watch(report: &Report) {
    let mut state = state();
    loop {
        let now = Instant::now();
        state = match &state.step {
            None | Some((None, _)) => CHANGED.wait(state).unwrap_or_else(|error| error.into_inner()),
            Some((Some(at), _)) if *at > now => {
                let left = *at - now;
                CHANGED.wait_timeout(state, left).unwrap_or_else(|error| error.into_inner()).0
            }
            Some((Some(_), ending)) => {
                let code = match ending {
                    Ending::Late(late) => {
                        report.failure(&late.failure(false));
                        Exit::Timeout as u8
                    }
                    Ending::Failed(failure) => {
                        report.failure(failure);
                        failure.exit as u8
                    }
                    Ending::Code(code) => *code,
                };
                report_expiry(&state, code);
                leave(code.into());
            }
        };
    }
}

/// Tells the first process how this one ends. By then all output is written.
fn report_expiry(state: &State, code: u8) {
    if let Some(first) = &state.first {
        let_go(first.as_raw_fd());
        let mut first = first;
        let _ = first.write_all(&[code]);
    }
}

/// Closes pipes and sockets, which a process that cannot end would keep open.
#[allow(unsafe_code)]
fn let_go(first: RawFd) {
    let link = |fd: RawFd| std::fs::read_link(format!("/proc/self/fd/{fd}")).ok();
    let (Ok(null), Ok(all)) =
        (File::options().read(true).write(true).open("/dev/null"), std::fs::read_dir("/proc/self/fd"))
    else {
        return;
    };
    let kept = link(first);
    let numbers = all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    for fd in numbers.collect::<Vec<RawFd>>() {
        let is_stream = |path: &Path| {
            let name = path.to_string_lossy();
            name.starts_with("pipe:") || name.starts_with("socket:")
        };
        if link(fd).is_some_and(|path| is_stream(&path) && Some(&path) != kept.as_ref()) {
            // SAFETY: nothing in this process uses that descriptor any more. It stays open, so its number is not
            // reused.
            unsafe { libc::dup2(null.as_raw_fd(), fd) };
        }
    }
}

/// Ends the command: nothing is printed any more, however long the process takes to end.
pub fn over(code: u8) {
    let state = state();
    report_expiry(&state, code);
    std::mem::forget(state);
}

/// Sets the step: opening a file.
pub fn opening(name: &str) {
    {
        let mut state = state();
        state.end = state.limit.map(|timeout| Instant::now() + timeout);
    }
    step(|| {
        late(name, "it is not open yet")
            .advise("check that its file system answers; opening a FIFO waits until its other end is opened")
    });
}

/// Exempts what follows from the limit, because it has its own or none.
pub fn free() {
    set(None::<(Option<Instant>, fn() -> Ending)>);
}

/// Sets the step: a transfer with that limit.
pub fn transfer(timeout: Option<Duration>, name: &str) {
    state().end = timeout.map(|timeout| Instant::now() + timeout);
    delayed(|| late(name, "a file system does not answer, and the transfer has not stopped"));
}

/// Sets the step after a transfer, which has the rest of the time.
pub fn delivered(name: &str) {
    delayed(|| late(name, "all bytes had been delivered, but the transfer does not end"));
}

/// Reports a failed transfer. The message must not wait for cleaning up.
pub fn failed(failure: &Failure) {
    let said = Failure::new(failure.exit, failure.line.clone());
    let advice = match (&state().left, &failure.advice) {
        (Some(left), _) => Some(stays(left)),
        (None, advice) => advice.clone(),
    };
    let ending = || Ending::Failed(Box::new(Failure { advice, ..said }));
    set(Some((Some(Instant::now() + GRACE), ending)));
}

/// Ends the command at a signal, while no transfer runs. The message must not wait for cleaning up.
fn interrupted() {
    let mut state = state();
    if state.first.is_none() {
        return;
    }
    let at = Some(Instant::now() + GRACE);
    let ending = match state.step.take() {
        Some((_, Ending::Late(late))) => Ending::Failed(Box::new(late.failure(true))),
        Some((_, ending)) => ending,
        None => {
            let failure = Failure::new(Exit::Interrupted, "interrupted; no transfer was under way");
            let advice = state.left.as_deref().map(stays);
            Ending::Failed(Box::new(advice.into_iter().fold(failure, Failure::advise)))
        }
    };
    state.step = Some((at, ending));
    CHANGED.notify_all();
}

fn stays(left: &str) -> String {
    format!("its file system does not answer: {left} may stay")
}

/// Sets the file that is removed if the command fails; `None` for none.
pub fn leaves(left: Option<String>) {
    state().left = left;
}

/// Ends the command, after all messages.
pub fn done(code: u8) {
    let mut state = state();
    if state.first.is_some() {
        state.step = Some((Some(Instant::now() + GRACE), Ending::Code(code)));
        CHANGED.notify_all();
    }
}

/// Begins a step, which may take the rest of the time. If it takes longer, or a signal comes and it does not end, this
/// is printed.
pub fn step(late: impl FnOnce() -> Late) {
    let end = state().end;
    set(Some((end, || Ending::Late(late()))));
}

/// Begins a step like [`step`], for work that ends by itself at the limit if it can.
fn delayed(late: impl FnOnce() -> Late) {
    let end = state().end.map(|end| end + GRACE);
    set(Some((end, || Ending::Late(late()))));
}

fn set(step: Option<(Option<Instant>, impl FnOnce() -> Ending)>) {
    let mut state = state();
    if state.first.is_some() {
        state.step = step.map(|(at, ending)| (at, ending()));
        CHANGED.notify_all();
    }
}

/// Makes the report of a step of this file, or this transfer, that did not end, with the file's state.
pub fn late(name: &str, state: &str) -> Late {
    Late {
        name: name.to_string(),
        state: state.to_string(),
        advice: "check that its file system answers, or give more time",
    }
}
