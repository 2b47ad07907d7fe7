//! Bodies: checked, cut, in S3's framing, behind 100-continue.

use crate::rig::{Rig, Setting};
use crate::signer::{ask_with, signer};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use dcs::page_cache;
use dcs_server::store::{Durability, PACK_DEFAULT};
use dcs_testkit::bytes as data;
use md5::{Digest, Md5};
use std::io::Write;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

#[test]
fn a_body_that_is_not_what_was_announced_leaves_nothing() {
    let rig = Rig::new();
    let body = data(100_000, 1);
    let wrong_md5 = BASE64.encode(Md5::digest(b"other"));
    let wrong_sha256 = "5a".repeat(32);
    let cases = [
        ("Content-MD5", wrong_md5.as_str(), "BadDigest"),
        ("Content-MD5", "short", "InvalidDigest"),
        ("x-amz-content-sha256", wrong_sha256.as_str(), "XAmzContentSHA256Mismatch"),
        ("x-amz-checksum-crc32c", "AAAAAA==", "BadDigest"),
        ("x-amz-checksum-sha1", "AAAAAA==", "InvalidRequest"),
    ];
    let mut client = rig.client();
    for (name, value, code) in cases {
        let put = client.ask("PUT", "/bucket/key", &[(name, value)], &body);
        assert!(put.status == 400 && put.text().contains(code), "{name}: {}", put.text());
        if put.headers.contains_key("connection") {
            client = rig.client();
        }
    }
    rig.has_files(&[]);
    assert_eq!(client.ask("GET", "/bucket/key", &[], b"").status, 404);
    let right = BASE64.encode(Md5::digest(&body));
    assert_eq!(client.ask("PUT", "/bucket/key", &[("Content-MD5", &right)], &body).status, 200);
}

#[test]
fn an_order_that_is_not_what_was_announced_is_not_carried_out() {
    let rig = Rig::new();
    let mut client = rig.client();
    client.ask("PUT", "/bucket/key", &[], b"x");
    let order = b"<Delete><Object><Key>key</Key></Object></Delete>";
    let wrong_md5 = BASE64.encode(Md5::digest(b"other"));
    for (name, value, code) in [
        ("Content-MD5", wrong_md5.as_str(), "BadDigest"),
        ("Content-MD5", "short", "InvalidDigest"),
        ("x-amz-checksum-crc32", "AAAAAA==", "BadDigest"),
        ("x-amz-checksum-crc32", "short", "InvalidRequest"),
    ] {
        let answer = rig.client().ask("POST", "/bucket?delete", &[(name, value)], order);
        assert!(answer.status == 400 && answer.text().contains(code), "{name}: {}", answer.text());
    }
    // The server does not wait for the body of this one.
    let mut long = rig.client();
    long.send_head("POST", "/bucket?delete", &[], 9 << 20);
    let answer = long.answer("POST");
    assert!(answer.status == 400 && answer.text().contains("MaxMessageLengthExceeded"), "{}", answer.text());
    // The order that was signed, and one of the same length that was not.
    let tester = signer("tester");
    let other = b"<Delete><Object><Key>yek</Key></Object></Delete>";
    let fields = tester.sign("POST", "/bucket?delete", &[], other);
    let answer = ask_with(&mut rig.client(), "POST", "/bucket?delete", &fields, order);
    assert!(answer.status == 400 && answer.text().contains("XAmzContentSHA256Mismatch"), "{}", answer.text());
    assert_eq!(client.ask("GET", "/bucket/key", &[], b"").body, b"x");
    let right = BASE64.encode(Md5::digest(order));
    let fields = tester.sign("POST", "/bucket?delete", &[("Content-MD5", &right)], order);
    let answer = ask_with(&mut client, "POST", "/bucket?delete", &fields, order);
    assert!(answer.status == 200 && answer.text().contains("<Deleted>"), "{}", answer.text());
    assert_eq!(client.ask("GET", "/bucket/key", &[], b"").status, 404);
    let tagging = b"<Tagging><TagSet><Tag><Key>a</Key><Value>b</Value></Tag></TagSet></Tagging>";
    let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Nvme, tagging).to_be_bytes();
    let fields = [("x-amz-checksum-crc64nvme", BASE64.encode(crc))];
    let fields = fields.each_ref().map(|(name, value)| (*name, value.as_str()));
    assert_eq!(client.ask("PUT", "/bucket?tagging", &fields, tagging).status, 200);
}

/// Nothing would compare the checksum in its trailer.
#[test]
fn an_order_in_s3_s_framing_is_refused() {
    let rig = Rig::new();
    let mut client = rig.client();
    client.ask("PUT", "/bucket/key", &[], b"x");
    let order = "<Delete><Object><Key>key</Key></Object></Delete>";
    let framed = format!("{:x}\r\n{order}\r\n0\r\nx-amz-checksum-crc32:AAAAAA==\r\n\r\n", order.len());
    let length = order.len().to_string();
    let fields =
        [("x-amz-decoded-content-length", length.as_str()), ("x-amz-trailer", "x-amz-checksum-crc32")];
    let payload = "STREAMING-UNSIGNED-PAYLOAD-TRAILER";
    let fields = signer("tester").sign_payload("POST", "/bucket?delete", &fields, payload, &[]);
    let answer = ask_with(&mut client, "POST", "/bucket?delete", &fields, framed.as_bytes());
    assert!(answer.status == 501 && answer.text().contains("NotImplemented"), "{}", answer.text());
    assert_eq!(rig.client().ask("GET", "/bucket/key", &[], b"").body, b"x");
}

#[test]
fn a_deletion_of_too_many_is_refused_before_all_of_it_has_come() {
    let rig = Rig::new();
    let mut client = rig.client();
    client.send_head("POST", "/bucket?delete", &[], 8_000_000);
    let order = format!("<Delete>{}", "<Object><Key>a</Key></Object>".repeat(4000));
    client.stream.write_all(order.as_bytes()).unwrap();
    let answer = client.answer("POST");
    assert!(answer.status == 400 && answer.text().contains("MalformedXML"), "{}", answer.text());
    // As many as allowed, each with everything that S3 permits.
    let mut client = rig.client();
    for (number, status) in [(1000, 200), (1001, 400)] {
        let object = "<Object><Key>a</Key><VersionId>null</VersionId><ETag>b</ETag></Object>";
        let order =
            format!("<?xml version=\"1.0\"?><Delete>{}<Quiet>true</Quiet></Delete>", object.repeat(number));
        let answer = client.ask("POST", "/bucket?delete", &[], order.as_bytes());
        assert_eq!(answer.status, status, "{number}: {}", answer.text());
    }
}

#[test]
fn keys_that_no_object_has_are_not_deleted() {
    let rig = Rig::new();
    let mut client = rig.client();
    client.ask("PUT", "/bucket/key", &[], b"x");
    let order = |key: &str| {
        format!("<Delete><Object><Key>{key}</Key></Object><Object><Key>key</Key></Object></Delete>")
    };
    for bad in
        [order(""), "<Delete></Delete>".to_string(), "<Delete><Quiet>true</Quiet></Delete>".to_string()]
    {
        let answer = client.ask("POST", "/bucket?delete", &[], bad.as_bytes());
        assert!(answer.status == 400 && answer.text().contains("MalformedXML"), "{bad}: {}", answer.text());
    }
    assert_eq!(client.ask("GET", "/bucket/key", &[], b"").body, b"x");
    let long = "ü".repeat(512);
    let answer = client.ask("POST", "/bucket?delete", &[], order(&format!("{long}a")).as_bytes()).text();
    let error = format!("<Error><Code>KeyTooLongError</Code><Key>{long}a</Key>");
    assert!(answer.contains(&error) && answer.contains("<Deleted><Key>key</Key></Deleted>"), "{answer}");
    let answer = client.ask("POST", "/bucket?delete", &[], order(&long).as_bytes()).text();
    assert!(answer.contains(&format!("<Deleted><Key>{long}</Key></Deleted>")), "{answer}");
}

#[test]
fn a_checksum_is_announced_once() {
    let rig = Rig::new();
    let framed = b"5\r\nhello\r\n0\r\nx-amz-checksum-crc32:AAAAAA==\r\n\r\n";
    let crc32c = BASE64.encode([0x9a, 0x71, 0xbb, 0x4c]);
    let fields = [
        ("x-amz-content-sha256", "STREAMING-UNSIGNED-PAYLOAD-TRAILER"),
        ("x-amz-decoded-content-length", "5"),
        ("x-amz-trailer", "x-amz-checksum-crc32"),
        ("x-amz-checksum-crc32c", crc32c.as_str()),
    ];
    let put = rig.client().ask("PUT", "/bucket/key", &fields, framed);
    assert!(put.status == 400 && put.text().contains("not both"), "{}", put.text());
    // No trailer follows this one.
    let put = rig.client().ask("PUT", "/bucket/key", &fields[2..3], b"hello");
    assert!(put.status == 400 && put.text().contains("x-amz-trailer"), "{}", put.text());
    assert_eq!(rig.client().ask("GET", "/bucket/key", &[], b"").status, 404);
}

#[test]
fn a_body_that_ends_early_leaves_the_old_object() {
    let rig = Rig::with_files();
    let mut client = rig.client();
    client.ask("PUT", "/bucket/key", &[], b"old");
    client.send_head("PUT", "/bucket/key", &[], 1_000_000);
    client.stream.write_all(&data(500_000, 2)).unwrap();
    client.stream.shutdown(std::net::Shutdown::Write).unwrap();
    let put = client.answer("PUT");
    assert!(put.status == 400 && put.text().contains("IncompleteBody"), "{} {}", put.status, put.text());
    assert_eq!(rig.client().ask("GET", "/bucket/key", &[], b"").body, b"old");
    rig.has_files(&[3]);
}

#[test]
fn a_client_that_waits_is_told_to_go_on() {
    let rig = Rig::new();
    let mut client = rig.client();
    client.send_head("PUT", "/bucket/key", &[("Expect", "100-continue")], 5);
    assert_eq!(client.answer("PUT").status, 100);
    client.stream.write_all(b"hello").unwrap();
    assert_eq!(client.answer("PUT").status, 200);
    // The request is refused before the body comes.
    client.send_head("PUT", "/nothing/key", &[("Expect", "100-continue")], 5);
    let refused = client.answer("PUT");
    assert_eq!((refused.status, refused.headers["connection"].as_str()), (404, "close"));
    assert!(client.ended());
}

#[test]
fn s3_s_framing_is_taken_off() {
    let rig = Rig::new();
    let mut client = rig.client();
    let body = data(300_000, 3);
    let mut framed = Vec::new();
    for chunk in body.chunks(65_536) {
        framed.extend(format!("{:x}\r\n", chunk.len()).into_bytes());
        framed.extend(chunk);
        framed.extend(b"\r\n");
    }
    let with = |checksum: &str| {
        let mut framed = framed.clone();
        framed.extend(format!("0\r\nx-amz-checksum-crc32:{checksum}\r\n\r\n").into_bytes());
        framed
    };
    let length = body.len().to_string();
    let fields = [
        ("x-amz-content-sha256", "STREAMING-UNSIGNED-PAYLOAD-TRAILER"),
        ("x-amz-decoded-content-length", length.as_str()),
        ("x-amz-trailer", "x-amz-checksum-crc32"),
        ("Content-Encoding", "aws-chunked"),
    ];
    let crc =
        BASE64.encode((crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32IsoHdlc, &body) as u32).to_be_bytes());
    let put = client.ask("PUT", "/bucket/key", &fields, &with(&crc));
    assert_eq!(
        (put.status, put.headers["x-amz-checksum-crc32"].as_str()),
        (200, crc.as_str()),
        "{}",
        put.text()
    );
    let got = client.ask("GET", "/bucket/key", &[("x-amz-checksum-mode", "ENABLED")], b"");
    assert!(got.body == body && got.headers["x-amz-checksum-crc32"] == crc);
    assert!(!got.headers.contains_key("content-encoding"));
    let put = client.ask("PUT", "/bucket/key", &fields, &with("AAAAAA=="));
    assert!(put.status == 400 && put.text().contains("BadDigest"), "{}", put.text());
    let put = rig.client().ask("PUT", "/bucket/key", &fields, &with("no checksum"));
    assert_eq!(put.status, 400, "{}", put.text());
    assert!(rig.client().ask("GET", "/bucket/key", &[], b"").body == body, "the object is the old one");
}

#[test]
fn a_client_that_dawdles_is_given_up() {
    let rig = Rig::with(Setting { idle: Duration::from_secs(1), ..Default::default() });
    let mut client = rig.client();
    let begun = Instant::now();
    assert!(client.ended(), "one that says nothing");
    let mut client = rig.client();
    client.stream.write_all(b"GET / HTTP/1.1\r\nHost").unwrap();
    assert!(client.ended(), "one that says half a word");
    assert!(begun.elapsed() < Duration::from_secs(10));
}

/// Pages of a file that are in memory and not on the disk.
fn not_on_disk(path: &std::path::Path) -> u64 {
    page_cache::counts(std::fs::File::open(path).unwrap().as_fd(), 0, u64::MAX).unwrap().unwritten
}

#[test]
fn what_is_answered_for_is_on_the_disk() {
    for pack in [0, PACK_DEFAULT] {
        is_on_the_disk(pack);
    }
}

fn is_on_the_disk(pack: u64) {
    let rig = Rig::with(Setting { durability: Durability::Full, pack, ..Default::default() });
    let probe = rig.folder.path().join("lost+found");
    std::fs::write(&probe, [1; 100_000]).unwrap();
    let probe = std::fs::File::open(&probe).unwrap();
    probe.sync_all().unwrap();
    if page_cache::counts(probe.as_fd(), 0, 1).is_err() {
        return println!("skipped: this kernel has no cachestat(2)");
    }
    if page_cache::forget(probe.as_fd(), 0, 100_000).unwrap() > 0 {
        return println!("skipped: files here are in memory and nowhere else");
    }
    let mut client = rig.client();
    let database = rig.folder.path().join("meta.redb");
    for (number, length) in [1, 4096, 300_000, 1 << 20, 3_000_001].into_iter().enumerate() {
        let key = format!("/bucket/key{number}");
        assert_eq!(client.ask("PUT", &key, &[], &data(length, 1)).status, 200);
        assert_eq!(not_on_disk(&database), 0, "records, of {length} bytes");
        let object = rig.store.object("bucket", &key[8..]).unwrap().unwrap();
        let id = object.segments[0].id;
        if object.segments[0].is_packed() {
            continue;
        }
        let path = rig.folder.path().join(format!("data/{:x}/{id:016x}", id >> 10));
        assert_eq!(not_on_disk(&path), 0, "data, of {length} bytes");
    }
}
