//! longer: passes the lines that have more bytes than its parameter says, in decimal digits. A line filter.
//! Lines of more than 64 KiB are passed as soon as they are known to be longer.

#[path = "../dcs_operator.rs"]
#[macro_use]
pub mod dcs_operator;

use dcs_operator::{Operator, State, Step};

/// Largest limit, in bytes of a line.
const MOST: usize = 32 * 1024;

/// State of the filter.
pub struct Longer {
    /// Lines of up to this many bytes are dropped, line feeds not counted.
    limit: usize,
    /// Beginning of a line that is not yet known to be longer.
    kept: Vec<u8>,
    /// True once the line is known to be longer: the rest of it passes.
    passes: bool,
}

dcs_operator!(Longer);

impl Operator for Longer {
    fn start(parameter: &[u8]) -> Option<Longer> {
        let limit = std::str::from_utf8(parameter).ok()?.parse().ok().filter(|limit| *limit <= MOST)?;
        Some(Longer { limit, kept: Vec::new(), passes: false })
    }

    fn step(&mut self, input: &[u8], output: &mut [u8], last: bool) -> Step {
        let (mut consumed, mut produced) = (0, 0);
        while consumed < input.len() {
            let rest = &input[consumed..];
            let feed = rest.iter().position(|byte| *byte == b'\n');
            let piece = &rest[..feed.map_or(rest.len(), |feed| feed + 1)];
            let bytes = self.kept.len() + feed.unwrap_or(piece.len());
            if self.passes || bytes > self.limit {
                // As much as there is room for.
                if output.len() - produced < self.kept.len() + piece.len() && produced > 0 {
                    break;
                }
                let room = output.len() - produced - self.kept.len();
                let piece = &piece[..piece.len().min(room)];
                for part in [&self.kept[..], piece] {
                    output[produced..produced + part.len()].copy_from_slice(part);
                    produced += part.len();
                }
                self.kept.clear();
                self.passes = piece.last() != Some(&b'\n');
                consumed += piece.len();
                continue;
            }
            match feed {
                Some(_) => self.kept.clear(),
                None => self.kept.extend_from_slice(piece),
            }
            consumed += piece.len();
        }
        let finished = last && consumed == input.len();
        Step { consumed, produced, state: if finished { State::Finished } else { State::GoOn } }
    }
}
