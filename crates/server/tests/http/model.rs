//! The server against a model in memory: sequences of requests that are the same in every run.

use crate::rig::{Answer, Client, Rig};
use dcs_testkit::{Random, bytes as data};
use std::collections::{BTreeMap, BTreeSet};

/// A key's data and its ETag.
type Model = BTreeMap<String, (Vec<u8>, String)>;

const KEYS: [&str; 10] = ["a", "a/", "a/b", "a/b/c", "a/c", "aa", "b", "b%C3%A9/x", "b/x", "%F4%8F%BF%BF"];
const PREFIXES: [&str; 6] = ["", "a", "a/", "a/b", "b", "zz"];
/// S3's least size of a part that is not the last.
const PART: usize = 5 << 20;

struct World {
    rig: Rig,
    client: Client,
    random: Random,
    /// Objects by key, as it is written in a target.
    model: Model,
    /// Counts of each step's effects.
    done: BTreeMap<&'static str, usize>,
}

fn target(key: &str) -> String {
    format!("/bucket/{key}")
}

/// Decodes a key from a target.
fn decoded(key: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = key;
    while let Some((before, after)) = rest.split_once('%') {
        bytes.extend_from_slice(before.as_bytes());
        bytes.push(u8::from_str_radix(&after[..2], 16).unwrap());
        rest = &after[2..];
    }
    bytes.extend_from_slice(rest.as_bytes());
    String::from_utf8(bytes).unwrap()
}

fn between<'a>(text: &'a str, tag: &str) -> Vec<&'a str> {
    let (begin, end) = (format!("<{tag}>"), format!("</{tag}>"));
    text.split(&begin).skip(1).map(|rest| rest.split(&end).next().unwrap()).collect()
}

impl World {
    /// Makes data of one of several lengths.
    fn body(&mut self) -> Vec<u8> {
        let length = *self.random.pick(&[0, 1, 15, 16, 4096, 70_000, 300_000]);
        data(length, self.random.below(1 << 30))
    }

    fn did(&mut self, what: &'static str) {
        *self.done.entry(what).or_default() += 1;
    }

    fn ask(&mut self, method: &str, target: &str, fields: &[(&str, &str)], body: &[u8]) -> Answer {
        self.client.ask(method, target, fields, body)
    }

    fn put(&mut self) {
        let (key, body) = (*self.random.pick(&KEYS), self.body());
        let old = self.model.get(key).map(|(_, etag)| format!("\"{etag}\""));
        let (fields, expected) = match (self.random.index(5), &old) {
            (0, None) => (vec![("If-None-Match", "*")], 200),
            (0, Some(_)) => (vec![("If-None-Match", "*")], 412),
            (1, None) => (vec![("If-Match", "\"other\"")], 404),
            (1, Some(_)) => (vec![("If-Match", "\"other\"")], 412),
            (2, Some(etag)) => (vec![("If-Match", etag.as_str())], 200),
            _ => (vec![], 200),
        };
        let put = self.ask("PUT", &target(key), &fields, &body);
        assert_eq!(put.status, expected, "{key} {fields:?}: {}", put.text());
        if expected == 200 {
            let etag = put.etag().to_string();
            self.model.insert(key.to_string(), (body, etag));
            self.did("put");
        } else {
            self.did("put refused");
        }
    }

    fn get(&mut self) {
        let key = *self.random.pick(&KEYS);
        let range = self.random.index(3) == 0;
        let (from, length) = (self.random.index(80_000), 1 + self.random.index(5000));
        let field = format!("bytes={from}-{}", from + length - 1);
        let fields = if range { vec![("Range", field.as_str())] } else { vec![] };
        let got = self.client.ask("GET", &target(key), &fields, b"");
        let Some((body, etag)) = self.model.get(key) else {
            assert_eq!(got.status, 404, "{key}");
            return self.did("get of nothing");
        };
        match range {
            false => assert!(got.status == 200 && got.body == *body && got.etag() == etag, "{key}"),
            true if from >= body.len() => assert_eq!(got.status, 416, "{key} {field} of {}", body.len()),
            true => {
                let wanted = &body[from..body.len().min(from + length)];
                assert!(got.status == 206 && got.body == wanted, "{key} {field} of {}", body.len());
            }
        }
        self.did(if range { "range" } else { "get" });
    }

    fn conditions(&mut self) {
        let key = *self.random.pick(&KEYS);
        let Some((_, etag)) = self.model.get(key).cloned() else { return };
        let etag = format!("\"{etag}\"");
        for (field, value, status) in [
            ("If-Match", etag.as_str(), 200),
            ("If-Match", "\"other\"", 412),
            ("If-None-Match", etag.as_str(), 304),
            ("If-None-Match", "\"other\"", 200),
        ] {
            for method in ["GET", "HEAD"] {
                let got = self.ask(method, &target(key), &[(field, value)], b"");
                assert_eq!(got.status, status, "{method} {key} {field}: {value}");
            }
        }
        self.did("conditions");
    }

    fn delete(&mut self) {
        let keys: BTreeSet<&str> = (0..=self.random.index(3)).map(|_| *self.random.pick(&KEYS)).collect();
        if let [key] = Vec::from_iter(&keys)[..] {
            assert_eq!(self.ask("DELETE", &target(key), &[], b"").status, 204);
        } else {
            let objects: String =
                keys.iter().map(|key| format!("<Object><Key>{}</Key></Object>", decoded(key))).collect();
            let order = format!("<Delete>{objects}</Delete>");
            let done = self.ask("POST", "/bucket?delete", &[("Content-MD5", &md5(&order))], order.as_bytes());
            assert_eq!(done.status, 200, "{}", done.text());
            assert_eq!(between(&done.text(), "Deleted").len(), keys.len(), "{}", done.text());
        }
        keys.iter().for_each(|key| drop(self.model.remove(*key)));
        self.did("delete");
    }

    fn copy(&mut self) {
        let (from, to) = (*self.random.pick(&KEYS), *self.random.pick(&KEYS));
        let copied = self.ask("PUT", &target(to), &[("x-amz-copy-source", &target(from))], b"");
        if from == to {
            assert_eq!(copied.status, 400, "onto itself");
            return;
        }
        let Some((body, _)) = self.model.get(from).cloned() else {
            assert_eq!(copied.status, 404, "{from} {}", copied.text());
            return;
        };
        assert_eq!(copied.status, 200, "{}", copied.text());
        let text = copied.text();
        let etag = between(&text, "ETag")[0].replace("&quot;", "").replace('"', "");
        self.model.insert(to.to_string(), (body, etag));
        self.did("copy");
    }

    fn multipart(&mut self) {
        let key = *self.random.pick(&KEYS);
        let begun = self.ask("POST", &format!("{}?uploads", target(key)), &[], b"").text();
        let id = between(&begun, "UploadId")[0].to_string();
        let mut parts = vec![self.body()];
        if self.random.index(8) == 0 {
            parts.insert(0, data(PART, self.random.below(1 << 30)));
        }
        let mut order = String::new();
        for (number, part) in (1..).zip(&parts) {
            let place = format!("{}?partNumber={number}&uploadId={id}", target(key));
            let put = self.ask("PUT", &place, &[], part);
            assert_eq!(put.status, 200, "{}", put.text());
            let etag = put.etag().to_string();
            order += &format!("<Part><PartNumber>{number}</PartNumber><ETag>\"{etag}\"</ETag></Part>");
        }
        let place = format!("{}?uploadId={id}", target(key));
        if self.random.index(4) == 0 {
            assert_eq!(self.ask("DELETE", &place, &[], b"").status, 204);
            return self.did("abort");
        }
        let order = format!("<CompleteMultipartUpload>{order}</CompleteMultipartUpload>");
        let done = self.ask("POST", &place, &[], order.as_bytes());
        assert_eq!(done.status, 200, "{}", done.text());
        let text = done.text();
        let etag = between(&text, "ETag")[0].replace("&quot;", "").replace('"', "");
        assert!(etag.ends_with(&format!("-{}", parts.len())), "{etag}");
        self.model.insert(key.to_string(), (parts.concat(), etag));
        self.did("multipart");
    }

    /// Returns all pages of a listing.
    fn list(&mut self) {
        let prefix = *self.random.pick(&PREFIXES);
        let delimiter = ["", "/"][self.random.index(2)];
        let page = 1 + self.random.index(4);
        let (mut keys, mut prefixes, mut token) = (Vec::new(), Vec::new(), String::new());
        loop {
            let query =
                format!("/bucket?list-type=2&prefix={prefix}&delimiter={delimiter}&max-keys={page}{token}");
            let listed = self.ask("GET", &query, &[], b"");
            assert_eq!(listed.status, 200, "{}", listed.text());
            let text = listed.text();
            let found = between(&text, "Contents");
            let common = between(&text, "CommonPrefixes");
            assert!(found.len() + common.len() <= page, "{text}");
            keys.extend(found.iter().map(|of| {
                let etag = between(of, "ETag")[0].replace("&quot;", "").replace('"', "");
                (between(of, "Key")[0].to_string(), between(of, "Size")[0].parse().unwrap(), etag)
            }));
            prefixes.extend(common.iter().map(|of| between(of, "Prefix")[0].to_string()));
            match between(&text, "NextContinuationToken").first() {
                Some(next) => token = format!("&continuation-token={next}"),
                None => break,
            }
        }
        let (expected, expected_prefixes) = expected(&self.model, prefix, delimiter);
        assert_eq!(keys, expected, "{prefix:?} {delimiter:?} by {page}");
        assert_eq!(prefixes, expected_prefixes, "{prefix:?} {delimiter:?} by {page}");
        self.did("list");
    }

    fn step(&mut self) {
        match self.random.index(20) {
            0..5 => self.put(),
            5..10 => self.get(),
            10 => self.conditions(),
            11..13 => self.delete(),
            13..15 => self.copy(),
            15 => self.multipart(),
            _ => self.list(),
        }
    }
}

/// Returns the expected listing: keys with sizes and ETags, common prefixes.
fn expected(model: &Model, prefix: &str, delimiter: &str) -> (Vec<(String, usize, String)>, Vec<String>) {
    let (mut keys, mut prefixes) = (Vec::new(), BTreeSet::new());
    for (key, (body, etag)) in model {
        let key = decoded(key);
        let Some(rest) = key.strip_prefix(prefix) else { continue };
        match rest.split_once(delimiter).filter(|_| !delimiter.is_empty()) {
            Some((common, _)) => drop(prefixes.insert(format!("{prefix}{common}{delimiter}"))),
            None => keys.push((key, body.len(), etag.clone())),
        }
    }
    keys.sort();
    (keys, prefixes.into_iter().collect())
}

fn md5(text: &str) -> String {
    use base64::Engine as _;
    use md5::Digest;
    base64::engine::general_purpose::STANDARD.encode(md5::Md5::digest(text))
}

#[test]
fn the_server_does_what_the_model_does() {
    let mut done = BTreeMap::new();
    for seed in 0..4 {
        let rig = Rig::new();
        let client = rig.client();
        let model = Model::new();
        let mut world = World { rig, client, random: Random(seed), model, done };
        for _ in 0..250 {
            world.step();
        }
        // Nothing is left of what was replaced, refused, aborted, deleted.
        let mut sizes: Vec<u64> = Vec::new();
        for key in world.model.keys() {
            let object = world.rig.store.object("bucket", &decoded(key)).unwrap().unwrap();
            let in_files = object.segments.iter().filter(|segment| !segment.is_packed());
            sizes.extend(in_files.map(|segment| segment.stored));
        }
        sizes.sort_unstable();
        world.rig.has_files(&sizes);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        assert!(runtime.block_on(world.rig.store.repair(true)).unwrap().is_nothing());
        done = world.done;
    }
    for (what, least) in [("put", 100), ("put refused", 10), ("range", 20), ("get", 50), ("list", 100)] {
        assert!(done[what] >= least, "{done:?}");
    }
    for what in ["conditions", "delete", "copy", "multipart", "abort", "get of nothing"] {
        assert!(done[what] >= 3, "{done:?}");
    }
}
