//! Jobs and contenders.

use crate::harness::contender::Named;
use clap::ValueEnum;

/// A job to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Job {
    /// Random reads of 4 KiB, many in flight
    Random,
    /// Random reads of 4 KiB, one at a time
    Latency,
    /// Sequential reads of 128 KiB
    Read,
    /// Sequential writes of 128 KiB
    Write,
    /// Random reads of 4 KiB from a drive in memory
    Memory,
    /// 16 drives whose guests do nothing
    Idle,
}

/// A program that does the jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contender {
    Fio,
    Drive,
    Polled,
    Bells,
    Awake,
}

impl Named for Contender {
    const ALL: &'static [(Contender, &'static str, &'static str)] = &[
        (Contender::Fio, "fio", "fio's io_uring engine on the file, O_DIRECT"),
        (Contender::Drive, "drive", "a drive of dcs csd run; the driver sleeps until an interrupt"),
        (Contender::Polled, "polled", "the same; the driver looks for completions"),
        (
            Contender::Awake,
            "awake",
            "the same as polled; the process looks for work for 1 ms before it sleeps",
        ),
        (Contender::Bells, "bells", "the same as polled, without shadow doorbells"),
    ];
}

impl Job {
    pub const ALL: [Job; 6] = [Job::Random, Job::Latency, Job::Read, Job::Write, Job::Memory, Job::Idle];

    pub fn name(self) -> String {
        self.to_possible_value().map_or(String::new(), |value| value.get_name().to_string())
    }

    /// Returns the bytes of a command.
    pub fn bytes(self) -> u64 {
        match self {
            Job::Random | Job::Latency | Job::Memory | Job::Idle => 4096,
            Job::Read | Job::Write => 128 << 10,
        }
    }

    /// Returns the third of the file that the job uses, `None` if it uses no file.
    pub fn region(self) -> Option<u64> {
        match self {
            Job::Random | Job::Latency => Some(0),
            Job::Read => Some(1),
            Job::Write => Some(2),
            Job::Memory | Job::Idle => None,
        }
    }

    pub fn contenders(self) -> &'static [Contender] {
        use Contender::{Awake, Bells, Drive, Fio, Polled};
        match self {
            Job::Random => &[Fio, Drive, Polled, Bells],
            Job::Latency => &[Fio, Drive, Polled, Awake],
            Job::Read | Job::Write => &[Fio, Drive, Polled],
            Job::Memory => &[Polled, Bells],
            Job::Idle => &[],
        }
    }

    /// Returns the job's depths, of those requested.
    pub fn depths(self, asked: &[usize]) -> Vec<usize> {
        match self {
            Job::Random | Job::Memory => asked.to_vec(),
            Job::Latency => vec![1],
            Job::Read | Job::Write => vec![8],
            Job::Idle => Vec::new(),
        }
    }
}
