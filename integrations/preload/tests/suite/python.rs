//! Python's os.sendfile, which is the C library's: compression, failures, the log.

use crate::place::{COUNTER, KEY, Place, output, seal};
use dcs_testkit::bytes;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

/// A script that sends a file over a socket pair, and checks the received data. Arguments: file, expected contents (a file, or -
/// for nothing), their encoding, blocking or not; or interrupted: blocking, with signals and a slow receiver.
const SEND: &str = "
import os, select, signal, socket, sys, threading, time, zlib
path, expected, encoding, blocking = sys.argv[1:]
ours, theirs = socket.socketpair()
ours.setblocking(blocking != 'not')
if blocking == 'interrupted':
    signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, 0.003, 0.003)
parts = []
def receive():
    while part := theirs.recv(65536):
        parts.append(part)
        if blocking == 'interrupted':
            time.sleep(0.005)
thread = threading.Thread(target=receive)
thread.start()
size, at = os.path.getsize(path), 0
failed = None
with open(path, 'rb') as file:
    while at < size:
        try:
            sent = os.sendfile(ours.fileno(), file.fileno(), at, min(size - at, 700001))
            assert 0 < sent <= min(size - at, 700001), sent
            at += sent
        except BlockingIOError as error:
            if blocking != 'not':
                failed = error
                break
            select.select([], [ours], [])
        except OSError as error:
            failed = error
            break
ours.close()
thread.join()
signal.setitimer(signal.ITIMER_REAL, 0)
data = b''.join(parts)
if expected == '-':
    assert failed is not None and failed.errno == 5, failed
    assert data == b'', len(data)
else:
    assert failed is None, failed
    if encoding == 'gzip':
        decoder = zlib.decompressobj(31)
        data = decoder.decompress(data)
        assert decoder.eof and not decoder.unused_data
    assert data == open(expected, 'rb').read()
";

fn send(place: &Place, rules: &str, arguments: &[&str]) {
    output(place.command("python3", rules).args(["-c", SEND]).args(arguments).current_dir(place.0.path()));
}

#[test]
fn gzip_is_whole_when_the_program_has_been_told_of_the_last_byte() {
    let place = Place::new();
    let text: String = (0..300_000).map(|line| format!("line {line}, {}\n", line % 17)).collect();
    place.write("text", text);
    place.write("noise", bytes(2_000_003, 3));
    place.write("small", "a");
    let rules = "[[rule]]\nthrough = 'md5,gzip:6'\nuntil_close = true\n";
    for file in ["text", "noise", "small"] {
        for blocking in ["blocking", "not", "interrupted"] {
            send(&place, rules, &[file, file, "gzip", blocking]);
            let objects = place.log("object");
            assert!(objects.len() == 1 && objects[0]["whole"] == true, "{objects:?}");
            assert_eq!(place.check_digests(|path| path.into()), 1);
        }
    }
}

#[test]
fn what_cannot_be_decrypted_is_not_sent() {
    let place = Place::new();
    place.write("file", bytes(100_000, 4));
    place.write("key", KEY);
    let key = place.path("key");
    let none = place.path("none");
    let cipher = "[[rule]]\nthrough = 'aes256-ctr'\n";
    for rules in [
        format!("{cipher}key_file = {none:?}\ncounter = '00000000000000000000000000000000'\n"),
        format!("{cipher}key_file = {key:?}\ncounter = 'xattr:user.none'\n"),
    ] {
        send(&place, &rules, &["file", "-", "plain", "blocking"]);
    }
    assert_eq!((place.counters()["failed"], place.counters()["kernel_calls"]), (2, 0));
    assert_eq!(place.log("trouble").len(), 1, "the log is of the second run");
}

/// Checks this because a child with fewer rights than its parent may be unable to open either.
#[test]
fn what_is_sealed_is_decrypted_without_log_and_counters_too() {
    let place = Place::new();
    let (plain, sealed) = (place.write("plain", bytes(1_000_003, 8)), place.path("sealed"));
    seal(&plain, &sealed);
    let (key, none) = (place.write("key", KEY), place.path("none/file"));
    let rule = format!("[[rule]]\nthrough = 'aes256-ctr'\nkey_file = {key:?}\ncounter = '{COUNTER}'\n");
    let mut python = place.command("python3", "");
    python.env("DCS_PRELOAD_RULES", format!("log = {none:?}\ncounters = {none:?}\n{rule}"));
    python.args(["-c", SEND, "sealed", "plain", "plain", "blocking"]).current_dir(place.0.path());
    let done = python.output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{said}");
    assert!(said.contains("log /") && said.contains("counters /"), "{said}");
}

#[test]
fn processes_that_start_at_once_make_one_file_of_counters() {
    for _ in 0..5 {
        let place = Place::new();
        let file = place.write("file", bytes(1000, 9));
        let send = "import os, socket, sys; ours, theirs = socket.socketpair(); os.sendfile(ours.fileno(), os.open(sys.argv[1], 0), 0, 1000)";
        let mut python = place.command("python3", "[[rule]]\nthrough = []\n");
        python.args(["-S", "-c", send]).arg(&file).stderr(std::process::Stdio::piped());
        let children: Vec<_> = (0..16).map(|_| python.spawn().unwrap()).collect();
        for child in children {
            let done = child.wait_with_output().unwrap();
            assert!(done.status.success() && done.stderr.is_empty(), "{done:?}");
        }
        assert_eq!(place.counters()["kernel_bytes"], 16 * 1000);
    }
}

/// Checks this because a user who may read the counters can lock them, and one who may write a FIFO can leave it without a
/// reader.
#[test]
fn a_program_starts_whatever_others_do_to_log_and_counters() {
    let place = Place::new();
    place.write("file", bytes(1000, 21));
    let (fifo, counters) = (place.path("fifo"), place.write("counters", ""));
    let locked = std::fs::File::open(&counters).unwrap();
    locked.lock().unwrap();
    output(Command::new("mkfifo").arg(&fifo));
    let mut python = place.command("python3", "");
    python.env(
        "DCS_PRELOAD_RULES",
        format!("log = {fifo:?}\ncounters = {counters:?}\n[[rule]]\nthrough = 'md5'\n"),
    );
    python.args(["-c", SEND, "file", "file", "plain", "blocking"]).current_dir(place.0.path());
    let done = python.output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success() && said.contains("log /") && !said.contains("counters /"), "{said}");
    assert_eq!((place.counters()["engine_bytes"], place.counters()["log_lost"]), (1000, 2));
}

/// Checks this because a user who may write them can truncate them, which would kill each process that has them mapped.
#[test]
fn counters_that_other_users_may_write_are_not_taken() {
    let place = Place::new();
    place.write("file", bytes(1000, 22));
    let counters = place.write("counters", "");
    let start = |said: &str| {
        let mut python = place.command("python3", "[[rule]]\nthrough = 'md5'\n");
        python.args(["-c", SEND, "file", "file", "plain", "blocking"]).current_dir(place.0.path());
        let done = python.output().unwrap();
        let told = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success() && told.contains(said), "{told}");
        assert_eq!(std::fs::metadata(&counters).unwrap().len(), 0);
    };
    std::fs::set_permissions(&counters, std::fs::Permissions::from_mode(0o664)).unwrap();
    start("other users may write it");
    std::fs::set_permissions(&counters, std::fs::Permissions::from_mode(0o644)).unwrap();
    if std::os::unix::fs::chown(&counters, Some(65534), None).is_ok() {
        start("it belongs to another user");
    }
}

/// A script. Argument: a file, which is sent through one descriptor of a socket, and, after that is closed, through another.
const DUPLICATE: &str = "
import os, socket, sys, time
file, size = os.open(sys.argv[1], os.O_RDONLY), os.path.getsize(sys.argv[1])
ours, theirs = socket.socketpair()
at = os.sendfile(ours.fileno(), file, 0, 1000)
twin = ours.dup()
ours.close()
# Until it was looked twice for sockets that are gone: each time another one is.
for times in (1, 2):
    other, _ = socket.socketpair()
    os.sendfile(other.fileno(), file, 5, 1000)
    other.close()
    while open('log').read().count('closed') < times:
        time.sleep(0.01)
while at < size:
    at += os.sendfile(twin.fileno(), file, at, size - at)
";

#[test]
fn a_digest_goes_on_when_one_of_two_duplicates_is_closed() {
    let place = Place::new();
    place.write("file", bytes(20_000, 23));
    let mut python = place.command("python3", "[[rule]]\nthrough = 'md5'\n");
    output(python.args(["-c", DUPLICATE, "file"]).current_dir(place.0.path()));
    let objects = place.log("object");
    let whole: Vec<_> = objects.iter().filter(|object| object["whole"] == true).collect();
    assert_eq!((objects.len(), whole.len()), (3, 1), "{objects:?}");
    assert_eq!(place.check_digests(|path| path.into()), 3);
}

#[test]
fn each_process_says_what_it_counted() {
    let place = Place::new();
    place.write("file", bytes(100_000, 5));
    send(&place, "[[rule]]\nthrough = 'sha1'\n", &["file", "file", "plain", "blocking"]);
    let summaries = place.log("summary");
    assert_eq!(summaries.len(), 1, "{summaries:?}");
    assert_eq!(summaries[0]["engine_bytes"], 100_000);
    assert_eq!((&summaries[0]["kernel_calls"], &summaries[0]["objects"]), (&0.into(), &1.into()));
    assert_eq!(place.counters()["engine_bytes"], 100_000);
}

#[test]
fn a_bad_configuration_is_said_and_harms_no_program() {
    let place = Place::new();
    place.write("file", bytes(1000, 6));
    let mut python = place.command("python3", "[[rule]]\nthrough = 'md6'\n");
    python.args(["-c", SEND, "file", "file", "plain", "blocking"]).current_dir(place.0.path());
    let done = python.output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{said}");
    assert!(said.contains("rule 1: there is no operator \"md6\""), "{said}");
}

/// A script. Arguments: file, and number of concurrent connections. All are begun before any is ended.
const MANY: &str = "
import os, resource, select, socket, sys, time
path, count = sys.argv[1], int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
expected = open(path, 'rb').read()
before = len(os.listdir('/proc/self/fd'))
file = os.open(path, os.O_RDONLY)
pairs = [socket.socketpair() for _ in range(count)]
sent, got = [0] * count, [b''] * count
for ours, theirs in pairs:
    ours.setblocking(False)
while min(sent) < len(expected):
    for at, (ours, theirs) in enumerate(pairs):
        try:
            if sent[at] < len(expected):
                sent[at] += os.sendfile(ours.fileno(), file, sent[at], len(expected) - sent[at])
        except BlockingIOError:
            pass
    for at, (ours, theirs) in enumerate(pairs):
        got[at] += theirs.recv(1 << 20) if select.select([theirs], [], [], 0)[0] else b''
for at, (ours, theirs) in enumerate(pairs):
    ours.close()
    while part := theirs.recv(1 << 20):
        got[at] += part
    theirs.close()
    assert got[at] == expected, at
os.close(file)
# What is kept for the next streams is bounded.
left = len(os.listdir('/proc/self/fd')) - before
assert left < 200, left
";

#[test]
fn more_streams_than_one_engine_has_go_side_by_side() {
    let place = Place::new();
    let file = place.write("file", bytes((1 << 20) + 5, 7));
    let mut python = place.command("python3", "[[rule]]\nthrough = 'md5'\n");
    output(python.args(["-c", MANY]).arg(&file).arg("200"));
    let counted = place.counters();
    assert_eq!(
        (counted["objects"], counted["fallback_calls"], counted["failed"]),
        (200, 0, 0),
        "{counted:?}"
    );
    assert!(place.log("object").iter().all(|object| object["whole"] == true));
    assert_eq!(place.check_digests(|path| path.into()), 200);
}
