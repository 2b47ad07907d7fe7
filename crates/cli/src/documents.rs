//! Checks that this program takes every `dcs` command in README, docs and help, so that a changed name is noticed.
//! `tests/suite/documents.rs` runs those that can run anywhere. Those of `dcs-bench` and `dcs-csd` are checked next to
//! their own parsers.

use crate::args::{Arguments, CipherOptions, Command};
use crate::chain;
use dcs::Operator;
use dcs_documents::{Program, shown, wrong};

const PROGRAM: Program<Arguments> = Program { name: "dcs", unfit };

/// Checks operators and counters, which clap does not parse.
fn unfit(arguments: &Arguments) -> Option<String> {
    let moving = match &arguments.command {
        Command::Send(send) => &send.moving,
        Command::Recv(recv) => &recv.moving,
        Command::Copy(copy) => &copy.moving,
        Command::Stream(stream) => return chain_of(&stream.through, &stream.ciphers),
        Command::Record(record) => return chain_of(&record.through, &record.ciphers),
        _ => return None,
    };
    chain_of(&moving.through, &moving.ciphers)
}

/// Names the SDK's examples by their files, as if `dcs ops --load` kept them.
fn with_examples(through: &str) -> String {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../sdk/examples");
    let name = |word: &str| match std::fs::exists(format!("{folder}/{word}.wat")) {
        Ok(true) if !word.is_empty() => format!("./{word}.wasm"),
        _ => word.to_string(),
    };
    through.split(',').map(name).collect::<Vec<_>>().join(",")
}

fn chain_of(through: &[String], ciphers: &CipherOptions) -> Option<String> {
    let through: Vec<_> = through.iter().map(|words| with_examples(words)).collect();
    let operators = match chain::operators(&through) {
        Ok(operators) => operators,
        Err(failure) => return Some(failure.line),
    };
    let of = |wanted: Operator| operators.iter().filter(|operator| **operator == wanted).count();
    let counters = of(Operator::Aes256Ctr) + of(Operator::BlowfishCtr);
    (counters != ciphers.iv.len()).then(|| format!("{counters} aes256-ctr and {} --iv", ciphers.iv.len()))
}

#[test]
fn commands_of_readme_and_docs_are_understood() {
    PROGRAM.check_documents(30);
}

#[test]
fn commands_of_help_are_understood() {
    PROGRAM.check_help(30);
}

#[test]
fn a_wrong_command_is_found() {
    PROGRAM.check_finds(&[
        "dcs sent a there:9000",
        "dcs send a there:9000 --though md5",
        "dcs send a there:9000 --through md6",
        "dcs copy a b --through aes256-ctr",
        "dcs help sent",
        "dcs send a",
        "dcs stream a.ts udp://h:1 --rate fast",
        "dcs stream a.ts udp://h:1 --list b.toml",
        "dcs record a.ts udp://:1",
    ]);
    let mentioned = shown("here", "It is `dcs send`, and `dcs sent` is not.");
    assert!(wrong(&mentioned[0], unfit).is_none() && wrong(&mentioned[1], unfit).is_some());
}
