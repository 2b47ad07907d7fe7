//! Lines of a text that match a regular expression, or their number.

mod pattern;
mod suffix;

use crate::lines::{Lines, Selector};
use crate::{OperatorError, parameter};
use pattern::Pattern;
use std::ops::Range;

pub use pattern::PatternError;

/// Bytes of the longest parameter block, and of the part before its pattern.
pub(crate) const PARAMETER_MAX: usize = PARAMETER_HEAD + pattern::PATTERN_MAX;
pub(crate) const PARAMETER_HEAD: usize = 8;

/// Checks a pattern.
pub(crate) fn check(pattern: &str, ignore_case: bool) -> Result<(), PatternError> {
    Pattern::new(pattern, ignore_case).map(|_| ())
}

/// The search.
pub(crate) struct Grep {
    pattern: Pattern,
    invert: bool,
    /// Matching lines so far, if their number is wanted instead.
    count: Option<u64>,
}

impl Grep {
    pub(crate) fn new(block: &[u8]) -> Result<Lines<Grep>, OperatorError> {
        let parameter::Grep { pattern, ignore_case, invert, count } = parameter::parse_grep(block)?;
        let pattern = Pattern::new(&pattern, ignore_case).map_err(|_| OperatorError::BadParameter)?;
        Ok(Lines::new(Grep { pattern, invert, count: count.then_some(0) }))
    }
}

impl Selector for Grep {
    const QUOTED: bool = false;

    fn next(&mut self, text: &[u8], from: usize) -> Result<(Range<usize>, usize), OperatorError> {
        let found = self.pattern.next(text, from).map_err(|()| OperatorError::InternalError)?;
        let line = found.unwrap_or(text.len()..text.len());
        let end = line.end;
        let wanted = if self.invert { from..line.start } else { line };
        let Some(count) = &mut self.count else { return Ok((wanted, end)) };
        *count += if self.invert { lines_in(&text[wanted]) } else { u64::from(!wanted.is_empty()) };
        Ok((end..end, end))
    }

    fn look(&mut self, part: &[u8]) -> Result<(), OperatorError> {
        self.pattern.look(part).map_err(|()| OperatorError::InternalError)
    }

    fn finish(&mut self) -> Result<Vec<u8>, OperatorError> {
        Ok(self.count.map_or(Vec::new(), |count| format!("{count}\n").into_bytes()))
    }
}

/// Counts lines. The last one may have no line feed.
fn lines_in(text: &[u8]) -> u64 {
    let unended = text.last().is_some_and(|byte| *byte != b'\n');
    memchr::memchr_iter(b'\n', text).count() as u64 + u64::from(unended)
}
