//! Runs the commands of README, docs and help that need neither root nor another machine, as they are written: hosts
//! and ports become this machine's, and absolute paths point into the test's folder. (A test next to the parser, in
//! `src/documents.rs`, checks that all others are understood.) Also checks that everything that documents name exists:
//! targets of make, files, links.

use crate::run::{Done, IV, KEY, KEY_XTS, Place, data};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const PLAIN: usize = 200_003;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_path_buf()
}

/// Returns README, the other documents next to it, and docs.
fn documents() -> Vec<(String, String)> {
    let docs = std::fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let docs = docs.filter(|path| path.extension().is_some_and(|end| end == "md"));
    let all = docs.chain(
        ["README.md", "SPECIFICATION.md", "CONTRIBUTING.md", "SECURITY.md"].map(|name| root().join(name)),
    );
    all.map(|path| (path.display().to_string(), std::fs::read_to_string(&path).unwrap())).collect()
}

/// Returns the lines of documents and help that are commands, each once.
fn lines() -> BTreeSet<String> {
    let place = Place::new();
    let help = ["send", "recv", "copy", "ops"].map(|name| place.run(&format!("{name} --help")).ok().stdout());
    let documents = documents().into_iter().map(|(_, text)| text);
    let texts: Vec<String> = documents.chain(help).collect();
    let lines = texts.iter().flat_map(|text| text.lines());
    let code =
        lines.filter(|line| line.starts_with("  ")).map(|line| line.split("  #").next().unwrap().trim());
    code.filter(|line| line.contains("dcs ")).map(str::to_string).collect()
}

/// Returns true for a line that needs a special device.
fn needs_more(line: &str) -> bool {
    ["nvme:", "--nic", "gpu:", "--gpu", "sudo", "10.0.3.15"].iter().any(|word| line.contains(word))
}

/// Makes a folder with everything that the lines name.
fn prepared() -> Place {
    let place = Place::new();
    let plain = data(PLAIN);
    for name in [
        "app.log",
        "access.log",
        "video.mp4",
        "secret",
        "log",
        "a",
        "big",
        "db.dump",
        "download.iso",
        "plain",
    ] {
        place.write(name, &plain);
    }
    place.write("rows.csv", b"id,city,price\n1,New York,99.50\n2,Porto,120\n");
    place.write("rows.tsv", b"1\tx\t0.25\n2\ty\t0.75\n");
    place.write("rows.bin", &[[0; 8], [101, 0, 0, 0, 0, 0, 128, 63]].concat());
    place.write("vectors.bin", &[0; 64]);
    place.write("query.bin", &[0; 16]);
    // One container without runs: bits 1 and 3 are set.
    let bitmap = [12346u16, 0, 1, 0, 0, 1, 16, 0, 1, 3].map(u16::to_le_bytes).concat();
    place.write("rows.roaring", &bitmap);
    place.write("both.roaring", &bitmap.repeat(2));
    let upper = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sdk/examples/upper.wat");
    place.write("upper.wasm", &wat::parse_file(upper).unwrap());
    std::fs::create_dir(place.path("operators")).unwrap();
    std::fs::copy(place.path("upper.wasm"), place.path("operators/upper.wasm")).unwrap();
    place.write("notes", b"a note\n");
    place.write("disk.img", b"");
    std::fs::File::options()
        .write(true)
        .open(place.path("disk.img"))
        .unwrap()
        .set_len((1 << 30) + (64 << 20))
        .unwrap();
    for folder in ["src", "backup", "run"] {
        std::fs::create_dir(place.path(folder)).unwrap();
    }
    place.write("src/file", &plain);
    for (name, key) in [("key", KEY), ("key16", &KEY[..32]), ("key64", KEY_XTS)] {
        let path = place.write(name, key.as_bytes());
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    }
    place.run("copy log log.gz --through gzip").ok();
    place.run(&format!("copy plain sealed --through aes256-ctr --key-file key --iv {IV}")).ok();
    place
}

/// Rewrites a line so that a shell can run it here.
fn here(line: &str) -> String {
    let sum = "$(python3 -c \"import hashlib;print(hashlib.md5(open('plain','rb').read()).hexdigest())\")";
    line.replace("| less", "| cat >read")
        .replace(" /", " ./")
        .replace("unix:/", "unix:./")
        .replace("$sum", sum)
}

fn shell(place: &Place, line: &str) -> Command {
    let mut command = Command::new("sh");
    let folder = Path::new(env!("CARGO_BIN_EXE_dcs")).parent().unwrap();
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap_or_default());
    command.args(["-ec", line]).current_dir(place.path("")).env("PATH", path).env("iv", IV);
    command.env("DCS_OPERATORS", place.path("operators"));
    command.env_remove("DCS_KEY").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Returns the operators of a line.
fn chain(line: &str) -> Vec<&str> {
    let words = line.split_once("--through ").map_or("", |(_, rest)| rest.split(' ').next().unwrap());
    words.split(',').filter(|word| !word.is_empty()).collect()
}

/// Returns the receiver's chain that restores the plain data.
fn inverse(chain: &[&str]) -> String {
    let undone = chain.iter().rev().filter_map(|operator| match *operator {
        "gunzip" => Some("gzip"),
        "aes256-ctr" => Some("aes256-ctr"),
        _ => None,
    });
    let undone = undone.collect::<Vec<_>>().join(",");
    if undone.is_empty() { undone } else { format!("--through {undone}") }
}

#[test]
fn copies_and_lists_run_as_they_are_written() {
    let mut seen = 0;
    for line in lines() {
        let is_one = line.starts_with("dcs copy") || line.starts_with("dcs ops");
        if !is_one || needs_more(&line) || line.contains("| jq") {
            continue;
        }
        let place = prepared();
        let done = Done(shell(&place, &here(&line)).output().unwrap());
        assert_eq!(done.code(), 0, "{line}: {}", done.stderr());
        seen += 1;
    }
    assert!(seen >= 9, "{seen} lines");
}

#[test]
fn senders_run_as_they_are_written() {
    let mut seen = 0;
    for line in lines() {
        let is_one = line.contains("dcs send ") && !line.starts_with("dcs copy");
        if !is_one || needs_more(&line) {
            continue;
        }
        let place = prepared();
        let unix = line.contains("unix:");
        let receiver = place.listening(if unix {
            "recv unix:run/backup.sock out --json"
        } else {
            "recv 127.0.0.1:0 out --json"
        });
        let hosts = ["there:9000", "receiver:9000", "vault:9000"];
        let to_here = hosts.iter().fold(here(&line), |line, host| line.replace(host, &receiver.address));
        let done = Done(shell(&place, &to_here).output().unwrap());
        assert_eq!(done.code(), 0, "{line}: {}", done.stderr());
        receiver.end().ok();
        assert!(!place.read("out").is_empty());
        seen += 1;
    }
    assert!(seen >= 5, "{seen} lines");
}

#[test]
fn receivers_run_as_they_are_written() {
    let mut seen = 0;
    for line in lines() {
        if !line.starts_with("dcs recv") || needs_more(&line) {
            continue;
        }
        let place = prepared();
        let from = line.split(' ').nth(2).unwrap();
        let (from_here, is_unix) = if from.starts_with("unix:") {
            (from.replace("unix:/", "unix:./"), true)
        } else {
            ("127.0.0.1:0".into(), false)
        };
        // The address that it listens on is JSON on the output without data: both go to a file.
        let said = format!("{} --json 2>said", here(&line).replace(from, &from_here));
        let said = if line.contains(" - ") { said } else { said.replace("2>said", ">said") };
        let mut receiver = shell(&place, &said).spawn().unwrap();
        let address = loop {
            let said = std::fs::read_to_string(place.path("said")).unwrap_or_default();
            if let Some(line) = said.split_once('\n').map(|(line, _)| line) {
                let heard: serde_json::Value =
                    serde_json::from_str(line).unwrap_or_else(|_| panic!("{said}"));
                break heard["address"].as_str().unwrap().to_string();
            }
            assert!(receiver.try_wait().unwrap().is_none(), "{line}: {said}");
            std::thread::yield_now();
        };
        assert_eq!(address.starts_with("unix:"), is_unix);
        let chain = chain(&line);
        let iv =
            if chain.contains(&"aes256-ctr") { format!("--key-file key --iv {IV}") } else { String::new() };
        place.run(&format!("send plain {address} {} {iv}", inverse(&chain))).ok();
        let done = Done(receiver.wait_with_output().unwrap());
        assert_eq!(
            done.code(),
            0,
            "{line}: {} {:?}",
            done.stderr(),
            std::fs::read_to_string(place.path("said"))
        );
        seen += 1;
    }
    assert!(seen >= 5, "{seen} lines");
}

/// Runs README's example of encryption, from the key on: the receiver gets what the sender sends, and both print the
/// same sum.
#[test]
fn what_readme_encrypts_its_receiver_gets_back() {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let line = |start: &str, with: &str| {
        let lines = readme.lines().map(|line| line.split("  #").next().unwrap().trim());
        let found: Vec<&str> = lines.filter(|line| line.starts_with(start) && line.contains(with)).collect();
        assert_eq!(found.len(), 1, "{start}: {found:?}");
        found[0].to_string()
    };
    let sender = prepared();
    std::fs::remove_file(sender.path("key")).unwrap();
    let of_key = line("(umask", "openssl rand");
    assert_eq!(Done(shell(&sender, &of_key).output().unwrap()).code(), 0, "{of_key}");
    let iv = Done(shell(&sender, &line("iv=$(", "openssl rand")).output().unwrap()).stdout();
    let receiver = Place::new();
    std::fs::copy(sender.path("key"), receiver.path("key")).unwrap();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let recv = line("dcs recv", "aes256-ctr").replace(" 9000 ", &format!(" 127.0.0.1:{port} "));
    let mut recv = shell(&receiver, &recv).env("iv", iv.trim()).spawn().unwrap();
    let send = line("dcs send", "aes256-ctr").replace("vault:9000", &format!("127.0.0.1:{port}"));
    let sent = loop {
        // Exit code 3: it does not listen yet.
        let sent = Done(shell(&sender, &send).env("iv", iv.trim()).output().unwrap());
        assert!(recv.try_wait().unwrap().is_none_or(|status| status.success()), "the receiver ended");
        if sent.code() != 3 {
            break sent.ok();
        }
    };
    let received = Done(recv.wait_with_output().unwrap()).ok();
    assert!(receiver.read("db.dump") == sender.read("db.dump"));
    assert!(
        sent.stdout().starts_with("sha256  ") && sent.stdout() == received.stdout(),
        "{}",
        received.stdout()
    );
}

#[test]
fn what_documents_name_is_there() {
    let makefile = std::fs::read_to_string(root().join("Makefile")).unwrap();
    let mut missing = Vec::new();
    let (mut targets, mut links) = (0, 0);
    for (name, text) in documents() {
        let folder = Path::new(&name).parent().unwrap().to_path_buf();
        for piece in text.split("make ").skip(1) {
            let before = text[..piece.as_ptr() as usize - text.as_ptr() as usize - 5].chars().next_back();
            let target: String = piece.chars().take_while(|c| c.is_ascii_lowercase() || *c == '-').collect();
            // In code: `make test`, or a line that begins like that.
            if before == Some('`')
                || text[..piece.as_ptr() as usize - text.as_ptr() as usize - 5].ends_with("\n    ")
            {
                targets += 1;
                if !makefile.lines().any(|line| line.starts_with(&format!("{target}:"))) {
                    missing.push(format!("{name}: make {target}"));
                }
            }
        }
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let link = link.split('#').next().unwrap();
            if link.is_empty() || link.contains("://") {
                continue;
            }
            links += 1;
            if !folder.join(link).exists() {
                missing.push(format!("{name}: {link}"));
            }
        }
        for span in text.split('`').skip(1).step_by(2) {
            let ours = ["crates/", "integrations/", "contrib/", "examples/", "testbed/", "tools/", "fuzz/"];
            let is_path =
                ours.iter().any(|start| span.starts_with(start)) && !span.contains(['*', '<', '{', '\n']);
            let path = span.split(' ').next().unwrap();
            // Some documents name a test without its `.rs`.
            if is_path && !root().join(path).exists() && !root().join(format!("{path}.rs")).exists() {
                missing.push(format!("{name}: {path}"));
            }
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
    assert!(targets >= 10 && links >= 20, "{targets} targets of make, {links} links");
}
