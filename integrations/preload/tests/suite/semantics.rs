//! sendfile(2) as a program sees it, by `tests/c/semantics.c`: its transcript does not change.

use crate::place::{COUNTER, KEY, Place, compile, output, seal};
use dcs_testkit::bytes;
use std::process::Command;

const SIZE: usize = (3 << 20) + 77;

/// Compares the kernel's own sendfile with the library under these rules, for a file of theirs.
fn compare(rules: impl Fn(&Place) -> String, sealed: bool) -> Place {
    let place = Place::new();
    let program = compile(&place, "semantics");
    let plain = place.write("plain.bin", bytes(SIZE, 1));
    let file = if sealed { place.path("sealed.bin") } else { plain.clone() };
    if sealed {
        seal(&plain, &file);
    }
    let kernel = output(Command::new(&program).arg(&plain).current_dir(place.0.path()));
    let rules = rules(&place);
    let library = output(place.command(&program, &rules).arg(&file).current_dir(place.0.path()));
    for (kernel, library) in kernel.lines().zip(library.lines()) {
        assert_eq!(kernel, library);
    }
    assert_eq!(kernel, library);
    assert!(kernel.ends_with("done\n"));
    place
}

#[test]
fn with_digests_nothing_changes_for_the_program() {
    let place = compare(|_| "[[rule]]\nthrough = 'md5,crc32'\n".into(), false);
    let counted = place.counters();
    assert!(counted["engine_calls"] > 100, "{counted:?}");
    assert_eq!((counted["fallback_calls"], counted["failed"], counted["log_lost"]), (0, 0, 0), "{counted:?}");
    assert_eq!(place.log("trouble"), Vec::<serde_json::Value>::new());
    let checked = place.check_digests(|path| path.into());
    assert!(checked > 150, "{checked} digests");
    // Streams whose sockets were closed, or whose process ended, are in the log too.
    let ended = |why: &str| place.log("object").iter().filter(|object| object["ended"] == why).count();
    assert!(ended("end") > 0 && ended("left") > 0 && ended("closed") + ended("exit") > 0);
}

#[test]
fn a_file_is_decrypted_from_any_offset() {
    let rules = |place: &Place| {
        let key = place.write("key", KEY);
        format!("[[rule]]\nthrough = ['aes256-ctr', 'sha256']\nkey_file = {key:?}\ncounter = '{COUNTER}'\n")
    };
    let place = compare(rules, true);
    let counted = place.counters();
    assert!(counted["engine_calls"] > 100, "{counted:?}");
    assert_eq!((counted["fallback_calls"], counted["failed"]), (0, 0), "{counted:?}");
    let plain = place.path("plain.bin");
    assert!(place.check_digests(|_| plain.clone()) > 100);
}

#[test]
fn where_no_rule_applies_the_kernel_carries_every_call() {
    for rules in ["", "[[rule]]\npath = '/nowhere/*'\nthrough = 'md5'\n", "[[rule]]\nthrough = []\n"] {
        let place = compare(|_| rules.into(), false);
        let counted = place.counters();
        assert!(counted["kernel_calls"] > 300, "{counted:?}");
        assert_eq!((counted["engine_calls"], counted["fallback_calls"]), (0, 0), "{counted:?}");
        assert_eq!(place.log("object"), Vec::<serde_json::Value>::new());
    }
}
