//! Target for the parsers of `dcs-preload-rules`: rules, key files, counters.

use dcs_abi::CHAIN_MAX;
use dcs_preload_rules::config::File;
use dcs_preload_rules::{Config, FirstCounter, counters, key};

/// Input has rules, up to the first NUL; behind it is the path of a file to send. Checks that accepted rules are the same after
/// being written again, as `dcs run` does. The same bytes are tried as a key, a counter block and a file of counters.
pub fn preload(data: &[u8]) {
    let (text, path) = data.split_at(data.iter().position(|byte| *byte == 0).unwrap_or(data.len()));
    rules(&String::from_utf8_lossy(text), &String::from_utf8_lossy(path.get(1..).unwrap_or(path)));
    first_counter(&String::from_utf8_lossy(text));
    keys(data);
    if let Some(values) = counters::parse(data) {
        assert_eq!((values.len(), data.len()), (counters::Counter::ALL.len(), counters::FILE_SIZE));
    }
}

fn rules(text: &str, path: &str) {
    let Ok(file) = File::from_text(text) else { return };
    let again =
        File::from_text(&file.to_text().expect("it came as text")).expect("what was taken is taken again");
    let (config, again) = match (Config::parse(&file), Config::parse(&again)) {
        (Ok(config), Ok(again)) => (config, again),
        (one, other) => return assert_eq!(one.is_ok(), other.is_ok()),
    };
    assert_eq!(format!("{config:?}"), format!("{again:?}"));
    for rule in &config.rules {
        assert!(rule.chain.steps().len() <= CHAIN_MAX);
        assert_eq!(rule.cipher.is_some(), rule.chain.decrypts(), "a cipher has a key");
        assert!(rule.takes_path(path) || rule.asks_path());
        assert!(
            rule.takes_port(None) != rule.asks_port(),
            "a socket without a port is taken by rules for all"
        );
    }
}

fn first_counter(text: &str) {
    match FirstCounter::parse(text) {
        Some(FirstCounter::Attribute(name)) => assert!(name.starts_with("user.") && !name.contains('\0')),
        Some(FirstCounter::Fixed(block)) => assert_eq!(key::counter(&block), Some(block)),
        None => {}
    }
}

fn keys(data: &[u8]) {
    match key::parse(data.to_vec()) {
        Ok(key) => {
            let digits = dcs_testkit::hex(&key);
            assert_eq!(key::parse(format!("{digits}\n").into_bytes()), Ok(key));
        }
        Err(length) => assert_ne!(length, 32),
    }
}
