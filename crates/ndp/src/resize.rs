//! The loop that all operators share that change the length: it runs the steps of their libraries.

use crate::{DigestValue, OperatorError};

/// The progress of one call of [`Context::resize`](crate::Context::resize).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of the input that need not be given again.
    pub consumed: usize,
    /// Bytes of the output that were filled.
    pub produced: usize,
    /// `last` was given, everything is consumed and everything is out.
    pub finished: bool,
}

/// The progress of one call of a library.
pub struct Step {
    /// Bytes of the input that are done with.
    pub consumed: usize,
    /// Bytes of the output that were filled.
    pub produced: usize,
    /// The state of the stream.
    pub end: StepEnd,
}

/// The state in which a step left the stream.
pub enum StepEnd {
    /// It may go on.
    Open,
    /// Everything was consumed and everything is out.
    Finished,
    /// It cannot go on; what the step consumed and produced counts.
    Failed(OperatorError),
}

/// A library, called step by step.
pub trait Codec: Send {
    /// Does something if it can. `output` is never empty.
    fn step(&mut self, input: &[u8], output: &mut [u8], last: bool) -> Step;

    /// The value that it found in the data, once it is finished.
    fn value(&self) -> Option<DigestValue> {
        None
    }
}

/// A codec in the middle of its stream.
pub(crate) struct Resize {
    codec: Box<dyn Codec>,
    finished: bool,
    /// Reported once all that was produced before it has been handed out.
    failed: Option<OperatorError>,
}

impl Resize {
    pub(crate) fn new(codec: impl Codec + 'static) -> Resize {
        Resize::of(Box::new(codec))
    }

    pub(crate) fn of(codec: Box<dyn Codec>) -> Resize {
        Resize { codec, finished: false, failed: None }
    }

    /// The value that it tells at its end, if it has one.
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
