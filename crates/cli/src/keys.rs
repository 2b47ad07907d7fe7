//! Keys from files and the environment, never from the command line; and counters, which are not secret.
//!
//! The n-th cipher in a chain takes the n-th `--key-file`. If there are fewer files, the environment has them:
//! `DCS_KEY` for the first cipher, `DCS_KEY_2` for the second, and so on.

use crate::args::CipherOptions;
use crate::failure::Failure;
use crate::units;
use dcs_console::keys;
use std::collections::VecDeque;
use std::path::PathBuf;

/// Sources of keys.
pub struct Keys {
    files: Vec<PathBuf>,
}

/// First counter blocks, in the order of the ciphers that take one.
pub struct Counters {
    given: VecDeque<String>,
}

impl Keys {
    pub fn new(options: &CipherOptions) -> Keys {
        Keys { files: options.key_file.clone() }
    }

    /// Returns the key of the n-th cipher (from 1), which is `operator`.
    pub fn key<const N: usize>(&self, nth: usize, operator: &str) -> Result<[u8; N], Failure> {
        if let Some(path) = self.files.get(nth - 1) {
            return keys::from_file(path, operator);
        }
        let (from, bytes) = from_environment(nth, operator)?;
        keys::fit(&from, bytes, operator)
    }

    /// Returns the key of the n-th cipher, with this many bytes.
    pub fn key_of(&self, nth: usize, operator: &str, size: usize) -> Result<Vec<u8>, Failure> {
        if let Some(path) = self.files.get(nth - 1) {
            return keys::from_file_of(path, operator, size);
        }
        let (from, bytes) = from_environment(nth, operator)?;
        keys::fit_to(&from, bytes, operator, size)
    }

    /// Returns a key for XTS, whose halves must differ.
    pub fn xts_key(&self, nth: usize, operator: &str) -> Result<[u8; 64], Failure> {
        let key: [u8; 64] = self.key(nth, operator)?;
        if key[..32] == key[32..] {
            let line = format!("the two halves of the key of {operator} are the same");
            return Err(Failure::usage(line).advise("make a new one: openssl rand -hex 64"));
        }
        Ok(key)
    }

    /// Fails if there are more key files than ciphers.
    pub fn all_used(&self, ciphers: usize) -> Result<(), Failure> {
        if self.files.len() <= ciphers {
            return Ok(());
        }
        let line = format!("{} key files for {ciphers} ciphers in --through", self.files.len());
        Err(Failure::usage(line).advise("give one --key-file for each cipher, in their order"))
    }
}

fn from_environment(nth: usize, operator: &str) -> Result<(String, Vec<u8>), Failure> {
    let name = if nth == 1 { "DCS_KEY".to_string() } else { format!("DCS_KEY_{nth}") };
    let Some(value) = std::env::var_os(&name) else {
        let line = format!("no key for {operator} (cipher {nth} of the chain)");
        let advice =
            format!("give --key-file FILE once for each cipher, or its hexadecimal digits in {name}");
        return Err(Failure::usage(line).advise(advice));
    };
    let value = value.to_string_lossy();
    let bytes = units::from_hex(value.trim().as_bytes()).ok_or_else(|| {
        Failure::usage(format!("{name} does not hold hexadecimal digits (two for each byte)"))
    })?;
    Ok((name, bytes))
}

impl Counters {
    pub fn new(options: &CipherOptions) -> Counters {
        Counters { given: options.iv.iter().cloned().collect() }
    }

    /// Returns the next counter, with the operator's size, and true if it was drawn at random.
    pub fn next<const N: usize>(&mut self, operator: &str) -> Result<([u8; N], bool), Failure> {
        match self.given.pop_front().as_deref() {
            Some("random") => random(),
            Some(digits) => {
                let value = units::from_hex(digits.as_bytes()).and_then(|bytes| bytes.try_into().ok());
                let line = format!("--iv must be {} hexadecimal digits, or random", N * 2);
                value.map(|value| (value, false)).ok_or_else(|| Failure::usage(line))
            }
            // The cipher is its own inverse: a random counter would turn decryption into noise, without an error.
            None => {
                let line = format!("{operator} needs its first counter block: --iv");
                Err(Failure::usage(line).advise(
                    "to encrypt, give --iv random, which prints it; to decrypt, --iv HEX with the printed one",
                ))
            }
        }
    }

    /// Fails if there are more counters than ciphers that take one.
    pub fn all_used(&self) -> Result<(), Failure> {
        match self.given.is_empty() {
            true => Ok(()),
            false => Err(Failure::usage("more --iv than ciphers in counter mode in --through")
                .advise("aes256-xts has no --iv: its units are numbered, aes256-xts:UNIT:FIRST")),
        }
    }
}

fn random<const N: usize>() -> Result<([u8; N], bool), Failure> {
    let mut value = [0; N];
    let failed = |error| Failure::new(crate::failure::Exit::Failed, format!("no random numbers: {error}"));
    getrandom::fill(&mut value).map_err(failed)?;
    Ok((value, true))
}
