//! `dcs bench`, in small.

use crate::run::Place;
use serde_json::Value;

#[test]
fn instructions_of_a_small_transfer_are_counted() {
    let lines = Place::new().run("bench control --json").ok().lines();
    let names: Vec<_> = lines.iter().map(|line| line["contender"].as_str().unwrap()).collect();
    assert_eq!(names, ["loop", "engine-fd", "engine"]);
    for line in &lines {
        let total = line["instructions_per_transfer"].as_f64().unwrap();
        let parts = line["instructions_by_object"].as_object().unwrap().values();
        assert!(
            total > 100.0 && (parts.map(|part| part.as_f64().unwrap()).sum::<f64>() - total).abs() < 1e-6
        );
        let calls = line["system_calls_by_name"].as_object().unwrap();
        let sum: f64 = calls.values().map(|count| count.as_f64().unwrap()).sum();
        assert!((sum - line["system_calls_per_transfer"].as_f64().unwrap()).abs() < 1e-6);
        assert_eq!(calls["sendto"], 1.0);
    }
    assert_eq!(lines[0]["system_calls_by_name"]["pread64"], 1.0);
}

/// Returns the rows of a benchmark, after checking its last line.
fn measured(line: &str) -> Vec<Value> {
    let place = Place::new();
    let mut lines = place.run(&format!("bench {line} --seconds 0.1 --runs 1 --json --dir .")).ok().lines();
    assert_eq!(lines.pop().unwrap()["ok"], true);
    assert!(place.names().iter().all(|name| name.ends_with(".svg")), "the data are removed");
    lines
}

fn positive(row: &Value, field: &str) -> f64 {
    let value = row[field].as_f64().unwrap_or_else(|| panic!("{field} in {row}"));
    assert!(value > 0.0 && value.is_finite(), "{field} in {row}");
    value
}

#[test]
fn both_directions_are_measured_and_checked() {
    for (job, contenders) in [
        ("file>md5>socket", &["loop", "engine", "python", "sendfile"][..]),
        ("socket>md5,aes256-ctr>file", &["loop", "loop-direct", "engine"]),
    ] {
        let names = contenders.join(",");
        let rows = measured(&format!("{job} --streams 2 --size 1M --contenders {names}"));
        let found: Vec<_> = rows.iter().map(|row| row["contender"].as_str().unwrap()).collect();
        assert_eq!(found, contenders);
        for row in &rows {
            assert_eq!((row["job"].as_str(), row["streams"].as_u64()), (Some(job), Some(2)));
            assert_eq!((row["size"].as_u64(), row["runs"].as_u64()), (Some(1 << 20), Some(1)));
            let (rate, cpu) = (positive(row, "gib_per_s"), positive(row, "cpu_s_per_gib"));
            positive(row, "client_cpu_s_per_gib");
            assert!(row["kernel_cpu_s_per_gib"].as_f64().unwrap() <= cpu);
            // Bounded by what all cores can give, with some tolerance for the clocks; kernel threads may be on any core.
            let cores = std::thread::available_parallelism().unwrap().get() as f64;
            assert!(rate * cpu < 2.0 * cores + 1.0, "{row}");
            assert!(row["library"].as_str().is_some_and(|library| !library.is_empty()));
            assert!((row["output_ratio"].as_f64().unwrap() - 1.0).abs() < 1e-9);
        }
        assert_eq!(rows[0]["cpu_ratio"], 1.0);
        let of_engine = rows.iter().find(|row| row["contender"] == "engine").unwrap();
        let quotient = positive(of_engine, "cpu_s_per_gib") / positive(&rows[0], "cpu_s_per_gib");
        assert!((positive(of_engine, "cpu_ratio") - quotient).abs() < 1e-9);
    }
}

#[test]
fn small_objects_hogs_and_the_plot() {
    let place = Place::new();
    let line = "bench file>md5>socket --size 4k --streams 1,2 --hogs 0,1 --contenders loop,engine,lanes --open once \
                --seconds 0.1 --runs 1 --json --dir . --svg plot.svg";
    let lines = place.run(line).ok().lines();
    let rows = &lines[..lines.len() - 1];
    assert_eq!(rows.len(), 2 * 2 * 3);
    for row in rows {
        let each = positive(row, "cpu_us_per_object");
        assert!((positive(row, "objects_per_cpu_s") * each / 1e6 - 1.0).abs() < 1e-6);
        assert!(positive(row, "latency_us_p50") <= positive(row, "latency_us_p99"));
        assert_eq!(row["share_of_uncontended"].is_null(), row["hogs"] == 0);
    }
    let plot = String::from_utf8(place.read("plot.svg")).unwrap();
    for text in ["file&gt;md5&gt;socket", "CPU s per GiB", "streams", "engine", "loop", "beside 1 hog"] {
        assert!(plot.contains(text), "{text}");
    }
}

#[test]
fn memory_hogs_and_the_processor_s_counters() {
    let place = Place::new();
    let line = "bench file>socket --size 512k --streams 1 --memory-hogs 0,1 --contenders loop,engine --counters \
                --seconds 0.1 --runs 1 --json --dir .";
    let lines = place.run(line).ok().lines();
    let rows = &lines[..lines.len() - 1];
    assert_eq!(rows.len(), 2 * 2);
    for row in rows {
        assert_eq!(row["share_of_uncontended"].is_null(), row["memory_hogs"] == 0, "{row}");
        match row["counters_refused"].as_str() {
            Some(why) => assert!(why.starts_with("perf_event_open: ") && why.contains("; "), "{why}"),
            None => {
                assert!(positive(row, "instructions_per_byte") > positive(row, "cache_misses_per_kib") / 1e3)
            }
        }
    }
    // Skipped where they are wanted and cannot be had, and said so.
    let shown = place.run(&line.replace(" --json", "")).ok();
    assert!(shown.stdout().contains("counters: skipped: ") || shown.stdout().contains("instructions/byte"));
}

#[test]
fn a_compressor_is_measured_by_what_goes_in() {
    let rows = measured("file>gzip>socket --streams 1 --size 512k --contenders loop,engine");
    for row in &rows {
        let ratio = positive(row, "output_ratio");
        assert!(ratio > 0.05 && ratio < 0.6, "{row}");
    }
}

#[test]
fn jobs_and_contenders_are_listed() {
    let list = Place::new().run("bench --list").ok().stdout();
    for name in ["file>md5,aes256-ctr>socket", "socket>md5>file", "control", "engine", "loop-1m", "python"] {
        assert!(list.lines().any(|line| line.trim_start().starts_with(name)), "{name}");
    }
}

#[test]
fn what_cannot_be_measured_is_a_usage_error() {
    let place = Place::new();
    for (line, words) in [
        ("bench nonsense", &["there is no job", "dcs bench --list"][..]),
        ("bench file>md6>socket", &["there is no operator", "dcs ops"]),
        ("bench file>gunzip>socket", &["compressed"]),
        ("bench file>md5>file", &["does not lead", "socket"]),
        ("bench --contenders curl", &["there is no contender", "engine"]),
        ("bench file>aes256-ctr>socket --contenders python", &["cannot do", "--list"]),
        ("bench file>md5>socket --size 0", &["nothing to move"]),
        ("bench --size 2G", &["in memory", "1G"]),
        ("bench --server-cores 4097", &["there are"]),
    ] {
        place.run(line).fails(2, words);
    }
    for line in
        ["bench --streams 0", "bench --hogs x", "bench --seconds 0", "bench --runs 0", "bench --open twice"]
    {
        assert_eq!(place.run(line).code(), 2, "{line}");
    }
}

#[test]
fn engines_with_several_cores_are_beside_one() {
    // Objects of several blocks: those of one may all be done in one go, without a pass.
    let rows = measured("cores --streams 2,4 --size 1M --svg plot.svg");
    let found: Vec<_> = rows
        .iter()
        .map(|row| (row["streams"].as_u64().unwrap(), row["contender"].as_str().unwrap()))
        .collect();
    let contenders = ["one", "gathered", "spread"];
    let expected: Vec<_> =
        [2, 4].into_iter().flat_map(|streams| contenders.map(|one| (streams, one))).collect();
    assert_eq!(found, expected);
    for row in &rows {
        let one = row["contender"] == "one";
        assert_eq!(row["cores"], if one { 1 } else { 2 });
        positive(row, "gib_per_s");
        positive(row, "cpu_s_per_gib");
        // A pass has at most as many lanes as there are streams.
        let lanes = positive(row, "lanes_a_pass");
        assert!(lanes >= 1.0 && lanes <= row["streams"].as_f64().unwrap(), "{row}");
        for ratio in ["throughput_of_one", "cpu_of_one"] {
            let value = positive(row, ratio);
            assert!(!one || value == 1.0, "{row}");
        }
    }
}
