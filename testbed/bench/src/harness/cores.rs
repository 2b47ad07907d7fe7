//! Cores of the processes, and the limit of open files.

use crate::failure::Failure;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::Pid;
use std::io;

/// Cores of the measured process, as people specify them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerCores {
    Some(usize),
    All,
}

impl std::str::FromStr for ServerCores {
    type Err = String;

    fn from_str(text: &str) -> Result<ServerCores, String> {
        match (text, text.parse()) {
            ("all", _) => Ok(ServerCores::All),
            (_, Ok(count)) if count > 0 => Ok(ServerCores::Some(count)),
            _ => Err("expected a number of cores, or all".into()),
        }
    }
}

/// Returns the cores of the server, and those of the client: all others, or the same if there are none.
pub fn deal(wanted: ServerCores) -> Result<(Vec<usize>, Vec<usize>), Failure> {
    let all = allowed().map_err(|error| Failure::io("affinity", &error))?;
    match wanted {
        ServerCores::Some(count) if count > all.len() => {
            Err(Failure::usage(format!("--server-cores {count}: there are {}", all.len()))
                .advise("use fewer, or all"))
        }
        ServerCores::Some(count) if count < all.len() => {
            let (client, server) = all.split_at(all.len() - count);
            Ok((server.to_vec(), client.to_vec()))
        }
        _ => Ok((all.clone(), all)),
    }
}

/// Returns the cores that this process may run on.
pub fn allowed() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(Pid::from_raw(0))?;
    Ok((0..CpuSet::count()).filter(|core| set.is_set(*core).unwrap_or(false)).collect())
}

/// Returns the remark for a server and a client on the same cores.
pub fn shared(server: &[usize], client: &[usize], who: &str) -> String {
    if server == client {
        format!(", which are the same: {who} take time from each other")
    } else {
        String::new()
    }
}

/// Keeps this process, and all that it starts, on these cores.
pub fn stay_on(cores: &[usize]) -> io::Result<()> {
    let mut set = CpuSet::new();
    cores.iter().try_for_each(|core| set.set(*core))?;
    Ok(sched_setaffinity(Pid::from_raw(0), &set)?)
}

/// Raises the limit of open files as far as permitted.
pub fn limit_files() -> io::Result<()> {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE)?;
    Ok(setrlimit(Resource::RLIMIT_NOFILE, most, most)?)
}
