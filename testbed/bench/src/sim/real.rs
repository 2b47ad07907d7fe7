//! What was measured on real programs and processors, for the report's page: Hadoop's grep (DCS, figure 2.13), and what memory
//! contention does to instructions per cycle and caches (figure 2.10a).

use super::page::{cell, escape, push, table};
use crate::failure::Failure;
use serde_json::Value;
use std::path::Path;

const HADOOP: &str = "\
Hadoop 3.4.2's grep example on a real HDFS of one DataNode: a stock job, whose mappers get every line from the DataNode, and the same job whose \
mappers get the lines that dcs finds in the DataNode's block files, compared with the DataNode's checksums (docs/hdfs.md). Matches are GNU grep's. \
In the paper the data-serving node sends all data, by its card: the job takes 0.72 of the time (149 to 108 s, 10 GB, two nodes).";

const COUNTERS: &str = "\
What a process that goes through 512 MiB of memory does to one that sends files (file -> socket), by the processor's counters: instructions \
per byte and per cycle, misses of the last level of cache. Loops copy the data through their caches; the engine lends pages to the socket, as sendfile does. \
A card, whose host software touches no data, is in the experiment contention above.";

/// Columns of Hadoop's grep.
const HADOOP_COLUMNS: [(&str, &str); 7] = [
    ("pattern", "pattern"),
    ("by", "by"),
    ("gib", "GiB"),
    ("matches", "matches"),
    ("seconds", "s"),
    ("job_cpu_s", "job's CPU s"),
    ("datanode_cpu_s", "DataNode's CPU s"),
];

/// Columns of the counters.
const COUNTER_COLUMNS: [(&str, &str); 8] = [
    ("job", "job"),
    ("contender", "by"),
    ("memory_hogs", "memory hogs"),
    ("gib_per_s", "GiB/s"),
    ("cpu_s_per_gib", "CPU s/GiB"),
    ("instructions_per_byte", "instructions/byte"),
    ("instructions_per_cycle", "instructions/cycle"),
    ("cache_misses_per_kib", "cache misses/KiB"),
];

/// Measurements of real programs.
#[derive(Default)]
pub struct Real {
    hadoop: Vec<Value>,
    counters: Vec<Value>,
}

/// Reads a file with the output of `integrations/hdfs/grep.py --json`, of `dcs bench --counters --json`, or both.
pub fn read(path: Option<&Path>) -> Result<Real, Failure> {
    let Some(path) = path else { return Ok(Real::default()) };
    let text = std::fs::read_to_string(path).map_err(|error| Failure::io(path.display(), &error))?;
    let bad = |why: String| {
        Failure::usage(format!("{}: {why}", path.display()))
            .advise("expected the output of integrations/hdfs/grep.py --json or dcs bench --counters --json")
    };
    let mut real = Real::default();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let row: Value = serde_json::from_str(line).map_err(|error| bad(error.to_string()))?;
        match () {
            () if row["event"] != "measurement" => {}
            () if row["hadoop_grep"].is_string() && row["seconds"].is_number() => real.hadoop.push(row),
            () if row["memory_hogs"].is_number() => real.counters.push(row),
            () => return Err(bad(format!("a measurement of something else: {row}"))),
        }
    }
    Ok(real)
}

impl Real {
    pub fn links(&self) -> [&'static str; 2] {
        ["hadoop-grep", "cache-contention"]
    }

    pub fn write(&self, page: &mut String) {
        push(page, format_args!("<h2 id=\"hadoop-grep\">Hadoop's grep</h2><p>{}</p>", escape(HADOOP)));
        if self.hadoop.is_empty() {
            page.push_str("<p>Not measured for this page: <code>make build &amp;&amp; integrations/hdfs/setup &amp;&amp; integrations/hdfs/grep.py --json real.json</code>, then <code>--real real.json</code>.</p>");
        } else {
            rows(page, &HADOOP_COLUMNS, &self.hadoop);
            self.hadoop_ratios(page);
        }
        push(
            page,
            format_args!(
                "<h2 id=\"cache-contention\">Caches under contention</h2><p>{}</p>",
                escape(COUNTERS)
            ),
        );
        if self.counters.is_empty() {
            page.push_str("<p>Not measured for this page: <code>dcs bench 'file&gt;socket' --memory-hogs 0,1 --counters --json &gt;&gt; real.json</code>, then <code>--real real.json</code>.</p>");
            return;
        }
        rows(page, &COUNTER_COLUMNS, &self.counters);
        if let Some(why) = self.counters.iter().find_map(|row| row["counters_refused"].as_str()) {
            push(page, format_args!("<p class=\"no\">No counters: {}</p>", escape(why)));
        }
    }

    fn hadoop_ratios(&self, page: &mut String) {
        let of = |field: &str, row: &Value| row[field].as_f64().unwrap_or(f64::NAN);
        let ratios = self.hadoop.iter().filter(|row| row["by"] != "stock").filter_map(|row| {
            let stock = self
                .hadoop
                .iter()
                .find(|stock| stock["by"] == "stock" && stock["pattern"] == row["pattern"])?;
            let ratio = |field| format!("{:.3}", of(field, row) / of(field, stock));
            Some(vec![cell(&row["pattern"]), ratio("seconds"), ratio("cpu_s"), ratio("datanode_cpu_s")])
        });
        let header = ["near storage / stock", "time (paper: 0.72)", "CPU s of all", "DataNode's CPU s"];
        table(page, &header, 1, ratios);
    }

    pub fn data(&self) -> impl Iterator<Item = &Value> {
        self.hadoop.iter().chain(&self.counters)
    }
}

fn rows(page: &mut String, columns: &[(&str, &str)], rows: &[Value]) {
    let header: Vec<&str> = columns.iter().map(|(_, name)| *name).collect();
    let cells = rows.iter().map(|row| columns.iter().map(|(field, _)| cell(&row[*field])).collect());
    table(page, &header, 2, cells);
}
