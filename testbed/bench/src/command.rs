//! The `dcs` command, for what is measured or used through it.

use crate::failure::{Exit, Failure};
use std::path::PathBuf;

/// The one beside this program, else the first in PATH.
pub fn find() -> Result<PathBuf, Failure> {
    find_named("dcs", "dcs-cli")
}

/// The same of another program, of that package.
pub fn find_named(name: &str, package: &str) -> Result<PathBuf, Failure> {
    let beside = std::env::current_exe().ok().map(|own| own.with_file_name(name));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let all = beside.into_iter().chain(std::env::split_paths(&path).map(|folder| folder.join(name)));
    all.into_iter().find(|path| path.is_file()).ok_or_else(|| {
        Failure::new(Exit::NotFound, format!("there is no {name} beside this program, nor in PATH"))
            .advise(format!("build it in a source tree of dcs: cargo build --release -p {package}"))
    })
}
