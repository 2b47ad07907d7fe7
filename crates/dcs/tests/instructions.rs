//! Counts the instructions that library and engine take for a one-block transfer between handles: by callgrind, so
//! exactly, whatever else the machine does. The kernel's are not among them, nor is reading the clock without a
//! system call, which callgrind does not run.
//!
//! Where there is no valgrind, or this is not a release build of x86-64, nothing is counted, and the test
//! says so.

use std::path::PathBuf;
use std::process::Command;

const TRANSFERS: u64 = 512;

/// Most instructions of a transfer, by the example's arguments. An ordinary release build: packages are a little better.
/// Of those that gather in lanes there are 64 at once, and valgrind has 16 lanes.
const MOST: [(&[&str], u64); 3] = [(&[], 4_550), (&["prepared"], 2_500), (&["gathered"], 11_200)];

/// The example, with its symbols.
fn example() -> PathBuf {
    let built = Command::new(env!("CARGO"))
        .args(["build", "--release", "--locked", "--example", "control"])
        .env("CARGO_PROFILE_RELEASE_STRIP", "debuginfo")
        .status();
    assert!(built.is_ok_and(|status| status.success()), "the example is built");
    let mut path = std::env::current_exe().expect("a test knows where it is");
    path.pop();
    path.pop();
    path.join("examples/control")
}

/// Instructions of one of the example's transfers.
fn counted(arguments: &[&str]) -> u64 {
    let out = std::env::temp_dir().join(format!("dcs-instructions-{}", std::process::id()));
    let run = Command::new("valgrind")
        .args(["--tool=callgrind", "--toggle-collect=*control::counted*"])
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(example())
        .arg(TRANSFERS.to_string())
        .args(arguments)
        .output()
        .expect("valgrind was there a moment ago");
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let profile = std::fs::read_to_string(&out).expect("callgrind wrote its profile");
    std::fs::remove_file(&out).expect("the file is ours");
    let total =
        profile.lines().find_map(|line| line.strip_prefix("totals:")).expect("callgrind tells its total");
    total.trim().parse::<u64>().expect("it is a number") / TRANSFERS
}

#[test]
fn a_one_block_transfer_takes_no_more_instructions_than_promised() {
    if cfg!(debug_assertions) || !cfg!(target_arch = "x86_64") {
        return println!("skipped: only a release build for x86-64 is counted");
    }
    if !Command::new("valgrind").arg("--version").output().is_ok_and(|run| run.status.success()) {
        return println!("skipped: there is no valgrind");
    }
    for (arguments, most) in MOST {
        let instructions = counted(arguments);
        println!("{arguments:?}: {instructions} instructions a transfer");
        assert!((1000..=most).contains(&instructions), "{arguments:?}: {instructions}, promised {most}");
    }
}
