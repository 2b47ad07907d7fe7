//! Tables for people: columns as wide as their contents, numbers right-aligned, words left-aligned.

use super::figures::Medians;
use super::shown;
use crate::report::Report;

/// A table. Its first column holds words.
pub struct Table {
    rows: Vec<Vec<String>>,
    words: Vec<usize>,
    indent: usize,
}

impl Table {
    pub fn new<T: Into<String>>(header: impl IntoIterator<Item = T>) -> Table {
        Table { rows: vec![header.into_iter().map(Into::into).collect()], words: vec![0], indent: 2 }
    }

    /// Sets the columns that hold words in addition to the first one.
    pub fn words(self, columns: &[usize]) -> Table {
        Table { words: [&self.words, columns].concat(), ..self }
    }

    /// Sets the spaces before each line.
    pub fn indent(self, indent: usize) -> Table {
        Table { indent, ..self }
    }

    /// Adds a row, with as many cells as the header has.
    pub fn row<T: Into<String>>(&mut self, cells: impl IntoIterator<Item = T>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    pub fn show(&self, report: &Report) {
        self.lines().iter().for_each(|line| report.text(line));
    }

    fn lines(&self) -> Vec<String> {
        let widest = |column| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell: &String| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.rows[0].len()).map(widest).collect();
        let cell = |(column, text): (usize, &String)| {
            let width = widths.get(column).copied().unwrap_or(0);
            if self.words.contains(&column) { format!("{text:<width$}") } else { format!("{text:>width$}") }
        };
        let line = |row: &Vec<String>| {
            let cells = row.iter().enumerate().map(cell).collect::<Vec<_>>().join("  ");
            format!("{:1$}{cells}", "", self.indent).trim_end().to_string()
        };
        self.rows.iter().map(line).collect()
    }
}

/// Returns the header for [`costs`]. `base`: the contender that ratios are to.
pub fn costs_header(base: Option<&str>) -> Vec<String> {
    let ratio = base.map_or("-".into(), |base| format!("x {base} (least..most)"));
    ["GiB/s", &ratio, "CPU s/GiB", &ratio, "kernel", "client"].map(String::from).to_vec()
}

/// Returns the cells for the cost of a contender's runs.
pub fn costs(medians: &Medians) -> Vec<String> {
    vec![
        format!("{:.3}", medians.gib_per_s),
        shown::ratio(medians.throughput_ratio),
        format!("{:.3}", medians.cpu_s_per_gib),
        shown::ratio(medians.cpu_ratio),
        format!("{:.3}", medians.kernel_cpu_s_per_gib),
        format!("{:.3}", medians.client_cpu_s_per_gib),
    ]
}

/// Formats a number with this many decimals, a dash if there is none.
pub fn number(value: Option<f64>, digits: usize) -> String {
    value.filter(|value| value.is_finite()).map_or("-".into(), |value| format!("{value:.digits$}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_on_the_left_and_numbers_on_the_right() {
        let mut table = Table::new(["name", "n", "why"]).words(&[2]);
        table.row(["a", "100", "so"]);
        table.row(["longest", "7", "µs"]);
        assert_eq!(table.lines(), ["  name       n  why", "  a        100  so", "  longest    7  µs"]);
        assert_eq!(table.indent(0).lines()[2], "longest    7  µs");
    }
}
