//! `dcs card`.

use crate::run::Place;
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
