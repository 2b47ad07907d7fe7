//! Encryption and compression at rest.

use crate::rig::{Rig, Setting, data};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use dcs_server::rest::Keys;
use dcs_server::store::record::Compression;
use std::io::Write;

fn keys() -> Keys {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    writeln!(file, "{}", "5a".repeat(32)).unwrap();
    Keys::read(file.path()).unwrap()
}

/// Text that compresses well, and does not repeat.
fn text(lines: usize) -> Vec<u8> {
    (0..lines).flat_map(|line| format!("line {line} of a text that says little\n").into_bytes()).collect()
}

#[test]
fn every_way_of_lying_gives_every_range_back() {
    for compression in [Compression::None, Compression::Gzip, Compression::Zstd] {
        for encrypted in [false, true] {
            let rig = Rig::with(Setting { keys: keys(), verify: true, ..Default::default() });
            let change = move |bucket: &mut dcs_server::store::record::Bucket| {
                bucket.rest.compression = compression;
                bucket.rest.encrypted = encrypted;
            };
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(rig.store.change_bucket("bucket", change)).unwrap();
            let mut client = rig.client();
            let body = text(40_000);
            let put = client.ask("PUT", "/bucket/key", &[], &body);
            assert_eq!(put.status, 200, "{}", put.text());
            assert_eq!(put.headers.contains_key("x-amz-server-side-encryption"), encrypted);
            let stored = rig.files()[0] as usize;
            assert_eq!(stored < body.len() / 2, compression != Compression::None, "{stored}");
            assert!(client.ask("GET", "/bucket/key", &[], b"").body == body, "{compression:?} {encrypted}");
            for range in [0..1, 5..17, 16..32, 100_001..300_003, body.len() - 7..body.len()] {
                let field = format!("bytes={}-{}", range.start, range.end - 1);
                let got = client.ask("GET", "/bucket/key", &[("Range", &field)], b"");
                assert!(
                    got.status == 206 && got.body == body[range.clone()],
                    "{compression:?} {encrypted} {range:?}"
                );
            }
            let copied = client.ask("PUT", "/bucket/copy", &[("x-amz-copy-source", "/bucket/key")], b"");
            assert_eq!(copied.status, 200, "{}", copied.text());
            assert!(client.ask("GET", "/bucket/copy", &[], b"").body == body);
            let file =
                std::fs::read_dir(rig.folder.path().join("data")).unwrap().next().unwrap().unwrap().path();
            let file = std::fs::read_dir(file).unwrap().next().unwrap().unwrap().path();
            let plain = std::fs::read(file).unwrap().windows(9).any(|nine| nine == b"line 1 of");
            assert_eq!(plain, !encrypted && compression == Compression::None);
        }
    }
}

#[test]
fn only_the_customer_reads_what_the_customer_encrypted() {
    let rig = Rig::new();
    let mut client = rig.client();
    let body = data(300_000, 8);
    let key = BASE64.encode([7; 32]);
    let other = BASE64.encode([8; 32]);
    let with = |key: &str| {
        let algorithm = ("x-amz-server-side-encryption-customer-algorithm", "AES256".to_string());
        [algorithm, ("x-amz-server-side-encryption-customer-key", key.to_string())]
    };
    let asks = |client: &mut crate::rig::Client, method: &str, key: &str, body: &[u8]| {
        let fields = with(key);
        let fields = fields.each_ref().map(|(name, value)| (*name, value.as_str()));
        client.ask(method, "/bucket/key", &fields, body)
    };
    assert_eq!(asks(&mut client, "PUT", &key, &body).status, 200);
    assert!(asks(&mut client, "GET", &key, b"").body == body);
    assert_eq!(asks(&mut client, "GET", &other, b"").status, 403);
    assert_eq!(client.ask("GET", "/bucket/key", &[], b"").status, 400);
    assert_eq!(client.ask("HEAD", "/bucket/key", &[], b"").status, 400);
    let no_master = [("x-amz-server-side-encryption", "AES256")];
    assert_eq!(client.ask("PUT", "/bucket/key", &no_master, b"x").status, 400);
}

#[test]
fn a_bucket_s_tag_has_new_objects_compressed() {
    let rig = Rig::new();
    let mut client = rig.client();
    let body = text(40_000);
    let tag = |value: &str| {
        let tag = format!("<Tag><Key>dcs:compression</Key><Value>{value}</Value></Tag>");
        format!("<Tagging><TagSet>{tag}</TagSet></Tagging>").into_bytes()
    };
    assert_eq!(client.ask("PUT", "/bucket?tagging", &[], &tag("zstd")).status, 200);
    assert!(client.ask("GET", "/bucket?tagging", &[], b"").text().contains("<Value>zstd</Value>"));
    assert_eq!(client.ask("PUT", "/bucket/small", &[], &body).status, 200);
    assert!(rig.files()[0] < body.len() as u64 / 2, "{:?}", rig.files());
    assert_eq!(client.ask("PUT", "/bucket?tagging", &[], &tag("rar")).status, 400);
    assert_eq!(client.ask("DELETE", "/bucket?tagging", &[], b"").status, 204);
    assert_eq!(client.ask("PUT", "/bucket/large", &[], &body).status, 200);
    assert_eq!(rig.files()[1], body.len() as u64);
    for key in ["small", "large"] {
        assert!(client.ask("GET", &format!("/bucket/{key}"), &[], b"").body == body);
    }
}
