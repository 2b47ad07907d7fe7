//! The generated data set: a small copy of what a server's disk holds. The same seed gives the same bytes.
//!
//! Logs and JSON that compress, media that do not, images with holes and zeros, many small files, and the
//! edges: an empty file, a single byte, one less and one more than a block.

use crate::harness::random::{self, Random};
use std::fs::File;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// Large files: name, share of the size in 64ths, number of files. With the small files the shares add up to 64.
const LOGS: (&str, u64, u64) = ("log", 5, 4);
const MEDIA: (&str, u64, u64) = ("media", 6, 4);
const IMAGES: (&str, u64, u64) = ("image", 2, 5);
const SMALL_SHARE: u64 = 64 - 5 * 4 - 6 * 4 - 2 * 5;
/// Most small files: each briefly takes a file descriptor.
const SMALL_MAX: u64 = 256;
const EDGES: [u64; 4] = [0, 1, 262_143, 262_145];

/// A file of the data set.
#[derive(Clone, Debug)]
pub struct Original {
    pub path: PathBuf,
    pub size: u64,
    /// Path where a receiver puts it.
    pub copy: PathBuf,
    /// First counter block, different for each file, since all use one key.
    pub counter: [u8; 16],
}

/// Generates about `size` bytes of files in `folder`. Their copies are to go to `copies`.
pub fn generate(folder: &Path, copies: &Path, size: u64) -> io::Result<Vec<Original>> {
    let mut random = Random(20_150_612);
    let mut items = Vec::new();
    let mut add = |name: String, size: u64, fill: Fill, random: &mut Random| -> io::Result<()> {
        let path: PathBuf = folder.join(&name);
        fill(&mut BufWriter::with_capacity(1 << 18, File::create(&path)?), size, random)?;
        let mut counter = [0; 16];
        counter[..8].copy_from_slice(&random.next().to_le_bytes());
        items.push(Original { path, size, copy: copies.join(name), counter });
        Ok(())
    };
    let kinds: [((&str, u64, u64), Fill); 3] = [(LOGS, random::text), (MEDIA, noise), (IMAGES, sparse)];
    for ((kind, count, share), fill) in kinds {
        for at in 0..count {
            // Sizes differ, and are not whole blocks.
            let size = size / 64 * share / 16 * (14 + at % 5) + random.below(1000);
            add(format!("{kind}-{at}"), size, fill, &mut random)?;
        }
    }
    let small = size / 64 * SMALL_SHARE;
    let count = (small / 32_768).clamp(8, SMALL_MAX);
    for at in 0..count {
        // Most are far smaller than the mean, some far larger.
        let mean = small / count;
        let size = if at % 8 == 0 { 5 * mean } else { mean / 2 } + random.below(500);
        add(format!("small-{at}"), size, if at % 2 == 0 { random::text } else { noise }, &mut random)?;
    }
    for size in EDGES {
        add(format!("edge-{size}"), size, noise, &mut random)?;
    }
    Ok(items)
}

type Fill = fn(&mut BufWriter<File>, u64, &mut Random) -> io::Result<()>;

/// Writes bytes that do not compress.
fn noise(out: &mut BufWriter<File>, size: u64, random: &mut Random) -> io::Result<()> {
    let mut left = size as usize;
    while left > 0 {
        let piece = random.next().to_le_bytes();
        let piece = &piece[..left.min(8)];
        out.write_all(piece)?;
        left -= piece.len();
    }
    out.flush()
}

/// Writes runs of data, zeros and holes, as in a disk image.
fn sparse(out: &mut BufWriter<File>, size: u64, random: &mut Random) -> io::Result<()> {
    let mut left = size;
    while left > 0 {
        let run = (65_536 + random.below(1 << 20)).min(left);
        match random.below(3) {
            0 => noise(out, run, random)?,
            1 => io::copy(&mut io::Read::take(io::repeat(0), run), out).map(drop)?,
            _ => out.seek(SeekFrom::Current(run as i64)).map(drop)?,
        }
        left -= run;
    }
    out.flush()?;
    out.get_ref().set_len(size)
}

/// Distributes the files to this many streams, the largest first, each to the stream with the fewest bytes.
pub fn deal(items: &[Original], streams: usize) -> Vec<Vec<Original>> {
    let mut order: Vec<&Original> = items.iter().collect();
    order.sort_by_key(|item| std::cmp::Reverse(item.size));
    let mut dealt: Vec<(u64, Vec<Original>)> = vec![(0, Vec::new()); streams];
    for item in order {
        if let Some(least) = dealt.iter_mut().min_by_key(|(bytes, _)| *bytes) {
            least.0 += item.size;
            least.1.push(item.clone());
        }
    }
    dealt.into_iter().map(|(_, items)| items).collect()
}

/// Returns some of the files, about this many bytes in all: every k-th.
pub fn sample(items: &[Original], bytes: u64) -> Vec<Original> {
    let all: u64 = items.iter().map(|item| item.size).sum();
    let step = usize::try_from(all.div_ceil(bytes.max(1))).unwrap_or(1).max(1);
    items.iter().step_by(step).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_data_are_the_same_every_time_and_of_the_size_asked_for() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let size = 4 << 20;
        let items = generate(one.path(), one.path(), size).unwrap();
        generate(other.path(), other.path(), size).unwrap();
        let total: u64 = items.iter().map(|item| item.size).sum();
        assert!(total > size * 8 / 10 && total < size * 13 / 10, "{total}");
        for item in &items {
            let bytes = std::fs::read(&item.path).unwrap();
            assert_eq!(bytes.len() as u64, item.size);
            assert!(bytes == std::fs::read(other.path().join(item.path.file_name().unwrap())).unwrap());
        }
        let dealt = deal(&items, 8);
        assert_eq!(dealt.iter().map(Vec::len).sum::<usize>(), items.len());
    }
}
