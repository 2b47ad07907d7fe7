//! Zstandard (RFC 8878) over the reference library.

use std::mem;

use zstd_safe::{CCtx, CParameter, DCtx, ErrorCode, InBuffer, OutBuffer};

use crate::resize::{Codec, Step, StepEnd};
use crate::{OperatorError, parameter};

/// Compression into one frame, with a content checksum, so that damage is found as it is in gzip.
pub(crate) struct Zstd(CCtx<'static>);

impl Zstd {
    pub(crate) fn new(parameter: &[u8]) -> Result<Zstd, OperatorError> {
        let level = parameter::parse_level(parameter, 3, 1..=19)?;
        let mut context = CCtx::try_create().ok_or(OperatorError::InternalError)?;
        for setting in [CParameter::CompressionLevel(level.into()), CParameter::ChecksumFlag(true)] {
            context.set_parameter(setting).map_err(|_| OperatorError::InternalError)?;
        }
        Ok(Zstd(context))
    }
}

impl Codec for Zstd {
    fn step(&mut self, input: &[u8], output: &mut [u8], last: bool) -> Step {
        let (mut input, mut output) = (InBuffer::around(input), OutBuffer::around(output));
        // Ending the frame waits until the input is used up: then the bytes that come out do not depend on
        // how the input was cut.
        let end = if !input.src.is_empty() {
            self.0.compress_stream(&mut output, &mut input).map(|_| StepEnd::Open)
        } else if last {
            self.0
                .end_stream(&mut output)
                .map(|left| if left == 0 { StepEnd::Finished } else { StepEnd::Open })
        } else {
            Ok(StepEnd::Open)
        };
        let end = end.unwrap_or(StepEnd::Failed(OperatorError::InternalError));
        Step { consumed: input.pos(), produced: output.pos(), end }
    }
}

/// Bytes of a block header, which the library counts into the input that it asks for next.
const BLOCK_HEADER: usize = 3;

/// The longest frame header. Units up to this length go in byte by byte: cut elsewhere, the rest of a header
/// may look like a frame of its own, and the library, which looks ahead for a whole one, would take it for
/// that.
const FRAME_HEADER: usize = 18;

/// The longest block. A longer unit is the content of a skippable frame, of which nothing comes out.
const BLOCK: usize = 128 << 10;

/// Code of the library's error for want of memory (`ZSTD_error_memory_allocation`).
const OUT_OF_MEMORY: usize = 64;

/// Decompression of one or more frames. Skippable frames are passed over.
///
/// The library drops what a call produced when the same call fails later on, and of a block that is not
/// compressed it puts out what there is. So each call gets one whole unit (a block, a checksum), however the
/// input is cut.
pub(crate) struct Unzstd {
    context: DCtx<'static>,
    /// Some of a frame was read and not yet all of it.
    in_frame: bool,
    /// A frame was read to its end.
    any: bool,
    /// Bytes of input up to the end of the unit.
    unit: usize,
    /// The beginning of the unit, while the rest is not there.
    held: Vec<u8>,
    /// The last call filled its output: the library may hold more.
    full: bool,
}

impl Unzstd {
    pub(crate) fn new() -> Result<Unzstd, OperatorError> {
        let context = DCtx::try_create().ok_or(OperatorError::InternalError)?;
        Ok(Unzstd { context, in_frame: false, any: false, unit: 1, held: Vec::new(), full: false })
    }

    /// One call of the library.
    fn call(&mut self, input: &[u8], output: &mut [u8]) -> Step {
        let room = output.len();
        let (mut input, mut output) = (InBuffer::around(input), OutBuffer::around(output));
        let result = self.context.decompress_stream(&mut output, &mut input);
        let (consumed, produced) = (input.pos(), output.pos());
        let end = match result {
            Err(code) => StepEnd::Failed(failure(code)),
            // The frame is decoded and all of it is out.
            Ok(0) => {
                (self.in_frame, self.any, self.unit, self.full) = (false, true, 1, false);
                StepEnd::Open
            }
            Ok(hint) => {
                self.in_frame = true;
                // A block is asked for together with the header of the next one.
                self.unit = if hint > BLOCK_HEADER { hint - BLOCK_HEADER } else { hint };
                self.full = produced == room;
                StepEnd::Open
            }
        };
        Step { consumed, produced, end }
    }

    /// Calls the library if the unit is whole, and keeps what there is of it if not.
    fn unit(&mut self, input: &[u8], output: &mut [u8]) -> Step {
        let size = match self.unit {
            unit if unit <= FRAME_HEADER => 1,
            unit if unit <= BLOCK => unit,
            unit => unit.min(input.len()),
        };
        let missing = size - self.held.len();
        if input.len() < missing {
            self.held.extend_from_slice(input);
            return Step { consumed: input.len(), produced: 0, end: StepEnd::Open };
        }
        if self.held.is_empty() {
            return self.call(&input[..size], output);
        }
        let (held, mut unit) = (self.held.len(), mem::take(&mut self.held));
        unit.extend_from_slice(&input[..missing]);
        let step = self.call(&unit, output);
        unit.clear();
        self.held = unit;
        // Of a frame's end the library leaves one byte until the output is out: one of those that were
        // missing.
        debug_assert!(step.consumed >= held || matches!(step.end, StepEnd::Failed(_)));
        Step { consumed: step.consumed.saturating_sub(held), ..step }
    }
}

impl Codec for Unzstd {
    fn step(&mut self, input: &[u8], output: &mut [u8], last: bool) -> Step {
        if self.full {
            // What the library holds comes out in a call of its own: an error must not take it along.
            let step = self.call(&[], output);
            if step.produced > 0 || !matches!(step.end, StepEnd::Open) {
                return step;
            }
        }
        let step = match input {
            [] => Step { consumed: 0, produced: 0, end: StepEnd::Open },
            _ => self.unit(input, output),
        };
        let between_frames = self.any && !self.in_frame;
        match step.end {
            StepEnd::Open if last && between_frames && step.consumed == input.len() => {
                Step { end: StepEnd::Finished, ..step }
            }
            _ => step,
        }
    }
}

fn failure(code: ErrorCode) -> OperatorError {
    match code.wrapping_neg() {
        OUT_OF_MEMORY => OperatorError::InternalError,
        _ => OperatorError::CorruptData,
    }
}
