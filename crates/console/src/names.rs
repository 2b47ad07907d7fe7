//! Names of files in messages and in JSON. A file's name may have any bytes but zero and the slash: a line break, a
//! terminal's control sequence, bytes that are not UTF-8.

use serde_json::Value;
use std::ffi::OsStr;
use std::fmt::{self, Display, Formatter, Write};
use std::os::unix::ffi::OsStrExt;

/// A name in a message: itself if it is printable text, else as ls and bash write it: `$'a\xff\n b'`. A shell reads
/// that back.
pub struct Shown<'a>(&'a OsStr);

/// Formats the name of a file for a message.
pub fn shown(name: &(impl AsRef<OsStr> + ?Sized)) -> Shown<'_> {
    Shown(name.as_ref())
}

impl Display for Shown<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0.to_str() {
            Some(text) if text.chars().all(is_printable) && !text.starts_with("$'") => f.write_str(text),
            _ => self.write_quoted(f),
        }
    }
}

impl Shown<'_> {
    fn write_quoted(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("$'")?;
        for chunk in self.0.as_bytes().utf8_chunks() {
            for char in chunk.valid().chars() {
                match char {
                    '\n' => f.write_str("\\n")?,
                    '\r' => f.write_str("\\r")?,
                    '\t' => f.write_str("\\t")?,
                    '\'' | '\\' => write!(f, "\\{char}")?,
                    char if is_printable(char) => f.write_char(char)?,
                    char => write_bytes(char.encode_utf8(&mut [0; 4]).as_bytes(), f)?,
                }
            }
            write_bytes(chunk.invalid(), f)?;
        }
        f.write_char('\'')
    }
}

fn write_bytes(bytes: &[u8], f: &mut Formatter<'_>) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "\\x{byte:02x}"))
}

/// Returns true if the character is visible and can't control a terminal.
fn is_printable(char: char) -> bool {
    let is_invisible = matches!(char, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}');
    !char.is_control() && !is_invisible
}

/// Adds a name to a JSON object. JSON holds only text: for a name that is not UTF-8, the field has U+FFFD for the other
/// bytes, and a second field, its name with `_hex`, has all bytes as hexadecimal digits.
pub fn add_name(object: &mut Value, field: &str, name: impl AsRef<OsStr>) {
    let name = name.as_ref();
    object[field] = name.to_string_lossy().into();
    if name.to_str().is_none() {
        object[format!("{field}_hex")] = crate::units::to_hex(name.as_bytes()).into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const ODD: &[u8] = b"a\xff\n b";

    #[test]
    fn a_name_is_shown_as_a_shell_takes_it() {
        for (name, expected) in [
            (&b"a b.txt"[..], "a b.txt"),
            ("d\u{e9}j\u{e0} vu".as_bytes(), "d\u{e9}j\u{e0} vu"),
            (ODD, r"$'a\xff\n b'"),
            (b"\x1b[2J", r"$'\x1b[2J'"),
            ("a\u{202e}b".as_bytes(), r"$'a\xe2\x80\xaeb'"),
            (b"it's\t\\", r"$'it\'s\t\\'"),
            (b"$'a'", r"$'$\'a\''"),
        ] {
            let shown = shown(OsStr::from_bytes(name)).to_string();
            assert_eq!(shown, expected);
            if shown.starts_with("$'") {
                let printf = format!("printf %s {shown}");
                let said = std::process::Command::new("bash").args(["-c", &printf]).output();
                let Ok(said) = said else { continue };
                assert_eq!(said.stdout, name, "{shown}");
            }
        }
    }

    #[test]
    fn json_has_every_byte() {
        let mut object = json!({});
        add_name(&mut object, "source", OsStr::from_bytes(ODD));
        add_name(&mut object, "destination", "b");
        assert_eq!(
            object,
            json!({ "source": "a\u{fffd}\n b", "source_hex": "61ff0a2062", "destination": "b" })
        );
    }
}
