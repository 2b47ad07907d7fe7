//! A line of the framing, gathered from any number of pieces.

use super::TRAILERS_MAX;
use crate::OperatorError;

/// Line that is being read.
pub(super) struct Line {
    bytes: [u8; TRAILERS_MAX],
    filled: usize,
}

impl Default for Line {
    fn default() -> Line {
        Line { bytes: [0; TRAILERS_MAX], filled: 0 }
    }
}

impl Line {
    /// Takes input up to the end of the line. Returns the bytes taken, and true if the line is complete. Fails if the
    /// line, its end included, has more than `most` bytes.
    pub fn fill(&mut self, input: &[u8], most: usize) -> Result<(usize, bool), OperatorError> {
        let room = most.saturating_sub(self.filled);
        let within = &input[..input.len().min(room)];
        let end = within.iter().position(|byte| *byte == b'\n');
        let length = end.map_or(within.len(), |end| end + 1);
        self.bytes[self.filled..self.filled + length].copy_from_slice(&within[..length]);
        self.filled += length;
        match end {
            None if self.filled >= most => Err(OperatorError::Framing),
            _ => Ok((length, end.is_some())),
        }
    }

    /// Returns the whole line.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.filled]
    }

    /// Returns the line without its end, which must be CR LF.
    pub fn strict(&self) -> Result<&[u8], OperatorError> {
        self.bytes().strip_suffix(b"\r\n").ok_or(OperatorError::Framing)
    }

    /// Returns the line without its end: CR LF, or the LF alone that some clients put after trailers.
    pub fn lenient(&self) -> &[u8] {
        let line = self.bytes();
        line.strip_suffix(b"\r\n").or(line.strip_suffix(b"\n")).unwrap_or(line)
    }
}

/// Removes the white space around bytes.
pub(super) fn trim(bytes: &[u8]) -> &[u8] {
    bytes.trim_ascii()
}
