//! Lines of the table that `dcs doctor` prints.

use serde::Serialize;

/// A verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Fine.
    Ok,
    /// Works with less, or is worth knowing.
    Note,
    /// Missing: a path that needs it will not run.
    Missing,
    /// Could not be found out here.
    Unreadable,
}

/// A line in the table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Row {
    pub topic: &'static str,
    pub name: String,
    pub state: State,
    pub found: String,
    /// Advice, or a command to type.
    pub fix: Option<String>,
}

impl Row {
    pub fn new(topic: &'static str, name: impl Into<String>, state: State, found: impl Into<String>) -> Row {
        Row { topic, name: name.into(), state, found: found.into(), fix: None }
    }

    pub fn fix(mut self, fix: impl Into<String>) -> Row {
        self.fix = Some(fix.into());
        self
    }
}
