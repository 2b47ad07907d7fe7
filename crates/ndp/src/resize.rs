//! The loop that all length-changing operators share: it runs the steps of their libraries.

use crate::{DigestValue, OperatorError};

/// Progress of one call of [`Context::resize`](crate::Context::resize).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of the input that were used.
    pub consumed: usize,
    /// Bytes of the output that were filled.
    pub produced: usize,
    /// True if `last` was given, all input is consumed, and all output is out.
    pub finished: bool,
}

/// Progress of one call of a library.
pub struct Step {
    /// Bytes of the input that were used.
    pub consumed: usize,
    /// Bytes of the output that were filled.
    pub produced: usize,
    /// State of the stream.
    pub end: StepEnd,
}

/// State in which a step left the stream.
pub enum StepEnd {
    /// The stream may go on.
    Open,
    /// All input is consumed, and all output is out.
    Finished,
    /// The stream cannot go on; what the step consumed and produced counts.
    Failed(OperatorError),
}

/// A library, called step by step.
pub trait Codec: Send {
    /// Makes progress if possible. `output` is never empty.
    fn step(&mut self, input: &[u8], output: &mut [u8], last: bool) -> Step;

    /// Returns the value that it found in the data, once it is finished.
    fn value(&self) -> Option<DigestValue> {
        None
    }
}

/// A codec in the middle of its stream.
pub(crate) struct Resize {
    codec: Box<dyn Codec>,
    finished: bool,
    /// Error, reported once everything produced before it has been handed out.
    failed: Option<OperatorError>,
}

impl Resize {
    pub(crate) fn new(codec: impl Codec + 'static) -> Resize {
        Resize::of(Box::new(codec))
    }

    pub(crate) fn of(codec: Box<dyn Codec>) -> Resize {
        Resize { codec, finished: false, failed: None }
    }

    /// Returns the value at its end, if it has one.
    pub(crate) fn value(&self) -> Option<DigestValue> {
        self.codec.value().filter(|_| self.finished)
    }

    pub(crate) fn run(
        &mut self,
        input: &[u8],
        output: &mut [u8],
        last: bool,
    ) -> Result<Progress, OperatorError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let mut done = Progress { finished: self.finished, ..Progress::default() };
        if self.finished {
            return if input.is_empty() { Ok(done) } else { Err(OperatorError::InternalError) };
        }
        while done.produced < output.len() {
            let rest = &input[done.consumed..];
            let step = self.codec.step(rest, &mut output[done.produced..], last);
            done.consumed += step.consumed;
            done.produced += step.produced;
            let stalled = step.consumed == 0 && step.produced == 0;
            match step.end {
                StepEnd::Open if !stalled => continue,
                StepEnd::Open if rest.is_empty() && !last => break,
                // There was room, and all the input there will ever be.
                StepEnd::Open if rest.is_empty() => self.failed = Some(OperatorError::TruncatedData),
                StepEnd::Open => self.failed = Some(OperatorError::InternalError),
                StepEnd::Failed(error) => self.failed = Some(error),
                StepEnd::Finished => {
                    self.finished = true;
                    done.finished = true;
                }
            }
            break;
        }
        match self.failed {
            Some(error) if done.produced == 0 => Err(error),
            _ => Ok(done),
        }
    }
}
