//! Words and bars of tables, and rows as JSON.

use super::figures::Ratio;
use serde::Serialize;
use serde_json::{Value, json};

/// Columns of a stage's bar.
const WIDTH: usize = 48;

pub fn plural(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

pub fn ratio(ratio: Option<Ratio>) -> String {
    ratio.map_or("-".into(), |ratio| format!("{:.2} ({:.2}..{:.2})", ratio.median, ratio.least, ratio.most))
}

/// A row for programs: a ratio is its median, and beside it `_spread`, the least and the most.
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

/// A stage of a transfer, as a bar from its first to its last operation; its shade is the share of that time
/// in which it was busy.
pub fn stage(first: u64, last: u64, busy: u64, whole: u64) -> String {
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
        assert_eq!(stage(0, 100, 90, 100), "█".repeat(WIDTH));
        let half = stage(50, 100, 5, 100);
        assert_eq!(half, " ".repeat(WIDTH / 2) + &"░".repeat(WIDTH / 2));
        assert_eq!(stage(100, 100, 0, 100).trim_start().chars().count(), 1);
    }
}
