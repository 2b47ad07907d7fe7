//! Help teaches by example, and names the exit codes.

use crate::run::Place;

#[test]
fn every_command_shows_examples_of_itself() {
    let place = Place::new();
    for command in [
        "demo",
        "bench",
        "bench host",
        "bench cores",
        "bench s3",
        "bench sim",
        "bench guest",
        "bench gpu",
        "bench csd",
        "bench stream",
        "vm",
    ] {
        let help = place.run(&format!("{command} --help")).ok().stdout();
        let (_, examples) = help.split_once("Examples:").expect("there are examples");
        let named = command.strip_suffix(" host").unwrap_or(command);
        assert!(examples.matches(&format!("dcs {named}")).count() >= 3, "{command}");
        assert!(help.contains("Exit codes:") && help.contains(&format!("Usage: dcs {command}")), "{help}");
    }
    let help = place.run("--help").ok().stdout();
    assert!(
        ["demo-", "bench-", "guest-"].iter().all(|hidden| !help.contains(hidden)),
        "hidden subcommands are not shown"
    );
}

#[test]
fn help_is_had_by_either_way_and_typing_errors_get_a_hint() {
    let place = Place::new();
    for command in ["demo", "bench", "bench s3", "vm demo"] {
        let help = place.run(&format!("help {command}")).ok().stdout();
        assert_eq!(help, place.run(&format!("{command} --help")).ok().stdout(), "{command}");
    }
    let said = place.run("benchmark").stderr();
    assert!(said.contains("'bench'"), "{said}");
    for hidden in ["guest-worker", "bench-server", "bench-client", "guest-environment"] {
        assert!(!said.contains(hidden), "{said}");
    }
}

#[test]
fn nonsense_is_a_usage_error() {
    let place = Place::new();
    for line in ["", "fly", "demo --runs 0", "bench serve", "server demo", "vm bench", "bench server latency"]
    {
        assert_eq!(place.run(line).code(), 2, "{line}");
    }
}
