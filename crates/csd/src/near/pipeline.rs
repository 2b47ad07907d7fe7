//! A chain at work: a stream goes in piece by piece, and what comes out goes to a sink.

use dcs_abi::operator::OperatorKind;
use dcs_abi::result::DigestSlot;
use dcs_ndp::{Context, OperatorError};
use dcs_nvme::Status;

use super::program::status_of;

/// Bytes that an operator which changes the length may make at once.
const ROOM: usize = 64 << 10;
/// The largest data unit: an operator that needs whole ones gets multiples of this, but at the end.
const UNIT: usize = 64 << 10;

/// Bytes of a digest slot.
const SLOT: usize = 80;

/// Takes what comes out.
pub type Sink<'a> = dyn FnMut(&[u8]) -> Result<(), Status> + 'a;

/// A chain in the middle of its stream.
pub struct Pipeline {
    steps: Vec<Step>,
    /// The operator that failed.
    pub failed: Option<u8>,
}

struct Step {
    context: Context,
    /// Bytes that went into it; that came out of it, where it changes the length.
    covered: u64,
    /// Bytes that make no whole unit yet.
    kept: Vec<u8>,
    /// Nothing comes out of it any more.
    ended: bool,
}

impl Pipeline {
    pub fn new(contexts: Vec<Context>) -> Pipeline {
        let step = |context| Step { context, covered: 0, kept: Vec::new(), ended: false };
        Pipeline { steps: contexts.into_iter().map(step).collect(), failed: None }
    }

    /// Feeds the next bytes of the stream, which may be changed in place; with `last` they are the last ones.
    pub fn feed(&mut self, bytes: &mut [u8], last: bool, sink: &mut Sink<'_>) -> Result<(), Status> {
        pass(&mut self.steps, 0, bytes, last, sink, &mut self.failed)
    }

    /// The digests as they stand: a slot for each operator, in order.
    pub fn digests(&self) -> impl Iterator<Item = [u8; SLOT]> {
        self.steps.iter().map(|step| {
            let mut slot = DigestSlot { covered: step.covered, ..DigestSlot::default() };
            if let Some(value) = step.context.value() {
                let bytes = value.as_bytes();
                (slot.operator, slot.size) = (step.context.operator() as u8, bytes.len() as u8);
                slot.value[..bytes.len()].copy_from_slice(bytes);
            }
            slot.to_bytes()
        })
    }
}

/// The operator at that place has failed.
fn fail(failed: &mut Option<u8>, at: u8, error: &OperatorError) -> Status {
    *failed = Some(at);
    status_of(error.status())
}

/// Takes bytes through the steps from `at` on.
fn pass(
    steps: &mut [Step],
    at: u8,
    bytes: &mut [u8],
    last: bool,
    sink: &mut Sink<'_>,
    failed: &mut Option<u8>,
) -> Result<(), Status> {
    let Some((step, rest)) = steps.split_first_mut() else {
        return if bytes.is_empty() { Ok(()) } else { sink(bytes) };
    };
    if step.ended {
        return Ok(());
    }
    step.ended = last;
    match step.context.operator().kind() {
        OperatorKind::Digest { .. } => {
            step.covered += bytes.len() as u64;
            step.context.absorb(bytes);
            if last {
                step.context.check().map_err(|error| fail(failed, at, &error))?;
            }
            pass(rest, at + 1, bytes, last, sink, failed)
        }
        OperatorKind::InPlace { whole_units: true } if !step.kept.is_empty() || !last => {
            step.kept.extend_from_slice(bytes);
            let whole = if last { step.kept.len() } else { step.kept.len() / UNIT * UNIT };
            if whole == 0 && !last {
                return Ok(());
            }
            let mut ready = std::mem::take(&mut step.kept);
            step.kept = ready.split_off(whole);
            step.covered += whole as u64;
            step.context.in_place(&mut ready, last).map_err(|error| fail(failed, at, &error))?;
            pass(rest, at + 1, &mut ready, last, sink, failed)
        }
        OperatorKind::InPlace { .. } => {
            step.covered += bytes.len() as u64;
            step.context.in_place(bytes, last).map_err(|error| fail(failed, at, &error))?;
            pass(rest, at + 1, bytes, last, sink, failed)
        }
        OperatorKind::Resize => {
            let (mut input, mut room) = (&*bytes, vec![0; ROOM]);
            loop {
                let progress = step.context.resize(input, &mut room, last);
                let progress = progress.map_err(|error| fail(failed, at, &error))?;
                step.covered += progress.produced as u64;
                input = &input[progress.consumed..];
                pass(rest, at + 1, &mut room[..progress.produced], progress.finished, sink, failed)?;
                if progress.finished || (input.is_empty() && !last && progress.produced < ROOM) {
                    return Ok(());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dcs_abi::operator::Operator;
    use dcs_ndp::{parameter, sequential};

    /// Any cut gives what the sequential program gives.
    #[test]
    fn pieces_give_what_the_whole_gives() {
        let key = std::array::from_fn(|i| i as u8);
        let xts = parameter::aes256_xts(&key, 4096, 3).to_vec();
        let chains = [
            vec![(Operator::Md5, vec![])],
            vec![(Operator::Gzip, vec![]), (Operator::Gunzip, vec![]), (Operator::Sha256, vec![])],
            vec![(Operator::Zstd, vec![]), (Operator::Crc32c, vec![]), (Operator::Unzstd, vec![])],
            vec![
                (Operator::Aes256Xts, xts.clone()),
                (Operator::Md5, vec![]),
                (Operator::Aes256XtsDecrypt, xts),
            ],
            vec![(Operator::Slice, parameter::slice(70_000, 5).to_vec())],
        ];
        let input: Vec<u8> = (0..300_000u32).map(|at| (at / 100 * 7) as u8).collect();
        for chain in chains {
            let expected = sequential::run(&chain, &input).map_err(|(_, error)| error).unwrap();
            for piece in [4096, 100_000, 300_000] {
                let contexts =
                    chain.iter().map(|(operator, parameter)| Context::new(*operator, parameter).unwrap());
                let mut pipeline = Pipeline::new(contexts.collect());
                let mut output = Vec::new();
                for (number, bytes) in input.chunks(piece).enumerate() {
                    let last = (number + 1) * piece >= input.len();
                    let sink = &mut |bytes: &[u8]| {
                        output.extend_from_slice(bytes);
                        Ok(())
                    };
                    pipeline.feed(&mut bytes.to_vec(), last, sink).unwrap();
                }
                // What a compressor makes may depend on the library's own cuts; what goes back does not.
                assert!(output == expected.output, "{chain:?} in pieces of {piece}");
                let digests = pipeline.digests().zip(&expected.digests);
                for (slot, value) in digests.filter_map(|(slot, value)| value.map(|value| (slot, value))) {
                    assert_eq!(slot[16..16 + value.as_bytes().len()], *value.as_bytes());
                }
            }
        }
    }

    #[test]
    fn a_sink_that_is_full_ends_it() {
        let mut pipeline = Pipeline::new(vec![Context::new(Operator::Md5, &[]).unwrap()]);
        let full = &mut |_: &[u8]| Err(Status::CAPACITY_EXCEEDED);
        assert_eq!(pipeline.feed(&mut [1], true, full), Err(Status::CAPACITY_EXCEEDED));
        assert_eq!(pipeline.failed, None);
    }
}
