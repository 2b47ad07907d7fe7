//! Messages between the demo and its guests: JSON lines; a guest's begin with [`MARK`].

use dcs_testkit::Random;
use serde::{Deserialize, Serialize};
use std::io::{self, Write};

/// Prefix that tells a guest's messages from other console output.
pub const MARK: &str = "@demo ";

/// The guest's file systems: the first on a plain namespace, the second on one that is encrypted on the disk, the third on a
/// paravirtual disk, where there is one.
pub const FOLDERS: [&str; 3] = ["/mnt/plain", "/mnt/encrypted", "/mnt/virtio"];

/// Number of the paravirtual disk's.
pub const VIRTIO: usize = 2;

/// The word that `grep` looks for.
pub const PATTERN: &str = "ERROR";

/// The place where a job is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Contender {
    /// busybox, in the guest.
    Program,
    /// dcs on the guest's kernel.
    Guest,
    /// The drive, next to its disk.
    Drive,
}

/// A job on a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Job {
    /// MD5 of the file.
    Md5,
    /// Lines that contain [`PATTERN`].
    Grep,
    /// Compression by the drive, decompression in the guest.
    Gzip,
}

impl Contender {
    pub const ALL: [Contender; 3] = [Contender::Program, Contender::Guest, Contender::Drive];

    /// Returns its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Contender::Program => "busybox in the guest",
            Contender::Guest => "dcs in the guest",
            Contender::Drive => "dcs near storage",
        }
    }
}

impl Job {
    /// Returns the contenders for this job. busybox's grep is left out: it takes twenty times as long as the others.
    pub fn by(self) -> impl Iterator<Item = Contender> {
        Contender::ALL.into_iter().filter(move |who| *who != Contender::Program || self == Job::Md5)
    }

    pub fn name(self) -> &'static str {
        match self {
            Job::Md5 => "md5",
            Job::Grep => "grep",
            Job::Gzip => "gzip",
        }
    }
}

/// A request to a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// Do a job on the file in that folder, read from the disk.
    Do { job: Job, who: Contender, folder: usize },
    /// Drop all cached files, so that the next job reads from the disk.
    Forget,
    /// Power off.
    End,
}

/// A guest's answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// MD5 of the file, or of the output: lower-case hexadecimal digits.
    pub md5: String,
    /// Bytes that crossed to the guest.
    pub delivered: u64,
    /// True if the drive did it.
    pub beside: bool,
    /// Error, if the job failed.
    pub error: Option<String>,
}

/// Bytes of a line.
const LINE: usize = 64;

/// Writes a guest's file: whole MiB of lines, no two MiB alike. One line in 4,096 contains the pattern.
pub fn write(out: &mut impl Write, seed: u64, bytes: u64) -> io::Result<()> {
    let mut block = Random(seed).bytes(1 << 20);
    block.iter_mut().for_each(|byte| *byte = b'a' + (*byte & 15));
    block.chunks_exact_mut(LINE).for_each(|line| line[LINE - 1] = b'\n');
    for number in 0..bytes >> 20 {
        for place in 0..4 {
            let text = format!("{PATTERN} {seed:08} {number:08} {place}");
            block[place * (256 << 10) + 1000 * LINE..][..text.len()].copy_from_slice(text.as_bytes());
        }
        out.write_all(&block)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_come_back_as_they_were() {
        for request in
            [Request::Do { job: Job::Grep, who: Contender::Drive, folder: 1 }, Request::Forget, Request::End]
        {
            let text = serde_json::to_string(&request).unwrap();
            assert!(!text.contains('\n'));
            assert_eq!(serde_json::from_str::<Request>(&text).unwrap(), request);
        }
    }

    #[test]
    fn files_are_lines_and_differ_in_every_mebibyte() {
        let made = |seed| {
            let mut bytes = Vec::new();
            write(&mut bytes, seed, 3 << 20).unwrap();
            bytes
        };
        let one = made(1);
        assert_eq!(one.len(), 3 << 20);
        assert!(one[..1 << 20] != one[1 << 20..2 << 20] && one != made(2));
        let lines = one.split(|byte| *byte == b'\n');
        let found = lines.filter(|line| line.starts_with(PATTERN.as_bytes()) && line.len() == LINE - 1);
        assert_eq!(found.count(), 12);
    }
}
