//! Files that change while they are sent: that grow, are removed, are written, or do not tell their size.

use crate::place::{COUNTER, KEY, Place, output, seal};
use dcs_testkit::bytes;

fn python(place: &Place, rules: &str, script: &str, arguments: &[&str]) {
    let arguments = arguments.iter().map(|name| place.path(name));
    output(place.command("python3", rules).args(["-c", script]).args(arguments).current_dir(place.0.path()));
}

fn decrypting(place: &Place, pattern: &str) -> String {
    let key = place.write("key", KEY);
    format!(
        "[[rule]]\npath = '{pattern}'\nthrough = 'aes256-ctr'\nkey_file = {key:?}\ncounter = '{COUNTER}'\n"
    )
}

/// A script. Arguments: the file that another process appends to `growing` piece by piece, and the expected file.
const GROW: &str = "
import os, socket, sys, time
source, expected = (open(path, 'rb').read() for path in sys.argv[1:])
growing = os.open('growing', os.O_RDWR | os.O_CREAT | os.O_TRUNC)
if os.fork() == 0:
    for at in range(0, len(source), 4096):
        os.write(growing, source[at:at + 4096])
        time.sleep(0.0001)
    os._exit(0)
ours, theirs = socket.socketpair()
ours.setblocking(False)
theirs.setblocking(False)
data, at = bytearray(), 0
while len(data) < len(expected):
    try:
        at += os.sendfile(ours.fileno(), growing, at, 65536)
    except BlockingIOError:
        pass
    try:
        data += theirs.recv(1 << 20)
    except BlockingIOError:
        pass
assert data == expected
os.wait()
";

#[test]
fn what_is_appended_to_a_sealed_file_is_decrypted_too() {
    let place = Place::new();
    place.write("plain", bytes(4 << 20, 12));
    seal(&place.path("plain"), &place.path("sealed"));
    let rules = decrypting(&place, "*/growing");
    python(&place, &rules, GROW, &["sealed", "plain"]);
    let counted = place.counters();
    assert_eq!(
        (counted["engine_bytes"], counted["kernel_bytes"], counted["failed"]),
        (4 << 20, 0, 0),
        "{counted:?}"
    );
}

#[test]
fn what_is_appended_has_digests_too() {
    let place = Place::new();
    place.write("plain", bytes(4 << 20, 13));
    python(&place, "[[rule]]\nthrough = 'md5'\n", GROW, &["plain", "plain"]);
    let counted = place.counters();
    let others = (counted["kernel_bytes"], counted["fallback_bytes"], counted["failed"]);
    assert_eq!((counted["engine_bytes"], others), (4 << 20, (0, 0, 0)), "{counted:?}");
    assert!(place.check_digests(|path| path.into()) > 0);
}

/// A script. Arguments: a file that is removed once it is open, and the expected file.
const REMOVED: &str = "
import os, socket, sys
path, expected = sys.argv[1], open(sys.argv[2], 'rb').read()
file = os.open(path, os.O_RDONLY)
os.unlink(path)
ours, theirs = socket.socketpair()
sent = os.sendfile(ours.fileno(), file, 0, len(expected))
assert sent == len(expected), sent
assert theirs.recv(1 << 20) == expected
";

#[test]
fn a_sealed_file_that_was_removed_is_decrypted_still() {
    let place = Place::new();
    place.write("plain", bytes(1000, 14));
    // The second name contains the suffix that the kernel adds for removed files.
    for name in ["sealed.bin", "sealed.bin (deleted)"] {
        for pattern in ["*/sealed.bin", "*/sealed.bin (deleted)"] {
            seal(&place.path("plain"), &place.path(name));
            let rules = decrypting(&place, pattern);
            let expected = if pattern.ends_with(name) { "plain" } else { "sealed.copy" };
            std::fs::copy(place.path(name), place.path("sealed.copy")).unwrap();
            python(&place, &rules, REMOVED, &[name, expected]);
        }
    }
}

/// A script that sends a file of /proc, which has bytes but size 0.
const SIZELESS: &str = "
import os, socket, sys
ours, theirs = socket.socketpair()
file = os.open('/proc/version', os.O_RDONLY)
try:
    sent = os.sendfile(ours.fileno(), file, 0, 4096)
except OSError as error:
    sent = -error.errno
ours.close()
data = theirs.recv(1 << 20)
expected = open('/proc/version', 'rb').read()
print(sent == len(expected) and data == expected, sent if data == b'' else '')
";

#[test]
fn a_file_that_does_not_tell_its_size_goes_by_the_kernel_or_not_at_all() {
    let place = Place::new();
    let said = |rules: &str| output(place.command("python3", rules).args(["-c", SIZELESS]));
    assert_eq!(said("[[rule]]\nthrough = 'md5'\n"), "True \n");
    assert_eq!(place.counters()["fallback_calls"], 1);
    assert_eq!(said(&decrypting(&place, "/proc/*")), "False -5\n");
    assert_eq!(place.counters()["failed"], 1);
    assert_eq!(place.counters()["kernel_calls"], 0);
}

/// A script that writes to the file after the call, before the peer reads.
const OVERWRITE: &str = "
import hashlib, os, socket, sys
path = sys.argv[1]
ours, theirs = socket.socketpair()
ours.setblocking(False)
size = os.path.getsize(path)
file = os.open(path, os.O_RDWR)
sent = os.sendfile(ours.fileno(), file, 0, size)
os.pwrite(file, bytes(size), 0)
ours.close()
data = b''.join(iter(lambda: theirs.recv(65536), b''))
assert len(data) == sent
print(hashlib.md5(data).hexdigest())
";

#[test]
fn a_digest_is_of_the_bytes_that_the_peer_gets() {
    let place = Place::new();
    // As much as the socket accepts at once.
    place.write("file", bytes(40_000, 15));
    let rules = "[[rule]]\nthrough = 'md5'\n";
    let got = output(place.command("python3", rules).args(["-c", OVERWRITE]).arg(place.path("file")));
    let objects = place.log("object");
    assert_eq!((objects.len(), &objects[0]["sent"]), (1, &40_000.into()), "{objects:?}");
    assert_eq!(objects[0]["digests"][0]["value"], got.trim());
}
