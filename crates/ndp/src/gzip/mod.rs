//! gzip (RFC 1952): compression by ISA-L if the machine has it, else by zlib-rs; decompression by zlib-rs.

mod gunzip;
#[cfg(target_arch = "x86_64")]
mod isal;

use std::mem;

use flate2::{Compress, Compression, FlushCompress, Status};

use crate::resize::{Codec, Step, StepEnd};
use crate::{OperatorError, parameter};

pub(crate) use gunzip::Gunzip;

/// Largest window of deflate, 32 KiB.
const WINDOW_BITS: u8 = 15;

/// Default level, which is also the one that ISA-L does.
const FAST: u8 = 1;

/// Bytes of input that a library gets in one piece: at 64 KiB ISA-L is 5 % slower, and larger pieces gain nothing.
const STAGE: usize = 128 * 1024;

/// Bytes of the buffer for the output of one call of a library.
const OUTPUT_BUFFER: usize = 64 * 1024;

/// Name of the library that is always there.
const ZLIB_RS: &str = "zlib-rs";

/// Progress of one call of a library.
struct Call {
    consumed: usize,
    produced: usize,
    /// True if the member is complete.
    ended: bool,
}

/// A library that compresses into one member.
trait Deflate: Send {
    /// Compresses. `finish`: nothing follows `input`, in this call and all later ones.
    fn call(&mut self, input: &[u8], output: &mut [u8], finish: bool) -> Result<Call, OperatorError>;
}

impl Deflate for Compress {
    fn call(&mut self, input: &[u8], output: &mut [u8], finish: bool) -> Result<Call, OperatorError> {
        let flush = if finish { FlushCompress::Finish } else { FlushCompress::None };
        let (before_in, before_out) = (self.total_in(), self.total_out());
        let status = self.compress(input, output, flush).map_err(|_| OperatorError::InternalError)?;
        Ok(Call {
            consumed: (self.total_in() - before_in) as usize,
            produced: (self.total_out() - before_out) as usize,
            ended: status == Status::StreamEnd,
        })
    }
}

/// Returns the library for a level.
fn deflate(level: u8) -> Box<dyn Deflate> {
    #[cfg(target_arch = "x86_64")]
    if level == FAST
        && let Some(library) = isal::library()
    {
        return Box::new(isal::Stream::new(library));
    }
    zlib_rs(level)
}

fn zlib_rs(level: u8) -> Box<dyn Deflate> {
    Box::new(Compress::new_gzip(Compression::new(level.into()), WINDOW_BITS))
}

/// Returns the name of the library that compresses in this process.
pub(crate) fn gzip_library() -> &'static str {
    #[cfg(target_arch = "x86_64")]
    if isal::library().is_some() {
        return "ISA-L (level 1), zlib-rs (others)";
    }
    ZLIB_RS
}

/// Name of the library that decompresses.
pub(crate) const GUNZIP_LIBRARY: &str = ZLIB_RS;

/// Compression into one member.
///
/// The output of zlib-rs depends on where its input is cut and where its output is full. So it gets the input in
/// stages, and the same output buffer each time: then the same data always give the same bytes. ISA-L is fastest this
/// way too, but does not promise the same bytes: about one stream in 500 differed by some bits in the header of a
/// deflate block from one run to the next, and was as good. Nothing is copied if a stage comes in one piece and the
/// output has the room.
pub(crate) struct Gzip {
    library: Box<dyn Deflate>,
    /// Bytes of the stage that the library has taken.
    taken: usize,
    /// Bytes of a stage that came in pieces.
    staged: Vec<u8>,
    /// Bytes of `staged` that the library has taken.
    read: usize,
    /// Output for which there was no room when it was produced.
    room: Vec<u8>,
    /// Bytes of `room` that have been handed out.
    given: usize,
    /// True once the library has been told that nothing follows.
    finishing: bool,
    /// True once the member is complete.
    ended: bool,
}

impl Gzip {
    pub(crate) fn new(parameter: &[u8]) -> Result<Gzip, OperatorError> {
        Ok(Gzip::with(deflate(parameter::parse_level(parameter, FAST, 0..=9)?)))
    }

    fn with(library: Box<dyn Deflate>) -> Gzip {
        let (staged, room) = (Vec::new(), Vec::new());
        Gzip { library, taken: 0, staged, read: 0, room, given: 0, finishing: false, ended: false }
    }

    /// Calls the library once, with everything of the stage that it has not taken. Returns the bytes consumed and
    /// produced.
    fn call(&mut self, rest: &[u8], output: &mut [u8], last: bool) -> Result<(usize, usize), OperatorError> {
        // A whole stage is never the last: an empty one follows.
        self.finishing |= last && rest.len() < STAGE - self.taken;
        let direct = output.len() >= OUTPUT_BUFFER;
        let room = if direct {
            &mut output[..OUTPUT_BUFFER]
        } else {
            self.room.resize(OUTPUT_BUFFER, 0);
            &mut self.room[..]
        };
        let call = self.library.call(rest, room, self.finishing)?;
        if call.consumed == 0 && call.produced == 0 && !call.ended {
            return Err(OperatorError::InternalError);
        }
        self.ended = call.ended;
        self.taken = (self.taken + call.consumed) % STAGE;
        if direct {
            return Ok((call.consumed, call.produced));
        }
        self.room.truncate(call.produced);
        Ok((call.consumed, self.hand_out(output)))
    }

    fn hand_out(&mut self, output: &mut [u8]) -> usize {
        let ready = &self.room[self.given..];
        let produced = ready.len().min(output.len());
        output[..produced].copy_from_slice(&ready[..produced]);
        self.given += produced;
        if self.given == self.room.len() {
            self.room.clear();
            self.given = 0;
        }
        produced
    }

    /// Hands out, gathers or calls the library. Returns the bytes consumed and produced, which may be none after a
    /// call; `None` if there is nothing to do.
    fn advance(
        &mut self,
        input: &[u8],
        output: &mut [u8],
        last: bool,
    ) -> Result<Option<(usize, usize)>, OperatorError> {
        if !self.room.is_empty() {
            return Ok(Some((0, self.hand_out(output))));
        }
        let missing = STAGE - self.taken - (self.staged.len() - self.read);
        let arriving = &input[..input.len().min(missing)];
        let complete = arriving.len() == missing || last && arriving.len() == input.len();
        if complete && self.staged.is_empty() {
            return self.call(arriving, output, last).map(Some);
        }
        self.staged.extend_from_slice(arriving);
        if !complete {
            return Ok((!arriving.is_empty()).then_some((arriving.len(), 0)));
        }
        let staged = mem::take(&mut self.staged);
        let (consumed, produced) = self.call(&staged[self.read..], output, last)?;
        self.staged = staged;
        self.read += consumed;
        if self.read == self.staged.len() {
            self.staged.clear();
            self.read = 0;
        }
        Ok(Some((arriving.len(), produced)))
    }
}

impl Codec for Gzip {
    fn step(&mut self, input: &[u8], output: &mut [u8], last: bool) -> Step {
        loop {
            let (consumed, produced, end) = match self.advance(input, output, last) {
                Err(error) => (0, 0, StepEnd::Failed(error)),
                Ok(Some((consumed, produced))) if self.ended && self.room.is_empty() => {
                    (consumed, produced, StepEnd::Finished)
                }
                Ok(Some((0, 0))) => continue,
                Ok(Some((consumed, produced))) => (consumed, produced, StepEnd::Open),
                Ok(None) => (0, 0, StepEnd::Open),
            };
            return Step { consumed, produced, end };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resize::Resize;
    use proptest::prelude::*;

    /// Index of ISA-L in [`libraries`].
    const ISA_L: usize = 2;

    /// Returns every library that this machine has.
    fn libraries() -> Vec<Box<dyn Deflate>> {
        let mut all: Vec<Box<dyn Deflate>> = vec![zlib_rs(FAST), zlib_rs(6)];
        #[cfg(target_arch = "x86_64")]
        all.extend(isal::library().map(|library| Box::new(isal::Stream::new(library)) as Box<dyn Deflate>));
        all
    }

    /// Returns the whole output of a codec, with input in these pieces and so much output room at a time.
    fn run(codec: impl Codec + 'static, input: &[u8], pieces: &[usize], room: usize) -> Vec<u8> {
        let (mut codec, mut output, mut room) = (Resize::new(codec), Vec::new(), vec![0; room]);
        let (mut rest, mut sizes) = (input, pieces.iter().cycle());
        loop {
            let (mut piece, after) = rest.split_at(rest.len().min(*sizes.next().unwrap()));
            rest = after;
            loop {
                let progress = codec.run(piece, &mut room, rest.is_empty()).unwrap();
                output.extend_from_slice(&room[..progress.produced]);
                piece = &piece[progress.consumed..];
                if progress.finished {
                    return output;
                }
                if piece.is_empty() && progress.produced < room.len() && !rest.is_empty() {
                    break;
                }
            }
        }
    }

    /// Makes words, runs and noise in turn.
    fn data(seed: u64, length: usize) -> Vec<u8> {
        let mut random = dcs_testkit::Random(seed);
        let mut next = move || random.next() >> 33;
        let mut data = Vec::with_capacity(length + 200_000);
        while data.len() < length {
            let end = data.len() + next() as usize % 200_000;
            let kind = next() % 3;
            while data.len() < end {
                match kind {
                    0 => data.extend_from_slice(format!("word{} ", next() % 1000).as_bytes()),
                    1 => data.resize(data.len() + 1 + next() as usize % 1000, next() as u8),
                    _ => data.push(next() as u8),
                }
            }
        }
        data.truncate(length);
        data
    }

    /// Lengths around the edges of stages, and any others.
    fn lengths() -> impl Strategy<Value = usize> {
        prop_oneof![0..100usize, STAGE - 3..STAGE + 3, 2 * STAGE - 3..2 * STAGE + 3, 0..5 * STAGE]
    }

    fn sizes() -> impl Strategy<Value = usize> {
        prop_oneof![1..300usize, OUTPUT_BUFFER - 2..OUTPUT_BUFFER + 2, STAGE - 2..STAGE + 2, 1..4 * STAGE]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn every_library_restores_and_zlib_rs_writes_the_same_however_it_is_cut(
            seed: u64, length in lengths(), pieces in prop::collection::vec(sizes(), 1..5), room in sizes(),
            back in sizes(),
        ) {
            let data = data(seed, length);
            for (at, (cut, whole)) in libraries().into_iter().zip(libraries()).enumerate() {
                let stream = run(Gzip::with(cut), &data, &pieces, room);
                let whole = run(Gzip::with(whole), &data, &[usize::MAX], 8 * STAGE);
                // ISA-L may write other bytes for the same data.
                prop_assert!(at == ISA_L || stream == whole);
                prop_assert!(run(Gunzip::default(), &whole, &pieces, back) == data);
                prop_assert!(run(Gunzip::default(), &stream, &pieces, back) == data);
            }
        }
    }
}
