//! gzip (RFC 1952) over flate2 and zlib-rs.

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

use crate::resize::{Codec, End, Step};
use crate::{OperatorError, parameter};

/// The largest window of deflate, 32 KiB.
const WINDOW_BITS: u8 = 15;

/// The first byte of a member.
const MAGIC: u8 = 0x1f;

/// Input that goes through the library at a time.
const STAGE: usize = 64 * 1024;

/// Room for output of one call of the library.
const ROOM: usize = 2 * STAGE;

/// Compression into one member.
///
/// What zlib-rs writes depends on where its input is cut and where its output is full. So it is called with whole
/// stages and the same room each time: then the same data give the same bytes, however they come and go.
pub(crate) struct Gzip {
    deflate: Compress,
    /// Input of the next call, of which the first `read` bytes are used up.
    stage: Vec<u8>,
    read: usize,
    /// Output of the last call, of which `taken..filled` is still to be handed out.
    room: Vec<u8>,
    taken: usize,
    filled: usize,
    /// The member is complete in `room`.
    ended: bool,
}

impl Gzip {
    pub(crate) fn new(parameter: &[u8]) -> Result<Gzip, OperatorError> {
        let level = parameter::parse_level(parameter, 1, 0..=9)?;
        Ok(Gzip {
            deflate: Compress::new_gzip(Compression::new(level.into()), WINDOW_BITS),
            stage: Vec::with_capacity(STAGE),
            read: 0,
            room: vec![0; ROOM],
            taken: 0,
            filled: 0,
            ended: false,
        })
    }

    /// One call of the library, when everything it produced before has been handed out.
    fn deflate(&mut self) -> Result<(), OperatorError> {
        let input = &self.stage[self.read..];
        let flush = if input.is_empty() { FlushCompress::Finish } else { FlushCompress::None };
        let (before_in, before_out) = (self.deflate.total_in(), self.deflate.total_out());
        let status = self.deflate.compress(input, &mut self.room, flush);
        let consumed = (self.deflate.total_in() - before_in) as usize;
        let produced = (self.deflate.total_out() - before_out) as usize;
        self.ended = matches!(status, Ok(Status::StreamEnd));
        if status.is_err() || consumed + produced == 0 && !self.ended {
            return Err(OperatorError::InternalError);
        }
        (self.taken, self.filled) = (0, produced);
        self.read += consumed;
        if self.read == self.stage.len() {
            self.stage.clear();
            self.read = 0;
        }
        Ok(())
    }
}

impl Codec for Gzip {
    fn step(&mut self, input: &[u8], output: &mut [u8], last: bool) -> Step {
        let consumed = input.len().min(STAGE - self.stage.len());
        self.stage.extend_from_slice(&input[..consumed]);
        let all = last && consumed == input.len();
        while self.taken == self.filled && !self.ended && (all || self.stage.len() == STAGE) {
            if let Err(error) = self.deflate() {
                return Step { consumed, produced: 0, end: End::Failed(error) };
            }
        }
        let ready = &self.room[self.taken..self.filled];
        let produced = ready.len().min(output.len());
        output[..produced].copy_from_slice(&ready[..produced]);
        self.taken += produced;
        let end = if self.ended && self.taken == self.filled { End::Finished } else { End::Open };
        Step { consumed, produced, end }
    }
}

/// Decompression of one or more members, and of zeros after the last, with which tapes and block devices pad.
#[derive(Default)]
pub(crate) struct Gunzip {
    /// The member that the stream is in.
    member: Option<Decompress>,
    /// A member was read to its end.
    any: bool,
    /// Padding has begun: no member may follow.
    padding: bool,
}

impl Codec for Gunzip {
    fn step(&mut self, input: &[u8], output: &mut [u8], last: bool) -> Step {
        match &mut self.member {
            Some(member) => {
                let step = inflate(member, input, output);
                match step.end {
                    End::Finished => self.member_end(step, input.len(), last),
                    _ => step,
                }
            }
            None => self.between(input, last),
        }
    }
}

impl Gunzip {
    /// A member ended: so does the stream where nothing follows.
    fn member_end(&mut self, step: Step, available: usize, last: bool) -> Step {
        self.member = None;
        self.any = true;
        let end = if last && step.consumed == available { End::Finished } else { End::Open };
        Step { end, ..step }
    }

    /// Before the first member, between two, or after the last.
    fn between(&mut self, input: &[u8], last: bool) -> Step {
        let step = |consumed, end| Step { consumed, produced: 0, end };
        match input.first() {
            None if last && self.any => step(0, End::Finished),
            None => step(0, End::Open),
            Some(0) if self.any => {
                self.padding = true;
                step(input.iter().take_while(|byte| **byte == 0).count(), End::Open)
            }
            Some(&MAGIC) if !self.padding => {
                let mut member = Decompress::new_gzip(WINDOW_BITS);
                // One byte, so that this step has moved; no output can come of it.
                let step = inflate(&mut member, &input[..1], &mut []);
                self.member = Some(member);
                step
            }
            Some(_) => step(0, End::Failed(OperatorError::CorruptData)),
        }
    }
}

/// One call of the library. It checks the header, its CRC where there is one, and the CRC and length at the end.
fn inflate(member: &mut Decompress, input: &[u8], output: &mut [u8]) -> Step {
    let (before_in, before_out) = (member.total_in(), member.total_out());
    let result = member.decompress(input, output, FlushDecompress::None);
    let end = match result {
        Ok(Status::StreamEnd) => End::Finished,
        Ok(_) => End::Open,
        Err(_) => End::Failed(OperatorError::CorruptData),
    };
    let consumed = (member.total_in() - before_in) as usize;
    let produced = (member.total_out() - before_out) as usize;
    Step { consumed, produced, end }
}
