//! The generator as a command; see the library's documentation.
#![forbid(unsafe_code)]

use dcs_abi_gen::{COMMAND, Error, outputs, root};
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let check = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => false,
        ["--check"] => true,
        _ => return fail(&format!("usage: {COMMAND} [-- --check]")),
    };
    let Some(root) = root() else {
        return fail("not inside the repository: no crates/abi in this folder or above it");
    };
    match run(&root, check) {
        Ok(stale) if check && stale > 0 => fail(&format!("{stale} stale; to fix: {COMMAND}")),
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => fail(&error.to_string()),
    }
}

/// Lists stale files, writes them unless only checking, and counts them.
fn run(root: &Path, check: bool) -> Result<usize, Error> {
    let outputs = outputs(root)?;
    let stale: Vec<_> = outputs.iter().filter(|output| output.is_stale(root)).collect();
    for output in &stale {
        println!("{}: {}", output.path, if check { "stale" } else { "written" });
        if !check {
            output.write(root)?;
        }
    }
    Ok(stale.len())
}

fn fail(why: &str) -> ExitCode {
    eprintln!("dcs-abi-gen: {why}");
    ExitCode::FAILURE
}
