//! Refused requests: why, and what to do.

use crate::layout::LayoutError;
use dcs_console::failure::Failure;
use dcs_csd::ConfigError;

/// A refused request. Nothing has changed.
#[derive(Debug)]
pub struct Refused {
    pub error: String,
    pub advice: Option<String>,
}

impl Refused {
    pub fn new(error: impl ToString) -> Refused {
        Refused { error: error.to_string(), advice: None }
    }

    pub fn advise(self, advice: impl Into<String>) -> Refused {
        Refused { advice: Some(advice.into()), ..self }
    }

    /// Returns the failure of a command that begins with these words.
    pub fn into_failure(self, before: &str) -> Failure {
        let failure = Failure::usage(format!("{before}{}", self.error));
        match self.advice {
            Some(advice) => failure.advise(advice),
            None => failure,
        }
    }
}

impl From<LayoutError> for Refused {
    fn from(error: LayoutError) -> Refused {
        Refused::new(&error).advise(error.advice())
    }
}

impl From<Failure> for Refused {
    fn from(failure: Failure) -> Refused {
        Refused { error: failure.line, advice: failure.advice }
    }
}

impl From<ConfigError> for Refused {
    fn from(error: ConfigError) -> Refused {
        Refused::new(error)
    }
}
