//! CPU time of other processes, and of the kernel's own threads.

use nix::time::{ClockId, clock_getcpuclockid, clock_gettime};
use nix::unistd::{Pid, SysconfVar, sysconf};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// `PF_KTHREAD` of `linux/sched.h`.
const IS_KERNEL_THREAD: u64 = 0x0020_0000;

/// Returns the CPU time of all threads of a process, living and ended, including io_uring's workers, which are its threads.
pub fn cpu_of(pid: u32) -> io::Result<Duration> {
    let clock: ClockId = clock_getcpuclockid(Pid::from_raw(pid as i32))?;
    Ok(clock_gettime(clock)?.into())
}

/// Returns all processes, each with its parent.
fn parents() -> Vec<(u32, u32)> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // Field 4; a process that has just ended has none.
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        if let Some(parent) = fields(&stat).get(4 - 3).and_then(|parent| parent.parse().ok()) {
            found.push((pid, parent));
        }
    }
    found
}

/// CPU time by process: of a process, and of its children if they count.
#[derive(Debug, Default)]
pub struct Account(BTreeMap<u32, Duration>);

impl Account {
    /// Takes the account of a process without its children.
    pub fn alone(pid: u32) -> io::Result<Account> {
        Ok(Account(BTreeMap::from([(pid, cpu_of(pid)?)])))
    }

    /// Takes the account of a process and all its descendants.
    pub fn of(root: u32) -> io::Result<Account> {
        let mut account = Account::alone(root)?;
        for pid in family(root) {
            // A process that has just ended loses its time since the last mark.
            if let Ok(time) = cpu_of(pid) {
                account.0.insert(pid, time);
            }
        }
        Ok(account)
    }

    /// Returns the time since then.
    pub fn since(&self, earlier: &Account) -> Duration {
        let used = |(pid, time): (&u32, &Duration)| {
            time.saturating_sub(earlier.0.get(pid).copied().unwrap_or_default())
        };
        self.0.iter().map(used).sum()
    }
}

/// Returns a process and all its descendants.
pub fn family(root: u32) -> BTreeSet<u32> {
    let parents = parents();
    let mut family = BTreeSet::from([root]);
    loop {
        let before = family.len();
        let born = parents.iter().filter(|(_, parent)| family.contains(parent)).map(|(pid, _)| *pid);
        let born: Vec<u32> = born.collect();
        family.extend(born);
        if family.len() == before {
            return family;
        }
    }
}

/// The kernel's threads, which do deferred work. Some of that work is other programs'.
pub struct KernelThreads {
    stats: Vec<PathBuf>,
    ticks_per_s: f64,
}

impl KernelThreads {
    pub fn find() -> KernelThreads {
        let mut stats = Vec::new();
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let stat = entry.path().join("stat");
            if fs::read_to_string(&stat).is_ok_and(|text| is_kernel_thread(&text)) {
                stats.push(stat);
            }
        }
        let ticks = sysconf(SysconfVar::CLK_TCK).ok().flatten().unwrap_or(100);
        KernelThreads { stats, ticks_per_s: ticks as f64 }
    }

    /// Returns the CPU time so far, in steps of a clock tick.
    pub fn cpu_s(&self) -> f64 {
        let ticks =
            |stat: &PathBuf| fs::read_to_string(stat).ok().and_then(|text| ticks_of(&text)).unwrap_or(0);
        self.stats.iter().map(ticks).sum::<u64>() as f64 / self.ticks_per_s
    }
}

/// Returns the fields of `/proc/PID/stat` from the third on. The name before them may contain spaces and parentheses.
fn fields(stat: &str) -> Vec<&str> {
    stat.rsplit_once(')').map_or(Vec::new(), |(_, rest)| rest.split_whitespace().collect())
}

fn is_kernel_thread(stat: &str) -> bool {
    let flags = fields(stat).get(9 - 3).and_then(|flags| flags.parse::<u64>().ok());
    flags.is_some_and(|flags| flags & IS_KERNEL_THREAD != 0)
}

/// Sums fields 14 and 15: user mode and kernel.
fn ticks_of(stat: &str) -> Option<u64> {
    let fields = fields(stat);
    let number = |at: usize| fields.get(at - 3)?.parse::<u64>().ok();
    Some(number(14)? + number(15)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_are_found_whatever_the_name() {
        let user = "17 (a ) b) S 1 2 3 4 5 4194560 7 8 9 10 300 20 0 0 20 0 1 0 99";
        let kernel = "18 (kworker/0:1) I 2 0 0 0 -1 69238880 0 0 0 0 1 41 0 0 20 0 1 0 99";
        assert!(!is_kernel_thread(user) && is_kernel_thread(kernel));
        assert_eq!((ticks_of(user), ticks_of(kernel)), (Some(320), Some(42)));
        assert_eq!(ticks_of("nonsense"), None);
    }

    #[test]
    fn this_process_has_used_time() {
        let before = cpu_of(std::process::id()).unwrap();
        let mut sum = 0u64;
        while cpu_of(std::process::id()).unwrap() < before + Duration::from_millis(20) {
            sum = std::hint::black_box(sum + 1);
        }
        assert!(sum > 0);
    }
}
