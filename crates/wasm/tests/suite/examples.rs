//! The SDK's examples: built if there are compilers, else as prebuilt text.

use crate::texts::run;
use dcs_testkit::random::bytes as random_bytes;
use dcs_wasm::{Limits, Module};
use std::path::{Path, PathBuf};
use std::process::Command;

#[path = "../../../../sdk/examples/longer.rs"]
mod longer;

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sdk/examples")
}

/// Loads an example from its text in the repository.
fn prebuilt(name: &str) -> Module {
    let bytes = wat::parse_file(examples().join(format!("{name}.wat"))).unwrap();
    Module::load(&bytes, Limits::default()).unwrap()
}

/// Builds an example; `None` without the compiler.
fn built(name: &str, compiler: &mut Command) -> Option<Module> {
    let output = std::env::temp_dir().join(format!("dcs-{name}-{}.wasm", std::process::id()));
    let made = compiler.arg("-o").arg(&output).current_dir(examples()).output();
    let made = match made {
        Ok(made) if made.status.success() => made,
        Ok(made) => {
            let text = String::from_utf8_lossy(&made.stderr).into_owned();
            println!("skipped: building {name}: {}", text.lines().next().unwrap_or_default());
            let missing =
                ["can't find crate for", "No available targets", "wasm-ld", "unable to create target"];
            assert!(missing.iter().any(|word| text.contains(word)), "{name}: {text}");
            return None;
        }
        Err(error) => {
            println!("skipped: building {name}: {:?}: {error}", compiler.get_program());
            return None;
        }
    };
    assert!(made.stderr.is_empty(), "{name}: {}", String::from_utf8_lossy(&made.stderr));
    let bytes = std::fs::read(&output).unwrap();
    std::fs::remove_file(&output).unwrap();
    Some(Module::load(&bytes, Limits::default()).unwrap())
}

/// Builds as the documents say; `DCS_WASM_CC` names another compiler, with its first arguments.
fn c(name: &str) -> Vec<Module> {
    let compiler = std::env::var("DCS_WASM_CC").unwrap_or("clang --target=wasm32".into());
    let mut words = compiler.split_whitespace();
    let mut command = Command::new(words.next().unwrap());
    command.args(words).args([
        "-Wall",
        "-Wextra",
        "-Werror",
        "-O2",
        "-mbulk-memory",
        "-nostdlib",
        "-Wl,--no-entry",
    ]);
    command.arg(format!("{name}.c"));
    built(name, &mut command).into_iter().chain([prebuilt(name)]).collect()
}

#[test]
fn upper() {
    let data: Vec<u8> = random_bytes(300_000, 1);
    let expected: Vec<u8> = data.iter().map(u8::to_ascii_uppercase).collect();
    for module in c("upper") {
        let (output, value) = run(&module, b"", &data, &[100_000, 17], 70_000).unwrap();
        assert!(output == expected && value.is_none());
        assert!(run(&module, b"x", &data, &[100], 100).is_err(), "it has no parameter");
    }
}

#[test]
fn count() {
    let data = random_bytes(300_001, 2);
    let lines = data.iter().filter(|byte| **byte == b'\n').count() as u64;
    let expected = [lines.to_be_bytes(), (data.len() as u64).to_be_bytes()].concat();
    for module in c("count") {
        let (output, value) = run(&module, b"", &data, &[100_000, 17], 7000).unwrap();
        assert!(output == data);
        assert_eq!(value.unwrap().as_bytes(), expected);
    }
}

/// Returns lines of words, some of them long.
fn lines(seed: u64) -> Vec<u8> {
    let mut data = random_bytes(400_000, seed);
    let mut ends = 0;
    for byte in &mut data {
        *byte = if *byte < 10 && ends % 900 < 450 { b'\n' } else { b'a' + *byte % 16 };
        ends += usize::from(*byte == b'\n');
        ends += usize::from(*byte == b'b');
    }
    data
}

fn longer_than(data: &[u8], limit: usize) -> Vec<u8> {
    let is_longer = |line: &&[u8]| line.strip_suffix(b"\n").unwrap_or(line).len() > limit;
    data.split_inclusive(|byte| *byte == b'\n').filter(is_longer).flatten().copied().collect()
}

#[test]
fn longer_on_this_machine() {
    use longer::Longer;
    use longer::dcs_operator::{Operator, State};
    for limit in [0, 10, 100, 5000] {
        let data = lines(limit as u64);
        let mut operator = Longer::start(limit.to_string().as_bytes()).unwrap();
        let (mut out, mut room, mut from) = (Vec::new(), vec![0; 64 << 10], 0);
        for end in (0..=data.len()).step_by(9973).chain([data.len()]) {
            let last = end == data.len();
            loop {
                let step = operator.step(&data[from..end], &mut room, last);
                out.extend_from_slice(&room[..step.produced]);
                from += step.consumed;
                if step.state == State::Finished || (from == end && !last) {
                    break;
                }
                assert!(step.consumed + step.produced > 0 && step.state == State::GoOn);
            }
        }
        assert!(out == longer_than(&data, limit), "{limit}");
    }
    assert!(
        Longer::start(b"").is_none() && Longer::start(b"x").is_none() && Longer::start(b"99999").is_none()
    );
}

#[test]
fn longer() {
    let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or("rustc".into()));
    rustc.args(["--edition", "2024", "--target", "wasm32-unknown-unknown", "-O", "-C", "panic=abort"]);
    rustc.args(["--crate-type", "cdylib", "longer.rs"]);
    if let Some(module) = built("longer", &mut rustc) {
        for limit in [0, 10, 5000] {
            let data = lines(limit as u64);
            let (output, _) =
                run(&module, limit.to_string().as_bytes(), &data, &[70_000, 1000], 3000).unwrap();
            assert!(output == longer_than(&data, limit), "{limit}");
        }
        assert!(run(&module, b"x", &[], &[1], 1).is_err());
    }
}
