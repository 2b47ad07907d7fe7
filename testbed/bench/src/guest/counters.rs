//! Counters of the guest's kernel (idle time, interrupts), and the CPU time of the process.

use super::task::Counters;
use crate::harness::connections::cpu_time;
use std::collections::BTreeMap;
use std::io;
use std::time::Instant;

/// Counters at one moment.
pub struct Snapshot {
    at: Instant,
    idle_ns: u64,
    process_ns: u64,
    interrupts: BTreeMap<String, u64>,
}

impl Snapshot {
    pub fn take() -> io::Result<Snapshot> {
        let interrupts = interrupts(&std::fs::read_to_string("/proc/interrupts")?);
        let process_ns = cpu_time()?.as_nanos() as u64;
        let idle_ns = idle()?;
        Ok(Snapshot { at: Instant::now(), idle_ns, process_ns, interrupts })
    }

    /// Returns the counts since this snapshot.
    pub fn until_now(&self) -> io::Result<Counters> {
        let now = Snapshot::take()?;
        let before = |name: &String| self.interrupts.get(name).copied().unwrap_or(0);
        let more =
            now.interrupts.iter().map(|(name, count)| (name.clone(), count.saturating_sub(before(name))));
        Ok(Counters {
            wall_ns: now.at.duration_since(self.at).as_nanos() as u64 * processors(),
            idle_ns: now.idle_ns.saturating_sub(self.idle_ns),
            process_ns: now.process_ns.saturating_sub(self.process_ns),
            interrupts: more.filter(|(_, count)| *count > 0).collect(),
        })
    }
}

/// Returns the count of interrupts from functions that processes own.
pub fn vfio_interrupts() -> io::Result<u64> {
    let all = interrupts(&std::fs::read_to_string("/proc/interrupts")?);
    Ok(all.iter().filter(|(name, _)| name.contains("vfio")).map(|(_, count)| count).sum())
}

fn processors() -> u64 {
    std::thread::available_parallelism().map_or(1, |count| count.get() as u64)
}

/// Returns the idle time of all processors: the kernel's counter behind the idle and iowait columns of /proc/stat. /proc/stat has
/// it in hundredths of a second, /proc/timer_list in nanoseconds.
fn idle() -> io::Result<u64> {
    match std::fs::read_to_string("/proc/timer_list") {
        Ok(text) if text.contains(".idle_sleeptime") => Ok(idle_of_timer_list(&text)),
        _ => idle_of_stat(&std::fs::read_to_string("/proc/stat")?).ok_or(io::ErrorKind::InvalidData.into()),
    }
}

fn idle_of_timer_list(text: &str) -> u64 {
    let value = |line: &str| {
        let (name, value) = line.trim().strip_prefix('.')?.split_once(':')?;
        let wanted = matches!(name.trim(), "idle_sleeptime" | "iowait_sleeptime");
        value.split_whitespace().next().filter(|_| wanted)?.parse::<u64>().ok()
    };
    text.lines().filter_map(value).sum()
}

/// Parses columns four and five, in hundredths of a second. [proc_stat(5)]
fn idle_of_stat(text: &str) -> Option<u64> {
    let columns = text.lines().next()?.strip_prefix("cpu ")?;
    let numbers: Vec<u64> = columns.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    Some((numbers.get(3)? + numbers.get(4)?) * 10_000_000)
}

/// Sums interrupts over processors, by name: `24 PCI-MSIX-0000:00:03.0 0-edge nvme0q0`, or `LOC`.
fn interrupts(text: &str) -> BTreeMap<String, u64> {
    let mut lines = text.lines();
    let processors = lines.next().map_or(0, |header| header.split_whitespace().count());
    let line = |line: &str| {
        let (name, rest) = line.split_once(':')?;
        let words: Vec<&str> = rest.split_whitespace().collect();
        let columns = words.iter().take(processors).take_while(|word| word.parse::<u64>().is_ok()).count();
        let sum = words[..columns].iter().filter_map(|word| word.parse::<u64>().ok()).sum();
        let numbered = name.trim().starts_with(|first: char| first.is_ascii_digit());
        let name = match numbered {
            true => format!("{} {}", name.trim(), words[columns..].join(" ")),
            false => name.trim().to_owned(),
        };
        Some((name, sum))
    };
    lines.filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupts_are_told_apart_and_summed_over_processors() {
        let text = "           CPU0       CPU1\n  4:  10  5 IO-APIC 4-edge ttyS0\n \
                    24:  1000  1 PCI-MSIX-0000:00:04.0 0-edge vfio-msix[0](0000:00:04.0)\n\
                    LOC:  7  8  Local timer interrupts\nERR:  3\n";
        let found = interrupts(text);
        assert_eq!(found["4 IO-APIC 4-edge ttyS0"], 15);
        assert_eq!(found["24 PCI-MSIX-0000:00:04.0 0-edge vfio-msix[0](0000:00:04.0)"], 1001);
        assert_eq!((found["LOC"], found["ERR"]), (15, 3));
    }

    #[test]
    fn idle_time_is_read_from_either_file() {
        assert_eq!(idle_of_stat("cpu  10 0 20 300 7 0 0 0 0 0\ncpu0 ..."), Some(3_070_000_000));
        let list = "  .idle_sleeptime : 5000 nsecs\n  .iowait_sleeptime: 70 nsecs\n .nohz : 1\n .idle_sleeptime : 1 nsecs";
        assert_eq!(idle_of_timer_list(list), 5071);
    }

    #[test]
    fn this_machine_counts_too() {
        let before = Snapshot::take().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(30));
        let counted = before.until_now().unwrap();
        assert!(counted.wall_ns >= 30_000_000 * processors());
    }
}
