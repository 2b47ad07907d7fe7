//! Key files, and the sources of a file's first counter block.

use std::io::Read;
use std::path::Path;

/// Bytes of an AES-256 key.
const KEY_SIZE: usize = 32;

/// Most bytes of a key file, even one of digits with white space around them.
const FILE_MAX: u64 = 4096;

/// Source of a file's first counter block. One counter for several files under one key reveals all of them to anybody
/// who has two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FirstCounter {
    /// Extended attribute of the file: 16 bytes, or 32 hexadecimal digits.
    Attribute(String),
    /// A fixed counter block, which is right for one file only.
    Fixed([u8; 16]),
}

impl FirstCounter {
    /// Parses `xattr:NAME`, or 32 hexadecimal digits.
    pub fn parse(text: &str) -> Option<FirstCounter> {
        match text.strip_prefix("xattr:") {
            Some(name) if name.starts_with("user.") && !name.contains('\0') => {
                Some(FirstCounter::Attribute(name.to_string()))
            }
            Some(_) => None,
            None => counter(text.as_bytes()).map(FirstCounter::Fixed),
        }
    }
}

/// Parses a counter block: 16 bytes, or 32 hexadecimal digits with white space around them.
pub fn counter(value: &[u8]) -> Option<[u8; 16]> {
    <[u8; 16]>::try_from(value).ok().or_else(|| from_hex(value.trim_ascii())?.try_into().ok())
}

/// Reads a key file.
///
/// # Errors
///
/// Returns a sentence that names the file.
pub fn read(path: &Path) -> Result<[u8; KEY_SIZE], String> {
    let failed = |error: std::io::Error| format!("key file {}: {error}", path.display());
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(failed)?;
    file.take(FILE_MAX).read_to_end(&mut bytes).map_err(failed)?;
    parse(bytes).map_err(|length| {
        format!(
            "the key in {} has {length} bytes; aes256-ctr takes {KEY_SIZE} (openssl rand -hex {KEY_SIZE})",
            path.display()
        )
    })
}

/// Parses a key file: raw bytes, or hexadecimal digits with white space around them.
///
/// # Errors
///
/// Returns the number of the key's bytes if it is wrong.
pub fn parse(bytes: Vec<u8>) -> Result<[u8; KEY_SIZE], usize> {
    let text = bytes.trim_ascii();
    // A file of digits only is text: no random key of 32 bytes looks like that.
    let decoded = if text.len() >= KEY_SIZE { from_hex(text) } else { None };
    decoded.unwrap_or(bytes).try_into().map_err(|key: Vec<u8>| key.len())
}

fn from_hex(text: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: u8| (byte as char).to_digit(16).map(|digit| digit as u8);
    if !text.len().is_multiple_of(2) {
        return None;
    }
    text.chunks_exact(2).map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?)).collect()
}
