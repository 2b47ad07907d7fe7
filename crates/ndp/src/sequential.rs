//! The plain sequential program: one operator after the other over the whole input. Faster paths are compared with it,
//! and it is the simplest way to use the operators.

use dcs_abi::operator::{Operator, OperatorKind};

use crate::{Context, DigestValue, OperatorError};

/// Result of a chain over its input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// Data after the last operator.
    pub output: Vec<u8>,
    /// One entry for each operator in the chain: its value, or `None` for a transform.
    pub digests: Vec<Option<DigestValue>>,
}

/// Runs `chain`, pairs of operator and parameter block, over `input`. An error has the number of the operator that
/// failed.
///
/// Everything is kept in memory, so the output of `gunzip` and `unzstd` should be known to fit.
///
/// ```
/// use dcs_abi::operator::Operator;
/// use dcs_ndp::sequential;
///
/// let chain = [(Operator::Md5, vec![]), (Operator::Gzip, vec![])];
/// let outcome = sequential::run(&chain, b"message digest").unwrap();
/// assert_eq!(outcome.digests[0].unwrap().to_string(), "f96b697d7cb7938d525a2f31aaf161d0");
/// ```
pub fn run(chain: &[(Operator, Vec<u8>)], input: &[u8]) -> Result<Output, (usize, OperatorError)> {
    let mut outcome = Output { output: input.to_vec(), digests: Vec::new() };
    for (index, (operator, parameter)) in chain.iter().enumerate() {
        apply(*operator, parameter, &mut outcome).map_err(|error| (index, error))?;
    }
    Ok(outcome)
}

fn apply(operator: Operator, parameter: &[u8], outcome: &mut Output) -> Result<(), OperatorError> {
    let mut context = Context::new(operator, parameter)?;
    match operator.kind() {
        OperatorKind::Digest { .. } => {
            context.absorb(&outcome.output);
            context.check()?;
        }
        OperatorKind::InPlace { .. } => context.in_place(&mut outcome.output, true)?,
        OperatorKind::Resize => outcome.output = resize(&mut context, &outcome.output)?,
    }
    outcome.digests.push(context.value());
    Ok(())
}

fn resize(context: &mut Context, mut input: &[u8]) -> Result<Vec<u8>, OperatorError> {
    let mut output = Vec::new();
    let mut room = vec![0; 64 * 1024];
    loop {
        let progress = context.resize(input, &mut room, true)?;
        output.extend_from_slice(&room[..progress.produced]);
        if progress.finished {
            return Ok(output);
        }
        input = &input[progress.consumed..];
    }
}
