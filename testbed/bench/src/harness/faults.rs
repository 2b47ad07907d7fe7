//! Faults requested on the command line, and their strikes.

use crate::report::Report;
use clap::Args;
use dcs_fabric::{FaultPlan, Struck};
use serde::{Deserialize, Serialize};
use serde_json::json;

/// Faults of a run.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Inject a fault into a device: DEVICE:OPERATION:WHICH:EFFECT, such as ssd:read:3:late=20ms. May be given several times
    #[arg(long = "fault", value_name = "FAULT")]
    pub plans: Vec<FaultPlan>,
    /// Seed for choosing operations when WHICH is a share (2%)
    #[arg(long = "fault-seed", value_name = "N", default_value = "1")]
    pub seed: u64,
}

/// Strikes of a fault, as one process reports them to another.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Strikes {
    fault: String,
    met: u64,
    struck: u64,
}

impl From<Struck> for Strikes {
    fn from(Struck { plan, met, struck }: Struck) -> Strikes {
        Strikes { fault: plan.to_string(), met, struck }
    }
}

impl Strikes {
    /// Returns the original report.
    pub fn struck(&self) -> Option<Struck> {
        Some(Struck { plan: self.fault.parse().ok()?, met: self.met, struck: self.struck })
    }
}

/// Reports how often each fault struck, and which never did. `by`: the design, if there are several.
pub fn report_strikes(by: Option<&str>, all: &[Struck], report: &Report) {
    for one in all {
        let never = one.never();
        report.object(&json!({
            "event": "fault", "by": by, "fault": one.plan.to_string(), "met": one.met, "struck": one.struck,
            "never": never,
        }));
        let who = by.map_or(String::new(), |by| format!("{by}: "));
        let times = if one.struck == 1 { "once".into() } else { format!("{} times", one.struck) };
        let line = never.unwrap_or_else(|| format!("{} struck {times}", one.plan));
        report.text(format_args!("{who}{line}"));
    }
}
