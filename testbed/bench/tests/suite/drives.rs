//! `dcs csd demo` in small, where there can be guests.

use crate::run::Place;

/// Exit code for a virtual server that is not available.
const UNAVAILABLE: i32 = 9;
/// Exit code for a missing program.
const MISSING: i32 = 7;

#[test]
fn two_guests_with_drives_have_every_byte_and_near_storage_none_crosses() {
    let place = Place::new();
    let done = place.run("csd demo --size 4MiB --json");
    if done.code() == UNAVAILABLE || done.code() == MISSING {
        eprintln!("skipped: {}", done.stderr());
        return;
    }
    let done = done.ok();
    let lines = done.lines();
    let of = |event: &str| lines.iter().filter(|line| line["event"] == event).collect::<Vec<_>>();
    let checks = of("check");
    assert_eq!(checks.len(), 3, "files, the disk, gzip");
    assert!(checks.iter().all(|check| check["ok"] == true), "{checks:?}");
    let rows = of("measurement");
    assert_eq!(rows.len(), 7);
    for row in rows {
        let crossed = row["bytes_delivered"].as_u64().unwrap();
        match row["by"] == "dcs near storage" {
            true => assert!(crossed < 4096 && (crossed == 0) == (row["job"] == "md5"), "{row}"),
            false => assert_eq!(crossed, 4 << 20, "{row}"),
        }
        assert!(row["guest_cpu_s_per_gib"].as_f64().unwrap() > 0.0 && row["guests"] == 2, "{row}");
    }
    assert!(of("done")[0]["guest_cpu_ratio"].as_f64().unwrap() > 0.0);
}
