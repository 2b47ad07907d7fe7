//! What an experiment comes to: a figure, beside the papers', and what was to be reached.

/// A figure.
#[derive(Clone, Debug)]
pub struct Figure {
    /// Of what.
    pub what: &'static str,
    /// Here.
    pub ours: f64,
    /// In the papers.
    pub paper: Option<f64>,
    /// What was to be reached.
    pub reach: Option<Reach>,
    /// Where ours and theirs differ: why, or what is counted otherwise.
    pub why: &'static str,
}

/// What is to be reached.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reach {
    /// No more than this.
    AtMost(f64),
    /// No less.
    AtLeast(f64),
}

impl Figure {
    /// Whether it was reached, where there is something to reach.
    pub fn is_reached(&self) -> Option<bool> {
        Some(match self.reach? {
            Reach::AtMost(most) => self.ours <= most,
            Reach::AtLeast(least) => self.ours >= least,
        })
    }
}
