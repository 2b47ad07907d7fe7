//! Objects whose files have changed: a scrub or a reader finds them, and they are kept from readers then.

use crate::rig::{Client, Rig, Setting};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use dcs::Engine;
use dcs_server::encryption::Keys;
use dcs_server::scrub::{Action, Checked, Scrub, Tally, Verdict};
use dcs_server::store::Condition;
use dcs_server::store::record::{Algorithm, Bucket, Checksum, Compression, Object, Segment};
use dcs_server::transfers::{DataPath, Settings};
use dcs_testkit::bytes as data;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

fn keys(digits: &str) -> Keys {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    writeln!(file, "{}", digits.repeat(32)).unwrap();
    Keys::read(file.path()).unwrap()
}

fn wait<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// Scrubs all objects. Returns those that are not sound or were acted on, by key.
fn scrub(rig: &Rig, keys: Keys, rate: Option<u64>, dry_run: bool) -> (Tally, Vec<Checked>) {
    let patience = std::time::Duration::from_secs(30);
    let settings = Settings { transfers: 64, min_rate: 1, patience, durable: false, direct: false };
    let path = DataPath::start(Engine::builder(), settings).unwrap();
    let scrub = Scrub { store: rig.store.clone(), path: Arc::new(path), keys, in_flight: 5, rate, dry_run };
    let mut told = Vec::new();
    let tally = wait(scrub.run(|checked| told.push(checked.clone()))).unwrap();
    assert_eq!(tally.objects, told.len() as u64);
    told.retain(|checked| checked.verdict != Verdict::Sound || checked.action != Action::None);
    told.sort_by(|a, b| a.key.cmp(&b.key));
    (tally, told)
}

fn file(rig: &Rig, key: &str) -> PathBuf {
    let id = rig.store.object("bucket", key).unwrap().unwrap().segments[0].id;
    rig.folder.path().join("data").join(format!("{:x}", id / 1024)).join(format!("{id:016x}"))
}

fn flip(rig: &Rig, key: &str) {
    let path = file(rig, key);
    let mut bytes = std::fs::read(&path).unwrap();
    let at = bytes.len() / 2;
    bytes[at] ^= 0x10;
    std::fs::write(&path, bytes).unwrap();
}

fn lies(rig: &Rig, compression: Compression, encrypted: bool) {
    let change = move |bucket: &mut Bucket| {
        bucket.defaults.compression = compression;
        bucket.defaults.encrypted = encrypted;
    };
    wait(rig.store.change_bucket("bucket", change)).unwrap();
}

fn put(client: &mut Client, key: &str, body: &[u8]) {
    let put = client.ask("PUT", &format!("/bucket/{key}"), &[], body);
    assert_eq!(put.status, 200, "{}", put.text());
}

fn customer(client: &mut Client, method: &str, target: &str, body: &[u8]) -> crate::rig::Answer {
    let key = BASE64.encode([7; 32]);
    let fields = [
        ("x-amz-server-side-encryption-customer-algorithm", "AES256"),
        ("x-amz-server-side-encryption-customer-key", key.as_str()),
    ];
    client.ask(method, target, &fields, body)
}

fn verdicts(found: &[Checked]) -> Vec<(&str, &str, Action)> {
    found.iter().map(|checked| (checked.key.as_str(), checked.verdict.name(), checked.action)).collect()
}

#[test]
fn what_has_changed_is_found_and_kept_from_readers() {
    let rig = Rig::with(Setting { keys: keys("5a"), ..Default::default() });
    let mut client = rig.client();
    let body = data(300_000, 1);
    for key in ["flipped", "cut", "gone", "grown", "good"] {
        put(&mut client, key, &body);
    }
    put(&mut client, "empty", b"");
    lies(&rig, Compression::None, true);
    put(&mut client, "managed", &body);
    put(&mut client, "managed-good", &body);
    lies(&rig, Compression::Gzip, false);
    let text: Vec<u8> = (0..40_000).flat_map(|line| format!("{line}\n").into_bytes()).collect();
    put(&mut client, "gzip", &text);
    put(&mut client, "gzip-good", &body);
    lies(&rig, Compression::Zstd, true);
    put(&mut client, "zstd", &body);
    lies(&rig, Compression::None, false);
    for key in ["customer", "customer-cut"] {
        assert_eq!(customer(&mut client, "PUT", &format!("/bucket/{key}"), &body).status, 200);
    }
    let (tally, found) = scrub(&rig, keys("5a"), None, false);
    assert_eq!((tally.objects, tally.unchecked, tally.bad), (13, 2, 0), "{found:?}");

    let whole = std::fs::read(file(&rig, "flipped")).unwrap();
    for key in ["flipped", "managed", "gzip", "zstd", "customer"] {
        flip(&rig, key);
    }
    for (key, length) in [("cut", 299_999), ("customer-cut", 7), ("grown", 300_001)] {
        std::fs::File::options().write(true).open(file(&rig, key)).unwrap().set_len(length).unwrap();
    }
    std::fs::remove_file(file(&rig, "gone")).unwrap();

    let bad = |action| {
        vec![
            ("customer", "unchecked", Action::None),
            ("customer-cut", "wrong-length", action),
            ("cut", "wrong-length", action),
            ("flipped", "damaged", action),
            ("gone", "missing", action),
            ("grown", "wrong-length", action),
            ("gzip", "damaged", action),
            ("managed", "damaged", action),
            ("zstd", "damaged", action),
        ]
    };
    let (tally, found) = scrub(&rig, keys("5a"), None, true);
    assert_eq!(verdicts(&found), bad(Action::None));
    assert_eq!((tally.bad, tally.quarantined), (8, 0));
    // Nothing was changed: a reader that does not verify gets what is there.
    assert_eq!(client.ask("GET", "/bucket/flipped", &[], b"").status, 200);
    let (tally, found) = scrub(&rig, keys("5a"), None, false);
    assert_eq!(verdicts(&found), bad(Action::Quarantined));
    assert_eq!((tally.bad, tally.quarantined), (8, 8));
    for (key, verdict, _) in bad(Action::None).into_iter().filter(|(key, ..)| !key.starts_with("customer")) {
        for method in ["GET", "HEAD"] {
            let answer = client.ask(method, &format!("/bucket/{key}"), &[], b"");
            assert_eq!(answer.status, 500, "{key}");
            assert!(method == "HEAD" || answer.text().contains(verdict), "{}", answer.text());
        }
    }
    assert!(client.ask("GET", "/bucket/good", &[], b"").body == body);

    // It stays quarantined until the data are back, or others are put.
    std::fs::write(file(&rig, "flipped"), whole).unwrap();
    put(&mut client, "gone", b"new");
    let (tally, found) = scrub(&rig, keys("5a"), None, false);
    let flipped = found.iter().find(|checked| checked.key == "flipped").unwrap();
    assert_eq!((&flipped.verdict, flipped.action), (&Verdict::Sound, Action::Released));
    assert_eq!((tally.bad, tally.quarantined, tally.released), (6, 0, 1));
    assert!(client.ask("GET", "/bucket/flipped", &[], b"").body == body);
    assert_eq!(client.ask("GET", "/bucket/gone", &[], b"").body, b"new");
}

#[test]
fn without_the_key_nothing_is_said_to_be_damaged() {
    let rig = Rig::with(Setting { keys: keys("5a"), ..Default::default() });
    lies(&rig, Compression::None, true);
    put(&mut rig.client(), "managed", &data(100_000, 1));
    for keys in [Keys::default(), keys("6b")] {
        let (tally, found) = scrub(&rig, keys, None, false);
        assert_eq!(verdicts(&found), [("managed", "unchecked", Action::None)]);
        assert_eq!(tally.bad, 0);
        assert!(found[0].verdict.reason().unwrap().contains("master key"));
    }
}

#[test]
fn a_reader_who_finds_damage_is_the_last_one() {
    let rig = Rig::with(Setting { verify: true, pack: 0, ..Default::default() });
    for (key, length) in [("small", 1000), ("large", 3 << 20)] {
        put(&mut rig.client(), key, &data(length, 3));
        flip(&rig, key);
        let target = format!("/bucket/{key}");
        let mut client = rig.client();
        client.send_head("GET", &target, &[], 0);
        let first = client.answer("GET");
        // A small one is found to be wrong before its head is sent; a large one is cut short.
        assert!(first.status == 500 || first.body.len() < length, "{key} {}", first.status);
        let second = rig.client().ask("GET", &target, &[], b"");
        assert!(second.status == 500 && second.text().contains("kept from readers"), "{}", second.text());
        put(&mut rig.client(), key, b"new");
        assert_eq!(rig.client().ask("GET", &target, &[], b"").body, b"new");
    }
}

/// Readers check an object by its CRC-64, and by its MD5 where the record has no CRC-64.
#[test]
fn a_reader_checks_by_the_digest_that_the_record_has() {
    let body = data(9000, 5);
    for pack in [0, 64 << 10] {
        let rig = Rig::with(Setting { verify: true, pack, ..Default::default() });
        put(&mut rig.client(), "new", &body);
        let record = rig.store.object("bucket", "new").unwrap().unwrap();
        let right = record.segments[0].clone();
        assert!(
            right.checksum.as_ref().is_some_and(|checksum| checksum.algorithm == Algorithm::Crc64Nvme),
            "{right:?}"
        );
        assert_eq!(record.checksum, None, "the client gave none");
        let wrong = Checksum { algorithm: Algorithm::Crc64Nvme, value: vec![1; 8], parts: None };
        let other = Checksum { algorithm: Algorithm::Crc32, value: vec![1; 4], parts: None };
        let cases = [
            ("crc", Segment { md5: [1; 16], ..right.clone() }, 200),
            ("wrong-crc", Segment { checksum: Some(wrong), ..right.clone() }, 500),
            ("md5", Segment { checksum: None, ..right.clone() }, 200),
            ("other", Segment { checksum: Some(other), ..right.clone() }, 200),
            ("wrong-md5", Segment { checksum: None, md5: [1; 16], ..right }, 500),
        ];
        for (key, segment, status) in cases {
            let size = body.len() as u64;
            let mut draft = rig.store.draft_of(size, size, size).unwrap();
            draft.fill(body.clone()).unwrap();
            let object = Object { segments: vec![Segment { id: draft.id(), ..segment }], ..record.clone() };
            wait(rig.store.put("bucket", key, object, vec![draft], Condition::None)).unwrap();
            let got = rig.client().ask("GET", &format!("/bucket/{key}"), &[], b"");
            assert_eq!(got.status, status, "{key}");
            assert!(status != 200 || got.body == body, "{key}");
        }
    }
}

/// A byte of a small object changes in its pack: the one object is damaged, and no other.
#[test]
fn damage_in_a_pack_is_found_too() {
    let rig = Rig::with(Setting { verify: true, ..Default::default() });
    let body = data(20_000, 7);
    for key in ["bad", "worse"] {
        put(&mut rig.client(), key, &body);
    }
    put(&mut rig.client(), "good", &data(20_000, 8));
    let packs = std::fs::read_dir(rig.folder.path().join("packs")).unwrap();
    for path in packs.map(|pack| pack.unwrap().path()) {
        let mut bytes = std::fs::read(&path).unwrap();
        let places: Vec<_> =
            (0..bytes.len()).filter(|at| bytes[*at..].starts_with(&body[10_000..10_100])).collect();
        assert_eq!(places.len(), 2);
        places.into_iter().for_each(|place| bytes[place] ^= 1);
        std::fs::write(&path, bytes).unwrap();
    }
    let got = rig.client().ask("GET", "/bucket/worse", &[], b"");
    assert_eq!(got.status, 500, "{}", got.text());
    let (_, found) = scrub(&rig, Keys::default(), None, false);
    let expected = [("bad", "damaged", Action::Quarantined), ("worse", "damaged", Action::Kept)];
    assert_eq!(verdicts(&found), expected);
    assert!(found[0].verdict.reason().unwrap().contains("data in pack"), "{found:?}");
    let second = rig.client().ask("GET", "/bucket/bad", &[], b"");
    assert!(second.status == 500 && second.text().contains("kept from readers"), "{}", second.text());
    assert!(rig.client().ask("GET", "/bucket/good", &[], b"").body == data(20_000, 8));
}

#[test]
fn customers_readers_find_damage_too() {
    let rig = Rig::with(Setting { verify: true, pack: 0, ..Default::default() });
    assert_eq!(customer(&mut rig.client(), "PUT", "/bucket/key", &data(9000, 1)).status, 200);
    flip(&rig, "key");
    assert_eq!(customer(&mut rig.client(), "GET", "/bucket/key", b"").status, 500);
    let second = customer(&mut rig.client(), "GET", "/bucket/key", b"");
    assert!(second.status == 500 && second.text().contains("kept from readers"), "{}", second.text());
}

#[test]
fn an_object_that_is_replaced_meanwhile_is_left_alone() {
    let rig = Rig::new();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut client = rig.client();
            let mut round = 0;
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                put(&mut client, &format!("key{}", round % 8), &data(40_000, round));
                round += 1;
            }
        });
        let until = Instant::now() + Duration::from_secs(1);
        let mut objects = 0;
        // The scrub passes more than once through all of them, however busy the machine is.
        while Instant::now() < until || objects <= 8 {
            let (tally, found) = scrub(&rig, Keys::default(), None, false);
            assert!(found.is_empty(), "{found:?}");
            objects += tally.objects;
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

#[test]
fn it_keeps_to_its_rate() {
    let rig = Rig::new();
    put(&mut rig.client(), "good", &data(2_000_000, 1));
    put(&mut rig.client(), "bad", &data(2_000_000, 2));
    flip(&rig, "bad");
    let begun = Instant::now();
    let (tally, found) = scrub(&rig, Keys::default(), Some(4_000_000), false);
    assert_eq!((tally.bytes, verdicts(&found)), (4_000_000, vec![("bad", "damaged", Action::Quarantined)]));
    // The end of damaged data is never sent; what follows the last pause takes no time.
    assert!(begun.elapsed() >= Duration::from_millis(700), "{:?}", begun.elapsed());
}

#[test]
fn a_lost_data_file_is_an_error_that_says_so() {
    let rig = Rig::with_files();
    let mut client = rig.client();
    let body = data(50_000, 3);
    for key in ["got", "copied", "short"] {
        put(&mut client, key, &body);
    }
    for key in ["got", "copied"] {
        std::fs::remove_file(file(&rig, key)).unwrap();
    }
    std::fs::File::options().write(true).open(file(&rig, "short")).unwrap().set_len(7).unwrap();
    for _ in 0..2 {
        let got = client.ask("GET", "/bucket/got", &[], b"");
        assert!(
            got.status == 500 && got.text().contains("missing: a data file does not exist"),
            "{}",
            got.text()
        );
        let copied = client.ask("PUT", "/bucket/copy", &[("x-amz-copy-source", "/bucket/copied")], b"");
        assert!(copied.status == 500 && copied.text().contains("missing: a data file"), "{}", copied.text());
        let short = client.ask("GET", "/bucket/short", &[], b"");
        assert!(short.status == 500 && short.text().contains("wrong-length"), "{}", short.text());
    }
    for key in ["got", "copied", "short"] {
        let object = rig.store.object("bucket", key).unwrap().unwrap();
        assert!(object.quarantined.is_some(), "{key}: nobody opens it again");
        put(&mut client, key, &body);
        assert!(client.ask("GET", &format!("/bucket/{key}"), &[], b"").body == body, "{key}");
    }
}
