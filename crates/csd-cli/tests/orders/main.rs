//! `dcs csd` as its users meet it, without guests: configurations, orders, refusals, restarts.

#[path = "../common/mod.rs"]
mod common;

use common::{Serving, disk};
use dcs_testkit::Random;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

const MB: u64 = 1 << 20;

fn drive(name: &str, path: &Path, more: &str) -> String {
    format!("{name}:size=4M,backing={}{more}", path.display())
}

fn list(serving: &Serving) -> Vec<Value> {
    serving.does(&["list", "--json"]).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn drives_come_and_go_while_it_serves() {
    let folder = tempfile::tempdir().unwrap();
    let path = disk(folder.path(), "disk", 64 * MB);
    let serving = Serving::start(folder.path(), &["--drive", &drive("a", &path, "")]).unwrap();
    serving.does(&["add", &drive("b", &path, ",weight=3,queues=2,msi")]);
    serving.does(&["add", &drive("a", &path, ",read-only")]);
    let drives = list(&serving);
    let names: Vec<&str> = drives.iter().map(|drive| drive["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["a", "b"]);
    let slice = |drive: usize, space: usize| &drives[drive]["namespaces"][space]["slices"][0]["offset"];
    assert_eq!((slice(0, 0), slice(1, 0), slice(0, 1)), (&json!(0), &json!(4 * MB), &json!(8 * MB)));
    assert_eq!(drives[0]["namespaces"][1]["nsid"], 2);
    assert!(serving.socket("b").exists());
    serving.does(&["resize", "a/2", "8M"]);
    serving.refuses(&["resize", "a/1", "8M"], "overlap those of b/1");
    serving.refuses(&["resize", "a/2", "1000"], "multiple of 512");
    serving.refuses(&["resize", "a/2", "1G"], "truncate -s");
    serving.refuses(&["resize", "a", "1G"], "dcs csd resize a/1 16G");
    serving.does(&["remove", "b"]);
    assert!(!serving.socket("b").exists());
    // Its bytes are free.
    serving.does(&["resize", "a/1", "8M"]);
    serving.does(&["remove", "a/2"]);
    serving.refuses(&["remove", "a/2"], "no namespace a/2");
    serving.refuses(&["remove", "b"], "no drive b");
    let drives = list(&serving);
    assert_eq!(drives.len(), 1);
    assert_eq!(drives[0]["namespaces"].as_array().unwrap().len(), 1);
    assert_eq!(drives[0]["namespaces"][0]["size"], 8 * MB);
    let metrics = serving.does(&["stats", "--prometheus"]);
    assert!(metrics.contains("dcs_csd_namespace_bytes{drive=\"a\",namespace=\"1\"} 8388608"), "{metrics}");
    assert!(serving.does(&["stats"]).starts_with("a: 0 reads"));
}

#[test]
fn what_cannot_be_is_refused_and_all_is_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let path = disk(folder.path(), "disk", 64 * MB);
    let serving = Serving::start(folder.path(), &["--drive", &drive("a", &path, "")]).unwrap();
    let before = list(&serving);
    let missing = folder.path().join("missing");
    let bad = |text: &str| format!("b:{}", text.replace("DISK", path.to_str().unwrap()));
    for (wanted, said) in [
        (drive("b", &missing, ""), "truncate -s 16G"),
        (drive("b", folder.path(), ""), "neither a file nor a block device"),
        (drive("b", &path, ",offset=1M"), "overlap those of a/1"),
        (drive("b", &path, ",offset=63M"), "64"),
        (drive("a", &path, ",nsid=1"), "there is a namespace a/1 already"),
        (drive("a", &path, ",nsid=4000000"), "must be 1 to"),
        (drive("b", &path, ",queues=65"), "must be 1 to 64"),
        (drive("b", &path, ",queues=0"), "must be 1 to 64"),
        (drive("b", &path, ",weight=0"), "weight must be 1 to 1000"),
        (drive("b", &path, ",block=1024"), "512 or 4096"),
        (drive("b", &path, ",stripe=1000"), "power of two"),
        (bad("size=1000,backing=DISK"), "multiple of 512"),
        (bad("size=0,backing=DISK"), "multiple of 512"),
        (bad("size=8M,backing=DISK,backing=DISK"), "named twice"),
    ] {
        serving.refuses(&["add", &wanted], said);
        assert_eq!(list(&serving), before, "{wanted}");
        assert!(!serving.socket("b").exists(), "{wanted}");
    }
    // Nothing of what was refused is kept.
    serving.does(&["add", &drive("b", &path, ",offset=4M")]);
}

/// A volume of stripes ends with a whole row: one that ended before its namespace's last stripe could still be written behind its end,
/// where another namespace may lie.
#[test]
fn striped_namespaces_have_whole_rows() {
    let folder = tempfile::tempdir().unwrap();
    let (one, two) = (disk(folder.path(), "one", 64 * MB), disk(folder.path(), "two", 64 * MB));
    let striped = drive("a", &one, &format!(",backing={},stripe=128K", two.display()));
    let serving = Serving::start(folder.path(), &["--drive", &striped]).unwrap();
    let before = list(&serving);
    for size in ["2176K", "1088K", "4224K"] {
        serving.refuses(&["resize", "a/1", size], "choose a multiple of 262144");
        assert_eq!(list(&serving), before, "{size}");
    }
    let partial = striped.replace("a:size=4M", "b:size=2176K");
    serving.refuses(&["add", &partial], "choose a multiple of 262144");
    assert_eq!(list(&serving), before);
    for (size, bytes) in [("2304K", 9 * MB / 4), ("8M", 8 * MB)] {
        serving.does(&["resize", "a/1", size]);
        let space = &list(&serving)[0]["namespaces"][0];
        assert_eq!((&space["size"], &space["slices"][1]["length"]), (&json!(bytes), &json!(bytes / 2)));
    }
}

#[test]
fn a_configuration_that_cannot_be_does_not_start() {
    let folder = tempfile::tempdir().unwrap();
    let path = disk(folder.path(), "disk", 64 * MB);
    let config = folder.path().join("csd.toml");
    let starts = |text: &str| {
        std::fs::write(&config, text.replace("DISK", path.to_str().unwrap())).unwrap();
        Serving::start(folder.path(), &[config.to_str().unwrap()]).map(|serving| list(&serving).len())
    };
    let good = "[[drive]]\nname='a'\n[[drive.namespace]]\nsize='4M'\nbacking='DISK'\n";
    assert_eq!(starts(good), Ok(1));
    let over = "[[drive.namespace]]\nsize='4M'\noffset='1M'\nbacking='DISK'\n";
    for (text, said) in [
        (format!("{good}{over}"), "drive a: "),
        (format!("{good}{good}[[drive]]\nname='a'\n"), "there is a drive a already"),
        (good.replace("4M", "1G"), "truncate -s"),
        (good.replace("size", "length"), "csd.toml:4:1: unknown field `length`"),
    ] {
        let error = starts(&text).unwrap_err();
        assert!(error.contains(said), "{error}");
    }
    let nowhere = folder.path().join("nowhere");
    let error = Serving::start(&nowhere, &["--drive", &drive("a", &path, "")]).err().unwrap();
    assert!(error.contains("make the folder"), "{error}");
}

/// Invalid slots, and drives that ask for something that the slots cannot do.
#[test]
fn slots_that_cannot_be_do_not_start() {
    let folder = tempfile::tempdir().unwrap();
    let path = disk(folder.path(), "disk", 64 * MB);
    let refused = |more: &[&str], drive: &str| {
        let arguments = [&["--drive", drive], more].concat();
        Serving::start(folder.path(), &arguments).err().unwrap_or_default()
    };
    let plain = drive("a", &path, "");
    for (more, said) in [
        (&["--policy", "best"][..], "the policies are static-worst, static-best, dynamic, reconfiguration"),
        (&["--policy", "dynamic", "--slots", "0"], "policy dynamic without a slot"),
        (&["--policy", "dynamic", "--slot", "md4"], "\"md4\" is not an operator: use md5, sha1"),
        (&["--policy", "dynamic", "--slot", "md5,md5"], "md5 is named twice"),
        (
            &["--policy", "dynamic", "--slot", "md5,grep", "--slot", "md5"],
            "slot 0 (md5,grep) and slot 1 (md5)",
        ),
        (&["--policy", "dynamic", "--slots", "2", "--slot", "md5"], "2 slots, and operators for 1"),
        (&["--slot", "md5"], "--policy dynamic, static-best or static-worst"),
        (&["--policy", "reconfiguration", "--slot", "md5"], "slots cannot be bound to some"),
        (&["--slots", "65"], "65"),
    ] {
        let error = refused(more, &plain);
        assert!(error.contains(said), "{more:?}: {error}");
    }
    let loaded = drive("a", &path, ",load=4");
    let programs = drive("a", &path, ",programs,load-programs");
    for (more, drive, said) in [
        (&["--slots", "1"][..], &loaded, "a has a load, but drives have no slots of their own"),
        (&["--slots", "0"], &loaded, "--policy static-best or static-worst"),
        (&["--policy", "static-best"], &drive("a", &path, ",load=0"), "load must be 1 to 1000"),
        (&["--policy", "dynamic", "--slot", "md5"], &programs, "dcs csd run --slot module"),
        (&["--slots", "0"], &programs, "dcs csd run --slots 1"),
    ] {
        let error = refused(more, drive);
        assert!(error.contains(said), "{more:?}: {error}");
    }
    // The same in a configuration, which options replace.
    let config = folder.path().join("csd.toml");
    let settings = "[[drive]]\nname='a'\nload=4\n[[drive.namespace]]\nsize='4M'\nbacking='DISK'\n";
    let starts = |slots: &str, more: &[&str]| {
        let text = format!("{slots}\n{settings}").replace("DISK", path.to_str().unwrap());
        std::fs::write(&config, text).unwrap();
        Serving::start(folder.path(), &[&[config.to_str().unwrap()], more].concat())
    };
    let serving = starts("policy='static-worst'\nslot=['md5,grep', 'sha256']", &[]).unwrap();
    let stats = serving.does(&["stats"]);
    assert!(
        stats.contains("slot 0: static-worst, for md5, grep of a; holds nothing, idle, 0 batches"),
        "{stats}"
    );
    assert!(stats.contains("slot 1: static-worst, for sha256 of a;"), "{stats}");
    drop(serving);
    for (slots, said) in [
        ("policy='best'", "csd.toml:1:8: \"best\" is not a policy; the policies are static-worst,"),
        ("policy='dynamic'\nslot=['md4']", "csd.toml:2:6: \"md4\" is not an operator"),
        ("policy='dynamic'\nslots=3\nslot=['md5']", "3 slots, and operators for 1"),
    ] {
        let error = starts(slots, &[]).err().unwrap();
        assert!(error.contains(said), "{error}");
    }
    let serving =
        starts("policy='static-worst'\nslot=['md5', 'grep']", &["--policy", "static-best", "--slot", "any"]);
    assert!(serving.unwrap().does(&["stats"]).contains("slot 0: static-best, for any operators of a;"));
}

#[test]
fn a_second_process_gets_neither_sockets_nor_bytes_of_the_first() {
    let folder = tempfile::tempdir().unwrap();
    let other = tempfile::tempdir().unwrap();
    let path = disk(folder.path(), "disk", 64 * MB);
    let first = Serving::start(folder.path(), &["--drive", &drive("a", &path, "")]).unwrap();
    let error = Serving::start(folder.path(), &["--drive", &drive("a", &path, ",offset=8M")]).err().unwrap();
    assert!(error.contains("another process serves this folder"), "{error}");
    let error = Serving::start(other.path(), &["--drive", &drive("a", &path, "")]).err().unwrap();
    assert!(error.contains("in use by another process"), "{error}");
    assert_eq!(list(&first).len(), 1, "it serves on");
    // Killed: its sockets are left behind, and its bytes are free.
    drop(first);
    assert!(folder.path().join("a.sock").exists());
    let again = Serving::start(folder.path(), &["--drive", &drive("a", &path, "")]).unwrap();
    assert_eq!(list(&again).len(), 1);
}

#[test]
fn paths_to_the_same_namespaces_share_their_bytes() {
    let folders = [1, 2, 3].map(|_| tempfile::tempdir().unwrap());
    let path = disk(folders[0].path(), "disk", 64 * MB);
    let start = |number: usize, more: &str| {
        let drive = drive("d", &path, &format!(",subsystem=vm{more}"));
        Serving::start(folders[number].path(), &["--drive", &drive])
    };
    let first = start(0, "").unwrap();
    let second = start(1, ",path=2").unwrap();
    // Of one process: it lies where the first one lies.
    second.does(&["add", &drive("e", &path, ",subsystem=vm,path=3")]);
    let drives = list(&second);
    assert_eq!(drives[0]["namespaces"][0]["slices"], drives[1]["namespaces"][0]["slices"]);
    assert!(second.does(&["list"]).contains(", path 3 of vm"));
    second.refuses(
        &["add", &drive("f", &path, ",subsystem=vm,path=3")],
        "e is path 3 of that subsystem already",
    );
    second.refuses(&["add", &drive("f", &path, ",subsystem=other,offset=0")], "overlap those of d/1");
    second.refuses(&["add", &drive("f", &path, ",offset=2M")], "overlap those of d/1");
    // Of others: the same place alone, and the same subsystem alone.
    let third = |more: &str| {
        let drive = drive("d", &path, more);
        Serving::start(folders[2].path(), &["--drive", &drive]).err().unwrap()
    };
    for more in [
        "",
        ",read-only",
        ",subsystem=other",
        ",subsystem=vm,path=4,offset=1M",
        ",subsystem=vm,path=4,nsid=2",
    ] {
        assert!(third(more).contains("in use by another process"), "{more}");
    }
    drop((first, second));
    assert!(Serving::start(folders[2].path(), &["--drive", &drive("d", &path, "")]).is_ok());
}

#[test]
fn whatever_comes_to_the_management_socket_it_serves_on() {
    let folder = tempfile::tempdir().unwrap();
    let path = disk(folder.path(), "disk", 64 * MB);
    let serving = Serving::start(folder.path(), &["--drive", &drive("a", &path, "")]).unwrap();
    let before = list(&serving);
    let control = folder.path().join("csd.control");
    assert_eq!(std::fs::metadata(&control).unwrap().permissions().mode() & 0o777, 0o600);
    let lines: [&[u8]; 8] = [
        b"\n",
        b"{}\n",
        b"[1, 2]\n",
        b"{\"command\":\"add\"}\n",
        b"{\"command\":\"add\",\"drive\":{\"name\":\"../x\",\"namespace\":[]}}\n",
        b"{\"command\":\"list\",\"more\":1}\n",
        b"{\"command\":\"remove\",\"name\":\"a\",\"nsid\":-1}\n",
        b"\xff\xfe\n",
    ];
    let mut stream = UnixStream::connect(&control).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut answers = BufReader::new(stream.try_clone().unwrap());
    for line in lines {
        stream.write_all(line).unwrap();
        let mut answer = String::new();
        answers.read_line(&mut answer).unwrap();
        let answer: Value = serde_json::from_str(&answer).unwrap();
        assert!(answer["error"].is_string(), "{}: {answer}", String::from_utf8_lossy(line));
    }
    // A line without an end is hung up on.
    let mut endless = UnixStream::connect(&control).unwrap();
    endless.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let _ = endless.write_all(&vec![b'x'; 65 << 10]);
    let mut answer = Vec::new();
    let _ = endless.read_to_end(&mut answer);
    assert!(String::from_utf8_lossy(&answer).contains("one line"), "{answer:?}");
    assert_eq!(list(&serving), before);
}

/// A key comes from a pipe, to which nobody writes for a while: others are answered meanwhile.
#[test]
fn a_key_that_is_waited_for_holds_up_no_other_order() {
    let folder = tempfile::tempdir().unwrap();
    let path = disk(folder.path(), "disk", 64 * MB);
    let serving = Serving::start(folder.path(), &["--drive", &drive("a", &path, "")]).unwrap();
    let key = folder.path().join("key");
    nix::unistd::mkfifo(&key, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let encrypted = drive("b", &path, &format!(",through=aes256-xts,key-file={}", key.display()));
    std::thread::scope(|scope| {
        let adds = scope.spawn(|| serving.does(&["add", &encrypted]));
        // It opens when the process does.
        let mut writer = std::fs::OpenOptions::new().write(true).open(&key).unwrap();
        serving.does(&["add", &drive("c", &path, "")]);
        serving.does(&["remove", "c"]);
        let names = |drives: Vec<Value>| drives.iter().map(|drive| drive["name"].clone()).collect::<Vec<_>>();
        assert_eq!(names(list(&serving)), ["a"]);
        writer.write_all(&Random(1).bytes(64)).unwrap();
        drop(writer);
        adds.join().unwrap();
        assert_eq!(names(list(&serving)), ["a", "b"]);
    });
}

/// A process that may open few files serves no more drives than these are enough for, whatever their guests
/// do; a limit that it may raise itself is raised.
#[test]
fn drives_for_which_there_are_too_few_descriptors_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = disk(folder.path(), "disk", 64 * MB);
    let drives: Vec<String> = (0..8).map(|number| drive(&format!("d{number}"), &path, "")).collect();
    let arguments: Vec<&str> = drives.iter().flat_map(|drive| ["--drive", drive]).collect();
    let refused = Serving::start_after("ulimit -n 300", folder.path(), &arguments).err().unwrap();
    assert!(
        refused.contains("drive d5: 300 files may be open") && refused.contains("ulimit -n 340"),
        "{refused}"
    );
    let serving = Serving::start_after("ulimit -n 400", folder.path(), &arguments[..14]).unwrap();
    serving.refuses(&["add", &drives[7]], "ulimit -n 432");
    let small = drives[7].replace("size=4M", "size=1M,queues=1");
    serving.does(&["remove", "d0"]);
    serving.does(&["add", &small]);
    drop(serving);
    let raised = Serving::start_after("ulimit -S -n 300", folder.path(), &arguments).unwrap();
    assert_eq!(list(&raised).len(), 8);
}

/// Orders made up of good and bad parts, and bytes of them changed: each is answered, and a refused one
/// changes nothing.
#[test]
fn any_order_is_done_or_refused_with_all_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let path = disk(folder.path(), "disk", 64 * MB);
    let second = disk(folder.path(), "second", 64 * MB);
    let serving = Serving::start(folder.path(), &["--drive", &drive("a", &path, "")]).unwrap();
    let mut stream = UnixStream::connect(serving.sockets.join("csd.control")).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut answers = BufReader::new(stream.try_clone().unwrap());
    let mut ask = |line: &[u8]| -> Value {
        stream.write_all(line).unwrap();
        let mut answer = String::new();
        answers.read_line(&mut answer).unwrap();
        serde_json::from_str(&answer)
            .unwrap_or_else(|_| panic!("{}: {answer:?}", String::from_utf8_lossy(line)))
    };
    // The state without the parts that change meanwhile.
    let bare = |mut answer: Value| {
        for drive in answer["drives"].as_array_mut().unwrap() {
            drive
                .as_object_mut()
                .unwrap()
                .retain(|key, _| key != "counted" && key != "under_way" && key != "slots_used");
        }
        answer
    };
    let mut random = Random(1);
    let mut any = move |below: usize| random.index(below);
    let numbers = [
        json!(0),
        json!(1),
        json!(2),
        json!(512),
        json!(4096),
        json!(1 << 20),
        json!("1M"),
        json!("4M"),
        json!(1u64 << 32),
        json!(1u64 << 63),
        json!(u64::MAX - 511),
        json!(u64::MAX),
        json!(-1),
        json!(0.5),
        json!("16E"),
        json!(null),
        json!([]),
    ];
    let names = ["a", "a", "b", "b", "c", "", "..", "a/1", "csd", "a.b-c_d", "seventeen-letters", "\u{0}"];
    let backings = [
        json!(path),
        json!(path),
        json!(second),
        json!([path, second]),
        json!([path, path]),
        json!([]),
        json!(folder.path()),
        json!("/nowhere"),
    ];
    let (mut done, mut refused) = (0, 0);
    let mut before = bare(ask(b"{\"command\":\"list\"}\n"));
    for _ in 0..2000 {
        let name = names[any(names.len())];
        let mut number = || numbers[any(numbers.len())].clone();
        let (size, other, third) = (number(), number(), number());
        let mut order = match any(5) {
            0 => json!({ "command": "resize", "name": name, "nsid": any(3), "size": size }),
            1 => json!({ "command": "remove", "name": name, "nsid": any(3) }),
            2 => json!({ "command": "remove", "name": name }),
            3 => {
                json!({ "command": "set", "name": name, "weight": size, "iops": other, "bytes-per-s": third })
            }
            _ => {
                let mut space = json!({ "size": if any(4) > 0 { json!("1M") } else { size },
                    "backing": backings[any(backings.len())] });
                for (key, value) in
                    [("offset", &other), ("stripe", &third), ("block", &other), ("nsid", &third)]
                {
                    if any(8) == 0 {
                        space[key] = value.clone();
                    }
                }
                let spaces = if any(4) == 0 { vec![space.clone(), space] } else { vec![space] };
                let mut drive = json!({ "name": name, "namespace": spaces });
                for (key, value) in [("queues", &other), ("weight", &third), ("memory", &other)] {
                    if any(12) == 0 {
                        drive[key] = value.clone();
                    }
                }
                json!({ "command": "add", "drive": drive })
            }
        };
        if any(16) == 0 {
            order["more"] = json!(1);
        }
        let mut line = serde_json::to_vec(&order).unwrap();
        if any(8) == 0 {
            let place = any(line.len());
            line[place] = [b'"', b'{', b'0', b'9', 0xff, b' '][any(6)];
        }
        line.push(b'\n');
        let answer = ask(&line);
        let after = bare(ask(b"{\"command\":\"list\"}\n"));
        match answer.get("error") {
            Some(_) => {
                refused += 1;
                assert_eq!(after, before, "{} was refused", String::from_utf8_lossy(&line));
            }
            None => {
                done += 1;
                assert_eq!(bare(answer), after, "{}", String::from_utf8_lossy(&line));
            }
        }
        before = after;
    }
    assert!(done > 50 && refused > 500, "{done} done, {refused} refused");
}

#[test]
fn metrics_are_served_over_http() {
    let folder = tempfile::tempdir().unwrap();
    let path = disk(folder.path(), "disk", 64 * MB);
    let arguments = ["--metrics", "127.0.0.1:0", "--drive", &drive("a", &path, "")];
    let serving = Serving::start(folder.path(), &arguments).unwrap();
    let address = serving.said["metrics"].as_str().unwrap();
    let ask = |request: &str| {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        answer
    };
    // A silent client is waited for 5 s, not longer.
    let silent = TcpStream::connect(address).unwrap();
    let answer = ask("GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n");
    drop(silent);
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    let (_, told) = answer.split_once("\r\n\r\n").unwrap();
    assert_eq!(told, serving.does(&["stats", "--prometheus"]));
    serving.does(&["add", &drive("b", &path, "")]);
    assert!(ask("GET /metrics HTTP/1.1\r\n\r\n").contains("dcs_csd_connected{drive=\"b\"} 0"));
    assert!(ask("GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404 "));
    let other = folder.path().join("other");
    std::fs::create_dir(&other).unwrap();
    let error = Serving::start(&other, &["--metrics", address]).err().unwrap();
    assert!(error.contains(address), "{error}");
}

#[test]
fn without_a_process_the_commands_say_so() {
    let folder = tempfile::tempdir().unwrap();
    let path = disk(folder.path(), "disk", 64 * MB);
    let serving = Serving::start(folder.path(), &["--drive", &drive("a", &path, "")]).unwrap();
    let sockets = serving.sockets.clone();
    drop(serving);
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_dcs-csd"))
        .args(["csd", "list", "--sockets"])
        .arg(sockets)
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("dcs csd run"), "{output:?}");
    assert!(!output.status.success());
}

/// Guests may load programs only with slots to run them, so that they hold up no other guest, and with the
/// standard's command sets.
#[test]
fn a_guest_loads_programs_where_slots_run_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = disk(folder.path(), "disk", 16 * MB);
    let serving = Serving::start(folder.path(), &["--slots", "1"]).unwrap();
    serving.refuses(&["add", &drive("a", &path, ",load-programs")], "load-programs without programs");
    serving.does(&["add", &drive("a", &path, ",programs,load-programs")]);
    drop(serving);
    let serving = Serving::start(folder.path(), &["--slots", "0"]).unwrap();
    serving.refuses(&["add", &drive("a", &path, ",programs,load-programs")], "no slots");
    serving.does(&["add", &drive("a", &path, ",programs")]);
}

#[test]
fn modules_are_loaded_while_it_serves() {
    let folder = tempfile::tempdir().unwrap();
    let path = disk(folder.path(), "disk", 16 * MB);
    let serving = Serving::start(folder.path(), &["--drive", &drive("a", &path, "")]).unwrap();
    let text = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sdk/examples/upper.wat");
    let module = folder.path().join("upper.wasm");
    std::fs::write(&module, wat::parse_file(&text).unwrap()).unwrap();
    serving.does(&["load", module.to_str().unwrap()]);
    serving.does(&["load", module.to_str().unwrap()]);
    std::fs::write(&module, b"\0asm").unwrap();
    serving.refuses(&["load", module.to_str().unwrap()], "not a valid WebAssembly module");
    serving.refuses(&["load", "/dev/null"], "no file");
    let socket = UnixStream::connect(folder.path().join("csd.control")).unwrap();
    (&socket).write_all(b"{\"command\":\"load\",\"module\":\"upper.wasm\"}\n").unwrap();
    let mut answer = String::new();
    BufReader::new(&socket).read_line(&mut answer).unwrap();
    assert!(answer.contains("not a whole one"), "{answer}");
    assert_eq!(list(&serving).len(), 1);
    drop((socket, serving));
    // Slots that would do no module's work.
    let bound = ["--policy", "dynamic", "--slot", "md5"];
    let serving = Serving::start(folder.path(), &bound).unwrap();
    std::fs::write(&module, wat::parse_file(&text).unwrap()).unwrap();
    serving.refuses(&["load", module.to_str().unwrap()], "dcs csd run --slot module");
}
