//! A stream taken by rows of a fixed width: however it is cut, an operator sees whole rows, and hands some of them out.

use crate::OperatorError;
use crate::resize::{Codec, Step, StepEnd};

/// Bytes of the widest row that is kept if it comes in pieces.
pub(crate) const WIDTH_MAX: usize = 1 << 20;

/// An operator on rows.
pub(crate) trait RowOperator: Send {
    /// Takes whole rows: at least one, and as many as it likes.
    fn take(&mut self, rows: &[u8], output: &mut [u8]) -> RowProgress;

    /// Returns the bytes that come out at the end of the stream.
    fn finish(&mut self) -> Vec<u8>;
}

/// Result of taking rows.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct RowProgress {
    /// Bytes of rows that were used.
    pub(crate) consumed: usize,
    /// Bytes of the output that were filled.
    pub(crate) produced: usize,
    /// Bytes of rows after those to hand out unchanged. They count as taken.
    pub(crate) pass: usize,
}

/// State of the stream. Rows are processed in place, in the input; an incomplete one is kept until it is complete.
pub(crate) struct Rows<T> {
    taker: T,
    width: usize,
    /// Beginning of a row, or a row that is being handed out.
    kept: Vec<u8>,
    handed_out: Option<usize>,
    /// Bytes at the beginning of the input to hand out.
    pass: usize,
    /// Output after the last row.
    end: Option<Vec<u8>>,
}

impl<T: RowOperator> Rows<T> {
    /// Makes the state. `width` is 1 to [`WIDTH_MAX`].
    pub(crate) fn new(taker: T, width: usize) -> Rows<T> {
        Rows { taker, width, kept: Vec::new(), handed_out: None, pass: 0, end: None }
    }

    /// Takes as much of the kept row as there is.
    fn keep(&mut self, input: &[u8]) -> Step {
        let consumed = input.len().min(self.width - self.kept.len());
        self.kept.extend_from_slice(&input[..consumed]);
        if self.kept.len() == self.width {
            match self.taker.take(&self.kept, &mut []).pass {
                0 => self.kept.clear(),
                _ => self.handed_out = Some(0),
            }
        }
        open(consumed, 0)
    }

    fn hand_out_kept(&mut self, from: usize, output: &mut [u8]) -> Step {
        let produced = copy(&self.kept[from..], output);
        self.handed_out = Some(from + produced);
        if from + produced == self.kept.len() {
            self.kept.clear();
            self.handed_out = None;
        }
        open(0, produced)
    }

    fn hand_out(&mut self, input: &[u8], output: &mut [u8]) -> Step {
        let moved = copy(&input[..self.pass.min(input.len())], output);
        self.pass -= moved;
        open(moved, moved)
    }

    /// Ends the stream.
    fn finish(&mut self, output: &mut [u8]) -> Step {
        if !self.kept.is_empty() {
            return Step { consumed: 0, produced: 0, end: StepEnd::Failed(OperatorError::TruncatedData) };
        }
        let rest = self.end.get_or_insert_with(|| self.taker.finish());
        let produced = copy(rest, output);
        rest.drain(..produced);
        let end = if rest.is_empty() { StepEnd::Finished } else { StepEnd::Open };
        Step { consumed: 0, produced, end }
    }
}

impl<T: RowOperator> Codec for Rows<T> {
    fn step(&mut self, input: &[u8], output: &mut [u8], last: bool) -> Step {
        if let Some(from) = self.handed_out {
            return self.hand_out_kept(from, output);
        }
        if input.is_empty() {
            return if last { self.finish(output) } else { open(0, 0) };
        }
        if self.pass > 0 {
            return self.hand_out(input, output);
        }
        let whole = input.len() - input.len() % self.width;
        if whole == 0 || !self.kept.is_empty() {
            return self.keep(input);
        }
        let RowProgress { consumed, produced, pass } = self.taker.take(&input[..whole], output);
        self.pass = pass;
        match (consumed, pass) {
            (0, 1..) => self.hand_out(input, output),
            _ => open(consumed, produced),
        }
    }
}

fn open(consumed: usize, produced: usize) -> Step {
    Step { consumed, produced, end: StepEnd::Open }
}

fn copy(from: &[u8], to: &mut [u8]) -> usize {
    let length = from.len().min(to.len());
    to[..length].copy_from_slice(&from[..length]);
    length
}
