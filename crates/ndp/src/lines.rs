//! A stream taken line by line: however it is cut, an operator sees whole lines, and hands some of them out.

use crate::OperatorError;
use crate::resize::{Codec, Step, StepEnd};
use std::ops::Range;

/// Bytes of the longest line, without its line feed, that is kept if it comes in pieces.
pub(crate) const LINE_MAX: usize = 1 << 20;

/// An operator on lines.
pub(crate) trait Selector: Send {
    /// True if a line feed between quotation marks does not end a line (RFC 4180).
    const QUOTED: bool;

    /// Returns the next wanted lines, from the beginning of a line on, and the place to go on from. `text` ends at the
    /// end of a line; the last line may have no line feed.
    ///
    /// # Errors
    ///
    /// Fails only before the first wanted line: those before the error are handed out first.
    fn next(&mut self, text: &[u8], from: usize) -> Result<(Range<usize>, usize), OperatorError>;

    /// Takes the next part of a line that comes in several, before [`Selector::next`] gets the whole line. This bounds
    /// the work of each call by the length of its input.
    ///
    /// # Errors
    ///
    /// The errors of [`Selector::next`].
    fn look(&mut self, _part: &[u8]) -> Result<(), OperatorError> {
        Ok(())
    }

    /// Returns the bytes that come out at the end of the stream.
    fn finish(&mut self) -> Result<Vec<u8>, OperatorError>;
}

/// State of the stream. Lines are processed in place, in the input; an incomplete one is kept until it is complete.
pub(crate) struct Lines<S> {
    selector: S,
    /// Beginning of a line, or a line that is being handed out.
    kept: Vec<u8>,
    handed_out: Option<usize>,
    /// True if `kept` ends between quotation marks.
    open: bool,
    /// Bytes of whole lines at the beginning of the input.
    lines: usize,
    /// Bytes of `lines` to hand out.
    pass: usize,
    /// Bytes after those to drop.
    drop: usize,
    /// Output after the last line.
    end: Option<Vec<u8>>,
}

impl<S: Selector> Lines<S> {
    pub(crate) fn new(selector: S) -> Lines<S> {
        Lines {
            selector,
            kept: Vec::new(),
            handed_out: None,
            open: false,
            lines: 0,
            pass: 0,
            drop: 0,
            end: None,
        }
    }

    /// Takes as much of the kept line as there is.
    fn keep(&mut self, input: &[u8]) -> Step {
        let room = LINE_MAX + 1 - self.kept.len();
        let window = &input[..input.len().min(room)];
        let end = line_end::<S>(window, 0, &mut self.open);
        if end.is_none() && window.len() == room {
            return failed(0, 0, OperatorError::CorruptData);
        }
        let consumed = end.unwrap_or(window.len());
        self.kept.extend_from_slice(&window[..consumed]);
        if let Err(error) = self.selector.look(&window[..consumed]) {
            return failed(consumed, 0, error);
        }
        let end = if end.is_some() { self.judge_kept() } else { StepEnd::Open };
        Step { consumed, produced: 0, end }
    }

    /// Handles the kept line once it is complete: it is handed out, or dropped.
    fn judge_kept(&mut self) -> StepEnd {
        self.open = false;
        match self.selector.next(&self.kept, 0) {
            Ok((wanted, _)) if wanted.is_empty() => self.kept.clear(),
            Ok(_) => self.handed_out = Some(0),
            Err(error) => return StepEnd::Failed(error),
        }
        StepEnd::Open
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
        Step { consumed: 0, produced, end: StepEnd::Open }
    }

    /// Finds how much of the input is whole lines. Keeps the beginning of a line if there is none.
    fn measure(&mut self, input: &[u8], last: bool) -> Option<Step> {
        if last && input.len() <= LINE_MAX {
            self.lines = input.len();
            return None;
        }
        // No line within this many bytes is too long.
        let window = &input[..input.len().min(LINE_MAX + 1)];
        match last_line_end::<S>(window) {
            Some(end) => {
                self.lines = end;
                None
            }
            None => Some(self.keep(input)),
        }
    }

    /// Processes the lines at the beginning of the input.
    fn select(&mut self, input: &[u8], output: &mut [u8]) -> Step {
        let Some(text) = input.get(..self.lines) else { return failed(0, 0, OperatorError::InternalError) };
        let (mut consumed, mut produced) = (0, 0);
        while consumed < text.len() {
            if self.pass == 0 {
                match self.selector.next(text, consumed) {
                    Ok((wanted, next)) => {
                        // Lines before the wanted ones are dropped at once.
                        (self.pass, self.drop) = (wanted.len(), next - wanted.end);
                        consumed = wanted.start;
                    }
                    Err(error) => return failed(consumed, produced, error),
                }
            }
            let passed = self.pass.min(output.len() - produced);
            output[produced..produced + passed].copy_from_slice(&text[consumed..consumed + passed]);
            produced += passed;
            consumed += passed;
            self.pass -= passed;
            if self.pass > 0 {
                break;
            }
            consumed += std::mem::take(&mut self.drop);
        }
        self.lines -= consumed;
        Step { consumed, produced, end: StepEnd::Open }
    }

    /// Ends the stream.
    fn finish(&mut self, output: &mut [u8]) -> Step {
        if self.end.is_none() {
            match self.selector.finish() {
                Ok(bytes) => self.end = Some(bytes),
                Err(error) => return failed(0, 0, error),
            }
        }
        let rest = self.end.get_or_insert_default();
        let produced = rest.len().min(output.len());
        output[..produced].copy_from_slice(&rest[..produced]);
        rest.drain(..produced);
        let end = if rest.is_empty() { StepEnd::Finished } else { StepEnd::Open };
        Step { consumed: 0, produced, end }
    }
}

impl<S: Selector> Codec for Lines<S> {
    fn step(&mut self, input: &[u8], output: &mut [u8], last: bool) -> Step {
        if let Some(from) = self.handed_out {
            return self.hand_out_kept(from, output);
        }
        match (self.kept.is_empty(), input.is_empty()) {
            (false, false) => self.keep(input),
            (_, true) if !last => Step { consumed: 0, produced: 0, end: StepEnd::Open },
            // The last line has no line feed.
            (false, true) => match (self.judge_kept(), self.handed_out) {
                (StepEnd::Open, Some(from)) => self.hand_out_kept(from, output),
                (StepEnd::Open, None) => self.finish(output),
                (end, _) => Step { consumed: 0, produced: 0, end },
            },
            (true, true) => self.finish(output),
            (true, false) if self.lines > 0 => self.select(input, output),
            (true, false) => self.measure(input, last).unwrap_or_else(|| self.select(input, output)),
        }
    }
}

fn failed(consumed: usize, produced: usize, error: OperatorError) -> Step {
    Step { consumed, produced, end: StepEnd::Failed(error) }
}

/// Returns the end of the line at `from`, after its line feed; `None` if that is not there. `open`: true if the line
/// begins between quotation marks; updated for its end.
pub(crate) fn line_end<S: Selector>(text: &[u8], from: usize, open: &mut bool) -> Option<usize> {
    let mut at = from;
    loop {
        let feed = memchr::memchr(b'\n', &text[at..]).map(|feed| at + feed);
        if S::QUOTED {
            let line = &text[at..feed.unwrap_or(text.len())];
            *open ^= memchr::memchr_iter(b'"', line).count() % 2 == 1;
        }
        match feed {
            Some(feed) if *open => at = feed + 1,
            feed => return feed.map(|feed| feed + 1),
        }
    }
}

/// Returns the end of the last whole line in a text that begins with one.
fn last_line_end<S: Selector>(text: &[u8]) -> Option<usize> {
    if !S::QUOTED || memchr::memchr(b'"', text).is_none() {
        return memchr::memrchr(b'\n', text).map(|feed| feed + 1);
    }
    let (mut last, mut open) = (None, false);
    while let Some(end) = line_end::<S>(text, last.unwrap_or(0), &mut open) {
        last = Some(end);
    }
    last
}
