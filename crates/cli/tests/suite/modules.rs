//! Users' own operators, in WebAssembly: kept, listed, in chains, and bad ones.

use crate::run::{KEY, Place, data};
use std::path::Path;

const SIZE: usize = 700_001;

/// Writes an example of the SDK as `NAME.wasm`.
fn with(names: &[&str]) -> Place {
    let place = Place::new();
    for name in names {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../sdk/examples/{name}.wat"));
        place.write(&format!("{name}.wasm"), &wat::parse_file(path).unwrap());
    }
    place.write("a", &data(SIZE));
    place
}

/// Makes a module whose `dcs_step` has that body.
fn stepping(body: &str) -> Vec<u8> {
    let text = format!(
        r#"(module (memory (export "memory") 1)
        (data (i32.const 0) "\01\00\00\00\00\04\00\00\00\10\00\00\00\04\00\00\00\10\00\00")
        (func (export "dcs_operator") (result i32) (i32.const 0))
        (func (export "dcs_start") (param i32) (result i32) (i32.const 0))
        (func (export "dcs_step") (param $n i32) (param $last i32) (result i32) {body}))"#
    );
    wat::parse_str(text).unwrap()
}

#[test]
fn a_module_is_kept_used_and_forgotten() {
    let place = with(&["upper", "count"]);
    let unknown = place.run("copy a b --through upper");
    assert_eq!(unknown.code(), 2);
    assert!(unknown.stderr().contains("dcs ops --load"), "{}", unknown.stderr());
    for name in ["upper", "count"] {
        assert_eq!(place.run(&format!("ops --load {name}.wasm --json")).ok().json()["name"], name);
    }
    let listed = place.run("ops --no-measure --json").ok().lines();
    let tail: Vec<_> = listed[listed.len() - 2..].iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert_eq!(tail, ["count", "upper"]);
    place.run("copy a b --through upper").ok();
    assert!(place.read("b") == data(SIZE).to_ascii_uppercase());
    let done = place.run("copy a b --through count").ok();
    let lines = data(SIZE).iter().filter(|byte| **byte == b'\n').count();
    assert_eq!(done.stdout(), format!("count  {lines:016x}{SIZE:016x}  a\n"));
    place.run("ops --unload upper").ok();
    assert_eq!(place.run("copy a b --through upper").code(), 2);
    assert_eq!(place.run("ops --unload upper").code(), 7);
    assert_eq!(place.run("ops --unload ../upper").code(), 7);
}

#[test]
fn modules_stand_in_chains_and_on_both_sides_of_a_connection() {
    let place = with(&["upper", "count"]);
    let key = place.write("key", KEY.as_bytes());
    std::fs::set_permissions(key, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let iv = "00".repeat(16);
    let chain = "./upper.wasm,md5,./count.wasm,aes256-ctr,gzip:1";
    let done = place.run(&format!("copy a b --through {chain} --key-file key --iv {iv} --json")).ok();
    let json = done.json();
    assert_eq!(json["chain"].as_array().unwrap().len(), 5);
    assert_eq!(json["chain"][2], "./count.wasm");
    let back = format!("copy b c --through gunzip,aes256-ctr,md5 --key-file key --iv {iv} --json");
    assert_eq!(place.run(&back).ok().digests()[0], done.digests()[0]);
    assert!(place.read("c") == data(SIZE).to_ascii_uppercase());

    let receiver = place.recv("d --through gunzip,./upper.wasm", |_| {});
    place.run(&format!("send a {} --through ./count.wasm,gzip:1", receiver.address)).ok();
    receiver.end().ok();
    assert!(place.read("d") == data(SIZE).to_ascii_uppercase());
}

#[test]
fn a_bad_module_fails_its_own_command_and_says_how() {
    let place = Place::new();
    place.write("a", &data(SIZE));
    let lies =
        "(i32.store (i32.const 20) (local.get $n)) (i32.store (i32.const 24) (i32.const 5000)) (i32.const 0)";
    for (name, body, words) in [
        ("loops", "(loop $again (br $again)) (unreachable)", "ran for longer"),
        ("traps", "(unreachable)", "stopped by a trap"),
        (
            "grows",
            "(loop $again (drop (memory.grow (i32.const 1))) (br $again)) (unreachable)",
            "asked for more memory",
        ),
        ("lies", lies, "breaks the rules of modules"),
    ] {
        place.write(&format!("{name}.wasm"), &stepping(body));
        place.run(&format!("ops --load {name}.wasm")).ok();
        let failed = place.run(&format!("copy a b --through md5,{name}"));
        assert_eq!(failed.code(), 1, "{name}");
        assert!(failed.stderr().contains(words), "{name}: {}", failed.stderr());
        assert!(failed.stderr().contains("docs/wasm.md"), "{name}: {}", failed.stderr());
        assert!(!place.path("b").exists(), "{name}");
    }
}

#[test]
fn what_cannot_be_kept_says_why() {
    let place = with(&["upper"]);
    place.write("text.wasm", b"(module)");
    place.write("md5.wasm", &place.read("upper.wasm"));
    place.write("a.b.wasm", &place.read("upper.wasm"));
    place.write("upper", &place.read("upper.wasm"));
    for (file, code, words) in [
        ("text.wasm", 2, "not a valid WebAssembly module"),
        ("md5.wasm", 2, "can't be an operator's name"),
        ("a.b.wasm", 2, "can't be an operator's name"),
        ("upper", 2, "call it NAME.wasm"),
        ("none.wasm", 7, "none.wasm"),
    ] {
        let refused = place.run(&format!("ops --load {file}"));
        assert_eq!(refused.code(), code, "{file}: {}", refused.stderr());
        assert!(refused.stderr().contains(words), "{file}: {}", refused.stderr());
    }
    assert!(!place.path("operators").exists());
    let refused = place.run("copy a b --through ./upper.wasm:x");
    assert_eq!(refused.code(), 2);
    assert!(refused.stderr().contains("wrong length or value"), "{}", refused.stderr());
    let long = place.run(&format!("copy a b --through ./upper.wasm:{}", "x".repeat(1025)));
    assert_eq!(long.code(), 2);
}
