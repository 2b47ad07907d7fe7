//! `dcs bench`, in small.

use crate::run::Place;

#[test]
fn instructions_of_a_small_transfer_are_counted() {
    let lines = Place::new().run("bench control --json").ok().lines();
    let names: Vec<_> = lines.iter().map(|line| line["contender"].as_str().unwrap()).collect();
    assert_eq!(names, ["loop", "engine"]);
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

#[test]
fn what_cannot_be_measured_is_a_usage_error() {
    Place::new().run("bench nonsense").fails(2, &["there is no job", "dcs bench"]);
}
