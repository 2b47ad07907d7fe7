//! Writes the archive that a Linux kernel unpacks as its first file system: *newc*, uncompressed.
//! [Linux: Documentation/driver-api/early-userspace/buffer-format.rst]

use std::collections::BTreeSet;

const DIRECTORY: u32 = 0o040_755;
const FILE: u32 = 0o100_000;
const LINK: u32 = 0o120_777;
const DEVICE: u32 = 0o020_600;

/// An archive under construction. Folders are created as files need them.
#[derive(Debug, Default)]
pub struct Archive {
    bytes: Vec<u8>,
    number: u32,
    names: BTreeSet<String>,
}

impl Archive {
    /// Returns an empty archive.
    pub fn new() -> Archive {
        Archive::default()
    }

    /// Adds a folder. Absolute and relative names mean the same.
    pub fn directory(&mut self, name: &str) {
        let name = name.trim_matches('/');
        if !name.is_empty() && !self.names.contains(name) {
            self.parents(name);
            self.entry(name, DIRECTORY, b"", (0, 0));
        }
    }

    /// Adds a file with these permissions. The first file of a name counts.
    pub fn file(&mut self, name: &str, permissions: u32, contents: &[u8]) {
        self.add(name, FILE | permissions, contents, (0, 0));
    }

    /// Adds a symbolic link.
    pub fn link(&mut self, name: &str, target: &str) {
        self.add(name, LINK, target.as_bytes(), (0, 0));
    }

    /// Adds a character device.
    pub fn device(&mut self, name: &str, major: u32, minor: u32) {
        self.add(name, DEVICE, b"", (major, minor));
    }

    /// Returns true if there is a file, link or folder of this name.
    pub fn contains(&self, name: &str) -> bool {
        self.names.contains(name.trim_matches('/'))
    }

    /// Returns the archive's bytes.
    pub fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, b"", (0, 0));
        self.bytes
    }

    fn add(&mut self, name: &str, mode: u32, contents: &[u8], device: (u32, u32)) {
        let name = name.trim_matches('/');
        if !self.names.contains(name) {
            self.parents(name);
            self.entry(name, mode, contents, device);
        }
    }

    fn parents(&mut self, name: &str) {
        if let Some((parent, _)) = name.rsplit_once('/') {
            self.directory(parent);
        }
    }

    fn entry(&mut self, name: &str, mode: u32, contents: &[u8], device: (u32, u32)) {
        self.names.insert(name.to_owned());
        self.number += 1;
        let (length, name_length) = (contents.len() as u32, name.len() as u32 + 1);
        // Number, mode, user, group, links, time, length, device, special device, name's length, checksum.
        let fields = [self.number, mode, 0, 0, 1, 0, length, 0, 0, device.0, device.1, name_length, 0];
        self.bytes.extend(b"070701");
        fields.iter().for_each(|field| self.bytes.extend(format!("{field:08x}").bytes()));
        self.bytes.extend(name.bytes());
        self.bytes.push(0);
        self.align();
        self.bytes.extend(contents);
        self.align();
    }

    fn align(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads an archive back: name, mode, contents.
    fn read(bytes: &[u8]) -> Vec<(String, u32, Vec<u8>)> {
        let (mut at, mut found) = (0, Vec::new());
        loop {
            assert_eq!(&bytes[at..at + 6], b"070701");
            let field = |n: usize| {
                let digits = &bytes[at + 6 + 8 * n..at + 14 + 8 * n];
                u32::from_str_radix(std::str::from_utf8(digits).unwrap(), 16).unwrap()
            };
            let name_end = at + 110 + field(11) as usize;
            let name = String::from_utf8(bytes[at + 110..name_end - 1].to_vec()).unwrap();
            let start = name_end.next_multiple_of(4);
            let end = start + field(6) as usize;
            if name == "TRAILER!!!" {
                assert_eq!(end.next_multiple_of(4), bytes.len());
                return found;
            }
            found.push((name, field(1), bytes[start..end].to_vec()));
            at = end.next_multiple_of(4);
        }
    }

    #[test]
    fn what_was_put_in_is_in_it() {
        let mut archive = Archive::new();
        archive.file("/usr/bin/a", 0o755, b"12345");
        archive.file("usr/bin/b", 0o644, b"");
        archive.file("usr/bin/a", 0o755, b"a second one");
        archive.link("/bin", "usr/bin");
        assert!(archive.contains("/usr/bin") && !archive.contains("usr/lib"));
        let expected: Vec<(String, u32, Vec<u8>)> = vec![
            ("usr".into(), DIRECTORY, vec![]),
            ("usr/bin".into(), DIRECTORY, vec![]),
            ("usr/bin/a".into(), 0o100_755, b"12345".to_vec()),
            ("usr/bin/b".into(), 0o100_644, vec![]),
            ("bin".into(), LINK, b"usr/bin".to_vec()),
        ];
        assert_eq!(read(&archive.finish()), expected);
    }
}
