//! Operators of a rule: `md5,crc32c`, `aes256-ctr`, `gzip:6`.

use dcs_abi::CHAIN_MAX;
use dcs_abi::operator::{Operator, OperatorKind};

/// One operator of a chain, as far as it is the same for all files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A digest: data pass unchanged, and a value is logged.
    Digest(Operator),
    /// aes256-ctr, which is its own inverse. The counter follows from the file and the offset.
    Ctr,
    /// An operator that changes the length. The level is 0 for operators without one.
    Resize(Operator, u8),
}

/// A checked chain. Without steps it stands for the kernel's own sendfile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chain(Vec<Step>);

impl Chain {
    /// Parses operators.
    ///
    /// # Errors
    ///
    /// Returns a sentence that says which operator can't be used here, and why.
    pub fn new(words: &[String]) -> Result<Chain, String> {
        if words.len() > CHAIN_MAX {
            return Err(format!("{} operators; a chain may have at most {CHAIN_MAX}", words.len()));
        }
        let steps = words.iter().map(|word| step(word.trim())).collect::<Result<Vec<_>, _>>()?;
        let count = |wanted: fn(&Step) -> bool| steps.iter().filter(|step| wanted(step)).count();
        if count(|step| matches!(step, Step::Ctr)) > 1 || count(|step| matches!(step, Step::Resize(..))) > 1 {
            return Err("a chain may have at most one cipher and one compressor".into());
        }
        Ok(Chain(steps))
    }

    /// Returns the operators, in order.
    pub fn steps(&self) -> &[Step] {
        &self.0
    }

    /// Returns true for a chain without operators: the kernel's own sendfile.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns true if the chain has a cipher.
    pub fn decrypts(&self) -> bool {
        self.0.contains(&Step::Ctr)
    }

    /// Returns true if the chain changes the length of the data.
    pub fn resizes(&self) -> bool {
        self.0.iter().any(|step| matches!(step, Step::Resize(..)))
    }

    /// Returns true if data come out unchanged, so that the kernel can stand in.
    pub fn keeps_data(&self) -> bool {
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
        .ok_or_else(|| format!("the level must be {} to {}, not {text:?}", allowed.start(), allowed.end()))
}
