//! Keys and counters: their sources, and the places where they must never appear.

use crate::run::{Done, IV, KEY, KEY_XTS, Place, data};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

/// Writes a key file with the right mode: nobody else may read it.
fn key_file(place: &Place, name: &str, bytes: &[u8]) {
    let path = place.write(name, bytes);
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o600)).unwrap();
}

fn raw(hex: &str) -> Vec<u8> {
    (0..hex.len() / 2).map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap()).collect()
}

#[test]
fn a_key_is_the_same_raw_in_digits_and_in_the_environment_and_openssl_agrees() {
    let place = Place::new();
    place.write("a", &data(100_001));
    key_file(&place, "raw", &raw(KEY));
    key_file(&place, "text", format!("{}\n", KEY.to_uppercase()).as_bytes());
    place.run(&format!("copy a one --through aes256-ctr --iv {IV} --key-file raw")).ok();
    place.run(&format!("copy a two --through aes256-ctr --iv {IV} --key-file text")).ok();
    let mut third = place.dcs(&format!("copy a three --through aes256-ctr --iv {IV}"));
    Done(third.env("DCS_KEY", KEY).output().unwrap()).ok();
    let openssl = ["enc", "-aes-256-ctr", "-K", KEY, "-iv", IV, "-in", "a", "-out", "other"];
    let status = Command::new("openssl").args(openssl).current_dir(place.path("")).status();
    assert!(status.expect("openssl is needed").success());
    for name in ["one", "two", "three"] {
        assert!(place.read(name) == place.read("other"), "{name}");
    }
}

#[test]
fn ciphers_take_keys_in_their_order() {
    let place = Place::new();
    place.write("a", &data(70_000));
    key_file(&place, "first", KEY.as_bytes());
    key_file(&place, "second", KEY_XTS.as_bytes());
    place
        .run(&format!(
            "copy a b --through aes256-ctr,aes256-xts --key-file first --key-file second --iv {IV}"
        ))
        .ok();
    let back = format!("copy b c --through aes256-xts-decrypt,aes256-ctr --iv {IV}");
    let mut command = place.dcs(&back);
    Done(command.env("DCS_KEY", KEY_XTS).env("DCS_KEY_2", KEY).output().unwrap()).ok();
    assert!(place.read("c") == data(70_000) && place.read("b") != place.read("a"));
    place.run(&format!("{back} --key-file second")).fails(2, &["no key for aes256-ctr", "DCS_KEY_2"]);
    place
        .run(&format!("copy a d --through aes256-ctr --iv {IV} --key-file first --key-file second"))
        .fails(2, &["2 key files for 1 cipher"]);
}

#[test]
fn a_counter_is_drawn_and_told_and_never_the_same() {
    let place = Place::new();
    place.write("a", &data(1000));
    key_file(&place, "key", KEY.as_bytes());
    let drawn = |name: &str| {
        let done =
            place.run(&format!("copy a {name} --through aes256-ctr --key-file key --iv random --json")).ok();
        let iv = done.json()["iv"][0].clone();
        assert_eq!(iv["random"], true);
        iv["value"].as_str().unwrap().to_string()
    };
    let (one, other) = (drawn("one"), drawn("other"));
    assert!(one != other && one.len() == 32);
    place.run(&format!("copy one back --through aes256-ctr --key-file key --iv {one}")).ok();
    assert!(place.read("back") == data(1000));
    let told = place.run("copy a b --through aes256-ctr --key-file key --iv random").ok().stdout();
    assert!(told.starts_with("iv  ") && told.ends_with("  a\n"), "{told}");
    let sealed = place.read("b");
    for line in ["recv 0 b", "send a -", "copy one b", "copy b b"] {
        // Without the counter the result would be noise, and replace the old file.
        let line = format!("{line} --through aes256-ctr --key-file key");
        place.run(&line).fails(2, &["--iv random", "--iv HEX"]);
        assert!(place.read("b") == sealed);
    }
    place.run("copy a b --through aes256-ctr --key-file key --iv 00").fails(2, &["--iv", "32"]);
    place.run(&format!("copy a b --through md5 --iv {IV}")).fails(2, &["--iv"]);
}

#[test]
fn wrong_keys_are_refused_in_words() {
    let place = Place::new();
    place.write("a", b"abc");
    key_file(&place, "short", &[7; 31]);
    key_file(&place, "text", &KEY.as_bytes()[..62]);
    key_file(&place, "twice", [KEY, KEY].concat().as_bytes());
    let with = |rest: &str| place.run(&format!("copy a b --through {rest}"));
    with("aes256-ctr --key-file short").fails(2, &["short", "31 bytes", "takes 32"]);
    with("aes256-ctr --key-file text").fails(2, &["31 bytes", "takes 32"]);
    with("aes256-xts --key-file short").fails(2, &["takes 64"]);
    with("aes256-xts --key-file twice").fails(2, &["halves"]);
    with("aes256-ctr").fails(2, &["no key", "DCS_KEY"]);
    with("aes256-ctr --key-file absent").fails(7, &["key file absent"]);
    let mut odd = place.dcs("copy a b --through aes256-ctr");
    Done(odd.env("DCS_KEY", "not hexadecimal").output().unwrap()).fails(2, &["DCS_KEY", "hexadecimal"]);
    assert_eq!(place.names(), ["a", "short", "text", "twice"]);
}

#[test]
fn keys_are_never_said_and_never_on_the_command_line() {
    let place = Place::new();
    place.write("a", &data(1000));
    place.write("open", KEY.as_bytes());
    for (line, code) in [
        ("copy a b --through aes256-ctr --iv random --json", 0),
        ("copy a b --through aes256-ctr --iv random", 0),
        ("copy a b --through aes256-xts", 2),
        ("copy a /dev/full --through aes256-ctr --iv random --json", 4),
        ("copy a b --through aes256-ctr --iv random --key-file open --json", 0),
    ] {
        let done = Done(place.dcs(line).env("DCS_KEY", KEY).output().unwrap());
        assert_eq!(done.code(), code, "{line}: {}", done.stderr());
        let said = done.stdout() + &done.stderr();
        assert!(!said.to_lowercase().contains(KEY) && !said.contains(&KEY[..16]), "{said}");
        assert_eq!(said.contains("others may read"), line.contains("key-file"), "{said}");
    }
    let done = place.run(&format!("copy a b --through aes256-ctr --key {KEY}"));
    assert_eq!(done.code(), 2, "there is no option for a key");
    let done = place.run(&format!("copy a b --through aes256-ctr:{KEY}"));
    assert_eq!(done.code(), 2, "there is no parameter for a key");
    assert!(!done.stderr().contains(KEY), "{}", done.stderr());
}
