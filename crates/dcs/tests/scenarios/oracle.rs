//! Computes the right output of a chain: by openssl where openssl knows the operator, and by the plain
//! sequential program, which must agree.

use dcs::{Completion, Op, Operator};
use dcs_testkit::hex;
use openssl::hash::{MessageDigest, hash};
use openssl::symm::{Cipher, encrypt};

/// Output, and of each digest operator its value in hexadecimal and the bytes that it covers.
#[derive(Debug, PartialEq)]
pub struct Expected {
    pub output: Vec<u8>,
    pub digests: Vec<(String, u64)>,
}

/// The plain sequential program.
pub fn sequential(chain: &[Op], input: &[u8]) -> Expected {
    let mut expected = Expected { output: input.to_vec(), digests: Vec::new() };
    for op in chain {
        let operator = [(Operator::from_number(op.number()).unwrap(), op.parameter())];
        let outcome = dcs_ndp::sequential::run(&operator, &expected.output).unwrap();
        let digest = outcome.digests[0].map(|digest| (digest.to_string(), expected.output.len() as u64));
        expected.digests.extend(digest);
        expected.output = outcome.output;
    }
    expected
}

/// The same with openssl for all but compression and CRCs.
pub fn expect(chain: &[Op], input: &[u8]) -> Expected {
    let mut expected = Expected { output: input.to_vec(), digests: Vec::new() };
    for op in chain {
        let digest = match op {
            Op::Md5 => MessageDigest::md5(),
            Op::Sha1 => MessageDigest::sha1(),
            Op::Sha256 => MessageDigest::sha256(),
            Op::Sha512 => MessageDigest::sha512(),
            Op::Aes256Ctr { key, counter } => {
                expected.output =
                    encrypt(Cipher::aes_256_ctr(), key, Some(counter), &expected.output).unwrap();
                continue;
            }
            other => {
                let step = sequential(std::slice::from_ref(other), &expected.output);
                expected.output = step.output;
                expected.digests.extend(step.digests);
                continue;
            }
        };
        let value = hash(digest, &expected.output).unwrap();
        expected.digests.push((hex(&value), expected.output.len() as u64));
    }
    assert!(expected == sequential(chain, input), "the two oracles disagree about {chain:?}");
    expected
}

/// A completion of a whole transfer says what it must.
pub fn check(what: &str, chain: &[Op], input: &[u8], done: &Completion, received: &[u8]) {
    expect(chain, input).check(what, input.len(), done, Some(received));
}

impl Expected {
    /// As [`check`]; `received` where it can be seen.
    pub fn check(&self, what: &str, length: usize, done: &Completion, received: Option<&[u8]>) {
        if let Some(received) = received {
            assert!(received == self.output, "{what}: {} bytes received, differing", received.len());
        }
        assert_eq!(done.bytes_in, length as u64, "{what}");
        assert_eq!(done.bytes_out, self.output.len() as u64, "{what}");
        let digests: Vec<_> =
            done.digests.iter().map(|digest| (digest.to_string(), digest.covered)).collect();
        assert_eq!(digests, self.digests, "{what}");
    }
}
