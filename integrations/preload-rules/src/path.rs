//! Converts paths to text, and back. TOML and patterns are text; a path may have any bytes but zero. Each byte that is
//! not UTF-8 becomes a private-use character: U+10FE80 to U+10FEFF, whose last two digits are the byte's.
//!
//! ```
//! use dcs_preload_rules::path;
//! use std::{ffi::OsStr, os::unix::ffi::OsStrExt};
//!
//! let name = OsStr::from_bytes(b"a\xff.txt");
//! assert_eq!(path::to_text(name), "a\u{10feff}.txt");
//! assert_eq!(path::from_text("a\u{10feff}.txt"), name);
//! ```

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

/// The character of byte 0. Those of bytes up to 7F are never used, because ASCII stands for itself.
const FIRST: u32 = 0x10fe00;

/// Returns the text of a path. Different paths have different texts.
pub fn to_text(path: &OsStr) -> String {
    let mut text = String::with_capacity(path.len());
    for chunk in path.as_bytes().utf8_chunks() {
        for char in chunk.valid().chars() {
            match byte(char) {
                None => text.push(char),
                // A character that stands for a byte elsewhere.
                Some(_) => text.extend(char.encode_utf8(&mut [0; 4]).bytes().filter_map(character)),
            }
        }
        text.extend(chunk.invalid().iter().copied().filter_map(character));
    }
    text
}

/// Returns the path that a text stands for.
pub fn from_text(text: &str) -> OsString {
    let mut path = Vec::with_capacity(text.len());
    for char in text.chars() {
        match byte(char) {
            Some(byte) => path.push(byte),
            None => path.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    OsString::from_vec(path)
}

fn character(byte: u8) -> Option<char> {
    char::from_u32(FIRST + u32::from(byte))
}

fn byte(char: char) -> Option<u8> {
    let byte = u32::from(char).checked_sub(FIRST)?;
    u8::try_from(byte).ok().filter(|byte| *byte >= 0x80)
}

/// Writes a path as its text, for serde.
pub(crate) fn serialize<S: Serializer>(path: &Option<PathBuf>, serializer: S) -> Result<S::Ok, S::Error> {
    path.as_deref().map(|path| to_text(path.as_os_str())).serialize(serializer)
}

/// Reads a path from its text, for serde.
pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<PathBuf>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    Ok(text.map(|text| PathBuf::from(from_text(&text))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_comes_back() {
        for path in [
            &b"/plain/\xc3\xa9"[..],
            b"/a\xff\n b",
            b"\x80\xff\xc3",
            "/private \u{10feff}".as_bytes(),
            "/cut \u{10feff}".as_bytes().split_last().unwrap().1,
        ] {
            let path = OsStr::from_bytes(path);
            assert_eq!(from_text(&to_text(path)), path, "{path:?}");
        }
        assert_ne!(to_text(OsStr::from_bytes(b"\xff")), to_text(OsStr::new("\u{10feff}")));
    }
}
