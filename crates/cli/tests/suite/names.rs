//! File names that are not text: for this command, as for cp, any bytes but zero and the slash are a name.

use crate::preload::library;
use crate::run::{Done, KEY, Place, data};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::process::Command;

/// Returns a name that is not UTF-8, with a line break and a space.
const ODD: &[u8] = b"a\xff\n b";
/// The name as messages show it.
const SHOWN: &str = r"$'a\xff\n b'";
const HEX: &str = "61ff0a2062";

fn odd() -> &'static OsStr {
    OsStr::from_bytes(ODD)
}

fn path(place: &Place, name: &[u8]) -> PathBuf {
    place.path("").join(OsStr::from_bytes(name))
}

fn with(prefix: &str, name: &OsStr) -> OsString {
    OsString::from_vec([prefix.as_bytes(), name.as_bytes()].concat())
}

fn run<'a>(place: &Place, line: &str, more: impl IntoIterator<Item = &'a OsStr>) -> Done {
    Done(place.dcs(line).args(more).output().unwrap())
}

#[test]
fn a_copy_has_any_name() {
    let place = Place::new();
    let bytes = data(300_000);
    place.write("a", &bytes);
    run(&place, "copy a", [odd()]).ok();
    assert!(std::fs::read(path(&place, ODD)).unwrap() == bytes);
    // From there into a folder, under the same name.
    std::fs::create_dir(path(&place, b"folder\xfe")).unwrap();
    let said = run(&place, "copy --through md5", [odd(), OsStr::from_bytes(b"folder\xfe")]).ok();
    assert!(std::fs::read(path(&place, b"folder\xfe/a\xff\n b")).unwrap() == bytes);
    // The message has one line: the name's own line break is not printed.
    assert!(said.stdout().lines().count() == 1 && said.stdout().trim().ends_with(SHOWN), "{}", said.stdout());
    let done = run(&place, "copy --json --through md5", [odd(), OsStr::new("b")]).ok().json();
    assert_eq!((&done["source"], &done["source_hex"]), (&"a\u{fffd}\n b".into(), &HEX.into()));
    assert_eq!((&done["destination"], &done["destination_hex"]), (&"b".into(), &Value::Null));
    assert!(place.read("b") == bytes);
    // A chain with a key from such a file; and written in place.
    std::fs::write(path(&place, b"key\xff"), KEY).unwrap();
    let key = OsStr::from_bytes(b"key\xff");
    run(&place, "copy a sealed --through aes256-ctr --iv random --key-file", [key]).ok();
    run(&place, "copy a --in-place --durable", [odd()]).ok();
    run(&place, "copy a --no-clobber", [odd()]).fails(1, &[SHOWN, "exists"]);
    run(&place, "copy", [odd(), odd()]).fails(2, &[SHOWN, "same file"]);
}

#[test]
fn messages_show_a_name_on_one_line() {
    let place = Place::new();
    run(&place, "copy", [odd(), OsStr::new("b")]).fails(7, &[SHOWN, "No such file"]);
    run(&place, "send - ", [odd()]).fails(2, &["HOST:PORT"]);
    std::fs::create_dir(path(&place, ODD)).unwrap();
    run(&place, "send", [odd(), OsStr::new("-")]).fails(2, &[SHOWN, "is a folder"]);
    let failed = run(&place, "copy --json", [odd(), OsStr::new("b")]);
    assert!(failed.json()["message"].as_str().unwrap().contains(SHOWN), "{}", failed.stdout());
    let none = OsStr::from_bytes(b"none\xff");
    let shown = &[r"$'none\xff'"];
    run(&place, "scrub", [none]).fails(7, shown);
    run(&place, "run --show", [none]).fails(7, shown);
    run(&place, "run --config", [none, OsStr::new("--"), OsStr::new("true")]).fails(7, shown);
}

#[test]
fn files_and_sockets_of_both_sides_have_any_name() {
    for at in [OsString::from("127.0.0.1:0"), with("unix:", odd())] {
        let place = Place::new();
        let bytes = data(300_000);
        std::fs::write(path(&place, b"from\xfe"), &bytes).unwrap();
        let mut recv = place.dcs("recv --json --through md5");
        let mut receiver = recv.args([&at, &OsString::from_vec(b"to\xfe\n".to_vec())]).spawn().unwrap();
        let mut lines = BufReader::new(receiver.stdout.take().unwrap()).lines();
        let listening: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        let address = match listening["address_hex"].as_str() {
            Some(hex) => {
                assert_eq!(hex, format!("756e69783a{HEX}"));
                at.clone()
            }
            None => listening["address"].as_str().unwrap().into(),
        };
        let from = OsString::from_vec(b"from\xfe".to_vec());
        run(&place, "send --json", [from.as_os_str(), &address]).ok();
        let done: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        assert!(receiver.wait().unwrap().success());
        assert_eq!(done["destination_hex"], "746ffe0a");
        assert!(std::fs::read(path(&place, b"to\xfe\n")).unwrap() == bytes);
    }
}

#[test]
fn an_object_server_keeps_a_folder_of_any_name() {
    let place = Place::new();
    let mut child = place.dcs("serve --listen 0").arg(odd()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let said = lines.find_map(|line| line.ok().filter(|line| line.starts_with("serving"))).unwrap();
    assert!(said.contains(SHOWN), "{said}");
    assert!(path(&place, b"a\xff\n b/users").is_file());
    kill(Pid::from_raw(child.id() as i32), Signal::SIGTERM).unwrap();
    assert!(child.wait().unwrap().success());
    run(&place, "scrub", [odd()]).ok();
}

/// Rules, keys, log and counters of the preloaded library, and the file that a program sends.
#[test]
fn a_program_sends_a_file_of_any_name() {
    if library().is_none() {
        return;
    }
    let place = Place::new();
    std::fs::write(path(&place, ODD), b"abc").unwrap();
    std::fs::write(path(&place, b"other\xff"), b"abc").unwrap();
    let send = |command: &mut Command, name: &[u8]| {
        let script = "import os,socket,sys;a,b=socket.socketpair();f=open(os.fsencode(sys.argv[1]),'rb');\
                      n=os.sendfile(a.fileno(),f.fileno(),0,9999);sys.stdout.buffer.write(b.recv(n))";
        command.args(["--", "python3", "-c", script]).arg(OsStr::from_bytes(name));
        let done = command.output().unwrap();
        assert!(done.status.success() && done.stdout == b"abc", "{}", String::from_utf8_lossy(&done.stderr));
    };
    let log = OsStr::from_bytes(b"log\xff");
    let pattern = OsStr::from_bytes(b"*/a\xff*");
    for name in [ODD, b"other\xff"] {
        let mut command = place.dcs("run --through md5");
        command.args([OsStr::new("--path"), pattern, OsStr::new("--log"), log]);
        send(command.args([OsStr::new("--counters"), OsStr::from_bytes(b"counted\xff")]), name);
    }
    let log = String::from_utf8(std::fs::read(path(&place, b"log\xff")).unwrap()).unwrap();
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let sent: Vec<&Value> = lines.iter().filter(|line| line["path"].is_string()).collect();
    assert_eq!(sent.len(), 1, "{log}");
    assert!(sent[0]["path_hex"].as_str().unwrap().ends_with(HEX), "{log}");
    let counted = run(&place, "run --show", [OsStr::from_bytes(b"counted\xff")]).ok().stdout();
    assert!(counted.contains("engine_calls"), "{counted}");
}
