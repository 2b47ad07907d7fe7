//! Finds the program, and checks that the loader would load a library into it.

use crate::failure::{Exit, Failure};
use crate::names::shown;
use nix::sys::statvfs::FsFlags;
use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Type of the program header that names the loader. Only dynamically linked programs have one.
const PT_INTERP: u32 = 3;

const SETUID: u32 = 0o4000;
const SETGID: u32 = 0o2000;

/// Extended attribute with a program's capabilities.
const CAPABILITIES: &str = "security.capability";

/// Most nested scripts that the kernel follows.
const SCRIPTS_MAX: usize = 4;

/// Returns the program, as a shell would find it.
pub fn find(name: &OsStr) -> Result<PathBuf, Failure> {
    if name.as_bytes().contains(&b'/') {
        return Ok(PathBuf::from(name));
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    let found = std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| is_executable(file));
    found.ok_or_else(|| {
        Failure::new(Exit::NotFound, format!("found no program {}", shown(name)))
            .advise("check its name, or give its path; PATH was searched")
    })
}

fn is_executable(file: &Path) -> bool {
    file.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

/// Fails if the loader would silently leave the library out of the program, or of a script's interpreter.
pub fn check(program: &Path) -> Result<(), Failure> {
    check_through(program, SCRIPTS_MAX)
}

fn check_through(program: &Path, scripts: usize) -> Result<(), Failure> {
    let metadata = program.metadata().map_err(|error| Failure::io(shown(program), &error))?;
    // A file that may be run but not read is not a script.
    let file = File::open(program).ok();
    if let Some(interpreter) = file.as_ref().and_then(interpreter) {
        // The kernel reports a missing interpreter, or scripts that are nested too deep.
        let goes_on = scripts > 0 && interpreter.exists();
        return if goes_on { check_through(&interpreter, scripts - 1) } else { Ok(()) };
    }
    if let Some(what) = gains_rights(program, &metadata) {
        let line = format!("{} {what}, so the loader leaves libdcs-preload.so out of it", shown(program));
        return Err(
            Failure::usage(line).advise("start a copy without that, as the user that it should run as")
        );
    }
    let refuse = |what: &str| {
        let line = format!("{} {what}, so it does not load libdcs-preload.so", shown(program));
        Err(Failure::usage(line).advise("dcs run needs a dynamically linked program"))
    };
    match file.as_ref().and_then(loader) {
        Some(Loader::None) => refuse("is statically linked"),
        Some(Loader::Other) => refuse("is for another architecture than the library"),
        Some(Loader::Dynamic) | None => Ok(()),
    }
}

/// Returns how the program gets rights that its user has not (AT_SECURE): then the loader takes no library from the
/// environment.
fn gains_rights(program: &Path, metadata: &Metadata) -> Option<&'static str> {
    // On such a mount, programs get none.
    let nosuid =
        nix::sys::statvfs::statvfs(program).is_ok_and(|mount| mount.flags().contains(FsFlags::ST_NOSUID));
    if nosuid || nix::sys::prctl::get_no_new_privs().unwrap_or(false) {
        return None;
    }
    let (user, group) = (nix::unistd::Uid::current(), nix::unistd::Gid::current());
    let mode = metadata.permissions().mode();
    if mode & SETUID != 0 && metadata.uid() != user.as_raw() {
        return Some("is setuid");
    }
    if mode & SETGID != 0 && metadata.gid() != group.as_raw() {
        return Some("is setgid");
    }
    // Capabilities give root nothing new.
    let mut capabilities = [0; 64];
    let has = rustix::fs::getxattr(program, CAPABILITIES, &mut capabilities[..]).is_ok();
    (has && !user.is_root()).then_some("has file capabilities")
}

/// Returns the interpreter of a script: the first word after #!.
fn interpreter(file: &File) -> Option<PathBuf> {
    let mut head = [0; 256];
    let length = file.read_at(&mut head, 0).ok()?;
    let line = head[..length].strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let word = line.trim_ascii_start().split(u8::is_ascii_whitespace).next()?;
    Some(PathBuf::from(OsStr::from_bytes(word)))
}

enum Loader {
    Dynamic,
    None,
    Other,
}

/// Reads the ELF header. Returns `None` if the file is not ELF.
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
