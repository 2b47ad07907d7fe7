//! Zstandard (RFC 8878) over the reference library.

use std::mem;

use zstd_safe::{CCtx, CParameter, DCtx, DParameter, ErrorCode, InBuffer, OutBuffer};

use crate::resize::{Codec, Step, StepEnd};
use crate::{OperatorError, parameter};

/// Compression into one frame, with a content checksum, so that damage is found, as in gzip.
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
        // Ending the frame waits until the input is used up, so that the output does not depend on how the input was
        // cut.
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

/// Bytes of a block header, which the library counts into the input that it requests next.
const BLOCK_HEADER: usize = 3;

/// Bytes of the longest frame header. Units up to this length go in byte by byte: cut elsewhere, the rest of a header
/// may look like a frame of its own, and the library, which looks ahead for a whole one, would take it for that.
const FRAME_HEADER: usize = 18;

/// Bytes of the longest block. A longer unit is the content of a skippable frame, which produces nothing.
const BLOCK: usize = 128 << 10;

/// Largest window of a frame by default, as a power of two: 128 MiB, which is the library's own limit.
pub(crate) const WINDOW_MAX: u8 = 27;

/// Error code of the library for lack of memory (`ZSTD_error_memory_allocation`).
const OUT_OF_MEMORY: usize = 64;

/// Decompression of one or more frames. Skippable frames are skipped.
///
/// The library drops what a call produced if the same call fails later, and outputs what there is of an uncompressed
/// block. So each call gets one whole unit (a block, a checksum), however the input is cut.
pub(crate) struct Unzstd {
    context: DCtx<'static>,
    /// True while some of a frame was read, but not all.
    in_frame: bool,
    /// True once a frame was read to its end.
    any: bool,
    /// Bytes of input up to the end of the unit.
    unit: usize,
    /// Beginning of the unit, while the rest is missing.
    held: Vec<u8>,
    /// True if the last call filled its output, so that the library may hold more.
    full: bool,
}

impl Unzstd {
    /// Frames may have a window of `1 << window` bytes: others are refused.
    pub(crate) fn new(window: u8) -> Result<Unzstd, OperatorError> {
        let mut context = DCtx::try_create().ok_or(OperatorError::InternalError)?;
        let limit = DParameter::WindowLogMax(window.into());
        context.set_parameter(limit).map_err(|_| OperatorError::BadParameter)?;
        Ok(Unzstd { context, in_frame: false, any: false, unit: 1, held: Vec::new(), full: false })
    }

    /// Calls the library once.
    fn call(&mut self, input: &[u8], output: &mut [u8]) -> Step {
        let room = output.len();
        let (mut input, mut output) = (InBuffer::around(input), OutBuffer::around(output));
        let result = self.context.decompress_stream(&mut output, &mut input);
        let (consumed, produced) = (input.pos(), output.pos());
        let end = match result {
            Err(code) => StepEnd::Failed(failure(code)),
            // The frame is decoded, and all of it is out.
            Ok(0) => {
                (self.in_frame, self.any, self.unit, self.full) = (false, true, 1, false);
                StepEnd::Open
            }
            Ok(hint) => {
                self.in_frame = true;
                // The library requests a block together with the header of the next one.
                self.unit = if hint > BLOCK_HEADER { hint - BLOCK_HEADER } else { hint };
                self.full = produced == room;
                StepEnd::Open
            }
        };
        Step { consumed, produced, end }
    }

    /// Calls the library if the unit is complete, else keeps what there is of it.
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
        // At a frame's end the library leaves one byte unread until the output is out: one of the bytes that were
        // missing.
        debug_assert!(step.consumed >= held || matches!(step.end, StepEnd::Failed(_)));
        Step { consumed: step.consumed.saturating_sub(held), ..step }
    }
}

impl Codec for Unzstd {
    fn step(&mut self, input: &[u8], output: &mut [u8], last: bool) -> Step {
        if self.full {
            // What the library holds comes out in a call of its own, so that an error does not discard it.
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
