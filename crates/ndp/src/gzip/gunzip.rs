//! Decompression of gzip by flate2 and zlib-rs.

use flate2::{Decompress, FlushDecompress, Status};

use super::WINDOW_BITS;
use crate::OperatorError;
use crate::resize::{Codec, Step, StepEnd};

/// First byte of a member.
const MAGIC: u8 = 0x1f;

/// Decompression of one or more members, and of zeros after the last, with which tapes and block devices pad.
#[derive(Default)]
pub(crate) struct Gunzip {
    /// Member that the stream is in.
    member: Option<Decompress>,
    /// True once a member was read to its end.
    any: bool,
    /// True once padding has begun: no member may follow.
    padding: bool,
}

impl Codec for Gunzip {
    fn step(&mut self, input: &[u8], output: &mut [u8], last: bool) -> Step {
        match &mut self.member {
            Some(member) => {
                let step = inflate(member, input, output);
                match step.end {
                    StepEnd::Finished => self.member_end(step, input.len(), last),
                    _ => step,
                }
            }
            None => self.between(input, last),
        }
    }
}

impl Gunzip {
    /// Ends a member, and the stream if nothing follows.
    fn member_end(&mut self, step: Step, available: usize, last: bool) -> Step {
        self.member = None;
        self.any = true;
        let end = if last && step.consumed == available { StepEnd::Finished } else { StepEnd::Open };
        Step { end, ..step }
    }

    /// Handles input before the first member, between two, or after the last.
    fn between(&mut self, input: &[u8], last: bool) -> Step {
        let step = |consumed, end| Step { consumed, produced: 0, end };
        match input.first() {
            None if last && self.any => step(0, StepEnd::Finished),
            None => step(0, StepEnd::Open),
            Some(0) if self.any => {
                self.padding = true;
                step(input.iter().take_while(|byte| **byte == 0).count(), StepEnd::Open)
            }
            Some(&MAGIC) if !self.padding => {
                let mut member = Decompress::new_gzip(WINDOW_BITS);
                // One byte, so that this step makes progress; it can produce no output.
                let step = inflate(&mut member, &input[..1], &mut []);
                self.member = Some(member);
                step
            }
            Some(_) => step(0, StepEnd::Failed(OperatorError::CorruptData)),
        }
    }
}

/// Calls the library once. It checks the header, its CRC if it has one, and the CRC and length at the end.
fn inflate(member: &mut Decompress, input: &[u8], output: &mut [u8]) -> Step {
    let (before_in, before_out) = (member.total_in(), member.total_out());
    let result = member.decompress(input, output, FlushDecompress::None);
    let end = match result {
        Ok(Status::StreamEnd) => StepEnd::Finished,
        Ok(_) => StepEnd::Open,
        Err(_) => StepEnd::Failed(OperatorError::CorruptData),
    };
    let consumed = (member.total_in() - before_in) as usize;
    let produced = (member.total_out() - before_out) as usize;
    Step { consumed, produced, end }
}
