//! Finds the `dcs` command, and other programs of the project, to measure or to use.

use crate::failure::{Exit, Failure};
use std::path::PathBuf;

/// Returns the path of `dcs` next to this program, else the first in PATH.
pub fn find() -> Result<PathBuf, Failure> {
    find_named("dcs", "dcs-cli")
}

/// Returns the path of program `name`, which `package` builds: next to this program, else the first in PATH.
pub fn find_named(name: &str, package: &str) -> Result<PathBuf, Failure> {
    let beside = std::env::current_exe().ok().map(|own| own.with_file_name(name));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let all = beside.into_iter().chain(std::env::split_paths(&path).map(|folder| folder.join(name)));
    all.into_iter().find(|path| path.is_file()).ok_or_else(|| {
        Failure::new(Exit::NotFound, format!("{name} was found neither next to this program nor in PATH"))
            .advise(format!("build it in a source tree of dcs: cargo build --release -p {package}"))
    })
}
