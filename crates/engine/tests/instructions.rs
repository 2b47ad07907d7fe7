//! Counts the instructions that a one-block transfer takes in the core: by callgrind, so exactly, whatever
//! else the machine does. The driver's own part of `examples/alone.rs` is counted too: the figure is an
//! upper bound.
//!
//! Where there is no valgrind, or this is not a release build of x86-64, nothing is counted, and the test
//! says so.

use std::path::PathBuf;
use std::process::Command;

const TRANSFERS: u64 = 1000;

/// The example, built as packages are, but with its symbols.
fn example() -> PathBuf {
    let built = Command::new(env!("CARGO"))
        .args(["build", "--profile", "dist", "--locked", "--example", "alone"])
        .env("CARGO_PROFILE_DIST_STRIP", "none")
        .status();
    assert!(built.is_ok_and(|status| status.success()), "the example is built");
    let mut path = std::env::current_exe().expect("a test knows where it is");
    path.pop();
    path.pop();
    path.join("../dist/examples/alone")
}

/// Instructions of one transfer with this chain.
fn counted(chain: &[&str]) -> u64 {
    let directory =
        std::env::temp_dir().join(format!("dcs-instructions-{}-{}", std::process::id(), chain.len()));
    std::fs::create_dir_all(&directory).expect("a temporary directory can be made");
    let out = directory.join("callgrind");
    let run = Command::new("valgrind")
        .args(["--tool=callgrind", "--toggle-collect=*alone::counted*"])
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(example())
        .arg(TRANSFERS.to_string())
        .args(chain)
        .output()
        .expect("valgrind was there a moment ago");
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let profile = std::fs::read_to_string(&out).expect("callgrind wrote its profile");
    std::fs::remove_dir_all(&directory).expect("the directory is ours");
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
    for (chain, most) in [(&[][..], 4800), (&["md5"], 5800)] {
        let instructions = counted(chain);
        println!("chain {chain:?}: {instructions} instructions a transfer");
        assert!((500..=most).contains(&instructions), "chain {chain:?}: {instructions}, promised {most}");
    }
}
