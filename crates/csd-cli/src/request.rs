//! Requests of the management socket, and their answers: a line of JSON each.
//!
//! A line is copied, read here, then carried out: an invalid request is answered with the reason, and changes
//! nothing.

use crate::spec::Drive;
use crate::state::{Slot, State};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Maximum length of a request, in bytes.
pub const REQUEST_MAX: u64 = 64 << 10;

/// A request on the management socket.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(tag = "command", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// Adds a drive, or namespaces to an existing one.
    Add {
        /// A new name makes a drive.
        drive: Drive,
    },
    /// Removes a namespace, or a whole drive.
    Remove {
        /// The drive's name.
        name: String,
        /// The namespace; without it, the drive.
        nsid: Option<u32>,
    },
    /// Resizes a namespace.
    Resize {
        /// The drive's name.
        name: String,
        /// The namespace's number.
        nsid: u32,
        /// The new size in bytes.
        size: u64,
    },
    /// Changes a drive's share and limits; those that are not given stay.
    Set {
        /// The drive's name.
        name: String,
        /// Its share, relative to the others.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        weight: Option<u32>,
        /// Most commands a second; 0: no limit.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        iops: Option<u64>,
        /// Most bytes a second; 0: no limit.
        #[serde(default, rename = "bytes-per-s", skip_serializing_if = "Option::is_none")]
        bytes_per_s: Option<u64>,
    },
    /// Loads a user's own operator, for all drives.
    Load {
        /// Absolute path of the WebAssembly module.
        module: PathBuf,
    },
    /// Lists the state and the counters of everything.
    List {},
}

/// New values of a drive's share and limits: see [`Request::Set`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Rates {
    /// Its share, relative to the others.
    pub weight: Option<u32>,
    /// Most commands a second; 0: no limit.
    pub iops: Option<u64>,
    /// Most bytes a second; 0: no limit.
    pub bytes_per_s: Option<u64>,
}

/// The answer to a request.
#[derive(Debug, Deserialize, Serialize)]
#[serde(untagged)]
pub enum Answer {
    /// It was carried out; this is the state now.
    Done {
        /// All drives.
        drives: Vec<State>,
        /// The slots that do operators' work.
        #[serde(default)]
        slots: Vec<Slot>,
    },
    /// It was refused; nothing has changed.
    Refused {
        /// The reason.
        error: String,
        /// Advice, if there is any.
        advice: Option<String>,
    },
}

impl Request {
    /// Reads a line.
    ///
    /// # Errors
    ///
    /// Says why it is not a request.
    pub fn parse(line: &[u8]) -> Result<Request, String> {
        if line.len() as u64 > REQUEST_MAX {
            return Err(format!("a request is one line of at most {REQUEST_MAX} bytes"));
        }
        serde_json::from_slice(line).map_err(|error| format!("not a request: {error}"))
    }

    /// Returns the line of the request.
    ///
    /// # Errors
    ///
    /// Fails if a path is not valid UTF-8.
    pub fn line(&self) -> Result<Vec<u8>, serde_json::Error> {
        let mut line = serde_json::to_vec(self)?;
        line.push(b'\n');
        Ok(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_nobody_knows_are_refused() {
        let set = Request::parse(br#"{"command":"set","name":"a","iops":5,"bytes-per-s":7}"#).unwrap();
        let wanted = Request::Set { name: "a".into(), weight: None, iops: Some(5), bytes_per_s: Some(7) };
        assert_eq!(set, wanted);
        assert_eq!(Request::parse(&set.line().unwrap()).unwrap(), set);
        for line in [
            r#"{"command":"set","name":"a","iops":5,"colour":7}"#,
            r#"{"command":"set","name":"a","iops":-5}"#,
            r#"{"command":"set"}"#,
            r#"{"command":"load"}"#,
            r#"{"command":"list","more":1}"#,
            "",
        ] {
            assert!(Request::parse(line.as_bytes()).unwrap_err().starts_with("not a request"), "{line}");
        }
    }
}
