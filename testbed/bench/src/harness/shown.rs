//! Words and bars for tables, and rows as JSON.

use super::figures::Ratio;
use crate::report::Report;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Columns of a stage's bar.
const WIDTH: usize = 48;

pub fn plural(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

pub fn ratio(ratio: Option<Ratio>) -> String {
    ratio.map_or("-".into(), |ratio| format!("{:.2} ({:.2}..{:.2})", ratio.median, ratio.least, ratio.most))
}

/// Returns a row as JSON. A ratio becomes its median, with `_spread` next to it: the least and the most.
pub fn object(row: &impl Serialize) -> Value {
    let mut value = serde_json::to_value(row).unwrap_or_default();
    let Some(fields) = value.as_object_mut() else { return value };
    let is_ratio = |(name, field): (&String, &Value)| field.get("median").map(|_| name.clone());
    let names: Vec<String> = fields.iter().filter_map(is_ratio).collect();
    for name in names {
        let ratio = fields[&name].take();
        fields.insert(format!("{name}_spread"), json!([ratio["least"], ratio["most"]]));
        fields.insert(name, ratio["median"].clone());
    }
    value
}

/// Activity of a stage of a transfer, from the transfer's start.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Stage {
    pub name: String,
    pub first_ns: u64,
    pub last_ns: u64,
    /// Sum over its operations, including overlaps.
    pub busy_ns: u64,
    pub operations: u64,
}

/// Reports the stages of a transfer of this duration, a line for each.
pub fn stages(stages: &[Stage], whole_ns: u64, report: &Report) {
    for stage in stages {
        report.text(format_args!(
            "  {:12} |{}| busy {:8.3} ms in {} operations",
            stage.name,
            bar(stage.first_ns, stage.last_ns, stage.busy_ns, whole_ns),
            stage.busy_ns as f64 / 1e6,
            stage.operations,
        ));
    }
}

/// Draws a stage of a transfer as a bar from its first to its last operation, with a shade for the share of that time in which it
/// was busy.
fn bar(first: u64, last: u64, busy: u64, whole: u64) -> String {
    let column = |time: u64| (time.min(whole) as usize * WIDTH) / whole.max(1) as usize;
    let shade = match busy as f64 / last.saturating_sub(first).max(1) as f64 {
        share if share > 0.75 => '█',
        share if share > 0.5 => '▓',
        share if share > 0.25 => '▒',
        _ => '░',
    };
    let from = column(first).min(WIDTH - 1);
    let to = column(last).max(from + 1);
    (0..WIDTH).map(|at| if (from..to).contains(&at) { shade } else { ' ' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_stands_where_its_stage_was_at_work() {
        assert_eq!(bar(0, 100, 90, 100), "█".repeat(WIDTH));
        let half = bar(50, 100, 5, 100);
        assert_eq!(half, " ".repeat(WIDTH / 2) + &"░".repeat(WIDTH / 2));
        assert_eq!(bar(100, 100, 0, 100).trim_start().chars().count(), 1);
    }
}
