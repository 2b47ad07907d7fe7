//! `dcs card`.

use crate::run::Place;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[test]
fn a_card_is_served_until_it_is_interrupted() {
    let place = Place::new();
    let mut card = place.dcs("card socket --json").stdout(Stdio::piped()).spawn().unwrap();
    let end = Instant::now() + Duration::from_secs(20);
    while UnixStream::connect(place.path("socket")).is_err() {
        assert!(Instant::now() < end, "nobody listens");
        std::thread::sleep(Duration::from_millis(20));
    }
    let killed = Command::new("kill").args(["-INT", &card.id().to_string()]).status().unwrap();
    assert!(killed.success());
    assert_eq!(card.wait().unwrap().code(), Some(130));
    assert!(!place.path("socket").exists(), "it leaves nothing");
    place.run("card socket --memory 3MiB").fails(2, &["power of two"]);
}

#[test]
fn each_function_of_a_card_has_a_socket() {
    let place = Place::new();
    let mut card = place.dcs("card f0 f1 f2 --weights 2,1,1 --json").stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(card.stdout.take().unwrap()).lines();
    for function in 0..3 {
        let line: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        assert_eq!((&line["function"], &line["event"]), (&function.into(), &"listening".into()));
        assert!(line["socket"].as_str().unwrap().ends_with(&format!("f{function}")), "{line}");
        UnixStream::connect(place.path(&format!("f{function}"))).unwrap();
    }
    // Another card cannot have one of them, and leaves none of its own.
    place.run("card new f1").fails(1, &["f1: Address already in use"]);
    place.run("card new new").fails(1, &["new: Address already in use"]);
    assert!(!place.path("new").exists() && place.path("f1").exists());
    let killed = Command::new("kill").args(["-TERM", &card.id().to_string()]).status().unwrap();
    assert!(killed.success());
    card.wait().unwrap();
    assert!((0..3).all(|function| !place.path(&format!("f{function}")).exists()), "it leaves nothing");
    place.run("card a b --weights 2").fails(2, &["1 of them, and 2 sockets", "a weight for each"]);
    place.run("card a b --weights 2,1 --engine rtl").fails(2, &["rtl"]);
    let sockets: String = (0..64).map(|at| format!(" s{at}")).collect();
    place.run(&format!("card{sockets}")).fails(1, &["do not fit", "--memory 32MiB"]);
    place.run(&format!("card s64{sockets}")).fails(1, &["1 to 64", "give fewer sockets"]);
    assert!(!place.path("s0").exists());
}
