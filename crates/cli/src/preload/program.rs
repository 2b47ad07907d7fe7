//! Finding the program, and whether the loader would load a library into it.

use crate::failure::{Exit, Failure};
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// A program header that names the loader: only dynamically linked programs have it.
const PT_INTERP: u32 = 3;

const SETUID: u32 = 0o4000;
const SETGID: u32 = 0o2000;

/// The program, as a shell would find it.
pub fn find(name: &OsStr) -> Result<PathBuf, Failure> {
    if name.as_bytes().contains(&b'/') {
        return Ok(PathBuf::from(name));
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    let found = std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| is_executable(file));
    found.ok_or_else(|| {
        Failure::new(Exit::NotFound, format!("there is no program {}", name.display()))
            .advise("check its name, or give its path; PATH was searched")
    })
}

fn is_executable(file: &Path) -> bool {
    file.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

/// Fails where the loader would silently leave the library out.
pub fn check(program: &Path) -> Result<(), Failure> {
    let failed = |error| Failure::io(program.display(), &error);
    let metadata = program.metadata().map_err(failed)?;
    let refuse = |what: &str| {
        let line = format!("{} {what}, so it does not load libdcs-preload.so", program.display());
        Err(Failure::usage(line))
    };
    let (own_user, own_group) = (nix::unistd::Uid::current().as_raw(), nix::unistd::Gid::current().as_raw());
    let mode = metadata.permissions().mode();
    if mode & SETUID != 0 && metadata.uid() != own_user || mode & SETGID != 0 && metadata.gid() != own_group {
        return refuse("is setuid or setgid")
            .map_err(|failure: Failure| failure.advise("run it as the user that it changes to"));
    }
    // One that may be run and not read is left to the system.
    let Ok(file) = File::open(program) else { return Ok(()) };
    match loader(&file) {
        Some(Loader::None) => refuse("is statically linked"),
        Some(Loader::Other) => refuse("is for another kind of machine than the library"),
        // A script, whose interpreter loads it.
        Some(Loader::Dynamic) | None => Ok(()),
    }
}

enum Loader {
    Dynamic,
    None,
    Other,
}

/// What the ELF header says; nothing for what is no ELF file.
fn loader(file: &File) -> Option<Loader> {
    let mut header = [0; 64];
    file.read_exact_at(&mut header, 0).ok()?;
    if header[..4] != *b"\x7fELF" {
        return None;
    }
    let own = [2, if cfg!(target_endian = "little") { 1 } else { 2 }];
    if header[4..6] != own {
        return Some(Loader::Other);
    }
    let half = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
    let table = u64::from_ne_bytes(header[32..40].try_into().ok()?);
    let (size, count) = (u64::from(half(54)), u64::from(half(56)));
    for entry in 0..count {
        let mut kind = [0; 4];
        file.read_exact_at(&mut kind, table.checked_add(entry * size)?).ok()?;
        if u32::from_ne_bytes(kind) == PT_INTERP {
            return Some(Loader::Dynamic);
        }
    }
    Some(Loader::None)
}
