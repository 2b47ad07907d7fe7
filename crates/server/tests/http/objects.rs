//! Objects: put, got, ranged, listed, copied, deleted.

use crate::rig::Rig;
use crate::signer::signer;
use dcs_server::store::PACK_DEFAULT;
use dcs_testkit::{bytes as data, hex};
use md5::{Digest, Md5};

#[test]
fn an_object_comes_back_with_what_was_said_of_it() {
    let rig = Rig::new();
    let mut client = rig.client();
    for length in [0, 1, 4096, 1_000_000, 3_000_001] {
        let body = data(length, length as u64);
        let fields =
            [("Content-Type", "text/x-test"), ("x-amz-meta-Colour", "blue"), ("x-amz-tagging", "a=b")];
        let put = client.ask("PUT", "/bucket/some/key", &fields, &body);
        assert_eq!((put.status, put.etag()), (200, hex(&Md5::digest(&body)).as_str()), "{}", put.text());
        let got = client.ask("GET", "/bucket/some/key", &[], b"");
        assert_eq!(got.status, 200);
        assert!(got.body == body, "{length}");
        assert_eq!(got.etag(), put.etag());
        assert_eq!(got.headers["content-type"], "text/x-test");
        assert_eq!(got.headers["x-amz-meta-colour"], "blue");
        assert_eq!(got.headers["x-amz-tagging-count"], "1");
        let files = [length as u64];
        let head = client.ask("HEAD", "/bucket/some/key", &[], b"");
        assert_eq!(
            (head.status, head.headers["content-length"].as_str()),
            (200, length.to_string().as_str())
        );
        // Small ones are in packs.
        rig.has_files(if length as u64 > PACK_DEFAULT { &files } else { &[] });
    }
    assert_eq!(client.ask("DELETE", "/bucket/some/key", &[], b"").status, 204);
    assert_eq!(client.ask("DELETE", "/bucket/some/key", &[], b"").status, 204);
    assert_eq!(client.ask("GET", "/bucket/some/key", &[], b"").status, 404);
    rig.has_files(&[]);
}

#[test]
fn ranges_are_those_of_rfc_9110() {
    let rig = Rig::new();
    let mut client = rig.client();
    let body = data(100_000, 1);
    client.ask("PUT", "/bucket/key", &[], &body);
    let cases = [
        ("bytes=0-0", 0..1),
        ("bytes=5-99", 5..100),
        ("bytes=99990-", 99_990..100_000),
        ("bytes=-10", 99_990..100_000),
        ("bytes=50000-999999999", 50_000..100_000),
    ];
    for (range, expected) in cases {
        let got = client.ask("GET", "/bucket/key", &[("Range", range)], b"");
        assert_eq!(got.status, 206, "{range}");
        assert!(got.body == body[expected.clone()], "{range}");
        assert_eq!(
            got.headers["content-range"],
            format!("bytes {}-{}/100000", expected.start, expected.end - 1)
        );
    }
    for range in ["bytes=100000-", "bytes=99999999999999999999-", "bytes=-0"] {
        let got = client.ask("GET", "/bucket/key", &[("Range", range)], b"");
        assert_eq!((got.status, got.headers["content-range"].as_str()), (416, "bytes */100000"), "{range}");
    }
    // Malformed or several ranges are ignored (RFC 9110 section 14.2).
    for range in ["items=0-1", "bytes=5-2", "bytes=0-1,5-6", "bytes", "bytes=-", "bytes=a-b", "\u{fc}"] {
        let got = client.ask("GET", "/bucket/key", &[("Range", range)], b"");
        assert!(got.status == 200 && got.body == body, "{range}: {}", got.status);
        assert_eq!(client.ask("HEAD", "/bucket/key", &[("Range", range)], b"").status, 200, "{range}");
    }
    let got = client.ask("GET", "/bucket/key", &[("Range", "Bytes= , 7-8")], b"");
    assert!(got.status == 206 && got.body == body[7..9]);
    // Empty data have no last bytes.
    client.ask("PUT", "/bucket/empty", &[], b"");
    let got = client.ask("GET", "/bucket/empty", &[("Range", "bytes=-5")], b"");
    assert!(got.status == 200 && got.body.is_empty() && !got.headers.contains_key("content-range"));
    assert_eq!(client.ask("GET", "/bucket/empty", &[("Range", "bytes=0-")], b"").status, 416);
}

#[test]
fn a_range_that_is_signed_is_verified_and_then_read() {
    let rig = Rig::new();
    let mut client = rig.client();
    client.ask("PUT", "/bucket/key", &[], b"0123456789");
    let got = signer("tester").ask(&mut client, "GET", "/bucket/key", &[("range", "bytes=2-4")], b"");
    assert!(got.status == 206 && got.body == b"234", "{}", got.text());
}

#[test]
fn names_that_xml_has_no_characters_for_are_told_by_references() {
    let rig = Rig::new();
    let mut client = rig.client();
    for key in ["a%01b", "a%02b", "a%0Db", "a%EF%BF%BFb", "a%09b"] {
        assert_eq!(client.ask("PUT", &format!("/bucket/{key}"), &[], b"x").status, 200);
    }
    let names = ["a&#x1;b", "a&#x2;b", "a\tb", "a&#xD;b", "a&#xFFFF;b"];
    for target in ["/bucket", "/bucket?list-type=2", "/bucket?versions"] {
        let listed = client.ask("GET", target, &[], b"");
        let text = String::from_utf8(listed.body).unwrap();
        let keys: Vec<_> = text.split("<Key>").skip(1).map(|rest| rest.split('<').next().unwrap()).collect();
        assert_eq!(keys, names, "{target}");
    }
    let listed = client.ask("GET", "/bucket?encoding-type=url", &[], b"").text();
    assert!(listed.contains("<Key>a%01b</Key>") && listed.contains("<Key>a%0Db</Key>"), "{listed}");
    // Other answers show them too.
    let order = "<Delete><Object><Key>a&#xD;b</Key></Object></Delete>";
    let deleted = client.ask("POST", "/bucket?delete", &[], order.as_bytes()).text();
    assert!(deleted.contains("<Deleted><Key>a&#xD;b</Key>"), "{deleted}");
    assert_eq!(client.ask("GET", "/bucket/a%0Db", &[], b"").status, 404);
}

#[test]
fn conditions_decide() {
    let rig = Rig::with_files();
    let mut client = rig.client();
    let put = client.ask("PUT", "/bucket/key", &[("If-None-Match", "*")], b"one");
    assert_eq!(put.status, 200);
    let etag = format!("\"{}\"", put.etag());
    assert_eq!(client.ask("PUT", "/bucket/key", &[("If-None-Match", "*")], b"two").status, 412);
    assert_eq!(client.ask("GET", "/bucket/key", &[("If-None-Match", &etag)], b"").status, 304);
    assert_eq!(client.ask("GET", "/bucket/key", &[("If-Match", "\"other\"")], b"").status, 412);
    assert_eq!(client.ask("GET", "/bucket/key", &[("If-Match", &etag)], b"").body, b"one");
    let later = [("If-Modified-Since", "Fri, 01 Jan 2100 00:00:00 GMT")];
    assert_eq!(client.ask("GET", "/bucket/key", &later, b"").status, 304);
    let earlier = [("If-Unmodified-Since", "Sat, 01 Jan 2000 00:00:00 GMT")];
    assert_eq!(client.ask("GET", "/bucket/key", &earlier, b"").status, 412);
    assert_eq!(client.ask("PUT", "/bucket/key", &[("If-Match", &etag)], b"two").status, 200);
    assert_eq!(client.ask("PUT", "/bucket/key", &[("If-Match", &etag)], b"three").status, 412);
    rig.has_files(&[3]);
}

#[test]
fn writes_have_conditions() {
    let rig = Rig::with_files();
    let mut client = rig.client();
    let mut ask = |method: &str, key: &str, fields: &[(&str, &str)]| {
        let body: &[u8] = if method == "PUT" && fields.len() < 2 { b"one" } else { b"" };
        client.ask(method, &format!("/bucket/{key}"), fields, body).status
    };
    let etag = format!("\"{}\"", hex(&Md5::digest(b"one")));
    let (is, other) = (("If-Match", etag.as_str()), ("If-Match", "\"0123\""));
    let (is_not, other_not) = (("If-None-Match", etag.as_str()), ("If-None-Match", "\"0123\""));
    let (present, absent) = (("If-Match", "*"), ("If-None-Match", "*"));
    let copy = |condition| [("x-amz-copy-source", "/bucket/source"), condition];
    assert_eq!(ask("PUT", "source", &[]), 200);
    type Headers<'a> = &'a [(&'a str, &'a str)];
    let cases: &[(&str, Headers, u16)] = &[
        ("PUT", &[present], 404),
        ("PUT", &[is], 404),
        ("PUT", &copy(present), 404),
        ("DELETE", &[is], 404),
        ("PUT", &[other_not], 200),
        ("PUT", &[present], 200),
        ("PUT", &[is_not], 412),
        ("PUT", &[other_not], 200),
        ("PUT", &copy(absent), 412),
        ("PUT", &copy(other), 412),
        ("PUT", &copy(is), 200),
        ("DELETE", &[other], 412),
        ("DELETE", &[("If-Match", "\"a\", \"b\"")], 400),
        ("PUT", &[is, absent], 501),
        ("DELETE", &[is], 204),
        ("PUT", &copy(absent), 200),
        ("DELETE", &[present], 204),
    ];
    for (number, (method, fields, status)) in cases.iter().enumerate() {
        assert_eq!(ask(method, "key", fields), *status, "{number}: {method} {fields:?}");
    }
    assert_eq!(ask("PUT", "key", &[]), 200);
    let order = format!(
        "<Delete><Object><Key>key</Key><ETag>0123</ETag></Object><Object><Key>source</Key><ETag>{}</ETag></Object></Delete>",
        etag.trim_matches('"')
    );
    let told = client.ask("POST", "/bucket?delete", &[], order.as_bytes()).text();
    assert!(told.contains("<Deleted><Key>source</Key></Deleted>"), "{told}");
    assert!(told.contains("<Code>PreconditionFailed</Code><Key>key</Key>"), "{told}");
    rig.has_files(&[3]);
}

#[test]
fn a_range_goes_on_with_the_same_object_only() {
    let rig = Rig::new();
    let mut client = rig.client();
    let put = client.ask("PUT", "/bucket/key", &[], b"0123456789");
    let etag = format!("\"{}\"", put.etag());
    let modified = client.ask("HEAD", "/bucket/key", &[], b"").headers["last-modified"].clone();
    for (condition, status) in
        [(etag.as_str(), 206), (&modified, 206), ("\"other\"", 200), ("Fri, 01 Jan 2010 00:00:00 GMT", 200)]
    {
        let got = client.ask("GET", "/bucket/key", &[("Range", "bytes=5-"), ("If-Range", condition)], b"");
        let expected: &[u8] = if status == 206 { b"56789" } else { b"0123456789" };
        assert_eq!((got.status, got.body.as_slice()), (status, expected), "{condition}");
    }
}

#[test]
fn listings_go_by_prefix_delimiter_and_page() {
    let rig = Rig::new();
    let mut client = rig.client();
    for key in ["a/1", "a/2", "b", "c/d/1", "c/e"] {
        assert_eq!(client.ask("PUT", &format!("/bucket/{key}"), &[], b"x").status, 200);
    }
    let listed = client.ask("GET", "/bucket?list-type=2&delimiter=/", &[], b"").text();
    for expected in ["<Key>b</Key>", "<Prefix>a/</Prefix>", "<Prefix>c/</Prefix>", "<KeyCount>3</KeyCount>"] {
        assert!(listed.contains(expected), "{expected} in {listed}");
    }
    assert!(!listed.contains("<Key>a/1</Key>"));
    let mut keys = Vec::new();
    let mut token = String::new();
    loop {
        let page = client.ask("GET", &format!("/bucket?list-type=2&max-keys=2{token}"), &[], b"").text();
        keys.extend(page.split("<Key>").skip(1).map(|rest| rest.split('<').next().unwrap().to_string()));
        let Some((_, next)) = page.split_once("<NextContinuationToken>") else { break };
        token = format!("&continuation-token={}", next.split('<').next().unwrap());
    }
    assert_eq!(keys, ["a/1", "a/2", "b", "c/d/1", "c/e"]);
    let listed = client.ask("GET", "/bucket?prefix=c/&delimiter=/&marker=c/d/", &[], b"").text();
    assert!(listed.contains("<Key>c/e</Key>") && !listed.contains("c/d/1"), "{listed}");
}

#[test]
fn copies_keep_or_replace_what_was_said() {
    let rig = Rig::new();
    let mut client = rig.client();
    let body = data(700_000, 4);
    client.ask("PUT", "/bucket/one", &[("x-amz-meta-colour", "blue")], &body);
    let copied = client.ask("PUT", "/bucket/two", &[("x-amz-copy-source", "/bucket/one")], b"");
    assert!(copied.status == 200 && copied.text().contains(&hex(&Md5::digest(&body))), "{}", copied.text());
    let got = client.ask("GET", "/bucket/two", &[], b"");
    assert!(got.body == body && got.headers["x-amz-meta-colour"] == "blue");
    let onto_itself = [("x-amz-copy-source", "/bucket/two")];
    assert_eq!(client.ask("PUT", "/bucket/two", &onto_itself, b"").status, 400);
    let replace = [
        ("x-amz-copy-source", "/bucket/two"),
        ("x-amz-metadata-directive", "REPLACE"),
        ("x-amz-meta-colour", "red"),
    ];
    assert_eq!(client.ask("PUT", "/bucket/two", &replace, b"").status, 200);
    assert_eq!(client.ask("HEAD", "/bucket/two", &[], b"").headers["x-amz-meta-colour"], "red");
    assert_eq!(client.ask("PUT", "/bucket/three", &[("x-amz-copy-source", "/bucket/none")], b"").status, 404);
}

#[test]
fn buckets_are_made_once_and_end_empty() {
    let rig = Rig::new();
    let mut client = rig.client();
    assert_eq!(client.ask("PUT", "/bucket", &[], b"").status, 409);
    assert_eq!(client.ask("HEAD", "/bucket", &[], b"").status, 200);
    assert_eq!(client.ask("HEAD", "/nothing", &[], b"").status, 404);
    assert_eq!(client.ask("PUT", "/nothing/key", &[], b"x").status, 404);
    client.ask("PUT", "/bucket/key", &[], b"x");
    assert_eq!(client.ask("DELETE", "/bucket", &[], b"").status, 409);
    let order = b"<Delete><Object><Key>key</Key></Object><Object><Key>none</Key></Object></Delete>";
    let deleted = client.ask("POST", "/bucket?delete", &[], order);
    assert!(deleted.text().contains("<Key>key</Key>"), "{}", deleted.text());
    assert_eq!(client.ask("DELETE", "/bucket", &[], b"").status, 204);
    assert!(client.ask("GET", "/", &[], b"").text().contains("ListAllMyBucketsResult"));
}

#[test]
fn a_damaged_object_is_never_read_whole() {
    for length in [1000, 5_000_000] {
        let rig = Rig::with(crate::rig::Setting { verify: true, pack: 0, ..Default::default() });
        let mut client = rig.client();
        let body = data(length, 9);
        for key in ["key", "copied"] {
            client.ask("PUT", &format!("/bucket/{key}"), &[], &body);
            assert!(client.ask("GET", &format!("/bucket/{key}"), &[], b"").body == body);
            let object = rig.store.object("bucket", key).unwrap().unwrap();
            let id = object.segments[0].id;
            let path = rig.folder.path().join(format!("data/{:x}/{id:016x}", id >> 10));
            let mut bytes = std::fs::read(&path).unwrap();
            bytes[length / 2] ^= 1;
            std::fs::write(&path, bytes).unwrap();
        }
        let copied = client.ask("PUT", "/bucket/copy", &[("x-amz-copy-source", "/bucket/copied")], b"");
        assert_eq!(copied.status, 500, "damage is not copied");
        assert_eq!(client.ask("HEAD", "/bucket/copy", &[], b"").status, 404);
        let got = client.ask("GET", "/bucket/copied", &[], b"");
        assert!(got.status == 500 && got.text().contains("kept from readers"), "{}", got.text());
        let got = client.ask("GET", "/bucket/key", &[], b"");
        assert!(got.status == 500 || got.body.len() < length, "{} {}", got.status, got.body.len());
        if length == 1000 {
            assert_eq!(got.status, 500, "of what fits into a block nothing is sent");
        }
    }
}

#[test]
fn a_copy_s_directive_is_one_that_there_is() {
    let rig = Rig::new();
    let mut client = rig.client();
    client.ask("PUT", "/bucket/key", &[("x-amz-meta-a", "old")], b"x");
    for name in ["x-amz-metadata-directive", "x-amz-tagging-directive"] {
        let fields = [("x-amz-copy-source", "/bucket/key"), ("x-amz-meta-a", "new"), (name, "replace")];
        let copy = client.ask("PUT", "/bucket/copy", &fields, b"");
        assert!(copy.status == 400 && copy.text().contains("COPY or REPLACE"), "{name}: {}", copy.text());
    }
    assert_eq!(client.ask("HEAD", "/bucket/copy", &[], b"").status, 404);
}
