//! The right output of a chain, which tests of the GPU share: computed one operator after the
//! other on the CPU.

use dcs::{Completion, Op, Operator};
use dcs_ndp::sequential;

pub fn ctr(seed: u8) -> Op {
    let mut counter = [0xff; 16];
    counter[0] = seed;
    Op::Aes256Ctr { key: std::array::from_fn(|at| at as u8 ^ seed), counter }
}

/// Computes the right output of a chain, one operator after the other on the CPU.
pub fn expected(chain: &[Op], input: &[u8]) -> sequential::Output {
    let plain: Vec<_> =
        chain.iter().map(|op| (Operator::from_number(op.number() & 0x7f).unwrap(), op.parameter())).collect();
    sequential::run(&plain, input).unwrap()
}

pub fn check(done: &Completion, output: &[u8], chain: &[Op], input: &[u8]) {
    let expected = expected(chain, input);
    assert!(expected.output == output, "{chain:?} over {} bytes: the output is another", input.len());
    let values: Vec<_> = expected.digests.iter().flatten().map(ToString::to_string).collect();
    let got: Vec<_> = done.digests.iter().map(ToString::to_string).collect();
    assert_eq!(got, values, "{chain:?} over {} bytes", input.len());
    assert_eq!(done.bytes_out, output.len() as u64);
}
