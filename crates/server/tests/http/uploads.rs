//! Multipart uploads.

use crate::rig::{Client, Rig, data};
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
    // One that is put again and one that is not named leave nothing.
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
    let expected: String = md5.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
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
    // A copy of many files ends where one is damaged, and what it had written goes.
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
