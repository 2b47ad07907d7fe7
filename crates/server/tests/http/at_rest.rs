//! Encryption and compression at rest.

use crate::rig::{Rig, Setting};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use dcs_server::encryption::Keys;
use dcs_server::store::record::Compression;
use dcs_server::store::{Options, Store};
use dcs_testkit::{bytes as data, hex};
use md5::{Digest, Md5};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;

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
                bucket.defaults.compression = compression;
                bucket.defaults.encrypted = encrypted;
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

/// Headers of a request with a customer's key.
fn with_key(
    client: &mut crate::rig::Client,
    method: &str,
    target: &str,
    more: &[(&str, &str)],
    body: &[u8],
) -> crate::rig::Answer {
    let key = BASE64.encode([7; 32]);
    let own = [
        ("x-amz-server-side-encryption-customer-algorithm", "AES256"),
        ("x-amz-server-side-encryption-customer-key", key.as_str()),
    ];
    client.ask(method, target, &[&own, more].concat(), body)
}

#[test]
fn nothing_but_the_key_tells_what_a_customer_encrypted() {
    let rig = Rig::new();
    let mut client = rig.client();
    let body = b"pin=4711";
    let (md5, sha) = (Md5::digest(body), sha2::Sha256::digest(body));
    let (md5, sha) = (md5.as_slice(), sha.as_slice());
    let given = [("x-amz-checksum-sha256", BASE64.encode(sha))];
    let given = given.each_ref().map(|(name, value)| (*name, value.as_str()));
    let put = with_key(&mut client, "PUT", "/bucket/key", &given, body);
    assert_eq!(put.status, 200, "{}", put.text());
    assert_eq!(put.headers["x-amz-checksum-sha256"], BASE64.encode(sha), "who sent it is told");
    assert_ne!(put.etag(), hex(md5));
    let mode = [("x-amz-checksum-mode", "ENABLED")];
    for method in ["GET", "HEAD"] {
        let got = with_key(&mut client, method, "/bucket/key", &mode, b"");
        assert_eq!(got.headers["x-amz-checksum-sha256"], BASE64.encode(sha));
        assert_eq!(got.etag(), put.etag());
    }
    let wanted = [("x-amz-object-attributes", "ETag,Checksum,ObjectSize")];
    let told = client.ask("GET", "/bucket/key?attributes", &wanted, b"");
    assert_eq!(told.status, 400, "{}", told.text());
    let told = with_key(&mut client, "GET", "/bucket/key?attributes", &wanted, b"").text();
    assert!(told.contains(&BASE64.encode(sha)), "{told}");
    assert!(!client.ask("GET", "/bucket", &[], b"").text().contains(&hex(md5)));
    let copy = [
        ("x-amz-copy-source", "/bucket/key"),
        ("x-amz-copy-source-server-side-encryption-customer-algorithm", "AES256"),
        ("x-amz-copy-source-server-side-encryption-customer-key", &BASE64.encode([7; 32])),
    ];
    let copied = with_key(&mut client, "PUT", "/bucket/copy", &copy, b"");
    assert!(copied.status == 200 && copied.text().contains(&BASE64.encode(sha)), "{}", copied.text());
    let database = std::fs::read(rig.folder.path().join("meta.redb")).unwrap();
    for digest in [md5, hex(md5).as_bytes(), sha] {
        assert!(!database.windows(digest.len()).any(|bytes| bytes == digest));
    }
    // An object in parts: the key makes the checksum of the whole.
    let begun = with_key(
        &mut client,
        "POST",
        "/bucket/parts?uploads",
        &[("x-amz-checksum-algorithm", "CRC32C")],
        b"",
    )
    .text();
    let id = begun.split("<UploadId>").nth(1).unwrap().split('<').next().unwrap();
    let part = with_key(&mut client, "PUT", &format!("/bucket/parts?partNumber=1&uploadId={id}"), &[], body);
    assert_eq!(part.status, 200, "{}", part.text());
    assert_ne!(part.etag(), hex(md5));
    let crc = &part.headers["x-amz-checksum-crc32c"];
    let listed = client.ask("GET", &format!("/bucket/parts?uploadId={id}"), &[], b"").text();
    assert!(listed.contains(part.etag()) && !listed.contains(crc.as_str()), "{listed}");
    assert!(
        with_key(&mut client, "GET", &format!("/bucket/parts?uploadId={id}"), &[], b"")
            .text()
            .contains(crc.as_str())
    );
    let order = format!(
        "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{}</ETag><ChecksumCRC32C>{crc}</ChecksumCRC32C></Part></CompleteMultipartUpload>",
        part.etag()
    );
    let target = format!("/bucket/parts?uploadId={id}");
    assert_eq!(client.ask("POST", &target, &[], order.as_bytes()).status, 400);
    let done = with_key(&mut client, "POST", &target, &[], order.as_bytes());
    assert_eq!(done.status, 200, "{}", done.text());
    assert_eq!(with_key(&mut client, "GET", "/bucket/parts", &[], b"").body, body);
}

#[test]
fn a_record_is_good_for_its_own_key_only() {
    let rig = Rig::with(Setting { keys: keys(), ..Default::default() });
    let mut client = rig.client();
    let managed = [("x-amz-server-side-encryption", "AES256")];
    assert_eq!(client.ask("PUT", "/bucket/one", &managed, b"first").status, 200);
    assert_eq!(client.ask("PUT", "/bucket/two", &managed, b"other").status, 200);
    assert_eq!(with_key(&mut client, "PUT", "/bucket/three", &[], b"third").status, 200);
    // An attacker who can write to the disk but has no key puts one object's record under another's name.
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for (from, to) in [("one", "two"), ("three", "one")] {
        let at_rest = rig.store.object("bucket", from).unwrap().unwrap().at_rest;
        runtime
            .block_on(rig.store.change_object("bucket", to, move |object| object.at_rest = at_rest))
            .unwrap();
    }
    assert_eq!(client.ask("GET", "/bucket/two", &[], b"").status, 500);
    assert_eq!(with_key(&mut client, "GET", "/bucket/one", &[], b"").status, 403);
}

#[test]
fn only_the_owner_gets_at_the_folder() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("made/here");
    let store = Store::open(&folder, Options::default()).unwrap();
    let mode = |name: &str| std::fs::metadata(folder.join(name)).unwrap().permissions().mode() & 0o7777;
    assert_eq!(["", "data", "lock", "meta.redb"].map(mode), [0o700, 0o700, 0o600, 0o600]);
    drop(store);
    // A folder from an older version, which everybody could read.
    for (name, open) in [("meta.redb", 0o644), ("lock", 0o644), ("data", 0o755), ("", 0o755)] {
        std::fs::set_permissions(folder.join(name), std::fs::Permissions::from_mode(open)).unwrap();
    }
    drop(Store::open(&folder, Options::default()).unwrap());
    assert_eq!(["data", "lock", "meta.redb"].map(mode), [0o700, 0o600, 0o600]);
    assert_eq!(mode(""), 0o755, "a folder that was there is the operator's");
}
