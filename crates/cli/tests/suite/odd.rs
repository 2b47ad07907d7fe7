//! Failures outside of the transfer: results that nobody took, a failing close, limits, closed standard files, folders
//! that grant access.

use crate::run::{Done, KEY, Place, data};
use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Runs a line of shell in which `dcs` is the program.
fn shell(place: &Place, line: &str) -> Done {
    let script = format!("dcs() {{ {} \"$@\"; }}; {line}", env!("CARGO_BIN_EXE_dcs"));
    let mut shell = Command::new("sh");
    Done(shell.args(["-c", &script]).env("DCS_KEY", KEY).current_dir(place.path("")).output().unwrap())
}

/// A folder's default access list is not for files that existed without one.
#[test]
fn a_folder_gives_nobody_access_to_a_replaced_file() {
    let place = Place::new();
    place.write("a", b"new secret");
    let b = place.write("b", b"older secret");
    std::fs::set_permissions(&b, std::fs::Permissions::from_mode(0o640)).unwrap();
    // For new files: u::rwx, u:1234:rwx, g::r-x, m::rwx, o::--- (linux/posix_acl_xattr.h).
    let entry = |tag: u16, bits: u16, id: u32| {
        [&tag.to_le_bytes()[..], &bits.to_le_bytes(), &id.to_le_bytes()].concat()
    };
    let none = u32::MAX;
    let entries =
        [entry(1, 7, none), entry(2, 7, 1234), entry(4, 5, none), entry(16, 7, none), entry(32, 0, none)];
    let list = [2u32.to_le_bytes().to_vec(), entries.concat()].concat();
    let flags = rustix::fs::XattrFlags::empty();
    if let Err(error) = rustix::fs::setxattr(place.path(""), "system.posix_acl_default", &list, flags) {
        return println!("skipped: this file system has no access lists: {error}");
    }
    for way in ["copy", "recv"] {
        if way == "copy" {
            place.run("copy a b").ok();
        } else {
            let receiver = place.recv("b", |_| ());
            place.run(&format!("send a {}", receiver.address)).ok();
            receiver.end().ok();
        }
        assert_eq!(place.read("b"), b"new secret");
        let given = rustix::fs::getxattr(&b, "system.posix_acl_access", &mut [0; 200]);
        assert_eq!(given, Err(rustix::io::Errno::NODATA), "{way}");
        assert_eq!(b.metadata().unwrap().permissions().mode() & 0o7777, 0o640, "{way}");
    }
}

/// Losing a counter means losing the data.
#[test]
fn results_that_standard_output_does_not_take_are_told_and_fail() {
    let place = Place::new();
    place.write("a", &data(100_000));
    for (line, words) in [
        ("dcs copy a b --through aes256-ctr --iv random > /dev/full", "iv  "),
        ("dcs copy a b --through md5 > /dev/full", "md5  "),
    ] {
        shell(&place, line).fails(4, &[words, "standard output", "No space left"]);
    }
    let json = shell(&place, "dcs copy a b --through md5 --json > /dev/full");
    assert!(json.code() == 4 && json.stderr().contains("\"ok\":true"), "{}", json.stderr());
    // A reader who left has what they wanted.
    shell(&place, "dcs copy a b --through md5 | true").ok();
}

#[test]
fn standard_files_that_are_closed_are_not_dev_null() {
    let place = Place::new();
    place.write("a", b"data");
    place.write("b", b"older");
    shell(&place, "dcs copy - b <&-").fails(1, &["Bad file descriptor"]);
    shell(&place, "dcs send - - <&-").fails(1, &["Bad file descriptor"]);
    shell(&place, "dcs copy a - >&-").fails(1, &["standard output", "Bad file descriptor"]);
    shell(&place, "dcs send a - >&-").fails(1, &["standard output", "Bad file descriptor"]);
    assert_eq!(place.read("b"), b"older");
    // A command that needs neither works without them.
    shell(&place, "dcs copy a b <&- >&-").ok();
    assert_eq!(place.read("b"), b"data");
    shell(&place, "dcs copy - b < /dev/null && dcs copy a - > /dev/null").ok();
    assert_eq!(place.read("b"), b"");
}

/// Makes a library in which closing a written file fails, as on a network file system whose quota is used up.
const CLOSES: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
int close(int fd) {
    char link[64], name[4096] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    readlink(link, name, sizeof name - 1);
    int written = strstr(name, "/b") || strstr(name, "/.b.");
    int result = ((int (*)(int))dlsym(RTLD_NEXT, "close"))(fd);
    if (!written) return result;
    errno = EDQUOT;
    return -1;
}
"#;

#[test]
fn a_close_that_fails_is_a_failure() {
    let place = Place::new();
    place.write("closes.c", CLOSES.as_bytes());
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-w", "-o", "closes.so", "closes.c", "-ldl"])
        .current_dir(place.path(""))
        .status();
    assert!(built.expect("cc is needed").success());
    place.write("a", &data(100_000));
    for line in ["copy a b", "copy a b --in-place", "copy a b --through md5 --durable", "copy a b"] {
        let done = place.dcs(line).env("LD_PRELOAD", "./closes.so").output().unwrap();
        Done(done).fails(4, &["b: ", "quota"]);
        let is_kept = line.contains("in-place");
        assert_eq!(place.path("b").exists(), is_kept, "{line}");
        if is_kept {
            std::fs::remove_file(place.path("b")).unwrap();
        }
    }
    let mut redirected = place.dcs("copy a -");
    let b = File::create(place.path("b")).unwrap();
    let done = redirected.env("LD_PRELOAD", "./closes.so").stdout(b).output().unwrap();
    Done(done).fails(4, &["standard output: ", "quota"]);
    assert_eq!(place.names(), ["a", "b", "closes.c", "closes.so"]);
}

/// Checks `ulimit -f`: also for a hole past it, which no write makes.
#[test]
fn a_limit_of_file_sizes_is_told_and_leaves_nothing() {
    let place = Place::new();
    place.write("full", &data(300_000));
    File::create(place.path("hole")).unwrap().set_len(300_000).unwrap();
    for name in ["full", "hole"] {
        for options in ["", "--through md5", "--io plain"] {
            let done = shell(&place, &format!("ulimit -f 100; dcs copy {name} b {options}"));
            done.fails(4, &["File too large"]);
            assert_eq!(place.names(), ["full", "hole"], "{name} {options}");
        }
    }
}

#[test]
fn the_longest_names_can_be_written() {
    let place = Place::new();
    place.write("a", b"new");
    for name in ["n".repeat(255), "\u{20ac}".repeat(85)] {
        place.run(&format!("copy a {name}")).ok();
        place.run(&format!("copy a {name}")).ok();
        assert_eq!(place.read(&name), b"new");
    }
    assert_eq!(place.names().len(), 3);
}

/// A file that can't be replaced is refused before anything is received.
#[test]
fn what_cannot_be_replaced_is_said_at_once() {
    let place = Place::new();
    place.write("a", b"new");
    place.write("b", b"older");
    let mount = "unshare --mount sh -c 'mount --bind b b'";
    if !shell(&place, mount).0.status.success() {
        return println!("skipped: files cannot be mounted here");
    }
    // The receiver ends though nobody connects.
    for line in ["copy a b", "recv 127.0.0.1:0 b --accept-timeout 60s"] {
        let script = format!("mount --bind b b && exec {} {line}", env!("CARGO_BIN_EXE_dcs"));
        let mut unshare = Command::new("unshare");
        unshare.args(["--mount", "sh", "-c", &script]).current_dir(place.path(""));
        Done(unshare.output().unwrap()).fails(6, &["b: ", "mounted", "--in-place"]);
    }
    // Another user's file, in a sticky folder; the program must be where anybody may run it.
    std::fs::copy(env!("CARGO_BIN_EXE_dcs"), place.path("dcs")).unwrap();
    std::fs::set_permissions(place.path("b"), std::fs::Permissions::from_mode(0o666)).unwrap();
    std::fs::set_permissions(place.path(""), std::fs::Permissions::from_mode(0o1777)).unwrap();
    let as_nobody = |line: &str| {
        let script =
            "import os,sys; os.setgroups([]); os.setgid(77); os.setuid(77); os.execv('./dcs', sys.argv)";
        let mut command = Command::new("python3");
        command.current_dir(place.path("")).args(["-c", script]).args(line.split(' '));
        Done(command.output().unwrap())
    };
    for line in ["copy a b", "recv 127.0.0.1:0 b --accept-timeout 60s"] {
        as_nobody(line).fails(6, &["b: ", "somebody else", "--in-place"]);
    }
    assert_eq!(place.read("b"), b"older");
    as_nobody("copy a b --in-place").ok();
    assert_eq!(place.read("b"), b"new");
}

/// A machine that lost power sends nothing: the kernel probes, at both ends, while nothing comes.
#[test]
fn silent_peers_are_asked_whether_they_are_there() {
    let place = Place::new();
    let receiver = place.recv("b", |_| ());
    let mut sender =
        place.dcs(&format!("send - {}", receiver.address)).stdin(Stdio::piped()).spawn().unwrap();
    let port: u16 = receiver.address.rsplit(':').next().unwrap().parse().unwrap();
    let port = format!(":{port:04X}");
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
        let rows = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let connected =
            rows.filter(|row| (row[1].ends_with(&port) || row[2].ends_with(&port)) && row[3] == "01");
        // 02: the timer of probes (Documentation/networking/proc_net_tcp.rst).
        let timers: Vec<String> = connected.map(|row| row[5][..2].to_string()).collect();
        if timers == ["02", "02"] {
            break;
        }
        assert!(Instant::now() < end, "{timers:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
    drop(sender.stdin.take());
    Done(sender.wait_with_output().unwrap()).ok();
    receiver.end().ok();
}
