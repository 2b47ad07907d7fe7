//! Figures of an experiment, beside the papers', and the goals.

/// A figure.
#[derive(Clone, Debug)]
pub struct Figure {
    /// Of what.
    pub what: &'static str,
    /// Here.
    pub ours: f64,
    /// In the papers.
    pub paper: Option<f64>,
    /// The goal.
    pub reach: Option<Reach>,
    /// The reason where ours and theirs differ, or the difference in counting.
    pub why: &'static str,
}

/// A goal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reach {
    /// No more than this.
    AtMost(f64),
    /// No less.
    AtLeast(f64),
}

impl Figure {
    /// True if the goal was reached; none where there is no goal.
    pub fn is_reached(&self) -> Option<bool> {
        Some(match self.reach? {
            Reach::AtMost(most) => self.ours <= most,
            Reach::AtLeast(least) => self.ours >= least,
        })
    }
}
