//! Replays a target's seeds, and mutations that are the same in every run, on a stable toolchain. Tests of the crates include
//! this file; a panic names the input.

use std::panic::catch_unwind;
use std::path::{Path, PathBuf};

/// Calls `body` with every seed of `target`, and with this many mutations.
pub fn replay(target: &str, mutations: u64, body: fn(&[u8])) {
    let seeds = seeds(target);
    assert!(seeds.len() >= 10, "the corpus of {target} is gone");
    for (path, bytes) in &seeds {
        check(body, bytes, path, "as it is");
    }
    for round in 0..mutations {
        let (path, bytes) = &seeds[round as usize % seeds.len()];
        check(body, &mutated(bytes, round), path, &format!("mutation {round}"));
    }
}

fn check(body: fn(&[u8]), bytes: &[u8], path: &Path, what: &str) {
    assert!(catch_unwind(|| body(bytes)).is_ok(), "{} {what}: {bytes:02x?}", path.display());
}

/// Returns a target's seeds by name. A fuzzer's findings in the same folder have no such name, and would change the mutations.
fn seeds(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let mut above = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let corpus = above.find_map(|folder| Some(folder.join("fuzz/corpus")).filter(|corpus| corpus.is_dir()));
    let folder = corpus.expect("the repository has seeds").join(target);
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "bin"));
    paths.sort();
    paths.into_iter().map(|path| (path.clone(), std::fs::read(path).unwrap())).collect()
}

/// Makes one to four changes, of the kinds that find most: a bit, an interesting byte, a cut.
fn mutated(bytes: &[u8], round: u64) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let mut random = Random(round);
    for _ in 0..1 + random.below(4) {
        let at = random.below(bytes.len().max(1));
        match random.below(8) {
            _ if bytes.is_empty() => bytes.push(1),
            0..3 => bytes[at] ^= 1 << random.below(8),
            3..5 => bytes[at] = [0, 1, 2, 7, 8, 16, 0x7f, 0xff][random.below(8)],
            5 => bytes.truncate(at),
            6 => bytes.extend([0; 8]),
            _ => bytes[at] = bytes[at].wrapping_add(8),
        }
    }
    bytes
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % limit as u64) as usize
    }
}
