//! `--expect md5=HEX`: checks the value of a digest in the chain.

use crate::failure::{Exit, Failure};
use crate::sink::NamedSink;
use crate::units;
use dcs::{Completion, Operator};

/// Expected digests, by their place in the chain.
#[derive(Debug)]
pub struct Expected(Vec<(usize, Vec<u8>)>);

impl Expected {
    /// Finds each digest's operator in the chain: the n-th `md5=` is for the n-th `md5`.
    pub fn new(words: &[String], chain: &[&'static str]) -> Result<Expected, Failure> {
        let mut expected: Vec<(usize, Vec<u8>)> = Vec::new();
        for word in words {
            let (name, digits) = word.split_once('=').unwrap_or((word, ""));
            // A digest computed elsewhere, as on a GPU, is the same digest.
            let bare = |name: &str| Operator::from_chain_name(name).map(|(operator, _)| operator);
            let wanted = bare(name);
            let size = wanted.map_or(0, Operator::digest_size);
            let value = units::from_hex(digits.as_bytes()).filter(|value| size > 0 && value.len() == size);
            let value = value.ok_or_else(|| {
                Failure::usage(format!(
                    "--expect {word}: not a digest and its hexadecimal value, as in md5=HEX"
                ))
            })?;
            let is_taken = |at: usize| expected.iter().any(|(taken, _)| *taken == at);
            let place =
                chain.iter().enumerate().position(|(at, operator)| bare(operator) == wanted && !is_taken(at));
            let place = place.ok_or_else(|| {
                Failure::usage(format!("--expect {word}: --through has no such {name}"))
                    .advise(format!("put {name} into --through at the place whose data it digests"))
            })?;
            expected.push((place, value));
        }
        Ok(Expected(expected))
    }

    /// Compares the digests. The file is not put in place if one differs.
    pub fn check(&self, completion: &Completion, sink: &NamedSink) -> Result<(), Failure> {
        for (place, value) in &self.0 {
            let digest = completion.digests.iter().find(|digest| digest.place == *place);
            if digest.is_some_and(|digest| digest.bytes() == value) {
                continue;
            }
            let (name, found) = digest
                .map_or(("digest", "missing".into()), |digest| (digest.operator.name(), digest.to_string()));
            let fate = match sink.is_withheld() {
                true => "was not put in place",
                false => "has already been written",
            };
            let line = format!(
                "{}: {name} is {found}, expected {}; {} bytes had been delivered and the file {fate}",
                sink.name,
                units::to_hex(value),
                completion.bytes_out
            );
            return Err(Failure::new(Exit::Corrupt, line)
                .advise("the data are not the ones expected: send them again"));
        }
        Ok(())
    }
}
