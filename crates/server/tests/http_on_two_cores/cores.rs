//! Behaviour of several cores: connections are spread over all of them, and limits, metrics and order apply to all
//! together.

use crate::rig::{Client, Rig, Setting};
use dcs_testkit::bytes as data;
use std::time::Duration;

/// Makes clients that wait for their requests, on one core and the other in turn.
fn clients(rig: &Rig, count: usize) -> Vec<Client> {
    let mut clients: Vec<Client> = (0..count).map(|_| rig.client()).collect();
    // A connection is on its core once it has had an answer.
    for client in &mut clients {
        assert_eq!(client.ask("HEAD", "/bucket", &[], b"").status, 200);
    }
    clients
}

/// Begins a PUT of two bytes, and sends the first.
fn begin_put(client: &mut Client, target: &str) {
    client.send_head("PUT", target, &[("Expect", "100-continue")], 2);
    assert_eq!(client.head().status, 100);
    client.stream_write(b"1");
}

impl Client {
    fn stream_write(&mut self, bytes: &[u8]) {
        std::io::Write::write_all(&mut self.stream, bytes).unwrap();
    }
}

fn metric(rig: &Rig, series: &str) -> f64 {
    let text = rig.client().ask("GET", "/_dcs/metrics", &[], b"").text();
    let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{series} in {text}")).parse().unwrap()
}

#[test]
fn connections_are_on_all_cores_and_figures_of_all() {
    let rig = Rig::new();
    let mut clients = clients(&rig, 8);
    for (at, client) in clients.iter_mut().enumerate() {
        let body = data(300_000 + at, at as u64);
        assert_eq!(client.ask("PUT", &format!("/bucket/{at}"), &[], &body).status, 200);
    }
    // The other core reads what one core has put.
    for (at, client) in clients.iter_mut().rev().enumerate() {
        let answer = client.ask("GET", &format!("/bucket/{at}"), &[], b"");
        assert!(answer.status == 200 && answer.body == data(300_000 + at, at as u64), "{at}");
    }
    // A client has the last byte before its transfer is counted.
    let each = || rig.paths.iter().map(|path| path.statistics().completed).collect::<Vec<u64>>();
    let gets = || metric(&rig, r#"dcs_transfer_duration_seconds_count{direction="get"}"#);
    let until = std::time::Instant::now() + Duration::from_secs(10);
    while (each().iter().any(|completed| *completed < 8) || gets() < 8.0) && std::time::Instant::now() < until
    {
        std::thread::sleep(Duration::from_millis(5));
    }
    let each = each();
    assert!(each.len() == 2 && each.iter().all(|completed| *completed >= 8), "{each:?}");
    assert_eq!(metric(&rig, r#"dcs_transfer_duration_seconds_count{direction="put"}"#), 8.0);
    assert_eq!(gets(), 8.0);
    assert!(metric(&rig, "dcs_connections_open") >= 9.0);
}

#[test]
fn transfers_are_as_many_as_there_may_be_on_all_cores() {
    let rig = Rig::with(Setting { transfers: 2, ..Setting::default() });
    let mut clients = clients(&rig, 3);
    begin_put(&mut clients[0], "/bucket/first");
    begin_put(&mut clients[1], "/bucket/second");
    assert_eq!(metric(&rig, "dcs_transfers_max"), 2.0);
    let in_flight = || rig.paths.iter().map(|path| path.statistics().transfers).sum::<usize>();
    let until = std::time::Instant::now() + Duration::from_secs(10);
    while in_flight() < 2 && std::time::Instant::now() < until {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(in_flight(), 2, "one on each core");
    begin_put(&mut clients[2], "/bucket/third");
    while metric(&rig, "dcs_transfers_waiting") < 1.0 && std::time::Instant::now() < until {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(metric(&rig, "dcs_transfers_waiting"), 1.0, "its core has room, and it waits all the same");
    for client in [1, 0, 2] {
        clients[client].stream_write(b"2");
    }
    for client in &mut clients {
        assert_eq!(client.answer("PUT").status, 200);
    }
    assert_eq!(metric(&rig, "dcs_transfers_waiting"), 0.0);
}

#[test]
fn the_connection_that_has_waited_longest_gives_way_on_whichever_core_it_is() {
    let rig = Rig::with(Setting { connections: 3, ..Setting::default() });
    let mut old = clients(&rig, 3);
    std::thread::sleep(Duration::from_millis(1100));
    // The second is the oldest of all that wait: the others have sent a request since.
    for client in [2, 0] {
        assert_eq!(old[client].ask("HEAD", "/bucket", &[], b"").status, 200);
    }
    let mut new = rig.client();
    assert_eq!(new.ask("HEAD", "/bucket", &[], b"").status, 200);
    assert!(old[1].ended(), "it has waited longest");
    for client in [0, 2] {
        assert_eq!(old[client].ask("HEAD", "/bucket", &[], b"").status, 200, "{client}");
    }
}

#[test]
fn answers_under_way_on_all_cores_are_finished_at_a_stop() {
    let mut rig = Rig::new();
    let mut clients = clients(&rig, 4);
    for (at, client) in clients.iter_mut().enumerate() {
        begin_put(client, &format!("/bucket/{at}"));
    }
    let store = rig.store.clone();
    let finish = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(200));
        clients.iter_mut().for_each(|client| client.stream_write(b"2"));
        clients.iter_mut().map(|client| client.answer("PUT").status).collect::<Vec<_>>()
    });
    rig.stop();
    assert_eq!(finish.join().unwrap(), [200; 4]);
    assert_eq!(store.usage().unwrap().objects, 4);
}

#[test]
fn one_key_from_all_cores_at_once_is_one_of_the_objects_and_whole() {
    let rig = Rig::new();
    let bodies: Vec<Vec<u8>> = (0..8).map(|at| data(70_000 + at, at as u64)).collect();
    let mut clients = clients(&rig, 8);
    for _ in 0..5 {
        std::thread::scope(|scope| {
            for (client, body) in clients.iter_mut().zip(&bodies) {
                scope.spawn(move || assert_eq!(client.ask("PUT", "/bucket/key", &[], body).status, 200));
            }
        });
        let answer = clients[0].ask("GET", "/bucket/key", &[], b"");
        assert!(answer.status == 200 && bodies.contains(&answer.body));
    }
    let last = clients[3].ask("GET", "/bucket/key", &[], b"").body.len() as u64;
    rig.has_files(&[last]);
}
