//! A range of the stream: drops what is before it and after it.

use crate::resize::{Codec, Step, StepEnd};
use crate::{OperatorError, parameter};

/// State of the stream.
pub(crate) struct Slice {
    /// Bytes still to drop.
    skip: u64,
    /// Bytes to pass after those.
    take: u64,
}

impl Slice {
    pub(crate) fn new(parameter: &[u8]) -> Result<Slice, OperatorError> {
        let (skip, take) = parameter::parse_slice(parameter)?;
        Ok(Slice { skip, take })
    }
}

impl Codec for Slice {
    fn step(&mut self, input: &[u8], output: &mut [u8], last: bool) -> Step {
        let up_to = |left: u64, most: usize| usize::try_from(left).map_or(most, |left| left.min(most));
        let skipped = up_to(self.skip, input.len());
        let input = &input[skipped..];
        let produced = up_to(self.take, input.len().min(output.len()));
        output[..produced].copy_from_slice(&input[..produced]);
        self.skip -= skipped as u64;
        self.take -= produced as u64;
        let through = self.skip == 0 && self.take == 0;
        // The stream is read to its end anyway: operators before this one find out there whether their data were sound.
        let consumed = if through { skipped + input.len() } else { skipped + produced };
        let end = if through && last { StepEnd::Finished } else { StepEnd::Open };
        Step { consumed, produced, end }
    }
}
