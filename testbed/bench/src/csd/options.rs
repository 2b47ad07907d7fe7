//! The command line of `dcs bench csd`.

use super::job::Job;
use crate::units;
use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct Options {
    /// Jobs to measure; all by default
    #[arg(value_name = "JOB", value_enum)]
    pub jobs: Vec<Job>,
    /// Contenders; by default all that suit the job
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub contenders: Vec<String>,
    /// Queue depth, of the jobs that have several commands in flight
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = units::count::<1, 128>, default_value = "32")]
    pub depth: Vec<usize>,
    /// Bytes that each job reads or writes, again and again; the file is three times as large
    #[arg(long, value_name = "SIZE", value_parser = units::size, default_value = "256MiB")]
    pub size: u64,
    /// Measured seconds of each run, after a warm-up
    #[arg(long, value_name = "S", value_parser = units::seconds, default_value = "2")]
    pub seconds: f64,
    /// Runs of each contender; the results are medians
    #[arg(long, default_value = "3", value_parser = clap::value_parser!(u32).range(1..=99))]
    pub runs: u32,
    /// Plot the process's CPU time per command against depth
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Folder of the file, on the disk to measure
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
}

const HELP: &str = "\
Examples:
  dcs bench csd                                     # all jobs: three minutes
  dcs bench csd random --depth 1,8,32,128 --svg csd.svg --dir /mnt/nvme
  dcs bench csd memory --seconds 5 --json | jq -r '[.contender, .per_s, .drive_cpu_us] | @tsv'
  dcs bench csd idle                                # 16 drives whose guests do nothing

Jobs: random (4 KiB reads), latency (the same, one at a time), read, write (128 KiB, sequential), memory (4 KiB reads of a
drive in memory, no disk), idle. Contenders: fio (io_uring, O_DIRECT, on the same part of the same file), drive (dcs csd run, with a
guest's driver that sleeps until an interrupt), polled (the same driver polls for completions), awake (the same, and the process
polls too: dcs csd run --poll 1ms), bells (polled without shadow doorbells: each batch rings by a message). The driver is a vfio-user
client: the same as a guest's, without a virtual machine.
CPU time is that of the process that moves the data: dcs csd run, or fio (as fio reports it, including choosing offsets). The driver's
is reported separately. Ratios are to fio, within a repetition. The driver wrote all file data, and checks the first word of
each read; a write changes that word alone, as fio changes a few. Use a release build on a quiet machine; on a busy one ratios and CPU
times hold better than throughputs.
QEMU's storage daemon is not a contender: its clients of vhost-user-blk are QEMU itself and libblkio.

Exit codes: 0 measured; 1 a contender failed or delivered wrong bytes; 2 usage; 4 no space; 7 a contender that was named is not there;
130 interrupted";
