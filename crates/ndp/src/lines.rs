//! A stream taken line by line: whatever its pieces, an operator sees whole lines, and hands some of them out.

use crate::OperatorError;
use crate::resize::{Codec, Step, StepEnd};
use std::ops::Range;

/// Bytes of the longest line, without its line feed: what is kept of one that comes in pieces.
pub(crate) const LINE_MAX: usize = 1 << 20;

/// An operator on lines.
pub(crate) trait Selector: Send {
    /// A line feed between quotation marks ends no line (RFC 4180).
    const QUOTED: bool;

    /// The next lines that are wanted, from the beginning of one on, and where to go on. `text` ends where a
    /// line does; the last line may have no line feed.
    ///
    /// # Errors
    ///
    /// Before the first line that is wanted only: those are handed out first.
    fn next(&mut self, text: &[u8], from: usize) -> Result<(Range<usize>, usize), OperatorError>;

    /// Looks at the next part of a line that comes in several, before [`Selector::next`] has it as a whole: no call
    /// works for longer than its input is long.
    ///
    /// # Errors
    ///
    /// As [`Selector::next`].
    fn look(&mut self, _part: &[u8]) -> Result<(), OperatorError> {
        Ok(())
    }

    /// The bytes that come out at the end of the stream.
    fn finish(&mut self) -> Result<Vec<u8>, OperatorError>;
}

/// The stream, as far as it has come. Lines are looked at where they lie, in the input; one that is not there
/// as a whole is kept until it is.
pub(crate) struct Lines<S> {
    selector: S,
    /// The beginning of a line, or a line of which this many bytes were handed out.
    kept: Vec<u8>,
    handed_out: Option<usize>,
    /// It ends between quotation marks.
    open: bool,
    /// Bytes at the beginning of the input that are whole lines;
    lines: usize,
    /// of them this many are to be handed out,
    pass: usize,
    /// and this many behind those are to be dropped.
    drop: usize,
    /// Output behind the last line.
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

    /// Takes in as much of the line that is kept as there is.
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

    /// The line that is kept is there as a whole: it is handed out, or forgotten.
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

    /// Finds how much of the input is whole lines; keeps the beginning of a line where it is less than one.
    fn measure(&mut self, input: &[u8], last: bool) -> Option<Step> {
        if last && input.len() <= LINE_MAX {
            self.lines = input.len();
            return None;
        }
        // No line in this many bytes is too long.
        let window = &input[..input.len().min(LINE_MAX + 1)];
        match last_line_end::<S>(window) {
            Some(end) => {
                self.lines = end;
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
            if self.pass == 0 {
                match self.selector.next(text, consumed) {
                    Ok((wanted, next)) => {
                        // What is before the wanted lines is dropped at once.
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

    /// The end of the stream.
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

/// The end of the line at `from`, behind its line feed; none where that is not there. `open`: it begins
/// between quotation marks, and afterwards, that it ends so.
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

/// The end of the last whole line of a text that begins with one.
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
