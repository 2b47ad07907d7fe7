//! Multipart uploads.

use crate::rig::{Client, Rig};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use dcs_testkit::bytes as data;
use md5::{Digest, Md5};

const PART: usize = 5 << 20;

fn begin(client: &mut Client, fields: &[(&str, &str)]) -> String {
    let begun = client.ask("POST", "/bucket/key?uploads", fields, b"");
    assert_eq!(begun.status, 200, "{}", begun.text());
    let text = begun.text();
    text.split("<UploadId>").nth(1).unwrap().split('<').next().unwrap().to_string()
}

fn complete(client: &mut Client, id: &str, parts: &[(u16, &str)]) -> crate::rig::Answer {
    let parts: String = parts
        .iter()
        .map(|(number, etag)| {
            format!("<Part><PartNumber>{number}</PartNumber><ETag>\"{etag}\"</ETag></Part>")
        })
        .collect();
    let order = format!("<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>");
    client.ask("POST", &format!("/bucket/key?uploadId={id}"), &[], order.as_bytes())
}

#[test]
fn parts_make_an_object() {
    let rig = Rig::new();
    let mut client = rig.client();
    let id = begin(&mut client, &[("x-amz-meta-colour", "blue")]);
    let body = data(2 * PART + 1234, 3);
    let mut parts = Vec::new();
    for (at, part) in body.chunks(PART).enumerate() {
        let put = client.ask("PUT", &format!("/bucket/key?partNumber={}&uploadId={id}", at + 1), &[], part);
        assert_eq!(put.status, 200, "{}", put.text());
        parts.push((at as u16 + 1, put.etag().to_string()));
    }
    // A part that is put again, and one that is not named, leave nothing.
    let again = client.ask("PUT", &format!("/bucket/key?partNumber=3&uploadId={id}"), &[], &body[2 * PART..]);
    assert_eq!(again.status, 200);
    client.ask("PUT", &format!("/bucket/key?partNumber=9&uploadId={id}"), &[], b"not named");
    let listed = client.ask("GET", &format!("/bucket/key?uploadId={id}"), &[], b"").text();
    assert_eq!(listed.matches("<PartNumber>").count(), 4, "{listed}");
    assert!(client.ask("GET", "/bucket?uploads", &[], b"").text().contains(&id));
    assert_eq!(client.ask("GET", "/bucket/key", &[], b"").status, 404, "not before it is complete");
    let named: Vec<(u16, &str)> = parts.iter().map(|(number, etag)| (*number, etag.as_str())).collect();
    let done = complete(&mut client, &id, &named);
    let mut md5 = Md5::new();
    body.chunks(PART).for_each(|part| md5.update(Md5::digest(part)));
    let expected = dcs_testkit::hex(&md5.finalize());
    assert!(done.status == 200 && done.text().contains(&format!("{expected}-3")), "{}", done.text());
    let got = client.ask("GET", "/bucket/key", &[], b"");
    assert!(got.body == body && got.headers["x-amz-meta-colour"] == "blue");
    let across = format!("bytes={}-{}", PART - 10, 2 * PART + 9);
    let got = client.ask("GET", "/bucket/key", &[("Range", &across)], b"");
    assert!(got.status == 206 && got.body == body[PART - 10..2 * PART + 10]);
    let got = client.ask("GET", "/bucket/key?partNumber=2", &[], b"");
    assert!(got.status == 206 && got.body == body[PART..2 * PART]);
    rig.has_files(&[1234, PART as u64, PART as u64]);
    let copied = client.ask("PUT", "/bucket/copy", &[("x-amz-copy-source", "/bucket/key")], b"");
    assert_eq!(copied.status, 200, "{}", copied.text());
    assert!(client.ask("GET", "/bucket/copy", &[], b"").body == body);
    // A copy of many files ends at a damaged one, and removes what it had written.
    let object = rig.store.object("bucket", "key").unwrap().unwrap();
    let id = object.segments[1].id;
    let path = rig.folder.path().join(format!("data/{:x}/{id:016x}", id >> 10));
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[PART / 2] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let copied = client.ask("PUT", "/bucket/other", &[("x-amz-copy-source", "/bucket/key")], b"");
    assert_eq!(copied.status, 500, "{}", copied.text());
    rig.has_files(&[1234, PART as u64, PART as u64, body.len() as u64]);
    let got = client.ask("GET", "/bucket/key", &[], b"");
    assert!(got.status == 500 && got.text().contains("kept from readers"), "{}", got.text());
}

#[test]
fn what_does_not_fit_is_refused() {
    let rig = Rig::new();
    let mut client = rig.client();
    let id = begin(&mut client, &[]);
    let small = client.ask("PUT", &format!("/bucket/key?partNumber=1&uploadId={id}"), &[], b"small");
    let small = small.etag().to_string();
    let other = client.ask("PUT", &format!("/bucket/key?partNumber=2&uploadId={id}"), &[], b"other");
    let other = other.etag().to_string();
    let refused = |client: &mut Client, parts: &[(u16, &str)], code: &str| {
        let answer = complete(client, &id, parts);
        assert!(answer.status == 400 && answer.text().contains(code), "{code}: {}", answer.text());
    };
    refused(&mut client, &[(1, &small), (2, &other)], "EntityTooSmall");
    refused(&mut client, &[(2, &other), (1, &small)], "InvalidPartOrder");
    refused(&mut client, &[(1, &other)], "InvalidPart");
    refused(&mut client, &[(3, &small)], "InvalidPart");
    assert_eq!(client.ask("PUT", "/bucket/key?partNumber=1&uploadId=none", &[], b"x").status, 404);
    assert_eq!(client.ask("DELETE", &format!("/bucket/key?uploadId={id}"), &[], b"").status, 204);
    assert_eq!(complete(&mut client, &id, &[(1, &small)]).status, 404);
    rig.has_files(&[]);
}

#[test]
fn parts_are_copied_from_objects() {
    let rig = Rig::new();
    let mut client = rig.client();
    let body = data(PART + 100, 5);
    client.ask("PUT", "/bucket/source", &[], &body);
    let id = begin(&mut client, &[]);
    let first = format!("bytes=0-{}", PART - 1);
    let mut etags = Vec::new();
    for (number, range) in [(1, first.as_str()), (2, "bytes=100-199")] {
        let fields = [("x-amz-copy-source", "/bucket/source"), ("x-amz-copy-source-range", range)];
        let copied =
            client.ask("PUT", &format!("/bucket/key?partNumber={number}&uploadId={id}"), &fields, b"");
        let text = copied.text();
        assert_eq!(copied.status, 200, "{text}");
        let etag = text.split("<ETag>").nth(1).unwrap().split('<').next().unwrap();
        etags.push(etag.replace("&quot;", "").replace('"', ""));
    }
    let done = complete(&mut client, &id, &[(1, &etags[0]), (2, &etags[1])]);
    assert_eq!(done.status, 200, "{}", done.text());
    let got = client.ask("GET", "/bucket/key", &[], b"").body;
    assert!(got == [&body[..PART], &body[100..200]].concat());
}

#[test]
fn a_completion_that_is_asked_for_again_is_answered_again() {
    let rig = Rig::new();
    let mut client = rig.client();
    let begin = |client: &mut crate::rig::Client| {
        let begun = client.ask("POST", "/bucket/key?uploads", &[], b"").text();
        let id = begun.split("<UploadId>").nth(1).unwrap().split('<').next().unwrap().to_string();
        let part = client.ask("PUT", &format!("/bucket/key?partNumber=1&uploadId={id}"), &[], b"data");
        (id, part.etag().to_string())
    };
    let complete = |client: &mut crate::rig::Client, id: &str, etag: &str| {
        let part = format!("<Part><PartNumber>1</PartNumber><ETag>{etag}</ETag></Part>");
        let order = format!("<CompleteMultipartUpload>{part}</CompleteMultipartUpload>");
        let done = client.ask("POST", &format!("/bucket/key?uploadId={id}"), &[], order.as_bytes());
        (
            done.status,
            done.text().split("<ETag>").nth(1).map(|rest| rest.split('<').next().unwrap().to_string()),
        )
    };
    let (id, etag) = begin(&mut client);
    let first = complete(&mut client, &id, &etag);
    assert!(first.0 == 200 && first.1.is_some());
    assert_eq!(complete(&mut client, &id, &etag), first, "the answer was lost on the way");
    assert_eq!(complete(&mut client, &id, &"0".repeat(32)).0, 404, "of other parts");
    let other = if id.ends_with('0') { '1' } else { '0' };
    let wrong_id = format!("{}{other}", &id[..id.len() - 1]);
    assert_eq!(complete(&mut client, &wrong_id, &etag).0, 404, "of another upload");
    // Other objects with the same data, by another upload and then by a put: the first upload made neither.
    let (second, _) = begin(&mut client);
    assert_eq!(complete(&mut client, &second, &etag).0, 200);
    assert_eq!(complete(&mut client, &id, &etag).0, 404);
    client.ask("PUT", "/bucket/key", &[], b"data");
    assert_eq!(complete(&mut client, &second, &etag).0, 404);
}

#[test]
fn a_checksum_of_parts_says_of_how_many() {
    let rig = Rig::new();
    let mut client = rig.client();
    for (algorithm, kind, count) in
        [("SHA256", "COMPOSITE", "-2"), ("CRC32", "COMPOSITE", "-2"), ("CRC64NVME", "FULL_OBJECT", "")]
    {
        let begin = [("x-amz-checksum-algorithm", algorithm), ("x-amz-checksum-type", kind)];
        let begun = client.ask("POST", "/bucket/key?uploads", &begin, b"").text();
        let id = begun.split("<UploadId>").nth(1).unwrap().split('<').next().unwrap().to_string();
        let header = format!("x-amz-checksum-{}", algorithm.to_lowercase());
        let (mut order, mut of_parts) = (String::new(), Vec::new());
        for number in [1, 2] {
            let body = data(if number == 1 { 5 << 20 } else { 1000 }, number);
            let part =
                client.ask("PUT", &format!("/bucket/key?partNumber={number}&uploadId={id}"), &[], &body);
            let (etag, sum) = (part.etag(), &part.headers[&header]);
            of_parts.push(sum.clone());
            order += &format!(
                "<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag><Checksum{algorithm}>{sum}</Checksum{algorithm}></Part>"
            );
        }
        let order = format!("<CompleteMultipartUpload>{order}</CompleteMultipartUpload>");
        let target = format!("/bucket/key?uploadId={id}");
        let mut complete = |sum: &str, kind: &str| {
            let fields = [(header.as_str(), sum), ("x-amz-checksum-type", kind)];
            client.ask("POST", &target, &fields, order.as_bytes())
        };
        // A wrong value of the right size.
        let size = match algorithm {
            "SHA256" => 32,
            "CRC32" => 4,
            _ => 8,
        };
        let wrong = BASE64.encode(vec![0; size]) + count;
        let refused = complete(&wrong, kind);
        assert!(refused.status == 400 && refused.text().contains("BadDigest"), "{}", refused.text());
        // An upload of the same data without a checksum tells the right value.
        let expected = expected_of(&rig, &order, algorithm, kind);
        assert!(expected.ends_with(count) && expected.contains('-') != count.is_empty(), "{expected}");
        let other = if kind == "COMPOSITE" { "FULL_OBJECT" } else { "COMPOSITE" };
        assert_eq!(complete(&expected, other).status, 400);
        let done = complete(&expected, kind);
        assert!(done.status == 200 && done.text().contains(&expected), "{}", done.text());
        let asks = [("x-amz-checksum-mode", "ENABLED")];
        let mut told =
            |method: &str, target: &str| client.ask(method, target, &asks, b"").headers[&header].clone();
        for method in ["GET", "HEAD"] {
            let each = [1, 2].map(|number| told(method, &format!("/bucket/key?partNumber={number}")));
            assert_eq!(
                (told(method, "/bucket/key"), each.to_vec()),
                (expected.clone(), of_parts.clone()),
                "{method}"
            );
        }
        let range = [asks[0], ("Range", "bytes=0-9")];
        assert!(!client.ask("GET", "/bucket/key", &range, b"").headers.contains_key(&header));
    }
}

/// Returns the checksum of an object of two parts, as the server reports it.
fn expected_of(rig: &Rig, order: &str, algorithm: &str, kind: &str) -> String {
    let mut client = rig.client();
    let begin = [("x-amz-checksum-algorithm", algorithm), ("x-amz-checksum-type", kind)];
    let begun = client.ask("POST", "/bucket/same?uploads", &begin, b"").text();
    let id = begun.split("<UploadId>").nth(1).unwrap().split('<').next().unwrap().to_string();
    for number in [1, 2] {
        let body = data(if number == 1 { 5 << 20 } else { 1000 }, number);
        client.ask("PUT", &format!("/bucket/same?partNumber={number}&uploadId={id}"), &[], &body);
    }
    let done = client.ask("POST", &format!("/bucket/same?uploadId={id}"), &[], order.as_bytes()).text();
    done.split(&format!("<Checksum{algorithm}>")).nth(1).unwrap().split('<').next().unwrap().to_string()
}
