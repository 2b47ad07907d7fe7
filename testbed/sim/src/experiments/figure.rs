//! Figures of an experiment, compared with the papers', and targets.

/// A figure.
#[derive(Clone, Debug)]
pub struct Figure {
    /// Description of the figure.
    pub what: &'static str,
    /// Our value.
    pub ours: f64,
    /// The papers' value.
    pub paper: Option<f64>,
    /// Target.
    pub reach: Option<Reach>,
    /// Reason for a difference, in value or in counting.
    pub why: &'static str,
}

/// A target.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reach {
    /// At most this.
    AtMost(f64),
    /// At least this.
    AtLeast(f64),
}

impl Figure {
    /// Returns true if the target was reached; `None` without a target.
    pub fn is_reached(&self) -> Option<bool> {
        Some(match self.reach? {
            Reach::AtMost(most) => self.ours <= most,
            Reach::AtLeast(least) => self.ours >= least,
        })
    }
}
