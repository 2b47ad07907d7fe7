//! A run by fio: io_uring on the same part of the same file.

use super::figures::Run;
use super::job::Job;
use super::options::Options;
use super::served::Served;
use crate::s3::process::BECOME;
use serde_json::Value;
use std::io;
use std::process::{Command, Stdio};

/// Returns true if fio is installed.
pub fn is_there() -> bool {
    let version = Command::new("fio").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    version.is_ok_and(|status| status.success())
}

pub fn run(job: Job, depth: usize, options: &Options, served: &Served<'_>) -> io::Result<Run> {
    let cores: Vec<String> = served.cores().iter().map(ToString::to_string).collect();
    let region = job.region().ok_or_else(|| io::Error::other("fio has no part in this job"))?;
    let (kind, which) = match job {
        Job::Read => ("read", "read"),
        Job::Write => ("write", "write"),
        _ => ("randread", "read"),
    };
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(BECOME).arg(cores.join(",")).arg("--").arg("fio");
    command.args(["--name=dcs", "--ioengine=io_uring", "--direct=1", "--time_based", "--lat_percentiles=1"]);
    command.args(["--output-format=json", "--ramp_time=300ms", "--randrepeat=0", "--norandommap"]);
    command.arg(format!("--filename={}", served.file()?.display()));
    command.arg(format!("--offset={}", region * served.size()));
    command.arg(format!("--size={}", served.size()));
    command.arg(format!("--rw={kind}")).arg(format!("--bs={}", job.bytes()));
    command.arg(format!("--iodepth={depth}"));
    command.arg(format!("--runtime={}ms", (options.seconds * 1000.0).round()));
    let output = command.stdin(Stdio::null()).stderr(Stdio::piped()).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let said = || io::Error::other(format!("fio: {}{text}", String::from_utf8_lossy(&output.stderr)));
    if !output.status.success() {
        return Err(said());
    }
    // fio may print messages before the JSON.
    let json = text.find('{').map(|at| &text[at..]).unwrap_or_default();
    parse(&serde_json::from_str(json)?, which).ok_or_else(said)
}

/// Returns the figures in fio's output.
fn parse(answer: &Value, which: &str) -> Option<Run> {
    let job = answer.pointer("/jobs/0")?;
    let done = job.get(which)?;
    let commands = done.get("total_ios")?.as_f64().filter(|count| *count > 0.0)?;
    let percent = job.get("usr_cpu")?.as_f64()? + job.get("sys_cpu")?.as_f64()?;
    let runtime_ms = done.get("runtime")?.as_f64()?;
    let latency = |share| {
        let nanos = done.pointer("/lat_ns/percentile")?.get(share)?.as_f64()?;
        Some(nanos / 1000.0)
    };
    Some(Run {
        per_s: done.get("iops")?.as_f64()?,
        drive_cpu_us: percent / 100.0 * runtime_ms * 1000.0 / commands,
        client_cpu_us: None,
        latency_us: latency("50.000000"),
        latency_99_us: latency("99.000000"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn fio_s_figures_are_found() {
        let answer = json!({ "jobs": [{
            "usr_cpu": 5.0, "sys_cpu": 20.0,
            "read": { "total_ios": 100_000, "runtime": 1000, "iops": 100_000.0,
                      "lat_ns": { "percentile": { "50.000000": 300_000, "99.000000": 900_000 } } },
            "write": { "total_ios": 0 },
        }] });
        let run = parse(&answer, "read").unwrap();
        assert_eq!((run.per_s, run.drive_cpu_us, run.latency_us), (100_000.0, 2.5, Some(300.0)));
        assert!(parse(&answer, "write").is_none());
    }
}
