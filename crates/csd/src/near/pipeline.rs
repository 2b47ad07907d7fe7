//! A chain at work: input goes in piece by piece, and output is pulled out of its end.

use std::sync::Arc;

use dcs_abi::CHAIN_MAX;
use dcs_abi::operator::{Operator, OperatorKind};
use dcs_abi::result::DigestSlot;
use dcs_ndp::{Context, OperatorError};
use dcs_nvme::Status;

use super::loads::Loaded;
use super::program::{Program, status_of};

/// Maximum number of bytes of output at once. It is the largest data unit too: an operator that needs whole
/// units gets this many bytes, except at the end.
pub const UNIT: usize = 64 << 10;

/// Bytes that an operator that changes the length gets between two reads of the clock. A byte may take a
/// microsecond, for example with a pattern made to be slow, and others wait meanwhile.
const GULP: usize = 4 << 10;

/// Bytes of a digest slot.
const SLOT: usize = 80;

/// The result of a pull.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pulled {
    /// This many bytes, maybe none; there is more to come.
    Bytes(usize),
    /// The last bytes.
    Last(usize),
    /// None before more input.
    Hungry,
}

/// A chain in the middle of its stream. Input and output at once are bounded, whatever the operators do.
#[derive(Default)]
pub struct Pipeline {
    /// The numbers of its operators, then zeros.
    pub chain: [u8; CHAIN_MAX],
    input: Input,
    /// The operators, while not all of the steps are made.
    program: Option<Arc<Program>>,
    steps: Vec<Step>,
    /// The guest's programs among its operators, held since they are in use.
    _loaded: Vec<Arc<Loaded>>,
    /// The operator that failed.
    pub failed: Option<u8>,
}

/// The work done by an operator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Worked {
    /// Time, by the port's clock.
    pub nanoseconds: u64,
    /// Bytes that went in; bytes that came out, if it changes the length.
    pub bytes: u64,
    /// Pieces of data, each at most [`UNIT`] bytes.
    pub pieces: u64,
}

/// Reads a clock, in nanoseconds.
pub type Clock<'a> = &'a mut dyn FnMut() -> u64;

/// Input that was not taken yet.
#[derive(Default)]
struct Input {
    bytes: Vec<u8>,
    at: usize,
    last: bool,
}

struct Step {
    context: Context,
    worked: Worked,
    /// The part of `worked` that has been reported.
    reported: Worked,
    /// Bytes that went in; bytes that came out, if it changes the length.
    covered: u64,
    /// Bytes that it was given and has not taken, between these positions, and whether more can follow.
    kept: Vec<u8>,
    at: usize,
    end: usize,
    last: bool,
    /// It has no more output.
    ended: bool,
}

impl Input {
    fn pull(&mut self, out: &mut [u8]) -> Pulled {
        let rest = &self.bytes[self.at..];
        let length = rest.len().min(out.len());
        out[..length].copy_from_slice(&rest[..length]);
        self.at += length;
        match self.at == self.bytes.len() {
            true if self.last => Pulled::Last(length),
            true if length == 0 => Pulled::Hungry,
            _ => Pulled::Bytes(length),
        }
    }
}

impl Pipeline {
    /// Makes a chain that has to be prepared.
    pub fn new(program: Arc<Program>) -> Pipeline {
        let (chain, steps) = (program.numbers(), Vec::with_capacity(program.len()));
        let (input, _loaded) = (Input::default(), program.loaded());
        Pipeline { chain, input, program: Some(program), steps, _loaded, failed: None }
    }

    /// Makes the chain of a batch that makes a module: no data pass it.
    pub fn of_module() -> Pipeline {
        let mut chain = [0; CHAIN_MAX];
        chain[0] = Operator::Module as u8;
        Pipeline { chain, ..Pipeline::default() }
    }

    /// Makes the next operator's context, which may take as long as a piece of its work. Returns true if all
    /// were made before.
    ///
    /// # Errors
    ///
    /// Returns the status if the operator does not accept its parameter.
    pub fn prepare(&mut self, clock: Clock<'_>) -> Result<bool, Status> {
        let Some(program) = &self.program else { return Ok(true) };
        let place = self.steps.len();
        if place < program.len() {
            let began = clock();
            let context = program.context(place).inspect_err(|_| self.failed = Some(place as u8))?;
            self.steps.push(Step::new(context, clock().saturating_sub(began)));
        }
        if self.steps.len() == program.len() {
            // Keys are not kept any longer.
            self.program = None;
        }
        Ok(false)
    }

    /// Lets `fill` write the next bytes of the stream to a buffer, when the chain needs input; call
    /// [`Pipeline::given`] when they are there.
    pub fn input<E>(
        &mut self,
        length: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let input = &mut self.input;
        (input.at, input.last) = (0, false);
        input.bytes.clear();
        input.bytes.reserve_exact(length);
        input.bytes.resize(length, 0);
        fill(&mut input.bytes)
    }

    /// The input is there; `last`: no more follows.
    pub fn given(&mut self, last: bool) {
        self.input.last = last;
    }

    #[cfg(test)]
    pub fn give(&mut self, bytes: &[u8], last: bool) {
        let Ok(()) = self.input(bytes.len(), |input| {
            input.copy_from_slice(bytes);
            Ok::<(), std::convert::Infallible>(())
        });
        self.given(last);
    }

    /// Pulls the next output into `out`, which has room for [`UNIT`] bytes. `clock` measures the time of each
    /// operator.
    ///
    /// # Errors
    ///
    /// Returns the status of the operator that fails.
    pub fn pull(&mut self, out: &mut [u8], clock: Clock<'_>) -> Result<Pulled, Status> {
        pull(&mut self.steps, &mut self.input, &mut self.failed, clock, out)
    }

    /// Returns the operators' work so far, in order.
    pub fn worked(&self) -> impl Iterator<Item = Worked> {
        self.steps.iter().map(Step::work)
    }

    /// Reports each operator's work since the last call.
    pub fn report(&mut self, mut to: impl FnMut(Operator, Worked)) {
        for step in &mut self.steps {
            let (now, reported) = (step.work(), step.reported);
            step.reported = now;
            to(
                step.context.operator(),
                Worked {
                    nanoseconds: now.nanoseconds - reported.nanoseconds,
                    bytes: now.bytes - reported.bytes,
                    pieces: now.pieces - reported.pieces,
                },
            );
        }
    }

    /// Returns the current digests: a slot for each operator, in order.
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

/// Pulls bytes out of the last step.
fn pull(
    steps: &mut [Step],
    input: &mut Input,
    failed: &mut Option<u8>,
    clock: Clock<'_>,
    out: &mut [u8],
) -> Result<Pulled, Status> {
    let Some((step, before)) = steps.split_last_mut() else { return Ok(input.pull(out)) };
    if step.ended {
        return Ok(Pulled::Last(0));
    }
    let at = before.len() as u8;
    let mut below = |out: &mut [u8]| pull(before, input, failed, clock, out);
    let kind = step.context.operator().kind();
    let from = match kind {
        OperatorKind::Digest { .. } | OperatorKind::InPlace { whole_units: false } => Got::Below(below(out)?),
        OperatorKind::InPlace { whole_units: true } => Got::Kept(step.fill(UNIT, &mut below)?),
        OperatorKind::Resize => Got::Kept(step.fill(1, &mut below)?),
    };
    let began = clock();
    let pulled = match (from, kind) {
        (Got::Below(pulled), OperatorKind::Digest { .. }) => step.digest(pulled, out),
        (Got::Below(pulled), _) => step.change(pulled, out),
        (Got::Kept(hungry), OperatorKind::Resize) => step.resize(hungry, out),
        (Got::Kept(hungry), _) => step.units(hungry, out),
    };
    step.worked.nanoseconds += clock().saturating_sub(began);
    step.worked.pieces += u64::from(!matches!(pulled, Ok(Pulled::Hungry)));
    let pulled = pulled.map_err(|error| {
        *failed = Some(at);
        status_of(error.status())
    })?;
    step.ended = matches!(pulled, Pulled::Last(_));
    Ok(pulled)
}

/// An operator's next input: new bytes, or those that it has kept.
enum Got {
    Below(Pulled),
    /// Returns true if there is no more for now.
    Kept(bool),
}

impl Step {
    /// Makes a step, whose context took this many nanoseconds to make.
    fn new(context: Context, nanoseconds: u64) -> Step {
        let (kept, reported) = (Vec::new(), Worked::default());
        let worked = Worked { nanoseconds, ..reported };
        Step { context, worked, reported, covered: 0, kept, at: 0, end: 0, last: false, ended: false }
    }

    fn work(&self) -> Worked {
        Worked { bytes: self.covered, ..self.worked }
    }

    fn digest(&mut self, pulled: Pulled, out: &mut [u8]) -> Result<Pulled, OperatorError> {
        if let Pulled::Bytes(length) | Pulled::Last(length) = pulled {
            self.covered += length as u64;
            self.context.absorb(&out[..length]);
        }
        if matches!(pulled, Pulled::Last(_)) {
            self.context.check()?;
        }
        Ok(pulled)
    }

    fn change(&mut self, pulled: Pulled, out: &mut [u8]) -> Result<Pulled, OperatorError> {
        if let Pulled::Bytes(length) | Pulled::Last(length) = pulled {
            self.covered += length as u64;
            self.context.in_place(&mut out[..length], matches!(pulled, Pulled::Last(_)))?;
        }
        Ok(pulled)
    }

    /// Gets more, once, if fewer than `least` bytes are kept; returns true if there is no more for now.
    fn fill(
        &mut self,
        least: usize,
        below: &mut dyn FnMut(&mut [u8]) -> Result<Pulled, Status>,
    ) -> Result<bool, Status> {
        if self.last || self.end - self.at >= least {
            return Ok(false);
        }
        self.kept.copy_within(self.at..self.end, 0);
        (self.at, self.end) = (0, self.end - self.at);
        // Grows once: the bytes stay, and are overwritten later.
        self.kept.resize(UNIT, 0);
        let (length, last, hungry) = match below(&mut self.kept[self.end..])? {
            Pulled::Bytes(length) => (length, false, false),
            Pulled::Last(length) => (length, true, false),
            Pulled::Hungry => (0, false, true),
        };
        self.end += length;
        self.last = last;
        Ok(hungry)
    }

    fn units(&mut self, hungry: bool, out: &mut [u8]) -> Result<Pulled, OperatorError> {
        if self.end < UNIT && !self.last {
            return Ok(if hungry { Pulled::Hungry } else { Pulled::Bytes(0) });
        }
        let length = std::mem::take(&mut self.end);
        self.covered += length as u64;
        self.context.in_place(&mut self.kept[..length], self.last)?;
        out[..length].copy_from_slice(&self.kept[..length]);
        Ok(if self.last { Pulled::Last(length) } else { Pulled::Bytes(length) })
    }

    fn resize(&mut self, hungry: bool, out: &mut [u8]) -> Result<Pulled, OperatorError> {
        let input = &self.kept[self.at..self.end.min(self.at + GULP)];
        let is_all = self.at + input.len() == self.end;
        // It has made all that it can of its input.
        let stuck = input.is_empty() && !self.last;
        let progress = self.context.resize(input, out, self.last && is_all)?;
        self.at += progress.consumed;
        self.covered += progress.produced as u64;
        Ok(match progress.finished {
            true => Pulled::Last(progress.produced),
            false if stuck && progress.produced == 0 && hungry => Pulled::Hungry,
            false => Pulled::Bytes(progress.produced),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dcs_abi::operator::Operator;
    use dcs_ndp::{parameter, sequential};

    fn pipeline(chain: &[(Operator, Vec<u8>)]) -> Pipeline {
        let mut pipeline = Pipeline::new(Arc::new(Program::new(chain.to_vec())));
        while !pipeline.prepare(&mut || 0).unwrap() {}
        pipeline
    }

    fn run(pipeline: &mut Pipeline, input: &[u8], piece: usize) -> Result<Vec<u8>, Status> {
        let (mut output, mut out, mut given) = (Vec::new(), vec![0; UNIT], 0);
        loop {
            match pipeline.pull(&mut out, &mut || 0)? {
                Pulled::Bytes(length) => output.extend_from_slice(&out[..length]),
                Pulled::Last(length) => {
                    output.extend_from_slice(&out[..length]);
                    return Ok(output);
                }
                Pulled::Hungry => {
                    let end = (given + piece).min(input.len());
                    pipeline.give(&input[given..end], end == input.len());
                    given = end;
                }
            }
        }
    }

    /// Any division into pieces gives the same result as the sequential program.
    #[test]
    fn pieces_give_what_the_whole_gives() {
        let key = std::array::from_fn(|i| i as u8);
        let xts = parameter::aes256_xts(&key, 4096, 3).to_vec();
        let ctr = parameter::aes256_ctr(&[3; 32], &[1; 16]).to_vec();
        let chains = [
            vec![],
            vec![(Operator::Md5, vec![])],
            vec![(Operator::Aes256Ctr, ctr), (Operator::Crc32c, vec![])],
            vec![(Operator::Gzip, vec![]), (Operator::Gunzip, vec![]), (Operator::Sha256, vec![])],
            vec![(Operator::Zstd, vec![]), (Operator::Unzstd, vec![]), (Operator::Crc32c, vec![])],
            vec![
                (Operator::Aes256Xts, xts.clone()),
                (Operator::Md5, vec![]),
                (Operator::Aes256XtsDecrypt, xts),
            ],
            vec![(Operator::Slice, parameter::slice(3_000, 5).to_vec())],
        ];
        let input: Vec<u8> = (0..300_000u32).map(|at| (at / 100 * 7) as u8).collect();
        for chain in chains {
            for input in [&input[..], &input[..65_536], &input[..4096]] {
                let expected = sequential::run(&chain, input).map_err(|(_, error)| error).unwrap();
                for piece in [4096, 100_000, 300_000] {
                    let mut pipeline = pipeline(&chain);
                    let output = run(&mut pipeline, input, piece).unwrap();
                    assert!(output == expected.output, "{chain:?} in pieces of {piece}");
                    for (slot, value) in pipeline.digests().zip(&expected.digests) {
                        let value = value.as_ref().map_or(&[][..], |value| value.as_bytes());
                        assert_eq!(slot[16..16 + value.len()], *value);
                    }
                }
            }
        }
    }

    /// Each operator's time is counted for itself, and reported once.
    #[test]
    fn each_operator_s_work_is_told() {
        let mut pipeline =
            pipeline(&[(Operator::Md5, vec![]), (Operator::Gzip, vec![]), (Operator::Crc32c, vec![])]);
        let (mut out, mut time, mut reported) = (vec![0; UNIT], 0, Vec::new());
        pipeline.give(&[7; 200_000], true);
        while !matches!(
            pipeline.pull(&mut out, &mut || {
                time += 5;
                time
            }),
            Ok(Pulled::Last(_))
        ) {}
        let worked: Vec<Worked> = pipeline.worked().collect();
        // The clock is read twice for each piece.
        assert!(worked.iter().all(|one| one.nanoseconds == 5 * one.pieces), "{worked:?}");
        assert!(time == 2 * worked.iter().map(|one| one.nanoseconds).sum::<u64>());
        assert!(worked[0].bytes == 200_000 && worked[0].pieces >= 4, "{worked:?}");
        assert!(worked[1].bytes == worked[2].bytes && worked[1].bytes < 2000, "{worked:?}");
        pipeline.report(|operator, work| reported.push((operator, work)));
        assert_eq!(
            reported,
            [Operator::Md5, Operator::Gzip, Operator::Crc32c].into_iter().zip(worked).collect::<Vec<_>>()
        );
        pipeline.report(|_, work| assert_eq!(work, Worked::default()));
    }

    /// However slow a byte is, the clock is read after a few thousand of them.
    #[test]
    fn a_slow_pattern_is_looked_after_often() {
        let grep = parameter::Grep { pattern: "[^c]{60}d".into(), ..Default::default() };
        for before in [vec![], vec![(Operator::Slice, parameter::slice(0, UNIT as u64).to_vec())]] {
            let chain = [before, vec![(Operator::Grep, grep.block())]].concat();
            let mut pipeline = pipeline(&chain);
            let (mut out, mut pulls) = (vec![0; UNIT], 0);
            pipeline.give(&[b'a'; UNIT], true);
            while let Pulled::Bytes(_) = pipeline.pull(&mut out, &mut || 0).unwrap() {
                pulls += 1;
            }
            assert!(pulls >= UNIT / (8 << 10), "{pulls} pulls for {UNIT} bytes");
        }
    }

    #[test]
    fn what_unpacks_to_much_comes_out_bit_by_bit() {
        let bomb = sequential::run(&[(Operator::Zstd, vec![])], &vec![0; 64 << 20]).unwrap().output;
        let mut pipeline = pipeline(&[(Operator::Unzstd, vec![])]);
        let (mut out, mut total) = (vec![0; UNIT], 0);
        pipeline.give(&bomb, true);
        while let Pulled::Bytes(length) = pipeline.pull(&mut out, &mut || 0).unwrap() {
            assert!(length <= UNIT);
            total += length;
        }
        assert!(total > (64 << 20) - UNIT);
    }

    #[test]
    fn the_operator_that_fails_is_named() {
        let mut pipeline = pipeline(&[(Operator::Md5, vec![]), (Operator::Gunzip, vec![])]);
        assert_eq!(run(&mut pipeline, b"no gzip at all, and long enough", 10).unwrap_err().kind(), 7);
        assert_eq!(pipeline.failed, Some(1));
    }
}
