//! Help teaches by example, and names the exit codes.

use crate::run::Place;

#[test]
fn every_command_shows_examples_of_itself() {
    let place = Place::new();
    for command in ["send", "recv", "copy", "stream", "record", "ops", "run", "scrub", "doctor"] {
        let help = place.run(&format!("{command} --help")).ok().stdout();
        let (_, examples) = help.split_once("Examples:").expect("there are examples");
        assert!(examples.matches(&format!("dcs {command}")).count() >= 3, "{command}");
    }
    let help = place.run("--help").ok().stdout();
    assert!(help.contains("Exit codes:") && help.contains("130 interrupted"));
    for companion in ["  demo ", "  bench ", "  vm "] {
        assert!(help.contains(companion), "{companion} is shown, whoever does it");
    }
}

#[test]
fn help_is_had_by_either_way_and_typing_errors_get_a_hint() {
    let place = Place::new();
    for command in ["send", "recv", "serve", "card", "d2d"] {
        let help = place.run(&format!("help {command}")).ok().stdout();
        assert_eq!(help, place.run(&format!("{command} --help")).ok().stdout(), "{command}");
    }
    for (typed, meant) in [("receive", "'recv'"), ("sent", "'send'"), ("benchmark", "'bench'")] {
        let said = place.run(typed).stderr();
        assert!(said.contains(meant), "{said}");
    }
    place.run("recv - b").fails(2, &["PORT", "HOST:PORT", "unix:PATH"]);
}

/// Splits a command line before a comment, a pipe or a redirection, with a shell's quotation marks.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quoted) = (Vec::new(), None::<String>, false);
    for letter in line.chars() {
        match letter {
            '\'' => {
                quoted = !quoted;
                word.get_or_insert_default();
            }
            '#' | '|' | '>' if !quoted => break,
            ' ' if !quoted => words.extend(word.take()),
            letter => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    words
}

/// Checks that the examples are understood: a file or peer may be missing, nothing else.
#[test]
fn the_examples_are_understood() {
    let place = Place::new();
    for (command, least) in [("send", 4), ("recv", 4), ("copy", 4), ("stream", 4), ("record", 3)] {
        let help = place.run(&format!("{command} --help")).ok().stdout();
        let examples = help.lines().filter_map(|line| line.split_once(&format!("dcs {command} ")));
        let mut seen = 0;
        // A list itself names the operators of its channels.
        for (_, example) in
            examples.filter(|(before, example)| before.trim().is_empty() && !example.contains("--list "))
        {
            let example = example.replace("$iv", &"0".repeat(32)).replace("$sum", &"0".repeat(32));
            let mut run = place.dcs(command);
            let output = run.args(words(&example)).args(["--through", "aes256-gcm"]).output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(said.contains("no operator \"aes256-gcm\""), "{example}: {said}");
            seen += 1;
        }
        assert!(seen >= least, "{command}");
    }
}

#[test]
fn nonsense_is_a_usage_error() {
    let place = Place::new();
    for line in ["", "fly", "send", "copy a", "copy a b --timeout soon", "send a b --offset -1"] {
        assert_eq!(place.run(line).code(), 2, "{line}");
    }
}
