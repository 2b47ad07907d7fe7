//! Keys from files.

use crate::failure::Failure;
use crate::names::shown;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Most bytes of a key's file, even in digits with white space around them.
const FILE_MAX: u64 = 4096;

/// Reads the key of `operator` from a file: raw bytes, or hexadecimal digits.
pub fn from_file<const N: usize>(path: &Path, operator: &str) -> Result<[u8; N], Failure> {
    fit(&shown(path).to_string(), read(path, N)?, operator)
}

/// Reads a key of this many bytes from a file.
pub fn from_file_of(path: &Path, operator: &str, size: usize) -> Result<Vec<u8>, Failure> {
    fit_to(&shown(path).to_string(), read(path, size)?, operator, size)
}

/// Checks the length of the key of `operator` that was found in `from`.
pub fn fit<const N: usize>(from: &str, bytes: Vec<u8>, operator: &str) -> Result<[u8; N], Failure> {
    bytes.try_into().map_err(|bytes: Vec<u8>| misfit(from, bytes.len(), operator, N))
}

/// Checks that a key has this many bytes.
pub fn fit_to(from: &str, bytes: Vec<u8>, operator: &str, size: usize) -> Result<Vec<u8>, Failure> {
    if bytes.len() == size { Ok(bytes) } else { Err(misfit(from, bytes.len(), operator, size)) }
}

fn misfit(from: &str, length: usize, operator: &str, wanted: usize) -> Failure {
    let line = format!("the key in {from} has {length} bytes; {operator} takes {wanted}");
    Failure::usage(line).advise(format!("make one: openssl rand -hex {wanted} > KEYFILE; chmod 600 KEYFILE"))
}

/// Reads raw bytes, or hexadecimal digits with white space around them.
fn read(path: &Path, wanted: usize) -> Result<Vec<u8>, Failure> {
    let what = format!("key file {}", shown(path));
    let failed = |error| Failure::io(&what, &error);
    let file = std::fs::File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    if metadata.is_file() && metadata.permissions().mode() & 0o077 != 0 {
        let name = shown(path);
        let _ = writeln!(std::io::stderr(), "dcs: warning: others may read {what}: chmod 600 {name}");
    }
    let mut bytes = Vec::new();
    file.take(FILE_MAX).read_to_end(&mut bytes).map_err(failed)?;
    let text = bytes.trim_ascii();
    // A file of digits only is text: no random key of 32 bytes looks like that.
    match crate::units::from_hex(text).filter(|_| text.len() >= wanted) {
        Some(decoded) => Ok(decoded),
        None => Ok(bytes),
    }
}
