//! The counters themselves: perf_event_open(2).

use super::Counts;
use perf_event::events::{Event, Hardware};
use perf_event::{Builder, Counter};
use std::io;

/// Events, in the order of [`Counts`].
const EVENTS: [Hardware; 4] =
    [Hardware::INSTRUCTIONS, Hardware::CPU_CYCLES, Hardware::CACHE_REFERENCES, Hardware::CACHE_MISSES];

/// Counters that are open.
pub struct Counters(Vec<Counter>);

impl Counters {
    /// Opens the counters of this thread and those that it starts from now on. Fails with the reason.
    pub fn open() -> Result<Counters, String> {
        open(EVENTS.map(Event::from)).map_err(|error| format!("perf_event_open: {error}; {}", advice(&error)))
    }

    /// Begins to count.
    pub fn begin(&mut self) -> io::Result<()> {
        self.0.iter_mut().try_for_each(|counter| counter.reset().and_then(|()| counter.enable()))
    }

    /// Ends counting.
    pub fn end(&mut self) -> io::Result<Counts> {
        let [instructions, cycles, cache_references, cache_misses] = self.values()?[..] else {
            return Err(io::Error::other("four counters are expected"));
        };
        Ok(Counts { instructions, cycles, cache_references, cache_misses })
    }

    fn values(&mut self) -> io::Result<Vec<f64>> {
        let value = |counter: &mut Counter| {
            counter.disable()?;
            let read = counter.read_count_and_time()?;
            Ok(read.count as f64 * read.time_enabled as f64 / read.time_running.max(1) as f64)
        };
        self.0.iter_mut().map(value).collect()
    }
}

fn open(events: impl IntoIterator<Item = Event>) -> io::Result<Counters> {
    let one = |event| {
        let mut builder = Builder::new().kind(event);
        builder.inherit(true).include_kernel();
        builder.build()
    };
    events.into_iter().map(one).collect::<io::Result<_>>().map(Counters)
}

fn advice(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(nix::libc::EACCES | nix::libc::EPERM) => {
            "allow it: sysctl kernel.perf_event_paranoid=1, or run this as root"
        }
        _ => "this machine has no such counters, as most virtual machines",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use perf_event::events::Software;

    /// Events that the kernel counts itself: these are there without the processor's.
    #[test]
    fn threads_that_are_started_later_count_too() {
        let mut counters = match open([Software::PAGE_FAULTS.into(), Software::TASK_CLOCK.into()]) {
            Ok(counters) => counters,
            Err(error) => return println!("skipped: perf_event_open: {error}"),
        };
        counters.begin().unwrap();
        let touch = || {
            let mut memory = vec![0u8; 4 << 20];
            memory.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
            std::hint::black_box(&memory);
        };
        std::thread::spawn(touch).join().unwrap();
        let values = counters.values().unwrap();
        assert!(values[0] >= 8.0 && values[1] > 0.0, "{values:?}");
        // Nothing counts after the end.
        touch();
        assert_eq!(counters.values().unwrap(), values);
    }

    /// Either there are counters, and they count, or the reason says what to do.
    #[test]
    fn the_processor_counts_or_the_reason_is_told() {
        match Counters::open() {
            Ok(mut counters) => {
                counters.begin().unwrap();
                std::hint::black_box((0..1_000_000u64).fold(0, |sum, at| std::hint::black_box(sum ^ at)));
                let counts = counters.end().unwrap();
                assert!(counts.instructions > 1e6 && counts.cycles > 1e5, "{counts:?}");
            }
            Err(reason) => {
                println!("skipped: {reason}");
                assert!(reason.starts_with("perf_event_open: ") && reason.contains("; "), "{reason}");
            }
        }
    }
}
