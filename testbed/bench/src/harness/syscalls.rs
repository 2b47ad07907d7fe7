//! Counts the system calls of a helper process between its two marks, for all threads, by ptrace.
//!
//! A traced process is slow and its peer is not: it may find sockets ready, or not ready, more often. So this is a separate pass,
//! and its time is not used.

use nix::sys::ptrace::{self, Options};
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, getpgid};

/// No process has this number (the kernel's limit is 2^22): the call that asks for its group does nothing, and a tracer sees it.
const MARK: i32 = 0x2dc5_ca11;

/// Marks where counting begins, and where it ends.
pub fn mark() {
    // It always fails.
    let _ = getpgid(Some(Pid::from_raw(MARK)));
}

/// Returns true if a process is about to make that call.
pub fn is_mark(pid: Pid) -> bool {
    entry(pid).is_some_and(|(number, first)| are_mark(number, first))
}

/// Returns true if these are the number and the first argument of that call.
pub fn are_mark(number: u64, first: u64) -> bool {
    number == nix::libc::SYS_getpgid as u64 && first == MARK as u64
}

/// Counts a child's calls until it ends. The calling thread must do nothing else meanwhile.
pub fn count(child: u32, attached: impl FnOnce()) -> nix::Result<u64> {
    let leader = Pid::from_raw(child as i32);
    let options = Options::PTRACE_O_TRACESYSGOOD | Options::PTRACE_O_TRACECLONE | Options::PTRACE_O_EXITKILL;
    ptrace::seize(leader, options)?;
    ptrace::interrupt(leader)?;
    attached();
    let mut counting = Counting::default();
    loop {
        // __WNOTHREAD: other threads wait for their own children.
        match waitpid(None, Some(WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD))? {
            WaitStatus::Exited(pid, _) | WaitStatus::Signaled(pid, ..) if pid == leader => {
                return counting.total.ok_or(nix::Error::ENODATA);
            }
            WaitStatus::PtraceSyscall(pid) => {
                counting.see(pid);
                go_on(pid, None);
            }
            WaitStatus::PtraceEvent(pid, ..) => go_on(pid, None),
            WaitStatus::Stopped(pid, signal) => go_on(pid, Some(signal)),
            _ => {}
        }
    }
}

/// ESRCH: the child was killed meanwhile, and its end is reported next.
fn go_on(pid: Pid, signal: Option<Signal>) {
    let _ = ptrace::syscall(pid, signal);
}

#[derive(Default)]
struct Counting {
    /// Calls since the first mark.
    calls: Option<u64>,
    /// Calls up to the second mark.
    total: Option<u64>,
}

impl Counting {
    fn see(&mut self, pid: Pid) {
        match entry(pid) {
            Some((number, first)) if are_mark(number, first) => {
                self.total = self.calls;
                self.calls = Some(0);
            }
            Some(_) => self.calls = self.calls.map(|calls| calls + 1),
            None => {}
        }
    }
}

/// Returns the number and the first argument of the system call that a process is about to make; `None` if it returns from one.
#[allow(unsafe_code)]
fn entry(pid: Pid) -> Option<(u64, u64)> {
    let info = ptrace::syscall_info(pid).ok()?;
    if info.op != nix::libc::PTRACE_SYSCALL_INFO_ENTRY {
        return None;
    }
    // SAFETY: `op` says that the kernel filled `entry`.
    let entry = unsafe { info.u.entry };
    Some((entry.nr, entry.args[0]))
}
