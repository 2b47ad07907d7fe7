//! Assigns threads to cores of the outer machine.

use crate::failure::Failure;
use crate::guest::rig::Rig;
use crate::harness::process::Helper;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use std::io;
use std::process::Command;

/// Keeps the guest's processor on a core of its own, and everything else on the others, until dropped.
pub struct Pinned {
    /// Earlier cores of this process.
    before: Option<CpuSet>,
    _filler: Option<Helper>,
}

impl Pinned {
    pub fn new(rig: &Rig<'_>) -> Result<Pinned, Failure> {
        pin(rig).map_err(|error| Failure::io("cores for the guest", &error))
    }

    /// Returns the reason why the figures are unreliable, if there is one.
    pub fn missing(&self) -> Option<&'static str> {
        self.before.is_none().then_some(
            "one core only: the guest's spinners also take it from the card and QEMU's devices, so the figures describe this machine, not the designs",
        )
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            let _ = each(std::process::id(), |thread| sched_setaffinity(thread, before));
        }
    }
}

fn pin(rig: &Rig<'_>) -> io::Result<Pinned> {
    let before = sched_getaffinity(Pid::from_raw(0))?;
    let cores: Vec<usize> =
        (0..CpuSet::count()).filter(|core| before.is_set(*core).unwrap_or(false)).collect();
    let Some((own, others)) = cores.split_last().filter(|(_, others)| !others.is_empty()) else {
        return Ok(Pinned { before: None, _filler: None });
    };
    let mut rest = CpuSet::new();
    others.iter().try_for_each(|core| rest.set(*core))?;
    for process in [rig.qemu(), rig.parts.card(), std::process::id()] {
        each(process, |thread| sched_setaffinity(thread, &rest))?;
    }
    let mut alone = CpuSet::new();
    alone.set(*own)?;
    sched_setaffinity(Pid::from_raw(rig.processor.thread as i32), &alone)?;
    // Uses nice(1), which every Linux has.
    let mut filler = Command::new("nice");
    filler.args(["-n", "19"]).arg(std::env::current_exe()?).args(["bench-hog", &own.to_string()]);
    Ok(Pinned { before: Some(before), _filler: Some(Helper::spawn(&mut filler)?) })
}

/// Acts on all threads of a process. A thread that has just ended is ignored.
fn each(process: u32, act: impl Fn(Pid) -> nix::Result<()>) -> io::Result<()> {
    for task in std::fs::read_dir(format!("/proc/{process}/task"))? {
        let name = task?.file_name();
        let Some(thread) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
        match act(Pid::from_raw(thread)) {
            Err(nix::Error::ESRCH) | Ok(()) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
