//! Counts of everything that was done, and the messages of failures.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Mutex;

use dcs::{Status, TransferError};

#[derive(Default)]
pub struct Tally(Mutex<BTreeMap<String, u64>>);

impl Tally {
    pub fn add(&self, what: impl Into<String>) {
        *self.0.lock().unwrap().entry(what.into()).or_default() += 1;
    }

    /// Returns true if each of these was done at least once: on a busy machine that may take longer than the given time.
    pub fn has_all(&self, done: &[&str]) -> bool {
        let counts = self.0.lock().unwrap();
        done.iter().all(|what| counts.contains_key(*what))
    }

    /// Counts a failed transfer, whose failure must be one of the allowed ones.
    pub fn failed(&self, what: &str, error: &TransferError) {
        let expected =
            matches!(error.status, Status::PathUnavailable | Status::OutOfRange | Status::CapacityExceeded);
        assert!(expected, "{what}: {error}");
        let said = error.reason.as_deref().map_or_else(|| error.status.to_string(), str::to_owned);
        // The position in the file does not matter here.
        let reason: String = said.chars().filter(|letter| !letter.is_ascii_digit()).collect();
        self.add(format!("{what}, refused: {}", reason.trim()));
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = self.0.lock().unwrap();
        let counts: Vec<String> = counts.iter().map(|(what, count)| format!("{what}: {count}")).collect();
        f.write_str(&counts.join("; "))
    }
}
