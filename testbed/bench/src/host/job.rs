//! Parses jobs as people write them: `file>md5,aes256-ctr>socket`.

use crate::failure::Failure;
use crate::harness::data::{Direction, KEY};
use dcs::{Op, Operator};
use dcs_abi::CHAIN_MAX;
use dcs_abi::operator::OperatorKind;
use serde::{Deserialize, Serialize};

/// The jobs that `--list` names; any other chain can be written the same way.
pub const JOBS: &[(&str, &str)] = &[
    ("file>md5>socket", "an object GET with its ETag"),
    ("socket>md5>file", "an object PUT with its ETag"),
    ("file>sha256>socket", "a GET with a stronger digest"),
    ("file>aes256-ctr>socket", "a GET that is encrypted on the way"),
    ("file>md5,aes256-ctr>socket", "both: the digest of the plain data"),
    ("file>crc32c>socket", "a GET with a checksum"),
    ("file>gzip>socket", "a GET that is compressed on the way, level 1"),
    ("file>socket", "no operators: what the kernel does alone"),
];

const COUNTER: [u8; 16] = *b"first counter .\0";

/// A direction, and the chain for each object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    pub direction: Direction,
    /// Operators with their parameters, as written.
    pub chain: Vec<String>,
}

impl Job {
    pub fn parse(text: &str) -> Result<Job, Failure> {
        let advice =
            "write it as 'file>md5>socket', 'socket>md5,aes256-ctr>file' or 'file>socket'; dcs bench --list";
        let wrong = |line: String| Failure::usage(line).advise(advice);
        let parts: Vec<&str> = text.split('>').map(str::trim).collect();
        let (from, chain, to) = match parts[..] {
            [from, to] => (from, "", to),
            [from, chain, to] => (from, chain, to),
            [_] if cfg!(not(feature = "benchmarks")) => {
                let advice = "build the one that has all with make workshop";
                let line =
                    format!("there is no job {text:?} in this dcs-bench, which was built for the demo");
                return Err(Failure::usage(line).advise(advice));
            }
            _ => return Err(wrong(format!("there is no job {text:?}"))),
        };
        let direction = match (from, to) {
            ("file", "socket") => Direction::Send,
            ("socket", "file") => Direction::Receive,
            _ => {
                return Err(wrong(format!(
                    "{text:?} does not lead from file to socket or from socket to file"
                )));
            }
        };
        let chain: Vec<String> = chain.split(',').filter(|name| !name.is_empty()).map(String::from).collect();
        let job = Job { direction, chain };
        if job.chain.len() > CHAIN_MAX {
            return Err(wrong(format!("{text:?} has more than {CHAIN_MAX} operators")));
        }
        job.ops().map(|_| job)
    }

    /// Returns the operators with fixed keys, so that every run does the same.
    pub fn ops(&self) -> Result<Vec<Op>, Failure> {
        self.chain.iter().map(|word| op(word)).collect()
    }

    pub fn name(&self) -> String {
        let chain = self.chain.join(",");
        let middle = if chain.is_empty() { String::new() } else { format!("{chain}>") };
        match self.direction {
            Direction::Send => format!("file>{middle}socket"),
            Direction::Receive => format!("socket>{middle}file"),
        }
    }

    /// Returns the names of its digests.
    pub fn digests(&self) -> Vec<&'static str> {
        let operators = self.chain.iter().filter_map(|word| operator(word));
        operators
            .filter(|one| matches!(one.kind(), OperatorKind::Digest { .. }))
            .map(Operator::name)
            .collect()
    }

    /// Returns true if the output has as many bytes as the input.
    pub fn keeps_length(&self) -> bool {
        !self.chain.iter().any(|word| is_resize(word))
    }
}

fn operator(word: &str) -> Option<Operator> {
    Operator::from_name(word.split(':').next().unwrap_or(word))
}

pub fn is_resize(word: &str) -> bool {
    operator(word).is_some_and(|operator| operator.kind() == OperatorKind::Resize)
}

fn op(word: &str) -> Result<Op, Failure> {
    let parameter = word.split_once(':').map(|(_, number)| number.parse::<u8>());
    let level = |default: u8, most: u8| match &parameter {
        None => Ok(default),
        Some(Ok(level)) if *level <= most => Ok(*level),
        Some(_) => {
            Err(Failure::usage(format!("{word:?}: no such level")).advise(format!("the highest is {most}")))
        }
    };
    let operator = operator(word).ok_or_else(|| {
        Failure::usage(format!("there is no operator {word:?}")).advise("dcs ops --no-measure lists them")
    })?;
    match operator {
        Operator::Gzip => return Ok(Op::Gzip { level: level(1, 9)? }),
        Operator::Zstd => return Ok(Op::Zstd { level: level(3, 19)? }),
        _ if parameter.is_some() => {
            return Err(Failure::usage(format!("{word:?}: in a benchmark only gzip and zstd take a number"))
                .advise("leave it out"));
        }
        _ => {}
    }
    let mut xts = [0; 64];
    xts[..32].copy_from_slice(&KEY);
    match operator {
        Operator::Aes256Ctr => Ok(Op::Aes256Ctr { key: KEY, counter: COUNTER }),
        Operator::Aes256Xts => Ok(Op::Aes256Xts { key: xts, unit_size: 4096, first_unit: 0 }),
        Operator::Aes256XtsDecrypt => Ok(Op::Aes256XtsDecrypt { key: xts, unit_size: 4096, first_unit: 0 }),
        Operator::Gunzip | Operator::Unzstd => {
            Err(Failure::usage(format!("{word} needs compressed input, and the benchmark's data are plain"))
                .advise("measure the compressor, or dcs ops"))
        }
        digest => Ok(Op::Raw { number: digest as u8, parameter: Vec::new() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_come_back_as_they_were_written() {
        for (name, _) in JOBS {
            assert_eq!(Job::parse(name).unwrap().name(), *name);
        }
        assert_eq!(Job::parse("socket > crc32,gzip:9 > file").unwrap().name(), "socket>crc32,gzip:9>file");
        for wrong in
            ["md5", "file>socket>file>socket", "file>md5>file", "file>md6>socket", "file>gunzip>socket"]
        {
            assert!(Job::parse(wrong).unwrap_err().advice.is_some(), "{wrong}");
        }
    }
}
