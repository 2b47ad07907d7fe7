//! The thread that drives an engine: its clock, signals, core, nice value and scheduling.

use crate::Mode;
use crate::engine::cores::Placement;
use std::io;

/// Nanoseconds of CLOCK_MONOTONIC.
pub(crate) fn clock() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the timespec is valid for the write; the clock is one that every Linux has.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Bytes of a core's second-level cache; if the system does not report it, the size of a common core's.
pub(crate) fn cache_size() -> u32 {
    let told = |index: u32| {
        let read = |what| {
            std::fs::read_to_string(format!("/sys/devices/system/cpu/cpu0/cache/index{index}/{what}")).ok()
        };
        let size = read("size").filter(|_| read("level").is_some_and(|level| level.trim() == "2"))?;
        // "2048K"
        size.trim().strip_suffix('K')?.parse::<u32>().ok()?.checked_mul(1024)
    };
    (0..8).find_map(told).unwrap_or(1 << 20)
}

/// Prepares the calling thread to be an engine's: signals are for the application's threads, and a broken
/// pipe is an error of one transfer, not of the process.
pub(crate) fn prepare(place: &Placement, nice: Option<i8>) -> io::Result<()> {
    block_signals();
    bind_to(&place.cpus);
    place.node.map_or(Ok(()), prefer_node)?;
    nice.map_or(Ok(()), be_nice)
}

/// Memory that this thread touches first comes from that NUMA node, as long as it has some.
fn prefer_node(node: u32) -> io::Result<()> {
    const BITS: u32 = usize::BITS;
    let mut nodes = vec![0usize; (node / BITS) as usize + 1];
    nodes[(node / BITS) as usize] = 1 << (node % BITS);
    // The kernel takes the number for one more than it reads (get_nodes in mm/mempolicy.c).
    let count = nodes.len() * BITS as usize + 1;
    // SAFETY: set_mempolicy(2) reads as many bits as it is told, all of which are there, and changes only
    // this thread.
    let failed =
        unsafe { libc::syscall(libc::SYS_set_mempolicy, libc::MPOL_PREFERRED, nodes.as_ptr(), count) != 0 };
    if failed { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn be_nice(level: i8) -> io::Result<()> {
    // SAFETY: no memory is involved. On Linux, 0 means the calling thread.
    match unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, level.into()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Has the calling thread run in time: in real time if that is allowed. Its children, including the kernel's
/// io_uring workers, are ordinary.
pub(crate) fn in_time(mode: Mode) -> io::Result<()> {
    if mode == Mode::Off {
        return Ok(());
    }
    let parameters = libc::sched_param { sched_priority: 1 };
    let policy = libc::SCHED_RR | libc::SCHED_RESET_ON_FORK;
    // SAFETY: the parameters are valid for the read; 0 means the calling thread.
    if unsafe { libc::sched_setscheduler(0, policy, &parameters) } == 0 {
        return Ok(());
    }
    if mode == Mode::On {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: no memory is involved; it changes this thread alone, and cannot fail with such an argument.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1, 0, 0, 0) };
    Ok(())
}

fn block_signals() {
    // SAFETY: the set is initialised by sigfillset before it is used; pthread_sigmask changes only this
    // thread.
    unsafe {
        let mut set = std::mem::zeroed::<libc::sigset_t>();
        libc::sigfillset(&mut set);
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
    }
}

/// If processors do not exist or are not allowed, the scheduler chooses.
fn bind_to(cpus: &[usize]) {
    let known = cpus.iter().filter(|cpu| **cpu < libc::CPU_SETSIZE as usize);
    if known.clone().next().is_none() {
        return;
    }
    // SAFETY: cpu_set_t is plain bits, zero is the empty set; CPU_SET is given an index below its size; 0
    // means the calling thread.
    unsafe {
        let mut set = std::mem::zeroed::<libc::cpu_set_t>();
        known.for_each(|cpu| libc::CPU_SET(*cpu, &mut set));
        libc::sched_setaffinity(0, std::mem::size_of::<libc::cpu_set_t>(), &set);
    }
}

/// The processors that the calling thread may run on.
pub(crate) fn allowed() -> Vec<usize> {
    // SAFETY: cpu_set_t is plain bits, and valid for the write; 0 means the calling thread; CPU_ISSET is given
    // indices below its size.
    unsafe {
        let mut set = std::mem::zeroed::<libc::cpu_set_t>();
        libc::sched_getaffinity(0, std::mem::size_of::<libc::cpu_set_t>(), &mut set);
        (0..libc::CPU_SETSIZE as usize).filter(|cpu| libc::CPU_ISSET(*cpu, &set)).collect()
    }
}

/// While it stands, SIGPIPE and SIGXFSZ do not reach the thread that drives an engine: a pipe without a
/// reader and a file over its limit are errors of one transfer. Those that an engine's own system calls
/// raised are taken away again.
pub(crate) struct Shield {
    before: libc::sigset_t,
    /// The signals that may be taken away: those that were not pending before.
    ours: libc::sigset_t,
}

impl std::fmt::Debug for Shield {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Shield")
    }
}

impl Shield {
    pub fn raise() -> Shield {
        // SAFETY: sigset_t is plain bits and each set is initialised by sigemptyset, pthread_sigmask or
        // sigpending before it is read; pthread_sigmask changes only this thread.
        unsafe {
            let mut shield = Shield { before: std::mem::zeroed(), ours: std::mem::zeroed() };
            let (mut both, mut pending) = (std::mem::zeroed::<libc::sigset_t>(), std::mem::zeroed());
            libc::sigemptyset(&mut both);
            libc::sigemptyset(&mut shield.ours);
            for signal in [libc::SIGPIPE, libc::SIGXFSZ] {
                libc::sigaddset(&mut both, signal);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, &both, &mut shield.before);
            libc::sigpending(&mut pending);
            for signal in [libc::SIGPIPE, libc::SIGXFSZ] {
                if libc::sigismember(&pending, signal) == 0 {
                    libc::sigaddset(&mut shield.ours, signal);
                }
            }
            shield
        }
    }
}

impl Drop for Shield {
    fn drop(&mut self) {
        let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the sets were initialised by `raise`; sigtimedwait with a time of zero takes a pending
        // signal or returns at once, and the mask that is restored is this thread's own.
        unsafe {
            while libc::sigtimedwait(&self.ours, std::ptr::null_mut(), &now) > 0 {}
            libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, std::ptr::null_mut());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The policy of the calling thread's memory, and its first nodes.
    fn policy() -> (i32, usize) {
        let (mut mode, mut nodes) = (0, [0usize; 16]);
        // SAFETY: get_mempolicy(2) writes one int, and as many bits as it is told, which are there.
        let failed = unsafe {
            let bits = nodes.len() * usize::BITS as usize;
            libc::syscall(libc::SYS_get_mempolicy, &raw mut mode, nodes.as_mut_ptr(), bits, 0, 0)
        };
        assert_eq!(failed, 0, "{}", io::Error::last_os_error());
        (mode, nodes[0])
    }

    #[test]
    fn memory_comes_from_the_node_that_was_asked_for() {
        std::thread::spawn(|| match prefer_node(0) {
            Ok(()) => assert_eq!(policy(), (libc::MPOL_PREFERRED, 1)),
            // A kernel without NUMA.
            Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => println!("skipped: {error}"),
            Err(error) => panic!("{error}"),
        })
        .join()
        .unwrap();
        std::thread::spawn(|| assert!(prefer_node(1000).is_err(), "there is no such node")).join().unwrap();
    }
}
