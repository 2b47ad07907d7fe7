//! Promises about files: `dcs copy` and `dcs recv` keep what cp and install keep: the file itself, owners, modes,
//! links, holes.

use crate::run::{Done, Place, data};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::{File, Permissions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::process::{Command, Stdio};

const MIB: u64 = 1 << 20;
/// Bytes of files with holes.
const LENGTH: u64 = 8 * MIB;

fn mode(place: &Place, name: &str) -> u32 {
    std::fs::metadata(place.path(name)).unwrap().permissions().mode() & 0o7777
}

fn set_mode(place: &Place, name: &str, mode: u32) {
    std::fs::set_permissions(place.path(name), Permissions::from_mode(mode)).unwrap();
}

fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// Receives the file `a` as `b`.
fn receive(place: &Place) {
    let receiver = place.recv("b", |_| ());
    place.run(&format!("send a {}", receiver.address)).ok();
    receiver.end().ok();
}

#[test]
fn a_file_is_not_copied_onto_itself() {
    let place = Place::new();
    let bytes = data(300_000);
    let a = place.write("a", &bytes);
    std::fs::hard_link(&a, place.path("hard")).unwrap();
    symlink("a", place.path("soft")).unwrap();
    std::fs::create_dir(place.path("folder")).unwrap();
    std::fs::hard_link(&a, place.path("folder/a")).unwrap();
    for to in ["a", "./a", "hard", "soft", "folder", "folder/a"] {
        for options in ["", "--in-place", "--through gzip", "--through md5 --in-place --cache off"] {
            place.run(&format!("copy a {to} {options}")).fails(2, &["same file", "another destination"]);
            assert!(place.read("a") == bytes, "{to} {options}");
        }
    }
    place.run("copy soft a --in-place").fails(2, &["same file"]);
    // Standard input and output are files too.
    for line in ["copy a -", "send a -", "copy - -"] {
        let output = File::options().append(true).open(&a).unwrap();
        let done = place.dcs(line).stdin(File::open(&a).unwrap()).stdout(output).output().unwrap();
        Done(done).fails(2, &["same file"]);
        assert!(place.read("a") == bytes, "{line}");
    }
    let mut redirected = place.dcs("copy - a --in-place");
    Done(redirected.stdin(File::open(&a).unwrap()).output().unwrap()).fails(2, &["same file"]);
    assert!(place.read("a") == bytes);
    assert_eq!(place.names(), ["a", "folder", "hard", "soft"]);
}

#[test]
fn a_new_file_is_nobodys_set_uid_program() {
    let place = Place::new();
    place.write("a", b"#!/bin/sh\n");
    for options in ["", "--in-place"] {
        set_mode(&place, "a", 0o6755);
        place.run(&format!("copy a b {options}")).ok();
        assert_eq!(mode(&place, "b"), 0o755, "{options}");
        std::fs::remove_file(place.path("b")).unwrap();
    }
    set_mode(&place, "a", 0o1640);
    place.run("copy a b").ok();
    assert_eq!(mode(&place, "b"), 0o640);
}

#[test]
fn a_replaced_file_keeps_its_mode() {
    let place = Place::new();
    place.write("a", b"new");
    set_mode(&place, "a", 0o777);
    for kept in [0o600, 0o604, 0o640, 0o755] {
        for way in ["copy", "recv"] {
            place.write("b", b"older and longer");
            set_mode(&place, "b", kept);
            if way == "copy" {
                drop(place.run("copy a b").ok())
            } else {
                receive(&place)
            }
            assert_eq!((place.read("b"), mode(&place, "b")), (b"new".to_vec(), kept), "{way}");
        }
    }
}

/// As root it keeps owner, group and set-uid; as another user it drops what is no longer true.
#[test]
fn a_replaced_file_keeps_its_owner_or_loses_set_uid() {
    if !is_root() {
        return println!("skipped: only root can give files away");
    }
    let place = Place::new();
    std::fs::set_permissions(place.path(""), Permissions::from_mode(0o777)).unwrap();
    place.write("a", b"new");
    let older = |mode| {
        place.write("b", b"older");
        std::os::unix::fs::chown(place.path("b"), Some(1234), Some(2345)).unwrap();
        set_mode(&place, "b", mode);
    };
    for way in ["copy", "recv"] {
        older(0o6755);
        if way == "copy" {
            drop(place.run("copy a b").ok())
        } else {
            receive(&place)
        }
        let there = std::fs::metadata(place.path("b")).unwrap();
        assert_eq!((there.uid(), there.gid(), mode(&place, "b")), (1234, 2345, 0o6755), "{way}");
        std::fs::remove_file(place.path("b")).unwrap();
    }
    // A user who may write to it, but cannot give a file away. The program must be where that user may run it.
    let program = place.path("dcs");
    std::fs::copy(env!("CARGO_BIN_EXE_dcs"), &program).unwrap();
    older(0o6777);
    let script =
        "import os,sys; os.setgroups([]); os.setgid(77); os.setuid(77); os.execv(sys.argv[1], sys.argv[1:])";
    let mut command = Command::new("python3");
    command.current_dir(place.path("")).args(["-c", script]).arg(&program).args(["copy", "a", "b"]);
    Done(command.output().unwrap()).ok();
    let there = std::fs::metadata(place.path("b")).unwrap();
    assert_eq!((there.uid(), there.gid(), mode(&place, "b")), (77, 77, 0o777));
    assert_eq!(place.read("b"), b"new");
}

#[test]
fn a_replaced_file_keeps_its_access_list_and_attributes() {
    let place = Place::new();
    place.write("a", b"new");
    let b = place.write("b", b"older");
    // u::rw-, u:1234:r--, g::---, m::r--, o::--- (linux/posix_acl_xattr.h).
    let entry = |tag: u16, bits: u16, id: u32| {
        [&tag.to_le_bytes()[..], &bits.to_le_bytes(), &id.to_le_bytes()].concat()
    };
    let none = u32::MAX;
    let list = [
        2u32.to_le_bytes().to_vec(),
        entry(1, 6, none),
        entry(2, 4, 1234),
        entry(4, 0, none),
        entry(16, 4, none),
        entry(32, 0, none),
    ]
    .concat();
    let flags = rustix::fs::XattrFlags::empty();
    let set = |name: &str, value: &[u8]| rustix::fs::setxattr(&b, name, value, flags);
    if let Err(error) = set("system.posix_acl_access", &list).and_then(|()| set("user.comment", b"kept")) {
        return println!("skipped: this file system has no access lists and attributes: {error}");
    }
    let before = mode(&place, "b");
    for way in ["copy", "recv"] {
        if way == "copy" {
            drop(place.run("copy a b").ok())
        } else {
            receive(&place)
        }
        assert_eq!((place.read("b"), mode(&place, "b")), (b"new".to_vec(), before), "{way}");
        let get = |name: &str| {
            let mut value = vec![0; 200];
            let length = rustix::fs::getxattr(&b, name, &mut value).unwrap();
            value.truncate(length);
            value
        };
        assert!(get("system.posix_acl_access") == list && get("user.comment") == b"kept", "{way}");
    }
}

#[test]
fn a_link_to_nothing_is_not_replaced() {
    let place = Place::new();
    place.write("a", b"new");
    symlink("nowhere", place.path("link")).unwrap();
    for line in ["copy a link", "copy a link --in-place", "recv 0 link"] {
        place.run(line).fails(1, &["link", "symbolic link to a missing file"]);
        assert!(std::fs::symlink_metadata(place.path("link")).unwrap().is_symlink(), "{line}");
    }
    assert_eq!(place.names(), ["a", "link"]);
}

/// Files whose reported size differs from what reading them gives.
#[test]
fn files_that_the_kernel_makes_up_are_copied_whole() {
    let place = Place::new();
    for name in ["/proc/version", "/proc/sys/kernel/ostype", "/sys/kernel/mm/transparent_hugepage/enabled"] {
        let Ok(expected) = std::fs::read(name) else { continue };
        place.run(&format!("copy {name} b --through md5")).ok();
        assert_eq!(place.read("b"), expected, "{name}");
        assert_eq!(place.run(&format!("send {name} -")).ok().0.stdout, expected, "{name}");
        assert_eq!(
            place.run(&format!("send {name} - --offset 1 --length 2")).ok().0.stdout,
            expected[1..3],
            "{name}"
        );
        place.run(&format!("copy {name} /dev/full")).fails(4, &[]);
        place.run(&format!("send {name} - --length 100000")).fails(2, &["beyond"]);
    }
}

/// Returns the bytes on the disk.
fn room(place: &Place, name: &str) -> u64 {
    std::fs::metadata(place.path(name)).unwrap().blocks() * 512
}

/// Makes a file with little data: at its beginning or not, at its end or not.
fn sparse(place: &Place, name: &str, at: &[u64]) {
    let file = File::create(place.path(name)).unwrap();
    for (number, at) in at.iter().enumerate() {
        file.write_all_at(&data(5000 + number), *at).unwrap();
    }
    file.set_len(LENGTH).unwrap();
}

#[test]
fn holes_stay_holes() {
    let place = Place::new();
    for at in [&[][..], &[0], &[3 * MIB, 6 * MIB + 5], &[LENGTH - 5000], &[0, MIB, 5 * MIB, LENGTH - 5001]] {
        sparse(&place, "a", at);
        let taken = room(&place, "a");
        if taken > MIB / 2 {
            return println!("skipped: this file system has no holes");
        }
        for options in [
            "",
            "--io plain",
            "--cache off",
            "--in-place",
            "--durable",
            "--through sha256",
            "--through md5,crc32 --durable",
        ] {
            place.write("b", b"older");
            let done = place.run(&format!("copy a b {options} --json")).ok();
            assert_eq!(
                (done.json()["bytes_in"].as_u64(), done.json()["bytes_out"].as_u64()),
                (Some(LENGTH), Some(LENGTH))
            );
            assert!(place.read("b") == place.read("a"), "{at:?} {options}");
            assert!(
                room(&place, "b") <= taken + 64 * 1024,
                "{at:?} {options}: {} of {taken}",
                room(&place, "b")
            );
        }
        let mut redirected = place.dcs("copy - b");
        Done(redirected.stdin(File::open(place.path("a")).unwrap()).output().unwrap()).ok();
        assert!(place.read("b") == place.read("a") && room(&place, "b") <= taken + 64 * 1024, "{at:?}");
        // A chain that changes the data changes the zeros too.
        place.run("copy a c --through zstd,unzstd,md5").ok();
        assert!(place.read("c") == place.read("a"));
    }
}

/// More runs of data than fit into one command's descriptor.
#[test]
fn many_holes_stay_holes() {
    let place = Place::new();
    let file = File::create(place.path("a")).unwrap();
    for number in 0..700u64 {
        file.write_all_at(&number.to_le_bytes(), number * 8192).unwrap();
    }
    place.run("copy a b").ok();
    assert!(place.read("b") == place.read("a"));
    assert!(room(&place, "b") <= room(&place, "a") + 64 * 1024);
}

/// A library that logs calls that have to do with durability.
const TELLS: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
static void tell(const char *what) { dprintf(9, "%s\n", what); }
#define CALL(name, parameters, arguments) \
    int name parameters { \
        int (*real) parameters = (int (*) parameters)dlsym(RTLD_NEXT, #name); \
        tell(#name); \
        return real arguments; \
    }
CALL(fdatasync, (int fd), (fd))
CALL(fsync, (int fd), (fd))
CALL(rename, (const char *a, const char *b), (a, b))
CALL(renameat, (int x, const char *a, int y, const char *b), (x, a, y, b))
CALL(renameat2, (int x, const char *a, int y, const char *b, unsigned f), (x, a, y, b, f))
"#;

#[test]
fn what_replaces_a_file_is_on_the_disk_before_it_does() {
    let place = Place::new();
    place.write("tells.c", TELLS.as_bytes());
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-o", "tells.so", "tells.c", "-ldl"])
        .current_dir(place.path(""))
        .status();
    assert!(built.expect("cc is needed").success());
    place.write("a", &data(100_000));
    let told = |line: &str| {
        let script = format!("exec 9>told; LD_PRELOAD=./tells.so exec {} {line}", env!("CARGO_BIN_EXE_dcs"));
        Done(Command::new("sh").args(["-c", &script]).current_dir(place.path("")).output().unwrap()).ok();
        let told = String::from_utf8(place.read("told")).unwrap();
        told.lines().map(String::from).collect::<Vec<_>>()
    };
    assert_eq!(told("copy a b"), ["renameat"], "a new file: nothing can be lost");
    assert_eq!(told("copy a b"), ["fdatasync", "renameat"], "one that is replaced");
    assert_eq!(
        told("copy a b --durable").last().unwrap(),
        "fsync",
        "the folder too, where it is to be durable"
    );
    // The engine flushes the file itself, and its calls do not go through that library.
    assert_eq!(told("copy a c --durable --in-place"), ["fsync"], "the folder of a new file");
    place.write("b", b"");
    assert_eq!(told("copy a b"), ["renameat"], "one that was empty");
}

/// The folder is meant, not its name: the file goes where the folder is by then, or nothing of it stays.
#[test]
fn a_folder_that_is_renamed_meanwhile_gets_the_file_or_nothing() {
    for (how, options) in [("new", ""), ("replaced", ""), ("new", "--no-clobber"), ("new", "--durable")] {
        for ends_well in [true, false] {
            let place = Place::new();
            std::fs::create_dir(place.path("before")).unwrap();
            if how == "replaced" {
                place.write("before/b", b"older");
            }
            let mut copy =
                place.dcs(&format!("copy - before/b {options}")).stdin(Stdio::piped()).spawn().unwrap();
            let mut input = copy.stdin.take().unwrap();
            input.write_all(b"new").unwrap();
            let is_there = |name: &str| name.starts_with(".b.") && name.ends_with(".part");
            while !names(&place, "before").iter().any(|name| is_there(name)) {
                std::thread::yield_now();
            }
            std::fs::rename(place.path("before"), place.path("after")).unwrap();
            // A user who looks for it by its name finds another one.
            std::fs::create_dir(place.path("before")).unwrap();
            // When it is signalled, its input stays open, so that it does not end by itself.
            let _open = if ends_well {
                drop(input);
                None
            } else {
                kill(Pid::from_raw(copy.id() as i32), Signal::SIGINT).unwrap();
                Some(input)
            };
            let done = Done(copy.wait_with_output().unwrap());
            assert_eq!(done.code(), if ends_well { 0 } else { 130 }, "{how} {options}: {}", done.stderr());
            let expected: &[&str] = if ends_well || how == "replaced" { &["b"] } else { &[] };
            assert_eq!(names(&place, "after"), expected, "{how} {options} {ends_well}");
            assert!(names(&place, "before").is_empty(), "{how} {options} {ends_well}");
            if let [name] = expected {
                let bytes = place.read(&format!("after/{name}"));
                assert_eq!(bytes, if ends_well { b"new".as_slice() } else { b"older" }, "{how} {options}");
            }
        }
    }
}

fn names(place: &Place, folder: &str) -> Vec<String> {
    let entries = std::fs::read_dir(place.path(folder)).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}
