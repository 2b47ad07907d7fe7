//! The lines of a text that match a regular expression, or their number.

mod pattern;

use crate::resize::{Codec, End, Step};
use crate::{OperatorError, parameter};
use pattern::Pattern;
use std::ops::Range;

pub use pattern::PatternError;

/// Bytes of the longest parameter block, and of those before its pattern.
pub(crate) const PARAMETER_MAX: usize = PARAMETER_HEAD + pattern::PATTERN_MAX;
pub(crate) const PARAMETER_HEAD: usize = 8;

/// Bytes of the longest line, without its line feed: what is kept of one that comes in pieces.
pub(crate) const LINE_MAX: usize = 1 << 20;

/// Tries a pattern.
pub(crate) fn check(pattern: &str, ignore_case: bool) -> Result<(), PatternError> {
    Pattern::new(pattern, ignore_case).map(|_| ())
}

/// The stream, as far as it has come. Lines are searched where they lie, in the input; one that is not there
/// as a whole is kept until it is.
pub(crate) struct Grep {
    pattern: Pattern,
    invert: bool,
    /// Lines so far, where their number is wanted in place of them.
    count: Option<u64>,
    /// The beginning of a line, or a line of which so many bytes were handed out.
    kept: Vec<u8>,
    handed_out: Option<usize>,
    /// Bytes at the beginning of the input that are whole lines;
    lines: usize,
    /// of them so many are to be handed out,
    pass: usize,
    /// and so many behind those are to be dropped.
    drop: usize,
    /// The number, when the stream has ended.
    digits: Option<Vec<u8>>,
}

impl Grep {
    pub(crate) fn new(block: &[u8]) -> Result<Grep, OperatorError> {
        let parameter::Grep { pattern, ignore_case, invert, count } = parameter::parse_grep(block)?;
        let pattern = Pattern::new(&pattern, ignore_case).map_err(|_| OperatorError::BadParameter)?;
        Ok(Grep {
            pattern,
            invert,
            count: count.then_some(0),
            kept: Vec::new(),
            handed_out: None,
            lines: 0,
            pass: 0,
            drop: 0,
            digits: None,
        })
    }

    /// The next lines of `text` that are wanted, from the beginning of a line on; empty at the end where none
    /// are. With `invert` those up to the next line that matches.
    fn wanted(&mut self, text: &[u8], from: usize) -> Result<(Range<usize>, Range<usize>), OperatorError> {
        let found = self.pattern.next(text, from).map_err(|()| OperatorError::InternalError)?;
        let line = found.unwrap_or(text.len()..text.len());
        let wanted = if self.invert { from..line.start } else { line.clone() };
        if let Some(count) = &mut self.count {
            *count += if self.invert { lines_in(&text[wanted]) } else { u64::from(!line.is_empty()) };
            return Ok((line.end..line.end, line));
        }
        Ok((wanted, line))
    }

    /// Takes in as much of the line that is kept as there is.
    fn keep(&mut self, input: &[u8]) -> Step {
        let room = LINE_MAX + 1 - self.kept.len();
        let window = &input[..input.len().min(room)];
        let feed = memchr::memchr(b'\n', window);
        if feed.is_none() && window.len() == room {
            return Step { consumed: 0, produced: 0, end: End::Failed(OperatorError::CorruptData) };
        }
        let consumed = feed.map_or(window.len(), |at| at + 1);
        self.kept.extend_from_slice(&window[..consumed]);
        let end = if feed.is_some() { self.judge_kept() } else { End::Open };
        Step { consumed, produced: 0, end }
    }

    /// The line that is kept is there as a whole: it is handed out, or forgotten.
    fn judge_kept(&mut self) -> End {
        let kept = std::mem::take(&mut self.kept);
        let wanted = self.wanted(&kept, 0);
        self.kept = kept;
        match wanted {
            Ok((wanted, _)) if wanted.is_empty() => self.kept.clear(),
            Ok(_) => self.handed_out = Some(0),
            Err(error) => return End::Failed(error),
        }
        End::Open
    }

    fn hand_out_kept(&mut self, from: usize, output: &mut [u8]) -> Step {
        let rest = &self.kept[from..];
        let produced = rest.len().min(output.len());
        output[..produced].copy_from_slice(&rest[..produced]);
        self.handed_out = Some(from + produced);
        if from + produced == self.kept.len() {
            self.kept.clear();
            self.handed_out = None;
        }
        Step { consumed: 0, produced, end: End::Open }
    }

    /// Finds how much of the input is whole lines; keeps the beginning of a line where it is less than one.
    fn measure(&mut self, input: &[u8], last: bool) -> Option<Step> {
        if last && input.len() <= LINE_MAX {
            self.lines = input.len();
            return None;
        }
        // No line in so many bytes is too long.
        let window = &input[..input.len().min(LINE_MAX + 1)];
        match memchr::memrchr(b'\n', window) {
            Some(feed) => {
                self.lines = feed + 1;
                None
            }
            None => Some(self.keep(input)),
        }
    }

    /// Goes through the lines at the beginning of the input.
    fn select(&mut self, input: &[u8], output: &mut [u8]) -> Step {
        let Some(text) = input.get(..self.lines) else { return failed(0, 0, OperatorError::InternalError) };
        let (mut consumed, mut produced) = (0, 0);
        while consumed < text.len() {
            if self.pass == 0 && self.drop == 0 {
                match self.wanted(text, consumed) {
                    Ok((wanted, line)) => {
                        // What is before the wanted lines is dropped at once.
                        let next = wanted.end.max(line.end);
                        (self.pass, self.drop) = (wanted.len(), next - wanted.end);
                        self.lines -= wanted.start - consumed;
                        consumed = wanted.start;
                    }
                    Err(error) => return failed(consumed, produced, error),
                }
            }
            let passed = self.pass.min(output.len() - produced);
            output[produced..produced + passed].copy_from_slice(&text[consumed..consumed + passed]);
            produced += passed;
            self.pass -= passed;
            let dropped = if self.pass == 0 { std::mem::take(&mut self.drop) } else { 0 };
            consumed += passed + dropped;
            self.lines -= passed + dropped;
            if self.pass > 0 {
                break;
            }
        }
        Step { consumed, produced, end: End::Open }
    }

    /// The end of the stream: the number is handed out, if it is wanted.
    fn finish(&mut self, output: &mut [u8]) -> Step {
        let Some(count) = self.count else { return Step { consumed: 0, produced: 0, end: End::Finished } };
        let digits = self.digits.get_or_insert_with(|| format!("{count}\n").into_bytes());
        let produced = digits.len().min(output.len());
        output[..produced].copy_from_slice(&digits[..produced]);
        digits.drain(..produced);
        let end = if digits.is_empty() { End::Finished } else { End::Open };
        Step { consumed: 0, produced, end }
    }
}

fn failed(consumed: usize, produced: usize, error: OperatorError) -> Step {
    Step { consumed, produced, end: End::Failed(error) }
}

/// The last one may have no line feed.
fn lines_in(text: &[u8]) -> u64 {
    let unended = text.last().is_some_and(|byte| *byte != b'\n');
    memchr::memchr_iter(b'\n', text).count() as u64 + u64::from(unended)
}

impl Codec for Grep {
    fn step(&mut self, input: &[u8], output: &mut [u8], last: bool) -> Step {
        if let Some(from) = self.handed_out {
            return self.hand_out_kept(from, output);
        }
        if !self.kept.is_empty() {
            return match (input.is_empty(), last) {
                (false, _) => self.keep(input),
                (true, false) => Step { consumed: 0, produced: 0, end: End::Open },
                // The last line has no line feed.
                (true, true) => {
                    let end = self.judge_kept();
                    if self.handed_out.is_none() && matches!(end, End::Open) {
                        return self.finish(output);
                    }
                    match self.handed_out {
                        Some(from) => self.hand_out_kept(from, output),
                        None => Step { consumed: 0, produced: 0, end },
                    }
                }
            };
        }
        match input.is_empty() {
            true if last => self.finish(output),
            true => Step { consumed: 0, produced: 0, end: End::Open },
            false if self.lines == 0 => {
                self.measure(input, last).unwrap_or_else(|| self.select(input, output))
            }
            false => self.select(input, output),
        }
    }
}
