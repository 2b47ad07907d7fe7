//! Clients that stall, drip, flood or leave: the others are served, and the server reports its health.

use crate::rig::{Client, Rig, Setting};
use dcs_testkit::bytes as data;
use std::io::Write;
use std::time::{Duration, Instant};

const MIB: usize = 1 << 20;

/// A long patience, so that only waiting for a place shortens it, to two seconds.
fn few_places() -> Rig {
    Rig::with(Setting { transfers: 4, patience: Duration::from_secs(12), ..Setting::default() })
}

/// Honest requests get the right answers while all places are held.
fn honest_are_served(rig: &Rig) {
    for round in 0..3 {
        let body = data(50_000, round);
        let mut client = rig.client();
        let target = format!("/bucket/honest{round}");
        assert_eq!(client.ask("PUT", &target, &[], &body).status, 200);
        assert!(client.ask("GET", &target, &[], b"").body == body);
    }
}

fn figure(rig: &Rig, name: &str) -> f64 {
    let text = rig.client().ask("GET", "/_dcs/metrics", &[], b"").text();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name} in {text}")).parse().unwrap()
}

/// Waits until a metric has a value.
fn until(rig: &Rig, name: &str, so: impl Fn(f64) -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !so(figure(rig, name)) {
        assert!(Instant::now() < end, "{name} is {}", figure(rig, name));
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn stalled_bodies_take_no_place_from_others() {
    let rig = few_places();
    let mut stalled: Vec<Client> = (0..40)
        .map(|_| {
            let mut client = rig.client();
            client.send_head("PUT", "/bucket/slow", &[], 900_000);
            client
        })
        .collect();
    // A head alone takes nothing.
    honest_are_served(&rig);
    assert_eq!(figure(&rig, "dcs_transfers_in_flight"), 0.0);
    assert!(rig.files().iter().all(|size| *size == 50_000), "{:?}", rig.files());
    for client in &mut stalled {
        client.stream.write_all(b"x").unwrap();
    }
    until(&rig, "dcs_transfers_waiting", |waiting| waiting > 0.0);
    assert!(figure(&rig, "dcs_transfers_longest_wait_seconds") > 0.0);
    honest_are_served(&rig);
    assert!(rig.store.object("bucket", "slow").unwrap().is_none());
}

#[test]
fn readers_that_do_not_read_take_no_place_from_others() {
    let rig = few_places();
    let body = data(64 * MIB, 5);
    assert_eq!(rig.client().ask("PUT", "/bucket/big", &[], &body).status, 200);
    let _stalled: Vec<Client> = (0..12)
        .map(|_| {
            let mut client = rig.client();
            client.send_head("GET", "/bucket/big", &[], 0);
            client
        })
        .collect();
    until(&rig, "dcs_transfers_in_flight", |transfers| transfers >= 4.0);
    honest_are_served(&rig);
    let begun = Instant::now();
    assert!(rig.client().ask("GET", "/bucket/big", &[], b"").body == body);
    assert!(begun.elapsed() < Duration::from_secs(30));
}

/// An object of parts with these data.
fn put_in_parts(client: &mut Client, key: &str, parts: &[&[u8]]) {
    let id = upload(client, key);
    let parts: String = parts
        .iter()
        .zip(1..)
        .map(|(part, number)| {
            let target = format!("/bucket/{key}?partNumber={number}&uploadId={id}");
            let put = client.ask("PUT", &target, &[], part);
            format!("<Part><PartNumber>{number}</PartNumber><ETag>{}</ETag></Part>", put.etag())
        })
        .collect();
    let order = format!("<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>");
    let target = format!("/bucket/{key}?uploadId={id}");
    assert_eq!(client.ask("POST", &target, &[], order.as_bytes()).status, 200);
}

fn upload(client: &mut Client, key: &str) -> String {
    let answer = client.ask("POST", &format!("/bucket/{key}?uploads"), &[], b"").text();
    answer.split("<UploadId>").nth(1).unwrap().split('<').next().unwrap().to_string()
}

/// Each copy of several parts is two transfers, with a pair of sockets between them.
#[test]
fn copies_wait_for_their_places_and_not_for_each_other() {
    let rig = Rig::new();
    let mut client = rig.client();
    put_in_parts(&mut client, "parts", &[&data(5 * MIB, 1), &data(MIB, 2)]);
    let id = upload(&mut client, "copies");
    let copiers: Vec<_> = (1..=80)
        .map(|number| {
            let (mut client, id) = (rig.client(), id.clone());
            client.stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
            std::thread::spawn(move || {
                // A mebibyte of each part: more than a pair of sockets holds.
                let range = format!("bytes={}-{}", 4 * MIB, 6 * MIB - 1);
                let fields =
                    [("x-amz-copy-source", "/bucket/parts"), ("x-amz-copy-source-range", range.as_str())];
                let target = format!("/bucket/copies?partNumber={number}&uploadId={id}");
                client.ask("PUT", &target, &fields, b"")
            })
        })
        .collect();
    for copier in copiers {
        let answer = copier.join().unwrap();
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    honest_are_served(&rig);
}

#[test]
fn an_object_of_many_parts_is_read_part_by_part_whatever_happens_to_it() {
    let rig = Rig::with_files();
    let mut client = rig.client();
    let parts: Vec<_> = (0..8).map(|seed| data(5 * MIB, seed)).collect();
    let all: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
    put_in_parts(&mut client, "parts", &all);
    let mut reader = rig.client();
    reader.send_head("GET", "/bucket/parts", &[], 0);
    assert_eq!(reader.head().status, 200);
    let open = || {
        let links = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        let data = rig.folder.path().join("data");
        let of_data = |link: &std::path::PathBuf| link.starts_with(&data);
        links.filter_map(|link| std::fs::read_link(link.path()).ok()).filter(of_data).count()
    };
    // The file, and the engine's own descriptor of it.
    assert!(open() <= 4, "{} files are open", open());
    // The files stay until they have been read, though no new reader can open them.
    assert_eq!(client.ask("PUT", "/bucket/parts", &[], b"new").status, 200);
    let mut body = Vec::new();
    reader.body(40 * MIB, &mut body);
    assert!(body == parts.concat());
    drop(reader);
    rig.has_files(&[3]);
}

#[test]
fn a_form_is_refused_before_it_is_read_and_an_order_has_to_come_in_time() {
    let rig = Rig::new();
    let mut form = rig.client();
    let fields = [("Content-Type", "multipart/form-data; boundary=x")];
    form.send_head("POST", "/bucket", &fields, 60_000);
    assert_eq!(form.answer("POST").status, 501);
    assert!(form.ended(), "what is left of it is waited for no longer than for a head");
    // The rig sets this to two seconds.
    let mut order = rig.client();
    order.send_head("POST", "/bucket?delete", &[("Content-MD5", "1B2M2Y8AsgTpgAmY7PhCfg==")], 1000);
    order.stream.write_all(b"<Delete>").unwrap();
    let answer = order.answer("POST");
    assert!(answer.status == 400 && answer.text().contains("RequestTimeout"), "{}", answer.text());
    assert!(order.ended());
}

#[test]
fn who_has_had_an_answer_gives_way_with_what_is_left_of_its_body() {
    let head_timeout = Duration::from_secs(300);
    let rig = Rig::with(Setting { connections: 3, head_timeout, ..Setting::default() });
    let mut forms = [rig.client(), rig.client(), rig.client()];
    for form in &mut forms {
        form.send_head("POST", "/bucket", &[("Content-Type", "multipart/form-data; boundary=x")], 60_000);
        assert_eq!(form.answer("POST").status, 501);
    }
    assert_eq!(rig.client().ask("HEAD", "/bucket", &[], b"").status, 200);
}

#[test]
fn who_has_no_request_gives_way_to_who_has_one() {
    let rig = Rig::with(Setting { connections: 4, ..Setting::default() });
    // One is served, three wait: one for a first request, one for a second, one for the rest of a head.
    let mut working = rig.client();
    working.send_head("PUT", "/bucket/key", &[], 10);
    working.stream.write_all(b"12345").unwrap();
    let mut idle = [rig.client(), rig.client(), rig.client()];
    assert_eq!(idle[1].ask("HEAD", "/bucket", &[], b"").status, 200);
    idle[2].stream.write_all(b"GET /bucket HTTP/1.1\r\n").unwrap();
    for _ in 0..6 {
        assert_eq!(rig.client().ask("HEAD", "/bucket", &[], b"").status, 200);
    }
    let mut kept = [rig.client(), rig.client(), rig.client()];
    for client in &mut kept {
        assert_eq!(client.ask("HEAD", "/bucket", &[], b"").status, 200);
    }
    assert!(idle.iter_mut().all(Client::ended), "all that waited have given way");
    working.stream.write_all(b"67890").unwrap();
    assert_eq!(working.answer("PUT").status, 200);
}

#[test]
fn a_server_stops_though_all_its_connections_are_taken() {
    let mut rig = Rig::with(Setting { connections: 2, ..Setting::default() });
    let mut working = [rig.client(), rig.client()];
    for client in &mut working {
        client.send_head("PUT", "/bucket/key", &[("Expect", "100-continue")], 10);
        assert_eq!(client.head().status, 100, "it is at the request");
        client.stream.write_all(b"12345").unwrap();
    }
    let mut waiting = rig.client();
    waiting.send_head("HEAD", "/bucket", &[], 0);
    let ends = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_secs(1));
        working.map(|mut client| {
            client.stream.write_all(b"67890").unwrap();
            client.answer("PUT").status
        })
    });
    rig.stop();
    assert_eq!(ends.join().unwrap(), [200, 200]);
}

#[test]
fn a_body_that_is_announced_gets_no_room_before_it_comes() {
    let rig = Rig::new();
    let mut client = rig.client();
    client.send_head("PUT", "/bucket/huge", &[("Expect", "100-continue")], 1 << 30);
    assert_eq!(client.head().status, 100, "the server is at it");
    assert_eq!(rig.files(), [0; 0]);
    client.stream.write_all(b"x").unwrap();
    let end = Instant::now() + Duration::from_secs(10);
    while rig.files().is_empty() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(rig.files().len(), 1);
    std::thread::sleep(Duration::from_millis(300));
    assert!(rig.allocated() <= 66 << 20, "{}", rig.allocated());
}

#[test]
fn a_store_whose_thread_has_ended_is_not_well() {
    let rig = Rig::new();
    assert_eq!(rig.client().ask("GET", "/_dcs/health", &[], b"").status, 200);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let change = rig.store.change_bucket("bucket", |_| panic!("for the test"));
    assert!(runtime.block_on(change).is_err());
    let end = Instant::now() + Duration::from_secs(10);
    loop {
        let health = rig.client().ask("GET", "/_dcs/health", &[], b"");
        if health.status == 503 {
            assert!(health.text().contains("takes no changes"), "{}", health.text());
            return;
        }
        assert!(Instant::now() < end, "{}", health.text());
    }
}
