//! The operators of a rule: `md5,crc32c`, `aes256-ctr`, `gzip:6`.

use dcs_abi::CHAIN_MAX;
use dcs_abi::operator::{Operator, OperatorKind};

/// One operator of a chain, as far as it is the same for all files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Data pass unchanged, and a value is logged.
    Digest(Operator),
    /// aes256-ctr, which undoes itself; the counter follows from the file and the offset.
    Ctr,
    /// Data come out longer or shorter. The level is 0 for those that have none.
    Resize(Operator, u8),
}

/// A checked chain. Without steps it stands for the kernel's own sendfile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chain(Vec<Step>);

impl Chain {
    /// Reads operators as they are written.
    ///
    /// # Errors
    ///
    /// A sentence that says which operator cannot be had here, and why.
    pub fn new(words: &[String]) -> Result<Chain, String> {
        if words.len() > CHAIN_MAX {
            return Err(format!("{} operators; a chain has at most {CHAIN_MAX}", words.len()));
        }
        let steps = words.iter().map(|word| step(word.trim())).collect::<Result<Vec<_>, _>>()?;
        let count = |wanted: fn(&Step) -> bool| steps.iter().filter(|step| wanted(step)).count();
        if count(|step| matches!(step, Step::Ctr)) > 1 || count(|step| matches!(step, Step::Resize(..))) > 1 {
            return Err("one cipher and one compressor at most".into());
        }
        Ok(Chain(steps))
    }

    /// The operators in order.
    pub fn steps(&self) -> &[Step] {
        &self.0
    }

    /// No operator: the kernel's own sendfile.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A cipher is among them.
    pub fn decrypts(&self) -> bool {
        self.0.contains(&Step::Ctr)
    }

    /// Other numbers of bytes come out than go in.
    pub fn resizes(&self) -> bool {
        self.0.iter().any(|step| matches!(step, Step::Resize(..)))
    }

    /// Data come out as they went in, so that the kernel can stand in.
    pub fn only_looks(&self) -> bool {
        self.0.iter().all(|step| matches!(step, Step::Digest(_)))
    }
}

fn step(word: &str) -> Result<Step, String> {
    let (name, level) = word.split_once(':').map_or((word, None), |(name, level)| (name, Some(level)));
    let operator = Operator::from_name(name)
        .ok_or_else(|| format!("there is no operator {name:?} (dcs ops lists them)"))?;
    let step = match operator {
        Operator::Gzip => return Ok(Step::Resize(operator, number(level, 0..=9, 1)?)),
        Operator::Zstd => return Ok(Step::Resize(operator, number(level, 1..=19, 3)?)),
        Operator::Gunzip | Operator::Unzstd => Step::Resize(operator, 0),
        Operator::Aes256Ctr => Step::Ctr,
        digest if matches!(digest.kind(), OperatorKind::Digest { .. }) => Step::Digest(digest),
        _ => {
            return Err(format!(
                "{name} cannot be applied here: a file is sent from any offset, in pieces of any length"
            ));
        }
    };
    match level {
        None => Ok(step),
        Some(level) => Err(format!("{name} takes no parameter {level:?}")),
    }
}

fn number(text: Option<&str>, allowed: std::ops::RangeInclusive<u8>, default: u8) -> Result<u8, String> {
    let Some(text) = text else { return Ok(default) };
    text.parse()
        .ok()
        .filter(|level| allowed.contains(level))
        .ok_or_else(|| format!("there is no level {text:?}: it is {} to {}", allowed.start(), allowed.end()))
}
