//! Every `dcs csd` that README, docs and help show is one that this program takes.

use crate::args::Arguments;
use clap::CommandFactory;
use dcs_documents::{Shown, check, of_documents, of_help, shown, wrong};

fn own(all: Vec<Shown>) -> Vec<Shown> {
    all.into_iter().filter(|shown| shown.program() == "dcs-csd").collect()
}

/// clap looks at all of it.
fn unfit(_: &Arguments) -> Option<String> {
    None
}

#[test]
fn commands_of_readme_and_docs_are_understood() {
    check(&own(of_documents()), unfit, 5);
}

#[test]
fn commands_of_help_are_understood() {
    check(&own(of_help(&Arguments::command())), unfit, 10);
}

#[test]
fn a_wrong_command_is_found() {
    let wrong_ones = [
        "dcs csd serve",
        "dcs csd run --drive a:size=8G",
        "dcs csd run --drive a:size=8X,backing=b",
        "dcs csd remove a/one",
        "dcs csd resize a/1",
        "dcs help csd runs",
    ];
    for line in wrong_ones {
        let found = shown("here", &format!("    {line}"));
        assert!(found.len() == 1 && wrong(&found[0], unfit).is_some(), "{line}");
    }
}
