//! Requests of the management socket, and their answers: a line of JSON each.
//!
//! A line is copied, then read here, then carried out: what is not a request is answered with the reason, and changes nothing.

use crate::spec::Drive;
use crate::state::{Slot, State};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Longest request, in bytes.
pub const REQUEST_MAX: u64 = 64 << 10;

/// A request: what the management socket is told.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(tag = "command", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// A drive, or namespaces of one that is there.
    Add {
        /// It is made where its name is new.
        drive: Drive,
    },
    /// A namespace, or a whole drive.
    Remove {
        /// The drive's name.
        name: String,
        /// Without one: the drive.
        nsid: Option<u32>,
    },
    /// A namespace's size in bytes.
    Resize {
        /// The drive's name.
        name: String,
        /// The namespace's number.
        nsid: u32,
        /// In bytes.
        size: u64,
    },
    /// A drive's share and limits. What is not named stays as it is.
    Set {
        /// The drive's name.
        name: String,
        /// Its share beside the others.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        weight: Option<u32>,
        /// Commands a second at most; 0: any.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        iops: Option<u64>,
        /// Bytes a second at most; 0: any.
        #[serde(default, rename = "bytes-per-s", skip_serializing_if = "Option::is_none")]
        bytes_per_s: Option<u64>,
    },
    /// An operator of a user's own, for all drives.
    Load {
        /// The WebAssembly module; a whole path.
        module: PathBuf,
    },
    /// All that there is, and what it has done.
    List {},
}

/// A drive's share and limits, where they are to be other ones: see [`Request::Set`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Rates {
    /// Its share beside the others.
    pub weight: Option<u32>,
    /// Commands a second at most; 0: any.
    pub iops: Option<u64>,
    /// Bytes a second at most; 0: any.
    pub bytes_per_s: Option<u64>,
}

/// The answer to a command.
#[derive(Debug, Deserialize, Serialize)]
#[serde(untagged)]
pub enum Answer {
    /// It was done, and this is what there is now.
    Done {
        /// All drives.
        drives: Vec<State>,
        /// The slots that do operators' work.
        #[serde(default)]
        slots: Vec<Slot>,
    },
    /// All is as it was.
    Refused {
        /// Why.
        error: String,
        /// What helps, where somebody knows.
        advice: Option<String>,
    },
}

impl Request {
    /// Reads a line.
    ///
    /// # Errors
    ///
    /// Why it is no request.
    pub fn parse(line: &[u8]) -> Result<Request, String> {
        if line.len() as u64 > REQUEST_MAX {
            return Err(format!("a request is one line of at most {REQUEST_MAX} bytes"));
        }
        serde_json::from_slice(line).map_err(|error| format!("not a request: {error}"))
    }

    /// The line that says it.
    ///
    /// # Errors
    ///
    /// Where a path is no text.
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
