//! The engine on arbitrary event streams, and the fuzz target `engine` on its corpus.

#[path = "../../../../fuzz/replay.rs"]
mod replay;

use crate::rig::garbage::run;
use dcs_testkit::Random;

#[test]
fn no_event_stream_breaks_the_engine() {
    let (mut inlined, mut through) = (0, 0);
    for seed in 0..3000 {
        let mut random = Random(seed);
        let length = random.range(10, 1500) as usize;
        let data: Vec<u8> = (0..length).map(|_| random.next() as u8).collect();
        println!("seed {seed}"); // shown where an assertion fails
        let (run, went) = run(&data);
        (inlined, through) = (inlined + run, through + went);
    }
    assert!(inlined > 100, "inline entries are run: {inlined}");
    assert!(through > 100, "and some as they come: {through}");
}

#[test]
fn engine_corpus() {
    replay::replay("engine", 4_000, |data| _ = run(data));
}
