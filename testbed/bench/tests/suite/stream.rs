//! `dcs bench stream`, in small.

use crate::run::{Done, Place};
use std::path::Path;

#[test]
fn videos_are_measured_and_what_is_missing_is_said() {
    if !Path::new(crate::PROGRAM).with_file_name("dcs").is_file() {
        return println!("skipped: there is no dcs beside dcs-bench: cargo build -p dcs-cli");
    }
    let place = Place::new();
    let line = "bench stream --streams 1,9 --contenders dcs,dcs-ordinary,multicat --runs 1 --seconds 2 --warm-up 1 \
                --dir . --svg plot.svg --json";
    // Only dcs is available, so the video is made of packets.
    let done = Done(place.dcs(line).env("PATH", "").env_remove("FFMPEG").output().unwrap()).ok();
    let mut lines = done.lines();
    assert_eq!(lines.pop().unwrap()["ok"], true);
    let skipped = lines.remove(0);
    assert_eq!(
        (skipped["event"].as_str(), skipped["contender"].as_str()),
        (Some("skipped"), Some("multicat"))
    );
    let rows: Vec<_> = lines
        .iter()
        .map(|row| (row["contender"].as_str().unwrap(), row["streams"].as_u64().unwrap()))
        .collect();
    assert_eq!(rows, [("dcs", 1), ("dcs-ordinary", 1), ("dcs", 9), ("dcs-ordinary", 9)]);
    for row in &lines {
        let number = |name: &str| row[name].as_f64().unwrap();
        assert!(number("cpu_percent_a_stream") > 0.0);
        assert!(number("deviation_ms_median") <= number("deviation_ms_99"));
        assert!(number("deviation_ms_99") <= number("deviation_ms_most"));
        // 743 datagrams a second, of at most eight streams.
        let expected = 1486.0 * number("streams").min(8.0);
        assert!((number("datagrams_heard") / expected - 1.0).abs() < 0.1, "{row}");
    }
    assert_eq!(place.names(), ["plot.svg"], "the video is removed");
}
