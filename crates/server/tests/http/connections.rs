//! Connections: kept, ended, refused, stopped.

use crate::rig::Rig;
use dcs_testkit::bytes as data;
use std::io::Write;

#[test]
fn requests_may_come_before_their_answers() {
    let rig = Rig::new();
    let mut client = rig.client();
    let body = data(50_000, 1);
    for number in 0..5 {
        client.send_head("PUT", &format!("/bucket/{number}"), &[], body.len());
        client.stream.write_all(&body).unwrap();
        client.send_head("GET", &format!("/bucket/{number}"), &[], 0);
    }
    for _ in 0..5 {
        assert_eq!(client.answer("PUT").status, 200);
        assert!(client.answer("GET").body == body);
    }
}

#[test]
fn what_is_no_request_is_answered_and_ended() {
    let rig = Rig::new();
    for (request, status) in [
        ("nonsense\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        (
            "PUT /bucket/key HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            400,
        ),
        ("PUT /bucket/key HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n", 501),
    ] {
        let mut client = rig.client();
        client.stream.write_all(request.as_bytes()).unwrap();
        let answer = client.answer("GET");
        assert_eq!((answer.status, answer.headers["connection"].as_str()), (status, "close"), "{request}");
        assert!(client.ended());
    }
    let mut client = rig.client();
    client
        .stream
        .write_all(format!("GET /{} HTTP/1.1\r\nHost: a\r\n", "x".repeat(40_000)).as_bytes())
        .unwrap();
    assert_eq!(client.answer("GET").status, 431);
}

#[test]
fn a_body_in_chunks_is_read_where_it_is_no_object() {
    let rig = Rig::new();
    let mut client = rig.client();
    client.ask("PUT", "/bucket/key", &[], b"x");
    let head = "POST /bucket?delete HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    let order = "<Delete><Object><Key>key</Key></Object></Delete>";
    client.stream.write_all(format!("{head}{:x}\r\n{order}\r\n0\r\n\r\n", order.len()).as_bytes()).unwrap();
    let answer = client.answer("POST");
    assert_eq!(answer.status, 411, "S3 wants to know how long it is: {}", answer.text());
}

#[test]
fn a_server_that_stops_finishes_what_it_is_at() {
    let mut rig = Rig::new();
    let body = data(1_000_000, 6);
    let mut client = rig.client();
    client.send_head("PUT", "/bucket/key", &[("Expect", "100-continue")], body.len());
    assert_eq!(client.head().status, 100, "it is at the request");
    client.stream.write_all(&body[..400_000]).unwrap();
    let rest = body[400_000..].to_vec();
    let mut stream = client.stream.try_clone().unwrap();
    let sender = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(300));
        stream.write_all(&rest).unwrap();
    });
    rig.stop();
    sender.join().unwrap();
    let put = client.answer("PUT");
    assert_eq!((put.status, put.headers["connection"].as_str()), (200, "close"));
    assert!(rig.store.object("bucket", "key").unwrap().is_some());
}
