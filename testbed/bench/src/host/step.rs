//! Counts instructions and system calls of a child process between its two marks by single-stepping with ptrace.
//!
//! Handles one thread only: an engine driven by its caller has no other. A string instruction with a repeat prefix counts once.

use crate::harness::syscalls;
use nix::sys::ptrace::{self, Options};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

/// Counts from the stepping.
#[derive(Debug, Default)]
pub struct Steps {
    pub instructions: u64,
    /// Instructions by the file that contains the code: the program, libc, the vDSO.
    pub objects: BTreeMap<String, u64>,
    /// System calls by number.
    pub calls: BTreeMap<u64, u64>,
}

/// The `syscall` instruction in machine code.
#[cfg(target_arch = "x86_64")]
const SYSCALL: i64 = 0x050f;

/// Follows a child process to its end. `attached` is called when the child may run.
pub fn count(child: u32, attached: impl FnOnce()) -> nix::Result<Steps> {
    let pid = Pid::from_raw(child as i32);
    ptrace::seize(pid, Options::PTRACE_O_TRACESYSGOOD | Options::PTRACE_O_EXITKILL)?;
    ptrace::interrupt(pid)?;
    attached();
    reach_mark(pid)?;
    let steps = step_to_mark(pid)?;
    ptrace::detach(pid, None)?;
    Ok(steps)
}

/// Runs at full speed, from system call to system call, to a mark.
fn reach_mark(pid: Pid) -> nix::Result<()> {
    loop {
        match waitpid(pid, None)? {
            WaitStatus::PtraceSyscall(_) if syscalls::is_mark(pid) => return Ok(()),
            WaitStatus::PtraceSyscall(_) | WaitStatus::PtraceEvent(..) => ptrace::syscall(pid, None)?,
            WaitStatus::Stopped(_, signal) => ptrace::syscall(pid, Some(signal))?,
            WaitStatus::Exited(..) | WaitStatus::Signaled(..) => return Err(nix::Error::ESRCH),
            _ => {}
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn step_to_mark(pid: Pid) -> nix::Result<Steps> {
    use nix::sys::signal::Signal;

    let objects = objects(pid);
    // For each address: whether it is a system call, and the object it is in.
    let mut known: HashMap<u64, (bool, usize)> = HashMap::new();
    let mut by_object = vec![0; objects.len() + 1];
    let mut steps = Steps::default();
    let (mut signal, mut before) = (None, 0);
    loop {
        ptrace::step(pid, signal.take())?;
        match waitpid(pid, None)? {
            WaitStatus::Stopped(_, Signal::SIGTRAP) => {}
            WaitStatus::Stopped(_, other) => {
                signal = Some(other);
                continue;
            }
            _ => return Err(nix::Error::ESRCH),
        }
        let registers = ptrace::getregs(pid)?;
        let address = registers.rip;
        // Another iteration of a repeated instruction, already counted.
        if address == before {
            continue;
        }
        before = address;
        let (is_call, object) = match known.get(&address) {
            Some(known) => *known,
            None => {
                let code = ptrace::read(pid, address as ptrace::AddressType)?;
                let object = objects.iter().position(|(range, _)| range.contains(&address));
                *known.entry(address).or_insert((code & 0xffff == SYSCALL, object.unwrap_or(objects.len())))
            }
        };
        if is_call {
            if syscalls::are_mark(registers.rax, registers.rdi) {
                break;
            }
            *steps.calls.entry(registers.rax).or_default() += 1;
        }
        steps.instructions += 1;
        by_object[object] += 1;
    }
    for (at, count) in by_object.into_iter().enumerate().filter(|(_, count)| *count > 0) {
        let name = objects.get(at).map_or("elsewhere", |(_, name)| name);
        *steps.objects.entry(name.to_string()).or_default() += count;
    }
    Ok(steps)
}

#[cfg(not(target_arch = "x86_64"))]
fn step_to_mark(_pid: Pid) -> nix::Result<Steps> {
    Err(nix::Error::ENOSYS)
}

/// Returns the files that the code of the process is from, by address.
#[cfg(target_arch = "x86_64")]
fn objects(pid: Pid) -> Vec<(Range<u64>, String)> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let line = |line: &str| {
        let mut words = line.split_whitespace();
        let (range, permissions) = (words.next()?, words.next()?);
        let (from, to) = range.split_once('-')?;
        let name = words.nth(3)?.rsplit('/').next()?.to_string();
        let hex = |digits: &str| u64::from_str_radix(digits, 16).ok();
        permissions.contains('x').then_some((hex(from)?..hex(to)?, name))
    };
    maps.lines().filter_map(line).collect()
}
