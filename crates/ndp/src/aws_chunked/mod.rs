//! Removes S3's aws-chunked framing: chunks with their sizes and signatures, then trailers.
//!
//! ```text
//! 400;chunk-signature=<64 hex digits>\r\n  <1024 bytes>\r\n   ...   0;chunk-signature=<64 hex digits>\r\n
//! x-amz-checksum-crc32c:<base64>\r\n  x-amz-trailer-signature:<64 hex digits>\r\n  \r\n
//! ```
//!
//! (Amazon S3 API Reference, "Signature Calculations for the Authorization Header: Transferring Payload in
//! Multiple Chunks", and the same "with trailing headers".) Nothing here allocates once the stream has begun.

mod line;
mod signature;
mod trailer;

use crate::parameter::parse_aws_chunked;
use crate::resize::{Codec, Step, StepEnd};
use crate::{DigestValue, OperatorError};

use line::{Line, trim};
use signature::Signature;
use trailer::Checksum;

/// Bytes of the longest line before a chunk, its end included.
const HEADER_MAX: usize = 256;
/// Bytes of all trailers together.
const TRAILERS_MAX: usize = 1024;

const CHUNK_SIGNATURE: &[u8] = b"chunk-signature";
const TRAILER_SIGNATURE: &[u8] = b"x-amz-trailer-signature";

/// Part of the framing that comes next.
enum State {
    /// The line before a chunk.
    Header,
    /// Data of the chunk, with the bytes that are left.
    Data(u64),
    /// End of line after a chunk.
    DataEnd,
    /// Trailers, and the empty line after them.
    Trailers,
    /// Nothing: the framing has ended.
    StepEnd,
}

/// A stream with framing.
pub(crate) struct AwsChunked {
    state: State,
    line: Line,
    /// Bytes of data that are still to come.
    left: u64,
    /// Chain of the chunks' signatures, if they are signed.
    signature: Option<Signature>,
    /// Signature that the chunk's line claims.
    claimed: [u8; 32],
    /// True if trailers follow the last chunk.
    trailers: bool,
    /// Bytes of trailers so far.
    trailer_bytes: usize,
    /// True once the trailers' own signature was verified.
    trailers_signed: bool,
    /// Checksum that was announced.
    checksum: Option<Checksum>,
}

impl AwsChunked {
    pub(crate) fn new(parameter: &[u8]) -> Result<AwsChunked, OperatorError> {
        let parameter = parse_aws_chunked(parameter)?;
        Ok(AwsChunked {
            state: State::Header,
            line: Line::default(),
            left: parameter.decoded_length,
            signature: parameter.signature.as_ref().map(Signature::new).transpose()?,
            claimed: [0; 32],
            trailers: parameter.trailers,
            trailer_bytes: 0,
            trailers_signed: false,
            checksum: parameter.checksum.map(Checksum::new).transpose()?,
        })
    }

    /// Takes the next piece of the framing, as far as it goes. Returns the bytes consumed and produced.
    fn advance(&mut self, input: &[u8], output: &mut [u8]) -> Result<(usize, usize), OperatorError> {
        let most = match self.state {
            State::Data(left) => return Ok(self.data(left, input, output)),
            State::Header => HEADER_MAX,
            State::DataEnd => 2,
            State::Trailers => TRAILERS_MAX - self.trailer_bytes,
            State::StepEnd => return if input.is_empty() { Ok((0, 0)) } else { Err(OperatorError::Framing) },
        };
        let (consumed, complete) = self.line.fill(input, most)?;
        if complete {
            // The line is taken out while the rest of the state is borrowed, and put back for the next one.
            let line = std::mem::take(&mut self.line);
            self.state = match self.state {
                State::Header => self.header(line.strict()?)?,
                State::DataEnd => self.data_end(line.strict()?)?,
                _ => {
                    self.trailer_bytes += line.bytes().len();
                    self.trailer(line.lenient())?
                }
            };
        }
        Ok((consumed, 0))
    }

    /// Parses the line before a chunk: its size in hexadecimal digits, and extensions.
    fn header(&mut self, line: &[u8]) -> Result<State, OperatorError> {
        let mut parts = line.split(|byte| *byte == b';');
        let size = size(parts.next().unwrap_or_default())?;
        let mut claimed = None;
        for extension in parts {
            let at = extension.iter().position(|byte| *byte == b'=').ok_or(OperatorError::Framing)?;
            let (name, value) = (&extension[..at], &extension[at + 1..]);
            if name == CHUNK_SIGNATURE && claimed.replace(signature::parse(value)?).is_some() {
                return Err(OperatorError::Framing);
            }
        }
        if self.signature.is_some() {
            self.claimed = claimed.ok_or(OperatorError::Framing)?;
        }
        self.left = self.left.checked_sub(size).ok_or(OperatorError::Framing)?;
        if size > 0 {
            return Ok(State::Data(size));
        }
        if self.left > 0 {
            return Err(OperatorError::Framing);
        }
        self.chunk_end()?;
        Ok(State::Trailers)
    }

    fn data(&mut self, left: u64, input: &[u8], output: &mut [u8]) -> (usize, usize) {
        let most = input.len().min(output.len());
        let length = usize::try_from(left).map_or(most, |left| left.min(most));
        let (data, into) = (&input[..length], &mut output[..length]);
        if let Some(signature) = &mut self.signature {
            signature.absorb(data);
        }
        into.copy_from_slice(data);
        self.state = match left - length as u64 {
            0 => State::DataEnd,
            left => State::Data(left),
        };
        (length, length)
    }

    fn data_end(&mut self, line: &[u8]) -> Result<State, OperatorError> {
        if !line.is_empty() {
            return Err(OperatorError::Framing);
        }
        self.chunk_end()?;
        Ok(State::Header)
    }

    fn chunk_end(&mut self) -> Result<(), OperatorError> {
        match &mut self.signature {
            Some(signature) => signature.verify_chunk(&self.claimed),
            None => Ok(()),
        }
    }

    /// Parses a line after the last chunk. The signature covers the lines before its own.
    fn trailer(&mut self, line: &[u8]) -> Result<State, OperatorError> {
        if line.is_empty() {
            return self.trailers_end();
        }
        let at = line.iter().position(|byte| *byte == b':').ok_or(OperatorError::Framing)?;
        let (name, value) = (trim(&line[..at]), trim(&line[at + 1..]));
        if !self.trailers || name.is_empty() || self.trailers_signed {
            return Err(OperatorError::Framing);
        }
        match &mut self.signature {
            Some(signature) if name.eq_ignore_ascii_case(TRAILER_SIGNATURE) => {
                signature.verify_trailers(&signature::parse(value)?)?;
                self.trailers_signed = true;
                return Ok(State::Trailers);
            }
            Some(signature) => signature.absorb_trailer(name, value),
            None => {}
        }
        if let Some(checksum) = &mut self.checksum {
            checksum.take(name, value)?;
        }
        Ok(State::Trailers)
    }

    /// Handles an empty line: the end. Some clients also write one before the trailers' signature, as the line ends in
    /// Amazon's example of a string to sign suggest.
    fn trailers_end(&self) -> Result<State, OperatorError> {
        if self.trailers && self.signature.is_some() && !self.trailers_signed {
            let first = self.trailer_bytes > 2;
            return if first { Ok(State::Trailers) } else { Err(OperatorError::Framing) };
        }
        match &self.checksum {
            Some(checksum) if checksum.value().is_none() => Err(OperatorError::Framing),
            _ => Ok(State::StepEnd),
        }
    }
}

impl Codec for AwsChunked {
    fn step(&mut self, input: &[u8], output: &mut [u8], last: bool) -> Step {
        match self.advance(input, output) {
            Err(error) => Step { consumed: 0, produced: 0, end: StepEnd::Failed(error) },
            Ok((consumed, produced)) => {
                let ended = matches!(self.state, State::StepEnd) && last && consumed == input.len();
                Step { consumed, produced, end: if ended { StepEnd::Finished } else { StepEnd::Open } }
            }
        }
    }

    fn value(&self) -> Option<DigestValue> {
        self.checksum.as_ref()?.value()
    }
}

/// Parses the size of a chunk: 1 to 16 hexadecimal digits.
fn size(digits: &[u8]) -> Result<u64, OperatorError> {
    if !(1..=16).contains(&digits.len()) || !digits.iter().all(u8::is_ascii_hexdigit) {
        return Err(OperatorError::Framing);
    }
    let digits = str::from_utf8(digits).map_err(|_| OperatorError::Framing)?;
    u64::from_str_radix(digits, 16).map_err(|_| OperatorError::Framing)
}
