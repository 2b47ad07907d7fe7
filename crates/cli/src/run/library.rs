//! Finds `libdcs-preload.so`, and names it to the loader.

use crate::failure::{Exit, Failure};
use crate::names::shown;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Names of the library: as installed, and as cargo builds it.
const NAMES: [&str; 2] = ["libdcs-preload.so", "libdcs_preload.so"];

/// Folders relative to the command's, then the system's.
const BESIDE: [&str; 3] = ["", "../lib", "../lib/dcs"];
const SYSTEM: [&str; 4] = ["/usr/local/lib", "/usr/lib/dcs", "/usr/lib/x86_64-linux-gnu", "/usr/lib"];

const VARIABLE: &str = "DCS_PRELOAD";

/// Returns the named library, or else the first that is found.
pub fn find(named: Option<&Path>) -> Result<PathBuf, Failure> {
    let environment = std::env::var_os(VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(path) = named.map(Path::to_path_buf).or(environment) {
        return match path.canonicalize() {
            Ok(path) if path.is_file() => Ok(path),
            Ok(_) => Err(Failure::usage(format!("{} is not a library", shown(&path)))),
            Err(error) => Err(Failure::io(shown(&path), &error)),
        };
    }
    let own = std::env::current_exe().ok().and_then(|own| Some(own.parent()?.to_path_buf()));
    let beside = own.iter().flat_map(|own| BESIDE.map(|folder| own.join(folder)));
    let folders: Vec<PathBuf> = beside.chain(SYSTEM.map(PathBuf::from)).collect();
    let files = folders.iter().flat_map(|folder| NAMES.map(|name| folder.join(name)));
    let found = files.into_iter().find_map(|file| file.canonicalize().ok().filter(|file| file.is_file()));
    found.ok_or_else(|| {
        let looked: Vec<_> = folders.iter().map(|folder| shown(&folder).to_string()).collect();
        let line = format!("found no {} in {}", NAMES[0], looked.join(", "));
        Failure::new(Exit::NotFound, line)
            .advise(format!("make build writes it to target/release; name it with --library or {VARIABLE}"))
    })
}

/// Returns the value of LD_PRELOAD: this library first, then what is already there.
pub fn preload(library: &Path) -> Result<OsString, Failure> {
    if library.as_os_str().as_bytes().iter().any(|byte| matches!(byte, b' ' | b':')) {
        let line = format!("{}: the loader does not take paths with spaces or colons", shown(library));
        return Err(Failure::usage(line).advise("put the library elsewhere, and name it with --library"));
    }
    let mut value = library.as_os_str().to_os_string();
    if let Some(before) = std::env::var_os("LD_PRELOAD").filter(|before| !before.is_empty()) {
        value.push(":");
        value.push(before);
    }
    Ok(value)
}
