//! The process's processor time and memory.

use rustix::time::{ClockId, clock_gettime};

/// Returns the seconds of processor time of all threads.
pub fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Returns the bytes of memory that the process has; 0 if the kernel does not tell.
pub fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or(0) * rustix::param::page_size() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_and_memory_are_seen() {
        let (cpu, memory) = (cpu_seconds(), resident_bytes());
        let block = vec![1_u8; 64 << 20];
        let sum: u64 = std::hint::black_box(&block).iter().map(|byte| u64::from(*byte)).sum();
        assert_eq!(sum, 64 << 20);
        assert!(cpu_seconds() > cpu);
        assert!(resident_bytes() > memory + (32 << 20));
    }
}
