//! `dcs bench server`: the papers' experiments in virtual time, the fast one of them.

use crate::run::Place;

#[test]
fn latency_is_told_by_component_beside_the_papers() {
    let place = Place::new();
    let mut lines = place.run("bench server latency --json --svg latency.svg").ok().lines();
    assert_eq!(lines.pop().unwrap()["ok"], true);
    let of = |event: &str| lines.iter().filter(|line| line["event"] == event).collect::<Vec<_>>();
    for row in of("measurement") {
        let parts = row["parts_ns"].as_object().unwrap().values().map(|part| part.as_u64().unwrap());
        assert_eq!(Some(parts.sum::<u64>()), row["total_ns"].as_u64(), "{row}");
    }
    let figures = of("figure");
    assert!(figures.iter().any(|line| line["paper"] == 0.58 && line["reached"] == true));
    assert!(
        figures.iter().any(|line| line["paper"] == 0.58 && line["reached"] == false),
        "what is not reached is said"
    );
    let svg = place.read("latency.svg");
    let svg = String::from_utf8_lossy(&svg);
    for name in ["SSD -&gt; MD5 -&gt; NIC", "kernel stacks", "card control"] {
        assert!(svg.contains(name), "{name}");
    }
    // Virtual time: again, and everything is the same.
    let again = place.run("bench server latency --json").ok().lines();
    assert!(lines.iter().all(|line| again.contains(line)));
}

#[test]
fn every_parameter_has_a_source() {
    let lines = Place::new().run("bench server parameters --json").ok().lines();
    let rows: Vec<_> = lines.iter().filter(|line| line["event"] == "parameter").collect();
    assert!(
        rows.len() > 30 && rows.iter().all(|row| row["source"].as_str().is_some_and(|text| text.len() > 20))
    );
}
