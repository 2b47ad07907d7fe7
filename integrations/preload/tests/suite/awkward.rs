//! Calls at awkward moments, by `tests/c/awkward.c`: cancelled threads, signal handlers.

use crate::place::{COUNTER, KEY, Place, compile, output, seal};
use dcs_testkit::bytes;

const SIZE: usize = (2 << 20) + 77;

/// Returns the output of the program with the library, these rules, and this file.
fn said(place: &Place, what: &str, rules: &str, file: &str) -> String {
    let program = compile(place, "awkward");
    output(place.command(&program, rules).arg(what).arg(place.path(file)))
}

/// Checks that a thread is not cancelled in sendfile(2), which continues to its end.
#[test]
fn a_thread_that_is_cancelled_in_a_call_ends_when_the_call_has_ended() {
    for what in ["cancelled", "cancelled-at-once"] {
        let place = Place::new();
        place.write("file", bytes(SIZE, 10));
        assert_eq!(
            said(&place, what, "[[rule]]\nthrough = 'md5'\n", "file"),
            "cancelled 1\nthen 10\nall 1\n"
        );
        place.check_digests(|path| path.into());
    }
}

#[test]
fn a_signal_handler_may_send_on_the_socket_that_it_interrupts() {
    let place = Place::new();
    place.write("file", bytes(SIZE, 11));
    assert_eq!(said(&place, "handler", "[[rule]]\nthrough = 'md5'\n", "file"), "handler 100 0\nall 1\n");
    // Data that the handler sent have no digest, and are counted.
    assert_eq!(place.counters()["fallback_bytes"], 100);
    place.check_digests(|path| path.into());
    // Data that would have to be decrypted are not sent.
    let key = place.write("key", KEY);
    seal(&place.path("file"), &place.path("sealed"));
    let rules = format!("[[rule]]\nthrough = 'aes256-ctr'\nkey_file = {key:?}\ncounter = '{COUNTER}'\n");
    assert_eq!(said(&place, "handler", &rules, "sealed"), "handler -1 EIO\nall 1\n");
}
