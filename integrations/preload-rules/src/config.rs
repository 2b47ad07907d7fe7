//! The configuration: a small TOML file.
//!
//! ```toml
//! log = "/var/log/dcs-preload.log"          # a JSON object a line; default: standard error
//! counters = "/run/dcs-preload.counters"    # dcs run --show FILE
//!
//! [[rule]]                                  # the first rule that applies is taken
//! path = "/srv/public/*"                    # one pattern or several; * stands for any characters, / among them
//! port = [80, 8080]                         # the socket's own port
//! through = "sha256,crc32c"
//!
//! [[rule]]
//! path = "/srv/sealed/*"
//! through = "aes256-ctr"
//! key_file = "/etc/dcs/sealed.key"
//! counter = "xattr:user.dcs.counter"        # or 32 hexadecimal digits, for one file
//! ```
//!
//! A byte of a path that is not UTF-8 is written as [`path`] describes: `"/srv/a\U0010FEFF"` has the byte FF.

use crate::chain::Chain;
use crate::key::{self, FirstCounter};
use crate::path;
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// Environment variable with the path of the configuration file.
pub const FILE_VARIABLE: &str = "DCS_PRELOAD_CONFIG";

/// Environment variable with the configuration itself, in which `dcs run` passes its options.
pub const TEXT_VARIABLE: &str = "DCS_PRELOAD_RULES";

/// Error of a configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file could not be read.
    #[error("{0}: {1}")]
    Read(PathBuf, #[source] std::io::Error),
    /// The file is not TOML, or has unknown fields.
    #[error("{0}")]
    Syntax(#[from] toml::de::Error),
    /// A rule is wrong.
    #[error("rule {rule}: {what}")]
    Rule {
        /// Name of the rule, or its number from 1.
        rule: String,
        /// Error in the rule, and what to write instead.
        what: String,
    },
}

/// A checked configuration.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// File for lines of JSON; `None` for standard error.
    pub log: Option<PathBuf>,
    /// File of counters.
    pub counters: Option<PathBuf>,
    /// Rules. The first that matches applies.
    pub rules: Vec<Rule>,
}

/// A rule: files, sockets, and the chain for them.
#[derive(Clone, Debug)]
pub struct Rule {
    /// Name in the log.
    pub name: String,
    paths: Vec<glob::Pattern>,
    ports: Vec<u16>,
    /// Chain that the files pass.
    pub chain: Chain,
    /// Path of the cipher's key, and its counter.
    pub cipher: Option<(PathBuf, FirstCounter)>,
}

/// The file as it is written.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    /// See [`Config::log`].
    #[serde(default, with = "path", skip_serializing_if = "Option::is_none")]
    pub log: Option<PathBuf>,
    /// See [`Config::counters`].
    #[serde(default, with = "path", skip_serializing_if = "Option::is_none")]
    pub counters: Option<PathBuf>,
    /// Rules, in order.
    #[serde(default)]
    pub rule: Vec<RuleText>,
}

/// A rule as it is written.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RuleText {
    /// Name in the log (default: `rule 1` and so on).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Patterns of files' paths, each as [`path`] writes one (default: all files).
    #[serde(default)]
    pub path: OneOrMany<String>,
    /// Local ports of sockets (default: all sockets).
    #[serde(default)]
    pub port: OneOrMany<u16>,
    /// Operators, in order (default: none, the kernel's own sendfile).
    #[serde(default)]
    pub through: OneOrMany<String>,
    /// Path of the cipher's key.
    #[serde(default, with = "path", skip_serializing_if = "Option::is_none")]
    pub key_file: Option<PathBuf>,
    /// First counter block: `xattr:NAME`, or digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counter: Option<String>,
    /// True if the receiver reads until the connection is closed, and expects another length than the file's.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub until_close: bool,
}

/// One value or a list of them.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(untagged)]
pub enum OneOrMany<T> {
    /// One value.
    One(T),
    /// A list.
    Many(Vec<T>),
}

impl<T> Default for OneOrMany<T> {
    fn default() -> Self {
        OneOrMany::Many(Vec::new())
    }
}

impl<T: Clone> OneOrMany<T> {
    fn to_vec(&self) -> Vec<T> {
        match self {
            OneOrMany::One(one) => vec![one.clone()],
            OneOrMany::Many(many) => many.clone(),
        }
    }
}

impl Config {
    /// Reads and checks a file.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if it can't be read or is wrong.
    pub fn read(path: &Path) -> Result<Config, ConfigError> {
        Config::parse(&File::read(path)?)
    }

    /// Reads and checks the configuration that the environment names; `None` if it names none.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if it can't be read or is wrong.
    pub fn from_environment() -> Result<Option<Config>, ConfigError> {
        if let Ok(text) = std::env::var(TEXT_VARIABLE) {
            return Config::parse(&File::from_text(&text)?).map(Some);
        }
        match std::env::var_os(FILE_VARIABLE) {
            Some(path) => Config::read(Path::new(&path)).map(Some),
            None => Ok(None),
        }
    }

    /// Checks the rules of a file.
    ///
    /// # Errors
    ///
    /// [`ConfigError::Rule`] for the first wrong rule.
    pub fn parse(file: &File) -> Result<Config, ConfigError> {
        let rules = file.rule.iter().enumerate().map(|(at, text)| {
            let rule = text.name.clone().unwrap_or_else(|| format!("rule {}", at + 1));
            Rule::new(rule.clone(), text).map_err(|what| ConfigError::Rule { rule, what })
        });
        let rules = rules.collect::<Result<_, _>>()?;
        Ok(Config { log: file.log.clone(), counters: file.counters.clone(), rules })
    }
}

impl File {
    /// Reads a file, unchecked.
    ///
    /// # Errors
    ///
    /// [`ConfigError::Read`], [`ConfigError::Syntax`].
    pub fn read(path: &Path) -> Result<File, ConfigError> {
        let text = std::fs::read_to_string(path).map_err(|error| ConfigError::Read(path.into(), error))?;
        File::from_text(&text)
    }

    /// Parses TOML, unchecked.
    ///
    /// # Errors
    ///
    /// [`ConfigError::Syntax`].
    pub fn from_text(text: &str) -> Result<File, ConfigError> {
        Ok(toml::from_str(text)?)
    }

    /// Formats the file as TOML.
    ///
    /// # Errors
    ///
    /// A file never fails.
    pub fn to_text(&self) -> Result<String, toml::ser::Error> {
        toml::to_string(self)
    }
}

impl Rule {
    fn new(name: String, text: &RuleText) -> Result<Rule, String> {
        let words: Vec<String> =
            text.through.to_vec().iter().flat_map(|words| words.split(',')).map(str::to_string).collect();
        let chain = Chain::new(&words)?;
        if chain.resizes() && !text.until_close {
            return Err(
                "the operators change the length, which breaks a protocol that announces it: where the \
                        receiver reads until the connection is closed, say until_close = true"
                    .into(),
            );
        }
        let pattern =
            |text: &String| glob::Pattern::new(text).map_err(|error| format!("path = {text:?}: {error}"));
        let paths = text.path.to_vec().iter().map(pattern).collect::<Result<_, _>>()?;
        let cipher = match (chain.decrypts(), &text.key_file, &text.counter) {
            (true, Some(file), Some(counter)) => {
                let first = FirstCounter::parse(counter).ok_or_else(|| {
                    format!("counter = {counter:?}: write xattr:user.NAME, or 32 hexadecimal digits")
                })?;
                Some((file.clone(), first))
            }
            (true, ..) => return Err("aes256-ctr needs key_file and counter".into()),
            (false, None, None) => None,
            (false, ..) => return Err("key_file and counter are for aes256-ctr".into()),
        };
        Ok(Rule { name, paths, ports: text.port.to_vec(), chain, cipher })
    }

    /// Returns true if it depends on the file's path.
    pub fn asks_path(&self) -> bool {
        !self.paths.is_empty()
    }

    /// Returns true if it depends on the socket's port.
    pub fn asks_port(&self) -> bool {
        !self.ports.is_empty()
    }

    /// Returns true if it applies to a socket with this port; `None` for a socket without one.
    pub fn takes_port(&self, port: Option<u16>) -> bool {
        self.ports.is_empty() || port.is_some_and(|port| self.ports.contains(&port))
    }

    /// Returns true if it applies to the file at this path.
    pub fn takes_path(&self, path: impl AsRef<OsStr>) -> bool {
        let text = path::to_text(path.as_ref());
        self.paths.is_empty() || self.paths.iter().any(|pattern| pattern.matches(&text))
    }

    /// Reads its key, if it has one.
    ///
    /// # Errors
    ///
    /// Returns a sentence that names the file.
    pub fn key(&self) -> Result<Option<[u8; 32]>, String> {
        self.cipher.as_ref().map(|(file, _)| key::read(file)).transpose()
    }
}
