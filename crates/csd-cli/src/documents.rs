//! Checks that each `dcs csd` command in README, docs and help is accepted by this program.

use crate::args::Arguments;
use dcs_documents::Program;

/// clap checks the whole command line.
const PROGRAM: Program<Arguments> = Program { name: "dcs-csd", unfit: |_| None };

#[test]
fn commands_of_readme_and_docs_are_understood() {
    PROGRAM.check_documents(5);
}

#[test]
fn commands_of_help_are_understood() {
    PROGRAM.check_help(10);
}

#[test]
fn a_wrong_command_is_found() {
    PROGRAM.check_finds(&[
        "dcs csd serve",
        "dcs csd run --drive a:size=8G",
        "dcs csd run --drive a:size=8X,backing=b",
        "dcs csd remove a/one",
        "dcs csd resize a/1",
        "dcs help csd runs",
    ]);
}
